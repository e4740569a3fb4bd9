/* SPDX-License-Identifier: BSD-3-Clause */
/* Connectors: connect, complete, accept, reject. */
#include <stdlib.h>
#include <string.h>

#include "ndk/connection.h"
#include "ndk/queue.h"

_Static_assert(offsetof(struct connector, object) == sizeof(NDK_CONNECTOR), "connector");

static struct connector *connector_of(NDK_CONNECTOR *ndk)
{
	return (struct connector *)ndk;
}

static struct qp *connector_qp(const struct connector *connector)
{
	struct object *object = connector->object.needs[CONNECTOR_NEEDS_QP];

	return object ? container_of(object, struct qp, object) : NULL;
}

static void connector_destroy(struct object *object)
{
	struct connector *connector = container_of(object, struct connector, object);

	switch (connector->state) {
	case CONNECTOR_ACCEPTING:
	case CONNECTOR_CONNECTED:
	case CONNECTOR_DISCONNECTED:
	case CONNECTOR_DISCONNECTING: qp_set_link(connector_qp(connector), QP_UNCONNECTED); break;
	default: break; /* the queue pair is not this one's to disconnect */
	}
}

struct object *connector_allocate(struct adapter *adapter)
{
	struct object *object =
		object_allocate(adapter, sizeof(struct connector), NdkObjectTypeConnector,
				&connector_dispatch, connector_destroy);
	struct connector *connector;

	if (!object)
		return NULL;
	connector = container_of(object, struct connector, object);
	connector->reject.kind = REQUEST_SILENT;
	connector->reject.embedded = true;
	connector->reject.object = object;
	connector->reject.fd = -1;
	return object;
}

NTSTATUS connector_create(NDK_ADAPTER *ndk, NDK_FN_CREATE_COMPLETION completion, PVOID context,
			  NDK_CONNECTOR **ppconnector)
{
	struct shm_request message = { .op = SHM_OP_CREATE_CONNECTOR };
	struct object *object = connector_allocate(adapter_of(ndk));

	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	return object_create(object, &message, NULL, completion, context);
}

/* --- steps that the requests share -------------------------------------------------------- */

NTSTATUS connector_take_private(struct shm_connect *connect, const void *data, uint32_t length,
				uint32_t most)
{
	if (length > most || length > sizeof(connect->private_data))
		return STATUS_INVALID_BUFFER_SIZE;
	if (length && !data)
		return STATUS_INVALID_PARAMETER;
	connect->private_length = length;
	if (length)
		memcpy(connect->private_data, data, length);
	return STATUS_SUCCESS;
}

static void connector_tie(struct connector *connector, const struct connector_ties *ties,
			  enum connector_state to)
{
	struct object *object = &connector->object;

	if (ties->qp) {
		object_drop_need(object, CONNECTOR_NEEDS_QP);
		object_need(object, CONNECTOR_NEEDS_QP, &ties->qp->object);
		if (to == CONNECTOR_ACCEPTING && ties->qp->link == QP_UNCONNECTED)
			qp_set_link(ties->qp, QP_ACCEPTING);
	}
	if (to == CONNECTOR_CONNECTING)
		object_drop_need(object, CONNECTOR_NEEDS_ENDPOINT);
	if (ties->endpoint)
		object_need(object, CONNECTOR_NEEDS_ENDPOINT, ties->endpoint);
}

/* Sends a request that brings a connector from one state to the next. Takes the request. */
NTSTATUS connector_advance(struct connector *connector, const struct connector_ties *ties,
			   enum connector_state from, enum connector_state to, NTSTATUS otherwise,
			   struct request *request, struct shm_request *message)
{
	struct adapter *adapter = connector->object.adapter;
	NTSTATUS status;

	if (!request)
		return STATUS_INSUFFICIENT_RESOURCES;
	pthread_mutex_lock(&adapter->lock);
	status = connector->state == from ? request_send(adapter, request, message) : otherwise;
	if (status == STATUS_PENDING) {
		connector->state = to;
		connector_tie(connector, ties, to);
	}
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		free(request);
	return status;
}

