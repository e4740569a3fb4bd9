/* SPDX-License-Identifier: BSD-3-Clause */
/* The ICRC against frames of other makers and against its own definition. */
#include <criterion/criterion.h>
#include <string.h>

#include "frames.h"
#include "wire/icrc.h"
#include "wire/icrc_fold.h"
#include "wire/icrc_table.h"

#define VECTORS          56u
#define ROCE_IN_CAPTURES 367u

static uint32_t parsed_icrc_end(const struct frame *frame)
{
	const uint32_t udp = frame_bth(frame) - 8;

	return udp + get_be16(frame->bytes + udp + 4);
}

/* What the library makes of a frame whose opcode need not be known to it. */
static uint32_t library_icrc(const struct frame *frame)
{
	const uint32_t l3 = frame_l3(frame), rest = frame_bth(frame) + 12;
	const uint32_t crc = icrc_headers(frame->bytes + l3, frame->bytes[l3] >> 4 == 4);

	return icrc_update(crc, frame->bytes + rest, parsed_icrc_end(frame) - 4 - rest);
}

static void same_as_carried(const struct frame *frame, void *context)
{
	const uint32_t end = parsed_icrc_end(frame);
	uint32_t carried;

	if (!frame_is_roce(frame))
		return;
	carried = icrc_load(frame->bytes + end - 4);
	cr_expect_eq(library_icrc(frame), carried, "%s: library", frame->name);
	cr_expect_eq(reference_icrc(frame->bytes, frame_l3(frame)), carried, "%s: definition",
		     frame->name);
	++*(unsigned int *)context;
}

/* B06, B07: byte order and IPv6 against frames that scapy, a ConnectX-4 and rxe made. */
Test(wire_icrc, b06_b07_vectors_of_others)
{
	unsigned int checked = 0;

	cr_assert_eq(vectors_each(same_as_carried, &checked), VECTORS);
	cr_expect_eq(checked, VECTORS);
}

Test(wire_icrc, b06_stored_least_significant_byte_first)
{
	uint8_t bytes[4];

	icrc_store(bytes, 0xf353f378);
	cr_expect_arr_eq(bytes, ((uint8_t[]){ 0x78, 0xf3, 0x53, 0xf3 }), 4);
	cr_expect_eq(icrc_load(bytes), 0xf353f378);
}

Test(wire_icrc, captures_of_rxe)
{
	unsigned int checked = 0;

	captures_each(same_as_carried, &checked);
	cr_expect_eq(checked, ROCE_IN_CAPTURES);
}

static void verify_parsed(const struct frame *frame, void *context)
{
	const uint8_t *bytes = frame_guarded(frame->bytes, frame->length);
	struct wire_view view;

	if (!frame_is_roce(frame))
		return;
	cr_assert_eq(wire_parse(bytes, frame->length, &view), WIRE_OK, "%s", frame->name);
	cr_expect(icrc_verify(&view), "%s", frame->name);
	cr_expect_eq(view.icrc - bytes, parsed_icrc_end(frame) - 4, "%s", frame->name);
}

Test(wire_icrc, every_captured_frame_parses_and_verifies)
{
	captures_each(verify_parsed, NULL);
}

/* The CRC over everything and the ICRC itself is the same number for every good frame. */
Test(wire_icrc, residue)
{
	struct frame frame;

	vector_get("rxe61_rc_read_request_ipv6", &frame);
	cr_expect_eq(icrc_update(library_icrc(&frame), frame.bytes + frame.length - 4, 4),
		     0x2144df1c);
}

/* --- W17: what is masked and what is not --------------------------------------------- */

/* Whether the ICRC must not depend on this bit. at: offset from the IP header. */
static bool variant_bit(bool v4, uint32_t at, unsigned int bit)
{
	const uint32_t udp = v4 ? 20 : 40;

	if (at == udp + 6 || at == udp + 7 || at == udp + 8 + 4)
		return true;
	if (v4)
		return at == 1 || at == 8 || at == 10 || at == 11;
	return (at == 0 && bit < 4) || (at >= 1 && at <= 3) || at == 7;
}

