/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's side of the rings: entries in, doorbells, completions out, arms. */
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "sim.h"

/* All above the bit is set: the worker, which is at rest now, comes to it. */
static void check_doorbell(const struct end *end, const struct shm_worker_area *area)
{
	const uint32_t word = end->config.doorbell / 64;

	if (!(area->bits[word] >> (end->config.doorbell % 64) & 1) ||
	    !(area->summary[word / 64] >> (word % 64) & 1) || !(area->top >> (word / 64) & 1))
		sim_fail(end->pair->world, "pair %u end %u: nobody hears its doorbell",
			 end->pair->number, end->side);
}

static void ring(struct end *end, struct shm_queue *queue)
{
	const struct shm_qp *memory = end->config.memory;
	uint32_t home;

	shm_store_release(&queue->tail, queue->tail + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	home = __atomic_load_n(&memory->home, __ATOMIC_RELAXED);
	shm_doorbell_ring(&end->host->session->worker[home], end->config.doorbell);
	check_doorbell(end, &end->host->session->worker[home]);
}

/* Entry, then as much of SGEs or data as the slot holds. */
static void fill_slot(struct end *end, const struct shm_queue *queue, const void *entry,
		      uint32_t entry_size, const void *rest, uint32_t rest_size)
{
	uint8_t *slot = shm_queue_slot(end->config.memory, queue->offset, queue->stride,
				       queue->slots, queue->tail);

	if (rest_size > queue->stride - entry_size)
		rest_size = queue->stride - entry_size;
	memcpy(slot, entry, entry_size);
	if (rest_size)
		memcpy(slot + entry_size, rest, rest_size);
}

void queue_post(struct end *end, struct op *op)
{
	struct shm_queue *queue = &end->config.memory->send;
	uint32_t sges = op->sqe.nsge < SIM_SGE ? op->sqe.nsge : SIM_SGE;

	if (op->sqe.flags & SHM_FLAG_INLINE)
		fill_slot(end, queue, &op->sqe, sizeof(op->sqe), op->data,
			  op->sqe.inline_length < sizeof(op->data) ? op->sqe.inline_length
								   : sizeof(op->data));
	else
		fill_slot(end, queue, &op->sqe, sizeof(op->sqe), op->list,
			  sges * (uint32_t)sizeof(op->list[0]));
	ring(end, queue);
}

void queue_post_receive(struct end *end, struct receive *receive, const struct shm_sge *sge,
			uint32_t nsge)
{
	struct shm_queue *queue = &end->config.memory->receive;
	const struct shm_rqe rqe = {
		.request_context = (uint64_t)end->life << 32 | receive->number,
		.nsge = (uint8_t)nsge,
	};

	fill_slot(end, queue, &rqe, sizeof(rqe), sge,
		  (nsge < SIM_SGE ? nsge : SIM_SGE) * (uint32_t)sizeof(*sge));
	ring(end, queue);
}

/* --- completion queues ------------------------------------------------------------ */

void cq_arm(struct sim_cq *cq, uint32_t type)
{
	__atomic_store_n(&cq->memory->arm, type, __ATOMIC_SEQ_CST);
	cq->arm = type;
	cq->owed = false;
	cq->arm_generation = cq->host->generation;
	for (unsigned int i = 0; i < cq->host->workers; i++)
		cq->arm_tail[i] = shm_load_acquire(&cq->memory->ring[i].cursor.tail);
}

static bool satisfies(uint32_t arm, const struct shm_cqe *cqe)
{
	/* Of errors those of the CQ are meant. */
	if (arm == SHM_ARM_ERRORS)
		return false;
	return arm == SHM_ARM_ANY || cqe->status != NT_SUCCESS_STATUS || cqe->solicited;
}

/* An arm is taken, and the client told, exactly when something came that it asked for. */
static void check_arm(struct sim_cq *cq, bool satisfied)
{
	struct world *world = cq->host->world;
	uint64_t *word = &cq->host->session->cq_notify[cq->notify / 64];
	const uint64_t bit = 1ull << (cq->notify % 64);
	const bool taken = __atomic_load_n(&cq->memory->arm, __ATOMIC_SEQ_CST) == SHM_ARM_NONE;

	if (cq->arm == SHM_ARM_NONE)
		return;
	/* Who adopts a CQ does not know what was told: once too often is right. */
	if (cq->arm_generation != cq->host->generation && taken) {
		cq->arm = SHM_ARM_NONE;
		cq->owed = false;
		return;
	}
	/* It died between showing an entry and taking the arm: the next one does that. */
	satisfied |= cq->owed;
	cq->owed = satisfied && !taken && host_is_fresh(cq->host);
	if (cq->owed)
		return;
	if (taken != satisfied)
		sim_fail(world, "host %u CQ %u: arm %u was %s", cq->host->number, cq->index,
			 cq->arm, taken ? "taken for nothing" : "not taken");
	if (!taken)
		return;
	if (!(*word & bit) || !cq->host->notified)
		sim_fail(world, "host %u CQ %u: an arm was taken and nobody told", cq->host->number,
			 cq->index);
	__atomic_fetch_and(word, ~bit, __ATOMIC_SEQ_CST);
	cq->arm = SHM_ARM_NONE;
}

struct taken {
	struct shm_cqe cqe;
	uint32_t order;
};

/* Of two entries of one queue pair the one with the smaller epoch is the older one. */
static int compare_taken(const void *a, const void *b)
{
	const struct taken *x = a, *y = b;

	if (x->cqe.epoch != y->cqe.epoch)
		return x->cqe.epoch < y->cqe.epoch ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

/* All that the rings show, in an order that keeps that of each queue pair. */
static struct taken *take_all(struct sim_cq *cq, uint32_t *count, bool *satisfied)
{
	uint32_t size = 0, n = 0;
	struct taken *taken;

	for (unsigned int i = 0; i < cq->host->workers; i++)
		size += shm_load_acquire(&cq->memory->ring[i].cursor.tail) - cq->head[i];
	*count = size;
	if (size == 0)
		return NULL;
	taken = malloc(size * sizeof(*taken));
	if (taken == NULL)
		sim_fail(cq->host->world, "no memory for completions");
	for (unsigned int i = 0; i < cq->host->workers; i++) {
		struct shm_cq_ring *ring = &cq->memory->ring[i];
		const struct shm_cqe *entries = (void *)((uint8_t *)cq->memory + ring->offset);

		while (cq->head[i] != shm_load_acquire(&ring->cursor.tail)) {
			struct taken *one = &taken[n];

			one->cqe = entries[cq->head[i] & (cq->memory->slots - 1)];
			one->order = n++;
			if ((int32_t)(cq->head[i] - cq->arm_tail[i]) >= 0)
				*satisfied |= satisfies(cq->arm, &one->cqe);
			cq->head[i]++;
			shm_store_release(&ring->cursor.head, cq->head[i]);
		}
	}
	qsort(taken, n, sizeof(*taken), compare_taken);
	return taken;
}

unsigned int cq_poll(struct sim_cq *cq)
{
	bool satisfied = false;
	uint32_t count;
	struct taken *taken = take_all(cq, &count, &satisfied);

	for (uint32_t i = 0; i < count; i++)
		complete_entry(cq->host, &taken[i].cqe);
	free(taken);
	check_arm(cq, satisfied);
	return count;
}

unsigned int end_poll(struct end *end)
{
	unsigned int done = cq_poll(end->send_cq);

	if (end->receive_cq != end->send_cq)
		done += cq_poll(end->receive_cq);
	complete_requests(end);
	return done;
}
