/* SPDX-License-Identifier: BSD-3-Clause */
/* The two ends, their clients, the link between them, and the raw peer. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/segment.h"
#include "shm/spsc.h"
#include "rig.h"

/* --- io ------------------------------------------------------------------------------- */

static struct pktbuf *new_buffer(struct end *end)
{
	struct pktbuf *packet = malloc(sizeof(*packet));

	cr_assert_not_null(packet);
	packet->data = malloc(RIG_FRAME);
	packet->capacity = RIG_FRAME;
	packet->length = 0;
	end->buffers++;
	return packet;
}

static void free_buffer(struct end *end, struct pktbuf *packet)
{
	free(packet->data);
	free(packet);
	end->buffers--;
}

static struct pktbuf *io_get(void *context, const uint8_t source_mac[6])
{
	struct end *end = context;

	if (end->room == 0 || (end->stuck && end->stuck == source_mac[5]))
		return NULL;
	end->room--;
	return new_buffer(end);
}

static void io_put(void *context, struct pktbuf *packet, enum pktbuf_fate fate)
{
	struct end *end = context;

	if (fate == PKTBUF_FREE) {
		free_buffer(end, packet);
		return;
	}
	cr_assert_lt(end->out.tail - end->out.head, 4096);
	end->out.frame[end->out.tail++ % 4096] = packet;
}

static void io_event(void *context, const struct transport_event *event)
{
	struct end *end = context;

	cr_assert_lt(end->events, RIG_EVENTS);
	end->event[end->events++] = *event;
}

static void io_notify(void *context, uint32_t session)
{
	struct end *end = context;

	cr_assert_eq(session, RIG_SESSION);
	end->notified++;
}

/* --- an end --------------------------------------------------------------------------- */

static void create_arena(struct end *end, struct transport_sizes *sizes)
{
	const struct memory_sizes memory_sizes = {
		.tokens = 256, .segments = 8, .regions = 16, .windows = 16, .pds = 8
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };

	memory_arena_spec(&memory_sizes, spec);
	transport_arena_spec(sizes, spec);
	cr_assert_eq(arena_create(&end->arena, spec), 0);
	cr_assert_eq(memory_create(&end->memory, &end->arena, end->workers, false), 0);
	cr_assert_eq(transport_shared_create(&end->shared, &end->arena, end->memory, sizes, false),
		     0);
}

static void create_memory(struct end *end)
{
	void *address;
	int fd = shm_segment_create("rig", RIG_MEMORY, false);

	cr_assert_geq(fd, 0);
	cr_assert_eq(shm_segment_map(fd, RIG_MEMORY, true, &address), 0);
	end->bytes = address;
	end->memfd = dup(fd);
	cr_assert_eq(segment_attach(end->memory, RIG_SESSION, 1, fd, -1, &end->segment), 0);
	cr_assert_eq(pd_create(end->memory, RIG_SESSION, &end->pd), 0);
	cr_assert_eq(region_create(end->memory, RIG_SESSION, end->pd, false, &end->region), 0);
	cr_assert_eq(region_register(end->memory, end->region, end->segment, 0, RIG_MEMORY,
				     RIG_BASE, RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE,
				     &end->local_token, &end->remote_token),
		     0);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(window_create(end->memory, RIG_SESSION, end->pd, &end->window[i]), 0);
	cr_assert_eq(token_reserve(end->memory, RIG_SESSION, 32, end->tokens), 32);
}

static void start_worker(struct end *end, unsigned int worker)
{
	const struct transport_io io = { io_get, io_put, io_event, io_notify, end };

	cr_assert_eq(transport_create(&end->worker[worker], end->shared, worker, &io), 0);
}

void end_create_tables(struct end *end, unsigned int workers, uint8_t address)
{
	struct transport_sizes sizes = { .qps = 64,
					 .cqs = 32,
					 .srqs = 2,
					 .addresses = 8,
					 .resources = 64 * 16,
					 .flights = 600,
					 .workers = workers,
					 .sessions = 80 };

	memset(end, 0, sizeof(*end));
	end->workers = workers;
	end->sizes = sizes;
	end->room = UINT32_MAX;
	end->mac[0] = 2;
	end->mac[5] = address;
	gid_from_v4(end->gid, (uint8_t[4]){ 10, 0, 0, address });
	create_arena(end, &sizes);
	create_memory(end);
	end->session =
		aligned_alloc(64, sizeof(*end->session) + workers * sizeof(struct shm_worker_area));
	memset(end->session, 0, sizeof(*end->session) + workers * sizeof(struct shm_worker_area));
	end->session->workers = workers;
	transport_set_session(end->shared, RIG_SESSION, end->session);
}

