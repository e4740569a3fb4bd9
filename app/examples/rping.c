/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-rping: the ping of RDMA, either side, against rping of librdmacm or itself. In each round
 * the server reads the client's buffer, then writes what it read into another one of the client's.
 * Each buffer is told to the server by a SEND of 16 bytes (address, token, length, big-endian); a
 * SEND back says that the server is through.
 */
#include <endian.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/argument.h"
#include "common/sync.h"
#include "examples/example.h"

static const char usage[] =
	"Usage: oriel-rping -s | -c [options]\n"
	"  -s          server\n"
	"  -c          client\n"
	"  -a ADDRESS  of the server: to listen at (server: default the daemon's) or to connect "
	"to\n"
	"  -p PORT     (default 7174)\n"
	"  -C COUNT    rounds (client: default 1; server: until the client leaves)\n"
	"  -S SIZE     bytes of a ping, 64 to 65536 (default 64; the peer's must be the same)\n"
	"  -P          server: serve one client after the other, for ever\n"
	"  -v          print what is pinged\n"
	"  -V          check what comes back\n";

#define DEPTH     16u
#define MAX_SIZE  65536u
#define SEND_AT   0u /* in the memory: 16 bytes each */
#define RECV_AT   64u
#define SOURCE_AT 4096u /* client: what the server reads; server: where it reads to */
#define SINK_AT   (SOURCE_AT + MAX_SIZE)
#define MEMORY    (SINK_AT + MAX_SIZE)

struct advert {
	uint64_t address;
	uint32_t token;
	uint32_t length;
} __attribute__((packed));

struct ping {
	struct example example;
	NDK_QP *qp;
	NDK_MW *source, *sink; /* client */
	bool gone;
	uint32_t size;
	uint64_t count; /* 0: no limit */
	bool verbose, check, persistent;
	struct advert peer; /* last told */
	unsigned int received;
};

static volatile sig_atomic_t stop;

/* --- steps ------------------------------------------------------------------------------------ */

static bool post_receive(struct ping *ping)
{
	const NDK_SGE sge = example_sge(&ping->example, RECV_AT, sizeof(struct advert));
	NTSTATUS status = NdkReceive(ping->qp, NULL, &sge, 1);

	return NT_SUCCESS(status) || example_complain(&ping->example, "posting a receive", status);
}

/* Takes completions until one of `type` came. A peer that left is no error. */
static bool wait_for(struct ping *ping, NDK_OPERATION_TYPE type)
{
	ORIEL_RESULT result;

	while (type != NdkOperationTypeReceive || ping->received == 0) {
		while (OrielGetCqResults(ping->example.cq, &result, 1) == 0) {
			OrielProgress(ping->example.adapter);
			if (ping->gone || stop)
				return false;
		}
		if (!NT_SUCCESS(result.Ndk.Status)) {
			if (result.Ndk.Status != STATUS_CANCELLED)
				example_complain(&ping->example, "a request", result.Ndk.Status);
			return false;
		}
		if (result.Ndk.Type == NdkOperationTypeReceive) {
			if (result.Ndk.BytesTransferred != sizeof(struct advert)) {
				fprintf(stderr, "oriel-rping: the peer sent %u bytes, not 16\n",
					result.Ndk.BytesTransferred);
				return false;
			}
			memcpy(&ping->peer, ping->example.bytes + RECV_AT, sizeof(ping->peer));
			ping->received++;
			if (!post_receive(ping))
				return false;
		} else if (result.Ndk.Type == type) {
			return true;
		}
	}
	ping->received--;
	return true;
}

static bool posted(struct ping *ping, const char *what, NTSTATUS status)
{
	return NT_SUCCESS(status) ||
	       (!ping->gone && example_complain(&ping->example, what, status));
}

static bool send_bytes(struct ping *ping, const struct advert *advert)
{
	const NDK_SGE sge = example_sge(&ping->example, SEND_AT, sizeof(*advert));

	memcpy(ping->example.bytes + SEND_AT, advert, sizeof(*advert));
	return posted(ping, "sending", NdkSend(ping->qp, NULL, &sge, 1, 0)) &&
	       wait_for(ping, NdkOperationTypeSend);
}

/* --- client ----------------------------------------------------------------------------------- */

