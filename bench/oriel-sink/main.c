/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-sink: what oriel-flood sends to. Many queue pairs, connected by number, and many windows on
 * one region; a table of both for the generator; receives posted anew; windows bound and
 * invalidated as fast as asked.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <ndk/ndk.h>

#include "common/sync.h"

#define FIRST_QPN    0x10000u /* oriel-flood's */
#define SEND_DEPTH   64u
#define RECEIVES     128u
#define FEW          4096u /* queue pairs; with more each has short queues */
#define SHORT_SENDS  4u
#define MOST_RESULTS 262144u /* of a completion queue */
#define RESULTS      64u
#define REQUESTS     512u /* under way at a time while objects are made */
#define CONNECT_MS   10000
#define CHURN_DEPTH  32u
#define PSN_MASK     0xffffffu
#define MEMORY_ALIGN 64u

static const char usage[] =
	"Usage: oriel-sink --peer ADDR --table FILE [options]\n"
	"Queue pairs and windows for oriel-flood, in a table that it reads. Runs until SIGTERM.\n\n"
	"      --peer ADDR      oriel-flood's address\n"
	"      --table FILE     written when all is ready\n"
	"  -q, --qps N          queue pairs (default 1)\n"
	"  -w, --windows N      windows (default 1)\n"
	"  -s, --size BYTES     of each window (default 4096)\n"
	"      --memory BYTES   region that the windows share (default 16777216)\n"
	"  -m, --path-mtu N     256 to 4096 (default 1024)\n"
	"      --receive BYTES  post receives of that size (default: none)\n"
	"      --churn          bind and invalidate further windows as fast as can be\n"
	"      --progress       ten times a second: when it is, and how many binds there were\n"
	"      --seconds N      end by itself\n"
	"      --version, -h, --help\n\n"
	"The daemon is found through $ORIEL_SOCKET, else /run/oriel/ndk.sock. With\n"
	"in-process:FILE instead of a socket there is none.\n";

struct options {
	struct sockaddr_storage peer;
	const char *table;
	uint32_t qps, windows, path_mtu, receive;
	uint64_t size, memory;
	double seconds;
	bool churn, progress;
};

struct sink {
	struct options options;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr;
	MDL *mdl;
	uint8_t *memory;
	NDK_QP **qp;
	NDK_MW **mw;
	uint32_t *psn;
	struct sockaddr_storage local;
	uint32_t pending; /* requests of libndk, or work requests */
	NTSTATUS failed;  /* first of them that did */
	uint64_t received, binds, binds_failed;
	uint32_t churn_next, churn_out;
};

static volatile sig_atomic_t stop;

static bool complain(const char *what, NTSTATUS status)
{
	fprintf(stderr, "oriel-sink: %s: %s\n", what, OrielStatusName(status));
	return false;
}

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
	while (sink->pending > limit && NT_SUCCESS(sink->failed) && !stop) {
		if (OrielProgress(sink->adapter))
			continue;
		if (OrielWait(sink->adapter, CONNECT_MS) == STATUS_TIMEOUT)
			sink->failed = STATUS_IO_TIMEOUT;
	}
	return NT_SUCCESS(sink->failed) && !stop;
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
static uint32_t receives_of_each(const struct options *o)
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
		return complain("protection domain", status);
	sync = sync_begin(sink->adapter);
	status = sync_end(&sync, NdkCreateCq(sink->adapter, depth, NULL, NULL, NULL, sync_created,
					     &sync, &sink->cq));
	sink->cq = sync_object(&sync, sink->cq);
	return NT_SUCCESS(status) || complain("completion queue", status);
}

static bool open_memory(struct sink *sink)
{
	const ULONG flags = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ |
			    NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
	struct sync sync = sync_begin(sink->adapter);
	NTSTATUS status;

	status = OrielAllocateMemory(sink->options.memory, ORIEL_MEMORY_HUGE_PAGES, &sink->mdl);
	if (!NT_SUCCESS(status))
		return complain("memory", status);
	sink->memory = sink->mdl->StartVa;
	status = sync_end(&sync, NdkCreateMr(sink->pd, FALSE, sync_created, &sync, &sink->mr));
	sink->mr = sync_object(&sync, sink->mr);
	if (!NT_SUCCESS(status))
		return complain("memory region", status);
	sync = sync_begin(sink->adapter);
	status = sync_end(&sync, NdkRegisterMr(sink->mr, sink->mdl, sink->options.memory, flags,
					       sync_requested, &sync));
	return NT_SUCCESS(status) || complain("registering memory", status);
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
			return complain("queue pair", sink->failed);
	}
	return settle(sink, 0) || complain("queue pairs", sink->failed);
}

