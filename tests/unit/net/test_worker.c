/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker loop and the slow path over a real port, with a transport that records. */
#include <errno.h>
#include <fcntl.h>

#include "net/net_private.h"
#include "wire_pair.h"
#include "wire/icrc.h"

static uint8_t frame[2048], answer[2048];

static uint32_t frames_at(uint32_t worker)
{
	return fake_get(&fake.worker[worker].frames);
}

/* --- the link ---------------------------------------------------------------------- */

/* Whatever of type and operation comes next; others are passed over. */
static bool far_gets_arp(uint16_t operation)
{
	for (unsigned int i = 0; i < 50; i++)
		if (far_receive(answer) && get_be16(answer + 12) == ETHERTYPE_ARP &&
		    get_be16(answer + 20) == operation)
			return true;
	return false;
}

Test(slowpath, addresses_are_announced_and_arp_is_answered)
{
	struct net_port_status status;

	pair_start(1, 0);
	/* The first may come before the far end listens, the second is for that. */
	pair.now += 3000000000ull;
	cr_assert(far_gets_arp(1), "gratuitous ARP when the link comes up");
	cr_assert_arr_eq(answer + 28, our_v4 + 12, 4);
	cr_assert_arr_eq(answer + 38, our_v4 + 12, 4);
	far_send(0, frame, frame_arp(frame, 1, peer_v4, our_v4));
	cr_assert(far_gets_arp(2));
	cr_assert_arr_eq(answer, peer_mac, 6);
	cr_assert_arr_eq(answer + 22, our_mac, 6);
	cr_assert(net_port_status(pair.net, 0, &status));
	cr_assert_eq(status.arp_answered, 1);
	pair_stop();
}

Test(slowpath, bad_checksums_are_counted_and_get_no_answer)
{
	struct net_port_status status;
	uint32_t length;

	pair_start(1, 0);
	length = frame_echo4(frame, our_v4, 56);
	frame[14 + 20 + 3] ^= 1;
	far_send(0, frame, length);
	wait_for(net_port_status(pair.net, 0, &status) && status.slow_refused == 1);
	cr_assert_eq(status.icmp_answered, 0);
	far_send(0, frame, frame_echo4(frame, our_v4, 56));
	wait_for(net_port_status(pair.net, 0, &status) && status.icmp_answered == 1);
	pair_stop();
}

Test(slowpath, resolving_asks_the_link_and_gives_the_answer)
{
	struct qp_path path = { .hop_limit = 7 };

	pair_start(1, 0);
	cr_assert_eq(net_resolve(pair.net, peer_v4, our_v4, &path, pair.now), -EADDRNOTAVAIL);
	cr_assert_eq(net_resolve(pair.net, our_v4, peer_v6, &path, pair.now), -ENETUNREACH);
	cr_assert_eq(net_resolve(pair.net, our_v4, our_v4, &path, pair.now), -ENETUNREACH);
	/* A passive side has the MAC from the REQ's frame and goes on with the rest. */
	cr_assert_eq(net_resolve(pair.net, our_v4, peer_v4, &path, pair.now), -EAGAIN);
	cr_assert(gid_equal(path.local_gid, our_v4) && gid_equal(path.remote_gid, peer_v4));
	do {
		cr_assert(far_gets_arp(1));
	} while (memcmp(answer + 38, peer_v4 + 12, 4) != 0);
	far_send(0, frame, frame_arp(frame, 2, peer_v4, our_v4));
	wait_for(net_resolve(pair.net, our_v4, peer_v4, &path, pair.now) == 0);
	cr_assert_arr_eq(path.remote_mac, peer_mac, 6);
	cr_assert_arr_eq(path.local_mac, our_mac, 6);
	cr_assert_arr_eq(path.local_gid, our_v4, 16);
	cr_assert_arr_eq(path.remote_gid, peer_v4, 16);
	cr_assert_eq(path.vlan_tci, 0);
	cr_assert_eq(path.hop_limit, 7, "what it does not know it leaves alone");
	pair_stop();
}

