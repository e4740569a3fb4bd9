/* SPDX-License-Identifier: BSD-3-Clause */
/* Management datagrams of the connection manager and the RDMA IP CM private-data header. */
#include "wire/mad.h"

#include <string.h>

#include "wire/byteorder.h"
#include "wire/ip.h"

#define BODY 24u /* bytes of MAD header before the message */

void mad_parse_header(const uint8_t mad[MAD_SIZE], struct mad_header *header)
{
	*header = (struct mad_header){ .base_version = mad[0],
				       .management_class = mad[1],
				       .class_version = mad[2],
				       .method = mad[3],
				       .status = get_be16(mad + 4),
				       .class_specific = get_be16(mad + 6),
				       .tid = get_be64(mad + 8),
				       .attribute = get_be16(mad + 16),
				       .modifier = get_be32(mad + 20) };
}

/* Zeroes the MAD, writes its header, and gives the place of the message. */
static uint8_t *begin(uint8_t mad[MAD_SIZE], enum cm_attribute attribute, uint64_t tid)
{
	memset(mad, 0, MAD_SIZE);
	mad[0] = 1;
	mad[1] = MAD_CLASS_CM;
	mad[2] = 2;
	mad[3] = MAD_METHOD_SEND;
	put_be64(mad + 8, tid);
	put_be16(mad + 16, (uint16_t)attribute);
	return mad + BODY;
}

/* --- REQ ------------------------------------------------------------------------------- */

static void path_parse(const uint8_t *m, struct cm_path *path)
{
	path->local_lid = get_be16(m);
	path->remote_lid = get_be16(m + 2);
	memcpy(path->local_gid, m + 4, 16);
	memcpy(path->remote_gid, m + 20, 16);
	path->flow_label = get_be32(m + 36) >> 12;
	path->rate = m[39] & 0x3f;
	path->traffic_class = m[40];
	path->hop_limit = m[41];
	path->sl = m[42] >> 4;
	path->subnet_local = m[42] & 0x08;
	path->ack_timeout = m[43] >> 3;
}

static void path_encode(const struct cm_path *path, uint8_t *m)
{
	put_be16(m, path->local_lid);
	put_be16(m + 2, path->remote_lid);
	memcpy(m + 4, path->local_gid, 16);
	memcpy(m + 20, path->remote_gid, 16);
	put_be32(m + 36, path->flow_label << 12 | (path->rate & 0x3f));
	m[40] = path->traffic_class;
	m[41] = path->hop_limit;
	m[42] = (uint8_t)(path->sl << 4 | (path->subnet_local ? 0x08 : 0));
	m[43] = (uint8_t)(path->ack_timeout << 3);
}

void cm_req_parse(const uint8_t mad[MAD_SIZE], struct cm_req *req)
{
	const uint8_t *m = mad + BODY;

	*req = (struct cm_req){ .local_id = get_be32(m),
				.vendor_id = get_be24(m + 5),
				.service_id = get_be64(m + 8),
				.ca_guid = get_be64(m + 16),
				.qkey = get_be32(m + 28),
				.qpn = get_be24(m + 32),
				.responder_resources = m[35],
				.local_eecn = get_be24(m + 36),
				.initiator_depth = m[39],
				.remote_eecn = get_be24(m + 40),
				.remote_response_timeout = m[43] >> 3,
				.transport = m[43] >> 1 & 3,
				.flow_control = m[43] & 1,
				.starting_psn = get_be24(m + 44),
				.local_response_timeout = m[47] >> 3,
				.retry_count = m[47] & 7,
				.pkey = get_be16(m + 48),
				.path_mtu = m[50] >> 4,
				.rdc_exists = m[50] & 0x08,
				.rnr_retry_count = m[50] & 7,
				.max_cm_retries = m[51] >> 4,
				.srq = m[51] & 0x08,
				.extended_transport = m[51] & 7 };
	path_parse(m + 52, &req->primary);
	path_parse(m + 96, &req->alternate);
	memcpy(req->private_data, m + 140, CM_REQ_PRIVATE);
}

void cm_req_encode(const struct cm_req *req, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_REQ, tid);

	put_be32(m, req->local_id);
	put_be24(m + 5, req->vendor_id);
	put_be64(m + 8, req->service_id);
	put_be64(m + 16, req->ca_guid);
	put_be32(m + 28, req->qkey);
	put_be24(m + 32, req->qpn);
	m[35] = req->responder_resources;
	put_be24(m + 36, req->local_eecn);
	m[39] = req->initiator_depth;
	put_be24(m + 40, req->remote_eecn);
	m[43] = (uint8_t)(req->remote_response_timeout << 3 | (req->transport & 3) << 1 |
			  req->flow_control);
	put_be24(m + 44, req->starting_psn);
	m[47] = (uint8_t)(req->local_response_timeout << 3 | (req->retry_count & 7));
	put_be16(m + 48, req->pkey);
	m[50] = (uint8_t)(req->path_mtu << 4 | (req->rdc_exists ? 0x08 : 0) |
			  (req->rnr_retry_count & 7));
	m[51] = (uint8_t)(req->max_cm_retries << 4 | (req->srq ? 0x08 : 0) |
			  (req->extended_transport & 7));
	path_encode(&req->primary, m + 52);
	path_encode(&req->alternate, m + 96);
	memcpy(m + 140, req->private_data, CM_REQ_PRIVATE);
}

