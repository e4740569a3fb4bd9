/* SPDX-License-Identifier: BSD-3-Clause */
/* How long an invalidated token may still be in use while two workers are busy. */
#ifndef ORIEL_MICRO_GRACE_H
#define ORIEL_MICRO_GRACE_H

#include "oriel-micro/engine.h"

/*
 * Two workers with a processor each: `burst(mine)` is the work of the one that invalidates windows
 * of `engine`, burst(others) that of the other one, between two reports of each. `engine` has two
 * readers and two windows, of which the bursts use the first. Fills `us` with `count` grace
 * periods, sorted. False: there is only one processor, or no memory.
 */
bool grace_measure(struct engine *engine, void (*burst)(void *context), void *mine, void *others,
		   double *us, uint32_t count);

#endif
