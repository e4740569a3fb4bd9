/* SPDX-License-Identifier: BSD-3-Clause */
/* Included before all in the simulation's copy of what is tested: copies call out as stores do. */
#ifndef SIM_COPIES_H
#define SIM_COPIES_H

#include <string.h>

void *sim_copy(void *to, const void *from, size_t length);

/* What is of a fixed size becomes stores, which call out by themselves. */
#define memcpy(to, from, length)                                           \
	(__builtin_constant_p(length) ? __builtin_memcpy(to, from, length) \
				      : sim_copy(to, from, length))

#endif
