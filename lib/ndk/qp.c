/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: creation, flush, connecting by number. */
#include <stdlib.h>
#include <string.h>

#include "ndk/queue.h"
#include "shm/segment.h"

#define MOST_24_BITS 0xffffffu /* of PSNs; as a queue pair's number it means a group */

_Static_assert(offsetof(struct qp, object) == sizeof(NDK_QP), "queue pair");

static void qp_destroy(struct object *object)
{
	struct qp *qp = container_of(object, struct qp, object);

	qp_set_link(qp, QP_UNCONNECTED);
	if (qp->own_segment)
		shm_segment_unmap(qp->memory, qp->size);
}

bool ring_open(struct work_ring *ring, struct shm_queue *queue, void *segment, uint64_t size,
	       uint32_t entry, uint32_t payload)
{
	uint64_t end = queue->offset + (uint64_t)queue->slots * queue->stride;

	ring->queue = queue;
	ring->depth = queue->depth;
	if (queue->depth == 0)
		return true;
	if (queue->slots == 0 || (queue->slots & (queue->slots - 1)) ||
	    queue->depth > queue->slots || queue->stride < entry + payload || end > size)
		return false;
	ring->slots = (uint8_t *)segment + queue->offset;
	ring->mask = queue->slots - 1;
	ring->stride = queue->stride;
	ring->tail = ring->rung = queue->tail;
	return true;
}

static bool rings_open(struct qp *qp)
{
	uint32_t send_payload = qp->send.max_sge * (uint32_t)sizeof(struct shm_sge);

	if (send_payload < qp->inline_size)
		send_payload = qp->inline_size;
	return qp->size >= sizeof(struct shm_qp) && qp->memory->magic == SHM_MAGIC_QP &&
	       qp->memory->layout_version == SHM_LAYOUT_VERSION &&
	       ring_open(&qp->send, &qp->memory->send, qp->memory, qp->size, sizeof(struct shm_sqe),
			 send_payload) &&
	       ring_open(&qp->receive, &qp->memory->receive, qp->memory, qp->size,
			 sizeof(struct shm_rqe),
			 qp->receive.max_sge * (uint32_t)sizeof(struct shm_sge));
}

static NTSTATUS map_memory(struct qp *qp, struct request *request,
			   const struct shm_created *created)
{
	void *address = NULL;
	NTSTATUS status = STATUS_SUCCESS;

	qp->own_segment = !created->segment;
	if (!qp->own_segment)
		status = queue_segment_open(qp->object.adapter, created, &address);
	else if (shm_segment_map(request->fd, request->size, true, &address))
		status = STATUS_INSUFFICIENT_RESOURCES;
	qp->memory = address;
	qp->size = qp->own_segment ? request->size : created->segment_size;
	return status;
}

static NTSTATUS qp_created(struct object *object, struct request *request,
			   const struct shm_created *created)
{
	struct qp *qp = container_of(object, struct qp, object);
	struct adapter *adapter = object->adapter;
	NTSTATUS status;

	if (created->worker >= adapter->workers || created->doorbell >= SHM_MAX_SESSION_QPS)
		return STATUS_INTERNAL_ERROR;
	status = map_memory(qp, request, created);
	if (status != STATUS_SUCCESS)
		return status;
	qp->number = created->number;
	qp->doorbell = created->doorbell;
	return rings_open(qp) ? STATUS_SUCCESS : STATUS_INTERNAL_ERROR;
}

static bool within_limits(const struct shm_limits *limits, const struct shm_create_qp *want)
{
	return want->receive_depth <= limits->max_receive_depth &&
	       want->initiator_depth <= limits->max_initiator_depth &&
	       want->receive_sge <= limits->max_receive_sge &&
	       want->initiator_sge <= limits->max_initiator_sge &&
	       want->inline_size <= limits->max_inline;
}

