/* SPDX-License-Identifier: BSD-3-Clause */
/* A process's view of the arena's memory tables: set-up, adoption, tear-down, usage. */
#include <errno.h>
#include <stdlib.h>

#include "memory/memory_private.h"

#define LEASES_PER_CYCLE 64 /* that many sessions share the tokens of one slot */

void memory_arena_spec(const struct memory_sizes *sizes, struct arena_spec spec[ARENA_TABLES])
{
	spec[ARENA_TOKENS] = (struct arena_spec){ sizeof(struct token_slot), sizes->tokens };
	spec[ARENA_SEGMENTS] = (struct arena_spec){ sizeof(struct segment), sizes->segments };
	spec[ARENA_REGIONS] = (struct arena_spec){ sizeof(struct region), sizes->regions };
	spec[ARENA_WINDOWS] = (struct arena_spec){ sizeof(struct window), sizes->windows };
	spec[ARENA_PDS] = (struct arena_spec){ sizeof(struct pd), sizes->pds };
}

static int check_tables(const struct arena *arena)
{
	static const uint32_t record_size[] = {
		[ARENA_TOKENS] = sizeof(struct token_slot),
		[ARENA_SEGMENTS] = sizeof(struct segment),
		[ARENA_REGIONS] = sizeof(struct region),
		[ARENA_WINDOWS] = sizeof(struct window),
		[ARENA_PDS] = sizeof(struct pd),
	};
	const uint32_t tokens = arena_records(arena, ARENA_TOKENS);

	for (int i = ARENA_TOKENS; i <= ARENA_PDS; i++)
		if (arena->header->table[i].record_size != record_size[i] ||
		    arena->header->table[i].records < 2)
			return -EINVAL;
	return tokens > 1u << 26 || (tokens & (tokens - 1)) ? -EINVAL : 0;
}

static void find_tables(struct memory *memory, struct arena *arena)
{
	const uint32_t tokens = arena_records(arena, ARENA_TOKENS);

	memory->arena = *arena;
	memory->slots = arena_record(arena, ARENA_TOKENS, 0);
	memory->segments = arena_record(arena, ARENA_SEGMENTS, 0);
	memory->regions = arena_record(arena, ARENA_REGIONS, 0);
	memory->windows = arena_record(arena, ARENA_WINDOWS, 0);
	memory->pds = arena_record(arena, ARENA_PDS, 0);
	memory->segment_count = arena_records(arena, ARENA_SEGMENTS);
	memory->region_count = arena_records(arena, ARENA_REGIONS);
	memory->window_count = arena_records(arena, ARENA_WINDOWS);
	memory->pd_count = arena_records(arena, ARENA_PDS);
	memory->slot_mask = tokens - 1;
	memory->lease = (uint32_t)((1ull << 32) / tokens / LEASES_PER_CYCLE);
	for (int i = 0; i < PERM_ROUNDS; i++)
		memory->key[i] = arena->header->token_key[i];
}

/*
 * Which token of a fast-register region decides, and what follows for the other one and
 * for the segment: see region_fast_register() and token_invalidate().
 */
static void rebuild_fast_register(struct memory *memory, struct region *region)
{
	uint64_t *local = &memory->slots[region->local_slot].meta;
	enum token_state state = token_meta_state(memory->slots[fast_register_slot(region)].meta);

	if (state == TOKEN_INVALID)
		region->segment = 0;
	if (state == TOKEN_INVALID || state == TOKEN_REVOKED)
		*local = token_meta_to(*local & ~(0xffull << 48), state);
}

/* What its process was about to unmap is gone with it, and so is what it was about to have. */
static void rebuild_segments(struct memory *memory)
{
	for (uint32_t i = 1; i < memory->segment_count; i++) {
		struct segment *segment = &memory->segments[i];

		if (segment->state == OBJECT_OPENING ||
		    (segment->state == OBJECT_CLOSING && segment->regions == 0))
			segment->state = OBJECT_FREE;
	}
}

static void rebuild_regions(struct memory *memory)
{
	for (uint32_t i = 1; i < memory->segment_count; i++)
		memory->segments[i].regions = 0;
	for (uint32_t i = 1; i < memory->region_count; i++) {
		struct region *region = &memory->regions[i];

		region->windows = 0;
		if (region->state < OBJECT_VALID)
			continue;
		/* Freed already by a deregistration that came that far. */
		if (token_meta_state(memory->slots[region->local_slot].meta) == TOKEN_FREE)
			region->local_slot = 0;
		if (token_meta_state(memory->slots[region->remote_slot].meta) == TOKEN_FREE)
			region->remote_slot = 0;
		if (region->fast_register && region->local_slot)
			rebuild_fast_register(memory, region);
		if (region->segment)
			memory->segments[region->segment].regions++;
	}
}

/*
 * A binding counts only when the window and a token that was VALID name each other; a
 * claim that its process did not live to finish has been taken back before.
 */
