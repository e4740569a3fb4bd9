/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A failure that was told to the client and not yet to the peer when the daemon died: whoever
 * adopts the queue pair takes no second receive for it, and lets nothing more through.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define P    RAW_PSN
#define V    RIG_BASE
#define K    raw.end.remote_token
#define SINK 65536u

static struct raw raw;
static uint8_t payload[4096];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_create(&raw, rig_connection());
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(dying, .init = setup, .fini = teardown);

static void post_receives(uint32_t count, uint32_t length)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, SINK + i * 4096, length);

		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

/* No buffer can be had, so the NAK stays where it is; there the daemon dies. */
static void send_and_die(const struct raw_packet *packet)
{
	raw.end.room = 0;
	raw_send(&raw, packet);
	raw_expect_none(&raw);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_RTS);
	end_restart(&raw.end, raw.now);
	/* The peer tries again before anything has left. */
	raw_send(&raw, packet);
	raw_expect_none(&raw);
	raw.end.room = 100;
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
}

static void expect_end(uint32_t psn, uint8_t syndrome, int32_t status, uint32_t verdict,
		       uint32_t async)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	raw_expect_nak(&raw, psn, syndrome);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 100, status);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_cqe(raw.qp, 102, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	cr_assert_not_null(event);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	cr_assert_eq(event->value, verdict, "%s", verdict_name(event->value));
	cr_assert_eq(event->async, async);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

Test(dying, a_send_longer_than_its_receive)
{
	post_receives(3, 4);
	send_and_die(&(struct raw_packet){
		.opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload, .payload_length = 8 });
	expect_end(P, 0x61, NT_DATA_OVERRUN, VERDICT(RECEIVE_TOO_SMALL),
		   SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(dying, a_receive_with_a_bad_token)
{
	struct shm_sge sge = sge_at(&raw.end, SINK, 64);

	sge.token ^= 0x1111;
	for (uint32_t i = 0; i < 3; i++)
		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	send_and_die(&(struct raw_packet){
		.opcode = OP_RC_SEND_ONLY, .psn = P, .payload = payload, .payload_length = 8 });
	expect_end(P, 0x63, NT_ACCESS_VIOLATION, VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
}

Test(dying, a_send_of_a_wrong_length)
{
	post_receives(3, 4096);
	send_and_die(&(struct raw_packet){
		.opcode = OP_RC_SEND_FIRST, .psn = P, .payload = payload, .payload_length = 8 });
	expect_end(P, 0x61, NT_DATA_ERROR, VERDICT(LENGTH), SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(dying, an_opcode_out_of_sequence_in_a_send)
{
	post_receives(3, 4096);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_FIRST, .psn = P, .payload_length = 1024);
	send_and_die(&(struct raw_packet){ .opcode = OP_RC_SEND_ONLY, .psn = P + 1 });
	expect_end(P + 1, 0x61, NT_DATA_ERROR, VERDICT(OPCODE_SEQUENCE),
		   SHM_ASYNC_QP_INVALID_REQUEST);
}

Test(dying, a_write_with_immediate_out_of_range)
{
	post_receives(3, 4096);
	send_and_die(&(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY_IMM,
					   .psn = P,
					   .address = V + RIG_MEMORY,
					   .token = K,
					   .length = 8,
					   .payload = payload,
					   .payload_length = 8 });
	expect_end(P, 0x62, NT_ACCESS_VIOLATION, VERDICT_ACCESS + ACCESS_RANGE,
		   SHM_ASYNC_QP_ACCESS_ERROR);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 1, "one offence");
}

/* Class J with an ACK of what came before still to leave. */
Test(dying, a_send_with_invalidate_that_may_not)
{
	post_receives(3, 4096);
	raw.end.room = 0;
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true);
	send_and_die(
		&(struct raw_packet){ .opcode = OP_RC_SEND_ONLY_INV, .psn = P + 1, .token = K });
	raw_expect_ack(&raw, P, 1);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 100, NT_INVALID_DEVICE_REQUEST);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_cqe(raw.qp, 102, NT_CANCELLED);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

/* A refusal without a receive is kept, too. */
Test(dying, a_write_out_of_range)
{
	const struct transport_event *event;

	send_and_die(&(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
					   .psn = P,
					   .address = V + RIG_MEMORY,
					   .token = K,
					   .length = 8,
					   .payload = payload,
					   .payload_length = 8 });
	raw_expect_nak(&raw, P, 0x62);
	event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);
	cr_assert_not_null(event);
	cr_assert_eq(event->value, VERDICT_ACCESS + ACCESS_RANGE);
}

static struct qp *record(void)
{
	return arena_record(&raw.end.arena, ARENA_QPS, raw.qp->index);
}

/* Died between the completion in error and the state. */
Test(dying, a_failed_request_lets_none_behind_it_through)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);
	const struct transport_event *event;

	raw.end.room = 0;
	for (uint64_t i = 1; i <= 2; i++)
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = i }, &sge, 1);
	end_poll(&raw.end, raw.now);
	record()->requester |= REQUESTER_DYING;
	end_restart(&raw.end, raw.now);
	raw.end.room = 10;
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 1, NT_CANCELLED);
	expect_cqe(raw.qp, 2, NT_CANCELLED);
	event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);
	cr_assert_not_null(event);
	cr_assert_eq(event->value, VERDICT(ADOPTED_DYING));
}

