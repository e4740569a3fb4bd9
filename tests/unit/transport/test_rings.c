/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client may do to the rings: nonsense, overrun, arms, malformed entries. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "rig.h"

static struct rig rig;
static struct rig_qp *qa, *qb;

static void setup(void)
{
	rig_create(&rig);
	rig_connect(&rig, &qa, &qb);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(rings, .init = setup, .fini = teardown);

static void ring(struct end *end, struct rig_qp *qp)
{
	shm_doorbell_ring(&end->session->worker[0], qp->config.doorbell);
}

static void write_once(struct end *end, struct rig_qp *qp, uint64_t context, uint32_t token)
{
	const struct shm_sge sge = sge_at(end, 0, 8);

	post_send(end, qp,
		  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
				    .request_context = context,
				    .address = RIG_BASE,
				    .token = token },
		  &sge, 1);
}

/* A fresh connection of the same daemon works. */
static void expect_alive(void)
{
	struct rig_qp *na = end_open_qp(&rig.a, 0, 8), *nb = end_open_qp(&rig.b, 0, 8);

	rig_join(&rig, na, nb, rig_connection(), rig_connection());
	write_once(&rig.a, na, 77, rig.b.remote_token);
	rig_settle(&rig);
	expect_cqe(na, 77, 0);
}

static void expect_broken(void)
{
	const struct transport_event *event = end_find_event(&rig.a, TRANSPORT_SESSION_BROKEN);

	cr_assert_not_null(event);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_SESSION_BROKEN), 1);
	cr_assert_eq(event->object, RIG_SESSION);
	cr_assert_eq(event->value, VERDICT(RING_NONSENSE));
	expect_alive();
}

/* --- cursors -------------------------------------------------------------------------- */

Test(rings, b102_send_tail_too_far_ahead)
{
	qa->memory->send.tail = 65;
	ring(&rig.a, qa);
	rig_settle(&rig);
	ring(&rig.a, qa);
	rig_settle(&rig);
	expect_broken();
}

Test(rings, b102_send_tail_behind)
{
	qa->memory->send.tail = 0xffffffff;
	ring(&rig.a, qa);
	rig_settle(&rig);
	expect_broken();
}

Test(rings, b102_receive_tail_nonsense)
{
	const struct shm_sge sge = sge_at(&rig.b, 0, 8);

	qa->memory->receive.tail = 1000;
	post_send(&rig.b, qb, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 1);
	rig_settle(&rig);
	expect_broken();
}

Test(rings, b102_head_of_the_cq_nonsense)
{
	qa->cq_memory->ring[0].cursor.head = 5000;
	for (uint64_t i = 0; i < 260; i++) {
		write_once(&rig.a, qa, i, rig.b.remote_token);
		rig_settle(&rig);
	}
	expect_broken();
}

Test(rings, cursors_wrap_at_32_bits)
{
	struct qp *qp = arena_record(&rig.a.arena, ARENA_QPS, qa->index);

	qp->send.taken = qa->memory->send.tail = 0xfffffff0;
	qp->requester = requester_word(requester_una(qp->requester), 0xfffffff0);
	for (uint64_t i = 0; i < 200; i++) {
		write_once(&rig.a, qa, i, rig.b.remote_token);
		rig_settle(&rig);
		expect_cqe(qa, i, 0);
	}
	cr_assert_eq(qa->memory->send.done, 0xfffffff0u + 200);
}

/* The smallest queues, and one whose ring is larger than its depth, with every kind. */
Test(rings, small_queues_whose_cursors_wrap)
{
	static const uint8_t requests[] = { SHM_WR_WRITE, SHM_WR_READ, SHM_WR_SEND };
	const struct shm_sge sge = sge_at(&rig.a, 0, 2500), sink = sge_at(&rig.b, 8192, 2500);
	uint64_t context = 0;

	for (uint32_t depth = 1; depth <= 3; depth++) {
		struct rig_qp *na = end_open_qp(&rig.a, 0, depth), *nb = end_open_qp(&rig.b, 0, 8);
		struct qp *qp = arena_record(&rig.a.arena, ARENA_QPS, na->index);

		rig_join(&rig, na, nb, rig_connection(), rig_connection());
		qp->send.taken = na->memory->send.tail = 0xfffffffa;
		qp->requester = requester_word(requester_una(qp->requester), 0xfffffffa);
		for (uint32_t round = 0; round < 12; round++) {
			for (uint32_t i = 0; i < depth; i++) {
				const uint8_t opcode = requests[(round + i) % 3];

				if (opcode == SHM_WR_SEND)
					post_receive(&rig.b, nb, 7, &sink, 1);
				post_send(&rig.a, na,
					  (struct shm_sqe){ .opcode = opcode,
							    .request_context = context + i,
							    .address = RIG_BASE,
							    .token = rig.b.remote_token },
					  &sge, 1);
			}
			rig_settle(&rig);
			for (uint32_t i = 0; i < depth; i++)
				expect_cqe(na, context++, 0);
		}
		cr_assert_eq(na->memory->send.done, 0xfffffffa + 12 * depth);
	}
}

