/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that we make: equal to those of others, byte by byte. */
#include <criterion/criterion.h>
#include <string.h>

#include "frames.h"
#include "wire/build.h"

static const uint8_t v4_source[16] = { [10] = 0xff, 0xff, 192, 0, 2, 1 };
static const uint8_t v4_destination[16] = { [10] = 0xff, 0xff, 192, 0, 2, 2 };
static const uint8_t v6_source[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
static const uint8_t v6_destination[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 2 };

/* The path that the made_ vectors took. */
static struct frame_path vector_path(bool v4)
{
	struct frame_path path = { .source_mac = { 2, [5] = 1 },
				   .destination_mac = { 2, [5] = 2 },
				   .hop_limit = 64,
				   .source_port = 0xc001 };

	memcpy(path.source_gid, v4 ? v4_source : v6_source, 16);
	memcpy(path.destination_gid, v4 ? v4_destination : v6_destination, 16);
	return path;
}

/* Starts a frame on that path to QP 0x11 with AckReq. */
static struct bth *begin(uint8_t *buffer, struct frame_template *template,
			 const struct frame_path *path, uint8_t opcode, uint32_t psn)
{
	struct bth *bth;

	frame_template_init(template, path);
	bth = (struct bth *)frame_begin(buffer, template, opcode);
	bth_set_qpn(bth, 0x11);
	bth_set_psn(bth, psn);
	bth_set_flag(&bth->ack_req, BTH_ACK, true);
	return bth;
}

static void put_reth(struct bth *bth, uint32_t length)
{
	struct reth *reth = (struct reth *)(bth + 1);

	*reth = (struct reth){ .va = be64_make(0x7f0012345678),
			       .rkey = be32_make(0x1a2b3),
			       .length = be32_make(length) };
}

static void same_as_vector(const char *name, const uint8_t *made, uint32_t length)
{
	struct frame frame;

	vector_get(name, &frame);
	cr_assert_eq(length, frame.length, "%s: %u bytes", name, length);
	for (uint32_t i = 0; i < length; i++)
		cr_expect_eq(made[i], frame.bytes[i], "%s: byte %u is %02x, not %02x", name, i,
			     made[i], frame.bytes[i]);
}

Test(wire_build, write_with_pad)
{
	struct frame_path path = vector_path(true);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];

	memset(buffer, 0xee, sizeof(buffer));
	put_reth(begin(buffer, &template, &path, OP_RC_WRITE_ONLY, 0x100), 5);
	same_as_vector("made_rc_write_only_pad3_ipv4", buffer,
		       frame_finish(buffer, &template, "HELLO", 5));
}

Test(wire_build, write_with_pad_in_a_vlan)
{
	struct frame_path path = vector_path(true);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];

	path.tagged = true;
	path.vlan_tci = 3 << 13 | 100;
	put_reth(begin(buffer, &template, &path, OP_RC_WRITE_ONLY, 0x100), 5);
	same_as_vector("made_rc_write_only_pad3_vlan100_pcp3_ipv4", buffer,
		       frame_finish(buffer, &template, "HELLO", 5));
}

Test(wire_build, payload_in_place)
{
	struct frame_path path = vector_path(true);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];
	struct bth *bth;

	memset(buffer, 0xee, sizeof(buffer));
	bth = begin(buffer, &template, &path, OP_RC_WRITE_ONLY, 0x100);
	put_reth(bth, 5);
	memcpy((uint8_t *)bth + opcode_table[OP_RC_WRITE_ONLY].length, "HELLO", 5);
	same_as_vector("made_rc_write_only_pad3_ipv4", buffer,
		       frame_finish(buffer, &template, NULL, 5));
}

Test(wire_build, atomic_over_ipv6_with_class_and_flow_label)
{
	struct frame_path path = vector_path(false);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];
	struct bth *bth;

	path.traffic_class = 0x6a;
	path.flow_label = 0xabcde;
	bth = begin(buffer, &template, &path, OP_RC_COMPARE_SWAP, 0x106);
	*(struct atomic_eth *)(bth + 1) =
		(struct atomic_eth){ .va = be64_make(0x7f0012345678),
				     .rkey = be32_make(0x1a2b3),
				     .swap_add = be64_make(0x1111111111111111),
				     .compare = be64_make(0x2222222222222222) };
	same_as_vector("made_rc_cmp_swap_ipv6", buffer, frame_finish(buffer, &template, NULL, 0));
}

