/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model: what each request does to the memory of both hosts, carried out in the order of
 * posting; and, when a queue pair has ended, how far that came in truth.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

/* --- pieces and effects ----------------------------------------------------------- */

void model_gather(const struct host *host, const struct piece *piece, uint32_t pieces, uint8_t *out)
{
	for (uint32_t i = 0; i < pieces; i++) {
		memcpy(out, host->model + piece[i].offset, piece[i].length);
		out += piece[i].length;
	}
}

bool pieces_overlap(const struct piece *a, uint32_t as, const struct piece *b, uint32_t bs)
{
	for (uint32_t i = 0; i < as; i++)
		for (uint32_t k = 0; k < bs; k++)
			if (a[i].offset < b[k].offset + b[k].length &&
			    b[k].offset < a[i].offset + a[i].length)
				return true;
	return false;
}

static void effect_reserve(struct world *world, struct effect *effect, uint32_t length)
{
	effect->length = length;
	effect->fresh = malloc(2 * (size_t)length + 1);
	if (effect->fresh == NULL)
		sim_fail(world, "no memory for the model");
	effect->old = effect->fresh + length;
}

/* The list of pieces, cut to the length of the effect. */
static void effect_place(struct effect *effect, const struct piece *piece, uint32_t pieces)
{
	uint32_t left = effect->length;

	effect->pieces = 0;
	for (uint32_t i = 0; i < pieces && left; i++) {
		struct piece part = piece[i];

		if (part.length > left)
			part.length = left;
		left -= part.length;
		effect->piece[effect->pieces++] = part;
	}
	effect->length -= left;
}

static void effect_apply(const struct host *host, struct effect *effect)
{
	uint32_t at = 0;

	model_gather(host, effect->piece, effect->pieces, effect->old);
	for (uint32_t i = 0; i < effect->pieces; i++) {
		memcpy(host->model + effect->piece[i].offset, effect->fresh + at,
		       effect->piece[i].length);
		at += effect->piece[i].length;
	}
	effect->applied = true;
}

void op_free(struct op *op)
{
	if (op == NULL)
		return;
	free(op->remote.fresh);
	free(op->local.fresh);
	free(op);
}

/* --- order ------------------------------------------------------------------------ */

static bool op_writes(const struct op *op)
{
	return op->kind == KIND_WRITE || op->kind == KIND_WRITE_IMM;
}

static bool op_is_atomic(const struct op *op)
{
	return op->kind == KIND_FETCH_ADD || op->kind == KIND_CMP_SWAP;
}

static bool op_returns(const struct op *op)
{
	return op->kind == KIND_READ || op_is_atomic(op);
}

/*
 * IBTA's table of ordering: what comes behind a READ or atomic may overtake it, unless both are
 * READs or both atomics.
 */
static bool remote_conflict(const struct op *earlier, const struct op *later)
{
	const struct piece a = { earlier->target, earlier->length };
	const struct piece b = { later->target, later->length };

	if (!op_returns(earlier) || !(op_writes(later) || op_returns(later)))
		return false;
	if (op_returns(later) && op_is_atomic(earlier) == op_is_atomic(later))
		return false;
	return pieces_overlap(&a, 1, &b, 1);
}

enum hazard model_hazard(const struct end *end, const struct op *op)
{
	enum hazard hazard = HAZARD_NONE;

	for (uint32_t i = end->head; i != end->tail; i++) {
		const struct op *earlier = end->op[i % SIM_RING];

		if (pieces_overlap(earlier->local_piece, earlier->local_pieces, op->local_piece,
				   op->local_pieces)) {
			/* Where data is to land, nothing else may be going on. */
			if (op_returns(op))
				return HAZARD_CONFLICT;
			if (op_returns(earlier))
				hazard = HAZARD_FENCE;
		}
		if (remote_conflict(earlier, op))
			hazard = HAZARD_FENCE;
		/* It would be dead when an answer that got lost is asked for again. */
		if (op->kind == KIND_SEND_INV && op_returns(earlier) &&
		    earlier->window == op->window && !config_is_perfect(&end->pair->world->config))
			hazard = HAZARD_FENCE;
	}
	return hazard;
}

/* --- execution -------------------------------------------------------------------- */

