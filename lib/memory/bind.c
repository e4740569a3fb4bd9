/* SPDX-License-Identifier: BSD-3-Clause */
/* Bind, invalidate and recycle: what workers do to tokens while packets use them. */
#include "memory/memory_private.h"

static enum access_reason check_bind(const struct memory *memory, const struct accessor *who,
				     const struct bind_request *ask);
static enum access_reason check_token(const struct memory *memory, const struct accessor *who,
				      uint32_t token, uint32_t *index);
static void fill_slot(struct token_slot *slot, const struct region *region,
		      const struct accessor *who, const struct bind_request *ask);

/*
 * Nothing is changed before all checks have passed; what the claims below change until
 * one of them fails is put back and was visible to nobody.
 *
 * Binding races with three others: a second bind of the same token or window, the
 * deregistration of the region, the end of the window or session. The token is claimed
 * first, so that only one worker fills the slot. Region and window are settled each by
 * a count or claim of ours followed by a look at the state, against a state followed by
 * a look at the count in the control thread, all sequentially consistent: at least one
 * side sees the other. Once the window names the slot there is no way back for us:
 * what fails then is left to the control thread, which closes window or session and
 * clears up after a grace period, when this call is over for certain.
 */
enum access_reason window_bind(struct memory *memory, const struct accessor *who,
			       const struct bind_request *request)
{
	const struct bind_request ask = *request;
	const uint64_t reserved = token_meta(ask.token, TOKEN_RESERVED, TOKEN_KIND_NONE, 0, 0);
	const uint64_t claimed = reserved | (uint64_t)TOKEN_FLAG_CLAIMED << 56;
	const uint64_t valid = token_meta(ask.token, TOKEN_VALID, TOKEN_KIND_WINDOW, ask.rights,
					  ask.tied ? TOKEN_FLAG_TIED : 0);
	enum access_reason reason;
	struct token_slot *slot;
	struct region *region;
	struct window *window;
	uint64_t meta = reserved;
	uint32_t index, unbound = 0;

	reason = check_bind(memory, who, &ask);
	if (reason == ACCESS_OK)
		reason = check_token(memory, who, ask.token, &index);
	if (reason != ACCESS_OK)
		return reason;

	slot = &memory->slots[index];
	region = &memory->regions[ask.region];
	window = &memory->windows[ask.window];
	if (!__atomic_compare_exchange_n(&slot->meta, &meta, claimed, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return BIND_TOKEN;
	fill_slot(slot, region, who, &ask);

	__atomic_fetch_add(&region->windows, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&region->state, __ATOMIC_SEQ_CST) != OBJECT_VALID) {
		reason = BIND_REGION;
		goto put_back;
	}
	if (!__atomic_compare_exchange_n(&window->slot, &unbound, index, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED)) {
		reason = BIND_BOUND;
		goto put_back;
	}
	if (__atomic_load_n(&window->state, __ATOMIC_SEQ_CST) != OBJECT_CREATED)
		return BIND_WINDOW;
	meta = claimed;
	if (!__atomic_compare_exchange_n(&slot->meta, &meta, valid, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_RELAXED))
		return BIND_WINDOW;
	return ACCESS_OK;

put_back:
	__atomic_fetch_sub(&region->windows, 1, __ATOMIC_SEQ_CST);
	meta = claimed; /* Fails only when the session has ended and the slot is dead. */
	__atomic_compare_exchange_n(&slot->meta, &meta, reserved, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_RELAXED);
	return reason;
}

static enum access_reason check_bind(const struct memory *memory, const struct accessor *who,
				     const struct bind_request *ask)
{
	const struct region *region;
	const struct window *window;

	if (!object_index_good(ask->window, memory->window_count))
		return BIND_WINDOW;
	window = &memory->windows[ask->window];
	if (__atomic_load_n(&window->state, __ATOMIC_ACQUIRE) != OBJECT_CREATED ||
	    window->session != who->session)
		return BIND_WINDOW;
	if (!object_index_good(ask->region, memory->region_count))
		return BIND_REGION;
	region = &memory->regions[ask->region];
	/* NDKPI is silent on windows in fast-register regions; here they have none. */
	if (__atomic_load_n(&region->state, __ATOMIC_ACQUIRE) != OBJECT_VALID ||
	    region->session != who->session || region->fast_register)
		return BIND_REGION;
	/* IBTA C10-72 */
	if (window->pd != who->pd || region->pd != who->pd)
		return ACCESS_DOMAIN;
	if (ask->length == 0)
		return BIND_LENGTH;
	/* IBTA C10-74. No right at all is allowed: NdkBind's flags may omit both. */
	if ((ask->rights & ~RIGHTS_REMOTE) ||
	    ((ask->rights & (RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC)) &&
	     !(region->access & RIGHT_LOCAL_WRITE)))
		return ACCESS_RIGHTS;
	/* IBTA C10-75 */
	if (!range_within(region->base, region->length, ask->address, ask->length))
		return ACCESS_RANGE;
	if (__atomic_load_n(&window->slot, __ATOMIC_RELAXED) != 0)
		return BIND_BOUND;
	return ACCESS_OK;
}

/* The session of a reserved slot changes only after a grace period: it is safe to read. */
static enum access_reason check_token(const struct memory *memory, const struct accessor *who,
				      uint32_t token, uint32_t *index)
{
	const struct token_slot *slot;

	*index = token_slot_index(memory, who->worker, token);
	slot = &memory->slots[*index];
	if (*index == 0 || __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE) !=
				   token_meta(token, TOKEN_RESERVED, TOKEN_KIND_NONE, 0, 0))
		return BIND_TOKEN;
	return slot->session == who->session ? ACCESS_OK : BIND_TOKEN;
}

