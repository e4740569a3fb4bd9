/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows, bound once or as fast as can be, and what completes meanwhile. */
#include <inttypes.h>
#include <stdio.h>

#include "oriel-sink/sink.h"

#define RESULTS      64u
#define MEMORY_ALIGN 64u
#define BINDS        1024u /* under way at a time while all are bound */

uint8_t *sink_window_address(const struct sink *sink, uint32_t index)
{
	uint64_t places = (sink->options.memory - sink->options.size) / MEMORY_ALIGN + 1;

	return sink->memory + (uint64_t)index * 2654435761u % places * MEMORY_ALIGN;
}

bool sink_take_results(struct sink *sink)
{
	NDK_RESULT_EX results[RESULTS];
	ULONG count = NdkGetCqResultsEx(sink->cq, results, RESULTS);

	for (ULONG i = 0; i < count; i++) {
		const NDK_RESULT_EX *r = &results[i];
		NDK_QP **qp = r->QPContext;

		if (r->Type == NdkOperationTypeBind) {
			sink->pending -= sink->pending ? 1 : 0;
			sink->binds += NT_SUCCESS(r->Status);
			sink->binds_failed += !NT_SUCCESS(r->Status);
		} else if (r->Type == NdkOperationTypeInvalidate) {
			sink->churn_out--;
		} else if (NT_SUCCESS(r->Status)) {
			const NDK_SGE sge = { .VirtualAddress = sink->memory,
					      .Length = sink->options.receive,
					      .MemoryRegionToken =
						      NdkGetLocalTokenFromMr(sink->mr) };

			sink->received++;
			NdkReceive(*qp, NULL, &sge, 1);
		}
	}
	return count != 0;
}

/* Lets the daemon go on, which may need this processor for it. False: it is gone, or it is over. */
static bool wait_a_little(struct sink *sink)
{
	if (!OrielProgress(sink->adapter) && !sink_take_results(sink) &&
	    OrielWait(sink->adapter, 1) == STATUS_DEVICE_REMOVED)
		sink->failed = STATUS_DEVICE_REMOVED;
	return NT_SUCCESS(sink->failed) && !sink_stop;
}

/* Binds go round the queue pairs; what has no room or no token waits for completions. */
static bool bind_one(struct sink *sink, uint32_t index, ULONG flags)
{
	const ULONG rights = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE |
			     ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC;
	NDK_QP *qp = sink->qp[index % sink->options.qps];
	NTSTATUS status;

	do {
		status = NdkBind(qp, NULL, sink->mr, sink->mw[index],
				 sink_window_address(sink, index), sink->options.size,
				 flags | rights);
	} while ((status == STATUS_NO_MORE_ENTRIES || status == STATUS_INSUFFICIENT_RESOURCES) &&
		 wait_a_little(sink));
	if (!NT_SUCCESS(status) && NT_SUCCESS(sink->failed))
		sink->failed = status;
	return NT_SUCCESS(status) || sink_complain("binding a window", sink->failed);
}

/* Until no more than `limit` binds are under way. */
static bool settle_binds(struct sink *sink, uint32_t limit)
{
	while (sink->pending > limit)
		if (!sink_take_results(sink) && !wait_a_little(sink))
			return sink_complain("binding windows", sink->failed);
	return true;
}

bool sink_bind_all(struct sink *sink)
{
	for (uint32_t i = 0; i < sink->options.windows; i++) {
		if (!bind_one(sink, i, 0))
			return false;
		sink->pending++;
		if (!settle_binds(sink, BINDS))
			return false;
	}
	if (!settle_binds(sink, 0))
		return false;
	if (sink->binds_failed)
		fprintf(stderr, "oriel-sink: %" PRIu64 " windows could not be bound\n",
			sink->binds_failed);
	return sink->binds_failed == 0;
}

bool sink_churn(struct sink *sink)
{
	uint32_t index = sink->options.windows + sink->churn_next;
	NDK_QP *qp = sink->qp[index % sink->options.qps];
	NTSTATUS status;

	if (sink->churn_out == SINK_CHURN_DEPTH ||
	    !bind_one(sink, index, NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER))
		return false;
	do {
		status = NdkInvalidate(qp, NULL, &sink->mw[index]->Header, 0);
	} while (status == STATUS_NO_MORE_ENTRIES && wait_a_little(sink));
	if (!NT_SUCCESS(status)) {
		sink->failed = status;
		return sink_complain("invalidating a window", status);
	}
	sink->binds++;
	sink->churn_out++;
	sink->churn_next = (sink->churn_next + 1) % SINK_CHURN_DEPTH;
	return true;
}
