/* SPDX-License-Identifier: BSD-3-Clause */
/* One request of a kind, and its completion. */
#include <stdio.h>

#include "oriel-perf/run.h"

NTSTATUS post_request(struct peer *peer, const struct request *request)
{
	const struct session *session = peer->session;
	const uint64_t address = peer->remote.address + request->remote;
	const UINT32 token = peer->remote.token;
	const bool reads = request->operation == PERF_READ ||
			   request->operation == PERF_FETCH_ADD ||
			   request->operation == PERF_COMPARE_SWAP;
	const NDK_SGE sge = { .VirtualAddress =
				      (reads ? session->sink : session->source) + request->local,
			      .Length = request->size,
			      .MemoryRegionToken = session->local_token };
	ULONG flags = request->flags;

	if (!reads && request->size <= session->options.inline_size)
		flags |= NDK_OP_FLAG_INLINE;
	switch (request->operation) {
	case PERF_READ: return NdkRead(peer->qp, request->context, &sge, 1, address, token, flags);
	case PERF_SEND:
		if (peer->datagram.Address)
			return OrielSendDatagram(peer->qp, request->context, &sge, 1, flags,
						 &peer->datagram);
		return NdkSend(peer->qp, request->context, &sge, 1, flags);
	case PERF_FETCH_ADD:
		return OrielFetchAdd(peer->qp, request->context, &sge, address, token, 1, flags);
	case PERF_COMPARE_SWAP:
		return OrielCompareSwap(peer->qp, request->context, &sge, address, token,
					request->compare, request->compare + 1, flags);
	default: return NdkWrite(peer->qp, request->context, &sge, 1, address, token, flags);
	}
}

void post_place(struct request *request, struct peer *peer, struct traffic *traffic, uint64_t step,
		struct verify *verify)
{
	const uint64_t memory = peer->session->options.memory;
	uint32_t place = traffic_place(traffic), slot;

	request->remote = place * step;
	if (!verify) {
		request->local = request->remote;
		if (request->local > memory - request->size)
			request->local %= memory - request->size + 1;
		return;
	}
	slot = verify_posted(verify, place, request->operation == PERF_READ);
	request->local = request->operation == PERF_READ ? slot * step : request->remote;
	request->context = (PVOID)(uintptr_t)slot;
}

/* Receives take turns over the sink. */
bool post_receive(struct peer *peer, uint32_t slot)
{
	struct session *session = peer->session;
	const uint32_t size = session->options.receive_size;
	const uint64_t room = session->options.memory / (size ? size : 1);
	const NDK_SGE sge = { .VirtualAddress = session->sink + slot % (room ? room : 1) * size,
			      .Length = size,
			      .MemoryRegionToken = session->local_token };
	NTSTATUS status = NdkReceive(peer->qp, (PVOID)(uintptr_t)slot, &sge, 1);

	return NT_SUCCESS(status) || session_complain("posting a receive", status);
}

bool post_receives(struct session *session)
{
	for (uint32_t i = 0; i < session->options.queue_pairs; i++)
		for (uint32_t slot = 0; slot < session->options.receive_depth; slot++)
			if (!post_receive(&session->peers[i], slot))
				return false;
	return true;
}

bool post_completed(const NDK_RESULT_EX *result)
{
	if (NT_SUCCESS(result->Status))
		return true;
	fprintf(stderr, "oriel-perf: a request failed: %s\n", OrielStatusName(result->Status));
	return false;
}
