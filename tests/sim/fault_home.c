/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong requests that never leave: their own host refuses them. */
#include <stdlib.h>

#include "sim.h"

static struct op *at_home(struct op *op, int32_t status)
{
	op->status = status;
	op->consumes = false;
	op->window = NULL;
	op->may_fail = false;
	return op;
}

/*
 * The local token of a region for fast registration that is not registered any more, or not for
 * writing: 0 when the last registration did not cover so many bytes.
 */
static uint32_t fast_token(const struct end *end, enum window_state state, uint32_t length,
			   uint64_t *address)
{
	const struct sim_window *window = &end->window[0];
	const bool writable =
		window->own ? window->offset == end->sink : window->rights & ~RIGHT_REMOTE_READ;

	if (!window->fast || window->state != state || window->length < length ||
	    (state == WINDOW_BOUND && writable))
		return 0;
	*address = host_address(end->host, window->offset);
	return window->local_token;
}

uint32_t fault_read_only(const struct end *end, uint32_t length, uint64_t *address)
{
	return fast_token(end, WINDOW_BOUND, length, address);
}

static uint32_t wrong_local(const struct end *end, struct shm_sge *sge)
{
	struct rng *rng = &end->pair->world->traffic;
	const uint32_t fast = fast_token(end, WINDOW_FREE, sge->length, &sge->address);

	if (fast && rng_percent(rng, 70))
		return fast;
	if (rng_percent(rng, 30))
		return end->host->gone[0];
	return rng_percent(rng, 50) ? end->host->remote : (uint32_t)rng_next(rng);
}

/* Beyond its region; by the privileged token, beyond the segment or in none of this client's. */
static void put_outside(const struct end *end, struct shm_sge *sge)
{
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->host;
	uint64_t segment = host->segment, offset = host->size - sge->length + 1;

	if (rng_percent(rng, 60)) {
		sge->address = fault_outside(rng, host_address(host, AREA_GUARD),
					     host->size - 2 * AREA_GUARD, sge->length);
		if (sge->token == memory_privileged_token(host->memory))
			sge->token = host->local[0];
		return;
	}
	if (rng_percent(rng, 40))
		segment = rng_percent(rng, 50) ? 0 : segment + 1 + rng_below(rng, 1000);
	else if (rng_percent(rng, 40))
		offset = (1ull << LOGICAL_OFFSET_BITS) - 1;
	sge->address = segment << LOGICAL_OFFSET_BITS | offset;
	sge->token = memory_privileged_token(host->memory);
}

static bool is_short(const struct op *op)
{
	return op->packets == 1 && op->sqe.nsge == 1 && op->length &&
	       !(op->sqe.flags & (SHM_FLAG_INLINE | SHM_FLAG_READ_FENCE));
}

static struct op *wrong_sge(struct end *end, bool range)
{
	struct rng *rng = &end->pair->world->traffic;
	const enum op_kind kind = (enum op_kind)rng_below(rng, KIND_BIND);
	struct op *op = NULL;

	/* Half of them of the kind that goes the short way. */
	for (int tries = rng_percent(rng, 50) ? 6 : 0; tries && (op == NULL || !is_short(op));
	     tries--) {
		op_free(op);
		op = op_build(end, rng_percent(rng, 50) ? KIND_SEND : KIND_WRITE);
	}
	if (op == NULL)
		op = op_build(end, kind);

	if (op && op->kind != KIND_SEND_INV && !(op->sqe.flags & SHM_FLAG_INLINE)) {
		for (uint32_t i = 0; i < op->sqe.nsge; i++) {
			if (op->list[i].length == 0)
				continue;
			if (range)
				put_outside(end, &op->list[i]);
			else
				op->list[i].token = wrong_local(end, &op->list[i]);
			return at_home(op, NT_ACCESS_VIOLATION);
		}
	}
	op_free(op);
	return NULL;
}

