/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * oriel-flood: RoCEv2 requests straight from a DPDK port. No client, no requester: of a queue pair
 * it knows the number, the PSN and how much of what it sent was acknowledged.
 */
#ifndef ORIEL_FLOOD_FLOOD_H
#define ORIEL_FLOOD_FLOOD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "memory/arena.h"
#include "net/device.h"
#include "net/link.h"
#include "wire/build.h"
#include "wire/packet.h"

#define FLOOD_BURST       32u
#define FLOOD_FIRST_QPN   0x10000u /* ours: one for each queue pair of the peer */
#define FLOOD_MAX_QPS     100000u
#define FLOOD_MAX_QUEUES  8u
#define FLOOD_MAX_WINDOWS 1000000u

enum flood_operation { FLOOD_WRITE, FLOOD_READ, FLOOD_SEND, FLOOD_ATOMIC };

/*
 * What is at the other end: a responder, or a testpmd that takes our frames and forgets them, or
 * sends each back. The latter knows no queue pair, so it needs neither connection nor table.
 */
enum flood_peer { PEER_RESPONDER, PEER_RXONLY, PEER_MACSWAP, PEER_ICMPECHO, PEERS };
extern const char *const flood_peer_name[PEERS];

/* Frames that a responder must refuse, and that cost no connection. */
#define FLOOD_BAD_KINDS(X)                                        \
	X(ICRC, "icrc", "one bit of the ICRC is wrong")           \
	X(OPCODE, "opcode", "no such opcode")                     \
	X(QPN, "qpn", "no such queue pair")                       \
	X(PEER, "peer", "from an address that is not the peer's") \
	X(RUNT, "runt", "shorter than its headers")               \
	X(DUPLICATE, "duplicate", "a PSN that was executed already")

enum flood_bad {
#define FLOOD_ENUM(constant, name, text) FLOOD_BAD_##constant,
	FLOOD_BAD_KINDS(FLOOD_ENUM)
#undef FLOOD_ENUM
		FLOOD_BADS
};
extern const char *const flood_bad_name[FLOOD_BADS];

struct flood_options {
	struct net_port_config port; /* device, address, VLAN, MTU */
	uint8_t target[16];
	uint16_t service; /* TCP port number of the export */
	const char *export_name;
	const char
		*table; /* queue pairs and windows of an oriel-sink; NULL: by connection manager */
	enum flood_operation operation;
	enum flood_peer peer;
	uint32_t size;         /* bytes of a message */
	uint32_t path_mtu;     /* 0: what the link carries */
	uint32_t qps, windows; /* of the table, at most */
	double rate;           /* messages a second; 0: no limit */
	double seconds, warm_up;
	uint32_t ack_every;   /* messages */
	uint32_t outstanding; /* messages of one queue pair */
	bool random;          /* each message picks its queue pair and window */
	bool search;          /* the highest rate with a loss under `loss` */
	double loss;          /* share */
	uint32_t bad_ppm;
	uint32_t bad_kinds; /* bits by enum flood_bad */
	bool check;         /* the ICRC of every answer, not of one in 16 */
	bool json;
	bool histogram;  /* all of it in the JSON */
	uint32_t queues; /* of the port; queue pair i sends on number i % queues */
	uint32_t cpu;
	uint64_t seed;
	char **eal; /* NULL-terminated */
};

struct flood_window {
	uint64_t address;
	uint32_t token;
	uint32_t crc; /* difference that address and token make to the ICRC of a first frame */
};

/* Frames of a message: one ONLY, or FIRST, MIDDLEs and LAST. */
enum flood_place { PLACE_ONLY, PLACE_FIRST, PLACE_MIDDLE, PLACE_LAST, PLACES };

struct flood_qp {
	uint32_t qpn;                 /* the peer's */
	uint32_t start;               /* PSN of message 0 */
	uint64_t next;                /* message to be sent next */
	uint64_t done;                /* messages acknowledged */
	uint64_t moved;               /* TSC of the last progress */
	uint64_t sample, sample_time; /* a message whose latency is measured; time 0: none */
	uint64_t wait;                /* RNR: not before */
	uint32_t crc[PLACES];         /* difference that QPN and source port make */
	uint16_t source_port;
	uint8_t dead;
	uint8_t asked; /* for an ACK, since the last progress */
	uint8_t connected;
	uint32_t window, windows; /* of its own */
	uint32_t connection;      /* of the connection manager */
	uint32_t reads;           /* requests that the peer lets us have outstanding */
};

