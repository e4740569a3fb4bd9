/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder against hand-made frames: sequence, lengths, ranges, replay, RNR, classes. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

static struct raw raw;
static uint8_t payload[4096];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_create(&raw, rig_connection());
	for (uint32_t i = 0; i < 4096; i++)
		raw.end.bytes[i] = (uint8_t)(i % 251);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(responder, .init = setup, .fini = teardown);

static void write_packet(uint8_t opcode, uint32_t psn, uint32_t length, uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .address = V, .token = K, .length = length,
		 .payload = payload, .payload_length = bytes, .ack_request = true);
}

static void post_receives(uint32_t count, uint32_t length)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, 65536 + i * 4096, length);

		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

/* Dead: one error event, nothing is answered any more. */
static void expect_dead(uint32_t verdict, uint32_t async)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);
	const uint64_t dead = end_verdicts(&raw.end, VERDICT(QP_DEAD));

	cr_assert_not_null(event);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	cr_assert_eq(event->object, raw.qp->index);
	cr_assert_eq(event->value, verdict, "verdict %u (%s), not %u", event->value,
		     verdict_name(event->value), verdict);
	cr_assert_eq(event->async, async);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
	raw_expect_none(&raw);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_DEAD)), dead + 1);
}

/* --- lengths and sequence ------------------------------------------------------------- */

Test(responder, w01_reth_longer_than_the_payloads)
{
	write_packet(OP_RC_WRITE_FIRST, P, 3072, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_MIDDLE, P + 1, 0, 1024);
	raw_expect_ack(&raw, P + 1, 0);
	write_packet(OP_RC_WRITE_LAST, P + 2, 0, 512);
	raw_expect_nak(&raw, P + 2, 0x61);
	cr_assert_eq(raw.end.bytes[2048], 2048 % 251, "at most the first 2048 bytes change");
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
	expect_no_cqe(raw.qp);
}

Test(responder, w03a_b19_first_shorter_than_the_mtu)
{
	write_packet(OP_RC_WRITE_FIRST, P, 2044, 1020);
	raw_expect_nak(&raw, P, 0x61);
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, w03b_b19_middle_shorter_than_the_mtu)
{
	write_packet(OP_RC_WRITE_FIRST, P, 3000, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_MIDDLE, P + 1, 0, 1023);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, w03c_b19_empty_last)
{
	write_packet(OP_RC_WRITE_FIRST, P, 1024, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_LAST, P + 1, 0, 0);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, w03d_b19_only_longer_than_the_mtu)
{
	write_packet(OP_RC_WRITE_ONLY, P, 1028, 1028);
	raw_expect_nak(&raw, P, 0x61);
	cr_assert_eq(raw.end.bytes[0], 0);
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, b19_middle_longer_than_the_mtu)
{
	write_packet(OP_RC_WRITE_FIRST, P, 4096, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_MIDDLE, P + 1, 0, 1028);
	raw_expect_nak(&raw, P + 1, 0x61);
}

Test(responder, write_only_of_another_length_than_its_reth)
{
	write_packet(OP_RC_WRITE_ONLY, P, 5, 6);
	raw_expect_nak(&raw, P, 0x61);
}

Test(responder, last_without_first)
{
	write_packet(OP_RC_WRITE_LAST, P, 0, 8);
	raw_expect_nak(&raw, P, 0x61);
	expect_dead(VERDICT(OPCODE_SEQUENCE), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, only_in_the_middle_of_a_message)
{
	write_packet(OP_RC_WRITE_FIRST, P, 2048, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_dead(VERDICT(OPCODE_SEQUENCE), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, send_middle_in_a_write)
{
	post_receives(1, 4096);
	write_packet(OP_RC_WRITE_FIRST, P, 3072, 1024);
	raw_expect_ack(&raw, P, 0);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_MIDDLE, .psn = P + 1, .payload_length = 1024);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_cqe(raw.qp, 100, NT_CANCELLED);
}

Test(responder, class_c_completes_the_receive_in_use_in_error)
{
	post_receives(3, 4096);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_FIRST, .psn = P, .payload_length = 1024);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P + 1, .payload_length = 8);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_cqe(raw.qp, 100, NT_DATA_ERROR);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_cqe(raw.qp, 102, NT_CANCELLED);
	expect_no_cqe(raw.qp);
}

