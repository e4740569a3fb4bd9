/* SPDX-License-Identifier: BSD-3-Clause */
/* The port with rings for a device, and the other end of its wire. */
#include <criterion/criterion.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mempool.h>

#include "links.h"
#include "move_rig.h"

#define WIRE_FRAMES 4096u

struct move_rig wire;

/* --- buffers: a pool whose order between threads is there to be seen ---------------------- */

struct locked_pool {
	pthread_mutex_t lock;
	unsigned int count;
	void *object[];
};

static int pool_alloc(struct rte_mempool *mp)
{
	struct locked_pool *pool = calloc(1, sizeof(*pool) + mp->size * sizeof(void *));

	if (!pool)
		return -ENOMEM;
	pthread_mutex_init(&pool->lock, NULL);
	mp->pool_data = pool;
	return 0;
}

static void pool_free(struct rte_mempool *mp)
{
	free(mp->pool_data);
}

static int pool_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
	struct locked_pool *pool = mp->pool_data;

	pthread_mutex_lock(&pool->lock);
	memcpy(pool->object + pool->count, objects, n * sizeof(void *));
	pool->count += n;
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

static int pool_dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
	struct locked_pool *pool = mp->pool_data;
	int error = -ENOBUFS;

	pthread_mutex_lock(&pool->lock);
	if (pool->count >= n) {
		pool->count -= n;
		memcpy(objects, pool->object + pool->count, n * sizeof(void *));
		error = 0;
	}
	pthread_mutex_unlock(&pool->lock);
	return error;
}

static unsigned int pool_count(const struct rte_mempool *mp)
{
	const struct locked_pool *pool = mp->pool_data;

	return pool->count;
}

static const struct rte_mempool_ops locked_ops = {
	.name = "locked",
	.alloc = pool_alloc,
	.free = pool_free,
	.enqueue = pool_enqueue,
	.dequeue = pool_dequeue,
	.get_count = pool_count,
};
RTE_MEMPOOL_REGISTER_OPS(locked_ops);

/* --- the device --------------------------------------------------------------------------- */

static uint16_t device_receive(void *queue, struct rte_mbuf **mbuf, uint16_t count)
{
	return (uint16_t)rte_ring_sc_dequeue_burst(queue, (void **)mbuf, count, NULL);
}

static uint16_t device_send(void *queue, struct rte_mbuf **mbuf, uint16_t count)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static unsigned int calls;
	unsigned int sent;

	/* One wire: what one worker has sent is before what another sends later. */
	pthread_mutex_lock(&lock);
	/* Now and then it is slow, and frames stay with the worker. */
	if (++calls % 3 == 0)
		count /= 2;
	sent = rte_ring_sp_enqueue_burst(queue, (void *const *)mbuf, count, NULL);
	pthread_mutex_unlock(&lock);
	return (uint16_t)sent;
}

static struct rte_ring *ring_create(const char *name, unsigned int number, unsigned int flags)
{
	char text[RTE_RING_NAMESIZE];
	struct rte_ring *ring;

	snprintf(text, sizeof(text), "%s%u", name, number);
	ring = rte_ring_create(text, WIRE_FRAMES, SOCKET_ID_ANY, flags);
	cr_assert_not_null(ring);
	return ring;
}

/* In place of what the null device has. */
static void take_over_device(uint16_t port, unsigned int workers)
{
	static void *transmit[NET_MAX_WORKERS];
	struct rte_eth_fp_ops *ops = &rte_eth_fp_ops[port];

	wire.sent = ring_create("sent", 0, RING_F_SP_ENQ | RING_F_SC_DEQ);
	for (unsigned int w = 0; w < workers; w++) {
		wire.received[w] = ring_create("received", w, RING_F_SP_ENQ | RING_F_SC_DEQ);
		transmit[w] = wire.sent;
	}
	ops->rx_pkt_burst = device_receive;
	ops->tx_pkt_burst = device_send;
	ops->rxq.data = (void **)wire.received;
	ops->txq.data = transmit;
}

/* --- callbacks of the control core ------------------------------------------------------------ */

