/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: creation, arms, notifications, resizing. */
#include <string.h>

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
	shm_segment_unmap(cq->old_memory, cq->old_size);
	shm_segment_unmap(cq->next_memory, cq->next_size);
}

/* The rings must lie within it. */
static bool memory_fits(const struct shm_cq *memory, uint64_t size)
{
	if (size < sizeof(*memory) || memory->magic != SHM_MAGIC_CQ ||
	    memory->layout_version != SHM_LAYOUT_VERSION || memory->rings > SHM_MAX_WORKERS ||
	    memory->slots == 0 || (memory->slots & (memory->slots - 1)))
		return false;
	for (uint32_t r = 0; r < memory->rings; r++)
		if (memory->ring[r].offset + (uint64_t)memory->slots * sizeof(struct shm_cqe) >
		    size)
			return false;
	return true;
}

/* At ring[0] and behind. */
static void rings_open(struct cq *cq, struct shm_cq *memory)
{
	for (uint32_t r = 0; r < memory->rings; r++) {
		const uint64_t offset = memory->ring[r].offset;

		cq->ring[r] = (struct cq_ring){
			.entry = (const struct shm_cqe *)((uint8_t *)memory + offset),
			.cursor = &memory->ring[r].cursor,
			.mask = memory->slots - 1,
			.head = memory->ring[r].cursor.head,
			.seen = memory->ring[r].cursor.head,
		};
	}
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
	if (!memory_fits(cq->memory, cq->size))
		return STATUS_INTERNAL_ERROR;
	rings_open(cq, cq->memory);
	cq->rings = cq->all_rings = cq->memory->rings;
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

static bool ring_has_news(const struct cq_ring *ring, uint32_t arm)
{
	uint32_t tail = shm_load_acquire(&ring->cursor->tail);
	uint32_t from = ring->head;

	if ((int32_t)(ring->seen - from) > 0)
		from = ring->seen;
	if (arm == SHM_ARM_ANY)
		return from != tail;
	for (; arm == SHM_ARM_SOLICITED && from != tail; from++) {
		const struct shm_cqe *cqe = &ring->entry[from & ring->mask];

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
	for (uint32_t r = 0; r < cq->all_rings; r++)
		if (ring_has_news(&cq->ring[r], arm))
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

/* cq.lock is held. Whether a callback is due at once. */
static bool arm(struct cq *cq, uint32_t type)
{
	type = merge_arm(cq, type);
	/* The worker stores an entry, then looks for an arm; here it is the other way round. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return has_news(cq, type) && __atomic_exchange_n(&cq->memory->arm, SHM_ARM_NONE,
							 __ATOMIC_SEQ_CST) != SHM_ARM_NONE;
}

static void notify(struct cq *cq)
{
	struct adapter *adapter = cq->object.adapter;

	pthread_mutex_lock(&adapter->lock);
	if (!cq->object.closing && !moderation_holds(adapter, cq))
		call_queue(adapter, &cq->notify_call);
	pthread_mutex_unlock(&adapter->lock);
}

static void cq_arm(NDK_CQ *ndk, ULONG type)
{
	struct cq *cq = cq_of(ndk);
	bool due;

	if (arm_of_type(type) == SHM_ARM_NONE)
		return;
	spin_lock(&cq->lock);
	due = arm(cq, arm_of_type(type));
	spin_unlock(&cq->lock);
	if (due)
		notify(cq);
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
	for (uint32_t r = 0; r < cq->all_rings; r++)
		cq->ring[r].seen = shm_load_acquire(&cq->ring[r].cursor->tail);
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

/* --- resizing --------------------------------------------------------------------------- */

/* Both locks are held. The rings in use become the old ones. */
static void change_memory(struct cq *cq)
{
	memcpy(&cq->ring[cq->rings], cq->ring, cq->rings * sizeof(cq->ring[0]));
	rings_open(cq, cq->next_memory);
	cq->all_rings = 2 * cq->rings;
	shm_segment_unmap(cq->old_memory, cq->old_size);
	cq->old_memory = cq->memory;
	cq->old_size = cq->size;
	cq->memory = cq->next_memory;
	cq->size = cq->next_size;
	cq->next_memory = NULL;
}

/*
 * All workers write to the new memory by now and look for arms there. What they wrote before the
 * consumer's arm is in there too is found by looking, as for any arm.
 */
static void resize_run(struct call *call)
{
	struct cq *cq = container_of(call, struct cq, resize_call);
	struct adapter *adapter = cq->object.adapter;
	uint32_t old_arm;
	bool due;

	spin_lock(&cq->lock);
	pthread_mutex_lock(&adapter->lock);
	change_memory(cq);
	pthread_mutex_unlock(&adapter->lock);
	if (shm_load_acquire(&cq->old_memory->error))
		cq->memory->error = cq->old_memory->error;
	old_arm = __atomic_exchange_n(&cq->old_memory->arm, SHM_ARM_NONE, __ATOMIC_SEQ_CST);
	due = old_arm != SHM_ARM_NONE && arm(cq, old_arm);
	spin_unlock(&cq->lock);
	if (due)
		notify(cq);
}

/* adapter.lock is held. The rest must wait for cq.lock, in front of which it may not be taken. */
static void resize_finish(struct request *request, const struct shm_reply *reply)
{
	struct cq *cq = container_of(request->object, struct cq, object);
	struct adapter *adapter = cq->object.adapter;
	void *address = NULL;

	if (!NT_SUCCESS(request->status)) {
		__atomic_store_n(&cq->resizing, false, __ATOMIC_RELEASE);
		return;
	}
	if (!request_take_segment(adapter, request, reply->id) ||
	    shm_segment_map(request->fd, request->size, true, &address) ||
	    !memory_fits(address, request->size) ||
	    ((struct shm_cq *)address)->rings != cq->rings) {
		/* What completes from now on cannot be seen. */
		shm_segment_unmap(address, request->size);
		__atomic_store_n(&cq->memory->error, (uint32_t)STATUS_INTERNAL_ERROR,
				 __ATOMIC_RELEASE);
		request->status = STATUS_INTERNAL_ERROR;
		call_queue(adapter, &cq->notify_call);
		return;
	}
	cq->next_memory = address;
	cq->next_size = request->size;
	cq->resize_call.run = resize_run;
	call_queue(adapter, &cq->resize_call);
}

static bool resize_begin(struct cq *cq)
{
	bool free;

	spin_lock(&cq->lock);
	cq_forget_old_rings(cq);
	free = !cq->resizing;
	cq->resizing = true;
	spin_unlock(&cq->lock);
	return free;
}

NTSTATUS cq_resize(NDK_CQ *ndk, ULONG depth, NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct cq *cq = cq_of(ndk);
	struct adapter *adapter = cq->object.adapter;
	struct shm_request message = { .op = SHM_OP_RESIZE_CQ,
				       .resize = { .object = cq->object.handle, .depth = depth } };
	struct request *request;
	NTSTATUS status;

	if (depth == 0 || depth > adapter->session->limits.max_cq_depth)
		return STATUS_INVALID_PARAMETER;
	if (!resize_begin(cq))
		return STATUS_DEVICE_BUSY;
	request = request_create(REQUEST_ASYNC, &cq->object, resize_finish);
	status = request ? request_send_async(adapter, request, &message, completion, context)
			 : STATUS_INSUFFICIENT_RESOURCES;
	if (status != STATUS_PENDING)
		__atomic_store_n(&cq->resizing, false, __ATOMIC_RELEASE);
	return status;
}

const NDK_CQ_DISPATCH cq_dispatch = {
	.NdkCloseCq = object_close,
	.NdkQueryExtension = query_extension,
	.NdkResizeCq = cq_resize,
	.NdkArmCq = cq_arm,
	.NdkGetCqResults = cq_results,
	.NdkControlCqInterruptModeration = cq_moderate,
	.NdkGetCqResultsEx = cq_results_ex,
};
