/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester: acknowledgement, NAKs, timers, going back; against raw answers and loss. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define S   RAW_SEND_PSN
#define T14 (4096ull << 14)

static struct raw raw;

static void setup(void)
{
	raw_create(&raw, rig_connection());
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(requester, .init = setup, .fini = teardown);

static void reopen(struct qp_connection connection)
{
	raw_destroy(&raw);
	raw_create(&raw, connection);
}

static void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

static void post(uint8_t opcode, uint64_t context, uint32_t length)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, length);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = opcode,
				    .request_context = context,
				    .address = 0x1000,
				    .token = 77 },
		  &sge, 1);
	settle();
}

static void answer(uint32_t psn, uint8_t syndrome)
{
	RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = psn, .syndrome = syndrome);
}

static void ack(uint32_t psn)
{
	answer(psn, 0x1f);
}

static void respond(uint8_t opcode, uint32_t psn, const uint8_t *bytes, uint32_t length)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .syndrome = 0x1f, .payload = bytes,
		 .payload_length = length);
}

static struct wire_view expect_frame(uint8_t opcode, uint32_t psn)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no frame %#x", psn);
	cr_assert_eq(view.psn, psn & PSN_MASK, "PSN %#x, not %#x", view.psn, psn);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	return view;
}

static uint32_t frames_out(void)
{
	struct wire_view view;
	uint32_t count = 0;

	while (raw_receive(&raw, &view))
		count++;
	return count;
}

static uint64_t next_deadline(void)
{
	return transport_next_deadline(raw.end.worker[0], raw.now);
}

static void sleep_until_deadline(void)
{
	cr_assert_neq(next_deadline(), UINT64_MAX);
	while (next_deadline() != UINT64_MAX) {
		raw.now = next_deadline() > raw.now ? next_deadline() : raw.now + 1;
		settle();
		if (raw.end.out.head != raw.end.out.tail)
			return;
	}
}

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

/* --- READ ----------------------------------------------------------------------------- */

Test(requester, read_and_its_responses)
{
	uint8_t bytes[2500];
	struct wire_view view;

	fill(bytes, 2500, 3);
	post(SHM_WR_READ, 1, 2500);
	view = expect_frame(OP_RC_READ_REQUEST, S);
	cr_assert_eq(be32_get(view_reth(&view)->length), 2500);
	post(SHM_WR_WRITE, 2, 8);
	expect_frame(OP_RC_WRITE_ONLY, S + 3);
	respond(OP_RC_READ_RESPONSE_FIRST, S, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 1, bytes + 1024, 1024);
	/* Again: nothing is placed twice, nothing counted. */
	memset(raw.end.bytes + 1024, 0, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 1, bytes + 1024, 1024);
	cr_assert_eq(raw.end.bytes[1030], 0);
	memcpy(raw.end.bytes + 1024, bytes + 1024, 1024);
	expect_no_cqe(raw.qp);
	respond(OP_RC_READ_RESPONSE_LAST, S + 2, bytes + 2048, 452);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_arr_eq(raw.end.bytes, bytes, 2500);
	ack(S + 3);
	expect_cqe(raw.qp, 2, 0);
}

Test(requester, read_resumes_at_the_first_missing_response)
{
	uint8_t bytes[4096];
	struct wire_view view;

	fill(bytes, 4096, 3);
	post(SHM_WR_READ, 1, 4096);
	frames_out();
	respond(OP_RC_READ_RESPONSE_FIRST, S, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 2, bytes + 2048, 1024);
	view = expect_frame(OP_RC_READ_REQUEST, S + 1);
	cr_assert_eq(be64_get(view_reth(&view)->va), 0x1000 + 1024);
	cr_assert_eq(be32_get(view_reth(&view)->length), 3072);
	/* Once per gap. */
	respond(OP_RC_READ_RESPONSE_LAST, S + 3, bytes + 3072, 1024);
	raw_expect_none(&raw);
	/* FIRST, as NICs answer a new request; rxe would go on with MIDDLE. */
	respond(OP_RC_READ_RESPONSE_FIRST, S + 1, bytes + 1024, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 2, bytes + 2048, 1024);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 3, bytes + 3072, 1024);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_arr_eq(raw.end.bytes, bytes, 4096);
}

/* All that was asked for behind a gap has to come again: less is asked for at once. */
Test(requester, after_a_gap_fewer_reads_are_asked_for)
{
	const uint32_t size = 20 * 1024;

	for (uint64_t i = 0; i < 4; i++)
		post(SHM_WR_READ, i, size);
	cr_assert_eq(frames_out(), 4);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 2, NULL, 1024);
	/* 79 were out: half of them may be. */
	expect_frame(OP_RC_READ_REQUEST, S + 1);
	expect_frame(OP_RC_READ_REQUEST, S + 20);
	raw_expect_none(&raw);
	for (uint32_t i = 1; i < 19; i++)
		respond(OP_RC_READ_RESPONSE_MIDDLE, S + i, NULL, 1024);
	respond(OP_RC_READ_RESPONSE_LAST, S + 19, NULL, 1024);
	expect_cqe(raw.qp, 0, 0);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_FIRST, S + 20, NULL, 1024);
	expect_frame(OP_RC_READ_REQUEST, S + 40);
	raw_expect_none(&raw);
	/* The oldest is asked for however long it is, and nothing waits for ever. */
	sleep_until_deadline();
	expect_frame(OP_RC_READ_REQUEST, S + 21);
	raw_expect_none(&raw);
}

