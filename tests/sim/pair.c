/* SPDX-License-Identifier: BSD-3-Clause */
/* A pair of queue pairs: connected, used, brought to an end, replaced by the next. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* --- opening ---------------------------------------------------------------------- */

static uint32_t draw_psn(struct rng *rng)
{
	switch (rng_below(rng, 4)) {
	case 0: return rng_below(rng, 1 << 24);
	case 1: return 0x800000 - rng_below(rng, 200);
	default: return (0x1000000 - rng_below(rng, 300)) & 0xffffff;
	}
}

static uint32_t draw_rights(struct rng *rng)
{
	return (rng_percent(rng, 70) ? 7 : rng_below(rng, 8)) * RIGHT_REMOTE_READ;
}

/* Both ends know the same of timers; a network without losses needs none. */
static void draw_timers(struct pair *pair, struct qp_connection *c)
{
	const struct sim_config *config = &pair->world->config;
	struct rng *rng = &pair->world->traffic;
	const bool perfect = config_is_perfect(config);

	c->timeout = (uint8_t)rng_between(rng, perfect ? 12 : 8, perfect ? 15 : 11);
	if (perfect && rng_percent(rng, 20))
		c->timeout = 0;
	if (config->timeout)
		c->timeout = (uint8_t)config->timeout;
	c->retry_count = 7;
	if (config->loss < 10000 && rng_percent(rng, 50))
		c->retry_count = (uint8_t)rng_between(rng, perfect ? 0 : 3, 7);
	if (config->retry_count)
		c->retry_count = (uint8_t)config->retry_count;
	c->rnr_retry = 7;
	if (pair->strict)
		c->rnr_retry = (uint8_t)rng_below(rng, 7);
	else if (pair->tight)
		c->rnr_retry = (uint8_t)rng_between(rng, 3, 6);
	/* Of the longer ones one is enough to see that the code has five bits. */
	c->min_rnr_timer = (uint8_t)rng_between(rng, pair->tight ? 6 : 1, 14);
	if (c->min_rnr_timer == 14)
		c->min_rnr_timer = 17;
}

static void draw_connection(struct end *end, const struct qp_connection *timers)
{
	struct rng *rng = &end->pair->world->traffic;
	struct qp_connection *c = &end->connection;

	*c = *timers;
	c->send_psn = end->next_psn = end->sent_psn = draw_psn(rng);
	end->told_psn = UINT32_MAX;
	c->path_mtu = end->pair->mtu;
	c->max_reads_out = (uint8_t)(rng_percent(rng, 10) ? 0 : rng_between(rng, 1, 16));
	if (rng_percent(rng, 15))
		c->max_reads_out = 16;
	c->remote_rights = (uint8_t)draw_rights(rng);
}

/* What each end must know of the other. */
static void draw_path(struct pair *pair)
{
	struct rng *rng = &pair->world->traffic;
	const bool v4 = rng_percent(rng, 50);
	const uint16_t vlan = rng_percent(rng, 20) ? (uint16_t)rng_between(rng, 1, 4094) : 0;
	const uint32_t label = rng_percent(rng, 50) ? rng_below(rng, 1 << 20) : 0;

	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->end[i];
		struct qp_connection *c = &end->connection;

		memcpy(c->path.local_gid, v4 ? end->host->v4 : end->host->v6, 16);
		memcpy(c->path.remote_gid, v4 ? end->peer->host->v4 : end->peer->host->v6, 16);
		memcpy(c->path.local_mac, end->host->mac, 6);
		memcpy(c->path.remote_mac, end->peer->host->mac, 6);
		c->path.vlan_tci = vlan;
		c->path.flow_label = label;
		c->path.traffic_class = (uint8_t)rng_below(rng, 256);
		c->path.hop_limit = (uint8_t)rng_between(rng, 1, 255);
		c->receive_psn = end->peer->connection.send_psn;
		c->remote_qpn = end->peer->number;
		c->max_reads_in =
			(uint8_t)rng_between(rng, end->peer->connection.max_reads_out, 16);
		/* Two that have not agreed: the responder refuses what is too much. */
		if (end->pair->world->config.faults && rng_percent(rng, 4)) {
			c->max_reads_in = (uint8_t)rng_below(rng, c->max_reads_in + 1u);
			end->peer->greedy = c->max_reads_in < end->peer->connection.max_reads_out;
		}
	}
}

