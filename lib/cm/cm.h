/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The InfiniBand connection manager with the RDMA IP CM service: both sides of
 * REQ/REP/RTU, REJ, MRA, DREQ/DREP, SIDR, timewait. Sans-I/O and single-threaded: MADs and the time
 * come in, MADs and events go out.
 *
 * Connections live in the arena (ARENA_CONNECTIONS); lists and timers are rebuilt.
 */
#ifndef CM_CM_H
#define CM_CM_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/arena.h"
#include "wire/mad.h"

#define CM_PRIVATE_MAX 196u

enum cm_port_space { CM_PS_TCP = 0x06, CM_PS_UDP = 0x11, CM_PS_IB = 0x3f };

/* The two ends of a connection as the MADs travel. */
struct cm_address {
	uint8_t local_gid[16];
	uint8_t remote_gid[16];
	uint8_t remote_mac[6]; /* of the frame that came in; zero when not known */
	uint8_t traffic_class;
	uint8_t port; /* index of the local port */
};

enum cm_event_type {
	CM_CONNECT_REQUEST, /* passive: accept or reject it */
	CM_CONNECT_REPLY,   /* active: REP arrived; cm_ready() or cm_reject() */
	CM_ESTABLISHED,     /* passive: RTU, or data seen */
	CM_REJECTED,        /* by the peer: reason, private data; a request: taken back */
	CM_UNREACHABLE,     /* the peer does not answer */
	CM_DISCONNECTED,    /* DREQ arrived, or the peer was found gone; once */
	CM_DISCONNECT_DONE, /* our DREQ was answered, or given up (reason 1) */
	/*
	 * The connection's number and QPN are free again: the last event of every connection,
	 * released or not. Comes from inside cm_reject() and cm_release() when there is nothing
	 * to wait for, and from wherever a connection begins when the table is full.
	 */
	CM_TIMEWAIT_OVER,
};

/* All that a REQ or REP says that somebody needs; byte counts and host order. */
struct cm_parameters {
	uint32_t qpn;
	uint32_t starting_psn; /* the first that the sender expects to receive */
	uint32_t qkey;
	uint32_t path_mtu;           /* bytes; of the REQ, also when its REP is told */
	uint8_t responder_resources; /* as in the message, sender's view */
	uint8_t initiator_depth;
	uint8_t retry_count; /* REQ only */
	uint8_t rnr_retry_count;
	uint8_t ack_timeout;   /* REQ: local ACK timeout code; REP: target ACK delay code */
	uint8_t traffic_class; /* REQ */
	uint8_t hop_limit;     /* REQ */
	uint8_t srq;
	uint32_t flow_label;              /* REQ */
	uint16_t local_port, remote_port; /* of the CMA header, from our point of view */
	uint8_t private_length; /* bytes that follow; received: all that the message can carry */
	uint8_t private_data[CM_PRIVATE_MAX];
};

struct cm_event {
	enum cm_event_type type;
	uint32_t connection; /* index, 1 .. */
	uint64_t cookie;     /* of the connection; of the listener until cm_accept() */
	uint32_t reason;     /* CM_REJECTED: REJ reason; CM_DISCONNECTED: 0, or one as if by REJ */
	enum cm_port_space space;
	const struct cm_address *address;
	const struct cm_parameters *parameters; /* REQUEST, REPLY, REJECTED (private data only) */
};

struct cm_io {
	void (*send)(void *context, const struct cm_address *to, const uint8_t mad[256]);
	/* May call any cm function for the connection, but not cm_release(). */
	void (*event)(void *context, const struct cm_event *event);
	uint32_t (*random)(void *context);
	bool (*own_address)(void *context, const uint8_t gid[16]); /* is it one of our ports'? */
	uint32_t (*max_path_mtu)(void *context, const struct cm_address *address);
	void *context;
};

struct cm_config {
	uint32_t connections;       /* table size, index 0 included */
	uint32_t backlog;           /* requests undecided, per listener */
	uint32_t requests_per_peer; /* that are not up yet, of one source address */
	uint8_t ca_guid[8];
};

