/* SPDX-License-Identifier: BSD-3-Clause */
/* A client of oriel-target's export protocol that knows nothing of Oriel but that protocol. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

static const char usage[] =
	"usage: export-client -a ADDRESS [-p PORT] [-r PORT] [-x EXPORT] [-m ACCESS] [-t CODE]\n"
	"                     [-l] [-v] COMMAND [ARGUMENT]\n"
	"  -a  the target's IPv4 or IPv6 address\n"
	"  -p  port of a read-write export, 7471 when not given\n"
	"  -r  port of a read-only export; without it the checks that need one are left out\n"
	"  -x  name of the export, the port's first when not given\n"
	"  -m  access to ask for: a sum of 1 read, 2 write, 4 atomic; 0, all granted, by default\n"
	"  -t  code of the ACK timeout, 4.096 us << CODE; rdma_cm's own, seconds, by default\n"
	"  -l  the link loses frames: a refusal may be one of them\n"
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

static const struct command commands[] = {
	{ "data", check_data },     { "atomic", check_atomic },   { "pipeline", check_pipeline },
	{ "fill", check_fill },     { "verify", check_verify },   { "refuse", check_refuse },
	{ "rebind", check_rebind }, { "sendinv", check_sendinv }, { "reject", check_reject },
	{ "cycles", check_cycles }, { "die", check_die },         { "wait", check_wait },
	{ "hold", check_hold },     { "stream", check_stream },
};

struct options options = { .port = 7471, .export = "" };

static void parse_options(int argc, char **argv);

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	parse_options(argc, argv);
	return command_run(commands, sizeof(commands) / sizeof(commands[0]), argv + optind, usage);
}

static void parse_options(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "a:p:r:x:m:t:lv")) != -1) {
		switch (option) {
		case 'a': command_address(optarg, &options.address, usage); break;
		case 'p': options.port = command_number(optarg, 65535, usage); break;
		case 'r': options.read_only_port = command_number(optarg, 65535, usage); break;
		case 'x': options.export = optarg; break;
		case 'm': options.access = command_number(optarg, ACCESS_ALL, usage); break;
		case 't': options.timeout = command_number(optarg, 31, usage); break;
		case 'l': options.lossy = true; break;
		case 'v': options.verbose = true; break;
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (!options.address.ss_family || optind >= argc) {
		fputs(usage, stderr);
		exit(2);
	}
}

/* ---- helpers of the checks ---- */

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

/* A queue pair that has refused a request is dead and says so only once. */
bool must_be_refused(const struct peer *peer, const char *name, const char *what, int got)
{
	if (options.lossy && got == IBV_WC_RETRY_EXC_ERR)
		return true;
	return must_complete(peer, name, what, IBV_WC_REM_ACCESS_ERR, got);
}

bool must_write_and_read(struct peer *peer, const char *name, const struct window *window)
{
	static uint64_t seed;
	uint32_t length = window->length < 1500 ? (uint32_t)window->length : 1500;
	uint32_t sink = PEER_BUFFER / 2;
	ssize_t at;
	int status;

	if (!seed)
		seed = pattern_fresh();
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
