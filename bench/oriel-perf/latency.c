/* SPDX-License-Identifier: BSD-3-Clause */
/* A histogram of times whose buckets grow with the value. */
#include "oriel-perf/latency.h"

#include <math.h>

#define HALF (1u << LATENCY_BITS) /* buckets of each power of two, and of all below them */

/* Below 2 * HALF a bucket is one nanosecond; then each power of two has HALF buckets. */
static unsigned int bucket_of(uint64_t ns)
{
	unsigned int shift;

	if (ns >> LATENCY_LARGEST)
		return LATENCY_BUCKETS - 1;
	if (ns < HALF)
		return (unsigned int)ns;
	shift = 63 - (unsigned int)__builtin_clzll(ns) - LATENCY_BITS;
	return (shift << LATENCY_BITS) + (unsigned int)(ns >> shift);
}

void latency_bounds(unsigned int bucket, uint64_t *from, uint64_t *to)
{
	unsigned int shift = bucket < 2 * HALF ? 0 : (bucket >> LATENCY_BITS) - 1;

	*from = (uint64_t)(bucket - (shift << LATENCY_BITS)) << shift;
	*to = *from + (1ull << shift);
}

void latency_add(struct latency *latency, uint64_t ns)
{
	if (!latency->count || ns < latency->least)
		latency->least = ns;
	if (ns > latency->most)
		latency->most = ns;
	latency->count++;
	latency->sum += (double)ns;
	latency->squares += (double)ns * (double)ns;
	latency->bucket[bucket_of(ns)]++;
}

uint64_t latency_percentile(const struct latency *latency, double percent)
{
	uint64_t wanted = (uint64_t)ceil((double)latency->count * percent / 100);
	uint64_t seen = 0, from, to;

	for (unsigned int i = 0; i < LATENCY_BUCKETS && latency->count; i++) {
		seen += latency->bucket[i];
		if (!latency->bucket[i] || seen < wanted)
			continue;
		latency_bounds(i, &from, &to);
		if (to - 1 > latency->most || i == LATENCY_BUCKETS - 1)
			return latency->most;
		return to - 1 < latency->least ? latency->least : to - 1;
	}
	return latency->most;
}

double latency_mean(const struct latency *latency)
{
	return latency->count ? latency->sum / (double)latency->count : 0;
}

double latency_deviation(const struct latency *latency)
{
	double mean = latency_mean(latency);
	double variance;

	if (!latency->count)
		return 0;
	variance = latency->squares / (double)latency->count - mean * mean;
	return variance > 0 ? sqrt(variance) : 0;
}
