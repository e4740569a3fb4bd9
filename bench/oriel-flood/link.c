/* SPDX-License-Identifier: BSD-3-Clause */
/* The port: starts it, finds the peer's Ethernet address, answers who asks for ours, sends and
 * receives. */
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include "net/net.h"
#include "net/slow.h"
#include "oriel-flood/flood.h"

#define RX_BUFFERS      8191u
#define CONTROL_BUFFERS 2047u
#define DESCRIPTORS     1024u
#define RESOLVE_TRIES   40u /* of 250 ms */
#define LISTEN_SECONDS  30u
#define LISTEN_US       10000u

const char *flood_text(const char *format, ...)
{
	static char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return text;
}

/* --- start ----------------------------------------------------------------------------------- */

/* EAL as the daemon starts it, with one lcore that matters: this thread. */
static bool eal_start(struct flood *f)
{
	struct net_config config = { .ports = 1,
				     .workers = 1,
				     .worker_cpu = { f->options.cpu },
				     .control_cpu = f->options.cpu,
				     .idle = NET_IDLE_ADAPTIVE };
	char instance[64];

	snprintf(instance, sizeof(instance), "oriel-flood-%d", (int)getpid());
	config.port[0] = f->options.port;
	return net_init_eal(&config, instance, f->options.eal, &f->message) == 0;
}

static bool pools_start(struct flood *f)
{
	uint16_t room = (uint16_t)(RTE_PKTMBUF_HEADROOM + f->device.room);

	f->rx_pool = rte_pktmbuf_pool_create("flood_rx", RX_BUFFERS, 256, 0, room, SOCKET_ID_ANY);
	f->control_pool = rte_pktmbuf_pool_create("flood_control", CONTROL_BUFFERS, 64, 0, room,
						  SOCKET_ID_ANY);
	if (!f->rx_pool || !f->control_pool)
		f->message =
			flood_text("no memory for packet buffers: %s", rte_strerror(rte_errno));
	return f->rx_pool && f->control_pool;
}

static bool is_memif_client(const struct flood *f)
{
	return f->device.memif.role == MEMLINK_CLIENT;
}

/* The driver's client fails while nobody listens at its socket, who may only be about to. */
static int start_patiently(struct flood *f)
{
	const uint64_t end = rte_get_tsc_cycles() + LISTEN_SECONDS * rte_get_tsc_hz();
	bool told = false;
	int error;

	while ((error = rte_eth_dev_start(f->port)) != 0 && is_memif_client(f) &&
	       rte_get_tsc_cycles() < end) {
		if (!told)
			fprintf(stderr,
				"oriel-flood: nobody listens on %s yet, waiting up to %u s\n",
				f->device.memif.outer.text, LISTEN_SECONDS);
		told = true;
		usleep(LISTEN_US);
	}
	return error;
}

static const char *start_failure(const struct flood *f, int error)
{
	if (is_memif_client(f) && error == -EPERM)
		return flood_text("device %s: nobody listens on %s: start the other end, with "
				  "role=server and the same socket and socket-abstract",
				  f->options.port.device, f->device.memif.outer.text);
	return flood_text("device %s does not start: %s", f->options.port.device,
			  rte_strerror(-error));
}

static bool device_start(struct flood *f)
{
	struct rte_eth_conf conf = { 0 };
	struct rte_ether_addr mac;
	uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
	const uint16_t queues = (uint16_t)f->options.queues;
	int error = rte_eth_dev_configure(f->port, queues, queues, &conf);

	if (!error)
		error = rte_eth_dev_adjust_nb_rx_tx_desc(f->port, &rx, &tx);
	for (uint16_t i = 0; !error && i < queues; i++) {
		error = rte_eth_rx_queue_setup(f->port, i, rx, (unsigned int)SOCKET_ID_ANY, NULL,
					       f->rx_pool);
		if (!error)
			error = rte_eth_tx_queue_setup(f->port, i, tx, (unsigned int)SOCKET_ID_ANY,
						       NULL);
	}
	if (!error) {
		error = rte_eth_dev_set_mtu(f->port, f->options.port.mtu);
		if (error == -ENOTSUP)
			error = 0;
	}
	if (!error)
		error = start_patiently(f);
	if (!error)
		error = rte_eth_macaddr_get(f->port, &mac);
	if (error) {
		f->message = start_failure(f, error);
		return false;
	}
	rte_eth_allmulticast_enable(f->port);
	link_create(&f->link, &f->options.port, mac.addr_bytes);
	return true;
}

bool link_open(struct flood *f)
{
	f->options.port.bare = true;
	if (device_parse(&f->device, &f->options.port, f->options.queues, &f->message) ||
	    !eal_start(f))
		return false;
	f->tick = 1.0 / (double)rte_get_tsc_hz();
	if (rte_eth_dev_get_port_by_name(f->device.name, &f->port)) {
		f->message = flood_text("there is no device %s", f->options.port.device);
		return false;
	}
	return pools_start(f) && device_start(f);
}

void link_close(struct flood *f)
{
	link_flush(f);
	rte_eth_dev_stop(f->port);
	rte_eth_dev_close(f->port);
	/* Only now no queue holds a buffer of theirs any more. */
	frames_release(f);
	rte_eal_cleanup();
}

/* --- frames out ------------------------------------------------------------------------------- */

struct rte_mbuf *link_buffer(struct flood *f)
{
	return rte_pktmbuf_alloc(f->control_pool);
}

