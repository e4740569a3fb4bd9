/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's short way: new requests that are one packet of a SEND or WRITE go from the queue
 * onto the link in one pass, with what they have in common looked up once for all of them. Whatever
 * is more than that, is wrong, or finds something in its way stays in the queue for
 * requester_send().
 */
#include <string.h>

#include "memory/access.h"
#include "transport/private.h"

#define PLAIN_FLAGS (SHM_FLAG_SILENT_SUCCESS | SHM_FLAG_SOLICIT | SHM_FLAG_INLINE | SHM_FLAG_DEFER)

/* Queue and limits, as they are when the visit begins. */
struct plain {
	struct transport *t;
	struct qp *qp;
	struct qp_local *local;
	const uint8_t *slots;
	uint32_t mask, stride;
};

/*
 * The entry as a flight that is still on the free list. A client may have changed it when
 * requester_send() looks at it: that copies it anew, and checks that copy.
 */
static inline struct flight *peek(const struct plain *plain, const uint8_t **payload)
{
	struct flight *flight = flight_at(plain->t, plain->t->free_flight);
	const uint8_t *slot =
		plain->slots + (uint64_t)(plain->qp->send.taken & plain->mask) * plain->stride;

	memcpy(flight, slot, sizeof(struct shm_sqe));
	__asm__ volatile("" ::: "memory"); /* nothing below may look at the entry again */
	*payload = slot + sizeof(struct shm_sqe);
	return flight;
}

static inline bool is_plain(const struct plain *plain, const struct flight *flight)
{
	if ((flight->flags & ~PLAIN_FLAGS) ||
	    (flight->opcode != SHM_WR_WRITE && flight->opcode != SHM_WR_SEND))
		return false;
	if (flight->flags & SHM_FLAG_INLINE)
		return flight->inline_length <= plain->qp->inline_size &&
		       flight->inline_length <= qp_mtu(plain->qp);
	return flight->nsge == 1 && plain->qp->send.max_sge;
}

/* Where the bytes lie, which for inline ones is the flight. False: requester_send() says why. */
static inline bool take_payload(const struct plain *plain, struct flight *flight,
				const uint8_t *payload, struct access *access)
{
	const struct accessor who = qp_accessor(plain->t, plain->qp);

	if (flight->flags & SHM_FLAG_INLINE) {
		*access = (struct access){ .pointer = flight->data };
		flight->nsge = 0;
		flight->length = flight->inline_length;
		for (uint32_t i = 0; i < flight->inline_length; i += 16)
			memcpy(flight->data + i, payload + i, 16);
		return true;
	}
	memcpy(flight->sge, payload, sizeof(struct shm_sge));
	__asm__ volatile("" ::: "memory");
	flight->length = flight->sge->length;
	return flight->length && flight->length <= qp_mtu(plain->qp) &&
	       access_check(plain->t->shared->memory, &who, flight->sge->token,
			    flight->sge->address, flight->sge->length, RIGHT_LOCAL_READ,
			    access) == ACCESS_OK;
}

static inline void write_headers(const struct plain *plain, const struct flight *flight,
				 uint8_t *data)
{
	const struct frame_template *template = &plain->local->frame;
	const bool writes = flight->opcode == SHM_WR_WRITE;
	const uint64_t flags =
		BTH_MIG | (!writes && (flight->flags & SHM_FLAG_SOLICIT) ? BTH_SE : 0);
	uint8_t *bth = data + template->length;

	memcpy(data, template->prefix, sizeof(template->prefix));
	frame_set_ecn(data, template, plain->t->data_ecn);
	put_be64(bth, (uint64_t)(writes ? OP_RC_WRITE_ONLY : OP_RC_SEND_ONLY) << 56 | flags << 48 |
			      (uint64_t)PKEY_DEFAULT << 32 | plain->qp->remote_qpn);
	put_be32(bth + 8, (uint32_t)BTH_ACK << 24 | plain->qp->next_psn);
	if (!writes)
		return;
	put_be64(bth + sizeof(struct bth), flight->address);
	put_be64(bth + sizeof(struct bth) + 8,
		 (uint64_t)flight->token << 32 | (uint32_t)flight->length);
}

