/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections for scenes: see dialog.h. */
#include "dialog.h"

#include <netinet/in.h>

#include "common/sync.h"

void set_port(struct sockaddr_storage *address, uint16_t port)
{
	/* At the same place in both families. */
	((struct sockaddr_in *)address)->sin_port = htons(port);
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

void on_request(PVOID context, NTSTATUS status)
{
	struct wait *wait = context;

	DEMAND(!wait->done, "a request is told once");
	wait->done = true;
	wait->status = status;
}

void on_closed(PVOID context)
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

NDK_LISTENER *create_listener(struct end *end, struct server *server)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateListener(end->adapter, on_connect, server, sync_created,
						   &sync, NULL)));
	return (NDK_LISTENER *)sync.object;
}

NTSTATUS listen_at(struct end *end, NDK_LISTENER *listener, uint16_t port)
{
	struct sync sync = sync_begin(end->adapter);
	struct sockaddr_storage address = end->address;

	set_port(&address, port);
	return sync_end(&sync, NdkListen(listener, (PSOCKADDR)&address, sizeof(address),
					 sync_requested, &sync));
}

void serve(struct server *server, struct end *end, unsigned int connections)
{
	*server = (struct server){ .end = end };
	for (unsigned int i = 0; i < connections; i++)
		server->qp[i] = create_qp(end, NULL);
	server->listener = create_listener(end, server);
	SUCCEEDS(listen_at(end, server->listener, PORT));
}

NDK_CONNECTOR *create_connector(struct end *end)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateConnector(end->adapter, sync_created, &sync, NULL)));
	return (NDK_CONNECTOR *)sync.object;
}

NTSTATUS create_endpoint(struct end *end, uint16_t port, NDK_SHARED_ENDPOINT **endpoint)
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

NTSTATUS finish(struct server *server, struct end *a, NTSTATUS status, struct wait *wait,
		const char *what)
{
	if (status != STATUS_PENDING)
		return status;
	until(server->end, a, &wait->done, what);
	return wait->status;
}

/* One with an address of its own when `endpoint` is NULL: this port, 0 for any. */
NTSTATUS connect_to(struct server *server, struct end *a, NDK_CONNECTOR *connector, NDK_QP *qp,
		    NDK_SHARED_ENDPOINT *endpoint, uint16_t from, uint16_t to)
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

NTSTATUS complete(struct server *server, struct end *a, NDK_CONNECTOR *connector)
{
	struct wait wait = { 0 };

	return finish(server, a, NdkCompleteConnect(connector, NULL, NULL, on_request, &wait),
		      &wait, "completed");
}

/* Connected at both ends, and a message goes over it. */
void complete_and_talk(struct server *server, struct end *a, NDK_CONNECTOR *connector, NDK_QP *qp,
		       unsigned int i)
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

uint16_t local_port(NDK_CONNECTOR *connector)
{
	struct sockaddr_storage address;
	ULONG length = sizeof(address);

	SUCCEEDS(NdkGetLocalAddress(connector, (PSOCKADDR)&address, &length));
	return port_of(&address);
}

uint16_t endpoint_port(NDK_SHARED_ENDPOINT *endpoint)
{
	struct sockaddr_storage address;
	ULONG length = 1;

	expect_status(
		endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length),
		STATUS_BUFFER_TOO_SMALL, "no room for an address");
	SUCCEEDS(endpoint->Dispatch->NdkGetLocalAddress(endpoint, (PSOCKADDR)&address, &length));
	return port_of(&address);
}
