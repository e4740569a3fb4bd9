/* SPDX-License-Identifier: BSD-3-Clause */
/* The one function that a fuzz target has, called by libFuzzer or by the replay
 * program. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
