/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a queue pair's end had a cause, and everything about it fits that cause. */
#include "peek.h"
#include "sim.h"

/* Requests of this end that its peer would refuse, or might. */
static bool may_be_refused(const struct end *end)
{
	if (end->greedy || (end->fault && fault_async(end->fault->fault)))
		return true;
	for (uint32_t i = end->oldest; i != end->tail; i++)
		if (end->op[i % SIM_RING]->may_fail)
			return true;
	return false;
}

static bool op_returns(const struct op *op)
{
	return op->kind == KIND_READ || op->kind == KIND_FETCH_ADD || op->kind == KIND_CMP_SWAP;
}

static bool peer_is_dead(const struct end *end)
{
	return qp_get_state(end->peer->host->shared, end->peer->index) == QP_ERROR;
}

/*
 * Where nothing is lost, a peer that ends over a request has told so by a NAK. Over an invalidate
 * that is none of its sender's it falls silent, but acknowledges what came before.
 */
static bool told_before_silence(const struct end *end, const struct op *op)
{
	const struct end *peer = end->peer;

	if (!config_is_perfect(&end->pair->world->config) || peer->flush_asked)
		return false;
	if (end->fault && end->fault->fault == FAULT_INVALIDATE_TOKEN)
		return op->number < end->fault->number && op->executed;
	return peer->error_async != 0;
}

/*
 * Each retry is used up by something that went wrong on the way: going back in time, there is
 * trouble in each of the intervals between them, and since the request was posted.
 */
static bool timeout_possible(const struct end *end, const struct op *op)
{
	const struct pair *pair = end->pair;
	const struct sim_config *config = &pair->world->config;
	const uint64_t interval = 8192ull << end->connection.timeout;
	const uint64_t longest = 5 * interval / 2 + (config->late_receives ? 10000000 : 2000000) +
				 1000ull * config->stall_us;
	uint64_t at = pair->world->now;
	uint32_t rounds = 0;

	if (end->nak_taken)
		return false;
	/* RNR retries have an end of their own. */
	if (end->connection.rnr_retry != 7 && end->rnrs > end->connection.rnr_retry &&
	    (end->rnr_psn - op->psn) % 0x1000000 < op->packets)
		return true;
	if (peer_is_dead(end))
		return !told_before_silence(end, op);
	for (uint32_t i = pair->troubles; i != op->troubles && rounds < SIM_TROUBLES; rounds++) {
		const uint64_t earlier = pair->trouble_time[--i % SIM_TROUBLES];

		if (at - earlier > longest)
			break;
		at = earlier;
	}
	return rounds > end->connection.retry_count;
}

static bool cancel_possible(const struct end *end)
{
	return end->flush_asked ||
	       ((end->error_events || end->restarts) && may_be_refused(end->peer));
}

/*
 * The refusal of a later request that overtook the answer to a READ or atomic: nothing can
 * bring that answer any more, and the request that waits for it takes the status.
 */
static bool later_refused(const struct end *end, const struct op *op, int32_t status)
{
	if (end->pair->troubles == 0 || !op_returns(op))
		return false;
	for (uint32_t i = op->number + 1; i != end->tail; i++) {
		const struct op *later = end->op[i % SIM_RING];

		if (later->fault && fault_leaves(later->fault) && later->status == status)
			return true;
		if (later->may_fail && status == NT_ACCESS_VIOLATION)
			return true;
		if (end->greedy && op_returns(later) && status == NT_DATA_ERROR)
			return true;
	}
	return false;
}

/*
 * The answer to a later request acknowledges those before it. When it never comes, the oldest of
 * them runs out of tries, the last of which takes its time.
 */
static bool later_silent(const struct end *end, const struct op *op)
{
	if (end->pair->world->now - op->posted_at < 4096ull << end->connection.timeout)
		return false;
	for (uint32_t i = op->number + 1; i != end->tail; i++) {
		if (end->op[i % SIM_RING]->fault == FAULT_WIRE_SILENT)
			return true;
	}
	return false;
}

/* A SEND that finds no receive is sent, and an answer asked for, as often as was agreed. */
static bool gave_up_in_time(const struct end *end, const struct op *op)
{
	/* The first time may have been before what was before it was answered. */
	if (op->fault == FAULT_WIRE_SILENT)
		return end->restarts || end->asks >= end->connection.retry_count;
	return op->fault != FAULT_NO_RECEIVE || end->restarts ||
	       end->rnrs > end->connection.rnr_retry;
}

/* Whoever gives up for want of an answer has asked again as often as was agreed. */
static bool tried_enough(const struct end *end)
{
	const struct sim_config *config = &end->pair->world->config;

	return end->restarts || config->transmit_room || config->mark || end->rnr_since ||
	       end->tries >= end->connection.retry_count;
}

