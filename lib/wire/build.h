/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in the making: a template per path, headers, payload, pad, lengths, ICRC. */
#ifndef WIRE_BUILD_H
#define WIRE_BUILD_H

#include "wire/icrc.h"

/* Ethernet, tag, IPv6, UDP: the longest that stands before the BTH. */
#define FRAME_PREFIX_MAX                                                                    \
	(sizeof(struct eth_header) + sizeof(struct vlan_tag) + sizeof(struct ipv6_header) + \
	 sizeof(struct udp_header))
/* The longest frame without its payload: with AtomicETH, pad and ICRC. */
#define FRAME_OVERHEAD_MAX (FRAME_PREFIX_MAX + sizeof(struct bth) + 28 + 3 + ICRC_SIZE)

struct frame_path {
	uint8_t source_mac[6];
	uint8_t destination_mac[6];
	uint16_t vlan_tci; /* used when tagged */
	bool tagged;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint16_t source_port;   /* UDP */
	uint32_t flow_label;    /* IPv6, 20 bits; 0 is what Linux sends */
	uint8_t source_gid[16]; /* both of one family */
	uint8_t destination_gid[16];
};

/* Everything before the BTH, lengths still to be filled in. */
struct frame_template {
	uint8_t prefix[80];
	uint8_t length; /* bytes of prefix */
	uint8_t l3_offset;
	bool is_v4;
	uint8_t reserved;
	uint32_t ack_icrc; /* of an ACK whose last eight bytes are 0, by frame_prepare_ack() */
};
_Static_assert(sizeof(struct frame_template) == 88, "template lies in arenas");

void frame_template_init(struct frame_template *template, const struct frame_path *path);

/*
 * Starts a frame in buffer, which holds FRAME_OVERHEAD_MAX bytes and the payload: prefix, then a
 * zeroed BTH and extension headers with opcode and P_Key set. Returns the BTH; its fields and
 * the extension headers are the caller's.
 */
uint8_t *frame_begin(uint8_t *buffer, const struct frame_template *template, uint8_t opcode);

/*
 * Ends it: copies `payload_length` bytes from payload (NULL: they are in place behind the
 * headers), pads, fills lengths and checksum, computes the ICRC. Returns the frame's length.
 */
uint32_t frame_finish(uint8_t *buffer, const struct frame_template *template, const void *payload,
		      uint32_t payload_length);

/*
 * A whole ACK or NAK: `first` are the first eight bytes of its BTH, `second` the rest of it and the
 * AETH, each with the first byte as the most significant one. `first` is that of
 * frame_prepare_ack(), which comes before. Returns the frame's length.
 */
void frame_prepare_ack(struct frame_template *template, uint64_t first);
uint32_t frame_ack(uint8_t *buffer, const struct frame_template *template, uint64_t first,
		   uint64_t second);

/* Other ECN bits, or another traffic class altogether, than the template's; before frame_finish().
 */
void frame_set_traffic_class(uint8_t *buffer, const struct frame_template *template,
			     uint8_t traffic_class);
static inline void frame_set_ecn(uint8_t *buffer, const struct frame_template *template,
				 uint8_t ecn)
{
	/* IPv4: low bits of TOS. IPv6: the class stands in the middle of the first 16 bits. */
	buffer[template->l3_offset + 1] |= (uint8_t)(template->is_v4 ? ecn : ecn << 4);
}

/*
 * UDP source port as Linux drivers choose it: from the flow label, or from both QPNs if that
 * is 0. Both ends of a connection get the same.
 */
uint16_t roce_source_port(uint32_t flow_label, uint32_t qpn, uint32_t remote_qpn);

/*
 * Rebuilds the frame of a view from its fields; `out` has FRAME_OVERHEAD_MAX bytes more than the
 * payload. For tests.
 */
uint32_t wire_reencode(const struct wire_view *view, uint8_t *out);

#endif