/* A READ or atomic whose result may not be put there. */
static struct op *wrong_sink(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op = op_build(end, (enum op_kind)rng_between(rng, KIND_READ, KIND_CMP_SWAP));
	uint64_t unused;

	if (op && fault_read_only(end, 8, &unused) && rng_percent(rng, 80)) {
		op_free(op);
		op = op_build(end, (enum op_kind)rng_between(rng, KIND_FETCH_ADD, KIND_CMP_SWAP));
	}
	for (uint32_t i = 0; op && i < op->sqe.nsge; i++) {
		if (op->list[i].length == 0)
			continue;
		op->list[i].token = fault_read_only(end, op->list[i].length, &op->list[i].address);
		if (op->list[i].token == 0 || rng_percent(rng, 10))
			op->list[i].token = end->host->read_only;
		return at_home(op, NT_ACCESS_VIOLATION);
	}
	op_free(op);
	return NULL;
}

static struct op *wrong_sum(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op;

	if (end->config.send_sge < 2)
		return NULL;
	op = op_build(end, (enum op_kind)rng_between(rng, KIND_WRITE, KIND_READ));
	if (op == NULL)
		return NULL;
	op->sqe.flags &= ~SHM_FLAG_INLINE;
	op->sqe.nsge = 2;
	for (int i = 0; i < 2; i++)
		op->list[i] = (struct shm_sge){ host_address(end->host, end->source),
						0x40000000u + (uint32_t)i, end->host->local[0] };
	return at_home(op, NT_DATA_OVERRUN);
}

static struct op *never_outstanding(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct op *op;

	if (end->connection.max_reads_out)
		return NULL;
	op = op_make(end, (enum op_kind)rng_between(rng, KIND_READ, KIND_CMP_SWAP));
	return op ? at_home(op, NT_INVALID_DEVICE_REQUEST) : NULL;
}

static struct op *wrong_shape(struct end *end, enum fault fault)
{
	struct rng *rng = &end->pair->world->traffic;
	const enum op_kind kind = fault == FAULT_INLINE_KIND     ? KIND_READ
				  : fault == FAULT_ATOMIC_LENGTH ? KIND_FETCH_ADD
								 : KIND_SEND;
	struct op *op = op_build(end, kind);

	if (op == NULL)
		return NULL;
	if (fault == FAULT_OPCODE) {
		op->sqe.opcode =
			rng_percent(rng, 50) ? 0 : (uint8_t)rng_between(rng, SHM_WR_MAX, 255);
		return at_home(op, NT_INTERNAL_ERROR);
	}
	if (fault == FAULT_ATOMIC_LENGTH) {
		op->list[0].length += rng_percent(rng, 50) ? 8 : (uint32_t)-1;
	} else if (fault == FAULT_SGE_COUNT) {
		op->sqe.flags &= ~SHM_FLAG_INLINE;
		op->sqe.nsge = (uint8_t)(end->config.send_sge +
					 one_or_more(rng, 255 - end->config.send_sge));
	} else {
		op->sqe.flags |= SHM_FLAG_INLINE;
		op->sqe.inline_length =
			fault == FAULT_INLINE_KIND
				? (uint16_t)rng_below(rng, end->config.inline_size + 1)
				: (uint16_t)(end->config.inline_size +
					     one_or_more(rng, 65535 - end->config.inline_size));
	}
	return at_home(op, NT_DATA_OVERRUN);
}

static struct sim_window *find_window(struct end *end, enum window_state state, bool fast)
{
	for (uint32_t i = 0; i < SIM_WINDOWS; i++)
		if (end->window[i].state == state && end->window[i].fast == fast)
			return &end->window[i];
	return NULL;
}

static struct op *wrong_bind(struct end *end, enum fault fault)
{
	struct rng *rng = &end->pair->world->traffic;
	struct sim_window *window = find_window(end, WINDOW_FREE, false);
	struct sim_window *bound = find_window(end, WINDOW_BOUND, false);
	struct op *op;

	if (window == NULL || (fault == FAULT_BIND_BOUND && bound == NULL))
		return NULL;
	op = window_bind_op(end, window);
	op->status = NT_ACCESS_VIOLATION;
	switch (fault) {
	case FAULT_BIND_TOKEN: op->sqe.token = (uint32_t)rng_next(rng); break;
	case FAULT_BIND_LENGTH: op->sqe.length = 0; break;
	case FAULT_BIND_DOMAIN:
		op->sqe.mr = end->window[0].fast ? end->window[0].index : end->host->other_region;
		break;
	case FAULT_BIND_RIGHT:
		op->sqe.mr = end->host->read_region;
		op->sqe.flags |= rng_percent(rng, 50) ? SHM_FLAG_ALLOW_REMOTE_WRITE
						      : SHM_FLAG_ALLOW_REMOTE_ATOMIC;
		break;
	case FAULT_BIND_BOUND:
		/* And stays so: nobody invalidates it any more. */
		bound->state = WINDOW_ENDING;
		op->sqe.mw = bound->index;
		break;
	default:
		op->sqe.address = fault_outside(rng, host_address(end->host, AREA_GUARD),
						end->host->size - 2 * AREA_GUARD, window->length);
	}
	return op;
}

