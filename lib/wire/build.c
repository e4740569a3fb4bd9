/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in the making: a template per path, headers, payload, pad, lengths, ICRC. */
#include "wire/build.h"

static uint8_t *put_ipv4(uint8_t *p, const struct frame_path *path)
{
	struct ipv4_header *ip = (struct ipv4_header *)p;

	*ip = (struct ipv4_header){ .version_ihl = 0x45,
				    .tos = path->traffic_class,
				    .fragment = be16_make(0x4000),
				    .ttl = path->hop_limit,
				    .protocol = IPPROTO_UDP_NUMBER };
	memcpy(ip->source, path->source_gid + 12, 4);
	memcpy(ip->destination, path->destination_gid + 12, 4);
	return p + sizeof(*ip);
}

static uint8_t *put_ipv6(uint8_t *p, const struct frame_path *path)
{
	struct ipv6_header *ip = (struct ipv6_header *)p;
	const uint32_t class = path->traffic_class;

	*ip = (struct ipv6_header){ .version_class_flow = be32_make(6u << 28 | class << 20 |
								    (path->flow_label & 0xfffff)),
				    .next_header = IPPROTO_UDP_NUMBER,
				    .hop_limit = path->hop_limit };
	memcpy(ip->source, path->source_gid, 16);
	memcpy(ip->destination, path->destination_gid, 16);
	return p + sizeof(*ip);
}

