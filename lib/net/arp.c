/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP (RFC 826): answers requests for our addresses, asks for others, announces ours. */
#include "net/slow.h"

#define ARP_LENGTH  28u
#define ARP_REQUEST 1u
#define ARP_REPLY   2u

static const uint8_t broadcast_mac[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
static const uint8_t no_mac[6];

/* Ethernet and IPv4, with address lengths to match. */
static const uint8_t arp_format[6] = { 0x00, 0x01, 0x08, 0x00, 6, 4 };

static uint32_t arp_build(const struct link *link, uint8_t *data, const uint8_t destination[6],
			  uint16_t operation, const uint8_t sender[4], const uint8_t target_mac[6],
			  const uint8_t target[4])
{
	uint32_t header = link_header(link, data, destination, ETHERTYPE_ARP);
	uint8_t *arp = data + header;
	uint32_t length = header + ARP_LENGTH;

	memcpy(arp, arp_format, 6);
	put_be16(arp + 6, operation);
	memcpy(arp + 8, link->mac, 6);
	memcpy(arp + 14, sender, 4);
	memcpy(arp + 18, target_mac, 6);
	memcpy(arp + 24, target, 4);
	if (length < ETHER_MINIMUM) {
		memset(data + length, 0, ETHER_MINIMUM - length);
		length = ETHER_MINIMUM;
	}
	return length;
}

enum slow_reason arp_receive(const struct link *link, const struct link_frame *frame,
			     uint8_t *answer, struct slow_result *result)
{
	const uint8_t *arp = frame->payload;
	uint16_t operation;
	uint8_t target[16];
	bool ours;

	if (frame->length < ARP_LENGTH || memcmp(arp, arp_format, 6) != 0)
		return SLOW_MALFORMED;
	operation = get_be16(arp + 6);
	if (operation != ARP_REQUEST && operation != ARP_REPLY)
		return SLOW_UNWANTED;
	gid_from_v4(result->gid, arp + 14);
	memcpy(result->mac, arp + 8, 6);
	/* A sender whose two source addresses differ speaks for somebody else. */
	if (memcmp(result->mac, frame->source_mac, 6) != 0 || !mac_is_unicast(result->mac))
		return SLOW_MALFORMED;
	if (link_owns(link, result->gid))
		return SLOW_UNWANTED; /* claims our address, or is our own frame come back */
	gid_from_v4(target, arp + 24);
	ours = link_owns(link, target);
	result->learned = gid_is_unicast(result->gid);
	result->asked = ours;
	if (!ours)
		return result->learned ? SLOW_OK : SLOW_NOT_OURS;
	if (operation == ARP_REQUEST) {
		/* A probe (RFC 5227) has no sender address yet and is answered all the same. */
		result->length = arp_build(link, answer, frame->source_mac, ARP_REPLY, arp + 24,
					   frame->source_mac, arp + 14);
		result->answered = SLOW_ARP;
	}
	return SLOW_OK;
}

uint32_t arp_request(const struct link *link, const uint8_t source[16], const uint8_t target[16],
		     const uint8_t *mac, uint8_t *data)
{
	return arp_build(link, data, mac ? mac : broadcast_mac, ARP_REQUEST, source + 12, no_mac,
			 target + 12);
}

uint32_t arp_announce(const struct link *link, const uint8_t address[16], uint8_t *data)
{
	return arp_build(link, data, broadcast_mac, ARP_REQUEST, address + 12, no_mac,
			 address + 12);
}
