/* SPDX-License-Identifier: BSD-3-Clause */
/* Fast registration: a worker gives a region new memory under its old tokens. */
#include "memory/memory_private.h"

#define ADAPTER_PAGE 4096u /* bytes; what max_pages counts */

static enum access_reason check_region(const struct memory *memory, const struct accessor *who,
				       const struct fast_register_request *ask);
static enum access_reason check_memory(const struct memory *memory, const struct accessor *who,
				       const struct fast_register_request *ask);
static void fill_slot(struct memory *memory, uint32_t index,
		      const struct fast_register_request *ask, enum token_kind kind,
		      uint32_t rights, uint64_t *valid);

/*
 * The word of one slot, the remote token's if there is one, decides about both. It is
 * claimed first; the same reasoning as in window_bind() settles the race with the end of
 * region, session and segment.
 */
enum access_reason region_fast_register(struct memory *memory, const struct accessor *who,
					const struct fast_register_request *request)
{
	const struct fast_register_request ask = *request;
	uint64_t meta, claimed, local_valid, remote_valid = 0;
	enum access_reason reason;
	struct token_slot *slot;
	struct segment *segment;
	struct region *region;

	reason = check_region(memory, who, &ask);
	if (reason != ACCESS_OK)
		return reason;

	region = &memory->regions[ask.region];
	segment = &memory->segments[ask.segment];
	slot = &memory->slots[fast_register_slot(region)];
	meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	claimed = meta | (uint64_t)TOKEN_FLAG_CLAIMED << 56;
	if (token_meta_state(meta) != TOKEN_INVALID || meta == claimed ||
	    !__atomic_compare_exchange_n(&slot->meta, &meta, claimed, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return BIND_BOUND;
	__atomic_fetch_add(&segment->regions, 1, __ATOMIC_SEQ_CST);
	reason = check_memory(memory, who, &ask);
	if (__atomic_load_n(&region->state, __ATOMIC_SEQ_CST) != OBJECT_VALID)
		reason = BIND_REGION;
	if (reason != ACCESS_OK)
		goto put_back;

	region->segment = ask.segment;
	fill_slot(memory, region->local_slot, &ask, TOKEN_KIND_LOCAL,
		  RIGHT_LOCAL_READ | (ask.rights & RIGHT_LOCAL_WRITE), &local_valid);
	if (region->remote_slot) {
		fill_slot(memory, region->remote_slot, &ask, TOKEN_KIND_FRMR,
			  ask.rights & RIGHTS_REMOTE, &remote_valid);
		meta = token_meta_to(local_valid & ~(0xffull << 48), TOKEN_INVALID);
		__atomic_compare_exchange_n(&memory->slots[region->local_slot].meta, &meta,
					    local_valid, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	}
	/* Fails when region or session has ended, whose side clears all of this up. */
	if (!__atomic_compare_exchange_n(&slot->meta, &claimed,
					 region->remote_slot ? remote_valid : local_valid, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return BIND_REGION;
	return ACCESS_OK;

put_back:
	__atomic_fetch_sub(&segment->regions, 1, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(&slot->meta, &claimed, meta, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
	return reason;
}

static enum access_reason check_region(const struct memory *memory, const struct accessor *who,
				       const struct fast_register_request *ask)
{
	const struct region *region;

	if (!object_index_good(ask->region, memory->region_count) ||
	    !object_index_good(ask->segment, memory->segment_count))
		return BIND_REGION;
	region = &memory->regions[ask->region];
	if (__atomic_load_n(&region->state, __ATOMIC_ACQUIRE) != OBJECT_VALID ||
	    region->session != who->session || !region->fast_register)
		return BIND_REGION;
	if (region->pd != who->pd)
		return ACCESS_DOMAIN;
	if ((ask->rights & ~(RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE)) ||
	    ((ask->rights & (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC)) &&
	     !(ask->rights & RIGHT_LOCAL_WRITE)))
		return ACCESS_RIGHTS;
	if ((ask->rights & RIGHTS_REMOTE) && !region->remote_slot)
		return ACCESS_RIGHTS;
	return ACCESS_OK;
}

/* The caller is counted in the segment: if it lives now, it stays. */
static enum access_reason check_memory(const struct memory *memory, const struct accessor *who,
				       const struct fast_register_request *ask)
{
	const struct segment *segment = &memory->segments[ask->segment];
	uint64_t pages;

	if (__atomic_load_n(&segment->state, __ATOMIC_SEQ_CST) != OBJECT_CREATED ||
	    segment->session != who->session)
		return BIND_REGION;
	if (ask->length == 0)
		return BIND_LENGTH;
	if (!range_within(0, segment->size, ask->offset, ask->length) ||
	    ask->length - 1 > UINT64_MAX - ask->base)
		return ACCESS_RANGE;
	/* No overflow: length is at most the size of a file. */
	pages = (ask->offset % ADAPTER_PAGE + ask->length + ADAPTER_PAGE - 1) / ADAPTER_PAGE;
	return pages <= memory->regions[ask->region].max_pages ? ACCESS_OK : ACCESS_RANGE;
}

/* Fills one slot of a claimed region and gives the word that makes it VALID. */
static void fill_slot(struct memory *memory, uint32_t index,
		      const struct fast_register_request *ask, enum token_kind kind,
		      uint32_t rights, uint64_t *valid)
{
	struct token_slot *slot = &memory->slots[index];
	uint32_t token = (uint32_t)__atomic_load_n(&slot->meta, __ATOMIC_RELAXED);

	slot->base = ask->base;
	slot->length = ask->length;
	slot->offset = ask->offset;
	slot->segment = ask->segment;
	*valid = token_meta(token, TOKEN_VALID, kind, rights, 0);
}

void fast_register_reset(struct memory *memory, struct region *region)
{
	struct token_slot *local = &memory->slots[region->local_slot];
	struct token_slot *last = &memory->slots[fast_register_slot(region)];
	const uint64_t no_rights = ~(0xffull << 48);

	__atomic_fetch_sub(&memory->segments[region->segment].regions, 1, __ATOMIC_SEQ_CST);
	region->segment = 0;
	if (local != last)
		__atomic_store_n(&local->meta,
				 token_meta_to(local->meta & no_rights, TOKEN_INVALID),
				 __ATOMIC_RELEASE);
	/* The word that a registration claims comes last. */
	__atomic_store_n(&last->meta, token_meta_to(last->meta & no_rights, TOKEN_INVALID),
			 __ATOMIC_RELEASE);
}
