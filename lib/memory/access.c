/* SPDX-License-Identifier: BSD-3-Clause */
/* The check that every packet's and every SGE's access to client memory passes. */
#include "memory/memory_private.h"

/* Kept out of the path that every packet takes. */
static enum access_reason __attribute__((noinline, cold))
access_privileged(const struct memory *memory, const struct accessor *who, uint32_t token,
		  uint64_t address, uint64_t length, uint32_t rights, struct access *access);
static enum access_reason check_token(const struct accessor *who, const struct token_slot *slot,
				      uint64_t meta, uint64_t address, uint64_t length,
				      uint32_t rights);

enum access_reason memory_access(const struct memory *memory, const struct accessor *who,
				 uint32_t token, uint64_t address, uint64_t length, uint32_t rights,
				 struct access *access)
{
	const uint32_t index = token_slot_index(memory, token);
	const struct token_slot *slot = &memory->slots[index];
	const struct mapping *mapping;
	enum access_reason reason;
	uint64_t meta;

	if (index == 0)
		return access_privileged(memory, who, token, address, length, rights, access);
	/* Pairs with the release store that made it VALID: the fields below are whole. */
	meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	if ((uint32_t)meta != token)
		return ACCESS_UNKNOWN;
	reason = check_token(who, slot, meta, address, length, rights);
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

static enum access_reason check_token(const struct accessor *who, const struct token_slot *slot,
				      uint64_t meta, uint64_t address, uint64_t length,
				      uint32_t rights)
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

/*
 * NdkGetPrivilegedMemoryRegionToken: local read and write of the session's own memfds by logical
 * address, without a region; nothing to a peer. Of the same cost as a token that is unknown.
 */
static enum access_reason access_privileged(const struct memory *memory, const struct accessor *who,
					    uint32_t token, uint64_t address, uint64_t length,
					    uint32_t rights, struct access *access)
{
	const uint64_t index = address >> LOGICAL_OFFSET_BITS;
	const uint64_t offset = address & ((1ull << LOGICAL_OFFSET_BITS) - 1);
	const struct segment *segment;
	const struct mapping *mapping;

	if ((rights & RIGHTS_REMOTE) || token != memory_privileged_token(memory))
		return ACCESS_UNKNOWN;
	if (index == 0 || index >= memory->segment_count)
		return ACCESS_RANGE;
	segment = &memory->segments[index];
	/* Pairs with segment_detach() and session_release(), which unmap a grace period later. */
	if (__atomic_load_n(&segment->state, __ATOMIC_SEQ_CST) != OBJECT_CREATED ||
	    segment->session != who->session || !range_within(0, segment->size, offset, length))
		return ACCESS_RANGE;
	mapping = &memory->mappings[index];
	if (mapping->base == NULL || __atomic_load_n(mapping->poisoned, __ATOMIC_RELAXED))
		return ACCESS_POISONED;
	*access =
		(struct access){ .pointer = mapping->base + offset, .poisoned = mapping->poisoned };
	return ACCESS_OK;
}
