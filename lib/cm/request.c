/* SPDX-License-Identifier: BSD-3-Clause */
/* Looks a REQ over: everything that is wrong with it before a connection is made for it. */
#include <string.h>

#include "cm/cm_private.h"
#include "wire/bth.h"
#include "wire/ip.h"

#define TRANSPORT_RC  0u
#define PKEY_MASK     0x7fffu
#define MTU_CODE_LAST 5u
#define PORT_SPACES   0x00ffu

static void set_ari(struct request_target *target, const void *ari, uint32_t length)
{
	memcpy(target->ari, ari, length);
	target->ari_length = length;
}

bool cm_qpn_possible(uint32_t qpn)
{
	return qpn > GSI_QPN && qpn < MULTICAST_QPN;
}

/*
 * Data will travel between the addresses that the REQ names. They have to be those that the
 * REQ itself travelled between: else the peer would have us send to a third party, or to it
 * from an address where its packets do not arrive.
 */
static uint32_t check_path(const struct cm_address *from, const struct cm_req *req,
			   struct request_target *target)
{
	if (!gid_equal(req->primary.remote_gid, from->local_gid)) {
		set_ari(target, from->local_gid, 16);
		return CM_REJ_INVALID_GID;
	}
	if (!gid_equal(req->primary.local_gid, from->remote_gid))
		return CM_REJ_UNSUPPORTED;
	if ((req->pkey & PKEY_MASK) != PKEY_MASK || !cm_qpn_possible(req->qpn))
		return CM_REJ_UNSUPPORTED;
	return 0;
}

static uint32_t check_service(struct cm *cm, const struct cm_address *from,
			      const struct cm_req *req, struct request_target *target)
{
	if (cm_service_is_ip(req->service_id)) {
		target->space = (enum cm_port_space)(req->service_id >> 16 & PORT_SPACES);
		target->port = (uint16_t)req->service_id;
		/* Nothing can be connected to a service of datagrams. */
		if (target->space != CM_PS_UDP)
			target->listener =
				cm_listener_find(cm, target->space, from->local_gid, target->port);
	}
	if (target->listener)
		return 0;
	cm->statistics.no_listener++;
	return CM_REJ_INVALID_SERVICE_ID;
}

/* Linux refuses these as its own kernel, with the reason of a consumer. */
static uint32_t check_cma_header(const struct cm *cm, const struct cm_req *req,
				 const struct request_target *target)
{
	struct cma_header header;

	if (target->space == CM_PS_IB)
		return 0;
	cma_header_parse(req->private_data, &header);
	if (header.version != 0 || (header.ip_version != 4 && header.ip_version != 6))
		return CM_REJ_CONSUMER;
	if (!cm->io.own_address(cm->io.context, header.destination_gid))
		return CM_REJ_CONSUMER;
	return 0;
}

/* The MTU that would do is told in the REQ's own code. */
static uint32_t check_mtu(const struct cm *cm, const struct cm_address *from,
			  const struct cm_req *req, struct request_target *target)
{
	uint32_t most = cm->io.max_path_mtu(cm->io.context, from);
	uint8_t code = MTU_CODE_LAST;

	if (req->path_mtu >= 1 && req->path_mtu <= MTU_CODE_LAST && 128u << req->path_mtu <= most)
		return 0;
	while (code > 1 && 128u << code > most)
		code--;
	set_ari(target, &code, 1);
	return CM_REJ_INVALID_MTU;
}

static uint32_t check_limits(struct cm *cm, const struct cm_address *from,
			     const struct request_target *target)
{
	if (cm->listener[target->listener].pending < cm->config.backlog &&
	    cm_connection_pending_of_peer(cm, from->remote_gid) < cm->config.requests_per_peer &&
	    cm_connection_make_room(cm))
		return 0;
	cm->statistics.refused_backlog++;
	return CM_REJ_NO_RESOURCES;
}

uint32_t cm_request_check(struct cm *cm, const struct cm_address *from, const struct cm_req *req,
			  struct request_target *target)
{
	uint32_t reason = 0;

	*target = (struct request_target){ 0 };
	if (req->transport != TRANSPORT_RC)
		return CM_REJ_INVALID_TRANSPORT_TYPE;
	reason = check_path(from, req, target);
	if (!reason)
		reason = check_service(cm, from, req, target);
	if (!reason)
		reason = check_cma_header(cm, req, target);
	if (!reason)
		reason = check_mtu(cm, from, req, target);
	if (!reason)
		reason = check_limits(cm, from, target);
	return reason;
}

void cm_request_parameters(const struct cm_req *req, const struct request_target *target,
			   struct cm_parameters *parameters)
{
	uint32_t header = target->space == CM_PS_IB ? 0 : CMA_HEADER_SIZE;
	struct cma_header cma = { 0 };

	if (header)
		cma_header_parse(req->private_data, &cma);
	*parameters = (struct cm_parameters){
		.qpn = req->qpn,
		.starting_psn = req->starting_psn,
		.qkey = req->qkey,
		.path_mtu = 128u << req->path_mtu,
		.responder_resources = req->responder_resources,
		.initiator_depth = req->initiator_depth,
		.retry_count = req->retry_count,
		.rnr_retry_count = req->rnr_retry_count,
		.ack_timeout = req->primary.ack_timeout,
		.traffic_class = req->primary.traffic_class,
		.hop_limit = req->primary.hop_limit,
		.srq = req->srq,
		.flow_label = req->primary.flow_label,
		.local_port = target->port,
		.remote_port = cma.source_port,
		.private_length = (uint8_t)(CM_REQ_PRIVATE - header),
	};
	/* How much of it the sender meant is not transmitted: all of it is passed on. */
	memcpy(parameters->private_data, req->private_data + header, CM_REQ_PRIVATE - header);
}