static bool open_windows(struct sink *sink)
{
	const uint32_t count = sink->options.windows + (sink->options.churn ? CHURN_DEPTH : 0);

	for (uint32_t i = 0; i < count; i++) {
		struct place *place = place_of(sink, (void **)&sink->mw[i]);

		if (!place ||
		    !begun(sink, place, NdkCreateMw(sink->pd, on_created, place, &sink->mw[i])))
			return complain("window", sink->failed);
	}
	return settle(sink, 0) || complain("windows", sink->failed);
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

	while (!stop && status == STATUS_HOST_UNREACHABLE) {
		struct sync sync = sync_begin(sink->adapter);

		status = sync_end(&sync, connect_one(sink, 0, sync_requested, &sync));
		if (status == STATUS_HOST_UNREACHABLE)
			OrielWait(sink->adapter, 50);
	}
	return NT_SUCCESS(status) || complain("connecting queue pair 0", status);
}

static bool connect_all(struct sink *sink)
{
	if (!choose_local(sink) || !connect_first(sink))
		return false;
	for (uint32_t i = 1; i < sink->options.qps; i++) {
		NTSTATUS status = connect_one(sink, i, on_requested, sink);

		if (!begun(sink, NULL, status))
			return complain("connecting queue pairs", sink->failed);
	}
	return settle(sink, 0) || complain("connecting queue pairs", sink->failed);
}

/* --- windows ---------------------------------------------------------------------------------- */

static uint8_t *window_address(const struct sink *sink, uint32_t index)
{
	uint64_t places = (sink->options.memory - sink->options.size) / MEMORY_ALIGN + 1;

	return sink->memory + (uint64_t)index * 2654435761u % places * MEMORY_ALIGN;
}

static bool take_results(struct sink *sink)
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

/* Binds go round the queue pairs; what has no room or no token waits for completions. */
static bool bind_one(struct sink *sink, uint32_t index, ULONG flags)
{
	NDK_QP *qp = sink->qp[index % sink->options.qps];
	NTSTATUS status;

	for (;;) {
		status = NdkBind(qp, NULL, sink->mr, sink->mw[index], window_address(sink, index),
				 sink->options.size,
				 flags | NDK_OP_FLAG_ALLOW_REMOTE_READ |
					 NDK_OP_FLAG_ALLOW_REMOTE_WRITE |
					 ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC);
		if ((status != STATUS_NO_MORE_ENTRIES && status != STATUS_INSUFFICIENT_RESOURCES) ||
		    stop)
			return NT_SUCCESS(status) || complain("binding a window", status);
		/* The daemon may need this processor to go on. */
		if (!OrielProgress(sink->adapter) && !take_results(sink))
			OrielWait(sink->adapter, 1);
	}
}

static bool bind_all(struct sink *sink)
{
	for (uint32_t i = 0; i < sink->options.windows; i++) {
		if (!bind_one(sink, i, 0))
			return false;
		sink->pending++;
		while (sink->pending > 1024)
			if (!take_results(sink))
				OrielProgress(sink->adapter);
	}
	while (sink->pending && !stop)
		if (!take_results(sink))
			OrielProgress(sink->adapter);
	if (sink->binds_failed)
		fprintf(stderr, "oriel-sink: %" PRIu64 " windows could not be bound\n",
			sink->binds_failed);
	return sink->binds_failed == 0 && !stop;
}

static bool churn(struct sink *sink)
{
	uint32_t index = sink->options.windows + sink->churn_next;
	NDK_QP *qp = sink->qp[index % sink->options.qps];

	if (sink->churn_out == CHURN_DEPTH)
		return false;
	if (!bind_one(sink, index, NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER))
		return false;
	while (NdkInvalidate(qp, NULL, &sink->mw[index]->Header, 0) == STATUS_NO_MORE_ENTRIES &&
	       !stop)
		take_results(sink);
	sink->binds++;
	sink->churn_out++;
	sink->churn_next = (sink->churn_next + 1) % CHURN_DEPTH;
	return true;
}

/* --- receives, table, the rest ---------------------------------------------------------------- */

