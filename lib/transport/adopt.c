/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair of a process that died: what was half done is finished or undone, what is
 * unacknowledged is sent again, and what the peer lacks it will ask for again.
 */
#include "transport/private.h"

/* --- tokens --------------------------------------------------------------------------- */

/* The slot that a token was drawn for, and whether it still is that token in this state. */
static uint32_t token_in_state(const struct transport *t, uint32_t token, enum token_state state)
{
	const struct arena *arena = &t->shared->arena;
	const uint32_t mask = arena_records(arena, ARENA_TOKENS) - 1;
	const uint32_t index = perm32_decrypt(arena->header->token_key, token) & mask;
	const struct token_slot *slot = arena_record(arena, ARENA_TOKENS, index);
	const uint64_t meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);

	return (uint32_t)meta == token && (meta >> 32 & 0xff) == state ? index : 0;
}

/* --- send queue ----------------------------------------------------------------------- */

/* Died within the call of lib/memory: either it had its effect, or it is made again. */
static void resume_local(struct transport *t, struct qp *qp, struct flight *flight)
{
	struct qp_local *local = qp_local(t, qp);

	if (flight->state == FLIGHT_EXECUTING && flight->opcode != SHM_WR_INVALIDATE)
		flight->state = token_in_state(t, flight->token, TOKEN_VALID) ? FLIGHT_EXECUTED
									      : FLIGHT_WAITING;
	if (flight->state == FLIGHT_EXECUTING) {
		flight->slot = token_in_state(t, flight->token, TOKEN_REVOKED);
		flight->state = flight->slot ? FLIGHT_STARTED : FLIGHT_WAITING;
	}
	if (flight->state == FLIGHT_STARTED) {
		local->local_grace = memory_grace_start(t->shared->memory);
		grace_add(t, qp);
	}
}

static void count_flight(struct qp *qp, const struct flight *flight)
{
	qp->send.taken++;
	qp->flights++;
	if (flight->packets)
		qp->next_psn = psn_add(flight->psn, flight->packets);
	if (flight->state == FLIGHT_STARTED && flight_wants_response(flight)) {
		qp->reads_out++;
		qp->read_psns += flight->packets - flight_received(qp, flight);
	}
}

/* Keeps the flights that follow on the last completed entry, and frees the others. */
static void resume_flights(struct transport *t, struct qp *qp)
{
	uint32_t index = qp->first_flight, last = 0;

	qp->first_flight = 0;
	qp->flights = 0;
	qp->reads_out = 0;
	qp->read_psns = 0;
	qp->send.taken = requester_done(qp->requester);
	qp->next_psn = requester_una(qp->requester);
	while (index) {
		struct flight *flight = flight_at(t, index);
		const uint32_t next = flight->next;

		if (flight->sequence == qp->send.taken) {
			flight->next = 0;
			if (last)
				flight_at(t, last)->next = index;
			else
				qp->first_flight = index;
			last = index;
			count_flight(qp, flight);
			if (flight->packets == 0)
				resume_local(t, qp, flight);
		} else {
			flight_put(t, index);
		}
		index = next;
	}
	qp->last_flight = last;
	shm_store_release(&qp_local(t, qp)->memory->send.done, requester_done(qp->requester));
}

/* --- SEND with invalidate ------------------------------------------------------------- */

/* Its message may have been committed just before the end: then nothing is left to do. */
static void resume_invalidate(struct transport *t, struct qp *qp)
{
	struct remote_invalidate *invalidate = &qp_hold(t, qp)->invalidate;
	struct qp_local *local = qp_local(t, qp);

	if ((qp->flags & (QP_INVALIDATING | QP_INVALIDATED)) == 0)
		return;
	if (invalidate->psn != responder_psn(qp->responder))
		qp->flags &= ~(QP_INVALIDATING | QP_INVALIDATED);
	if (qp->flags & QP_INVALIDATING) {
		invalidate->slot = token_in_state(t, invalidate->token, TOKEN_REVOKED);
		qp->flags &= ~QP_INVALIDATING;
		if (invalidate->slot)
			qp->flags |= QP_INVALIDATED;
	}
	if (qp->flags & QP_INVALIDATED) {
		local->grace = memory_grace_start(t->shared->memory);
		grace_add(t, qp);
	}
}

/*
 * Where the newest SEND or WRITE stands, behind which only READs and atomics were taken. With as
 * many of them as are kept, what is noted is right: it was before the first of them came.
 */
static void find_ack_psn(const struct transport *t, struct qp *qp)
{
	uint32_t behind = responder_psn(qp->responder);
	uint8_t number = responder_resources(qp->responder);

	for (uint32_t i = 0; i <= t->shared->resource_mask; i++) {
		const struct responder_resource *resource = resource_at(t, qp, --number);

		if (resource->kind == RESOURCE_NONE ||
		    psn_add(resource->psn, resource->packets) != behind) {
			qp->ack_psn = psn_add(behind, PSN_MASK);
			return;
		}
		behind = resource->psn;
	}
}

/* What was to be answered is asked for again: so it was answered once as far as we care. */
static void complete_resources(const struct transport *t, const struct qp *qp)
{
	for (uint32_t i = 0; i <= t->shared->resource_mask; i++) {
		struct responder_resource *resource = resource_at(t, qp, (uint8_t)i);

		resource->next = resource->end;
		resource->complete = 1;
	}
}

/*
 * It had told of a failure and not died of it yet. If it owes a NAK, that leaves first; what the
 * peer may still lack of what came before is as lost as it would be in the network.
 */
static void adopt_dying(struct transport *t, struct qp *qp)
{
	if (qp->requester & REQUESTER_DYING)
		qp_fail(t, qp, VERDICT(ADOPTED_DYING), 0);
	else if ((qp->responder & RESPONDER_DYING) && qp->answer.kind < ANSWER_FATAL)
		qp_fail(t, qp, qp->answer.verdict, qp->answer.async);
}

void adopt_queue_pair(struct transport *t, struct qp *qp)
{
	resume_flights(t, qp);
	shm_store_release(&qp_local(t, qp)->memory->receive.done, qp->receive.taken);
	resume_invalidate(t, qp);
	if (qp->state != QP_RTS)
		return;
	find_ack_psn(t, qp);
	complete_resources(t, qp);
	qp->flags &= ~(QP_RNR_WAIT | QP_GAP_HANDLED);
	qp_build_template(qp, &qp_local(t, qp)->frame);
	requester_go_back(t, qp);
	adopt_dying(t, qp);
}
