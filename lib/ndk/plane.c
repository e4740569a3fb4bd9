/* SPDX-License-Identifier: BSD-3-Clause */
/* An adapter whose data plane is in the process: nobody serves it but those who call. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "ndk/ndk_private.h"

#define HELLO_TURNS   16u
#define TICK_NS       1000000L /* of a sleeper on OrielGetEventFd() */
#define SPIN_TURNS    512u     /* empty ones, before a sleep */
#define FIRST_SLEEP   50000L   /* ns; twice as long each time */
#define LONGEST_SLEEP 1000000L /* ns: frames wake nobody */
#define LONGEST_WAIT  100      /* ms: then whoever waits for ever looks for signals */

/* --- opening --------------------------------------------------------------------------- */

/* NULL after a refusal. It stays loaded: DPDK cannot be unloaded. */
static ndk_plane_opener *find_opener(NTSTATUS *status)
{
	void *library = dlopen(NDK_PLANE_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	union {
		void *symbol;
		ndk_plane_opener *open; /* ISO C converts no object pointer to it */
	} entry = { NULL };

	if (library)
		entry.symbol = dlsym(library, NDK_PLANE_SYMBOL);
	if (!entry.symbol)
		*status = session_refuse(STATUS_NOT_SUPPORTED,
					 "an in-process adapter needs " NDK_PLANE_LIBRARY ": %s",
					 dlerror());
	return entry.open;
}

NTSTATUS plane_open(struct adapter *adapter, const char *configuration)
{
	NTSTATUS status = STATUS_SUCCESS;
	ndk_plane_opener *open = find_opener(&status);
	char message[768] = "";
	int error;

	if (!open)
		return status;
	if (!*configuration)
		return session_refuse(STATUS_INVALID_PARAMETER,
				      ORIEL_IN_PROCESS " wants the name of a configuration file");
	error = open(NDK_PLANE_VERSION, configuration, &adapter->plane, message, sizeof(message));
	if (error)
		return session_refuse(session_status_of_errno(-error), "%s", message);
	adapter->socket = adapter->plane.socket;
	return STATUS_SUCCESS;
}

void plane_hear(struct adapter *adapter)
{
	for (unsigned int i = 0; adapter->plane.turn && i < HELLO_TURNS; i++)
		if (!adapter->plane.turn(adapter->plane.context, true))
			return;
}

/* --- waiting ----------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Another thread's adapter_kick() ends it. False: so did a signal. */
static bool doze(const struct adapter *adapter, long nanoseconds)
{
	struct pollfd kick = { .fd = adapter->kick_fd, .events = POLLIN };
	const struct timespec time = { .tv_nsec = nanoseconds };

	return ppoll(&kick, 1, &time, NULL) >= 0 || errno != EINTR;
}

NTSTATUS plane_wait(struct adapter *adapter, LONG milliseconds)
{
	const int64_t until =
		now_ns() + (milliseconds < 0 ? LONGEST_WAIT : milliseconds) * 1000000ll;
	unsigned int empty = 0;
	long sleep = FIRST_SLEEP;

	for (;;) {
		empty = plane_turn(adapter) ? 0 : empty + 1;
		if (adapter_has_work(adapter))
			return STATUS_SUCCESS;
		if (adapter->dead)
			return STATUS_DEVICE_REMOVED;
		if (now_ns() >= until)
			return milliseconds < 0 ? STATUS_SUCCESS : STATUS_TIMEOUT;
		if (!adapter->plane.adaptive || empty < SPIN_TURNS) {
			sleep = FIRST_SLEEP;
			continue;
		}
		if (!doze(adapter, sleep))
			return STATUS_SUCCESS; /* its handler may want the caller awake */
		sleep = sleep < LONGEST_SLEEP / 2 ? 2 * sleep : LONGEST_SLEEP;
	}
}

/* Whoever sleeps on the descriptor is woken for the next turn, as nobody else takes it. */
bool plane_tick(struct adapter *adapter)
{
	const struct itimerspec tick = { .it_interval.tv_nsec = TICK_NS,
					 .it_value.tv_nsec = TICK_NS };
	struct epoll_event readable = { .events = EPOLLIN };

	if (!adapter->plane.turn)
		return true;
	if (adapter->tick_fd < 0)
		adapter->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return adapter->tick_fd >= 0 && timerfd_settime(adapter->tick_fd, 0, &tick, NULL) == 0 &&
	       epoll_ctl(adapter->epoll_fd, EPOLL_CTL_ADD, adapter->tick_fd, &readable) == 0;
}

void plane_drain_ticks(const struct adapter *adapter)
{
	uint64_t ticks;

	if (adapter->tick_fd >= 0 && read(adapter->tick_fd, &ticks, sizeof(ticks)) < 0)
		return; /* EAGAIN: none since */
}
