/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP, neighbour discovery and echo over byte buffers, good, bad and odd. */
#include <criterion/criterion.h>

#include "links.h"

static uint8_t frame[2048], answer[2048];
static struct slow_result result;

static uint32_t header(const struct link *link)
{
	return link->vlan ? 18 : 14;
}

static void expect_header(const struct link *link, uint16_t type)
{
	struct link_frame parsed;

	cr_assert(link_parse(answer, result.length, &parsed));
	cr_assert_arr_eq(parsed.destination_mac, peer_mac, 6);
	cr_assert_arr_eq(parsed.source_mac, our_mac, 6);
	cr_assert_eq(parsed.ethertype, type);
	cr_assert(link_vlan_matches(link, parsed.tagged, parsed.tci));
}

/* --- ARP --------------------------------------------------------------------------- */

static void arp_answered(uint16_t vlan)
{
	struct link link = test_link(vlan);
	uint32_t length = frame_arp(frame, 1, peer_v4, our_v4);
	const uint8_t *arp = answer + header(&link);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ARP);
	cr_assert_geq(result.length, 60);
	expect_header(&link, ETHERTYPE_ARP);
	cr_assert_eq(get_be16(arp + 6), 2);
	cr_assert_arr_eq(arp + 8, our_mac, 6);
	cr_assert_arr_eq(arp + 14, our_v4 + 12, 4);
	cr_assert_arr_eq(arp + 18, peer_mac, 6);
	cr_assert_arr_eq(arp + 24, peer_v4 + 12, 4);
	cr_assert(result.learned && result.asked);
	cr_assert_arr_eq(result.gid, peer_v4, 16);
	cr_assert_arr_eq(result.mac, peer_mac, 6);
}

Test(arp, request_for_us_is_answered_and_its_sender_learned)
{
	arp_answered(0);
	arp_answered(100);
}

Test(arp, probe_without_sender_address_is_answered_and_nothing_learned)
{
	static const uint8_t nobody[16] = { [10] = 0xff, [11] = 0xff };
	struct link link = test_link(0);
	uint32_t length = frame_arp(frame, 1, nobody, our_v4);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ARP);
	cr_assert_not(result.learned);
}

Test(arp, requests_for_others_get_no_answer)
{
	struct link link = test_link(0);
	uint32_t length = frame_arp(frame, 1, peer_v4, gateway_v4);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_NOTHING);
	cr_assert_not(result.asked);
}

Test(arp, gratuitous_one_is_learned_but_worth_no_entry)
{
	struct link link = test_link(0);
	uint32_t length = frame_arp(frame, 1, peer_v4, peer_v4);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert(result.learned);
	cr_assert_not(result.asked);
	cr_assert_eq(result.answered, SLOW_NOTHING);
}

Test(arp, sender_that_claims_our_address_is_refused)
{
	struct link link = test_link(0);
	uint32_t length = frame_arp(frame, 1, our_v4, our_v4);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_UNWANTED);
	cr_assert_not(result.learned);
	cr_assert_eq(result.answered, SLOW_NOTHING);
}

Test(arp, only_whole_and_agreeing_addresses_are_learned)
{
	static const uint32_t spoilt[] = { 14 + 8, 14 + 9, 14 + 13 }; /* bytes of the sender MAC */
	struct link link = test_link(0);

	/* B83: the MAC inside must be the frame's. */
	for (unsigned int i = 0; i < 3; i++) {
		uint32_t length = frame_arp(frame, 2, peer_v4, our_v4);

		frame[spoilt[i]] ^= 0x04;
		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
		cr_assert_not(result.learned);
	}
}

Test(arp, other_formats_and_lengths_are_refused)
{
	struct link link = test_link(0);

	for (uint32_t byte = 0; byte < 6; byte++) {
		uint32_t length = frame_arp(frame, 1, peer_v4, our_v4);

		frame[14 + byte] ^= 0x10;
		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	}
	frame_arp(frame, 1, peer_v4, our_v4);
	for (uint32_t length = 14; length < 14 + 28; length++)
		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	frame_arp(frame, 3, peer_v4, our_v4); /* RARP request */
	cr_assert_eq(receive(&link, frame, 60, answer, &result), SLOW_UNWANTED);
}

