/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's READs and atomics: responses lost, late, wrong; how many there may be. */
#include <criterion/criterion.h>
#include <string.h>

#include "asking.h"

TestSuite(requester, .init = asking_setup, .fini = asking_teardown);

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
