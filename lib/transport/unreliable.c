/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What UC and UD have in common. A packet that has left is done with: there is no window, no
 * timer, nothing to go back to.
 */
#include "transport/private.h"

/* --- sending -------------------------------------------------------------------------- */

/*
 * The commit comes before the frame is handed over: a kill in between loses a packet, as the
 * network may, but no message is ever sent twice. Nobody sees the completion before the
 * frame has gone, for it is published at the end of the poll.
 */
static bool send_packet(struct transport *t, struct qp *qp, struct flight *flight)
{
	struct frame frame;
	uint32_t una;
	bool built;

	if (qp->type == SHM_QP_UD)
		built = ud_build(t, qp, flight, &frame);
	else
		built = requester_build(t, qp, flight, &frame);
	if (!built)
		return false;
	requester_start(t, qp, flight);
	una = psn_add(flight->psn, ++qp->cursor_packet);
	qp->sent_psn = una;
	if (qp->cursor_packet < flight->packets)
		word_commit(&qp->requester, requester_word(una, requester_done(qp->requester)));
	else
		flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
	pace_sent(t, qp, frame_close(t, &frame));
	return true;
}

unsigned int unreliable_send(struct transport *t, struct qp *qp)
{
	unsigned int done = 0;

	for (; done < POLL_FRAMES && t->left > 0 && qp->state == QP_RTS; done++) {
		struct flight *flight = requester_next(t, qp);

		if (flight == NULL || flight->state == FLIGHT_FAILED)
			break;
		if (flight->packets == 0) {
			if (!requester_execute(t, qp, flight))
				break;
		} else if (!pace_may_send(t, qp) || !send_packet(t, qp, flight)) {
			break;
		}
	}
	requester_complete(t, qp);
	return done;
}

/* --- receives ------------------------------------------------------------------------- */

bool unreliable_take_receive(struct transport *t, struct qp *qp)
{
	switch (work_peek_receive(t, qp)) {
	case WORK_TAKEN: return true;
	case WORK_MALFORMED:
		count_verdict(t, VERDICT(RECEIVE_BAD));
		responder_fail_receive(t, qp, NT_INTERNAL_ERROR, VERDICT(RECEIVE_BAD),
				       VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
		return false;
	default:
		if (qp->state == QP_RTS)
			count_verdict(t, VERDICT(DROPPED_NO_RECEIVE));
		return false;
	}
}

bool unreliable_place(struct transport *t, struct qp *qp, uint64_t offset, const uint8_t *data,
		      uint32_t length)
{
	const struct accessor who = receive_accessor(t, qp);
	const enum access_reason reason = work_scatter(
		t, &who, qp_hold(t, qp)->work.sge, qp_hold(t, qp)->work.nsge, offset, data, length);

	if (likely(reason == ACCESS_OK))
		return true;
	count_verdict(t, VERDICT(RECEIVE_BAD));
	responder_fail_receive(t, qp, NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason,
			       VERDICT(RECEIVE_BAD), SHM_ASYNC_QP_FATAL);
	return false;
}
