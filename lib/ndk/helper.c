/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that drives progress, for programs that ask for one. */
#include <signal.h>
#include <time.h>

#include "ndk/ndk_private.h"

#define LOOK_AGAIN 10000000 /* ns, when no daemon is left that could wake us */

static void wake_run(struct call *call)
{
}

static void *helper_run(void *argument)
{
	const struct timespec pause = { .tv_nsec = LOOK_AGAIN };
	struct adapter *adapter = argument;

	while (!__atomic_load_n(&adapter->helper_stop, __ATOMIC_ACQUIRE))
		if (OrielProgress(&adapter->ndk) == 0 &&
		    OrielWait(&adapter->ndk, -1) == STATUS_DEVICE_REMOVED)
			nanosleep(&pause, NULL);
	return NULL;
}

/* Signals are for the program's own threads. */
NTSTATUS helper_start(struct adapter *adapter)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	adapter->helper_wake.run = wake_run;
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&adapter->helper, NULL, helper_run, adapter);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	adapter->has_helper = error == 0;
	return error ? STATUS_INSUFFICIENT_RESOURCES : STATUS_SUCCESS;
}

void helper_stop(struct adapter *adapter)
{
	if (!adapter->has_helper)
		return;
	__atomic_store_n(&adapter->helper_stop, true, __ATOMIC_RELEASE);
	pthread_mutex_lock(&adapter->lock);
	call_queue(adapter, &adapter->helper_wake);
	pthread_mutex_unlock(&adapter->lock);
	pthread_join(adapter->helper, NULL);
	adapter->has_helper = false;
}
