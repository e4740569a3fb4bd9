/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast windows of our own are bound and invalidated. */
#include <stdio.h>
#include <stdlib.h>

#include "common/sync.h"
#include "oriel-perf/run.h"

#define BATCH 64u

struct bind {
	struct way *way;
	const struct perf_options *options;
	struct run_result *result;
	NDK_MW **windows;
	uint32_t count;
	uint32_t pairs;        /* that may be under way */
	uint64_t posted, done; /* pairs */
	uint64_t *begun;       /* of those under way; ns */
};

static bool open_windows(struct bind *bind)
{
	struct session *session = &bind->way->session;

	bind->windows = calloc(bind->count, sizeof(NDK_MW *));
	bind->begun = calloc(bind->pairs, sizeof(*bind->begun));
	if (!bind->windows || !bind->begun)
		return session_complain("windows", STATUS_NO_MEMORY);
	for (uint32_t i = 0; i < bind->count; i++) {
		struct sync sync = sync_begin(session->adapter);
		NDK_MW *window = NULL;
		NTSTATUS status =
			sync_end(&sync, NdkCreateMw(session->pd, sync_created, &sync, &window));

		if (!NT_SUCCESS(status))
			return session_complain("window", status);
		bind->windows[i] = sync_object(&sync, window);
	}
	return true;
}

static void close_windows(struct bind *bind)
{
	for (uint32_t i = 0; bind->windows && i < bind->count && bind->windows[i]; i++) {
		struct sync sync = sync_begin(bind->way->session.adapter);
		NTSTATUS status = sync_end(&sync, NdkCloseMw(bind->windows[i], sync_closed, &sync));

		if (!NT_SUCCESS(status)) {
			session_complain("closing a window", status);
			break;
		}
	}
	free(bind->windows);
	free(bind->begun);
}

/* The invalidate completes aloud, for both. */
static bool post_pair(struct bind *bind, bool more)
{
	struct session *session = &bind->way->session;
	struct peer *peer = &session->peers[bind->posted % session->options.queue_pairs];
	NDK_MW *window = bind->windows[bind->posted % bind->count];
	uint64_t size = bind->options->size ? bind->options->size : 1;
	uint64_t offset = bind->posted * 64 % (session->options.memory - size + 1);
	NTSTATUS status;

	if (bind->result->latency)
		bind->begun[bind->posted % bind->pairs] = run_now();
	status = NdkBind(peer->qp, NULL, session->mr, window, session->source + offset, size,
			 NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_SILENT_SUCCESS |
				 NDK_OP_FLAG_DEFER);
	if (!NT_SUCCESS(status))
		return session_complain("binding a window", status);
	status = NdkInvalidate(peer->qp, (PVOID)(uintptr_t)(bind->posted % bind->pairs),
			       &window->Header, more ? NDK_OP_FLAG_DEFER : 0);
	if (!NT_SUCCESS(status))
		return session_complain("invalidating a window", status);
	bind->posted++;
	return true;
}

static bool take_pairs(struct bind *bind)
{
	NDK_RESULT_EX results[BATCH];
	ULONG count;

	if (!session_results(&bind->way->session, results, BATCH, &count)) {
		fprintf(stderr, "oriel-perf: the connection is over\n");
		return false;
	}
	for (ULONG i = 0; i < count; i++) {
		if (!post_completed(&results[i]))
			return false;
		bind->done++;
		if (bind->result->latency)
			latency_add(&bind->result->times,
				    run_now() - bind->begun[(uintptr_t)results[i].RequestContext]);
	}
	return true;
}

static bool run(struct bind *bind, double seconds)
{
	const uint32_t peers = bind->way->session.options.queue_pairs;
	uint64_t most = seconds > 0 ? UINT64_MAX : bind->options->iterations * peers;
	struct meter meter;
	uint64_t end;

	meter_start(&meter, bind->options);
	end = run_end(meter.start, seconds);
	while (bind->done < most) {
		uint64_t now = run_now();

		meter_look(&meter, now, bind->done);
		if (run_over(now, end))
			most = bind->posted;
		while (bind->posted < most && bind->posted - bind->done < bind->pairs)
			if (!post_pair(bind, peers == 1 && bind->posted + 1 < most &&
						     bind->posted + 1 - bind->done < bind->pairs))
				return false;
		if (bind->done < bind->posted && !take_pairs(bind))
			return false;
	}
	bind->result->messages = bind->done;
	meter_end(&meter, bind->done, bind->result);
	return true;
}

bool bind_measure(struct way *way, const struct perf_options *options, double seconds,
		  struct run_result *result)
{
	struct bind bind = { way, options, result, .pairs = options->depth / 2 };
	bool good;

	result->latency = options->mode == PERF_LATENCY;
	if (result->latency || !bind.pairs)
		bind.pairs = 1;
	bind.count = options->windows ? options->windows : bind.pairs;
	if (bind.pairs > bind.count)
		bind.pairs = bind.count;
	good = open_windows(&bind) && run(&bind, seconds);
	close_windows(&bind);
	return good;
}
