/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cursors of single-producer single-consumer rings, and doorbells: the only atomics that
 * the daemon and a client share.
 *
 * Ordering, once for all rings. The producer fills an entry, then stores the tail
 * with release (P1). The consumer loads the tail with acquire (C1): when it sees P1 it
 * sees the entry. The consumer is done with an entry, then stores the head with release
 * (C2). The producer loads the head with acquire (P2): when it sees C2 the entry is free,
 * and what it writes there next cannot reach the consumer's earlier reads.
 */
#ifndef SHM_SPSC_H
#define SHM_SPSC_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/layout.h"

static inline uint32_t shm_load_acquire(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void shm_store_release(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* Entries that the consumer whose head is `head` may read; > slots means nonsense. */
static inline uint32_t shm_ring_used(const struct shm_ring_cursor *cursor, uint32_t head)
{
	return shm_load_acquire(&cursor->tail) - head; /* C1 */
}

/* Entries that the producer whose tail is `tail` may write; > slots means nonsense. */
static inline uint32_t shm_ring_free(const struct shm_ring_cursor *cursor, uint32_t tail,
				     uint32_t slots)
{
	return slots - (tail - shm_load_acquire(&cursor->head)); /* P2 */
}

/*
 * Client: rings doorbell `number` after its queue's tail was stored. The bit goes in
 * before the summary and that before the top, so that a worker which takes one finds what is
 * below. Returns true when the worker sleeps and its eventfd must be written.
 *
 * Dekker with the worker's way to sleep: here the bits are set, a full fence, then
 * `sleeping` is read; there `sleeping` is set, a full fence, then the bits are read. At
 * least one of the two sees the other.
 */
static inline bool shm_doorbell_ring(struct shm_worker_area *area, uint32_t number)
{
	uint32_t word = number / 64;

	/* Whoever found a word empty makes it known above, so that the worker comes to it. */
	if (__atomic_fetch_or(&area->bits[word], 1ull << (number % 64), __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_fetch_or(&area->summary[word / 64], 1ull << (word % 64), __ATOMIC_SEQ_CST) ==
		    0)
		__atomic_fetch_or(&area->top, 1ull << (word / 64), __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&area->sleeping, __ATOMIC_RELAXED) != 0;
}

/* Worker or control core: about to sleep. The caller looks for work once more after it. */
static inline void shm_sleep_announce(uint32_t *sleeping)
{
	__atomic_store_n(sleeping, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void shm_sleep_end(uint32_t *sleeping)
{
	__atomic_store_n(sleeping, 0, __ATOMIC_RELAXED);
}

/* A queue of work requests: slot `index` (free running) of its segment. */
static inline void *shm_queue_slot(void *segment, uint32_t offset, uint32_t stride, uint32_t slots,
				   uint32_t index)
{
	return (uint8_t *)segment + offset + (uint64_t)(index & (slots - 1)) * stride;
}

#endif
