/* SPDX-License-Identifier: BSD-3-Clause */
/* Places and kinds of messages: in order, by lot, by popularity, in the share that was asked for.
 */
#include "oriel-perf/traffic.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#define PLACES 100u
#define DRAWS  200000u

static int compare(const void *a, const void *b)
{
	return *(const int *)b - *(const int *)a;
}

static void draw(enum perf_pattern pattern, double skew, int count[PLACES])
{
	const struct perf_options options = { .pattern = pattern, .skew = skew };
	struct traffic traffic;

	cr_assert(traffic_open(&traffic, &options, PLACES));
	for (unsigned int i = 0; i < DRAWS; i++) {
		uint32_t place = traffic_place(&traffic);

		cr_assert_lt(place, PLACES);
		count[place]++;
	}
	traffic_close(&traffic);
}

Test(traffic, in_sequence_each_place_follows_the_one_before)
{
	const struct perf_options options = { .pattern = PERF_SEQUENTIAL };
	struct traffic traffic;

	cr_assert(traffic_open(&traffic, &options, 5));
	for (unsigned int i = 0; i < 23; i++)
		cr_assert_eq(traffic_place(&traffic), i % 5);
	traffic_close(&traffic);
}

Test(traffic, fixed_is_one_place)
{
	int count[PLACES] = { 0 };

	draw(PERF_FIXED, 0, count);
	cr_assert_eq(count[0], DRAWS);
}

Test(traffic, by_lot_all_places_are_alike)
{
	int count[PLACES] = { 0 };

	draw(PERF_RANDOM, 0, count);
	for (unsigned int i = 0; i < PLACES; i++)
		cr_assert(abs(count[i] - (int)(DRAWS / PLACES)) < 400, "place %u: %d", i, count[i]);
}

/* Weight of rank r is 1 / r^skew: skew 0 is by lot, skew 1 gives the first twice the second. */
Test(traffic, popularity_falls_as_the_skew_says)
{
	static const double skews[] = { 0, 0.5, 1, 2 };

	for (unsigned int k = 0; k < 4; k++) {
		int count[PLACES] = { 0 };
		double sum = 0;

		draw(PERF_ZIPF, skews[k], count);
		qsort(count, PLACES, sizeof(count[0]), compare);
		for (unsigned int i = 0; i < PLACES; i++)
			sum += pow(i + 1, -skews[k]);
		for (unsigned int rank = 0; rank < 4; rank++) {
			double wanted = DRAWS * pow(rank + 1, -skews[k]) / sum;

			cr_assert(fabs(count[rank] - wanted) < 6 * sqrt(wanted),
				  "skew %g, rank %u: %d instead of %g", skews[k], rank + 1,
				  count[rank], wanted);
		}
	}
}

Test(traffic, popular_places_are_apart)
{
	int count[PLACES] = { 0 };
	unsigned int first = 0, second = 1;

	draw(PERF_ZIPF, 2, count);
	for (unsigned int i = 0; i < PLACES; i++)
		if (count[i] > count[first])
			first = i;
	second = first ? 0 : 1;
	for (unsigned int i = 0; i < PLACES; i++)
		if (i != first && count[i] > count[second])
			second = i;
	cr_assert_gt(abs((int)first - (int)second), 1);
}

Test(traffic, reads_have_their_share)
{
	static const unsigned int shares[] = { 0, 1, 30, 99, 100 };

	for (unsigned int k = 0; k < 5; k++) {
		const struct perf_options options = { .read_share = shares[k] };
		struct traffic traffic;
		unsigned int reads = 0;

		cr_assert(traffic_open(&traffic, &options, 1));
		for (unsigned int i = 0; i < DRAWS; i++)
			reads += traffic_reads(&traffic);
		traffic_close(&traffic);
		cr_assert_lt(abs((int)reads - (int)(DRAWS / 100 * shares[k])), 1500, "%u %%: %u",
			     shares[k], reads);
		cr_assert(shares[k] % 100 || reads == DRAWS / 100 * shares[k]);
	}
}
