/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of lib/control share. */
#ifndef CONTROL_PRIVATE_H
#define CONTROL_PRIVATE_H

#include "control/control.h"
#include "control/queue_memory.h"
#include "shm/spsc.h"
#include "shm/status.h"

/* Replies that a client has not taken yet, beyond what its ring holds. */
struct pending_reply {
	struct pending_reply *next;
	struct shm_reply reply;
};
#define MOST_PENDING_REPLIES  4096u
#define MOST_PENDING_REQUESTS 4096u /* to connect, of peers */

/* The process-local half of a session. */
struct session_local {
	struct shm_session *memory;
	uint64_t size;
	int socket;
	int event_fd; /* write end of the pipe that wakes the client; workers write it too */
	uint32_t request_head;
	uint32_t reply_tail;
	struct pending_reply *pending_first, **pending_last;
	uint32_t pending_replies, pending_events;
	bool wake;               /* something was written for the client */
	uint64_t refused_cookie; /* of the last memory that could not be had */
	int refused_error;       /* 0: none */
	struct queue_pool queues;
	uint32_t detaching; /* commands to workers that are still out */
	uint64_t grace;
};

struct object_local {
	void *segment;                /* QP, CQ, SRQ: its shared memory */
	struct queue_segment *shared; /* QP: with others in there, or NULL */
	uint32_t connector;           /* QP: object that connects it, 0: none */
	bool shut_out;                /* QP: failed, since its peer guesses tokens */
	/* What holds a local address. */
	uint32_t endpoint_space; /* enum cm_port_space; 0: holds none */
	uint32_t endpoint_next;  /* in its bucket */
	/* CQ that is resized: its new segment, and workers that use the old one yet. */
	void *next_segment;
	uint64_t next_size;
	uint32_t to_switch;
	/* Region whose close waits for the end of its windows. */
	uint32_t next_to_close;
	bool to_close;
};

struct waiting_request; /* wait.c */
struct incoming;        /* incoming.c */

/* A command that found the ring of its worker full. */
struct pending_command {
	struct pending_command *next;
	struct worker_command command;
};

struct offender {
	uint8_t gid[16];
	uint32_t count;        /* bad tokens in this minute */
	uint64_t window_start; /* ns */
	uint64_t shut_until;   /* ns; 0: not shut out */
};
#define MAX_OFFENDERS 256u

/* A socket that has connected and not said hello. */
struct greeter {
	int socket;
	uint64_t deadline; /* ns */
};
#define MAX_GREETERS     32u
#define GREETER_PATIENCE 5000000000ull

#define ENDPOINT_BUCKETS 4096u

struct control {
	struct control_config config;
	struct arena *arena;
	struct memory *memory;
	struct transport_shared *shared;
	struct net *net;
	struct cm *cm;
	struct net_io net_io;
	uint64_t now;
	uint64_t cm_due;
	int listener;
	int epoll;
	uint32_t free_object; /* list */
	uint32_t object_watermark;
	bool failed;              /* see control_fail() */
	uint32_t highest_session; /* ever opened */
	struct session_local session[CONTROL_MAX_SESSIONS];
	struct object_local *object_local; /* by object index */
	uint32_t *qp_object;               /* by transport QP index */
	uint32_t highest_qp;               /* index that was ever in use */
	uint32_t load[NET_MAX_WORKERS];    /* see least_loaded_worker() */
	uint32_t load_lasts;
	uint32_t *cq_object;                        /* by transport CQ index */
	uint32_t *srq_object;                       /* by transport SRQ index */
	uint32_t *connection_object;                /* by the CM's connection index */
	uint32_t endpoint_bucket[ENDPOINT_BUCKETS]; /* lists of objects, by local port */
	struct greeter greeter[MAX_GREETERS];
	struct pending_command *command_first[NET_MAX_WORKERS];
	struct pending_command **command_last[NET_MAX_WORKERS];
	struct offender offender[MAX_OFFENDERS];
	uint32_t *graces; /* object indices that wait for object.grace */
	uint32_t grace_count;
	uint32_t region_to_close; /* list of those whose close met bound windows */
	bool segments_to_unmap;   /* detached, wait for their grace period */
	uint32_t resolving;       /* connectors in CONNECTOR_RESOLVING */
	struct waiting_request *first_waiting, *retried;
	uint32_t waiting;
	struct incoming *first_incoming;
	uint32_t last_incoming; /* session that had its turn */
	struct control_status status;
	struct shm_limits limits; /* what holds: a session's copy is its client's to write */
};

