/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with what NetworkDirect's own unit tests expect of queue pairs and their completions. */
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "play.h"

static void notified(PVOID context, NTSTATUS status)
{
	SUCCEEDS(status);
	++*(unsigned int *)context;
}

/* NdReceiveFlushQP: receives of an unconnected queue pair are cancelled, with one notification. */
static void flushed(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(a->adapter);
	NDK_SGE room = sge_at(a, 0, 64);
	unsigned int calls = 0;
	NDK_RESULT entry[3];
	ULONG count = 0;
	NDK_QP *qp;
	NDK_CQ *cq;

	SUCCEEDS(sync_end(&sync, NdkCreateCq(a->adapter, 16, notified, &calls, NULL, sync_created,
					     &sync, NULL)));
	cq = (NDK_CQ *)sync.object;
	sync = sync_begin(a->adapter);
	SUCCEEDS(sync_end(&sync, NdkCreateQp(a->pd, cq, cq, (PVOID)9, 4, 4, 1, 1, 0, sync_created,
					     &sync, NULL)));
	qp = (NDK_QP *)sync.object;
	NdkArmCq(cq, NDK_CQ_NOTIFY_ANY);
	SUCCEEDS(NdkReceive(qp, (PVOID)1, &room, 1));
	SUCCEEDS(NdkReceive(qp, (PVOID)2, &room, 1));
	NdkFlush(qp);
	for (unsigned int tries = 0; tries < PATIENCE / 50 && (count < 2 || !calls); tries++) {
		no_result(b, "the other end");
		OrielProgress(a->adapter);
		count += NdkGetCqResults(cq, entry + count, 3 - count);
	}
	DEMAND(count == 2 && calls == 1, "%u entries, %u notifications", count, calls);
	for (uintptr_t i = 0; i < 2; i++) {
		expect_status(entry[i].Status, STATUS_CANCELLED, "a receive");
		DEMAND(entry[i].RequestContext == (PVOID)(i + 1), "order");
		DEMAND(entry[i].QPContext == (PVOID)9, "whose");
	}
}

/* A message longer than its receive: DATA_OVERRUN there, DATA_ERROR here, and the rest cancelled.
 */
static void short_receive(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	NDK_SGE message = sge_at(a, 0, 1024), room = sge_at(b, 0, 1023);

	connect_qps(a, from, b, to);
	SUCCEEDS(NdkReceive(to, (PVOID)1, &room, 1));
	SUCCEEDS(NdkReceive(to, (PVOID)2, &room, 1));
	SUCCEEDS(NdkSend(from, NULL, &message, 1, 0));
	result(a, STATUS_DATA_ERROR, "the send");
	DEMAND(result(b, STATUS_DATA_OVERRUN, "its receive").RequestContext == (PVOID)1, "order");
	DEMAND(result(b, STATUS_CANCELLED, "the next").RequestContext == (PVOID)2, "order");
}

/* NdOverRead, NdWriteViolation: the target's receives are cancelled, the initiator is told why. */
static void violation(struct end *a, struct end *b)
{
	for (unsigned int write = 0; write < 2; write++) {
		NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
		NDK_SGE data = sge_at(a, 0, 8), room = sge_at(b, 0, 64);
		const UINT64 end = (uintptr_t)b->bytes + MEMORY - 7;
		const UINT32 token = NdkGetRemoteTokenFromMr(b->mr);

		connect_qps(a, from, b, to);
		SUCCEEDS(NdkReceive(to, NULL, &room, 1));
		SUCCEEDS(write ? NdkWrite(from, (PVOID)1, &data, 1, end, token, 0)
			       : NdkRead(from, (PVOID)1, &data, 1, end, token, 0));
		SUCCEEDS(NdkWrite(from, (PVOID)2, &data, 1, (uintptr_t)b->bytes, token,
				  NDK_OP_FLAG_SILENT_SUCCESS));
		DEMAND(result(a, STATUS_ACCESS_VIOLATION, "past the end").RequestContext ==
			       (PVOID)1,
		       "order");
		DEMAND(result(a, STATUS_CANCELLED, "what is behind, though silent")
				       .RequestContext == (PVOID)2,
		       "order");
		result(b, STATUS_CANCELLED, "a receive of the target");
	}
}

