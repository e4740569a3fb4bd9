/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for asynchronous requests of libndk, for the places where a program has nothing else to
 * do. */
#ifndef APP_COMMON_SYNC_H
#define APP_COMMON_SYNC_H

#include <ndk/ndk.h>
#include <stdbool.h>

#define SYNC_PATIENCE 10000 /* ms without any progress */

struct sync {
	NDK_ADAPTER *adapter;
	bool done;
	NTSTATUS status;
	NDK_OBJECT_HEADER *object; /* of a create that did not finish inline */
};

/* Use: s = sync_begin(adapter); status = sync_end(&s, NdkXxx(..., sync_requested, &s)). */
static inline struct sync sync_begin(NDK_ADAPTER *adapter)
{
	return (struct sync){ .adapter = adapter };
}

void sync_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object);
void sync_requested(PVOID context, NTSTATUS status);
void sync_closed(PVOID context);

/* The final status of a request that returned `status`; drives progress meanwhile. */
NTSTATUS sync_end(struct sync *sync, NTSTATUS status);

/* The object of a create: what came inline, or what its callback brought. */
#define sync_object(sync, inline_pointer) \
	((sync)->object ? (__typeof__(inline_pointer))(void *)(sync)->object : (inline_pointer))

#endif
