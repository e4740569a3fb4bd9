/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perftest's steps as either side: what is exchanged before the data, between the sizes of -a and
 * at the end. The other side may be a stock ib_write_bw, ib_read_lat, ... or oriel-perf.
 *
 * All functions print a message when they fail.
 */
#ifndef PERF_PERFTEST_SESSION_H
#define PERF_PERFTEST_SESSION_H

#include "oriel-perf/options.h"
#include "oriel-perf/peer.h"
#include "oriel-perf/perftest_channel.h"
#include "oriel-perf/perftest_exchange.h"

#define PERFTEST_READS      16u /* READs and atomics that we answer at a time, each queue pair */
#define PERFTEST_LARGEST    8388608u /* bytes: the last of -a */
#define PERFTEST_MEMORY_MIN 65536u   /* the largest cycle buffer: a page of the peer's */

struct perftest {
	const struct perf_options *options;
	struct session *session;
	struct perftest_channel channel;
	struct perftest_key *ours, *theirs; /* of each queue pair */
	uint32_t mtu;                       /* bytes: the smaller of both sides */
	uint32_t cycle; /* messages of at most half of it are spread over so many bytes, */
	uint32_t line;  /* beginning at multiples of this */
	bool receives;  /* have been posted */
	bool settled;   /* no data is under way, so that there may be an orderly end */
	bool ended;     /* the server knows that there is no more data */
	struct perftest_report last; /* to be told at the end */
};

static inline bool perftest_is_send(const struct perf_options *options)
{
	return options->operation == PERF_SEND;
}

/*
 * Meets the other side and connects all queue pairs. The session, opened with at least
 * PERFTEST_MEMORY_MIN bytes of memory and remote rights, stays the caller's; so do the options. To
 * be closed also when it failed.
 */
bool perftest_open(struct perftest *perftest, struct session *session,
		   const struct perf_options *options);
/* Before the data of each size; receives are posted. */
bool perftest_begin(struct perftest *perftest);
/* After the data of each size. Where only the client sends, its server waits here. */
bool perftest_end(struct perftest *perftest);
/* `ours` is told where the other side wants it; `theirs` is what it told, or zero. */
bool perftest_report(struct perftest *perftest, const struct perftest_report *ours,
		     struct perftest_report *theirs);
/* After all sizes. */
bool perftest_finish(struct perftest *perftest);
void perftest_close(struct perftest *perftest);

#endif
