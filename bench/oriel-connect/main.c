/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-connect: how fast connections come and go. The client connects and disconnects, some at
 * once, and prints rate and percentiles; the server accepts whoever comes (itself, or cmtime of
 * librdmacm) and follows the client's disconnect.
 */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/argument.h"
#include "oriel-connect/lane.h"

static const char usage[] = "Usage: oriel-connect [-s SERVER] [options]\n"
			    "  -s ADDRESS  connect there (default: be the server, until SIGTERM)\n"
			    "  -b ADDRESS  of ours (default: the daemon's first)\n"
			    "  -c N        connections, one after the other (default 1000)\n"
			    "  -j N        of them at once (client: default 1; server: 1024)\n"
			    "  -p PORT     (default 7471)\n";

#define MAX_LANES 4096u
#define CQ_DEPTH  64u

struct series {
	int64_t *ns;
	uint32_t count;
};

struct bench {
	struct lane_owner owner; /* first: the callback gets it */
	struct example example;
	struct lane *lane;
	uint32_t lanes, connections;
	uint32_t begun, ended, failed, busy;
	NTSTATUS wrong; /* of the last that failed */
	struct series connect, disconnect, cycle;
};

static volatile sig_atomic_t stop;

static void on_signal(int signal)
{
	stop = 1;
}

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* --- client -------------------------------------------------------------------------------- */

static void remember(struct bench *bench, const struct lane *lane)
{
	bench->connect.ns[bench->connect.count++] = lane->up - lane->begin;
	bench->disconnect.ns[bench->disconnect.count++] = lane->over - lane->end;
	bench->cycle.ns[bench->cycle.count++] = lane->over - lane->begin;
}

/* What failed is counted; the lane is begun anew by the loop, not from inside a callback's stack.
 */
static void on_client_ended(struct lane_owner *owner, struct lane *lane)
{
	struct bench *bench = (struct bench *)owner;

	bench->ended++;
	bench->busy--;
	if (lane->failed) {
		bench->failed++;
		bench->wrong = lane->wrong;
	} else {
		remember(bench, lane);
	}
}

static bool progress(struct bench *bench)
{
	return OrielProgress(bench->example.adapter) ||
	       NT_SUCCESS(OrielWait(bench->example.adapter, 100));
}

static void run_client(struct bench *bench)
{
	bench->owner.ended = on_client_ended;
	while (bench->ended < bench->connections && !stop) {
		for (uint32_t i = 0; i < bench->lanes && bench->begun < bench->connections; i++) {
			if (bench->lane[i].step != LANE_IDLE)
				continue;
			bench->begun++;
			bench->busy++;
			lane_connect(&bench->lane[i]);
		}
		if (bench->busy && !progress(bench))
			break;
	}
}

