/* SPDX-License-Identifier: BSD-3-Clause */
/* Driving progress: replies, events, notifications, and sleeping until there are some. */
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "ndk/queue.h"

#define CALLS_PER_RUN  256u
#define LOOK_AT_SOCKET 256u /* progress calls between two looks for the daemon's death */

/* --- what the daemon has written ------------------------------------------------------- */

static void event_received(struct adapter *adapter, const struct shm_reply *event)
{
	switch (event->op) {
	case SHM_EV_CONNECT_REQUEST: connector_arrived(adapter, &event->connection); break;
	case SHM_EV_DISCONNECTED: connector_disconnected(adapter, &event->async); break;
	case SHM_EV_ASYNC: adapter_async_event(adapter, &event->async); break;
	default: break; /* of a newer daemon */
	}
}

static bool replies_wait(const struct adapter *adapter)
{
	return shm_ring_used(&adapter->session->reply_cursor, adapter->reply_head) != 0;
}

static void receive_replies(struct adapter *adapter)
{
	struct shm_session *session = adapter->session;
	uint32_t used = shm_ring_used(&session->reply_cursor, adapter->reply_head);

	while (used--) {
		const struct shm_reply reply =
			session->reply[adapter->reply_head % SHM_CONTROL_ENTRIES];

		shm_store_release(&session->reply_cursor.head, ++adapter->reply_head);
		if (reply.id)
			request_reply(adapter, &reply);
		else
			event_received(adapter, &reply);
	}
}

