/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: a table of flags, and the values that depend on each other. */
#include "oriel-perf/options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-perf/perftest_exchange.h"

#define TO_2_GIG 2147483647u

enum kind { SWITCH, NUMBER32, NUMBER64, NUMBER8, REAL, TEXT, SPECIAL, IGNORED };

enum {
	SPECIAL_FIRST = 512, /* getopt's value of a flag is its letter, or this plus its place */
	SEEN_FLAGS = 96,
};

struct flag {
	const char *name;
	char letter; /* 0: none */
	enum kind kind;
	size_t offset; /* in struct perf_options */
	double least, most;
	const char *argument; /* NULL: takes none */
	const char *help;     /* NULL: another name of the flag before it */
};

#define AT(member) offsetof(struct perf_options, member)

static const struct flag flags[] = {
	{ "export", 0, SPECIAL, 0, 0, 0, "ADDR:PORT",
	  "an oriel-target's listen address ([fd00::1]:7471 for IPv6)" },
	{ "name", 0, TEXT, AT(name), 0, 0, "NAME", "of the export, if several share the address" },
	{ "port", 'p', SPECIAL, 0, 1, 65535, "N", "of perftest's server (default 18515)" },
	{ "rdma_cm", 'R', SWITCH, AT(rdma_cm), 0, 0, NULL,
	  "perftest's exchange and connections by rdma_cm instead of TCP" },
	{ "ib-dev", 'd', TEXT, AT(socket), 0, 0, "SOCKET",
	  "of our daemon (default $ORIEL_SOCKET, else /run/oriel/ndk.sock)" },
	{ "in-process", 0, SPECIAL, 0, 0, 0, "FILE",
	  "no daemon: the data plane in this process, FILE as orield's configuration" },
	{ "local", 0, SPECIAL, 0, 0, 0, "ADDR", "address of ours (default: the first that fits)" },
	{ "gid-index", 'x', SPECIAL, 0, 0, 15, "N", "the same by its place in the daemon's list" },
	{ "connection", 'c', SPECIAL, 0, 0, 0, "RC",
	  "type of queue pair: RC (default), UC, UD; exports know RC only" },
	{ "mtu", 'm', NUMBER32, AT(mtu), 256, 4096, "BYTES", "path MTU (default: the port's)" },
	{ "qp-timeout", 'u', NUMBER8, AT(timeout), 1, 31, "CODE",
	  "of retransmission, 4.096 us << CODE (default 14; not with -R)" },
	{ "tclass", 0, NUMBER8, AT(traffic_class), 0, 255, "N", "traffic class (not with -R)" },
	{ "qp", 'q', NUMBER32, AT(queue_pairs), 1, 65536, "N", "queue pairs (default 1)" },
	{ "size", 's', NUMBER32, AT(size), 0, 1u << 30, "BYTES",
	  "of a message (default 65536; latency 2; atomics are 8)" },
	{ "all", 'a', SWITCH, AT(all_sizes), 0, 0, NULL,
	  "sizes from 2 to 8388608, those that fit" },
	{ "iters", 'n', NUMBER64, AT(iterations), 1, 1e15, "N", "messages of each queue pair" },
	{ "iterations", 0, NUMBER64, AT(iterations), 1, 1e15, "N", NULL },
	{ "duration", 'D', REAL, AT(seconds), 0.001, 86400, "SECONDS",
	  "instead of a number (default 1)" },
	{ "tx-depth", 't', NUMBER32, AT(depth), 1, 8192, "N",
	  "requests under way on each queue pair (default 128)" },
	{ "rx-depth", 'r', NUMBER32, AT(receive_depth), 1, 8192, "N",
	  "receives of each queue pair (default 512)" },
	{ "post_list", 'l', NUMBER32, AT(post_list), 1, 8192, "N",
	  "requests for each doorbell (default: as many as there is room for)" },
	{ "cq-mod", 'Q', NUMBER32, AT(moderation), 1, 1024, "N",
	  "one completion for N requests (default 1)" },
	{ "inline_size", 'I', NUMBER32, AT(inline_size), 0, 256, "BYTES",
	  "messages up to this are copied into the queue (default 0)" },
	{ "bidirectional", 'b', SWITCH, AT(bidirectional), 0, 0, NULL, "both sides send" },
	{ "latency", 0, SPECIAL, 0, 0, 0, NULL,
	  "one request at a time: the same as OPERATION_lat" },
	{ "atomic_type", 'A', SPECIAL, 0, 0, 0, "TYPE", "FETCH_AND_ADD (default) or CMP_AND_SWAP" },
	{ "read-share", 0, NUMBER32, AT(read_share), 0, 100, "PERCENT", "of `mixed` (default 50)" },
	{ "pattern", 0, SPECIAL, 0, 0, 0, "PATTERN",
	  "places in the window: sequential (default), random, zipf" },
	{ "skew", 0, SPECIAL, 0, 0, 8, "THETA",
	  "of zipf: place r has weight 1/r^THETA (default 0.99)" },
	{ "windows", 0, NUMBER32, AT(windows), 1, 65536, "N",
	  "of `bind` (default: half the depth), at once in `connect` (default 1)" },
	{ "per-window", 0, NUMBER64, AT(per_window), 1, 1e15, "N",
	  "after N messages the export is asked for a new window" },
	{ "rate_limit", 0, REAL, AT(rate), 1e-9, 1e12, "RATE",
	  "of all messages (default unit Gb/s)" },
	{ "rate_units", 0, SPECIAL, 0, 0, 0, "g|M|p", "Gb/s, MiB/s or messages/s" },
	{ "burst_size", 0, NUMBER32, AT(burst), 1, 1e9, "N",
	  "messages that may go ahead of the rate (default 1)" },
	{ "warm-up", 0, REAL, AT(warm_up), 0, 3600, "SECONDS", "of load before the measurement" },
	{ "perform_warm_up", 0, SPECIAL, 0, 0, 0, NULL, "a tenth of a second of it" },
	{ "verify", 0, SWITCH, AT(verify), 0, 0, NULL, "compare all data" },
	{ "summary", 0, SWITCH, AT(summary), 0, 0, NULL,
	  "a table over writes and reads, rates and latencies" },
	{ "poll", 0, SWITCH, AT(poll), 0, 0, NULL,
	  "busy-poll for completions (wants a processor of its own)" },
	{ "report_gbits", 0, SWITCH, AT(gigabits), 0, 0, NULL, "Gb/s instead of MiB/s" },
	{ "report-histogram", 'H', SWITCH, AT(histogram), 0, 0, NULL,
	  "all buckets of the latencies" },
	{ "json", 0, SWITCH, AT(json), 0, 0, NULL, "JSON instead of the table" },
	{ "out_json", 0, SWITCH, AT(json), 0, 0, NULL, NULL },
	{ "out_json_file", 0, SPECIAL, 0, 0, 0, "FILE", "the table, and JSON into a file" },
	{ "csv", 0, SWITCH, AT(csv), 0, 0, NULL, "comma-separated values instead of the table" },
	{ "quiet", 0, SWITCH, AT(quiet), 0, 0, NULL, "no live line on a terminal" },
	{ "CPU-freq", 'F', IGNORED, 0, 0, 0, NULL, "as perftest's; nothing to do" },
	{ "events", 'e', IGNORED, 0, 0, 0, NULL, "as perftest's; so it is without --poll" },
	{ "sl", 'S', SPECIAL, 0, 0, 15, "0", "as perftest's; the daemon has one level only" },
	{ "version", 'V', SPECIAL, 0, 0, 0, NULL, "print the version and exit" },
	{ "help", 'h', SPECIAL, 0, 0, 0, NULL, "this text" },
};

