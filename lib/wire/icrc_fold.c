/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ICRC of a packet in one pass by carry-less multiplication, where the processor has it.
 *
 * A CRC is a sum: each block of 16 bytes adds what it is worth at its distance from the end,
 * whatever stands in between. So all blocks are multiplied at once, each by the power of x of its
 * own distance, and only their sum is reduced: no block waits for the one before, as in the usual
 * loop, which is made for long buffers. Variant fields are set while they are loaded.
 *
 * Bits are reflected: bit 0 of a block is its highest power. The product of two reflected numbers
 * is one bit short, so a constant for x^n holds x^(n-1).
 */
#include "wire/icrc_fold.h"

#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define NARROW __attribute__((target("pclmul,sse4.1")))
#define WIDE   __attribute__((target("avx512f,avx512bw,avx512vl,vpclmulqdq,pclmul,bmi2")))

#define BLOCK     16u
#define STEP      4u /* RoCE packets are multiples of it */
#define DISTANCES (ICRC_FOLD_MAX / BLOCK + 2)
#define LANES     4u /* blocks in a wide register */

#define POLYNOMIAL 0xedb88320u   /* reflected, without x^32 */
#define X_INVERSE  0xdb710641u   /* 1/x modulo it */
#define MODULUS    0x1db710641ll /* all of it, reflected in 33 bits */
#define QUOTIENT   0x1f7011641ll /* x^64 divided by it, reflected in 33 bits */
#define STATE      0xdebb20e3u   /* after eight bytes of ones: the LRH that is not there */

/*
 * Row (length + 4) % 16 / 4 is for packets of that length, and goes down in distance: the entry of
 * a block is the next of that before it. A block that ends d bytes before the end wants its lower
 * half times x^(8 * (d + 12)), the upper one times x^(8 * (d + 4)): 4 bytes more, since a CRC
 * appends them. The last entries are for blocks that end in zeros behind the packet: their d is
 * negative.
 */
static __m128i powers[BLOCK / STEP][DISTANCES + LANES];
static __m128i x64; /* both halves: what a block's lower half is worth in the upper one's place */

/* Zeros, then ones: the last n bytes of a block from offset n. */
static const uint8_t keep_last[2 * BLOCK] = {
	[BLOCK] = 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	0xff,           0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
};

static uint32_t times_x(uint32_t value, unsigned int times)
{
	while (times--)
		value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
	return value;
}

static uint32_t divided_by_x(uint32_t value, unsigned int times)
{
	while (times--)
		value = value >> 31 ? (value ^ POLYNOMIAL) << 1 | 1 : value << 1;
	return value;
}

/* The entry for d + 4 = distance, from x^(8 * distance - 1). */
static void set_power(int32_t distance, uint32_t power)
{
	const uint64_t both[2] = { (uint64_t)times_x(power, 64) << 32, (uint64_t)power << 32 };
	const uint32_t from_lowest = (uint32_t)(distance + (int32_t)BLOCK);

	memcpy(&powers[from_lowest % BLOCK / STEP][DISTANCES - 1 - from_lowest / BLOCK], both,
	       sizeof(both));
	if (distance == 0)
		x64 = _mm_set1_epi64x((long long)both[0]);
}

void icrc_fold_prepare(void)
{
	uint32_t power = divided_by_x(X_INVERSE, 8 * BLOCK);

	for (int32_t d = -(int32_t)BLOCK; d < (int32_t)(BLOCK * (DISTANCES - 1)); d += STEP) {
		set_power(d, power);
		power = times_x(power, 8 * STEP);
	}
}

/* Of the first block. */
static const __m128i *first_power(uint32_t length)
{
	const uint32_t distance = length + STEP; /* and 16 up, 16 down for the block itself */

	return &powers[distance % BLOCK / STEP][DISTANCES - 1 - distance / BLOCK];
}

/* 128 bits modulo the polynomial: twice by x^64, then Barrett's way. */
static inline NARROW uint32_t reduce(__m128i sum)
{
	const __m128i low = _mm_set_epi64x(0, 0xffffffff);
	const __m128i barrett = _mm_set_epi64x(MODULUS, QUOTIENT);
	__m128i quotient;

	sum = _mm_xor_si128(_mm_clmulepi64_si128(sum, x64, 0x00),
			    _mm_unpackhi_epi64(_mm_setzero_si128(), sum));
	sum = _mm_srli_si128(_mm_xor_si128(_mm_clmulepi64_si128(sum, x64, 0x00), sum), 8);
	quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low), barrett, 0x00), low);
	sum = _mm_xor_si128(sum, _mm_clmulepi64_si128(quotient, barrett, 0x10));
	return (uint32_t)_mm_extract_epi32(sum, 1);
}

/* --- one block at a time -------------------------------------------------------------------- */

