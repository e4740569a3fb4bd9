/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for asynchronous requests of libndk. */
#include "common/sync.h"

void sync_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct sync *sync = context;

	sync->done = true;
	sync->status = status;
	sync->object = NT_SUCCESS(status) ? object : NULL;
}

void sync_requested(PVOID context, NTSTATUS status)
{
	struct sync *sync = context;

	sync->done = true;
	sync->status = status;
}

void sync_closed(PVOID context)
{
	sync_requested(context, STATUS_SUCCESS);
}

NTSTATUS sync_end(struct sync *sync, NTSTATUS status)
{
	if (status != STATUS_PENDING)
		return status;
	while (!sync->done) {
		if (OrielProgress(sync->adapter))
			continue;
		status = OrielWait(sync->adapter, SYNC_PATIENCE);
		if (!NT_SUCCESS(status) || status == STATUS_TIMEOUT)
			return status == STATUS_TIMEOUT ? STATUS_IO_TIMEOUT : status;
	}
	return sync->status;
}