static int compare(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static void print_series(const char *name, struct series *series)
{
	uint32_t n = series->count;
	uint32_t middle, late;

	if (!n)
		return;
	qsort(series->ns, n, sizeof(*series->ns), compare);
	middle = n / 2;
	late = (uint32_t)((uint64_t)n * 99 / 100);
	printf("%-11s %9.1f %9.1f %9.1f %9.1f\n", name, (double)series->ns[middle] / 1e3,
	       (double)series->ns[late] / 1e3, (double)series->ns[n - 1] / 1e3,
	       (double)series->ns[0] / 1e3);
}

static bool client(struct bench *bench)
{
	double begin = seconds(), took;

	run_client(bench);
	took = seconds() - begin;
	printf("oriel-connect: %" PRIu32 " connected and disconnected in %.2f s, %" PRIu32
	       " at once: %.0f per second\n",
	       bench->connect.count, took, bench->lanes, (double)bench->connect.count / took);
	printf("us          %9s %9s %9s %9s\n", "median", "p99", "most", "least");
	print_series("connect", &bench->connect);
	print_series("disconnect", &bench->disconnect);
	print_series("both", &bench->cycle);
	if (bench->failed)
		fprintf(stderr, "oriel-connect: %" PRIu32 " failed, the last one: %s\n",
			bench->failed, OrielStatusName(bench->wrong));
	return bench->connect.count == bench->connections;
}

/* --- server -------------------------------------------------------------------------------- */

static void on_server_ended(struct lane_owner *owner, struct lane *lane)
{
	struct bench *bench = (struct bench *)owner;

	bench->ended++;
	bench->busy--;
	if (!lane->failed)
		return;
	bench->failed++;
	bench->wrong = lane->wrong;
}

static struct lane *idle_lane(struct bench *bench)
{
	for (uint32_t i = 0; bench->busy < bench->lanes && i < bench->lanes; i++) {
		struct lane *lane = &bench->lane[(bench->begun + i) % bench->lanes];

		if (lane->step == LANE_IDLE)
			return lane;
	}
	return NULL;
}

static void take_arrivals(struct bench *bench, struct example_listener *listener)
{
	while (listener->head != listener->tail) {
		struct lane *lane = idle_lane(bench);

		if (!lane)
			return; /* the next one waits in the listener */
		bench->begun++;
		bench->busy++;
		lane_accept(lane, example_arrival(listener, false));
	}
}

static bool server(struct bench *bench, uint16_t port)
{
	struct sockaddr_storage address = bench->example.local;
	struct example_listener listener;

	example_set_port(&address, port);
	bench->owner.ended = on_server_ended;
	if (!example_listen(&bench->example, &listener, &address, false))
		return false;
	printf("oriel-connect: listening\n");
	fflush(stdout);
	while (!stop && progress(bench))
		take_arrivals(bench, &listener);
	printf("oriel-connect: %" PRIu32 " served, %" PRIu32 " of them failed%s%s\n", bench->ended,
	       bench->failed, bench->failed ? ", the last one: " : "",
	       bench->failed ? OrielStatusName(bench->wrong) : "");
	return true;
}

/* --- options ------------------------------------------------------------------------------- */

static bool allocate(struct bench *bench)
{
	struct series *series[] = { &bench->connect, &bench->disconnect, &bench->cycle };

	bench->lane = calloc(bench->lanes, sizeof(*bench->lane));
	if (!bench->lane)
		return false;
	for (uint32_t i = 0; i < bench->lanes; i++)
		bench->lane[i].owner = &bench->owner;
	for (uint32_t i = 0; i < 3; i++) {
		series[i]->ns = calloc(bench->connections, sizeof(*series[i]->ns));
		if (!series[i]->ns)
			return false;
	}
	return true;
}

static bool run(struct bench *bench, const struct sockaddr_storage *remote, uint16_t port)
{
	int family = remote->ss_family ? remote->ss_family : bench->example.local.ss_family;
	bool good;

	bench->owner.example = &bench->example;
	bench->owner.remote = remote->ss_family ? remote : NULL;
	if (!bench->lanes)
		bench->lanes = bench->owner.remote ? 1 : 1024;
	good = allocate(bench) &&
	       example_open(&bench->example, family ? family : AF_INET, 4096, CQ_DEPTH) &&
	       (bench->owner.remote ? client(bench) : server(bench, port));
	example_close(&bench->example);
	free(bench->lane);
	free(bench->connect.ns);
	free(bench->disconnect.ns);
	free(bench->cycle.ns);
	return good;
}

static bool parse_options(int argc, char *argv[], struct bench *bench,
			  struct sockaddr_storage *remote, uint16_t *port)
{
	bool good = true;
	static const struct option words[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int option;

	while (good && (option = getopt_long(argc, argv, "s:b:c:j:p:h", words, NULL)) != -1) {
		switch (option) {
		case 's': good = argument_address("-s", optarg, remote); break;
		case 'b': good = argument_address("-b", optarg, &bench->example.local); break;
		case 'c':
			good = argument_small("-c", optarg, 1, UINT32_MAX, &bench->connections);
			break;
		case 'j': good = argument_small("-j", optarg, 1, MAX_LANES, &bench->lanes); break;
		case 'p': good = argument_port("-p", optarg, port); break;
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: good = false;
		}
	}
	if (remote->ss_family)
		example_set_port(remote, *port);
	return good && optind == argc;
}

int main(int argc, char *argv[])
{
	struct bench bench = { .example.program = "oriel-connect", .connections = 1000 };
	struct sockaddr_storage remote = { 0 };
	uint16_t port = 7471;

	if (!parse_options(argc, argv, &bench, &remote, &port)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	return run(&bench, &remote, port) ? EXIT_SUCCESS : EXIT_FAILURE;
}
