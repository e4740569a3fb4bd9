/* SPDX-License-Identifier: BSD-3-Clause */
/* What the view of a good frame says, and that it stays inside the frame for any bytes. */
#include <criterion/criterion.h>
#include <string.h>

#include "frames.h"
#include "wire/icrc.h"
#include "wire/packet.h"

static void view_of(const char *name, struct frame *frame, struct wire_view *view)
{
	vector_get(name, frame);
	cr_assert_eq(wire_parse(frame->bytes, frame->length, view), WIRE_OK, "%s", name);
}

Test(wire_view, write_only_over_ipv4)
{
	static const uint8_t source[16] = { [10] = 0xff, 0xff, 192, 0, 2, 1 };
	static const uint8_t destination[16] = { [10] = 0xff, 0xff, 192, 0, 2, 2 };
	struct wire_view view;
	struct frame frame;

	view_of("made_rc_write_only_pad3_ipv4_ecn_ce_ttl1_fecn", &frame, &view);
	cr_expect_eq(view.opcode, OP_RC_WRITE_ONLY);
	cr_expect_eq(view.op, opcode_lookup(OP_RC_WRITE_ONLY));
	cr_expect(view.is_v4 && !view.has_vlan && !view.solicited && !view.mig_request);
	cr_expect(view.fecn && !view.becn && view.ack_request);
	cr_expect_eq(view.traffic_class, 0x6b);
	cr_expect_eq(view.hop_limit, 1);
	cr_expect_eq(view.source_port, 0xc001);
	cr_expect_eq(view.pkey, 0xffff);
	cr_expect_eq(view.qpn, 0x11);
	cr_expect_eq(view.psn, 0x100);
	cr_expect_eq(view.pad, 3);
	cr_expect_arr_eq(view.source_gid, source, 16);
	cr_expect_arr_eq(view.destination_gid, destination, 16);
	cr_expect_eq(be64_get(view_reth(&view)->va), 0x7f0012345678);
	cr_expect_eq(be32_get(view_reth(&view)->rkey), 0x1a2b3);
	cr_expect_eq(be32_get(view_reth(&view)->length), 5);
	cr_expect_eq(view.payload_length, 5);
	cr_expect_arr_eq(view.payload, "HELLO", 5);
}

Test(wire_view, ipv6_addresses_and_class)
{
	struct wire_view view;
	struct frame frame;

	view_of("scapy_uc_send_only_ipv6", &frame, &view);
	cr_expect(!view.is_v4 && view.solicited == false && view.mig_request);
	cr_expect_eq(view.traffic_class, 0xe2);
	cr_expect_eq(view.hop_limit, 0xff);
	cr_expect_arr_eq(view.source_gid, frame.bytes + 14 + 8, 16);
	cr_expect_arr_eq(view.destination_gid, frame.bytes + 14 + 24, 16);
	cr_expect_eq(view.qpn, 0xd3);
	cr_expect_eq(view.psn, 0xcf1710);
	cr_expect_eq(view.payload_length, 18);
}

/* B13: swap-or-add first, compare second. */
Test(wire_view, b13_atomic_operands)
{
	struct wire_view view;
	struct frame frame;

	view_of("made_rc_cmp_swap_ipv6", &frame, &view);
	cr_expect_eq(be64_get(view_atomic_eth(&view)->va), 0x7f0012345678);
	cr_expect_eq(be32_get(view_atomic_eth(&view)->rkey), 0x1a2b3);
	cr_expect_eq(be64_get(view_atomic_eth(&view)->swap_add), 0x1111111111111111);
	cr_expect_eq(be64_get(view_atomic_eth(&view)->compare), 0x2222222222222222);
	view_of("made_rc_atomic_ack_ipv6", &frame, &view);
	cr_expect_eq(view_aeth(&view)->syndrome, AETH_ACK | AETH_UNLIMITED);
	cr_expect_eq(be24_get(view_aeth(&view)->msn), 7);
	cr_expect_eq(be64_get(view_atomic_ack(&view)->original), 0x2222222222222222);
}

/* B12: an immediate is four bytes as they stand, a key to invalidate is a number. */
Test(wire_view, b12_immediate_and_invalidate)
{
	struct wire_view view;
	struct frame frame;

	view_of("made_rc_write_only_imm_ipv4", &frame, &view);
	cr_expect_arr_eq(view_imm(&view)->data, ((uint8_t[]){ 0xde, 0xad, 0xbe, 0xef }), 4);
	cr_expect_eq(be32_get(view_reth(&view)->length), 8);
	view_of("made_rc_write_last_imm_ipv4", &frame, &view);
	cr_expect_arr_eq(view_imm(&view)->data, ((uint8_t[]){ 0xde, 0xad, 0xbe, 0xef }), 4);
	cr_expect_eq(view.payload_length, 3);
	view_of("made_rc_send_only_invalidate_ipv4", &frame, &view);
	cr_expect_eq(be32_get(view_ieth(&view)->rkey), 0x1a2b3);
	cr_expect_arr_eq(view.payload, "done", 4);
}

Test(wire_view, datagram)
{
	struct wire_view view;
	struct frame frame;

	view_of("rxe61_ud_send_only_imm_ipv4", &frame, &view);
	cr_expect_eq(be32_get(view_deth(&view)->qkey), 0x01234567);
	cr_expect_eq(be24_get(view_deth(&view)->source_qpn), 0x13);
	cr_expect_arr_eq(view_imm(&view)->data, ((uint8_t[]){ 0, 0, 0, 0x13 }), 4);
}

