/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting work requests: checks, copying into the ring, doorbells. The fast path. */
#include <string.h>
#include <unistd.h>

#include "ndk/queue.h"

#define ORDER_FLAGS (NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER)
/* NDK's page on NdkWrite lacks INLINE, the pages on its size have it: inline writes are right. */
#define WRITE_FLAGS (ORDER_FLAGS | NDK_OP_FLAG_INLINE)
/* Without the adapter's flag for it, RDMA_READ_LOCAL_INVALIDATE is ignored (NdkRead). */
#define READ_FLAGS (ORDER_FLAGS | NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE)

_Static_assert(sizeof(NDK_SGE) == sizeof(struct shm_sge) &&
		       offsetof(NDK_SGE, Length) == offsetof(struct shm_sge, length) &&
		       offsetof(NDK_SGE, MemoryRegionToken) == offsetof(struct shm_sge, token),
	       "SGEs are copied as they are");

static void ring_worker(const struct qp *qp, uint32_t worker)
{
	struct adapter *adapter = qp->object.adapter;
	uint64_t one = 1;

	if (adapter->plane.turn)
		__atomic_store_n(&adapter->rung, true, __ATOMIC_RELAXED);

	if (shm_doorbell_ring(&adapter->session->worker[worker], qp->doorbell) &&
	    write(adapter->worker_fd[worker], &one, sizeof(one)) < 0)
		return; /* EAGAIN: it has been woken more often than it can count */
}

/*
 * Whom to ring must be read behind a full fence after the tail was stored: see shm_qp.home. A ring
 * contains one, so it is first rung where the queue pair was, and again if it has moved.
 */
static void ring_doorbell(struct qp *qp, struct work_ring *ring)
{
	uint32_t home = __atomic_load_n(&qp->memory->home, __ATOMIC_RELAXED);
	uint32_t rung;

	ring->rung = ring->tail;
	shm_store_release(&ring->queue->tail, ring->tail);
	do {
		rung = home;
		if (rung < qp->object.adapter->workers)
			ring_worker(qp, rung);
		home = __atomic_load_n(&qp->memory->home, __ATOMIC_RELAXED);
	} while (home != rung);
}

static bool ring_full(const struct work_ring *ring)
{
	return ring->tail - shm_load_acquire(&ring->queue->done) >=
	       __atomic_load_n(&ring->depth, __ATOMIC_RELAXED);
}

static inline NTSTATUS check_send(const struct qp *qp, uint32_t types, uint32_t flags,
				  uint32_t allowed, bool unconnected)
{
	if (!(types >> qp->type & 1))
		return STATUS_INVALID_DEVICE_REQUEST;
	if (flags & ~allowed)
		return STATUS_INVALID_PARAMETER;
	if (__atomic_load_n(&qp->object.adapter->dead, __ATOMIC_RELAXED))
		return STATUS_DEVICE_REMOVED;
	if (__atomic_load_n(&qp->link, __ATOMIC_RELAXED) != QP_CONNECTED && !unconnected)
		return STATUS_CONNECTION_INVALID;
	if (ring_full(&qp->send))
		return STATUS_NO_MORE_ENTRIES;
	return STATUS_SUCCESS;
}

NTSTATUS send_check(const struct qp *qp, uint32_t types, uint32_t flags, uint32_t allowed,
		    bool unconnected)
{
	return check_send(qp, types, flags, allowed, unconnected);
}

void *send_slot(struct qp *qp)
{
	return qp->send.slots + (uint64_t)(qp->send.tail++ & qp->send.mask) * qp->send.stride;
}

void send_end(struct qp *qp, NTSTATUS status, uint32_t flags)
{
	/* NDK_OP_FLAG_DEFER: a failing post hands over what was deferred before it. */
	if (qp->send.tail != qp->send.rung &&
	    (status != STATUS_SUCCESS || !(flags & NDK_OP_FLAG_DEFER)))
		ring_doorbell(qp, &qp->send);
}

static inline uint64_t sgl_bytes(const NDK_SGE *sgl, uint32_t nsge)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < nsge; i++)
		total += sgl[i].Length;
	return total;
}

static inline NTSTATUS check_list(const struct work_ring *ring, const NDK_SGE *sgl, uint32_t nsge)
{
	if (nsge && !sgl)
		return STATUS_INVALID_PARAMETER;
	if (nsge > ring->max_sge)
		return STATUS_DATA_OVERRUN;
	return sgl_bytes(sgl, nsge) <= ring->max_transfer ? STATUS_SUCCESS : STATUS_BUFFER_OVERFLOW;
}

