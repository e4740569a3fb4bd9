/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection: made for a request, answers messages, and is gone with its last callback. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "oriel-target/target.h"

#define READ_LIMIT 16u
#define SEND_TAG   0x10000u /* RequestContext of sends; receives have slot + 1 */
#define TRIES      2000u    /* about a millisecond each: so long for a token to be had */

static void connection_close(struct connection *connection);

/* --- records --------------------------------------------------------------------------- */

static struct connection *connection_allocate(struct target *target)
{
	struct connection *connection = NULL;
	uint32_t generation;

	for (unsigned int i = 0; i < target->used && !connection; i++)
		if (target->connections[i].state == CONNECTION_FREE)
			connection = &target->connections[i];
	if (!connection && target->used < MAX_CONNECTIONS)
		connection = &target->connections[target->used++];
	if (!connection)
		return NULL;
	generation = connection->generation + 1;
	memset(connection, 0, sizeof(*connection));
	connection->target = target;
	connection->index = (uint32_t)(connection - target->connections);
	connection->generation = generation;
	connection->state = CONNECTION_OPENING;
	return connection;
}

static PVOID connection_context(const struct connection *connection)
{
	return (PVOID)((uintptr_t)connection->generation << 32 | connection->index);
}

/* The connection of a completion, or NULL if its record has another user by now. */
static struct connection *connection_find(struct target *target, PVOID context)
{
	uintptr_t value = (uintptr_t)context;
	struct connection *connection = &target->connections[(uint32_t)value];

	return connection->generation == (uint32_t)(value >> 32) &&
			       connection->state != CONNECTION_FREE
		       ? connection
		       : NULL;
}

/* --- receives ------------------------------------------------------------------------------ */

static uint8_t *receive_buffer(const struct connection *connection, unsigned int slot)
{
	size_t number = (size_t)connection->index * RECEIVES + slot;

	return (uint8_t *)connection->target->receive_memory->StartVa + number * RECEIVE_SIZE;
}

static void post_receive(struct connection *connection, unsigned int slot)
{
	NDK_SGE sge = { .VirtualAddress = receive_buffer(connection, slot),
			.Length = RECEIVE_SIZE,
			.MemoryRegionToken =
				NdkGetLocalTokenFromMr(connection->target->receive_mr) };

	if (!NT_SUCCESS(NdkReceive(connection->qp, (PVOID)(uintptr_t)(slot + 1), &sge, 1)))
		connection_close(connection);
}

/* --- messages of the client ------------------------------------------------------------------- */

static void send_reply(struct connection *connection, const struct export_reply *reply)
{
	uint8_t data[EXPORT_REPLY_SIZE];
	NDK_SGE sge = { .VirtualAddress = data, .Length = sizeof(data) };

	export_reply_encode(reply, data);
	if (NT_SUCCESS(NdkSend(connection->qp, (PVOID)(uintptr_t)SEND_TAG, &sge, 1,
			       NDK_OP_FLAG_INLINE)))
		connection->sends++;
	else
		connection_close(connection);
}

/* A new window in place of the old one, in queue order: old one dead, new one bound, told. */
static void serve_request(struct connection *connection, const uint8_t *data, uint32_t length)
{
	struct export_reply reply = { .code = EXPORT_BAD_REQUEST };
	struct export_request request;
	struct target_export *export;
	uint64_t bytes;
	uint8_t access;

	if (!export_request_parse(data, length, &request)) {
		send_reply(connection, &reply);
		return;
	}
	if (connection->bound) {
		connection->bound = false;
		if (!NT_SUCCESS(NdkInvalidate(connection->qp, NULL, &connection->mw->Header,
					      NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_DEFER))) {
			connection_close(connection);
			return;
		}
	}
	reply.code = window_decide(connection->target, &connection->listener->address, &request,
				   &export, &access, &bytes);
	if (reply.code == EXPORT_GRANTED) {
		NTSTATUS status = window_bind(connection, export, access, request.offset, bytes,
					      NDK_OP_FLAG_DEFER, &reply);

		if (!NT_SUCCESS(status))
			reply = (struct export_reply){ .code = EXPORT_NO_RESOURCES };
	}
	send_reply(connection, &reply);
}

