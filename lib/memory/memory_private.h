/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of lib/memory share: the process-local state, the token word, and
 * the helpers of one file that another needs.
 *
 * Who may change what. A token's life is decided by compare-and-swap on its `meta`
 * alone; whoever takes it out of TOKEN_VALID owns the slot until it is recycled or
 * freed. Everything else in a slot is written by its owner only. Lists of slots are the
 * control thread's.
 */
#ifndef MEMORY_MEMORY_PRIVATE_H
#define MEMORY_MEMORY_PRIVATE_H

#include <stddef.h>

#include "memory/memory.h"
#include "memory/perm.h"

struct rte_rcu_qsbr;

/* A worker is filling this slot; it grants nothing yet. Seen on RESERVED and INVALID. */
#define TOKEN_FLAG_CLAIMED 0x80u

/* Where a segment lies in this process; base is NULL when it is not mapped. */
struct mapping {
	uint8_t *base;
	uint32_t *poisoned; /* in the segment's record */
	size_t length;
	size_t page_size;
	size_t populated; /* bytes, from the first on */
	int fd;
	int fault_range; /* of fault_range_add(), or -1 */
	uint64_t grace;  /* not 0: detached, see segment_collect() */
};

struct memory {
	/* Read per packet. */
	struct token_slot *slots;
	struct mapping *mappings; /* by segment */
	uint64_t *token_cache;    /* of decryptions, one of each worker, see token_decrypt() */
	uint32_t slot_mask;
	uint16_t key[PERM_ROUNDS];
	uint32_t privileged_token;

	/* Read by binds and revocations. */
	struct region *regions;
	struct window *windows;
	struct segment *segments;
	struct pd *pds;
	uint32_t region_count;        /* index 0 included, as all counts here */
	uint32_t used[ARENA_PDS + 1]; /* records of a table that were ever in use: none behind */
	uint32_t window_count;
	uint32_t segment_count;
	uint32_t pd_count;
	uint32_t lease; /* generations that a slot spends in one session */
	struct rte_rcu_qsbr *qsbr;
	unsigned int readers;

	/* Slots that workers gave up: pushed by them, emptied by the control thread. */
	alignas(64) uint32_t retired;

	/* The control thread's. */
	alignas(64) struct arena arena;
	uint32_t free_first; /* oldest free slot */
	uint32_t free_last;
	uint32_t *session_first; /* first slot of each session's list */
	uint32_t sessions;       /* entries of session_first */
	uint32_t next_region;    /* where to look for a free record */
	uint32_t next_window;
	uint32_t next_segment;
	uint32_t next_pd;
	bool detaching; /* some segment has a grace */
};

/* --- the token word --------------------------------------------------------------- */

static inline uint64_t token_meta(uint32_t token, enum token_state state, enum token_kind kind,
				  uint32_t rights, uint32_t flags)
{
	return token | (uint64_t)state << 32 | (uint64_t)kind << 40 | (uint64_t)rights << 48 |
	       (uint64_t)flags << 56;
}

static inline enum token_state token_meta_state(uint64_t meta)
{
	return (enum token_state)(meta >> 32 & 0xff);
}

static inline enum token_kind token_meta_kind(uint64_t meta)
{
	return (enum token_kind)(meta >> 40 & 0xff);
}

static inline uint32_t token_meta_rights(uint64_t meta)
{
	return (uint32_t)(meta >> 48 & 0xff);
}

static inline uint32_t token_meta_flags(uint64_t meta)
{
	return (uint32_t)(meta >> 56);
}

/* The same token and kind in another state, not claimed. */
static inline uint64_t token_meta_to(uint64_t meta, enum token_state state)
{
	const uint64_t cleared = 0xffull << 32 | (uint64_t)TOKEN_FLAG_CLAIMED << 56;

	return (meta & ~cleared) | (uint64_t)state << 32;
}

/*
 * Slots from this index on were never used and hold zeros. Kept in slot 0, which is no
 * token's. Looking no further keeps a peer that guesses tokens from making us touch,
 * and so allocate, the whole table.
 */
static inline uint32_t token_watermark(const struct memory *memory)
{
	return __atomic_load_n(&memory->slots[0].next, __ATOMIC_RELAXED);
}

#define TOKEN_CACHE 8192u /* entries */