/* Its address may be another's by now: a connection to where it was would hear nothing for ever. */
Test(slowpath, b83_who_comes_by_a_new_link_is_not_sought_where_the_old_one_had_him)
{
	struct qp_path path;
	uint32_t length;

	pair_start(1, 0);
	cr_assert_eq(net_resolve(pair.net, our_v4, peer_v4, &path, pair.now), -EAGAIN);
	do {
		cr_assert(far_gets_arp(1));
	} while (memcmp(answer + 38, peer_v4 + 12, 4) != 0);
	far_send(0, frame, frame_arp(frame, 2, peer_v4, our_v4));
	wait_for(net_resolve(pair.net, our_v4, peer_v4, &path, pair.now) == 0);
	pair.resolves = true;
	length = frame_mad(frame, GSI_QKEY, 0x77);
	frame[11] ^= 1;
	far_send(0, frame, length);
	for (unsigned int i = 0; !net_has_messages(pair.net) && i < 100000; i++)
		usleep(100);
	__atomic_fetch_add(&pair.net->port[0].links, 1, __ATOMIC_RELEASE);
	wait_for(pair.mads == 1);
	cr_assert_arr_eq(pair.resolved.remote_mac, frame + 6, 6);
	pair_stop();
}

Test(slowpath, off_link_peers_are_reached_through_the_gateway_and_silence_is_told)
{
	struct qp_path path;

	pair_start(1, 0);
	cr_assert_eq(net_resolve(pair.net, our_v4, far_v4, &path, pair.now), -EAGAIN);
	do {
		cr_assert(far_gets_arp(1));
	} while (memcmp(answer + 38, gateway_v4 + 12, 4) != 0);
	for (unsigned int i = 0; i < NEIGHBOUR_TRIES; i++)
		net_poll(pair.net, pair.now += NEIGHBOUR_LONGEST_WAIT_NS);
	cr_assert_eq(net_resolve(pair.net, our_v4, far_v4, &path, pair.now), -EHOSTUNREACH);
	pair_stop();
}

Test(slowpath, mads_go_both_ways)
{
	struct net_peer peer = { 0 };
	struct wire_view view;
	uint8_t mad[256] = { 0x5a };

	pair_start(1, 0);
	far_send(0, frame, frame_mad(frame, GSI_QKEY, 0x77));
	wait_for(pair.mads == 1);
	cr_assert_eq(pair.mad[0], 0x77);
	cr_assert_arr_eq(pair.mad_peer.local_gid, our_v4, 16);
	cr_assert_arr_eq(pair.mad_peer.remote_gid, peer_v4, 16);
	cr_assert_arr_eq(pair.mad_peer.remote_mac, peer_mac, 6);

	cr_assert_eq(net_send_mad(pair.net, &pair.mad_peer, mad, pair.now), 0);
	cr_assert(far_receive_roce(answer, &view));
	cr_assert(icrc_verify(&view));
	cr_assert_arr_eq(answer, peer_mac, 6);
	cr_assert_arr_eq(answer + 6, our_mac, 6);
	cr_assert_eq(view.opcode, OP_UD_SEND_ONLY);
	cr_assert(view.mig_request, "B17: MigReq as RNICs send it");
	cr_assert_eq(view.qpn, GSI_QPN);
	cr_assert_eq(be32_get(view_deth(&view)->qkey), GSI_QKEY);
	cr_assert_eq(be24_get(view_deth(&view)->source_qpn), GSI_QPN);
	cr_assert_eq(view.payload_length, 256);
	cr_assert_eq(view.payload[0], 0x5a);

	peer = pair.mad_peer;
	memcpy(peer.local_gid, peer_v4, 16);
	cr_assert_eq(net_send_mad(pair.net, &peer, mad, pair.now), -EADDRNOTAVAIL);
	pair_stop();
}

