/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of lib/transport share: process-local state and the helpers of one
 * file that another needs. */
#ifndef TRANSPORT_PRIVATE_H
#define TRANSPORT_PRIVATE_H

#include "memory/memory.h"
#include "memory/perm.h"
#include "shm/spsc.h"
#include "shm/status.h"
#include "transport/state.h"
#include "transport/transport.h"
#include "wire/build.h"
#include "wire/opcode.h"
#include "wire/packet.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Bounds of one call of transport_poll(). */
#define POLL_QPS      64u /* queue pairs visited */
#define POLL_FRAMES   16u /* frames of one queue pair, in each direction */
#define POLL_SESSIONS 64u /* sessions whose doorbells are read */
#define POLL_FLUSH    32u /* entries of a dead queue pair */
#define POLL_PARKED   32u /* parked frames of one queue pair */

#define BLOCKED_PAUSE 50000u /* ns, between looks for a transmit buffer */

#define REQUESTER_WINDOW    256u /* PSNs sent and not acknowledged */
#define REQUESTER_FLIGHTS   256u /* work requests of one queue pair in progress */
#define REQUESTER_ACK_EVERY 32u  /* packets */
#define PARKED_PER_QP       256u
#define PARKED_PER_WORKER   4096u
#define MESSAGE_MAX         0x80000000u /* bytes */
#define HALF_PSN            0x800000u

/* --- process-local tables ------------------------------------------------------------- */

/* Queue pair: what cannot lie in the arena. The upper half is the worker's. */
struct qp_local {
	/* Read with every packet. */
	alignas(64) struct shm_qp *memory;
	uint64_t grace; /* remote invalidate: ticket */
	uint32_t parked;
	bool attached;
	bool broken;  /* nonsense in its rings was reported: they are not read any more */
	bool visited; /* its turn is now */
	bool again;   /* wants another turn */
	bool starved; /* waits for a flight record */
	bool grace_listed;
	bool congested;        /* qp_congestion() is in use */
	bool paced;            /* and limits its rate */
	bool held;             /* by its rate, in this turn */
	bool cnp_due;          /* a marked frame is to be answered */
	bool resend;           /* it went back, and nothing has left since */
	bool silent;           /* the peer: a timeout since it last brought us forward */
	uint16_t owed_verdict; /* of its error, not told yet; 0: none */

	/* Of its turns. */
	uint32_t round;           /* of its last visit */
	struct ready_list *ready; /* it lies there, or NULL */
	uint32_t ready_next, ready_prev;
	int32_t answer_left, request_left; /* of its quantum, bytes */

	alignas(64) uint64_t local_grace; /* local invalidate: ticket */
	uint32_t starved_next;
	uint32_t grace_next;

	uint64_t deadline;   /* of the requester, ns; 0: none */
	uint64_t pace_due;   /* when its rate lets it go on; 0: it is not held back */
	uint64_t timer_tick; /* slot it lies in; 0: none */
	uint32_t timer_next, timer_prev;

	uint32_t parked_first, parked_last;

	uint32_t read_window; /* packets of READ responses asked for at once; 0: no limit */
	uint32_t read_whole;  /* of them, come since the window changed */

	struct frame_template frame;
};
_Static_assert(sizeof(struct qp_local) == 256, "per queue pair, idle ones too");

struct cq_local {
	struct shm_cq *memory[SHM_MAX_WORKERS]; /* each worker's own: they differ during a resize */
};

struct srq_local {
	struct shm_srq *memory;
	bool broken; /* nonsense in its ring was reported */
};

struct session_local {
	struct shm_session *memory;
	uint32_t doorbell[SHM_MAX_SESSION_QPS]; /* queue pair by number */
};

struct transport_shared {
	struct arena arena;
	struct memory *memory;
	struct transport_sizes sizes;
	struct qp *qps;
	struct cq *cqs;
	struct srq *srqs;
	struct ah *ahs;
	struct receive_hold *holds;
	struct responder_resource *resources;
	struct flight *flights;
	uint32_t resource_mask; /* resources of one queue pair, minus 1; a power of two */
	uint32_t qp_mask;
	const uint16_t *qpn_key;
	struct qp_local *qp_local;
	struct congestion *congestions; /* by queue pair; pages come with the first mark or CNP */
	struct cq_local *cq_local;
	struct srq_local *srq_local;
	struct session_local **sessions;
	handle_resolver *resolve;
	void *resolve_context;