/* --- PSN ------------------------------------------------------------------------------ */

Test(responder, w11_one_nak_for_a_gap)
{
	write_packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_nak(&raw, P, 0x60);
	write_packet(OP_RC_WRITE_ONLY, P + 2, 8, 8);
	write_packet(OP_RC_WRITE_ONLY, P + 3, 8, 8);
	write_packet(OP_RC_WRITE_ONLY, P + 5, 8, 8);
	raw_expect_none(&raw);
	cr_assert_eq(raw.end.bytes[1], 1, "early packets touch nothing");
	for (uint32_t i = 0; i < 4; i++) {
		write_packet(OP_RC_WRITE_ONLY, P + i, 8, 8);
		raw_expect_ack(&raw, P + i, i + 1);
	}
	cr_assert_arr_eq(raw.end.bytes, payload, 8);
	/* After an accepted packet a new gap is told again. */
	write_packet(OP_RC_WRITE_ONLY, P + 6, 8, 8);
	raw_expect_nak(&raw, P + 4, 0x60);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(PSN_AHEAD)), 2);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(PSN_AHEAD_SILENT)), 3);
}

Test(responder, w11_duplicates_are_answered_in_a_gap)
{
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
	write_packet(OP_RC_WRITE_ONLY, P + 2, 8, 8);
	raw_expect_nak(&raw, P + 1, 0x60);
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
}

Test(responder, half_of_the_circle_is_ahead_and_half_behind)
{
	write_packet(OP_RC_WRITE_ONLY, P + 0x7fffff, 8, 8);
	raw_expect_nak(&raw, P, 0x60);
	write_packet(OP_RC_WRITE_ONLY, P + 0x800000, 8, 8);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(DUPLICATE)), 1);
	cr_assert_eq(raw.end.bytes[1], 1);
}

Test(responder, duplicate_write_is_not_executed)
{
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	write_packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_ack(&raw, P, 1);
	raw_expect_ack(&raw, P + 1, 2);
	memset(raw.end.bytes, 0x77, 8);
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P + 1, 2);
	cr_assert_eq(raw.end.bytes[0], 0x77);
}

/* rdma_rxe completes a READ by a plain ACK that has its PSN. */
Test(responder, duplicate_write_is_not_acknowledged_with_the_psn_of_a_read)
{
	struct wire_view view;

	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P + 1, .address = V, .token = K,
		 .length = 8);
	cr_assert(raw_receive(&raw, &view));
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 2);
}

Test(responder, duplicate_before_anything_was_executed)
{
	write_packet(OP_RC_WRITE_ONLY, P - 1, 8, 8);
	raw_expect_ack(&raw, P - 1, 0);
	cr_assert_eq(raw.end.bytes[1], 1);
}

Test(responder, acks_coalesce_within_a_burst)
{
	for (uint32_t i = 0; i < 10; i++)
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
							  .psn = P + i,
							  .ack_request = true });
	end_poll(&raw.end, raw.now);
	raw_expect_ack(&raw, P + 9, 10);
	raw_expect_none(&raw);
}

Test(responder, no_ack_unless_asked)
{
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P);
	raw_expect_none(&raw);
}

Test(responder, b22_msn_counts_every_message_once)
{
	struct wire_view view;

	post_receives(1, 64);
	for (uint32_t i = 0; i < 3; i++) {
		write_packet(OP_RC_WRITE_ONLY, P + i, 8, 8);
		raw_expect_ack(&raw, P + i, i + 1);
	}
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P + 3, .address = V, .token = K,
		 .length = 8);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(be24_get(view_aeth(&view)->msn), 4);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P + 4, .address = V, .token = K);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(be24_get(view_aeth(&view)->msn), 5);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P + 5, .ack_request = true);
	raw_expect_ack(&raw, P + 5, 6);
	/* Duplicates add nothing. */
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P + 5, 6);
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P + 3, .address = V, .token = K,
		 .length = 8);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(be24_get(view_aeth(&view)->msn), 6);
}