Test(slowpath, a_mad_to_an_unknown_neighbour_waits_for_the_answer)
{
	struct net_peer peer = { 0 };
	struct wire_view view;
	uint8_t mad[256] = { 0x5b };

	pair_start(1, 100);
	memcpy(peer.local_gid, our_v4, 16);
	memcpy(peer.remote_gid, peer_v4, 16);
	cr_assert_eq(net_send_mad(pair.net, &peer, mad, pair.now), 0);
	do {
		cr_assert(far_receive(answer));
		cr_assert_eq(get_be16(answer + 12), ETHERTYPE_VLAN, "own frames are tagged");
		cr_assert_eq(get_be16(answer + 14), 100);
	} while (get_be16(answer + 16) != ETHERTYPE_ARP ||
		 memcmp(answer + 42, peer_v4 + 12, 4) != 0);
	frame_arp(frame, 2, peer_v4, our_v4);
	memmove(frame + 16, frame + 12, 48);
	put_be16(frame + 12, ETHERTYPE_VLAN);
	put_be16(frame + 14, 0x6000 | 100);
	far_send(0, frame, 64);
	cr_assert(far_receive_roce(answer, &view));
	cr_assert_eq(view.payload[0], 0x5b);
	cr_assert_arr_eq(answer, peer_mac, 6);
	cr_assert(view.has_vlan && view.vlan_tci == 100);
	pair_stop();
}

/* --- what is refused, and by which name -------------------------------------------- */

#define NO_TAG 0xffffu

static uint64_t all_verdicts(void)
{
	uint64_t sum = 0;

	for (uint32_t v = 0; v < VERDICTS; v++)
		sum += verdict_count(v);
	return sum;
}

static void refused(uint32_t length, uint32_t verdict)
{
	uint64_t before = verdict_count(verdict), all = all_verdicts();

	far_send(0, frame, length);
	wait_for(all_verdicts() != all);
	cr_assert_eq(verdict_count(verdict), before + 1, "%s", verdict_name(verdict));
	cr_assert_eq(all_verdicts(), all + 1);
	cr_assert_eq(frames_at(0), 0);
}

/* Replaces an IPv4 address of a RoCE frame, the IP checksum too; the ICRC is not mended. */
static void set_destination_ip(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	const uint8_t address[4] = { a, b, c, d };

	memcpy(frame + 30, address, 4);
	put_be16(frame + 24, 0);
	put_be16(frame + 24, link_checksum(frame + 14, 20, 0));
}

Test(classify, every_refusal_has_its_own_counter)
{
	static const uint8_t group_mac[6] = { 0x01, 0x00, 0x5e, 1, 1, 1 };
	uint32_t length;

	pair_start(1, 0);
	length = frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	frame[5] ^= 1;
	refused(length, VERDICT(NOT_OURS_MAC));

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	set_destination_ip(10, 0, 0, 9);
	refused(length, VERDICT(NOT_OURS_IP));

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG); /* B87: RC to a group is never served */
	memcpy(frame, group_mac, 6);
	refused(length, VERDICT(MULTICAST));
	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	set_destination_ip(239, 1, 1, 1);
	refused(length, VERDICT(MULTICAST));

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	frame[70] ^= 1;
	refused(length, VERDICT_WIRE + WIRE_ICRC);

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG); /* B118 */
	frame[24] ^= 1;
	refused(length, VERDICT_WIRE + WIRE_IP_CHECKSUM);

	refused(frame_roce(frame, 0x777, 1, NO_TAG), VERDICT(QP_UNKNOWN));
	refused(frame_roce(frame, 0, 1, NO_TAG), VERDICT(QP_UNKNOWN));
	refused(frame_roce(frame, 0xffffff, 1, NO_TAG), VERDICT(QP_UNKNOWN));
	refused(frame_roce(frame, GSI_QPN, 1, NO_TAG), VERDICT(QP_TYPE));
	refused(frame_mad(frame, 0x11111111, 1), VERDICT(QKEY));
	refused(frame_roce(frame, FAKE_QPN + 1, 1, 100), VERDICT(WRONG_VLAN));

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	memset(frame + length, 0, 1519 - length);
	refused(1519, VERDICT(OVERSIZE)); /* B92: what a merging device would make */

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG);
	refused(50, VERDICT_WIRE + WIRE_IP_LENGTH);
	pair_stop();
}

