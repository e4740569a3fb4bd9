/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chapters of a run. The first is what its seed draws; each later one is another world, drawn as
 * well and then bent to a theme. So any run meets all that can happen, and the next seed meets it
 * in another mixture.
 */
#include "config.h"
#include "sim.h"

#define SHARE_LEAST 400u /* frames of the shortest chapter */
#define SHARE_MOST  3000u

static void perfect(struct sim_config *c)
{
	c->loss = c->duplicate = c->reorder = c->corrupt = c->forge = c->unkept = 0;
	c->blackout_every_us = c->narrow_every_us = c->restart_every_us = 0;
	c->stall_every_us = 0;
}

/* Nothing that delays what an arrival sets off: see witness_unhindered(). */
static void unhindered(struct sim_config *c)
{
	c->transmit_room = c->mark = c->move_every_us = c->restart_every_us = 0;
	c->flights = 4096;
	c->line = 12500000000ull;
}

/* Of all kinds some, of none much. */
static void mild(struct sim_config *c, struct rng *rng)
{
	perfect(c);
	c->jitter_ns = rng_below(rng, 3000);
	c->reorder_ns = rng_between(rng, 2000, 100000);
	c->loss = rng_below(rng, 20000);
	c->duplicate = rng_between(rng, 10000, 100000);
	c->reorder = rng_below(rng, 30000);
	c->corrupt = rng_below(rng, 10000);
	c->forge = rng_between(rng, 5000, 40000);
	c->calm_us = c->storm_us = 0;
}

static void all_kinds(struct sim_config *c, struct rng *rng)
{
	for (uint32_t i = 0; i < KINDS; i++)
		c->weight[i] = rng_between(rng, 8, 20);
	c->windows = c->faults = true;
}

/* Lives so short that most of what happens is their end. */
static void short_lives(struct sim_config *c, struct rng *rng)
{
	all_kinds(c, rng);
	c->pairs = rng_between(rng, 5, 8);
	c->mtu = 256u << rng_below(rng, 3);
	c->largest = c->mtu * rng_between(rng, 2, 6);
	c->life = rng_between(rng, 2, 8);
	c->looses = 0;
}

/* --- themes ----------------------------------------------------------------------- */

static void faults_alone(struct sim_config *c, struct rng *rng)
{
	short_lives(c, rng);
	unhindered(c);
	perfect(c);
	c->shared_receives = false;
}

static void faults_in_trouble(struct sim_config *c, struct rng *rng)
{
	short_lives(c, rng);
	mild(c, rng);
	c->restart_every_us = 0;
}

static void shared_receives(struct sim_config *c, struct rng *rng)
{
	all_kinds(c, rng);
	if (rng_percent(rng, 50))
		perfect(c);
	c->shared_receives = true;
	c->late_receives = rng_between(rng, 2, 8);
	c->pairs = rng_between(rng, 3, 6);
	c->life = rng_between(rng, 10, 60);
	c->looses = 0;
}

/* In turns: all come, all come in order, anything. */
static void unreliable(struct sim_config *c, struct rng *rng)
{
	mild(c, rng);
	switch (rng_below(rng, 3)) {
	case 0: perfect(c); break;
	case 1:
		c->duplicate = c->reorder = 0;
		c->loss += 10000;
		break;
	default: break;
	}
	c->restart_every_us = 0;
	c->looses = SIM_LOOSE;
	c->polling = rng_between(rng, 20, 90);
	c->pairs = 1;
}

static void congested(struct sim_config *c, struct rng *rng)
{
	unhindered(c);
	if (rng_percent(rng, 60))
		perfect(c);
	c->mark = rng_between(rng, 300, rng_percent(rng, 50) ? 10000 : 200000);
	c->line = 1000000ull * rng_between(rng, 25, 1000);
	c->pairs = rng_between(rng, 1, 4);
	c->life = rng_between(rng, 50, 300);
}

static void moving(struct sim_config *c, struct rng *rng)
{
	all_kinds(c, rng);
	mild(c, rng);
	c->workers[0] = c->workers[1] = SIM_WORKERS;
	c->move_every_us = rng_between(rng, 1, rng_percent(rng, 60) ? 8 : 60);
	c->polling = rng_between(rng, 10, 70);
	c->flights = rng_between(rng, 8, 64);
	c->pairs = rng_between(rng, 2, 6);
	c->life = rng_between(rng, 20, 100);
	c->restart_every_us = 0;
}

static void dying(struct sim_config *c, struct rng *rng)
{
	short_lives(c, rng);
	mild(c, rng);
	c->life = rng_between(rng, 5, 40);
	c->restart_every_us = rng_between(rng, 200, 3000);
	c->transmit_room = 0;
}

