/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of oriel-sink. */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "oriel-sink/sink.h"

static const char usage[] =
	"Usage: oriel-sink --peer ADDR --table FILE [options]\n"
	"Queue pairs and windows for oriel-flood, in a table that it reads. Runs until SIGTERM.\n\n"
	"      --peer ADDR      oriel-flood's address\n"
	"      --table FILE     written when all is ready\n"
	"  -q, --qps N          queue pairs (default 1)\n"
	"  -w, --windows N      windows (default 1)\n"
	"  -s, --size BYTES     of each window (default 4096)\n"
	"      --memory BYTES   region that the windows share (default 16777216)\n"
	"  -m, --path-mtu N     256 to 4096 (default 1024)\n"
	"      --receive BYTES  post receives of that size (default: none)\n"
	"      --churn          bind and invalidate further windows as fast as can be\n"
	"      --progress       ten times a second: when it is, and how many binds there were\n"
	"      --seconds N      end by itself\n"
	"      --version, -h, --help\n\n"
	"The daemon is found through $ORIEL_SOCKET, else /run/oriel/ndk.sock. With\n"
	"in-process:FILE instead of a socket there is none.\n";

enum {
	OPTION_PEER = 256,
	OPTION_TABLE,
	OPTION_MEMORY,
	OPTION_RECEIVE,
	OPTION_CHURN,
	OPTION_PROGRESS,
	OPTION_SECONDS,
	OPTION_VERSION
};

static bool take_number(const char *option, uint64_t minimum, uint64_t maximum, uint64_t *value)
{
	char *end;

	*value = strtoull(optarg, &end, 10);
	if (optarg[0] >= '0' && optarg[0] <= '9' && !*end && *value >= minimum && *value <= maximum)
		return true;
	fprintf(stderr, "oriel-sink: --%s %s: expected a number from %" PRIu64 " to %" PRIu64 "\n",
		option, optarg, minimum, maximum);
	return false;
}

static bool take_small(const char *option, uint32_t minimum, uint32_t maximum, uint32_t *value)
{
	uint64_t number;

	if (!take_number(option, minimum, maximum, &number))
		return false;
	*value = (uint32_t)number;
	return true;
}

static bool take_peer(struct sockaddr_storage *peer)
{
	struct sockaddr_in *in = (struct sockaddr_in *)peer;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)peer;

	if (inet_pton(AF_INET, optarg, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		return true;
	}
	if (inet_pton(AF_INET6, optarg, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		return true;
	}
	fprintf(stderr, "oriel-sink: --peer %s: expected an IP address\n", optarg);
	return false;
}

static bool take_option(int option, struct sink_options *o)
{
	uint64_t number;

	switch (option) {
	case OPTION_PEER: return take_peer(&o->peer);
	case OPTION_TABLE: o->table = optarg; return true;
	case 'q': return take_small("qps", 1, 100000, &o->qps);
	case 'w': return take_small("windows", 1, 1000000, &o->windows);
	case 's': return take_number("size", 8, 1u << 30, &o->size);
	case OPTION_MEMORY: return take_number("memory", 4096, 1ull << 36, &o->memory);
	case 'm': return take_small("path-mtu", 256, 4096, &o->path_mtu);
	case OPTION_RECEIVE: return take_small("receive", 1, 1u << 20, &o->receive);
	case OPTION_CHURN: o->churn = true; return true;
	case OPTION_PROGRESS: o->progress = true; return true;
	case OPTION_SECONDS:
		if (!take_number("seconds", 1, 86400, &number))
			return false;
		o->seconds = (double)number;
		return true;
	case OPTION_VERSION: puts("oriel-sink " ORIEL_VERSION); exit(EXIT_SUCCESS);
	case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
	default: fputs("See oriel-sink --help.\n", stderr); return false;
	}
}

bool sink_options_parse(int argc, char *argv[], struct sink_options *o)
{
	static const struct option options[] = {
		{ "peer", required_argument, NULL, OPTION_PEER },
		{ "table", required_argument, NULL, OPTION_TABLE },
		{ "qps", required_argument, NULL, 'q' },
		{ "windows", required_argument, NULL, 'w' },
		{ "size", required_argument, NULL, 's' },
		{ "memory", required_argument, NULL, OPTION_MEMORY },
		{ "path-mtu", required_argument, NULL, 'm' },
		{ "receive", required_argument, NULL, OPTION_RECEIVE },
		{ "churn", no_argument, NULL, OPTION_CHURN },
		{ "progress", no_argument, NULL, OPTION_PROGRESS },
		{ "seconds", required_argument, NULL, OPTION_SECONDS },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ "help", no_argument, NULL, 'h' },
		{ 0 }
	};
	int option;

	*o = (struct sink_options){
		.qps = 1, .windows = 1, .path_mtu = 1024, .size = 4096, .memory = 16u << 20
	};
	while ((option = getopt_long(argc, argv, "q:w:s:m:h", options, NULL)) != -1)
		if (!take_option(option, o))
			return false;
	if (optind < argc || !o->table || !o->peer.ss_family) {
		fputs("oriel-sink: --peer and --table are needed, and nothing else than options\n",
		      stderr);
		return false;
	}
	if (o->size > o->memory || o->receive > o->memory || (o->path_mtu & (o->path_mtu - 1))) {
		fputs("oriel-sink: --size and --receive must fit --memory, and --path-mtu must be "
		      "a "
		      "power of two\n",
		      stderr);
		return false;
	}
	return true;
}
