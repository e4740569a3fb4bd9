/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of a queue pair: template, headers, payload copied under the ICRC. */
#include <string.h>

#include "transport/private.h"

void path_build_template(const struct qp_path *from, uint16_t source_port,
			 struct frame_template *template)
{
	struct frame_path path = {
		.vlan_tci = from->vlan_tci,
		.tagged = from->vlan_tci != 0,
		.traffic_class = (uint8_t)(from->traffic_class & ~IP_ECN),
		.hop_limit = from->hop_limit,
		.source_port = source_port,
	};

	memcpy(path.source_mac, from->local_mac, 6);
	memcpy(path.destination_mac, from->remote_mac, 6);
	memcpy(path.source_gid, from->local_gid, 16);
	memcpy(path.destination_gid, from->remote_gid, 16);
	frame_template_init(template, &path);
}

static inline uint64_t answer_first(const struct qp *qp, uint8_t opcode)
{
	return (uint64_t)opcode << 56 | (uint64_t)BTH_MIG << 48 | (uint64_t)PKEY_DEFAULT << 32 |
	       qp->remote_qpn;
}

static inline uint64_t answer_second(const struct answer_head *head)
{
	return (uint64_t)head->psn << 32 | (uint64_t)head->syndrome << 24 | head->msn;
}

void qp_build_template(const struct qp *qp, struct frame_template *template)
{
	path_build_template(&qp->path,
			    roce_source_port(qp->path.flow_label, qp->number, qp->remote_qpn),
			    template);
	frame_prepare_ack(template, answer_first(qp, OP_RC_ACKNOWLEDGE));
}

static void write_extensions(uint8_t *bth, const struct opcode_info *op,
			     const struct frame_head *head)
{
	if (op->flags & OPF_RETH) {
		put_be64(bth + op->reth, head->address);
		put_be32(bth + op->reth + offsetof(struct reth, rkey), head->token);
		put_be32(bth + op->reth + offsetof(struct reth, length), head->length);
	}
	if (op->flags & OPF_DETH) {
		put_be32(bth + op->deth, head->qkey);
		put_be32(bth + op->deth + offsetof(struct deth, reserved), head->source_qpn);
	}
	if (op->flags & OPF_AETH)
		put_be32(bth + op->aeth, (uint32_t)head->syndrome << 24 | head->msn);
	if (op->flags & OPF_IMM)
		memcpy(bth + op->imm, &head->immediate, sizeof(head->immediate));
	if (op->flags & OPF_IETH)
		put_be32(bth + op->ieth, head->token);
	if (op->flags & OPF_ATOMIC_ACK)
		put_be64(bth + op->atomic_ack, head->original);
	if (op->flags & OPF_ATOMIC_ETH) {
		uint8_t *atomic = bth + op->atomic_eth;

		put_be64(atomic, head->address);
		put_be32(atomic + offsetof(struct atomic_eth, rkey), head->token);
		put_be64(atomic + offsetof(struct atomic_eth, swap_add), head->swap);
		put_be64(atomic + offsetof(struct atomic_eth, compare), head->compare);
	}
}

/* A buffer for a frame with so much payload; false: there is none. */
static inline bool frame_start(struct transport *t, const struct frame_template *template,
			       struct frame *frame, uint32_t payload)
{
	struct pktbuf *packet = frame_get(t, template);

	if (packet == NULL)
		return false;
	if (unlikely(packet->capacity < FRAME_OVERHEAD_MAX + payload)) {
		t->io.put(t->io.context, packet, PKTBUF_FREE);
		t->blocked = true;
		COUNT(t, no_buffer, 1);
		return false;
	}
	frame->packet = packet;
	frame->template = template;
	frame->payload = payload;
	frame->placed = 0;
	return true;
}

bool frame_open_to(struct transport *t, const struct frame_template *template, uint32_t qpn,
		   struct frame *frame, const struct frame_head *head, uint32_t payload)
{
	const struct opcode_info *op = &opcode_table[head->opcode];
	struct bth *bth;

	if (!frame_start(t, template, frame, payload))
		return false;
	bth = (struct bth *)frame_begin(frame->packet->data, frame->template, head->opcode);
	frame->place = (uint8_t *)bth + op->length;
	if ((op->flags & OPF_PAYLOAD) && op->service != SERVICE_UD)
		frame_set_ecn(frame->packet->data, frame->template, t->data_ecn);
	/* As RNICs do; nobody should look at it. */
	bth->flags = (uint8_t)(BTH_MIG | (head->solicited ? BTH_SE : 0));
	bth_set_qpn(bth, qpn);
	bth->ack_req = head->ack_request ? BTH_ACK : 0;
	bth_set_psn(bth, head->psn);
	write_extensions((uint8_t *)bth, op, head);
	return true;
}

