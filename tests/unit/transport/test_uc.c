/* SPDX-License-Identifier: BSD-3-Clause */
/* Unreliable connections: what is dropped, what is kept, and that nothing is ever answered. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "rig.h"

#define P    RAW_PSN
#define S    RAW_SEND_PSN
#define V    RIG_BASE
#define K    raw.end.remote_token
#define SINK 65536u

static struct raw raw;
static uint8_t payload[8192];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_create_type(&raw, SHM_QP_UC, rig_connection());
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(uc, .init = setup, .fini = teardown);

static void post_receives(uint32_t count, uint32_t length)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, SINK + i * 4096, length);

		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

static void send_packet(uint8_t opcode, uint32_t psn, uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .payload = payload, .payload_length = bytes,
		 .ack_request = true);
}

static void write_packet(uint8_t opcode, uint32_t psn, uint32_t length, uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .address = V, .token = K, .length = length,
		 .payload = payload, .payload_length = bytes, .ack_request = true);
}

/* The last frame was dropped for this reason, once, in silence, and the queue pair lives. */
static void expect_dropped(uint32_t verdict)
{
	cr_assert_eq(transport_last_verdict(raw.end.worker[0]), verdict, "verdict %s, not %s",
		     verdict_name(transport_last_verdict(raw.end.worker[0])),
		     verdict_name(verdict));
	raw_expect_none(&raw);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_RTS);
	expect_no_cqe(raw.qp);
}

static void expect_taken(void)
{
	cr_assert_eq(transport_last_verdict(raw.end.worker[0]), 0, "%s",
		     verdict_name(transport_last_verdict(raw.end.worker[0])));
	raw_expect_none(&raw);
}

static uint64_t resyncs(void)
{
	return transport_get_stats(raw.end.worker[0])->uc_resync;
}

/* --- messages that arrive whole ------------------------------------------------------- */

Test(uc, send_is_delivered_and_never_acknowledged)
{
	struct shm_cqe cqe;

	post_receives(2, 4096);
	send_packet(OP_UC_SEND_ONLY, P, 100);
	expect_taken();
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.bytes, 100);
	cr_assert_eq(cqe.flags, 0, "no GRH with connections");
	cr_assert_arr_eq(raw.end.bytes + SINK, payload, 100);
	send_packet(OP_UC_SEND_ONLY, P + 1, 0);
	expect_taken();
	cr_assert_eq(expect_cqe(raw.qp, 101, 0).bytes, 0);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ESTABLISHED), 1);
}

Test(uc, send_of_many_packets_with_immediate_and_solicited_event)
{
	struct shm_cqe cqe;

	post_receives(1, 4096);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	RAW_SEND(&raw, .opcode = OP_UC_SEND_MIDDLE, .psn = P + 1, .payload = payload + 1024,
		 .payload_length = 1024);
	expect_no_cqe(raw.qp);
	RAW_SEND(&raw, .opcode = OP_UC_SEND_LAST_IMM, .psn = P + 2, .payload = payload + 2048,
		 .payload_length = 52, .immediate = 0x11223344, .solicited = true);
	expect_taken();
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.bytes, 2100);
	cr_assert_eq(cqe.type, 0x2001);
	cr_assert_eq(cqe.output, 0x11223344);
	cr_assert_eq(cqe.solicited, 1);
	cr_assert_arr_eq(raw.end.bytes + SINK, payload, 2100);
	cr_assert_eq(resyncs(), 0);
}

Test(uc, write_of_many_packets)
{
	write_packet(OP_UC_WRITE_FIRST, P, 2060, 1024);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_MIDDLE, .psn = P + 1, .payload = payload + 1024,
		 .payload_length = 1024);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_LAST, .psn = P + 2, .payload = payload + 2048,
		 .payload_length = 12);
	expect_taken();
	cr_assert_arr_eq(raw.end.bytes, payload, 2060);
	expect_no_cqe(raw.qp);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->rx_write, 1);
}

