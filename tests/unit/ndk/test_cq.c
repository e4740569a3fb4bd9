/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: merging, results, arms, notifications. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"
#include "shm/spsc.h"

static void complete(struct rig *rig, uint32_t ring, uint64_t context)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive, .request_context = context };

	fake_complete(&rig->fake, 0, ring, &cqe);
}

static void complete_solicited(struct rig *rig)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive, .solicited = 1 };

	fake_complete(&rig->fake, 0, 0, &cqe);
}

static void complete_failed(struct rig *rig)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeSend, .status = STATUS_CANCELLED };

	fake_complete(&rig->fake, 0, 0, &cqe);
}

static unsigned int drain(struct rig *rig)
{
	NDK_RESULT results[16];
	unsigned int count = 0;
	ULONG taken;

	while ((taken = NdkGetCqResults(rig->cq, results, 16)) != 0)
		count += taken;
	return count;
}

/* --- results ------------------------------------------------------------------------------ */

/* Order within a ring, and so within a queue pair, is kept; none is lost or doubled. */
Test(results, rings_of_all_workers_are_merged_in_order)
{
	uint64_t next[FAKE_WORKERS] = { 0 };
	NDK_RESULT results[7];
	unsigned int count = 0;
	struct rig rig;
	ULONG taken;

	rig_queues(&rig);
	for (uint64_t i = 0; i < 60; i++)
		complete(&rig, i % 3 ? 1 : 0, (i % 3 ? 1000 : 0) + (i % 3 ? i - i / 3 - 1 : i / 3));
	while ((taken = NdkGetCqResults(rig.cq, results, 7)) != 0) {
		for (ULONG i = 0; i < taken; i++) {
			uint64_t context = (uintptr_t)results[i].RequestContext;

			cr_assert_eq(context % 1000, next[context / 1000]++);
		}
		count += taken;
	}
	cr_expect_eq(count, 60);
	rig_close(&rig);
}

Test(results, no_ring_is_starved)
{
	NDK_RESULT result;
	struct rig rig;

	rig_queues(&rig);
	for (unsigned int i = 0; i < 8; i++)
		complete(&rig, 0, 1);
	complete(&rig, 1, 2);
	for (unsigned int i = 0; i < 2; i++)
		cr_assert_eq(NdkGetCqResults(rig.cq, &result, 1), 1);
	cr_expect_eq((uintptr_t)result.RequestContext, 2);
	rig_close(&rig);
}

/* B102: a ring of 64 with 1000 entries through it. */
Test(results, rings_wrap)
{
	NDK_RESULT result;
	struct rig rig;

	rig_queues(&rig);
	for (uintptr_t i = 0; i < 1000; i++) {
		complete(&rig, 0, i);
		cr_assert_eq(NdkGetCqResults(rig.cq, &result, 1), 1);
		cr_assert_eq((uintptr_t)result.RequestContext, i);
	}
	cr_expect_eq(NdkGetCqResults(rig.cq, &result, 1), 0);
	cr_expect_eq(NdkGetCqResults(rig.cq, NULL, 0), 0);
	rig_close(&rig);
}

Test(results, ex_has_type_reason_and_output)
{
	const struct shm_cqe cqe[] = {
		{ .type = NdkOperationTypeReceiveAndInvalidate, .output = 0xaaaa, .bytes = 12 },
		{ .type = OrielOperationTypeReceiveImmediate, .output = 0x01020304 },
		{ .type = NdkOperationTypeSend,
		  .status = STATUS_IO_TIMEOUT,
		  .provider_error = 9,
		  .output = 0xbbbb,
		  .qp_context = 3 },
	};
	NDK_RESULT_EX results[4];
	struct rig rig;

	rig_queues(&rig);
	for (unsigned int i = 0; i < 3; i++)
		fake_complete(&rig.fake, 0, 0, &cqe[i]);
	cr_assert_eq(NdkGetCqResultsEx(rig.cq, results, 4), 3);
	cr_expect_eq(results[0].Type, NdkOperationTypeReceiveAndInvalidate);
	cr_expect_eq(results[0].TypeSpecificCompletionOutput, 0xaaaa);
	cr_expect_eq(results[0].BytesTransferred, 12);
	cr_expect_eq(results[1].TypeSpecificCompletionOutput, 0x01020304);
	cr_expect_eq(results[2].Type, NdkOperationTypeSend, "valid on failure too");
	cr_expect_eq(results[2].Status, STATUS_IO_TIMEOUT);
	cr_expect_eq(results[2].ProviderErrorCode, 9);
	cr_expect_eq(results[2].TypeSpecificCompletionOutput, 0);
	cr_expect_eq((uintptr_t)results[2].QPContext, 3);
	rig_close(&rig);
}

/* --- queue pairs that move between workers ------------------------------------------------ */

