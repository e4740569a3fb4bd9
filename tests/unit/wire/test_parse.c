/* SPDX-License-Identifier: BSD-3-Clause */
/* Which bytes are a RoCEv2 packet, and the reason why others are not. */
#include <criterion/criterion.h>
#include <string.h>

#include "frames.h"
#include "wire/icrc.h"

#define PARSES(frame, reason, ...) cr_expect_eq(parse(frame, NULL), reason, __VA_ARGS__)

/* Parses a copy that ends at an inaccessible page. */
static enum wire_reason parse(const struct frame *frame, struct wire_view *view)
{
	struct wire_view own;

	return wire_parse(frame_guarded(frame->bytes, frame->length), frame->length,
			  view ? view : &own);
}

/* A frame of this opcode, UDP payload and pad count, addressed to a QPN. */
static void make(struct frame *frame, bool v4, uint8_t opcode, uint32_t udp_payload, uint32_t pad)
{
	frame_start(frame, v4, udp_payload);
	if (udp_payload > 0)
		frame->bytes[frame_bth(frame)] = opcode;
	if (udp_payload > 1)
		frame->bytes[frame_bth(frame) + 1] = (uint8_t)(pad << 4);
}

/* --- lengths --------------------------------------------------------------------------- */

/* B03: the smallest legal UDP payload is 16 bytes, whatever Ethernet padding follows. */
Test(wire_parse, b03_runt_is_measured_behind_the_udp_header)
{
	for (uint32_t length = 0; length < 20; length++) {
		struct frame frame;

		make(&frame, true, OP_RC_SEND_ONLY, length, 0);
		PARSES(&frame, length < 16 ? WIRE_RUNT : WIRE_OK, "%u bytes", length);
		frame_pad_to(&frame, 60);
		PARSES(&frame, length < 16 ? WIRE_RUNT : WIRE_OK, "%u bytes, padded", length);
	}
}

/* W15: headers cut short, with and without bytes behind that would continue plausibly. */
Test(wire_parse, w15_truncated_headers)
{
	static const struct {
		uint8_t opcode;
		uint32_t udp_payload;
		enum wire_reason reason;
	} cases[] = {
		{ OP_RC_WRITE_ONLY, 0, WIRE_RUNT },
		{ OP_RC_WRITE_ONLY, 1, WIRE_RUNT },
		{ OP_RC_WRITE_ONLY, 12, WIRE_RUNT },
		{ OP_RC_WRITE_ONLY, 15, WIRE_RUNT },
		{ OP_RC_WRITE_ONLY, 16, WIRE_HEADER_TRUNCATED },
		{ OP_RC_WRITE_ONLY, 31, WIRE_HEADER_TRUNCATED },
		{ OP_RC_WRITE_ONLY, 32, WIRE_OK },
		{ OP_RC_FETCH_ADD, 12 + 16 + 4, WIRE_HEADER_TRUNCATED },
		{ OP_RC_FETCH_ADD, 12 + 28 + 4, WIRE_OK },
		{ OP_RC_ATOMIC_ACKNOWLEDGE, 12 + 4 + 4, WIRE_HEADER_TRUNCATED },
		{ OP_RC_ATOMIC_ACKNOWLEDGE, 12 + 12 + 4, WIRE_OK },
		{ OP_UD_SEND_ONLY, 16, WIRE_HEADER_TRUNCATED },
		{ OP_UD_SEND_ONLY, 24, WIRE_OK },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct frame frame;

		make(&frame, true, cases[i].opcode, cases[i].udp_payload, 0);
		PARSES(&frame, cases[i].reason, "opcode %02x, %u bytes", cases[i].opcode,
		       cases[i].udp_payload);
		memset(frame.bytes + frame.length, 0x11, 64);
		frame.length += 64;
		PARSES(&frame, cases[i].reason, "opcode %02x, %u bytes and more behind",
		       cases[i].opcode, cases[i].udp_payload);
	}
}

