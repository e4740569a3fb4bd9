/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's output: work requests become frames, in order, as far as window,
 * fences and limits allow; and what is sent again after a loss.
 *
 * `cursor` walks the flights. Going back sets it to the oldest unacknowledged packet;
 * payload is read, and its tokens are checked, anew for each frame.
 */
#include "transport/private.h"

/* --- completion of flights ------------------------------------------------------------ */

enum completion_type completion_type(uint8_t opcode)
{
	switch (opcode) {
	case SHM_WR_WRITE:
	case SHM_WR_WRITE_IMMEDIATE: return COMPLETION_WRITE;
	case SHM_WR_READ: return COMPLETION_READ;
	case SHM_WR_FETCH_ADD: return COMPLETION_FETCH_ADD;
	case SHM_WR_COMPARE_SWAP: return COMPLETION_COMPARE_SWAP;
	case SHM_WR_BIND: return COMPLETION_BIND;
	case SHM_WR_INVALIDATE: return COMPLETION_INVALIDATE;
	case SHM_WR_FAST_REGISTER: return COMPLETION_FAST_REGISTER;
	default: return COMPLETION_SEND;
	}
}

/* Silent requests complete in the commit word alone, unless they fail. */
void flight_complete(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict)
{
	const uint32_t index = qp->first_flight;
	const struct flight *flight = flight_at(t, index);
	const uint32_t done = requester_done(qp->requester) + 1;
	uint32_t una = requester_una(qp->requester);
	struct intent *intent;
	uint64_t word;

	if (flight->state == FLIGHT_STARTED && flight_wants_response(flight)) {
		qp->reads_out--;
		qp->read_psns -= flight->packets - flight_received(qp, flight);
	}
	if (flight->packets && status == NT_SUCCESS_STATUS)
		una = psn_add(flight->psn, flight->packets);
	word = requester_word(una, done);
	/* What goes wrong takes the queue pair with it, whoever lives to do so. */
	if (status != NT_SUCCESS_STATUS)
		word |= REQUESTER_DYING;
	if (status == NT_SUCCESS_STATUS && (flight->flags & SHM_FLAG_SILENT_SUCCESS)) {
		word_commit(&qp->requester, word);
	} else {
		const struct shm_cqe cqe = {
			.qp_context = qp->qp_context,
			.request_context = flight->request_context,
			.status = status,
			.type = completion_type(flight->opcode),
			.output = flight->token,
			.provider_error = verdict,
			.qpn = qp->number,
		};

		intent = intent_begin(t, qp);
		intent->requester = word;
		intent_commit(t, INTENT_REQUESTER | completion_add(t, intent, qp->send_cq, &cqe));
	}
	shm_store_release(&qp_local(t, qp)->memory->send.done, done);
	flight_free(t, qp, index);
	requester_step_over(t, qp);
}

static inline bool is_covered(const struct flight *flight, uint32_t p)
{
	return flight->packets && flight->state == FLIGHT_STARTED &&
	       !flight_wants_response(flight) &&
	       psn_diff(p, psn_add(flight->psn, flight->packets - 1)) >= 0;
}

/*
 * The entry of a request that went well, in its place already. A client may write there, but only
 * what it would read itself.
 */
static inline void place_entry(struct transport *t, const struct qp *qp,
			       const struct flight *flight, uint32_t number)
{
	*cq_entry(t, qp->send_cq, number) = (struct shm_cqe){
		.qp_context = qp->qp_context,
		.request_context = flight->request_context,
		.type = completion_type(flight->opcode),
		.output = flight->token,
		.qpn = qp->number,
		.epoch = qp->epoch,
	};
}

static void free_before(struct transport *t, struct qp *qp, uint32_t index)
{
	while (qp->first_flight != index)
		flight_free(t, qp, qp->first_flight);
}

