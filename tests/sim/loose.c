/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unreliable connections and datagrams. What arrives is not known beforehand; but a completed
 * receive holds one message that was sent, whole and as it was sent, and memory holds nothing that
 * nobody sent. Where the network brings nothing twice or out of order, each message comes once
 * and in order; where it does not lose any either, all of them come.
 */
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "sim.h"

#define GRH   40u
#define QKEY  0x11223344u
#define SLOTS LOOSE_RECEIVES
#define PSNS  0x1000000u

static _Noreturn void fail(const struct loose_end *end, const char *what, uint64_t value)
{
	sim_fail(end->loose->world, "loose pair %u end %u: %s (%#llx)", end->loose->number,
		 end->side, what, (unsigned long long)value);
}

/* Nothing comes twice or late. */
static bool in_order(const struct world *world)
{
	return world->config.duplicate == 0 && world->config.reorder == 0;
}

static bool all_come(const struct world *world)
{
	return config_is_perfect(&world->config);
}

/* --- set-up ----------------------------------------------------------------------- */

static void place_areas(struct loose_end *end)
{
	const struct world *world = end->loose->world;

	end->area = end->host->size - SIM_WORKERS * (AREA_SRQ + AREA_GUARD) - AREA_GUARD -
		    (world->looses - end->loose->number) * AREA_LOOSE;
	end->source = end->area + AREA_GUARD;
	end->target = end->source + LOOSE_BYTES + AREA_GUARD;
	end->receive_area = end->target + LOOSE_BYTES + AREA_GUARD;
}

static void open_queues(struct loose_end *end)
{
	struct world *world = end->loose->world;
	struct rng *rng = &world->traffic;
	struct host *host = end->host;
	struct qp_config *q = &end->config;

	end->worker = rng_below(rng, host->workers);
	*q = (struct qp_config){ .session = SIM_SESSION,
				 .pd = host->pd,
				 .type = end->loose->type,
				 .qp_context = 0x4c00000000ull + end->loose->number,
				 .send_depth = rng_between(rng, 1, 64),
				 .receive_depth = rng_between(rng, 1, SLOTS),
				 .send_sge = 2,
				 .receive_sge = 2,
				 .doorbell = 1000 + end->loose->number,
				 .home = end->worker };
	/* Large enough, or sure to be overrun. */
	end->small_cq = end->loose->wild && rng_percent(rng, 30);
	end->cq = cq_open(
		host, end->small_cq ? rng_between(rng, 1, 12) : q->send_depth + q->receive_depth,
		1000 + end->loose->number);
	q->send_cq = q->receive_cq = end->cq->index;
	q->memory_size = qp_memory_size(q);
	q->memory = aligned_alloc(64, (q->memory_size + 63) & ~63ull);
	if (q->memory == NULL)
		fail(end, "no memory for queues", 0);
	memset(q->memory, 0, q->memory_size);
	end->index = qp_create(host->shared, q);
	if (end->index == 0)
		fail(end, "no queue pair", 0);
	end->number = qp_number(host->shared, end->index);
	transport_attach(host->worker[end->worker].transport, end->index, world->now);
}

/* All that its frames can reach, whatever they say. */
static void create_region(struct loose_end *end)
{
	struct host *host = end->host;
	uint32_t *region = &end->loose->region[end->side];
	const uint32_t start = end->target, bytes = end->receive_area + LOOSE_RECEIVES * LOOSE_SLOT;
	const uint32_t all = RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE;

	if (region_create(host->memory, SIM_SESSION, host->pd, false, region) ||
	    region_register(host->memory, *region, host->segment, start, bytes - start,
			    host_address(host, start), all, &end->local, &end->remote))
		fail(end, "no region", 0);
}

