/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester: acknowledgement, NAKs, timers, going back; against raw answers and loss. */
#include <criterion/criterion.h>
#include <string.h>

#include "asking.h"

TestSuite(requester, .init = asking_setup, .fini = asking_teardown);

/* --- frames --------------------------------------------------------------------------- */

Test(requester, frames_of_a_write)
{
	struct wire_view view;

	post(SHM_WR_WRITE, 1, 2500);
	view = expect_frame(OP_RC_WRITE_FIRST, S);
	cr_assert_not(view.ack_request);
	cr_assert_eq(be64_get(view_reth(&view)->va), 0x1000);
	cr_assert_eq(be32_get(view_reth(&view)->rkey), 77);
	cr_assert_eq(be32_get(view_reth(&view)->length), 2500);
	expect_frame(OP_RC_WRITE_MIDDLE, S + 1);
	view = expect_frame(OP_RC_WRITE_LAST, S + 2);
	cr_assert(view.ack_request, "the last packet asks");
	cr_assert_eq(view.payload_length, 452);
	cr_assert_not(view.solicited);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
	ack(S + 2);
	expect_cqe(raw.qp, 1, 0);
}

Test(requester, b28_silence_when_idle)
{
	settle();
	cr_assert_eq(next_deadline(), UINT64_MAX);
	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	cr_assert_neq(next_deadline(), UINT64_MAX);
	ack(S);
	cr_assert_eq(next_deadline(), UINT64_MAX);
	raw.now += 60000000000ull;
	settle();
	cr_assert_eq(frames_out(), 0);
}

Test(requester, one_ack_completes_all_before_it)
{
	for (uint64_t i = 0; i < 5; i++)
		post(SHM_WR_WRITE, i, 8);
	ack(S + 3);
	for (uint64_t i = 0; i < 4; i++)
		expect_cqe(raw.qp, i, 0);
	expect_no_cqe(raw.qp);
	ack(S + 4);
	expect_cqe(raw.qp, 4, 0);
}

Test(requester, ghosts_and_futures_are_ignored)
{
	post(SHM_WR_WRITE, 1, 8);
	ack(S - 1);
	ack(S + 1);
	ack(S + 0x800000);
	expect_no_cqe(raw.qp);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(ACK_GHOST)), 2);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(ACK_FUTURE)), 1);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	ack(S);
	ack(S + 1);
	expect_no_cqe(raw.qp);
}

Test(requester, credits_and_msn_are_not_looked_at)
{
	post(SHM_WR_SEND, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	answer(S, 0x00);
	expect_cqe(raw.qp, 1, 0);
	post(SHM_WR_SEND, 3, 8);
	cr_assert_eq(frames_out(), 3);
}

Test(requester, b33_window_of_unacknowledged_packets)
{
	post(SHM_WR_WRITE, 1, 2u << 20);
	cr_assert_eq(frames_out(), 256);
	ack(S + 99);
	cr_assert_eq(frames_out(), 100);
	ack(S + 255);
	cr_assert_eq(frames_out(), 156);
}

/* REQ-SEND-4: the short way of many small ones ends at the same place. */
Test(requester, b33_small_ones_behind_a_long_one_keep_to_the_window)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);
	struct wire_view view;
	uint32_t last = 0;

	post(SHM_WR_WRITE, 1, 250 * 1024);
	cr_assert_eq(frames_out(), 250);
	for (uint64_t i = 2; i < 22; i++)
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE, .request_context = i }, &sge,
			  1);
	settle();
	while (raw_receive(&raw, &view))
		last = view.psn;
	cr_assert_eq(last, S + 255);
	ack(S + 3);
	for (uint32_t i = 0; i < 4; i++)
		expect_frame(OP_RC_WRITE_ONLY, S + 256 + i);
	raw_expect_none(&raw);
}

Test(requester, some_packet_of_a_long_message_asks)
{
	struct wire_view view;
	uint32_t count = 0, gap = 0;

	post(SHM_WR_WRITE, 1, 200 * 1024);
	while (raw_receive(&raw, &view)) {
		gap = view.ack_request ? 0 : gap + 1;
		count += view.ack_request;
		cr_assert_lt(gap, 32);
	}
	cr_assert_geq(count, 6);
}