Test(uc, write_with_immediate_takes_one_receive)
{
	struct shm_cqe cqe;

	post_receives(1, 8);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY_IMM, .psn = P, .address = V, .token = K,
		 .length = 60, .immediate = 7, .payload = payload, .payload_length = 60);
	expect_taken();
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.bytes, 60);
	cr_assert_eq(cqe.type, 0x4001);
	cr_assert_eq(cqe.output, 7);
	cr_assert_arr_eq(raw.end.bytes, payload, 60);
	cr_assert_eq(raw.end.bytes[SINK], 0, "the receive's memory is not used");
}

/* IBTA C9-88. */
Test(uc, write_of_nothing_looks_at_no_token)
{
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY, .psn = P, .address = 1, .token = 2, .length = 0);
	expect_taken();
}

/* --- sequence ------------------------------------------------------------------------- */

Test(uc, a_gap_in_a_message_drops_the_rest_and_keeps_the_receive)
{
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	send_packet(OP_UC_SEND_MIDDLE, P + 2, 1024);
	expect_dropped(VERDICT(UC_GAP));
	send_packet(OP_UC_SEND_LAST, P + 3, 8);
	expect_dropped(VERDICT(UC_REST));
	send_packet(OP_UC_SEND_ONLY, P + 4, 9);
	expect_taken();
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 9);
	cr_assert_eq(resyncs(), 0, "the next message stood where it was expected");
}

Test(uc, a_message_whose_first_packet_was_lost_is_dropped)
{
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_MIDDLE, P + 1, 1024);
	expect_dropped(VERDICT(UC_GAP));
	send_packet(OP_UC_SEND_LAST, P + 2, 8);
	expect_dropped(VERDICT(UC_REST));
	send_packet(OP_UC_SEND_LAST, P + 3, 8);
	expect_dropped(VERDICT(UC_REST));
}

Test(uc, first_and_only_resynchronise_anywhere)
{
	post_receives(3, 4096);
	send_packet(OP_UC_SEND_ONLY, P + 77, 1);
	expect_taken();
	expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(resyncs(), 1);
	send_packet(OP_UC_SEND_ONLY, P - 5, 2);
	expect_taken();
	expect_cqe(raw.qp, 101, 0);
	cr_assert_eq(resyncs(), 2);
	send_packet(OP_UC_SEND_FIRST, P + 0x7fff00, 1024);
	send_packet(OP_UC_SEND_LAST, P + 0x7fff01, 1);
	expect_taken();
	cr_assert_eq(expect_cqe(raw.qp, 102, 0).bytes, 1025);
}

Test(uc, a_message_goes_over_the_end_of_the_psn_circle)
{
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_FIRST, 0xfffffe, 1024);
	send_packet(OP_UC_SEND_MIDDLE, 0xffffff, 1024);
	send_packet(OP_UC_SEND_LAST, 0, 5);
	expect_taken();
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 2053);
}

Test(uc, a_new_message_in_the_middle_of_another_takes_its_receive)
{
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	send_packet(OP_UC_SEND_ONLY, P + 1, 3);
	expect_taken();
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 3);
	cr_assert_eq(resyncs(), 1);
}

Test(uc, a_write_in_the_middle_of_a_send_ends_it)
{
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	write_packet(OP_UC_WRITE_ONLY, P + 1, 8, 8);
	expect_taken();
	send_packet(OP_UC_SEND_LAST, P + 2, 8);
	expect_dropped(VERDICT(UC_REST));
}

Test(uc, a_packet_of_the_other_kind_drops_the_message)
{
	post_receives(1, 4096);
	write_packet(OP_UC_WRITE_FIRST, P, 3000, 1024);
	send_packet(OP_UC_SEND_MIDDLE, P + 1, 1024);
	expect_dropped(VERDICT(UC_SEQUENCE));
	write_packet(OP_UC_WRITE_MIDDLE, P + 2, 0, 1024);
	expect_dropped(VERDICT(UC_REST));
	cr_assert_eq(raw.end.bytes[1025], 0);
}

/* --- no receive, or not a good one ---------------------------------------------------- */