static void connect_end(struct loose_end *end, bool v4)
{
	struct loose *loose = end->loose;
	struct rng *rng = &loose->world->traffic;
	const struct host *peer = end->peer->host;
	struct qp_connection c = { .remote_qpn = end->peer->number,
				   .send_psn = end->next_psn,
				   .receive_psn = end->peer->next_psn,
				   .path_mtu = loose->mtu,
				   .qkey = QKEY,
				   .timeout = 9,
				   .retry_count = 5,
				   .rnr_retry = 6,
				   .min_rnr_timer = 5,
				   .max_reads_in = 4,
				   .max_reads_out = 4,
				   .remote_rights = RIGHTS_REMOTE };
	struct ah_config ah = { .session = SIM_SESSION, .pd = end->host->pd };
	int rc;

	create_region(end);
	memcpy(c.path.local_gid, v4 ? end->host->v4 : end->host->v6, 16);
	memcpy(c.path.remote_gid, v4 ? peer->v4 : peer->v6, 16);
	memcpy(c.path.local_mac, end->host->mac, 6);
	memcpy(c.path.remote_mac, peer->mac, 6);
	c.path.traffic_class = (uint8_t)rng_below(rng, 256);
	c.path.hop_limit = (uint8_t)rng_between(rng, 1, 255);
	end->path = ah.path = c.path;
	rc = transport_connect(end->host->worker[end->worker].transport, end->index, &c,
			       loose->world->now);
	if (rc)
		fail(end, "connecting failed", (uint64_t)-rc);
	if (loose->type == SHM_QP_UD)
		end->ah = ah_create(end->host->shared, &ah);
	if (loose->type == SHM_QP_UD && end->ah == 0)
		fail(end, "no address", 0);
	sim_log(loose->world, "loose pair %u end %u: %s queue pair %06x on worker %u, MTU %u",
		loose->number, end->side, loose->type == SHM_QP_UD ? "UD" : "UC", end->number,
		end->worker, loose->mtu);
}

void loose_open(struct world *world, uint32_t number)
{
	struct loose *loose = &world->loose[number];
	struct rng *rng = &world->traffic;
	bool v4;

	loose->world = world;
	loose->number = number;
	loose->dead = false;
	loose->wild |= !all_come(world) && rng_percent(rng, 40);
	loose->type = rng_percent(rng, 50) ? SHM_QP_UC : SHM_QP_UD;
	if (loose->wild && rng_percent(rng, 60))
		loose->type = SHM_QP_RC;
	world->statistics.wild_lives += loose->wild;
	loose->mtu = 256u << rng_below(rng, 5);
	loose->capacity = rng_between(rng, GRH, LOOSE_SLOT - 16);
	for (unsigned int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		memset(end, 0, sizeof(*end));
		end->loose = loose;
		end->side = i;
		end->host = &world->host[i];
		end->peer = &loose->end[!i];
		end->next_psn = (PSNS - rng_below(rng, 200)) % PSNS;
		place_areas(end);
		open_queues(end);
	}
	v4 = rng_percent(rng, 50);
	connect_end(&loose->end[0], v4);
	connect_end(&loose->end[1], v4);
}

/* --- memory ----------------------------------------------------------------------- */

static uint32_t differences(const struct host *host, uint32_t at, uint32_t length)
{
	uint32_t count = 0;

	if (memcmp(host->bytes + at, host->model + at, length) == 0)
		return 0;
	for (uint32_t i = 0; i < length; i++)
		count += host->bytes[at + i] != host->model[at + i];
	return count;
}

/* What is here now and is what the message brings becomes the model's. How many bytes. */
static uint32_t adopt_bytes(const struct host *host, uint32_t at, const uint8_t *bytes,
			    uint32_t length)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < length; i++) {
		const uint8_t truth = host->bytes[at + i];

		if (host->model[at + i] == truth || bytes[i] != truth)
			continue;
		host->model[at + i] = truth;
		count++;
	}
	return count;
}

