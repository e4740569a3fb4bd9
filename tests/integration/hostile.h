/* SPDX-License-Identifier: BSD-3-Clause */
/* What the hostile clients share: cases, chance, a connected pair to misuse. */
#ifndef TEST_HOSTILE_H
#define TEST_HOSTILE_H

#include <stddef.h>

#include "raw.h"

#define ADDRESS_A "10.66.0.1" /* of the daemon that is attacked */
#define ADDRESS_B "10.66.0.2" /* of the one where our peer is a client */
#define MR_ALL    0x00010007u
#define DEPTH     64u
#define MEMORY    (1u << 20)

/* A queue pair of the attacked daemon, connected with one of the other. */
struct pair {
	struct raw raw_a, raw_b;
	struct raw_set a, b;
};

extern const char *path_a, *path_b;

uint64_t rnd(void);
uint64_t below(uint64_t limit);
void scribble(void *at, size_t length);
/* Complains; false. */
bool wrong(const char *what);
/* The session must be over, for a reason that contains the text. */
bool must_end(struct raw *raw, const char *reason);
bool open_pair(struct pair *pair);
void close_pair(struct pair *pair);
/* One request of B's at A's memory and how it ended. */
bool remote(struct pair *pair, uint8_t opcode, uint64_t address, uint32_t token, uint32_t length,
	    int32_t *status);

/* hostile_control.c, hostile_queue.c, hostile_shared.c: each true when the daemon did what it must.
 */
bool case_cursor(void);
bool case_unknown(void);
bool case_requests(void);
bool case_deaf(void);
bool case_scribble(void);
bool case_limits(void);
bool case_messages(void);
bool case_memory(void);
bool case_ranges(void);
bool case_queue_cursor(void);
bool case_work(void);
bool case_receives(void);
bool case_headers(void);
bool case_doorbells(void);
bool case_overrun(void);
bool case_punch(void);
bool case_tokens(void);
bool case_handles(void);
bool case_shared_cursor(void);
bool case_shared_entries(void);
bool case_segments(void);
bool case_resizes(void);
bool case_waiting(void);

#endif
