/* SPDX-License-Identifier: BSD-3-Clause */
/* Header fields and the small rules that go with them: setters, PSNs, timers, opcodes, addresses.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "wire/ip.h"
#include "wire/bth.h"
#include "wire/opcode.h"

/* --- B08: setters touch only their own bits ------------------------------------------------- */

enum setter { SET_QPN, SET_PSN, SET_PAD, SET_SE, SET_MIG, SET_FECN, SET_BECN, SET_ACK, SETTERS };

/* Bits of the header that each may change. */
static const uint8_t own_bits[SETTERS][12] = {
	[SET_QPN] = { [5] = 0xff, 0xff, 0xff },
	[SET_PSN] = { [9] = 0xff, 0xff, 0xff },
	[SET_PAD] = { [1] = 0x30 },
	[SET_SE] = { [1] = 0x80 },
	[SET_MIG] = { [1] = 0x40 },
	[SET_FECN] = { [4] = 0x80 },
	[SET_BECN] = { [4] = 0x40 },
	[SET_ACK] = { [8] = 0x80 },
};

static void set(struct bth *bth, enum setter setter, bool ones)
{
	const uint32_t number = ones ? 0xffffffff : 0;

	switch (setter) {
	case SET_QPN: bth_set_qpn(bth, number); break;
	case SET_PSN: bth_set_psn(bth, number); break;
	case SET_PAD: bth_set_pad(bth, number); break;
	case SET_SE: bth_set_flag(&bth->flags, BTH_SE, ones); break;
	case SET_MIG: bth_set_flag(&bth->flags, BTH_MIG, ones); break;
	case SET_FECN: bth_set_flag(&bth->resv8a, BTH_FECN, ones); break;
	case SET_BECN: bth_set_flag(&bth->resv8a, BTH_BECN, ones); break;
	default: bth_set_flag(&bth->ack_req, BTH_ACK, ones);
	}
}

Test(wire_bth, b08_setters_touch_only_their_bits)
{
	for (unsigned int setter = 0; setter < SETTERS; setter++) {
		for (unsigned int fill = 0; fill < 2; fill++) {
			uint8_t bytes[12];

			memset(bytes, fill ? 0xff : 0, sizeof(bytes));
			set((struct bth *)bytes, setter, !fill);
			for (unsigned int i = 0; i < 12; i++) {
				const uint8_t changed = bytes[i] ^ (fill ? 0xff : 0);

				cr_expect_eq(changed, own_bits[setter][i], "setter %u, byte %u",
					     setter, i);
			}
		}
	}
}

Test(wire_bth, fields_are_big_endian)
{
	static const uint8_t bytes[12] = { 0x0a, 0, 0x12, 0x34, 0, 1, 2, 3, 0, 4, 5, 6 };
	const struct bth *bth = (const struct bth *)bytes;

	cr_expect_eq(be16_get(bth->pkey), 0x1234);
	cr_expect_eq(be24_get(bth->qpn), 0x010203);
	cr_expect_eq(be24_get(bth->psn), 0x040506);
	cr_expect_eq(get_be64(bytes + 4), 0x0001020300040506);
	cr_expect_eq(get_be32(bytes + 1), 0x00123400);
}

Test(wire_bth, put_and_get_at_any_address)
{
	for (unsigned int at = 0; at < 8; at++) {
		uint8_t bytes[24];

		memset(bytes, 0xee, sizeof(bytes));
		put_be64(bytes + at, 0x0102030405060708);
		cr_expect_eq(get_be64(bytes + at), 0x0102030405060708);
		cr_expect_eq(bytes[at], 1);
		cr_expect_eq(bytes[at + 7], 8);
		cr_expect_eq(bytes[at + 8], 0xee);
		put_be24(bytes + at, 0xabcdef);
		cr_expect_eq(get_be24(bytes + at), 0xabcdef);
		cr_expect_eq(bytes[at + 3], 4, "four bytes written for three");
		put_be32(bytes + at, 0x89abcdef);
		cr_expect_eq(get_be32(bytes + at), 0x89abcdef);
		put_be16(bytes + at, 0xfedc);
		cr_expect_eq(get_be16(bytes + at), 0xfedc);
		cr_expect_eq(bytes[at + 2], 0xcd);
	}
}