/* The newest first: it is what most bytes are of. */
static const struct loose_message *remembered(const struct loose_end *sender, uint32_t back)
{
	if (back >= LOOSE_HISTORY || back >= sender->tail)
		return NULL;
	return &sender->message[(sender->tail - 1 - back) % LOOSE_HISTORY];
}

static void settle_target(const struct loose_end *end)
{
	uint32_t left = differences(end->host, end->target, LOOSE_BYTES);
	const struct loose_message *m;

	for (uint32_t k = 0; left && (m = remembered(end->peer, k)); k++)
		if (m->kind >= KIND_WRITE && !m->never)
			left -= adopt_bytes(end->host, m->target, m->bytes, m->length);
}

/* What messages that came to no end have left in a receive; before the next is posted there. */
static void settle_slot(const struct loose_end *end, uint32_t slot)
{
	const uint32_t at = end->receive_area + slot * LOOSE_SLOT, split = end->split[slot];
	const uint32_t capacity = end->loose->capacity;
	uint32_t left = differences(end->host, at, LOOSE_SLOT);
	const struct loose_message *m;

	/* Who dies over a datagram has written it, and takes the receive again. */
	if (left && end->loose->type == SHM_QP_UD && end->loose->world->statistics.restarts) {
		memcpy(end->host->model + at, end->host->bytes + at, split);
		memcpy(end->host->model + at + split + 8, end->host->bytes + at + split + 8,
		       capacity - split);
	}
	if (end->loose->type == SHM_QP_UD)
		return;
	for (uint32_t k = 0; left && (m = remembered(end->peer, k)); k++) {
		const uint32_t length = m->length < capacity ? m->length : capacity;

		if (m->kind >= KIND_WRITE)
			continue;
		left -= adopt_bytes(end->host, at, m->bytes, length < split ? length : split);
		if (length > split)
			left -= adopt_bytes(end->host, at + split + 8, m->bytes + split,
					    length - split);
	}
}

static void settle_end(const struct loose_end *end)
{
	if (end->loose->wild) {
		/* All of its region, the guard within included. */
		memcpy(end->host->model + end->target, end->host->bytes + end->target,
		       end->receive_area + SLOTS * LOOSE_SLOT - end->target);
		return;
	}
	if (!all_come(end->loose->world))
		settle_target(end);
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		settle_slot(end, slot);
}

/* --- posting ---------------------------------------------------------------------- */

static void ring(struct loose_end *end, struct shm_queue *queue)
{
	shm_store_release(&queue->tail, queue->tail + 1);
	shm_doorbell_ring(&end->host->session->worker[end->config.memory->home],
			  end->config.doorbell);
}

static void post_receive(struct loose_end *end)
{
	struct shm_queue *queue = &end->config.memory->receive;
	const uint32_t at = end->receive_area + end->receive_tail % SLOTS * LOOSE_SLOT;
	const uint32_t first = rng_below(&end->loose->world->traffic, end->loose->capacity + 1);
	const struct shm_rqe rqe = { .request_context = end->receive_tail, .nsge = 2 };
	const struct shm_sge sge[2] = {
		{ host_address(end->host, at), first, end->local },
		{ host_address(end->host, at + first + 8), end->loose->capacity - first,
		  end->local },
	};
	uint8_t *slot = shm_queue_slot(end->config.memory, queue->offset, queue->stride,
				       queue->slots, queue->tail);

	end->split[end->receive_tail % SLOTS] = first;
	memcpy(slot, &rqe, sizeof(rqe));
	memcpy(slot + sizeof(rqe), sge, sizeof(sge));
	end->receive_tail++;
	ring(end, queue);
}

