/* SPDX-License-Identifier: BSD-3-Clause */
/* Each message that the connection manager sends, built and sent. */
#include <string.h>

#include "cm/cm_private.h"
#include "wire/byteorder.h"
#include "wire/ip.h"

#define RESPONSE_TIMEOUT_CODE 20u /* 4.3 s, as rdma_cm */
#define SERVICE_TIMEOUT_CODE  24u
#define MAX_CM_RETRIES        15u
#define PKEY_DEFAULT          0xffffu
#define LID_PERMISSIVE        0xffffu
#define ATTRIBUTE_OFFSET      16u

#define FAILOVER_NOT_SUPPORTED 1u /* no alternate paths on RoCE */

void cm_send_mad(struct cm *cm, const struct cm_address *to, const uint8_t mad[256])
{
	uint32_t kind = get_be16(mad + ATTRIBUTE_OFFSET) - (uint32_t)CM_ATTR_REQ;

	if (kind < 32)
		cm->statistics.tx[kind]++;
	cm->io.send(cm->io.context, to, mad);
}

void cm_send_again(struct cm *cm, const struct connection *c)
{
	cm_send_mad(cm, &c->address, c->mad);
}

uint64_t cm_own_guid(const struct cm *cm)
{
	return get_be64(cm->config.ca_guid);
}

/* --- REQ, REP, RTU -------------------------------------------------------------------- */

static uint8_t mtu_code(uint32_t bytes)
{
	uint8_t code = 1;

	while (code < 5 && 128u << (code + 1) <= bytes)
		code++;
	return code;
}

/* As Linux fills it for RoCE: LIDs say nothing unless the path is confined to the link. */
static void fill_path(struct cm_path *path, const struct connection *c,
		      const struct cm_parameters *p)
{
	path->hop_limit = p->hop_limit ? p->hop_limit : 64;
	path->subnet_local = path->hop_limit == 1;
	if (!path->subnet_local)
		path->local_lid = path->remote_lid = LID_PERMISSIVE;
	memcpy(path->local_gid, c->address.local_gid, 16);
	memcpy(path->remote_gid, c->address.remote_gid, 16);
	path->flow_label = p->flow_label & 0xfffff;
	path->traffic_class = p->traffic_class;
	path->ack_timeout = p->ack_timeout & 31;
}

static uint32_t fill_cma_header(const struct connection *c, const struct cm_parameters *p,
				uint8_t *data)
{
	struct cma_header header = {
		.ip_version = gid_is_v4(c->address.remote_gid) ? 4 : 6,
		.source_port = p->local_port,
	};

	if (c->space == CM_PS_IB)
		return 0;
	memcpy(header.source_gid, c->address.local_gid, 16);
	memcpy(header.destination_gid, c->address.remote_gid, 16);
	cma_header_encode(&header, data);
	return CMA_HEADER_SIZE;
}

void cm_send_req(struct cm *cm, struct connection *c, const struct cm_parameters *p)
{
	struct cm_req req = {
		.local_id = c->local_id,
		.service_id = cm_service_id(c->space, p->remote_port),
		.ca_guid = cm_own_guid(cm),
		.qkey = p->qkey,
		.qpn = p->qpn,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.remote_response_timeout = RESPONSE_TIMEOUT_CODE,
		.local_response_timeout = RESPONSE_TIMEOUT_CODE,
		.starting_psn = p->starting_psn,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.pkey = PKEY_DEFAULT,
		.path_mtu = mtu_code(p->path_mtu),
		.srq = p->srq,
		.max_cm_retries = MAX_CM_RETRIES,
	};
	uint32_t header;

	fill_path(&req.primary, c, p);
	header = fill_cma_header(c, p, req.private_data);
	memcpy(req.private_data + header, p->private_data, p->private_length);
	cm_req_encode(&req, c->tid, c->mad);
	c->max_repeats = MAX_CM_RETRIES;
	c->interval = cm_timers_interval(RESPONSE_TIMEOUT_CODE);
	cm_send_again(cm, c);
}