/* --- MRA, REJ ------------------------------------------------------------------------------ */

void cm_mra_parse(const uint8_t mad[MAD_SIZE], struct cm_mra *mra)
{
	const uint8_t *m = mad + BODY;

	mra->local_id = get_be32(m);
	mra->remote_id = get_be32(m + 4);
	mra->subject = m[8] >> 6;
	mra->service_timeout = m[9] >> 3;
	memcpy(mra->private_data, m + 10, CM_MRA_PRIVATE);
}

void cm_mra_encode(const struct cm_mra *mra, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_MRA, tid);

	put_be32(m, mra->local_id);
	put_be32(m + 4, mra->remote_id);
	m[8] = (uint8_t)(mra->subject << 6);
	m[9] = (uint8_t)(mra->service_timeout << 3);
	memcpy(m + 10, mra->private_data, CM_MRA_PRIVATE);
}

void cm_rej_parse(const uint8_t mad[MAD_SIZE], struct cm_rej *rej)
{
	const uint8_t *m = mad + BODY;

	rej->local_id = get_be32(m);
	rej->remote_id = get_be32(m + 4);
	rej->subject = m[8] >> 6;
	rej->ari_length = m[9] >> 1;
	rej->reason = get_be16(m + 10);
	memcpy(rej->ari, m + 12, CM_REJ_ARI);
	memcpy(rej->private_data, m + 84, CM_REJ_PRIVATE);
}

void cm_rej_encode(const struct cm_rej *rej, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_REJ, tid);

	put_be32(m, rej->local_id);
	put_be32(m + 4, rej->remote_id);
	m[8] = (uint8_t)(rej->subject << 6);
	m[9] = (uint8_t)(rej->ari_length << 1);
	put_be16(m + 10, rej->reason);
	memcpy(m + 12, rej->ari, CM_REJ_ARI);
	memcpy(m + 84, rej->private_data, CM_REJ_PRIVATE);
}

/* --- REP, RTU, DREQ, DREP -------------------------------------------------------------------- */

void cm_rep_parse(const uint8_t mad[MAD_SIZE], struct cm_rep *rep)
{
	const uint8_t *m = mad + BODY;

	*rep = (struct cm_rep){ .local_id = get_be32(m),
				.remote_id = get_be32(m + 4),
				.qkey = get_be32(m + 8),
				.qpn = get_be24(m + 12),
				.vendor_id = (uint32_t)m[15] << 16 | (uint32_t)m[19] << 8 | m[23],
				.local_eecn = get_be24(m + 16),
				.starting_psn = get_be24(m + 20),
				.responder_resources = m[24],
				.initiator_depth = m[25],
				.target_ack_delay = m[26] >> 3,
				.failover = m[26] >> 1 & 3,
				.flow_control = m[26] & 1,
				.rnr_retry_count = m[27] >> 5,
				.srq = m[27] & 0x10,
				.ca_guid = get_be64(m + 28) };
	memcpy(rep->private_data, m + 36, CM_REP_PRIVATE);
}

void cm_rep_encode(const struct cm_rep *rep, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_REP, tid);

	put_be32(m, rep->local_id);
	put_be32(m + 4, rep->remote_id);
	put_be32(m + 8, rep->qkey);
	put_be24(m + 12, rep->qpn);
	m[15] = (uint8_t)(rep->vendor_id >> 16);
	put_be24(m + 16, rep->local_eecn);
	m[19] = (uint8_t)(rep->vendor_id >> 8);
	put_be24(m + 20, rep->starting_psn);
	m[23] = (uint8_t)rep->vendor_id;
	m[24] = rep->responder_resources;
	m[25] = rep->initiator_depth;
	m[26] = (uint8_t)(rep->target_ack_delay << 3 | (rep->failover & 3) << 1 |
			  rep->flow_control);
	m[27] = (uint8_t)(rep->rnr_retry_count << 5 | (rep->srq ? 0x10 : 0));
	put_be64(m + 28, rep->ca_guid);
	memcpy(m + 36, rep->private_data, CM_REP_PRIVATE);
}

