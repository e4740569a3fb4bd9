/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: bound and invalidated by their owner or by the peer's SEND.
 *
 * One window of each end lies over the strip, which nothing else reaches. It is invalidated
 * while the peer uses it; from the completion on not a byte of the strip may change.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define LEAST_LENGTH 16u /* an aligned word fits in */

static void create_fast(struct end *end, struct sim_window *window)
{
	struct memory *memory = end->host->memory;

	if (region_create(memory, SIM_SESSION, end->host->pd, true, &window->index) ||
	    region_init_fast_register(memory, window->index, FAST_PAGES, true, &window->local_token,
				      &window->token))
		sim_fail(end->pair->world, "no region for host %u", end->host->number);
}

void window_create_all(struct end *end)
{
	for (uint32_t i = 0; i <= SIM_WINDOWS; i++) {
		struct sim_window *window = &end->window[i];

		memset(window, 0, sizeof(*window));
		window->owner = end;
		window->strip = i == SIM_WINDOWS;
		window->fast = i == 0 && rng_percent(&end->pair->world->traffic, 60);
		if (window->fast)
			create_fast(end, window);
		else if (window_create(end->host->memory, SIM_SESSION, end->host->pd,
				       &window->index))
			sim_fail(end->pair->world, "no window for host %u", end->host->number);
	}
}

static int destroy_one(struct memory *memory, const struct sim_window *window, uint64_t *grace)
{
	return window->fast ? region_deregister(memory, window->index, grace)
			    : window_destroy(memory, window->index, grace);
}

static void finish_one(struct memory *memory, const struct sim_window *window)
{
	if (!window->fast) {
		window_destroy_finish(memory, window->index);
		return;
	}
	region_deregister_finish(memory, window->index);
	region_destroy(memory, window->index);
}

/* Between the turns of all workers, so their grace is at hand. */
void window_destroy_all(struct end *end)
{
	struct memory *memory = end->host->memory;

	for (uint32_t i = 0; i <= SIM_WINDOWS; i++) {
		uint64_t grace;

		if (destroy_one(memory, &end->window[i], &grace))
			sim_fail(end->pair->world, "window %u cannot be destroyed",
				 end->window[i].index);
		for (unsigned int k = 0; k < end->host->workers; k++) {
			memory_quiescent(memory, k);
			end->host->worker[k].turns++;
		}
		if (!memory_grace_done(memory, grace))
			sim_fail(end->pair->world, "the grace period of a window does not end");
		finish_one(memory, &end->window[i]);
		if (end->window[i].echo)
			buffer_return(end->pair->world, end->window[i].echo);
		free(end->window[i].seen);
	}
}

/* The end in whose memory it lies. */
static struct end *window_place(const struct sim_window *window)
{
	if (window->lent == NULL)
		return window->owner;
	return window->lent->life == window->lent_life ? window->lent : NULL;
}

/* Cancelled requests count: they may still be on their way, while a queue pair takes them. */
bool window_in_use(const struct sim_window *window)
{
	const struct end *place = window_place(window), *user;

	if (place == NULL)
		return false;
	user = place->peer;
	if (place->flushed && user->flushed)
		return false;
	for (uint32_t i = user->oldest; i != user->tail; i++)
		if (user->op[i % SIM_RING]->window == window ||
		    user->op[i % SIM_RING]->held == window)
			return true;
	return false;
}

bool windows_lent(struct end *end)
{
	bool used = false;

	for (uint32_t i = 0; i < SIM_WINDOWS; i++) {
		struct sim_window *window = &end->window[i];

		if (window->lent == NULL)
			continue;
		if (window->state == WINDOW_BOUND)
			window->state = WINDOW_ENDING;
		used |= window_in_use(window);
	}
	return used;
}

static bool usable(const struct sim_window *window, const struct end *place, uint32_t rights,
		   uint32_t length)
{
	const bool lives =
		window->state == WINDOW_BOUND || (window->strip && window->state == WINDOW_ENDING);

	return lives && !window->own && window_place(window) == place &&
	       (rights & ~window->rights) == 0 && length <= window->length;
}

/* One that another pair's end has bound over this one's memory. */
static struct sim_window *pick_lent(struct end *end, uint32_t rights, uint32_t length)
{
	struct world *world = end->pair->world;
	const uint32_t start = rng_below(&world->traffic, world->config.pairs);

