/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with windows that the test suites of NetworkDirect and of verbs look for. */
#include <string.h>

#include "common/sync.h"
#include "panes.h"

/* --- NetworkDirect ---------------------------------------------------------------------------- */

/* The target's side of a violation: what it had posted is cancelled, and nothing else happens. */
static void violates(struct panes *p, bool write, UINT32 token, uint64_t offset, ULONG length,
		     const char *what)
{
	NDK_SGE data = sge_at(p->a, 0, length), room = sge_at(p->b, 3 * REGION, 64);

	panes_join(p);
	SUCCEEDS(NdkReceive(p->to, (PVOID)5, &room, 1));
	SUCCEEDS(write ? NdkWrite(p->from, NULL, &data, 1, (uintptr_t)p->base + offset, token, 0)
		       : NdkRead(p->from, NULL, &data, 1, (uintptr_t)p->base + offset, token, 0));
	result(p->a, STATUS_ACCESS_VIOLATION, what);
	DEMAND(result(p->b, STATUS_CANCELLED, what).RequestContext == (PVOID)5, "%s", what);
}

/* NdInvalidRead, NdInvalidWrite, NdOverRead, NdOverWrite, NdWriteViolation. */
static void violations(struct end *a, struct end *b)
{
	static uint8_t before[REGION];
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	memcpy(before, p.base, REGION);
	token = bound(&p, 0, 1024, BOTH);
	violates(&p, false, token, 0, 1025, "a read one byte too long");
	violates(&p, true, token, 0, 1025, "a write one byte too long");
	violates(&p, false, token, 0, 1024 + 40, "a read too long by a header");
	violates(&p, true, token, 0, 1024 + 40, "a write too long by a header");
	panes_join(&p);
	invalidated(&p);
	violates(&p, false, token, 0, 16, "a read through what was invalidated");
	violates(&p, true, token, 0, 16, "a write through what was invalidated");
	panes_join(&p);
	token = bound(&p, 0, 1024, READ);
	violates(&p, true, token, 0, 16, "a write through a window to read");
	DEMAND(!memcmp(before, p.base, REGION), "something was written");
}

/* ndmw: the peer reads one half, writes its inverse into the other, then the first in words. */
static void inverted(struct end *a, struct end *b)
{
	const ULONG half = REGION / 2;
	NDK_SGE upper = sge_at(a, 0, half);
	unsigned int posted = 0, done = 0;
	struct panes p;
	uint64_t base;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 0, REGION, BOTH);
	base = (uintptr_t)p.base;
	SUCCEEDS(NdkRead(p.from, NULL, &upper, 1, base + half, token, 0));
	result(a, STATUS_SUCCESS, "the upper half");
	DEMAND(!memcmp(a->bytes, p.base + half, half), "other bytes were read");
	for (ULONG i = 0; i < half; i++)
		a->bytes[i] = (uint8_t)~a->bytes[i];
	SUCCEEDS(NdkWrite(p.from, NULL, &upper, 1, base, token, 0));
	result(a, STATUS_SUCCESS, "the inverse");
	for (ULONG word = half / 4; word-- > 0;) {
		NDK_SGE piece = sge_at(a, word * 4, 4);

		SUCCEEDS(NdkWrite(p.from, NULL, &piece, 1, base + half + word * 4, token, 0));
		for (posted++; posted - done >= QP_DEPTH; done++)
			result(a, STATUS_SUCCESS, "a word");
	}
	for (; done < posted; done++)
		result(a, STATUS_SUCCESS, "a word");
	DEMAND(!memcmp(p.base, a->bytes, half), "the lower half");
	DEMAND(!memcmp(p.base + half, a->bytes, half), "the upper half");
}

