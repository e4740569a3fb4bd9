/* SPDX-License-Identifier: BSD-3-Clause */
/* Each completion against what the model has in store for it. */
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "sim.h"

/* --- what completions look like --------------------------------------------------- */

static uint32_t request_type(enum op_kind kind)
{
	switch (kind) {
	case KIND_WRITE:
	case KIND_WRITE_IMM: return 0x40;
	case KIND_READ: return 0x20;
	case KIND_FETCH_ADD: return 0x100;
	case KIND_CMP_SWAP: return 0x200;
	case KIND_BIND: return 0x8;
	case KIND_INVALIDATE: return 0x10;
	default: return 0x2;
	}
}

static uint32_t receive_type(const struct op *op)
{
	switch (op->kind) {
	case KIND_SEND_IMM: return 0x2001;
	case KIND_WRITE_IMM: return 0x4001;
	case KIND_SEND_INV: return 0x8001;
	default: return 0x1;
	}
}

static uint32_t receive_output(const struct op *op)
{
	switch (op->kind) {
	case KIND_SEND_IMM:
	case KIND_WRITE_IMM: return op->sqe.immediate;
	case KIND_SEND_INV: return op->sqe.token;
	default: return 0;
	}
}

/* --- requests --------------------------------------------------------------------- */

static bool op_is_local(const struct op *op)
{
	return op->kind == KIND_BIND || op->kind == KIND_INVALIDATE;
}

static void check_bytes(struct end *end, const struct op *op, const struct host *host,
			const struct effect *effect, const char *what)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < effect->pieces; i++) {
		const uint8_t *truth = host->bytes + effect->piece[i].offset;

		for (uint32_t k = 0; k < effect->piece[i].length; k++, at++)
			if (truth[k] != effect->fresh[at])
				sim_fail(end->pair->world,
					 "pair %u end %u request %u: byte %u of %s is %02x and not "
					 "%02x",
					 end->pair->number, end->side, op->number, at, what,
					 truth[k], effect->fresh[at]);
	}
}

/* What its success says about the peer, and about what came back. */
static void succeeded(struct end *end, struct op *op)
{
	struct world *world = end->pair->world;

	if (op->fault || ((op->doomed || end->failed) && !op_is_local(op)))
		sim_fail(world, "pair %u end %u: request %u succeeded%s%s", end->pair->number,
			 end->side, op->number, op->fault ? ", a " : " behind one that must not",
			 op->fault ? fault_name(op->fault) : "");
	if (op->consumes) {
		if (!op->received)
			cq_poll(end->peer->receive_cq);
		if (!op->received)
			sim_fail(world, "pair %u end %u: request %u succeeded without its receive",
				 end->pair->number, end->side, op->number);
	}
	if (op->local.applied)
		check_bytes(end, op, end->host, &op->local, "what was read");
	if (op_is_local(op))
		window_completed(end, op, true);
	else
		op->executed = true;
	end->pair->progress = world->now;
	world->statistics.requests++;
	world->statistics.kind[op->kind]++;
	sim_log(world, "pair %u end %u: request %u done", end->pair->number, end->side, op->number);
}

static void did_not_succeed(struct end *end, struct op *op, int32_t status)
{
	sim_log(end->pair->world, "pair %u end %u: request %u failed, status %#x",
		end->pair->number, end->side, op->number, (unsigned int)status);
	if (qp_get_state(end->host->shared, end->index) != QP_ERROR)
		sim_fail(end->pair->world, "pair %u end %u: request %u failed, and it lives",
			 end->pair->number, end->side, op->number);
	if (!end->failed) {
		judge_failure(end, op, status);
		end->failed = true;
		end->failed_op = op;
		end->failed_status = status;
	} else if (status != NT_CANCELLED) {
		sim_fail(end->pair->world,
			 "pair %u end %u: request %u behind a failed one has status %#x",
			 end->pair->number, end->side, op->number, (unsigned int)status);
	}
	if (op_is_local(op))
		window_completed(end, op, false);
	else if (op->kind == KIND_SEND_INV && op->window && op->window->state == WINDOW_ENDING)
		op->window->state = WINDOW_UNSURE;
}

