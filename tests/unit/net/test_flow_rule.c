/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules in a device, step by step: two workers that this thread runs by hand, a device that takes
 * rules or does not, and queue pairs that may not move. Even ones live at worker HOME, odd ones at
 * worker AWAY, where all frames land that no rule puts elsewhere.
 */
#include <errno.h>

#include "flow_device.h"
#include "net/net_private.h"
#include "wire/icrc.h"
#include "wire_pair.h"

enum { HOME, AWAY };
#define QP     2u
#define PORT   0xc123u /* of the peer of QP */
#define SECOND 1000000000ull

static uint8_t frame[2048];
static uint64_t now = 2 * SECOND;

static struct worker *worker(unsigned int index)
{
	return &pair.net->worker[index];
}

static void start(uint16_t vlan)
{
	pair_start(2, vlan);
	net_stop_workers(pair.net);
	/* Announcements of the link wait for room that only a far end which receives makes. */
	for (unsigned int w = HOME; w <= AWAY; w++)
		transmit_drop(worker(w));
	memset(fake.worker, 0, sizeof(fake.worker));
	memcpy(fake.local_gid, our_v4, 16);
	memcpy(fake.remote_gid, peer_v4, 16);
}

static void finish(void)
{
	const bool rules = flow_device_count() != 0;

	cr_assert_eq(rte_mempool_in_use_count(pair.net->port[0].rx_pool), 0, "buffers are lost");
	pair_stop();
	cr_assert_eq(flow_device.broken, 0);
	cr_assert_eq(flow_device_count(), 0, "rules outlive their port");
	cr_assert_eq(flow_device.flushed, rules);
}

static void control(void)
{
	for (int i = 0; i < 10; i++)
		net_poll(pair.net, pair.now);
}

static struct net_port_status status(void)
{
	struct net_port_status status;

	cr_assert(net_port_status(pair.net, 0, &status));
	return status;
}

/* A frame to a queue pair goes the whole way: device, worker, home. */
static void arrives(uint32_t qp, uint16_t source_port)
{
	const uint32_t length = frame_roce(frame, FAKE_QPN + qp, 0, 0xffff);
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pair.net->port[0].rx_pool);
	const unsigned int home = qp_home(NULL, qp);
	struct wire_view view;
	unsigned int at;

	cr_assert_not_null(mbuf);
	put_be16(frame + 34, source_port);
	cr_assert_eq(wire_parse(frame, length, &view), WIRE_OK);
	at = flow_device_queue(&view) < 0 ? AWAY : (unsigned int)flow_device_queue(&view);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
	*buffer_of(mbuf) = (struct net_buffer){ 0 };
	if (at == home) {
		handoff_deliver(worker(at), at, mbuf, now);
		return;
	}
	handoff_send(worker(at), home, mbuf);
	handoff_receive(worker(home), now);
}

/* So many that something has to be done about them. */
static void many_arrive(uint32_t qp, uint16_t source_port)
{
	now += 2 * SECOND;
	for (uint32_t i = 0; i < 1024; i++)
		arrives(qp, source_port);
	control();
}

static void command(uint32_t type, uint32_t qp)
{
	const struct worker_command command = { .type = type,
						.object = qp,
						.number = FAKE_QPN + qp };
	struct worker_command out;
	const unsigned int home = qp_home(NULL, qp);

	cr_assert_eq(net_command(pair.net, home, &command), 0);
	cr_assert_eq(rte_ring_sc_dequeue_elem(worker(home)->commands, &out, sizeof(out)), 0);
}

static void wishes(uint32_t qp, uint16_t source_port)
{
	flow_rule_wish(worker(qp_home(NULL, qp)), qp, 0, source_port);
	control();
}

/* --- what they are for ------------------------------------------------------------------ */

Test(flow_rule, frames_that_land_elsewhere_are_brought_home)
{
	const struct flow_device_rule *rule;

	start(0);
	cr_assert_eq(flow_device.asked, 2, "once for each family");
	many_arrive(QP, PORT);
	cr_assert_eq(status().handed_over, 1024);
	rule = flow_device_only();
	cr_assert_eq(rule->queue, HOME);
	cr_assert_eq(rule->source_port, PORT);
	cr_assert_eq(rule->destination_port, 4791);
	cr_assert(gid_equal(rule->source_gid, peer_v4) && gid_equal(rule->destination_gid, our_v4));
	cr_assert_not(rule->tagged);
	many_arrive(QP, PORT);
	cr_assert_eq(status().handed_over, 1024, "they land at home");
	cr_assert_eq(fake.worker[HOME].frames, 2048, "none is lost on the way");
	cr_assert_eq(status().flow_rules, 1);
	cr_assert_eq(status().flow_rules_made, 1);
	cr_assert_eq(status().flow_rules_limit, FLOW_RULES);

	command(WORKER_DETACH, QP);
	cr_assert_eq(flow_device_count(), 0, "the rule goes with the queue pair");
	cr_assert_eq(status().flow_rules, 0);
	arrives(QP, PORT);
	cr_assert_eq(status().handed_over, 1025);
	finish();
}

