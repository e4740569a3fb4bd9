/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Service resolution (SIDR): one question, one answer, and a peer knows which queue pair takes its
 * datagrams. Nothing is connected. The record lives on for a timewait, so that a question that
 * comes again is answered again and not asked again of the application; of a peer that asks more
 * than is remembered, it is asked again.
 */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"
#include "wire/ip.h"

#define PKEY_DEFAULT          0xffffu
#define PKEY_MASK             0x7fffu
#define RESPONSE_TIMEOUT_CODE 20u /* 4.3 s, as Linux */
#define MAX_REPEATS           15u
#define TIMEWAIT_CODE         21u /* longer than the pause before a question comes again */

enum sidr_status {
	SIDR_VALID = 0,
	SIDR_NOT_SUPPORTED = 1,
	SIDR_REJECTED = 2,
	SIDR_NO_QP = 3,
};

/* --- asking --------------------------------------------------------------------------- */

static void send_request(struct cm *cm, struct connection *c, const struct cm_parameters *p)
{
	struct cma_header header = { .ip_version = gid_is_v4(c->address.remote_gid) ? 4 : 6,
				     .source_port = p->local_port };
	struct cm_sidr_req req = { .request_id = c->local_id,
				   .pkey = PKEY_DEFAULT,
				   .service_id = cm_service_id(CM_PS_UDP, p->remote_port) };

	memcpy(header.source_gid, c->address.local_gid, 16);
	memcpy(header.destination_gid, c->address.remote_gid, 16);
	cma_header_encode(&header, req.private_data);
	memcpy(req.private_data + CMA_HEADER_SIZE, p->private_data, p->private_length);
	cm_sidr_req_encode(&req, c->tid, c->mad);
	cm_send_again(cm, c);
}

int cm_sidr_resolve(struct cm *cm, const struct cm_address *address,
		    const struct cm_parameters *parameters, uint64_t cookie, uint32_t *connection,
		    uint64_t now)
{
	struct connection *c;

	if (parameters->private_length > CM_SIDR_REQ_PRIVATE - CMA_HEADER_SIZE)
		return -EMSGSIZE;
	c = cm_connection_create(cm, address);
	if (!c)
		return -ENOSPC;
	c->space = CM_PS_UDP;
	c->port = parameters->remote_port;
	c->cookie = cookie;
	c->tid = (uint64_t)cm->io.random(cm->io.context) << 32 | c->local_id;
	c->timewait = cm_timers_timewait(TIMEWAIT_CODE);
	c->repeats = MAX_REPEATS;
	c->interval = cm_timers_interval(RESPONSE_TIMEOUT_CODE);
	cm_connection_set_state(cm, c, CONNECTION_SIDR_SENT);
	*connection = cm_connection_index(cm, c);
	send_request(cm, c, parameters);
	cm_timers_set(cm, c, now + c->interval);
	return 0;
}

/* The answer names our request only: nothing of the peer's is worth a timewait. */
void cm_sidr_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256])
{
	struct cm_parameters parameters = { .private_length = CM_SIDR_REP_PRIVATE };
	struct cm_sidr_rep rep;
	struct connection *c;

	cm_sidr_rep_parse(mad, &rep);
	c = cm_connection_of_own_id(cm, from, rep.request_id);
	if (!c || c->state != CONNECTION_SIDR_SENT) {
		if (c)
			cm->statistics.duplicates++;
		else
			cm->statistics.unknown++;
		return;
	}
	parameters.qpn = rep.qpn;
	parameters.qkey = rep.qkey;
	parameters.remote_port = c->port;
	memcpy(parameters.private_data, rep.private_data, CM_SIDR_REP_PRIVATE);
	cm_timers_stop(cm, c);
	cm_connection_set_state(cm, c, CONNECTION_TIMEWAIT);
	cm_connection_event(cm, c, rep.status == SIDR_VALID ? CM_CONNECT_REPLY : CM_REJECTED,
			    rep.status, &parameters);
	cm_connection_finish(cm, c);
}

/* --- answering ------------------------------------------------------------------------ */

static void encode_answer(const struct cm_sidr_req *req, uint8_t status, uint64_t tid,
			  uint8_t mad[256])
{
	struct cm_sidr_rep rep = { .request_id = req->request_id,
				   .status = status,
				   .service_id = req->service_id };

	cm_sidr_rep_encode(&rep, tid, mad);
}

static void refuse(struct cm *cm, const struct cm_address *from, const struct cm_sidr_req *req,
		   uint8_t status, uint64_t tid)
{
	uint8_t answer[256];

	encode_answer(req, status, tid, answer);
	cm_send_mad(cm, from, answer);
}

static struct connection *find_duplicate(const struct cm *cm, const struct cm_address *from,
					 uint32_t request_id, uint64_t tid)
{
	struct connection *c = NULL;

	while ((c = cm_connection_by_remote_id(cm, from->remote_gid, request_id, c)))
		if (c->passive && c->space == CM_PS_UDP && c->tid == tid)
			return c;
	return NULL;
}