/* W13: pad without payload is nothing; pad against payload is the transport's to judge. */
Test(wire_parse, w13_pad_needs_bytes_to_stand_in)
{
	struct wire_view view;
	struct frame frame;

	make(&frame, true, OP_RC_SEND_ONLY, 16, 3);
	PARSES(&frame, WIRE_PAD, "SEND_ONLY without payload");
	make(&frame, true, OP_RC_WRITE_ONLY, 32, 3);
	PARSES(&frame, WIRE_PAD, "WRITE_ONLY without payload");
	make(&frame, true, OP_RC_ACKNOWLEDGE, 20, 1);
	PARSES(&frame, WIRE_PAD, "ACKNOWLEDGE");
	for (uint32_t pad = 0; pad < 4; pad++) {
		make(&frame, true, OP_RC_WRITE_ONLY, 32 + 8, pad);
		cr_expect_eq(parse(&frame, &view), WIRE_OK);
		cr_expect_eq(view.payload_length, 8 - pad);
		cr_expect_eq(view.pad, pad);
		cr_expect_eq(view.payload + 8, view.icrc);
	}
	/* Nothing but pad is an empty payload. */
	make(&frame, false, OP_RC_SEND_ONLY, 16 + 3, 3);
	cr_expect_eq(parse(&frame, &view), WIRE_OK);
	cr_expect_eq(view.payload_length, 0);
}

/* Opcodes that have no payload do not get any. */
Test(wire_parse, payload_where_none_belongs)
{
	static const uint8_t opcodes[] = { OP_RC_READ_REQUEST, OP_RC_ACKNOWLEDGE,
					   OP_RC_ATOMIC_ACKNOWLEDGE, OP_RC_COMPARE_SWAP,
					   OP_RC_FETCH_ADD };

	for (size_t i = 0; i < sizeof(opcodes); i++) {
		struct frame frame;

		make(&frame, true, opcodes[i], opcode_lookup(opcodes[i])->length + 4 + 4u, 0);
		PARSES(&frame, WIRE_PAD, "opcode %02x", opcodes[i]);
	}
}

Test(wire_parse, ip_and_udp_lengths_must_agree_and_fit)
{
	for (int v4 = 0; v4 <= 1; v4++) {
		struct frame good, frame;
		const uint32_t ip = 14 + (v4 ? 2 : 4), udp = 14 + (v4 ? 20 : 40) + 4;

		make(&good, v4, OP_RC_SEND_ONLY, 20, 0);
		frame = good;
		frame.bytes[ip + 1]++;
		frame_fix_checksum(&frame);
		PARSES(&frame, WIRE_IP_LENGTH, "IP longer than the frame");
		frame_pad_to(&frame, 100);
		PARSES(&frame, WIRE_UDP_LENGTH, "IP longer than UDP");
		frame = good;
		frame.bytes[udp + 1]++;
		PARSES(&frame, WIRE_UDP_LENGTH, "UDP longer than IP");
		frame_pad_to(&frame, 100);
		PARSES(&frame, WIRE_UDP_LENGTH, "UDP longer than IP, bytes behind");
		frame = good;
		memset(frame.bytes + udp, 0, 2);
		PARSES(&frame, WIRE_UDP_LENGTH, "UDP length 0");
		frame.bytes[udp + 1] = 7;
		PARSES(&frame, WIRE_UDP_LENGTH, "UDP length 7");
		frame = good;
		memset(frame.bytes + ip, 0, 2);
		frame_fix_checksum(&frame);
		PARSES(&frame, v4 ? WIRE_IP_LENGTH : WIRE_UDP_LENGTH, "IP length 0");
		frame = good;
		memset(frame.bytes + udp, 0xff, 2);
		memset(frame.bytes + ip, 0xff, 2);
		frame_fix_checksum(&frame);
		PARSES(&frame, WIRE_IP_LENGTH, "both 65535");
	}
}

/* An IP packet too short for a UDP header, at the very end of the frame. */
Test(wire_parse, ip_packet_without_a_whole_udp_header)
{
	for (uint32_t length = 0; length < 16; length++) {
		const bool v4 = length & 1;
		const uint32_t rest = length / 2;
		struct frame frame;

		make(&frame, v4, OP_RC_SEND_ONLY, 0, 0);
		put_be16(frame.bytes + 14 + (v4 ? 2 : 4), (uint16_t)((v4 ? 20 : 0) + rest));
		frame_fix_checksum(&frame);
		frame.length = 14 + (v4 ? 20 : 40) + rest;
		PARSES(&frame, WIRE_UDP_LENGTH, "%u bytes of UDP", rest);
	}
}