static bool notifications_wait(const struct adapter *adapter)
{
	for (uint32_t w = 0; w < adapter->notify_words; w++)
		if (__atomic_load_n(&adapter->session->cq_notify[w], __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static void collect_notifications(struct adapter *adapter)
{
	for (uint32_t w = 0; w < adapter->notify_words; w++) {
		uint64_t *word = &adapter->session->cq_notify[w];
		uint64_t bits;

		if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0)
			continue;
		bits = __atomic_exchange_n(word, 0, __ATOMIC_ACQUIRE);
		while (bits) {
			cq_notified(adapter, w * 64 + (uint32_t)__builtin_ctzll(bits));
			bits &= bits - 1;
		}
	}
}

/* --- the daemon's death --------------------------------------------------------------------- */

static void removed_run(struct call *call)
{
	struct adapter *adapter = container_of(call, struct adapter, removed);

	adapter_tell(adapter, OrielEventDeviceRemoved, &adapter->ndk.Header, 0);
}

static void adapter_die(struct adapter *adapter)
{
	receive_replies(adapter);                                 /* what it still said holds */
	__atomic_store_n(&adapter->dead, true, __ATOMIC_RELAXED); /* posts look without the lock */
	request_cancel_all(adapter);
	connector_disconnect_all(adapter);
	adapter->removed.run = removed_run;
	call_queue(adapter, &adapter->removed);
}

static void look_for_death(struct adapter *adapter)
{
	bool ended = shm_load_acquire(&adapter->session->ended) != 0;

	if (!ended && ++adapter->progress_runs % LOOK_AT_SOCKET == 0)
		ended = !session_is_alive(adapter);
	if (ended)
		adapter_die(adapter);
}

/* --- progress --------------------------------------------------------------------------------- */

/* Both are non-blocking; whoever sleeps must not be woken again by what is known already. */
static void drain_wakes(struct adapter *adapter)
{
	char wakes[4096];
	uint64_t kicks;

	while (read(adapter->wake_fd, wakes, sizeof(wakes)) == sizeof(wakes))
		;
	moderation_drain(adapter);
	plane_drain_ticks(adapter);
	if (read(adapter->kick_fd, &kicks, sizeof(kicks)) < 0)
		return; /* EAGAIN: nobody kicked */
}

void adapter_kick(struct adapter *adapter)
{
	uint64_t one = 1;

	if (write(adapter->kick_fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: it is readable as it is */
}

static ULONG run_calls(struct adapter *adapter)
{
	ULONG count = 0;

	while (adapter->first_call && count < CALLS_PER_RUN) {
		struct call *call = adapter->first_call;

		adapter->first_call = call->next;
		if (!adapter->first_call)
			adapter->last_call = &adapter->first_call;
		call->queued = false;
		pthread_mutex_unlock(&adapter->lock);
		call->run(call);
		pthread_mutex_lock(&adapter->lock);
		count++;
	}
	return count;
}

ULONG OrielProgress(NDK_ADAPTER *pNdkAdapter)
{
	struct adapter *adapter = adapter_of(pNdkAdapter);
	ULONG count;

	/* Another thread drives progress, or this one is in a callback. */
	if (pthread_mutex_trylock(&adapter->progress))
		return 0;
	plane_turn(adapter);
	if (adapter->fd_given)
		drain_wakes(adapter);
	pthread_mutex_lock(&adapter->lock);
	adapter->in_progress = true;
	if (!adapter->dead) {
		receive_replies(adapter);
		collect_notifications(adapter);
		if (adapter->first_held)
			moderation_run(adapter);
		if (adapter->first_waiting)
			request_flush_waiting(adapter);
		look_for_death(adapter);
	}
	count = run_calls(adapter);
	adapter->in_progress = false;
	/* More than one run's worth: a sleeper on the descriptor must come back. */
	if (adapter->first_call && adapter->fd_given)
		adapter_kick(adapter);
	pthread_mutex_unlock(&adapter->lock);
	token_refill_if_low(adapter);
	pthread_mutex_unlock(&adapter->progress);
	return count;
}

/* --- sleeping ------------------------------------------------------------------------ */

bool adapter_has_work(struct adapter *adapter)
{
	bool waits;

	pthread_mutex_lock(&adapter->lock);
	adapter->slept = true;
	waits = adapter->first_call || (adapter->first_held && moderation_due(adapter)) ||
		(!adapter->dead && (replies_wait(adapter) || notifications_wait(adapter) ||
				    shm_load_acquire(&adapter->session->ended)));
	pthread_mutex_unlock(&adapter->lock);
	return waits;
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Work is made visible before the descriptors are written, and they are only read before work is
 * looked for: a write between the look and the sleep ends the sleep.
 */
NTSTATUS OrielWait(NDK_ADAPTER *pNdkAdapter, LONG TimeoutMilliseconds)
{
	struct adapter *adapter = adapter_of(pNdkAdapter);
	int64_t deadline = now_ms() + TimeoutMilliseconds;
	struct epoll_event event;

	if (adapter->plane.turn)
		return plane_wait(adapter, TimeoutMilliseconds);
	for (;;) {
		int64_t left = TimeoutMilliseconds < 0 ? -1 : deadline - now_ms();
		int ready;

		if (adapter_has_work(adapter))
			return STATUS_SUCCESS;
		if (adapter->dead)
			return STATUS_DEVICE_REMOVED;
		if (TimeoutMilliseconds >= 0 && left < 0)
			return STATUS_TIMEOUT;
		ready = epoll_wait(adapter->epoll_fd, &event, 1, (int)left);
		if (ready == 0)
			return adapter_has_work(adapter) ? STATUS_SUCCESS : STATUS_TIMEOUT;
		if (ready < 0)
			return STATUS_SUCCESS; /* a signal: its handler may want the caller awake */
		drain_wakes(adapter);
		if (!session_is_alive(adapter)) {
			pthread_mutex_lock(&adapter->lock);
			if (!adapter->dead)
				adapter_die(adapter);
			pthread_mutex_unlock(&adapter->lock);
		}
	}
}

int OrielGetEventFd(NDK_ADAPTER *pNdkAdapter)
{
	struct adapter *adapter = adapter_of(pNdkAdapter);

	pthread_mutex_lock(&adapter->lock);
	if (!adapter->fd_given && !plane_tick(adapter)) {
		pthread_mutex_unlock(&adapter->lock);
		return -1;
	}
	adapter->fd_given = true;
	/* What is due already must be seen by whoever sleeps on it now. */
	if (adapter->first_call)
		adapter_kick(adapter);
	pthread_mutex_unlock(&adapter->lock);
	return adapter->epoll_fd;
}
