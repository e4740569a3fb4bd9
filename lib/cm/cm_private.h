/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of the connection manager share: the connection record, its states, the
 * indexes that find it.
 *
 * Calls go one way: receive.c -> passive.c, active.c, disconnect.c -> send.c, connection.c.
 * An event is the last thing that a function does to a record, or the function looks at the
 * record's state again: the owner may have moved it on from inside the event.
 */
#ifndef CM_CM_PRIVATE_H
#define CM_CM_PRIVATE_H

#include "cm/cm.h"
#include "cm/index.h"

#define CM_SLOW_APPLICATION (500 * CM_NANOSECONDS_PER_MS) /* from here on an MRA is worth it */

#define CM_NANOSECONDS_PER_MS 1000000ull

enum connection_state {
	CONNECTION_FREE,          /* nobody's: on the free list */
	CONNECTION_REQ_RECEIVED,  /* passive: the application has the request */
	CONNECTION_REP_SENT,      /* passive: RTU or the first data is awaited */
	CONNECTION_REQ_SENT,      /* active: REP is awaited */
	CONNECTION_REP_RECEIVED,  /* active: the application has the reply */
	CONNECTION_ESTABLISHED,   /* both sides may send */
	CONNECTION_DREQ_SENT,     /* DREP, or the peer's own DREQ, is awaited */
	CONNECTION_SIDR_RECEIVED, /* passive: the application has the question */
	CONNECTION_SIDR_SENT,     /* active: the answer is awaited */
	CONNECTION_TIMEWAIT,      /* over, but ids and QPN stay taken until stragglers are gone */
	CONNECTION_WITHDRAWN,     /* passive: the peer gave up, the application has yet to hear */
	CONNECTION_STATES
};

struct connection {
	uint8_t state; /* enum connection_state */
	uint8_t passive;
	uint8_t released;    /* the owner wants no event but CM_TIMEWAIT_OVER */
	uint8_t repeats;     /* how often the timer may still repeat `mad` */
	uint8_t max_repeats; /* the REQ's max CM retries */
	uint8_t space;       /* of the service asked for */
	uint16_t port;
	uint32_t local_id;
	uint32_t remote_id; /* 0: not known yet */
	uint32_t local_qpn;
	uint32_t remote_qpn;
	uint32_t listener;         /* while undecided, else 0 */
	uint8_t told_disconnected; /* the owner knows; what else ends is our affair */
	uint8_t alternate;         /* the REQ names an alternate path */
	uint8_t reserved[2];
	uint64_t tid; /* of the REQ; REP, RTU, MRA and REJ copy it */
	uint64_t cookie;
	uint64_t since;    /* ns: when the request or reply was given to the application */
	uint64_t deadline; /* ns; 0: no timer runs */
	uint64_t interval; /* ns between repetitions */
	uint64_t timewait; /* ns */
	uint64_t remote_guid;
	struct cm_address address;
	uint8_t mad[256]; /* what was sent last and may have to be sent again */
};

_Static_assert(sizeof(struct cm_address) == 40, "a connection record holds one");
_Static_assert(offsetof(struct connection, tid) == 32, "connection record layout");
_Static_assert(offsetof(struct connection, mad) == 128, "connection record layout");
_Static_assert(sizeof(struct connection) == 384, "connection record layout");

struct cm_listener {
	uint64_t cookie;
	uint8_t gid[16];
	uint32_t pending; /* requests that the application has not decided on */
	uint16_t port;
	uint8_t space;
	bool used;
	bool paused;
};

struct cm {
	struct cm_config config;
	struct cm_io io;
	struct arena *arena;
	uint64_t seed; /* of the hashes */
	struct cm_statistics statistics;
	uint32_t in_state[CONNECTION_STATES];

	struct cm_index by_local_id;  /* every record but free ones */
	struct cm_index by_remote_id; /* peer address, id: as soon as the id is known */
	struct cm_index by_qpn;       /* peer address, GUID, QPN: while connected or about to be */
	struct cm_index by_peer;      /* peer address: what is_of_peer() counts */

