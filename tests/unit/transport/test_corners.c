/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder where rules meet: gaps, missing receives, replays and refusals at the same time. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

static struct raw raw;
static uint8_t payload[4096];

static void reopen_at(struct qp_connection connection, uint32_t psn)
{
	raw_destroy(&raw);
	raw_create_at(&raw, connection, psn);
	for (uint32_t i = 0; i < 8192; i++)
		raw.end.bytes[i] = (uint8_t)(i % 251);
}

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_create(&raw, rig_connection());
	for (uint32_t i = 0; i < 8192; i++)
		raw.end.bytes[i] = (uint8_t)(i % 251);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(corners, .init = setup, .fini = teardown);

static void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

static struct qp *record(void)
{
	return arena_record(&raw.end.arena, ARENA_QPS, raw.qp->index);
}

/* Packets that come in one burst. */
static void burst(uint8_t opcode, uint32_t psn, uint32_t length, uint32_t bytes, bool ack)
{
	raw_send_only(&raw, &(struct raw_packet){ .opcode = opcode,
						  .psn = psn,
						  .address = V,
						  .token = K,
						  .length = length,
						  .payload = payload,
						  .payload_length = bytes,
						  .ack_request = ack });
}

static void packet(uint8_t opcode, uint32_t psn, uint32_t length, uint32_t bytes)
{
	burst(opcode, psn, length, bytes, true);
	settle();
}

static void ask(uint32_t psn, uint32_t offset, uint32_t length)
{
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
						  .psn = psn,
						  .address = V + offset,
						  .token = K,
						  .length = length });
}

static void expect_response(uint8_t opcode, uint32_t psn, uint32_t offset, uint32_t length)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no response %#x", psn);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	cr_assert_eq(view.psn, psn & PSN_MASK);
	cr_assert_eq(view.payload_length, length);
	cr_assert_arr_eq(view.payload, raw.end.bytes + offset, length);
}

/* A READ of 4096 bytes that was answered; the answers are lost. */
static void read_and_lose(uint32_t psn)
{
	ask(psn, 0, 4096);
	settle();
	end_drain(&raw.end);
}

static void post_sink(uint64_t context, uint32_t length)
{
	const struct shm_sge sge = sge_at(&raw.end, 65536, length);

	post_receive(&raw.end, raw.qp, context, &sge, 1);
}

static void expect_error(uint32_t verdict, uint32_t async)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	cr_assert_not_null(event);
	cr_assert_eq(event->value, verdict, "verdict %u (%s)", event->value,
		     verdict_name(event->value));
	cr_assert_eq(event->async, async);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
}

/* --- READs asked for once more -------------------------------------------------------- */

/* RESP-READ-2: each piece is a request of its own, though they come at once. */
Test(corners, a_read_asked_for_again_in_pieces)
{
	read_and_lose(P);
	ask(P, 0, 2048);
	ask(P + 2, 2048, 1024);
	ask(P + 3, 3072, 1024);
	settle();
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 0, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 2, 2048, 1024);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 3, 3072, 1024);
	raw_expect_none(&raw);
	packet(OP_RC_WRITE_ONLY, P + 4, 8, 8);
	raw_expect_ack(&raw, P + 4, 2);
}

/* RESP-READ-2: what is behind the pieces waits with them, and nothing of it is lost. */
Test(corners, what_follows_the_pieces_is_served_behind_them)
{
	read_and_lose(P);
	raw.end.room = 0;
	ask(P + 1, 1024, 1024);
	ask(P + 2, 2048, 1024);
	burst(OP_RC_WRITE_ONLY, P + 4, 8, 8, true);
	burst(OP_RC_WRITE_ONLY, P + 5, 8, 8, true);
	settle();
	raw_expect_none(&raw);
	raw.end.room = 100;
	settle();
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 2, 2048, 1024);
	raw_expect_ack(&raw, P + 5, 3);
	raw_expect_none(&raw);
}

/* RESP-READ-2: the peer's latest wish, where an earlier one is still being answered. */
Test(corners, a_read_asked_for_again_while_it_is_sent_again)
{
	read_and_lose(P);
	raw.end.room = 2;
	ask(P, 0, 4096);
	settle();
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 0, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 1, 1024, 1024);
	/* From before, and shorter. */
	ask(P + 1, 1024, 2048);
	raw.end.room = 100;
	settle();
	expect_response(OP_RC_READ_RESPONSE_FIRST, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 2, 2048, 1024);
	raw_expect_none(&raw);
}

