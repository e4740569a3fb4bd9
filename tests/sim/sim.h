/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated world: two hosts with their workers and clients, the pairs of queue pairs
 * between them, the network, and what the model knows of all of it.
 *
 * Each pair has memory of its own on both hosts, and requests that depend on each other
 * without an order between them are posted with a fence. So the state of all memory follows
 * from the requests in the order in which each queue pair posts them, whatever the
 * network does, and the model carries each request out when it is posted.
 */
#ifndef TEST_SIM_SIM_H
#define TEST_SIM_SIM_H

#include <setjmp.h>
#include <stdio.h>

#include "config.h"
#include "fault.h"
#include "frame.h"
#include "memory/memory.h"
#include "rng.h"
#include "shm/layout.h"
#include "shm/status.h"
#include "transport/transport.h"
#include "wire/packet.h"

#define SIM_SESSION  1u
#define SIM_SRQ      32u /* receives shared by the queue pairs of a worker, at most */
#define SRQ_CONTEXT  0xffffffff00000000ull /* of their request contexts, upper half */
#define SIM_RING     512u                  /* requests or receives of an end in hand, at most */
#define SIM_RETURNS  64u
#define SIM_TROUBLES 16u /* more than any retry count */
#define SIM_DEAD     64u
#define SIM_MESSAGES 1024u /* of an end, remembered by PSN */
#define SIM_WINDOWS  3u    /* of an end, the one over the strip not counted */

/* Client memory: guard bytes stand between all areas and are never to change. */
#define AREA_GUARD   4096u
#define AREA_SHARED  16384u /* read by everybody, written by nobody */
#define AREA_SOURCE  65536u
#define AREA_SINK    65536u
#define AREA_TARGET  98304u
#define FAST_PAGES   (AREA_TARGET / 4096 + 2) /* of a fast-register region */
#define AREA_STRIP   24576u                   /* reached through one window only */
#define AREA_RECEIVE 131072u
#define AREA_SRQ     (SIM_SRQ * 8192u)

#define LOOSE_BYTES    8192u /* source and target of an unreliable queue pair */
#define LOOSE_SLOT     4096u /* memory of one of its receives */
#define LOOSE_RECEIVES 16u
#define LOOSE_HISTORY  512u /* messages that may still arrive */
#define AREA_LOOSE     (2 * LOOSE_BYTES + LOOSE_RECEIVES * LOOSE_SLOT + 4 * AREA_GUARD)

struct world;
struct loose;
struct host;
struct pair;
struct end;

/* --- requests and receives -------------------------------------------------------- */

struct piece {
	uint32_t offset; /* in the client memory of a host */
	uint32_t length;
};

/* Bytes that a request changes on one of both hosts. `fresh` and `old`: length bytes. */
struct effect {
	struct piece piece[SIM_SGE];
	uint32_t pieces;
	uint32_t length;
	uint8_t *fresh;
	uint8_t *old;
	bool applied; /* in the model's memory */
	bool loose;   /* each byte may have changed or not */
};

enum op_kind {
	KIND_SEND,
	KIND_SEND_IMM,
	KIND_SEND_INV,
	KIND_WRITE,
	KIND_WRITE_IMM,
	KIND_READ,
	KIND_FETCH_ADD,
	KIND_CMP_SWAP,
	KIND_BIND,
	KIND_INVALIDATE,
	KINDS
};

struct receive {
	uint32_t number;
	uint32_t capacity;
	struct piece piece[SIM_SGE];
	uint32_t pieces;
	uint32_t start, bytes; /* its part of the receive area */
	uint32_t good;         /* bytes that can be placed before something is wrong with it */
	bool malformed;        /* the entry itself */
	struct op *op;         /* what will consume it */
};

