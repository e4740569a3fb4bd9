/* SPDX-License-Identifier: BSD-3-Clause */
/* What a burst of packets will need of its tokens, fetched before the first of them needs it. */
#include <string.h>

#include "memory/memory_private.h"

static void fetch_slot(const struct memory *memory, uint32_t counter)
{
	const uint32_t index = counter & memory->slot_mask;

	/* A page that no token ever needed would be given to the table by looking at it. */
	if (index < token_watermark(memory))
		__builtin_prefetch(&memory->slots[index]);
}

/* Out of line, for its lanes are cleared first: that takes longer than all the rest of one known
 * token. */
static __attribute__((noinline)) void fetch_unknown(const struct memory *memory,
						    unsigned int worker, const uint32_t unknown[],
						    unsigned int count)
{
	uint32_t counter[PERM_MANY] = { 0 };

	memcpy(counter, unknown, count * sizeof(unknown[0]));
	perm32_decrypt_many(memory->key, counter);
	for (unsigned int i = 0; i < count; i++) {
		token_remember(memory, worker, unknown[i], counter[i]);
		fetch_slot(memory, counter[i]);
	}
}

unsigned int memory_prefetch(const struct memory *memory, unsigned int worker,
			     const uint32_t token[], unsigned int count)
{
	uint32_t unknown[MEMORY_PREFETCH];
	unsigned int unknowns = 0;

	for (unsigned int i = 0; i < count; i++) {
		const uint64_t cached =
			__atomic_load_n(token_cached(memory, worker, token[i]), __ATOMIC_RELAXED);

		if (cached >> 32 == token[i])
			fetch_slot(memory, (uint32_t)cached);
		else
			unknown[unknowns++] = token[i];
	}
	if (unknowns)
		fetch_unknown(memory, worker, unknown, unknowns);
	return unknowns;
}
_Static_assert(MEMORY_PREFETCH <= PERM_MANY, "one batch");

/*
 * The peer names the address. Of all checks only those are made that keep the fetch within what
 * the token reaches: anywhere else it would tell the peer, by its timing, where something lies.
 */
bool memory_prefetch_bytes(const struct memory *memory, unsigned int worker, uint32_t token,
			   uint64_t address)
{
	const struct token_slot *slot = &memory->slots[token_slot_index(memory, worker, token)];
	const uint64_t meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	const uint8_t *base;

	if ((uint32_t)meta != token || token_meta_state(meta) != TOKEN_VALID ||
	    !range_within(slot->base, slot->length, address, 1))
		return false;
	base = memory->mappings[slot->segment].base;
	if (base == NULL)
		return false;
	__builtin_prefetch(base + slot->offset + (address - slot->base));
	return true;
}
