/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keyed permutations of 32-bit and 24-bit numbers: a counter becomes a token or a
 * QPN that nobody can predict, never twice the same within a cycle, and turns back
 * into the table index it stands for without any look-up structure.
 *
 * Both are the SPECK round on two half-words of 16 or 12 bits, 22 rounds, with
 * independent random round keys.
 */
#ifndef MEMORY_PERM_H
#define MEMORY_PERM_H

#include <stdint.h>

#define PERM_ROUNDS 22

/* Fills a key with random bits (getrandom). Returns 0 or a negative errno. */
int perm_draw_key(uint16_t key[PERM_ROUNDS]);

uint32_t perm32_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value);
uint32_t perm32_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value);
uint32_t perm24_encrypt(const uint16_t key[PERM_ROUNDS], uint32_t value);
uint32_t perm24_decrypt(const uint16_t key[PERM_ROUNDS], uint32_t value);

/*
 * PERM_MANY at once, in place: one alone is a chain of 22 dependent rounds, and so many together
 * take hardly longer than one.
 */
#define PERM_MANY 32u
void perm32_decrypt_many(const uint16_t key[PERM_ROUNDS], uint32_t value[PERM_MANY]);
void perm24_decrypt_many(const uint16_t key[PERM_ROUNDS], uint32_t value[PERM_MANY]);

#endif
