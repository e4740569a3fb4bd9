/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: entries, publication once per burst, arms, overrun. */
#include "transport/private.h"

static struct shm_cq *cq_memory(const struct transport *t, uint32_t cq)
{
	return t->shared->cq_local[cq].memory[t->worker];
}

static void mark_news(struct transport *t, uint32_t cq, uint8_t news)
{
	if (t->cq_news[cq] == 0)
		t->dirty_cq[t->dirty_cqs++] = cq;
	t->cq_news[cq] |= news;
}

static void show_broken(struct transport *t, uint32_t index)
{
	if (cq_memory(t, index))
		__atomic_store_n(&cq_memory(t, index)->error, (uint32_t)NT_BUFFER_OVERFLOW,
				 __ATOMIC_RELEASE);
	mark_news(t, index, NEWS_ERROR);
}

static bool cq_is_broken(const struct transport *t, uint32_t cq)
{
	return __atomic_load_n(&t->shared->cqs[cq].state, __ATOMIC_RELAXED) == CQ_BROKEN;
}

bool completion_is_broken(const struct transport *t, const struct qp *qp)
{
	return cq_is_broken(t, qp->send_cq) || cq_is_broken(t, qp->receive_cq);
}

void completion_end_users(struct transport *t)
{
	t->broken_cqs = __atomic_load_n(&t->shared->broken_cqs, __ATOMIC_ACQUIRE);
	for (uint32_t i = 1; i < t->shared->sizes.qps; i++) {
		struct qp *qp = &t->shared->qps[i];

		if (qp_lives_here(t, qp) && t->shared->qp_local[i].attached &&
		    completion_is_broken(t, qp))
			qp_fail_later(t, qp, VERDICT(CQ_OVERRUN));
	}
}

