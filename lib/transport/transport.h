/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The RoCEv2 transport: queue pairs, requester, responder, completions. Sans-I/O.
 *
 * One struct transport per worker. Frames, doorbells, commands and the time come in as
 * arguments; frames, completions, events go out through struct transport_io and the
 * shared rings. No clock, no randomness, no device in here, so both ends of a
 * network run in one thread of a test.
 *
 * State that must survive the process lies in the arena (struct qp and friends in
 * transport/state.h); what is local to the process (ring addresses, timers, lists)
 * is rebuilt by transport_attach().
 */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory.h"
#include "shm/layout.h"
#include "transport/congestion.h"
#include "transport/verdict.h"
#include "wire/packet.h"

/* --- packet buffers and events -------------------------------------------------------- */

struct pktbuf {
	uint8_t *data;     /* first byte of the Ethernet frame */
	uint32_t length;   /* bytes of the frame */
	uint32_t capacity; /* bytes that fit behind data */
};

enum pktbuf_fate { PKTBUF_SEND, PKTBUF_FREE };

enum transport_event_type {
	TRANSPORT_QP_ERROR,       /* went to error by itself: value is a verdict */
	TRANSPORT_QP_ESTABLISHED, /* first packet arrived (COMM_EST) */
	TRANSPORT_QP_LAST_WQE,    /* error state and nothing of an SRQ in hand any more */
	TRANSPORT_QP_FLUSHED,     /* answer to transport_flush */
	TRANSPORT_SRQ_LIMIT,      /* value: entries left */
	TRANSPORT_CQ_ERROR,
	TRANSPORT_BAD_TOKEN, /* a peer used a bad token: counted against it by the control core */
	TRANSPORT_SESSION_BROKEN, /* nonsense in a session's rings: value is a verdict */
};

struct transport_event {
	uint32_t type;   /* enum transport_event_type */
	uint32_t object; /* index of the QP, CQ, SRQ; session index for SESSION_BROKEN */
	uint32_t value;
	uint32_t async; /* enum shm_async_event to report to the client, or 0 */
};

/*
 * What surrounds a transport. get() gives an empty buffer only if the transmit queue of the port
 * with this address will take it, else NULL: the queue pair waits and asks again at the next poll.
 * put() takes a buffer back, to be sent in order or to be freed. Received buffers
 * that transport_receive() kept come back through put() too.
 */
struct transport_io {
	struct pktbuf *(*get)(void *context, const uint8_t source_mac[6]);
	void (*put)(void *context, struct pktbuf *packet, enum pktbuf_fate fate);
	void (*event)(void *context, const struct transport_event *event);
	void (*notify)(void *context, uint32_t session); /* wake the client after this burst */
	void *context;
};

/* --- process-wide part ---------------------------------------------------------------- */

struct transport_shared; /* arena, memory, tables of local addresses; one per process */
struct transport;        /* one per worker */

/* Record sizes and counts that the arena needs for this module's tables. */
struct transport_sizes {
	uint32_t qps; /* power of two */
	uint32_t cqs, srqs;
	uint32_t addresses; /* destinations of datagrams */
	uint32_t resources; /* READs and atomics kept by all responders: qps times max_reads_in */
	uint32_t flights;   /* work requests in progress, all queue pairs */
	uint32_t workers;
	uint32_t sessions;
};
void transport_arena_spec(const struct transport_sizes *sizes,
			  struct arena_spec spec[ARENA_TABLES]);

/* The largest max_reads_in of a connection that these sizes allow. */
uint32_t transport_max_reads_in(const struct transport_sizes *sizes);

int transport_shared_create(struct transport_shared **shared, struct arena *arena,
			    struct memory *memory, const struct transport_sizes *sizes,
			    bool adopted);
void transport_shared_destroy(struct transport_shared *shared);

/* Control thread: where session `session` (1 ..) lies in this process; NULL forgets it. */
void transport_set_session(struct transport_shared *shared, uint32_t session,
			   struct shm_session *memory);

