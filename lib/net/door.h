/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread that stands between DPDK's memif driver and whoever is at the other end of the link.
 */
#ifndef NET_DOOR_H
#define NET_DOOR_H

#include <stdint.h>

struct net;
struct door;

/*
 * Before the port's device starts. Nothing for drivers but net_memif. 0 or a negative errno: nobody
 * listens where a client shall connect to, or a server cannot listen.
 */
int door_add(struct net *net, uint32_t port);
/* When all ports have started. 0 or a negative errno. */
int door_open(struct net *net);
/* When no worker runs any more, before devices are stopped. */
void door_close(struct net *net);

#endif
