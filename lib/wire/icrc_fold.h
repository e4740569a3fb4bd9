/* SPDX-License-Identifier: BSD-3-Clause */
/* The ICRC of a packet in one pass by carry-less multiplication, where the processor has it.
 */
#ifndef WIRE_ICRC_FOLD_H
#define WIRE_ICRC_FOLD_H

#include "wire/icrc_method.h"

#define ICRC_FOLD_MAX 4240u /* bytes: the longest packet */

/* Before the others. */
void icrc_fold_prepare(void);

/* Each wants what its name says: PCLMULQDQ, or VPCLMULQDQ in 512 bits. */
#if defined(__x86_64__)
icrc_whole icrc_fold_narrow, icrc_fold_wide;
icrc_copied icrc_fold_copy_wide;
icrc_last_word icrc_fold_last;
#endif

#endif