#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static const char head[] =
	"Usage: oriel-perf --export ADDRESS:PORT [options] [OPERATION]\n"
	"       oriel-perf [options] OPERATION         wait for a client, ib_OPERATION or ours\n"
	"       oriel-perf [options] OPERATION HOST    to such a server\n\n"
	"Load for an RDMA data plane, and what it reaches. OPERATION, alone or with _bw or _lat:\n"
	"  write (default), read, atomic, mixed (writes and reads), bind (windows of ours bound\n"
	"  and invalidated), window (new windows at the export), connect (connections).\n\n";

static const char tail[] = "\nColumns, units and an example of each: doc/oriel-perf.md\n";

static void print_help(void)
{
	fputs(head, stdout);
	for (size_t i = 0; i < FLAGS; i++) {
		char name[64];

		if (!flags[i].help)
			continue;
		snprintf(name, sizeof(name), "--%s%s%s", flags[i].name,
			 flags[i].argument ? "=" : "", flags[i].argument ? flags[i].argument : "");
		if (flags[i].letter)
			printf("  -%c, %-25s %s\n", flags[i].letter, name, flags[i].help);
		else
			printf("      %-25s %s\n", name, flags[i].help);
	}
	fputs(tail, stdout);
}

/* --- values ------------------------------------------------------------------------------- */

