/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example programs share. */
#include "examples/example.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/advice.h"
#include "common/sync.h"

#define SPINS 256u /* empty looks before sleeping */

/* --- addresses -------------------------------------------------------------------------------- */

void example_set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET)
		((struct sockaddr_in *)address)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
}

socklen_t example_address_size(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET ? sizeof(struct sockaddr_in)
					     : sizeof(struct sockaddr_in6);
}

static bool choose_local(struct example *example, int family)
{
	struct sockaddr_storage addresses[16];
	ULONG count = 16;

	if (example->local.ss_family)
		return true;
	if (!NT_SUCCESS(OrielQueryAddresses(example->adapter, addresses, &count)))
		count = 0;
	for (ULONG i = 0; i < count && i < 16; i++) {
		if (addresses[i].ss_family == family) {
			example->local = addresses[i];
			return true;
		}
	}
	fprintf(stderr, "%s: the daemon has no %s address\n", example->program,
		family == AF_INET ? "IPv4" : "IPv6");
	return false;
}

/* --- objects ---------------------------------------------------------------------------------- */

bool example_complain(const struct example *example, const char *what, NTSTATUS status)
{
	fprintf(stderr, "%s: %s: %s%s\n", example->program, what, OrielStatusName(status),
		advice_on(status));
	return false;
}

static bool open_objects(struct example *example, ULONG cq_depth)
{
	struct sync sync = sync_begin(example->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreatePd(example->adapter, sync_created, &sync, &example->pd));
	if (!NT_SUCCESS(status))
		return example_complain(example, "protection domain", status);
	example->pd = sync_object(&sync, example->pd);
	sync = sync_begin(example->adapter);
	status = sync_end(&sync, NdkCreateCq(example->adapter, cq_depth, NULL, NULL, NULL,
					     sync_created, &sync, &example->cq));
	if (!NT_SUCCESS(status))
		return example_complain(example, "completion queue", status);
	example->cq = sync_object(&sync, example->cq);
	return true;
}

static bool open_memory(struct example *example, size_t size)
{
	struct sync sync = sync_begin(example->adapter);
	NTSTATUS status = OrielAllocateMemory(size, 0, &example->mdl);

	if (!NT_SUCCESS(status))
		return example_complain(example, "memory", status);
	example->bytes = example->mdl->StartVa;
	status =
		sync_end(&sync, NdkCreateMr(example->pd, FALSE, sync_created, &sync, &example->mr));
	if (!NT_SUCCESS(status))
		return example_complain(example, "memory region", status);
	example->mr = sync_object(&sync, example->mr);
	sync = sync_begin(example->adapter);
	status = sync_end(&sync,
			  NdkRegisterMr(example->mr, example->mdl, size,
					NDK_MR_FLAG_ALLOW_LOCAL_WRITE, sync_requested, &sync));
	if (!NT_SUCCESS(status))
		return example_complain(example, "registering memory", status);
	example->token = NdkGetLocalTokenFromMr(example->mr);
	return true;
}

bool example_open(struct example *example, int family, size_t memory, ULONG cq_depth)
{
	if (!NT_SUCCESS(OrielOpenAdapter(NULL, &example->adapter))) {
		example->adapter = NULL;
		fprintf(stderr, "%s: %s\n", example->program, OrielOpenErrorText());
		return false;
	}
	return choose_local(example, family) && open_objects(example, cq_depth) &&
	       open_memory(example, memory);
}

void example_close(struct example *example)
{
	if (example->adapter)
		OrielCloseAdapter(example->adapter);
	if (example->mdl)
		OrielFreeMemory(example->mdl);
}

NDK_SGE example_sge(const struct example *example, size_t offset, ULONG length)
{
	return (NDK_SGE){ .VirtualAddress = example->bytes + offset,
			  .Length = length,
			  .MemoryRegionToken = example->token };
}

NDK_QP *example_qp(struct example *example, PVOID context, ULONG depth)
{
	struct sync sync = sync_begin(example->adapter);
	NDK_QP *qp = NULL;
	NTSTATUS status =
		sync_end(&sync, NdkCreateQp(example->pd, example->cq, example->cq, context, depth,
					    depth, 1, 1, 0, sync_created, &sync, &qp));

	if (!NT_SUCCESS(status))
		example_complain(example, "queue pair", status);
	return sync_object(&sync, qp);
}

void example_close_object(struct example *example, NDK_OBJECT_HEADER *object)
{
	struct sync sync = sync_begin(example->adapter);
	/* Any object's table begins with its close. */
	const NDK_FN_CLOSE_OBJECT *table =
		*(const NDK_FN_CLOSE_OBJECT *const *)(const void *)(object + 1);

	sync_end(&sync, table[0](object, sync_closed, &sync));
}