Test(uc, without_a_receive_a_send_is_dropped)
{
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	expect_dropped(VERDICT(DROPPED_NO_RECEIVE));
	post_receives(1, 4096);
	send_packet(OP_UC_SEND_LAST, P + 1, 8);
	expect_dropped(VERDICT(UC_REST));
	send_packet(OP_UC_SEND_ONLY, P + 2, 8);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 8);
}

Test(uc, write_with_immediate_without_a_receive_is_dropped)
{
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY_IMM, .psn = P, .address = V, .token = K,
		 .length = 8, .payload = payload, .payload_length = 8);
	expect_dropped(VERDICT(DROPPED_NO_RECEIVE));
}

Test(uc, a_receive_that_is_too_small_is_kept)
{
	post_receives(1, 1030);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	send_packet(OP_UC_SEND_LAST, P + 1, 7);
	expect_dropped(VERDICT(UC_TOO_SMALL));
	send_packet(OP_UC_SEND_FIRST, P + 2, 1024);
	send_packet(OP_UC_SEND_LAST, P + 3, 6);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 1030);
}

static void expect_dead(uint32_t verdict)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	raw_expect_none(&raw);
	cr_assert_not_null(event);
	cr_assert_eq(event->value, verdict);
	cr_assert_eq(event->async, SHM_ASYNC_QP_FATAL);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

Test(uc, a_receive_with_a_bad_token_is_our_own_clients_error)
{
	struct shm_sge sge = sge_at(&raw.end, SINK, 64);

	sge.token ^= 0x5a5a;
	post_receive(&raw.end, raw.qp, 7, &sge, 1);
	post_receives(1, 64);
	send_packet(OP_UC_SEND_ONLY, P, 8);
	expect_cqe(raw.qp, 7, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 100, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	expect_dead(VERDICT(RECEIVE_BAD));
}

Test(uc, a_malformed_receive_is_our_own_clients_error)
{
	const struct shm_sge sge[5] = { 0 };

	post_receive(&raw.end, raw.qp, 7, sge, 1);
	((struct shm_rqe *)((uint8_t *)raw.qp->memory + raw.qp->memory->receive.offset))->nsge = 99;
	send_packet(OP_UC_SEND_ONLY, P, 8);
	expect_cqe(raw.qp, 7, NT_INTERNAL_ERROR);
	expect_dead(VERDICT(RECEIVE_BAD));
}

/* --- lengths, rights, tokens ---------------------------------------------------------- */

Test(uc, lengths_that_do_not_fit_are_dropped)
{
	static const struct {
		uint8_t opcode;
		uint32_t reth, bytes;
	} bad[] = {
		{ OP_UC_SEND_FIRST, 0, 1020 },  { OP_UC_SEND_ONLY, 0, 1028 },
		{ OP_UC_WRITE_FIRST, 3000, 8 }, { OP_UC_WRITE_ONLY, 9, 8 },
		{ OP_UC_WRITE_ONLY, 7, 8 },     { OP_UC_WRITE_FIRST, 0x80000001u, 1024 },
		{ OP_UC_WRITE_FIRST, 8, 1024 },
	};

	post_receives(1, 4096);
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_packet(bad[i].opcode, P + i, bad[i].reth, bad[i].bytes);
		expect_dropped(VERDICT(UC_LENGTH));
	}
	cr_assert_eq(raw.end.bytes[1], 0, "nothing was written");
	write_packet(OP_UC_WRITE_FIRST, P + 20, 1024, 1024);
	write_packet(OP_UC_WRITE_LAST, P + 21, 0, 0);
	expect_dropped(VERDICT(UC_LENGTH));
	send_packet(OP_UC_SEND_ONLY, P + 22, 1024);
	expect_cqe(raw.qp, 100, 0);
}

