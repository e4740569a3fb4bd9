/* SPDX-License-Identifier: BSD-3-Clause */
/* The neighbour table: look-up, requests with retries, confirmation, waiting MADs. */
#include <errno.h>

#include "net/link.h"
#include "net/neighbour.h"

void neighbour_create(struct neighbour_table *table, const struct neighbour_io *io)
{
	memset(table, 0, sizeof(*table));
	table->io = *io;
	table->next_due = UINT64_MAX;
	for (uint32_t i = NEIGHBOUR_PENDING; i; i--) {
		table->pending[i].next = table->free_pending;
		table->free_pending = i;
	}
}

/* --- entries ----------------------------------------------------------------------- */

static uint32_t *bucket_of(struct neighbour_table *table, uint32_t port, const uint8_t gid[16])
{
	uint32_t hash = 2166136261u ^ port;

	for (uint32_t i = 0; i < 16; i++)
		hash = (hash ^ gid[i]) * 16777619u;
	return &table->bucket[(hash ^ hash >> 16) % NEIGHBOUR_BUCKETS];
}

static struct neighbour *find(struct neighbour_table *table, uint32_t port, const uint8_t gid[16])
{
	uint32_t index = *bucket_of(table, port, gid);

	while (index) {
		struct neighbour *entry = &table->entry[index];

		if (entry->port == port && memcmp(entry->gid, gid, 16) == 0)
			return entry;
		index = entry->next;
	}
	return NULL;
}

static void drop_pending(struct neighbour_table *table, struct neighbour *entry)
{
	while (entry->pending_first) {
		uint32_t index = entry->pending_first;

		entry->pending_first = table->pending[index].next;
		table->pending[index].next = table->free_pending;
		table->free_pending = index;
		table->dropped++;
	}
	entry->pending = 0;
}

static void entry_free(struct neighbour_table *table, struct neighbour *entry)
{
	uint32_t *link = bucket_of(table, entry->port, entry->gid);
	uint32_t index = (uint32_t)(entry - table->entry);

	while (*link != index)
		link = &table->entry[*link].next;
	*link = entry->next;
	drop_pending(table, entry);
	memset(entry, 0, sizeof(*entry));
}

/* A free entry, else the one longest unused that nobody is asking for now. */
static struct neighbour *entry_new(struct neighbour_table *table, uint32_t port,
				   const uint8_t gid[16])
{
	struct neighbour *chosen = NULL;
	uint32_t *bucket;

	for (uint32_t i = 1; i <= NEIGHBOUR_ENTRIES; i++) {
		struct neighbour *entry = &table->entry[i];

		if (entry->state == NEIGHBOUR_FREE) {
			chosen = entry;
			break;
		}
		if (entry->state != NEIGHBOUR_ASKING && (!chosen || entry->used < chosen->used))
			chosen = entry;
	}
	if (!chosen)
		return NULL;
	if (chosen->state != NEIGHBOUR_FREE)
		entry_free(table, chosen);
	bucket = bucket_of(table, port, gid);
	memcpy(chosen->gid, gid, 16);
	chosen->port = (uint8_t)port;
	chosen->next = *bucket;
	*bucket = (uint32_t)(chosen - table->entry);
	return chosen;
}

/* --- requests ---------------------------------------------------------------------- */

static void set_due(struct neighbour_table *table, struct neighbour *entry, uint64_t due)
{
	entry->due = due;
	if (due && due < table->next_due)
		table->next_due = due;
}

/* The first request is sent at once, the next after 200 ms, 400 ms, then every second. */
static void ask(struct neighbour_table *table, struct neighbour *entry, uint64_t now)
{
	uint64_t wait = NEIGHBOUR_FIRST_RETRY_NS << entry->tries;

	if (wait > NEIGHBOUR_LONGEST_WAIT_NS)
		wait = NEIGHBOUR_LONGEST_WAIT_NS;
	entry->tries++;
	set_due(table, entry, now + wait);
	table->io.request(table->io.context, entry->port, entry->gid,
			  entry->state == NEIGHBOUR_KNOWN ? entry->mac : NULL);
}

static struct neighbour *find_or_ask(struct neighbour_table *table, uint32_t port,
				     const uint8_t gid[16], uint64_t now)
{
	struct neighbour *entry = find(table, port, gid);

	if (!entry) {
		entry = entry_new(table, port, gid);
		if (!entry)
			return NULL;
		entry->state = NEIGHBOUR_ASKING;
		ask(table, entry, now);
	} else if (entry->state == NEIGHBOUR_KNOWN && !entry->confirming &&
		   now - entry->confirmed >= NEIGHBOUR_CONFIRM_NS) {
		entry->confirming = 1;
		entry->tries = 0;
		ask(table, entry, now);
	}
	entry->used = now;
	return entry;
}

