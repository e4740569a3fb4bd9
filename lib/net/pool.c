/* SPDX-License-Identifier: BSD-3-Clause */
/* Packet buffers: how many, how large, on which NUMA node. */
#include <errno.h>

#include <rte_errno.h>
#include <rte_mempool.h>

#include "net/eal.h"
#include "net/message.h"
#include "net/net_private.h"

#define CACHE     256u
#define PAGE      4096u
#define POOL_HEAD 192u /* of mempool's and mbuf's bookkeeping per buffer */

uint32_t pool_data_room(uint32_t frame_room)
{
	return RTE_ALIGN_CEIL(RTE_PKTMBUF_HEADROOM + frame_room, 64);
}

/* Without hugepages no buffer crosses a page, so what is left of a page is lost. */
static uint64_t pool_bytes(uint32_t frame_room, uint32_t buffers)
{
	uint64_t size = POOL_HEAD + sizeof(struct net_buffer) + pool_data_room(frame_room);

	if (size <= PAGE)
		return (uint64_t)buffers * PAGE / (PAGE / size);
	return buffers * RTE_ALIGN_CEIL(size, PAGE);
}

uint64_t pool_bytes_per_worker(uint32_t frame_room)
{
	return pool_bytes(frame_room, RX_BUFFERS + TX_BUFFERS + CONTROL_BUFFERS);
}

static struct rte_mempool *pool_create(const char *name, uint32_t buffers, uint32_t frame_room,
				       int socket)
{
	uint16_t private_size = RTE_ALIGN_CEIL(sizeof(struct net_buffer), RTE_MBUF_PRIV_ALIGN);
	uint16_t room = (uint16_t)pool_data_room(frame_room);
	struct rte_mempool *pool;

	pool = rte_pktmbuf_pool_create(name, buffers, CACHE, private_size, room, socket);
	if (!pool && socket != SOCKET_ID_ANY) {
		/* A node without memory or hugepages of its own still has neighbours. */
		pool = rte_pktmbuf_pool_create(name, buffers, CACHE, private_size, room,
					       SOCKET_ID_ANY);
		if (pool)
			net_warn("no memory on NUMA node %d for packet buffers: they are elsewhere",
				 socket);
	}
	return pool;
}

static int no_memory(const struct net *net, const char **message)
{
	*message = net_message(
		"no memory for packet buffers (%s)%s", rte_strerror(rte_errno),
		net->config.hugepages ? ": more hugepages are needed, or hugepages = no" : "");
	return -ENOMEM;
}

int pools_create(struct net *net, const char **message)
{
	uint32_t largest = 0;

	for (uint32_t p = 0; p < net->config.ports; p++) {
		struct net_port *port = &net->port[p];
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "oriel_rx_%u", p);
		port->rx_pool = pool_create(name, RX_BUFFERS * net->config.workers,
					    port->device.room, port->socket);
		if (!port->rx_pool)
			return no_memory(net, message);
		largest = RTE_MAX(largest, link_frame_size(port->link.mtu));
	}
	net->tx_capacity = largest;
	net->tx_pool = pool_create("oriel_tx", TX_BUFFERS * net->config.workers * net->config.ports,
				   largest, net->port[0].socket);
	if (!net->tx_pool)
		return no_memory(net, message);
	net->control_pool =
		pool_create("oriel_control", CONTROL_BUFFERS, largest, net->port[0].socket);
	return net->control_pool ? 0 : no_memory(net, message);
}

void pools_destroy(struct net *net)
{
	for (uint32_t p = 0; p < net->config.ports; p++)
		rte_mempool_free(net->port[p].rx_pool);
	rte_mempool_free(net->tx_pool);
	rte_mempool_free(net->control_pool);
}