static bool wrong(const char *flag, const char *text, const char *expected)
{
	fprintf(stderr, "oriel-perf: --%s %s: expected %s\n", flag, text, expected);
	return false;
}

static bool parse_address(const char *text, bool with_port, struct sockaddr_storage *out)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	const char *colon = with_port ? strrchr(text, ':') : text + strlen(text);
	unsigned long port = 0;
	size_t length;
	char host[64];
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

static bool parse_number(const struct flag *flag, const char *text, uint64_t *value)
{
	char expected[80];
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (text[0] >= '0' && text[0] <= '9' && !*end && !errno &&
	    *value >= (uint64_t)flag->least && *value <= (uint64_t)flag->most)
		return true;
	snprintf(expected, sizeof(expected), "a number from %.0f to %.0f", flag->least, flag->most);
	return wrong(flag->name, text, expected);
}

static bool parse_real(const struct flag *flag, const char *text, double *value)
{
	char expected[80];
	char *end;

	*value = strtod(text, &end);
	if (end != text && !*end && *value >= flag->least && *value <= flag->most)
		return true;
	snprintf(expected, sizeof(expected), "a number from %g to %g", flag->least, flag->most);
	return wrong(flag->name, text, expected);
}

static bool parse_word(const char *text, const char *const *words, unsigned int *value)
{
	for (*value = 0; words[*value]; (*value)++)
		if (!strcmp(text, words[*value]))
			return true;
	return false;
}

/* --- flags whose value is not a plain one --------------------------------------------------- */

static bool parse_pattern(const char *text, struct perf_options *options)
{
	static const char *const words[] = { "sequential", "random", "zipf", NULL };
	unsigned int value;

	if (!parse_word(text, words, &value))
		return wrong("pattern", text, "sequential, random or zipf");
	options->pattern = (enum perf_pattern)value;
	return true;
}

static bool parse_units(const char *text, struct perf_options *options)
{
	static const char *const words[] = { "g", "M", "p", NULL };
	unsigned int value;

	if (!parse_word(text, words, &value))
		return wrong("rate_units", text, "g (Gb/s), M (MiB/s) or p (messages/s)");
	options->rate_unit = (enum perf_unit)value;
	return true;
}

static bool parse_atomic(const char *text, struct perf_options *options)
{
	static const char *const words[] = { "FETCH_AND_ADD", "CMP_AND_SWAP", NULL };
	unsigned int value;

	if (!parse_word(text, words, &value))
		return wrong("atomic_type", text, "FETCH_AND_ADD or CMP_AND_SWAP");
	options->compare_swap = value == 1;
	return true;
}