Test(uc, a_bad_token_is_dropped_and_told_to_the_control_core)
{
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY, .psn = P, .address = V, .token = K ^ 1,
		 .length = 8, .payload = payload, .payload_length = 8);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 1);
	cr_assert_gt(transport_last_verdict(raw.end.worker[0]), VERDICT_ACCESS);
	cr_assert_lt(transport_last_verdict(raw.end.worker[0]), VERDICT_LOCAL);
	raw_expect_none(&raw);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY, .psn = P + 1, .address = V + RIG_MEMORY - 4,
		 .token = K, .length = 8, .payload = payload, .payload_length = 8);
	expect_dropped(VERDICT_ACCESS + ACCESS_RANGE);
	/* With immediate: the receive is not touched either. */
	post_receives(1, 8);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_ONLY_IMM, .psn = P + 2, .address = V + RIG_MEMORY - 4,
		 .token = K, .length = 8, .payload = payload, .payload_length = 8);
	expect_dropped(VERDICT_ACCESS + ACCESS_RANGE);
	send_packet(OP_UC_SEND_ONLY, P + 3, 8);
	expect_cqe(raw.qp, 100, 0);
}

Test(uc, the_whole_range_of_a_write_is_checked_first)
{
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_FIRST, .psn = P, .address = V + RIG_MEMORY - 1024,
		 .token = K, .length = 1025, .payload = payload, .payload_length = 1024);
	expect_dropped(VERDICT_ACCESS + ACCESS_RANGE);
	cr_assert_eq(raw.end.bytes[RIG_MEMORY - 1023], 0);
}

Test(uc, a_token_that_dies_in_the_middle_drops_the_rest)
{
	const uint32_t token = end_token(&raw.end);
	const struct shm_sqe bind = { .opcode = SHM_WR_BIND,
				      .request_context = 1,
				      .mr = raw.end.region,
				      .mw = raw.end.window[0],
				      .token = token,
				      .address = V,
				      .length = 4096,
				      .flags = SHM_FLAG_ALLOW_REMOTE_WRITE };

	post_send(&raw.end, raw.qp, bind, NULL, 0);
	end_poll(&raw.end, raw.now);
	expect_cqe(raw.qp, 1, 0);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_FIRST, .psn = P, .address = V, .token = token,
		 .length = 2048, .payload = payload, .payload_length = 1024);
	expect_taken();
	cr_assert_arr_eq(raw.end.bytes, payload, 1024);
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){
			  .opcode = SHM_WR_INVALIDATE, .request_context = 2, .token = token },
		  NULL, 0);
	for (int i = 0; i < 4; i++)
		end_poll(&raw.end, raw.now);
	expect_cqe(raw.qp, 2, 0);
	RAW_SEND(&raw, .opcode = OP_UC_WRITE_LAST, .psn = P + 1, .payload = payload,
		 .payload_length = 1024);
	cr_assert_gt(transport_last_verdict(raw.end.worker[0]), VERDICT_ACCESS);
	cr_assert_eq(raw.end.bytes[1025], 0);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_RTS);
}

Test(uc, opcodes_of_other_services_are_dropped)
{
	static const uint8_t others[] = { OP_RC_SEND_ONLY, OP_RC_READ_REQUEST, OP_RC_FETCH_ADD,
					  OP_RC_ACKNOWLEDGE, OP_UD_SEND_ONLY };

	post_receives(1, 64);
	for (uint32_t i = 0; i < sizeof(others); i++) {
		RAW_SEND(&raw, .opcode = others[i], .psn = P);
		expect_dropped(VERDICT(QP_TYPE));
	}
}

static struct raw guarded;

Test(uc_connection, no_writes_without_the_right)
{
	struct qp_connection connection = rig_connection();

	connection.remote_rights = RIGHT_REMOTE_READ;
	raw_create_type(&guarded, SHM_QP_UC, connection);
	RAW_SEND(&guarded, .opcode = OP_UC_WRITE_ONLY, .psn = P, .address = V,
		 .token = guarded.end.remote_token, .length = 8, .payload_length = 8);
	cr_assert_eq(transport_last_verdict(guarded.end.worker[0]), VERDICT(UC_OPERATION));
	raw_expect_none(&guarded);
	raw_destroy(&guarded);
}

