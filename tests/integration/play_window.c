/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with memory windows: b binds in queue order, a reads and writes as a peer. */
#include <string.h>

#include "common/sync.h"
#include "panes.h"

/* Each combination of rights lets the peer do just that, whatever the region itself allows. */
static void rights(struct end *a, struct end *b)
{
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int i = 0; i < 4; i++) {
		const ULONG flags = (i & 1 ? READ : 0) | (i & 2 ? WRITE : 0);
		UINT32 token = bound(&p, 0, REGION, flags);

		peer_reads(&p, token, 8, 512, i & 1 ? STATUS_SUCCESS : STATUS_ACCESS_VIOLATION,
			   "a read");
		peer_writes(&p, token, 8, 512, i & 2 ? STATUS_SUCCESS : STATUS_ACCESS_VIOLATION,
			    "a write");
		invalidated(&p);
	}
}

/* The window's first and last byte can be reached, the bytes around them cannot. */
static void edges(struct end *a, struct end *b)
{
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 100, 5000, BOTH);
	peer_writes(&p, token, 100, 5000, STATUS_SUCCESS, "all of it");
	peer_reads(&p, token, 100, 1, STATUS_SUCCESS, "its first byte");
	peer_reads(&p, token, 5099, 1, STATUS_SUCCESS, "its last byte");
	peer_reads(&p, token, 99, 1, STATUS_ACCESS_VIOLATION, "the byte before");
	peer_reads(&p, token, 5100, 1, STATUS_ACCESS_VIOLATION, "the byte behind");
	peer_writes(&p, token, 5099, 2, STATUS_ACCESS_VIOLATION, "across its end");
	peer_writes(&p, token, 99, 2, STATUS_ACCESS_VIOLATION, "across its beginning");
	peer_writes(&p, token, 100, 5001, STATUS_ACCESS_VIOLATION, "one byte too many");
	peer_reads(&p, token, (uint64_t) - (int64_t)(uintptr_t)p.base - 1, 8,
		   STATUS_ACCESS_VIOLATION, "around the end of all addresses");
	invalidated(&p);
	token = bound(&p, REGION - 1, 1, BOTH);
	peer_writes(&p, token, REGION - 1, 1, STATUS_SUCCESS, "a window of one byte");
	peer_writes(&p, token, REGION - 1, 2, STATUS_ACCESS_VIOLATION, "and one more");
	invalidated(&p);
	peer_writes(&p, bound(&p, 0, REGION, BOTH), 0, REGION, STATUS_SUCCESS, "all the region");
}

static void refused(struct panes *p, NTSTATUS got, NTSTATUS wanted, const char *what)
{
	expect_status(got, wanted, what);
	DEMAND(NdkGetRemoteTokenFromMw(p->mw) == 0, "%s: a token", what);
}

