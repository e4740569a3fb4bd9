/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that there is to have: many objects, each made while hundreds are under way. */
#include <stdio.h>
#include <stdlib.h>

#include "common/sync.h"
#include "oriel-sink/sink.h"

#define FIRST_QPN    0x10000u /* oriel-flood's */
#define SEND_DEPTH   64u
#define RECEIVES     128u
#define FEW          4096u /* queue pairs; with more each has short queues */
#define SHORT_SENDS  4u
#define MOST_RESULTS 262144u /* of a completion queue */
#define REQUESTS     512u    /* under way at a time while objects are made */
#define CONNECT_MS   10000

/* --- many requests at a time ------------------------------------------------------------------ */

/* Where a create puts its object: its place in an array. */
struct place {
	struct sink *sink;
	void **object;
};

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct place *place = context;

	place->sink->pending--;
	if (NT_SUCCESS(status))
		*place->object = object;
	else if (NT_SUCCESS(place->sink->failed))
		place->sink->failed = status;
	free(place);
}

static void on_requested(PVOID context, NTSTATUS status)
{
	struct sink *sink = context;

	sink->pending--;
	if (!NT_SUCCESS(status) && NT_SUCCESS(sink->failed))
		sink->failed = status;
}

/* Waits until fewer than `limit` requests are under way. */
static bool settle(struct sink *sink, uint32_t limit)
{
	while (sink->pending > limit && NT_SUCCESS(sink->failed) && !sink_stop) {
		if (OrielProgress(sink->adapter))
			continue;
		if (OrielWait(sink->adapter, CONNECT_MS) == STATUS_TIMEOUT)
			sink->failed = STATUS_IO_TIMEOUT;
	}
	return NT_SUCCESS(sink->failed) && !sink_stop;
}

static struct place *place_of(struct sink *sink, void **object)
{
	struct place *place = malloc(sizeof(*place));

	if (place)
		*place = (struct place){ sink, object };
	return place;
}

static bool begun(struct sink *sink, struct place *place, NTSTATUS status)
{
	if (status == STATUS_PENDING) {
		sink->pending++;
		return settle(sink, REQUESTS);
	}
	free(place);
	if (!NT_SUCCESS(status))
		sink->failed = status;
	return NT_SUCCESS(status);
}

/* --- objects ---------------------------------------------------------------------------------- */

/* All receives of all queue pairs may complete at once, beside REQUESTS binds. */
static uint32_t receives_of_each(const struct sink_options *o)
{
	const uint32_t most = (MOST_RESULTS - 4096) / o->qps;

	if (!o->receive)
		return 1;
	return most < RECEIVES ? most : RECEIVES;
}

static bool open_domain(struct sink *sink)
{
	struct sync sync;
	NTSTATUS status = OrielOpenAdapter(NULL, &sink->adapter);
	uint32_t depth = sink->options.qps * receives_of_each(&sink->options) + 4096;

	if (!NT_SUCCESS(status)) {
		fprintf(stderr, "oriel-sink: %s\n", OrielOpenErrorText());
		return false;
	}
	sync = sync_begin(sink->adapter);
	status = sync_end(&sync, NdkCreatePd(sink->adapter, sync_created, &sync, &sink->pd));
	sink->pd = sync_object(&sync, sink->pd);
	if (!NT_SUCCESS(status))
		return sink_complain("protection domain", status);
	sync = sync_begin(sink->adapter);
	status = sync_end(&sync, NdkCreateCq(sink->adapter, depth, NULL, NULL, NULL, sync_created,
					     &sync, &sink->cq));
	sink->cq = sync_object(&sync, sink->cq);
	return NT_SUCCESS(status) || sink_complain("completion queue", status);
}

static bool open_memory(struct sink *sink)
{
	const ULONG flags = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ |
			    NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
	struct sync sync = sync_begin(sink->adapter);
	NTSTATUS status;

	status = OrielAllocateMemory(sink->options.memory, ORIEL_MEMORY_HUGE_PAGES, &sink->mdl);
	if (!NT_SUCCESS(status))
		return sink_complain("memory", status);
	sink->memory = sink->mdl->StartVa;
	status = sync_end(&sync, NdkCreateMr(sink->pd, FALSE, sync_created, &sync, &sink->mr));
	sink->mr = sync_object(&sync, sink->mr);
	if (!NT_SUCCESS(status))
		return sink_complain("memory region", status);
	sync = sync_begin(sink->adapter);
	status = sync_end(&sync, NdkRegisterMr(sink->mr, sink->mdl, sink->options.memory, flags,
					       sync_requested, &sync));
	return NT_SUCCESS(status) || sink_complain("registering memory", status);
}

/* So many are a matter of the daemon's configuration. */
static bool complain_of_many(struct sink *sink, const char *what, const char *key)
{
	sink_complain(what, sink->failed);
	if (sink->failed == STATUS_INSUFFICIENT_RESOURCES && !sink_stop)
		fprintf(stderr, "oriel-sink: %s in orield's configuration says how many it has\n",
			key);
	return false;
}

