/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of the load generator to an export. */
#ifndef PERF_PEER_H
#define PERF_PEER_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>

#include "common/export_protocol.h"

struct peer_options {
	struct sockaddr_storage remote; /* the export's listen address */
	struct sockaddr_storage local;  /* ours, port 0; family 0: the daemon's first that fits */
	const char *name;               /* export, NULL: the address's first */
	const char *socket;             /* the daemon's; NULL: $ORIEL_SOCKET, or the usual place */
	uint64_t memory;                /* bytes of local buffer */
	ULONG depth;
	bool poll; /* never sleep while waiting for completions */
};

struct peer {
	struct peer_options options;
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_QP *qp;
	NDK_MR *mr;
	NDK_CONNECTOR *connector;
	MDL *mdl;
	uint8_t *buffer;
	UINT32 local_token;
	struct export_reply window;
	bool disconnected;
	bool armed;
};

/* Connects and gets a window. On failure a message is on stderr. */
bool peer_open(struct peer *peer, const struct peer_options *options);
void peer_close(struct peer *peer);

/* Up to `room` completions, at least one; false when the connection is over. Sleeps if need be. */
bool peer_results(struct peer *peer, NDK_RESULT *results, ULONG room, ULONG *count);

#endif
