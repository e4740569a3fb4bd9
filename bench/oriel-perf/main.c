/* SPDX-License-Identifier: BSD-3-Clause */
/* oriel-perf: load for an RDMA data plane, and what it reaches. */
#include <stdio.h>
#include <stdlib.h>

#include "oriel-perf/report.h"
#include "oriel-perf/run.h"

#define LARGEST_SIZE     (8u << 20) /* of --all */
#define LEAST_MEMORY     (4ull << 20)
#define VERIFY_MEMORY    (64ull << 20)
#define LARGEST_DATAGRAM 4096u
#define MEBI             1048576.0
#define SUMMARY_LARGEST  (1u << 20)

/* --- the way there ------------------------------------------------------------------------ */

static const struct peer_opener *choose_opener(const struct perf_options *options)
{
	return options->export.ss_family ? &export_opener : &perftest_opener;
}

/* READs that will be compared each have their own, while there is enough. */
static uint64_t memory_for(const struct perf_options *options)
{
	uint64_t size = options->all_sizes ? LARGEST_SIZE
			: options->summary ? SUMMARY_LARGEST
					   : options->size;
	uint64_t slots = (uint64_t)options->depth * options->queue_pairs * (size + 64);
	uint64_t memory = LEAST_MEMORY;

	if (options->verify)
		memory = slots < VERIFY_MEMORY ? slots : VERIFY_MEMORY;
	if (memory < LEAST_MEMORY)
		memory = LEAST_MEMORY;
	if (memory < size)
		memory = size;
	return (memory + 4095) & ~4095ull;
}

/* Datagrams bring a header with them, and are never longer than a frame. */
static uint32_t receive_size_for(const struct perf_options *options)
{
	if (options->type == OrielQpTypeUd)
		return LARGEST_DATAGRAM + ORIEL_GRH_SIZE;
	return options->all_sizes ? LARGEST_SIZE : options->size;
}

static bool way_open(struct way *way, const struct perf_options *options)
{
	const bool exported = options->export.ss_family != 0;
	const struct session_options session = {
		.local = options->local,
		.indexed = options->gid_chosen,
		.local_index = options->gid_index,
		.family = exported        ? options->export.ss_family
			  : options->ipv6 ? AF_INET6
					  : AF_INET,
		.socket = options->socket,
		.memory = memory_for(options),
		.extra = exported ? options->queue_pairs * 64ull * EXPORT_ASKS : 0,
		.region_flags = way->opener->region_flags,
		.queue_pairs = options->queue_pairs,
		.type = options->type,
		.depth = options->depth,
		.reads = options->reads,
		.receive_depth = exported ? EXPORT_ASKS : options->receive_depth,
		.receive_size = receive_size_for(options),
		.inline_size = exported && options->inline_size < EXPORT_REQUEST_SIZE
				       ? EXPORT_REQUEST_SIZE
				       : options->inline_size,
		.poll = options->poll,
	};

	if (!session_open(&way->session, &session))
		return false;
	if (options->operation == PERF_CONNECT)
		return true;
	return way->opener->open(&way->session, options, &way->context);
}

static bool way_close(struct way *way)
{
	bool good = true;

	if (way->session.adapter)
		good = way->opener->close(&way->session, way->context);
	session_close(&way->session);
	return good;
}

/* --- runs --------------------------------------------------------------------------------- */

static struct run_result result; /* too large for a stack */

/* Rates in the unit of our table: perftest's ends show each other's figures as they are. */
static struct peer_result to_tell(const struct perf_options *options)
{
	double unit = options->gigabits ? options->size * 8e-9 : options->size / MEBI;
	double rate = result.seconds > 0 ? (double)result.messages / result.seconds : 0;

	return (struct peer_result){ .size = options->size,
				     .iterations = result.messages,
				     .peak = result.peak * unit,
				     .average = rate * unit,
				     .rate = rate * 1e-6 };
}