/* RESP-READ-2: asked for again before all of it was sent, the rest comes as well. */
Test(corners, a_read_asked_for_again_before_it_was_answered)
{
	raw.end.room = 3;
	ask(P, 0, 4096);
	settle();
	for (uint32_t i = 0; i < 3; i++)
		expect_response(i ? OP_RC_READ_RESPONSE_MIDDLE : OP_RC_READ_RESPONSE_FIRST, P + i,
				1024 * i, 1024);
	/* Still to come, in whatever pieces: it comes once. */
	ask(P + 3, 3072, 1024);
	ask(P + 3, 3072, 10);
	ask(P + 1, 1024, 1024);
	raw.end.room = 100;
	settle();
	expect_response(OP_RC_READ_RESPONSE_FIRST, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 2, 2048, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 3, 3072, 1024);
	raw_expect_none(&raw);
}

/* RESP-READ-3, RESP-READ-6: nothing is no part of something, nor the reverse. */
Test(corners, duplicates_of_no_bytes_and_of_some)
{
	ask(P, 0, 0);
	ask(P + 1, 0, 2048);
	settle();
	end_drain(&raw.end);
	ask(P, 0, 8);
	ask(P + 1, 0, 0);
	ask(P + 2, 1024, 0);
	settle();
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(DUPLICATE_UNKNOWN)), 3);
	ask(P, 77, 0);
	settle();
	expect_response(OP_RC_READ_RESPONSE_ONLY, P, 0, 0);
	raw_expect_none(&raw);
}

/* RESP-PSN-5 */
Test(corners, a_read_across_the_end_of_the_circle_and_its_duplicates)
{
	const uint32_t psn = 0xfffffe;

	reopen_at(rig_connection(), psn);
	read_and_lose(psn);
	packet(OP_RC_WRITE_ONLY, psn + 4, 8, 8);
	raw_expect_ack(&raw, psn + 4, 2);
	memcpy(raw.end.bytes, payload, 8);
	for (uint32_t from = 0; from < 4; from++) {
		ask(psn + from, 1024 * from, 4096 - 1024 * from);
		settle();
		for (uint32_t i = from; i < 4; i++) {
			const uint8_t first =
				i == 3 ? OP_RC_READ_RESPONSE_ONLY : OP_RC_READ_RESPONSE_FIRST;
			const uint8_t other =
				i == 3 ? OP_RC_READ_RESPONSE_LAST : OP_RC_READ_RESPONSE_MIDDLE;

			expect_response(i == from ? first : other, psn + i, 1024 * i, 1024);
		}
	}
	/* As long as the whole, from the middle; and behind it, where it would go on. */
	ask(psn + 1, 1024, 4096);
	ask(psn + 4, 4096, 1024);
	ask(psn + 4, 0, 1024);
	settle();
	raw_expect_none(&raw);
}

/* RESP-DUP-4, RESP-ATOM-2: as many as were agreed can be asked for again, the oldest too. */
Test(corners, all_that_were_agreed_are_kept)
{
	struct qp_connection connection = rig_connection();
	struct wire_view view;

	connection.max_reads_in = 16;
	reopen_at(connection, P);
	for (uint32_t i = 0; i < 40; i++)
		packet(i % 2 ? OP_RC_FETCH_ADD : OP_RC_READ_REQUEST, P + i, 8, 0);
	end_drain(&raw.end);
	packet(OP_RC_READ_REQUEST, P + 22, 8, 0);
	packet(OP_RC_FETCH_ADD, P + 23, 8, 0);
	raw_expect_none(&raw);
	for (uint32_t i = 24; i < 40; i++) {
		packet(i % 2 ? OP_RC_FETCH_ADD : OP_RC_READ_REQUEST, P + i, 8, 0);
		cr_assert(raw_receive(&raw, &view), "%u is not kept", i);
		cr_assert_eq(view.psn, P + i);
		cr_assert_eq(view.opcode,
			     i % 2 ? OP_RC_ATOMIC_ACKNOWLEDGE : OP_RC_READ_RESPONSE_ONLY);
	}
}

/* RESP-DUP-4: a new one takes the place of the oldest, which then is not answered again. */
Test(corners, a_new_read_takes_the_place_of_the_oldest)
{
	struct qp_connection connection = rig_connection();

	connection.max_reads_in = 16;
	reopen_at(connection, P);
	for (uint32_t i = 0; i < 16; i++)
		packet(OP_RC_READ_REQUEST, P + i, 8, 0);
	end_drain(&raw.end);
	raw.end.room = 0;
	ask(P, 0, 8);
	ask(P + 1, 0, 8);
	ask(P + 16, 8, 16);
	raw.end.room = 100;
	settle();
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 1, 0, 8);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 16, 8, 16);
	raw_expect_none(&raw);
}

/* --- gaps and missing receives -------------------------------------------------------- */

