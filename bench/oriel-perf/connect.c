/* SPDX-License-Identifier: BSD-3-Clause */
/* How fast connections come and go. */
#include <stdio.h>
#include <stdlib.h>

#include "oriel-connect/lane.h"
#include "oriel-perf/run.h"

struct connect {
	struct lane_owner owner; /* first: the callback gets it */
	struct run_result *result;
	uint64_t begun, ended, failed;
	uint32_t busy;
	NTSTATUS wrong; /* of the last that failed */
};

/* The lane is begun anew by the loop, not from inside a callback's stack. */
static void on_ended(struct lane_owner *owner, struct lane *lane)
{
	struct connect *connect = (struct connect *)owner;

	connect->ended++;
	connect->busy--;
	if (lane->failed) {
		connect->failed++;
		connect->wrong = lane->wrong;
	} else {
		latency_add(&connect->result->times, (uint64_t)(lane->up - lane->begin));
	}
}

static bool run(struct connect *connect, struct lane *lanes, uint32_t count,
		const struct perf_options *options)
{
	uint64_t most = options->iterations ? options->iterations : UINT64_MAX;
	NDK_ADAPTER *adapter = connect->owner.example->adapter;
	struct meter meter;
	uint64_t end;

	meter_start(&meter, options);
	end = options->iterations ? UINT64_MAX : meter.start + (uint64_t)(options->seconds * 1e9);
	while (connect->ended < most && !connect->failed) {
		uint64_t now = run_now();

		meter_look(&meter, now, connect->ended);
		if (run_over(now, end))
			most = connect->begun;
		for (uint32_t i = 0; i < count && connect->begun < most; i++) {
			if (lanes[i].step != LANE_IDLE)
				continue;
			connect->begun++;
			connect->busy++;
			lane_connect(&lanes[i]);
		}
		if (connect->busy && !OrielProgress(adapter) &&
		    !NT_SUCCESS(OrielWait(adapter, 100)))
			return session_complain("waiting", STATUS_DEVICE_REMOVED);
	}
	connect->result->messages = connect->ended - connect->failed;
	connect->result->latency = true;
	meter_end(&meter, connect->result->messages, connect->result);
	return !connect->failed || session_complain("a connection failed", connect->wrong);
}

bool connect_measure(struct way *way, const struct perf_options *options, struct run_result *result)
{
	struct session *session = &way->session;
	struct example example = { .program = "oriel-perf",
				   .adapter = session->adapter,
				   .pd = session->pd,
				   .cq = session->cq,
				   .local = session->options.local };
	struct connect connect = {
		.owner = { .example = &example, .remote = &options->export, .ended = on_ended },
		.result = result,
	};
	uint32_t count = options->windows ? options->windows : 1;
	struct lane *lanes = calloc(count, sizeof(*lanes));
	bool good;

	if (!lanes)
		return session_complain("connections", STATUS_NO_MEMORY);
	for (uint32_t i = 0; i < count; i++)
		lanes[i].owner = &connect.owner;
	good = run(&connect, lanes, count, options);
	/* Those that are still under way call back into `lanes`. */
	while (connect.busy &&
	       (OrielProgress(session->adapter) || NT_SUCCESS(OrielWait(session->adapter, 100))))
		continue;
	free(lanes);
	return good;
}
