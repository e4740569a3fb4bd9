/* SPDX-License-Identifier: BSD-3-Clause */
/* A second queue pair beside a connection: RC, UC or UD, connected by number. */
#include "common/sync.h"
#include "out.h"

#define QKEY 0x01234567u

NTSTATUS out_create_queue(struct out *out, struct out *side, enum exchange_service service)
{
	static const ORIEL_QP_TYPE types[] = { OrielQpTypeRc, OrielQpTypeUc, OrielQpTypeUd };
	struct sync sync = sync_begin(out->adapter);
	ORIEL_QP_PARAMETERS parameters = { .Size = sizeof(parameters),
					   .Type = types[service],
					   .QPContext = side,
					   .ReceiveQueueDepth = OUT_SLOTS,
					   .InitiatorQueueDepth = OUT_DEPTH,
					   .MaxReceiveRequestSge = 1,
					   .MaxInitiatorRequestSge = OUT_SGES,
					   .InlineDataSize = OUT_INLINE };
	NTSTATUS status;

	*side = (struct out){ .adapter = out->adapter,
			      .pd = out->pd,
			      .mr = out->mr,
			      .buffer = out->buffer,
			      .local_token = out->local_token,
			      .remote_token = out->remote_token,
			      .receives = OUT_SIDE,
			      .header = service == SERVICE_UD ? ORIEL_GRH_SIZE : 0,
			      .welcome = out->welcome };
	status = sync_end(&sync, NdkCreateCq(side->adapter, OUT_DEPTH + OUT_SLOTS, out_on_notify,
					     side, NULL, sync_created, &sync, &side->cq));
	if (!NT_SUCCESS(status))
		return status;
	side->cq = sync_object(&sync, side->cq);
	parameters.ReceiveCq = side->cq;
	parameters.InitiatorCq = side->cq;
	sync = sync_begin(side->adapter);
	status = sync_end(&sync,
			  OrielCreateQp(side->pd, &parameters, sync_created, &sync, &side->qp));
	if (!NT_SUCCESS(status))
		return status;
	side->qp = sync_object(&sync, side->qp);
	for (unsigned int i = 0; NT_SUCCESS(status) && i < OUT_SLOTS; i++)
		status = out_post_receive(side);
	return status;
}

NTSTATUS out_connect_queue(struct out *side, uint32_t psn, uint32_t remote_psn, uint32_t qkey)
{
	struct sync sync = sync_begin(side->adapter);
	const ORIEL_QP_CONNECTION connection = { .Size = sizeof(connection),
						 .RemoteQpNumber = side->remote_qpn,
						 .SendPsn = psn,
						 .ReceivePsn = remote_psn,
						 .PathMtu = options.mtu,
						 .InboundReadLimit = 4,
						 .OutboundReadLimit = 4,
						 .Timeout = 18, /* eight times a second */
						 .RetryCount = 7,
						 .RnrRetryCount = 7,
						 .MinRnrTimer = 12,
						 .QKey = qkey,
						 .LocalAddress = (PSOCKADDR)&options.local,
						 .RemoteAddress = (PSOCKADDR)&options.remote };

	return sync_end(&sync, OrielConnectQp(side->qp, &connection, sync_requested, &sync));
}

NTSTATUS out_create_address(struct out *side, uint32_t qkey)
{
	struct sync sync = sync_begin(side->adapter);
	const ORIEL_ADDRESS_PARAMETERS parameters = { .Size = sizeof(parameters),
						      .LocalAddress = (PSOCKADDR)&options.local,
						      .RemoteAddress = (PSOCKADDR)&options.remote };
	ORIEL_ADDRESS *address = NULL;
	NTSTATUS status = sync_end(
		&sync, OrielCreateAddress(side->pd, &parameters, sync_created, &sync, &address));

	side->datagram = (ORIEL_DATAGRAM){ .Address = sync_object(&sync, address),
					   .RemoteQpNumber = side->remote_qpn,
					   .QKey = qkey };
	return status;
}

bool out_open_side(struct out *out, struct out *side, const char *name,
		   enum exchange_service service)
{
	struct exchange_command c = {
		.op = EXCHANGE_QUEUE, .kind = service, .length = options.mtu, .immediate = QKEY
	};
	struct exchange_answer answer;

	if (!out_must(name, "second queue pair", STATUS_SUCCESS,
		      out_create_queue(out, side, service)))
		return false;
	c.token = OrielGetQpNumber(side->qp);
	if (!out_command(out, name, &c, &answer))
		return false;
	side->remote_qpn = (uint32_t)answer.value;
	if (!out_must(name, "OrielConnectQp", STATUS_SUCCESS,
		      out_connect_queue(side, EXCHANGE_CLIENT_PSN, EXCHANGE_SERVER_PSN, QKEY)))
		return false;
	return service != SERVICE_UD ||
	       out_must(name, "OrielCreateAddress", STATUS_SUCCESS, out_create_address(side, QKEY));
}