/* False: the memory was taken away meanwhile. */
static inline bool fill_frame(const struct plain *plain, const struct flight *flight,
			      struct pktbuf *packet, const struct access *access)
{
	write_headers(plain, flight, packet->data);
	packet->length = frame_finish(packet->data, &plain->local->frame, access->pointer,
				      (uint32_t)flight->length);
	return !access->poisoned || !access_poisoned(access);
}

/* From here on it is a request in progress, and adopted as one. */
static inline void take(const struct plain *plain, struct flight *flight)
{
	struct transport *t = plain->t;
	struct qp *qp = plain->qp;
	const uint32_t index = t->free_flight;

	t->free_flight = flight->next;
	flight->next = 0;
	flight->sequence = qp->send.taken;
	flight->psn = qp->next_psn;
	flight->packets = 1;
	flight->state = FLIGHT_STARTED;
	flight_append(t, qp, flight, index);
}

static inline void count(const struct plain *plain, const struct flight *flight)
{
	COUNT_QP(plain->qp, messages_out, 1);
	if (flight->opcode == SHM_WR_WRITE) {
		COUNT(plain->t, tx_write, 1);
		COUNT(plain->t, tx_write_bytes, flight->length);
	} else {
		COUNT(plain->t, tx_send, 1);
	}
}

static inline bool send_one(const struct plain *plain)
{
	struct transport *t = plain->t;
	const uint8_t *payload;
	struct flight *flight = peek(plain, &payload);
	struct access access;
	struct pktbuf *packet;

	if (!is_plain(plain, flight) || !take_payload(plain, flight, payload, &access))
		return false;
	packet = frame_get(t, &plain->local->frame);
	if (unlikely(packet == NULL))
		return false;
	if (unlikely(packet->capacity < FRAME_OVERHEAD_MAX + flight->length ||
		     !fill_frame(plain, flight, packet, &access))) {
		t->io.put(t->io.context, packet, PKTBUF_FREE);
		return false;
	}
	take(plain, flight);
	count(plain, flight);
	frame_send(t, packet);
	return true;
}

/* Nothing has to be sent again or is told to wait. */
static bool way_is_free(const struct qp *qp, const struct qp_local *local)
{
	return qp->cursor == 0 && qp->state == QP_RTS && !(qp->flags & QP_RNR_WAIT) &&
	       !local->paced && qp->sent_psn == qp->next_psn;
}

static unsigned int most_now(struct transport *t, struct qp *qp, const struct qp_local *local)
{
	const int32_t left = requester_window_left(qp, qp->next_psn);
	uint32_t most = work_posted(t, qp, &qp->send, &local->memory->send);

	if (most > POLL_FRAMES)
		most = POLL_FRAMES;
	if (left <= 0 || qp->flights >= REQUESTER_FLIGHTS)
		return 0;
	if (most > REQUESTER_FLIGHTS - qp->flights)
		most = REQUESTER_FLIGHTS - qp->flights;
	return (int32_t)most > left ? (uint32_t)left : most;
}

unsigned int plain_send(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	const struct plain plain = { .t = t,
				     .qp = qp,
				     .local = local,
				     .slots = (const uint8_t *)local->memory + qp->send.offset,
				     .mask = qp->send.slots - 1,
				     .stride = qp->send.stride };
	const uint32_t psn = qp->next_psn;
	unsigned int sent = 0, most;

	if (!way_is_free(qp, local))
		return 0;
	most = most_now(t, qp, local);
	while (sent < most && t->left > 0 && t->free_flight && send_one(&plain))
		sent++;
	if (sent == 0)
		return 0;
	qp->unrequested = 0;
	requester_sent_through(t, qp, psn, qp->next_psn);
	return sent;
}
