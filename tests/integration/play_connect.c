/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with listeners, connectors and shared endpoints: b listens, a connects. */
#include <netinet/in.h>
#include <string.h>

#include "common/sync.h"
#include "play.h"

#define PORT 7321
#define MOST 4u

/* A request whose end needs both daemons. */
struct wait {
	bool done;
	NTSTATUS status;
	NDK_OBJECT_HEADER *object;
};

/* The listening side: takes what comes, or keeps it for the scene to deal with. */
struct server {
	struct end *end;
	NDK_LISTENER *listener;
	NDK_QP *qp[MOST];
	NDK_CONNECTOR *connector[MOST];
	struct wait accepted[MOST];
	unsigned int arrived;
	unsigned int disconnects;
	ULONG reason;
	bool came, gone;
	bool keep; /* do not accept */
};

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
	/* At the same place in both families. */
	((struct sockaddr_in *)address)->sin_port = htons(port);
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

static void on_request(PVOID context, NTSTATUS status)
{
	struct wait *wait = context;

	DEMAND(!wait->done, "a request is told once");
	wait->done = true;
	wait->status = status;
}

static void on_closed(PVOID context)
{
	on_request(context, STATUS_SUCCESS);
}

static void on_disconnect(PVOID context, ULONG reason)
{
	struct server *server = context;

	server->disconnects++;
	server->reason = reason;
	server->gone = true;
}

static void on_connect(PVOID context, NDK_CONNECTOR *connector)
{
	struct server *server = context;
	unsigned int i = server->arrived++;

	DEMAND(i < MOST, "more requests than were made");
	server->connector[i] = connector;
	server->came = true;
	if (server->keep)
		return;
	expect_status(NdkAcceptEx(connector, server->qp[i], 4, 4, "hello", 5, on_disconnect, server,
				  on_request, &server->accepted[i]),
		      STATUS_PENDING, "accept");
}

static NDK_LISTENER *create_listener(struct end *end, struct server *server)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateListener(end->adapter, on_connect, server, sync_created,
						   &sync, NULL)));
	return (NDK_LISTENER *)sync.object;
}

static NTSTATUS listen_at(struct end *end, NDK_LISTENER *listener, uint16_t port)
{
	struct sync sync = sync_begin(end->adapter);
	struct sockaddr_storage address = end->address;

	set_port(&address, port);
	return sync_end(&sync, NdkListen(listener, (PSOCKADDR)&address, sizeof(address),
					 sync_requested, &sync));
}

static void serve(struct server *server, struct end *end, unsigned int connections)
{
	*server = (struct server){ .end = end };
	for (unsigned int i = 0; i < connections; i++)
		server->qp[i] = create_qp(end, NULL);
	server->listener = create_listener(end, server);
	SUCCEEDS(listen_at(end, server->listener, PORT));
}

static NDK_CONNECTOR *create_connector(struct end *end)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateConnector(end->adapter, sync_created, &sync, NULL)));
	return (NDK_CONNECTOR *)sync.object;
}

static NTSTATUS create_endpoint(struct end *end, uint16_t port, NDK_SHARED_ENDPOINT **endpoint)
{
	struct sync sync = sync_begin(end->adapter);
	struct sockaddr_storage address = end->address;
	NTSTATUS status;

	set_port(&address, port);
	status = sync_end(&sync,
			  NdkCreateSharedEndpoint(end->adapter, (PSOCKADDR)&address,
						  sizeof(address), sync_created, &sync, NULL));
	*endpoint = (NDK_SHARED_ENDPOINT *)sync.object;
	return status;
}

static NTSTATUS finish(struct server *server, struct end *a, NTSTATUS status, struct wait *wait,
		       const char *what)
{
	if (status != STATUS_PENDING)
		return status;
	until(server->end, a, &wait->done, what);
	return wait->status;
}

/* One with an address of its own when `endpoint` is NULL: this port, 0 for any. */
static NTSTATUS connect_to(struct server *server, struct end *a, NDK_CONNECTOR *connector,
			   NDK_QP *qp, NDK_SHARED_ENDPOINT *endpoint, uint16_t from, uint16_t to)
{
	struct sockaddr_storage source = a->address, destination = server->end->address;
	struct wait wait = { 0 };
	NTSTATUS status;

	set_port(&source, from);
	set_port(&destination, to);
	if (endpoint)
		status = NdkConnectWithSharedEndpoint(connector, qp, endpoint,
						      (PSOCKADDR)&destination, sizeof(destination),
						      4, 4, NULL, 0, on_request, &wait);
	else
		status = NdkConnect(connector, qp, (PSOCKADDR)&source, sizeof(source),
				    (PSOCKADDR)&destination, sizeof(destination), 4, 4, NULL, 0,
				    on_request, &wait);
	return finish(server, a, status, &wait, "the peer answers");
}

