/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-udaddy: datagrams to a queue pair that is found by its service, either side, against udaddy
 * of librdmacm or itself. The client asks, sends its messages with its own queue pair number as
 * immediate data, and gets as many back; where to is in the first 40 bytes of what the server
 * receives.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sync.h"
#include "examples/example.h"
#include "examples/options.h"

static const char usage[] =
	"Usage: oriel-udaddy [-s SERVER] [options]\n"
	"  -s ADDRESS  ask there (default: be the server)\n"
	"  -b ADDRESS  of ours (default: the daemon's first)\n"
	"  -c N        questions, each with a queue pair of its own (default 1)\n"
	"  -C N        messages for each (default 10)\n"
	"  -S BYTES    of a message (default 100)\n"
	"  -p PORT     (default 7174)\n";

#define MAX_NODES 256u
#define QKEY      0x01234567u /* what rdma_cm uses for RDMA_PS_UDP */

struct node {
	NDK_QP *qp;
	NDK_CONNECTOR *connector;
	ORIEL_ADDRESS *peer;
	ULONG number; /* the peer's */
	UINT32 qkey;
	uint32_t sent, received;
	size_t offset; /* of its receive in the memory */
};

struct test {
	struct example example;
	struct node *node;
	struct options options;
};

/* --- queue pairs and addresses ---------------------------------------------------------------- */

static bool open_node(struct test *test, struct node *node)
{
	const ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
						 .Type = OrielQpTypeUd,
						 .ReceiveCq = test->example.cq,
						 .InitiatorCq = test->example.cq,
						 .QPContext = node,
						 .ReceiveQueueDepth = test->options.messages + 1,
						 .InitiatorQueueDepth = test->options.messages + 1,
						 .MaxReceiveRequestSge = 1,
						 .MaxInitiatorRequestSge = 1 };
	const ORIEL_QP_CONNECTION ready = { .Size = sizeof(ready),
					    .QKey = QKEY,
					    .LocalAddress = (PSOCKADDR)&test->example.local };
	const NDK_SGE sge =
		example_sge(&test->example, node->offset, ORIEL_GRH_SIZE + test->options.size);
	struct sync sync = sync_begin(test->example.adapter);
	NTSTATUS status = sync_end(&sync, OrielCreateQp(test->example.pd, &parameters, sync_created,
							&sync, &node->qp));

	if (!NT_SUCCESS(status))
		return example_complain(&test->example, "queue pair", status);
	node->qp = sync_object(&sync, node->qp);
	for (uint32_t i = 0; i < test->options.messages && NT_SUCCESS(status); i++)
		status = NdkReceive(node->qp, NULL, &sge, 1);
	sync = sync_begin(test->example.adapter);
	if (NT_SUCCESS(status))
		status = sync_end(&sync, OrielConnectQp(node->qp, &ready, sync_requested, &sync));
	return NT_SUCCESS(status) || example_complain(&test->example, "making ready", status);
}

static bool open_address(struct test *test, struct node *node, const struct sockaddr_storage *peer)
{
	const ORIEL_ADDRESS_PARAMETERS parameters = { .Size = sizeof(parameters),
						      .LocalAddress =
							      (PSOCKADDR)&test->example.local,
						      .RemoteAddress = (PSOCKADDR)peer };
	struct sync sync = sync_begin(test->example.adapter);
	NTSTATUS status = sync_end(&sync, OrielCreateAddress(test->example.pd, &parameters,
							     sync_created, &sync, &node->peer));

	if (!NT_SUCCESS(status))
		return example_complain(&test->example, "address of the peer", status);
	node->peer = sync_object(&sync, node->peer);
	return true;
}

/* Who sent a datagram: the source address of the IP header in front of it. */
static void sender_of(const struct test *test, const struct node *node,
		      struct sockaddr_storage *peer)
{
	const uint8_t *header = test->example.bytes + node->offset;

	memset(peer, 0, sizeof(*peer));
	peer->ss_family = test->example.local.ss_family;
	if (peer->ss_family == AF_INET)
		memcpy(&((struct sockaddr_in *)peer)->sin_addr, header + 20 + 12, 4);
	else
		memcpy(&((struct sockaddr_in6 *)peer)->sin6_addr, header + 8, 16);
}

/* --- messages --------------------------------------------------------------------------------- */

static bool post_sends(struct test *test)
{
	const NDK_SGE sge = example_sge(&test->example, 0, test->options.size);

	for (uint32_t n = 0; n < test->options.count; n++) {
		struct node *node = &test->node[n];
		const ORIEL_DATAGRAM datagram = { .Address = node->peer,
						  .RemoteQpNumber = node->number,
						  .QKey = node->qkey,
						  .Immediate = htonl(OrielGetQpNumber(node->qp)),
						  .Flags = ORIEL_DATAGRAM_IMMEDIATE };

		for (uint32_t i = 0; i < test->options.messages; i++) {
			NTSTATUS status = OrielSendDatagram(node->qp, NULL, &sge, 1, 0, &datagram);

			if (!NT_SUCCESS(status))
				return example_complain(&test->example, "sending", status);
		}
	}
	return true;
}