static void open_queues(struct end *end)
{
	struct world *world = end->pair->world;
	struct rng *rng = &world->traffic;
	struct host *host = end->host;
	struct qp_config *q = &end->config;
	const uint32_t notify = 1 + 41 * end->pair->number; /* any bits of any words */

	end->life = ++world->life;
	end->worker = rng_below(rng, host->workers);
	*q = (struct qp_config){ .session = SIM_SESSION,
				 .pd = host->pd,
				 .type = SHM_QP_RC,
				 .qp_context = (uint64_t)end->life << 16 | end->pair->number,
				 .send_depth = rng_between(rng, 1, 128),
				 .receive_depth = rng_between(rng, 1, 128),
				 .send_sge = rng_between(rng, 1, SIM_SGE),
				 .receive_sge = rng_between(rng, 1, SIM_SGE),
				 .inline_size = rng_below(rng, SHM_MAX_INLINE + 1),
				 .doorbell = end->pair->number * 61,
				 .home = end->worker };
	if (host->worker[end->worker].srq && rng_percent(rng, 60)) {
		end->srq = host->worker[end->worker].srq;
		q->srq = end->srq->index;
		q->receive_depth = end->srq->depth;
		end->pair->strict = end->pair->tight = false;
	}
	/* Just large enough: it never overflows, whatever completes without being taken. */
	if (host->shared_cq)
		end->send_cq = end->receive_cq = host->shared_cq;
	else if (rng_percent(rng, 50))
		end->send_cq = end->receive_cq =
			cq_open(host, q->send_depth + q->receive_depth, notify);
	else {
		end->send_cq = cq_open(host, q->send_depth, notify);
		end->receive_cq = cq_open(host, q->receive_depth, notify + 1);
	}
	q->send_cq = end->send_cq->index;
	q->receive_cq = end->receive_cq->index;
	q->memory_size = qp_memory_size(q);
	q->memory = aligned_alloc(64, (q->memory_size + 63) & ~63ull);
	if (q->memory == NULL)
		sim_fail(world, "no memory for queues");
	memset(q->memory, 0, q->memory_size);
	end->index = qp_create(host->shared, q);
	if (end->index == 0)
		sim_fail(world, "host %u: no queue pair", host->number);
	end->number = qp_number(host->shared, end->index);
	transport_attach(host->worker[end->worker].transport, end->index, world->now);
}

/* Where the memory of this end lies; see host_create() for the sum. */
static void place_areas(struct end *end)
{
	const uint32_t each =
		AREA_SOURCE + AREA_SINK + AREA_TARGET + AREA_STRIP + AREA_RECEIVE + 5 * AREA_GUARD;
	const uint32_t start = 2 * AREA_GUARD + AREA_SHARED + end->pair->number * each;

	end->source = start + AREA_GUARD;
	end->sink = end->source + AREA_SOURCE + AREA_GUARD;
	end->target = end->sink + AREA_SINK + AREA_GUARD;
	end->strip = end->target + AREA_TARGET + AREA_GUARD;
	end->receive_area = end->strip + AREA_STRIP + AREA_GUARD;
}

static void connect_end(struct end *end)
{
	struct world *world = end->pair->world;
	int rc = transport_connect(end->host->worker[end->worker].transport, end->index,
				   &end->connection, world->now);

	if (rc)
		sim_fail(world, "pair %u end %u: connecting failed: %d", end->pair->number,
			 end->side, rc);
	if (end->connection.timeout && world->longest_wait < 16384ull << end->connection.timeout)
		world->longest_wait = 16384ull << end->connection.timeout;
	window_create_all(end);
	sim_log(world,
		"pair %u end %u: queue pair %06x on worker %u, first PSN %06x, MTU %u, timeout %u, "
		"retry %u, RNR retry %u, READs out %u, depths %u %u, rights %#x",
		end->pair->number, end->side, end->number, end->worker, end->connection.send_psn,
		end->pair->mtu, end->connection.timeout, end->connection.retry_count,
		end->connection.rnr_retry, end->connection.max_reads_out, end->config.send_depth,
		end->config.receive_depth, end->connection.remote_rights);
}

