/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stock of token slots: who has which, in what order they come back, under which
 * number.
 *
 * A token is the encryption of generation * slots + slot. A slot goes through all of its
 * generations before a number repeats; it stays in one session for a lease of them and
 * then goes to the end of the queue of free slots, so that one session that binds
 * for ever does not wear out its few slots while the others rest.
 */
#include <errno.h>
#include <stdlib.h>

#include "memory/memory_private.h"

#define SESSIONS_LIMIT (1u << 20) /* session numbers are indices of a table */

uint32_t token_next(const struct memory *memory, unsigned int worker, uint32_t slot)
{
	uint32_t token = (uint32_t)__atomic_load_n(&memory->slots[slot].meta, __ATOMIC_RELAXED);
	uint32_t counter = slot;

	if (token != 0)
		counter = token_decrypt(memory, worker, token) + memory->slot_mask + 1;
	/* One number in 2^32 encrypts to 0: its slot skips that generation. */
	token = perm32_encrypt(memory->key, counter);
	if (token == 0) {
		counter += memory->slot_mask + 1;
		token = perm32_encrypt(memory->key, counter);
	}
	token_remember(memory, worker, token, counter);
	return token;
}

/* What decrypts to slot 0 is nobody's token. */
uint32_t memory_privileged_token(const struct memory *memory)
{
	return memory->privileged_token;
}

/* --- the queue of free slots ------------------------------------------------------ */

static void push_free(struct memory *memory, uint32_t index)
{
	struct token_slot *slot = &memory->slots[index];

	slot->next = 0;
	if (memory->free_last)
		memory->slots[memory->free_last].next = index;
	else
		memory->free_first = index;
	memory->free_last = index;
}

/* Slots that were never used are older than any that was. */
static uint32_t pop_free(struct memory *memory)
{
	uint32_t index = token_watermark(memory);

	if (index <= memory->slot_mask) {
		__atomic_store_n(&memory->slots[0].next, index + 1, __ATOMIC_RELEASE);
		return index;
	}
	index = memory->free_first;
	if (index == 0)
		return 0;
	memory->free_first = memory->slots[index].next;
	if (memory->free_first == 0)
		memory->free_last = 0;
	return index;
}

/* --- lists by session ---------------------------------------------------------------- */

static int make_room(struct memory *memory, uint32_t session)
{
	uint32_t sessions = memory->sessions ? memory->sessions : 16;
	uint32_t *first;

	if (session < memory->sessions)
		return 0;
	if (session >= SESSIONS_LIMIT)
		return -EINVAL;
	while (sessions <= session)
		sessions *= 2;
	first = realloc(memory->session_first, sessions * sizeof(*first));
	if (first == NULL)
		return -ENOMEM;
	for (uint32_t i = memory->sessions; i < sessions; i++)
		first[i] = 0;
	memory->session_first = first;
	memory->sessions = sessions;
	return 0;
}

static void link_slot(struct memory *memory, uint32_t session, uint32_t index)
{
	struct token_slot *slot = &memory->slots[index];

	slot->session = session;
	slot->prev = 0;
	slot->next = memory->session_first[session];
	if (slot->next)
		memory->slots[slot->next].prev = index;
	memory->session_first[session] = index;
}

static void unlink_slot(struct memory *memory, uint32_t index)
{
	struct token_slot *slot = &memory->slots[index];

	if (slot->prev)
		memory->slots[slot->prev].next = slot->next;
	else
		memory->session_first[slot->session] = slot->next;
	if (slot->next)
		memory->slots[slot->next].prev = slot->prev;
	slot->prev = 0;
	slot->session = 0;
}

/* --- coming and going ------------------------------------------------------------------ */

uint32_t token_take(struct memory *memory, uint32_t session, uint32_t *token)
{
	uint32_t index;

	if (make_room(memory, session) < 0)
		return 0;
	index = pop_free(memory);
	if (index == 0) {
		token_collect(memory);
		index = pop_free(memory);
	}
	if (index == 0)
		return 0;
	link_slot(memory, session, index);
	*token = token_next(memory, memory->readers, index);
	return index;
}