/* A window for this step only: the peer gets in where it is told to, and not for longer. */
static bool open_window(struct ping *ping, NDK_MW *window, size_t offset, ULONG rights,
			struct advert *advert)
{
	NTSTATUS status;

	do {
		status = NdkBind(ping->qp, NULL, ping->example.mr, window,
				 ping->example.bytes + offset, ping->size,
				 rights | NDK_OP_FLAG_SILENT_SUCCESS);
	} while (status == STATUS_INSUFFICIENT_RESOURCES && OrielProgress(ping->example.adapter));
	if (!posted(ping, "binding a window", status))
		return false;
	*advert = (struct advert){
		.address = htobe64((uint64_t)(uintptr_t)(ping->example.bytes + offset)),
		.token = htobe32(NdkGetRemoteTokenFromMw(window)),
		.length = htobe32(ping->size),
	};
	return true;
}

static bool step(struct ping *ping, NDK_MW *window, size_t offset, ULONG rights)
{
	struct advert advert;

	return open_window(ping, window, offset, rights, &advert) && send_bytes(ping, &advert) &&
	       wait_for(ping, NdkOperationTypeReceive) &&
	       posted(ping, "closing a window",
		      NdkInvalidate(ping->qp, NULL, &window->Header, 0)) &&
	       wait_for(ping, NdkOperationTypeInvalidate);
}

static bool ping_once(struct ping *ping, uint64_t round)
{
	char *source = (char *)ping->example.bytes + SOURCE_AT;
	char *sink = (char *)ping->example.bytes + SINK_AT;
	int used = snprintf(source, ping->size, "rdma-ping-%llu: ", (unsigned long long)round);

	for (uint32_t i = (uint32_t)used; i + 1 < ping->size; i++)
		source[i] = (char)('A' + (round + i) % 58);
	source[ping->size - 1] = '\0';
	memset(sink, 0, ping->size);
	if (!step(ping, ping->source, SOURCE_AT, NDK_OP_FLAG_ALLOW_REMOTE_READ) ||
	    !step(ping, ping->sink, SINK_AT, NDK_OP_FLAG_ALLOW_REMOTE_WRITE))
		return false;
	if (ping->check && memcmp(source, sink, ping->size) != 0) {
		fprintf(stderr, "oriel-rping: round %llu: what came back differs\n",
			(unsigned long long)round);
		return false;
	}
	if (ping->verbose)
		printf("ping data: %s\n", sink);
	return true;
}

static NDK_MW *create_window(struct ping *ping)
{
	struct sync sync = sync_begin(ping->example.adapter);
	NDK_MW *window = NULL;
	NTSTATUS status =
		sync_end(&sync, NdkCreateMw(ping->example.pd, sync_created, &sync, &window));

	if (!NT_SUCCESS(status))
		example_complain(&ping->example, "window", status);
	return sync_object(&sync, window);
}

static bool run_client(struct ping *ping, const struct sockaddr_storage *server)
{
	NDK_CONNECTOR *connector;
	uint64_t round = 0;

	ping->source = create_window(ping);
	ping->sink = create_window(ping);
	ping->qp = example_qp(&ping->example, NULL, DEPTH);
	if (!ping->source || !ping->sink || !ping->qp || !post_receive(ping))
		return false;
	connector = example_connect(&ping->example, ping->qp, server, &ping->gone);
	if (!connector)
		return false;
	while (round < ping->count && !stop && ping_once(ping, round))
		round++;
	example_disconnect(&ping->example, connector);
	printf("oriel-rping: %llu rounds\n", (unsigned long long)round);
	return round == ping->count || stop;
}

/* --- server ----------------------------------------------------------------------------------- */

