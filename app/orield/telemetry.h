/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's state on DPDK's telemetry socket. */
#ifndef ORIELD_TELEMETRY_H
#define ORIELD_TELEMETRY_H

#include "control/control.h"
#include "net/net.h"

/*
 * Registers /oriel/status, /oriel/ports, /oriel/workers, /oriel/verdicts, /oriel/sessions,
 * /oriel/qps, /oriel/move, /oriel/congestion and /oriel/fault, and links SOCKET.telemetry to the
 * telemetry socket so that tools find it.
 */
void telemetry_start(const struct control *control, struct net *net,
		     struct transport_shared *shared, const char *socket_path);
/* Returns when nobody is being answered, and nobody is any more. */
void telemetry_stop(void);

#endif