Test(uc_connection, only_its_peer_is_heard)
{
	static const uint8_t other[4] = { 10, 0, 0, 98 };
	struct frame_path path = { .hop_limit = 64 };

	raw_create_type(&guarded, SHM_QP_UC, rig_connection());
	gid_from_v4(path.source_gid, other);
	memcpy(path.destination_gid, guarded.end.gid, 16);
	frame_template_init(&guarded.template, &path);
	RAW_SEND(&guarded, .opcode = OP_UC_SEND_ONLY, .psn = P);
	cr_assert_eq(transport_last_verdict(guarded.end.worker[0]), VERDICT(NOT_PEER));
	raw_destroy(&guarded);
}

/* --- requester ------------------------------------------------------------------------ */

static void post(uint8_t opcode, uint64_t context, uint32_t length, uint32_t flags)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, length);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = opcode,
				    .request_context = context,
				    .address = 0x1000,
				    .token = 0xabcd,
				    .immediate = 0x55667788,
				    .flags = flags },
		  &sge, 1);
}

static void settle(void)
{
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
}

static void expect_packet(uint8_t opcode, uint32_t psn, uint32_t length)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no packet %#x", psn);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	cr_assert_eq(view.psn, psn & PSN_MASK);
	cr_assert_eq(view.payload_length, length);
	cr_assert_not(view.ack_request, "nobody will acknowledge");
}

Test(uc, requests_leave_in_packets_that_ask_for_no_ack)
{
	fill(raw.end.bytes, 4096, 9);
	post(SHM_WR_SEND, 1, 2100, 0);
	post(SHM_WR_WRITE, 2, 1025, 0);
	post(SHM_WR_SEND_IMMEDIATE, 3, 8, SHM_FLAG_SOLICIT);
	post(SHM_WR_WRITE_IMMEDIATE, 4, 0, 0);
	settle();
	for (uint64_t i = 1; i <= 4; i++)
		expect_cqe(raw.qp, i, 0);
	expect_packet(OP_UC_SEND_FIRST, S, 1024);
	expect_packet(OP_UC_SEND_MIDDLE, S + 1, 1024);
	expect_packet(OP_UC_SEND_LAST, S + 2, 52);
	expect_packet(OP_UC_WRITE_FIRST, S + 3, 1024);
	expect_packet(OP_UC_WRITE_LAST, S + 4, 1);
	expect_packet(OP_UC_SEND_ONLY_IMM, S + 5, 8);
	expect_packet(OP_UC_WRITE_ONLY_IMM, S + 6, 0);
	raw_expect_none(&raw);
	cr_assert_eq(transport_next_deadline(raw.end.worker[0], raw.now), UINT64_MAX,
		     "nothing is waited for");
	cr_assert_eq(raw.qp->memory->send.done, 4);
}

Test(uc, silent_requests_complete_silently)
{
	post(SHM_WR_SEND, 1, 8, SHM_FLAG_SILENT_SUCCESS);
	post(SHM_WR_SEND, 2, 8, 0);
	settle();
	expect_cqe(raw.qp, 2, 0);
	expect_no_cqe(raw.qp);
	cr_assert_eq(raw.qp->memory->send.done, 2);
}

Test(uc, without_buffers_a_message_waits_and_goes_on)
{
	raw.end.room = 2;
	post(SHM_WR_SEND, 1, 3000, 0);
	end_poll(&raw.end, raw.now);
	end_poll(&raw.end, raw.now);
	expect_packet(OP_UC_SEND_FIRST, S, 1024);
	expect_packet(OP_UC_SEND_MIDDLE, S + 1, 1024);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
	raw.end.room = 10;
	settle();
	expect_packet(OP_UC_SEND_LAST, S + 2, 952);
	expect_cqe(raw.qp, 1, 0);
}