Test(wire_view, naks)
{
	static const struct {
		const char *name;
		uint8_t syndrome;
	} cases[] = {
		{ "rxe61_rc_nak_psn_ipv4", NAK_PSN_SEQUENCE },
		{ "rxe61_rc_nak_invalid_request_ipv4", NAK_INVALID_REQUEST },
		{ "rxe61_rc_nak_remote_access_ipv4", NAK_REMOTE_ACCESS },
		{ "rxe61_rc_nak_remote_operational_ipv4", NAK_REMOTE_OPERATION },
		{ "rxe61_rc_rnr_nak_ipv4", AETH_RNR | 12 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire_view view;
		struct frame frame;

		view_of(cases[i].name, &frame, &view);
		cr_expect_eq(view.opcode, OP_RC_ACKNOWLEDGE);
		cr_expect_eq(view_aeth(&view)->syndrome, cases[i].syndrome, "%s", cases[i].name);
	}
}

Test(wire_view, congestion_notification)
{
	struct wire_view view;
	struct frame frame;

	view_of("connectx4_cnp_ipv4", &frame, &view);
	cr_expect_eq(view.opcode, OP_CNP);
	cr_expect(view.becn && !view.fecn);
	cr_expect_eq(view.source_port, 0);
	cr_expect_eq(view.traffic_class, 0xc2);
	view_of("made_cnp_ipv6", &frame, &view);
	cr_expect(view.becn && !view.fecn && !view.is_v4);
}

/* The ICRC lies before the Ethernet padding. */
Test(wire_view, ethernet_padding_is_outside)
{
	struct wire_view view;
	struct frame frame;

	view_of("made_rc_send_only_zero_length_eth_padded_60", &frame, &view);
	cr_expect_eq(view.payload_length, 0);
	cr_expect_eq(view.icrc - frame.bytes, 60 - 2 - 4);
}

/* FRAME-19, FRAME-20: what is defined and not offered is told from what is not for RC. */
Test(wire_view, opcodes_not_served)
{
	static const struct {
		const char *name;
		enum wire_reason reason;
		uint32_t payload;
	} cases[] = {
		{ "made_rc_atomic_write_ipv4", WIRE_OK, 8 },
		{ "made_rc_flush_global_range_ipv4", WIRE_OK, 0 },
		{ "made_xrc_write_only_ipv4", WIRE_OPCODE, 0 },
	};

	for (size_t i = 0; i < 3; i++) {
		struct wire_view view;
		struct frame frame;

		vector_get(cases[i].name, &frame);
		cr_assert_eq(wire_parse(frame.bytes, frame.length, &view), cases[i].reason, "%s",
			     cases[i].name);
		if (cases[i].reason != WIRE_OK)
			continue;
		cr_expect(icrc_verify(&view), "%s", cases[i].name);
		cr_expect_eq(view.payload_length, cases[i].payload);
		cr_expect_eq(view.op->flags & OPF_OPERATION, 0);
	}
}

/* --- any bytes --------------------------------------------------------------------------- */

static uint64_t random_next(uint64_t *state)
{
	/* xorshift64*: repeatable from its seed */
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

static void inside(const struct wire_view *view, const uint8_t *bytes, uint32_t length)
{
	cr_assert(view->bth > bytes && view->bth + 12 <= view->payload);
	cr_assert(view->payload + view->payload_length + view->pad == view->icrc);
	cr_assert(view->icrc + 4 <= bytes + length);
	cr_assert_not_null(view->op);
	cr_assert_eq(view->bth + view->op->length, view->payload);
	cr_assert(view->psn < 1u << 24 && view->qpn < 1u << 24 && view->pad < 4);
}

#define MUTATIONS 400u

static void mutate(const struct frame *frame, void *context)
{
	uint64_t *random = context;

	for (uint32_t i = 0; i < MUTATIONS; i++) {
		const uint32_t length = random_next(random) % 8
						? frame->length
						: (uint32_t)(random_next(random) % frame->length);
		uint8_t *bytes = frame_guarded(frame->bytes, length);
		struct wire_view view;

		for (uint64_t n = random_next(random) % 4; n && length; n--)
			bytes[random_next(random) % (length < 96 ? length : 96)] =
				(uint8_t)random_next(random);
		if (wire_parse(bytes, length, &view) == WIRE_OK)
			inside(&view, bytes, length);
	}
}

Test(wire_view, stays_inside_whatever_the_bytes)
{
	uint64_t random = 0x0123456789abcdef;

	vectors_each(mutate, &random);
}

Test(wire_view, every_reason_has_a_name_and_a_sentence)
{
	for (unsigned int i = 0; i < WIRE_REASON_COUNT; i++) {
		const char *name = wire_reason_name(i);

		cr_assert(name && wire_reason_text(i) && *wire_reason_text(i));
		cr_expect_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(name),
			     "%s", name);
		for (unsigned int j = 0; j < i; j++)
			cr_expect_neq(strcmp(name, wire_reason_name(j)), 0, "%s twice", name);
	}
	cr_expect_null(wire_reason_name(WIRE_REASON_COUNT));
	cr_expect_null(wire_reason_text(WIRE_REASON_COUNT));
}
