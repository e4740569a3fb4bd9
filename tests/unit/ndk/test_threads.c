/* SPDX-License-Identifier: BSD-3-Clause */
/* B108: several threads on one queue; every request completes once, to whoever polls. */
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>

#include "rig.h"
#include "shm/spsc.h"

#define THREADS  4u
#define REQUESTS 2000u /* of each poster */
#define TOTAL    (THREADS * REQUESTS)

struct crowd {
	struct rig rig;
	uint32_t seen[TOTAL];
	uint32_t completed;
	uint32_t posted;
	uint32_t notified;
	bool stop;
};

struct member {
	struct crowd *crowd;
	uint32_t number;
	pthread_t thread;
};

static void *post_requests(void *argument)
{
	struct member *member = argument;
	uint32_t next = 0;

	while (next < REQUESTS) {
		uintptr_t context = member->number * REQUESTS + next;
		ULONG flags = next % 3 == 0 ? NDK_OP_FLAG_DEFER : 0;
		NTSTATUS status = NdkSend(member->crowd->rig.qp, (PVOID)context, NULL, 0, flags);

		if (status == STATUS_SUCCESS) {
			__atomic_fetch_add(&member->crowd->posted, 1, __ATOMIC_RELAXED);
			next++;
		} else {
			cr_assert_eq(status, STATUS_NO_MORE_ENTRIES);
			sched_yield();
		}
	}
	return NULL;
}

static void *poll_results(void *argument)
{
	struct member *member = argument;
	struct crowd *crowd = member->crowd;
	NDK_RESULT results[8];

	while (__atomic_load_n(&crowd->completed, __ATOMIC_RELAXED) < TOTAL) {
		ULONG count = NdkGetCqResults(crowd->rig.cq, results, 8);

		for (ULONG i = 0; i < count; i++)
			__atomic_fetch_add(&crowd->seen[(uintptr_t)results[i].RequestContext], 1,
					   __ATOMIC_RELAXED);
		__atomic_fetch_add(&crowd->completed, count, __ATOMIC_RELAXED);
		if (!count)
			sched_yield();
	}
	return NULL;
}

/* The worker: takes what was rung for and completes it, as long as the CQ has room. */
static void *be_worker(void *argument)
{
	struct crowd *crowd = argument;
	struct fake *fake = &crowd->rig.fake;
	struct shm_qp *qp = fake->qp[0];
	struct shm_ring_cursor *cursor = &fake->cq[0]->ring[0].cursor;
	uint32_t done = 0;

	while (!__atomic_load_n(&crowd->stop, __ATOMIC_ACQUIRE)) {
		uint32_t tail = shm_load_acquire(&qp->send.tail);

		while (done != tail && shm_ring_free(cursor, cursor->tail, fake->cq[0]->slots)) {
			const struct shm_cqe cqe = { .type = NdkOperationTypeSend,
						     .request_context =
							     fake_sqe(qp, done)->request_context };

			fake_complete(fake, 0, 0, &cqe);
			shm_store_release(&qp->send.done, ++done);
		}
		sched_yield();
	}
	return NULL;
}

static void start(struct crowd *crowd, struct member *members, void *(*run)(void *))
{
	for (uint32_t i = 0; i < THREADS; i++) {
		members[i] = (struct member){ .crowd = crowd, .number = i };
		cr_assert_eq(pthread_create(&members[i].thread, NULL, run, &members[i]), 0);
	}
}

static void join(struct member *members)
{
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(members[i].thread, NULL);
}

Test(threads, four_post_and_four_poll)
{
	static struct crowd crowd;
	struct member posters[THREADS], pollers[THREADS];
	pthread_t worker;

	rig_connected(&crowd.rig);
	cr_assert_eq(pthread_create(&worker, NULL, be_worker, &crowd), 0);
	start(&crowd, pollers, poll_results);
	start(&crowd, posters, post_requests);
	join(posters);
	NdkFlush(crowd.rig.qp); /* hands over whatever is still deferred */
	join(pollers);
	__atomic_store_n(&crowd.stop, true, __ATOMIC_RELEASE);
	pthread_join(worker, NULL);
	for (uint32_t i = 0; i < TOTAL; i++)
		cr_assert_eq(crowd.seen[i], 1, "request %u came %u times", i, crowd.seen[i]);
	rig_close(&crowd.rig);
}

