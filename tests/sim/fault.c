/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong requests: each is a good one with one thing changed, and a status that must follow. */
#include <stdlib.h>

#include "sim.h"

const char *fault_name(enum fault fault)
{
	static const char *const name[] = {
#define FAULT_TEXT(name, text) text,
		FAULTS(FAULT_TEXT)
#undef FAULT_TEXT
	};

	return name[fault];
}

uint32_t fault_async(enum fault fault)
{
	switch (fault) {
	case FAULT_UNKNOWN_TOKEN:
	case FAULT_DEAD_TOKEN:
	case FAULT_LOCAL_TOKEN:
	case FAULT_DOMAIN:
	case FAULT_TIED:
	case FAULT_RANGE:
	case FAULT_RIGHT:
	case FAULT_CROOKED:
	case FAULT_INVALIDATE_TOKEN: return SHM_ASYNC_QP_ACCESS_ERROR;
	case FAULT_ALIGNMENT:
	case FAULT_QP_RIGHT:
	case FAULT_TOO_LONG:
	case FAULT_WIRE_SHORT:
	case FAULT_WIRE_EMPTY:
	case FAULT_WIRE_LONG:
	case FAULT_WIRE_SEQUENCE:
	case FAULT_WIRE_LENGTH:
	case FAULT_WIRE_HUGE:
	case FAULT_WIRE_OPCODE: return SHM_ASYNC_QP_INVALID_REQUEST;
	case FAULT_RECEIVE_TOKEN:
	case FAULT_RECEIVE_SHAPE: return SHM_ASYNC_QP_FATAL;
	default: return 0;
	}
}

bool fault_is_token(enum fault fault)
{
	return fault_async(fault) == SHM_ASYNC_QP_ACCESS_ERROR;
}

bool fault_leaves(enum fault fault)
{
	return fault_async(fault) || fault == FAULT_NO_RECEIVE || fault_is_forged(fault);
}

bool fault_is_forged(enum fault fault)
{
	return fault >= FAULT_WIRE_SHORT && fault <= FAULT_WIRE_SILENT;
}

/* One too many is what a wrong comparison lets through. */
uint32_t one_or_more(struct rng *rng, uint32_t most)
{
	return rng_percent(rng, 50) ? 1 : rng_between(rng, 1, most);
}

/* --- what the peer refuses -------------------------------------------------------- */

/* A READ, WRITE or atomic of at least a byte. */
static struct op *accessing(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;

	const uint32_t least = rng_percent(rng, 50) ? 1 : 2;

	for (uint32_t tries = 0; tries < 12; tries++) {
		struct op *op =
			op_build(end, (enum op_kind)rng_between(rng, KIND_WRITE, KIND_CMP_SWAP));

		if (op && op->length && op->packets >= (tries < 8 ? least : 1))
			return op;
		op_free(op);
	}
	return NULL;
}

/* WRITE with immediate of one packet has its receive before its token is looked at. */
static struct op *refused(struct op *op, int32_t status)
{
	op->status = status;
	op->window = NULL;
	op->may_fail = false;
	if (op->packets > 1)
		op->consumes = false;
	if (op->consumes)
		op->receive_status = NT_ACCESS_VIOLATION;
	return op;
}

static struct op *wrong_token(struct end *end, uint32_t token)
{
	struct op *op = accessing(end);

	if (op == NULL)
		return NULL;
	op->sqe.token = token;
	return refused(op, NT_ACCESS_VIOLATION);
}

/* The one that is good for all of its client's own memory: mostly an atomic. */
static struct op *privileged_token(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->peer->host;
	struct op *op = rng_percent(rng, 60) ? op_build(end, KIND_FETCH_ADD) : accessing(end);

	if (op == NULL)
		return NULL;
	op->sqe.token = memory_privileged_token(host->memory);
	op->sqe.address = (uint64_t)host->segment << LOGICAL_OFFSET_BITS | op->target;
	return refused(op, NT_ACCESS_VIOLATION);
}

/* Right in all but the token: a request of what it grants, where it granted that. */
static struct op *through(struct end *end, uint32_t token, uint32_t rights, uint32_t offset,
			  uint32_t length)
{
	struct rng *rng = &end->pair->world->traffic;

	for (uint32_t tries = 0; tries < 12; tries++) {
		const enum op_kind kind = (enum op_kind)rng_between(rng, KIND_WRITE, KIND_CMP_SWAP);
		struct op *op = rights & op_right(kind) ? op_build(end, kind) : NULL;

		if (op && op->length && op->length + 8 <= length) {
			op->sqe.token = token;
			op->sqe.address = (host_address(end->peer->host, offset) + 7) / 8 * 8;
			return refused(op, NT_ACCESS_VIOLATION);
		}
		op_free(op);
	}
	return NULL;
}

