/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the transport keeps in the arena: queue pairs, completion queues, work requests in
 * progress, READs and atomics to replay, addresses, intent records. Indices and numbers only.
 *
 * Two words of a queue pair decide what is true of it after a kill: `responder` and
 * `requester`. A packet or an acknowledgement prepares whatever it needs and then stores
 * one of them. What cannot be repeated goes through the worker's intent record first.
 */
#ifndef TRANSPORT_STATE_H
#define TRANSPORT_STATE_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/layout.h"
#include "transport/transport.h"
#include "wire/bth.h"
#include "wire/build.h"

/* --- commit words --------------------------------------------------------------------- */

/*
 * Responder: expected PSN 0..23, MSN 24..47, number of READs and atomics accepted 48..55
 * (modulo 256), message in progress 56..57 (enum message_kind), 58: a NAK for the gap at the
 * expected PSN has been sent, 59: the queue pair is about to go to error, `answer` says why.
 *
 * A multi-packet message needs no second copy of its state: what its first packet
 * writes (struct message, struct receive_work) is not in use before the commit that
 * starts it, and how far it has come follows from the PSN.
 */
enum message_kind { MESSAGE_NONE = 0, MESSAGE_SEND, MESSAGE_WRITE };

static inline uint32_t responder_psn(uint64_t word)
{
	return (uint32_t)word & PSN_MASK;
}

static inline uint32_t responder_msn(uint64_t word)
{
	return (uint32_t)(word >> 24) & PSN_MASK;
}

static inline uint8_t responder_resources(uint64_t word)
{
	return (uint8_t)(word >> 48);
}

static inline enum message_kind responder_message(uint64_t word)
{
	return (enum message_kind)(word >> 56 & 3);
}

#define RESPONDER_NAK_SENT (1ull << 58)
#define RESPONDER_DYING    (1ull << 59)

static inline uint64_t responder_word(uint32_t psn, uint32_t msn, uint8_t resources,
				      enum message_kind message)
{
	return (uint64_t)(psn & PSN_MASK) | (uint64_t)(msn & PSN_MASK) << 24 |
	       (uint64_t)resources << 48 | (uint64_t)message << 56;
}

/*
 * Requester: oldest unacknowledged PSN 0..23, send-queue entries completed 24..55, 56: the last
 * of them failed, so the queue pair is about to go to error.
 */
#define REQUESTER_DYING (1ull << 56)

static inline uint32_t requester_una(uint64_t word)
{
	return (uint32_t)word & PSN_MASK;
}

static inline uint32_t requester_done(uint64_t word)
{
	return (uint32_t)(word >> 24);
}

static inline uint64_t requester_word(uint32_t una, uint32_t done)
{
	return (uint64_t)(una & PSN_MASK) | (uint64_t)done << 24;
}

/* --- queue pairs ---------------------------------------------------------------------- */

/* A receive-queue entry as it was taken. */
struct receive_work {
	uint64_t request_context;
	uint64_t capacity; /* bytes: sum of the SGEs, or the longest message */
	uint32_t nsge;
	uint32_t reserved;
	struct shm_sge sge[SHM_MAX_SGE];
};

/* What the first packet of an incoming message says about the others. */
struct message {
	uint64_t address; /* WRITE: RETH */
	uint64_t length;  /* WRITE: RETH */
	uint32_t token;   /* WRITE: RETH */
	uint32_t psn;     /* of the first packet */
};

/* An answer that leaves when all READ responses before it have: enum answer_kind. */
enum answer_kind {
	ANSWER_NONE = 0,
	ANSWER_ACK,       /* of everything before the expected PSN */
	ANSWER_NAK,       /* sequence, RNR */
	ANSWER_FATAL,     /* NAK; then the queue pair goes to error */
	ANSWER_ACK_FATAL, /* the same with an ACK of what came before (class J) */
};

struct answer {
	uint32_t psn;
	uint8_t kind;
	uint8_t syndrome;
	uint16_t verdict; /* ANSWER_FATAL: why */
	uint32_t async;   /* ANSWER_FATAL: enum shm_async_event */
};