struct request *connector_request(struct connector *connector, request_finisher *finish,
				  NDK_FN_REQUEST_COMPLETION completion, void *context)
{
	struct request *request = request_create(REQUEST_ASYNC, &connector->object, finish);

	if (request) {
		request->completion.async = completion;
		request->context = context;
	}
	return request;
}

/* --- active side ------------------------------------------------------------------------------ */

/* After a refusal the data of the peer's reject can be read; whether the connector can be used
 * again is the daemon's to say. */
static void connect_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);
	bool replied = NT_SUCCESS(request->status);

	connector->state = replied ? CONNECTOR_REPLIED : CONNECTOR_IDLE;
	if (replied || request->status == STATUS_CONNECTION_REFUSED) {
		connector->peer = reply->connection;
		connector->has_data = true;
	}
}

/* `message` has the local end already: an address, or what shares one. */
static NTSTATUS connect_to(struct connector *connector, const struct connector_ties *ties,
			   const struct sockaddr *destination, ULONG destination_length,
			   const void *private_data, ULONG private_length,
			   struct shm_request *message, NDK_FN_REQUEST_COMPLETION completion,
			   PVOID context)
{
	const struct shm_limits *limits = &connector->object.adapter->session->limits;
	struct shm_connect *want = &message->connect;
	NTSTATUS status;

	message->op = SHM_OP_CONNECT;
	want->connector = connector->object.handle;
	want->qp = ties->qp->object.handle;
	status = ties->qp->type == SHM_QP_RC ? STATUS_SUCCESS : STATUS_NOT_SUPPORTED;
	if (status == STATUS_SUCCESS)
		status = connector_take_private(want, private_data, private_length,
						limits->max_caller_data);
	if (status == STATUS_SUCCESS)
		status = address_from_sockaddr(destination, destination_length, &want->remote);
	if (status != STATUS_SUCCESS)
		return status;
	return connector_advance(
		connector, ties, CONNECTOR_IDLE, CONNECTOR_CONNECTING, STATUS_CONNECTION_ACTIVE,
		connector_request(connector, connect_finish, completion, context), message);
}

static NTSTATUS connector_connect(NDK_CONNECTOR *ndk, NDK_QP *qp, const PSOCKADDR source,
				  ULONG source_length, const PSOCKADDR destination,
				  ULONG destination_length, ULONG inbound, ULONG outbound,
				  const PVOID private_data, ULONG private_length,
				  NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	const struct connector_ties ties = { .qp = qp_of(qp) };
	struct shm_request message = { .connect = { .inbound_read_limit = inbound,
						    .outbound_read_limit = outbound } };
	NTSTATUS status = address_from_sockaddr(source, source_length, &message.connect.local);

	if (status != STATUS_SUCCESS)
		return status;
	return connect_to(connector_of(ndk), &ties, destination, destination_length, private_data,
			  private_length, &message, completion, context);
}

static NTSTATUS connector_connect_shared(NDK_CONNECTOR *ndk, NDK_QP *qp,
					 NDK_SHARED_ENDPOINT *endpoint, const PSOCKADDR destination,
					 ULONG destination_length, ULONG inbound, ULONG outbound,
					 const PVOID private_data, ULONG private_length,
					 NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	const struct connector_ties ties = { .qp = qp_of(qp),
					     .endpoint = object_of(&endpoint->Header) };
	struct shm_request message = { .connect = { .shared_endpoint = ties.endpoint->handle,
						    .inbound_read_limit = inbound,
						    .outbound_read_limit = outbound } };

	return connect_to(connector_of(ndk), &ties, destination, destination_length, private_data,
			  private_length, &message, completion, context);
}

static const struct connector_ties no_ties;