static void fill_slot(struct token_slot *slot, const struct region *region,
		      const struct accessor *who, const struct bind_request *ask)
{
	slot->base = ask->address;
	slot->length = ask->length;
	slot->offset = region->offset + (ask->address - region->base);
	slot->segment = region->segment;
	slot->pd = who->pd;
	slot->qpn = ask->tied ? who->qpn : 0;
	__atomic_store_n(&slot->region, ask->region, __ATOMIC_RELAXED); /* see window_unbind() */
	slot->window = ask->window;
}

static enum access_reason check_invalidate(const struct accessor *who,
					   const struct token_slot *slot, uint64_t meta,
					   bool remote)
{
	if (token_meta_state(meta) != TOKEN_VALID)
		return ACCESS_DEAD;
	if (token_meta_kind(meta) != TOKEN_KIND_WINDOW && token_meta_kind(meta) != TOKEN_KIND_FRMR)
		return INVALIDATE_KIND;
	if (slot->session != who->session || slot->pd != who->pd)
		return ACCESS_DOMAIN;
	if (remote && (token_meta_flags(meta) & TOKEN_FLAG_TIED) && slot->qpn != who->qpn)
		return ACCESS_QUEUE_PAIR;
	return ACCESS_OK;
}

/*
 * A fast-register region without a remote token is named by its local one. Such a token
 * stands for the region and not for itself, so it is told apart by its region.
 */
static uint64_t meta_as_asked(const struct memory *memory, const struct token_slot *slot,
			      uint64_t meta, uint32_t index, bool remote)
{
	const struct region *region;

	if (remote || token_meta_state(meta) != TOKEN_VALID ||
	    token_meta_kind(meta) != TOKEN_KIND_LOCAL)
		return meta;
	region = &memory->regions[slot->region];
	if (!region->fast_register || fast_register_slot(region) != index)
		return meta;
	return token_meta((uint32_t)meta, TOKEN_VALID, TOKEN_KIND_FRMR, token_meta_rights(meta), 0);
}

enum access_reason token_invalidate(struct memory *memory, const struct accessor *who,
				    uint32_t token, bool remote, uint32_t *slot_index,
				    uint64_t *grace)
{
	const uint32_t index = token_slot_index(memory, who->worker, token);
	struct token_slot *slot = &memory->slots[index];
	enum access_reason reason;
	uint64_t meta;
	bool alone;

	if (index == 0)
		return ACCESS_UNKNOWN;
	meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	if ((uint32_t)meta != token)
		return ACCESS_UNKNOWN;
	reason = check_invalidate(who, slot, meta_as_asked(memory, slot, meta, index, remote),
				  remote);
	if (reason != ACCESS_OK)
		return reason;
	/*
	 * A tied window is used by the worker of its queue pair only. That is us when the
	 * queue pair is the asking one; a request on another queue pair may be another's.
	 * And a worker that is the only one does nothing else meanwhile.
	 */
	alone = memory->readers == 1 ||
		((token_meta_flags(meta) & TOKEN_FLAG_TIED) && slot->qpn == who->qpn);

	if (!__atomic_compare_exchange_n(&slot->meta, &meta, token_meta_to(meta, TOKEN_REVOKED),
					 false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return ACCESS_DEAD;
	if (token_meta_kind(meta) != TOKEN_KIND_WINDOW && memory->regions[slot->region].remote_slot)
		token_revoke(memory, memory->regions[slot->region].local_slot);
	*slot_index = index;
	*grace = alone ? 0 : memory_grace_start(memory);
	return ACCESS_OK;
}

bool token_revoke(struct memory *memory, uint32_t index)
{
	uint64_t *meta = &memory->slots[index].meta;
	uint64_t old = __atomic_load_n(meta, __ATOMIC_ACQUIRE);

	do {
		if (token_meta_state(old) == TOKEN_FREE || token_meta_state(old) == TOKEN_REVOKED)
			return false;
	} while (!__atomic_compare_exchange_n(meta, &old, token_meta_to(old, TOKEN_REVOKED), false,
					      __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE));
	return true;
}

/* Whoever clears the window's slot number also drops the region's count, once. */
bool window_unbind(struct memory *memory, uint32_t window, uint32_t slot)
{
	/* Means something only if the exchange succeeds: else the slot may be another's by now. */
	uint32_t region = __atomic_load_n(&memory->slots[slot].region, __ATOMIC_RELAXED);
	uint32_t bound = slot;

	if (!__atomic_compare_exchange_n(&memory->windows[window].slot, &bound, 0, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return false;
	__atomic_fetch_sub(&memory->regions[region].windows, 1, __ATOMIC_SEQ_CST);
	return true;
}

uint32_t token_recycle(struct memory *memory, unsigned int worker, uint32_t index)
{
	struct token_slot *slot = &memory->slots[index];
	const uint64_t meta = __atomic_load_n(&slot->meta, __ATOMIC_ACQUIRE);
	uint32_t token;

	if (token_meta_state(meta) != TOKEN_REVOKED)
		return 0;
	if (token_meta_kind(meta) != TOKEN_KIND_WINDOW) {
		fast_register_reset(memory, &memory->regions[slot->region]);
		return 0;
	}
	/* The window may be gone and even reused by now: it then names another slot. */
	window_unbind(memory, slot->window, index);
	token = token_next(memory, worker, index);
	if ((token_decrypt(memory, worker, token) / (memory->slot_mask + 1)) % memory->lease == 0) {
		token_retire(memory, index);
		return 0;
	}
	__atomic_store_n(&slot->meta, token_meta(token, TOKEN_RESERVED, TOKEN_KIND_NONE, 0, 0),
			 __ATOMIC_RELEASE);
	return token;
}
