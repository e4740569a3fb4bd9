/* SPDX-License-Identifier: BSD-3-Clause */
/* Good requests of every kind, at random, such that the model knows what they do. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* --- lengths ---------------------------------------------------------------------- */

uint32_t draw_length(struct end *end, uint32_t most)
{
	struct rng *rng = &end->pair->world->traffic;
	const uint32_t mtu = end->pair->mtu;
	uint32_t length;

	switch (rng_below(rng, 10)) {
	case 0: length = 0; break;
	case 1:
	case 2: length = rng_between(rng, 1, 64); break;
	case 3:
	case 4: length = rng_between(rng, 1, mtu); break;
	case 5:
	case 6: length = mtu * rng_between(rng, 1, 4) + rng_below(rng, 3) - 1; break;
	case 7: length = mtu * rng_between(rng, 1, 4); break;
	case 8: length = rng_between(rng, 1, 8 * mtu); break;
	default: length = rng_between(rng, 1, most ? most : 1);
	}
	return length <= most ? length : rng_below(rng, most + 1);
}

/* --- the client's own memory ----------------------------------------------- */

/* By a fast-register region, which is there until those that use it are done. */
static bool registered(const struct end *end, uint32_t offset, uint32_t length)
{
	const struct sim_window *window = &end->window[0];

	return window->own && window->state == WINDOW_BOUND && offset >= window->offset &&
	       offset + length <= window->offset + window->length;
}

static void add_sge(struct end *end, struct op *op, uint32_t offset, uint32_t length)
{
	const struct host *host = end->host;
	const uint32_t i = op->sqe.nsge++;

	op->local_piece[i] = (struct piece){ offset, length };
	op->local_pieces = i + 1;
	op->list[i] = host_sge(host, &end->pair->world->traffic, offset, length);
	if (registered(end, offset, length) && rng_percent(&end->pair->world->traffic, 50))
		op->list[i] = (struct shm_sge){ host_address(host, offset), length,
						end->window[0].local_token };
}

/* New bytes in a source that nothing in hand is reading. */
static void refresh(struct end *end, const struct op *op)
{
	struct host *host = end->host;

	for (uint32_t i = end->head; i != end->tail; i++) {
		const struct op *other = end->op[i % SIM_RING];

		if (pieces_overlap(other->local_piece, other->local_pieces, op->local_piece,
				   op->local_pieces))
			return;
	}
	for (uint32_t i = 0; i < op->local_pieces; i++) {
		const struct piece *piece = &op->local_piece[i];

		if (piece->offset - end->source >= AREA_SOURCE)
			continue;
		rng_fill(&end->pair->world->traffic, host->model + piece->offset, piece->length);
		memcpy(host->bytes + piece->offset, host->model + piece->offset, piece->length);
	}
}

/* Sources may overlap; now and then one is where a READ put its data, or will. */
static void choose_source(struct end *end, struct op *op)
{
	const struct host *host = end->host;
	struct rng *rng = &end->pair->world->traffic;
	const bool chain = rng_percent(rng, 10);
	const uint32_t area = chain ? end->sink : end->source;
	const uint32_t single = end->pair->world->config.single;
	uint32_t pieces = rng_between(rng, 1, end->config.send_sge), left = op->length;

	_Static_assert(AREA_SOURCE == AREA_SINK, "either serves as source");
	if (single && rng_percent(rng, single))
		pieces = 1;
	while (left > pieces * AREA_SOURCE)
		pieces++;
	if (op->length == 0 && rng_percent(rng, 50))
		return;
	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t rest = (pieces - i - 1) * AREA_SOURCE;
		const uint32_t least = left > rest ? left - rest : 0;
		uint32_t length = i + 1 == pieces ? left : rng_between(rng, least, left);

		if (length > AREA_SOURCE)
			length = AREA_SOURCE;
		add_sge(end, op, area + rng_below(rng, AREA_SOURCE - length + 1), length);
		if (rng_percent(rng, 8))
			op->list[i] =
				(struct shm_sge){ host_address(host, op->local_piece[i].offset),
						  length, host->read_only };
		left -= length;
	}
	if (!chain)
		refresh(end, op);
}

/* Sinks never overlap each other: the sink area is cut at random and taken in order. */
static void choose_sink(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	const uint32_t pieces = rng_between(rng, 1, end->config.send_sge);
	uint32_t slack = AREA_SINK - op->length, left = op->length, at = end->sink;

	if (op->length == 0 && rng_percent(rng, 50))
		return;
	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t gap = rng_below(rng, slack + 1);
		const uint32_t length = i + 1 == pieces ? left : rng_below(rng, left + 1);

		add_sge(end, op, at + gap, length);
		at += gap + length;
		slack -= gap;
		left -= length;
	}
}

