/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The responder: one request packet after the other, in PSN order.
 *
 * Each check has its own verdict and comes in the order that IBTA gives them: PSN,
 * sequence of opcodes, rights of the queue pair, resources, lengths, token. Then the bytes
 * move, then one store makes the packet part of the past.
 */
#include <string.h>

#include "memory/access.h"
#include "memory/place.h"
#include "transport/private.h"

/* --- answers -------------------------------------------------------------------------- */

static void answer_ack(struct transport *t, struct qp *qp)
{
	qp->answer.kind = ANSWER_ACK;
	ready_add(t, qp);
}

static void answer_nak(struct transport *t, struct qp *qp, uint8_t syndrome)
{
	qp->answer.kind = ANSWER_NAK;
	qp->answer.psn = responder_psn(qp->responder);
	qp->answer.syndrome = syndrome;
	/* One NAK for this PSN: what is behind it will be sent again in any case. */
	word_commit(&qp->responder, qp->responder | RESPONDER_NAK_SENT);
	ready_add(t, qp);
}

/*
 * The receive that an erroneous message holds completes with it; others are flushed later. That
 * the queue pair is dying becomes true with it: whoever adopts it takes no second receive for
 * the same message. So `answer` is set before.
 */
static void fail_receive(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict)
{
	receive_complete(t, qp, qp->responder | RESPONDER_DYING,
			 &(struct shm_cqe){ .status = status,
					    .type = COMPLETION_RECEIVE,
					    .provider_error = verdict });
}

/*
 * Class C: NAK behind the answers that are still due, then error. Until the NAK has left
 * the queue pair takes no more requests.
 */
static void set_fatal(struct transport *t, struct qp *qp, uint8_t syndrome, uint32_t verdict)
{
	count_verdict(t, verdict);
	qp->answer = (struct answer){
		.kind = ANSWER_FATAL,
		.psn = responder_psn(qp->responder),
		.syndrome = syndrome,
		.verdict = (uint16_t)verdict,
		.async = syndrome == NAK_REMOTE_ACCESS ? SHM_ASYNC_QP_ACCESS_ERROR
						       : SHM_ASYNC_QP_INVALID_REQUEST,
	};
	if (syndrome == NAK_REMOTE_OPERATION)
		qp->answer.async = SHM_ASYNC_QP_FATAL;
	ready_add(t, qp);
}

void responder_refuse(struct transport *t, struct qp *qp, uint8_t syndrome, uint32_t verdict)
{
	set_fatal(t, qp, syndrome, verdict);
	word_commit(&qp->responder, qp->responder | RESPONDER_DYING);
}

/* The same when the receive in `work` goes with it. `own`: what its completion says. */
static void refuse_receive(struct transport *t, struct qp *qp, uint8_t syndrome, uint32_t verdict,
			   int32_t status, uint32_t own)
{
	set_fatal(t, qp, syndrome, verdict);
	fail_receive(t, qp, status, own);
}

void responder_fail_receive(struct transport *t, struct qp *qp, int32_t status, uint32_t own,
			    uint32_t verdict, uint32_t async)
{
	qp->answer = (struct answer){ .verdict = (uint16_t)verdict, .async = async };
	fail_receive(t, qp, status, own);
	qp_fail(t, qp, verdict, async);
}

/* In the middle of a message: a SEND's receive goes with it. */
static void refuse_message(struct transport *t, struct qp *qp, uint8_t syndrome, uint32_t verdict)
{
	if (responder_message(qp->responder) == MESSAGE_SEND)
		refuse_receive(t, qp, syndrome, verdict, NT_DATA_ERROR, verdict);
	else
		responder_refuse(t, qp, syndrome, verdict);
}

void responder_bad_token(struct transport *t, struct qp *qp, enum access_reason reason)
{
	if (reason != ACCESS_POISONED)
		event_send(t, TRANSPORT_BAD_TOKEN, qp_index(t, qp), VERDICT_ACCESS + reason, 0);
}

void responder_refuse_access(struct transport *t, struct qp *qp, enum access_reason reason)
{
	responder_bad_token(t, qp, reason);
	responder_refuse(t, qp, NAK_REMOTE_ACCESS, VERDICT_ACCESS + reason);
}

/* --- commit --------------------------------------------------------------------------- */

