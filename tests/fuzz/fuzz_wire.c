/* SPDX-License-Identifier: BSD-3-Clause */
/* Any bytes as a frame and as a CM datagram: parse, ICRC, and the same bytes
 * made again. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "wire/build.h"
#include "wire/mad.h"

#define CHECK(condition)          \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

static void view_is_inside(const struct wire_view *view, const uint8_t *data, size_t size)
{
	CHECK(view->op && view->bth > data);
	CHECK(view->bth + view->op->length == view->payload);
	CHECK(view->payload + view->payload_length + view->pad == view->icrc);
	CHECK(view->icrc + ICRC_SIZE <= data + size);
	CHECK(view->op->flags & OPF_PAYLOAD || view->payload_length == 0);
}

/* Whether a sender that keeps the rules would have sent it so. */
static bool canonical(const struct wire_view *view)
{
	const struct ipv4_header *ip = (const void *)(view->frame + view->l3_offset);

	if (view->pad != (-view->payload_length & 3))
		return false;
	for (const uint8_t *p = view->payload + view->payload_length; p < view->icrc; p++)
		if (*p)
			return false;
	/* An IPv6 address of the mapped kind would be sent over IPv4. */
	if (!view->is_v4)
		return !gid_is_v4(view->destination_gid);
	/* Ones' complement has two zeros. */
	return be16_get(ip->checksum) != 0xffff;
}

static void frame_round_trip(const struct wire_view *view)
{
	const uint32_t length = (uint32_t)(view->icrc - view->frame) + ICRC_SIZE;
	uint8_t *out = malloc(FRAME_OVERHEAD_MAX + view->payload_length);

	CHECK(out);
	CHECK(wire_reencode(view, out) == length);
	CHECK(memcmp(out, view->frame, length - ICRC_SIZE) == 0);
	CHECK(icrc_load(out + length - ICRC_SIZE) == icrc_compute(view));
	CHECK(icrc_verify(view) == (memcmp(out, view->frame, length) == 0));
	free(out);
}

static void cm_again(const uint8_t mad[MAD_SIZE], uint16_t attribute, uint8_t out[MAD_SIZE])
{
	struct cm_req req;
	struct cm_mra mra;
	struct cm_rej rej;
	struct cm_rep rep;
	struct cm_rtu rtu;
	struct cm_dreq dreq;
	struct cm_sidr_req sidr_req;
	struct cm_sidr_rep sidr_rep;

	switch (attribute) {
	case CM_ATTR_REQ: cm_req_parse(mad, &req), cm_req_encode(&req, 1, out); break;
	case CM_ATTR_MRA: cm_mra_parse(mad, &mra), cm_mra_encode(&mra, 1, out); break;
	case CM_ATTR_REJ: cm_rej_parse(mad, &rej), cm_rej_encode(&rej, 1, out); break;
	case CM_ATTR_REP: cm_rep_parse(mad, &rep), cm_rep_encode(&rep, 1, out); break;
	case CM_ATTR_RTU: cm_rtu_parse(mad, &rtu), cm_rtu_encode(&rtu, 1, out); break;
	case CM_ATTR_DREP: cm_rtu_parse(mad, &rtu), cm_drep_encode(&rtu, 1, out); break;
	case CM_ATTR_DREQ: cm_dreq_parse(mad, &dreq), cm_dreq_encode(&dreq, 1, out); break;
	case CM_ATTR_SIDR_REQ:
		cm_sidr_req_parse(mad, &sidr_req), cm_sidr_req_encode(&sidr_req, 1, out);
		break;
	default: cm_sidr_rep_parse(mad, &sidr_rep), cm_sidr_rep_encode(&sidr_rep, 1, out);
	}
}

/* What was parsed and made once comes back the same the second time. */
static void mad_round_trip(const uint8_t mad[MAD_SIZE])
{
	uint8_t once[MAD_SIZE], twice[MAD_SIZE];
	struct mad_header header;
	struct cma_header cma;

	mad_parse_header(mad, &header);
	if (header.attribute < CM_ATTR_REQ || header.attribute > CM_ATTR_SIDR_REP)
		return;
	cm_again(mad, header.attribute, once);
	cm_again(once, header.attribute, twice);
	CHECK(memcmp(once, twice, MAD_SIZE) == 0);
	cma_header_parse(mad + MAD_SIZE - CM_REQ_PRIVATE, &cma);
	cma_header_encode(&cma, once);
}

/* The quick look takes what the long one takes, and nothing else, at the frame's own station. */
static void usual_agrees(const uint8_t *data, size_t size)
{
	struct wire_view view, quick;
	struct wire_usual usual;
	bool good;

	memset(&view, 0, sizeof(view));
	memset(&quick, 0, sizeof(quick));
	good = wire_parse(data, (uint32_t)size, &view) == WIRE_OK && view.is_v4 && !view.has_vlan &&
	       gid_is_unicast(view.destination_gid) && !(data[6] & 1) && get_be64(data + 6) >> 16;
	wire_usual_init(&usual, data, view.destination_gid);
	CHECK(wire_parse_usual(&usual, data, (uint32_t)size, &quick) == good);
	CHECK(!good || memcmp(&view, &quick, sizeof(view)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_view view;

	if (size > FUZZ_INPUT_MAX)
		return 0;
	if (size == MAD_SIZE)
		mad_round_trip(data);
	if (size >= 14)
		usual_agrees(data, size);
	if (wire_parse(data, (uint32_t)size, &view) != WIRE_OK)
		return 0;
	view_is_inside(&view, data, size);
	if (canonical(&view))
		frame_round_trip(&view);
	else
		icrc_verify(&view);
	if (view.op->flags & OPF_DETH && view.payload_length == MAD_SIZE)
		mad_round_trip(view.payload);
	return 0;
}
