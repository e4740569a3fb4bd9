/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives shared by queue pairs: order of arrival, starvation, the limit, ends of its users. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "rig.h"

#define DEPTH 16u

static struct rig rig;
static struct shm_srq *memory;
static uint32_t srq;
static struct rig_qp *client[2], *server[2];

static void post_shared(uint64_t context, uint32_t length)
{
	struct shm_queue *queue = &memory->receive;
	uint8_t *slot =
		shm_queue_slot(memory, queue->offset, queue->stride, queue->slots, queue->tail);
	const struct shm_rqe rqe = { .request_context = context, .nsge = 1 };
	const struct shm_sge sge = sge_at(&rig.b, context * 4096, length);

	memcpy(slot, &rqe, sizeof(rqe));
	memcpy(slot + sizeof(rqe), &sge, sizeof(sge));
	shm_store_release(&queue->tail, queue->tail + 1);
}

static void post_many(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		post_shared(1 + i, 4096);
}

static void post_message(int from, uint64_t context, uint32_t length)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, length);

	post_send(&rig.a, client[from],
		  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = context }, &sge, 1);
}

static void setup(void)
{
	struct srq_config config = { .session = RIG_SESSION, .depth = DEPTH, .sge = 4 };
	struct qp_config qp = { .type = SHM_QP_RC, .send_depth = 16, .send_sge = 4 };

	rig_create(&rig);
	fill(rig.a.bytes, 16384, 3);
	config.pd = rig.b.pd;
	config.memory_size = srq_memory_size(DEPTH, 4);
	config.memory = memory = calloc(1, config.memory_size);
	srq = srq_create(rig.b.shared, &config);
	cr_assert_neq(srq, 0);
	qp.srq = srq;
	for (int i = 0; i < 2; i++) {
		client[i] = end_open_qp(&rig.a, 0, 32);
		server[i] = end_open_qp_config(&rig.b, &qp, 64);
		cr_assert_eq(server[i]->memory->receive.slots, 0);
		rig_join(&rig, client[i], server[i], rig_connection(), rig_connection());
	}
}

static void teardown(void)
{
	rig_destroy(&rig);
	free(memory);
}

TestSuite(srq, .init = setup, .fini = teardown);

Test(srq, receives_go_in_order_of_arrival_over_the_queue_pairs)
{
	post_many(4);
	for (int i = 0; i < 4; i++) {
		post_message(i % 2, 10, 100);
		rig_settle(&rig);
		cr_assert_eq(expect_cqe(server[i % 2], 1 + (uint64_t)i, 0).bytes, 100);
	}
	cr_assert_eq(memory->receive.done, 4);
	cr_assert_eq(memcmp(rig.b.bytes + 4096, rig.a.bytes, 100), 0);
}

Test(srq, messages_of_many_packets_at_the_same_time_do_not_mix)
{
	post_many(2);
	memcpy(rig.b.bytes + 65536, rig.a.bytes, 4096);
	post_message(0, 10, 4096);
	post_message(1, 11, 4096);
	rig_settle(&rig);
	expect_cqe(server[0], 1, 0);
	expect_cqe(server[1], 2, 0);
	cr_assert_eq(memcmp(rig.b.bytes + 4096, rig.a.bytes, 4096), 0);
	cr_assert_eq(memcmp(rig.b.bytes + 8192, rig.a.bytes, 4096), 0);
}

Test(srq, an_empty_one_fails_nobody)
{
	post_message(0, 10, 100);
	post_message(1, 11, 100);
	rig_settle(&rig);
	cr_assert_geq(end_verdicts(&rig.b, VERDICT(NO_RECEIVE)), 2);
	expect_no_cqe(client[0]);
	post_many(2);
	rig_run(&rig, rig.now + 100000000);
	expect_cqe(client[0], 10, 0);
	expect_cqe(client[1], 11, 0);
	cr_assert_eq(memory->receive.done, 2);
}

Test(srq, the_limit_event_comes_once_when_fewer_are_left)
{
	const struct transport_event *event;

	post_many(6);
	cr_assert_not(srq_set_limit(rig.b.shared, srq, 4));
	post_message(0, 10, 10);
	post_message(0, 11, 10);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SRQ_LIMIT), 0, "four are not fewer");
	post_message(0, 12, 10);
	post_message(0, 13, 10);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SRQ_LIMIT), 1);
	event = end_find_event(&rig.b, TRANSPORT_SRQ_LIMIT);
	cr_assert_eq(event->object, srq);
	cr_assert_eq(event->value, 3);
	cr_assert_eq(event->async, SHM_ASYNC_SRQ_LIMIT);
	cr_assert(srq_set_limit(rig.b.shared, srq, 4), "already below: the caller tells it");
	post_message(0, 14, 10);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SRQ_LIMIT), 1);
}

/* B99: what was in use completes, the rest stays for the others. */
Test(srq, b99_a_queue_pair_that_dies_returns_what_it_holds)
{
	post_shared(1, 100);
	for (uint32_t i = 2; i <= DEPTH; i++)
		post_shared(i, 4096);
	post_message(0, 10, 200);
	rig_settle(&rig);
	expect_cqe(server[0], 1, NT_DATA_OVERRUN);
	expect_no_cqe(server[0]);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_QP_LAST_WQE), 1);
	transport_flush(rig.b.worker[0], server[0]->index, rig.now);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_QP_LAST_WQE), 1, "once");
	for (uint32_t i = 2; i <= DEPTH; i++) {
		post_message(1, i, 10);
		rig_settle(&rig);
		expect_cqe(server[1], i, 0);
	}
	cr_assert_eq(memory->receive.done, DEPTH, "all are accounted for");
}

