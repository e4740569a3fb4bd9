/* SPDX-License-Identifier: BSD-3-Clause */
/* Which place of the remote memory the next message goes to, and whether it reads or writes. */
#ifndef PERF_TRAFFIC_H
#define PERF_TRAFFIC_H

#include "oriel-perf/options.h"

#define TRAFFIC_MOST_PLACES (1u << 24)

struct traffic {
	enum perf_pattern pattern;
	uint32_t places;
	uint32_t next; /* of PERF_SEQUENTIAL */
	uint64_t state;
	unsigned int read_share; /* percent */
	/* PERF_ZIPF: place of rank r is chosen with a weight of 1 / r^skew. */
	double skew, *sums;
};

/* False: no memory for so many places; a message was printed. */
bool traffic_open(struct traffic *traffic, const struct perf_options *options, uint32_t places);
void traffic_close(struct traffic *traffic);
uint32_t traffic_place(struct traffic *traffic);
bool traffic_reads(struct traffic *traffic);

#endif