static void flip_every_bit(const char *name)
{
	struct frame frame;
	uint32_t l3, icrc;
	bool v4;

	vector_get(name, &frame);
	l3 = frame_l3(&frame);
	v4 = frame.bytes[l3] >> 4 == 4;
	icrc = library_icrc(&frame);
	for (uint32_t at = 0; at < frame.length - 4 - l3; at++) {
		const uint32_t udp = v4 ? 20 : 40;

		/* Lengths say where the ICRC lies and are parse tests. */
		if (at == udp + 4 || at == udp + 5)
			continue;
		for (unsigned int bit = 0; bit < 8; bit++) {
			struct frame flipped = frame;

			flipped.bytes[l3 + at] ^= (uint8_t)(1u << bit);
			if (at == 0 && bit >= 4)
				continue; /* IP version: another kind of frame */
			cr_expect_eq(library_icrc(&flipped) == icrc, variant_bit(v4, at, bit),
				     "%s: byte %u of the IP packet, bit %u", name, at, bit);
		}
	}
}

Test(wire_icrc, w17_every_bit_ipv4)
{
	flip_every_bit("made_rc_write_only_pad3_ipv4");
}

Test(wire_icrc, w17_b07_every_bit_ipv6)
{
	flip_every_bit("made_rc_cmp_swap_ipv6");
}

static enum wire_reason judge(const struct frame *frame, bool *icrc_right)
{
	const uint8_t *bytes = frame_guarded(frame->bytes, frame->length);
	struct wire_view view;
	enum wire_reason reason = wire_parse(bytes, frame->length, &view);

	*icrc_right = reason == WIRE_OK && icrc_verify(&view);
	return reason;
}

struct change {
	const char *what;
	uint32_t at; /* from the IP header */
	uint8_t flip;
	bool accepted;
};

Test(wire_icrc, w17_changes_on_the_way)
{
	static const struct change changes[] = {
		{ "TTL", 8, 0x3f, true },
		{ "DSCP and ECN", 1, 0xff, true },
		{ "UDP checksum", 26, 0xff, true },
		{ "BTH byte 4", 32, 0xff, true },
		{ "IPv4 identification", 5, 0x01, false },
		{ "UDP source port", 21, 0x01, false },
		{ "destination address", 19, 0x01, false },
		{ "reserved bit beside AckReq", 36, 0x01, false },
		{ "MigReq", 29, 0x40, false },
	};
	struct frame original;

	vector_get("made_rc_write_only_pad3_ipv4", &original);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct frame frame = original;
		bool right;

		frame.bytes[14 + changes[i].at] ^= changes[i].flip;
		frame_fix_checksum(&frame);
		cr_expect_eq(judge(&frame, &right), WIRE_OK, "%s", changes[i].what);
		cr_expect_eq(right, changes[i].accepted, "%s", changes[i].what);
	}
}

Test(wire_icrc, frames_that_differ_in_masked_fields_share_one)
{
	struct frame a, b, c;

	vector_get("made_rc_write_only_pad3_ipv4", &a);
	vector_get("made_rc_write_only_pad3_ipv4_ecn_ce_ttl1_fecn", &b);
	vector_get("made_rc_write_only_pad3_vlan100_pcp3_ipv4", &c);
	cr_expect_eq(library_icrc(&a), library_icrc(&b));
	cr_expect_eq(library_icrc(&a), library_icrc(&c));
	vector_get("made_rc_send_only_abcd_ipv4", &a);
	vector_get("made_rc_send_only_abcd_udp_checksum_ipv4", &b);
	vector_get("made_rc_send_only_abcd_no_df_ident_beef_ipv4", &c);
	cr_expect_eq(library_icrc(&a), library_icrc(&b));
	cr_expect_neq(library_icrc(&a), library_icrc(&c));
}

/* --- copy and CRC in one --------------------------------------------------------------- */

