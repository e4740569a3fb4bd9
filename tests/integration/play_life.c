/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with an adapter's versions and limits, and with a life that happens in callbacks only. */
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "play.h"

/* --- versions and limits ---------------------------------------------------------------------- */

/* Version negotiation: the same major, and no less than what was asked for; told is the highest. */
static void open_with(const struct end *end, USHORT major, USHORT minor, USHORT expected)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { major, minor },
						   .Socket = end->socket };
	NDK_ADAPTER *adapter = NULL;
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);
	struct sync sync;
	NTSTATUS status = OrielOpenAdapter(&parameters, &adapter);

	if (expected == (USHORT)-1) {
		expect_status(status, NDIS_STATUS_BAD_VERSION, "a version that is not there");
		DEMAND(OrielOpenErrorText()[0], "%u.%u: no reason", major, minor);
		return;
	}
	SUCCEEDS(status);
	SUCCEEDS(NdkQueryAdapterInfo(adapter, &info, &size));
	sync = sync_begin(adapter);
	SUCCEEDS(sync_end(&sync, NdkCreatePd(adapter, sync_created, &sync, NULL)));
	DEMAND(adapter->Header.Version.Major == major && adapter->Header.Version.Minor == expected,
	       "adapter %u.%u", adapter->Header.Version.Major, adapter->Header.Version.Minor);
	DEMAND(!memcmp(&info.Version, &adapter->Header.Version, sizeof(info.Version)), "its info");
	DEMAND(!memcmp(&sync.object->Version, &info.Version, sizeof(info.Version)), "an object");
	OrielCloseAdapter(adapter);
}

static void versions(struct end *a, struct end *b)
{
	for (USHORT minor = 0; minor <= 2; minor++)
		open_with(a, 1, minor, 2);
	open_with(a, 1, 3, (USHORT)-1);
	for (USHORT minor = 0; minor <= 1; minor++)
		open_with(a, 2, minor, 1);
	open_with(a, 2, 2, (USHORT)-1);
	open_with(a, 0, 9, (USHORT)-1);
	open_with(a, 3, 0, (USHORT)-1);
}

static NTSTATUS try_cq(struct end *end, ULONG depth)
{
	struct sync sync = sync_begin(end->adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateCq(end->adapter, depth, NULL, NULL, NULL,
						      sync_created, &sync, NULL));

	if (NT_SUCCESS(status))
		close_object(end, sync.object);
	return status;
}

static NTSTATUS try_qp(struct end *end, const ULONG number[5])
{
	struct sync sync = sync_begin(end->adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateQp(end->pd, end->cq, end->cq, NULL, number[0],
						      number[1], number[2], number[3], number[4],
						      sync_created, &sync, NULL));

	if (NT_SUCCESS(status))
		close_object(end, sync.object);
	return status;
}

static NTSTATUS try_srq(struct end *end, ULONG depth, ULONG sges)
{
	struct sync sync = sync_begin(end->adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateSrq(end->pd, depth, sges, 0, NULL, NULL, NULL,
						       sync_created, &sync, NULL));

	if (NT_SUCCESS(status))
		close_object(end, sync.object);
	return status;
}

/* NdQpMax, NdLargeQPDepth: what the adapter says can be had, and no more. */
static void limits(struct end *a, struct end *b)
{
	NDK_ADAPTER_INFO info;
	ULONG size = sizeof(info);
	ULONG most[5];

	SUCCEEDS(NdkQueryAdapterInfo(a->adapter, &info, &size));
	memcpy(most,
	       (const ULONG[5]){ info.MaxReceiveQueueDepth, info.MaxInitiatorQueueDepth,
				 info.MaxReceiveRequestSge, info.MaxInitiatorRequestSge,
				 info.MaxInlineDataSize },
	       sizeof(most));
	SUCCEEDS(try_qp(a, most));
	for (unsigned int i = 0; i < 5; i++) {
		most[i]++;
		expect_status(try_qp(a, most), STATUS_INVALID_PARAMETER, "one more of a QP");
		most[i]--;
	}
	expect_status(NdkCreateQp(a->pd, NULL, a->cq, NULL, 1, 1, 1, 1, 0, sync_created, a, NULL),
		      STATUS_INVALID_PARAMETER, "a QP without a CQ");
	SUCCEEDS(try_cq(a, info.MaxCqDepth));
	expect_status(try_cq(a, info.MaxCqDepth + 1), STATUS_INVALID_PARAMETER, "a deeper CQ");
	SUCCEEDS(try_srq(a, info.MaxSrqDepth, info.MaxReceiveRequestSge));
	expect_status(try_srq(a, info.MaxSrqDepth + 1, 1), STATUS_INVALID_PARAMETER, "an SRQ");
	expect_status(try_srq(a, 1, info.MaxReceiveRequestSge + 1), STATUS_INVALID_PARAMETER,
		      "an SRQ's SGEs");
	DEMAND(info.FRMRPageCount >= 16, "%u pages", info.FRMRPageCount);
	DEMAND(info.RdmaTechnology == NdkRoCEv2, "technology %d", info.RdmaTechnology);
	DEMAND(info.AdapterFlags & NDK_ADAPTER_FLAG_CQ_RESIZE_SUPPORTED, "flags");
}