void cm_rtu_parse(const uint8_t mad[MAD_SIZE], struct cm_rtu *rtu)
{
	const uint8_t *m = mad + BODY;

	rtu->local_id = get_be32(m);
	rtu->remote_id = get_be32(m + 4);
	memcpy(rtu->private_data, m + 8, CM_RTU_PRIVATE);
}

static void two_ids_encode(uint8_t *m, const struct cm_rtu *rtu)
{
	put_be32(m, rtu->local_id);
	put_be32(m + 4, rtu->remote_id);
	memcpy(m + 8, rtu->private_data, CM_RTU_PRIVATE);
}

void cm_rtu_encode(const struct cm_rtu *rtu, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	two_ids_encode(begin(mad, CM_ATTR_RTU, tid), rtu);
}

void cm_drep_encode(const struct cm_rtu *drep, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	two_ids_encode(begin(mad, CM_ATTR_DREP, tid), drep);
}

void cm_dreq_parse(const uint8_t mad[MAD_SIZE], struct cm_dreq *dreq)
{
	const uint8_t *m = mad + BODY;

	dreq->local_id = get_be32(m);
	dreq->remote_id = get_be32(m + 4);
	dreq->remote_qpn = get_be24(m + 8);
	memcpy(dreq->private_data, m + 12, CM_DREQ_PRIVATE);
}

void cm_dreq_encode(const struct cm_dreq *dreq, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_DREQ, tid);

	put_be32(m, dreq->local_id);
	put_be32(m + 4, dreq->remote_id);
	put_be24(m + 8, dreq->remote_qpn);
	memcpy(m + 12, dreq->private_data, CM_DREQ_PRIVATE);
}

/* --- SIDR ------------------------------------------------------------------------------------- */

void cm_sidr_req_parse(const uint8_t mad[MAD_SIZE], struct cm_sidr_req *req)
{
	const uint8_t *m = mad + BODY;

	req->request_id = get_be32(m);
	req->pkey = get_be16(m + 4);
	req->service_id = get_be64(m + 8);
	memcpy(req->private_data, m + 16, CM_SIDR_REQ_PRIVATE);
}

void cm_sidr_req_encode(const struct cm_sidr_req *req, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_SIDR_REQ, tid);

	put_be32(m, req->request_id);
	put_be16(m + 4, req->pkey);
	put_be64(m + 8, req->service_id);
	memcpy(m + 16, req->private_data, CM_SIDR_REQ_PRIVATE);
}

void cm_sidr_rep_parse(const uint8_t mad[MAD_SIZE], struct cm_sidr_rep *rep)
{
	const uint8_t *m = mad + BODY;

	rep->request_id = get_be32(m);
	rep->status = m[4];
	rep->info_length = m[5];
	rep->qpn = get_be24(m + 8);
	rep->service_id = get_be64(m + 12);
	rep->qkey = get_be32(m + 20);
	memcpy(rep->private_data, m + 96, CM_SIDR_REP_PRIVATE);
}

void cm_sidr_rep_encode(const struct cm_sidr_rep *rep, uint64_t tid, uint8_t mad[MAD_SIZE])
{
	uint8_t *m = begin(mad, CM_ATTR_SIDR_REP, tid);

	put_be32(m, rep->request_id);
	m[4] = rep->status;
	m[5] = rep->info_length;
	put_be24(m + 8, rep->qpn);
	put_be64(m + 12, rep->service_id);
	put_be32(m + 20, rep->qkey);
	memcpy(m + 96, rep->private_data, CM_SIDR_REP_PRIVATE);
}

/* --- RDMA IP CM service ----------------------------------------------------------------------- */

static void address_parse_cma(const uint8_t field[16], uint8_t ip_version, uint8_t gid[16])
{
	if (ip_version == 4)
		gid_from_v4(gid, field + 12);
	else
		memcpy(gid, field, 16);
}

void cma_header_parse(const uint8_t data[CMA_HEADER_SIZE], struct cma_header *header)
{
	header->version = data[0];
	header->ip_version = data[1] >> 4;
	header->source_port = get_be16(data + 2);
	address_parse_cma(data + 4, header->ip_version, header->source_gid);
	address_parse_cma(data + 20, header->ip_version, header->destination_gid);
}

void cma_header_encode(const struct cma_header *header, uint8_t data[CMA_HEADER_SIZE])
{
	memset(data, 0, CMA_HEADER_SIZE);
	data[0] = header->version;
	data[1] = (uint8_t)(header->ip_version << 4);
	put_be16(data + 2, header->source_port);
	if (header->ip_version == 4) {
		/* The last four of sixteen bytes, the rest zero: not the mapped form of a GID. */
		memcpy(data + 16, header->source_gid + 12, 4);
		memcpy(data + 32, header->destination_gid + 12, 4);
	} else {
		memcpy(data + 4, header->source_gid, 16);
		memcpy(data + 20, header->destination_gid, 16);
	}
}
