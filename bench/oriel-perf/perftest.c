/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's other side as a way for the measurements to take. */
#include <stdlib.h>

#include "oriel-perf/perftest_session.h"

static bool open_perftest(struct session *session, const struct perf_options *options,
			  void **context)
{
	struct perftest *perftest = calloc(1, sizeof(*perftest));

	*context = perftest;
	if (!perftest)
		return session_complain("perftest's exchange", STATUS_NO_MEMORY);
	return perftest_open(perftest, session, options);
}

static bool meet(void *context, enum meeting meeting)
{
	return meeting == MEET_BEFORE ? perftest_begin(context) : perftest_end(context);
}

static bool over(void *context)
{
	return perftest_pending(&((struct perftest *)context)->channel);
}

static bool report(void *context, const struct peer_result *ours, struct peer_result *theirs)
{
	const struct perftest_report out = { .size = ours->size,
					     .iterations = ours->iterations,
					     .peak = ours->peak,
					     .average = ours->average,
					     .rate = ours->rate };
	struct perftest_report in;
	bool good = perftest_report(context, &out, &in);

	*theirs = (struct peer_result){ .size = in.size,
					.iterations = in.iterations,
					.peak = in.peak,
					.average = in.average,
					.rate = in.rate };
	return good;
}

static bool close_perftest(struct session *session, void *context)
{
	struct perftest *perftest = context;
	bool good = true;

	if (!perftest)
		return true;
	if (perftest->settled && !perftest->channel.over)
		good = perftest_finish(perftest);
	perftest_close(perftest);
	free(perftest);
	return good;
}

const struct peer_opener perftest_opener = {
	.name = "perftest",
	.region_flags = NDK_MR_FLAG_ALLOW_REMOTE_READ | NDK_MR_FLAG_ALLOW_REMOTE_WRITE |
			ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC,
	.sends = true,
	.open = open_perftest,
	.meet = meet,
	.over = over,
	.report = report,
	.close = close_perftest,
};
