/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Seeded mixtures of every operation in both directions, over a link that loses, doubles
 * and reorders, with few buffers and receives that come late: all of it once, in order.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define ROUNDS   60u
#define SLOT     8192u
#define SOURCES  0u         /* what is sent */
#define WRITTEN  (1u << 20) /* WRITEs of the peer land here, one slot per operation */
#define RECEIVED (2u << 20) /* receives */
#define FETCHED  (3u << 20) /* READs land here */
#define COUNTER  ((4u << 20) - 64)
#define RESULTS  ((4u << 20) - 8192)

static struct rig rig;
static uint32_t state;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % below;
}

static bool lose(struct rig *r, bool from_a, uint32_t n, const struct wire_view *view)
{
	return draw(100) < 3;
}

static enum rig_fate bend(struct rig *r, bool from_a)
{
	const uint32_t chance = draw(100);

	return chance < 3 ? RIG_DOUBLE : chance < 8 ? RIG_HOLD : RIG_PASS;
}

/* One direction: what was posted by `from`, and what is expected of it. */
struct side {
	struct end *from, *to;
	struct rig_qp *qp, *peer;
	uint8_t opcode[ROUNDS];
	uint32_t length[ROUNDS];
	uint32_t posted, completed;
	uint32_t receives, received; /* of the peer, for us */
	uint32_t wanted[ROUNDS];     /* operation that the k-th receive belongs to */
	uint32_t consumers;
	uint64_t adds;
};

static bool consumes(uint8_t opcode)
{
	return opcode == SHM_WR_SEND || opcode == SHM_WR_SEND_IMMEDIATE ||
	       opcode == SHM_WR_WRITE_IMMEDIATE;
}

static bool writes(uint8_t opcode)
{
	return opcode == SHM_WR_WRITE || opcode == SHM_WR_WRITE_IMMEDIATE;
}

static void post_operation(struct side *side)
{
	static const uint8_t mix[] = { SHM_WR_SEND,  SHM_WR_SEND_IMMEDIATE,  SHM_WR_WRITE,
				       SHM_WR_WRITE, SHM_WR_WRITE_IMMEDIATE, SHM_WR_READ,
				       SHM_WR_READ,  SHM_WR_FETCH_ADD };
	const uint32_t i = side->posted++;
	const uint8_t opcode = mix[draw(8)];
	const uint32_t length = opcode == SHM_WR_FETCH_ADD ? 8 : draw(10) ? draw(SLOT) : 0;
	const uint32_t slot = (i % 100) * SLOT;
	struct shm_sge sge = sge_at(side->from, SOURCES + slot, length);
	struct shm_sqe sqe = { .opcode = opcode,
			       .request_context = i,
			       .token = side->to->remote_token,
			       .immediate = i,
			       .swap = 1 };

	if (writes(opcode))
		sqe.address = RIG_BASE + WRITTEN + slot;
	if (opcode == SHM_WR_READ) {
		sqe.address = RIG_BASE + SOURCES + slot;
		sge = sge_at(side->from, FETCHED + slot, length);
	}
	if (opcode == SHM_WR_FETCH_ADD) {
		sqe.address = RIG_BASE + COUNTER;
		sge = sge_at(side->from, RESULTS + i * 8, 8);
	}
	if (draw(5) == 0)
		sqe.flags |= SHM_FLAG_READ_FENCE;
	if (consumes(opcode))
		side->wanted[side->consumers++] = i;
	side->opcode[i] = opcode;
	side->length[i] = length;
	post_send(side->from, side->qp, sqe, &sge, 1);
}

/* Often late: the peer runs into RNR. */
static void post_late_receives(struct side *side)
{
	while (side->receives < side->consumers && draw(3)) {
		const struct shm_sge sge =
			sge_at(side->to, RECEIVED + side->receives % 100 * SLOT, SLOT);

		post_receive(side->to, side->peer, 1000 + side->receives++, &sge, 1);
	}
}

static void check_send_completion(struct side *side, const struct shm_cqe *cqe)
{
	const uint32_t i = side->completed++;
	const uint32_t slot = (i % 100) * SLOT;

	cr_assert_eq(cqe->request_context, i, "completion %u came as %llu", i,
		     (unsigned long long)cqe->request_context);
	cr_assert_eq(cqe->status, 0, "operation %u (%u): status %x", i, side->opcode[i],
		     (unsigned)cqe->status);
	if (side->opcode[i] == SHM_WR_READ)
		cr_assert_arr_eq(side->from->bytes + FETCHED + slot,
				 side->to->bytes + SOURCES + slot, side->length[i]);
	if (writes(side->opcode[i]))
		cr_assert_arr_eq(side->to->bytes + WRITTEN + slot,
				 side->from->bytes + SOURCES + slot, side->length[i]);
	if (side->opcode[i] == SHM_WR_FETCH_ADD) {
		uint64_t old;

		memcpy(&old, side->from->bytes + RESULTS + i * 8, 8);
		cr_assert_eq(old, side->adds, "atomic %u executed out of order", i);
		side->adds++;
	}
}

