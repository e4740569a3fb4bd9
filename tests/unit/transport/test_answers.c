/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's rules one by one: the frames of each request, and every answer to them. */
#include <criterion/criterion.h>
#include <string.h>

#include "asking.h"

TestSuite(answers, .init = asking_setup, .fini = asking_teardown);

/* --- what is sent --------------------------------------------------------------------- */

struct shape {
	uint8_t request;
	uint8_t first, middle, last, only;
};

static const struct shape shapes[] = {
	{ SHM_WR_SEND, OP_RC_SEND_FIRST, OP_RC_SEND_MIDDLE, OP_RC_SEND_LAST, OP_RC_SEND_ONLY },
	{ SHM_WR_SEND_IMMEDIATE, OP_RC_SEND_FIRST, OP_RC_SEND_MIDDLE, OP_RC_SEND_LAST_IMM,
	  OP_RC_SEND_ONLY_IMM },
	{ SHM_WR_SEND_INVALIDATE, OP_RC_SEND_FIRST, OP_RC_SEND_MIDDLE, OP_RC_SEND_LAST_INV,
	  OP_RC_SEND_ONLY_INV },
	{ SHM_WR_WRITE, OP_RC_WRITE_FIRST, OP_RC_WRITE_MIDDLE, OP_RC_WRITE_LAST, OP_RC_WRITE_ONLY },
	{ SHM_WR_WRITE_IMMEDIATE, OP_RC_WRITE_FIRST, OP_RC_WRITE_MIDDLE, OP_RC_WRITE_LAST_IMM,
	  OP_RC_WRITE_ONLY_IMM },
};

static uint8_t expected_opcode(const struct shape *shape, uint32_t number, uint32_t packets)
{
	if (packets == 1)
		return shape->only;
	if (number == 0)
		return shape->first;
	return number + 1 == packets ? shape->last : shape->middle;
}

/* Returns how many packets it was. */
static uint32_t expect_shape(const struct shape *shape, uint32_t psn, uint32_t length)
{
	const uint32_t packets = length ? (length + 1023) / 1024 : 1;

	for (uint32_t i = 0; i < packets; i++) {
		const bool last = i + 1 == packets;
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.opcode, expected_opcode(shape, i, packets));
		cr_assert_eq(view.psn, (psn + i) & PSN_MASK);
		cr_assert_eq(view.payload_length, last ? length - i * 1024 : 1024);
		cr_assert_eq(view.ack_request, last);
		cr_assert_eq(view.solicited, last && shape->request != SHM_WR_WRITE,
			     "SE of opcode %#x", view.opcode);
		if (view.op->flags & OPF_RETH)
			cr_assert_eq(be32_get(view_reth(&view)->length), length);
		if (view.op->flags & OPF_IMM)
			cr_assert_arr_eq(view_imm(&view)->data, "\1\2\3\4", 4);
		if (view.op->flags & OPF_IETH)
			cr_assert_eq(be32_get(view_ieth(&view)->rkey), 77);
	}
	return packets;
}

/* REQ-SEND-1, REQ-SEND-2, REQ-SEND-3 */
Test(answers, frames_of_every_request)
{
	static const uint32_t lengths[] = { 0, 1, 1023, 1024, 1025, 2048, 2500 };
	uint32_t psn = S;

	for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (uint32_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			post_flags(shapes[i].request, k, lengths[k], SHM_FLAG_SOLICIT);
			psn += expect_shape(&shapes[i], psn, lengths[k]);
			raw_expect_none(&raw);
			ack(psn - 1);
			expect_cqe(raw.qp, k, 0);
		}
}

