/* SPDX-License-Identifier: BSD-3-Clause */
/* oriel-perf: load through an export, written and read, and what it reaches. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-perf/run.h"

static const char usage[] =
	"Usage: oriel-perf --export ADDRESS:PORT [options] [write|read]\n"
	"Writes to or reads from a window of an oriel-target and prints what it reaches.\n\n"
	"      --export ADDR:PORT  where the target listens ([fd00::1]:7471 for IPv6)\n"
	"      --local ADDR        our address (default: the daemon's first of that family)\n"
	"      --name NAME         export, if several share the address\n"
	"  -s, --size BYTES        of a message (default 65536)\n"
	"  -n, --iterations N      messages (default: by time)\n"
	"  -D, --duration SECONDS  (default 1)\n"
	"  -t, --tx-depth N        requests under way (default 128)\n"
	"      --latency           one request at a time, percentiles\n"
	"      --verify            first write, read back and compare data\n"
	"      --summary           a table over operations and sizes instead of one run\n"
	"      --poll              busy-poll for completions (wants a processor of its own)\n"
	"      --version           print the version and exit\n"
	"  -h, --help              this text\n\n"
	"The daemon is found through $ORIEL_SOCKET, else /run/oriel/ndk.sock.\n";

struct options {
	struct peer_options peer;
	struct run_options run;
	bool verify;
	bool summary;
};

/* --- options ------------------------------------------------------------------------------ */

static bool parse_address(const char *text, bool with_port, struct sockaddr_storage *out)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	char host[64];
	const char *colon = with_port ? strrchr(text, ':') : text + strlen(text);
	size_t length;
	unsigned long port = 0;
	char *end;

	if (!colon)
		return false;
	length = (size_t)(colon - text);
	if (with_port) {
		port = strtoul(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end || port < 1 || port > 65535)
			return false;
	}
	if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (length >= sizeof(host))
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		return true;
	}
	if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1)
		return false;
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	return true;
}

static bool parse_number(const char *option, const char *text, uint64_t minimum, uint64_t maximum,
			 uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && !*end && !errno && *value >= minimum &&
	    *value <= maximum)
		return true;
	fprintf(stderr, "oriel-perf: %s %s: expected a number from %llu to %llu\n", option, text,
		(unsigned long long)minimum, (unsigned long long)maximum);
	return false;
}

static bool parse_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	if (!*end && end != text && *seconds > 0 && *seconds <= 86400)
		return true;
	fprintf(stderr, "oriel-perf: --duration %s: expected seconds above 0\n", text);
	return false;
}

enum {
	OPTION_EXPORT = 256,
	OPTION_LOCAL,
	OPTION_NAME,
	OPTION_LATENCY,
	OPTION_VERIFY,
	OPTION_SUMMARY,
	OPTION_POLL,
	OPTION_VERSION
};

