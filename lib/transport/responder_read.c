/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * READs and atomics: accepted here, into the ring of those kept for replay; answered by
 * answer.c in PSN order.
 */
#include "memory/access.h"
#include "transport/private.h"

/*
 * The slot of a new READ or atomic, or NULL when the peer has too many outstanding. They
 * are answered in order, so it has if the one `max_reads_in` before is not.
 */
static struct responder_resource *new_resource(const struct transport *t, const struct qp *qp)
{
	const uint8_t number = responder_resources(qp->responder);
	const struct responder_resource *limit;

	if (qp->max_reads_in == 0)
		return NULL;
	limit = resource_at(t, qp, (uint8_t)(number - qp->max_reads_in));
	if (limit->kind != RESOURCE_NONE && !limit->complete)
		return NULL;
	return resource_at(t, qp, number);
}

/* An old one that was to be sent once more makes room: the peer has it, evidently. */
static void make_room(struct transport *t, struct qp *qp)
{
	const uint8_t number = responder_resources(qp->responder);

	if ((uint8_t)(number - qp->answered) > t->shared->resource_mask)
		qp->answered = (uint8_t)(number - t->shared->resource_mask);
}

/* Its answer acknowledges all before it. */
static void resource_accepted(struct transport *t, struct qp *qp)
{
	count_message_in(qp, responder_msn(qp->responder));
	qp->answer.kind = ANSWER_NONE;
	ready_add(t, qp);
}

void responder_receive_read(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const struct accessor who = qp_accessor(t, qp);
	const uint64_t word = qp->responder;
	const struct reth *reth = view_reth(view);
	const uint64_t address = be64_get(reth->va);
	const uint32_t token = be32_get(reth->rkey);
	const uint32_t length = be32_get(reth->length);
	const uint32_t packets = qp_packets(qp, length);
	struct responder_resource *resource;
	struct access access;
	enum access_reason reason;

	if (!(qp->rights & RIGHT_REMOTE_READ)) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(OPERATION));
		return;
	}
	resource = new_resource(t, qp);
	if (resource == NULL) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(READ_LIMIT));
		return;
	}
	if (length > MESSAGE_MAX) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(LENGTH));
		return;
	}
	if (length) {
		reason = access_check(t->shared->memory, &who, token, address, length,
				      RIGHT_REMOTE_READ, &access);
		if (reason != ACCESS_OK) {
			responder_refuse_access(t, qp, reason);
			return;
		}
	}
	*resource = (struct responder_resource){
		.kind = RESOURCE_READ,
		.address = address,
		.length = length,
		.token = token,
		.psn = view->psn,
		.packets = packets,
		.msn = psn_add(responder_msn(word), 1),
		.start = view->psn,
		.next = view->psn,
		.end = psn_add(view->psn, packets),
		.end_length = length,
	};
	COUNT(t, rx_read, 1);
	COUNT(t, rx_read_bytes, length);
	make_room(t, qp);
	word_commit(&qp->responder,
		    responder_word(responder_psn(word) + packets, responder_msn(word) + 1,
				   (uint8_t)(responder_resources(word) + 1), MESSAGE_NONE));
	resource_accepted(t, qp);
}

/* Tries of an atomic against a client that changes the same word without pause. */
#define ATOMIC_TRIES 64u

enum atomic_end {
	ATOMIC_DONE,
	ATOMIC_GIVEN_UP, /* the peer will ask again */
	ATOMIC_POISONED, /* what was read is not what was there */
};

static enum atomic_end execute_atomic(struct transport *t, struct qp *qp,
				      const struct wire_view *view, const struct access *access,
				      struct responder_resource *resource)
{
	const uint64_t word = qp->responder;
	struct intent *intent = intent_begin(t, qp);
	uint64_t *target = (uint64_t *)(void *)access->pointer;
	const uint64_t operand = be64_get(view_atomic_eth(view)->swap_add);
	const uint64_t compare = be64_get(view_atomic_eth(view)->compare);

	intent->token = resource->token;
	intent->address = resource->address;
	intent->responder = responder_word(responder_psn(word) + 1, responder_msn(word) + 1,
					   (uint8_t)(responder_resources(word) + 1), MESSAGE_NONE);
	for (unsigned int tries = 0; tries < ATOMIC_TRIES; tries++) {
		uint64_t old = __atomic_load_n(target, __ATOMIC_ACQUIRE);

		if (access_poisoned(access))
			return ATOMIC_POISONED;
		intent->old = old;
		if (view->opcode == OP_RC_FETCH_ADD)
			intent->swap = old + operand;
		else
			intent->swap = old == compare ? operand : old;
		resource->original = old;
		if (intent_commit_atomic(t, INTENT_RESPONDER, target))
			return ATOMIC_DONE;
	}
	return ATOMIC_GIVEN_UP;
}

/* Into the record of the oldest: unless it is done, nothing must be found there to be answered. */
static void run_atomic(struct transport *t, struct qp *qp, const struct wire_view *view,
		       const struct access *access, struct responder_resource *resource)
{
	switch (execute_atomic(t, qp, view, access, resource)) {
	case ATOMIC_DONE:
		COUNT(t, rx_atomic, 1);
		resource_accepted(t, qp);
		if (access_poisoned(access))
			responder_refuse_access(t, qp, ACCESS_POISONED);
		return;
	case ATOMIC_POISONED: responder_refuse_access(t, qp, ACCESS_POISONED); break;
	case ATOMIC_GIVEN_UP: break;
	}
	resource->kind = RESOURCE_NONE;
}

void responder_receive_atomic(struct transport *t, struct qp *qp, const struct wire_view *view)
{
	const struct accessor who = qp_accessor(t, qp);
	const uint64_t address = be64_get(view_atomic_eth(view)->va);
	const uint32_t token = be32_get(view_atomic_eth(view)->rkey);
	struct responder_resource *resource;
	struct access access;
	enum access_reason reason;

	if (!(qp->rights & RIGHT_REMOTE_ATOMIC)) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(OPERATION));
		return;
	}
	resource = new_resource(t, qp);
	if (resource == NULL) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(READ_LIMIT));
		return;
	}
	if (address % 8) {
		responder_refuse(t, qp, NAK_INVALID_REQUEST, VERDICT(ATOMIC_ALIGNMENT));
		return;
	}
	reason = memory_access(t->shared->memory, &who, token, address, 8, RIGHT_REMOTE_ATOMIC,
			       &access);
	/* The address may be aligned for the peer and not in our mapping. */
	if (reason == ACCESS_OK && (uintptr_t)access.pointer % 8)
		reason = ACCESS_ALIGNMENT;
	if (reason != ACCESS_OK) {
		responder_refuse_access(t, qp, reason);
		return;
	}
	*resource = (struct responder_resource){
		.kind = RESOURCE_ATOMIC,
		.opcode = view->opcode,
		.address = address,
		.length = 8,
		.token = token,
		.psn = view->psn,
		.packets = 1,
		.msn = psn_add(responder_msn(qp->responder), 1),
		.start = view->psn,
		.next = view->psn,
		.end = psn_add(view->psn, 1),
	};
	make_room(t, qp);
	run_atomic(t, qp, view, &access, resource);
}
