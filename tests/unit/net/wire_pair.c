/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a memif wire in one process. */
#include <ftw.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "net/net_private.h"
#include "wire_pair.h"

struct pair pair;

static struct rte_mempool *far_pool;

/* --- callbacks --------------------------------------------------------------------- */

static void on_mad(void *context, const struct net_peer *peer, const uint8_t *mad, uint64_t now)
{
	pair.mads++;
	pair.mad_peer = *peer;
	if (pair.resolves)
		cr_assert_eq(net_resolve(pair.net, peer->local_gid, peer->remote_gid,
					 &pair.resolved, now),
			     0);
	memcpy(pair.mad, mad, 256);
}

static void on_event(void *context, unsigned int worker, const struct transport_event *event)
{
	static uint32_t last = UINT32_MAX;

	/* The recording transport counts down. */
	pair.out_of_order += event->object >= last;
	last = event->object;
	pair.events++;
}

static void on_done(void *context, unsigned int worker, uint64_t cookie, int status)
{
	cr_assert_lt(pair.done, PAIR_DONE);
	pair.done_cookie[pair.done] = cookie;
	pair.done_status[pair.done] = status;
	pair.done++;
}

static void on_notify(void *context, uint32_t session)
{
}

/* --- start and stop ---------------------------------------------------------------- */

static void start_far(void)
{
	struct rte_eth_conf conf = { 0 };

	cr_assert_eq(rte_eth_dev_get_port_by_name("net_memif1", &pair.far), 0);
	far_pool = rte_pktmbuf_pool_create("far", 4095, 0, 0, 4096, SOCKET_ID_ANY);
	cr_assert_not_null(far_pool);
	cr_assert_eq(rte_eth_dev_configure(pair.far, (uint16_t)pair.workers, (uint16_t)pair.workers,
					   &conf),
		     0);
	for (uint16_t q = 0; q < pair.workers; q++) {
		cr_assert_eq(rte_eth_rx_queue_setup(pair.far, q, 512, 0, NULL, far_pool), 0);
		cr_assert_eq(rte_eth_tx_queue_setup(pair.far, q, 512, 0, NULL), 0);
	}
	cr_assert_eq(rte_eth_dev_start(pair.far), 0);
}

static bool link_is_up(void)
{
	struct net_port_status status;
	struct rte_eth_link link;

	/* And workers may use it: who stops them now would keep what they wanted to send. */
	return net_port_status(pair.net, 0, &status) && status.link_up &&
	       port_is_there(&pair.net->port[0]) && rte_eth_link_get_nowait(pair.far, &link) == 0 &&
	       link.link_status;
}

