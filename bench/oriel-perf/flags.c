/* SPDX-License-Identifier: BSD-3-Clause */
/* The flags of the command line: names, values, help. */
#include "oriel-perf/flags.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ndk/ndk.h>

#include "common/argument.h"

enum kind { SWITCH, NUMBER8, NUMBER16, NUMBER32, NUMBER64, REAL, TEXT, OWN, IGNORED };

struct flag {
	const char *name;
	char letter; /* 0: none */
	enum kind kind;
	size_t offset;        /* in struct perf_options */
	double least, most;   /* of numbers */
	unsigned int only;    /* bits of the operations that know it; 0: all */
	const char *argument; /* NULL: takes none */
	const char *help;     /* NULL: another name of the flag before it */
	bool (*read)(const char *option, const char *text, struct perf_options *options); /* OWN */
};

#define OPTION_SIZE 40 /* bytes of "--" and the longest name */

/* --- values of their own ---------------------------------------------------------------------- */

static bool wrong(const char *option, const char *text, const char *expected)
{
	fprintf(stderr, "oriel-perf: %s %s: expected %s\n", option, text, expected);
	return false;
}

static bool read_word(const char *option, const char *text, const char *const *words,
		      const char *expected, unsigned int *value)
{
	for (*value = 0; words[*value]; (*value)++)
		if (!strcmp(text, words[*value]))
			return true;
	return wrong(option, text, expected);
}

static bool read_export(const char *option, const char *text, struct perf_options *options)
{
	return argument_endpoint(option, text, &options->export);
}

static bool read_local(const char *option, const char *text, struct perf_options *options)
{
	return argument_address(option, text, &options->local);
}

static bool read_in_process(const char *option, const char *text, struct perf_options *options)
{
	char *socket;

	if (asprintf(&socket, ORIEL_IN_PROCESS "%s", text) < 0)
		return wrong(option, text, "memory for it");
	options->socket = socket;
	return true;
}

static bool read_pattern(const char *option, const char *text, struct perf_options *options)
{
	static const char *const words[] = { "sequential", "random", "zipf", "fixed", NULL };
	unsigned int value;

	if (!read_word(option, text, words, "sequential, random, zipf or fixed", &value))
		return false;
	options->pattern = (enum perf_pattern)value;
	return true;
}

static bool read_skew(const char *option, const char *text, struct perf_options *options)
{
	options->pattern = PERF_ZIPF;
	return argument_real(option, text, 0, 8, &options->skew);
}

static bool read_units(const char *option, const char *text, struct perf_options *options)
{
	static const char *const words[] = { "g", "M", "p", NULL };
	unsigned int value;

	if (!read_word(option, text, words, "g (Gb/s), M (MiB/s) or p (messages/s)", &value))
		return false;
	options->rate_unit = (enum perf_unit)value;
	return true;
}

static bool read_atomic(const char *option, const char *text, struct perf_options *options)
{
	static const char *const words[] = { "FETCH_AND_ADD", "CMP_AND_SWAP", NULL };
	unsigned int value;

	if (!read_word(option, text, words, "FETCH_AND_ADD or CMP_AND_SWAP", &value))
		return false;
	options->compare_swap = value == 1;
	return true;
}

static bool read_type(const char *option, const char *text, struct perf_options *options)
{
	static const ORIEL_QP_TYPE types[] = { OrielQpTypeRc, OrielQpTypeUc, OrielQpTypeUd };
	static const char *const words[] = { "RC", "UC", "UD", NULL };
	unsigned int value;

	if (!read_word(option, text, words, "RC, UC or UD", &value))
		return false;
	options->type = types[value];
	return true;
}

static bool read_latency(const char *option, const char *text, struct perf_options *options)
{
	options->mode = PERF_LATENCY;
	return true;
}

static bool read_warm_up(const char *option, const char *text, struct perf_options *options)
{
	options->warm_up = 0.1;
	return true;
}

static bool read_json_file(const char *option, const char *text, struct perf_options *options)
{
	options->json = true;
	options->json_file = text;
	return true;
}

static bool read_port(const char *option, const char *text, struct perf_options *options)
{
	return !strcmp(text, "1") ||
	       wrong(option, text, "1: --local or --gid-index choose among the daemon's ports");
}

static bool read_sl(const char *option, const char *text, struct perf_options *options)
{
	return !strcmp(text, "0") ||
	       wrong(option, text, "0: set the priority of the port in orield's configuration");
}

