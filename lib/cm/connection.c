/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of connections: records, their states, and the indexes that follow the states. */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"
#include "wire/byteorder.h"

#define MAD_ATTRIBUTE 16u /* byte offset */

struct connection *cm_connection_at(const struct cm *cm, uint32_t index)
{
	return arena_record(cm->arena, ARENA_CONNECTIONS, index);
}

struct connection *cm_connection_get(const struct cm *cm, uint32_t index)
{
	struct connection *c;

	if (index == 0 || index >= cm->config.connections)
		return NULL;
	c = cm_connection_at(cm, index);
	return c->state == CONNECTION_FREE ? NULL : c;
}

uint32_t cm_connection_index(const struct cm *cm, const struct connection *c)
{
	return (uint32_t)(c - cm_connection_at(cm, 0));
}

/* --- keys ----------------------------------------------------------------------------- */

static uint32_t hash_local_id(const struct cm *cm, uint32_t local_id)
{
	return cm_index_hash(cm->seed, &local_id, sizeof(local_id));
}

static uint32_t hash_remote_id(const struct cm *cm, const uint8_t peer[16], uint32_t remote_id)
{
	uint8_t key[20];

	memcpy(key, peer, 16);
	memcpy(key + 16, &remote_id, 4);
	return cm_index_hash(cm->seed, key, sizeof(key));
}

static uint32_t hash_qpn(const struct cm *cm, const uint8_t peer[16], uint64_t guid, uint32_t qpn)
{
	uint8_t key[28];

	memcpy(key, peer, 16);
	memcpy(key + 16, &guid, 8);
	memcpy(key + 24, &qpn, 4);
	return cm_index_hash(cm->seed, key, sizeof(key));
}

static uint32_t hash_peer(const struct cm *cm, const uint8_t peer[16])
{
	return cm_index_hash(cm->seed, peer, 16);
}

/* --- finding -------------------------------------------------------------------------- */

struct connection *cm_connection_by_local_id(const struct cm *cm, uint32_t local_id)
{
	uint32_t i = cm_index_first(&cm->by_local_id, hash_local_id(cm, local_id));

	for (; i; i = cm_index_next(&cm->by_local_id, i)) {
		struct connection *c = cm_connection_at(cm, i);

		if (c->local_id == local_id)
			return c;
	}
	return NULL;
}

struct connection *cm_connection_by_remote_id(const struct cm *cm, const uint8_t peer[16],
					      uint32_t remote_id, const struct connection *after)
{
	uint32_t i = after ? cm_index_next(&cm->by_remote_id, cm_connection_index(cm, after))
			   : cm_index_first(&cm->by_remote_id, hash_remote_id(cm, peer, remote_id));

	for (; i; i = cm_index_next(&cm->by_remote_id, i)) {
		struct connection *c = cm_connection_at(cm, i);

		if (c->remote_id == remote_id && !memcmp(c->address.remote_gid, peer, 16))
			return c;
	}
	return NULL;
}

struct connection *cm_connection_of_own_id(const struct cm *cm, const struct cm_address *from,
					   uint32_t local_id)
{
	struct connection *c = cm_connection_by_local_id(cm, local_id);

	return c && !memcmp(c->address.remote_gid, from->remote_gid, 16) ? c : NULL;
}

struct connection *cm_connection_of_both_ids(const struct cm *cm, const struct cm_address *from,
					     uint32_t remote_id, uint32_t local_id)
{
	struct connection *c = cm_connection_of_own_id(cm, from, local_id);

	return c && (!c->remote_id || c->remote_id == remote_id) ? c : NULL;
}

/* The same QPN behind another address is another queue pair, whatever its GUID. */
struct connection *cm_connection_by_qpn(const struct cm *cm, const uint8_t peer[16], uint64_t guid,
					uint32_t qpn)
{
	uint32_t i = cm_index_first(&cm->by_qpn, hash_qpn(cm, peer, guid, qpn));

	for (; i; i = cm_index_next(&cm->by_qpn, i)) {
		struct connection *c = cm_connection_at(cm, i);

		if (c->remote_qpn == qpn && c->remote_guid == guid &&
		    !memcmp(c->address.remote_gid, peer, 16))
			return c;
	}
	return NULL;
}

/*
 * What a peer can heap up by asking alone, and what is therefore bounded for each: requests
 * without an RTU, whether or not they are answered or taken back, and answers to SIDR kept for
 * repetition.
 */
