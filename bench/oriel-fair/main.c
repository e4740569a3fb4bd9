/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-fair: how long a READ of 8 bytes takes while other peers READ as much as they can. Prints
 * one row of a table in Markdown.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/argument.h"
#include "oriel-perf/latency.h"
#include "oriel-perf/peer.h"

#define MOST_READERS 32u
#define SETTLE_MS    300

static const char usage[] =
	"Usage: oriel-fair --export ADDRESS:PORT [options]\n"
	"Times READs of 8 bytes through one connection, one at a time, beside connections that "
	"READ\n"
	"as much as they can.\n\n"
	"      --export ADDR:PORT  where an oriel-target listens (IPv4)\n"
	"  -r, --readers N         connections beside it (default 0, at most 32)\n"
	"  -s, --size BYTES        of their READs (default 67108864)\n"
	"  -t, --tx-depth N        READs that each has under way (default 4)\n"
	"  -D, --duration SECONDS  (default 3)\n"
	"      --socket PATH       the daemon of the connection that is timed (default "
	"$ORIEL_SOCKET)\n"
	"      --reader-socket PATH, --reader-export ADDR:PORT\n"
	"                          another daemon for the others, and its way to the target\n"
	"      --head              print the head of the table first\n"
	"      --version, -h, --help\n";

struct options {
	struct sockaddr_storage timed_export, reader_export;
	struct session_options timed, reader;
	uint32_t readers;
	uint32_t size;
	ULONG depth;
	double seconds;
	bool head;
};

struct reader {
	pthread_t thread;
	struct session session;
	const struct options *options;
	uint64_t bytes; /* atomic */
	bool running;
};

static bool stop; /* atomic: readers finish what is under way */

/* --- readers -------------------------------------------------------------------------- */

static bool post(struct reader *reader)
{
	struct session *session = &reader->session;
	const struct peer *peer = session->peers;
	NDK_SGE sge = { .VirtualAddress = session->sink,
			.Length = reader->options->size,
			.MemoryRegionToken = session->local_token };
	NTSTATUS status =
		NdkRead(peer->qp, NULL, &sge, 1, peer->remote.address, peer->remote.token, 0);

	if (!NT_SUCCESS(status))
		fprintf(stderr, "oriel-fair: posting: %s\n", OrielStatusName(status));
	return NT_SUCCESS(status);
}

static void *read_on(void *argument)
{
	struct reader *reader = argument;
	ULONG under_way = 0, count;
	NDK_RESULT_EX results[16];

	while (under_way < reader->options->depth && post(reader))
		under_way++;
	while (under_way && session_results(&reader->session, results, 16, &count)) {
		for (ULONG i = 0; i < count; i++) {
			under_way--;
			if (!NT_SUCCESS(results[i].Status))
				fprintf(stderr, "oriel-fair: a long READ failed: %s\n",
					OrielStatusName(results[i].Status));
			__atomic_fetch_add(&reader->bytes, reader->options->size, __ATOMIC_RELAXED);
			if (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && post(reader))
				under_way++;
		}
	}
	return NULL;
}

static bool open_readers(struct reader *readers, const struct options *options)
{
	for (uint32_t i = 0; i < options->readers; i++) {
		struct reader *reader = &readers[i];

		reader->options = options;
		if (!session_open(&reader->session, &options->reader) ||
		    !export_open(&reader->session, &options->reader_export, NULL))
			return false;
		if (reader->session.peers[0].remote.length < options->size) {
			fprintf(stderr, "oriel-fair: the export has less than %u bytes\n",
				options->size);
			return false;
		}
	}
	for (uint32_t i = 0; i < options->readers; i++)
		readers[i].running =
			pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) == 0;
	return true;
}

static uint64_t bytes_read(const struct reader *readers)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < MOST_READERS; i++)
		bytes += __atomic_load_n(&readers[i].bytes, __ATOMIC_RELAXED);
	return bytes;
}

/* --- the measurement ------------------------------------------------------------------ */

