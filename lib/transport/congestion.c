/* SPDX-License-Identifier: BSD-3-Clause */
/* DCQCN: how fast a queue pair may send after its peer has reported congestion. */
#include "transport/congestion.h"

#define SECOND        1000000000ull
#define INITIAL_ALPHA CONGESTION_ALPHA_ONE
#define SLACK         20000ull  /* ns */
#define MEGABIT       125000ull /* bytes per second */
/* So many missed timer events are made good at once; after that the rate is back at the line. */
#define CATCH_UP 256u

void congestion_defaults(struct congestion_parameters *parameters, uint64_t line_rate)
{
	*parameters = (struct congestion_parameters){
		.enabled = true,
		.gain_shift = 8,
		.recovery_stages = 5,
		.line_rate = line_rate,
		.minimum_rate = 100 * MEGABIT,
		.additive_rate = 40 * MEGABIT,
		.hyper_rate = 400 * MEGABIT,
		.alpha_period = 55000,
		.increase_period = 55000,
		.increase_bytes = 10000000,
		.reduce_period = 50000,
		.cnp_interval = 50000,
		.cnp_dscp = 48,
	};
}

bool congestion_on_cnp(struct congestion *congestion,
		       const struct congestion_parameters *parameters, uint64_t now)
{
	uint64_t cut;

	if (!parameters->enabled)
		return false;
	if (!congestion->rate) {
		congestion->rate = parameters->line_rate;
		congestion->target = parameters->line_rate;
		congestion->alpha = INITIAL_ALPHA;
		congestion->next_send = now;
	} else if (now - congestion->last_cut < parameters->reduce_period) {
		congestion->cnp_seen = 1;
		return false;
	}
	congestion->target = congestion->rate;
	cut = (congestion->rate >> 16) * congestion->alpha / 2 +
	      ((congestion->rate & 0xffff) * congestion->alpha >> 17);
	congestion->rate -= cut;
	if (congestion->rate < parameters->minimum_rate)
		congestion->rate = parameters->minimum_rate;
	/* A line may be slower than that. */
	if (congestion->rate > congestion->target)
		congestion->rate = congestion->target;
	congestion->last_cut = now;
	congestion->cnp_seen = 1;
	congestion->timer_stage = 0;
	congestion->byte_stage = 0;
	congestion->bytes_left = parameters->increase_bytes;
	congestion->increase_due = now + parameters->increase_period;
	congestion->alpha_due = now + parameters->alpha_period;
	/* alpha rises with the CNP: (1 - g) alpha + g. */
	congestion->alpha += (CONGESTION_ALPHA_ONE - congestion->alpha) >> parameters->gain_shift;
	return true;
}

/* One event of the timer or of the byte counter; the stages say which phase holds. */
static void increase(struct congestion *congestion, const struct congestion_parameters *parameters)
{
	uint32_t f = parameters->recovery_stages;
	uint32_t low = congestion->timer_stage < congestion->byte_stage ? congestion->timer_stage
									: congestion->byte_stage;
	uint32_t high = congestion->timer_stage > congestion->byte_stage ? congestion->timer_stage
									 : congestion->byte_stage;

	if (low > f)
		congestion->target += parameters->hyper_rate * (low - f);
	else if (high > f)
		congestion->target += parameters->additive_rate;
	if (congestion->target > parameters->line_rate)
		congestion->target = parameters->line_rate;
	congestion->rate = (congestion->rate + congestion->target) / 2;
	/* Halving the distance never ends by itself: the last per mille counts as arrived. */
	if (congestion->rate >= parameters->line_rate - parameters->line_rate / 1024)
		congestion->rate = 0;
}

static void count_stage(uint8_t *stage)
{
	if (*stage < UINT8_MAX)
		(*stage)++;
}

static void advance_alpha(struct congestion *congestion,
			  const struct congestion_parameters *parameters, uint64_t now)
{
	for (unsigned int i = 0; i < CATCH_UP && now >= congestion->alpha_due; i++) {
		if (!congestion->cnp_seen)
			congestion->alpha -= congestion->alpha >> parameters->gain_shift;
		congestion->cnp_seen = 0;
		congestion->alpha_due += parameters->alpha_period;
	}
	if (now >= congestion->alpha_due)
		congestion->alpha_due = now + parameters->alpha_period;
}

static void advance_rate(struct congestion *congestion,
			 const struct congestion_parameters *parameters, uint64_t now)
{
	for (unsigned int i = 0;
	     i < CATCH_UP && congestion->rate && now >= congestion->increase_due; i++) {
		count_stage(&congestion->timer_stage);
		increase(congestion, parameters);
		congestion->increase_due += parameters->increase_period;
	}
	if (congestion->rate && now >= congestion->increase_due)
		congestion->increase_due = now + parameters->increase_period;
}

bool congestion_may_send(struct congestion *congestion,
			 const struct congestion_parameters *parameters, uint64_t now)
{
	if (!congestion->rate)
		return true;
	advance_alpha(congestion, parameters, now);
	advance_rate(congestion, parameters, now);
	return !congestion->rate || now >= congestion->next_send;
}

void congestion_sent(struct congestion *congestion, const struct congestion_parameters *parameters,
		     uint32_t bytes, uint64_t now)
{
	uint64_t from;

	if (!congestion->rate)
		return;
	/*
	 * A worker comes round a little late each time, which must not cost rate; but time not used
	 * does not add up, so a queue pair that paused does not burst afterwards.
	 */
	from = now > congestion->next_send + SLACK ? now : congestion->next_send;
	congestion->next_send = from + bytes * SECOND / congestion->rate;
	if (congestion->bytes_left > bytes) {
		congestion->bytes_left -= bytes;
		return;
	}
	congestion->bytes_left = parameters->increase_bytes;
	count_stage(&congestion->byte_stage);
	increase(congestion, parameters);
}

bool congestion_answer_mark(struct congestion *congestion,
			    const struct congestion_parameters *parameters, uint64_t now)
{
	if (!parameters->enabled ||
	    (congestion->last_cnp && now - congestion->last_cnp < parameters->cnp_interval))
		return false;
	congestion_cnp_sent(congestion, now);
	return true;
}

void congestion_cnp_sent(struct congestion *congestion, uint64_t now)
{
	congestion->last_cnp = now ? now : 1;
}
