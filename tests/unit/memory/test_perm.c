/* SPDX-License-Identifier: BSD-3-Clause */
/* The permutations behind tokens and QPNs: right cipher, one to one, keyed. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "memory/perm.h"

static uint16_t rotate_right(uint16_t word, int by)
{
	return (uint16_t)(word >> by | word << (16 - by));
}

static uint16_t rotate_left(uint16_t word, int by)
{
	return (uint16_t)(word << by | word >> (16 - by));
}

/* The key schedule of SPECK32/64: four key words become 22 round keys. */
static void expand_key(const uint16_t words[4], uint16_t key[PERM_ROUNDS])
{
	uint16_t l[PERM_ROUNDS + 3];

	key[0] = words[0];
	for (int i = 0; i < 3; i++)
		l[i] = words[i + 1];
	for (int i = 0; i < PERM_ROUNDS - 1; i++) {
		l[i + 3] = (uint16_t)((key[i] + rotate_right(l[i], 7)) ^ i);
		key[i + 1] = rotate_left(key[i], 2) ^ l[i + 3];
	}
}

Test(perm, speck32_published_vector)
{
	const uint16_t words[4] = { 0x0100, 0x0908, 0x1110, 0x1918 };
	uint16_t key[PERM_ROUNDS];

	expand_key(words, key);
	cr_expect_eq(perm32_encrypt(key, 0x6574694c), 0xa86842f2);
	cr_expect_eq(perm32_decrypt(key, 0xa86842f2), 0x6574694c);
}

Test(perm, perm24_is_a_permutation_of_all_values)
{
	uint8_t *seen = calloc(1u << 24, 1);
	uint16_t key[PERM_ROUNDS];
	unsigned int wrong = 0;

	cr_assert_not_null(seen);
	cr_assert_eq(perm_draw_key(key), 0);
	for (uint32_t value = 0; value < 1u << 24; value++) {
		uint32_t image = perm24_encrypt(key, value);

		if (image >= 1u << 24 || seen[image]++ || perm24_decrypt(key, image) != value)
			wrong++;
	}
	cr_expect_eq(wrong, 0);
	free(seen);
}

Test(perm, perm32_comes_back)
{
	uint16_t key[PERM_ROUNDS];
	unsigned int wrong = 0;

	cr_assert_eq(perm_draw_key(key), 0);
	for (uint64_t value = 0; value <= UINT32_MAX; value += 4093) {
		wrong += perm32_decrypt(key, perm32_encrypt(key, (uint32_t)value)) != value;
		wrong += perm32_encrypt(key, perm32_decrypt(key, (uint32_t)value)) != value;
	}
	cr_expect_eq(wrong, 0);
}

Test(perm, keys_differ)
{
	uint16_t one[PERM_ROUNDS], two[PERM_ROUNDS];
	unsigned int same = 0;

	cr_assert_eq(perm_draw_key(one), 0);
	cr_assert_eq(perm_draw_key(two), 0);
	for (uint32_t value = 0; value < 1000; value++)
		same += perm32_encrypt(one, value) == perm32_encrypt(two, value);
	cr_expect_lt(same, 3);
}

/* What the data path decrypts a burst with is the cipher that the control path encrypts with. */
Test(perm, many_are_as_one_at_a_time)
{
	uint16_t key[PERM_ROUNDS];
	uint32_t value[PERM_MANY], many[PERM_MANY], random = 1;

	for (unsigned int times = 0; times < 200; times++) {
		cr_assert_eq(perm_draw_key(key), 0);
		for (unsigned int i = 0; i < PERM_MANY; i++) {
			random = random * 1664525 + 1013904223;
			many[i] = value[i] = random;
		}
		perm32_decrypt_many(key, many);
		for (unsigned int i = 0; i < PERM_MANY; i++)
			cr_expect_eq(many[i], perm32_decrypt(key, value[i]), "32 bits, %u", i);
		for (unsigned int i = 0; i < PERM_MANY; i++)
			many[i] = value[i] & 0xffffff;
		perm24_decrypt_many(key, many);
		for (unsigned int i = 0; i < PERM_MANY; i++)
			cr_expect_eq(many[i], perm24_decrypt(key, value[i] & 0xffffff),
				     "24 bits, %u", i);
	}
}
