/* SPDX-License-Identifier: BSD-3-Clause */
/* Cursors of rings: full and empty at every wrap, and what the other side sees of an entry. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>

#include "shm/spsc.h"

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

/* --- doorbells -------------------------------------------------------------------------------- */

static struct shm_worker_area area;

/* As a worker does: from the top down. Returns how many have rung; the last in *number. */
static unsigned int take_rung(uint32_t *number)
{
	uint64_t top = __atomic_exchange_n(&area.top, 0, __ATOMIC_ACQUIRE);
	unsigned int count = 0;

	for (; top; top &= top - 1) {
		uint32_t s = (uint32_t)__builtin_ctzll(top);
		uint64_t summary = __atomic_exchange_n(&area.summary[s], 0, __ATOMIC_ACQUIRE);

		for (; summary; summary &= summary - 1) {
			uint32_t word = s * 64 + (uint32_t)__builtin_ctzll(summary);
			uint64_t bits = __atomic_exchange_n(&area.bits[word], 0, __ATOMIC_ACQUIRE);

			for (; bits; bits &= bits - 1, count++)
				*number = word * 64 + (uint32_t)__builtin_ctzll(bits);
		}
	}
	return count;
}

Test(doorbell, each_number_is_found_once_from_the_top)
{
	const uint32_t numbers[] = { 0, 1, 63, 64, 4095, 4096, 65537, SHM_MAX_SESSION_QPS - 1 };
	uint32_t number = 0;

	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		shm_doorbell_ring(&area, numbers[i]);
		shm_doorbell_ring(&area, numbers[i]);
		cr_assert_eq(take_rung(&number), 1);
		cr_expect_eq(number, numbers[i]);
	}
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		shm_doorbell_ring(&area, numbers[i]);
	cr_expect_eq(take_rung(&number), 8);
	cr_expect_eq(take_rung(&number), 0);
}

/* The words above are not set again while one of them holds: whoever takes it comes to the bit. */
Test(doorbell, what_rings_below_a_word_that_was_taken_is_found)
{
	uint32_t number = 0;
	uint64_t summary;

	shm_doorbell_ring(&area, 5);
	cr_assert_eq(__atomic_exchange_n(&area.top, 0, __ATOMIC_ACQUIRE), 1);
	shm_doorbell_ring(&area, 4000); /* below the same summary, which is not taken yet */
	summary = __atomic_exchange_n(&area.summary[0], 0, __ATOMIC_ACQUIRE);
	cr_expect_eq(summary, 1ull | 1ull << (4000 / 64));
	shm_doorbell_ring(&area, 6); /* in a word of bits that is not taken yet */
	cr_expect_eq(__atomic_exchange_n(&area.bits[0], 0, __ATOMIC_ACQUIRE),
		     1ull << 5 | 1ull << 6);
	shm_doorbell_ring(&area, 7);
	cr_expect_eq(take_rung(&number), 1);
	cr_expect_eq(number, 7);
}

static void *ring_many(void *argument)
{
	const uint32_t first = *(const uint32_t *)argument;

	for (uint32_t i = 0; i < 20000; i++)
		shm_doorbell_ring(&area, first + i % 3 * 64);
	return NULL;
}

/* Two threads at neighbouring numbers: after their last ring all six are found, or were before. */
Test(doorbell, no_ring_is_lost_between_threads)
{
	const uint32_t first[] = { 4096, 4097 };
	pthread_t thread[2];
	uint32_t number = 0;

	for (unsigned int round = 0; round < 20; round++) {
		for (unsigned int i = 0; i < 2; i++)
			cr_assert_eq(pthread_create(&thread[i], NULL, ring_many, (void *)&first[i]),
				     0);
		for (unsigned int i = 0; i < 2000; i++)
			take_rung(&number);
		for (unsigned int i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		take_rung(&number);
		for (uint32_t word = 64; word < 67; word++)
			cr_assert_eq(area.bits[word], 0, "a bit that nobody is led to");
	}
}