struct op {
	struct shm_sqe sqe;
	struct shm_sge list[SIM_SGE];
	uint8_t data[SHM_MAX_INLINE];
	uint32_t number;
	enum op_kind kind;
	uint32_t length;
	uint32_t packets;
	struct piece local_piece[SIM_SGE]; /* source or sink */
	uint32_t local_pieces;
	uint32_t target; /* in the peer's memory */
	bool silent;
	bool consumes; /* a receive */
	struct effect remote, local;
	struct receive *receive;
	struct sim_window *window; /* used, bound or invalidated */

	enum fault fault;
	int32_t status;                /* of its completion */
	int32_t receive_status;        /* of the receive that fails with it; 0: none does */
	int32_t got_status;            /* of the receive that it took, in truth */
	bool doomed;                   /* behind a fault: cancelled */
	bool elsewhere;                /* invalidates on another queue pair than the window's */
	const struct sim_window *held; /* stays as it is until this has ended */
	bool may_fail;                 /* its window is being taken away */
	uint32_t troubles;             /* of the pair when it was posted */
	uint64_t posted_at;
	uint32_t psn;         /* first */
	uint32_t wire_packet; /* of a fault that the network makes: which packet */
	uint32_t refused_at;  /* and in which one the responder finds it */
	uint32_t wire_choice;
	bool received; /* its receive has completed with it */
	bool executed; /* the peer has carried it out, for certain */
};

/* --- windows ---------------------------------------------------------------------- */

enum window_state {
	WINDOW_FREE,
	WINDOW_BINDING,
	WINDOW_BOUND,
	WINDOW_ENDING, /* an invalidate of either side is posted */
	WINDOW_UNSURE, /* whether it is bound was lost with the queue pair */
};

/* A window of an end, for requests of its peer. */
struct sim_window {
	struct end *owner;
	uint32_t index; /* of lib/memory */
	enum window_state state;
	uint32_t token;
	uint32_t rights;
	uint32_t offset, length; /* in the host's memory */
	bool tied;
	/*
	 * It may lie in the memory of another pair's end on the same host, in that one's life;
	 * then the peer of that one uses it, on a queue pair that is not the owner's.
	 */
	struct end *lent;
	uint32_t lent_life;
	/* When its invalidate was posted: turns of all workers, and of which daemon. */
	uint64_t asked[SIM_WORKERS];
	uint32_t asked_generation;
	bool fast; /* no window: a region for fast registration, under two tokens for life */
	uint32_t local_token;    /* fast */
	bool own;                /* fast: over sources or sinks, for its owner's own requests */
	struct sim_buffer *echo; /* a READ through it, to come once more when it is dead */
	bool strip;              /* the window over the strip */
	bool watched;            /* strip: it is dead and nothing may change there any more */
	uint8_t *seen;           /* strip: its bytes when it died */
};

/* --- queue pairs ------------------------------------------------------------------ */

struct sim_cq {
	struct host *host;
	uint32_t index;
	uint32_t depth;
	struct shm_cq *memory;
	uint32_t head[SIM_WORKERS];
	uint32_t notify;
	uint32_t arm; /* what the client armed and has not been told about */
	uint32_t arm_tail[SIM_WORKERS];
	uint32_t arm_generation; /* of the daemon when it was armed */
	bool owed;               /* an entry that it asked for came, and the daemon died over it */
};

/* Receives of the queue pairs of one worker; `shape`: what all of them can take. */
struct sim_srq {
	struct host *host;
	uint32_t index;
	uint32_t depth, sge;
	struct shm_srq *memory;
	uint32_t area; /* in the host's memory */
	struct receive shape;
	struct receive entry[SIM_SRQ];
	bool used[SIM_SRQ];
	uint32_t posted;
	bool foreign;   /* of another protection domain than its queue pairs */
	uint64_t hold;  /* until then none are posted */
	uint32_t limit; /* whose event is owed; 0: none is */
	uint32_t limit_restarts;
};

/* A request that leaves, by its PSNs. */
struct message {
	uint32_t psn, packets;
	uint32_t op;
	uint8_t kind;
	bool answered; /* READ: at all; up to which response last */
	bool done;     /* and all of it, once */
	uint32_t response;
	uint32_t asks; /* how many frames of it have left, and copies of them */
	/* READ: once more as far as this packet only, the last one of so many bytes; 0: never. */
	uint32_t piece_end, piece_rest;
	uint64_t sent_at; /* its first packet, or where it was gone back to */
};