static void rebuild_windows(struct memory *memory)
{
	for (uint32_t i = 1; i < memory->window_count; i++) {
		struct window *window = &memory->windows[i];
		const struct token_slot *slot;

		if (window->slot > memory->slot_mask)
			window->slot = 0;
		slot = &memory->slots[window->slot];
		if (window->state == OBJECT_FREE || slot->window != i ||
		    token_meta_kind(slot->meta) != TOKEN_KIND_WINDOW)
			window->slot = 0;
		if (window->slot)
			memory->regions[slot->region].windows++;
	}
}

int memory_create(struct memory **result, struct arena *arena, unsigned int readers, bool adopted)
{
	struct memory *memory;
	int rc;

	if (readers == 0)
		return -EINVAL;
	rc = check_tables(arena);
	if (rc)
		return rc;
	memory = aligned_alloc(alignof(struct memory), sizeof(*memory));
	if (memory == NULL)
		return -ENOMEM;
	*memory = (struct memory){ 0 };
	find_tables(memory, arena);
	memory->mappings = calloc(memory->segment_count, sizeof(*memory->mappings));
	if (memory->mappings == NULL) {
		rc = -ENOMEM;
		goto free_memory;
	}
	memory->readers = readers;
	memory->token_cache = calloc(readers + 1, TOKEN_CACHE * sizeof(*memory->token_cache));
	if (memory->token_cache == NULL) {
		rc = -ENOMEM;
		goto free_mappings;
	}
	memory->privileged_token = token_next(memory, readers, 0);
	rc = grace_create(memory);
	if (rc)
		goto free_cache;
	if (token_watermark(memory) == 0)
		__atomic_store_n(&memory->slots[0].next, 1, __ATOMIC_RELEASE);
	for (int i = ARENA_TOKENS; i <= ARENA_PDS; i++)
		memory->used[i] = adopted ? arena_records(arena, i) : 1;
	if (adopted) {
		rc = token_rebuild(memory);
		if (rc)
			goto destroy_grace;
		rebuild_regions(memory);
		rebuild_segments(memory);
		rebuild_windows(memory);
	}
	*result = memory;
	return 0;

destroy_grace:
	free(memory->session_first);
	grace_destroy(memory);
free_cache:
	free(memory->token_cache);
free_mappings:
	free(memory->mappings);
free_memory:
	free(memory);
	return rc;
}

void memory_destroy(struct memory *memory)
{
	if (memory == NULL)
		return;
	for (uint32_t i = 1; i < memory->segment_count; i++)
		segment_unmap(memory, i);
	grace_destroy(memory);
	free(memory->session_first);
	free(memory->token_cache);
	free(memory->mappings);
	free(memory);
}

/* Every record of these tables begins with its state, except a segment. */
static uint32_t record_state(const struct memory *memory, enum arena_table table, uint32_t index)
{
	if (table == ARENA_SEGMENTS)
		return memory->segments[index].state;
	return *(const uint32_t *)arena_record(&memory->arena, table, index);
}

_Static_assert(offsetof(struct region, state) == 0, "read by record_state()");
_Static_assert(offsetof(struct window, state) == 0, "read by record_state()");
_Static_assert(offsetof(struct pd, state) == 0, "read by record_state()");

uint32_t table_find_free(struct memory *memory, enum arena_table table, uint32_t *next)
{
	const uint32_t records = arena_records(&memory->arena, table);

	for (uint32_t tried = 1; tried < records; tried++) {
		uint32_t index = *next ? *next : 1;

		*next = index + 1 < records ? index + 1 : 1;
		if (record_state(memory, table, index) != OBJECT_FREE)
			continue;
		if (index >= memory->used[table])
			__atomic_store_n(&memory->used[table], index + 1, __ATOMIC_RELAXED);
		return index;
	}
	return 0;
}

static uint32_t count_living(const struct memory *memory, enum arena_table table)
{
	uint32_t living = 0;

	for (uint32_t i = 1; i < table_used(memory, table); i++)
		living += record_state(memory, table, i) != OBJECT_FREE;
	return living;
}

void memory_usage(const struct memory *memory, struct memory_usage *usage)
{
	*usage = (struct memory_usage){
		.tokens_free = memory->slot_mask,
		.pds = count_living(memory, ARENA_PDS),
		.regions = count_living(memory, ARENA_REGIONS),
		.windows = count_living(memory, ARENA_WINDOWS),
		.segments = count_living(memory, ARENA_SEGMENTS),
	};
	for (uint32_t i = 1; i < token_watermark(memory); i++) {
		uint64_t meta = __atomic_load_n(&memory->slots[i].meta, __ATOMIC_RELAXED);
		enum token_state state = token_meta_state(meta);

		usage->tokens_valid += state == TOKEN_VALID;
		usage->tokens_reserved += state == TOKEN_RESERVED;
		usage->tokens_free -= state != TOKEN_FREE;
	}
	for (uint32_t i = 1; i < memory->segment_count; i++)
		usage->bytes += memory->mappings[i].length;
}