static bool parse_type(const char *text, struct perf_options *options)
{
	if (!strcmp(text, "RC"))
		options->type = OrielQpTypeRc;
	else if (!strcmp(text, "UC"))
		options->type = OrielQpTypeUc;
	else if (!strcmp(text, "UD"))
		options->type = OrielQpTypeUd;
	else
		return wrong("connection", text, "RC, UC or UD");
	return true;
}

static bool set_in_process(const char *file, struct perf_options *options)
{
	char *socket;

	if (asprintf(&socket, "in-process:%s", file) < 0)
		return wrong("in-process", file, "memory for it");
	options->socket = socket;
	return true;
}

static bool parse_special(const struct flag *flag, const char *text, struct perf_options *options)
{
	const char *name = flag->name;
	uint64_t value;

	if (!strcmp(name, "export"))
		return parse_address(text, true, &options->export) ||
		       wrong(name, text, "ADDRESS:PORT");
	if (!strcmp(name, "local"))
		return parse_address(text, false, &options->local) ||
		       wrong(name, text, "an IP address");
	if (!strcmp(name, "in-process"))
		return set_in_process(text, options);
	if (!strcmp(name, "pattern"))
		return parse_pattern(text, options);
	if (!strcmp(name, "rate_units"))
		return parse_units(text, options);
	if (!strcmp(name, "atomic_type"))
		return parse_atomic(text, options);
	if (!strcmp(name, "connection"))
		return parse_type(text, options);
	if (!strcmp(name, "latency")) {
		options->mode = PERF_LATENCY;
	} else if (!strcmp(name, "perform_warm_up")) {
		options->warm_up = 0.1;
	} else if (!strcmp(name, "out_json_file")) {
		options->json = true;
		options->json_file = text;
	} else if (!strcmp(name, "skew")) {
		options->pattern = PERF_ZIPF;
		return parse_real(flag, text, &options->skew);
	} else if (!strcmp(name, "gid-index")) {
		options->gid_chosen = true;
		if (!parse_number(flag, text, &value))
			return false;
		options->gid_index = (unsigned int)value;
	} else if (!strcmp(name, "port")) {
		if (!parse_number(flag, text, &value))
			return false;
		options->port = (uint16_t)value;
	} else if (!strcmp(name, "sl")) {
		return !strcmp(text, "0") ||
		       wrong(name, text,
			     "0: set the priority of the port in orield's configuration");
	}
	return true;
}

static bool parse_flag(const struct flag *flag, const char *text, struct perf_options *options)
{
	char *member = (char *)options + flag->offset;
	uint64_t value;

	switch (flag->kind) {
	case SWITCH: *(bool *)member = true; return true;
	case NUMBER32:
		if (!parse_number(flag, text, &value))
			return false;
		*(uint32_t *)(void *)member = (uint32_t)value;
		return true;
	case NUMBER8:
		if (!parse_number(flag, text, &value))
			return false;
		*(uint8_t *)member = (uint8_t)value;
		return true;
	case NUMBER64: return parse_number(flag, text, (uint64_t *)(void *)member);
	case REAL: return parse_real(flag, text, (double *)(void *)member);
	case TEXT: *(const char **)(void *)member = text; return true;
	case SPECIAL: return parse_special(flag, text, options);
	case IGNORED: return true;
	}
	return false;
}

/* --- the operation ------------------------------------------------------------------------- */

static const char *const operations[] = {
	[PERF_WRITE] = "write",
	[PERF_READ] = "read",
	[PERF_SEND] = "send",
	[PERF_FETCH_ADD] = "atomic",
	[PERF_COMPARE_SWAP] = "cmp_swap",
	[PERF_MIXED] = "mixed",
	[PERF_BIND] = "bind",
	[PERF_WINDOW] = "window",
	[PERF_CONNECT] = "connect",
	NULL,
};

const char *options_operation(const struct perf_options *options)
{
	return operations[options->operation];
}