Test(uc, what_uc_cannot_do_fails_where_it_was_posted)
{
	static const uint8_t others[] = { SHM_WR_READ, SHM_WR_FETCH_ADD, SHM_WR_COMPARE_SWAP,
					  SHM_WR_SEND_INVALIDATE };

	for (uint32_t i = 0; i < sizeof(others); i++) {
		struct raw *r = calloc(1, sizeof(*r));
		const struct transport_event *event;

		raw_create_type(r, SHM_QP_UC, rig_connection());
		post_send(&r->end, r->qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 1 }, NULL, 0);
		post_send(&r->end, r->qp,
			  (struct shm_sqe){ .opcode = others[i], .request_context = 2 },
			  &(struct shm_sge){ RIG_BASE, 8, r->end.local_token }, 1);
		post_send(&r->end, r->qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 3 }, NULL, 0);
		end_poll(&r->end, r->now);
		end_poll(&r->end, r->now);
		expect_cqe(r->qp, 1, 0);
		cr_assert_eq(expect_cqe(r->qp, 2, NT_INVALID_DEVICE_REQUEST).provider_error,
			     VERDICT(WR_OPERATION));
		expect_cqe(r->qp, 3, NT_CANCELLED);
		event = end_find_event(&r->end, TRANSPORT_QP_ERROR);
		cr_assert_not_null(event);
		cr_assert_eq(event->value, VERDICT(WR_OPERATION));
		raw_destroy(r);
		free(r);
	}
}

Test(uc, memory_that_goes_away_in_the_middle_fails_the_request)
{
	struct segment *segment = arena_record(&raw.end.arena, ARENA_SEGMENTS, raw.end.segment);

	raw.end.room = 1;
	post(SHM_WR_SEND, 1, 3000, 0);
	end_poll(&raw.end, raw.now);
	segment->poisoned = 1;
	raw.end.room = 10;
	settle();
	expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION);
	expect_packet(OP_UC_SEND_FIRST, S, 1024);
	raw_expect_none(&raw);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

/* --- a daemon's death ----------------------------------------------------------------- */

Test(uc, an_adopted_message_goes_on_where_it_was)
{
	raw.end.room = 2;
	post(SHM_WR_SEND, 1, 4000, 0);
	post(SHM_WR_SEND, 2, 8, 0);
	end_poll(&raw.end, raw.now);
	expect_packet(OP_UC_SEND_FIRST, S, 1024);
	expect_packet(OP_UC_SEND_MIDDLE, S + 1, 1024);
	end_restart(&raw.end, raw.now);
	raw.end.room = 10;
	settle();
	expect_packet(OP_UC_SEND_MIDDLE, S + 2, 1024);
	expect_packet(OP_UC_SEND_LAST, S + 3, 928);
	expect_packet(OP_UC_SEND_ONLY, S + 4, 8);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
	expect_no_cqe(raw.qp);
}

Test(uc, an_adopted_receiver_goes_on_in_the_middle_of_a_message)
{
	post_receives(2, 4096);
	send_packet(OP_UC_SEND_FIRST, P, 1024);
	end_restart(&raw.end, raw.now);
	send_packet(OP_UC_SEND_LAST, P + 1, 6);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 1030);
	expect_no_cqe(raw.qp);
}

/* --- two ends ------------------------------------------------------------------------- */

static struct rig rig;

static bool lose_some(struct rig *r, bool from_a, uint32_t n, const struct wire_view *view)
{
	(void)r;
	(void)view;
	return from_a && n % 7 == 3;
}