static void *be_daemon(void *argument)
{
	struct crowd *crowd = argument;

	while (!__atomic_load_n(&crowd->stop, __ATOMIC_ACQUIRE)) {
		fake_step(&crowd->rig.fake);
		sched_yield();
	}
	return NULL;
}

/* NDKPI does not promise that a flush waits for posts: both at once, and each request comes once.
 */

static void *flush_again_and_again(void *argument)
{
	struct crowd *crowd = argument;

	while (__atomic_load_n(&crowd->posted, __ATOMIC_RELAXED) < TOTAL) {
		NdkFlush(crowd->rig.qp);
		sched_yield();
	}
	return NULL;
}

Test(threads, a_flush_beside_posts_loses_nothing)
{
	static struct crowd crowd;
	struct member posters[THREADS], pollers[THREADS];
	pthread_t worker, daemon, flusher;

	rig_connected(&crowd.rig);
	cr_assert_eq(pthread_create(&worker, NULL, be_worker, &crowd), 0);
	cr_assert_eq(pthread_create(&daemon, NULL, be_daemon, &crowd), 0);
	start(&crowd, pollers, poll_results);
	start(&crowd, posters, post_requests);
	cr_assert_eq(pthread_create(&flusher, NULL, flush_again_and_again, &crowd), 0);
	while (__atomic_load_n(&crowd.posted, __ATOMIC_RELAXED) < TOTAL)
		if (!OrielProgress(crowd.rig.adapter))
			sched_yield();
	join(posters);
	pthread_join(flusher, NULL);
	NdkFlush(crowd.rig.qp);
	join(pollers);
	__atomic_store_n(&crowd.stop, true, __ATOMIC_RELEASE);
	pthread_join(worker, NULL);
	pthread_join(daemon, NULL);
	for (uint32_t i = 0; i < TOTAL; i++)
		cr_assert_eq(crowd.seen[i], 1, "request %u came %u times", i, crowd.seen[i]);
	rig_close(&crowd.rig);
}

/* Threads that ask while another drives progress: each request completes once. */

static void count_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct crowd *crowd = context;

	cr_assert_eq(status, STATUS_SUCCESS);
	NdkClosePd((NDK_PD *)object, NULL, NULL);
	__atomic_fetch_add(&crowd->completed, 1, __ATOMIC_RELAXED);
}

static void *create_objects(void *argument)
{
	struct member *member = argument;

	for (uint32_t i = 0; i < 200; i++)
		cr_assert_eq(
			NdkCreatePd(member->crowd->rig.adapter, count_created, member->crowd, NULL),
			STATUS_PENDING);
	return NULL;
}

Test(threads, four_create_while_one_sleeps_and_drives_progress)
{
	static struct crowd crowd;
	struct member creators[THREADS];
	pthread_t daemon;

	rig_open(&crowd.rig);
	cr_assert_eq(pthread_create(&daemon, NULL, be_daemon, &crowd), 0);
	start(&crowd, creators, create_objects);
	while (__atomic_load_n(&crowd.completed, __ATOMIC_RELAXED) < THREADS * 200)
		if (!OrielProgress(crowd.rig.adapter))
			OrielWait(crowd.rig.adapter, 1000);
	join(creators);
	__atomic_store_n(&crowd.stop, true, __ATOMIC_RELEASE);
	pthread_join(daemon, NULL);
	rig_close(&crowd.rig);
}

/*
 * The race between an arm and an entry: a sleeper that arms, drains and sleeps never misses the
 * last entry. It would sleep for ever if it did.
 */
