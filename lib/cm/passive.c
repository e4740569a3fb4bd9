/* SPDX-License-Identifier: BSD-3-Clause */
/* The passive side: from the peer's REQ by our REP to its RTU or first data. */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"

static void refuse_stale(struct cm *cm, const struct cm_address *from, uint64_t tid,
			 uint32_t remote_id)
{
	struct cm_refusal refusal = { .reason = CM_REJ_STALE_CONNECTION };

	cm->statistics.stale++;
	cm_send_rej_stray(cm, from, tid, remote_id, &refusal);
}

/* --- a REQ that was here before ------------------------------------------------------- */

/* Nothing happens twice; the peer gets what it may have missed. */
static void repeat_answer(struct cm *cm, struct connection *c, uint64_t now)
{
	cm->statistics.duplicates++;
	switch ((enum connection_state)c->state) {
	case CONNECTION_REQ_RECEIVED:
		/* Soon after the first it is an echo of the network, later the peer worries. */
		if (now - c->since >= CM_SLOW_APPLICATION)
			cm_send_mra(cm, c, CM_SUBJECT_REQ);
		break;
	case CONNECTION_REP_SENT: cm_send_again(cm, c); break;
	case CONNECTION_TIMEWAIT:
		if (cm_connection_was_refused(c))
			cm_send_again(cm, c);
		else
			refuse_stale(cm, &c->address, c->tid, c->remote_id);
		break;
	default: break;
	}
}

/* How many ended connections of one id of a peer are remembered. */
#define MOST_PAST 8u

/*
 * The peer's id and GUID make a REQ one that we know, unless it was taken back. In timewait the
 * transaction has to be the same as well: else the peer has simply come round to an id that it had
 * used before. One that uses a single id for all it does gets no long list to be looked through:
 * the oldest, which is the last, is forgotten.
 */
static struct connection *find_duplicate(struct cm *cm, const struct cm_address *from,
					 const struct cm_req *req, uint64_t tid)
{
	struct connection *c = NULL, *oldest = NULL;
	uint32_t past = 0;

	while ((c = cm_connection_by_remote_id(cm, from->remote_gid, req->local_id, c))) {
		if (!c->passive || c->space == CM_PS_UDP || c->state == CONNECTION_WITHDRAWN)
			continue;
		if (c->remote_guid == req->ca_guid &&
		    (c->state != CONNECTION_TIMEWAIT || c->tid == tid))
			return c;
		if (c->state == CONNECTION_TIMEWAIT && ++past >= MOST_PAST)
			oldest = c;
	}
	if (oldest)
		cm_connection_finish(cm, oldest);
	return NULL;
}

/* --- a new REQ ------------------------------------------------------------------------ */

static void tell_request(struct cm *cm, struct connection *c, const struct cm_req *req,
			 const struct request_target *target)
{
	struct cm_parameters parameters;

	cm_request_parameters(req, target, &parameters);
	cm_connection_event(cm, c, CM_CONNECT_REQUEST, 0, &parameters);
}

static bool names_path(const struct cm_path *path)
{
	static const struct cm_path none;

	return path->local_lid || memcmp(path->local_gid, none.local_gid, 16) != 0;
}

static void take_request(struct cm *cm, const struct cm_address *from, const struct cm_req *req,
			 const struct request_target *target, uint64_t tid, uint64_t now)
{
	struct connection *c = cm_connection_create(cm, from);

	if (!c)
		return; /* cm_request_check() has seen a free record */
	c->passive = 1;
	c->space = (uint8_t)target->space;
	c->port = target->port;
	c->listener = target->listener;
	c->cookie = cm->listener[target->listener].cookie;
	c->remote_qpn = req->qpn;
	c->remote_guid = req->ca_guid;
	c->tid = tid;
	c->since = now;
	c->alternate = names_path(&req->alternate);
	c->max_repeats = req->max_cm_retries;
	c->interval = cm_timers_interval(req->local_response_timeout);
	c->timewait = cm_timers_timewait(req->primary.ack_timeout);
	cm_connection_set_remote(cm, c, req->local_id);
	cm_connection_set_state(cm, c, CONNECTION_REQ_RECEIVED);
	tell_request(cm, c, req, target);
}

