/* SPDX-License-Identifier: BSD-3-Clause */
/* A checked view of one RoCEv2 frame, from any bytes. */
#include "wire/packet.h"

static const char *const names[WIRE_REASON_COUNT] = {
#define WIRE_NAME(constant, name, text) #name,
	WIRE_REASONS(WIRE_NAME)
#undef WIRE_NAME
};

static const char *const texts[WIRE_REASON_COUNT] = {
#define WIRE_TEXT(constant, name, text) text,
	WIRE_REASONS(WIRE_TEXT)
#undef WIRE_TEXT
};

const char *wire_reason_name(enum wire_reason reason)
{
	return (unsigned int)reason < WIRE_REASON_COUNT ? names[reason] : NULL;
}

const char *wire_reason_text(enum wire_reason reason)
{
	return (unsigned int)reason < WIRE_REASON_COUNT ? texts[reason] : NULL;
}

static enum wire_reason parse_ethernet(const uint8_t *frame, uint32_t length,
				       struct wire_view *view, uint32_t *type)
{
	if (length < sizeof(struct eth_header))
		return WIRE_FRAME_TRUNCATED;
	*type = get_be16(frame + 12);
	view->l3_offset = sizeof(struct eth_header);
	view->has_vlan = *type == ETHERTYPE_VLAN;
	view->vlan_tci = 0;
	if (view->has_vlan) {
		if (length < sizeof(struct eth_header) + sizeof(struct vlan_tag))
			return WIRE_FRAME_TRUNCATED;
		view->vlan_tci = get_be16(frame + 14);
		*type = get_be16(frame + 16);
		view->l3_offset += sizeof(struct vlan_tag);
		if (*type == ETHERTYPE_VLAN || *type == ETHERTYPE_QINQ)
			return WIRE_DOUBLE_TAG;
	}
	return WIRE_OK;
}

/* On WIRE_OK *l4_length is what the IP header says lies behind it. */
static enum wire_reason parse_ipv4(const uint8_t *l3, uint32_t room, struct wire_view *view,
				   uint32_t *l4_length)
{
	const struct ipv4_header *ip = (const struct ipv4_header *)l3;
	uint32_t total;

	if (room < sizeof(*ip))
		return WIRE_FRAME_TRUNCATED;
	if (ip->version_ihl >> 4 != 4)
		return WIRE_IP_VERSION;
	if (ip->protocol != IPPROTO_UDP_NUMBER)
		return WIRE_NOT_UDP;
	if ((ip->version_ihl & 0x0f) != 5)
		return WIRE_IP_OPTIONS;
	if (ipv4_checksum(ip) != 0)
		return WIRE_IP_CHECKSUM;
	/* Identification says nothing about fragments (RFC 6864); MF and offset do. */
	if (be16_get(ip->fragment) & 0x3fff)
		return WIRE_FRAGMENT;
	total = be16_get(ip->total_length);
	if (total < sizeof(*ip) || total > room)
		return WIRE_IP_LENGTH;
	*l4_length = total - (uint32_t)sizeof(*ip);
	view->udp_offset = (uint16_t)(view->l3_offset + sizeof(*ip));
	view->is_v4 = true;
	view->traffic_class = ip->tos;
	view->hop_limit = ip->ttl;
	gid_from_v4(view->source_gid, ip->source);
	gid_from_v4(view->destination_gid, ip->destination);
	return WIRE_OK;
}

static enum wire_reason parse_ipv6(const uint8_t *l3, uint32_t room, struct wire_view *view,
				   uint32_t *l4_length)
{
	const struct ipv6_header *ip = (const struct ipv6_header *)l3;

	if (room < sizeof(*ip))
		return WIRE_FRAME_TRUNCATED;
	if (l3[0] >> 4 != 6)
		return WIRE_IP_VERSION;
	switch (ip->next_header) {
	case IPPROTO_UDP_NUMBER: break;
	case 44: return WIRE_FRAGMENT;
	case 0:
	case 43:
	case 60: return WIRE_IP_OPTIONS;
	default: return WIRE_NOT_UDP;
	}
	*l4_length = be16_get(ip->payload_length);
	if (*l4_length > room - sizeof(*ip))
		return WIRE_IP_LENGTH;
	view->udp_offset = (uint16_t)(view->l3_offset + sizeof(*ip));
	view->is_v4 = false;
	view->traffic_class = (uint8_t)(be32_get(ip->version_class_flow) >> 20);
	view->hop_limit = ip->hop_limit;
	memcpy(view->source_gid, ip->source, 16);
	memcpy(view->destination_gid, ip->destination, 16);
	return WIRE_OK;
}