void end_create(struct end *end, unsigned int workers, uint8_t address)
{
	end_create_tables(end, workers, address);
	for (unsigned int i = 0; i < workers; i++) {
		start_worker(end, i);
		memory_reader_online(end->memory, i);
		transport_add_session(end->worker[i], RIG_SESSION);
	}
}

void end_drain(struct end *end)
{
	while (end->out.head != end->out.tail)
		free_buffer(end, end->out.frame[end->out.head++ % 4096]);
}

void end_restart(struct end *end, uint64_t now)
{
	const struct transport_sizes sizes = end->sizes;

	end_drain(end);
	for (unsigned int i = 0; i < end->workers; i++)
		transport_destroy(end->worker[i]);
	transport_shared_destroy(end->shared);
	cr_assert_eq(transport_shared_create(&end->shared, &end->arena, end->memory, &sizes, true),
		     0);
	transport_set_session(end->shared, RIG_SESSION, end->session);
	for (uint32_t i = 0; i < end->qps; i++) {
		cq_set_memory(end->shared, end->qp[i].cq, end->qp[i].cq_memory);
		qp_set_memory(end->shared, end->qp[i].index, end->qp[i].memory);
	}
	for (unsigned int i = 0; i < end->workers; i++) {
		start_worker(end, i);
		transport_adopt_session(end->worker[i], RIG_SESSION);
	}
	for (uint32_t i = 0; i < end->qps; i++)
		transport_attach(end_home(end, &end->qp[i]), end->qp[i].index, now);
}

struct rig_qp *end_open_qp_config(struct end *end, struct qp_config *config, uint32_t cq_depth)
{
	struct rig_qp *qp = &end->qp[end->qps];
	struct cq_config cq = { .session = RIG_SESSION, .depth = cq_depth, .notify = end->qps };

	cr_assert_lt(end->qps, RIG_QPS);
	end->qps++;
	memset(qp, 0, sizeof(*qp));
	cq.memory_size = cq_memory_size(cq.depth, end->workers);
	cq.memory = calloc(1, cq.memory_size);
	qp->cq_memory = cq.memory;
	qp->cq = cq_create(end->shared, &cq);
	cr_assert_neq(qp->cq, 0);
	config->session = RIG_SESSION;
	config->pd = end->pd;
	config->send_cq = config->receive_cq = qp->cq;
	config->qp_context = 0xc0de0000 + end->qps;
	config->doorbell = end->qps;
	config->memory_size = qp_memory_size(config);
	config->memory = calloc(1, config->memory_size);
	qp->config = *config;
	qp->memory = config->memory;
	qp->index = qp_create(end->shared, config);
	cr_assert_neq(qp->index, 0);
	qp->number = qp_number(end->shared, qp->index);
	transport_attach(end->worker[config->home], qp->index, 1);
	return qp;
}

struct rig_qp *end_open_qp(struct end *end, uint32_t worker, uint32_t depth)
{
	struct qp_config config = { .type = SHM_QP_RC,
				    .send_depth = depth,
				    .receive_depth = depth,
				    .send_sge = 4,
				    .receive_sge = 4,
				    .inline_size = 64,
				    .home = worker };

	return end_open_qp_config(end, &config, 4 * depth);
}

struct transport *end_home(const struct end *end, const struct rig_qp *qp)
{
	return end->worker[qp_home(end->shared, qp->index)];
}

/* A frame to the worker that owns its queue pair. */
static void end_receive(struct end *end, struct pktbuf *packet, uint64_t now)
{
	struct wire_view view;
	uint32_t index;

	cr_assert_eq(wire_parse(packet->data, packet->length, &view), WIRE_OK);
	cr_assert(icrc_verify(&view), "every frame has a right ICRC");
	index = qp_find(end->shared, view.qpn);
	if (!transport_receive(end->worker[index ? qp_home(end->shared, index) : 0], &view, packet,
			       now))
		free_buffer(end, packet);
}

