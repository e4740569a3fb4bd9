/* SPDX-License-Identifier: BSD-3-Clause */
/* The invariant CRC. */
#include "wire/icrc.h"

#include "wire/icrc_method.h"

/* CRC of eight bytes of ones, complemented as all running values here. */
#define CRC_OF_LRH (~0xdebb20e3u)

/* So much stays in the first-level cache between copy and CRC. */
#define COPY_BLOCK 4096u

uint32_t icrc_update(uint32_t crc, const void *data, uint32_t length)
{
	return icrc_method.update(crc, data, length);
}

uint32_t icrc_copy_update(uint32_t crc, void *destination, const void *source, uint32_t length)
{
	uint8_t *to = destination;
	const uint8_t *from = source;

	while (length) {
		uint32_t part = length < COPY_BLOCK ? length : COPY_BLOCK;

		memcpy(to, from, part);
		crc = icrc_update(crc, to, part);
		to += part;
		from += part;
		length -= part;
	}
	return crc;
}

uint32_t icrc_headers(const uint8_t *l3, bool is_v4)
{
	uint8_t masked[sizeof(struct ipv6_header) + sizeof(struct udp_header) + sizeof(struct bth)];
	uint32_t ip_length = is_v4 ? sizeof(struct ipv4_header) : sizeof(struct ipv6_header);
	uint32_t length = ip_length + (uint32_t)(sizeof(struct udp_header) + sizeof(struct bth));

	memcpy(masked, l3, length);
	if (is_v4) {
		masked[offsetof(struct ipv4_header, tos)] = 0xff;
		masked[offsetof(struct ipv4_header, ttl)] = 0xff;
		memset(masked + offsetof(struct ipv4_header, checksum), 0xff, 2);
	} else {
		masked[0] |= 0x0f;
		memset(masked + 1, 0xff, 3);
		masked[offsetof(struct ipv6_header, hop_limit)] = 0xff;
	}
	memset(masked + ip_length + offsetof(struct udp_header, checksum), 0xff, 2);
	masked[ip_length + sizeof(struct udp_header) + offsetof(struct bth, resv8a)] = 0xff;
	return icrc_update(CRC_OF_LRH, masked, length);
}

/* --- whole packets: in one pass, or in parts where that is faster --------------------------- */

/* So much of a long packet goes in one pass with its headers. */
#define LONG_HEAD 64u

static uint32_t by_parts(const uint8_t *l3, bool is_v4, uint32_t length)
{
	const uint32_t head =
		(uint32_t)((is_v4 ? sizeof(struct ipv4_header) : sizeof(struct ipv6_header)) +
			   sizeof(struct udp_header) + sizeof(struct bth));

	return icrc_update(icrc_headers(l3, is_v4), l3 + head, length - head);
}

uint32_t icrc_packet(const uint8_t *l3, bool is_v4, uint32_t length)
{
	/* No good packet is something else than a multiple of 4; any may come. */
	if (!icrc_method.whole || length % 4)
		return by_parts(l3, is_v4, length);
	if (length <= icrc_method.longest)
		return icrc_method.whole(l3, is_v4, length);
	return icrc_method.update(icrc_method.whole(l3, is_v4, LONG_HEAD), l3 + LONG_HEAD,
				  length - LONG_HEAD);
}

/* Where one pass to copy and one for the ICRC would each miss the first-level cache. */
#define LONG_PAYLOAD 2048u

uint32_t icrc_packet_copy(uint8_t *l3, bool is_v4, uint32_t head, const void *payload,
			  uint32_t length, uint32_t pad)
{
	uint8_t *place = l3 + head;
	uint32_t crc;

	/* What is too much is where the ICRC goes. */
	memset(place + length, 0, ICRC_SIZE);
	if (icrc_method.copied && head + length + pad <= icrc_method.longest)
		return icrc_method.copied(l3, is_v4, head, place, payload, length, pad);
	if (length <= LONG_PAYLOAD) {
		memcpy(place, payload, length);
		return icrc_packet(l3, is_v4, head + length + pad);
	}
	crc = icrc_packet(l3, is_v4, head);
	return icrc_update(icrc_copy_update(crc, place, payload, length), place + length, pad);
}

uint32_t icrc_last(uint64_t bytes)
{
	return icrc_method.last(__builtin_bswap64(bytes));
}

uint32_t icrc_compute(const struct wire_view *view)
{
	const uint8_t *l3 = view->frame + view->l3_offset;

	return icrc_packet(l3, view->is_v4, (uint32_t)(view->icrc - l3));
}

bool icrc_verify(const struct wire_view *view)
{
	return icrc_compute(view) == icrc_load(view->icrc);
}
