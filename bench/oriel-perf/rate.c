/* SPDX-License-Identifier: BSD-3-Clause */
/* Rate: every queue pair has as many requests under way as it may. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-perf/run.h"

#define BATCH 64u

/* What a queue pair has under way. */
struct flow {
	struct peer *peer;
	uint64_t posted, quota;
	uint32_t under_way;       /* requests whose completion has not come */
	uint32_t silent;          /* posted since the last that completes aloud */
	uint64_t window_messages; /* since the latest window */
	uint32_t asked;           /* windows asked for, not had yet */
	bool ready;               /* in the ring */
	uint64_t *begun; /* --times: when those under way were due, ns; rate.depth of them */
	/* Compare-and-swap: a chain of values, found anew after another's swap. */
	uint64_t swap_next, swap_expected;
	bool swap_broken;
};

struct rate {
	struct way *way;
	const struct perf_options *options;
	struct run_result *result;
	struct verify *verify;
	struct traffic traffic;
	struct meter meter;
	struct flow *flows;
	uint64_t *begun;    /* of all flows */
	struct flow **ring; /* those that may post, in turn */
	uint32_t head, count, flow_count;
	uint32_t depth, moderation;
	uint64_t step; /* bytes between places */
	uint64_t posted, done, received, expected;
	double per_ns; /* messages; 0: no limit */
	uint64_t start;
};

/* --- who may post ----------------------------------------------------------------------- */

static bool may_post(const struct rate *rate, const struct flow *flow)
{
	if (flow->posted >= flow->quota || flow->under_way >= rate->depth || flow->swap_broken)
		return false;
	return rate->options->operation == PERF_WINDOW || !flow->asked;
}

static void make_ready(struct rate *rate, struct flow *flow)
{
	if (flow->ready || !may_post(rate, flow))
		return;
	flow->ready = true;
	rate->ring[(rate->head + rate->count++) % rate->flow_count] = flow;
}

static struct flow *take_ready(struct rate *rate)
{
	struct flow *flow = rate->ring[rate->head];

	rate->head = (rate->head + 1) % rate->flow_count;
	rate->count--;
	flow->ready = false;
	return flow;
}

/* Messages that the limit and the verification allow by now, beyond those posted. */
static uint64_t allowance(const struct rate *rate)
{
	uint64_t room = rate->verify ? verify_room(rate->verify) : UINT64_MAX;
	double allowed;

	if (rate->per_ns <= 0)
		return room;
	allowed = rate->options->burst + (double)(run_now() - rate->start) * rate->per_ns -
		  (double)rate->posted;
	if (allowed < 1)
		return 0;
	return (uint64_t)allowed < room ? (uint64_t)allowed : room;
}

/* --- posting ---------------------------------------------------------------------------- */

static bool refused(NTSTATUS status)
{
	return NT_SUCCESS(status) || session_complain("posting", status);
}

/* After so many messages the next go through a window of their own. */
static bool ask_window(struct rate *rate, struct flow *flow)
{
	flow->asked++;
	flow->window_messages = 0;
	return refused(export_ask(flow->peer, rate->options->name));
}

static enum perf_operation choose_operation(struct rate *rate)
{
	if (rate->options->operation != PERF_MIXED)
		return rate->options->operation;
	if (!traffic_reads(&rate->traffic))
		return PERF_WRITE;
	rate->result->reads++;
	return PERF_READ;
}

static void place_request(struct rate *rate, struct flow *flow, struct request *request)
{
	const uint64_t memory = flow->peer->session->options.memory;

	if (request->operation == PERF_FETCH_ADD || request->operation == PERF_COMPARE_SWAP) {
		request->size = 8;
		request->remote = flow->peer->index * 8ull % flow->peer->remote.length;
		request->local =
			(flow->peer->index * (uint64_t)rate->depth + flow->posted % rate->depth) *
			8 % memory;
		request->compare = flow->swap_next++;
		return;
	}
	post_place(request, flow->peer, &rate->traffic, rate->step, rate->verify);
}

/*
 * A message is due when the rate says, so that one that had to wait for those before it is not
 * timed from when it was let go. Without a rate it is due when it is posted.
 */
static uint64_t due(const struct rate *rate)
{
	uint64_t now = run_now(), when;

	if (rate->per_ns <= 0 || rate->posted < rate->options->burst)
		return now;
	when = rate->start +
	       (uint64_t)((double)(rate->posted - rate->options->burst + 1) / rate->per_ns);
	return when < now ? when : now;
}

static bool post_one(struct rate *rate, struct flow *flow, bool more)
{
	struct request request = { .operation = choose_operation(rate),
				   .size = rate->options->size,
				   .flags = more ? NDK_OP_FLAG_DEFER : 0 };
	bool aloud = flow->silent + 1 >= rate->moderation || flow->posted + 1 == flow->quota ||
		     flow->under_way + 1 == rate->depth;

	if (rate->options->operation == PERF_WINDOW) {
		flow->posted++;
		flow->under_way++;
		rate->posted++;
		return ask_window(rate, flow);
	}
	place_request(rate, flow, &request);
	if (flow->begun)
		flow->begun[flow->posted % rate->depth] = due(rate);
	flow->silent++;
	if (!aloud)
		request.flags |= NDK_OP_FLAG_SILENT_SUCCESS;
	else if (!rate->verify)
		request.context = (PVOID)(uintptr_t)flow->silent;
	if (aloud)
		flow->silent = 0;
	flow->posted++;
	flow->under_way++;
	flow->window_messages++;
	rate->posted++;
	return refused(post_request(flow->peer, &request));
}