struct flood_counters {
	uint64_t messages, frames, bytes; /* first transmissions */
	uint64_t resent;                  /* messages */
	uint64_t acknowledged;            /* messages */
	uint64_t answers, answer_bytes, answers_checked, answers_wrong;
	uint64_t nak_sequence, rnr, fatal, timeouts, foreign;
	uint64_t bad[FLOOD_BADS];
	uint64_t tx_full; /* bursts that the device did not take whole */
};

struct histogram;

struct flood {
	struct flood_options options;
	const char *message; /* why something failed */

	/* link.c */
	struct device device;
	struct link link;
	uint16_t port;
	struct rte_mempool *rx_pool, *control_pool;
	uint8_t target_mac[6];
	bool target_known;
	struct flood_queue {
		struct rte_mbuf *tx[FLOOD_BURST];
		unsigned int count;
	} queue[FLOOD_MAX_QUEUES];
	double tick;       /* seconds of a TSC tick */
	uint64_t received; /* when the burst in hand came, TSC */

	/* connect.c, table.c */
	struct flood_qp *qp;
	struct flood_window *window;
	uint32_t qps, windows;
	uint32_t frames_per_message, psns_per_message;
	struct cm *cm;
	struct arena arena; /* of one table */
	uint32_t failed;

	/* frames.c */
	struct frame_shape *shape[PLACES];

	/* run.c */
	struct flood_counters counters;
	uint64_t answers_then; /* when one was given up last */
	struct histogram *latency;
	uint64_t random;
	uint32_t cursor;
	uint32_t bad_kind, bad_credit;
	double began;      /* CLOCK_MONOTONIC, seconds: the measured part, and */
	double elapsed;    /* how long it was */
	const char *limit; /* of a search: why no higher rate; NULL: all were served */
	bool stop;
};

static inline uint64_t flood_random(struct flood *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 7;
	f->random ^= f->random << 17;
	return f->random;
}

/* All of the following: false, with f->message, when it failed. */

/* link.c */
bool link_open(struct flood *f);
bool link_resolve(struct flood *f);
void link_close(struct flood *f);
void link_send(struct flood *f, uint32_t queue, struct rte_mbuf *frame);
void link_flush(struct flood *f);
/* Receives a burst. Frames of our queue pairs go to flood_answer(), MADs to connect_mad(). */
unsigned int link_poll(struct flood *f);
/* An empty buffer of the control pool, sent by hand; NULL when there is none. */
struct rte_mbuf *link_buffer(struct flood *f);
const char *flood_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* connect.c */
bool connect_all(struct flood *f);
void connect_mad(struct flood *f, const struct wire_view *view);
void disconnect_all(struct flood *f);

/* table.c */
bool table_read(struct flood *f);
bool table_update(struct flood *f);

/* Queue pairs that exist on our side only, for a testpmd. */
void table_invent(struct flood *f);

/* frames.c */
bool frames_prepare(struct flood *f);
void frames_release(struct flood *f);
/* One frame of message `message`, which starts at `psn`; NULL: no buffer. */
struct rte_mbuf *frames_make(struct flood *f, const struct flood_qp *qp, uint32_t frame,
			     uint32_t psn, const struct flood_window *window, bool ack);
struct rte_mbuf *frames_make_bad(struct flood *f, const struct flood_qp *qp, enum flood_bad kind);
/* The BTH of one of our own frames that came back; NULL for any other frame. */
const struct bth *frames_echo(const struct flood *f, const uint8_t *data, uint32_t length);

/* run.c */
void flood_answer(struct flood *f, const struct wire_view *view);
void flood_echo(struct flood *f, const struct bth *bth);
bool flood_run(struct flood *f, double seconds, double warm_up, double rate);
bool flood_search(struct flood *f, double *best);

/* report.c */
struct histogram *histogram_create(void);
void histogram_clear(struct histogram *h);
void histogram_add(struct histogram *h, uint64_t ns);
double histogram_percentile(const struct histogram *h, double share); /* us */
uint64_t histogram_count(const struct histogram *h);
void report_header(const struct flood *f);
void report_line(const struct flood *f);
void report_json(const struct flood *f, double best);

#endif
