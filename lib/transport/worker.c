/* SPDX-License-Identifier: BSD-3-Clause */
/* One worker: its poll, its lists, and the commands that attach, connect, flush and detach. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/private.h"

/* --- creation ------------------------------------------------------------------------- */

/* Flights that belong to nobody, of this worker's share of the table. */
static void collect_flights(struct transport *t)
{
	const uint32_t total = t->shared->sizes.flights;
	const uint32_t workers = t->shared->sizes.workers;
	const uint32_t first = (uint32_t)((uint64_t)total * t->worker / workers);
	const uint32_t end = (uint32_t)((uint64_t)total * (t->worker + 1) / workers);

	t->flight_first = first;
	t->flight_count = end - first;
	for (uint32_t i = end; i-- > (first ? first : 1);) {
		struct flight *flight = flight_at(t, i);

		if (flight->qp)
			continue;
		flight->next = t->free_flight;
		t->free_flight = i;
	}
}

static bool allocate_lists(struct transport *t)
{
	const struct transport_sizes *sizes = &t->shared->sizes;

	t->dirty_cq = calloc(sizes->cqs, sizeof(*t->dirty_cq));
	t->cq_news = calloc(sizes->cqs, sizeof(*t->cq_news));
	t->notify = calloc(sizes->sessions, sizeof(*t->notify));
	t->sessions = calloc(sizes->sessions, sizeof(*t->sessions));
	t->parked = calloc(PARKED_PER_WORKER, sizeof(*t->parked));
	t->qpn_cache = calloc(QPN_CACHE, sizeof(*t->qpn_cache));
	return t->dirty_cq && t->cq_news && t->notify && t->sessions && t->parked && t->qpn_cache;
}

int transport_create(struct transport **transport, struct transport_shared *shared,
		     unsigned int worker, const struct transport_io *io)
{
	struct transport *t;

	if (worker >= shared->sizes.workers)
		return -EINVAL;
	t = aligned_alloc(SHM_CACHE_LINE, (sizeof(*t) + 63) & ~(size_t)63);
	if (t == NULL)
		return -ENOMEM;
	memset(t, 0, sizeof(*t));
	t->shared = shared;
	t->worker = worker;
	t->io = *io;
	t->round = 1;
	t->state = arena_record(&shared->arena, ARENA_WORKERS, worker + 1);
	if (!allocate_lists(t)) {
		transport_destroy(t);
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < PARKED_PER_WORKER; i++) {
		t->parked[i].next = t->free_parked;
		t->free_parked = i;
	}
	wheel_create(&t->wheel, 0);
	transport_recover(t);
	if (shared->adopted)
		completion_publish_again(t);
	/* Answers may leave before the first poll. */
	pace_look(t);
	collect_flights(t);
	*transport = t;
	return 0;
}

void transport_destroy(struct transport *transport)
{
	free(transport->dirty_cq);
	free(transport->cq_news);
	free(transport->notify);
	free(transport->sessions);
	free(transport->parked);
	free(transport->qpn_cache);
	free(transport);
}

struct transport_stats *transport_get_stats(struct transport *transport)
{
	return &transport->stats;
}

/* --- lists ---------------------------------------------------------------------------- */

void starved_add(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	if (local->starved)
		return;
	local->starved = true;
	local->starved_next = t->starved_first;
	t->starved_first = qp_index(t, qp);
}

/* A flight is free again: everybody may try. */
void starved_wake(struct transport *t)
{
	while (t->starved_first) {
		uint32_t index = t->starved_first;
		struct qp_local *local = &t->shared->qp_local[index];

		t->starved_first = local->starved_next;
		local->starved = false;
		ready_add(t, &t->shared->qps[index]);
	}
}

void grace_add(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	if (local->grace_listed)
		return;
	local->grace_listed = true;
	local->grace_next = t->grace_first;
	t->grace_first = qp_index(t, qp);
}

/* Asks for every queue pair on the list; those that still wait go back onto it. */
static unsigned int graces_run(struct transport *t)
{
	uint32_t index = t->grace_first;
	unsigned int done = 0;

	t->grace_first = 0;
	while (index) {
		struct qp *qp = &t->shared->qps[index];
		struct qp_local *local = &t->shared->qp_local[index];
		uint32_t next = local->grace_next;

		local->grace_listed = false;
		if (local->grace && memory_grace_done(t->shared->memory, local->grace)) {
			local->grace = 0;
			responder_invalidated(t, qp);
			done++;
		}
		if (local->local_grace &&
		    memory_grace_done(t->shared->memory, local->local_grace)) {
			local->local_grace = 0;
			local_invalidated(t, qp);
			done++;
		}
		if (local->grace || local->local_grace)
			grace_add(t, qp);
		index = next;
	}
	return done;
}