/* --- the table -------------------------------------------------------------------------------- */

#define AT(member)  offsetof(struct perf_options, member)
#define BIT(number) (1u << (number))
#define ATOMICS     (BIT(PERF_FETCH_ADD) | BIT(PERF_COMPARE_SWAP))
#define PLACED      (BIT(PERF_WRITE) | BIT(PERF_READ) | BIT(PERF_MIXED))
#define READERS     (BIT(PERF_READ) | BIT(PERF_MIXED) | ATOMICS)
#define MOVERS      (PLACED | ATOMICS | BIT(PERF_SEND))

static const struct flag flags[] = {
	{ "export", 0, OWN, 0, 0, 0, 0, "ADDR:PORT",
	  "an oriel-target's listen address ([fd00::1]:7471 for IPv6)", read_export },
	{ "name", 0, TEXT, AT(name), 0, 0, 0, "NAME",
	  "of the export, if several share the address" },
	{ "port", 'p', NUMBER16, AT(port), 1, 65535, 0, "N",
	  "of perftest's server (default 18515)" },
	{ "rdma_cm", 'R', SWITCH, AT(rdma_cm), 0, 0, 0, NULL,
	  "perftest's exchange and connections by rdma_cm instead of TCP" },
	{ "ib-dev", 'd', TEXT, AT(socket), 0, 0, 0, "SOCKET",
	  "of our daemon (default $ORIEL_SOCKET, else /run/oriel/ndk.sock)" },
	{ "in-process", 0, OWN, 0, 0, 0, 0, "FILE",
	  "no daemon: the data plane in this process, FILE as orield's configuration",
	  read_in_process },
	{ "local", 0, OWN, 0, 0, 0, 0, "ADDR", "address of ours (default: the first that fits)",
	  read_local },
	{ "gid-index", 'x', NUMBER32, AT(gid_index), 0, 15, 0, "N",
	  "the same by its place in the daemon's list" },
	{ "ipv6", 0, SWITCH, AT(ipv6), 0, 0, 0, NULL,
	  "with perftest: our first IPv6 address (default: the first IPv4 one)" },
	{ "connection", 'c', OWN, 0, 0, 0, 0, "TYPE",
	  "type of queue pair: RC (default), UC, UD; exports know RC only", read_type },
	{ "mtu", 'm', NUMBER32, AT(mtu), 256, 4096, 0, "BYTES", "path MTU (default: the port's)" },
	{ "qp-timeout", 'u', NUMBER8, AT(timeout), 1, 31, 0, "CODE",
	  "of retransmission, 4.096 us << CODE (default 14; not with -R)" },
	{ "tclass", 0, NUMBER8, AT(traffic_class), 0, 255, 0, "N", "traffic class (not with -R)" },
	{ "qp", 'q', NUMBER32, AT(queue_pairs), 1, 65536, ~BIT(PERF_CONNECT), "N",
	  "queue pairs (default 1)" },
	{ "size", 's', NUMBER32, AT(size), 0, 1u << 30, MOVERS | BIT(PERF_BIND), "BYTES",
	  "of a message (default 65536; latency 2; atomics are 8)" },
	{ "all", 'a', SWITCH, AT(all_sizes), 0, 0, PLACED | BIT(PERF_SEND), NULL,
	  "sizes from 2 to 8388608, those that fit" },
	{ "iters", 'n', NUMBER64, AT(iterations), 1, 1e15, 0, "N", "messages of each queue pair" },
	{ "iterations", 0, NUMBER64, AT(iterations), 1, 1e15, 0, "N", NULL },
	{ "duration", 'D', REAL, AT(seconds), 0.001, 86400, 0, "SECONDS",
	  "instead of a number (default 1)" },
	{ "tx-depth", 't', NUMBER32, AT(depth), 1, 8192, ~BIT(PERF_CONNECT), "N",
	  "requests under way on each queue pair (default 128)" },
	{ "rx-depth", 'r', NUMBER32, AT(receive_depth), 1, 8192, 0, "N",
	  "receives of each queue pair (default 512)" },
	{ "outs", 'o', NUMBER32, AT(reads), 1, 16, READERS, "N",
	  "reads and atomics of a queue pair under way on the link (default 16)" },
	{ "post_list", 'l', NUMBER32, AT(post_list), 1, 8192, MOVERS, "N",
	  "requests for each doorbell (default: as many as there is room for)" },
	{ "cq-mod", 'Q', NUMBER32, AT(moderation), 1, 1024, MOVERS, "N",
	  "one completion for N requests (default 1)" },
	{ "inline_size", 'I', NUMBER32, AT(inline_size), 0, 256,
	  BIT(PERF_WRITE) | BIT(PERF_SEND) | BIT(PERF_MIXED), "BYTES",
	  "messages up to this are copied into the queue (default 0)" },
	{ "bidirectional", 'b', SWITCH, AT(bidirectional), 0, 0, 0, NULL, "both sides send" },
	{ "latency", 0, OWN, 0, 0, 0, 0, NULL, "one request at a time: the same as OPERATION_lat",
	  read_latency },
	{ "atomic_type", 'A', OWN, 0, 0, 0, ATOMICS, "TYPE",
	  "FETCH_AND_ADD (default) or CMP_AND_SWAP", read_atomic },
	{ "read-share", 0, NUMBER32, AT(read_share), 0, 100, BIT(PERF_MIXED), "PERCENT",
	  "of `mixed` (default 50)" },
	{ "pattern", 0, OWN, 0, 0, 0, PLACED, "PATTERN",
	  "places in the window: sequential (default), random, zipf, fixed", read_pattern },
	{ "skew", 0, OWN, 0, 0, 0, PLACED, "THETA",
	  "of zipf: place r has weight 1/r^THETA (default 0.99)", read_skew },
	{ "windows", 0, NUMBER32, AT(windows), 1, 65536, BIT(PERF_BIND) | BIT(PERF_CONNECT), "N",
	  "of `bind` (default: half the depth), at once in `connect` (default 1)" },
	{ "per-window", 0, NUMBER64, AT(per_window), 1, 1e15, PLACED, "N",
	  "after N messages the export is asked for a new window" },
	{ "rate_limit", 0, REAL, AT(rate), 1e-9, 1e12, MOVERS, "RATE",
	  "of all messages (default unit Gb/s)" },
	{ "rate_units", 0, OWN, 0, 0, 0, MOVERS, "g|M|p", "Gb/s, MiB/s or messages/s", read_units },
	{ "burst_size", 0, NUMBER32, AT(burst), 1, 1e9, MOVERS, "N",
	  "messages that may go ahead of the rate (default 1)" },
	{ "warm-up", 0, REAL, AT(warm_up), 0, 3600, ~BIT(PERF_CONNECT), "SECONDS",
	  "of load before the measurement" },
	{ "perform_warm_up", 0, OWN, 0, 0, 0, ~BIT(PERF_CONNECT), NULL, "a tenth of a second of it",
	  read_warm_up },
	{ "verify", 0, SWITCH, AT(verify), 0, 0, MOVERS, NULL, "compare all data" },
	{ "summary", 0, SWITCH, AT(summary), 0, 0, 0, NULL,
	  "a table over writes and reads, rates and latencies" },
	{ "poll", 0, SWITCH, AT(poll), 0, 0, 0, NULL,
	  "busy-poll for completions (wants a processor of its own)" },
	{ "report_gbits", 0, SWITCH, AT(gigabits), 0, 0, 0, NULL, "Gb/s instead of MiB/s" },
	{ "times", 0, SWITCH, AT(times), 0, 0, MOVERS, NULL,
	  "rates, and the time of each message under that load" },
	{ "report-histogram", 'H', SWITCH, AT(histogram), 0, 0, 0, NULL,
	  "all buckets of the latencies" },
	{ "json", 0, SWITCH, AT(json), 0, 0, 0, NULL, "JSON instead of the table" },
	{ "out_json", 0, SWITCH, AT(json), 0, 0, 0, NULL, NULL },
	{ "out_json_file", 0, OWN, 0, 0, 0, 0, "FILE", "the table, and JSON into a file",
	  read_json_file },
	{ "csv", 0, SWITCH, AT(csv), 0, 0, 0, NULL, "comma-separated values instead of the table" },
	{ "quiet", 0, SWITCH, AT(quiet), 0, 0, 0, NULL, "no live line on a terminal" },
	{ "CPU-freq", 'F', IGNORED, 0, 0, 0, 0, NULL, "as perftest's; nothing to do" },
	{ "events", 'e', IGNORED, 0, 0, 0, 0, NULL, "as perftest's; so it is without --poll" },
	{ "ib-port", 'i', OWN, 0, 0, 0, 0, "1",
	  "as perftest's; a daemon's port is chosen by its address", read_port },
	{ "sl", 'S', OWN, 0, 0, 0, 0, "0", "as perftest's; the daemon has one level only",
	  read_sl },
	{ "version", 'V', IGNORED, 0, 0, 0, 0, NULL, "print the version and exit" },
	{ "help", 'h', IGNORED, 0, 0, 0, 0, NULL, "this text" },
};

