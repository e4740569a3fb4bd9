/* SPDX-License-Identifier: BSD-3-Clause */
/* Taking completions: one ring per worker merged into one, in the order of each queue pair. */
#include "ndk/queue.h"

#define STAMPED inline __attribute__((always_inline))

static inline bool has_output(uint32_t type)
{
	return type == NdkOperationTypeReceiveAndInvalidate ||
	       type == OrielOperationTypeReceiveImmediate ||
	       type == OrielOperationTypeReceiveWriteImmediate;
}

/* The library learns here what happened to windows, and that a peer is there. */
static void inspect_closely(struct adapter *adapter, const struct shm_cqe *cqe)
{
	if ((cqe->status && (cqe->type & (NdkOperationTypeBind | NdkOperationTypeFastRegister))) ||
	    cqe->type == NdkOperationTypeInvalidate ||
	    cqe->type == NdkOperationTypeReceiveAndInvalidate)
		window_completed(adapter, cqe);
	if (cqe->status == STATUS_SUCCESS && (cqe->type & NdkOperationTypeReceive) &&
	    __atomic_load_n(&adapter->accepting, __ATOMIC_RELAXED))
		qp_arrived(adapter, cqe->qpn);
}

/* A request of ours that went well is no news, but for an invalidate. */
static inline void inspect(struct adapter *adapter, const struct shm_cqe *cqe)
{
	if (cqe->status || (cqe->type & (NdkOperationTypeReceive | NdkOperationTypeInvalidate)))
		inspect_closely(adapter, cqe);
}

static inline void fill_result(NDK_RESULT *result, const struct shm_cqe *cqe)
{
	result->Status = cqe->status;
	result->BytesTransferred = cqe->bytes;
	result->QPContext = (PVOID)(uintptr_t)cqe->qp_context;
	result->RequestContext = (PVOID)(uintptr_t)cqe->request_context;
}

static inline void fill_result_ex(NDK_RESULT_EX *result, const struct shm_cqe *cqe)
{
	result->Status = cqe->status;
	result->BytesTransferred = cqe->bytes;
	result->QPContext = (PVOID)(uintptr_t)cqe->qp_context;
	result->RequestContext = (PVOID)(uintptr_t)cqe->request_context;
	result->Type = (NDK_OPERATION_TYPE)cqe->type;
	result->ProviderErrorCode = cqe->provider_error;
	result->TypeSpecificCompletionOutput = has_output(cqe->type) ? cqe->output : 0;
}

static void fill_oriel_result(ORIEL_RESULT *result, const struct shm_cqe *cqe)
{
	const bool immediate = cqe->type == OrielOperationTypeReceiveImmediate ||
			       cqe->type == OrielOperationTypeReceiveWriteImmediate;

	*result = (ORIEL_RESULT){ .QpNumber = cqe->qpn };
	fill_result_ex(&result->Ndk, cqe);
	if (immediate && cqe->status == STATUS_SUCCESS) {
		result->Flags |= ORIEL_RESULT_IMMEDIATE;
		result->Immediate = cqe->output;
	}
	if (cqe->flags & SHM_CQE_GRH) {
		result->Flags |= ORIEL_RESULT_GRH;
		result->SourceQpNumber = cqe->source_qpn;
	}
}

/* --- queue pairs that move ------------------------------------------------------------------ */

static bool has_older(const struct cq_ring *ring, const struct shm_cqe *cqe)
{
	uint32_t tail = shm_load_acquire(&ring->cursor->tail);

	for (uint32_t i = ring->head; i != tail; i++) {
		const struct shm_cqe *entry = &ring->entry[i & ring->mask];

		if (entry->qpn == cqe->qpn && (int32_t)(cqe->epoch - entry->epoch) > 0)
			return true;
	}
	return false;
}

/*
 * A queue pair lives on one worker at a time, so its entries keep their order in that worker's
 * ring; after a move the old ring's come first. They were published before the new worker
 * wrote the first of its own, so whoever sees that one sees them, and a search that finds none
 * is good for all entries of this epoch.
 *
 * Rings cannot block each other: an entry only waits for one that was written before it, which
 * lies at its ring's head or behind a still older one. Of all heads the oldest waits for nobody, so
 * a round over the rings always takes something if there is something.
 */
static inline bool may_take(struct cq *cq, uint32_t r, const struct shm_cqe *cqe)
{
	struct moved *known = &cq->known[cqe->qpn % KNOWN_MOVED];

	if (cqe->epoch == 0 || (known->qpn == cqe->qpn && known->epoch == cqe->epoch))
		return true;
	for (uint32_t other = 0; other < cq->all_rings; other++)
		if (other != r && has_older(&cq->ring[other], cqe))
			return false;
	*known = (struct moved){ .qpn = cqe->qpn, .epoch = cqe->epoch };
	return true;
}