static bool post_receives(struct sink *sink)
{
	const NDK_SGE sge = { .VirtualAddress = sink->memory,
			      .Length = sink->options.receive,
			      .MemoryRegionToken = NdkGetLocalTokenFromMr(sink->mr) };

	for (uint32_t i = 0; sink->options.receive && i < sink->options.qps; i++) {
		for (uint32_t n = 0; n < receives_of_each(&sink->options); n++) {
			NTSTATUS status = NdkReceive(sink->qp[i], NULL, &sge, 1);

			if (!NT_SUCCESS(status))
				return complain("posting a receive", status);
		}
	}
	return true;
}

/* Complete or not there at all: the generator waits for the name. */
static bool write_table(const struct sink *sink)
{
	char temporary[512];
	FILE *file;

	snprintf(temporary, sizeof(temporary), "%s.part", sink->options.table);
	file = fopen(temporary, "we");
	if (!file) {
		fprintf(stderr, "oriel-sink: %s: %s\n", temporary, strerror(errno));
		return false;
	}
	fprintf(file, "mtu %u\n", sink->options.path_mtu);
	for (uint32_t i = 0; i < sink->options.qps; i++)
		fprintf(file, "qp %8u %8u\n", OrielGetQpNumber(sink->qp[i]), sink->psn[i]);
	for (uint32_t i = 0; i < sink->options.windows; i++)
		fprintf(file, "window %" PRIu64 " %u %" PRIu64 "\n",
			(uint64_t)(uintptr_t)window_address(sink, i),
			NdkGetRemoteTokenFromMw(sink->mw[i]), sink->options.size);
	if (fclose(file) || rename(temporary, sink->options.table)) {
		fprintf(stderr, "oriel-sink: %s: %s\n", sink->options.table, strerror(errno));
		return false;
	}
	return true;
}

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void serve(struct sink *sink)
{
	const uint64_t binds = sink->binds;
	const double start = seconds_now();
	const double end = sink->options.seconds > 0 ? start + sink->options.seconds : 1e300;

	double now, next = start;

	while (!stop && (now = seconds_now()) < end) {
		bool busy = take_results(sink);

		if (sink->options.progress && now >= next) {
			printf("%.3f %" PRIu64 "\n", now, sink->binds);
			fflush(stdout);
			next = now + 0.1;
		}

		busy |= OrielProgress(sink->adapter) != 0;
		if (sink->options.churn)
			for (unsigned int i = 0; i < CHURN_DEPTH && churn(sink); i++)
				busy = true;
		if (!busy && !sink->options.churn && !sink->options.receive)
			OrielWait(sink->adapter, 100);
	}
	printf("oriel-sink: %" PRIu64 " messages received, %.0f binds and invalidates a second\n",
	       sink->received,
	       sink->options.churn ? (double)(sink->binds - binds) / (seconds_now() - start) : 0);
}

static bool run(struct sink *sink)
{
	const struct options *o = &sink->options;

	sink->qp = calloc(o->qps, sizeof(NDK_QP *));
	sink->mw = calloc(o->windows + CHURN_DEPTH, sizeof(NDK_MW *));
	sink->psn = calloc(o->qps, sizeof(*sink->psn));
	if (!sink->qp || !sink->mw || !sink->psn)
		return complain("tables", STATUS_NO_MEMORY);
	/* One of an earlier run would be believed. */
	if (unlink(o->table) && errno != ENOENT) {
		fprintf(stderr, "oriel-sink: %s: %s\n", o->table, strerror(errno));
		return false;
	}
	for (uint32_t i = 0; i < o->qps; i++) {
		if (getrandom(&sink->psn[i], sizeof(sink->psn[i]), 0) < 0)
			return complain("random PSNs", STATUS_INTERNAL_ERROR);
		sink->psn[i] &= PSN_MASK;
	}
	if (!open_domain(sink) || !open_memory(sink) || !open_queue_pairs(sink) ||
	    !post_receives(sink) || !open_windows(sink) || !connect_all(sink) || !bind_all(sink) ||
	    !write_table(sink))
		return false;
	printf("oriel-sink: ready, %u queue pairs, %u windows\n", o->qps, o->windows);
	fflush(stdout);
	serve(sink);
	return true;
}

/* --- options ---------------------------------------------------------------------------------- */

