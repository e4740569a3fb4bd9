/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs move between workers that are threads, thousands of times, while traffic of every
 * kind goes both ways: all of it arrives once, in order, byte for byte, and no sequence error is
 * seen by anyone.
 */
#include <criterion/criterion.h>
#include <unistd.h>

#include "move_rig.h"
#include "transport/private.h"

#define WORKERS 3u
#ifdef __SANITIZE_THREAD__
#define MOVES 100u
#else
#define MOVES 3000u
#endif
#define PAIRS 6u
#define DEPTH 8u    /* operations of one flow under way */
#define SLOT  8192u /* bytes of an operation, at the most */
#define AREA  (DEPTH * SLOT)

/* One direction of a pair. Each has its own areas in the memory of both ends. */
struct flow {
	struct end *from, *to;
	struct rig_qp *qp, *peer;
	uint32_t number;
	uint32_t posted, completed; /* operations */
	uint32_t receives;          /* posted at the peer */
	uint32_t consumed;          /* completed there */
	uint64_t adds;
};

static struct flow flows[2 * PAIRS];
static uint32_t state = 0x2545f491;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % below;
}

/* --- areas ---------------------------------------------------------------------------- */

enum area { SOURCE, SINK, WRITTEN, RECEIVED };

static uint64_t area(const struct flow *flow, enum area which, uint32_t k)
{
	return ((uint64_t)flow->number * 4 + which) * AREA + k % DEPTH * SLOT;
}

static uint64_t counter(const struct flow *flow)
{
	return RIG_MEMORY - 64 * (flow->number + 1ull);
}
_Static_assert(2 * PAIRS * 4 * AREA < RIG_MEMORY - 64 * 64, "areas");

/* --- operations: the number of one says all of it ------------------------------------- */

static const uint8_t kinds[] = { SHM_WR_WRITE,     SHM_WR_SEND, SHM_WR_READ,
				 SHM_WR_FETCH_ADD, SHM_WR_SEND, SHM_WR_WRITE_IMMEDIATE };

static uint8_t kind(uint32_t k)
{
	return kinds[k % 6];
}

static uint32_t length_of(uint32_t k)
{
	return kind(k) == SHM_WR_FETCH_ADD ? 8 : 1 + k * 2654435761u % (SLOT - 1);
}

/* Operation that the k-th receive belongs to: the second, fifth and sixth of each six. */
static uint32_t consumer(uint32_t k)
{
	static const uint32_t place[3] = { 1, 4, 5 };

	return k / 3 * 6 + place[k % 3];
}

static void post_receives(struct flow *flow)
{
	while (flow->receives < flow->consumed + DEPTH) {
		const struct shm_sge sge =
			sge_at(flow->to, area(flow, RECEIVED, flow->receives), SLOT);

		post_receive(flow->to, flow->peer, flow->receives++, &sge, 1);
	}
}

static void post_one(struct flow *flow)
{
	const uint32_t k = flow->posted++;
	const bool lands = kind(k) == SHM_WR_READ || kind(k) == SHM_WR_FETCH_ADD;
	const struct shm_sge sge =
		sge_at(flow->from, area(flow, lands ? SINK : SOURCE, k), length_of(k));
	struct shm_sqe sqe = { .opcode = kind(k),
			       .request_context = k,
			       .token = flow->to->remote_token,
			       .address = RIG_BASE + area(flow, WRITTEN, k),
			       .immediate = k,
			       .swap = 1 };

	if (kind(k) == SHM_WR_FETCH_ADD)
		sqe.address = RIG_BASE + counter(flow);
	else if (kind(k) == SHM_WR_READ)
		sqe.address = RIG_BASE + area(flow, SOURCE, k);
	else
		fill(flow->from->bytes + area(flow, SOURCE, k), length_of(k), k);
	post_send(flow->from, flow->qp, sqe, &sge, 1);
}

/* --- completions ------------------------------------------------------------------------ */

static void expect_bytes(const struct flow *flow, const uint8_t *bytes, uint32_t k)
{
	static uint8_t expected[SLOT];

	fill(expected, length_of(k), k);
	cr_assert_arr_eq(bytes, expected, length_of(k), "operation %u of flow %u", k, flow->number);
}

