/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester against a peer that lies: answers of the wrong kind, place, order or time. */
#include <criterion/criterion.h>
#include <string.h>

#include "asking.h"

TestSuite(forged, .init = asking_setup, .fini = asking_teardown);

static struct qp *record(void)
{
	return arena_record(&raw.end.arena, ARENA_QPS, raw.qp->index);
}

/* What it sends next has this PSN. */
static void begin_at(uint32_t psn)
{
	record()->next_psn = record()->sent_psn = psn;
	record()->requester = requester_word(psn, 0);
}

static void atomic_result(uint32_t psn, uint64_t original)
{
	RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = psn, .syndrome = 0x1f,
		 .original = original);
}

/* Until the queue pair has given up; nothing more is sent by then. */
static void expect_given_up(uint64_t context)
{
	while (next_deadline() != UINT64_MAX) {
		cr_assert_eq(frames_out(), 0, "it sends on");
		raw.now = next_deadline() > raw.now ? next_deadline() : raw.now + 1;
		settle();
	}
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(expect_cqe(raw.qp, context, NT_IO_TIMEOUT).provider_error,
		     VERDICT(RETRY_EXCEEDED));
}

/* --- where an answer stands ------------------------------------------------------------ */

/* REQ-ACK-1, REQ-ACK-4: old and new on both sides of PSN 0. */
Test(forged, b33_acks_across_psn_0)
{
	begin_at(0xfffffe);
	for (uint64_t i = 0; i < 5; i++)
		post(SHM_WR_WRITE, i, 8);
	cr_assert_eq(frames_out(), 5);
	ack(0xfffffd);
	ack(3);
	ack(0x7fffff);
	expect_no_cqe(raw.qp);
	ack(0xffffff);
	expect_cqe(raw.qp, 0, 0);
	expect_cqe(raw.qp, 1, 0);
	expect_no_cqe(raw.qp);
	ack(0xfffffe);
	ack(0xffffff);
	answer(1, 0x60);
	expect_cqe(raw.qp, 2, 0);
	expect_frame(OP_RC_WRITE_ONLY, 1);
	expect_frame(OP_RC_WRITE_ONLY, 2);
	raw_expect_none(&raw);
	answer(0, 0x62);
	answer(0xffffff, 0x62);
	ack(2);
	expect_cqe(raw.qp, 3, 0);
	expect_cqe(raw.qp, 4, 0);
	cr_assert_eq(next_deadline(), UINT64_MAX);
}

/* REQ-READ-1, REQ-READ-2: the same with a READ whose responses lie on both sides. */
Test(forged, b33_read_responses_across_psn_0)
{
	uint8_t bytes[4000];

	fill(bytes, sizeof(bytes), 4);
	begin_at(0xfffffe);
	post(SHM_WR_READ, 1, 4000);
	expect_frame(OP_RC_READ_REQUEST, 0xfffffe);
	respond(OP_RC_READ_RESPONSE_FIRST, 0xfffffe, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, 0, bytes + 2048, 1024);
	expect_frame(OP_RC_READ_REQUEST, 0xffffff);
	respond(OP_RC_READ_RESPONSE_FIRST, 0xffffff, bytes + 1024, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, 0, bytes + 2048, 1024);
	respond(OP_RC_READ_RESPONSE_LAST, 1, bytes + 3072, 928);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_arr_eq(raw.end.bytes, bytes, 4000);
}

/* REQ-SEND-10: whatever the MSN says. */
Test(forged, msn_that_lies)
{
	static const uint32_t lies[] = { 0, 0xffffff, 0x800000, 0x123456 };
	uint8_t bytes[8] = { 0 };
	uint32_t psn = S;

	for (uint32_t i = 0; i < 4; i++) {
		post(SHM_WR_WRITE, 1, 8);
		post(SHM_WR_READ, 2, 8);
		post(SHM_WR_SEND, 3, 8);
		cr_assert_eq(frames_out(), 3);
		RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = psn, .syndrome = 0x1f,
			 .msn = lies[i]);
		expect_cqe(raw.qp, 1, 0);
		expect_no_cqe(raw.qp);
		RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_ONLY, .psn = psn + 1, .syndrome = 0x1f,
			 .msn = lies[i], .payload = bytes, .payload_length = 8);
		expect_cqe(raw.qp, 2, 0);
		expect_no_cqe(raw.qp);
		RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = psn + 2, .syndrome = 0x60,
			 .msn = lies[i]);
		expect_frame(OP_RC_SEND_ONLY, psn + 2);
		ack(psn + 2);
		expect_cqe(raw.qp, 3, 0);
		psn += 3;
	}
}