/* --- the peer's memory ----------------------------------------------------- */

uint32_t op_right(enum op_kind kind)
{
	switch (kind) {
	case KIND_READ: return RIGHT_REMOTE_READ;
	case KIND_WRITE:
	case KIND_WRITE_IMM: return RIGHT_REMOTE_WRITE;
	default: return RIGHT_REMOTE_ATOMIC;
	}
}

static void aim(struct op *op, const struct host *host, uint32_t token, uint32_t target)
{
	op->target = target;
	op->sqe.token = token;
	op->sqe.address = host_address(host, target);
}

static void aim_window(struct end *end, struct op *op, struct sim_window *window)
{
	struct rng *rng = &end->pair->world->traffic;
	uint32_t target = window->offset + rng_below(rng, window->length - op->length + 1);

	if (op_right(op->kind) == RIGHT_REMOTE_ATOMIC)
		target = (window->offset + 7) / 8 * 8 +
			 8 * rng_below(rng, (window->offset + window->length -
					     (window->offset + 7) / 8 * 8) /
						    8);
	op->window = window;
	op->may_fail = window->state == WINDOW_ENDING;
	aim(op, end->peer->host, window->token, target);
}

static void aim_region(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->peer->host;
	uint32_t target = end->peer->target + rng_below(rng, AREA_TARGET - op->length + 1);

	if (op_right(op->kind) == RIGHT_REMOTE_ATOMIC)
		target = end->peer->target + 8 * rng_below(rng, AREA_TARGET / 8);
	if (op->kind == KIND_READ && op->length <= AREA_SHARED && rng_percent(rng, 10))
		target = AREA_GUARD + AREA_GUARD + rng_below(rng, AREA_SHARED - op->length + 1);
	aim(op, host, host->remote, target);
}

/* IBTA C9-88: nothing of this is looked at for a length of zero. */
static void aim_nowhere(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;

	op->target = end->peer->target;
	op->sqe.token = (uint32_t)rng_next(rng);
	op->sqe.address = rng_next(rng);
}

static void choose_target(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	struct sim_window *window = NULL;

	if (op->length == 0) {
		aim_nowhere(end, op);
		return;
	}
	if (rng_percent(rng, 60))
		window = window_pick(end->peer, op_right(op->kind), op->length);
	if (window)
		aim_window(end, op, window);
	else
		aim_region(end, op);
}

/* --- kinds ----------------------------------------------------------------- */

static uint32_t most_bytes(const struct end *end, enum op_kind kind)
{
	const struct receive *receive = receive_next(end->peer);
	uint32_t most = end->pair->world->config.largest;

	if (kind == KIND_READ && most > AREA_SINK)
		return AREA_SINK;
	if (kind != KIND_READ && most > end->config.send_sge * AREA_SOURCE)
		most = end->config.send_sge * AREA_SOURCE;
	if (kind == KIND_WRITE || kind == KIND_WRITE_IMM || kind == KIND_READ)
		return most < AREA_TARGET ? most : AREA_TARGET;
	if (most > AREA_RECEIVE / 2)
		most = AREA_RECEIVE / 2;
	if (receive && receive->capacity < most)
		most = receive->capacity;
	return most;
}

static bool fill_data(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	uint32_t most = most_bytes(end, op->kind);

	if (rng_percent(rng, 20) && end->config.inline_size) {
		if (most > end->config.inline_size)
			most = end->config.inline_size;
		op->length = rng_below(rng, most + 1);
		op->sqe.flags |= SHM_FLAG_INLINE;
		op->sqe.inline_length = (uint16_t)op->length;
		rng_fill(rng, op->data, op->length);
	} else {
		op->length = draw_length(end, most);
		choose_source(end, op);
	}
	op->sqe.immediate = (uint32_t)rng_next(rng);
	if (op->kind == KIND_WRITE || op->kind == KIND_WRITE_IMM)
		choose_target(end, op);
	else
		op->sqe.token = (uint32_t)rng_next(rng); /* of no importance here */
	return true;
}

static bool fill_invalidating(struct end *end, struct op *op)
{
	struct sim_window *window = window_pick(end->peer, 0, 0);

	if (window == NULL || window->strip)
		return false;
	fill_data(end, op);
	op->window = window;
	op->sqe.token = window->token;
	return true;
}

/* The strip of the peer, now and then, for a READ that takes long enough to be broken off. */
static struct sim_window *long_read(struct end *end, const struct op *op)
{
	struct world *world = end->pair->world;
	struct sim_window *strip = &end->peer->window[SIM_WINDOWS];