/* Under a token whose place another window has now: where that may be used. */
static struct op *succeeded_token(struct end *end)
{
	const struct host *host = end->peer->host;
	const uint32_t count = host->deads < SIM_DEAD ? host->deads : SIM_DEAD;

	for (uint32_t i = 0; i < count; i++) {
		const struct dead_window *dead = &host->dead[i];

		for (uint32_t k = 0; dead->next && k < SIM_WINDOWS; k++) {
			const struct sim_window *window = &end->peer->window[k];

			if (window->state == WINDOW_BOUND && window->token == dead->next)
				return through(end, dead->token, window->rights, window->offset,
					       window->length);
		}
	}
	return NULL;
}

static struct op *dead_token(struct end *end)
{
	const struct host *host = end->peer->host;
	const uint32_t count = host->deads < SIM_DEAD ? host->deads : SIM_DEAD;
	const struct dead_window *dead;
	struct op *op;

	op = succeeded_token(end);
	if (op || count == 0)
		return op;
	dead = &host->dead[rng_below(&end->pair->world->traffic, count)];
	op = through(end, dead->token, dead->rights, dead->offset, dead->length);
	return op ? op : wrong_token(end, dead->token);
}

/* A window of another pair's end at the same host. */
const struct sim_window *fault_foreign_tied(const struct end *end)
{
	const struct world *world = end->pair->world;

	for (uint32_t i = 0; i < world->config.pairs; i++) {
		const struct end *other = &world->pair[i].end[end->peer->side];

		for (uint32_t k = 0; k < SIM_WINDOWS && other != end->peer; k++)
			if (other->window[k].state == WINDOW_BOUND && other->window[k].tied)
				return &other->window[k];
	}
	return NULL;
}

static struct op *tied_token(struct end *end)
{
	const struct sim_window *window = fault_foreign_tied(end);

	return window ? through(end, window->token, window->rights, window->offset, window->length)
		      : NULL;
}

/* One byte too far, one too early, far away, or round the end of the address space. */
uint64_t fault_outside(struct rng *rng, uint64_t start, uint64_t size, uint32_t length)
{
	switch (rng_below(rng, 5)) {
	case 0:
	case 1: return start + size - length + 1;
	case 2: return start - 1;
	case 3: return start + size + rng_below(rng, 1 << 20);
	default: return 0ull - length / 2;
	}
}

static struct op *wrong_range(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->peer->host;
	uint64_t start = host_address(host, AREA_GUARD), size = host->size - 2 * AREA_GUARD;
	struct op *op = rng_percent(rng, 30) ? op_build(end, KIND_FETCH_ADD) : accessing(end);

	if (op == NULL)
		return NULL;
	if (op->window == NULL && rng_percent(rng, 60)) {
		op->window = window_pick(end->peer, op_right(op->kind), 8);
		if (op->window)
			op->sqe.token = op->window->token;
	}
	if (op->window) {
		start = host_address(host, op->window->offset);
		size = op->window->length;
	}
	op->sqe.address = fault_outside(rng, start, size, op->length);
	if (op_right(op->kind) == RIGHT_REMOTE_ATOMIC) {
		/* On 8 bytes, and still not inside. */
		op->sqe.address =
			op->sqe.address < start ? (start - 1) / 8 * 8 : (start + size) / 8 * 8;
	}
	return refused(op, NT_ACCESS_VIOLATION);
}

bool fault_lacks_right(const struct sim_window *window)
{
	return window->state == WINDOW_BOUND && window->rights != RIGHTS_REMOTE && !window->strip &&
	       (!window->fast || window->lent == NULL);
}

static struct op *wrong_right(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;

	for (uint32_t tries = 0; tries < 8 * SIM_WINDOWS; tries++) {
		const struct sim_window *window = &end->peer->window[tries % SIM_WINDOWS];
		const enum op_kind kind = (enum op_kind)rng_between(rng, KIND_WRITE, KIND_CMP_SWAP);
		struct op *op;

		if (!fault_lacks_right(window) || (window->rights & op_right(kind)))
			continue;
		op = op_build(end, kind);
		if (op && op->length && window->length >= op->length + 8) {
			op->sqe.token = window->token;
			op->sqe.address =
				(host_address(end->peer->host, window->offset) + 7) / 8 * 8;
			/* Registered anew it could have the right, by the same token. */
			op->held = window->fast ? window : NULL;
			return refused(op, NT_ACCESS_VIOLATION);
		}
		op_free(op);
	}
	return NULL;
}