static NTSTATUS complete(struct server *server, struct end *a, NDK_CONNECTOR *connector)
{
	struct wait wait = { 0 };

	return finish(server, a, NdkCompleteConnect(connector, NULL, NULL, on_request, &wait),
		      &wait, "completed");
}

/* Connected at both ends, and a message goes over it. */
static void complete_and_talk(struct server *server, struct end *a, NDK_CONNECTOR *connector,
			      NDK_QP *qp, unsigned int i)
{
	NDK_SGE out = sge_at(a, 0, 64), in = sge_at(server->end, 0, 64);

	SUCCEEDS(NdkReceive(server->qp[i], NULL, &in, 1));
	SUCCEEDS(complete(server, a, connector));
	until(server->end, a, &server->accepted[i].done, "accepted");
	SUCCEEDS(server->accepted[i].status);
	SUCCEEDS(NdkSend(qp, NULL, &out, 1, 0));
	result(a, STATUS_SUCCESS, "a send");
	result(server->end, STATUS_SUCCESS, "its receive");
}

static uint16_t local_port(NDK_CONNECTOR *connector)
{
	struct sockaddr_storage address;
	ULONG length = sizeof(address);

	SUCCEEDS(NdkGetLocalAddress(connector, (PSOCKADDR)&address, &length));
	return port_of(&address);
}

static uint16_t endpoint_port(NDK_SHARED_ENDPOINT *endpoint)
{
	struct sockaddr_storage address;
	ULONG length = 1;

	expect_status(
		endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length),
		STATUS_BUFFER_TOO_SMALL, "no room for an address");
	SUCCEEDS(endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length));
	return port_of(&address);
}

/* --- shared endpoints ---------------------------------------------------------------------- */

/* NdkConnectWithSharedEndpoint: one local port, several destinations, no 4-tuple twice. */
static void endpoint_shared(struct end *a, struct end *b)
{
	NDK_CONNECTOR *first = create_connector(a), *second = create_connector(a);
	NDK_QP *one = create_qp(a, NULL), *other = create_qp(a, NULL);
	NDK_SHARED_ENDPOINT *endpoint;
	struct server server;
	uint16_t port;

	serve(&server, b, 2);
	SUCCEEDS(listen_at(b, create_listener(b, &server), PORT + 1));
	SUCCEEDS(create_endpoint(a, 0, &endpoint));
	port = endpoint_port(endpoint);
	DEMAND(port >= 49152, "port %u is not ephemeral", port);
	SUCCEEDS(connect_to(&server, a, first, one, endpoint, 0, PORT));
	DEMAND(local_port(first) == port, "port %u instead of %u", local_port(first), port);
	complete_and_talk(&server, a, first, one, 0);
	expect_status(connect_to(&server, a, second, other, endpoint, 0, PORT),
		      STATUS_ADDRESS_ALREADY_EXISTS, "the same destination again");
	SUCCEEDS(connect_to(&server, a, second, other, endpoint, 0, PORT + 1));
	DEMAND(local_port(second) == port, "port %u instead of %u", local_port(second), port);
	complete_and_talk(&server, a, second, other, 1);
}

