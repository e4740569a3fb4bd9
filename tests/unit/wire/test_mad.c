/* SPDX-License-Identifier: BSD-3-Clause */
/* CM datagrams: every field at its bits, the captured ones parsed and made again. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "frames.h"
#include "wire/mad.h"
#include "wire/packet.h"

#define TID 0x0102030405060708ull

/* A field of the message: byte offset behind the MAD header, first bit from the left, width. */
struct bits {
	const char *name;
	uint32_t byte, bit, width;
	uint64_t value;
};

static uint64_t bits_get(const uint8_t *message, const struct bits *field)
{
	uint64_t value = 0;

	for (uint32_t i = 0; i < field->width; i++) {
		const uint32_t at = field->byte * 8 + field->bit + i;

		value = value << 1 | (message[at / 8] >> (7 - at % 8) & 1);
	}
	return value;
}

static void bits_clear(uint8_t *message, const struct bits *field)
{
	for (uint32_t i = 0; i < field->width; i++) {
		const uint32_t at = field->byte * 8 + field->bit + i;

		message[at / 8] &= (uint8_t) ~(0x80 >> at % 8);
	}
}

/* The MAD is header, these fields, then opaque data of 0x5a, and zero everywhere else. */
static void check_layout(const uint8_t mad[MAD_SIZE], enum cm_attribute attribute,
			 const struct bits *fields, size_t count, uint32_t opaque_at,
			 uint32_t opaque_length)
{
	uint8_t message[232];

	cr_expect_arr_eq(mad, ((uint8_t[]){ 1, 7, 2, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 }), 16);
	cr_expect_eq(get_be16(mad + 16), (uint32_t)attribute);
	cr_expect_arr_eq(mad + 18, ((uint8_t[6]){ 0 }), 6);
	memcpy(message, mad + 24, sizeof(message));
	for (size_t i = 0; i < count; i++) {
		cr_expect_eq(bits_get(message, &fields[i]), fields[i].value, "%s", fields[i].name);
		bits_clear(message, &fields[i]);
	}
	for (uint32_t i = 0; i < sizeof(message); i++) {
		const bool opaque = i >= opaque_at && i < opaque_at + opaque_length;

		cr_expect_eq(message[i], opaque ? 0x5a : 0, "byte %u of the message", i);
	}
}
#define CHECK(mad, attribute, fields, at, length) \
	check_layout(mad, attribute, fields, sizeof(fields) / sizeof(fields[0]), at, length)

/* --- layouts -------------------------------------------------------------------------------- */

static const struct cm_path path_a = {
	.local_lid = 0xf001,
	.remote_lid = 0xf002,
	.local_gid = { 0x11, [7] = 0xff, [15] = 0x12 },
	.remote_gid = { 0x21, [15] = 0x22 },
	.flow_label = 0xabcde,
	.rate = 0x2d,
	.traffic_class = 0x6a,
	.hop_limit = 64,
	.sl = 0xb,
	.subnet_local = true,
	.ack_timeout = 0x13,
};
static const struct cm_path path_b = {
	.local_lid = 0xe001,
	.remote_lid = 0xe002,
	.local_gid = { 0x31, [15] = 0x32 },
	.remote_gid = { 0x41, [15] = 0x42 },
	.flow_label = 0x54321,
	.rate = 0x12,
	.traffic_class = 0x95,
	.hop_limit = 255,
	.sl = 0x4,
	.subnet_local = false,
	.ack_timeout = 0x0c,
};

