/* SPDX-License-Identifier: BSD-3-Clause */
/* Latency: one request at a time, or a message and its answer. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "oriel-perf/run.h"

#define PATIENCE 10000000000ull /* ns without an answer */
#define SPINS    1000u

static bool over(void)
{
	fprintf(stderr, "oriel-perf: the connection is over\n");
	return false;
}

/* --- one-sided requests: from the post to the completion ---------------------------------- */

struct turn {
	struct way *way;
	const struct perf_options *options;
	struct run_result *result;
	struct verify *verify;
	struct traffic traffic;
	uint64_t step;
	uint64_t swaps; /* the value that the next compare-and-swap expects */
};

static NTSTATUS begin(struct turn *turn, struct peer *peer)
{
	const struct perf_options *options = turn->options;
	struct request request = { .operation = options->operation, .size = options->size };

	switch (options->operation) {
	case PERF_WINDOW: return export_ask(peer, options->name);
	case PERF_FETCH_ADD:
	case PERF_COMPARE_SWAP:
		request.size = 8;
		request.compare = turn->swaps;
		break;
	case PERF_MIXED:
		request.operation = traffic_reads(&turn->traffic) ? PERF_READ : PERF_WRITE;
		turn->result->reads += request.operation == PERF_READ;
		post_place(&request, peer, &turn->traffic, turn->step, turn->verify);
		break;
	default: post_place(&request, peer, &turn->traffic, turn->step, turn->verify);
	}
	return post_request(peer, &request);
}

static void finish(struct turn *turn, const struct session *session)
{
	uint64_t found;

	if (turn->options->operation == PERF_WINDOW)
		turn->result->windows++;
	if (turn->options->operation != PERF_COMPARE_SWAP)
		return;
	memcpy(&found, session->sink, sizeof(found));
	if (found != turn->swaps) {
		turn->result->refused++;
		turn->swaps = found;
	} else {
		turn->swaps++;
	}
}

static bool turn_once(struct turn *turn, struct peer *peer)
{
	enum export_answer answer = EXPORT_ANSWER_WINDOW;
	struct session *session = peer->session;
	uint64_t before = run_now();
	NDK_RESULT_EX result;
	ULONG count;

	do {
		NTSTATUS status = begin(turn, peer);

		if (!NT_SUCCESS(status))
			return session_complain("posting", status);
		if (!session_results(session, &result, 1, &count))
			return over();
		if (!post_completed(&result))
			return false;
		if (result.Type & NdkOperationTypeReceive)
			answer = export_answer(&result);
		turn->result->refused += answer == EXPORT_ANSWER_AGAIN;
	} while (answer == EXPORT_ANSWER_AGAIN);
	if (answer == EXPORT_ANSWER_FAILED)
		return false;
	latency_add(&turn->result->times, run_now() - before);
	finish(turn, session);
	return !turn->verify ||
	       verify_completed(turn->verify, (uint32_t)(uintptr_t)result.RequestContext);
}

bool turn_measure(struct way *way, const struct perf_options *options, struct verify *verify,
		  double seconds, struct run_result *result)
{
	struct turn turn = { way, options, result, verify, .step = run_step(options) };
	const uint32_t peers = way->session.options.queue_pairs;
	const uint64_t most = seconds > 0 ? UINT64_MAX : options->iterations * peers;
	uint64_t end;
	struct meter meter;
	bool good;

	good = traffic_open(&turn.traffic, options, run_places(way, options));
	meter_start(&meter, options);
	end = run_end(meter.start, seconds);
	for (uint64_t n = 0; good && n < most; n++) {
		uint64_t now = run_now();

		if (run_over(now, end))
			break;
		meter_look(&meter, now, n);
		good = turn_once(&turn, &way->session.peers[n % peers]);
	}
	result->messages = result->times.count;
	result->latency = true;
	meter_end(&meter, result->messages, result);
	traffic_close(&turn.traffic);
	return good;
}

/* --- message and answer ------------------------------------------------------------------- */

struct exchange {
	struct way *way;
	const struct perf_options *options;
	struct peer *peer;
	bool sends;       /* by SEND, not by WRITE */
	uint64_t come;    /* messages of the other side */
	uint32_t pending; /* our requests without completion */
	bool ended;       /* the other side has had enough */
	uint64_t nearly;  /* when three quarters of the time are over, ns */
};

