/* SPDX-License-Identifier: BSD-3-Clause */
/* A client on libndk that connects out to stock RDMA servers. */
#include <arpa/inet.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "out.h"

static const char usage[] =
	"usage: connect-out -a ADDRESS [-p PORT] [-m MTU] [-v] COMMAND [ARGUMENT]\n"
	"  -a  the server's IPv4 or IPv6 address\n"
	"  -p  its port, 7480 when not given\n"
	"  -m  the path MTU: where the corners are, 1024 when not given\n"
	"  -v  say more\n"
	"commands, with stock-server:\n"
	"  send, write, read   at many sizes, alignments and in several pieces\n"
	"  atomic              FETCH_ADD and CMP_SWAP\n"
	"  invalidate          SEND with invalidate kills the server's window\n"
	"  fence               READ_FENCE holds what follows back\n"
	"  pipeline            many requests of all kinds outstanding\n"
	"  stream MIB          a lot of data, written and read back, and how fast\n"
	"  late                the server has no receive posted for a while\n"
	"  serve               the server's requests, on a connection that we made\n"
	"  number rc|uc|ud     a second queue pair, connected by number, both ways\n"
	"  refuse NAME         requests that must end with a remote access error\n"
	"  reject              connections that must be refused\n"
	"  gone                the server disconnects, or dies\n"
	"  silent              the server does not answer any more\n"
	"  cycles N            connect, write, read, disconnect\n"
	"with ib_write_bw -R, ib_read_bw -R:\n"
	"  perftest write|read\n";

static const struct command {
	const char *name;
	void (*run)(const char *argument);
} commands[] = {
	{ "send", check_send },         { "write", check_write },
	{ "read", check_read },         { "atomic", check_atomic },
	{ "fence", check_fence },       { "invalidate", check_invalidate },
	{ "pipeline", check_pipeline }, { "late", check_late },
	{ "serve", check_serve },       { "refuse", check_refuse },
	{ "reject", check_reject },     { "gone", check_gone },
	{ "silent", check_silent },     { "number", check_number },
	{ "stream", check_stream },     { "cycles", check_cycles },
	{ "perftest", check_perftest },
};

struct options options = { .port = 7480, .mtu = 1024 };
unsigned int failures;

static void parse_options(int argc, char **argv);

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	parse_options(argc, argv);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[optind]) != 0)
			continue;
		commands[i].run(optind + 1 < argc ? argv[optind + 1] : NULL);
		return failures ? 1 : 0;
	}
	fprintf(stderr, "connect-out: no command '%s'\n%s", argv[optind], usage);
	return 2;
}

static void usage_error(const char *what, const char *value)
{
	fprintf(stderr, "connect-out: %s '%s'\n%s", what, value, usage);
	exit(2);
}

static void parse_address(const char *text)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&options.remote;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&options.remote;

	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	else
		usage_error("not an address:", text);
}

static unsigned long parse_number(const char *text, unsigned long max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (end == text || *end || value > max)
		usage_error("not a number in range:", text);
	return value;
}

static void parse_options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "a:p:m:v")) != -1) {
		switch (option) {
		case 'a': parse_address(optarg); break;
		case 'p': options.port = (uint16_t)parse_number(optarg, 65535); break;
		case 'm': options.mtu = (uint32_t)parse_number(optarg, 4096); break;
		case 'v': options.verbose = true; break;
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (!options.remote.ss_family || optind >= argc || options.mtu < 256) {
		fputs(usage, stderr);
		exit(2);
	}
}

void report_ok(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("ok ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
}

bool report_failure(const char *format, ...)
{
	va_list args;

	failures++;
	va_start(args, format);
	printf("FAIL ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
	return false;
}
