/* SPDX-License-Identifier: BSD-3-Clause */
/* Unreliable connections and datagrams, and queue pairs of all types whose frames go wild. */
#ifndef TEST_SIM_LOOSE_H
#define TEST_SIM_LOOSE_H

#include "sim.h"

/* --- unreliable queue pairs ------------------------------------------------------- */

struct loose_message {
	uint32_t number;
	uint8_t kind; /* SEND, SEND_IMM, WRITE, WRITE_IMM */
	bool never;   /* it does not arrive, whatever the network does */
	bool solicited;
	uint32_t length, target, immediate, token;
	uint32_t type;  /* of the completion of a wrong one */
	int32_t status; /* the same */
	/* How it travels: its PSNs, 0 packets until it has left; frames of it that came. */
	uint32_t psn, packets, come;
	bool spoiled; /* one was lost or changed, or may have found no receive */
	uint8_t *bytes;
};

struct loose_end {
	struct loose *loose;
	struct host *host;
	struct loose_end *peer;
	unsigned int side;
	uint32_t area, source, target, receive_area; /* in the host's memory */
	uint32_t index, number, worker;
	struct qp_config config;
	struct qp_path path;
	struct sim_cq *cq, *receive_cq; /* or both the same */
	struct sim_cq *small;           /* one that is sure to be overrun, or NULL */
	struct shm_srq *srq;            /* its receives, where they are no queue pair's */
	uint32_t srq_index;
	uint32_t ah;
	uint32_t local, remote; /* tokens of a region over target and receives */
	uint32_t next_psn;      /* of the next frame */
	uint32_t source_port;   /* of all its frames; 0: none has left */
	struct loose_message message[LOOSE_HISTORY];
	uint32_t head, tail;                 /* requests in hand */
	uint32_t receive_head, receive_tail; /* receives in hand */
	uint32_t split[LOOSE_RECEIVES];      /* bytes of a receive's first SGE */
	uint32_t matched;                    /* first message of the peer that can come next */
	uint64_t frames_sent, frames_come;
	uint32_t leaving; /* message that leaves next */
	bool flush_asked, flushed;
	bool overrun;
	bool broken_seen; /* the client has seen it */
	bool wrong;       /* its last request was one that must fail */
	uint32_t other_ah, retired_ah;
};

struct loose {
	struct world *world;
	uint32_t number;
	uint8_t type; /* enum shm_qp_type */
	/* The network changes headers at will: what comes of it does not matter, but where. */
	bool wild, dead;
	uint32_t region[2];
	uint32_t mtu;
	uint32_t capacity; /* of every receive */
	struct loose_end end[2];
};

#define LOOSE_QKEY 0x11223344u

/* --- loose.c ---------------------------------------------------------------------- */

void loose_open(struct world *world, uint32_t number);
unsigned int loose_turn(struct loose *loose);
bool loose_is_still(const struct loose *loose);
/* Before all memory is compared: what may be there by now is the model's. */
void loose_settle(struct world *world);
struct loose_end *loose_find(const struct host *host, uint32_t number);
/* A frame of it leaves. */
void loose_sent(struct loose_end *sender, const uint8_t *frame, const struct frame_facts *facts);
void loose_overrun(struct host *host, uint32_t cq);
/* Whether the event is about one of them. */
bool loose_event(struct host *host, const struct transport_event *event);
/* The host's daemon has died: what the next one is shown, and what it is told again. */
void loose_show(struct host *host);
void loose_resume(struct host *host);
void loose_flush(struct loose *loose);
bool loose_is_wild(const struct host *host, uint32_t number);
bool loose_is_flushed(const struct loose *loose);
void loose_close(struct loose *loose);

/* --- loose_come.c ---------------------------------------------------------------------- */

/* A frame leaves; it is lost, or changed; it comes to this end. */
void loose_left(struct loose_end *sender, const struct frame_facts *facts);
void loose_spoiled(struct loose_end *sender, uint32_t psn);
void loose_came(struct loose_end *end, uint32_t psn);
/* The message came whole, and there was a receive for it. */
bool loose_came_whole(const struct loose_end *end, const struct loose_message *m);

/* --- loose_wrong.c --------------------------------------------------------------------- */

/* One request that must fail, and its queue pair with it. Whether it could be posted. */
bool loose_post_wrong(struct loose_end *end);
/* The addresses that it may have made. */
void loose_forget_wrong(struct loose_end *end);

/* --- loose_traffic.c -------------------------------------------------------------- */

_Noreturn void loose_fail(const struct loose_end *end, const char *what, uint64_t value);
/* The network brings nothing twice or late; nor does it lose anything. */
bool loose_in_order(const struct world *world);
bool loose_all_come(const struct world *world);
void loose_post_receive(struct loose_end *end);
void loose_post_send(struct loose_end *end);
/* An entry behind all that were posted. */
void loose_queue(struct loose_end *end, const struct shm_sqe *sqe, const struct shm_sge *sge);
/* Takes completions, and compares them. How many. */
unsigned int loose_poll_end(struct loose_end *end);
/* Bytes that may have come by now become the model's. */
void loose_settle_end(const struct loose_end *end);

#endif