/* What all ways to create one share; the domain, the CQs and the SRQ stand in needs[]. */
static NTSTATUS create(struct object *const needs[OBJECT_NEEDS], struct shm_create_qp *want,
		       NDK_FN_CREATE_COMPLETION completion, PVOID context)
{
	struct adapter *adapter = needs[QP_NEEDS_PD]->adapter;
	struct shm_request message = { .op = SHM_OP_CREATE_QP };
	struct object *object;
	struct qp *qp;

	if (!within_limits(&adapter->session->limits, want))
		return STATUS_INVALID_PARAMETER;
	object = object_allocate(adapter, sizeof(struct qp), NdkObjectTypeQp, &qp_dispatch,
				 qp_destroy);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	memcpy(object->needs, needs, sizeof(object->needs));
	qp = container_of(object, struct qp, object);
	qp->type = want->type;
	qp->inline_size = want->inline_size;
	qp->send.max_sge = want->initiator_sge;
	qp->receive.max_sge = want->receive_sge;
	qp->send.max_transfer = adapter->session->limits.max_transfer_length;
	qp->receive.max_transfer = qp->send.max_transfer;
	qp->flush.kind = REQUEST_SILENT;
	qp->flush.embedded = true;
	qp->flush.object = object;
	qp->flush.fd = -1;
	want->pd = needs[QP_NEEDS_PD]->handle;
	want->receive_cq = needs[QP_NEEDS_RECEIVE_CQ]->handle;
	want->initiator_cq = needs[QP_NEEDS_INITIATOR_CQ]->handle;
	want->srq = needs[QP_NEEDS_SRQ] ? needs[QP_NEEDS_SRQ]->handle : 0;
	message.create_qp = *want;
	return object_create(object, &message, qp_created, completion, context);
}

NTSTATUS qp_create(NDK_PD *pd, NDK_CQ *receive_cq, NDK_CQ *initiator_cq, PVOID qp_context,
		   ULONG receive_depth, ULONG initiator_depth, ULONG receive_sge,
		   ULONG initiator_sge, ULONG inline_size, NDK_FN_CREATE_COMPLETION completion,
		   PVOID context, NDK_QP **ppqp)
{
	struct object *const needs[OBJECT_NEEDS] = {
		[QP_NEEDS_PD] = object_of(&pd->Header),
		[QP_NEEDS_RECEIVE_CQ] = object_of(&receive_cq->Header),
		[QP_NEEDS_INITIATOR_CQ] = object_of(&initiator_cq->Header),
	};
	struct shm_create_qp want = { .qp_context = (uintptr_t)qp_context,
				      .receive_depth = receive_depth,
				      .initiator_depth = initiator_depth,
				      .receive_sge = receive_sge,
				      .initiator_sge = initiator_sge,
				      .inline_size = inline_size,
				      .type = SHM_QP_RC };

	if (!receive_cq || !initiator_cq)
		return STATUS_INVALID_PARAMETER;
	return create(needs, &want, completion, context);
}

NTSTATUS qp_create_with_srq(NDK_PD *pd, NDK_CQ *receive_cq, NDK_CQ *initiator_cq, NDK_SRQ *srq,
			    PVOID qp_context, ULONG initiator_depth, ULONG initiator_sge,
			    ULONG inline_size, NDK_FN_CREATE_COMPLETION completion, PVOID context,
			    NDK_QP **ppqp)
{
	struct object *const needs[OBJECT_NEEDS] = {
		[QP_NEEDS_PD] = object_of(&pd->Header),
		[QP_NEEDS_RECEIVE_CQ] = object_of(&receive_cq->Header),
		[QP_NEEDS_INITIATOR_CQ] = object_of(&initiator_cq->Header),
		[QP_NEEDS_SRQ] = object_of(&srq->Header),
	};
	struct shm_create_qp want = { .qp_context = (uintptr_t)qp_context,
				      .initiator_depth = initiator_depth,
				      .initiator_sge = initiator_sge,
				      .inline_size = inline_size,
				      .type = SHM_QP_RC };

	if (!receive_cq || !initiator_cq || !srq)
		return STATUS_INVALID_PARAMETER;
	return create(needs, &want, completion, context);
}

static bool parameters_fit(const ORIEL_QP_PARAMETERS *parameters)
{
	return parameters && parameters->Size >= sizeof(*parameters) && !parameters->Flags &&
	       parameters->ReceiveCq && parameters->InitiatorCq &&
	       (parameters->Type == OrielQpTypeRc || parameters->Type == OrielQpTypeUc ||
		parameters->Type == OrielQpTypeUd);
}

