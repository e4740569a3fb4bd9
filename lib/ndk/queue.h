/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs, shared receive queues, completion queues: records, and what all posts share. */
#ifndef NDK_QUEUE_H
#define NDK_QUEUE_H

#include "ndk/ndk_private.h"

struct connector;

/* A queue pair that has moved between workers, as far as this CQ has followed it. */
struct moved {
	uint32_t qpn;
	uint32_t epoch; /* of its entries: all of smaller ones have been taken */
};
#define KNOWN_MOVED 64u /* a power of two; forgetting one costs a search, no more */

/* One worker's ring of a CQ. */
struct cq_ring {
	const struct shm_cqe *entry;
	struct shm_ring_cursor *cursor;
	uint32_t mask;
	uint32_t head;
	uint32_t seen; /* tail when the last callback began */
};

struct cq {
	NDK_CQ ndk;
	struct object object;
	NDK_FN_CQ_NOTIFICATION_CALLBACK notification;
	void *notification_context;
	struct shm_cq *memory; /* changed under lock and adapter.lock */
	uint64_t size;
	uint32_t notify;
	struct call notify_call;
	/*
	 * After a resize the rings of the memory before it stand behind the new ones until they are
	 * empty; it stays mapped until the next resize or the end. Both under adapter.lock.
	 */
	struct shm_cq *old_memory, *next_memory;
	uint64_t old_size, next_size;
	struct call resize_call;
	bool resizing; /* under lock: from NdkResizeCq until the old rings are empty */
	/* Interrupt moderation, under adapter.lock. */
	uint32_t interval; /* us; UINT32_MAX: no limit */
	uint32_t count;    /* entries */
	bool held;         /* an arm was satisfied and its callback waits */
	uint64_t due;      /* ns; when it waits no longer */
	struct cq *next_held;

	alignas(SHM_CACHE_LINE) struct spin lock;
	uint32_t rings;     /* of one memory: workers */
	uint32_t all_rings; /* that may hold entries: twice as many while there are old ones */
	uint32_t next_ring;
	bool was_empty;  /* at the last look, with the data plane in the process */
	bool error_told; /* the callback has spoken of the failure: it is the last */
	struct cq_ring ring[2 * SHM_MAX_WORKERS];
	struct moved known[KNOWN_MOVED];
};

enum qp_needs { QP_NEEDS_PD, QP_NEEDS_RECEIVE_CQ, QP_NEEDS_INITIATOR_CQ, QP_NEEDS_SRQ };

enum qp_link {
	QP_UNCONNECTED = 0,
	QP_ACCEPTING, /* the peer has our reply: its first message makes it connected */
	QP_CONNECTED,
};

/* A ring of work requests, as the library needs it. */
struct work_ring {
	struct shm_queue *queue;
	uint8_t *slots;
	uint32_t mask;
	uint32_t stride;
	uint32_t depth; /* of an SRQ: may change at any time */
	uint32_t max_sge;
	uint32_t max_transfer; /* bytes of one request; datagrams: of the path MTU */
	uint32_t tail;         /* entries written */
	uint32_t rung;         /* entries that the worker was told of */
};

struct qp {
	NDK_QP ndk;
	struct object object;
	struct shm_qp *memory;
	uint64_t size;
	bool own_segment;
	uint32_t number;
	struct request flush;

	uint32_t doorbell;
	uint32_t type; /* enum shm_qp_type */
	uint32_t inline_size;
	uint32_t link; /* enum qp_link; written with adapter.lock held */
	struct qp *next_accepting;

	alignas(SHM_CACHE_LINE) struct spin send_lock;
	struct work_ring send;
	alignas(SHM_CACHE_LINE) struct spin receive_lock;
	struct work_ring receive;
};

struct srq {
	NDK_SRQ ndk;
	struct object object;
	struct shm_srq *memory;
	uint64_t size;
	NDK_FN_SRQ_NOTIFICATION_CALLBACK notification;
	void *notification_context;
	struct call notify_call;
	uint32_t left; /* entries, when the limit was reached */

	alignas(SHM_CACHE_LINE) struct spin lock;
	struct work_ring receive;
};

static inline struct qp *qp_of(NDK_QP *ndk)
{
	return (struct qp *)ndk;
}

static inline struct cq *cq_of(NDK_CQ *ndk)
{
	return (struct cq *)ndk;
}

/*
 * Posting to the initiator queue, with send_lock held: send_check(), the caller's own checks,
 * send_slot() if all went well, and always send_end().
 */
NTSTATUS send_check(const struct qp *qp, uint32_t types, uint32_t flags, uint32_t allowed,
		    bool unconnected);