struct end {
	struct pair *pair;
	struct host *host;
	struct end *peer;
	unsigned int side;
	uint32_t source, sink, target, strip, receive_area;

	uint32_t index, number, worker;
	bool move_wanted, moving; /* to another worker; between two of them */
	uint32_t move_to;
	uint32_t life; /* upper half of its request contexts */
	struct qp_config config;
	struct qp_connection connection;
	struct sim_cq *send_cq, *receive_cq;
	struct sim_srq *srq; /* NULL: receives of its own */

	/* Requests: oldest .. head have completed and are kept, head .. tail are to complete. */
	struct op *op[SIM_RING];
	uint32_t oldest, head, tail;
	uint32_t next_match;            /* first that may still want a receive */
	struct shm_cqe entry[SIM_RING]; /* completions of requests, taken and not looked at */
	uint32_t entries;

	/* Receives: head .. tail are to complete; next_match: first without a request. */
	struct receive receive[SIM_RING];
	uint32_t receive_head, receive_tail, receive_match;
	uint32_t receive_place; /* in the receive area: where the next buffer goes */
	uint64_t hold_receives; /* until then none are posted */

	struct sim_window window[SIM_WINDOWS + 1];
	uint32_t elsewhere; /* of its windows, invalidated on others' queue pairs just now */

	/* What is known of its frames. */
	struct message message[SIM_MESSAGES];
	uint32_t messages; /* posted, ever */
	uint32_t next_psn; /* behind the last of them */
	uint32_t sent_psn; /* behind the last that has left */
	uint32_t source_port;
	uint32_t marks;     /* frames that came to it marked as congested */
	uint64_t marked_at; /* when it had to tell its peer last, and how often it had to */
	uint32_t cnps_due;
	uint64_t cnp_at; /* when it told its peer last, how often restarted by then */
	uint32_t cnp_restarts;
	uint32_t cnps;
	uint64_t slowed_at;  /* when its peer told it first; 0: not yet */
	uint64_t cut_at;     /* when its rate was cut last; 0: never */
	uint64_t slow_bytes; /* of data that it has sent since, in so many frames */
	uint32_t slow_frames;
	uint64_t arrival;      /* of the last frame to it */
	uint32_t goes_on;      /* PSN behind the frame that left last */
	uint32_t last_inv_psn; /* of the last SEND with invalidate that came, and when */
	uint64_t inv_turns[SIM_WORKERS];
	uint32_t inv_generation;
	uint32_t asks;       /* for an answer that never comes, since it was the oldest */
	uint32_t tries;      /* the oldest that waits has left again, since the last progress */
	uint32_t returns;    /* and so often as the first that did */
	uint64_t progressed; /* when an answer took its requester further last */
	bool rnr_since;      /* an RNR NAK has come since */
	bool gap_since;      /* one for a gap */
	uint32_t gap_psn;    /* of its last NAK for a gap */
	uint32_t told_psn;   /* of its last NAK for one, or for want of a receive */
	uint32_t ahead_of;   /* what it waited for when a later frame came, and when that was */
	uint64_t ahead_at;   /* 0: none has come */
	uint32_t furthest;   /* PSN of a request that came to it, of all that did */
	bool came;
	bool gap_told, rnr_waits;
	bool over;              /* it has sent the NAK that ends it, and says no more */
	bool rnr_blind;         /* whether it heeds them cannot be said */
	uint32_t rnr_psn, rnrs; /* RNR NAKs that have come for this PSN */
	uint64_t rnr_until;     /* that PSN is not sent before */
	uint64_t rnr_latest;    /* and not much later than this */
	uint32_t nak_psn;       /* of the last NAK for a gap that came to it, and when that was */
	uint64_t nak_due;       /* 0: it was heeded, or need not be */

