/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What libndk and libndk-inprocess say to each other. The session is the same as with a daemon:
 * hello and welcome over a socket, then shared memory (lib/shm/layout.h); but nobody serves it
 * unless turn() is called.
 */
#ifndef NDK_PLANE_H
#define NDK_PLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NDK_PLANE_VERSION 1u
#define NDK_PLANE_LIBRARY "libndk-inprocess.so.0"
#define NDK_PLANE_SYMBOL  "oriel_plane_open"

/* A data plane within the process; all zero: none. */
struct ndk_plane {
	int socket;    /* connected; libndk's */
	bool adaptive; /* who waits may sleep a little between turns */
	void *context;
	/*
	 * Serves what there is to serve now, without waiting. sockets: looks for messages on the
	 * session's socket too. Returns how much there was, 0 for nothing. Any thread; while one
	 * is in it another gets 0 at once. Calls nothing of libndk.
	 */
	unsigned int (*turn)(void *context, bool sockets);
	/* Tells peers, takes everything down, returns when that is done. Before the socket's end.
	 */
	void (*close)(void *context);
};

/*
 * Starts the data plane that the configuration file describes. 0, or a negative errno with a
 * message for a person in `message`, which may have several lines: -EPROTONOSUPPORT (version),
 * -EBUSY (the process has one already), -EINVAL (configuration), and what the start met.
 */
typedef int ndk_plane_opener(uint32_t version, const char *configuration, struct ndk_plane *plane,
			     char *message, size_t room);

#endif