Test(wire_build, send_with_invalidate)
{
	struct frame_path path = vector_path(true);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];
	struct bth *bth = begin(buffer, &template, &path, OP_RC_SEND_ONLY_INV, 0x103);

	bth_set_flag(&bth->flags, BTH_SE, true);
	*(struct ieth *)(bth + 1) = (struct ieth){ .rkey = be32_make(0x1a2b3) };
	same_as_vector("made_rc_send_only_invalidate_ipv4", buffer,
		       frame_finish(buffer, &template, "done", 4));
}

Test(wire_build, nak_over_ipv6)
{
	struct frame_path path = vector_path(false);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];
	struct bth *bth = begin(buffer, &template, &path, OP_RC_ACKNOWLEDGE, 0x107);

	bth_set_qpn(bth, 0xffffee);
	bth_set_flag(&bth->ack_req, BTH_ACK, false);
	*(struct aeth *)(bth + 1) =
		(struct aeth){ .syndrome = NAK_REMOTE_ACCESS, .msn = be24_make(8) };
	same_as_vector("made_rc_nak_remote_access_ipv6", buffer,
		       frame_finish(buffer, &template, NULL, 0));
}

/* In one step what otherwise takes several, whatever PSN, syndrome and MSN are. */
Test(wire_build, acks_of_all_kinds_of_paths)
{
	static const uint64_t first = (uint64_t)OP_RC_ACKNOWLEDGE << 56 | (uint64_t)BTH_MIG << 48 |
				      (uint64_t)PKEY_DEFAULT << 32 | 0xabcdef;
	uint64_t second = 0x00123456789abcde;

	for (unsigned int kind = 0; kind < 4; kind++) {
		struct frame_path path = vector_path(kind & 1);
		uint8_t at_once[FRAME_MAX], in_steps[FRAME_MAX];
		struct frame_template template;

		path.tagged = kind & 2;
		path.vlan_tci = 0x5064;
		path.traffic_class = (uint8_t)(kind * 0x48);
		frame_template_init(&template, &path);
		frame_prepare_ack(&template, first);
		for (unsigned int i = 0; i < 100; i++, second = second * 5 + 0x1234567) {
			uint8_t *bth = frame_begin(in_steps, &template, OP_RC_ACKNOWLEDGE);
			uint32_t length;

			second &= 0x00ffffffffffffff; /* no AckReq, no reserved bits */
			put_be64(bth, first);
			put_be64(bth + 8, second);
			length = frame_finish(in_steps, &template, NULL, 0);
			memset(at_once, 0xee, sizeof(at_once));
			cr_assert_eq(frame_ack(at_once, &template, first, second), length);
			cr_expect_arr_eq(at_once, in_steps, length, "kind %u, %u", kind, i);
		}
	}
}

/* --- every captured frame again ------------------------------------------------------------ */

static void same_again(const struct frame *frame, void *context)
{
	uint8_t out[FRAME_MAX];
	struct wire_view view;
	uint32_t length;

	if (!frame_is_roce(frame) || wire_parse(frame->bytes, frame->length, &view) != WIRE_OK)
		return;
	length = wire_reencode(&view, out);
	cr_assert_eq(length, (uint32_t)(view.icrc - frame->bytes) + 4, "%s", frame->name);
	cr_expect_eq(memcmp(out, frame->bytes, length), 0, "%s", frame->name);
	++*(unsigned int *)context;
}

Test(wire_build, captures_reencode_to_the_same_bytes)
{
	unsigned int count = 0;

	captures_each(same_again, &count);
	cr_expect_eq(count, 367);
}

/* All but XRC, which the parser does not know. */
Test(wire_build, vectors_reencode_to_the_same_bytes)
{
	unsigned int count = 0;

	vectors_each(same_again, &count);
	cr_expect_eq(count, 56 - 1);
}

/* --- lengths, pads, checksums, ICRC of all kinds --------------------------------------------- */

static void check_made(const uint8_t *buffer, uint32_t length, uint8_t opcode, uint32_t payload)
{
	struct wire_view view;

	cr_assert_eq(wire_parse(frame_guarded(buffer, length), length, &view), WIRE_OK,
		     "opcode %02x, %u bytes of payload", opcode, payload);
	cr_expect_eq(view.payload_length, payload);
	cr_expect_eq(view.pad, -payload & 3);
	for (uint32_t i = 0; i < view.pad; i++)
		cr_expect_eq(view.payload[payload + i], 0, "pad is sent as zero");
	cr_expect_eq(view.icrc + 4 - view.frame, length);
	/* B04: the ICRC by independent code over what will be on the wire. */
	cr_expect_eq(icrc_load(view.icrc), reference_icrc(view.frame, view.l3_offset),
		     "opcode %02x, %u bytes of payload", opcode, payload);
	cr_expect_eq(get_be16(view.bth - 2), 0, "UDP checksum is sent as zero");
	if (view.is_v4)
		cr_expect_eq(get_be32(view.frame + view.l3_offset + 4), 0x00004000, "ID 0 and DF");
}

