/* SPDX-License-Identifier: BSD-3-Clause */
/* The target at work: opening and closing the adapter, and the loop between. */
#include "oriel-target/target.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CQ_DEPTH 131072u
#define PATIENCE 5000 /* ms for one answer of the daemon */

/* --- requests that the start-up waits for ------------------------------------------------ */

struct waiter {
	bool done;
	NTSTATUS status;
	NDK_OBJECT_HEADER *object;
};

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	*(struct waiter *)context = (struct waiter){ true, status, object };
}

static void on_requested(PVOID context, NTSTATUS status)
{
	*(struct waiter *)context = (struct waiter){ true, status, NULL };
}

/* The final status of a request that returned `status`. */
static NTSTATUS wait_for(struct target *target, struct waiter *waiter, NTSTATUS status)
{
	if (status != STATUS_PENDING)
		return status;
	while (!waiter->done) {
		if (OrielProgress(target->adapter))
			continue;
		status = OrielWait(target->adapter, PATIENCE);
		if (status == STATUS_TIMEOUT || !NT_SUCCESS(status))
			return STATUS_DEVICE_REMOVED;
	}
	return waiter->status;
}

/* The object of a create call: what came back inline, or what the callback brought. */
#define CREATE(target, call, pointer, type)                                \
	({                                                                 \
		struct waiter waiter = { 0 };                              \
		NTSTATUS inline_status = call;                             \
		NTSTATUS final = wait_for(target, &waiter, inline_status); \
		if (inline_status == STATUS_PENDING && NT_SUCCESS(final))  \
			pointer = (type *)waiter.object;                   \
		final;                                                     \
	})

static NTSTATUS register_memory(struct target *target, MDL *mdl, SIZE_T length, NDK_MR **mr)
{
	struct waiter waiter = { 0 };
	NTSTATUS status;

	status = CREATE(target, NdkCreateMr(target->pd, FALSE, on_created, &waiter, mr), *mr,
			NDK_MR);
	if (!NT_SUCCESS(status))
		return status;
	waiter = (struct waiter){ 0 };
	status = NdkRegisterMr(*mr, mdl, length, NDK_MR_FLAG_ALLOW_LOCAL_WRITE, on_requested,
			       &waiter);
	return wait_for(target, &waiter, status);
}

/* --- listeners -----------------------------------------------------------------------------------
 */

static socklen_t to_sockaddr(const struct target_address *address, struct sockaddr_storage *out)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	memset(out, 0, sizeof(*out));
	if (!memcmp(address->gid, mapped, sizeof(mapped))) {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		in->sin_family = AF_INET;
		in->sin_port = htons(address->port);
		memcpy(&in->sin_addr, address->gid + 12, 4);
		return sizeof(*in);
	}
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(address->port);
	memcpy(&in6->sin6_addr, address->gid, 16);
	return sizeof(*in6);
}

static bool already_listening(const struct target *target, const struct target_address *address)
{
	for (unsigned int i = 0; i < target->listener_count; i++)
		if (!memcmp(target->listeners[i].address.gid, address->gid, 16) &&
		    target->listeners[i].address.port == address->port)
			return true;
	return false;
}

static NTSTATUS listen_at(struct target *target, const struct target_export *export,
			  const struct target_address *address)
{
	struct listener *listener = &target->listeners[target->listener_count];
	struct sockaddr_storage where;
	struct waiter waiter = { 0 };
	ULONG length = to_sockaddr(address, &where);
	NTSTATUS status;

	*listener = (struct listener){ .target = target, .address = *address };
	status = CREATE(target,
			NdkCreateListener(target->adapter, connection_incoming, listener,
					  on_created, &waiter, &listener->listener),
			listener->listener, NDK_LISTENER);
	if (!NT_SUCCESS(status))
		return status;
	target->listener_count++;
	waiter = (struct waiter){ 0 };
	status = NdkListen(listener->listener, (PSOCKADDR)&where, length, on_requested, &waiter);
	status = wait_for(target, &waiter, status);
	if (!NT_SUCCESS(status))
		fprintf(stderr, "%s:%u: [export %s] listen, port %u: %s%s\n", target->config.path,
			export->line, export->name, address->port, OrielStatusName(status),
			status == STATUS_INVALID_ADDRESS
				? ": not an address of the daemon's ports ([port] ip)"
			: status == STATUS_SHARING_VIOLATION ? ": another program listens there"
							     : "");
	return status;
}

