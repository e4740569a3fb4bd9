/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC by tables, eight bytes at a time.
 *
 * A processor that is emulated runs a carry-less multiplication as a loop over 64 bits, but a
 * load and an addition as a few instructions.
 */
#include "wire/icrc_table.h"

#include <string.h>

#define POLYNOMIAL 0xedb88320u /* reflected, without x^32 */
#define STATE      0xdebb20e3u /* after eight bytes of ones: the LRH that is not there */
#define WORD       8u

/* What a byte is worth that has `row` bytes behind it. */
static uint32_t worth[WORD][256];

void icrc_table_prepare(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		worth[0][byte] = crc;
	}
	for (uint32_t byte = 0; byte < 256; byte++)
		for (uint32_t row = 1; row < WORD; row++)
			worth[row][byte] =
				worth[row - 1][byte] >> 8 ^ worth[0][worth[row - 1][byte] & 0xff];
}

static inline uint64_t load(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

/* Of a word whose first half has the running value in it. */
static inline uint32_t step(uint64_t word)
{
	return worth[7][word & 0xff] ^ worth[6][word >> 8 & 0xff] ^ worth[5][word >> 16 & 0xff] ^
	       worth[4][word >> 24 & 0xff] ^ worth[3][word >> 32 & 0xff] ^
	       worth[2][word >> 40 & 0xff] ^ worth[1][word >> 48 & 0xff] ^ worth[0][word >> 56];
}

static inline uint32_t run(uint32_t state, const uint8_t *data, uint64_t length)
{
	for (; length >= WORD; data += WORD, length -= WORD)
		state = step(load(data) ^ state);
	while (length--)
		state = state >> 8 ^ worth[0][(state ^ *data++) & 0xff];
	return state;
}

uint32_t icrc_table_update(uint32_t crc, const uint8_t *data, uint64_t length)
{
	return ~run(~crc, data, length);
}

uint32_t icrc_table_last(uint64_t bytes)
{
	return step(bytes);
}

uint32_t icrc_table_whole(const uint8_t *l3, bool is_v4, uint32_t length)
{
	/* Whole words; no packet is shorter. */
	const uint32_t variant_end = is_v4 ? 40 : 56;
	uint32_t state = STATE;

	for (uint32_t at = 0; at < variant_end; at += WORD)
		state = step((load(l3 + at) | load(icrc_variant[is_v4] + at)) ^ state);
	return ~run(state, l3 + variant_end, length - variant_end);
}
