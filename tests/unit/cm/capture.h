/* SPDX-License-Identifier: BSD-3-Clause */
/* The CM's MADs of a packet capture, with the addresses they travelled between. */
#ifndef TEST_CM_CAPTURE_H
#define TEST_CM_CAPTURE_H

#include <stdint.h>

#define CAPTURE_MOST 64u

struct captured {
	uint8_t source[16], destination[16]; /* GIDs */
	uint8_t source_mac[6];
	uint8_t mad[256];
};

/* Reads tests/data/pcaps/NAME.pcap; returns the number of MADs. */
uint32_t capture_read(const char *name, struct captured mads[CAPTURE_MOST]);

#endif
