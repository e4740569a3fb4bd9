/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs that go from one worker to another while their frames keep coming: what each worker
 * knows of it. The protocol is told in move.c.
 */
#ifndef NET_MOVE_H
#define NET_MOVE_H

#include "net/net.h"

struct rte_mbuf;
struct worker;

#define MOVES_OUT  4u   /* that one worker drives at a time */
#define MOVES_HELD 512u /* frames that wait in one worker for queue pairs on their way to it */
/*
 * Words for one other worker that found its ring full: of each slot YOURS and the next move's
 * first, of each of its slots our answer.
 */
#define MOVES_UNSENT (3u * MOVES_OUT)

enum move_stage {
	MOVE_FREE = 0,
	MOVE_ASKED,   /* waits for the new home */
	MOVE_TOLD,    /* waits for the others */
	MOVE_LEAVING, /* all is in that they handed over: waits for room in the ring */
	MOVE_LEFT,    /* released; what it sent here is still in our transmit arrays */
};

struct move_out {
	uint32_t qp;
	uint32_t to;
	enum move_stage stage;
	uint32_t waiting; /* bit by worker: has not answered */
	uint64_t sent[NET_MAX_PORTS];
};

/* In arrival order, linked through struct net_buffer. */
struct held_list {
	struct rte_mbuf *first, *last;
};

/* A move that another worker drives, in the slot that it has there. */
struct move_in {
	uint32_t qp;           /* 0: none */
	uint32_t number;       /* QPN: the index may be another's before we see that it is over */
	uint32_t to;           /* this worker: frames wait here. Another: they are handed to it */
	struct held_list old;  /* from the old home: they are older than the others */
	struct held_list rest; /* from everybody else */
};

struct moves {
	uint32_t driven;  /* moves of `out` under way */
	uint32_t known;   /* entries of `in` */
	uint32_t full;    /* bit by worker: words wait for room in its ring */
	uint32_t leaving; /* bit by worker: a queue pair waits for room there */
	uint32_t held;    /* frames */
	struct move_out out[MOVES_OUT];
	struct move_in in[NET_MAX_WORKERS][MOVES_OUT];
	struct {
		uint64_t word[MOVES_UNSENT];
		uint32_t count;
	} unsent[NET_MAX_WORKERS];
};

/* Where the frames of a queue pair land lately; its home's. */
struct landing {
	uint64_t taken_at; /* ns: since when its home is what it is */
	uint32_t score;    /* of `worker` over all others, the home included */
	uint32_t worker;
};

/*
 * This worker, its home, wants the queue pair to go to another. 0: under way; -EINVAL, -EBUSY,
 * or as transport_may_move().
 */
int move_start(struct worker *worker, uint32_t qp, uint32_t to);
/* Whether this worker, its home by the record, must wait before it does anything else with it. */
bool move_pending(const struct worker *worker, uint32_t qp);
/* A word out of the ring from another worker. */
void move_word(struct worker *worker, unsigned int from, uint64_t word, uint64_t now);
/* Once a turn, behind the flush of the transmit arrays. Not 0: something is under way. */
unsigned int move_run(struct worker *worker);
/*
 * A frame that came from worker `from` (this one: from a port). True: it was held or handed on, by
 * a move under way. Only asked while there are any.
 */
bool move_frame(struct worker *worker, unsigned int from, uint32_t qp, struct rte_mbuf *mbuf);
/* Whether a frame may go there though a queue pair waits to. */
bool move_leaves_room(const struct worker *worker, unsigned int to);
/* True when the words that wait for this worker's ring have gone. */
bool move_flush(struct worker *worker, unsigned int to);
/*
 * Counts a frame that its home has got. True: most land at that worker, and it is time for
 * something to be done about it.
 */
bool move_landed(struct worker *worker, uint32_t qp, unsigned int from, uint64_t now);
/* A new queue pair: where the frames of the last one with this index landed says nothing. */
void move_forget_landings(struct worker *worker, uint32_t qp);
/* Frees what is held. */
void move_destroy(struct worker *worker);

#endif