static void every_truncation(const struct frame *frame, void *context)
{
	const uint32_t udp = frame_bth(frame) - 8;
	const uint32_t whole = udp + get_be16(frame->bytes + udp + 4);
	struct wire_view view;

	for (uint32_t length = 0; length < whole; length++) {
		const uint8_t *bytes = frame_guarded(frame->bytes, length);

		cr_expect_neq(wire_parse(bytes, length, &view), WIRE_OK, "%s cut to %u",
			      frame->name, length);
	}
}

Test(wire_parse, no_truncated_frame_is_accepted)
{
	vectors_each(every_truncation, NULL);
}

/* --- opcodes ----------------------------------------------------------------------------- */

/* Bytes behind the BTH by opcode, written down apart from the library's table; -1: none such. */
static int extension_bytes(uint8_t opcode)
{
	static const int8_t rc[0x18] = { 0,  0, 0, 4, 0, 4, 16, 0,  0,  4,  16, 20,
					 16, 4, 0, 4, 4, 4, 12, 28, 28, -1, 4,  4 };

	if (opcode < 0x18)
		return rc[opcode];
	if (opcode >= 0x20 && opcode <= 0x2b)
		return rc[opcode - 0x20];
	switch (opcode) {
	case 0x64: return 8;
	case 0x65: return 12;
	case 0x81: return 0;
	case 0x1c: return 20;
	case 0x1d: return 16;
	default: return -1;
	}
}

static bool takes_payload(uint8_t opcode)
{
	return opcode != 0x0c && (opcode < 0x11 || opcode > 0x14) && opcode != 0x1c;
}

static enum wire_reason expected(uint8_t opcode, uint32_t udp_payload, uint32_t pad)
{
	const int extension = extension_bytes(opcode);
	int behind;

	if (udp_payload < 16)
		return WIRE_RUNT;
	if (extension < 0)
		return WIRE_OPCODE;
	behind = (int)udp_payload - 16 - extension;
	if (behind < 0)
		return WIRE_HEADER_TRUNCATED;
	if (behind < (int)pad || (behind > 0 && !takes_payload(opcode)))
		return WIRE_PAD;
	return WIRE_OK;
}

static void sweep_opcode(bool v4, uint8_t opcode)
{
	static const uint32_t qpns[] = { 0x11, 0, 1, 0xffffff };

	for (uint32_t length = 0; length <= 64; length++) {
		for (uint32_t variant = 0; variant < 16; variant++) {
			const uint32_t pad = variant & 3, qpn = qpns[variant >> 2];
			struct wire_view view;
			struct frame frame;

			make(&frame, v4, opcode, length, pad);
			if (length >= 8)
				put_be24(frame.bytes + frame_bth(&frame) + 5, qpn);
			cr_expect_eq(parse(&frame, &view), expected(opcode, length, pad),
				     "opcode %02x, %u bytes, pad %u", opcode, length, pad);
			if (expected(opcode, length, pad) == WIRE_OK)
				cr_expect_eq(view.qpn, qpn);
		}
	}
}

/* B02: an opcode is looked up and its headers fit before anything uses them. */
Test(wire_parse, b02_all_opcodes_all_lengths)
{
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		sweep_opcode(true, (uint8_t)opcode);
		sweep_opcode(false, (uint8_t)opcode);
	}
}

Test(wire_parse, b02_opcode_ff_to_the_multicast_qpn)
{
	struct frame frame;

	make(&frame, true, 0xff, 48, 0);
	put_be24(frame.bytes + frame_bth(&frame) + 5, 0xffffff);
	PARSES(&frame, WIRE_OPCODE, "opcode ff");
}

/* --- bits that decide, and bits that do not ------------------------------------------------- */

