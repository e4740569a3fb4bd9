/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with fast-register regions: b registers in queue order, a reads and writes. */
#include <string.h>

#include "common/sync.h"
#include "play.h"

#define PAGE  4096u
#define PAGES 16u
#define BASE  0x7700000000ull /* where peers find the first page: any value will do */

struct fast {
	NDK_QP *from, *to; /* at a, at b */
	NDK_MR *mr;        /* b's */
	NDK_LOGICAL_ADDRESS_MAPPING *lam;
	ULONG fbo;
};

static void build(struct fast *fast, struct end *b)
{
	struct sync sync = sync_begin(b->adapter);
	ULONG size = 0;

	expect_status(NdkBuildLAM(b->adapter, b->mdl, PAGES * PAGE, sync_requested, &sync, NULL,
				  &size, &fast->fbo),
		      STATUS_BUFFER_TOO_SMALL, "the size of a mapping");
	fast->lam = calloc(1, size);
	SUCCEEDS(sync_end(&sync, NdkBuildLAM(b->adapter, b->mdl, PAGES * PAGE, sync_requested,
					     &sync, fast->lam, &size, &fast->fbo)));
	DEMAND(fast->lam->AdapterPageCount == PAGES && fast->fbo == 0, "%u pages from %u",
	       fast->lam->AdapterPageCount, fast->fbo);
}

static NDK_MR *create_mr(struct end *end, BOOLEAN remote)
{
	struct sync sync = sync_begin(end->adapter);
	NDK_MR *mr;

	SUCCEEDS(sync_end(&sync, NdkCreateMr(end->pd, TRUE, sync_created, &sync, NULL)));
	mr = (NDK_MR *)sync.object;
	sync = sync_begin(end->adapter);
	SUCCEEDS(sync_end(&sync,
			  NdkInitializeFastRegisterMr(mr, PAGES, remote, sync_requested, &sync)));
	return mr;
}

static void set_up(struct fast *fast, struct end *a, struct end *b)
{
	memset(fast, 0, sizeof(*fast));
	fast->from = create_qp(a, NULL);
	fast->to = create_qp(b, NULL);
	connect_qps(a, fast->from, b, fast->to);
	fast->mr = create_mr(b, TRUE);
	build(fast, b);
}

/* Pages from `first` on, as the peer will find them at BASE and behind. */
static NTSTATUS fast_register(struct fast *fast, ULONG first, ULONG pages, ULONG flags)
{
	return NdkFastRegister(fast->to, NULL, fast->mr, pages, fast->lam->AdapterPageArray + first,
			       0, pages * PAGE, (PVOID)(uintptr_t)BASE, flags);
}

static NTSTATUS write_to(struct fast *fast, struct end *a, uint64_t offset, ULONG length)
{
	NDK_SGE sge = sge_at(a, 0, length);

	return NdkWrite(fast->from, NULL, &sge, 1, BASE + offset, NdkGetRemoteTokenFromMr(fast->mr),
			0);
}

static void fill(struct end *end, unsigned int seed)
{
	for (unsigned int i = 0; i < PAGES * PAGE; i++)
		end->bytes[i] = (uint8_t)((i * 2654435761u + seed) >> 11);
}