/* --- input and output ----------------------------------------------------------------- */

struct pktbuf *frame_get(struct transport *t, const struct frame_template *template)
{
	const uint8_t *source = template->prefix + offsetof(struct eth_header, source);
	struct pktbuf *packet = t->blocked ? NULL : t->io.get(t->io.context, source);

	if (packet == NULL && !t->blocked) {
		t->blocked = true;
		COUNT(t, no_buffer, 1);
	}
	return packet;
}

void frame_send(struct transport *t, struct pktbuf *packet)
{
	COUNT(t, tx_packets, 1);
	COUNT(t, tx_bytes, packet->length);
	t->left -= (int32_t)packet->length;
	t->io.put(t->io.context, packet, PKTBUF_SEND);
}

void event_send(struct transport *t, enum transport_event_type type, uint32_t object,
		uint32_t value, uint32_t async)
{
	const struct transport_event event = {
		.type = type, .object = object, .value = value, .async = async
	};

	t->io.event(t->io.context, &event);
}

void session_broken(struct transport *t, uint32_t session, uint32_t verdict)
{
	count_verdict(t, verdict);
	event_send(t, TRANSPORT_SESSION_BROKEN, session, verdict, 0);
}

/* --- queue pairs ---------------------------------------------------------------------- */

static void enter_error(struct transport *t, struct qp *qp)
{
	__atomic_store_n(&qp->state, QP_ERROR, __ATOMIC_RELAXED);
	wheel_cancel(t, qp);
	qp->flags &= ~(QP_RNR_WAIT | QP_GAP_HANDLED);
	qp->answer.kind = ANSWER_NONE;
	qp->answered = responder_resources(qp->responder);
	qp->cursor = 0;
	park_drop(t, qp);
	ready_add(t, qp);
}

void qp_fail(struct transport *t, struct qp *qp, uint32_t verdict, uint32_t async)
{
	if (qp->state == QP_ERROR)
		return;
	enter_error(t, qp);
	event_send(t, TRANSPORT_QP_ERROR, qp_index(t, qp), verdict, async);
}

/* Many at once: each is told of when its turn comes, or there would be no room for the events. */
void qp_fail_later(struct transport *t, struct qp *qp, uint32_t verdict)
{
	if (qp->state == QP_ERROR)
		return;
	enter_error(t, qp);
	qp_local(t, qp)->owed_verdict = (uint16_t)verdict;
}

static void tell_failure(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	event_send(t, TRANSPORT_QP_ERROR, qp_index(t, qp), local->owed_verdict, SHM_ASYNC_QP_FATAL);
	local->owed_verdict = 0;
}

/* Of an adopted arena: also what its last process had begun. */
void transport_attach(struct transport *transport, uint32_t qp_number, uint64_t now)
{
	struct qp *qp = &transport->shared->qps[qp_number];

	transport->now = now;
	qp_local(transport, qp)->attached = true;
	qp_local(transport, qp)->answer_left = READY_QUANTUM;
	qp_local(transport, qp)->request_left = READY_QUANTUM;
	__atomic_store_n(&qp_local(transport, qp)->memory->home, transport->worker,
			 __ATOMIC_RELAXED);
	qp->answered = responder_resources(qp->responder);
	/* What a dying one has to say still stands. */
	if (!(qp->responder & RESPONDER_DYING))
		qp->answer.kind = ANSWER_NONE;
	if (transport->shared->adopted)
		adopt_queue_pair(transport, qp);
	if (completion_is_broken(transport, qp))
		qp_fail_later(transport, qp, VERDICT(CQ_OVERRUN));
	ready_add(transport, qp);
}

/* A Q_Key with bit 31 set is a privileged one (IBTA 10.2.5): nobody gets it this way. */
static bool datagrams_possible(const struct qp_connection *c)
{
	return path_mtu_code(c->path_mtu) && gid_is_unicast(c->path.local_gid) &&
	       !(c->qkey & QKEY_CONTROLLED);
}

