/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way that perftest's messages take: a TCP connection of the host, or a connection of rdma_cm
 * that is there for nothing else. Strictly one message of the client, then one of the server.
 *
 * All functions print a message when they fail.
 */
#ifndef PERF_PERFTEST_CHANNEL_H
#define PERF_PERFTEST_CHANNEL_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERFTEST_ARRIVALS 8u /* connections that may wait to be accepted */

struct perftest_control;

struct perftest_channel {
	NDK_ADAPTER *adapter;
	bool server;
	bool over;                        /* the other side has ended it, or it broke */
	bool hurry;                       /* the other side has nothing to do but to answer */
	bool late;                        /* it did not */
	uint64_t deadline;                /* ns; 0: none */
	bool (*given_up)(void);           /* NULL: never */
	uint32_t version;                 /* the peer's, in hundredths; 0: not known yet */
	int socket;                       /* TCP; -1: none */
	struct perftest_control *control; /* rdma_cm; NULL: none */
};

/* --- TCP --- */

/* `host` is a name or an address. A server that is not there yet is waited for for a while. */
bool perftest_tcp_connect(struct perftest_channel *channel, const char *host, uint16_t port);
/* Waits for a client, as long as it takes. */
bool perftest_tcp_accept(struct perftest_channel *channel, uint16_t port);

/* --- rdma_cm --- */

/* Both addresses with their ports; local's is ignored. */
bool perftest_cm_connect(struct perftest_channel *channel, NDK_PD *pd,
			 const struct sockaddr_storage *local,
			 const struct sockaddr_storage *remote);
/*
 * Listens at `local`, waits for a client and goes on listening for what it asks for its data:
 * connections, or the numbers of queue pairs for datagrams.
 */
bool perftest_cm_accept(struct perftest_channel *channel, NDK_PD *pd,
			const struct sockaddr_storage *local, bool datagrams);
/* The next one that comes; NULL: the client has ended the first connection. */
NDK_CONNECTOR *perftest_cm_arrival(struct perftest_channel *channel);

/* --- both --- */

/* Sends `ours` and gets `theirs` of the same size (or the other way round); `what` for messages. */
bool perftest_swap(struct perftest_channel *channel, const char *what, const void *ours,
		   void *theirs, size_t size);
/* Whether the peer's next message is there, or the channel is over. Does not wait. */
bool perftest_pending(struct perftest_channel *channel);
/*
 * For loops that wait: what libndk has to do, and a millisecond of sleep if that is nothing. False
 * when they should wait no longer.
 */
bool perftest_breathe(struct perftest_channel *channel);
void perftest_channel_close(struct perftest_channel *channel);

/* One end of perftest_swap, by rdma_cm; perftest_channel.c's. */
bool perftest_cm_send(struct perftest_channel *channel, const void *data, size_t size);
bool perftest_cm_receive(struct perftest_channel *channel, void *data, size_t size);
bool perftest_cm_pending(struct perftest_channel *channel);
void perftest_cm_close(struct perftest_channel *channel);

#endif
