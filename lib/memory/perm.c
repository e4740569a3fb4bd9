/* SPDX-License-Identifier: BSD-3-Clause */
/* Keyed permutations of 32-bit and 24-bit numbers: the SPECK round on two half-words. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
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

/* --- 16-bit halves: in machine words of their size, as this runs for every packet ---- */

static inline uint16_t rotate16(uint16_t half, unsigned int left)
{
	return (uint16_t)(half << left | half >> (16 - left));
}

uint32_t perm32_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	uint16_t x = (uint16_t)(value >> 16);
	uint16_t y = (uint16_t)value;

	for (int round = 0; round < PERM_ROUNDS; round++) {
		x = (uint16_t)(rotate16(x, 16 - PERM_ALPHA) + y) ^ key[round];
		y = rotate16(y, PERM_BETA) ^ x;
	}
	return (uint32_t)x << 16 | y;
}

uint32_t perm32_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	uint16_t x = (uint16_t)(value >> 16);
	uint16_t y = (uint16_t)value;

	for (int round = PERM_ROUNDS - 1; round >= 0; round--) {
		y = rotate16(x ^ y, 16 - PERM_BETA);
		x = rotate16((uint16_t)((x ^ key[round]) - y), PERM_ALPHA);
	}
	return (uint32_t)x << 16 | y;
}

/* --- 12-bit halves -------------------------------------------------------------------- */

#define MASK12 0xfffu

static inline uint32_t rotate12(uint32_t half, unsigned int left)
{
	return (half << left | half >> (12 - left)) & MASK12;
}

uint32_t perm24_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	uint32_t x = value >> 12 & MASK12;
	uint32_t y = value & MASK12;

	for (int round = 0; round < PERM_ROUNDS; round++) {
		x = ((rotate12(x, 12 - PERM_ALPHA) + y) ^ key[round]) & MASK12;
		y = rotate12(y, PERM_BETA) ^ x;
	}
	return x << 12 | y;
}

uint32_t perm24_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value)
{
	uint32_t x = value >> 12 & MASK12;
	uint32_t y = value & MASK12;

	for (int round = PERM_ROUNDS - 1; round >= 0; round--) {
		y = rotate12(x ^ y, 12 - PERM_BETA);
		x = rotate12(((x ^ key[round]) - y) & MASK12, PERM_ALPHA);
	}
	return x << 12 | y;
}

/* --- many at once --------------------------------------------------------------------- */

#define LANES   16u
#define VECTORS (PERM_MANY / LANES)

typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

struct many {
	halves x[VECTORS], y[VECTORS];
};

static void take_halves(struct many *many, const uint32_t value[PERM_MANY], unsigned int bits)
{
	uint16_t x[PERM_MANY], y[PERM_MANY];

	for (unsigned int i = 0; i < PERM_MANY; i++) {
		x[i] = (uint16_t)(value[i] >> bits);
		y[i] = (uint16_t)(value[i] & ((1u << bits) - 1));
	}
	memcpy(many->x, x, sizeof(x));
	memcpy(many->y, y, sizeof(y));
}

static void give_halves(const struct many *many, uint32_t value[PERM_MANY], unsigned int bits)
{
	uint16_t x[PERM_MANY], y[PERM_MANY];

	memcpy(x, many->x, sizeof(x));
	memcpy(y, many->y, sizeof(y));
	for (unsigned int i = 0; i < PERM_MANY; i++)
		value[i] = (uint32_t)x[i] << bits | y[i];
}

/* The rounds of both sizes; `mask` cuts 16 bits to those of a half. */
static inline void decrypt_halves(const uint16_t key[PERM_ROUNDS], struct many *many,
				  unsigned int bits, uint16_t mask)
{
	for (int round = PERM_ROUNDS - 1; round >= 0; round--) {
		for (unsigned int v = 0; v < VECTORS; v++) {
			halves x = many->x[v], y = (many->y[v] ^ x) & mask;

			y = (y >> PERM_BETA | y << (bits - PERM_BETA)) & mask;
			x = ((x ^ key[round]) - y) & mask;
			many->x[v] = (x << PERM_ALPHA | x >> (bits - PERM_ALPHA)) & mask;
			many->y[v] = y;
		}
	}
}

void perm32_decrypt_many(const uint16_t key[PERM_ROUNDS], uint32_t value[PERM_MANY])
{
	struct many many;

	take_halves(&many, value, 16);
	decrypt_halves(key, &many, 16, 0xffff);
	give_halves(&many, value, 16);
}

void perm24_decrypt_many(const uint16_t key[PERM_ROUNDS], uint32_t value[PERM_MANY])
{
	struct many many;

	take_halves(&many, value, 12);
	decrypt_halves(key, &many, 12, MASK12);
	give_halves(&many, value, 12);
}
