/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues: records, taking in order of arrival, the limit event. */
#include <errno.h>
#include <string.h>

#include "transport/private.h"

/* --- control thread ------------------------------------------------------------------- */

static struct work_queue srq_layout(uint32_t depth, uint32_t sge)
{
	return queue_layout(depth, sge, sizeof(struct shm_rqe), 0, sizeof(struct shm_srq));
}

uint64_t srq_memory_size(uint32_t depth, uint32_t sge)
{
	const struct work_queue queue = srq_layout(depth, sge);

	return (uint64_t)queue.offset + (uint64_t)queue.slots * queue.stride;
}

static uint32_t find_free(const struct transport_shared *shared)
{
	for (uint32_t i = 1; i < shared->sizes.srqs; i++)
		if (shared->srqs[i].state == SRQ_FREE)
			return i;
	return 0;
}

uint32_t srq_create(struct transport_shared *shared, const struct srq_config *config)
{
	struct shm_srq *memory = config->memory;
	struct srq *srq;
	uint32_t index;

	if (config->depth == 0 || config->depth > QUEUE_MAX_DEPTH || config->sge > SHM_MAX_SGE ||
	    config->home >= shared->sizes.workers ||
	    config->memory_size < srq_memory_size(config->depth, config->sge))
		return 0;
	index = find_free(shared);
	if (index == 0)
		return 0;
	srq = &shared->srqs[index];
	*srq = (struct srq){
		.session = config->session,
		.pd = config->pd,
		.home = config->home,
		.threshold = config->limit,
		.armed = config->limit != 0,
		.receive = srq_layout(config->depth, config->sge),
	};
	memory->magic = SHM_MAGIC_SRQ;
	memory->layout_version = SHM_LAYOUT_VERSION;
	memory->size = config->memory_size;
	queue_publish(&memory->receive, &srq->receive);
	shared->srq_local[index] = (struct srq_local){ 0 };
	srq_set_memory(shared, index, memory);
	__atomic_store_n(&srq->state, SRQ_OPEN, __ATOMIC_RELEASE);
	return index;
}

/* Of an adopted arena: its last process may have died before it told what it took. */
void srq_set_memory(struct transport_shared *shared, uint32_t srq, struct shm_srq *memory)
{
	shared->srq_local[srq].memory = memory;
	if (memory)
		shm_store_release(&memory->receive.done, shared->srqs[srq].receive.taken);
}

uint32_t srq_home(const struct transport_shared *shared, uint32_t srq)
{
	return shared->srqs[srq].home;
}

/* No worker reads the depth: it binds the client, and a worker only minds the ring's size. */
int srq_set_depth(struct transport_shared *shared, uint32_t index, uint32_t depth)
{
	struct shm_srq *memory = shared->srq_local[index].memory;
	struct srq *srq = &shared->srqs[index];
	uint32_t taken = __atomic_load_n(&srq->receive.taken, __ATOMIC_RELAXED);

	if (depth == 0 || depth > srq->receive.slots)
		return -ENOBUFS;
	if (shm_load_acquire(&memory->receive.tail) - taken > depth)
		return -EBUSY;
	srq->receive.depth = depth;
	shm_store_release(&memory->receive.depth, depth);
	return 0;
}

void srq_destroy(struct transport_shared *shared, uint32_t srq)
{
	shared->srq_local[srq].memory = NULL;
	__atomic_store_n(&shared->srqs[srq].state, SRQ_FREE, __ATOMIC_RELEASE);
}

/* --- limit ---------------------------------------------------------------------------- */

/* One shot: whoever takes the arm owes the event. */
static bool limit_reached(struct srq *srq, uint32_t left)
{
	if (!__atomic_load_n(&srq->armed, __ATOMIC_ACQUIRE) ||
	    left >= __atomic_load_n(&srq->threshold, __ATOMIC_RELAXED))
		return false;
	return __atomic_exchange_n(&srq->armed, 0, __ATOMIC_SEQ_CST);
}

/*
 * The worker may take one while we look, and miss the arm; then at the latest the next message
 * finds it.
 */
bool srq_set_limit(struct transport_shared *shared, uint32_t index, uint32_t limit)
{
	const struct shm_srq *memory = shared->srq_local[index].memory;
	struct srq *srq = &shared->srqs[index];
	uint32_t taken;

	__atomic_store_n(&srq->armed, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&srq->threshold, limit, __ATOMIC_RELAXED);
	if (limit == 0 || memory == NULL)
		return false;
	__atomic_store_n(&srq->armed, 1, __ATOMIC_SEQ_CST);
	taken = __atomic_load_n(&srq->receive.taken, __ATOMIC_SEQ_CST);
	return limit_reached(srq, shm_load_acquire(&memory->receive.tail) - taken);
}

static void look_at_limit(struct transport *t, uint32_t index, uint32_t left)
{
	if (unlikely(limit_reached(&t->shared->srqs[index], left)))
		event_send(t, TRANSPORT_SRQ_LIMIT, index, left, SHM_ASYNC_SRQ_LIMIT);
}

/* --- home worker ---------------------------------------------------------------------- */

/* NDKPI remarks: an empty SRQ fails nobody. Nonsense in it fails each that asks. */
static uint32_t srq_posted(struct transport *t, struct qp *qp)
{
	const struct srq *srq = &t->shared->srqs[qp->srq];
	struct srq_local *local = &t->shared->srq_local[qp->srq];
	uint32_t posted;

	if (local->memory == NULL)
		return 0;
	posted = shm_load_acquire(&local->memory->receive.tail) - srq->receive.taken;
	if (likely(posted <= srq->receive.slots && !local->broken))
		return posted;
	if (!local->broken)
		session_broken(t, qp->session, VERDICT(RING_NONSENSE));
	local->broken = true;
	qp_fail(t, qp, VERDICT(RING_NONSENSE), SHM_ASYNC_QP_FATAL);
	return 0;
}

/* Others go on taking behind this one, so it leaves the queue at once. */
enum work_result srq_take(struct transport *t, struct qp *qp)
{
	struct srq *srq = &t->shared->srqs[qp->srq];
	struct shm_srq *memory = t->shared->srq_local[qp->srq].memory;
	struct intent *intent;
	enum work_result result;
	uint32_t posted;

	if (qp->flags & QP_HOLDS)
		return WORK_TAKEN;
	posted = srq_posted(t, qp);
	if (posted == 0) {
		look_at_limit(t, qp->srq, 0);
		return WORK_NONE;
	}
	result = work_copy_receive(shm_queue_slot(memory, srq->receive.offset, srq->receive.stride,
						  srq->receive.slots, srq->receive.taken),
				   srq->receive.max_sge, &qp_hold(t, qp)->work);
	intent = intent_begin(t, qp);
	intent->receive_taken = srq->receive.taken + 1;
	intent_commit(t, INTENT_SHARED);
	look_at_limit(t, qp->srq, posted - 1);
	return result;
}

void srq_last_receive(struct transport *t, struct qp *qp)
{
	if (qp->flags & QP_LAST_WQE)
		return;
	qp->flags |= QP_LAST_WQE;
	event_send(t, TRANSPORT_QP_LAST_WQE, qp_index(t, qp), 0, SHM_ASYNC_QP_LAST_WQE_REACHED);
}
