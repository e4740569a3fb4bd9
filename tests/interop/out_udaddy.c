/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * udaddy, librdmacm's example of datagrams, with us as either side. The client asks by rdma_cm
 * for the server's queue pair and sends; the server answers whom a datagram's immediate names.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "out.h"

#define QKEY     0x01234567u /* librdmacm's, of RDMA_PS_UDP */
#define MESSAGES OUT_SLOTS
#define SIZE     100u
#define TRIES    50u

static bool open_queue(struct out *out, struct out *side)
{
	return out_must("udaddy", "objects", STATUS_SUCCESS, out_prepare(out)) &&
	       out_must("udaddy", "queue pair", STATUS_SUCCESS,
			out_create_queue(out, side, SERVICE_UD)) &&
	       out_must("udaddy", "RTS", STATUS_SUCCESS, out_connect_queue(side, QKEY));
}

static bool send_all(struct out *side)
{
	for (unsigned int i = 0; i < MESSAGES; i++) {
		struct operation o = out_operation(side, KIND_SEND, OUT_SOURCE, SIZE, 0);

		side->datagram.Flags = ORIEL_DATAGRAM_IMMEDIATE;
		side->datagram.Immediate = htobe32(OrielGetQpNumber(side->qp));
		o.datagram = &side->datagram;
		if (!out_must("udaddy", "datagram", STATUS_SUCCESS, out_run(side, &o)))
			return false;
	}
	return true;
}

/* What they contain is the sender's stack: length and immediate are what can be looked at. */
static bool receive_all(struct out *side)
{
	struct arrival arrival;

	for (unsigned int i = 0; i < MESSAGES; i++) {
		if (!out_must("udaddy", "answer", STATUS_SUCCESS, out_receive(side, &arrival)))
			return false;
		if (arrival.result.Ndk.BytesTransferred != SIZE + ORIEL_GRH_SIZE ||
		    !(arrival.result.Flags & ORIEL_RESULT_IMMEDIATE))
			return report_failure("udaddy: %u bytes, flags %#x",
					      arrival.result.Ndk.BytesTransferred,
					      arrival.result.Flags);
		if (be32toh(arrival.result.Immediate) != arrival.result.SourceQpNumber)
			return report_failure("udaddy: queue pair %#x says that it is %#x",
					      arrival.result.SourceQpNumber,
					      be32toh(arrival.result.Immediate));
	}
	side->remote_qpn = arrival.result.SourceQpNumber;
	return true;
}

/* ---- client ---- */

/* One question; the connector is of no more use afterwards. */
static NTSTATUS ask(struct out *out, NDK_CONNECTOR **connector)
{
	struct sync sync = sync_begin(out->adapter);
	struct sockaddr_storage remote = options.remote;
	NTSTATUS status;

	((struct sockaddr_in *)&remote)->sin_port = htobe16(options.port);
	status = sync_end(&sync, NdkCreateConnector(out->adapter, sync_created, &sync, connector));
	if (!NT_SUCCESS(status))
		return status;
	*connector = sync_object(&sync, *connector);
	sync = sync_begin(out->adapter);
	return sync_end(&sync,
			OrielResolveDatagram(*connector, (PSOCKADDR)&options.local,
					     sizeof(options.local), (PSOCKADDR)&remote,
					     sizeof(remote), NULL, 0, sync_requested, &sync));
}

/* The server has just been started: it may not listen yet. */
static bool resolve(struct out *out, struct out *side)
{
	NTSTATUS status = STATUS_CONNECTION_REFUSED;
	NDK_CONNECTOR *connector = NULL;
	ULONG number = 0;
	UINT32 qkey = 0;

	for (unsigned int i = 0; status == STATUS_CONNECTION_REFUSED && i < TRIES; i++) {
		if (i)
			usleep(200000);
		status = ask(out, &connector);
	}
	if (!out_must("udaddy", "OrielResolveDatagram", STATUS_SUCCESS, status) ||
	    !out_must("udaddy", "OrielGetDatagramPeer", STATUS_SUCCESS,
		      OrielGetDatagramPeer(connector, &number, &qkey)))
		return false;
	side->remote_qpn = number;
	return out_must("udaddy", "OrielCreateAddress", STATUS_SUCCESS,
			out_create_address(side, qkey));
}

static void udaddy_client(void)
{
	struct out out, side;

	if (open_queue(&out, &side) && resolve(&out, &side) && send_all(&side) &&
	    receive_all(&side))
		report_ok("udaddy client");
	out_close(&out);
}

/* ---- server ---- */

static void on_question(PVOID context, NDK_CONNECTOR *connector)
{
	*(NDK_CONNECTOR **)context = connector;
}

static bool answer_question(struct out *out, struct out *side)
{
	struct sync sync = sync_begin(out->adapter);
	struct sockaddr_storage local = options.local;
	NDK_LISTENER *listener = NULL;
	NDK_CONNECTOR *asked = NULL;
	NTSTATUS status;

	((struct sockaddr_in *)&local)->sin_port = htobe16(options.port);
	status = sync_end(&sync, NdkCreateListener(out->adapter, on_question, &asked, sync_created,
						   &sync, &listener));
	if (!out_must("udaddy", "listener", STATUS_SUCCESS, status))
		return false;
	listener = sync_object(&sync, listener);
	sync = sync_begin(out->adapter);
	status = sync_end(&sync, OrielListenDatagram(listener, (PSOCKADDR)&local, sizeof(local),
						     sync_requested, &sync));
	if (!out_must("udaddy", "OrielListenDatagram", STATUS_SUCCESS, status))
		return false;
	printf("# listening\n");
	for (unsigned int i = 0; i < 600 && !asked; i++)
		if (!OrielProgress(out->adapter))
			OrielWait(out->adapter, 100);
	if (!asked || !OrielIsDatagramRequest(asked))
		return report_failure("udaddy: nobody asks");
	sync = sync_begin(out->adapter);
	status = sync_end(
		&sync, OrielAcceptDatagram(asked, side->qp, QKEY, NULL, 0, sync_requested, &sync));
	return out_must("udaddy", "OrielAcceptDatagram", STATUS_SUCCESS, status);
}

static void udaddy_server(void)
{
	struct out out, side;

	if (open_queue(&out, &side) && answer_question(&out, &side) && receive_all(&side) &&
	    out_must("udaddy", "OrielCreateAddress", STATUS_SUCCESS,
		     out_create_address(&side, QKEY)) &&
	    send_all(&side))
		report_ok("udaddy server");
	out_close(&out);
}

void check_udaddy(const char *side)
{
	if (side && !strcmp(side, "server"))
		udaddy_server();
	else
		udaddy_client();
}