void end_move_qp(struct end *end, struct rig_qp *qp, unsigned int to, uint64_t now)
{
	struct transport *from = end_home(end, qp);
	struct pktbuf *waiting[256], *packet;
	unsigned int count = 0;

	while ((packet = transport_unpark(from, qp->index)) != NULL) {
		cr_assert_lt(count, 256);
		waiting[count++] = packet;
	}
	cr_assert_eq(transport_release(from, qp->index, to, now), 0);
	transport_take(end->worker[to], qp->index, now);
	for (unsigned int i = 0; i < count; i++)
		end_receive(end, waiting[i], now);
}

/* Free records of work requests go home. */
static void return_flights(struct end *end)
{
	for (unsigned int from = 0; from < end->workers; from++)
		for (unsigned int to = 0; to < end->workers; to++)
			if (transport_flights_abroad(end->worker[from]) & 1u << to)
				transport_flights_return(
					end->worker[to],
					transport_flights_leave(end->worker[from], to));
}

void end_close_qp(struct end *end, struct rig_qp *qp, uint64_t now)
{
	if (qp->index == 0)
		return;
	transport_flush(end_home(end, qp), qp->index, now);
	for (int i = 0; i < 100 && !transport_may_detach(end_home(end, qp), qp->index); i++)
		end_poll(end, now);
	cr_assert(transport_may_detach(end_home(end, qp), qp->index));
	transport_detach(end_home(end, qp), qp->index);
	qp_destroy(end->shared, qp->index);
	cq_destroy(end->shared, qp->cq);
	free(qp->memory);
	free(qp->cq_memory);
	qp->index = 0;
}

void end_destroy(struct end *end)
{
	for (uint32_t i = 0; i < end->qps; i++)
		end_close_qp(end, &end->qp[i], 1ull << 50);
	for (unsigned int i = 0; i < end->workers; i++) {
		transport_remove_session(end->worker[i], RIG_SESSION);
		transport_destroy(end->worker[i]);
	}
	end_drain(end);
	cr_expect_eq(end->buffers, 0, "%u frames never came back", end->buffers);
	end_destroy_tables(end);
}

void end_destroy_tables(struct end *end)
{
	transport_shared_destroy(end->shared);
	memory_destroy(end->memory);
	arena_destroy(&end->arena);
	munmap(end->bytes, RIG_MEMORY);
	close(end->memfd);
	free(end->session);
}

void end_deliver(struct end *end, const uint8_t *frame, uint32_t length, uint64_t now)
{
	struct pktbuf *packet = new_buffer(end);

	memcpy(packet->data, frame, length);
	packet->length = length;
	end_receive(end, packet, now);
}

uint32_t end_next_frame(struct end *end, uint8_t frame[RIG_FRAME])
{
	struct pktbuf *packet;
	uint32_t length;

	if (end->out.head == end->out.tail)
		return 0;
	packet = end->out.frame[end->out.head++ % 4096];
	length = packet->length;
	memcpy(frame, packet->data, length);
	free_buffer(end, packet);
	return length;
}

unsigned int end_poll(struct end *end, uint64_t now)
{
	unsigned int done = 0;

	for (unsigned int i = 0; i < end->workers; i++) {
		done += transport_poll(end->worker[i], now);
		memory_quiescent(end->memory, i);
	}
	return_flights(end);
	return done;
}

uint32_t end_count_events(const struct end *end, uint32_t type)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < end->events; i++)
		count += end->event[i].type == type;
	return count;
}

const struct transport_event *end_find_event(const struct end *end, uint32_t type)
{
	for (uint32_t i = 0; i < end->events; i++)
		if (end->event[i].type == type)
			return &end->event[i];
	return NULL;
}

uint64_t end_verdicts(struct end *end, uint32_t verdict)
{
	uint64_t count = 0;

	for (unsigned int i = 0; i < end->workers; i++)
		count += transport_get_stats(end->worker[i])->verdict[verdict];
	return count;
}

uint64_t end_counter(const struct end *end, size_t offset)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < end->workers; i++) {
		const struct transport_stats *stats = transport_get_stats(end->worker[i]);

		sum += *(const uint64_t *)(const void *)((const uint8_t *)stats + offset);
	}
	return sum;
}

uint32_t end_token(struct end *end)
{
	cr_assert_lt(end->next_token, 32);
	return end->tokens[end->next_token++];
}

/* --- two ends ------------------------------------------------------------------------- */

