/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGBUS repair: a client took pages away under us; zeros take their place and the
 * segment is poisoned.
 *
 * The handler runs in whatever thread touched the page, so the table of ranges is read
 * without locks: each entry has a sequence number that is odd while it changes.
 */
#include <errno.h>
#include <sys/mman.h>

#include "memory/memory_private.h"

#define FAULT_RANGES 16384

struct fault_range {
	uint32_t taken;
	uint32_t sequence;
	uintptr_t start; /* 0: none */
	uintptr_t length;
	uintptr_t page_size;
	uint32_t *poisoned;
};

/* One per process, as signal handlers are. */
static struct fault_range ranges[FAULT_RANGES];
static uint32_t ranges_used; /* entries from here on were never taken */

/* Release stores keep the order: odd sequence, fields, even sequence. */
static void write_range(struct fault_range *range, void *start, size_t length, size_t page_size,
			uint32_t *poisoned)
{
	uint32_t sequence = __atomic_load_n(&range->sequence, __ATOMIC_RELAXED);

	__atomic_store_n(&range->sequence, sequence + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&range->start, (uintptr_t)start, __ATOMIC_RELEASE);
	__atomic_store_n(&range->length, length, __ATOMIC_RELEASE);
	__atomic_store_n(&range->page_size, page_size, __ATOMIC_RELEASE);
	__atomic_store_n(&range->poisoned, poisoned, __ATOMIC_RELEASE);
	__atomic_store_n(&range->sequence, sequence + 2, __ATOMIC_RELEASE);
}

/* False when the entry changed meanwhile: then it is not the range that faulted. */
static bool read_range(const struct fault_range *range, struct fault_range *copy)
{
	copy->sequence = __atomic_load_n(&range->sequence, __ATOMIC_ACQUIRE);
	copy->start = __atomic_load_n(&range->start, __ATOMIC_ACQUIRE);
	copy->length = __atomic_load_n(&range->length, __ATOMIC_ACQUIRE);
	copy->page_size = __atomic_load_n(&range->page_size, __ATOMIC_ACQUIRE);
	copy->poisoned = __atomic_load_n(&range->poisoned, __ATOMIC_ACQUIRE);
	return copy->sequence % 2 == 0 &&
	       copy->sequence == __atomic_load_n(&range->sequence, __ATOMIC_RELAXED);
}

int fault_range_add(void *start, size_t length, size_t page_size, uint32_t *poisoned)
{
	/* The last page may be used in part only and still faults as a whole. */
	const size_t whole = (length + page_size - 1) / page_size * page_size;

	for (uint32_t i = 0; i < FAULT_RANGES; i++) {
		uint32_t used = __atomic_load_n(&ranges_used, __ATOMIC_RELAXED);

		if (__atomic_exchange_n(&ranges[i].taken, 1, __ATOMIC_ACQUIRE))
			continue;
		write_range(&ranges[i], start, whole, page_size, poisoned);
		while (used <= i &&
		       !__atomic_compare_exchange_n(&ranges_used, &used, i + 1, false,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
		return (int)i;
	}
	return -ENOSPC;
}

void fault_range_remove(int range)
{
	write_range(&ranges[range], NULL, 0, 0, NULL);
	__atomic_store_n(&ranges[range].taken, 0, __ATOMIC_RELEASE);
}

static bool map_zeros(uintptr_t start, size_t length)
{
	return mmap((void *)start, length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static bool repair_in(const struct fault_range *range, uintptr_t address)
{
	const uintptr_t page = address & ~(range->page_size - 1);

	/*
	 * Poison first: another worker that copies from the new page without a fault must
	 * find the segment poisoned when it is done.
	 */
	__atomic_store_n(range->poisoned, 1, __ATOMIC_SEQ_CST);
	/*
	 * A huge page can only be replaced as a whole. The whole range instead, when this
	 * process has no mapping left to split off: that needs no further one.
	 */
	return map_zeros(page, range->page_size) || map_zeros(range->start, range->length);
}

bool memory_repair_fault(void *address)
{
	const uint32_t used = __atomic_load_n(&ranges_used, __ATOMIC_ACQUIRE);
	const int error = errno;
	bool repaired = false;

	for (uint32_t i = 0; i < used && !repaired; i++) {
		struct fault_range range;

		if (read_range(&ranges[i], &range) && range.start &&
		    range_within(range.start, range.length, (uintptr_t)address, 1))
			repaired = repair_in(&range, (uintptr_t)address);
	}
	errno = error;
	return repaired;
}
