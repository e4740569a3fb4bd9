/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which MAC a GID of a port's link has: a bounded table with retries, confirmation and a
 * bounded queue of datagrams that wait for an answer. Time in ns; no DPDK.
 *
 * A MAC is stored and given out as a whole or not at all. Entries that nobody asks for
 * give way to new ones, so a flood of strangers costs at most the table.
 */
#ifndef NET_NEIGHBOUR_H
#define NET_NEIGHBOUR_H

#include <stdbool.h>
#include <stdint.h>

#include "net/net.h"

#define NEIGHBOUR_ENTRIES         1024u
#define NEIGHBOUR_BUCKETS         512u
#define NEIGHBOUR_PENDING         128u /* MADs waiting, all entries */
#define NEIGHBOUR_PENDING_ENTRY   8u   /* of one entry */
#define NEIGHBOUR_TRIES           4u
#define NEIGHBOUR_FIRST_RETRY_NS  200000000ull
#define NEIGHBOUR_LONGEST_WAIT_NS 1000000000ull
#define NEIGHBOUR_CONFIRM_NS      60000000000ull /* an older answer is asked for again */
#define NEIGHBOUR_FAILED_NS       3000000000ull  /* how long silence is remembered */

enum neighbour_state { NEIGHBOUR_FREE = 0, NEIGHBOUR_ASKING, NEIGHBOUR_KNOWN, NEIGHBOUR_SILENT };

struct neighbour {
	uint8_t gid[16];
	uint8_t mac[6];
	uint8_t port;
	uint8_t state;      /* enum neighbour_state */
	uint8_t confirming; /* KNOWN, and asked again */
	uint8_t tries;
	uint16_t pending;       /* MADs that wait */
	uint32_t next;          /* of its bucket; index, 0: end */
	uint32_t pending_first; /* index, 0: none */
	uint64_t due;           /* ns: next request, or the end of SILENT; 0: none */
	uint64_t confirmed;     /* ns */
	uint64_t used;          /* ns */
};

struct neighbour_pending {
	uint32_t next;
	struct net_peer peer;
	uint8_t mad[256];
};

struct neighbour_io {
	/* Asks the link: who has gid? mac: the one known so far, or NULL. */
	void (*request)(void *context, uint32_t port, const uint8_t gid[16], const uint8_t *mac);
	/* A MAD that waited; peer->remote_mac is filled in. */
	void (*send)(void *context, const struct net_peer *peer, const uint8_t mad[256]);
	void *context;
};

struct neighbour_table {
	struct neighbour_io io;
	uint64_t next_due; /* no timer runs out before */
	uint64_t dropped;  /* MADs that nobody answered for, or that had no room */
	uint32_t bucket[NEIGHBOUR_BUCKETS];
	uint32_t free_pending;
	struct neighbour entry[NEIGHBOUR_ENTRIES + 1]; /* from 1 */
	struct neighbour_pending pending[NEIGHBOUR_PENDING + 1];
};

void neighbour_create(struct neighbour_table *table, const struct neighbour_io *io);

/*
 * The MAC of a GID on a port's link: 0; -EAGAIN while it is being asked for;
 * -EHOSTUNREACH for a while after nobody answered; -ENOBUFS when the table is full of entries
 * in use.
 */
int neighbour_lookup(struct neighbour_table *table, uint32_t port, const uint8_t gid[16],
		     uint64_t now, uint8_t mac[6]);
/* Sends a MAD to next hop `gid` when its MAC is known, else keeps it until then. */
int neighbour_send(struct neighbour_table *table, const uint8_t gid[16],
		   const struct net_peer *peer, const uint8_t mad[256], uint64_t now);
/*
 * A binding was seen. create: worth an entry of its own; else only an entry that exists is
 * changed. hint: not an answer; fills an empty place but changes nothing known, and is
 * asked for again when it is used.
 */
void neighbour_learn(struct neighbour_table *table, uint32_t port, const uint8_t gid[16],
		     const uint8_t mac[6], bool create, bool hint, uint64_t now);
/* The port's link was away: who is there now may be others. Questions under way start anew. */
void neighbour_forget(struct neighbour_table *table, uint32_t port, uint64_t now);
/* Runs what is due. */
void neighbour_poll(struct neighbour_table *table, uint64_t now);

#endif
