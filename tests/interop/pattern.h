/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that tell their position, so that data at a wrong place never compares equal. */
#ifndef INTEROP_PATTERN_H
#define INTEROP_PATTERN_H

#include <stdint.h>
#include <sys/types.h>

void pattern_fill(uint8_t *at, size_t length, uint64_t seed);
/* Returns the first offset that differs, or -1. */
ssize_t pattern_mismatch(const uint8_t *at, size_t length, uint64_t seed);
/* A seed that no earlier run has had: what it left in memory never passes for what we bring. */
uint64_t pattern_fresh(void);

#endif
