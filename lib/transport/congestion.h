/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DCQCN: how fast a queue pair may send after its peer has reported congestion (CNP), and how often
 * we report it ourselves. Integers only; time in ns, rates in bytes per second.
 *
 * Reaction point, per queue pair: a CNP cuts the rate by half of alpha, alpha decays while none
 * come, and the rate climbs back by timer and byte counter through fast recovery, additive and
 * hyper increase. At line rate a queue pair is not under control at all, and costs one flag to ask.
 */
#ifndef TRANSPORT_CONGESTION_H
#define TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

struct congestion_parameters {
	bool enabled;             /* react to CNPs, and send them */
	uint32_t gain_shift;      /* g = 1 / 2^gain_shift */
	uint32_t recovery_stages; /* F */
	uint64_t line_rate;       /* 0: that of the ports */
	uint64_t minimum_rate;
	uint64_t additive_rate;   /* R_AI */
	uint64_t hyper_rate;      /* R_HAI */
	uint64_t alpha_period;    /* without a CNP in it alpha decays */
	uint64_t increase_period; /* T */
	uint64_t increase_bytes;  /* B */
	uint64_t reduce_period;   /* at most one cut in it */
	uint64_t cnp_interval;    /* at most one CNP of ours per queue pair in it */
	uint8_t cnp_dscp;         /* of our CNPs */
};

/* The parameters of the DCQCN paper, for a line of this speed. */
void congestion_defaults(struct congestion_parameters *parameters, uint64_t line_rate);

#define CONGESTION_ALPHA_ONE 65536u

/*
 * Of one queue pair. All zero is a good start: not under control. So it does not lie in the arena:
 * who adopts that starts at line rate, and the next CNP tells.
 */
struct congestion {
	uint64_t rate;      /* Rc; 0: not under control */
	uint64_t target;    /* Rt */
	uint64_t next_send; /* pacing: not before */
	uint64_t alpha_due;
	uint64_t increase_due;
	uint64_t bytes_left; /* until the byte counter's next event */
	uint64_t last_cut;
	uint64_t last_cnp; /* that we sent, or that became due */
	uint32_t alpha;    /* in 1 / CONGESTION_ALPHA_ONE */
	uint8_t cnp_seen;  /* in this alpha period */
	uint8_t timer_stage, byte_stage;
	uint8_t reserved;
};
_Static_assert(sizeof(struct congestion) == 72, "one for each queue pair");

/* A CNP for this queue pair has come. Returns whether the rate was cut. */
bool congestion_on_cnp(struct congestion *congestion,
		       const struct congestion_parameters *parameters, uint64_t now);

/* Whether a packet may leave now. Brings the timers up to date first. */
bool congestion_may_send(struct congestion *congestion,
			 const struct congestion_parameters *parameters, uint64_t now);

/* A packet of so many bytes has left. */
void congestion_sent(struct congestion *congestion, const struct congestion_parameters *parameters,
		     uint32_t bytes, uint64_t now);

/* A marked packet has come: whether a CNP is due for it. */
bool congestion_answer_mark(struct congestion *congestion,
			    const struct congestion_parameters *parameters, uint64_t now);
/* It has left, maybe later: the interval to the next one begins now. */
void congestion_cnp_sent(struct congestion *congestion, uint64_t now);

#endif
