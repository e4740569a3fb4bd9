/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a received frame is and whose. A burst goes through in stages, each of which drops
 * what it refuses: parse and prefetch, ownership, ICRC, queue pair. Nothing of a client
 * is touched before the last. The third hides the time in which what the fourth needs comes into
 * the cache.
 */
#include <rte_prefetch.h>

#include "net/net_private.h"
#include "wire/icrc.h"

#define AHEAD 4u /* frames whose first bytes are fetched before they are parsed */

void classify_drop(struct worker *worker, struct rte_mbuf *mbuf, uint32_t verdict)
{
	/* Capture of refused frames, with the verdict, belongs here. */
	worker->stats->verdict[verdict]++;
	rte_pktmbuf_free(mbuf);
}

/* --- whose is it ------------------------------------------------------------------- */

/* The station and VLAN that it is for. VERDICT_WIRE + WIRE_OK: ours, or everybody's. */
static uint32_t check_station(const struct link *link, const struct rte_mbuf *mbuf,
			      const struct link_frame *frame)
{
	bool stripped = mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED;

	if (!(frame->destination_mac[0] & 1) && memcmp(frame->destination_mac, link->mac, 6) != 0)
		return VERDICT(NOT_OURS_MAC);
	if (stripped && frame->tagged)
		return VERDICT_WIRE + WIRE_DOUBLE_TAG;
	if (!link_vlan_matches(link, stripped || frame->tagged,
			       stripped ? mbuf->vlan_tci : frame->tci))
		return VERDICT(WRONG_VLAN);
	return VERDICT_WIRE + WIRE_OK;
}

/* A good RoCEv2 packet: is it for an address of this port? */
static uint32_t check_addresses(const struct link *link, const struct wire_view *view)
{
	/* RC over a group address is never served, and there are no groups to be joined. */
	if (view->frame[0] & 1 || !gid_is_unicast(view->destination_gid))
		return VERDICT(MULTICAST);
	if (!link_owns(link, view->destination_gid))
		return VERDICT(NOT_OURS_IP);
	return VERDICT_WIRE + WIRE_OK;
}

/* --- stage 1 and 2: parse, ownership ----------------------------------------------- */

/* A device may cut a frame into pieces; a whole one fits the first buffer. */
static bool make_flat(const struct net_port *port, struct rte_mbuf *mbuf)
{
	if (mbuf->pkt_len > link_frame_size(port->link.mtu))
		return false;
	return mbuf->nb_segs == 1 || rte_pktmbuf_linearize(mbuf) == 0;
}

/* True: *view is a good packet for this port, of any kind. Otherwise the frame is gone. */
static bool parse_unusual(struct worker *worker, const struct net_port *port, struct rte_mbuf *mbuf,
			  struct wire_view *view)
{
	struct link_frame frame;
	uint32_t verdict;

	if (!link_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len, &frame)) {
		classify_drop(worker, mbuf, VERDICT_WIRE + WIRE_FRAME_TRUNCATED);
		return false;
	}
	verdict = check_station(&port->link, mbuf, &frame);
	if (verdict == VERDICT_WIRE + WIRE_OK)
		verdict = VERDICT_WIRE +
			  wire_parse(rte_pktmbuf_mtod(mbuf, const uint8_t *), mbuf->data_len, view);
	if (verdict == VERDICT_WIRE + WIRE_OK)
		verdict = check_addresses(&port->link, view);
	if (verdict == VERDICT_WIRE + WIRE_OK)
		return true;
	if ((verdict == VERDICT_WIRE + WIRE_NOT_IP || verdict == VERDICT_WIRE + WIRE_NOT_UDP) &&
	    slow_wanted(&port->link, &frame))
		handoff_control(worker, mbuf);
	else
		classify_drop(worker, mbuf, verdict);
	return false;
}

/* The same, quickly when it can be; whose the frame is was then part of the look at it. */
static inline bool parse_one(struct worker *worker, uint32_t index, struct rte_mbuf *mbuf,
			     struct wire_view *view)
{
	const struct net_port *port = &worker->net->port[index];

	if (!make_flat(port, mbuf)) {
		classify_drop(worker, mbuf, VERDICT(OVERSIZE));
		return false;
	}
	buffer_of(mbuf)->port = index;
	buffer_of(mbuf)->lent = false;
	if (likely(!(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) &&
		   wire_parse_usual(&port->link.usual, rte_pktmbuf_mtod(mbuf, const uint8_t *),
				    mbuf->data_len, view)))
		return true;
	return parse_unusual(worker, port, mbuf, view);
}

static unsigned int parse_burst(struct worker *worker, uint32_t port, struct rte_mbuf **mbuf,
				struct wire_view *view, unsigned int count)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < count && i < AHEAD; i++)
		rte_prefetch0(rte_pktmbuf_mtod(mbuf[i], void *));
	for (unsigned int i = 0; i < count; i++) {
		if (i + AHEAD < count)
			rte_prefetch0(rte_pktmbuf_mtod(mbuf[i + AHEAD], void *));
		if (parse_one(worker, port, mbuf[i], &view[kept]))
			mbuf[kept++] = mbuf[i];
	}
	return kept;
}

/* --- stage 3: ICRC ----------------------------------------------------------------- */