/* One step for all of them, so that it costs little to be one of many. */
unsigned int requester_complete_covered(struct transport *t, struct qp *qp, uint32_t p)
{
	const uint32_t room = completion_room_known(t, qp->send_cq);
	const uint32_t tail = t->shared->cqs[qp->send_cq].side[t->worker].tail;
	const uint32_t before = requester_done(qp->requester);
	uint32_t una = requester_una(qp->requester);
	uint32_t done = before, entries = 0;
	uint32_t index = qp->first_flight;

	while (index) {
		const struct flight *flight = flight_at(t, index);

		if (!is_covered(flight, p))
			break;
		if (!(flight->flags & SHM_FLAG_SILENT_SUCCESS)) {
			if (entries == room)
				break;
			place_entry(t, qp, flight, tail + entries++);
		}
		una = psn_add(flight->psn, flight->packets);
		done++;
		index = flight->next;
	}
	if (done == before)
		return 0;
	if (entries) {
		struct intent *intent = intent_begin(t, qp);

		completion_placed(t, intent, qp->send_cq, entries);
		intent->requester = requester_word(una, done);
		intent_commit(t, INTENT_REQUESTER | INTENT_CQ_TAIL);
	} else {
		word_commit(&qp->requester, requester_word(una, done));
	}
	shm_store_release(&qp_local(t, qp)->memory->send.done, done);
	free_before(t, qp, index);
	requester_step_over(t, qp);
	return done - before;
}

void requester_complete(struct transport *t, struct qp *qp)
{
	while (qp->first_flight && qp->state == QP_RTS) {
		const struct flight *flight = flight_at(t, qp->first_flight);

		if (flight->state == FLIGHT_FAILED)
			requester_fail(t, qp, flight->status, flight->verdict);
		else if (flight->packets == 0 && flight->state == FLIGHT_EXECUTED)
			flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
		else
			break;
	}
}

void requester_fail(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict)
{
	if (qp->state != QP_RTS)
		return;
	if (qp->first_flight)
		flight_complete(t, qp, status, verdict);
	qp_fail(t, qp, verdict, 0);
}

/* --- going back ----------------------------------------------------------------------- */

/* The cursor never stands before what is acknowledged. */
void requester_step_over(struct transport *t, struct qp *qp)
{
	const struct flight *flight = flight_at(t, qp->cursor);
	int32_t acknowledged;

	if (qp->cursor == 0 || qp->cursor != qp->first_flight || flight->packets == 0)
		return;
	acknowledged = psn_diff(requester_una(qp->requester), flight->psn);
	if (acknowledged > 0 && qp->cursor_packet < (uint32_t)acknowledged)
		qp->cursor_packet = (uint32_t)acknowledged;
}

void requester_go_back(struct transport *t, struct qp *qp)
{
	qp->cursor = qp->first_flight;
	qp->cursor_packet = 0;
	qp->unrequested = 0;
	qp_local(t, qp)->resend = true;
	requester_step_over(t, qp);
}

/* Now, or when congestion control lets the next frame go, which asks for an answer at the latest.
 */
static uint64_t next_chance(const struct transport *t, const struct qp *qp)
{
	const struct qp_local *local = qp_local(t, qp);

	const uint64_t due = local->paced ? qp_congestion(t, qp)->next_send : 0;

	return due > t->now ? due : t->now;
}

/*
 * IBTA lets a timeout be found between one and four times the coded time. Twice gives a busy
 * peer some air, and four times one that has not answered to the first try: a guest may get no
 * processor for seconds. Nothing runs while nothing is outstanding.
 */
void requester_timer(struct transport *t, struct qp *qp)
{
	const uint64_t interval = 8192ull << qp->timeout;

	if (requester_una(qp->requester) == qp->sent_psn || qp->timeout == 0)
		wheel_unset(t, qp);
	else
		wheel_set(t, qp,
			  next_chance(t, qp) + (qp_local(t, qp)->silent ? 2 * interval : interval));
}

void requester_timeout(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	if (qp->state != QP_RTS)
		return;
	if (qp->flags & QP_RNR_WAIT) {
		qp->flags &= ~QP_RNR_WAIT;
	} else if (requester_una(qp->requester) == qp->sent_psn) {
		return;
	} else if (local->resend) {
		/* Nothing has left since the last one, for want of buffers: no try has failed. */
	} else {
		COUNT(t, timeouts, 1);
		local->silent = true;
		if (qp->retry_left == 0) {
			count_verdict(t, VERDICT(RETRY_EXCEEDED));
			requester_fail(t, qp, NT_IO_TIMEOUT, VERDICT(RETRY_EXCEEDED));
			return;
		}
		qp->retry_left--;
		requester_read_lost(t, qp);
	}
	qp->flags &= ~QP_GAP_HANDLED;
	requester_go_back(t, qp);
	requester_timer(t, qp);
	ready_add(t, qp);
}