enum {
	OPTION_PEER = 256,
	OPTION_TABLE,
	OPTION_MEMORY,
	OPTION_RECEIVE,
	OPTION_CHURN,
	OPTION_PROGRESS,
	OPTION_SECONDS,
	OPTION_VERSION
};

static bool take_number(const char *option, uint64_t minimum, uint64_t maximum, uint64_t *value)
{
	char *end;

	*value = strtoull(optarg, &end, 10);
	if (optarg[0] >= '0' && optarg[0] <= '9' && !*end && *value >= minimum && *value <= maximum)
		return true;
	fprintf(stderr, "oriel-sink: --%s %s: expected a number from %" PRIu64 " to %" PRIu64 "\n",
		option, optarg, minimum, maximum);
	return false;
}

static bool take_small(const char *option, uint32_t minimum, uint32_t maximum, uint32_t *value)
{
	uint64_t number;

	if (!take_number(option, minimum, maximum, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

static bool take_peer(struct sockaddr_storage *peer)
{
	struct sockaddr_in *in = (struct sockaddr_in *)peer;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)peer;

	if (inet_pton(AF_INET, optarg, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, optarg, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		return true;
	}
	fprintf(stderr, "oriel-sink: --peer %s: expected an IP address\n", optarg);
	return false;
}

static bool take_option(int option, struct options *o)
{
	uint64_t number;

	switch (option) {
	case OPTION_PEER: return take_peer(&o->peer);
	case OPTION_TABLE: o->table = optarg; return true;
	case 'q': return take_small("qps", 1, 100000, &o->qps);
	case 'w': return take_small("windows", 1, 1000000, &o->windows);
	case 's': return take_number("size", 8, 1u << 30, &o->size);
	case OPTION_MEMORY: return take_number("memory", 4096, 1ull << 36, &o->memory);
	case 'm': return take_small("path-mtu", 256, 4096, &o->path_mtu);
	case OPTION_RECEIVE: return take_small("receive", 1, 1u << 20, &o->receive);
	case OPTION_CHURN: o->churn = true; return true;
	case OPTION_PROGRESS: o->progress = true; return true;
	case OPTION_SECONDS:
		if (!take_number("seconds", 1, 86400, &number))
			return false;
		o->seconds = (double)number;
		return true;
	case OPTION_VERSION: puts("oriel-sink " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	default: fputs("See oriel-sink --help.\n", stderr); return false;
	}
}

static bool parse(int argc, char *argv[], struct options *o)
{
	static const struct option options[] = {
		{ "peer", required_argument, NULL, OPTION_PEER },
		{ "table", required_argument, NULL, OPTION_TABLE },
		{ "qps", required_argument, NULL, 'q' },
		{ "windows", required_argument, NULL, 'w' },
		{ "size", required_argument, NULL, 's' },
		{ "memory", required_argument, NULL, OPTION_MEMORY },
		{ "path-mtu", required_argument, NULL, 'm' },
		{ "receive", required_argument, NULL, OPTION_RECEIVE },
		{ "churn", no_argument, NULL, OPTION_CHURN },
		{ "progress", no_argument, NULL, OPTION_PROGRESS },
		{ "seconds", required_argument, NULL, OPTION_SECONDS },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int option;

	*o = (struct options){
		.qps = 1, .windows = 1, .path_mtu = 1024, .size = 4096, .memory = 16u << 20
	};
	while ((option = getopt_long(argc, argv, "q:w:s:m:h", options, NULL)) != -1)
		if (!take_option(option, o))
			return false;
	if (optind < argc || !o->table || !o->peer.ss_family) {
		fputs("oriel-sink: --peer and --table are needed, and nothing else than options\n",
		      stderr);
		return false;
	}
	if (o->size > o->memory || o->receive > o->memory || (o->path_mtu & (o->path_mtu - 1))) {
		fputs("oriel-sink: --size and --receive must fit --memory, and --path-mtu must be "
		      "a "
		      "power of two\n",
		      stderr);
		return false;
	}
	return true;
}

static void on_signal(int signal)
{
	stop = 1;
}

int main(int argc, char *argv[])
{
	struct sink sink = { 0 };
	bool good;

	if (!parse(argc, argv, &sink.options))
		return 2;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	good = run(&sink);
	if (sink.adapter)
		OrielCloseAdapter(sink.adapter);
	if (sink.mdl)
		OrielFreeMemory(sink.mdl);
	free(sink.qp);
	free(sink.mw);
	free(sink.psn);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