static bool connection_possible(const struct transport *t, const struct qp_connection *c)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	bool local4 = memcmp(c->path.local_gid, mapped, 12) == 0;
	bool remote4 = memcmp(c->path.remote_gid, mapped, 12) == 0;

	return path_mtu_code(c->path_mtu) && gid_is_unicast(c->path.local_gid) &&
	       gid_is_unicast(c->path.remote_gid) && local4 == remote4 && c->timeout < 32 &&
	       c->retry_count < 8 && c->rnr_retry < 8 && c->min_rnr_timer < 32 &&
	       c->max_reads_in <= transport_max_reads_in(&t->shared->sizes);
}

int transport_connect(struct transport *transport, uint32_t qp_number,
		      const struct qp_connection *connection, uint64_t now)
{
	struct qp *qp = &transport->shared->qps[qp_number];

	transport->now = now;
	if (!(qp->type == SHM_QP_UD ? datagrams_possible(connection)
				    : connection_possible(transport, connection)))
		return -EINVAL;
	if (qp->state != QP_RESET)
		return -EISCONN;
	qp->path = connection->path;
	memcpy(qp->local_gid, connection->path.local_gid, 16);
	memcpy(qp->remote_gid, connection->path.remote_gid, 16);
	qp->remote_qpn = connection->remote_qpn & PSN_MASK;
	qp->qkey = connection->qkey;
	qp->timeout = connection->timeout;
	qp->retry_count = qp->retry_left = connection->retry_count;
	qp->rnr_retry = qp->rnr_left = connection->rnr_retry;
	qp->min_rnr_timer = connection->min_rnr_timer;
	qp->max_reads_out = connection->max_reads_out;
	qp->max_reads_in = connection->max_reads_in;
	qp->rights = connection->remote_rights;
	qp->mtu_shift = (uint8_t)__builtin_ctz(connection->path_mtu);
	qp->next_psn = qp->sent_psn = connection->send_psn & PSN_MASK;
	qp->answered = 0;
	qp_local(transport, qp)->read_window = 0;
	qp_local(transport, qp)->silent = false;
	qp->ack_psn = psn_add(connection->receive_psn, PSN_MASK);
	for (uint32_t i = 0; i <= transport->shared->resource_mask; i++)
		resource_at(transport, qp, (uint8_t)i)->kind = RESOURCE_NONE;
	word_commit(&qp->requester, requester_word(connection->send_psn, 0));
	word_commit(&qp->responder, responder_word(connection->receive_psn, 0, 0, MESSAGE_NONE));
	qp_build_template(qp, &qp_local(transport, qp)->frame);
	/* Datagrams establish nothing. */
	if (qp->type == SHM_QP_UD)
		qp->flags |= QP_ESTABLISHED;
	__atomic_store_n(&qp->state, QP_RTS, __ATOMIC_RELEASE);
	ready_add(transport, qp);
	return 0;
}

void transport_flush(struct transport *transport, uint32_t qp_number, uint64_t now)
{
	struct qp *qp = &transport->shared->qps[qp_number];

	transport->now = now;
	qp->flags |= QP_FLUSH_WANTED;
	if (qp->state != QP_ERROR)
		enter_error(transport, qp);
	ready_add(transport, qp);
}

bool transport_may_detach(struct transport *transport, uint32_t qp_number)
{
	const struct qp_local *local = &transport->shared->qp_local[qp_number];

	return local->grace == 0 && local->local_grace == 0;
}

static void list_remove(struct transport *t, uint32_t *first, uint32_t index, bool starved)
{
	while (*first && *first != index) {
		struct qp_local *local = &t->shared->qp_local[*first];

		first = starved ? &local->starved_next : &local->grace_next;
	}
	if (*first) {
		struct qp_local *local = &t->shared->qp_local[index];

		*first = starved ? local->starved_next : local->grace_next;
	}
}

void unlist(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	const uint32_t index = qp_index(t, qp);

	wheel_suspend(t, qp);
	ready_remove(t, qp);
	list_remove(t, &t->starved_first, index, true);
	list_remove(t, &t->grace_first, index, false);
	local->starved = local->grace_listed = false;
}

void transport_detach(struct transport *transport, uint32_t qp_number)
{
	struct qp *qp = &transport->shared->qps[qp_number];
	struct qp_local *local = &transport->shared->qp_local[qp_number];

	wheel_cancel(transport, qp);
	park_drop(transport, qp);
	while (qp->first_flight)
		flight_free(transport, qp, qp->first_flight);
	unlist(transport, qp);
	local->attached = false;
	/* Frames still come until the record is free, and its queues may go before. */
	__atomic_store_n(&qp->state, QP_RESET, __ATOMIC_RELAXED);
	/* The CQ may be destroyed next. */
	completion_publish(transport);
}