/*
 * READ responses are most of what a responder sends beside ACKs: BTH and AETH as two words, nothing
 * zeroed first.
 */
bool frame_open_answer(struct transport *t, struct qp *qp, struct frame *frame,
		       const struct answer_head *head, uint32_t payload)
{
	const struct frame_template *template = &qp_local(t, qp)->frame;
	uint8_t *bth;

	if (!frame_start(t, template, frame, payload))
		return false;
	bth = frame->packet->data + template->length;
	memcpy(frame->packet->data, template->prefix, sizeof(template->prefix));
	put_be64(bth, answer_first(qp, head->opcode));
	put_be64(bth + 8, answer_second(head));
	frame->place = bth + opcode_table[head->opcode].length;
	frame_set_ecn(frame->packet->data, template, t->data_ecn);
	return true;
}

bool frame_send_ack(struct transport *t, struct qp *qp, const struct answer_head *head)
{
	const struct frame_template *template = &qp_local(t, qp)->frame;
	struct frame frame;

	if (!frame_start(t, template, &frame, 0))
		return false;
	frame.packet->length = frame_ack(frame.packet->data, template,
					 answer_first(qp, OP_RC_ACKNOWLEDGE), answer_second(head));
	frame_send(t, frame.packet);
	return true;
}

/* SENDs and WRITEs are most of what a requester sends. */
bool frame_open_data(struct transport *t, struct qp *qp, struct frame *frame,
		     const struct data_head *head, uint32_t payload)
{
	const struct frame_template *template = &qp_local(t, qp)->frame;
	const struct opcode_info *op = &opcode_table[head->opcode];
	const uint64_t first = (uint64_t)head->opcode << 56 |
			       (uint64_t)(BTH_MIG | (head->solicited ? BTH_SE : 0)) << 48 |
			       (uint64_t)PKEY_DEFAULT << 32 | qp->remote_qpn;
	uint8_t *bth;

	if (!frame_start(t, template, frame, payload))
		return false;
	bth = frame->packet->data + template->length;
	memcpy(frame->packet->data, template->prefix, sizeof(template->prefix));
	put_be64(bth, first);
	put_be32(bth + 8, (uint32_t)(head->ack_request ? BTH_ACK : 0) << 24 | head->psn);
	if (op->flags & OPF_RETH) {
		put_be64(bth + op->reth, head->flight->address);
		put_be64(bth + op->reth + 8,
			 (uint64_t)head->flight->token << 32 | (uint32_t)head->flight->length);
	}
	if (op->flags & OPF_IMM)
		memcpy(bth + op->imm, &head->flight->immediate, sizeof(head->flight->immediate));
	if (op->flags & OPF_IETH)
		put_be32(bth + op->ieth, head->flight->token);
	frame->place = bth + op->length;
	frame_set_ecn(frame->packet->data, template, t->data_ecn);
	return true;
}

bool frame_open(struct transport *t, struct qp *qp, struct frame *frame,
		const struct frame_head *head, uint32_t payload)
{
	return frame_open_to(t, &qp_local(t, qp)->frame, qp->remote_qpn, frame, head, payload);
}

void frame_set_source_port(struct frame *frame, uint16_t port)
{
	struct udp_header *udp =
		(struct udp_header *)(frame->packet->data + frame->template->length - sizeof(*udp));

	udp->source_port = be16_make(port);
}

/* In one piece, as it mostly is, copy and ICRC are one pass. */
void frame_payload(struct frame *frame, const void *bytes, uint32_t length)
{
	if (length == frame->payload) {
		frame->packet->length =
			frame_finish(frame->packet->data, frame->template, bytes, length);
	} else {
		memcpy(frame->place + frame->placed, bytes, length);
		if (frame->placed + length == frame->payload)
			frame->packet->length = frame_finish(frame->packet->data, frame->template,
							     NULL, frame->payload);
	}
	frame->placed += length;
}

uint32_t frame_close(struct transport *t, struct frame *frame)
{
	uint32_t bytes;

	if (frame->payload == 0)
		frame->packet->length = frame_finish(frame->packet->data, frame->template, NULL, 0);
	bytes = frame->packet->length;
	frame_send(t, frame->packet);
	return bytes;
}

void frame_drop(struct transport *t, struct frame *frame)
{
	t->io.put(t->io.context, frame->packet, PKTBUF_FREE);
}
