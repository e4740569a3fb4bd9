/* SPDX-License-Identifier: BSD-3-Clause */
/* A client of oriel-target's export protocol that knows nothing of Oriel but that protocol. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static const char usage[] =
	"usage: export-client -a ADDRESS [-p PORT] [-r PORT] [-x EXPORT] [-m ACCESS] [-t CODE]\n"
	"                     [-v] COMMAND [ARGUMENT]\n"
	"  -a  the target's IPv4 or IPv6 address\n"
	"  -p  port of a read-write export, 7471 when not given\n"
	"  -r  port of a read-only export; without it the checks that need one are left out\n"
	"  -x  name of the export, the port's first when not given\n"
	"  -m  access to ask for: a sum of 1 read, 2 write, 4 atomic; 0, all granted, by default\n"
	"  -t  code of the ACK timeout, 4.096 us << CODE; rdma_cm's own, seconds, by default\n"
	"  -v  say more\n"
	"commands:\n"
	"  data            WRITE and READ at many sizes and alignments\n"
	"  atomic          FETCH_ADD and CMP_SWAP\n"
	"  pipeline        many operations outstanding at once\n"
	"  stream MIB      a lot of data, written and read back, and how fast\n"
	"  fill SEED       leave a pattern in the export\n"
	"  verify SEED     find it again\n"
	"  refuse [NAME]   accesses that must end with a remote access error\n"
	"  rebind          a new window by SEND; requests by SEND that must be refused\n"
	"  sendinv         SEND with invalidate kills the window\n"
	"  reject          connections that must be rejected\n"
	"  cycles N        connect, write, read, disconnect\n"
	"  die             exit in the middle of a READ\n"
	"  hold SECONDS    stay connected; the target must disconnect within that time\n"
	"  wait SECONDS    until a connection works\n";

static const struct command {
	const char *name;
	void (*run)(const char *argument);
} commands[] = {
	{ "data", check_data },     { "atomic", check_atomic },   { "pipeline", check_pipeline },
	{ "fill", check_fill },     { "verify", check_verify },   { "refuse", check_refuse },
	{ "rebind", check_rebind }, { "sendinv", check_sendinv }, { "reject", check_reject },
	{ "cycles", check_cycles }, { "die", check_die },         { "wait", check_wait },
	{ "hold", check_hold },     { "stream", check_stream },
};

struct options options = { .port = 7471, .export = "" };
unsigned int failures;

static void parse_options(int argc, char **argv);

int main(int argc, char **argv)
{
	const char *argument;

	setvbuf(stdout, NULL, _IOLBF, 0);
	parse_options(argc, argv);
	argument = optind + 1 < argc ? argv[optind + 1] : NULL;
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, argv[optind]) != 0)
			continue;
		commands[i].run(argument);
		return failures ? 1 : 0;
	}
	fprintf(stderr, "export-client: no command '%s'\n%s", argv[optind], usage);
	return 2;
}

static void usage_error(const char *what, const char *value)
{
	fprintf(stderr, "export-client: %s '%s'\n%s", what, value, usage);
	exit(2);
}

static void parse_address(const char *text)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&options.address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&options.address;

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

	while ((option = getopt(argc, argv, "a:p:r:x:m:t:v")) != -1) {
		switch (option) {
		case 'a': parse_address(optarg); break;
		case 'p': options.port = parse_number(optarg, 65535); break;
		case 'r': options.read_only_port = parse_number(optarg, 65535); break;
		case 'x': options.export = optarg; break;
		case 'm': options.access = parse_number(optarg, ACCESS_ALL); break;
		case 't': options.timeout = parse_number(optarg, 31); break;
		case 'v': options.verbose = true; break;
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (!options.address.ss_family || optind >= argc) {
		fputs(usage, stderr);
		exit(2);
	}
}

/* ---- reports ---- */

void report_ok(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("ok ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
}

void report_failure(const char *format, ...)
{
	va_list args;

	failures++;
	va_start(args, format);
	printf("FAIL ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
}

const char *status_text(const struct peer *peer, int status)
{
	static char text[2][256];
	static unsigned int turn;
	char *at = text[turn++ % 2];

	if (status < 0)
		snprintf(at, sizeof(text[0]), "%s (%s)", strerror(-status), peer->why);
	else
		snprintf(at, sizeof(text[0]), "%s (%d)", ibv_wc_status_str(status), status);
	return at;
}

/* ---- helpers of the checks ---- */

int connect_to(struct peer *peer, unsigned short port, const struct ask *ask)
{
	struct sockaddr_storage to = options.address;
	int error;

	if (to.ss_family == AF_INET)
		((struct sockaddr_in *)&to)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)&to)->sin6_port = htons(port);
	error = peer_connect(peer, (struct sockaddr *)&to, options.timeout, ask);
	if (options.verbose && error)
		printf("# port %u: %s\n", port, peer->why);
	else if (options.verbose)
		printf("# port %u: access %u address %#lx length %#lx token %#x\n", port,
		       peer->window.access, peer->window.addr, peer->window.length,
		       peer->window.token);
	return error;
}

bool must_connect(struct peer *peer, const char *name, const struct ask *ask)
{
	struct ask named = *ask;
	int error;

	if (!named.name)
		named.name = options.export;
	error = connect_to(peer, options.port, &named);
	if (!error)
		return true;
	report_failure("%s: expected a connection, got %s", name, status_text(peer, error));
	peer_close(peer);
	return false;
}

bool must_close(struct peer *peer, const char *name)
{
	int error = peer_close(peer);

	if (!error)
		return true;
	report_failure("%s: expected a disconnect, got %s", name, status_text(peer, error));
	return false;
}

bool must_complete(const struct peer *peer, const char *name, const char *what,
		   enum ibv_wc_status expected, int got)
{
	if (got == (int)expected)
		return true;
	report_failure("%s: %s: expected %s, got %s", name, what, status_text(peer, expected),
		       status_text(peer, got));
	return false;
}

bool must_write_and_read(struct peer *peer, const char *name, const struct window *window)
{
	static uint64_t seed = 0x5eed;
	uint32_t length = window->length < 1500 ? (uint32_t)window->length : 1500;
	uint32_t sink = PEER_BUFFER / 2;
	ssize_t at;
	int status;

	pattern_fill(peer->buffer, length, ++seed);
	status = peer_write(peer, window->addr, window->token, 0, length);
	if (!must_complete(peer, name, "WRITE", IBV_WC_SUCCESS, status))
		return false;
	memset(peer->buffer + sink, 0, length);
	status = peer_read(peer, window->addr, window->token, sink, length);
	if (!must_complete(peer, name, "READ", IBV_WC_SUCCESS, status))
		return false;
	at = pattern_mismatch(peer->buffer + sink, length, seed);
	if (at >= 0)
		report_failure("%s: byte %zd of %u differs between WRITE and READ", name, at,
			       length);
	return at < 0;
}