/* --- sessions ------------------------------------------------------------------------- */

#define SUMMARIES          (SHM_MAX_SESSION_QPS / 4096)
#define DOORBELL_SUMMARIES ((1ull << SUMMARIES) - 1)

/*
 * Who died may have taken what is above a bit and not the bit, and a client that finds a bit in a
 * word thinks that all above is set: so all words are looked at once.
 */
static void look_at_all_doorbells(struct shm_worker_area *area)
{
	for (uint32_t i = 0; i < SUMMARIES; i++)
		__atomic_fetch_or(&area->summary[i], UINT64_MAX, __ATOMIC_RELAXED);
	__atomic_fetch_or(&area->top, DOORBELL_SUMMARIES, __ATOMIC_RELEASE);
}

static struct session_place *add_session(struct transport *t, uint32_t session)
{
	struct session_local *local = t->shared->sessions[session];
	struct session_place *place;

	if (local == NULL || local->memory == NULL)
		return NULL;
	transport_remove_session(t, session);
	place = &t->sessions[t->session_count++];
	place->session = session;
	place->area = &local->memory->worker[t->worker];
	return place;
}

void transport_adopt_session(struct transport *transport, uint32_t session)
{
	struct session_place *place = add_session(transport, session);

	if (place)
		look_at_all_doorbells(place->area);
}

/* Its memory is fresh, and the stock empty: the end of the last one of this number saw to it. */
void transport_add_session(struct transport *transport, uint32_t session)
{
	add_session(transport, session);
}

void transport_remove_session(struct transport *transport, uint32_t session)
{
	for (uint32_t i = 0; i < transport->session_count; i++) {
		if (transport->sessions[i].session != session)
			continue;
		transport->sessions[i] = transport->sessions[--transport->session_count];
		return;
	}
}

static unsigned int ring_queue_pairs(struct transport *t, const struct session_local *local,
				     uint32_t base, uint64_t bits)
{
	unsigned int done = 0;

	for (; bits; bits &= bits - 1) {
		uint32_t number = base + (uint32_t)__builtin_ctzll(bits);
		uint32_t index = __atomic_load_n(&local->doorbell[number], __ATOMIC_ACQUIRE);

		/* One that has left was looked at by its new home: see transport_take(). */
		if (index == 0 || !qp_lives_here(t, &t->shared->qps[index]))
			continue;
		ready_add(t, &t->shared->qps[index]);
		work_fetch_send(t, &t->shared->qps[index]);
		done++;
	}
	return done;
}

/* The queue pairs below one bit of the top. */
static unsigned int read_summary(struct transport *t, const struct session_local *local,
				 struct shm_worker_area *area, uint32_t i)
{
	uint64_t summary = __atomic_exchange_n(&area->summary[i], 0, __ATOMIC_ACQUIRE);
	unsigned int done = 0;

	for (; summary; summary &= summary - 1) {
		uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(summary);

		done += ring_queue_pairs(
			t, local, word * 64,
			__atomic_exchange_n(&area->bits[word], 0, __ATOMIC_ACQUIRE));
	}
	return done;
}

/* See struct shm_worker_area: from the top down, each by an exchange. */
static unsigned int read_doorbells(struct transport *t, const struct session_place *place)
{
	const struct session_local *local = t->shared->sessions[place->session];
	struct shm_worker_area *area = place->area;
	uint64_t top = __atomic_load_n(&area->top, __ATOMIC_RELAXED);
	unsigned int done = 0;

	if (likely(top == 0))
		return 0;
	/* The client may have set any bit. */
	top = __atomic_exchange_n(&area->top, 0, __ATOMIC_ACQUIRE) & DOORBELL_SUMMARIES;
	for (; top; top &= top - 1)
		done += read_summary(t, local, area, (uint32_t)__builtin_ctzll(top));
	return done;
}

static unsigned int read_all_doorbells(struct transport *t)
{
	uint32_t count = t->session_count < POLL_SESSIONS ? t->session_count : POLL_SESSIONS;
	unsigned int done = 0;

	while (count--) {
		if (t->session_next >= t->session_count)
			t->session_next = 0;
		done += read_doorbells(t, &t->sessions[t->session_next++]);
	}
	return done;
}