/* --- PSN ------------------------------------------------------------------------------------ */

Test(wire_psn, difference_across_the_wrap)
{
	cr_expect_eq(psn_diff(5, 5), 0);
	cr_expect_eq(psn_diff(6, 5), 1);
	cr_expect_eq(psn_diff(5, 6), -1);
	cr_expect_eq(psn_diff(0, 0xffffff), 1);
	cr_expect_eq(psn_diff(0xffffff, 0), -1);
	cr_expect_eq(psn_diff(2, 0xfffffe), 4);
	/* Half of the circle is ahead, the other half is behind. */
	cr_expect_eq(psn_diff(0x7fffff, 0), 0x7fffff);
	cr_expect_eq(psn_diff(0x800000, 0), -0x800000);
	cr_expect_eq(psn_diff(0x800001, 0), -0x7fffff);
	cr_expect_eq(psn_diff(0x123456 + 0x7fffff, 0x123456), 0x7fffff);
}

Test(wire_psn, sum_stays_in_24_bits)
{
	cr_expect_eq(psn_add(0xffffff, 1), 0);
	cr_expect_eq(psn_add(0xfffffe, 5), 3);
	cr_expect_eq(psn_add(0, 0xffffff), 0xffffff);
	cr_expect_eq(psn_add(1, PSN_MASK), 0, "adding the mask steps back by one");
}

Test(wire_psn, difference_undoes_the_sum)
{
	for (uint32_t psn = 0; psn < 1u << 24; psn += 0x10fff) {
		for (uint32_t step = 0; step < 0x800000; step += 0x0fedc) {
			cr_assert_eq(psn_diff(psn_add(psn, step), psn), (int32_t)step);
			cr_assert_eq(psn_diff(psn, psn_add(psn, step)), -(int32_t)step);
		}
	}
}

/* --- codes ------------------------------------------------------------------------------------ */

/* IBTA's table of RNR NAK timers, in microseconds. */
Test(wire_codes, rnr_timers)
{
	static const uint32_t microseconds[32] = {
		655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,    320,
		480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240,  15360,
		20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	for (unsigned int code = 0; code < 32; code++) {
		cr_expect_eq(rnr_timer_ns(code), microseconds[code] * 1000ull, "code %u", code);
		/* The whole syndrome byte may be given. */
		cr_expect_eq(rnr_timer_ns(AETH_RNR | code), rnr_timer_ns(code));
	}
}

Test(wire_codes, time_codes)
{
	cr_expect_eq(time_code_ns(0), 4096);
	cr_expect_eq(time_code_ns(14), 67108864);
	cr_expect_eq(time_code_ns(20), 4294967296);
	cr_expect_eq(time_code_ns(31), 4096ull << 31);
}

Test(wire_codes, path_mtus)
{
	for (unsigned int code = 1; code <= 5; code++) {
		cr_expect_eq(path_mtu_bytes(code), 128u << code);
		cr_expect_eq(path_mtu_code(128u << code), code);
	}
	cr_expect_eq(path_mtu_bytes(0), 0);
	cr_expect_eq(path_mtu_bytes(6), 0);
	cr_expect_eq(path_mtu_bytes(15), 0);
	cr_expect_eq(path_mtu_code(1500), 0);
	cr_expect_eq(path_mtu_code(0), 0);
}

/* IBTA 10.9.3: same partition, not 0, and not two limited members. */
Test(wire_codes, partition_keys)
{
	cr_expect(pkey_match(0xffff, 0xffff));
	cr_expect(pkey_match(0x7fff, 0xffff));
	cr_expect(pkey_match(0xffff, 0x7fff));
	cr_expect_not(pkey_match(0x7fff, 0x7fff));
	cr_expect_not(pkey_match(0x1234, 0xffff));
	cr_expect_not(pkey_match(0x8000, 0x8000));
	cr_expect_not(pkey_match(0, 0));
}

/* --- opcodes ---------------------------------------------------------------------------------- */

/* Every header named by a flag stands at its offset, one behind the other, none missing. */
static void headers_are_contiguous(uint8_t opcode, const struct opcode_info *op)
{
	const struct {
		uint16_t flag;
		uint8_t offset, size;
	} headers[] = {
		/* in the order in which they stand */
		{ OPF_DETH, op->deth, 8 },
		{ OPF_RETH, op->reth, 16 },
		{ OPF_ATOMIC_ETH, op->atomic_eth, 28 },
		{ OPF_AETH, op->aeth, 4 },
		{ OPF_ATOMIC_ACK, op->atomic_ack, 8 },
		{ OPF_IMM, op->imm, 4 },
		{ OPF_IETH, op->ieth, 4 },
	};
	uint32_t at = 12;

	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		const bool there = op->flags & headers[i].flag;

		cr_expect_eq(headers[i].offset, there ? at : 0, "opcode %02x, header %zu", opcode,
			     i);
		at += there ? headers[i].size : 0;
	}
	cr_expect_eq(op->length, at, "opcode %02x", opcode);
}

