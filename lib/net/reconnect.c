/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports that connect to another process once, when they are started: net_memif as client. When
 * that process is gone they are started again until it is back. Nobody may be inside
 * the driver meanwhile, so the workers are asked to stand aside first.
 */
#include "net/message.h"
#include "net/net_private.h"
#include "net/signals.h"

#define LOOKS_DOWN 2u /* the handshake that follows a start takes its time */

static bool is_client(const struct device *device)
{
	char role[16];

	if (strcmp(device->driver, "net_memif") != 0)
		return false;
	return !device_argument(device->text, "role", role, sizeof(role)) ||
	       !strcmp(role, "client") || !strcmp(role, "slave");
}

static void ask_workers(struct net *net, struct net_port *port)
{
	/* Never 0, and never one that a worker may still hold from the last time. */
	port->asked = port->asked + 1 ? port->asked + 1 : 1;
	__atomic_store_n(&net->asides, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&port->aside, port->asked, __ATOMIC_RELEASE);
}

static bool workers_stand_aside(const struct net *net, uint32_t index)
{
	for (uint32_t w = 0; w < net->config.workers; w++)
		if (__atomic_load_n(&net->worker[w].aside[index], __ATOMIC_ACQUIRE) !=
		    net->port[index].asked)
			return false;
	return true;
}

/* What the driver says about a server that is not there yet interests nobody. */
static bool start_again(struct net_port *port)
{
	struct held_signals held;

	net_log_capture(false);
	signals_hold(&held);
	if (port->started)
		rte_eth_dev_stop(port->id);
	port->started = rte_eth_dev_start(port->id) == 0;
	signals_release(&held);
	net_log_release();
	return port->started;
}

void reconnect_look(struct net *net, uint32_t index)
{
	struct net_port *port = &net->port[index];

	if (port->link_up || !net->running || !is_client(&port->device)) {
		port->looks_down = 0;
		return;
	}
	if (port->looks_down++ < LOOKS_DOWN)
		return;
	if (!port->aside) {
		ask_workers(net, port);
		return;
	}
	if (!workers_stand_aside(net, index) || !start_again(port))
		return;
	port->looks_down = 0;
	__atomic_store_n(&port->aside, 0, __ATOMIC_RELEASE);
}

void reconnect_stand_aside(struct worker *worker)
{
	const struct net *net = worker->net;

	for (uint32_t p = 0; p < net->config.ports; p++)
		__atomic_store_n(&worker->aside[p],
				 __atomic_load_n(&net->port[p].aside, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}
