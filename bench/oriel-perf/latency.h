/* SPDX-License-Identifier: BSD-3-Clause */
/* A histogram of times whose buckets grow with the value, so that no bucket is off by 1 %. */
#ifndef PERF_LATENCY_H
#define PERF_LATENCY_H

#include <stdint.h>

#define LATENCY_BITS    7u  /* a power of two is cut into so many halves */
#define LATENCY_LARGEST 42u /* 2^42 ns: 73 minutes; longer counts as that */
#define LATENCY_BUCKETS ((LATENCY_LARGEST - LATENCY_BITS + 1) << LATENCY_BITS)

/* All times in ns. Zeroed, it is empty. */
struct latency {
	uint64_t count;
	uint64_t least, most;
	double sum, squares;
	uint64_t bucket[LATENCY_BUCKETS];
};

void latency_add(struct latency *latency, uint64_t ns);
/* The smallest time that `percent` of all do not exceed, to the width of a bucket. 0 when empty. */
uint64_t latency_percentile(const struct latency *latency, double percent);
double latency_mean(const struct latency *latency);
double latency_deviation(const struct latency *latency);
/* The bucket's times are from `*from` to below `*to`. */
void latency_bounds(unsigned int bucket, uint64_t *from, uint64_t *to);

#endif