/* --- answers of another kind ----------------------------------------------------------- */

/* REQ-READ-7 */
Test(forged, read_response_to_an_atomic)
{
	static const uint8_t opcodes[] = { OP_RC_READ_RESPONSE_FIRST, OP_RC_READ_RESPONSE_MIDDLE,
					   OP_RC_READ_RESPONSE_LAST, OP_RC_READ_RESPONSE_ONLY };
	uint8_t bytes[1024];

	memset(bytes, 0x55, sizeof(bytes));
	memset(raw.end.bytes, 0x77, 16);
	post(SHM_WR_FETCH_ADD, 1, 8);
	cr_assert_eq(frames_out(), 1);
	for (uint32_t i = 0; i < 4; i++) {
		respond(opcodes[i], S, bytes, 8);
		respond(opcodes[i], S, bytes, 1024);
	}
	ack(S);
	expect_no_cqe(raw.qp);
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(raw.end.bytes[0], 0x77);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(RESPONSE_UNEXPECTED)), 9);
	atomic_result(S, 5);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_eq(raw.end.bytes[0], 5);
	cr_assert_eq(raw.end.bytes[8], 0x77);
}

/* REQ-READ-1: what a READ behind it is answered says that it was lost, and is not taken. */
Test(forged, answers_of_reads_and_atomics_overtake)
{
	uint8_t bytes[8];

	memset(raw.end.bytes, 0x77, 16);
	memset(bytes, 0x55, sizeof(bytes));
	post(SHM_WR_READ, 1, 8);
	post(SHM_WR_FETCH_ADD, 2, 8);
	post(SHM_WR_READ, 3, 8);
	cr_assert_eq(frames_out(), 3);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 2, bytes, 8);
	atomic_result(S + 1, 9);
	expect_no_cqe(raw.qp);
	cr_assert_eq(raw.end.bytes[0], 0x77);
	expect_frame(OP_RC_READ_REQUEST, S);
	expect_frame(OP_RC_FETCH_ADD, S + 1);
	expect_frame(OP_RC_READ_REQUEST, S + 2);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_ONLY, S, bytes, 8);
	atomic_result(S + 1, 9);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
	expect_no_cqe(raw.qp);
}

/* REQ-READ-3, REQ-READ-4 */
Test(forged, responses_to_a_read_of_nothing)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
		bool good;
	} cases[] = { { OP_RC_READ_RESPONSE_ONLY, 0, true },
		      { OP_RC_READ_RESPONSE_LAST, 0, true },
		      { OP_RC_READ_RESPONSE_ONLY, 1, false },
		      { OP_RC_READ_RESPONSE_LAST, 4, false },
		      { OP_RC_READ_RESPONSE_FIRST, 0, false },
		      { OP_RC_READ_RESPONSE_FIRST, 1024, false },
		      { OP_RC_READ_RESPONSE_MIDDLE, 0, false },
		      { OP_RC_READ_RESPONSE_MIDDLE, 1024, false } };

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		reopen(rig_connection());
		post(SHM_WR_READ, 1, 0);
		expect_frame(OP_RC_READ_REQUEST, S);
		raw.end.bytes[0] = 0x77;
		respond(cases[i].opcode, S, NULL, cases[i].length);
		expect_cqe(raw.qp, 1, cases[i].good ? 0 : NT_DATA_ERROR);
		cr_assert_eq(raw.end.bytes[0], 0x77);
		cr_assert_eq(next_deadline(), UINT64_MAX);
	}
}

/* REQ-READ-4: the last of a whole number of packets; and more than a resumed one asked for. */
Test(forged, responses_longer_than_what_is_left)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
	} cases[] = { { OP_RC_READ_RESPONSE_LAST, 0 },     { OP_RC_READ_RESPONSE_MIDDLE, 1024 },
		      { OP_RC_READ_RESPONSE_FIRST, 1024 }, { OP_RC_READ_RESPONSE_ONLY, 0 },
		      { OP_RC_READ_RESPONSE_LAST, 1020 },  { OP_RC_READ_RESPONSE_ONLY, 2048 } };

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		reopen(rig_connection());
		memset(raw.end.bytes, 0x77, 8192);
		post(SHM_WR_READ, 1, 2048);
		respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
		expect_no_cqe(raw.qp);
		respond(cases[i].opcode, S + 1, NULL, cases[i].length);
		expect_cqe(raw.qp, 1, NT_DATA_ERROR);
		cr_assert_eq(raw.end.bytes[1024], 0x77, "nothing of it is placed");
		cr_assert_eq(raw.end.bytes[2048], 0x77);
	}
}