static bool is_of_peer(const struct connection *c)
{
	return cm_connection_is_undecided(c) || c->state == CONNECTION_REP_SENT ||
	       (c->state == CONNECTION_TIMEWAIT && c->passive && c->space == CM_PS_UDP);
}

/* The limits per peer keep this walk short. */
static uint32_t count_of_peer(const struct cm *cm, const uint8_t peer[16], bool answered)
{
	uint32_t i = cm_index_first(&cm->by_peer, hash_peer(cm, peer));
	uint32_t count = 0;

	for (; i; i = cm_index_next(&cm->by_peer, i)) {
		const struct connection *c = cm_connection_at(cm, i);

		count += (c->state == CONNECTION_TIMEWAIT) == answered &&
			 !memcmp(c->address.remote_gid, peer, 16);
	}
	return count;
}

uint32_t cm_connection_pending_of_peer(const struct cm *cm, const uint8_t peer[16])
{
	return count_of_peer(cm, peer, false);
}

uint32_t cm_connection_answered_of_peer(const struct cm *cm, const uint8_t peer[16])
{
	return count_of_peer(cm, peer, true);
}

bool cm_connection_is_pending(const struct connection *c)
{
	return c->state == CONNECTION_REQ_RECEIVED || c->state == CONNECTION_REP_SENT ||
	       c->state == CONNECTION_REQ_SENT || c->state == CONNECTION_REP_RECEIVED ||
	       c->state == CONNECTION_SIDR_RECEIVED || c->state == CONNECTION_SIDR_SENT;
}

bool cm_connection_is_asked(const struct connection *c)
{
	return c->state == CONNECTION_REQ_RECEIVED || c->state == CONNECTION_SIDR_RECEIVED;
}

bool cm_connection_is_undecided(const struct connection *c)
{
	return cm_connection_is_asked(c) || c->state == CONNECTION_WITHDRAWN;
}

/* In timewait: what we said last was no. */
bool cm_connection_was_refused(const struct connection *c)
{
	return get_be16(c->mad + MAD_ATTRIBUTE) == CM_ATTR_REJ;
}

/* --- life of a record ----------------------------------------------------------------- */

static bool state_owns_remote_qpn(enum connection_state state)
{
	return state == CONNECTION_REQ_RECEIVED || state == CONNECTION_REP_SENT ||
	       state == CONNECTION_REP_RECEIVED || state == CONNECTION_ESTABLISHED;
}

/* Unpredictable, and unique among live connections and those in timewait. */
static uint32_t draw_local_id(struct cm *cm)
{
	uint32_t id;

	do {
		id = cm->io.random(cm->io.context);
	} while (id == 0 || cm_connection_by_local_id(cm, id));
	return id;
}

/*
 * The past gives way to the present: without its record a straggler of an ended connection is one
 * of an unknown connection, and is answered as well. Records were handed out in order, so
 * this one is among the oldest.
 */
bool cm_connection_make_room(struct cm *cm)
{
	struct connection *c;

	if (cm->free_count || !cm->in_state[CONNECTION_TIMEWAIT])
		return cm->free_count != 0;
	do {
		cm->evicted = cm->evicted % (cm->config.connections - 1) + 1;
		c = cm_connection_at(cm, cm->evicted);
	} while (c->state != CONNECTION_TIMEWAIT);
	cm_connection_finish(cm, c);
	return true;
}

struct connection *cm_connection_create(struct cm *cm, const struct cm_address *address)
{
	struct connection *c;
	uint32_t i;

	if (!cm_connection_make_room(cm))
		return NULL;
	i = cm->free_ring[cm->free_first];
	cm->free_first = (cm->free_first + 1) % cm->config.connections;
	cm->free_count--;
	c = cm_connection_at(cm, i);
	memset(c, 0, sizeof(*c));
	c->address = *address;
	c->local_id = draw_local_id(cm);
	cm_index_add(&cm->by_local_id, hash_local_id(cm, c->local_id), i);
	return c;
}

/* Known by the peer's id: an id of its connection is not zero, one of its question may be. */
static bool has_remote(const struct connection *c)
{
	return c->remote_id || (c->passive && c->space == CM_PS_UDP);
}

void cm_connection_set_remote(struct cm *cm, struct connection *c, uint32_t remote_id)
{
	c->remote_id = remote_id;
	cm_index_add(&cm->by_remote_id, hash_remote_id(cm, c->address.remote_gid, remote_id),
		     cm_connection_index(cm, c));
}

