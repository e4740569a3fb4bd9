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

#include "oriel-micro/bench.h"
#include "oriel-micro/crossing.h"
#include "oriel-micro/grace.h"
#include "wire/icrc_method.h"

static const char usage[] =
	"Usage: oriel-micro [options] [BENCHMARK...]\n"
	"Cost of each stage: medians of several rounds, in nanoseconds.\n\n"
	"      --rounds N       (default 9)\n"
	"      --once N         run the one benchmark that is named N times, measure nothing:\n"
	"                       for valgrind --tool=callgrind\n"
	"      --grace N        N grace periods of invalidates with two busy workers, instead\n"
	"      --crossing N     N series of an entry in a ring from a processor to another and\n"
	"                       back, instead\n"
	"      --icrc METHOD    fold512, fold128, isal or table (default: what orield takes here;\n"
	"                       with --once what the processor's features promise)\n"
	"      --list           names of all benchmarks\n"
	"      --json           one JSON object\n"
	"      --version, -h, --help\n";

#define ROUNDS_MAX 101u
#define ROUND_NS   20000000.0
#define TIMES_MAX  100000000u

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

static bool run_one(const struct benchmark *b, unsigned int rounds, json_t *json)
{
	struct bench bench = { 0 };
	struct result r;

	if (!b->set_up(&bench, b->argument)) {
		fprintf(stderr, "oriel-micro: %s: no memory, or no region\n", b->name);
		bench_tear_down(&bench);
		return false;
	}
	r = measure(b, &bench, rounds);
	bench_tear_down(&bench);
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
	const struct benchmark *b = bench_find(name);
	struct bench bench = { 0 };
	bool good = b && b->set_up(&bench, b->argument);

	if (good)
		b->run(&bench, times);
	bench_tear_down(&bench);
	return good;
}

