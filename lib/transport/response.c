/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's input: ACKs, NAKs, READ responses, atomic results. */
#include "transport/private.h"

/* --- what an acknowledgement moves ---------------------------------------------------- */

/* After `una` moved: new tries, the timer afresh, room in the window. */
static void made_progress(struct transport *t, struct qp *qp)
{
	qp->retry_left = qp->retry_count;
	qp->rnr_left = qp->rnr_retry;
	qp_local(t, qp)->silent = false;
	qp->flags &= ~(QP_GAP_HANDLED | QP_RNR_WAIT);
	requester_timer(t, qp);
	ready_add(t, qp);
}

static void advance_una(struct transport *t, struct qp *qp, uint32_t una)
{
	word_commit(&qp->requester, requester_word(una, requester_done(qp->requester)));
	requester_step_over(t, qp);
}

/*
 * Takes everything through PSN p as arrived. Stops at a READ or atomic that still wants
 * its response: false, with that flight the oldest.
 */
static bool acknowledge(struct transport *t, struct qp *qp, uint32_t p)
{
	bool progress = requester_complete_covered(t, qp, p) != 0, through = true;

	while (qp->first_flight) {
		struct flight *flight = flight_at(t, qp->first_flight);
		uint32_t last = psn_add(flight->psn, flight->packets - 1);

		if (flight->packets == 0) {
			if (flight->state != FLIGHT_EXECUTED)
				break;
			flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
			continue;
		}
		if (flight->state != FLIGHT_STARTED || psn_diff(p, flight->psn) < 0)
			break;
		if (flight_wants_response(flight)) {
			through = false;
			break;
		}
		progress = true;
		if (psn_diff(p, last) < 0) {
			if (psn_diff(p, requester_una(qp->requester)) >= 0)
				advance_una(t, qp, psn_add(p, 1));
			break;
		}
		flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
	}
	if (progress)
		made_progress(t, qp);
	requester_complete(t, qp);
	return through;
}

/* For what this answer says, or says once too often. */
static void fail(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict)
{
	count_verdict(t, verdict);
	requester_fail(t, qp, status, verdict);
}

/*
 * Something newer was answered than what we wait for: go back, once. That counts as a
 * retry, so a peer that never answers a READ comes to an end.
 */
static void implied_nak(struct transport *t, struct qp *qp)
{
	if (qp->flags & (QP_GAP_HANDLED | QP_RNR_WAIT))
		return;
	if (qp->retry_left == 0) {
		fail(t, qp, NT_IO_TIMEOUT, VERDICT(RETRY_EXCEEDED));
		return;
	}
	qp->retry_left--;
	qp->flags |= QP_GAP_HANDLED;
	requester_read_lost(t, qp);
	requester_go_back(t, qp);
	requester_timer(t, qp);
	ready_add(t, qp);
}

/* --- ACK and NAK ---------------------------------------------------------------------- */

static void receive_ack(struct transport *t, struct qp *qp, uint32_t p)
{
	const struct flight *flight;

	COUNT(t, rx_ack, 1);
	if (acknowledge(t, qp, p) || qp->state != QP_RTS)
		return;
	/* A plain ACK within a READ answers nothing; one behind it skips its response. */
	flight = flight_at(t, qp->first_flight);
	if (psn_diff(p, psn_add(flight->psn, flight->packets - 1)) > 0)
		implied_nak(t, qp);
	else
		count_verdict(t, VERDICT(RESPONSE_UNEXPECTED));
}

static void receive_rnr(struct transport *t, struct qp *qp, uint8_t code)
{
	COUNT(t, rx_rnr, 1);
	count_verdict(t, VERDICT(NAK_RNR));
	if (qp->flags & QP_RNR_WAIT)
		return;
	if (qp->rnr_retry != 7) {
		if (qp->rnr_left == 0) {
			fail(t, qp, NT_IO_TIMEOUT, VERDICT(RNR_RETRY_EXCEEDED));
			return;
		}
		qp->rnr_left--;
	}
	requester_go_back(t, qp);
	qp->flags |= QP_RNR_WAIT;
	wheel_set(t, qp, t->now + rnr_timer_ns(code));
}

static void receive_sequence_nak(struct transport *t, struct qp *qp)
{
	count_verdict(t, VERDICT(NAK_SEQUENCE));
	implied_nak(t, qp);
}

/* Fatal: the work request that holds the PSN fails, those behind it are flushed. */
static void receive_fatal_nak(struct transport *t, struct qp *qp, uint8_t syndrome)
{
	int32_t status = NT_DATA_ERROR;
	uint32_t verdict = VERDICT(NAK_REMOTE_OPERATION);

	if (syndrome == NAK_INVALID_REQUEST) {
		verdict = VERDICT(NAK_INVALID_REQUEST);
	} else if (syndrome == NAK_REMOTE_ACCESS) {
		status = NT_ACCESS_VIOLATION;
		verdict = VERDICT(NAK_REMOTE_ACCESS);
	}
	fail(t, qp, status, verdict);
}