/* REQ-SEND-2: one for which there was no buffer has not asked. */
Test(requester, some_packet_asks_though_buffers_are_few)
{
	struct wire_view view;
	uint32_t gap = 0;

	for (uint32_t i = 0; i < 100; i++) {
		raw.end.room = i ? 1 : 0;
		if (i == 0)
			post(SHM_WR_WRITE, 1, 200 * 1024);
		settle();
		raw.end.room = 0;
		settle();
		while (raw_receive(&raw, &view)) {
			gap = view.ack_request ? 0 : gap + 1;
			cr_assert_lt(gap, 32);
			cr_assert(!view.ack_request || (view.psn - S) % 32 == 31, "PSN %#x",
				  view.psn);
		}
	}
}

/* --- timers and NAKs ------------------------------------------------------------------ */

Test(requester, timeout_comes_between_one_and_four_times_the_code)
{
	uint64_t before = raw.now;

	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	sleep_until_deadline();
	cr_assert_geq(raw.now - before, T14);
	cr_assert_leq(raw.now - before, 4 * T14);
	expect_frame(OP_RC_WRITE_ONLY, S);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
}

/* A peer that gets no processor for seconds is not lost: later tries take four times the code. */
Test(requester, later_tries_have_more_patience)
{
	uint64_t first;

	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	sleep_until_deadline();
	first = raw.now;
	cr_assert_eq(frames_out(), 1);
	sleep_until_deadline();
	cr_assert_gt(raw.now - first, 3 * T14);
	cr_assert_leq(raw.now - first, 4 * T14);
	cr_assert_eq(frames_out(), 1);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	first = raw.now;
	post(SHM_WR_WRITE, 2, 8);
	cr_assert_eq(frames_out(), 1);
	sleep_until_deadline();
	cr_assert_leq(raw.now - first, 2 * T14 + T14 / 2);
}

Test(requester, retry_count_7_is_seven)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_WRITE, 2, 8);
	for (int i = 0; i < 8; i++) {
		expect_frame(OP_RC_WRITE_ONLY, S);
		expect_frame(OP_RC_WRITE_ONLY, S + 1);
		raw_expect_none(&raw);
		expect_no_cqe(raw.qp);
		if (i < 7)
			sleep_until_deadline();
	}
	while (next_deadline() != UINT64_MAX) {
		raw.now = next_deadline() > raw.now ? next_deadline() : raw.now + 1;
		settle();
	}
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_IO_TIMEOUT).provider_error, VERDICT(RETRY_EXCEEDED));
	expect_cqe(raw.qp, 2, NT_CANCELLED);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->timeouts, 8);
}

Test(requester, progress_gives_new_retries)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_WRITE, 2, 8);
	for (int i = 0; i < 7; i++)
		sleep_until_deadline();
	ack(S);
	frames_out();
	for (int i = 0; i < 7; i++) {
		sleep_until_deadline();
		cr_assert_eq(frames_out(), 1);
	}
	ack(S + 1);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
}

Test(requester, timeout_code_0_is_no_timer)
{
	struct qp_connection connection = rig_connection();

	connection.timeout = 0;
	reopen(connection);
	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(next_deadline(), UINT64_MAX);
}

Test(requester, sequence_nak_goes_back_to_its_psn)
{
	for (uint64_t i = 0; i < 4; i++)
		post(SHM_WR_WRITE, i, 8);
	cr_assert_eq(frames_out(), 4);
	answer(S + 2, 0x60);
	expect_cqe(raw.qp, 0, 0);
	expect_cqe(raw.qp, 1, 0);
	expect_no_cqe(raw.qp);
	expect_frame(OP_RC_WRITE_ONLY, S + 2);
	expect_frame(OP_RC_WRITE_ONLY, S + 3);
	raw_expect_none(&raw);
	ack(S + 3);
	expect_cqe(raw.qp, 2, 0);
	expect_cqe(raw.qp, 3, 0);
}

