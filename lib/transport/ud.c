/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams: from any queue pair to any other that knows the Q_Key, one packet each.
 *
 * A receive begins with 40 bytes that say where the datagram came from: the IPv6 header, or
 * 20 zero bytes and the IPv4 header (IBTA annex A17).
 */
#include <string.h>

#include "transport/private.h"

#define GRH_SIZE 40u

/* --- sending -------------------------------------------------------------------------- */

bool ud_build(struct transport *t, struct qp *qp, struct flight *flight, struct frame *frame)
{
	const struct ah *ah = ah_lookup(t, qp, flight->mw);
	const uint32_t peer = flight->token;
	const struct frame_head head = {
		.opcode = flight->opcode == SHM_WR_SEND_IMMEDIATE ? OP_UD_SEND_ONLY_IMM
								  : OP_UD_SEND_ONLY,
		.psn = flight->psn,
		.solicited = flight->flags & SHM_FLAG_SOLICIT,
		.immediate = flight->immediate,
		.qkey = flight->mr & QKEY_CONTROLLED ? qp->qkey : flight->mr,
		.source_qpn = qp->number,
	};

	if (ah == NULL) {
		requester_refuse(t, flight, NT_INVALID_HANDLE, VERDICT(WR_ADDRESS));
		return false;
	}
	if (flight->length > ah->path_mtu) {
		requester_refuse(t, flight, NT_INVALID_BUFFER_SIZE, VERDICT(UD_TOO_LONG));
		return false;
	}
	if (!frame_open_to(t, &ah->template, peer, frame, &head, (uint32_t)flight->length))
		return false;
	frame_set_source_port(frame, roce_source_port(ah->flow_label, qp->number, peer));
	return requester_gather(t, qp, flight, 0, frame);
}

/* --- receiving ------------------------------------------------------------------------ */

static void fill_grh(uint8_t grh[GRH_SIZE], const struct wire_view *view)
{
	const uint8_t *l3 = view->frame + view->l3_offset;

	if (!view->is_v4) {
		memcpy(grh, l3, sizeof(struct ipv6_header));
		return;
	}
	memset(grh, 0, GRH_SIZE - sizeof(struct ipv4_header));
	memcpy(grh + GRH_SIZE - sizeof(struct ipv4_header), l3, sizeof(struct ipv4_header));
}
_Static_assert(sizeof(struct ipv6_header) == GRH_SIZE, "as long as a GRH");

static uint32_t check_datagram(const struct qp *qp, const struct wire_view *view)
{
	if (unlikely(!gid_is_unicast(view->destination_gid)))
		return VERDICT(MULTICAST);
	if (unlikely(be32_get(view_deth(view)->qkey) != qp->qkey))
		return VERDICT(QKEY);
	return view->payload_length > qp_mtu(qp) ? VERDICT(UD_TOO_LONG) : 0;
}

/* A receive that is too small is the next datagram's. */
void ud_receive(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint32_t bytes = GRH_SIZE + view->payload_length;
	const uint32_t verdict = check_datagram(qp, view);
	uint8_t grh[GRH_SIZE];

	if (unlikely(verdict)) {
		count_verdict(t, verdict);
		return;
	}
	if (!unreliable_take_receive(t, qp))
		return;
	if (unlikely(bytes > qp_hold(t, qp)->work.capacity)) {
		count_verdict(t, VERDICT(UD_TOO_SMALL));
		return;
	}
	fill_grh(grh, view);
	if (!unreliable_place(t, qp, 0, grh, GRH_SIZE) ||
	    !unreliable_place(t, qp, GRH_SIZE, view->payload, view->payload_length))
		return;
	if (responder_complete(t, qp, view, bytes))
		COUNT(t, rx_datagram, 1);
}
