/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of the load generator to an export. */
#include "oriel-perf/peer.h"

#include <stdio.h>
#include <string.h>

#include "common/sync.h"

#define SPINS 200 /* empty looks at the CQ before sleeping */

static bool complain(const char *what, NTSTATUS status)
{
	fprintf(stderr, "oriel-perf: %s: %s\n", what, OrielStatusName(status));
	return false;
}

static void on_notify(PVOID context, NTSTATUS status)
{
	struct peer *peer = context;

	peer->armed = false;
	if (!NT_SUCCESS(status))
		peer->disconnected = true;
}

static void on_disconnect(PVOID context)
{
	((struct peer *)context)->disconnected = true;
}

/* --- set-up ---------------------------------------------------------------------------- */

static bool open_objects(struct peer *peer)
{
	struct sync sync = sync_begin(peer->adapter);
	ULONG depth = peer->options.depth;
	NTSTATUS status;

	status = sync_end(&sync, NdkCreatePd(peer->adapter, sync_created, &sync, &peer->pd));
	if (!NT_SUCCESS(status))
		return complain("protection domain", status);
	peer->pd = sync_object(&sync, peer->pd);
	sync = sync_begin(peer->adapter);
	status = sync_end(&sync, NdkCreateCq(peer->adapter, 2 * depth + 16, on_notify, peer, NULL,
					     sync_created, &sync, &peer->cq));
	if (!NT_SUCCESS(status))
		return complain("completion queue", status);
	peer->cq = sync_object(&sync, peer->cq);
	sync = sync_begin(peer->adapter);
	status = sync_end(&sync, NdkCreateQp(peer->pd, peer->cq, peer->cq, peer, 4, depth, 1, 1, 0,
					     sync_created, &sync, &peer->qp));
	if (!NT_SUCCESS(status))
		return complain("queue pair", status);
	peer->qp = sync_object(&sync, peer->qp);
	return true;
}

static bool open_memory(struct peer *peer)
{
	struct sync sync = sync_begin(peer->adapter);
	NTSTATUS status;

	status = OrielAllocateMemory(peer->options.memory, ORIEL_MEMORY_HUGE_PAGES, &peer->mdl);
	if (!NT_SUCCESS(status))
		return complain("memory", status);
	peer->buffer = peer->mdl->StartVa;
	status = sync_end(&sync, NdkCreateMr(peer->pd, FALSE, sync_created, &sync, &peer->mr));
	if (!NT_SUCCESS(status))
		return complain("memory region", status);
	peer->mr = sync_object(&sync, peer->mr);
	sync = sync_begin(peer->adapter);
	status = sync_end(&sync,
			  NdkRegisterMr(peer->mr, peer->mdl, peer->options.memory,
					NDK_MR_FLAG_ALLOW_LOCAL_WRITE, sync_requested, &sync));
	if (!NT_SUCCESS(status))
		return complain("registering memory", status);
	peer->local_token = NdkGetLocalTokenFromMr(peer->mr);
	return true;
}

