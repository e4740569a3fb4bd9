/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-cmatose: many connections at once, either side, against ucmatose of librdmacm or itself.
 * When all are up the server sends its messages on each, the client receives them and answers with
 * as many, and the server disconnects.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sync.h"
#include "examples/example.h"
#include "examples/options.h"

static const char usage[] = "Usage: oriel-cmatose [-s SERVER] [options]\n"
			    "  -s ADDRESS  connect there (default: be the server)\n"
			    "  -b ADDRESS  of ours (default: the daemon's first)\n"
			    "  -c N        connections (default 1)\n"
			    "  -C N        messages on each (default 10)\n"
			    "  -S BYTES    of a message (default 100)\n"
			    "  -p PORT     (default 7471)\n";

#define MAX_CONNECTIONS 4096u

struct node {
	NDK_QP *qp;
	NDK_CONNECTOR *connector;
	bool gone;
	uint32_t sent, received;
};

struct test {
	struct example example;
	struct node *node;
	struct options options;
};

/* --- messages --------------------------------------------------------------------------------- */

static bool open_node(struct test *test, struct node *node)
{
	const NDK_SGE sge = example_sge(&test->example, test->options.size, test->options.size);

	node->qp = example_qp(&test->example, node,
			      test->options.messages ? test->options.messages : 1);
	if (!node->qp)
		return false;
	for (uint32_t i = 0; i < test->options.messages; i++) {
		NTSTATUS status = NdkReceive(node->qp, NULL, &sge, 1);

		if (!NT_SUCCESS(status))
			return example_complain(&test->example, "posting a receive", status);
	}
	return true;
}

static bool post_sends(struct test *test)
{
	const NDK_SGE sge = example_sge(&test->example, 0, test->options.size);

	for (uint32_t c = 0; c < test->options.count; c++) {
		for (uint32_t i = 0; i < test->options.messages; i++) {
			NTSTATUS status = NdkSend(test->node[c].qp, NULL, &sge, 1, 0);

			if (!NT_SUCCESS(status))
				return example_complain(&test->example, "sending", status);
		}
	}
	return true;
}

/* Until every connection has sent, or received, all of its messages. */
static bool collect(struct test *test, bool receives)
{
	uint64_t wanted = (uint64_t)test->options.count * test->options.messages;
	uint64_t have = 0;

	for (uint32_t c = 0; c < test->options.count; c++)
		have += receives ? test->node[c].received : test->node[c].sent;
	while (have < wanted) {
		ORIEL_RESULT result;
		struct node *node;

		if (!example_result(&test->example, &result))
			return false;
		if (!NT_SUCCESS(result.Ndk.Status))
			return example_complain(&test->example, "a message", result.Ndk.Status);
		node = result.Ndk.QPContext;
		if (result.Ndk.Type == NdkOperationTypeReceive) {
			if (result.Ndk.BytesTransferred != test->options.size) {
				fprintf(stderr, "oriel-cmatose: a message of %u bytes\n",
					result.Ndk.BytesTransferred);
				return false;
			}
			node->received++;
			have += receives;
		} else {
			node->sent++;
			have += !receives;
		}
	}
	return true;
}

/* --- sides ------------------------------------------------------------------------------------ */

static bool run_server(struct test *test)
{
	struct example_listener listener;
	struct sockaddr_storage address = test->example.local;

	example_set_port(&address, test->options.port);
	if (!example_listen(&test->example, &listener, &address, false))
		return false;
	printf("oriel-cmatose: listening\n");
	fflush(stdout);
	for (uint32_t i = 0; i < test->options.count; i++) {
		struct node *node = &test->node[i];

		node->connector = example_arrival(&listener, i == 0);
		if (!node->connector || !open_node(test, node) ||
		    !example_accept(&test->example, node->connector, node->qp, &node->gone))
			return false;
	}
	if (!post_sends(test) || !collect(test, false) || !collect(test, true))
		return false;
	for (uint32_t i = 0; i < test->options.count; i++)
		example_disconnect(&test->example, test->node[i].connector);
	return true;
}

static bool run_client(struct test *test)
{
	for (uint32_t i = 0; i < test->options.count; i++) {
		struct node *node = &test->node[i];

		if (!open_node(test, node))
			return false;
		node->connector = example_connect(&test->example, node->qp, &test->options.server,
						  &node->gone);
		if (!node->connector)
			return false;
	}
	if (!collect(test, true) || !post_sends(test) || !collect(test, false))
		return false;
	for (uint32_t i = 0; i < test->options.count; i++) {
		if (!example_wait(&test->example, &test->node[i].gone)) {
			fprintf(stderr, "oriel-cmatose: the server does not disconnect\n");
			return false;
		}
		example_disconnect(&test->example, test->node[i].connector);
	}
	return true;
}

static bool run(struct test *test)
{
	const struct options *options = &test->options;
	ULONG depth = options->count * (2 * options->messages + 2);
	bool good;

	test->node = calloc(options->count, sizeof(*test->node));
	if (!test->node || !example_open(&test->example, options_family(options, &test->example),
					 2ul * options->size + 4096, depth))
		return false;
	memset(test->example.bytes, 0x5a, options->size);
	good = options->server.ss_family ? run_client(test) : run_server(test);
	if (good)
		printf("oriel-cmatose: %u connections, %u messages each way on each\n",
		       options->count, options->messages);
	return good;
}

int main(int argc, char *argv[])
{
	struct test test = {
		.example.program = "oriel-cmatose",
		.options = { .usage = usage,
			     .max_count = MAX_CONNECTIONS,
			     .max_size = 1u << 20,
			     .count = 1,
			     .messages = 10,
			     .size = 100,
			     .port = 7471 },
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