static void on_mad(void *context, const struct net_peer *peer, const uint8_t *mad, uint64_t now)
{
}

static void on_event(void *context, unsigned int worker, const struct transport_event *event)
{
	wire.flushed += event->type == TRANSPORT_QP_FLUSHED;
	cr_assert_neq(event->type, TRANSPORT_QP_ERROR, "queue pair %u failed, verdict %s",
		      event->object, verdict_name(event->value));
}

static void on_done(void *context, unsigned int worker, uint64_t cookie, int status)
{
	cr_assert_eq(status, 0);
	wire.done++;
}

static void on_moved(void *context, const struct worker_command *command)
{
	wire.moved_on++;
	cr_assert_eq(qp_number(wire.near.shared, command->object), command->number);
	cr_assert_eq(net_command(wire.net, qp_home(wire.near.shared, command->object), command), 0);
}

static void on_notify(void *context, uint32_t session)
{
}

/* --- start and stop --------------------------------------------------------------------------- */

static struct rig_qp *open_sharing(struct end *end)
{
	struct qp_config config = {
		.type = SHM_QP_RC, .send_depth = 64, .send_sge = 4, .srq = wire.srq
	};

	return end_open_qp_config(end, &config, 256);
}

static void create_srq(struct end *end)
{
	struct srq_config config = { .session = RIG_SESSION, .pd = end->pd, .depth = 64, .sge = 4 };

	config.memory_size = srq_memory_size(config.depth, config.sge);
	config.memory = wire.srq_memory = calloc(1, config.memory_size);
	wire.srq = srq_create(end->shared, &config);
	cr_assert_neq(wire.srq, 0);
}

static void connect_pairs(unsigned int workers, uint32_t pairs)
{
	struct rig rig = { .a = wire.near, .b = wire.far };
	struct qp_connection connection = rig_connection();

	connection.timeout = 21; /* not while the machine only is slow */
	for (uint32_t i = 0; i < pairs; i++) {
		struct rig_qp *a =
			wire.shares ? open_sharing(&rig.a) : end_open_qp(&rig.a, i % workers, 64);
		struct rig_qp *b = end_open_qp(&rig.b, 0, 64);

		rig_join(&rig, a, b, connection, connection);
		wire.lands_at[i] = i % workers;
	}
	wire.near = rig.a;
	wire.far = rig.b;
}

/*
 * Not on EAL's threads: a sanitizer would not see what orders their start and end, and what
 * is to be forgiven EAL would be forgiven everybody.
 */
static void *run_worker(void *worker)
{
	worker_run(worker);
	return NULL;
}

static void start_threads(void)
{
	for (unsigned int w = 0; w < wire.near.workers; w++)
		cr_assert_eq(
			pthread_create(&wire.thread[w], NULL, run_worker, &wire.net->worker[w]), 0);
	wire.running = true;
}