/* After a resize: what a worker wrote to its old ring it wrote before all that is in its new one.
 */
static bool waits_for_old(const struct cq *cq, uint32_t r)
{
	const struct cq_ring *old;

	if (cq->all_rings == cq->rings || r >= cq->rings)
		return false;
	old = &cq->ring[r + cq->rings];
	return shm_ring_used(old->cursor, old->head) != 0;
}

void cq_forget_old_rings(struct cq *cq)
{
	if (cq->all_rings == cq->rings)
		return;
	for (uint32_t r = cq->rings; r < cq->all_rings; r++)
		if (shm_ring_used(cq->ring[r].cursor, cq->ring[r].head) != 0)
			return;
	cq->all_rings = cq->rings;
	cq->next_ring = 0;
	__atomic_store_n(&cq->resizing, false, __ATOMIC_RELEASE);
}

/* The form in which entries are told: what takes them is stamped for each. */
enum form { FORM_PLAIN, FORM_EX, FORM_ORIEL };

struct results {
	void *first;
	ULONG count;
	ULONG room;
};

static STAMPED void put_result(struct results *results, enum form form, const struct shm_cqe *cqe)
{
	ULONG at = results->count++;

	if (form == FORM_PLAIN)
		fill_result((NDK_RESULT *)results->first + at, cqe);
	else if (form == FORM_EX)
		fill_result_ex((NDK_RESULT_EX *)results->first + at, cqe);
	else
		fill_oriel_result((ORIEL_RESULT *)results->first + at, cqe);
}

static STAMPED void take_from_ring(struct cq *cq, uint32_t r, struct results *results,
				   enum form form)
{
	struct cq_ring *ring = &cq->ring[r];
	uint32_t used = shm_ring_used(ring->cursor, ring->head);
	ULONG room = results->room - results->count;
	ULONG taken = 0;

	for (; taken < used && taken < room; taken++) {
		const struct shm_cqe *cqe = &ring->entry[ring->head & ring->mask];

		if (!may_take(cq, r, cqe))
			break;
		ring->head++;
		put_result(results, form, cqe);
		inspect(cq->object.adapter, cqe);
	}
	if (taken)
		shm_store_release(&ring->cursor->head, ring->head);
}

static STAMPED void take_what_is_there(struct cq *cq, struct results *results, enum form form)
{
	spin_lock(&cq->lock);
	for (uint32_t i = 0; i < cq->all_rings && results->count < results->room; i++) {
		uint32_t r = cq->next_ring;

		if (!waits_for_old(cq, r))
			take_from_ring(cq, r, results, form);
		/* The next call begins with the next ring, so that none is starved. */
		cq->next_ring = r + 1 < cq->all_rings ? r + 1 : 0;
	}
	cq_forget_old_rings(cq);
	spin_unlock(&cq->lock);
}

/*
 * Where the caller drives the data plane, an empty CQ gives it one turn and is then asked anew; one
 * that was empty when it was last asked gives the turn first, and so does whoever has posted since.
 */
static STAMPED ULONG take_results(struct cq *cq, void *first, ULONG room, enum form form)
{
	struct results results = { .first = first, .room = room };
	struct adapter *adapter = cq->object.adapter;
	bool turned = __atomic_load_n(&cq->was_empty, __ATOMIC_RELAXED) ||
		      __atomic_load_n(&adapter->rung, __ATOMIC_RELAXED);

	if (turned)
		plane_turn(adapter);
	for (;; turned = true) {
		take_what_is_there(cq, &results, form);
		if (results.count || turned || !plane_turn(adapter))
			break;
	}
	if (adapter->plane.turn)
		__atomic_store_n(&cq->was_empty, results.count == 0, __ATOMIC_RELAXED);
	return results.count;
}

ULONG cq_results(NDK_CQ *ndk, NDK_RESULT results[], ULONG room)
{
	return take_results(cq_of(ndk), results, room, FORM_PLAIN);
}

ULONG cq_results_ex(NDK_CQ *ndk, NDK_RESULT_EX results[], ULONG room)
{
	return take_results(cq_of(ndk), results, room, FORM_EX);
}

ULONG OrielGetCqResults(NDK_CQ *pNdkCq, ORIEL_RESULT Results[], ULONG nResults)
{
	return take_results(cq_of(pNdkCq), Results, nResults, FORM_ORIEL);
}
