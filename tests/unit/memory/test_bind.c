/* SPDX-License-Identifier: BSD-3-Clause */
/* NdkBind: what may be bound to what, and that a failed bind changes nothing. */
#include <errno.h>

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

TestSuite(bind, .init = setup, .fini = teardown);

static enum access_reason bind(const struct bind_request *request)
{
	return window_bind(rig.memory, &rig.who, request);
}

/* Ends a window's binding and gives the token that follows. */
static uint32_t unbind(uint32_t token)
{
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(token_invalidate(rig.memory, &rig.who, token, false, &slot, &grace),
		     ACCESS_OK);
	cr_assert(memory_grace_done(rig.memory, grace));
	return token_recycle(rig.memory, 0, slot);
}

Test(bind, window_grants_exactly_its_part)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	struct access access;

	ask.address = RIG_BASE + 1000;
	ask.length = 3000;
	cr_assert_eq(bind(&ask), ACCESS_OK);
	cr_assert_eq(memory_access(rig.memory, &rig.who, ask.token, RIG_BASE + 1001, 1,
				   RIGHT_REMOTE_READ, &access),
		     ACCESS_OK);
	rig.client[1001] = 0x77;
	cr_expect_eq(*access.pointer, 0x77);
	expect_reason(rig_access(&rig, ask.token, RIG_BASE + 1000, 3000, RIGHT_REMOTE_WRITE),
		      ACCESS_OK);
	expect_reason(rig_access(&rig, ask.token, RIG_BASE + 999, 1, RIGHT_REMOTE_READ),
		      ACCESS_RANGE);
	expect_reason(rig_access(&rig, ask.token, RIG_BASE + 4000, 1, RIGHT_REMOTE_READ),
		      ACCESS_RANGE);
	expect_reason(rig_access(&rig, ask.token, RIG_BASE + 1000, 1, RIGHT_LOCAL_READ),
		      ACCESS_KIND);
}

struct range_case {
	uint64_t base, address, length;
	enum access_reason reason;
};

Test(bind, b43_range_never_wraps)
{
	static const struct range_case cases[] = {
		{ RIG_BASE, 0xfffffffffffff000, 0x2000, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE + RIG_SIZE, 1, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE, RIG_SIZE + 1, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE - 1, 1, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE + 1, UINT64_MAX, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE, UINT64_MAX, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE, 0xffffffff, ACCESS_RANGE },
		{ RIG_BASE, 0, 1, ACCESS_RANGE },
		{ RIG_BASE, RIG_BASE + RIG_SIZE - 1, 1, ACCESS_OK },
		{ RIG_BASE, RIG_BASE, 0, BIND_LENGTH },
		{ 0, 0, RIG_SIZE, ACCESS_OK },
		{ 0, UINT64_MAX, 1, ACCESS_RANGE },
		{ 0, UINT64_MAX, 2, ACCESS_RANGE },
		{ UINT64_MAX - RIG_SIZE + 1, UINT64_MAX, 1, ACCESS_OK },
		{ UINT64_MAX - RIG_SIZE + 1, UINT64_MAX, 2, ACCESS_RANGE },
		{ UINT64_MAX - RIG_SIZE + 1, 0, 1, ACCESS_RANGE },
		{ 0xffffffff, 0xffffffff, RIG_SIZE, ACCESS_OK },
	};
	struct bind_request ask = rig_bind_request(&rig, 0, rig_window(&rig));

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rig_region r = rig_register(&rig, cases[i].base, RIGHT_LOCAL_WRITE);
		uint64_t grace;

		ask.region = r.region;
		ask.address = cases[i].address;
		ask.length = cases[i].length;
		expect_reason(bind(&ask), cases[i].reason);
		if (cases[i].reason == ACCESS_OK)
			ask.token = unbind(ask.token);
		cr_assert_eq(region_deregister(rig.memory, r.region, &grace), 0);
		region_deregister_finish(rig.memory, r.region);
		cr_assert_eq(region_destroy(rig.memory, r.region), 0);
	}
}