static uint32_t draw_size(struct loose_end *end, bool write)
{
	struct rng *rng = &end->loose->world->traffic;
	const struct loose *loose = end->loose;
	uint32_t most = loose->capacity;

	if (loose->type == SHM_QP_UD)
		most = loose->capacity - GRH < loose->mtu ? loose->capacity - GRH : loose->mtu;
	else if (write)
		most = LOOSE_BYTES;
	switch (rng_below(rng, 6)) {
	case 0: return 0;
	case 1: return most < 16 ? most : rng_between(rng, 1, 16);
	case 2: return most < loose->mtu ? most : loose->mtu;
	case 3: /* longer than the receive */
		if (loose->type == SHM_QP_UC && !write && most < LOOSE_BYTES - 100)
			return most + (rng_percent(rng, 50) ? 1 : rng_between(rng, 1, 100));
		if (loose->type == SHM_QP_UD && most < loose->mtu)
			return most +
			       (rng_percent(rng, 50) ? 1 : rng_between(rng, 1, loose->mtu - most));
		return most;
	default: return rng_below(rng, most + 1);
	}
}

static bool takes_receive(const struct loose_message *m)
{
	return m->kind != KIND_WRITE;
}

static bool too_long(const struct loose_end *end, const struct loose_message *m)
{
	const uint32_t head = end->loose->type == SHM_QP_UD ? GRH : 0;

	return m->kind != KIND_WRITE && m->kind != KIND_WRITE_IMM &&
	       m->length + head > end->loose->capacity;
}

/* Which never arrive as a message, by what is wrong with them. */
static void spoil(struct loose_end *end, struct loose_message *m, struct shm_sqe *sqe)
{
	struct rng *rng = &end->loose->world->traffic;

	m->never |= too_long(end, m);
	if (end->loose->type == SHM_QP_RC || !rng_percent(rng, 3))
		return;
	if (end->loose->type == SHM_QP_UD) {
		sqe->mr = QKEY ^ 1u << rng_below(rng, 31);
		m->never = true;
	} else if (m->kind >= KIND_WRITE && m->length) {
		sqe->token = (uint32_t)rng_next(rng);
		m->never = true;
	}
}

static void fill_target(struct loose_end *end, struct loose_message *m, struct shm_sqe *sqe)
{
	struct rng *rng = &end->loose->world->traffic;

	if (end->loose->type == SHM_QP_UD) {
		sqe->mw = end->ah;
		sqe->token = end->peer->number;
		sqe->mr = rng_percent(rng, 50) ? QKEY : 0x80000000u | (uint32_t)rng_next(rng);
		return;
	}
	if (m->kind < KIND_WRITE)
		return;
	m->target = end->peer->target + rng_below(rng, LOOSE_BYTES - m->length + 1);
	sqe->address = host_address(end->peer->host, m->target);
	sqe->token = end->peer->remote;
}

