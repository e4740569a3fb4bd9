/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes that tell their position: a word for each eight of them, mixed from seed and index. */
#include "pattern.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t pattern_word(uint64_t seed, size_t index)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + index;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

void pattern_fill(uint8_t *at, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = pattern_word(seed, i / 8);

		memcpy(at + i, &word, length - i < 8 ? length - i : 8);
	}
}

ssize_t pattern_mismatch(const uint8_t *at, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		size_t n = length - i < 8 ? length - i : 8;
		uint64_t word = pattern_word(seed, i / 8);

		if (!memcmp(at + i, &word, n))
			continue;
		while (!memcmp(at + i, &word, 1)) {
			word >>= 8;
			i++;
		}
		return (ssize_t)i;
	}
	return -1;
}

uint64_t pattern_fresh(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (uint64_t)time(NULL);
	return seed | 1; /* not 0, which some take for none */
}
