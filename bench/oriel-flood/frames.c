/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frames, made at the cost of a few stores: buffers of a shape hold its image for ever, and
 * only the fields that differ are written. The ICRC follows from the image's, since a CRC is
 * linear: each changed byte adds a difference that depends on its place and its value only.
 */
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "oriel-flood/flood.h"

#define SHAPE_BUFFERS 4095u
#define LARGE_BUFFERS 1023u /* of more than 2 KiB */
#define SHAPE_CACHE   256u
#define IMAGE_MAX     (4096u + FRAME_OVERHEAD_MAX)

#define IP_PROTOCOL_ICMP 1u

/* Bytes whose values differ from frame to frame. */
enum field { FIELD_PSN, FIELD_QPN, FIELD_PORT, FIELD_ADDRESS, FIELD_TOKEN, FIELDS };
static const uint8_t field_bytes[FIELDS] = { 3, 3, 2, 8, 4 };

struct frame_shape {
	struct rte_mempool *pool;
	uint32_t length;
	uint32_t icrc; /* of the image; offset of the ICRC is length - 4 */
	bool has_reth;
	uint16_t offset[FIELDS];
	uint16_t ack;
	uint32_t ack_crc;
	uint32_t difference[FIELDS][8][256];
	uint8_t image[IMAGE_MAX];
};

/* --- differences ------------------------------------------------------------------------ */

/* What byte value `value`, with `behind` bytes after it under the CRC, adds to the CRC. */
static uint32_t byte_difference(uint8_t value, uint32_t behind)
{
	static const uint8_t zeros[IMAGE_MAX];
	uint32_t changed = icrc_update(icrc_update(0, &value, 1), zeros, behind);
	uint32_t plain = icrc_update(icrc_update(0, zeros, 1), zeros, behind);

	return changed ^ plain;
}

static void fill_differences(struct frame_shape *shape)
{
	const uint32_t end = shape->length - ICRC_SIZE;

	for (unsigned int field = 0; field < FIELDS; field++) {
		if (shape->offset[field] == 0)
			continue;
		for (unsigned int byte = 0; byte < field_bytes[field]; byte++) {
			uint32_t *table = shape->difference[field][byte];
			uint32_t behind = end - shape->offset[field] - byte - 1;

			for (unsigned int bit = 0; bit < 8; bit++)
				table[1u << bit] = byte_difference((uint8_t)(1u << bit), behind);
			for (unsigned int value = 1; value < 256; value++)
				table[value] = table[value & (value - 1)] ^ table[value & -value];
		}
	}
	shape->ack_crc = byte_difference(BTH_ACK, end - shape->ack - 1u);
}

static inline uint32_t difference(const struct frame_shape *shape, enum field field, uint64_t value)
{
	const unsigned int bytes = field_bytes[field];
	uint32_t crc = 0;

	for (unsigned int i = 0; i < bytes; i++)
		crc ^= shape->difference[field][i][(uint8_t)(value >> 8 * (bytes - 1 - i))];
	return crc;
}

/* --- shapes ------------------------------------------------------------------------------- */

static uint8_t place_opcode(enum flood_operation operation, enum flood_place place)
{
	static const uint8_t write[PLACES] = { OP_RC_WRITE_ONLY, OP_RC_WRITE_FIRST,
					       OP_RC_WRITE_MIDDLE, OP_RC_WRITE_LAST };
	static const uint8_t send[PLACES] = { OP_RC_SEND_ONLY, OP_RC_SEND_FIRST, OP_RC_SEND_MIDDLE,
					      OP_RC_SEND_LAST };

	switch (operation) {
	case FLOOD_WRITE: return write[place];
	case FLOOD_SEND: return send[place];
	case FLOOD_READ: return OP_RC_READ_REQUEST;
	case FLOOD_ATOMIC: return OP_RC_FETCH_ADD;
	}
	return OP_RC_WRITE_ONLY;
}

static void image_fill(uint8_t *payload, uint32_t length)
{
	for (uint32_t i = 0; i < length; i++)
		payload[i] = (uint8_t)(i * 167 + 13);
}

/*
 * A ping of the same length: type and code stand where the UDP source port did, and all that
 * follows the header is data, which comes back. testpmd does not verify the checksum of ICMP.
 */