/* --- sending -------------------------------------------------------------------------- */

/* Limits that hold back a request as a whole, before its first packet first leaves. */
static bool may_start(const struct qp *qp, const struct flight *flight)
{
	uint32_t ahead = (uint32_t)psn_diff(flight->psn, requester_una(qp->requester));

	if (flight->state == FLIGHT_STARTED)
		return true;
	if ((flight->flags & SHM_FLAG_READ_FENCE) && qp->reads_out)
		return false;
	if (!flight_wants_response(flight))
		return true;
	/* Never more than half the circle, or old and new could not be told apart. */
	return qp->reads_out < qp->max_reads_out && ahead + flight->packets < HALF_PSN;
}

/*
 * READs after a loss. The responder sends all it was asked for, whatever is lost, and all behind
 * the gap has to come again. So fewer packets are asked for at once: half as many after each
 * gap, some more for each window that comes whole, until there is no limit again.
 */
#define READ_WINDOW_LEAST 16u
#define READ_WINDOW_STEP  16u
#define READ_WINDOW_MOST  8192u

static uint32_t psns_out(const struct qp *qp)
{
	return (uint32_t)psn_diff(qp->sent_psn, requester_una(qp->requester));
}

void requester_read_lost(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	uint32_t window = local->read_window ? local->read_window : READ_WINDOW_MOST;

	if (qp->first_flight == 0 || flight_at(t, qp->first_flight)->opcode != SHM_WR_READ)
		return;
	if (window > psns_out(qp))
		window = psns_out(qp);
	local->read_window = window / 2 > READ_WINDOW_LEAST ? window / 2 : READ_WINDOW_LEAST;
	local->read_whole = 0;
}

void requester_read_came(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	if (local->read_window == 0 || ++local->read_whole < local->read_window)
		return;
	local->read_whole = 0;
	local->read_window += READ_WINDOW_STEP;
	if (local->read_window > READ_WINDOW_MOST)
		local->read_window = 0;
}

/* The oldest is always asked for. */
static bool read_held(struct transport *t, const struct qp *qp, const struct flight *flight)
{
	const uint32_t window = qp_local(t, qp)->read_window;
	const uint32_t end = psn_add(flight->psn, flight->packets);

	return window && flight->opcode == SHM_WR_READ && qp->cursor != qp->first_flight &&
	       psn_diff(end, requester_una(qp->requester)) > (int32_t)window;
}

void requester_start(struct transport *t, struct qp *qp, struct flight *flight)
{
	if (flight->state == FLIGHT_STARTED)
		return;
	flight->state = FLIGHT_STARTED;
	COUNT_QP(qp, messages_out, 1);
	if (flight_wants_response(flight)) {
		qp->reads_out++;
		qp->read_psns += flight->packets;
	}
	switch (flight->opcode) {
	case SHM_WR_WRITE:
	case SHM_WR_WRITE_IMMEDIATE:
		COUNT(t, tx_write, 1);
		COUNT(t, tx_write_bytes, flight->length);
		break;
	case SHM_WR_READ:
		COUNT(t, tx_read, 1);
		COUNT(t, tx_read_bytes, flight->length);
		break;
	case SHM_WR_FETCH_ADD:
	case SHM_WR_COMPARE_SWAP: COUNT(t, tx_atomic, 1); break;
	default:
		if (qp->type == SHM_QP_UD)
			COUNT(t, tx_datagram, 1);
		else
			COUNT(t, tx_send, 1);
	}
}

