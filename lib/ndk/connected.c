/* SPDX-License-Identifier: BSD-3-Clause */
/* Connectors that have a peer: what it sent, where it is, and the end of the connection. */
#include <stdlib.h>
#include <string.h>

#include "ndk/connection.h"
#include "ndk/queue.h"

static struct connector *connector_of(NDK_CONNECTOR *ndk)
{
	return (struct connector *)ndk;
}

/* --- what the peer sent ------------------------------------------------------------------ */

static NTSTATUS copy_private_data(const struct shm_connection *peer, void *data, ULONG *length)
{
	ULONG needed =
		peer->private_length < SHM_PRIVATE_DATA ? peer->private_length : SHM_PRIVATE_DATA;
	ULONG room = *length;

	if (!data && room)
		return STATUS_INVALID_PARAMETER;
	*length = needed;
	if (!data)
		return STATUS_SUCCESS; /* NdkGetConnectionData: NULL and 0 ask for the size */
	memcpy(data, peer->private_data, room < needed ? room : needed);
	return room < needed ? STATUS_BUFFER_TOO_SMALL : STATUS_SUCCESS;
}

NTSTATUS connector_get_data(NDK_CONNECTOR *ndk, ULONG *inbound, ULONG *outbound, PVOID data,
			    ULONG *length)
{
	struct connector *connector = connector_of(ndk);
	struct adapter *adapter = connector->object.adapter;
	NTSTATUS status = STATUS_CONNECTION_INVALID;

	pthread_mutex_lock(&adapter->lock);
	if (connector->has_data) {
		if (inbound)
			*inbound = connector->peer.inbound_read_limit;
		if (outbound)
			*outbound = connector->peer.outbound_read_limit;
		status = copy_private_data(&connector->peer, data, length);
	}
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

static NTSTATUS give_address(struct connector *connector, const struct shm_address *address,
			     struct sockaddr *to, ULONG *length)
{
	struct adapter *adapter = connector->object.adapter;
	NTSTATUS status = STATUS_CONNECTION_INVALID;

	pthread_mutex_lock(&adapter->lock);
	if (connector->has_data)
		status = address_give(address, to, length);
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

NTSTATUS connector_local_address(NDK_CONNECTOR *ndk, PSOCKADDR address, ULONG *length)
{
	return give_address(connector_of(ndk), &connector_of(ndk)->peer.local, address, length);
}

NTSTATUS connector_peer_address(NDK_CONNECTOR *ndk, PSOCKADDR address, ULONG *length)
{
	return give_address(connector_of(ndk), &connector_of(ndk)->peer.remote, address, length);
}

/* --- the peer goes ---------------------------------------------------------------------------- */

static void disconnect_run(struct call *call)
{
	struct connector *connector = container_of(call, struct connector, disconnect_call);
	struct adapter *adapter = connector->object.adapter;
	bool closing;

	pthread_mutex_lock(&adapter->lock);
	closing = connector->object.closing;
	pthread_mutex_unlock(&adapter->lock);
	if (closing)
		return;
	if (connector->disconnect_ex)
		connector->disconnect_ex(connector->disconnect_context, connector->reason);
	else if (connector->disconnect)
		connector->disconnect(connector->disconnect_context);
}

/* At most once per connection. The queues are left alone (NdkDisconnect remarks). */
static void peer_gone(struct connector *connector, uint32_t reason)
{
	if (connector->told || connector->object.closing)
		return;
	connector->told = true;
	connector->reason = reason;
	if (connector->state == CONNECTOR_CONNECTED)
		connector->state = CONNECTOR_DISCONNECTED;
	connector->disconnect_call.run = disconnect_run;
	call_queue(connector->object.adapter, &connector->disconnect_call);
}

void connector_disconnected(struct adapter *adapter, const struct shm_async *async)
{
	struct object *object = object_find(adapter, async->object, NdkObjectTypeConnector);

	if (object)
		peer_gone(container_of(object, struct connector, object), async->value);
}

void connector_disconnect_all(struct adapter *adapter)
{
	for (struct object *object = adapter->first_object; object; object = object->next) {
		struct connector *connector = container_of(object, struct connector, object);

		if (object->type == NdkObjectTypeConnector &&
		    connector->state == CONNECTOR_CONNECTED)
			peer_gone(connector, 0);
	}
}

/* --- we go --------------------------------------------------------------------------- */

/* Either way the connection is over, and its queue pair of no more use. */
static void disconnect_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);
	struct object *qp = connector->object.needs[CONNECTOR_NEEDS_QP];

	connector->state = CONNECTOR_CLOSED;
	if (qp)
		qp_set_link(container_of(qp, struct qp, object), QP_UNCONNECTED);
}

NTSTATUS connector_disconnect(NDK_CONNECTOR *ndk, NDK_FN_REQUEST_COMPLETION completion,
			      PVOID context)
{
	struct connector *connector = connector_of(ndk);
	struct adapter *adapter = connector->object.adapter;
	struct shm_request message = { .op = SHM_OP_DISCONNECT,
				       .object = { .object = connector->object.handle } };
	struct request *request =
		request_create(REQUEST_ASYNC, &connector->object, disconnect_finish);
	NTSTATUS status;

	if (!request)
		return STATUS_INSUFFICIENT_RESOURCES;
	request->completion.async = completion;
	request->context = context;
	pthread_mutex_lock(&adapter->lock);
	if (connector->state == CONNECTOR_CONNECTED || connector->state == CONNECTOR_DISCONNECTED)
		status = request_send(adapter, request, &message);
	else
		status = STATUS_CONNECTION_INVALID;
	if (status == STATUS_PENDING)
		connector->state = CONNECTOR_DISCONNECTING;
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		free(request);
	return status;
}