Test(requester, goes_back_into_the_middle_of_a_message)
{
	post(SHM_WR_SEND, 1, 5000);
	cr_assert_eq(frames_out(), 5);
	answer(S + 3, 0x60);
	expect_frame(OP_RC_SEND_MIDDLE, S + 3);
	expect_frame(OP_RC_SEND_LAST, S + 4);
	raw_expect_none(&raw);
}

/* A late ACK overtakes what is being sent again. */
Test(requester, acknowledged_while_going_back)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_WRITE, 2, 3000);
	cr_assert_eq(frames_out(), 4);
	raw.end.room = 1;
	answer(S, 0x60);
	expect_frame(OP_RC_WRITE_ONLY, S);
	ack(S + 2);
	raw.end.room = 10;
	settle();
	expect_frame(OP_RC_WRITE_LAST, S + 3);
	raw_expect_none(&raw);
	ack(S + 3);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
	cr_assert_eq(next_deadline(), UINT64_MAX);
}

Test(requester, fatal_naks_and_their_status)
{
	static const struct {
		uint8_t syndrome;
		int32_t status;
		uint32_t verdict;
	} cases[] = {
		{ 0x61, NT_DATA_ERROR, VERDICT(NAK_INVALID_REQUEST) },
		{ 0x62, NT_ACCESS_VIOLATION, VERDICT(NAK_REMOTE_ACCESS) },
		{ 0x63, NT_DATA_ERROR, VERDICT(NAK_REMOTE_OPERATION) },
		{ 0x64, NT_DATA_ERROR, VERDICT(NAK_REMOTE_OPERATION) },
		{ 0x45, NT_DATA_ERROR, VERDICT(NAK_REMOTE_OPERATION) },
	};

	for (uint32_t i = 0; i < 5; i++) {
		const struct shm_sge sge = { 0 };

		reopen(rig_connection());
		post_receive(&raw.end, raw.qp, 50, &sge, 0);
		for (uint64_t k = 0; k < 4; k++)
			post(SHM_WR_WRITE, k, 8);
		frames_out();
		answer(S + 1, cases[i].syndrome);
		expect_cqe(raw.qp, 0, 0);
		cr_assert_eq(expect_cqe(raw.qp, 1, cases[i].status).provider_error,
			     cases[i].verdict);
		expect_cqe(raw.qp, 2, NT_CANCELLED);
		expect_cqe(raw.qp, 3, NT_CANCELLED);
		expect_cqe(raw.qp, 50, NT_CANCELLED);
		expect_no_cqe(raw.qp);
		cr_assert_eq(frames_out(), 0);
		cr_assert_eq(next_deadline(), UINT64_MAX);
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	}
}

Test(requester, b25_flushed_requests_send_nothing)
{
	raw.end.room = 3;
	for (uint64_t i = 0; i < 11; i++)
		post(SHM_WR_SEND, i, 8);
	cr_assert_eq(frames_out(), 3);
	raw.end.room = 100;
	answer(S, 0x61);
	cr_assert_eq(frames_out(), 0);
	expect_cqe(raw.qp, 0, NT_DATA_ERROR);
	for (uint64_t i = 1; i < 11; i++)
		expect_cqe(raw.qp, i, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	/* Posted to a dead queue pair. */
	post(SHM_WR_SEND, 99, 8);
	expect_cqe(raw.qp, 99, NT_CANCELLED);
	cr_assert_eq(frames_out(), 0);
}

Test(requester, b32_failed_silent_request_is_told)
{
	const struct shm_sge bad = { 0x10, 8, 0x4444 }, good = sge_at(&raw.end, 0, 8);

	for (uint64_t i = 0; i < 5; i++)
		post_receive(&raw.end, raw.qp, 50 + i, &good, 1);
	for (uint64_t i = 0; i < 4; i++)
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND,
					    .flags = SHM_FLAG_SILENT_SUCCESS,
					    .request_context = i },
			  i ? &good : &bad, 1);
	settle();
	expect_cqe(raw.qp, 0, NT_ACCESS_VIOLATION);
	for (uint64_t i = 1; i < 4; i++)
		expect_cqe(raw.qp, i, NT_CANCELLED);
	for (uint64_t i = 0; i < 5; i++)
		expect_cqe(raw.qp, 50 + i, NT_CANCELLED);
	cr_assert_eq(frames_out(), 0, "the local token is checked before anything is sent");
}