/* NdMRDeregister binds without any right. A bind that is only queued does not hold the region. */
static void deregistered(struct end *a, struct end *b)
{
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	bound(&p, 0, 4096, 0);
	expect_status(deregister_mr(b, p.mr), STATUS_DEVICE_BUSY, "a window without rights");
	invalidated(&p);
	SUCCEEDS(bind_at(&p, 0, 4096, BOTH | NDK_OP_FLAG_DEFER));
	token = NdkGetRemoteTokenFromMw(p.mw);
	SUCCEEDS(deregister_mr(b, p.mr));
	DEMAND(NdkGetRemoteTokenFromMr(p.mr) == 0 && NdkGetLocalTokenFromMr(p.mr) == 0, "tokens");
	SUCCEEDS(NdkSend(p.to, (PVOID)6, NULL, 0, 0));
	DEMAND(result(b, STATUS_ACCESS_VIOLATION, "the bind").Type == NdkOperationTypeBind, "bind");
	DEMAND(result(b, STATUS_CANCELLED, "what is behind").RequestContext == (PVOID)6, "send");
	panes_join(&p);
	peer_reads(&p, token, 0, 16, STATUS_ACCESS_VIOLATION, "the token of such a bind");
	SUCCEEDS(register_mr(b, p.mr, NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
	peer_writes(&p, bound(&p, 0, 4096, BOTH), 0, 16, STATUS_SUCCESS, "registered again");
}

/* --- verbs ------------------------------------------------------------------------------------ */

/* DestroyQpWithType1Bound and Type2: the queue pair goes, an open window stays its domain's. */
static void owner_closed(struct end *a, struct end *b)
{
	struct panes p, other;
	NDK_MW *open, *tied;
	UINT32 token, own;

	panes_set_up(&p, a, b);
	other = p;
	panes_join(&other);
	open = p.mw;
	token = bound(&p, 0, 4096, BOTH);
	p.mw = tied = create_mw(b, b->pd);
	own = bound(&p, 0, 4096, BOTH | ORIEL_OP_FLAG_TIE_TO_QP);
	close_object(b, &p.to->Header);
	peer_writes(&other, token, 0, 64, STATUS_SUCCESS, "a window whose queue pair is gone");
	peer_reads(&other, own, 0, 64, STATUS_ACCESS_VIOLATION, "one that was tied to it");
	p = other;
	p.mw = open;
	invalidated(&p);
	peer_reads(&p, token, 0, 64, STATUS_ACCESS_VIOLATION, "ended from another queue pair");
	close_object(b, &tied->Header);
	SUCCEEDS(deregister_mr(b, p.mr));
}

/* CrossQpInvalidate, CrossQpManagement: the owner's queue pairs are alike, those of peers are not.
 */
static void ended_elsewhere(struct end *a, struct end *b)
{
	struct panes p, other;
	UINT32 token;

	panes_set_up(&p, a, b);
	other = p;
	panes_join(&other);
	token = bound(&p, 0, 4096, BOTH);
	invalidated(&other);
	token = bound(&other, 0, 4096, BOTH);
	peer_reads(&p, token, 0, 64, STATUS_SUCCESS, "bound anew by another queue pair");
	invalidated(&p);
	token = bound(&p, 0, 4096, BOTH | ORIEL_OP_FLAG_TIE_TO_QP);
	expect_status(NdkBind(other.to, NULL, p.mr, p.mw, p.base, 64, READ),
		      STATUS_INVALID_DEVICE_STATE, "RebindToDifferentQp: a bound one");
	SUCCEEDS(NdkReceive(other.to, NULL, NULL, 0));
	SUCCEEDS(NdkSendAndInvalidate(other.from, NULL, NULL, 0, 0, token));
	DEMAND(!NT_SUCCESS(any_result(a, "an end by another peer").Status), "a tied one ended");
	DEMAND(!NT_SUCCESS(any_result(b, "its receive").Status), "a tied one ended");
	peer_reads(&p, token, 0, 64, STATUS_SUCCESS, "still bound");
	panes_join(&other);
	invalidated(&other);
	peer_reads(&p, token, 0, 64, STATUS_ACCESS_VIOLATION, "ended by its owner elsewhere");
}

/* C10-72: to a queue pair of another domain a window is as good as none, whoever asks. */
static void foreign(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(b->adapter);
	struct panes p, other;
	struct end stranger;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 0, 4096, BOTH);
	SUCCEEDS(sync_end(&sync, NdkCreatePd(b->adapter, sync_created, &sync, NULL)));
	stranger = *b;
	stranger.pd = (NDK_PD *)sync.object;
	other = p;
	other.b = &stranger;
	panes_join(&other);
	peer_reads(&other, token, 0, 64, STATUS_ACCESS_VIOLATION, "a read");
	peer_writes(&other, token, 0, 64, STATUS_ACCESS_VIOLATION, "a write");
	expect_status(NdkBind(other.to, NULL, p.mr, p.mw, p.base, 64, READ),
		      STATUS_INVALID_PARAMETER, "a bind");
	expect_status(NdkInvalidate(other.to, NULL, &p.mw->Header, 0), STATUS_INVALID_PARAMETER,
		      "an invalidate");
	SUCCEEDS(NdkReceive(other.to, NULL, NULL, 0));
	SUCCEEDS(NdkSendAndInvalidate(other.from, NULL, NULL, 0, 0, token));
	result(b, STATUS_INVALID_DEVICE_REQUEST, "the receive of an end by its peer");
	/* Nobody answers that, and all its retries need not be waited for. */
	NdkFlush(other.from);
	DEMAND(!NT_SUCCESS(any_result(a, "an end by its peer").Status), "it went well");
	peer_reads(&p, token, 0, 64, STATUS_SUCCESS, "still bound for its own");
}

/* MwType2AdvancedTest: a window is closed while a peer reads through it without a pause. */
static void closed_in_use(struct end *a, struct end *b)
{
	struct sync closing = sync_begin(b->adapter);
	unsigned int posted = 0, done = 0, good = 0;
	NDK_SGE sge = sge_at(a, 0, 4096);
	NTSTATUS last = STATUS_SUCCESS;
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 0, REGION, READ);
	while (NT_SUCCESS(last)) {
		for (; posted - done < QP_DEPTH; posted++)
			SUCCEEDS(NdkRead(p.from, NULL, &sge, 1, (uintptr_t)p.base, token, 0));
		if (done == 4 * QP_DEPTH)
			expect_status(NdkCloseMw(p.mw, sync_closed, &closing), STATUS_PENDING,
				      "close");
		OrielProgress(b->adapter);
		last = any_result(a, "a read").Status;
		good += NT_SUCCESS(last);
		done++;
	}
	expect_status(last, STATUS_ACCESS_VIOLATION, "the first read that fails");
	for (; done < posted; done++)
		result(a, STATUS_CANCELLED, "what is behind");
	until(a, b, &closing.done, "the window is closed");
	DEMAND(good >= 4 * QP_DEPTH, "%u reads before the close", good);
	SUCCEEDS(deregister_mr(b, p.mr));
}

