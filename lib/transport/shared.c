/* SPDX-License-Identifier: BSD-3-Clause */
/* The process-wide part: tables of queue pairs and completion queues, numbers, lookups. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transport/private.h"

#define MAX_RESOURCES 128u

static uint32_t round_up_64(uint32_t value)
{
	return (value + 63) & ~63u;
}

/* --- arena ---------------------------------------------------------------------------- */

uint32_t transport_max_reads_in(const struct transport_sizes *sizes)
{
	uint32_t each = queue_slots((sizes->resources + sizes->qps - 1) / sizes->qps);

	return each > MAX_RESOURCES ? MAX_RESOURCES : each;
}

void transport_arena_spec(const struct transport_sizes *sizes, struct arena_spec spec[ARENA_TABLES])
{
	uint32_t worker_size =
		sizeof(struct worker_state) + round_up_64(sizes->sessions * sizeof(uint32_t));

	spec[ARENA_CQS] = (struct arena_spec){ sizeof(struct cq), sizes->cqs };
	spec[ARENA_SRQS] = (struct arena_spec){ sizeof(struct srq), sizes->srqs };
	spec[ARENA_ADDRESSES] = (struct arena_spec){ sizeof(struct ah), sizes->addresses };
	spec[ARENA_QPS] = (struct arena_spec){ sizeof(struct qp), sizes->qps };
	spec[ARENA_HOLDS] = (struct arena_spec){ sizeof(struct receive_hold), sizes->qps };
	spec[ARENA_RESOURCES] = (struct arena_spec){ sizeof(struct responder_resource),
						     sizes->qps * transport_max_reads_in(sizes) };
	spec[ARENA_FLIGHTS] = (struct arena_spec){ sizeof(struct flight), sizes->flights };
	spec[ARENA_WORKERS] = (struct arena_spec){ worker_size, sizes->workers + 1 };
}

/* Lists of free records of an adopted arena. */
static void rebuild_free_lists(struct transport_shared *s)
{
	for (uint32_t i = 1; i < s->sizes.qps; i++) {
		struct qp *qp = &s->qps[i];

		if (qp->number == 0 && qp->generation == 0)
			continue;
		s->qp_watermark = i + 1;
	}
	for (uint32_t i = 1; i < s->qp_watermark; i++) {
		if (s->qps[i].number)
			continue;
		s->qps[i].free_next = 0;
		if (s->free_qp_last)
			s->qps[s->free_qp_last].free_next = i;
		else
			s->free_qp_first = i;
		s->free_qp_last = i;
	}
	for (uint32_t i = 1; i < s->sizes.cqs; i++)
		if (s->cqs[i].state != CQ_FREE)
			s->cq_watermark = i + 1;
	for (uint32_t i = 1; i < s->cq_watermark; i++) {
		if (s->cqs[i].state != CQ_FREE)
			continue;
		s->cqs[i].free_next = s->free_cq;
		s->free_cq = i;
	}
}