	/* READs and atomics: it may have more outstanding than its peer keeps. */
	bool greedy;
	uint32_t accepted, finished; /* of its peer's */

	/* Its end. */
	struct op *fault;      /* the wrong request that was posted here */
	uint32_t doomed_left;  /* requests that still follow it */
	bool failed;           /* a request did not succeed */
	bool receive_failed;   /* a receive did not */
	int32_t failed_status; /* of the first */
	struct op *failed_op;
	bool flush_asked, flushed;
	bool flushed_alive;  /* asked while it lived: no event of an error is due */
	bool nak_taken;      /* a fatal NAK was delivered to it in time */
	bool refused;        /* it has sent a NAK that ends it */
	bool condemned;      /* its daemon died when it had told of its end: the next one ends it */
	uint64_t adopted_at; /* turns of its worker */
	bool nak_owed;       /* when its daemon died */
	uint32_t error_events, bad_token_events, established_events, last_receive_events;
	bool receives_over; /* it has been told so */
	uint32_t restarts;  /* deaths of its daemon: events may be lost, or come again */
	uint32_t error_async;
};

enum pair_state { PAIR_ALIVE, PAIR_ENDING, PAIR_CLOSING, PAIR_GONE };

struct pair {
	struct world *world;
	uint32_t number;
	enum pair_state state;
	struct end end[2];
	uint32_t mtu;
	uint32_t life;                       /* requests until something is done to it */
	uint32_t troubles;                   /* frames that went wrong in its whole life */
	uint64_t trouble_time[SIM_TROUBLES]; /* of the last ones */
	uint64_t flush_at;
	uint64_t progress; /* time of the last completion */
	bool no_receives;  /* FAULT_NO_RECEIVE is under way */
	bool bad_receive;  /* one that will turn its message into a fault is posted */
	bool armed;        /* what is to end it has been set going */
	bool strict;       /* receives are always there before their messages */
	bool tight;        /* they are not, and RNR retries have an end */
};

/* --- hosts ----------------------------------------------------------------- */

struct sim_worker {
	struct host *host;
	unsigned int number;
	struct transport *transport;
	struct sim_srq *srq; /* or NULL */
	bool fresh;          /* has not run since its daemon adopted the arena */
	uint32_t room;       /* frames that get() still gives in this turn */
	struct sim_buffer **arrived;
	uint32_t arrived_head, arrived_tail, arrived_size;
	uint32_t returned[SIM_RETURNS]; /* chains of records that others had */
	uint32_t returns;
	uint64_t turns;  /* each ends with a quiescent state */
	uint32_t events; /* of this turn */
};

struct token_list {
	uint32_t *token;
	uint32_t count, size;
};

/* What was reached through a window that is no more. */
struct dead_window {
	uint32_t token, rights;
	uint32_t offset, length;
	uint32_t next; /* token in the same place; 0: not known */
};

struct host {
	struct world *world;
	unsigned int number;
	struct arena arena;
	struct memory *memory;
	struct transport_shared *shared;
	unsigned int workers;
	struct sim_worker worker[SIM_WORKERS];
	struct shm_session *session;
	int memfd;
	uint32_t size;
	uint8_t *bytes; /* as the client sees them */
	uint8_t *model; /* as they should be */
	uint64_t base;  /* address of byte 0 */
	uint32_t segment, pd, other_pd, region, other_region, read_region;
	uint32_t local[2], remote; /* tokens of the region; of a second one over the same bytes */
	uint32_t second_region;
	uint32_t other_local, other_remote; /* tokens in the other domain */
	uint32_t other_window, other_window_token, other_fast;
	uint32_t read_only;               /* local token that allows no write */
	uint32_t gone_region, gone[2];    /* deregistered, not yet finished; its tokens */
	uint32_t crooked_region, crooked; /* and remote token */
	struct token_list stock;
	struct dead_window dead[SIM_DEAD]; /* those that were, the newest of them */
	uint32_t deads;
	uint32_t returned; /* tokens that workers have put into the stock */
	uint32_t stock_head[SIM_WORKERS];
	struct sim_cq *shared_cq;
	struct memory_sizes memory_sizes;
	struct transport_sizes sizes;
	uint32_t kill_in;       /* calls out of the transport until the daemon dies; 0: it lives */
	uint32_t stores_left;   /* the same in stores */
	uint32_t die_over;      /* opcode of a frame over which it is to die; 0: none */
	uint32_t record_stores; /* as stores_left, from the next store to a record of this table on
				 */
	uint32_t record_table;
	const uint8_t *mapped; /* byte 0 of the client's memory as the daemon sees it */
	bool placing;          /* one packet, whose bytes are known up to this one */
	size_t placed;
	bool in_turn;
	jmp_buf death;
	uint32_t generation; /* changes with each death, and when all is published again */
	uint32_t moves;      /* queue pairs that have changed workers */
	bool notified;       /* the client was woken since it last looked */
	bool told_last;      /* that a queue pair has its last receive, in this turn */
	uint8_t mac[6], v4[16], v6[16];
	struct wire_usual usual;
};

