/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues: receives, depth, threshold and its notification, closes. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"
#include "shm/spsc.h"

struct shared {
	struct rig rig;
	NDK_SRQ *srq;
	uint32_t handle;
	unsigned int notified;
	NTSTATUS status;
	unsigned int events;
	NDK_OBJECT_HEADER *object;
	ULONG left;
	bool modified; /* the completion of the last NdkModifySrq has run */
	bool modified_first;
};

static void on_limit(PVOID context, NTSTATUS status)
{
	struct shared *shared = context;

	shared->notified++;
	shared->status = status;
	shared->modified_first = shared->modified;
}

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	struct shared *shared = context;

	cr_expect_eq(event, OrielEventSrqLimit);
	cr_expect_eq(shared->notified, shared->events + 1, "the callback comes first");
	shared->events++;
	shared->object = object;
	shared->left = reason;
}

static void on_modified(PVOID context, NTSTATUS status)
{
	struct shared *shared = context;

	shared->modified = true;
	shared->status = status;
}

static void set_up(struct shared *shared, ULONG depth, ULONG threshold)
{
	struct outcome outcome = { 0 };

	memset(shared, 0, sizeof(*shared));
	rig_queues(&shared->rig);
	cr_assert_eq(NdkCreateSrq(shared->rig.pd, depth, 2, threshold, on_limit, shared, NULL,
				  on_created, &outcome, NULL),
		     STATUS_PENDING);
	rig_run(&shared->rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	shared->srq = (NDK_SRQ *)outcome.object;
	shared->handle = shared->rig.fake.last_handle;
	cr_expect_eq(shared->srq->Header.ObjectType, NdkObjectTypeSrq);
}

static NDK_QP *create_qp(struct shared *shared)
{
	struct outcome outcome = { 0 };

	cr_assert_eq(NdkCreateQpWithSrq(shared->rig.pd, shared->rig.cq, shared->rig.cq, shared->srq,
					NULL, 4, 2, 64, on_created, &outcome, NULL),
		     STATUS_PENDING);
	rig_run(&shared->rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	return (NDK_QP *)outcome.object;
}

static void limit_event(struct shared *shared, uint32_t left)
{
	const struct shm_reply event = {
		.op = SHM_EV_ASYNC,
		.async = { .object = shared->handle, .event = SHM_ASYNC_SRQ_LIMIT, .value = left }
	};

	fake_send(&shared->rig.fake, &event);
}

static NTSTATUS modify(struct shared *shared, ULONG depth, ULONG threshold)
{
	NTSTATUS status;

	shared->modified = false;
	status = NdkModifySrq(shared->srq, depth, threshold, on_modified, shared);
	if (status != STATUS_PENDING)
		return status;
	rig_run(&shared->rig);
	cr_assert(shared->modified);
	return shared->status;
}

/* NdkCreateSrq: what the consumer asks for reaches the daemon. */
Test(srq, creation)
{
	struct shared shared;
	const struct shm_create_srq *want;

	set_up(&shared, 5, 3);
	want = &shared.rig.fake.last[SHM_OP_CREATE_SRQ].create_srq;
	cr_expect_eq(want->depth, 5);
	cr_expect_eq(want->receive_sge, 2);
	cr_expect_eq(want->threshold, 3);
	cr_expect_eq(want->pd, shared.rig.fake.last[SHM_OP_CREATE_QP].create_qp.pd);
	rig_close(&shared.rig);
}

/* NdkCreateSrq: STATUS_INVALID_PARAMETER above the adapter's limits. */
Test(srq, limits)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_expect_eq(NdkCreateSrq(rig.pd, 0, 1, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkCreateSrq(rig.pd, 257, 1, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkCreateSrq(rig.pd, 256, 17, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 0);
	rig_close(&rig);
}

/* NdkSrqReceive: entries in order, full at the depth, room again when one was taken. */
Test(srq, receives)
{
	struct shared shared;
	struct shm_srq *memory;

	set_up(&shared, 3, 0);
	rig_memory(&shared.rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	memory = shared.rig.fake.srq[0];
	for (uintptr_t i = 1; i <= 3; i++)
		cr_assert_eq(NdkSrqReceive(shared.srq, (PVOID)i, &shared.rig.sge, 1),
			     STATUS_SUCCESS);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, &shared.rig.sge, 1), STATUS_NO_MORE_ENTRIES);
	cr_expect_eq(fake_take_receive(memory), 1);
	cr_expect_eq(NdkSrqReceive(shared.srq, (PVOID)4, NULL, 0), STATUS_SUCCESS);
	cr_expect_eq(fake_take_receive(memory), 2);
	cr_expect_eq(fake_take_receive(memory), 3);
	cr_expect_eq(fake_take_receive(memory), 4);
	rig_close(&shared.rig);
}

Test(srq, more_sges_than_it_was_made_for_are_refused)
{
	NDK_SGE sgl[3] = { 0 };
	struct shared shared;

	set_up(&shared, 3, 0);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, sgl, 3), STATUS_DATA_OVERRUN);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, sgl, 2), STATUS_SUCCESS);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, NULL, 1), STATUS_INVALID_PARAMETER);
	rig_close(&shared.rig);
}