static void take_bth(const struct bth *bth, struct wire_view *view)
{
	/* Each number of 24 bits with the byte before it: one load. */
	const uint32_t qpn = get_be32(&bth->resv8a), psn = get_be32(&bth->ack_req);

	view->opcode = bth->opcode;
	view->solicited = bth->flags & BTH_SE;
	view->mig_request = bth->flags & BTH_MIG;
	view->pad = (bth->flags & BTH_PAD) >> 4;
	view->pkey = be16_get(bth->pkey);
	view->fecn = qpn >> 24 & BTH_FECN;
	view->becn = qpn >> 24 & BTH_BECN;
	view->qpn = qpn & PSN_MASK;
	view->ack_request = psn >> 24 & BTH_ACK;
	view->psn = psn & PSN_MASK;
}

/* length: of the UDP payload, which lies inside the frame. */
static enum wire_reason parse_transport(struct wire_view *view, uint32_t length)
{
	const struct bth *bth = (const struct bth *)view->bth;
	uint32_t behind;

	if (length < sizeof(*bth) + ICRC_SIZE)
		return WIRE_RUNT;
	take_bth(bth, view);
	if (bth->flags & BTH_TVER)
		return WIRE_TVER;
	view->op = opcode_lookup(bth->opcode);
	if (!view->op)
		return WIRE_OPCODE;
	if (length < view->op->length + ICRC_SIZE)
		return WIRE_HEADER_TRUNCATED;
	behind = length - view->op->length - ICRC_SIZE;
	if (behind < view->pad || (behind && !(view->op->flags & OPF_PAYLOAD)))
		return WIRE_PAD;
	view->payload = view->bth + view->op->length;
	view->payload_length = behind - view->pad;
	view->icrc = view->payload + behind;
	return WIRE_OK;
}

enum wire_reason wire_parse(const uint8_t *frame, uint32_t length, struct wire_view *view)
{
	const struct udp_header *udp;
	enum wire_reason reason;
	uint32_t l4_length = 0;
	uint32_t udp_length;
	uint32_t type;

	view->frame = frame;
	view->op = NULL;
	reason = parse_ethernet(frame, length, view, &type);
	if (reason != WIRE_OK)
		return reason;
	if (type == ETHERTYPE_IPV4)
		reason = parse_ipv4(frame + view->l3_offset, length - view->l3_offset, view,
				    &l4_length);
	else if (type == ETHERTYPE_IPV6)
		reason = parse_ipv6(frame + view->l3_offset, length - view->l3_offset, view,
				    &l4_length);
	else
		reason = WIRE_NOT_IP;
	if (reason != WIRE_OK)
		return reason;
	if (l4_length < sizeof(*udp))
		return WIRE_UDP_LENGTH;
	udp = (const struct udp_header *)(frame + view->udp_offset);
	view->source_port = be16_get(udp->source_port);
	if (be16_get(udp->destination_port) != ROCE_UDP_PORT)
		return WIRE_NOT_ROCE_PORT;
	udp_length = be16_get(udp->length);
	if (udp_length < sizeof(*udp) || udp_length > l4_length)
		return WIRE_UDP_LENGTH;
	/* The ICRC covers both lengths, so a sender that keeps the rules has them agree. */
	if (udp_length != l4_length)
		return WIRE_UDP_LENGTH;
	view->bth = frame + view->udp_offset + sizeof(*udp);
	return parse_transport(view, udp_length - (uint32_t)sizeof(*udp));
}
