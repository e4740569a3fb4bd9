/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that every NDK provider must have and that this one refuses. */
#include "ndk/ndk_private.h"

NTSTATUS unsupported_shared_endpoint(NDK_ADAPTER *adapter, const PSOCKADDR address, ULONG length,
				     NDK_FN_CREATE_COMPLETION completion, PVOID context,
				     NDK_SHARED_ENDPOINT **endpoint)
{
	return STATUS_NOT_SUPPORTED;
}

NTSTATUS unsupported_connect_shared(NDK_CONNECTOR *connector, NDK_QP *qp,
				    NDK_SHARED_ENDPOINT *endpoint, const PSOCKADDR destination,
				    ULONG length, ULONG inbound, ULONG outbound,
				    const PVOID private_data, ULONG private_length,
				    NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	return STATUS_NOT_SUPPORTED;
}

NTSTATUS unsupported_resize_cq(NDK_CQ *cq, ULONG depth, NDK_FN_REQUEST_COMPLETION completion,
			       PVOID context)
{
	return STATUS_NOT_SUPPORTED;
}