static const struct bits req_fields[] = {
	{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
	{ "vendor ID", 5, 0, 24, 0xb1b2b3 },
	{ "service ID", 8, 0, 64, 0x0000000001061c06 },
	{ "CA GUID", 16, 0, 64, 0xc1c2c3c4c5c6c7c8 },
	{ "Q_Key", 28, 0, 32, 0xd1d2d3d4 },
	{ "QPN", 32, 0, 24, 0xe1e2e3 },
	{ "responder resources", 35, 0, 8, 0x91 },
	{ "local EECN", 36, 0, 24, 0x919293 },
	{ "initiator depth", 39, 0, 8, 0x92 },
	{ "remote EECN", 40, 0, 24, 0x949596 },
	{ "remote response timeout", 43, 0, 5, 0x15 },
	{ "transport", 43, 5, 2, 2 },
	{ "flow control", 43, 7, 1, 1 },
	{ "starting PSN", 44, 0, 24, 0x96a956 },
	{ "local response timeout", 47, 0, 5, 0x12 },
	{ "retry count", 47, 5, 3, 5 },
	{ "P_Key", 48, 0, 16, 0x8001 },
	{ "path MTU", 50, 0, 4, 5 },
	{ "RDC exists", 50, 4, 1, 1 },
	{ "RNR retry count", 50, 5, 3, 6 },
	{ "max CM retries", 51, 0, 4, 0xf },
	{ "SRQ", 51, 4, 1, 1 },
	{ "extended transport", 51, 5, 3, 1 },
	{ "primary LIDs", 52, 0, 32, 0xf001f002 },
	{ "primary local GID", 56, 0, 64, 0x11000000000000ff },
	{ "primary local GID, end", 64, 0, 64, 0x12 },
	{ "primary remote GID", 72, 0, 64, 0x2100000000000000 },
	{ "primary remote GID, end", 80, 0, 64, 0x22 },
	{ "primary flow label", 88, 0, 20, 0xabcde },
	{ "primary rate", 91, 2, 6, 0x2d },
	{ "primary traffic class", 92, 0, 8, 0x6a },
	{ "primary hop limit", 93, 0, 8, 64 },
	{ "primary SL", 94, 0, 4, 0xb },
	{ "primary subnet local", 94, 4, 1, 1 },
	{ "primary ACK timeout", 95, 0, 5, 0x13 },
	{ "alternate LIDs", 96, 0, 32, 0xe001e002 },
	{ "alternate local GID", 100, 0, 64, 0x3100000000000000 },
	{ "alternate local GID, end", 108, 0, 64, 0x32 },
	{ "alternate remote GID", 116, 0, 64, 0x4100000000000000 },
	{ "alternate remote GID, end", 124, 0, 64, 0x42 },
	{ "alternate flow label", 132, 0, 20, 0x54321 },
	{ "alternate rate", 135, 2, 6, 0x12 },
	{ "alternate traffic class", 136, 0, 8, 0x95 },
	{ "alternate hop limit", 137, 0, 8, 255 },
	{ "alternate SL", 138, 0, 4, 4 },
	{ "alternate subnet local", 138, 4, 1, 0 },
	{ "alternate ACK timeout", 139, 0, 5, 0x0c },
};

Test(wire_mad, req_layout)
{
	struct cm_req req = {
		.local_id = 0xa1a2a3a4,
		.vendor_id = 0xb1b2b3,
		.service_id = cm_service_id(6, 7174),
		.ca_guid = 0xc1c2c3c4c5c6c7c8,
		.qkey = 0xd1d2d3d4,
		.qpn = 0xe1e2e3,
		.responder_resources = 0x91,
		.initiator_depth = 0x92,
		.local_eecn = 0x919293,
		.remote_eecn = 0x949596,
		.remote_response_timeout = 0x15,
		.local_response_timeout = 0x12,
		.transport = 2,
		.flow_control = true,
		.starting_psn = 0x96a956,
		.retry_count = 5,
		.rnr_retry_count = 6,
		.pkey = 0x8001,
		.path_mtu = 5,
		.rdc_exists = true,
		.srq = true,
		.max_cm_retries = 15,
		.extended_transport = 1,
		.primary = path_a,
		.alternate = path_b,
	};
	uint8_t mad[MAD_SIZE];

	memset(req.private_data, 0x5a, sizeof(req.private_data));
	cm_req_encode(&req, TID, mad);
	CHECK(mad, CM_ATTR_REQ, req_fields, 140, 92);
}

Test(wire_mad, rep_layout)
{
	static const struct bits fields[] = {
		{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "remote ID", 4, 0, 32, 0xb1b2b3b4 },
		{ "Q_Key", 8, 0, 32, 0xd1d2d3d4 },
		{ "QPN", 12, 0, 24, 0xe1e2e3 },
		{ "vendor ID, high", 15, 0, 8, 0xf1 },
		{ "local EECN", 16, 0, 24, 0x919293 },
		{ "vendor ID, middle", 19, 0, 8, 0xf2 },
		{ "starting PSN", 20, 0, 24, 0xfb04e6 },
		{ "vendor ID, low", 23, 0, 8, 0xf3 },
		{ "responder resources", 24, 0, 8, 0x91 },
		{ "initiator depth", 25, 0, 8, 0x92 },
		{ "target ACK delay", 26, 0, 5, 0x15 },
		{ "failover", 26, 5, 2, 2 },
		{ "flow control", 26, 7, 1, 1 },
		{ "RNR retry count", 27, 0, 3, 5 },
		{ "SRQ", 27, 3, 1, 1 },
		{ "CA GUID", 28, 0, 64, 0xc1c2c3c4c5c6c7c8 },
	};
	struct cm_rep rep = { .local_id = 0xa1a2a3a4,
			      .remote_id = 0xb1b2b3b4,
			      .qkey = 0xd1d2d3d4,
			      .qpn = 0xe1e2e3,
			      .vendor_id = 0xf1f2f3,
			      .local_eecn = 0x919293,
			      .starting_psn = 0xfb04e6,
			      .responder_resources = 0x91,
			      .initiator_depth = 0x92,
			      .target_ack_delay = 0x15,
			      .failover = 2,
			      .flow_control = true,
			      .srq = true,
			      .rnr_retry_count = 5,
			      .ca_guid = 0xc1c2c3c4c5c6c7c8 };
	uint8_t mad[MAD_SIZE];

	memset(rep.private_data, 0x5a, sizeof(rep.private_data));
	cm_rep_encode(&rep, TID, mad);
	CHECK(mad, CM_ATTR_REP, fields, 36, 196);
}

Test(wire_mad, mra_and_rej_layout)
{
	static const struct bits mra_fields[] = {
		{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "remote ID", 4, 0, 32, 0xb1b2b3b4 },
		{ "subject", 8, 0, 2, 2 },
		{ "service timeout", 9, 0, 5, 0x15 },
	};
	static const struct bits rej_fields[] = {
		{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "remote ID", 4, 0, 32, 0xb1b2b3b4 },
		{ "subject", 8, 0, 2, 1 },
		{ "ARI length", 9, 0, 7, 72 },
		{ "reason", 10, 0, 16, 28 },
	};
	struct cm_mra mra = { .local_id = 0xa1a2a3a4,
			      .remote_id = 0xb1b2b3b4,
			      .subject = CM_SUBJECT_OTHER,
			      .service_timeout = 0x15 };
	struct cm_rej rej = { .local_id = 0xa1a2a3a4,
			      .remote_id = 0xb1b2b3b4,
			      .subject = CM_SUBJECT_REP,
			      .ari_length = 72,
			      .reason = CM_REJ_CONSUMER };
	uint8_t mad[MAD_SIZE];

	memset(mra.private_data, 0x5a, sizeof(mra.private_data));
	cm_mra_encode(&mra, TID, mad);
	CHECK(mad, CM_ATTR_MRA, mra_fields, 10, 222);
	memset(rej.ari, 0x5a, sizeof(rej.ari));
	memset(rej.private_data, 0x5a, sizeof(rej.private_data));
	cm_rej_encode(&rej, TID, mad);
	CHECK(mad, CM_ATTR_REJ, rej_fields, 12, 72 + 148);
}

Test(wire_mad, rtu_dreq_drep_layout)
{
	static const struct bits ids[] = {
		{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "remote ID", 4, 0, 32, 0xb1b2b3b4 },
	};
	static const struct bits dreq_fields[] = {
		{ "local ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "remote ID", 4, 0, 32, 0xb1b2b3b4 },
		{ "receiver's QPN", 8, 0, 24, 0xe1e2e3 },
	};
	struct cm_rtu rtu = { .local_id = 0xa1a2a3a4, .remote_id = 0xb1b2b3b4 };
	struct cm_dreq dreq = { .local_id = 0xa1a2a3a4,
				.remote_id = 0xb1b2b3b4,
				.remote_qpn = 0xe1e2e3 };
	uint8_t mad[MAD_SIZE];

	memset(rtu.private_data, 0x5a, sizeof(rtu.private_data));
	memset(dreq.private_data, 0x5a, sizeof(dreq.private_data));
	cm_rtu_encode(&rtu, TID, mad);
	CHECK(mad, CM_ATTR_RTU, ids, 8, 224);
	cm_drep_encode(&rtu, TID, mad);
	CHECK(mad, CM_ATTR_DREP, ids, 8, 224);
	cm_dreq_encode(&dreq, TID, mad);
	CHECK(mad, CM_ATTR_DREQ, dreq_fields, 12, 220);
}

Test(wire_mad, sidr_layout)
{
	static const struct bits sidr_req_fields[] = {
		{ "request ID", 0, 0, 32, 0xa1a2a3a4 },
		{ "P_Key", 4, 0, 16, 0xffff },
		{ "service ID", 8, 0, 64, 0x0000000001111c06 },
	};
	static const struct bits rep_fields[] = {
		{ "request ID", 0, 0, 32, 0xa1a2a3a4 }, { "status", 4, 0, 8, 3 },
		{ "QPN", 8, 0, 24, 0xe1e2e3 },          { "service ID", 12, 0, 64, 0x01111c06 },
		{ "Q_Key", 20, 0, 32, 0x01234567 },
	};
	struct cm_sidr_req req = { .request_id = 0xa1a2a3a4,
				   .pkey = 0xffff,
				   .service_id = cm_service_id(0x11, 7174) };
	struct cm_sidr_rep rep = { .request_id = 0xa1a2a3a4,
				   .status = 3,
				   .qpn = 0xe1e2e3,
				   .service_id = cm_service_id(0x11, 7174),
				   .qkey = 0x01234567 };
	uint8_t mad[MAD_SIZE];

	memset(req.private_data, 0x5a, sizeof(req.private_data));
	memset(rep.private_data, 0x5a, sizeof(rep.private_data));
	cm_sidr_req_encode(&req, TID, mad);
	CHECK(mad, CM_ATTR_SIDR_REQ, sidr_req_fields, 16, 216);
	cm_sidr_rep_encode(&rep, TID, mad);
	CHECK(mad, CM_ATTR_SIDR_REP, rep_fields, 96, 136);
}

/* --- parse and encode ------------------------------------------------------------------------ */

/* Makes the MAD again out of what its parser says. False: a kind that we do not make. */
static bool again(const uint8_t mad[MAD_SIZE], uint8_t out[MAD_SIZE])
{
	union {
		struct cm_req req;
		struct cm_mra mra;
		struct cm_rej rej;
		struct cm_rep rep;
		struct cm_rtu rtu;
		struct cm_dreq dreq;
		struct cm_sidr_req sidr_req;
		struct cm_sidr_rep sidr_rep;
	} m;
	struct mad_header h;

	memset(&m, 0xee, sizeof(m));
	mad_parse_header(mad, &h);
	switch (h.attribute) {
	case CM_ATTR_REQ: cm_req_parse(mad, &m.req), cm_req_encode(&m.req, h.tid, out); break;
	case CM_ATTR_MRA: cm_mra_parse(mad, &m.mra), cm_mra_encode(&m.mra, h.tid, out); break;
	case CM_ATTR_REJ: cm_rej_parse(mad, &m.rej), cm_rej_encode(&m.rej, h.tid, out); break;
	case CM_ATTR_REP: cm_rep_parse(mad, &m.rep), cm_rep_encode(&m.rep, h.tid, out); break;
	case CM_ATTR_RTU: cm_rtu_parse(mad, &m.rtu), cm_rtu_encode(&m.rtu, h.tid, out); break;
	case CM_ATTR_DREP: cm_rtu_parse(mad, &m.rtu), cm_drep_encode(&m.rtu, h.tid, out); break;
	case CM_ATTR_DREQ: cm_dreq_parse(mad, &m.dreq), cm_dreq_encode(&m.dreq, h.tid, out); break;
	case CM_ATTR_SIDR_REQ:
		cm_sidr_req_parse(mad, &m.sidr_req);
		cm_sidr_req_encode(&m.sidr_req, h.tid, out);
		break;
	case CM_ATTR_SIDR_REP:
		cm_sidr_rep_parse(mad, &m.sidr_rep);
		cm_sidr_rep_encode(&m.sidr_rep, h.tid, out);
		break;
	default: return false;
	}
	return true;
}

struct seen {
	unsigned int mads;
	uint32_t attributes; /* bit by number */
};

static void mad_again(const struct frame *frame, void *context)
{
	struct seen *seen = context;
	uint8_t out[MAD_SIZE];
	struct wire_view view;
	struct mad_header h;

	if (wire_parse(frame->bytes, frame->length, &view) != WIRE_OK || view.qpn != GSI_QPN)
		return;
	cr_assert_eq(view.payload_length, MAD_SIZE, "%s", frame->name);
	cr_expect_eq(be32_get(view_deth(&view)->qkey), GSI_QKEY, "%s", frame->name);
	mad_parse_header(view.payload, &h);
	cr_expect(h.base_version == 1 && h.management_class == MAD_CLASS_CM &&
			  h.class_version == 2 && h.method == MAD_METHOD_SEND && h.status == 0,
		  "%s", frame->name);
	cr_assert(again(view.payload, out), "%s: attribute %04x", frame->name, h.attribute);
	for (uint32_t i = 0; i < MAD_SIZE; i++)
		cr_expect_eq(out[i], view.payload[i], "%s: byte %u of the MAD", frame->name, i);
	seen->mads++;
	seen->attributes |= 1u << h.attribute;
}

Test(wire_mad, captured_ones_encode_to_the_same_bytes)
{
	struct seen seen = { 0 };

	captures_each(mad_again, &seen);
	vectors_each(mad_again, &seen);
	cr_expect_gt(seen.mads, 40);
	/* REQ, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP; nobody sent an MRA. */
	cr_expect_eq(seen.attributes, 0x1fd << 16);
}

/* Any bytes parse, and what was parsed once comes back the same. */
Test(wire_mad, parsing_is_stable_for_any_bytes)
{
	uint64_t random = 0xfeedfacecafebeef;

	for (unsigned int round = 0; round < 2000; round++) {
		uint8_t mad[MAD_SIZE], once[MAD_SIZE], twice[MAD_SIZE];

		for (uint32_t i = 0; i < MAD_SIZE; i++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			mad[i] = (uint8_t)(random >> 56);
		}
		mad[16] = 0;
		mad[17] = (uint8_t)(CM_ATTR_REQ + round % 9);
		cr_assert(again(frame_guarded(mad, MAD_SIZE), once));
		cr_assert(again(once, twice));
		cr_assert_eq(memcmp(once, twice, MAD_SIZE), 0, "attribute %02x", mad[17]);
	}
}

/* --- one REQ read as a person would ----------------------------------------------------------- */

Test(wire_mad, req_of_rping)
{
	static const uint8_t local[16] = { [10] = 0xff, 0xff, 10, 0, 0, 2 };
	static const uint8_t remote[16] = { [10] = 0xff, 0xff, 10, 0, 0, 1 };
	struct cma_header cma;
	struct wire_view view;
	struct frame frame;
	struct cm_req req;

	vector_get("rxe61_cm_req_ipv4", &frame);
	cr_assert_eq(wire_parse(frame.bytes, frame.length, &view), WIRE_OK);
	cm_req_parse(view.payload, &req);
	cr_expect_eq(req.service_id, 0x0000000001061c06);
	cr_expect_eq(req.ca_guid, 0x505400fffe006762);
	cr_expect_eq(req.qpn, 0x11);
	cr_expect_eq(req.responder_resources, 1);
	cr_expect_eq(req.initiator_depth, 1);
	cr_expect_eq(req.starting_psn, 0x96a956);
	cr_expect(req.remote_response_timeout == 20 && req.local_response_timeout == 20);
	cr_expect(req.transport == 0 && req.retry_count == 7 && req.rnr_retry_count == 7);
	cr_expect(req.path_mtu == 3 && req.max_cm_retries == 15 && req.pkey == 0xffff);
	cr_expect(req.primary.local_lid == 0xffff && req.primary.hop_limit == 64);
	cr_expect_eq(req.primary.flow_label, 0x00278);
	cr_expect_eq(req.primary.ack_timeout, 19);
	cr_expect_arr_eq(req.primary.local_gid, local, 16);
	cr_expect_arr_eq(req.primary.remote_gid, remote, 16);
	cma_header_parse(req.private_data, &cma);
	cr_expect(cma.version == 0 && cma.ip_version == 4 && cma.source_port == 0x834e);
	cr_expect_arr_eq(cma.source_gid, local, 16);
	cr_expect_arr_eq(cma.destination_gid, remote, 16);
}

/* --- the RDMA IP CM service ------------------------------------------------------------------- */

/* B18: version and IP version in the high nibbles, port, IPv4 in the last four of sixteen bytes. */
Test(wire_mad, b18_cma_header_ipv4)
{
	static const uint8_t expected[36] = { 0, 0x40, 0x1c,      0x06, [16] = 10, 1,
					      2, 3,    [32] = 10, 4,    5,         6 };
	struct cma_header header = { .ip_version = 4,
				     .source_port = 7174,
				     .source_gid = { [10] = 0xff, 0xff, 10, 1, 2, 3 },
				     .destination_gid = { [10] = 0xff, 0xff, 10, 4, 5, 6 } };
	struct cma_header parsed;
	uint8_t bytes[36];

	cma_header_encode(&header, bytes);
	cr_expect_arr_eq(bytes, expected, 36);
	cma_header_parse(bytes, &parsed);
	cr_expect_arr_eq(parsed.source_gid, header.source_gid, 16);
	cr_expect_arr_eq(parsed.destination_gid, header.destination_gid, 16);
	cr_expect(parsed.version == 0 && parsed.ip_version == 4 && parsed.source_port == 7174);
}

Test(wire_mad, b18_cma_header_ipv6)
{
	struct cma_header header = { .ip_version = 6, .source_port = 0x1234 };
	struct cma_header parsed;
	uint8_t bytes[36];

	for (uint8_t i = 0; i < 16; i++) {
		header.source_gid[i] = 0x20 + i;
		header.destination_gid[i] = 0x40 + i;
	}
	cma_header_encode(&header, bytes);
	cr_expect_arr_eq(bytes, ((uint8_t[]){ 0, 0x60, 0x12, 0x34, 0x20, 0x21 }), 6);
	cr_expect_arr_eq(bytes + 4, header.source_gid, 16);
	cr_expect_arr_eq(bytes + 20, header.destination_gid, 16);
	cma_header_parse(bytes, &parsed);
	cr_expect_arr_eq(parsed.source_gid, header.source_gid, 16);
}

/* Numbers that stand on the wire. */
Test(wire_mad, rej_reasons)
{
	cr_expect_eq(CM_REJ_INVALID_SERVICE_ID, 8);
	cr_expect_eq(CM_REJ_STALE_CONNECTION, 10);
	cr_expect_eq(CM_REJ_INVALID_PACKET_RATE, 17);
	cr_expect_eq(CM_REJ_PORT_CM_REDIRECT, 24);
	cr_expect_eq(CM_REJ_INVALID_MTU, 26);
	cr_expect_eq(CM_REJ_CONSUMER, 28);
	cr_expect_eq(CM_REJ_INVALID_CLASS_VERSION, 31);
	cr_expect_eq(CM_REJ_INVALID_ALT_FLOW_LABEL, 33);
}

Test(wire_mad, service_ids)
{
	cr_expect_eq(cm_service_id(0x06, 7174), 0x0000000001061c06);
	cr_expect_eq(cm_service_id(0x11, 7174), 0x0000000001111c06);
	cr_expect_eq(cm_service_id(0x3f, 0xffff), 0x00000000013fffff);
	cr_expect(cm_service_is_ip(cm_service_id(0x06, 1)));
	cr_expect_not(cm_service_is_ip(0));
	cr_expect_not(cm_service_is_ip(0x0000000002061c06));
	cr_expect_not(cm_service_is_ip(0x1000000001061c06));
}