static enum access_reason expected_bind(uint32_t region_access, uint32_t rights)
{
	const uint32_t needs_write = RIGHT_REMOTE_WRITE | RIGHT_REMOTE_ATOMIC;

	return (rights & needs_write) && !(region_access & RIGHT_LOCAL_WRITE) ? ACCESS_RIGHTS
									      : ACCESS_OK;
}

/* C10-74 and: the window's rights need no remote right of the region. */
Test(bind, b44_rights_matrix)
{
	static const uint32_t regions[] = { 0, RIGHT_LOCAL_WRITE,
					    RIGHT_LOCAL_WRITE | RIGHT_REMOTE_READ };
	static const uint32_t operations[] = { RIGHT_REMOTE_READ, RIGHT_REMOTE_WRITE,
					       RIGHT_REMOTE_ATOMIC,
					       RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE };
	struct bind_request ask = rig_bind_request(&rig, 0, rig_window(&rig));

	for (int i = 0; i < 3; i++) {
		ask.region = rig_register(&rig, RIG_BASE, regions[i]).region;
		for (uint32_t rights = 0; rights < 8; rights++) {
			ask.rights = rights << 2;
			expect_reason(bind(&ask), expected_bind(regions[i], ask.rights));
			if (expected_bind(regions[i], ask.rights) != ACCESS_OK)
				continue;
			for (int j = 0; j < 4; j++)
				expect_reason(
					rig_access(&rig, ask.token, RIG_BASE, 8, operations[j]),
					(operations[j] & ~ask.rights) ? ACCESS_RIGHTS : ACCESS_OK);
			ask.token = unbind(ask.token);
		}
	}
	ask.rights = RIGHT_REMOTE_READ | RIGHT_LOCAL_READ;
	expect_reason(bind(&ask), ACCESS_RIGHTS);
}

Test(bind, b46_all_three_in_one_domain)
{
	uint32_t pd[2] = { rig.who.pd, 0 }, region[2], window[2], local, remote;

	cr_assert_eq(pd_create(rig.memory, RIG_SESSION, &pd[1]), 0);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(region_create(rig.memory, RIG_SESSION, pd[i], false, &region[i]), 0);
		cr_assert_eq(region_register(rig.memory, region[i], rig.segment, 0, RIG_SIZE,
					     RIG_BASE, RIG_ALL, &local, &remote),
			     0);
		cr_assert_eq(window_create(rig.memory, RIG_SESSION, pd[i], &window[i]), 0);
	}
	for (int mix = 0; mix < 8; mix++) {
		struct bind_request ask =
			rig_bind_request(&rig, region[mix & 1], window[mix >> 1 & 1]);
		struct accessor who = rig.who;

		who.pd = pd[mix >> 2];
		if (mix == 0 || mix == 7)
			continue;
		expect_reason(window_bind(rig.memory, &who, &ask), ACCESS_DOMAIN);
	}
}

Test(bind, b46_other_sessions_objects_do_not_exist)
{
	struct accessor other = { .qpn = 78, .session = RIG_SESSION + 1 };
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint32_t token, window;

	cr_assert_eq(pd_create(rig.memory, other.session, &other.pd), 0);
	cr_assert_eq(window_create(rig.memory, other.session, other.pd, &window), 0);
	cr_assert_eq(token_reserve(rig.memory, other.session, 1, &token), 1);
	expect_reason(window_bind(rig.memory, &other, &ask), BIND_WINDOW);
	ask.window = window;
	expect_reason(window_bind(rig.memory, &other, &ask), BIND_REGION);
	expect_reason(bind(&ask), BIND_WINDOW);
	ask.window = rig_window(&rig);
	ask.token = token;
	expect_reason(bind(&ask), BIND_TOKEN);
	cr_expect_eq(window_create(rig.memory, RIG_SESSION, other.pd, &window), -EINVAL);
	cr_expect_eq(region_create(rig.memory, RIG_SESSION, other.pd, false, &window), -EINVAL);
}