static void image_to_icmp(const struct flood *f, struct frame_shape *shape)
{
	const uint32_t l3 = ETHER_HEADER + (f->link.vlan ? ETHER_TAG : 0);
	struct ipv4_header *ip = (struct ipv4_header *)(shape->image + l3);

	ip->protocol = IP_PROTOCOL_ICMP;
	ip->checksum = be16_make(0);
	ip->checksum = be16_make(ipv4_checksum(ip));
}

static void image_build(struct flood *f, struct frame_shape *shape, uint8_t opcode,
			uint32_t payload)
{
	struct frame_path path = { .hop_limit = 64,
				   .tagged = f->link.vlan != 0,
				   .vlan_tci = f->link.vlan };
	struct frame_template template;
	uint8_t *bth, *data;

	memcpy(path.source_mac, f->link.mac, 6);
	memcpy(path.destination_mac, f->target_mac, 6);
	memcpy(path.source_gid, f->options.port.address[0].gid, 16);
	memcpy(path.destination_gid, f->options.target, 16);
	frame_template_init(&template, &path);
	bth = frame_begin(shape->image, &template, opcode);
	data = bth + opcode_table[opcode].length;
	image_fill(data, payload);
	if (opcode_table[opcode].flags & OPF_RETH)
		put_be32(bth + opcode_table[opcode].reth + offsetof(struct reth, length),
			 f->options.size);
	if (opcode_table[opcode].flags & OPF_ATOMIC_ETH)
		put_be64(bth + opcode_table[opcode].atomic_eth +
				 offsetof(struct atomic_eth, swap_add),
			 1);
	shape->length = frame_finish(shape->image, &template, NULL, payload);
	if (f->options.peer == PEER_ICMPECHO)
		image_to_icmp(f, shape);
	shape->icrc = icrc_load(shape->image + shape->length - ICRC_SIZE);
	shape->offset[FIELD_PORT] = (uint16_t)(template.length - sizeof(struct udp_header));
	shape->offset[FIELD_QPN] = (uint16_t)(template.length + offsetof(struct bth, qpn));
	shape->offset[FIELD_PSN] = (uint16_t)(template.length + offsetof(struct bth, psn));
	shape->ack = (uint16_t)(template.length + offsetof(struct bth, ack_req));
	/* RETH and AtomicETH begin alike: address, token. */
	if (opcode_table[opcode].flags & (OPF_RETH | OPF_ATOMIC_ETH)) {
		shape->has_reth = true;
		shape->offset[FIELD_ADDRESS] = (uint16_t)(template.length + sizeof(struct bth));
		shape->offset[FIELD_TOKEN] =
			(uint16_t)(template.length + sizeof(struct bth) + sizeof(be64_t));
	}
}

static void buffer_fill(struct rte_mempool *pool, void *context, void *object, unsigned int index)
{
	const struct frame_shape *shape = context;
	struct rte_mbuf *mbuf = object;

	memcpy((uint8_t *)mbuf->buf_addr + RTE_PKTMBUF_HEADROOM, shape->image, shape->length);
}

static bool shape_create(struct flood *f, enum flood_place place, uint32_t payload)
{
	struct frame_shape *shape = rte_zmalloc("shape", sizeof(*shape), 64);
	char name[RTE_MEMPOOL_NAMESIZE];
	uint32_t room;

	f->message = "no memory for frames";
	if (!shape)
		return false;
	f->shape[place] = shape;
	image_build(f, shape, place_opcode(f->options.operation, place), payload);
	fill_differences(shape);
	room = RTE_PKTMBUF_HEADROOM + RTE_MAX(shape->length, ETHER_MINIMUM);
	snprintf(name, sizeof(name), "flood_%u", place);
	shape->pool = rte_pktmbuf_pool_create(name, room > 2048 ? LARGE_BUFFERS : SHAPE_BUFFERS,
					      SHAPE_CACHE, 0, (uint16_t)room, SOCKET_ID_ANY);
	if (!shape->pool)
		return false;
	rte_mempool_obj_iter(shape->pool, buffer_fill, shape);
	f->message = NULL;
	return true;
}

