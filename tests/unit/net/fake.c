/* SPDX-License-Identifier: BSD-3-Clause */
/* The recording transport and memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

struct fake fake;

struct transport {
	struct transport_io io;
	unsigned int worker;
	struct transport_stats stats;
	struct pktbuf *kept[256];
	uint32_t keeps;
};

static struct fake_worker *record(const struct transport *transport)
{
	return &fake.worker[transport->worker];
}

static void count(uint32_t *word)
{
	__atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
}

/* --- shared ------------------------------------------------------------------------ */

uint32_t qp_find(const struct transport_shared *shared, uint32_t qpn)
{
	return qpn > FAKE_QPN && qpn < FAKE_QPN + FAKE_QPS ? qpn - FAKE_QPN : 0;
}

uint32_t qp_home(const struct transport_shared *shared, uint32_t qp)
{
	return fake.home[qp] ? fake.home[qp] - 1 : qp % fake.workers;
}

uint32_t qp_number(const struct transport_shared *shared, uint32_t qp)
{
	return FAKE_QPN + qp + fake_get(&fake.again[qp]) * FAKE_QPS;
}

uint32_t qp_table_size(const struct transport_shared *shared)
{
	return FAKE_QPS;
}

bool qp_get_status(const struct transport_shared *shared, uint32_t qp, struct qp_status *status)
{
	*status = (struct qp_status){ .qpn = qp_number(shared, qp),
				      .state = fake.failed[qp] ? QP_ERROR : QP_RTS,
				      .type = fake.type[qp],
				      .home = qp_home(shared, qp) };
	memcpy(status->local_gid, fake.local_gid, 16);
	memcpy(status->remote_gid, fake.remote_gid, 16);
	return true;
}

int transport_may_move(const struct transport_shared *shared, uint32_t qp)
{
	return fake.movable ? 0 : -ENOTSUP;
}

/* All that are kept count as frames of the queue pair that leaves; the oldest first. */
struct pktbuf *transport_unpark(struct transport *transport, uint32_t qp)
{
	struct pktbuf *packet = transport->kept[0];

	if (transport->keeps == 0)
		return NULL;
	transport->keeps--;
	memmove(transport->kept, transport->kept + 1, transport->keeps * sizeof(packet));
	return packet;
}

int transport_release(struct transport *transport, uint32_t qp, unsigned int to, uint64_t now)
{
	fake.home[qp] = to + 1;
	return 0;
}

void transport_take(struct transport *transport, uint32_t qp, uint64_t now)
{
	record(transport)->taken++;
}

uint32_t transport_flights_abroad(const struct transport *transport)
{
	return transport->worker == 0 ? fake_get(&fake.abroad) : 0;
}

uint32_t transport_flights_leave(struct transport *transport, unsigned int owner)
{
	__atomic_fetch_and(&fake.abroad, ~(1u << owner), __ATOMIC_RELEASE);
	return 77;
}

void transport_flights_return(struct transport *transport, uint32_t first)
{
	if (first)
		fake_set(&fake.returned, first);
}

/* --- a worker's -------------------------------------------------------------------- */

int transport_create(struct transport **transport, struct transport_shared *shared,
		     unsigned int worker, const struct transport_io *io)
{
	*transport = calloc(1, sizeof(**transport));
	if (!*transport)
		return -1;
	(*transport)->io = *io;
	(*transport)->worker = worker;
	return 0;
}

static void release(struct transport *transport)
{
	while (transport->keeps)
		transport->io.put(transport->io.context, transport->kept[--transport->keeps],
				  PKTBUF_FREE);
}

void transport_destroy(struct transport *transport)
{
	release(transport);
	free(transport);
}

struct transport_stats *transport_get_stats(struct transport *transport)
{
	return &transport->stats;
}

void transport_attach(struct transport *transport, uint32_t qp, uint64_t now)
{
	count(&record(transport)->attached);
}

int transport_connect(struct transport *transport, uint32_t qp,
		      const struct qp_connection *connection, uint64_t now)
{
	count(&record(transport)->connected);
	return connection->path_mtu == 1024 ? 0 : -22;
}

