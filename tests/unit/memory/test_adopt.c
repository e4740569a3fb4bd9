/* SPDX-License-Identifier: BSD-3-Clause */
/* Adoption: another process maps the arena, elsewhere, and goes on. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "memory/memory_private.h"
#include "rig.h"

static struct rig rig;

static void setup(void)
{
	rig_create(&rig, 64);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(adopt, .init = setup, .fini = teardown);

/* A second life of rig: same arena and memfd, other addresses. The first one stays. */
static struct rig adopt(void)
{
	struct rig next = rig;
	const struct mapping *mapping = &rig.memory->mappings[rig.segment];

	cr_assert_eq(arena_adopt(&next.arena, dup(rig.arena.fd), NULL), 0);
	cr_assert_neq(next.arena.header, rig.arena.header);
	cr_assert_eq(memory_create(&next.memory, &next.arena, 1, true), 0);
	cr_assert_eq(segment_adopt(next.memory, rig.segment, dup(mapping->fd)), 0);
	return next;
}

static void end(struct rig *next)
{
	memory_destroy(next->memory);
	arena_destroy(&next->arena);
}

Test(adopt, tokens_keep_working_at_another_address)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint32_t stock = rig_token(&rig);
	struct access access;
	struct rig next;
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
	next = adopt();
	expect_reason(rig_access(&next, r.remote_token, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_OK);
	expect_reason(rig_access(&next, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_WRITE), ACCESS_OK);
	cr_assert_eq(memory_access(next.memory, &rig.who, ask.token, RIG_BASE + 9, 1,
				   RIGHT_REMOTE_WRITE, &access),
		     ACCESS_OK);
	*access.pointer = 0x99;
	cr_expect_eq(rig.client[9], 0x99);

	cr_expect_eq(region_deregister(next.memory, r.region, &grace), -EBUSY, "windows counted");
	cr_assert_eq(token_invalidate(next.memory, &rig.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	token_recycle(next.memory, 0, slot);
	cr_expect_eq(region_deregister(next.memory, r.region, &grace), 0);
	region_deregister_finish(next.memory, r.region);
	r = rig_register(&next, RIG_BASE, RIG_ALL);
	ask.region = r.region;
	ask.token = stock;
	expect_reason(window_bind(next.memory, &rig.who, &ask), ACCESS_OK);
	end(&next);
}

Test(adopt, new_tokens_are_not_old_ones)
{
	uint32_t before[40], after[63];
	unsigned int repeats = 0;
	struct rig next;
	uint64_t grace;

	cr_assert_eq(token_reserve(rig.memory, 2, 40, before), 40);
	session_release(rig.memory, 2, &grace);
	session_release_finish(rig.memory, 2);
	next = adopt();
	cr_assert_eq(token_reserve(next.memory, 3, 63, after), 63);
	for (int i = 0; i < 40; i++)
		for (int j = 0; j < 63; j++)
			repeats += before[i] == after[j];
	cr_expect_eq(repeats, 0);
	end(&next);
}

Test(adopt, segment_not_back_yet_is_no_crash)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	int small = rig_memfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL);
	struct rig next = rig;

	cr_assert_eq(arena_adopt(&next.arena, dup(rig.arena.fd), NULL), 0);
	cr_assert_eq(memory_create(&next.memory, &next.arena, 1, true), 0);
	expect_reason(rig_access(&next, r.remote_token, RIG_BASE, 8, RIGHT_REMOTE_READ),
		      ACCESS_POISONED);
	cr_expect_eq(segment_adopt(next.memory, rig.segment, small), -ESTALE);
	cr_expect_eq(segment_adopt(next.memory, rig.segment + 1, small), -EINVAL);
	close(small);
	end(&next);
}

Test(adopt, segment_that_was_on_its_way_is_forgotten)
{
	uint32_t segment;
	struct rig next;

	cr_assert_eq(segment_begin(rig.memory, RIG_SESSION, 2,
				   rig_memfd(9u << 20, F_SEAL_SHRINK | F_SEAL_SEAL), -1, &segment),
		     0);
	next = adopt();
	cr_expect_eq(next.memory->segments[segment].state, OBJECT_FREE);
	cr_expect_eq(segment_find(next.memory, RIG_SESSION, 1), rig.segment);
	end(&next);
}