static bool parse_operation(const char *text, struct perf_options *options)
{
	char word[32];
	unsigned int value;
	char *end;

	snprintf(word, sizeof(word), "%s", text);
	end = strrchr(word, '_');
	if (end && !strcmp(end, "_lat"))
		options->mode = PERF_LATENCY;
	if (end && (!strcmp(end, "_lat") || !strcmp(end, "_bw")))
		*end = '\0';
	if (!parse_word(word, operations, &value))
		return false;
	options->operation = (enum perf_operation)value;
	if (options->operation == PERF_FETCH_ADD && options->compare_swap)
		options->operation = PERF_COMPARE_SWAP;
	return true;
}

/* --- all together -------------------------------------------------------------------------- */

static const struct flag *find_flag(int value)
{
	if (value >= SPECIAL_FIRST)
		return &flags[value - SPECIAL_FIRST];
	for (size_t i = 0; i < FLAGS; i++)
		if (flags[i].letter == value)
			return &flags[i];
	return NULL;
}

static int read_flags(int argc, char **argv, struct perf_options *options, bool seen[FLAGS])
{
	struct option table[FLAGS + 1] = { 0 };
	char letters[2 * FLAGS + 1] = "";
	size_t used = 0;
	int value;

	for (size_t i = 0; i < FLAGS; i++) {
		table[i] = (struct option){ flags[i].name,
					    flags[i].argument ? required_argument : no_argument,
					    NULL, SPECIAL_FIRST + (int)i };
		if (!flags[i].letter)
			continue;
		letters[used++] = flags[i].letter;
		if (flags[i].argument)
			letters[used++] = ':';
	}
	while ((value = getopt_long(argc, argv, letters, table, NULL)) != -1) {
		const struct flag *flag = find_flag(value);

		if (flag && flag->letter == 'h') {
			print_help();
			return 1;
		}
		if (flag && flag->letter == 'V') {
			puts("oriel-perf " ORIEL_VERSION);
			return 1;
		}
		if (!flag || !parse_flag(flag, optarg, options))
			return -EINVAL;
		seen[flag - flags] = true;
	}
	return 0;
}

static bool was_seen(const bool seen[FLAGS], const char *name)
{
	for (size_t i = 0; i < FLAGS; i++)
		if (seen[i] && !strcmp(flags[i].name, name))
			return true;
	return false;
}

/* What no way to the other side allows. */
static const char *common_contradiction(const struct perf_options *options, const bool seen[FLAGS],
					bool moves, bool atomic)
{
	if (options->all_sizes && was_seen(seen, "size"))
		return "--all is every size: leave --size away";
	if ((options->all_sizes || was_seen(seen, "size")) && atomic)
		return "atomics have 8 bytes: leave --size and --all away";
	if (options->all_sizes && !moves)
		return "--all is for operations that move data";
	if (options->verify && !moves)
		return "--verify is for operations that move data";
	if (options->per_window && (!moves || atomic || options->mode == PERF_LATENCY))
		return "--per-window is for write, read and mixed without --latency";
	if (options->per_window && options->verify)
		return "--verify reads back through the window: leave --per-window away";
	if (options->rate > 0 && (!moves || options->mode == PERF_LATENCY))
		return "--rate_limit is for operations that move data, without --latency";
	if (options->json && !options->json_file && options->csv)
		return "--json and --csv: one of them";
	if (options->iterations && was_seen(seen, "duration"))
		return "--iters and --duration: one of them";
	if (options->depth < options->moderation)
		return "--cq-mod above --tx-depth: no completion would ever come";
	return NULL;
}

