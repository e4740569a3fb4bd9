/* SPDX-License-Identifier: BSD-3-Clause */
/* NdkControlCqInterruptModeration: what a callback waits for, and what it never waits for. */
#include <criterion/criterion.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "rig.h"

#define UNLIMITED  0xffffffffu
#define FOR_EVER   3600000000u /* us: no test takes an hour */
#define A_MOMENT   20000u      /* us */
#define PATIENCE   10000       /* ms */
#define CQ_ENTRIES 64u

static void complete(struct rig *rig, unsigned int count)
{
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive };

	for (unsigned int i = 0; i < count; i++)
		fake_complete(&rig->fake, 0, i % FAKE_WORKERS, &cqe);
}

static uint64_t now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

static void set_up(struct rig *rig, ULONG interval, ULONG count)
{
	rig_queues(rig);
	cr_assert_eq(NdkControlCqInterruptModeration(rig->cq, interval, count), STATUS_SUCCESS);
	NdkArmCq(rig->cq, NDK_CQ_NOTIFY_ANY);
}

Test(moderation, the_adapter_says_that_it_can)
{
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);
	struct rig rig;

	rig_open(&rig);
	cr_assert_eq(NdkQueryAdapterInfo(rig.adapter, &info, &size), STATUS_SUCCESS);
	cr_expect(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED);
	rig_close(&rig);
}

/* Both unlimited: STATUS_INVALID_PARAMETER_MIX; above the depth is unlimited as well. */
Test(moderation, something_must_govern)
{
	struct rig rig;

	rig_queues(&rig);
	cr_expect_eq(NdkControlCqInterruptModeration(rig.cq, UNLIMITED, UNLIMITED),
		     STATUS_INVALID_PARAMETER_MIX);
	cr_expect_eq(NdkControlCqInterruptModeration(rig.cq, UNLIMITED, CQ_ENTRIES + 1),
		     STATUS_INVALID_PARAMETER_MIX);
	cr_expect_eq(NdkControlCqInterruptModeration(rig.cq, UNLIMITED, CQ_ENTRIES),
		     STATUS_SUCCESS);
	rig_close(&rig);
}

/* Interval 0, count 0 and count 1 are no moderation, whatever the other is. */
Test(moderation, numbers_that_turn_it_off)
{
	static const ULONG off[][2] = {
		{ 0, 10 }, { 0, UNLIMITED }, { FOR_EVER, 0 }, { FOR_EVER, 1 }
	};

	for (unsigned int i = 0; i < 4; i++) {
		struct rig rig;

		set_up(&rig, off[i][0], off[i][1]);
		complete(&rig, 1);
		rig_run(&rig);
		cr_expect_eq(rig.notifications, 1, "%u us, %u entries", off[i][0], off[i][1]);
		rig_close(&rig);
	}
}

Test(moderation, enough_entries_end_the_wait)
{
	struct rig rig;

	set_up(&rig, FOR_EVER, 5);
	for (unsigned int i = 1; i < 5; i++) {
		complete(&rig, 1);
		rig_run(&rig);
		cr_expect_eq(rig.notifications, 0, "%u entries", i);
	}
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	complete(&rig, 10);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1, "one for each arm");
	rig_close(&rig);
}