/* Inline data may come in any number of pieces: only their bytes take room. */
static inline NTSTATUS check_payload(const struct qp *qp, const NDK_SGE *sgl, uint32_t nsge,
				     uint32_t flags)
{
	if (!(flags & NDK_OP_FLAG_INLINE))
		return check_list(&qp->send, sgl, nsge);
	if (nsge && !sgl)
		return STATUS_INVALID_PARAMETER;
	return sgl_bytes(sgl, nsge) <= qp->inline_size ? STATUS_SUCCESS
						       : STATUS_INVALID_BUFFER_SIZE;
}

/* Eight bytes are a common case, and no call. */
static inline uint8_t *copy_piece(uint8_t *to, const NDK_SGE *piece)
{
	if (piece->Length == sizeof(uint64_t))
		memcpy(to, piece->VirtualAddress, sizeof(uint64_t));
	else if (piece->Length)
		memcpy(to, piece->VirtualAddress, piece->Length);
	return to + piece->Length;
}

/* Field by field: a copy of an entry just made would wait for its stores. */
static inline void write_entry(struct qp *qp, const struct shm_sqe *sqe, const NDK_SGE *sgl,
			       uint32_t nsge)
{
	uint8_t *slot = send_slot(qp);
	uint8_t *payload = slot + sizeof(*sqe), *end = payload;
	struct shm_sqe *entry = (struct shm_sqe *)slot;

	*entry = *sqe;
	if (sqe->flags & NDK_OP_FLAG_INLINE) {
		for (uint32_t i = 0; i < nsge; i++)
			end = copy_piece(end, &sgl[i]);
		entry->inline_length = (uint16_t)(end - payload);
		return;
	}
	entry->nsge = (uint8_t)nsge;
	for (uint32_t i = 0; i < nsge; i++)
		memcpy(payload + i * sizeof(*sgl), &sgl[i], sizeof(*sgl));
}

/* Stamped into the few callers that count. */
static inline __attribute__((always_inline)) NTSTATUS post(struct qp *qp, uint32_t types,
							   const struct shm_sqe *sqe,
							   const NDK_SGE *sgl, uint32_t nsge,
							   uint32_t allowed)
{
	NTSTATUS status;

	spin_lock(&qp->send_lock);
	status = check_send(qp, types, sqe->flags, allowed, false);
	if (status == STATUS_SUCCESS)
		status = check_payload(qp, sgl, nsge, sqe->flags);
	if (status == STATUS_BUFFER_OVERFLOW && qp->type == SHM_QP_UD)
		status = STATUS_INVALID_BUFFER_SIZE;
	if (status == STATUS_SUCCESS)
		write_entry(qp, sqe, sgl, nsge);
	send_end(qp, status, sqe->flags);
	spin_unlock(&qp->send_lock);
	return status;
}

NTSTATUS post_request(struct qp *qp, uint32_t types, const struct shm_sqe *sqe, const NDK_SGE *sgl,
		      uint32_t nsge, uint32_t allowed)
{
	return post(qp, types, sqe, sgl, nsge, allowed);
}

NTSTATUS post_refuse(struct qp *qp, NTSTATUS status)
{
	spin_lock(&qp->send_lock);
	send_end(qp, status, 0);
	spin_unlock(&qp->send_lock);
	return status;
}

/* --- the initiator's requests -------------------------------------------------------------- */

NTSTATUS post_send(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, ULONG flags)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND,
			       .flags = flags,
			       .request_context = (uintptr_t)context };

	return post(qp_of(qp), FOR_RC_UC, &sqe, sgl, nsge, SEND_FLAGS);
}

NTSTATUS post_send_invalidate(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge,
			      ULONG flags, UINT32 token)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND_INVALIDATE,
			       .flags = flags,
			       .request_context = (uintptr_t)context,
			       .token = token };

	return post_request(qp_of(qp), FOR_RC, &sqe, sgl, nsge, SEND_FLAGS);
}

NTSTATUS OrielSendImmediate(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge,
			    ULONG Flags, UINT32 Immediate)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND_IMMEDIATE,
			       .flags = Flags,
			       .request_context = (uintptr_t)RequestContext,
			       .immediate = Immediate };

	return post_request(qp_of(pNdkQp), FOR_RC_UC, &sqe, pSgl, nSge, SEND_FLAGS);
}