/* What perftest has no word for. */
static const char *perftest_contradiction(const struct perf_options *options,
					  const bool seen[FLAGS], bool known)
{
	const bool atomic =
		options->operation == PERF_FETCH_ADD || options->operation == PERF_COMPARE_SWAP;
	const bool one_sided = options->operation == PERF_READ || atomic;

	if (!known || options->operation == PERF_MIXED)
		return "--export ADDRESS:PORT is missing: perftest has write, read, send and "
		       "atomic "
		       "only";
	if (options->type != OrielQpTypeRc && one_sided)
		return "reads and atomics are for reliable connections: --connection RC";
	if (options->type == OrielQpTypeUd && options->operation != PERF_SEND)
		return "datagrams are sent: use send, or another --connection";
	if (options->rdma_cm && options->type != OrielQpTypeRc)
		return "-R is for reliable connections: leave --connection away";
	if (options->verify || options->warm_up > 0 || options->per_window)
		return "--verify, --warm-up and --per-window are for exports: perftest's other "
		       "side "
		       "knows of none";
	if (options->mode == PERF_LATENCY && options->bidirectional)
		return "latency is measured one way: leave --bidirectional away";
	return common_contradiction(options, seen, true, atomic);
}

/* What does not go together, each with what to do instead. */
static const char *contradiction(const struct perf_options *options, const bool seen[FLAGS])
{
	const bool atomic =
		options->operation == PERF_FETCH_ADD || options->operation == PERF_COMPARE_SWAP;
	const bool moves = options->operation <= PERF_MIXED;

	if (!options->export.ss_family)
		return perftest_contradiction(options, seen, moves && !options->summary);
	if (options->host)
		return "--export names the other side: leave the host away";
	if (options->rdma_cm)
		return "-R is perftest's: an export is always reached by the connection manager";
	if (options->operation == PERF_SEND || options->bidirectional)
		return "an export takes no sends and sends nothing: use write or read, or "
		       "oriel-rping and its relatives for sends";
	if (options->type != OrielQpTypeRc)
		return "an export is reached by RC only: leave --connection away";
	if (seen && was_seen(seen, "mtu"))
		return "the connection manager takes the MTU of the ports: set `mtu` in the "
		       "configurations of both daemons";
	return common_contradiction(options, seen, moves, atomic);
}

/* Sizes and numbers as perftest has them, so that the same words do the same at both ends. */
static void fill_in(struct perf_options *options, const bool seen[FLAGS])
{
	const bool bandwidth = options->mode == PERF_BANDWIDTH;

	if (!options->export.ss_family && !was_seen(seen, "duration") && !options->iterations)
		options->iterations = bandwidth && options->operation == PERF_WRITE ? 5000 : 1000;
	if (options->operation == PERF_FETCH_ADD || options->operation == PERF_COMPARE_SWAP)
		options->size = 8;
	else if (!was_seen(seen, "size"))
		options->size = options->operation >= PERF_BIND  ? 4096
				: !bandwidth                     ? 2
				: options->type == OrielQpTypeUd ? 1024
								 : 65536;
}

int options_parse(int argc, char **argv, struct perf_options *options)
{
	bool seen[FLAGS] = { false };
	const char *problem;
	int status;

	*options = (struct perf_options){ .seconds = 1,
					  .queue_pairs = 1,
					  .depth = 128,
					  .receive_depth = 512,
					  .port = PERFTEST_PORT,
					  .moderation = 1,
					  .burst = 1,
					  .read_share = 50,
					  .skew = 0.99 };
	status = read_flags(argc, argv, options, seen);
	if (status)
		return status;
	if (optind < argc && !parse_operation(argv[optind++], options)) {
		fprintf(stderr,
			"oriel-perf: %s: expected write, read, atomic, mixed, bind, window or "
			"connect\n",
			argv[optind - 1]);
		return -EINVAL;
	}
	if (optind < argc)
		options->host = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "oriel-perf: %s: one argument too many\n", argv[optind]);
		return -EINVAL;
	}
	options->server = !options->export.ss_family && !options->host;
	problem = contradiction(options, seen);
	if (problem) {
		fprintf(stderr, "oriel-perf: %s\n", problem);
		return -EINVAL;
	}
	fill_in(options, seen);
	return 0;
}
