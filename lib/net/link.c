/* SPDX-License-Identifier: BSD-3-Clause */
/* A port's addresses, routes and Ethernet header. */
#include "net/link.h"

static const uint8_t no_address[16];

/* Modified EUI-64 (RFC 4291, appendix A): what a peer's GID index 0 is made of too. */
static void link_local_address(struct net_address *address, const uint8_t mac[6])
{
	uint8_t *gid = address->gid;

	memset(gid, 0, 16);
	gid[0] = 0xfe;
	gid[1] = 0x80;
	gid[8] = mac[0] ^ 0x02;
	gid[9] = mac[1];
	gid[10] = mac[2];
	gid[11] = 0xff;
	gid[12] = 0xfe;
	memcpy(gid + 13, mac + 3, 3);
	address->prefix_length = 64;
}

void link_create(struct link *link, const struct net_port_config *config, const uint8_t mac[6])
{
	memset(link, 0, sizeof(*link));
	memcpy(link->mac, mac, 6);
	link->vlan = config->vlan;
	link->mtu = config->mtu;
	memcpy(link->gateway4, config->gateway4, 16);
	memcpy(link->gateway6, config->gateway6, 16);
	for (uint32_t i = 0; i < config->addresses && i < NET_MAX_ADDRESSES; i++)
		link->address[link->addresses++] = config->address[i];
	link_local_address(&link->address[link->addresses], mac);
	if (!link_owns(link, link->address[link->addresses].gid))
		link->addresses++;
	/* Where frames carry a tag none is usual. */
	wire_usual_init(&link->usual, mac, link->vlan ? no_address : link->address[0].gid);
}

bool link_owns(const struct link *link, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < link->addresses; i++)
		if (memcmp(link->address[i].gid, gid, 16) == 0)
			return true;
	return false;
}

/* --- routes ------------------------------------------------------------------------ */

static bool prefix_holds(const struct net_address *address, const uint8_t gid[16])
{
	uint32_t bits = address->prefix_length > 128 ? 128 : address->prefix_length;
	uint32_t bytes = bits / 8;
	uint8_t rest = (uint8_t)(0xff00 >> (bits % 8));

	if (gid_is_v4(address->gid) != gid_is_v4(gid) || memcmp(address->gid, gid, bytes) != 0)
		return false;
	return bits % 8 == 0 || ((address->gid[bytes] ^ gid[bytes]) & rest) == 0;
}

const uint8_t *link_next_hop(const struct link *link, const uint8_t remote[16])
{
	const uint8_t *gateway = gid_is_v4(remote) ? link->gateway4 : link->gateway6;

	if (!gid_is_unicast(remote) || link_owns(link, remote))
		return NULL;
	for (uint32_t i = 0; i < link->addresses; i++)
		if (prefix_holds(&link->address[i], remote))
			return remote;
	if (gid_is_link_local(remote) || memcmp(gateway, no_address, 16) == 0)
		return NULL;
	return gateway;
}

const uint8_t *link_source_for(const struct link *link, const uint8_t target[16])
{
	const uint8_t *same_family = NULL;

	for (uint32_t i = 0; i < link->addresses; i++) {
		const struct net_address *own = &link->address[i];

		if (prefix_holds(own, target))
			return own->gid;
		if (!same_family && gid_is_v4(own->gid) == gid_is_v4(target))
			same_family = own->gid;
	}
	return same_family;
}

/* --- sizes ------------------------------------------------------------------------- */

/* IPv6, UDP, BTH, RETH, immediate and ICRC: the most that a full payload travels with. */
#define LONGEST_HEADERS (40u + 8u + 12u + 16u + 4u + 4u)

uint32_t link_path_mtu(uint32_t mtu)
{
	for (uint32_t path_mtu = 4096; path_mtu >= 256; path_mtu /= 2)
		if (path_mtu + LONGEST_HEADERS <= mtu)
			return path_mtu;
	return 0;
}

/* --- frames ------------------------------------------------------------------------ */

bool link_parse(const uint8_t *data, uint32_t length, struct link_frame *frame)
{
	uint32_t header = ETHER_HEADER;

	if (length < ETHER_HEADER)
		return false;
	frame->destination_mac = data;
	frame->source_mac = data + 6;
	frame->ethertype = get_be16(data + 12);
	frame->tagged = frame->ethertype == ETHERTYPE_VLAN;
	frame->tci = 0;
	if (frame->tagged) {
		header += ETHER_TAG;
		if (length < header)
			return false;
		frame->tci = get_be16(data + 14);
		frame->ethertype = get_be16(data + 16);
	}
	frame->payload = data + header;
	frame->length = length - header;
	return mac_is_unicast(frame->source_mac);
}

uint32_t link_header(const struct link *link, uint8_t *data, const uint8_t destination[6],
		     uint16_t ethertype)
{
	memmove(data, destination, 6);
	memcpy(data + 6, link->mac, 6);
	if (!link->vlan) {
		put_be16(data + 12, ethertype);
		return ETHER_HEADER;
	}
	put_be16(data + 12, ETHERTYPE_VLAN);
	put_be16(data + 14, link->vlan);
	put_be16(data + 16, ethertype);
	return ETHER_HEADER + ETHER_TAG;
}

uint16_t link_checksum(const uint8_t *data, uint32_t length, uint32_t sum)
{
	uint64_t total = sum;

	for (; length >= 2; data += 2, length -= 2)
		total += get_be16(data);
	if (length)
		total += (uint64_t)data[0] << 8;
	while (total >> 16)
		total = (total & 0xffff) + (total >> 16);
	return (uint16_t)~total;
}

uint32_t link_pseudo6(const uint8_t source[16], const uint8_t destination[16], uint32_t length,
		      uint8_t protocol)
{
	uint32_t sum = length + protocol;

	for (uint32_t i = 0; i < 16; i += 2)
		sum += (uint32_t)get_be16(source + i) + get_be16(destination + i);
	return sum;
}
