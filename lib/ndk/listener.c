/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners, and the connectors that connect requests make. */
#include <stdlib.h>

#include "ndk/connection.h"

_Static_assert(offsetof(struct listener, object) == sizeof(NDK_LISTENER), "listener");

static struct listener *listener_of(NDK_LISTENER *ndk)
{
	return (struct listener *)ndk;
}

NTSTATUS listener_create(NDK_ADAPTER *ndk, NDK_FN_CONNECT_EVENT_CALLBACK event, PVOID event_context,
			 NDK_FN_CREATE_COMPLETION completion, PVOID context,
			 NDK_LISTENER **pplistener)
{
	struct shm_request message = { .op = SHM_OP_CREATE_LISTENER };
	struct object *object;
	struct listener *listener;

	if (!event)
		return STATUS_INVALID_PARAMETER;
	object = object_allocate(adapter_of(ndk), sizeof(struct listener), NdkObjectTypeListener,
				 &listener_dispatch, NULL);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	listener = container_of(object, struct listener, object);
	listener->event = event;
	listener->event_context = event_context;
	/* Closing it refuses new requests at once, whatever connectors there are. */
	object->close_early = true;
	return object_create(object, &message, NULL, completion, context);
}

static void listen_finish(struct request *request, const struct shm_reply *reply)
{
	struct listener *listener = container_of(request->object, struct listener, object);

	if (NT_SUCCESS(request->status)) {
		listener->listening = true;
		listener->address = reply->connection.local;
	} else {
		listener->asked = false;
	}
}

static NTSTATUS listen_in(struct listener *listener, uint32_t space, const PSOCKADDR address,
			  ULONG length, NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct adapter *adapter = listener->object.adapter;
	struct shm_request message = { .op = SHM_OP_LISTEN };
	struct request *request;
	NTSTATUS status;

	message.listen.object = listener->object.handle;
	message.listen.space = space;
	status = address_from_sockaddr(address, length, &message.listen.address);
	if (status != STATUS_SUCCESS)
		return status;
	request = request_create(REQUEST_ASYNC, &listener->object, listen_finish);
	if (!request)
		return STATUS_INSUFFICIENT_RESOURCES;
	request->completion.async = completion;
	request->context = context;
	pthread_mutex_lock(&adapter->lock);
	status = listener->asked ? STATUS_ADDRESS_ALREADY_ASSOCIATED
				 : request_send(adapter, request, &message);
	if (status == STATUS_PENDING)
		listener->asked = true;
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		free(request);
	return status;
}

static NTSTATUS listener_listen(NDK_LISTENER *ndk, const PSOCKADDR address, ULONG length,
				NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	return listen_in(listener_of(ndk), SHM_SPACE_TCP, address, length, completion, context);
}

NTSTATUS OrielListenDatagram(NDK_LISTENER *pNdkListener, const PSOCKADDR pAddress,
			     ULONG AddressLength, NDK_FN_REQUEST_COMPLETION RequestCompletion,
			     PVOID RequestContext)
{
	return listen_in(listener_of(pNdkListener), SHM_SPACE_UDP, pAddress, AddressLength,
			 RequestCompletion, RequestContext);
}

static NTSTATUS listener_local_address(NDK_LISTENER *ndk, PSOCKADDR address, ULONG *length)
{
	struct listener *listener = listener_of(ndk);
	struct adapter *adapter = listener->object.adapter;
	NTSTATUS status = STATUS_INVALID_DEVICE_STATE;

	pthread_mutex_lock(&adapter->lock);
	if (listener->listening)
		status = address_give(&listener->address, address, length);
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

static void listener_control_events(NDK_LISTENER *ndk, BOOLEAN pause)
{
	struct listener *listener = listener_of(ndk);
	struct shm_request message = { .op = SHM_OP_CONTROL_CONNECT_EVENTS,
				       .object = { .object = listener->object.handle,
						   .value = pause ? 1 : 0 } };
	struct request *request = request_create(REQUEST_SILENT, &listener->object, NULL);

	/* It has no way to fail; without memory events go on as they are. */
	if (request)
		request_send_async(listener->object.adapter, request, &message, NULL, NULL);
}

/* --- connect events --------------------------------------------------------------------------- */

static void arrived_run(struct call *call)
{
	struct connector *connector = container_of(call, struct connector, arrived_call);
	struct adapter *adapter = connector->object.adapter;
	struct object *needed = connector->object.needs[CONNECTOR_NEEDS_LISTENER];
	struct listener *listener = container_of(needed, struct listener, object);
	bool tell;

	pthread_mutex_lock(&adapter->lock);
	tell = !needed->closing && !adapter->closing && !connector->object.closing;
	if (!tell)
		object_close_silently(&connector->object); /* rejects it */
	pthread_mutex_unlock(&adapter->lock);
	if (tell)
		listener->event(listener->event_context, &connector->ndk);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

void connector_arrived(struct adapter *adapter, const struct shm_connection *connection)
{
	const struct shm_limits *limits = &adapter->session->limits;
	struct object *listener = object_find(adapter, connection->listener, NdkObjectTypeListener);
	struct object *object = NULL;
	struct connector *connector;

	if (listener && !listener->closing)
		object = connector_allocate(adapter);
	if (!object) {
		object_forget(adapter, connection->connector); /* rejects it */
		return;
	}
	object_add(object);
	object_set_handle(object, connection->connector);
	object_need(object, CONNECTOR_NEEDS_LISTENER, listener);
	connector = container_of(object, struct connector, object);
	connector->state = CONNECTOR_INCOMING;
	connector->peer = *connection;
	connector->peer.inbound_read_limit =
		smaller(connection->inbound_read_limit, limits->max_inbound_read_limit);
	connector->peer.outbound_read_limit =
		smaller(connection->outbound_read_limit, limits->max_outbound_read_limit);
	connector->has_data = true;
	connector->arrived_call.run = arrived_run;
	call_queue(adapter, &connector->arrived_call);
}

const NDK_LISTENER_DISPATCH listener_dispatch = {
	.NdkCloseListener = object_close,
	.NdkQueryExtension = query_extension,
	.NdkListen = listener_listen,
	.NdkGetLocalAddress = listener_local_address,
	.NdkControlConnectEvents = listener_control_events,
};
