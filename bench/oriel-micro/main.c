/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-micro: what each stage of a packet, and each operation behind it, costs on this machine;
 * or, under callgrind, one stage exactly N times, so that its instructions can be counted.
 */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "oriel-micro/engine.h"
#include "oriel-micro/grace.h"
#include "shm/spsc.h"
#include "wire/icrc_method.h"

static const char usage[] =
	"Usage: oriel-micro [options] [BENCHMARK...]\n"
	"Cost of each stage: medians of several rounds, in nanoseconds.\n\n"
	"      --rounds N       (default 9)\n"
	"      --once N         run the one benchmark that is named N times, measure nothing:\n"
	"                       for valgrind --tool=callgrind\n"
	"      --grace N        N grace periods of invalidates with two busy workers, instead\n"
	"      --icrc METHOD    fold512, fold128, isal or table (default: what orield takes here;\n"
	"                       with --once what the processor's features promise)\n"
	"      --list           names of all benchmarks\n"
	"      --json           one JSON object\n"
	"      --version, -h, --help\n";

#define ROUNDS_MAX 101u
#define FRAMES     1024u
#define ROUND_NS   20000000.0

/* What a benchmark works on; made by its set-up. */
struct bench {
	struct engine *engine;
	uint8_t *bytes, *copy;
	uint32_t size;
	uint32_t length; /* of a frame in bytes */
	uint32_t *order; /* random places */
	uint32_t places;
	uint32_t *token;  /* of the windows in that order */
	uint32_t windows; /* that frames choose from; 0: the first one */
	uint64_t random;
	uint64_t sum; /* of what comes out, so that nothing is left out */
	struct shm_ring_cursor *ring;
};

struct benchmark {
	const char *name;
	bool (*set_up)(struct bench *bench, uint32_t argument);
	void (*run)(struct bench *bench, uint64_t times);
	uint32_t argument;
};

/* --- ICRC ------------------------------------------------------------------------------------- */

static bool set_up_bytes(struct bench *bench, uint32_t size)
{
	bench->size = size;
	bench->bytes = calloc(1, 8192);
	bench->copy = calloc(1, 8192);
	return bench->bytes && bench->copy;
}

static void run_icrc(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += icrc_update((uint32_t)bench->sum, bench->bytes, bench->size);
}

static void run_icrc_copy(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += icrc_copy_update((uint32_t)bench->sum, bench->copy, bench->bytes,
					       bench->size);
}

static void run_memcpy(struct bench *bench, uint64_t times)
{
	while (times--) {
		memcpy(bench->copy, bench->bytes, bench->size);
		__asm__ volatile("" ::"r"(bench->copy) : "memory");
	}
}

/* --- tables ----------------------------------------------------------------------------------- */

static bool shuffle(struct bench *bench, uint32_t places)
{
	bench->places = places;
	bench->random = 88172645463325252ull;
	bench->order = malloc(FRAMES * 64 * sizeof(*bench->order));
	for (uint32_t i = 0; bench->order && i < FRAMES * 64; i++) {
		bench->random ^= bench->random << 13;
		bench->random ^= bench->random >> 7;
		bench->random ^= bench->random << 17;
		bench->order[i] = (uint32_t)((bench->random >> 32) * places >> 32);
	}
	return bench->order;
}

static bool set_up_windows(struct bench *bench, uint32_t windows)
{
	bench->engine = engine_create(1, windows, 1);
	return bench->engine && shuffle(bench, windows);
}

static void run_token_hit(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct access access;

	for (uint64_t i = 0; i < times; i++) {
		uint32_t w = bench->order[i % (FRAMES * 64)];

		bench->sum += memory_access(e->memory, &who, e->token[w],
					    ENGINE_BASE + w * 64u % (ENGINE_MEMORY - 4096u), 64,
					    RIGHT_REMOTE_WRITE, &access);
	}
}

static void run_token_miss(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct access access;

	for (uint64_t i = 0; i < times; i++)
		bench->sum += memory_access(e->memory, &who, (uint32_t)(i * 2654435761u),
					    ENGINE_BASE, 64, RIGHT_REMOTE_WRITE, &access);
}

static bool set_up_queue_pairs(struct bench *bench, uint32_t qps)
{
	bench->engine = engine_create(qps, 2, 2);
	return bench->engine && shuffle(bench, qps);
}