/* Pages that come as they are touched: queue pairs that are never opened cost nothing. */
static void *map_zeroes(size_t bytes)
{
	void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

int transport_shared_create(struct transport_shared **shared, struct arena *arena,
			    struct memory *memory, const struct transport_sizes *sizes,
			    bool adopted)
{
	struct transport_shared *s;

	if (sizes->qps < 2 || (sizes->qps & (sizes->qps - 1)) || sizes->qps > 1u << 23 ||
	    sizes->workers == 0 || sizes->workers > SHM_MAX_WORKERS)
		return -EINVAL;
	s = aligned_alloc(SHM_CACHE_LINE, round_up_64(sizeof(*s)));
	if (s == NULL)
		return -ENOMEM;
	memset(s, 0, sizeof(*s));
	s->arena = *arena;
	s->memory = memory;
	s->sizes = *sizes;
	s->qps = arena_record(arena, ARENA_QPS, 0);
	s->cqs = arena_record(arena, ARENA_CQS, 0);
	s->srqs = arena_record(arena, ARENA_SRQS, 0);
	s->ahs = arena_record(arena, ARENA_ADDRESSES, 0);
	s->holds = arena_record(arena, ARENA_HOLDS, 0);
	s->resources = arena_record(arena, ARENA_RESOURCES, 0);
	s->flights = arena_record(arena, ARENA_FLIGHTS, 0);
	s->resource_mask = transport_max_reads_in(sizes) - 1;
	s->qp_mask = sizes->qps - 1;
	s->qpn_key = arena->header->qpn_key;
	s->qp_watermark = 1;
	s->cq_watermark = 1;
	s->ah_watermark = 1;
	s->adopted = adopted;
	s->qp_local = map_zeroes(sizes->qps * sizeof(*s->qp_local));
	s->congestions = calloc(sizes->qps, sizeof(*s->congestions));
	s->cq_local = calloc(sizes->cqs, sizeof(*s->cq_local));
	s->srq_local = calloc(sizes->srqs ? sizes->srqs : 1, sizeof(*s->srq_local));
	s->sessions = calloc(sizes->sessions, sizeof(struct session_local *));
	if (s->qp_local == NULL || s->congestions == NULL || s->cq_local == NULL ||
	    s->srq_local == NULL || s->sessions == NULL) {
		transport_shared_destroy(s);
		return -ENOMEM;
	}
	if (adopted) {
		rebuild_free_lists(s);
		ah_adopt(s);
	}
	*shared = s;
	return 0;
}

void transport_shared_destroy(struct transport_shared *shared)
{
	if (!shared)
		return;
	if (shared->sessions)
		for (uint32_t i = 0; i < shared->sizes.sessions; i++)
			free(shared->sessions[i]);
	free(shared->sessions);
	free(shared->srq_local);
	free(shared->cq_local);
	if (shared->qp_local)
		munmap(shared->qp_local, shared->sizes.qps * sizeof(*shared->qp_local));
	free(shared->congestions);
	free(shared);
}

void transport_set_resolver(struct transport_shared *shared, handle_resolver *resolve,
			    void *context)
{
	shared->resolve = resolve;
	shared->resolve_context = context;
}

static void fill_doorbells(const struct transport_shared *shared, uint32_t session,
			   struct session_local *local)
{
	/* All zero: the queue pairs of a session before it are gone, see qp_destroy(). */
	if (!shared->adopted)
		return;
	for (uint32_t i = 1; i < shared->qp_watermark; i++)
		if (shared->qps[i].number && shared->qps[i].session == session)
			local->doorbell[shared->qps[i].doorbell] = i;
}

/*
 * Its stocks, which are empty in the next session's memory. Not the workers' to do: one may hear of
 * the next session later than it takes over a queue pair of it.
 */
static void forget_stocks(const struct transport_shared *shared, uint32_t session)
{
	for (uint32_t w = 0; w < shared->sizes.workers; w++) {
		struct worker_state *state = arena_record(&shared->arena, ARENA_WORKERS, w + 1);

		state->stock_tail[session] = 0;
	}
}

/* The doorbell table stays when the session goes: workers may still look at it. */
void transport_set_session(struct transport_shared *shared, uint32_t session,
			   struct shm_session *memory)
{
	struct session_local *local = shared->sessions[session];

	if (local == NULL) {
		local = calloc(1, sizeof(*local));
		if (local == NULL)
			return;
	}
	if (memory)
		fill_doorbells(shared, session, local);
	else
		forget_stocks(shared, session);
	local->memory = memory;
	__atomic_store_n(&shared->sessions[session], local, __ATOMIC_RELEASE);
}

/* --- completion queues ---------------------------------------------------------------- */

uint64_t cq_memory_size(uint32_t depth, uint32_t workers)
{
	return sizeof(struct shm_cq) +
	       (uint64_t)workers * queue_slots(depth) * sizeof(struct shm_cqe);
}

void cq_set_memory(struct transport_shared *shared, uint32_t cq, struct shm_cq *memory)
{
	for (uint32_t w = 0; w < shared->sizes.workers; w++)
		shared->cq_local[cq].memory[w] = memory;
}

void cq_prepare(const struct transport_shared *shared, uint32_t index, uint32_t depth,
		struct shm_cq *memory, uint64_t size)
{
	const uint32_t slots = queue_slots(depth);

	memory->magic = SHM_MAGIC_CQ;
	memory->layout_version = SHM_LAYOUT_VERSION;
	memory->size = size;
	memory->depth = depth;
	memory->slots = slots;
	memory->rings = shared->sizes.workers;
	memory->notify = shared->cqs[index].notify;
	for (uint32_t i = 0; i < memory->rings; i++)
		memory->ring[i].offset =
			(uint32_t)(sizeof(*memory) + i * slots * sizeof(struct shm_cqe));
}

uint32_t cq_create(struct transport_shared *shared, const struct cq_config *config)
{
	const uint32_t workers = shared->sizes.workers;
	uint32_t index = shared->free_cq;
	struct cq *cq;

	if (config->depth == 0 || config->depth > QUEUE_MAX_DEPTH ||
	    config->memory_size < cq_memory_size(config->depth, workers))
		return 0;
	if (index) {
		shared->free_cq = shared->cqs[index].free_next;
	} else {
		if (shared->cq_watermark >= shared->sizes.cqs)
			return 0;
		index = shared->cq_watermark++;
	}
	cq = &shared->cqs[index];
	memset(cq, 0, sizeof(*cq));
	cq->session = config->session;
	cq->notify = config->notify;
	cq->rings = workers;
	for (uint32_t w = 0; w < workers; w++) {
		cq->side[w].depth = config->depth;
		cq->side[w].slots = queue_slots(config->depth);
	}
	cq_prepare(shared, index, config->depth, config->memory, config->memory_size);
	cq_set_memory(shared, index, config->memory);
	__atomic_store_n(&cq->state, CQ_OPEN, __ATOMIC_RELEASE);
	return index;
}

void cq_destroy(struct transport_shared *shared, uint32_t cq)
{
	__atomic_store_n(&shared->cqs[cq].state, CQ_FREE, __ATOMIC_RELEASE);
	cq_set_memory(shared, cq, NULL);
	shared->cqs[cq].free_next = shared->free_cq;
	shared->free_cq = cq;
}

/* --- queue pairs ---------------------------------------------------------------------- */

struct work_queue queue_layout(uint32_t depth, uint32_t sge, uint32_t entry, uint32_t payload,
			       uint32_t offset)
{
	struct work_queue queue = { .depth = depth, .max_sge = sge, .offset = offset };

	if (sge * sizeof(struct shm_sge) > payload)
		payload = sge * (uint32_t)sizeof(struct shm_sge);
	queue.slots = depth ? queue_slots(depth) : 0;
	queue.stride = round_up_64(entry + payload);
	return queue;
}

static void qp_layout(const struct qp_config *config, struct work_queue *send,
		      struct work_queue *receive)
{
	*send = queue_layout(config->send_depth, config->send_sge, sizeof(struct shm_sqe),
			     config->inline_size, sizeof(struct shm_qp));
	*receive =
		queue_layout(config->srq ? 0 : config->receive_depth, config->receive_sge,
			     sizeof(struct shm_rqe), 0, send->offset + send->slots * send->stride);
}

/* Entries of an SRQ are taken by one worker, without a lock: its queue pairs live there. */
static bool srq_possible(const struct transport_shared *s, const struct qp_config *config)
{
	const struct srq *srq = &s->srqs[config->srq];

	if (config->srq == 0)
		return true;
	return config->srq < s->sizes.srqs && srq->state == SRQ_OPEN &&
	       srq->session == config->session && srq->home == config->home;
}

static bool qp_config_possible(const struct transport_shared *s, const struct qp_config *config)
{
	return (config->type == SHM_QP_RC || config->type == SHM_QP_UC ||
		config->type == SHM_QP_UD) &&
	       srq_possible(s, config) && config->send_depth <= QUEUE_MAX_DEPTH &&
	       config->receive_depth <= QUEUE_MAX_DEPTH && config->send_sge <= SHM_MAX_SGE &&
	       config->receive_sge <= SHM_MAX_SGE && config->inline_size <= SHM_MAX_INLINE &&
	       config->doorbell < SHM_MAX_SESSION_QPS;
}

uint64_t qp_memory_size(const struct qp_config *config)
{
	struct work_queue send, receive;

	qp_layout(config, &send, &receive);
	return (uint64_t)receive.offset + (uint64_t)receive.slots * receive.stride;
}

static uint32_t take_free_qp(struct transport_shared *s)
{
	uint32_t index = s->free_qp_first;

	if (index) {
		s->free_qp_first = s->qps[index].free_next;
		if (s->free_qp_first == 0)
			s->free_qp_last = 0;
		return index;
	}
	return s->qp_watermark < s->sizes.qps ? s->qp_watermark++ : 0;
}

/* 0, 1 (QP1) and 0xffffff (multicast) are never drawn. */
static uint32_t draw_number(const struct transport_shared *s, struct qp *qp, uint32_t index)
{
	uint32_t number;

	do {
		qp->generation++;
		number = perm24_encrypt(s->qpn_key,
					(qp->generation * s->sizes.qps + index) & PSN_MASK);
	} while (number <= 1 || number == PSN_MASK);
	return number;
}

void queue_publish(struct shm_queue *shared, const struct work_queue *queue)
{
	shared->depth = queue->depth;
	shared->slots = queue->slots;
	shared->stride = queue->stride;
	shared->offset = queue->offset;
}

uint32_t qp_create(struct transport_shared *shared, const struct qp_config *config)
{
	struct session_local *session = shared->sessions[config->session];
	uint32_t index, generation;
	struct qp *qp;

	if (!qp_config_possible(shared, config) || config->memory_size < qp_memory_size(config) ||
	    config->home >= shared->sizes.workers)
		return 0;
	index = take_free_qp(shared);
	if (index == 0)
		return 0;
	qp = &shared->qps[index];
	generation = qp->generation;
	memset(qp, 0, sizeof(*qp));
	qp->generation = generation;
	qp->session = config->session;
	qp->pd = config->pd;
	qp->send_cq = config->send_cq;
	qp->receive_cq = config->receive_cq;
	qp->srq = config->srq;
	qp->receive_pd = config->srq ? shared->srqs[config->srq].pd : config->pd;
	qp->type = (uint8_t)config->type;
	__atomic_store_n(&qp->home, (uint16_t)config->home, __ATOMIC_RELAXED);
	qp->qp_context = config->qp_context;
	qp->inline_size = config->inline_size;
	qp->doorbell = config->doorbell;
	qp_layout(config, &qp->send, &qp->receive);

	config->memory->magic = SHM_MAGIC_QP;
	config->memory->layout_version = SHM_LAYOUT_VERSION;
	config->memory->size = config->memory_size;
	config->memory->home = config->home;
	queue_publish(&config->memory->send, &qp->send);
	queue_publish(&config->memory->receive, &qp->receive);
	if (shared->qp_local[index].congested)
		shared->congestions[index] = (struct congestion){ 0 };
	memset(&shared->qp_local[index], 0, sizeof(shared->qp_local[index]));
	qp_set_memory(shared, index, config->memory);
	if (session)
		__atomic_store_n(&session->doorbell[config->doorbell], index, __ATOMIC_RELEASE);
	__atomic_store_n(&qp->number, draw_number(shared, qp, index), __ATOMIC_RELEASE);
	return index;
}

void qp_set_memory(struct transport_shared *shared, uint32_t qp, struct shm_qp *memory)
{
	shared->qp_local[qp].memory = memory;
}

void qp_destroy(struct transport_shared *shared, uint32_t qp)
{
	struct qp *record = &shared->qps[qp];
	struct session_local *session = shared->sessions[record->session];

	if (session)
		__atomic_store_n(&session->doorbell[record->doorbell], 0, __ATOMIC_RELEASE);
	__atomic_store_n(&record->number, 0, __ATOMIC_RELEASE);
	/* A last frame may be on its way through a worker. */
	__atomic_store_n(&record->state, QP_RESET, __ATOMIC_RELAXED);
	shared->qp_local[qp].memory = NULL;
	record->free_next = 0;
	if (shared->free_qp_last)
		shared->qps[shared->free_qp_last].free_next = qp;
	else
		shared->free_qp_first = qp;
	shared->free_qp_last = qp;
}

uint32_t qp_number(const struct transport_shared *shared, uint32_t qp)
{
	return __atomic_load_n(&shared->qps[qp].number, __ATOMIC_RELAXED);
}

uint32_t qp_home(const struct transport_shared *shared, uint32_t qp)
{
	return __atomic_load_n(&shared->qps[qp].home, __ATOMIC_ACQUIRE);
}

enum qp_state qp_get_state(const struct transport_shared *shared, uint32_t qp)
{
	return (enum qp_state)__atomic_load_n(&shared->qps[qp].state, __ATOMIC_RELAXED);
}

uint32_t qp_table_size(const struct transport_shared *shared)
{
	return shared->sizes.qps;
}

/* See count_message_in(). */
static uint64_t qp_messages_in(const struct qp *qp)
{
	return __atomic_load_n(&qp->messages_in, __ATOMIC_RELAXED) +
	       responder_msn(__atomic_load_n(&qp->responder, __ATOMIC_RELAXED));
}

bool qp_get_status(const struct transport_shared *shared, uint32_t qp, struct qp_status *status)
{
	const struct qp *record = &shared->qps[qp];

	if (qp == 0 || qp >= shared->sizes.qps || qp_number(shared, qp) == 0)
		return false;
	*status = (struct qp_status){
		.qpn = record->number,
		.state = qp_get_state(shared, qp),
		.type = record->type,
		.session = record->session,
		.home = qp_home(shared, qp),
		.remote_qpn = record->remote_qpn,
		.messages_in = qp_messages_in(record),
		.messages_out = __atomic_load_n(&record->messages_out, __ATOMIC_RELAXED),
		.rate = shared->qp_local[qp].congested
				? __atomic_load_n(&shared->congestions[qp].rate, __ATOMIC_RELAXED)
				: 0,
	};
	memcpy(status->local_gid, record->local_gid, 16);
	memcpy(status->remote_gid, record->remote_gid, 16);
	return true;
}
