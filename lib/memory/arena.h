/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arena: one memfd with all protocol state of the daemon, as flat tables of
 * fixed-size records that refer to each other by index, never by pointer.
 *
 * A restarted daemon maps the same memfd, at whatever address, and goes on.
 * What is not in the arena (pointers, mappings, hashes, timers, QSBR) is rebuilt
 * from it. Index 0 of every table is never used, so 0 means "none".
 */
#ifndef MEMORY_ARENA_H
#define MEMORY_ARENA_H

#include <stddef.h>
#include <stdint.h>

#define ARENA_MAGIC   0x4f52494152454e41ull /* "ORIARENA" */
#define ARENA_VERSION 4u

enum arena_table {
	ARENA_TOKENS,      /* struct token_slot */
	ARENA_SEGMENTS,    /* struct segment */
	ARENA_REGIONS,     /* struct region */
	ARENA_WINDOWS,     /* struct window */
	ARENA_PDS,         /* struct pd */
	ARENA_CQS,         /* struct cq (transport) */
	ARENA_SRQS,        /* struct srq (transport) */
	ARENA_QPS,         /* struct qp (transport) */
	ARENA_RESOURCES,   /* struct responder_resource (transport) */
	ARENA_FLIGHTS,     /* struct flight (transport): work requests in progress */
	ARENA_WORKERS,     /* struct worker_state (transport): intent record, free lists */
	ARENA_SESSIONS,    /* control */
	ARENA_OBJECTS,     /* control */
	ARENA_CONNECTIONS, /* cm */
	ARENA_ADDRESSES,   /* struct ah (transport): destinations of datagrams */
	ARENA_HOLDS,       /* struct receive_hold (transport), by QP */
	ARENA_TABLES
};

struct arena_spec {
	uint32_t record_size; /* bytes, a multiple of 8 */
	uint32_t records;     /* index 0 included; 0: table not used */
};

struct arena_header {
	uint64_t magic;
	uint32_t version;
	uint32_t tables;
	uint64_t size; /* bytes of the whole arena */
	struct {
		uint64_t offset; /* of record 0, a multiple of 64 */
		uint32_t record_size;
		uint32_t records;
	} table[ARENA_TABLES];
	/* Round keys of the two permutations: tokens and QPNs stay decodable after adoption. */
	uint16_t token_key[22];
	uint16_t qpn_key[22];
};

/* A mapping of the arena in this process. */
struct arena {
	struct arena_header *header;
	int fd;
};

/*
 * Creates an arena in a fresh memfd (pages come lazily, zeroed) and draws its
 * keys with getrandom(). Returns 0 or a negative errno.
 */
int arena_create(struct arena *arena, const struct arena_spec spec[ARENA_TABLES]);

/*
 * Maps an existing arena and checks its header. With spec not NULL, refuses
 * (-EPROTO) one whose record sizes differ. Takes over fd on success only.
 */
int arena_adopt(struct arena *arena, int fd, const struct arena_spec *spec);

void arena_destroy(struct arena *arena);

/* Record `index` of a table; the caller has checked the index. */
static inline void *arena_record(const struct arena *arena, enum arena_table table, uint32_t index)
{
	const struct arena_header *h = arena->header;

	return (uint8_t *)h + h->table[table].offset +
	       (uint64_t)index * h->table[table].record_size;
}

static inline uint32_t arena_records(const struct arena *arena, enum arena_table table)
{
	return arena->header->table[table].records;
}

#endif
