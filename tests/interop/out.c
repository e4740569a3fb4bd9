/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection of libndk to a stock server: set-up, single requests, commands to the server. */
#include "out.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/sync.h"

#define PATIENCE_MS 60000
#define RECEIVE_OP  (1ull << 63)
#define READ_LIMIT  16u
#define TRIES       150u /* of connecting, 0.1 s apart */

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

/* ---- set-up ---- */

void out_on_notify(PVOID context, NTSTATUS status)
{
	((struct out *)context)->armed = false;
}

static void on_disconnect(PVOID context, ULONG reason)
{
	struct out *out = context;

	out->disconnected = true;
	out->reason = reason;
}

static NTSTATUS open_queues(struct out *out)
{
	struct sync sync = sync_begin(out->adapter);
	NTSTATUS status;

	status = sync_end(&sync, NdkCreatePd(out->adapter, sync_created, &sync, &out->pd));
	if (!NT_SUCCESS(status))
		return status;
	out->pd = sync_object(&sync, out->pd);
	sync = sync_begin(out->adapter);
	status = sync_end(&sync, NdkCreateCq(out->adapter, OUT_DEPTH + OUT_SLOTS, out_on_notify,
					     out, NULL, sync_created, &sync, &out->cq));
	if (!NT_SUCCESS(status))
		return status;
	out->cq = sync_object(&sync, out->cq);
	sync = sync_begin(out->adapter);
	status =
		sync_end(&sync, NdkCreateQp(out->pd, out->cq, out->cq, out, OUT_SLOTS, OUT_DEPTH, 1,
					    OUT_SGES, OUT_INLINE, sync_created, &sync, &out->qp));
	out->qp = NT_SUCCESS(status) ? sync_object(&sync, out->qp) : NULL;
	return status;
}

static NTSTATUS open_memory(struct out *out)
{
	struct sync sync = sync_begin(out->adapter);
	NTSTATUS status;

	status = OrielAllocateMemory(OUT_BUFFER, 0, &out->mdl);
	if (!NT_SUCCESS(status))
		return status;
	out->buffer = out->mdl->StartVa;
	status = sync_end(&sync, NdkCreateMr(out->pd, FALSE, sync_created, &sync, &out->mr));
	if (!NT_SUCCESS(status))
		return status;
	out->mr = sync_object(&sync, out->mr);
	sync = sync_begin(out->adapter);
	status = sync_end(&sync, NdkRegisterMr(out->mr, out->mdl, OUT_BUFFER,
					       NDK_MR_FLAG_ALLOW_REMOTE_READ |
						       NDK_MR_FLAG_ALLOW_REMOTE_WRITE |
						       ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC,
					       sync_requested, &sync));
	out->local_token = NdkGetLocalTokenFromMr(out->mr);
	out->remote_token = NdkGetRemoteTokenFromMr(out->mr);
	return status;
}

NTSTATUS out_post_receive(struct out *out)
{
	uint32_t slot = (uint32_t)(out->next_slot++ % OUT_SLOTS);
	NDK_SGE sge = out_sge(out, out->receives + slot * OUT_MESSAGE, OUT_MESSAGE);

	return NdkReceive(out->qp, (PVOID)(uintptr_t)(RECEIVE_OP | slot), &sge, 1);
}

static NTSTATUS open_objects(struct out *out)
{
	struct sockaddr_storage addresses[16];
	ULONG count = 16;
	NTSTATUS status = OrielOpenAdapter(NULL, &out->adapter);

	if (!NT_SUCCESS(status))
		return status;
	status = OrielQueryAddresses(out->adapter, addresses, &count);
	for (ULONG i = 0; NT_SUCCESS(status) && i < count; i++)
		if (addresses[i].ss_family == options.remote.ss_family)
			options.local = addresses[i];
	status = open_queues(out);
	if (NT_SUCCESS(status))
		status = open_memory(out);
	for (unsigned int i = 0; NT_SUCCESS(status) && i < OUT_SLOTS; i++)
		status = out_post_receive(out);
	return status;
}

