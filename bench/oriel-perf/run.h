/* SPDX-License-Identifier: BSD-3-Clause */
/* The measurements, whichever way the connections were made. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "oriel-perf/latency.h"
#include "oriel-perf/options.h"
#include "oriel-perf/peer.h"
#include "oriel-perf/traffic.h"

struct run_result {
	uint64_t messages, received; /* ours; those of a peer that sends to us */
	uint64_t reads, windows;     /* of PERF_MIXED; asked for and had */
	uint64_t refused;  /* compare-and-swaps that found another value; windows asked for again */
	uint64_t verified; /* bytes compared */
	double seconds;
	double peak;  /* messages/s in the best interval of METER_INTERVAL */
	bool latency; /* one at a time: the times are the result */
	bool timed;   /* a rate, and the times of its messages */
	struct latency times;
};

/* An opened way to the other side. */
struct way {
	const struct peer_opener *opener;
	struct session session;
	void *context;
};

struct verify;

/*
 * One measurement of options->size. False when a connection broke, a request failed, or data
 * differ, after a message.
 */
bool run_measure(struct way *way, const struct perf_options *options, struct run_result *result);

/* --- the clock, ns; meter.c --- */
uint64_t run_now(void);
/* When a run ends that began at `start`: by time, or with `seconds` 0 by its number of messages. */
uint64_t run_end(uint64_t start, double seconds);
/* Also when the user has had enough. */
bool run_over(uint64_t now, uint64_t end);
/* ns: who hears of the other side's end waits so long for its last messages: TCP overtakes daemons.
 */
#define RUN_LAST_WORDS 1000000000ull
/* Whether the user has had enough while no run was under way: what waits should end. */
bool run_given_up(void);
/* The first SIGINT ends a run, whose result is printed; the second ends the program. */
void run_catch_interrupt(void);

/* Bytes from one place in the other side's memory to the next, and how many places there are. */
uint64_t run_step(const struct perf_options *options);
uint32_t run_places(const struct way *way, const struct perf_options *options);

/* --- rate.c: as many requests under way as allowed --- */
bool rate_measure(struct way *way, const struct perf_options *options, struct verify *verify,
		  double seconds, struct run_result *result);
/* The other side of sends: receives until all have come or the sender has ended. */
bool rate_receive(struct way *way, const struct perf_options *options, struct run_result *result);

/* --- turn.c: one at a time --- */
bool turn_measure(struct way *way, const struct perf_options *options, struct verify *verify,
		  double seconds, struct run_result *result);
/* Message and answer, by SEND or by a WRITE whose last byte the other side watches. */
bool turn_exchange(struct way *way, const struct perf_options *options, struct run_result *result);

/* --- bind.c --- */
bool bind_measure(struct way *way, const struct perf_options *options, double seconds,
		  struct run_result *result);

/* --- connect.c --- */
bool connect_measure(struct way *way, const struct perf_options *options,
		     struct run_result *result);

/* --- post.c: one request of a kind --- */
struct request {
	enum perf_operation operation; /* PERF_WRITE, _READ, _SEND, _FETCH_ADD, _COMPARE_SWAP */
	uint64_t local, remote;        /* offsets */
	uint32_t size;
	ULONG flags;
	UINT64 compare; /* of PERF_COMPARE_SWAP, which swaps in one more */
	PVOID context;
};
/* Chooses where a WRITE, READ or SEND goes. */
void post_place(struct request *request, struct peer *peer, struct traffic *traffic, uint64_t step,
		struct verify *verify);
NTSTATUS post_request(struct peer *peer, const struct request *request);
/* Fills the receive queues. */
bool post_receives(struct session *session);
bool post_receive(struct peer *peer, uint32_t slot);
/* Checks a completion; a failed one is told. */
bool post_completed(const NDK_RESULT_EX *result);

/* --- meter.c: the live line, and the best interval --- */
#define METER_INTERVAL 100000000ull /* ns */
struct meter {
	uint64_t start, mark, mark_messages;
	uint64_t line, line_messages; /* when the live line was last written, and at which count */
	double peak;
	uint32_t size;
	bool live;
};
void meter_start(struct meter *meter, const struct perf_options *options);
void meter_look(struct meter *meter, uint64_t now, uint64_t messages);
void meter_end(struct meter *meter, uint64_t messages, struct run_result *result);

/* --- verify.c --- */
/* Whether the other side allows it; else a message was printed. */
bool verify_possible(struct session *session, const struct perf_options *options);
/* Writes and reads back sizes around the MTU. */
bool verify_sizes(struct session *session, uint64_t *bytes);
struct verify *verify_open(struct session *session, const struct perf_options *options,
			   uint64_t step, uint32_t places);
void verify_close(struct verify *verify);
bool verify_before(struct verify *verify);
bool verify_after(struct verify *verify, const struct run_result *result, uint64_t *bytes);
/* How many more requests may be under way: what READs bring has its own memory until compared. */
uint32_t verify_room(const struct verify *verify);
/* What a READ or WRITE of that place has for a context; a READ's slot of the sink. */
uint32_t verify_posted(struct verify *verify, uint32_t place, bool read);
/* Compares what a READ has brought. */
bool verify_completed(struct verify *verify, uint32_t slot);

#endif