	uint32_t *free_ring; /* free records, the longest free one first */
	uint32_t free_first, free_count;
	uint32_t evicted; /* the last record that gave way */
	uint32_t *heap;   /* records with a timer, the earliest at 1 */
	uint32_t *heap_place;
	uint32_t heap_count;

	struct cm_listener *listener; /* 0 holds adopted requests that wait for theirs */
	uint32_t listeners;           /* size of the array */
};

/* connection.c */
struct connection *cm_connection_at(const struct cm *cm, uint32_t index);
/* A record in any state but free; NULL for an index that no caller should have. */
struct connection *cm_connection_get(const struct cm *cm, uint32_t index);
uint32_t cm_connection_index(const struct cm *cm, const struct connection *c);
bool cm_connection_make_room(struct cm *cm); /* for one; false: all are in use */
struct connection *cm_connection_create(struct cm *cm, const struct cm_address *address);
void cm_connection_set_remote(struct cm *cm, struct connection *c, uint32_t remote_id);
void cm_connection_set_state(struct cm *cm, struct connection *c, enum connection_state state);
/* Of one that is asked. The application, which is told next, lets go of it. */
void cm_connection_withdraw(struct cm *cm, struct connection *c);
void cm_connection_adopt(struct cm *cm, struct connection *c);
/* Tells CM_TIMEWAIT_OVER and frees the record. */
void cm_connection_finish(struct cm *cm, struct connection *c);
void cm_connection_enter_timewait(struct cm *cm, struct connection *c, uint64_t now);
struct connection *cm_connection_by_local_id(const struct cm *cm, uint32_t local_id);
/* after: where to go on, NULL at first. Several may share an id: one lives, others end. */
struct connection *cm_connection_by_remote_id(const struct cm *cm, const uint8_t peer[16],
					      uint32_t remote_id, const struct connection *after);
/* The connection with this peer that has this id of ours; with its own id too, once known. */
struct connection *cm_connection_of_own_id(const struct cm *cm, const struct cm_address *from,
					   uint32_t local_id);
struct connection *cm_connection_of_both_ids(const struct cm *cm, const struct cm_address *from,
					     uint32_t remote_id, uint32_t local_id);
struct connection *cm_connection_by_qpn(const struct cm *cm, const uint8_t peer[16], uint64_t guid,
					uint32_t qpn);
bool cm_connection_is_pending(const struct connection *c); /* begun, and not up yet */
bool cm_connection_is_asked(const struct connection *c);   /* the application owes an answer */
/* Asked, and not let go since: what a peer takes back goes on counting against its limits. */
bool cm_connection_is_undecided(const struct connection *c);
bool cm_connection_was_refused(const struct connection *c);
/* Of this peer's requests: those not up yet; its answered questions that are remembered. */
uint32_t cm_connection_pending_of_peer(const struct cm *cm, const uint8_t peer[16]);
uint32_t cm_connection_answered_of_peer(const struct cm *cm, const uint8_t peer[16]);
void cm_connection_event(struct cm *cm, struct connection *c, enum cm_event_type type,
			 uint32_t reason, const struct cm_parameters *parameters);

/* timers.c */
int cm_timers_create(struct cm *cm, uint32_t records);
void cm_timers_destroy(struct cm *cm);
void cm_timers_set(struct cm *cm, struct connection *c, uint64_t deadline);
void cm_timers_stop(struct cm *cm, struct connection *c);
uint64_t cm_timers_from_code(uint32_t code); /* 4.096 us * 2^code */
/* How long to wait for an answer of a peer whose CM needs this long at most. */
uint64_t cm_timers_interval(uint32_t response_code);
uint64_t cm_timers_timewait(uint32_t ack_timeout_code);
uint64_t cm_timers_service(uint32_t service_code); /* after an MRA */

/* listen.c */
/* 0: nobody listens there, or is paused. */
uint32_t cm_listener_find(const struct cm *cm, enum cm_port_space space, const uint8_t gid[16],
			  uint16_t port);
int cm_listener_grow(struct cm *cm);