struct sim_buffer {
	struct pktbuf packet; /* first */
	struct sim_buffer *next;
	struct sim_buffer *older; /* all there are */
	struct host *holder;      /* whose daemon has it in hand */
	bool given;               /* to the transport, to fill */
	bool unkept;              /* the transport may not keep it */
	bool fatal;               /* a NAK that ends the queue pair, as it was sent */
	bool rnr, gap;            /* an RNR NAK, one for a gap, as it was sent */
	uint32_t take;            /* no frame: this queue pair comes from another worker */
	bool future;              /* its PSN is to become one that was never sent */
	bool again;               /* a copy that is to ask for something else than the original */
	uint8_t bytes[4096 + 256];
};

/* --- network --------------------------------------------------------------- */

/* What was done to a frame that the receiver must not take. */
enum tamper {
	TAMPER_NONE,
	TAMPER_BITS,   /* any bits: the ICRC or the parser finds it, or they were free to change */
	TAMPER_REFUSE, /* ICRC repaired: the transport has to refuse it */
	TAMPER_HARMLESS, /* ICRC repaired: must make no difference */
	TAMPER_WILD,     /* ICRC repaired: anything may come of it */
};

struct flying {
	uint64_t due;
	uint64_t order;
	struct sim_buffer *buffer;
	uint8_t to; /* host */
	uint8_t tamper;
	bool must_fail; /* TAMPER_BITS: the ICRC does not fit */
};

struct network {
	struct flying *heap;
	uint32_t count, size;
	uint64_t order;
	uint64_t last_due[2];   /* by direction: where frames queue up */
	uint64_t dark_until[2]; /* blackout */
	uint64_t next_dark;
	uint64_t narrow_until, next_narrow; /* links that take short frames only */
	uint32_t narrow;                    /* bytes */
	uint64_t weather_until;
	bool is_calm;
};

struct sim_statistics {
	uint64_t frames, lost, corrupt, forged, doubled, reordered;
	uint64_t requests, receives, lives, quiet_points;
	uint64_t timeouts_legal, flushed_lives;
	uint64_t kind[KINDS];
	uint64_t fault[FAULT_COUNT], exact[FAULT_COUNT];
	uint64_t revoked_in_use, strip_checks, restarts, moves;
	uint64_t loose, loose_received, wild, wild_lives, lost_alone, marked;
};

struct world {
	struct sim_config config;
	struct rng traffic, weather, schedule, parsing;
	uint64_t now;
	struct host host[2];
	struct pair *pair;
	struct loose *loose;
	uint32_t looses;
	struct network network;
	struct sim_buffer *free_buffers, *all_buffers;
	uint32_t buffers;    /* outside the pool */
	bool draining;       /* nothing new is posted until all is still */
	bool closing;        /* pairs that end are not replaced */
	uint64_t next_quiet; /* frames until the next comparison of all memory */
	uint32_t life;
	uint32_t idle_turns;
	uint64_t spoken;       /* when somebody sent something */
	uint64_t longest_wait; /* for any answer, before it is asked for again */
	uint64_t next_restart, next_move;
	uint64_t next_stall, stalled_until;
	uint32_t deaths;
	struct fault_deck *deck; /* of the run */
	FILE *log;
	struct sim_statistics statistics;
};