Test(responder, psn_and_msn_wrap)
{
	struct qp_connection connection = rig_connection();
	uint32_t psn = 0xfffffe;

	raw_destroy(&raw);
	raw_create_at(&raw, connection, psn);
	for (uint32_t i = 0; i < 5; i++) {
		write_packet(OP_RC_WRITE_ONLY, psn + i, 8, 8);
		raw_expect_ack(&raw, psn + i, i + 1);
	}
	write_packet(OP_RC_WRITE_ONLY, psn, 8, 8);
	raw_expect_ack(&raw, psn + 4, 5);
	write_packet(OP_RC_WRITE_ONLY, psn + 6, 8, 8);
	raw_expect_nak(&raw, psn + 5, 0x60);
}

/* --- silent drops --------------------------------------------------------------------- */

Test(responder, frames_of_another_address_are_dropped)
{
	const struct frame_template good = raw.template;
	const struct gid stranger = { { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 98 } };
	struct frame_path path = { .hop_limit = 64 };

	memcpy(path.source_gid, stranger.raw, 16);
	memcpy(path.destination_gid, raw.end.gid, 16);
	frame_template_init(&raw.template, &path);
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(NOT_PEER)), 1);
	cr_assert_eq(raw.end.bytes[1], 1);
	raw.template = good;
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
}

Test(responder, other_services_are_dropped)
{
	RAW_SEND(&raw, .opcode = OP_UC_SEND_ONLY, .psn = P);
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY, .psn = P);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_TYPE)), 2);
}

/* --- rights, tokens, ranges ----------------------------------------------------------- */

Test(responder, w05_b42_ranges_that_wrap)
{
	write_packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 1);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P + 1, .address = 0xfffffffffffffc00,
		 .token = K, .length = 0x400, .payload = payload, .payload_length = 0x400);
	raw_expect_nak(&raw, P + 1, 0x62);
	expect_dead(VERDICT_ACCESS + ACCESS_RANGE, SHM_ASYNC_QP_ACCESS_ERROR);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 1);
}

Test(responder, w05_b42_read_that_wraps)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = 0xfffffffffffffc00,
		 .token = K, .length = 0x400);
	raw_expect_nak(&raw, P, 0x62);
	expect_dead(VERDICT_ACCESS + ACCESS_RANGE, SHM_ASYNC_QP_ACCESS_ERROR);
}

Test(responder, w05_read_longer_than_any_message)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V, .token = K,
		 .length = 0x80000001);
	raw_expect_nak(&raw, P, 0x61);
	expect_dead(VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, b42_one_byte_before_and_behind)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V - 1, .token = K,
		 .length = 2);
	raw_expect_nak(&raw, P, 0x62);
}

Test(responder, b42_one_byte_behind)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V + RIG_MEMORY,
		 .token = K, .length = 1);
	raw_expect_nak(&raw, P, 0x62);
}

Test(responder, b59_local_token_is_no_remote_one)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V,
		 .token = raw.end.local_token, .length = 8);
	raw_expect_nak(&raw, P, 0x62);
	expect_dead(VERDICT_ACCESS + ACCESS_KIND, SHM_ASYNC_QP_ACCESS_ERROR);
}

Test(responder, token_0_is_never_good)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V, .length = 8);
	raw_expect_nak(&raw, P, 0x62);
}

static void reopen(uint8_t rights, uint8_t reads_in)
{
	struct qp_connection connection = rig_connection();

	raw_destroy(&raw);
	connection.remote_rights = rights;
	connection.max_reads_in = reads_in;
	raw_create(&raw, connection);
}

Test(responder, queue_pair_without_the_right_is_0x61)
{
	static const uint8_t opcodes[] = { OP_RC_WRITE_ONLY, OP_RC_READ_REQUEST, OP_RC_FETCH_ADD,
					   OP_RC_COMPARE_SWAP };
	static const uint8_t rights[] = { RIGHT_REMOTE_READ | RIGHT_REMOTE_ATOMIC,
					  RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC,
					  RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE,
					  RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE };

	for (int i = 0; i < 4; i++) {
		reopen(rights[i], 4);
		RAW_SEND(&raw, .opcode = opcodes[i], .psn = P, .address = V, .token = K);
		raw_expect_nak(&raw, P, 0x61);
		expect_dead(VERDICT(OPERATION), SHM_ASYNC_QP_INVALID_REQUEST);
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
	}
}

