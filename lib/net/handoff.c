/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames from one thread to another: to the worker that owns the queue pair, to the
 * control core. Bounded rings of one producer and one consumer; what finds a ring full
 * is dropped and counted, so that nobody waits for anybody.
 */
#include "net/net_private.h"

void handoff_send(struct worker *worker, unsigned int home, struct rte_mbuf *mbuf)
{
	struct worker *owner = &worker->net->worker[home];

	if (rte_ring_sp_enqueue(owner->handed[worker->index], mbuf)) {
		classify_drop(worker, mbuf, VERDICT(NO_ROOM_HANDOFF));
		return;
	}
	worker->handed_over[buffer_of(mbuf)->port]++;
	worker->to_wake |= 1u << home;
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
static void receive_one(struct worker *worker, struct rte_mbuf *mbuf, uint64_t now)
{
	struct wire_view view;
	enum wire_reason reason = wire_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *),
					     rte_pktmbuf_data_len(mbuf), &view);

	if (reason == WIRE_OK)
		classify_deliver(worker, mbuf, &view, now);
	else
		classify_drop(worker, mbuf, VERDICT_WIRE + reason);
}

unsigned int handoff_receive(struct worker *worker, uint64_t now)
{
	unsigned int done = 0;

	for (uint32_t from = 0; from < worker->net->config.workers; from++) {
		struct rte_mbuf *frame[BURST];
		unsigned int count;

		if (from == worker->index)
			continue;
		count = rte_ring_sc_dequeue_burst(worker->handed[from], (void **)frame, BURST,
						  NULL);
		for (unsigned int i = 0; i < count; i++)
			receive_one(worker, frame[i], now);
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