Test(bind, every_index_is_checked)
{
	static const uint32_t bad[] = { 0, 15, 16, 17, 0x7fffffff, UINT32_MAX };
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	const struct bind_request good = rig_bind_request(&rig, r.region, rig_window(&rig));

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct bind_request ask = good;

		ask.window = bad[i];
		expect_reason(bind(&ask), BIND_WINDOW);
		ask = good;
		ask.region = bad[i];
		expect_reason(bind(&ask), BIND_REGION);
		ask = good;
		ask.token = bad[i];
		expect_reason(bind(&ask), BIND_TOKEN);
	}
}

Test(bind, only_reserved_tokens_are_taken)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint32_t dead = ask.token;

	cr_assert_eq(bind(&ask), ACCESS_OK);
	ask.window = rig_window(&rig);
	expect_reason(bind(&ask), BIND_TOKEN);
	ask.token = r.remote_token;
	expect_reason(bind(&ask), BIND_TOKEN);
	ask.token = r.local_token;
	expect_reason(bind(&ask), BIND_TOKEN);
	unbind(dead);
	ask.token = dead;
	expect_reason(bind(&ask), BIND_TOKEN);
}

Test(bind, many_windows_may_overlap_in_one_region)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);

	for (uint32_t i = 0; i < 10; i++) {
		struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));

		ask.rights = i % 2 ? RIGHT_REMOTE_READ : RIGHT_REMOTE_WRITE;
		cr_assert_eq(bind(&ask), ACCESS_OK);
		expect_reason(rig_access(&rig, ask.token, RIG_BASE, 8, RIGHT_REMOTE_READ),
			      i % 2 ? ACCESS_OK : ACCESS_RIGHTS);
	}
}

static void spoil(struct bind_request *ask, struct accessor *who, unsigned int how,
		  uint32_t weak_region, uint32_t bound_window)
{
	switch (how % 9) {
	case 0: ask->token ^= 0x10; break;
	case 1: ask->window = bound_window; break;
	case 2: ask->region = 15; break;
	case 3: ask->length = 0; break;
	case 4: ask->length = RIG_SIZE + 1; break;
	case 5: ask->region = weak_region; break; /* no local write */
	case 6: ask->window = 0; break;
	case 7: who->pd++; break;
	case 8: who->session++; break;
	}
}

Test(bind, b47_hundred_thousand_failures_change_nothing)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);
	struct rig_region weak = rig_register(&rig, RIG_BASE, 0);
	struct bind_request first = rig_bind_request(&rig, r.region, rig_window(&rig));
	const struct bind_request good = rig_bind_request(&rig, r.region, rig_window(&rig));
	struct memory_usage before, after;
	unsigned int accepted = 0, lost = 0;
	uint64_t grace;

	cr_assert_eq(bind(&first), ACCESS_OK);
	memory_usage(rig.memory, &before);
	for (unsigned int i = 0; i < 100000; i++) {
		struct bind_request ask = good;
		struct accessor who = rig.who;

		spoil(&ask, &who, i, weak.region, first.window);
		accepted += window_bind(rig.memory, &who, &ask) == ACCESS_OK;
		lost += rig_access(&rig, first.token, RIG_BASE, 8, RIGHT_REMOTE_READ) != ACCESS_OK;
	}
	cr_expect_eq(accepted, 0);
	cr_expect_eq(lost, 0);
	memory_usage(rig.memory, &after);
	rig_expect_same_usage(&before, &after);
	cr_expect_eq(bind(&good), ACCESS_OK, "token and window are still good");

	unbind(first.token);
	unbind(good.token);
	cr_expect_eq(region_deregister(rig.memory, r.region, &grace), 0, "no count is left over");
	cr_expect_eq(region_deregister(rig.memory, weak.region, &grace), 0);
}
