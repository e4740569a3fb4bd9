/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taking work requests out of shared memory: each is copied once, and only the copy is
 * looked at.
 */
#include <string.h>

#include "memory/place.h"
#include "transport/private.h"

/* The copy is what we have: nothing after this may look at shared memory again. */
#define COPIED() __asm__ volatile("" ::: "memory")

uint32_t work_posted(struct transport *t, struct qp *qp, const struct work_queue *queue,
		     const struct shm_queue *shared)
{
	struct qp_local *local = qp_local(t, qp);
	uint32_t posted;

	if (local->broken || queue->slots == 0)
		return 0;
	posted = shm_load_acquire(&shared->tail) - queue->taken;
	if (likely(posted <= queue->slots))
		return posted;
	local->broken = true;
	session_broken(t, qp->session, VERDICT(RING_NONSENSE));
	qp_fail(t, qp, VERDICT(RING_NONSENSE), SHM_ASYNC_QP_FATAL);
	return 0;
}

static const uint8_t *queue_slot(const struct transport *t, const struct qp *qp,
				 const struct work_queue *queue, uint32_t number)
{
	return shm_queue_slot(qp_local(t, qp)->memory, queue->offset, queue->stride, queue->slots,
			      number);
}

/* Entries that the client has just written come from another processor's cache. */
#define FETCH_AHEAD 2u

static void fetch_send(const struct transport *t, const struct qp *qp, uint32_t number)
{
	__builtin_prefetch(queue_slot(t, qp, &qp->send, number));
}

void work_fetch_send(const struct transport *t, const struct qp *qp)
{
	for (uint32_t i = 0; i < FETCH_AHEAD; i++)
		fetch_send(t, qp, qp->send.taken + i);
}

void work_peek_send(struct transport *t, struct qp *qp, struct shm_sqe *sqe)
{
	memcpy(sqe, queue_slot(t, qp, &qp->send, qp->send.taken), sizeof(*sqe));
	COPIED();
}

/* --- send queue ----------------------------------------------------------------------- */

static bool opcode_carries_data(uint8_t opcode)
{
	return opcode >= SHM_WR_SEND && opcode <= SHM_WR_COMPARE_SWAP;
}

static bool opcode_may_be_inline(uint8_t opcode)
{
	return opcode >= SHM_WR_SEND && opcode <= SHM_WR_WRITE_IMMEDIATE;
}

/* NDK's local operations are for those whose memory a peer may use. */
static bool type_knows(uint8_t type, uint8_t opcode)
{
	const uint32_t sends = 1u << SHM_WR_SEND | 1u << SHM_WR_SEND_IMMEDIATE;
	const uint32_t uc = sends | 1u << SHM_WR_WRITE | 1u << SHM_WR_WRITE_IMMEDIATE |
			    1u << SHM_WR_BIND | 1u << SHM_WR_INVALIDATE |
			    1u << SHM_WR_FAST_REGISTER;

	return type == SHM_QP_RC || opcode >= SHM_WR_MAX ||
	       ((type == SHM_QP_UC ? uc : sends) >> opcode & 1);
}

static void flight_refuse(struct flight *flight, int32_t status, uint32_t verdict)
{
	flight->status = status;
	flight->verdict = verdict;
	flight->state = FLIGHT_FAILED;
}

/*
 * Of a length that was checked: in steps of 16, since there is room for all of SHM_MAX_INLINE and
 * slots are multiples of 64 bytes.
 */
static inline void copy_inline(struct flight *flight, const uint8_t *data)
{
	for (uint32_t i = 0; i < flight->inline_length; i += 16)
		memcpy(flight->data + i, data + i, 16);
}

/* SGEs or inline data, and what they add up to. The sum of 16 lengths fits 64 bits. */
static inline void copy_payload(const struct qp *qp, struct flight *flight, const uint8_t *payload)
{
	if (flight->flags & SHM_FLAG_INLINE) {
		flight->nsge = 0;
		if (!opcode_may_be_inline(flight->opcode) ||
		    flight->inline_length > qp->inline_size) {
			flight_refuse(flight, NT_DATA_OVERRUN, VERDICT(WR_MALFORMED));
			return;
		}
		copy_inline(flight, payload);
		flight->length = flight->inline_length;
		return;
	}
	if (flight->nsge > qp->send.max_sge) {
		flight->nsge = 0;
		flight_refuse(flight, NT_DATA_OVERRUN, VERDICT(WR_MALFORMED));
		return;
	}
	flight->length = 0;
	for (uint32_t i = 0; i < flight->nsge; i++) {
		memcpy(&flight->sge[i], payload + i * sizeof(struct shm_sge),
		       sizeof(struct shm_sge));
		COPIED();
		flight->length += flight->sge[i].length;
	}
}