/* REQ-SEND-9: the longest that there may be is looked at further, and its memory is not there. */
Test(answers, longest_message)
{
	static const struct {
		uint8_t request;
		uint32_t mtu, length, more;
		int32_t status;
	} cases[] = {
		{ SHM_WR_WRITE, 256, 0x80000000u, 0, NT_ACCESS_VIOLATION },
		{ SHM_WR_WRITE, 4096, 0x80000000u, 1, NT_DATA_OVERRUN },
		{ SHM_WR_SEND, 1024, 0x80000000u, 0, NT_ACCESS_VIOLATION },
		{ SHM_WR_READ, 512, 0x80000000u, 0, NT_ACCESS_VIOLATION },
		{ SHM_WR_READ, 512, 0x80000000u, 1, NT_DATA_OVERRUN },
		{ SHM_WR_READ, 256, 0x7fffff01u, 0, NT_DATA_OVERRUN },
		{ SHM_WR_READ, 256, 0x7fffff00u, 0, NT_ACCESS_VIOLATION },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct qp_connection connection = rig_connection();
		struct shm_sge sge[2];

		connection.path_mtu = cases[i].mtu;
		reopen(connection);
		sge[0] = sge_at(&raw.end, 0, cases[i].length);
		sge[1] = sge_at(&raw.end, 0, cases[i].more);
		post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = cases[i].request }, sge, 2);
		settle();
		expect_cqe(raw.qp, 0, cases[i].status);
		cr_assert_eq(frames_out(), 0);
	}
}

/* Each of 2^16 packets, more of them than half the circle holds. */
static void open_for_long_reads(struct shm_sge *sge)
{
	struct qp_connection connection = rig_connection();

	connection.path_mtu = 256;
	connection.max_reads_out = 200;
	reopen(connection);
	for (uint32_t i = 0; i < 4; i++)
		sge[i] = sge_at(&raw.end, 0, RIG_MEMORY);
}

/* REQ-SEND-4: 128 READs of 2^16 packets each would be half of the circle. */
Test(answers, b33_reads_do_not_take_half_the_circle)
{
	struct shm_sge sge[4];

	open_for_long_reads(sge);
	for (uint32_t i = 0; i < 140; i++) {
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = i }, sge, 4);
		if (i % 32 == 31)
			settle();
	}
	settle();
	cr_assert_eq(frames_out(), 127);
	for (uint32_t i = 0; i < 1u << 16; i++)
		respond(i + 1 < 1u << 16 ? OP_RC_READ_RESPONSE_MIDDLE : OP_RC_READ_RESPONSE_LAST,
			S + i, NULL, 256);
	expect_cqe(raw.qp, 0, 0);
	cr_assert_eq(frames_out(), 1, "the answered one makes room for another");
}

/* What is behind READs of half the circle waits for room, too: nothing else would be answered. */
Test(answers, b33_nothing_passes_half_the_circle_behind_reads)
{
	const uint32_t half = 0x800000, packets = 1u << 16, rest = half - 1 - 127 * packets - 1;
	struct shm_sge sge[4];

	open_for_long_reads(sge);
	for (uint32_t i = 0; i < 128; i++) {
		if (i == 127)
			sge[3].length -= (packets - rest) * 256;
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = i }, sge, 4);
		if (i % 32 == 31)
			settle();
	}
	cr_assert_eq(frames_out(), 128);
	/* One PSN is left below half the circle, whatever would like to use it. */
	post(SHM_WR_WRITE, 200, 600);
	post(SHM_WR_WRITE, 201, 8);
	expect_frame(OP_RC_WRITE_FIRST, S + half - 2);
	raw_expect_none(&raw);
	respond(OP_RC_READ_RESPONSE_FIRST, S, NULL, 256);
	expect_frame(OP_RC_WRITE_MIDDLE, S + half - 1);
	raw_expect_none(&raw);
	for (uint32_t i = 1; i < packets; i++)
		respond(i + 1 < packets ? OP_RC_READ_RESPONSE_MIDDLE : OP_RC_READ_RESPONSE_LAST,
			S + i, NULL, 256);
	expect_cqe(raw.qp, 0, 0);
	expect_frame(OP_RC_WRITE_LAST, S + half);
	expect_frame(OP_RC_WRITE_ONLY, S + half + 1);
	raw_expect_none(&raw);
}