/* NDKPI is silent on NdkReceive here: inline STATUS_INVALID_DEVICE_REQUEST. */
Test(srq, a_queue_pair_with_an_srq_has_no_receive_queue_of_its_own)
{
	struct shared shared;
	NDK_QP *qp;

	set_up(&shared, 3, 0);
	qp = create_qp(&shared);
	cr_expect_eq(shared.rig.fake.last[SHM_OP_CREATE_QP].create_qp.srq, shared.handle);
	cr_expect_eq(NdkReceive(qp, NULL, NULL, 0), STATUS_INVALID_DEVICE_REQUEST);
	rig_close(&shared.rig);
}

/* The threshold notification: callback with STATUS_SUCCESS, then the adapter's handler. */
Test(srq, limit_is_told)
{
	struct shared shared;

	set_up(&shared, 4, 2);
	OrielSetEventHandler(shared.rig.adapter, on_event, &shared);
	limit_event(&shared, 1);
	rig_run(&shared.rig);
	cr_expect_eq(shared.notified, 1);
	cr_expect_eq(shared.status, STATUS_SUCCESS);
	cr_expect_eq(shared.events, 1);
	cr_expect_eq(shared.object, &shared.srq->Header);
	cr_expect_eq(shared.left, 1);
	rig_close(&shared.rig);
}

Test(srq, no_callback_means_no_notification)
{
	struct outcome outcome = { 0 };
	struct shared shared;

	set_up(&shared, 4, 2);
	cr_assert_eq(
		NdkCreateSrq(shared.rig.pd, 4, 1, 2, NULL, NULL, NULL, on_created, &outcome, NULL),
		STATUS_PENDING);
	rig_run(&shared.rig);
	shared.handle = shared.rig.fake.last_handle;
	limit_event(&shared, 1);
	rig_run(&shared.rig);
	cr_expect_eq(shared.notified, 0);
	rig_close(&shared.rig);
}

/* An SRQ that is being closed notifies no more; the close is its last callback. */
Test(srq, no_notification_after_close)
{
	struct outcome closed = { 0 };
	struct shared shared;

	set_up(&shared, 4, 2);
	limit_event(&shared, 1);
	cr_assert_eq(NdkCloseSrq(shared.srq, on_closed, &closed), STATUS_PENDING);
	rig_run(&shared.rig);
	limit_event(&shared, 0);
	rig_run(&shared.rig);
	cr_expect_eq(shared.notified, 0);
	cr_expect_eq(closed.calls, 1);
	rig_close(&shared.rig);
}

/* NdkModifySrq: the new depth holds from the completion on. */
Test(srq, depth_can_change)
{
	struct shared shared;

	set_up(&shared, 2, 0);
	cr_assert_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_SUCCESS);
	cr_assert_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_SUCCESS);
	cr_assert_eq(modify(&shared, 1, 0), STATUS_SUCCESS);
	fake_take_receive(shared.rig.fake.srq[0]);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_NO_MORE_ENTRIES);
	fake_take_receive(shared.rig.fake.srq[0]);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_SUCCESS);
	rig_close(&shared.rig);
}