static void post_send(struct loose_end *end)
{
	static const uint8_t opcode[] = { [KIND_SEND] = SHM_WR_SEND,
					  [KIND_SEND_IMM] = SHM_WR_SEND_IMMEDIATE,
					  [KIND_WRITE] = SHM_WR_WRITE,
					  [KIND_WRITE_IMM] = SHM_WR_WRITE_IMMEDIATE };
	struct loose_message *m = &end->message[end->tail % LOOSE_HISTORY];
	struct shm_queue *queue = &end->config.memory->send;
	struct rng *rng = &end->loose->world->traffic;
	struct host *host = end->host;
	struct shm_sge sge;
	struct shm_sqe sqe = { .nsge = 1, .request_context = end->tail };
	uint8_t *slot = shm_queue_slot(end->config.memory, queue->offset, queue->stride,
				       queue->slots, queue->tail);

	free(m->bytes);
	*m = (struct loose_message){ .number = end->tail };
	m->kind = rng_percent(rng, 50) ? KIND_SEND : KIND_SEND_IMM;
	if (end->loose->type != SHM_QP_UD && rng_percent(rng, 50))
		m->kind = rng_percent(rng, 50) ? KIND_WRITE : KIND_WRITE_IMM;
	m->length = draw_size(end, m->kind >= KIND_WRITE);
	m->bytes = malloc(m->length + 1);
	if (m->bytes == NULL)
		fail(end, "no memory for messages", 0);
	sge = (struct shm_sge){ host_address(host, end->source), m->length, host->local[0] };
	/* The source is refreshed while nobody reads it. */
	if (end->head == end->tail && rng_percent(rng, 10)) {
		rng_fill(rng, host->model + end->source, LOOSE_BYTES);
		memcpy(host->bytes + end->source, host->model + end->source, LOOSE_BYTES);
	}
	sge.address += rng_below(rng, LOOSE_BYTES - m->length + 1);
	memcpy(m->bytes, host->model + (sge.address - host->base), m->length);
	m->immediate = sqe.immediate = (uint32_t)rng_next(rng);
	m->solicited = rng_percent(rng, 30);
	sqe.flags = m->solicited ? SHM_FLAG_SOLICIT : 0;
	sqe.opcode = opcode[m->kind];
	fill_target(end, m, &sqe);
	m->token = sqe.token;
	spoil(end, m, &sqe);
	m->token = sqe.token;
	memcpy(slot, &sqe, sizeof(sqe));
	memcpy(slot + sizeof(sqe), &sge, sizeof(sge));
	/* Before what was sent is forgotten. */
	if (++end->tail % (LOOSE_HISTORY / 4) == 0)
		settle_end(end->peer);
	end->loose->world->statistics.loose++;
	sim_log(end->loose->world, "loose pair %u end %u: posts %u, kind %u, %u bytes%s",
		end->loose->number, end->side, m->number, m->kind, m->length,
		m->never ? ", for nothing" : "");
	if (all_come(end->loose->world) && !m->never && m->kind >= KIND_WRITE)
		memcpy(end->peer->host->model + m->target, m->bytes, m->length);
	ring(end, queue);
}

/* --- completions ------------------------------------------------------------------ */

static uint8_t received_byte(const struct loose_end *end, uint32_t receive, uint32_t at)
{
	const uint32_t slot = receive % SLOTS, split = end->split[slot];

	return end->host->bytes[end->receive_area + slot * LOOSE_SLOT + at + (at < split ? 0 : 8)];
}

static bool holds(const struct loose_end *end, const struct loose_message *m, uint32_t receive,
		  uint32_t head)
{
	for (uint32_t i = 0; i < m->length; i++)
		if (received_byte(end, receive, head + i) != m->bytes[i])
			return false;
	return true;
}

static bool is_message(const struct loose_end *end, const struct loose_message *m,
		       const struct shm_cqe *cqe)
{
	const uint32_t head = end->loose->type == SHM_QP_UD ? GRH : 0;
	const uint32_t type = m->kind == KIND_SEND       ? 0x1
			      : m->kind == KIND_SEND_IMM ? 0x2001
							 : 0x4001;

	if (m->never || !takes_receive(m) || cqe->type != type || cqe->bytes != m->length + head ||
	    cqe->output != (m->kind == KIND_SEND ? 0 : m->immediate) ||
	    cqe->solicited != m->solicited)
		return false;
	return m->kind == KIND_WRITE_IMM || holds(end, m, end->receive_head, head);
}

/* The 40 bytes before a datagram: who sent it. */
static void check_grh(const struct loose_end *end, const struct shm_cqe *cqe)
{
	const struct qp_path *path = &end->peer->path;
	const bool v4 = path->local_gid[10] == 0xff;
	uint8_t grh[GRH];

	for (uint32_t i = 0; i < GRH; i++)
		grh[i] = received_byte(end, end->receive_head, i);
	if (cqe->source_qpn != end->peer->number || !(cqe->flags & SHM_CQE_GRH))
		fail(end, "source queue pair of a datagram", cqe->source_qpn);
	if (v4 && (grh[20] != 0x45 || memcmp(grh + 32, path->local_gid + 12, 4) ||
		   memcmp(grh + 36, path->remote_gid + 12, 4)))
		fail(end, "IPv4 header before a datagram", grh[20]);
	for (uint32_t i = 0; v4 && i < 20; i++)
		if (grh[i])
			fail(end, "byte before an IPv4 header", i);
	if (!v4 && (grh[0] >> 4 != 6 || memcmp(grh + 8, path->local_gid, 16) ||
		    memcmp(grh + 24, path->remote_gid, 16)))
		fail(end, "IPv6 header before a datagram", grh[0]);
}

