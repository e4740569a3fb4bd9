/* SPDX-License-Identifier: BSD-3-Clause */
/* DCQCN: cuts, decay of alpha, recovery, pacing, and the rate of our own CNPs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

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

/* Nobody is made faster than his line. */
Test(congestion, a_line_slower_than_the_minimum_stays_what_it_is)
{
	parameters.line_rate = parameters.minimum_rate / 2;
	for (uint64_t now = 1000; now < 1000 + 20 * parameters.reduce_period;
	     now += parameters.reduce_period) {
		congestion_on_cnp(&state, &parameters, now);
		cr_assert_eq(state.rate, parameters.line_rate);
	}
}

/* A rate that climbs for long goes on climbing: stages are counted to an end, not round. */
Test(congestion, the_target_rises_in_every_stage_behind_recovery)
{
	uint64_t now = 1000, before;

	parameters.additive_rate = 1;
	for (int i = 0; i < 20; i++, now += parameters.reduce_period)
		congestion_on_cnp(&state, &parameters, now);
	for (unsigned int i = 0; i < 1000; i++) {
		before = state.target;
		congestion_may_send(&state, &parameters, now += parameters.increase_period);
		if (i > parameters.recovery_stages)
			cr_assert_eq(state.target, before + 1, "stage %u", i);
	}
}

Test(congestion, begins_with_the_values_of_the_paper)
{
	const uint64_t megabit = 1000000 / 8;

	cr_assert(parameters.enabled);
	cr_assert_eq(parameters.gain_shift, 8, "g is 1/256");
	cr_assert_eq(parameters.recovery_stages, 5);
	cr_assert_eq(parameters.minimum_rate, 100 * megabit);
	cr_assert_eq(parameters.additive_rate, 40 * megabit);
	cr_assert_eq(parameters.hyper_rate, 400 * megabit);
	cr_assert_eq(parameters.alpha_period, 55000);
	cr_assert_eq(parameters.increase_period, 55000);
	cr_assert_eq(parameters.increase_bytes, 10000000);
	cr_assert_eq(parameters.reduce_period, 50000);
	cr_assert_eq(parameters.cnp_interval, 50000);
	cr_assert_eq(parameters.cnp_dscp, 48);
}

/* --- against the formulas of the paper ------------------------------------------------- */

struct model {
	double rate, target, alpha; /* rate 0: not under control */
	double alpha_due, increase_due, last_cut, bytes_left;
	unsigned int timer_stage, byte_stage;
	bool seen;
};

static void model_increase(struct model *m)
{
	const unsigned int f = parameters.recovery_stages;
	const unsigned int low = m->timer_stage < m->byte_stage ? m->timer_stage : m->byte_stage;
	const bool beyond = m->timer_stage > f || m->byte_stage > f;

	if (low > f)
		m->target += (double)parameters.hyper_rate * (low - f);
	else if (beyond)
		m->target += (double)parameters.additive_rate;
	m->target = fmin(m->target, LINE);
	m->rate = (m->rate + m->target) / 2;
}

static void model_wait(struct model *m, double now)
{
	if (m->rate == 0)
		return;
	for (; m->alpha_due <= now; m->alpha_due += (double)parameters.alpha_period) {
		if (!m->seen)
			m->alpha *= 1 - exp2(-(double)parameters.gain_shift);
		m->seen = false;
	}
	for (; m->increase_due <= now; m->increase_due += (double)parameters.increase_period) {
		m->timer_stage++;
		model_increase(m);
	}
}

static void model_sent(struct model *m, double bytes)
{
	if (m->rate == 0)
		return;
	m->bytes_left -= bytes;
	if (m->bytes_left > 0)
		return;
	m->bytes_left = (double)parameters.increase_bytes;
	m->byte_stage++;
	model_increase(m);
}

static void model_cnp(struct model *m, double now)
{
	const double g = exp2(-(double)parameters.gain_shift);

	m->seen = true;
	if (m->rate == 0) {
		m->rate = LINE;
		m->alpha = 1;
	} else if (now - m->last_cut < (double)parameters.reduce_period) {
		return;
	}
	m->target = m->rate;
	m->rate = fmax(m->rate * (1 - m->alpha / 2),
		       fmin(m->target, (double)parameters.minimum_rate));
	m->alpha = (1 - g) * m->alpha + g;
	m->timer_stage = m->byte_stage = 0;
	m->bytes_left = (double)parameters.increase_bytes;
	m->alpha_due = now + (double)parameters.alpha_period;
	m->increase_due = now + (double)parameters.increase_period;
	m->last_cut = now;
}

static bool is_near(double is, double wanted)
{
	return fabs(is - wanted) <= wanted / 10000 + 4;
}

/* What it says is taken as the model's, so that differences of rounding do not add up. */
static void compare(struct model *m, uint64_t now)
{
	if (state.rate == 0) {
		cr_assert(m->rate == 0 || m->rate > LINE * 0.999, "at %llu: %f",
			  (unsigned long long)now, m->rate);
		m->rate = 0;
		return;
	}
	cr_assert(is_near((double)state.rate, m->rate), "at %llu: rate %llu, not %f",
		  (unsigned long long)now, (unsigned long long)state.rate, m->rate);
	cr_assert(is_near((double)state.target, m->target), "at %llu: target %llu, not %f",
		  (unsigned long long)now, (unsigned long long)state.target, m->target);
	/* Whole units; it may have decayed twice. */
	cr_assert(fabs(state.alpha / (double)CONGESTION_ALPHA_ONE - m->alpha) < 2.0 / 65536 + 1e-9,
		  "at %llu: alpha %u, not %f", (unsigned long long)now, state.alpha, m->alpha);
	m->rate = (double)state.rate;
	m->target = (double)state.target;
	m->alpha = state.alpha / (double)CONGESTION_ALPHA_ONE;
}

/* Spells with many CNPs, few, and none; with the byte counter as quick as the timer, and not. */
static void follow(unsigned int seed)
{
	struct model m = { 0 };
	uint64_t now = 1000;

	srand(seed);
	setup();
	parameters.gain_shift = 4 + seed % 5;
	if (seed % 3 == 0)
		parameters.alpha_period = parameters.reduce_period / 2;
	parameters.increase_bytes = seed % 2 ? 60000 : 400000;
	parameters.minimum_rate = LINE / 1000;
	parameters.hyper_rate = LINE / 400;
	for (unsigned int i = 0; i < 20000; i++) {
		const unsigned int spell = i / 500 % 4;
		const uint32_t bytes = 500 + (uint32_t)rand() % 4000;

		now += 1 + (uint64_t)rand() % 30000;
		if (spell && (unsigned int)rand() % (spell == 1 ? 3 : 100) == 0) {
			congestion_on_cnp(&state, &parameters, now);
			model_cnp(&m, (double)now);
			compare(&m, now);
		}
		congestion_may_send(&state, &parameters, now);
		model_wait(&m, (double)now);
		compare(&m, now);
		congestion_sent(&state, &parameters, bytes, now);
		model_sent(&m, bytes);
		compare(&m, now);
	}
}

Test(congestion, follows_the_formulas_of_the_paper)
{
	for (unsigned int seed = 0; seed < 10; seed++)
		follow(seed);
}
