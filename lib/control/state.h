/* SPDX-License-Identifier: BSD-3-Clause */
/* What the control core keeps in the arena: sessions and the object table. */
#ifndef CONTROL_STATE_H
#define CONTROL_STATE_H

#include <stdint.h>

#include "shm/layout.h"

enum session_state {
	SESSION_FREE = 0,
	SESSION_OPEN,
	SESSION_ENDING, /* revoked; workers still let go of it */
};

struct session {
	uint32_t state;        /* enum session_state */
	uint32_t first_object; /* list through object.next */
	uint32_t objects;
	uint32_t reserved;
	uint32_t pid, uid, gid;
	uint32_t reserved2;
	char name[32];
	uint64_t doorbells[SHM_MAX_SESSION_QPS / 64]; /* numbers in use */
	uint64_t notifies[SHM_MAX_SESSION_CQS / 64];
};
_Static_assert(sizeof(struct session) == 64 + SHM_MAX_SESSION_QPS / 8 + 512, "session record");

enum object_type {
	OBJECT_TYPE_NONE = 0,
	OBJECT_TYPE_PD,
	OBJECT_TYPE_CQ,
	OBJECT_TYPE_MR,
	OBJECT_TYPE_MW,
	OBJECT_TYPE_QP,
	OBJECT_TYPE_CONNECTOR,
	OBJECT_TYPE_LISTENER,
	OBJECT_TYPE_SRQ,
	OBJECT_TYPE_AH,
	OBJECT_TYPE_ENDPOINT, /* shared */
	OBJECT_TYPES
};

enum connector_state {
	CONNECTOR_IDLE = 0,
	CONNECTOR_INCOMING,   /* CONNECT_REQUEST told, neither accepted nor rejected */
	CONNECTOR_RESOLVING,  /* active: neighbour of the destination is asked for */
	CONNECTOR_CONNECTING, /* active: REQ is out */
	CONNECTOR_REPLIED,    /* active: REP arrived, client may complete or reject */
	CONNECTOR_PREPARING,  /* the worker makes the queue pair ready */
	CONNECTOR_ACCEPTING,  /* passive: REP is out */
	CONNECTOR_CONNECTED,
	CONNECTOR_DISCONNECTING, /* our DREQ is out */
	CONNECTOR_DISCONNECTED,  /* peer gone, client not yet done */
	CONNECTOR_CLOSED,        /* nothing left to do for the CM */
	CONNECTOR_FAILED,        /* active: refused, or nobody there; may be tried again */
};

/* What a connector may need: slots of object.needs. */
#define CONNECTOR_NEEDS_QP       0
#define CONNECTOR_NEEDS_LISTENER 1
#define CONNECTOR_NEEDS_ENDPOINT 2

struct connector {
	uint32_t connection; /* CM's, 0: none */
	uint32_t state;      /* enum connector_state */
	uint32_t passive;
	uint32_t remote_qpn;
	uint32_t send_psn;
	uint32_t receive_psn;
	uint32_t path_mtu;
	uint32_t flow_label;
	uint32_t inbound; /* effective or, before that, offered to us */
	uint32_t outbound;
	uint8_t timeout;
	uint8_t retry_count;
	uint8_t rnr_retry;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t remote_mac[6];
	uint8_t private_length;
	uint32_t told_disconnect; /* DISCONNECTED was sent to the client */
	uint32_t datagram;        /* a question or answer about a UD queue pair, no connection */
	uint32_t prepared; /* the worker was told to connect the queue pair: it needs a flush */
	uint32_t reserved;
	struct shm_address local;
	struct shm_address remote;
	uint64_t deadline; /* RESOLVING: give up at (ns) */
	uint8_t private_data[SHM_PRIVATE_DATA + 4];
};

/* How far the worker has let go of a queue pair. */
enum qp_ending {
	QP_HELD = 0,
	QP_FLUSHING, /* with an SRQ: the receive in hand is told as cancelled first */
	QP_DETACHING,
	QP_DETACHED,
};

struct object {
	uint32_t type; /* enum object_type */
	uint32_t session;
	uint32_t generation;
	uint32_t index;      /* in the table of its type: pd, cq, region, window, qp, listener */
	uint32_t next, prev; /* of the session; next also links the free list */
	uint32_t users;      /* objects that need this one */
	uint32_t needs[4];   /* objects that this one needs, 0: none */
	uint32_t close_id;   /* request that waits for the close, 0: none */
	uint32_t pending_op; /* asynchronous request in progress, 0: none */
	uint32_t pending_id;
	uint32_t number;            /* doorbell or notify number */
	uint32_t ending;            /* QP: enum qp_ending */
	uint64_t grace;             /* revocation that the close or deregistration waits for */
	uint64_t memory_size;       /* bytes of its segment */
	struct connector connector; /* listener, endpoint: `local` only */
};
_Static_assert(sizeof(struct connector) % 8 == 0 && sizeof(struct object) % 8 == 0,
	       "arena records");

/* A handle that a client holds: generation in the upper 10 bits, index below. */
#define OBJECT_INDEX_BITS 22u
#define OBJECT_INDEX_MASK ((1u << OBJECT_INDEX_BITS) - 1u)

#endif
