/* SPDX-License-Identifier: BSD-3-Clause */
/* A client on libndk that connects out to stock RDMA servers. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "out.h"

static const char usage[] =
	"usage: connect-out -a ADDRESS [-p PORT] [-m MTU] [-l] [-v] COMMAND [ARGUMENT]\n"
	"  -a  the server's IPv4 or IPv6 address\n"
	"  -p  its port, 7480 when not given\n"
	"  -m  the path MTU: where the corners are, 1024 when not given\n"
	"  -l  the link loses frames: a refusal may be one of them\n"
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
	"  perftest write|read\n"
	"with rdma_server, which replies, and rdma_xserver:\n"
	"  single [reply]      one SEND of 16 bytes\n"
	"with ibv_rc_pingpong and its relatives, whose -p is ours:\n"
	"  pingpong rc|uc|ud|srq[:HOST]  they serve at HOST, or come to us\n";

static const struct command commands[] = {
	{ "send", check_send },         { "write", check_write },
	{ "read", check_read },         { "atomic", check_atomic },
	{ "fence", check_fence },       { "invalidate", check_invalidate },
	{ "pipeline", check_pipeline }, { "late", check_late },
	{ "serve", check_serve },       { "refuse", check_refuse },
	{ "reject", check_reject },     { "gone", check_gone },
	{ "silent", check_silent },     { "number", check_number },
	{ "stream", check_stream },     { "cycles", check_cycles },
	{ "perftest", check_perftest }, { "pingpong", check_pingpong },
	{ "single", check_single },
};

struct options options = { .port = 7480, .mtu = 1024 };

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

	while ((option = getopt(argc, argv, "a:p:m:lv")) != -1) {
		switch (option) {
		case 'a': command_address(optarg, &options.remote, usage); break;
		case 'p': options.port = (uint16_t)command_number(optarg, 65535, usage); break;
		case 'm': options.mtu = (uint32_t)command_number(optarg, 4096, usage); break;
		case 'l': options.lossy = true; break;
		case 'v': options.verbose = true; break;
		default: fputs(usage, stderr); exit(2);
		}
	}
	if (!options.remote.ss_family || optind >= argc || options.mtu < 256) {
		fputs(usage, stderr);
		exit(2);
	}
}