static void check_sent(struct flow *flow, const struct shm_cqe *cqe)
{
	const uint32_t k = flow->completed++;
	uint64_t old;

	cr_assert_eq(cqe->request_context, k, "flow %u: completion %u came as %llu", flow->number,
		     k, (unsigned long long)cqe->request_context);
	cr_assert_eq(cqe->status, 0, "flow %u, operation %u: %x", flow->number, k,
		     (unsigned)cqe->status);
	if (kind(k) == SHM_WR_WRITE)
		expect_bytes(flow, flow->to->bytes + area(flow, WRITTEN, k), k);
	if (kind(k) == SHM_WR_READ)
		cr_assert_arr_eq(flow->from->bytes + area(flow, SINK, k),
				 flow->to->bytes + area(flow, SOURCE, k), length_of(k));
	if (kind(k) != SHM_WR_FETCH_ADD)
		return;
	memcpy(&old, flow->from->bytes + area(flow, SINK, k), 8);
	cr_assert_eq(old, flow->adds++, "flow %u: an atomic out of order", flow->number);
}

static void check_received(struct flow *flow, const struct shm_cqe *cqe)
{
	const uint32_t n = flow->consumed++, k = consumer(n);

	cr_assert_eq(cqe->request_context, n);
	cr_assert_eq(cqe->status, 0);
	if (cqe->type != COMPLETION_RECEIVE) {
		cr_assert_eq(cqe->output, k);
		return;
	}
	cr_assert_eq(cqe->bytes, length_of(k));
	expect_bytes(flow, flow->to->bytes + area(flow, RECEIVED, n), k);
}

/* A CQ holds the sends of one flow and the receives of its counterpart. */
static void collect(struct flow *flow)
{
	struct shm_cqe cqe;

	while (take_cqe(flow->qp, &cqe)) {
		if (cqe.type & COMPLETION_RECEIVE)
			check_received(&flows[flow->number ^ 1], &cqe);
		else
			check_sent(flow, &cqe);
	}
}

/* --- runs ------------------------------------------------------------------------------- */

static void open_flows(uint32_t pairs)
{
	for (uint32_t n = 0; n < 2 * pairs; n++) {
		struct end *ends[2] = { &wire.near, &wire.far };
		struct flow *flow = &flows[n];

		*flow = (struct flow){ .from = ends[n % 2], .to = ends[!(n % 2)], .number = n };
		flow->qp = &flow->from->qp[n / 2];
		flow->peer = &flow->to->qp[n / 2];
		/* What READs of the peer find. */
		fill(flow->to->bytes + area(flow, SOURCE, 0), AREA, n);
	}
}

/* A turn of everything. `more`: operations are posted, too. True: some are not complete. */
static bool run_flows(uint32_t pairs, bool more)
{
	bool under_way = false;

	for (uint32_t n = 0; n < 2 * pairs; n++) {
		struct flow *flow = &flows[n];

		post_receives(flow);
		while (more && flow->posted < flow->completed + DEPTH)
			post_one(flow);
		collect(flow);
		under_way |= flow->completed < flow->posted;
	}
	move_rig_turn();
	return under_way;
}

static void expect_counter(const char *name, uint64_t got, uint64_t wanted)
{
	cr_assert_eq(got, wanted, "%s: %llu", name, (unsigned long long)got);
}

static void expect_clean(void)
{
	struct end *ends[2] = { &wire.near, &wire.far };

	for (int i = 0; i < 2; i++) {
		static const uint32_t never[] = { VERDICT(PSN_AHEAD),
						  VERDICT(PSN_AHEAD_SILENT),
						  VERDICT(NAK_SEQUENCE),
						  VERDICT(RESPONSE_GAP),
						  VERDICT(RESPONSE_UNEXPECTED),
						  VERDICT(DUPLICATE),
						  VERDICT(ACK_GHOST),
						  VERDICT(QP_UNKNOWN),
						  VERDICT(QP_STATE),
						  VERDICT(NO_ROOM_HANDOFF),
						  VERDICT(PARK_FULL) };

		for (size_t v = 0; v < RTE_DIM(never); v++)
			expect_counter(verdict_name(never[v]), end_verdicts(ends[i], never[v]), 0);
	}
	cr_assert_eq(end_counter(&wire.near, offsetof(struct transport_stats, retransmits)), 0);
}

/* Each free record is in the list of the worker whose share it is. */
static void expect_shares(void)
{
	for (unsigned int w = 0; w < wire.near.workers; w++) {
		const struct transport *t = wire.near.worker[w];
		uint32_t count = t->flight_first == 0; /* record 0 is none */

		cr_assert_eq(t->flights_abroad, 0);
		for (uint32_t i = t->free_flight; i; i = flight_at(t, i)->next, count++)
			cr_assert_lt(i - t->flight_first, t->flight_count);
		cr_assert_eq(count, t->flight_count, "worker %u has %u of %u records", w, count,
			     t->flight_count);
	}
}

/*
 * Until no move is under way and nothing is on its way home: each worker has had hundreds of
 * turns, however seldom the machine gives it one.
 */