/* 0 and a listener, or the status of the refusal. */
static uint8_t check(struct cm *cm, const struct cm_address *from, const struct cm_sidr_req *req,
		     struct cma_header *header, uint32_t *listener)
{
	*listener = 0;
	if (cm_service_is_ip(req->service_id) &&
	    (uint8_t)(req->service_id >> 16) == (uint8_t)CM_PS_UDP)
		*listener =
			cm_listener_find(cm, CM_PS_UDP, from->local_gid, (uint16_t)req->service_id);
	if (!*listener) {
		cm->statistics.no_listener++;
		return SIDR_NOT_SUPPORTED;
	}
	cma_header_parse(req->private_data, header);
	if (header->version != 0 || (header->ip_version != 4 && header->ip_version != 6) ||
	    !cm->io.own_address(cm->io.context, header->destination_gid) ||
	    (req->pkey & PKEY_MASK) != PKEY_MASK)
		return SIDR_REJECTED;
	if (cm->listener[*listener].pending < cm->config.backlog &&
	    cm_connection_pending_of_peer(cm, from->remote_gid) < cm->config.requests_per_peer &&
	    cm_connection_make_room(cm))
		return SIDR_VALID;
	cm->statistics.refused_backlog++;
	return SIDR_NO_QP;
}

static void tell_request(struct cm *cm, struct connection *c, const struct cm_sidr_req *req,
			 const struct cma_header *header)
{
	struct cm_parameters parameters = {
		.local_port = c->port,
		.remote_port = header->source_port,
		.traffic_class = c->address.traffic_class,
		.private_length = CM_SIDR_REQ_PRIVATE - CMA_HEADER_SIZE,
	};

	memcpy(parameters.private_data, req->private_data + CMA_HEADER_SIZE,
	       parameters.private_length);
	cm_connection_event(cm, c, CM_CONNECT_REQUEST, 0, &parameters);
}

static void take_request(struct cm *cm, const struct cm_address *from,
			 const struct cm_sidr_req *req, const struct cma_header *header,
			 uint32_t listener, uint64_t tid, uint64_t now)
{
	struct connection *c = cm_connection_create(cm, from);

	if (!c)
		return; /* check() has seen a free record */
	c->passive = 1;
	c->space = CM_PS_UDP;
	c->port = (uint16_t)req->service_id;
	c->listener = listener;
	c->cookie = cm->listener[listener].cookie;
	c->tid = tid;
	c->since = now;
	c->timewait = cm_timers_timewait(TIMEWAIT_CODE);
	cm_connection_set_remote(cm, c, req->request_id);
	cm_connection_set_state(cm, c, CONNECTION_SIDR_RECEIVED);
	tell_request(cm, c, req, header);
}

/* B77: whoever asks is answered each time, and not with silence. */
void cm_sidr_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t tid, uint64_t now)
{
	struct cma_header header;
	struct cm_sidr_req req;
	struct connection *known;
	uint32_t listener;
	uint8_t status;

	cm_sidr_req_parse(mad, &req);
	known = find_duplicate(cm, from, req.request_id, tid);
	if (known) {
		cm->statistics.duplicates++;
		if (known->state == CONNECTION_TIMEWAIT)
			cm_send_again(cm, known);
		return;
	}
	status = check(cm, from, &req, &header, &listener);
	if (status == SIDR_VALID)
		take_request(cm, from, &req, &header, listener, tid, now);
	else
		refuse(cm, from, &req, status, tid);
}

static void answer(struct cm *cm, struct connection *c, struct cm_sidr_rep *rep,
		   const uint8_t *private_data, uint32_t private_length)
{
	rep->request_id = c->remote_id;
	rep->service_id = cm_service_id(CM_PS_UDP, c->port);
	if (private_length)
		memcpy(rep->private_data, private_data, private_length);
	cm_sidr_rep_encode(rep, c->tid, c->mad);
	cm_send_again(cm, c);
}

static void remember(struct cm *cm, struct connection *c, uint64_t now)
{
	if (cm_connection_answered_of_peer(cm, c->address.remote_gid) <
	    cm->config.requests_per_peer)
		cm_connection_enter_timewait(cm, c, now);
	else
		cm_connection_finish(cm, c);
}

int cm_sidr_accept(struct cm *cm, struct connection *c, uint64_t cookie,
		   const struct cm_parameters *parameters, uint64_t now)
{
	struct cm_sidr_rep rep = { .status = SIDR_VALID,
				   .qpn = parameters->qpn,
				   .qkey = parameters->qkey };

	if (parameters->private_length > CM_SIDR_REP_PRIVATE)
		return -EMSGSIZE;
	c->cookie = cookie;
	answer(cm, c, &rep, parameters->private_data, parameters->private_length);
	remember(cm, c, now);
	return 0;
}

int cm_sidr_reject(struct cm *cm, struct connection *c, const struct cm_refusal *refusal,
		   uint64_t now)
{
	struct cm_sidr_rep rep = { .status = SIDR_REJECTED };

	if (refusal->private_length > CM_SIDR_REP_PRIVATE)
		return -EMSGSIZE;
	answer(cm, c, &rep, refusal->private_data, refusal->private_length);
	remember(cm, c, now);
	return 0;
}

void cm_sidr_drop(struct cm *cm, struct connection *c)
{
	struct cm_sidr_rep rep = { .status = SIDR_REJECTED };

	answer(cm, c, &rep, NULL, 0);
}