/* B85: what else is on an office LAN. Counted, not answered, not taken for RoCE. */
Test(classify, other_traffic_is_counted_and_left_alone)
{
	static const uint8_t broadcast[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct net_port_status status;
	uint32_t length;

	pair_start(1, 0);
	length = frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG); /* TCP to port 4791 */
	frame[23] = 6;
	set_destination_ip(10, 0, 0, 1);
	refused(length, VERDICT_WIRE + WIRE_NOT_UDP);

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG); /* UDP from port 4791, to another */
	put_be16(frame + 34, 4791);
	put_be16(frame + 36, 68);
	memcpy(frame, broadcast, 6);
	refused(length, VERDICT_WIRE + WIRE_NOT_ROCE_PORT);

	frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG); /* LLDP */
	put_be16(frame + 12, 0x88cc);
	memcpy(frame, broadcast, 6);
	refused(length, VERDICT_WIRE + WIRE_NOT_IP);

	refused(frame_arp(frame, 1, peer_v4, gateway_v4), VERDICT_WIRE + WIRE_NOT_IP);
	cr_assert(net_port_status(pair.net, 0, &status));
	cr_assert_eq(status.arp_answered + status.nd_answered + status.icmp_answered, 0);
	pair_stop();
}

Test(classify, priority_tag_is_accepted_on_an_untagged_port)
{
	/* B81 */
	pair_start(1, 0);
	far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, 1, 3 << 13));
	wait_for(frames_at(0) == 1);
	pair_stop();
}

/* At any priority; no other, none, and not two. */
static void expect_vlan_100_alone(void)
{
	uint32_t length;

	far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, 1, 0xf000 | 100));
	wait_for(frames_at(0) == 1);
	fake.worker[0].frames = 0;
	refused(frame_roce(frame, FAKE_QPN + 1, 1, NO_TAG), VERDICT(WRONG_VLAN));
	refused(frame_roce(frame, FAKE_QPN + 1, 1, 101), VERDICT(WRONG_VLAN));
	length = frame_roce(frame, FAKE_QPN + 1, 1, 100);
	memmove(frame + 16, frame + 12, length - 12);
	refused(length + 4, VERDICT_WIRE + WIRE_DOUBLE_TAG);
}

Test(classify, a_tagged_port_takes_its_own_vlan_at_any_priority)
{
	/* B80, B81 */
	pair_start(1, 100);
	expect_vlan_100_alone();
	pair_stop();
}

/* B80: the same where the driver takes the tag off; one that is left is a second. */
Test(classify, a_tag_that_the_driver_took_off_counts)
{
	pair_start(1, 100);
	pair_strip_tags();
	expect_vlan_100_alone();
	pair_stop();
}

Test(classify, any_source_port_reaches_the_queue_pair)
{
	static const uint16_t port[] = { 0, 1, 4791, 0xc000, 0xffff };

	/* B88: entropy for the network, nothing else. */
	pair_start(1, 0);
	for (uint32_t i = 0; i < 5; i++) {
		uint32_t length = frame_roce(frame, FAKE_QPN + 1, i, NO_TAG);
		struct wire_view view;

		put_be16(frame + 34, port[i]);
		cr_assert_eq(wire_parse(frame, length, &view), WIRE_OK);
		icrc_store(frame + length - 4, icrc_compute(&view));
		far_send(0, frame, length);
	}
	wait_for(frames_at(0) == 5);
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_eq(fake.worker[0].frame[i].psn, i);
	pair_stop();
}

/* --- between workers --------------------------------------------------------------- */

/* Its sender waits; the transport is asked before doorbells and timers have their turn. */
Test(classify, who_sends_one_frame_at_a_time_is_answered_first)
{
	pair_start(1, 0);
	for (uint32_t i = 0; i < 3; i++) {
		far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, i, NO_TAG));
		wait_for(frames_at(0) == i + 1);
		wait_for(fake_get(&fake.answers) > i);
	}
	pair_stop();
}

Test(handoff, frames_reach_the_owner_in_order_and_are_counted)
{
	struct net_port_status status;
	uint32_t count = 1000;

	pair_start(2, 0);
	/* All arrive on worker 0's queue; odd queue pairs live on worker 1. */
	for (uint32_t psn = 0; psn < count; psn++) {
		far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, psn, NO_TAG));
		if (psn % 64 == 63)
			wait_for(frames_at(1) == psn + 1);
	}
	wait_for(frames_at(1) == count);
	cr_assert_eq(frames_at(0), 0);
	for (uint32_t i = 0; i < count; i++) {
		cr_assert_eq(fake.worker[1].frame[i].worker, 1);
		cr_assert_eq(fake.worker[1].frame[i].psn, i);
	}
	cr_assert(net_port_status(pair.net, 0, &status));
	cr_assert_eq(status.handed_over, count);
	far_send(1, frame, frame_roce(frame, FAKE_QPN + 1, 0, NO_TAG));
	wait_for(frames_at(1) == count + 1);
	cr_assert(net_port_status(pair.net, 0, &status));
	cr_assert_eq(status.handed_over, count, "at home it is not handed over");
	pair_stop();
}

