/* SPDX-License-Identifier: BSD-3-Clause */
/* A session with the daemon and its connections, whichever way these are made. */
#ifndef PERF_PEER_H
#define PERF_PEER_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "common/export_protocol.h"

struct perf_options;
struct session;

struct session_options {
	struct sockaddr_storage local; /* port 0; family 0: the daemon's first of `family` */
	int family;
	bool indexed; /* local is that one of the daemon's addresses: */
	unsigned int local_index;
	const char *socket; /* the daemon's; NULL: $ORIEL_SOCKET, or the usual place */
	uint64_t memory;    /* bytes of each of the two buffers */
	uint64_t extra;     /* bytes behind them */
	ULONG region_flags; /* NDK_MR_FLAG_*: what peers may do with it */
	uint32_t queue_pairs;
	ORIEL_QP_TYPE type;
	ULONG depth;           /* requests of a queue pair under way */
	ULONG receive_depth;   /* at least 1 */
	ULONG reads;           /* READs and atomics that may be under way on the link; 0: 16 */
	uint32_t receive_size; /* bytes of each receive that post_receive() posts */
	ULONG inline_size;
	bool poll; /* never sleep while waiting for completions */
};

/* Memory of the other side that this connection may use. */
struct remote {
	uint64_t address;
	uint64_t length;
	uint32_t token;
	uint8_t access; /* EXPORT_READ, EXPORT_WRITE, EXPORT_ATOMIC */
};

/* One connection. Its queue pair is there before it is connected: QPContext of results is it. */
struct peer {
	struct session *session;
	uint32_t index;
	NDK_QP *qp;
	NDK_CONNECTOR *connector; /* NULL: connected by queue pair number */
	struct remote remote;
	ORIEL_DATAGRAM datagram; /* where to, of UD */
	bool disconnected;
};

/*
 * `source` is what is written and sent, `sink` where reads and receives go and, where the region's
 * flags allow it, what peers reach with remote_token. All connections share both.
 */
struct session {
	struct session_options options;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr;
	MDL *mdl;
	uint8_t *source, *sink, *extra;
	UINT32 local_token, remote_token;
	struct peer *peers; /* options.queue_pairs of them */
	bool disconnected;  /* one of them is, or the CQ has failed */
	bool armed;
};

/* Where both sides of a measurement meet. */
enum meeting {
	MEET_BEFORE, /* receives are posted; data may come when it returns */
	MEET_AFTER,  /* all has been sent and received */
};

/* What the two sides tell each other at the end. */
struct peer_result {
	uint64_t size, iterations;
	double peak, average; /* MiB/s */
	double rate;          /* millions of messages a second */
};

/*
 * A way to the other side. All functions print a message when they fail. `meet` may be NULL: the
 * other side is passive; `report` may be NULL: it has nothing to say.
 */
struct peer_opener {
	const char *name;
	ULONG region_flags; /* what peers may do with our memory */
	bool sends;         /* the other side receives what is sent */
	/* Connects every queue pair of the session and fills in `remote`. */
	bool (*open)(struct session *session, const struct perf_options *options, void **context);
	bool (*meet)(void *context, enum meeting meeting);
	/* Whether the other side waits at MEET_AFTER already; NULL: never. */
	bool (*over)(void *context);
	bool (*report)(void *context, const struct peer_result *ours, struct peer_result *theirs);
	/*
	 * Ends what open began, even if that failed half-way; context may be NULL. False when the
	 * other side was gone before.
	 */
	bool (*close)(struct session *session, void *context);
};

/* Opens adapter, domain, CQ, memory and queue pairs. On failure a message is on stderr. */
bool session_open(struct session *session, const struct session_options *options);
void session_close(struct session *session);
bool session_complain(const char *what, NTSTATUS status);

/* Up to `room` completions, at least one; false when a connection is over. Sleeps if need be. */
bool session_results(struct session *session, NDK_RESULT_EX *results, ULONG room, ULONG *count);
/* The same, but returns with none after `milliseconds`. */
bool session_results_until(struct session *session, NDK_RESULT_EX *results, ULONG room,
			   ULONG *count, int milliseconds);

/* --- export.c: windows of an oriel-target --- */

#define EXPORT_ASKS 16u /* requests for a window that a target takes from one peer at once */

/* Connects every queue pair of the session. */
bool export_open(struct session *session, const struct sockaddr_storage *remote, const char *name);
void export_close(struct session *session);
/* For those who ask: 64 * EXPORT_ASKS bytes of `extra` for each queue pair are received into. */
bool export_post_answers(struct session *session);
/* Asks for a window in place of the peer's; the answer comes as a receive. */
NTSTATUS export_ask(struct peer *peer, const char *name);
/*
 * Takes the window that a receive brought. Refused by a target that is short of tokens, it is to be
 * asked for again: there is none meanwhile. Else a message was printed.
 */
enum export_answer { EXPORT_ANSWER_WINDOW, EXPORT_ANSWER_AGAIN, EXPORT_ANSWER_FAILED };
enum export_answer export_answer(const NDK_RESULT_EX *result);

extern const struct peer_opener export_opener;

/* --- perftest.c: a stock perftest, or oriel-perf, at the other side --- */
extern const struct peer_opener perftest_opener;

#endif
