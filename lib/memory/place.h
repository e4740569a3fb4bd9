/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of a packet into client memory, the last of them last. The adapter says so
 * (NDK_ADAPTER_FLAG_IN_ORDER_DMA_SUPPORTED), and programs wait for the last byte of a message and
 * then read what is before it; memcpy() stores the ends of a range before its middle.
 */
#ifndef MEMORY_PLACE_H
#define MEMORY_PLACE_H

#include <stdint.h>
#include <string.h>

/* The same for fewer than eight bytes, and where the end is not aligned: seldom, so not in line. */
void memory_place_odd(uint8_t *to, const uint8_t *from, uint32_t length);

/* What is aligned and of one, two, four or eight bytes comes whole. */
static inline __attribute__((always_inline)) void memory_place(uint8_t *to, const uint8_t *from,
							       uint32_t length)
{
	const uint32_t before = length - 8;

	if (__builtin_expect(length < 8 || ((uintptr_t)to + length) % 8 != 0, 0)) {
		memory_place_odd(to, from, length);
		return;
	}
	if (__builtin_expect(before != 0, 1))
		memcpy(to, from, before);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(to + before, from + before, 8);
}

#endif