/* NdkCreateSharedEndpoint, NdkListen, NdkConnect: who has an address keeps the others off it. */
static void endpoint_conflicts(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_LISTENER *listener;
	NDK_SHARED_ENDPOINT *endpoint, *none;
	NDK_QP *qp = create_qp(a, NULL);
	struct sockaddr_storage foreign = b->address;
	struct server server;
	struct sync sync = sync_begin(a->adapter);

	serve(&server, b, 1);
	listener = create_listener(a, &server);
	SUCCEEDS(create_endpoint(a, 4000, &endpoint));
	DEMAND(endpoint_port(endpoint) == 4000, "port %u", endpoint_port(endpoint));
	expect_status(create_endpoint(a, 4000, &none), STATUS_SHARING_VIOLATION, "twice");
	expect_status(listen_at(a, listener, 4000), STATUS_SHARING_VIOLATION, "listen on it");
	expect_status(connect_to(&server, a, connector, qp, NULL, 4000, PORT),
		      STATUS_SHARING_VIOLATION, "connect from it");
	SUCCEEDS(listen_at(a, listener, 4001));
	expect_status(create_endpoint(a, 4001, &none), STATUS_SHARING_VIOLATION, "a listener's");
	expect_status(connect_to(&server, a, connector, qp, NULL, 4001, PORT),
		      STATUS_SHARING_VIOLATION, "connect from a listener's");
	expect_status(sync_end(&sync,
			       NdkCreateSharedEndpoint(a->adapter, (PSOCKADDR)&foreign,
						       sizeof(foreign), sync_created, &sync, NULL)),
		      STATUS_INVALID_ADDRESS, "another host's address");
	close_object(a, &endpoint->Header);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 4000, PORT));
	expect_status(create_endpoint(a, 4000, &none), STATUS_SHARING_VIOLATION, "a connector's");
	close_object(a, &connector->Header);
	until(a, b, &server.accepted[0].done, "the accept fails");
	SUCCEEDS(create_endpoint(a, 4000, &endpoint));
}

/* An endpoint is an antecedent of its connectors: its close waits, and its address stays taken. */
static void endpoint_closes(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_SHARED_ENDPOINT *endpoint, *none;
	NDK_QP *qp = create_qp(a, NULL);
	struct wait closed = { 0 };
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(create_endpoint(a, 4000, &endpoint));
	SUCCEEDS(connect_to(&server, a, connector, qp, endpoint, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
	expect_status(NdkCloseSharedEndpoint(endpoint, on_closed, &closed), STATUS_PENDING,
		      "close");
	no_result(a, "nothing happens");
	DEMAND(!closed.done, "it is closed under its connector");
	expect_status(create_endpoint(a, 4000, &none), STATUS_SHARING_VIOLATION, "still held");
	close_object(a, &connector->Header);
	until(a, b, &closed.done, "the close completes");
	SUCCEEDS(create_endpoint(a, 4000, &endpoint));
}

/* --- listeners ------------------------------------------------------------------------------- */

/* A closed listener refuses at once, and its address is free when its connectors are gone. */
static void listener_closes(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a), *late = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	struct wait closed = { 0 };
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
	expect_status(NdkCloseListener(server.listener, on_closed, &closed), STATUS_PENDING,
		      "close");
	no_result(b, "nothing happens");
	DEMAND(!closed.done, "it is closed under its connector");
	expect_status(connect_to(&server, a, late, create_qp(a, NULL), NULL, 0, PORT),
		      STATUS_CONNECTION_REFUSED, "a closed listener");
	expect_status(listen_at(b, create_listener(b, &server), PORT), STATUS_SHARING_VIOLATION,
		      "its address");
	close_object(b, &server.connector[0]->Header);
	until(a, b, &closed.done, "the close completes");
	SUCCEEDS(listen_at(b, create_listener(b, &server), PORT));
}

/* NdkControlConnectEvents: paused is as if nobody listened; the address stays. */
static void listener_paused(struct end *a, struct end *b)
{
	NDK_QP *qp = create_qp(a, NULL);
	NDK_CONNECTOR *connector = create_connector(a);
	struct server server;

	serve(&server, b, 1);
	NdkControlConnectEvents(server.listener, TRUE);
	no_result(b, "the daemon hears of it");
	expect_status(connect_to(&server, a, connector, qp, NULL, 0, PORT),
		      STATUS_CONNECTION_REFUSED, "a paused listener");
	DEMAND(server.arrived == 0, "it was told of a request");
	expect_status(listen_at(b, create_listener(b, &server), PORT), STATUS_SHARING_VIOLATION,
		      "its address");
	NdkControlConnectEvents(server.listener, FALSE);
	no_result(b, "the daemon hears of it");
	close_object(a, &connector->Header);
	connector = create_connector(a);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
}

/* --- connectors ------------------------------------------------------------------------------ */

/* NdkConnect's and NdkAccept's read limits are capped in silence; the peer's data come along. */
static void connector_data(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	char data[256] = { 0 };
	ULONG inbound = 0, outbound = 0, size = 0, needed;
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	SUCCEEDS(NdkGetConnectionData(connector, &inbound, &outbound, NULL, &size));
	DEMAND(inbound == 4 && outbound == 4, "limits %u and %u", inbound, outbound);
	DEMAND(size >= 5 && size <= sizeof(data), "%u bytes", size);
	needed = size;
	size = 3;
	expect_status(NdkGetConnectionData(connector, NULL, NULL, data, &size),
		      STATUS_BUFFER_TOO_SMALL, "room for three");
	DEMAND(size == needed && !memcmp(data, "hel\0", 4), "%u bytes: %s", size, data);
	SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, data, &size));
	DEMAND(!memcmp(data, "hello", 5), "%s", data);
	complete_and_talk(&server, a, connector, qp, 0);
	SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, data, &size));
}

