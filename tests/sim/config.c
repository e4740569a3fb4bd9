/* SPDX-License-Identifier: BSD-3-Clause */
/* What one run is made of: drawn from its seed, then changed by the command line. */
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "sim.h"

/* --- drawing ---------------------------------------------------------------------- */

/* Networks from a perfect one to one that nobody would use. */
static void draw_network(struct sim_config *c, struct rng *rng)
{
	const uint32_t worst = rng_below(rng, 10);

	c->delay_ns = rng_between(rng, 500, 20000);
	if (worst < 2)
		return;
	c->jitter_ns = rng_below(rng, 10000);
	c->reorder_ns = rng_between(rng, 2000, 200000);
	if (worst < 6) { /* bad */
		c->loss = rng_below(rng, 20000);
		c->duplicate = rng_below(rng, 20000);
		c->reorder = rng_below(rng, 20000);
		c->corrupt = rng_below(rng, 10000);
		c->forge = rng_below(rng, 5000);
	} else { /* very bad */
		c->loss = rng_below(rng, worst == 9 ? 200001 : 80000);
		c->duplicate = rng_below(rng, 100000);
		c->reorder = rng_below(rng, 200000);
		c->corrupt = rng_below(rng, 50000);
		c->forge = rng_below(rng, 20000);
	}
	c->unkept = rng_percent(rng, 30) ? rng_below(rng, 50000) : 0;
	/* One kind of trouble alone shows what several together hide. */
	if (rng_percent(rng, 25)) {
		uint32_t *rate[] = { &c->loss, &c->duplicate, &c->reorder, &c->corrupt, &c->forge };
		const uint32_t keep = rng_below(rng, 5);

		for (uint32_t i = 0; i < 5; i++)
			if (i != keep)
				*rate[i] = 0;
	}
	if (rng_percent(rng, 50)) {
		c->calm_us = rng_between(rng, 1000, 100000);
		c->storm_us = rng_between(rng, 1000, 100000);
	}
	if (rng_percent(rng, 30)) {
		c->blackout_every_us = rng_between(rng, 5000, 200000);
		c->blackout_us = rng_between(rng, 50, 20000);
	}
	if (rng_percent(rng, 25)) {
		c->narrow_every_us = rng_between(rng, 5000, 200000);
		c->narrow_us = rng_between(rng, 50, 20000);
	}
}

static void draw_traffic(struct sim_config *c, struct rng *rng)
{
	const bool lossy = c->loss > 50000;

	for (uint32_t i = 0; i < KINDS; i++)
		c->weight[i] = rng_percent(rng, 15) ? 0 : rng_between(rng, 1, 20);
	if (rng_percent(rng, 20)) /* one kind most of the time */
		c->weight[rng_below(rng, KIND_BIND)] = 200;
	c->largest = rng_percent(rng, 50) ? rng_between(rng, 64, 8192)
					  : rng_between(rng, 8192, lossy ? 16384 : 90000);
	c->life = rng_percent(rng, 15) ? 0 : rng_between(rng, 10, rng_percent(rng, 60) ? 80 : 600);
	c->faults = rng_percent(rng, 80);
	c->late_receives = rng_percent(rng, 50) ? 3 : 0;
	c->polling = 70;
	c->posting = 60;
	c->breaking = 10;
	c->windows = rng_percent(rng, 85);
}

uint64_t config_stream(const struct sim_config *c, uint64_t stream)
{
	return stream + 1000ull * c->chapter;
}