static void settle(void)
{
	for (int turn = 0; turn < 200; turn++) {
		const uint64_t grace = memory_grace_start(wire.near.memory);

		do {
			for (int i = 0; i < 10; i++) {
				move_rig_turn();
				usleep(100);
			}
		} while (!memory_grace_done(wire.near.memory, grace));
	}
}

static uint64_t moves(void)
{
	return end_counter(&wire.near, offsetof(struct transport_stats, moved_in));
}

/* Each queue pair is sent on as soon as it has arrived. Returns how many have. */
static uint32_t keep_moving(uint32_t wanted[PAIRS])
{
	uint32_t arrived = 0;

	for (uint32_t i = 0; i < PAIRS; i++) {
		if (qp_home(wire.near.shared, wire.near.qp[i].index) != wanted[i])
			continue;
		wanted[i] = (wanted[i] + 1 + draw(WORKERS - 1)) % WORKERS;
		arrived += move_rig_command(WORKER_MOVE, &wire.near.qp[i], wanted[i]);
	}
	return arrived;
}

Test(move, thousands_of_times_under_traffic)
{
	const char *many = getenv("ORIEL_TEST_MOVES");
	const uint32_t goal = many ? (uint32_t)atoi(many) : MOVES;
	uint32_t wanted[PAIRS], operations = 0;

	move_rig_start(WORKERS, PAIRS, false);
	open_flows(PAIRS);
	for (uint32_t i = 0; i < PAIRS; i++)
		wanted[i] = i % WORKERS;
	for (uint32_t arrived = 0; arrived < goal; arrived += keep_moving(wanted))
		run_flows(PAIRS, true);
	while (run_flows(PAIRS, false))
		;
	settle();
	move_rig_halt();
	expect_clean();
	expect_shares();
	cr_assert_geq(moves() + PAIRS, goal);
	cr_assert_eq(moves(), end_counter(&wire.near, offsetof(struct transport_stats, moved_out)));
	for (uint32_t n = 0; n < 2 * PAIRS; n++) {
		collect(&flows[n]);
		operations += flows[n].completed;
		cr_assert_eq(flows[n].completed, flows[n].posted, "nothing comes twice");
	}
	for (unsigned int w = 0; w < WORKERS; w++) {
		const struct moves *m = &wire.net->worker[w].moves;

		cr_assert_eq(m->driven + m->known + m->full + m->held, 0);
	}
	printf("%llu moves, %u operations\n", (unsigned long long)moves(), operations);
	move_rig_stop();
}

/* --- revocations ------------------------------------------------------------------------ */

/* One that a worker gave back, else a fresh one. */
static uint32_t take_token(uint32_t taken[WORKERS])
{
	uint32_t token;

	for (unsigned int w = 0; w < WORKERS; w++) {
		struct shm_worker_area *place = &wire.near.session->worker[w];

		if (shm_load_acquire(&place->stock_cursor.tail) == taken[w])
			continue;
		token = place->stock[taken[w]++ & (SHM_STOCK_ENTRIES - 1)];
		shm_store_release(&place->stock_cursor.head, taken[w]);
		return token;
	}
	cr_assert_eq(token_reserve(wire.near.memory, RIG_SESSION, 1, &token), 1);
	return token;
}

static struct shm_cqe wait_for_cqe(struct rig_qp *qp)
{
	struct shm_cqe cqe = { 0 };

	for (int i = 0; i < 200000; i++) {
		if (take_cqe(qp, &cqe))
			return cqe;
		move_rig_turn();
		if (i > 1000)
			usleep(50);
	}
	cr_assert(false, "a completion never comes");
	return cqe;
}

static void bind_window(struct rig_qp *qp, uint32_t token)
{
	const struct shm_sqe sqe = { .opcode = SHM_WR_BIND,
				     .mr = wire.near.region,
				     .mw = wire.near.window[0],
				     .token = token,
				     .address = RIG_BASE,
				     .length = SLOT,
				     .flags = SHM_FLAG_ALLOW_REMOTE_READ };

	post_send(&wire.near, qp, sqe, NULL, 0);
	cr_assert_eq(wait_for_cqe(qp).status, 0);
}

/* A READ through the window, its end, and messages that wait behind it. */
static void post_behind_invalidate(struct rig_qp *qp, uint32_t token, uint32_t round)
{
	const struct shm_sge sink = sge_at(&wire.far, 0, SLOT);

	post_send(&wire.far, qp,
		  (struct shm_sqe){ .opcode = SHM_WR_READ, .token = token, .address = RIG_BASE },
		  &sink, 1);
	for (uint32_t i = 0; i < 4; i++) {
		const struct shm_sge sge = sge_at(&wire.far, SLOT, 1 + i + round % 64 * 4);

		post_send(&wire.far, qp,
			  (struct shm_sqe){ .opcode = i ? SHM_WR_SEND : SHM_WR_SEND_INVALIDATE,
					    .request_context = i,
					    .token = token },
			  &sge, 1);
	}
}