/* --- waiting ---------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool example_wait(struct example *example, const bool *condition)
{
	int64_t end = now_ms() + EXAMPLE_PATIENCE;

	while (!*condition && now_ms() < end)
		if (!OrielProgress(example->adapter) &&
		    !NT_SUCCESS(OrielWait(example->adapter, 100)))
			return false;
	return *condition;
}

bool example_result(struct example *example, ORIEL_RESULT *result)
{
	int64_t end = now_ms() + EXAMPLE_PATIENCE;
	unsigned int spins = 0;

	while (OrielGetCqResults(example->cq, result, 1) == 0) {
		if (++spins % SPINS)
			continue;
		/* What came since the last look satisfies the arm at once. */
		NdkArmCq(example->cq, NDK_CQ_NOTIFY_ANY);
		if (!OrielProgress(example->adapter))
			OrielWait(example->adapter, 10);
		if (now_ms() > end) {
			fprintf(stderr, "%s: nothing completes\n", example->program);
			return false;
		}
	}
	return true;
}

/* --- connections ------------------------------------------------------------------------------ */

static void on_arrival(PVOID context, NDK_CONNECTOR *connector)
{
	struct example_listener *listener = context;

	if (listener->tail - listener->head == 1024)
		NdkReject(connector, NULL, 0);
	else
		listener->arrived[listener->tail++ % 1024] = connector;
}

bool example_listen(struct example *example, struct example_listener *listener,
		    const struct sockaddr_storage *address, bool datagrams)
{
	struct sync sync = sync_begin(example->adapter);
	NTSTATUS status;

	*listener = (struct example_listener){ .example = example };
	status = sync_end(&sync, NdkCreateListener(example->adapter, on_arrival, listener,
						   sync_created, &sync, &listener->listener));
	if (!NT_SUCCESS(status))
		return example_complain(example, "listener", status);
	listener->listener = sync_object(&sync, listener->listener);
	sync = sync_begin(example->adapter);
	status = sync_end(
		&sync, datagrams ? OrielListenDatagram(listener->listener, (PSOCKADDR)address,
						       example_address_size(address),
						       sync_requested, &sync)
				 : NdkListen(listener->listener, (PSOCKADDR)address,
					     example_address_size(address), sync_requested, &sync));
	return NT_SUCCESS(status) || example_complain(example, "listening", status);
}

NDK_CONNECTOR *example_arrival(struct example_listener *listener, bool patient)
{
	int64_t end = now_ms() + EXAMPLE_PATIENCE;

	while (listener->head == listener->tail && (patient || now_ms() < end))
		if (!OrielProgress(listener->example->adapter) &&
		    !NT_SUCCESS(OrielWait(listener->example->adapter, 1000)))
			break;
	return listener->head == listener->tail ? NULL : listener->arrived[listener->head++ % 1024];
}

static void on_gone(PVOID context)
{
	*(bool *)context = true;
}

NDK_CONNECTOR *example_connect(struct example *example, NDK_QP *qp,
			       const struct sockaddr_storage *remote, bool *gone)
{
	struct sync sync = sync_begin(example->adapter);
	NDK_CONNECTOR *connector = NULL;
	NTSTATUS status = sync_end(
		&sync, NdkCreateConnector(example->adapter, sync_created, &sync, &connector));

	if (!NT_SUCCESS(status)) {
		example_complain(example, "connector", status);
		return NULL;
	}
	connector = sync_object(&sync, connector);
	sync = sync_begin(example->adapter);
	status = sync_end(&sync, NdkConnect(connector, qp, (PSOCKADDR)&example->local,
					    example_address_size(&example->local),
					    (PSOCKADDR)remote, example_address_size(remote), 1, 1,
					    NULL, 0, sync_requested, &sync));
	if (NT_SUCCESS(status)) {
		sync = sync_begin(example->adapter);
		status = sync_end(
			&sync, NdkCompleteConnect(connector, on_gone, gone, sync_requested, &sync));
	}
	if (NT_SUCCESS(status))
		return connector;
	example_complain(example, "connecting", status);
	example_close_object(example, &connector->Header);
	return NULL;
}

bool example_accept(struct example *example, NDK_CONNECTOR *connector, NDK_QP *qp, bool *gone)
{
	struct sync sync = sync_begin(example->adapter);
	NTSTATUS status = sync_end(&sync, NdkAccept(connector, qp, 16, 16, NULL, 0, on_gone, gone,
						    sync_requested, &sync));

	return NT_SUCCESS(status) || example_complain(example, "accepting", status);
}

void example_disconnect(struct example *example, NDK_CONNECTOR *connector)
{
	struct sync sync = sync_begin(example->adapter);
	NTSTATUS status = sync_end(&sync, NdkDisconnect(connector, sync_requested, &sync));

	if (!NT_SUCCESS(status) && status != STATUS_CONNECTION_INVALID)
		example_complain(example, "disconnecting", status);
}
