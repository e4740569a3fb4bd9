/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP and ICMPv6: echo requests are answered, nothing else is, and no error is sent. */
#include "net/slow.h"

#define IPV4_HEADER     20u
#define IPV6_HEADER     40u
#define ICMP_HEADER     8u
#define PROTOCOL_ICMP   1u
#define PROTOCOL_ICMP6  58u
#define ICMP_ECHO       8u
#define ICMP_ECHO_REPLY 0u
#define ICMP6_ECHO      128u
#define ICMP6_REPLY     129u
#define ICMP6_SOLICIT   135u
#define ICMP6_ADVERTISE 136u
#define OWN_HOP_LIMIT   64u

enum slow_reason icmp4_receive(const struct link *link, const struct link_frame *frame,
			       uint8_t *answer, uint32_t capacity, struct slow_result *result)
{
	const uint8_t *ip = frame->payload;
	uint8_t source[16], destination[16];
	uint32_t total, header;
	uint8_t *out;

	/* Options and fragments get no answer (RFC 1122 asks for neither of a ping of ours). */
	if (frame->length < IPV4_HEADER || ip[0] != 0x45)
		return SLOW_MALFORMED;
	total = get_be16(ip + 2);
	if (total < IPV4_HEADER + ICMP_HEADER || total > frame->length)
		return SLOW_MALFORMED;
	if (link_checksum(ip, IPV4_HEADER, 0))
		return SLOW_CHECKSUM;
	gid_from_v4(source, ip + 12);
	gid_from_v4(destination, ip + 16);
	if (!link_owns(link, destination))
		return SLOW_NOT_OURS;
	if (get_be16(ip + 6) & 0x3fff || ip[9] != PROTOCOL_ICMP)
		return SLOW_UNWANTED;
	if (link_checksum(ip + IPV4_HEADER, total - IPV4_HEADER, 0))
		return SLOW_CHECKSUM;
	if (ip[IPV4_HEADER] != ICMP_ECHO || ip[IPV4_HEADER + 1] != 0 || !gid_is_unicast(source) ||
	    link_owns(link, source))
		return SLOW_UNWANTED;

	header = link->vlan ? ETHER_HEADER + ETHER_TAG : ETHER_HEADER;
	if (header + total > capacity || total > link->mtu)
		return SLOW_UNWANTED;
	link_header(link, answer, frame->source_mac, ETHERTYPE_IPV4);
	out = answer + header;
	memcpy(out, ip, total);
	memcpy(out + 12, ip + 16, 4);
	memcpy(out + 16, ip + 12, 4);
	out[8] = OWN_HOP_LIMIT;
	put_be16(out + 10, 0);
	put_be16(out + 10, link_checksum(out, IPV4_HEADER, 0));
	out[IPV4_HEADER] = ICMP_ECHO_REPLY;
	put_be16(out + IPV4_HEADER + 2, 0);
	put_be16(out + IPV4_HEADER + 2, link_checksum(out + IPV4_HEADER, total - IPV4_HEADER, 0));
	result->answered = SLOW_ECHO;
	result->length = header + total;
	return SLOW_OK;
}

static enum slow_reason echo6(const struct link *link, const struct link_frame *frame,
			      uint32_t length, uint8_t *answer, uint32_t capacity,
			      struct slow_result *result)
{
	const uint8_t *ip = frame->payload;
	uint32_t header = link->vlan ? ETHER_HEADER + ETHER_TAG : ETHER_HEADER;
	uint8_t *out = answer + header;

	if (!link_owns(link, ip + 24))
		return SLOW_NOT_OURS;
	if (ip[IPV6_HEADER + 1] != 0 || !gid_is_unicast(ip + 8) || link_owns(link, ip + 8) ||
	    header + IPV6_HEADER + length > capacity || IPV6_HEADER + length > link->mtu)
		return SLOW_UNWANTED;
	link_header(link, answer, frame->source_mac, ETHERTYPE_IPV6);
	memcpy(out, ip, IPV6_HEADER + length);
	out[7] = OWN_HOP_LIMIT;
	memcpy(out + 8, ip + 24, 16);
	memcpy(out + 24, ip + 8, 16);
	out[IPV6_HEADER] = ICMP6_REPLY;
	put_be16(out + IPV6_HEADER + 2, 0);
	put_be16(out + IPV6_HEADER + 2,
		 link_checksum(out + IPV6_HEADER, length,
			       link_pseudo6(out + 8, out + 24, length, PROTOCOL_ICMP6)));
	result->answered = SLOW_ECHO;
	result->length = header + IPV6_HEADER + length;
	return SLOW_OK;
}

enum slow_reason icmp6_receive(const struct link *link, const struct link_frame *frame,
			       uint8_t *answer, uint32_t capacity, struct slow_result *result)
{
	const uint8_t *ip = frame->payload;
	uint32_t length;

	if (frame->length < IPV6_HEADER || ip[0] >> 4 != 6)
		return SLOW_MALFORMED;
	length = get_be16(ip + 4);
	if (length < ICMP_HEADER || length > frame->length - IPV6_HEADER)
		return SLOW_MALFORMED;
	if (ip[6] != PROTOCOL_ICMP6)
		return SLOW_UNWANTED;
	if (link_checksum(ip + IPV6_HEADER, length,
			  link_pseudo6(ip + 8, ip + 24, length, PROTOCOL_ICMP6)))
		return SLOW_CHECKSUM;
	switch (ip[IPV6_HEADER]) {
	case ICMP6_ECHO: return echo6(link, frame, length, answer, capacity, result);
	case ICMP6_SOLICIT:
	case ICMP6_ADVERTISE:
		return nd_receive(link, frame, ip + IPV6_HEADER, length, answer, result);
	default: return SLOW_UNWANTED;
	}
}
