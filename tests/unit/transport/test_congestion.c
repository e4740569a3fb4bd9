/* SPDX-License-Identifier: BSD-3-Clause */
/* DCQCN: cuts, decay of alpha, recovery, pacing, and the rate of our own CNPs. */
#include <criterion/criterion.h>

#include "transport/congestion.h"

#define LINE 1250000000ull /* 10 Gb/s */

static struct congestion_parameters parameters;
static struct congestion state;

static void setup(void)
{
	congestion_defaults(&parameters, LINE);
	state = (struct congestion){ 0 };
}

TestSuite(congestion, .init = setup);

Test(congestion, without_a_cnp_nothing_is_held_back)
{
	for (uint64_t now = 0; now < 1000; now++) {
		cr_assert(congestion_may_send(&state, &parameters, now));
		congestion_sent(&state, &parameters, 4096, now);
	}
	cr_assert_eq(state.rate, 0);
}

Test(congestion, the_first_cnp_halves_the_rate)
{
	cr_assert(congestion_on_cnp(&state, &parameters, 1000));
	cr_assert_eq(state.rate, LINE / 2);
	cr_assert_eq(state.target, LINE);
}

Test(congestion, at_most_one_cut_in_a_reduce_period)
{
	uint64_t now = 1000;

	congestion_on_cnp(&state, &parameters, now);
	cr_assert_not(congestion_on_cnp(&state, &parameters, now + parameters.reduce_period - 1));
	cr_assert_eq(state.rate, LINE / 2);
	cr_assert(congestion_on_cnp(&state, &parameters, now + parameters.reduce_period));
	cr_assert_lt(state.rate, LINE / 2);
}

Test(congestion, cnps_without_end_end_at_the_minimum)
{
	uint64_t now = 0;

	for (int i = 0; i < 1000; i++, now += parameters.reduce_period)
		congestion_on_cnp(&state, &parameters, now);
	cr_assert_eq(state.rate, parameters.minimum_rate);
}

Test(congestion, alpha_decays_while_no_cnp_comes_so_the_next_cut_is_smaller)
{
	uint64_t now = 1000;
	uint64_t before;

	congestion_on_cnp(&state, &parameters, now);
	now += 200 * parameters.alpha_period;
	parameters.increase_period = UINT64_MAX / 4;
	state.increase_due = UINT64_MAX;
	congestion_may_send(&state, &parameters, now);
	before = state.rate;
	cr_assert_lt(state.alpha, CONGESTION_ALPHA_ONE / 2);
	cr_assert(congestion_on_cnp(&state, &parameters, now));
	cr_assert_gt(state.rate, before / 2);
}

Test(congestion, fast_recovery_halves_the_distance_to_the_target)
{
	uint64_t now = 1000;

	congestion_on_cnp(&state, &parameters, now);
	congestion_may_send(&state, &parameters, now + parameters.increase_period);
	cr_assert_eq(state.rate, LINE / 4 * 3);
	cr_assert_eq(state.target, LINE);
}

Test(congestion, additive_increase_follows_recovery_and_the_line_is_reached_again)
{
	uint64_t now = 1000;

	for (int i = 0; i < 20; i++, now += parameters.reduce_period)
		congestion_on_cnp(&state, &parameters, now);
	cr_assert_eq(state.rate, parameters.minimum_rate);
	for (int i = 0; i < 6; i++)
		congestion_may_send(&state, &parameters, now += parameters.increase_period);
	cr_assert_gt(state.target, parameters.minimum_rate, "the target rises after F stages");
	for (int i = 0; i < 100000 && state.rate; i++)
		congestion_may_send(&state, &parameters, now += parameters.increase_period);
	cr_assert_eq(state.rate, 0, "no longer under control");
}

Test(congestion, hyper_increase_needs_both_counters)
{
	uint64_t now = 1000;

	for (int i = 0; i < 20; i++, now += parameters.reduce_period)
		congestion_on_cnp(&state, &parameters, now);
	state.timer_stage = 10;
	state.byte_stage = 10;
	state.target = state.rate;
	congestion_may_send(&state, &parameters, now + parameters.increase_period);
	cr_assert_eq(state.target, parameters.minimum_rate + parameters.hyper_rate * 5);
}

Test(congestion, the_byte_counter_raises_the_rate_as_the_timer_does)
{
	uint64_t now = 1000;

	parameters.increase_bytes = 10000;
	congestion_on_cnp(&state, &parameters, now);
	state.increase_due = UINT64_MAX;
	for (int i = 0; i < 10; i++)
		congestion_sent(&state, &parameters, 1000, now);
	cr_assert_eq(state.rate, LINE / 4 * 3);
}

Test(congestion, pacing_keeps_the_rate)
{
	uint64_t now = 1000000, start = now;
	uint64_t sent = 0;

	congestion_on_cnp(&state, &parameters, now);
	state.increase_due = UINT64_MAX;
	state.alpha_due = UINT64_MAX;
	parameters.increase_bytes = UINT64_MAX;
	state.bytes_left = UINT64_MAX;
	for (; now < start + 10000000; now += 100) {
		while (congestion_may_send(&state, &parameters, now)) {
			congestion_sent(&state, &parameters, 1100, now);
			sent += 1100;
		}
	}
	/* 10 ms at LINE / 2, within a packet or two. */
	cr_assert_leq(sent, LINE / 2 / 100 + 2200);
	cr_assert_geq(sent, LINE / 2 / 100 - 2200);
}

Test(congestion, a_pause_earns_no_burst)
{
	uint64_t now = 1000000;
	unsigned int burst = 0;

	congestion_on_cnp(&state, &parameters, now);
	parameters.line_rate = UINT64_MAX / 4; /* never back at the line in this test */
	state.increase_due = UINT64_MAX;
	congestion_sent(&state, &parameters, 1000, now);
	now += 1000000;
	while (congestion_may_send(&state, &parameters, now) && burst < 100) {
		congestion_sent(&state, &parameters, 1000, now);
		burst++;
	}
	cr_assert_eq(burst, 1);
}

Test(congestion, one_cnp_of_ours_per_interval)
{
	unsigned int cnps = 0;

	for (uint64_t now = 0; now < 10 * parameters.cnp_interval; now += 1000)
		cnps += congestion_answer_mark(&state, &parameters, now);
	cr_assert_eq(cnps, 10);
}

Test(congestion, switched_off_it_neither_sends_nor_obeys)
{
	parameters.enabled = false;
	cr_assert_not(congestion_on_cnp(&state, &parameters, 1000));
	cr_assert_not(congestion_answer_mark(&state, &parameters, 1000));
	cr_assert_eq(state.rate, 0);
}