struct timing {
	double seconds;
	struct latency times;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* READs of 8 bytes, one at a time. */
static bool time_reads(struct session *session, double seconds, struct timing *timing)
{
	const struct peer *peer = session->peers;
	const NDK_SGE sge = { .VirtualAddress = session->sink,
			      .Length = 8,
			      .MemoryRegionToken = session->local_token };
	uint64_t start = now(), before = start;
	NDK_RESULT_EX result;
	NTSTATUS status;
	ULONG count;

	while ((double)(before - start) < seconds * 1e9) {
		status = NdkRead(peer->qp, NULL, &sge, 1, peer->remote.address, peer->remote.token,
				 0);
		if (NT_SUCCESS(status) && session_results(session, &result, 1, &count))
			status = result.Status;
		else if (NT_SUCCESS(status))
			status = STATUS_CONNECTION_DISCONNECTED;
		if (!NT_SUCCESS(status)) {
			fprintf(stderr, "oriel-fair: a READ failed: %s\n", OrielStatusName(status));
			return false;
		}
		latency_add(&timing->times, now() - before);
		before = now();
	}
	timing->seconds = (double)(before - start) * 1e-9;
	return true;
}

static void print_row(const struct options *options, const struct timing *timing, uint64_t bytes)
{
	if (options->head) {
		printf("| readers beside it | of | they get, MiB/s | 8-byte READs/s | p50, us | "
		       "p99, us "
		       "| p99.9, us |\n");
		printf("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
	}
	if (options->readers)
		printf("| %u | %u x %u MiB | %.0f ", options->readers, options->depth,
		       options->size >> 20, (double)bytes / timing->seconds / 1048576);
	else
		printf("| none | - | - ");
	printf("| %.0f | %.1f | %.1f | %.1f |\n", (double)timing->times.count / timing->seconds,
	       (double)latency_percentile(&timing->times, 50) / 1000,
	       (double)latency_percentile(&timing->times, 99) / 1000,
	       (double)latency_percentile(&timing->times, 99.9) / 1000);
	fflush(stdout);
}

static bool measure(const struct options *options)
{
	static struct reader readers[MOST_READERS];
	const struct timespec settle = { .tv_nsec = SETTLE_MS * 1000000 };
	static struct timing timing;
	struct session timed;
	uint64_t bytes;
	bool good;

	good = session_open(&timed, &options->timed) &&
	       export_open(&timed, &options->timed_export, NULL) && open_readers(readers, options);
	if (good) {
		nanosleep(&settle, NULL);
		bytes = bytes_read(readers);
		good = time_reads(&timed, options->seconds, &timing);
		bytes = bytes_read(readers) - bytes;
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < options->readers; i++) {
		if (readers[i].running)
			pthread_join(readers[i].thread, NULL);
		export_close(&readers[i].session);
		session_close(&readers[i].session);
	}
	export_close(&timed);
	session_close(&timed);
	if (good)
		print_row(options, &timing, bytes);
	return good;
}

/* --- options -------------------------------------------------------------------------- */

enum {
	OPTION_EXPORT = 256,
	OPTION_SOCKET,
	OPTION_READER_SOCKET,
	OPTION_READER_EXPORT,
	OPTION_HEAD,
	OPTION_VERSION
};

static bool parse_option(int option, struct options *options)
{
	uint32_t value;

	switch (option) {
	case OPTION_EXPORT: return argument_endpoint("--export", optarg, &options->timed_export);
	case OPTION_READER_EXPORT:
		return argument_endpoint("--reader-export", optarg, &options->reader_export);
	case OPTION_SOCKET: options->timed.socket = optarg; return true;
	case OPTION_READER_SOCKET: options->reader.socket = optarg; return true;
	case OPTION_HEAD: options->head = true; return true;
	case OPTION_VERSION: puts("oriel-fair " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	case 'r': return argument_small("--readers", optarg, 0, MOST_READERS, &options->readers);
	case 's': return argument_small("--size", optarg, 1, 1u << 30, &options->size);
	case 't':
		if (!argument_small("--tx-depth", optarg, 1, 16, &value))
			return false;
		options->depth = value;
		return true;
	case 'D':
		if (!argument_small("--duration", optarg, 1, 3600, &value))
			return false;
		options->seconds = value;
		return true;
	default: return false;
	}
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	static const struct option table[] = {
		{ "export", required_argument, NULL, OPTION_EXPORT },
		{ "readers", required_argument, NULL, 'r' },
		{ "size", required_argument, NULL, 's' },
		{ "tx-depth", required_argument, NULL, 't' },
		{ "duration", required_argument, NULL, 'D' },
		{ "socket", required_argument, NULL, OPTION_SOCKET },
		{ "reader-socket", required_argument, NULL, OPTION_READER_SOCKET },
		{ "reader-export", required_argument, NULL, OPTION_READER_EXPORT },
		{ "head", no_argument, NULL, OPTION_HEAD },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	*options = (struct options){ .size = 64u << 20, .depth = 4, .seconds = 3 };
	while ((option = getopt_long(argc, argv, "r:s:t:D:h", table, NULL)) != -1)
		if (!parse_option(option, options))
			return false;
	options->timed.memory = 4096;
	options->timed.depth = 16;
	options->reader.memory = options->size;
	options->reader.depth = options->depth;
	options->timed.queue_pairs = options->reader.queue_pairs = 1;
	options->timed.receive_depth = options->reader.receive_depth = 1;
	options->timed.family = options->reader.family = AF_INET;
	if (!options->reader_export.ss_family)
		options->reader_export = options->timed_export;
	if (!options->reader.socket)
		options->reader.socket = options->timed.socket;
	return options->timed_export.ss_family && optind == argc;
}

int main(int argc, char **argv)
{
	struct options options;

	if (!parse_options(argc, argv, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	return measure(&options) ? EXIT_SUCCESS : EXIT_FAILURE;
}
