/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-sim: both ends of lib/transport over a seeded network in virtual time, against a model
 * that predicts every completion and every byte of memory.
 *
 * Exit status: 0 when every check held, 1 when one did not (the seed and the command line
 * that shows it again are printed), 2 for a wrong command line, 77 when a big run is
 * left out because ORIEL_TEST_QUICK=true.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define OVERRIDES 32u

static struct {
	const char *program;
	uint64_t first, last; /* seeds */
	uint64_t packets;
	uint64_t soak; /* seconds */
	const char *log;
	bool big, verbose;
	char *override[OVERRIDES]; /* name=value */
	unsigned int overrides;
} options = { .first = 1, .last = 1, .packets = 20000 };

/* --- failure ---------------------------------------------------------------------- */

/* How to see it again; also for a signal handler, so made beforehand. */
static char replay[1024];

static void prepare_replay(uint64_t seed)
{
	int length = snprintf(replay, sizeof(replay), "replay: %s --seed %llu --packets %llu",
			      options.program, (unsigned long long)seed,
			      (unsigned long long)options.packets);

	for (unsigned int i = 0; i < options.overrides && length < (int)sizeof(replay) - 64; i++)
		length += snprintf(replay + length, sizeof(replay) - (size_t)length, " --%s",
				   options.override[i]);
	snprintf(replay + length, sizeof(replay) - (size_t)length, " --log sim-%llu.log\n",
		 (unsigned long long)seed);
}

static void on_crash(int number)
{
	if (write(STDERR_FILENO, replay, strlen(replay)) < 0)
		_exit(1);
	signal(number, SIG_DFL);
	raise(number);
}

void sim_log(struct world *world, const char *format, ...)
{
	va_list list;

	if (world->log == NULL)
		return;
	fprintf(world->log, "%12.3f ", (double)world->now / 1000);
	va_start(list, format);
	vfprintf(world->log, format, list);
	va_end(list);
	fputc('\n', world->log);
}

void sim_fail(struct world *world, const char *format, ...)
{
	va_list list;

	fprintf(stderr, "FAILED, seed %llu, chapter %u, at %.3f us after %llu frames: ",
		(unsigned long long)world->config.seed, world->config.chapter,
		(double)world->now / 1000, (unsigned long long)world->statistics.frames);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, "\n%s", replay);
	if (world->log) {
		va_start(list, format);
		fprintf(world->log, "%12.3f FAILED: ", (double)world->now / 1000);
		vfprintf(world->log, format, list);
		va_end(list);
		fputc('\n', world->log);
		fclose(world->log);
	}
	fflush(NULL);
	_exit(1);
}

/* --- one run ---------------------------------------------------------------------- */

static void report(uint64_t seed, const struct sim_statistics *s)
{
	printf("seed %llu: %llu frames (%llu lost, %llu doubled, %llu late, %llu corrupt, "
	       "%llu forged), %llu requests, %llu receives, %llu queue pairs, %llu comparisons, "
	       "%llu deaths, %llu moves\n",
	       (unsigned long long)seed, (unsigned long long)s->frames, (unsigned long long)s->lost,
	       (unsigned long long)s->doubled, (unsigned long long)s->reordered,
	       (unsigned long long)s->corrupt, (unsigned long long)s->forged,
	       (unsigned long long)s->requests, (unsigned long long)s->receives,
	       (unsigned long long)s->lives * 2, (unsigned long long)s->quiet_points,
	       (unsigned long long)s->restarts, (unsigned long long)s->moves);
	fflush(stdout);
}

static void add_statistics(struct sim_statistics *sum, const struct sim_statistics *one)
{
	uint64_t *to = (uint64_t *)sum;
	const uint64_t *from = (const uint64_t *)one;

	for (unsigned int i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
		to[i] += from[i];
}

static void run_chapter(struct world *world)
{
	for (unsigned int i = 0; i < options.overrides; i++) {
		char *equals = strchr(options.override[i], '=');

		*equals = '\0';
		config_set(&world->config, options.override[i], equals + 1);
		*equals = '=';
	}
	sim_log(world, "chapter %u", world->config.chapter);
	world_run(world);
}

static FILE *open_log(void)
{
	FILE *log = options.log ? fopen(options.log, "w") : NULL;

	if (options.log && log == NULL) {
		fprintf(stderr, "oriel-sim: %s: %s\n", options.log, strerror(errno));
		exit(2);
	}
	return log;
}

static void run_seed(uint64_t seed, struct sim_statistics *sum)
{
	struct sim_statistics all = { 0 };
	struct fault_deck deck = { 0 };
	FILE *log = open_log();
	uint64_t frames;

	prepare_replay(seed);
	for (uint32_t chapter = 0; (frames = chapter_frames(seed, options.packets, chapter)) != 0;
	     chapter++) {
		struct world *world = calloc(1, sizeof(*world));

		if (world == NULL) {
			perror("oriel-sim");
			exit(1);
		}
		config_draw(&world->config, seed, chapter, frames);
		world->log = log;
		world->deck = &deck;
		run_chapter(world);
		add_statistics(&all, &world->statistics);
		free(world);
	}
	report(seed, &all);
	if (log)
		fclose(log);
	add_statistics(sum, &all);
}

static void report_sum(const struct sim_statistics *s, uint64_t seeds)
{
	printf("%llu seeds, %llu frames, %llu requests: all checks held\n",
	       (unsigned long long)seeds, (unsigned long long)s->frames,
	       (unsigned long long)s->requests);
	if (!options.verbose)
		return;
	for (int i = 1; i < FAULT_COUNT; i++)
		printf("  %6llu of %6llu told as such: %s\n", (unsigned long long)s->exact[i],
		       (unsigned long long)s->fault[i], fault_name((enum fault)i));
	printf("  %llu of %llu unreliable messages with a receive arrived\n",
	       (unsigned long long)s->loose_received, (unsigned long long)s->loose);
	printf("  %llu frames with any headers, of %llu pairs of queue pairs made for that\n",
	       (unsigned long long)s->wild, (unsigned long long)s->wild_lives);
	printf("  %llu ends by timeout, %llu by flush, %llu windows taken while in use, "
	       "%llu looks at their memory\n",
	       (unsigned long long)s->timeouts_legal, (unsigned long long)s->flushed_lives,
	       (unsigned long long)s->revoked_in_use, (unsigned long long)s->strip_checks);
}

/* --- command line ---------------------------------------------------------- */

static _Noreturn void usage(FILE *out, int status)
{
	const char *help, *name;

	fprintf(out,
		"Usage: oriel-sim [OPTION]...\n"
		"Both ends of the transport over a simulated network, checked against a model.\n\n"
		"  --seed N          the run's seed (1)\n"
		"  --seeds FROM-TO   several runs\n"
		"  --packets N       frames of a run (20000)\n"
		"  --soak SECONDS    new seeds, from --seed on, until the time is over\n"
		"  --log FILE        every frame and request of the (last) run\n"
		"  --verbose         what was covered\n"
		"  --big             leave out, exit 77, when ORIEL_TEST_QUICK=true\n\n"
		"What a seed draws can be fixed:\n");
	for (unsigned int i = 0; (name = config_name(i, &help)) != NULL; i++)
		fprintf(out, "  --%s=VALUE%*s%s\n", name, (int)(16 - strlen(name)), "", help);
	exit(status);
}

static uint64_t number(const char *option, const char *text)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end) {
		fprintf(stderr, "oriel-sim: %s wants a number, not \"%s\"\n", option, text);
		exit(2);
	}
	return value;
}

