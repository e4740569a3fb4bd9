/* SPDX-License-Identifier: BSD-3-Clause */
/* The target at work: opening and closing the adapter, and the loop between. */
#include "oriel-target/target.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sync.h"

#define CQ_DEPTH      131072u
#define LONGEST_PAUSE 500 /* ms, until a signal is seen at the latest */

static NTSTATUS register_memory(struct target *target, MDL *mdl, SIZE_T length, NDK_MR **mr)
{
	struct sync sync = sync_begin(target->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreateMr(target->pd, FALSE, sync_created, &sync, mr));
	if (!NT_SUCCESS(status))
		return status;
	*mr = sync_object(&sync, *mr);
	sync = sync_begin(target->adapter);
	return sync_end(&sync, NdkRegisterMr(*mr, mdl, length, NDK_MR_FLAG_ALLOW_LOCAL_WRITE,
					     sync_requested, &sync));
}

/* --- listeners -------------------------------------------------------------------------------- */

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
	struct sync sync = sync_begin(target->adapter);
	ULONG length = to_sockaddr(address, &where);
	NTSTATUS status;

	*listener = (struct listener){ .target = target, .address = *address };
	status = sync_end(&sync, NdkCreateListener(target->adapter, connection_incoming, listener,
						   sync_created, &sync, &listener->listener));
	if (!NT_SUCCESS(status))
		return status;
	listener->listener = sync_object(&sync, listener->listener);
	target->listener_count++;
	sync = sync_begin(target->adapter);
	status = sync_end(&sync, NdkListen(listener->listener, (PSOCKADDR)&where, length,
					   sync_requested, &sync));
	if (!NT_SUCCESS(status) && status != target->last_failure)
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

/* --- the adapter ------------------------------------------------------------------------------ */

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
	struct sync sync = sync_begin(target->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreatePd(target->adapter, sync_created, &sync, &target->pd));
	target->pd = sync_object(&sync, target->pd);
	if (NT_SUCCESS(status)) {
		sync = sync_begin(target->adapter);
		status = sync_end(&sync,
				  NdkCreateCq(target->adapter, CQ_DEPTH, connection_completion,
					      target, NULL, sync_created, &sync, &target->cq));
		target->cq = sync_object(&sync, target->cq);
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
	target->starved = 0;
}

void target_serve(struct target *target, const volatile sig_atomic_t *stop,
		  volatile sig_atomic_t *flush)
{
	while (!*stop && !target->removed) {
		int pause = probe_turn(target);

		if (pause < 0 || pause > LONGEST_PAUSE)
			pause = LONGEST_PAUSE;
		if (*flush) {
			*flush = 0;
			for (uint32_t e = 0; e < target->config.count; e++)
				target_memory_flush(&target->config.exports[e], &target->memory[e]);
		}
		if (target->starved)
			connection_retry(target);
		if (OrielProgress(target->adapter) == 0 &&
		    !NT_SUCCESS(OrielWait(target->adapter, target->starved ? 1 : pause)))
			return;
	}
}
