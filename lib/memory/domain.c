/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains: create and destroy. */
#include <errno.h>

#include "memory/memory_private.h"

int pd_create(struct memory *memory, uint32_t session, uint32_t *pd)
{
	uint32_t index = table_find_free(memory, ARENA_PDS, &memory->next_pd);
	struct pd *record = &memory->pds[index];

	if (index == 0)
		return -ENOSPC;
	record->session = session;
	record->users = 0;
	__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_RELEASE);
	*pd = index;
	return 0;
}

int pd_destroy(struct memory *memory, uint32_t pd)
{
	struct pd *record = &memory->pds[pd];

	if (!object_index_good(pd, memory->pd_count) || record->state == OBJECT_FREE)
		return -EINVAL;
	if (record->users)
		return -EBUSY;
	__atomic_store_n(&record->state, OBJECT_FREE, __ATOMIC_RELEASE);
	return 0;
}