/* NdkModifySrq: zeros keep; above MaxSrqDepth is refused; the daemon's refusal changes nothing. */
Test(srq, depth_is_kept_by_zero_and_by_refusal)
{
	struct shared shared;

	set_up(&shared, 2, 0);
	cr_expect_eq(modify(&shared, 257, 0), STATUS_INVALID_PARAMETER);
	cr_expect_eq(modify(&shared, 0, 7), STATUS_SUCCESS);
	cr_expect_eq(shared.rig.fake.last[SHM_OP_MODIFY_SRQ].resize.threshold, 7);
	shared.rig.fake.status[SHM_OP_MODIFY_SRQ] = STATUS_BUFFER_OVERFLOW;
	cr_expect_eq(modify(&shared, 1, 0), STATUS_BUFFER_OVERFLOW);
	cr_assert_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_SUCCESS);
	cr_assert_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_NO_MORE_ENTRIES);
	rig_close(&shared.rig);
}

/* A threshold that is not met already: the completion comes, then the notification. */
Test(srq, notification_that_is_owed_at_once_follows_the_completion)
{
	struct shm_reply reply = { 0 };
	struct shared shared;

	set_up(&shared, 4, 0);
	shared.rig.fake.hold[SHM_OP_MODIFY_SRQ] = true;
	cr_assert_eq(NdkModifySrq(shared.srq, 0, 2, on_modified, &shared), STATUS_PENDING);
	rig_run(&shared.rig);
	fake_answer(&shared.rig.fake, SHM_OP_MODIFY_SRQ, 0, &reply);
	limit_event(&shared, 0);
	rig_run(&shared.rig);
	cr_expect_eq(shared.notified, 1);
	cr_expect(shared.modified_first);
	rig_close(&shared.rig);
}

/* Life cycle: what an object needs goes after it, whichever was closed first. */
Test(srq, close_waits_for_its_queue_pairs_and_the_domain_for_it)
{
	struct outcome srq_closed = { 0 }, qp_closed = { 0 }, pd_closed = { 0 };
	struct shared shared;
	NDK_QP *qp;
	NDK_PD *pd;

	set_up(&shared, 4, 0);
	qp = create_qp(&shared);
	pd = shared.rig.pd;
	cr_assert_eq(NdkClosePd(pd, on_closed, &pd_closed), STATUS_PENDING);
	cr_assert_eq(NdkCloseSrq(shared.srq, on_closed, &srq_closed), STATUS_PENDING);
	rig_run(&shared.rig);
	cr_expect_eq(srq_closed.calls, 0);
	cr_assert_eq(NdkCloseQp(qp, on_closed, &qp_closed), STATUS_PENDING);
	rig_run(&shared.rig);
	cr_expect_eq(qp_closed.calls, 1);
	cr_expect_eq(srq_closed.calls, 1);
	cr_expect_eq(pd_closed.calls, 0, "the rig's own queue pair still needs it");
	cr_assert_eq(NdkCloseQp(shared.rig.qp, on_closed, &qp_closed), STATUS_PENDING);
	rig_run(&shared.rig);
	cr_expect_eq(pd_closed.calls, 1);
	rig_close(&shared.rig);
}

/* The library trusts the daemon, but not a segment that its entries would not fit into. */
Test(srq, segment_that_cannot_be_is_refused)
{
	struct outcome outcome = { 0 };
	struct shared shared;

	set_up(&shared, 4, 0);
	shared.rig.fake.srq_slots = 8;
	cr_assert_eq(
		NdkCreateSrq(shared.rig.pd, 4, 1, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		STATUS_PENDING);
	rig_run(&shared.rig);
	cr_expect_eq(outcome.status, STATUS_INTERNAL_ERROR);
	cr_expect_null(outcome.object);
	rig_close(&shared.rig);
}

/* After the daemon's death posts say so. */
Test(srq, daemon_gone)
{
	struct shared shared;

	set_up(&shared, 4, 0);
	fake_die(&shared.rig.fake);
	while (OrielWait(shared.rig.adapter, 1000) != STATUS_DEVICE_REMOVED)
		while (OrielProgress(shared.rig.adapter))
			;
	cr_expect_eq(NdkSrqReceive(shared.srq, NULL, NULL, 0), STATUS_DEVICE_REMOVED);
	cr_expect_eq(NdkModifySrq(shared.srq, 0, 1, on_modified, &shared), STATUS_DEVICE_REMOVED);
	rig_close(&shared.rig);
}