struct qp_connection rig_connection(void)
{
	return (struct qp_connection){ .path_mtu = 1024,
				       .timeout = 14,
				       .retry_count = 7,
				       .rnr_retry = 7,
				       .min_rnr_timer = 12,
				       .max_reads_out = 4,
				       .max_reads_in = 4,
				       .remote_rights = RIGHTS_REMOTE,
				       .path.hop_limit = 64,
				       .send_psn = 0x100,
				       .receive_psn = 0x100 };
}

static void connect_to(struct end *end, struct rig_qp *qp, struct qp_connection c,
		       const struct end *peer, uint32_t number)
{
	memcpy(c.path.local_gid, end->gid, 16);
	memcpy(c.path.remote_gid, peer->gid, 16);
	memcpy(c.path.local_mac, end->mac, 6);
	memcpy(c.path.remote_mac, peer->mac, 6);
	c.remote_qpn = number;
	cr_assert_eq(transport_connect(end_home(end, qp), qp->index, &c, 1), 0);
}

void rig_join(struct rig *rig, struct rig_qp *a, struct rig_qp *b, struct qp_connection ca,
	      struct qp_connection cb)
{
	cb.receive_psn = ca.send_psn;
	ca.receive_psn = cb.send_psn;
	connect_to(&rig->a, a, ca, &rig->b, b->number);
	connect_to(&rig->b, b, cb, &rig->a, a->number);
}

void rig_create_workers(struct rig *rig, unsigned int workers)
{
	memset(rig, 0, sizeof(*rig));
	rig->now = 1000000;
	end_create(&rig->a, workers, 1);
	end_create(&rig->b, workers, 2);
}

void rig_create(struct rig *rig)
{
	rig_create_workers(rig, 1);
}

void rig_connect(struct rig *rig, struct rig_qp **qa, struct rig_qp **qb)
{
	*qa = end_open_qp(&rig->a, 0, 64);
	*qb = end_open_qp(&rig->b, 0, 64);
	rig_join(rig, *qa, *qb, rig_connection(), rig_connection());
}

/* From here on the buffer counts as the receiver's. */
static void deliver(struct end *to, struct end *from, struct pktbuf *packet, uint64_t now)
{
	from->buffers--;
	to->buffers++;
	end_receive(to, packet, now);
}

/* A copy in a buffer of the same sender. */
static struct pktbuf *copy_frame(struct end *end, const struct pktbuf *packet)
{
	struct pktbuf *copy = new_buffer(end);

	memcpy(copy->data, packet->data, packet->length);
	copy->length = packet->length;
	return copy;
}

/* Lets one of the frames that were held back go, the last first. */
static bool release_held(struct rig *rig, bool from_a)
{
	struct end *from = from_a ? &rig->a : &rig->b, *to = from_a ? &rig->b : &rig->a;
	uint32_t *count = &rig->held_count[from_a];

	if (*count == 0)
		return false;
	--*count;
	deliver(to, from, rig->held[from_a][*count], rig->now);
	return true;
}

static void bend_and_deliver(struct rig *rig, bool from_a, struct pktbuf *packet)
{
	struct end *from = from_a ? &rig->a : &rig->b, *to = from_a ? &rig->b : &rig->a;

	switch (rig->bend ? rig->bend(rig, from_a) : RIG_PASS) {
	case RIG_DOUBLE: deliver(to, from, copy_frame(from, packet), rig->now); break;
	case RIG_HOLD:
		if (rig->held_count[from_a] < RIG_HELD) {
			rig->held[from_a][rig->held_count[from_a]++] = packet;
			return;
		}
		break;
	case RIG_PASS: break;
	}
	deliver(to, from, packet, rig->now);
}

static unsigned int pass_frames(struct rig *rig, bool from_a)
{
	struct end *from = from_a ? &rig->a : &rig->b;
	uint32_t *sent = from_a ? &rig->sent_a : &rig->sent_b;
	unsigned int done = 0;

	while (from->out.head != from->out.tail) {
		struct pktbuf *packet = from->out.frame[from->out.head++ % 4096];
		struct wire_view view;

		cr_assert_eq(wire_parse(packet->data, packet->length, &view), WIRE_OK);
		done++;
		if (rig->lose && rig->lose(rig, from_a, (*sent)++, &view)) {
			rig->lost++;
			free_buffer(from, packet);
			continue;
		}
		bend_and_deliver(rig, from_a, packet);
	}
	if (done == 0 || rig->held_count[from_a] == RIG_HELD)
		done += release_held(rig, from_a);
	return done;
}