static void complete_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);

	if (!NT_SUCCESS(request->status)) {
		connector->state = CONNECTOR_CLOSED;
		return;
	}
	connector->state = CONNECTOR_CONNECTED;
	qp_set_link(connector_qp(connector), QP_CONNECTED);
}

static NTSTATUS complete_connect(struct connector *connector,
				 NDK_FN_DISCONNECT_EVENT_CALLBACK disconnect,
				 NDK_FN_DISCONNECT_EVENT_CALLBACK_EX disconnect_ex,
				 PVOID disconnect_context, NDK_FN_REQUEST_COMPLETION completion,
				 PVOID context)
{
	struct shm_request message = { .op = SHM_OP_COMPLETE_CONNECT,
				       .object = { .object = connector->object.handle } };

	connector->disconnect = disconnect;
	connector->disconnect_ex = disconnect_ex;
	connector->disconnect_context = disconnect_context;
	return connector_advance(connector, &no_ties, CONNECTOR_REPLIED, CONNECTOR_COMPLETING,
				 STATUS_CONNECTION_INVALID,
				 connector_request(connector, complete_finish, completion, context),
				 &message);
}

static NTSTATUS connector_complete(NDK_CONNECTOR *ndk, NDK_FN_DISCONNECT_EVENT_CALLBACK disconnect,
				   PVOID disconnect_context, NDK_FN_REQUEST_COMPLETION completion,
				   PVOID context)
{
	return complete_connect(connector_of(ndk), disconnect, NULL, disconnect_context, completion,
				context);
}

static NTSTATUS connector_complete_ex(NDK_CONNECTOR *ndk,
				      NDK_FN_DISCONNECT_EVENT_CALLBACK_EX disconnect,
				      PVOID disconnect_context,
				      NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	return complete_connect(connector_of(ndk), NULL, disconnect, disconnect_context, completion,
				context);
}

/* --- passive side -------------------------------------------------------------------- */

/* What the daemon refuses without having asked the peer can be tried again. */
static bool ends_connector(NTSTATUS status)
{
	switch (status) {
	case STATUS_CONNECTION_ACTIVE:
	case STATUS_INVALID_HANDLE:
	case STATUS_NOT_SUPPORTED:
	case STATUS_INVALID_BUFFER_SIZE:
	case STATUS_NETWORK_UNREACHABLE: return false;
	default: return true;
	}
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void accept_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);
	struct shm_connection *peer = &connector->peer;
	struct qp *qp = connector_qp(connector);

	if (NT_SUCCESS(request->status)) {
		connector->state = CONNECTOR_CONNECTED;
		peer->inbound_read_limit = smaller(peer->inbound_read_limit, connector->inbound);
		peer->outbound_read_limit = smaller(peer->outbound_read_limit, connector->outbound);
		qp_set_link(qp, QP_CONNECTED);
	} else if (ends_connector(request->status)) {
		connector->state = CONNECTOR_CLOSED;
		qp_set_link(qp, QP_UNCONNECTED);
	} else {
		connector->state = CONNECTOR_INCOMING;
		/* The queue pair may be another connector's. */
		if (qp->link == QP_ACCEPTING)
			qp_set_link(qp, QP_UNCONNECTED);
		object_drop_need(&connector->object, CONNECTOR_NEEDS_QP);
	}
}

static NTSTATUS accept_connection(struct connector *connector, NDK_QP *ndk_qp, ULONG inbound,
				  ULONG outbound, const void *private_data, ULONG private_length,
				  struct request *request)
{
	const struct shm_limits *limits = &connector->object.adapter->session->limits;
	struct qp *qp = qp_of(ndk_qp);
	const struct connector_ties ties = { .qp = qp };
	struct shm_request message = { .op = SHM_OP_ACCEPT };
	NTSTATUS status = STATUS_SUCCESS;

