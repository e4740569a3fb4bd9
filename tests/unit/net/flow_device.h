/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device with rules, in place of rte_flow: the program's own functions of these names are taken
 * before the library's. (A driver of our own is out of reach: what it would need of ethdev is not
 * among the headers that DPDK installs.) All in one thread.
 */
#ifndef TESTS_NET_FLOW_DEVICE_H
#define TESTS_NET_FLOW_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

#define FLOW_DEVICE_RULES 2048u

struct flow_device_rule {
	bool used, tagged, v4;
	uint16_t vlan, source_port, destination_port, queue;
	uint8_t source_gid[16], destination_gid[16];
};

struct flow_device {
	/* Settings. */
	bool never4, never6; /* says so when it is asked */
	bool deceives;       /* takes a rule when it is asked, and then not */
	bool sticks;         /* does not drop rules */
	uint32_t room;       /* rules that fit; 0: all */
	/* What came. */
	uint32_t asked, tried, made, dropped, flushed;
	uint32_t broken; /* calls that no driver could understand */
	struct flow_device_rule rule[FLOW_DEVICE_RULES];
};
extern struct flow_device flow_device;

/* The queue that a rule puts this frame on, or -1. */
int flow_device_queue(const struct wire_view *view);
uint32_t flow_device_count(void);
/* The only rule there is. */
const struct flow_device_rule *flow_device_only(void);

#endif