/* What can never be is refused inline: no token, no completion, and the queue pair lives on. */
static void refusals(struct end *a, struct end *b)
{
	static const ULONG wrong[] = { NDK_OP_FLAG_INLINE,
				       NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT,
				       NDK_OP_FLAG_RDMA_READ_SINK,
				       NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
				       NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
				       NDK_OP_FLAG_ALLOW_REMOTE_WRITE &
					       ~NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
				       0x08000000 };
	struct sync sync = sync_begin(b->adapter);
	struct panes p;
	NDK_MR *other;
	NDK_MW *foreign;

	panes_set_up(&p, a, b);
	refused(&p, bind_at(&p, 0, 0, READ), STATUS_INVALID_PARAMETER, "no length");
	refused(&p, bind_at(&p, 0, REGION + 1, READ), STATUS_INVALID_PARAMETER, "beyond the end");
	refused(&p, bind_at(&p, REGION, 1, READ), STATUS_INVALID_PARAMETER, "behind the end");
	refused(&p, bind_at(&p, (uint64_t)-1, 2, READ), STATUS_INVALID_PARAMETER, "before it");
	refused(&p, bind_at(&p, 16, (SIZE_T)-1, READ), STATUS_INVALID_PARAMETER, "a wrap");
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		refused(&p, bind_at(&p, 0, 16, wrong[i]), STATUS_INVALID_PARAMETER, "a flag");
	other = create_mr(b, TRUE);
	refused(&p, NdkBind(p.to, NULL, other, p.mw, p.base, 16, READ), STATUS_INVALID_PARAMETER,
		"a fast-register region");
	other = create_mr(b, FALSE);
	refused(&p, NdkBind(p.to, NULL, other, p.mw, p.base, 16, READ), STATUS_INVALID_PARAMETER,
		"a region that is not registered");
	SUCCEEDS(register_mr(b, other, 0));
	refused(&p, NdkBind(p.to, NULL, other, p.mw, p.base, 16, WRITE), STATUS_ACCESS_VIOLATION,
		"remote write without local write");
	SUCCEEDS(sync_end(&sync, NdkCreatePd(b->adapter, sync_created, &sync, NULL)));
	foreign = create_mw(b, (NDK_PD *)sync.object);
	expect_status(NdkBind(p.to, NULL, p.mr, foreign, p.base, 16, READ),
		      STATUS_INVALID_PARAMETER, "a window of another domain");
	refused(&p, NdkBind(create_qp(b, NULL), NULL, p.mr, p.mw, p.base, 16, READ),
		STATUS_CONNECTION_INVALID, "a queue pair without a connection");
	refused(&p, NdkInvalidate(p.to, NULL, &p.mw->Header, 0), STATUS_INVALID_DEVICE_REQUEST,
		"an invalidate of what is not bound");
	expect_status(NdkInvalidate(p.to, NULL, &p.mr->Header, 0), STATUS_INVALID_DEVICE_REQUEST,
		      "an invalidate of a region");
	no_result(b, "after refusals");
	peer_reads(&p, bound(&p, 0, 16, READ), 0, 16, STATUS_SUCCESS, "a read afterwards");
	expect_status(bind_at(&p, 32, 16, READ), STATUS_INVALID_DEVICE_STATE, "already bound");
	peer_reads(&p, NdkGetRemoteTokenFromMw(p.mw), 0, 16, STATUS_SUCCESS, "bound as before");
}

/* Each bind has a new token that has nothing to do with the last; the old one is dead at once. */
static void tokens(struct end *a, struct end *b)
{
	enum { ROUNDS = 400 };
	UINT32 token[ROUNDS], steps = 0;
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		token[i] = bound(&p, 0, 4096, BOTH);
		DEMAND(token[i] != 0, "a token of 0");
		for (unsigned int j = 0; j < i; j++)
			DEMAND(token[j] != token[i], "bind %u has the token of bind %u", i, j);
		/* Two steps alike would be chance: 1 in 16 million for the key alone. */
		for (unsigned int j = 2; j < i; j++)
			steps += token[i] - token[i - 1] == token[j - 1] - token[j - 2];
		peer_writes(&p, token[i], 0, 8, STATUS_SUCCESS, "a write");
		invalidated(&p);
		if (i % 40)
			continue;
		peer_writes(&p, token[i], 0, 8, STATUS_ACCESS_VIOLATION, "the last token");
		peer_reads(&p, token[i / 2], 0, 8, STATUS_ACCESS_VIOLATION, "an old token");
	}
	DEMAND(steps < ROUNDS, "%u steps from token to token were seen before", steps);
}

/* The token can be read when NdkBind returns, and is nothing to a peer before the bind is done. */
static void not_yet(struct end *a, struct end *b)
{
	struct panes p, second;
	UINT32 token;

	panes_set_up(&p, a, b);
	second = p;
	panes_join(&second);
	SUCCEEDS(bind_at(&p, 0, 4096, BOTH | NDK_OP_FLAG_DEFER));
	token = NdkGetRemoteTokenFromMw(p.mw);
	DEMAND(token, "no token");
	peer_writes(&second, token, 0, 8, STATUS_ACCESS_VIOLATION, "before the bind");
	no_result(b, "a deferred bind");
	SUCCEEDS(NdkSend(p.to, NULL, NULL, 0, NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER));
	SUCCEEDS(NdkReceive(p.from, NULL, NULL, 0));
	/* A post that fails hands over what was deferred. */
	expect_status(bind_at(&p, 0, 1, BOTH), STATUS_INVALID_DEVICE_STATE, "bound already");
	result(b, STATUS_SUCCESS, "the bind");
	result(b, STATUS_SUCCESS, "the send");
	result(a, STATUS_SUCCESS, "its receive");
	peer_writes(&second, token, 0, 8, STATUS_SUCCESS, "after the bind");
}

