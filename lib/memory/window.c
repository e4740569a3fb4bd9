/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory windows: create and destroy. What happens in between is bind.c's. */
#include <errno.h>

#include "memory/memory_private.h"

int window_create(struct memory *memory, uint32_t session, uint32_t pd, uint32_t *window)
{
	struct window *record;
	uint32_t index;

	if (!object_index_good(pd, memory->pd_count) || memory->pds[pd].session != session ||
	    memory->pds[pd].state != OBJECT_CREATED)
		return -EINVAL;
	index = table_find_free(memory, ARENA_WINDOWS, &memory->next_window);
	if (index == 0)
		return -ENOSPC;
	record = &memory->windows[index];
	record->pd = pd;
	record->session = session;
	record->region = 0;
	record->revoked = 0;
	memory->pds[pd].users++;
	__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_RELEASE);
	*window = index;
	return 0;
}

/*
 * The token's word is read between two looks at the window that both find it bound to
 * that slot, and a slot is never bound anew under the same token. So the word belongs
 * to this binding, and a swap of it cannot hit another one.
 */
static bool revoke_bound(struct memory *memory, struct window *window, uint32_t slot)
{
	uint64_t *meta = &memory->slots[slot].meta;

	for (;;) {
		uint64_t old = __atomic_load_n(meta, __ATOMIC_SEQ_CST);

		if (__atomic_load_n(&window->slot, __ATOMIC_SEQ_CST) != slot)
			return false;
		if (token_meta_state(old) == TOKEN_REVOKED)
			return false;
		if (__atomic_compare_exchange_n(meta, &old, token_meta_to(old, TOKEN_REVOKED),
						false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			return true;
	}
}

int window_destroy(struct memory *memory, uint32_t window, uint64_t *grace)
{
	struct window *record = &memory->windows[window];
	uint32_t slot;

	if (!object_index_good(window, memory->window_count) || record->state != OBJECT_CREATED)
		return -EINVAL;
	__atomic_store_n(&record->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	slot = __atomic_load_n(&record->slot, __ATOMIC_SEQ_CST);
	if (slot && revoke_bound(memory, record, slot))
		record->revoked = slot;
	*grace = memory_grace_start(memory);
	return 0;
}

/*
 * No bind of this window is under way any more. It may name a slot that we revoked, one
 * that a bind claimed just when we began and left to us, or one that a worker has
 * invalidated and will recycle itself.
 */
void window_destroy_finish(struct memory *memory, uint32_t window)
{
	struct window *record = &memory->windows[window];
	uint32_t slot = __atomic_load_n(&record->slot, __ATOMIC_SEQ_CST);
	bool ours = false;

	if (record->state != OBJECT_CLOSING)
		return;
	if (slot) {
		uint64_t meta = __atomic_load_n(&memory->slots[slot].meta, __ATOMIC_ACQUIRE);

		/* Unbound by us after the look at the word: then it was this binding's. */
		ours = window_unbind(memory, window, slot) &&
		       (token_meta_flags(meta) & TOKEN_FLAG_CLAIMED);
		ours = ours || slot == record->revoked;
	}
	if (ours)
		token_free(memory, slot);
	memory->pds[record->pd].users--;
	record->revoked = 0;
	__atomic_store_n(&record->state, OBJECT_FREE, __ATOMIC_RELEASE);
}