/* A NAK says that all before it has arrived. */
static void receive_nak(struct transport *t, struct qp *qp, uint32_t p, uint8_t syndrome)
{
	bool before = true;

	COUNT(t, rx_nak, 1);
	if (p != requester_una(qp->requester))
		before = acknowledge(t, qp, psn_add(p, PSN_MASK));
	if (qp->state != QP_RTS || qp->first_flight == 0)
		return;
	/* Reserved syndromes count as fatal, too. */
	if (syndrome != NAK_PSN_SEQUENCE && (syndrome & AETH_KIND) != AETH_RNR)
		receive_fatal_nak(t, qp, syndrome);
	else if (!before)
		implied_nak(t, qp);
	else if (syndrome == NAK_PSN_SEQUENCE)
		receive_sequence_nak(t, qp);
	else
		receive_rnr(t, qp, syndrome & AETH_VALUE);
}

/* --- responses with data -------------------------------------------------------------- */

/*
 * Makes the oldest READ or atomic the oldest flight, all before it being acknowledged by a
 * response to it or to a later one. NULL: no READ or atomic is waited for at p.
 */
static struct flight *find_wanting(struct transport *t, struct qp *qp, uint32_t p)
{
	uint32_t index = qp->first_flight;
	struct flight *flight = NULL;

	for (; index; index = flight->next) {
		flight = flight_at(t, index);
		if (flight->state == FLIGHT_STARTED && flight_wants_response(flight))
			break;
	}
	if (index == 0 || psn_diff(p, flight->psn) < 0)
		return NULL;
	if (index != qp->first_flight)
		acknowledge(t, qp, psn_add(flight->psn, PSN_MASK));
	return qp->state == QP_RTS && qp->first_flight == index ? flight : NULL;
}

static bool response_fits(const struct qp *qp, const struct wire_view *view, uint64_t rest)
{
	const bool last = rest <= qp_mtu(qp);
	const bool whole = view->opcode == OP_RC_READ_RESPONSE_ONLY;

	if (last != (whole || view->opcode == OP_RC_READ_RESPONSE_LAST))
		return false;
	return view->payload_length == (last ? rest : qp_mtu(qp));
}

static void place_response(struct transport *t, struct qp *qp, struct flight *flight,
			   const struct wire_view *view)
{
	const uint64_t offset = (uint64_t)flight_received(qp, flight) << qp->mtu_shift;
	const uint64_t rest = flight->length - offset;
	const struct accessor who = qp_accessor(t, qp);
	enum access_reason reason;

	if (!response_fits(qp, view, rest)) {
		fail(t, qp, NT_DATA_ERROR, VERDICT(RESPONSE_LENGTH));
		return;
	}
	reason = work_scatter(t, &who, flight->sge, flight->nsge, offset, view->payload,
			      view->payload_length);
	if (reason != ACCESS_OK) {
		fail(t, qp, NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
		return;
	}
	requester_read_came(t, qp);
	if (rest > qp_mtu(qp)) {
		qp->read_psns--;
		advance_una(t, qp, psn_add(view->psn, 1));
	} else {
		flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
	}
	made_progress(t, qp);
	requester_complete(t, qp);
}

static void place_atomic(struct transport *t, struct qp *qp, struct flight *flight,
			 const struct wire_view *view)
{
	const uint64_t original = be64_get(view_atomic_ack(view)->original);
	const struct accessor who = qp_accessor(t, qp);
	enum access_reason reason =
		work_scatter(t, &who, flight->sge, flight->nsge, 0, (const uint8_t *)&original, 8);

	if (reason != ACCESS_OK) {
		fail(t, qp, NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
		return;
	}
	flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
	made_progress(t, qp);
	requester_complete(t, qp);
}

static void receive_data(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	struct flight *flight = find_wanting(t, qp, view->psn);
	const bool atomic = view->opcode == OP_RC_ATOMIC_ACKNOWLEDGE;
	int32_t ahead;

	if (flight == NULL) {
		count_verdict(t, VERDICT(RESPONSE_UNEXPECTED));
		return;
	}
	ahead = psn_diff(view->psn, psn_add(flight->psn, flight_received(qp, flight)));
	if (ahead < 0) {
		count_verdict(t, VERDICT(ACK_GHOST));
		return;
	}
	if (ahead > 0) {
		count_verdict(t, VERDICT(RESPONSE_GAP));
		implied_nak(t, qp);
		return;
	}
	if (atomic != (flight->opcode != SHM_WR_READ)) {
		count_verdict(t, VERDICT(RESPONSE_UNEXPECTED));
		return;
	}
	if (atomic)
		place_atomic(t, qp, flight, view);
	else
		place_response(t, qp, flight, view);
}

/* --- entry ---------------------------------------------------------------------------- */

void requester_receive(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const bool plain = view->opcode == OP_RC_ACKNOWLEDGE;
	const uint8_t syndrome = view->op->flags & OPF_AETH ? view_aeth(view)->syndrome : AETH_ACK;

	if (psn_diff(view->psn, requester_una(qp->requester)) < 0) {
		count_verdict(t, VERDICT(ACK_GHOST));
		return;
	}
	if (psn_diff(view->psn, qp->sent_psn) >= 0) {
		count_verdict(t, VERDICT(ACK_FUTURE));
		return;
	}
	if (plain && (syndrome & AETH_KIND) == AETH_ACK)
		receive_ack(t, qp, view->psn);
	else if (plain)
		receive_nak(t, qp, view->psn, syndrome);
	else if ((syndrome & AETH_KIND) == AETH_ACK)
		receive_data(t, qp, view);
	else
		count_verdict(t, VERDICT(RESPONSE_UNEXPECTED)); /* a refusal is opcode 0x11 */
}