/* Bytes that are known now become the model's. */
static void keep_received(const struct loose_end *end, uint32_t bytes)
{
	const uint32_t slot = end->receive_head % SLOTS, split = end->split[slot];

	for (uint32_t i = 0; i < bytes; i++) {
		const uint32_t at = end->receive_area + slot * LOOSE_SLOT + i + (i < split ? 0 : 8);

		end->host->model[at] = end->host->bytes[at];
	}
}

static void took_message(struct loose_end *end, const struct shm_cqe *cqe)
{
	struct loose_end *sender = end->peer;
	const bool order = in_order(end->loose->world);
	uint32_t i = order ? end->matched : 0;

	if (sender->tail > LOOSE_HISTORY && i < sender->tail - LOOSE_HISTORY)
		i = sender->tail - LOOSE_HISTORY;
	while (i != sender->tail && !is_message(end, &sender->message[i % LOOSE_HISTORY], cqe))
		i++;
	if (i == sender->tail)
		fail(end, "a receive holds what nobody sent", end->receive_head);
	if (end->loose->type == SHM_QP_UD)
		check_grh(end, cqe);
	if (sender->message[i % LOOSE_HISTORY].kind != KIND_WRITE_IMM)
		keep_received(end, cqe->bytes);
	for (uint32_t k = end->matched; order && all_come(end->loose->world) && k < i; k++)
		if (!sender->message[k % LOOSE_HISTORY].never &&
		    takes_receive(&sender->message[k % LOOSE_HISTORY]))
			fail(end, "a message is missing", k);
	if (order)
		end->matched = i + 1;
	end->loose->world->statistics.loose_received++;
}

static void loose_receive(struct loose_end *end, const struct shm_cqe *cqe)
{
	/* A CQ that was overrun has lost some. */
	if (end->small_cq && end->cq->memory->error)
		return;
	if (cqe->request_context != end->receive_head || end->receive_head == end->receive_tail)
		fail(end, "completion of another receive", cqe->request_context);
	if (end->loose->wild && cqe->bytes > LOOSE_BYTES)
		fail(end, "bytes of a receive", cqe->bytes);
	if (end->loose->wild)
		sim_log(end->loose->world, "loose pair %u end %u: receive %u status %#x",
			end->loose->number, end->side, end->receive_head,
			(unsigned int)cqe->status);
	else if (cqe->status == NT_SUCCESS_STATUS)
		took_message(end, cqe);
	else if (cqe->status != NT_CANCELLED || !end->flush_asked)
		fail(end, "status of a receive", (uint32_t)cqe->status);
	settle_slot(end, end->receive_head % SLOTS);
	end->receive_head++;
}

static void loose_send(struct loose_end *end, const struct shm_cqe *cqe)
{
	const struct loose_message *m = &end->message[end->head % LOOSE_HISTORY];

	if (end->small_cq && end->cq->memory->error)
		return;
	if (cqe->request_context != end->head || end->head == end->tail)
		fail(end, "completion of another request", cqe->request_context);
	if (cqe->type != (m->kind >= KIND_WRITE ? 0x40u : 0x2u) || cqe->output != m->token)
		fail(end, "type of a completion", cqe->type);
	if (!end->loose->wild && cqe->status != NT_SUCCESS_STATUS &&
	    (cqe->status != NT_CANCELLED || !end->flush_asked))
		fail(end, "status of a request", (uint32_t)cqe->status);
	end->head++;
}