/*
 * How a worker turns a handle in a work request into an index of lib/memory's tables, or of
 * addresses; 0 when there is no such object of this session. Called in any worker's thread.
 * Without one, handles are indices. Set before the first worker runs.
 */
enum handle_kind { HANDLE_REGION, HANDLE_WINDOW, HANDLE_ADDRESS };
typedef uint32_t handle_resolver(void *context, uint32_t session, uint32_t handle,
				 enum handle_kind kind);
void transport_set_resolver(struct transport_shared *shared, handle_resolver *resolve,
			    void *context);

/* Control thread: an index and record for a new object, or 0 when there is none free. */
struct cq_config {
	uint32_t session;
	uint32_t depth;
	struct shm_cq *memory; /* header filled in by cq_create */
	uint64_t memory_size;
	uint32_t notify; /* notify number in the session */
};
uint64_t cq_memory_size(uint32_t depth, uint32_t workers); /* bytes of its segment */
uint32_t cq_create(struct transport_shared *shared, const struct cq_config *config);
void cq_destroy(struct transport_shared *shared, uint32_t cq);
/*
 * Another depth: new memory, whose header cq_prepare() writes, is given to one worker after the
 * other by transport_resize_cq(). What a worker wrote before lies in the old memory, what it
 * writes from then on in the new. When all have the new one, the old one is nobody's.
 */
void cq_prepare(const struct transport_shared *shared, uint32_t cq, uint32_t depth,
		struct shm_cq *memory, uint64_t size);

/*
 * A shared receive queue belongs to one worker: all its queue pairs have that home. Messages
 * take its entries in the order in which they arrive there. A doorbell is not needed for it.
 */
struct srq_config {
	uint32_t session;
	uint32_t pd; /* of its SGEs, whatever those of the queue pairs */
	uint32_t depth;
	uint32_t sge;
	uint32_t home;          /* worker */
	uint32_t limit;         /* as srq_set_limit(), but nothing is owed at once */
	struct shm_srq *memory; /* header filled in by srq_create */
	uint64_t memory_size;
};
uint64_t srq_memory_size(uint32_t depth, uint32_t sge);
uint32_t srq_create(struct transport_shared *shared, const struct srq_config *config);
uint32_t srq_home(const struct transport_shared *shared, uint32_t srq);
/*
 * Arms one TRANSPORT_SRQ_LIMIT: sent by the worker when a message leaves fewer entries than
 * the limit, or finds none. True: there are fewer already, the caller reports it and nothing
 * is armed. 0 disarms. Control thread.
 */
bool srq_set_limit(struct transport_shared *shared, uint32_t srq, uint32_t limit);
/*
 * How many entries the client may have posted from now on. -ENOBUFS: more than its ring holds;
 * -EBUSY: more are posted already. Nothing has changed then. Control thread.
 */
int srq_set_depth(struct transport_shared *shared, uint32_t srq, uint32_t depth);
/* After its last queue pair was destroyed. */
void srq_destroy(struct transport_shared *shared, uint32_t srq);

struct qp_config {
	uint32_t session;
	uint32_t pd;
	uint32_t send_cq;
	uint32_t receive_cq;
	uint32_t srq;  /* 0: own receive queue; else receive_depth and receive_sge are unused */
	uint32_t type; /* enum shm_qp_type */
	uint64_t qp_context;
	uint32_t send_depth, receive_depth;
	uint32_t send_sge, receive_sge;
	uint32_t inline_size;
	uint32_t doorbell;     /* number in the session */
	uint32_t home;         /* worker */
	struct shm_qp *memory; /* header filled in by qp_create */
	uint64_t memory_size;
};
uint64_t qp_memory_size(const struct qp_config *config);
/* State RESET, receives may be posted at once. Its QPN by qp_number(). */
uint32_t qp_create(struct transport_shared *shared, const struct qp_config *config);
uint32_t qp_number(const struct transport_shared *shared, uint32_t qp);
uint32_t qp_home(const struct transport_shared *shared, uint32_t qp);
/* Index of the queue pair with this QPN, or 0. Any thread. */
uint32_t qp_find(const struct transport_shared *shared, uint32_t qpn);
/* The same in the worker's thread, which knows those that it looked for lately. */
uint32_t transport_find(struct transport *transport, uint32_t qpn);

