/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection from its making to its end, by callbacks, so that many go on at once. */
#ifndef BENCH_ORIEL_CONNECT_LANE_H
#define BENCH_ORIEL_CONNECT_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "examples/example.h"

enum lane_step {
	LANE_IDLE,
	LANE_CONNECTOR, /* client */
	LANE_QP,
	LANE_CONNECT,  /* client: connect; server: accept */
	LANE_COMPLETE, /* client; the server waits for its peer's end */
	LANE_DISCONNECT,
	LANE_CLOSE_CONNECTOR,
	LANE_CLOSE_QP,
};

struct lane {
	struct lane_owner *owner;
	enum lane_step step;
	bool gone, failed;
	NTSTATUS wrong; /* why it failed */
	NDK_CONNECTOR *connector;
	NDK_QP *qp;
	int64_t begin, up, end; /* ns: asked for, connected, disconnect asked for */
	int64_t over;           /* ns: disconnected */
};

struct lane_owner {
	struct example *example;
	const struct sockaddr_storage *remote; /* NULL: server */
	/* The lane is idle again; lane_connect() or lane_accept() may begin another. */
	void (*ended)(struct lane_owner *owner, struct lane *lane);
};

void lane_connect(struct lane *lane);
void lane_accept(struct lane *lane, NDK_CONNECTOR *connector);

#endif