/* As many as there is room for, in the lists that the user wants, with one doorbell for each. */
static bool post_list(struct rate *rate, struct flow *flow, uint64_t allowed)
{
	const struct perf_options *options = rate->options;
	uint64_t count = rate->depth - flow->under_way;

	if (options->post_list && count > options->post_list)
		count = options->post_list;
	if (count > flow->quota - flow->posted)
		count = flow->quota - flow->posted;
	if (count > allowed)
		count = allowed;
	if (options->per_window && count > options->per_window - flow->window_messages)
		count = options->per_window - flow->window_messages;
	for (uint64_t i = 0; i < count; i++)
		if (!post_one(rate, flow, i + 1 < count))
			return false;
	if (options->per_window && flow->window_messages == options->per_window &&
	    flow->posted < flow->quota)
		return ask_window(rate, flow);
	return true;
}

static bool fill(struct rate *rate)
{
	while (rate->count) {
		uint64_t allowed = allowance(rate);
		struct flow *flow;

		if (!allowed)
			return true;
		flow = take_ready(rate);
		if (!post_list(rate, flow, allowed))
			return false;
		make_ready(rate, flow);
	}
	return true;
}

/* --- completions ------------------------------------------------------------------------ */

static bool window_came(struct rate *rate, struct flow *flow, const NDK_RESULT_EX *result)
{
	enum export_answer answer = export_answer(result);

	flow->asked--;
	if (answer == EXPORT_ANSWER_AGAIN) {
		rate->result->refused++;
		return ask_window(rate, flow);
	}
	rate->result->windows++;
	if (rate->options->operation == PERF_WINDOW) {
		flow->under_way--;
		rate->done++;
	}
	return answer == EXPORT_ANSWER_WINDOW;
}

static bool received(struct rate *rate, struct flow *flow, const NDK_RESULT_EX *result)
{
	if (rate->way->opener == &export_opener)
		return window_came(rate, flow, result);
	rate->received++;
	return post_receive(flow->peer, (uint32_t)(uintptr_t)result->RequestContext);
}

/* What a compare-and-swap found. Another's swap breaks the chain: it begins anew when all that
 * is under way has come back.
 */
static void swapped(struct rate *rate, struct flow *flow)
{
	const struct session *session = flow->peer->session;
	uint64_t first = flow->posted - flow->under_way, found;

	memcpy(&found,
	       session->sink + (flow->peer->index * (uint64_t)rate->depth + first % rate->depth) *
				       8 % session->options.memory,
	       sizeof(found));
	if (found != flow->swap_expected++) {
		rate->result->refused++;
		flow->swap_broken = true;
	}
	if (flow->swap_broken && flow->under_way == 1) {
		flow->swap_next = flow->swap_expected = found;
		flow->swap_broken = false;
	}
}

/* Completions come in order. */
static void take_times(struct rate *rate, const struct flow *flow, uint32_t credit)
{
	uint64_t first = flow->posted - flow->under_way, now = run_now();

	for (uint32_t i = 0; i < credit; i++)
		latency_add(&rate->result->times, now - flow->begun[(first + i) % rate->depth]);
}

static bool completed(struct rate *rate, const NDK_RESULT_EX *result)
{
	struct peer *peer = result->QPContext;
	struct flow *flow = &rate->flows[peer->index];
	uint32_t credit = rate->verify ? 1 : (uint32_t)(uintptr_t)result->RequestContext;

	if (!post_completed(result))
		return false;
	if (result->Type & NdkOperationTypeReceive) {
		if (!received(rate, flow, result))
			return false;
		make_ready(rate, flow);
		return true;
	}
	if (rate->options->operation == PERF_COMPARE_SWAP)
		swapped(rate, flow);
	if (flow->begun)
		take_times(rate, flow, credit);
	flow->under_way -= credit;
	rate->done += credit;
	make_ready(rate, flow);
	return !rate->verify ||
	       verify_completed(rate->verify, (uint32_t)(uintptr_t)result->RequestContext);
}

/* Waits unless there is something to post, or will be soon. */
static bool take(struct rate *rate)
{
	int wait = !rate->count ? 100 : rate->per_ns * 1e6 > 1 ? 0 : 1;
	NDK_RESULT_EX results[BATCH];
	ULONG count;

	if (!session_results_until(&rate->way->session, results, BATCH, &count, wait)) {
		fprintf(stderr, "oriel-perf: the connection is over\n");
		return false;
	}
	if (!count && !wait)
		OrielProgress(rate->way->session.adapter);
	for (ULONG i = 0; i < count; i++)
		if (!completed(rate, &results[i]))
			return false;
	return true;
}