static socklen_t address_length(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static bool choose_local(struct peer *peer)
{
	struct sockaddr_storage addresses[16];
	ULONG count = 16;

	if (peer->options.local.ss_family)
		return true;
	if (!NT_SUCCESS(OrielQueryAddresses(peer->adapter, addresses, &count)))
		count = 0;
	for (ULONG i = 0; i < count && i < 16; i++) {
		if (addresses[i].ss_family == peer->options.remote.ss_family) {
			peer->options.local = addresses[i];
			return true;
		}
	}
	fprintf(stderr, "oriel-perf: the daemon has no address of the export's family\n");
	return false;
}

/* What the target said in its accept or its reject. */
static bool read_answer(struct peer *peer, NTSTATUS status)
{
	uint8_t data[256];
	ULONG length = sizeof(data);
	uint32_t code;

	if (!NT_SUCCESS(NdkGetConnectionData(peer->connector, NULL, NULL, data, &length)))
		length = 0;
	if (NT_SUCCESS(status)) {
		if (export_reply_parse(data, length, &peer->window) && peer->window.access)
			return true;
		fprintf(stderr, "oriel-perf: what accepted is not an export\n");
		return false;
	}
	if (status == STATUS_CONNECTION_REFUSED && export_refusal_parse(data, length, &code))
		fprintf(stderr, "oriel-perf: the export refuses: %s\n", export_refusal_text(code));
	else if (status == STATUS_CONNECTION_REFUSED)
		fprintf(stderr, "oriel-perf: refused: nobody exports at that address and port\n");
	else
		complain("connecting", status);
	return false;
}

static bool open_connection(struct peer *peer)
{
	struct export_request request = { 0 };
	struct sync sync = sync_begin(peer->adapter);
	uint8_t data[EXPORT_REQUEST_SIZE];
	NTSTATUS status;

	if (peer->options.name)
		snprintf(request.name, sizeof(request.name), "%s", peer->options.name);
	export_request_encode(&request, data);
	status = sync_end(&sync,
			  NdkCreateConnector(peer->adapter, sync_created, &sync, &peer->connector));
	if (!NT_SUCCESS(status))
		return complain("connector", status);
	peer->connector = sync_object(&sync, peer->connector);
	sync = sync_begin(peer->adapter);
	status = sync_end(&sync,
			  NdkConnect(peer->connector, peer->qp, (PSOCKADDR)&peer->options.local,
				     address_length(&peer->options.local),
				     (PSOCKADDR)&peer->options.remote,
				     address_length(&peer->options.remote), 0, 16, data,
				     sizeof(data), sync_requested, &sync));
	if (!read_answer(peer, status))
		return false;
	sync = sync_begin(peer->adapter);
	status = sync_end(&sync, NdkCompleteConnect(peer->connector, on_disconnect, peer,
						    sync_requested, &sync));
	return NT_SUCCESS(status) || complain("completing the connection", status);
}

bool peer_open(struct peer *peer, const struct peer_options *options)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 1, 2 },
						   .Socket = options->socket };
	NTSTATUS status;

	*peer = (struct peer){ .options = *options };
	status = OrielOpenAdapter(&parameters, &peer->adapter);
	if (!NT_SUCCESS(status)) {
		peer->adapter = NULL;
		return complain("no session with orield (ORIEL_SOCKET names its socket)", status);
	}
	return choose_local(peer) && open_objects(peer) && open_memory(peer) &&
	       open_connection(peer);
}

void peer_close(struct peer *peer)
{
	struct sync sync = sync_begin(peer->adapter);

	if (peer->adapter && peer->connector && !peer->disconnected) {
		/* Ends it properly; a peer that does not answer has had its time. */
		NTSTATUS status =
			sync_end(&sync, NdkDisconnect(peer->connector, sync_requested, &sync));

		if (!NT_SUCCESS(status) && status != STATUS_CONNECTION_INVALID)
			complain("disconnecting", status);
	}
	if (peer->adapter)
		OrielCloseAdapter(peer->adapter);
	if (peer->mdl)
		OrielFreeMemory(peer->mdl);
	peer->adapter = NULL;
	peer->mdl = NULL;
}

/* --- waiting ------------------------------------------------------------------------------- */

bool peer_results(struct peer *peer, NDK_RESULT *results, ULONG room, ULONG *count)
{
	unsigned int spins = 0;

	for (;;) {
		*count = NdkGetCqResults(peer->cq, results, room);
		if (*count)
			return true;
		if (peer->disconnected)
			return false;
		if (peer->options.poll || ++spins < SPINS) {
			if (spins % 64 == 0)
				OrielProgress(peer->adapter);
			continue;
		}
		/* Entries that come between the look and the arm satisfy the arm at once. */
		if (!peer->armed) {
			peer->armed = true;
			NdkArmCq(peer->cq, NDK_CQ_NOTIFY_ANY);
		}
		if (!OrielProgress(peer->adapter) && !NT_SUCCESS(OrielWait(peer->adapter, 1000)))
			return false;
	}
}
