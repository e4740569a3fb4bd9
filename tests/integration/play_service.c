/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with services of datagrams: asking, answering, refusing, and who may not. */
#include <netinet/in.h>
#include <string.h>

#include "common/sync.h"
#include "play.h"

#define PORT 7174
#define QKEY 0x01234567u

/* The answering side. */
struct service {
	struct end *end;
	NDK_LISTENER *listener;
	NDK_QP *qp;
	NDK_CONNECTOR *asked; /* the last one */
	bool came;
};

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
	/* At the same place in both families. */
	((struct sockaddr_in *)address)->sin_port = htons(port);
}

static void on_asked(PVOID context, NDK_CONNECTOR *connector)
{
	struct service *service = context;

	service->asked = connector;
	service->came = true;
}

static void open_service(struct service *service, struct end *end, bool ready)
{
	struct sync sync = sync_begin(end->adapter);
	struct sockaddr_storage address = end->address;
	ORIEL_QP_CONNECTION connection = { .Size = sizeof(connection),
					   .QKey = QKEY,
					   .LocalAddress = (PSOCKADDR)&end->address };

	*service = (struct service){ .end = end };
	SUCCEEDS(sync_end(&sync, NdkCreateListener(end->adapter, on_asked, service, sync_created,
						   &sync, NULL)));
	service->listener = (NDK_LISTENER *)sync.object;
	set_port(&address, PORT);
	sync = sync_begin(end->adapter);
	SUCCEEDS(sync_end(&sync, OrielListenDatagram(service->listener, (PSOCKADDR)&address,
						     sizeof(address), sync_requested, &sync)));
	service->qp = create_qp_of_type(end, OrielQpTypeUd, NULL, NULL);
	if (ready)
		SUCCEEDS(connect_qp(end, service->qp, &connection));
}

static NDK_CONNECTOR *open_connector(struct end *end)
{
	struct sync sync = sync_begin(end->adapter);

	SUCCEEDS(sync_end(&sync, NdkCreateConnector(end->adapter, sync_created, &sync, NULL)));
	return (NDK_CONNECTOR *)sync.object;
}

static NTSTATUS ask(struct end *from, const struct end *to, uint16_t port, NDK_CONNECTOR *connector,
		    const void *words, ULONG length, struct sync *sync)
{
	struct sockaddr_storage destination = to->address;

	set_port(&destination, port);
	*sync = sync_begin(from->adapter);
	return OrielResolveDatagram(connector, (PSOCKADDR)&from->address, sizeof(from->address),
				    (PSOCKADDR)&destination, sizeof(destination), words, length,
				    sync_requested, sync);
}

/* Drives both ends until the service was asked. */
static void wait_asked(struct service *service, struct end *other)
{
	until(service->end, other, &service->came, "the question arrives");
	service->came = false;
	DEMAND(OrielIsDatagramRequest(service->asked), "it is a question for datagrams");
}

static NTSTATUS answer(struct service *service, NDK_QP *qp, const void *words, ULONG length)
{
	struct sync sync = sync_begin(service->end->adapter);

	return sync_end(&sync, OrielAcceptDatagram(service->asked, qp, QKEY, words, length,
						   sync_requested, &sync));
}

static void close_service(struct service *service)
{
	close_object(service->end, &service->qp->Header);
	close_object(service->end, &service->listener->Header);
}

/* --- scenes --------------------------------------------------------------------------------- */