/* RESP-PSN-4: READs and atomics as well, and the gap is told no second time. */
Test(corners, reads_and_atomics_are_answered_again_in_a_gap)
{
	struct wire_view view;

	packet(OP_RC_FETCH_ADD, P, 8, 0);
	packet(OP_RC_READ_REQUEST, P + 1, 8, 0);
	end_drain(&raw.end);
	packet(OP_RC_WRITE_ONLY, P + 3, 8, 8);
	raw_expect_nak(&raw, P + 2, 0x60);
	packet(OP_RC_FETCH_ADD, P, 8, 0);
	packet(OP_RC_READ_REQUEST, P + 1, 8, 0);
	packet(OP_RC_WRITE_ONLY, P + 3, 8, 8);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_ATOMIC_ACKNOWLEDGE);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
	raw_expect_none(&raw);
}

/* RESP-PSN-3: the gap has closed before its NAK could leave. What came is acknowledged. */
Test(corners, a_nak_that_is_out_of_date_does_not_leave)
{
	raw.end.room = 0;
	burst(OP_RC_WRITE_ONLY, P, 8, 8, true);
	burst(OP_RC_WRITE_ONLY, P + 2, 8, 8, false);
	settle();
	burst(OP_RC_WRITE_ONLY, P + 1, 8, 8, false);
	raw.end.room = 100;
	settle();
	raw_expect_ack(&raw, P + 1, 2);
	raw_expect_none(&raw);
}

/* RESP-RES-3, RESP-RES-4: of no bytes too, and once it is there its repetitions take no other. */
Test(corners, rnr_and_then_once_whatever_comes_again)
{
	static const uint8_t opcodes[] = { OP_RC_SEND_ONLY, OP_RC_SEND_ONLY_IMM,
					   OP_RC_WRITE_ONLY_IMM };

	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t tries = 0; tries < 2; tries++) {
			packet(opcodes[i], P + i, 0, 0);
			raw_expect_nak(&raw, P + i, 0x2c);
		}
		post_sink(2 * i, 64);
		post_sink(2 * i + 1, 64);
		for (uint32_t tries = 0; tries < 3; tries++) {
			packet(opcodes[i], P + i, 0, 0);
			raw_expect_ack(&raw, P + i, i + 1);
		}
		cr_assert_eq(expect_cqe(raw.qp, 2 * i, 0).bytes, 0);
		expect_no_cqe(raw.qp);
		/* Away with the other one. */
		record()->receive.taken++;
	}
}

/* ACK-10: whatever the code, it is in the NAK as it was agreed. */
Test(corners, every_rnr_timer)
{
	struct qp_connection connection = rig_connection();

	for (uint8_t code = 0; code < 32; code++) {
		connection.min_rnr_timer = code;
		reopen_at(connection, P);
		packet(OP_RC_SEND_ONLY, P, 0, 8);
		raw_expect_nak(&raw, P, 0x20 | code);
	}
}

/* RESP-RES-3: another request at the PSN that found no receive. */
Test(corners, something_else_in_place_of_what_found_no_receive)
{
	packet(OP_RC_SEND_FIRST, P, 0, 1024);
	raw_expect_nak(&raw, P, 0x2c);
	packet(OP_RC_SEND_LAST, P + 1, 0, 8);
	raw_expect_none(&raw);
	packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
	packet(OP_RC_SEND_LAST, P + 1, 0, 8);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_error(VERDICT(OPCODE_SEQUENCE), SHM_ASYNC_QP_INVALID_REQUEST);
}

/* RESP-DUP-1: READs fill more than half of the circle; an ACK would be one of the future. */
Test(corners, no_ack_of_what_is_half_a_circle_away)
{
	packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
	record()->responder = responder_word(P + 0x800000, 9, 0, MESSAGE_NONE);
	packet(OP_RC_WRITE_ONLY, P + 0x7fffff, 8, 8);
	raw_expect_ack(&raw, P, 9);
	record()->responder = responder_word(P + 0x800001, 9, 0, MESSAGE_NONE);
	packet(OP_RC_SEND_ONLY, P + 0x7fffff, 0, 8);
	raw_expect_none(&raw);
	packet(OP_RC_WRITE_ONLY, P + 0x800001, 8, 8);
	raw_expect_ack(&raw, P + 0x800001, 10);
}

/* --- refusals ------------------------------------------------------------------------- */

/* RESP-CLASS-2: between the refusal and its NAK nothing comes in, whatever it is. */
Test(corners, nothing_is_served_while_a_refusal_waits_to_leave)
{
	packet(OP_RC_FETCH_ADD, P, 8, 0);
	packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	end_drain(&raw.end);
	memset(raw.end.bytes, 0x33, 16);
	raw.end.room = 0;
	packet(OP_RC_WRITE_LAST, P + 2, 0, 8);
	packet(OP_RC_FETCH_ADD, P, 8, 0);
	packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	packet(OP_RC_WRITE_ONLY, P + 2, 8, 8);
	packet(OP_RC_WRITE_ONLY, P + 9, 8, 8);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_DEAD)), 4);
	raw.end.room = 100;
	settle();
	raw_expect_nak(&raw, P + 2, 0x61);
	raw_expect_none(&raw);
	cr_assert_eq(raw.end.bytes[0], 0x33);
	expect_error(VERDICT(OPCODE_SEQUENCE), SHM_ASYNC_QP_INVALID_REQUEST);
}

