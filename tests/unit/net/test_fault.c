/* SPDX-License-Identifier: BSD-3-Clause */
/* Injected faults: every frame has one fate, one counter, and none is forgotten. */
#include "net/net_private.h"
#include "wire_pair.h"

#define NO_TAG 0xffffu

static uint8_t frame[2048], answer[2048];
static struct net_port_status status;

static uint32_t frames(void)
{
	return fake_get(&fake.worker[0].frames);
}

static void set(enum net_direction direction, struct net_fault fault)
{
	struct net_fault got;

	net_set_fault(pair.net, 0, direction, &fault);
	net_get_fault(pair.net, 0, direction, &got);
	cr_assert_eq(memcmp(&got, &fault, sizeof(got)), 0);
}

static const struct net_fault_counts *counts(enum net_direction direction)
{
	cr_assert(net_port_status(pair.net, 0, &status));
	return &status.fault[direction];
}

static void send_numbered(uint32_t first, uint32_t count)
{
	for (uint32_t psn = first; psn < first + count; psn++)
		far_send(0, frame, frame_roce(frame, FAKE_QPN + 1, psn, NO_TAG));
}

/* What has become of frames that arrived: the transport's, refused, lost, still held. */
static uint64_t fates(void)
{
	const struct net_fault_counts *fault = counts(NET_RECEIVE);
	uint64_t refused = 0;

	for (uint32_t v = 1; v < VERDICTS; v++)
		refused += verdict_count(v);
	return frames() + refused + fault->lost + fault->held - fault->duplicated;
}

Test(fault, all_is_lost_and_counted)
{
	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .loss = 1000000, .seed = 1 });
	send_numbered(0, 200);
	wait_for(counts(NET_RECEIVE)->lost == 200);
	cr_assert_eq(frames(), 0);
	set(NET_RECEIVE, (struct net_fault){ 0 });
	send_numbered(0, 10);
	wait_for(frames() == 10);
	cr_assert_eq(counts(NET_RECEIVE)->lost, 200);
	pair_stop();
}

Test(fault, the_sum_of_fates_is_the_frames_that_came)
{
	const struct net_fault_counts *fault;

	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .loss = 100000,
					     .duplicate = 100000,
					     .reorder = 100000,
					     .corrupt = 100000,
					     .delay = 100000,
					     .delay_us = 300,
					     .seed = 5 });
	send_numbered(0, 2000);
	wait_for(fates() == 2000 && status.fault[NET_RECEIVE].held == 0);
	net_stop_workers(pair.net);
	fault = counts(NET_RECEIVE);
	cr_assert_eq(fates(), 2000);
	/* Each has a tenth of 2000 draws: 7 standard deviations are 94. */
	for (unsigned int i = 0; i < 5; i++) {
		uint64_t count = (&fault->lost)[i];

		cr_assert(count > 106 && count < 294, "kind %u: %lu", i, (unsigned long)count);
	}
	cr_assert_geq(2000 - frames() + fault->duplicated, fault->lost);
	pair_stop();
}

Test(fault, a_seed_draws_the_same_again)
{
	uint32_t first[64], kept;

	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .loss = 500000, .seed = 99 });
	send_numbered(0, 100);
	wait_for(fates() == 100);
	kept = frames();
	cr_assert(kept > 16 && kept < 64);
	for (uint32_t i = 0; i < kept; i++)
		first[i] = fake.worker[0].frame[i].psn;
	set(NET_RECEIVE, (struct net_fault){ .loss = 500000, .seed = 99 });
	send_numbered(0, 100);
	wait_for(fates() == 200);
	cr_assert_eq(frames(), 2 * kept);
	for (uint32_t i = 0; i < kept; i++)
		cr_assert_eq(fake.worker[0].frame[kept + i].psn, first[i]);
	pair_stop();
}

Test(fault, reordered_frames_all_arrive_in_another_order)
{
	uint32_t out_of_order = 0;
	uint64_t sum = 0;

	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .reorder = 200000, .delay_us = 1000000, .seed = 3 });
	send_numbered(0, 400);
	wait_for(fates() == 400);
	set(NET_RECEIVE, (struct net_fault){ 0 });
	send_numbered(400, 8); /* the last ones are passed as well */
	wait_for(frames() == 408);
	for (uint32_t i = 0; i < 408; i++) {
		sum += fake.worker[0].frame[i].psn;
		out_of_order += i && fake.worker[0].frame[i].psn < fake.worker[0].frame[i - 1].psn;
	}
	cr_assert_eq(sum, 407 * 408 / 2);
	cr_assert_gt(out_of_order, 10);
	cr_assert_eq(counts(NET_RECEIVE)->held, 0);
	pair_stop();
}

