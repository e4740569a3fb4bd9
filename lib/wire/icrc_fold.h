/* SPDX-License-Identifier: BSD-3-Clause */
/* The ICRC of a packet in one pass by carry-less multiplication, where the processor has it.
 */
#ifndef WIRE_ICRC_FOLD_H
#define WIRE_ICRC_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#define ICRC_FOLD_MAX 4240u /* bytes: the longest packet */

/*
 * What icrc_headers() and icrc_update() give for the IP packet at l3 of `length` bytes without its
 * ICRC: at least the headers up to the BTH, at most ICRC_FOLD_MAX, a multiple of 4.
 */
typedef uint32_t icrc_fold(const uint8_t *l3, bool is_v4, uint32_t length);

/* The best that this processor has, and up to which length it pays; NULL: none. */
icrc_fold *icrc_fold_choose(uint32_t *longest);

/* Each wants what its name says: PCLMULQDQ, or VPCLMULQDQ in 512 bits. */
#if defined(__x86_64__)
icrc_fold icrc_fold_narrow, icrc_fold_wide;
#endif

#endif