static NTSTATUS listen_everywhere(struct target *target)
{
	NTSTATUS status = STATUS_SUCCESS;

	for (uint32_t e = 0; e < target->config.count && NT_SUCCESS(status); e++) {
		const struct target_export *export = &target->config.exports[e];

		for (uint32_t l = 0; l < export->listens && NT_SUCCESS(status); l++)
			if (!already_listening(target, &export->listen[l]))
				status = listen_at(target, export, &export->listen[l]);
	}
	return status;
}

/* --- the adapter
 * ------------------------------------------------------------------------------------ */

static void on_event(PVOID context, ORIEL_EVENT event, NDK_OBJECT_HEADER *object, ULONG reason)
{
	struct target *target = context;

	(void)object;
	(void)reason;
	/* Errors of queue pairs come as disconnects and failed completions as well. */
	if (event == OrielEventDeviceRemoved)
		target->removed = true;
}

static NTSTATUS open_objects(struct target *target)
{
	struct waiter waiter = { 0 };
	NTSTATUS status;

	status = CREATE(target, NdkCreatePd(target->adapter, on_created, &waiter, &target->pd),
			target->pd, NDK_PD);
	if (NT_SUCCESS(status)) {
		waiter = (struct waiter){ 0 };
		status = CREATE(target,
				NdkCreateCq(target->adapter, CQ_DEPTH, connection_completion,
					    target, NULL, on_created, &waiter, &target->cq),
				target->cq, NDK_CQ);
	}
	if (NT_SUCCESS(status))
		status = register_memory(target, target->receive_memory,
					 (SIZE_T)MAX_CONNECTIONS * RECEIVES * RECEIVE_SIZE,
					 &target->receive_mr);
	for (uint32_t e = 0; e < target->config.count && NT_SUCCESS(status); e++)
		status = register_memory(target, target->memory[e].mdl, target->memory[e].size,
					 &target->mr[e]);
	return status;
}

NTSTATUS target_open(struct target *target)
{
	ORIEL_OPEN_PARAMETERS parameters = { .Size = sizeof(parameters),
					     .Version = { 1, 2 },
					     .Socket = target->config.socket[0]
							       ? target->config.socket
							       : NULL };
	NTSTATUS status;

	target->removed = false;
	status = OrielOpenAdapter(&parameters, &target->adapter);
	if (!NT_SUCCESS(status)) {
		target->adapter = NULL;
		return status;
	}
	OrielSetEventHandler(target->adapter, on_event, target);
	status = open_objects(target);
	if (NT_SUCCESS(status))
		status = listen_everywhere(target);
	if (!NT_SUCCESS(status)) {
		target_close(target);
		return status;
	}
	NdkArmCq(target->cq, NDK_CQ_NOTIFY_ANY);
	return status;
}

void target_close(struct target *target)
{
	if (target->adapter)
		OrielCloseAdapter(target->adapter);
	target->adapter = NULL;
	target->pd = NULL;
	target->cq = NULL;
	target->receive_mr = NULL;
	memset(target->mr, 0, sizeof(target->mr));
	target->listener_count = 0;
	memset(target->connections, 0, target->used * sizeof(*target->connections));
	target->used = 0;
}

void target_serve(struct target *target, const volatile sig_atomic_t *stop,
		  volatile sig_atomic_t *flush)
{
	while (!*stop && !target->removed) {
		if (*flush) {
			*flush = 0;
			for (uint32_t e = 0; e < target->config.count; e++)
				target_memory_flush(&target->config.exports[e], &target->memory[e]);
		}
		if (OrielProgress(target->adapter) == 0 &&
		    !NT_SUCCESS(OrielWait(target->adapter, 500)))
			return;
	}
}
