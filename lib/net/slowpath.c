/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control core's traffic: frames that workers pass on are answered or handed to the
 * connection manager; what leaves goes through worker 0, which owns the transmit queue.
 */
#include <errno.h>

#include "net/net_private.h"
#include "wire/build.h"

#define OWN_HOP_LIMIT 64u
#define MAD_SIZE      256u

/* --- out --------------------------------------------------------------------------- */

struct rte_mbuf *slowpath_buffer(struct net *net, uint32_t port)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(net->control_pool);

	if (!mbuf) {
		net->port[port].tx_dropped++;
		return NULL;
	}
	buffer_of(mbuf)->port = port;
	buffer_of(mbuf)->lent = false;
	return mbuf;
}

int slowpath_send(struct net *net, struct rte_mbuf *mbuf, uint32_t length)
{
	struct worker *worker = &net->worker[0];

	mbuf->data_len = (uint16_t)length;
	mbuf->pkt_len = length;
	if (rte_ring_sp_enqueue(worker->to_send, mbuf)) {
		net->port[buffer_of(mbuf)->port].tx_dropped++;
		rte_pktmbuf_free(mbuf);
		return -ENOBUFS;
	}
	worker_wake(worker);
	return 0;
}

static void request(void *context, uint32_t port, const uint8_t gid[16], const uint8_t *mac)
{
	struct net *net = context;
	const struct link *link = &net->port[port].link;
	const uint8_t *source = link_source_for(link, gid);
	struct rte_mbuf *mbuf = source ? slowpath_buffer(net, port) : NULL;
	uint8_t *data;

	/* The table asks again, so a lost request is only late. */
	if (!mbuf)
		return;
	data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	slowpath_send(net, mbuf,
		      gid_is_v4(gid) ? arp_request(link, source, gid, mac, data)
				     : nd_solicit(link, source, gid, mac, data));
}

static int send_mad(struct net *net, const struct net_peer *peer, const uint8_t mad[256])
{
	const struct link *link = &net->port[peer->port].link;
	struct rte_mbuf *mbuf = slowpath_buffer(net, peer->port);
	struct frame_path path = { .vlan_tci = link->vlan,
				   .tagged = link->vlan != 0,
				   .traffic_class = peer->traffic_class,
				   .hop_limit = OWN_HOP_LIMIT,
				   .source_port = roce_source_port(0, GSI_QPN, GSI_QPN) };
	struct frame_template template;
	struct bth *bth;
	struct deth *deth;
	uint8_t *data;

	if (!mbuf)
		return -ENOBUFS;
	memcpy(path.source_mac, link->mac, 6);
	memcpy(path.destination_mac, peer->remote_mac, 6);
	memcpy(path.source_gid, peer->local_gid, 16);
	memcpy(path.destination_gid, peer->remote_gid, 16);
	frame_template_init(&template, &path);
	data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	bth = (struct bth *)frame_begin(data, &template, OP_UD_SEND_ONLY);
	bth->flags = BTH_MIG; /* as in all that we send */
	bth_set_qpn(bth, GSI_QPN);
	bth_set_psn(bth, net->mad_psn++ & PSN_MASK);
	deth = (struct deth *)(bth + 1);
	deth->qkey = be32_make(GSI_QKEY);
	deth->source_qpn = be24_make(GSI_QPN);
	return slowpath_send(net, mbuf, frame_finish(data, &template, mad, MAD_SIZE));
}

static void send_waiting(void *context, const struct net_peer *peer, const uint8_t mad[256])
{
	/* A datagram that finds no room now is lost, as datagrams may be. */
	send_mad(context, peer, mad);
}

void slowpath_io(struct net *net, struct neighbour_io *io)
{
	*io = (struct neighbour_io){ .request = request, .send = send_waiting, .context = net };
}