/* Through a region that calls its bytes by addresses which are four too many. */
static struct op *crooked(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op = op_build(end, rng_percent(rng, 50) ? KIND_FETCH_ADD : KIND_CMP_SWAP);

	if (op == NULL)
		return NULL;
	op->sqe.token = end->peer->host->crooked;
	return refused(op, NT_ACCESS_VIOLATION);
}

static struct op *wrong_alignment(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op = op_build(end, rng_percent(rng, 50) ? KIND_FETCH_ADD : KIND_CMP_SWAP);

	if (op == NULL)
		return NULL;
	op->sqe.address += rng_percent(rng, 50) ? 4 : rng_between(rng, 1, 7);
	return refused(op, NT_DATA_ERROR);
}

static struct op *wrong_operation(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	const enum op_kind kind = (enum op_kind)rng_between(rng, KIND_WRITE, KIND_CMP_SWAP);
	struct op *op;

	if (end->peer->connection.remote_rights & op_right(kind))
		return NULL;
	if (kind >= KIND_READ && end->connection.max_reads_out == 0)
		return NULL;
	op = op_make(end, kind);
	if (op == NULL)
		return NULL;
	op->consumes = false;
	return refused(op, NT_DATA_ERROR);
}

static struct op *too_long(struct end *end)
{
	const struct receive *receive = receive_next(end->peer);
	struct op *op;

	if (receive == NULL || receive->capacity > AREA_SOURCE - 3 * end->pair->mtu)
		return NULL;
	op = op_make_send(end, receive->capacity +
				       one_or_more(&end->pair->world->traffic, 2 * end->pair->mtu));
	if (op) {
		op->status = NT_DATA_ERROR;
		op->receive_status = NT_DATA_OVERRUN;
	}
	return op;
}

/* Whether a window of the host has this token, and any of its peers may end it. */
static bool may_be_ended(const struct end *end, uint32_t token)
{
	const struct world *world = end->pair->world;

	for (uint32_t i = 0; token && i < world->config.pairs; i++) {
		const struct sim_window *window = world->pair[i].end[end->peer->side].window;

		for (uint32_t k = 0; k < SIM_WINDOWS; k++)
			if (window[k].state == WINDOW_BOUND && window[k].token == token)
				return !window[k].tied;
	}
	return false;
}

uint32_t fault_succeeded(const struct end *end)
{
	const struct host *host = end->peer->host;

	for (uint32_t i = 0; i < SIM_DEAD && i < host->deads; i++)
		if (may_be_ended(end, host->dead[i].next))
			return host->dead[i].token;
	return 0;
}

/*
 * A region's, one that never was, one whose place another has, a window's of another domain, one
 * tied to another queue pair.
 */
static uint32_t not_to_be_invalidated(const struct end *end)
{
	const uint32_t dead = fault_succeeded(end);
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->peer->host;
	const struct sim_window *tied = fault_foreign_tied(end);

	if (dead && rng_percent(rng, 50))
		return dead;
	if (tied && rng_percent(rng, 50))
		return tied->token;
	switch (rng_below(rng, 3)) {
	case 0: return host->remote;
	case 1: return host->other_window_token;
	default: return (uint32_t)rng_next(rng);
	}
}

/* Class J: the peer is silent about it, so the end comes by timeout. */
static struct op *wrong_invalidate(struct end *end)
{
	struct op *op;

	if (end->connection.timeout == 0 || (end->pair->strict && receive_next(end->peer) == NULL))
		return NULL;
	op = op_make(end, KIND_SEND);
	if (op == NULL)
		return NULL;
	op->kind = KIND_SEND_INV;
	op->sqe.opcode = SHM_WR_SEND_INVALIDATE;
	op->sqe.token = not_to_be_invalidated(end);
	op->status = NT_IO_TIMEOUT;
	op->receive_status = NT_INVALID_DEVICE_REQUEST;
	return op;
}

/* The peer is told to post no more; when what it has is used up, one SEND too many. */
static struct op *no_receive(struct end *end)
{
	struct op *op;

	if (!end->pair->strict)
		return NULL;
	end->pair->no_receives = true;
	if (receive_next(end->peer) != NULL)
		return NULL;
	op = op_make_send(end, rng_between(&end->pair->world->traffic, 0, 1000));
	if (op) {
		op->consumes = false;
		op->status = NT_IO_TIMEOUT;
	}
	return op;
}