/* Many windows on one region, overlapping, with rights of their own; each ends alone. */
static void overlaps(struct end *a, struct end *b)
{
	enum { WINDOWS = 60 };
	NDK_MW *mw[WINDOWS];
	UINT32 token[WINDOWS];
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int i = 0; i < WINDOWS; i++) {
		p.mw = mw[i] = create_mw(b, b->pd);
		token[i] = bound(&p, i * 64, 4096, i % 2 ? READ : WRITE);
	}
	for (unsigned int i = 0; i < WINDOWS; i++) {
		if (i % 2)
			peer_reads(&p, token[i], i * 64, 4096, STATUS_SUCCESS, "a read");
		else
			peer_writes(&p, token[i], i * 64, 4096, STATUS_SUCCESS, "a write");
	}
	for (unsigned int i = 0; i < WINDOWS; i += 3) {
		p.mw = mw[i];
		invalidated(&p);
		if (i + 1 < WINDOWS && (i + 1) % 2)
			peer_reads(&p, token[i + 1], i * 64 + 64, 4096, STATUS_SUCCESS,
				   "a neighbour");
		peer_reads(&p, token[i], i * 64, 1, STATUS_ACCESS_VIOLATION, "what has ended");
	}
}

struct told {
	uint64_t address;
	UINT32 token;
};

/* A bind, then a send that tells the peer the token: it must always find the window bound. */
static void told(struct end *a, struct end *b)
{
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int round = 0; round < 500; round++) {
		NDK_SGE note = sge_at(a, 3 * REGION, sizeof(struct told));
		struct told tell = { .address = (uintptr_t)p.base + round };
		NDK_SGE inline_sge = { .VirtualAddress = &tell, .Length = sizeof(tell) };
		struct told heard;
		NDK_SGE data = sge_at(a, 0, 256);

		SUCCEEDS(NdkReceive(p.from, NULL, &note, 1));
		SUCCEEDS(bind_at(&p, round, 256,
				 BOTH | NDK_OP_FLAG_SILENT_SUCCESS |
					 (round % 2 ? NDK_OP_FLAG_DEFER : 0)));
		tell.token = NdkGetRemoteTokenFromMw(p.mw);
		SUCCEEDS(NdkSend(p.to, NULL, &inline_sge, 1, NDK_OP_FLAG_INLINE));
		result(a, STATUS_SUCCESS, "the token arrives");
		memcpy(&heard, a->bytes + 3 * REGION, sizeof(heard));
		SUCCEEDS(NdkWrite(p.from, NULL, &data, 1, heard.address, heard.token, 0));
		result(a, STATUS_SUCCESS, "a write through what was just bound");
		DEMAND(!memcmp(p.base + round, a->bytes, 256), "round %u: other bytes", round);
		result(b, STATUS_SUCCESS, "the send");
		SUCCEEDS(NdkInvalidate(p.to, NULL, &p.mw->Header, NDK_OP_FLAG_SILENT_SUCCESS));
	}
}

