/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing an adapter, what it can do, and its events. */
#include <stdlib.h>
#include <string.h>

#include "ndk/queue.h"

/* --- opening ------------------------------------------------------------------------- */

static NTSTATUS check_parameters(const ORIEL_OPEN_PARAMETERS *parameters, NDK_VERSION *version)
{
	*version = (NDK_VERSION){ 1, 2 };
	if (!parameters)
		return STATUS_SUCCESS;
	if (parameters->Size < sizeof(*parameters))
		return session_refuse(STATUS_INVALID_PARAMETER,
				      "ORIEL_OPEN_PARAMETERS.Size is %u and must be %zu at least",
				      parameters->Size, sizeof(*parameters));
	if (parameters->Flags & ~ORIEL_OPEN_PROGRESS_THREAD)
		return session_refuse(STATUS_INVALID_PARAMETER,
				      "ORIEL_OPEN_PARAMETERS.Flags %#x has unknown bits",
				      parameters->Flags);
	*version = parameters->Version;
	return STATUS_SUCCESS;
}

static void adapter_free(struct adapter *adapter)
{
	session_leave(adapter);
	token_destroy(adapter);
	while (adapter->sent_memory) {
		struct sent_memory *sent = adapter->sent_memory;

		adapter->sent_memory = sent->next;
		free(sent);
	}
	free(adapter->cq_by_notify);
	table_destroy(&adapter->requests);
	table_destroy(&adapter->objects);
	pthread_mutex_destroy(&adapter->lock);
	pthread_mutex_destroy(&adapter->progress);
	free(adapter);
}

static struct adapter *adapter_allocate(NDK_VERSION version)
{
	struct adapter *adapter = calloc(1, sizeof(*adapter));

	if (!adapter)
		return NULL;
	adapter->version = version;
	adapter->socket = adapter->wake_fd = adapter->kick_fd = -1;
	adapter->control_fd = adapter->epoll_fd = adapter->timer_fd = adapter->tick_fd = -1;
	adapter->last_waiting = &adapter->first_waiting;
	adapter->last_call = &adapter->first_call;
	pthread_mutex_init(&adapter->lock, NULL);
	pthread_mutex_init(&adapter->progress, NULL);
	adapter->cq_by_notify = calloc(SHM_MAX_SESSION_CQS, sizeof(struct cq *));
	if (!adapter->cq_by_notify || !token_init(adapter) || !table_init(&adapter->requests) ||
	    !table_init(&adapter->objects)) {
		adapter_free(adapter);
		return NULL;
	}
	return adapter;
}

NTSTATUS OrielOpenAdapter(const ORIEL_OPEN_PARAMETERS *Parameters, NDK_ADAPTER **ppNdkAdapter)
{
	struct adapter *adapter;
	NDK_VERSION version;
	NTSTATUS status;

	status = check_parameters(Parameters, &version);
	if (status != STATUS_SUCCESS)
		return status;
	adapter = adapter_allocate(version);
	if (!adapter)
		return STATUS_INSUFFICIENT_RESOURCES;
	status = session_join(adapter, Parameters ? Parameters->Socket : NULL);
	if (status != STATUS_SUCCESS) {
		adapter_free(adapter);
		return status;
	}
	object_init(&adapter->object, adapter, NdkObjectTypeAdapter, &adapter_dispatch);
	memory_adapter_opened(adapter);
	token_refill_if_low(adapter);
	if (Parameters && (Parameters->Flags & ORIEL_OPEN_PROGRESS_THREAD))
		status = helper_start(adapter);
	if (status == STATUS_SUCCESS)
		*ppNdkAdapter = &adapter->ndk;
	else
		OrielCloseAdapter(&adapter->ndk);
	return status;
}

/* --- closing -------------------------------------------------------------------------------- */

/* Objects whose create is under way are closed when it is over: see object.c. */
static void close_everything(struct adapter *adapter)
{
	struct object *object;

	pthread_mutex_lock(&adapter->lock);
	adapter->closing = true;
	for (object = adapter->first_object; object; object = object->next)
		if (object->handle)
			object_close_silently(object);
	pthread_mutex_unlock(&adapter->lock);
}

static bool anything_left(struct adapter *adapter)
{
	bool left;

	pthread_mutex_lock(&adapter->lock);
	left = adapter->first_object || adapter->first_call;
	pthread_mutex_unlock(&adapter->lock);
	return left;
}

void OrielCloseAdapter(NDK_ADAPTER *pNdkAdapter)
{
	struct adapter *adapter = adapter_of(pNdkAdapter);

	helper_stop(adapter);
	close_everything(adapter);
	while (anything_left(adapter))
		if (OrielProgress(pNdkAdapter) == 0)
			OrielWait(pNdkAdapter, 100);
	memory_adapter_closed(adapter);
	/* What nobody waits for (refills, drops) the daemon need not answer any more. */
	pthread_mutex_lock(&adapter->lock);
	adapter->dead = true;
	request_cancel_all(adapter);
	pthread_mutex_unlock(&adapter->lock);
	while (OrielProgress(pNdkAdapter))
		;
	adapter_free(adapter);
}

/* --- what it can do ------------------------------------------------------------------ */

NTSTATUS query_extension(NDK_OBJECT_HEADER *header, GUID *id, NDK_VERSION version,
			 NDK_EXTENSION_INTERFACE *interface)
{
	return STATUS_NOT_SUPPORTED;
}

