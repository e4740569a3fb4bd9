/* SPDX-License-Identifier: BSD-3-Clause */
/* Which wrong request comes next: each kind before any comes again, as far as it can be made. */
#include "sim.h"

/* Of those that can be made in several ways more than one. */
static void refill(struct fault_deck *deck)
{
	static const uint8_t ways[FAULT_COUNT] = {
		[FAULT_RANGE] = 4,         [FAULT_RIGHT] = 4,
		[FAULT_DOMAIN] = 2,        [FAULT_INVALIDATE_TOKEN] = 3,
		[FAULT_FAST_REGISTER] = 5, [FAULT_DEAD_INVALIDATE] = 2,
		[FAULT_UNKNOWN_TOKEN] = 2, [FAULT_SGE_TOKEN] = 2,
		[FAULT_WIRE_LENGTH] = 3,   [FAULT_SGE_RANGE] = 4,
		[FAULT_WIRE_SEQUENCE] = 3, [FAULT_WIRE_SILENT] = 3,
		[FAULT_WIRE_RESPONSE] = 3, [FAULT_ALIGNMENT] = 2,
		[FAULT_TIED] = 2,          [FAULT_DEAD_TOKEN] = 4,
		[FAULT_NO_RECEIVE] = 2,    [FAULT_LOCAL_TOKEN] = 3,
		[FAULT_BIND_RIGHT] = 2,    [FAULT_SGE_RIGHT] = 3,
	};

	for (uint32_t i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
		deck->left[i] = (uint8_t)(deck->left[i] + (ways[i] ? ways[i] : 1));
}

static bool has_window(const struct end *end, enum window_state state)
{
	for (uint32_t i = 0; i < SIM_WINDOWS; i++)
		if (end->window[i].state == state && !end->window[i].fast)
			return true;
	return false;
}

static bool lacks_right(const struct end *owner)
{
	for (uint32_t i = 0; i < SIM_WINDOWS; i++)
		if (fault_lacks_right(&owner->window[i]))
			return true;
	return false;
}

/* What few queue pairs can do wrong. */
static bool possible_now(struct end *end, enum fault fault)
{
	uint64_t unused;

	switch (fault) {
	/* Until the receives that are there have been used up. */
	case FAULT_NO_RECEIVE: return end->pair->strict;
	case FAULT_READS_NONE: return end->connection.max_reads_out == 0;
	case FAULT_QP_RIGHT: return end->peer->connection.remote_rights != RIGHTS_REMOTE;
	case FAULT_RIGHT: return lacks_right(end->peer);
	case FAULT_BIND_BOUND: return has_window(end, WINDOW_FREE) && has_window(end, WINDOW_BOUND);
	case FAULT_TIED: return fault_foreign_tied(end) != NULL;
	case FAULT_INVALIDATE_TOKEN: return fault_succeeded(end) != 0;
	case FAULT_SGE_RIGHT: return fault_read_only(end, 1, &unused) != 0;
	case FAULT_RECEIVE_TOKEN:
	case FAULT_RECEIVE_SHAPE: return !end->peer->srq && !receive_waiting(end->peer);
	case FAULT_FAST_REGISTER: return end->window[0].fast && end->window[0].state == WINDOW_FREE;
	case FAULT_BIND_RIGHT:
	case FAULT_BIND_DOMAIN: return has_window(end, WINDOW_FREE);
	default: return end->window[0].fast;
	}
}

static enum fault seldom_possible(struct end *end)
{
	static const enum fault seldom[] = {
		FAULT_NO_RECEIVE,       FAULT_READS_NONE,  FAULT_QP_RIGHT,      FAULT_RIGHT,
		FAULT_BIND_RIGHT,       FAULT_BIND_DOMAIN, FAULT_BIND_BOUND,    FAULT_FAST_REGISTER,
		FAULT_SGE_TOKEN,        FAULT_TIED,        FAULT_RECEIVE_TOKEN, FAULT_RECEIVE_SHAPE,
		FAULT_INVALIDATE_TOKEN,
	};
	const struct fault_deck *deck = end->pair->world->deck;
	const uint32_t count = sizeof(seldom) / sizeof(seldom[0]);
	const uint32_t start = rng_below(&end->pair->world->traffic, count);

	if (deck->left[FAULT_SGE_RIGHT] && possible_now(end, FAULT_SGE_RIGHT))
		return FAULT_SGE_RIGHT;
	for (uint32_t i = 0; i < count; i++) {
		const enum fault fault = seldom[(start + i) % count];

		if (deck->left[fault] && possible_now(end, fault))
			return fault;
	}
	return FAULT_NONE;
}

/* Any of those that are left. */
enum fault fault_draw(struct end *end)
{
	struct fault_deck *deck = end->pair->world->deck;
	struct rng *rng = &end->pair->world->traffic;
	const enum fault seldom = seldom_possible(end);
	uint32_t sum = 0, pick;

	if (end->pair->no_receives && rng_percent(rng, 80))
		return FAULT_NO_RECEIVE;
	if (deck->left[seldom] && rng_percent(rng, 60))
		return seldom;
	for (uint32_t i = 0; i < FAULT_COUNT; i++)
		sum += deck->left[i];
	/* Or what is left can never be made here. */
	if (sum == 0 || rng_percent(rng, 3)) {
		refill(deck);
		return FAULT_NONE;
	}
	pick = rng_below(rng, sum);
	for (uint32_t i = 0;; i++) {
		if (pick < deck->left[i])
			return (enum fault)i;
		pick -= deck->left[i];
	}
}
