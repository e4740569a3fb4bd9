/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the wire tests share: frames from files, frames put together byte by byte, and an
 * ICRC that owes nothing to lib/wire (bit by bit, straight from the definition).
 */
#ifndef TESTS_WIRE_FRAMES_H
#define TESTS_WIRE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#define FRAME_MAX 4608u

struct frame {
	char name[80]; /* of the vector, or "file.pcap:number" */
	uint32_t length;
	uint8_t bytes[FRAME_MAX];
};

typedef void frame_visitor(const struct frame *frame, void *context);

/* Every line of data/icrc-vectors.txt. Returns how many; a bad file fails the test. */
unsigned int vectors_each(frame_visitor *visit, void *context);
/* One line by its name; a missing one fails the test. */
void vector_get(const char *name, struct frame *frame);
/* Every frame of every data/pcaps/.pcap file, TCP included. */
unsigned int captures_each(frame_visitor *visit, void *context);
/* Whether UDP to port 4791 over IPv4 or IPv6, looked at without lib/wire. */
bool frame_is_roce(const struct frame *frame);

/*
 * The frame copied so that its last byte lies before an inaccessible page: one byte read too
 * far is a crash. Valid until the next call; writable.
 */
uint8_t *frame_guarded(const uint8_t *bytes, uint32_t length);

/* Offset of the IP header, and of the BTH, by the frame's own types. */
uint32_t frame_l3(const struct frame *frame);
uint32_t frame_bth(const struct frame *frame);

/*
 * An IPv4 or IPv6 frame around `udp_payload` bytes that the test has put behind the BTH's place;
 * lengths and IPv4 checksum right, no ICRC. Addresses are documentation ones.
 */
void frame_start(struct frame *frame, bool is_v4, uint32_t udp_payload);
/* Recomputes the IPv4 header checksum; nothing for IPv6. */
void frame_fix_checksum(struct frame *frame);
/* Writes the ICRC of the frame into the last 4 bytes of its UDP payload. */
void frame_seal(struct frame *frame);
/* Adds a tag of this TPID and TCI behind the MACs. */
void frame_tag(struct frame *frame, uint16_t tpid, uint16_t tci);
/* Zero bytes up to `length`, as Ethernet pads. */
void frame_pad_to(struct frame *frame, uint32_t length);

/* The ICRC by the definition; bytes that the UDP length covers, l3: offset of the IP header. */
uint32_t reference_icrc(const uint8_t *bytes, uint32_t l3);

#endif