Test(rings, a_full_ring_is_served_in_order)
{
	for (uint64_t round = 0; round < 5; round++) {
		for (uint64_t i = 0; i < 64; i++)
			write_once(&rig.a, qa, 64 * round + i, rig.b.remote_token);
		rig_settle(&rig);
		for (uint64_t i = 0; i < 64; i++)
			expect_cqe(qa, 64 * round + i, 0);
	}
}

/* More than one poll looks at: they take turns. */
Test(rings, the_last_of_many_sessions_is_heard)
{
	struct shm_session *idle =
		calloc(1, sizeof(*idle) + rig.a.workers * sizeof(struct shm_worker_area));
	struct transport *t = rig.a.worker[0];

	transport_remove_session(t, RIG_SESSION);
	for (uint32_t session = 2; session < 80; session++) {
		transport_set_session(rig.a.shared, session, idle);
		transport_add_session(t, session);
	}
	transport_add_session(t, RIG_SESSION);
	for (uint64_t i = 0; i < 10; i++) {
		write_once(&rig.a, qa, i, rig.b.remote_token);
		transport_poll(t, rig.now);
		rig_settle(&rig);
		expect_cqe(qa, i, 0);
	}
	for (uint32_t session = 2; session < 80; session++)
		transport_remove_session(t, session);
	free(idle);
}

Test(rings, doorbells_of_nobody)
{
	struct shm_worker_area *area = &rig.a.session->worker[0];

	memset(&area->top, 0xff, sizeof(area->top));
	memset(area->summary, 0xff, sizeof(area->summary));
	memset(area->bits, 0xff, sizeof(area->bits));
	write_once(&rig.a, qa, 1, rig.b.remote_token);
	rig_settle(&rig);
	expect_cqe(qa, 1, 0);
	cr_assert_eq(area->top | area->summary[0] | area->bits[0], 0);
}

/* --- entries -------------------------------------------------------------------------- */

static void expect_entry_fails(struct shm_sqe sqe, int32_t status)
{
	uint8_t *slot = (uint8_t *)qa->memory + qa->memory->send.offset;

	sqe.request_context = 3;
	memcpy(slot, &sqe, sizeof(sqe));
	qa->memory->send.tail = 1;
	ring(&rig.a, qa);
	rig_settle(&rig);
	expect_cqe(qa, 3, status);
	expect_alive();
}

Test(rings, opcode_0)
{
	expect_entry_fails((struct shm_sqe){ .opcode = 0 }, NT_INTERNAL_ERROR);
}

Test(rings, opcode_255)
{
	expect_entry_fails((struct shm_sqe){ .opcode = 255 }, NT_INTERNAL_ERROR);
}

Test(rings, more_sges_than_the_queue_has)
{
	expect_entry_fails((struct shm_sqe){ .opcode = SHM_WR_SEND, .nsge = 5 }, NT_DATA_OVERRUN);
}

Test(rings, b106_inline_longer_than_the_slot)
{
	expect_entry_fails((struct shm_sqe){ .opcode = SHM_WR_SEND,
					     .flags = SHM_FLAG_INLINE,
					     .inline_length = 65 },
			   NT_DATA_OVERRUN);
}

Test(rings, inline_read)
{
	expect_entry_fails((struct shm_sqe){ .opcode = SHM_WR_READ,
					     .flags = SHM_FLAG_INLINE,
					     .inline_length = 8 },
			   NT_DATA_OVERRUN);
}