void requester_sent_through(struct transport *t, struct qp *qp, uint32_t psn, uint32_t end)
{
	/* The first, or it had to wait since it was found lost: the peer's time begins now. */
	const bool oldest = requester_una(qp->requester) == psn;
	struct qp_local *local = qp_local(t, qp);

	if (psn_diff(psn, qp->sent_psn) < 0)
		COUNT(t, retransmits, 1);
	if (psn_diff(end, qp->sent_psn) > 0)
		qp->sent_psn = end;
	local->resend = false;
	if (oldest || local->deadline == 0 || local->paced)
		requester_timer(t, qp);
}

/* Operation of RC for one packet of a SEND or WRITE, by its place in the message. */
static uint8_t data_opcode(const struct flight *flight, bool first, bool last)
{
	switch (flight->opcode) {
	case SHM_WR_WRITE:
	case SHM_WR_WRITE_IMMEDIATE:
		if (!last)
			return first ? OP_RC_WRITE_FIRST : OP_RC_WRITE_MIDDLE;
		if (flight->opcode == SHM_WR_WRITE)
			return first ? OP_RC_WRITE_ONLY : OP_RC_WRITE_LAST;
		return first ? OP_RC_WRITE_ONLY_IMM : OP_RC_WRITE_LAST_IMM;
	case SHM_WR_SEND_INVALIDATE:
		if (last)
			return first ? OP_RC_SEND_ONLY_INV : OP_RC_SEND_LAST_INV;
		break;
	case SHM_WR_SEND_IMMEDIATE:
		if (last)
			return first ? OP_RC_SEND_ONLY_IMM : OP_RC_SEND_LAST_IMM;
		break;
	default:
		if (last)
			return first ? OP_RC_SEND_ONLY : OP_RC_SEND_LAST;
	}
	return first ? OP_RC_SEND_FIRST : OP_RC_SEND_MIDDLE;
}

/* The last packet of a message, one in so many, and the one that fills the window. */
static bool wants_ack(const struct qp *qp, bool last, uint32_t psn)
{
	return last || qp->unrequested + 1u >= REQUESTER_ACK_EVERY ||
	       requester_window_left(qp, psn) <= 1;
}

void requester_refuse(struct transport *t, struct flight *flight, int32_t status, uint32_t verdict)
{
	/* Whoever adopts it as failed finds out how. */
	flight->status = status;
	flight->verdict = verdict;
	__atomic_store_n(&flight->state, FLIGHT_FAILED, __ATOMIC_RELEASE);
	count_verdict(t, verdict);
}

bool requester_gather(struct transport *t, struct qp *qp, struct flight *flight, uint64_t offset,
		      struct frame *frame)
{
	const enum access_reason reason = work_gather(t, qp, flight, offset, frame, frame->payload);

