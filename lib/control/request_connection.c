/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests about listeners and connectors. */
#include <errno.h>
#include <string.h>

#include "control/control_private.h"

#define ACK_TIMEOUT 15u /* code: 134 ms */

static struct object *find_connector(struct control *control, uint32_t session, uint32_t handle)
{
	return object_find(control, session, handle, OBJECT_TYPE_CONNECTOR);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int32_t request_create_connector(struct control *control, uint32_t session,
				 const struct shm_request *request, struct shm_reply *reply)
{
	struct object *object = object_create(control, session, OBJECT_TYPE_CONNECTOR);

	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	reply->created.handle = object_handle(control, object);
	return NT_SUCCESS_STATUS;
}

int32_t request_create_listener(struct control *control, uint32_t session,
				const struct shm_request *request, struct shm_reply *reply)
{
	struct object *object = object_create(control, session, OBJECT_TYPE_LISTENER);

	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	reply->created.handle = object_handle(control, object);
	return NT_SUCCESS_STATUS;
}

/* An address that nobody has; port 0 takes a free one. */
static int32_t take_address(struct control *control, enum cm_port_space space,
			    struct shm_address *address)
{
	if (address->port == 0)
		return endpoint_choose_port(control, space, connection_draw_psn(), address)
			       ? NT_SUCCESS_STATUS
			       : NT_TOO_MANY_ADDRESSES;
	return endpoint_is_free(control, space, address) ? NT_SUCCESS_STATUS : NT_SHARING_VIOLATION;
}

int32_t request_listen(struct control *control, uint32_t session, const struct shm_request *request,
		       struct shm_reply *reply)
{
	static const uint8_t any4[16] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t any[16];
	struct object *listener =
		object_find(control, session, request->listen.object, OBJECT_TYPE_LISTENER);
	const enum cm_port_space space =
		request->listen.space == SHM_SPACE_UDP ? CM_PS_UDP : CM_PS_TCP;
	struct shm_address address = request->listen.address;
	int32_t status;