Test(rings, receive_with_too_many_sges)
{
	struct shm_rqe *rqe = (void *)((uint8_t *)qb->memory + qb->memory->receive.offset);
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	rqe->nsge = 255;
	rqe->request_context = 12;
	qb->memory->receive.tail = 1;
	post_send(&rig.a, qa, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 4 }, &sge,
		  1);
	rig_settle(&rig);
	expect_cqe(qb, 12, NT_INTERNAL_ERROR);
	expect_cqe(qa, 4, NT_DATA_ERROR);
}

/* Whatever lies in the segments, the daemon lives and others are served. */
Test(rings, b109_random_segments)
{
	for (uint32_t seed = 1; seed < 6; seed++) {
		struct rig_qp *na, *nb;
		struct shm_sge sge;

		if (seed > 1)
			setup();
		sge = sge_at(&rig.b, 0, 32);
		srand(seed);
		for (uint32_t round = 0; round < 60; round++) {
			uint8_t *bytes = (uint8_t *)qa->memory + qa->memory->send.offset;
			const size_t size =
				qa->config.memory_size - qp_memory_size(&qa->config) + 64 * 128;

			for (size_t i = 0; i < size; i++)
				bytes[i] = (uint8_t)rand();
			for (size_t i = 0; i < size; i += 128)
				bytes[i] = (uint8_t)(rand() % 12);
			qa->memory->send.tail += (uint32_t)rand() % 3;
			ring(&rig.a, qa);
			post_send(&rig.b, qb, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 1);
			rig_settle(&rig);
		}
		na = end_open_qp(&rig.a, 0, 8);
		nb = end_open_qp(&rig.b, 0, 8);
		rig_join(&rig, na, nb, rig_connection(), rig_connection());
		write_once(&rig.a, na, 5, rig.b.remote_token);
		rig_settle(&rig);
		expect_cqe(na, 5, 0);
		if (seed < 5)
			teardown();
	}
}

/* --- CQ ------------------------------------------------------------------------------- */

static struct rig_qp *small_cq_qp(uint32_t depth)
{
	struct qp_config config = { .type = SHM_QP_RC,
				    .send_depth = 32,
				    .receive_depth = 32,
				    .send_sge = 4,
				    .receive_sge = 4 };

	return end_open_qp_config(&rig.a, &config, depth);
}

Test(rings, b104_cq_overrun_breaks_the_cq_and_its_queue_pairs)
{
	struct rig_qp *na = small_cq_qp(5), *nb = end_open_qp(&rig.b, 0, 8);
	const struct transport_event *event;

	rig_join(&rig, na, nb, rig_connection(), rig_connection());
	na->cq_memory->arm = SHM_ARM_ERRORS;
	for (uint64_t i = 0; i < 6; i++)
		write_once(&rig.a, na, i, rig.b.remote_token);
	rig_settle(&rig);
	/* Those that fitted are there, once and in order. */
	for (uint64_t i = 0; i < 5; i++)
		expect_cqe(na, i, 0);
	expect_no_cqe(na);
	cr_assert_eq(na->cq_memory->error, (uint32_t)NT_BUFFER_OVERFLOW);
	event = end_find_event(&rig.a, TRANSPORT_CQ_ERROR);
	cr_assert_not_null(event);
	cr_assert_eq(event->object, na->cq);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_CQ_ERROR), 1);
	cr_assert_eq(qp_get_state(rig.a.shared, na->index), QP_ERROR);
	cr_assert_eq(rig.a.notified, 1, "CQ failure satisfies every arm");
	/* The neighbour is not touched. */
	write_once(&rig.a, qa, 1, rig.b.remote_token);
	rig_settle(&rig);
	expect_cqe(qa, 1, 0);
}

Test(rings, b104_overrun_by_a_receive_is_no_nak)
{
	struct rig_qp *na = small_cq_qp(1), *nb = end_open_qp(&rig.b, 0, 8);
	const struct shm_sge sge = sge_at(&rig.a, 0, 8), from = sge_at(&rig.b, 0, 8);
	uint64_t naks = transport_get_stats(rig.a.worker[0])->tx_nak;

	rig_join(&rig, na, nb, rig_connection(), rig_connection());
	for (uint64_t i = 0; i < 3; i++) {
		post_receive(&rig.a, na, i, &sge, 1);
		post_send(&rig.b, nb, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &from, 1);
	}
	rig_settle(&rig);
	expect_cqe(na, 0, 0);
	expect_no_cqe(na);
	cr_assert_eq(qp_get_state(rig.a.shared, na->index), QP_ERROR);
	cr_assert_eq(transport_get_stats(rig.a.worker[0])->tx_nak, naks);
}