void move_rig_start(unsigned int workers, uint32_t pairs, bool migrate)
{
	static char prefix[64], pool[] = "--mbuf-pool-ops-name=locked";
	static char *extra[] = { prefix, pool, NULL };
	struct net_config config = {
		.ports = 1, .workers = workers, .idle = NET_IDLE_ADAPTIVE, .migrate = migrate
	};
	struct net_io io = { .mad = on_mad,
			     .event = on_event,
			     .done = on_done,
			     .moved = on_moved,
			     .notify = on_notify };
	const char *message = NULL;

	for (uint32_t w = 0; w < workers; w++)
		config.worker_cpu[w] = (w + 1) % (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	config.port[0] = test_port(0);
	snprintf(config.port[0].device, sizeof(config.port[0].device), "net_null0");
	snprintf(prefix, sizeof(prefix), "--file-prefix=oriel-test-move-%d", getpid());
	cr_assert_eq(net_init_eal(&config, "test", extra, &message), 0, "%s", message);
	end_create_tables(&wire.near, workers, 1);
	end_create(&wire.far, 1, 2);
	cr_assert_eq(
		net_create(&wire.net, &config, wire.near.shared, wire.near.memory, &io, &message),
		0, "%s", message);
	take_over_device(wire.net->port[0].id, workers);
	memcpy(wire.near.mac, wire.net->port[0].link.mac, 6);
	for (unsigned int w = 0; w < workers; w++) {
		wire.near.worker[w] = wire.net->worker[w].transport;
		transport_add_session(wire.near.worker[w], RIG_SESSION);
	}
	if (wire.shares)
		create_srq(&wire.near);
	connect_pairs(workers, pairs);
	start_threads();
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	return remove(path);
}

void move_rig_halt(void)
{
	if (!wire.running)
		return;
	__atomic_store_n(&wire.net->stop, 1, __ATOMIC_SEQ_CST);
	for (unsigned int w = 0; w < wire.near.workers; w++)
		pthread_join(wire.thread[w], NULL);
	wire.running = false;
}

void move_rig_stop(void)
{
	move_rig_halt();
	for (uint32_t i = 0; i < wire.near.qps; i++)
		end_close_qp(&wire.near, &wire.near.qp[i], 1ull << 50);
	if (wire.shares)
		srq_destroy(wire.near.shared, wire.srq);
	free(wire.srq_memory);
	for (unsigned int w = 0; w < wire.near.workers; w++)
		transport_remove_session(wire.near.worker[w], RIG_SESSION);
	net_destroy(wire.net);
	end_destroy_tables(&wire.near);
	end_destroy(&wire.far);
	nftw(rte_eal_get_runtime_dir(), remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- turns ------------------------------------------------------------------------------------ */

static uint32_t landing_of(const uint8_t *frame, uint32_t length)
{
	struct wire_view view;

	cr_assert_eq(wire_parse(frame, length, &view), WIRE_OK);
	for (uint32_t i = 0; i < wire.near.qps; i++) {
		int at = -1;

		if (wire.near.qp[i].number != view.qpn)
			continue;
		if (wire.steered)
			at = wire.steered(i, &view);
		if (at < 0)
			at = (int)wire.lands_at[i];
		wire.elsewhere += (uint32_t)at != qp_home(wire.near.shared, wire.near.qp[i].index);
		return (uint32_t)at;
	}
	cr_assert(false, "a frame to nobody");
	return 0;
}

static void pass_to_near(void)
{
	static uint8_t frame[RIG_FRAME];
	uint32_t length;

	while (wire.far.out.head != wire.far.out.tail) {
		struct rte_mbuf *mbuf;

		for (unsigned int w = 0; w < wire.near.workers; w++)
			if (rte_ring_free_count(wire.received[w]) == 0)
				return;
		mbuf = rte_pktmbuf_alloc(wire.net->port[0].rx_pool);
		if (!mbuf)
			return;
		length = end_next_frame(&wire.far, frame);
		memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
		cr_assert_eq(rte_ring_sp_enqueue(wire.received[landing_of(frame, length)], mbuf),
			     0);
	}
}

static void pass_to_far(uint64_t now)
{
	struct rte_mbuf *mbuf;

	for (unsigned int i = 0; i < 64 && rte_ring_sc_dequeue(wire.sent, (void **)&mbuf) == 0;
	     i++) {
		const uint8_t *frame = rte_pktmbuf_mtod(mbuf, const uint8_t *);

		/* Neighbour solicitations of the port are nobody's here. */
		if (get_be16(frame + 12) == ETHERTYPE_IPV4)
			end_deliver(&wire.far, frame, mbuf->data_len, now);
		rte_pktmbuf_free(mbuf);
	}
}

void move_rig_turn(void)
{
	const uint64_t now = net_clock(wire.net);

	end_poll(&wire.far, now);
	pass_to_near();
	pass_to_far(now);
	net_poll(wire.net, now);
}

bool move_rig_command(uint32_t type, struct rig_qp *qp, uint32_t to)
{
	const struct worker_command command = {
		.type = type, .object = qp->index, .number = qp->number, .to = to, .cookie = 1
	};

	return net_command(wire.net, qp_home(wire.near.shared, qp->index), &command) == 0;
}
