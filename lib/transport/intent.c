/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Steps that must happen once: written down, armed, done, disarmed.
 *
 * The process may be killed between any two instructions; the arena and the clients'
 * segments survive as they are, so program order (release stores) is all that is needed.
 * Whoever adopts the arena finds the record armed and does all of it again, or not armed:
 * then the step either was never begun or is complete.
 */
#include <string.h>

#include "transport/private.h"

struct intent *intent_begin(struct transport *t, struct qp *qp)
{
	struct intent *intent = &t->state->intent;

	intent->qp = qp_index(t, qp);
	return intent;
}

static void apply_cqe(struct transport *t, const struct intent *intent)
{
	struct cq *cq = &t->shared->cqs[intent->cq];
	struct shm_cq *memory = t->shared->cq_local[intent->cq].memory[t->worker];

	if (memory)
		*cq_entry(t, intent->cq, intent->cq_tail) = intent->cqe;
	cq->side[t->worker].tail = intent->cq_tail + 1;
}

static void apply_stock(struct transport *t, const struct intent *intent)
{
	struct session_local *session = t->shared->sessions[intent->session];
	struct shm_worker_area *area;

	t->state->stock_tail[intent->session] = intent->stock_tail + 1;
	if (session == NULL || session->memory == NULL)
		return;
	area = &session->memory->worker[t->worker];
	area->stock[intent->stock_tail & (SHM_STOCK_ENTRIES - 1)] = intent->stock_token;
	shm_store_release(&area->stock_cursor.tail, intent->stock_tail + 1);
}

/* Fails when somebody else has changed the value since our look at it. */
static bool apply_atomic(const struct intent *intent, uint64_t *target)
{
	uint64_t old = intent->old;

	return __atomic_compare_exchange_n(target, &old, intent->swap, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_RELAXED);
}

/* A value that is neither the old nor the new one was changed by the client meanwhile: done. */
static void recover_atomic(struct transport *t, const struct intent *intent)
{
	const struct accessor who = qp_accessor(t, &t->shared->qps[intent->qp]);
	struct access access;

	if (memory_access(t->shared->memory, &who, intent->token, intent->address, 8,
			  RIGHT_REMOTE_ATOMIC, &access) == ACCESS_OK)
		apply_atomic(intent, (uint64_t *)(void *)access.pointer);
}

/* Told here, too: who adopts showed what had been taken before it came to this. */
static void apply_shared(struct transport *t, struct qp *qp, const struct intent *intent)
{
	struct shm_srq *memory = t->shared->srq_local[qp->srq].memory;

	t->shared->srqs[qp->srq].receive.taken = intent->receive_taken;
	qp->flags |= QP_HOLDS;
	if (memory)
		shm_store_release(&memory->receive.done, intent->receive_taken);
}

static void apply(struct transport *t, const struct intent *intent)
{
	struct qp *qp = &t->shared->qps[intent->qp];

	if (intent->armed & INTENT_CQE)
		apply_cqe(t, intent);
	if (intent->armed & INTENT_CQ_TAIL)
		t->shared->cqs[intent->cq].side[t->worker].tail = intent->cq_tail;
	if (intent->armed & INTENT_STOCK)
		apply_stock(t, intent);
	if (intent->armed & INTENT_RECEIVE)
		qp->receive.taken = intent->receive_taken;
	if (intent->armed & INTENT_SHARED)
		apply_shared(t, qp, intent);
	if (intent->armed & INTENT_RELEASE)
		qp->flags &= ~QP_HOLDS;
	if (intent->armed & INTENT_RESPONDER)
		word_commit(&qp->responder, intent->responder);
	if (intent->armed & INTENT_REQUESTER)
		word_commit(&qp->requester, intent->requester);
}

void intent_commit(struct transport *t, uint64_t parts)
{
	struct intent *intent = &t->state->intent;

	word_commit(&intent->armed, parts);
	apply(t, intent);
	word_commit(&intent->armed, 0);
}

bool intent_commit_atomic(struct transport *t, uint64_t parts, uint64_t *target)
{
	struct intent *intent = &t->state->intent;

	word_commit(&intent->armed, parts | INTENT_ATOMIC);
	if (!apply_atomic(intent, target)) {
		word_commit(&intent->armed, 0);
		return false;
	}
	apply(t, intent);
	word_commit(&intent->armed, 0);
	return true;
}

void transport_recover(struct transport *t)
{
	struct intent *intent = &t->state->intent;

	if (intent->armed & INTENT_ATOMIC)
		recover_atomic(t, intent);
	apply(t, intent);
	word_commit(&intent->armed, 0);
}