	for (uint32_t i = 0; i < world->config.pairs; i++) {
		struct pair *pair = &world->pair[(start + i) % world->config.pairs];

		for (uint32_t k = 0; k < SIM_WINDOWS && pair->state == PAIR_ALIVE; k++) {
			struct sim_window *window = &pair->end[end->side].window[k];

			if (window->lent && usable(window, end, rights, length))
				return window;
		}
	}
	return NULL;
}

struct sim_window *window_pick(struct end *end, uint32_t rights, uint32_t length)
{
	const uint32_t start = rng_below(&end->pair->world->traffic, SIM_WINDOWS + 1);

	if (rng_percent(&end->pair->world->traffic, 30)) {
		struct sim_window *window = pick_lent(end, rights, length);

		if (window)
			return window;
	}
	for (uint32_t i = 0; i <= SIM_WINDOWS; i++) {
		struct sim_window *window = &end->window[(start + i) % (SIM_WINDOWS + 1)];

		if (usable(window, end, rights, length))
			return window;
	}
	return NULL;
}

/* --- the strip -------------------------------------------------------------------- */

static void begin_watch(struct sim_window *window)
{
	const uint8_t *strip = window->owner->host->bytes + window->owner->strip;

	if (window->seen == NULL)
		window->seen = malloc(AREA_STRIP);
	if (window->seen == NULL)
		abort();
	memcpy(window->seen, strip, AREA_STRIP);
	window->watched = true;
}

void window_watch(struct end *end)
{
	const struct sim_window *window = &end->window[SIM_WINDOWS];

	if (!window->watched)
		return;
	end->pair->world->statistics.strip_checks++;
	if (memcmp(window->seen, end->host->bytes + end->strip, AREA_STRIP) != 0)
		sim_fail(end->pair->world,
			 "pair %u end %u: memory changed through a window after its invalidate "
			 "had completed",
			 end->pair->number, end->side);
}

/* Requests that use it may fail from now on. */
static void take_away(struct end *end, const struct sim_window *window)
{
	struct end *user = end->peer;

	for (uint32_t i = user->oldest; i != user->tail; i++) {
		struct op *op = user->op[i % SIM_RING];

		if (op->window == window)
			op->may_fail = true;
	}
}

/* --- completions ------------------------------------------------------------------ */

void window_note_turns(const struct host *host, uint64_t turns[SIM_WORKERS], uint32_t *generation)
{
	for (unsigned int i = 0; i < host->workers; i++)
		turns[i] = host->worker[i].turns;
	*generation = host->generation + host->moves + 1;
}

/* Every other worker has been in a quiescent state since the token died, or earlier. */
void window_check_grace(const struct end *end, const struct sim_window *window,
			const uint64_t turns[SIM_WORKERS], uint32_t generation)
{
	const struct host *host = end->host;

	if (generation != host->generation + host->moves + 1)
		return;
	/* Not at once: they have no turn within that of another. */
	if (host->workers > 1 && host->worker[end->worker].turns - turns[end->worker] < 2)
		sim_fail(host->world, "pair %u end %u: token %08x is said to be dead at once",
			 end->pair->number, end->side, window->token);
	for (unsigned int i = 0; i < host->workers; i++)
		if (i != end->worker && host->worker[i].turns == turns[i])
			sim_fail(host->world,
				 "pair %u end %u: token %08x is said to be dead, and worker %u may "
				 "still be using it",
				 end->pair->number, end->side, window->token, i);
}

void window_invalidated(struct sim_window *window)
{
	struct host *host = window->owner->host;

	if (!window->fast)
		host->dead[host->deads++ % SIM_DEAD] =
			(struct dead_window){ window->token, window->rights, window->offset,
					      window->length, host_newest_token(host) };
	host_check_returned(host);
	window->state = WINDOW_FREE;
	if (window->echo)
		network_echo(host->world, window);
	if (window->strip)
		begin_watch(window);
}

