/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with connectors: b listens, a connects. */
#include <string.h>

#include "common/sync.h"
#include "dialog.h"

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

/* --- again ------------------------------------------------------------------------------------ */

/* A refused connect may be tried again, with the same connector and queue pair or another one. */
static void connector_retries(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a), *other = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL), *second = create_qp(a, NULL);
	struct server server;
	char data[256];
	ULONG size = sizeof(data);

	serve(&server, b, 1);
	for (unsigned int i = 0; i < 3; i++)
		expect_status(connect_to(&server, a, connector, i == 1 ? second : qp, NULL, 4000,
					 PORT + 5),
			      STATUS_CONNECTION_REFUSED, "nobody listens");
	SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, data, &size));
	expect_status(connect_to(&server, a, other, qp, NULL, 0, PORT), STATUS_CONNECTION_ACTIVE,
		      "the queue pair is the connector's until then");
	expect_status(connect_to(&server, a, other, second, NULL, 4000, PORT),
		      STATUS_SHARING_VIOLATION, "and so is the address");
	expect_status(complete(&server, a, connector), STATUS_CONNECTION_INVALID, "complete it");
	expect_status(NdkReject(connector, NULL, 0), STATUS_CONNECTION_INVALID, "reject it");
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 4000, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
	expect_status(connect_to(&server, a, connector, second, NULL, 0, PORT),
		      STATUS_CONNECTION_ACTIVE, "connected");
}

/* NdDualConnection: a second connect on what waits for its end; NdDualListen: a second listen. */
static void connector_twice(struct end *a, struct end *b)
{
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	struct server server;

	serve(&server, b, 1);
	expect_status(listen_at(b, server.listener, PORT + 1), STATUS_ADDRESS_ALREADY_ASSOCIATED,
		      "a listener that listens");
	expect_status(listen_at(b, create_listener(b, &server), PORT), STATUS_SHARING_VIOLATION,
		      "another listener there");
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	expect_status(connect_to(&server, a, connector, qp, NULL, 0, PORT),
		      STATUS_CONNECTION_ACTIVE, "connect twice");
	expect_status(connect_to(&server, a, create_connector(a), qp, NULL, 0, PORT),
		      STATUS_CONNECTION_ACTIVE, "another connector for the queue pair");
	SUCCEEDS(NdkReject(connector, NULL, 0));
	until(a, b, &server.accepted[0].done, "the accept fails");
	expect_status(server.accepted[0].status, STATUS_CONNECTION_REFUSED, "accept");
}

static NTSTATUS connect_with(struct server *server, struct end *a, NDK_CONNECTOR *connector,
			     NDK_QP *qp, const struct sockaddr_storage *to, ULONG length)
{
	static char data[512];
	struct sockaddr_storage source = a->address;
	struct wait wait = { 0 };

	return finish(server, a,
		      NdkConnect(connector, qp, (PSOCKADDR)&source, sizeof(source), (PSOCKADDR)to,
				 sizeof(*to), 4, 4, length ? data : NULL, length, on_request,
				 &wait),
		      &wait, "the peer answers");
}

/* NdLargePrivateData: one byte too many uses nothing up; NdInvalidIP: no way there. */
static void connector_limits(struct end *a, struct end *b)
{
	struct sockaddr_storage to = b->address, nowhere = b->address;
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	static const char much[512];
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);
	struct server server;
	bool six = nowhere.ss_family == AF_INET6;

	serve(&server, b, 1);
	server.keep = true;
	set_port(&to, PORT);
	SUCCEEDS(NdkQueryAdapterInfo(a->adapter, &info, &size));
	((uint8_t *)&nowhere)[six ? 8 : 4] ^= 0x40; /* the first byte of the address */
	set_port(&nowhere, PORT);
	expect_status(connect_with(&server, a, connector, qp, &nowhere, 0),
		      STATUS_NETWORK_UNREACHABLE, "another network");
	expect_status(connect_with(&server, a, connector, qp, &to, info.MaxCallerData + 1),
		      STATUS_INVALID_BUFFER_SIZE, "one byte too many");
	server.keep = true;
	{
		struct sockaddr_storage source = a->address;
		struct wait wait = { 0 };

		expect_status(NdkConnect(connector, qp, (PSOCKADDR)&source, sizeof(source),
					 (PSOCKADDR)&to, sizeof(to), 100, 100, (PVOID)much,
					 info.MaxCallerData, on_request, &wait),
			      STATUS_PENDING, "as much as there may be");
		until(a, b, &server.came, "the request arrives");
		expect_status(NdkAcceptEx(server.connector[0], server.qp[0], 4, 4, (PVOID)much,
					  info.MaxCalleeData + 1, NULL, NULL, on_request,
					  &server.accepted[0]),
			      STATUS_INVALID_BUFFER_SIZE, "one byte too many to accept");
		expect_status(NdkReject(server.connector[0], (PVOID)much, info.MaxCalleeData + 1),
			      STATUS_INVALID_BUFFER_SIZE, "one byte too many to reject");
		expect_status(NdkAcceptEx(server.connector[0], server.qp[0], 4, 4, (PVOID)much,
					  info.MaxCalleeData, NULL, NULL, on_request,
					  &server.accepted[0]),
			      STATUS_PENDING, "as much as there may be to accept");
		until(a, b, &wait.done, "the peer answers");
		SUCCEEDS(wait.status);
	}
	complete_and_talk(&server, a, connector, qp, 0);
}