static void mark_free(struct token_slot *slot)
{
	uint64_t meta = __atomic_load_n(&slot->meta, __ATOMIC_RELAXED);

	/* The token stays, so that its late users are told that it is dead. */
	__atomic_store_n(&slot->meta, token_meta((uint32_t)meta, TOKEN_FREE, TOKEN_KIND_NONE, 0, 0),
			 __ATOMIC_RELEASE);
}

void token_free(struct memory *memory, uint32_t index)
{
	mark_free(&memory->slots[index]);
	unlink_slot(memory, index);
	push_free(memory, index);
}

/* Retired slots are chained through `region`, which a dead slot does not need. */
void token_retire(struct memory *memory, uint32_t index)
{
	struct token_slot *slot = &memory->slots[index];
	uint32_t top = __atomic_load_n(&memory->retired, __ATOMIC_RELAXED);

	mark_free(slot);
	do {
		__atomic_store_n(&slot->region, top, __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(&memory->retired, &top, index, false,
					      __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

void token_give_up(struct memory *memory, uint32_t slot)
{
	token_retire(memory, slot);
}

void token_collect(struct memory *memory)
{
	uint32_t index = __atomic_exchange_n(&memory->retired, 0, __ATOMIC_ACQUIRE);

	while (index) {
		uint32_t next = memory->slots[index].region;

		token_free(memory, index);
		index = next;
	}
}

void token_free_session(struct memory *memory, uint32_t session)
{
	token_collect(memory);
	while (session < memory->sessions && memory->session_first[session])
		token_free(memory, memory->session_first[session]);
}

unsigned int token_reserve(struct memory *memory, uint32_t session, unsigned int count,
			   uint32_t token[])
{
	unsigned int got;

	token_collect(memory);
	for (got = 0; got < count; got++) {
		uint32_t index = token_take(memory, session, &token[got]);

		if (index == 0)
			break;
		__atomic_store_n(&memory->slots[index].meta,
				 token_meta(token[got], TOKEN_RESERVED, TOKEN_KIND_NONE, 0, 0),
				 __ATOMIC_RELEASE);
	}
	return got;
}

/* --- adoption ---------------------------------------------------------------------------- */

/* Whether the object that a living slot stands for knows of it. */
static bool slot_has_owner(const struct memory *memory, uint32_t index)
{
	const struct token_slot *slot = &memory->slots[index];
	const struct region *region;

	switch (token_meta_kind(slot->meta)) {
	case TOKEN_KIND_LOCAL:
	case TOKEN_KIND_REGION:
	case TOKEN_KIND_FRMR:
		region = &memory->regions[slot->region];
		return region->state >= OBJECT_VALID &&
		       (region->local_slot == index || region->remote_slot == index);
	case TOKEN_KIND_WINDOW: /* a window whose end was not finished has let go of it already */
	case TOKEN_KIND_NONE: break;
	}
	return true;
}

/*
 * No list survives: they are rebuilt from the slots themselves, which are never in
 * between for longer than one store. A claim is a bind or fast register that had not
 * happened yet when its process died, and is taken back.
 */
int token_rebuild(struct memory *memory)
{
	for (uint32_t index = 1; index < token_watermark(memory); index++) {
		struct token_slot *slot = &memory->slots[index];

		slot->meta &= ~((uint64_t)TOKEN_FLAG_CLAIMED << 56);
		if (token_meta_state(slot->meta) == TOKEN_FREE || !slot_has_owner(memory, index)) {
			mark_free(slot);
			slot->session = 0;
			slot->prev = 0;
			push_free(memory, index);
			continue;
		}
		if (make_room(memory, slot->session) < 0)
			return -ENOMEM;
		link_slot(memory, slot->session, index);
	}
	return 0;
}