static bool pong_once(struct ping *ping)
{
	static const struct advert go = { 0 };
	NDK_SGE sge;
	ULONG length;
	NTSTATUS status;

	if (!wait_for(ping, NdkOperationTypeReceive))
		return false;
	length = be32toh(ping->peer.length);
	if (length == 0 || length > MAX_SIZE) {
		fprintf(stderr,
			"oriel-rping: the peer pings with %u bytes; at most %u are possible\n",
			length, MAX_SIZE);
		return false;
	}
	sge = example_sge(&ping->example, SOURCE_AT, length);
	status = NdkRead(ping->qp, NULL, &sge, 1, be64toh(ping->peer.address),
			 be32toh(ping->peer.token), 0);
	if (!posted(ping, "reading", status) || !wait_for(ping, NdkOperationTypeRead))
		return false;
	ping->example.bytes[SOURCE_AT + length - 1] = '\0';
	if (ping->verbose)
		printf("server ping data: %s\n", (char *)ping->example.bytes + SOURCE_AT);
	if (!send_bytes(ping, &go) || !wait_for(ping, NdkOperationTypeReceive))
		return false;
	if (be32toh(ping->peer.length) < length)
		length = be32toh(ping->peer.length);
	sge.Length = length;
	status = NdkWrite(ping->qp, NULL, &sge, 1, be64toh(ping->peer.address),
			  be32toh(ping->peer.token), 0);
	return posted(ping, "writing", status) && wait_for(ping, NdkOperationTypeWrite) &&
	       send_bytes(ping, &go);
}

static bool serve(struct ping *ping, NDK_CONNECTOR *connector)
{
	ORIEL_RESULT result;
	uint64_t rounds = 0;
	bool up;

	ping->gone = false;
	ping->received = 0;
	ping->qp = example_qp(&ping->example, NULL, DEPTH);
	up = ping->qp && post_receive(ping) &&
	     example_accept(&ping->example, connector, ping->qp, &ping->gone);
	while (up && (ping->count == 0 || rounds < ping->count) && !stop && pong_once(ping))
		rounds++;
	if (up)
		example_disconnect(&ping->example, connector);
	example_close_object(&ping->example, &connector->Header);
	if (ping->qp)
		example_close_object(&ping->example, &ping->qp->Header);
	/* What was flushed is not the next client's. */
	while (OrielGetCqResults(ping->example.cq, &result, 1))
		;
	printf("oriel-rping: served %llu rounds\n", (unsigned long long)rounds);
	fflush(stdout);
	return rounds != 0 && (ping->count == 0 || rounds == ping->count);
}

static bool run_server(struct ping *ping, const struct sockaddr_storage *address)
{
	struct example_listener listener;
	bool good;

	if (!example_listen(&ping->example, &listener, address, false))
		return false;
	printf("oriel-rping: listening\n");
	fflush(stdout);
	do {
		NDK_CONNECTOR *connector = example_arrival(&listener, true);

		good = connector && serve(ping, connector);
	} while (ping->persistent && !stop);
	return good;
}

/* --- options ---------------------------------------------------------------------------------- */

static void on_signal(int signal)
{
	stop = 1;
}

struct request {
	struct sockaddr_storage address; /* of the server; none: the daemon's first */
	bool server, client;
	uint16_t port;
};

static bool parse_options(int argc, char *argv[], struct ping *ping, struct request *request)
{
	static const struct option words[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	bool good = true;
	int option;

	while (good && (option = getopt_long(argc, argv, "sca:p:C:S:PvVh", words, NULL)) != -1) {
		switch (option) {
		case 's': request->server = true; break;
		case 'c': request->client = true; break;
		case 'a': good = argument_address("-a", optarg, &request->address); break;
		case 'p': good = argument_port("-p", optarg, &request->port); break;
		case 'C': good = argument_number("-C", optarg, 0, UINT64_MAX, &ping->count); break;
		case 'S': good = argument_small("-S", optarg, 64, MAX_SIZE, &ping->size); break;
		case 'P': ping->persistent = true; break;
		case 'v': ping->verbose = true; break;
		case 'V': ping->check = true; break;
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: good = false;
		}
	}
	if (request->client && ping->count == 0)
		ping->count = 1;
	return good && optind == argc && request->server != request->client &&
	       (request->server || request->address.ss_family);
}

static bool run(struct ping *ping, struct request *request)
{
	struct sockaddr_storage *address = &request->address;

	if (request->server)
		ping->example.local = *address;
	if (!example_open(&ping->example, address->ss_family ? address->ss_family : AF_INET, MEMORY,
			  4 * DEPTH))
		return false;
	if (request->server)
		*address = ping->example.local;
	example_set_port(address, request->port);
	return request->server ? run_server(ping, address) : run_client(ping, address);
}

int main(int argc, char *argv[])
{
	struct ping ping = { .example.program = "oriel-rping", .size = 64 };
	struct request request = { .port = 7174 };
	bool good;

	if (!parse_options(argc, argv, &ping, &request)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	good = run(&ping, &request);
	example_close(&ping.example);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