static inline uint64_t word_after(const struct qp *qp, enum message_kind kind, bool ends)
{
	const uint64_t word = qp->responder;

	return responder_word(responder_psn(word) + 1, responder_msn(word) + ends,
			      responder_resources(word), ends ? MESSAGE_NONE : kind);
}

uint64_t responder_word_after(const struct qp *qp, enum message_kind kind, bool ends)
{
	return word_after(qp, kind, ends);
}

static inline void packet_done(struct transport *t, struct qp *qp, bool ack_request)
{
	qp->ack_psn = psn_add(responder_psn(qp->responder), PSN_MASK);
	/* A NAK that waits to leave is out of date: the gap has closed. */
	if (ack_request || qp->answer.kind == ANSWER_NAK)
		answer_ack(t, qp);
}

void receive_complete(struct transport *t, struct qp *qp, uint64_t word, struct shm_cqe *cqe)
{
	struct intent *intent = intent_begin(t, qp);
	uint64_t parts = INTENT_RESPONDER | (qp->srq ? INTENT_RELEASE : INTENT_RECEIVE);

	cqe->qp_context = qp->qp_context;
	cqe->request_context = qp_hold(t, qp)->work.request_context;
	cqe->qpn = qp->number;
	intent->receive_taken = qp->receive.taken + 1;
	intent->responder = word;
	parts |= completion_add(t, intent, qp->receive_cq, cqe);
	intent_commit(t, parts);
	shm_store_release(&qp_local(t, qp)->memory->receive.done, qp->receive.taken);
}

bool responder_complete(struct transport *t, struct qp *qp, const struct wire_view *view,
			uint32_t bytes)
{
	const uint16_t flags = view->op->flags;
	struct shm_cqe cqe = { .bytes = bytes, .solicited = view->solicited };
	uint64_t word;

	/* Class G: no NAK, no completion. */
	if (!completion_room(t, qp->receive_cq)) {
		qp_fail(t, qp, VERDICT(CQ_OVERRUN), SHM_ASYNC_QP_FATAL);
		return false;
	}
	if (flags & OPF_IMM) {
		cqe.type = (flags & OPF_WRITE) ? COMPLETION_RECEIVE_WRITE_IMMEDIATE
					       : COMPLETION_RECEIVE_IMMEDIATE;
		memcpy(&cqe.output, view_imm(view)->data, sizeof(cqe.output));
	} else {
		cqe.type = COMPLETION_RECEIVE;
	}
	if (flags & OPF_DETH) {
		cqe.source_qpn = be24_get(view_deth(view)->source_qpn);
		cqe.flags = SHM_CQE_GRH;
	}
	word = word_after(qp, MESSAGE_NONE, true);
	count_message_in(qp, responder_msn(word));
	receive_complete(t, qp, word, &cqe);
	return true;
}

static void message_received(struct transport *t, struct qp *qp, const struct wire_view *view,
			     uint32_t bytes)
{
	if (responder_complete(t, qp, view, bytes))
		packet_done(t, qp, view->ack_request);
}

/* --- the receive of a message --------------------------------------------------------- */

/* False: answered already. */
static bool take_receive(struct transport *t, struct qp *qp)
{
	switch (work_peek_receive(t, qp)) {
	case WORK_TAKEN: return true;
	case WORK_MALFORMED:
		refuse_receive(t, qp, NAK_REMOTE_OPERATION, VERDICT(RECEIVE_BAD), NT_INTERNAL_ERROR,
			       VERDICT(RECEIVE_BAD));
		return false;
	default:
		if (qp->state != QP_RTS)
			return false;
		count_verdict(t, VERDICT(NO_RECEIVE));
		answer_nak(t, qp, AETH_RNR | qp->min_rnr_timer);
		return false;
	}
}

/* FIRST and MIDDLE are full; LAST has something; nothing is longer than the path MTU. */
static inline bool shape_fits(const struct qp *qp, uint16_t flags, const struct wire_view *view)
{
	const uint32_t mtu = qp_mtu(qp);

	if (!(flags & OPF_LAST))
		return view->payload_length == mtu;
	return view->payload_length <= mtu && ((flags & OPF_FIRST) || view->payload_length > 0);
}

bool responder_shape_fits(const struct qp *qp, const struct wire_view *view)
{
	return shape_fits(qp, view->op->flags, view);
}