	if (likely(reason == ACCESS_OK))
		return true;
	frame_drop(t, frame);
	requester_refuse(t, flight, NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
	return false;
}

bool requester_build(struct transport *t, struct qp *qp, struct flight *flight, struct frame *frame)
{
	const uint32_t psn = psn_add(flight->psn, qp->cursor_packet);
	const uint64_t offset = (uint64_t)qp->cursor_packet << qp->mtu_shift;
	const bool first = qp->cursor_packet == 0;
	const bool last = qp->cursor_packet + 1 == flight->packets;
	const uint32_t length = last ? (uint32_t)(flight->length - offset) : qp_mtu(qp);
	struct data_head head = {
		/* UC has the operations of RC, at a base of its own. */
		.opcode = (uint8_t)(data_opcode(flight, first, last) | qp->type << 5),
		.psn = psn,
		.solicited = last && (flight->flags & SHM_FLAG_SOLICIT) &&
			     flight->opcode != SHM_WR_WRITE,
		.flight = flight,
	};

	head.ack_request = qp->type == SHM_QP_RC && wants_ack(qp, last, psn);
	if (!frame_open_data(t, qp, frame, &head, length) ||
	    !requester_gather(t, qp, flight, offset, frame))
		return false;
	qp->unrequested = head.ack_request ? 0 : (uint8_t)(qp->unrequested + 1);
	return true;
}

static bool send_data(struct transport *t, struct qp *qp, struct flight *flight)
{
	const uint32_t psn = psn_add(flight->psn, qp->cursor_packet);
	struct frame frame;

	if (!requester_build(t, qp, flight, &frame))
		return false;
	pace_sent(t, qp, frame_close(t, &frame));
	requester_sent_through(t, qp, psn, psn_add(psn, 1));
	return true;
}

static bool send_read(struct transport *t, struct qp *qp, const struct flight *flight)
{
	const uint32_t received = flight_received(qp, flight);
	const uint64_t offset = (uint64_t)received << qp->mtu_shift;
	const struct frame_head head = {
		.opcode = OP_RC_READ_REQUEST,
		.psn = psn_add(flight->psn, received),
		.ack_request = true,
		.address = flight->address + offset,
		.token = flight->token,
		.length = (uint32_t)(flight->length - offset),
	};
	struct frame frame;

	if (!frame_open(t, qp, &frame, &head, 0))
		return false;
	frame_close(t, &frame);
	requester_sent_through(t, qp, head.psn, psn_add(flight->psn, flight->packets));
	return true;
}

static bool send_atomic(struct transport *t, struct qp *qp, const struct flight *flight)
{
	const bool add = flight->opcode == SHM_WR_FETCH_ADD;
	const struct frame_head head = {
		.opcode = add ? OP_RC_FETCH_ADD : OP_RC_COMPARE_SWAP,
		.psn = flight->psn,
		.ack_request = true,
		.address = flight->address,
		.token = flight->token,
		.swap = flight->swap,
		.compare = add ? 0 : flight->compare,
	};
	struct frame frame;

	if (!frame_open(t, qp, &frame, &head, 0))
		return false;
	frame_close(t, &frame);
	requester_sent_through(t, qp, head.psn, psn_add(head.psn, 1));
	return true;
}

static bool send_frame(struct transport *t, struct qp *qp, struct flight *flight)
{
	if (flight->opcode == SHM_WR_READ)
		return send_read(t, qp, flight);
	if (flight_wants_response(flight))
		return send_atomic(t, qp, flight);
	return send_data(t, qp, flight);
}

struct flight *requester_next(struct transport *t, struct qp *qp)
{
	if (qp->cursor)
		return flight_at(t, qp->cursor);
	if (qp->flights >= REQUESTER_FLIGHTS)
		return NULL;
	switch (work_take_send(t, qp)) {
	case WORK_TAKEN:
		qp->cursor = qp->last_flight;
		qp->cursor_packet = 0;
		return flight_at(t, qp->cursor);
	case WORK_NO_FLIGHT: starved_add(t, qp); return NULL;
	default: return NULL;
	}
}

static void cursor_forward(struct qp *qp, const struct flight *flight)
{
	qp->cursor = flight->next;
	qp->cursor_packet = 0;
}

bool requester_execute(struct transport *t, struct qp *qp, struct flight *flight)
{
	if (!local_execute(t, qp, flight))
		return false;
	cursor_forward(qp, flight);
	requester_complete(t, qp);
	return true;
}

unsigned int requester_send(struct transport *t, struct qp *qp)
{
	unsigned int sent;

	/* Of those whose turn it is most only answer. */
	if (qp->first_flight == 0 &&
	    work_posted(t, qp, &qp->send, &qp_local(t, qp)->memory->send) == 0)
		return 0;
	sent = plain_send(t, qp);
	while (sent < POLL_FRAMES && t->left > 0 && qp->state == QP_RTS &&
	       !(qp->flags & QP_RNR_WAIT)) {
		struct flight *flight = requester_next(t, qp);
		bool data;

		if (flight == NULL || flight->state == FLIGHT_FAILED)
			break;
		if (flight->packets == 0) {
			if (!requester_execute(t, qp, flight))
				break;
			sent++;
			continue;
		}
		data = !flight_wants_response(flight);
		if (!may_start(qp, flight) || read_held(t, qp, flight) ||
		    (data &&
		     requester_window_left(qp, psn_add(flight->psn, qp->cursor_packet)) <= 0))
			break;
		if (data && !pace_may_send(t, qp))
			break;
		if (!send_frame(t, qp, flight))
			break;
		requester_start(t, qp, flight);
		sent++;
		if (!data || ++qp->cursor_packet >= flight->packets)
			cursor_forward(qp, flight);
	}
	requester_complete(t, qp);
	return sent;
}
