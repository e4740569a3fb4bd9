/* SPDX-License-Identifier: BSD-3-Clause */
/* A MAD comes in: header checks, dispatch, and the questions that need no connection. */
#include <string.h>

#include "cm/cm_private.h"
#include "wire/byteorder.h"

#define BASE_VERSION        1u
#define CM_CLASS_VERSION    2u
#define METHOD_GET          0x01u
#define METHOD_GET_RESPONSE 0x81u
#define MAD_BODY            24u
#define RESPONSE_TIME_CODE  18u /* 1.07 s */
#define APR_NOT_SUPPORTED   2u

/* Versions, no capabilities, how long an answer may take. */
static void answer_class_port_info(struct cm *cm, const struct cm_address *from,
				   const uint8_t mad[256])
{
	uint8_t answer[256] = { 0 };

	memcpy(answer, mad, MAD_BODY);
	answer[3] = METHOD_GET_RESPONSE;
	answer[MAD_BODY] = BASE_VERSION;
	answer[MAD_BODY + 1] = CM_CLASS_VERSION;
	answer[MAD_BODY + 7] = RESPONSE_TIME_CODE;
	cm_send_mad(cm, from, answer);
}

/* There are no alternate paths on RoCE: APR, whatever the LAP names, with the ids swapped. */
static void refuse_path(struct cm *cm, const struct cm_address *from, const uint8_t mad[256])
{
	uint8_t answer[256] = { 0 };
	struct cm_rtu ids;

	cm_rtu_parse(mad, &ids); /* they stand at the same place in a LAP */
	if (!cm_connection_of_both_ids(cm, from, ids.local_id, ids.remote_id)) {
		cm->statistics.unknown++;
		return;
	}
	memcpy(answer, mad, MAD_BODY);
	put_be16(answer + 16, CM_ATTR_APR);
	put_be32(answer + 20, 0);
	memcpy(answer + MAD_BODY, mad + MAD_BODY + 4, 4);
	memcpy(answer + MAD_BODY + 4, mad + MAD_BODY, 4);
	answer[MAD_BODY + 9] = APR_NOT_SUPPORTED;
	cm_send_mad(cm, from, answer);
}

static bool is_ours(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		    const struct mad_header *header)
{
	if (header->base_version != BASE_VERSION || header->management_class != MAD_CLASS_CM ||
	    header->class_version != CM_CLASS_VERSION) {
		cm->statistics.malformed++;
		return false;
	}
	if (header->method == METHOD_GET && header->attribute == CM_ATTR_CLASS_PORT_INFO) {
		answer_class_port_info(cm, from, mad);
		return false;
	}
	if (header->method != MAD_METHOD_SEND) {
		cm->statistics.malformed++;
		return false;
	}
	return true;
}

void cm_receive(struct cm *cm, const struct cm_address *from, const uint8_t mad[256], uint64_t now)
{
	struct mad_header header;
	uint32_t kind;

	mad_parse_header(mad, &header);
	if (!is_ours(cm, from, mad, &header))
		return;
	kind = header.attribute - (uint32_t)CM_ATTR_REQ;
	if (kind < 32)
		cm->statistics.rx[kind]++;
	switch (header.attribute) {
	case CM_ATTR_REQ: cm_passive_request(cm, from, mad, header.tid, now); break;
	case CM_ATTR_MRA: cm_mra_received(cm, from, mad, now); break;
	case CM_ATTR_REJ: cm_reject_received(cm, from, mad, now); break;
	case CM_ATTR_REP: cm_active_reply(cm, from, mad, now); break;
	case CM_ATTR_RTU: cm_passive_rtu(cm, from, mad, now); break;
	case CM_ATTR_DREQ: cm_disconnect_request(cm, from, mad, header.tid, now); break;
	case CM_ATTR_DREP: cm_disconnect_reply(cm, from, mad, now); break;
	case CM_ATTR_SIDR_REQ: cm_sidr_request(cm, from, mad, header.tid, now); break;
	case CM_ATTR_SIDR_REP: cm_sidr_reply(cm, from, mad); break;
	case CM_ATTR_LAP: refuse_path(cm, from, mad); break;
	case CM_ATTR_APR: break; /* nobody asked: we send no LAP */
	default: cm->statistics.malformed++; break;
	}
}