static socklen_t address_length(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

NTSTATUS out_prepare(struct out *out)
{
	*out = (struct out){ .receives = OUT_RECEIVES };
	return open_objects(out);
}

NTSTATUS out_connect(struct out *out, uint16_t port, const void *data, ULONG length)
{
	struct sockaddr_storage remote = options.remote;
	struct sync sync;
	NTSTATUS status;

	((struct sockaddr_in *)&remote)->sin_port = htons(port); /* where IPv6 has it too */
	status = out_prepare(out);
	if (!NT_SUCCESS(status))
		return status;
	sync = sync_begin(out->adapter);
	status = sync_end(&sync,
			  NdkCreateConnector(out->adapter, sync_created, &sync, &out->connector));
	if (!NT_SUCCESS(status))
		return status;
	out->connector = sync_object(&sync, out->connector);
	sync = sync_begin(out->adapter);
	status = sync_end(&sync, NdkConnect(out->connector, out->qp, (PSOCKADDR)&options.local,
					    address_length(&options.local), (PSOCKADDR)&remote,
					    address_length(&remote), READ_LIMIT, READ_LIMIT,
					    (PVOID)data, length, sync_requested, &sync));
	out->data_length = sizeof(out->data);
	if (!NT_SUCCESS(
		    NdkGetConnectionData(out->connector, NULL, NULL, out->data, &out->data_length)))
		out->data_length = 0;
	if (!NT_SUCCESS(status))
		return status;
	sync = sync_begin(out->adapter);
	status = sync_end(&sync, NdkCompleteConnectEx(out->connector, on_disconnect, out,
						      sync_requested, &sync));
	out->established = NT_SUCCESS(status);
	return status;
}

/* The server may have ended a moment ago and be on its way back. */
NTSTATUS out_connect_patiently(struct out *out, uint16_t port, const void *data, ULONG length)
{
	NTSTATUS status = STATUS_CONNECTION_REFUSED;

	for (unsigned int i = 0; status == STATUS_CONNECTION_REFUSED && i < TRIES; i++) {
		if (i) {
			out_close(out);
			usleep(100000);
		}
		status = out_connect(out, port, data, length);
	}
	return status;
}

bool out_open(struct out *out, const char *name)
{
	const struct exchange_request request = { .magic = htobe32(EXCHANGE_MAGIC) };
	NTSTATUS status = out_connect_patiently(out, options.port, &request, sizeof(request));
	struct exchange_welcome *w = &out->welcome;

	if (!NT_SUCCESS(status)) {
		out_close(out);
		return report_failure("%s: expected a connection, got %s", name,
				      OrielStatusName(status));
	}
	if (out->data_length >= sizeof(*w))
		memcpy(w, out->data, sizeof(*w));
	*w = (struct exchange_welcome){ .magic = be32toh(w->magic),
					.token = be32toh(w->token),
					.read_only_token = be32toh(w->read_only_token),
					.address = be64toh(w->address),
					.length = be64toh(w->length) };
	if (w->magic == EXCHANGE_MAGIC)
		return true;
	out_close(out);
	return report_failure("%s: what accepted is not stock-server", name);
}

NTSTATUS out_close(struct out *out)
{
	struct sync sync = sync_begin(out->adapter);
	NTSTATUS status = STATUS_SUCCESS;

	if (out->established)
		status = sync_end(&sync, NdkDisconnect(out->connector, sync_requested, &sync));
	if (out->adapter)
		OrielCloseAdapter(out->adapter);
	if (out->mdl)
		OrielFreeMemory(out->mdl);
	*out = (struct out){ 0 };
	return status;
}

/* ---- requests ---- */

NDK_SGE out_sge(const struct out *out, uint32_t offset, uint32_t length)
{
	return (NDK_SGE){ .VirtualAddress = out->buffer + offset,
			  .Length = length,
			  .MemoryRegionToken = out->local_token };
}

struct operation out_operation(const struct out *out, enum exchange_kind kind, uint32_t offset,
			       uint32_t length, uint64_t remote)
{
	return (struct operation){ .kind = kind,
				   .nsge = length ? 1 : 0,
				   .sgl = { out_sge(out, offset, length) },
				   .address = out->welcome.address + remote,
				   .token = out->welcome.token };
}

NTSTATUS out_post(struct out *out, const struct operation *o, uint64_t *op)
{
	PVOID context = (PVOID)(uintptr_t)out->next_op;

	*op = out->next_op++;
	if (o->datagram)
		return OrielSendDatagram(out->qp, context, o->sgl, o->nsge, o->flags, o->datagram);
	switch (o->kind) {
	case KIND_SEND: return NdkSend(out->qp, context, o->sgl, o->nsge, o->flags);
	case KIND_SEND_IMMEDIATE:
		return OrielSendImmediate(out->qp, context, o->sgl, o->nsge, o->flags,
					  htobe32(o->immediate));
	case KIND_SEND_INVALIDATE:
		return NdkSendAndInvalidate(out->qp, context, o->sgl, o->nsge, o->flags, o->token);
	case KIND_WRITE:
		return NdkWrite(out->qp, context, o->sgl, o->nsge, o->address, o->token, o->flags);
	case KIND_WRITE_IMMEDIATE:
		return OrielWriteImmediate(out->qp, context, o->sgl, o->nsge, o->address, o->token,
					   o->flags, htobe32(o->immediate));
	case KIND_READ:
		return NdkRead(out->qp, context, o->sgl, o->nsge, o->address, o->token, o->flags);
	case KIND_FETCH_ADD:
		return OrielFetchAdd(out->qp, context, o->sgl, o->address, o->token, o->compare,
				     o->flags);
	case KIND_COMPARE_SWAP:
		return OrielCompareSwap(out->qp, context, o->sgl, o->address, o->token, o->compare,
					o->swap, o->flags);
	}
	return STATUS_INVALID_PARAMETER;
}

/* Puts a message aside. Returns false for the completion of a request. */
static bool take_arrival(struct out *out, const ORIEL_RESULT *result)
{
	uint64_t op = (uintptr_t)result->Ndk.RequestContext;
	struct arrival *arrival = &out->arrival[out->arrivals % OUT_SLOTS];

	if (!(op & RECEIVE_OP))
		return false;
	arrival->result = *result;
	arrival->data =
		out->buffer + out->receives + (op & ~RECEIVE_OP) * OUT_MESSAGE + out->header;
	out->arrivals++;
	return true;
}

/* STATUS_SUCCESS with one completion, STATUS_TIMEOUT, or STATUS_CONNECTION_DISCONNECTED. */
static NTSTATUS next_result(struct out *out, ORIEL_RESULT *result, int64_t deadline)
{
	for (;;) {
		if (OrielGetCqResults(out->cq, result, 1))
			return STATUS_SUCCESS;
		if (!out->armed) {
			out->armed = true;
			NdkArmCq(out->cq, NDK_CQ_NOTIFY_ANY);
			continue; /* what came before the arming */
		}
		if (OrielProgress(out->adapter))
			continue;
		if (now_ms() > deadline)
			return STATUS_TIMEOUT;
		if (OrielWait(out->adapter, 500) == STATUS_DEVICE_REMOVED)
			return STATUS_DEVICE_REMOVED;
	}
}

NTSTATUS out_wait(struct out *out, uint64_t op)
{
	int64_t deadline = now_ms() + PATIENCE_MS;
	ORIEL_RESULT result;
	NTSTATUS status;

	do {
		status = next_result(out, &result, deadline);
		if (status != STATUS_SUCCESS)
			return status;
	} while (take_arrival(out, &result));
	if ((uintptr_t)result.Ndk.RequestContext != op)
		return STATUS_INTERNAL_ERROR; /* completions out of order */
	return result.Ndk.Status;
}

NTSTATUS out_run(struct out *out, const struct operation *operation)
{
	uint64_t op;
	NTSTATUS status = out_post(out, operation, &op);

	return status == STATUS_SUCCESS ? out_wait(out, op) : status;
}

NTSTATUS out_receive(struct out *out, struct arrival *arrival)
{
	int64_t deadline = now_ms() + PATIENCE_MS;
	ORIEL_RESULT result;

	while (out->arrivals == out->taken) {
		NTSTATUS status = next_result(out, &result, deadline);

		if (status != STATUS_SUCCESS)
			return status;
		if (!take_arrival(out, &result) && !NT_SUCCESS(result.Ndk.Status))
			return result.Ndk.Status;
	}
	*arrival = out->arrival[out->taken++ % OUT_SLOTS];
	if (!NT_SUCCESS(arrival->result.Ndk.Status))
		return arrival->result.Ndk.Status;
	/* Its slot comes up again after all others. */
	return out_post_receive(out);
}

bool out_must_end(struct out *out, const char *name, unsigned int seconds)
{
	int64_t deadline = now_ms() + seconds * 1000ll;

	while (!out->disconnected) {
		if (OrielProgress(out->adapter))
			continue;
		if (now_ms() > deadline)
			return report_failure("%s: no disconnect within %u s", name, seconds);
		OrielWait(out->adapter, 200);
	}
	return true;
}

/* ---- commands to stock-server ---- */

bool out_must(const char *name, const char *what, NTSTATUS expected, NTSTATUS got)
{
	if (got == expected)
		return true;
	return report_failure("%s: %s: expected %s, got %s", name, what, OrielStatusName(expected),
			      OrielStatusName(got));
}

/* A queue pair that has refused a request is dead and says so only once. */
bool out_must_be_refused(const char *name, const char *what, NTSTATUS got)
{
	if (options.lossy && got == STATUS_IO_TIMEOUT)
		return true;
	return out_must(name, what, STATUS_ACCESS_VIOLATION, got);
}

bool out_command_send(struct out *out, const char *name, const struct exchange_command *command)
{
	struct exchange_command *wire = (void *)(out->buffer + OUT_COMMAND);
	struct operation send = out_operation(out, KIND_SEND, OUT_COMMAND, sizeof(*wire), 0);

	*wire = *command;
	wire->magic = EXCHANGE_MAGIC;
	exchange_command_swap(wire);
	return out_must(name, "the command's SEND", STATUS_SUCCESS, out_run(out, &send));
}

bool out_command_answer(struct out *out, const char *name, struct exchange_answer *answer)
{
	struct arrival arrival;
	NTSTATUS status = out_receive(out, &arrival);

	if (!out_must(name, "the server's answer", STATUS_SUCCESS, status))
		return false;
	if (arrival.result.Ndk.BytesTransferred != sizeof(*answer) ||
	    arrival.result.Ndk.Type != NdkOperationTypeReceive)
		return report_failure("%s: %u bytes of type %#x where an answer was due", name,
				      arrival.result.Ndk.BytesTransferred, arrival.result.Ndk.Type);
	memcpy(answer, arrival.data, sizeof(*answer));
	answer->value = be64toh(answer->value);
	answer->text[sizeof(answer->text) - 1] = '\0';
	if (be32toh(answer->magic) != EXCHANGE_MAGIC)
		return report_failure("%s: no answer: magic %#x", name, be32toh(answer->magic));
	if (answer->failed)
		return report_failure("%s: the server says: %s", name, answer->text);
	return true;
}

bool out_command(struct out *out, const char *name, const struct exchange_command *command,
		 struct exchange_answer *answer)
{
	struct exchange_answer unused;

	return out_command_send(out, name, command) &&
	       out_command_answer(out, name, answer ? answer : &unused);
}