/* Beyond the memfd, of another session's, without the right to write locally, of nothing. */
static struct op *wrong_registration(struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	struct sim_window *window = find_window(end, WINDOW_FREE, true);
	struct op *op;

	if (window == NULL)
		return NULL;
	op = window_bind_op(end, window);
	op->status = NT_ACCESS_VIOLATION;
	switch (rng_below(rng, 7)) {
	case 4: op->sqe.mr = end->host->other_fast; break;
	/* Round the end of the address space. */
	case 5: op->sqe.address = 0ull - op->sqe.length / 2; break;
	case 0: op->sqe.swap = end->host->size - op->sqe.length + 1; break;
	case 1: op->sqe.length = 0; break;
	case 2: op->sqe.length = FAST_PAGES * 4096 + 1; break;
	case 3: op->sqe.mr = end->host->region; break;
	default:
		op->sqe.flags |= SHM_FLAG_ALLOW_REMOTE_ATOMIC;
		op->sqe.flags &= ~SHM_FLAG_ALLOW_REMOTE_WRITE;
	}
	return op;
}

/* Of what is dead, of a region, of another domain's window. */
static uint32_t not_to_be_invalidated(const struct end *end)
{
	struct rng *rng = &end->pair->world->traffic;
	const struct host *host = end->host;
	const uint32_t succeeded = fault_succeeded(end->peer);

	if (succeeded && rng_percent(rng, 40))
		return succeeded;
	if (host->deads && rng_percent(rng, 50))
		return host->dead[rng_below(rng, host->deads < SIM_DEAD ? host->deads : SIM_DEAD)]
			.token;
	switch (rng_below(rng, 3)) {
	case 0: return host->remote;
	case 1: return host->local[0];
	default: return host->other_window_token;
	}
}

static struct op *wrong_local_invalidate(struct end *end)
{
	struct op *op = calloc(1, sizeof(*op));

	if (op == NULL)
		abort();
	op->kind = KIND_INVALIDATE;
	op->sqe.opcode = SHM_WR_INVALIDATE;
	op->sqe.token = not_to_be_invalidated(end);
	op->status = NT_INVALID_DEVICE_REQUEST;
	return op;
}

static struct op *wrong_request(struct end *end, enum fault fault)
{
	switch (fault) {
	case FAULT_SGE_TOKEN: return wrong_sge(end, false);
	case FAULT_SGE_RANGE: return wrong_sge(end, true);
	case FAULT_SGE_COUNT:
	case FAULT_INLINE_LENGTH:
	case FAULT_INLINE_KIND:
	case FAULT_OPCODE:
	case FAULT_ATOMIC_LENGTH: return wrong_shape(end, fault);
	case FAULT_BIND_TOKEN:
	case FAULT_BIND_RANGE:
	case FAULT_BIND_LENGTH:
	case FAULT_BIND_RIGHT:
	case FAULT_BIND_DOMAIN:
	case FAULT_BIND_BOUND: return wrong_bind(end, fault);
	case FAULT_FAST_REGISTER: return wrong_registration(end);
	case FAULT_SGE_RIGHT: return wrong_sink(end);
	case FAULT_SUM_LENGTH: return wrong_sum(end);
	case FAULT_READS_NONE: return never_outstanding(end);
	case FAULT_DEAD_INVALIDATE: return wrong_local_invalidate(end);
	default: return NULL;
	}
}

struct op *fault_at_home(struct end *end, enum fault fault)
{
	struct world *world = end->pair->world;
	struct op *op = wrong_request(end, fault);

	/* Where daemons die, they do so now and then while they refuse something. */
	if (op && world->config.restart_every_us && rng_percent(&world->schedule, 25))
		end->host->stores_left = rng_between(&world->schedule, 1, 300);
	return op;
}