/*
 * The same for a burst of parsed frames, in steps: where each one's queue pair would be, and on
 * the way into the cache with its token, whatever the frames hold; later, when that has come,
 * whether it is there: its index, or 0. In between, if tokens are too many to be all in the cache,
 * the look-up says true, and then it pays to fetch the bytes as well that they reach.
 */
#define TRANSPORT_BURST 32u
#define TRANSPORT_FEW   2u /* frames: less than a burst */
bool transport_look_up(struct transport *transport, const struct wire_view view[], uint32_t qp[],
		       unsigned int count);
void transport_fetch_targets(const struct transport *transport, const struct wire_view view[],
			     unsigned int count);
uint32_t qp_confirm(const struct transport_shared *shared, uint32_t index, uint32_t qpn);
/*
 * After transport_detach() is done. With an SRQ, flush first: a receive in hand would be lost
 * to the others. The QPN is not drawn again soon.
 */
void qp_destroy(struct transport_shared *shared, uint32_t qp);

/* Adopted arena: where the segments of the objects lie in this process. */
void cq_set_memory(struct transport_shared *shared, uint32_t cq, struct shm_cq *memory);
void qp_set_memory(struct transport_shared *shared, uint32_t qp, struct shm_qp *memory);
void srq_set_memory(struct transport_shared *shared, uint32_t srq, struct shm_srq *memory);

enum qp_state { QP_RESET = 0, QP_INIT, QP_RTR, QP_RTS, QP_SQD, QP_SQE, QP_ERROR };
enum qp_state qp_get_state(const struct transport_shared *shared, uint32_t qp);

/* Everything that a connection fixes. Frames leave with these addresses. */
struct qp_path {
	uint8_t local_mac[6];
	uint8_t remote_mac[6];
	uint16_t vlan_tci; /* 0: untagged */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t local_gid[16]; /* IPv4 as ::ffff:a.b.c.d; both of one family */
	uint8_t remote_gid[16];
	uint32_t flow_label; /* seed of the UDP source port; 0: from both QPNs */
};

/*
 * UC uses the path, both PSNs, the remote QPN, MTU and rights; what it sends completes as
 * successful once its last packet has left. UD uses path.local_gid, send_psn, qkey (bit 31
 * is refused: a privileged one) and the MTU.
 *
 * A datagram longer than the MTU completes with NT_INVALID_BUFFER_SIZE, what the type of queue
 * pair cannot do (READ on UC, bind on UD, ...) with NT_INVALID_DEVICE_REQUEST. There is no
 * SQE: as with RC, a request that fails takes its queue pair to error.
 */
struct qp_connection {
	struct qp_path path;
	uint32_t remote_qpn;
	uint32_t send_psn;    /* first PSN that we send */
	uint32_t receive_psn; /* first PSN that we expect */
	uint32_t path_mtu;    /* bytes */
	uint32_t qkey;
	uint8_t timeout;       /* code, 0: none */
	uint8_t retry_count;   /* 0 .. 7, 7 is seven */
	uint8_t rnr_retry;     /* 7: for ever */
	uint8_t min_rnr_timer; /* code that we send */
	uint8_t max_reads_out; /* READs and atomics that we may have outstanding */
	uint8_t max_reads_in;  /* that we serve */
	uint8_t remote_rights; /* RIGHT_REMOTE_*: what requests this QP accepts at all */
	uint8_t reserved;
};

/*
 * Destinations of datagrams (UD). Control thread. ah_create() gives 0 when no record is free, for
 * a group address, and for mixed families. An address that was destroyed is not used by any
 * worker any more once *grace (0: at once) has passed, see memory_grace_done(); then it may
 * be freed. A datagram looks its address up when it leaves: one that is destroyed meanwhile,
 * or of another session or domain, fails it with NT_INVALID_HANDLE; a port that carries less than
 * the datagram, which need not be the one that its queue pair was connected at, with
 * NT_INVALID_BUFFER_SIZE.
 */