static bool open_queue_pairs(struct sink *sink)
{
	const uint32_t receives = receives_of_each(&sink->options);
	const uint32_t sends = sink->options.qps > FEW ? SHORT_SENDS : SEND_DEPTH;

	for (uint32_t i = 0; i < sink->options.qps; i++) {
		struct place *place = place_of(sink, (void **)&sink->qp[i]);

		if (!place ||
		    !begun(sink, place,
			   NdkCreateQp(sink->pd, sink->cq, sink->cq, &sink->qp[i], receives, sends,
				       1, 1, 0, on_created, place, &sink->qp[i])))
			return complain_of_many(sink, "queue pairs", "max-queue-pairs");
	}
	return settle(sink, 0) || complain_of_many(sink, "queue pairs", "max-queue-pairs");
}

static bool open_windows(struct sink *sink)
{
	const uint32_t count = sink->options.windows + (sink->options.churn ? SINK_CHURN_DEPTH : 0);

	for (uint32_t i = 0; i < count; i++) {
		struct place *place = place_of(sink, (void **)&sink->mw[i]);

		if (!place ||
		    !begun(sink, place, NdkCreateMw(sink->pd, on_created, place, &sink->mw[i])))
			return complain_of_many(sink, "windows", "max-windows");
	}
	return settle(sink, 0) || complain_of_many(sink, "windows", "max-windows");
}

static bool post_receives(struct sink *sink)
{
	const NDK_SGE sge = { .VirtualAddress = sink->memory,
			      .Length = sink->options.receive,
			      .MemoryRegionToken = NdkGetLocalTokenFromMr(sink->mr) };

	for (uint32_t i = 0; sink->options.receive && i < sink->options.qps; i++) {
		for (uint32_t n = 0; n < receives_of_each(&sink->options); n++) {
			NTSTATUS status = NdkReceive(sink->qp[i], NULL, &sge, 1);

			if (!NT_SUCCESS(status))
				return sink_complain("posting a receive", status);
		}
	}
	return true;
}

bool sink_open(struct sink *sink)
{
	return open_domain(sink) && open_memory(sink) && open_queue_pairs(sink) &&
	       post_receives(sink) && open_windows(sink);
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool choose_local(struct sink *sink)
{
	struct sockaddr_storage addresses[16];
	ULONG count = 16;

	if (!NT_SUCCESS(OrielQueryAddresses(sink->adapter, addresses, &count)))
		count = 0;
	for (ULONG i = 0; i < count && i < 16; i++) {
		if (addresses[i].ss_family == sink->options.peer.ss_family) {
			sink->local = addresses[i];
			return true;
		}
	}
	fprintf(stderr, "oriel-sink: the daemon has no address of --peer's family\n");
	return false;
}

static NTSTATUS connect_one(struct sink *sink, uint32_t index, NDK_FN_REQUEST_COMPLETION completion,
			    PVOID context)
{
	ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.RemoteQpNumber = FIRST_QPN + index,
		.SendPsn = sink->psn[index],
		.ReceivePsn = sink->psn[index],
		.PathMtu = sink->options.path_mtu,
		.InboundReadLimit = 16,
		.OutboundReadLimit = 0,
		.Timeout = 18,
		.RetryCount = 7,
		.RnrRetryCount = 7,
		.MinRnrTimer = 6,
		.HopLimit = 64,
		.LocalAddress = (PSOCKADDR)&sink->local,
		.RemoteAddress = (PSOCKADDR)&sink->options.peer,
	};

	return OrielConnectQp(sink->qp[index], &connection, completion, context);
}

/* The first waits for the generator to be there: nobody else knows its Ethernet address. */
static bool connect_first(struct sink *sink)
{
	NTSTATUS status = STATUS_HOST_UNREACHABLE;
	bool told = false;

	while (!sink_stop && status == STATUS_HOST_UNREACHABLE) {
		struct sync sync = sync_begin(sink->adapter);

		status = sync_end(&sync, connect_one(sink, 0, sync_requested, &sync));
		if (status != STATUS_HOST_UNREACHABLE)
			break;
		if (!told)
			fputs("oriel-sink: nobody answers for the address of --peer yet: start "
			      "oriel-flood with the same --table\n",
			      stderr);
		told = true;
		OrielWait(sink->adapter, 50);
	}
	if (sink_stop)
		return false;
	return NT_SUCCESS(status) || sink_complain("connecting queue pair 0", status);
}

bool sink_connect(struct sink *sink)
{
	if (!choose_local(sink) || !connect_first(sink))
		return false;
	for (uint32_t i = 1; i < sink->options.qps; i++) {
		NTSTATUS status = connect_one(sink, i, on_requested, sink);

		if (!begun(sink, NULL, status))
			return sink_complain("connecting queue pairs", sink->failed);
	}
	return settle(sink, 0) || sink_complain("connecting queue pairs", sink->failed);
}
