/* SPDX-License-Identifier: BSD-3-Clause */
/* How long an entry of a ring takes from one processor to another. */
#ifndef ORIEL_MICRO_CROSSING_H
#define ORIEL_MICRO_CROSSING_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Fills `ns` with `count` times of one way, sorted; each is the mean of a series of ways there and
 * back. False: there is only one processor, or no memory.
 */
bool crossing_measure(double *ns, uint32_t count);

#endif
