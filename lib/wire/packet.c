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

static inline enum wire_reason parse_ethernet(const uint8_t *frame, uint32_t length,
					      struct wire_view *view, uint32_t *type,
					      uint32_t *l3_offset)
{
	uint32_t offset = sizeof(struct eth_header);

	if (length < sizeof(struct eth_header))
		return WIRE_FRAME_TRUNCATED;
	*type = get_be16(frame + 12);
	view->has_vlan = *type == ETHERTYPE_VLAN;
	view->vlan_tci = 0;
	if (view->has_vlan) {
		if (length < sizeof(struct eth_header) + sizeof(struct vlan_tag))
			return WIRE_FRAME_TRUNCATED;
		view->vlan_tci = get_be16(frame + 14);
		*type = get_be16(frame + 16);
		offset += (uint32_t)sizeof(struct vlan_tag);
		if (*type == ETHERTYPE_VLAN || *type == ETHERTYPE_QINQ)
			return WIRE_DOUBLE_TAG;
	}
	view->l3_offset = (uint16_t)offset;
	*l3_offset = offset;
	return WIRE_OK;
}

static enum wire_reason why_not_ipv4(const struct ipv4_header *ip)
{
	if (ip->version_ihl >> 4 != 4)
		return WIRE_IP_VERSION;
	return ip->protocol != IPPROTO_UDP_NUMBER ? WIRE_NOT_UDP : WIRE_IP_OPTIONS;
}

/* On WIRE_OK *l4_length is what the IP header says lies behind it. */
static inline enum wire_reason parse_ipv4(const uint8_t *l3, uint32_t room, struct wire_view *view,
					  uint32_t *l4_length)
{
	const struct ipv4_header *ip = (const struct ipv4_header *)l3;
	uint32_t total;

	if (room < sizeof(*ip))
		return WIRE_FRAME_TRUNCATED;
	if (ip->version_ihl != 0x45 || ip->protocol != IPPROTO_UDP_NUMBER)
		return why_not_ipv4(ip);
	if (ipv4_checksum(ip) != 0)
		return WIRE_IP_CHECKSUM;
	/* Identification says nothing about fragments (RFC 6864); MF and offset do. */
	if (be16_get(ip->fragment) & 0x3fff)
		return WIRE_FRAGMENT;
	total = be16_get(ip->total_length);
	if (total < sizeof(*ip) || total > room)
		return WIRE_IP_LENGTH;
	*l4_length = total - (uint32_t)sizeof(*ip);
	view->is_v4 = true;
	view->traffic_class = ip->tos;
	view->hop_limit = ip->ttl;
	gid_from_v4(view->source_gid, ip->source);
	gid_from_v4(view->destination_gid, ip->destination);
	return WIRE_OK;
}

static inline enum wire_reason parse_ipv6(const uint8_t *l3, uint32_t room, struct wire_view *view,
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
	view->is_v4 = false;
	view->traffic_class = (uint8_t)(be32_get(ip->version_class_flow) >> 20);
	view->hop_limit = ip->hop_limit;
	memcpy(view->source_gid, ip->source, 16);
	memcpy(view->destination_gid, ip->destination, 16);
	return WIRE_OK;
}

static inline void take_bth(const struct bth *bth, struct wire_view *view)
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
static inline enum wire_reason parse_transport(const uint8_t *payload, uint32_t length,
					       struct wire_view *view)
{
	const struct bth *bth = (const struct bth *)payload;
	const struct opcode_info *op;
	uint32_t behind, pad;

	view->bth = payload;
	if (length < sizeof(*bth) + ICRC_SIZE)
		return WIRE_RUNT;
	take_bth(bth, view);
	if (bth->flags & BTH_TVER)
		return WIRE_TVER;
	op = opcode_lookup(bth->opcode);
	view->op = op;
	if (!op)
		return WIRE_OPCODE;
	if (length < op->length + ICRC_SIZE)
		return WIRE_HEADER_TRUNCATED;
	pad = (bth->flags & BTH_PAD) >> 4;
	behind = length - op->length - ICRC_SIZE;
	if (behind < pad || (behind && !(op->flags & OPF_PAYLOAD)))
		return WIRE_PAD;
	view->payload = payload + op->length;
	view->payload_length = behind - pad;
	view->icrc = payload + op->length + behind;
	return WIRE_OK;
}

/* What is behind the IP header; l4_length bytes of it lie inside the frame. */
static inline enum wire_reason parse_udp(const uint8_t *l4, uint32_t l4_length,
					 struct wire_view *view)
{
	const struct udp_header *udp = (const struct udp_header *)l4;
	uint32_t udp_length;

	if (l4_length < sizeof(*udp))
		return WIRE_UDP_LENGTH;
	view->source_port = be16_get(udp->source_port);
	if (be16_get(udp->destination_port) != ROCE_UDP_PORT)
		return WIRE_NOT_ROCE_PORT;
	udp_length = be16_get(udp->length);
	/* The ICRC covers both lengths, so a sender that keeps the rules has them agree. */
	if (udp_length < sizeof(*udp) || udp_length != l4_length)
		return WIRE_UDP_LENGTH;
	return parse_transport(l4 + sizeof(*udp), udp_length - (uint32_t)sizeof(*udp), view);
}

enum wire_reason wire_parse(const uint8_t *frame, uint32_t length, struct wire_view *view)
{
	enum wire_reason reason;
	uint32_t l4_length = 0, type, offset;

	view->frame = frame;
	view->op = NULL;
	reason = parse_ethernet(frame, length, view, &type, &offset);
	if (reason != WIRE_OK)
		return reason;
	if (type == ETHERTYPE_IPV4) {
		reason = parse_ipv4(frame + offset, length - offset, view, &l4_length);
		offset += (uint32_t)sizeof(struct ipv4_header);
	} else if (type == ETHERTYPE_IPV6) {
		reason = parse_ipv6(frame + offset, length - offset, view, &l4_length);
		offset += (uint32_t)sizeof(struct ipv6_header);
	} else {
		reason = WIRE_NOT_IP;
	}
	if (reason != WIRE_OK)
		return reason;
	view->udp_offset = (uint16_t)offset;
	return parse_udp(frame + offset, l4_length, view);
}
