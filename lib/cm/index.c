/* SPDX-License-Identifier: BSD-3-Clause */
/* Chained hash over record numbers. */
#include "cm/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int cm_index_create(struct cm_index *index, uint32_t records)
{
	uint32_t buckets = 1;

	while (buckets < records && buckets < 1u << 30)
		buckets <<= 1;
	index->mask = buckets - 1;
	index->bucket = calloc(buckets, sizeof(*index->bucket));
	index->next = calloc(records, sizeof(*index->next));
	return index->bucket && index->next ? 0 : -ENOMEM;
}

void cm_index_destroy(struct cm_index *index)
{
	free(index->bucket);
	free(index->next);
}

void cm_index_add(struct cm_index *index, uint32_t hash, uint32_t record)
{
	uint32_t *bucket = &index->bucket[hash & index->mask];

	index->next[record] = *bucket;
	*bucket = record;
}

void cm_index_remove(struct cm_index *index, uint32_t hash, uint32_t record)
{
	uint32_t *link = &index->bucket[hash & index->mask];

	while (*link && *link != record)
		link = &index->next[*link];
	if (*link)
		*link = index->next[record];
	index->next[record] = 0;
}

static uint64_t mix(uint64_t value)
{
	__extension__ unsigned __int128 product = (unsigned __int128)value * 0x9e3779b97f4a7c15ull;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint32_t cm_index_hash(uint64_t seed, const void *key, uint32_t length)
{
	const uint8_t *bytes = key;
	uint64_t state = seed ^ length;

	for (uint32_t done = 0; done < length; done += 8) {
		uint64_t word = 0;

		memcpy(&word, bytes + done, length - done < 8 ? length - done : 8);
		state = mix(state ^ word) + seed;
	}
	state = mix(state);
	return (uint32_t)(state ^ state >> 32);
}