/* The highest version offered; 1.1 and 1.2 are offered as well. */
#define CONTROL_NDK_MAJOR 2
#define CONTROL_NDK_MINOR 1

/* What an epoll event is about; the number is in the lower half. */
#define EPOLL_LISTENER (1ull << 32)
#define EPOLL_GREETER  (2ull << 32)
#define EPOLL_SESSION  (3ull << 32)
#define EPOLL_WAKE     (4ull << 32)

uint64_t control_clock(void); /* ns, monotonic */
/* One line for the administrator. */
void control_say(const struct control *control, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/*
 * Promises to clients cannot be kept any more. A daemon says so and ends; in a process that is not
 * its own the control core stands still from here on, and its clients hear that it is gone.
 */
void control_fail(struct control *control, const char *reason);
int eventfd_create(void); /* or a negative errno */
void socket_peer(int socket, struct session *record);

/* --- object.c --- */
struct object *object_at(const struct control *control, uint32_t index);
struct object *object_create(struct control *control, uint32_t session, enum object_type type);
void object_free(struct control *control, struct object *object);
uint32_t object_index(const struct control *control, const struct object *object);
uint32_t object_handle(const struct control *control, const struct object *object);
/* By a client's handle: of this session, this type, not closing; else NULL. */
struct object *object_find(const struct control *control, uint32_t session, uint32_t handle,
			   enum object_type type);
void object_need(struct control *control, struct object *object, unsigned int slot,
		 struct object *needed);
/* Drops what the object needs; closes that waited for it go on. */
void object_release_needs(struct control *control, struct object *object);

/* --- session.c --- */
void session_fill_limits(const struct control *control, struct shm_limits *limits);
int session_open(struct control *control, int socket, const struct shm_hello *hello);
void session_end(struct control *control, uint32_t session, const char *reason);
unsigned int session_poll(struct control *control, uint32_t session);
void session_finish_if_quiet(struct control *control, uint32_t session);
struct session *session_at(const struct control *control, uint32_t session);
bool session_is_open(const struct control *control, uint32_t session);

/* --- reply.c --- */
void replies_init(struct session_local *local);
void replies_forget(struct session_local *local);
/* A client that has not read its events for long gets no more connect requests. */
bool client_is_behind(const struct control *control, uint32_t session);
void session_send(struct control *control, uint32_t session, const struct shm_reply *reply);
void session_flush(struct control *control, uint32_t session);
void reply_status(struct control *control, uint32_t session, uint32_t op, uint32_t id,
		  int32_t status);
/* Answers the asynchronous request that the object has in progress. */
void reply_pending(struct control *control, struct object *object, int32_t status);
void send_async(struct control *control, uint32_t session, uint32_t op, uint32_t handle,
		uint32_t event, uint32_t value);

void request_run(struct control *control, uint32_t session, const struct shm_request *request);

/* --- wait.c --- */
/*
 * For a handler that was told to ask for a neighbour again: what to return. The request is
 * run again until it gets an answer, or for too long.
 */
int32_t request_wait(struct control *control, uint32_t session, const struct shm_request *request);
void requests_retry(struct control *control);
void requests_forget(struct control *control, uint32_t session); /* 0: of all */

/* --- incoming.c --- */
/* Takes the descriptor. */
void incoming_add(struct control *control, uint32_t session, uint64_t cookie, int fd);
/* The next piece of somebody's. False: there was none. */
bool incoming_poll(struct control *control);
bool incoming_of(const struct control *control, uint32_t session); /* whether it has some */
/* Why there is no memory of this name: the client's fault, or ours. */
int32_t incoming_status(const struct control *control, uint32_t session, uint64_t cookie);
void incoming_forget(struct control *control, uint32_t session); /* 0: of all */

/* --- socket.c --- */
int socket_open(struct control *control, const char **message);
void socket_accept(struct control *control);
void socket_greeter_ready(struct control *control, unsigned int greeter);
void socket_expire_greeters(struct control *control);
/* True: nothing is left to be read. */
bool socket_session_ready(struct control *control, uint32_t session);
void socket_close(struct control *control);

/* --- request_*.c: one function per request --- */
typedef int32_t (*request_handler)(struct control *control, uint32_t session,
				   const struct shm_request *request, struct shm_reply *reply);
/* Each returns the status to reply with, or NT_PENDING when it will reply itself. */
int32_t request_create_pd(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_create_mr(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_create_mw(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_register_mr(struct control *, uint32_t, const struct shm_request *,
			    struct shm_reply *);
int32_t request_deregister_mr(struct control *, uint32_t, const struct shm_request *,
			      struct shm_reply *);
int32_t request_init_frmr(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_find_segment(struct control *, uint32_t, const struct shm_request *,
			     struct shm_reply *);
int32_t request_refill_tokens(struct control *, uint32_t, const struct shm_request *,
			      struct shm_reply *);
int32_t request_segment_drop(struct control *, uint32_t, const struct shm_request *,
			     struct shm_reply *);
int32_t request_create_cq(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_create_qp(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_resize_cq(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_create_srq(struct control *, uint32_t, const struct shm_request *,
			   struct shm_reply *);
int32_t request_modify_srq(struct control *, uint32_t, const struct shm_request *,
			   struct shm_reply *);
int32_t request_create_ah(struct control *, uint32_t, const struct shm_request *,
			  struct shm_reply *);
int32_t request_flush_qp(struct control *, uint32_t, const struct shm_request *,
			 struct shm_reply *);
int32_t request_connect_qp(struct control *, uint32_t, const struct shm_request *,
			   struct shm_reply *);
int32_t request_close(struct control *, uint32_t, const struct shm_request *, struct shm_reply *);
int32_t request_create_connector(struct control *, uint32_t, const struct shm_request *,
				 struct shm_reply *);
int32_t request_create_listener(struct control *, uint32_t, const struct shm_request *,
				struct shm_reply *);
int32_t request_create_endpoint(struct control *, uint32_t, const struct shm_request *,
				struct shm_reply *);
int32_t request_listen(struct control *, uint32_t, const struct shm_request *, struct shm_reply *);
int32_t request_control_events(struct control *, uint32_t, const struct shm_request *,
			       struct shm_reply *);
int32_t request_connect(struct control *, uint32_t, const struct shm_request *, struct shm_reply *);
int32_t request_complete_connect(struct control *, uint32_t, const struct shm_request *,
				 struct shm_reply *);
int32_t request_accept(struct control *, uint32_t, const struct shm_request *, struct shm_reply *);
int32_t request_resolve_datagram(struct control *, uint32_t, const struct shm_request *,
				 struct shm_reply *);
int32_t request_accept_datagram(struct control *, uint32_t, const struct shm_request *,
				struct shm_reply *);
int32_t request_reject(struct control *, uint32_t, const struct shm_request *, struct shm_reply *);
int32_t request_disconnect(struct control *, uint32_t, const struct shm_request *,
			   struct shm_reply *);

/* --- request_queue.c, for all kinds of queues --- */
/* The segment of a new queue, mapped here; its descriptor goes to the client. NULL: no memory. */
void *queue_segment_create(uint64_t size, int *fd);
/*
 * Before the reply to `request`, of which it is the second half: the client has the segment, its
 * mapping here is the object's, `fd` is closed. Or a negative errno, and nothing of this.
 */
int queue_segment_give(struct control *control, uint32_t session, uint32_t request,
		       const struct object *object, void *memory, int fd);
void queue_segment_drop(struct control *control, const struct object *object);
/* Where the next queue pair, or SRQ with its queue pairs, goes. */
uint32_t least_loaded_worker(struct control *control);

/* --- close.c --- */
/* Starts or continues the close of an object nobody needs any more. */
void close_continue(struct control *control, struct object *object);
void close_graces(struct control *control);
void grace_wait(struct control *control, struct object *object, uint64_t grace);
void qp_let_go(struct control *control, struct object *object); /* memory and tables of a QP */
void cq_let_go(struct control *control, struct object *object);
/* One more worker uses the new segment. */
void cq_resized(struct control *control, struct object *object);
void srq_let_go(struct control *control, struct object *object);
void ah_let_go(struct control *control, struct object *object);
/* The worker has told all that was in hand of a queue pair whose close waits for that. */
void close_qp_flushed(struct control *control, struct object *qp);

/* --- connection.c --- */
void connection_cm_event(void *context, const struct cm_event *event);
void connection_prepared(struct control *control, struct object *connector, int status);
void connection_qp_error(struct control *control, struct object *qp, uint32_t verdict);
void connection_established(struct control *control, struct object *qp);
void connection_resolve_pending(struct control *control);
void connection_close(struct control *control, struct object *connector);
/* Flushes the queue pair and then answers the disconnect that is pending. */
void connection_flush(struct control *control, struct object *connector);
int connection_prepare(struct control *control, struct object *connector);
int32_t resolve_status(int error); /* what a failure of net_resolve() is to a client */
int32_t connection_resolve(struct control *control, struct object *connector);
uint32_t connection_draw_psn(void); /* 24 random bits */

/* --- command.c --- */
/*
 * What the answer of a worker means; in the upper half of the cookie. In the lower: the handle of
 * an object, or the session.
 */
enum command_purpose {
	COMMAND_IGNORE = 1,
	COMMAND_QP_ATTACHED,
	COMMAND_QP_CONNECTED, /* of a connector */
	COMMAND_QP_FLUSHED,   /* of a connector whose disconnect waits */
	COMMAND_QP_DETACHED,
	COMMAND_QP_READY,   /* CONNECT_QP */
	COMMAND_CQ_RESIZED, /* in one worker */
	COMMAND_SESSION_ADDED,
	COMMAND_SESSION_REMOVED,
};
void command_send(struct control *control, unsigned int worker, uint32_t type, uint32_t index,
		  enum command_purpose purpose, uint32_t object,
		  const struct qp_connection *connection);
void command_resize_cq(struct control *control, struct object *cq, uint32_t depth,
		       struct shm_cq *memory);
void command_retry(struct control *control);
void command_done(void *context, unsigned int worker, uint64_t cookie, int status);
void command_moved(void *context, const struct worker_command *command);
void command_event(void *context, unsigned int worker, const struct transport_event *event);
void command_notify(void *context, uint32_t session);

/* --- endpoint.c --- */
/*
 * An address is held by its listener or shared endpoint until that is really gone, and by a
 * connector with an address of its own until that is closed, whatever became of the connection.
 */
bool endpoint_is_free(struct control *control, enum cm_port_space space,
		      const struct shm_address *address);
/* Fills in a free port of the ephemeral range, looking from a random one on; false: none. */
bool endpoint_choose_port(struct control *control, enum cm_port_space space, uint32_t random,
			  struct shm_address *address);
/* The object's connector.local; nothing happens when it holds it already, or no more. */
void endpoint_hold(struct control *control, struct object *object, enum cm_port_space space);
void endpoint_release(struct control *control, struct object *object);
/* Whether a connection of this shared endpoint goes there. */
bool endpoint_has_peer(struct control *control, const struct object *endpoint,
		       const struct shm_address *remote);

/* --- offender.c --- */
void offender_count(struct control *control, const uint8_t gid[16]);
bool offender_shut_out(struct control *control, const uint8_t gid[16]);

#endif
