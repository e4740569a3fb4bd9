/* SPDX-License-Identifier: BSD-3-Clause */
/* A received frame: which queue pair, may it come in at all, request or response. */
#include "transport/private.h"

/* Datagrams have no connection whose rate it could lower. */
static bool is_cnp_for(const struct qp *qp, const struct wire_view *view)
{
	return view->opcode == OP_CNP && qp->type != SHM_QP_UD;
}

/* The checks of IBTA 9.6 that drop in silence, and our own; 0: it may come in. */
static uint32_t check_frame(const struct transport *t, const struct qp *qp,
			    const struct wire_view *view)
{
	uint8_t state;

	if (unlikely(!qp_lives_here(t, qp)))
		return VERDICT(QP_UNKNOWN);
	state = __atomic_load_n(&qp->state, __ATOMIC_RELAXED);
	if (unlikely(state != QP_RTS))
		return state == QP_ERROR ? VERDICT(QP_DEAD) : VERDICT(QP_STATE);
	if (unlikely(view->op->service != qp->type) && !is_cnp_for(qp, view))
		return VERDICT(QP_TYPE);
	if (unlikely(!gid_equal(view->source_gid, qp->remote_gid) ||
		     !gid_equal(view->destination_gid, qp->local_gid)) &&
	    qp->type != SHM_QP_UD)
		return VERDICT(NOT_PEER);
	if (unlikely(!pkey_match(view->pkey, PKEY_DEFAULT)))
		return VERDICT(PKEY);
	return 0;
}

bool transport_receive(struct transport *transport, const struct wire_view *view,
		       struct pktbuf *packet, uint64_t now)
{
	return transport_receive_at(transport, transport_find(transport, view->qpn), view, packet,
				    now);
}

bool transport_receive_at(struct transport *transport, uint32_t index, const struct wire_view *view,
			  struct pktbuf *packet, uint64_t now)
{
	struct transport *t = transport;
	struct qp *qp = &t->shared->qps[index];
	struct qp_local *local = &t->shared->qp_local[index];
	uint32_t verdict;

	t->now = now;
	t->last_verdict = 0;
	verdict = index ? check_frame(t, qp, view) : VERDICT(QP_UNKNOWN);
	if (unlikely(verdict)) {
		count_verdict(t, verdict);
		return false;
	}
	COUNT(t, rx_packets, 1);
	COUNT(t, rx_bytes, (uint64_t)(view->icrc + ICRC_SIZE - view->frame));
	if (unlikely(view->opcode == OP_CNP)) {
		pace_notified(t, qp);
		return false;
	}
	if (unlikely((view->traffic_class & IP_ECN) == IP_ECN_CE || view->fecn) &&
	    qp->type != SHM_QP_UD)
		pace_marked(t, qp);
	if (unlikely(!(qp->flags & QP_ESTABLISHED))) {
		qp->flags |= QP_ESTABLISHED;
		event_send(t, TRANSPORT_QP_ESTABLISHED, index, 0, 0);
	}
	if (unlikely(qp->type != SHM_QP_RC)) {
		if (qp->type == SHM_QP_UC)
			uc_receive(t, qp, view);
		else
			ud_receive(t, qp, view);
		return false;
	}
	if (view->op->flags & OPF_RESPONSE) {
		requester_receive(t, qp, view);
		return false;
	}
	/* Nothing overtakes a request that waits. */
	if (likely(local->parked == 0 && local->grace == 0) && !responder_receive(t, qp, view))
		return false;
	if (park_add(t, qp, packet))
		return true;
	count_verdict(t, VERDICT(PARK_FULL));
	return false;
}

uint32_t transport_last_verdict(const struct transport *transport)
{
	return transport->last_verdict;
}
