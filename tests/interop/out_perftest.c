/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The client of perftest's bandwidth tests with -R: one connection to exchange parameters by SEND,
 * a second one, to the same port, for the data. The server measures nothing: it believes our
 * report. Each exchange is one message of ours and then one of the server's, of equal length.
 */
#include <stdio.h>
#include <string.h>

#include "out.h"

#define VERSION    "6.06" /* the server wants 5.70 at least */
#define CYCLE      4096u
#define LINE       64u
#define ITERATIONS 64u
#define SIZE       65536u

/* struct pingpong_dest, big-endian. */
struct perftest_end {
	uint32_t lid, out_reads, qpn, psn, rkey, gap;
	uint64_t address;
	uint8_t gid[16];
	uint32_t srqn, gid_index;
} __attribute__((packed));

_Static_assert(sizeof(struct perftest_end) == 56, "perftest_end");

static bool exchange(struct out *control, const char *what, const void *ours, void *theirs,
		     uint32_t length)
{
	struct operation send = out_operation(control, KIND_SEND, OUT_COMMAND, length, 0);
	struct arrival arrival;

	memcpy(control->buffer + OUT_COMMAND, ours, length);
	if (!out_must("perftest", what, STATUS_SUCCESS, out_run(control, &send)) ||
	    !out_must("perftest", what, STATUS_SUCCESS, out_receive(control, &arrival)))
		return false;
	if (arrival.result.Ndk.BytesTransferred != length)
		return report_failure("perftest: %s: %u bytes, expected %u", what,
				      arrival.result.Ndk.BytesTransferred, length);
	memcpy(theirs, arrival.data, length);
	return true;
}

static bool exchange_parameters(struct out *control)
{
	char version[16] = VERSION, mtu[2] = "3";
	uint32_t cycle = htobe32(CYCLE), line = htobe32(LINE);

	return exchange(control, "version", version, version, sizeof(version)) &&
	       exchange(control, "cycle buffer", &cycle, &cycle, sizeof(cycle)) &&
	       exchange(control, "cache line", &line, &line, sizeof(line)) &&
	       exchange(control, "MTU", mtu, mtu, sizeof(mtu));
}

/* The server listens a moment later, each time. */
static bool connect_to_server(struct out *out)
{
	return out_must("perftest", "connect", STATUS_SUCCESS,
			out_connect_patiently(out, options.port, NULL, 0));
}

static bool meet(struct out *control, const struct perftest_end *ours, struct perftest_end *theirs)
{
	return exchange(control, "hand-shake", ours, theirs, sizeof(*ours));
}

/* What we report is made up: here it is not about speed. */
static bool finish(struct out *control, const struct perftest_end *ours)
{
	const uint64_t report[5] = { htobe64(SIZE), htobe64(ITERATIONS) };
	struct perftest_end theirs;
	uint64_t unused;

	if (!meet(control, ours, &theirs))
		return false;
	for (unsigned int i = 0; i < 5; i++)
		if (!exchange(control, "report", &report[i], &unused, sizeof(unused)))
			return false;
	return meet(control, ours, &theirs);
}

static bool transfer(struct out *data, enum exchange_kind kind, const struct perftest_end *theirs)
{
	struct operation o = out_operation(data, kind, OUT_SOURCE, SIZE, 0);
	uint64_t first = data->next_op, op;

	o.address = be64toh(theirs->address);
	o.token = be32toh(theirs->rkey);
	for (unsigned int i = 0; i < ITERATIONS; i++)
		if (!out_must("perftest", "post", STATUS_SUCCESS, out_post(data, &o, &op)))
			return false;
	for (op = first; op < first + ITERATIONS; op++)
		if (!out_must("perftest", "request", STATUS_SUCCESS, out_wait(data, op)))
			return false;
	return true;
}

static bool run(struct out *control, struct out *data, enum exchange_kind kind)
{
	struct perftest_end ours = { .out_reads = htobe32(16) }, theirs;

	if (!exchange_parameters(control) || !meet(control, &ours, &theirs) ||
	    !connect_to_server(data) || !meet(control, &ours, &theirs))
		return false;
	ours.qpn = htobe32(OrielGetQpNumber(data->qp));
	ours.rkey = htobe32(data->remote_token);
	ours.address = htobe64((uintptr_t)data->buffer);
	for (unsigned int i = 0; i < 3; i++)
		if (!meet(control, &ours, &theirs))
			return false;
	return transfer(data, kind, &theirs) && finish(control, &ours);
}

void check_perftest(const char *argument)
{
	bool read = argument && !strcmp(argument, "read");
	struct out control, data = { 0 };
	bool good;

	good = connect_to_server(&control) && run(&control, &data, read ? KIND_READ : KIND_WRITE);
	out_close(&data);
	out_close(&control);
	if (good)
		report_ok("perftest %s", read ? "read" : "write");
}
