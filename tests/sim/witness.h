/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files that look at leaving frames share. */
#ifndef SIM_WITNESS_H
#define SIM_WITNESS_H

#include "sim.h"

#define PSNS         0x1000000u
#define CNP_INTERVAL 50000u  /* ns */
#define CUT_INTERVAL 50000u  /* ns in which a second CNP changes nothing */
#define SOON         200000u /* ns in which an arrival has its consequences */

/* --- witness.c -------------------------------------------------------------------- */

/* Ends the run over a frame as it leaves: what of it is wrong, what it is and what it should be. */
_Noreturn void witness_complain(const struct end *sender, const struct frame_facts *facts,
				const char *what, uint64_t is, uint64_t due);
void witness_need(const struct end *sender, const struct frame_facts *facts, const char *what,
		  uint64_t is, uint64_t due);
/* Whether the peer ever sees it, by its kind and what is wrong with it. */
bool witness_leaves(const struct op *op);
/* A number of so many bytes, the highest first. */
uint64_t read_be(const uint8_t *p, unsigned int bytes);

/* --- witness_request.c, witness_answer.c -------------------------------------------- */

void witness_check_request(struct end *sender, const uint8_t *frame,
			   const struct frame_facts *facts);
void witness_check_answer(struct end *sender, const struct frame_facts *facts);

#endif