static void enter_state(struct cm *cm, struct connection *c, enum connection_state state)
{
	uint32_t i = cm_connection_index(cm, c);

	c->state = (uint8_t)state;
	cm->in_state[state]++;
	if (state_owns_remote_qpn(state))
		cm_index_add(&cm->by_qpn,
			     hash_qpn(cm, c->address.remote_gid, c->remote_guid, c->remote_qpn), i);
	if (is_of_peer(c))
		cm_index_add(&cm->by_peer, hash_peer(cm, c->address.remote_gid), i);
	if (cm_connection_is_undecided(c))
		cm->listener[c->listener].pending++;
}

static void leave_state(struct cm *cm, struct connection *c)
{
	uint32_t i = cm_connection_index(cm, c);

	cm->in_state[c->state]--;
	if (state_owns_remote_qpn(c->state))
		cm_index_remove(&cm->by_qpn,
				hash_qpn(cm, c->address.remote_gid, c->remote_guid, c->remote_qpn),
				i);
	if (is_of_peer(c))
		cm_index_remove(&cm->by_peer, hash_peer(cm, c->address.remote_gid), i);
	if (cm_connection_is_undecided(c)) {
		cm->listener[c->listener].pending--;
		c->listener = 0;
	}
}

/* The fields that a state is indexed by are set before it is entered. */
void cm_connection_set_state(struct cm *cm, struct connection *c, enum connection_state state)
{
	if (c->state != CONNECTION_FREE)
		leave_state(cm, c);
	enter_state(cm, c, state);
}

void cm_connection_withdraw(struct cm *cm, struct connection *c)
{
	const uint32_t listener = c->listener;

	leave_state(cm, c);
	c->listener = listener;
	enter_state(cm, c, CONNECTION_WITHDRAWN);
}

static void give_back(struct cm *cm, uint32_t index)
{
	uint32_t last = (cm->free_first + cm->free_count) % cm->config.connections;

	cm->free_ring[last] = index;
	cm->free_count++;
}

/* Rebuilds what the arena does not hold, for one record of it. */
void cm_connection_adopt(struct cm *cm, struct connection *c)
{
	uint32_t i = cm_connection_index(cm, c);
	uint64_t deadline = c->deadline;

	if (c->state == CONNECTION_FREE) {
		give_back(cm, i);
		return;
	}
	c->listener = 0;
	cm_index_add(&cm->by_local_id, hash_local_id(cm, c->local_id), i);
	if (has_remote(c))
		cm_connection_set_remote(cm, c, c->remote_id);
	enter_state(cm, c, c->state);
	c->deadline = 0;
	if (deadline)
		cm_timers_set(cm, c, deadline);
}

void cm_connection_enter_timewait(struct cm *cm, struct connection *c, uint64_t now)
{
	cm_connection_set_state(cm, c, CONNECTION_TIMEWAIT);
	cm_timers_set(cm, c, now + c->timewait);
}

/* The event comes before the record is free, so that a new connection cannot get its index. */
void cm_connection_finish(struct cm *cm, struct connection *c)
{
	uint32_t i = cm_connection_index(cm, c);

	cm_timers_stop(cm, c);
	cm_connection_set_state(cm, c, CONNECTION_TIMEWAIT);
	cm_connection_event(cm, c, CM_TIMEWAIT_OVER, 0, NULL);
	leave_state(cm, c);
	cm_index_remove(&cm->by_local_id, hash_local_id(cm, c->local_id), i);
	if (has_remote(c))
		cm_index_remove(&cm->by_remote_id,
				hash_remote_id(cm, c->address.remote_gid, c->remote_id), i);
	c->state = CONNECTION_FREE;
	give_back(cm, i);
}

void cm_connection_event(struct cm *cm, struct connection *c, enum cm_event_type type,
			 uint32_t reason, const struct cm_parameters *parameters)
{
	struct cm_event event = {
		.type = type,
		.connection = cm_connection_index(cm, c),
		.cookie = c->cookie,
		.reason = reason,
		.space = (enum cm_port_space)c->space,
		.address = &c->address,
		.parameters = parameters,
	};

	if (c->released && type != CM_TIMEWAIT_OVER)
		return;
	cm->io.event(cm->io.context, &event);
}
