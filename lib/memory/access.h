/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory_access() in line, for the few callers that run for each packet and know what rights they
 * ask for: the compiler then leaves out what does not concern these.
 */
#ifndef MEMORY_ACCESS_H
#define MEMORY_ACCESS_H

#include "memory/memory_private.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE enum access_reason access_check_token(const struct accessor *who,
							   const struct token_slot *slot,
							   uint64_t meta, uint64_t address,
							   uint64_t length, uint32_t rights)
{
	const bool remote = (rights & RIGHTS_REMOTE) != 0;
	const bool local = (rights & ~RIGHTS_REMOTE) != 0;

	if (token_meta_state(meta) != TOKEN_VALID)
		return ACCESS_DEAD;
	if (remote == local || local != (token_meta_kind(meta) == TOKEN_KIND_LOCAL))
		return ACCESS_KIND;
	/* A domain belongs to one session; its index may have had another owner before. */
	if (slot->pd != who->pd || slot->session != who->session)
		return ACCESS_DOMAIN;
	if ((token_meta_flags(meta) & TOKEN_FLAG_TIED) && slot->qpn != who->qpn)
		return ACCESS_QUEUE_PAIR;
	if (rights & ~token_meta_rights(meta))
		return ACCESS_RIGHTS;
	if (!range_within(slot->base, slot->length, address, length))
		return ACCESS_RANGE;
	if ((rights & RIGHT_REMOTE_ATOMIC) && address % 8)
		return ACCESS_ALIGNMENT;
	return ACCESS_OK;
}

/* As memory_access(), but knows no privileged token: for remote rights. */
static ALWAYS_INLINE enum access_reason access_check(const struct memory *memory,
						     const struct accessor *who, uint32_t token,
						     uint64_t address, uint64_t length,
						     uint32_t rights, struct access *access)
{
	const uint32_t index = token_slot_index(memory, who->worker, token);
	const struct token_slot *slot = &memory->slots[index];
	const struct mapping *mapping;
	enum access_reason reason;
	uint64_t meta;

	if (index == 0)
		return ACCESS_UNKNOWN;
	/* Pairs with the release store that made it VALID: the fields below are whole. */
	meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	if ((uint32_t)meta != token)
		return ACCESS_UNKNOWN;
	reason = access_check_token(who, slot, meta, address, length, rights);
	if (reason != ACCESS_OK)
		return reason;

	mapping = &memory->mappings[slot->segment];
	/* Not mapped: an adopted segment whose memfd has not come back. */
	if (mapping->base == NULL || __atomic_load_n(mapping->poisoned, __ATOMIC_RELAXED))
		return ACCESS_POISONED;
	access->pointer = mapping->base + slot->offset + (address - slot->base);
	access->poisoned = mapping->poisoned;
	access->slot = index;
	return ACCESS_OK;
}

#endif
