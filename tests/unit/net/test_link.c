/* SPDX-License-Identifier: BSD-3-Clause */
/* Addresses, routes, frame sizes and VLANs of a port. */
#include <criterion/criterion.h>

#include "links.h"

Test(link, link_local_follows_from_the_mac)
{
	struct link link = test_link(0);

	/* RFC 4291 appendix A: what a peer's GID index 0 is too (B79). */
	cr_assert_eq(link.addresses, 3);
	cr_assert_arr_eq(link.address[2].gid, our_v6_local, 16);
	cr_assert(link_owns(&link, our_v6_local));
	cr_assert(link_owns(&link, our_v4));
	cr_assert_not(link_owns(&link, peer_v4));
}

Test(link, next_hop_is_the_peer_on_link_and_the_gateway_off_link)
{
	static const uint8_t local_peer[16] = { 0xfe, 0x80, [15] = 9 };
	struct link link = test_link(0);

	cr_assert_eq(link_next_hop(&link, peer_v4), peer_v4);
	cr_assert_eq(link_next_hop(&link, peer_v6), peer_v6);
	cr_assert_eq(link_next_hop(&link, local_peer), local_peer);
	cr_assert_arr_eq(link_next_hop(&link, far_v4), gateway_v4, 16);
	cr_assert_arr_eq(link_next_hop(&link, far_v6), gateway_v6, 16);
}

Test(link, no_way_without_gateway_or_to_oneself_or_to_a_group)
{
	static const uint8_t group4[16] = { [10] = 0xff, [11] = 0xff, 239, 1, 1, 1 };
	static const uint8_t group6[16] = { 0xff, 0x02, [15] = 1 };
	static const uint8_t elsewhere[16] = { 0xfe, 0x80, [7] = 1, [15] = 1 };
	static const uint8_t none[16];
	struct link link = test_link(0);

	cr_assert_null(link_next_hop(&link, elsewhere), "no router forwards link-local");
	cr_assert_null(link_next_hop(&link, our_v4));
	cr_assert_null(link_next_hop(&link, our_v6_local));
	cr_assert_null(link_next_hop(&link, group4));
	cr_assert_null(link_next_hop(&link, group6));
	cr_assert_null(link_next_hop(&link, none));
	memset(link.gateway4, 0, 16);
	memset(link.gateway6, 0, 16);
	cr_assert_null(link_next_hop(&link, far_v4));
	cr_assert_null(link_next_hop(&link, far_v6));
}

Test(link, prefixes_end_inside_a_byte)
{
	static const uint8_t inside[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 3, 255 };
	static const uint8_t outside[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 4, 0 };
	struct net_port_config config = test_port(0);
	struct link link;

	config.address[0].prefix_length = 96 + 22;
	link_create(&link, &config, our_mac);
	cr_assert_eq(link_next_hop(&link, inside), inside);
	cr_assert_neq(link_next_hop(&link, outside), outside);

	/* Point to point: /32 and /128 hold nobody else, /0 everybody of the family. */
	config.address[0].prefix_length = 128;
	link_create(&link, &config, our_mac);
	cr_assert_neq(link_next_hop(&link, peer_v4), peer_v4);
	config.address[0].prefix_length = 96;
	link_create(&link, &config, our_mac);
	cr_assert_eq(link_next_hop(&link, far_v4), far_v4);
	cr_assert_neq(link_next_hop(&link, far_v6), far_v6);
}

Test(link, questions_are_asked_from_the_address_that_shares_the_prefix)
{
	struct link link = test_link(0);
	static const uint8_t local_peer[16] = { 0xfe, 0x80, [15] = 9 };

	cr_assert_arr_eq(link_source_for(&link, peer_v4), our_v4, 16);
	cr_assert_arr_eq(link_source_for(&link, peer_v6), our_v6, 16);
	cr_assert_arr_eq(link_source_for(&link, local_peer), our_v6_local, 16);
}

Test(link, path_mtu_leaves_room_for_the_longest_headers)
{
	/* B89, B91: IPv6 40, UDP 8, BTH 12, RETH 16, immediate 4, ICRC 4 around the payload. */
	cr_assert_eq(link_path_mtu(1500), 1024);
	cr_assert_eq(link_path_mtu(9000), 4096);
	cr_assert_eq(link_path_mtu(4096 + 84), 4096);
	cr_assert_eq(link_path_mtu(4096 + 83), 2048);
	cr_assert_eq(link_path_mtu(2048 + 84), 2048);
	cr_assert_eq(link_path_mtu(2048 + 83), 1024);
	cr_assert_eq(link_path_mtu(256 + 84), 256);
	cr_assert_eq(link_path_mtu(256 + 83), 0);
	cr_assert_eq(link_path_mtu(0), 0);
}

Test(link, frame_size_has_room_for_the_tag)
{
	cr_assert_eq(link_frame_size(1500), 1518);
}

Test(link, priority_and_drop_bits_do_not_take_part_in_the_vlan)
{
	struct link untagged = test_link(0), tagged = test_link(100);

	/* B80, B81 */
	cr_assert(link_vlan_matches(&untagged, false, 0));
	cr_assert(link_vlan_matches(&untagged, true, 3 << 13));
	cr_assert_not(link_vlan_matches(&untagged, true, 100));
	cr_assert(link_vlan_matches(&tagged, true, 100));
	cr_assert(link_vlan_matches(&tagged, true, 0xf000 | 100));
	cr_assert_not(link_vlan_matches(&tagged, true, 101));
	cr_assert_not(link_vlan_matches(&tagged, true, 3 << 13));
	cr_assert_not(link_vlan_matches(&tagged, false, 0));
}

Test(link, header_of_own_frames_has_the_tag)
{
	struct link untagged = test_link(0), tagged = test_link(100);
	struct link_frame frame;
	uint8_t data[64] = { 0 };

	cr_assert_eq(link_header(&untagged, data, peer_mac, ETHERTYPE_ARP), 14);
	cr_assert(link_parse(data, sizeof(data), &frame));
	cr_assert_not(frame.tagged);
	cr_assert_eq(frame.ethertype, ETHERTYPE_ARP);
	cr_assert_eq(link_header(&tagged, data, peer_mac, ETHERTYPE_ARP), 18);
	cr_assert(link_parse(data, sizeof(data), &frame));
	cr_assert(frame.tagged);
	cr_assert_eq(frame.tci, 100);
	cr_assert_eq(frame.ethertype, ETHERTYPE_ARP);
	cr_assert_eq(frame.length, sizeof(data) - 18);
	cr_assert_arr_eq(frame.source_mac, our_mac, 6);
}

Test(link, frames_cut_short_or_from_a_group_are_refused)
{
	struct link_frame frame;
	uint8_t data[64] = { 0 };

	memcpy(data + 6, peer_mac, 6);
	put_be16(data + 12, ETHERTYPE_VLAN);
	for (uint32_t length = 0; length < 18; length++)
		cr_assert_not(link_parse(data, length, &frame), "%u bytes", length);
	cr_assert(link_parse(data, 18, &frame));
	cr_assert_eq(frame.length, 0);
	data[6] = 0xff;
	cr_assert_not(link_parse(data, sizeof(data), &frame));
	memset(data + 6, 0, 6);
	cr_assert_not(link_parse(data, sizeof(data), &frame));
}
