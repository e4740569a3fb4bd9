/* SPDX-License-Identifier: BSD-3-Clause */
/* What the user asked for: the operation, what does not go together, and values left open. */
#include "oriel-perf/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "oriel-perf/flags.h"
#include "oriel-perf/perftest_exchange.h"

/* --- the operation ------------------------------------------------------------------------- */

static const char *const operations[] = {
	[PERF_WRITE] = "write",
	[PERF_READ] = "read",
	[PERF_SEND] = "send",
	[PERF_FETCH_ADD] = "atomic",
	[PERF_COMPARE_SWAP] = "cmp_swap",
	[PERF_MIXED] = "mixed",
	[PERF_BIND] = "bind",
	[PERF_WINDOW] = "window",
	[PERF_CONNECT] = "connect",
	NULL,
};

const char *options_operation(enum perf_operation operation)
{
	return operations[operation];
}

bool options_is_atomic(const struct perf_options *options)
{
	return options->operation == PERF_FETCH_ADD || options->operation == PERF_COMPARE_SWAP;
}

static bool parse_operation(const char *text, struct perf_options *options)
{
	char word[32];
	unsigned int value;
	char *end;

	snprintf(word, sizeof(word), "%s", strncmp(text, "ib_", 3) == 0 ? text + 3 : text);
	end = strrchr(word, '_');
	if (end && !strcmp(end, "_lat"))
		options->mode = PERF_LATENCY;
	if (end && (!strcmp(end, "_lat") || !strcmp(end, "_bw")))
		*end = '\0';
	for (value = 0; operations[value] && strcmp(word, operations[value]) != 0; value++)
		continue;
	if (!operations[value])
		return false;
	options->operation = (enum perf_operation)value;
	return true;
}

/* --- what does not go together --------------------------------------------------------------- */

/* What no way to the other side allows. */
static const char *common_contradiction(const struct perf_options *options,
					const struct flags_seen *seen, bool atomic)
{
	if (options->all_sizes && flags_has(seen, "size"))
		return "--all is every size: leave --size away";
	if ((options->all_sizes || flags_has(seen, "size")) && atomic)
		return "atomics have 8 bytes: leave --size and --all away";
	if (options->per_window && options->mode == PERF_LATENCY)
		return "--per-window is not for --latency";
	if (options->per_window && options->verify)
		return "--verify reads back through the window: leave --per-window away";
	if (options->rate > 0 && options->mode == PERF_LATENCY)
		return "--rate_limit is not for --latency";
	if (options->rate > 0 && options->rate_unit != PERF_PACKETS && !options->size &&
	    flags_has(seen, "size"))
		return "messages of no bytes have no rate in bytes: --rate_units p";
	if (options->rate <= 0 && (flags_has(seen, "rate_units") || flags_has(seen, "burst_size")))
		return "--rate_units and --burst_size belong to --rate_limit";
	if (options->times && options->mode == PERF_LATENCY)
		return "--times is for rates: --latency takes the time of each message anyway";
	if (options->histogram && options->mode != PERF_LATENCY && !options->times &&
	    options->operation != PERF_CONNECT && !options->summary)
		return "--report-histogram is for --latency, --times and connect";
	if (options->json && !options->json_file && options->csv)
		return "--json and --csv: one of them";
	if (options->iterations && flags_has(seen, "duration"))
		return "--iters and --duration: one of them";
	if (options->depth < options->moderation)
		return "--cq-mod above --tx-depth: no completion would ever come";
	if (flags_has(seen, "skew") && options->pattern != PERF_ZIPF)
		return "--skew is that of zipf: leave --pattern away, or say --pattern zipf";
	if (options->local.ss_family && options->gid_chosen)
		return "--local and --gid-index: one of them";
	return NULL;
}

/* perftest's other side knows nothing of these, so they go where it need not. */
static const char *perftest_extras(const struct perf_options *options)
{
	const bool send = options->operation == PERF_SEND;
	const bool turns = options->operation == PERF_WRITE && options->mode == PERF_LATENCY;

	if (options->per_window)
		return "--per-window is for exports: perftest's memory has one token";
	if (options->server && (options->verify || options->warm_up > 0))
		return "--verify and --warm-up are for the client's side: the server only serves";
	if (options->warm_up > 0 && send)
		return "--warm-up: perftest's receiver counts every message and has receives for "
		       "those only";
	if (options->warm_up > 0 && turns)
		return "--warm-up: the other side of write_lat answers every message: use "
		       "write_bw, read or atomic";
	if (!options->verify)
		return NULL;
	if (send)
		return "--verify: perftest's receiver does not look at what arrives, and what it "
		       "sends nobody knows: use write_bw, read or atomic";
	if (turns)
		return "--verify: the other side of write_lat overwrites our memory as we do its: "
		       "use write_bw, read or atomic";
	if (options->bidirectional)
		return "--verify: what the other side does meanwhile changes its memory: leave "
		       "--bidirectional away";
	if (options->type != OrielQpTypeRc)
		return "--verify reads back what it wrote, for which only --connection RC will do";
	return NULL;
}

/* The two kinds of connection manager know no timer and no class of ours. */
static bool has_path_flags(const struct flags_seen *seen)
{
	return flags_has(seen, "qp-timeout") || flags_has(seen, "tclass");
}

