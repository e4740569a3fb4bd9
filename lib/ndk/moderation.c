/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Interrupt moderation of completion queues: the callback of an arm that was satisfied waits for
 * enough entries or for long enough. Meanwhile the library keeps the queue armed for itself, so
 * that a sleeper comes to count; a timer wakes it when the time is over.
 */
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "ndk/queue.h"

#define UNLIMITED UINT32_MAX /* MAXULONG: this one does not govern */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* NdkControlCqInterruptModeration remarks: either number may turn it off. */
static bool is_moderated(const struct cq *cq)
{
	return cq->interval != 0 && cq->count > 1;
}

static uint32_t entries_in(const struct shm_cq *memory)
{
	uint32_t entries = 0;

	for (uint32_t r = 0; r < memory->rings; r++) {
		const struct shm_ring_cursor *cursor = &memory->ring[r].cursor;

		entries += shm_load_acquire(&cursor->tail) - shm_load_acquire(&cursor->head);
	}
	return entries;
}

static bool enough_entries(const struct cq *cq)
{
	if (cq->count == UNLIMITED || cq->count > cq->memory->depth)
		return false;
	return entries_in(cq->memory) + (cq->old_memory ? entries_in(cq->old_memory) : 0) >=
	       cq->count;
}

/* --- queues that are held back: adapter.lock is held ---------------------------------------- */

static uint64_t due_time(const struct cq *cq)
{
	return cq->interval == UNLIMITED ? UINT64_MAX : now_ns() + cq->interval * 1000ull;
}

/* The next time at which one is due; without any, never. */
static void set_timer(const struct adapter *adapter)
{
	struct itimerspec timer = { 0 };
	uint64_t next = UINT64_MAX;

	for (const struct cq *cq = adapter->first_held; cq; cq = cq->next_held)
		if (cq->due < next)
			next = cq->due;
	if (next != UINT64_MAX) {
		timer.it_value.tv_sec = (time_t)(next / 1000000000u);
		timer.it_value.tv_nsec = (long)(next % 1000000000u);
		if (next == 0)
			timer.it_value.tv_nsec = 1; /* 0 would stop it */
	}
	timerfd_settime(adapter->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

/* The daemon's arm was taken; the next entry shall wake us again. */
static void arm_again(struct cq *cq)
{
	uint32_t none = SHM_ARM_NONE;

	__atomic_compare_exchange_n(&cq->memory->arm, &none, SHM_ARM_ANY, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
	/* As in NdkArmCq: what the worker wrote before it could see the arm is counted now. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void hold(struct adapter *adapter, struct cq *cq)
{
	if (cq->held)
		return;
	cq->held = true;
	cq->due = due_time(cq);
	cq->next_held = adapter->first_held;
	adapter->first_held = cq;
	set_timer(adapter);
}

void moderation_release(struct adapter *adapter, struct cq *cq)
{
	struct cq **link = &adapter->first_held;

	if (!cq->held)
		return;
	while (*link != cq)
		link = &(*link)->next_held;
	*link = cq->next_held;
	cq->held = false;
	/* The consumer's arm is used up by the callback that comes now. */
	__atomic_exchange_n(&cq->memory->arm, SHM_ARM_NONE, __ATOMIC_SEQ_CST);
	set_timer(adapter);
}

bool moderation_holds(struct adapter *adapter, struct cq *cq)
{
	if (is_moderated(cq) && !shm_load_acquire(&cq->memory->error) && !enough_entries(cq)) {
		hold(adapter, cq);
		arm_again(cq);
		if (!enough_entries(cq))
			return true;
	}
	moderation_release(adapter, cq);
	return false;
}

static bool is_due(const struct cq *cq, uint64_t now)
{
	return !is_moderated(cq) || cq->due <= now || enough_entries(cq) ||
	       shm_load_acquire(&cq->memory->error);
}

bool moderation_due(const struct adapter *adapter)
{
	const uint64_t now = now_ns();

	for (const struct cq *cq = adapter->first_held; cq; cq = cq->next_held)
		if (is_due(cq, now))
			return true;
	return false;
}

void moderation_run(struct adapter *adapter)
{
	const uint64_t now = now_ns();
	struct cq *next;

	for (struct cq *cq = adapter->first_held; cq; cq = next) {
		next = cq->next_held;
		if (!is_due(cq, now))
			continue;
		moderation_release(adapter, cq);
		if (!cq->object.closing)
			call_queue(adapter, &cq->notify_call);
	}
}

void moderation_drain(const struct adapter *adapter)
{
	int timer = __atomic_load_n(&adapter->timer_fd, __ATOMIC_RELAXED);
	uint64_t times;

	if (timer >= 0 && read(timer, &times, sizeof(times)) < 0)
		return; /* EAGAIN: it has not run out */
}

/* --- NdkControlCqInterruptModeration --------------------------------------------------------- */

static bool timer_open(struct adapter *adapter)
{
	struct epoll_event readable = { .events = EPOLLIN };
	int timer;

	if (adapter->timer_fd >= 0)
		return true;
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer < 0)
		return false;
	if (epoll_ctl(adapter->epoll_fd, EPOLL_CTL_ADD, timer, &readable)) {
		close(timer);
		return false;
	}
	__atomic_store_n(&adapter->timer_fd, timer, __ATOMIC_RELAXED);
	return true;
}

NTSTATUS cq_moderate(NDK_CQ *ndk, ULONG interval, ULONG count)
{
	struct cq *cq = cq_of(ndk);
	struct adapter *adapter = cq->object.adapter;
	NTSTATUS status = STATUS_SUCCESS;

	pthread_mutex_lock(&adapter->lock);
	if (interval == UNLIMITED && (count == UNLIMITED || count > cq->memory->depth)) {
		status = STATUS_INVALID_PARAMETER_MIX;
	} else if (timer_open(adapter)) {
		cq->interval = interval;
		cq->count = count;
		if (cq->held) {
			cq->due = is_moderated(cq) ? due_time(cq) : 0;
			set_timer(adapter);
		}
	} else {
		status = STATUS_INSUFFICIENT_RESOURCES;
	}
	pthread_mutex_unlock(&adapter->lock);
	return status;
}