Test(flow_rule, of_ipv6_in_a_vlan)
{
	const struct flow_device_rule *rule;

	start(100);
	memcpy(fake.local_gid, our_v6, 16);
	memcpy(fake.remote_gid, peer_v6, 16);
	wishes(QP, PORT);
	rule = flow_device_only();
	cr_assert(rule->tagged);
	cr_assert_eq(rule->vlan, 100);
	cr_assert(gid_equal(rule->source_gid, peer_v6) && gid_equal(rule->destination_gid, our_v6));
	finish();
}

static void connect_to_peer(void)
{
	struct worker_command command = { .type = WORKER_CONNECT, .object = QP };

	command.connection.path_mtu = 1024;
	command.connection.remote_qpn = 0x77;
	memcpy(command.connection.path.local_gid, our_v4, 16);
	memcpy(command.connection.path.remote_gid, peer_v4, 16);
	cr_assert_eq(net_command(pair.net, HOME, &command), 0);
	commands_run(worker(HOME), now);
	control();
}

/* The device says by its table that frames of this peer go to the queue of AWAY. */
Test(flow_rule, before_the_first_frame_where_the_device_tells)
{
	start(0);
	pair.net->port[0].steering.entries = 1;
	pair.net->port[0].steering.queue[0] = HOME;
	connect_to_peer();
	cr_assert_eq(flow_device_count(), 0, "they land at home");
	pair.net->port[0].steering.queue[0] = AWAY;
	connect_to_peer();
	cr_assert_eq(flow_device_only()->source_port, roce_source_port(0, 0x77, FAKE_QPN + QP));
	finish();
}

/* Each but those of a shared receive queue, with migrate = yes. */
Test(flow_rule, who_may_move_needs_none)
{
	start(0);
	pair.net->config.migrate = true;
	fake.movable = 1;
	many_arrive(QP, PORT);
	cr_assert_eq(worker(HOME)->moves.driven, 1);
	cr_assert_eq(flow_device.tried, 0);
	fake.movable = 0;
	many_arrive(QP + 2, PORT);
	cr_assert_eq(worker(HOME)->moves.driven, 1);
	cr_assert_eq(flow_device_count(), 1);
	finish();
}

/* --- how they end ----------------------------------------------------------------------- */

Test(flow_rule, follows_the_source_port_of_the_peer)
{
	start(0);
	many_arrive(QP, PORT);
	many_arrive(QP, PORT + 1);
	cr_assert_eq(flow_device_only()->source_port, PORT + 1, "the old one is gone");
	cr_assert_eq(status().flow_rules_made, 2);
	cr_assert_eq(flow_device.dropped, 1);
	finish();
}

Test(flow_rule, ends_when_the_queue_pair_moves)
{
	start(0);
	wishes(QP, PORT);
	flow_rule_wish(worker(HOME), QP, 0, PORT);
	command(WORKER_MOVE, QP);
	cr_assert_eq(flow_device_count(), 0);
	fake.home[QP] = AWAY + 1;
	control();
	cr_assert_eq(flow_device_count(), 0, "what its old home had wished for");
	wishes(QP, PORT);
	cr_assert_eq(flow_device_only()->queue, AWAY);
	finish();
}

Test(flow_rule, is_not_made_for_what_has_ended)
{
	start(0);
	flow_rule_wish(worker(HOME), QP, 0, PORT);
	command(WORKER_DETACH, QP);
	control();
	command(WORKER_ATTACH, QP);
	control();
	cr_assert_eq(flow_device.tried, 0);
	flow_rule_wish(worker(HOME), QP, 0, PORT);
	fake.again[QP] = 1;
	control();
	fake.again[QP] = 0;
	cr_assert_eq(flow_device.tried, 0, "its index is another's");
	fake.failed[QP] = 1;
	wishes(QP, PORT);
	fake.failed[QP] = 0;
	fake.type[QP] = SHM_QP_UD;
	wishes(QP, PORT);
	cr_assert_eq(flow_device.tried, 0, "failed, datagrams");
	fake.type[QP] = SHM_QP_UC;
	wishes(QP, PORT);
	cr_assert_eq(flow_device_count(), 1, "a queue pair that took its place");
	finish();
}

