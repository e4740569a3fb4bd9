/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Management datagrams of the connection manager and the RDMA IP CM private-data header.
 *
 * A MAD is 256 bytes: 24 of header, 232 of message. Parsing gives host-order structures that hold
 * all fields that mean something on RoCE; encoding writes the whole MAD.
 */
#ifndef WIRE_MAD_H
#define WIRE_MAD_H

#include <stdbool.h>
#include <stdint.h>

#define MAD_SIZE        256u
#define MAD_CLASS_CM    0x07u
#define MAD_METHOD_SEND 0x03u

enum cm_attribute {
	CM_ATTR_CLASS_PORT_INFO = 0x0001,
	CM_ATTR_REQ = 0x0010,
	CM_ATTR_MRA,
	CM_ATTR_REJ,
	CM_ATTR_REP,
	CM_ATTR_RTU,
	CM_ATTR_DREQ,
	CM_ATTR_DREP,
	CM_ATTR_SIDR_REQ,
	CM_ATTR_SIDR_REP,
	CM_ATTR_LAP,
	CM_ATTR_APR,
};

enum cm_rej_reason {
	CM_REJ_NO_QP = 1,
	CM_REJ_NO_EEC,
	CM_REJ_NO_RESOURCES,
	CM_REJ_TIMEOUT,
	CM_REJ_UNSUPPORTED,
	CM_REJ_INVALID_COMM_ID,
	CM_REJ_INVALID_COMM_INSTANCE,
	CM_REJ_INVALID_SERVICE_ID,
	CM_REJ_INVALID_TRANSPORT_TYPE,
	CM_REJ_STALE_CONNECTION,
	CM_REJ_RDC_NOT_EXIST,
	CM_REJ_INVALID_GID,
	CM_REJ_INVALID_LID,
	CM_REJ_INVALID_SL,
	CM_REJ_INVALID_TRAFFIC_CLASS,
	CM_REJ_INVALID_HOP_LIMIT,
	CM_REJ_INVALID_PACKET_RATE,
	CM_REJ_INVALID_ALT_GID,
	CM_REJ_INVALID_ALT_LID,
	CM_REJ_INVALID_ALT_SL,
	CM_REJ_INVALID_ALT_TRAFFIC_CLASS,
	CM_REJ_INVALID_ALT_HOP_LIMIT,
	CM_REJ_INVALID_ALT_PACKET_RATE,
	CM_REJ_PORT_CM_REDIRECT,
	CM_REJ_PORT_REDIRECT,
	CM_REJ_INVALID_MTU,
	CM_REJ_INSUFFICIENT_RESP_RESOURCES,
	CM_REJ_CONSUMER,
	CM_REJ_RNR_RETRY_COUNT,
	CM_REJ_DUPLICATE_LOCAL_COMM_ID,
	CM_REJ_INVALID_CLASS_VERSION,
	CM_REJ_INVALID_FLOW_LABEL,
	CM_REJ_INVALID_ALT_FLOW_LABEL,
	CM_REJ_VENDOR_OPTION = 35,
};

/* What a REJ or MRA refers to. */
enum cm_subject { CM_SUBJECT_REQ = 0, CM_SUBJECT_REP = 1, CM_SUBJECT_OTHER = 2 };

/* Communication IDs are opaque: the four bytes as a big-endian number, only compared. */

struct mad_header {
	uint8_t base_version, management_class, class_version, method;
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attribute;
	uint32_t modifier;
};

struct cm_path {
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label; /* 20 bits */
	uint8_t rate;        /* 6 bits */
	uint8_t traffic_class, hop_limit;
	uint8_t sl; /* 4 bits */
	bool subnet_local;
	uint8_t ack_timeout; /* code, 5 bits */
};

#define CM_REQ_PRIVATE      92u
#define CM_MRA_PRIVATE      222u
#define CM_REJ_PRIVATE      148u
#define CM_REJ_ARI          72u
#define CM_REP_PRIVATE      196u
#define CM_RTU_PRIVATE      224u
#define CM_DREQ_PRIVATE     220u
#define CM_DREP_PRIVATE     224u
#define CM_SIDR_REQ_PRIVATE 216u
#define CM_SIDR_REP_PRIVATE 136u

struct cm_req {
	uint32_t local_id;
	uint32_t vendor_id;
	uint64_t service_id;
	uint64_t ca_guid;
	uint32_t qkey;
	uint32_t qpn;
	uint8_t responder_resources, initiator_depth;
	uint32_t local_eecn, remote_eecn;
	uint8_t remote_response_timeout, local_response_timeout; /* codes */
	uint8_t transport;                                       /* 0 RC, 1 UC, 2 RD, 3 extended */
	bool flow_control;
	uint32_t starting_psn;
	uint8_t retry_count, rnr_retry_count;
	uint16_t pkey;
	uint8_t path_mtu; /* code */
	bool rdc_exists, srq;
	uint8_t max_cm_retries;
	uint8_t extended_transport;
	struct cm_path primary, alternate;
	uint8_t private_data[CM_REQ_PRIVATE];
};

