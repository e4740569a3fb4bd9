/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared endpoints: one local address for many outgoing connections. */
#include "ndk/connection.h"

struct shared_endpoint {
	NDK_SHARED_ENDPOINT ndk;
	struct object object;
	struct shm_address address; /* its port is right once it has been created */
};
_Static_assert(offsetof(struct shared_endpoint, object) == sizeof(NDK_SHARED_ENDPOINT), "endpoint");

static NTSTATUS endpoint_created(struct object *object, struct request *request,
				 const struct shm_created *created)
{
	container_of(object, struct shared_endpoint, object)->address.port =
		(uint16_t)created->number;
	return STATUS_SUCCESS;
}

NTSTATUS shared_endpoint_create(NDK_ADAPTER *ndk, const PSOCKADDR address, ULONG length,
				NDK_FN_CREATE_COMPLETION completion, PVOID context,
				NDK_SHARED_ENDPOINT **ppendpoint)
{
	struct shm_request message = { .op = SHM_OP_CREATE_SHARED_ENDPOINT };
	NTSTATUS status = address_from_sockaddr(address, length, &message.listen.address);
	struct object *object;

	if (status != STATUS_SUCCESS)
		return status;
	object = object_allocate(adapter_of(ndk), sizeof(struct shared_endpoint),
				 NdkObjectTypeSharedEndpoint, &shared_endpoint_dispatch, NULL);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	container_of(object, struct shared_endpoint, object)->address = message.listen.address;
	return object_create(object, &message, endpoint_created, completion, context);
}

static NTSTATUS endpoint_local_address(NDK_SHARED_ENDPOINT *ndk, PSOCKADDR address, ULONG *length)
{
	return address_give(&((struct shared_endpoint *)ndk)->address, address, length);
}

const NDK_SHARED_ENDPOINT_DISPATCH shared_endpoint_dispatch = {
	.NdkCloseSharedEndpoint = object_close,
	.NdkQueryExtension = query_extension,
	.NdkGetLocalAddress = endpoint_local_address,
};
