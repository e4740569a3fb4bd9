/* SPDX-License-Identifier: BSD-3-Clause */
/* NdkResizeCq: no completion is lost, doubled or out of order, no arm is forgotten. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

struct resize {
	struct rig rig;
	struct outcome outcome;
	struct shm_cq *old, *new;
};

static void complete_in(struct resize *resize, struct shm_cq *cq, uint32_t ring, uint64_t context)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive,
				     .qpn = 7 + ring,
				     .request_context = context };

	fake_complete_in(&resize->rig.fake, cq, ring, &cqe);
}

/* The daemon has been asked and has made new memory, and its workers change over. */
static void begin(struct resize *resize, ULONG depth)
{
	struct rig *rig = &resize->rig;

	rig->fake.hold[SHM_OP_RESIZE_CQ] = true;
	resize->outcome.calls = 0;
	resize->old = rig->fake.cq[0];
	cr_assert_eq(NdkResizeCq(rig->cq, depth, on_done, &resize->outcome), STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(rig->fake.last[SHM_OP_RESIZE_CQ].resize.depth, depth);
	resize->new = fake_resize(&rig->fake, 0);
}

/* All have. */
static void end(struct resize *resize)
{
	struct shm_reply reply = { 0 };

	fake_answer(&resize->rig.fake, SHM_OP_RESIZE_CQ, 0, &reply);
	resize->rig.fake.cq[0] = resize->new;
	rig_run(&resize->rig);
	cr_assert_eq(resize->outcome.calls, 1);
	cr_assert_eq(resize->outcome.status, STATUS_SUCCESS);
}

static void set_up(struct resize *resize)
{
	memset(resize, 0, sizeof(*resize));
	rig_queues(&resize->rig);
}

static void expect_next(struct resize *resize, uint64_t context)
{
	NDK_RESULT entry;

	cr_assert_eq(NdkGetCqResults(resize->rig.cq, &entry, 1), 1, "%zu is missing",
		     (size_t)context);
	cr_expect_eq((uintptr_t)entry.RequestContext, context, "%zu instead of %zu",
		     (size_t)(uintptr_t)entry.RequestContext, (size_t)context);
}

static void expect_none(struct resize *resize)
{
	NDK_RESULT entry;

	cr_expect_eq(NdkGetCqResults(resize->rig.cq, &entry, 1), 0);
}

/* NdkResizeCq: STATUS_INVALID_PARAMETER above MaxCqDepth. */
Test(resize, limits)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_expect_eq(NdkResizeCq(rig.cq, 0, on_done, &outcome), STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkResizeCq(rig.cq, 4097, on_done, &outcome), STATUS_INVALID_PARAMETER);
	rig_close(&rig);
}

/* What one worker wrote to its old ring comes before what it wrote to its new one. */
Test(resize, entries_before_between_and_after)
{
	for (unsigned int drained = 0; drained < 2; drained++) {
		struct resize resize;

		set_up(&resize);
		complete_in(&resize, resize.rig.fake.cq[0], 0, 1);
		begin(&resize, 200);
		complete_in(&resize, resize.old, 0, 2);
		complete_in(&resize, resize.new, 0, 3);
		if (drained) {
			expect_next(&resize, 1);
			expect_next(&resize, 2);
			expect_none(&resize);
		}
		end(&resize);
		complete_in(&resize, resize.new, 0, 4);
		for (uint64_t next = drained ? 3 : 1; next <= 4; next++)
			expect_next(&resize, next);
		expect_none(&resize);
		rig_close(&resize.rig);
	}
}

/* Each worker by itself: one that has changed over does not wait for one that is full of old. */
Test(resize, rings_of_all_workers_are_merged)
{
	uint64_t next[2] = { 100, 200 };
	unsigned int count = 0;
	struct resize resize;
	NDK_RESULT results[3];
	ULONG taken;

	set_up(&resize);
	for (uint64_t i = 0; i < 20; i++)
		complete_in(&resize, resize.rig.fake.cq[0], i % 2, 100 + i % 2 * 100 + i / 2);
	begin(&resize, 300);
	for (uint64_t i = 20; i < 40; i++)
		complete_in(&resize, i % 2 ? resize.new : resize.old, i % 2,
			    100 + i % 2 * 100 + i / 2);
	end(&resize);
	for (uint64_t i = 40; i < 60; i++)
		complete_in(&resize, resize.new, i % 2, 100 + i % 2 * 100 + i / 2);
	while ((taken = NdkGetCqResults(resize.rig.cq, results, 3)) != 0) {
		for (ULONG i = 0; i < taken; i++) {
			uint64_t context = (uintptr_t)results[i].RequestContext;

			cr_assert_eq(context, next[context / 100 - 1]++);
		}
		count += taken;
	}
	cr_expect_eq(count, 60);
	rig_close(&resize.rig);
}

