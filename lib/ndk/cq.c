/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: one ring per worker merged into one, arms, notifications. */
#include "ndk/queue.h"
#include "shm/segment.h"

_Static_assert(offsetof(struct cq, object) == sizeof(NDK_CQ), "completion queue");
_Static_assert(sizeof(NDK_OPERATION_TYPE) == sizeof(uint32_t), "types go over as they are");

/* --- creation -------------------------------------------------------------------------- */

static void notify_run(struct call *call);

static void cq_destroy(struct object *object)
{
	struct cq *cq = container_of(object, struct cq, object);
	struct cq **slot = &object->adapter->cq_by_notify[cq->notify];

	moderation_release(object->adapter, cq);
	/* The number may belong to a younger one already. */
	if (*slot == cq)
		*slot = NULL;
	shm_segment_unmap(cq->memory, cq->size);
}

static bool rings_open(struct cq *cq)
{
	struct shm_cq *memory = cq->memory;

	if (cq->size < sizeof(*memory) || memory->magic != SHM_MAGIC_CQ ||
	    memory->layout_version != SHM_LAYOUT_VERSION || memory->rings > SHM_MAX_WORKERS ||
	    memory->slots == 0 || (memory->slots & (memory->slots - 1)))
		return false;
	cq->rings = memory->rings;
	cq->slots = memory->slots;
	for (uint32_t r = 0; r < cq->rings; r++) {
		uint64_t bytes = (uint64_t)cq->slots * sizeof(struct shm_cqe);

		if (memory->ring[r].offset + bytes > cq->size)
			return false;
		cq->entry[r] = (const struct shm_cqe *)((uint8_t *)memory + memory->ring[r].offset);
		cq->head[r] = cq->seen[r] = memory->ring[r].cursor.head;
	}
	return true;
}

static NTSTATUS cq_created(struct object *object, struct request *request,
			   const struct shm_created *created)
{
	struct cq *cq = container_of(object, struct cq, object);
	struct adapter *adapter = object->adapter;
	void *address;

	if (created->doorbell >= SHM_MAX_SESSION_CQS)
		return STATUS_INTERNAL_ERROR;
	if (shm_segment_map(request->fd, request->size, true, &address))
		return STATUS_INSUFFICIENT_RESOURCES;
	cq->memory = address;
	cq->size = request->size;
	cq->notify = created->doorbell;
	cq->notify_call.run = notify_run;
	if (!rings_open(cq))
		return STATUS_INTERNAL_ERROR;
	adapter->cq_by_notify[cq->notify] = cq;
	if (adapter->notify_words <= cq->notify / 64)
		adapter->notify_words = cq->notify / 64 + 1;
	return STATUS_SUCCESS;
}

NTSTATUS cq_create(NDK_ADAPTER *ndk, ULONG depth, NDK_FN_CQ_NOTIFICATION_CALLBACK notification,
		   PVOID notification_context, GROUP_AFFINITY *affinity,
		   NDK_FN_CREATE_COMPLETION completion, PVOID context, NDK_CQ **ppcq)
{
	struct adapter *adapter = adapter_of(ndk);
	struct shm_request message = { .op = SHM_OP_CREATE_CQ, .create_cq = { .depth = depth } };
	struct object *object;
	struct cq *cq;

	if (depth == 0 || depth > adapter->session->limits.max_cq_depth)
		return STATUS_INVALID_PARAMETER;
	object = object_allocate(adapter, sizeof(struct cq), NdkObjectTypeCq, &cq_dispatch,
				 cq_destroy);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	cq = container_of(object, struct cq, object);
	cq->notification = notification;
	cq->notification_context = notification_context;
	return object_create(object, &message, cq_created, completion, context);
}

/* --- results -------------------------------------------------------------------------------- */

static bool has_output(uint32_t type)
{
	return type == NdkOperationTypeReceiveAndInvalidate ||
	       type == OrielOperationTypeReceiveImmediate ||
	       type == OrielOperationTypeReceiveWriteImmediate;
}

/* The library learns here what happened to windows, and that a peer is there. */
static void inspect(struct adapter *adapter, const struct shm_cqe *cqe)
{
	if ((cqe->status && (cqe->type & (NdkOperationTypeBind | NdkOperationTypeFastRegister))) ||
	    cqe->type == NdkOperationTypeInvalidate ||
	    cqe->type == NdkOperationTypeReceiveAndInvalidate)
		window_completed(adapter, cqe);
	if (cqe->status == STATUS_SUCCESS && (cqe->type & NdkOperationTypeReceive) &&
	    __atomic_load_n(&adapter->accepting, __ATOMIC_RELAXED))
		qp_arrived(adapter, cqe->qpn);
}

