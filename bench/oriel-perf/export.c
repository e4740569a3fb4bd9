/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to an oriel-target: each has a window, and may ask for another in its place. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "common/sync.h"
#include "oriel-perf/options.h"
#include "oriel-perf/peer.h"

#define READ_LIMIT 16u

static socklen_t address_length(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static void on_disconnect(PVOID context)
{
	struct peer *peer = context;

	peer->disconnected = true;
	peer->session->disconnected = true;
}

/* --- connecting ------------------------------------------------------------------------- */

static void take_window(struct peer *peer, const struct export_reply *reply)
{
	peer->remote = (struct remote){ .address = reply->address,
					.length = reply->length,
					.token = reply->token,
					.access = reply->access };
}

/* What the target said in its accept or its reject. */
static bool read_answer(struct peer *peer, NTSTATUS status)
{
	struct export_reply reply;
	uint8_t data[256];
	ULONG length = sizeof(data);
	uint32_t code;

	if (!NT_SUCCESS(NdkGetConnectionData(peer->connector, NULL, NULL, data, &length)))
		length = 0;
	if (NT_SUCCESS(status)) {
		if (export_reply_parse(data, length, &reply) && reply.access) {
			take_window(peer, &reply);
			return true;
		}
		fprintf(stderr, "oriel-perf: what accepted is not an export\n");
		return false;
	}
	if (status == STATUS_CONNECTION_REFUSED && export_refusal_parse(data, length, &code))
		fprintf(stderr, "oriel-perf: the export refuses: %s\n", export_refusal_text(code));
	else if (status == STATUS_CONNECTION_REFUSED)
		fprintf(stderr, "oriel-perf: refused: nobody exports at that address and port\n");
	else
		session_complain("connecting", status);
	return false;
}

static void encode_request(const char *name, uint8_t data[EXPORT_REQUEST_SIZE])
{
	struct export_request request = { 0 };

	if (name)
		snprintf(request.name, sizeof(request.name), "%s", name);
	export_request_encode(&request, data);
}

static bool connect_peer(struct peer *peer, const struct sockaddr_storage *remote, const char *name)
{
	struct session *session = peer->session;
	const struct sockaddr_storage *local = &session->options.local;
	struct sync sync = sync_begin(session->adapter);
	const ULONG reads = session->options.reads ? session->options.reads : READ_LIMIT;
	uint8_t data[EXPORT_REQUEST_SIZE];
	NDK_CONNECTOR *connector = NULL;
	NTSTATUS status;

	encode_request(name, data);
	status = sync_end(&sync,
			  NdkCreateConnector(session->adapter, sync_created, &sync, &connector));
	if (!NT_SUCCESS(status))
		return session_complain("connector", status);
	peer->connector = sync_object(&sync, connector);
	sync = sync_begin(session->adapter);
	status = sync_end(&sync, NdkConnect(peer->connector, peer->qp, (PSOCKADDR)local,
					    address_length(local), (PSOCKADDR)remote,
					    address_length(remote), 0, reads, data, sizeof(data),
					    sync_requested, &sync));
	if (!read_answer(peer, status))
		return false;
	sync = sync_begin(session->adapter);
	status = sync_end(&sync, NdkCompleteConnect(peer->connector, on_disconnect, peer,
						    sync_requested, &sync));
	return NT_SUCCESS(status) || session_complain("completing the connection", status);
}

bool export_open(struct session *session, const struct sockaddr_storage *remote, const char *name)
{
	for (uint32_t i = 0; i < session->options.queue_pairs; i++)
		if (!connect_peer(&session->peers[i], remote, name))
			return false;
	return true;
}

/* Ends them properly; a peer that does not answer has had its time. */
void export_close(struct session *session)
{
	for (uint32_t i = 0; session->peers && i < session->options.queue_pairs; i++) {
		struct peer *peer = &session->peers[i];
		struct sync sync = sync_begin(session->adapter);
		NTSTATUS status;

		if (!peer->connector || peer->disconnected)
			continue;
		status = sync_end(&sync, NdkDisconnect(peer->connector, sync_requested, &sync));
		if (!NT_SUCCESS(status) && status != STATUS_CONNECTION_INVALID) {
			session_complain("disconnecting", status);
			return;
		}
	}
}

/* --- another window --------------------------------------------------------------------- */

static uint8_t *answer_buffer(struct peer *peer, uint32_t slot)
{
	return peer->session->extra + ((size_t)peer->index * EXPORT_ASKS + slot) * 64;
}

static NTSTATUS post_answer(struct peer *peer, uint32_t slot)
{
	NDK_SGE sge = { .VirtualAddress = answer_buffer(peer, slot),
			.Length = 64,
			.MemoryRegionToken = peer->session->local_token };

	return NdkReceive(peer->qp, (PVOID)(uintptr_t)slot, &sge, 1);
}

bool export_post_answers(struct session *session)
{
	for (uint32_t i = 0; i < session->options.queue_pairs; i++) {
		for (uint32_t slot = 0; slot < EXPORT_ASKS; slot++) {
			NTSTATUS status = post_answer(&session->peers[i], slot);

			if (!NT_SUCCESS(status))
				return session_complain("posting a receive", status);
		}
	}
	return true;
}

NTSTATUS export_ask(struct peer *peer, const char *name)
{
	uint8_t data[EXPORT_REQUEST_SIZE];
	NDK_SGE sge = { .VirtualAddress = data, .Length = sizeof(data) };

	encode_request(name, data);
	return NdkSend(peer->qp, NULL, &sge, 1, NDK_OP_FLAG_INLINE | NDK_OP_FLAG_SILENT_SUCCESS);
}

enum export_answer export_answer(const NDK_RESULT_EX *result)
{
	struct peer *peer = result->QPContext;
	uint32_t slot = (uint32_t)(uintptr_t)result->RequestContext;
	struct export_reply reply;
	NTSTATUS status;

	if (!export_reply_parse(answer_buffer(peer, slot), result->BytesTransferred, &reply)) {
		fprintf(stderr, "oriel-perf: the target's message is not an answer\n");
		return EXPORT_ANSWER_FAILED;
	}
	if (!reply.access && reply.code != EXPORT_NO_RESOURCES) {
		fprintf(stderr, "oriel-perf: a new window is refused: %s\n",
			export_refusal_text(reply.code));
		return EXPORT_ANSWER_FAILED;
	}
	status = post_answer(peer, slot);
	if (!NT_SUCCESS(status)) {
		session_complain("posting a receive", status);
		return EXPORT_ANSWER_FAILED;
	}
	if (!reply.access)
		return EXPORT_ANSWER_AGAIN;
	take_window(peer, &reply);
	return EXPORT_ANSWER_WINDOW;
}

/* --- as an opener ----------------------------------------------------------------------- */

static bool opener_open(struct session *session, const struct perf_options *options, void **context)
{
	*context = NULL;
	return export_post_answers(session) &&
	       export_open(session, &options->export, options->name);
}

static bool opener_close(struct session *session, void *context)
{
	export_close(session);
	return true;
}

const struct peer_opener export_opener = {
	.name = "export",
	.open = opener_open,
	.close = opener_close,
};