static void check_receive_completion(struct side *side, const struct shm_cqe *cqe)
{
	const uint32_t k = side->received++;
	const uint32_t i = side->wanted[k];

	cr_assert_eq(cqe->request_context, 1000 + k);
	cr_assert_eq(cqe->status, 0);
	cr_assert_eq(cqe->bytes, side->length[i]);
	if (cqe->type != 1)
		cr_assert_eq(cqe->output, i);
	if (side->opcode[i] != SHM_WR_WRITE_IMMEDIATE)
		cr_assert_arr_eq(side->to->bytes + RECEIVED + (k % 100) * SLOT,
				 side->from->bytes + SOURCES + (i % 100) * SLOT, side->length[i]);
}

/* A CQ holds the sends of one side and the receives of the other. */
static void collect(struct side *mine, struct side *theirs)
{
	struct shm_cqe cqe;

	while (take_cqe(mine->qp, &cqe)) {
		if (cqe.type & 1)
			check_receive_completion(theirs, &cqe);
		else
			check_send_completion(mine, &cqe);
	}
}

static bool finished(const struct side *side)
{
	return side->completed == ROUNDS && side->received == side->consumers;
}

/* Either queue pair to any worker, its present one included. */
static void move_one(struct side *side)
{
	end_move_qp(side->from, side->qp, draw(side->from->workers), rig.now);
}

static void run(uint32_t seed, struct qp_connection connection, unsigned int workers)
{
	struct side x = { 0 }, y = { 0 };
	uint32_t turns = 0;

	state = seed * 2654435761u | 1;
	rig_create_workers(&rig, workers);
	x.qp = end_open_qp(&rig.a, 0, 64);
	y.qp = end_open_qp(&rig.b, 0, 64);
	connection.send_psn = draw(2) ? 0xffffff - draw(200) : draw(1u << 24);
	rig_join(&rig, x.qp, y.qp, connection, connection);
	x.from = y.to = &rig.a;
	x.to = y.from = &rig.b;
	x.peer = y.qp;
	y.peer = x.qp;
	fill(rig.a.bytes, 1 << 20, seed);
	fill(rig.b.bytes, 1 << 20, seed + 1);
	rig.lose = lose;
	rig.bend = bend;
	while (!finished(&x) || !finished(&y)) {
		for (uint32_t n = draw(6); n && x.posted < ROUNDS; n--)
			post_operation(&x);
		for (uint32_t n = draw(6); n && y.posted < ROUNDS; n--)
			post_operation(&y);
		post_late_receives(&x);
		post_late_receives(&y);
		rig.a.room = draw(40);
		rig.b.room = draw(40);
		for (uint32_t n = draw(10); n; n--) {
			rig_turn(&rig);
			if (workers > 1 && draw(3) == 0)
				move_one(draw(2) ? &x : &y);
		}
		rig.now += draw(4) ? draw(100000) : draw(200000000);
		collect(&x, &y);
		collect(&y, &x);
		cr_assert_lt(turns++, 200000, "seed %u: stuck at %u/%u and %u/%u", seed,
			     x.completed, x.received, y.completed, y.received);
	}
	cr_assert_eq(*(uint64_t *)(void *)(rig.b.bytes + COUNTER), x.adds);
	cr_assert_eq(*(uint64_t *)(void *)(rig.a.bytes + COUNTER), y.adds);
	rig.a.room = rig.b.room = 1000;
	rig_run(&rig, rig.now + 2000000000ull);
	collect(&x, &y);
	collect(&y, &x);
	cr_assert(finished(&x) && finished(&y), "nothing comes afterwards");
	for (unsigned int w = 0; w < workers; w++)
		cr_assert_eq(transport_next_deadline(rig.a.worker[w], rig.now), UINT64_MAX);
	if (workers > 1)
		cr_assert_gt(end_counter(&rig.a, offsetof(struct transport_stats, moved_in)), 10);
	cr_assert_eq(end_counter(&rig.a, offsetof(struct transport_stats, moved_in)),
		     end_counter(&rig.a, offsetof(struct transport_stats, moved_out)));
	rig_destroy(&rig);
}

/* So many tries that luck does not end a connection. */
static struct qp_connection patient(void)
{
	struct qp_connection connection = rig_connection();

	connection.timeout = 10;
	return connection;
}

Test(chaos, everything_once_and_in_order)
{
	for (uint32_t seed = 1; seed <= 40; seed++)
		run(seed, patient(), 1);
}

Test(chaos, smallest_mtu)
{
	struct qp_connection connection = patient();

	connection.path_mtu = 256;
	for (uint32_t seed = 100; seed <= 120; seed++)
		run(seed, connection, 1);
}

Test(chaos, largest_mtu_and_one_read_at_a_time)
{
	struct qp_connection connection = patient();

	connection.path_mtu = 4096;
	connection.max_reads_in = connection.max_reads_out = 1;
	for (uint32_t seed = 200; seed <= 220; seed++)
		run(seed, connection, 1);
}

/* The same while both queue pairs go from worker to worker, thousands of times. */
Test(chaos, everything_once_and_in_order_on_the_move)
{
	for (uint32_t seed = 300; seed <= 340; seed++)
		run(seed, patient(), 3);
}