static void qp_differences(struct flood *f, struct flood_qp *qp)
{
	for (unsigned int place = 0; place < PLACES; place++) {
		const struct frame_shape *shape = f->shape[place];

		if (shape)
			qp->crc[place] = difference(shape, FIELD_QPN, qp->qpn) ^
					 difference(shape, FIELD_PORT, qp->source_port);
	}
}

/* What is made quickly must be what is made by the book. */
static bool frames_check(struct flood *f)
{
	const uint32_t last = f->frames_per_message - 1;

	for (unsigned int i = 0; i < 64; i++) {
		uint32_t frame = i == 0   ? 0
				 : i == 1 ? last
					  : (uint32_t)(flood_random(f) % (last + 1));
		struct rte_mbuf *mbuf =
			frames_make(f, &f->qp[flood_random(f) % f->qps], frame,
				    (uint32_t)flood_random(f) & PSN_MASK,
				    &f->window[flood_random(f) % f->windows], i & 1);
		struct wire_view view;
		bool good;

		if (!mbuf)
			return false;
		good = wire_parse(rte_pktmbuf_mtod(mbuf, uint8_t *), mbuf->pkt_len, &view) ==
			       WIRE_OK &&
		       icrc_verify(&view);
		rte_pktmbuf_free(mbuf);
		if (!good) {
			f->message = "the frames have wrong ICRCs (a fault of this program)";
			return false;
		}
	}
	return true;
}

bool frames_prepare(struct flood *f)
{
	const uint32_t mtu = f->options.path_mtu;
	const uint32_t size = f->options.size;
	const bool carries =
		f->options.operation == FLOOD_WRITE || f->options.operation == FLOOD_SEND;

	f->psns_per_message = f->options.operation == FLOOD_ATOMIC ? 1 : (size + mtu - 1) / mtu;
	if (f->psns_per_message == 0)
		f->psns_per_message = 1;
	f->frames_per_message = carries ? f->psns_per_message : 1;
	if (f->frames_per_message == 1) {
		if (!shape_create(f, PLACE_ONLY, carries ? size : 0))
			return false;
	} else if (!shape_create(f, PLACE_FIRST, mtu) || !shape_create(f, PLACE_MIDDLE, mtu) ||
		   !shape_create(f, PLACE_LAST, size - (f->frames_per_message - 1) * mtu)) {
		return false;
	}
	for (uint32_t i = 0; i < f->qps; i++)
		qp_differences(f, &f->qp[i]);
	for (uint32_t i = 0; i < f->windows; i++) {
		struct flood_window *w = &f->window[i];
		const struct frame_shape *first =
			f->shape[f->frames_per_message == 1 ? PLACE_ONLY : PLACE_FIRST];

		if (first->has_reth)
			w->crc = difference(first, FIELD_ADDRESS, w->address) ^
				 difference(first, FIELD_TOKEN, w->token);
	}
	return f->options.peer == PEER_ICMPECHO || frames_check(f);
}

void frames_release(struct flood *f)
{
	for (unsigned int place = 0; place < PLACES; place++) {
		if (!f->shape[place])
			continue;
		rte_mempool_free(f->shape[place]->pool);
		rte_free(f->shape[place]);
		f->shape[place] = NULL;
	}
}

/* --- frames ------------------------------------------------------------------------------- */

static inline enum flood_place frame_place(const struct flood *f, uint32_t frame)
{
	if (f->frames_per_message == 1)
		return PLACE_ONLY;
	if (frame == 0)
		return PLACE_FIRST;
	return frame + 1 == f->frames_per_message ? PLACE_LAST : PLACE_MIDDLE;
}

struct rte_mbuf *frames_make(struct flood *f, const struct flood_qp *qp, uint32_t frame,
			     uint32_t psn, const struct flood_window *window, bool ack)
{
	const enum flood_place place = frame_place(f, frame);
	const struct frame_shape *shape = f->shape[place];
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(shape->pool);
	uint32_t crc;
	uint8_t *data;

	if (!mbuf)
		return NULL;
	psn = psn_add(psn, frame);
	data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	put_be16(data + shape->offset[FIELD_PORT], qp->source_port);
	put_be24(data + shape->offset[FIELD_QPN], qp->qpn);
	put_be24(data + shape->offset[FIELD_PSN], psn);
	data[shape->ack] = ack ? BTH_ACK : 0;
	crc = shape->icrc ^ qp->crc[place] ^ difference(shape, FIELD_PSN, psn) ^
	      (ack ? shape->ack_crc : 0);
	if (shape->has_reth) {
		put_be64(data + shape->offset[FIELD_ADDRESS], window->address);
		put_be32(data + shape->offset[FIELD_TOKEN], window->token);
		crc ^= window->crc;
	}
	icrc_store(data + shape->length - ICRC_SIZE, crc);
	mbuf->data_len = (uint16_t)RTE_MAX(shape->length, ETHER_MINIMUM);
	mbuf->pkt_len = mbuf->data_len;
	return mbuf;
}