static void run_qp_find(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;

	for (uint64_t i = 0; i < times; i++)
		bench->sum += transport_find(e->worker, e->qpn[bench->order[i % (FRAMES * 64)]]);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* A bind and its invalidate with the grace period of one worker that reports at once. */
static void run_bind(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct bind_request request = { .region = e->region,
					.window = e->window[0],
					.token = e->token[0],
					.rights = RIGHTS_REMOTE,
					.address = ENGINE_BASE,
					.length = 4096 };
	uint32_t slot;
	uint64_t grace;

	while (times--) {
		if (token_invalidate(e->memory, &who, request.token, false, &slot, &grace))
			abort();
		while (grace && !memory_grace_done(e->memory, grace))
			memory_quiescent(e->memory, 0);
		request.token = token_recycle(e->memory, 0, slot);
		while (request.token == 0)
			if (token_reserve(e->memory, ENGINE_SESSION, 1, &request.token) != 1)
				abort();
		if (window_bind(e->memory, &who, &request))
			abort();
	}
	e->token[0] = request.token;
}

/* --- frames ----------------------------------------------------------------------------------- */

static uint32_t queue_pair_of(const struct bench *bench, uint64_t frame)
{
	return bench->windows ? 0 : bench->order[frame % (FRAMES * 64)];
}

static bool make_frames(struct bench *bench, uint8_t opcode)
{
	bench->bytes = calloc(FRAMES, 2048);
	for (uint32_t i = 0; bench->bytes && i < FRAMES; i++)
		bench->length =
			engine_request(bench->engine, queue_pair_of(bench, i), opcode,
				       bench->engine->token[0], 64, bench->bytes + i * 2048ull);
	return bench->bytes;
}

static bool set_up_frames(struct bench *bench, uint8_t opcode, uint32_t qps)
{
	if (!set_up_queue_pairs(bench, qps) || !make_frames(bench, opcode))
		return false;
	memset(bench->engine->psn, 0, qps * sizeof(uint32_t));
	return true;
}

static bool set_up_write(struct bench *bench, uint32_t qps)
{
	return set_up_frames(bench, OP_RC_WRITE_ONLY, qps);
}

/* One queue pair, many windows. */
static bool set_up_write_windows(struct bench *bench, uint32_t windows)
{
	bench->windows = windows;
	if (!set_up_windows(bench, windows) || !make_frames(bench, OP_RC_WRITE_ONLY))
		return false;
	bench->engine->psn[0] = 0;
	bench->token = malloc(FRAMES * 64 * sizeof(*bench->token));
	for (uint32_t i = 0; bench->token && i < FRAMES * 64; i++)
		bench->token[i] = bench->engine->token[bench->order[i]];
	return bench->token;
}

static bool set_up_read(struct bench *bench, uint32_t qps)
{
	return set_up_frames(bench, OP_RC_READ_REQUEST, qps);
}

static void run_parse(struct bench *bench, uint64_t times)
{
	struct wire_view view;

	for (uint64_t i = 0; i < times; i++) {
		bench->sum += wire_parse(bench->bytes + i % FRAMES * 2048, bench->length, &view);
		bench->sum += view.psn;
	}
}

static void run_parse_usual(struct bench *bench, uint64_t times)
{
	const struct wire_usual *usual = &bench->engine->usual;
	struct wire_view view;

	for (uint64_t i = 0; i < times; i++) {
		if (!wire_parse_usual(usual, bench->bytes + i % FRAMES * 2048, bench->length,
				      &view))
			abort();
		bench->sum += view.psn;
	}
}

static void run_verify(struct bench *bench, uint64_t times)
{
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++)
		bench->sum += icrc_verify(&view);
}

/* The transport alone: views made beforehand, PSNs set as they must be. */
static void run_receive(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		uint32_t qp = bench->order[i % FRAMES];

		view.qpn = e->qpn[qp];
		view.psn = e->psn[qp];
		view.ack_request = i % 16 == 15;
		e->psn[qp] = psn_add(e->psn[qp], 1);
		transport_receive(e->worker, &view, NULL, e->now);
		if (transport_last_verdict(e->worker))
			abort();
		if (i % 32 == 31)
			bench->sum += transport_poll(e->worker, e->now);
	}
}

/*
 * Another window for each frame; its ICRC is wrong then, and computed all the same. Tokens come in
 * the order in which they are used, so that finding them here costs nothing.
 */