/* --- SEND ----------------------------------------------------------------------------- */

/* False: refused. The receive completes with what was wrong with it (classes A and C). */
static bool place_send(struct transport *t, struct qp *qp, const struct wire_view *view,
		       uint64_t offset)
{
	const struct accessor who = receive_accessor(t, qp);
	enum access_reason reason;

	if (offset + view->payload_length > qp_hold(t, qp)->work.capacity) {
		refuse_receive(t, qp, NAK_INVALID_REQUEST, VERDICT(RECEIVE_TOO_SMALL),
			       NT_DATA_OVERRUN, VERDICT(RECEIVE_TOO_SMALL));
		return false;
	}
	reason = work_scatter(t, &who, qp_hold(t, qp)->work.sge, qp_hold(t, qp)->work.nsge, offset,
			      view->payload, view->payload_length);
	if (reason != ACCESS_OK) {
		refuse_receive(t, qp, NAK_REMOTE_OPERATION, VERDICT(RECEIVE_BAD),
			       NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
		return false;
	}
	return true;
}

/*
 * Class J: no NAK, and no ACK of this message; what came before it is acknowledged if an answer
 * waits that does so.
 */
static void invalidate_failed(struct transport *t, struct qp *qp, enum access_reason reason)
{
	count_verdict(t, VERDICT(REMOTE_INVALIDATE));
	responder_bad_token(t, qp, reason);
	if (qp->answer.kind != ANSWER_NONE) {
		qp->answer.kind = ANSWER_ACK_FATAL;
		qp->answer.verdict = VERDICT(REMOTE_INVALIDATE);
		qp->answer.async = SHM_ASYNC_QP_ACCESS_ERROR;
		fail_receive(t, qp, NT_INVALID_DEVICE_REQUEST, VERDICT_ACCESS + reason);
		return;
	}
	responder_fail_receive(t, qp, NT_INVALID_DEVICE_REQUEST, VERDICT_ACCESS + reason,
			       VERDICT(REMOTE_INVALIDATE), SHM_ASYNC_QP_ACCESS_ERROR);
}

static void invalidate_done(struct transport *t, struct qp *qp)
{
	const struct remote_invalidate *invalidate = &qp_hold(t, qp)->invalidate;
	struct shm_cqe cqe = {
		.bytes = invalidate->bytes,
		.type = COMPLETION_RECEIVE_AND_INVALIDATE,
		.output = invalidate->token,
		.solicited = invalidate->solicited,
	};
	uint64_t word;

	if (!completion_room(t, qp->receive_cq)) {
		qp_fail(t, qp, VERDICT(CQ_OVERRUN), SHM_ASYNC_QP_FATAL);
		return;
	}
	word = word_after(qp, MESSAGE_NONE, true);
	count_message_in(qp, responder_msn(word));
	receive_complete(t, qp, word, &cqe);
	packet_done(t, qp, invalidate->ack_request);
}

/* Whoever adopts us looks at these: not before what they stand for is written. */
static void set_flags(struct qp *qp, uint32_t flags)
{
	__atomic_store_n(&qp->flags, flags, __ATOMIC_RELEASE);
}

/* NDK: the token is dead before the receive completes; for other workers that takes a while. */
static void invalidate_begin(struct transport *t, struct qp *qp, const struct wire_view *view,
			     uint32_t bytes)
{
	const uint32_t token = be32_get(view_ieth(view)->rkey);
	struct remote_invalidate *invalidate = &qp_hold(t, qp)->invalidate;
	const struct accessor who = qp_accessor(t, qp);
	struct qp_local *local = qp_local(t, qp);
	enum access_reason reason;
	uint64_t grace;

	*invalidate = (struct remote_invalidate){
		.token = token,
		.bytes = bytes,
		.psn = view->psn,
		.solicited = view->solicited,
		.ack_request = view->ack_request,
	};
	set_flags(qp, qp->flags | QP_INVALIDATING);
	COUNT(t, remote_invalidates, 1);
	reason = token_invalidate(t->shared->memory, &who, token, true, &invalidate->slot, &grace);
	if (reason != ACCESS_OK) {
		set_flags(qp, qp->flags & ~QP_INVALIDATING);
		invalidate_failed(t, qp, reason);
		return;
	}
	set_flags(qp, (qp->flags & ~QP_INVALIDATING) | QP_INVALIDATED);
	if (grace == 0) {
		responder_invalidated(t, qp);
		return;
	}
	local->grace = grace;
	grace_add(t, qp);
}

void responder_invalidated(struct transport *t, struct qp *qp)
{
	stock_return(t, qp, qp_hold(t, qp)->invalidate.slot);
	if (qp->state == QP_RTS)
		invalidate_done(t, qp);
	set_flags(qp, qp->flags & ~QP_INVALIDATED);
	ready_add(t, qp);
}

static ALWAYS_INLINE bool receive_send(struct transport *t, struct qp *qp, uint16_t flags,
				       const struct wire_view *view)
{
	uint64_t offset;

	/* READs before it may still need the token that it kills. */
	if ((flags & OPF_IETH) && qp->answered != responder_resources(qp->responder))
		return true;
	if (flags & OPF_FIRST) {
		if (!take_receive(t, qp))
			return false;
		qp->message.psn = view->psn;
	}
	if (!shape_fits(qp, flags, view)) {
		refuse_receive(t, qp, NAK_INVALID_REQUEST, VERDICT(LENGTH), NT_DATA_ERROR,
			       VERDICT(LENGTH));
		return false;
	}
	offset = responder_offset(qp);
	if (!place_send(t, qp, view, offset))
		return false;
	if (!(flags & OPF_LAST)) {
		word_commit(&qp->responder, word_after(qp, MESSAGE_SEND, false));
		packet_done(t, qp, view->ack_request);
		return false;
	}
	COUNT(t, rx_send, 1);
	if (flags & OPF_IETH)
		invalidate_begin(t, qp, view, (uint32_t)offset + view->payload_length);
	else
		message_received(t, qp, view, (uint32_t)offset + view->payload_length);
	return false;
}

/* --- WRITE ---------------------------------------------------------------------------- */

/* Of the packet in the message in progress, bytes. */
static inline uint64_t offset_of(const struct qp *qp, uint16_t flags)
{
	return flags & OPF_FIRST ? 0 : responder_offset(qp);
}

static ALWAYS_INLINE bool write_fits(const struct qp *qp, uint16_t flags,
				     const struct wire_view *view)
{
	const uint64_t offset = offset_of(qp, flags);
	uint64_t rest;

	if (qp->message.length > MESSAGE_MAX || offset > qp->message.length ||
	    !shape_fits(qp, flags, view))
		return false;
	rest = qp->message.length - offset;
	return (flags & OPF_LAST) ? view->payload_length == rest : view->payload_length <= rest;
}

bool responder_write_fits(const struct qp *qp, const struct wire_view *view)
{
	return write_fits(qp, view->op->flags, view);
}

/*
 * The first packet checks the whole range, each later one its own part again: the token
 * may die in between.
 */
static ALWAYS_INLINE enum access_reason place_write(struct transport *t, struct qp *qp,
						    uint16_t flags, const struct wire_view *view)
{
	const bool first = flags & OPF_FIRST;
	const struct accessor who = qp_accessor(t, qp);
	const struct message *m = &qp->message;
	enum access_reason reason;
	struct access access;

	/* IBTA C9-88: nothing is looked at for a length of zero. */
	if (m->length == 0)
		return ACCESS_OK;
	reason =
		access_check(t->shared->memory, &who, m->token, m->address + offset_of(qp, flags),
			     first ? m->length : view->payload_length, RIGHT_REMOTE_WRITE, &access);
	if (likely(reason == ACCESS_OK)) {
		memory_place(access.pointer, view->payload, view->payload_length);
		if (unlikely(access_poisoned(&access)))
			reason = ACCESS_POISONED;
	}
	return reason;
}

enum access_reason responder_place_write(struct transport *t, struct qp *qp,
					 const struct wire_view *view)
{
	return place_write(t, qp, view->op->flags, view);
}

static ALWAYS_INLINE bool start_write(struct qp *qp, const struct wire_view *view)
{
	const struct reth *reth = view_reth(view);

	if (!(qp->rights & RIGHT_REMOTE_WRITE))
		return false;
	qp->message = (struct message){
		.address = be64_get(reth->va),
		.length = be32_get(reth->length),
		.token = be32_get(reth->rkey),
		.psn = view->psn,
	};
	return true;
}

bool responder_start_write(struct qp *qp, const struct wire_view *view)
{
	return start_write(qp, view);
}

static ALWAYS_INLINE void receive_write(struct transport *t, struct qp *qp, uint16_t flags,
					const struct wire_view *view)
{
	enum access_reason reason;
	uint64_t word;

	if ((flags & OPF_FIRST) && !start_write(qp, view)) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(OPERATION));
		return;
	}
	/* WRITE with immediate takes its receive at the end, when most bytes have landed. */
	if ((flags & OPF_IMM) && !take_receive(t, qp))
		return;
	if (!write_fits(qp, flags, view)) {
		if (flags & OPF_IMM)
			refuse_receive(t, qp, NAK_INVALID_REQUEST, VERDICT(LENGTH), NT_DATA_ERROR,
				       VERDICT(LENGTH));
		else
			responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(LENGTH));
		return;
	}
	reason = place_write(t, qp, flags, view);
	if (unlikely(reason != ACCESS_OK)) {
		if (!(flags & OPF_IMM)) {
			responder_refuse_access(t, qp, reason);
			return;
		}
		responder_bad_token(t, qp, reason);
		refuse_receive(t, qp, NAK_REMOTE_ACCESS, VERDICT_ACCESS + reason,
			       NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
		return;
	}
	COUNT(t, rx_write_bytes, view->payload_length);
	if (flags & OPF_LAST)
		COUNT(t, rx_write, 1);
	if (flags & OPF_IMM) {
		message_received(t, qp, view, (uint32_t)qp->message.length);
		return;
	}
	word = word_after(qp, MESSAGE_WRITE, flags & OPF_LAST);
	if (flags & OPF_LAST)
		count_message_in(qp, responder_msn(word));
	word_commit(&qp->responder, word);
	packet_done(t, qp, view->ack_request);
}

