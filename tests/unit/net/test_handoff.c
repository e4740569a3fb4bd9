/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A move step by step: three workers that this thread runs by hand, so that each order of their
 * turns can be had. Queue pair 3 leaves worker O for worker N; W is the third.
 */
#include "net/net_private.h"
#include "wire_pair.h"

enum { O, W, N };
#define QP 3u

static uint8_t frame[2048];

static struct worker *worker(unsigned int index)
{
	return &pair.net->worker[index];
}

static void setup(void)
{
	pair_start(3, 0);
	net_stop_workers(pair.net);
	/* Announcements of the link wait for room that only a far end which receives makes. */
	for (unsigned int w = O; w <= N; w++)
		transmit_drop(worker(w));
	memset(fake.worker, 0, sizeof(fake.worker));
	fake.movable = 1;
}

static void teardown(void)
{
	fake_set(&fake.keep, 0);
	for (unsigned int w = O; w <= N; w++)
		transport_poll(worker(w)->transport, 1);
	cr_assert_eq(rte_mempool_in_use_count(pair.net->port[0].rx_pool), 0, "buffers are lost");
	pair_stop();
}

TestSuite(handoff, .init = setup, .fini = teardown);

static struct rte_mbuf *make(uint32_t qpn, uint32_t psn)
{
	const uint32_t length = frame_roce(frame, qpn, psn, 0xffff);
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pair.net->port[0].rx_pool);

	cr_assert_not_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
	*buffer_of(mbuf) = (struct net_buffer){ 0 };
	return mbuf;
}

/* A frame of the queue pair lands at a worker, as classify.c has it. */
static void lands(unsigned int at, uint32_t psn)
{
	struct rte_mbuf *mbuf = make(FAKE_QPN + QP, psn);

	if (worker(at)->moves.known && move_frame(worker(at), at, QP, mbuf))
		return;
	if (qp_home(NULL, QP) == at)
		handoff_deliver(worker(at), at, mbuf, 1);
	else
		handoff_send(worker(at), qp_home(NULL, QP), mbuf);
}

static void turn(unsigned int index)
{
	handoff_receive(worker(index), 1);
	move_run(worker(index));
}

static void expect_frames(unsigned int at, uint32_t first, uint32_t count)
{
	cr_assert_eq(fake.worker[at].frames, count, "worker %u got %u frames", at,
		     fake.worker[at].frames);
	for (uint32_t i = 0; i < count; i++)
		cr_assert_eq(fake.worker[at].frame[i].psn, first + i, "frame %u of worker %u: %u",
			     i, at, fake.worker[at].frame[i].psn);
}

static void expect_nothing_left(void)
{
	for (unsigned int w = O; w <= N; w++) {
		const struct moves *m = &worker(w)->moves;

		turn(w);
		cr_assert_eq(m->driven + m->known + m->full + m->leaving + m->held, 0, "worker %u",
			     w);
	}
}

/* Frames of one flow, that land at W from the first to the last moment of the move. */
Test(handoff, frames_keep_their_order_at_every_step)
{
	uint32_t psn = 0;

	lands(W, psn++);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	lands(W, psn++);
	turn(O);
	turn(N); /* ASK, READY */
	lands(W, psn++);
	turn(O); /* READY, TELL */
	lands(W, psn++);
	turn(W); /* TELL, MARKER */
	expect_frames(O, 0, 3);
	for (int i = 0; i < 3; i++)
		lands(W, psn++);
	turn(N);
	expect_frames(N, 0, 0);
	cr_assert_eq(worker(N)->moves.held, 3);
	turn(O); /* MARKER: it leaves */
	expect_frames(O, 0, 4);
	cr_assert_eq(qp_home(NULL, QP), N);
	lands(W, psn++);
	turn(W);
	lands(W, psn++);
	turn(N); /* YOURS */
	lands(W, psn++);
	turn(N);
	cr_assert_eq(fake.worker[N].taken, 1);
	expect_frames(N, 4, 6);
	expect_nothing_left();
}

