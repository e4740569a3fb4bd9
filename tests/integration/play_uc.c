/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with unreliable connections. */
#include <arpa/inet.h>
#include <string.h>

#include "common/sync.h"
#include "play.h"

/* A ring of the link holds its packets: of what a peer does not take for long, some is lost. */
#define LARGE (MEMORY / 8)

static void join(struct end *a, struct end *b, NDK_QP *qp[2])
{
	qp[0] = create_qp_of_type(a, OrielQpTypeUc, NULL, a);
	qp[1] = create_qp_of_type(b, OrielQpTypeUc, NULL, b);
	connect_qps(a, qp[0], b, qp[1]);
}

static void fill(struct end *end, uint64_t offset, ULONG length, unsigned int seed)
{
	for (ULONG i = 0; i < length; i++)
		end->bytes[offset + i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

static void same(struct end *a, uint64_t from, struct end *b, uint64_t to, ULONG length)
{
	DEMAND(!memcmp(a->bytes + from, b->bytes + to, length), "%u bytes differ", length);
}

/* Messages of one and of many packets, with and without an immediate. */
static void sends(struct end *a, struct end *b)
{
	static const ULONG lengths[] = { 0, 1, 1024, 1025, 65536, LARGE };
	NDK_QP *qp[2];

	join(a, b, qp);
	for (unsigned int i = 0; i < 12; i++) {
		ULONG length = lengths[i / 2];
		NDK_SGE out = sge_at(a, 0, length), in = sge_at(b, 0, LARGE);
		UINT32 immediate = htonl(0x77000000 + i);
		NDK_RESULT_EX entry;

		fill(a, 0, length, i);
		SUCCEEDS(NdkReceive(qp[1], (PVOID)(uintptr_t)i, &in, 1));
		if (i & 1)
			SUCCEEDS(OrielSendImmediate(qp[0], NULL, &out, 1, 0, immediate));
		else
			SUCCEEDS(NdkSend(qp[0], NULL, &out, 1, 0));
		result(a, STATUS_SUCCESS, "an unreliable send");
		entry = result(b, STATUS_SUCCESS, "its receive");
		DEMAND(entry.BytesTransferred == length, "%u bytes of %u", entry.BytesTransferred,
		       length);
		if (i & 1)
			DEMAND(entry.TypeSpecificCompletionOutput == immediate, "immediate %zx",
			       entry.TypeSpecificCompletionOutput);
		same(a, 0, b, 0, length);
	}
}

static void writes(struct end *a, struct end *b)
{
	const UINT64 remote = (uintptr_t)b->bytes + LARGE;
	UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	NDK_SGE out = sge_at(a, 0, LARGE), none = sge_at(b, 0, 0);
	NDK_QP *qp[2];

	join(a, b, qp);
	fill(a, 0, LARGE, 5);
	SUCCEEDS(NdkReceive(qp[1], NULL, &none, 1));
	SUCCEEDS(NdkWrite(qp[0], NULL, &out, 1, remote, token, NDK_OP_FLAG_SILENT_SUCCESS));
	SUCCEEDS(OrielWriteImmediate(qp[0], NULL, NULL, 0, remote, token, 0, htonl(9)));
	result(a, STATUS_SUCCESS, "a write with an immediate");
	result(b, STATUS_SUCCESS, "its receive, which comes behind the write");
	same(a, 0, b, LARGE, LARGE);
}

/* What an unreliable connection cannot do is refused inline, and it lives on. */
static void refused(struct end *a, struct end *b)
{
	UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	NDK_SGE sge = sge_at(a, 0, 8), in = sge_at(b, 0, 8);
	const UINT64 remote = (uintptr_t)b->bytes;
	NDK_QP *qp[2];

	join(a, b, qp);
	expect_status(NdkRead(qp[0], NULL, &sge, 1, remote, token, 0),
		      STATUS_INVALID_DEVICE_REQUEST, "a read");
	expect_status(OrielFetchAdd(qp[0], NULL, &sge, remote, token, 1, 0),
		      STATUS_INVALID_DEVICE_REQUEST, "an atomic");
	expect_status(OrielCompareSwap(qp[0], NULL, &sge, remote, token, 1, 2, 0),
		      STATUS_INVALID_DEVICE_REQUEST, "an atomic");
	expect_status(NdkSendAndInvalidate(qp[0], NULL, &sge, 1, 0, token),
		      STATUS_INVALID_DEVICE_REQUEST, "a send with invalidate");
	SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
	SUCCEEDS(NdkSend(qp[0], NULL, &sge, 1, 0));
	result(a, STATUS_SUCCESS, "a send");
	result(b, STATUS_SUCCESS, "its receive");
}

/* A write that is acknowledged was on the link behind all that has completed before it. */
static void arrived(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	NDK_SGE none = sge_at(a, 0, 0);

	connect_qps(a, from, b, to);
	SUCCEEDS(NdkWrite(from, NULL, &none, 1, (uintptr_t)b->bytes, NdkGetRemoteTokenFromMr(b->mr),
			  0));
	result(a, STATUS_SUCCESS, "a reliable write");
}

/* Without a receive a message is lost, its sender does not know, the next one arrives. */
static void lost(struct end *a, struct end *b)
{
	NDK_SGE out = sge_at(a, 0, 4096), in = sge_at(b, 0, 4096);
	NDK_QP *qp[2];

	join(a, b, qp);
	SUCCEEDS(NdkSend(qp[0], NULL, &out, 1, 0));
	result(a, STATUS_SUCCESS, "a send that nobody receives");
	arrived(a, b);
	no_result(b, "a message without a receive");
	SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
	fill(a, 0, 4096, 8);
	SUCCEEDS(NdkSend(qp[0], NULL, &out, 1, 0));
	result(a, STATUS_SUCCESS, "a send");
	result(b, STATUS_SUCCESS, "its receive");
	same(a, 0, b, 0, 4096);
}

/* Whether a message is whole: each packet of it says its number. */
static void check_whole(struct end *b, const NDK_RESULT_EX *entry, ULONG length)
{
	SUCCEEDS(entry->Status);
	DEMAND(entry->BytesTransferred == length, "%u bytes", entry->BytesTransferred);
	for (ULONG i = 1; i < length; i++)
		DEMAND(b->bytes[i] == b->bytes[0], "byte %u is of message %u, the first of %u", i,
		       b->bytes[i], b->bytes[0]);
}

/*
 * Over a link that loses frames a message of five packets comes whole or not at all, and leaves its
 * receive to the next. A reliable write behind each tells that there is no more to come of it.
 */
static void whole(struct end *a, struct end *b)
{
	const ULONG length = 4096 + 100;
	NDK_SGE out = sge_at(a, 0, length), in = sge_at(b, 0, length);
	NDK_QP *qp[2], *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	unsigned int came = 0;

	join(a, b, qp);
	connect_qps(a, from, b, to);
	SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
	for (uint8_t number = 1; number <= 30; number++) {
		NDK_RESULT_EX entry;

		memset(a->bytes, number, length);
		SUCCEEDS(NdkSend(qp[0], NULL, &out, 1, 0));
		result(a, STATUS_SUCCESS, "an unreliable send");
		SUCCEEDS(NdkWrite(from, NULL, NULL, 0, 0, 0, 0));
		result(a, STATUS_SUCCESS, "a reliable write");
		OrielProgress(b->adapter);
		if (NdkGetCqResultsEx(b->cq, &entry, 1) == 0)
			continue;
		check_whole(b, &entry, length);
		SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
		came++;
	}
	printf("%u of 30 messages came\n", came);
	DEMAND(came > 0 && came < 30, "%u of 30", came);
}

/*
 * A peer that tries tokens does not go on for ever: nothing is said to it, but the queue pair that
 * hears it fails. The daemon of b has a budget of three.
 */
static void guess(struct end *a, struct end *b)
{
	static const uint8_t untouched[8];
	const UINT64 remote = (uintptr_t)b->bytes + LARGE;
	const UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	NDK_SGE out = sge_at(a, 0, 8), in = sge_at(b, 0, 8);
	NDK_QP *qp[2];

	join(a, b, qp);
	fill(a, 0, 8, 1);
	SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
	for (UINT32 i = 1; i <= 10; i++) {
		SUCCEEDS(NdkWrite(qp[0], NULL, &out, 1, remote, token ^ i << 8, 0));
		result(a, STATUS_SUCCESS, "a write by a guessed token");
	}
	result(b, STATUS_CANCELLED, "the receive of a queue pair whose peer guesses");
	SUCCEEDS(NdkWrite(qp[0], NULL, &out, 1, remote, token, 0));
	result(a, STATUS_SUCCESS, "a write by the right token, too late");
	arrived(a, b);
	DEMAND(!memcmp(b->bytes + LARGE, untouched, 8), "the guesser is heard");
}

/* A window is bound over an unreliable connection and used over it. */
static void window(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(b->adapter);
	NDK_SGE out = sge_at(a, 0, 3000), in = sge_at(b, 0, 8);
	NDK_QP *qp[2];
	NDK_MW *mw;

	join(a, b, qp);
	SUCCEEDS(sync_end(&sync, NdkCreateMw(b->pd, sync_created, &sync, NULL)));
	mw = (NDK_MW *)sync.object;
	SUCCEEDS(NdkBind(qp[1], NULL, b->mr, mw, b->bytes + 8192, 3000,
			 NDK_OP_FLAG_ALLOW_REMOTE_WRITE));
	result(b, STATUS_SUCCESS, "the bind");
	fill(a, 0, 3000, 2);
	SUCCEEDS(NdkReceive(qp[1], NULL, &in, 1));
	SUCCEEDS(OrielWriteImmediate(qp[0], NULL, &out, 1, (uintptr_t)b->bytes + 8192,
				     NdkGetRemoteTokenFromMw(mw), 0, 1));
	result(a, STATUS_SUCCESS, "the write");
	result(b, STATUS_SUCCESS, "its receive");
	same(a, 0, b, 8192, 3000);
	SUCCEEDS(NdkInvalidate(qp[1], NULL, &mw->Header, 0));
	result(b, STATUS_SUCCESS, "the invalidate");
	close_object(b, &mw->Header);
}

const struct scene uc_scenes[] = {
	{ "uc-sends", sends }, { "uc-writes", writes }, { "uc-refused", refused },
	{ "uc-lost", lost },   { "uc-whole", whole },   { "uc-window", window },
	{ "uc-guess", guess }, { NULL, NULL },
};
