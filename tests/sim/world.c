/* SPDX-License-Identifier: BSD-3-Clause */
/* The run: virtual time, turns of everybody in it, points where all is still and compared. */
#include <stdlib.h>

#include "loose.h"
#include "peek.h"
#include "sim.h"
#include "wire/icrc_method.h"

#define WRONG_ROUNDS                                                                 \
	3 /* unreliable queue pairs that end with a wrong request, one after another \
	   */

static unsigned int turn_workers(struct world *world)
{
	unsigned int done = 0, first = rng_below(&world->schedule, 2);

	for (unsigned int i = 0; i < 2; i++) {
		struct host *host = &world->host[(first + i) % 2];

		for (unsigned int k = 0; k < host->workers; k++)
			if (!rng_percent(&world->schedule, 10)) /* else it is slow */
				done += worker_turn(&host->worker[k]);
	}
	return done;
}

/* When something happens without anybody's doing; UINT64_MAX: never. */
static uint64_t next_event(const struct world *world)
{
	uint64_t next = network_next(world);

	for (int i = 0; i < 2; i++) {
		const struct host *host = &world->host[i];

		for (unsigned int k = 0; k < host->workers; k++) {
			uint64_t at =
				transport_next_deadline(host->worker[k].transport, world->now);

			if (host->worker[k].srq && host->worker[k].srq->hold > world->now &&
			    host->worker[k].srq->hold < at)
				at = host->worker[k].srq->hold;
			if (host->worker[k].arrived_head != host->worker[k].arrived_tail)
				at = world->now;
			if (at < next)
				next = at;
		}
	}
	for (uint32_t i = 0; i < world->config.pairs; i++) {
		const struct pair *pair = &world->pair[i];

		if (pair->state == PAIR_ENDING && pair->flush_at > world->now &&
		    pair->flush_at < next)
			next = pair->flush_at;
		for (int k = 0; k < 2 && pair->state != PAIR_GONE; k++)
			if (pair->end[k].hold_receives > world->now &&
			    pair->end[k].hold_receives < next)
				next = pair->end[k].hold_receives;
	}
	return next;
}

/* Of frames over which much can go wrong, those that are seldom as often as the others. */
static uint32_t draw_opcode(struct rng *rng)
{
	static const uint8_t opcode[] = { 0x02, 0x04, 0x05, 0x08, 0x0a, 0x0b, 0x0c, 0x0f, 0x10,
					  0x11, 0x12, 0x13, 0x14, 0x13, 0x14, 0x16, 0x17 };

	return opcode[rng_below(rng, sizeof(opcode))];
}

/* With the record of a token a bind begins, with that of its window it is nearly done. */
static void die_over_record(struct host *host, struct rng *rng)
{
	static const uint8_t table[] = { ARENA_TOKENS, ARENA_SEGMENTS, ARENA_REGIONS,
					 ARENA_WINDOWS };

	host->record_table = table[rng_below(rng, sizeof(table))];
	host->record_stores = rng_between(rng, 1, host->record_table == ARENA_TOKENS ? 14 : 5);
}

/*
 * Now and then a daemon dies: at once, somewhere within its next turns, over what registers memory,
 * or over the next frame of some kind.
 */
static void bring_death(struct world *world)
{
	struct rng *rng = &world->schedule;
	struct host *host = &world->host[rng_below(rng, 2)];

	if (world->config.restart_every_us == 0 || world->now < world->next_restart)
		return;
	world->next_restart =
		world->now + 1000ull * rng_between(rng, 1, 2 * world->config.restart_every_us);
	/* Whoever dies before any timer is due never gives up: now and then there is peace. */
	if (++world->deaths % 16 == 0)
		world->next_restart += 400000000;
	if (rng_percent(rng, 15))
		host_restart(host);
	else if (rng_percent(rng, 20))
		host->kill_in = rng_between(rng, 1, 60);
	else if (rng_percent(rng, 30))
		die_over_record(host, rng);
	else if (rng_percent(rng, 70))
		host->die_over = draw_opcode(rng);
	else
		host->stores_left = rng_between(rng, 1, 5000);
}