/* What perftest has no word for. */
static const char *perftest_contradiction(const struct perf_options *options,
					  const struct flags_seen *seen)
{
	const bool atomic = options_is_atomic(options);
	const bool one_sided = options->operation == PERF_READ || atomic;
	const char *problem = perftest_extras(options);

	if (options->operation == PERF_MIXED)
		return "--export ADDRESS:PORT is missing: perftest lets its memory be written or "
		       "read, never both, so mixed is for exports";
	if (options->operation >= PERF_MIXED || options->summary)
		return "--export ADDRESS:PORT is missing: perftest has write, read, send and "
		       "atomic only";
	if (options->type != OrielQpTypeRc && one_sided)
		return "reads and atomics are for reliable connections: --connection RC";
	if (options->type == OrielQpTypeUd && options->operation != PERF_SEND)
		return "datagrams are sent: use send, or another --connection";
	if (options->rdma_cm && options->type == OrielQpTypeUc)
		return "rdma_cm connects no UC: leave -R away";
	if (options->rdma_cm && has_path_flags(seen))
		return "rdma_cm chooses the timer and the traffic class: leave -R, or --qp-timeout "
		       "and --tclass, away";
	if (flags_has(seen, "name"))
		return "--name is an export's: --export ADDRESS:PORT is missing";
	if (problem)
		return problem;
	if (options->mode == PERF_LATENCY && options->operation == PERF_WRITE && !options->size &&
	    flags_has(seen, "size"))
		return "nobody sees a write of no bytes arrive: --size 1 or more";
	if (options->mode == PERF_LATENCY && options->bidirectional)
		return "latency is measured one way: leave --bidirectional away";
	return common_contradiction(options, seen, atomic);
}

/* The summary has its own operations and sizes. */
static const char *summary_contradiction(const struct perf_options *options,
					 const struct flags_seen *seen)
{
	if (options->operation != PERF_WRITE || options->mode != PERF_BANDWIDTH)
		return "--summary is of writes and reads: leave the operation and --latency away";
	if (options->all_sizes || flags_has(seen, "size"))
		return "--summary has sizes of its own: leave --size and --all away";
	return NULL;
}

/* What does not go together, each with what to do instead. */
static const char *contradiction(const struct perf_options *options, const struct flags_seen *seen)
{
	const bool atomic = options_is_atomic(options);

	if (!options->export.ss_family)
		return perftest_contradiction(options, seen);
	if (options->ipv6)
		return "--ipv6 is for perftest: an export's address says which it is";
	if (options->host)
		return "--export names the other side: leave the host away";
	if (options->rdma_cm)
		return "-R is perftest's: an export is always reached by the connection manager";
	if (options->operation == PERF_SEND || options->bidirectional)
		return "an export takes no sends and sends nothing: use write or read, or "
		       "oriel-rping and its relatives for sends";
	if (options->type != OrielQpTypeRc)
		return "an export is reached by RC only: leave --connection away";
	if (flags_has(seen, "port"))
		return "-p is of perftest's server: an export's port stands behind its address";
	if (has_path_flags(seen))
		return "an export is reached by the connection manager, which chooses the timer "
		       "and the traffic class: leave --qp-timeout and --tclass away";
	if (flags_has(seen, "mtu"))
		return "the connection manager takes the MTU of the ports: set `mtu` in the "
		       "configurations of both daemons";
	if (options->summary && summary_contradiction(options, seen))
		return summary_contradiction(options, seen);
	return common_contradiction(options, seen, atomic);
}

/* Sizes and numbers as perftest has them, so that the same words do the same at both ends. */
static void fill_in(struct perf_options *options, const struct flags_seen *seen)
{
	const bool bandwidth = options->mode == PERF_BANDWIDTH;

	if (!options->export.ss_family && !flags_has(seen, "duration") && !options->iterations)
		options->iterations = bandwidth && options->operation == PERF_WRITE ? 5000 : 1000;
	if (options_is_atomic(options))
		options->size = 8;
	else if (!flags_has(seen, "size"))
		options->size = options->operation >= PERF_BIND  ? 4096
				: !bandwidth                     ? 2
				: options->type == OrielQpTypeUd ? 1024
								 : 65536;
}

int options_parse(int argc, char **argv, struct perf_options *options)
{
	struct flags_seen seen = { 0 };
	const char *problem;
	int status;

	*options = (struct perf_options){ .seconds = 1,
					  .queue_pairs = 1,
					  .depth = 128,
					  .receive_depth = 512,
					  .port = PERFTEST_PORT,
					  .moderation = 1,
					  .reads = 16,
					  .burst = 1,
					  .read_share = 50,
					  .skew = 0.99 };
	status = flags_read(argc, argv, options, &seen);
	if (status)
		return status;
	if (optind < argc && !parse_operation(argv[optind++], options)) {
		fprintf(stderr,
			"oriel-perf: %s: expected write, read, atomic, send, mixed, bind, window "
			"or "
			"connect\n",
			argv[optind - 1]);
		return -EINVAL;
	}
	if (optind < argc)
		options->host = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "oriel-perf: %s: one argument too many\n", argv[optind]);
		return -EINVAL;
	}
	options->gid_chosen = flags_has(&seen, "gid-index");
	options->server = !options->export.ss_family && !options->host;
	if (options->operation == PERF_FETCH_ADD && options->compare_swap)
		options->operation = PERF_COMPARE_SWAP;
	if (!flags_suit(&seen, options))
		return -EINVAL;
	problem = contradiction(options, &seen);
	if (problem) {
		fprintf(stderr, "oriel-perf: %s\n", problem);
		return -EINVAL;
	}
	fill_in(options, &seen);
	return 0;
}
