/* SPDX-License-Identifier: BSD-3-Clause */
/* What one run is made of: drawn from its seed, then changed by the command line. */
#ifndef TEST_SIM_CONFIG_H
#define TEST_SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"

#define SIM_PAIRS   64u /* at most */
#define SIM_WORKERS 3u
#define SIM_SGE     4u
#define SIM_LOOSE   4u /* at most */

struct sim_config {
	uint64_t seed;
	uint32_t chapter; /* of the run, from 0 */
	uint64_t packets; /* frames offered to the network before the chapter winds down */

	/* Hosts. */
	uint32_t workers[2];
	uint32_t pairs;
	uint32_t looses;         /* pairs of unreliable queue pairs */
	uint32_t flights;        /* records of each host */
	bool shared_receives;    /* one SRQ of a worker for most of its queue pairs */
	bool shared_cq;          /* one CQ of a host for everything */
	uint32_t transmit_room;  /* frames of one worker's turn; 0: no limit */
	uint32_t stall_every_us; /* mean between times when nobody can send anything; 0: never */
	uint32_t stall_us;

	/* Network; all rates in ppm of frames. */
	uint32_t loss, duplicate, reorder, corrupt, forge, unkept;
	uint32_t delay_ns, jitter_ns, reorder_ns;
	uint32_t blackout_every_us; /* 0: never */
	uint32_t blackout_us;       /* mean */
	uint32_t mark;            /* ppm of frames that can be marked as congested; 0: no control */
	uint64_t line;            /* bytes per second that congestion control begins with */
	uint32_t narrow_every_us; /* links that take short frames only; 0: never */
	uint32_t narrow_us;       /* mean */
	uint32_t calm_us;         /* mean of spells without any of this; 0: none */
	uint32_t storm_us;        /* mean of what lies between them */

	uint32_t move_every_us;    /* mean between two queue pairs that change workers; 0: never */
	uint32_t restart_every_us; /* mean between two deaths of a daemon; 0: never */

	/* Queue pairs; 0 where it is drawn for each pair. */
	uint32_t mtu;
	uint32_t timeout; /* code */
	uint32_t retry_count;

	/* Traffic. */
	uint32_t largest;    /* bytes of a message */
	uint32_t weight[16]; /* by enum op_kind */
	uint32_t life; /* mean number of requests before a pair's end is brought about; 0: never */
	bool faults;   /* wrong operations */
	uint32_t late_receives; /* % of turns after which for a while none are posted */
	uint32_t polling;       /* % of turns in which a client takes its completions */
	uint32_t posting;       /* % of turns in which it posts requests */
	uint32_t waiting;       /* % of clients that post when all has completed, not before */
	uint32_t single;        /* % of messages that are one piece of memory for certain */
	bool windows;
	uint32_t breaking; /* % of READs that a window is taken from, where it can be */
};

/* Draws everything from the seed. */
void config_draw(struct sim_config *config, uint64_t seed, uint32_t chapter, uint64_t packets);
/* Streams of random numbers of a chapter. */
uint64_t config_stream(const struct sim_config *config, uint64_t stream);

/* --- theme.c ------------------------------------------------------------------ */

void theme_apply(struct sim_config *config, struct rng *rng, uint32_t chapter);
/* Of a run of so many frames: how many of them the chapter has. 0: the run is over. */
uint64_t chapter_frames(uint64_t seed, uint64_t frames, uint32_t chapter);

/* Changes one value, "loss=0.5" and the like. False: no such name or a bad value. */
bool config_set(struct sim_config *config, const char *name, const char *value);
/* Names that config_set() knows, one after another, NULL behind the last; for usage(). */
const char *config_name(unsigned int i, const char **help);

/* No frame is lost, doubled, delayed out of order or changed. */
bool config_is_perfect(const struct sim_config *config);

#endif
