/* SPDX-License-Identifier: BSD-3-Clause */
/* The measurements. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "oriel-perf/peer.h"

enum run_operation { RUN_WRITE, RUN_READ };

struct run_options {
	enum run_operation operation;
	uint32_t size;       /* bytes of a message */
	uint64_t iterations; /* 0: by time */
	double seconds;
	ULONG depth;
	bool latency; /* one at a time */
};

struct run_result {
	uint64_t messages;
	double seconds;
	double bytes_per_second;
	double messages_per_second;
	double p50, p99, p999, minimum; /* us, latency runs only */
};

const char *run_name(enum run_operation operation);
/* False when the connection broke or a request failed, after a message. */
bool run_measure(struct peer *peer, const struct run_options *options, struct run_result *result);

/* Writes a pattern through the window, reads it back and compares, at sizes around the MTU. */
bool run_verify(struct peer *peer, uint64_t *bytes);

#endif