const struct bth *frames_echo(const struct flood *f, const uint8_t *data, uint32_t length)
{
	const struct frame_shape *shape =
		f->shape[f->frames_per_message == 1 ? PLACE_ONLY : PLACE_FIRST];
	const uint32_t offset = shape ? shape->offset[FIELD_QPN] - offsetof(struct bth, qpn) : 0;

	return offset && length >= offset + sizeof(struct bth) ? (const struct bth *)(data + offset)
							       : NULL;
}

/* --- frames that must be refused ----------------------------------------------------------- */

static void reseal(const struct flood *f, uint8_t *data, uint32_t length)
{
	const uint32_t l3 = ETHER_HEADER + (f->link.vlan ? ETHER_TAG : 0);
	const bool v4 = gid_is_v4(f->options.target);
	uint8_t *bth = data + l3 + (v4 ? sizeof(struct ipv4_header) : sizeof(struct ipv6_header)) +
		       sizeof(struct udp_header);
	uint8_t *icrc = data + length - ICRC_SIZE;

	if (v4) {
		struct ipv4_header *ip = (struct ipv4_header *)(data + l3);

		ip->checksum = be16_make(0);
		ip->checksum = be16_make(ipv4_checksum(ip));
	}
	icrc_store(icrc, icrc_update(icrc_headers(data + l3, v4), bth + sizeof(struct bth),
				     (uint32_t)(icrc - bth - sizeof(struct bth))));
}

struct rte_mbuf *frames_make_bad(struct flood *f, const struct flood_qp *qp, enum flood_bad kind)
{
	const struct frame_shape *shape =
		f->shape[f->frames_per_message == 1 ? PLACE_ONLY : PLACE_FIRST];
	const uint32_t l3 = ETHER_HEADER + (f->link.vlan ? ETHER_TAG : 0);
	const bool v4 = gid_is_v4(f->options.target);
	uint32_t psn = psn_add(qp->start, (uint32_t)(qp->next * f->psns_per_message));
	struct rte_mbuf *made, *mbuf;
	uint8_t *data;

	if (kind == FLOOD_BAD_DUPLICATE)
		psn = psn_add(psn, -f->psns_per_message & PSN_MASK);
	made = frames_make(f, qp, 0, psn, &f->window[qp->window], false);
	mbuf = made ? link_buffer(f) : NULL;
	if (!mbuf || rte_pktmbuf_tailroom(mbuf) < made->pkt_len) {
		rte_pktmbuf_free(made);
		rte_pktmbuf_free(mbuf);
		return NULL;
	}
	/* The shape's own buffers keep their image. */
	data = (uint8_t *)rte_pktmbuf_append(mbuf, made->data_len);
	memcpy(data, rte_pktmbuf_mtod(made, uint8_t *), made->data_len);
	rte_pktmbuf_free(made);
	switch (kind) {
	case FLOOD_BAD_ICRC: data[shape->length - 1] ^= 1; return mbuf;
	case FLOOD_BAD_RUNT:
		mbuf->data_len = mbuf->pkt_len = (uint16_t)(shape->length - 20);
		return mbuf;
	case FLOOD_BAD_OPCODE: data[shape->offset[FIELD_QPN] - 5] = 0x1f; break;
	case FLOOD_BAD_QPN: data[shape->offset[FIELD_QPN]] ^= 0xff; break;
	case FLOOD_BAD_PEER: data[l3 + (v4 ? 15 : 23)] ^= 0x40; break;
	case FLOOD_BAD_DUPLICATE:
	case FLOOD_BADS: break;
	}
	reseal(f, data, shape->length);
	return mbuf;
}
