/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The responder of an unreliable connection. It never answers: a message that lacks a packet,
 * or is wrong, ends there in silence, and the receive that it had is the next one's (IBTA
 * classes D and E). Only what is wrong with a receive of our own client is an error.
 */
#include "transport/private.h"

/* The next FIRST or ONLY begins anew, wherever it stands. */
static void abandon(struct qp *qp, uint32_t next_psn)
{
	word_commit(&qp->responder,
		    responder_word(next_psn, responder_msn(qp->responder), 0, MESSAGE_NONE));
}

static void drop(struct transport *t, struct qp *qp, const struct wire_view *view, uint32_t verdict)
{
	count_verdict(t, verdict);
	abandon(qp, psn_add(view->psn, 1));
}

/* Dropped when there is none, and then the queue pair may be dead. */
static bool take_receive(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	if (unreliable_take_receive(t, qp))
		return true;
	if (qp->state == QP_RTS)
		abandon(qp, psn_add(view->psn, 1));
	return false;
}

static void receive_send(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint16_t flags = view->op->flags;
	uint64_t offset;

	if (flags & OPF_FIRST) {
		if (!take_receive(t, qp, view))
			return;
		qp->message.psn = view->psn;
	}
	if (!responder_shape_fits(qp, view)) {
		drop(t, qp, view, VERDICT(UC_LENGTH));
		return;
	}
	offset = responder_offset(qp);
	if (offset + view->payload_length > qp_hold(t, qp)->work.capacity) {
		drop(t, qp, view, VERDICT(UC_TOO_SMALL));
		return;
	}
	if (!unreliable_place(t, qp, offset, view->payload, view->payload_length))
		return;
	if (!(flags & OPF_LAST)) {
		word_commit(&qp->responder, responder_word_after(qp, MESSAGE_SEND, false));
		return;
	}
	COUNT(t, rx_send, 1);
	responder_complete(t, qp, view, (uint32_t)offset + view->payload_length);
}

static void receive_write(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint16_t flags = view->op->flags;
	enum access_reason reason;

	if ((flags & OPF_FIRST) && !responder_start_write(qp, view)) {
		drop(t, qp, view, VERDICT(UC_OPERATION));
		return;
	}
	if ((flags & OPF_IMM) && !take_receive(t, qp, view))
		return;
	if (!responder_write_fits(qp, view)) {
		drop(t, qp, view, VERDICT(UC_LENGTH));
		return;
	}
	reason = responder_place_write(t, qp, view);
	if (unlikely(reason != ACCESS_OK)) {
		responder_bad_token(t, qp, reason);
		drop(t, qp, view, VERDICT_ACCESS + reason);
		return;
	}
	COUNT(t, rx_write_bytes, view->payload_length);
	COUNT(t, rx_write, (flags & OPF_LAST) != 0);
	if (flags & OPF_IMM) {
		responder_complete(t, qp, view, (uint32_t)qp->message.length);
		return;
	}
	if (flags & OPF_LAST)
		count_message_in(qp, psn_add(responder_msn(qp->responder), 1));
	word_commit(&qp->responder, responder_word_after(qp, MESSAGE_WRITE, flags & OPF_LAST));
}

/* FIRST and ONLY begin a message whatever came before; all others must go on with one. */
static uint32_t check_sequence(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint16_t flags = view->op->flags;
	const enum message_kind message = responder_message(qp->responder);
	const bool expected = view->psn == responder_psn(qp->responder);

	if (flags & OPF_FIRST) {
		if (!expected || message != MESSAGE_NONE) {
			COUNT(t, uc_resync, 1);
			abandon(qp, view->psn);
		}
		return 0;
	}
	if (!expected)
		return VERDICT(UC_GAP);
	if (message == MESSAGE_NONE)
		return VERDICT(UC_REST);
	return message == (flags & OPF_SEND ? MESSAGE_SEND : MESSAGE_WRITE) ? 0
									    : VERDICT(UC_SEQUENCE);
}

void uc_receive(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint32_t verdict = check_sequence(t, qp, view);

	if (unlikely(verdict))
		drop(t, qp, view, verdict);
	else if (view->op->flags & OPF_SEND)
		receive_send(t, qp, view);
	else
		receive_write(t, qp, view);
}