/* What comes of one frame in some hundred, where nothing else hides it. */
static void one_trouble(struct sim_config *c, struct rng *rng)
{
	uint32_t *rate[] = { &c->loss, &c->duplicate, &c->reorder, &c->corrupt, &c->forge };

	all_kinds(c, rng);
	unhindered(c);
	perfect(c);
	c->calm_us = c->storm_us = 0;
	c->jitter_ns = 0;
	c->reorder_ns = rng_between(rng, 2000, 100000);
	*rate[rng_below(rng, 5)] = rng_between(rng, 3000, 40000);
	c->pairs = rng_between(rng, 1, 4);
	c->life = rng_between(rng, 30, 200);
	c->late_receives = rng_percent(rng, 30) ? 3 : 0;
}

/* Nothing goes wrong and nobody ends: so no timer may ever run out. */
static void undisturbed(struct sim_config *c, struct rng *rng)
{
	all_kinds(c, rng);
	unhindered(c);
	perfect(c);
	c->transmit_room = rng_percent(rng, 60) ? rng_between(rng, 1, 8) : 0;
	c->late_receives = rng_between(rng, 0, 20);
	c->shared_receives = rng_percent(rng, 20);
	c->polling = rng_between(rng, 10, 100);
	c->pairs = rng_between(rng, 1, 4);
	c->life = 0;
	c->looses = 0;
}

/* READs that take long, through windows that die meanwhile. */
static void broken_off(struct sim_config *c, struct rng *rng)
{
	all_kinds(c, rng);
	c->weight[KIND_READ] = 100;
	unhindered(c);
	if (rng_percent(rng, 50))
		perfect(c);
	else
		mild(c, rng);
	c->restart_every_us = 0;
	c->workers[0] = c->workers[1] = SIM_WORKERS;
	c->transmit_room = rng_percent(rng, 50) ? rng_between(rng, 2, 20) : 0;
	c->mtu = 256u << rng_below(rng, 2);
	c->pairs = rng_between(rng, 2, 6);
	c->largest = rng_between(rng, 1024, 8192);
	c->life = rng_between(rng, 20, 60);
	c->breaking = 60;
	c->looses = 0;
}

/* See turn.c: nobody has buffers, for longer than all tries of the shortest timeout take. */
static void stalling(struct sim_config *c, struct rng *rng)
{
	c->timeout = 8;
	c->transmit_room = rng_between(rng, 4, 40);
	c->stall_every_us = rng_between(rng, 500, 5000);
	c->stall_us = 40000;
}

/*
 * Requests of one packet, a few at a time: nothing is in their way, and what is lost is often the
 * last, of which a timer alone can tell.
 */
static void short_requests(struct sim_config *c, struct rng *rng)
{
	mild(c, rng);
	c->loss = rng_between(rng, 5000, 50000);
	if (rng_percent(rng, 70))
		c->restart_every_us = 0;
	for (uint32_t i = 0; i < KINDS; i++)
		c->weight[i] = rng_below(rng, 2);
	c->weight[KIND_SEND] = c->weight[KIND_WRITE] = 40;
	c->largest = rng_between(rng, 16, 300);
	c->single = 90;
	c->delay_ns = rng_between(rng, 500, 5000);
	c->posting = rng_between(rng, 1, 30);
	c->waiting = 70;
	c->pairs = rng_between(rng, 2, 6);
	c->life = rng_between(rng, 50, 300);
	c->windows = rng_percent(rng, 20);
	c->looses = 0;
	c->late_receives = rng_percent(rng, 40) ? 3 : 0;
	if (rng_percent(rng, 40) && c->restart_every_us == 0)
		stalling(c, rng);
}

/* --- all of them ------------------------------------------------------------------ */

/* Where much can happen in many ways, for longer. */
static const struct {
	void (*bend)(struct sim_config *c, struct rng *rng);
	uint32_t share;
} themes[] = {
	{ faults_alone, 4 },   { shared_receives, 1 },
	{ congested, 1 },      { unreliable, 2 },
	{ dying, 2 },          { one_trouble, 1 },
	{ short_requests, 2 }, { faults_in_trouble, 2 },
	{ moving, 1 },         { undisturbed, 1 },
	{ broken_off, 2 },
};
#define THEMES (sizeof(themes) / sizeof(themes[0]))
#define SHARES 19u

static uint32_t theme_of(uint64_t seed, uint32_t chapter)
{
	return (uint32_t)((seed + chapter) % THEMES);
}

void theme_apply(struct sim_config *c, struct rng *rng, uint32_t chapter)
{
	themes[theme_of(c->seed, chapter)].bend(c, rng);
}

uint64_t chapter_frames(uint64_t seed, uint64_t frames, uint32_t chapter)
{
	const uint64_t first = frames / 4, rest = frames - first;
	const uint64_t rounds = rest / (SHARES * SHARE_MOST) + 1;
	uint64_t share = rest / (rounds * SHARES), done = 0, next = first;

	if (share < SHARE_LEAST)
		share = SHARE_LEAST;
	for (uint32_t i = 1; i <= chapter; i++) {
		next = share * themes[theme_of(seed, i)].share;
		if (next > rest - done)
			next = rest - done;
		done += next;
	}
	/* What division leaves over is none. */
	return next < SHARE_LEAST / 4 && chapter ? 0 : next;
}
