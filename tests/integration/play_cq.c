/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with completion queues that are resized, and whose callbacks are moderated. */
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "play.h"

#define QPS    3u
#define LENGTH 64u

#define SMALLEST 150u /* depth */

static NTSTATUS resize(struct end *end, ULONG depth)
{
	struct sync sync = sync_begin(end->adapter);

	return sync_end(&sync, NdkResizeCq(end->cq, depth, sync_requested, &sync));
}

/* Traffic of several queue pairs while the CQ gets larger and smaller under it. */
static void resizes(struct end *a, struct end *b)
{
	static const ULONG depths[] = { 512, SMALLEST, 1000, 200, 4096, 255, 256, 257 };
	uintptr_t posted[QPS] = { 0 }, taken[QPS] = { 0 };
	const UINT64 remote = (uintptr_t)b->bytes;
	UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	NDK_SGE sge = sge_at(a, 0, LENGTH);
	NDK_QP *qp[QPS];

	for (uintptr_t i = 0; i < QPS; i++) {
		NDK_QP *peer = create_qp(b, NULL);

		qp[i] = create_qp(a, (PVOID)i);
		connect_qps(a, qp[i], b, peer);
	}
	for (unsigned int round = 0; round < 400; round++) {
		struct sync sync = sync_begin(a->adapter);
		NDK_RESULT results[7];
		ULONG count;

		for (unsigned int i = 0; i < QPS; i++)
			/* No more than the smallest CQ holds: what has completed takes room. */
			for (; posted[i] - taken[i] < SMALLEST / QPS; posted[i]++)
				SUCCEEDS(NdkWrite(qp[i], (PVOID)posted[i], &sge, 1, remote, token,
						  0));
		if (round % 4 == 0) {
			NTSTATUS status =
				NdkResizeCq(a->cq, depths[round / 4 % 8], sync_requested, &sync);

			if (status != STATUS_DEVICE_BUSY)
				SUCCEEDS(sync_end(&sync, status));
		}
		while ((count = NdkGetCqResults(a->cq, results, 7)) != 0)
			for (ULONG i = 0; i < count; i++) {
				uintptr_t from = (uintptr_t)results[i].QPContext;

				SUCCEEDS(results[i].Status);
				DEMAND((uintptr_t)results[i].RequestContext == taken[from]++,
				       "round %u: queue pair %zu: %p", round, from,
				       results[i].RequestContext);
			}
		usleep(200);
	}
	for (unsigned int i = 0; i < QPS; i++)
		while (taken[i] < posted[i]) {
			NDK_RESULT_EX entry = result(a, STATUS_SUCCESS, "one of the last writes");

			taken[(uintptr_t)entry.QPContext]++;
		}
	no_result(a, "all have completed");
	printf("%zu writes\n", posted[0] + posted[1] + posted[2]);
}

/* The depth in force is the new one: more entries than that break the CQ. */
static void depth(struct end *a, struct end *b)
{
	NDK_QP *qp = create_qp(a, NULL), *peer = create_qp(b, NULL);
	NDK_SGE sge = sge_at(a, 0, LENGTH);
	UINT32 token = NdkGetRemoteTokenFromMr(b->mr);

	connect_qps(a, qp, b, peer);
	expect_status(resize(a, 0), STATUS_INVALID_PARAMETER, "depth 0");
	expect_status(resize(a, 1u << 30), STATUS_INVALID_PARAMETER, "above the limit");
	SUCCEEDS(resize(a, 16));
	/* All at once: the seventeenth result ends the queue pair. */
	for (unsigned int i = 0; i < 32; i++)
		SUCCEEDS(NdkWrite(qp, NULL, &sge, 1, (uintptr_t)b->bytes, token,
				  i < 31 ? NDK_OP_FLAG_DEFER : 0));
	for (unsigned int i = 0; i < 16; i++)
		result(a, STATUS_SUCCESS, "a write that has room");
	no_result(a, "the others found none");
}

static void notified(PVOID context, NTSTATUS status)
{
	SUCCEEDS(status);
	++*(unsigned int *)context;
}

