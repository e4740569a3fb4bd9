/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NdkCreateCq: with the overrun of a CQ all its queue pairs are unusable, at whichever worker they
 * live.
 */
#include <criterion/criterion.h>

#include "transport/private.h"
#include "rig.h"

static struct raw raw;
static struct rig_qp *here, *there; /* at workers 0 and 1, of one CQ */

static void share_cq(struct rig_qp *one)
{
	struct qp *record = arena_record(&raw.end.arena, ARENA_QPS, one->index);

	record->send_cq = record->receive_cq = here->cq;
}

static void setup(void)
{
	raw_open(&raw, 3, rig_connection(), RAW_PSN);
	here = raw.qp;
	there = end_open_qp(&raw.end, 1, 8);
	share_cq(there);
	cr_assert_eq(transport_connect(raw.end.worker[1], there->index,
				       &(struct qp_connection){ .path.local_gid = { 1 },
								.path.remote_gid = { 2 },
								.path_mtu = 1024 },
				       raw.now),
		     0);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(overrun, .init = setup, .fini = teardown);

static void settle(void)
{
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
}

/* More entries of worker 0 than its ring has. */
static void overrun(void)
{
	struct cq *cq = arena_record(&raw.end.arena, ARENA_CQS, here->cq);

	cq->side[0].tail += cq->side[0].depth;
	post_send(&raw.end, here, (struct shm_sqe){ .opcode = 99 }, NULL, 0);
	transport_poll(raw.end.worker[0], raw.now);
	cr_assert_eq(cq->state, CQ_BROKEN);
}

static void expect_end(const struct rig_qp *one)
{
	unsigned int told = 0;

	cr_assert_eq(qp_get_state(raw.end.shared, one->index), QP_ERROR);
	for (uint32_t i = 0; i < raw.end.events; i++) {
		const struct transport_event *event = &raw.end.event[i];

		if (event->type != TRANSPORT_QP_ERROR || event->object != one->index)
			continue;
		cr_assert_eq(event->value, VERDICT(CQ_OVERRUN));
		cr_assert_eq(event->async, SHM_ASYNC_QP_FATAL);
		told++;
	}
	cr_assert_eq(told, 1);
}

Test(overrun, b104_ends_queue_pairs_of_every_worker)
{
	struct rig_qp *neighbour = end_open_qp(&raw.end, 1, 8);

	settle();
	overrun();
	settle();
	expect_end(there);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_CQ_ERROR), 1);
	cr_assert_eq(qp_get_state(raw.end.shared, neighbour->index), QP_RESET);
}

/* Between two homes it is on no worker's lists. */
Test(overrun, b104_ends_a_queue_pair_that_is_moving)
{
	settle();
	cr_assert_eq(transport_release(raw.end.worker[1], there->index, 2, raw.now), 0);
	overrun();
	settle();
	cr_assert_eq(qp_get_state(raw.end.shared, there->index), QP_RTS);
	transport_take(raw.end.worker[2], there->index, raw.now);
	settle();
	expect_end(there);
}

/* Made when nobody had told its client yet. */
Test(overrun, b104_ends_a_queue_pair_that_comes_after_it)
{
	struct rig_qp *late;

	settle();
	overrun();
	settle();
	late = end_open_qp(&raw.end, 2, 8);
	transport_detach(raw.end.worker[2], late->index);
	share_cq(late);
	transport_attach(raw.end.worker[2], late->index, raw.now);
	settle();
	expect_end(late);
}
