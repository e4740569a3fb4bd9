/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions: create, register, deregister, destroy. */
#include <errno.h>
#include <string.h>

#include "memory/memory_private.h"

int region_create(struct memory *memory, uint32_t session, uint32_t pd, bool fast_register,
		  uint32_t *region)
{
	struct region *record;
	uint32_t index;

	if (!object_index_good(pd, memory->pd_count) || memory->pds[pd].session != session ||
	    memory->pds[pd].state != OBJECT_CREATED)
		return -EINVAL;
	index = table_find_free(memory, ARENA_REGIONS, &memory->next_region);
	if (index == 0)
		return -ENOSPC;
	record = &memory->regions[index];
	/* All but the state, which workers may look at. */
	memset(&record->pd, 0, sizeof(*record) - offsetof(struct region, pd));
	record->pd = pd;
	record->session = session;
	record->fast_register = fast_register;
	memory->pds[pd].users++;
	__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_RELEASE);
	*region = index;
	return 0;
}

/* --- registration ---------------------------------------------------------------- */

static int check_state(const struct memory *memory, uint32_t region, bool fast_register)
{
	const struct region *record = &memory->regions[region];

	if (!object_index_good(region, memory->region_count) || record->state == OBJECT_FREE ||
	    (record->fast_register != 0) != fast_register)
		return -EINVAL;
	return record->state == OBJECT_CREATED ? 0 : -EEXIST;
}

static int check_range(const struct memory *memory, uint32_t session, uint32_t segment,
		       uint64_t offset, uint64_t length, uint64_t base, uint32_t access)
{
	const struct segment *record = &memory->segments[segment];

	if (!object_index_good(segment, memory->segment_count) || record->state != OBJECT_CREATED ||
	    record->session != session)
		return -EINVAL;
	if (length == 0 || !range_within(0, record->size, offset, length) ||
	    length - 1 > UINT64_MAX - base)
		return -EINVAL;
	if (access & ~(RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE))
		return -EINVAL;
	if ((access & (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC)) && !(access & RIGHT_LOCAL_WRITE))
		return -EINVAL;
	return __atomic_load_n(&record->poisoned, __ATOMIC_RELAXED) ? -EFAULT : 0;
}

/* Takes a slot or two for a region; gives their tokens, 0 for the one not wanted. */
static int take_tokens(struct memory *memory, struct region *region, bool remote,
		       uint32_t *local_token, uint32_t *remote_token)
{
	*remote_token = 0;
	region->remote_slot = 0;
	region->local_slot = token_take(memory, region->session, local_token);
	if (region->local_slot == 0)
		return -ENOSPC;
	if (!remote)
		return 0;
	region->remote_slot = token_take(memory, region->session, remote_token);
	if (region->remote_slot == 0) {
		token_free(memory, region->local_slot);
		region->local_slot = 0;
		return -ENOSPC;
	}
	return 0;
}

static void publish_slot(struct memory *memory, uint32_t region, uint32_t index, uint64_t meta)
{
	const struct region *record = &memory->regions[region];
	struct token_slot *slot = &memory->slots[index];

	slot->base = record->base;
	slot->length = record->length;
	slot->offset = record->offset;
	slot->segment = record->segment;
	slot->pd = record->pd;
	slot->qpn = 0;
	slot->region = region;
	slot->window = 0;
	__atomic_store_n(&slot->meta, meta, __ATOMIC_RELEASE);
}