static void told_soon(struct end *end, const unsigned int *told, unsigned int times)
{
	for (unsigned int waits = 0; *told < times && waits < PATIENCE;)
		if (OrielProgress(end->adapter) == 0 && ++waits)
			OrielWait(end->adapter, 1);
	DEMAND(*told == times, "told %u times, not %u", *told, times);
}

/* An arm outlives a resize; a moderated callback comes for a number, or for time. */
static void notifications(struct end *a, struct end *b)
{
	NDK_QP *qp, *peer = create_qp(b, NULL);
	NDK_SGE sge = sge_at(a, 0, LENGTH);
	UINT32 token = NdkGetRemoteTokenFromMr(b->mr);
	struct sync sync = sync_begin(a->adapter);
	unsigned int told = 0;
	NDK_CQ *usual = a->cq;

	SUCCEEDS(sync_end(&sync, NdkCreateCq(a->adapter, 32, notified, &told, NULL, sync_created,
					     &sync, NULL)));
	a->cq = (NDK_CQ *)sync.object;
	qp = create_qp(a, NULL);
	connect_qps(a, qp, b, peer);
	NdkArmCq(a->cq, NDK_CQ_NOTIFY_ANY);
	SUCCEEDS(resize(a, 100));
	DEMAND(told == 0, "told without an entry");
	SUCCEEDS(NdkWrite(qp, NULL, &sge, 1, (uintptr_t)b->bytes, token, 0));
	told_soon(a, &told, 1);
	result(a, STATUS_SUCCESS, "the write");
	SUCCEEDS(NdkControlCqInterruptModeration(a->cq, 0xffffffffu, 3));
	NdkArmCq(a->cq, NDK_CQ_NOTIFY_ANY);
	for (unsigned int i = 0; i < 2; i++)
		SUCCEEDS(NdkWrite(qp, NULL, &sge, 1, (uintptr_t)b->bytes, token, 0));
	for (unsigned int i = 0; i < 20; i++) {
		OrielProgress(a->adapter);
		OrielWait(a->adapter, 5);
	}
	DEMAND(told == 1, "told with two of three");
	SUCCEEDS(NdkWrite(qp, NULL, &sge, 1, (uintptr_t)b->bytes, token, 0));
	told_soon(a, &told, 2);
	close_object(a, &qp->Header);
	close_object(a, &a->cq->Header);
	a->cq = usual;
}

static void closed(PVOID context)
{
	++*(unsigned int *)context;
}

/* Closed while it is resized. */
static void closes(struct end *a, struct end *b)
{
	(void)b;
	for (unsigned int round = 0; round < 30; round++) {
		struct sync sync = sync_begin(a->adapter);
		struct sync resized = sync_begin(a->adapter);
		unsigned int gone = 0;
		NDK_CQ *cq;

		SUCCEEDS(sync_end(&sync, NdkCreateCq(a->adapter, 8, NULL, NULL, NULL, sync_created,
						     &sync, NULL)));
		cq = (NDK_CQ *)sync.object;
		expect_status(NdkResizeCq(cq, 100, sync_requested, &resized), STATUS_PENDING,
			      "resize");
		usleep(round * 10);
		NdkCloseCq(cq, closed, &gone);
		for (unsigned int tries = 0; !gone && tries < PATIENCE; tries++)
			if (OrielProgress(a->adapter) == 0)
				usleep(1000);
		DEMAND(gone == 1, "it is not gone");
		DEMAND(resized.done, "the resize is not told");
	}
}

/* Killed in the middle of resizes. */
static void hang(struct end *a, struct end *b)
{
	struct sync sync = sync_begin(a->adapter);

	(void)b;
	printf("hanging\n");
	for (;;) {
		sync = sync_begin(a->adapter);
		sync_end(&sync, NdkResizeCq(a->cq, 100, sync_requested, &sync));
		NdkGetCqResults(a->cq, NULL, 0);
	}
}

const struct scene cq_scenes[] = {
	{ "cq-resizes", resizes }, { "cq-depth", depth }, { "cq-notifications", notifications },
	{ "cq-closes", closes },   { "cq-hang", hang },   { NULL, NULL },
};
