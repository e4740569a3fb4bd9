/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives shared by the queue pairs of one worker. Which message takes which of them is
 * known when it completes and not before, so their bytes enter the model only then.
 */
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "sim.h"

#define SLOT 8192u /* bytes of memory of one receive, gaps included */

/* --- setting up ----------------------------------------------------------------------- */

void srq_open(struct sim_worker *worker)
{
	struct host *host = worker->host;
	struct world *world = host->world;
	struct sim_srq *srq = calloc(1, sizeof(*srq));
	const bool foreign = rng_percent(&world->traffic, 50);
	struct srq_config config = { .session = SIM_SESSION,
				     .pd = foreign ? host->other_pd : host->pd,
				     .depth = rng_between(&world->traffic, 1, SIM_SRQ),
				     .sge = rng_between(&world->traffic, 1, SIM_SGE),
				     .home = worker->number };

	if (srq == NULL)
		abort();
	srq->host = host;
	srq->foreign = foreign;
	srq->depth = config.depth;
	srq->sge = config.sge;
	srq->shape.capacity = srq->shape.good = rng_between(&world->traffic, 1, SLOT - 8 * SIM_SGE);
	srq->area = host->size - AREA_GUARD - (worker->number + 1) * (AREA_SRQ + AREA_GUARD);
	config.memory_size = srq_memory_size(config.depth, config.sge);
	config.memory = aligned_alloc(64, (config.memory_size + 63) & ~63ull);
	if (config.memory == NULL)
		abort();
	memset(config.memory, 0, config.memory_size);
	srq->memory = config.memory;
	srq->index = srq_create(host->shared, &config);
	if (srq->index == 0)
		sim_fail(world, "host %u: no shared receive queue", host->number);
	worker->srq = srq;
}

void srq_close(struct sim_worker *worker)
{
	struct sim_srq *srq = worker->srq;

	if (srq == NULL)
		return;
	srq_destroy(worker->host->shared, srq->index);
	free(srq->memory);
	free(srq);
}

/* --- posting ---------------------------------------------------------------------------- */

static struct receive *free_entry(struct sim_srq *srq, uint32_t *slot)
{
	for (*slot = 0; *slot < srq->depth; ++*slot)
		if (!srq->used[*slot])
			return &srq->entry[*slot];
	return NULL;
}

static uint32_t lay_out(struct sim_srq *srq, struct receive *entry, uint32_t slot,
			struct shm_sge *sge)
{
	struct rng *rng = &srq->host->world->traffic;
	const uint32_t pieces = rng_between(rng, 1, srq->sge);
	uint32_t left = srq->shape.capacity, at = srq->area + slot * SLOT;

	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t length = i + 1 == pieces ? left : rng_below(rng, left + 1);

		entry->piece[i] = (struct piece){ at, length };
		sge[i] = (struct shm_sge){ host_address(srq->host, at), length,
					   srq->foreign ? srq->host->other_local
							: srq->host->local[rng_below(rng, 2)] };
		left -= length;
		at += length + rng_below(rng, 8);
	}
	entry->pieces = pieces;
	return pieces;
}

static bool post(struct sim_srq *srq)
{
	struct shm_queue *queue = &srq->memory->receive;
	uint8_t *place = shm_queue_slot(srq->memory, queue->offset, queue->stride, queue->slots,
					queue->tail);
	struct shm_sge sge[SIM_SGE];
	struct shm_rqe rqe = { 0 };
	struct receive *entry;
	uint32_t slot;

	entry = free_entry(srq, &slot);
	if (entry == NULL)
		return false;
	*entry = (struct receive){ .number = srq->posted++, .capacity = srq->shape.capacity };
	srq->used[slot] = true;
	rqe.nsge = (uint8_t)lay_out(srq, entry, slot, sge);
	rqe.request_context = SRQ_CONTEXT | entry->number;
	memcpy(place, &rqe, sizeof(rqe));
	memcpy(place + sizeof(rqe), sge, rqe.nsge * sizeof(sge[0]));
	shm_store_release(&queue->tail, queue->tail + 1);
	sim_log(srq->host->world, "host %u SRQ %u: posts receive %u", srq->host->number, srq->index,
		entry->number);
	return true;
}

/* --- limit ------------------------------------------------------------------------------- */

static uint32_t posted(const struct sim_srq *srq)
{
	const struct shm_queue *queue = &srq->memory->receive;

	return queue->tail - shm_load_acquire(&queue->done);
}