/* NDK_OP_FLAG_SILENT_SUCCESS: no entry when it went well, one when it did not. */
static void silent(struct end *a, struct end *b)
{
	struct panes p;
	NDK_SGE note;

	panes_set_up(&p, a, b);
	SUCCEEDS(bind_at(&p, 0, 16, BOTH | NDK_OP_FLAG_SILENT_SUCCESS));
	SUCCEEDS(NdkInvalidate(p.to, NULL, &p.mw->Header, NDK_OP_FLAG_SILENT_SUCCESS));
	SUCCEEDS(bind_at(&p, 0, 16, BOTH | NDK_OP_FLAG_SILENT_SUCCESS));
	no_result(b, "silent requests");
	peer_writes(&p, NdkGetRemoteTokenFromMw(p.mw), 0, 16, STATUS_SUCCESS, "a write");
	/* The flush takes its way through the daemon: a receive that comes back says it is done. */
	note = sge_at(b, 3 * REGION, 16);
	SUCCEEDS(NdkReceive(p.to, (PVOID)9, &note, 1));
	NdkFlush(p.to);
	result(b, STATUS_CANCELLED, "a receive of a queue pair that is flushed");
	SUCCEEDS(NdkInvalidate(p.to, (PVOID)3, &p.mw->Header, NDK_OP_FLAG_SILENT_SUCCESS));
	DEMAND(result(b, STATUS_CANCELLED, "a silent one that fails").RequestContext == (PVOID)3,
	       "another request");
}