	if (op->kind != KIND_READ || strip->state != WINDOW_BOUND || world->config.loss > 50000 ||
	    !rng_percent(&world->traffic, world->config.breaking))
		return NULL;
	return strip;
}

static bool fill_returning(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	struct sim_window *strip = long_read(end, op);

	op->length = op->kind == KIND_READ ? draw_length(end, most_bytes(end, op->kind)) : 8;
	if (strip)
		op->length = rng_between(rng, AREA_STRIP / 2, AREA_STRIP);
	choose_sink(end, op);
	if (strip)
		aim_window(end, op, strip);
	else
		choose_target(end, op);
	op->sqe.swap = rng_percent(rng, 50) ? rng_below(rng, 1000) : rng_next(rng);
	op->sqe.compare = rng_next(rng);
	/* What is there when its turn comes: the model knows. */
	if (op->kind == KIND_CMP_SWAP && rng_percent(rng, 60))
		memcpy(&op->sqe.compare, end->peer->host->model + op->target, 8);
	return true;
}

static bool allowed(const struct end *end, enum op_kind kind)
{
	const uint32_t rights = end->peer->connection.remote_rights;

	switch (kind) {
	case KIND_READ:
	case KIND_FETCH_ADD:
	case KIND_CMP_SWAP:
		if (end->connection.max_reads_out == 0)
			return false;
		return rights & op_right(kind);
	case KIND_WRITE: return rights & RIGHT_REMOTE_WRITE;
	case KIND_WRITE_IMM:
		if (!(rights & RIGHT_REMOTE_WRITE))
			return false;
		break;
	default: break;
	}
	return !end->pair->strict || receive_next(end->peer) != NULL;
}

static bool fill(struct end *end, struct op *op)
{
	static const uint8_t opcode[] = {
		[KIND_SEND] = SHM_WR_SEND,
		[KIND_SEND_IMM] = SHM_WR_SEND_IMMEDIATE,
		[KIND_SEND_INV] = SHM_WR_SEND_INVALIDATE,
		[KIND_WRITE] = SHM_WR_WRITE,
		[KIND_WRITE_IMM] = SHM_WR_WRITE_IMMEDIATE,
		[KIND_READ] = SHM_WR_READ,
		[KIND_FETCH_ADD] = SHM_WR_FETCH_ADD,
		[KIND_CMP_SWAP] = SHM_WR_COMPARE_SWAP,
	};

	op->sqe.opcode = opcode[op->kind];
	op->consumes = op->kind <= KIND_SEND_INV || op->kind == KIND_WRITE_IMM;
	switch (op->kind) {
	case KIND_SEND_INV: return fill_invalidating(end, op);
	case KIND_READ:
	case KIND_FETCH_ADD:
	case KIND_CMP_SWAP: return fill_returning(end, op);
	default: return fill_data(end, op);
	}
}

static struct op *op_new(struct end *end, enum op_kind kind)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		sim_fail(end->pair->world, "no memory for requests");
	op->kind = kind;
	op->silent = rng_percent(&end->pair->world->traffic, 40);
	return op;
}

/* False: it cannot be posted now. */
static bool finish(struct end *end, struct op *op)
{
	struct rng *rng = &end->pair->world->traffic;
	const enum hazard hazard = model_hazard(end, op);

	if (hazard == HAZARD_CONFLICT)
		return false;
	if (hazard == HAZARD_FENCE || rng_percent(rng, 5))
		op->sqe.flags |= SHM_FLAG_READ_FENCE;
	/* Of no importance where no receive completes. */
	if (rng_percent(rng, 30))
		op->sqe.flags |= SHM_FLAG_SOLICIT;
	if (op->silent)
		op->sqe.flags |= SHM_FLAG_SILENT_SUCCESS;
	op->packets = op->length ? (op->length - 1) / end->pair->mtu + 1 : 1;
	return true;
}

struct op *op_make(struct end *end, enum op_kind kind)
{
	for (int tries = 0; tries < 4; tries++) {
		struct op *op = op_new(end, kind);

		if (fill(end, op) && finish(end, op))
			return op;
		op_free(op);
	}
	return NULL;
}

struct op *op_make_send(struct end *end, uint32_t length)
{
	struct op *op = op_new(end, KIND_SEND);

	op->sqe.opcode = SHM_WR_SEND;
	op->consumes = true;
	op->length = length;
	choose_source(end, op);
	if (finish(end, op))
		return op;
	op_free(op);
	return NULL;
}

struct op *op_build(struct end *end, enum op_kind kind)
{
	return allowed(end, kind) ? op_make(end, kind) : NULL;
}