/* B17: M, FECN, BECN, AckReq and reserved bits are nobody's business; TVer is. */
Test(wire_parse, b17_bits_that_do_not_matter)
{
	struct wire_view view;
	struct frame frame;
	uint8_t *bth;

	make(&frame, true, OP_UD_SEND_ONLY, 12 + 8 + 4, 0);
	bth = frame.bytes + frame_bth(&frame);
	bth[1] |= 0xc0; /* SE, M */
	bth[4] = 0xff;  /* FECN, BECN, reserved */
	bth[8] = 0xff;  /* AckReq, reserved */
	cr_expect_eq(parse(&frame, &view), WIRE_OK);
	cr_expect(view.solicited && view.mig_request && view.fecn && view.becn && view.ack_request);
	for (uint8_t version = 1; version < 16; version++) {
		bth[1] = version;
		PARSES(&frame, WIRE_TVER, "TVer %u", version);
	}
}

/* B16: checksum 0 is legal over IPv6 too; a wrong one is ignored, the ICRC covers the frame. */
Test(wire_parse, b16_udp_checksum_is_ignored)
{
	static const uint16_t checksums[] = { 0, 0x1234, 0xffff };

	for (size_t i = 0; i < 3; i++) {
		for (int v4 = 0; v4 <= 1; v4++) {
			struct wire_view view;
			struct frame frame;

			make(&frame, v4, OP_RC_SEND_ONLY, 24, 0);
			put_be16(frame.bytes + frame_bth(&frame) - 2, checksums[i]);
			frame_seal(&frame);
			cr_expect_eq(parse(&frame, &view), WIRE_OK);
			cr_expect(icrc_verify(&view), "checksum %04x", checksums[i]);
		}
	}
}

/* --- IP --------------------------------------------------------------------------------------- */

static void make_fragment(struct frame *frame, uint16_t identification, uint16_t fragment)
{
	make(frame, true, OP_RC_SEND_ONLY, 24, 0);
	put_be16(frame->bytes + 14 + 4, identification);
	put_be16(frame->bytes + 14 + 6, fragment);
	frame_fix_checksum(frame);
}

/* B15, W19: MF and offset make a fragment, identification and DF do not. */
Test(wire_parse, b15_w19_fragments_and_look_alikes)
{
	struct frame frame;

	make_fragment(&frame, 0x1234, 0x4000);
	PARSES(&frame, WIRE_OK, "ID, DF");
	make_fragment(&frame, 0, 0);
	PARSES(&frame, WIRE_OK, "no ID, no DF");
	make_fragment(&frame, 0x1234, 0);
	PARSES(&frame, WIRE_OK, "ID, no DF");
	make_fragment(&frame, 0, 0x2000);
	PARSES(&frame, WIRE_FRAGMENT, "MF");
	make_fragment(&frame, 0, 8);
	PARSES(&frame, WIRE_FRAGMENT, "offset 8");
	make_fragment(&frame, 0, 185);
	PARSES(&frame, WIRE_FRAGMENT, "offset 185");
}

/* W19: a fragment header of one whole (atomic) fragment, other extension headers, options. */
Test(wire_parse, w19_extension_headers_and_options)
{
	static const struct {
		uint8_t next_header;
		enum wire_reason reason;
	} cases[] = {
		{ 0, WIRE_IP_OPTIONS }, { 43, WIRE_IP_OPTIONS }, { 60, WIRE_IP_OPTIONS },
		{ 44, WIRE_FRAGMENT },  { 6, WIRE_NOT_UDP },     { 58, WIRE_NOT_UDP },
		{ 255, WIRE_NOT_UDP },
	};
	struct frame frame;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		make(&frame, false, OP_RC_SEND_ONLY, 32, 0);
		frame.bytes[14 + 6] = cases[i].next_header;
		PARSES(&frame, cases[i].reason, "next header %u", cases[i].next_header);
	}
	make(&frame, true, OP_RC_SEND_ONLY, 32, 0);
	frame.bytes[14] = 0x46;
	frame_fix_checksum(&frame);
	PARSES(&frame, WIRE_IP_OPTIONS, "IHL 6");
	frame.bytes[14] = 0x44;
	PARSES(&frame, WIRE_IP_OPTIONS, "IHL 4");
	frame.bytes[14] = 0x65;
	PARSES(&frame, WIRE_IP_VERSION, "version 6 in an IPv4 frame");
	make(&frame, false, OP_RC_SEND_ONLY, 32, 0);
	frame.bytes[14] = 0x40;
	PARSES(&frame, WIRE_IP_VERSION, "version 4 in an IPv6 frame");
}

