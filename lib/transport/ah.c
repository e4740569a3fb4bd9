/* SPDX-License-Identifier: BSD-3-Clause */
/* Destinations of datagrams: records, and their use by a worker. */
#include <string.h>

#include "transport/private.h"

/* --- control thread ------------------------------------------------------------------- */

/* Multicast takes joining a group, which nobody here does. */
static bool path_possible(const struct qp_path *path)
{
	return gid_is_unicast(path->local_gid) && gid_is_unicast(path->remote_gid) &&
	       gid_is_v4(path->local_gid) == gid_is_v4(path->remote_gid);
}

static uint32_t take_free(struct transport_shared *s)
{
	const uint32_t index = s->free_ah;

	if (index) {
		s->free_ah = s->ahs[index].free_next;
		return index;
	}
	return s->ah_watermark < s->sizes.addresses ? s->ah_watermark++ : 0;
}

uint32_t ah_create(struct transport_shared *shared, const struct ah_config *config)
{
	uint32_t index;
	struct ah *ah;

	if (!path_possible(&config->path))
		return 0;
	index = take_free(shared);
	if (index == 0)
		return 0;
	ah = &shared->ahs[index];
	ah->session = config->session;
	ah->pd = config->pd;
	ah->flow_label = config->path.flow_label;
	ah->path_mtu = config->path_mtu;
	path_build_template(&config->path, 0, &ah->template);
	__atomic_store_n(&ah->state, AH_VALID, __ATOMIC_RELEASE);
	return index;
}

void ah_destroy(struct transport_shared *shared, uint32_t ah, uint64_t *grace)
{
	__atomic_store_n(&shared->ahs[ah].state, AH_RETIRED, __ATOMIC_RELEASE);
	*grace = memory_grace_start(shared->memory);
}

void ah_free(struct transport_shared *shared, uint32_t ah)
{
	__atomic_store_n(&shared->ahs[ah].state, AH_FREE, __ATOMIC_RELEASE);
	shared->ahs[ah].free_next = shared->free_ah;
	shared->free_ah = ah;
}

/* Retired ones of a dead process belong to the control core's objects still, which free them. */
void ah_adopt(struct transport_shared *shared)
{
	for (uint32_t i = 1; i < shared->sizes.addresses; i++)
		if (shared->ahs[i].state != AH_FREE)
			shared->ah_watermark = i + 1;
	for (uint32_t i = 1; i < shared->ah_watermark; i++) {
		if (shared->ahs[i].state != AH_FREE)
			continue;
		shared->ahs[i].free_next = shared->free_ah;
		shared->free_ah = i;
	}
}

/* --- worker --------------------------------------------------------------------------- */

/* The answer is good until the worker reports quiescence. */
const struct ah *ah_lookup(const struct transport *t, const struct qp *qp, uint32_t handle)
{
	const struct transport_shared *s = t->shared;
	const struct ah *ah;
	uint32_t index = handle;

	if (s->resolve)
		index = s->resolve(s->resolve_context, qp->session, handle, HANDLE_ADDRESS);
	if (index == 0 || index >= s->sizes.addresses)
		return NULL;
	ah = &s->ahs[index];
	if (__atomic_load_n(&ah->state, __ATOMIC_ACQUIRE) != AH_VALID ||
	    ah->session != qp->session || ah->pd != qp->pd)
		return NULL;
	return ah;
}
