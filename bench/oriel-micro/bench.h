/* SPDX-License-Identifier: BSD-3-Clause */
/* A benchmark: a name, what it works on, and a function that does it so many times. */
#ifndef ORIEL_MICRO_BENCH_H
#define ORIEL_MICRO_BENCH_H

#include <stddef.h>

#include "oriel-micro/engine.h"

struct shm_ring_cursor;

#define BENCH_FRAMES 1024u
#define BENCH_PLACES (BENCH_FRAMES * 64) /* random ones, after which they begin again */
#define BENCH_BURST  32u                 /* frames of a turn: `times` is a multiple of it */

/* What a benchmark works on; made by its set-up. */
struct bench {
	struct engine *engine;
	uint8_t *bytes, *copy;
	uint32_t size;
	uint32_t length; /* of a frame in bytes */
	uint32_t *order; /* random places */
	uint32_t places;
	uint32_t *token;  /* of the windows in that order */
	uint32_t windows; /* that frames choose from; 0: the first one */
	uint64_t random;
	uint64_t sum; /* of what comes out, so that nothing is left out */
	struct shm_ring_cursor *ring;
};

struct benchmark {
	const char *name;
	bool (*set_up)(struct bench *bench, uint32_t argument);
	void (*run)(struct bench *bench, uint64_t times);
	uint32_t argument;
};

/* benchmarks.c */
extern const struct benchmark benchmarks[];
extern const size_t benchmarks_count;
const struct benchmark *bench_find(const char *name); /* NULL, after a message: there is none */
void bench_tear_down(struct bench *bench);

/*
 * Set-ups of an empty bench; false: no memory, which bench_tear_down() has to undo all the same.
 */

/* bytes.c: buffers, and a ring */
bool set_up_bytes(struct bench *bench, uint32_t size);
void run_icrc(struct bench *bench, uint64_t times);
void run_icrc_copy(struct bench *bench, uint64_t times);
void run_memcpy(struct bench *bench, uint64_t times);
bool set_up_ring(struct bench *bench, uint32_t argument);
void run_ring(struct bench *bench, uint64_t times);

/* tables.c: tokens and queue pairs, looked up and made */
bool set_up_windows(struct bench *bench, uint32_t windows);
bool set_up_queue_pairs(struct bench *bench, uint32_t qps);
void run_token_hit(struct bench *bench, uint64_t times);
void run_token_miss(struct bench *bench, uint64_t times);
void run_qp_find(struct bench *bench, uint64_t times);
void run_bind(struct bench *bench, uint64_t times);

/* packets.c: frames on their way through the stages */
bool set_up_write(struct bench *bench, uint32_t qps);
bool set_up_write_windows(struct bench *bench, uint32_t windows);
bool set_up_read(struct bench *bench, uint32_t qps);
bool set_up_verify(struct bench *bench, uint32_t size);
bool set_up_build(struct bench *bench, uint32_t size);
void run_parse(struct bench *bench, uint64_t times);
void run_parse_usual(struct bench *bench, uint64_t times);
void run_verify(struct bench *bench, uint64_t times);
void run_receive(struct bench *bench, uint64_t times);
void run_packet(struct bench *bench, uint64_t times);
void run_read(struct bench *bench, uint64_t times);
void run_read_burst(struct bench *bench, uint64_t times);
void run_idle_poll(struct bench *bench, uint64_t times);
void run_build(struct bench *bench, uint64_t times);

#endif