static unsigned int poll_end(struct loose_end *end)
{
	struct sim_cq *cq = end->cq;
	unsigned int done = 0;

	for (unsigned int i = 0; i < end->host->workers; i++) {
		struct shm_cq_ring *one = &cq->memory->ring[i];
		const struct shm_cqe *entries = (void *)((uint8_t *)cq->memory + one->offset);

		if (shm_load_acquire(&one->cursor.tail) - cq->head[i] > cq->depth)
			fail(end, "more entries than the CQ takes", cq->depth);
		while (cq->head[i] != shm_load_acquire(&one->cursor.tail)) {
			const struct shm_cqe cqe = entries[cq->head[i] & (cq->memory->slots - 1)];

			shm_store_release(&one->cursor.head, ++cq->head[i]);
			if (cqe.qpn != end->number || cqe.qp_context != end->config.qp_context)
				fail(end, "queue pair of a completion", cqe.qpn);
			if (cqe.type & 1)
				loose_receive(end, &cqe);
			else
				loose_send(end, &cqe);
			done++;
		}
	}
	return done;
}

/* --- turns ------------------------------------------------------------------------ */

static bool may_send(const struct loose_end *end)
{
	const struct world *world = end->loose->world;

	if (world->draining || end->flush_asked || host_is_fresh(end->host) ||
	    end->tail - end->head >= end->config.send_depth)
		return false;
	/* So many that each surely finds its receive. */
	return !all_come(world) ||
	       end->tail - end->peer->matched < end->peer->receive_tail - end->peer->receive_head;
}

/* A wild one that is dead is flushed, and the next one takes its place. */
static unsigned int replace(struct loose *loose)
{
	struct world *world = loose->world;
	const uint32_t number = loose->number;

	if (!loose->end[0].flush_asked) {
		loose_flush(loose);
		return 1;
	}
	if (world->closing || host_is_fresh(loose->end[0].host) ||
	    host_is_fresh(loose->end[1].host) || !loose_is_flushed(loose))
		return 0;
	settle_end(&loose->end[0]);
	settle_end(&loose->end[1]);
	loose_close(loose);
	loose_open(world, number);
	return 1;
}

unsigned int loose_turn(struct loose *loose)
{
	struct rng *rng = &loose->world->traffic;
	unsigned int done = 0;

	for (int i = 0; i < 2; i++)
		if (qp_get_state(loose->end[i].host->shared, loose->end[i].index) == QP_ERROR)
			loose->dead |= loose->wild;
	if (loose->dead)
		done += replace(loose);

	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		if (loose->world->draining || rng_percent(rng, 70))
			done += poll_end(end);
		if (end->flush_asked)
			continue;
		while (end->receive_tail - end->receive_head < end->config.receive_depth &&
		       !rng_percent(rng, 10))
			post_receive(end);
		for (uint32_t n = rng_below(rng, 3); n && may_send(end); n--, done++)
			post_send(end);
	}
	return done;
}

/* Where all must come, they have. */
bool loose_is_still(const struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		const struct loose_end *end = &loose->end[i];

		if (end->head != end->tail && !end->overrun)
			return false;
		if (all_come(loose->world) && end->frames_sent != end->peer->frames_come)
			return false;
	}
	return true;
}

/* --- all of them ------------------------------------------------------------------ */

void loose_settle(struct world *world)
{
	for (uint32_t i = 0; i < world->looses; i++) {
		settle_end(&world->loose[i].end[0]);
		settle_end(&world->loose[i].end[1]);
	}
}

/* --- frames and events ------------------------------------------------------------ */

struct loose_end *loose_find(const struct host *host, uint32_t number)
{
	const struct world *world = host->world;

	for (uint32_t i = 0; i < world->looses; i++) {
		struct loose_end *end = &world->loose[i].end[host->number];

		if (end->index && end->number == number)
			return end;
	}
	return NULL;
}