void pair_open(struct world *world, uint32_t number)
{
	struct pair *pair = &world->pair[number];
	const struct sim_config *config = &world->config;
	struct rng *rng = &world->traffic;
	struct qp_connection timers = { 0 };

	memset(pair, 0, sizeof(*pair));
	pair->world = world;
	pair->number = number;
	pair->progress = world->now;
	pair->mtu = config->mtu ? config->mtu : 256u << rng_below(rng, 5);
	pair->strict = rng_percent(rng, 25);
	pair->tight = !pair->strict && rng_percent(rng, 30);
	pair->life = config->life ? rng_between(rng, 1, 2 * config->life) : UINT32_MAX;
	for (unsigned int i = 0; i < 2; i++) {
		struct end *end = &pair->end[i];

		end->pair = pair;
		end->side = i;
		end->host = &world->host[i];
		end->peer = &pair->end[!i];
		place_areas(end);
		open_queues(end);
	}
	draw_timers(pair, &timers);
	draw_connection(&pair->end[0], &timers);
	draw_connection(&pair->end[1], &timers);
	draw_path(pair);
	connect_end(&pair->end[0]);
	connect_end(&pair->end[1]);
	/* Now and then the first thing that happens is that a receive is missing. */
	if (pair->strict && config->faults && rng_percent(rng, 10)) {
		pair->no_receives = true;
		pair->life = 0;
	}
	world->statistics.lives++;
}

/* --- ending ----------------------------------------------------------------------- */

static bool in_error(const struct end *end)
{
	return qp_get_state(end->host->shared, end->index) == QP_ERROR;
}

static void flush(struct end *end)
{
	if (end->flush_asked)
		return;
	end->flush_asked = true;
	end->flushed_alive = !in_error(end);
	sim_log(end->pair->world, "pair %u end %u: flushed by its consumer", end->pair->number,
		end->side);
	/* Its next home is told when it has come there. */
	if (!end->moving)
		transport_flush(end->host->worker[end->worker].transport, end->index,
				end->pair->world->now);
}

/* From now on whoever lives is flushed, at once, later, or not before it has seen the end itself.
 */
static void begin_end(struct pair *pair)
{
	struct rng *rng = &pair->world->traffic;

	pair->state = PAIR_ENDING;
	pair->armed = true;
	switch (rng_below(rng, 3)) {
	case 0: pair->flush_at = pair->world->now; break;
	case 1: pair->flush_at = pair->world->now + rng_below(rng, 20000000); break;
	default: pair->flush_at = UINT64_MAX;
	}
}

void pair_flush(struct pair *pair)
{
	begin_end(pair);
	pair->flush_at = 0;
	flush(&pair->end[0]);
	flush(&pair->end[1]);
}

/* It says nothing more, for another reason than what its peer asked of it. */
static bool fell_silent(const struct end *end)
{
	return end->flush_asked || (end->failed && end->failed_status != NT_CANCELLED);
}

/* The requester of a wrong request is left to find out. */
static bool ends_by_itself(const struct end *end)
{
	const bool outstanding = end->head != end->tail;

	/* Without a timer it is never told that its peer has ended. */
	if (end->fault && !end->failed && (end->connection.timeout || !fell_silent(end->peer)))
		return true;
	return outstanding && end->connection.timeout &&
	       end->pair->flush_at > end->pair->world->now;
}

/* A wrong request, or a flush by one consumer, which the other learns by silence. */
static void bring_about_end(struct pair *pair)
{
	struct world *world = pair->world;
	struct rng *rng = &world->traffic;
	struct end *end = &pair->end[rng_below(rng, 2)];

	if (pair->armed || !world->config.faults || (!pair->no_receives && rng_percent(rng, 10))) {
		world->statistics.flushed_lives++;
		begin_end(pair);
		flush(end);
		return;
	}
	if (!fault_post(end))
		return;
	pair->armed = true;
	/* A bad receive waits for a message: not for ever. */
	pair->life = pair->bad_receive ? 300 : UINT32_MAX;
}

static bool may_close(struct end *end)
{
	const struct sim_worker *worker = &end->host->worker[end->worker];

	end_poll(end);
	return end->flushed && !host_is_fresh(end->host) &&
	       transport_may_detach(worker->transport, end->index);
}

static unsigned int close_when_flushed(struct pair *pair)
{
	struct world *world = pair->world;
	const uint32_t number = pair->number;
	bool lent;

	if (!may_close(&pair->end[0]) || !may_close(&pair->end[1]) || pair->end[0].elsewhere ||
	    pair->end[1].elsewhere)
		return 0;
	/* Both are looked at, whatever the first says: each lets go of what it can. */
	lent = windows_lent(&pair->end[0]);
	lent = windows_lent(&pair->end[1]) || lent;
	if (lent)
		return 0;
	window_watch(&pair->end[0]);
	window_watch(&pair->end[1]);
	judge_end(&pair->end[0]);
	judge_end(&pair->end[1]);
	model_resolve(&pair->end[0]);
	model_resolve(&pair->end[1]);
	pair_close(pair);
	if (!world->closing)
		pair_open(world, number);
	return 1;
}