void transport_flush(struct transport *transport, uint32_t qp, uint64_t now)
{
	count(&record(transport)->flushed);
}

void transport_resize_cq(struct transport *transport, uint32_t cq, uint32_t depth,
			 struct shm_cq *memory)
{
	count(&record(transport)->resized);
}

bool transport_may_detach(struct transport *transport, uint32_t qp)
{
	return fake_get(&fake.may_detach);
}

void transport_detach(struct transport *transport, uint32_t qp)
{
	record(transport)->detached_at = ++record(transport)->order;
	count(&record(transport)->detached);
}

void transport_add_session(struct transport *transport, uint32_t session)
{
	count(&record(transport)->sessions_added);
}

void transport_remove_session(struct transport *transport, uint32_t session)
{
	record(transport)->removed_at = ++record(transport)->order;
	count(&record(transport)->sessions_removed);
}

/* Sends the frame back to where it came from. */
static void echo(struct transport *transport, const struct wire_view *view,
		 const struct pktbuf *packet)
{
	struct pktbuf *answer = transport->io.get(transport->io.context, view->frame);

	if (!answer)
		return;
	memcpy(answer->data, packet->data, packet->length);
	memcpy(answer->data, view->frame + 6, 6);
	memcpy(answer->data + 6, view->frame, 6);
	answer->length = packet->length;
	transport->io.put(transport->io.context, answer, PKTBUF_SEND);
}

uint32_t transport_find(struct transport *transport, uint32_t qpn)
{
	return qp_find(NULL, qpn);
}

bool transport_look_up(struct transport *transport, const struct wire_view view[], uint32_t qp[],
		       unsigned int count)
{
	for (unsigned int i = 0; i < count; i++)
		qp[i] = qp_find(NULL, view[i].qpn);
	return true;
}

void transport_fetch_targets(const struct transport *transport, const struct wire_view view[],
			     unsigned int count)
{
}

uint32_t qp_confirm(const struct transport_shared *shared, uint32_t index, uint32_t qpn)
{
	return index;
}

bool transport_receive_at(struct transport *transport, uint32_t qp, const struct wire_view *view,
			  struct pktbuf *packet, uint64_t now)
{
	struct fake_worker *worker = record(transport);
	uint32_t at = worker->frames;

	if (at < FAKE_RECEIVED)
		worker->frame[at] = (struct fake_frame){ .worker = transport->worker,
							 .qpn = view->qpn,
							 .psn = view->psn };
	count(&worker->frames);
	if (fake_get(&fake.echo))
		echo(transport, view, packet);
	if (!fake_get(&fake.keep) || transport->keeps == 256)
		return false;
	transport->kept[transport->keeps++] = packet;
	return true;
}

void transport_set_line_rate(struct transport_shared *shared, uint64_t rate)
{
	(void)shared;
	(void)rate;
}

unsigned int transport_poll(struct transport *transport, uint64_t now)
{
	unsigned int done = 0;

	if (!fake_get(&fake.keep) && transport->keeps) {
		release(transport);
		done++;
	}
	while (transport->worker == 0 && fake_get(&fake.raise) && done < 64) {
		struct transport_event event = { .type = TRANSPORT_QP_ERROR, .object = fake.raise };

		transport->io.event(transport->io.context, &event);
		__atomic_fetch_sub(&fake.raise, 1, __ATOMIC_RELEASE);
		done++;
	}
	return done;
}

unsigned int transport_answer(struct transport *transport, uint64_t now)
{
	__atomic_fetch_add(&fake.answers, 1, __ATOMIC_RELEASE);
	return 0;
}

uint64_t transport_next_deadline(const struct transport *transport, uint64_t now)
{
	return UINT64_MAX;
}

/* --- memory ------------------------------------------------------------------------ */

void memory_reader_online(struct memory *memory, unsigned int reader)
{
	count(&fake.worker[reader].online);
}

void memory_reader_offline(struct memory *memory, unsigned int reader)
{
	count(&fake.worker[reader].offline);
}

void memory_quiescent(struct memory *memory, unsigned int reader)
{
	__atomic_fetch_add(&fake.worker[reader].quiescent, 1, __ATOMIC_RELEASE);
}
