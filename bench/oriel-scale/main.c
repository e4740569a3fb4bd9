/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-scale: many connections between two daemons of this machine, few of them busy. Says how
 * many messages a second the busy ones get, and waits in between for whoever looks at the daemons'
 * memory.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ndk/ndk.h>

#include "common/argument.h"
#include "common/sync.h"

#define MOST_QPS   12000u
#define UNDER_WAY  64u /* requests to a daemon */
#define QUEUE      16u /* messages that a busy queue pair has under way */
#define MEMORY     65536u
#define MESSAGE    8u
#define RESULTS    64u
#define PATIENCE   10000 /* ms */
#define SPINS      50u   /* looks before sleeping */
#define READ_LIMIT 16u

static const char usage[] =
	"Usage: oriel-scale --socket PATH --peer-socket PATH [options]\n"
	"Connects queue pairs of one daemon with those of another, writes 8 bytes at a time "
	"through\n"
	"some of them, and prints messages per second.\n\n"
	"      --socket PATH       the daemon that is looked at; --peer-socket PATH: the other\n"
	"  -q, --qps N             connections (default 64)\n"
	"  -a, --active N          of them busy (default 64)\n"
	"  -D, --duration SECONDS  (default 3)\n"
	"      --pause             say 'open' when all are connected, go on after a line of input\n"
	"      --version, -h, --help\n";

struct side {
	const char *socket;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr;
	MDL *mdl;
	NDK_QP *qp[MOST_QPS];
	struct sockaddr_storage address;
	uint32_t pending;
	NTSTATUS failed; /* first request that did */
	bool armed;
};

struct options {
	uint32_t qps, active, seconds;
	bool pause;
};

/* One of many requests; its object goes to its place. */
struct request {
	struct side *side;
	NDK_QP **qp;
};

static bool complain(const char *what, NTSTATUS status)
{
	fprintf(stderr, "oriel-scale: %s: %s\n", what, OrielStatusName(status));
	return false;
}

static void ended(struct side *side, NTSTATUS status)
{
	side->pending--;
	if (!NT_SUCCESS(status) && NT_SUCCESS(side->failed))
		side->failed = status;
}

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct request *request = context;

	if (NT_SUCCESS(status))
		*request->qp = (NDK_QP *)(void *)object;
	ended(request->side, status);
	free(request);
}

static void on_notify(PVOID context, NTSTATUS status)
{
	struct side *side = context;

	side->armed = false;
	if (!NT_SUCCESS(status))
		side->failed = status;
}

static void on_requested(PVOID context, NTSTATUS status)
{
	ended(context, status);
}

/* Until at most so many requests are under way. */
static bool settle(struct side *side, uint32_t limit)
{
	while (side->pending > limit && NT_SUCCESS(side->failed)) {
		if (OrielProgress(side->adapter))
			continue;
		if (!NT_SUCCESS(OrielWait(side->adapter, PATIENCE)))
			side->failed = STATUS_IO_TIMEOUT;
	}
	return NT_SUCCESS(side->failed) || complain("a request", side->failed);
}

/* --- objects -------------------------------------------------------------------------- */

static bool open_memory(struct side *side)
{
	const ULONG rights = NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
	struct sync sync = sync_begin(side->adapter);
	NTSTATUS status = OrielAllocateMemory(MEMORY, 0, &side->mdl);

	if (!NT_SUCCESS(status))
		return complain("memory", status);
	status = sync_end(&sync, NdkCreateMr(side->pd, FALSE, sync_created, &sync, &side->mr));
	side->mr = sync_object(&sync, side->mr);
	if (!NT_SUCCESS(status))
		return complain("memory region", status);
	sync = sync_begin(side->adapter);
	status = sync_end(
		&sync, NdkRegisterMr(side->mr, side->mdl, MEMORY, rights, sync_requested, &sync));
	return NT_SUCCESS(status) || complain("registering memory", status);
}