/* NdkReject of the active side: the accept of the other fails with CONNECTION_REFUSED. */
static void connector_rejects(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	SUCCEEDS(NdkReject(connector, "no", 2));
	until(a, b, &server.accepted[0].done, "the accept fails");
	expect_status(server.accepted[0].status, STATUS_CONNECTION_REFUSED, "accept");
	expect_status(complete(&server, a, connector), STATUS_CONNECTION_INVALID,
		      "complete what was rejected");
	DEMAND(server.disconnects == 0, "a disconnect of what was never connected");
}

/* The active side goes away with the answer in hand: the accept fails as aborted or refused. */
static void connector_abandons(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(connect_to(&server, a, connector, create_qp(a, NULL), NULL, 0, PORT));
	close_object(a, &connector->Header);
	until(a, b, &server.accepted[0].done, "the accept fails");
	DEMAND(server.accepted[0].status == STATUS_CONNECTION_REFUSED ||
		       server.accepted[0].status == STATUS_CONNECTION_ABORTED,
	       "accept: %s", OrielStatusName(server.accepted[0].status));
}

/* An incoming connector that is closed rejects its request. */
static void connector_ignored(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	struct sockaddr_storage destination = b->address, source = a->address;
	NDK_QP *qp = create_qp(a, NULL);
	struct wait wait = { 0 };
	struct server server;

	serve(&server, b, 0);
	server.keep = true;
	set_port(&destination, PORT);
	expect_status(NdkConnect(connector, qp, (PSOCKADDR)&source, sizeof(source),
				 (PSOCKADDR)&destination, sizeof(destination), 4, 4, NULL, 0,
				 on_request, &wait),
		      STATUS_PENDING, "connect");
	until(a, b, &server.came, "the request arrives");
	expect_status(connect_to(&server, a, create_connector(a), qp, NULL, 0, PORT),
		      STATUS_CONNECTION_ACTIVE, "one queue pair, one connection");
	close_object(b, &server.connector[0]->Header);
	until(a, b, &wait.done, "the connect fails");
	expect_status(wait.status, STATUS_CONNECTION_REFUSED, "connect");
}

/* NdkDisconnect: the peer hears of it once, its queues are left alone until it follows. */
static void connector_disconnects(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	NDK_SGE in = sge_at(b, 0, 64);
	struct wait left = { 0 }, right = { 0 };
	struct server server;

	serve(&server, b, 1);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
	SUCCEEDS(NdkReceive(server.qp[0], (PVOID)7, &in, 1));
	expect_status(NdkDisconnect(connector, on_request, &left), STATUS_PENDING, "disconnect");
	until(a, b, &server.gone, "the peer hears of it");
	no_result(b, "the peer's disconnect flushes nothing");
	SUCCEEDS(finish(&server, a, NdkDisconnect(server.connector[0], on_request, &right), &right,
			"the second disconnect"));
	until(a, b, &left.done, "the first disconnect");
	SUCCEEDS(left.status);
	DEMAND(result(b, STATUS_CANCELLED, "a receive").RequestContext == (PVOID)7, "another one");
	DEMAND(server.disconnects == 1, "told %u times", server.disconnects);
	expect_status(NdkDisconnect(connector, on_request, &left), STATUS_CONNECTION_INVALID,
		      "disconnect again");
	expect_status(NdkSend(qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID,
		      "a send after the disconnect");
}

const struct scene connect_scenes[] = {
	{ "endpoint-shared", endpoint_shared },
	{ "endpoint-conflicts", endpoint_conflicts },
	{ "endpoint-closes", endpoint_closes },
	{ "listener-closes", listener_closes },
	{ "listener-paused", listener_paused },
	{ "connector-data", connector_data },
	{ "connector-rejects", connector_rejects },
	{ "connector-abandons", connector_abandons },
	{ "connector-ignored", connector_ignored },
	{ "connector-disconnects", connector_disconnects },
	{ NULL, NULL },
};