void judge_failure(struct end *end, struct op *op, int32_t status)
{
	struct sim_statistics *statistics = &end->pair->world->statistics;

	if (status == NT_IO_TIMEOUT && !tried_enough(end))
		sim_fail(end->pair->world, "pair %u end %u: request %u was given up after %u tries",
			 end->pair->number, end->side, op->number, end->tries);
	if (op->fault && status == op->status && gave_up_in_time(end, op)) {
		statistics->exact[op->fault]++;
		return;
	}
	if (status == NT_CANCELLED && cancel_possible(end))
		return;
	if (status == NT_IO_TIMEOUT && (timeout_possible(end, op) || later_silent(end, op))) {
		statistics->timeouts_legal++;
		return;
	}
	if (status == NT_ACCESS_VIOLATION && op->may_fail) {
		statistics->revoked_in_use++;
		return;
	}
	if (status == NT_DATA_ERROR && end->greedy && op_returns(op))
		return;
	if (later_refused(end, op, status))
		return;
	sim_fail(end->pair->world,
		 "pair %u end %u: request %u has status %#x (%s; %u troubles, retry count %u, the "
		 "peer is %s)",
		 end->pair->number, end->side, op->number, (unsigned int)status,
		 op->fault ? fault_name(op->fault) : "a good one",
		 end->pair->troubles - op->troubles, end->connection.retry_count,
		 peer_is_dead(end) ? "dead" : "alive");
}

/* --- when its daemon died on the way to its end ----------------------------------- */

/* What the client or the peer was told holds; a NAK that is owed leaves first. */
void judge_adopted(struct end *end)
{
	end->condemned |= end->refused || end->failed;
	end->adopted_at = end->host->worker[end->worker].turns;
	end->nak_owed = peek_owes_nak(&end->host->arena, end->index);
}

void judge_condemned(const struct end *end)
{
	const struct host *host = end->host;

	if ((!end->refused && !end->condemned) || end->moving || host_is_fresh(host) ||
	    qp_get_state(host->shared, end->index) == QP_ERROR)
		return;
	/* Its turn may not be the first, and its NAK may wait for a buffer. */
	if (end->condemned && (end->pair->world->config.transmit_room ||
			       host->worker[end->worker].turns - end->adopted_at < 4))
		return;
	sim_fail(end->pair->world, "pair %u end %u: told of its end, and it lives",
		 end->pair->number, end->side);
}

/* --- at the end ------------------------------------------------------------------- */

static void judge_error_event(const struct end *end)
{
	struct world *world = end->pair->world;

	if (end->error_events > 1 || (end->error_events != !end->flushed_alive && !end->restarts))
		sim_fail(world, "pair %u end %u: %u events of an error", end->pair->number,
			 end->side, end->error_events);
	if (end->error_events == 0)
		return;
	if (end->error_async == 0 && (!end->failed || end->failed_status == NT_CANCELLED))
		sim_fail(world, "pair %u end %u: ended, and no request of its own had failed",
			 end->pair->number, end->side);
	if (end->error_async && !may_be_refused(end->peer))
		sim_fail(world, "pair %u end %u: ended, event %u, for nothing its peer had sent",
			 end->pair->number, end->side, end->error_async);
}

/* The requester was told of a refusal as such: the responder tells the same. */
static void judge_refusal(const struct end *end)
{
	const struct end *peer = end->peer;
	const struct op *op = end->failed_op;
	struct world *world = end->pair->world;

	if (op == NULL || op->fault == FAULT_NONE || end->failed_status != op->status ||
	    peer->restarts)
		return;
	if (peer->error_events && fault_async(op->fault) &&
	    peer->error_async != fault_async(op->fault) && peer->error_async)
		sim_fail(world, "pair %u end %u: event %u for %s", peer->pair->number, peer->side,
			 peer->error_async, fault_name(op->fault));
	/* A timeout may also come of a peer that was flushed before. */
	if (op->status == NT_IO_TIMEOUT)
		return;
	if (fault_async(op->fault) && peer->error_async != fault_async(op->fault))
		sim_fail(world, "pair %u end %u: no event for %s", peer->pair->number, peer->side,
			 fault_name(op->fault));
	if (fault_is_token(op->fault) && peer->bad_token_events != 1)
		sim_fail(world, "pair %u end %u: %u reports of %s", peer->pair->number, peer->side,
			 peer->bad_token_events, fault_name(op->fault));
	if (op->receive_status != op->got_status && op->receive_status)
		sim_fail(world, "pair %u end %u: the receive of request %u has status %#x",
			 peer->pair->number, peer->side, op->number, (unsigned int)op->got_status);
}

void judge_end(const struct end *end)
{
	struct world *world = end->pair->world;

	if (end->head != end->tail || end->receive_head != end->receive_tail)
		sim_fail(world,
			 "pair %u end %u: flushed, and %u requests and %u receives are missing",
			 end->pair->number, end->side, end->tail - end->head,
			 end->receive_tail - end->receive_head);
	if (end->established_events > 1 + end->restarts)
		sim_fail(world, "pair %u end %u: %u events of its first packet", end->pair->number,
			 end->side, end->established_events);
	/* Two: a READ in progress, and a request that was already refused behind it. */
	if (!end->restarts && end->last_receive_events != (end->srq != NULL))
		sim_fail(world, "pair %u end %u: %u events of its last receive", end->pair->number,
			 end->side, end->last_receive_events);
	if (end->bad_token_events > (2 + end->restarts) * may_be_refused(end->peer))
		sim_fail(world, "pair %u end %u: %u reports of bad tokens", end->pair->number,
			 end->side, end->bad_token_events);
	if (end->error_async == SHM_ASYNC_QP_ACCESS_ERROR && !end->restarts &&
	    end->bad_token_events == 0)
		sim_fail(world, "pair %u end %u: ended over a token, and no report of it",
			 end->pair->number, end->side);
	judge_error_event(end);
	judge_refusal(end);
}
