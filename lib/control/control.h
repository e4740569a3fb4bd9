/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control core: client sessions, their objects, and the glue between the connection
 * manager, the ports and the workers. One thread.
 */
#ifndef CONTROL_CONTROL_H
#define CONTROL_CONTROL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "cm/cm.h"
#include "control/state.h"
#include "net/net.h"

#define CONTROL_MAX_SESSIONS 64u /* index 0 included */

struct control_config {
	const char *name;          /* before what is said on stderr; NULL: nothing is */
	char socket_path[108];     /* empty: none, see control_admit() */
	char socket_group[32];     /* empty: only the daemon's own user and root */
	uint32_t bad_token_budget; /* per peer and minute; 0: never shut out */
	uint32_t objects;          /* table size */
	struct cm_config cm;
};

struct control;

/* Adds the tables of this module and of the CM to the arena's specification. */
void control_arena_spec(const struct control_config *config, struct arena_spec spec[ARENA_TABLES]);

/*
 * Opens the UNIX socket: a stale one is replaced, one that a living daemon holds is
 * respected. On failure *message says why and what to do. net may be created only after
 * this (its callbacks go here): control_attach_net() completes the start.
 */
int control_create(struct control **control, const struct control_config *config,
		   struct arena *arena, struct memory *memory, struct transport_shared *shared,
		   const char **message);
/* What net_create() wants. */
const struct net_io *control_net_io(struct control *control);
int control_attach_net(struct control *control, struct net *net);

/* Serves until *stop is set. */
void control_run(struct control *control, const volatile sig_atomic_t *stop);
/*
 * For a program that serves between other things (net_config.caller_runs): what there is to do
 * now, without waiting. sockets: looks at those as well, which costs a system call.
 */
unsigned int control_poll(struct control *control, bool sockets);
/* Whether a client wants something, or a worker has told something: worth a control_poll(). */
bool control_has_work(const struct control *control);
/* The other end of this socket may say hello. Takes it. 0 or a negative errno. */
int control_admit(struct control *control, int socket);
/*
 * Tells all peers (DREQ) and clients that the daemon goes, and waits until both are done or
 * about a second has passed. Workers must still run.
 */
void control_shutdown(struct control *control);
void control_destroy(struct control *control);

/* --- status, for telemetry: racy reads from another thread ------------------------ */

struct control_status {
	uint32_t sessions;
	uint32_t objects[OBJECT_TYPES]; /* by enum object_type */
	uint32_t connections;
	uint64_t started; /* seconds since the epoch */
	uint64_t sessions_opened, sessions_refused, sessions_broken;
	uint64_t bad_tokens, peers_shut_out, requests_shut_out;
	uint64_t mads_not_sent;
	struct cm_statistics cm;
	struct memory_usage memory;
};
void control_get_status(const struct control *control, struct control_status *status);

struct session_status {
	uint32_t session, pid, uid, objects;
	char name[32];
};
/* The n-th open session; false past the last. */
bool control_get_session(const struct control *control, unsigned int n,
			 struct session_status *status);

#endif