static void set_limit(struct sim_srq *srq)
{
	struct world *world = srq->host->world;
	const uint32_t limit = rng_below(&world->traffic, srq->depth + 1), left = posted(srq);
	const bool few = srq_set_limit(srq->host->shared, srq->index, limit);

	if (few != (limit && left < limit))
		sim_fail(world, "host %u SRQ %u: a limit of %u is%s met by %u receives",
			 srq->host->number, srq->index, limit, few ? "" : " not", left);
	srq->limit = few ? 0 : limit;
	srq->limit_restarts = (uint32_t)world->statistics.restarts;
}

void srq_limit_event(struct host *host, uint32_t index, uint32_t left)
{
	struct sim_srq *srq = NULL;

	for (unsigned int i = 0; i < host->workers; i++)
		if (host->worker[i].srq && host->worker[i].srq->index == index)
			srq = host->worker[i].srq;
	if (srq == NULL || srq->limit == 0 || left >= srq->limit || left != posted(srq))
		sim_fail(host->world, "host %u SRQ %u: event of its limit, %u left", host->number,
			 index, left);
	srq->limit = 0;
}

/* As with receives of one queue pair, for a while none may come. */
unsigned int srq_turn(struct sim_srq *srq)
{
	struct world *world = srq->host->world;
	struct rng *rng = &world->traffic;
	unsigned int done = 0;

	if (rng_percent(rng, 2) && !host_is_fresh(srq->host))
		set_limit(srq);
	if (world->now < srq->hold)
		return 0;
	if (rng_percent(rng, world->config.late_receives)) {
		srq->hold = world->now +
			    rng_between(rng, 1000, rng_percent(rng, 80) ? 100000 : 3000000);
		return 0;
	}
	while (done < 8 && post(srq))
		done++;
	return done;
}

/* --- completion --------------------------------------------------------------------------- */

/* The message that comes next to this end. */
static struct op *next_message(const struct end *end)
{
	const struct end *sender = end->peer;

	for (uint32_t i = sender->oldest; i != sender->tail; i++) {
		struct op *op = sender->op[i % SIM_RING];

		if (op->consumes && !op->doomed && !op->executed)
			return op;
	}
	return NULL;
}

/* Of a message that did not come to its end, each byte may be there or not. */
static void settle_part(const struct host *host, const struct receive *entry, const struct op *op)
{
	uint32_t at = 0;

	if (op == NULL || op->kind == KIND_WRITE_IMM)
		return;
	for (uint32_t i = 0; i < entry->pieces; i++) {
		for (uint32_t k = 0; k < entry->piece[i].length && at < op->length; k++, at++) {
			const uint32_t place = entry->piece[i].offset + k;

			if (host->bytes[place] == op->remote.fresh[at])
				host->model[place] = host->bytes[place];
		}
	}
}

void srq_completed(struct end *end, const struct shm_cqe *cqe)
{
	struct sim_srq *srq = end->srq;
	struct op *op = next_message(end);

	if (end->receives_over && !end->restarts)
		sim_fail(end->pair->world, "pair %u end %u: a receive behind its last one",
			 end->pair->number, end->side);
	for (uint32_t i = 0; i < srq->depth; i++) {
		struct receive *entry = &srq->entry[i];

		if (!srq->used[i] || cqe->request_context != (SRQ_CONTEXT | entry->number))
			continue;
		if (cqe->status == NT_SUCCESS_STATUS && op)
			model_place(end->peer, op, entry);
		if (cqe->status != NT_SUCCESS_STATUS)
			settle_part(end->host, entry, op);
		entry->op = op;
		receive_completed(end, entry, cqe);
		srq->used[i] = false;
		return;
	}
	sim_fail(end->pair->world,
		 "pair %u end %u: completion of shared receive %#llx, not in hand",
		 end->pair->number, end->side, (unsigned long long)cqe->request_context);
}

/* No receive is lost: those that no message has are still in the queue. */
void srq_check(const struct sim_srq *srq)
{
	const struct shm_queue *queue = &srq->memory->receive;
	uint32_t used = 0;

	for (uint32_t i = 0; i < srq->depth; i++)
		used += srq->used[i];
	/* Who dies over an event has forgotten it. */
	if (srq->limit && posted(srq) < srq->limit &&
	    srq->limit_restarts == srq->host->world->statistics.restarts)
		sim_fail(srq->host->world, "host %u SRQ %u: %u receives left, and no event of %u",
			 srq->host->number, srq->index, posted(srq), srq->limit);
	if (queue->tail - shm_load_acquire(&queue->done) != used)
		sim_fail(srq->host->world, "host %u SRQ %u: %u receives in hand, %u in the queue",
			 srq->host->number, srq->index, used,
			 queue->tail - shm_load_acquire(&queue->done));
}