/* --- NAKs in unusual places ------------------------------------------------------------ */

/* REQ-NAK-1, REQ-READ-2: it says nothing of the data, which is asked for from where it stands. */
Test(forged, sequence_nak_within_a_read)
{
	struct wire_view view;

	post(SHM_WR_READ, 1, 4096);
	post(SHM_WR_WRITE, 2, 8);
	cr_assert_eq(frames_out(), 2);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	answer(S + 3, 0x60);
	view = expect_frame(OP_RC_READ_REQUEST, S + 1);
	cr_assert_eq(be32_get(view_reth(&view)->length), 3072);
	expect_frame(OP_RC_WRITE_ONLY, S + 4);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
}

/* REQ-READ-6: what is missing before it cannot come any more. */
Test(forged, fatal_nak_within_a_read)
{
	post(SHM_WR_READ, 1, 4096);
	post(SHM_WR_READ, 2, 4096);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	answer(S + 3, 0x61);
	expect_cqe(raw.qp, 1, NT_DATA_ERROR);
	expect_cqe(raw.qp, 2, NT_CANCELLED);
	cr_assert_eq(record()->reads_out, 0);
	cr_assert_eq(record()->read_psns, 0);
}

/* REQ-RNR-1: a READ waits as well, and resumes where it stands. */
Test(forged, rnr_for_a_read)
{
	uint64_t before;

	post(SHM_WR_READ, 1, 2500);
	post(SHM_WR_WRITE, 2, 8);
	cr_assert_eq(frames_out(), 2);
	before = raw.now;
	answer(S, 0x2c);
	raw_expect_none(&raw);
	sleep_until_deadline();
	cr_assert_geq(raw.now - before, 640000);
	expect_frame(OP_RC_READ_REQUEST, S);
	expect_frame(OP_RC_WRITE_ONLY, S + 3);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	answer(S + 1, 0x2c);
	raw_expect_none(&raw);
	sleep_until_deadline();
	expect_frame(OP_RC_READ_REQUEST, S + 1);
	expect_frame(OP_RC_WRITE_ONLY, S + 3);
}

/* REQ-ACK-2: of two things that it says, that an answer was lost comes first. */
Test(forged, rnr_behind_an_unanswered_read)
{
	post(SHM_WR_READ, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	cr_assert_eq(frames_out(), 2);
	answer(S + 1, 0x20);
	expect_frame(OP_RC_READ_REQUEST, S);
	expect_frame(OP_RC_SEND_ONLY, S + 1);
	answer(S + 1, 0x20);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_ONLY, S, NULL, 8);
	expect_cqe(raw.qp, 1, 0);
	answer(S + 1, 0x2c);
	raw_expect_none(&raw);
	sleep_until_deadline();
	expect_frame(OP_RC_SEND_ONLY, S + 1);
	ack(S + 1);
	expect_cqe(raw.qp, 2, 0);
}

/* REQ-RNR-1: it had arrived after all; what was dropped behind it goes again, and nothing waits. */
Test(forged, late_ack_ends_an_rnr_wait)
{
	uint64_t before = raw.now;

	post(SHM_WR_SEND, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	cr_assert_eq(frames_out(), 2);
	answer(S, 0x20);
	post(SHM_WR_WRITE, 3, 8);
	raw_expect_none(&raw);
	ack(S);
	expect_cqe(raw.qp, 1, 0);
	expect_frame(OP_RC_SEND_ONLY, S + 1);
	expect_frame(OP_RC_WRITE_ONLY, S + 2);
	raw_expect_none(&raw);
	/* Their timer is their own, not what was left of the wait. */
	sleep_until_deadline();
	cr_assert_leq(raw.now - before, 4 * T14);
	expect_frame(OP_RC_SEND_ONLY, S + 1);
	expect_frame(OP_RC_WRITE_ONLY, S + 2);
}

/* REQ-DONE-1: after its end nothing that comes makes any difference. */
Test(forged, answers_after_the_end)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 64);

	post_receive(&raw.end, raw.qp, 50, &sge, 1);
	memset(raw.end.bytes, 0x77, 4096);
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_READ, 2, 8);
	post(SHM_WR_FETCH_ADD, 3, 8);
	cr_assert_eq(frames_out(), 3);
	answer(S, 0x61);
	expect_cqe(raw.qp, 1, NT_DATA_ERROR);
	expect_cqe(raw.qp, 2, NT_CANCELLED);
	expect_cqe(raw.qp, 3, NT_CANCELLED);
	expect_cqe(raw.qp, 50, NT_CANCELLED);
	for (uint32_t i = 0; i < 3; i++) {
		ack(S + i);
		answer(S + i, 0x60);
		answer(S + i, 0x2c);
		answer(S + i, 0x62);
		respond(OP_RC_READ_RESPONSE_ONLY, S + i, NULL, 8);
		atomic_result(S + i, 1);
	}
	expect_no_cqe(raw.qp);
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(next_deadline(), UINT64_MAX);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	for (uint32_t i = 0; i < 4096; i++)
		cr_assert_eq(raw.end.bytes[i], 0x77);
}

