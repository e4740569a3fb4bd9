/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the responder sends: READ responses, atomic results, ACKs and NAKs, in PSN order;
 * and what it sends again for duplicates.
 *
 * The ring of resources is walked by `answered`; ACK or NAK come when it has caught up.
 * A duplicate READ or atomic sets the ring's entry to be sent anew and the walk back to it.
 */
#include "memory/access.h"
#include "transport/private.h"

/* --- duplicates ----------------------------------------------------------------------- */

/* The kept READ or atomic whose PSNs include this one. */
static struct responder_resource *find_resource(const struct transport *t, const struct qp *qp,
						uint32_t psn, uint8_t *number)
{
	const uint8_t newest = responder_resources(qp->responder);

	for (uint32_t back = 1; back <= t->shared->resource_mask + 1; back++) {
		struct responder_resource *resource;

		*number = (uint8_t)(newest - back);
		resource = resource_at(t, qp, *number);
		if (resource->kind == RESOURCE_NONE)
			return NULL;
		if ((uint32_t)psn_diff(psn, resource->psn) < resource->packets)
			return resource;
	}
	return NULL;
}

/* Back to it, unless the walk has yet to come there. */
static void answer_again(struct transport *t, struct qp *qp, uint8_t number)
{
	const uint8_t newest = responder_resources(qp->responder);

	if ((uint8_t)(newest - number) > (uint8_t)(newest - qp->answered))
		qp->answered = number;
	count_verdict(t, VERDICT(DUPLICATE));
	ready_add(t, qp);
}

/*
 * It may start at any packet of the original and end early, but names the same token and
 * the place in the range that its PSN stands for. Tokens and range were right
 * once; each response looks at them again.
 */
static bool same_read(const struct responder_resource *resource, const struct reth *reth,
		      uint64_t offset)
{
	const uint32_t length = be32_get(reth->length);

	if (resource->kind != RESOURCE_READ)
		return false;
	if (resource->length == 0 || length == 0)
		return resource->length == length;
	return be32_get(reth->rkey) == resource->token &&
	       be64_get(reth->va) == resource->address + offset &&
	       length <= resource->length - offset;
}

/*
 * Whoever asks once more for a READ in pieces gets each of them: one that lies behind what is being
 * sent again, and does not end with it, waits.
 */
static bool behind_another(const struct responder_resource *resource, uint32_t psn, uint32_t end)
{
	return resource->complete && resource->next != resource->end && end != resource->end &&
	       psn_diff(psn, resource->next) > 0;
}

/* True: it must wait. */
static bool duplicate_read(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const uint32_t length = be32_get(view_reth(view)->length);
	const uint32_t end = psn_add(view->psn, qp_packets(qp, length));
	struct responder_resource *resource;
	uint64_t offset;
	uint8_t number;

	resource = find_resource(t, qp, view->psn, &number);
	if (resource == NULL) {
		count_verdict(t, VERDICT(DUPLICATE_UNKNOWN));
		return false;
	}
	offset = (uint64_t)(uint32_t)psn_diff(view->psn, resource->psn) << qp->mtu_shift;
	if (!same_read(resource, view_reth(view), offset)) {
		count_verdict(t, VERDICT(DUPLICATE_UNKNOWN));
		return false;
	}
	/* What it asks for is still to come: it will come once. */
	if (!resource->complete && psn_diff(view->psn, resource->next) >= 0) {
		count_verdict(t, VERDICT(DUPLICATE));
		return false;
	}
	if (behind_another(resource, view->psn, end))
		return true;
	resource->start = view->psn;
	resource->next = view->psn;
	if (resource->complete) {
		resource->end = end;
		resource->end_length = (uint32_t)offset + length;
		resource->msn = responder_msn(qp->responder);
	}
	answer_again(t, qp, number);
	return false;
}

