/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbour discovery (RFC 4861): solicitations answered and sent, advertisements read. */
#include "net/slow.h"

#define IPV6_HEADER        40u
#define ND_HEADER          24u /* type .. target */
#define ND_OPTION          8u  /* a link-layer address option */
#define PROTOCOL_ICMP6     58u
#define ICMP6_SOLICIT      135u
#define ICMP6_ADVERTISE    136u
#define OPTION_SOURCE      1u
#define OPTION_TARGET      2u
#define ADVERTISE_SOLICIT  0x40u
#define ADVERTISE_OVERRIDE 0x20u

static const uint8_t no_address[16];
static const uint8_t all_nodes[16] = { 0xff, 0x02, [15] = 0x01 };

static void solicited_node(uint8_t group[16], const uint8_t address[16])
{
	static const uint8_t prefix[13] = { 0xff, 0x02, [11] = 0x01, [12] = 0xff };

	memcpy(group, prefix, sizeof(prefix));
	memcpy(group + 13, address + 13, 3);
}

static void group_mac(uint8_t mac[6], const uint8_t group[16])
{
	mac[0] = mac[1] = 0x33;
	memcpy(mac + 2, group + 12, 4);
}

/*
 * Looks for a link-layer address among the options. False when an option cannot be
 * (RFC 4861 7.1.1: a length of zero makes the whole message invalid).
 */
static bool nd_options(const uint8_t *option, uint32_t length, uint8_t type, const uint8_t **mac)
{
	*mac = NULL;
	while (length) {
		uint32_t size;

		if (length < 2)
			return false;
		size = option[1] * 8u;
		if (size == 0 || size > length)
			return false;
		if (option[0] == type && size == ND_OPTION)
			*mac = option + 2;
		option += size;
		length -= size;
	}
	return true;
}

static uint32_t nd_build(const struct link *link, uint8_t *data, const uint8_t destination_mac[6],
			 const uint8_t source[16], const uint8_t destination[16], uint8_t type,
			 uint8_t flags, const uint8_t target[16])
{
	uint32_t header = link_header(link, data, destination_mac, ETHERTYPE_IPV6);
	uint32_t length = ND_HEADER + ND_OPTION;
	uint8_t *ip = data + header;
	uint8_t *message = ip + IPV6_HEADER;

	memset(ip, 0, IPV6_HEADER + length);
	ip[0] = 0x60;
	put_be16(ip + 4, (uint16_t)length);
	ip[6] = PROTOCOL_ICMP6;
	ip[7] = 255; /* RFC 4861 7.1: proof that no router forwarded it */
	memcpy(ip + 8, source, 16);
	memcpy(ip + 24, destination, 16);
	message[0] = type;
	message[4] = flags;
	memcpy(message + 8, target, 16);
	message[ND_HEADER] = type == ICMP6_SOLICIT ? OPTION_SOURCE : OPTION_TARGET;
	message[ND_HEADER + 1] = 1;
	memcpy(message + ND_HEADER + 2, link->mac, 6);
	put_be16(message + 2,
		 link_checksum(message, length,
			       link_pseudo6(source, destination, length, PROTOCOL_ICMP6)));
	return header + IPV6_HEADER + length;
}

static enum slow_reason solicitation(const struct link *link, const struct link_frame *frame,
				     const uint8_t *message, const uint8_t *option_mac,
				     uint8_t *answer, struct slow_result *result)
{
	const uint8_t *source = frame->payload + 8;
	const uint8_t *destination = frame->payload + 24;
	const uint8_t *target = message + 8;
	uint8_t mac[6];
	bool probe = memcmp(source, no_address, 16) == 0;

	if (!link_owns(link, target))
		return SLOW_NOT_OURS;
	if (link_owns(link, source))
		return SLOW_UNWANTED; /* our own frame come back */
	if (probe) {
		uint8_t group[16];

		/* Duplicate address detection: to the group, without an address option. */
		solicited_node(group, target);
		if (option_mac || memcmp(destination, group, 16) != 0)
			return SLOW_MALFORMED;
		group_mac(mac, all_nodes);
		result->length = nd_build(link, answer, mac, target, all_nodes, ICMP6_ADVERTISE,
					  ADVERTISE_OVERRIDE, target);
	} else {
		if (!gid_is_unicast(source))
			return SLOW_MALFORMED;
		memcpy(mac, option_mac ? option_mac : frame->source_mac, 6);
		if (!mac_is_unicast(mac))
			return SLOW_MALFORMED;
		result->length = nd_build(link, answer, mac, target, source, ICMP6_ADVERTISE,
					  ADVERTISE_SOLICIT | ADVERTISE_OVERRIDE, target);
		result->learned = result->asked = true;
		memcpy(result->gid, source, 16);
		memcpy(result->mac, mac, 6);
	}
	result->answered = SLOW_ND;
	return SLOW_OK;
}

static enum slow_reason advertisement(const struct link *link, const struct link_frame *frame,
				      const uint8_t *message, const uint8_t *option_mac,
				      struct slow_result *result)
{
	const uint8_t *target = message + 8;
	bool solicited = message[4] & ADVERTISE_SOLICIT;
	/* An answer to one station may leave the option out: it is in the frame then. */
	const uint8_t *mac = option_mac ? option_mac : frame->source_mac;

	if (!gid_is_unicast(target) || !mac_is_unicast(mac))
		return SLOW_MALFORMED;
	if (solicited && frame->payload[24] == 0xff)
		return SLOW_MALFORMED;
	if (link_owns(link, target))
		return SLOW_UNWANTED; /* claims our address */
	if (solicited && !link_owns(link, frame->payload + 24))
		return SLOW_NOT_OURS;
	result->learned = true;
	memcpy(result->gid, target, 16);
	memcpy(result->mac, mac, 6);
	return SLOW_OK;
}

enum slow_reason nd_receive(const struct link *link, const struct link_frame *frame,
			    const uint8_t *message, uint32_t length, uint8_t *answer,
			    struct slow_result *result)
{
	const uint8_t *option_mac;
	uint8_t type = message[0];

	if (frame->payload[7] != 255 || message[1] != 0 || length < ND_HEADER)
		return SLOW_MALFORMED;
	if (message[8] == 0xff ||
	    !nd_options(message + ND_HEADER, length - ND_HEADER,
			type == ICMP6_SOLICIT ? OPTION_SOURCE : OPTION_TARGET, &option_mac))
		return SLOW_MALFORMED;
	if (type == ICMP6_SOLICIT)
		return solicitation(link, frame, message, option_mac, answer, result);
	return advertisement(link, frame, message, option_mac, result);
}

uint32_t nd_solicit(const struct link *link, const uint8_t source[16], const uint8_t target[16],
		    const uint8_t *mac, uint8_t *data)
{
	uint8_t group[16], to[6];

	if (mac)
		return nd_build(link, data, mac, source, target, ICMP6_SOLICIT, 0, target);
	solicited_node(group, target);
	group_mac(to, group);
	return nd_build(link, data, to, source, group, ICMP6_SOLICIT, 0, target);
}

uint32_t nd_announce(const struct link *link, const uint8_t address[16], uint8_t *data)
{
	uint8_t to[6];

	group_mac(to, all_nodes);
	return nd_build(link, data, to, address, all_nodes, ICMP6_ADVERTISE, ADVERTISE_OVERRIDE,
			address);
}