/* 180 bytes there, 136 back, queue pair and Q_Key; several in a row and several at once. */
static void resolve(struct end *a, struct end *b)
{
	uint8_t words[180], data[256];
	struct service service;
	NDK_CONNECTOR *connector;
	struct sync sync;
	ULONG length, qpn;
	UINT32 qkey;

	memset(words, 0x5a, sizeof(words));
	open_service(&service, b, true);
	for (unsigned int i = 0; i < 20; i++) {
		connector = open_connector(a);
		expect_status(OrielGetDatagramPeer(connector, &qpn, &qkey),
			      STATUS_CONNECTION_INVALID, "no answer yet");
		expect_status(ask(a, b, PORT, connector, words, sizeof(words), &sync),
			      STATUS_PENDING, "asking");
		wait_asked(&service, a);
		length = sizeof(data);
		SUCCEEDS(NdkGetConnectionData(service.asked, NULL, NULL, data, &length));
		DEMAND(length == 180 && memcmp(data, words, 180) == 0, "%u bytes came", length);
		SUCCEEDS(answer(&service, service.qp, words, 136));
		SUCCEEDS(sync_end(&sync, STATUS_PENDING));
		SUCCEEDS(OrielGetDatagramPeer(connector, &qpn, &qkey));
		DEMAND(qpn == OrielGetQpNumber(service.qp) && qkey == QKEY, "%u, %x", qpn, qkey);
		length = sizeof(data);
		SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, data, &length));
		DEMAND(length == 136 && memcmp(data, words, 136) == 0, "%u bytes back", length);
		close_object(a, &connector->Header);
		close_object(b, &service.asked->Header);
	}
	close_service(&service);
}

static void refuse(struct end *a, struct end *b)
{
	struct service service;
	NDK_CONNECTOR *connector = open_connector(a);
	struct sync sync;
	uint8_t data[136];
	ULONG length = sizeof(data);

	/* Nobody listens. */
	expect_status(ask(a, b, PORT, connector, NULL, 0, &sync), STATUS_PENDING, "asking");
	expect_status(sync_end(&sync, STATUS_PENDING), STATUS_CONNECTION_REFUSED, "nobody listens");
	close_object(a, &connector->Header);
	/* The service says no, with a word. */
	open_service(&service, b, true);
	connector = open_connector(a);
	expect_status(ask(a, b, PORT, connector, NULL, 0, &sync), STATUS_PENDING, "asking");
	wait_asked(&service, a);
	SUCCEEDS(NdkReject(service.asked, "never", 6));
	expect_status(answer(&service, service.qp, NULL, 0), STATUS_CONNECTION_INVALID,
		      "an answer after a refusal");
	expect_status(sync_end(&sync, STATUS_PENDING), STATUS_CONNECTION_REFUSED, "refused");
	SUCCEEDS(NdkGetConnectionData(connector, NULL, NULL, data, &length));
	DEMAND(memcmp(data, "never", 6) == 0, "the word came");
	close_object(a, &connector->Header);
	close_object(b, &service.asked->Header);
	close_service(&service);
}

/* Wrong queue pairs, wrong lengths, wrong calls; what is refused here leaves the question open. */
static void misuse(struct end *a, struct end *b)
{
	static const uint8_t many[256];
	struct service service;
	NDK_CONNECTOR *connector = open_connector(a);
	NDK_QP *connected = create_qp(b, NULL);
	struct sync sync;

	open_service(&service, b, false);
	expect_status(ask(a, b, PORT, connector, many, 181, &sync), STATUS_INVALID_BUFFER_SIZE,
		      "181 bytes");
	expect_status(ask(a, b, PORT, connector, NULL, 0, &sync), STATUS_PENDING, "asking");
	wait_asked(&service, a);
	expect_status(answer(&service, connected, NULL, 0), STATUS_NOT_SUPPORTED,
		      "an RC queue pair");
	expect_status(answer(&service, service.qp, NULL, 0), STATUS_INVALID_DEVICE_STATE,
		      "a queue pair that is not ready");
	expect_status(answer(&service, service.qp, many, 137), STATUS_INVALID_BUFFER_SIZE,
		      "137 bytes");
	expect_status(NdkAccept(service.asked, connected, 1, 1, NULL, 0, NULL, NULL, sync_requested,
				&sync),
		      STATUS_CONNECTION_INVALID, "NdkAccept of a question");
	/* The service goes: who still waits is refused. */
	close_object(b, &service.asked->Header);
	close_service(&service);
	expect_status(sync_end(&sync, STATUS_PENDING), STATUS_CONNECTION_REFUSED, "left alone");
	close_object(a, &connector->Header);
	close_object(b, &connected->Header);
}

const struct scene service_scenes[] = {
	{ "service-resolve", resolve },
	{ "service-refuse", refuse },
	{ "service-misuse", misuse },
	{ NULL, NULL },
};