Test(wire_opcode, table_is_consistent)
{
	unsigned int known = 0;

	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		const struct opcode_info *op = opcode_lookup((uint8_t)opcode);

		if (!op)
			continue;
		known++;
		if (opcode != OP_RC_FLUSH && opcode != OP_RC_ATOMIC_WRITE)
			headers_are_contiguous((uint8_t)opcode, op);
		cr_expect_eq(!(op->flags & OPF_REQUEST), !!(op->flags & OPF_RESPONSE), "%s",
			     op->name);
		cr_expect_eq(op->service, opcode >> 5, "%s", op->name);
		for (unsigned int other = 0; other < opcode; other++)
			cr_expect(!opcode_lookup((uint8_t)other) ||
					  strcmp(opcode_lookup((uint8_t)other)->name, op->name),
				  "%s twice", op->name);
	}
	cr_expect_eq(known, 23 + 2 + 12 + 2 + 1);
}

static const char *place(const struct opcode_info *op)
{
	switch (op->flags & OPF_ONLY) {
	case OPF_FIRST: return "_FIRST";
	case OPF_LAST: return "_LAST";
	case OPF_ONLY: return "_ONLY";
	default: return "_MIDDLE";
	}
}

Test(wire_opcode, place_in_the_message_is_what_the_name_says)
{
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		const struct opcode_info *op = opcode_lookup((uint8_t)opcode);

		if (op && (op->flags & OPF_PAYLOAD) && (op->flags & OPF_OPERATION))
			cr_expect_not_null(strstr(op->name, place(op)), "%s", op->name);
	}
}

/* --- addresses -------------------------------------------------------------------------------- */

Test(wire_gid, ipv4_is_mapped)
{
	static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 10, 1, 2, 3 };
	static const uint8_t zero_prefix[16] = { [12] = 10, 1, 2, 3 };
	static const uint8_t bit_in_prefix[16] = { 0x80, [10] = 0xff, 0xff, 10, 1, 2, 3 };
	uint8_t gid[16];

	memset(gid, 0xee, sizeof(gid));
	gid_from_v4(gid, (const uint8_t[]){ 10, 1, 2, 3 });
	cr_expect_arr_eq(gid, mapped, 16);
	cr_expect(gid_is_v4(mapped));
	cr_expect_not(gid_is_v4(zero_prefix));
	cr_expect_not(gid_is_v4(bit_in_prefix));
}

Test(wire_gid, equality_looks_at_all_bytes)
{
	static const uint8_t gid[16] = { 0xfd, [15] = 1 };

	for (unsigned int i = 0; i < 16; i++) {
		uint8_t other[16];

		memcpy(other, gid, 16);
		cr_expect(gid_equal(gid, other));
		other[i] ^= 0x01;
		cr_expect_not(gid_equal(gid, other), "byte %u", i);
	}
}

/* The example of RFC 1071's arithmetic as IPv4 uses it: a header with a known checksum. */
Test(wire_ip, header_checksum)
{
	uint8_t ip[20] = { 0x45, 0,    0,   0x44, 0, 0, 0x40, 0, 0x40, 0x11,
			   0xb6, 0xa5, 192, 0,    2, 1, 192,  0, 2,    2 };

	cr_expect_eq(ipv4_checksum(ip), 0);
	ip[10] = ip[11] = 0;
	cr_expect_eq(ipv4_checksum(ip), 0xb6a5);
	/* The sum carries twice. */
	memset(ip, 0xff, sizeof(ip));
	cr_expect_eq(ipv4_checksum(ip), 0);
}