	if (!listener)
		return NT_INVALID_HANDLE;
	if (listener->index)
		return NT_INVALID_DEVICE_STATE;
	/* A wildcard of either family listens on all addresses of the data plane. */
	if (!memcmp(address.gid, any4, 16))
		memset(address.gid, 0, 16);
	if (memcmp(address.gid, any, 16) != 0 && net_find_address(control->net, address.gid) < 0)
		return NT_INVALID_ADDRESS;
	status = take_address(control, space, &address);
	if (status != NT_SUCCESS_STATUS)
		return status;
	if (cm_listen(control->cm, space, address.gid, address.port,
		      object_index(control, listener), &listener->index)) {
		listener->index = 0;
		return NT_INSUFFICIENT_RESOURCES;
	}
	listener->connector.local = address;
	endpoint_hold(control, listener, space);
	reply->connection.local = address;
	return NT_SUCCESS_STATUS;
}

int32_t request_create_endpoint(struct control *control, uint32_t session,
				const struct shm_request *request, struct shm_reply *reply)
{
	struct shm_address address = request->listen.address;
	struct object *endpoint;
	int32_t status;

	if (net_find_address(control->net, address.gid) < 0)
		return NT_INVALID_ADDRESS;
	status = take_address(control, CM_PS_TCP, &address);
	if (status != NT_SUCCESS_STATUS)
		return status;
	endpoint = object_create(control, session, OBJECT_TYPE_ENDPOINT);
	if (!endpoint)
		return NT_INSUFFICIENT_RESOURCES;
	endpoint->connector.local = address;
	endpoint_hold(control, endpoint, CM_PS_TCP);
	reply->created.handle = object_handle(control, endpoint);
	reply->created.number = address.port;
	return NT_SUCCESS_STATUS;
}

int32_t request_control_events(struct control *control, uint32_t session,
			       const struct shm_request *request, struct shm_reply *reply)
{
	struct object *listener =
		object_find(control, session, request->object.object, OBJECT_TYPE_LISTENER);

	if (!listener)
		return NT_INVALID_HANDLE;
	if (!listener->index)
		return NT_INVALID_DEVICE_STATE;
	cm_pause(control->cm, listener->index, request->object.value != 0);
	return NT_SUCCESS_STATUS;
}

/* One queue pair, one connection: from the request on the connector needs the queue pair. */
static int32_t take_qp(struct control *control, uint32_t session, struct object *connector,
		       uint32_t handle)
{
	struct object *qp = object_find(control, session, handle, OBJECT_TYPE_QP);
	struct object_local *local;
	struct qp_status status;

	if (!qp || !qp_get_status(control->shared, qp->index, &status))
		return NT_INVALID_HANDLE;
	if (status.type != SHM_QP_RC)
		return NT_NOT_SUPPORTED;
	local = &control->object_local[object_index(control, qp)];
	if (local->connector || qp->pending_id || status.state != QP_RESET)
		return NT_CONNECTION_ACTIVE;
	local->connector = object_index(control, connector);
	object_need(control, connector, 0, qp);
	return NT_SUCCESS_STATUS;
}

static void give_qp_back(struct control *control, struct object *connector)
{
	struct object *qp = object_at(control, connector->needs[0]);

	control->object_local[connector->needs[0]].connector = 0;
	connector->needs[0] = 0;
	if (--qp->users == 0 && qp->close_id)
		close_continue(control, qp);
}

/* The request's limits, capped in silence to ours (NdkConnect, NdkAccept remarks). */
static void cap_limits(const struct control *control, const struct shm_connect *want,
		       uint32_t *inbound, uint32_t *outbound)
{
	*inbound = smaller(want->inbound_read_limit, control->limits.max_inbound_read_limit);
	*outbound = smaller(want->outbound_read_limit, control->limits.max_outbound_read_limit);
}

static bool keep_private_data(struct connector *c, const struct shm_connect *want, uint32_t most)
{
	if (want->private_length > most)
		return false;
	memset(c->private_data, 0, sizeof(c->private_data));
	memcpy(c->private_data, want->private_data, want->private_length);
	c->private_length = (uint8_t)want->private_length;
	return true;
}

/* The local end: a shared endpoint's address, or one that is the connector's alone. */
static int32_t take_local(struct control *control, uint32_t session, struct object *connector,
			  const struct shm_connect *want)
{
	struct connector *c = &connector->connector;
	struct object *endpoint;

	c->remote = want->remote;
	if (!want->shared_endpoint) {
		c->local = want->local;
		if (net_find_address(control->net, c->local.gid) < 0)
			return NT_INVALID_ADDRESS;
		return take_address(control, CM_PS_TCP, &c->local);
	}
	endpoint = object_find(control, session, want->shared_endpoint, OBJECT_TYPE_ENDPOINT);
	if (!endpoint)
		return NT_INVALID_HANDLE;
	c->local = endpoint->connector.local;
	return endpoint_has_peer(control, endpoint, &c->remote) ? NT_ADDRESS_ALREADY_EXISTS
								: NT_SUCCESS_STATUS;
}

static void keep_local(struct control *control, uint32_t session, struct object *connector,
		       const struct shm_connect *want)
{
	struct object *endpoint =
		object_find(control, session, want->shared_endpoint, OBJECT_TYPE_ENDPOINT);

	if (endpoint)
		object_need(control, connector, CONNECTOR_NEEDS_ENDPOINT, endpoint);
	endpoint_hold(control, connector, CM_PS_TCP);
}

static void give_local_back(struct control *control, struct object *connector)
{
	struct object *endpoint = object_at(control, connector->needs[CONNECTOR_NEEDS_ENDPOINT]);

	endpoint_release(control, connector);
	if (!connector->needs[CONNECTOR_NEEDS_ENDPOINT])
		return;
	connector->needs[CONNECTOR_NEEDS_ENDPOINT] = 0;
	if (--endpoint->users == 0 && endpoint->close_id)
		close_continue(control, endpoint);
}

/*
 * NdkConnect remarks: refusals, silence and peers that cannot be reached may be tried again. Queue
 * pair and address were the connector's until here.
 */
static bool may_connect(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;

	if (connector->pending_id || (c->state != CONNECTOR_IDLE && c->state != CONNECTOR_FAILED))
		return false;
	if (c->state == CONNECTOR_IDLE)
		return true;
	if (c->connection) {
		control->connection_object[c->connection] = 0;
		cm_release(control->cm, c->connection, control->now);
		c->connection = 0;
	}
	if (connector->needs[CONNECTOR_NEEDS_QP])
		give_qp_back(control, connector);
	if (!c->datagram)
		give_local_back(control, connector);
	c->state = CONNECTOR_IDLE;
	return true;
}

/* Looks for the way to the peer; where there is none the connector is as it was. */
static int32_t start_resolution(struct control *control, struct object *connector,
				const struct shm_request *request)
{
	int32_t status;

	connector->pending_op = request->op;
	connector->pending_id = request->id;
	status = connection_resolve(control, connector);
	if (status != NT_PENDING) {
		connector->pending_id = 0;
		connector->connector.state = CONNECTOR_IDLE;
	}
	return status;
}

int32_t request_connect(struct control *control, uint32_t session,
			const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_connect *want = &request->connect;
	struct object *connector = find_connector(control, session, want->connector);
	struct connector *c;
	int32_t status;
	int port;

	if (!connector)
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if (!may_connect(control, connector))
		return NT_CONNECTION_ACTIVE;
	if (!keep_private_data(c, want, 56))
		return NT_INVALID_BUFFER_SIZE;
	c->datagram = 0;
	status = take_local(control, session, connector, want);
	if (status != NT_SUCCESS_STATUS)
		return status;
	port = net_find_address(control->net, c->local.gid);
	if (port < 0)
		return NT_INVALID_ADDRESS;
	status = take_qp(control, session, connector, want->qp);
	if (status != NT_SUCCESS_STATUS)
		return status;
	keep_local(control, session, connector, want);
	cap_limits(control, want, &c->inbound, &c->outbound);
	c->hop_limit = 64;
	c->path_mtu = net_port_path_mtu(control->net, (unsigned int)port);
	c->receive_psn = connection_draw_psn();
	c->timeout = ACK_TIMEOUT;
	c->retry_count = 7;
	c->rnr_retry = 7;
	status = start_resolution(control, connector, request);
	if (status != NT_PENDING) {
		give_qp_back(control, connector);
		give_local_back(control, connector);
	}
	return status;
}

int32_t request_resolve_datagram(struct control *control, uint32_t session,
				 const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_connect *want = &request->connect;
	struct object *connector = find_connector(control, session, want->connector);
	struct connector *c;

	if (!connector)
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if (!may_connect(control, connector))
		return NT_CONNECTION_ACTIVE;
	if (net_find_address(control->net, want->local.gid) < 0)
		return NT_INVALID_ADDRESS;
	if (!gid_is_unicast(want->remote.gid))
		return NT_NOT_SUPPORTED;
	if (!keep_private_data(c, want, CM_SIDR_REQ_PRIVATE - CMA_HEADER_SIZE))
		return NT_INVALID_BUFFER_SIZE;
	c->local = want->local;
	c->remote = want->remote;
	if (c->local.port == 0 &&
	    !endpoint_choose_port(control, CM_PS_UDP, connection_draw_psn(), &c->local))
		return NT_TOO_MANY_ADDRESSES;
	c->hop_limit = 64;
	c->datagram = 1;
	return start_resolution(control, connector, request);
}

int32_t request_complete_connect(struct control *control, uint32_t session,
				 const struct shm_request *request, struct shm_reply *reply)
{
	struct object *connector = find_connector(control, session, request->object.object);

	if (!connector)
		return NT_INVALID_HANDLE;
	if (connector->connector.state == CONNECTOR_DISCONNECTED)
		return NT_CONNECTION_ABORTED;
	if (connector->connector.state != CONNECTOR_REPLIED || connector->pending_id)
		return NT_CONNECTION_INVALID;
	if (connection_prepare(control, connector))
		return NT_HOST_UNREACHABLE;
	connector->pending_op = request->op;
	connector->pending_id = request->id;
	return NT_PENDING;
}

int32_t request_accept(struct control *control, uint32_t session, const struct shm_request *request,
		       struct shm_reply *reply)
{
	const struct shm_connect *want = &request->connect;
	struct object *connector = find_connector(control, session, want->connector);
	struct connector *c;
	uint32_t inbound, outbound;
	int32_t status;