/* --- the measurement -------------------------------------------------------------------- */

/* What is under way comes in; a queue pair whose last was silent sends one more, aloud. */
static void stop(struct rate *rate)
{
	rate->expected = 0;
	for (uint32_t i = 0; i < rate->flow_count; i++) {
		struct flow *flow = &rate->flows[i];

		flow->quota = flow->posted + (flow->silent ? 1 : 0);
		make_ready(rate, flow);
	}
}

static bool all_done(const struct rate *rate)
{
	for (uint32_t i = 0; i < rate->flow_count; i++)
		if (rate->flows[i].posted < rate->flows[i].quota)
			return false;
	return rate->done == rate->posted && rate->received >= rate->expected;
}

static double messages_per_ns(const struct perf_options *options)
{
	if (options->rate <= 0)
		return 0;
	switch (options->rate_unit) {
	case PERF_GIGABITS: return options->rate / 8 / options->size;
	case PERF_MEGABYTES: return options->rate * 1048576e-9 / options->size;
	default: return options->rate * 1e-9;
	}
}

static bool rate_open(struct rate *rate, struct way *way, const struct perf_options *options,
		      struct run_result *result)
{
	uint32_t count = way->session.options.queue_pairs;

	*rate = (struct rate){ .way = way,
			       .options = options,
			       .result = result,
			       .flow_count = count,
			       .depth = options->depth,
			       .moderation = options->moderation,
			       .step = run_step(options),
			       .per_ns = messages_per_ns(options) };
	if (options->verify || options->operation == PERF_COMPARE_SWAP)
		rate->moderation = 1;
	if (options->operation == PERF_WINDOW && rate->depth > EXPORT_ASKS)
		rate->depth = EXPORT_ASKS;
	rate->flows = calloc(count, sizeof(*rate->flows));
	rate->ring = calloc(count, sizeof(struct flow *));
	if (!rate->flows || !rate->ring)
		return session_complain("connections", STATUS_NO_MEMORY);
	if (options->times) {
		rate->begun = calloc((size_t)count * rate->depth, sizeof(*rate->begun));
		if (!rate->begun)
			return session_complain("times", STATUS_NO_MEMORY);
		result->timed = true;
	}
	for (uint32_t i = 0; i < count; i++) {
		rate->flows[i].peer = &way->session.peers[i];
		rate->flows[i].begun = rate->begun ? rate->begun + (size_t)i * rate->depth : NULL;
	}
	return traffic_open(&rate->traffic, options, run_places(way, options));
}

static void rate_close(struct rate *rate)
{
	traffic_close(&rate->traffic);
	free(rate->flows);
	free(rate->begun);
	free(rate->ring);
}

static bool run(struct rate *rate, double seconds)
{
	const struct perf_options *options = rate->options;
	uint64_t quota = seconds > 0 ? UINT64_MAX : options->iterations;
	bool stopped = false;
	uint64_t end, now;

	for (uint32_t i = 0; i < rate->flow_count; i++) {
		rate->flows[i].quota = quota;
		make_ready(rate, &rate->flows[i]);
	}
	meter_start(&rate->meter, options);
	rate->start = rate->meter.start;
	end = run_end(rate->start, seconds);
	while (!all_done(rate)) {
		now = run_now();
		meter_look(&rate->meter, now, rate->done + rate->received);
		if (!stopped && run_over(now, end)) {
			stopped = true;
			stop(rate);
		}
		if (!fill(rate) || !take(rate))
			return false;
	}
	rate->result->messages = rate->done;
	rate->result->received = rate->received;
	meter_end(&rate->meter, rate->done + rate->received, rate->result);
	return true;
}

bool rate_measure(struct way *way, const struct perf_options *options, struct verify *verify,
		  double seconds, struct run_result *result)
{
	struct rate rate;
	bool good = rate_open(&rate, way, options, result);

	rate.verify = verify;
	if (options->operation == PERF_SEND && options->bidirectional)
		rate.expected = options->iterations * rate.flow_count;
	good = good && run(&rate, seconds);
	rate_close(&rate);
	return good;
}

/* --- the receiver ------------------------------------------------------------------------ */

bool rate_receive(struct way *way, const struct perf_options *options, struct run_result *result)
{
	uint64_t expected = options->iterations * way->session.options.queue_pairs;
	struct rate rate;
	bool good = rate_open(&rate, way, options, result);
	uint64_t gone = 0;

	meter_start(&rate.meter, options);
	while (good && (!expected || rate.received < expected) && !run_over(0, UINT64_MAX)) {
		uint64_t before = rate.received;

		meter_look(&rate.meter, run_now(), rate.received);
		good = take(&rate);
		if (before == 0 && rate.received)
			meter_start(&rate.meter, options); /* the first one begins it */
		if (rate.received != before) {
			gone = 0;
		} else if (way->opener->over && way->opener->over(way->context)) {
			gone = gone ? gone : run_now();
			if (run_now() - gone > (expected ? RUN_LAST_WORDS : 0))
				break;
		}
	}
	result->received = rate.received;
	meter_end(&rate.meter, rate.received, result);
	rate_close(&rate);
	return good;
}
