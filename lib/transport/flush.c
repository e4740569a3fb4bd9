/* SPDX-License-Identifier: BSD-3-Clause */
/* A queue pair in error: everything posted completes as cancelled, a few entries at a time. */
#include "transport/private.h"

/* Until a grace period is over, its request is neither done nor cancelled. */
static bool flush_must_wait(const struct transport *t, const struct qp *qp)
{
	const struct qp_local *local = qp_local(t, qp);

	return local->grace || local->local_grace;
}

/* A local operation that was carried out says so, though it could not be told in time. */
static void flush_flight(struct transport *t, struct qp *qp)
{
	const struct flight *flight = flight_at(t, qp->first_flight);

	if (flight->state == FLIGHT_EXECUTED)
		flight_complete(t, qp, NT_SUCCESS_STATUS, 0);
	else
		flight_complete(t, qp, NT_CANCELLED, VERDICT(WR_FLUSHED));
}

static void flush_send_entry(struct transport *t, struct qp *qp)
{
	const uint32_t done = requester_done(qp->requester) + 1;
	struct intent *intent = intent_begin(t, qp);
	struct shm_sqe sqe;
	struct shm_cqe cqe;

	work_peek_send(t, qp, &sqe);
	cqe = (struct shm_cqe){
		.qp_context = qp->qp_context,
		.request_context = sqe.request_context,
		.status = NT_CANCELLED,
		.type = completion_type(sqe.opcode),
		.output = sqe.token,
		.provider_error = VERDICT(WR_FLUSHED),
		.qpn = qp->number,
	};
	intent->requester = requester_word(requester_una(qp->requester), done);
	intent_commit(t, INTENT_REQUESTER | completion_add(t, intent, qp->send_cq, &cqe));
	qp->send.taken++;
	shm_store_release(&qp_local(t, qp)->memory->send.done, done);
}

static void flush_receive_entry(struct transport *t, struct qp *qp)
{
	work_peek_receive(t, qp);
	receive_complete(t, qp, qp->responder,
			 &(struct shm_cqe){ .status = NT_CANCELLED,
					    .type = COMPLETION_RECEIVE,
					    .provider_error = VERDICT(WR_FLUSHED) });
}

static uint32_t posted_sends(struct transport *t, struct qp *qp)
{
	return work_posted(t, qp, &qp->send, &qp_local(t, qp)->memory->send);
}

/* What nobody took from an SRQ stays there for its other queue pairs. */
static uint32_t posted_receives(struct transport *t, struct qp *qp)
{
	if (qp->srq)
		return (qp->flags & QP_HOLDS) != 0;
	return work_posted(t, qp, &qp->receive, &qp_local(t, qp)->memory->receive);
}

unsigned int flush_run(struct transport *t, struct qp *qp)
{
	unsigned int done = 0;

	if (flush_must_wait(t, qp))
		return 0;
	for (; done < POLL_FLUSH && qp->first_flight; done++)
		flush_flight(t, qp);
	for (; done < POLL_FLUSH && posted_sends(t, qp); done++)
		flush_send_entry(t, qp);
	for (; done < POLL_FLUSH && posted_receives(t, qp); done++)
		flush_receive_entry(t, qp);
	if (qp->srq && !posted_receives(t, qp))
		srq_last_receive(t, qp);
	if ((qp->flags & QP_FLUSH_WANTED) && !flush_pending(t, qp)) {
		qp->flags &= ~QP_FLUSH_WANTED;
		event_send(t, TRANSPORT_QP_FLUSHED, qp_index(t, qp), 0, 0);
	}
	return done;
}

bool flush_pending(struct transport *t, struct qp *qp)
{
	return !flush_must_wait(t, qp) &&
	       (qp->first_flight || posted_sends(t, qp) || posted_receives(t, qp));
}
