/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send-queue entries that send nothing: bind, fast register, invalidate. Each executes once, at its
 * place in the queue; going back for a lost packet steps over those that have.
 */
#include "transport/private.h"

static void flight_failed(struct transport *t, struct flight *flight, int32_t status,
			  enum access_reason reason)
{
	/* Whoever adopts it as failed finds out how. */
	flight->status = status;
	flight->verdict = VERDICT_ACCESS + reason;
	__atomic_store_n(&flight->state, FLIGHT_FAILED, __ATOMIC_RELEASE);
	count_verdict(t, flight->verdict);
}

static uint32_t bind_rights(uint32_t flags)
{
	uint32_t rights = 0;

	if (flags & SHM_FLAG_ALLOW_REMOTE_READ)
		rights |= RIGHT_REMOTE_READ;
	if ((flags & SHM_FLAG_ALLOW_REMOTE_WRITE) == SHM_FLAG_ALLOW_REMOTE_WRITE)
		rights |= RIGHT_REMOTE_WRITE;
	if (flags & SHM_FLAG_ALLOW_REMOTE_ATOMIC)
		rights |= RIGHT_REMOTE_ATOMIC;
	return rights;
}

static void execute_bind(struct transport *t, struct qp *qp, struct flight *flight)
{
	const struct accessor who = qp_accessor(t, qp);
	const struct bind_request request = {
		.region = flight->mr,
		.window = flight->mw,
		.token = flight->token,
		.rights = bind_rights(flight->flags),
		.address = flight->address,
		.length = flight->length,
		.tied = flight->flags & SHM_FLAG_TIE_TO_QP,
	};
	enum access_reason reason;

	COUNT(t, binds, 1);
	reason = window_bind(t->shared->memory, &who, &request);
	if (reason != ACCESS_OK)
		flight_failed(t, flight, NT_ACCESS_VIOLATION, reason);
	else
		flight->state = FLIGHT_EXECUTED;
}

static uint32_t registered_rights(uint32_t flags)
{
	return bind_rights(flags) | (flags & SHM_FLAG_ALLOW_LOCAL_WRITE ? RIGHT_LOCAL_WRITE : 0);
}

static void execute_fast_register(struct transport *t, struct qp *qp, struct flight *flight)
{
	const struct accessor who = qp_accessor(t, qp);
	const struct fast_register_request request = {
		.region = flight->mr,
		.segment = flight->compare > UINT32_MAX ? 0 : (uint32_t)flight->compare,
		.offset = flight->swap,
		.length = flight->length,
		.base = flight->address,
		.rights = registered_rights(flight->flags),
	};
	enum access_reason reason = region_fast_register(t->shared->memory, &who, &request);

	COUNT(t, fast_registers, 1);
	if (reason != ACCESS_OK)
		flight_failed(t, flight, NT_ACCESS_VIOLATION, reason);
	else
		flight->state = FLIGHT_EXECUTED;
}

static void execute_invalidate(struct transport *t, struct qp *qp, struct flight *flight)
{
	const struct accessor who = qp_accessor(t, qp);
	struct qp_local *local = qp_local(t, qp);
	enum access_reason reason;
	uint64_t grace;

	COUNT(t, invalidates, 1);
	reason = token_invalidate(t->shared->memory, &who, flight->token, false, &flight->slot,
				  &grace);
	if (reason != ACCESS_OK) {
		/* ND: invalidating what is not bound. */
		flight_failed(t, flight, NT_INVALID_DEVICE_REQUEST, reason);
		return;
	}
	flight->state = FLIGHT_STARTED;
	if (grace == 0) {
		stock_return(t, qp, flight->slot);
		flight->state = FLIGHT_EXECUTED;
		return;
	}
	local->local_grace = grace;
	grace_add(t, qp);
}

/*
 * An invalidate may hit the sink of a READ before it, that of a region also what an unacknowledged
 * request would be sent again from: it waits for those.
 */
static bool must_wait(struct transport *t, const struct qp *qp, const struct flight *flight)
{
	if (flight->opcode == SHM_WR_INVALIDATE && flight->mr)
		return flight_at(t, qp->first_flight) != flight;
	return qp->reads_out &&
	       (flight->opcode == SHM_WR_INVALIDATE || (flight->flags & SHM_FLAG_READ_FENCE));
}

bool local_execute(struct transport *t, struct qp *qp, struct flight *flight)
{
	if (flight->state == FLIGHT_EXECUTED)
		return true;
	if (flight->state != FLIGHT_WAITING)
		return false;
	if (must_wait(t, qp, flight))
		return false;
	/* Who adopts us from here on finds out from the token whether it was done. */
	__atomic_store_n(&flight->state, FLIGHT_EXECUTING, __ATOMIC_RELEASE);
	if (flight->opcode == SHM_WR_BIND)
		execute_bind(t, qp, flight);
	else if (flight->opcode == SHM_WR_FAST_REGISTER)
		execute_fast_register(t, qp, flight);
	else
		execute_invalidate(t, qp, flight);
	return flight->state == FLIGHT_EXECUTED;
}

/* The grace period of the one local invalidate under way is over. */
void local_invalidated(struct transport *t, struct qp *qp)
{
	uint32_t index = qp->first_flight;

	while (index) {
		struct flight *flight = flight_at(t, index);

		if (flight->opcode == SHM_WR_INVALIDATE && flight->state == FLIGHT_STARTED) {
			stock_return(t, qp, flight->slot);
			flight->state = FLIGHT_EXECUTED;
			break;
		}
		index = flight->next;
	}
	requester_complete(t, qp);
	ready_add(t, qp);
}

/*
 * A kill between the two steps costs the session this token until it ends, never more.
 * A client that lets its stock fill up asks for tokens when it needs some: these are not kept for
 * it.
 */
void stock_return(struct transport *t, struct qp *qp, uint32_t slot)
{
	const uint32_t token = token_recycle(t->shared->memory, t->worker, slot);
	const struct session_local *session = t->shared->sessions[qp->session];
	struct intent *intent = intent_begin(t, qp);
	uint32_t tail = t->state->stock_tail[qp->session];
	const struct shm_ring_cursor *cursor;
	uint32_t free_entries;

	if (token == 0 || session == NULL || session->memory == NULL)
		return;
	cursor = &session->memory->worker[t->worker].stock_cursor;
	free_entries = shm_ring_free(cursor, tail, SHM_STOCK_ENTRIES);
	if (free_entries > SHM_STOCK_ENTRIES) {
		session_broken(t, qp->session, VERDICT(RING_NONSENSE));
		return;
	}
	if (free_entries == 0) {
		COUNT(t, stock_full, 1);
		token_give_up(t->shared->memory, slot);
		return;
	}
	intent->session = qp->session;
	intent->stock_tail = tail;
	intent->stock_token = token;
	intent_commit(t, INTENT_STOCK);
}
