/* SPDX-License-Identifier: BSD-3-Clause */
/* Keyed permutations of 32-bit and 24-bit numbers: the SPECK round on two half-words. */
#include <errno.h>
#include <stddef.h>
#include <sys/random.h>

#include "memory/perm.h"

/* Rotations of SPECK32; for 12-bit halves they serve as well. */
#define PERM_ALPHA 7
#define PERM_BETA  2

int perm_draw_key(uint16_t key[PERM_ROUNDS])
{
	uint8_t *bytes = (uint8_t *)key;
	size_t done = 0;

	while (done < PERM_ROUNDS * sizeof(key[0])) {
		ssize_t got = getrandom(bytes + done, PERM_ROUNDS * sizeof(key[0]) - done, 0);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0)
			done += (size_t)got;
	}
	return 0;
}

static inline uint32_t rotate_left(uint32_t half, unsigned int by, unsigned int bits)
{
	return ((half << by) | (half >> (bits - by))) & ((1u << bits) - 1);
}

static inline uint32_t permute(const uint16_t *key, uint32_t value, unsigned int bits)
{
	const uint32_t mask = (1u << bits) - 1;
	uint32_t x = (value >> bits) & mask;
	uint32_t y = value & mask;

	for (int round = 0; round < PERM_ROUNDS; round++) {
		x = ((rotate_left(x, bits - PERM_ALPHA, bits) + y) ^ key[round]) & mask;
		y = rotate_left(y, PERM_BETA, bits) ^ x;
	}
	return x << bits | y;
}

static inline uint32_t permute_back(const uint16_t *key, uint32_t value, unsigned int bits)
{
	const uint32_t mask = (1u << bits) - 1;
	uint32_t x = (value >> bits) & mask;
	uint32_t y = value & mask;

	for (int round = PERM_ROUNDS - 1; round >= 0; round--) {
		y = rotate_left(x ^ y, bits - PERM_BETA, bits);
		x = rotate_left(((x ^ key[round]) - y) & mask, PERM_ALPHA, bits);
	}
	return x << bits | y;
}

uint32_t perm32_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	return permute(key, value, 16);
}

uint32_t perm32_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	return permute_back(key, value, 16);
}

uint32_t perm24_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	return permute(key, value, 12);
}

uint32_t perm24_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	return permute_back(key, value, 12);
}