static void make_all_lengths(bool v4, bool tagged, uint8_t opcode)
{
	static const uint32_t lengths[] = { 0, 1, 2, 3, 4, 5, 7, 255, 256, 1021, 1024, 4095, 4096 };
	static uint8_t payload[4096];
	struct frame_path path = vector_path(v4);
	struct frame_template template;
	uint8_t buffer[FRAME_MAX];

	memset(payload, 0x5a, sizeof(payload));
	path.tagged = tagged;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const uint32_t length = lengths[i];

		if (length && !(opcode_table[opcode].flags & OPF_PAYLOAD))
			break;
		begin(buffer, &template, &path, opcode, 0xffffff);
		check_made(buffer, frame_finish(buffer, &template, payload, length), opcode,
			   length);
	}
}

/* B04: over both families, with and without tag, for all opcodes. */
Test(wire_build, b04_all_opcodes_families_and_lengths)
{
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		if (!opcode_lookup((uint8_t)opcode))
			continue;
		for (unsigned int kind = 0; kind < 4; kind++)
			make_all_lengths(kind & 1, kind & 2, (uint8_t)opcode);
	}
}

/* What frame_finish() writes fits FRAME_OVERHEAD_MAX and the payload. */
Test(wire_build, overhead_is_the_longest)
{
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		const struct opcode_info *op = opcode_lookup((uint8_t)opcode);

		if (op)
			cr_expect_leq(FRAME_PREFIX_MAX + op->length + 3 + ICRC_SIZE,
				      FRAME_OVERHEAD_MAX, "%s", op->name);
	}
}

/* --- UDP source port -------------------------------------------------------------------------- */

/* As seen between Linux peers: flow labels of two connections, and one by its QPNs. */
Test(wire_build, source_port_as_linux_chooses_it)
{
	cr_expect_eq(roce_source_port(0x00278, 0x11, 0x12), 49784);
	cr_expect_eq(roce_source_port(0x57f97, 0x11, 0x12), 65410);
	cr_expect_eq(roce_source_port(0, 0x14, 0x14), 49552);
	/* By the rule, with a product of more than 40 bits. */
	cr_expect_eq(roce_source_port(0, 0xabcdef, 0xfedcba), 58493);
	cr_expect_eq(roce_source_port(0, 0xffffff, 0xfffffe), 65298);
}

Test(wire_build, source_port_is_the_same_at_both_ends_and_in_range)
{
	for (uint32_t i = 0; i < 4096; i++) {
		const uint32_t a = (i * 0x9e37) & 0xffffff, b = (i * 0x85eb + 1) & 0xffffff;

		cr_expect_eq(roce_source_port(0, a, b), roce_source_port(0, b, a));
		cr_expect_geq(roce_source_port(0, a, b), 0xc000);
		cr_expect_geq(roce_source_port(i << 8, a, b), 0xc000);
	}
}

/* The ICRC masks it, so only this field and the IPv4 checksum change. */
Test(wire_build, another_traffic_class_than_the_template_s)
{
	for (int v4 = 0; v4 < 2; v4++) {
		struct frame_path path = vector_path(v4);
		struct frame_template template;
		uint8_t buffer[256];
		struct wire_view view;
		uint32_t length;

		path.traffic_class = 0x68;
		path.flow_label = 0xabcde;
		begin(buffer, &template, &path, OP_RC_ACKNOWLEDGE, 1);
		frame_set_ecn(buffer, &template, IP_ECN_ECT0);
		length = frame_finish(buffer, &template, NULL, 0);
		cr_assert_eq(wire_parse(buffer, length, &view), WIRE_OK);
		cr_assert(icrc_verify(&view));
		cr_assert_eq(view.traffic_class, 0x6a);
		begin(buffer, &template, &path, OP_RC_ACKNOWLEDGE, 1);
		frame_set_traffic_class(buffer, &template, 0xc5);
		length = frame_finish(buffer, &template, NULL, 0);
		cr_assert_eq(wire_parse(buffer, length, &view), WIRE_OK);
		cr_assert(icrc_verify(&view));
		cr_assert_eq(view.traffic_class, 0xc5);
		if (!v4)
			cr_assert_eq(get_be32(buffer + view.l3_offset), 0x6c5abcde);
	}
}