NTSTATUS OrielCreateQp(NDK_PD *pNdkPd, const ORIEL_QP_PARAMETERS *Parameters,
		       NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
		       NDK_QP **ppNdkQp)
{
	struct object *needs[OBJECT_NEEDS] = { [QP_NEEDS_PD] = object_of(&pNdkPd->Header) };
	struct shm_create_qp want;

	if (!parameters_fit(Parameters))
		return STATUS_INVALID_PARAMETER;
	if (Parameters->Srq && (Parameters->ReceiveQueueDepth || Parameters->MaxReceiveRequestSge))
		return STATUS_INVALID_PARAMETER_MIX;
	needs[QP_NEEDS_RECEIVE_CQ] = object_of(&Parameters->ReceiveCq->Header);
	needs[QP_NEEDS_INITIATOR_CQ] = object_of(&Parameters->InitiatorCq->Header);
	if (Parameters->Srq)
		needs[QP_NEEDS_SRQ] = object_of(&Parameters->Srq->Header);
	want = (struct shm_create_qp){ .qp_context = (uintptr_t)Parameters->QPContext,
				       .receive_depth = Parameters->ReceiveQueueDepth,
				       .initiator_depth = Parameters->InitiatorQueueDepth,
				       .receive_sge = Parameters->MaxReceiveRequestSge,
				       .initiator_sge = Parameters->MaxInitiatorRequestSge,
				       .inline_size = Parameters->InlineDataSize,
				       .type = (uint32_t)Parameters->Type };
	return create(needs, &want, CreateCompletion, RequestContext);
}

/* --- flush ---------------------------------------------------------------------------------- */

/*
 * May run beside a post (threads, NDKPI design guide): the deferred are handed over under the lock,
 * so that they are cancelled with the rest. One flush under way is enough for all: what is
 * posted behind it meets a queue pair in error.
 */
static void qp_flush(NDK_QP *ndk)
{
	struct qp *qp = qp_of(ndk);
	struct adapter *adapter = qp->object.adapter;
	struct shm_request message = { .op = SHM_OP_FLUSH_QP,
				       .object = { .object = qp->object.handle } };

	spin_lock(&qp->send_lock);
	send_end(qp, STATUS_SUCCESS, 0);
	spin_unlock(&qp->send_lock);
	pthread_mutex_lock(&adapter->lock);
	if (!qp->flush.by_id.number && !qp->flush.call.queued)
		request_send(adapter, &qp->flush, &message);
	pthread_mutex_unlock(&adapter->lock);
}

/* What was deferred is as good as posted: it ends with the rest. */
static NTSTATUS qp_close(NDK_OBJECT_HEADER *header, NDK_FN_CLOSE_COMPLETION completion,
			 PVOID context)
{
	struct qp *qp = container_of(object_of(header), struct qp, object);

	spin_lock(&qp->send_lock);
	send_end(qp, STATUS_SUCCESS, 0);
	spin_unlock(&qp->send_lock);
	return object_close(header, completion, context);
}

/* --- connection ------------------------------------------------------------------------------ */

static void accepting_remove(struct adapter *adapter, struct qp *qp)
{
	struct qp **at = &adapter->first_accepting;

	while (*at != qp)
		at = &(*at)->next_accepting;
	*at = qp->next_accepting;
	__atomic_fetch_sub(&adapter->accepting, 1, __ATOMIC_RELAXED);
}

