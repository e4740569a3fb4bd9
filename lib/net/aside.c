/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes a port away from the workers and gives it back, for what a driver cannot bear while
 * somebody is inside it. The thread of door.c takes and gives; a worker answers at the end of its
 * turn.
 */
#include <time.h>

#include "net/net_private.h"

void aside_begin(struct net *net, uint32_t port)
{
	net->port[port].asked = 1;
	__atomic_store_n(&net->asides, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&net->port[port].aside, 1, __ATOMIC_RELEASE);
}

static bool all_stand_aside(const struct net *net, uint32_t port)
{
	for (uint32_t w = 0; w < net->config.workers; w++)
		if (__atomic_load_n(&net->worker[w].aside[port], __ATOMIC_ACQUIRE) !=
		    net->port[port].asked)
			return false;
	return true;
}

void aside_take(struct net *net, uint32_t index, const uint32_t *stop)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	struct net_port *port = &net->port[index];

	/* Never 0, and never one that a worker may still hold from the last time. */
	port->asked = port->asked + 1 ? port->asked + 1 : 1;
	__atomic_store_n(&net->asides, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&port->aside, port->asked, __ATOMIC_RELEASE);
	while (!all_stand_aside(net, index) && !__atomic_load_n(stop, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
}

void aside_give(struct net *net, uint32_t index)
{
	uint32_t asides = 0;

	__atomic_store_n(&net->port[index].aside, 0, __ATOMIC_RELEASE);
	for (uint32_t p = 0; p < net->config.ports; p++)
		asides |= __atomic_load_n(&net->port[p].aside, __ATOMIC_RELAXED);
	__atomic_store_n(&net->asides, asides != 0, __ATOMIC_RELAXED);
}

void aside_answer(struct worker *worker)
{
	const struct net *net = worker->net;

	for (uint32_t p = 0; p < net->config.ports; p++)
		__atomic_store_n(&worker->aside[p],
				 __atomic_load_n(&net->port[p].aside, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}
