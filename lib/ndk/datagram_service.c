/* SPDX-License-Identifier: BSD-3-Clause */
/* Services of datagrams: who takes them (rdma_cm's RDMA_PS_UDP), asked and answered. */
#include <stdlib.h>

#include "ndk/connection.h"
#include "ndk/queue.h"

#define ASK_PRIVATE    180u
#define ANSWER_PRIVATE 136u

static const struct connector_ties no_ties;

static struct connector *connector_of(NDK_CONNECTOR *ndk)
{
	return (struct connector *)ndk;
}

/* --- asking ------------------------------------------------------------------------------- */

static void resolve_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);

	connector->state = NT_SUCCESS(request->status) ? CONNECTOR_CLOSED : CONNECTOR_IDLE;
	connector->resolved = NT_SUCCESS(request->status);
	if (!connector->resolved && request->status != STATUS_CONNECTION_REFUSED)
		return;
	connector->peer = reply->connection;
	connector->has_data = true;
	connector->remote_qpn = reply->connection.remote_qpn;
	connector->qkey = reply->connection.qkey;
}

NTSTATUS OrielResolveDatagram(NDK_CONNECTOR *pNdkConnector, const PSOCKADDR pSrcAddress,
			      ULONG SrcAddressLength, const PSOCKADDR pDestAddress,
			      ULONG DestAddressLength, const void *pPrivateData,
			      ULONG PrivateDataLength, NDK_FN_REQUEST_COMPLETION RequestCompletion,
			      PVOID RequestContext)
{
	struct connector *connector = connector_of(pNdkConnector);
	struct shm_request message = { .op = SHM_OP_RESOLVE_DATAGRAM };
	struct shm_connect *want = &message.connect;
	NTSTATUS status;

	want->connector = connector->object.handle;
	status = connector_take_private(want, pPrivateData, PrivateDataLength, ASK_PRIVATE);
	if (status == STATUS_SUCCESS)
		status = address_from_sockaddr(pSrcAddress, SrcAddressLength, &want->local);
	if (status == STATUS_SUCCESS)
		status = address_from_sockaddr(pDestAddress, DestAddressLength, &want->remote);
	if (status != STATUS_SUCCESS)
		return status;
	if (want->local.family != want->remote.family)
		return STATUS_INVALID_PARAMETER_MIX;
	return connector_advance(
		connector, &no_ties, CONNECTOR_IDLE, CONNECTOR_CONNECTING, STATUS_CONNECTION_ACTIVE,
		connector_request(connector, resolve_finish, RequestCompletion, RequestContext),
		&message);
}

NTSTATUS OrielGetDatagramPeer(NDK_CONNECTOR *pNdkConnector, ULONG *pQpNumber, UINT32 *pQKey)
{
	struct connector *connector = connector_of(pNdkConnector);
	struct adapter *adapter = connector->object.adapter;
	NTSTATUS status = STATUS_CONNECTION_INVALID;

	if (!pQpNumber || !pQKey)
		return STATUS_INVALID_PARAMETER;
	pthread_mutex_lock(&adapter->lock);
	if (connector->resolved) {
		*pQpNumber = connector->remote_qpn;
		*pQKey = connector->qkey;
		status = STATUS_SUCCESS;
	}
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

/* --- answering ---------------------------------------------------------------------------- */

BOOLEAN OrielIsDatagramRequest(NDK_CONNECTOR *pNdkConnector)
{
	struct connector *connector = connector_of(pNdkConnector);
	struct adapter *adapter = connector->object.adapter;
	bool datagram;

	pthread_mutex_lock(&adapter->lock);
	datagram = connector->state == CONNECTOR_INCOMING && connector->peer.datagram;
	pthread_mutex_unlock(&adapter->lock);
	return datagram;
}

static void answer_finish(struct request *request, const struct shm_reply *reply)
{
	struct connector *connector = container_of(request->object, struct connector, object);

	/* What the daemon refuses without having answered the peer can be tried again. */
	if (request->status == STATUS_INVALID_DEVICE_STATE ||
	    request->status == STATUS_NOT_SUPPORTED)
		connector->state = CONNECTOR_INCOMING;
	else
		connector->state = CONNECTOR_CLOSED;
}

NTSTATUS OrielAcceptDatagram(NDK_CONNECTOR *pNdkConnector, NDK_QP *pNdkQp, UINT32 QKey,
			     const void *pPrivateData, ULONG PrivateDataLength,
			     NDK_FN_REQUEST_COMPLETION RequestCompletion, PVOID RequestContext)
{
	struct connector *connector = connector_of(pNdkConnector);
	struct qp *qp = qp_of(pNdkQp);
	struct shm_request message = { .op = SHM_OP_ACCEPT_DATAGRAM };
	NTSTATUS status;

	if (!connector->peer.datagram)
		return STATUS_CONNECTION_INVALID;
	if (qp->type != SHM_QP_UD)
		return STATUS_NOT_SUPPORTED;
	message.connect.connector = connector->object.handle;
	message.connect.qp = qp->object.handle;
	message.connect.qkey = QKey;
	status = connector_take_private(&message.connect, pPrivateData, PrivateDataLength,
					ANSWER_PRIVATE);
	if (status != STATUS_SUCCESS)
		return status;
	return connector_advance(
		connector, &no_ties, CONNECTOR_INCOMING, CONNECTOR_COMPLETING,
		STATUS_CONNECTION_INVALID,
		connector_request(connector, answer_finish, RequestCompletion, RequestContext),
		&message);
}