#define FLAGS (sizeof(flags) / sizeof(flags[0]))
_Static_assert(FLAGS <= FLAGS_MOST, "flags");

static const char head[] =
	"Usage: oriel-perf [options] [OPERATION] --export ADDRESS:PORT\n"
	"       oriel-perf [options] OPERATION         wait for a client, ib_OPERATION or ours\n"
	"       oriel-perf [options] OPERATION HOST    to such a server\n\n"
	"Load for an RDMA data plane, and what it reaches. OPERATION, alone or with _bw or _lat:\n"
	"  write (default), read, atomic, send (not to an export); to exports only: mixed (writes\n"
	"  and reads), bind (windows of ours bound and invalidated), window (new windows at the\n"
	"  export), connect (connections).\n\n";

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

/* --- reading ---------------------------------------------------------------------------------- */

static bool read_flag(const struct flag *flag, const char *text, struct perf_options *options)
{
	void *member = (char *)options + flag->offset;
	char option[OPTION_SIZE];
	uint64_t value = 0;

	snprintf(option, sizeof(option), "--%s", flag->name);
	switch (flag->kind) {
	case SWITCH: *(bool *)member = true; return true;
	case TEXT: *(const char **)member = text; return true;
	case REAL: return argument_real(option, text, flag->least, flag->most, member);
	case OWN: return flag->read(option, text, options);
	case IGNORED: return true;
	default: break;
	}
	if (!argument_number(option, text, (uint64_t)flag->least, (uint64_t)flag->most, &value))
		return false;
	switch (flag->kind) {
	case NUMBER8: *(uint8_t *)member = (uint8_t)value; break;
	case NUMBER16: *(uint16_t *)member = (uint16_t)value; break;
	case NUMBER32: *(uint32_t *)member = (uint32_t)value; break;
	default: *(uint64_t *)member = value; break;
	}
	return true;
}