	if (!connector)
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if (c->state == CONNECTOR_DISCONNECTED)
		return NT_CONNECTION_ABORTED;
	if (c->state != CONNECTOR_INCOMING || connector->pending_id || c->datagram)
		return NT_CONNECTION_INVALID;
	if (!keep_private_data(c, want, SHM_PRIVATE_DATA))
		return NT_INVALID_BUFFER_SIZE;
	status = take_qp(control, session, connector, want->qp);
	if (status != NT_SUCCESS_STATUS)
		return status;
	/* What the peer offered stands in inbound and outbound: the smaller of both holds. */
	cap_limits(control, want, &inbound, &outbound);
	c->inbound = smaller(c->inbound, inbound);
	c->outbound = smaller(c->outbound, outbound);
	c->receive_psn = connection_draw_psn();
	if (connection_prepare(control, connector)) {
		give_qp_back(control, connector);
		return NT_NETWORK_UNREACHABLE;
	}
	connector->pending_op = request->op;
	connector->pending_id = request->id;
	return NT_PENDING;
}

int32_t request_accept_datagram(struct control *control, uint32_t session,
				const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_connect *want = &request->connect;
	struct object *connector = find_connector(control, session, want->connector);
	struct object *qp = object_find(control, session, want->qp, OBJECT_TYPE_QP);
	struct cm_parameters answer = { .qkey = want->qkey };
	struct qp_status status;
	struct connector *c;

	if (!connector || !qp || !qp_get_status(control->shared, qp->index, &status))
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if (c->state == CONNECTOR_DISCONNECTED)
		return NT_CONNECTION_ABORTED;
	if (c->state != CONNECTOR_INCOMING || connector->pending_id || !c->datagram)
		return NT_CONNECTION_INVALID;
	if (status.type != SHM_QP_UD)
		return NT_NOT_SUPPORTED;
	if (status.state != QP_RTS)
		return NT_INVALID_DEVICE_STATE;
	if (want->private_length > CM_SIDR_REP_PRIVATE)
		return NT_INVALID_BUFFER_SIZE;
	answer.qpn = status.qpn;
	answer.private_length = (uint8_t)want->private_length;
	memcpy(answer.private_data, want->private_data, want->private_length);
	c->state = CONNECTOR_CLOSED;
	if (cm_accept(control->cm, c->connection, object_index(control, connector), &answer,
		      control->now))
		return NT_CONNECTION_ABORTED;
	return NT_SUCCESS_STATUS;
}

int32_t request_reject(struct control *control, uint32_t session, const struct shm_request *request,
		       struct shm_reply *reply)
{
	const struct shm_connect *want = &request->connect;
	struct object *connector = find_connector(control, session, want->connector);
	struct connector *c;