/* --- what gives new tries -------------------------------------------------------------- */

/* REQ-TIME-3: only what brings it forward does; and an RNR takes none. */
Test(forged, no_new_retries_without_progress)
{
	struct qp_connection connection = rig_connection();

	connection.retry_count = 2;
	reopen(connection);
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_READ, 2, 3000);
	cr_assert_eq(frames_out(), 2);
	sleep_until_deadline();
	cr_assert_eq(frames_out(), 2);
	ack(S - 1);
	ack(S + 4);
	respond(OP_RC_READ_RESPONSE_ONLY, S, NULL, 8);
	for (int i = 0; i < 5; i++) {
		answer(S, 0x21);
		sleep_until_deadline();
		cr_assert_eq(frames_out(), 2);
	}
	sleep_until_deadline();
	cr_assert_eq(frames_out(), 2);
	expect_given_up(1);
}

/* REQ-TIME-3: a response to a READ brings it forward, a plain ACK within it does not. */
Test(forged, new_retries_with_each_response)
{
	struct qp_connection connection = rig_connection();

	connection.retry_count = 1;
	reopen(connection);
	post(SHM_WR_READ, 1, 3000);
	cr_assert_eq(frames_out(), 1);
	for (uint32_t i = 0; i < 3; i++) {
		sleep_until_deadline();
		expect_frame(OP_RC_READ_REQUEST, S + i);
		if (i < 2)
			respond(OP_RC_READ_RESPONSE_FIRST, S + i, NULL, 1024);
		ack(S + 2);
		raw_expect_none(&raw);
	}
	expect_given_up(1);
}

/* REQ-TIME-1: what brings it forward gives the peer its time again, and nothing else does. */
Test(forged, only_progress_puts_the_timer_off)
{
	uint64_t before;

	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_WRITE, 2, 8);
	cr_assert_eq(frames_out(), 2);
	raw.now += T14;
	ack(S);
	before = raw.now;
	raw.now += T14;
	settle();
	cr_assert_eq(frames_out(), 0);
	ack(S);
	ack(S + 2);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 1, NULL, 8);
	sleep_until_deadline();
	cr_assert_geq(raw.now - before, T14);
	cr_assert_leq(raw.now - before, 4 * T14);
	expect_frame(OP_RC_WRITE_ONLY, S + 1);
	raw_expect_none(&raw);
}

/* REQ-RNR-2: nor do timeouts give new RNR retries. */
Test(forged, no_new_rnr_retries_without_progress)
{
	struct qp_connection connection = rig_connection();

	connection.rnr_retry = 1;
	reopen(connection);
	post(SHM_WR_SEND, 1, 8);
	answer(S, 0x21);
	sleep_until_deadline();
	cr_assert_eq(frames_out(), 2);
	ack(S - 1);
	sleep_until_deadline();
	cr_assert_eq(frames_out(), 1);
	answer(S, 0x21);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_IO_TIMEOUT).provider_error,
		     VERDICT(RNR_RETRY_EXCEEDED));
}

/* REQ-TIME-3, REQ-RNR-2: with no retries at all RNRs are waited for nevertheless. */
Test(forged, rnr_takes_no_retry)
{
	struct qp_connection connection = rig_connection();

	connection.retry_count = 0;
	reopen(connection);
	post(SHM_WR_SEND, 1, 8);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(frames_out(), 1);
		answer(S, 0x21);
		sleep_until_deadline();
	}
	cr_assert_eq(frames_out(), 1);
	expect_given_up(1);
}

/* --- what is asked for ----------------------------------------------------------------- */