static void execute_atomic(struct end *end, struct op *op)
{
	const struct piece target = { op->target, 8 };
	uint64_t old, fresh;

	effect_reserve(end->pair->world, &op->remote, 8);
	effect_reserve(end->pair->world, &op->local, 8);
	memcpy(&old, end->peer->host->model + op->target, 8);
	if (op->kind == KIND_FETCH_ADD)
		fresh = old + op->sqe.swap;
	else
		fresh = old == op->sqe.compare ? op->sqe.swap : old;
	memcpy(op->remote.fresh, &fresh, 8);
	memcpy(op->local.fresh, &old, 8);
	effect_place(&op->remote, &target, 1);
	effect_place(&op->local, op->local_piece, op->local_pieces);
	if (op->fault)
		return;
	effect_apply(end->peer->host, &op->remote);
	effect_apply(end->host, &op->local);
}

static void execute_read(struct end *end, struct op *op)
{
	effect_reserve(end->pair->world, &op->local, op->length);
	memcpy(op->local.fresh, end->peer->host->model + op->target, op->length);
	effect_place(&op->local, op->local_piece, op->local_pieces);
	if (!op->fault)
		effect_apply(end->host, &op->local);
}

/* The payload is what lies in the source now; a SEND's place is known with its receive. */
static void execute_data(struct end *end, struct op *op)
{
	const struct piece target = { op->target, op->length };

	effect_reserve(end->pair->world, &op->remote, op->length);
	if (op->sqe.flags & SHM_FLAG_INLINE)
		memcpy(op->remote.fresh, op->data, op->length);
	else
		model_gather(end->host, op->local_piece, op->local_pieces, op->remote.fresh);
	if (!op_writes(op))
		return;
	effect_place(&op->remote, &target, 1);
	if (!op->fault)
		effect_apply(end->peer->host, &op->remote);
}

void model_execute(struct end *end, struct op *op)
{
	/* What never leaves does nothing, and may have a shape that means nothing. */
	if (op->fault && !fault_leaves(op->fault))
		return;
	switch (op->kind) {
	case KIND_BIND:
	case KIND_INVALIDATE:
	case KINDS: break;
	case KIND_READ: execute_read(end, op); break;
	case KIND_FETCH_ADD:
	case KIND_CMP_SWAP: execute_atomic(end, op); break;
	default: execute_data(end, op);
	}
}

/* --- receives --------------------------------------------------------------------- */

static void found_fault(struct end *sender, struct op *op, enum fault fault, int32_t receive_status)
{
	op->fault = fault;
	op->status = NT_DATA_ERROR;
	op->receive_status = receive_status;
	sender->fault = op;
	sender->pair->world->statistics.fault[fault]++;
}

static void match_one(struct end *sender, struct op *op, struct receive *receive)
{
	receive->op = op;
	op->receive = receive;
	if (op->fault == FAULT_NONE && receive->malformed)
		found_fault(sender, op, FAULT_RECEIVE_SHAPE, NT_INTERNAL_ERROR);
	if (op_writes(op))
		return;
	if (op->fault == FAULT_NONE && op->length > receive->good)
		found_fault(sender, op, FAULT_RECEIVE_TOKEN, NT_ACCESS_VIOLATION);
	effect_place(&op->remote, receive->piece, receive->pieces);
	if (op->fault)
		op->remote.loose = true;
	else
		effect_apply(sender->peer->host, &op->remote);
}

void model_place(struct end *sender, struct op *op, const struct receive *receive)
{
	if (op_writes(op) || op->fault)
		return;
	effect_place(&op->remote, receive->piece, receive->pieces);
	effect_apply(sender->peer->host, &op->remote);
}

void model_match(struct end *sender)
{
	struct end *receiver = sender->peer;

	if (receiver->srq) {
		sender->next_match = sender->tail;
		return;
	}

	while (sender->next_match != sender->tail) {
		struct op *op = sender->op[sender->next_match % SIM_RING];

		if (op->consumes && !op->doomed) {
			if (receiver->receive_match == receiver->receive_tail)
				return;
			match_one(sender, op,
				  &receiver->receive[receiver->receive_match++ % SIM_RING]);
		}
		sender->next_match++;
	}
}

/* --- comparison ------------------------------------------------------------ */

void model_compare(struct world *world)
{
	for (int i = 0; i < 2; i++) {
		const struct host *host = &world->host[i];

		if (memcmp(host->bytes, host->model, host->size) == 0)
			continue;
		for (uint32_t at = 0; at < host->size; at++)
			if (host->bytes[at] != host->model[at])
				sim_fail(world,
					 "host %d: byte %#x of its memory is %02x and not %02x", i,
					 at, host->bytes[at], host->model[at]);
	}
	world->statistics.quiet_points++;
}

/* --- resolution ------------------------------------------------------------ */

static uint32_t unlike(const uint8_t *a, const uint8_t *b, uint32_t length)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < length; i++)
		count += a[i] != b[i];
	return count;
}

