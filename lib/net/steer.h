/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a device will put the frames of a queue pair, as far as it tells how it spreads them. */
#ifndef NET_STEER_H
#define NET_STEER_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

struct qp_connection;
struct worker;

#define STEER_KEY   64u  /* bytes of the longest hash key */
#define STEER_QUEUE 512u /* entries of the largest table */

/* A device's receive-side scaling, as it was read when the port started. */
struct steering {
	uint32_t entries;                         /* of `queue`; 0: not known */
	bool ports4, ports6;                      /* UDP ports count, with IPv4 and with IPv6 */
	alignas(uint32_t) uint8_t key[STEER_KEY]; /* read by words */
	uint16_t queue[STEER_QUEUE];
};

/* Reads it from a started device of more than one queue. */
void steer_learn(struct steering *steering, uint16_t port);
/* Queue of a UDP datagram, or -1: the device did not tell. */
int steer_predict(const struct steering *steering, const uint8_t source_gid[16],
		  const uint8_t destination_gid[16], uint16_t source_port,
		  uint16_t destination_port);
/* A queue pair of this worker was connected: it goes at once to where its frames will land, or a
 * rule is wished for. */
void steer_connected(struct worker *worker, uint32_t qp, const struct qp_connection *connection);
/* The same where they do land, at that worker: frames of that port and source port. */
void steer_landed(struct worker *worker, uint32_t qp, uint32_t at, uint32_t port,
		  uint16_t source_port, uint64_t now);

#endif
