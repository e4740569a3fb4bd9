/* SPDX-License-Identifier: BSD-3-Clause */
/* Seeded random numbers: xoshiro256**, one stream per purpose. */
#ifndef TEST_SIM_RNG_H
#define TEST_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct rng {
	uint64_t s[4];
};

static inline uint64_t rng_rotate(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

/* Streams of one seed are independent: what one uses up does not move another. */
static inline void rng_seed(struct rng *rng, uint64_t seed, uint64_t stream)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + stream * 0xd1b54a32d192ed03ull;

	for (int i = 0; i < 4; i++) {
		uint64_t z = state += 0x9e3779b97f4a7c15ull;

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		rng->s[i] = z ^ (z >> 31);
	}
}

static inline uint64_t rng_next(struct rng *rng)
{
	uint64_t *s = rng->s;
	const uint64_t result = rng_rotate(s[1] * 5, 7) * 9;
	const uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rng_rotate(s[3], 45);
	return result;
}

/* 0 .. count - 1; 0 for a count of 0. */
static inline uint32_t rng_below(struct rng *rng, uint32_t count)
{
	return (uint32_t)(((rng_next(rng) >> 32) * count) >> 32);
}

/* Both ends included. */
static inline uint32_t rng_between(struct rng *rng, uint32_t low, uint32_t high)
{
	return low + rng_below(rng, high - low + 1);
}

#define PPM 1000000u

static inline bool rng_chance(struct rng *rng, uint32_t ppm)
{
	return rng_below(rng, PPM) < ppm;
}

static inline bool rng_percent(struct rng *rng, uint32_t percent)
{
	return rng_below(rng, 100) < percent;
}

static inline void rng_fill(struct rng *rng, void *bytes, uint32_t length)
{
	uint8_t *to = bytes;

	while (length) {
		const uint64_t value = rng_next(rng);
		const uint32_t part = length < 8 ? length : 8;

		memcpy(to, &value, part);
		to += part;
		length -= part;
	}
}

#endif