Test(arp, what_is_asked_and_announced_is_what_a_peer_expects)
{
	struct link link = test_link(0);
	uint8_t data[SLOW_FRAME_MAX];

	cr_assert_eq(arp_request(&link, our_v4, peer_v4, NULL, data), 60);
	cr_assert_eq(data[0], 0xff);
	cr_assert_eq(get_be16(data + 20), 1);
	cr_assert_arr_eq(data + 28, our_v4 + 12, 4);
	cr_assert_arr_eq(data + 38, peer_v4 + 12, 4);
	arp_request(&link, our_v4, peer_v4, peer_mac, data);
	cr_assert_arr_eq(data, peer_mac, 6);
	arp_announce(&link, our_v4, data);
	cr_assert_arr_eq(data + 28, our_v4 + 12, 4);
	cr_assert_arr_eq(data + 38, our_v4 + 12, 4);
}

/* --- echo -------------------------------------------------------------------------- */

static void echo4_answered(uint16_t vlan, uint32_t payload)
{
	struct link link = test_link(vlan);
	uint32_t length = frame_echo4(frame, our_v4, payload);
	const uint8_t *ip = answer + header(&link);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ECHO);
	cr_assert_eq(result.length, header(&link) + 28 + payload);
	expect_header(&link, ETHERTYPE_IPV4);
	cr_assert_eq(link_checksum(ip, 20, 0), 0);
	cr_assert_eq(link_checksum(ip + 20, 8 + payload, 0), 0);
	cr_assert_arr_eq(ip + 12, our_v4 + 12, 4);
	cr_assert_arr_eq(ip + 16, peer_v4 + 12, 4);
	cr_assert_eq(ip[20], 0);
	cr_assert_arr_eq(ip + 24, frame + 14 + 24, 4 + payload);
	cr_assert_eq(answer[result.length], 0xa5, "nothing behind the answer is written");
}

Test(echo, v4_request_is_answered_with_its_own_bytes)
{
	echo4_answered(0, 0);
	echo4_answered(0, 56);
	echo4_answered(0, 57);
	echo4_answered(100, 1472);
}

Test(echo, v4_answer_leaves_ethernet_padding_behind)
{
	struct link link = test_link(0);

	frame_echo4(frame, our_v4, 4);
	memset(frame + 46, 0xee, 14);
	cr_assert_eq(receive(&link, frame, 60, answer, &result), SLOW_OK);
	cr_assert_eq(result.length, 46);
}

Test(echo, v4_checksums_are_verified_in_software)
{
	struct link link = test_link(0);
	uint32_t length = frame_echo4(frame, our_v4, 56);

	/* B118: nobody else looked. */
	frame[14 + 10] ^= 1;
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_CHECKSUM);
	frame_echo4(frame, our_v4, 56);
	frame[14 + 20 + 3] ^= 1;
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_CHECKSUM);
	cr_assert_eq(result.answered, SLOW_NOTHING);
}

static void fix_ip_checksum(void)
{
	put_be16(frame + 24, 0);
	put_be16(frame + 24, link_checksum(frame + 14, 20, 0));
}

Test(echo, v4_odd_packets_get_no_answer)
{
	static const uint8_t everybody[16] = { [10] = 0xff, [11] = 0xff, 255, 255, 255, 255 };
	struct link link = test_link(0);
	uint32_t length = frame_echo4(frame, everybody, 56);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_NOT_OURS);
	frame_echo4(frame, peer_v4, 56);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_NOT_OURS);

	frame_echo4(frame, our_v4, 56); /* a fragment */
	frame[14 + 6] |= 0x20;
	fix_ip_checksum();
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_UNWANTED);

	frame_echo4(frame, our_v4, 56); /* from a group: an amplifier is asked for */
	frame[14 + 12] = 239;
	fix_ip_checksum();
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_UNWANTED);

	frame_echo4(frame, our_v4, 56); /* a reply */
	frame[14 + 20] = 0;
	put_be16(frame + 36, 0);
	put_be16(frame + 36, link_checksum(frame + 34, 64, 0));
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_UNWANTED);

	frame_echo4(frame, our_v4, 56); /* options */
	frame[14] = 0x46;
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	for (uint32_t cut = 14; cut < length; cut++) {
		frame_echo4(frame, our_v4, 56);
		cr_assert_eq(receive(&link, frame, cut, answer, &result), SLOW_MALFORMED);
	}
}