/* --- callbacks -------------------------------------------------------------------------------- */

/*
 * Two programs that do everything in callbacks: create, register, listen, connect, accept, post,
 * arm, disconnect and close. The main program only drives progress.
 */
struct actor {
	struct end *end;
	const struct end *peer;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_QP *qp;
	NDK_LISTENER *listener; /* b's */
	NDK_CONNECTOR *connector;
	unsigned int received;
	bool ready, closed;
};

#define LIFE_PORT 7411

static void must_pend(NTSTATUS status, const char *what)
{
	expect_status(status, STATUS_PENDING, what);
}

static void gone(PVOID context)
{
	struct actor *actor = context;

	actor->closed = true;
}

/* Successors first or not: the closes wait for each other. The domain's is the last. */
static void disconnected(PVOID context, NTSTATUS status)
{
	static struct sync forgotten;
	struct actor *actor = context;

	expect_status(status, STATUS_SUCCESS, "disconnected");
	must_pend(NdkCloseQp(actor->qp, sync_closed, &forgotten), "close the queue pair");
	must_pend(NdkCloseCq(actor->cq, sync_closed, &forgotten), "close the CQ");
	must_pend(NdkClosePd(actor->pd, gone, actor), "close the domain");
	must_pend(NdkCloseConnector(actor->connector, sync_closed, &forgotten), "the connector");
	if (actor->listener)
		must_pend(NdkCloseListener(actor->listener, sync_closed, &forgotten), "listener");
}

static void peer_left(PVOID context)
{
	struct actor *actor = context;

	must_pend(NdkDisconnect(actor->connector, disconnected, actor), "disconnect as well");
}

/* b answers and leaves; a, which hears the answer, is left. */
static void arrived(PVOID context, NTSTATUS status)
{
	struct actor *actor = context;
	NDK_RESULT_EX entry[4];
	ULONG count;

	expect_status(status, STATUS_SUCCESS, "arrived");
	while ((count = NdkGetCqResultsEx(actor->cq, entry, 4)))
		for (ULONG i = 0; i < count; i++) {
			SUCCEEDS(entry[i].Status);
			actor->received += entry[i].Type == NdkOperationTypeReceive;
			if (actor->listener && entry[i].Type == NdkOperationTypeReceive)
				SUCCEEDS(NdkSend(actor->qp, NULL, NULL, 0, 0));
			else if (actor->listener)
				must_pend(NdkDisconnect(actor->connector, disconnected, actor),
					  "disconnect");
		}
	NdkArmCq(actor->cq, NDK_CQ_NOTIFY_ANY);
}

static void completed(PVOID context, NTSTATUS status)
{
	struct actor *actor = context;

	expect_status(status, STATUS_SUCCESS, "completed");
	SUCCEEDS(NdkSend(actor->qp, NULL, NULL, 0, 0));
}

static void replied(PVOID context, NTSTATUS status)
{
	struct actor *actor = context;
	char data[256];
	ULONG size = sizeof(data);

	expect_status(status, STATUS_SUCCESS, "replied");
	SUCCEEDS(NdkGetConnectionData(actor->connector, NULL, NULL, data, &size));
	DEMAND(!memcmp(data, "life", 4), "%.4s", data);
	must_pend(NdkCompleteConnect(actor->connector, peer_left, actor, completed, actor),
		  "complete");
}

static void has_connector(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct actor *actor = context;
	struct sockaddr_storage from = actor->end->address, to = actor->peer->address;

	expect_status(status, STATUS_SUCCESS, "has_connector");
	actor->connector = (NDK_CONNECTOR *)object;
	((struct sockaddr_in *)&to)->sin_port = htons(LIFE_PORT); /* where both families have it */
	must_pend(NdkConnect(actor->connector, actor->qp, (PSOCKADDR)&from, sizeof(from),
			     (PSOCKADDR)&to, sizeof(to), 1, 1, NULL, 0, replied, actor),
		  "connect");
}

static void accepted(PVOID context, NTSTATUS status)
{
	expect_status(status, STATUS_SUCCESS, "accepted");
}

static void asked(PVOID context, NDK_CONNECTOR *connector)
{
	struct actor *actor = context;
	struct sockaddr_storage address;
	ULONG length = sizeof(address), size = 0;

	actor->connector = connector;
	SUCCEEDS(NdkGetPeerAddress(connector, (PSOCKADDR)&address, &length));
	SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, NULL, &size));
	must_pend(
		NdkAccept(connector, actor->qp, 1, 1, "life", 4, peer_left, actor, accepted, actor),
		"accept");
}

static void listens(PVOID context, NTSTATUS status)
{
	struct actor *actor = context;

	expect_status(status, STATUS_SUCCESS, "listens");
	actor->ready = true;
}

