/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames on their way out: one array per worker and port, emptied once a turn. A frame of
 * the transport is never dropped here for lack of room; only a device that takes nothing
 * for a while loses what waits for it, as an unplugged cable would.
 */
#include "net/net_private.h"

#define DEVICE_BURST 64u
#define STUCK_FOR_NS 100000000ull

/* The transport knows addresses, not ports. */
static uint32_t port_of(const struct net *net, const uint8_t source_mac[6])
{
	uint32_t port = 0;

	while (port + 1 < net->config.ports && memcmp(net->port[port].link.mac, source_mac, 6) != 0)
		port++;
	return port;
}

/* Buffers are taken out of the pool some at a time. False: it is empty. */
static bool refill(struct worker *worker)
{
	struct rte_mempool *pool = worker->net->tx_pool;

	if (rte_pktmbuf_alloc_bulk(pool, worker->spare, TX_SPARES) == 0) {
		worker->spares = TX_SPARES;
		return true;
	}
	worker->spare[0] = rte_pktmbuf_alloc(pool);
	worker->spares = worker->spare[0] != NULL;
	return worker->spares;
}

/*
 * What waits here waits in order: were it more than the device takes in a burst, whose turn it is
 * would be decided long before the frame leaves.
 */
struct pktbuf *transmit_get(void *context, const uint8_t source_mac[6])
{
	struct worker *worker = context;
	struct net_buffer *buffer;
	struct rte_mbuf *mbuf;

	if (worker->tx[port_of(worker->net, source_mac)].count + worker->lent >= TX_WAITING)
		return NULL;
	if (unlikely(!worker->spares) && !refill(worker))
		return NULL;
	mbuf = worker->spare[--worker->spares];
	buffer = buffer_of(mbuf);
	buffer->packet.data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	buffer->packet.length = 0;
	buffer->packet.capacity = worker->net->tx_capacity;
	buffer->lent = true;
	worker->lent++;
	return &buffer->packet;
}

static void append(struct worker *worker, uint32_t port, struct rte_mbuf *mbuf)
{
	struct tx_array *tx = &worker->tx[port];

	if (tx->count == TX_ARRAY) {
		count_up(&tx->dropped, 1);
		rte_pktmbuf_free(mbuf);
		return;
	}
	tx->frame[tx->count++] = mbuf;
}

void transmit_put(void *context, struct pktbuf *packet, enum pktbuf_fate fate)
{
	struct worker *worker = context;
	struct net_buffer *buffer = (struct net_buffer *)packet;
	struct rte_mbuf *mbuf = buffer_mbuf(buffer);

	if (buffer->lent) {
		buffer->lent = false;
		worker->lent--;
	}
	if (fate == PKTBUF_FREE) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	mbuf->data_len = (uint16_t)packet->length;
	mbuf->pkt_len = packet->length;
	append(worker, port_of(worker->net, packet->data + RTE_ETHER_ADDR_LEN), mbuf);
}

unsigned int transmit_control(struct worker *worker)
{
	unsigned int done = 0;
	struct rte_mbuf *mbuf;

	if (!worker->to_send)
		return 0;
	while (done < BURST) {
		mbuf = worker->held_frame;
		worker->held_frame = NULL;
		if (!mbuf && rte_ring_sc_dequeue(worker->to_send, (void **)&mbuf))
			break;
		if (worker->tx[buffer_of(mbuf)->port].count + worker->lent >= TX_ARRAY) {
			worker->held_frame = mbuf;
			break;
		}
		append(worker, buffer_of(mbuf)->port, mbuf);
		done++;
	}
	return done;
}

static void drop_all(struct tx_array *tx)
{
	rte_pktmbuf_free_bulk(tx->frame, tx->count);
	count_up(&tx->dropped, tx->count);
	tx->sent += tx->count;
	tx->count = 0;
}

/* Frames that came since the last turn; buffers that are lent find room all the same. */
static void make_faults(struct worker *worker, uint32_t port, uint64_t now)
{
	struct tx_array *tx = &worker->tx[port];
	uint32_t count = tx->count - tx->looked_at;
	uint32_t taken = tx->looked_at + worker->lent;
	uint32_t room = taken < TX_ARRAY ? TX_ARRAY - taken : 0;

	tx->count = tx->looked_at + fault_run(worker, port, NET_TRANSMIT, tx->frame + tx->looked_at,
					      count, RTE_MAX(room, count), now);
}

/* What the device did not take stays in front, in order. */
static unsigned int flush_port(struct worker *worker, uint32_t port, uint64_t now)
{
	struct tx_array *tx = &worker->tx[port];
	uint32_t sent = 0;

	/* Capture of frames that leave belongs here. */
	while (sent < tx->count) {
		uint16_t burst = (uint16_t)RTE_MIN(tx->count - sent, DEVICE_BURST);
		uint16_t taken = 0;

		if (port_is_there(&worker->net->port[port]))
			taken = rte_eth_tx_burst(worker->net->port[port].id,
						 (uint16_t)worker->index, tx->frame + sent, burst);
		sent += taken;
		if (taken < burst)
			break;
	}
	if (sent) {
		tx->stuck_since = 0;
		tx->sent += sent;
		tx->count -= sent;
		memmove(tx->frame, tx->frame + sent, tx->count * sizeof(void *));
	} else if (!tx->stuck_since) {
		tx->stuck_since = now;
	} else if (now - tx->stuck_since >= STUCK_FOR_NS) {
		drop_all(tx);
	}
	tx->looked_at = tx->count;
	return sent;
}

unsigned int transmit_flush(struct worker *worker, uint64_t now)
{
	unsigned int sent = 0;

	for (uint32_t p = 0; p < worker->net->config.ports; p++) {
		if (unlikely(fault_is_set(&worker->net->port[p].fault[NET_TRANSMIT])))
			make_faults(worker, p, now);
		if (worker->tx[p].count)
			sent += flush_port(worker, p, now);
	}
	return sent;
}

void transmit_spares_back(struct worker *worker)
{
	rte_pktmbuf_free_bulk(worker->spare, worker->spares);
	worker->spares = 0;
}

void transmit_drop(struct worker *worker)
{
	for (uint32_t p = 0; p < worker->net->config.ports; p++)
		drop_all(&worker->tx[p]);
	rte_pktmbuf_free(worker->held_frame);
	worker->held_frame = NULL;
	transmit_spares_back(worker);
}
