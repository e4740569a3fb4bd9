/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of a packet into client memory, of lengths and at places that are rare. */
#include "memory/place.h"

/* `last` is a constant, so that the last bytes are one store. */
static inline __attribute__((always_inline)) void place_but(uint8_t *to, const uint8_t *from,
							    uint32_t length, uint32_t last)
{
	if (length > last)
		memcpy(to, from, length - last);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(to + (length - last), from + (length - last), last);
}

void memory_place_odd(uint8_t *to, const uint8_t *from, uint32_t length)
{
	const uintptr_t end = (uintptr_t)to + length;

	if (length >= 4 && end % 4 == 0)
		place_but(to, from, length, 4);
	else if (length >= 2 && end % 2 == 0)
		place_but(to, from, length, 2);
	else if (length)
		place_but(to, from, length, 1);
}
