/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport and a memory that only write down what lib/net does with them, so that its
 * loop is tested without queue pairs. Queue pair i (1 .. 2047) has QPN 0x1000 + i and lives on
 * worker i modulo the number of workers.
 */
#ifndef TESTS_NET_FAKE_H
#define TESTS_NET_FAKE_H

#include "transport/transport.h"

#define FAKE_QPS      2048u
#define FAKE_QPN      0x1000u
#define FAKE_RECEIVED 4096u

struct fake_frame {
	uint32_t worker;
	uint32_t qpn;
	uint32_t psn;
};

struct fake_worker {
	struct fake_frame frame[FAKE_RECEIVED];
	uint32_t frames; /* atomic */
	uint32_t attached, connected, flushed, resized, detached, sessions_added,
		sessions_removed; /* atomic */
	uint32_t online, offline; /* atomic */
	uint64_t quiescent;       /* atomic */
	uint32_t order;           /* count of commands */
	uint32_t removed_at, detached_at;
	uint32_t taken; /* queue pairs that came from another worker */
};

struct fake {
	uint32_t workers;
	struct fake_worker worker[SHM_MAX_WORKERS];
	/* Settings, atomic. */
	uint32_t may_detach;
	uint32_t echo;            /* a received frame is answered by one built from get() */
	uint32_t keep;            /* received frames are kept, and put back when this goes to 0 */
	uint32_t home[FAKE_QPS];  /* worker, plus 1; 0: as above */
	uint32_t again[FAKE_QPS]; /* how often another queue pair has taken its place */
	uint32_t abroad;          /* worker 0 has record 77 of these workers, by bit */
	uint32_t returned;        /* a record that came back */
	uint32_t movable;         /* queue pairs may leave */
	uint32_t answers;         /* calls of transport_answer() */
	uint32_t raise;           /* events to raise in the next poll of worker 0 */
	/* What the control core reads of queue pairs. */
	uint8_t failed[FAKE_QPS], type[FAKE_QPS];
	uint8_t local_gid[16], remote_gid[16];
};
extern struct fake fake;

static inline uint32_t fake_get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void fake_set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

#endif