static uint32_t count_differences(const struct host *host, const struct piece *area, uint32_t areas)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < areas; i++) {
		const uint8_t *a = host->bytes + area[i].offset, *b = host->model + area[i].offset;

		if (memcmp(a, b, area[i].length) != 0)
			count += unlike(a, b, area[i].length);
	}
	return count;
}

/* Takes bytes from .. to of an effect back, and keeps count of the differences. */
static void undo_range(const struct host *host, const struct effect *effect, uint32_t from,
		       uint32_t to, uint32_t *differences)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < effect->pieces && at < to; i++) {
		const struct piece *piece = &effect->piece[i];
		const uint32_t first = from > at ? from - at : 0;
		const uint32_t end = piece->length < to - at ? piece->length : to - at;

		if (first < end) {
			uint8_t *model = host->model + piece->offset + first;
			const uint8_t *truth = host->bytes + piece->offset + first;

			*differences -= unlike(model, truth, end - first);
			memcpy(model, effect->old + at + first, end - first);
			*differences += unlike(model, truth, end - first);
		}
		at += piece->length;
	}
}

/* Bytes of which nothing is promised are what they are, if they are old or new ones. */
static void settle_loose(const struct host *host, const struct effect *effect)
{
	uint32_t at = 0;

	if (!effect->loose)
		return;
	for (uint32_t i = 0; i < effect->pieces; i++) {
		for (uint32_t k = 0; k < effect->piece[i].length; k++, at++) {
			const uint32_t place = effect->piece[i].offset + k;

			if (host->bytes[place] == effect->fresh[at])
				host->model[place] = host->bytes[place];
		}
	}
}

/*
 * Bytes from .. to of an effect that are the new ones although the model has taken them back: of
 * a packet that a daemon was placing when it died. With `take` the model keeps them.
 */
static uint32_t torn_bytes(const struct host *host, const struct effect *effect, uint32_t from,
			   uint32_t to, bool take)
{
	uint32_t at = 0, count = 0;

	for (uint32_t i = 0; i < effect->pieces; i++) {
		const struct piece *piece = &effect->piece[i];

		for (uint32_t k = from > at ? from - at : 0; k < piece->length && at + k < to;
		     k++) {
			uint8_t *model = host->model + piece->offset + k;
			const uint8_t truth = host->bytes[piece->offset + k];

			count += *model != truth && truth == effect->fresh[at + k];
			if (take && truth == effect->fresh[at + k])
				*model = truth;
		}
		at += piece->length;
	}
	return count;
}

static void resolve_side(struct end *end, bool remote, const struct piece *area, uint32_t areas)
{
	struct world *world = end->pair->world;
	struct host *host = remote ? end->peer->host : end->host;
	const bool may_tear = (remote ? end->peer : end)->restarts != 0;
	uint32_t differences, packets = 0;

	for (uint32_t i = end->oldest; i != end->tail; i++) {
		const struct op *op = end->op[i % SIM_RING];

		settle_loose(host, remote ? &op->remote : &op->local);
	}
	differences = count_differences(host, area, areas);
	for (uint32_t i = end->tail; differences && i-- != end->oldest;) {
		struct op *op = end->op[i % SIM_RING];
		struct effect *effect = remote ? &op->remote : &op->local;
		uint32_t from = effect->length;

		if (remote && op->executed)
			break;
		while (differences && effect->applied && from) {
			const uint32_t to = from;

			from = (to - 1) / end->pair->mtu * end->pair->mtu;
			undo_range(host, effect, from, to, &differences);
			packets++;
			if (differences && may_tear &&
			    torn_bytes(host, effect, from, to, false) == differences) {
				torn_bytes(host, effect, from, to, true);
				differences = 0;
			}
		}
	}
	if (differences)
		sim_fail(world,
			 "pair %u end %u: host %u's memory fits no point in the sequence of its "
			 "requests (%u bytes differ at the last one possible)",
			 end->pair->number, end->side, host->number, differences);
	sim_log(world, "pair %u end %u: host %u %u packets short of all that was posted",
		end->pair->number, end->side, host->number, packets);
}

void model_resolve(struct end *end)
{
	const struct end *peer = end->peer;
	const struct piece target[] = { { peer->target, AREA_TARGET },
					{ peer->strip, AREA_STRIP },
					{ peer->receive_area, AREA_RECEIVE } };
	const struct piece sink = { end->sink, AREA_SINK };

	resolve_side(end, true, target, 3);
	resolve_side(end, false, &sink, 1);
}
