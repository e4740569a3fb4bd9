/* SPDX-License-Identifier: BSD-3-Clause */
/* How the queue pairs of a perftest session get connected. */
#include "oriel-perf/perftest_connect.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/sync.h"

#define TIMEOUT       14u /* code; perftest's own */
#define RETRIES       7u
#define MIN_RNR_TIMER 12u
#define MTU_LEAST     256u
#define MTU_MOST      4096u
#define TRIES         50u /* of connecting to a server, 0.1 s apart */
#define PAUSE_US      100000

static socklen_t address_size(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

static void set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)address)->sin_port = htons(port);
}

/* --- the path MTU ----------------------------------------------------------------------------- */

static NTSTATUS try_mtu(struct perftest *p, NDK_QP *qp, uint32_t mtu)
{
	const ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.PathMtu = mtu,
		.QKey = PERFTEST_QKEY,
		.LocalAddress = (PSOCKADDR)&p->session->options.local,
		.RemoteAddress = (PSOCKADDR)&p->session->options.local,
	};
	struct sync sync = sync_begin(p->session->adapter);

	return sync_end(&sync, OrielConnectQp(qp, &connection, sync_requested, &sync));
}

/* A queue pair for datagrams tells what the port carries: it refuses more. */
bool perftest_path_mtu(struct perftest *p)
{
	const ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
						 .Type = OrielQpTypeUd,
						 .ReceiveCq = p->session->cq,
						 .InitiatorCq = p->session->cq,
						 .ReceiveQueueDepth = 1,
						 .InitiatorQueueDepth = 1,
						 .MaxReceiveRequestSge = 1,
						 .MaxInitiatorRequestSge = 1 };
	struct sync sync = sync_begin(p->session->adapter);
	NDK_QP *qp = NULL;
	NTSTATUS status;

	p->mtu = p->options->mtu ? p->options->mtu : MTU_MOST;
	if (p->options->mtu)
		return true;
	status = sync_end(&sync,
			  OrielCreateQp(p->session->pd, &parameters, sync_created, &sync, &qp));
	if (!NT_SUCCESS(status))
		return session_complain("queue pair to find the MTU", status);
	qp = sync_object(&sync, qp);
	while ((status = try_mtu(p, qp, p->mtu)) == STATUS_INVALID_PARAMETER && p->mtu > MTU_LEAST)
		p->mtu /= 2;
	sync = sync_begin(p->session->adapter);
	sync_end(&sync, NdkCloseQp(qp, sync_closed, &sync));
	return NT_SUCCESS(status) || session_complain("finding the MTU", status);
}

/* --- by number -------------------------------------------------------------------------------- */

static bool peer_address(struct perftest *p, uint32_t index, struct sockaddr_storage *remote)
{
	perftest_gid_address(p->theirs[index].gid, remote);
	if (remote->ss_family == p->session->options.local.ss_family)
		return true;
	fprintf(stderr,
		"oriel-perf: the other side is on %s, this one is not: --ipv6 on both, or on "
		"none\n",
		remote->ss_family == AF_INET6 ? "IPv6" : "IPv4");
	return false;
}

static NTSTATUS connect_one(struct perftest *p, uint32_t index, struct sockaddr_storage *remote)
{
	const struct perf_options *options = p->options;
	const struct perftest_key *ours = &p->ours[index], *theirs = &p->theirs[index];
	const ULONG reads = theirs->out_reads < options->reads ? theirs->out_reads : options->reads;
	const ORIEL_QP_CONNECTION connection = {
		.Size = sizeof(connection),
		.RemoteQpNumber = theirs->qpn,
		.SendPsn = ours->psn,
		.ReceivePsn = theirs->psn,
		.PathMtu = p->mtu,
		.InboundReadLimit = PERFTEST_READS,
		.OutboundReadLimit = reads,
		.Timeout = options->timeout ? options->timeout : TIMEOUT,
		.RetryCount = RETRIES,
		.RnrRetryCount = RETRIES,
		.MinRnrTimer = MIN_RNR_TIMER,
		.TrafficClass = options->traffic_class,
		.QKey = options->type == OrielQpTypeUd ? PERFTEST_QKEY : 0,
		.LocalAddress = (PSOCKADDR)&p->session->options.local,
		.RemoteAddress = (PSOCKADDR)remote,
	};
	struct sync sync = sync_begin(p->session->adapter);

	return sync_end(&sync, OrielConnectQp(p->session->peers[index].qp, &connection,
					      sync_requested, &sync));
}

NTSTATUS perftest_make_address(struct perftest *p, uint32_t index, struct sockaddr_storage *remote)
{
	const ORIEL_ADDRESS_PARAMETERS parameters = {
		.Size = sizeof(parameters),
		.TrafficClass = p->options->traffic_class,
		.LocalAddress = (PSOCKADDR)&p->session->options.local,
		.RemoteAddress = (PSOCKADDR)remote,
	};
	ORIEL_DATAGRAM *datagram = &p->session->peers[index].datagram;
	struct sync sync = sync_begin(p->session->adapter);
	ORIEL_ADDRESS *address = NULL;
	NTSTATUS status = sync_end(&sync, OrielCreateAddress(p->session->pd, &parameters,
							     sync_created, &sync, &address));

	if (NT_SUCCESS(status))
		*datagram = (ORIEL_DATAGRAM){
			.Address = sync_object(&sync, address),
			.RemoteQpNumber = p->theirs[index].qpn,
			.QKey = PERFTEST_QKEY,
		};
	return status;
}