static void turn(struct world *world)
{
	unsigned int done = network_deliver(world);
	uint64_t next;

	bring_death(world);
	move_some(world);
	done += turn_workers(world);
	for (uint32_t i = 0; i < world->config.pairs; i++)
		done += pair_turn(&world->pair[i]);
	for (uint32_t i = 0; i < world->looses; i++)
		done += loose_turn(&world->loose[i]);
	if (done) {
		world->idle_turns = 0;
		world->now += rng_between(&world->schedule, 100, 3000);
		return;
	}
	next = next_event(world);
	if (++world->idle_turns > (next == UINT64_MAX && world->draining ? 50000 : 1000000))
		sim_fail(world, "nothing happens any more, and not all is done");
	/* After a second of silence nothing will come, and that has to be found out soon. */
	if (next == UINT64_MAX || next <= world->now)
		next = world->now + (world->now - world->spoken > 1000000000 ? 1000000 : 1000);
	world->now = next;
}

static bool all_still(const struct world *world)
{
	for (uint32_t i = 0; i < world->config.pairs; i++)
		if (!pair_is_still(&world->pair[i]))
			return false;
	for (uint32_t i = 0; i < world->looses && !world->closing; i++)
		if (!loose_is_still(&world->loose[i]))
			return false;
	return true;
}

/* Nothing is outstanding, and both know it. */
static void check_settled(const struct end *end)
{
	const struct arena *arena = &end->host->arena;
	const char *what = end->restarts ? NULL : peek_unsettled(arena, end->index);

	if (peek_oldest(arena, end->index) != end->next_psn)
		what = "its oldest PSN";
	if (peek_expected(arena, end->index) != end->peer->next_psn)
		what = "the PSN that it expects";
	if (what)
		sim_fail(end->pair->world, "pair %u end %u: all is still, and not %s",
			 end->pair->number, end->side, what);
}

static void compare(struct world *world)
{
	loose_settle(world);
	model_compare(world);
	for (uint32_t i = 0; i < world->config.pairs; i++) {
		if (world->pair[i].state != PAIR_ALIVE)
			continue;
		witness_told(&world->pair[i].end[0]);
		witness_told(&world->pair[i].end[1]);
		check_settled(&world->pair[i].end[0]);
		check_settled(&world->pair[i].end[1]);
	}
	for (int i = 0; i < 2; i++) {
		host_check_tokens(&world->host[i]);
		for (unsigned int k = 0; k < world->host[i].workers; k++)
			if (world->host[i].worker[k].srq)
				srq_check(world->host[i].worker[k].srq);
	}
}

/* Nothing new is posted; when everything has completed, all memory is compared. */
static void settle(struct world *world)
{
	world->draining = true;
	while (!all_still(world))
		turn(world);
	world->draining = false;
	sim_log(world, "all is still");
	compare(world);
}

/* What still flies is old and must not do anything. */
static void empty_network(struct world *world)
{
	world->draining = true;
	while (world->network.count || !all_still(world))
		turn(world);
	for (int i = 0; i < 100; i++)
		turn(world);
	compare(world);
}

/* Without trouble and without an end by force, nothing is ever sent twice. */
static void check_counters(struct world *world)
{
	uint64_t retransmits = 0, timeouts = 0, rnr = 0, naks = 0;

	for (int i = 0; i < 2; i++) {
		for (unsigned int k = 0; k < world->host[i].workers; k++) {
			const struct transport_stats *stats =
				transport_get_stats(world->host[i].worker[k].transport);

			retransmits += stats->retransmits;
			timeouts += stats->timeouts;
			rnr += stats->rx_rnr;
			naks += stats->tx_nak;
		}
	}
	/* Timers alone would do, and nobody would wait for them. */
	if (world->statistics.lost_alone > 500 && naks == 0 && world->statistics.restarts == 0)
		sim_fail(world, "%llu frames were lost, and nobody has reported a gap",
			 (unsigned long long)world->statistics.lost_alone);
	if (!config_is_perfect(&world->config) || world->statistics.lives > world->config.pairs)
		return;
	if (timeouts || (retransmits && rnr == 0))
		sim_fail(world, "a perfect network, and %llu timeouts, %llu frames sent again",
			 (unsigned long long)timeouts, (unsigned long long)retransmits);
}

