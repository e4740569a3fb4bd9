/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a session: everything it held dies at once and is freed after a grace period. */
#include "memory/memory_private.h"

/*
 * Regions, windows and segments close before the tokens are revoked: a bind that claims a token
 * after we have passed it finds its region closing.
 */
void session_release(struct memory *memory, uint32_t session, uint64_t *grace)
{
	for (uint32_t i = 1; i < table_used(memory, ARENA_REGIONS); i++) {
		struct region *region = &memory->regions[i];

		if (region->session == session && region->state != OBJECT_FREE)
			__atomic_store_n(&region->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	}
	for (uint32_t i = 1; i < table_used(memory, ARENA_WINDOWS); i++) {
		struct window *window = &memory->windows[i];

		if (window->session == session && window->state != OBJECT_FREE)
			__atomic_store_n(&window->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	}
	for (uint32_t i = 1; i < table_used(memory, ARENA_SEGMENTS); i++) {
		struct segment *segment = &memory->segments[i];

		if (segment->session == session && segment->state != OBJECT_FREE)
			__atomic_store_n(&segment->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	}
	if (session < memory->sessions)
		for (uint32_t i = memory->session_first[session]; i; i = memory->slots[i].next)
			token_revoke(memory, i);
	*grace = memory_grace_start(memory);
}

void session_release_finish(struct memory *memory, uint32_t session)
{
	token_free_session(memory, session);
	for (uint32_t i = 1; i < table_used(memory, ARENA_WINDOWS); i++) {
		struct window *window = &memory->windows[i];

		if (window->state == OBJECT_FREE || window->session != session)
			continue;
		__atomic_store_n(&window->slot, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&window->state, OBJECT_FREE, __ATOMIC_RELEASE);
	}
	for (uint32_t i = 1; i < table_used(memory, ARENA_REGIONS); i++) {
		struct region *region = &memory->regions[i];

		if (region->state == OBJECT_FREE || region->session != session)
			continue;
		if (region->segment)
			__atomic_fetch_sub(&memory->segments[region->segment].regions, 1,
					   __ATOMIC_SEQ_CST);
		__atomic_store_n(&region->state, OBJECT_FREE, __ATOMIC_RELEASE);
	}
	for (uint32_t i = 1; i < table_used(memory, ARENA_PDS); i++)
		if (memory->pds[i].state != OBJECT_FREE && memory->pds[i].session == session)
			__atomic_store_n(&memory->pds[i].state, OBJECT_FREE, __ATOMIC_RELEASE);
	for (uint32_t i = 1; i < table_used(memory, ARENA_SEGMENTS); i++) {
		struct segment *segment = &memory->segments[i];

		if (segment->state == OBJECT_FREE || segment->session != session)
			continue;
		__atomic_store_n(&segment->state, OBJECT_FREE, __ATOMIC_SEQ_CST);
		segment_unmap(memory, i);
	}
}