static void complete_moved(struct rig *rig, uint32_t ring, uint32_t qpn, uint32_t epoch,
			   uint64_t context)
{
	const struct shm_cqe cqe = {
		.type = NdkOperationTypeSend, .qpn = qpn, .epoch = epoch, .request_context = context
	};

	fake_complete(&rig->fake, 0, ring, &cqe);
}

/* Entries come out one by one, as each of these contexts in turn. */
static void expect_order(struct rig *rig, ULONG room, const uintptr_t order[], unsigned int count)
{
	NDK_RESULT results[16];
	unsigned int seen = 0;
	ULONG taken;

	while ((taken = NdkGetCqResults(rig->cq, results, room)) != 0)
		for (ULONG i = 0; i < taken; i++, seen++) {
			cr_assert_lt(seen, count);
			cr_expect_eq((uintptr_t)results[i].RequestContext, order[seen],
				     "entry %u is %zu", seen, (uintptr_t)results[i].RequestContext);
		}
	cr_expect_eq(seen, count);
}

/* shm_cqe.epoch: what the old worker wrote is taken first, whichever ring is looked at first. */
Test(moves, entries_of_the_old_worker_come_first)
{
	for (uint32_t from = 0; from < 2; from++)
		for (ULONG room = 1; room <= 16; room += 15) {
			struct rig rig;

			rig_queues(&rig);
			complete_moved(&rig, from, 7, 0, 1);
			complete_moved(&rig, from, 7, 0, 2);
			complete_moved(&rig, 1 - from, 7, 1, 3);
			complete_moved(&rig, 1 - from, 7, 1, 4);
			expect_order(&rig, room, (uintptr_t[]){ 1, 2, 3, 4 }, 4);
			rig_close(&rig);
		}
}

/* There and back: one ring holds entries of both epochs, with the other's between. */
Test(moves, there_and_back)
{
	for (ULONG room = 1; room <= 16; room += 15) {
		struct rig rig;

		rig_queues(&rig);
		complete_moved(&rig, 1, 7, 0, 1);
		complete_moved(&rig, 0, 7, 1, 2);
		complete_moved(&rig, 0, 7, 1, 3);
		complete_moved(&rig, 1, 7, 2, 4);
		complete_moved(&rig, 0, 7, 3, 5);
		expect_order(&rig, room, (uintptr_t[]){ 1, 2, 3, 4, 5 }, 5);
		rig_close(&rig);
	}
}

/* Two that swap places: each ring's head may wait for the other ring, but not both. */
Test(moves, rings_do_not_block_each_other)
{
	NDK_RESULT results[16];
	unsigned int count = 0;
	uintptr_t last[2] = { 0, 0 };
	struct rig rig;
	ULONG taken;

	rig_queues(&rig);
	complete_moved(&rig, 0, 7, 4, 10);
	complete_moved(&rig, 1, 8, 9, 20);
	complete_moved(&rig, 1, 7, 5, 11);
	complete_moved(&rig, 0, 8, 10, 21);
	complete_moved(&rig, 0, 7, 6, 12);
	complete_moved(&rig, 1, 8, 11, 22);
	while ((taken = NdkGetCqResults(rig.cq, results, 1)) != 0) {
		uintptr_t context = (uintptr_t)results[0].RequestContext;

		cr_expect_gt(context, last[context / 10 - 1]);
		last[context / 10 - 1] = context;
		count += taken;
	}
	cr_expect_eq(count, 6);
	rig_close(&rig);
}

/* Others are not held up by one that has moved, and a number used anew begins at 0 again. */
Test(moves, other_queue_pairs_pass)
{
	struct rig rig;
	NDK_RESULT results[16];

	rig_queues(&rig);
	complete_moved(&rig, 0, 7, 3, 1);
	complete_moved(&rig, 0, 9, 0, 2);
	complete_moved(&rig, 1, 7 + 64, 2, 3);
	cr_expect_eq(NdkGetCqResults(rig.cq, results, 16), 3);
	complete_moved(&rig, 1, 7, 0, 4);
	complete_moved(&rig, 0, 7, 1, 5);
	expect_order(&rig, 16, (uintptr_t[]){ 4, 5 }, 2);
	rig_close(&rig);
}

/* --- arms ------------------------------------------------------------------------------------- */