/* Completed ones are kept only while it may matter how far the others came. */
static void step(struct end *end)
{
	struct op **place = &end->op[end->head++ % SIM_RING];

	if (end->failed)
		return;
	if ((*place)->receive)
		(*place)->receive->op = NULL;
	op_free(*place);
	*place = NULL;
	end->oldest = end->head;
}

static void skip_silent(struct end *end)
{
	struct op *op = end->op[end->head % SIM_RING];

	if (!op->silent || (end->failed && !op_is_local(op)))
		sim_fail(end->pair->world,
			 "pair %u end %u: the completion of request %u is missing",
			 end->pair->number, end->side, op->number);
	succeeded(end, op);
	step(end);
}

static void complete_request(struct end *end, const struct shm_cqe *cqe)
{
	const uint32_t number = (uint32_t)cqe->request_context;
	struct world *world = end->pair->world;
	uint32_t type;
	struct op *op;

	if (cqe->request_context >> 32 != end->life || number - end->head >= end->tail - end->head)
		sim_fail(world, "pair %u end %u: completion of %#llx, which is not in hand",
			 end->pair->number, end->side, (unsigned long long)cqe->request_context);
	while (end->head != number)
		skip_silent(end);
	op = end->op[number % SIM_RING];
	type = op->sqe.opcode == SHM_WR_FAST_REGISTER ? 0x4 : request_type(op->kind);
	if (cqe->type != type || cqe->output != op->sqe.token)
		sim_fail(world, "pair %u end %u request %u: completion of type %#x, output %#x",
			 end->pair->number, end->side, number, cqe->type, cqe->output);
	if (cqe->status == NT_SUCCESS_STATUS && op->silent)
		sim_fail(world, "pair %u end %u: silent request %u told of its success",
			 end->pair->number, end->side, number);
	if (cqe->status == NT_SUCCESS_STATUS)
		succeeded(end, op);
	else
		did_not_succeed(end, op, cqe->status);
	step(end);
}

static void complete_silent(struct end *end)
{
	const uint32_t done = shm_load_acquire(&end->config.memory->send.done);

	if ((int32_t)(end->tail - done) < 0)
		sim_fail(end->pair->world, "pair %u end %u: %u requests done of %u",
			 end->pair->number, end->side, done, end->tail);
	while ((int32_t)(done - end->head) > 0)
		skip_silent(end);
}

/* --- receives --------------------------------------------------------------------- */

static void received(struct end *end, struct receive *receive, const struct shm_cqe *cqe)
{
	struct world *world = end->pair->world;
	struct op *op = receive->op;

	if (op == NULL || op->fault || end->receive_failed)
		sim_fail(world, "pair %u end %u: receive %u holds a message that nobody sent",
			 end->pair->number, end->side, receive->number);
	if (cqe->type != receive_type(op) || cqe->output != receive_output(op) ||
	    cqe->bytes != op->length ||
	    (cqe->solicited != 0) != ((op->sqe.flags & SHM_FLAG_SOLICIT) != 0))
		sim_fail(world,
			 "pair %u end %u receive %u: type %#x, output %#x, %u bytes, solicited %u; "
			 "request %u of the peer is another one",
			 end->pair->number, end->side, receive->number, cqe->type, cqe->output,
			 cqe->bytes, cqe->solicited, op->number);
	/* What a WRITE put there may have been written over since. */
	if (op->kind != KIND_WRITE_IMM)
		check_bytes(end->peer, op, end->host, &op->remote, "what was received");
	op->executed = op->received = true;
	if (op->kind == KIND_SEND_INV) {
		if (!op->window->tied &&
		    end->last_inv_psn == (op->psn + op->packets - 1) % 0x1000000)
			window_check_grace(end, op->window, end->inv_turns, end->inv_generation);
		window_invalidated(op->window);
	}
	world->statistics.receives++;
}