/* What waits in the transport of O is older than what N holds. */
Test(handoff, frames_that_the_transport_kept_are_run_first)
{
	fake_set(&fake.keep, 1);
	lands(W, 0);
	lands(W, 1);
	turn(O);
	expect_frames(O, 0, 2);
	fake_set(&fake.keep, 0);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	turn(O);
	turn(W);
	lands(W, 2);
	lands(W, 3);
	turn(N);
	turn(O);
	turn(N);
	expect_frames(N, 0, 4);
	expect_nothing_left();
}

/* Frames that land at O or N keep their order, too. */
Test(handoff, frames_that_land_at_either_home)
{
	lands(O, 0);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	lands(O, 1);
	turn(O);
	turn(W);
	/* The device of O takes nothing: the release is done, "yours" waits. */
	worker(O)->tx[0].count = 1;
	turn(O);
	cr_assert_eq(qp_home(NULL, QP), N);
	lands(O, 2);
	turn(N);
	cr_assert_eq(fake.worker[N].taken, 0, "what it sent has not left yet");
	worker(O)->tx[0].count = 0;
	worker(O)->tx[0].sent = 1;
	turn(O);
	lands(O, 3);
	turn(N);
	expect_frames(O, 0, 2);
	expect_frames(N, 2, 2);
	expect_nothing_left();
}

static void fill_ring(unsigned int from, unsigned int to)
{
	while (!rte_ring_full(worker(to)->handed[from]))
		cr_assert_eq(rte_ring_sp_enqueue(worker(to)->handed[from], (void *)0xbull), 0);
}