/* Answered from what was kept, never executed. */
static void duplicate_atomic(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	struct responder_resource *resource;
	uint8_t number;

	resource = find_resource(t, qp, view->psn, &number);
	if (resource == NULL || resource->kind != RESOURCE_ATOMIC ||
	    resource->opcode != view->opcode ||
	    resource->address != be64_get(view_atomic_eth(view)->va) ||
	    resource->token != be32_get(view_atomic_eth(view)->rkey)) {
		count_verdict(t, VERDICT(DUPLICATE_UNKNOWN));
		return;
	}
	if (resource->complete)
		resource->msn = responder_msn(qp->responder);
	resource->next = resource->start;
	answer_again(t, qp, number);
}

/*
 * A SEND or WRITE is acknowledged with the newest one that was executed: that is true and
 * takes the peer furthest. A NAK that waits to leave does it as well. Where READs fill half of the
 * circle there is none of which this could be a duplicate.
 */
static void duplicate_message(struct transport *t, struct qp *qp)
{
	if (psn_diff(qp->ack_psn, responder_psn(qp->responder)) >= 0) {
		count_verdict(t, VERDICT(DUPLICATE_UNKNOWN));
		return;
	}
	count_verdict(t, VERDICT(DUPLICATE));
	if (qp->answer.kind == ANSWER_NONE)
		qp->answer.kind = ANSWER_ACK;
	ready_add(t, qp);
}

bool responder_duplicate(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	if (view->op->flags & OPF_READ)
		return duplicate_read(t, qp, view);
	if (view->op->flags & OPF_ATOMIC)
		duplicate_atomic(t, qp, view);
	else if (view->op->flags & OPF_OPERATION)
		duplicate_message(t, qp);
	else
		count_verdict(t, VERDICT(DUPLICATE_UNKNOWN));
	return false;
}

/* --- sending -------------------------------------------------------------------------- */

/*
 * A READ that was answered before, and its token is dead now. The network may have kept the
 * duplicate while its peer has gone on, so the queue pair lives; one that still waits has to
 * know that no data will come.
 */
static bool refuse_again(struct transport *t, struct qp *qp, struct responder_resource *resource,
			 enum access_reason reason)
{
	const struct answer_head head = {
		.psn = resource->next,
		.syndrome = NAK_REMOTE_ACCESS,
		.msn = responder_msn(qp->responder),
	};

	if (!frame_send_ack(t, qp, &head))
		return false;
	count_verdict(t, VERDICT_ACCESS + reason);
	COUNT(t, tx_nak, 1);
	resource->next = resource->end;
	return true;
}

/* The token died while its READ was being answered: NAK in place of the response. */
static bool read_refused(struct transport *t, struct qp *qp, struct responder_resource *resource,
			 enum access_reason reason)
{
	if (resource->complete)
		return refuse_again(t, qp, resource, reason);
	count_verdict(t, VERDICT_ACCESS + reason);
	responder_bad_token(t, qp, reason);
	qp->answered = responder_resources(qp->responder);
	qp->answer = (struct answer){
		.kind = ANSWER_FATAL,
		.psn = resource->next,
		.syndrome = NAK_REMOTE_ACCESS,
		.verdict = (uint16_t)(VERDICT_ACCESS + reason),
		.async = SHM_ASYNC_QP_ACCESS_ERROR,
	};
	return false;
}

static uint8_t response_opcode(bool first, bool last)
{
	if (first)
		return last ? OP_RC_READ_RESPONSE_ONLY : OP_RC_READ_RESPONSE_FIRST;
	return last ? OP_RC_READ_RESPONSE_LAST : OP_RC_READ_RESPONSE_MIDDLE;
}

/* False: no buffer, or refused. */
static bool send_read_response(struct transport *t, struct qp *qp,
			       struct responder_resource *resource)
{
	const struct accessor who = qp_accessor(t, qp);
	const uint64_t offset = (uint64_t)(uint32_t)psn_diff(resource->next, resource->psn)
				<< qp->mtu_shift;
	const bool last = psn_add(resource->next, 1) == resource->end;
	const uint32_t length = last ? resource->end_length - (uint32_t)offset : qp_mtu(qp);
	const struct answer_head head = {
		.opcode = response_opcode(resource->next == resource->start, last),
		.psn = resource->next,
		.syndrome = AETH_ACK | AETH_UNLIMITED,
		.msn = resource->msn,
	};
	enum access_reason reason;
	struct access access;
	struct frame frame;

