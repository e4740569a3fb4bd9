/* SPDX-License-Identifier: BSD-3-Clause */
/* What the scenes with connections share: a side that listens, one that connects. */
#ifndef INTEGRATION_DIALOG_H
#define INTEGRATION_DIALOG_H

#include "play.h"

#define PORT 7321
#define MOST 4u /* connections of a server */

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

void set_port(struct sockaddr_storage *address, uint16_t port);
void on_request(PVOID context, NTSTATUS status);
void on_closed(PVOID context);
NDK_LISTENER *create_listener(struct end *end, struct server *server);
NTSTATUS listen_at(struct end *end, NDK_LISTENER *listener, uint16_t port);
void serve(struct server *server, struct end *end, unsigned int connections);
NDK_CONNECTOR *create_connector(struct end *end);
NTSTATUS create_endpoint(struct end *end, uint16_t port, NDK_SHARED_ENDPOINT **endpoint);
NTSTATUS finish(struct server *server, struct end *a, NTSTATUS status, struct wait *wait,
		const char *what);
/* One with an address of its own when `endpoint` is NULL: this port, 0 for any. */
NTSTATUS connect_to(struct server *server, struct end *a, NDK_CONNECTOR *connector, NDK_QP *qp,
		    NDK_SHARED_ENDPOINT *endpoint, uint16_t from, uint16_t to);
NTSTATUS complete(struct server *server, struct end *a, NDK_CONNECTOR *connector);
/* Connected at both ends, and a message goes over it. */
void complete_and_talk(struct server *server, struct end *a, NDK_CONNECTOR *connector, NDK_QP *qp,
		       unsigned int i);
uint16_t local_port(NDK_CONNECTOR *connector);
uint16_t endpoint_port(NDK_SHARED_ENDPOINT *endpoint);

#endif
