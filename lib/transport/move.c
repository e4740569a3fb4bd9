/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A live queue pair goes from one worker to another.
 *
 * All that is true of it lies in its record, and what is local to the process in its qp_local,
 * which both workers see: so nothing is copied. What has to change hands is the right to
 * touch them. It is given by the release store of the record's home, after which the old
 * home reads another's number there, and is used once transport_take() was called.
 *
 * A kill leaves the record with one home or the other; whichever it is has the queue pair
 * attached by the next process. Windows tied to the queue pair need nothing: only its home uses
 * them, and what the last home stored is seen by the next. A grace period may be under way: its
 * ticket is good in any thread.
 */
#include <errno.h>

#include "transport/private.h"

int transport_may_move(const struct transport_shared *shared, uint32_t index)
{
	const struct qp *qp = &shared->qps[index];

	if (qp->srq || qp->type == SHM_QP_UD)
		return -ENOTSUP;
	return qp_get_state(shared, index) == QP_RTS ? 0 : -ENOTCONN;
}

/* It counts as received where it is run. */
struct pktbuf *transport_unpark(struct transport *transport, uint32_t index)
{
	struct pktbuf *packet = park_take(transport, &transport->shared->qps[index]);
	struct wire_view view;

	if (packet && wire_parse(packet->data, packet->length, &view) == WIRE_OK) {
		COUNT(transport, rx_packets, -1);
		COUNT(transport, rx_bytes, -(uint64_t)(view.icrc + ICRC_SIZE - view.frame));
	}
	return packet;
}

/*
 * Entries of the new home's ring carry the next epoch, so the client takes those of ours first;
 * it finds them, since they are published before. Who dies between epoch and home has skipped
 * a number, which does no harm.
 */
int transport_release(struct transport *transport, uint32_t index, unsigned int to, uint64_t now)
{
	struct qp *qp = &transport->shared->qps[index];
	struct qp_local *local = qp_local(transport, qp);

	if (local->parked)
		return -EAGAIN;
	transport->now = now;
	unlist(transport, qp);
	local->attached = false;
	completion_publish(transport);
	COUNT(transport, moved_out, 1);
	__atomic_store_n(&qp->epoch, qp->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&qp->home, (uint16_t)to, __ATOMIC_RELEASE);
	return 0;
}

/*
 * No doorbell is lost. A client stores a tail, a full fence, then reads whose doorbell to ring;
 * here that is stored, a full fence, then the tails are read (by the poll that finds the queue
 * pair ready). If the client still read another worker, its fence came before ours, and we see
 * its tail: the doorbell that it rang there may be passed over, as it is. If it read us, its bit
 * is in our area, and stays there until we look.
 */
void transport_take(struct transport *transport, uint32_t index, uint64_t now)
{
	struct qp *qp = &transport->shared->qps[index];
	struct qp_local *local = qp_local(transport, qp);

	transport->now = now;
	local->attached = true;
	__atomic_store_n(&local->memory->home, transport->worker, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	wheel_resume(transport, qp);
	if (local->grace || local->local_grace)
		grace_add(transport, qp);
	ready_add(transport, qp);
	COUNT(transport, moved_in, 1);
	if (completion_is_broken(transport, qp))
		qp_fail_later(transport, qp, VERDICT(CQ_OVERRUN));
}

/* --- records of work requests --------------------------------------------------------- */

static unsigned int flight_owner(const struct transport *t, uint32_t index)
{
	const uint64_t total = t->shared->sizes.flights;
	const uint32_t workers = t->shared->sizes.workers;
	unsigned int owner = 0;

	while (owner + 1 < workers && total * (owner + 1) / workers <= index)
		owner++;
	return owner;
}

/*
 * Shares stay as they are, however often queue pairs move: a record is on its owner's free list,
 * in use, or free and on its way back. Who adopts the arena collects the free ones by index.
 */
void flight_put(struct transport *t, uint32_t index)
{
	struct flight *flight = flight_at(t, index);
	unsigned int owner;

	flight->qp = 0;
	if (likely(index - t->flight_first < t->flight_count)) {
		flight->next = t->free_flight;
		t->free_flight = index;
		if (unlikely(t->starved_first))
			starved_wake(t);
		return;
	}
	owner = flight_owner(t, index);
	flight->next = t->flight_abroad[owner];
	t->flight_abroad[owner] = index;
	t->flights_abroad |= 1u << owner;
}

uint32_t transport_flights_abroad(const struct transport *transport)
{
	return transport->flights_abroad;
}

uint32_t transport_flights_leave(struct transport *transport, unsigned int owner)
{
	const uint32_t first = transport->flight_abroad[owner];

	transport->flight_abroad[owner] = 0;
	transport->flights_abroad &= ~(1u << owner);
	return first;
}

void transport_flights_return(struct transport *transport, uint32_t first)
{
	while (first) {
		const uint32_t next = flight_at(transport, first)->next;

		flight_put(transport, first);
		first = next;
	}
}
