/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of lib/net that know DPDK share: ports, workers, buffers. */
#ifndef NET_NET_PRIVATE_H
#define NET_NET_PRIVATE_H

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "net/device.h"
#include "net/fault.h"
#include "net/flow_rule.h"
#include "net/link.h"
#include "net/move.h"
#include "net/neighbour.h"
#include "net/net.h"
#include "net/slow.h"
#include "net/steer.h"

#define BURST           32u
#define RX_DESCRIPTORS  1024u
#define TX_DESCRIPTORS  256u
#define TX_WAITING      64u   /* frames of the transport of one worker that wait for one port */
#define TX_SPARES       16u   /* buffers that a worker takes out of the pool at once */
#define TX_ARRAY        128u  /* with those of control and of faults */
#define HANDOFF_RING    512u  /* frames, per pair of workers */
#define SLOW_RING       256u  /* frames, worker to control */
#define CONTROL_RING    512u  /* frames, control to worker 0 */
#define COMMAND_RING    1024u /* commands, control to a worker */
#define MESSAGE_RING    8192u /* events and answers, worker to control */
#define DETACH_WAITING  256u  /* detaches of a worker that wait for a grace period */
#define CONTROL_BUFFERS 1023u
#define RX_BUFFERS      6143u /* per worker and port: ring, parked frames, what is on its way */
#define TX_BUFFERS      1023u /* per worker and port: array, ring, frames held by faults */

/*
 * The most messages that one turn of a worker can make: a burst of each port, of each other
 * worker, and what transport_poll() does in one call. A worker takes no work while its ring
 * has less room than this, so no event is ever lost.
 */
#define MESSAGES_PER_TURN 2048u

/* --- buffers ----------------------------------------------------------------------- */

/* Lies behind each mbuf's header. */
struct net_buffer {
	struct pktbuf packet;  /* first: io callbacks get its address */
	uint32_t port;         /* index of our port */
	bool lent;             /* got by the transport, counted in worker->lent */
	struct rte_mbuf *next; /* behind it in a list; see move.h */
};

/* A counter has one writer. Who reads it meanwhile, by an atomic too, may be late and no more. */
static inline void count_up(uint64_t *counter, uint64_t more)
{
	__atomic_store_n(counter, *counter + more, __ATOMIC_RELAXED);
}