void rig_destroy(struct rig *rig)
{
	while (release_held(rig, true) || release_held(rig, false))
		;
	end_destroy(&rig->a);
	end_destroy(&rig->b);
}

unsigned int rig_turn(struct rig *rig)
{
	unsigned int done = end_poll(&rig->a, rig->now);

	done += pass_frames(rig, true);
	done += end_poll(&rig->b, rig->now);
	done += pass_frames(rig, false);
	return done;
}

void rig_settle(struct rig *rig)
{
	for (unsigned int turns = 0; rig_turn(rig); turns++)
		cr_assert_lt(turns, 1000000, "never settles");
}

static uint64_t end_deadline(const struct end *end, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (unsigned int i = 0; i < end->workers; i++) {
		uint64_t deadline = transport_next_deadline(end->worker[i], now);

		if (deadline < next)
			next = deadline;
	}
	return next;
}

void rig_run(struct rig *rig, uint64_t until)
{
	for (unsigned int turns = 0; turns < 100000; turns++) {
		uint64_t next, other;

		rig_settle(rig);
		next = end_deadline(&rig->a, rig->now);
		other = end_deadline(&rig->b, rig->now);
		if (other < next)
			next = other;
		if (next > until)
			break;
		rig->now = next > rig->now ? next : rig->now + 1;
	}
	rig->now = until == UINT64_MAX ? rig->now : until;
}

/* --- client --------------------------------------------------------------------------- */

static void *slot_at(struct rig_qp *qp, const struct shm_queue *queue)
{
	return shm_queue_slot(qp->memory, queue->offset, queue->stride, queue->slots, queue->tail);
}

/* The fence between the tail and the home: see transport_take(). */
static void ring_doorbell(struct end *end, struct rig_qp *qp)
{
	uint32_t home;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	home = __atomic_load_n(&qp->memory->home, __ATOMIC_RELAXED);
	shm_doorbell_ring(&end->session->worker[home], qp->config.doorbell);
}

void post_send(struct end *end, struct rig_qp *qp, struct shm_sqe sqe, const struct shm_sge *sge,
	       uint32_t nsge)
{
	uint8_t *slot = slot_at(qp, &qp->memory->send);

	if (!(sqe.flags & SHM_FLAG_INLINE)) {
		sqe.nsge = (uint8_t)nsge;
		if (nsge)
			memcpy(slot + sizeof(sqe), sge, nsge * sizeof(*sge));
	} else {
		memcpy(slot + sizeof(sqe), sge, sqe.inline_length);
	}
	memcpy(slot, &sqe, sizeof(sqe));
	shm_store_release(&qp->memory->send.tail, qp->memory->send.tail + 1);
	ring_doorbell(end, qp);
}

void post_receive(struct end *end, struct rig_qp *qp, uint64_t context, const struct shm_sge *sge,
		  uint32_t nsge)
{
	uint8_t *slot = slot_at(qp, &qp->memory->receive);
	const struct shm_rqe rqe = { .request_context = context, .nsge = (uint8_t)nsge };

	memcpy(slot, &rqe, sizeof(rqe));
	if (nsge)
		memcpy(slot + sizeof(rqe), sge, nsge * sizeof(*sge));
	shm_store_release(&qp->memory->receive.tail, qp->memory->receive.tail + 1);
	ring_doorbell(end, qp);
}

struct shm_sge sge_at(const struct end *end, uint64_t offset, uint32_t length)
{
	return (struct shm_sge){ RIG_BASE + offset, length, end->local_token };
}

/* All entries are of one queue pair, so the smallest epoch at the head of a ring is the oldest. */
static int oldest_ring(struct rig_qp *qp, struct shm_cqe *cqe)
{
	const struct shm_cq *cq = qp->cq_memory;
	int from = -1;

	for (uint32_t i = 0; i < cq->rings; i++) {
		const struct shm_cq_ring *ring = &cq->ring[i];
		const struct shm_cqe *entry = (const void *)((const uint8_t *)cq + ring->offset);

		if (shm_load_acquire(&ring->cursor.tail) == qp->cq_head[i])
			continue;
		entry += qp->cq_head[i] & (cq->slots - 1);
		if (from >= 0 && entry->epoch >= cqe->epoch)
			continue;
		*cqe = *entry;
		from = (int)i;
	}
	return from;
}