/* Which types of queue pairs know a request: a bit for each enum shm_qp_type. */
#define FOR_RC       (1u << SHM_QP_RC)
#define FOR_RC_UC    (1u << SHM_QP_RC | 1u << SHM_QP_UC)
#define FOR_DATAGRAM (1u << SHM_QP_UD)
/* Where the next entry goes: room is there, and it counts as posted. */
void *send_slot(struct qp *qp);
/* Rings, unless deferred; a failure rings for what was deferred before it. */
void send_end(struct qp *qp, NTSTATUS status, uint32_t flags);

/*
 * A ring of a mapped segment; the entries and payloads to be written must lie within it, or the
 * library would write beside it. max_sge is set before.
 */
bool ring_open(struct work_ring *ring, struct shm_queue *queue, void *segment, uint64_t size,
	       uint32_t entry, uint32_t payload);
/* Writes a receive, its lock held; the caller makes it visible. */
NTSTATUS receive_write(struct adapter *adapter, struct work_ring *ring, PVOID context,
		       const NDK_SGE *sgl, ULONG nsge);

void qp_set_link(struct qp *qp, enum qp_link link);
/* A message arrived on a queue pair whose accept has not completed: it is connected. */
void qp_arrived(struct adapter *adapter, uint32_t number);

NTSTATUS qp_create(NDK_PD *pd, NDK_CQ *receive_cq, NDK_CQ *initiator_cq, PVOID qp_context,
		   ULONG receive_depth, ULONG initiator_depth, ULONG receive_sge,
		   ULONG initiator_sge, ULONG inline_size, NDK_FN_CREATE_COMPLETION completion,
		   PVOID context, NDK_QP **ppqp);
NTSTATUS qp_create_with_srq(NDK_PD *pd, NDK_CQ *receive_cq, NDK_CQ *initiator_cq, NDK_SRQ *srq,
			    PVOID qp_context, ULONG initiator_depth, ULONG initiator_sge,
			    ULONG inline_size, NDK_FN_CREATE_COMPLETION completion, PVOID context,
			    NDK_QP **ppqp);
NTSTATUS srq_create(NDK_PD *pd, ULONG depth, ULONG sge, ULONG threshold,
		    NDK_FN_SRQ_NOTIFICATION_CALLBACK notification, PVOID notification_context,
		    GROUP_AFFINITY *affinity, NDK_FN_CREATE_COMPLETION completion, PVOID context,
		    NDK_SRQ **ppsrq);
/* adapter.lock is held: fewer entries than the threshold are left. */
void srq_limit_reached(struct adapter *adapter, const struct shm_async *async);
NTSTATUS cq_create(NDK_ADAPTER *ndk, ULONG depth, NDK_FN_CQ_NOTIFICATION_CALLBACK notification,
		   PVOID notification_context, GROUP_AFFINITY *affinity,
		   NDK_FN_CREATE_COMPLETION completion, PVOID context, NDK_CQ **ppcq);
NTSTATUS cq_moderate(NDK_CQ *ndk, ULONG interval, ULONG count);
/* adapter.lock is held. */
bool moderation_holds(struct adapter *adapter, struct cq *cq); /* its callback waits */
void moderation_release(struct adapter *adapter, struct cq *cq);
bool moderation_due(const struct adapter *adapter);
void moderation_run(struct adapter *adapter);
void moderation_drain(const struct adapter *adapter);
NTSTATUS cq_resize(NDK_CQ *ndk, ULONG depth, NDK_FN_REQUEST_COMPLETION completion, PVOID context);
void cq_forget_old_rings(struct cq *cq); /* lock is held; if they are empty */
ULONG cq_results(NDK_CQ *ndk, NDK_RESULT results[], ULONG room);
ULONG cq_results_ex(NDK_CQ *ndk, NDK_RESULT_EX results[], ULONG room);
/* adapter.lock is held: a worker took the arm of this CQ. */
void cq_notified(struct adapter *adapter, uint32_t notify);

/* A request that carries data, its flags among `allowed`. */
NTSTATUS post_request(struct qp *qp, uint32_t types, const struct shm_sqe *sqe, const NDK_SGE *sgl,
		      uint32_t nsge, uint32_t allowed);
/* One that was refused before that: it hands over what was deferred as well. Gives the status. */
NTSTATUS post_refuse(struct qp *qp, NTSTATUS status);
/* NDK_OP_FLAG_* that belong to requests which consume a receive of the peer. */
#define SEND_FLAGS                                                                 \
	(NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER | \
	 NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT | NDK_OP_FLAG_INLINE)
NTSTATUS post_send(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, ULONG flags);
NTSTATUS post_send_invalidate(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge,
			      ULONG flags, UINT32 token);
NTSTATUS post_read(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, UINT64 address,
		   UINT32 token, ULONG flags);
NTSTATUS post_write(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge, UINT64 address,
		    UINT32 token, ULONG flags);
NTSTATUS post_receive(NDK_QP *qp, PVOID context, const NDK_SGE *sgl, ULONG nsge);

#endif