/* Nothing more to say to the peer: dead at once, for the reason that was written down. */
Test(dying, without_a_nak_to_send)
{
	const struct transport_event *event;

	post_receives(1, 64);
	record()->answer = (struct answer){ .verdict = VERDICT(REMOTE_INVALIDATE),
					    .async = SHM_ASYNC_QP_ACCESS_ERROR };
	record()->responder |= RESPONDER_DYING;
	end_restart(&raw.end, raw.now);
	event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);
	cr_assert_not_null(event);
	cr_assert_eq(event->value, VERDICT(REMOTE_INVALIDATE));
	cr_assert_eq(event->async, SHM_ASYNC_QP_ACCESS_ERROR);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = P, .ack_request = true);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 100, NT_CANCELLED);
}

/* NdkCreateCq: on overrun the CQ and its queue pairs are unusable, whoever lived to say so. */
Test(dying, b104_between_the_overrun_of_a_cq_and_the_end_of_its_queue_pairs)
{
	struct cq *cq = arena_record(&raw.end.arena, ARENA_CQS, raw.qp->cq);
	const struct transport_event *event;

	post_receives(2, 64);
	raw.qp->cq_memory->arm = SHM_ARM_ERRORS;
	cq->state = CQ_BROKEN;
	end_restart(&raw.end, raw.now);
	end_poll(&raw.end, raw.now);
	cr_assert_eq(raw.qp->cq_memory->error, (uint32_t)NT_BUFFER_OVERFLOW);
	cr_assert_eq(raw.qp->cq_memory->arm, SHM_ARM_NONE);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
	event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);
	cr_assert_not_null(event);
	cr_assert_eq(event->value, VERDICT(CQ_OVERRUN));
	cr_assert_eq(event->async, SHM_ASYNC_QP_FATAL);
}

static void poll_until_idle(void)
{
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
}

/* layout.h, struct shm_worker_area: bells are taken from the top down, so a death leaves what is
 * below. */
static void expect_bell_after_a_death(bool summary_is_left)
{
	struct shm_worker_area *area = &raw.end.session->worker[0];
	const uint32_t number = raw.qp->config.doorbell, word = number / 64;
	const struct shm_sge sge = sge_at(&raw.end, SINK, 8);
	const struct shm_sqe sqe = { .opcode = SHM_WR_SEND };
	struct wire_view view;

	area->bits[word] |= 1ull << number % 64;
	if (summary_is_left)
		area->summary[word / 64] |= 1ull << word % 64;
	end_restart(&raw.end, raw.now);
	poll_until_idle();
	post_send(&raw.end, raw.qp, sqe, &sge, 1);
	poll_until_idle();
	cr_assert(raw_receive(&raw, &view), "who rings behind a death is heard");
	cr_assert_eq(view.opcode, OP_RC_SEND_ONLY);
}

Test(dying, between_the_summary_of_doorbells_and_their_bits)
{
	expect_bell_after_a_death(false);
}

Test(dying, between_the_top_of_doorbells_and_their_summary)
{
	expect_bell_after_a_death(true);
}
