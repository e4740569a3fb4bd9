/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets of the memif protocol (version 2): names, connections, and messages handed on. Knows
 * nothing of DPDK.
 */
#ifndef NET_MEMLINK_H
#define NET_MEMLINK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

enum memlink_role { MEMLINK_NONE, MEMLINK_SERVER, MEMLINK_CLIENT };

struct memlink_name {
	char text[sizeof(((struct sockaddr_un *)0)->sun_path)];
	bool abstract;
};

/* What a port of the driver net_memif says of its link; see door.c. */
struct memlink_ends {
	enum memlink_role role;
	uint32_t id;
	struct memlink_name outer; /* where the link's server listens, as configured */
	struct memlink_name inner; /* where our driver and our door meet */
};

#define MEMLINK_MESSAGE 128u /* bytes, of every kind */

enum memlink_kind {
	MEMLINK_CLOSED = -1, /* no message: the other end is gone, or says what is none */
	MEMLINK_NOTHING = 0, /* yet */
	MEMLINK_HELLO = 2,
	MEMLINK_INIT = 3,
	MEMLINK_CONNECT = 6,
	MEMLINK_CONNECTED = 7,
	MEMLINK_DISCONNECT = 8,
};

struct memlink_message {
	uint8_t bytes[MEMLINK_MESSAGE];
	int fd; /* that came with it, ours to close; -1: none */
};

/* A descriptor, or a negative errno. */
int memlink_listen(const struct memlink_name *name);
int memlink_connect(const struct memlink_name *name);
/* -1: nobody was there after all, or (own: only this process is welcome) somebody else. */
int memlink_accept(int listener, bool own);

/* The kind of what came, any number that the protocol knows. Never waits. */
int memlink_receive(int socket, struct memlink_message *message);
/* Closes message->fd. False: the other end does not take it. Never waits. */
bool memlink_send(int socket, struct memlink_message *message);
uint32_t memlink_init_id(const struct memlink_message *message); /* of a MEMLINK_INIT */
/* Tells the driver that its peer is gone and waits until it has taken its end down. Closes. */
void memlink_finish(int driver);

#endif
