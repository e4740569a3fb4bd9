/* SPDX-License-Identifier: BSD-3-Clause */
/* The one look into a record of what is tested; its header and sim.h do not go together. */
#ifndef SIM_PEEK_H
#define SIM_PEEK_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/arena.h"

/* Whether the requester of queue pair `qp` waits for nothing at this PSN any more. */
bool peek_is_ghost(const struct arena *arena, uint32_t qp, uint32_t psn);
/* The oldest PSN that its requester waits for. */
uint32_t peek_oldest(const struct arena *arena, uint32_t qp);
/* The PSN that its responder expects. */
uint32_t peek_expected(const struct arena *arena, uint32_t qp);
/* Whether it has a NAK to send that ends it. */
bool peek_owes_nak(const struct arena *arena, uint32_t qp);
/* NULL, or what its requester still counts though nothing is outstanding. */
const char *peek_unsettled(const struct arena *arena, uint32_t qp);
/* Whether its responder has carried out what had this PSN. */
bool peek_is_past(const struct arena *arena, uint32_t qp, uint32_t psn);

#endif