static void choose_windows(struct bench *bench, struct wire_view view[32], uint64_t from)
{
	for (unsigned int k = 0; k < 32; k++) {
		const uint64_t at = (from + k) % (FRAMES * 64);
		struct reth *reth =
			(struct reth *)(bench->bytes + (view_reth(&view[k])->va.b - bench->bytes));

		reth->rkey = be32_make(bench->token[at]);
		reth->va =
			be64_make(ENGINE_BASE + bench->order[at] * 64u % (ENGINE_MEMORY - 4096u));
	}
}

/* All stages of the worker's loop but the port: bursts of 32. */
static void run_packet(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;

	for (uint64_t i = 0; i < times; i += 32) {
		struct wire_view view[32];
		uint32_t place[32];
		bool many_tokens;

		for (unsigned int k = 0; k < 32; k++)
			wire_parse_usual(&e->usual, bench->bytes + (i + k) % FRAMES * 2048,
					 bench->length, &view[k]);
		if (bench->windows)
			choose_windows(bench, view, i);
		for (unsigned int k = 0; k < 32; k++)
			view[k].qpn = e->qpn[queue_pair_of(bench, i + k)];
		many_tokens = transport_look_up(e->worker, view, place, 32);
		for (unsigned int k = 0; k < 32; k++)
			bench->sum += icrc_verify(&view[k]);
		if (many_tokens)
			transport_fetch_targets(e->worker, view, 32);
		for (unsigned int k = 0; k < 32; k++) {
			uint32_t qp = queue_pair_of(bench, i + k);

			place[k] = qp_confirm(e->shared, place[k], view[k].qpn);
			view[k].psn = e->psn[qp];
			view[k].ack_request = k % 16 == 15;
			e->psn[qp] = psn_add(e->psn[qp], 1);
			transport_receive_at(e->worker, place[k], &view[k], NULL, e->now);
			if (transport_last_verdict(e->worker))
				abort();
		}
		bench->sum += transport_poll(e->worker, e->now);
		memory_quiescent(e->memory, 0);
	}
}

/* A READ at a time: request in, response out. */
static void run_read(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		uint32_t qp = bench->order[i % FRAMES];

		view.qpn = e->qpn[qp];
		view.psn = e->psn[qp];
		e->psn[qp] = psn_add(e->psn[qp], 1);
		transport_receive(e->worker, &view, NULL, e->now);
		bench->sum += transport_poll(e->worker, e->now);
	}
}

/* As many at once as a peer may have outstanding. */
static void run_read_burst(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		view.psn = e->psn[0];
		e->psn[0] = psn_add(e->psn[0], 1);
		transport_receive_at(e->worker, e->qp[0], &view, NULL, e->now);
		if (i % 16 == 15)
			bench->sum += transport_poll(e->worker, e->now);
	}
}

static void run_idle_poll(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += transport_poll(bench->engine->worker, bench->engine->now);
}

static void run_build(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += engine_request(bench->engine, 0, OP_RC_WRITE_ONLY, 1, bench->size,
					     bench->engine->buffer);
}

static bool set_up_build(struct bench *bench, uint32_t size)
{
	bench->size = size;
	return set_up_queue_pairs(bench, 1);
}

/* --- rings ------------------------------------------------------------------------------------ */

static bool set_up_ring(struct bench *bench, uint32_t argument)
{
	bench->ring = aligned_alloc(64, sizeof(*bench->ring));
	if (bench->ring)
		memset(bench->ring, 0, sizeof(*bench->ring));
	return bench->ring;
}

/* Both ends on one core: the instructions, without the way between two caches. */
static void run_ring(struct bench *bench, uint64_t times)
{
	uint32_t tail = bench->ring->tail;

	while (times--) {
		bench->sum += shm_ring_free(bench->ring, tail, 256);
		shm_store_release(&bench->ring->tail, ++tail);
		bench->sum += shm_ring_used(bench->ring, bench->ring->head);
		shm_store_release(&bench->ring->head, bench->ring->head + 1);
	}
}

/* --- the list --------------------------------------------------------------------------------- */