/*
 * A queue of the client's: cursors that count. `stride` and `offset` are repeated here since
 * the client could change the ones in shared memory.
 */
struct work_queue {
	uint32_t depth;
	uint32_t slots; /* power of two; 0: none */
	uint32_t stride;
	uint32_t offset;
	uint32_t taken; /* entries copied out, free running */
	uint32_t max_sge;
};

/* A SEND with invalidate whose token is dead here and maybe still in use elsewhere. */
struct remote_invalidate {
	uint32_t slot;
	uint32_t token;
	uint32_t bytes; /* of the message */
	uint32_t psn;   /* of its last packet */
	uint8_t solicited;
	uint8_t ack_request;
	uint16_t reserved;
};

/* struct qp, flags. */
#define QP_RNR_WAIT     0x01u  /* the timer is an RNR wait: nothing is sent */
#define QP_GAP_HANDLED  0x02u  /* went back for a gap at `una`; not again until progress */
#define QP_ESTABLISHED  0x04u  /* the first packet was told */
#define QP_FLUSH_WANTED 0x08u  /* TRANSPORT_QP_FLUSHED is owed */
#define QP_FLUSHED      0x10u  /* nothing left to flush at last look */
#define QP_INVALIDATING 0x20u  /* `invalidate` is filled in, its token about to be revoked */
#define QP_INVALIDATED  0x40u  /* the token is revoked, the message not complete yet */
#define QP_HOLDS        0x80u  /* `work` was taken from the SRQ and is not complete */
#define QP_LAST_WQE     0x100u /* TRANSPORT_QP_LAST_WQE was told */

struct qp {
	/* Read by every packet. */
	alignas(64) uint64_t responder;
	uint32_t number; /* QPN; 0: record free */
	uint32_t pd;
	uint32_t session;
	uint16_t home;     /* worker, atomic: who reads its own number owns the record */
	uint8_t state;     /* enum qp_state, atomic */
	uint8_t type;      /* enum shm_qp_type */
	uint8_t rights;    /* RIGHT_REMOTE_* that requests may use at all */
	uint8_t mtu_shift; /* path MTU is 1 << mtu_shift */
	uint8_t max_reads_in;
	uint8_t min_rnr_timer;
	uint32_t flags;
	uint8_t local_gid[16];
	uint8_t remote_gid[16];

	/* Responder. */
	alignas(64) struct message message;
	struct answer answer;
	uint32_t receive_cq;
	uint32_t ack_psn; /* newest SEND or WRITE packet executed */
	uint32_t srq;
	uint8_t answered; /* resources answered, modulo 256 as in `responder` */
	uint8_t reserved1[3];
	uint32_t receive_pd; /* of its receives: the SRQ's, or its own */
	uint32_t epoch;      /* of its completions: one more with each move */

	/* Requester. */
	alignas(64) uint64_t requester;
	uint32_t next_psn;     /* of the next work request */
	uint32_t sent_psn;     /* one behind the last PSN ever sent */
	uint32_t first_flight; /* oldest that is not complete */
	uint32_t last_flight;
	uint32_t cursor;        /* flight to send from; 0: take a new one */
	uint32_t cursor_packet; /* packet of it */
	uint32_t flights;
	uint32_t read_psns;  /* PSNs that their responses will still take */
	uint8_t unrequested; /* packets sent since the last AckReq */
	uint8_t reads_out;   /* READs and atomics started and not complete */
	uint8_t retry_left;
	uint8_t rnr_left;
	uint8_t max_reads_out;
	uint8_t reserved3[3];
	uint64_t messages_out;