Test(echo, v4_answer_must_fit_the_buffer)
{
	struct link link = test_link(0);
	uint32_t length = frame_echo4(frame, our_v4, 1000);
	struct link_frame parsed;

	cr_assert(link_parse(frame, length, &parsed));
	cr_assert_eq(slow_receive(&link, &parsed, answer, length - 1, &result), SLOW_UNWANTED);
	cr_assert_eq(slow_receive(&link, &parsed, answer, length, &result), SLOW_OK);
}

Test(echo, v6_request_is_answered_with_its_own_bytes)
{
	struct link link = test_link(100);
	uint32_t length = frame_echo6(frame, our_v6, 57);
	const uint8_t *ip = answer + 18;

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ECHO);
	cr_assert_eq(result.length, 18 + 40 + 8 + 57);
	expect_header(&link, ETHERTYPE_IPV6);
	cr_assert_arr_eq(ip + 8, our_v6, 16);
	cr_assert_arr_eq(ip + 24, peer_v6, 16);
	cr_assert_eq(ip[40], 129);
	cr_assert_eq(link_checksum(ip + 40, 65, link_pseudo6(ip + 8, ip + 24, 65, 58)), 0);
	cr_assert_arr_eq(ip + 44, frame + 14 + 44, 4 + 57);
}

Test(echo, v6_bad_checksum_and_other_destinations_get_no_answer)
{
	static const uint8_t all_nodes[16] = { 0xff, 0x02, [15] = 1 };
	struct link link = test_link(0);
	uint32_t length = frame_echo6(frame, our_v6, 56);

	frame[14 + 42] ^= 1;
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_CHECKSUM);
	frame_echo6(frame, peer_v6, 56);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_NOT_OURS);
	frame_echo6(frame, all_nodes, 56);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_NOT_OURS);
	for (uint32_t cut = 14; cut < length; cut++) {
		frame_echo6(frame, our_v6, 56);
		cr_assert_eq(receive(&link, frame, cut, answer, &result), SLOW_MALFORMED);
	}
}

/* --- neighbour discovery ----------------------------------------------------------- */

static void solicitation_answered(const uint8_t *target)
{
	struct link link = test_link(0);
	uint32_t length = frame_solicit(frame, peer_v6, target);
	const uint8_t *ip = answer + 14;

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ND);
	expect_header(&link, ETHERTYPE_IPV6);
	cr_assert_eq(ip[7], 255);
	cr_assert_arr_eq(ip + 8, target, 16);
	cr_assert_arr_eq(ip + 24, peer_v6, 16);
	cr_assert_eq(ip[40], 136);
	cr_assert_eq(ip[44], 0x60, "solicited, override, not a router");
	cr_assert_arr_eq(ip + 48, target, 16);
	cr_assert_eq(ip[64], 2);
	cr_assert_eq(ip[65], 1);
	cr_assert_arr_eq(ip + 66, our_mac, 6);
	cr_assert_eq(link_checksum(ip + 40, 32, link_pseudo6(ip + 8, ip + 24, 32, 58)), 0);
	cr_assert(result.learned && result.asked);
	cr_assert_arr_eq(result.gid, peer_v6, 16);
	cr_assert_arr_eq(result.mac, peer_mac, 6);
}

Test(nd, solicitation_of_each_of_our_addresses_is_answered)
{
	solicitation_answered(our_v6);
	solicitation_answered(our_v6_local);
}