static void connect_impatient(struct end *from, NDK_QP *qp, struct end *to, NDK_QP *peer,
			      UCHAR timeout, UCHAR retries)
{
	const ORIEL_QP_CONNECTION connection = { .Size = sizeof(connection),
						 .RemoteQpNumber = OrielGetQpNumber(peer),
						 .SendPsn = 5,
						 .ReceivePsn = 5,
						 .PathMtu = 1024,
						 .Timeout = timeout,
						 .RetryCount = retries,
						 .RnrRetryCount = 2,
						 .MinRnrTimer = 6,
						 .LocalAddress = (PSOCKADDR)&from->address,
						 .RemoteAddress = (PSOCKADDR)&to->address };

	SUCCEEDS(connect_qp(from, qp, &connection));
}

/* NdSendNoReceive: IO_TIMEOUT at the sender, nothing at the target. */
static void no_receive(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	NDK_SGE message = sge_at(a, 0, 64);

	connect_impatient(a, from, b, to, 17, 7);
	connect_impatient(b, to, a, from, 17, 7);
	SUCCEEDS(NdkSend(from, NULL, &message, 1, 0));
	result(a, STATUS_IO_TIMEOUT, "a send nobody receives");
	no_result(b, "the target");
}

/* Requests of no bytes: neither address nor token matters, and all are answered by who is there. */
static void nothing(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);

	connect_qps(a, from, b, to);
	SUCCEEDS(NdkReceive(to, (PVOID)1, NULL, 0));
	SUCCEEDS(NdkRead(from, (PVOID)1, NULL, 0, 77, 77, 0));
	SUCCEEDS(NdkWrite(from, (PVOID)2, NULL, 0, 77, 77, 0));
	SUCCEEDS(NdkSend(from, (PVOID)3, NULL, 0, 0));
	for (uintptr_t i = 1; i <= 3; i++)
		DEMAND(result(a, STATUS_SUCCESS, "of no bytes").RequestContext == (PVOID)i,
		       "order");
	DEMAND(result(b, STATUS_SUCCESS, "a receive of no bytes").BytesTransferred == 0, "bytes");
	from = create_qp(a, NULL);
	to = create_qp(b, NULL);
	connect_impatient(a, from, b, to, 10, 1);
	connect_impatient(b, to, a, from, 10, 1);
	close_object(b, &to->Header);
	SUCCEEDS(NdkWrite(from, NULL, NULL, 0, 0, 0, 0));
	result(a, STATUS_IO_TIMEOUT, "a write of no bytes to who is gone");
}

/* NDK_OP_FLAG_INLINE: the bytes are those at the post, the tokens do not matter. */
static void inlined(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	NDK_SGE room = sge_at(b, 0, 128);
	char text[] = "as it was";
	NDK_SGE piece[9];

	connect_qps(a, from, b, to);
	/* NdkCreateQp: the number of SGEs is no limit of inline data. */
	for (unsigned int i = 0; i < 9; i++)
		piece[i] = (NDK_SGE){ .VirtualAddress = text + i, .Length = 1 };
	SUCCEEDS(NdkReceive(to, NULL, &room, 1));
	SUCCEEDS(NdkSend(from, NULL, piece, 9, NDK_OP_FLAG_INLINE));
	memset(text, 'x', sizeof(text));
	result(a, STATUS_SUCCESS, "an inline send");
	DEMAND(result(b, STATUS_SUCCESS, "its receive").BytesTransferred == 9, "length");
	DEMAND(!memcmp(b->bytes, "as it was", 9), "%.9s", b->bytes);
	piece[0].Length = 129;
	expect_status(NdkSend(from, NULL, piece, 1, NDK_OP_FLAG_INLINE), STATUS_INVALID_BUFFER_SIZE,
		      "more than InlineDataSize");
	no_result(a, "what was refused");
}

