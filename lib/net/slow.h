/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to ARP, neighbour discovery and echo requests, over byte buffers. Every frame
 * that is not exactly what it should be is refused with a reason and changes nothing.
 */
#ifndef NET_SLOW_H
#define NET_SLOW_H

#include "net/link.h"

enum slow_reason {
	SLOW_OK = 0,
	SLOW_MALFORMED, /* lengths or fields that cannot be */
	SLOW_CHECKSUM,
	SLOW_NOT_OURS, /* for another station */
	SLOW_UNWANTED, /* of a kind that gets no answer here */
	SLOW_REASONS
};

enum slow_kind { SLOW_NOTHING = 0, SLOW_ARP, SLOW_ND, SLOW_ECHO };

/* What came out of one frame. */
struct slow_result {
	enum slow_kind answered; /* a frame of `length` bytes lies in the answer buffer */
	uint32_t length;
	bool learned; /* a complete binding of gid to mac */
	bool asked;   /* its owner talks to us, or answers us: worth a new entry */
	uint8_t gid[16];
	uint8_t mac[6];
};

/*
 * Looks at a frame of this port (MAC and VLAN already checked). `answer` has room for
 * `capacity` bytes: an echo request whose answer is longer gets none.
 */
enum slow_reason slow_receive(const struct link *link, const struct link_frame *frame,
			      uint8_t *answer, uint32_t capacity, struct slow_result *result);

/* Whether a frame is worth the control core's time; cheap, for the workers. */
bool slow_wanted(const struct link *link, const struct link_frame *frame);

/* One protocol each: arp.c, icmp.c, nd.c. The caller has cleared *result. */
enum slow_reason arp_receive(const struct link *link, const struct link_frame *frame,
			     uint8_t *answer, struct slow_result *result);
enum slow_reason icmp4_receive(const struct link *link, const struct link_frame *frame,
			       uint8_t *answer, uint32_t capacity, struct slow_result *result);
enum slow_reason icmp6_receive(const struct link *link, const struct link_frame *frame,
			       uint8_t *answer, uint32_t capacity, struct slow_result *result);
/* ICMPv6 types 135 and 136, checksum good; message: from the type on. */
enum slow_reason nd_receive(const struct link *link, const struct link_frame *frame,
			    const uint8_t *message, uint32_t length, uint8_t *answer,
			    struct slow_result *result);

/* --- questions and announcements; each returns the length of the frame ------------- */

#define SLOW_FRAME_MAX 96u /* no frame that these build is longer */

/* Who has `target`? From `source`; mac NULL: asks everybody. */
uint32_t arp_request(const struct link *link, const uint8_t source[16], const uint8_t target[16],
		     const uint8_t *mac, uint8_t *data);
uint32_t nd_solicit(const struct link *link, const uint8_t source[16], const uint8_t target[16],
		    const uint8_t *mac, uint8_t *data);
/* Gratuitous ARP, unsolicited advertisement: `address` is here. */
uint32_t arp_announce(const struct link *link, const uint8_t address[16], uint8_t *data);
uint32_t nd_announce(const struct link *link, const uint8_t address[16], uint8_t *data);

#endif