bool perftest_connect_by_number(struct perftest *p)
{
	for (uint32_t i = 0; i < p->session->options.queue_pairs; i++) {
		struct sockaddr_storage remote;
		NTSTATUS status;

		if (!peer_address(p, i, &remote))
			return false;
		status = connect_one(p, i, &remote);
		if (NT_SUCCESS(status) && p->options->type == OrielQpTypeUd)
			status = perftest_make_address(p, i, &remote);
		if (!NT_SUCCESS(status))
			return session_complain("connecting a queue pair", status);
	}
	return true;
}

/* --- by rdma_cm ------------------------------------------------------------------------------- */

static bool resolve(struct perftest *p, struct sockaddr_storage *remote)
{
	const struct addrinfo hints = { .ai_family = p->session->options.local.ss_family,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *list = NULL;
	int error = getaddrinfo(p->options->host, NULL, &hints, &list);

	if (error) {
		fprintf(stderr, "oriel-perf: %s: %s\n", p->options->host, gai_strerror(error));
		return false;
	}
	memset(remote, 0, sizeof(*remote));
	memcpy(remote, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	set_port(remote, p->options->port);
	return true;
}

bool perftest_connect_control(struct perftest *p)
{
	struct sockaddr_storage address = p->session->options.local;

	set_port(&address, p->options->port);
	if (p->options->server)
		return perftest_cm_accept(&p->channel, p->session->pd, &address,
					  p->options->type == OrielQpTypeUd);
	return resolve(p, &address) && perftest_cm_connect(&p->channel, p->session->pd,
							   &p->session->options.local, &address);
}

static void on_disconnect(PVOID context)
{
	((struct peer *)context)->disconnected = true;
}

static NTSTATUS create_connector(struct perftest *p, struct peer *peer)
{
	struct sync sync = sync_begin(p->session->adapter);
	NTSTATUS status = sync_end(&sync, NdkCreateConnector(p->session->adapter, sync_created,
							     &sync, &peer->connector));

	peer->connector = NT_SUCCESS(status) ? sync_object(&sync, peer->connector) : NULL;
	return status;
}

static NTSTATUS connect_peer(struct perftest *p, struct peer *peer,
			     const struct sockaddr_storage *remote)
{
	const struct sockaddr_storage *local = &p->session->options.local;
	NTSTATUS status = create_connector(p, peer);
	struct sync sync = sync_begin(p->session->adapter);

	if (!NT_SUCCESS(status))
		return status;
	status = sync_end(&sync, NdkConnect(peer->connector, peer->qp, (PSOCKADDR)local,
					    address_size(local), (PSOCKADDR)remote,
					    address_size(remote), PERFTEST_READS, p->options->reads,
					    NULL, 0, sync_requested, &sync));
	if (!NT_SUCCESS(status))
		return status;
	sync = sync_begin(p->session->adapter);
	return sync_end(&sync, NdkCompleteConnect(peer->connector, on_disconnect, peer,
						  sync_requested, &sync));
}

/* A stock server listens for these connections a moment after the first. */
static bool connect_patiently(struct perftest *p, struct peer *peer,
			      const struct sockaddr_storage *remote)
{
	NTSTATUS status = connect_peer(p, peer, remote);

	for (unsigned int i = 1; status == STATUS_CONNECTION_REFUSED && i < TRIES; i++) {
		struct sync sync = sync_begin(p->session->adapter);

		sync_end(&sync, NdkCloseConnector(peer->connector, sync_closed, &sync));
		usleep(PAUSE_US);
		status = connect_peer(p, peer, remote);
	}
	return NT_SUCCESS(status) || session_complain("connecting a queue pair (-R)", status);
}

static bool accept_peer(struct perftest *p, struct peer *peer)
{
	struct sync sync = sync_begin(p->session->adapter);
	NTSTATUS status = STATUS_CONNECTION_ABORTED;

	peer->connector = perftest_cm_arrival(&p->channel);
	if (peer->connector)
		status = sync_end(&sync, NdkAccept(peer->connector, peer->qp, PERFTEST_READS,
						   p->options->reads, NULL, 0, on_disconnect, peer,
						   sync_requested, &sync));
	return NT_SUCCESS(status) || session_complain("accepting a queue pair (-R)", status);
}

static bool connect_by_cm(struct perftest *p, struct peer *peer, struct sockaddr_storage *remote)
{
	const bool datagrams = p->options->type == OrielQpTypeUd;

	if (p->options->server)
		return datagrams ? perftest_datagram_answer(p, peer) : accept_peer(p, peer);
	return datagrams ? perftest_datagram_ask(p, peer, remote)
			 : connect_patiently(p, peer, remote);
}

bool perftest_connect_by_cm(struct perftest *p)
{
	struct sockaddr_storage remote = { 0 };

	if (!p->options->server && !resolve(p, &remote))
		return false;
	for (uint32_t i = 0; i < p->session->options.queue_pairs; i++) {
		struct peer *peer = &p->session->peers[i];

		if (!connect_by_cm(p, peer, &remote))
			return false;
	}
	return true;
}

/* The client says it; the other side hears it, and answers. */
void perftest_disconnect(struct perftest *p)
{
	for (uint32_t i = 0; i < p->session->options.queue_pairs; i++) {
		struct peer *peer = &p->session->peers[i];
		struct sync sync = sync_begin(p->session->adapter);

		if (!peer->connector)
			continue;
		sync_end(&sync, NdkDisconnect(peer->connector, sync_requested, &sync));
		sync = sync_begin(p->session->adapter);
		sync_end(&sync, NdkCloseConnector(peer->connector, sync_closed, &sync));
		peer->connector = NULL;
	}
}
