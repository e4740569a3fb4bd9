/* SPDX-License-Identifier: BSD-3-Clause */
/* A session with the daemon: its objects, and waiting for completions. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/advice.h"
#include "common/sync.h"
#include "oriel-perf/peer.h"

#define SPINS       200            /* empty looks at the CQ before sleeping */
#define MUCH_MEMORY (256ull << 20) /* from here on the taking is said, and refused if need be */

bool session_complain(const char *what, NTSTATUS status)
{
	fprintf(stderr, "oriel-perf: %s: %s%s\n", what, OrielStatusName(status), advice_on(status));
	return false;
}

static void on_notify(PVOID context, NTSTATUS status)
{
	struct session *session = context;

	session->armed = false;
	if (!NT_SUCCESS(status))
		session->disconnected = true;
}

/* --- set-up ---------------------------------------------------------------------------- */

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
					  &((const struct sockaddr_in6 *)b)->sin6_addr);
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* Says which address it is that the daemon does not have. */
static bool complain_of_local(const struct sockaddr_storage *local)
{
	char text[NI_MAXHOST] = "?";

	getnameinfo((const struct sockaddr *)local, sizeof(*local), text, sizeof(text), NULL, 0,
		    NI_NUMERICHOST);
	fprintf(stderr, "oriel-perf: --local %s: the daemon has no such address\n", text);
	return false;
}

static bool choose_local(struct session *session)
{
	struct session_options *options = &session->options;
	struct sockaddr_storage addresses[16];
	ULONG count = 16;

	if (!NT_SUCCESS(OrielQueryAddresses(session->adapter, addresses, &count)))
		count = 0;
	if (options->local.ss_family) {
		if (!count)
			return true; /* whoever connects will see */
		for (ULONG i = 0; i < count && i < 16; i++)
			if (same_address(&addresses[i], &options->local))
				return true;
		return complain_of_local(&options->local);
	}
	if (options->indexed && options->local_index < count)
		options->local = addresses[options->local_index];
	if (options->indexed) {
		if (options->local.ss_family)
			return true;
		fprintf(stderr, "oriel-perf: --gid-index %u: the daemon has %u addresses\n",
			options->local_index, count);
		return false;
	}
	for (ULONG i = 0; i < count && i < 16; i++) {
		if (addresses[i].ss_family == options->family || !options->family) {
			options->local = addresses[i];
			return true;
		}
	}
	fprintf(stderr, "oriel-perf: the daemon has no %saddress\n",
		options->family == AF_INET6 ? "IPv6 "
		: options->family           ? "IPv4 "
					    : "");
	return false;
}

/* More than the daemon has is refused here, where the flag to change is known. */
static bool check_limits(struct session *session)
{
	const struct session_options *options = &session->options;
	uint64_t entries = (uint64_t)options->queue_pairs *
				   (options->depth + (uint64_t)options->receive_depth) +
			   16;
	NDK_ADAPTER_INFO info = { .Version = { 1, 2 } };
	ULONG size = sizeof(info);
	NTSTATUS status = NdkQueryAdapterInfo(session->adapter, &info, &size);

	if (!NT_SUCCESS(status))
		return session_complain("limits of the daemon", status);
	if (options->depth > info.MaxInitiatorQueueDepth ||
	    options->receive_depth > info.MaxReceiveQueueDepth) {
		fprintf(stderr,
			"oriel-perf: queues of %u and %u: the daemon has at most %u and %u\n",
			options->depth, options->receive_depth, info.MaxInitiatorQueueDepth,
			info.MaxReceiveQueueDepth);
		return false;
	}
	if (entries <= info.MaxCqDepth)
		return true;
	fprintf(stderr,
		"oriel-perf: %u queue pairs of %u + %u requests need a completion queue of %llu, "
		"the "
		"daemon has at most %u: lower --tx-depth or --qp\n",
		options->queue_pairs, options->depth, options->receive_depth,
		(unsigned long long)entries, info.MaxCqDepth);
	return false;
}

static bool open_objects(struct session *session)
{
	const struct session_options *options = &session->options;
	ULONG depth = options->queue_pairs * (options->depth + options->receive_depth) + 16;
	struct sync sync = sync_begin(session->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreatePd(session->adapter, sync_created, &sync, &session->pd));
	if (!NT_SUCCESS(status))
		return session_complain("protection domain", status);
	session->pd = sync_object(&sync, session->pd);
	sync = sync_begin(session->adapter);
	status = sync_end(&sync, NdkCreateCq(session->adapter, depth, on_notify, session, NULL,
					     sync_created, &sync, &session->cq));
	if (!NT_SUCCESS(status))
		return session_complain("completion queue", status);
	session->cq = sync_object(&sync, session->cq);
	return true;
}

/* Bytes that may be taken without driving anybody out; more than there are where nobody tells. */
static uint64_t memory_free(void)
{
	unsigned long long kib = UINT64_MAX >> 10;
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return (uint64_t)kib << 10;
}

/* Registering touches every page: a machine that has them not would end somebody. */
static bool check_memory(uint64_t bytes)
{
	uint64_t there;

	if (bytes < MUCH_MEMORY)
		return true;
	there = memory_free();
	fprintf(stderr, "oriel-perf: messages of that size take %llu MiB of memory here",
		(unsigned long long)(bytes >> 20));
	if (bytes <= there) {
		fputc('\n', stderr);
		return true;
	}
	fprintf(stderr, ", and %llu MiB are free: lower --size\n",
		(unsigned long long)(there >> 20));
	return false;
}