/* --- what NDKPI lacks ------------------------------------------------------------------------- */

static uint64_t word_at(const struct end *end, uint64_t offset)
{
	uint64_t word;

	memcpy(&word, end->bytes + offset, sizeof(word));
	return word;
}

static void expect_old(struct end *a, NDK_OPERATION_TYPE type, uint64_t old)
{
	NDK_RESULT_EX entry = result(a, STATUS_SUCCESS, "an atomic");

	DEMAND(entry.Type == type, "type %x", (unsigned int)entry.Type);
	DEMAND(word_at(a, 0) == old, "the old value is %llx", (unsigned long long)word_at(a, 0));
}

/* Atomics on the integer in host order, answered by the old value; off its eight bytes an error. */
static void atomics(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	const UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	const UINT64 word = (uintptr_t)b->bytes + 64;
	const uint64_t first = 0xfffffffffffffff0ull;
	NDK_SGE old = sge_at(a, 0, 8);

	connect_qps(a, from, b, to);
	memcpy(b->bytes + 64, &first, sizeof(first));
	SUCCEEDS(OrielFetchAdd(from, NULL, &old, word, token, 0x11, 0));
	expect_old(a, OrielOperationTypeFetchAdd, first);
	DEMAND(word_at(b, 64) == 1, "it wraps");
	SUCCEEDS(OrielCompareSwap(from, NULL, &old, word, token, 2, 5, 0));
	expect_old(a, OrielOperationTypeCompareSwap, 1);
	DEMAND(word_at(b, 64) == 1, "another value is left alone");
	SUCCEEDS(OrielCompareSwap(from, NULL, &old, word, token, 1, 0x0102030405060708ull, 0));
	expect_old(a, OrielOperationTypeCompareSwap, 1);
	DEMAND(word_at(b, 64) == 0x0102030405060708ull, "swapped");
	old.Length = 4;
	expect_status(OrielFetchAdd(from, NULL, &old, word, token, 1, 0),
		      STATUS_INVALID_BUFFER_SIZE, "a result of four bytes");
	old.Length = 8;
	SUCCEEDS(OrielFetchAdd(from, NULL, &old, word + 4, token, 1, 0));
	result(a, STATUS_DATA_ERROR, "an atomic off its eight bytes");
	DEMAND(word_at(b, 64) == 0x0102030405060708ull && word_at(b, 72) == 0, "it was done");
}

static void expect_immediate(struct end *b, NDK_OPERATION_TYPE type, UINT32 immediate, ULONG bytes)
{
	NDK_RESULT_EX entry = result(b, STATUS_SUCCESS, "a receive");

	DEMAND(entry.Type == type && entry.BytesTransferred == bytes, "type %x, %u bytes",
	       (unsigned int)entry.Type, entry.BytesTransferred);
	DEMAND(entry.TypeSpecificCompletionOutput == immediate, "immediate %zx",
	       entry.TypeSpecificCompletionOutput);
}

/* Immediates come as they are, with the bytes of the whole message; a write's receive stays empty.
 */
static void immediates(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	const UINT32 token = NdkGetRemoteTokenFromMr(b->mr), immediate = 0x01020384;
	NDK_SGE out = sge_at(a, 0, 3000), in = sge_at(b, 0, 3000);

	connect_qps(a, from, b, to);
	memset(a->bytes, 0x5a, 3000);
	SUCCEEDS(NdkReceive(to, NULL, &in, 1));
	SUCCEEDS(OrielSendImmediate(from, NULL, &out, 1, 0, immediate));
	result(a, STATUS_SUCCESS, "a send");
	expect_immediate(b, OrielOperationTypeReceiveImmediate, immediate, 3000);
	DEMAND(!memcmp(b->bytes, a->bytes, 3000), "other bytes");
	memset(b->bytes, 0, 8192);
	SUCCEEDS(NdkReceive(to, NULL, &in, 1));
	SUCCEEDS(OrielWriteImmediate(from, NULL, &out, 1, (uintptr_t)b->bytes + 4096, token, 0,
				     ~immediate));
	result(a, STATUS_SUCCESS, "a write");
	expect_immediate(b, OrielOperationTypeReceiveWriteImmediate, ~immediate, 3000);
	DEMAND(!memcmp(b->bytes + 4096, a->bytes, 3000) && b->bytes[0] == 0, "other bytes");
}