	message.connect = (struct shm_connect){ .connector = connector->object.handle,
						.qp = qp->object.handle,
						.inbound_read_limit = inbound,
						.outbound_read_limit = outbound };
	if (connector->peer.datagram)
		status = STATUS_CONNECTION_INVALID;
	else if (qp->type != SHM_QP_RC)
		status = STATUS_NOT_SUPPORTED;
	if (status == STATUS_SUCCESS)
		status = connector_take_private(&message.connect, private_data, private_length,
						limits->max_callee_data);
	if (status != STATUS_SUCCESS) {
		free(request);
		return status;
	}
	connector->inbound = inbound;
	connector->outbound = outbound;
	return connector_advance(connector, &ties, CONNECTOR_INCOMING, CONNECTOR_ACCEPTING,
				 STATUS_CONNECTION_INVALID, request, &message);
}

static NTSTATUS connector_accept(NDK_CONNECTOR *ndk, NDK_QP *qp, ULONG inbound, ULONG outbound,
				 const PVOID private_data, ULONG private_length,
				 NDK_FN_DISCONNECT_EVENT_CALLBACK disconnect,
				 PVOID disconnect_context, NDK_FN_REQUEST_COMPLETION completion,
				 PVOID context)
{
	struct connector *connector = connector_of(ndk);

	connector->disconnect = disconnect;
	connector->disconnect_ex = NULL;
	connector->disconnect_context = disconnect_context;
	return accept_connection(connector, qp, inbound, outbound, private_data, private_length,
				 connector_request(connector, accept_finish, completion, context));
}

static NTSTATUS connector_accept_ex(NDK_CONNECTOR *ndk, NDK_QP *qp, ULONG inbound, ULONG outbound,
				    const PVOID private_data, ULONG private_length,
				    NDK_FN_DISCONNECT_EVENT_CALLBACK_EX disconnect,
				    PVOID disconnect_context, NDK_FN_REQUEST_COMPLETION completion,
				    PVOID context)
{
	struct connector *connector = connector_of(ndk);

	connector->disconnect = NULL;
	connector->disconnect_ex = disconnect;
	connector->disconnect_context = disconnect_context;
	return accept_connection(connector, qp, inbound, outbound, private_data, private_length,
				 connector_request(connector, accept_finish, completion, context));
}

/* --- both ---------------------------------------------------------------------------- */

static NTSTATUS connector_reject(NDK_CONNECTOR *ndk, const PVOID private_data, ULONG private_length)
{
	struct connector *connector = connector_of(ndk);
	struct adapter *adapter = connector->object.adapter;
	struct shm_request message = { .op = SHM_OP_REJECT };
	NTSTATUS status;

	message.connect.connector = connector->object.handle;
	status = connector_take_private(&message.connect, private_data, private_length,
					adapter->session->limits.max_callee_data);
	if (status != STATUS_SUCCESS)
		return status;
	pthread_mutex_lock(&adapter->lock);
	if (connector->state == CONNECTOR_INCOMING || connector->state == CONNECTOR_REPLIED)
		status = request_send(adapter, &connector->reject, &message);
	else
		status = connector->has_data && connector->state == CONNECTOR_CLOSED
				 ? STATUS_CONNECTION_ABORTED
				 : STATUS_CONNECTION_INVALID;
	if (status == STATUS_PENDING) {
		connector->state = CONNECTOR_CLOSED;
		status = STATUS_SUCCESS;
	}
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

const NDK_CONNECTOR_DISPATCH connector_dispatch = {
	.NdkCloseConnector = object_close,
	.NdkQueryExtension = query_extension,
	.NdkConnect = connector_connect,
	.NdkConnectWithSharedEndpoint = connector_connect_shared,
	.NdkCompleteConnect = connector_complete,
	.NdkAccept = connector_accept,
	.NdkReject = connector_reject,
	.NdkGetConnectionData = connector_get_data,
	.NdkGetLocalAddress = connector_local_address,
	.NdkGetPeerAddress = connector_peer_address,
	.NdkDisconnect = connector_disconnect,
	.NdkCompleteConnectEx = connector_complete_ex,
	.NdkAcceptEx = connector_accept_ex,
};