	/* Odd while it is being written; the line rate has a writer of its own. */
	uint32_t congestion_version;
	struct congestion_parameters congestion;
	uint64_t line_rate;

	uint32_t broken_cqs; /* atomic: so many have overrun so far */

	/* The control thread's. */
	uint32_t free_qp_first, free_qp_last, qp_watermark;
	uint32_t free_cq, cq_watermark;
	uint32_t free_ah, ah_watermark;
	bool adopted;
};

#define WHEEL_SHIFT 13u /* a tick is 8.192 us */
#define WHEEL_SLOTS 4096u

struct wheel {
	uint64_t tick; /* all slots up to this one are done */
	uint32_t armed;
	uint64_t summary;
	uint64_t bits[WHEEL_SLOTS / 64];
	uint32_t first[WHEEL_SLOTS];
};

/* A frame that waits behind a revocation or a READ. */
struct parked {
	struct pktbuf *packet;
	uint32_t next;
};

/* Queue pairs, linked by index. */
struct ready_list {
	uint32_t first, last, count;
};

struct session_place {
	uint32_t session;
	struct shm_worker_area *area;
};

/* Last answers of transport_find(): QPN in the upper half, index in the lower. */
#define QPN_CACHE 4096u

struct transport {
	struct transport_shared *shared;
	uint64_t *qpn_cache;
	struct worker_state *state;
	struct transport_io io;
	uint32_t worker;
	uint32_t last_verdict;
	bool blocked;       /* no transmit buffer to be had in this visit */
	bool starved;       /* in one of the last poll's */
	int32_t left;       /* of the quantum in this visit, bytes */
	uint8_t data_ecn;   /* ECN bits of frames with data */
	bool line_of_ports; /* the line rate is theirs */
	uint32_t congestion_version;
	uint64_t now;

	struct ready_list fresh, busy, waiting; /* ready.c */
	uint32_t round, round_left;
	uint32_t starved_first;
	uint32_t grace_first;
	uint32_t free_flight;
	uint32_t flight_first, flight_count;     /* this worker's share of the table */
	uint32_t flights_abroad;                 /* bit by worker: some of its records are here */
	uint32_t flight_abroad[SHM_MAX_WORKERS]; /* free records of other workers' shares */

	uint32_t broken_cqs; /* of those that overran, so many have been seen to */
	uint32_t dirty_cqs;
	uint32_t *dirty_cq; /* CQs with entries not published */
	uint8_t *cq_news;   /* by CQ: NEWS_* */
	uint32_t *notify;   /* sessions to wake after this burst */
	uint32_t notifies;

	struct session_place *sessions;
	uint32_t session_count, session_next;

	struct parked *parked;
	uint32_t free_parked;

	struct wheel wheel;
	struct congestion_parameters congestion; /* as of congestion_version */
	struct transport_stats stats;
};

#define NEWS_ENTRY     1u
#define NEWS_SOLICITED 2u /* solicited or in error */
#define NEWS_ERROR     4u /* the CQ itself */

/* --- shorthands ----------------------------------------------------------------------- */

static inline uint32_t qp_index(const struct transport *t, const struct qp *qp)
{
	return (uint32_t)(qp - t->shared->qps);
}

static inline struct qp_local *qp_local(const struct transport *t, const struct qp *qp)
{
	return &t->shared->qp_local[qp_index(t, qp)];
}

static inline struct receive_hold *qp_hold(const struct transport *t, const struct qp *qp)
{
	return &t->shared->holds[qp_index(t, qp)];
}

static inline struct congestion *qp_congestion(const struct transport *t, const struct qp *qp)
{
	return &t->shared->congestions[qp_index(t, qp)];
}

/* From here on, if so, all that its last home did with it has happened. */
static inline bool qp_lives_here(const struct transport *t, const struct qp *qp)
{
	return __atomic_load_n(&qp->home, __ATOMIC_ACQUIRE) == t->worker;
}

