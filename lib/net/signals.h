/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drivers write to sockets whose other end may be gone (net_memif), and start threads, which have
 * the signal mask of whoever starts them. A daemon ignores SIGPIPE. Within a client SIGPIPE is the
 * client's to take, and so are all signals for which its handlers wait.
 */
#ifndef NET_SIGNALS_H
#define NET_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

struct held_signals {
	sigset_t before;
	bool pipe_waited; /* a SIGPIPE of the client's own */
};

/* Around what may write or start threads: this thread takes none but faults in between. */
void signals_hold(struct held_signals *held);
/* Forgets the SIGPIPE of a driver. */
void signals_release(const struct held_signals *held);

#endif
