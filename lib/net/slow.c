/* SPDX-License-Identifier: BSD-3-Clause */
/* Sorts frames of the slow path: which protocol, and whether anybody here wants them. */
#include "net/slow.h"

#define PROTOCOL_ICMP  1u
#define PROTOCOL_ICMP6 58u

enum slow_reason slow_receive(const struct link *link, const struct link_frame *frame,
			      uint8_t *answer, uint32_t capacity, struct slow_result *result)
{
	memset(result, 0, sizeof(*result));
	if (capacity < SLOW_FRAME_MAX)
		return SLOW_UNWANTED;
	switch (frame->ethertype) {
	case ETHERTYPE_ARP: return arp_receive(link, frame, answer, result);
	case ETHERTYPE_IPV4: return icmp4_receive(link, frame, answer, capacity, result);
	case ETHERTYPE_IPV6: return icmp6_receive(link, frame, answer, capacity, result);
	default: return SLOW_UNWANTED;
	}
}

/*
 * A busy LAN is full of frames for others: they must not fill the control core's ring.
 * ARP goes in when it asks for us or tells everybody who the sender is.
 */
static bool arp_wanted(const struct link *link, const struct link_frame *frame)
{
	uint8_t target[16];

	if (frame->length < 28)
		return false;
	gid_from_v4(target, frame->payload + 24);
	return link_owns(link, target) || memcmp(frame->payload + 14, frame->payload + 24, 4) == 0;
}

static bool icmp6_wanted(const struct link *link, const struct link_frame *frame)
{
	const uint8_t *ip = frame->payload;

	if (frame->length < 48 || ip[6] != PROTOCOL_ICMP6)
		return false;
	switch (ip[40]) {
	case 128: return link_owns(link, ip + 24);
	case 135: return frame->length >= 64 && link_owns(link, ip + 48);
	case 136: return true;
	default: return false;
	}
}

bool slow_wanted(const struct link *link, const struct link_frame *frame)
{
	uint8_t destination[16];

	switch (frame->ethertype) {
	case ETHERTYPE_ARP: return arp_wanted(link, frame);
	case ETHERTYPE_IPV4:
		if (frame->length < 28 || frame->payload[9] != PROTOCOL_ICMP)
			return false;
		gid_from_v4(destination, frame->payload + 16);
		return link_owns(link, destination);
	case ETHERTYPE_IPV6: return icmp6_wanted(link, frame);
	default: return false;
	}
}