void config_draw(struct sim_config *c, uint64_t seed, uint32_t chapter, uint64_t packets)
{
	struct rng rng;

	memset(c, 0, sizeof(*c));
	c->seed = seed;
	c->chapter = chapter;
	c->packets = packets;
	rng_seed(&rng, seed, config_stream(c, 1));
	draw_network(c, &rng);
	draw_traffic(c, &rng);
	c->workers[0] = rng_between(&rng, 1, SIM_WORKERS);
	c->workers[1] = rng_between(&rng, 1, SIM_WORKERS);
	c->pairs = rng_percent(&rng, 30) ? 1 : rng_between(&rng, 2, 8);
	if (rng_percent(&rng, 6))
		c->pairs = rng_between(&rng, 9, SIM_PAIRS);
	c->looses = rng_percent(&rng, 60) ? 0 : rng_between(&rng, 1, SIM_LOOSE);
	c->flights = rng_percent(&rng, 20) ? rng_between(&rng, 8, 64) : 4096;
	c->shared_cq = rng_percent(&rng, 40);
	if (rng_percent(&rng, 20))
		c->restart_every_us = rng_between(&rng, 200, rng_percent(&rng, 60) ? 4000 : 50000);
	if (rng_percent(&rng, 35))
		c->move_every_us = rng_between(&rng, 1, rng_percent(&rng, 50) ? 100 : 5000);
	c->line = 12500000000ull;
	if (rng_percent(&rng, 20)) {
		c->mark = rng_between(&rng, 1, rng_percent(&rng, 50) ? 3000 : 300000);
		if (rng_percent(&rng, 70))
			c->line = 1000000ull * rng_between(&rng, 25, 1000);
	}
	c->shared_receives = rng_percent(&rng, 30);
	c->transmit_room = rng_percent(&rng, 25) ? rng_between(&rng, 1, 40) : 0;
	if (chapter)
		theme_apply(c, &rng, chapter);
}

bool config_is_perfect(const struct sim_config *c)
{
	return c->loss == 0 && c->duplicate == 0 && c->reorder == 0 && c->corrupt == 0 &&
	       c->forge == 0 && c->unkept == 0 && c->blackout_every_us == 0 &&
	       c->narrow_every_us == 0 && c->restart_every_us == 0 && c->stall_every_us == 0;
}

/* --- from the command line -------------------------------------------------------- */

enum value_kind { VALUE_PERCENT, VALUE_NUMBER, VALUE_FLAG, VALUE_PURE };