static inline uint64_t count_of(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline struct net_buffer *buffer_of(struct rte_mbuf *mbuf)
{
	return rte_mbuf_to_priv(mbuf);
}

static inline struct rte_mbuf *buffer_mbuf(struct net_buffer *buffer)
{
	return (struct rte_mbuf *)((uint8_t *)buffer - sizeof(struct rte_mbuf));
}

int pools_create(struct net *net, const char **message);
void pools_destroy(struct net *net);

/* --- ports ------------------------------------------------------------------------- */

struct net_port {
	struct link link; /* read-only once workers run */
	struct device device;
	uint16_t id;                 /* DPDK's */
	struct rte_device *attached; /* by us, and so to be removed; else NULL */
	bool open;
	bool started;
	bool promiscuous; /* because of us */
	int socket;       /* NUMA node, or SOCKET_ID_ANY */
	char driver[32];
	struct rte_mempool *rx_pool;
	struct fault_setting fault[2]; /* by enum net_direction */
	struct steering steering;
	struct flow_rules rules;

	uint32_t aside; /* atomic: not 0: workers keep off the device; see aside.c */
	uint32_t asked; /* the last value of aside but 0 */
	uint32_t links; /* atomic: how many door.c has brought up */

	/* Control's. */
	bool link_up;
	uint32_t links_seen;    /* of the number below */
	uint32_t announcements; /* still to be made */
	uint64_t announce_at;   /* ns */
	uint64_t arp_answered, nd_answered, icmp_answered, slow_refused, tx_dropped;
};

/* interface.c */
/*
 * A device on top of a kernel interface carries what that interface does. Its MTU is raised
 * when it is too small, and left alone when it is larger. 0 or a negative errno.
 */
int interface_raise_mtu(const char *name, uint16_t mtu);
uint32_t interface_queues(const char *name); /* that receive; 0: it does not say */

int port_open(struct net *net, uint32_t index, const char **message);
int port_start(struct net *net, uint32_t index, const char **message);
void port_close(struct net *net, uint32_t index);

/* --- workers ----------------------------------------------------------------------- */

struct tx_array {
	struct rte_mbuf *frame[TX_ARRAY];
	uint32_t count;
	uint32_t looked_at;   /* so many in front are through with their faults */
	uint64_t sent;        /* frames that have left this array */
	uint64_t stuck_since; /* ns: the device takes nothing since; 0: it does */
	uint64_t dropped;     /* frames thrown away because it takes nothing */
};

struct worker_session {
	uint32_t session;
	struct shm_worker_area *area;
};

struct waiting_detach {
	uint32_t qp;
	uint64_t cookie;
};

enum worker_message_kind { MESSAGE_EVENT, MESSAGE_DONE, MESSAGE_MOVED };

struct worker_message {
	uint32_t kind;
	int32_t status;
	union {
		uint64_t cookie;
		struct transport_event event;
		struct {
			uint64_t cookie;
			uint32_t type, object, number;
		} moved; /* of the command that found its queue pair gone */
	};
};

struct worker {
	/* Written by this worker, read by whoever has something for it; beside what stays. */
	alignas(64) uint32_t sleeping;
	unsigned int index;
	int client_fd; /* written by clients */
	int wake_fd;   /* written by control and other workers; private */
	struct net *net;
	struct transport *transport;
	struct transport_stats *stats;

	/* Rings, all of one producer and one consumer. */
	struct rte_ring *commands;                /* from control */
	struct rte_ring *messages;                /* to control */
	struct rte_ring *slow;                    /* frames to control */
	struct rte_ring *wishes;                  /* to control; NULL: no device takes rules */
	struct rte_ring *handed[NET_MAX_WORKERS]; /* frames from each other worker */
	struct rte_ring *to_send;                 /* worker 0: frames from control */
	struct rte_mbuf *held_frame;              /* from it, and waits for its port */

	struct tx_array tx[NET_MAX_PORTS];
	struct fault *fault;             /* two per port */
	bool long_frames[NET_MAX_PORTS]; /* the last one that came was */
	uint32_t aside[NET_MAX_PORTS];   /* atomic: of the port, seen at the end of a turn */
	uint32_t lent;                   /* buffers that the transport got and has not put */
	uint32_t spares;                 /* taken out of the pool for it */
	struct rte_mbuf *spare[TX_SPARES];
	uint32_t left; /* atomic: its loop is over, and all that it did is there */
	uint64_t handed_over[NET_MAX_PORTS];
	uint32_t to_wake; /* bit by worker: was handed something in this turn */
	struct moves moves;
	bool wake_control;

	struct waiting_detach detach[DETACH_WAITING];
	uint32_t detaches;
	struct worker_command held_command; /* taken out of the ring, and must wait */
	bool held;
	struct worker_session *session;
	uint32_t sessions, session_room;

	uint32_t empty_turns;
	uint64_t sleep_ns; /* of the last sleep; 0: awake */
};

struct net {
	alignas(64) uint32_t control_sleeping; /* as worker.sleeping */
	int control_client_fd;                 /* written by clients */
	int control_wake_fd;                   /* written by workers; private */
	struct net_config config;
	struct net_io io;
	struct transport_shared *shared;
	struct memory *memory;
	struct net_port port[NET_MAX_PORTS];
	struct worker worker[NET_MAX_WORKERS];
	struct rte_mempool *tx_pool;
	struct rte_mempool *control_pool;
	uint32_t tx_capacity; /* bytes of frame that a buffer to be sent holds */
	uint64_t tick_scale;  /* ns of a TSC tick, times 2^32 */
	bool running;
	uint32_t stop;           /* atomic: workers leave their loops */
	uint32_t asides;         /* atomic: not 0: some port wants workers to stand aside */
	struct door *door;       /* NULL: no port of net_memif */
	struct landing *landing; /* by queue pair; NULL: nothing is done about it */
	uint64_t move_wanted;    /* atomic: see net_move() */

	/* Control's. */
	struct neighbour_table neighbours;
	struct flow_user *flow_user; /* by queue pair; NULL: no device takes rules */
	uint64_t now;                /* of the call in progress */
	uint64_t links_looked;       /* ns */
	uint32_t mad_psn;
};

/* wake.c: eventfds, two of each: a client can make the one that it holds block. */
int wake_create(void); /* or a negative errno */
void wake_close(int fd);
/* Private ones only. */
void wake_write(int fd);
/* True when it was rung. Never waits, whatever a client did to the descriptor. */
bool wake_drain(int fd);

/* worker.c */
int worker_create(struct net *net, unsigned int index);
void worker_destroy(struct worker *worker);
int worker_run(void *worker); /* the loop; an lcore's function: enter, turn, turn .. leave */
void worker_enter(struct worker *worker);
unsigned int worker_turn(struct worker *worker, uint64_t now);
void worker_leave(struct worker *worker);
/* Whoever put something into a ring of the worker calls it then. */
void worker_wake(struct worker *worker);

/* command.c */
bool commands_have_room(const struct worker *worker); /* for the events they may cause */
unsigned int commands_run(struct worker *worker, uint64_t now);
void worker_event(void *context, const struct transport_event *event);

/* classify.c */
unsigned int classify_port(struct worker *worker, uint32_t port, uint64_t now);
/* A parsed and verified frame of a queue pair of this worker. Takes the mbuf. */
void classify_deliver(struct worker *worker, uint32_t qp, struct rte_mbuf *mbuf,
		      const struct wire_view *view, uint64_t now);
/* The end of a frame that goes no further: counted by verdict, freed. */
void classify_drop(struct worker *worker, struct rte_mbuf *mbuf, uint32_t verdict);

/* handoff.c */
void handoff_send(struct worker *worker, unsigned int home, struct rte_mbuf *mbuf);
/* A frame that worker `from` has checked, of a queue pair of this worker. Takes the mbuf. */
void handoff_deliver(struct worker *worker, unsigned int from, struct rte_mbuf *mbuf, uint64_t now);
unsigned int handoff_receive(struct worker *worker, uint64_t now);
bool handoff_waiting(const struct worker *worker);
/* To the control core. */
void handoff_control(struct worker *worker, struct rte_mbuf *mbuf);
void handoff_wake(struct worker *worker); /* at the end of a turn */

/* transmit.c */
struct pktbuf *transmit_get(void *worker, const uint8_t source_mac[6]);
void transmit_put(void *worker, struct pktbuf *packet, enum pktbuf_fate fate);
unsigned int transmit_control(struct worker *worker); /* worker 0: what control wants sent */
unsigned int transmit_flush(struct worker *worker, uint64_t now);
void transmit_spares_back(struct worker *worker); /* who stops keeps no buffers */
void transmit_drop(struct worker *worker);

/* Whether the device may be used in this turn. */
static inline bool port_is_there(const struct net_port *port)
{
	return likely(__atomic_load_n(&port->aside, __ATOMIC_ACQUIRE) == 0);
}

/* aside.c: a port on which nobody may be. After aside_begin(), which is before workers run, none
 * is. */
void aside_begin(struct net *net, uint32_t port);
/* Returns when no worker is inside the driver, and none will be; or when *stop (atomic) is set. */
void aside_take(struct net *net, uint32_t port, const uint32_t *stop);
void aside_give(struct net *net, uint32_t port);
void aside_answer(struct worker *worker); /* at the end of a turn */

/* slowpath.c, in the control thread */
struct rte_mbuf *slowpath_buffer(struct net *net, uint32_t port);
/* Takes the mbuf; 0 or -ENOBUFS (counted). */
int slowpath_send(struct net *net, struct rte_mbuf *mbuf, uint32_t length);
void slowpath_receive(struct net *net, struct rte_mbuf *mbuf);
void slowpath_announce(struct net *net, uint32_t port);
void slowpath_io(struct net *net, struct neighbour_io *io);

#endif