static bool open_side(struct side *side)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Socket = side->socket };
	NTSTATUS status = OrielOpenAdapter(&parameters, &side->adapter);
	ULONG count = 1;
	struct sync sync;

	if (!NT_SUCCESS(status)) {
		fprintf(stderr, "oriel-scale: %s: %s\n", side->socket, OrielOpenErrorText());
		return false;
	}
	status = OrielQueryAddresses(side->adapter, &side->address, &count);
	if (!NT_SUCCESS(status) && count == 0)
		return complain("addresses", status);
	sync = sync_begin(side->adapter);
	status = sync_end(&sync, NdkCreatePd(side->adapter, sync_created, &sync, &side->pd));
	side->pd = sync_object(&sync, side->pd);
	if (!NT_SUCCESS(status))
		return complain("protection domain", status);
	sync = sync_begin(side->adapter);
	status = sync_end(&sync, NdkCreateCq(side->adapter, 65536, on_notify, side, NULL,
					     sync_created, &sync, &side->cq));
	side->cq = sync_object(&sync, side->cq);
	if (!NT_SUCCESS(status))
		return complain("completion queue", status);
	return open_memory(side);
}

static bool open_qp(struct side *side, uint32_t index)
{
	struct request *request = malloc(sizeof(*request));
	NTSTATUS status = STATUS_NO_MEMORY;

	if (request) {
		*request = (struct request){ side, &side->qp[index] };
		status = NdkCreateQp(side->pd, side->cq, side->cq, NULL, 1, QUEUE, 1, 1, 0,
				     on_created, request, &side->qp[index]);
	}
	if (status == STATUS_PENDING) {
		side->pending++;
		return settle(side, UNDER_WAY);
	}
	free(request);
	return NT_SUCCESS(status) || complain("queue pair", status);
}

static NTSTATUS connect_qp(struct side *side, const struct side *peer, uint32_t index,
			   NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	const ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.RemoteQpNumber = OrielGetQpNumber(peer->qp[index]),
		.SendPsn = 0,
		.ReceivePsn = 0,
		.InboundReadLimit = READ_LIMIT,
		.OutboundReadLimit = READ_LIMIT,
		.Timeout = 14,
		.RetryCount = 7,
		.RnrRetryCount = 7,
		.MinRnrTimer = 12,
		.LocalAddress = (PSOCKADDR)(void *)(uintptr_t)&side->address,
		.RemoteAddress = (PSOCKADDR)(void *)(uintptr_t)&peer->address,
	};

	return OrielConnectQp(side->qp[index], &connection, completion, context);
}

static bool connect_all(struct side *side, const struct side *peer, uint32_t qps)
{
	struct sync sync = sync_begin(side->adapter);
	NTSTATUS status = sync_end(&sync, connect_qp(side, peer, 0, sync_requested, &sync));

	if (!NT_SUCCESS(status))
		return complain("connecting the first queue pair", status);
	for (uint32_t i = 1; i < qps; i++) {
		status = connect_qp(side, peer, i, on_requested, side);
		if (status == STATUS_PENDING) {
			side->pending++;
			if (!settle(side, UNDER_WAY))
				return false;
		} else if (!NT_SUCCESS(status)) {
			return complain("connecting", status);
		}
	}
	return settle(side, 0);
}

static bool open_all(struct side *side, struct side *peer, uint32_t qps)
{
	for (uint32_t i = 0; i < qps; i++)
		if (!open_qp(side, i) || !open_qp(peer, i))
			return false;
	return settle(side, 0) && settle(peer, 0) && connect_all(side, peer, qps) &&
	       connect_all(peer, side, qps);
}

/* --- messages ------------------------------------------------------------------------- */

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool post(struct side *side, const struct side *peer, uint32_t index)
{
	NDK_SGE sge = { .VirtualAddress = side->mdl->StartVa,
			.Length = MESSAGE,
			.MemoryRegionToken = NdkGetLocalTokenFromMr(side->mr) };
	NTSTATUS status = NdkWrite(side->qp[index], (PVOID)(uintptr_t)index, &sge, 1,
				   (uint64_t)(uintptr_t)peer->mdl->StartVa,
				   NdkGetRemoteTokenFromMr(peer->mr), 0);

	return NT_SUCCESS(status) || complain("posting", status);
}