void qp_set_link(struct qp *qp, enum qp_link link)
{
	struct adapter *adapter = qp->object.adapter;

	if (qp->link == QP_ACCEPTING)
		accepting_remove(adapter, qp);
	if (link == QP_ACCEPTING) {
		qp->next_accepting = adapter->first_accepting;
		adapter->first_accepting = qp;
		__atomic_fetch_add(&adapter->accepting, 1, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&qp->link, link, __ATOMIC_RELAXED);
}

void qp_arrived(struct adapter *adapter, uint32_t number)
{
	struct qp *qp;

	pthread_mutex_lock(&adapter->lock);
	qp = adapter->first_accepting;
	while (qp && qp->number != number)
		qp = qp->next_accepting;
	if (qp)
		qp_set_link(qp, QP_CONNECTED);
	pthread_mutex_unlock(&adapter->lock);
}

ULONG OrielGetQpNumber(NDK_QP *pNdkQp)
{
	return qp_of(pNdkQp)->number;
}

/* --- connection by number ------------------------------------------------------------------- */

_Static_assert(OrielQpTypeRc == (int)SHM_QP_RC && OrielQpTypeUc == (int)SHM_QP_UC &&
		       OrielQpTypeUd == (int)SHM_QP_UD,
	       "types go over as they are");

static void connect_qp_finish(struct request *request, const struct shm_reply *reply)
{
	struct qp *qp = container_of(request->object, struct qp, object);

	if (!NT_SUCCESS(request->status))
		return;
	if (qp->type == SHM_QP_UD)
		qp->send.max_transfer = reply->connected.path_mtu;
	qp_set_link(qp, QP_CONNECTED);
}

static NTSTATUS check_connection(const struct qp *qp, const ORIEL_QP_CONNECTION *connection)
{
	if (!connection || connection->Size < sizeof(*connection))
		return STATUS_INVALID_PARAMETER;
	if (connection->PathMtu && (connection->PathMtu < 256 || connection->PathMtu > 4096 ||
				    (connection->PathMtu & (connection->PathMtu - 1))))
		return STATUS_INVALID_PARAMETER;
	if (connection->SendPsn > MOST_24_BITS)
		return STATUS_INVALID_PARAMETER;
	if (qp->type == SHM_QP_UD)
		return connection->QKey & ORIEL_QKEY_OWN ? STATUS_INVALID_PARAMETER
							 : STATUS_SUCCESS;
	if (connection->ReceivePsn > MOST_24_BITS || connection->RemoteQpNumber < 2 ||
	    connection->RemoteQpNumber >= MOST_24_BITS || connection->Timeout > 31 ||
	    connection->RetryCount > 7 || connection->RnrRetryCount > 7 ||
	    connection->MinRnrTimer > 31)
		return STATUS_INVALID_PARAMETER;
	return STATUS_SUCCESS;
}

/* Datagrams have no single peer. */
static NTSTATUS take_addresses(const struct qp *qp, const ORIEL_QP_CONNECTION *connection,
			       struct shm_connect_qp *want)
{
	NTSTATUS status = address_from_sockaddr(connection->LocalAddress, UINT32_MAX, &want->local);

	if (status != STATUS_SUCCESS || qp->type == SHM_QP_UD)
		return status;
	return address_pair(connection->LocalAddress, connection->RemoteAddress, &want->local,
			    &want->remote);
}

NTSTATUS OrielConnectQp(NDK_QP *pNdkQp, const ORIEL_QP_CONNECTION *Connection,
			NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext)
{
	struct qp *qp = qp_of(pNdkQp);
	struct shm_request message = { .op = SHM_OP_CONNECT_QP };
	struct shm_connect_qp *want = &message.connect_qp;
	struct request *request;
	NTSTATUS status = check_connection(qp, Connection);

	if (status != STATUS_SUCCESS)
		return status;
	*want = (struct shm_connect_qp){ .qp = qp->object.handle,
					 .remote_qpn = Connection->RemoteQpNumber,
					 .send_psn = Connection->SendPsn,
					 .receive_psn = Connection->ReceivePsn,
					 .path_mtu = Connection->PathMtu,
					 .qkey = Connection->QKey,
					 .timeout = Connection->Timeout,
					 .retry_count = Connection->RetryCount,
					 .rnr_retry_count = Connection->RnrRetryCount,
					 .min_rnr_timer = Connection->MinRnrTimer,
					 .traffic_class = Connection->TrafficClass,
					 .hop_limit = Connection->HopLimit,
					 .inbound_read_limit = Connection->InboundReadLimit,
					 .outbound_read_limit = Connection->OutboundReadLimit };
	status = take_addresses(qp, Connection, want);
	if (status != STATUS_SUCCESS)
		return status;
	request = request_create(REQUEST_ASYNC, &qp->object, connect_qp_finish);
	if (!request)
		return STATUS_INSUFFICIENT_RESOURCES;
	return request_send_async(qp->object.adapter, request, &message, RequestCompletion,
				  RequestContext);
}

const NDK_QP_DISPATCH qp_dispatch = {
	.NdkCloseQp = qp_close,
	.NdkQueryExtension = query_extension,
	.NdkFlush = qp_flush,
	.NdkSend = post_send,
	.NdkReceive = post_receive,
	.NdkBind = window_post_bind,
	.NdkFastRegister = post_fast_register,
	.NdkInvalidate = window_post_invalidate,
	.NdkRead = post_read,
	.NdkWrite = post_write,
	.NdkSendAndInvalidate = post_send_invalidate,
};
