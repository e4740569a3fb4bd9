/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DPDK ports, worker loops, and the slow path of the link (ARP, ND, ICMP, frames of QP 1).
 *
 * Only this layer and the programs that own ports know DPDK. Threads: each worker
 * runs on its own lcore; everything declared here is for the control thread unless it says
 * otherwise.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

#define NET_MAX_PORTS     8u
#define NET_MAX_ADDRESSES 8u /* per port */
#define NET_MAX_WORKERS   SHM_MAX_WORKERS

/* One address of a port; IPv4 as ::ffff:a.b.c.d with prefix length 96 + n. */
struct net_address {
	uint8_t gid[16];
	uint32_t prefix_length;
};

/*
 * Faults that a port makes by itself, for tests: of each frame, in parts per million, by a seeded
 * generator per worker, port and direction. All zero: none, and no cost but one flag per burst.
 * A frame suffers one of them at the most. A corrupt frame has one bit turned, anywhere in it, and
 * its ICRC left alone. A delayed one is held for delay_us, a reordered one until up to four
 * others have passed it, delay_us at the longest; when 256 frames are held, no more are.
 */
struct net_fault {
	uint32_t loss, duplicate, reorder, corrupt, delay; /* ppm; their sum at most 1000000 */
	uint32_t delay_us;                                 /* of `delay` and `reorder` */
	uint64_t seed;
};

/*
 * What came of it. Received frames are what the device gave, less lost and held ones, plus
 * duplicates: each of those has one verdict. What the device sends is counted in the same way.
 */
struct net_fault_counts {
	uint64_t lost, duplicated, reordered, corrupted, delayed;
	uint64_t held; /* now */
};

enum net_direction { NET_RECEIVE = 0, NET_TRANSMIT = 1 };

/*
 * The Ethernet address is the device's at the start and stays: a change while it runs is not
 * followed. A kernel interface under a port (af_packet, af_xdp) must not carry an IP address
 * of its own: the kernel sees the same frames and would answer them too.
 */
struct net_port_config {
	char name[32];
	char device[256]; /* PCI address or vdev with arguments */
	bool bare;        /* without what net_create() puts between a driver and its link */
	struct net_address address[NET_MAX_ADDRESSES];
	uint32_t addresses;
	uint16_t vlan; /* 0: untagged (and priority-tagged) */
	uint16_t mtu;  /* bytes of IP packet */
	bool own_dscp; /* `dscp` is that of all paths; else each has its peer's */
	uint8_t dscp;
	uint8_t gateway4[16]; /* all zero: none */
	uint8_t gateway6[16];
	struct net_fault fault[2]; /* by enum net_direction */

	/* Where the administrator wrote this, for messages. */
	const char *file;                   /* NULL: nowhere */
	unsigned int device_line, mtu_line; /* 0: not said */
};

enum net_idle { NET_IDLE_BUSY, NET_IDLE_ADAPTIVE };

struct net_config {
	struct net_port_config port[NET_MAX_PORTS];
	uint32_t ports;
	uint32_t workers;
	uint32_t worker_cpu[NET_MAX_WORKERS];
	uint32_t control_cpu;
	enum net_idle idle;
	bool migrate;   /* queue pairs follow their frames to the worker at which they land */
	bool hugepages; /* false: EAL runs with --no-huge */
	/*
	 * The workers have no lcores: they run in net_turn(), in the thread that runs control. EAL
	 * starts once in a process, without ports, and leaves the calling thread where it ran.
	 */
	bool caller_runs;
};

struct net;
struct net_io; /* below */

/*
 * Starts EAL (eal_arguments: extra ones of the command line, NULL-terminated), the ports
 * and their queues. On failure *message (a static buffer) says what was wrong, with which
 * device, and what to do. Workers do not run yet.
 */
int net_init_eal(const struct net_config *config, const char *program, char *const eal_arguments[],
		 const char **message);
int net_create(struct net **net, const struct net_config *config, struct transport_shared *shared,
	       struct memory *memory, const struct net_io *io, const char **message);
int net_start_workers(struct net *net);
void net_stop_workers(struct net *net); /* returns when all have left their loops */
/*
 * With caller_runs: one turn of every worker. Returns how much there was to do, 0 for none; what
 * the workers had to say is there for net_poll() when net_has_messages().
 */
unsigned int net_turn(struct net *net);
bool net_has_messages(const struct net *net);
void net_destroy(struct net *net);

/* Monotonic, ns: the workers' time. Any thread. */
uint64_t net_clock(const struct net *net);
/* NUMA node of the first port, or -1. */
int net_numa_node(const struct net *net);
/*
 * The eventfd by which clients wake a worker. Whoever holds it can make it block, fill it or
 * empty it: here it is only read, and only without waiting.
 */
int net_worker_eventfd(const struct net *net, unsigned int worker);
struct transport_stats *net_worker_stats(const struct net *net, unsigned int worker);

/* --- commands to a worker ----------------------------------------------------------- */

enum worker_command_type {
	WORKER_ATTACH = 1, /* transport_attach */
	WORKER_CONNECT,    /* transport_connect */
	WORKER_FLUSH,      /* transport_flush */
	WORKER_DETACH,     /* transport_detach as soon as transport_may_detach */
	WORKER_ADD_SESSION,
	WORKER_REMOVE_SESSION,
	WORKER_RESIZE_CQ, /* transport_resize_cq; object: CQ */
	WORKER_MOVE,      /* to another worker; not answered, and nothing happens if it cannot */
};