/* REQ-TIME-2 */
Test(answers, b28_silence_after_every_kind_of_request)
{
	static const uint8_t requests[] = { SHM_WR_SEND,  SHM_WR_SEND_IMMEDIATE,
					    SHM_WR_WRITE, SHM_WR_WRITE_IMMEDIATE,
					    SHM_WR_READ,  SHM_WR_FETCH_ADD };
	const uint8_t eight[8] = { 0 };

	for (uint32_t i = 0; i < sizeof(requests); i++) {
		post(requests[i], i, 8);
		cr_assert_eq(frames_out(), 1);
		/* Sent twice, answered once, and late. */
		sleep_until_deadline();
		cr_assert_eq(frames_out(), 1);
		if (requests[i] == SHM_WR_READ)
			respond(OP_RC_READ_RESPONSE_ONLY, S + i, eight, 8);
		else if (requests[i] == SHM_WR_FETCH_ADD)
			RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = S + i,
				 .syndrome = 0x1f);
		else
			ack(S + i);
		expect_cqe(raw.qp, i, 0);
		cr_assert_eq(next_deadline(), UINT64_MAX);
	}
	raw.now += 60000000000ull;
	settle();
	cr_assert_eq(frames_out(), 0);
}

/* --- NAKs ----------------------------------------------------------------------------- */

/* REQ-TIME-3: a peer that only ever reports gaps comes to an end. */
Test(answers, sequence_naks_count_as_retries)
{
	struct qp_connection connection = rig_connection();

	connection.retry_count = 1;
	reopen(connection);
	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	for (int i = 0; i < 3; i++) {
		answer(S, 0x60);
		cr_assert_eq(frames_out(), i == 0, "once for a gap");
	}
	expect_no_cqe(raw.qp);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(NAK_SEQUENCE)), 3);
	while (next_deadline() != UINT64_MAX) {
		raw.now = next_deadline() > raw.now ? next_deadline() : raw.now + 1;
		settle();
	}
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_IO_TIMEOUT).provider_error, VERDICT(RETRY_EXCEEDED));

	connection.retry_count = 0;
	reopen(connection);
	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	answer(S, 0x60);
	expect_cqe(raw.qp, 1, NT_IO_TIMEOUT);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(RETRY_EXCEEDED)), 1,
		     "counted, whatever led to it");
}

/* REQ-NAK-1: once for a gap; but one that is reported after a timeout has gone back is another. */
Test(answers, a_gap_after_a_timeout_is_another_one)
{
	post(SHM_WR_WRITE, 1, 8);
	cr_assert_eq(frames_out(), 1);
	for (int i = 0; i < 2; i++) {
		answer(S, 0x60);
		cr_assert_eq(frames_out(), 1);
		answer(S, 0x60);
		cr_assert_eq(frames_out(), 0);
		sleep_until_deadline();
		cr_assert_eq(frames_out(), 1);
	}
	ack(S);
	expect_cqe(raw.qp, 1, 0);
}

/* What a syndrome that is no ACK leads to: a wait, going back, or the end. */
static void expect_effect(uint32_t syndrome)
{
	const uint32_t kind = syndrome & AETH_KIND;

	if (kind == AETH_RNR) {
		expect_no_cqe(raw.qp);
		cr_assert_eq(frames_out(), 0);
		cr_assert_eq(end_verdicts(&raw.end, VERDICT(NAK_RNR)), 1);
		cr_assert_lt(next_deadline() - raw.now, 700000000);
	} else if (syndrome == 0x60) {
		expect_no_cqe(raw.qp);
		cr_assert_eq(frames_out(), 1);
	} else {
		expect_cqe(raw.qp, 1, syndrome == 0x62 ? NT_ACCESS_VIOLATION : NT_DATA_ERROR);
		cr_assert_eq(frames_out(), 0);
		cr_assert_eq(next_deadline(), UINT64_MAX);
	}
}

/* REQ-NAK-3; and for PSNs that are not outstanding none of them is anything. */
Test(answers, every_syndrome_that_is_no_ack)
{
	for (uint32_t syndrome = 0x20; syndrome < 0x100; syndrome++) {
		reopen(rig_connection());
		answer(S, (uint8_t)syndrome);
		post(SHM_WR_WRITE, 1, 8);
		cr_assert_eq(frames_out(), 1);
		answer(S - 1, (uint8_t)syndrome);
		answer(S + 1, (uint8_t)syndrome);
		answer(S + 0x800000, (uint8_t)syndrome);
		expect_no_cqe(raw.qp);
		cr_assert_eq(frames_out(), 0);
		answer(S, (uint8_t)syndrome);
		expect_effect(syndrome);
	}
}

