/* SPDX-License-Identifier: BSD-3-Clause */
/* The target at work: one adapter at a time, listeners, connections with a window each. */
#ifndef TARGET_TARGET_H
#define TARGET_TARGET_H

#include <signal.h>

#include "oriel-target/memory.h"

#define RECEIVES        48u /* posted for each connection; the protocol promises 16 */
#define RECEIVE_SIZE    64u
#define SENDS           32u /* answers under way at once; more requests wait */
#define MAX_CONNECTIONS 8192u
#define PROBE_TAG       0x20000u /* RequestContext of a probe */

struct target;

enum connection_state {
	CONNECTION_FREE = 0,
	CONNECTION_OPENING, /* queue pair and window are being made */
	CONNECTION_STARVED, /* there is no token for its window yet */
	CONNECTION_ACCEPTING,
	CONNECTION_LIVE,
	CONNECTION_CLOSING,
};

struct connection {
	struct target *target;
	struct listener *listener;
	uint32_t index;
	uint32_t generation; /* a late completion of an earlier user of the record is not ours */
	enum connection_state state;
	unsigned int waiting; /* callbacks still to come in OPENING and CLOSING */
	unsigned int tries;   /* binds that found no token */
	bool failed;
	bool wanted;                   /* how a window was asked for at connect */
	struct export_request request; /* REQ's */
	struct target_export *export;
	uint8_t granted;
	bool bound;
	bool probing; /* a probe is under way */
	unsigned int sends;
	uint16_t held[RECEIVES]; /* requests that wait for room, oldest first */
	unsigned int held_count;
	NDK_CONNECTOR *connector;
	NDK_QP *qp;
	NDK_MW *mw;
};

struct listener {
	struct target *target;
	struct target_address address;
	NDK_LISTENER *listener;
};

struct target {
	struct target_config config;
	struct target_memory memory[TARGET_MAX_EXPORTS];
	NTSTATUS last_failure; /* of target_open(), told once */
	/* Everything below belongs to the adapter and goes with it. */
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr[TARGET_MAX_EXPORTS];
	MDL *receive_memory;
	NDK_MR *receive_mr;
	struct listener listeners[TARGET_MAX_EXPORTS * TARGET_MAX_LISTEN];
	unsigned int listener_count;
	struct connection *connections; /* MAX_CONNECTIONS */
	unsigned int used;              /* records ever used */
	unsigned int starved;           /* connections that wait for a token, at least */
	bool removed;                   /* the daemon is gone */
	uint64_t served;
	uint64_t probes, probes_answered, probes_lost;
	unsigned int probe_step;
	uint64_t probe_due; /* ms */
};

/* Opens the adapter and starts to listen. A status below 0 means: try again later. */
NTSTATUS target_open(struct target *target);
void target_close(struct target *target);
/* Serves until *stop or the daemon is gone. */
void target_serve(struct target *target, const volatile sig_atomic_t *stop,
		  volatile sig_atomic_t *flush);

/* --- connection.c --- */
void connection_incoming(PVOID context, NDK_CONNECTOR *connector);
void connection_completion(PVOID context, NTSTATUS status); /* CQ notification */
/* Those that waited for a token try again. */
void connection_retry(struct target *target);

/* --- probe.c --- */
/* Asks those whose turn it is. Milliseconds until the next turn; -1: there is none to come. */
int probe_turn(struct target *target);
void probe_done(struct connection *connection, NTSTATUS status);
void probe_tell(const struct target *target); /* what came of them, if there were any */

/* --- window.c --- */
/* Decides a request at this address: EXPORT_GRANTED and what is granted, or the refusal. */
uint32_t window_decide(const struct target *target, const struct target_address *address,
		       const struct export_request *request, struct target_export **export,
		       uint8_t *access, uint64_t *length);
bool peer_allowed(const struct target_export *export, const uint8_t gid[16]);
/* Posts the bind; fills the reply's address, length, token. */
NTSTATUS window_bind(struct connection *connection, const struct target_export *export,
		     uint8_t access, uint64_t offset, uint64_t length, ULONG flags,
		     struct export_reply *reply);

#endif