Test(nd, duplicate_address_detection_is_answered_to_all_nodes)
{
	static const uint8_t none[16], all_nodes[16] = { 0xff, 0x02, [15] = 1 };
	static const uint8_t all_nodes_mac[6] = { 0x33, 0x33, 0, 0, 0, 1 };
	struct link link = test_link(0);
	uint32_t length = frame_solicit(frame, none, our_v6);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ND);
	cr_assert_not(result.learned);
	cr_assert_arr_eq(answer, all_nodes_mac, 6);
	cr_assert_arr_eq(answer + 14 + 24, all_nodes, 16);
	cr_assert_eq(answer[14 + 44], 0x20);
}

Test(nd, what_a_router_may_have_forwarded_is_refused)
{
	struct link link = test_link(0);
	uint8_t message[24] = { 135 };
	uint32_t length;

	memcpy(message + 8, our_v6, 16);
	length = frame_icmp6(frame, peer_v6, our_v6, 254, message, 24);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	length = frame_icmp6(frame, peer_v6, our_v6, 255, message, 24);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
	cr_assert_arr_eq(result.mac, peer_mac, 6, "without an option: the frame's");
}

Test(nd, bad_checksum_is_refused)
{
	struct link link = test_link(0);
	uint32_t length = frame_solicit(frame, peer_v6, our_v6);

	frame[14 + 42] ^= 0x80;
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_CHECKSUM);
}

Test(nd, options_that_cannot_be_are_refused)
{
	static const uint8_t length_byte[] = { 0, 2, 255 };
	struct link link = test_link(0);
	uint8_t message[32] = { 135 };

	for (unsigned int i = 0; i < sizeof(length_byte); i++) {
		uint32_t length;

		memcpy(message + 8, our_v6, 16);
		message[24] = 1;
		message[25] = length_byte[i];
		length = frame_icmp6(frame, peer_v6, our_v6, 255, message, 32);
		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
		length = frame_icmp6(frame, peer_v6, our_v6, 255, message, 25);
		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	}
}

Test(nd, group_mac_in_an_option_is_refused)
{
	struct link link = test_link(0);
	uint8_t message[32] = { 135, [24] = 1, 1, 0x33, 0x33, 0, 0, 0, 1 };
	uint32_t length;

	memcpy(message + 8, our_v6, 16);
	length = frame_icmp6(frame, peer_v6, our_v6, 255, message, 32);
	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_MALFORMED);
	cr_assert_not(result.learned);
}

Test(nd, advertisement_is_learned_and_worth_no_entry)
{
	struct link link = test_link(0);

	for (int solicited = 0; solicited < 2; solicited++) {
		uint32_t length = frame_advertise(frame, peer_v6, solicited);

		cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_OK);
		cr_assert(result.learned);
		cr_assert_not(result.asked);
		cr_assert_eq(result.answered, SLOW_NOTHING);
		cr_assert_arr_eq(result.gid, peer_v6, 16);
		cr_assert_arr_eq(result.mac, peer_mac, 6);
	}
}

Test(nd, advertisement_of_our_address_by_somebody_else_is_refused)
{
	struct link link = test_link(0);
	uint32_t length = frame_advertise(frame, our_v6, false);

	cr_assert_eq(receive(&link, frame, length, answer, &result), SLOW_UNWANTED);
	cr_assert_not(result.learned);
}

Test(nd, what_we_send_is_what_we_would_take)
{
	struct link link = test_link(0), other = test_link(0);
	uint8_t data[SLOW_FRAME_MAX];
	uint32_t length;

	/* The same port seen from a station with other addresses. */
	memcpy(other.mac, peer_mac, 6);
	memcpy(other.address[1].gid, peer_v6, 16);
	length = nd_solicit(&link, our_v6, peer_v6, NULL, data);
	cr_assert_eq(data[0], 0x33);
	cr_assert_eq(data[5], 2);
	cr_assert_eq(receive(&other, data, length, answer, &result), SLOW_OK);
	cr_assert_eq(result.answered, SLOW_ND);
	memcpy(data, answer, result.length);
	cr_assert_eq(receive(&link, data, result.length, answer, &result), SLOW_OK);
	cr_assert(result.learned);
	cr_assert_arr_eq(result.gid, peer_v6, 16);
	cr_assert_arr_eq(result.mac, peer_mac, 6);
	length = nd_announce(&link, our_v6, data);
	cr_assert_eq(receive(&other, data, length, answer, &result), SLOW_OK);
	cr_assert_arr_eq(result.gid, our_v6, 16);
}