/*
 * REQ-NAK-4: the answer to the READ was lost, and nothing can bring it any more, as
 * its peer is dead by now.
 */
Test(answers, fatal_nak_behind_an_unanswered_read)
{
	post(SHM_WR_WRITE, 1, 8);
	post(SHM_WR_READ, 2, 3000);
	post(SHM_WR_WRITE, 3, 8);
	post(SHM_WR_WRITE, 4, 8);
	cr_assert_eq(frames_out(), 4);
	answer(S + 4, 0x62);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 3, NT_CANCELLED);
	expect_cqe(raw.qp, 4, NT_CANCELLED);
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(next_deadline(), UINT64_MAX);
}

/* REQ-RNR-2 */
Test(answers, rnr_retry_0_fails_at_the_first)
{
	struct qp_connection connection = rig_connection();

	connection.rnr_retry = 0;
	reopen(connection);
	post(SHM_WR_SEND, 1, 8);
	cr_assert_eq(frames_out(), 1);
	answer(S, 0x2c);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_IO_TIMEOUT).provider_error,
		     VERDICT(RNR_RETRY_EXCEEDED));
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(RNR_RETRY_EXCEEDED)), 1);
}

/* REQ-RNR-2: six of them, then progress, then six again. */
Test(answers, progress_gives_new_rnr_retries)
{
	struct qp_connection connection = rig_connection();

	connection.rnr_retry = 6;
	reopen(connection);
	post(SHM_WR_SEND, 1, 8);
	post(SHM_WR_SEND, 2, 8);
	for (uint32_t message = 0; message < 2; message++) {
		for (int i = 0; i < 6; i++) {
			frames_out();
			answer(S + message, 0x21);
			sleep_until_deadline();
		}
		expect_no_cqe(raw.qp);
		ack(S + message);
		expect_cqe(raw.qp, 1 + message, 0);
	}
}

/* REQ-NAK-1, REQ-SEND-11: all that is unanswered goes again, across what was done in between. */
Test(answers, goes_back_across_a_bind)
{
	post(SHM_WR_WRITE, 1, 8);
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_BIND,
				    .request_context = 2,
				    .flags = SHM_FLAG_ALLOW_REMOTE_READ,
				    .mr = raw.end.region,
				    .mw = raw.end.window[0],
				    .token = end_token(&raw.end),
				    .address = RIG_BASE,
				    .length = 64 },
		  NULL, 0);
	post(SHM_WR_WRITE, 3, 8);
	cr_assert_eq(frames_out(), 2);
	answer(S, 0x60);
	expect_frame(OP_RC_WRITE_ONLY, S);
	expect_frame(OP_RC_WRITE_ONLY, S + 1);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
	ack(S + 1);
	for (uint64_t i = 1; i < 4; i++)
		expect_cqe(raw.qp, i, 0);
}

/* --- READ ----------------------------------------------------------------------------- */

/* REQ-READ-3: as rdma_rxe goes on, and mixed. */
Test(answers, resumed_read_answered_as_a_continuation)
{
	uint8_t bytes[4096];

	fill(bytes, 4096, 3);
	post(SHM_WR_READ, 1, 4096);
	respond(OP_RC_READ_RESPONSE_FIRST, S, bytes, 1024);
	cr_assert_eq(frames_out(), 1);
	sleep_until_deadline();
	cr_assert_eq(frames_out(), 1);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 1, bytes + 1024, 1024);
	respond(OP_RC_READ_RESPONSE_FIRST, S + 2, bytes + 2048, 1024);
	respond(OP_RC_READ_RESPONSE_LAST, S + 3, bytes + 3072, 1024);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_arr_eq(raw.end.bytes, bytes, 4096);
}