	/* Fixed at creation or connection. */
	alignas(64) uint64_t qp_context;
	struct qp_path path;
	uint32_t remote_qpn;
	uint32_t send_cq;
	uint32_t doorbell;
	uint32_t qkey;
	uint32_t inline_size;
	uint8_t timeout;
	uint8_t retry_count;
	uint8_t rnr_retry;
	uint8_t reserved4;
	struct work_queue send;
	struct work_queue receive;
	uint64_t messages_in;
	uint32_t free_next; /* control's: free list */
	uint32_t generation;
};
_Static_assert(offsetof(struct qp, message) == 64, "first line: every packet");
_Static_assert(offsetof(struct qp, requester) == 128, "second line: responder");
_Static_assert(offsetof(struct qp, qp_context) == 192, "third line: requester");
_Static_assert(sizeof(struct qp) == 384, "queue pair record");

/*
 * What a queue pair holds while a message arrives. In a table of its own, by queue pair: pages come
 * as they are touched, and one that is idle, or serves READs and WRITEs only, needs none of it.
 */
struct receive_hold {
	struct receive_work work;            /* the receive in use by MESSAGE_SEND */
	struct remote_invalidate invalidate; /* QP_INVALIDATED */
};
_Static_assert(sizeof(struct receive_hold) == 304, "receive in use");

/* --- READs and atomics of the responder ----------------------------------------------- */

enum resource_kind { RESOURCE_NONE = 0, RESOURCE_READ, RESOURCE_ATOMIC };

/*
 * Kept until as many newer ones have come as the peer may have outstanding. `next` to `end` is
 * what is still to be sent; a replay sets them anew.
 */
struct responder_resource {
	uint64_t address;
	uint64_t original; /* ATOMIC: value before */
	uint32_t length;
	uint32_t token;
	uint32_t psn; /* of the request; READ: of its first response */
	uint32_t packets;
	uint32_t msn;
	uint32_t start;      /* PSN that the answer under way began with */
	uint32_t next;       /* PSN to be sent next */
	uint32_t end;        /* one behind the last to be sent */
	uint32_t end_length; /* bytes of the request, counted to `end` */
	uint8_t kind;
	uint8_t opcode;   /* ATOMIC */
	uint8_t complete; /* answered in full at least once */
	uint8_t reserved;
};
_Static_assert(sizeof(struct responder_resource) == 56, "responder resource");

/* --- work requests in progress -------------------------------------------------------- */

enum flight_state {
	FLIGHT_WAITING = 0, /* taken, not started: behind a fence or a limit */
	FLIGHT_EXECUTING,   /* local operation: within a call of lib/memory */
	FLIGHT_STARTED,     /* on the wire; local operation: revoked, waits for grace */
	FLIGHT_EXECUTED,    /* done, waits for earlier ones to complete */
	FLIGHT_FAILED,      /* never (again) sent; completes so when it is the oldest */
};

/* Begins as the entry that it was copied from, and like that is followed by SGEs or data. */
struct flight {
	alignas(64) uint8_t opcode; /* enum shm_wr_opcode */
	uint8_t nsge;
	uint16_t inline_length;
	uint32_t flags; /* SHM_FLAG_* */
	uint64_t request_context;
	uint64_t address;
	uint64_t length; /* bytes, of the payload as well */
	uint32_t token;
	uint32_t immediate;
	uint32_t mr, mw; /* BIND: indices */
	uint64_t compare;
	uint64_t swap;

	uint32_t qp;       /* 0: record free */
	uint32_t next;     /* younger one of the same queue pair; free list */
	uint32_t sequence; /* number of its send-queue entry */
	uint32_t psn;      /* first */
	uint32_t packets;
	uint8_t state;    /* enum flight_state */
	int32_t status;   /* FLIGHT_FAILED */
	uint32_t verdict; /* FLIGHT_FAILED */
	uint32_t slot;    /* INVALIDATE: dead slot */
	uint32_t reserved[3];
	union {
		alignas(16) struct shm_sge sge[SHM_MAX_SGE];
		uint8_t data[SHM_MAX_INLINE];
	};
};
_Static_assert(sizeof(struct flight) == 384 && offsetof(struct flight, sge) == 112,
	       "flight record");