Test(responder, b37_zero_length_needs_no_token)
{
	struct wire_view view;

	for (int i = 0; i < 2; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true);
		raw_expect_ack(&raw, P, 1);
	}
	for (int i = 0; i < 2; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P + 1);
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
		cr_assert_eq(view.payload_length, 0);
		cr_assert_eq(view.psn, P + 1);
		raw_expect_none(&raw);
	}
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
}

Test(responder, b54_event_with_and_without_receives)
{
	post_receives(2, 64);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .address = V, .token = K ^ 1,
		 .length = 8, .payload_length = 8);
	raw_expect_nak(&raw, P, 0x62);
	expect_cqe(raw.qp, 100, NT_CANCELLED);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	cr_assert_eq(end_find_event(&raw.end, TRANSPORT_QP_ERROR)->async,
		     SHM_ASYNC_QP_ACCESS_ERROR);
}

/* --- READ ----------------------------------------------------------------------------- */

static void expect_response(uint8_t opcode, uint32_t psn, uint32_t offset, uint32_t length)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no response %#x", psn);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	cr_assert_eq(view.psn, psn & PSN_MASK);
	cr_assert_eq(view.payload_length, length);
	cr_assert_arr_eq(view.payload, raw.end.bytes + offset, length);
}

static void read_packet(uint32_t psn, uint32_t offset, uint32_t length)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = psn, .address = V + offset, .token = K,
		 .length = length);
}

Test(responder, read_takes_as_many_psns_as_it_has_responses)
{
	read_packet(P, 0, 2500);
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 0, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 2, 2048, 452);
	write_packet(OP_RC_WRITE_ONLY, P + 3, 8, 8);
	raw_expect_ack(&raw, P + 3, 2);
}

Test(responder, duplicate_read_whole_and_from_the_middle)
{
	read_packet(P, 100, 2500);
	for (int i = 0; i < 3; i++) {
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
	}
	/* Executed again: memory may have changed. */
	raw.end.bytes[100] ^= 0xff;
	read_packet(P, 100, 2500);
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 100, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 1, 1124, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 2, 2148, 452);
	read_packet(P + 1, 1124, 1476);
	expect_response(OP_RC_READ_RESPONSE_FIRST, P + 1, 1124, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 2, 2148, 452);
	read_packet(P + 2, 2148, 452);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 2, 2148, 452);
	/* Less than the rest is served, too. */
	read_packet(P, 100, 10);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P, 100, 10);
	raw_expect_none(&raw);
	write_packet(OP_RC_WRITE_ONLY, P + 3, 8, 8);
	raw_expect_ack(&raw, P + 3, 2);
}

Test(responder, w09_duplicate_read_that_asks_for_more)
{
	read_packet(P, 8, 1024);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P, 8, 1024);
	read_packet(P, 8, 1028);
	read_packet(P, 0, 1024);
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V + 8,
		 .token = raw.end.tokens[0], .length = 1024);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(DUPLICATE_UNKNOWN)), 3);
	write_packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_ack(&raw, P + 1, 2);
}

Test(responder, duplicate_older_than_what_is_kept)
{
	for (uint32_t i = 0; i < 40; i++) {
		read_packet(P + i, i, 8);
		expect_response(OP_RC_READ_RESPONSE_ONLY, P + i, i, 8);
	}
	read_packet(P, 0, 8);
	raw_expect_none(&raw);
	read_packet(P + 36, 36, 8);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 36, 36, 8);
}

Test(responder, answers_behind_a_read_leave_in_psn_order)
{
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
						  .psn = P,
						  .address = V,
						  .token = K,
						  .length = 3000 });
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_FETCH_ADD,
						  .psn = P + 3,
						  .address = V + 8192,
						  .token = K });
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
						  .psn = P + 4,
						  .ack_request = true });
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY, .psn = P + 6 });
	end_poll(&raw.end, raw.now);
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 0, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 2, 2048, 952);
	{
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.opcode, OP_RC_ATOMIC_ACKNOWLEDGE);
		cr_assert_eq(view.psn, P + 3);
	}
	/* The NAK for the gap acknowledges the WRITE as well. */
	raw_expect_nak(&raw, P + 5, 0x60);
	raw_expect_none(&raw);
}