static void on_news(PVOID context, NTSTATUS status)
{
	struct crowd *crowd = context;
	NDK_RESULT results[8];
	ULONG count;

	while ((count = NdkGetCqResults(crowd->rig.cq, results, 8)) != 0)
		crowd->completed += count;
	NdkArmCq(crowd->rig.cq, NDK_CQ_NOTIFY_ANY);
	crowd->notified++;
}

static void *complete_one_by_one(void *argument)
{
	struct crowd *crowd = argument;
	struct fake *fake = &crowd->rig.fake;
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive };

	for (uint32_t i = 0; i < TOTAL; i++) {
		struct shm_cq *cq = fake->cq[0];

		while (!shm_ring_free(&cq->ring[i % 2].cursor, cq->ring[i % 2].cursor.tail,
				      cq->slots))
			sched_yield();
		fake_complete(fake, 0, i % 2, &cqe);
		if (i % 7 == 0)
			sched_yield();
	}
	return NULL;
}

Test(threads, an_armed_sleeper_misses_nothing)
{
	static struct crowd crowd;
	struct outcome outcome = { 0 };
	pthread_t worker;

	rig_open(&crowd.rig);
	NdkCreateCq(crowd.rig.adapter, 64, on_news, &crowd, NULL, on_created, &outcome, NULL);
	rig_run(&crowd.rig);
	crowd.rig.cq = (NDK_CQ *)outcome.object;
	NdkArmCq(crowd.rig.cq, NDK_CQ_NOTIFY_ANY);
	cr_assert_eq(pthread_create(&worker, NULL, complete_one_by_one, &crowd), 0);
	while (crowd.completed < TOTAL) {
		while (OrielProgress(crowd.rig.adapter))
			;
		if (crowd.completed < TOTAL)
			cr_assert_eq(OrielWait(crowd.rig.adapter, -1), STATUS_SUCCESS);
	}
	pthread_join(worker, NULL);
	cr_expect_eq(crowd.completed, TOTAL);
	rig_close(&crowd.rig);
}

/* ORIEL_OPEN_PROGRESS_THREAD: callbacks come without anybody who drives progress. */

static void open_with_thread(struct crowd *crowd)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Flags = ORIEL_OPEN_PROGRESS_THREAD };

	fake_start(&crowd->rig.fake);
	cr_assert_eq(fake_open(&crowd->rig.fake, &parameters, &crowd->rig.adapter), STATUS_SUCCESS);
}

Test(threads, one_that_was_asked_for_drives_progress)
{
	static struct crowd crowd;
	struct member creators[THREADS];
	pthread_t daemon;

	open_with_thread(&crowd);
	cr_assert_eq(pthread_create(&daemon, NULL, be_daemon, &crowd), 0);
	start(&crowd, creators, create_objects);
	join(creators);
	while (__atomic_load_n(&crowd.completed, __ATOMIC_RELAXED) < THREADS * 200)
		sched_yield();
	OrielCloseAdapter(crowd.rig.adapter);
	__atomic_store_n(&crowd.stop, true, __ATOMIC_RELEASE);
	pthread_join(daemon, NULL);
	fake_stop(&crowd.rig.fake);
}

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	cr_assert_eq(event, OrielEventDeviceRemoved);
	__atomic_fetch_add((uint32_t *)context, 1, __ATOMIC_RELEASE);
}

Test(threads, one_that_was_asked_for_outlives_the_daemon)
{
	static struct crowd crowd;

	open_with_thread(&crowd);
	OrielSetEventHandler(crowd.rig.adapter, on_event, &crowd.notified);
	fake_die(&crowd.rig.fake);
	while (!__atomic_load_n(&crowd.notified, __ATOMIC_ACQUIRE))
		sched_yield();
	cr_expect_eq(NdkCreatePd(crowd.rig.adapter, count_created, &crowd, NULL),
		     STATUS_DEVICE_REMOVED);
	OrielCloseAdapter(crowd.rig.adapter);
	cr_expect_eq(crowd.notified, 1);
	fake_stop(&crowd.rig.fake);
}