/* What we do not count ourselves: what the other side has read or written. */
static void add_told(const struct perf_options *options, const struct peer_result *theirs)
{
	if (theirs->rate <= 0 || options->operation == PERF_SEND)
		return;
	if (options->bidirectional) {
		result.received = theirs->iterations;
		return;
	}
	result.messages = theirs->iterations;
	result.seconds = (double)theirs->iterations / (theirs->rate * 1e6);
	if (theirs->average > 0)
		result.peak = theirs->rate * 1e6 * theirs->peak / theirs->average;
}

/* The server of a test where only the client works: it hears nothing until the end. */
static bool is_passive(const struct perf_options *options)
{
	bool answers = options->mode == PERF_LATENCY && options->operation == PERF_WRITE;

	return options->server && !options->bidirectional && !answers &&
	       options->operation != PERF_SEND;
}

static bool run_one(struct way *way, struct report *report, const struct perf_options *options)
{
	struct perf_options shown = *options;
	struct peer_result ours, theirs = { 0 };

	if (!run_measure(way, options, &result))
		return false;
	ours = to_tell(options);
	if (way->opener->report && !way->opener->report(way->context, &ours, &theirs))
		return false;
	if (options->server || options->bidirectional)
		add_told(options, &theirs);
	if (theirs.size && theirs.size != options->size && !options->all_sizes)
		fprintf(stderr,
			"oriel-perf: --size is %u here and %llu there: say the same at both "
			"sides\n",
			options->size, (unsigned long long)theirs.size);
	if (is_passive(options) && theirs.size && theirs.size <= LARGEST_SIZE)
		shown.size = (uint32_t)theirs.size;
	if (!is_passive(options) || result.messages)
		report_add(report, &shown, &result);
	return true;
}

static bool run_sizes(struct way *way, struct report *report, const struct perf_options *options)
{
	struct perf_options one = *options;

	for (one.size = 2; one.size <= LARGEST_SIZE; one.size *= 2) {
		if (one.size > way->session.peers[0].remote.length) {
			if (way->opener != &export_opener)
				return true;
			fprintf(stderr, "oriel-perf: the window has %llu bytes: no larger sizes\n",
				(unsigned long long)way->session.peers[0].remote.length);
			return true;
		}
		if (!run_one(way, report, &one))
			return false;
	}
	return true;
}

/* Writes and reads: rates by size, and the latency of small ones. */
static bool run_summary(struct way *way, struct report *report, const struct perf_options *options)
{
	static const uint32_t sizes[] = { 8, 64, 1024, 4096, 65536, SUMMARY_LARGEST };
	struct perf_options one = *options;

	for (unsigned int operation = PERF_WRITE; operation <= PERF_READ; operation++) {
		one.operation = (enum perf_operation)operation;
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			one.size = sizes[i];
			one.mode = PERF_BANDWIDTH;
			if (!run_one(way, report, &one))
				return false;
		}
		one.size = 8;
		one.mode = PERF_LATENCY;
		if (!run_one(way, report, &one))
			return false;
	}
	return true;
}

static bool run_all(struct way *way, struct report *report, const struct perf_options *options)
{
	bool good;

	report_begin(report, way);
	if (options->summary)
		good = run_summary(way, report, options);
	else if (options->all_sizes && !is_passive(options))
		good = run_sizes(way, report, options);
	else
		good = run_one(way, report, options);
	return report_end(report) && good;
}

int main(int argc, char **argv)
{
	struct perf_options options;
	int status = options_parse(argc, argv, &options);
	struct way way = { 0 };
	struct report report;
	bool good;

	if (status > 0)
		return EXIT_SUCCESS;
	if (status < 0) {
		fputs("Usage: oriel-perf [options] [OPERATION [HOST]]: oriel-perf --help\n",
		      stderr);
		return 2;
	}
	if (!report_open(&report, &options))
		return EXIT_FAILURE;
	run_catch_interrupt();
	way.opener = choose_opener(&options);
	good = way_open(&way, &options) && run_all(&way, &report, &options);
	good = way_close(&way) && good;
	report_close(&report);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
