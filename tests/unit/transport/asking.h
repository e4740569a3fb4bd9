/* SPDX-License-Identifier: BSD-3-Clause */
/* Our requester against a raw peer, whose answers a test sends one by one. */
#ifndef TEST_TRANSPORT_ASKING_H
#define TEST_TRANSPORT_ASKING_H

#include "rig.h"

#define S   RAW_SEND_PSN
#define T14 (4096ull << 14)

/* The connection of the test that runs, and what a suite makes and removes it with. */
extern struct raw raw;
void asking_setup(void);
void asking_teardown(void);
void reopen(struct qp_connection connection);

/* Polls until there is nothing left to do. */
void settle(void);
/* A request with the peer's address 0x1000 and token 77, and as many frames as it has now. */
void post_flags(uint8_t opcode, uint64_t context, uint32_t length, uint32_t flags);
void post(uint8_t opcode, uint64_t context, uint32_t length);

/* What the peer says. */
void answer(uint32_t psn, uint8_t syndrome);
void ack(uint32_t psn);
void respond(uint8_t opcode, uint32_t psn, const uint8_t *bytes, uint32_t length);

/* What has come to the peer. */
struct wire_view expect_frame(uint8_t opcode, uint32_t psn);
uint32_t frames_out(void);

/* The time of the next timer, and on to the first that sends something. */
uint64_t next_deadline(void);
void sleep_until_deadline(void);

#endif