/* --- buffers ----------------------------------------------------------------------- */

Test(buffers, answers_leave_in_order_whoever_is_slow)
{
	uint32_t next = 0, psn, count = 3000;
	struct wire_view view;

	pair_start(1, 0);
	/* memif takes frames from when its far end first looks for them: the announcements. */
	pair.now += 3000000000ull;
	cr_assert(far_receive(answer));
	fake_set(&fake.echo, 1);
	for (psn = 0; psn < count; psn++) {
		far_send(0, frame, frame_roce(frame, FAKE_QPN + 2, psn, NO_TAG));
		if (psn % 50 != 49)
			continue;
		/* The transport sends only what it got a buffer for, so some may be missing. */
		do {
			cr_assert(far_receive_roce(answer, &view));
			cr_assert_geq(view.psn, next);
			next = view.psn + 1;
		} while (next <= psn);
	}
	pair_stop();
}

Test(buffers, kept_frames_come_back_and_the_port_never_runs_dry)
{
	pair_start(1, 0);
	for (uint32_t round = 1; round <= 50; round++) {
		fake_set(&fake.keep, 1);
		for (uint32_t i = 0; i < 200; i++)
			far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, i, NO_TAG));
		wait_for(frames_at(0) == 200 * round);
		fake_set(&fake.keep, 0);
	}
	net_stop_workers(pair.net);
	cr_assert_eq(rte_mempool_avail_count(pair.net->tx_pool), TX_BUFFERS);
	pair_stop();
}

Test(buffers, a_pulled_cable_costs_what_waits_and_blocks_nobody)
{
	struct net_port_status status;
	uint8_t mad[256] = { 0 };

	pair_start(1, 0);
	far_send(0, frame, frame_mad(frame, GSI_QKEY, 1));
	wait_for(pair.mads == 1);
	far_stop();
	wait_for(net_port_status(pair.net, 0, &status) && !status.link_up);
	wait_for((net_send_mad(pair.net, &pair.mad_peer, mad, pair.now),
		  net_port_status(pair.net, 0, &status)) &&
		 status.tx_dropped >= 1500);
	net_stop_workers(pair.net);
	pair_stop();
}

/* --- commands and events ----------------------------------------------------------- */

static void command(enum worker_command_type type, uint64_t cookie, uint32_t object,
		    struct shm_session *session)
{
	struct worker_command command = { .type = type,
					  .object = object,
					  .cookie = cookie,
					  .session = session,
					  .connection.path_mtu = 1024 };

	cr_assert_eq(net_command(pair.net, 0, &command), 0);
}

Test(commands, run_in_order_and_are_answered)
{
	struct worker_command bad = { .type = WORKER_CONNECT, .cookie = 3 };

	pair_start(1, 0);
	command(WORKER_ATTACH, 1, 1, NULL);
	command(WORKER_CONNECT, 2, 1, NULL);
	cr_assert_eq(net_command(pair.net, 0, &bad), 0);
	command(WORKER_FLUSH, 4, 1, NULL);
	command(WORKER_DETACH, 5, 1, NULL);
	wait_for(pair.done == 5);
	for (uint32_t i = 0; i < 5; i++) {
		cr_assert_eq(pair.done_cookie[i], i + 1);
		cr_assert_eq(pair.done_status[i], i == 2 ? -EINVAL : 0);
	}
	cr_assert_eq(fake_get(&fake.worker[0].detached), 1);
	pair_stop();
}

