/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to connections: events of the CM, of the workers, and of time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "control/control_private.h"

#define RESOLVE_PATIENCE 3000000000ull /* ns, for ARP or ND of an outgoing connection */
#define MIN_RNR_TIMER    12u           /* code: 0.64 ms */
#define TARGET_ACK_DELAY 5u            /* code: 131 us */

static struct object *connector_of(struct control *control, uint32_t connection)
{
	uint32_t index = control->connection_object[connection];

	return index ? object_at(control, index) : NULL;
}

uint32_t connection_draw_psn(void)
{
	uint32_t psn = 0;

	/* getrandom of a few bytes does not fail once the kernel's pool is ready. */
	while (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		;
	return psn & 0xffffff;
}

static void flush_qp(struct control *control, const struct object *connector,
		     enum command_purpose purpose)
{
	struct object *qp;

	/* One that no peer has answered yet can still be connected elsewhere. */
	if (!connector->needs[0] || (!connector->connector.prepared && purpose == COMMAND_IGNORE))
		return;
	qp = object_at(control, connector->needs[0]);
	command_send(control, qp_home(control->shared, qp->index), WORKER_FLUSH, qp->index, purpose,
		     object_handle(control, connector), NULL);
}

/* --- telling the client --------------------------------------------------------------- */

static void fill_connection(struct control *control, struct object *connector,
			    const struct cm_parameters *parameters, struct shm_connection *out)
{
	const struct connector *c = &connector->connector;

	*out = (struct shm_connection){ .connector = object_handle(control, connector),
					.inbound_read_limit = c->inbound,
					.outbound_read_limit = c->outbound,
					.local = c->local,
					.remote = c->remote,
					.datagram = c->datagram };
	if (!parameters)
		return;
	out->private_length = parameters->private_length;
	memcpy(out->private_data, parameters->private_data, SHM_PRIVATE_DATA);
}

/* Once per connection, and only for one that was up. */
static void tell_disconnected(struct control *control, struct object *connector, uint32_t reason)
{
	if (connector->connector.told_disconnect)
		return;
	connector->connector.told_disconnect = 1;
	send_async(control, connector->session, SHM_EV_DISCONNECTED,
		   object_handle(control, connector), 0, reason);
}

/* --- passive ----------------------------------------------------------------------------- */

static void set_address(struct shm_address *address, const uint8_t gid[16], uint16_t port)
{
	memcpy(address->gid, gid, 16);
	address->port = port;
	address->family = gid_is_v4(gid) ? 4 : 6;
}

static void remember_request(struct connector *c, const struct cm_event *event)
{
	const struct cm_parameters *p = event->parameters;

	c->connection = event->connection;
	c->state = CONNECTOR_INCOMING;
	c->passive = 1;
	c->datagram = event->space == CM_PS_UDP;
	c->remote_qpn = p->qpn;
	c->send_psn = p->starting_psn;
	c->path_mtu = p->path_mtu;
	c->flow_label = p->flow_label;
	c->inbound = p->initiator_depth;
	c->outbound = p->responder_resources;
	c->timeout = p->ack_timeout;
	c->retry_count = p->retry_count;
	c->rnr_retry = p->rnr_retry_count;
	c->traffic_class = p->traffic_class;
	c->hop_limit = p->hop_limit;
	memcpy(c->remote_mac, event->address->remote_mac, sizeof(c->remote_mac));
	set_address(&c->local, event->address->local_gid, p->local_port);
	set_address(&c->remote, event->address->remote_gid, p->remote_port);
}

static void on_connect_request(struct control *control, const struct cm_event *event)
{
	struct object *listener = object_at(control, (uint32_t)event->cookie);
	struct shm_reply message = { .op = SHM_EV_CONNECT_REQUEST };
	struct object *connector = NULL;
	uint32_t reason = CM_REJ_NO_RESOURCES;

	if (offender_shut_out(control, event->address->remote_gid)) {
		control->status.requests_shut_out++;
		reason = CM_REJ_CONSUMER;
	} else if (listener->type == OBJECT_TYPE_LISTENER && !listener->close_id &&
		   !client_is_behind(control, listener->session)) {
		connector = object_create(control, listener->session, OBJECT_TYPE_CONNECTOR);
	}
	if (!connector) {
		cm_reject(control->cm, event->connection, reason, NULL, 0, NULL, 0, control->now);
		return;
	}
	object_need(control, connector, 1, listener);
	remember_request(&connector->connector, event);
	control->connection_object[event->connection] = object_index(control, connector);
	fill_connection(control, connector, event->parameters, &message.connection);
	message.connection.listener = object_handle(control, listener);
	session_send(control, connector->session, &message);
}

/* --- both: the queue pair is made ready, then the peer hears of it ------------------------- */

/* Commands the worker; connection_prepared() goes on. Returns 0 or a negative errno. */
int connection_prepare(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;
	struct object *qp = object_at(control, connector->needs[0]);
	struct qp_connection connection = {
		.remote_qpn = c->remote_qpn,
		.send_psn = c->send_psn,
		.receive_psn = c->receive_psn,
		.path_mtu = c->path_mtu,
		.timeout = c->timeout,
		.retry_count = c->retry_count,
		.rnr_retry = c->rnr_retry,
		.min_rnr_timer = MIN_RNR_TIMER,
		.max_reads_in = (uint8_t)c->inbound,
		.max_reads_out = (uint8_t)c->outbound,
		.remote_rights = RIGHTS_REMOTE,
	};
	static const uint8_t no_mac[6];
	int error;

	error = net_resolve(control->net, c->local.gid, c->remote.gid, &connection.path,
			    control->now);
	/*
	 * A passive side knows the MAC from the request's frame and need not wait; a group's is
	 * none that data may go to.
	 */
	if (memcmp(c->remote_mac, no_mac, 6) != 0 && !(c->remote_mac[0] & 1)) {
		memcpy(connection.path.remote_mac, c->remote_mac, 6);
		if (error == -EAGAIN || error == -EHOSTUNREACH || error == -ENOBUFS)
			error = 0;
	}
	if (error)
		return error;
	connection.path.traffic_class =
		net_traffic_class(control->net, c->local.gid, c->traffic_class);
	connection.path.hop_limit = c->hop_limit ? c->hop_limit : 64;
	connection.path.flow_label = c->flow_label;
	c->state = CONNECTOR_PREPARING;
	c->prepared = 1;
	command_send(control, qp_home(control->shared, qp->index), WORKER_CONNECT, qp->index,
		     COMMAND_QP_CONNECTED, object_handle(control, connector), &connection);
	return 0;
}

static int send_reply(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;
	struct object *qp = object_at(control, connector->needs[0]);
	struct cm_parameters parameters = {
		.qpn = qp_number(control->shared, qp->index),
		.starting_psn = c->receive_psn,
		.responder_resources = (uint8_t)c->inbound,
		.initiator_depth = (uint8_t)c->outbound,
		.rnr_retry_count = 7,
		.ack_timeout = TARGET_ACK_DELAY,
		.private_length = c->private_length,
	};

	memcpy(parameters.private_data, c->private_data, SHM_PRIVATE_DATA);
	c->state = CONNECTOR_ACCEPTING;
	return cm_accept(control->cm, c->connection, object_index(control, connector), &parameters,
			 control->now);
}

/* The worker has brought the queue pair to RTS, or could not. */
void connection_prepared(struct control *control, struct object *connector, int status)
{
	struct connector *c = &connector->connector;

	if (c->state != CONNECTOR_PREPARING) {
		/* The peer gave up meanwhile, or the session ended: then its queue pairs go anyway.
		 */
		reply_pending(control, connector, NT_CONNECTION_ABORTED);
		if (session_is_open(control, connector->session))
			flush_qp(control, connector, COMMAND_IGNORE);
		return;
	}
	if (!status && !c->passive) {
		c->state = CONNECTOR_CONNECTED;
		status = cm_ready(control->cm, c->connection, NULL, 0, control->now);
		if (!status)
			reply_pending(control, connector, NT_SUCCESS_STATUS);
	} else if (!status) {
		status = send_reply(control, connector);
	}
	if (!status)
		return;
	c->state = CONNECTOR_CLOSED;
	cm_reject(control->cm, c->connection, CM_REJ_NO_RESOURCES, NULL, 0, NULL, 0, control->now);
	reply_pending(control, connector, NT_INSUFFICIENT_RESOURCES);
}

/* --- active ------------------------------------------------------------------------------- */

/*
 * Everything is known: REQ or SIDR_REQ goes out. Its address has no MAC: each repetition goes to
 * whoever is the next hop by then, for it may be for lack of the right one that nobody answers.
 */
static int connection_request(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;
	int port = net_find_address(control->net, c->local.gid);
	struct cm_address address = { .port = (uint8_t)port };
	struct cm_parameters parameters = {
		.starting_psn = c->receive_psn,
		.path_mtu = c->path_mtu,
		.responder_resources = (uint8_t)c->inbound,
		.initiator_depth = (uint8_t)c->outbound,
		.retry_count = c->retry_count,
		.rnr_retry_count = c->rnr_retry,
		.ack_timeout = c->timeout,
		.traffic_class = net_traffic_class(control->net, c->local.gid, c->traffic_class),
		.hop_limit = c->hop_limit,
		.local_port = c->local.port,
		.remote_port = c->remote.port,
		.private_length = c->private_length,
	};
	int error;

	if (!c->datagram)
		parameters.qpn =
			qp_number(control->shared, object_at(control, connector->needs[0])->index);
	/* The seed of the UDP source port, the same at both ends, as Linux chooses it. */
	c->flow_label = (c->local.port * 31u + c->remote.port) & 0xfffff;
	parameters.flow_label = c->flow_label;
	memcpy(address.local_gid, c->local.gid, 16);
	memcpy(address.remote_gid, c->remote.gid, 16);
	memcpy(parameters.private_data, c->private_data, SHM_PRIVATE_DATA);
	error = cm_connect(control->cm, c->datagram ? CM_PS_UDP : CM_PS_TCP, &address, &parameters,
			   object_index(control, connector), &c->connection, control->now);
	if (error)
		return error;
	control->connection_object[c->connection] = object_index(control, connector);
	c->state = CONNECTOR_CONNECTING;
	return 0;
}

int32_t resolve_status(int error)
{
	switch (error) {
	case -ENETUNREACH: return NT_NETWORK_UNREACHABLE;
	case -EADDRNOTAVAIL: return NT_INVALID_ADDRESS;
	case -EHOSTUNREACH: return NT_HOST_UNREACHABLE;
	default: return NT_INSUFFICIENT_RESOURCES;
	}
}

/* Returns NT_PENDING while it goes on by itself, else the status of the failure. */
int32_t connection_resolve(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;
	struct qp_path path;
	int error = net_resolve(control->net, c->local.gid, c->remote.gid, &path, control->now);

	if (error == -EAGAIN && c->state == CONNECTOR_IDLE) {
		c->state = CONNECTOR_RESOLVING;
		c->deadline = control->now + RESOLVE_PATIENCE;
		control->resolving++;
		return NT_PENDING;
	}
	if (error == -EAGAIN && control->now < c->deadline)
		return NT_PENDING;
	if (c->state == CONNECTOR_RESOLVING) {
		control->resolving--;
		c->state = CONNECTOR_FAILED;
	}
	if (!error)
		error = connection_request(control, connector);
	if (!error)
		return NT_PENDING;
	c->state = CONNECTOR_FAILED;
	return resolve_status(error == -EAGAIN ? -EHOSTUNREACH : error);
}

void connection_resolve_pending(struct control *control)
{
	for (uint32_t i = 1; control->resolving && i < control->object_watermark; i++) {
		struct object *object = object_at(control, i);
		int32_t status;

		if (object->type != OBJECT_TYPE_CONNECTOR ||
		    object->connector.state != CONNECTOR_RESOLVING)
			continue;
		status = connection_resolve(control, object);
		if (status != NT_PENDING)
			reply_pending(control, object, status);
	}
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Nothing is connected, and nothing more will be heard of it. */
static void finish_resolution(struct control *control, struct object *connector,
			      const struct cm_parameters *p)
{
	struct shm_reply reply = { .op = connector->pending_op, .id = connector->pending_id };

	connector->connector.state = CONNECTOR_CLOSED;
	fill_connection(control, connector, p, &reply.connection);
	reply.connection.remote_qpn = p->qpn;
	reply.connection.qkey = p->qkey;
	connector->pending_id = 0;
	connector->pending_op = 0;
	session_send(control, connector->session, &reply);
}

static void on_connect_reply(struct control *control, struct object *connector,
			     const struct cm_event *event)
{
	struct connector *c = &connector->connector;
	const struct cm_parameters *p = event->parameters;
	struct shm_reply reply = { .op = connector->pending_op, .id = connector->pending_id };

	c->remote_qpn = p->qpn;
	if (c->datagram) {
		finish_resolution(control, connector, p);
		return;
	}
	c->send_psn = p->starting_psn;
	c->inbound = smaller(c->inbound, p->initiator_depth);
	c->outbound = smaller(c->outbound, p->responder_resources);
	c->rnr_retry = p->rnr_retry_count;
	c->path_mtu = p->path_mtu;
	c->timeout = cm_ack_timeout(c->timeout, p->ack_timeout);
	c->state = CONNECTOR_REPLIED;
	memcpy(c->remote_mac, event->address->remote_mac, sizeof(c->remote_mac));
	fill_connection(control, connector, p, &reply.connection);
	connector->pending_id = 0;
	connector->pending_op = 0;
	session_send(control, connector->session, &reply);
}

/* --- the end of a connection ---------------------------------------------------------------- */

static void on_rejected(struct control *control, struct object *connector,
			const struct cm_event *event)
{
	struct connector *c = &connector->connector;
	struct shm_reply reply = { .op = connector->pending_op, .id = connector->pending_id };
	uint32_t was = c->state;

	c->state = CONNECTOR_DISCONNECTED;
	if (was == CONNECTOR_CONNECTING) {
		c->state = CONNECTOR_FAILED;
		reply.status = NT_CONNECTION_REFUSED;
		fill_connection(control, connector, event->parameters, &reply.connection);
		connector->pending_id = 0;
		session_send(control, connector->session, &reply);
	} else if (was == CONNECTOR_CONNECTED) {
		tell_disconnected(control, connector, event->reason);
	} else if (was != CONNECTOR_PREPARING) {
		reply_pending(control, connector, NT_CONNECTION_REFUSED);
		flush_qp(control, connector, COMMAND_IGNORE);
	}
}

static void on_disconnected(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;
	uint32_t was = c->state;

	if (was == CONNECTOR_DISCONNECTING)
		return; /* our own DREQ crossed the peer's: its answer ends it */
	c->state = CONNECTOR_DISCONNECTED;
	if (was == CONNECTOR_CONNECTED)
		tell_disconnected(control, connector, 0); /* no flush: NdkDisconnect remarks */
	else if (was != CONNECTOR_PREPARING)
		reply_pending(control, connector, NT_CONNECTION_ABORTED);
}

static void on_unreachable(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;

	c->state = c->state == CONNECTOR_CONNECTING ? CONNECTOR_FAILED : CONNECTOR_DISCONNECTED;
	reply_pending(control, connector, NT_IO_TIMEOUT);
	flush_qp(control, connector, COMMAND_IGNORE);
}

void connection_flush(struct control *control, struct object *connector)
{
	flush_qp(control, connector, COMMAND_QP_FLUSHED);
}

static void on_disconnect_done(struct control *control, struct object *connector, bool answered)
{
	struct connector *c = &connector->connector;

	if (c->state != CONNECTOR_DISCONNECTING)
		return;
	c->state = CONNECTOR_CLOSED;
	flush_qp(control, connector, answered ? COMMAND_QP_FLUSHED : COMMAND_IGNORE);
	if (!answered)
		reply_pending(control, connector, NT_IO_TIMEOUT);
}

void connection_cm_event(void *context, const struct cm_event *event)
{
	struct control *control = context;
	struct object *connector;

	if (event->type == CM_CONNECT_REQUEST) {
		on_connect_request(control, event);
		return;
	}
	connector = connector_of(control, event->connection);
	if (!connector)
		return;
	switch (event->type) {
	case CM_CONNECT_REPLY: on_connect_reply(control, connector, event); break;
	case CM_ESTABLISHED:
		if (connector->connector.state == CONNECTOR_ACCEPTING) {
			connector->connector.state = CONNECTOR_CONNECTED;
			reply_pending(control, connector, NT_SUCCESS_STATUS);
		}
		break;
	case CM_REJECTED: on_rejected(control, connector, event); break;
	case CM_UNREACHABLE: on_unreachable(control, connector); break;
	case CM_DISCONNECTED: on_disconnected(control, connector); break;
	case CM_DISCONNECT_DONE: on_disconnect_done(control, connector, !event->reason); break;
	case CM_TIMEWAIT_OVER:
		control->connection_object[event->connection] = 0;
		connector->connector.connection = 0;
		break;
	case CM_CONNECT_REQUEST: break;
	}
}

/* A queue pair failed by itself: its connection is over, and both sides hear of it. */
void connection_qp_error(struct control *control, struct object *qp, uint32_t verdict)
{
	uint32_t index = control->object_local[object_index(control, qp)].connector;
	struct object *connector = object_at(control, index);
	struct connector *c = &connector->connector;
	uint32_t was = c->state;

	if (!index || (was != CONNECTOR_CONNECTED && was != CONNECTOR_ACCEPTING))
		return;
	c->state = CONNECTOR_DISCONNECTED;
	if (c->connection)
		cm_disconnect(control->cm, c->connection, control->now);
	if (was == CONNECTOR_CONNECTED)
		tell_disconnected(control, connector, verdict);
	else
		reply_pending(control, connector, NT_CONNECTION_ABORTED);
}

void connection_established(struct control *control, struct object *qp)
{
	uint32_t index = control->object_local[object_index(control, qp)].connector;

	if (index && object_at(control, index)->connector.connection)
		cm_data_seen(control->cm, object_at(control, index)->connector.connection,
			     control->now);
}

/* The client, or its death, closes the connector: whatever stands, the CM ends it properly. */
void connection_close(struct control *control, struct object *connector)
{
	struct connector *c = &connector->connector;

	if (c->state == CONNECTOR_RESOLVING)
		control->resolving--;
	if (c->connection) {
		control->connection_object[c->connection] = 0;
		cm_release(control->cm, c->connection, control->now);
		c->connection = 0;
	}
	if (connector->needs[0]) {
		control->object_local[connector->needs[0]].connector = 0;
		if (session_is_open(control, connector->session))
			flush_qp(control, connector, COMMAND_IGNORE);
	}
	c->state = CONNECTOR_CLOSED;
}