struct cm_mra {
	uint32_t local_id, remote_id;
	uint8_t subject;
	uint8_t service_timeout; /* code */
	uint8_t private_data[CM_MRA_PRIVATE];
};

struct cm_rej {
	uint32_t local_id, remote_id;
	uint8_t subject;
	uint8_t ari_length; /* bytes */
	uint16_t reason;
	uint8_t ari[CM_REJ_ARI];
	uint8_t private_data[CM_REJ_PRIVATE];
};

struct cm_rep {
	uint32_t local_id, remote_id;
	uint32_t qkey;
	uint32_t qpn;
	uint32_t vendor_id; /* spread over three bytes of the message */
	uint32_t local_eecn;
	uint32_t starting_psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay; /* code */
	uint8_t failover;
	bool flow_control, srq;
	uint8_t rnr_retry_count;
	uint64_t ca_guid;
	uint8_t private_data[CM_REP_PRIVATE];
};

struct cm_rtu { /* RTU and DREP have the same shape */
	uint32_t local_id, remote_id;
	uint8_t private_data[CM_RTU_PRIVATE];
};

struct cm_dreq {
	uint32_t local_id, remote_id;
	uint32_t remote_qpn; /* the receiver's */
	uint8_t private_data[CM_DREQ_PRIVATE];
};

struct cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t private_data[CM_SIDR_REQ_PRIVATE];
};

struct cm_sidr_rep {
	uint32_t request_id;
	uint8_t status; /* 0 valid, 1 service not supported, 2 rejected, 3 no QP, 4 redirect, 5
			   version */
	uint8_t info_length;
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t private_data[CM_SIDR_REP_PRIVATE];
};

void mad_parse_header(const uint8_t mad[MAD_SIZE], struct mad_header *header);

/* The caller has looked at the header: every 256 bytes make some message of each kind. */
void cm_req_parse(const uint8_t mad[MAD_SIZE], struct cm_req *req);
void cm_mra_parse(const uint8_t mad[MAD_SIZE], struct cm_mra *mra);
void cm_rej_parse(const uint8_t mad[MAD_SIZE], struct cm_rej *rej);
void cm_rep_parse(const uint8_t mad[MAD_SIZE], struct cm_rep *rep);
void cm_rtu_parse(const uint8_t mad[MAD_SIZE], struct cm_rtu *rtu); /* and DREP */
void cm_dreq_parse(const uint8_t mad[MAD_SIZE], struct cm_dreq *dreq);
void cm_sidr_req_parse(const uint8_t mad[MAD_SIZE], struct cm_sidr_req *req);
void cm_sidr_rep_parse(const uint8_t mad[MAD_SIZE], struct cm_sidr_rep *rep);

void cm_req_encode(const struct cm_req *req, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_mra_encode(const struct cm_mra *mra, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_rej_encode(const struct cm_rej *rej, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_rep_encode(const struct cm_rep *rep, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_rtu_encode(const struct cm_rtu *rtu, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_drep_encode(const struct cm_rtu *drep, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_dreq_encode(const struct cm_dreq *dreq, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_sidr_req_encode(const struct cm_sidr_req *req, uint64_t tid, uint8_t mad[MAD_SIZE]);
void cm_sidr_rep_encode(const struct cm_sidr_rep *rep, uint64_t tid, uint8_t mad[MAD_SIZE]);

/* --- RDMA IP CM service -------------------------------------------------------------- */

#define CMA_HEADER_SIZE 36u

/* In front of the user's private data of REQ and SIDR_REQ. GIDs: IPv4 as ::ffff:a.b.c.d. */
struct cma_header {
	uint8_t version;    /* major 4 bits, minor 4 bits: 0 */
	uint8_t ip_version; /* 4 or 6 */
	uint16_t source_port;
	uint8_t source_gid[16], destination_gid[16];
};

void cma_header_parse(const uint8_t data[CMA_HEADER_SIZE], struct cma_header *header);
void cma_header_encode(const struct cma_header *header, uint8_t data[CMA_HEADER_SIZE]);

/* Service ID of an IP port: prefix 01, the IP protocol's byte (06, 11, 3f), the port. */
static inline uint64_t cm_service_id(uint8_t protocol, uint16_t port)
{
	return 0x0000000001000000ull | (uint64_t)protocol << 16 | port;
}

static inline bool cm_service_is_ip(uint64_t service_id)
{
	return service_id >> 24 == 1;
}

#endif