Test(rings, an_arm_is_satisfied_once)
{
	const uint64_t bit = 0; /* notify number of the first queue pair's CQ */

	write_once(&rig.a, qa, 1, rig.b.remote_token);
	rig_settle(&rig);
	cr_assert_eq(rig.a.notified, 0, "not armed");
	qa->cq_memory->arm = SHM_ARM_ANY;
	for (uint64_t i = 0; i < 10; i++)
		write_once(&rig.a, qa, i, rig.b.remote_token);
	rig_settle(&rig);
	cr_assert_eq(rig.a.notified, 1);
	cr_assert_eq(qa->cq_memory->arm, SHM_ARM_NONE);
	cr_assert_eq(rig.a.session->cq_notify[0] >> bit & 1, 1);
	write_once(&rig.a, qa, 99, rig.b.remote_token);
	rig_settle(&rig);
	cr_assert_eq(rig.a.notified, 1);
}

Test(rings, solicited_arm)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	for (uint64_t i = 0; i < 4; i++)
		post_receive(&rig.b, qb, i, &sge, 0);
	qb->cq_memory->arm = SHM_ARM_SOLICITED;
	post_send(&rig.a, qa, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 0);
	rig_settle(&rig);
	cr_assert_eq(rig.b.notified, 0);
	post_send(&rig.a, qa, (struct shm_sqe){ .opcode = SHM_WR_SEND, .flags = SHM_FLAG_SOLICIT },
		  &sge, 0);
	rig_settle(&rig);
	cr_assert_eq(rig.b.notified, 1);
	/* An error, too. */
	qb->cq_memory->arm = SHM_ARM_SOLICITED;
	transport_flush(rig.b.worker[0], qb->index, rig.now);
	rig_settle(&rig);
	cr_assert_eq(rig.b.notified, 2);
	/* ERRORS means the CQ itself. */
	qb->cq_memory->arm = SHM_ARM_ERRORS;
	post_receive(&rig.b, qb, 9, &sge, 0);
	rig_settle(&rig);
	cr_assert_eq(rig.b.notified, 2);
}

/* --- flush ---------------------------------------------------------------------------- */

Test(rings, flush_cancels_both_queues_and_answers_once)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	rig.a.room = 0;
	for (uint64_t i = 0; i < 40; i++)
		write_once(&rig.a, qa, i, rig.b.remote_token);
	for (uint64_t i = 0; i < 50; i++)
		post_receive(&rig.a, qa, 100 + i, &sge, 1);
	end_poll(&rig.a, rig.now);
	transport_flush(rig.a.worker[0], qa->index, rig.now);
	rig_settle(&rig);
	for (uint64_t i = 0; i < 40; i++)
		expect_cqe(qa, i, NT_CANCELLED);
	for (uint64_t i = 0; i < 50; i++)
		expect_cqe(qa, 100 + i, NT_CANCELLED);
	expect_no_cqe(qa);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_QP_FLUSHED), 1);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_QP_ERROR), 0, "asked for");
	cr_assert_eq(qa->memory->send.done, 40);
	cr_assert_eq(qa->memory->receive.done, 50);
	transport_flush(rig.a.worker[0], qa->index, rig.now);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_QP_FLUSHED), 2);
	rig.a.room = 100;
	cr_assert_eq(transport_next_deadline(rig.a.worker[0], rig.now), UINT64_MAX);
}

Test(rings, flush_before_connecting)
{
	struct rig_qp *qp = end_open_qp(&rig.a, 0, 8);
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	post_receive(&rig.a, qp, 1, &sge, 1);
	transport_flush(rig.a.worker[0], qp->index, rig.now);
	rig_settle(&rig);
	expect_cqe(qp, 1, NT_CANCELLED);
	cr_assert_eq(end_count_events(&rig.a, TRANSPORT_QP_FLUSHED), 1);
}

Test(rings, receives_posted_before_connecting)
{
	struct rig_qp *na = end_open_qp(&rig.a, 0, 8), *nb = end_open_qp(&rig.b, 0, 8);
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	post_receive(&rig.a, na, 1, &sge, 1);
	rig_settle(&rig);
	rig_join(&rig, na, nb, rig_connection(), rig_connection());
	post_send(&rig.b, nb, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 0);
	rig_settle(&rig);
	expect_cqe(na, 1, 0);
}