int net_send_mad(struct net *net, const struct net_peer *peer, const uint8_t mad[256], uint64_t now)
{
	struct net_peer to = *peer;
	int port = net_find_address(net, peer->local_gid);
	const uint8_t *hop;

	if (port < 0)
		return -EADDRNOTAVAIL;
	if (gid_is_v4(peer->local_gid) != gid_is_v4(peer->remote_gid))
		return -ENETUNREACH;
	to.port = (uint32_t)port;
	if (mac_is_unicast(to.remote_mac))
		return send_mad(net, &to, mad);
	hop = link_next_hop(&net->port[port].link, to.remote_gid);
	return hop ? neighbour_send(&net->neighbours, hop, &to, mad, now) : -ENETUNREACH;
}

void slowpath_announce(struct net *net, uint32_t port)
{
	const struct link *link = &net->port[port].link;

	for (uint32_t i = 0; i < link->addresses; i++) {
		const uint8_t *gid = link->address[i].gid;
		struct rte_mbuf *mbuf = slowpath_buffer(net, port);
		uint8_t *data;

		if (!mbuf)
			return;
		data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		slowpath_send(net, mbuf,
			      gid_is_v4(gid) ? arp_announce(link, gid, data)
					     : nd_announce(link, gid, data));
	}
}

/* --- in ---------------------------------------------------------------------------- */

static void receive_mad(struct net *net, const struct rte_mbuf *mbuf, const struct wire_view *view)
{
	struct net_peer peer = { .port = buffer_of((struct rte_mbuf *)(uintptr_t)mbuf)->port,
				 .traffic_class = (uint8_t)(view->traffic_class & ~IP_ECN) };
	const struct link *link = &net->port[peer.port].link;
	const uint8_t *hop;

	memcpy(peer.local_gid, view->destination_gid, 16);
	memcpy(peer.remote_gid, view->source_gid, 16);
	memcpy(peer.remote_mac, view->frame + 6, 6);
	/* On-link, the frame's source MAC is the peer's: a first guess that saves a question. */
	hop = link_next_hop(link, peer.remote_gid);
	if (hop && gid_equal(hop, peer.remote_gid))
		neighbour_learn(&net->neighbours, peer.port, peer.remote_gid, peer.remote_mac, true,
				true, net->now);
	net->io.mad(net->io.context, &peer, view->payload, net->now);
}

static void count_answer(struct net_port *port, enum slow_kind kind)
{
	switch (kind) {
	case SLOW_ARP: port->arp_answered++; break;
	case SLOW_ND: port->nd_answered++; break;
	case SLOW_ECHO: port->icmp_answered++; break;
	case SLOW_NOTHING: break;
	}
}

static void answer(struct net *net, uint32_t index, const struct link_frame *frame)
{
	struct net_port *port = &net->port[index];
	struct rte_mbuf *mbuf = slowpath_buffer(net, index);
	struct slow_result result;

	if (!mbuf)
		return;
	if (slow_receive(&port->link, frame, rte_pktmbuf_mtod(mbuf, uint8_t *), net->tx_capacity,
			 &result))
		port->slow_refused++;
	else if (result.learned)
		neighbour_learn(&net->neighbours, index, result.gid, result.mac, result.asked,
				false, net->now);
	if (!result.answered)
		rte_pktmbuf_free(mbuf);
	else if (slowpath_send(net, mbuf, result.length) == 0)
		count_answer(port, result.answered);
}

void slowpath_receive(struct net *net, struct rte_mbuf *mbuf)
{
	const uint8_t *data = rte_pktmbuf_mtod(mbuf, const uint8_t *);
	struct link_frame frame;
	struct wire_view view;

	if (wire_parse(data, mbuf->data_len, &view) == WIRE_OK)
		receive_mad(net, mbuf, &view);
	else if (link_parse(data, mbuf->data_len, &frame))
		answer(net, buffer_of(mbuf)->port, &frame);
	rte_pktmbuf_free(mbuf);
}