/* getopt's value of a flag: above all letters. */
#define FIRST_VALUE 512

static const struct flag *find_flag(int value)
{
	if (value >= FIRST_VALUE)
		return &flags[value - FIRST_VALUE];
	for (size_t i = 0; i < FLAGS; i++)
		if (flags[i].letter == value)
			return &flags[i];
	return NULL;
}

static void describe(struct option table[FLAGS + 1], char letters[2 * FLAGS + 1])
{
	size_t used = 0;

	for (size_t i = 0; i < FLAGS; i++) {
		table[i] = (struct option){ flags[i].name,
					    flags[i].argument ? required_argument : no_argument,
					    NULL, FIRST_VALUE + (int)i };
		if (!flags[i].letter)
			continue;
		letters[used++] = flags[i].letter;
		if (flags[i].argument)
			letters[used++] = ':';
	}
}

int flags_read(int argc, char **argv, struct perf_options *options, struct flags_seen *seen)
{
	struct option table[FLAGS + 1] = { 0 };
	char letters[2 * FLAGS + 1] = "";
	int value;

	describe(table, letters);
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
		if (!flag || !read_flag(flag, optarg, options))
			return -EINVAL;
		seen->flag[flag - flags] = true;
	}
	return 0;
}

bool flags_has(const struct flags_seen *seen, const char *name)
{
	for (size_t i = 0; i < FLAGS; i++)
		if (seen->flag[i] && !strcmp(flags[i].name, name))
			return true;
	return false;
}

bool flags_suit(const struct flags_seen *seen, const struct perf_options *options)
{
	for (size_t i = 0; i < FLAGS; i++) {
		if (!seen->flag[i] || !flags[i].only || flags[i].only & BIT(options->operation))
			continue;
		fprintf(stderr, "oriel-perf: --%s has no meaning for %s: it is for", flags[i].name,
			options_operation(options->operation));
		for (unsigned int operation = 0; operation <= PERF_CONNECT; operation++)
			if (flags[i].only & BIT(operation))
				fprintf(stderr, " %s", options_operation(operation));
		fputc('\n', stderr);
		return false;
	}
	return true;
}
