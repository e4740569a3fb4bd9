/* SPDX-License-Identifier: BSD-3-Clause */
/* The check that every packet's and every SGE's access to client memory passes. */
#include "memory/access.h"

/*
 * NdkGetPrivilegedMemoryRegionToken: local read and write of the session's own memfds by logical
 * address, without a region; nothing to a peer. Of the same cost as a token that is unknown.
 */
static enum access_reason __attribute__((noinline, cold))
access_privileged(const struct memory *memory, const struct accessor *who, uint32_t token,
		  uint64_t address, uint64_t length, uint32_t rights, struct access *access)
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

enum access_reason memory_access(const struct memory *memory, const struct accessor *who,
				 uint32_t token, uint64_t address, uint64_t length, uint32_t rights,
				 struct access *access)
{
	const enum access_reason reason =
		access_check(memory, who, token, address, length, rights, access);

	if (__builtin_expect(reason == ACCESS_UNKNOWN, 0))
		return access_privileged(memory, who, token, address, length, rights, access);
	return reason;
}