void pair_close(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->end[i];
		struct host *host = end->host;

		transport_detach(host->worker[end->worker].transport, end->index);
		window_destroy_all(end);
		qp_destroy(host->shared, end->index);
		if (end->send_cq != host->shared_cq)
			cq_close(end->send_cq);
		if (end->receive_cq != end->send_cq)
			cq_close(end->receive_cq);
		free(end->config.memory);
		for (uint32_t k = end->oldest; k != end->tail; k++)
			op_free(end->op[k % SIM_RING]);
		end->index = 0;
	}
	pair->state = PAIR_GONE;
}

/* --- turn ------------------------------------------------------------------ */

static unsigned int end_pair(struct pair *pair)
{
	unsigned int dead = 0;

	for (int i = 0; i < 2; i++) {
		struct end *end = &pair->end[i];

		dead += in_error(end);
		if (!in_error(end) && !ends_by_itself(end))
			flush(end);
	}
	if (dead < 2)
		return 0;
	flush(&pair->end[0]);
	flush(&pair->end[1]);
	pair->state = PAIR_CLOSING;
	return 1;
}

/* Whatever it waits for, a timer runs meanwhile; who dies starts it anew, and that comes to an end.
 */
static bool is_forgotten(const struct end *end)
{
	const struct world *world = end->pair->world;
	const uint64_t progress = end->pair->progress;
	const uint64_t since = world->spoken > progress ? world->spoken : progress;

	return end->head != end->tail && end->connection.timeout && !in_error(end) &&
	       world->now - since > world->longest_wait + 5000000000ull;
}

/* Each request completes or fails within bounded time, whatever the network does. */
static void watch_progress(struct pair *pair)
{
	const struct end *a = &pair->end[0], *b = &pair->end[1];
	/*
	 * Somebody else's tries may have to end first: a window that was lent, or all records of
	 * requests where those are few.
	 */
	const uint64_t others = pair->world->config.pairs > 1 ? 60000000000ull : 3000000000ull;
	const uint64_t patience = others + 160 * (8192ull << a->connection.timeout);

	if (pair->state == PAIR_ALIVE && a->head == a->tail && b->head == b->tail)
		pair->progress = pair->world->now;
	else if (is_forgotten(a) || is_forgotten(b))
		sim_fail(pair->world, "pair %u: it waits, and nobody has sent anything for long",
			 pair->number);
	else if (pair->world->now - pair->progress > patience)
		sim_fail(pair->world, "pair %u: nothing has completed for %.1f s%s", pair->number,
			 (double)patience / 1e9,
			 pair->state == PAIR_ALIVE ? "" : ", and its end does not come");
}

/* What the peers allow, and what the client likes, may have nothing in common. */
static bool has_nothing_to_do(const struct pair *pair)
{
	return pair->world->idle_turns > 20000 && pair_is_still(pair);
}

unsigned int pair_turn(struct pair *pair)
{
	struct world *world = pair->world;
	unsigned int done = 0;

	if (pair->state == PAIR_GONE)
		return 0;
	for (int i = 0; i < 2; i++) {
		judge_condemned(&pair->end[i]);
		done += traffic_turn(&pair->end[i]);
		if (rng_percent(&world->schedule, 10))
			window_watch(&pair->end[i]);
	}
	watch_progress(pair);
	switch (pair->state) {
	case PAIR_ALIVE:
		if (in_error(&pair->end[0]) || in_error(&pair->end[1]))
			begin_end(pair);
		else if ((pair->life == 0 || has_nothing_to_do(pair)) && !world->draining)
			bring_about_end(pair);
		return done;
	case PAIR_ENDING: return done + end_pair(pair);
	default: return done + close_when_flushed(pair);
	}
}

bool pair_is_still(const struct pair *pair)
{
	const struct end *a = &pair->end[0], *b = &pair->end[1];

	return pair->state == PAIR_GONE ||
	       (pair->state == PAIR_ALIVE && a->head == a->tail && b->head == b->tail &&
		a->next_match == a->tail && b->next_match == b->tail);
}
