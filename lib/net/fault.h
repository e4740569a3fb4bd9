/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames lost, doubled, damaged and held up on purpose; see struct net_fault. */
#ifndef NET_FAULT_H
#define NET_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"

struct rte_mbuf;
struct worker;

/* What a port is set to. Written by net_set_fault(), read by workers: a sequence lock. */
struct fault_setting {
	uint32_t version; /* atomic: 0 never set, odd while it is being written */
	uint64_t word[sizeof(struct net_fault) / sizeof(uint64_t)];
};

struct fault; /* of one worker, port and direction */

int fault_create(struct worker *worker);
/* What is still held is freed. */
void fault_destroy(struct worker *worker);

/* The one question when there are no faults. */
static inline bool fault_is_set(const struct fault_setting *setting)
{
	return __atomic_load_n(&setting->version, __ATOMIC_RELAXED) != 0;
}

/*
 * Takes `count` frames of a burst and gives back those that go on now, at most `room`
 * (not less than `count`): without the lost and the held ones, with those whose time has come.
 */
uint32_t fault_run(struct worker *worker, uint32_t port, enum net_direction direction,
		   struct rte_mbuf **frame, uint32_t count, uint32_t room, uint64_t now);

/* When a held frame goes on, ns; UINT64_MAX: none is held. */
uint64_t fault_next_deadline(const struct worker *worker);

/* At the end: received frames that are held are lost, those to be sent are due. */
void fault_drain(struct worker *worker);

void fault_add_counts(const struct worker *worker, uint32_t port, enum net_direction direction,
		      struct net_fault_counts *counts);

#endif