struct worker_command {
	uint32_t type;
	uint32_t object;   /* QP or session index */
	uint64_t cookie;   /* comes back in the answer */
	uint32_t number;   /* QPN: the index may be another's by now; 0: not looked at */
	uint32_t to;       /* MOVE: worker; RESIZE_CQ: depth */
	struct shm_cq *cq; /* RESIZE_CQ: its new memory */
	struct shm_session
		*session; /* ADD_SESSION: where it lies; valid until REMOVE is answered */
	struct qp_connection connection;
};

/*
 * Queues a command; commands of one worker run in order. -EAGAIN when its ring is full.
 * A FLUSH or DETACH that finds its queue pair moved comes back by net_io.moved, to be sent to the
 * present home; while it is moving it waits.
 */
int net_command(struct net *net, unsigned int worker, const struct worker_command *command);

/*
 * Any thread: the queue pair with this QPN shall go to that worker. 0: it was passed on; -EINVAL,
 * -ENOENT, -ENOTSUP and -ENOTCONN as transport_may_move(), -EBUSY: another wish is under way.
 */
int net_move(struct net *net, uint32_t qpn, unsigned int worker);

/* --- frames of the slow path ---------------------------------------------------------- */

/* Where a MAD came from, and what an answer needs. */
struct net_peer {
	uint32_t port;
	uint8_t local_gid[16];
	uint8_t remote_gid[16];
	uint8_t remote_mac[6]; /* all zero: to be resolved */
	uint8_t traffic_class;
};

/* Called from net_poll() in the control thread. */
struct net_io {
	/* A datagram for QP 1, ICRC and Q_Key checked. mad: 256 bytes. */
	void (*mad)(void *context, const struct net_peer *peer, const uint8_t *mad, uint64_t now);
	void (*event)(void *context, unsigned int worker, const struct transport_event *event);
	/* A command was carried out; status 0 or a negative errno. */
	void (*done)(void *context, unsigned int worker, uint64_t cookie, int status);
	/* A command was not carried out: send it again, to where its queue pair lives now. */
	void (*moved)(void *context, const struct worker_command *command);
	/* A worker consumed an arm of this session's CQs: write its eventfd. Any worker's thread!
	 */
	void (*notify)(void *context, uint32_t session);
	void *context;
};

/* Drains the rings from the workers, answers ARP/ND/ICMP, runs neighbour timers. */
unsigned int net_poll(struct net *net, uint64_t now);

/*
 * What the control core sleeps on: both descriptors. The first is passed to clients as well
 * (so it is neither written here nor read but by net_control_drain()), the second is
 * the workers' and private.
 */
int net_control_eventfd(const struct net *net);
int net_control_worker_eventfd(const struct net *net);
void net_control_drain(const struct net *net); /* when one of them is readable; never waits */
/* The word to announce sleep in (shm_sleep_announce) around waiting on them. */
uint32_t *net_control_sleeping(struct net *net);

/*
 * Sends a MAD to QP 1 of a peer; resolves its MAC first when it is not known (then the
 * frame waits, bounded, and is lost like any datagram when nobody answers). 0 or a negative
 * errno: -EADDRNOTAVAIL (local_gid is not ours), -ENETUNREACH (no route).
 */
int net_send_mad(struct net *net, const struct net_peer *peer, const uint8_t mad[256],
		 uint64_t now);

/*
 * Fills a path from local to remote GID. 0, or -EAGAIN while the neighbour is being resolved (ask
 * again), -EHOSTUNREACH when nobody answered, -ENOBUFS: with these three all is filled but
 * remote_mac, so that who knows it otherwise may go on. -ENETUNREACH, -EADDRNOTAVAIL: nothing.
 */
int net_resolve(struct net *net, const uint8_t local_gid[16], const uint8_t remote_gid[16],
		struct qp_path *path, uint64_t now);

/* Traffic class of paths from one of our addresses: the port's own, else the one wanted. */
uint8_t net_traffic_class(const struct net *net, const uint8_t local_gid[16], uint8_t wanted);

/* Port that owns this GID, or -1. */
int net_find_address(const struct net *net, const uint8_t gid[16]);
/* Largest path MTU (256 .. 4096) that fits a port. */
uint32_t net_port_path_mtu(const struct net *net, unsigned int port);
const struct net_config *net_get_config(const struct net *net);

/* New faults of a running port; any one thread at a time. Workers take them at their next turn. */
void net_set_fault(struct net *net, unsigned int port, enum net_direction direction,
		   const struct net_fault *fault);
void net_get_fault(const struct net *net, unsigned int port, enum net_direction direction,
		   struct net_fault *fault);

/* Link counters of one port, summed over workers; any thread. */
struct net_port_status {
	char name[32];
	char driver[32];
	uint8_t mac[6];
	bool link_up;
	uint16_t mtu;
	uint64_t rx_packets, tx_packets, rx_bytes, tx_bytes, rx_missed, rx_errors, rx_no_mbuf;
	uint64_t handed_over; /* frames that reached another worker than their owner */
	/* In the device, for queue pairs that do not move: now, the most (0: it takes none) .. */
	uint32_t flow_rules, flow_rules_limit;
	/* .. so far, and wishes that came to nothing: limit, device, or another home was first. */
	uint64_t flow_rules_made, flow_rules_refused;
	uint64_t arp_answered, nd_answered, icmp_answered;
	uint64_t slow_refused; /* ARP, ND, ICMP: malformed, wrong checksum, not for us */
	uint64_t tx_dropped;   /* no room for a slow-path frame, or the device takes nothing */
	struct net_fault_counts fault[2]; /* by enum net_direction */
};
bool net_port_status(const struct net *net, unsigned int port, struct net_port_status *status);

#endif