static void fill_info(const struct adapter *adapter, NDK_ADAPTER_INFO *info)
{
	const struct shm_limits *limits = &adapter->session->limits;

	*info = (NDK_ADAPTER_INFO){
		.Version = adapter->version,
		.MaxRegistrationSize = limits->max_registration_size,
		.MaxWindowSize = limits->max_window_size,
		.FRMRPageCount = limits->frmr_page_count,
		.MaxInitiatorRequestSge = limits->max_initiator_sge,
		.MaxReceiveRequestSge = limits->max_receive_sge,
		.MaxReadRequestSge = limits->max_read_sge,
		.MaxTransferLength = limits->max_transfer_length,
		.MaxInlineDataSize = limits->max_inline,
		.MaxInboundReadLimit = limits->max_inbound_read_limit,
		.MaxOutboundReadLimit = limits->max_outbound_read_limit,
		.MaxReceiveQueueDepth = limits->max_receive_depth,
		.MaxInitiatorQueueDepth = limits->max_initiator_depth,
		.MaxSrqDepth = limits->max_srq_depth,
		.MaxCqDepth = limits->max_cq_depth,
		.LargeRequestThreshold = limits->large_request_threshold,
		.MaxCallerData = limits->max_caller_data,
		.MaxCalleeData = limits->max_callee_data,
		/* Moderation is the library's own. */
		.AdapterFlags =
			limits->adapter_flags | NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED,
		.RdmaTechnology = NdkRoCEv2,
	};
}

static NTSTATUS adapter_query_info(NDK_ADAPTER *ndk, NDK_ADAPTER_INFO *info, ULONG *size)
{
	ULONG room = *size;

	*size = sizeof(*info);
	if (!info || room < sizeof(*info))
		return STATUS_BUFFER_TOO_SMALL;
	fill_info(adapter_of(ndk), info);
	return STATUS_SUCCESS;
}

NTSTATUS OrielQueryAddresses(NDK_ADAPTER *pNdkAdapter, struct sockaddr_storage *pAddresses,
			     ULONG *pCount)
{
	const struct shm_session *session = adapter_of(pNdkAdapter)->session;
	ULONG room = *pCount;

	*pCount = session->addresses < SHM_MAX_ADDRESSES ? session->addresses : SHM_MAX_ADDRESSES;
	for (ULONG i = 0; i < *pCount && i < room; i++)
		address_to_sockaddr(&session->address[i], &pAddresses[i]);
	return room < *pCount ? STATUS_BUFFER_TOO_SMALL : STATUS_SUCCESS;
}

/* --- events -------------------------------------------------------------------------- */

struct event_call {
	struct call call;
	struct adapter *adapter;
	NDK_OBJECT_TYPE type;
	uint32_t handle;
	ORIEL_EVENT event;
	uint32_t reason;
};

void OrielSetEventHandler(NDK_ADAPTER *pNdkAdapter, ORIEL_FN_EVENT_CALLBACK Handler, PVOID Context)
{
	struct adapter *adapter = adapter_of(pNdkAdapter);

	pthread_mutex_lock(&adapter->lock);
	adapter->event_handler = Handler;
	adapter->event_context = Context;
	pthread_mutex_unlock(&adapter->lock);
}

void adapter_tell(struct adapter *adapter, ORIEL_EVENT event, NDK_OBJECT_HEADER *header,
		  ULONG reason)
{
	ORIEL_FN_EVENT_CALLBACK handler;
	void *context;

	pthread_mutex_lock(&adapter->lock);
	handler = adapter->event_handler;
	context = adapter->event_context;
	pthread_mutex_unlock(&adapter->lock);
	if (handler)
		handler(context, event, header, reason);
}

/* The object may have been closed since the event came: then nobody wants to hear of it. */
static void event_run(struct call *call)
{
	struct event_call *event = container_of(call, struct event_call, call);
	struct adapter *adapter = event->adapter;
	struct object *object;

	pthread_mutex_lock(&adapter->lock);
	object = object_find(adapter, event->handle, event->type);
	pthread_mutex_unlock(&adapter->lock);
	if (object && !object->closing)
		adapter_tell(adapter, event->event, object_header(object), event->reason);
	free(event);
}

void adapter_async_event(struct adapter *adapter, const struct shm_async *async)
{
	struct event_call *event;

	if (async->event == SHM_ASYNC_SRQ_LIMIT) {
		srq_limit_reached(adapter, async);
		return;
	}
	event = calloc(1, sizeof(*event));
	if (!event)
		return; /* completions and statuses tell of the same failure */
	event->call.run = event_run;
	event->adapter = adapter;
	event->handle = async->object;
	event->event = (ORIEL_EVENT)async->event;
	event->reason = async->value;
	event->type = async->event == SHM_ASYNC_CQ_ERROR ? NdkObjectTypeCq : NdkObjectTypeQp;
	call_queue(adapter, &event->call);
}

const NDK_ADAPTER_DISPATCH adapter_dispatch = {
	.NdkQueryExtension = query_extension,
	.NdkQueryAdapterInfo = adapter_query_info,
	.NdkCreateCq = cq_create,
	.NdkCreatePd = pd_create,
	.NdkCreateSharedEndpoint = shared_endpoint_create,
	.NdkCreateConnector = connector_create,
	.NdkCreateListener = listener_create,
	.NdkBuildLAM = lam_create,
	.NdkReleaseLAM = lam_release,
};
