/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs with a shared receive queue, whose frames land at other workers until a device with
 * rules brings them home, while messages come without a pause. Workers are threads; control, the
 * peer and the device are this one.
 */
#include <criterion/criterion.h>
#include <unistd.h>

#include "flow_device.h"
#include "move_rig.h"

#define WORKERS 3u
#define PAIRS   4u
#define DEPTH   8u
#define LENGTH  4096u
/* Of each queue pair, when all have their rule. */
#define MESSAGES 200u

struct stream {
	uint32_t posted, completed;
	uint32_t before; /* of those completed, when all had their rule */
	bool steered;    /* the last frame was */
};

static struct stream streams[PAIRS];

static int by_rule(uint32_t number, const struct wire_view *view)
{
	const int queue = flow_device_queue(view);

	streams[number].steered = queue >= 0;
	return queue;
}

static uint64_t place(uint32_t number, uint32_t k)
{
	return (number * DEPTH + k % DEPTH) * LENGTH;
}

static void post_one(uint32_t number)
{
	const uint32_t k = streams[number].posted++;
	const struct shm_sge sge = sge_at(&wire.far, place(number, k), LENGTH);

	fill(wire.far.bytes + place(number, k), LENGTH, number << 24 | k);
	post_send(&wire.far, &wire.far.qp[number],
		  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
				    .request_context = k,
				    .token = wire.near.remote_token,
				    .address = RIG_BASE + place(number, k) },
		  &sge, 1);
}

static void collect(uint32_t number)
{
	static uint8_t expected[LENGTH];
	struct shm_cqe cqe;

	while (take_cqe(&wire.far.qp[number], &cqe)) {
		const uint32_t k = streams[number].completed++;

		cr_assert_eq(cqe.request_context, k);
		cr_assert_eq(cqe.status, 0, "message %u of stream %u: %x", k, number,
			     (unsigned)cqe.status);
		fill(expected, LENGTH, number << 24 | k);
		cr_assert_arr_eq(wire.near.bytes + place(number, k), expected, LENGTH);
	}
}

/* True: something is under way. */
static bool run(bool more)
{
	bool under_way = false;

	for (uint32_t i = 0; i < PAIRS; i++) {
		while (more && streams[i].posted < streams[i].completed + DEPTH)
			post_one(i);
		collect(i);
		under_way |= streams[i].completed < streams[i].posted;
	}
	move_rig_turn();
	return under_way;
}

static bool all_steered(void)
{
	for (uint32_t i = 0; i < PAIRS; i++)
		if (!streams[i].steered)
			return false;
	return true;
}

static uint32_t fewest_completed(void)
{
	uint32_t fewest = UINT32_MAX;

	for (uint32_t i = 0; i < PAIRS; i++)
		fewest = RTE_MIN(fewest, streams[i].completed - streams[i].before);
	return fewest;
}

static void until_count(const uint32_t *count)
{
	for (unsigned int i = 0; *count == 0 && i < 1000000; i++) {
		move_rig_turn();
		usleep(50);
	}
	cr_assert_eq(*count, 1);
}

static void close_pair(uint32_t number)
{
	struct rig_qp *qp = &wire.near.qp[number];

	wire.done = wire.flushed = 0;
	cr_assert(move_rig_command(WORKER_FLUSH, qp, 0));
	until_count(&wire.flushed);
	wire.done = 0;
	cr_assert(move_rig_command(WORKER_DETACH, qp, 0));
	until_count(&wire.done);
	qp_destroy(wire.near.shared, qp->index);
	cq_destroy(wire.near.shared, qp->cq);
	free(qp->memory);
	free(qp->cq_memory);
	qp->index = 0;
}

static uint64_t handed_over(void)
{
	uint64_t sum = 0;

	for (unsigned int w = 0; w < WORKERS; w++)
		sum += wire.net->worker[w].handed_over[0];
	return sum;
}

Test(flow_traffic, comes_home_while_it_runs_and_stays)
{
	uint32_t elsewhere;

	wire.shares = true;
	wire.steered = by_rule;
	move_rig_start(WORKERS, PAIRS, true);
	for (uint32_t i = 0; i < PAIRS; i++)
		wire.lands_at[i] = 1 + i % 2;
	while (!all_steered())
		run(true);
	elsewhere = wire.elsewhere;
	cr_assert_geq(elsewhere, 1024);
	for (uint32_t i = 0; i < PAIRS; i++)
		streams[i].before = streams[i].completed;
	while (fewest_completed() < MESSAGES)
		run(true);
	while (run(false))
		;
	cr_assert_eq(wire.elsewhere, elsewhere, "they land at home");
	cr_assert_eq(flow_device_count(), flow_device.made);
	for (uint32_t i = 0; i < PAIRS; i++)
		close_pair(i);
	cr_assert_eq(flow_device_count(), 0, "the rules are gone with the queue pairs");
	cr_assert_eq(flow_device.broken, 0);
	move_rig_halt();
	cr_assert_eq(handed_over() + end_verdicts(&wire.near, VERDICT(NO_ROOM_HANDOFF)), elsewhere);
	printf("%u frames until the rules, %u messages, %llu of sequence\n", elsewhere,
	       streams[0].completed + streams[1].completed + streams[2].completed +
		       streams[3].completed,
	       (unsigned long long)end_verdicts(&wire.near, VERDICT(PSN_AHEAD)));
	move_rig_stop();
}
