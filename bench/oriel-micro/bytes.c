/* SPDX-License-Identifier: BSD-3-Clause */
/* Benchmarks of plain memory: ICRC and copies by size, and the ring. */
#include <stdlib.h>
#include <string.h>

#include "oriel-micro/bench.h"
#include "shm/spsc.h"

bool set_up_bytes(struct bench *bench, uint32_t size)
{
	bench->size = size;
	bench->bytes = calloc(1, 8192);
	bench->copy = calloc(1, 8192);
	return bench->bytes && bench->copy;
}

void run_icrc(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += icrc_update((uint32_t)bench->sum, bench->bytes, bench->size);
}

void run_icrc_copy(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += icrc_copy_update((uint32_t)bench->sum, bench->copy, bench->bytes,
					       bench->size);
}

void run_memcpy(struct bench *bench, uint64_t times)
{
	while (times--) {
		memcpy(bench->copy, bench->bytes, bench->size);
		__asm__ volatile("" ::"r"(bench->copy) : "memory");
	}
}

/* --- rings ------------------------------------------------------------------------------------ */

bool set_up_ring(struct bench *bench, uint32_t argument)
{
	bench->ring = aligned_alloc(64, sizeof(*bench->ring));
	if (bench->ring)
		memset(bench->ring, 0, sizeof(*bench->ring));
	return bench->ring;
}

/* Both ends on one core: the instructions, without the way between two caches. */
void run_ring(struct bench *bench, uint64_t times)
{
	uint32_t tail = bench->ring->tail;

	while (times--) {
		bench->sum += shm_ring_free(bench->ring, tail, 256);
		shm_store_release(&bench->ring->tail, ++tail);
		bench->sum += shm_ring_used(bench->ring, bench->ring->head);
		shm_store_release(&bench->ring->head, bench->ring->head + 1);
	}
}