struct ah_config {
	uint32_t session;
	uint32_t pd;
	uint32_t path_mtu; /* of the port by which it leaves, bytes */
	struct qp_path path;
};
uint32_t ah_create(struct transport_shared *shared, const struct ah_config *config);
void ah_destroy(struct transport_shared *shared, uint32_t ah, uint64_t *grace);
void ah_free(struct transport_shared *shared, uint32_t ah);

/*
 * Congestion control of all connected queue pairs, those that are and those to come. Any time, one
 * thread; workers see the new values at their next poll. Off until it is called.
 *
 * With it on, frames with data of RC and UC queue pairs leave as ECN capable (ECT(0)); without it,
 * as all other frames, as not capable. The DSCP is always the path's; ECN bits of its traffic class
 * are not used.
 */
void transport_set_congestion(struct transport_shared *shared,
			      const struct congestion_parameters *parameters);
void transport_get_congestion(const struct transport_shared *shared,
			      struct congestion_parameters *parameters);
/* Bytes per second of the fastest port, for parameters without a line rate. Any one thread. */
void transport_set_line_rate(struct transport_shared *shared, uint64_t rate);
/* The one in use: configured, the fastest port's, or what is taken for it. */
uint64_t transport_line_rate(const struct transport_shared *shared);

/* --- one worker ----------------------------------------------------------------------- */

int transport_create(struct transport **transport, struct transport_shared *shared,
		     unsigned int worker, const struct transport_io *io);
void transport_destroy(struct transport *transport);

/*
 * Commands, called in the worker's thread. Each takes effect at once; what needs
 * time reports by an event.
 */
void transport_attach(struct transport *transport, uint32_t qp, uint64_t now);
/*
 * RESET to RTR and RTS in one: from now on requests are served and sent. -EINVAL: a value
 * that cannot be (MTU, mixed families, more reads than transport_max_reads_in());
 * -EISCONN: not in RESET.
 */
int transport_connect(struct transport *transport, uint32_t qp,
		      const struct qp_connection *connection, uint64_t now);
/* To ERROR: flushes both queues with STATUS_CANCELLED. Any state but ERROR. */
void transport_flush(struct transport *transport, uint32_t qp, uint64_t now);
/* Forgets the queue pair: no timer, list or buffer of this worker refers to it afterwards. */
void transport_detach(struct transport *transport, uint32_t qp);
/* Whether a detach may happen now: no grace period of this queue pair is running. */
bool transport_may_detach(struct transport *transport, uint32_t qp);
/* This worker looks at the doorbells of a session from now on, or no more. */
void transport_add_session(struct transport *transport, uint32_t session);
/* The same after adoption of the arena: the stock's cursor goes on from where it was. */
void transport_adopt_session(struct transport *transport, uint32_t session);
void transport_remove_session(struct transport *transport, uint32_t session);

/*
 * Moving a live queue pair to another worker (design.md, section 10). The old home takes out the
 * frames that wait (transport_unpark(), until NULL: the new home receives them first), then calls
 * transport_release(): the completions written so far are published, the record's home is the new
 * worker, and this one does not touch it any more. Whoever carries the index to the new home by a
 * ring (release and acquire) calls transport_take() there: timers, grace periods and lists go on,
 * both queues are looked at once.
 */
/*
 * Whether it may leave; certain in its home's thread only: 0, -ENOTSUP (shared receive queue: for
 * ever; a datagram queue pair has no flow to follow), -ENOTCONN (not connected, or in error).
 */
int transport_may_move(const struct transport_shared *shared, uint32_t qp);
struct pktbuf *transport_unpark(struct transport *transport, uint32_t qp);
/* 0, or -EAGAIN: frames wait. What transport_may_move() refuses for ever must not be asked for. */
int transport_release(struct transport *transport, uint32_t qp, unsigned int to, uint64_t now);
void transport_take(struct transport *transport, uint32_t qp, uint64_t now);