/* Kills the first life in the middle of a bind, at every point that leaves a trace. */
Test(adopt, half_done_bind_is_undone)
{
	for (int point = 0; point < 3; point++) {
		struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
		struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
		uint32_t index = token_slot_index(rig.memory, 0, ask.token);
		struct token_slot *slot = &rig.memory->slots[index];
		struct rig next;
		uint64_t grace;

		slot->meta |= (uint64_t)TOKEN_FLAG_CLAIMED << 56;
		slot->region = ask.region;
		slot->window = ask.window;
		if (point > 0)
			rig.memory->regions[r.region].windows++;
		if (point > 1)
			rig.memory->windows[ask.window].slot = index;
		next = adopt();
		expect_reason(rig_access(&next, ask.token, RIG_BASE, 8, RIGHT_REMOTE_READ),
			      ACCESS_DEAD);
		cr_expect_eq(region_deregister(next.memory, r.region, &grace), 0, "point %d",
			     point);
		region_deregister_finish(next.memory, r.region);
		ask.region = rig_register(&next, RIG_BASE, RIG_ALL).region;
		expect_reason(window_bind(next.memory, &rig.who, &ask), ACCESS_OK);
		end(&next);
	}
}

Test(adopt, invalidate_under_way_can_be_finished)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint64_t grace, ignored;
	struct rig next;
	uint32_t slot;

	cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
	memory_reader_online(rig.memory, 0);
	cr_assert_eq(token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	next = adopt();
	expect_reason(rig_access(&next, ask.token, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_DEAD);
	cr_expect_eq(region_deregister(next.memory, r.region, &ignored), -EBUSY);
	cr_expect(memory_grace_done(next.memory, grace), "its readers are dead");
	ask.token = token_recycle(next.memory, 0, slot);
	expect_reason(window_bind(next.memory, &rig.who, &ask), ACCESS_OK);
	end(&next);
}

Test(adopt, fast_register_half_done_either_way)
{
	for (int point = 0; point < 3; point++) {
		struct fast_register_request ask = { .segment = rig.segment,
						     .length = 4096,
						     .base = RIG_BASE,
						     .rights = RIGHT_REMOTE_READ };
		struct region *region;
		struct rig next;
		uint32_t local, remote;
		uint64_t grace;

		cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, true, &ask.region),
			     0);
		cr_assert_eq(
			region_init_fast_register(rig.memory, ask.region, 1, true, &local, &remote),
			0);
		cr_assert_eq(region_fast_register(rig.memory, &rig.who, &ask), ACCESS_OK);
		region = &rig.memory->regions[ask.region];
		if (point == 1) /* registered, but for the last store */
			rig.memory->slots[region->remote_slot].meta = token_meta(
				remote, TOKEN_INVALID, TOKEN_KIND_FRMR, 0, TOKEN_FLAG_CLAIMED);
		if (point == 2) /* invalidated, but for the local token */
			rig.memory->slots[region->remote_slot].meta =
				token_meta(remote, TOKEN_REVOKED, TOKEN_KIND_FRMR, 0, 0);
		next = adopt();
		expect_reason(rig_access(&next, local, RIG_BASE, 8, RIGHT_LOCAL_READ),
			      point ? ACCESS_DEAD : ACCESS_OK);
		if (point == 2)
			token_recycle(next.memory, 0, region->remote_slot);
		expect_reason(region_fast_register(next.memory, &rig.who, &ask),
			      point ? ACCESS_OK : BIND_BOUND);
		cr_assert_eq(region_deregister(next.memory, ask.region, &grace), 0);
		region_deregister_finish(next.memory, ask.region);
		cr_expect_eq(segment_detach(next.memory, rig.segment), 0, "counts are right");
		rig.memory->segments[rig.segment].state = OBJECT_CREATED;
		end(&next);
	}
}