static void end_loose(struct world *world, uint32_t number)
{
	loose_flush(&world->loose[number]);
	for (int turns = 0; !loose_is_flushed(&world->loose[number]); turns++) {
		turn(world);
		if (turns > 100000)
			sim_fail(world, "loose pair %u: its flush does not end", number);
	}
}

/* The next ones take the place of those that have failed. */
static void replace_loose(struct world *world)
{
	for (uint32_t i = 0; i < world->looses; i++) {
		struct loose *loose = &world->loose[i];

		end_loose(world, i);
		loose_settle_end(&loose->end[0]);
		loose_settle_end(&loose->end[1]);
		loose_close(loose);
		loose_open(world, i);
	}
}

/* The last request of those that live is one that must fail. */
static void fail_loose(struct world *world)
{
	for (uint32_t i = 0; i < world->looses; i++) {
		struct loose *loose = &world->loose[i];

		for (int k = 0; k < 2; k++) {
			struct loose_end *end = &loose->end[k];

			if (!loose_post_wrong(end))
				continue;
			for (int turns = 0; end->head != end->tail; turns++) {
				turn(world);
				if (turns > 100000)
					sim_fail(world,
						 "loose pair %u: a wrong request does not end", i);
			}
			if (qp_get_state(end->host->shared, end->index) != QP_ERROR)
				sim_fail(world, "loose pair %u end %d lives on", i, k);
		}
	}
}

static void close_loose(struct world *world)
{
	for (int round = 0; round < WRONG_ROUNDS; round++) {
		fail_loose(world);
		replace_loose(world);
	}
	for (uint32_t i = 0; i < world->looses; i++)
		end_loose(world, i);
	loose_settle(world);
	for (uint32_t i = 0; i < world->looses; i++)
		loose_close(&world->loose[i]);
	world->looses = 0;
	free(world->loose);
}

static void close_all(struct world *world)
{
	world->closing = true;
	for (uint32_t i = 0; i < world->config.pairs; i++)
		pair_flush(&world->pair[i]);
	while (!all_still(world))
		turn(world);
	close_loose(world);
	compare(world);
	network_destroy(world);
	host_destroy(&world->host[0]);
	host_destroy(&world->host[1]);
	if (world->buffers)
		sim_fail(world, "%u frames never came back", world->buffers);
	while (world->all_buffers) {
		struct sim_buffer *buffer = world->all_buffers;

		world->all_buffers = buffer->older;
		free(buffer);
	}
	free(world->pair);
}

/* Each way that this processor knows to make an ICRC, in turns. */
static void choose_icrc(const struct world *world)
{
	const struct icrc_method *methods[ICRC_METHODS];
	const unsigned int count = icrc_methods(methods);

	icrc_use(methods[(world->config.seed + world->config.chapter) % count]->name);
}

void world_run(struct world *world)
{
	const uint64_t seed = world->config.seed;

	choose_icrc(world);

	rng_seed(&world->traffic, seed, config_stream(&world->config, 2));
	rng_seed(&world->weather, seed, config_stream(&world->config, 3));
	rng_seed(&world->schedule, seed, config_stream(&world->config, 4));
	rng_seed(&world->parsing, seed, config_stream(&world->config, 5));
	world->now = 1000000;
	world->pair = calloc(world->config.pairs, sizeof(*world->pair));
	if (world->pair == NULL)
		sim_fail(world, "no memory");
	world->looses = world->config.looses;
	world->loose = calloc(world->looses + 1, sizeof(*world->loose));
	if (world->loose == NULL)
		sim_fail(world, "no memory");
	host_create(world, 0);
	host_create(world, 1);
	for (uint32_t i = 0; i < world->config.pairs; i++)
		pair_open(world, i);
	for (uint32_t i = 0; i < world->looses; i++)
		loose_open(world, i);
	/* Where all that is still possible are binds, no frames come any more. */
	while (world->statistics.frames < world->config.packets &&
	       world->statistics.requests < 50ull * world->config.packets) {
		if (world->statistics.frames >= world->next_quiet) {
			settle(world);
			world->next_quiet =
				world->statistics.frames + rng_between(&world->schedule, 100, 5000);
		}
		turn(world);
	}
	settle(world);
	check_counters(world);
	empty_network(world);
	close_all(world);
}