int neighbour_lookup(struct neighbour_table *table, uint32_t port, const uint8_t gid[16],
		     uint64_t now, uint8_t mac[6])
{
	struct neighbour *entry = find_or_ask(table, port, gid, now);

	if (!entry)
		return -ENOBUFS;
	if (entry->state == NEIGHBOUR_SILENT)
		return -EHOSTUNREACH;
	if (entry->state == NEIGHBOUR_ASKING)
		return -EAGAIN;
	memcpy(mac, entry->mac, 6);
	return 0;
}

int neighbour_send(struct neighbour_table *table, const uint8_t gid[16],
		   const struct net_peer *peer, const uint8_t mad[256], uint64_t now)
{
	struct neighbour *entry = find_or_ask(table, peer->port, gid, now);
	struct neighbour_pending *pending;
	uint32_t *link, index;

	if (!entry)
		return -ENOBUFS;
	if (entry->state == NEIGHBOUR_SILENT)
		return -EHOSTUNREACH;
	if (entry->state == NEIGHBOUR_KNOWN) {
		struct net_peer resolved = *peer;

		memcpy(resolved.remote_mac, entry->mac, 6);
		table->io.send(table->io.context, &resolved, mad);
		return 0;
	}
	index = table->free_pending;
	if (!index || entry->pending == NEIGHBOUR_PENDING_ENTRY) {
		table->dropped++;
		return -ENOBUFS;
	}
	pending = &table->pending[index];
	table->free_pending = pending->next;
	pending->next = 0;
	pending->peer = *peer;
	memcpy(pending->mad, mad, sizeof(pending->mad));
	for (link = &entry->pending_first; *link; link = &table->pending[*link].next)
		;
	*link = index;
	entry->pending++;
	return 0;
}

/* --- answers ----------------------------------------------------------------------- */

static void send_pending(struct neighbour_table *table, struct neighbour *entry)
{
	while (entry->pending_first) {
		uint32_t index = entry->pending_first;
		struct neighbour_pending *pending = &table->pending[index];

		entry->pending_first = pending->next;
		memcpy(pending->peer.remote_mac, entry->mac, 6);
		table->io.send(table->io.context, &pending->peer, pending->mad);
		pending->next = table->free_pending;
		table->free_pending = index;
	}
	entry->pending = 0;
}

void neighbour_learn(struct neighbour_table *table, uint32_t port, const uint8_t gid[16],
		     const uint8_t mac[6], bool create, bool hint, uint64_t now)
{
	struct neighbour *entry = find(table, port, gid);

	if (!mac_is_unicast(mac) || (hint && entry && entry->state == NEIGHBOUR_KNOWN))
		return;
	if (!entry) {
		entry = create ? entry_new(table, port, gid) : NULL;
		if (!entry)
			return;
		entry->used = now;
	}
	memcpy(entry->mac, mac, 6);
	entry->state = NEIGHBOUR_KNOWN;
	entry->confirming = 0;
	entry->tries = 0;
	entry->due = 0;
	/* Modulo 2^64: an age is a difference. */
	entry->confirmed = hint ? now - NEIGHBOUR_CONFIRM_NS : now;
	send_pending(table, entry);
}

/* --- time -------------------------------------------------------------------------- */

static void run_out(struct neighbour_table *table, struct neighbour *entry, uint64_t now)
{
	if (entry->state == NEIGHBOUR_SILENT) {
		entry_free(table, entry);
	} else if (entry->tries < NEIGHBOUR_TRIES) {
		ask(table, entry, now);
	} else {
		entry->state = NEIGHBOUR_SILENT;
		entry->confirming = 0;
		drop_pending(table, entry);
		set_due(table, entry, now + NEIGHBOUR_FAILED_NS);
	}
}

void neighbour_forget(struct neighbour_table *table, uint32_t port, uint64_t now)
{
	for (uint32_t i = 1; i <= NEIGHBOUR_ENTRIES; i++) {
		struct neighbour *entry = &table->entry[i];

		if (entry->port != port)
			continue;
		if (entry->state == NEIGHBOUR_KNOWN || entry->state == NEIGHBOUR_SILENT)
			entry_free(table, entry);
		if (entry->state != NEIGHBOUR_ASKING)
			continue;
		/* What was asked while there was no link was heard by nobody. */
		entry->tries = 0;
		ask(table, entry, now);
	}
}

void neighbour_poll(struct neighbour_table *table, uint64_t now)
{
	if (now < table->next_due)
		return;
	table->next_due = UINT64_MAX;
	for (uint32_t i = 1; i <= NEIGHBOUR_ENTRIES; i++) {
		struct neighbour *entry = &table->entry[i];

		if (!entry->due)
			continue;
		if (entry->due <= now)
			run_out(table, entry, now);
		else if (entry->due < table->next_due)
			table->next_due = entry->due;
	}
}