_Static_assert(offsetof(struct flight, flags) == offsetof(struct shm_sqe, flags) &&
		       offsetof(struct flight, address) == offsetof(struct shm_sqe, address) &&
		       offsetof(struct flight, token) == offsetof(struct shm_sqe, token) &&
		       offsetof(struct flight, mw) == offsetof(struct shm_sqe, mw) &&
		       offsetof(struct flight, swap) == offsetof(struct shm_sqe, swap) &&
		       offsetof(struct flight, qp) == sizeof(struct shm_sqe),
	       "an entry is copied as it is");

/* --- completion queues ---------------------------------------------------------------- */

enum cq_state { CQ_FREE = 0, CQ_OPEN, CQ_BROKEN };

/* A worker's side of a CQ: it alone writes there. */
struct cq_side {
	alignas(64) uint32_t tail;
	uint32_t head;  /* the client's, as last seen */
	uint32_t depth; /* of its ring; workers differ while the CQ is resized */
	uint32_t slots;
};

struct cq {
	uint32_t state; /* enum cq_state, atomic */
	uint32_t session;
	uint32_t notify;
	uint32_t rings;
	uint32_t free_next;
	struct cq_side side[SHM_MAX_WORKERS];
};
_Static_assert(sizeof(struct cq) == 64 + 64 * SHM_MAX_WORKERS, "CQ record");

/* --- shared receive queues ------------------------------------------------------------ */

enum srq_state { SRQ_FREE = 0, SRQ_OPEN };

/* Its home worker alone takes from it; `threshold` and `armed` the control thread sets, too. */
struct srq {
	uint32_t state; /* enum srq_state */
	uint32_t session;
	uint32_t pd;
	uint32_t home;
	uint32_t threshold;
	uint32_t armed; /* 1: an event is owed; who exchanges it with 0 sends it */
	struct work_queue receive;
};
_Static_assert(sizeof(struct srq) == 48, "SRQ record");

/* --- destinations of datagrams -------------------------------------------------------- */

enum ah_state { AH_FREE = 0, AH_VALID, AH_RETIRED };

/* All but `state` is written before it becomes AH_VALID, and not again until a grace period after.
 */
struct ah {
	uint32_t state; /* enum ah_state, atomic */
	uint32_t session;
	uint32_t pd;
	uint32_t flow_label;            /* seed of the UDP source port */
	struct frame_template template; /* with source port 0 */
	uint32_t free_next;             /* control's: free list */
	uint32_t path_mtu;              /* of its port, bytes */
};
_Static_assert(sizeof(struct ah) == 112, "address record");

/* --- intent --------------------------------------------------------------------------- */

/* Parts of a step; `armed` is their union. All values are absolute, so that doing them
 * again does no harm. */
#define INTENT_CQE       0x01u  /* entry `cqe` at `cq_tail` of this worker's ring of `cq` */
#define INTENT_RECEIVE   0x02u  /* receive entries taken: `receive_taken` */
#define INTENT_RESPONDER 0x04u  /* commit word */
#define INTENT_REQUESTER 0x08u  /* commit word */
#define INTENT_STOCK     0x10u  /* `stock_token` at `stock_tail` of the session's stock */
#define INTENT_ATOMIC    0x20u  /* 8 bytes at `address` from `old` to `swap` */
#define INTENT_SHARED    0x40u  /* entries of the SRQ taken: `receive_taken`; QP_HOLDS */
#define INTENT_RELEASE   0x80u  /* no more QP_HOLDS */
#define INTENT_CQ_TAIL   0x100u /* entries up to `cq_tail` are in the ring already */

struct intent {
	uint64_t armed;
	uint32_t qp;
	uint32_t cq;
	uint32_t cq_tail;
	uint32_t receive_taken;
	uint64_t responder;
	uint64_t requester;
	uint32_t session;
	uint32_t stock_tail;
	uint32_t stock_token;
	uint32_t token;
	uint64_t address;
	uint64_t old;
	uint64_t swap;
	uint64_t reserved;
	alignas(64) struct shm_cqe cqe;
};
_Static_assert(sizeof(struct intent) == 192, "intent record");

struct worker_state {
	alignas(64) struct intent intent;
	alignas(64) uint32_t stock_tail[]; /* by session */
};

#endif
