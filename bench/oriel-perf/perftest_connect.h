/* SPDX-License-Identifier: BSD-3-Clause */
/* How the queue pairs of a perftest session get connected: by number, or by rdma_cm. */
#ifndef PERF_PERFTEST_CONNECT_H
#define PERF_PERFTEST_CONNECT_H

#include "oriel-perf/perftest_session.h"

/* All print a message when they fail. */

/* The exchange's own connection, with -R. */
bool perftest_connect_control(struct perftest *perftest);
/* What was asked for, or the largest that the port carries. */
bool perftest_path_mtu(struct perftest *perftest);
/* To the keys of the other side. UD gets an address instead of a connection. */
bool perftest_connect_by_number(struct perftest *perftest);
/* A connection for each queue pair, from the client to the server's port. */
bool perftest_connect_by_cm(struct perftest *perftest);
/* Where the datagrams of a queue pair go; number and Q_Key are the caller's to fill in. */
NTSTATUS perftest_make_address(struct perftest *perftest, uint32_t index,
			       struct sockaddr_storage *remote);
/* One queue pair for datagrams by rdma_cm; perftest_datagram.c. */
bool perftest_datagram_ask(struct perftest *perftest, struct peer *peer,
			   struct sockaddr_storage *remote);
bool perftest_datagram_answer(struct perftest *perftest, struct peer *peer);
/* Ends the connections of the data. */
void perftest_disconnect(struct perftest *perftest);

#endif
