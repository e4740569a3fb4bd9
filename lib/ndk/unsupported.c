/* SPDX-License-Identifier: BSD-3-Clause */
/* Functions that every NDK provider must have and that this one refuses. */
#include "ndk/ndk_private.h"

NTSTATUS unsupported_resize_cq(NDK_CQ *cq, ULONG depth, NDK_FN_REQUEST_COMPLETION completion,
			       PVOID context)
{
	return STATUS_NOT_SUPPORTED;
}