/* --- what the network makes of a good request ------------------------------------- */

/* Of this kind or of any up to another; its window lives until it is through. */
static struct op *to_be_forged(struct end *end, enum op_kind low, enum op_kind high,
			       uint32_t least_packets)
{
	struct rng *rng = &end->pair->world->traffic;

	for (int tries = 0; tries < 12; tries++) {
		struct op *op = op_build(end, (enum op_kind)rng_between(rng, low, high));

		if (op && op->packets >= least_packets && op->length && !op->may_fail &&
		    (op->window == NULL || !op->window->strip) && op->kind != KIND_SEND_INV) {
			op->status = NT_DATA_ERROR;
			op->remote.loose = op->local.loose = true;
			return op;
		}
		op_free(op);
	}
	return NULL;
}

/* The receive of a SEND goes with it; that of a WRITE with immediate only at its end. */
static struct op *spoil_packet(struct op *op, uint32_t packet, uint32_t choice)
{
	op->wire_packet = op->refused_at = packet;
	op->wire_choice = choice;
	if (op->kind == KIND_WRITE_IMM && packet + 1 < op->packets)
		op->consumes = false;
	if (op->consumes)
		op->receive_status = NT_DATA_ERROR;
	return op;
}

static struct op *forged(struct end *end, enum fault fault)
{
	struct rng *rng = &end->pair->world->traffic;
	const uint32_t mtu = end->pair->mtu;
	uint32_t choice;
	struct op *op;

	switch (fault) {
	case FAULT_WIRE_SHORT:
		op = to_be_forged(end, KIND_SEND, KIND_WRITE_IMM, 2);
		return op ? spoil_packet(op, rng_below(rng, op->packets - 1),
					 4 * rng_between(rng, 1, mtu / 4))
			  : NULL;
	case FAULT_WIRE_EMPTY:
		op = to_be_forged(end, KIND_SEND, KIND_WRITE_IMM, 2);
		return op ? spoil_packet(op, op->packets - 1, 0) : NULL;
	case FAULT_WIRE_LONG:
		op = to_be_forged(end, KIND_SEND, KIND_WRITE_IMM, 1);
		return op ? spoil_packet(op, op->packets - 1,
					 op->packets * mtu - op->length + rng_between(rng, 1, 64))
			  : NULL;
	case FAULT_WIRE_SEQUENCE:
		op = to_be_forged(end, KIND_SEND, KIND_SEND_IMM, 1);
		if (op == NULL)
			return NULL;
		/* At the start of a message nothing has been taken yet. */
		op->consumes = op->packets > 1;
		if (op->consumes && rng_percent(rng, 50))
			return spoil_packet(op, op->packets - 1, 0);
		return spoil_packet(op, op->consumes ? rng_between(rng, 1, op->packets - 1) : 0, 0);
	case FAULT_WIRE_LENGTH:
		op = to_be_forged(end, KIND_WRITE, KIND_WRITE_IMM, 1);
		if (op == NULL)
			return NULL;
		/* Longer than any message, whatever the token says. */
		if (rng_percent(rng, 20))
			return spoil_packet(op, 0, 0x80000001u + rng_below(rng, 0x7fffffff));
		/* What is found out at the last packet has a receive. */
		choice = rng_below(rng, op->length);
		/* Or of more, as long as all of that is allowed. */
		if (op->window == NULL && rng_percent(rng, 50))
			choice = op->length + one_or_more(rng, AREA_GUARD);
		spoil_packet(op, choice >= (op->packets - 1) * mtu ? op->packets - 1 : 0, choice);
		op->wire_packet = 0;
		/* A packet in the middle that goes beyond it is not waited for any longer. */
		if (choice < op->length)
			op->refused_at = choice / mtu;
		return op;
	case FAULT_WIRE_HUGE:
		op = to_be_forged(end, KIND_READ, KIND_READ, 1);
		return op ? spoil_packet(op, 0, rng_below(rng, 0x7fffffff)) : NULL;
	/* An atomic WRITE has the headers of both. */
	case FAULT_WIRE_OPCODE:
		op = rng_percent(rng, 50) ? to_be_forged(end, KIND_READ, KIND_READ, 1)
					  : to_be_forged(end, KIND_WRITE, KIND_WRITE, 1);
		return op ? spoil_packet(op, 0, 0) : NULL;
	case FAULT_WIRE_RESPONSE:
		op = to_be_forged(end, KIND_READ, KIND_READ, 1);
		return op ? spoil_packet(op, rng_below(rng, op->packets), rng_below(rng, 2)) : NULL;
	case FAULT_WIRE_SILENT:
		if (end->connection.timeout == 0)
			return NULL;
		op = to_be_forged(end, KIND_READ, KIND_CMP_SWAP, 1);
		if (op == NULL)
			return NULL;
		op->status = NT_IO_TIMEOUT;
		return spoil_packet(op, rng_below(rng, op->packets), rng_below(rng, 2));
	default:
		op = to_be_forged(end, KIND_WRITE, KIND_WRITE, 1);
		return op ? spoil_packet(op, op->packets - 1, rng_below(rng, 28)) : NULL;
	}
}