Test(requester, local_failure_waits_for_what_was_posted_before)
{
	const struct shm_sge bad = { 0x10, 8, 0x4444 };

	post(SHM_WR_WRITE, 1, 8);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 2 },
		  &bad, 1);
	settle();
	expect_no_cqe(raw.qp);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, NT_ACCESS_VIOLATION);
}

/* --- RNR ------------------------------------------------------------------------------ */

Test(requester, b26_rnr_wait_is_not_shorter_than_its_code)
{
	static const struct {
		uint8_t code;
		uint64_t wait;
	} cases[] = { { 12, 640000 }, { 22, 20480000 }, { 1, 10000 }, { 0, 655360000 } };

	post(SHM_WR_SEND, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	for (int i = 0; i < 4; i++) {
		uint64_t before = raw.now;

		cr_assert_eq(frames_out(), 2);
		answer(S, 0x20 | cases[i].code);
		raw_expect_none(&raw);
		/* What the peer says meanwhile changes nothing. */
		answer(S, 0x60);
		answer(S, 0x20 | 31);
		raw_expect_none(&raw);
		sleep_until_deadline();
		cr_assert_geq(raw.now - before, cases[i].wait);
		cr_assert_leq(raw.now - before, cases[i].wait + 20000);
	}
	expect_frame(OP_RC_SEND_ONLY, S);
	expect_frame(OP_RC_SEND_ONLY, S + 1);
	ack(S + 1);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
}

Test(requester, nothing_new_is_sent_behind_an_rnr)
{
	post(SHM_WR_SEND, 1, 8);
	frames_out();
	answer(S, 0x2c);
	post(SHM_WR_WRITE, 2, 8);
	cr_assert_eq(frames_out(), 0);
	sleep_until_deadline();
	expect_frame(OP_RC_SEND_ONLY, S);
	expect_frame(OP_RC_WRITE_ONLY, S + 1);
}

Test(requester, b27_rnr_retry_7_is_endless)
{
	post(SHM_WR_SEND, 1, 8);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(frames_out(), 1);
		answer(S, 0x2c);
		sleep_until_deadline();
	}
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->timeouts, 0);
}

/* Timers run out while it cannot send again what it went back to: no try has failed. */
static void stand_without_buffers(void)
{
	raw.end.room = 0;
	for (int i = 0; i < 10; i++) {
		raw.now += 1000000000;
		settle();
	}
	cr_assert_eq(frames_out(), 0);
	raw.end.room = 100;
	settle();
}

Test(requester, b27_an_rnr_wait_without_buffers_costs_no_retry)
{
	post(SHM_WR_SEND, 1, 8);
	for (int i = 0; i < 20; i++) {
		cr_assert_eq(frames_out(), 1);
		answer(S, 0x2c);
		stand_without_buffers();
	}
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->timeouts, 0);
}

Test(requester, what_a_nak_asks_for_again_waits_for_buffers)
{
	post(SHM_WR_SEND, 1, 8);
	cr_assert_eq(frames_out(), 1);
	answer(S, 0x60);
	frames_out();
	stand_without_buffers();
	cr_assert_eq(frames_out(), 1);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
}

Test(requester, rnr_retry_2_is_two)
{
	struct qp_connection connection = rig_connection();

	connection.rnr_retry = 2;
	reopen(connection);
	post(SHM_WR_SEND, 1, 8);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(frames_out(), 1);
		answer(S, 0x2c);
		sleep_until_deadline();
	}
	answer(S, 0x2c);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_IO_TIMEOUT).provider_error,
		     VERDICT(RNR_RETRY_EXCEEDED));
}