/* A queue pair that moves from a worker that has changed over to one that has not. */
Test(resize, moves_in_between_keep_their_order)
{
	struct shm_cqe cqe = { .type = NdkOperationTypeSend, .qpn = 9 };
	struct resize resize;

	set_up(&resize);
	begin(&resize, 100);
	for (uint64_t i = 0; i < 4; i++) {
		cqe.epoch = (uint32_t)i;
		cqe.request_context = 1 + i;
		fake_complete_in(&resize.rig.fake, i % 2 ? resize.old : resize.new, i % 2, &cqe);
	}
	end(&resize);
	for (uint64_t i = 1; i <= 4; i++)
		expect_next(&resize, i);
	rig_close(&resize.rig);
}

/* An arm of before holds for what is written to the new memory, whenever it was. */
Test(resize, arms)
{
	for (unsigned int when = 0; when < 2; when++) {
		struct resize resize;

		set_up(&resize);
		NdkArmCq(resize.rig.cq, NDK_CQ_NOTIFY_ANY);
		begin(&resize, 100);
		if (when == 0)
			complete_in(&resize, resize.new, 1, 1);
		end(&resize);
		cr_expect_eq(resize.rig.notifications, when == 0);
		if (when == 1)
			complete_in(&resize, resize.new, 1, 1);
		rig_run(&resize.rig);
		cr_expect_eq(resize.rig.notifications, 1);
		expect_next(&resize, 1);
		rig_close(&resize.rig);
	}
}

Test(resize, a_failure_in_between_is_told)
{
	for (unsigned int where = 0; where < 2; where++) {
		struct resize resize;

		set_up(&resize);
		NdkArmCq(resize.rig.cq, NDK_CQ_NOTIFY_ERRORS);
		begin(&resize, 100);
		(where ? resize.new : resize.old)->error = (uint32_t)STATUS_BUFFER_OVERFLOW;
		end(&resize);
		cr_expect_eq(resize.rig.notifications, 1);
		cr_expect_eq(resize.rig.notified, STATUS_BUFFER_OVERFLOW);
		rig_close(&resize.rig);
	}
}

/* One at a time, and the next when what is in the old memory has been taken. */
Test(resize, one_at_a_time)
{
	struct resize resize;

	set_up(&resize);
	complete_in(&resize, resize.rig.fake.cq[0], 0, 1);
	begin(&resize, 100);
	cr_expect_eq(NdkResizeCq(resize.rig.cq, 50, on_done, &resize.outcome), STATUS_DEVICE_BUSY);
	end(&resize);
	cr_expect_eq(NdkResizeCq(resize.rig.cq, 50, on_done, &resize.outcome), STATUS_DEVICE_BUSY);
	expect_next(&resize, 1);
	expect_none(&resize);
	for (ULONG round = 1; round < 20; round++) {
		begin(&resize, 10 * round);
		complete_in(&resize, resize.old, round % 2, round);
		end(&resize);
		complete_in(&resize, resize.new, round % 2, 100 + round);
		expect_next(&resize, round);
		expect_next(&resize, 100 + round);
		expect_none(&resize);
	}
	rig_close(&resize.rig);
}

Test(resize, refused)
{
	struct resize resize;

	set_up(&resize);
	resize.rig.fake.status[SHM_OP_RESIZE_CQ] = STATUS_INSUFFICIENT_RESOURCES;
	for (unsigned int i = 1; i < 3; i++) {
		cr_assert_eq(NdkResizeCq(resize.rig.cq, 100, on_done, &resize.outcome),
			     STATUS_PENDING);
		rig_run(&resize.rig);
		cr_expect_eq(resize.outcome.calls, i);
		cr_expect_eq(resize.outcome.status, STATUS_INSUFFICIENT_RESOURCES);
	}
	complete_in(&resize, resize.rig.fake.cq[0], 0, 1);
	expect_next(&resize, 1);
	rig_close(&resize.rig);
}

/* Closed in the middle: the request is cancelled, and nothing is left. */
Test(resize, close)
{
	struct outcome closed = { 0 };
	struct resize resize;
	NDK_CQ *cq;

	set_up(&resize);
	cq = rig_create_cq(&resize.rig, 8);
	resize.rig.fake.hold[SHM_OP_RESIZE_CQ] = true;
	cr_assert_eq(NdkResizeCq(cq, 100, on_done, &resize.outcome), STATUS_PENDING);
	rig_run(&resize.rig);
	cr_assert_eq(NdkCloseCq(cq, on_closed, &closed), STATUS_PENDING);
	rig_run(&resize.rig);
	cr_expect_eq(resize.outcome.calls, 1);
	cr_expect_eq(resize.outcome.status, STATUS_CANCELLED);
	cr_expect_eq(closed.calls, 1);
	resize.rig.fake.held_count = 0;
	rig_close(&resize.rig);
}