static bool parse_option(int option, struct options *options)
{
	uint64_t value;

	switch (option) {
	case OPTION_EXPORT:
		if (parse_address(optarg, true, &options->peer.remote))
			return true;
		fprintf(stderr, "oriel-perf: --export %s: expected ADDRESS:PORT\n", optarg);
		return false;
	case OPTION_LOCAL:
		if (parse_address(optarg, false, &options->peer.local))
			return true;
		fprintf(stderr, "oriel-perf: --local %s: expected an IP address\n", optarg);
		return false;
	case OPTION_NAME: options->peer.name = optarg; return true;
	case OPTION_LATENCY: options->run.latency = true; return true;
	case OPTION_VERIFY: options->verify = true; return true;
	case OPTION_SUMMARY: options->summary = true; return true;
	case OPTION_POLL: options->peer.poll = true; return true;
	case OPTION_VERSION: puts("oriel-perf " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	case 's':
		if (!parse_number("--size", optarg, 1, 1u << 30, &value))
			return false;
		options->run.size = (uint32_t)value;
		return true;
	case 'n':
		return parse_number("--iterations", optarg, 1, UINT64_MAX - 1,
				    &options->run.iterations);
	case 't':
		if (!parse_number("--tx-depth", optarg, 1, 8192, &value))
			return false;
		options->run.depth = (ULONG)value;
		return true;
	case 'D': return parse_seconds(optarg, &options->run.seconds);
	default: return false;
	}
}

static bool parse_options(int argc, char **argv, struct options *options)
{
	static const struct option table[] = {
		{ "export", required_argument, NULL, OPTION_EXPORT },
		{ "local", required_argument, NULL, OPTION_LOCAL },
		{ "name", required_argument, NULL, OPTION_NAME },
		{ "size", required_argument, NULL, 's' },
		{ "iterations", required_argument, NULL, 'n' },
		{ "duration", required_argument, NULL, 'D' },
		{ "tx-depth", required_argument, NULL, 't' },
		{ "latency", no_argument, NULL, OPTION_LATENCY },
		{ "verify", no_argument, NULL, OPTION_VERIFY },
		{ "summary", no_argument, NULL, OPTION_SUMMARY },
		{ "poll", no_argument, NULL, OPTION_POLL },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	options->run = (struct run_options){ .size = 65536, .seconds = 1, .depth = 128 };
	while ((option = getopt_long(argc, argv, "s:n:D:t:h", table, NULL)) != -1)
		if (!parse_option(option, options))
			return false;
	if (optind < argc && !strcmp(argv[optind], "read")) {
		options->run.operation = RUN_READ;
	} else if (optind < argc && strcmp(argv[optind], "write")) {
		fprintf(stderr, "oriel-perf: %s: expected write or read\n", argv[optind]);
		return false;
	}
	return options->peer.remote.ss_family && argc - optind <= 1;
}

/* --- output ---------------------------------------------------------------------------------- */

static void print_head(void)
{
	printf("%-10s %10s %12s %12s %10s %10s %10s\n", "operation", "bytes", "MiB/s", "messages/s",
	       "p50 us", "p99 us", "p99.9 us");
}

static void print_result(const struct run_options *run, const struct run_result *result)
{
	printf("%-10s %10u %12.1f %12.0f ", run_name(run->operation), run->size,
	       result->bytes_per_second / 1048576, result->messages_per_second);
	if (run->latency)
		printf("%10.1f %10.1f %10.1f\n", result->p50, result->p99, result->p999);
	else
		printf("%10s %10s %10s\n", "-", "-", "-");
	fflush(stdout);
}

static bool summary(struct peer *peer, const struct options *options)
{
	static const uint32_t sizes[] = { 8, 64, 1024, 4096, 65536, 1048576 };
	struct run_options run = options->run;
	struct run_result result;

	print_head();
	for (unsigned int operation = RUN_WRITE; operation <= RUN_READ; operation++) {
		run.operation = (enum run_operation)operation;
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			run.size = sizes[i];
			run.latency = false;
			if (!run_measure(peer, &run, &result))
				return false;
			print_result(&run, &result);
		}
		run.size = 8;
		run.latency = true;
		if (!run_measure(peer, &run, &result))
			return false;
		print_result(&run, &result);
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options options = { 0 };
	struct run_result result;
	struct peer peer;
	uint64_t bytes;
	bool good;

	if (!parse_options(argc, argv, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	options.peer.memory = options.run.size > 4u << 20 ? 2ull * options.run.size : 8ull << 20;
	options.peer.depth = options.run.depth;
	good = peer_open(&peer, &options.peer);
	if (good && options.verify) {
		good = run_verify(&peer, &bytes);
		if (good)
			printf("verified: %llu bytes written, read back and compared\n",
			       (unsigned long long)bytes);
	}
	if (good && options.summary) {
		good = summary(&peer, &options);
	} else if (good) {
		print_head();
		good = run_measure(&peer, &options.run, &result);
		if (good)
			print_result(&options.run, &result);
	}
	peer_close(&peer);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
