/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's messages as SENDs of a connection that is there for nothing else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/advice.h"
#include "common/sync.h"
#include "oriel-perf/perftest_channel.h"
#include "oriel-perf/perftest_exchange.h"

#define RECEIVES 4u /* posted; the other side is one message ahead at most */
#define ROOM     128u
#define MEMORY   ((RECEIVES + 1) * ROOM) /* what is sent lies behind what is received */
#define TRIES    50u                     /* of connecting to a server, 0.1 s apart */
#define PAUSE_US 100000

_Static_assert(ROOM >= PERFTEST_MESSAGE_MAX, "room for each message");

struct perftest_control {
	NDK_CQ *cq;
	NDK_QP *qp;
	NDK_MR *mr;
	MDL *mdl;
	NDK_LISTENER *listener, *datagrams;
	NDK_CONNECTOR *connector;
	NDK_CONNECTOR *arrived[PERFTEST_ARRIVALS];
	unsigned int arrivals, taken; /* connectors */
	uint32_t lengths[RECEIVES];   /* of messages */
	unsigned int received, read;  /* messages */
	unsigned int sent;            /* not completed yet */
	bool established, gone, failed;
};

static bool complain(const char *what, NTSTATUS status)
{
	fprintf(stderr, "oriel-perf: %s: %s%s\n", what, OrielStatusName(status), advice_on(status));
	return false;
}

