/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port of several workers, each a thread, with real queue pairs behind it; its device is a
 * pair of rings in this process, and a test says at which worker the frames of a queue
 * pair land. At the other end of the wire: one transport, run by the test's thread, which
 * is control core and client as well. The wire loses nothing and keeps the order.
 */
#ifndef TESTS_NET_MOVE_RIG_H
#define TESTS_NET_MOVE_RIG_H

#include <pthread.h>

#include "net/net_private.h"
#include "../transport/rig.h"

struct move_rig {
	struct net *net;
	struct end near, far; /* near: behind the port */
	struct rte_ring *received[NET_MAX_WORKERS], *sent;
	pthread_t thread[NET_MAX_WORKERS];
	bool running;
	uint32_t lands_at[RIG_QPS]; /* worker, by queue pair of the near end */
	/* The worker at which a frame lands instead, or -1. NULL: all do as above. */
	int (*steered)(uint32_t pair, const struct wire_view *view);
	bool shares; /* the near end's queue pairs have one SRQ, at worker 0 */
	uint32_t srq;
	struct shm_srq *srq_memory;
	uint32_t elsewhere;      /* frames that landed at another worker than their home */
	uint32_t done, moved_on; /* commands answered, commands sent back */
	uint32_t flushed;        /* TRANSPORT_QP_FLUSHED events */
};
extern struct move_rig wire;

void move_rig_start(unsigned int workers, uint32_t pairs, bool migrate);
/* Workers end; counters and tables may then be looked at. */
void move_rig_halt(void);
void move_rig_stop(void);
/* One turn of the far end, of the wire, of the control core. */
void move_rig_turn(void);
/* Command to the queue pair's present home; false: it has too many waiting. */
bool move_rig_command(uint32_t type, struct rig_qp *qp, uint32_t to);

#endif