static void resolve_objects(const struct transport *t, const struct qp *qp, struct flight *flight)
{
	const struct transport_shared *s = t->shared;

	if (s->resolve == NULL)
		return;
	if (flight->mr)
		flight->mr = s->resolve(s->resolve_context, qp->session, flight->mr, HANDLE_REGION);
	if (flight->mw)
		flight->mw = s->resolve(s->resolve_context, qp->session, flight->mw, HANDLE_WINDOW);
}

/* Where a datagram goes is found out when it does. */
static void check_datagram(const struct qp *qp, struct flight *flight)
{
	if (flight->state == FLIGHT_FAILED)
		return;
	if (flight->length > qp_mtu(qp))
		flight_refuse(flight, NT_INVALID_BUFFER_SIZE, VERDICT(UD_TOO_LONG));
	else if (flight->token == 0 || flight->token >= MULTICAST_QPN)
		flight_refuse(flight, NT_INVALID_PARAMETER, VERDICT(WR_MALFORMED));
}

/* What every access to the payload would find out anyway is found out before it starts. */
static void check_payload(const struct transport *t, const struct qp *qp, struct flight *flight)
{
	const bool lands = flight->opcode >= SHM_WR_READ && flight->opcode <= SHM_WR_COMPARE_SWAP;
	const uint32_t rights = lands ? RIGHT_LOCAL_WRITE : RIGHT_LOCAL_READ;
	const struct accessor who = qp_accessor(t, qp);
	struct access access;

	if (flight->state == FLIGHT_FAILED)
		return;
	/* A READ of half the PSN circle could not tell its first response from its end. */
	if (flight->length > MESSAGE_MAX || (lands && qp_packets(qp, flight->length) >= HALF_PSN) ||
	    (flight->opcode >= SHM_WR_FETCH_ADD && flight->length != sizeof(uint64_t))) {
		flight_refuse(flight, NT_DATA_OVERRUN, VERDICT(LENGTH));
		return;
	}
	/* It could never start. */
	if (lands && qp->max_reads_out == 0) {
		flight_refuse(flight, NT_INVALID_DEVICE_REQUEST, VERDICT(READ_LIMIT));
		return;
	}
	if (flight->flags & SHM_FLAG_INLINE)
		return;
	for (uint32_t i = 0; i < flight->nsge; i++) {
		const struct shm_sge *sge = &flight->sge[i];
		enum access_reason reason;

		if (sge->length == 0)
			continue;
		reason = memory_access(t->shared->memory, &who, sge->token, sge->address,
				       sge->length, rights, &access);
		if (reason != ACCESS_OK) {
			flight_refuse(flight, NT_ACCESS_VIOLATION, VERDICT_ACCESS + reason);
			return;
		}
	}
}

/* What there is to know of an entry that stands in the flight now. */
static inline void check_flight(struct transport *t, struct qp *qp, struct flight *flight,
				const uint8_t *payload)
{
	if (unlikely(!type_knows(qp->type, flight->opcode))) {
		flight_refuse(flight, NT_INVALID_DEVICE_REQUEST, VERDICT(WR_OPERATION));
	} else if (likely(opcode_carries_data(flight->opcode))) {
		copy_payload(qp, flight, payload);
		if (unlikely(qp->type == SHM_QP_UD))
			check_datagram(qp, flight);
		check_payload(t, qp, flight);
		if (flight->state != FLIGHT_FAILED)
			flight->packets = qp_packets(qp, flight->length);
	} else if (flight->opcode >= SHM_WR_BIND && flight->opcode <= SHM_WR_FAST_REGISTER) {
		resolve_objects(t, qp, flight);
	} else {
		flight_refuse(flight, NT_INTERNAL_ERROR, VERDICT(WR_MALFORMED));
	}
}

static inline void fill_flight(struct transport *t, struct qp *qp, struct flight *flight)
{
	const uint8_t *slot = queue_slot(t, qp, &qp->send, qp->send.taken);

	memcpy(flight, slot, sizeof(struct shm_sqe));
	COPIED();
	flight->next = 0;
	flight->sequence = qp->send.taken;
	flight->psn = qp->next_psn;
	flight->packets = 0;
	flight->state = FLIGHT_WAITING;
	flight->slot = 0;
	check_flight(t, qp, flight, slot + sizeof(struct shm_sqe));
	if (unlikely(flight->state == FLIGHT_FAILED))
		count_verdict(t, flight->verdict);
}