/*
 * An entry that is older than the one we see was published before it, perhaps into a ring at
 * which we had looked already: a second look finds it.
 */
bool take_cqe(struct rig_qp *qp, struct shm_cqe *cqe)
{
	int from;

	if (oldest_ring(qp, cqe) < 0)
		return false;
	from = oldest_ring(qp, cqe);
	shm_store_release(&qp->cq_memory->ring[from].cursor.head, ++qp->cq_head[from]);
	return true;
}

struct shm_cqe expect_cqe(struct rig_qp *qp, uint64_t context, int32_t status)
{
	struct shm_cqe cqe = { 0 };

	cr_assert(take_cqe(qp, &cqe), "no completion for %llu", (unsigned long long)context);
	cr_assert_eq(cqe.request_context, context, "completion of %llu instead of %llu (status %x)",
		     (unsigned long long)cqe.request_context, (unsigned long long)context,
		     (unsigned)cqe.status);
	cr_assert_eq(cqe.status, status, "status of %llu is %x, not %x",
		     (unsigned long long)context, (unsigned)cqe.status, (unsigned)status);
	cr_assert_eq(cqe.qp_context, qp->config.qp_context);
	cr_assert_eq(cqe.qpn, qp->number);
	return cqe;
}

void expect_no_cqe(struct rig_qp *qp)
{
	struct shm_cqe cqe = { 0 };

	cr_assert_not(take_cqe(qp, &cqe), "unexpected completion of %llu, status %x",
		      (unsigned long long)cqe.request_context, (unsigned)cqe.status);
}

void fill(uint8_t *bytes, uint32_t length, uint32_t seed)
{
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((i * 31 + seed * 7 + (i >> 8)) % 251);
}

/* --- raw peer ------------------------------------------------------------------------- */

static const uint8_t raw_address[4] = { 10, 0, 0, 99 };

static void raw_open_as(struct raw *raw, uint32_t type, unsigned int workers,
			struct qp_connection connection, uint32_t psn)
{
	struct qp_config config = { .type = type,
				    .send_depth = 64,
				    .receive_depth = 64,
				    .send_sge = 4,
				    .receive_sge = 4,
				    .inline_size = 64 };
	struct end peer = { .mac = { 2, 0, 0, 0, 0, 99 } };
	struct frame_path path = { .hop_limit = 64, .source_port = 0xc123 };

	memset(raw, 0, sizeof(*raw));
	raw->now = 1000000;
	end_create(&raw->end, workers, 1);
	raw->qp = end_open_qp_config(&raw->end, &config, 256);
	gid_from_v4(peer.gid, raw_address);
	connection.receive_psn = psn;
	connection.send_psn = RAW_SEND_PSN;
	connect_to(&raw->end, raw->qp, connection, &peer, RAW_QPN);
	memcpy(path.source_gid, peer.gid, 16);
	memcpy(path.destination_gid, raw->end.gid, 16);
	frame_template_init(&raw->template, &path);
}

void raw_open(struct raw *raw, unsigned int workers, struct qp_connection connection, uint32_t psn)
{
	raw_open_as(raw, SHM_QP_RC, workers, connection, psn);
}

void raw_create_type(struct raw *raw, uint32_t type, struct qp_connection connection)
{
	raw_open_as(raw, type, 1, connection, RAW_PSN);
}

void raw_create(struct raw *raw, struct qp_connection connection)
{
	raw_open(raw, 1, connection, RAW_PSN);
}

void raw_create_at(struct raw *raw, struct qp_connection connection, uint32_t psn)
{
	raw_open(raw, 1, connection, psn);
}

static void raw_forget(struct raw *raw)
{
	if (raw->last)
		free_buffer(&raw->end, raw->last);
	raw->last = NULL;
}

void raw_destroy(struct raw *raw)
{
	raw_forget(raw);
	end_destroy(&raw->end);
}