static void fill_result(NDK_RESULT *result, const struct shm_cqe *cqe)
{
	result->Status = cqe->status;
	result->BytesTransferred = cqe->bytes;
	result->QPContext = (PVOID)(uintptr_t)cqe->qp_context;
	result->RequestContext = (PVOID)(uintptr_t)cqe->request_context;
}

static void fill_result_ex(NDK_RESULT_EX *result, const struct shm_cqe *cqe)
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

/* Whether another ring holds an entry of the queue pair that was written before this one. */
static bool older_elsewhere(const struct cq *cq, uint32_t r, const struct shm_cqe *cqe)
{
	for (uint32_t other = 0; other < cq->rings; other++) {
		uint32_t tail = shm_load_acquire(&cq->memory->ring[other].cursor.tail);

		for (uint32_t i = cq->head[other]; other != r && i != tail; i++) {
			const struct shm_cqe *entry = &cq->entry[other][i & (cq->slots - 1)];

			if (entry->qpn == cqe->qpn && (int32_t)(cqe->epoch - entry->epoch) > 0)
				return true;
		}
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
static bool may_take(struct cq *cq, uint32_t r, const struct shm_cqe *cqe)
{
	struct moved *known = &cq->known[cqe->qpn % KNOWN_MOVED];

	if (cqe->epoch == 0 || (known->qpn == cqe->qpn && known->epoch == cqe->epoch))
		return true;
	if (older_elsewhere(cq, r, cqe))
		return false;
	*known = (struct moved){ .qpn = cqe->qpn, .epoch = cqe->epoch };
	return true;
}

/* Where entries go, in one of three forms; the others are NULL. */
struct results {
	NDK_RESULT *plain;
	NDK_RESULT_EX *ex;
	ORIEL_RESULT *oriel;
	ULONG count;
	ULONG room;
};

static void put_result(struct results *results, const struct shm_cqe *cqe)
{
	ULONG at = results->count++;

	if (results->plain)
		fill_result(&results->plain[at], cqe);
	else if (results->ex)
		fill_result_ex(&results->ex[at], cqe);
	else
		fill_oriel_result(&results->oriel[at], cqe);
}

static void take_from_ring(struct cq *cq, uint32_t r, struct results *results)
{
	struct shm_ring_cursor *cursor = &cq->memory->ring[r].cursor;
	uint32_t used = shm_ring_used(cursor, cq->head[r]);
	ULONG room = results->room - results->count;
	ULONG taken = 0;

	for (; taken < used && taken < room; taken++) {
		const struct shm_cqe *cqe = &cq->entry[r][cq->head[r] & (cq->slots - 1)];

		if (!may_take(cq, r, cqe))
			break;
		cq->head[r]++;
		put_result(results, cqe);
		inspect(cq->object.adapter, cqe);
	}
	if (taken)
		shm_store_release(&cursor->head, cq->head[r]);
}

static ULONG take_results(struct cq *cq, struct results *results)
{
	spin_lock(&cq->lock);
	for (uint32_t i = 0; i < cq->rings && results->count < results->room; i++) {
		uint32_t r = cq->next_ring;

		take_from_ring(cq, r, results);
		/* The next call begins with the next ring, so that none is starved. */
		cq->next_ring = r + 1 < cq->rings ? r + 1 : 0;
	}
	spin_unlock(&cq->lock);
	return results->count;
}

static ULONG cq_results(NDK_CQ *ndk, NDK_RESULT results[], ULONG room)
{
	return take_results(cq_of(ndk), &(struct results){ .plain = results, .room = room });
}

static ULONG cq_results_ex(NDK_CQ *ndk, NDK_RESULT_EX results[], ULONG room)
{
	return take_results(cq_of(ndk), &(struct results){ .ex = results, .room = room });
}

ULONG OrielGetCqResults(NDK_CQ *pNdkCq, ORIEL_RESULT Results[], ULONG nResults)
{
	return take_results(cq_of(pNdkCq), &(struct results){ .oriel = Results, .room = nResults });
}

/* --- arms ---------------------------------------------------------------------------- */

static uint32_t arm_of_type(uint32_t type)
{
	switch (type) {
	case NDK_CQ_NOTIFY_ANY: return SHM_ARM_ANY;
	case NDK_CQ_NOTIFY_SOLICITED: return SHM_ARM_SOLICITED;
	case NDK_CQ_NOTIFY_ERRORS: return SHM_ARM_ERRORS;
	default: return SHM_ARM_NONE;
	}
}

static bool ring_has_news(const struct cq *cq, uint32_t r, uint32_t arm)
{
	uint32_t tail = shm_load_acquire(&cq->memory->ring[r].cursor.tail);
	uint32_t from = cq->head[r];

	if ((int32_t)(cq->seen[r] - from) > 0)
		from = cq->seen[r];
	if (arm == SHM_ARM_ANY)
		return from != tail;
	for (; arm == SHM_ARM_SOLICITED && from != tail; from++) {
		const struct shm_cqe *cqe = &cq->entry[r][from & (cq->slots - 1)];

		if (cqe->status || cqe->solicited)
			return true;
	}
	return false;
}

/* Missed-event rule: what came after the last callback began satisfies an arm at once. */
static bool has_news(const struct cq *cq, uint32_t arm)
{
	if (shm_load_acquire(&cq->memory->error) && !cq->error_told)
		return true;
	for (uint32_t r = 0; r < cq->rings; r++)
		if (ring_has_news(cq, r, arm))
			return true;
	return false;
}

/* The stronger of both arms stays. Returns it. */
static uint32_t merge_arm(struct cq *cq, uint32_t arm)
{
	uint32_t old = __atomic_load_n(&cq->memory->arm, __ATOMIC_RELAXED);

	while (old < arm && !__atomic_compare_exchange_n(&cq->memory->arm, &old, arm, false,
							 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	return old < arm ? arm : old;
}

static void cq_arm(NDK_CQ *ndk, ULONG type)
{
	struct cq *cq = cq_of(ndk);
	struct adapter *adapter = cq->object.adapter;
	uint32_t arm = arm_of_type(type);
	bool due;

	if (arm == SHM_ARM_NONE)
		return;
	spin_lock(&cq->lock);
	arm = merge_arm(cq, arm);
	/* The worker stores an entry, then looks for an arm; here it is the other way round. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	due = has_news(cq, arm) &&
	      __atomic_exchange_n(&cq->memory->arm, SHM_ARM_NONE, __ATOMIC_SEQ_CST) != SHM_ARM_NONE;
	spin_unlock(&cq->lock);
	if (!due)
		return;
	pthread_mutex_lock(&adapter->lock);
	if (!cq->object.closing && !moderation_holds(adapter, cq))
		call_queue(adapter, &cq->notify_call);
	pthread_mutex_unlock(&adapter->lock);
}

void cq_notified(struct adapter *adapter, uint32_t notify)
{
	struct cq *cq = adapter->cq_by_notify[notify];

	if (cq && !cq->object.closing && !moderation_holds(adapter, cq))
		call_queue(adapter, &cq->notify_call);
}

/* Returns whether there is something to tell, and with which status. */
static bool notification_begin(struct cq *cq, NTSTATUS *status)
{
	bool tell = true;

	spin_lock(&cq->lock);
	*status = (NTSTATUS)shm_load_acquire(&cq->memory->error);
	if (*status) {
		tell = !cq->error_told;
		cq->error_told = true;
	}
	for (uint32_t r = 0; r < cq->rings; r++)
		cq->seen[r] = shm_load_acquire(&cq->memory->ring[r].cursor.tail);
	spin_unlock(&cq->lock);
	return tell;
}

static void notify_run(struct call *call)
{
	struct cq *cq = container_of(call, struct cq, notify_call);
	struct adapter *adapter = cq->object.adapter;
	NTSTATUS status;
	bool closing;

	pthread_mutex_lock(&adapter->lock);
	closing = cq->object.closing;
	pthread_mutex_unlock(&adapter->lock);
	if (!closing && notification_begin(cq, &status) && cq->notification)
		cq->notification(cq->notification_context, status);
}

const NDK_CQ_DISPATCH cq_dispatch = {
	.NdkCloseCq = object_close,
	.NdkQueryExtension = query_extension,
	.NdkResizeCq = unsupported_resize_cq,
	.NdkArmCq = cq_arm,
	.NdkGetCqResults = cq_results,
	.NdkControlCqInterruptModeration = cq_moderate,
	.NdkGetCqResultsEx = cq_results_ex,
};
