/* SPDX-License-Identifier: BSD-3-Clause */
/* oriel-target: exports memory to RDMA peers; comes back by itself when the daemon does. */
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-target/target.h"

static const char usage[] =
	"Usage: oriel-target --config FILE [--check]\n"
	"Exports memory to RDMA peers through orield.\n\n"
	"  -c, --config FILE  configuration (see oriel-target.conf for every key)\n"
	"      --check        check the configuration, then exit\n"
	"      --version      print the version and exit\n"
	"  -h, --help         this text\n\n"
	"SIGHUP writes file-backed exports back; SIGTERM does too and ends.\n";

struct options {
	const char *config;
	bool check;
};

static volatile sig_atomic_t stop;
static volatile sig_atomic_t flush;

static void on_signal(int number)
{
	if (number == SIGHUP)
		flush = 1;
	else
		stop = 1;
}

static void set_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigaction(SIGPIPE, &ignore, NULL);
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	enum { OPTION_CHECK = 256, OPTION_VERSION };
	static const struct option table[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check", no_argument, NULL, OPTION_CHECK },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "c:h", table, NULL)) != -1) {
		switch (option) {
		case 'c': options->config = optarg; break;
		case OPTION_CHECK: options->check = true; break;
		case OPTION_VERSION: puts("oriel-target " ORIEL_VERSION); exit(EXIT_SUCCESS);
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: return false;
		}
	}
	return options->config && optind == argc;
}

static int make_memory(struct target *target)
{
	SIZE_T receive_bytes = (SIZE_T)MAX_CONNECTIONS * RECEIVES * RECEIVE_SIZE;

	target->connections = calloc(MAX_CONNECTIONS, sizeof(*target->connections));
	if (!target->connections ||
	    !NT_SUCCESS(OrielAllocateMemory(receive_bytes, 0, &target->receive_memory))) {
		fprintf(stderr, "oriel-target: no memory for %u connections\n", MAX_CONNECTIONS);
		return -1;
	}
	for (uint32_t e = 0; e < target->config.count; e++)
		if (target_memory_create(&target->config, &target->config.exports[e],
					 &target->memory[e]))
			return -1;
	return 0;
}

static void free_memory(struct target *target)
{
	for (uint32_t e = 0; e < target->config.count; e++)
		target_memory_destroy(&target->memory[e]);
	if (target->receive_memory)
		OrielFreeMemory(target->receive_memory);
	free(target->connections);
}

#define FIRST_PAUSE   200 /* ms */
#define LONGEST_PAUSE 5000

static void explain(NTSTATUS status)
{
	const char *reason = OrielOpenErrorText(); /* empty when it was not the opening */

	if (status == STATUS_DEVICE_NOT_READY || status == STATUS_DEVICE_REMOVED)
		fprintf(stderr, "oriel-target: orield is not there: trying again until it is: %s\n",
			reason);
	else
		fprintf(stderr, "oriel-target: cannot serve: %s%s%s: trying again\n",
			OrielStatusName(status), *reason ? ": " : "", reason);
}

/* Serves; when the daemon goes, waits for its return. The exported data stay as they are. */
static void run(struct target *target)
{
	int pause = FIRST_PAUSE;

	while (!stop) {
		NTSTATUS status = target_open(target);

		if (NT_SUCCESS(status)) {
			fprintf(stderr, "oriel-target: serving %u export%s\n", target->config.count,
				target->config.count == 1 ? "" : "s");
			target->last_failure = STATUS_SUCCESS;
			target_serve(target, &stop, &flush);
			probe_tell(target);
			if (!stop)
				fprintf(stderr, "oriel-target: the daemon is gone, waiting for its "
						"return\n");
			target_close(target);
			pause = FIRST_PAUSE;
		} else if (status != target->last_failure) {
			explain(status);
			target->last_failure = status;
			pause = FIRST_PAUSE;
		} else if (status != STATUS_DEVICE_NOT_READY && pause < LONGEST_PAUSE) {
			pause *= 2;
		}
		if (!stop)
			poll(NULL, 0, pause);
	}
}

int main(int argc, char **argv)
{
	static struct target target;
	struct options options = { 0 };
	int error = 0;

	setlinebuf(stderr);
	if (!parse_options(argc, argv, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	if (target_config_read(&target.config, options.config))
		return EXIT_FAILURE;
	if (options.check) {
		printf("%s: good\n", options.config);
		return EXIT_SUCCESS;
	}
	set_signals();
	if (make_memory(&target)) {
		free_memory(&target);
		return EXIT_FAILURE;
	}
	run(&target);
	for (uint32_t e = 0; e < target.config.count; e++)
		error |= target_memory_flush(&target.config.exports[e], &target.memory[e]);
	free_memory(&target);
	return error ? EXIT_FAILURE : EXIT_SUCCESS;
}