/* --- in order, ahead, behind ---------------------------------------------------------- */

static ALWAYS_INLINE bool receive_expected(struct transport *t, struct qp *qp, uint16_t flags,
					   const struct wire_view *view)
{
	const enum message_kind message = responder_message(qp->responder);
	const enum message_kind continues = flags & OPF_SEND ? MESSAGE_SEND : MESSAGE_WRITE;

	if (message != (flags & OPF_FIRST ? MESSAGE_NONE : continues)) {
		refuse_message(t, qp, NAK_INVALID_REQUEST, VERDICT(OPCODE_SEQUENCE));
		return false;
	}
	/* Said, not dropped: rdma_rxe would ask for ever. */
	if (!(flags & OPF_OPERATION)) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(OPERATION));
		return false;
	}
	if (flags & OPF_SEND)
		return receive_send(t, qp, flags, view);
	if (flags & OPF_WRITE)
		receive_write(t, qp, flags, view);
	else if (flags & OPF_READ)
		responder_receive_read(t, qp, view);
	else
		responder_receive_atomic(t, qp, view);
	return false;
}

static bool receive_any(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	return receive_expected(t, qp, view->op->flags, view);
}

/* The same path, stamped for the opcodes that are most of all packets. */
static bool receive_in_order(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	switch (view->opcode) {
	case OP_RC_WRITE_ONLY: return receive_expected(t, qp, OPF_WRITE_ONLY, view);
	case OP_RC_SEND_ONLY: return receive_expected(t, qp, OPF_SEND_ONLY, view);
	case OP_RC_READ_REQUEST: return receive_expected(t, qp, OPF_READ_REQUEST, view);
	default: return receive_any(t, qp, view);
	}
}

static void receive_ahead(struct transport *t, struct qp *qp)
{
	if (qp->responder & RESPONDER_NAK_SENT) {
		count_verdict(t, VERDICT(PSN_AHEAD_SILENT));
		return;
	}
	count_verdict(t, VERDICT(PSN_AHEAD));
	answer_nak(t, qp, NAK_PSN_SEQUENCE);
}

bool responder_receive(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const int32_t ahead = psn_diff(view->psn, responder_psn(qp->responder));

	if (unlikely(qp->answer.kind >= ANSWER_FATAL)) {
		count_verdict(t, VERDICT(QP_DEAD));
		return false;
	}
	if (likely(ahead == 0))
		return receive_in_order(t, qp, view);
	if (ahead > 0)
		receive_ahead(t, qp);
	else
		return responder_duplicate(t, qp, view);
	return false;
}
