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

/* `last` is a constant, so that the last bytes are one store. */
static inline __attribute__((always_inline)) void memory_place_but(uint8_t *to, const uint8_t *from,
								   uint32_t length, uint32_t last)
{
	if (length > last)
		memcpy(to, from, length - last);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(to + (length - last), from + (length - last), last);
}

/* What is aligned and of one, two, four or eight bytes comes whole. */
static inline void memory_place(uint8_t *to, const uint8_t *from, uint32_t length)
{
	const uintptr_t end = (uintptr_t)to + length;

	if (__builtin_expect(length >= 8 && end % 8 == 0, 1))
		memory_place_but(to, from, length, 8);
	else if (length >= 4 && end % 4 == 0)
		memory_place_but(to, from, length, 4);
	else if (length >= 2 && end % 2 == 0)
		memory_place_but(to, from, length, 2);
	else if (length)
		memory_place_but(to, from, length, 1);
}

#endif
