/* SPDX-License-Identifier: BSD-3-Clause */
/* The stock of tokens: how often they come back, who gets them, large tables. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/memory_private.h"
#include "rig.h"

static int compare(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static unsigned int count_repeats(uint32_t *token, unsigned int count)
{
	unsigned int repeats = 0;

	qsort(token, count, sizeof(*token), compare);
	for (unsigned int i = 1; i < count; i++)
		repeats += token[i] == token[i - 1];
	return repeats;
}

Test(token, stock_is_distinct_and_ends)
{
	struct memory_usage usage;
	uint32_t token[64];
	struct rig rig;

	rig_create(&rig, 64);
	cr_expect_eq(token_reserve(rig.memory, RIG_SESSION, 64, token), 63);
	cr_expect_eq(count_repeats(token, 63), 0);
	cr_expect_neq(token[0], 0);
	cr_expect_eq(token_reserve(rig.memory, RIG_SESSION, 1, token), 0);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.tokens_free, 0);
	cr_expect_eq(usage.tokens_reserved, 63);
	rig_destroy(&rig);
}

/* Returned slots come back oldest first, each time under another token. */
Test(token, sessions_that_come_and_go_never_see_a_token_twice)
{
	const unsigned int count = 200 * 40;
	uint32_t *token = calloc(count, sizeof(*token));
	struct rig rig;
	uint64_t grace;

	cr_assert_not_null(token);
	rig_create(&rig, 64);
	for (uint32_t i = 0; i < 200; i++) {
		cr_assert_eq(token_reserve(rig.memory, 2 + i, 40, token + 40 * i), 40);
		session_release(rig.memory, 2 + i, &grace);
		session_release_finish(rig.memory, 2 + i);
	}
	cr_expect_eq(count_repeats(token, count), 0);
	free(token);
	rig_destroy(&rig);
}

/* All 2^32 numbers have their turn, so one generation of one slot encrypts to 0. */
Test(token, the_generation_whose_token_is_zero_is_skipped)
{
	struct rig rig;
	uint32_t counter, slot;

	/* Slot 0 is never used: draw keys until 0 is another slot's. */
	for (rig_create(&rig, 64);; rig_create(&rig, 64)) {
		counter = perm32_decrypt(rig.memory->key, 0);
		slot = counter & 63;
		if (slot != 0)
			break;
		rig_destroy(&rig);
	}
	rig.memory->slots[slot].meta = perm32_encrypt(rig.memory->key, counter - 64);
	cr_expect_eq(token_next(rig.memory, 0, slot),
		     perm32_encrypt(rig.memory->key, counter + 64));
	rig_destroy(&rig);
}

/* Binds without end: the slot leaves the session in time for all others to have their turn. */
Test(token, a_slot_leaves_its_session_after_its_lease)
{
	struct memory_usage before, after;
	struct bind_request ask;
	struct rig_region r;
	unsigned int alive = 0, leases = 0;
	struct rig rig;

	rig_create(&rig, 1u << 20);
	r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);
	ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	memory_usage(rig.memory, &before);
	for (unsigned int i = 0; i < 1000; i++) {
		const uint32_t old = ask.token;
		uint64_t grace;
		uint32_t slot;

		cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
		cr_assert_eq(token_invalidate(rig.memory, &rig.who, old, false, &slot, &grace),
			     ACCESS_OK);
		ask.token = token_recycle(rig.memory, 0, slot);
		if (ask.token == 0) {
			leases++;
			ask.token = rig_token(&rig);
		}
		alive += rig_access(&rig, old, RIG_BASE, 8, RIGHT_REMOTE_READ) == ACCESS_OK;
	}
	cr_expect_eq(alive, 0);
	cr_expect_eq(leases, 1000 / 64);
	memory_usage(rig.memory, &after);
	rig_expect_same_usage(&before, &after);
	rig_destroy(&rig);
}

static size_t resident_pages(void *start, size_t length)
{
	const size_t pages = length / 4096;
	unsigned char *in_core = calloc(pages, 1);
	size_t resident = 0;

	cr_assert_not_null(in_core);
	cr_assert_eq(mincore(start, length, in_core), 0);
	for (size_t i = 0; i < pages; i++)
		resident += in_core[i] & 1;
	free(in_core);
	return resident;
}

/* A peer that guesses must not make us allocate the table either. */
Test(token, a_million_slots_cost_only_what_is_used)
{
	const uint32_t tokens = 1u << 20;
	struct rig_region r;
	struct rig rig;
	uint8_t *table;

	rig_create(&rig, tokens);
	r = rig_register(&rig, RIG_BASE, RIG_ALL);
	for (uint64_t token = 0; token <= UINT32_MAX; token += 65521)
		rig_access(&rig, (uint32_t)token, RIG_BASE, 8, RIGHT_REMOTE_READ);
	expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_OK);
	table = arena_record(&rig.arena, ARENA_TOKENS, 0);
	table += 4096 - (uintptr_t)table % 4096;
	cr_expect_lt(resident_pages(table, (size_t)tokens * 64 - 4096), 16);
	rig_destroy(&rig);
}

Test(token, a_million_slots_can_all_be_taken)
{
	const uint32_t tokens = 1u << 20;
	uint32_t *token = calloc(tokens, sizeof(*token));
	struct rig rig;
	uint64_t grace;

	cr_assert_not_null(token);
	rig_create(&rig, tokens);
	cr_expect_eq(token_reserve(rig.memory, RIG_SESSION, tokens, token), tokens - 1);
	cr_expect_eq(count_repeats(token, tokens - 1), 0);
	session_release(rig.memory, RIG_SESSION, &grace);
	session_release_finish(rig.memory, RIG_SESSION);
	cr_expect_eq(token_reserve(rig.memory, RIG_SESSION, tokens, token), tokens - 1);
	free(token);
	rig_destroy(&rig);
}
