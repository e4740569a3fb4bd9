/* SPDX-License-Identifier: BSD-3-Clause */
/* Which place of the remote memory the next message goes to, and whether it reads or writes. */
#include "oriel-perf/traffic.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPREAD 2654435761u /* a prime above all counts of places: ranks map one to one */

/* xorshift64: the order must be random to a cache, not to an adversary. */
static uint64_t random_next(struct traffic *traffic)
{
	traffic->state ^= traffic->state << 13;
	traffic->state ^= traffic->state >> 7;
	traffic->state ^= traffic->state << 17;
	return traffic->state;
}

static double random_unit(struct traffic *traffic)
{
	return (double)(random_next(traffic) >> 11) * 0x1p-53;
}

/* sums[r]: the weight of ranks 0 to r. */
static bool sum_weights(struct traffic *traffic)
{
	double sum = 0;

	traffic->sums = malloc(traffic->places * sizeof(*traffic->sums));
	if (!traffic->sums) {
		fprintf(stderr, "oriel-perf: no memory for %u places: %s\n", traffic->places,
			strerror(errno));
		return false;
	}
	for (uint32_t i = 0; i < traffic->places; i++) {
		sum += pow(i + 1.0, -traffic->skew);
		traffic->sums[i] = sum;
	}
	return true;
}

bool traffic_open(struct traffic *traffic, const struct perf_options *options, uint32_t places)
{
	*traffic = (struct traffic){ .pattern = options->pattern,
				     .places = places,
				     .state = 0x9e3779b97f4a7c15ull,
				     .read_share = options->read_share,
				     .skew = options->skew };
	if (places > TRAFFIC_MOST_PLACES)
		traffic->places = TRAFFIC_MOST_PLACES;
	if (traffic->pattern == PERF_FIXED)
		traffic->places = 1;
	return traffic->pattern != PERF_ZIPF || sum_weights(traffic);
}

void traffic_close(struct traffic *traffic)
{
	free(traffic->sums);
	traffic->sums = NULL;
}

/* The popular places are apart from each other. */
static uint32_t zipf(struct traffic *traffic)
{
	double weight = random_unit(traffic) * traffic->sums[traffic->places - 1];
	uint32_t low = 0, high = traffic->places - 1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (traffic->sums[middle] > weight)
			high = middle;
		else
			low = middle + 1;
	}
	return (uint32_t)((uint64_t)low * SPREAD % traffic->places);
}

uint32_t traffic_place(struct traffic *traffic)
{
	uint32_t place = traffic->next;

	if (traffic->pattern == PERF_ZIPF)
		return zipf(traffic);
	if (traffic->pattern == PERF_RANDOM)
		return (uint32_t)((random_next(traffic) >> 32) * traffic->places >> 32);
	traffic->next = place + 1 < traffic->places ? place + 1 : 0;
	return place;
}

bool traffic_reads(struct traffic *traffic)
{
	return (random_next(traffic) >> 32) * 100 >> 32 < traffic->read_share;
}
