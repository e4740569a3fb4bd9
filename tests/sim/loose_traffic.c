/* SPDX-License-Identifier: BSD-3-Clause */
/* What unreliable queue pairs send and receive, and what that makes of memory. */
#include <stdlib.h>
#include <string.h>

#include "loose.h"
#include "shm/spsc.h"

#define GRH   40u
#define SLOTS LOOSE_RECEIVES

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

void loose_settle_end(const struct loose_end *end)
{
	if (end->loose->wild) {
		/* All of its region, the guard within included. */
		memcpy(end->host->model + end->target, end->host->bytes + end->target,
		       end->receive_area + SLOTS * LOOSE_SLOT - end->target);
		return;
	}
	if (!loose_all_come(end->loose->world))
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

void loose_post_receive(struct loose_end *end)
{
	struct shm_queue *queue = end->srq ? &end->srq->receive : &end->config.memory->receive;
	void *memory = end->srq ? (void *)end->srq : (void *)end->config.memory;
	const uint32_t at = end->receive_area + end->receive_tail % SLOTS * LOOSE_SLOT;
	const uint32_t first = rng_below(&end->loose->world->traffic, end->loose->capacity + 1);
	const struct shm_rqe rqe = { .request_context = end->receive_tail, .nsge = 2 };
	const struct shm_sge sge[2] = {
		{ host_address(end->host, at), first, end->local },
		{ host_address(end->host, at + first + 8), end->loose->capacity - first,
		  end->local },
	};
	uint8_t *slot =
		shm_queue_slot(memory, queue->offset, queue->stride, queue->slots, queue->tail);

	end->split[end->receive_tail % SLOTS] = first;
	memcpy(slot, &rqe, sizeof(rqe));
	memcpy(slot + sizeof(rqe), sge, sizeof(sge));
	end->receive_tail++;
	if (end->srq)
		shm_store_release(&queue->tail, queue->tail + 1);
	else
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
		sqe->mr = LOOSE_QKEY ^ 1u << rng_below(rng, 31);
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
		sqe->mr = rng_percent(rng, 50) ? LOOSE_QKEY : 0x80000000u | (uint32_t)rng_next(rng);
		return;
	}
	if (m->kind < KIND_WRITE)
		return;
	m->target = end->peer->target + rng_below(rng, LOOSE_BYTES - m->length + 1);
	sqe->address = host_address(end->peer->host, m->target);
	sqe->token = end->peer->remote;
}

void loose_queue(struct loose_end *end, const struct shm_sqe *sqe, const struct shm_sge *sge)
{
	struct shm_queue *queue = &end->config.memory->send;
	uint8_t *slot = shm_queue_slot(end->config.memory, queue->offset, queue->stride,
				       queue->slots, queue->tail);

	memcpy(slot, sqe, sizeof(*sqe));
	memcpy(slot + sizeof(*sqe), sge, sizeof(*sge));
	ring(end, queue);
}

void loose_post_send(struct loose_end *end)
{
	static const uint8_t opcode[] = { [KIND_SEND] = SHM_WR_SEND,
					  [KIND_SEND_IMM] = SHM_WR_SEND_IMMEDIATE,
					  [KIND_WRITE] = SHM_WR_WRITE,
					  [KIND_WRITE_IMM] = SHM_WR_WRITE_IMMEDIATE };
	struct loose_message *m = &end->message[end->tail % LOOSE_HISTORY];
	struct rng *rng = &end->loose->world->traffic;
	struct host *host = end->host;
	struct shm_sge sge;
	struct shm_sqe sqe = { .nsge = 1, .request_context = end->tail };

	free(m->bytes);
	*m = (struct loose_message){ .number = end->tail };
	m->kind = rng_percent(rng, 50) ? KIND_SEND : KIND_SEND_IMM;
	if (end->loose->type != SHM_QP_UD && rng_percent(rng, 50))
		m->kind = rng_percent(rng, 50) ? KIND_WRITE : KIND_WRITE_IMM;
	m->length = draw_size(end, m->kind >= KIND_WRITE);
	m->bytes = malloc(m->length + 1);
	if (m->bytes == NULL)
		loose_fail(end, "no memory for messages", 0);
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
	/* Before what was sent is forgotten. */
	if (++end->tail % (LOOSE_HISTORY / 4) == 0)
		loose_settle_end(end->peer);
	end->loose->world->statistics.loose++;
	sim_log(end->loose->world, "loose pair %u end %u: posts %u, kind %u, %u bytes%s",
		end->loose->number, end->side, m->number, m->kind, m->length,
		m->never ? ", for nothing" : "");
	if (loose_all_come(end->loose->world) && !m->never && m->kind >= KIND_WRITE)
		memcpy(end->peer->host->model + m->target, m->bytes, m->length);
	loose_queue(end, &sqe, &sge);
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
		loose_fail(end, "source queue pair of a datagram", cqe->source_qpn);
	if (v4 && (grh[20] != 0x45 || memcmp(grh + 32, path->local_gid + 12, 4) != 0 ||
		   memcmp(grh + 36, path->remote_gid + 12, 4) != 0))
		loose_fail(end, "IPv4 header before a datagram", grh[20]);
	for (uint32_t i = 0; v4 && i < 20; i++)
		if (grh[i])
			loose_fail(end, "byte before an IPv4 header", i);
	if (!v4 && (grh[0] >> 4 != 6 || memcmp(grh + 8, path->local_gid, 16) != 0 ||
		    memcmp(grh + 24, path->remote_gid, 16) != 0))
		loose_fail(end, "IPv6 header before a datagram", grh[0]);
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
	const bool order = loose_in_order(end->loose->world);
	uint32_t i = order ? end->matched : 0;

	if (sender->tail > LOOSE_HISTORY && i < sender->tail - LOOSE_HISTORY)
		i = sender->tail - LOOSE_HISTORY;
	while (i != sender->tail && !is_message(end, &sender->message[i % LOOSE_HISTORY], cqe))
		i++;
	if (i == sender->tail)
		loose_fail(end, "a receive holds what nobody sent", end->receive_head);
	if (end->loose->type == SHM_QP_UD)
		check_grh(end, cqe);
	if (sender->message[i % LOOSE_HISTORY].kind != KIND_WRITE_IMM)
		keep_received(end, cqe->bytes);
	for (uint32_t k = end->matched; order && loose_all_come(end->loose->world) && k < i; k++)
		if (!sender->message[k % LOOSE_HISTORY].never &&
		    takes_receive(&sender->message[k % LOOSE_HISTORY]))
			loose_fail(end, "a message is missing", k);
	for (uint32_t k = end->matched; order && k < i; k++) {
		const struct loose_message *m = &sender->message[k % LOOSE_HISTORY];

		if (!m->never && takes_receive(m) && loose_came_whole(end, m))
			loose_fail(end, "a message that came whole is missing", k);
	}
	if (order)
		end->matched = i + 1;
	end->loose->world->statistics.loose_received++;
}