/*
 * Records of work requests in progress travel with their queue pair. Each belongs to the share of
 * one worker, by its index, and goes back there when it is free again: transport_flights_abroad()
 * has a bit set for every worker to which some are due, transport_flights_leave() gives them as
 * one chain (its first index, 0: none), and transport_flights_return() takes such a chain in the
 * worker that it belongs to.
 */
uint32_t transport_flights_abroad(const struct transport *transport);
uint32_t transport_flights_leave(struct transport *transport, unsigned int owner);
void transport_flights_return(struct transport *transport, uint32_t first);

/*
 * One received frame, parsed, ICRC verified, for a queue pair (not QPN 1) of this
 * worker. Returns true if the transport keeps the buffer (parked behind a revocation or
 * a READ in progress) and will put() it later. `packet` may be NULL when the frame
 * must not be kept (then such packets are dropped and counted).
 */
bool transport_receive(struct transport *transport, const struct wire_view *view,
		       struct pktbuf *packet, uint64_t now);
/* The same when qp_find() or qp_confirm() has found the queue pair; 0: there is none. */
bool transport_receive_at(struct transport *transport, uint32_t qp, const struct wire_view *view,
			  struct pktbuf *packet, uint64_t now);

/* Verdict on the frame that was received last; 0 when it was taken as it should be. */
uint32_t transport_last_verdict(const struct transport *transport);

/*
 * Everything that is due: doorbells of all sessions, timers, parked work, READ responses,
 * delayed ACKs, bounded work per call. Returns how many things were done; 0 means idle.
 */
unsigned int transport_poll(struct transport *transport, uint64_t now);
/*
 * Only the answers of who got ready by the last one or two frames, which somebody waits for: part
 * of what transport_poll() does, which has to follow.
 */
unsigned int transport_answer(struct transport *transport, uint64_t now);

/* When transport_poll() has something to do by itself next (ns, UINT64_MAX: nothing). */
uint64_t transport_next_deadline(const struct transport *transport, uint64_t now);

/* See cq_prepare(). */
void transport_resize_cq(struct transport *transport, uint32_t cq, uint32_t depth,
			 struct shm_cq *memory);

/* --- statistics ----------------------------------------------------------------------- */

/* clang-format off */
#define TRANSPORT_COUNTERS(X) \
	X(rx_packets) X(rx_bytes) X(tx_packets) X(tx_bytes) X(rx_send) X(rx_write) \
	X(rx_write_bytes) X(rx_read) X(rx_read_bytes) X(rx_atomic) X(tx_send) \
	X(tx_write) X(tx_write_bytes) X(tx_read) X(tx_read_bytes) X(tx_atomic) \
	X(tx_ack) X(rx_ack) X(tx_nak) X(rx_nak) X(tx_rnr) X(rx_rnr) X(retransmits) \
	X(timeouts) X(binds) X(fast_registers) X(invalidates) X(remote_invalidates) X(completions) \
	X(completion_errors) X(no_buffer) X(stock_full) \
	X(rx_marked) X(tx_cnp) X(rx_cnp) X(rate_cuts) X(paced) X(moved_in) X(moved_out) \
	X(tx_datagram) X(rx_datagram) X(uc_resync)
/* clang-format on */

struct transport_stats {
#define TRANSPORT_COUNTER(name) uint64_t name;
	TRANSPORT_COUNTERS(TRANSPORT_COUNTER)
#undef TRANSPORT_COUNTER
	uint64_t verdict[VERDICTS]; /* frames and work requests by fate */
};

/* The worker's own counters: it alone writes; others may read them at any time. */
struct transport_stats *transport_get_stats(struct transport *transport);

/* For status output; racy, any thread. */
struct qp_status {
	uint32_t qpn, state, type, session, home, remote_qpn;
	uint8_t local_gid[16], remote_gid[16];
	uint64_t messages_in, messages_out;
	uint64_t rate; /* bytes per second that congestion control allows; 0: no limit */
};
bool qp_get_status(const struct transport_shared *shared, uint32_t qp, struct qp_status *status);
uint32_t qp_table_size(const struct transport_shared *shared);

#endif