void cm_passive_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			uint64_t tid, uint64_t now)
{
	struct cm_refusal refusal = { 0 };
	struct request_target target;
	struct connection *known;
	struct cm_req req;

	cm_req_parse(mad, &req);
	if (!req.local_id) {
		cm->statistics.malformed++;
		return;
	}
	known = find_duplicate(cm, from, &req, tid);
	if (known) {
		repeat_answer(cm, known, now);
		return;
	}
	known = cm_connection_by_qpn(cm, from->remote_gid, req.ca_guid, req.qpn);
	if (known) {
		refuse_stale(cm, from, tid, req.local_id);
		cm_disconnect_stale(cm, known, now);
		return;
	}
	refusal.reason = cm_request_check(cm, from, &req, &target);
	if (!refusal.reason) {
		take_request(cm, from, &req, &target, tid, now);
		return;
	}
	refusal.ari = target.ari;
	refusal.ari_length = target.ari_length;
	cm_send_rej_stray(cm, from, tid, req.local_id, &refusal);
}

/* --- our answer ----------------------------------------------------------------------- */

int cm_accept(struct cm *cm, uint32_t connection, uint64_t cookie,
	      const struct cm_parameters *parameters, uint64_t now)
{
	struct connection *c = cm_connection_get(cm, connection);

	if (!c || !cm_connection_is_asked(c))
		return -ENOTCONN;
	if (c->state == CONNECTION_SIDR_RECEIVED)
		return cm_sidr_accept(cm, c, cookie, parameters, now);
	if (parameters->private_length > CM_REP_PRIVATE)
		return -EMSGSIZE;
	c->cookie = cookie;
	c->local_qpn = parameters->qpn;
	c->repeats = c->max_repeats;
	cm_connection_set_state(cm, c, CONNECTION_REP_SENT);
	cm_timers_set(cm, c, now + c->interval);
	cm_send_rep(cm, c, parameters);
	return 0;
}

void cm_passive_drop(struct cm *cm, struct connection *c)
{
	struct cm_refusal refusal = { .reason = CM_REJ_CONSUMER };

	if (c->state == CONNECTION_WITHDRAWN) {
		cm_connection_finish(cm, c);
		return;
	}
	if (c->state == CONNECTION_SIDR_RECEIVED)
		cm_sidr_drop(cm, c);
	else
		cm_send_rej(cm, c, CM_SUBJECT_REQ, &refusal);
	cm_connection_set_state(cm, c, CONNECTION_TIMEWAIT);
	cm_connection_event(cm, c, CM_DISCONNECTED, 0, NULL);
	cm_connection_finish(cm, c);
}

/* --- established ---------------------------------------------------------------------- */

static void establish(struct cm *cm, struct connection *c)
{
	cm_timers_stop(cm, c);
	cm_connection_set_state(cm, c, CONNECTION_ESTABLISHED);
	cm_connection_event(cm, c, CM_ESTABLISHED, 0, NULL);
}

void cm_passive_rtu(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		    uint64_t now)
{
	struct connection *c;
	struct cm_rtu rtu;

	cm_rtu_parse(mad, &rtu);
	c = cm_connection_of_both_ids(cm, from, rtu.local_id, rtu.remote_id);
	if (!c)
		cm->statistics.unknown++;
	else if (c->state == CONNECTION_REP_SENT)
		establish(cm, c);
	else
		cm->statistics.duplicates++;
}

void cm_data_seen(struct cm *cm, uint32_t connection, uint64_t now)
{
	struct connection *c = cm_connection_get(cm, connection);

	if (c && c->state == CONNECTION_REP_SENT)
		establish(cm, c);
}
