/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulation's own reading of a RoCEv2 frame and its own ICRC, written apart from
 * lib/wire so that a mistake there does not hide itself.
 */
#ifndef TEST_SIM_FRAME_H
#define TEST_SIM_FRAME_H

#include <stdbool.h>
#include <stdint.h>

struct frame_facts {
	uint32_t l3; /* offsets in the frame */
	uint32_t bth;
	uint32_t icrc;
	bool v4;
	uint8_t opcode;
	bool ack_request;
	uint32_t qpn, psn;
	uint8_t syndrome; /* of an AETH, else 0 */
	uint32_t msn;     /* the same */
	uint32_t payload_at;
	uint32_t payload; /* bytes behind all headers, pad left out */
	const char *name; /* of the opcode */
};

/* False: not a whole frame of RC, UC or UD in IPv4 or IPv6. */
bool frame_read(const uint8_t *frame, uint32_t length, struct frame_facts *facts);

bool frame_icrc_good(const uint8_t *frame, const struct frame_facts *facts);
/*
 * Whether a receiver may look into a frame at all, by all that is said of its outer headers and
 * lengths. Of operations that we do not know we cannot say.
 */
enum frame_verdict { FRAME_BAD, FRAME_GOOD, FRAME_UNKNOWN };
enum frame_verdict frame_judge(const uint8_t *frame, uint32_t length, struct frame_facts *facts);

void frame_repair_checksum(uint8_t *frame, const struct frame_facts *facts);
/* Makes the IPv4 checksum and the ICRC right again. */
void frame_repair(uint8_t *frame, const struct frame_facts *facts);

/* The two bits of congestion, and both of them set: the frame was in a long queue. */
uint8_t frame_ecn(const uint8_t *frame, const struct frame_facts *facts);
void frame_mark(uint8_t *frame, const struct frame_facts *facts);

/* NULL, or what is wrong with a frame that the product sent. */
const char *frame_complaint(const uint8_t *frame, uint32_t length);

/* ACKNOWLEDGE with a syndrome that ends the queue pair: 0x61 to 0x63. */
bool frame_is_fatal_nak(const struct frame_facts *facts);

#endif