struct cm;
void cm_arena_spec(const struct cm_config *config, struct arena_spec spec[ARENA_TABLES]);
int cm_create(struct cm **cm, struct arena *arena, const struct cm_config *config,
	      const struct cm_io *io, bool adopted);
void cm_destroy(struct cm *cm);

/*
 * gid all zero: every address of ours. Port in host order. -EADDRINUSE (a listener's address
 * covers it), -EOPNOTSUPP (no such port space), -ENOMEM. CM_PS_UDP: questions for a UD queue pair
 * (SIDR) come as CM_CONNECT_REQUEST; cm_accept() with its qpn and qkey, or cm_reject(), answers,
 * and then only CM_TIMEWAIT_OVER follows.
 */
int cm_listen(struct cm *cm, enum cm_port_space space, const uint8_t gid[16], uint16_t port,
	      uint64_t cookie, uint32_t *listener);
void cm_pause(struct cm *cm, uint32_t listener, bool paused); /* as if nobody listened */
/* Rejects what still waits: CM_DISCONNECTED, CM_TIMEWAIT_OVER. */
void cm_unlisten(struct cm *cm, uint32_t listener);

void cm_receive(struct cm *cm, const struct cm_address *from, const uint8_t mad[256], uint64_t now);
/*
 * Timers. Returns the next time (ns) at which it wants to be called: at most 100 ms away, so
 * that what is begun between two calls needs no other wake-up.
 */
uint64_t cm_poll(struct cm *cm, uint64_t now);

/*
 * All of the following: -ENOTCONN when the connection is not in a state for it (any more),
 * -EMSGSIZE for more private data than the message can carry.
 */
/* Passive: the queue pair must be able to receive before this is called. */
int cm_accept(struct cm *cm, uint32_t connection, uint64_t cookie,
	      const struct cm_parameters *parameters, uint64_t now);
/* Either side before the connection is up. private_length at most 148. */
int cm_reject(struct cm *cm, uint32_t connection, uint32_t reason, const uint8_t *ari,
	      uint32_t ari_length, const uint8_t *private_data, uint32_t private_length,
	      uint64_t now);
/*
 * Active. address.remote_mac may be zero. -ENOSPC: the table is full. CM_PS_UDP asks for a UD queue
 * pair: CM_CONNECT_REPLY brings its qpn and qkey, CM_REJECTED the SIDR status as its reason, and
 * both are followed by CM_TIMEWAIT_OVER at once.
 */
int cm_connect(struct cm *cm, enum cm_port_space space, const struct cm_address *address,
	       const struct cm_parameters *parameters, uint64_t cookie, uint32_t *connection,
	       uint64_t now);
int cm_ready(struct cm *cm, uint32_t connection, const uint8_t *private_data,
	     uint32_t private_length, uint64_t now);                 /* sends RTU */
void cm_data_seen(struct cm *cm, uint32_t connection, uint64_t now); /* stands in for a lost RTU */
/* Sends DREQ; CM_DISCONNECT_DONE follows. */
int cm_disconnect(struct cm *cm, uint32_t connection, uint64_t now);
/*
 * The owner has no more interest: no more events but TIMEWAIT_OVER; rejects or disconnects. A
 * request that ended before it was decided counts against its peer's limits until then: who asks
 * and takes back heaps up no more than who only asks.
 */
void cm_release(struct cm *cm, uint32_t connection, uint64_t now);

/*
 * Code of the ACK timeout of a queue pair whose peer says in its REP how long it may take to answer
 * (target ACK delay): a code for both together.
 */
uint8_t cm_ack_timeout(uint8_t timeout, uint8_t target_ack_delay);

struct cm_statistics {
	uint64_t rx[32], tx[32]; /* by attribute ID - 0x10 */
	uint64_t malformed, duplicates, stale, no_listener, refused_backlog, timeouts, unknown;
	uint32_t established, pending, timewait;
};
void cm_get_statistics(const struct cm *cm, struct cm_statistics *statistics);

#endif