/* DeallocPdWithOutstandingMw: the domain waits for what was made in it. */
static void domain_waits(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(b->adapter), closing = sync_begin(b->adapter);
	NDK_MW *mw;
	NDK_PD *pd;

	SUCCEEDS(sync_end(&sync, NdkCreatePd(b->adapter, sync_created, &sync, NULL)));
	pd = (NDK_PD *)sync.object;
	mw = create_mw(b, pd);
	expect_status(NdkClosePd(pd, sync_closed, &closing), STATUS_PENDING, "close");
	no_result(a, "nothing happens");
	OrielProgress(b->adapter);
	DEMAND(!closing.done, "it is closed under its window");
	close_object(b, &mw->Header);
	until(a, b, &closing.done, "the domain is closed");
}

/* BindType1WhenQpError: flushed, and the window is free for another queue pair. */
static void bound_in_error(struct end *a, struct end *b)
{
	struct panes p;
	NDK_SGE room;
	UINT32 token;

	panes_set_up(&p, a, b);
	room = sge_at(b, 3 * REGION, 16);
	SUCCEEDS(NdkReceive(p.to, NULL, &room, 1));
	NdkFlush(p.to);
	result(b, STATUS_CANCELLED, "the flush is done");
	SUCCEEDS(bind_at(&p, 0, 4096, BOTH));
	token = NdkGetRemoteTokenFromMw(p.mw);
	DEMAND(result(b, STATUS_CANCELLED, "a bind").Type == NdkOperationTypeBind, "type");
	panes_join(&p);
	peer_reads(&p, token, 0, 16, STATUS_ACCESS_VIOLATION, "the token of a cancelled bind");
	peer_reads(&p, bound(&p, 0, 4096, READ), 0, 16, STATUS_SUCCESS, "bound elsewhere");
}

/* MwBindAccess: what the region must grant for each right of a window. */
static void needs_of_rights(struct end *a, struct end *b)
{
	static const ULONG rights[] = { 0, READ, WRITE, ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC };
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int writable = 0; writable < 2; writable++) {
		SUCCEEDS(deregister_mr(b, p.mr));
		SUCCEEDS(register_mr(b, p.mr, writable ? NDK_MR_FLAG_ALLOW_LOCAL_WRITE : 0));
		for (unsigned int i = 0; i < 4; i++) {
			if (i < 2 || writable) {
				bound(&p, 0, 4096, rights[i]);
				invalidated(&p);
				continue;
			}
			expect_status(bind_at(&p, 0, 4096, rights[i]), STATUS_ACCESS_VIOLATION,
				      "without local write");
		}
	}
}

const struct scene mw_scenes[] = {
	{ "mw-violations", violations },
	{ "mw-inverted", inverted },
	{ "mw-deregistered", deregistered },
	{ "mw-owner-closed", owner_closed },
	{ "mw-ended-elsewhere", ended_elsewhere },
	{ "mw-foreign", foreign },
	{ "mw-closed-in-use", closed_in_use },
	{ "mw-domain", domain_waits },
	{ "mw-in-error", bound_in_error },
	{ "mw-rights", needs_of_rights },
	{ NULL, NULL },
};