Test(commands, a_detach_waits_for_grace_and_the_session_ends_after_it)
{
	pair_start(1, 0);
	fake_set(&fake.may_detach, 0);
	command(WORKER_DETACH, 1, 1, NULL);
	command(WORKER_FLUSH, 2, 2, NULL);
	command(WORKER_REMOVE_SESSION, 3, 1, NULL);
	command(WORKER_ATTACH, 4, 2, NULL);
	wait_for(pair.done == 1);
	cr_assert_eq(pair.done_cookie[0], 2, "others overtake it");
	cr_assert_eq(fake_get(&fake.worker[0].sessions_removed), 0);
	fake_set(&fake.may_detach, 1);
	wait_for(pair.done == 4);
	cr_assert_lt(fake.worker[0].detached_at, fake.worker[0].removed_at);
	cr_assert_eq(pair.done_cookie[1], 1);
	cr_assert_eq(pair.done_cookie[2], 3);
	cr_assert_eq(pair.done_cookie[3], 4);
	pair_stop();
}

Test(commands, a_full_ring_says_so)
{
	struct worker_command flush = { .type = WORKER_FLUSH };
	unsigned int taken = 0;

	pair_start(1, 0);
	net_stop_workers(pair.net);
	while (net_command(pair.net, 0, &flush) == 0)
		cr_assert_lt(taken++, 100000u);
	cr_assert_gt(taken, 500);
	pair_stop();
}

Test(commands, no_event_is_lost_while_control_is_away)
{
	uint32_t count = 5 * MESSAGE_RING;

	pair_start(1, 0);
	fake_set(&fake.raise, count);
	usleep(100000);
	cr_assert_gt(fake_get(&fake.raise), 0, "the worker waits when its ring is nearly full");
	wait_for(pair.events == count);
	cr_assert_eq(pair.out_of_order, 0);
	pair_stop();
}

/* --- sleep ------------------------------------------------------------------------- */

static alignas(64) uint8_t
	session_memory[sizeof(struct shm_session) + sizeof(struct shm_worker_area)];

Test(sleep, an_idle_worker_says_that_it_sleeps_and_is_offline)
{
	struct shm_session *session = (struct shm_session *)session_memory;
	uint32_t *sleeping = &session->worker[0].sleeping;

	pair_start(1, 0);
	command(WORKER_ADD_SESSION, 1, 1, session);
	wait_for(pair.done == 1);
	wait_for(fake_get(sleeping) == 1);
	wait_for(fake_get(&fake.worker[0].offline) > 10);

	/* After the session is gone nobody writes its memory. */
	command(WORKER_REMOVE_SESSION, 2, 1, NULL);
	wait_for(pair.done == 2);
	*sleeping = 7;
	wait_for(fake_get(&fake.worker[0].offline) > 100);
	cr_assert_eq(fake_get(sleeping), 7);
	net_stop_workers(pair.net);
	cr_assert_eq(fake_get(&fake.worker[0].online), fake_get(&fake.worker[0].offline));
	pair_stop();
}

Test(sleep, quiescence_is_reported_while_there_is_nothing_to_do)
{
	pair_start(1, 0);
	wait_for(__atomic_load_n(&fake.worker[0].quiescent, __ATOMIC_ACQUIRE) > 1000);
	pair_stop();
}

/* The client and the daemon share the open file: its flags are the client's to change. */
static void make_hostile(int fd)
{
	uint64_t full = UINT64_MAX - 1;

	cr_assert_eq(fcntl(fd, F_SETFL, 0), 0);
	cr_assert_eq(write(fd, &full, sizeof(full)), sizeof(full));
}

Test(sleep, a_client_that_fills_its_eventfds_blocks_nobody)
{
	pair_start(1, 0);
	make_hostile(net_worker_eventfd(pair.net, 0));
	make_hostile(net_control_eventfd(pair.net));
	net_control_sleeping(pair.net)[0] = 1;
	for (uint32_t i = 0; i < 50; i++) {
		command(WORKER_FLUSH, i, 1, NULL);
		wait_for(pair.done == i + 1);
	}
	net_control_drain(pair.net);
	pair_stop();
}

Test(sleep, draining_an_eventfd_that_a_client_emptied_does_not_wait)
{
	uint64_t one = 1;
	int fd = wake_create();

	cr_assert_geq(fd, 0);
	cr_assert_eq(fcntl(fd, F_SETFL, 0), 0);
	cr_assert_not(wake_drain(fd));
	cr_assert_eq(write(fd, &one, sizeof(one)), sizeof(one));
	cr_assert(wake_drain(fd));
	cr_assert_not(wake_drain(fd));
	wake_close(fd);
}
