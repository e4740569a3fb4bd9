/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared receive queues: creation, receives, depth and threshold, the notification. */
#include "ndk/queue.h"
#include "shm/segment.h"

_Static_assert(offsetof(struct srq, object) == sizeof(NDK_SRQ), "shared receive queue");

static struct srq *srq_of(NDK_SRQ *ndk)
{
	return (struct srq *)ndk;
}

/* --- notification ----------------------------------------------------------------------- */

/* One shot, so at most one is due: the threshold is armed again by the consumer. */
static void notify_run(struct call *call)
{
	struct srq *srq = container_of(call, struct srq, notify_call);
	struct adapter *adapter = srq->object.adapter;
	uint32_t left;
	bool closing;

	pthread_mutex_lock(&adapter->lock);
	closing = srq->object.closing;
	left = srq->left;
	pthread_mutex_unlock(&adapter->lock);
	if (closing)
		return;
	if (srq->notification)
		srq->notification(srq->notification_context, STATUS_SUCCESS);
	adapter_tell(adapter, OrielEventSrqLimit, &srq->ndk.Header, left);
}

void srq_limit_reached(struct adapter *adapter, const struct shm_async *async)
{
	struct object *object = object_find(adapter, async->object, NdkObjectTypeSrq);
	struct srq *srq;

	if (!object || object->closing)
		return;
	srq = container_of(object, struct srq, object);
	srq->left = async->value;
	call_queue(adapter, &srq->notify_call);
}

/* --- creation --------------------------------------------------------------------------- */

static void srq_free(struct object *object)
{
	struct srq *srq = container_of(object, struct srq, object);

	shm_segment_unmap(srq->memory, srq->size);
}

static NTSTATUS srq_created(struct object *object, struct request *request,
			    const struct shm_created *created)
{
	struct srq *srq = container_of(object, struct srq, object);
	const uint32_t payload = srq->receive.max_sge * (uint32_t)sizeof(struct shm_sge);
	void *address;

	if (shm_segment_map(request->fd, request->size, true, &address))
		return STATUS_INSUFFICIENT_RESOURCES;
	srq->memory = address;
	srq->size = request->size;
	if (srq->size < sizeof(struct shm_srq) || srq->memory->magic != SHM_MAGIC_SRQ ||
	    srq->memory->layout_version != SHM_LAYOUT_VERSION ||
	    !ring_open(&srq->receive, &srq->memory->receive, srq->memory, srq->size,
		       sizeof(struct shm_rqe), payload))
		return STATUS_INTERNAL_ERROR;
	return STATUS_SUCCESS;
}

NTSTATUS srq_create(NDK_PD *pd, ULONG depth, ULONG sge, ULONG threshold,
		    NDK_FN_SRQ_NOTIFICATION_CALLBACK notification, PVOID notification_context,
		    GROUP_AFFINITY *affinity, NDK_FN_CREATE_COMPLETION completion, PVOID context,
		    NDK_SRQ **ppsrq)
{
	struct object *domain = object_of(&pd->Header);
	const struct shm_limits *limits = &domain->adapter->session->limits;
	struct shm_request message = { .op = SHM_OP_CREATE_SRQ,
				       .create_srq = { .pd = domain->handle,
						       .depth = depth,
						       .receive_sge = sge,
						       .threshold = threshold } };
	struct object *object;
	struct srq *srq;

	if (depth == 0 || depth > limits->max_srq_depth || sge > limits->max_receive_sge)
		return STATUS_INVALID_PARAMETER;
	object = object_allocate(domain->adapter, sizeof(struct srq), NdkObjectTypeSrq,
				 &srq_dispatch, srq_free);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	object->needs[0] = domain;
	srq = container_of(object, struct srq, object);
	srq->receive.max_sge = sge;
	srq->receive.max_transfer = limits->max_transfer_length;
	srq->notification = notification;
	srq->notification_context = notification_context;
	srq->notify_call.run = notify_run;
	return object_create(object, &message, srq_created, completion, context);
}

/* --- use --------------------------------------------------------------------------------- */

/* Its worker looks when a message comes: there is no bell to ring. */
static NTSTATUS srq_receive(NDK_SRQ *ndk, PVOID context, const NDK_SGE *sgl, ULONG nsge)
{
	struct srq *srq = srq_of(ndk);
	NTSTATUS status;

	spin_lock(&srq->lock);
	status = receive_write(srq->object.adapter, &srq->receive, context, sgl, nsge);
	if (status == STATUS_SUCCESS)
		shm_store_release(&srq->receive.queue->tail, srq->receive.tail);
	spin_unlock(&srq->lock);
	return status;
}

/* adapter.lock nests inside the queue's, so the depth is stored without it. */
static void modify_finish(struct request *request, const struct shm_reply *reply)
{
	struct srq *srq = container_of(request->object, struct srq, object);

	if (NT_SUCCESS(request->status) && request->extra)
		__atomic_store_n(&srq->receive.depth, (uint32_t)request->extra, __ATOMIC_RELAXED);
}

static NTSTATUS srq_modify(NDK_SRQ *ndk, ULONG depth, ULONG threshold,
			   NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct srq *srq = srq_of(ndk);
	struct adapter *adapter = srq->object.adapter;
	struct shm_request message = {
		.op = SHM_OP_MODIFY_SRQ,
		.resize = { .object = srq->object.handle, .depth = depth, .threshold = threshold }
	};
	struct request *request;

	if (depth > adapter->session->limits.max_srq_depth)
		return STATUS_INVALID_PARAMETER;
	request = request_create(REQUEST_ASYNC, &srq->object, modify_finish);
	if (!request)
		return STATUS_INSUFFICIENT_RESOURCES;
	request->extra = depth;
	return request_send_async(adapter, request, &message, completion, context);
}

const NDK_SRQ_DISPATCH srq_dispatch = {
	.NdkCloseSrq = object_close,
	.NdkQueryExtension = query_extension,
	.NdkModifySrq = srq_modify,
	.NdkSrqReceive = srq_receive,
};