/* Completions, at least one. The processor may be a daemon's as well: it sleeps if need be. */
static ULONG wait_results(struct side *side, NDK_RESULT *results)
{
	ULONG count = 0;

	for (unsigned int spins = 0; count == 0; spins++) {
		count = NdkGetCqResults(side->cq, results, RESULTS);
		if (count || spins < SPINS)
			continue;
		if (!side->armed) {
			side->armed = true;
			NdkArmCq(side->cq, NDK_CQ_NOTIFY_ANY);
		} else if (!OrielProgress(side->adapter) &&
			   (!NT_SUCCESS(OrielWait(side->adapter, PATIENCE)) ||
			    !NT_SUCCESS(side->failed))) {
			break;
		}
	}
	return count;
}

static bool take(struct side *side, const struct side *peer, bool again, uint64_t *messages)
{
	NDK_RESULT results[RESULTS];
	ULONG count = wait_results(side, results);

	if (count == 0)
		return complain("waiting for messages", STATUS_IO_TIMEOUT);

	for (ULONG i = 0; i < count; i++) {
		if (!NT_SUCCESS(results[i].Status))
			return complain("a message", results[i].Status);
		if (again && !post(side, peer, (uint32_t)(uintptr_t)results[i].RequestContext))
			return false;
	}
	*messages += count;
	return true;
}

static bool run(struct side *side, const struct side *peer, const struct options *options)
{
	const uint64_t under_way = (uint64_t)options->active * QUEUE;
	uint64_t messages = 0, rest = 0;
	double start = seconds_now(), end = start + options->seconds;

	for (uint32_t n = 0; n < QUEUE; n++)
		for (uint32_t i = 0; i < options->active; i++)
			if (!post(side, peer, i * (options->qps / options->active)))
				return false;
	while (seconds_now() < end)
		if (!take(side, peer, true, &messages))
			return false;
	end = seconds_now();
	while (rest < under_way)
		if (!take(side, peer, false, &rest))
			return false;
	printf("%u connections, %u busy: %.0f messages of %u bytes a second\n", options->qps,
	       options->active, (double)messages / (end - start), MESSAGE);
	return true;
}

/* --- options -------------------------------------------------------------------------- */

static bool parse_options(int argc, char **argv, struct options *options, struct side *side,
			  struct side *peer)
{
	enum { OPTION_SOCKET = 256, OPTION_PEER, OPTION_PAUSE, OPTION_VERSION };
	static const struct option table[] = {
		{ "socket", required_argument, NULL, OPTION_SOCKET },
		{ "peer-socket", required_argument, NULL, OPTION_PEER },
		{ "qps", required_argument, NULL, 'q' },
		{ "active", required_argument, NULL, 'a' },
		{ "duration", required_argument, NULL, 'D' },
		{ "pause", no_argument, NULL, OPTION_PAUSE },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool good = true;
	int option;

	*options = (struct options){ .qps = 64, .active = 64, .seconds = 3 };
	while (good && (option = getopt_long(argc, argv, "q:a:D:h", table, NULL)) != -1) {
		switch (option) {
		case OPTION_SOCKET: side->socket = optarg; break;
		case OPTION_PEER: peer->socket = optarg; break;
		case 'q': good = argument_small("--qps", optarg, 1, MOST_QPS, &options->qps); break;
		case 'a':
			good = argument_small("--active", optarg, 1, MOST_QPS, &options->active);
			break;
		case 'D':
			good = argument_small("--duration", optarg, 1, 3600, &options->seconds);
			break;
		case OPTION_PAUSE: options->pause = true; break;
		case OPTION_VERSION: puts("oriel-scale " ORIEL_VERSION); exit(EXIT_SUCCESS);
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: good = false;
		}
	}
	return good && side->socket && peer->socket && optind == argc &&
	       options->active <= options->qps;
}

int main(int argc, char **argv)
{
	static struct side side, peer;
	struct options options;
	bool good;

	if (!parse_options(argc, argv, &options, &side, &peer)) {
		fputs(usage, stderr);
		return 2;
	}
	good = open_side(&side) && open_side(&peer) && open_all(&side, &peer, options.qps);
	if (good && options.pause) {
		puts("open");
		fflush(stdout);
		getchar();
	}
	good = good && run(&side, &peer, &options);
	if (side.adapter)
		OrielCloseAdapter(side.adapter);
	if (peer.adapter)
		OrielCloseAdapter(peer.adapter);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