/* One rule cannot serve two homes. */
Test(flow_rule, queue_pairs_of_one_flow_share_it)
{
	start(0);
	wishes(QP, PORT);
	wishes(QP + 2, PORT);
	cr_assert_eq(flow_device.made, 1);
	wishes(QP + 1, PORT);
	cr_assert_eq(flow_device_only()->queue, HOME, "the first to come decides");
	cr_assert_eq(status().flow_rules_refused, 1);
	command(WORKER_DETACH, QP);
	cr_assert_eq(flow_device_count(), 1);
	command(WORKER_DETACH, QP + 2);
	cr_assert_eq(flow_device_count(), 0);
	wishes(QP + 1, PORT);
	cr_assert_eq(flow_device_only()->queue, AWAY);
	finish();
}

/* --- bounds and refusals ------------------------------------------------------------------ */

Test(flow_rule, there_are_so_many_and_no_more)
{
	start(0);
	for (uint32_t i = 0; i < FLOW_RULES; i++)
		wishes(QP + i % (FAKE_QPS - QP), (uint16_t)i);
	cr_assert_eq(flow_device_count(), FLOW_RULES);
	wishes(QP + FLOW_RULES, FLOW_RULES);
	cr_assert_eq(flow_device_count(), FLOW_RULES);
	cr_assert_eq(status().flow_rules_refused, 1);
	cr_assert_eq(flow_device.tried, FLOW_RULES, "the device is not asked");
	command(WORKER_DETACH, QP + 5);
	wishes(QP + FLOW_RULES, FLOW_RULES);
	cr_assert_eq(flow_device_count(), FLOW_RULES);
	cr_assert_eq(status().flow_rules_refused, 1);
	finish();
}

Test(flow_rule, more_wishes_than_can_wait_are_lost)
{
	start(0);
	for (uint32_t i = 0; i < 2 * FLOW_WISHES; i++)
		flow_rule_wish(worker(HOME), QP + 2 * i, 0, (uint16_t)i);
	net_poll(pair.net, pair.now);
	cr_assert_eq(flow_device_count(), 1, "one in a turn");
	for (uint32_t i = 0; i < FLOW_WISHES; i++)
		control();
	cr_assert_geq(flow_device_count(), FLOW_WISHES - 1);
	cr_assert_leq(flow_device_count(), FLOW_WISHES);
	finish();
}

Test(flow_rule, a_device_without_them_changes_nothing)
{
	flow_device.never4 = flow_device.never6 = true;
	start(0);
	cr_assert_null(pair.net->landing, "nobody keeps score");
	cr_assert_null(worker(HOME)->wishes);
	many_arrive(QP, PORT);
	many_arrive(QP, PORT);
	cr_assert_eq(status().handed_over, 2048);
	cr_assert_eq(fake.worker[HOME].frames, 2048);
	cr_assert_eq(flow_device.tried, 0);
	cr_assert_eq(status().flow_rules_limit, 0);
	wishes(QP, PORT);
	command(WORKER_DETACH, QP);
	finish();
}

Test(flow_rule, of_one_family_only)
{
	flow_device.never6 = true;
	start(0);
	wishes(QP, PORT);
	cr_assert_eq(flow_device_count(), 1);
	memcpy(fake.local_gid, our_v6, 16);
	memcpy(fake.remote_gid, peer_v6, 16);
	wishes(QP + 2, PORT);
	cr_assert_eq(flow_device.tried, 1);
	finish();
}

/* What it refuses after all it is not asked for again and again. */
Test(flow_rule, a_device_that_is_full_is_let_alone_for_a_time)
{
	start(0);
	flow_device.room = 1;
	wishes(QP, PORT);
	wishes(QP + 2, PORT + 1);
	wishes(QP + 2, PORT + 1);
	cr_assert_eq(flow_device.tried, 2);
	cr_assert_eq(status().flow_rules_refused, 2);
	pair.now += SECOND;
	wishes(QP + 2, PORT + 1);
	cr_assert_eq(flow_device.tried, 3);
	pair.now += SECOND;
	wishes(QP + 2, PORT + 1);
	cr_assert_eq(flow_device.tried, 3, "longer than the last time");
	pair.now += SECOND;
	command(WORKER_DETACH, QP);
	wishes(QP + 2, PORT + 1);
	cr_assert_eq(flow_device_only()->source_port, PORT + 1);
	cr_assert_eq(status().flow_rules, 1);
	finish();
}

Test(flow_rule, a_device_that_is_gone_keeps_nobody)
{
	start(0);
	wishes(QP, PORT);
	flow_device.sticks = true;
	command(WORKER_DETACH, QP);
	cr_assert_eq(status().flow_rules, 0);
	wishes(QP + 2, PORT);
	cr_assert_eq(status().flow_rules, 1, "there is room for the next");
	finish();
}