/* What the device does not take is offered until it does: nothing is lost on our side. */
static void queue_flush(struct flood *f, uint16_t number)
{
	struct flood_queue *queue = &f->queue[number];
	unsigned int sent = 0;
	uint64_t give_up = 0;

	while (sent < queue->count) {
		unsigned int taken = rte_eth_tx_burst(f->port, number, queue->tx + sent,
						      (uint16_t)(queue->count - sent));

		sent += taken;
		if (sent == queue->count)
			break;
		f->counters.tx_full++;
		if (taken || !give_up)
			give_up = rte_get_tsc_cycles() + rte_get_tsc_hz();
		else if (rte_get_tsc_cycles() > give_up) {
			/* The other end is gone. */
			rte_pktmbuf_free_bulk(queue->tx + sent, queue->count - sent);
			break;
		}
	}
	queue->count = 0;
}

void link_flush(struct flood *f)
{
	for (uint16_t i = 0; i < f->options.queues; i++)
		queue_flush(f, i);
}

void link_send(struct flood *f, uint32_t number, struct rte_mbuf *frame)
{
	struct flood_queue *queue = &f->queue[number];

	queue->tx[queue->count++] = frame;
	if (queue->count == FLOOD_BURST)
		queue_flush(f, (uint16_t)number);
}

/* --- frames in -------------------------------------------------------------------------------- */

static void receive_other(struct flood *f, const uint8_t *data, uint32_t length)
{
	struct slow_result result = { 0 };
	struct link_frame frame;
	struct rte_mbuf *answer;

	if (!link_parse(data, length, &frame) || !slow_wanted(&f->link, &frame))
		return;
	answer = link_buffer(f);
	if (!answer)
		return;
	slow_receive(&f->link, &frame, rte_pktmbuf_mtod(answer, uint8_t *),
		     rte_pktmbuf_tailroom(answer), &result);
	if (result.learned &&
	    memcmp(result.gid, link_next_hop(&f->link, f->options.target), 16) == 0) {
		memcpy(f->target_mac, result.mac, 6);
		f->target_known = true;
	}
	if (!result.answered) {
		rte_pktmbuf_free(answer);
		return;
	}
	answer->data_len = (uint16_t)result.length;
	answer->pkt_len = result.length;
	link_send(f, 0, answer);
	link_flush(f);
}

static void receive(struct flood *f, struct rte_mbuf *mbuf)
{
	const uint8_t *data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	const struct bth *echo;
	struct wire_view view;

	if (f->options.peer != PEER_RESPONDER) {
		echo = frames_echo(f, data, mbuf->data_len);
		if (echo)
			flood_echo(f, echo);
	} else if (wire_parse(data, mbuf->data_len, &view) != WIRE_OK) {
		receive_other(f, data, mbuf->data_len);
	} else if (view.qpn == GSI_QPN) {
		if (icrc_verify(&view))
			connect_mad(f, &view);
	} else {
		flood_answer(f, &view);
	}
}

static unsigned int queue_poll(struct flood *f, uint16_t number)
{
	struct rte_mbuf *burst[FLOOD_BURST];
	unsigned int count = rte_eth_rx_burst(f->port, number, burst, FLOOD_BURST);

	/* What we do with frames is no part of how long they took. */
	if (count)
		f->received = rte_rdtsc();
	for (unsigned int i = 0; i < count; i++) {
		if (i + 1 < count)
			rte_prefetch0(rte_pktmbuf_mtod(burst[i + 1], uint8_t *));
		receive(f, burst[i]);
	}
	rte_pktmbuf_free_bulk(burst, count);
	return count;
}

unsigned int link_poll(struct flood *f)
{
	unsigned int count = 0;

	for (uint16_t i = 0; i < f->options.queues; i++)
		count += queue_poll(f, i);
	return count;
}

/* --- the peer's Ethernet address -------------------------------------------------------------- */

static void ask(struct flood *f, const uint8_t next_hop[16])
{
	struct rte_mbuf *mbuf = link_buffer(f);
	const uint8_t *source = f->options.port.address[0].gid;
	uint8_t *data;

	if (!mbuf)
		return;
	data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	mbuf->data_len = (uint16_t)(gid_is_v4(next_hop)
					    ? arp_request(&f->link, source, next_hop, NULL, data)
					    : nd_solicit(&f->link, source, next_hop, NULL, data));
	mbuf->pkt_len = mbuf->data_len;
	link_send(f, 0, mbuf);
	link_flush(f);
}

bool link_resolve(struct flood *f)
{
	static const uint8_t nobody[6] = { 0x02, 0, 0, 0, 0, 1 };
	const uint8_t *next_hop = link_next_hop(&f->link, f->options.target);

	if (f->options.peer != PEER_RESPONDER) {
		memcpy(f->target_mac, nobody, 6);
		return true;
	}
	if (!next_hop) {
		f->message = "--target is not of the network of --ip, and there is no gateway";
		return false;
	}
	for (unsigned int i = 0; i < RESOLVE_TRIES && !f->target_known && !f->stop; i++) {
		uint64_t end = rte_get_tsc_cycles() + rte_get_tsc_hz() / 4;

		ask(f, next_hop);
		while (rte_get_tsc_cycles() < end && !f->target_known && !f->stop)
			link_poll(f);
	}
	if (!f->target_known && !f->stop)
		f->message = flood_text("nobody answers for the address of --target on %s",
					f->options.port.device);
	return f->target_known;
}