/* --- main.c ---------------------------------------------------------------- */

/* Tells what went wrong and how to see it again, and ends the program. */
_Noreturn void sim_fail(struct world *world, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void sim_log(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- world.c --------------------------------------------------------------- */

void world_run(struct world *world);

/* --- turn.c ---------------------------------------------------------------- */

/* Receives what has arrived, polls, reports quiescence. How much was done. */
unsigned int worker_turn(struct sim_worker *worker);
/* Some worker has not run since its daemon adopted the arena: not all may be shown. */
bool host_is_fresh(const struct host *host);

/* --- host.c ---------------------------------------------------------------- */

void host_create(struct world *world, unsigned int number);
void host_destroy(struct host *host);
/* What the control core tells the transport of a new process. */
void host_set_congestion(struct host *host);
void host_start_worker(struct sim_worker *worker, bool adopted);
struct sim_cq *cq_open(struct host *host, uint32_t depth, uint32_t notify);
void cq_close(struct sim_cq *cq);
uint64_t host_address(const struct host *host, uint32_t offset);
/* Those bytes, by one of the local tokens or now and then by the privileged one. */
struct shm_sge host_sge(const struct host *host, struct rng *rng, uint32_t offset, uint32_t length);
/* When all is still: no token is lost. */
void host_check_tokens(struct host *host);
/* For each token that was invalidated another is back. */
void host_check_returned(struct host *host);
/* The one that has come back since anybody looked; 0: none or several have. */
uint32_t host_newest_token(struct host *host);
/* A token for a bind, out of the session's stock. */
uint32_t host_take_token(struct host *host);
void token_list_add(struct token_list *list, uint32_t token);
/* The end that has this queue pair, by index or by number; NULL: none has. */
struct end *host_find_index(struct host *host, uint32_t index);
struct end *host_find_number(struct host *host, uint32_t number);
struct sim_buffer *buffer_take(struct world *world);
void buffer_return(struct world *world, struct sim_buffer *buffer);

/* --- restart.c -------------------------------------------------------------------- */

/* Called where the transport calls out: if it is time, the daemon dies here. */
void host_may_die(struct host *host);
_Noreturn void host_die(struct host *host);
/* The daemon is gone, and a new one takes over. */
void host_restart(struct host *host);

/* --- stores.c ---------------------------------------------------------------------- */

/* A worker of this host runs, not what it calls: its stores count. */
void stores_begin(struct host *host);
void stores_end(void);

/* --- move.c ------------------------------------------------------------------------ */

/* Now and then one is asked to change workers. */
void move_some(struct world *world);
/* Those leave that are asked to. */
void move_turn(struct sim_worker *worker);
/* A message of another worker, or a frame of a queue pair that has left: taken care of? */
bool move_receive(struct sim_worker *worker, struct sim_buffer *buffer, uint32_t qpn);
void move_return_flights(struct sim_worker *worker);

/* --- parse.c ------------------------------------------------------------------------ */

/* Both readers of lib/wire see this frame to a host, or what is made of it, for what it is. */
void parse_check(struct host *host, const uint8_t *frame, uint32_t length,
		 const struct frame_facts *facts);

/* --- network.c ------------------------------------------------------------- */

/* A frame leaves a host: decides its fate. */
void network_send(struct world *world, struct host *from, struct sim_buffer *buffer);
/* Hands over what is due. How many. */
unsigned int network_deliver(struct world *world);
/* Into the queue of what has arrived at a worker. */
void worker_queue(struct sim_worker *worker, struct sim_buffer *buffer);
uint64_t network_next(const struct world *world);
void network_destroy(struct world *world);
/* Something went wrong that a retry has to make good. */
/* The READ that was kept for it, now that it is dead. */
void network_echo(struct world *world, struct sim_window *window);
void pair_trouble(struct pair *pair);

/* --- witness.c -------------------------------------------------------------------- */

void witness_posted(struct end *end, struct op *op);
/* The network has brought it forth once more. */
void witness_copied(struct end *end, uint32_t psn);
/* A READ of which some responses have left, and not all. */
bool witness_in_answer(const struct end *end, const struct op *op);
/* Its message with this PSN, counted from 1 as an MSN is; 0: none that is remembered. */
uint32_t witness_find(const struct end *end, uint32_t psn);
const struct message *witness_message(const struct end *end, uint32_t number);
/* A READ of this end, by its PSN, has been asked for once more up to there. */
void witness_piece(struct end *end, uint32_t psn, uint32_t packets, uint32_t rest);
/* A READ or atomic. */
bool witness_returns(uint8_t kind);
/* Nothing holds its frames back, and so delays what an arrival has set off. */
bool witness_unhindered(const struct end *sender);
/* A frame of this end, as it leaves. */
void witness_sent(struct world *world, struct end *sender, const uint8_t *frame,
		  const struct frame_facts *facts);

/* --- arrival.c ------------------------------------------------------------- */

/* So many READs and atomics were taken at once. */
void witness_accepted(struct end *end, uint64_t count);
/* An RNR NAK, a frame marked as congested, a CNP, a NAK for a gap reach this end. */
void witness_mark(struct end *end);
void witness_cnp(struct end *end);
/* What it makes of a CNP: whether its rate was cut. */
void witness_cut(struct end *end, bool cut);
void witness_gap(struct end *end, uint32_t psn);
/* A request comes to this end, or a part of one. */
void witness_request(struct end *end, uint32_t psn, bool kept);
/* Its peer has been told of its marks. */
void witness_told(const struct end *end);
void witness_rnr(struct end *end, uint32_t psn, uint8_t code);

/* --- model.c --------------------------------------------------------------- */

void model_gather(const struct host *host, const struct piece *piece, uint32_t pieces,
		  uint8_t *out);
/* Whether two lists of pieces have a byte in common. */
bool pieces_overlap(const struct piece *a, uint32_t as, const struct piece *b, uint32_t bs);
enum hazard { HAZARD_NONE, HAZARD_FENCE, HAZARD_CONFLICT };
/* What stands between a request to be posted and those in hand. */
enum hazard model_hazard(const struct end *end, const struct op *op);
/* Carries a request out in the model. */
void model_execute(struct end *end, struct op *op);
/* Pairs requests that consume a receive with receives, as far as there are both. */
void model_match(struct end *sender);
/* A SEND lands in this receive, for certain. */
void model_place(struct end *sender, struct op *op, const struct receive *receive);
/* All memory is as the model says. */
void model_compare(struct world *world);
/*
 * A queue pair has ended: finds how far its requests came, from the bytes themselves, and
 * makes that the model's state. Fails when no point in the sequence of packets fits.
 */
void model_resolve(struct end *end);
void op_free(struct op *op);

/* --- queue.c --------------------------------------------------------------- */

void queue_post(struct end *end, struct op *op);
void queue_post_receive(struct end *end, struct receive *receive, const struct shm_sge *sge,
			uint32_t nsge);
/* Takes all completions of a CQ. How many. */
unsigned int cq_poll(struct sim_cq *cq);
void cq_arm(struct sim_cq *cq, uint32_t type);
/* Everything that an end has to be told. How many completions. */
unsigned int end_poll(struct end *end);

/* --- complete.c ------------------------------------------------------------ */

void complete_entry(struct host *host, const struct shm_cqe *cqe);
/* A receive of either kind, with the message that should have taken it. */
void receive_completed(struct end *end, struct receive *receive, const struct shm_cqe *cqe);
/* Requests whose entries were taken, and silent ones that the queue says are done. */
void complete_requests(struct end *end);

/* --- traffic.c, build.c, receive.c ----------------------------------------- */

/* The client of an end: posts receives and requests. How many. */
unsigned int traffic_turn(struct end *end);
/* A good request of this kind, not posted; NULL when none can be made now. */
struct op *op_build(struct end *end, enum op_kind kind);
/* The same though the queue pair may not allow it; and a SEND of this length. */
struct op *op_make(struct end *end, enum op_kind kind);
struct op *op_make_send(struct end *end, uint32_t length);
/* The right at the peer that a READ, WRITE or atomic needs. */
uint32_t op_right(enum op_kind kind);
void traffic_post(struct end *end, struct op *op);
/* Whether one more request fits into the queue. */
bool traffic_room(const struct end *end);
/* Bytes of a message: none, few, around multiples of the path MTU, many. */
uint32_t draw_length(struct end *end, uint32_t most);
unsigned int receive_turn(struct end *end);
enum receive_kind { RECEIVE_GOOD, RECEIVE_BAD_TOKEN, RECEIVE_BAD_SHAPE };
/* How long an RNR NAK of this code makes wait, ns. */
uint64_t rnr_time(uint8_t code);
bool receive_post(struct end *end, enum receive_kind kind);
/* The receive that the next message to this end will take, or NULL. */
struct receive *receive_next(const struct end *end);
/* The request of the peer that waits for a receive, or NULL. */
struct op *receive_waiting(const struct end *end);

/* --- srq.c ---------------------------------------------------------------------------- */

void srq_open(struct sim_worker *worker);
void srq_close(struct sim_worker *worker);
unsigned int srq_turn(struct sim_srq *srq);
void srq_completed(struct end *end, const struct shm_cqe *cqe);
void srq_limit_event(struct host *host, uint32_t index, uint32_t left);
/* When all is still: none is lost. */
void srq_check(const struct sim_srq *srq);

/* --- window.c -------------------------------------------------------------- */

void window_create_all(struct end *end);
void window_destroy_all(struct end *end);
/* Binds, invalidates. How many requests were posted. */
unsigned int window_turn(struct end *end);
/* Invalidates the window over the strip while a READ of it is answered; 0: there is none. */
unsigned int window_break_off(struct end *end);
void window_completed(struct end *end, struct op *op, bool success);
/* The receive of a SEND with invalidate says that the window is dead. */
void window_invalidated(struct sim_window *window);
/* The end of its grace period is at hand; what it is measured from. */
void window_note_turns(const struct host *host, uint64_t turns[SIM_WORKERS], uint32_t *generation);
void window_check_grace(const struct end *end, const struct sim_window *window,
			const uint64_t turns[SIM_WORKERS], uint32_t generation);
/* Any window of this end that grants these rights for length bytes; NULL: none. */
struct sim_window *window_pick(struct end *end, uint32_t rights, uint32_t length);
/* The strip is as it was when its window died. */
void window_watch(struct end *end);
/* A bind of this free window, not posted. */
struct op *window_bind_op(struct end *end, struct sim_window *window);
bool window_in_use(const struct sim_window *window);
/* No more uses of windows that others may use; whether some are still under way. */
bool windows_lent(struct end *end);

/* --- pair.c ---------------------------------------------------------------- */

void pair_open(struct world *world, uint32_t number);
/* Watches for the end of a pair, ends it, replaces it unless the world is closing. */
unsigned int pair_turn(struct pair *pair);
/* Ends it now. */
void pair_flush(struct pair *pair);
void pair_close(struct pair *pair);
bool pair_is_still(const struct pair *pair);

/* --- judge.c --------------------------------------------------------------- */

/* A request did not succeed: was that to be expected? */
void judge_failure(struct end *end, struct op *op, int32_t status);
/* Its daemon has died; the next one has not seen it yet. Has what it then must do been done? */
void judge_adopted(struct end *end);
void judge_condemned(const struct end *end);
/* All of a queue pair's completions and events are there: do they fit each other? */
void judge_end(const struct end *end);

#endif