static void loose_receive(struct loose_end *end, const struct shm_cqe *cqe)
{
	/* A CQ that was overrun has lost some. */
	if (end->small && end->small->memory->error)
		return;
	if (cqe->request_context != end->receive_head || end->receive_head == end->receive_tail)
		loose_fail(end, "completion of another receive", cqe->request_context);
	if (end->loose->wild && cqe->bytes > LOOSE_BYTES)
		loose_fail(end, "bytes of a receive", cqe->bytes);
	if (end->loose->wild)
		sim_log(end->loose->world, "loose pair %u end %u: receive %u status %#x",
			end->loose->number, end->side, end->receive_head,
			(unsigned int)cqe->status);
	else if (cqe->status == NT_SUCCESS_STATUS)
		took_message(end, cqe);
	else if (cqe->status != NT_CANCELLED || !(end->flush_asked || end->wrong))
		loose_fail(end, "status of a receive", (uint32_t)cqe->status);
	settle_slot(end, end->receive_head % SLOTS);
	end->receive_head++;
}

static void loose_send(struct loose_end *end, const struct shm_cqe *cqe)
{
	const struct loose_message *m = &end->message[end->head % LOOSE_HISTORY];

	if (end->small && end->small->memory->error)
		return;
	if (cqe->request_context != end->head || end->head == end->tail)
		loose_fail(end, "completion of another request", cqe->request_context);
	if (cqe->type != (m->type                 ? m->type
			  : m->kind >= KIND_WRITE ? 0x40u
						  : 0x2u) ||
	    cqe->output != m->token)
		loose_fail(end, "type of a completion", cqe->type);
	if (m->status && cqe->status != m->status)
		loose_fail(end, "status of a wrong request", (uint32_t)cqe->status);
	if (!end->loose->wild && m->status == 0 && cqe->status != NT_SUCCESS_STATUS &&
	    (cqe->status != NT_CANCELLED || !end->flush_asked))
		loose_fail(end, "status of a request", (uint32_t)cqe->status);
	end->head++;
}

/* As many as it takes, and just as many when one more has broken it. */
static void check_count(struct loose_end *end, const struct sim_cq *cq, uint32_t count,
			unsigned int worker)
{
	if (count > cq->depth)
		loose_fail(end, "more entries than the CQ takes", count);
	if (worker != end->worker || cq != end->small || !cq->memory->error || end->broken_seen)
		return;
	end->broken_seen = true;
	if (count != cq->depth && end->loose->world->statistics.restarts == 0)
		loose_fail(end, "entries of a CQ that was overrun", count);
}

static unsigned int poll_cq(struct loose_end *end, struct sim_cq *cq)
{
	unsigned int done = 0;

	for (unsigned int i = 0; i < end->host->workers; i++) {
		struct shm_cq_ring *one = &cq->memory->ring[i];
		const struct shm_cqe *entries = (void *)((uint8_t *)cq->memory + one->offset);

		check_count(end, cq, shm_load_acquire(&one->cursor.tail) - cq->head[i], i);
		while (cq->head[i] != shm_load_acquire(&one->cursor.tail)) {
			const struct shm_cqe cqe = entries[cq->head[i] & (cq->memory->slots - 1)];

			shm_store_release(&one->cursor.head, ++cq->head[i]);
			if (cqe.qpn != end->number || cqe.qp_context != end->config.qp_context)
				loose_fail(end, "queue pair of a completion", cqe.qpn);
			if (cqe.type & 1)
				loose_receive(end, &cqe);
			else
				loose_send(end, &cqe);
			done++;
		}
	}
	return done;
}

unsigned int loose_poll_end(struct loose_end *end)
{
	const unsigned int done = poll_cq(end, end->cq);

	return end->receive_cq == end->cq ? done : done + poll_cq(end, end->receive_cq);
}
