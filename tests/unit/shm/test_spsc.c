/* SPDX-License-Identifier: BSD-3-Clause */
/* Cursors of rings: full and empty at every wrap, and what the other side sees of an entry. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

#include "shm/spsc.h"

#if defined(__SANITIZE_THREAD__)
#define ENTRIES 200000u
#else
#define ENTRIES 3000000u
#endif

/* --- full and empty ------------------------------------------------------------------- */

static const uint32_t starts[] = { 0, 1, 7, 0x7fffffff, 0xfffffff0, 0xfffffffe, 0xffffffff };

/* B102: at the wrap of the ring and at that of the cursor. */
Test(spsc, b102_full_and_empty_at_every_size_and_wrap)
{
	for (uint32_t slots = 1; slots <= 1024; slots *= 2)
		for (uint32_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
			struct shm_ring_cursor cursor = { .tail = starts[i], .head = starts[i] };

			for (uint32_t filled = 0; filled <= slots; filled++) {
				cr_assert_eq(shm_ring_used(&cursor, starts[i]), filled);
				cr_assert_eq(shm_ring_free(&cursor, cursor.tail, slots),
					     slots - filled);
				cursor.tail++;
			}
		}
}

/* B102: what cannot be is more than the ring holds, from either side. */
Test(spsc, b102_cursors_that_cannot_be)
{
	for (uint32_t slots = 1; slots <= 1024; slots *= 2)
		for (uint32_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
			struct shm_ring_cursor cursor = { .tail = starts[i], .head = starts[i] };

			cursor.tail = starts[i] - 1; /* of a producer: behind what was read */
			cr_assert_gt(shm_ring_used(&cursor, starts[i]), slots);
			cursor.tail = starts[i] + slots + 1;
			cr_assert_gt(shm_ring_used(&cursor, starts[i]), slots);
			cursor.head = starts[i] + 1; /* of a consumer: ahead of what was written */
			cr_assert_gt(shm_ring_free(&cursor, starts[i], slots), slots);
			cursor.head = starts[i] - slots - 1;
			cr_assert_gt(shm_ring_free(&cursor, starts[i], slots), slots);
		}
}

/* --- two threads ---------------------------------------------------------------------- */

#define SLOTS 8u

static struct {
	struct shm_ring_cursor cursor;
	uint64_t entry[SLOTS][8];
	uint32_t torn, lost;
} ring;

/* Where both threads share a processor each waits for the other's turn. */
static void give_way(uint32_t *spins)
{
	if (++*spins % 256 == 0)
		sched_yield();
}

static void *consume(void *argument)
{
	uint32_t spins = 0;

	for (uint32_t head = 0; head < ENTRIES; head++) {
		const uint64_t *entry = ring.entry[head % SLOTS];

		while (shm_ring_used(&ring.cursor, head) == 0)
			give_way(&spins);
		ring.lost += entry[0] != head;
		for (uint32_t i = 1; i < 8; i++)
			ring.torn += entry[i] != entry[0];
		shm_store_release(&ring.cursor.head, head + 1);
	}
	return NULL;
}

/* B101: plain stores to the entry, release of the index; and the reverse for its reuse. */
Test(spsc, b101_an_entry_is_whole_when_its_index_is_seen)
{
	uint32_t spins = 0;
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, consume, NULL), 0);
	for (uint32_t tail = 0; tail < ENTRIES; tail++) {
		while (shm_ring_free(&ring.cursor, tail, SLOTS) == 0)
			give_way(&spins);
		for (uint32_t i = 0; i < 8; i++)
			ring.entry[tail % SLOTS][i] = tail;
		shm_store_release(&ring.cursor.tail, tail + 1);
	}
	pthread_join(thread, NULL);
	cr_assert_eq(ring.torn, 0, "%u entries seen half written", ring.torn);
	cr_assert_eq(ring.lost, 0, "%u entries not those that were written", ring.lost);
}