	if (!frame_open_answer(t, qp, &frame, &head, length))
		return false;
	if (length) {
		reason = access_check(t->shared->memory, &who, resource->token,
				      resource->address + offset, length, RIGHT_REMOTE_READ,
				      &access);
		if (reason == ACCESS_OK) {
			frame_payload(&frame, access.pointer, length);
			if (access_poisoned(&access))
				reason = ACCESS_POISONED;
		}
		if (reason != ACCESS_OK) {
			frame_drop(t, &frame);
			return read_refused(t, qp, resource, reason);
		}
	}
	pace_sent(t, qp, frame_close(t, &frame));
	resource->next = psn_add(resource->next, 1);
	return true;
}

static bool send_atomic_result(struct transport *t, struct qp *qp,
			       struct responder_resource *resource)
{
	const struct frame_head head = {
		.opcode = OP_RC_ATOMIC_ACKNOWLEDGE,
		.psn = resource->psn,
		.syndrome = AETH_ACK | AETH_UNLIMITED,
		.msn = resource->msn,
		.original = resource->original,
	};
	struct frame frame;

	if (!frame_open(t, qp, &frame, &head, 0))
		return false;
	frame_close(t, &frame);
	resource->next = resource->end;
	return true;
}

static void count_answer(struct transport *t, const struct answer *answer)
{
	if (answer->kind == ANSWER_ACK || answer->kind == ANSWER_ACK_FATAL)
		COUNT(t, tx_ack, 1);
	else if ((answer->syndrome & AETH_KIND) == AETH_RNR)
		COUNT(t, tx_rnr, 1);
	else
		COUNT(t, tx_nak, 1);
}

/*
 * An ACK never carries a PSN that belongs to a READ or atomic: rdma_rxe would take it
 * for the response.
 */
static bool send_answer(struct transport *t, struct qp *qp)
{
	const struct answer answer = qp->answer;
	const bool nak = answer.kind == ANSWER_NAK || answer.kind == ANSWER_FATAL;
	const struct answer_head head = {
		.psn = nak ? answer.psn : qp->ack_psn,
		.syndrome = nak ? answer.syndrome : (uint8_t)(AETH_ACK | AETH_UNLIMITED),
		.msn = responder_msn(qp->responder),
	};

	if (!frame_send_ack(t, qp, &head))
		return false;
	count_answer(t, &answer);
	qp->answer.kind = ANSWER_NONE;
	if (answer.kind >= ANSWER_FATAL)
		qp_fail(t, qp, answer.verdict, answer.async);
	return true;
}

/* False: no buffer, or refused; then the NAK is next. */
static bool send_resource(struct transport *t, struct qp *qp, struct responder_resource *resource)
{
	bool sent;

	if (resource->kind == RESOURCE_ATOMIC)
		sent = send_atomic_result(t, qp, resource);
	else
		sent = send_read_response(t, qp, resource);
	/* At once: with this answer the peer may have another READ outstanding. */
	if (sent && resource->next == resource->end) {
		resource->complete = 1;
		qp->answered++;
	}
	return sent;
}

bool responder_pending(const struct qp *qp)
{
	return qp->state == QP_RTS && (qp->answered != responder_resources(qp->responder) ||
				       qp->answer.kind != ANSWER_NONE);
}

unsigned int responder_send(struct transport *t, struct qp *qp)
{
	unsigned int sent = 0;

	while (sent < POLL_FRAMES && t->left > 0 && responder_pending(qp)) {
		struct responder_resource *resource = resource_at(t, qp, qp->answered);

		if (qp->answered == responder_resources(qp->responder)) {
			if (!send_answer(t, qp))
				break;
			sent++;
			continue;
		}
		if (resource->next == resource->end) { /* not asked for again */
			qp->answered++;
			continue;
		}
		if (resource->kind == RESOURCE_READ && !pace_may_send(t, qp))
			break;
		if (send_resource(t, qp, resource))
			sent++;
		else if (t->blocked)
			break;
	}
	return sent;
}