static bool open_memory(struct session *session)
{
	const struct session_options *options = &session->options;
	struct sync sync = sync_begin(session->adapter);
	uint64_t bytes = 2 * options->memory + options->extra;
	NTSTATUS status;

	if (!check_memory(bytes))
		return false;
	status = OrielAllocateMemory(bytes, ORIEL_MEMORY_HUGE_PAGES, &session->mdl);
	if (!NT_SUCCESS(status))
		return session_complain("memory", status);
	session->source = session->mdl->StartVa;
	session->sink = session->source + options->memory;
	session->extra = session->sink + options->memory;
	status =
		sync_end(&sync, NdkCreateMr(session->pd, FALSE, sync_created, &sync, &session->mr));
	if (!NT_SUCCESS(status))
		return session_complain("memory region", status);
	session->mr = sync_object(&sync, session->mr);
	sync = sync_begin(session->adapter);
	status =
		sync_end(&sync, NdkRegisterMr(session->mr, session->mdl, bytes,
					      NDK_MR_FLAG_ALLOW_LOCAL_WRITE | options->region_flags,
					      sync_requested, &sync));
	if (!NT_SUCCESS(status))
		return session_complain("registering memory", status);
	session->local_token = NdkGetLocalTokenFromMr(session->mr);
	session->remote_token = NdkGetRemoteTokenFromMr(session->mr);
	return true;
}

static bool open_queue_pair(struct session *session, struct peer *peer)
{
	const struct session_options *options = &session->options;
	const ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
						 .Type = options->type,
						 .ReceiveCq = session->cq,
						 .InitiatorCq = session->cq,
						 .QPContext = peer,
						 .ReceiveQueueDepth = options->receive_depth,
						 .InitiatorQueueDepth = options->depth,
						 .MaxReceiveRequestSge = 1,
						 .MaxInitiatorRequestSge = 1,
						 .InlineDataSize = options->inline_size };
	struct sync sync = sync_begin(session->adapter);
	NTSTATUS status;

	status = sync_end(&sync,
			  OrielCreateQp(session->pd, &parameters, sync_created, &sync, &peer->qp));
	if (!NT_SUCCESS(status)) {
		peer->qp = NULL;
		return session_complain("queue pair", status);
	}
	peer->qp = sync_object(&sync, peer->qp);
	return true;
}

static bool open_queue_pairs(struct session *session)
{
	session->peers = calloc(session->options.queue_pairs, sizeof(*session->peers));
	if (!session->peers)
		return session_complain("connections", STATUS_NO_MEMORY);
	for (uint32_t i = 0; i < session->options.queue_pairs; i++) {
		session->peers[i].session = session;
		session->peers[i].index = i;
		if (!open_queue_pair(session, &session->peers[i]))
			return false;
	}
	return true;
}

static bool is_in_process(const char *socket)
{
	const char *named = socket ? socket : getenv("ORIEL_SOCKET");

	return named && !strncmp(named, ORIEL_IN_PROCESS, strlen(ORIEL_IN_PROCESS));
}

bool session_open(struct session *session, const struct session_options *options)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Socket = options->socket };
	NTSTATUS status;

	*session = (struct session){ .options = *options };
	status = OrielOpenAdapter(&parameters, &session->adapter);
	if (!NT_SUCCESS(status)) {
		session->adapter = NULL;
		fprintf(stderr, "oriel-perf: no session with a data plane: %s%s\n",
			OrielOpenErrorText(),
			is_in_process(options->socket)
				? ""
				: " (-d or ORIEL_SOCKET names orield's socket)");
		return false;
	}
	return choose_local(session) && check_limits(session) && open_objects(session) &&
	       open_memory(session) && open_queue_pairs(session);
}

void session_close(struct session *session)
{
	if (session->adapter)
		OrielCloseAdapter(session->adapter);
	if (session->mdl)
		OrielFreeMemory(session->mdl);
	free(session->peers);
	*session = (struct session){ 0 };
}

/* --- waiting ------------------------------------------------------------------------------- */

static int64_t milliseconds_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Entries that come between the look and the arm satisfy the arm at once. */
static bool sleep_a_while(struct session *session, int milliseconds)
{
	if (!session->armed) {
		session->armed = true;
		NdkArmCq(session->cq, NDK_CQ_NOTIFY_ANY);
	}
	return OrielProgress(session->adapter) ||
	       NT_SUCCESS(OrielWait(session->adapter, milliseconds));
}

bool session_results_until(struct session *session, NDK_RESULT_EX *results, ULONG room,
			   ULONG *count, int milliseconds)
{
	int64_t end = milliseconds > 0 ? milliseconds_now() + milliseconds : INT64_MAX;
	int64_t left = 1000;

	for (unsigned int spins = 1;; spins++) {
		*count = NdkGetCqResultsEx(session->cq, results, room);
		if (*count || !milliseconds)
			return true;
		if (session->disconnected)
			return false;
		if (spins % 64 && (session->options.poll || spins < SPINS))
			continue;
		if (end != INT64_MAX) {
			left = end - milliseconds_now();
			if (left <= 0)
				return true;
		}
		if (session->options.poll || spins < SPINS)
			OrielProgress(session->adapter);
		else if (!sleep_a_while(session, (int)left))
			return false;
	}
}

bool session_results(struct session *session, NDK_RESULT_EX *results, ULONG room, ULONG *count)
{
	return session_results_until(session, results, room, count, -1);
}
