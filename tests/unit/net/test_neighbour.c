/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbour table: requests, answers, silence, bounded waiting. */
#include <criterion/criterion.h>
#include <errno.h>

#include "links.h"
#include "net/neighbour.h"

#define MS 1000000ull
#define S  1000000000ull

static struct neighbour_table table;
static unsigned int requests, unicast_requests, sent;
static uint8_t last_gid[16], last_mac[6], last_mad;

static void on_request(void *context, uint32_t port, const uint8_t gid[16], const uint8_t *mac)
{
	requests++;
	unicast_requests += mac != NULL;
	memcpy(last_gid, gid, 16);
}

static void on_send(void *context, const struct net_peer *peer, const uint8_t mad[256])
{
	cr_assert(mac_is_unicast(peer->remote_mac), "B83: never an incomplete MAC");
	sent++;
	memcpy(last_mac, peer->remote_mac, 6);
	last_mad = mad[0];
}

static void setup(void)
{
	struct neighbour_io io = { .request = on_request, .send = on_send };

	neighbour_create(&table, &io);
}

TestSuite(neighbour, .init = setup);

static int send_numbered(uint8_t number, uint64_t now)
{
	struct net_peer peer = { .port = 0 };
	uint8_t mad[256] = { number };

	return neighbour_send(&table, peer_v4, &peer, mad, now);
}

Test(neighbour, asks_once_and_gives_the_answer_out)
{
	uint8_t mac[6];

	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 0, mac), -EAGAIN);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, MS, mac), -EAGAIN);
	cr_assert_eq(requests, 1);
	cr_assert_arr_eq(last_gid, peer_v4, 16);
	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, 2 * MS);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 3 * MS, mac), 0);
	cr_assert_arr_eq(mac, peer_mac, 6);
	/* The same address on another link is another neighbour. */
	cr_assert_eq(neighbour_lookup(&table, 1, peer_v4, 3 * MS, mac), -EAGAIN);
}

Test(neighbour, retries_then_reports_silence_then_tries_anew)
{
	uint8_t mac[6];
	uint64_t now = 0;

	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), -EAGAIN);
	for (; neighbour_lookup(&table, 0, peer_v4, now, mac) == -EAGAIN && now < 20 * S;
	     now += 10 * MS)
		neighbour_poll(&table, now);
	cr_assert_eq(requests, NEIGHBOUR_TRIES);
	cr_assert_lt(now, 5 * S);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), -EHOSTUNREACH);
	now += NEIGHBOUR_FAILED_NS;
	neighbour_poll(&table, now);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), -EAGAIN);
	cr_assert_eq(requests, NEIGHBOUR_TRIES + 1);
}

Test(neighbour, an_answer_during_silence_counts)
{
	uint8_t mac[6];
	uint64_t now = 0;

	while (neighbour_lookup(&table, 0, peer_v4, now, mac) == -EAGAIN)
		neighbour_poll(&table, now += 100 * MS);
	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, now);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), 0);
}

Test(neighbour, mads_wait_in_order_and_leave_with_the_answer)
{
	cr_assert_eq(send_numbered(1, 0), 0);
	cr_assert_eq(send_numbered(2, 0), 0);
	cr_assert_eq(sent, 0);
	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, MS);
	cr_assert_eq(sent, 2);
	cr_assert_eq(last_mad, 2);
	cr_assert_arr_eq(last_mac, peer_mac, 6);
	cr_assert_eq(send_numbered(3, 2 * MS), 0);
	cr_assert_eq(sent, 3);
	cr_assert_eq(requests, 1);
}

Test(neighbour, waiting_is_bounded_and_ends_with_silence)
{
	uint64_t now = 0;

	for (unsigned int i = 0; i < NEIGHBOUR_PENDING_ENTRY; i++)
		cr_assert_eq(send_numbered(1, now), 0);
	cr_assert_eq(send_numbered(1, now), -ENOBUFS);
	cr_assert_eq(table.dropped, 1);
	for (; now < 10 * S && table.dropped == 1; now += 50 * MS)
		neighbour_poll(&table, now);
	cr_assert_eq(table.dropped, 1 + NEIGHBOUR_PENDING_ENTRY);
	cr_assert_eq(send_numbered(1, now), -EHOSTUNREACH);
	cr_assert_eq(sent, 0);

	/* The places are free again, all of them. */
	for (unsigned int i = 0; i < NEIGHBOUR_PENDING / NEIGHBOUR_PENDING_ENTRY; i++) {
		uint8_t gid[16] = { 0xfd, [15] = (uint8_t)(i + 10) }, mad[256] = { 0 };
		struct net_peer peer = { .port = 0 };

		for (unsigned int n = 0; n < NEIGHBOUR_PENDING_ENTRY; n++)
			cr_assert_eq(neighbour_send(&table, gid, &peer, mad, now), 0);
	}
}