/*
 * Decrypting is a chain of some 200 cycles, most of what a small packet costs; a cache
 * takes it off the path of tokens in use. An entry is one word, token above result, and true for
 * ever. Each worker has its own, and the control thread the one behind theirs, so that no line goes
 * from one to the other; where a thread asks in another's name it does no harm.
 */
static inline uint64_t *token_cached(const struct memory *memory, unsigned int worker,
				     uint32_t token)
{
	return &memory->token_cache[(uint64_t)worker * TOKEN_CACHE + token % TOKEN_CACHE];
}

/* What a fresh token decrypts to is known before anybody asks. */
static inline void token_remember(const struct memory *memory, unsigned int worker, uint32_t token,
				  uint32_t counter)
{
	__atomic_store_n(token_cached(memory, worker, token), (uint64_t)token << 32 | counter,
			 __ATOMIC_RELAXED);
}

static inline uint32_t token_decrypt(const struct memory *memory, unsigned int worker,
				     uint32_t token)
{
	const uint64_t cached =
		__atomic_load_n(token_cached(memory, worker, token), __ATOMIC_RELAXED);
	uint32_t counter = (uint32_t)cached;

	if (__builtin_expect(cached >> 32 != token, 0)) {
		counter = perm32_decrypt(memory->key, token);
		token_remember(memory, worker, token, counter);
	}
	return counter;
}

/* The slot that a token names, or 0. Says nothing about whether it is that token's now. */
static inline uint32_t token_slot_index(const struct memory *memory, unsigned int worker,
					uint32_t token)
{
	uint32_t index = token_decrypt(memory, worker, token) & memory->slot_mask;

	return token != 0 && index < token_watermark(memory) ? index : 0;
}

/* --- token.c ------------------------------------------------------------------------ */

/* The token that follows the one in this slot's word; never 0. Any thread that owns the slot. */
uint32_t token_next(const struct memory *memory, unsigned int worker, uint32_t slot);
/* Control: the oldest free slot and its new token, now the session's; 0: none. */
uint32_t token_take(struct memory *memory, uint32_t session, uint32_t *token);
/* Control: to the free list; a grace period has passed since it was VALID. */
void token_free(struct memory *memory, uint32_t slot);
/* Any thread that owns the slot: leaves it to the control thread to free. */
void token_retire(struct memory *memory, uint32_t slot);
/* Control: frees what was retired. */
void token_collect(struct memory *memory);
/* Control: frees every token of a session. */
void token_free_session(struct memory *memory, uint32_t session);
/* Control: lists and half-done work of an adopted arena. -ENOMEM. */
int token_rebuild(struct memory *memory);

/* --- others --------------------------------------------------------------------------- */

/* bind.c. Any living state to REVOKED. False when it was dead already. Any thread. */
bool token_revoke(struct memory *memory, uint32_t slot);
/* bind.c. Takes the binding of a dead slot off its window; false when there was none. */
bool window_unbind(struct memory *memory, uint32_t window, uint32_t slot);

/* fast_register.c. Ends an invalidate: the region may be registered again. */
void fast_register_reset(struct memory *memory, struct region *region);
/* The slot whose word decides about a fast-register region: the remote one if it has one. */
static inline uint32_t fast_register_slot(const struct region *region)
{
	return region->remote_slot ? region->remote_slot : region->local_slot;
}

/* segment.c */
void segment_unmap(struct memory *memory, uint32_t segment);

/* grace.c */
int grace_create(struct memory *memory);
void grace_destroy(struct memory *memory);

/*
 * fault.c. Ranges whose SIGBUS memory_repair_fault() mends, page_size bytes at a time; start
 * is a multiple of it. Any thread. Gives a number for fault_range_remove(), or -ENOSPC.
 */
int fault_range_add(void *start, size_t length, size_t page_size, uint32_t *poisoned);
void fault_range_remove(int range);

/* memory.c. A record whose first word is OBJECT_FREE, or 0; *next is where to look first. */
uint32_t table_find_free(struct memory *memory, enum arena_table table, uint32_t *next);
/* Its index is below this; to read what is behind would give pages to it. Any thread. */
static inline uint32_t table_used(const struct memory *memory, enum arena_table table)
{
	return __atomic_load_n(&memory->used[table], __ATOMIC_RELAXED);
}

/* Whether a client's index names a record of the table at all. */
static inline bool object_index_good(uint32_t index, uint32_t count)
{
	return index != 0 && index < count;
}

#endif
