/* SPDX-License-Identifier: BSD-3-Clause */
/* A checked view of one RoCEv2 frame, from any bytes. */
#ifndef WIRE_PACKET_H
#define WIRE_PACKET_H

#include <stdbool.h>

#include "wire/bth.h"
#include "wire/ip.h"
#include "wire/opcode.h"

/*
 * Why a frame is not a good RoCEv2 packet. Up to WIRE_NOT_ROCE_LAST it is not one at all
 * (ARP, TCP, ...), after that it claims to be one. Each: constant, name for counters, text for
 * a person.
 */
#define WIRE_REASONS(X)                                                             \
	X(OK, ok, "accepted")                                                       \
	X(NOT_IP, not_ip, "not IPv4 or IPv6")                                       \
	X(NOT_UDP, not_udp, "not UDP")                                              \
	X(NOT_ROCE_PORT, not_roce_port, "not UDP port 4791")                        \
	X(FRAME_TRUNCATED, frame_truncated, "frame shorter than its headers say")   \
	X(DOUBLE_TAG, double_tag, "more than one VLAN tag")                         \
	X(IP_VERSION, ip_version, "IP version does not fit the Ethernet type")      \
	X(IP_OPTIONS, ip_options, "IPv4 options or IPv6 extension headers")         \
	X(IP_CHECKSUM, ip_checksum, "IPv4 header checksum wrong")                   \
	X(FRAGMENT, fragment, "IP fragment")                                        \
	X(IP_LENGTH, ip_length, "IP length does not fit the frame")                 \
	X(UDP_LENGTH, udp_length, "UDP length does not fit the IP length")          \
	X(RUNT, runt, "too short for BTH and ICRC")                                 \
	X(TVER, tver, "transport version not 0")                                    \
	X(OPCODE, opcode, "unknown opcode")                                         \
	X(HEADER_TRUNCATED, header_truncated, "too short for the opcode's headers") \
	X(PAD, pad, "pad longer than the payload, or payload where none belongs")   \
	X(ICRC, icrc, "ICRC wrong")

enum wire_reason {
#define WIRE_ENUM(constant, name, text) WIRE_##constant,
	WIRE_REASONS(WIRE_ENUM)
#undef WIRE_ENUM
		WIRE_REASON_COUNT
};
#define WIRE_NOT_ROCE_LAST WIRE_NOT_ROCE_PORT

const char *wire_reason_name(enum wire_reason reason); /* "ip_checksum" */
const char *wire_reason_text(enum wire_reason reason); /* a sentence */

/* Valid as long as the frame. Offsets are inside [0, length of the frame). */
struct wire_view {
	const uint8_t *frame;
	const uint8_t *bth;
	const uint8_t *payload;
	const uint8_t *icrc; /* end of what the ICRC covers */
	const struct opcode_info *op;
	uint8_t source_gid[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t destination_gid[16];
	uint32_t payload_length; /* without pad */
	uint32_t psn;
	uint32_t qpn;
	uint16_t l3_offset;
	uint16_t udp_offset;
	uint16_t vlan_tci;
	bool has_vlan;
	bool is_v4;
	uint16_t source_port;
	uint16_t pkey;
	/* Bytes of the BTH as they stand there: taking their bits apart costs only who asks. */
	union {
		uint8_t bits[4];
		struct {
			uint8_t opcode;
			uint8_t version : 4, pad : 2;
			bool mig_request : 1, solicited : 1;
			uint8_t reserved1 : 6;
			bool becn : 1, fecn : 1;
			uint8_t reserved2 : 7;
			bool ack_request : 1;
		};
	};
	uint8_t traffic_class; /* DSCP 6, ECN 2 */
	uint8_t hop_limit;
};

/*
 * Accepts any bytes. Lengths come from the IP and UDP headers, so Ethernet padding behind the
 * ICRC does no harm. Not checked here: ICRC (icrc_verify), MAC, addresses, VLAN number, P_Key,
 * Q_Key; the UDP checksum is ignored, as the ICRC covers more. On another result than WIRE_OK
 * only the fields found before the fault are set.
 */
enum wire_reason wire_parse(const uint8_t *frame, uint32_t length, struct wire_view *view);

/*
 * What nearly all frames of a port have in common: its Ethernet address, no tag, IPv4 without
 * options or fragments, one of its addresses, UDP to the RoCEv2 port. All of it is compared at
 * once.
 */
struct wire_usual {
	uint8_t value[48], mask[48]; /* of the first bytes of a frame */
	uint8_t address[16];
	uint32_t shortest; /* a frame has at least so many bytes */
};

/* mac, address: unicast. Any other address than IPv4: no frame is usual. */
void wire_usual_init(struct wire_usual *usual, const uint8_t mac[6], const uint8_t address[16]);

/*
 * True for a frame from a unicast Ethernet address that has all this and for which wire_parse()
 * gives WIRE_OK; *view is then the same. False says nothing: ask wire_parse().
 */
bool wire_parse_usual(const struct wire_usual *usual, const uint8_t *frame, uint32_t length,
		      struct wire_view *view);

/* Extension headers; the caller has seen the OPF_ flag in view->op->flags. */
static inline const struct reth *view_reth(const struct wire_view *view)
{
	return (const struct reth *)(view->bth + view->op->reth);
}

static inline const struct aeth *view_aeth(const struct wire_view *view)
{
	return (const struct aeth *)(view->bth + view->op->aeth);
}

static inline const struct atomic_eth *view_atomic_eth(const struct wire_view *view)
{
	return (const struct atomic_eth *)(view->bth + view->op->atomic_eth);
}

static inline const struct atomic_ack_eth *view_atomic_ack(const struct wire_view *view)
{
	return (const struct atomic_ack_eth *)(view->bth + view->op->atomic_ack);
}

static inline const struct imm_dt *view_imm(const struct wire_view *view)
{
	return (const struct imm_dt *)(view->bth + view->op->imm);
}

static inline const struct ieth *view_ieth(const struct wire_view *view)
{
	return (const struct ieth *)(view->bth + view->op->ieth);
}

static inline const struct deth *view_deth(const struct wire_view *view)
{
	return (const struct deth *)(view->bth + view->op->deth);
}

#endif