static void serve_receive(struct connection *connection, unsigned int slot, uint32_t length)
{
	uint8_t data[RECEIVE_SIZE];

	memcpy(data, receive_buffer(connection, slot), sizeof(data));
	/* Before the answer: a client that sends as fast as it is answered finds a receive. */
	post_receive(connection, slot);
	if (connection->state == CONNECTION_LIVE || connection->state == CONNECTION_ACCEPTING)
		serve_request(connection, data, length);
}

static void serve_held(struct connection *connection)
{
	while (connection->held_count && connection->sends < SENDS &&
	       connection->state != CONNECTION_CLOSING) {
		unsigned int slot = connection->held[0];

		connection->held_count--;
		memmove(connection->held, connection->held + 1,
			connection->held_count * sizeof(connection->held[0]));
		serve_receive(connection, slot, EXPORT_REQUEST_SIZE);
	}
}

static void receive_done(struct connection *connection, const NDK_RESULT_EX *result)
{
	unsigned int slot = (unsigned int)(uintptr_t)result->RequestContext - 1;

	if (result->Type == NdkOperationTypeReceiveAndInvalidate) {
		/* The client ended its window itself; what it sent along has no meaning. */
		connection->bound = false;
		post_receive(connection, slot);
	} else if (result->Type == OrielOperationTypeReceiveWriteImmediate) {
		/* Its bytes went to the window: the buffer holds some earlier message. */
		post_receive(connection, slot);
	} else if (result->BytesTransferred >= EXPORT_REQUEST_SIZE &&
		   (connection->sends >= SENDS || connection->held_count)) {
		connection->held[connection->held_count++] = (uint16_t)slot;
	} else {
		serve_receive(connection, slot, result->BytesTransferred);
	}
}

static void completion(struct target *target, const NDK_RESULT_EX *result)
{
	struct connection *connection = connection_find(target, result->QPContext);

	if (!connection)
		return;
	/* Also of one that closes already: its end is told before the results are taken. */
	if ((uintptr_t)result->RequestContext == PROBE_TAG)
		probe_done(connection, result->Status);
	if (connection->state == CONNECTION_CLOSING)
		return;
	if (!NT_SUCCESS(result->Status)) {
		connection_close(connection);
	} else if ((uintptr_t)result->RequestContext == PROBE_TAG) {
		return;
	} else if ((uintptr_t)result->RequestContext == SEND_TAG) {
		connection->sends--;
		serve_held(connection);
	} else {
		receive_done(connection, result);
	}
}

/* The one CQ has something, or has failed. */
void connection_completion(PVOID context, NTSTATUS status)
{
	struct target *target = context;
	NDK_RESULT_EX results[64];
	ULONG count;

	if (!NT_SUCCESS(status)) {
		fprintf(stderr, "oriel-target: completion queue failed (%s): starting anew\n",
			OrielStatusName(status));
		target->removed = true;
		return;
	}
	while ((count = NdkGetCqResultsEx(target->cq, results, 64)) != 0)
		for (ULONG i = 0; i < count; i++)
			completion(target, &results[i]);
	NdkArmCq(target->cq, NDK_CQ_NOTIFY_ANY);
}

/* --- the end ---------------------------------------------------------------------------------- */

static void on_closed(PVOID context)
{
	struct connection *connection = context;

	if (--connection->waiting == 0)
		connection->state = CONNECTION_FREE;
}

static void close_one(struct connection *connection, NDK_OBJECT_HEADER *object,
		      NDK_FN_CLOSE_OBJECT close)
{
	connection->waiting++;
	if (close(object, on_closed, connection) != STATUS_PENDING)
		on_closed(connection);
}

