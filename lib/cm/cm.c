/* SPDX-License-Identifier: BSD-3-Clause */
/* Making, adopting and ending a connection manager; its statistics. */
#include <errno.h>
#include <stdlib.h>

#include "cm/cm_private.h"

void cm_arena_spec(const struct cm_config *config, struct arena_spec spec[ARENA_TABLES])
{
	spec[ARENA_CONNECTIONS] =
		(struct arena_spec){ sizeof(struct connection), config->connections };
}

static int allocate(struct cm *cm)
{
	uint32_t records = cm->config.connections;

	cm->free_ring = calloc(records, sizeof(*cm->free_ring));
	if (!cm->free_ring || cm_timers_create(cm, records) || cm_listener_grow(cm) ||
	    cm_index_create(&cm->by_local_id, records) ||
	    cm_index_create(&cm->by_remote_id, records) || cm_index_create(&cm->by_qpn, records) ||
	    cm_index_create(&cm->by_peer, records))
		return -ENOMEM;
	return 0;
}

static int take_table(struct cm *cm, bool adopted)
{
	for (uint32_t i = 1; i < cm->config.connections; i++) {
		struct connection *c = cm_connection_at(cm, i);

		if (!adopted)
			c->state = CONNECTION_FREE;
		else if (c->state >= CONNECTION_STATES)
			return -EPROTO;
		cm_connection_adopt(cm, c);
	}
	return 0;
}

int cm_create(struct cm **out, struct arena *arena, const struct cm_config *config,
	      const struct cm_io *io, bool adopted)
{
	struct cm *cm;
	int error;

	if (config->connections < 2 ||
	    arena_records(arena, ARENA_CONNECTIONS) != config->connections ||
	    arena->header->table[ARENA_CONNECTIONS].record_size != sizeof(struct connection))
		return -EINVAL;
	cm = calloc(1, sizeof(*cm));
	if (!cm)
		return -ENOMEM;
	cm->config = *config;
	cm->io = *io;
	cm->arena = arena;
	cm->seed = (uint64_t)io->random(io->context) << 32 | io->random(io->context);
	error = allocate(cm);
	if (!error)
		error = take_table(cm, adopted);
	if (error) {
		cm_destroy(cm);
		return error;
	}
	*out = cm;
	return 0;
}

/* The records stay in the arena as they are: another daemon may adopt them. */
void cm_destroy(struct cm *cm)
{
	if (!cm)
		return;
	cm_timers_destroy(cm);
	cm_index_destroy(&cm->by_local_id);
	cm_index_destroy(&cm->by_remote_id);
	cm_index_destroy(&cm->by_qpn);
	cm_index_destroy(&cm->by_peer);
	free(cm->free_ring);
	free(cm->listener);
	free(cm);
}

void cm_get_statistics(const struct cm *cm, struct cm_statistics *statistics)
{
	const uint32_t *in = cm->in_state;

	*statistics = cm->statistics;
	statistics->established = in[CONNECTION_ESTABLISHED];
	statistics->timewait = in[CONNECTION_TIMEWAIT];
	statistics->pending = in[CONNECTION_REQ_RECEIVED] + in[CONNECTION_REP_SENT] +
			      in[CONNECTION_REQ_SENT] + in[CONNECTION_REP_RECEIVED] +
			      in[CONNECTION_DREQ_SENT] + in[CONNECTION_SIDR_RECEIVED] +
			      in[CONNECTION_SIDR_SENT] + in[CONNECTION_WITHDRAWN];
}