void pair_start(uint32_t workers, uint16_t vlan)
{
	static char far_device[160], prefix[64], *extra[] = { far_device, prefix, NULL };
	struct net_config config = { .ports = 1, .workers = workers, .idle = NET_IDLE_ADAPTIVE };
	struct net_io io = {
		.mad = on_mad, .event = on_event, .done = on_done, .notify = on_notify
	};
	const char *message = NULL;

	pair.workers = fake.workers = workers;
	for (uint32_t w = 0; w < workers; w++)
		config.worker_cpu[w] = (w + 1) % (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	fake.may_detach = 1;
	pair.now = 1;
	config.port[0] = test_port(vlan);
	snprintf(config.port[0].device, sizeof(config.port[0].device),
		 "net_memif0,role=server,socket=oriel-test-net-%d,mac=02:11:22:33:44:55", getpid());
	snprintf(far_device, sizeof(far_device),
		 "--vdev=net_memif1,role=client,socket=oriel-test-net-%d,mac=02:aa:bb:cc:dd:ee",
		 getpid());
	snprintf(prefix, sizeof(prefix), "--file-prefix=oriel-test-net-%d", getpid());
	cr_assert_eq(net_init_eal(&config, "test", extra, &message), 0, "%s", message);
	cr_assert_eq(net_create(&pair.net, &config, NULL, NULL, &io, &message), 0, "%s", message);
	start_far();
	cr_assert_eq(net_start_workers(pair.net), 0);
	wait_for(link_is_up());
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	return remove(path);
}

void pair_stop(void)
{
	net_stop_workers(pair.net);
	/* The far end ends with the process: memif may not be closed at both ends at once. */
	net_destroy(pair.net);
	/* The prefix is this test's own. */
	nftw(rte_eal_get_runtime_dir(), remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- the far end ------------------------------------------------------------------- */

void far_stop(void)
{
	rte_eth_dev_stop(pair.far);
	rte_eth_dev_close(pair.far);
}

void far_send(uint16_t queue, const uint8_t *frame, uint32_t length)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(far_pool);
	unsigned int tries = 0;

	cr_assert_not_null(mbuf);
	memcpy(rte_pktmbuf_append(mbuf, (uint16_t)length), frame, length);
	while (rte_eth_tx_burst(pair.far, queue, &mbuf, 1) == 0) {
		cr_assert_lt(tries++, 100000u);
		usleep(100);
	}
}

static uint16_t strip(uint16_t port, uint16_t queue, struct rte_mbuf *mbuf[], uint16_t count,
		      uint16_t most, void *context)
{
	for (uint16_t i = 0; i < count; i++)
		(void)rte_vlan_strip(mbuf[i]); /* fails where there is no tag */
	return count;
}

void pair_strip_tags(void)
{
	uint16_t port;

	cr_assert_eq(rte_eth_dev_get_port_by_name("net_memif0", &port), 0);
	cr_assert_not_null(rte_eth_add_rx_callback(port, 0, strip, NULL));
}

static uint32_t take(uint16_t queue, uint8_t frame[2048])
{
	struct rte_mbuf *mbuf;
	uint32_t length;

	if (rte_eth_rx_burst(pair.far, queue, &mbuf, 1) == 0)
		return 0;
	length = mbuf->pkt_len;
	cr_assert_leq(length, 2048);
	memcpy(frame, rte_pktmbuf_mtod(mbuf, void *), length);
	rte_pktmbuf_free(mbuf);
	return length;
}

uint32_t far_receive(uint8_t frame[2048])
{
	for (unsigned int i = 0; i < 50000; i++) {
		for (uint32_t queue = 0; queue < pair.workers; queue++) {
			uint32_t length = take((uint16_t)queue, frame);

			if (length)
				return length;
		}
		net_poll(pair.net, pair.now);
		usleep(100);
	}
	return 0;
}

uint32_t far_receive_roce(uint8_t frame[2048], struct wire_view *view)
{
	uint32_t length;

	do {
		length = far_receive(frame);
	} while (length && wire_parse(frame, length, view) != WIRE_OK);
	return length;
}

/* --- frames ------------------------------------------------------------------------ */

static struct frame_template template_to_us(uint16_t tci)
{
	struct frame_path path = {
		.tagged = tci != 0xffff, .vlan_tci = tci, .hop_limit = 64, .source_port = 0xc000
	};
	struct frame_template template;

	memcpy(path.source_mac, peer_mac, 6);
	memcpy(path.destination_mac, our_mac, 6);
	memcpy(path.source_gid, peer_v4, 16);
	memcpy(path.destination_gid, our_v4, 16);
	frame_template_init(&template, &path);
	return template;
}

uint32_t frame_roce(uint8_t *frame, uint32_t qpn, uint32_t psn, uint16_t tci)
{
	struct frame_template template = template_to_us(tci);
	struct bth *bth = (struct bth *)frame_begin(frame, &template, OP_RC_SEND_ONLY);
	uint8_t payload[64] = { (uint8_t)psn };

	bth_set_qpn(bth, qpn);
	bth_set_psn(bth, psn);
	return frame_finish(frame, &template, payload, sizeof(payload));
}

uint32_t frame_mad(uint8_t *frame, uint32_t qkey, uint8_t first)
{
	struct frame_template template = template_to_us(0xffff);
	uint8_t *bth = frame_begin(frame, &template, OP_UD_SEND_ONLY);
	struct deth *deth = (struct deth *)(bth + sizeof(struct bth));
	uint8_t mad[256] = { first };

	bth_set_qpn((struct bth *)bth, GSI_QPN);
	deth->qkey = be32_make(qkey);
	deth->source_qpn = be24_make(GSI_QPN);
	return frame_finish(frame, &template, mad, sizeof(mad));
}

uint64_t verdict_count(uint32_t verdict)
{
	uint64_t sum = 0;

	for (uint32_t w = 0; w < pair.workers; w++)
		sum += __atomic_load_n(&net_worker_stats(pair.net, w)->verdict[verdict],
				       __ATOMIC_RELAXED);
	return sum;
}