/* Whatever is lost: each message arrives whole, in order, or not at all. */
Test(uc_connection, messages_arrive_whole_or_not_at_all)
{
	struct qp_config config = { .type = SHM_QP_UC,
				    .send_depth = 64,
				    .receive_depth = 64,
				    .send_sge = 4,
				    .receive_sge = 4 };
	struct qp_config other = config;
	struct rig_qp *qa, *qb;
	struct shm_cqe cqe;
	uint32_t arrived = 0, last = 0;

	rig_create(&rig);
	qa = end_open_qp_config(&rig.a, &config, 128);
	qb = end_open_qp_config(&rig.b, &other, 128);
	rig_join(&rig, qa, qb, rig_connection(), rig_connection());
	rig.lose = lose_some;
	for (uint32_t i = 0; i < 32; i++) {
		struct shm_sge sge = sge_at(&rig.b, i * 4096, 4096);

		post_receive(&rig.b, qb, i, &sge, 1);
		sge = sge_at(&rig.a, i * 4096, 1 + i * 100);
		fill(rig.a.bytes + (size_t)i * 4096, 4096, i);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND_IMMEDIATE,
					    .request_context = i,
					    .immediate = i },
			  &sge, 1);
	}
	rig_settle(&rig);
	cr_assert_eq(rig.sent_b, 0, "the receiver never says a word");
	for (uint32_t i = 0; i < 32; i++)
		expect_cqe(qa, i, 0);
	for (; take_cqe(qb, &cqe); arrived++) {
		const uint8_t *landed = rig.b.bytes + cqe.request_context * 4096;

		cr_assert_eq(cqe.request_context, arrived, "receives are used in order");
		cr_assert(arrived == 0 || cqe.output > last);
		last = cqe.output;
		cr_assert_eq(cqe.bytes, 1 + last * 100);
		cr_assert_eq(memcmp(landed, rig.a.bytes + (size_t)last * 4096, cqe.bytes), 0);
	}
	cr_assert_gt(arrived, 8);
	cr_assert_lt(arrived, 32);
	rig_destroy(&rig);
}

/* --- shared receive queue ------------------------------------------------------------- */

Test(uc_connection, an_aborted_message_holds_its_shared_receive_for_the_next)
{
	struct srq_config shared = { .session = RIG_SESSION, .depth = 8, .sge = 4 };
	struct qp_config config = { .type = SHM_QP_UC, .send_depth = 8, .send_sge = 1 };
	struct qp_connection connection = rig_connection();
	struct shm_queue *queue;
	uint8_t *slot;

	raw_create_type(&guarded, SHM_QP_UC, rig_connection());
	shared.pd = guarded.end.pd;
	shared.memory_size = srq_memory_size(8, 4);
	shared.memory = calloc(1, shared.memory_size);
	config.srq = srq_create(guarded.end.shared, &shared);
	guarded.qp = end_open_qp_config(&guarded.end, &config, 64);
	memcpy(connection.path.local_gid, guarded.end.gid, 16);
	gid_from_v4(connection.path.remote_gid, (uint8_t[4]){ 10, 0, 0, 99 });
	connection.remote_qpn = RAW_QPN;
	connection.receive_psn = P;
	cr_assert_eq(transport_connect(guarded.end.worker[0], guarded.qp->index, &connection, 1),
		     0);
	queue = &shared.memory->receive;
	for (uint32_t i = 0; i < 2; i++) {
		const struct shm_rqe rqe = { .request_context = 50 + i, .nsge = 1 };
		const struct shm_sge sge = sge_at(&guarded.end, SINK + i * 4096, 4096);

		slot = shm_queue_slot(shared.memory, queue->offset, queue->stride, queue->slots,
				      queue->tail);
		memcpy(slot, &rqe, sizeof(rqe));
		memcpy(slot + sizeof(rqe), &sge, sizeof(sge));
		shm_store_release(&queue->tail, queue->tail + 1);
	}
	RAW_SEND(&guarded, .opcode = OP_UC_SEND_FIRST, .psn = P, .payload_length = 1024);
	RAW_SEND(&guarded, .opcode = OP_UC_SEND_LAST, .psn = P + 2, .payload_length = 8);
	cr_assert_eq(queue->done, 1, "taken");
	expect_no_cqe(guarded.qp);
	RAW_SEND(&guarded, .opcode = OP_UC_SEND_ONLY, .psn = P + 9, .payload_length = 8);
	expect_cqe(guarded.qp, 50, 0);
	RAW_SEND(&guarded, .opcode = OP_UC_SEND_ONLY, .psn = P + 10, .payload_length = 8);
	expect_cqe(guarded.qp, 51, 0);
	cr_assert_eq(queue->done, 2);
	raw_destroy(&guarded);
	free(shared.memory);
}
