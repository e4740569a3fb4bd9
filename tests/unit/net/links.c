/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of a peer on the link, built here anew and not by the code under test. */
#include <criterion/criterion.h>

#include "links.h"

#define V4(a, b, c, d)                               \
	{                                            \
		[10] = 0xff, [11] = 0xff, a, b, c, d \
	}

const uint8_t our_mac[6] = { 0x02, 0x11, 0x22, 0x33, 0x44, 0x55 };
const uint8_t peer_mac[6] = { 0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee };
const uint8_t our_v4[16] = V4(10, 0, 0, 1);
const uint8_t peer_v4[16] = V4(10, 0, 0, 2);
const uint8_t gateway_v4[16] = V4(10, 0, 0, 254);
const uint8_t far_v4[16] = V4(192, 0, 2, 7);
const uint8_t our_v6[16] = { 0xfd, [15] = 1 };
const uint8_t our_v6_local[16] = {
	0xfe, 0x80, [8] = 0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55
};
const uint8_t peer_v6[16] = { 0xfd, [15] = 2 };
const uint8_t gateway_v6[16] = { 0xfd, [15] = 0xfe };
const uint8_t far_v6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 7 };

struct net_port_config test_port(uint16_t vlan)
{
	struct net_port_config config = { .name = "wan0", .vlan = vlan, .mtu = 1500 };

	memcpy(config.address[0].gid, our_v4, 16);
	config.address[0].prefix_length = 96 + 24;
	memcpy(config.address[1].gid, our_v6, 16);
	config.address[1].prefix_length = 64;
	config.addresses = 2;
	memcpy(config.gateway4, gateway_v4, 16);
	memcpy(config.gateway6, gateway_v6, 16);
	return config;
}

struct link test_link(uint16_t vlan)
{
	struct net_port_config config = test_port(vlan);
	struct link link;

	link_create(&link, &config, our_mac);
	return link;
}

static uint16_t sum16(const uint8_t *data, uint32_t length, uint32_t sum)
{
	for (uint32_t i = 0; i < length; i++)
		sum += i % 2 ? data[i] : (uint32_t)data[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static uint8_t *ethernet(uint8_t *frame, const uint8_t destination[6], uint16_t type)
{
	memcpy(frame, destination, 6);
	memcpy(frame + 6, peer_mac, 6);
	put_be16(frame + 12, type);
	return frame + 14;
}

uint32_t frame_arp(uint8_t *frame, uint16_t operation, const uint8_t sender[16],
		   const uint8_t target[16])
{
	static const uint8_t everybody[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	uint8_t *arp = ethernet(frame, operation == 1 ? everybody : our_mac, ETHERTYPE_ARP);

	memset(arp, 0, 46);
	put_be16(arp, 1);
	put_be16(arp + 2, ETHERTYPE_IPV4);
	arp[4] = 6;
	arp[5] = 4;
	put_be16(arp + 6, operation);
	memcpy(arp + 8, peer_mac, 6);
	memcpy(arp + 14, sender + 12, 4);
	memcpy(arp + 24, target + 12, 4);
	return 60;
}

uint32_t frame_echo4(uint8_t *frame, const uint8_t destination[16], uint32_t payload)
{
	uint8_t *ip = ethernet(frame, our_mac, ETHERTYPE_IPV4);
	uint8_t *icmp = ip + 20;

	memset(ip, 0, 28);
	ip[0] = 0x45;
	put_be16(ip + 2, (uint16_t)(28 + payload));
	put_be16(ip + 4, 0x1234);
	ip[8] = 17;
	ip[9] = 1;
	memcpy(ip + 12, peer_v4 + 12, 4);
	memcpy(ip + 16, destination + 12, 4);
	put_be16(ip + 10, sum16(ip, 20, 0));
	icmp[0] = 8;
	put_be16(icmp + 4, 0xbeef);
	put_be16(icmp + 6, 3);
	for (uint32_t i = 0; i < payload; i++)
		icmp[8 + i] = (uint8_t)(i * 7);
	put_be16(icmp + 2, sum16(icmp, 8 + payload, 0));
	return 42 + payload;
}

uint32_t frame_icmp6(uint8_t *frame, const uint8_t source[16], const uint8_t destination[16],
		     uint8_t hop_limit, const uint8_t *message, uint32_t length)
{
	uint8_t group[6] = {
		0x33, 0x33, destination[12], destination[13], destination[14], destination[15]
	};
	uint8_t *ip = ethernet(frame, destination[0] == 0xff ? group : our_mac, ETHERTYPE_IPV6);
	uint32_t sum = length + 58;

	memset(ip, 0, 40);
	ip[0] = 0x60;
	put_be16(ip + 4, (uint16_t)length);
	ip[6] = 58;
	ip[7] = hop_limit;
	memcpy(ip + 8, source, 16);
	memcpy(ip + 24, destination, 16);
	memcpy(ip + 40, message, length);
	put_be16(ip + 42, 0);
	for (uint32_t i = 0; i < 32; i += 2)
		sum += get_be16(ip + 8 + i);
	put_be16(ip + 42, sum16(ip + 40, length, sum));
	return 54 + length;
}

uint32_t frame_echo6(uint8_t *frame, const uint8_t destination[16], uint32_t payload)
{
	uint8_t message[1500] = { 128, 0, 0, 0, 0xbe, 0xef, 0, 3 };

	for (uint32_t i = 0; i < payload; i++)
		message[8 + i] = (uint8_t)(i * 5);
	return frame_icmp6(frame, peer_v6, destination, 64, message, 8 + payload);
}

uint32_t frame_solicit(uint8_t *frame, const uint8_t source[16], const uint8_t target[16])
{
	static const uint8_t none[16];
	uint8_t group[16] = { 0xff, 0x02, [11] = 1, 0xff, target[13], target[14], target[15] };
	uint8_t message[32] = { 135 };
	bool probe = memcmp(source, none, 16) == 0;

	memcpy(message + 8, target, 16);
	message[24] = 1;
	message[25] = 1;
	memcpy(message + 26, peer_mac, 6);
	return frame_icmp6(frame, source, group, 255, message, probe ? 24 : 32);
}

uint32_t frame_advertise(uint8_t *frame, const uint8_t target[16], bool solicited)
{
	static const uint8_t all_nodes[16] = { 0xff, 0x02, [15] = 1 };
	uint8_t message[32] = { 136, [4] = solicited ? 0x60 : 0x20 };

	memcpy(message + 8, target, 16);
	message[24] = 2;
	message[25] = 1;
	memcpy(message + 26, peer_mac, 6);
	return frame_icmp6(frame, target, solicited ? our_v6 : all_nodes, 255, message, 32);
}

enum slow_reason receive(const struct link *link, const uint8_t *frame, uint32_t length,
			 uint8_t *answer, struct slow_result *result)
{
	struct link_frame parsed;

	memset(answer, 0xa5, 2048);
	cr_assert(link_parse(frame, length, &parsed));
	return slow_receive(link, &parsed, answer, 2048, result);
}