static void has_listener(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct actor *actor = context;
	struct sockaddr_storage here = actor->end->address;

	expect_status(status, STATUS_SUCCESS, "has_listener");
	actor->listener = (NDK_LISTENER *)object;
	((struct sockaddr_in *)&here)->sin_port = htons(LIFE_PORT);
	must_pend(NdkListen(actor->listener, (PSOCKADDR)&here, sizeof(here), listens, actor),
		  "listen");
}

static void has_qp(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct actor *actor = context;
	NDK_ADAPTER *adapter = actor->end->adapter;

	expect_status(status, STATUS_SUCCESS, "has_qp");
	actor->qp = (NDK_QP *)object;
	SUCCEEDS(NdkReceive(actor->qp, NULL, NULL, 0));
	NdkArmCq(actor->cq, NDK_CQ_NOTIFY_ANY);
	must_pend(actor->peer ? NdkCreateConnector(adapter, has_connector, actor, NULL)
			      : NdkCreateListener(adapter, asked, actor, has_listener, actor, NULL),
		  "create a connector or a listener");
}

static void has_cq(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct actor *actor = context;

	expect_status(status, STATUS_SUCCESS, "has_cq");
	actor->cq = (NDK_CQ *)object;
	must_pend(NdkCreateQp(actor->pd, actor->cq, actor->cq, NULL, 4, 4, 1, 1, 0, has_qp, actor,
			      NULL),
		  "create a queue pair");
}

static void has_pd(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct actor *actor = context;

	expect_status(status, STATUS_SUCCESS, "has_pd");
	actor->pd = (NDK_PD *)object;
	must_pend(NdkCreateCq(actor->end->adapter, 16, arrived, actor, NULL, has_cq, actor, NULL),
		  "create a CQ");
}

static void callbacks(struct end *a, struct end *b)
{
	struct actor server = { .end = b }, client = { .end = a, .peer = b };

	must_pend(NdkCreatePd(b->adapter, has_pd, &server, NULL), "create a domain");
	until(a, b, &server.ready, "somebody listens");
	must_pend(NdkCreatePd(a->adapter, has_pd, &client, NULL), "create a domain");
	until(a, b, &server.closed, "the server has left");
	until(a, b, &client.closed, "the client has left");
	DEMAND(server.received == 1 && client.received == 1, "%u and %u messages", server.received,
	       client.received);
}

/* --- the library's thread --------------------------------------------------------------------- */

struct watched {
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_OBJECT_HEADER *object;
	unsigned int told; /* callbacks; atomic */
};

static void watched_object(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct watched *watched = context;

	SUCCEEDS(status);
	watched->object = object;
	__atomic_fetch_add(&watched->told, 1, __ATOMIC_RELEASE);
}

static void watched_entry(PVOID context, NTSTATUS status)
{
	struct watched *watched = context;

	SUCCEEDS(status);
	__atomic_fetch_add(&watched->told, 1, __ATOMIC_RELEASE);
}

/* The number of callbacks that came by themselves; the object of the last one. */
static void *watched_until(struct watched *watched, unsigned int told)
{
	for (unsigned int i = 0; __atomic_load_n(&watched->told, __ATOMIC_ACQUIRE) < told; i++) {
		DEMAND(i < PATIENCE, "callback %u does not come", told);
		usleep(1000);
	}
	return watched->object;
}

/* ORIEL_OPEN_PROGRESS_THREAD: replies and notifications come though nobody drives progress. */
static void thread(struct end *a, struct end *b)
{
	const ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
						   .Version = { 2, 0 },
						   .Socket = a->socket,
						   .Flags = ORIEL_OPEN_PROGRESS_THREAD };
	struct watched w = { 0 };
	NDK_RESULT entry;
	NDK_QP *qp;

	SUCCEEDS(OrielOpenAdapter(&parameters, &w.adapter));
	must_pend(NdkCreatePd(w.adapter, watched_object, &w, NULL), "a domain");
	w.pd = watched_until(&w, 1);
	must_pend(NdkCreateCq(w.adapter, 4, watched_entry, &w, NULL, watched_object, &w, NULL),
		  "a CQ");
	w.cq = watched_until(&w, 2);
	must_pend(NdkCreateQp(w.pd, w.cq, w.cq, NULL, 2, 2, 1, 1, 0, watched_object, &w, NULL),
		  "a queue pair");
	qp = watched_until(&w, 3);
	for (unsigned int i = 0; i < 20; i++) {
		NdkArmCq(w.cq, NDK_CQ_NOTIFY_ANY);
		SUCCEEDS(NdkReceive(qp, NULL, NULL, 0));
		NdkFlush(qp);
		watched_until(&w, 4 + i);
		DEMAND(NdkGetCqResults(w.cq, &entry, 1) == 1, "told of nothing");
	}
	OrielCloseAdapter(w.adapter);
}

const struct scene life_scenes[] = {
	{ "life-thread", thread },
	{ "life-versions", versions },
	{ "life-limits", limits },
	{ "life-callbacks", callbacks },
	{ NULL, NULL },
};
