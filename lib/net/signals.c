/* SPDX-License-Identifier: BSD-3-Clause */
/* Keeps the signals of a program that is not ours away from drivers and their threads. */
#include <errno.h>
#include <time.h>

#include "net/signals.h"

void signals_hold(struct held_signals *held)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	sigset_t all, pending;

	sigpending(&pending);
	held->pipe_waited = sigismember(&pending, SIGPIPE) == 1;
	sigfillset(&all);
	for (unsigned int i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_BLOCK, &all, &held->before);
}

void signals_release(const struct held_signals *held)
{
	const struct timespec now = { 0 };
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	while (!held->pipe_waited && sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &held->before, NULL);
}