static unsigned int verify_burst(struct worker *worker, struct rte_mbuf **mbuf,
				 struct wire_view *view, uint32_t *qp, unsigned int count)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < count; i++) {
		if (!icrc_verify(&view[i])) {
			classify_drop(worker, mbuf[i], VERDICT_WIRE + WIRE_ICRC);
			continue;
		}
		if (kept != i) {
			mbuf[kept] = mbuf[i];
			view[kept] = view[i];
			qp[kept] = qp[i];
		}
		kept++;
	}
	return kept;
}

/* --- stage 4: queue pair ----------------------------------------------------------- */

/* QP 1 takes management datagrams only, which are all alike. */
static void receive_mad(struct worker *worker, struct rte_mbuf *mbuf, const struct wire_view *view)
{
	uint32_t verdict = VERDICT_WIRE + WIRE_OK;

	if (view->opcode != OP_UD_SEND_ONLY)
		verdict = VERDICT(QP_TYPE);
	else if (!pkey_match(view->pkey, PKEY_DEFAULT))
		verdict = VERDICT(PKEY);
	else if (be32_get(view_deth(view)->qkey) != GSI_QKEY)
		verdict = VERDICT(QKEY);
	else if (view->payload_length != 256)
		verdict = VERDICT(LENGTH);
	else if (!gid_is_unicast(view->source_gid))
		verdict = VERDICT(NOT_PEER);
	if (verdict != VERDICT_WIRE + WIRE_OK) {
		classify_drop(worker, mbuf, verdict);
		return;
	}
	worker->stats->verdict[verdict]++;
	handoff_control(worker, mbuf);
}

void classify_deliver(struct worker *worker, uint32_t qp, struct rte_mbuf *mbuf,
		      const struct wire_view *view, uint64_t now)
{
	struct pktbuf *packet = &buffer_of(mbuf)->packet;

	packet->data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	packet->length = mbuf->data_len;
	packet->capacity = mbuf->buf_len - mbuf->data_off;
	/* Capture of accepted frames belongs here; the transport counts their verdict. */
	if (!transport_receive_at(worker->transport, qp, view, packet, now))
		rte_pktmbuf_free(mbuf);
}

static void deliver_burst(struct worker *worker, struct rte_mbuf **mbuf,
			  const struct wire_view *view, const uint32_t *place, unsigned int count,
			  uint64_t now)
{
	const struct transport_shared *shared = worker->net->shared;

	for (unsigned int i = 0; i < count; i++) {
		uint32_t home, qp;

		if (view[i].qpn == GSI_QPN) {
			receive_mad(worker, mbuf[i], &view[i]);
			continue;
		}
		qp = qp_confirm(shared, place[i], view[i].qpn);
		home = qp ? qp_home(shared, qp) : worker->index;
		if (!qp) {
			classify_drop(worker, mbuf[i], VERDICT(QP_UNKNOWN));
			continue;
		}
		/* On its way from one home to another the record does not say it all. */
		if (unlikely(worker->moves.known) && move_frame(worker, worker->index, qp, mbuf[i]))
			continue;
		if (home == worker->index) {
			if (worker->net->landing)
				move_landed(worker, qp, home, now);
			classify_deliver(worker, qp, mbuf[i], &view[i], now);
		} else if (home < worker->net->config.workers) {
			handoff_send(worker, home, mbuf[i]);
		} else {
			classify_drop(worker, mbuf[i], VERDICT(QP_STATE));
		}
	}
}

/*
 * Long frames pass in small bursts: what the driver has copied is read twice more, for the ICRC and
 * by who copies it on, and by then 32 of them would have pushed each other out of the first-level
 * cache.
 */
#define LONG_FRAME 2048u
#define LONG_BURST 4u

static unsigned int classify_burst(struct worker *worker, uint32_t port, uint32_t asked,
				   uint64_t now)
{
	struct rte_mbuf *mbuf[BURST];
	struct wire_view view[BURST];
	uint32_t qp[BURST];
	bool many_tokens;
	unsigned int received, count;

	received = rte_eth_rx_burst(worker->net->port[port].id, (uint16_t)worker->index, mbuf,
				    (uint16_t)asked);
	if (received)
		worker->long_frames[port] = mbuf[received - 1]->pkt_len >= LONG_FRAME;
	if (unlikely(fault_is_set(&worker->net->port[port].fault[NET_RECEIVE])))
		received = fault_run(worker, port, NET_RECEIVE, mbuf, received, BURST, now);
	if (received == 0)
		return 0;
	count = parse_burst(worker, port, mbuf, view, received);
	many_tokens = transport_look_up(worker->transport, view, qp, count);
	count = verify_burst(worker, mbuf, view, qp, count);
	if (many_tokens)
		transport_fetch_targets(worker->transport, view, count);
	deliver_burst(worker, mbuf, view, qp, count, now);
	return received;
}

unsigned int classify_port(struct worker *worker, uint32_t port, uint64_t now)
{
	unsigned int received = 0, part, asked;

	do {
		asked = worker->long_frames[port] ? LONG_BURST : BURST;
		part = classify_burst(worker, port, asked, now);
		received += part;
	} while (part == asked && received + LONG_BURST <= BURST);
	return received;
}