/* NDKPI: on overrun the CQ and all its queue pairs are unusable. Other workers see it counted. */
static void cq_break(struct transport *t, uint32_t index)
{
	struct cq *cq = &t->shared->cqs[index];
	uint32_t open = CQ_OPEN;

	if (!__atomic_compare_exchange_n(&cq->state, &open, CQ_BROKEN, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return;
	__atomic_fetch_add(&t->shared->broken_cqs, 1, __ATOMIC_RELEASE);
	count_verdict(t, VERDICT(CQ_OVERRUN));
	show_broken(t, index);
	event_send(t, TRANSPORT_CQ_ERROR, index, VERDICT(CQ_OVERRUN), SHM_ASYNC_CQ_ERROR);
	completion_end_users(t);
}

bool completion_room(struct transport *t, uint32_t index)
{
	struct cq *cq = &t->shared->cqs[index];
	struct cq_side *side = &cq->side[t->worker];
	struct shm_cq *memory = cq_memory(t, index);

	if (__atomic_load_n(&cq->state, __ATOMIC_RELAXED) != CQ_OPEN || memory == NULL)
		return false;
	if (likely(side->tail - side->head < side->depth))
		return true;
	side->head = shm_load_acquire(&memory->ring[t->worker].cursor.head);
	if (side->tail - side->head < side->depth)
		return true;
	if (side->tail - side->head > side->slots)
		session_broken(t, cq->session, VERDICT(RING_NONSENSE));
	cq_break(t, index);
	return false;
}

uint32_t completion_room_known(struct transport *t, uint32_t index)
{
	struct cq *cq = &t->shared->cqs[index];
	struct cq_side *side = &cq->side[t->worker];
	struct shm_cq *memory = cq_memory(t, index);
	uint32_t used = side->tail - side->head;

	if (unlikely(__atomic_load_n(&cq->state, __ATOMIC_RELAXED) != CQ_OPEN || memory == NULL))
		return 0;
	if (unlikely(side->depth - used < side->depth / 2)) {
		side->head = shm_load_acquire(&memory->ring[t->worker].cursor.head);
		used = side->tail - side->head;
	}
	return used < side->depth ? side->depth - used : 0;
}

void completion_placed(struct transport *t, struct intent *intent, uint32_t cq, uint32_t count)
{
	intent->cq = cq;
	intent->cq_tail = t->shared->cqs[cq].side[t->worker].tail + count;
	mark_news(t, cq, NEWS_ENTRY);
	COUNT(t, completions, count);
}

/* What was entered before the process died may not have been shown. */
void completion_publish_again(struct transport *t)
{
	for (uint32_t i = 1; i < t->shared->cq_watermark; i++) {
		const struct cq *cq = &t->shared->cqs[i];

		if (cq->state == CQ_OPEN && cq->side[t->worker].tail)
			mark_news(t, i, NEWS_ENTRY | NEWS_SOLICITED);
		else if (cq->state == CQ_BROKEN)
			show_broken(t, i);
	}
}

uint64_t completion_add(struct transport *t, struct intent *intent, uint32_t cq,
			const struct shm_cqe *cqe)
{
	if (!completion_room(t, cq))
		return 0;
	intent->cq = cq;
	intent->cq_tail = t->shared->cqs[cq].side[t->worker].tail;
	intent->cqe = *cqe;
	intent->cqe.epoch = t->shared->qps[intent->qp].epoch;
	mark_news(t, cq, cqe->status || cqe->solicited ? NEWS_ENTRY | NEWS_SOLICITED : NEWS_ENTRY);
	COUNT(t, completions, 1);
	if (cqe->status)
		COUNT(t, completion_errors, 1);
	return INTENT_CQE;
}

static bool arm_matches(uint32_t arm, uint8_t news)
{
	switch (arm) {
	case SHM_ARM_ANY: return true;
	case SHM_ARM_SOLICITED: return news & (NEWS_SOLICITED | NEWS_ERROR);
	case SHM_ARM_ERRORS: return news & NEWS_ERROR;
	default: return false;
	}
}

/*
 * Takes the arm if the news satisfy it. Another worker may be faster, and the client may
 * make the arm stronger meanwhile; one that keeps changing it only hurts itself.
 */
static bool take_arm(struct shm_cq *memory, uint8_t news)
{
	uint32_t arm = __atomic_load_n(&memory->arm, __ATOMIC_RELAXED);

	for (unsigned int tries = 0; tries < 4 && arm_matches(arm, news); tries++)
		if (__atomic_compare_exchange_n(&memory->arm, &arm, SHM_ARM_NONE, false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return true;
	return false;
}

static void satisfy_arm(struct transport *t, uint32_t index, uint8_t news)
{
	struct cq *cq = &t->shared->cqs[index];
	struct shm_cq *memory = cq_memory(t, index);
	struct session_local *session = t->shared->sessions[cq->session];

	if (!take_arm(memory, news))
		return;
	if (session == NULL || session->memory == NULL || cq->notify >= SHM_MAX_SESSION_CQS)
		return;
	__atomic_fetch_or(&session->memory->cq_notify[cq->notify / 64], 1ull << (cq->notify % 64),
			  __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < t->notifies; i++)
		if (t->notify[i] == cq->session)
			return;
	t->notify[t->notifies++] = cq->session;
}

/*
 * Dekker with NdkArmCq: the client stores the arm, a full fence, then looks for entries; here
 * the tails are stored, a full fence, then the arms are read. If the client missed
 * the entry, its arm was stored before our fence and we see it.
 */
void completion_publish(struct transport *t)
{
	for (uint32_t i = 0; i < t->dirty_cqs; i++) {
		uint32_t index = t->dirty_cq[i];
		struct shm_cq *memory = cq_memory(t, index);

		if (memory)
			shm_store_release(&memory->ring[t->worker].cursor.tail,
					  t->shared->cqs[index].side[t->worker].tail);
	}
	if (t->dirty_cqs == 0)
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < t->dirty_cqs; i++) {
		uint32_t index = t->dirty_cq[i];

		if (cq_memory(t, index))
			satisfy_arm(t, index, t->cq_news[index]);
		t->cq_news[index] = 0;
	}
	t->dirty_cqs = 0;
	for (uint32_t i = 0; i < t->notifies; i++)
		t->io.notify(t->io.context, t->notify[i]);
	t->notifies = 0;
}

/* What was written so far is in the old memory and shown there. */
void transport_resize_cq(struct transport *transport, uint32_t index, uint32_t depth,
			 struct shm_cq *memory)
{
	struct cq_side *side = &transport->shared->cqs[index].side[transport->worker];

	completion_publish(transport);
	side->tail = side->head = 0;
	side->depth = depth;
	side->slots = queue_slots(depth);
	transport->shared->cq_local[index].memory[transport->worker] = memory;
}