static void parse_seeds(char *text)
{
	char *dash = strchr(text, '-');

	if (dash == NULL) {
		fprintf(stderr, "oriel-sim: --seeds wants FROM-TO, not \"%s\"\n", text);
		exit(2);
	}
	*dash = '\0';
	options.first = number("--seeds", text);
	options.last = number("--seeds", dash + 1);
}

/* getopt's numbers of options: ours, then those of config_name(). */
enum {
	OPT_SEED = 1,
	OPT_SEEDS,
	OPT_PACKETS,
	OPT_SOAK,
	OPT_LOG,
	OPT_VERBOSE,
	OPT_BIG,
	OPT_HELP,
	OPT_VALUE
};

static void add_override(const char *name, const char *value)
{
	struct sim_config scratch;

	memset(&scratch, 0, sizeof(scratch));
	if (!config_set(&scratch, name, value)) {
		fprintf(stderr, "oriel-sim: --%s cannot be \"%s\"\n", name, value);
		exit(2);
	}
	if (options.overrides >= OVERRIDES ||
	    asprintf(&options.override[options.overrides++], "%s=%s", name, value) < 0)
		usage(stderr, 2);
}

static void take_option(int option)
{
	const char *help;

	switch (option) {
	case OPT_SEED: options.first = options.last = number("--seed", optarg); break;
	case OPT_SEEDS: parse_seeds(optarg); break;
	case OPT_PACKETS: options.packets = number("--packets", optarg); break;
	case OPT_SOAK: options.soak = number("--soak", optarg); break;
	case OPT_LOG: options.log = optarg; break;
	case OPT_VERBOSE: options.verbose = true; break;
	case OPT_BIG: options.big = true; break;
	case OPT_HELP: usage(stdout, 0);
	case '?': usage(stderr, 2);
	default:
		if (option < OPT_VALUE)
			usage(stderr, 2);
		add_override(config_name((unsigned int)(option - OPT_VALUE), &help), optarg);
	}
}

static void parse(int argc, char **argv)
{
	struct option list[64] = {
		{ "seed", required_argument, NULL, OPT_SEED },
		{ "seeds", required_argument, NULL, OPT_SEEDS },
		{ "packets", required_argument, NULL, OPT_PACKETS },
		{ "soak", required_argument, NULL, OPT_SOAK },
		{ "log", required_argument, NULL, OPT_LOG },
		{ "verbose", no_argument, NULL, OPT_VERBOSE },
		{ "big", no_argument, NULL, OPT_BIG },
		{ "help", no_argument, NULL, OPT_HELP },
	};
	const char *help, *name;
	int option;

	for (unsigned int i = 0; (name = config_name(i, &help)) != NULL; i++)
		list[OPT_HELP + i] =
			(struct option){ name, required_argument, NULL, OPT_VALUE + (int)i };
	while ((option = getopt_long(argc, argv, "", list, NULL)) != -1)
		take_option(option);
	if (optind < argc)
		usage(stderr, 2);
}

int main(int argc, char **argv)
{
	const char *quick = getenv("ORIEL_TEST_QUICK");
	const time_t started = time(NULL);
	struct sim_statistics sum;
	uint64_t seed;

	options.program = argv[0];
	parse(argc, argv);
	if (options.big && quick && strcmp(quick, "true") == 0)
		return 77;
	signal(SIGSEGV, on_crash);
	signal(SIGBUS, on_crash);
	signal(SIGABRT, on_crash);
	memset(&sum, 0, sizeof(sum));
	for (seed = options.first;
	     options.soak ? time(NULL) - started < (time_t)options.soak : seed <= options.last;
	     seed++)
		run_seed(seed, &sum);
	report_sum(&sum, seed - options.first);
	return 0;
}
