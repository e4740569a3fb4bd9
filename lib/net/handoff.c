/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames from one thread to another: to the worker that owns the queue pair, to the
 * control core. Bounded rings of one producer and one consumer; what finds a ring full
 * is dropped and counted, so that nobody waits for anybody.
 */
#include "net/net_private.h"

void handoff_send(struct worker *worker, unsigned int home, struct rte_mbuf *mbuf)
{
	struct rte_ring *ring = worker->net->worker[home].handed[worker->index];
	const uint32_t bit = 1u << home, port = buffer_of(mbuf)->port;

	/* Words go first, and a queue pair on its way there finds its room. */
	if (unlikely((worker->moves.full | worker->moves.leaving) & bit) &&
	    !(move_flush(worker, home) && move_leaves_room(worker, home))) {
		classify_drop(worker, mbuf, VERDICT(NO_ROOM_HANDOFF));
		return;
	}
	if (rte_ring_sp_enqueue(ring, mbuf)) {
		classify_drop(worker, mbuf, VERDICT(NO_ROOM_HANDOFF));
		return;
	}
	count_up(&worker->handed_over[port], 1); /* the frame is no longer ours to look at */
	worker->to_wake |= bit;
}

void handoff_control(struct worker *worker, struct rte_mbuf *mbuf)
{
	if (rte_ring_sp_enqueue(worker->slow, mbuf)) {
		classify_drop(worker, mbuf, VERDICT(NO_ROOM_CONTROL));
		return;
	}
	worker->wake_control = true;
}

/* The frame was checked by the worker that received it; here it is only taken apart again. */
static bool take_apart(struct worker *worker, struct rte_mbuf *mbuf, struct wire_view *view)
{
	enum wire_reason reason = wire_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *),
					     rte_pktmbuf_data_len(mbuf), view);

	if (reason == WIRE_OK)
		return true;
	classify_drop(worker, mbuf, VERDICT_WIRE + reason);
	return false;
}

static void deliver(struct worker *worker, unsigned int from, uint32_t qp, struct rte_mbuf *mbuf,
		    const struct wire_view *view, uint64_t now)
{
	if (worker->net->landing && qp && unlikely(move_landed(worker, qp, from, now)))
		steer_landed(worker, qp, from, buffer_of(mbuf)->port, view->source_port, now);
	classify_deliver(worker, qp, mbuf, view, now);
}

void handoff_deliver(struct worker *worker, unsigned int from, struct rte_mbuf *mbuf, uint64_t now)
{
	struct wire_view view;

	if (take_apart(worker, mbuf, &view))
		deliver(worker, from, transport_find(worker->transport, view.qpn), mbuf, &view,
			now);
}

static void receive_one(struct worker *worker, unsigned int from, void *entry, uint64_t now)
{
	const uint64_t word = (uintptr_t)entry;
	struct rte_mbuf *mbuf = entry;
	struct wire_view view;
	uint32_t qp;

	if (unlikely(word & 1)) {
		move_word(worker, from, word, now);
		return;
	}
	if (!take_apart(worker, mbuf, &view))
		return;
	qp = transport_find(worker->transport, view.qpn);
	if (likely(worker->moves.known == 0) || !move_frame(worker, from, qp, mbuf))
		deliver(worker, from, qp, mbuf, &view, now);
}

unsigned int handoff_receive(struct worker *worker, uint64_t now)
{
	unsigned int done = 0;

	for (uint32_t from = 0; from < worker->net->config.workers; from++) {
		void *entry[BURST];
		unsigned int count;

		if (from == worker->index)
			continue;
		count = rte_ring_sc_dequeue_burst(worker->handed[from], entry, BURST, NULL);
		for (unsigned int i = 0; i < count; i++)
			receive_one(worker, from, entry[i], now);
		done += count;
	}
	return done;
}

bool handoff_waiting(const struct worker *worker)
{
	for (uint32_t from = 0; from < worker->net->config.workers; from++)
		if (from != worker->index && !rte_ring_empty(worker->handed[from]))
			return true;
	return worker->to_send && !rte_ring_empty(worker->to_send);
}

static void wake_control(struct net *net)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&net->control_sleeping, __ATOMIC_RELAXED))
		wake_write(net->control_wake_fd);
}

void handoff_wake(struct worker *worker)
{
	if (worker->wake_control) {
		worker->wake_control = false;
		wake_control(worker->net);
	}
	for (; worker->to_wake; worker->to_wake &= worker->to_wake - 1)
		worker_wake(&worker->net->worker[__builtin_ctz(worker->to_wake)]);
}