static inline NARROW __m128i load(const uint8_t *bytes)
{
	return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

static inline NARROW __m128i times(__m128i block, __m128i power)
{
	return _mm_xor_si128(_mm_clmulepi64_si128(block, power, 0x00),
			     _mm_clmulepi64_si128(block, power, 0x11));
}

/* The upper half of a block that ends where the packet does. */
NARROW uint32_t icrc_fold_last(uint64_t bytes)
{
	const __m128i block = _mm_set_epi64x((long long)bytes, 0);

	return reduce(_mm_clmulepi64_si128(block, *first_power(BLOCK), 0x11));
}

NARROW uint32_t icrc_fold_narrow(const uint8_t *l3, bool is_v4, uint32_t length)
{
	const __m128i *power = first_power(length);
	const uint8_t *ones = icrc_variant[is_v4];
	const uint8_t *end = l3 + length, *at = l3 + 2 * BLOCK;
	__m128i sum, block;

	/* Two blocks there always are. */
	block = _mm_xor_si128(_mm_or_si128(load(l3), load(ones)), _mm_cvtsi32_si128((int)STATE));
	sum = times(block, power[0]);
	block = _mm_or_si128(load(l3 + BLOCK), load(ones + BLOCK));
	sum = _mm_xor_si128(sum, times(block, power[1]));
	power += 2;
	for (; at + BLOCK <= end && at < l3 + ICRC_VARIANT_END; at += BLOCK) {
		block = _mm_or_si128(load(at), load(ones + (at - l3)));
		sum = _mm_xor_si128(sum, times(block, *power++));
	}
	for (; at + BLOCK <= end; at += BLOCK)
		sum = _mm_xor_si128(sum, times(load(at), *power++));
	if (at < end) {
		block = load(end - BLOCK);
		if (at < l3 + ICRC_VARIANT_END)
			block = _mm_or_si128(block, load(ones + length - BLOCK));
		block = _mm_and_si128(block, load(keep_last + length % BLOCK));
		sum = _mm_xor_si128(sum, times(block, *first_power(BLOCK)));
	}
	return ~reduce(sum);
}

/* --- four at a time ------------------------------------------------------------------------- */

static inline WIDE __m512i load_powers(const __m128i *power)
{
	return _mm512_loadu_si512(power);
}

/* sum + blocks times their powers; the two products and the sum in one step. */
static inline WIDE __m512i add_times(__m512i sum, __m512i blocks, __m512i power)
{
	return _mm512_ternarylogic_epi64(sum, _mm512_clmulepi64_epi128(blocks, power, 0x00),
					 _mm512_clmulepi64_epi128(blocks, power, 0x11), 0x96);
}

/* What is behind the packet reads as zeros. */
static inline WIDE __m512i load_blocks(const uint8_t *at, const uint8_t *end)
{
	const uint64_t bytes = (uint64_t)(end - at);

	return _mm512_maskz_loadu_epi8(bytes < 64 ? _bzhi_u64(~0ull, (uint32_t)bytes) : ~0ull, at);
}

WIDE uint32_t icrc_fold_wide(const uint8_t *l3, bool is_v4, uint32_t length)
{
	const __m128i *power = first_power(length);
	const uint8_t *end = l3 + length, *at = l3 + 64;
	__m512i blocks, sum;
	__m256i half;

	blocks = _mm512_or_si512(load_blocks(l3, end), _mm512_loadu_si512(icrc_variant[is_v4]));
	blocks = _mm512_xor_si512(blocks, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)STATE)));
	sum = add_times(_mm512_setzero_si512(), blocks, load_powers(power));
	for (; at < end; at += 64) {
		power += LANES;
		sum = add_times(sum, load_blocks(at, end), load_powers(power));
	}
	half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
	return ~reduce(
		_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

/*
 * Payload lies apart from its headers until it has been copied behind them, and is a packet of its
 * own as far as distances go. Each byte is loaded once, stored, and counted.
 */
WIDE uint32_t icrc_fold_copy_wide(const uint8_t *l3, bool is_v4, uint32_t head, uint8_t *to,
				  const uint8_t *from, uint32_t length, uint32_t pad)
{
	const __m128i *power = first_power(head + length + pad);
	const uint8_t *head_end = l3 + head, *end = from + length;
	__m512i blocks, sum;
	__m256i half;

	blocks =
		_mm512_or_si512(load_blocks(l3, head_end), _mm512_loadu_si512(icrc_variant[is_v4]));
	blocks = _mm512_xor_si512(blocks, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)STATE)));
	sum = add_times(_mm512_setzero_si512(), blocks, load_powers(power));
	if (head > 64)
		sum = add_times(sum, load_blocks(l3 + 64, head_end), load_powers(power + LANES));
	power = first_power(length + pad);
	for (; end - from >= 64; from += 64, to += 64, power += LANES) {
		blocks = _mm512_loadu_si512(from);
		_mm512_storeu_si512(to, blocks);
		sum = add_times(sum, blocks, load_powers(power));
	}
	if (from < end) {
		blocks = load_blocks(from, end);
		_mm512_mask_storeu_epi8(to, _bzhi_u64(~0ull, (uint32_t)(end - from)), blocks);
		sum = add_times(sum, blocks, load_powers(power));
	}
	half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
	return ~reduce(
		_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

#else

void icrc_fold_prepare(void)
{
}

#endif