void cm_send_rep(struct cm *cm, struct connection *c, const struct cm_parameters *p)
{
	struct cm_rep rep = {
		.local_id = c->local_id,
		.remote_id = c->remote_id,
		.qkey = p->qkey,
		.qpn = p->qpn,
		.starting_psn = p->starting_psn,
		.responder_resources = p->responder_resources,
		.initiator_depth = p->initiator_depth,
		.target_ack_delay = p->ack_timeout,
		.failover = c->alternate ? FAILOVER_NOT_SUPPORTED : 0,
		.srq = p->srq,
		.rnr_retry_count = p->rnr_retry_count,
		.ca_guid = cm_own_guid(cm),
	};

	memcpy(rep.private_data, p->private_data, p->private_length);
	cm_rep_encode(&rep, c->tid, c->mad);
	cm_send_again(cm, c);
}

void cm_send_rtu(struct cm *cm, struct connection *c, const uint8_t *private_data, uint32_t length)
{
	struct cm_rtu rtu = { .local_id = c->local_id, .remote_id = c->remote_id };

	if (length)
		memcpy(rtu.private_data, private_data, length);
	cm_rtu_encode(&rtu, c->tid, c->mad);
	cm_send_again(cm, c);
}

/* --- MRA, REJ ------------------------------------------------------------------------- */

void cm_send_mra(struct cm *cm, const struct connection *c, enum cm_subject subject)
{
	struct cm_mra mra = {
		.local_id = c->local_id,
		.remote_id = c->remote_id,
		.subject = (uint8_t)subject,
		.service_timeout = SERVICE_TIMEOUT_CODE,
	};
	uint8_t mad[256];

	cm_mra_encode(&mra, c->tid, mad);
	cm_send_mad(cm, &c->address, mad);
}

static void encode_rej(struct cm_rej *rej, const struct cm_refusal *refusal, uint64_t tid,
		       uint8_t mad[256])
{
	rej->reason = (uint16_t)refusal->reason;
	rej->ari_length = (uint8_t)refusal->ari_length;
	if (refusal->ari_length)
		memcpy(rej->ari, refusal->ari, refusal->ari_length);
	if (refusal->private_length)
		memcpy(rej->private_data, refusal->private_data, refusal->private_length);
	cm_rej_encode(rej, tid, mad);
}

void cm_send_rej(struct cm *cm, struct connection *c, enum cm_subject subject,
		 const struct cm_refusal *refusal)
{
	struct cm_rej rej = { .local_id = c->local_id,
			      .remote_id = c->remote_id,
			      .subject = (uint8_t)subject };

	encode_rej(&rej, refusal, c->tid, c->mad);
	cm_send_again(cm, c);
}

void cm_send_rej_stray(struct cm *cm, const struct cm_address *to, uint64_t tid, uint32_t remote_id,
		       const struct cm_refusal *refusal)
{
	struct cm_rej rej = { .remote_id = remote_id, .subject = CM_SUBJECT_REQ };
	uint8_t mad[256];

	encode_rej(&rej, refusal, tid, mad);
	cm_send_mad(cm, to, mad);
}

/* The peer may not know our id: it finds its connection by our GUID (ARI) and its own memory. */
void cm_send_rej_timeout(struct cm *cm, struct connection *c)
{
	struct cm_refusal refusal = { .reason = CM_REJ_TIMEOUT,
				      .ari = cm->config.ca_guid,
				      .ari_length = sizeof(cm->config.ca_guid) };

	cm_send_rej(cm, c, c->passive ? CM_SUBJECT_REP : CM_SUBJECT_REQ, &refusal);
}

/* --- DREQ, DREP ----------------------------------------------------------------------- */

void cm_send_dreq(struct cm *cm, struct connection *c)
{
	struct cm_dreq dreq = { .local_id = c->local_id,
				.remote_id = c->remote_id,
				.remote_qpn = c->remote_qpn };
	uint64_t tid = (uint64_t)cm->io.random(cm->io.context) << 32 | c->local_id;

	cm_dreq_encode(&dreq, tid, c->mad);
	cm_send_again(cm, c);
}

/* To whoever asks, with the ids swapped; a DREQ for a connection long gone is answered too. */
void cm_send_drep(struct cm *cm, const struct cm_address *to, const struct cm_dreq *dreq,
		  uint64_t tid)
{
	struct cm_rtu drep = { .local_id = dreq->remote_id, .remote_id = dreq->local_id };
	uint8_t mad[256];

	cm_drep_encode(&drep, tid, mad);
	cm_send_mad(cm, to, mad);
}
