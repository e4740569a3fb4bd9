/* SPDX-License-Identifier: BSD-3-Clause */
/* The quick look at a frame says what the long one does, or nothing. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "frames.h"
#include "wire/packet.h"

/* Of the frames that frame_start() makes: the station and the address that they are for. */
static void usual_of(const struct frame *frame, struct wire_usual *usual)
{
	uint8_t gid[16];

	gid_from_v4(gid,
		    frame->bytes + frame_l3(frame) + offsetof(struct ipv4_header, destination));
	wire_usual_init(usual, frame->bytes, gid);
}

/* What lib/net asks of a frame beside wire_parse(), in its own words. */
static bool is_for(const struct frame *frame, const struct wire_usual *usual,
		   const struct wire_view *view)
{
	static const uint8_t nobody[6];

	return view->is_v4 && !view->has_vlan && memcmp(frame->bytes, usual->value, 6) == 0 &&
	       !(frame->bytes[6] & 1) && memcmp(frame->bytes + 6, nobody, 6) != 0 &&
	       memcmp(view->destination_gid + 12, usual->value + 30, 4) == 0;
}

/* Both looks at the same bytes, which end at an inaccessible page. Returns what the quick one said.
 */
static bool agree(const struct frame *frame, const struct wire_usual *usual, const char *what)
{
	const uint8_t *bytes = frame_guarded(frame->bytes, frame->length);
	struct wire_view full, quick;
	bool good, said;

	memset(&full, 0, sizeof(full));
	memset(&quick, 0, sizeof(quick));
	good = wire_parse(bytes, frame->length, &full) == WIRE_OK && is_for(frame, usual, &full);
	said = wire_parse_usual(usual, bytes, frame->length, &quick);
	cr_assert_eq(said, good, "%s: quick %d, long %d", what, said, good);
	cr_assert(!said || memcmp(&full, &quick, sizeof(full)) == 0, "%s: another view", what);
	return said;
}

static void make(struct frame *frame, uint8_t opcode, uint32_t payload)
{
	frame_start(frame, true, opcode_table[opcode].length + payload + 4);
	frame->bytes[frame_bth(frame)] = opcode;
}

/* Each opcode with and without payload: taken at once where it is good. */
Test(wire_usual, every_opcode_is_taken_as_by_the_long_way)
{
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		for (uint32_t payload = 0; payload <= 64; payload += 32) {
			struct wire_usual usual;
			struct frame frame;
			bool said;

			make(&frame, (uint8_t)opcode, payload);
			usual_of(&frame, &usual);
			said = agree(&frame, &usual, opcode_table[opcode].name ?: "unknown");
			cr_assert_eq(said, opcode_table[opcode].name &&
						   (payload == 0 ||
						    opcode_table[opcode].flags & OPF_PAYLOAD));
		}
	}
}

/* One bit at a time of all headers, the IPv4 checksum left wrong and put right. */
Test(wire_usual, a_changed_bit_is_judged_as_by_the_long_way)
{
	struct wire_usual usual;
	unsigned int taken = 0;
	struct frame good;

	make(&good, OP_RC_WRITE_ONLY, 64);
	usual_of(&good, &usual);
	cr_assert(agree(&good, &usual, "unchanged"));
	for (uint32_t bit = 0; bit < (frame_bth(&good) + sizeof(struct bth)) * 8; bit++) {
		struct frame frame = good;
		char what[32];

		snprintf(what, sizeof(what), "bit %u", bit);
		frame.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		taken += agree(&frame, &usual, what);
		frame_fix_checksum(&frame);
		taken += agree(&frame, &usual, what);
	}
	/* Source address and port, TOS, identification, TTL, flags of the BTH, QPN, PSN. */
	cr_assert_gt(taken, 200);
}

/* W15: cut anywhere, and with Ethernet padding behind. */
Test(wire_usual, any_length_is_judged_as_by_the_long_way)
{
	struct wire_usual usual;
	struct frame good;

	make(&good, OP_RC_WRITE_ONLY, 0);
	usual_of(&good, &usual);
	for (uint32_t length = 0; length <= good.length + 8; length++) {
		struct frame frame = good;
		bool said;

		frame.length = length;
		said = agree(&frame, &usual, "cut");
		cr_assert_eq(said, length >= good.length, "%u of %u bytes", length, good.length);
	}
}

/* IP and UDP lengths that contradict each other or the frame, in every combination. */
Test(wire_usual, lengths_are_judged_as_by_the_long_way)
{
	struct wire_usual usual;
	struct frame good;
	uint32_t l3;

	make(&good, OP_RC_WRITE_ONLY, 32);
	usual_of(&good, &usual);
	l3 = frame_l3(&good);
	for (uint32_t total = 0; total <= good.length + 4; total++) {
		for (uint32_t udp = 0; udp <= good.length + 4; udp++) {
			struct frame frame = good;

			put_be16(frame.bytes + l3 + 2, (uint16_t)total);
			put_be16(frame.bytes + l3 + 24, (uint16_t)udp);
			frame_fix_checksum(&frame);
			agree(&frame, &usual, "lengths");
		}
	}
}

/* What is not IPv4 without a tag is never usual, and an IPv6 port has no usual frame at all. */
Test(wire_usual, other_kinds_go_the_long_way)
{
	struct frame v4, v6, tagged;
	struct wire_usual usual;
	uint8_t gid[16] = { 0xfd, [15] = 1 };

	make(&v4, OP_RC_SEND_ONLY, 16);
	usual_of(&v4, &usual);
	frame_start(&v6, false, sizeof(struct bth) + 16 + 4);
	v6.bytes[frame_bth(&v6)] = OP_RC_SEND_ONLY;
	memcpy(v6.bytes, v4.bytes, 6);
	cr_expect_not(agree(&v6, &usual, "IPv6"));
	tagged = v4;
	frame_tag(&tagged, ETHERTYPE_VLAN, 0);
	cr_expect_not(agree(&tagged, &usual, "priority tag"));
	wire_usual_init(&usual, v4.bytes, gid);
	cr_expect_not(wire_parse_usual(&usual, v4.bytes, v4.length, &(struct wire_view){ 0 }));
	memset(gid, 0, sizeof(gid));
	wire_usual_init(&usual, v4.bytes, gid);
	cr_expect_not(wire_parse_usual(&usual, v4.bytes, v4.length, &(struct wire_view){ 0 }));
}