	if (!connector)
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if (c->state == CONNECTOR_DISCONNECTED)
		return NT_CONNECTION_ABORTED;
	if (c->state != CONNECTOR_INCOMING && c->state != CONNECTOR_REPLIED)
		return NT_CONNECTION_INVALID;
	if (want->private_length > (c->datagram ? CM_SIDR_REP_PRIVATE : CM_REJ_PRIVATE))
		return NT_INVALID_BUFFER_SIZE;
	c->state = CONNECTOR_CLOSED;
	if (cm_reject(control->cm, c->connection, CM_REJ_CONSUMER, NULL, 0, want->private_data,
		      want->private_length, control->now))
		return NT_CONNECTION_ABORTED;
	return NT_SUCCESS_STATUS;
}

int32_t request_disconnect(struct control *control, uint32_t session,
			   const struct shm_request *request, struct shm_reply *reply)
{
	struct object *connector = find_connector(control, session, request->object.object);
	struct connector *c;

	if (!connector)
		return NT_INVALID_HANDLE;
	c = &connector->connector;
	if ((c->state != CONNECTOR_CONNECTED && c->state != CONNECTOR_DISCONNECTED) ||
	    connector->pending_id || !connector->needs[0])
		return NT_CONNECTION_INVALID;
	connector->pending_op = request->op;
	connector->pending_id = request->id;
	if (c->state == CONNECTOR_DISCONNECTED) {
		c->state = CONNECTOR_CLOSED;
		connection_flush(control, connector);
		return NT_PENDING;
	}
	c->told_disconnect = 1; /* the client knows */
	c->state = CONNECTOR_DISCONNECTING;
	if (cm_disconnect(control->cm, c->connection, control->now)) {
		c->state = CONNECTOR_CLOSED;
		connection_flush(control, connector);
	}
	return NT_PENDING;
}