static inline struct accessor qp_accessor(const struct transport *t, const struct qp *qp)
{
	return (struct accessor){
		.pd = qp->pd, .qpn = qp->number, .session = qp->session, .worker = t->worker
	};
}

/* For the SGEs of a receive. */
static inline struct accessor receive_accessor(const struct transport *t, const struct qp *qp)
{
	return (struct accessor){
		.pd = qp->receive_pd, .qpn = qp->number, .session = qp->session, .worker = t->worker
	};
}

static inline struct flight *flight_at(const struct transport *t, uint32_t index)
{
	return &t->shared->flights[index];
}

/*
 * At the end of its queue pair's list, the entry that it was made of counted as taken. Whoever
 * adopts drops a linked flight that was not counted as taken yet.
 */
static inline void flight_append(const struct transport *t, struct qp *qp, struct flight *flight,
				 uint32_t index)
{
	flight->qp = qp_index(t, qp);
	if (qp->last_flight)
		flight_at(t, qp->last_flight)->next = index;
	else
		qp->first_flight = index;
	qp->last_flight = index;
	qp->next_psn = psn_add(qp->next_psn, flight->packets);
	qp->flights++;
	__atomic_store_n(&qp->send.taken, qp->send.taken + 1, __ATOMIC_RELEASE);
}

static inline struct responder_resource *resource_at(const struct transport *t, const struct qp *qp,
						     uint8_t number)
{
	const struct transport_shared *s = t->shared;

	return &s->resources[(uint64_t)qp_index(t, qp) * (s->resource_mask + 1) +
			     (number & s->resource_mask)];
}

static inline uint32_t qp_mtu(const struct qp *qp)
{
	return 1u << qp->mtu_shift;
}

/* Packets that a message of `length` bytes takes. */
static inline uint32_t qp_packets(const struct qp *qp, uint64_t length)
{
	return length == 0 ? 1 : (uint32_t)((length + qp_mtu(qp) - 1) >> qp->mtu_shift);
}

/* READ or atomic: completes by its own response only. */
static inline bool flight_wants_response(const struct flight *flight)
{
	return flight->opcode >= SHM_WR_READ && flight->opcode <= SHM_WR_COMPARE_SWAP;
}

/* Packets of it that are acknowledged, READ responses that have been placed. */
static inline uint32_t flight_received(const struct qp *qp, const struct flight *flight)
{
	int32_t received = psn_diff(requester_una(qp->requester), flight->psn);

	return received > 0 ? (uint32_t)received : 0;
}

/* Where the packet at the expected PSN lies in the message in progress, bytes. */
static inline uint64_t responder_offset(const struct qp *qp)
{
	return (uint64_t)(uint32_t)psn_diff(responder_psn(qp->responder), qp->message.psn)
	       << qp->mtu_shift;
}

