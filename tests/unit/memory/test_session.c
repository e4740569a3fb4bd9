/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a session: all its permissions die at once, nobody else's do. */
#include <fcntl.h>

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

TestSuite(session, .init = setup, .fini = teardown);

static enum access_reason read_with(uint32_t token)
{
	return rig_access(&rig, token, RIG_BASE, 8, RIGHT_REMOTE_READ);
}

Test(session, b58_everything_is_dead_before_the_grace_period_begins)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	struct bind_request late = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint64_t grace;

	cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
	memory_reader_online(rig.memory, 0);
	session_release(rig.memory, RIG_SESSION, &grace);
	expect_reason(read_with(ask.token), ACCESS_DEAD);
	expect_reason(read_with(r.remote_token), ACCESS_DEAD);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_DEAD);
	expect_reason(window_bind(rig.memory, &rig.who, &late), BIND_WINDOW);
	cr_expect_not(memory_grace_done(rig.memory, grace));
	memory_quiescent(rig.memory, 0);
	cr_expect(memory_grace_done(rig.memory, grace));
	memory_reader_offline(rig.memory, 0);
}

Test(session, nothing_is_left_of_it)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	struct memory_usage usage;
	uint64_t grace;

	cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
	session_release(rig.memory, RIG_SESSION, &grace);
	session_release_finish(rig.memory, RIG_SESSION);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.tokens_valid, 0);
	cr_expect_eq(usage.tokens_reserved, 0);
	cr_expect_eq(usage.tokens_free, 63);
	cr_expect_eq(usage.pds + usage.regions + usage.windows + usage.segments, 0);
	cr_expect_eq(usage.bytes, 0);
	expect_reason(read_with(ask.token), ACCESS_DEAD);
}

Test(session, another_session_goes_on)
{
	struct accessor other = { .qpn = 5, .session = RIG_SESSION + 1 };
	uint32_t segment, region, local, remote;
	struct access access;
	uint64_t grace;

	rig_register(&rig, RIG_BASE, RIG_ALL);
	cr_assert_eq(pd_create(rig.memory, other.session, &other.pd), 0);
	cr_assert_eq(segment_attach(rig.memory, other.session, 1,
				    rig_memfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL), -1, &segment),
		     0);
	cr_assert_eq(region_create(rig.memory, other.session, other.pd, false, &region), 0);
	cr_assert_eq(region_register(rig.memory, region, segment, 0, 4096, RIG_BASE, RIG_ALL,
				     &local, &remote),
		     0);
	session_release(rig.memory, RIG_SESSION, &grace);
	session_release_finish(rig.memory, RIG_SESSION);
	expect_reason(
		memory_access(rig.memory, &other, remote, RIG_BASE, 8, RIGHT_REMOTE_WRITE, &access),
		ACCESS_OK);
	*access.pointer = 1;
}

Test(session, a_hundred_lives_leak_nothing)
{
	struct memory_usage before, after;

	memory_usage(rig.memory, &before);
	for (uint32_t i = 0; i < 100; i++) {
		struct accessor who = { .qpn = 5, .session = 2 + i % 3 };
		uint32_t segment, region, local, remote, window, token[3];
		struct bind_request ask;
		uint64_t grace;

		cr_assert_eq(pd_create(rig.memory, who.session, &who.pd), 0);
		cr_assert_eq(segment_attach(rig.memory, who.session, 1,
					    rig_memfd(8192, F_SEAL_SHRINK | F_SEAL_SEAL), -1,
					    &segment),
			     0);
		cr_assert_eq(region_create(rig.memory, who.session, who.pd, false, &region), 0);
		cr_assert_eq(region_register(rig.memory, region, segment, 0, 8192, RIG_BASE,
					     RIG_ALL, &local, &remote),
			     0);
		cr_assert_eq(window_create(rig.memory, who.session, who.pd, &window), 0);
		cr_assert_eq(token_reserve(rig.memory, who.session, 3, token), 3);
		ask = (struct bind_request){ region,   window, token[1], RIGHT_REMOTE_READ,
					     RIG_BASE, 100,    false };
		cr_assert_eq(window_bind(rig.memory, &who, &ask), ACCESS_OK);
		session_release(rig.memory, who.session, &grace);
		session_release_finish(rig.memory, who.session);
	}
	memory_usage(rig.memory, &after);
	rig_expect_same_usage(&before, &after);
}
