/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client does in its turn: polls, arms, posts receives and requests. */
#include "sim.h"

bool traffic_room(const struct end *end)
{
	return end->tail - end->head < end->config.send_depth &&
	       end->tail - end->oldest < SIM_RING - 1;
}

static void log_request(const struct end *end, const struct op *op)
{
	static const char *const name[KINDS] = { "SEND",      "SEND_IMM",  "SEND_INV",  "WRITE",
						 "WRITE_IMM", "READ",      "FETCH_ADD", "CMP_SWAP",
						 "BIND",      "INVALIDATE" };

	sim_log(end->pair->world,
		"pair %u end %u: posts request %u %s of %u bytes, token %08x target %#x, "
		"%u SGEs%s%s%s%s%s%s",
		end->pair->number, end->side, op->number, name[op->kind], op->length, op->sqe.token,
		op->target, op->sqe.nsge, op->sqe.flags & SHM_FLAG_INLINE ? " inline" : "",
		op->silent ? " silent" : "", op->sqe.flags & SHM_FLAG_READ_FENCE ? " fence" : "",
		op->may_fail ? ", may fail" : "", op->doomed ? ", doomed" : "",
		op->fault ? ", wrong" : "");
}

void traffic_post(struct end *end, struct op *op)
{
	op->doomed = end->fault != NULL;
	op->number = end->tail;
	op->troubles = end->pair->troubles;
	op->posted_at = end->pair->world->now;
	op->sqe.request_context = (uint64_t)end->life << 32 | op->number;
	end->op[end->tail++ % SIM_RING] = op;
	log_request(end, op);
	if (op->fault)
		end->fault = op;
	if (end->fault == NULL || fault_leaves(end->fault->fault))
		witness_posted(end, op);
	if (!op->doomed) {
		model_execute(end, op);
		if (op->kind == KIND_SEND_INV && op->window)
			op->window->state = WINDOW_ENDING;
	}
	model_match(end);
	queue_post(end, op);
}

static enum op_kind draw_kind(struct world *world)
{
	const uint32_t *weight = world->config.weight;
	uint32_t sum = 1, pick;

	for (int i = 0; i < KIND_BIND; i++)
		sum += weight[i];
	pick = rng_below(&world->traffic, sum);
	for (int i = 0; i < KIND_BIND; i++) {
		if (pick < weight[i])
			return (enum op_kind)i;
		pick -= weight[i];
	}
	return KIND_WRITE;
}

/* After a wrong request some more follow it, to be cancelled. */
static bool may_post(struct end *end)
{
	if (!traffic_room(end) || end->failed || end->flush_asked)
		return false;
	if (end->fault == NULL)
		return true;
	if (end->doomed_left == 0)
		return false;
	end->doomed_left--;
	return true;
}

static unsigned int post_some(struct end *end)
{
	struct world *world = end->pair->world;
	uint32_t burst = rng_between(&world->traffic, 1, 8);
	unsigned int done = 0;

	while (burst-- && may_post(end)) {
		struct op *op = op_build(end, end->fault && end->fault->fault == FAULT_WIRE_SILENT
						      ? KIND_READ
						      : draw_kind(world));

		if (op == NULL)
			continue;
		traffic_post(end, op);
		if (end->pair->life)
			end->pair->life--;
		done++;
	}
	return done;
}

/* Then nobody but a timer misses what was lost last. */
static bool is_waiting(const struct end *end)
{
	return end->head != end->tail && end->number % 100 < end->pair->world->config.waiting;
}

unsigned int traffic_turn(struct end *end)
{
	struct pair *pair = end->pair;
	struct world *world = pair->world;
	struct rng *rng = &world->traffic;
	unsigned int done = 0;

	if (world->draining || rng_percent(rng, world->config.polling))
		done += end_poll(end);
	if (rng_percent(rng, 5) && end->receive_cq->arm <= SHM_ARM_ERRORS)
		cq_arm(end->receive_cq, rng_between(rng, SHM_ARM_ERRORS, SHM_ARM_ANY));
	if (rng_percent(rng, 5) && end->send_cq->arm <= SHM_ARM_ERRORS)
		cq_arm(end->send_cq, rng_between(rng, SHM_ARM_ERRORS, SHM_ARM_ANY));
	if (pair->state == PAIR_CLOSING)
		return done;
	done += receive_turn(end);
	if (!world->draining && world->config.windows && may_post(end))
		done += window_break_off(end);
	if (world->draining || !rng_percent(rng, world->config.posting) || is_waiting(end))
		return done;
	if (world->config.windows && may_post(end))
		done += window_turn(end);
	return done + post_some(end);
}
