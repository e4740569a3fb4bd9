/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with listeners and shared endpoints: b listens, a connects. */
#include "common/sync.h"
#include "dialog.h"

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

/* Every port from 49152 on is taken: the next to ask for any is told so. */
static void endpoint_ports(struct end *a, struct end *b)
{
	static uint8_t seen[65536];
	NDK_SHARED_ENDPOINT *endpoint, *last = NULL;
	NTSTATUS status;
	unsigned int count = 0;

	while (NT_SUCCESS(status = create_endpoint(a, 0, &endpoint))) {
		uint16_t port = endpoint_port(endpoint);

		DEMAND(port >= 49152 && !seen[port]++, "port %u", port);
		last = endpoint;
		count++;
	}
	expect_status(status, STATUS_TOO_MANY_ADDRESSES, "one more");
	DEMAND(count == 65536 - 49152, "%u ports", count);
	expect_status(listen_at(a, create_listener(a, &(struct server){ .end = a }), 0),
		      STATUS_TOO_MANY_ADDRESSES, "listen");
	close_object(a, &last->Header);
	SUCCEEDS(create_endpoint(a, 0, &endpoint));
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
	caught_up(b);
	expect_status(connect_to(&server, a, connector, qp, NULL, 0, PORT),
		      STATUS_CONNECTION_REFUSED, "a paused listener");
	DEMAND(server.arrived == 0, "it was told of a request");
	expect_status(listen_at(b, create_listener(b, &server), PORT), STATUS_SHARING_VIOLATION,
		      "its address");
	NdkControlConnectEvents(server.listener, FALSE);
	caught_up(b);
	close_object(a, &connector->Header);
	connector = create_connector(a);
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
}

const struct scene connect_scenes[] = {
	{ "endpoint-shared", endpoint_shared },
	{ "endpoint-conflicts", endpoint_conflicts },
	{ "endpoint-closes", endpoint_closes },
	{ "endpoint-ports", endpoint_ports },
	{ "listener-closes", listener_closes },
	{ "listener-paused", listener_paused },
	{ NULL, NULL },
};
