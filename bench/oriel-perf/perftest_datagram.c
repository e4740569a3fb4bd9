/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams with -R: the client asks the server's port for the number and Q_Key of each queue pair.
 * Where the server sends too, it learns the client's from a datagram of 4 bytes whose immediate
 * data are that number.
 */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "oriel-perf/perftest_connect.h"
#include "oriel-perf/run.h"

#define CM_QKEY  0x01234567u /* rdma_cm's, of every queue pair for datagrams */
#define TRIES    50u         /* of asking a server, 0.1 s apart */
#define PAUSE_US 100000
#define FROM_V4  (20u + 12u) /* in the header before a datagram: the sender's address */
#define FROM_V6  8u

static bool server_sends(const struct perf_options *options)
{
	return options->mode == PERF_LATENCY || options->bidirectional;
}

static NTSTATUS make_ready(struct perftest *p, struct peer *peer)
{
	const ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.SendPsn = p->ours[peer->index].psn,
		.PathMtu = p->mtu,
		.QKey = CM_QKEY,
		.LocalAddress = (PSOCKADDR)&p->session->options.local,
		.RemoteAddress = (PSOCKADDR)&p->session->options.local,
	};
	struct sync sync = sync_begin(p->session->adapter);

	return sync_end(&sync, OrielConnectQp(peer->qp, &connection, sync_requested, &sync));
}

/* The next completion of the only request there is. */
static bool completion(struct perftest *p, ORIEL_RESULT *result)
{
	bool late = false;

	while (!OrielGetCqResults(p->session->cq, result, 1)) {
		if (late)
			return false;
		/* The client does not wait for us before: what it sent has come by now. */
		late = p->channel.server && perftest_pending(&p->channel);
		if (!late && !perftest_breathe(&p->channel))
			return false;
	}
	return NT_SUCCESS(result->Ndk.Status);
}

/* --- client ------------------------------------------------------------------------------- */

static NTSTATUS ask(struct perftest *p, struct peer *peer, const struct sockaddr_storage *remote,
		    ULONG *number, UINT32 *qkey)
{
	const struct sockaddr_storage *local = &p->session->options.local;
	const ULONG size = local->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							: sizeof(struct sockaddr_in);
	struct sync sync = sync_begin(p->session->adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateConnector(p->session->adapter, sync_created,
							     &sync, &peer->connector));

	if (!NT_SUCCESS(status))
		return status;
	peer->connector = sync_object(&sync, peer->connector);
	sync = sync_begin(p->session->adapter);
	status = sync_end(&sync, OrielResolveDatagram(peer->connector, (PSOCKADDR)local, size,
						      (PSOCKADDR)remote, size, NULL, 0,
						      sync_requested, &sync));
	if (NT_SUCCESS(status))
		status = OrielGetDatagramPeer(peer->connector, number, qkey);
	sync = sync_begin(p->session->adapter);
	sync_end(&sync, NdkCloseConnector(peer->connector, sync_closed, &sync));
	peer->connector = NULL;
	return status;
}

/* A stock server listens for these a moment after the first connection. */
static NTSTATUS ask_patiently(struct perftest *p, struct peer *peer,
			      const struct sockaddr_storage *remote, ULONG *number, UINT32 *qkey)
{
	NTSTATUS status = ask(p, peer, remote, number, qkey);

	for (unsigned int i = 1; status == STATUS_CONNECTION_REFUSED && i < TRIES; i++) {
		usleep(PAUSE_US);
		status = ask(p, peer, remote, number, qkey);
	}
	return status;
}

static bool introduce(struct perftest *p, struct peer *peer)
{
	const NDK_SGE sge = { .VirtualAddress = p->session->source,
			      .Length = sizeof(uint32_t),
			      .MemoryRegionToken = p->session->local_token };
	ORIEL_DATAGRAM datagram = peer->datagram;
	ORIEL_RESULT result;

	datagram.Immediate = htobe32(OrielGetQpNumber(peer->qp));
	datagram.Flags = ORIEL_DATAGRAM_IMMEDIATE;
	return NT_SUCCESS(OrielSendDatagram(peer->qp, NULL, &sge, 1, 0, &datagram)) &&
	       completion(p, &result);
}

bool perftest_datagram_ask(struct perftest *p, struct peer *peer, struct sockaddr_storage *remote)
{
	NTSTATUS status = make_ready(p, peer);
	UINT32 qkey = 0;
	ULONG number = 0;

	if (NT_SUCCESS(status))
		status = ask_patiently(p, peer, remote, &number, &qkey);
	if (NT_SUCCESS(status))
		status = perftest_make_address(p, peer->index, remote);
	if (!NT_SUCCESS(status))
		return session_complain("asking for a queue pair (-R)", status);
	peer->datagram.RemoteQpNumber = number;
	peer->datagram.QKey = qkey;
	if (!server_sends(p->options) || introduce(p, peer))
		return true;
	fprintf(stderr, "oriel-perf: a datagram to the server did not leave\n");
	return false;
}

/* --- server ------------------------------------------------------------------------------- */

/* Who sent the datagram at the beginning of the sink. */
static void sender(const struct perftest *p, struct sockaddr_storage *remote)
{
	const uint8_t *header = p->session->sink;

	memset(remote, 0, sizeof(*remote));
	remote->ss_family = p->session->options.local.ss_family;
	if (remote->ss_family == AF_INET6)
		memcpy(&((struct sockaddr_in6 *)remote)->sin6_addr, header + FROM_V6, 16);
	else
		memcpy(&((struct sockaddr_in *)remote)->sin_addr, header + FROM_V4, 4);
}

static NTSTATUS hear(struct perftest *p, struct peer *peer)
{
	struct sockaddr_storage remote;
	ORIEL_RESULT result;
	NTSTATUS status;

	if (!completion(p, &result) || !(result.Flags & ORIEL_RESULT_IMMEDIATE))
		return STATUS_CONNECTION_ABORTED;
	sender(p, &remote);
	status = perftest_make_address(p, peer->index, &remote);
	peer->datagram.RemoteQpNumber = be32toh(result.Immediate);
	peer->datagram.QKey = CM_QKEY;
	return status;
}

bool perftest_datagram_answer(struct perftest *p, struct peer *peer)
{
	NTSTATUS status = make_ready(p, peer);
	NDK_CONNECTOR *connector;
	struct sync sync;

	if (NT_SUCCESS(status) && server_sends(p->options) && !post_receive(peer, 0))
		return false;
	connector = perftest_cm_arrival(&p->channel);
	if (!connector)
		return session_complain("waiting for a client (-R)", STATUS_CONNECTION_ABORTED);
	sync = sync_begin(p->session->adapter);
	if (NT_SUCCESS(status))
		status = sync_end(&sync, OrielAcceptDatagram(connector, peer->qp, CM_QKEY, NULL, 0,
							     sync_requested, &sync));
	sync = sync_begin(p->session->adapter);
	sync_end(&sync, NdkCloseConnector(connector, sync_closed, &sync));
	if (NT_SUCCESS(status) && server_sends(p->options))
		status = hear(p, peer);
	return NT_SUCCESS(status) || session_complain("telling a queue pair (-R)", status);
}
