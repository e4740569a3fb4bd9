/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client of rping, librdmacm's own example: it tells where its buffer is, the server READs it;
 * it tells a sink, the server WRITEs the same bytes there. All of it on a connection that we made.
 */
#include <string.h>

#include "out.h"

#define ROUNDS 20u
#define SIZE   3000u

/* struct rping_rdma_info of rdma-core's rping.c, big-endian. */
struct rping_info {
	uint64_t address;
	uint32_t token;
	uint32_t size;
} __attribute__((packed));

static bool tell(struct out *out, uint32_t offset)
{
	struct rping_info *info = (void *)(out->buffer + OUT_COMMAND);
	struct operation send = out_operation(out, KIND_SEND, OUT_COMMAND, sizeof(*info), 0);
	struct arrival arrival;

	*info = (struct rping_info){ .address = htobe64((uintptr_t)out->buffer + offset),
				     .token = htobe32(out->remote_token),
				     .size = htobe32(SIZE) };
	if (!out_must("rping", "SEND", STATUS_SUCCESS, out_run(out, &send)) ||
	    !out_must("rping", "go-ahead", STATUS_SUCCESS, out_receive(out, &arrival)))
		return false;
	if (arrival.result.Ndk.BytesTransferred != sizeof(*info))
		return report_failure("rping: go-ahead of %u bytes",
				      arrival.result.Ndk.BytesTransferred);
	return true;
}

/* The server WRITEs a string back: no byte but the last may be zero. */
static bool round_trip(struct out *out, uint64_t seed)
{
	uint8_t *source = out->buffer + OUT_SOURCE, *sink = out->buffer + OUT_SINK;

	pattern_fill(source, SIZE, seed);
	for (unsigned int i = 0; i < SIZE; i++)
		source[i] = i + 1 == SIZE ? 0 : source[i] | 1;
	memset(sink, 0, SIZE);
	if (!tell(out, OUT_SOURCE) || !tell(out, OUT_SINK))
		return false;
	if (memcmp(source, sink, SIZE))
		return report_failure("rping: the data of round %lu differ", seed);
	return true;
}

void check_rping(const char *argument)
{
	struct out out;
	bool good;

	good = out_must("rping", "connect", STATUS_SUCCESS,
			out_connect(&out, options.port, NULL, 0));
	for (unsigned int i = 0; good && i < ROUNDS; i++)
		good = round_trip(&out, i);
	if (!out_must("rping", "disconnect", STATUS_SUCCESS, out_close(&out)) || !good)
		return;
	report_ok("rping");
}