Test(wire_icrc, copying_update_is_copy_and_update)
{
	static uint8_t source[3 * 4096 + 64], copy[sizeof(source) + 1];
	static const uint32_t lengths[] = { 0,    1,    3,    4,    63,   64,   65,   255,
					    1024, 4095, 4096, 4097, 8191, 8192, 12352 };

	for (uint32_t i = 0; i < sizeof(source); i++)
		source[i] = (uint8_t)(i * 7 + (i >> 8));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		const uint32_t length = lengths[i];
		uint32_t crc;

		memset(copy, 0xa5, sizeof(copy));
		crc = icrc_copy_update(0x12345678, copy, source, length);
		cr_expect_eq(crc, icrc_update(0x12345678, source, length), "%u bytes", length);
		cr_expect_eq(memcmp(copy, source, length), 0, "%u bytes", length);
		cr_expect_eq(copy[length], 0xa5, "%u bytes: wrote beyond", length);
	}
}

Test(wire_icrc, updates_chain_at_every_split)
{
	struct frame frame;
	uint32_t whole, rest;

	vector_get("scapy_uc_send_only_ipv6", &frame);
	rest = frame_bth(&frame) + 12;
	whole = library_icrc(&frame);
	for (uint32_t split = rest; split <= frame.length - 4; split++) {
		uint32_t crc = icrc_headers(frame.bytes + 14, false);

		crc = icrc_update(crc, frame.bytes + rest, split - rest);
		crc = icrc_update(crc, frame.bytes + split, frame.length - 4 - split);
		cr_expect_eq(crc, whole, "split at %u", split);
	}
}

/* --- one pass over short packets --------------------------------------------------------- */

/*
 * An IP packet of `length` bytes without ICRC, all of it noise but the version, so that each bit
 * of each field counts; it ends before an inaccessible page and starts wherever that makes it.
 */
static const uint8_t *noise_packet(bool v4, uint32_t length)
{
	static uint8_t bytes[ICRC_FOLD_MAX];
	static uint32_t random = 1;

	for (uint32_t i = 0; i < length; i++) {
		random = random * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(random >> 24);
	}
	bytes[0] = (uint8_t)((v4 ? 0x40 : 0x60) | (bytes[0] & 0x0f));
	return frame_guarded(bytes, length);
}

static void same_as_by_parts(icrc_whole *whole, const char *name)
{
	for (int v4 = 0; v4 < 2; v4++) {
		const uint32_t head = v4 ? 40 : 60;

		for (uint32_t length = head; length <= ICRC_FOLD_MAX; length += 4) {
			const uint8_t *l3 = noise_packet(v4, length);
			const uint32_t crc =
				icrc_update(icrc_headers(l3, v4), l3 + head, length - head);

			cr_expect_eq(whole(l3, v4, length), crc, "%s: IPv%c, %u bytes", name,
				     v4 ? '4' : '6', length);
		}
	}
}

Test(wire_icrc, fold_and_table_are_headers_and_update_at_every_length)
{
	cr_assert(icrc_use("isal"));
#if defined(__x86_64__)
	if (__builtin_cpu_supports("pclmul"))
		same_as_by_parts(icrc_fold_narrow, "narrow");
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq"))
		same_as_by_parts(icrc_fold_wide, "wide");
#endif
	same_as_by_parts(icrc_table_whole, "table");
}

/* What an ACK's ICRC is made of: a CRC is a sum, so eight bytes add the same to any packet. */
static void last_bytes_add_up(icrc_last_word *last, const char *name)
{
	static uint8_t with[ICRC_FOLD_MAX], without[ICRC_FOLD_MAX];

	for (uint32_t length = 48; length < 400; length += 4) {
		uint64_t bytes;

		memcpy(with, noise_packet(true, length), length);
		memcpy(without, with, length);
		memset(without + length - 8, 0, 8);
		memcpy(&bytes, with + length - 8, 8);
		cr_expect_eq(last(bytes),
			     icrc_packet(with, true, length) ^ icrc_packet(without, true, length),
			     "%s: %u bytes", name, length);
	}
}

