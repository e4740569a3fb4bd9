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
	if (!ipv4_checksum_right(ip))
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
	view->bits[0] = bth->opcode;
	view->bits[1] = bth->flags;
	view->bits[2] = bth->resv8a;
	view->bits[3] = bth->ack_req;
	view->pkey = be16_get(bth->pkey);
	/* Each number of 24 bits with the byte before it: one load. */
	view->qpn = get_be32(&bth->resv8a) & PSN_MASK;
	view->psn = get_be32(&bth->ack_req) & PSN_MASK;
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

/* --- the usual frame ------------------------------------------------------------------- */

#define USUAL_IP  sizeof(struct eth_header)
#define USUAL_UDP (USUAL_IP + sizeof(struct ipv4_header))
#define USUAL_BTH (USUAL_UDP + sizeof(struct udp_header))

typedef uint64_t block __attribute__((vector_size(16)));

static void expect(struct wire_usual *usual, size_t offset, uint8_t value, uint8_t mask)
{
	usual->value[offset] = value;
	usual->mask[offset] = mask;
}

static void expect_bytes(struct wire_usual *usual, size_t offset, const void *value, size_t length)
{
	for (size_t i = 0; i < length; i++)
		expect(usual, offset + i, ((const uint8_t *)value)[i], 0xff);
}

void wire_usual_init(struct wire_usual *usual, const uint8_t mac[6], const uint8_t address[16])
{
	const be16_t type = be16_make(ETHERTYPE_IPV4), port = be16_make(ROCE_UDP_PORT);

	memset(usual, 0, sizeof(*usual));
	memcpy(usual->address, address, 16);
	usual->shortest = UINT32_MAX;
	if (gid_is_v4(address) && gid_is_unicast(address))
		usual->shortest = USUAL_BTH + sizeof(struct bth);
	expect_bytes(usual, 0, mac, 6);
	expect_bytes(usual, offsetof(struct eth_header, type), &type, sizeof(type));
	expect(usual, USUAL_IP, 0x45, 0xff);
	/* More fragments, or an offset. */
	expect(usual, USUAL_IP + offsetof(struct ipv4_header, fragment), 0, 0x3f);
	expect(usual, USUAL_IP + offsetof(struct ipv4_header, fragment) + 1, 0, 0xff);
	expect(usual, USUAL_IP + offsetof(struct ipv4_header, protocol), IPPROTO_UDP_NUMBER, 0xff);
	expect_bytes(usual, USUAL_IP + offsetof(struct ipv4_header, destination), address + 12, 4);
	expect_bytes(usual, USUAL_UDP + offsetof(struct udp_header, destination_port), &port,
		     sizeof(port));
}
_Static_assert(USUAL_BTH <= sizeof(((struct wire_usual *)0)->value), "three blocks reach the BTH");

static inline block block_at(const uint8_t *bytes)
{
	block value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static inline block differs(const struct wire_usual *usual, const uint8_t *frame, size_t at)
{
	return (block_at(frame + at) ^ block_at(usual->value + at)) & block_at(usual->mask + at);
}

static inline bool looks_usual(const struct wire_usual *usual, const uint8_t *frame)
{
	const block sum =
		differs(usual, frame, 0) | differs(usual, frame, 16) | differs(usual, frame, 32);

	return (sum[0] | sum[1]) == 0;
}

/* Neither a group nor nobody: the address and what is behind it, in one word. */
static inline bool from_station(const uint8_t *frame)
{
	const uint64_t word = get_be64(frame + offsetof(struct eth_header, source));

	return word >> 16 != 0 && !(word >> 56 & 1);
}

bool wire_parse_usual(const struct wire_usual *usual, const uint8_t *frame, uint32_t length,
		      struct wire_view *view)
{
	const struct ipv4_header *ip = (const struct ipv4_header *)(frame + USUAL_IP);
	const struct udp_header *udp = (const struct udp_header *)(frame + USUAL_UDP);
	uint32_t total, udp_length;

	if (length < usual->shortest || !looks_usual(usual, frame) || !from_station(frame) ||
	    !ipv4_checksum_right(ip))
		return false;
	total = be16_get(ip->total_length);
	udp_length = be16_get(udp->length);
	if (total > length - USUAL_IP || udp_length + sizeof(*ip) != total ||
	    udp_length < sizeof(*udp) + sizeof(struct bth) + ICRC_SIZE)
		return false;
	view->frame = frame;
	view->l3_offset = USUAL_IP;
	view->udp_offset = USUAL_UDP;
	view->vlan_tci = 0;
	view->has_vlan = false;
	view->is_v4 = true;
	view->source_port = be16_get(udp->source_port);
	view->traffic_class = ip->tos;
	view->hop_limit = ip->ttl;
	gid_from_v4(view->source_gid, ip->source);
	memcpy(view->destination_gid, usual->address, 16);
	return parse_transport(frame + USUAL_BTH, udp_length - (uint32_t)sizeof(*udp), view) ==
	       WIRE_OK;
}