/* --- what workers let through ------------------------------------------------------- */

static bool wanted(const struct link *link, uint32_t length)
{
	struct link_frame parsed;

	return link_parse(frame, length, &parsed) && slow_wanted(link, &parsed);
}

Test(wanted, only_what_concerns_us_reaches_the_control_core)
{
	struct link link = test_link(0);

	cr_assert(wanted(&link, frame_arp(frame, 1, peer_v4, our_v4)));
	cr_assert(wanted(&link, frame_arp(frame, 2, peer_v4, our_v4)));
	cr_assert(wanted(&link, frame_arp(frame, 1, peer_v4, peer_v4)));
	cr_assert_not(wanted(&link, frame_arp(frame, 1, peer_v4, gateway_v4)));
	cr_assert(wanted(&link, frame_echo4(frame, our_v4, 56)));
	cr_assert_not(wanted(&link, frame_echo4(frame, peer_v4, 56)));
	cr_assert(wanted(&link, frame_echo6(frame, our_v6, 56)));
	cr_assert_not(wanted(&link, frame_echo6(frame, peer_v6, 56)));
	cr_assert(wanted(&link, frame_solicit(frame, peer_v6, our_v6)));
	cr_assert_not(wanted(&link, frame_solicit(frame, peer_v6, gateway_v6)));
	cr_assert(wanted(&link, frame_advertise(frame, peer_v6, true)));
}

/* The noise of an office LAN (B85): none of it gets an answer or changes anything. */
Test(wanted, other_traffic_gets_no_answer)
{
	static const struct {
		const char *what;
		uint16_t type;
		uint8_t protocol;
	} noise[] = {
		{ "LLDP", 0x88cc, 0 },
		{ "802.3 length of STP", 0x0026, 0 },
		{ "TCP", 0x0800, 6 },
		{ "UDP", 0x0800, 17 },
		{ "IGMP", 0x0800, 2 },
		{ "TCP over IPv6", 0x86dd, 6 },
		{ "MLD", 0x86dd, 0 },
		{ "router advertisement", 0x86dd, 58 },
		{ "RoCE version 1", 0x8915, 0 },
	};
	struct link link = test_link(0);

	for (unsigned int i = 0; i < sizeof(noise) / sizeof(noise[0]); i++) {
		frame_echo4(frame, our_v4, 100);
		put_be16(frame + 12, noise[i].type);
		if (noise[i].type == 0x86dd) {
			frame_echo6(frame, our_v6, 100);
			frame[14 + 6] = noise[i].protocol;
			frame[14 + 40] = 134;
		} else {
			frame[14 + 9] = noise[i].protocol;
			fix_ip_checksum();
		}
		cr_assert_not(wanted(&link, 142), "%s", noise[i].what);
		cr_assert_neq(receive(&link, frame, 142, answer, &result), SLOW_OK, "%s",
			      noise[i].what);
		cr_assert_eq(result.answered, SLOW_NOTHING);
		cr_assert_not(result.learned);
	}
}

/* Every frame with one byte changed or cut: no answer longer than the question, no crash. */
Test(wanted, mutations_never_make_a_longer_answer)
{
	struct link link = test_link(0);

	for (int kind = 0; kind < 4; kind++) {
		for (uint32_t byte = 12; byte < 60; byte++) {
			for (unsigned int value = 0; value < 256; value++) {
				uint32_t length = kind == 0   ? frame_arp(frame, 1, peer_v4, our_v4)
						  : kind == 1 ? frame_echo4(frame, our_v4, 56)
						  : kind == 2
							  ? frame_echo6(frame, our_v6, 56)
							  : frame_solicit(frame, peer_v6, our_v6);
				struct link_frame parsed;

				frame[byte] = (uint8_t)value;
				if (!link_parse(frame, length, &parsed))
					continue;
				slow_receive(&link, &parsed, answer, 2048, &result);
				cr_assert_leq(result.length, length);
			}
		}
	}
}