Test(responder, fatal_nak_waits_for_the_read_before_it)
{
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
						  .psn = P,
						  .address = V,
						  .token = K,
						  .length = 1024 * 40 });
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_MIDDLE,
						  .psn = P + 40,
						  .payload_length = 1024 });
	for (int i = 0; i < 10; i++)
		end_poll(&raw.end, raw.now);
	for (uint32_t i = 0; i < 40; i++) {
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.psn, P + i);
		cr_assert(view.op->flags & OPF_READ);
	}
	raw_expect_nak(&raw, P + 40, 0x61);
	expect_dead(VERDICT(OPCODE_SEQUENCE), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, no_transmit_buffer_loses_nothing)
{
	raw.end.room = 1;
	read_packet(P, 0, 4096);
	expect_response(OP_RC_READ_RESPONSE_FIRST, P, 0, 1024);
	raw_expect_none(&raw);
	/* It asks again soon, and not without pause. */
	cr_assert_gt(transport_next_deadline(raw.end.worker[0], raw.now), raw.now);
	cr_assert_leq(transport_next_deadline(raw.end.worker[0], raw.now), raw.now + 100000);
	raw.end.room = 2;
	end_poll(&raw.end, raw.now);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 1, 1024, 1024);
	expect_response(OP_RC_READ_RESPONSE_MIDDLE, P + 2, 2048, 1024);
	raw.end.room = 10;
	end_poll(&raw.end, raw.now);
	expect_response(OP_RC_READ_RESPONSE_LAST, P + 3, 3072, 1024);
}

Test(responder, w25_one_read_too_many)
{
	raw.end.room = 0;
	for (uint32_t i = 0; i < 4; i++)
		read_packet(P + 4 * i, 0, 4096);
	/* A duplicate of an outstanding one does not count. */
	read_packet(P + 4, 0, 4096);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(READ_LIMIT)), 0);
	read_packet(P + 16, 0, 4096);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(READ_LIMIT)), 1);
	raw.end.room = 1000;
	for (int i = 0; i < 10; i++)
		end_poll(&raw.end, raw.now);
	for (uint32_t i = 0; i < 16; i++) {
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.psn, P + i);
	}
	raw_expect_nak(&raw, P + 16, 0x61);
	expect_dead(VERDICT(READ_LIMIT), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, w25_as_many_as_agreed_again_and_again)
{
	for (uint32_t round = 0; round < 100; round++)
		for (uint32_t i = 0; i < 4; i++) {
			read_packet(P + 4 * round + i, i, 16);
			expect_response(OP_RC_READ_RESPONSE_ONLY, P + 4 * round + i, i, 16);
		}
}

Test(responder, b38_no_reads_agreed)
{
	reopen(RIGHTS_REMOTE, 0);
	read_packet(P, 0, 8);
	raw_expect_nak(&raw, P, 0x61);
	expect_dead(VERDICT(READ_LIMIT), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(responder, b38_no_atomics_agreed)
{
	reopen(RIGHTS_REMOTE, 0);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K);
	raw_expect_nak(&raw, P, 0x61);
}

/* --- atomics -------------------------------------------------------------------------- */

static void expect_atomic(uint32_t psn, uint64_t original)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_ATOMIC_ACKNOWLEDGE);
	cr_assert_eq(view.psn, psn);
	cr_assert_eq(be64_get(view_atomic_ack(&view)->original), original);
}

Test(responder, w07_atomic_is_executed_once)
{
	uint64_t *target = (uint64_t *)(void *)raw.end.bytes;

	*target = 5;
	for (int i = 0; i < 2; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K,
			 .swap = 7);
		expect_atomic(P, 5);
	}
	cr_assert_eq(*target, 12);
	read_packet(P + 1, 0, 8);
	expect_response(OP_RC_READ_RESPONSE_ONLY, P + 1, 0, 8);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K, .swap = 9);
	expect_atomic(P, 5);
	RAW_SEND(&raw, .opcode = OP_RC_COMPARE_SWAP, .psn = P, .address = V, .token = K, .swap = 9,
		 .compare = 12);
	raw_expect_none(&raw);
	cr_assert_eq(*target, 12);
}