Test(arm, no_callback_without_one)
{
	struct rig rig;

	rig_queues(&rig);
	complete(&rig, 0, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	rig_close(&rig);
}

Test(arm, one_callback_for_one)
{
	struct rig rig;

	rig_queues(&rig);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	complete(&rig, 0, 1);
	complete(&rig, 1, 2);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	cr_expect_eq(rig.notified, STATUS_SUCCESS);
	complete(&rig, 0, 3);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* The table of both arms: the stronger stays, whichever came first. */
Test(arm, the_stronger_of_two)
{
	const uint32_t value[3] = { [NDK_CQ_NOTIFY_ERRORS] = SHM_ARM_ERRORS,
				    [NDK_CQ_NOTIFY_ANY] = SHM_ARM_ANY,
				    [NDK_CQ_NOTIFY_SOLICITED] = SHM_ARM_SOLICITED };
	const uint32_t table[3][3] = {
		[NDK_CQ_NOTIFY_ANY] = { SHM_ARM_ANY, SHM_ARM_ANY, SHM_ARM_ANY },
		[NDK_CQ_NOTIFY_ERRORS] = { [NDK_CQ_NOTIFY_ANY] = SHM_ARM_ANY,
					   [NDK_CQ_NOTIFY_ERRORS] = SHM_ARM_ERRORS,
					   [NDK_CQ_NOTIFY_SOLICITED] = SHM_ARM_SOLICITED },
		[NDK_CQ_NOTIFY_SOLICITED] = { [NDK_CQ_NOTIFY_ANY] = SHM_ARM_ANY,
					      [NDK_CQ_NOTIFY_ERRORS] = SHM_ARM_SOLICITED,
					      [NDK_CQ_NOTIFY_SOLICITED] = SHM_ARM_SOLICITED },
	};
	struct rig rig;

	rig_queues(&rig);
	for (ULONG first = 0; first < 3; first++) {
		for (ULONG second = 0; second < 3; second++) {
			rig.fake.cq[0]->arm = SHM_ARM_NONE;
			NdkArmCq(rig.cq, first);
			cr_expect_eq(rig.fake.cq[0]->arm, value[first]);
			NdkArmCq(rig.cq, second);
			cr_expect_eq(rig.fake.cq[0]->arm, table[first][second], "%u then %u", first,
				     second);
		}
	}
	rig_close(&rig);
}

/* Missed-event rule: entries that came after the last callback satisfy an arm at once. */
Test(arm, entries_that_are_there_satisfy_it_at_once)
{
	struct rig rig;

	rig_queues(&rig);
	complete(&rig, 1, 1);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	cr_expect_eq(rig.notifications, 0, "not from inside NdkArmCq");
	cr_expect_eq(rig.fake.cq[0]->arm, SHM_ARM_NONE);
	cr_expect_eq(OrielWait(rig.adapter, -1), STATUS_SUCCESS);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* ... and those that the last callback could see do not. */
Test(arm, entries_already_told_of_do_not_satisfy_it)
{
	struct rig rig;

	rig_queues(&rig);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	complete(&rig, 0, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	cr_expect_eq(rig.fake.cq[0]->arm, SHM_ARM_ANY);
	complete(&rig, 0, 2);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 2);
	cr_expect_eq(drain(&rig), 2);
	rig_close(&rig);
}

Test(arm, an_entry_read_meanwhile_is_no_event)
{
	struct rig rig;

	rig_queues(&rig);
	complete(&rig, 0, 1);
	cr_assert_eq(drain(&rig), 1);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	rig_close(&rig);
}

/* The consumer's pattern: inside the callback drain, then arm again. Nothing is missed. */
Test(arm, again_from_inside_the_callback)
{
	struct rig rig;

	rig_queues(&rig);
	rig.rearm = true;
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	for (unsigned int i = 0; i < 10; i++) {
		complete(&rig, i % 2, i);
		rig_run(&rig);
		cr_expect_eq(rig.notifications, i + 1);
		cr_expect_eq(drain(&rig), 0);
	}
	rig_close(&rig);
}

Test(arm, solicited_waits_for_its_kind_or_an_error)
{
	struct rig rig;

	rig_queues(&rig);
	complete(&rig, 0, 1);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_SOLICITED);
	complete(&rig, 0, 2);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	complete_solicited(&rig);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	complete_failed(&rig);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_SOLICITED); /* the failed one is there already */
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 2);
	rig_close(&rig);
}

Test(arm, errors_means_failure_of_the_queue_itself)
{
	struct rig rig;

	rig_queues(&rig);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ERRORS);
	complete_failed(&rig);
	complete_solicited(&rig);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	rig_close(&rig);
}

/* Overrun: STATUS_BUFFER_OVERFLOW, once, whatever the arm. */
Test(arm, failure_of_the_queue_is_told_once)
{
	struct rig rig;

	rig_queues(&rig);
	shm_store_release(&rig.fake.cq[0]->error, (uint32_t)STATUS_BUFFER_OVERFLOW);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0, "not without an arm");
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ERRORS);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	cr_expect_eq(rig.notified, STATUS_BUFFER_OVERFLOW);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* A notification that comes in after the close has begun is nobody's. */
Test(arm, no_callback_after_close)
{
	struct outcome qp = { 0 }, cq = { 0 };
	struct rig rig;

	rig_queues(&rig);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	NdkCloseQp(rig.qp, on_closed, &qp);
	NdkCloseCq(rig.cq, on_closed, &cq);
	complete(&rig, 0, 1);
	rig_run(&rig);
	rig_run(&rig);
	cr_expect_eq(cq.calls, 1);
	cr_expect_eq(rig.notifications, 0);
	rig_close(&rig);
}