enum work_result work_take_send(struct transport *t, struct qp *qp)
{
	const uint32_t posted = work_posted(t, qp, &qp->send, &qp_local(t, qp)->memory->send);
	uint32_t index = t->free_flight;
	struct flight *flight;

	if (posted == 0)
		return WORK_NONE;
	if (posted > FETCH_AHEAD)
		fetch_send(t, qp, qp->send.taken + FETCH_AHEAD);
	if (index == 0)
		return WORK_NO_FLIGHT;
	flight = flight_at(t, index);
	t->free_flight = flight->next;
	fill_flight(t, qp, flight);
	flight_append(t, qp, flight, index);
	return WORK_TAKEN;
}

/* Only the oldest is ever freed. */
void flight_free(struct transport *t, struct qp *qp, uint32_t index)
{
	struct flight *flight = flight_at(t, index);

	if (qp->cursor == index) {
		qp->cursor = flight->next;
		qp->cursor_packet = 0;
	}
	qp->first_flight = flight->next;
	if (qp->first_flight == 0)
		qp->last_flight = 0;
	qp->flights--;
	flight_put(t, index);
}

/* --- receive queue -------------------------------------------------------------------- */

enum work_result work_copy_receive(const uint8_t *slot, uint32_t max_sge, struct receive_work *work)
{
	struct shm_rqe rqe;

	memcpy(&rqe, slot, sizeof(rqe));
	COPIED();
	work->request_context = rqe.request_context;
	work->capacity = 0;
	work->nsge = 0;
	if (rqe.nsge > max_sge)
		return WORK_MALFORMED;
	memcpy(work->sge, slot + sizeof(rqe), rqe.nsge * sizeof(struct shm_sge));
	COPIED();
	work->nsge = rqe.nsge;
	for (uint32_t i = 0; i < work->nsge; i++)
		work->capacity += work->sge[i].length;
	/* No message is longer, and its bytes are told in 32 bits. */
	if (work->capacity > MESSAGE_MAX)
		work->capacity = MESSAGE_MAX;
	return WORK_TAKEN;
}

enum work_result work_peek_receive(struct transport *t, struct qp *qp)
{
	if (qp->srq)
		return srq_take(t, qp);
	if (work_posted(t, qp, &qp->receive, &qp_local(t, qp)->memory->receive) == 0)
		return WORK_NONE;
	return work_copy_receive(queue_slot(t, qp, &qp->receive, qp->receive.taken),
				 qp->receive.max_sge, &qp_hold(t, qp)->work);
}

/* --- bytes to and from SGEs ----------------------------------------------------------- */

/*
 * Walks `length` bytes at `offset` of a list of SGEs. Each piece is checked against its token
 * now, and its poison flag is looked at behind the copy.
 */
enum access_reason work_scatter(struct transport *t, const struct accessor *who,
				const struct shm_sge *sge, uint32_t nsge, uint64_t offset,
				const uint8_t *data, uint32_t length)
{
	for (uint32_t i = 0; i < nsge && length; i++) {
		struct access access;
		enum access_reason reason;
		uint32_t piece;

		if (offset >= sge[i].length) {
			offset -= sge[i].length;
			continue;
		}
		piece = sge[i].length - (uint32_t)offset;
		if (piece > length)
			piece = length;
		reason = memory_access(t->shared->memory, who, sge[i].token,
				       sge[i].address + offset, piece, RIGHT_LOCAL_WRITE, &access);
		if (reason != ACCESS_OK)
			return reason;
		memory_place(access.pointer, data, piece);
		if (access_poisoned(&access))
			return ACCESS_POISONED;
		data += piece;
		length -= piece;
		offset = 0;
	}
	return ACCESS_OK;
}

enum access_reason work_gather(struct transport *t, const struct qp *qp,
			       const struct flight *flight, uint64_t offset, struct frame *frame,
			       uint32_t length)
{
	const struct accessor who = qp_accessor(t, qp);

	if (flight->flags & SHM_FLAG_INLINE) {
		frame_payload(frame, flight->data + offset, length);
		return ACCESS_OK;
	}
	for (uint32_t i = 0; i < flight->nsge && length; i++) {
		const struct shm_sge *sge = &flight->sge[i];
		struct access access;
		enum access_reason reason;
		uint32_t piece;

		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		piece = sge->length - (uint32_t)offset;
		if (piece > length)
			piece = length;
		reason = memory_access(t->shared->memory, &who, sge->token, sge->address + offset,
				       piece, RIGHT_LOCAL_READ, &access);
		if (reason != ACCESS_OK)
			return reason;
		frame_payload(frame, access.pointer, piece);
		if (access_poisoned(&access))
			return ACCESS_POISONED;
		length -= piece;
		offset = 0;
	}
	return ACCESS_OK;
}