Test(requester, ack_behind_a_read_is_an_implied_nak)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_READ, 2, 3000);
	post(SHM_WR_WRITE, 3, 8);
	cr_assert_eq(frames_out(), 3);
	ack(S + 4);
	expect_cqe(raw.qp, 1, 0);
	expect_no_cqe(raw.qp);
	expect_frame(OP_RC_READ_REQUEST, S + 1);
	expect_frame(OP_RC_WRITE_ONLY, S + 4);
	/* A plain ACK within the READ answers nothing. */
	ack(S + 2);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
}

Test(requester, response_acknowledges_what_is_before)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_READ, 2, 8);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 1, NULL, 8);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
}

Test(requester, response_of_the_wrong_length)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
	} cases[] = {
		{ OP_RC_READ_RESPONSE_ONLY, 1024 },
		{ OP_RC_READ_RESPONSE_FIRST, 1000 },
		{ OP_RC_READ_RESPONSE_LAST, 300 },
		{ OP_RC_READ_RESPONSE_MIDDLE, 1028 },
	};

	for (int i = 0; i < 4; i++) {
		reopen(rig_connection());
		post(SHM_WR_READ, 1, 1500);
		frames_out();
		respond(cases[i].opcode, S, NULL, cases[i].length);
		cr_assert_eq(expect_cqe(raw.qp, 1, NT_DATA_ERROR).provider_error,
			     VERDICT(RESPONSE_LENGTH));
		cr_assert_eq(frames_out(), 0);
	}
}

Test(requester, responses_that_nobody_asked_for)
{
	post(SHM_WR_WRITE, 1, 8);
	respond(OP_RC_READ_RESPONSE_ONLY, S, NULL, 8);
	RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = S, .syndrome = 0x1f);
	expect_no_cqe(raw.qp);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(RESPONSE_UNEXPECTED)), 2);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	post(SHM_WR_READ, 2, 8);
	RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = S + 1, .syndrome = 0x1f);
	/* B10: a refusal in a response opcode. */
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_ONLY, .psn = S + 1, .syndrome = 0x62,
		 .payload_length = 8);
	expect_no_cqe(raw.qp);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 1, NULL, 8);
	expect_cqe(raw.qp, 2, 0);
}

Test(requester, nak_in_place_of_a_read_response)
{
	post(SHM_WR_READ, 1, 3000);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	answer(S + 1, 0x62);
	expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION);
}

Test(requester, no_more_reads_than_agreed)
{
	for (uint64_t i = 0; i < 6; i++)
		post(SHM_WR_READ, i, 8);
	cr_assert_eq(frames_out(), 4);
	respond(OP_RC_READ_RESPONSE_ONLY, S, NULL, 8);
	expect_frame(OP_RC_READ_REQUEST, S + 4);
	raw_expect_none(&raw);
}

Test(requester, read_without_any_agreed_fails)
{
	struct qp_connection connection = rig_connection();

	connection.max_reads_out = 0;
	reopen(connection);
	post(SHM_WR_READ, 1, 8);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_INVALID_DEVICE_REQUEST).provider_error,
		     VERDICT(READ_LIMIT));
	cr_assert_eq(frames_out(), 0);
}

Test(requester, read_fence_waits_for_reads)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);

	post(SHM_WR_READ, 1, 8);
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_SEND,
				    .flags = SHM_FLAG_READ_FENCE,
				    .request_context = 2 },
		  &sge, 1);
	settle();
	cr_assert_eq(frames_out(), 1);
	respond(OP_RC_READ_RESPONSE_ONLY, S, NULL, 8);
	expect_frame(OP_RC_SEND_ONLY, S + 1);
}

Test(requester, atomic_result_lost_and_asked_again)
{
	struct wire_view view;

	post(SHM_WR_FETCH_ADD, 1, 8);
	expect_frame(OP_RC_FETCH_ADD, S);
	sleep_until_deadline();
	view = expect_frame(OP_RC_FETCH_ADD, S);
	cr_assert_eq(be64_get(view_atomic_eth(&view)->compare), 0);
	RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = S, .syndrome = 0x1f,
		 .original = 0x1122334455667788);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_eq(*(uint64_t *)(void *)raw.end.bytes, 0x1122334455667788);
}

Test(requester, lengths_that_cannot_be)
{
	struct shm_sge sge[3];

	/* B106: the sum does not fit 32 bits. */
	for (int i = 0; i < 3; i++)
		sge[i] = sge_at(&raw.end, 0, 0x80000000u);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 1 },
		  sge, 3);
	settle();
	expect_cqe(raw.qp, 1, NT_DATA_OVERRUN);
	reopen(rig_connection());
	post(SHM_WR_FETCH_ADD, 2, 16);
	expect_cqe(raw.qp, 2, NT_DATA_OVERRUN);
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
