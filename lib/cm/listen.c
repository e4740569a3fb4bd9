/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners: which service, at which address, belongs to whom. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cm/cm_private.h"

#define FIRST_LISTENERS 16u

static bool is_any(const uint8_t gid[16])
{
	static const uint8_t any[16];

	return !memcmp(gid, any, 16);
}

static bool covers(const struct cm_listener *l, enum cm_port_space space, const uint8_t gid[16],
		   uint16_t port)
{
	return l->used && l->space == space && l->port == port &&
	       (is_any(l->gid) || is_any(gid) || !memcmp(l->gid, gid, 16));
}

/* 0: nobody listens there, or is paused. */
uint32_t cm_listener_find(const struct cm *cm, enum cm_port_space space, const uint8_t gid[16],
			  uint16_t port)
{
	for (uint32_t i = 1; i < cm->listeners; i++)
		if (covers(&cm->listener[i], space, gid, port))
			return cm->listener[i].paused ? 0 : i;
	return 0;
}

int cm_listener_grow(struct cm *cm)
{
	uint32_t more = cm->listeners ? cm->listeners * 2 : FIRST_LISTENERS;
	struct cm_listener *grown = realloc(cm->listener, more * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	memset(grown + cm->listeners, 0, (more - cm->listeners) * sizeof(*grown));
	cm->listener = grown;
	cm->listeners = more;
	return 0;
}

/* Requests that an earlier daemon left in the arena wait for their listener to come back. */
static void take_orphans(struct cm *cm, uint32_t listener)
{
	struct cm_listener *l = &cm->listener[listener];

	for (uint32_t i = 1; cm->listener[0].pending && i < cm->config.connections; i++) {
		struct connection *c = cm_connection_at(cm, i);

		if (!cm_connection_is_undecided(c) || c->listener ||
		    !covers(l, c->space, c->address.local_gid, c->port))
			continue;
		cm->listener[0].pending--;
		c->listener = listener;
		l->pending++;
	}
}

int cm_listen(struct cm *cm, enum cm_port_space space, const uint8_t gid[16], uint16_t port,
	      uint64_t cookie, uint32_t *listener)
{
	uint32_t free_one = 0;

	if (space != CM_PS_TCP && space != CM_PS_IB && space != CM_PS_UDP)
		return -EOPNOTSUPP;
	for (uint32_t i = cm->listeners - 1; i > 0; i--) {
		if (!cm->listener[i].used)
			free_one = i;
		else if (covers(&cm->listener[i], space, gid, port))
			return -EADDRINUSE;
	}
	if (!free_one) {
		free_one = cm->listeners;
		if (cm_listener_grow(cm))
			return -ENOMEM;
	}
	cm->listener[free_one] = (struct cm_listener){
		.cookie = cookie, .port = port, .space = (uint8_t)space, .used = true
	};
	memcpy(cm->listener[free_one].gid, gid, 16);
	take_orphans(cm, free_one);
	*listener = free_one;
	return 0;
}

static struct cm_listener *listener_get(const struct cm *cm, uint32_t listener)
{
	if (listener == 0 || listener >= cm->listeners || !cm->listener[listener].used)
		return NULL;
	return &cm->listener[listener];
}

void cm_pause(struct cm *cm, uint32_t listener, bool paused)
{
	struct cm_listener *l = listener_get(cm, listener);

	if (l)
		l->paused = paused;
}

/* Who still waits is refused at once, as by an application that went away. */
void cm_unlisten(struct cm *cm, uint32_t listener)
{
	struct cm_listener *l = listener_get(cm, listener);

	if (!l)
		return;
	l->paused = true; /* nothing new, should an event lead back into the CM */
	for (uint32_t i = 1; i < cm->config.connections && cm->listener[listener].pending; i++) {
		struct connection *c = cm_connection_at(cm, i);

		if (cm_connection_is_undecided(c) && c->listener == listener)
			cm_passive_drop(cm, c);
	}
	cm->listener[listener].used = false;
}
