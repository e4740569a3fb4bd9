/* SPDX-License-Identifier: BSD-3-Clause */
/* The local addresses in use: of listeners, of shared endpoints, of connectors without one. */
#include <string.h>

#include "control/control_private.h"

#define EPHEMERAL_FIRST 49152u
#define EPHEMERAL_COUNT 16384u

static uint32_t *bucket_of(struct control *control, uint16_t port)
{
	return &control->endpoint_bucket[port % ENDPOINT_BUCKETS];
}

static bool is_any(const uint8_t gid[16])
{
	static const uint8_t any[16];

	return !memcmp(gid, any, 16);
}

static bool overlaps(const struct shm_address *a, const struct shm_address *b)
{
	return a->port == b->port &&
	       (is_any(a->gid) || is_any(b->gid) || !memcmp(a->gid, b->gid, 16));
}

bool endpoint_is_free(struct control *control, enum cm_port_space space,
		      const struct shm_address *address)
{
	const struct object_local *local;

	for (uint32_t i = *bucket_of(control, address->port); i; i = local->endpoint_next) {
		local = &control->object_local[i];
		if (local->endpoint_space == (uint32_t)space &&
		    overlaps(&object_at(control, i)->connector.local, address))
			return false;
	}
	return true;
}

bool endpoint_choose_port(struct control *control, enum cm_port_space space, uint32_t random,
			  struct shm_address *address)
{
	for (uint32_t i = 0; i < EPHEMERAL_COUNT; i++) {
		address->port = (uint16_t)(EPHEMERAL_FIRST + (random + i) % EPHEMERAL_COUNT);
		if (endpoint_is_free(control, space, address))
			return true;
	}
	return false;
}

void endpoint_hold(struct control *control, struct object *object, enum cm_port_space space)
{
	uint32_t *bucket = bucket_of(control, object->connector.local.port);
	uint32_t index = object_index(control, object);
	struct object_local *local = &control->object_local[index];

	if (local->endpoint_space)
		return;
	local->endpoint_space = (uint32_t)space;
	local->endpoint_next = *bucket;
	*bucket = index;
}

void endpoint_release(struct control *control, struct object *object)
{
	uint32_t *link = bucket_of(control, object->connector.local.port);
	uint32_t index = object_index(control, object);
	struct object_local *local = &control->object_local[index];

	if (!local->endpoint_space)
		return;
	while (*link != index)
		link = &control->object_local[*link].endpoint_next;
	*link = local->endpoint_next;
	local->endpoint_space = 0;
}

static bool is_alive(const struct connector *c)
{
	return c->state != CONNECTOR_IDLE && c->state != CONNECTOR_DISCONNECTED &&
	       c->state != CONNECTOR_CLOSED && c->state != CONNECTOR_FAILED;
}

bool endpoint_has_peer(struct control *control, const struct object *endpoint,
		       const struct shm_address *remote)
{
	uint32_t shared = object_index(control, endpoint);

	for (uint32_t i = *bucket_of(control, endpoint->connector.local.port); i;
	     i = control->object_local[i].endpoint_next) {
		const struct object *object = object_at(control, i);
		const struct connector *c = &object->connector;

		if (object->needs[CONNECTOR_NEEDS_ENDPOINT] == shared && is_alive(c) &&
		    c->remote.port == remote->port && !memcmp(c->remote.gid, remote->gid, 16))
			return true;
	}
	return false;
}
