/* SPDX-License-Identifier: BSD-3-Clause */
/* Chained hash over record numbers: finds connections, holds no key, is rebuilt on adoption. */
#ifndef CM_INDEX_H
#define CM_INDEX_H

#include <stdint.h>

struct cm_index {
	uint32_t *bucket; /* first record of a chain, 0: none */
	uint32_t *next;   /* by record */
	uint32_t mask;
};

int cm_index_create(struct cm_index *index, uint32_t records);
void cm_index_destroy(struct cm_index *index);

/* A record is in an index at most once, and leaves it under the hash it came with. */
void cm_index_add(struct cm_index *index, uint32_t hash, uint32_t record);
void cm_index_remove(struct cm_index *index, uint32_t hash, uint32_t record);

/* Candidates for a hash, newest first; the caller compares the key. */
static inline uint32_t cm_index_first(const struct cm_index *index, uint32_t hash)
{
	return index->bucket[hash & index->mask];
}

static inline uint32_t cm_index_next(const struct cm_index *index, uint32_t record)
{
	return index->next[record];
}

/*
 * Hash of up to 64 bytes. The seed keeps a peer, who chooses most keys, from choosing
 * the chain as well.
 */
uint32_t cm_index_hash(uint64_t seed, const void *key, uint32_t length);

#endif