static void raw_extensions(uint8_t *bth, const struct opcode_info *op, const struct raw_packet *p)
{
	if (op->flags & OPF_RETH) {
		put_be64(bth + op->reth, p->address);
		put_be32(bth + op->reth + 8, p->token);
		put_be32(bth + op->reth + 12, p->length);
	}
	if (op->flags & OPF_ATOMIC_ETH) {
		put_be64(bth + op->atomic_eth, p->address);
		put_be32(bth + op->atomic_eth + 8, p->token);
		put_be64(bth + op->atomic_eth + 12, p->swap);
		put_be64(bth + op->atomic_eth + 20, p->compare);
	}
	if (op->flags & OPF_DETH) {
		put_be32(bth + op->deth, p->qkey);
		put_be32(bth + op->deth + 4, p->source_qpn);
	}
	if (op->flags & OPF_IMM)
		memcpy(bth + op->imm, &p->immediate, 4);
	if (op->flags & OPF_IETH)
		put_be32(bth + op->ieth, p->token);
	if (op->flags & OPF_AETH)
		put_be32(bth + op->aeth, (uint32_t)p->syndrome << 24 | p->msn);
	if (op->flags & OPF_ATOMIC_ACK)
		put_be64(bth + op->atomic_ack, p->original);
}

void raw_send_only(struct raw *raw, const struct raw_packet *p)
{
	static const uint8_t zeros[RIG_FRAME];
	struct pktbuf *packet = new_buffer(&raw->end);
	struct wire_view view;
	struct bth *bth;

	bth = (struct bth *)frame_begin(packet->data, &raw->template, p->opcode);
	bth_set_qpn(bth, raw->qp->number);
	bth_set_psn(bth, p->psn & PSN_MASK);
	if (p->pkey)
		bth->pkey = be16_make(p->pkey);
	bth->ack_req = p->ack_request ? BTH_ACK : 0;
	bth_set_flag(&bth->flags, BTH_SE, p->solicited);
	bth->resv8a = p->fecn ? BTH_FECN : 0;
	raw_extensions((uint8_t *)bth, &opcode_table[p->opcode], p);
	packet->length = frame_finish(packet->data, &raw->template, p->payload ? p->payload : zeros,
				      p->payload_length);
	cr_assert_eq(wire_parse(packet->data, packet->length, &view), WIRE_OK);
	if (!transport_receive(end_home(&raw->end, raw->qp), &view, packet, raw->now))
		free_buffer(&raw->end, packet);
}

void raw_send(struct raw *raw, const struct raw_packet *packet)
{
	raw_send_only(raw, packet);
	for (int i = 0; i < 10000 && end_poll(&raw->end, raw->now); i++)
		;
}

bool raw_receive(struct raw *raw, struct wire_view *view)
{
	struct rig_queue *out = &raw->end.out;

	raw_forget(raw);
	if (out->head == out->tail)
		return false;
	raw->last = out->frame[out->head++ % 4096];
	cr_assert_eq(wire_parse(raw->last->data, raw->last->length, view), WIRE_OK);
	cr_assert(icrc_verify(view));
	cr_assert_eq(view->qpn, RAW_QPN);
	cr_assert_eq(view->pkey, 0xffff);
	cr_assert_eq(view->mig_request, view->opcode != OP_CNP, "B17: MigReq as RNICs send it");
	return true;
}

void raw_expect_none(struct raw *raw)
{
	struct wire_view view = { 0 };

	cr_assert_not(raw_receive(raw, &view), "unexpected answer, opcode %#x psn %#x", view.opcode,
		      view.psn);
}

void raw_expect_ack(struct raw *raw, uint32_t psn, uint32_t msn)
{
	struct wire_view view;

	cr_assert(raw_receive(raw, &view), "no ACK for %#x", psn);
	cr_assert_eq(view.opcode, OP_RC_ACKNOWLEDGE);
	cr_assert_eq(view_aeth(&view)->syndrome, 0x1f, "syndrome %#x", view_aeth(&view)->syndrome);
	cr_assert_eq(view.psn, psn & PSN_MASK, "ACK of %#x, not %#x", view.psn, psn);
	cr_assert_eq(be24_get(view_aeth(&view)->msn), msn, "MSN %u, not %u",
		     be24_get(view_aeth(&view)->msn), msn);
}

void raw_expect_nak(struct raw *raw, uint32_t psn, uint8_t syndrome)
{
	struct wire_view view;

	cr_assert(raw_receive(raw, &view), "no NAK %#x", syndrome);
	cr_assert_eq(view.opcode, OP_RC_ACKNOWLEDGE, "a refusal is opcode 0x11, not %#x",
		     view.opcode);
	cr_assert_eq(view_aeth(&view)->syndrome, syndrome, "syndrome %#x, not %#x",
		     view_aeth(&view)->syndrome, syndrome);
	cr_assert_eq(view.psn, psn & PSN_MASK, "NAK at %#x, not %#x", view.psn, psn);
}
