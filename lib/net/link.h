/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the slow path needs to know of a port: its own addresses, its routes, and the
 * Ethernet header that it shows. Bytes in, bytes out; knows nothing of DPDK.
 */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "net/net.h"
#include "wire/ip.h"
#include "wire/packet.h"

#define ETHER_HEADER  14u
#define ETHER_TAG     4u
#define ETHER_MINIMUM 60u /* without FCS */

struct link {
	uint8_t mac[6];
	uint16_t vlan; /* 0: untagged */
	uint16_t mtu;
	struct wire_usual usual; /* untagged frames to the first of the addresses */
	uint32_t addresses;
	/* The configured ones, then the link-local one that follows from the MAC. */
	struct net_address address[NET_MAX_ADDRESSES + 1];
	uint8_t gateway4[16], gateway6[16]; /* all zero: none */
};

void link_create(struct link *link, const struct net_port_config *config, const uint8_t mac[6]);
bool link_owns(const struct link *link, const uint8_t gid[16]);

/*
 * Who must be asked for the MAC of frames to `remote`: the remote itself when one of our
 * prefixes holds it, else the gateway of its family. NULL: there is no way.
 */
const uint8_t *link_next_hop(const struct link *link, const uint8_t remote[16]);

/* The own address that a question about `target` is asked from; NULL: none of its family. */
const uint8_t *link_source_for(const struct link *link, const uint8_t target[16]);

/* Largest path MTU (256 .. 4096) whose longest packet fits an IP packet of `mtu`; 0: none. */
uint32_t link_path_mtu(uint32_t mtu);
/* Bytes of the longest frame of a port, tag included, FCS not. */
static inline uint32_t link_frame_size(uint32_t mtu)
{
	return ETHER_HEADER + ETHER_TAG + mtu;
}

/* --- frames ------------------------------------------------------------------------ */

/* A frame's Ethernet header taken apart; what follows is not looked at. */
struct link_frame {
	const uint8_t *destination_mac;
	const uint8_t *source_mac;
	const uint8_t *payload;
	uint32_t length;    /* of the payload, Ethernet padding included */
	uint16_t ethertype; /* behind the tag */
	uint16_t tci;       /* 0 when untagged */
	bool tagged;
};

/* False for a frame too short for its header or from a group address. */
bool link_parse(const uint8_t *data, uint32_t length, struct link_frame *frame);

/* Whether a frame with this tag is in the port's VLAN. VID 0 is only a priority. */
static inline bool link_vlan_matches(const struct link *link, bool tagged, uint16_t tci)
{
	return (tagged ? tci & VLAN_VID_MASK : 0) == link->vlan;
}

/* Writes the header of a frame that leaves by this port. Returns its length, 14 or 18. */
uint32_t link_header(const struct link *link, uint8_t *data, const uint8_t destination[6],
		     uint16_t ethertype);

/* Internet checksum, as the 16-bit word to store (host order); 0 over a good packet. */
uint16_t link_checksum(const uint8_t *data, uint32_t length, uint32_t sum);
/* Sum of the IPv6 pseudo header, to start link_checksum() with. */
uint32_t link_pseudo6(const uint8_t source[16], const uint8_t destination[16], uint32_t length,
		      uint8_t protocol);

static inline bool mac_is_unicast(const uint8_t mac[6])
{
	static const uint8_t zero[6];

	return (mac[0] & 1) == 0 && memcmp(mac, zero, sizeof(zero)) != 0;
}

#endif