/* The first message of a peer says where answers go. */
static bool take_receive(struct test *test, struct node *node, const ORIEL_RESULT *result)
{
	struct sockaddr_storage peer;

	if (result->Ndk.BytesTransferred != ORIEL_GRH_SIZE + test->options.size ||
	    !(result->Flags & ORIEL_RESULT_IMMEDIATE)) {
		fprintf(stderr, "oriel-udaddy: a message of %u bytes%s\n",
			result->Ndk.BytesTransferred,
			result->Flags & ORIEL_RESULT_IMMEDIATE ? "" : " without immediate data");
		return false;
	}
	node->received++;
	if (node->peer)
		return true;
	sender_of(test, node, &peer);
	node->number = ntohl(result->Immediate);
	node->qkey = QKEY;
	return open_address(test, node, &peer);
}

static bool collect(struct test *test, bool receives)
{
	const uint64_t wanted = (uint64_t)test->options.count * test->options.messages;
	uint64_t have = 0;

	for (uint32_t n = 0; n < test->options.count; n++)
		have += receives ? test->node[n].received : test->node[n].sent;
	while (have < wanted) {
		ORIEL_RESULT result;
		struct node *node;

		if (!example_result(&test->example, &result))
			return false;
		if (!NT_SUCCESS(result.Ndk.Status))
			return example_complain(&test->example, "a message", result.Ndk.Status);
		node = result.Ndk.QPContext;
		if (!(result.Ndk.Type & NdkOperationTypeReceive)) {
			node->sent++;
			have += !receives;
		} else if (take_receive(test, node, &result)) {
			have += receives;
		} else {
			return false;
		}
	}
	return true;
}

/* --- sides ------------------------------------------------------------------------------------ */

static bool answer(struct test *test, struct node *node)
{
	struct sync sync = sync_begin(test->example.adapter);
	NTSTATUS status = sync_end(&sync, OrielAcceptDatagram(node->connector, node->qp, QKEY, NULL,
							      0, sync_requested, &sync));

	return NT_SUCCESS(status) || example_complain(&test->example, "answering", status);
}

static bool run_server(struct test *test)
{
	struct sockaddr_storage address = test->example.local;
	struct example_listener listener;

	example_set_port(&address, test->options.port);
	if (!example_listen(&test->example, &listener, &address, true))
		return false;
	printf("oriel-udaddy: listening\n");
	fflush(stdout);
	for (uint32_t i = 0; i < test->options.count; i++) {
		struct node *node = &test->node[i];

		node->connector = example_arrival(&listener, i == 0);
		if (!node->connector || !open_node(test, node) || !answer(test, node))
			return false;
	}
	return collect(test, true) && post_sends(test) && collect(test, false);
}

static bool ask(struct test *test, struct node *node, const struct sockaddr_storage *server)
{
	struct sync sync = sync_begin(test->example.adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateConnector(test->example.adapter, sync_created,
							     &sync, &node->connector));

	node->connector = sync_object(&sync, node->connector);
	sync = sync_begin(test->example.adapter);
	if (NT_SUCCESS(status))
		status = sync_end(&sync, OrielResolveDatagram(
						 node->connector, (PSOCKADDR)&test->example.local,
						 example_address_size(&test->example.local),
						 (PSOCKADDR)server, example_address_size(server),
						 NULL, 0, sync_requested, &sync));
	if (NT_SUCCESS(status))
		status = OrielGetDatagramPeer(node->connector, &node->number, &node->qkey);
	return NT_SUCCESS(status) || example_complain(&test->example, "asking", status);
}

static bool run_client(struct test *test)
{
	const struct sockaddr_storage *server = &test->options.server;

	for (uint32_t i = 0; i < test->options.count; i++)
		if (!open_node(test, &test->node[i]) || !ask(test, &test->node[i], server) ||
		    !open_address(test, &test->node[i], server))
			return false;
	return post_sends(test) && collect(test, true);
}

static bool run(struct test *test)
{
	const struct options *options = &test->options;
	const size_t stride = (ORIEL_GRH_SIZE + options->size + 63) & ~(size_t)63;
	bool good;

	test->node = calloc(options->count, sizeof(*test->node));
	if (!test->node || !example_open(&test->example, options_family(options, &test->example),
					 options->size + 64 + options->count * stride,
					 options->count * (2 * options->messages + 2)))
		return false;
	for (uint32_t i = 0; i < options->count; i++)
		test->node[i].offset = ((options->size + 63) & ~(size_t)63) + i * stride;
	memset(test->example.bytes, 0x5a, options->size);
	good = options->server.ss_family ? run_client(test) : run_server(test);
	if (good)
		printf("oriel-udaddy: %u queue pairs, %u messages each way for each\n",
		       options->count, options->messages);
	return good;
}

int main(int argc, char *argv[])
{
	struct test test = {
		.example.program = "oriel-udaddy",
		.options = { .usage = usage,
			     .max_count = MAX_NODES,
			     .max_size = 4096,
			     .count = 1,
			     .messages = 10,
			     .size = 100,
			     .port = 7174 },
	};
	int status = options_parse(&test.options, &test.example, argc, argv);
	bool good;

	if (status >= 0)
		return status;
	good = run(&test);
	example_close(&test.example);
	free(test.node);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
