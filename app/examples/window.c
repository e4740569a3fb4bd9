/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-window: the smallest client of an oriel-target: gets a window of an export, puts a file (or
 * standard input) into it, or takes bytes out of it.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/argument.h"
#include "common/export_protocol.h"
#include "common/sync.h"
#include "examples/example.h"

static const char usage[] =
	"Usage: oriel-window -a ADDRESS [options] put|get\n"
	"put writes standard input into the window, get writes the window to standard output.\n"
	"  -a ADDRESS  of the export\n"
	"  -p PORT     (default 7471)\n"
	"  -e NAME     export, if several share the address\n"
	"  -o OFFSET   in the export (default 0)\n"
	"  -n BYTES    get: how many (default: to the end of the export)\n";

#define PIECE 65536u

struct window {
	struct example example;
	NDK_QP *qp;
	NDK_CONNECTOR *connector;
	struct export_request request;
	struct export_reply granted;
	bool gone;
};

static void on_gone(PVOID context)
{
	*(bool *)context = true;
}

/* What the target said in its accept, or in its refusal. */
static bool read_answer(struct window *w, NTSTATUS status)
{
	uint8_t data[256];
	ULONG length = sizeof(data);
	uint32_t code;

	if (!NT_SUCCESS(NdkGetConnectionData(w->connector, NULL, NULL, data, &length)))
		length = 0;
	if (NT_SUCCESS(status) && export_reply_parse(data, length, &w->granted) &&
	    w->granted.access)
		return true;
	if (status == STATUS_CONNECTION_REFUSED && export_refusal_parse(data, length, &code))
		fprintf(stderr, "oriel-window: refused: %s\n", export_refusal_text(code));
	else if (NT_SUCCESS(status))
		fprintf(stderr, "oriel-window: what accepted is not an export\n");
	else
		example_complain(&w->example, "connecting", status);
	return false;
}

static bool open_window(struct window *w, const struct sockaddr_storage *remote)
{
	struct sync sync = sync_begin(w->example.adapter);
	uint8_t data[EXPORT_REQUEST_SIZE];
	NTSTATUS status;

	w->qp = example_qp(&w->example, NULL, 4);
	status = sync_end(
		&sync, NdkCreateConnector(w->example.adapter, sync_created, &sync, &w->connector));
	if (!w->qp || !NT_SUCCESS(status))
		return false;
	w->connector = sync_object(&sync, w->connector);
	export_request_encode(&w->request, data);
	sync = sync_begin(w->example.adapter);
	status = sync_end(&sync, NdkConnect(w->connector, w->qp, (PSOCKADDR)&w->example.local,
					    example_address_size(&w->example.local),
					    (PSOCKADDR)remote, example_address_size(remote), 0, 1,
					    data, sizeof(data), sync_requested, &sync));
	if (!read_answer(w, status))
		return false;
	sync = sync_begin(w->example.adapter);
	status = sync_end(
		&sync, NdkCompleteConnect(w->connector, on_gone, &w->gone, sync_requested, &sync));
	return NT_SUCCESS(status) || example_complain(&w->example, "connecting", status);
}

static bool transfer(struct window *w, uint64_t offset, ULONG length, bool put)
{
	const NDK_SGE sge = example_sge(&w->example, 0, length);
	const uint64_t address = w->granted.address + offset;
	ORIEL_RESULT result;
	NTSTATUS status = put ? NdkWrite(w->qp, NULL, &sge, 1, address, w->granted.token, 0)
			      : NdkRead(w->qp, NULL, &sge, 1, address, w->granted.token, 0);

	if (NT_SUCCESS(status)) {
		if (!example_result(&w->example, &result))
			return false;
		status = result.Ndk.Status;
	}
	return NT_SUCCESS(status) ||
	       example_complain(&w->example, put ? "writing" : "reading", status);
}

static bool put_all(struct window *w)
{
	uint64_t offset = 0;

	for (;;) {
		size_t length = fread(w->example.bytes, 1, PIECE, stdin);

		if (length == 0)
			return ferror(stdin) == 0;
		if (length > w->granted.length - offset) {
			fprintf(stderr,
				"oriel-window: the input is longer than the window (%llu)\n",
				(unsigned long long)w->granted.length);
			return false;
		}
		if (!transfer(w, offset, (ULONG)length, true))
			return false;
		offset += length;
	}
}

static bool get_all(struct window *w)
{
	for (uint64_t offset = 0; offset < w->granted.length;) {
		uint64_t left = w->granted.length - offset;
		ULONG length = left < PIECE ? (ULONG)left : PIECE;

		if (!transfer(w, offset, length, false))
			return false;
		if (fwrite(w->example.bytes, 1, length, stdout) != length) {
			perror("oriel-window: standard output");
			return false;
		}
		offset += length;
	}
	return fflush(stdout) == 0;
}

static bool parse_options(int argc, char *argv[], struct window *w, struct sockaddr_storage *remote)
{
	static const struct option words[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	uint16_t port = 7471;
	bool good = true;
	int option;

	while (good && (option = getopt_long(argc, argv, "a:p:e:o:n:h", words, NULL)) != -1) {
		struct export_request *want = &w->request;

		switch (option) {
		case 'a': good = argument_address("-a", optarg, remote); break;
		case 'p': good = argument_port("-p", optarg, &port); break;
		case 'e': snprintf(want->name, sizeof(want->name), "%s", optarg); break;
		case 'o': good = argument_number("-o", optarg, 0, UINT64_MAX, &want->offset); break;
		case 'n': good = argument_number("-n", optarg, 0, UINT64_MAX, &want->length); break;
		case 'h': fputs(usage, stdout); exit(EXIT_SUCCESS);
		default: good = false;
		}
	}
	if (remote->ss_family)
		example_set_port(remote, port);
	return good && optind + 1 == argc && remote->ss_family;
}

int main(int argc, char *argv[])
{
	struct window w = { .example.program = "oriel-window" };
	struct sockaddr_storage remote = { 0 };
	bool put, good;

	good = parse_options(argc, argv, &w, &remote);
	put = good && strcmp(argv[optind], "put") == 0;
	if (!good || (!put && strcmp(argv[optind], "get") != 0)) {
		fputs(usage, stderr);
		return 2;
	}
	w.request.access = put ? EXPORT_WRITE : EXPORT_READ;
	good = example_open(&w.example, remote.ss_family, PIECE, 16) && open_window(&w, &remote) &&
	       (put ? put_all(&w) : get_all(&w));
	if (w.connector && !w.gone)
		example_disconnect(&w.example, w.connector);
	example_close(&w.example);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