/* Connector first: the queue pair's close waits for it. */
static void connection_close(struct connection *connection)
{
	NDK_CONNECTOR *connector = connection->connector;
	NDK_QP *qp = connection->qp;
	NDK_MW *mw = connection->mw;

	if (connection->state == CONNECTION_CLOSING || connection->state == CONNECTION_FREE)
		return;
	connection->state = CONNECTION_CLOSING;
	connection->waiting++; /* held until all closes have been started */
	if (connector)
		close_one(connection, &connector->Header, connector->Dispatch->NdkCloseConnector);
	if (qp)
		close_one(connection, &qp->Header, qp->Dispatch->NdkCloseQp);
	if (mw)
		close_one(connection, &mw->Header, mw->Dispatch->NdkCloseMw);
	on_closed(connection);
}

static void on_disconnect(PVOID context)
{
	connection_close(context);
}

/* --- the beginning ---------------------------------------------------------------------------- */

static void refuse(NDK_CONNECTOR *connector, uint32_t code)
{
	uint8_t data[EXPORT_REFUSAL_SIZE];

	export_refusal_encode(code, data);
	/* The peer may have gone by itself: nothing to do about it. */
	if (!NT_SUCCESS(NdkReject(connector, data, sizeof(data))))
		return;
}

static void refuse_connection(struct connection *connection, uint32_t code)
{
	refuse(connection->connector, code);
	connection_close(connection);
}

static void on_accepted(PVOID context, NTSTATUS status)
{
	struct connection *connection = context;

	if (connection->state != CONNECTION_ACCEPTING)
		return;
	if (!NT_SUCCESS(status)) {
		connection_close(connection);
		return;
	}
	connection->state = CONNECTION_LIVE;
	connection->target->served++;
}

/* A burst of requests empties the stock of tokens faster than it is filled: once more, later. */
static bool wait_for_token(struct connection *connection, NTSTATUS status)
{
	if (status != STATUS_INSUFFICIENT_RESOURCES || connection->tries == TRIES)
		return false;
	connection->tries++;
	connection->target->starved++;
	return true;
}

/* The bind, then the accept that carries its token. */
static void bind_and_accept(struct connection *connection)
{
	struct export_reply reply = { 0 };
	uint8_t data[EXPORT_REPLY_SIZE];
	NTSTATUS status = STATUS_SUCCESS;
	uint64_t length;
	uint8_t access;
	uint32_t code;

	code = window_decide(connection->target, &connection->listener->address,
			     &connection->request, &connection->export, &access, &length);
	if (code == EXPORT_GRANTED)
		status = window_bind(connection, connection->export, access,
				     connection->request.offset, length, ORIEL_OP_FLAG_EARLY,
				     &reply);
	if (wait_for_token(connection, status))
		return;
	if (!NT_SUCCESS(status))
		code = EXPORT_NO_RESOURCES;
	if (code != EXPORT_GRANTED) {
		refuse_connection(connection, code);
		return;
	}
	export_reply_encode(&reply, data);
	connection->state = CONNECTION_ACCEPTING;
	status = NdkAccept(connection->connector, connection->qp, READ_LIMIT, READ_LIMIT, data,
			   sizeof(data), on_disconnect, connection, on_accepted, connection);
	if (status != STATUS_PENDING)
		on_accepted(connection, status);
}

void connection_retry(struct target *target)
{
	target->starved = 0;
	for (unsigned int i = 0; i < target->used; i++)
		if (target->connections[i].state == CONNECTION_STARVED)
			bind_and_accept(&target->connections[i]);
}

/* Queue pair and window are there. */
static void accept_connection(struct connection *connection)
{
	for (unsigned int slot = 0; slot < RECEIVES; slot++)
		post_receive(connection, slot);
	if (connection->state != CONNECTION_OPENING)
		return;
	connection->state = CONNECTION_STARVED;
	bind_and_accept(connection);
}