/* A region with bound windows: deregister is refused, close waits. */
static void region_busy(struct end *a, struct end *b)
{
	struct sync closing = sync_begin(b->adapter);
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 0, 4096, BOTH);
	expect_status(deregister_mr(b, p.mr), STATUS_DEVICE_BUSY, "with a window");
	peer_writes(&p, token, 0, 16, STATUS_SUCCESS, "a write");
	invalidated(&p);
	SUCCEEDS(deregister_mr(b, p.mr));
	SUCCEEDS(register_mr(b, p.mr, NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
	token = bound(&p, 0, 4096, BOTH);
	expect_status(NdkCloseMr(p.mr, sync_closed, &closing), STATUS_PENDING, "close");
	no_result(b, "nothing happens");
	DEMAND(!closing.done, "a region is closed under its window");
	peer_writes(&p, token, 0, 16, STATUS_SUCCESS, "a write");
	close_object(b, &p.mw->Header);
	until(a, b, &closing.done, "the region is closed");
	peer_writes(&p, token, 0, 16, STATUS_ACCESS_VIOLATION, "the window is gone");
}

/* NdkSendAndInvalidate: dead before the receive completes, and what may be ended by a peer. */
static void ended_by_peer(struct end *a, struct end *b)
{
	NDK_RESULT_EX entry;
	struct panes p;
	UINT32 token;

	panes_set_up(&p, a, b);
	token = bound(&p, 0, 4096, BOTH);
	SUCCEEDS(NdkReceive(p.to, NULL, NULL, 0));
	SUCCEEDS(NdkSendAndInvalidate(p.from, NULL, NULL, 0, 0, token));
	DEMAND(result(a, STATUS_SUCCESS, "the send").Type == NdkOperationTypeSend, "its type");
	entry = result(b, STATUS_SUCCESS, "its receive");
	DEMAND(entry.Type == NdkOperationTypeReceiveAndInvalidate, "type %x", entry.Type);
	DEMAND(entry.TypeSpecificCompletionOutput == token, "which token");
	expect_status(NdkInvalidate(p.to, NULL, &p.mw->Header, 0), STATUS_INVALID_DEVICE_REQUEST,
		      "an invalidate of what the peer has ended");
	peer_reads(&p, token, 0, 16, STATUS_ACCESS_VIOLATION, "the old token");
	peer_reads(&p, bound(&p, 0, 4096, BOTH), 0, 16, STATUS_SUCCESS, "bound again");
	SUCCEEDS(NdkReceive(p.to, NULL, NULL, 0));
	SUCCEEDS(NdkSendAndInvalidate(p.from, NULL, NULL, 0, 0, NdkGetRemoteTokenFromMr(b->mr)));
	DEMAND(!NT_SUCCESS(any_result(a, "the send").Status), "a region was ended by its peer");
	DEMAND(!NT_SUCCESS(any_result(b, "its receive").Status), "a region was ended by its peer");
	panes_join(&p);
	peer_reads(&p, NdkGetRemoteTokenFromMr(b->mr), 0, 16, STATUS_SUCCESS, "the region");
}

/* Any queue pair of the domain may use a window, unless it is tied to the one that bound it. */
static void tied(struct end *a, struct end *b)
{
	struct panes p, second;
	UINT32 token;

	panes_set_up(&p, a, b);
	second = p;
	panes_join(&second);
	token = bound(&p, 0, 4096, BOTH);
	peer_writes(&second, token, 0, 16, STATUS_SUCCESS, "by another queue pair");
	invalidated(&p);
	token = bound(&p, 0, 4096, BOTH | ORIEL_OP_FLAG_TIE_TO_QP);
	peer_writes(&p, token, 0, 16, STATUS_SUCCESS, "by its own");
	peer_writes(&second, token, 0, 16, STATUS_ACCESS_VIOLATION, "by another, tied");
	peer_writes(&p, token, 0, 16, STATUS_SUCCESS, "by its own again");
}

/* After an invalidate: to another region, on another queue pair, posted one behind the other. */
static void moves(struct end *a, struct end *b)
{
	NDK_MR *other;
	struct panes p;
	UINT32 first, second;

	panes_set_up(&p, a, b);
	first = bound(&p, 0, 4096, BOTH);
	other = create_mr(b, FALSE);
	SUCCEEDS(register_mr(b, other, NDK_MR_FLAG_ALLOW_LOCAL_WRITE));
	SUCCEEDS(NdkInvalidate(p.to, (PVOID)1, &p.mw->Header, 0));
	SUCCEEDS(NdkBind(p.to, (PVOID)2, other, p.mw, p.base + 8192, 4096,
			 READ | NDK_OP_FLAG_READ_FENCE));
	second = NdkGetRemoteTokenFromMw(p.mw);
	DEMAND(result(b, STATUS_SUCCESS, "invalidate").RequestContext == (PVOID)1, "order");
	DEMAND(result(b, STATUS_SUCCESS, "bind").RequestContext == (PVOID)2, "order");
	peer_reads(&p, second, 8192, 4096, STATUS_SUCCESS, "the new place");
	SUCCEEDS(deregister_mr(b, p.mr));
	peer_reads(&p, first, 0, 8, STATUS_ACCESS_VIOLATION, "the old token");
	invalidated(&p);
	p.mr = other;
	peer_writes(&p, bound(&p, 0, 8, WRITE), 0, 8, STATUS_SUCCESS, "on another queue pair");
}

/* Nothing is written any more once the invalidate has completed, whatever was under way. */
static void in_use(struct end *a, struct end *b)
{
	unsigned int cut = 0;
	struct panes p;

	panes_set_up(&p, a, b);
	for (unsigned int round = 0; round < 30; round++) {
		NDK_SGE sge = sge_at(a, round * 4096, REGION);
		UINT32 token = bound(&p, 0, REGION, BOTH);
		static uint8_t then[REGION];
		NTSTATUS last = STATUS_SUCCESS;

		for (unsigned int i = 0; i < 16; i++)
			SUCCEEDS(NdkWrite(p.from, NULL, &sge, 1, (uintptr_t)p.base, token, 0));
		invalidated(&p);
		memcpy(then, p.base, REGION);
		for (unsigned int i = 0; i < 16; i++) {
			NTSTATUS status = any_result(a, "a write").Status;

			DEMAND(NT_SUCCESS(last) || status == STATUS_CANCELLED, "%s behind an error",
			       OrielStatusName(status));
			DEMAND(NT_SUCCESS(status) || status == STATUS_CANCELLED ||
				       status == STATUS_ACCESS_VIOLATION,
			       "a write: %s", OrielStatusName(status));
			last = status;
		}
		DEMAND(!memcmp(then, p.base, REGION), "round %u: written after its end", round);
		if (!NT_SUCCESS(last)) {
			cut++;
			panes_join(&p);
		}
	}
	printf("%u of 30 streams were cut\n", cut);
}

const struct scene window_scenes[] = {
	{ "window-rights", rights },     { "window-edges", edges },
	{ "window-refusals", refusals }, { "window-tokens", tokens },
	{ "window-not-yet", not_yet },   { "window-overlaps", overlaps },
	{ "window-told", told },         { "window-silent", silent },
	{ "window-busy", region_busy },  { "window-ended", ended_by_peer },
	{ "window-tied", tied },         { "window-moves", moves },
	{ "window-in-use", in_use },     { NULL, NULL },
};