/* RESP-CLASS-1: the piece that is bad is reached by the second packet. */
Test(corners, a_receive_that_turns_bad_in_the_second_packet)
{
	const struct shm_sge pieces[] = { sge_at(&raw.end, 65536, 1500),
					  { V, 0, 0xbad },
					  { V, 1000, 0xbad } };

	post_receive(&raw.end, raw.qp, 1, pieces, 3);
	packet(OP_RC_SEND_FIRST, P, 0, 1024);
	raw_expect_ack(&raw, P, 0);
	packet(OP_RC_SEND_LAST, P + 1, 0, 477);
	raw_expect_nak(&raw, P + 1, 0x63);
	raw_expect_none(&raw);
	cr_assert_eq(expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION).provider_error,
		     VERDICT_ACCESS + ACCESS_UNKNOWN);
	cr_assert_arr_eq(raw.end.bytes + 65536, payload, 1024);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
	expect_error(VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
}

/* RESP-CLASS-1: none of the receive is used, and still it has to be one. */
Test(corners, a_malformed_receive_for_a_write_with_immediate)
{
	const struct shm_sge pieces[5] = { sge_at(&raw.end, 65536, 8) };

	post_receive(&raw.end, raw.qp, 1, pieces, 5);
	packet(OP_RC_WRITE_FIRST, P, 2048, 1024);
	raw_expect_ack(&raw, P, 0);
	packet(OP_RC_WRITE_LAST_IMM, P + 1, 0, 1024);
	raw_expect_nak(&raw, P + 1, 0x63);
	expect_cqe(raw.qp, 1, NT_INTERNAL_ERROR);
	cr_assert_eq(raw.end.bytes[1024], 1024 % 251, "refused before its bytes");
	expect_error(VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
}

/* RESP-LEN-3: a SEND has no RETH, and no message is longer than 2^31 bytes all the same. */
Test(corners, a_send_longer_than_any_message)
{
	const uint32_t packets = 0x80000000u / 4096;
	struct qp_connection connection = rig_connection();
	struct shm_sge pieces[4];

	connection.path_mtu = 4096;
	reopen_at(connection, P);
	for (uint32_t i = 0; i < 4; i++)
		pieces[i] = sge_at(&raw.end, 0, 0xffffffff);
	post_receive(&raw.end, raw.qp, 1, pieces, 4);
	packet(OP_RC_SEND_FIRST, P, 0, 4096);
	raw_expect_ack(&raw, P, 0);
	record()->responder = responder_word(P + packets, 0, 0, MESSAGE_SEND);
	packet(OP_RC_SEND_LAST, P + packets, 0, 1);
	raw_expect_nak(&raw, P + packets, 0x61);
	expect_cqe(raw.qp, 1, NT_DATA_OVERRUN);
	expect_error(VERDICT(RECEIVE_TOO_SMALL), SHM_ASYNC_QP_INVALID_REQUEST);
}

/* RESP-LEN-3, RESP-TOKEN-2: 2^31 bytes are a message, if there is memory for it. */
Test(corners, as_long_as_a_message_may_be)
{
	static const uint8_t opcodes[] = { OP_RC_WRITE_FIRST, OP_RC_READ_REQUEST };

	for (uint32_t i = 0; i < 2; i++) {
		reopen_at(rig_connection(), P);
		packet(opcodes[i], P, 0x80000000u, i ? 0 : 1024);
		raw_expect_nak(&raw, P, 0x62);
		expect_error(VERDICT_ACCESS + ACCESS_RANGE, SHM_ASYNC_QP_ACCESS_ERROR);
		cr_assert_eq(raw.end.bytes[0], 0, "no byte of it");
	}
}

/* RESP-CLASS-5: the NAK of a gap would have acknowledged what is before; the gap has closed. */
Test(corners, class_j_where_a_nak_waited)
{
	post_sink(1, 64);
	raw.end.room = 0;
	burst(OP_RC_WRITE_ONLY, P, 8, 8, true);
	burst(OP_RC_WRITE_ONLY, P + 2, 8, 8, false);
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_SEND_ONLY_INV,
						  .psn = P + 1,
						  .token = 0xdead,
						  .ack_request = true });
	settle();
	raw.end.room = 100;
	settle();
	raw_expect_ack(&raw, P, 1);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 1, NT_INVALID_DEVICE_REQUEST);
	expect_error(VERDICT(REMOTE_INVALIDATE), SHM_ASYNC_QP_ACCESS_ERROR);
}