/* --- poll ----------------------------------------------------------------------------- */

/* Whether answers or parked frames could go on at once, with buffers to be had. */
static bool answers_wait(const struct qp *qp, const struct qp_local *local, unsigned int parked)
{
	if (local->cnp_due)
		return true;
	if (local->held) /* by its rate: the wheel knows when it may go on */
		return local->parked && parked == POLL_PARKED;
	/* Parked frames may have waited for just these answers. */
	return responder_pending(qp) || (local->parked && local->grace == 0);
}

/* Sends with what is left of a quantum; `send` counts its frames. */
static unsigned int send_within(struct transport *t, struct qp *qp, int32_t *left,
				unsigned int (*send)(struct transport *t, struct qp *qp))
{
	unsigned int sent;

	t->left = *left;
	sent = send(t, qp);
	*left = sent < POLL_FRAMES ? t->left : 0;
	return sent;
}

static unsigned int send_requests(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	unsigned int sent = send_within(t, qp, &local->request_left,
					qp->type == SHM_QP_RC ? requester_send : unreliable_send);

	if (local->request_left <= 0 || t->blocked)
		ready_add(t, qp);
	return sent;
}

/* Answers first: a peer waits for them, and they are what makes it send on. */
static unsigned int run_queue_pair(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	unsigned int done, parked;

	if (qp->state == QP_ERROR) {
		if (unlikely(local->owed_verdict))
			tell_failure(t, qp);
		done = flush_run(t, qp);
		if (flush_pending(t, qp))
			ready_add(t, qp);
		return done;
	}
	if (qp->state != QP_RTS)
		return 0;
	local->held = false;
	done = unlikely(local->cnp_due) ? pace_send_cnp(t, qp) : 0;
	if (unlikely(qp->type != SHM_QP_RC))
		return done + send_requests(t, qp);
	parked = park_run(t, qp);
	done += parked + send_within(t, qp, &local->answer_left, responder_send);
	if (answers_wait(qp, local, parked))
		ready_add(t, qp);
	return qp->state == QP_RTS ? done + send_requests(t, qp) : done;
}

/* Those that are ready now, up to a bound; who gets ready meanwhile may have to wait. */
static unsigned int run_queue_pairs(struct transport *t)
{
	uint32_t visits = ready_count(t) < POLL_QPS ? ready_count(t) : POLL_QPS;
	unsigned int done = 0;

	t->starved = false;
	while (visits--) {
		struct qp *qp = ready_take(t);

		t->blocked = false;
		done += run_queue_pair(t, qp);
		t->starved |= t->blocked;
		ready_done(t, qp);
	}
	ready_wait_over(t);
	return done;
}

/* What its turn has to do beside waits for that: it stays where it is on its list. */
static unsigned int answer_at_once(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	if (qp->type != SHM_QP_RC || local->cnp_due || local->held || local->parked ||
	    !responder_pending(qp))
		return 0;
	t->blocked = false;
	return send_within(t, qp, &local->answer_left, responder_send);
}

unsigned int transport_answer(struct transport *transport, uint64_t now)
{
	const struct ready_list *list =
		transport->fresh.count ? &transport->fresh : &transport->busy;
	const uint32_t first = list->first, last = list->last;
	unsigned int done = 0;

	transport->now = now;
	if (first)
		done = answer_at_once(transport, &transport->shared->qps[first]);
	if (last != first)
		done += answer_at_once(transport, &transport->shared->qps[last]);
	return done;
}

unsigned int transport_poll(struct transport *transport, uint64_t now)
{
	unsigned int done;

	transport->now = now;
	transport->blocked = false;
	pace_look(transport);
	completion_look(transport);
	done = read_all_doorbells(transport);
	done += wheel_run(transport);
	if (transport->grace_first)
		done += graces_run(transport);
	done += run_queue_pairs(transport);
	done += transport->dirty_cqs;
	completion_publish(transport);
	return done;
}

uint64_t transport_next_deadline(const struct transport *transport, uint64_t now)
{
	const uint64_t next = wheel_next(&transport->wheel);

	if (transport->grace_first || transport->dirty_cqs)
		return now;
	if (ready_count(transport) == 0)
		return next;
	/* Whoever is ready waits for a buffer: asking without pause would not bring it. */
	if (transport->starved)
		return next < now + BLOCKED_PAUSE ? next : now + BLOCKED_PAUSE;
	return now;
}