int region_register(struct memory *memory, uint32_t region, uint32_t segment, uint64_t offset,
		    uint64_t length, uint64_t base, uint32_t access, uint32_t *local_token,
		    uint32_t *remote_token)
{
	struct region *record = &memory->regions[region];
	const uint32_t local_access = RIGHT_LOCAL_READ | (access & RIGHT_LOCAL_WRITE);
	int rc;

	rc = check_state(memory, region, false);
	if (rc == 0)
		rc = check_range(memory, record->session, segment, offset, length, base, access);
	if (rc == 0)
		rc = take_tokens(memory, record, access & RIGHTS_REMOTE, local_token, remote_token);
	if (rc)
		return rc;

	record->segment = segment;
	record->offset = offset;
	record->length = length;
	record->base = base;
	record->access = access | RIGHT_LOCAL_READ;
	__atomic_fetch_add(&memory->segments[segment].regions, 1, __ATOMIC_SEQ_CST);
	publish_slot(memory, region, record->local_slot,
		     token_meta(*local_token, TOKEN_VALID, TOKEN_KIND_LOCAL, local_access, 0));
	if (record->remote_slot)
		publish_slot(memory, region, record->remote_slot,
			     token_meta(*remote_token, TOKEN_VALID, TOKEN_KIND_REGION,
					access & RIGHTS_REMOTE, 0));
	__atomic_store_n(&record->state, OBJECT_VALID, __ATOMIC_SEQ_CST);
	return 0;
}

int region_init_fast_register(struct memory *memory, uint32_t region, uint32_t max_pages,
			      bool remote, uint32_t *local_token, uint32_t *remote_token)
{
	struct region *record = &memory->regions[region];
	int rc;

	rc = check_state(memory, region, true);
	if (rc == 0 && max_pages == 0)
		rc = -EINVAL;
	if (rc == 0)
		rc = take_tokens(memory, record, remote, local_token, remote_token);
	if (rc)
		return rc;

	record->max_pages = max_pages;
	publish_slot(memory, region, record->local_slot,
		     token_meta(*local_token, TOKEN_INVALID, TOKEN_KIND_LOCAL, 0, 0));
	if (record->remote_slot)
		publish_slot(memory, region, record->remote_slot,
			     token_meta(*remote_token, TOKEN_INVALID, TOKEN_KIND_FRMR, 0, 0));
	__atomic_store_n(&record->state, OBJECT_VALID, __ATOMIC_SEQ_CST);
	return 0;
}

/* --- the way back -------------------------------------------------------------------- */

/*
 * The state first, then the count of windows; a bind counts first and then looks at the
 * state. So either we see its window or it sees that we are closing.
 */
int region_deregister(struct memory *memory, uint32_t region, uint64_t *grace)
{
	struct region *record = &memory->regions[region];

	if (!object_index_good(region, memory->region_count) || record->state != OBJECT_VALID)
		return -EINVAL;
	__atomic_store_n(&record->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&record->windows, __ATOMIC_SEQ_CST) != 0)
		goto busy;
	/* A worker that has just invalidated a fast-register region still comes back to it. */
	if (!token_revoke(memory,
			  record->fast_register ? fast_register_slot(record) : record->local_slot))
		goto busy;
	token_revoke(memory, record->local_slot);
	if (record->remote_slot)
		token_revoke(memory, record->remote_slot);
	*grace = memory_grace_start(memory);
	return 0;
busy:
	__atomic_store_n(&record->state, OBJECT_VALID, __ATOMIC_SEQ_CST);
	return -EBUSY;
}

void region_deregister_finish(struct memory *memory, uint32_t region)
{
	struct region *record = &memory->regions[region];

	if (record->state != OBJECT_CLOSING)
		return;
	if (record->local_slot)
		token_free(memory, record->local_slot);
	if (record->remote_slot)
		token_free(memory, record->remote_slot);
	/* A fast-register region lies in a segment only between register and invalidate. */
	if (record->segment)
		__atomic_fetch_sub(&memory->segments[record->segment].regions, 1, __ATOMIC_SEQ_CST);
	record->local_slot = 0;
	record->remote_slot = 0;
	record->segment = 0;
	__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_RELEASE);
}

int region_destroy(struct memory *memory, uint32_t region)
{
	struct region *record = &memory->regions[region];

	if (!object_index_good(region, memory->region_count) || record->state == OBJECT_FREE)
		return -EINVAL;
	if (record->state != OBJECT_CREATED)
		return -EBUSY;
	memory->pds[record->pd].users--;
	__atomic_store_n(&record->state, OBJECT_FREE, __ATOMIC_RELEASE);
	return 0;
}