static void opened(struct connection *connection, NTSTATUS status)
{
	if (!NT_SUCCESS(status))
		connection->failed = true;
	if (--connection->waiting)
		return;
	if (connection->failed)
		refuse_connection(connection, EXPORT_NO_RESOURCES);
	else
		accept_connection(connection);
}

static void on_qp(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct connection *connection = context;

	if (NT_SUCCESS(status))
		connection->qp = (NDK_QP *)object;
	opened(connection, status);
}

static void on_mw(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct connection *connection = context;

	if (NT_SUCCESS(status))
		connection->mw = (NDK_MW *)object;
	opened(connection, status);
}

static void open_connection(struct connection *connection)
{
	struct target *target = connection->target;
	NDK_QP *qp = NULL;
	NDK_MW *mw = NULL;
	NTSTATUS status;

	connection->waiting = 3; /* the third is this function's own */
	status = NdkCreateQp(target->pd, target->cq, target->cq, connection_context(connection),
			     RECEIVES, 3 * SENDS + 8, 1, 1, EXPORT_REPLY_SIZE, on_qp, connection,
			     &qp);
	if (status != STATUS_PENDING)
		on_qp(connection, status, qp ? &qp->Header : NULL);
	status = NdkCreateMw(target->pd, on_mw, connection, &mw);
	if (status != STATUS_PENDING)
		on_mw(connection, status, mw ? &mw->Header : NULL);
	opened(connection, STATUS_SUCCESS);
}

static void peer_gid(NDK_CONNECTOR *connector, uint8_t gid[16])
{
	struct sockaddr_storage address = { 0 };
	ULONG length = sizeof(address);

	memset(gid, 0, 16);
	if (!NT_SUCCESS(NdkGetPeerAddress(connector, (PSOCKADDR)&address, &length)))
		return;
	if (address.ss_family == AF_INET) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &((struct sockaddr_in *)&address)->sin_addr, 4);
	} else {
		memcpy(gid, &((struct sockaddr_in6 *)&address)->sin6_addr, 16);
	}
}

/* What the request asks for: nothing at all is a request for everything. */
static uint32_t read_request(NDK_CONNECTOR *connector, struct export_request *request)
{
	static const uint8_t nothing[4];
	uint8_t data[256] = { 0 };
	ULONG length = sizeof(data);

	memset(request, 0, sizeof(*request));
	if (!NT_SUCCESS(NdkGetConnectionData(connector, NULL, NULL, data, &length)))
		return EXPORT_BAD_REQUEST;
	if (length < sizeof(nothing) || !memcmp(data, nothing, sizeof(nothing)))
		return EXPORT_GRANTED;
	return export_request_parse(data, length, request) ? EXPORT_GRANTED : EXPORT_BAD_REQUEST;
}

static void on_refused_closed(PVOID context)
{
	(void)context;
}

void connection_incoming(PVOID context, NDK_CONNECTOR *connector)
{
	struct listener *listener = context;
	struct connection *connection;
	struct export_request request;
	struct target_export *export;
	uint8_t gid[16];
	uint64_t length;
	uint8_t access;
	uint32_t code;

	code = read_request(connector, &request);
	if (code == EXPORT_GRANTED)
		code = window_decide(listener->target, &listener->address, &request, &export,
				     &access, &length);
	peer_gid(connector, gid);
	if (code == EXPORT_GRANTED && !peer_allowed(export, gid))
		code = EXPORT_PEER;
	connection = code == EXPORT_GRANTED ? connection_allocate(listener->target) : NULL;
	if (!connection) {
		refuse(connector, code == EXPORT_GRANTED ? EXPORT_NO_RESOURCES : code);
		NdkCloseConnector(connector, on_refused_closed, NULL);
		return;
	}
	connection->listener = listener;
	connection->connector = connector;
	connection->request = request;
	open_connection(connection);
}