static bool lose_the_last(struct rig *r, bool from_a, uint32_t n, const struct wire_view *view)
{
	(void)r;
	(void)n;
	return from_a && (view->op->flags & OPF_LAST);
}

Test(srq, a_flush_in_the_middle_of_a_message_cancels_its_receive_only)
{
	post_many(3);
	rig.lose = lose_the_last;
	post_message(0, 10, 3000);
	rig_settle(&rig);
	cr_assert_eq(memory->receive.done, 1, "taken with its first packet");
	transport_flush(rig.b.worker[0], server[0]->index, rig.now);
	rig_settle(&rig);
	expect_cqe(server[0], 1, NT_CANCELLED);
	expect_no_cqe(server[0]);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_QP_LAST_WQE), 1);
	cr_assert_eq(memory->receive.done, 1);
}

/* SRQ-4: the last one is told when all is flushed, be it in several turns. */
Test(srq, the_last_receive_is_told_behind_the_requests_that_are_flushed)
{
	struct qp_config config = {
		.type = SHM_QP_RC, .send_depth = 64, .send_sge = 1, .srq = srq
	};
	struct rig_qp *peer = end_open_qp(&rig.a, 0, 32);
	struct rig_qp *mine = end_open_qp_config(&rig.b, &config, 128);
	const struct shm_sge sge = sge_at(&rig.a, 0, 3000);
	uint32_t turns = 0;

	rig_join(&rig, peer, mine, rig_connection(), rig_connection());
	post_many(1);
	rig.lose = lose_the_last;
	post_send(&rig.a, peer, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 1);
	rig_settle(&rig);
	cr_assert_eq(memory->receive.done, 1);
	rig.b.room = 0;
	for (uint32_t i = 0; i < 64; i++)
		post_send(&rig.b, mine, (struct shm_sqe){ .opcode = SHM_WR_SEND }, NULL, 0);
	transport_flush(rig.b.worker[0], mine->index, rig.now);
	while (end_count_events(&rig.b, TRANSPORT_QP_LAST_WQE) == 0) {
		cr_assert_lt(turns++, 100);
		transport_poll(rig.b.worker[0], rig.now);
	}
	cr_assert_gt(turns, 1, "more than one turn has to do");
	for (uint32_t i = 0; i < 64; i++)
		expect_cqe(mine, 0, NT_CANCELLED);
	expect_cqe(mine, 1, NT_CANCELLED);
	rig.b.room = UINT32_MAX;
}

Test(srq, a_cursor_that_cannot_be_fails_who_asks)
{
	shm_store_release(&memory->receive.tail, 1000);
	post_message(0, 10, 10);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SESSION_BROKEN), 1);
	cr_assert_eq(qp_get_state(rig.b.shared, server[0]->index), QP_ERROR);
}

/* One SRQ more, with a limit from the start and nothing in it. */
static struct shm_srq *with_limit(struct end *end, uint32_t limit, uint32_t home, uint32_t *index)
{
	struct srq_config config = { .session = RIG_SESSION,
				     .pd = end->pd,
				     .depth = 2,
				     .sge = 1,
				     .limit = limit,
				     .home = home };

	config.memory_size = srq_memory_size(2, 1);
	config.memory = calloc(1, config.memory_size);
	*index = srq_create(end->shared, &config);
	cr_assert_neq(*index, 0);
	return config.memory;
}

/* NdkCreateSrq: armed from the start, and told by the first message, if only by one in vain. */
Test(srq, a_limit_at_creation_is_armed_and_told_by_a_message_that_finds_nothing)
{
	struct shm_srq *own;
	uint32_t same;

	srq_destroy(rig.b.shared, srq);
	own = with_limit(&rig.b, 1, 0, &same);
	cr_assert_eq(same, srq);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SRQ_LIMIT), 0);
	post_message(0, 10, 10);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_SRQ_LIMIT), 1);
	cr_assert_eq(end_find_event(&rig.b, TRANSPORT_SRQ_LIMIT)->value, 0);
	free(own);
}

/* Entries are taken by one worker, without a lock. */
Test(srq, queue_pairs_live_where_it_does)
{
	struct qp_config config = server[0]->config;
	struct shm_srq *own;
	struct end end;

	end_create(&end, 2, 3);
	config.pd = end.pd;
	own = with_limit(&end, 0, 1, &config.srq);
	config.home = 0;
	cr_assert_eq(qp_create(end.shared, &config), 0);
	config.home = 1;
	cr_assert_neq(qp_create(end.shared, &config), 0);
	end_destroy(&end);
	free(own);
}

Test(srq, queue_pairs_of_another_session_or_worker_are_refused)
{
	struct qp_config config = server[0]->config;

	config.session = RIG_SESSION + 1;
	cr_assert_eq(qp_create(rig.b.shared, &config), 0);
	config.session = RIG_SESSION;
	config.srq = srq + 1;
	cr_assert_eq(qp_create(rig.b.shared, &config), 0);
}

/* NdkModifySrq: within the ring, and never below what is queued (ND: ND_BUFFER_OVERFLOW). */
Test(srq, depth_changes_within_the_ring_and_above_what_is_posted)
{
	post_many(4);
	cr_expect_eq(srq_set_depth(rig.b.shared, srq, 3), -EBUSY);
	cr_expect_eq(srq_set_depth(rig.b.shared, srq, DEPTH + 1), -ENOBUFS);
	cr_expect_eq(srq_set_depth(rig.b.shared, srq, 0), -ENOBUFS);
	cr_expect_eq(memory->receive.depth, DEPTH);
	cr_expect_eq(srq_set_depth(rig.b.shared, srq, 4), 0);
	cr_expect_eq(memory->receive.depth, 4);
	cr_expect_eq(srq_set_depth(rig.b.shared, srq, DEPTH), 0);
}