static socklen_t address_size(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

/* --- objects ---------------------------------------------------------------------------------- */

static NDK_SGE place(const struct perftest_control *control, unsigned int index, ULONG length)
{
	return (NDK_SGE){ .VirtualAddress = (uint8_t *)control->mdl->StartVa + index * ROOM,
			  .Length = length,
			  .MemoryRegionToken = NdkGetLocalTokenFromMr(control->mr) };
}

static NTSTATUS post_receive(struct perftest_control *control, unsigned int index)
{
	const NDK_SGE sge = place(control, index, ROOM);

	return NdkReceive(control->qp, (PVOID)(uintptr_t)index, &sge, 1);
}

static NTSTATUS open_queues(struct perftest_channel *channel, NDK_PD *pd)
{
	struct perftest_control *control = channel->control;
	struct sync sync = sync_begin(channel->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreateCq(channel->adapter, 2 * RECEIVES + 2, NULL, NULL, NULL,
					     sync_created, &sync, &control->cq));
	if (!NT_SUCCESS(status))
		return status;
	control->cq = sync_object(&sync, control->cq);
	sync = sync_begin(channel->adapter);
	status = sync_end(&sync, NdkCreateQp(pd, control->cq, control->cq, control, RECEIVES,
					     RECEIVES, 1, 1, 0, sync_created, &sync, &control->qp));
	if (NT_SUCCESS(status))
		control->qp = sync_object(&sync, control->qp);
	return status;
}

static NTSTATUS open_memory(struct perftest_channel *channel, NDK_PD *pd)
{
	struct perftest_control *control = channel->control;
	struct sync sync = sync_begin(channel->adapter);
	NTSTATUS status = OrielAllocateMemory(MEMORY, 0, &control->mdl);

	if (!NT_SUCCESS(status))
		return status;
	status = sync_end(&sync, NdkCreateMr(pd, FALSE, sync_created, &sync, &control->mr));
	if (!NT_SUCCESS(status))
		return status;
	control->mr = sync_object(&sync, control->mr);
	sync = sync_begin(channel->adapter);
	status = sync_end(&sync,
			  NdkRegisterMr(control->mr, control->mdl, MEMORY,
					NDK_MR_FLAG_ALLOW_LOCAL_WRITE, sync_requested, &sync));
	for (unsigned int i = 0; NT_SUCCESS(status) && i < RECEIVES; i++)
		status = post_receive(control, i);
	return status;
}

static bool open_control(struct perftest_channel *channel, NDK_PD *pd)
{
	NTSTATUS status = STATUS_NO_MEMORY;

	channel->control = calloc(1, sizeof(*channel->control));
	if (channel->control)
		status = open_queues(channel, pd);
	if (NT_SUCCESS(status))
		status = open_memory(channel, pd);
	return NT_SUCCESS(status) || complain("objects of the exchange over rdma_cm", status);
}

static void on_gone(PVOID context)
{
	((struct perftest_control *)context)->gone = true;
}

/* --- client ----------------------------------------------------------------------------------- */

static NTSTATUS connect_once(struct perftest_channel *channel, const struct sockaddr_storage *local,
			     const struct sockaddr_storage *remote)
{
	struct perftest_control *control = channel->control;
	struct sync sync = sync_begin(channel->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreateConnector(channel->adapter, sync_created, &sync,
						    &control->connector));
	if (!NT_SUCCESS(status))
		return status;
	control->connector = sync_object(&sync, control->connector);
	sync = sync_begin(channel->adapter);
	status = sync_end(&sync,
			  NdkConnect(control->connector, control->qp, (PSOCKADDR)local,
				     address_size(local), (PSOCKADDR)remote, address_size(remote),
				     0, 0, NULL, 0, sync_requested, &sync));
	if (!NT_SUCCESS(status))
		return status;
	sync = sync_begin(channel->adapter);
	return sync_end(&sync, NdkCompleteConnect(control->connector, on_gone, control,
						  sync_requested, &sync));
}

bool perftest_cm_connect(struct perftest_channel *channel, NDK_PD *pd,
			 const struct sockaddr_storage *local,
			 const struct sockaddr_storage *remote)
{
	NTSTATUS status = STATUS_CONNECTION_REFUSED;

	for (unsigned int i = 0; status == STATUS_CONNECTION_REFUSED && i < TRIES; i++) {
		if (i) {
			perftest_cm_close(channel);
			usleep(PAUSE_US);
		}
		if (!open_control(channel, pd))
			return false;
		status = connect_once(channel, local, remote);
	}
	channel->control->established = NT_SUCCESS(status);
	return NT_SUCCESS(status) || complain("connecting to the server (-R)", status);
}

/* --- server ----------------------------------------------------------------------------------- */

static void on_arrival(PVOID context, NDK_CONNECTOR *connector)
{
	struct perftest_control *control = context;

	if (control->arrivals - control->taken == PERFTEST_ARRIVALS)
		NdkReject(connector, NULL, 0);
	else
		control->arrived[control->arrivals++ % PERFTEST_ARRIVALS] = connector;
}

static bool listen_at(struct perftest_channel *channel, const struct sockaddr_storage *local,
		      bool datagrams)
{
	struct perftest_control *control = channel->control;
	NDK_LISTENER **listener = datagrams ? &control->datagrams : &control->listener;
	struct sync sync = sync_begin(channel->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreateListener(channel->adapter, on_arrival, control,
						   sync_created, &sync, listener));
	if (!NT_SUCCESS(status)) {
		*listener = NULL;
		return complain("listener (-R)", status);
	}
	*listener = sync_object(&sync, *listener);
	sync = sync_begin(channel->adapter);
	status = sync_end(&sync, datagrams ? OrielListenDatagram(*listener, (PSOCKADDR)local,
								 address_size(local),
								 sync_requested, &sync)
					   : NdkListen(*listener, (PSOCKADDR)local,
						       address_size(local), sync_requested, &sync));
	return NT_SUCCESS(status) || complain("listening (-R)", status);
}

NDK_CONNECTOR *perftest_cm_arrival(struct perftest_channel *channel)
{
	struct perftest_control *control = channel->control;

	while (control->taken == control->arrivals) {
		if (control->gone || !perftest_breathe(channel))
			return NULL;
	}
	return control->arrived[control->taken++ % PERFTEST_ARRIVALS];
}

bool perftest_cm_accept(struct perftest_channel *channel, NDK_PD *pd,
			const struct sockaddr_storage *local, bool datagrams)
{
	struct perftest_control *control;
	struct sync sync;
	NTSTATUS status;

	if (!open_control(channel, pd) || !listen_at(channel, local, false) ||
	    (datagrams && !listen_at(channel, local, true)))
		return false;
	control = channel->control;
	control->connector = perftest_cm_arrival(channel);
	if (!control->connector) {
		fputs("oriel-perf: interrupted before a client came (-R)\n", stderr);
		return false;
	}
	sync = sync_begin(channel->adapter);
	status = sync_end(&sync, NdkAccept(control->connector, control->qp, 0, 0, NULL, 0, on_gone,
					   control, sync_requested, &sync));
	control->established = NT_SUCCESS(status);
	return NT_SUCCESS(status) || complain("accepting a client (-R)", status);
}

/* --- messages --------------------------------------------------------------------------------- */

static void take_results(struct perftest_control *control)
{
	ORIEL_RESULT result;

	while (OrielGetCqResults(control->cq, &result, 1)) {
		if (!NT_SUCCESS(result.Ndk.Status)) {
			if (result.Ndk.Status != STATUS_CANCELLED)
				complain("a message to or from the other side", result.Ndk.Status);
			control->failed = true;
		} else if (result.Ndk.Type == NdkOperationTypeReceive) {
			control->lengths[control->received++ % RECEIVES] =
				result.Ndk.BytesTransferred;
		} else {
			control->sent--;
		}
	}
}

bool perftest_cm_send(struct perftest_channel *channel, const void *data, size_t size)
{
	struct perftest_control *control = channel->control;
	const NDK_SGE sge = place(control, RECEIVES, (ULONG)size);
	NTSTATUS status;

	memcpy(sge.VirtualAddress, data, size);
	status = NdkSend(control->qp, NULL, &sge, 1, 0);
	if (!NT_SUCCESS(status))
		return complain("a message to the other side", status);
	control->sent++;
	for (take_results(control); control->sent; take_results(control)) {
		if (control->failed || !perftest_breathe(channel))
			return false;
	}
	return true;
}

bool perftest_cm_pending(struct perftest_channel *channel)
{
	struct perftest_control *control = channel->control;

	take_results(control);
	return control->received != control->read || control->failed || control->gone;
}

bool perftest_cm_receive(struct perftest_channel *channel, void *data, size_t size)
{
	struct perftest_control *control = channel->control;
	unsigned int index = control->read % RECEIVES;

	while (!perftest_cm_pending(channel))
		if (!perftest_breathe(channel))
			return false;
	if (control->received == control->read)
		return false;
	control->read++;
	if (control->lengths[index] != size) {
		fprintf(stderr, "oriel-perf: a message of %u bytes where %zu were expected\n",
			control->lengths[index], size);
		return false;
	}
	memcpy(data, place(control, index, 0).VirtualAddress, size);
	return NT_SUCCESS(post_receive(control, index));
}

/* --- the end ---------------------------------------------------------------------------------- */

static void close_object(struct perftest_channel *channel, NDK_OBJECT_HEADER *object)
{
	struct sync sync = sync_begin(channel->adapter);
	/* Any object's table begins with its close. */
	const NDK_FN_CLOSE_OBJECT *table =
		*(const NDK_FN_CLOSE_OBJECT *const *)(const void *)(object + 1);

	sync_end(&sync, table[0](object, sync_closed, &sync));
}

void perftest_cm_close(struct perftest_channel *channel)
{
	struct perftest_control *control = channel->control;
	struct sync sync = sync_begin(channel->adapter);

	/* Nobody is left to hear of it when it fails. */
	if (control->established)
		sync_end(&sync, NdkDisconnect(control->connector, sync_requested, &sync));
	if (control->connector)
		close_object(channel, &control->connector->Header);
	if (control->listener)
		close_object(channel, &control->listener->Header);
	if (control->datagrams)
		close_object(channel, &control->datagrams->Header);
	if (control->qp)
		close_object(channel, &control->qp->Header);
	if (control->cq)
		close_object(channel, &control->cq->Header);
	if (control->mr)
		close_object(channel, &control->mr->Header);
	if (control->mdl)
		OrielFreeMemory(control->mdl);
	free(control);
	channel->control = NULL;
}