/* A sleeper is woken by the entry that completes the number, not by time. */
Test(moderation, enough_entries_wake_a_sleeper)
{
	struct rig rig;

	set_up(&rig, UNLIMITED, 3);
	complete(&rig, 2);
	rig_run(&rig);
	cr_expect_eq(OrielWait(rig.adapter, 0), STATUS_TIMEOUT);
	complete(&rig, 1);
	cr_expect_eq(OrielWait(rig.adapter, PATIENCE), STATUS_SUCCESS);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* The time begins when the arm is satisfied, and its end wakes a sleeper. */
Test(moderation, time_ends_the_wait)
{
	uint64_t start;
	struct rig rig;

	set_up(&rig, A_MOMENT, UNLIMITED);
	start = now_us();
	complete(&rig, 1);
	rig_run(&rig);
	/* A process that stood still may find the moment over by now. */
	while (rig.notifications == 0) {
		cr_assert_eq(OrielWait(rig.adapter, PATIENCE), STATUS_SUCCESS);
		rig_run(&rig);
	}
	cr_expect_geq(now_us() - start, A_MOMENT);
	cr_expect_eq(rig.notifications, 1);
	cr_expect_eq(OrielWait(rig.adapter, 0), STATUS_TIMEOUT);
	rig_close(&rig);
}

Test(moderation, its_end_shows_on_the_descriptor)
{
	struct pollfd readable = { .events = POLLIN };
	struct rig rig;

	set_up(&rig, A_MOMENT, 10);
	readable.fd = OrielGetEventFd(rig.adapter);
	complete(&rig, 1);
	while (rig.notifications == 0) {
		cr_assert_eq(poll(&readable, 1, PATIENCE), 1);
		rig_run(&rig);
	}
	rig_run(&rig);
	cr_expect_eq(poll(&readable, 1, 0), 0);
	rig_close(&rig);
}

/* It delays the callback, not the entries. */
Test(moderation, entries_can_be_taken_meanwhile)
{
	NDK_RESULT results[8];
	struct rig rig;

	set_up(&rig, FOR_EVER, 5);
	complete(&rig, 4);
	rig_run(&rig);
	cr_expect_eq(NdkGetCqResults(rig.cq, results, 8), 4);
	complete(&rig, 4);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0, "four are waiting again");
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* Entries that are there when it is armed count. */
Test(moderation, an_arm_that_is_satisfied_at_once)
{
	struct rig rig;

	rig_queues(&rig);
	cr_assert_eq(NdkControlCqInterruptModeration(rig.cq, FOR_EVER, 3), STATUS_SUCCESS);
	complete(&rig, 2);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	rig_close(&rig);
}

/* The newest numbers win, also for a callback that waits already. */
Test(moderation, turning_it_off_lets_the_callback_go)
{
	struct rig rig;

	set_up(&rig, FOR_EVER, 5);
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 0);
	cr_assert_eq(NdkControlCqInterruptModeration(rig.cq, 0, 0), STATUS_SUCCESS);
	cr_expect_eq(OrielWait(rig.adapter, PATIENCE), STATUS_SUCCESS);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	NdkArmCq(rig.cq, NDK_CQ_NOTIFY_ANY);
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 2);
	rig_close(&rig);
}

/* A failure is told at once. */
Test(moderation, failure_does_not_wait)
{
	struct rig rig;

	set_up(&rig, FOR_EVER, 5);
	__atomic_store_n(&rig.fake.cq[0]->error, (uint32_t)STATUS_BUFFER_OVERFLOW,
			 __ATOMIC_RELEASE);
	complete(&rig, 1);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, 1);
	cr_expect_eq(rig.notified, STATUS_BUFFER_OVERFLOW);
	rig_close(&rig);
}

/* One that is closed while its callback waits has none any more. */
Test(moderation, close)
{
	struct outcome closed = { 0 };
	unsigned int told;
	struct rig rig;
	NDK_CQ *cq;

	rig_queues(&rig);
	cq = rig_create_cq(&rig, 16);
	cr_assert_eq(NdkControlCqInterruptModeration(cq, A_MOMENT, 5), STATUS_SUCCESS);
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
	fake_complete(&rig.fake, 1, 0, &(struct shm_cqe){ .type = NdkOperationTypeSend });
	rig_run(&rig);
	told = rig.notifications; /* of a process that stood still */
	cr_assert_eq(NdkCloseCq(cq, on_closed, &closed), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(closed.calls, 1);
	OrielWait(rig.adapter, 100);
	rig_run(&rig);
	cr_expect_eq(rig.notifications, told);
	rig_close(&rig);
}