/* --- asynchronous events ---------------------------------------------------------------------- */

struct told {
	ORIEL_EVENT event[4];
	NDK_OBJECT_HEADER *object[4];
	unsigned int count;
	bool last; /* OrielEventQpLastWqeReached was among them */
};

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	struct told *told = context;

	(void)reason;
	DEMAND(told->count < 4, "event %d, the fifth", event);
	told->event[told->count] = event;
	told->object[told->count++] = object;
	told->last |= event == OrielEventQpLastWqeReached;
}

static void expect_told(struct end *b, struct told *told, ORIEL_EVENT event, const NDK_QP *qp)
{
	for (unsigned int tries = 0; told->count == 0; tries++) {
		DEMAND(tries < PATIENCE, "event %d does not come", event);
		OrielProgress(b->adapter);
		usleep(1000);
	}
	DEMAND(told->event[0] == event && told->object[0] == &qp->Header, "event %d instead of %d",
	       told->event[0], event);
}

/* What the peer's request does to a queue pair is told to its owner, once, and what it was. */
static void events(struct end *a, struct end *b)
{
	NDK_QP *from = create_qp(a, NULL), *to = create_qp(b, NULL);
	const UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	NDK_SGE data = sge_at(a, 0, 8), room = sge_at(b, 0, 7);
	const UINT64 end = (uintptr_t)b->bytes + MEMORY - 7;
	struct told told = { 0 };
	NDK_SRQ *srq;

	OrielSetEventHandler(b->adapter, on_event, &told);
	connect_qps(a, from, b, to);
	SUCCEEDS(NdkRead(from, NULL, &data, 1, end, token, 0));
	result(a, STATUS_ACCESS_VIOLATION, "past the end");
	expect_told(b, &told, OrielEventQpAccessError, to);
	no_result(b, "more events");
	DEMAND(told.count == 1, "%u events", told.count);

	told = (struct told){ 0 };
	from = create_qp(a, NULL);
	to = create_qp(b, NULL);
	connect_qps(a, from, b, to);
	SUCCEEDS(NdkReceive(to, NULL, &room, 1));
	SUCCEEDS(NdkSend(from, NULL, &data, 1, 0));
	result(a, STATUS_DATA_ERROR, "longer than the receive");
	result(b, STATUS_DATA_OVERRUN, "its receive");
	expect_told(b, &told, OrielEventQpInvalidRequest, to);

	told = (struct told){ 0 };
	srq = create_srq(b, 4, 0, NULL, NULL);
	from = create_qp(a, NULL);
	to = create_qp_with_srq(b, srq, NULL);
	connect_qps(a, from, b, to);
	SUCCEEDS(NdkRead(from, NULL, &data, 1, end, token, 0));
	result(a, STATUS_ACCESS_VIOLATION, "past the end");
	expect_told(b, &told, OrielEventQpAccessError, to);
	until(a, b, &told.last, "the last receive of an SRQ's queue pair is not told");
	DEMAND(told.count == 2 && told.object[1] == &to->Header, "%u events", told.count);
	OrielSetEventHandler(b->adapter, NULL, NULL);
}

const struct scene qp_scenes[] = {
	{ "qp-flushed", flushed },       { "qp-short-receive", short_receive },
	{ "qp-violation", violation },   { "qp-no-receive", no_receive },
	{ "qp-inlined", inlined },       { "qp-nothing", nothing },
	{ "qp-events", events },         { "qp-atomics", atomics },
	{ "qp-immediates", immediates }, { NULL, NULL },
};