/* REQ-READ-1: and a gap that nobody fills counts as a retry, once. */
Test(answers, responses_ahead_are_not_placed)
{
	uint8_t bytes[1024];

	fill(bytes, 1024, 9);
	post(SHM_WR_READ, 1, 4096);
	cr_assert_eq(frames_out(), 1);
	memset(raw.end.bytes, 0x77, 4096);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 1, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_MIDDLE, S + 2, bytes, 1024);
	respond(OP_RC_READ_RESPONSE_LAST, S + 3, bytes, 1024);
	cr_assert_eq(frames_out(), 1, "asked again once");
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(RESPONSE_GAP)), 3);
	for (uint32_t i = 0; i < 4096; i++)
		cr_assert_eq(raw.end.bytes[i], 0x77);
	expect_no_cqe(raw.qp);
}

/* REQ-READ-4: every opcode of every length where the first response of two is expected. */
Test(answers, responses_of_every_shape)
{
	static const uint8_t opcodes[] = { OP_RC_READ_RESPONSE_FIRST, OP_RC_READ_RESPONSE_MIDDLE,
					   OP_RC_READ_RESPONSE_LAST, OP_RC_READ_RESPONSE_ONLY };
	static const uint32_t lengths[] = { 0, 1, 476, 1020, 1024, 1028, 1500 };

	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			reopen(rig_connection());
			memset(raw.end.bytes, 0x77, 4096);
			post(SHM_WR_READ, 1, 1500);
			frames_out();
			respond(opcodes[i], S, NULL, lengths[k]);
			if (i < 2 && lengths[k] == 1024) {
				expect_no_cqe(raw.qp);
				continue;
			}
			expect_cqe(raw.qp, 1, NT_DATA_ERROR);
			cr_assert_eq(raw.end.bytes[0], 0x77, "nothing of it is placed");
		}
}

/* --- timers, flush -------------------------------------------------------------------- */

/* REQ-TIME-1, B72: each code by itself, and nothing for 0. */
Test(answers, b72_every_timeout_code)
{
	struct qp_connection connection = rig_connection();

	for (uint8_t code = 0; code < 32; code++) {
		connection.timeout = code;
		reopen(connection);
		post(SHM_WR_WRITE, 1, 8);
		cr_assert_eq(frames_out(), 1);
		if (code == 0) {
			cr_assert_eq(next_deadline(), UINT64_MAX);
			continue;
		}
		/* The wheel may look earlier at what is far away, but not act. */
		raw.now += (4096ull << code) - 1;
		settle();
		cr_assert_eq(frames_out(), 0, "code %u: too early", code);
		raw.now += 3 * (4096ull << code) + 1;
		for (int i = 0; i < 100 && raw.end.out.head == raw.end.out.tail; i++) {
			settle();
			raw.now += 20000;
		}
		cr_assert_eq(frames_out(), 1, "code %u: too late", code);
	}
}

/* B25: the client moves it to error while half of a message is out. */
Test(answers, b25_flush_in_the_middle_sends_nothing_more)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 64);

	post_receive(&raw.end, raw.qp, 50, &sge, 1);
	raw.end.room = 3;
	post(SHM_WR_SEND, 1, 10 * 1024);
	for (uint64_t i = 2; i < 12; i++)
		post(SHM_WR_SEND, i, 8);
	cr_assert_eq(frames_out(), 3);
	transport_flush(raw.end.worker[0], raw.qp->index, raw.now);
	raw.end.room = 100;
	settle();
	for (uint64_t i = 1; i < 12; i++)
		expect_cqe(raw.qp, i, NT_CANCELLED);
	expect_cqe(raw.qp, 50, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	ack(S + 9);
	answer(S + 3, 0x60);
	raw.now += 1000 * T14;
	settle();
	cr_assert_eq(frames_out(), 0);
	cr_assert_eq(next_deadline(), UINT64_MAX);
	expect_no_cqe(raw.qp);
}

/* B127: as many as were agreed leave at once, whatever is still to come of the first. */
Test(answers, b127_reads_leave_without_waiting_for_each_other)
{
	struct qp_connection connection = rig_connection();

	connection.max_reads_out = 16;
	reopen(connection);
	for (uint64_t i = 0; i < 20; i++)
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = i },
			  &(struct shm_sge){ RIG_BASE, 65536, raw.end.local_token }, 1);
	end_poll(&raw.end, raw.now);
	cr_assert_eq(frames_out(), 16);
}