/* Registered, used, invalidated, and again elsewhere, under the same token. */
static void rounds(struct end *a, struct end *b)
{
	struct fast fast;
	UINT32 token;

	set_up(&fast, a, b);
	token = NdkGetRemoteTokenFromMr(fast.mr);
	for (ULONG round = 0; round < 50; round++) {
		ULONG first = round % (PAGES - 4);

		SUCCEEDS(fast_register(&fast, first, 4, NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
		result(b, STATUS_SUCCESS, "a fast register");
		fill(a, round);
		SUCCEEDS(write_to(&fast, a, 100, 3 * PAGE));
		result(a, STATUS_SUCCESS, "a write");
		DEMAND(!memcmp(a->bytes, b->bytes + first * PAGE + 100, 3 * PAGE), "round %u",
		       round);
		SUCCEEDS(NdkInvalidate(fast.to, NULL, &fast.mr->Header, 0));
		result(b, STATUS_SUCCESS, "an invalidate");
		DEMAND(NdkGetRemoteTokenFromMr(fast.mr) == token, "the token has changed");
	}
	SUCCEEDS(write_to(&fast, a, 0, 8));
	result(a, STATUS_ACCESS_VIOLATION, "a write through what was invalidated");
	free(fast.lam);
}

/* The local token names the same pages in SGEs of the queue pair's own side. */
static void local(struct end *a, struct end *b)
{
	struct fast fast;
	NDK_SGE sge;

	set_up(&fast, a, b);
	fill(b, 3);
	sge = (NDK_SGE){ .VirtualAddress = (PVOID)(uintptr_t)BASE,
			 .Length = 2 * PAGE,
			 .MemoryRegionToken = NdkGetLocalTokenFromMr(fast.mr) };
	SUCCEEDS(fast_register(&fast, 2, 2, NDK_OP_FLAG_SILENT_SUCCESS));
	SUCCEEDS(NdkWrite(fast.to, NULL, &sge, 1, (uintptr_t)a->bytes,
			  NdkGetRemoteTokenFromMr(a->mr), NDK_OP_FLAG_SILENT_SUCCESS));
	/* It must not end the write that is not acknowledged yet. */
	SUCCEEDS(NdkInvalidate(fast.to, NULL, &fast.mr->Header, 0));
	result(b, STATUS_SUCCESS, "the invalidate behind a write");
	DEMAND(!memcmp(a->bytes, b->bytes + 2 * PAGE, 2 * PAGE), "what was written");
	SUCCEEDS(fast_register(&fast, 0, 1, NDK_OP_FLAG_SILENT_SUCCESS));
	sge.Length = PAGE + 1;
	SUCCEEDS(NdkWrite(fast.to, NULL, &sge, 1, (uintptr_t)a->bytes,
			  NdkGetRemoteTokenFromMr(a->mr), 0));
	result(b, STATUS_ACCESS_VIOLATION, "a write from beyond the pages");
	free(fast.lam);
}

/* NdkSendAndInvalidate by the peer: dead before the receive completes, free to be used again. */
static void remote_end(struct end *a, struct end *b)
{
	NDK_SGE none = sge_at(b, PAGES * PAGE, 8);
	struct fast fast;
	NDK_RESULT_EX entry;
	UINT32 token;

	set_up(&fast, a, b);
	token = NdkGetRemoteTokenFromMr(fast.mr);
	for (unsigned int round = 0; round < 20; round++) {
		SUCCEEDS(fast_register(&fast, 0, 4, NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
		result(b, STATUS_SUCCESS, "a fast register");
		SUCCEEDS(NdkReceive(fast.to, NULL, &none, 1));
		SUCCEEDS(write_to(&fast, a, 0, 64));
		SUCCEEDS(NdkSendAndInvalidate(fast.from, NULL, NULL, 0, 0, token));
		result(a, STATUS_SUCCESS, "a write");
		result(a, STATUS_SUCCESS, "a send with invalidate");
		entry = result(b, STATUS_SUCCESS, "its receive");
		DEMAND(entry.Type == NdkOperationTypeReceiveAndInvalidate &&
			       entry.TypeSpecificCompletionOutput == token,
		       "type %x", (unsigned int)entry.Type);
	}
	expect_status(NdkInvalidate(fast.to, NULL, &fast.mr->Header, 0),
		      STATUS_INVALID_DEVICE_REQUEST, "of what the peer has ended");
	SUCCEEDS(write_to(&fast, a, 0, 8));
	result(a, STATUS_ACCESS_VIOLATION, "a write through what was ended");
	free(fast.lam);
}

/* Rights are those of the registration, not of the region. */
static void rights(struct end *a, struct end *b)
{
	struct fast fast;
	NDK_SGE sge = sge_at(a, 0, 64);
	NDK_MR *closed;

	set_up(&fast, a, b);
	closed = create_mr(b, FALSE);
	DEMAND(NdkGetRemoteTokenFromMr(closed) == 0, "a remote token without remote access");
	SUCCEEDS(fast_register(&fast, 0, 4, NDK_OP_FLAG_ALLOW_REMOTE_READ));
	result(b, STATUS_SUCCESS, "a fast register for reading");
	SUCCEEDS(NdkRead(fast.from, NULL, &sge, 1, BASE, NdkGetRemoteTokenFromMr(fast.mr), 0));
	result(a, STATUS_SUCCESS, "a read");
	SUCCEEDS(write_to(&fast, a, 0, 8));
	result(a, STATUS_ACCESS_VIOLATION, "a write");
	close_object(b, &closed->Header);
	free(fast.lam);
}

/* Regions in every state are closed; the one in use is dead at once. */
static void closes(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(b->adapter);
	struct fast fast;
	NDK_MR *fresh;

	set_up(&fast, a, b);
	SUCCEEDS(sync_end(&sync, NdkCreateMr(b->pd, TRUE, sync_created, &sync, NULL)));
	fresh = (NDK_MR *)sync.object;
	close_object(b, &fresh->Header);
	fresh = create_mr(b, TRUE);
	close_object(b, &fresh->Header);
	SUCCEEDS(fast_register(&fast, 0, 4, NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
	result(b, STATUS_SUCCESS, "a fast register");
	SUCCEEDS(NdkInvalidate(fast.to, NULL, &fast.mr->Header, 0));
	SUCCEEDS(fast_register(&fast, 4, 4, NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
	close_object(b, &fast.mr->Header);
	free(fast.lam);
}

/* --- the privileged token ------------------------------------------------------------------- */

static NDK_SGE logical_sge(const struct fast *fast, struct end *b, ULONG page, ULONG offset,
			   ULONG length)
{
	NDK_SGE sge = { .Length = length };

	sge.LogicalAddress.QuadPart = fast->lam->AdapterPageArray[page].QuadPart + offset;
	NdkGetPrivilegedMemoryRegionToken(b->pd, &sge.MemoryRegionToken);
	return sge;
}

/* NdkGetPrivilegedMemoryRegionToken: local read and write of what a mapping names, no region. */
static void privileged(struct end *a, struct end *b)
{
	NDK_SGE there = sge_at(a, 8192, 6000), here[2];
	struct fast fast;

	set_up(&fast, a, b);
	for (ULONG i = 0; i < 6000; i++)
		a->bytes[8192 + i] = (uint8_t)(i * 3u + 1u);
	here[0] = logical_sge(&fast, b, 2, 100, 1000);
	here[1] = logical_sge(&fast, b, 7, 0, 5000); /* more than a page: here they follow */
	SUCCEEDS(NdkReceive(fast.to, NULL, here, 2));
	SUCCEEDS(NdkSend(fast.from, NULL, &there, 1, 0));
	result(a, STATUS_SUCCESS, "a send");
	result(b, STATUS_SUCCESS, "its receive into logical addresses");
	DEMAND(!memcmp(b->bytes + 2 * PAGE + 100, a->bytes + 8192, 1000), "the first piece");
	DEMAND(!memcmp(b->bytes + 7 * PAGE, a->bytes + 9192, 5000), "the second piece");
	SUCCEEDS(NdkWrite(fast.to, NULL, here, 2, (uintptr_t)a->bytes,
			  NdkGetRemoteTokenFromMr(a->mr), 0));
	result(b, STATUS_SUCCESS, "a write from logical addresses");
	DEMAND(!memcmp(a->bytes, a->bytes + 8192, 6000), "what was written");
	memset(b->bytes + 7 * PAGE, 0, 5000);
	here[1].Length = 5000;
	SUCCEEDS(NdkRead(fast.to, NULL, &here[1], 1, (uintptr_t)a->bytes + 9,
			 NdkGetRemoteTokenFromMr(a->mr), 0));
	result(b, STATUS_SUCCESS, "a read into logical addresses");
	DEMAND(!memcmp(b->bytes + 7 * PAGE, a->bytes + 9, 5000), "what was read");
	NdkReleaseLAM(b->adapter, fast.lam);
	free(fast.lam);
}

static void privileged_fails(struct end *a, struct end *b, int64_t address, ULONG length,
			     const char *what)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	NDK_SGE sge = { .Length = length };

	connect_qps(a, from, b, to);
	sge.LogicalAddress.QuadPart = address;
	NdkGetPrivilegedMemoryRegionToken(b->pd, &sge.MemoryRegionToken);
	SUCCEEDS(NdkSend(to, NULL, &sge, 1, 0));
	result(b, STATUS_ACCESS_VIOLATION, what);
	/* The same from outside: to a peer it is no token at all. */
	sge = sge_at(a, 0, 8);
	from = create_qp(a, NULL);
	to = create_qp(b, NULL);
	connect_qps(a, from, b, to);
	NdkGetPrivilegedMemoryRegionToken(b->pd, &sge.MemoryRegionToken);
	SUCCEEDS(NdkRead(from, NULL,
			 &(NDK_SGE){ .VirtualAddress = a->bytes,
				     .Length = 8,
				     .MemoryRegionToken = NdkGetLocalTokenFromMr(a->mr) },
			 1, (UINT64)address, sge.MemoryRegionToken, 0));
	result(a, STATUS_ACCESS_VIOLATION, "a peer's read by the privileged token");
}

/* It must never be usable by a peer, nor lead out of the memory that was mapped. */
static void privileged_refused(struct end *a, struct end *b)
{
	int64_t first, behind;
	struct fast fast;
	NDK_SGE sge;

	set_up(&fast, a, b);
	first = fast.lam->AdapterPageArray[0].QuadPart;
	behind = first + MEMORY;
	privileged_fails(a, b, behind - 7, 8, "across the end of the memory");
	privileged_fails(a, b, behind, 8, "behind the memory");
	privileged_fails(a, b, 64, 8, "a small number");
	privileged_fails(a, b, first + (1ll << 40), 8, "the next memory");
	privileged_fails(a, b, -8, 16, "the end of all numbers");
	sge = logical_sge(&fast, b, 0, 0, 8);
	sge.MemoryRegionToken = NdkGetLocalTokenFromMr(b->mr);
	SUCCEEDS(NdkSend(fast.to, NULL, &sge, 1, 0));
	result(b, STATUS_ACCESS_VIOLATION, "a logical address with another token");
	free(fast.lam);
}

/* OrielFreeMemory ends it: what is still queued fails, and nobody else is hurt. */
static void privileged_freed(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(b->adapter);
	struct { /* a mapping of one page */
		NDK_LOGICAL_ADDRESS_MAPPING lam;
	} one;
	ULONG size = sizeof(one), fbo;
	struct fast fast;
	NDK_SGE sge;
	MDL *mdl;

	set_up(&fast, a, b);
	SUCCEEDS(OrielAllocateMemory(PAGE, 0, &mdl));
	SUCCEEDS(sync_end(&sync, NdkBuildLAM(b->adapter, mdl, PAGE, sync_requested, &sync, &one.lam,
					     &size, &fbo)));
	sge = logical_sge(&fast, b, 0, 0, 64);
	sge.LogicalAddress = one.lam.AdapterPageArray[0];
	SUCCEEDS(NdkReceive(fast.from, NULL, NULL, 0));
	SUCCEEDS(NdkReceive(fast.from, NULL,
			    &(NDK_SGE){ .VirtualAddress = a->bytes,
					.Length = 64,
					.MemoryRegionToken = NdkGetLocalTokenFromMr(a->mr) },
			    1));
	SUCCEEDS(NdkSend(fast.to, NULL, NULL, 0, 0));
	result(b, STATUS_SUCCESS, "a send of nothing");
	result(a, STATUS_SUCCESS, "its receive");
	SUCCEEDS(NdkSend(fast.to, NULL, &sge, 1, 0));
	result(b, STATUS_SUCCESS, "a send from the page");
	result(a, STATUS_SUCCESS, "its receive");
	OrielFreeMemory(mdl);
	caught_up(b);
	SUCCEEDS(NdkSend(fast.to, NULL, &sge, 1, 0));
	result(b, STATUS_ACCESS_VIOLATION, "a send from memory that is gone");
	free(fast.lam);
}

const struct scene fast_scenes[] = {
	{ "privileged", privileged },
	{ "privileged-refused", privileged_refused },
	{ "privileged-freed", privileged_freed },
	{ "fast-rounds", rounds },
	{ "fast-local", local },
	{ "fast-remote-end", remote_end },
	{ "fast-rights", rights },
	{ "fast-closes", closes },
	{ NULL, NULL },
};