static bool drain(struct exchange *exchange)
{
	NDK_RESULT_EX results[16];
	ULONG count;

	if (!session_results_until(exchange->peer->session, results, 16, &count, 0))
		return over();
	for (ULONG i = 0; i < count; i++) {
		if (!post_completed(&results[i]))
			return false;
		if (!(results[i].Type & NdkOperationTypeReceive)) {
			exchange->pending--;
			continue;
		}
		exchange->come++;
		if (!post_receive(exchange->peer, (uint32_t)(uintptr_t)results[i].RequestContext))
			return false;
	}
	return true;
}

/* A WRITE's last byte is the number of the message: it is there when all before it is. */
static bool arrived(struct exchange *exchange, uint64_t number)
{
	const uint8_t *last = exchange->peer->session->sink + exchange->options->size - 1;

	if (exchange->sends)
		return exchange->come >= number;
	return __atomic_load_n(last, __ATOMIC_ACQUIRE) == (uint8_t)number;
}

/*
 * Of a run by time the server hears from its client that it is over. To the client the server's end
 * is one of its own accord only where that has a clock too, and this one's time is nearly over. Of
 * a run by messages the last one may still be on its way to us.
 */
static bool ended_well(struct exchange *exchange)
{
	const struct perf_options *options = exchange->options;

	exchange->ended = true;
	if (!options->iterations && (options->server || run_now() >= exchange->nearly))
		return true;
	fputs("oriel-perf: the other side has ended before we did\n", stderr);
	return false;
}

static bool await(struct exchange *exchange, uint64_t number)
{
	const struct peer_opener *opener = exchange->way->opener;
	struct session *session = exchange->peer->session;
	uint64_t start = run_now(), now, gone = 0;

	for (uint64_t spins = 1; !arrived(exchange, number); spins++) {
		if (!drain(exchange))
			return false;
		if (session->disconnected)
			return over();
		if (spins % SPINS)
			continue;
		OrielProgress(session->adapter);
		if (run_over(0, UINT64_MAX)) {
			exchange->ended = true;
			return true;
		}
		now = run_now();
		if (opener->over && opener->over(exchange->way->context)) {
			gone = gone ? gone : now;
			if (!exchange->options->iterations || now - gone > RUN_LAST_WORDS)
				return ended_well(exchange);
		}
		if (now - start > PATIENCE) {
			fprintf(stderr, "oriel-perf: no answer to message %llu within 10 s\n",
				(unsigned long long)number);
			return false;
		}
		if (!session->options.poll)
			sched_yield();
	}
	return true;
}

static bool say(struct exchange *exchange, uint64_t number)
{
	const struct request request = { .operation = exchange->sends ? PERF_SEND : PERF_WRITE,
					 .size = exchange->options->size };
	struct session *session = exchange->peer->session;
	NTSTATUS status;

	while (exchange->pending >= session->options.depth)
		if (!drain(exchange))
			return false;
	if (request.size)
		session->source[request.size - 1] = (uint8_t)number;
	status = post_request(exchange->peer, &request);
	if (!NT_SUCCESS(status))
		return session_complain("posting", status);
	exchange->pending++;
	return true;
}

/* By SEND the client begins, by WRITE the server does, as perftest has it. */
static bool round_trip(struct exchange *exchange, uint64_t number)
{
	bool first = exchange->options->server != exchange->sends;

	if (first)
		return say(exchange, number) && await(exchange, number);
	return await(exchange, number) && (exchange->ended || say(exchange, number));
}

bool turn_exchange(struct way *way, const struct perf_options *options, struct run_result *result)
{
	struct exchange exchange = { .way = way,
				     .options = options,
				     .peer = way->session.peers,
				     .sends = options->operation == PERF_SEND };
	const uint64_t most = options->iterations ? options->iterations : UINT64_MAX;
	struct meter meter;
	uint64_t end, before;
	bool good = true;

	meter_start(&meter, options);
	end = options->iterations ? UINT64_MAX : meter.start + (uint64_t)(options->seconds * 1e9);
	exchange.nearly = meter.start + (uint64_t)(options->seconds * 0.75e9);
	for (uint64_t n = 1; good && n <= most; n++) {
		before = run_now();
		if (run_over(before, options->server ? UINT64_MAX : end))
			break;
		good = round_trip(&exchange, n);
		if (exchange.ended)
			break;
		result->messages = n;
		/* The first one waits for the other side to be ready. */
		if (n > 1 || most == 1)
			latency_add(&result->times, (run_now() - before) / 2);
		meter_look(&meter, run_now(), n);
	}
	while (good && exchange.pending)
		good = drain(&exchange);
	result->latency = true;
	meter_end(&meter, result->messages, result);
	return good;
}