/* A host that is not there, then one that is: the same connector. */
static void connector_nobody(struct end *a, struct end *b)
{
	struct sockaddr_storage nobody = b->address;
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	struct server server;

	serve(&server, b, 1);
	/* The last byte of the address: that of 10.66.0.2, or of fd66::2. */
	((uint8_t *)&nobody)[nobody.ss_family == AF_INET6 ? 23 : 7] = 77;
	set_port(&nobody, PORT);
	expect_status(connect_with(&server, a, connector, qp, &nobody, 0), STATUS_HOST_UNREACHABLE,
		      "nobody is there");
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
}

/* NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED is not there, and so no way to oneself. */
static void connector_loopback(struct end *a, struct end *b)
{
	struct sockaddr_storage self = a->address;
	NDK_CONNECTOR *connector = create_connector(a);
	NDK_QP *qp = create_qp(a, NULL);
	struct server server, at_home;
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);

	serve(&server, b, 1);
	serve(&at_home, a, 1);
	set_port(&self, PORT);
	SUCCEEDS(NdkQueryAdapterInfo(a->adapter, &info, &size));
	DEMAND(!(info.AdapterFlags & NDK_ADAPTER_FLAG_LOOPBACK_CONNECTIONS_SUPPORTED), "flags");
	expect_status(connect_with(&server, a, connector, qp, &self, 0), STATUS_NETWORK_UNREACHABLE,
		      "a connection to oneself");
	SUCCEEDS(connect_to(&server, a, connector, qp, NULL, 0, PORT));
	complete_and_talk(&server, a, connector, qp, 0);
}

/* Both ends ask at the same time, each from the port at which the other listens for it. */
static void connector_crossing(struct end *a, struct end *b)
{
	NDK_CONNECTOR *one = create_connector(a), *two = create_connector(b);
	struct sockaddr_storage at_a = a->address, at_b = b->address, to_a, to_b;
	NDK_QP *left = create_qp(a, NULL), *right = create_qp(b, NULL);
	struct wait first = { 0 }, second = { 0 };
	struct server server, backward;

	serve(&server, b, 1);
	serve(&backward, a, 1);
	to_a = at_a;
	to_b = at_b;
	set_port(&to_a, PORT);
	set_port(&to_b, PORT);
	expect_status(NdkConnect(one, left, (PSOCKADDR)&at_a, sizeof(at_a), (PSOCKADDR)&to_b,
				 sizeof(to_b), 4, 4, NULL, 0, on_request, &first),
		      STATUS_PENDING, "from the left");
	expect_status(NdkConnect(two, right, (PSOCKADDR)&at_b, sizeof(at_b), (PSOCKADDR)&to_a,
				 sizeof(to_a), 4, 4, NULL, 0, on_request, &second),
		      STATUS_PENDING, "from the right");
	until(a, b, &first.done, "the right answers");
	until(a, b, &second.done, "the left answers");
	SUCCEEDS(first.status);
	SUCCEEDS(second.status);
	complete_and_talk(&server, a, one, left, 0);
	complete_and_talk(&backward, b, two, right, 0);
}

/* A thread that posts on a queue pair and takes the results, until a post is refused. */
struct poster {
	struct end *end;
	NDK_QP *qp;
	uint32_t posted, taken;
	NTSTATUS refused;
};

static void *post_until_refused(void *argument)
{
	struct poster *poster = argument;
	NTSTATUS status = STATUS_SUCCESS;
	NDK_RESULT entry[16];

	while (NT_SUCCESS(status) || status == STATUS_NO_MORE_ENTRIES) {
		status = NdkWrite(poster->qp, NULL, NULL, 0, 0, 0, 0);
		if (NT_SUCCESS(status))
			__atomic_fetch_add(&poster->posted, 1, __ATOMIC_RELAXED);
		poster->taken += NdkGetCqResults(poster->end->cq, entry, 16);
	}
	poster->refused = status;
	while (poster->taken < poster->posted)
		poster->taken += NdkGetCqResults(poster->end->cq, entry, 16);
	return NULL;
}

/* NdkCloseConnector beside posts on its queue pair: each of them is refused or completes, once. */
static void connector_closed_beside(struct end *a, struct end *b)
{
	struct server server;

	serve(&server, b, MOST);
	for (unsigned int i = 0; i < MOST; i++) {
		struct poster poster = { .end = a, .qp = create_qp(a, NULL) };
		NDK_CONNECTOR *connector = create_connector(a);
		pthread_t thread;

		SUCCEEDS(connect_to(&server, a, connector, poster.qp, NULL, 0, PORT));
		complete_and_talk(&server, a, connector, poster.qp, i);
		DEMAND(!pthread_create(&thread, NULL, post_until_refused, &poster), "thread");
		while (__atomic_load_n(&poster.posted, __ATOMIC_RELAXED) < 100)
			OrielProgress(a->adapter);
		close_object(a, &connector->Header);
		pthread_join(thread, NULL);
		expect_status(poster.refused, STATUS_CONNECTION_INVALID,
			      "the first that came late");
		DEMAND(poster.taken == poster.posted, "%u posted, %u completed", poster.posted,
		       poster.taken);
		no_result(a, "no more of them");
	}
}

const struct scene connector_scenes[] = {
	{ "connector-abandons", connector_abandons },
	{ "connector-closed-beside", connector_closed_beside },
	{ "connector-crossing", connector_crossing },
	{ "connector-data", connector_data },
	{ "connector-disconnects", connector_disconnects },
	{ "connector-ignored", connector_ignored },
	{ "connector-limits", connector_limits },
	{ "connector-rejects", connector_rejects },
	{ "connector-loopback", connector_loopback },
	{ "connector-nobody", connector_nobody },
	{ "connector-retries", connector_retries },
	{ "connector-twice", connector_twice },
	{ NULL, NULL },
};