static const struct {
	const char *name;
	enum value_kind kind;
	size_t place;
	uint32_t lowest, highest;
	const char *help;
} values[] = {
	{ "loss", VALUE_PERCENT, offsetof(struct sim_config, loss), 0, 0,
	  "% of frames that are lost" },
	{ "duplicate", VALUE_PERCENT, offsetof(struct sim_config, duplicate), 0, 0, "% doubled" },
	{ "reorder", VALUE_PERCENT, offsetof(struct sim_config, reorder), 0, 0, "% held back" },
	{ "corrupt", VALUE_PERCENT, offsetof(struct sim_config, corrupt), 0, 0,
	  "% with bits turned over" },
	{ "forge", VALUE_PERCENT, offsetof(struct sim_config, forge), 0, 0,
	  "% with headers changed and the ICRC made right" },
	{ "unkept", VALUE_PERCENT, offsetof(struct sim_config, unkept), 0, 0,
	  "% that the transport may not keep" },
	{ "delay", VALUE_NUMBER, offsetof(struct sim_config, delay_ns), 0, 1000000, "ns" },
	{ "jitter", VALUE_NUMBER, offsetof(struct sim_config, jitter_ns), 0, 1000000,
	  "ns, at most" },
	{ "blackout-every", VALUE_NUMBER, offsetof(struct sim_config, blackout_every_us), 0,
	  10000000, "us, mean; 0: never" },
	{ "blackout", VALUE_NUMBER, offsetof(struct sim_config, blackout_us), 0, 10000000,
	  "us, mean" },
	{ "mark", VALUE_PERCENT, offsetof(struct sim_config, mark), 0, 0,
	  "% of frames that are marked as congested; 0: no congestion control" },
	{ "move", VALUE_NUMBER, offsetof(struct sim_config, move_every_us), 0, 10000000,
	  "us, mean between two queue pairs that change workers; 0: never" },
	{ "narrow-every", VALUE_NUMBER, offsetof(struct sim_config, narrow_every_us), 0, 10000000,
	  "us, mean between spells where only short frames pass; 0: never" },
	{ "narrow", VALUE_NUMBER, offsetof(struct sim_config, narrow_us), 0, 10000000, "us, mean" },
	{ "restart", VALUE_NUMBER, offsetof(struct sim_config, restart_every_us), 0, 10000000,
	  "us, mean between two deaths of a daemon; 0: never" },
	{ "stall", VALUE_NUMBER, offsetof(struct sim_config, stall_every_us), 0, 10000000,
	  "us, mean between times when nobody can send anything; 0: never" },
	{ "calm", VALUE_NUMBER, offsetof(struct sim_config, calm_us), 0, 10000000,
	  "us, mean of spells without trouble; 0: none" },
	{ "storm", VALUE_NUMBER, offsetof(struct sim_config, storm_us), 0, 10000000,
	  "us, mean of what lies between them" },
	{ "pairs", VALUE_NUMBER, offsetof(struct sim_config, pairs), 1, SIM_PAIRS,
	  "of queue pairs" },
	{ "loose", VALUE_NUMBER, offsetof(struct sim_config, looses), 0, SIM_LOOSE,
	  "pairs of unreliable queue pairs, UC and UD" },
	{ "workers-a", VALUE_NUMBER, offsetof(struct sim_config, workers[0]), 1, SIM_WORKERS,
	  "of one host" },
	{ "workers-b", VALUE_NUMBER, offsetof(struct sim_config, workers[1]), 1, SIM_WORKERS,
	  "of the other" },
	{ "flights", VALUE_NUMBER, offsetof(struct sim_config, flights), 8, 65536,
	  "records of a host" },
	{ "mtu", VALUE_NUMBER, offsetof(struct sim_config, mtu), 0, 4096, "path MTU, bytes" },
	{ "timeout", VALUE_NUMBER, offsetof(struct sim_config, timeout), 0, 20, "code" },
	{ "retry", VALUE_NUMBER, offsetof(struct sim_config, retry_count), 0, 7, "count" },
	{ "largest", VALUE_NUMBER, offsetof(struct sim_config, largest), 1, 98304,
	  "bytes of a message" },
	{ "life", VALUE_NUMBER, offsetof(struct sim_config, life), 0, 1000000,
	  "requests of a queue pair before something ends it; 0: nothing does" },
	{ "faults", VALUE_FLAG, offsetof(struct sim_config, faults), 0, 1,
	  "wrong requests, 0 or 1" },
	{ "windows", VALUE_FLAG, offsetof(struct sim_config, windows), 0, 1,
	  "binds and invalidates, 0 or 1" },
	{ "shared-receives", VALUE_FLAG, offsetof(struct sim_config, shared_receives), 0, 1,
	  "0 or 1" },
	{ "late-receives", VALUE_NUMBER, offsetof(struct sim_config, late_receives), 0, 100,
	  "% of turns after which for a while none are posted" },
	{ "polling", VALUE_NUMBER, offsetof(struct sim_config, polling), 1, 100,
	  "% of turns in which a client takes its completions" },
	{ "perfect", VALUE_PURE, 0, 0, 0, "1: nothing is lost, doubled, held back or changed" },
};
#define VALUES (sizeof(values) / sizeof(values[0]))

const char *config_name(unsigned int i, const char **help)
{
	if (i >= VALUES)
		return NULL;
	*help = values[i].help;
	return values[i].name;
}

static void make_perfect(struct sim_config *c)
{
	c->loss = c->duplicate = c->reorder = c->corrupt = c->forge = c->unkept = 0;
	c->blackout_every_us = c->narrow_every_us = c->restart_every_us = 0;
	c->stall_every_us = 0;
}

bool config_set(struct sim_config *c, const char *name, const char *text)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || value < 0)
		return false;
	for (unsigned int i = 0; i < VALUES; i++) {
		uint8_t *place = (uint8_t *)c + values[i].place;

		if (strcmp(name, values[i].name) != 0)
			continue;
		switch (values[i].kind) {
		case VALUE_PERCENT: *(uint32_t *)(void *)place = (uint32_t)(value * 10000); break;
		case VALUE_NUMBER:
			if (value < values[i].lowest || value > values[i].highest)
				return false;
			*(uint32_t *)(void *)place = (uint32_t)value;
			break;
		case VALUE_FLAG: *(bool *)place = value != 0; break;
		case VALUE_PURE:
			if (value != 0)
				make_perfect(c);
			break;
		}
		return true;
	}
	return false;
}
