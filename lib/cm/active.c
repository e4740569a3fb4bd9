/* SPDX-License-Identifier: BSD-3-Clause */
/* The active side: our REQ, the peer's REP, our RTU. */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"

#define TARGET_ACK_DELAY_MASK 31u

int cm_connect(struct cm *cm, enum cm_port_space space, const struct cm_address *address,
	       const struct cm_parameters *parameters, uint64_t cookie, uint32_t *connection,
	       uint64_t now)
{
	uint32_t room = CM_REQ_PRIVATE - (space == CM_PS_IB ? 0 : CMA_HEADER_SIZE);
	struct connection *c;

	if (space == CM_PS_UDP)
		return cm_sidr_resolve(cm, address, parameters, cookie, connection, now);
	if (space != CM_PS_TCP && space != CM_PS_IB)
		return -EOPNOTSUPP;
	if (parameters->private_length > room)
		return -EMSGSIZE;
	c = cm_connection_create(cm, address);
	if (!c)
		return -ENOSPC;
	c->space = (uint8_t)space;
	c->port = parameters->remote_port;
	c->cookie = cookie;
	c->local_qpn = parameters->qpn;
	c->address.traffic_class = parameters->traffic_class;
	c->tid = (uint64_t)cm->io.random(cm->io.context) << 32 | c->local_id;
	c->timewait = cm_timers_timewait(parameters->ack_timeout);
	cm_connection_set_state(cm, c, CONNECTION_REQ_SENT);
	*connection = cm_connection_index(cm, c);
	cm_send_req(cm, c, parameters);
	c->repeats = c->max_repeats;
	cm_timers_set(cm, c, now + c->interval);
	return 0;
}

/*
 * The peer's port carries less than we asked for: the request again, of another transaction,
 * with the path MTU that its refusal offers (REJ reason 26). Each is smaller than the
 * one before.
 */
bool cm_active_lower_mtu(struct cm *cm, struct connection *c, const struct cm_rej *rej,
			 uint64_t now)
{
	struct cm_req req;

	if (c->state != CONNECTION_REQ_SENT || rej->reason != CM_REJ_INVALID_MTU ||
	    rej->ari_length < 1)
		return false;
	cm_req_parse(c->mad, &req);
	if (rej->ari[0] == 0 || rej->ari[0] >= req.path_mtu)
		return false;
	req.path_mtu = rej->ari[0];
	c->tid = (uint64_t)cm->io.random(cm->io.context) << 32 | c->local_id;
	cm_req_encode(&req, c->tid, c->mad);
	cm_send_again(cm, c);
	c->repeats = c->max_repeats;
	cm_timers_set(cm, c, now + c->interval);
	return true;
}

/* --- REP ------------------------------------------------------------------------------ */

static void tell_reply(struct cm *cm, struct connection *c, const struct cm_rep *rep)
{
	struct cm_req req;
	struct cm_parameters parameters = {
		.qpn = rep->qpn,
		.starting_psn = rep->starting_psn,
		.qkey = rep->qkey,
		.responder_resources = rep->responder_resources,
		.initiator_depth = rep->initiator_depth,
		.rnr_retry_count = rep->rnr_retry_count,
		.ack_timeout = rep->target_ack_delay & TARGET_ACK_DELAY_MASK,
		.srq = rep->srq,
		.remote_port = c->port,
		.private_length = CM_REP_PRIVATE,
	};

	cm_req_parse(c->mad, &req);
	parameters.path_mtu = 128u << req.path_mtu;
	memcpy(parameters.private_data, rep->private_data, CM_REP_PRIVATE);
	cm_connection_event(cm, c, CM_CONNECT_REPLY, 0, &parameters);
}

static void take_reply(struct cm *cm, struct connection *c, const struct cm_address *from,
		       const struct cm_rep *rep, uint64_t now)
{
	static const uint8_t unknown_mac[6];

	cm_timers_stop(cm, c);
	c->remote_qpn = rep->qpn;
	c->remote_guid = rep->ca_guid;
	c->since = now;
	if (memcmp(from->remote_mac, unknown_mac, 6) != 0)
		memcpy(c->address.remote_mac, from->remote_mac, 6);
	cm_connection_set_remote(cm, c, rep->local_id);
	cm_connection_set_state(cm, c, CONNECTION_REP_RECEIVED);
	tell_reply(cm, c, rep);
}

/* A REP whose queue pair we still believe connected: refused, and REQ goes on being sent. */
static void refuse_stale_reply(struct cm *cm, struct connection *c, const struct cm_rep *rep,
			       struct connection *old, uint64_t now)
{
	struct cm_rej rej = { .local_id = c->local_id,
			      .remote_id = rep->local_id,
			      .subject = CM_SUBJECT_REP,
			      .reason = CM_REJ_STALE_CONNECTION };
	uint8_t mad[256];

	cm->statistics.stale++;
	cm_rej_encode(&rej, c->tid, mad);
	cm_send_mad(cm, &c->address, mad);
	cm_disconnect_stale(cm, old, now);
}

/* The RTU, or our refusal, was lost; or the application is slow. */
static void repeat_answer(struct cm *cm, struct connection *c, uint64_t now)
{
	cm->statistics.duplicates++;
	switch ((enum connection_state)c->state) {
	case CONNECTION_REP_RECEIVED:
		if (now - c->since >= CM_SLOW_APPLICATION)
			cm_send_mra(cm, c, CM_SUBJECT_REP);
		break;
	case CONNECTION_ESTABLISHED: cm_send_again(cm, c); break;
	case CONNECTION_TIMEWAIT:
		if (cm_connection_was_refused(c))
			cm_send_again(cm, c);
		break;
	default: break;
	}
}

void cm_active_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t now)
{
	struct connection *c, *old;
	struct cm_rep rep;

	cm_rep_parse(mad, &rep);
	c = cm_connection_of_both_ids(cm, from, rep.local_id, rep.remote_id);
	if (!c || c->passive || !rep.local_id) {
		cm->statistics.unknown++;
		return;
	}
	if (c->state != CONNECTION_REQ_SENT) {
		repeat_answer(cm, c, now);
		return;
	}
	if (!cm_qpn_possible(rep.qpn)) {
		cm->statistics.malformed++;
		return;
	}
	old = cm_connection_by_qpn(cm, from->remote_gid, rep.ca_guid, rep.qpn);
	if (old)
		refuse_stale_reply(cm, c, &rep, old, now);
	else
		take_reply(cm, c, from, &rep, now);
}

int cm_ready(struct cm *cm, uint32_t connection, const uint8_t *private_data,
	     uint32_t private_length, uint64_t now)
{
	struct connection *c = cm_connection_get(cm, connection);

	if (!c || c->state != CONNECTION_REP_RECEIVED)
		return -ENOTCONN;
	if (private_length > CM_RTU_PRIVATE)
		return -EMSGSIZE;
	cm_connection_set_state(cm, c, CONNECTION_ESTABLISHED);
	cm_send_rtu(cm, c, private_data, private_length);
	return 0;
}
