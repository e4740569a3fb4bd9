/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port under test and the station at the other end of its wire (a memif pair inside this
 * process), with the control thread's callbacks recorded.
 */
#ifndef TESTS_NET_WIRE_PAIR_H
#define TESTS_NET_WIRE_PAIR_H

#include <criterion/criterion.h>
#include <unistd.h>

#include "fake.h"
#include "links.h"
#include "wire/build.h"

#define PAIR_DONE 64u

struct pair {
	struct net *net;
	uint64_t now; /* the control thread's time; passes only when a test says so */
	uint16_t far; /* DPDK's number of the other end */
	uint32_t workers;

	/* What the callbacks saw. */
	uint32_t mads, events, out_of_order;
	struct net_peer mad_peer;
	uint8_t mad[256];
	bool resolves; /* whoever sent a MAD is asked for at once */
	struct qp_path resolved;
	uint32_t done;
	uint64_t done_cookie[PAIR_DONE];
	int done_status[PAIR_DONE];
};
extern struct pair pair;

void pair_start(uint32_t workers, uint16_t vlan);
void pair_stop(void);

/* Sends a frame from the far end on one of its queues. */
void far_send(uint16_t queue, const uint8_t *frame, uint32_t length);
/* From here on our end's driver takes tags off, as devices do. */
void pair_strip_tags(void);
/* The next frame that came to the far end, on any queue; 0: none within some seconds. */
uint32_t far_receive(uint8_t frame[2048]);
/* As far_receive(), but passes over announcements and other ARP and ND requests. */
uint32_t far_receive_roce(uint8_t frame[2048], struct wire_view *view);
void far_stop(void); /* the cable is pulled */

/* A good RC SEND_ONLY of the peer to us; tci: 0xffff for no tag. Returns its length. */
uint32_t frame_roce(uint8_t *frame, uint32_t qpn, uint32_t psn, uint16_t tci);
uint32_t frame_mad(uint8_t *frame, uint32_t qkey, uint8_t first);

uint64_t verdict_count(uint32_t verdict); /* all workers */

/* Lets the control core run until `condition` holds; fails the test when it never does. */
#define wait_for(condition)                                                               \
	do {                                                                              \
		bool holds_ = false;                                                      \
                                                                                          \
		for (unsigned int i_ = 0; !(holds_ = (condition)) && i_ < 100000; i_++) { \
			net_poll(pair.net, pair.now);                                     \
			usleep(100);                                                      \
		}                                                                         \
		cr_assert(holds_, "never: " #condition);                                  \
	} while (0)

#endif