/* send.c */
uint64_t cm_own_guid(const struct cm *cm);
void cm_send_mad(struct cm *cm, const struct cm_address *to, const uint8_t mad[256]);
void cm_send_again(struct cm *cm, const struct connection *c);
void cm_send_req(struct cm *cm, struct connection *c, const struct cm_parameters *p);
void cm_send_rep(struct cm *cm, struct connection *c, const struct cm_parameters *p);
void cm_send_rtu(struct cm *cm, struct connection *c, const uint8_t *private_data, uint32_t length);
void cm_send_mra(struct cm *cm, const struct connection *c, enum cm_subject subject);
void cm_send_dreq(struct cm *cm, struct connection *c);
void cm_send_drep(struct cm *cm, const struct cm_address *to, const struct cm_dreq *dreq,
		  uint64_t tid);
/* A refusal that belongs to a connection is kept for repetition, the other kind is not. */
struct cm_refusal {
	uint32_t reason;
	const uint8_t *ari;
	uint32_t ari_length;
	const uint8_t *private_data;
	uint32_t private_length;
};
void cm_send_rej(struct cm *cm, struct connection *c, enum cm_subject subject,
		 const struct cm_refusal *refusal);
void cm_send_rej_stray(struct cm *cm, const struct cm_address *to, uint64_t tid, uint32_t remote_id,
		       const struct cm_refusal *refusal);
void cm_send_rej_timeout(struct cm *cm, struct connection *c);

/* passive.c */
void cm_passive_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			uint64_t tid, uint64_t now);
void cm_passive_rtu(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		    uint64_t now);
/* The listener went away. */
void cm_passive_drop(struct cm *cm, struct connection *c);

/* request.c */
/* 0 and 1 are for management and the last one is for groups: no connection ends there. */
bool cm_qpn_possible(uint32_t qpn);
/* What a REQ asks for, and what its refusal has to say. */
struct request_target {
	enum cm_port_space space;
	uint16_t port;
	uint32_t listener;
	uint8_t ari[16];
	uint32_t ari_length;
};
/* Can this REQ be served here? 0, or the reason to refuse it. */
uint32_t cm_request_check(struct cm *cm, const struct cm_address *from, const struct cm_req *req,
			  struct request_target *target);
/* For a REQ that passed: what the application gets to see. */
void cm_request_parameters(const struct cm_req *req, const struct request_target *target,
			   struct cm_parameters *parameters);

/* sidr.c */
void cm_sidr_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t tid, uint64_t now);
void cm_sidr_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256]);
int cm_sidr_accept(struct cm *cm, struct connection *c, uint64_t cookie,
		   const struct cm_parameters *parameters, uint64_t now);
int cm_sidr_reject(struct cm *cm, struct connection *c, const struct cm_refusal *refusal,
		   uint64_t now);
void cm_sidr_drop(struct cm *cm, struct connection *c); /* refuses; the caller ends it */
int cm_sidr_resolve(struct cm *cm, const struct cm_address *address,
		    const struct cm_parameters *parameters, uint64_t cookie, uint32_t *connection,
		    uint64_t now);

/* active.c */
void cm_active_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t now);

/* True: the request is on its way again with a smaller path MTU, which the refusal offered. */
bool cm_active_lower_mtu(struct cm *cm, struct connection *c, const struct cm_rej *rej,
			 uint64_t now);

/* reject.c */
void cm_reject_connection(struct cm *cm, struct connection *c, const struct cm_refusal *refusal,
			  uint64_t now);
void cm_reject_received(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			uint64_t now);
void cm_mra_received(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t now);

/* disconnect.c */
void cm_disconnect_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			   uint64_t tid, uint64_t now);
void cm_disconnect_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			 uint64_t now);
void cm_disconnect_done(struct cm *cm, struct connection *c, uint32_t given_up, uint64_t now);
void cm_disconnect_peer_gone(struct cm *cm, struct connection *c, uint32_t reason, uint64_t now);
/* The peer has a new connection on the queue pair of this one: it lost the old one. */
void cm_disconnect_stale(struct cm *cm, struct connection *c, uint64_t now);

#endif