Test(fault, a_sleeping_worker_wakes_for_delayed_frames_and_keeps_their_order)
{
	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .delay = 1000000, .delay_us = 20000, .seed = 3 });
	send_numbered(0, 100);
	wait_for(counts(NET_RECEIVE)->delayed == 100);
	wait_for(frames() == 100);
	for (uint32_t i = 0; i < 100; i++)
		cr_assert_eq(fake.worker[0].frame[i].psn, i);
	pair_stop();
}

Test(fault, what_finds_no_room_to_be_held_goes_on)
{
	pair_start(1, 0);
	set(NET_RECEIVE, (struct net_fault){ .delay = 1000000, .delay_us = 10000000, .seed = 3 });
	send_numbered(0, 400);
	wait_for(fates() == 400);
	cr_assert_eq(counts(NET_RECEIVE)->delayed, 256);
	cr_assert_eq(frames(), 144);
	net_stop_workers(pair.net);
	cr_assert_eq(counts(NET_RECEIVE)->lost, 256, "what is held at the end");
	cr_assert_eq(counts(NET_RECEIVE)->held, 0);
	pair_stop();
}

/* --- transmit ---------------------------------------------------------------------- */

static void ask(uint32_t count)
{
	fake_set(&fake.echo, 1);
	send_numbered(0, count);
}

Test(fault, sent_frames_are_doubled_and_every_buffer_comes_back)
{
	struct wire_view view;

	pair_start(1, 0);
	/* As below: what memif does not take yet would fill the array. */
	pair.now += 3000000000ull;
	cr_assert(far_receive(answer));
	set(NET_TRANSMIT, (struct net_fault){ .duplicate = 1000000, .seed = 3 });
	ask(40);
	for (uint32_t i = 0; i < 80; i++)
		cr_assert(far_receive_roce(answer, &view));
	/* Announcements are frames as well. */
	cr_assert_geq(counts(NET_TRANSMIT)->duplicated, 40);
	net_stop_workers(pair.net);
	cr_assert_eq(rte_mempool_avail_count(pair.net->tx_pool), TX_BUFFERS);
	pair_stop();
}

Test(fault, frames_to_be_sent_leave_when_the_worker_stops)
{
	struct wire_view view;

	pair_start(1, 0);
	/* memif takes frames from when its far end first looks for them: the announcements. */
	pair.now += 3000000000ull;
	cr_assert(far_receive(answer));
	set(NET_TRANSMIT, (struct net_fault){ .delay = 1000000, .delay_us = 10000000, .seed = 3 });
	ask(40);
	wait_for(frames() == 40);
	net_stop_workers(pair.net);
	for (uint32_t i = 0; i < 40; i++) {
		cr_assert(far_receive_roce(answer, &view));
		cr_assert_eq(view.psn, i);
	}
	cr_assert_eq(counts(NET_TRANSMIT)->held, 0);
	pair_stop();
}

/* Buffers of the transport that a stopped worker still has in hand. */
static uint32_t waiting(void)
{
	const struct tx_array *tx = &pair.net->worker[0].tx[0];
	uint32_t count = 0;

	for (uint32_t i = 0; i < tx->count; i++)
		count += tx->frame[i]->pool == pair.net->tx_pool;
	return count;
}

Test(fault, a_pulled_cable_loses_what_waits_once)
{
	pair_start(1, 0);
	set(NET_TRANSMIT,
	    (struct net_fault){
		    .duplicate = 500000, .delay = 500000, .delay_us = 1000, .seed = 3 });
	ask(100);
	far_stop();
	wait_for(net_port_status(pair.net, 0, &status) && !status.link_up);
	wait_for(counts(NET_TRANSMIT)->held == 0);
	net_stop_workers(pair.net);
	cr_assert_eq(rte_mempool_avail_count(pair.net->tx_pool) + waiting(), TX_BUFFERS);
	pair_stop();
}
