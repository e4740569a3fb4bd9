/* SPDX-License-Identifier: BSD-3-Clause */
/* The layers of a data plane: the daemon's, or one within a client. */
#ifndef ORIELD_DAEMON_H
#define ORIELD_DAEMON_H

#include "orield/config.h"

/* In the order in which they are built up. All zero but the configuration before the start. */
struct daemon {
	struct config config;
	struct arena arena;
	struct memory *memory;
	struct transport_shared *shared;
	struct control *control;
	struct net *net;
};

/*
 * Builds all of it and starts the workers. eal_arguments: extra ones, NULL-terminated, or NULL. 0
 * or a negative errno with *message (static); daemon_finish() takes apart what there is by then.
 */
int daemon_start(struct daemon *daemon, char *const eal_arguments[], const char **message);
void daemon_finish(struct daemon *daemon);

#endif