static bool run_all(int count, char *names[], unsigned int rounds, bool as_json)
{
	json_t *json = as_json ? json_object() : NULL;
	bool good = true;

	if (!json)
		printf("%-32s %10s %10s %10s\n", "", "median ns", "least", "most");
	for (size_t i = 0; good && count == 0 && i < benchmarks_count; i++)
		good = run_one(&benchmarks[i], rounds, json);
	for (int i = 0; good && i < count; i++) {
		const struct benchmark *b = bench_find(names[i]);

		good = b && run_one(b, rounds, json);
	}
	if (json) {
		json_dumpf(json, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
		json_decref(json);
	}
	return good;
}

/* --- what takes two processors ---------------------------------------------------------------- */

static void run_burst(void *context)
{
	run_packet(context, BENCH_BURST);
}

static void report_times(const char *what, const char *unit, const double *times, uint32_t count,
			 bool as_json)
{
	const double p50 = times[count / 2], p99 = times[(uint64_t)count * 99 / 100];
	const double p999 = times[(uint64_t)count * 999 / 1000];

	if (as_json)
		printf("{\"p50_%s\": %.3f, \"p99_%s\": %.3f, \"p99_9_%s\": %.3f, \"max_%s\": "
		       "%.3f}\n",
		       unit, p50, unit, p99, unit, p999, unit, times[count - 1]);
	else
		printf("%s, %s: p50 %.2f, p99 %.2f, p99.9 %.2f, longest %.2f\n", what, unit, p50,
		       p99, p999, times[count - 1]);
}

static bool run_grace(uint32_t count, bool as_json)
{
	struct bench mine = { 0 }, others = { 0 };
	double *us = calloc(count, sizeof(*us));
	bool good = us && set_up_write(&mine, 1) && set_up_write(&others, 1) &&
		    grace_measure(mine.engine, run_burst, &mine, &others, us, count);

	if (good)
		report_times("grace period", "us", us, count, as_json);
	else
		fputs("oriel-micro: --grace wants two processors, and memory\n", stderr);
	bench_tear_down(&mine);
	bench_tear_down(&others);
	free(us);
	return good;
}

static bool run_crossing(uint32_t count, bool as_json)
{
	double *ns = calloc(count, sizeof(*ns));
	bool good = ns && crossing_measure(ns, count);

	if (good)
		report_times("one way", "ns", ns, count, as_json);
	else
		fputs("oriel-micro: --crossing wants two processors, and memory\n", stderr);
	free(ns);
	return good;
}

/* --- options ---------------------------------------------------------------------------------- */

struct options {
	uint32_t rounds, grace, crossing;
	uint64_t once;
	const char *icrc;
	bool json;
};

enum {
	OPTION_ROUNDS = 256,
	OPTION_ONCE,
	OPTION_GRACE,
	OPTION_CROSSING,
	OPTION_ICRC,
	OPTION_LIST,
	OPTION_JSON,
	OPTION_VERSION
};

static bool take_number(const char *option, uint64_t most, uint64_t *value)
{
	char *end;

	*value = strtoull(optarg, &end, 10);
	if (optarg[0] >= '0' && optarg[0] <= '9' && !*end && *value >= 1 && *value <= most)
		return true;
	fprintf(stderr, "oriel-micro: --%s %s: expected a number from 1 to %" PRIu64 "\n", option,
		optarg, most);
	return false;
}

static bool take_small(const char *option, uint32_t most, uint32_t *value)
{
	uint64_t number;

	if (!take_number(option, most, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

static bool take_option(int option, struct options *o)
{
	switch (option) {
	case OPTION_ROUNDS: return take_small("rounds", ROUNDS_MAX, &o->rounds);
	case OPTION_ONCE: return take_number("once", 1ull << 40, &o->once);
	case OPTION_GRACE: return take_small("grace", TIMES_MAX, &o->grace);
	case OPTION_CROSSING: return take_small("crossing", TIMES_MAX, &o->crossing);
	case OPTION_ICRC: o->icrc = optarg; return true;
	case OPTION_JSON: o->json = true; return true;
	case OPTION_LIST:
		for (size_t i = 0; i < benchmarks_count; i++)
			puts(benchmarks[i].name);
		exit(EXIT_SUCCESS);
	case OPTION_VERSION: puts("oriel-micro " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	default: fputs("See oriel-micro --help.\n", stderr); return false;
	}
}

static bool parse(int argc, char *argv[], struct options *o)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, OPTION_ROUNDS },
		{ "once", required_argument, NULL, OPTION_ONCE },
		{ "grace", required_argument, NULL, OPTION_GRACE },
		{ "crossing", required_argument, NULL, OPTION_CROSSING },
		{ "icrc", required_argument, NULL, OPTION_ICRC },
		{ "list", no_argument, NULL, OPTION_LIST },
		{ "json", no_argument, NULL, OPTION_JSON },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int option;

	*o = (struct options){ .rounds = 9 };
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1)
		if (!take_option(option, o))
			return false;
	if (!!o->once + !!o->grace + !!o->crossing > 1) {
		fputs("oriel-micro: --once, --grace and --crossing: one of them\n", stderr);
		return false;
	}
	if ((o->grace || o->crossing) && optind < argc) {
		fprintf(stderr, "oriel-micro: %s: --grace and --crossing run no benchmark\n",
			argv[optind]);
		return false;
	}
	if (o->once && optind + 1 != argc) {
		fputs("oriel-micro: --once wants one benchmark\n", stderr);
		return false;
	}
	return true;
}

int main(int argc, char *argv[])
{
	struct options o;
	bool good;

	if (!parse(argc, argv, &o))
		return 2;
	/* What is counted shall not hang on what was measured. */
	if (!o.icrc && !o.once) {
		icrc_choose();
	} else if (!icrc_use(o.icrc)) {
		fprintf(stderr, "oriel-micro: --icrc %s: not in this processor\n", o.icrc);
		return 2;
	}
	if (o.grace)
		good = run_grace(o.grace, o.json);
	else if (o.crossing)
		good = run_crossing(o.crossing, o.json);
	else if (o.once)
		good = run_once(argv[optind], o.once);
	else
		good = run_all(argc - optind, argv + optind, o.rounds, o.json);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