void window_completed(struct end *end, struct op *op, bool success)
{
	struct sim_window *window = op->window;

	if (window == NULL)
		return;
	window->owner->elsewhere -= op->elsewhere;
	if (op->kind == KIND_BIND && success) {
		window->state = WINDOW_BOUND;
	} else if (op->kind == KIND_BIND) {
		/* It has not happened: the token is as good as before. */
		window->state = WINDOW_FREE;
		if (!window->fast)
			token_list_add(&end->host->stock, window->token);
	} else if (success) {
		if (!window->tied || op->elsewhere)
			window_check_grace(end, window, window->asked, window->asked_generation);
		window_invalidated(window);
	} else {
		window->state = WINDOW_BOUND;
	}
}

/* --- requests --------------------------------------------------------------------- */

static uint32_t bind_flags(const struct sim_window *window)
{
	uint32_t flags = window->tied ? SHM_FLAG_TIE_TO_QP : 0;

	if (window->rights & RIGHT_REMOTE_READ)
		flags |= SHM_FLAG_ALLOW_REMOTE_READ;
	if (window->rights & RIGHT_REMOTE_WRITE)
		flags |= SHM_FLAG_ALLOW_REMOTE_WRITE;
	if (window->rights & RIGHT_REMOTE_ATOMIC)
		flags |= SHM_FLAG_ALLOW_REMOTE_ATOMIC;
	return flags;
}

/* Sometimes to another pair: any queue pair of the domain may use it. */
static void lend(struct end *end, struct sim_window *window)
{
	struct world *world = end->pair->world;
	struct pair *pair = &world->pair[rng_below(&world->traffic, world->config.pairs)];

	if (window->tied || pair == end->pair || pair->state != PAIR_ALIVE ||
	    end->pair->state != PAIR_ALIVE)
		return;
	window->lent = &pair->end[end->side];
	window->lent_life = window->lent->life;
}

static void choose_range(struct end *end, struct sim_window *window)
{
	struct rng *rng = &end->pair->world->traffic;
	uint32_t target;

	window->tied = !window->fast && rng_percent(rng, 50);
	window->lent = NULL;
	window->own = window->fast && rng_percent(rng, 50);
	if (window->own) {
		window->rights = 0;
		window->offset = rng_percent(rng, 65) ? end->source : end->sink;
		window->length = AREA_SOURCE;
		return;
	}
	if (window->strip) {
		window->rights = RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE;
		window->offset = end->strip;
		window->length = AREA_STRIP;
		return;
	}
	window->rights = (rng_percent(rng, window->fast ? 20 : 40) ? 7 : rng_below(rng, 8)) *
			 RIGHT_REMOTE_READ;
	window->length = rng_percent(rng, 50) ? rng_between(rng, LEAST_LENGTH, 1024)
					      : rng_between(rng, LEAST_LENGTH, AREA_TARGET);
	lend(end, window);
	target = window->lent ? window->lent->target : end->target;
	window->offset = target + rng_below(rng, AREA_TARGET - window->length + 1);
}

/* Of a fast-register region. Where the first byte lies is said twice: for peers, and in the memfd.
 */
static void register_instead(const struct end *end, struct op *op, const struct sim_window *window)
{
	op->sqe.opcode = SHM_WR_FAST_REGISTER;
	op->sqe.mr = window->index;
	op->sqe.mw = 0;
	op->sqe.compare = end->host->segment;
	op->sqe.swap = window->offset;
	if ((window->rights & (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC)) ||
	    (window->own && window->offset == end->sink))
		op->sqe.flags |= SHM_FLAG_ALLOW_LOCAL_WRITE;
}

struct op *window_bind_op(struct end *end, struct sim_window *window)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		abort();
	choose_range(end, window);
	if (!window->fast)
		window->token = host_take_token(end->host);
	window->state = WINDOW_BINDING;
	window->watched = false;
	op->kind = KIND_BIND;
	op->window = window;
	op->silent = rng_percent(rng, 30);
	op->sqe = (struct shm_sqe){
		.opcode = SHM_WR_BIND,
		.flags = bind_flags(window) | (op->silent ? SHM_FLAG_SILENT_SUCCESS : 0) |
			 (rng_percent(rng, 20) ? SHM_FLAG_READ_FENCE : 0),
		.address = host_address(end->host, window->offset),
		.length = window->length,
		.token = window->token,
		.mr = end->host->region,
		.mw = window->index,
	};
	if (window->fast)
		register_instead(end, op, window);
	return op;
}