/* REQ-SEND-7: it waits for the data, however often that has to be asked for. */
Test(forged, fence_behind_a_read_that_is_lost)
{
	post(SHM_WR_READ, 1, 2048);
	post_flags(SHM_WR_READ, 2, 8, SHM_FLAG_READ_FENCE);
	post_flags(SHM_WR_SEND, 3, 8, SHM_FLAG_READ_FENCE);
	post(SHM_WR_WRITE, 4, 8);
	expect_frame(OP_RC_READ_REQUEST, S);
	raw_expect_none(&raw);
	sleep_until_deadline();
	expect_frame(OP_RC_READ_REQUEST, S);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 1024);
	sleep_until_deadline();
	expect_frame(OP_RC_READ_REQUEST, S + 1);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 1, NULL, 1024);
	expect_frame(OP_RC_READ_REQUEST, S + 2);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 2, NULL, 8);
	expect_frame(OP_RC_SEND_ONLY, S + 3);
	expect_frame(OP_RC_WRITE_ONLY, S + 4);
	sleep_until_deadline();
	expect_frame(OP_RC_SEND_ONLY, S + 3);
	expect_frame(OP_RC_WRITE_ONLY, S + 4);
	ack(S + 4);
	for (uint64_t i = 1; i < 5; i++)
		expect_cqe(raw.qp, i, 0);
}

/* REQ-DONE-1 */
Test(forged, silent_ones_before_one_that_fails)
{
	for (uint64_t i = 0; i < 4; i++)
		post_flags(i == 1 ? SHM_WR_READ : SHM_WR_WRITE, i, 8, SHM_FLAG_SILENT_SUCCESS);
	cr_assert_eq(frames_out(), 4);
	respond(OP_RC_READ_RESPONSE_ONLY, S + 1, NULL, 8);
	expect_no_cqe(raw.qp);
	cr_assert_eq(raw.qp->memory->send.done, 2);
	answer(S + 2, 0x62);
	expect_cqe(raw.qp, 2, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 3, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	cr_assert_eq(raw.qp->memory->send.done, 4);
}

static void post_inline(uint8_t opcode, const uint8_t *data, uint16_t length)
{
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = opcode,
				    .flags = SHM_FLAG_INLINE,
				    .inline_length = length,
				    .request_context = length },
		  (const void *)data, 0);
	settle();
}

/* NdkSend, inline: the buffer is the caller's again at once, and so is its place in the queue. */
Test(forged, inline_data_is_sent_again_as_it_was)
{
	static const uint8_t requests[] = { SHM_WR_WRITE, SHM_WR_SEND_IMMEDIATE };
	uint8_t data[64];
	struct wire_view view;

	fill(data, sizeof(data), 3);
	for (uint32_t i = 0; i < 2; i++)
		post_inline(requests[i], data, (uint16_t)(61 + i));
	cr_assert_eq(frames_out(), 2);
	memset((uint8_t *)raw.qp->memory + raw.qp->memory->send.offset, 0xee,
	       (size_t)raw.qp->memory->send.stride * 2);
	sleep_until_deadline();
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.payload_length, 61 + i);
		cr_assert_arr_eq(view.payload, data, 61 + i);
	}
	ack(S + 1);
	expect_cqe(raw.qp, 61, 0);
	expect_cqe(raw.qp, 62, 0);
}

/* B21: pieces of nothing before, between and behind others, where packets begin and end too. */
Test(forged, pieces_of_nothing)
{
	const struct shm_sge sge[4] = { sge_at(&raw.end, 7, 0),
					sge_at(&raw.end, 0, 1024),
					{ 0xdead, 0, 0xbad },
					sge_at(&raw.end, 4096, 1500) };
	struct wire_view view;
	uint8_t bytes[2524];

	fill(raw.end.bytes, 8192, 3);
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_WRITE, .request_context = 1 }, sge, 4);
	settle();
	view = expect_frame(OP_RC_WRITE_FIRST, S);
	cr_assert_arr_eq(view.payload, raw.end.bytes, 1024);
	view = expect_frame(OP_RC_WRITE_MIDDLE, S + 1);
	cr_assert_arr_eq(view.payload, raw.end.bytes + 4096, 1024);
	view = expect_frame(OP_RC_WRITE_LAST, S + 2);
	cr_assert_eq(view.payload_length, 476);
	cr_assert_arr_eq(view.payload, raw.end.bytes + 5120, 476);
	ack(S + 2);
	expect_cqe(raw.qp, 1, 0);

	fill(bytes, sizeof(bytes), 9);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = 2 },
		  sge, 4);
	settle();
	expect_frame(OP_RC_READ_REQUEST, S + 3);
	respond(OP_RC_READ_RESPONSE_FIRST, S + 3, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 4, bytes + 1024, 1024);
	respond(OP_RC_READ_RESPONSE_LAST, S + 5, bytes + 2048, 476);
	expect_cqe(raw.qp, 2, 0);
	cr_assert_arr_eq(raw.end.bytes, bytes, 1024);
	cr_assert_arr_eq(raw.end.bytes + 4096, bytes + 1024, 1500);
}
