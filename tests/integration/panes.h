/* SPDX-License-Identifier: BSD-3-Clause */
/* What the scenes with memory windows share: b binds in queue order, a is its peer. */
#ifndef INTEGRATION_PANES_H
#define INTEGRATION_PANES_H

#include "play.h"

#define REGION 65536u /* bytes that are registered: the first of the end's memory */
#define READ   NDK_OP_FLAG_ALLOW_REMOTE_READ
#define WRITE  NDK_OP_FLAG_ALLOW_REMOTE_WRITE
#define BOTH   (READ | WRITE)

/* b's `to` binds; a's `from` is its peer. The region has no remote right itself. */
struct panes {
	struct end *a, *b;
	NDK_QP *from, *to;
	NDK_MR *mr;
	NDK_MW *mw;
	uint8_t *base;
};

/* Another pattern in the memory of each end. */
void panes_set_up(struct panes *p, struct end *a, struct end *b);
/* Two new queue pairs, connected. */
void panes_join(struct panes *p);

NDK_MR *create_mr(struct end *end, BOOLEAN fast);
NTSTATUS register_mr(struct end *end, NDK_MR *mr, ULONG flags);
NTSTATUS deregister_mr(struct end *end, NDK_MR *mr);
NDK_MW *create_mw(struct end *end, NDK_PD *pd);

NTSTATUS bind_at(struct panes *p, uint64_t offset, SIZE_T length, ULONG flags);
/* The token, when the bind has completed. */
UINT32 bound(struct panes *p, uint64_t offset, SIZE_T length, ULONG flags);
void invalidated(struct panes *p);

/* One access, which must have this status; after an error there are two new queue pairs. */
void peer_writes(struct panes *p, UINT32 token, uint64_t offset, ULONG length, NTSTATUS status,
		 const char *what);
void peer_reads(struct panes *p, UINT32 token, uint64_t offset, ULONG length, NTSTATUS status,
		const char *what);

#endif
