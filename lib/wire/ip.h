/* SPDX-License-Identifier: BSD-3-Clause */
/* Ethernet, 802.1Q, IPv4, IPv6 and UDP headers, and GIDs. */
#ifndef WIRE_IP_H
#define WIRE_IP_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/byteorder.h"

#define ETHERTYPE_IPV4     0x0800u
#define ETHERTYPE_ARP      0x0806u
#define ETHERTYPE_VLAN     0x8100u
#define ETHERTYPE_QINQ     0x88a8u
#define ETHERTYPE_IPV6     0x86ddu
#define IPPROTO_UDP_NUMBER 17u
#define ROCE_UDP_PORT      4791u
#define VLAN_VID_MASK      0x0fffu

struct eth_header {
	uint8_t destination[6];
	uint8_t source[6];
	be16_t type;
};

struct vlan_tag {   /* behind eth_header.type == 0x8100 */
	be16_t tci; /* PCP 3, DEI 1, VID 12 */
	be16_t type;
};

/* ECN: the low two bits of TOS and traffic class. */
#define IP_ECN      0x3u
#define IP_ECN_ECT0 0x2u
#define IP_ECN_CE   0x3u

struct ipv4_header {
	uint8_t version_ihl;
	uint8_t tos;
	be16_t total_length;
	be16_t identification;
	be16_t fragment; /* 0x4000 DF, 0x2000 MF, offset 13 bits */
	uint8_t ttl;
	uint8_t protocol;
	be16_t checksum;
	uint8_t source[4];
	uint8_t destination[4];
};

struct ipv6_header {
	be32_t version_class_flow;
	be16_t payload_length;
	uint8_t next_header;
	uint8_t hop_limit;
	uint8_t source[16];
	uint8_t destination[16];
};

struct udp_header {
	be16_t source_port;
	be16_t destination_port;
	be16_t length;
	be16_t checksum;
};

_Static_assert(sizeof(struct eth_header) == 14, "Ethernet header");
_Static_assert(sizeof(struct vlan_tag) == 4, "802.1Q tag");
_Static_assert(sizeof(struct ipv4_header) == 20, "IPv4 header");
_Static_assert(sizeof(struct ipv6_header) == 40, "IPv6 header");
_Static_assert(sizeof(struct udp_header) == 8, "UDP header");
_Static_assert(offsetof(struct ipv4_header, checksum) == 10, "IPv4 checksum");
_Static_assert(offsetof(struct ipv6_header, hop_limit) == 7, "IPv6 hop limit");

/* An address of either family; IPv4 a.b.c.d is ::ffff:a.b.c.d. */
struct gid {
	uint8_t raw[16];
};

static inline bool gid_is_v4(const uint8_t gid[16])
{
	return get_be64(gid) == 0 && get_be32(gid + 8) == 0xffff;
}

/* In two stores of eight bytes, since eight at a time is how it is compared soon after. */
static inline void gid_from_v4(uint8_t gid[16], const uint8_t v4[4])
{
	const uint64_t mapped = 0xffffull << 32 | get_be32(v4);

	memset(gid, 0, 8);
	put_be64(gid + 8, mapped);
}

static inline bool gid_equal(const uint8_t a[16], const uint8_t b[16])
{
	uint64_t x[2], y[2];

	memcpy(x, a, 16);
	memcpy(y, b, 16);
	return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

static inline bool gid_is_link_local(const uint8_t gid[16])
{
	return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

/* Neither multicast, broadcast nor unspecified, of either family. */
static inline bool gid_is_unicast(const uint8_t gid[16])
{
	if (gid_is_v4(gid))
		return gid[12] != 0 && gid[12] < 224;
	return gid[0] != 0xff && (get_be64(gid) | get_be64(gid + 8)) != 0;
}

/*
 * The words of an IPv4 header, carries added again: modulo 2^16 - 1 what its 16-bit words add up
 * to, since 2^16, 2^32 and 2^64 leave 1 there (RFC 1071). 0 only for a header of zeros.
 */
static inline uint64_t ipv4_header_sum(const void *header)
{
	const uint8_t *p = header;
	uint64_t first, second, sum;
	uint32_t third;

	memcpy(&first, p, 8);
	memcpy(&second, p + 8, 8);
	memcpy(&third, p + 16, 4);
	sum = first + second;
	sum += sum < first;
	sum += third;
	return sum + (sum < third);
}

/* The Internet checksum of a header with that sum, which does not depend on the byte order. */
static inline uint16_t ipv4_checksum_of(uint64_t sum)
{
	sum = (sum >> 32) + (uint32_t)sum;
	sum = (sum >> 32) + (uint32_t)sum;
	sum = (sum >> 16) + (sum & 0xffff);
	sum = (sum >> 16) + (sum & 0xffff);
	return __builtin_bswap16((uint16_t)~sum);
}

/* The same of a header as it stands; 0 when its checksum is right. */
static inline uint16_t ipv4_checksum(const void *header)
{
	return ipv4_checksum_of(ipv4_header_sum(header));
}

/* Whether a header that is not all zeros has the right one. */
static inline bool ipv4_checksum_right(const void *header)
{
	return ipv4_header_sum(header) % 0xffff == 0;
}

#endif