Test(requester, rnr_acknowledges_what_is_before)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	answer(S + 1, 0x2c);
	expect_cqe(raw.qp, 1, 0);
	expect_no_cqe(raw.qp);
}

/* --- loss ----------------------------------------------------------------------------- */

static uint32_t random_state;

static uint32_t draw(void)
{
	random_state = random_state * 1664525 + 1013904223;
	return random_state >> 8;
}

static bool lose_some(struct rig *rig, bool from_a, uint32_t n, const struct wire_view *view)
{
	return draw() % 100 < 5;
}

static void transfer_with_loss(uint32_t seed, uint32_t first_psn)
{
	static struct rig rig;
	struct qp_connection ca = rig_connection(), cb = rig_connection();
	struct rig_qp *qa, *qb;
	uint64_t *counter;
	uint32_t adds = 0, sends = 0;

	rig_create(&rig);
	random_state = seed;
	ca.send_psn = first_psn;
	cb.send_psn = first_psn + 5;
	qa = end_open_qp(&rig.a, 0, 64);
	qb = end_open_qp(&rig.b, 0, 64);
	rig_join(&rig, qa, qb, ca, cb);
	rig.lose = lose_some;
	counter = (uint64_t *)(void *)(rig.b.bytes + (3u << 20));
	fill(rig.a.bytes, 1 << 20, seed);
	fill(rig.b.bytes, 1 << 20, seed + 1);
	for (uint32_t round = 0; round < 12; round++) {
		const struct shm_sge out = sge_at(&rig.a, round * 60000, 50000);
		const struct shm_sge in = sge_at(&rig.a, (2u << 20) + round * 60000, 50000);
		const struct shm_sge sink = sge_at(&rig.b, (2u << 20) + round * 60000, 50000);
		const struct shm_sge old = sge_at(&rig.a, 3u << 20, 8);
		struct shm_sqe sqe = { .address = RIG_BASE + (1 << 20) + round * 60000,
				       .token = rig.b.remote_token };

		sqe.opcode = SHM_WR_WRITE;
		post_send(&rig.a, qa, sqe, &out, 1);
		sqe.opcode = SHM_WR_READ;
		sqe.address = RIG_BASE + round * 60000;
		post_send(&rig.a, qa, sqe, &in, 1);
		sqe.opcode = SHM_WR_FETCH_ADD;
		sqe.address = RIG_BASE + (3u << 20);
		sqe.swap = 1;
		post_send(&rig.a, qa, sqe, &old, 1);
		adds++;
		post_receive(&rig.b, qb, sends++, &sink, 1);
		sqe.opcode = SHM_WR_SEND;
		post_send(&rig.a, qa, sqe, &out, 1);
		rig_run(&rig, rig.now + 30000000000ull);
	}
	cr_assert_gt(rig.lost, 50);
	for (uint32_t i = 0; i < 4 * 12; i++)
		expect_cqe(qa, 0, 0);
	for (uint32_t i = 0; i < sends; i++)
		cr_assert_eq(expect_cqe(qb, i, 0).bytes, 50000);
	expect_no_cqe(qa);
	expect_no_cqe(qb);
	cr_assert_eq(*counter, adds, "each atomic once");
	for (uint32_t round = 0; round < 12; round++) {
		const uint32_t at = round * 60000;

		cr_assert_arr_eq(rig.b.bytes + (1 << 20) + at, rig.a.bytes + at, 50000);
		cr_assert_arr_eq(rig.a.bytes + (2 << 20) + at, rig.b.bytes + at, 50000);
		cr_assert_arr_eq(rig.b.bytes + (2 << 20) + at, rig.a.bytes + at, 50000);
	}
	rig_destroy(&rig);
}

Test(loss, every_operation_arrives_once)
{
	for (uint32_t seed = 1; seed < 20; seed++)
		transfer_with_loss(seed, 0x100);
}

Test(loss, b33_across_the_end_of_the_psn_space)
{
	for (uint32_t seed = 50; seed < 60; seed++)
		transfer_with_loss(seed, 0xffff00 + seed);
}