/* Frames that the transport keeps, and grace periods, on the move as well. */
Test(move, what_waits_behind_a_revocation_comes_first)
{
	uint32_t taken[WORKERS] = { 0 }, rounds = MOVES / 10;
	struct rig_qp *near, *far;

	move_rig_start(WORKERS, 1, false);
	near = &wire.near.qp[0];
	far = &wire.far.qp[0];
	for (uint32_t round = 0; round < rounds; round++) {
		const uint32_t token = take_token(taken);

		wire.lands_at[0] = draw(WORKERS);
		bind_window(near, token);
		for (uint32_t i = 0; i < 4; i++) {
			const struct shm_sge sge = sge_at(&wire.near, (1 << 20) + i * 512, 512);

			post_receive(&wire.near, near, round * 4 + i, &sge, 1);
		}
		post_behind_invalidate(far, token, round);
		for (uint32_t i = draw(4); i; i--)
			move_rig_turn();
		move_rig_command(WORKER_MOVE, near, draw(WORKERS));
		for (uint32_t i = 0; i < 4; i++) {
			const struct shm_cqe cqe = wait_for_cqe(near);

			cr_assert_eq(cqe.request_context, round * 4 + i);
			cr_assert_eq(cqe.status, 0);
			cr_assert_eq(cqe.bytes, 1 + i + round % 64 * 4);
			cr_assert_eq(cqe.type,
				     i ? COMPLETION_RECEIVE : COMPLETION_RECEIVE_AND_INVALIDATE);
		}
		for (uint32_t i = 0; i < 5; i++)
			cr_assert_eq(wait_for_cqe(far).status, 0);
	}
	settle();
	move_rig_halt();
	cr_assert_gt(moves(), 0);
	expect_clean();
	printf("%llu moves in %u rounds\n", (unsigned long long)moves(), rounds);
	move_rig_stop();
}

/* --- by itself, and in the end ------------------------------------------------------------ */

static bool all_have_followed(void)
{
	for (uint32_t i = 0; i < PAIRS; i++)
		if (qp_home(wire.near.shared, wire.near.qp[i].index) != wire.lands_at[i])
			return false;
	return true;
}

Test(move, a_queue_pair_follows_its_frames_and_stays)
{
	uint32_t turns = 0;

	move_rig_start(WORKERS, PAIRS, true);
	open_flows(PAIRS);
	for (uint32_t i = 0; i < PAIRS; i++)
		wire.lands_at[i] = (i + 1) % WORKERS;
	while (!all_have_followed())
		run_flows(PAIRS, true);
	while (turns++ < 3 * MOVES)
		run_flows(PAIRS, true);
	while (run_flows(PAIRS, false))
		;
	settle();
	move_rig_halt();
	cr_assert_eq(moves(), PAIRS, "each once");
	expect_clean();
	expect_shares();
	move_rig_stop();
}

static void turns_until(const uint32_t *count, uint32_t wanted)
{
	for (int i = 0; i < 100000 && *count < wanted; i++) {
		move_rig_turn();
		usleep(50);
	}
}

/* Commands find the queue pair wherever it is, or on its way. */
Test(move, it_is_flushed_and_let_go_while_it_moves)
{
	move_rig_start(WORKERS, PAIRS, false);
	open_flows(PAIRS);
	for (uint32_t round = 0; round < PAIRS; round++) {
		struct rig_qp *qp = &wire.near.qp[PAIRS - 1 - round];
		const uint32_t home = qp_home(wire.near.shared, qp->index);

		for (int i = 0; i < 20; i++)
			run_flows(PAIRS - round, true);
		wire.done = wire.flushed = 0;
		for (uint32_t i = 1; i < 20; i++)
			move_rig_command(WORKER_MOVE, qp, (home + i) % WORKERS);
		cr_assert(move_rig_command(WORKER_FLUSH, qp, 0));
		turns_until(&wire.flushed, 1);
		cr_assert_eq(wire.flushed, 1, "round %u", round);
		cr_assert(move_rig_command(WORKER_DETACH, qp, 0));
		turns_until(&wire.done, 2);
		cr_assert_eq(wire.done, 2, "round %u: answered once each", round);
		qp_destroy(wire.near.shared, qp->index);
		cq_destroy(wire.near.shared, qp->cq);
		free(qp->memory);
		free(qp->cq_memory);
		qp->index = 0;
	}
	move_rig_stop();
}
