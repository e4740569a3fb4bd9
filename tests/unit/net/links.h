/* SPDX-License-Identifier: BSD-3-Clause */
/* A port and a station beside it, and frames between them, for the tests of the slow path. */
#ifndef TESTS_NET_LINKS_H
#define TESTS_NET_LINKS_H

#include "net/slow.h"

extern const uint8_t our_mac[6], peer_mac[6];
extern const uint8_t our_v4[16], peer_v4[16], gateway_v4[16], far_v4[16];
extern const uint8_t our_v6[16], our_v6_local[16], peer_v6[16], gateway_v6[16], far_v6[16];

/* 10.0.0.1/24 and fd00::1/64, with gateways; mtu 1500. */
struct net_port_config test_port(uint16_t vlan);
struct link test_link(uint16_t vlan);

/* Frames as the peer sends them, untagged; each returns its length. */
uint32_t frame_arp(uint8_t *frame, uint16_t operation, const uint8_t sender[16],
		   const uint8_t target[16]);
uint32_t frame_echo4(uint8_t *frame, const uint8_t destination[16], uint32_t payload);
uint32_t frame_icmp6(uint8_t *frame, const uint8_t source[16], const uint8_t destination[16],
		     uint8_t hop_limit, const uint8_t *message, uint32_t length);
uint32_t frame_echo6(uint8_t *frame, const uint8_t destination[16], uint32_t payload);
/* With a source link-layer option unless source is unspecified. */
uint32_t frame_solicit(uint8_t *frame, const uint8_t source[16], const uint8_t target[16]);
uint32_t frame_advertise(uint8_t *frame, const uint8_t target[16], bool solicited);

/* link_parse() and slow_receive() in one. answer: 2048 bytes. */
enum slow_reason receive(const struct link *link, const uint8_t *frame, uint32_t length,
			 uint8_t *answer, struct slow_result *result);

#endif