/* B118: the header checksum is verified here, whatever the driver says. */
Test(wire_parse, b118_ipv4_header_checksum)
{
	for (uint32_t bit = 0; bit < 16; bit++) {
		struct frame frame;

		make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
		frame.bytes[14 + 10 + bit / 8] ^= (uint8_t)(1u << bit % 8);
		PARSES(&frame, WIRE_IP_CHECKSUM, "bit %u", bit);
	}
}

/* --- what is not ours ------------------------------------------------------------------------- */

Test(wire_parse, other_protocols_are_told_from_malformed_ones)
{
	struct frame frame;

	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	put_be16(frame.bytes + 12, 0x0806);
	PARSES(&frame, WIRE_NOT_IP, "ARP");
	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	frame.bytes[14 + 9] = 6;
	frame_fix_checksum(&frame);
	PARSES(&frame, WIRE_NOT_UDP, "TCP");
	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	put_be16(frame.bytes + frame_bth(&frame) - 6, 4790);
	PARSES(&frame, WIRE_NOT_ROCE_PORT, "port 4790");
	put_be16(frame.bytes + frame_bth(&frame) - 8, 4791);
	PARSES(&frame, WIRE_NOT_ROCE_PORT, "from port 4791 to another");
	cr_expect(WIRE_NOT_IP <= WIRE_NOT_ROCE_LAST && WIRE_NOT_UDP <= WIRE_NOT_ROCE_LAST &&
		  WIRE_FRAME_TRUNCATED > WIRE_NOT_ROCE_LAST && WIRE_OK < WIRE_NOT_IP);
}

static void tcp_is_not_roce(const struct frame *frame, void *context)
{
	if (frame_is_roce(frame))
		return;
	PARSES(frame, WIRE_NOT_UDP, "%s", frame->name);
	++*(unsigned int *)context;
}

Test(wire_parse, captured_tcp_is_not_roce)
{
	unsigned int count = 0;

	captures_each(tcp_is_not_roce, &count);
	cr_expect_gt(count, 100);
}

/* --- tags ------------------------------------------------------------------------------------- */

/* W21: one 802.1Q tag; the caller decides on its VID. */
Test(wire_parse, w21_tags)
{
	static const uint16_t tcis[] = { 0x0000, 0xa000, 0x0064, 0xf064, 0x0065, 0xffff };
	struct wire_view view;
	struct frame frame;

	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	cr_expect_eq(parse(&frame, &view), WIRE_OK);
	cr_expect(!view.has_vlan && view.vlan_tci == 0);
	for (size_t i = 0; i < sizeof(tcis) / sizeof(tcis[0]); i++) {
		for (int v4 = 0; v4 <= 1; v4++) {
			make(&frame, v4, OP_RC_SEND_ONLY, 16, 0);
			frame_tag(&frame, 0x8100, tcis[i]);
			frame_seal(&frame);
			cr_expect_eq(parse(&frame, &view), WIRE_OK);
			cr_expect(view.has_vlan && icrc_verify(&view));
			cr_expect_eq(view.vlan_tci, tcis[i]);
		}
	}
}

Test(wire_parse, w21_two_tags)
{
	struct frame frame;

	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	frame_tag(&frame, 0x88a8, 100);
	PARSES(&frame, WIRE_NOT_IP, "service tag alone");
	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	frame_tag(&frame, 0x8100, 100);
	frame_tag(&frame, 0x8100, 100);
	PARSES(&frame, WIRE_DOUBLE_TAG, "two customer tags");
	make(&frame, true, OP_RC_SEND_ONLY, 16, 0);
	frame_tag(&frame, 0x88a8, 100);
	frame_tag(&frame, 0x8100, 100);
	PARSES(&frame, WIRE_DOUBLE_TAG, "service tag inside");
}
