/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Death between any two stores.
 *
 * The simulation has its own copy of lib/transport and lib/memory, compiled as for the thread
 * sanitizer, so that the compiler calls out before each store; but these functions are ours and not
 * the sanitizer's. They count, and the daemon dies before the store that was drawn, or in the
 * middle of a copy (copies.h). An atomic is carried out here, as the sanitizer would.
 *
 * The last bytes of a packet come last into the client's memory: where the SGEs of a request lie in
 * order, as all here do, no store goes back behind another.
 *
 * Not in builds with a sanitizer: there a daemon dies only where it calls out by itself.
 */
#include <string.h>

#include "copies.h"
#include "sim.h"

#undef memcpy

static struct host *victim; /* whose worker runs */

void stores_begin(struct host *host)
{
	victim = host;
}

void stores_end(void)
{
	victim = NULL;
}

#ifdef SIM_STORES

static void check_order(const uint8_t *place, size_t size)
{
	const size_t at = (size_t)(place - victim->mapped);

	if (at >= victim->size)
		return;
	if (at < victim->placed)
		sim_fail(victim->world, "host %u: byte %#zx is written after byte %#zx of a packet",
			 victim->number, at, victim->placed - 1);
	victim->placed = at + size;
}

static bool is_record(const void *place)
{
	const struct arena *arena = &victim->arena;
	const enum arena_table table = (enum arena_table)victim->record_table;
	const uint8_t *start = arena_record(arena, table, 0);
	const uint8_t *end = arena_record(arena, table, arena_records(arena, table));

	return (const uint8_t *)place >= start && (const uint8_t *)place < end;
}

/* Whether the daemon dies here. */
static bool count_store(const void *place, size_t size)
{
	if (victim == NULL)
		return false;
	if (victim->placing)
		check_order(place, size);
	if (victim->record_stores && is_record(place)) {
		victim->stores_left = victim->record_stores;
		victim->record_stores = 0;
	}
	return victim->stores_left && --victim->stores_left == 0;
}

static void before_store(const void *place, size_t size)
{
	if (count_store(place, size))
		host_die(victim);
}

void *sim_copy(void *to, const void *from, size_t length)
{
	if (length && count_store(to, length)) {
		memcpy(to, from, length / 2);
		host_die(victim);
	}
	return memcpy(to, from, length);
}

/* Declared here only: the compiler makes the calls. */
#define PLAIN(name)                      \
	void __tsan_##name(void *place); \
	void __tsan_##name(void *place)

#define READ(size)                  \
	PLAIN(read##size)           \
	{                           \
	}                           \
	PLAIN(unaligned_read##size) \
	{                           \
	}
#define WRITE(size)                        \
	PLAIN(write##size)                 \
	{                                  \
		before_store(place, size); \
	}                                  \
	PLAIN(unaligned_write##size)       \
	{                                  \
		before_store(place, size); \
	}

/* clang-format off */
READ(1) READ(2) READ(4) READ(8) READ(16)
WRITE(1) WRITE(2) WRITE(4) WRITE(8) WRITE(16)
PLAIN(func_entry) {}
/* clang-format on */

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *place, size_t size);
void __tsan_read_range(void *place, size_t size)
{
}

void __tsan_write_range(void *place, size_t size);
void __tsan_write_range(void *place, size_t size)
{
	before_store(place, size);
}

void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define CHANGE(bits, name)                                                                       \
	uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *, uint##bits##_t, int);      \
	uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *place, uint##bits##_t value, \
						    int order)                                   \
	{                                                                                        \
		before_store(place, sizeof(*place));                                             \
		return __atomic_##name(place, value, __ATOMIC_SEQ_CST);                          \
	}

#define SWAP(bits, name)                                                                          \
	int __tsan_atomic##bits##_##name(uint##bits##_t *, uint##bits##_t *, uint##bits##_t, int, \
					 int);                                                    \
	int __tsan_atomic##bits##_##name(uint##bits##_t *place, uint##bits##_t *expected,         \
					 uint##bits##_t value, int order, int failed)             \
	{                                                                                         \
		before_store(place, sizeof(*place));                                              \
		return __atomic_compare_exchange_n(place, expected, value, false,                 \
						   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);           \
	}

/* clang's form: gives the value that was there. */
#define SWAP_VALUE(bits)                                                                         \
	uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                               \
		uint##bits##_t *, uint##bits##_t, uint##bits##_t, int, int);                     \
	uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                               \
		uint##bits##_t *place, uint##bits##_t expected, uint##bits##_t value, int order, \
		int failed)                                                                      \
	{                                                                                        \
		before_store(place, sizeof(*place));                                             \
		__atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_SEQ_CST,    \
					    __ATOMIC_SEQ_CST);                                   \
		return expected;                                                                 \
	}

#define ATOMIC(bits)                                                                               \
	uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *, int);                    \
	uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *place, int order)          \
	{                                                                                          \
		return __atomic_load_n(place, __ATOMIC_SEQ_CST);                                   \
	}                                                                                          \
	void __tsan_atomic##bits##_store(uint##bits##_t *, uint##bits##_t, int);                   \
	void __tsan_atomic##bits##_store(uint##bits##_t *place, uint##bits##_t value, int order)   \
	{                                                                                          \
		before_store(place, sizeof(*place));                                               \
		__atomic_store_n(place, value, __ATOMIC_SEQ_CST);                                  \
	}                                                                                          \
	uint##bits##_t __tsan_atomic##bits##_exchange(uint##bits##_t *, uint##bits##_t, int);      \
	uint##bits##_t __tsan_atomic##bits##_exchange(uint##bits##_t *place, uint##bits##_t value, \
						      int order)                                   \
	{                                                                                          \
		before_store(place, sizeof(*place));                                               \
		return __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST);                        \
	}                                                                                          \
	CHANGE(bits, fetch_add)                                                                    \
	CHANGE(bits, fetch_sub)                                                                    \
	CHANGE(bits, fetch_and)                                                                    \
	CHANGE(bits, fetch_or)                                                                     \
	CHANGE(bits, fetch_xor)                                                                    \
	SWAP(bits, compare_exchange_strong)                                                        \
	SWAP(bits, compare_exchange_weak)                                                          \
	SWAP_VALUE(bits)

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

#endif