static const struct benchmark benchmarks[] = {
	{ "icrc-64", set_up_bytes, run_icrc, 64 },
	{ "icrc-256", set_up_bytes, run_icrc, 256 },
	{ "icrc-1024", set_up_bytes, run_icrc, 1024 },
	{ "icrc-4096", set_up_bytes, run_icrc, 4096 },
	{ "icrc-copy-64", set_up_bytes, run_icrc_copy, 64 },
	{ "icrc-copy-1024", set_up_bytes, run_icrc_copy, 1024 },
	{ "icrc-copy-4096", set_up_bytes, run_icrc_copy, 4096 },
	{ "memcpy-4096", set_up_bytes, run_memcpy, 4096 },
	{ "parse", set_up_write, run_parse, 1 },
	{ "parse-usual", set_up_write, run_parse_usual, 1 },
	{ "icrc-verify-write-64", set_up_write, run_verify, 1 },
	{ "qp-find-1", set_up_queue_pairs, run_qp_find, 1 },
	{ "qp-find-10000", set_up_queue_pairs, run_qp_find, 10000 },
	{ "token-hit-1", set_up_windows, run_token_hit, 1 },
	{ "token-hit-1000", set_up_windows, run_token_hit, 1000 },
	{ "token-hit-1000000", set_up_windows, run_token_hit, 1000000 },
	{ "token-miss-1000000", set_up_windows, run_token_miss, 1000000 },
	{ "bind-and-invalidate", set_up_windows, run_bind, 1 },
	{ "ring", set_up_ring, run_ring, 0 },
	{ "build-64", set_up_build, run_build, 64 },
	{ "build-1024", set_up_build, run_build, 1024 },
	{ "transport-write-64", set_up_write, run_receive, 1 },
	{ "transport-write-64-1000-qps", set_up_write, run_receive, 1000 },
	{ "packet-write-64", set_up_write, run_packet, 1 },
	{ "packet-write-64-1000-qps", set_up_write, run_packet, 1000 },
	{ "packet-write-64-10000-qps", set_up_write, run_packet, 10000 },
	{ "packet-write-64-1000000-windows", set_up_write_windows, run_packet, 1000000 },
	{ "read-64", set_up_read, run_read, 1 },
	{ "read-64-bursts", set_up_read, run_read_burst, 1 },
	{ "idle-poll", set_up_queue_pairs, run_idle_poll, 1 },
};
#define BENCHMARKS (sizeof(benchmarks) / sizeof(benchmarks[0]))

static void tear_down(struct bench *bench)
{
	if (bench->engine)
		engine_destroy(bench->engine);
	free(bench->bytes);
	free(bench->copy);
	free(bench->order);
	free(bench->token);
	free(bench->ring);
	*bench = (struct bench){ .sum = bench->sum };
}

/* --- measuring -------------------------------------------------------------------------------- */

static double now_ns(void)
{
	struct timespec now;

	/* What others do on this processor meanwhile is not ours. */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct result {
	double median, least, most; /* ns */
};

/* Rounds of about 20 ms; a multiple of 32, since bursts are that long. */
static struct result measure(const struct benchmark *b, struct bench *bench, unsigned int rounds)
{
	double ns[ROUNDS_MAX], start = now_ns();
	uint64_t times = 3200;

	b->run(bench, times);
	times = (uint64_t)(ROUND_NS / ((now_ns() - start) / 3200)) / 32 * 32 + 32;
	for (unsigned int i = 0; i < rounds; i++) {
		start = now_ns();
		b->run(bench, times);
		ns[i] = (now_ns() - start) / (double)times;
	}
	qsort(ns, rounds, sizeof(ns[0]), compare);
	return (struct result){ ns[rounds / 2], ns[0], ns[rounds - 1] };
}

static const struct benchmark *find(const char *name)
{
	for (size_t i = 0; i < BENCHMARKS; i++)
		if (strcmp(benchmarks[i].name, name) == 0)
			return &benchmarks[i];
	fprintf(stderr, "oriel-micro: no benchmark '%s'; --list names them\n", name);
	return NULL;
}

static bool run_one(const struct benchmark *b, unsigned int rounds, json_t *json)
{
	struct bench bench = { 0 };
	struct result r;

	if (!b->set_up(&bench, b->argument)) {
		fprintf(stderr, "oriel-micro: %s: no memory, or no region\n", b->name);
		tear_down(&bench);
		return false;
	}
	r = measure(b, &bench, rounds);
	tear_down(&bench);
	if (json)
		json_object_set_new(json, b->name,
				    json_pack("{sfsfsf}", "median_ns", r.median, "least_ns",
					      r.least, "most_ns", r.most));
	else
		printf("%-32s %10.2f %10.2f %10.2f\n", b->name, r.median, r.least, r.most);
	fflush(stdout);
	return true;
}

static bool run_once(const char *name, uint64_t times)
{
	const struct benchmark *b = find(name);
	struct bench bench = { 0 };
	bool good = b && b->set_up(&bench, b->argument);

	if (good)
		b->run(&bench, times);
	tear_down(&bench);
	return good;
}

static bool run_all(int count, char *names[], unsigned int rounds, bool as_json)
{
	json_t *json = as_json ? json_object() : NULL;
	bool good = true;

	if (!json)
		printf("%-32s %10s %10s %10s\n", "", "median ns", "least", "most");
	for (size_t i = 0; good && count == 0 && i < BENCHMARKS; i++)
		good = run_one(&benchmarks[i], rounds, json);
	for (int i = 0; good && i < count; i++) {
		const struct benchmark *b = find(names[i]);

		good = b && run_one(b, rounds, json);
	}
	if (json) {
		json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
		json_decref(json);
	}
	return good;
}

/* --- grace periods --- */

static void run_burst(void *context)
{
	run_packet(context, 32);
}

static void report_grace(const double *us, uint32_t count, bool as_json)
{
	const double p50 = us[count / 2], p99 = us[(uint64_t)count * 99 / 100];
	const double p999 = us[(uint64_t)count * 999 / 1000];

	if (as_json)
		printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"p99_9_us\": %.3f, \"max_us\": "
		       "%.3f}\n",
		       p50, p99, p999, us[count - 1]);
	else
		printf("grace period, us: p50 %.2f, p99 %.2f, p99.9 %.2f, longest %.2f\n", p50, p99,
		       p999, us[count - 1]);
}