Test(responder, compare_swap_only_when_equal)
{
	uint64_t *target = (uint64_t *)(void *)raw.end.bytes;

	*target = 100;
	RAW_SEND(&raw, .opcode = OP_RC_COMPARE_SWAP, .psn = P, .address = V, .token = K,
		 .compare = 99, .swap = 1);
	expect_atomic(P, 100);
	cr_assert_eq(*target, 100);
	RAW_SEND(&raw, .opcode = OP_RC_COMPARE_SWAP, .psn = P + 1, .address = V, .token = K,
		 .compare = 100, .swap = 1);
	expect_atomic(P + 1, 100);
	cr_assert_eq(*target, 1);
}

Test(responder, b10_refused_atomic_is_a_plain_nak)
{
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K ^ 4);
	raw_expect_nak(&raw, P, 0x62);
}

Test(responder, alignment_comes_before_the_token)
{
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V + 4, .token = K ^ 4);
	raw_expect_nak(&raw, P, 0x61);
	expect_dead(VERDICT(ATOMIC_ALIGNMENT), SHM_ASYNC_QP_INVALID_REQUEST);
}

/* --- SEND ----------------------------------------------------------------------------- */

Test(responder, rnr_until_a_receive_is_posted)
{
	for (int i = 0; i < 3; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload,
			 .payload_length = 30, .ack_request = true);
		raw_expect_nak(&raw, P, 0x20 | 12);
	}
	/* What follows is as if lost: the peer comes back to P anyhow. */
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P + 1);
	raw_expect_none(&raw);
	post_receives(1, 64);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload,
		 .payload_length = 30, .ack_request = true);
	raw_expect_ack(&raw, P, 1);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 30);
	cr_assert_arr_eq(raw.end.bytes + 65536, payload, 30);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->tx_rnr, 3);
}

Test(responder, rnr_at_the_end_of_a_write_with_immediate)
{
	write_packet(OP_RC_WRITE_FIRST, P, 1500, 1024);
	raw_expect_ack(&raw, P, 0);
	write_packet(OP_RC_WRITE_LAST_IMM, P + 1, 0, 476);
	raw_expect_nak(&raw, P + 1, 0x2c);
	post_receives(1, 0);
	write_packet(OP_RC_WRITE_LAST_IMM, P + 1, 0, 476);
	raw_expect_ack(&raw, P + 1, 1);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 1500);
}

Test(responder, send_longer_than_the_receive)
{
	post_receives(2, 64);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload,
		 .payload_length = 65);
	raw_expect_nak(&raw, P, 0x61);
	expect_cqe(raw.qp, 100, NT_DATA_OVERRUN);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_dead(VERDICT(RECEIVE_TOO_SMALL), SHM_ASYNC_QP_INVALID_REQUEST);
	cr_assert_eq(raw.end.bytes[65536], 0);
}

Test(responder, class_a_receive_with_a_bad_token)
{
	const struct shm_sge bad = { RIG_BASE, 64, 0x1234 }, good = sge_at(&raw.end, 0, 64);

	post_receive(&raw.end, raw.qp, 1, &bad, 1);
	post_receive(&raw.end, raw.qp, 2, &good, 1);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload,
		 .payload_length = 8);
	raw_expect_nak(&raw, P, 0x63);
	expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 2, NT_CANCELLED);
	expect_dead(VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0, "not the peer's fault");
}

Test(responder, receive_of_write_with_immediate_and_a_bad_token)
{
	post_receives(2, 64);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY_IMM, .psn = P, .address = V, .token = 3,
		 .length = 8, .payload_length = 8);
	raw_expect_nak(&raw, P, 0x62);
	expect_cqe(raw.qp, 100, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
}

Test(responder, solicited_is_told_for_the_last_packet)
{
	post_receives(2, 4096);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .solicited = true);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).solicited, 1);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P + 1);
	cr_assert_eq(expect_cqe(raw.qp, 101, 0).solicited, 0);
}
