/* SPDX-License-Identifier: BSD-3-Clause */
/* One measurement: warm-up, the load of the operation and mode, and the check of the data. */
#include "oriel-perf/run.h"

#include <stdio.h>

uint64_t run_step(const struct perf_options *options)
{
	return options->size ? ((uint64_t)options->size + 63) & ~63ull : 64;
}

/* Sends stay in our memory; what is to be verified has its mirror there. */
uint32_t run_places(const struct way *way, const struct perf_options *options)
{
	uint64_t length = way->session.peers[0].remote.length;
	uint64_t memory = way->session.options.memory;
	uint64_t places;

	if (options->operation == PERF_SEND || (options->verify && length > memory))
		length = memory;
	if (length < options->size)
		return 1;
	places = (length - options->size) / run_step(options) + 1;
	return places > TRAFFIC_MOST_PLACES ? TRAFFIC_MOST_PLACES : (uint32_t)places;
}

static bool size_fits(const struct way *way, const struct perf_options *options)
{
	uint64_t room = way->session.options.memory;

	if (options->operation != PERF_SEND && options->operation != PERF_BIND &&
	    way->session.peers[0].remote.length < room)
		room = way->session.peers[0].remote.length;
	if (options->size <= room)
		return true;
	fprintf(stderr, "oriel-perf: %u bytes do not fit into the window of %llu\n", options->size,
		(unsigned long long)room);
	return false;
}

/* What the window does not allow is refused here: there it would cost the connection. */
static bool access_granted(const struct way *way, const struct perf_options *options)
{
	uint8_t wanted = 0;

	if (options->operation == PERF_WRITE || options->operation == PERF_MIXED)
		wanted |= EXPORT_WRITE;
	if (options->operation == PERF_READ || options->operation == PERF_MIXED)
		wanted |= EXPORT_READ;
	if (options_is_atomic(options))
		wanted |= EXPORT_ATOMIC;
	if (options->verify && (wanted & EXPORT_ATOMIC))
		wanted |= EXPORT_READ;
	else if (options->verify)
		wanted |= EXPORT_READ | EXPORT_WRITE;
	wanted &= (uint8_t)~way->session.peers[0].remote.access;
	if (!wanted)
		return true;
	fprintf(stderr,
		"oriel-perf: the window grants no %s (`access` in the target's "
		"configuration)\n",
		wanted & EXPORT_WRITE  ? "write"
		: wanted & EXPORT_READ ? "read"
				       : "atomic");
	return false;
}

static bool load(struct way *way, const struct perf_options *options, struct verify *verify,
		 double seconds, struct run_result *result)
{
	if (options->operation == PERF_BIND)
		return bind_measure(way, options, seconds, result);
	if (options->mode == PERF_LATENCY)
		return turn_measure(way, options, verify, seconds, result);
	return rate_measure(way, options, verify, seconds, result);
}

static bool warm_up(struct way *way, const struct perf_options *options)
{
	static struct run_result nothing;
	struct perf_options short_options = *options;

	if (options->warm_up <= 0)
		return true;
	short_options.quiet = true;
	nothing = (struct run_result){ 0 };
	return load(way, &short_options, NULL, options->warm_up, &nothing);
}

static bool verified_load(struct way *way, const struct perf_options *options, double seconds,
			  struct run_result *result)
{
	const bool writes = options->export.ss_family || options->operation == PERF_WRITE;
	struct verify *verify;
	bool good;

	if (!verify_possible(&way->session, options))
		return false;
	verify = verify_open(&way->session, options, run_step(options), run_places(way, options));
	if (!verify)
		return session_complain("verification", STATUS_NO_MEMORY);
	good = (options_is_atomic(options) || !writes ||
		verify_sizes(&way->session, &result->verified)) &&
	       verify_before(verify) &&
	       load(way, options, options_is_atomic(options) ? NULL : verify, seconds, result) &&
	       verify_after(verify, result, &result->verified);
	verify_close(verify);
	return good;
}

/* Our part, between the meetings. */
static bool work(struct way *way, const struct perf_options *options, struct run_result *result)
{
	double seconds = options->iterations ? 0 : options->seconds;

	if (options->mode == PERF_LATENCY && way->opener->meet &&
	    (options->operation == PERF_SEND || options->operation == PERF_WRITE))
		return turn_exchange(way, options, result);
	if (options->server && !options->bidirectional)
		return options->operation != PERF_SEND || rate_receive(way, options, result);
	if (options->verify)
		return verified_load(way, options, seconds, result);
	return load(way, options, NULL, seconds, result);
}

bool run_measure(struct way *way, const struct perf_options *options, struct run_result *result)
{
	*result = (struct run_result){ 0 };
	if (options->operation == PERF_CONNECT)
		return connect_measure(way, options, result);
	if (!size_fits(way, options) || !access_granted(way, options))
		return false;
	if (!options->server && !warm_up(way, options))
		return false;
	if (way->opener->meet && !way->opener->meet(way->context, MEET_BEFORE))
		return false;
	if (!work(way, options, result))
		return false;
	return !way->opener->meet || way->opener->meet(way->context, MEET_AFTER);
}