/* --- all of them ----------------------------------------------------------- */

static struct op *build(struct end *end, enum fault fault)
{
	const struct host *peer = end->peer->host;
	struct rng *rng = &end->pair->world->traffic;

	switch (fault) {
	case FAULT_UNKNOWN_TOKEN:
		return wrong_token(end,
				   rng_percent(rng, 50) ? (uint32_t)rng_next(rng) : peer->gone[1]);
	case FAULT_DEAD_TOKEN: return dead_token(end);
	case FAULT_LOCAL_TOKEN:
		return rng_percent(rng, 60) ? wrong_token(end, peer->local[rng_below(rng, 2)])
					    : privileged_token(end);
	case FAULT_DOMAIN:
		return wrong_token(end, rng_percent(rng, 50) ? peer->other_remote
							     : peer->other_window_token);
	case FAULT_TIED: return tied_token(end);
	case FAULT_RANGE: return wrong_range(end);
	case FAULT_RIGHT: return wrong_right(end);
	case FAULT_CROOKED: return crooked(end);
	case FAULT_ALIGNMENT: return wrong_alignment(end);
	case FAULT_QP_RIGHT: return wrong_operation(end);
	case FAULT_TOO_LONG: return too_long(end);
	case FAULT_INVALIDATE_TOKEN: return wrong_invalidate(end);
	case FAULT_NO_RECEIVE: return no_receive(end);
	case FAULT_WIRE_SHORT:
	case FAULT_WIRE_EMPTY:
	case FAULT_WIRE_LONG:
	case FAULT_WIRE_SEQUENCE:
	case FAULT_WIRE_LENGTH:
	case FAULT_WIRE_HUGE:
	case FAULT_WIRE_OPCODE:
	case FAULT_WIRE_RESPONSE:
	case FAULT_WIRE_SILENT:
	case FAULT_WIRE_NAK: return forged(end, fault);
	default: return fault_at_home(end, fault);
	}
}

/* The fault comes with the message that takes the receive. */
static bool post_bad_receive(struct end *end, enum fault fault)
{
	const enum receive_kind kind =
		fault == FAULT_RECEIVE_TOKEN ? RECEIVE_BAD_TOKEN : RECEIVE_BAD_SHAPE;

	if (end->peer->srq || receive_waiting(end->peer) || !receive_post(end->peer, kind))
		return false;
	end->pair->bad_receive = true;
	return true;
}

bool fault_post(struct end *end)
{
	struct world *world = end->pair->world;
	const enum fault fault = fault_draw(end);
	struct op *op;

	if (fault == FAULT_NONE)
		return false;
	if (!traffic_room(end) || end->peer->window[SIM_WINDOWS].state == WINDOW_ENDING)
		return false;
	if (fault == FAULT_RECEIVE_TOKEN || fault == FAULT_RECEIVE_SHAPE) {
		if (!post_bad_receive(end, fault))
			return false;
		world->deck->left[fault] -= world->deck->left[fault] != 0;
		return true;
	}
	op = build(end, fault);
	if (op == NULL)
		return false;
	op->fault = fault;
	world->deck->left[fault] -= world->deck->left[fault] != 0;
	world->statistics.fault[fault]++;
	sim_log(world, "pair %u end %u: a wrong request: %s", end->pair->number, end->side,
		fault_name(fault));
	traffic_post(end, op);
	/*
	 * Those that the requester finds itself, or is told of late, are the last. READs may
	 * follow: they change nothing.
	 */
	end->doomed_left = rng_below(&world->traffic, 12);
	if (fault_is_forged(fault) && fault_async(fault) == 0)
		end->doomed_left = fault == FAULT_WIRE_SILENT ? end->doomed_left / 3 : 0;
	return true;
}