Test(wire_icrc, last_eight_bytes_add_the_same_to_any_packet)
{
	const struct icrc_method *methods[ICRC_METHODS];
	const unsigned int count = icrc_methods(methods);

	for (unsigned int i = 0; i < count; i++)
		last_bytes_add_up(methods[i]->last, methods[i]->name);
}

/* Payload of each length, from a guarded page to behind headers of each kind, with its pad. */
static void copies_and_counts(bool v4, uint32_t head, uint32_t length)
{
	static uint8_t packet[ICRC_FOLD_MAX + ICRC_SIZE], expected[ICRC_FOLD_MAX];
	const uint32_t pad = -length & 3, whole = head + length + pad;
	const uint8_t *bytes = noise_packet(v4, head + length);

	memset(expected, 0, sizeof(expected));
	memcpy(expected, bytes, head + length);
	memset(packet, 0, sizeof(packet));
	memcpy(packet, bytes, head);
	cr_expect_eq(icrc_packet_copy(packet, v4, head, bytes + head, length, pad),
		     icrc_packet(expected, v4, whole), "%s: IPv%c, %u and %u bytes",
		     icrc_method.name, v4 ? '4' : '6', head, length);
	cr_expect_arr_eq(packet, expected, whole);
}

Test(wire_icrc, copy_is_copied_and_counted_at_every_length)
{
	static const uint32_t heads[2][3] = { { 60, 76, 88 }, { 40, 56, 68 } };
	const struct icrc_method *methods[ICRC_METHODS];
	const unsigned int count = icrc_methods(methods);

	for (unsigned int i = 0; i < count; i++) {
		cr_assert(icrc_use(methods[i]->name));
		for (int v4 = 0; v4 < 2; v4++)
			for (uint32_t h = 0; h < 3; h++)
				for (uint32_t length = 1; length <= 4096;
				     length += length < 300 || length > 4090 ? 1 : 7)
					copies_and_counts(v4, heads[v4][h], length);
	}
}

/* Short ones in one pass, long ones in two parts, odd ones by parts: one and the same CRC. */
static void packets_are_headers_and_update(const uint8_t bytes[4200])
{
	for (int v4 = 0; v4 < 2; v4++) {
		const uint32_t head = v4 ? 40 : 60;

		for (uint32_t length = head; length < 4200 - 2; length++) {
			const uint8_t *l3 = bytes + length % 3;

			cr_expect_eq(icrc_packet(l3, v4, length),
				     icrc_update(icrc_headers(l3, v4), l3 + head, length - head),
				     "%s: IPv%c, %u bytes", icrc_method.name, v4 ? '4' : '6',
				     length);
		}
	}
}

/* Whichever method a machine finds fast, its packets are those of any other. */
Test(wire_icrc, methods_agree_at_every_length)
{
	static uint8_t bytes[4200];
	const struct icrc_method *methods[ICRC_METHODS];
	unsigned int count = icrc_methods(methods);

	for (uint32_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 11 + (i >> 8));
	for (unsigned int i = 0; i < count; i++) {
		cr_assert(icrc_use(methods[i]->name));
		cr_expect_str_eq(icrc_method.name, methods[i]->name);
		packets_are_headers_and_update(bytes);
		for (uint32_t length = 0; length < 4200; length++)
			cr_expect_eq(icrc_update(7, bytes, length),
				     icrc_table_update(7, bytes, length), "%s: %u bytes",
				     methods[i]->name, length);
	}
	cr_expect(icrc_use(NULL));
	cr_expect_str_eq(icrc_method.name, methods[0]->name, "what the features promise");
	cr_expect_not(icrc_use("abacus"));
	cr_expect_str_eq(icrc_method.name, methods[0]->name);
	icrc_choose();
	cr_expect(icrc_use(icrc_method.name), "one of those, whichever is fast");
}
