/* SPDX-License-Identifier: BSD-3-Clause */
/* What the sub-commands of the stock-verbs client share: options, reports, small helpers. */
#ifndef INTEROP_CHECKS_H
#define INTEROP_CHECKS_H

#include <sys/socket.h>

#include "commands.h"
#include "pattern.h"
#include "peer.h"

struct options {
	struct sockaddr_storage address; /* of the target; the port in it is not used */
	unsigned short port;
	unsigned short read_only_port; /* of an export with access = read; 0: there is none */
	const char *export;
	uint8_t access;
	uint8_t timeout; /* code of the ACK timeout; 0: rdma_cm's own */
	bool lossy;      /* frames may get lost, the last word of a dying queue pair too */
	bool verbose;
};

extern struct options options;

/* Connects to the export named on the command line. */
int connect_to(struct peer *peer, unsigned short port, const struct ask *ask);

/* Each returns true, or reports what was expected of `name` and what came, and returns false. */
bool must_connect(struct peer *peer, const char *name, const struct ask *ask);
bool must_close(struct peer *peer, const char *name);
bool must_complete(const struct peer *peer, const char *name, const char *what,
		   enum ibv_wc_status expected, int got);
/* A remote access error; over a lossy link an answer that never comes is one as well. */
bool must_be_refused(const struct peer *peer, const char *name, const char *what, int got);
/* One WRITE and one READ of it through the peer's window. */
bool must_write_and_read(struct peer *peer, const char *name, const struct window *window);

const char *status_text(const struct peer *peer, int status);

void check_data(const char *argument);
void check_atomic(const char *argument);
void check_pipeline(const char *argument);
void check_stream(const char *mebibytes);
void check_fill(const char *seed);
void check_verify(const char *seed);

void check_refuse(const char *name);
void check_rebind(const char *argument);
void check_sendinv(const char *argument);

void check_cycles(const char *count);
void check_die(const char *argument);
void check_reject(const char *argument);
void check_hold(const char *seconds);
void check_wait(const char *seconds);

#endif