static bool run_grace(uint32_t count, bool as_json)
{
	struct bench mine = { 0 }, others = { 0 };
	double *us = calloc(count, sizeof(*us));
	bool good = us && set_up_write(&mine, 1) && set_up_write(&others, 1) &&
		    grace_measure(mine.engine, run_burst, &mine, &others, us, count);

	if (good)
		report_grace(us, count, as_json);
	else
		fputs("oriel-micro: --grace wants two processors, and memory\n", stderr);
	tear_down(&mine);
	tear_down(&others);
	free(us);
	return good;
}

int main(int argc, char *argv[])
{
	enum {
		OPTION_ROUNDS = 256,
		OPTION_ONCE,
		OPTION_GRACE,
		OPTION_ICRC,
		OPTION_LIST,
		OPTION_JSON,
		OPTION_VERSION
	};
	static const struct option options[] = { { "rounds", required_argument, NULL,
						   OPTION_ROUNDS },
						 { "once", required_argument, NULL, OPTION_ONCE },
						 { "grace", required_argument, NULL, OPTION_GRACE },
						 { "icrc", required_argument, NULL, OPTION_ICRC },
						 { "list", no_argument, NULL, OPTION_LIST },
						 { "json", no_argument, NULL, OPTION_JSON },
						 { "version", no_argument, NULL, OPTION_VERSION },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	unsigned long rounds = 9, once = 0, grace = 0;
	const char *icrc = NULL;
	bool json = false;
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case OPTION_ROUNDS: rounds = strtoul(optarg, NULL, 10); break;
		case OPTION_ONCE: once = strtoul(optarg, NULL, 10); break;
		case OPTION_GRACE: grace = strtoul(optarg, NULL, 10); break;
		case OPTION_ICRC: icrc = optarg; break;
		case OPTION_JSON: json = true; break;
		case OPTION_LIST:
			for (size_t i = 0; i < BENCHMARKS; i++)
				puts(benchmarks[i].name);
			return EXIT_SUCCESS;
		case OPTION_VERSION: puts("oriel-micro " ORIEL_VERSION); return EXIT_SUCCESS;
		case 'h': fputs(usage, stdout); return EXIT_SUCCESS;
		default: fputs("See oriel-micro --help.\n", stderr); return 2;
		}
	}
	if (rounds < 1 || rounds > ROUNDS_MAX || (once && optind + 1 != argc)) {
		fputs("oriel-micro: --rounds wants 1 to 101, --once one benchmark\n", stderr);
		return 2;
	}
	/* What is counted shall not hang on what was measured. */
	if (!icrc && !once) {
		icrc_choose();
	} else if (!icrc_use(icrc)) {
		fprintf(stderr, "oriel-micro: --icrc %s: not in this processor\n", icrc);
		return 2;
	}
	if (grace)
		return run_grace((uint32_t)grace, json) ? EXIT_SUCCESS : EXIT_FAILURE;
	if (once)
		return run_once(argv[optind], once) ? EXIT_SUCCESS : EXIT_FAILURE;
	return run_all(argc - optind, argv + optind, (unsigned int)rounds, json) ? EXIT_SUCCESS
										 : EXIT_FAILURE;
}
