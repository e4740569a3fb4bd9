/* SPDX-License-Identifier: BSD-3-Clause */
/* A window, who binds it, and who looks through it: see panes.h. */
#include "panes.h"

#include <string.h>

#include "common/sync.h"

void panes_join(struct panes *p)
{
	p->from = create_qp(p->a, NULL);
	p->to = create_qp(p->b, NULL);
	connect_qps(p->a, p->from, p->b, p->to);
}

NDK_MR *create_mr(struct end *end, BOOLEAN fast)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateMr(end->pd, fast, sync_created, &sync, NULL)));
	return (NDK_MR *)sync.object;
}

/* The first bytes of the end's memory. */
NTSTATUS register_mr(struct end *end, NDK_MR *mr, ULONG flags)
{
	struct sync sync = sync_begin(end->adapter);

	return sync_end(&sync, NdkRegisterMr(mr, end->mdl, REGION, flags, sync_requested, &sync));
}

NTSTATUS deregister_mr(struct end *end, NDK_MR *mr)
{
	struct sync sync = sync_begin(end->adapter);

	return sync_end(&sync, NdkDeregisterMr(mr, sync_requested, &sync));
}

NDK_MW *create_mw(struct end *end, NDK_PD *pd)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateMw(pd, sync_created, &sync, NULL)));
	return (NDK_MW *)sync.object;
}

void panes_set_up(struct panes *p, struct end *a, struct end *b)
{
	*p = (struct panes){ .a = a, .b = b, .base = b->bytes };
	panes_join(p);
	p->mr = create_mr(b, FALSE);
	SUCCEEDS(register_mr(b, p->mr, NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
	p->mw = create_mw(b, b->pd);
	for (unsigned int i = 0; i < REGION; i++) {
		a->bytes[i] = (uint8_t)(i * 7u + 1u);
		p->base[i] = (uint8_t)(i * 13u + 5u);
	}
}

NTSTATUS bind_at(struct panes *p, uint64_t offset, SIZE_T length, ULONG flags)
{
	return NdkBind(p->to, NULL, p->mr, p->mw, p->base + offset, length, flags);
}

UINT32 bound(struct panes *p, uint64_t offset, SIZE_T length, ULONG flags)
{
	SUCCEEDS(bind_at(p, offset, length, flags));
	DEMAND(result(p->b, STATUS_SUCCESS, "a bind").Type == NdkOperationTypeBind, "not a bind");
	return NdkGetRemoteTokenFromMw(p->mw);
}

void invalidated(struct panes *p)
{
	SUCCEEDS(NdkInvalidate(p->to, NULL, &p->mw->Header, 0));
	result(p->b, STATUS_SUCCESS, "an invalidate");
}

void peer_writes(struct panes *p, UINT32 token, uint64_t offset, ULONG length, NTSTATUS status,
		 const char *what)
{
	NDK_SGE sge = sge_at(p->a, 0, length);

	SUCCEEDS(NdkWrite(p->from, NULL, &sge, 1, (uintptr_t)p->base + offset, token, 0));
	result(p->a, status, what);
	if (NT_SUCCESS(status))
		DEMAND(!memcmp(p->base + offset, p->a->bytes, length), "%s: other bytes", what);
	else
		panes_join(p); /* the connection is over */
}

void peer_reads(struct panes *p, UINT32 token, uint64_t offset, ULONG length, NTSTATUS status,
		const char *what)
{
	NDK_SGE sge = sge_at(p->a, 2 * REGION, length);

	SUCCEEDS(NdkRead(p->from, NULL, &sge, 1, (uintptr_t)p->base + offset, token, 0));
	result(p->a, status, what);
	if (NT_SUCCESS(status))
		DEMAND(!memcmp(p->base + offset, p->a->bytes + 2 * REGION, length),
		       "%s: other bytes", what);
	else
		panes_join(p);
}