Test(neighbour, a_known_mac_changes_only_as_a_whole)
{
	static const uint8_t moved[6] = { 0x02, 1, 2, 3, 4, 5 }, zero[6],
			     group[6] = { 0x01, 0, 0x5e, 0, 0, 1 };
	uint8_t mac[6];

	neighbour_learn(&table, 0, peer_v4, peer_mac, true, false, 0);
	neighbour_learn(&table, 0, peer_v4, zero, true, false, 0);
	neighbour_learn(&table, 0, peer_v4, group, true, false, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 0, mac), 0);
	cr_assert_arr_eq(mac, peer_mac, 6);
	/* B83: a gratuitous ARP of the peer that has a new MAC. */
	neighbour_learn(&table, 0, peer_v4, moved, false, false, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 0, mac), 0);
	cr_assert_arr_eq(mac, moved, 6);
}

Test(neighbour, a_link_that_was_away_is_asked_anew)
{
	uint8_t mac[6];

	neighbour_lookup(&table, 0, peer_v4, 0, mac);
	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, MS);
	neighbour_lookup(&table, 1, peer_v4, 0, mac);
	neighbour_learn(&table, 1, peer_v4, peer_mac, false, false, MS);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v6, 0, mac), -EAGAIN);
	neighbour_forget(&table, 0, MS);
	cr_assert_eq(requests, 4, "who was being asked for, at once");
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 2 * MS, mac), -EAGAIN);
	cr_assert_eq(requests, 5);
	cr_assert_eq(neighbour_lookup(&table, 1, peer_v4, 2 * MS, mac), 0, "another link");
	neighbour_learn(&table, 0, peer_v6, peer_mac, false, false, 3 * MS);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v6, 3 * MS, mac), 0, "asked before");
}

Test(neighbour, strangers_make_no_entries)
{
	uint8_t mac[6];

	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 0, mac), -EAGAIN);
}

Test(neighbour, a_hint_is_used_and_asked_for_and_never_overwrites)
{
	static const uint8_t other[6] = { 0x02, 9, 9, 9, 9, 9 };
	uint8_t mac[6];

	neighbour_learn(&table, 0, peer_v4, peer_mac, true, true, 5 * MS);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 6 * MS, mac), 0);
	cr_assert_arr_eq(mac, peer_mac, 6);
	cr_assert_eq(requests, 1, "it is confirmed as soon as it is used");
	neighbour_learn(&table, 0, peer_v4, other, true, true, 7 * MS);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 8 * MS, mac), 0);
	cr_assert_arr_eq(mac, peer_mac, 6);
}

Test(neighbour, old_answers_are_confirmed_in_use_and_forgotten_in_silence)
{
	uint8_t mac[6];
	uint64_t now = NEIGHBOUR_CONFIRM_NS;

	neighbour_learn(&table, 0, peer_v4, peer_mac, true, false, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now - 1, mac), 0);
	cr_assert_eq(requests, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), 0);
	cr_assert_eq(requests, 1);
	cr_assert_eq(unicast_requests, 1, "the one who is known is asked, not everybody");
	neighbour_learn(&table, 0, peer_v4, peer_mac, false, false, now);
	neighbour_poll(&table, now += 10 * S);
	cr_assert_eq(requests, 1);
	now += NEIGHBOUR_CONFIRM_NS;
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, now, mac), 0);
	for (uint64_t end = now + 10 * S; now < end; now += 50 * MS)
		neighbour_poll(&table, now);
	cr_assert_neq(neighbour_lookup(&table, 0, peer_v4, now, mac), 0);
}

Test(neighbour, a_flood_of_names_costs_no_more_than_the_table)
{
	uint8_t mac[6];

	neighbour_learn(&table, 0, peer_v4, peer_mac, true, false, 0);
	for (uint32_t i = 0; i < 4 * NEIGHBOUR_ENTRIES; i++) {
		uint8_t gid[16] = { 0xfd, 1 };

		put_be32(gid + 12, i);
		neighbour_learn(&table, 0, gid, peer_mac, true, false, i);
	}
	/* The oldest gave way; the newest is there. */
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 5000, mac), -EAGAIN);
	neighbour_learn(&table, 0, peer_v4, peer_mac, true, false, 5001);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 5002, mac), 0);
}

Test(neighbour, entries_being_asked_for_are_not_driven_out)
{
	uint8_t mac[6];
	int error = 0;

	for (uint32_t i = 0; i <= NEIGHBOUR_ENTRIES; i++) {
		uint8_t gid[16] = { 0xfd, 1 };

		put_be32(gid + 12, i);
		error = neighbour_lookup(&table, 0, gid, 0, mac);
	}
	cr_assert_eq(error, -ENOBUFS);
	neighbour_learn(&table, 0, peer_v4, peer_mac, true, false, 0);
	cr_assert_eq(neighbour_lookup(&table, 0, peer_v4, 0, mac), -ENOBUFS);
}