void frame_template_init(struct frame_template *template, const struct frame_path *path)
{
	struct eth_header *eth = (struct eth_header *)template->prefix;
	uint8_t *p = template->prefix + sizeof(*eth);
	struct udp_header *udp;
	be16_t type;

	memset(template, 0, sizeof(*template));
	template->is_v4 = gid_is_v4(path->destination_gid);
	type = be16_make(template->is_v4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	memcpy(eth->destination, path->destination_mac, 6);
	memcpy(eth->source, path->source_mac, 6);
	eth->type = type;
	if (path->tagged) {
		struct vlan_tag *tag = (struct vlan_tag *)p;

		eth->type = be16_make(ETHERTYPE_VLAN);
		tag->tci = be16_make(path->vlan_tci);
		tag->type = type;
		p += sizeof(*tag);
	}
	template->l3_offset = (uint8_t)(p - template->prefix);
	p = template->is_v4 ? put_ipv4(p, path) : put_ipv6(p, path);
	udp = (struct udp_header *)p;
	udp->source_port = be16_make(path->source_port);
	udp->destination_port = be16_make(ROCE_UDP_PORT);
	template->length = (uint8_t)(p + sizeof(*udp) - template->prefix);
}

#define EXTENSIONS_MAX sizeof(struct atomic_eth)
_Static_assert(sizeof(((struct frame_template *)0)->prefix) <= FRAME_OVERHEAD_MAX &&
		       FRAME_PREFIX_MAX + sizeof(struct bth) + EXTENSIONS_MAX <= FRAME_OVERHEAD_MAX,
	       "what frame_begin() writes");

uint8_t *frame_begin(uint8_t *buffer, const struct frame_template *template, uint8_t opcode)
{
	struct bth *bth = (struct bth *)(buffer + template->length);

	/* As many bytes as there can be: no calls, no loops. */
	memcpy(buffer, template->prefix, sizeof(template->prefix));
	memset(bth, 0, sizeof(*bth) + EXTENSIONS_MAX);
	bth->opcode = opcode;
	bth->pkey = be16_make(PKEY_DEFAULT);
	return (uint8_t *)bth;
}

void frame_set_traffic_class(uint8_t *buffer, const struct frame_template *template,
			     uint8_t traffic_class)
{
	uint8_t *l3 = buffer + template->l3_offset;

	if (template->is_v4) {
		l3[1] = traffic_class;
		return;
	}
	l3[0] = (uint8_t)((l3[0] & 0xf0) | traffic_class >> 4);
	l3[1] = (uint8_t)((l3[1] & 0x0f) | traffic_class << 4);
}

/*
 * Of the template's header, in which length and checksum are 0, with the TOS and the length of this
 * one. It was written just now, in pieces: to load it whole would wait until they all are in the
 * cache.
 */
static uint16_t checksum_of(const struct frame_template *template, const struct ipv4_header *ip,
			    uint16_t total_length)
{
	const uint8_t *from = template->prefix + template->l3_offset;
	uint64_t sum = ipv4_header_sum(from);

	sum = (sum >> 32) + (uint32_t)sum;
	sum += 0xffffu - ((uint32_t)from[offsetof(struct ipv4_header, tos)] << 8);
	sum += (uint32_t)ip->tos << 8;
	return ipv4_checksum_of(sum + __builtin_bswap16(total_length));
}

static void put_lengths(uint8_t *buffer, const struct frame_template *template, uint32_t udp_length)
{
	uint8_t *l3 = buffer + template->l3_offset;
	struct udp_header *udp;

	if (template->is_v4) {
		struct ipv4_header *ip = (struct ipv4_header *)l3;
		const uint16_t length = (uint16_t)(sizeof(*ip) + udp_length);

		ip->total_length = be16_make(length);
		ip->checksum = be16_make(checksum_of(template, ip, length));
		udp = (struct udp_header *)(l3 + sizeof(*ip));
	} else {
		struct ipv6_header *ip = (struct ipv6_header *)l3;

		ip->payload_length = be16_make((uint16_t)udp_length);
		udp = (struct udp_header *)(l3 + sizeof(*ip));
	}
	udp->length = be16_make((uint16_t)udp_length);
}

uint32_t frame_finish(uint8_t *buffer, const struct frame_template *template, const void *payload,
		      uint32_t payload_length)
{
	uint8_t *l3 = buffer + template->l3_offset;
	uint8_t *bth = buffer + template->length;
	uint8_t *data = bth + opcode_table[bth[0]].length;
	uint32_t pad = -payload_length & 3;
	uint8_t *icrc = data + payload_length + pad;

	/* Before the ICRC: it covers the lengths. */
	bth_set_pad((struct bth *)bth, pad);
	put_lengths(buffer, template,
		    (uint32_t)(icrc + ICRC_SIZE - bth + sizeof(struct udp_header)));
	if (payload && payload_length) {
		icrc_store(icrc, icrc_packet_copy(l3, template->is_v4, (uint32_t)(data - l3),
						  payload, payload_length, pad));
	} else {
		memset(data + payload_length, 0, ICRC_SIZE);
		icrc_store(icrc, icrc_packet(l3, template->is_v4, (uint32_t)(icrc - l3)));
	}
	return (uint32_t)(icrc + ICRC_SIZE - buffer);
}

/* --- ACKs: all alike but for PSN and AETH, which are their last eight bytes ------------------ */

#define ACK_SIZE (sizeof(struct bth) + sizeof(struct aeth))
_Static_assert(ACK_SIZE == 16, "two words");

void frame_prepare_ack(struct frame_template *template, uint64_t first)
{
	uint8_t buffer[FRAME_OVERHEAD_MAX];
	uint8_t *bth = frame_begin(buffer, template, OP_RC_ACKNOWLEDGE);

	put_be64(bth, first);
	frame_finish(buffer, template, NULL, 0);
	template->ack_icrc = icrc_load(bth + ACK_SIZE);
}

uint32_t frame_ack(uint8_t *buffer, const struct frame_template *template, uint64_t first,
		   uint64_t second)
{
	uint8_t *bth = buffer + template->length;

	memcpy(buffer, template->prefix, sizeof(template->prefix));
	put_be64(bth, first);
	put_be64(bth + 8, second);
	put_lengths(buffer, template, sizeof(struct udp_header) + ACK_SIZE + ICRC_SIZE);
	icrc_store(bth + ACK_SIZE, template->ack_icrc ^ icrc_last(second));
	return template->length + (uint32_t)ACK_SIZE + ICRC_SIZE;
}

uint16_t roce_source_port(uint32_t flow_label, uint32_t qpn, uint32_t remote_qpn)
{
	if (!flow_label) {
		uint64_t v = (uint64_t)qpn * remote_qpn;

		v ^= v >> 20;
		v ^= v >> 40;
		flow_label = v & 0xfffff;
	}
	return (uint16_t)(((flow_label & 0x3fff) ^ ((flow_label & 0xfc000) >> 14)) | 0xc000);
}

uint32_t wire_reencode(const struct wire_view *view, uint8_t *out)
{
	const uint8_t *l3 = view->frame + view->l3_offset;
	const struct bth *from = (const struct bth *)view->bth;
	struct frame_path path = { .vlan_tci = view->vlan_tci,
				   .tagged = view->has_vlan,
				   .traffic_class = view->traffic_class,
				   .hop_limit = view->hop_limit,
				   .source_port = view->source_port };
	struct frame_template template;
	struct bth *bth;

	memcpy(path.destination_mac, view->frame, 6);
	memcpy(path.source_mac, view->frame + 6, 6);
	memcpy(path.source_gid, view->source_gid, 16);
	memcpy(path.destination_gid, view->destination_gid, 16);
	frame_template_init(&template, &path);
	if (view->is_v4)
		memcpy(template.prefix + view->l3_offset + 4, l3 + 4, 4); /* identification, DF */
	else
		memcpy(template.prefix + view->l3_offset, l3, 4); /* flow label */
	memcpy(template.prefix + view->udp_offset + 6, view->frame + view->udp_offset + 6, 2);
	bth = (struct bth *)frame_begin(out, &template, view->opcode);
	bth_set_flag(&bth->flags, BTH_SE, view->solicited);
	bth_set_flag(&bth->flags, BTH_MIG, view->mig_request);
	bth->pkey = be16_make(view->pkey);
	bth->resv8a = from->resv8a;
	bth_set_qpn(bth, view->qpn);
	bth->ack_req = from->ack_req;
	bth_set_psn(bth, view->psn);
	memcpy(bth + 1, from + 1, view->op->length - sizeof(*bth));
	return frame_finish(out, &template, view->payload, view->payload_length);
}