/* The commit of a step. */
static inline void word_commit(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/*
 * A counter of the worker, or of a queue pair, moves on. Compiled without them, a transport shows
 * what they cost (oriel-micro-plain).
 */
#ifdef ORIEL_NO_STATISTICS
#define COUNT(t, counter, amount)     ((void)(t), (void)(amount))
#define COUNT_QP(qp, counter, amount) ((void)(qp), (void)(amount))
#else
#define COUNT(t, counter, amount)     ((t)->stats.counter += (uint64_t)(amount))
#define COUNT_QP(qp, counter, amount) ((qp)->counter += (uint64_t)(amount))
#endif

/* A message is complete. Its MSN counts them; here are those that the MSN lost as it went round. */
static inline void count_message_in(struct qp *qp, uint32_t msn)
{
	if (unlikely(msn == 0))
		COUNT_QP(qp, messages_in, PSN_MASK + 1);
}

static inline void count_verdict(struct transport *t, uint32_t verdict)
{
	COUNT(t, verdict[verdict], 1);
	t->last_verdict = verdict;
}

static inline bool access_poisoned(const struct access *access)
{
	return __atomic_load_n(access->poisoned, __ATOMIC_RELAXED) != 0;
}

/* --- frame.c -------------------------------------------------------------------------- */

/* Headers of a frame to be built; the opcode says which fields count. */
struct frame_head {
	uint8_t opcode;
	bool ack_request;
	bool solicited;
	uint8_t syndrome;
	uint32_t psn;
	uint32_t msn;
	uint64_t address; /* RETH, AtomicETH */
	uint32_t token;   /* RETH, AtomicETH, IETH */
	uint32_t length;  /* RETH */
	uint32_t immediate;
	uint64_t swap, compare;    /* AtomicETH */
	uint64_t original;         /* AtomicAckETH */
	uint32_t qkey, source_qpn; /* DETH */
};

/* Of an ACK, NAK or READ response. */
struct answer_head {
	uint8_t opcode;   /* of the last */
	uint8_t syndrome; /* not of a MIDDLE */
	uint32_t psn;
	uint32_t msn;
};

/* Of a packet of a SEND or WRITE, RC's or UC's; its extensions are the request's. */
struct data_head {
	uint8_t opcode;
	bool ack_request;
	bool solicited;
	uint32_t psn;
	const struct flight *flight;
};

struct frame {
	struct pktbuf *packet;
	const struct frame_template *template;
	uint8_t *place;   /* of the payload */
	uint32_t payload; /* bytes to come */
	uint32_t placed;
};

void path_build_template(const struct qp_path *path, uint16_t source_port,
			 struct frame_template *template);
void qp_build_template(const struct qp *qp, struct frame_template *template);
/* Takes a buffer and writes all headers of a frame with `payload` bytes; false: no buffer. */
bool frame_open(struct transport *t, struct qp *qp, struct frame *frame,
		const struct frame_head *head, uint32_t payload);
/* The same to any queue pair behind any path, which stays where it is until the frame is closed. */
bool frame_open_to(struct transport *t, const struct frame_template *template, uint32_t qpn,
		   struct frame *frame, const struct frame_head *head, uint32_t payload);
/* The same for a READ response, with an AETH or without. */
bool frame_open_answer(struct transport *t, struct qp *qp, struct frame *frame,
		       const struct answer_head *head, uint32_t payload);
/* A whole ACK or NAK, which is on its way then; false: no buffer. */
bool frame_send_ack(struct transport *t, struct qp *qp, const struct answer_head *head);
/* The headers of a packet of a SEND or WRITE, as frame_open() does. */
bool frame_open_data(struct transport *t, struct qp *qp, struct frame *frame,
		     const struct data_head *head, uint32_t payload);
void frame_set_source_port(struct frame *frame, uint16_t port);
void frame_payload(struct frame *frame, const void *bytes, uint32_t length);
/* Bytes of the frame, which is on its way. */
uint32_t frame_close(struct transport *t, struct frame *frame);
void frame_drop(struct transport *t, struct frame *frame);

/* --- ready.c -------------------------------------------------------------------------- */

#define READY_QUANTUM 16384 /* bytes of one visit, in each direction */

/* The queue pair has something to do in transport_poll(). */
void ready_add(struct transport *t, struct qp *qp);
void ready_remove(struct transport *t, struct qp *qp);
uint32_t ready_count(const struct transport *t);
/* Whose turn it is, and its end: it comes again if ready_add() was called meanwhile. */
struct qp *ready_take(struct transport *t);
void ready_done(struct transport *t, struct qp *qp);
/* Those that found no buffer come before the others that are busy. */
void ready_wait_over(struct transport *t);

/* --- worker.c ------------------------------------------------------------------------- */

void starved_add(struct transport *t, struct qp *qp);
void starved_wake(struct transport *t);
/* transport_poll() asks about the queue pair's grace periods. */
void grace_add(struct transport *t, struct qp *qp);
/* No list or timer slot of this worker refers to it any more; its deadline stays. */
void unlist(struct transport *t, struct qp *qp);
/* An empty frame, or NULL; then nothing more is sent in this visit. */
struct pktbuf *frame_get(struct transport *t, const struct frame_template *template);
void frame_send(struct transport *t, struct pktbuf *packet);
/* By itself to error. `asked`: the consumer wanted it, no event. */
void qp_fail(struct transport *t, struct qp *qp, uint32_t verdict, uint32_t async);
void qp_fail_later(struct transport *t, struct qp *qp, uint32_t verdict);
void event_send(struct transport *t, enum transport_event_type type, uint32_t object,
		uint32_t value, uint32_t async);
/* Nonsense in the shared memory of a session. */
void session_broken(struct transport *t, uint32_t session, uint32_t verdict);

/* --- wheel.c -------------------------------------------------------------------------- */

void wheel_create(struct wheel *wheel, uint64_t now);
/* The requester's deadline: sets or postpones; moves to an earlier slot when it must. */
void wheel_set(struct transport *t, struct qp *qp, uint64_t deadline);
void wheel_unset(struct transport *t, struct qp *qp);
/* The queue pair is ready again at this time. */
void wheel_pace(struct transport *t, struct qp *qp, uint64_t due);
/* Both. */
void wheel_cancel(struct transport *t, struct qp *qp);
/* Takes it out of its slot, puts it back; the deadlines stay. */
void wheel_suspend(struct transport *t, struct qp *qp);
void wheel_resume(struct transport *t, struct qp *qp);
/* Calls requester_timeout() or ready_add() for what is due. Returns how many. */
unsigned int wheel_run(struct transport *t);
uint64_t wheel_next(const struct wheel *wheel);

/* --- pace.c --------------------------------------------------------------------------- */

void pace_refresh(struct transport *t);
/* Takes new parameters, if there are any. */
static inline void pace_look(struct transport *t)
{
	if (unlikely(t->congestion_version !=
		     __atomic_load_n(&t->shared->congestion_version, __ATOMIC_RELAXED)))
		pace_refresh(t);
}

/* A frame of this queue pair came with a mark; a CNP came. */
void pace_marked(struct transport *t, struct qp *qp);
void pace_notified(struct transport *t, struct qp *qp);
/* The CNP that is due. Returns frames sent: 0 when there is no buffer. */
unsigned int pace_send_cnp(struct transport *t, struct qp *qp);
bool pace_ask(struct transport *t, struct qp *qp);
void pace_count(struct transport *t, struct qp *qp, uint32_t bytes);

/* Whether a frame with data may leave now; if not, the queue pair comes back by itself. */
static inline bool pace_may_send(struct transport *t, struct qp *qp)
{
	return likely(!qp_local(t, qp)->paced) || pace_ask(t, qp);
}

/* A frame with data has left. */
static inline void pace_sent(struct transport *t, struct qp *qp, uint32_t bytes)
{
	if (unlikely(qp_local(t, qp)->paced))
		pace_count(t, qp, bytes);
}

/* --- park.c --------------------------------------------------------------------------- */

/* Keeps a frame behind those already kept; false: no room, the caller drops it. */
bool park_add(struct transport *t, struct qp *qp, struct pktbuf *packet);
/* Runs kept frames until one must wait again. Returns how many. */
unsigned int park_run(struct transport *t, struct qp *qp);
void park_drop(struct transport *t, struct qp *qp);
/* The oldest kept frame, out of the list: the caller's. NULL: there is none. */
struct pktbuf *park_take(struct transport *t, struct qp *qp);

/* --- completion.c --------------------------------------------------------------------- */

/* Where an entry of this worker goes; the CQ's memory is there. */
static inline struct shm_cqe *cq_entry(const struct transport *t, uint32_t cq, uint32_t number)
{
	const uint32_t slots = t->shared->cqs[cq].side[t->worker].slots;
	struct shm_cqe *ring = (struct shm_cqe *)(t->shared->cq_local[cq].memory[t->worker] + 1);

	return &ring[(uint64_t)t->worker * slots + (number & (slots - 1))];
}

/* Entries that surely fit now; 0 says nothing: ask completion_room(). */
uint32_t completion_room_known(struct transport *t, uint32_t cq);
/* Good ones for `count` requests, written behind the tail: INTENT_CQ_TAIL makes them count. */
void completion_placed(struct transport *t, struct intent *intent, uint32_t cq, uint32_t count);
/* Adds an entry to the intent: INTENT_CQE, or 0 (the entry is lost) when the CQ is broken. */
uint64_t completion_add(struct transport *t, struct intent *intent, uint32_t cq,
			const struct shm_cqe *cqe);
/* Whether the CQ has room for one more; else breaks it. */
bool completion_room(struct transport *t, uint32_t cq);
/* Whether a CQ of the queue pair has overrun, and it has to end. */
bool completion_is_broken(const struct transport *t, const struct qp *qp);
/* Queue pairs of this worker whose CQ has overrun end. */
void completion_end_users(struct transport *t);
/* Looks for CQs that have overrun at another worker. */
static inline void completion_look(struct transport *t)
{
	if (unlikely(t->broken_cqs != __atomic_load_n(&t->shared->broken_cqs, __ATOMIC_RELAXED)))
		completion_end_users(t);
}
/* Adopted arena: all tails are to be published with the next burst. */
void completion_publish_again(struct transport *t);
/* Publishes tails, satisfies arms, wakes clients. */
void completion_publish(struct transport *t);

/* NDK_OPERATION_TYPE and ours. */
enum completion_type {
	COMPLETION_RECEIVE = 0x1,
	COMPLETION_SEND = 0x2,
	COMPLETION_FAST_REGISTER = 0x4,
	COMPLETION_BIND = 0x8,
	COMPLETION_INVALIDATE = 0x10,
	COMPLETION_READ = 0x20,
	COMPLETION_WRITE = 0x40,
	COMPLETION_FETCH_ADD = 0x100,
	COMPLETION_COMPARE_SWAP = 0x200,
	COMPLETION_RECEIVE_IMMEDIATE = 0x2001,
	COMPLETION_RECEIVE_WRITE_IMMEDIATE = 0x4001,
	COMPLETION_RECEIVE_AND_INVALIDATE = 0x8001,
};
enum completion_type completion_type(uint8_t opcode); /* enum shm_wr_opcode */

/* --- intent.c ------------------------------------------------------------------------- */

struct intent *intent_begin(struct transport *t, struct qp *qp);
/* Carries out `parts` once, whatever happens in between. */
void intent_commit(struct transport *t, uint64_t parts);
/*
 * The same with an RDMA atomic at `target`; false, and nothing done, when the memory is not `old`
 * now. Its token was looked at: who revokes it meanwhile waits for this worker.
 */
bool intent_commit_atomic(struct transport *t, uint64_t parts, uint64_t *target);
/* Finishes what a dead process had armed. */
void transport_recover(struct transport *t);

/* --- work.c --------------------------------------------------------------------------- */

enum work_result { WORK_TAKEN, WORK_NONE, WORK_NO_FLIGHT, WORK_MALFORMED };
/* Copies and checks the next send-queue entry into a flight at the end of the list. */
enum work_result work_take_send(struct transport *t, struct qp *qp);
/* Has the entries come that a doorbell announces; only a hint. */
void work_fetch_send(const struct transport *t, const struct qp *qp);
void work_peek_send(struct transport *t, struct qp *qp, struct shm_sqe *sqe);
/*
 * The next receive into qp_hold()->work. One of the queue pair's own stays in the queue until
 * receive_complete(); one of an SRQ is taken, and held until then.
 */
enum work_result work_peek_receive(struct transport *t, struct qp *qp);
enum work_result work_copy_receive(const uint8_t *slot, uint32_t max_sge,
				   struct receive_work *work);
/* Frees the oldest flight. */
void flight_free(struct transport *t, struct qp *qp, uint32_t index);
/* Entries the client has posted and we have not taken; breaks the session on nonsense. */
uint32_t work_posted(struct transport *t, struct qp *qp, const struct work_queue *queue,
		     const struct shm_queue *shared);
/* Bytes to the client's SGEs, and from a flight's into a frame. */
enum access_reason work_scatter(struct transport *t, const struct accessor *who,
				const struct shm_sge *sge, uint32_t nsge, uint64_t offset,
				const uint8_t *data, uint32_t length);
enum access_reason work_gather(struct transport *t, const struct qp *qp,
			       const struct flight *flight, uint64_t offset, struct frame *frame,
			       uint32_t length);

/* --- srq.c ---------------------------------------------------------------------------- */

/* Takes the next receive of the queue pair's SRQ, unless it still holds one. */
enum work_result srq_take(struct transport *t, struct qp *qp);
/* In error, nothing of the SRQ in hand any more: tells it once. */
void srq_last_receive(struct transport *t, struct qp *qp);

/* --- shared.c ------------------------------------------------------------------------- */

/* Of a ring of this depth: the next power of two. */
static inline uint32_t queue_slots(uint32_t depth)
{
	return depth <= 1 ? 1 : 1u << (32 - __builtin_clz(depth - 1));
}

#define QUEUE_MAX_DEPTH (1u << 20)
struct work_queue queue_layout(uint32_t depth, uint32_t sge, uint32_t entry, uint32_t payload,
			       uint32_t offset);
void queue_publish(struct shm_queue *shared, const struct work_queue *queue);

/* --- responder.c, answer.c ------------------------------------------------------------ */

/* One request. True: it must wait (park it and all behind it). */
bool responder_receive(struct transport *t, struct qp *qp, const struct wire_view *view);
/* One that was carried out before. True as above. */
bool responder_duplicate(struct transport *t, struct qp *qp, const struct wire_view *view);
/* Sends answers. Returns frames sent. */
unsigned int responder_send(struct transport *t, struct qp *qp);
bool responder_pending(const struct qp *qp);
/* The grace period of a remote invalidate is over: completes its message. */
void responder_invalidated(struct transport *t, struct qp *qp);
/* READ and atomics in PSN order. */
void responder_receive_read(struct transport *t, struct qp *qp, const struct wire_view *view);
void responder_receive_atomic(struct transport *t, struct qp *qp, const struct wire_view *view);
/* Class C: NAK behind the answers that are due, then error. */
void responder_refuse(struct transport *t, struct qp *qp, uint8_t syndrome, uint32_t verdict);
void responder_refuse_access(struct transport *t, struct qp *qp, enum access_reason reason);
/* Tells the control core what the peer did. */
void responder_bad_token(struct transport *t, struct qp *qp, enum access_reason reason);
/* A packet of a SEND or WRITE is done; `ends`: with it the message. */
uint64_t responder_word_after(const struct qp *qp, enum message_kind kind, bool ends);
/* Whether the payload is as long as the packet's place in its message wants it. */
bool responder_shape_fits(const struct qp *qp, const struct wire_view *view);
/* The same for a WRITE, whose RETH is known. */
bool responder_write_fits(const struct qp *qp, const struct wire_view *view);
/* Takes the RETH. False: this queue pair takes no WRITEs. */
bool responder_start_write(struct qp *qp, const struct wire_view *view);
enum access_reason responder_place_write(struct transport *t, struct qp *qp,
					 const struct wire_view *view);
/* The last packet of a message that consumes a receive. False: overrun, the queue pair is dead. */
bool responder_complete(struct transport *t, struct qp *qp, const struct wire_view *view,
			uint32_t bytes);
/* The receive in `work` fails, saying `own`, and the queue pair with it; no answer. */
void responder_fail_receive(struct transport *t, struct qp *qp, int32_t status, uint32_t own,
			    uint32_t verdict, uint32_t async);
/* Takes qp_hold()->work, writes its completion and commits `word`, as one step. */
void receive_complete(struct transport *t, struct qp *qp, uint64_t word, struct shm_cqe *cqe);

/* --- requester.c, response.c ---------------------------------------------------------- */

unsigned int requester_send(struct transport *t, struct qp *qp);
/* A flight to go on with, or NULL when there is none. */
struct flight *requester_next(struct transport *t, struct qp *qp);
/* A local operation at the cursor. False: it waits. */
bool requester_execute(struct transport *t, struct qp *qp, struct flight *flight);
/* Its first packet leaves. */
void requester_start(struct transport *t, struct qp *qp, struct flight *flight);
/* It will never leave: completes so when it is the oldest. */
void requester_refuse(struct transport *t, struct flight *flight, int32_t status, uint32_t verdict);
/*
 * The packet of a SEND or WRITE at the cursor, still to be closed. False: no buffer, or its
 * payload cannot be read any more.
 */
bool requester_build(struct transport *t, struct qp *qp, struct flight *flight,
		     struct frame *frame);
/* Fills an open frame from `offset` of the payload. False: refused, and the frame dropped. */
bool requester_gather(struct transport *t, struct qp *qp, struct flight *flight, uint64_t offset,
		      struct frame *frame);
void requester_timeout(struct transport *t, struct qp *qp);
void requester_receive(struct transport *t, struct qp *qp, const struct wire_view *view);
void requester_timer(struct transport *t, struct qp *qp);
/* Sends from the oldest unacknowledged PSN again. */
void requester_go_back(struct transport *t, struct qp *qp);
/* A gap or silence where a READ was waited for; a packet of its responses in its turn. */
void requester_read_lost(struct transport *t, struct qp *qp);
void requester_read_came(struct transport *t, struct qp *qp);
/* Keeps the cursor from standing before what is acknowledged. */
void requester_step_over(struct transport *t, struct qp *qp);
/*
 * Completes the SENDs and WRITEs at the head that PSN p acknowledges in full, as many as their CQ
 * is known to have room for. Returns how many.
 */
unsigned int requester_complete_covered(struct transport *t, struct qp *qp, uint32_t p);
/* Completes flights at the head that are done. */
void requester_complete(struct transport *t, struct qp *qp);
/* The oldest flight fails; the queue pair goes to error. */
void requester_fail(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict);
/* Completion entry of a flight with this status; frees it. */
void flight_complete(struct transport *t, struct qp *qp, int32_t status, uint32_t verdict);

/* PSNs from `psn` to `end` have been on the wire. */
void requester_sent_through(struct transport *t, struct qp *qp, uint32_t psn, uint32_t end);
/*
 * How many PSNs of SENDs and WRITEs may leave from this one on. Those that READ responses will take
 * are the peer's to pace: they do not fill the window. But all together stay below half the
 * circle, or what is behind a long READ could not be told from what is before it.
 */
static inline int32_t requester_window_left(const struct qp *qp, uint32_t psn)
{
	const int32_t ahead = psn_diff(psn, requester_una(qp->requester));
	const int32_t window = (int32_t)(REQUESTER_WINDOW + qp->read_psns) - ahead;
	const int32_t circle = (int32_t)HALF_PSN - 1 - ahead;

	return window < circle ? window : circle;
}

/* --- plain.c -------------------------------------------------------------------------- */

/* Takes and sends new requests of the simplest kind. Returns how many; the next is not of it. */
unsigned int plain_send(struct transport *t, struct qp *qp);

/* --- move.c --------------------------------------------------------------------------- */

/* A free record goes to the worker whose share it is. */
void flight_put(struct transport *t, uint32_t index);

/* --- unreliable.c, uc.c, ud.c, ah.c --------------------------------------------------- */

/* What UC and UD send. Returns packets sent and local operations done. */
unsigned int unreliable_send(struct transport *t, struct qp *qp);
/* Whether qp_hold()->work is the receive; else it says why, and a malformed one fails with its qp.
 */
bool unreliable_take_receive(struct transport *t, struct qp *qp);
/* Bytes into that receive. False: it has failed, and its queue pair with it. */
bool unreliable_place(struct transport *t, struct qp *qp, uint64_t offset, const uint8_t *data,
		      uint32_t length);
void uc_receive(struct transport *t, struct qp *qp, const struct wire_view *view);
void ud_receive(struct transport *t, struct qp *qp, const struct wire_view *view);
/* The datagram, still to be closed. False: no buffer, or refused. */
bool ud_build(struct transport *t, struct qp *qp, struct flight *flight, struct frame *frame);
/* The address that a handle names, good until the worker is quiescent; NULL: not to be used. */
const struct ah *ah_lookup(const struct transport *t, const struct qp *qp, uint32_t handle);
/* Adopted arena: which records are free. */
void ah_adopt(struct transport_shared *shared);

/* --- local.c -------------------------------------------------------------------------- */

/* Executes a local operation whose turn it is. False: it waits. */
bool local_execute(struct transport *t, struct qp *qp, struct flight *flight);
void local_invalidated(struct transport *t, struct qp *qp);
/* A revoked slot back into its session's stock. */
void stock_return(struct transport *t, struct qp *qp, uint32_t slot);

/* --- adopt.c -------------------------------------------------------------------------- */

/* Rebuilds what is local to the process, and ends what its last process had begun. */
void adopt_queue_pair(struct transport *t, struct qp *qp);

/* --- flush.c -------------------------------------------------------------------------- */

/* Flushes some entries of a queue pair in error. Returns how many. */
unsigned int flush_run(struct transport *t, struct qp *qp);
bool flush_pending(struct transport *t, struct qp *qp);

#endif