NTSTATUS post_read(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, UINT64 address,
		   UINT32 token, ULONG flags)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_READ,
			       .flags = flags & ~NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
			       .request_context = (uintptr_t)context,
			       .address = address,
			       .token = token };

	return post(qp_of(qp), FOR_RC, &sqe, sgl, nsge, READ_FLAGS);
}

NTSTATUS post_write(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, UINT64 address,
		    UINT32 token, ULONG flags)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_WRITE,
			       .flags = flags,
			       .request_context = (uintptr_t)context,
			       .address = address,
			       .token = token };

	return post(qp_of(qp), FOR_RC_UC, &sqe, sgl, nsge, WRITE_FLAGS);
}

NTSTATUS OrielWriteImmediate(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pSgl, ULONG nSge,
			     UINT64 RemoteAddress, UINT32 RemoteToken, ULONG Flags,
			     UINT32 Immediate)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_WRITE_IMMEDIATE,
			       .flags = Flags,
			       .request_context = (uintptr_t)RequestContext,
			       .address = RemoteAddress,
			       .token = RemoteToken,
			       .immediate = Immediate };

	/* It consumes a receive, so it may solicit an event as a send does. */
	return post_request(qp_of(pNdkQp), FOR_RC_UC, &sqe, pSgl, nSge, SEND_FLAGS);
}

/* The result is one piece of eight bytes; where it points at the peer is the peer's to judge. */
static NTSTATUS post_atomic(struct qp *qp, struct shm_sqe *sqe, const NDK_SGE *result)
{
	if (!result)
		return post_refuse(qp, STATUS_INVALID_PARAMETER);
	if (result->Length != sizeof(uint64_t))
		return post_refuse(qp, STATUS_INVALID_BUFFER_SIZE);
	return post_request(qp, FOR_RC, sqe, result, 1, ORDER_FLAGS);
}

NTSTATUS OrielFetchAdd(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pResult,
		       UINT64 RemoteAddress, UINT32 RemoteToken, UINT64 Addend, ULONG Flags)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_FETCH_ADD,
			       .flags = Flags,
			       .request_context = (uintptr_t)RequestContext,
			       .address = RemoteAddress,
			       .token = RemoteToken,
			       .swap = Addend };

	return post_atomic(qp_of(pNdkQp), &sqe, pResult);
}

NTSTATUS OrielCompareSwap(NDK_QP *pNdkQp, PVOID RequestContext, const NDK_SGE *pResult,
			  UINT64 RemoteAddress, UINT32 RemoteToken, UINT64 Compare, UINT64 Swap,
			  ULONG Flags)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_COMPARE_SWAP,
			       .flags = Flags,
			       .request_context = (uintptr_t)RequestContext,
			       .address = RemoteAddress,
			       .token = RemoteToken,
			       .compare = Compare,
			       .swap = Swap };

	return post_atomic(qp_of(pNdkQp), &sqe, pResult);
}

/* --- receives ------------------------------------------------------------------------ */

NTSTATUS receive_write(struct adapter *adapter, struct work_ring *ring, PVOID context,
		       const NDK_SGE *sgl, ULONG nsge)
{
	const struct shm_rqe rqe = { .request_context = (uintptr_t)context, .nsge = (uint8_t)nsge };
	NTSTATUS status;
	uint8_t *slot;

	if (__atomic_load_n(&adapter->dead, __ATOMIC_RELAXED))
		return STATUS_DEVICE_REMOVED;
	if (ring_full(ring))
		return STATUS_NO_MORE_ENTRIES;
	status = check_list(ring, sgl, nsge);
	if (status != STATUS_SUCCESS)
		return status;
	slot = ring->slots + (uint64_t)(ring->tail++ & ring->mask) * ring->stride;
	memcpy(slot, &rqe, sizeof(rqe));
	if (nsge)
		memcpy(slot + sizeof(rqe), sgl, nsge * sizeof(*sgl));
	return STATUS_SUCCESS;
}

NTSTATUS post_receive(NDK_QP *ndk, PVOID context, const NDK_SGE *sgl, ULONG nsge)
{
	struct qp *qp = qp_of(ndk);
	NTSTATUS status;

	if (qp->object.needs[QP_NEEDS_SRQ])
		return STATUS_INVALID_DEVICE_REQUEST;
	spin_lock(&qp->receive_lock);
	status = receive_write(qp->object.adapter, &qp->receive, context, sgl, nsge);
	if (status == STATUS_SUCCESS)
		ring_doorbell(qp, &qp->receive);
	spin_unlock(&qp->receive_lock);
	return status;
}