/* Words that nobody minds: 0xb is WORD_FLIGHTS without a record. */
Test(handoff, a_full_ring_delays_words_and_drops_frames)
{
	fill_ring(O, N);
	fill_ring(W, O);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	cr_assert_eq(worker(O)->moves.full, 1u << N);
	lands(W, 0);
	cr_assert_eq(verdict_count(VERDICT(NO_ROOM_HANDOFF)), 1);
	for (int i = 0; i < 200; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(fake.worker[N].taken, 1);
	lands(W, 1);
	turn(N);
	expect_frames(N, 1, 1);
	expect_nothing_left();
}

static void take_one(unsigned int from, unsigned int to)
{
	void *word;

	cr_assert_eq(rte_ring_sc_dequeue(worker(to)->handed[from], &word), 0);
}

/* Words that wait for a full ring find room one at a time. */
Test(handoff, words_that_wait_are_told_once_each)
{
	fill_ring(O, N);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	cr_assert_eq(move_start(worker(O), QP + 3, N), 0);
	take_one(O, N);
	cr_assert_eq(move_start(worker(O), QP + 6, N), 0);
	cr_assert_eq(worker(O)->moves.unsent[N].count, 3, "no word overtakes another");
	for (uint32_t i = 0; i < 3; i++) {
		move_run(worker(O));
		cr_assert_eq(worker(O)->moves.unsent[N].count, 2 - i);
		take_one(O, N);
	}
	for (int i = 0; i < 200; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(fake.worker[N].taken, 3);
	expect_nothing_left();
}

Test(handoff, records_of_work_requests_wait_for_room)
{
	fill_ring(O, N);
	fake_set(&fake.abroad, 1u << N);
	cr_assert_neq(move_run(worker(O)), 0, "something is under way");
	cr_assert_eq(fake.abroad, 1u << N);
	take_one(O, N);
	move_run(worker(O));
	cr_assert_eq(fake.abroad, 0);
	for (int i = 0; i < 20; i++)
		turn(N);
	cr_assert_eq(fake.returned, 77);
	expect_nothing_left();
}

/* What the transport of O kept finds room in the ring as a whole, or waits where it is. */
Test(handoff, a_queue_pair_leaves_with_all_that_waits_for_it)
{
	const uint32_t kept = 100, others = 450;

	fake_set(&fake.keep, 1);
	for (uint32_t i = 0; i < kept; i++)
		lands(O, i);
	fake_set(&fake.keep, 0);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	turn(O);
	turn(W);
	for (uint32_t i = 0; i < others; i++)
		handoff_send(worker(O), N, make(FAKE_QPN + 5, i));
	turn(O);
	cr_assert_eq(qp_home(NULL, QP), O, "there is no room");
	handoff_send(worker(O), N, make(FAKE_QPN + 5, others));
	cr_assert_eq(verdict_count(VERDICT(NO_ROOM_HANDOFF)), 1,
		     "what becomes free is kept for it");
	for (int i = 0; i < 50; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(qp_home(NULL, QP), N);
	cr_assert_eq(fake.worker[N].frames, others + kept);
	for (uint32_t i = 0; i < kept; i++)
		cr_assert_eq(fake.worker[N].frame[others + i].psn, i);
	expect_nothing_left();
}

/* As many frames ahead of all others, and a while at this home. */
Test(handoff, it_is_time_to_follow_behind_so_many_frames)
{
	const uint64_t second = 1000000000ull;
	struct landing landing[FAKE_QPS] = { [QP] = { .taken_at = 5 * second } };

	pair.net->landing = landing;
	for (unsigned int round = 0; round < 3; round++) {
		const uint64_t now = 6 * second - (round < 2);

		for (unsigned int i = 1; i <= 1024; i++)
			cr_assert_eq(move_landed(worker(O), QP, N, now), i == 1024 && round == 2);
	}
	/* Each frame that lands at home, or at a third worker, is one less. */
	for (unsigned int i = 0; i < 2000; i++) {
		cr_assert_not(move_landed(worker(O), QP, N, 7 * second));
		cr_assert_not(move_landed(worker(O), QP, i % 2 ? O : W, 7 * second));
	}
	pair.net->landing = NULL;
}

/* So it is not sent on by what landed before it came. */
Test(handoff, who_has_moved_counts_anew)
{
	struct landing landing[FAKE_QPS] = { [QP] = { .score = 1000, .worker = W } };

	pair.net->landing = landing;
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	for (int i = 0; i < 4; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(fake.worker[N].taken, 1);
	cr_assert_eq(landing[QP].score, 0);
	cr_assert_eq(landing[QP].taken_at, 1);
	pair.net->landing = NULL;
}

Test(handoff, what_is_held_is_bounded)
{
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	for (uint32_t i = 0; i < MOVES_HELD + 3; i++)
		lands(N, i);
	cr_assert_eq(verdict_count(VERDICT(NO_ROOM_HANDOFF)), 3);
	for (int i = 0; i < 3; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	expect_frames(N, 0, MOVES_HELD);
	expect_nothing_left();
}

/* Back and on before W has looked at the record once. */
Test(handoff, moves_that_follow_at_once)
{
	unsigned int home = O;
	uint32_t psn = 0;

	for (unsigned int round = 0; round < 30; round++) {
		const unsigned int to = (home + 1 + round % 2) % 3;

		cr_assert_eq(move_start(worker(home), QP, to), 0);
		for (unsigned int step = 0; step < 8; step++) {
			if (step == round % 8)
				lands(W, psn++);
			handoff_receive(worker((step + round) % 3), 1);
			move_run(worker(home));
		}
		for (unsigned int i = 0; i < 4; i++)
			for (unsigned int w = O; w <= N; w++)
				turn(w);
		cr_assert_eq(qp_home(NULL, QP), to, "round %u", round);
		home = to;
	}
	cr_assert_eq(fake.worker[O].frames + fake.worker[W].frames + fake.worker[N].frames, psn);
	cr_assert_eq(verdict_count(VERDICT(NO_ROOM_HANDOFF)), 0);
	expect_nothing_left();
}

/* It was on its way between workers when its queue pair ended. */
Test(handoff, a_frame_of_nobody_is_not_held)
{
	const uint32_t other = 5;

	cr_assert_eq(qp_home(NULL, other), N);
	cr_assert_eq(move_start(worker(N), other, W), 0);
	turn(W);
	turn(N);
	turn(O); /* TELL */
	cr_assert_eq(worker(O)->moves.known, 1);
	handoff_send(worker(W), O, make(FAKE_QPN + FAKE_QPS, 0));
	turn(O);
	cr_assert_eq(worker(O)->moves.held, 0);
	for (int i = 0; i < 4; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	expect_nothing_left();
}

/* W gets no processor while the queue pair moves, ends, and another one takes its index. */
Test(handoff, who_comes_to_the_place_of_one_that_moved_has_his_own_frames)
{
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	turn(O);
	handoff_receive(worker(W), 1); /* TELL */
	turn(O);
	turn(N);
	cr_assert_eq(fake.worker[N].taken, 1);
	fake.home[QP] = W + 1;
	fake.again[QP] = 1;
	lands(W, 7);
	turn(N);
	expect_frames(N, 0, 0);
	expect_frames(W, 7, 1);
	expect_nothing_left();
}

Test(handoff, a_new_queue_pair_follows_frames_of_its_own_only)
{
	const struct worker_command command = { .type = WORKER_ATTACH, .object = QP };
	struct landing landing[FAKE_QPS] = { [QP] = { .score = 1000, .worker = N } };

	cr_assert_null(pair.net->landing);
	pair.net->landing = landing;
	cr_assert_eq(net_command(pair.net, O, &command), 0);
	commands_run(worker(O), 1);
	cr_assert_eq(landing[QP].score, 0);
	pair.net->landing = NULL;
}

/* W has not looked at the record since: what it was told last holds. */
Test(handoff, the_last_word_about_a_queue_pair_holds)
{
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	turn(O);
	handoff_receive(worker(W), 1); /* TELL of O */
	turn(O);
	turn(N);
	cr_assert_eq(fake.worker[N].taken, 1);
	cr_assert_eq(move_start(worker(N), QP, O), 0);
	turn(O);
	turn(N);
	handoff_receive(worker(W), 1); /* TELL of N */
	cr_assert_eq(worker(W)->moves.known, 1);
	lands(W, 0);
	handoff_receive(worker(O), 1);
	cr_assert_eq(worker(O)->moves.held, 1);
	for (int i = 0; i < 4; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	expect_frames(O, 0, 1);
	expect_nothing_left();
}

/* The record says N before N has got it. */
Test(handoff, commands_wait_until_it_has_come)
{
	const struct worker_command flush = { .type = WORKER_FLUSH,
					      .object = QP,
					      .number = FAKE_QPN + QP };

	cr_assert_eq(move_start(worker(O), QP, N), 0);
	cr_assert(worker(O)->to_wake & 1u << N, "who sleeps is woken for a word");
	turn(N);
	turn(O);
	turn(W);
	turn(O);
	cr_assert_eq(qp_home(NULL, QP), N);
	cr_assert_eq(net_command(pair.net, N, &flush), 0);
	commands_run(worker(N), 1);
	cr_assert_eq(fake.worker[N].flushed, 0);
	turn(N);
	commands_run(worker(N), 1);
	cr_assert_eq(fake.worker[N].flushed, 1);
	turn(W);
	expect_nothing_left();
}

/* It would be let go of by a worker that does not have it any more. */
Test(handoff, who_waits_to_be_let_go_of_stays)
{
	const struct worker_command detach = { .type = WORKER_DETACH, .object = QP };

	fake_set(&fake.may_detach, 0);
	cr_assert_eq(net_command(pair.net, O, &detach), 0);
	commands_run(worker(O), 1);
	cr_assert_eq(move_start(worker(O), QP, N), -EBUSY);
	fake_set(&fake.may_detach, 1);
	commands_run(worker(O), 1);
	cr_assert_eq(fake.worker[O].detached, 1);
}

/* Its index was another's by the time that the command came: that one stays. */
Test(handoff, a_command_for_one_that_is_gone_hits_nobody)
{
	const struct worker_command flush = { .type = WORKER_FLUSH,
					      .object = QP,
					      .number = FAKE_QPN + QP };

	fake.again[QP] = 1;
	cr_assert_eq(net_command(pair.net, O, &flush), 0);
	commands_run(worker(O), 1);
	cr_assert_eq(fake.worker[O].flushed, 0);
	fake.again[QP] = 0;
	cr_assert_eq(net_command(pair.net, O, &flush), 0);
	commands_run(worker(O), 1);
	cr_assert_eq(fake.worker[O].flushed, 1);
}

Test(handoff, more_that_are_to_be_let_go_of_than_can_wait)
{
	const uint32_t count = DETACH_WAITING + 40;

	fake_set(&fake.may_detach, 0);
	for (uint32_t i = 1; i <= count; i++) {
		const struct worker_command detach = { .type = WORKER_DETACH, .object = 3 * i };

		cr_assert_eq(net_command(pair.net, O, &detach), 0);
	}
	for (uint32_t i = 0; i < count; i++)
		commands_run(worker(O), 1);
	cr_assert_eq(worker(O)->detaches, DETACH_WAITING);
	fake_set(&fake.may_detach, 1);
	for (uint32_t i = 0; i < count; i++)
		commands_run(worker(O), 1);
	cr_assert_eq(fake.worker[O].detached, count);
}

/* A worker that stops in the middle keeps no buffers. */
Test(handoff, what_is_held_is_freed_at_the_end)
{
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	turn(N);
	lands(N, 0);
	turn(O);
	turn(W);
	lands(W, 1);
	turn(N);
	cr_assert_eq(worker(N)->moves.held, 2);
	move_destroy(worker(N));
	cr_assert_eq(worker(N)->moves.held, 0);
	cr_assert_eq(rte_mempool_in_use_count(pair.net->port[0].rx_pool), 0);
}

/* Who was about to sleep looks once more; who sleeps is woken. */
Test(handoff, what_is_handed_over_is_no_time_to_sleep)
{
	struct rte_mbuf *mbuf = make(FAKE_QPN + QP, 0);

	cr_assert_not(handoff_waiting(worker(O)));
	worker(W)->to_wake = 0;
	lands(W, 0);
	cr_assert_eq(worker(W)->to_wake, 1u << O);
	cr_assert(handoff_waiting(worker(O)));
	turn(O);
	cr_assert_not(handoff_waiting(worker(O)));
	cr_assert_eq(rte_ring_sp_enqueue(worker(O)->to_send, mbuf), 0);
	cr_assert(handoff_waiting(worker(O)), "control wants it sent");
	cr_assert_eq(rte_ring_sc_dequeue(worker(O)->to_send, (void **)&mbuf), 0);
	rte_pktmbuf_free(mbuf);
}

Test(handoff, one_at_a_time_and_only_so_many)
{
	cr_assert_eq(move_start(worker(O), QP, O), -EINVAL);
	cr_assert_eq(move_start(worker(O), QP, 3), -EINVAL);
	cr_assert_eq(move_start(worker(O), QP, N), 0);
	cr_assert_eq(move_start(worker(O), QP, W), -EBUSY);
	for (uint32_t i = 1; i < MOVES_OUT; i++)
		cr_assert_eq(move_start(worker(O), QP + 3 * i, N), 0);
	cr_assert_eq(move_start(worker(O), QP + 3 * MOVES_OUT, N), -EBUSY);
	for (int i = 0; i < 4; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(fake.worker[N].taken, MOVES_OUT);
	expect_nothing_left();
	fake.movable = 0;
	cr_assert_eq(move_start(worker(N), QP, O), -ENOTSUP);
}

/* The device says by its table that frames of this peer go to the queue of N. */
Test(handoff, a_queue_pair_starts_where_its_frames_will_land)
{
	struct worker_command command = { .type = WORKER_CONNECT, .object = QP };

	command.connection.path_mtu = 1024;
	memcpy(command.connection.path.local_gid, our_v4, 16);
	memcpy(command.connection.path.remote_gid, peer_v4, 16);
	pair.net->port[0].steering.entries = 1;
	pair.net->port[0].steering.queue[0] = N;
	cr_assert_eq(net_command(pair.net, O, &command), 0);
	commands_run(worker(O), 1);
	cr_assert_eq(worker(O)->moves.driven, 0, "not with migrate = no");
	pair.net->config.migrate = true;
	pair.net->landing = calloc(FAKE_QPS, sizeof(*pair.net->landing));
	cr_assert_eq(net_command(pair.net, O, &command), 0);
	commands_run(worker(O), 1);
	for (int i = 0; i < 3; i++)
		for (unsigned int w = O; w <= N; w++)
			turn(w);
	cr_assert_eq(qp_home(NULL, QP), N);
	expect_nothing_left();
}
