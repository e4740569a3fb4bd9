/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: addresses that they go to, and posting them. */
#include <string.h>

#include "ndk/queue.h"

#define MULTICAST_QPN 0xffffffu

struct address {
	ORIEL_ADDRESS oriel;
	struct object object;
	uint32_t path_mtu; /* of the port behind it, bytes */
};

_Static_assert(offsetof(struct address, object) == sizeof(ORIEL_ADDRESS), "address");

static const ORIEL_ADDRESS_DISPATCH address_dispatch = {
	.OrielCloseAddress = object_close,
	.NdkQueryExtension = query_extension,
};

static bool is_group(const struct shm_address *address)
{
	return address->family == 4 ? (address->gid[12] & 0xf0) == 0xe0 : address->gid[0] == 0xff;
}

static NTSTATUS address_created(struct object *object, struct request *request,
				const struct shm_created *created)
{
	container_of(object, struct address, object)->path_mtu = created->number;
	return STATUS_SUCCESS;
}

NTSTATUS OrielCreateAddress(NDK_PD *pNdkPd, const ORIEL_ADDRESS_PARAMETERS *Parameters,
			    NDK_FN_CREATE_COMPLETION CreateCompletion, PVOID RequestContext,
			    ORIEL_ADDRESS **ppAddress)
{
	struct object *domain = object_of(&pNdkPd->Header);
	struct shm_request message = { .op = SHM_OP_CREATE_AH };
	struct shm_create_ah *want = &message.create_ah;
	struct object *object;
	NTSTATUS status;

	if (!Parameters || Parameters->Size < sizeof(*Parameters) ||
	    Parameters->FlowLabel > 0xfffff)
		return STATUS_INVALID_PARAMETER;
	*want = (struct shm_create_ah){ .pd = domain->handle,
					.flow_label = Parameters->FlowLabel,
					.traffic_class = Parameters->TrafficClass,
					.hop_limit = Parameters->HopLimit };
	status = address_pair(Parameters->LocalAddress, Parameters->RemoteAddress, &want->local,
			      &want->remote);
	if (status != STATUS_SUCCESS)
		return status;
	if (is_group(&want->remote))
		return STATUS_NOT_SUPPORTED;
	object = object_allocate(domain->adapter, sizeof(struct address), OrielObjectTypeAddress,
				 &address_dispatch, NULL);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	object->needs[0] = domain;
	return object_create(object, &message, address_created, CreateCompletion, RequestContext);
}

/* It may leave by another port than the one whose path MTU the queue pair has. */
static bool fits(const struct object *address, const NDK_SGE *sgl, ULONG nsge)
{
	uint64_t total = 0;

	for (ULONG i = 0; sgl && i < nsge; i++)
		total += sgl[i].Length;
	return total <= container_of(address, struct address, object)->path_mtu;
}

static NTSTATUS check_destination(const struct qp *qp, const ORIEL_DATAGRAM *to, const NDK_SGE *sgl,
				  ULONG nsge)
{
	const struct object *address;

	if (!to || !to->Address || (to->Flags & ~ORIEL_DATAGRAM_IMMEDIATE))
		return STATUS_INVALID_PARAMETER;
	if (to->RemoteQpNumber == MULTICAST_QPN)
		return STATUS_NOT_SUPPORTED;
	if (to->RemoteQpNumber < 2 || to->RemoteQpNumber > MULTICAST_QPN)
		return STATUS_INVALID_PARAMETER;
	address = object_of(&to->Address->Header);
	if (address->needs[0] != qp->object.needs[QP_NEEDS_PD])
		return STATUS_INVALID_PARAMETER_MIX;
	return fits(address, sgl, nsge) ? STATUS_SUCCESS : STATUS_INVALID_BUFFER_SIZE;
}

NTSTATUS OrielSendDatagram(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge,
			   ULONG Flags, const ORIEL_DATAGRAM *Datagram)
{
	struct qp *qp = qp_of(pNdkQp);
	NTSTATUS status = check_destination(qp, Datagram, pSgl, nSge);
	struct shm_sqe sqe;

	if (status != STATUS_SUCCESS)
		return post_refuse(qp, status);
	sqe = (struct shm_sqe){ .opcode = SHM_WR_SEND,
				.flags = Flags,
				.request_context = (uintptr_t)RequestContext,
				.mw = object_of(&Datagram->Address->Header)->handle,
				.token = Datagram->RemoteQpNumber,
				.mr = Datagram->QKey };
	if (Datagram->Flags & ORIEL_DATAGRAM_IMMEDIATE) {
		sqe.opcode = SHM_WR_SEND_IMMEDIATE;
		sqe.immediate = Datagram->Immediate;
	}
	return post_request(qp, FOR_DATAGRAM, &sqe, pSgl, nSge, SEND_FLAGS);
}