static void receive_failed(struct end *end, struct receive *receive, int32_t status)
{
	const struct op *op = receive->op;

	if (status == NT_CANCELLED && qp_get_state(end->host->shared, end->index) != QP_ERROR)
		sim_fail(end->pair->world,
			 "pair %u end %u: receive %u was cancelled, and the queue pair lives",
			 end->pair->number, end->side, receive->number);
	if (status != NT_CANCELLED && end->receive_failed)
		sim_fail(end->pair->world,
			 "pair %u end %u: receive %u has status %#x behind a "
			 "failed one",
			 end->pair->number, end->side, receive->number, (unsigned int)status);
	end->receive_failed = true;
	if (status == NT_CANCELLED)
		return;
	if (op && op->may_fail && status == NT_ACCESS_VIOLATION)
		return;
	if (op == NULL || op->fault == FAULT_NONE || status != op->receive_status)
		sim_fail(end->pair->world, "pair %u end %u: receive %u has status %#x (%s)",
			 end->pair->number, end->side, receive->number, (unsigned int)status,
			 op ? fault_name(op->fault) : "no request for it");
}

void receive_completed(struct end *end, struct receive *receive, const struct shm_cqe *cqe)
{
	sim_log(end->pair->world, "pair %u end %u: receive %u status %#x bytes %u",
		end->pair->number, end->side, receive->number, (unsigned int)cqe->status,
		cqe->bytes);
	if (cqe->status == NT_SUCCESS_STATUS)
		received(end, receive, cqe);
	else
		receive_failed(end, receive, cqe->status);
	if (receive->op)
		receive->op->got_status = cqe->status;
}

static void complete_receive(struct end *end, const struct shm_cqe *cqe)
{
	struct receive *receive = &end->receive[end->receive_head % SIM_RING];

	if (cqe->request_context != ((uint64_t)end->life << 32 | end->receive_head) ||
	    end->receive_head == end->receive_tail)
		sim_fail(end->pair->world,
			 "pair %u end %u: completion of receive %#llx, %u is the next",
			 end->pair->number, end->side, (unsigned long long)cqe->request_context,
			 end->receive_head);
	receive_completed(end, receive, cqe);
	end->receive_head++;
	if ((int32_t)(shm_load_acquire(&end->config.memory->receive.done) - end->receive_head) < 0)
		sim_fail(end->pair->world, "pair %u end %u: receive %u is not said to be done",
			 end->pair->number, end->side, receive->number);
}

/* --- all of them ----------------------------------------------------------- */

void complete_entry(struct host *host, const struct shm_cqe *cqe)
{
	struct end *end = host_find_number(host, cqe->qpn);

	if (end == NULL || cqe->qp_context != end->config.qp_context)
		sim_fail(host->world, "host %u: completion of queue pair %#x, context %#llx",
			 host->number, cqe->qpn, (unsigned long long)cqe->qp_context);
	if ((cqe->status == NT_SUCCESS_STATUS) != (cqe->provider_error == 0))
		sim_fail(host->world, "host %u: status %#x with provider error %u", host->number,
			 (unsigned int)cqe->status, cqe->provider_error);
	if ((cqe->type & 1) && end->srq)
		srq_completed(end, cqe);
	else if (cqe->type & 1)
		complete_receive(end, cqe);
	else
		end->entry[end->entries++ % SIM_RING] = *cqe;
}

/*
 * Those of requests wait here: they are judged by what the peer has received before. A daemon
 * that died has not come to show the last entries, and the next one has to run first.
 */
void complete_requests(struct end *end)
{
	if (host_is_fresh(end->host) || host_is_fresh(end->peer->host))
		return;
	for (uint32_t i = 0; i < end->entries; i++)
		complete_request(end, &end->entry[i]);
	end->entries = 0;
	complete_silent(end);
}