void loose_sent(struct loose_end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const uint32_t base = sender->loose->type == SHM_QP_UC ? 0x20 : 0x60;
	const uint32_t ahead = (facts->psn - sender->next_psn) % PSNS;

	sender->frames_sent++;
	if (sender->loose->type == SHM_QP_RC || facts->opcode == 0x81)
		return;
	if ((facts->opcode & 0xe0u) != base)
		fail(sender, "opcode of a frame", facts->opcode);
	/* None is ever sent twice; who dies may have skipped some. */
	if (ahead && (sender->host->generation == 0 || ahead > PSNS / 2))
		fail(sender, "PSN of a frame", facts->psn);
	if (facts->ack_request || memcmp(frame, sender->path.remote_mac, 6) ||
	    memcmp(frame + 6, sender->path.local_mac, 6))
		fail(sender, "head of a frame", facts->psn);
	sender->next_psn = (facts->psn + 1) % PSNS;
}

void loose_overrun(struct host *host, uint32_t cq)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		if (end->index == 0 || end->cq->index != cq)
			continue;
		if (!end->small_cq || end->overrun)
			break;
		end->overrun = end->loose->dead = true;
		if (end->cq->memory->error != (uint32_t)NT_BUFFER_OVERFLOW)
			fail(end, "error of a CQ", end->cq->memory->error);
		return;
	}
	sim_fail(host->world, "host %u: CQ %u was overrun", host->number, cq);
}

bool loose_event(struct host *host, const struct transport_event *event)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		if (end->index == 0 || end->index != event->object)
			continue;
		if (event->type == TRANSPORT_QP_FLUSHED)
			end->flushed = true;
		else if (event->type == TRANSPORT_QP_ERROR && end->loose->wild)
			end->loose->dead = true;
		else if (end->loose->wild && event->type == TRANSPORT_BAD_TOKEN)
			return true;
		else if (event->type != TRANSPORT_QP_ESTABLISHED &&
			 (event->type != TRANSPORT_BAD_TOKEN || end->loose->type != SHM_QP_UC))
			fail(end, "event", event->type);
		return true;
	}
	return false;
}

/* --- restart and end -------------------------------------------------------------- */

void loose_show(struct host *host)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		cq_set_memory(host->shared, end->cq->index, end->cq->memory);
		qp_set_memory(host->shared, end->index, end->config.memory);
	}
}

void loose_resume(struct host *host)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];
		struct transport *transport = host->worker[end->worker].transport;

		transport_attach(transport, end->index, host->world->now);
		if (end->flush_asked && !end->flushed)
			transport_flush(transport, end->index, host->world->now);
	}
}

bool loose_is_wild(const struct host *host, uint32_t number)
{
	const struct loose_end *end = loose_find(host, number);

	return end && end->loose->wild;
}

void loose_flush(struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		if (end->flush_asked)
			continue;
		end->flush_asked = true;
		transport_flush(end->host->worker[end->worker].transport, end->index,
				loose->world->now);
	}
}

bool loose_is_flushed(const struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		const struct loose_end *end = &loose->end[i];

		if (end->flushed && end->small_cq && end->cq->memory->error)
			continue;
		if (!end->flushed || end->head != end->tail ||
		    end->receive_head != end->receive_tail)
			return false;
	}
	return true;
}

void loose_close(struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];
		struct host *host = end->host;
		uint64_t grace;

		transport_detach(host->worker[end->worker].transport, end->index);
		qp_destroy(host->shared, end->index);
		if (end->ah) {
			ah_destroy(host->shared, end->ah, &grace);
			ah_free(host->shared, end->ah);
		}
		cq_close(end->cq);
		if (region_deregister(host->memory, loose->region[i], &grace))
			fail(end, "its region cannot be deregistered", 0);
		region_deregister_finish(host->memory, loose->region[i]);
		region_destroy(host->memory, loose->region[i]);
		free(end->config.memory);
		for (uint32_t k = 0; k < LOOSE_HISTORY; k++)
			free(end->message[k].bytes);
		end->index = 0;
	}
}