static struct op *invalidate_op(struct end *end, struct sim_window *window)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		abort();
	window->state = WINDOW_ENDING;
	window_note_turns(end->host, window->asked, &window->asked_generation);
	op->kind = KIND_INVALIDATE;
	op->window = window;
	op->silent = !window->strip && rng_percent(rng, 30);
	op->sqe = (struct shm_sqe){
		.opcode = SHM_WR_INVALIDATE,
		.flags = op->silent ? SHM_FLAG_SILENT_SUCCESS : 0,
		.token = window->token,
		.mr = window->fast ? window->index : 0,
		.mw = window->fast ? 0 : window->index,
	};
	return op;
}

/* The strip's window is only taken away in use, and only when nothing else is to end the pair. */
static bool may_invalidate(struct end *end, const struct sim_window *window)
{
	const bool used = window_in_use(window);

	if (!window->strip)
		return !used;
	return used && !end->pair->armed && end->pair->life != UINT32_MAX;
}

/* Any queue pair of the domain may do it: now and then, one that may live on another worker. */
static struct end *choose_other(struct end *end)
{
	struct world *world = end->pair->world;
	struct end *found = end;

	/* One with nothing in hand, if it can be: that says at once when it is done. */
	for (int tries = 0; tries < 3 && (found == end || found->head != found->tail); tries++) {
		struct pair *pair = &world->pair[rng_below(&world->traffic, world->config.pairs)];
		struct end *other = &pair->end[end->side];

		if (pair->state == PAIR_ALIVE && pair != end->pair &&
		    end->pair->state == PAIR_ALIVE && !other->fault && !other->failed &&
		    !other->flush_asked && traffic_room(other))
			found = other;
	}
	return found;
}

static void post_invalidate(struct end *end, struct sim_window *window, bool midway)
{
	struct end *by = end;
	struct op *op;

	/* What a region lends to its owner's requests only their own queue pair minds. */
	if (!window->own && rng_percent(&end->pair->world->traffic, midway ? 70 : 20))
		by = choose_other(end);
	op = invalidate_op(end, window);
	op->elsewhere = by != end;
	end->elsewhere += op->elsewhere;
	traffic_post(by, op);
	if (window->strip)
		take_away(end, window);
}

/* The answer to a READ of it is under way: what is left of that is to be refused. */
static bool is_being_read(const struct sim_window *window)
{
	const struct end *user = window->owner->peer;

	for (uint32_t i = user->head; i != user->tail; i++) {
		const struct op *op = user->op[i % SIM_RING];

		if (op->window == window && witness_in_answer(user, op))
			return true;
	}
	return false;
}

unsigned int window_break_off(struct end *end)
{
	struct sim_window *strip = &end->window[SIM_WINDOWS];

	if (strip->state != WINDOW_BOUND || end->fault || !is_being_read(strip) ||
	    rng_percent(&end->pair->world->traffic, 50) || !may_invalidate(end, strip))
		return 0;
	post_invalidate(end, strip, true);
	return 1;
}

/* Lives are short: what is free is soon bound again. */
static unsigned int bind_some(struct end *end)
{
	unsigned int done = 0;

	for (uint32_t i = 0; i <= SIM_WINDOWS; i++) {
		if (end->window[i].state != WINDOW_FREE || !traffic_room(end) ||
		    !rng_percent(&end->pair->world->traffic, 30))
			continue;
		window_watch(end);
		traffic_post(end, window_bind_op(end, &end->window[i]));
		done++;
	}
	return done;
}

unsigned int window_turn(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct sim_window *window = &end->window[rng_below(rng, SIM_WINDOWS + 1)];

	/* Behind a wrong request, one by one. */
	if (end->fault == NULL && rng_percent(rng, 50))
		return bind_some(end);
	if (window->state == WINDOW_FREE && rng_percent(rng, 30)) {
		window_watch(end);
		traffic_post(end, window_bind_op(end, window));
		return 1;
	}
	if (window->state == WINDOW_BOUND && rng_percent(rng, window->strip ? 4 : 10) &&
	    may_invalidate(end, window)) {
		post_invalidate(end, window, false);
		return 1;
	}
	return 0;
}
