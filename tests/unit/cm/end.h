/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a connection manager's world for tests: a CM on an arena of its own that keeps what
 * it sends and tells, and two of them back to back over a network that can lose MADs.
 */
#ifndef TEST_CM_END_H
#define TEST_CM_END_H

#include "cm/cm.h"

#define END_KEPT    512u
#define END_MS      1000000ull
#define END_S       (1000 * END_MS)
#define END_QPN     0x000123u
#define END_PORT    7471u
#define END_COOKIE  0xc0ffeeull /* of the listener; connections get END_COOKIE + index */
#define END_RECORDS 64u

struct end_mad {
	struct cm_address to;
	uint8_t mad[256];
};

struct end_event {
	enum cm_event_type type;
	uint32_t connection;
	uint64_t cookie;
	uint32_t reason;
	struct cm_address address;
	struct cm_parameters parameters;
};

struct end {
	struct cm *cm;
	struct cm_config config;
	struct cm_io io;
	struct arena arena;
	uint8_t gid[16];
	uint8_t mac[6];
	uint32_t max_path_mtu;
	uint64_t random;
	const uint32_t *dictated; /* what the next draws give, up to a final 0xffffffff */
	uint64_t now;

	struct end_mad sent[END_KEPT];
	uint32_t sent_count;
	struct end_event event[END_KEPT];
	uint32_t event_count;

	/* What the application does from inside the event. */
	bool accepts, gets_ready;
	uint32_t listener;
};

/* last: the last byte of 192.0.2.x, also the seed of its random numbers. */
void end_open(struct end *end, uint8_t last);
void end_open_with(struct end *end, uint8_t last, const struct cm_config *config);
/* Closes the CM; the arena stays for end_adopt(), which maps a copy of it elsewhere. */
void end_adopt(struct end *end);
void end_close(struct end *end);
void end_listen(struct end *end);

/* What the peer at `from` says to this end. */
void end_receive(struct end *end, const struct end *from, const uint8_t mad[256]);
void end_forget(struct end *end); /* what was sent and told so far */
uint32_t end_events(const struct end *end, enum cm_event_type type);
const struct end_event *end_last(const struct end *end, enum cm_event_type type);
uint32_t end_sent(const struct end *end, enum cm_attribute attribute);
const uint8_t *end_last_sent(const struct end *end, enum cm_attribute attribute);
/* Records in use. */
uint32_t end_count(const struct end *end);
/* Moves time on until nothing is in use, at most so far. True if that came about. */
bool end_drain(struct end *end, uint64_t at_most);

enum cm_attribute end_attribute(const uint8_t mad[256]);
struct cm_parameters end_parameters(uint32_t qpn);
/* A sound REQ of this end for the service of the other, as bytes that can be spoilt. */
void end_make_req(const struct end *from, const struct end *to, struct cm_req *req);

/* --- two ends ------------------------------------------------------------------------- */

struct pair {
	struct end a, b;     /* a connects, b listens */
	uint32_t connection; /* of a */
	uint32_t carried;    /* MADs so far, both directions */
	uint32_t lost;       /* number of the MAD that is lost, from 1; 0: none */
	uint32_t copies;     /* how often each MAD arrives besides */
	uint64_t now;
};

void pair_open(struct pair *pair);
void pair_close(struct pair *pair);
void pair_connect(struct pair *pair);
/* Carries MADs and runs timers up to now + duration. */
void pair_run(struct pair *pair, uint64_t duration);
uint32_t pair_b_connection(const struct pair *pair);

#endif
