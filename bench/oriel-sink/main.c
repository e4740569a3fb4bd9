/* SPDX-License-Identifier: BSD-3-Clause */
/* oriel-sink: from the options to the table, and serving until the end. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "oriel-sink/sink.h"

#define TICK_SECONDS 0.1

volatile sig_atomic_t sink_stop;

bool sink_complain(const char *what, NTSTATUS status)
{
	if (!sink_stop) /* else main() says why it is over */
		fprintf(stderr, "oriel-sink: %s: %s\n", what, OrielStatusName(status));
	return false;
}

/* --- the table -------------------------------------------------------------------------------- */

/*
 * Complete or not there at all: the generator waits for the name. It is begun before anything else,
 * so that a place where nothing can be written is told at once; one of an earlier run would be
 * believed.
 */
static bool table_begin(struct sink *sink)
{
	const char *failed = sink->options.table;

	snprintf(sink->part, sizeof(sink->part), "%s.part", sink->options.table);
	if (!unlink(sink->options.table) || errno == ENOENT) {
		failed = sink->part;
		sink->file = fopen(sink->part, "we");
	}
	if (!sink->file)
		fprintf(stderr, "oriel-sink: %s: %s\n", failed, strerror(errno));
	return sink->file;
}

static bool table_write(struct sink *sink)
{
	bool good;

	fprintf(sink->file, "mtu %u\n", sink->options.path_mtu);
	for (uint32_t i = 0; i < sink->options.qps; i++)
		fprintf(sink->file, "qp %8u %8u\n", OrielGetQpNumber(sink->qp[i]), sink->psn[i]);
	for (uint32_t i = 0; i < sink->options.windows; i++)
		fprintf(sink->file, "window %" PRIu64 " %u %" PRIu64 "\n",
			(uint64_t)(uintptr_t)sink_window_address(sink, i),
			NdkGetRemoteTokenFromMw(sink->mw[i]), sink->options.size);
	good = !fclose(sink->file) && !rename(sink->part, sink->options.table);
	sink->file = NULL;
	if (!good)
		fprintf(stderr, "oriel-sink: %s: %s\n", sink->options.table, strerror(errno));
	return good;
}

/* What it names is gone with us. */
static void table_end(struct sink *sink)
{
	if (sink->file)
		fclose(sink->file);
	if (sink->part[0]) {
		unlink(sink->part);
		unlink(sink->options.table);
	}
}

/* --- serving ---------------------------------------------------------------------------------- */

static double seconds_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool is_gone(const struct sink *sink)
{
	return OrielWait(sink->adapter, 0) == STATUS_DEVICE_REMOVED;
}

/* What there is to do every tenth of a second. False: the daemon is gone. */
static bool tick(const struct sink *sink, double now)
{
	if (sink->options.progress) {
		printf("%.3f %" PRIu64 "\n", now, sink->binds);
		fflush(stdout);
	}
	return !is_gone(sink) || sink_complain("serving", STATUS_DEVICE_REMOVED);
}

static bool serve(struct sink *sink)
{
	const struct sink_options *o = &sink->options;
	const uint64_t binds = sink->binds;
	const double start = seconds_now(), end = o->seconds > 0 ? start + o->seconds : 1e300;
	double now, next = start;
	bool good = true;

	while (good && !sink_stop && (now = seconds_now()) < end) {
		bool busy = sink_take_results(sink);

		if (now >= next) {
			good = tick(sink, now);
			next = now + TICK_SECONDS;
		}
		busy |= OrielProgress(sink->adapter) != 0;
		if (o->churn)
			for (unsigned int i = 0; i < SINK_CHURN_DEPTH && sink_churn(sink); i++)
				busy = true;
		good &= NT_SUCCESS(sink->failed);
		if (good && !busy && !o->churn && !o->receive)
			OrielWait(sink->adapter, 100);
	}
	printf("oriel-sink: %" PRIu64 " messages received, %.0f binds and invalidates a second\n",
	       sink->received,
	       o->churn ? (double)(sink->binds - binds) / (seconds_now() - start) : 0);
	return good;
}

/* --- all of it -------------------------------------------------------------------------------- */

static bool choose_psns(struct sink *sink)
{
	for (uint32_t i = 0; i < sink->options.qps; i++) {
		if (getrandom(&sink->psn[i], sizeof(sink->psn[i]), 0) < 0)
			return sink_complain("random PSNs", STATUS_INTERNAL_ERROR);
		sink->psn[i] &= SINK_PSN_MASK;
	}
	return true;
}

static bool run(struct sink *sink)
{
	const struct sink_options *o = &sink->options;

	sink->qp = calloc(o->qps, sizeof(NDK_QP *));
	sink->mw = calloc(o->windows + SINK_CHURN_DEPTH, sizeof(NDK_MW *));
	sink->psn = calloc(o->qps, sizeof(*sink->psn));
	if (!sink->qp || !sink->mw || !sink->psn)
		return sink_complain("tables", STATUS_NO_MEMORY);
	if (!table_begin(sink) || !choose_psns(sink) || !sink_open(sink) || !sink_connect(sink) ||
	    !sink_bind_all(sink) || !table_write(sink))
		return false;
	printf("oriel-sink: ready, %u queue pairs, %u windows\n", o->qps, o->windows);
	fflush(stdout);
	return serve(sink);
}

static void on_signal(int signal)
{
	sink_stop = 1;
}

int main(int argc, char *argv[])
{
	struct sink sink = { 0 };
	bool good;

	if (!sink_options_parse(argc, argv, &sink.options))
		return 2;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	good = run(&sink);
	if (!good && sink_stop)
		fputs("oriel-sink: stopped before it was ready\n", stderr);
	table_end(&sink);
	if (sink.adapter)
		OrielCloseAdapter(sink.adapter);
	if (sink.mdl)
		OrielFreeMemory(sink.mdl);
	free(sink.qp);
	free(sink.mw);
	free(sink.psn);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
