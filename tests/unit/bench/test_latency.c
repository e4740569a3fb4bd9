/* SPDX-License-Identifier: BSD-3-Clause */
/* The histogram of times: no bucket is off by 1 %, percentiles are those of the sorted times. */
#include "oriel-perf/latency.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static struct latency latency; /* zeroed: each test has a process of its own */

Test(latency, an_empty_one_says_nothing)
{
	cr_assert_eq(latency_percentile(&latency, 50), 0);
	cr_assert_eq(latency_mean(&latency), 0);
	cr_assert_eq(latency_deviation(&latency), 0);
}

Test(latency, buckets_lie_side_by_side_and_are_narrow)
{
	uint64_t from, to, next = 0;

	for (unsigned int i = 0; i < LATENCY_BUCKETS; i++) {
		latency_bounds(i, &from, &to);
		cr_assert_eq(from, next, "bucket %u begins at %lu", i, from);
		cr_assert(to == from + 1 || (double)(to - from) <= (double)from / 100,
			  "bucket %u is %lu to %lu", i, from, to);
		next = to;
	}
	cr_assert_eq(next, 1ull << LATENCY_LARGEST);
}

Test(latency, each_time_is_in_its_bucket)
{
	uint64_t from, to;

	for (uint64_t ns = 1; ns < 1ull << LATENCY_LARGEST; ns += 1 + ns / 7) {
		unsigned int bucket = 0;

		latency = (struct latency){ 0 };
		latency_add(&latency, ns);
		while (!latency.bucket[bucket])
			bucket++;
		latency_bounds(bucket, &from, &to);
		cr_assert(from <= ns && ns < to, "%lu is counted from %lu to %lu", ns, from, to);
		cr_assert_eq(latency_percentile(&latency, 99.99), ns, "one time is all of them");
	}
}

Test(latency, what_is_too_long_counts_as_the_longest)
{
	latency_add(&latency, UINT64_MAX);
	latency_add(&latency, 1);
	cr_assert_eq(latency.bucket[LATENCY_BUCKETS - 1], 1);
	cr_assert_eq(latency_percentile(&latency, 100), UINT64_MAX);
	cr_assert_eq(latency_percentile(&latency, 50), 1);
}

static int compare(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

Test(latency, percentiles_are_those_of_the_sorted_times)
{
	static const double percents[] = { 0.01, 1, 25, 50, 75, 90, 99, 99.9, 99.99, 100 };
	static uint64_t times[20000];
	uint64_t state = 1;

	for (unsigned int i = 0; i < 20000; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		times[i] = 1000 + (state >> 33) % (i % 100 ? 20000 : 5000000);
		latency_add(&latency, times[i]);
	}
	qsort(times, 20000, sizeof(times[0]), compare);
	for (unsigned int i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		uint64_t exact = times[(unsigned int)(200 * percents[i] + 0.5) - 1];
		uint64_t found = latency_percentile(&latency, percents[i]);

		cr_assert(found >= exact && (double)found <= (double)exact * 1.01,
			  "%g %% is %lu, found %lu", percents[i], exact, found);
	}
	cr_assert_eq(latency.least, times[0]);
	cr_assert_eq(latency.most, times[19999]);
	cr_assert_eq(latency.count, 20000);
}

Test(latency, mean_and_deviation_are_of_the_times_themselves)
{
	for (unsigned int i = 0; i < 8; i++)
		latency_add(&latency, (const uint64_t[]){ 2, 4, 4, 4, 5, 5, 7, 9 }[i] * 1000);
	cr_assert_float_eq(latency_mean(&latency), 5000, 1e-6);
	cr_assert_float_eq(latency_deviation(&latency), 2000, 1e-6);
}
