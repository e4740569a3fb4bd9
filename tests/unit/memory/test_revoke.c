/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a permission: invalidate, deregister, destroy, and the grace period. */
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

TestSuite(revoke, .init = setup, .fini = teardown);

static struct bind_request bound(struct rig_region *r, bool tied)
{
	struct bind_request ask;

	*r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);
	ask = rig_bind_request(&rig, r->region, rig_window(&rig));
	ask.tied = tied;
	cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
	return ask;
}

static enum access_reason read_with(uint32_t token)
{
	return rig_access(&rig, token, RIG_BASE, 8, RIGHT_REMOTE_READ);
}

Test(revoke, b49_old_token_dead_in_five_thousand_cycles)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, false);
	unsigned int alive = 0, refused = 0, same = 0;

	for (int i = 0; i < 5000; i++) {
		const uint32_t old = ask.token;
		uint64_t grace;
		uint32_t slot;

		cr_assert_eq(token_invalidate(rig.memory, &rig.who, old, i & 1, &slot, &grace),
			     ACCESS_OK);
		cr_expect_neq(grace, 0);
		alive += read_with(old) == ACCESS_OK;
		ask.token = token_recycle(rig.memory, 0, slot);
		same += ask.token == old;
		alive += read_with(old) == ACCESS_OK;
		refused += window_bind(rig.memory, &rig.who, &ask) != ACCESS_OK;
		refused += read_with(ask.token) != ACCESS_OK;
		alive += read_with(old) == ACCESS_OK;
		/* Nor does it end what has its place. */
		refused += token_invalidate(rig.memory, &rig.who, old, i & 1, &slot, &grace) !=
			   ACCESS_UNKNOWN;
	}
	cr_expect_eq(alive, 0);
	cr_expect_eq(refused, 0);
	cr_expect_eq(same, 0);
}

Test(revoke, happens_once)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, false);
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	expect_reason(token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
		      ACCESS_DEAD);
	expect_reason(read_with(ask.token), ACCESS_DEAD);
}

Test(revoke, window_is_bound_until_the_invalidate_completes)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, false);
	uint64_t grace, ignored;
	uint32_t slot;

	cr_assert_eq(token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	ask.token = rig_token(&rig);
	expect_reason(window_bind(rig.memory, &rig.who, &ask), BIND_BOUND);
	cr_expect_eq(region_deregister(rig.memory, r.region, &ignored), -EBUSY);
	token_recycle(rig.memory, 0, slot);
	expect_reason(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK);
}

/* Who revokes is between two packets, and nobody else has any. */
Test(revoke, a_worker_alone_waits_for_nobody)
{
	struct rig alone;
	struct rig_region r;
	struct bind_request ask;
	uint32_t slot, token;
	uint64_t grace;

	rig_create_for(&alone, 64, 1);
	memory_reader_online(alone.memory, 0);
	r = rig_register(&alone, RIG_BASE, RIGHT_LOCAL_WRITE);
	ask = rig_bind_request(&alone, r.region, rig_window(&alone));
	cr_assert_eq(window_bind(alone.memory, &alone.who, &ask), ACCESS_OK);
	cr_assert_eq(token_invalidate(alone.memory, &alone.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	cr_expect_eq(grace, 0);
	token = token_recycle(alone.memory, 0, slot);
	cr_expect(token != 0 && token != ask.token);
	cr_expect_eq(rig_access(&alone, ask.token, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_UNKNOWN);
	rig_destroy(&alone);
}

Test(revoke, grace_waits_for_readers_online_only)
{
	uint64_t grace = memory_grace_start(rig.memory);

	cr_expect(memory_grace_done(rig.memory, grace), "the reader is offline");
	memory_reader_online(rig.memory, 0);
	cr_expect(memory_grace_done(rig.memory, grace), "it came after the revocation");
	grace = memory_grace_start(rig.memory);
	cr_expect_not(memory_grace_done(rig.memory, grace));
	memory_quiescent(rig.memory, 0);
	cr_expect(memory_grace_done(rig.memory, grace));
	grace = memory_grace_start(rig.memory);
	cr_expect_not(memory_grace_done(rig.memory, grace));
	memory_reader_offline(rig.memory, 0);
	cr_expect(memory_grace_done(rig.memory, grace));
	cr_expect(memory_grace_done(rig.memory, grace + 1000), "of a process that is dead");
}

Test(revoke, what_cannot_be_invalidated)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	uint64_t grace;
	uint32_t slot;

	for (int remote = 0; remote < 2; remote++) {
		expect_reason(token_invalidate(rig.memory, &rig.who, r.remote_token, remote, &slot,
					       &grace),
			      INVALIDATE_KIND);
		expect_reason(token_invalidate(rig.memory, &rig.who, r.local_token, remote, &slot,
					       &grace),
			      INVALIDATE_KIND);
		expect_reason(token_invalidate(rig.memory, &rig.who, rig_token(&rig), remote, &slot,
					       &grace),
			      ACCESS_DEAD);
		expect_reason(token_invalidate(rig.memory, &rig.who, 0, remote, &slot, &grace),
			      ACCESS_UNKNOWN);
		expect_reason(token_invalidate(rig.memory, &rig.who, r.remote_token ^ 1, remote,
					       &slot, &grace),
			      ACCESS_UNKNOWN);
	}
	expect_reason(read_with(r.remote_token), ACCESS_OK);
}

Test(revoke, b46_invalidate_from_another_domain_is_refused)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, false);
	struct accessor other = rig.who;
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(pd_create(rig.memory, RIG_SESSION, &other.pd), 0);
	expect_reason(token_invalidate(rig.memory, &other, ask.token, false, &slot, &grace),
		      ACCESS_DOMAIN);
	expect_reason(token_invalidate(rig.memory, &other, ask.token, true, &slot, &grace),
		      ACCESS_DOMAIN);
	other = rig.who;
	other.session++;
	expect_reason(token_invalidate(rig.memory, &other, ask.token, true, &slot, &grace),
		      ACCESS_DOMAIN);
	expect_reason(read_with(ask.token), ACCESS_OK);
}

Test(revoke, b51_tied_window_from_another_queue_pair)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, true);
	struct accessor other = rig.who;
	struct access access;
	uint64_t grace;
	uint32_t slot;

	other.qpn++;
	expect_reason(memory_access(rig.memory, &other, ask.token, RIG_BASE, 8, RIGHT_REMOTE_READ,
				    &access),
		      ACCESS_QUEUE_PAIR);
	expect_reason(token_invalidate(rig.memory, &other, ask.token, true, &slot, &grace),
		      ACCESS_QUEUE_PAIR);
	expect_reason(read_with(ask.token), ACCESS_OK);
	cr_assert_eq(token_invalidate(rig.memory, &rig.who, ask.token, true, &slot, &grace),
		     ACCESS_OK);
	cr_expect_eq(grace, 0, "only its own worker sees a tied window");
	expect_reason(read_with(ask.token), ACCESS_DEAD);
}

Test(revoke, tied_window_killed_by_its_owner_on_another_queue_pair_needs_grace)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, true);
	struct accessor other = rig.who;
	uint64_t grace;
	uint32_t slot;

	other.qpn++;
	cr_assert_eq(token_invalidate(rig.memory, &other, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	cr_expect_neq(grace, 0, "the window's worker may be another one");
}

Test(revoke, b50_region_with_bound_windows_is_busy)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, false);
	uint64_t grace;
	uint32_t slot;

	cr_expect_eq(region_deregister(rig.memory, r.region, &grace), -EBUSY);
	expect_reason(read_with(ask.token), ACCESS_OK);
	cr_assert_eq(token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
		     ACCESS_OK);
	token_recycle(rig.memory, 0, slot);
	cr_assert_eq(region_deregister(rig.memory, r.region, &grace), 0);
	expect_reason(read_with(ask.token), ACCESS_UNKNOWN);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_DEAD);
	region_deregister_finish(rig.memory, r.region);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_DEAD);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), 0);
}

Test(revoke, bind_to_a_closing_region_is_refused)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));
	uint64_t grace;

	cr_assert_eq(region_deregister(rig.memory, r.region, &grace), 0);
	expect_reason(window_bind(rig.memory, &rig.who, &ask), BIND_REGION);
	cr_expect_eq(region_deregister(rig.memory, r.region, &grace), -EINVAL);
	cr_expect_eq(region_destroy(rig.memory, r.region), -EBUSY);
	region_deregister_finish(rig.memory, r.region);
	cr_expect_eq(region_destroy(rig.memory, r.region), 0);
}

Test(revoke, destroying_a_window_unbinds_it)
{
	struct rig_region r;
	struct bind_request ask = bound(&r, true);
	struct memory_usage usage;
	uint64_t grace;

	cr_assert_eq(window_destroy(rig.memory, ask.window, &grace), 0);
	expect_reason(read_with(ask.token), ACCESS_DEAD);
	cr_expect_eq(region_deregister(rig.memory, r.region, &grace), -EBUSY);
	window_destroy_finish(rig.memory, ask.window);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.windows, 0);
	cr_expect_eq(usage.tokens_reserved, 0, "the client never learns of a new token");
	cr_expect_eq(region_deregister(rig.memory, r.region, &grace), 0);
}

/* A worker's invalidate waits while the control thread destroys the window: either order. */
/* More lives than there are places for tokens. */
Test(revoke, destroying_a_window_gives_its_place_back)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIGHT_LOCAL_WRITE);
	uint64_t grace;

	for (int i = 0; i < 200; i++) {
		struct bind_request ask = rig_bind_request(&rig, r.region, rig_window(&rig));

		cr_assert_eq(window_bind(rig.memory, &rig.who, &ask), ACCESS_OK, "life %d", i);
		cr_assert_eq(window_destroy(rig.memory, ask.window, &grace), 0);
		window_destroy_finish(rig.memory, ask.window);
	}
}

Test(revoke, window_destroyed_during_its_invalidate)
{
	for (int order = 0; order < 2; order++) {
		struct rig_region r;
		struct bind_request ask = bound(&r, false);
		uint32_t slot, token = 0;
		uint64_t grace;

		cr_assert_eq(
			token_invalidate(rig.memory, &rig.who, ask.token, false, &slot, &grace),
			ACCESS_OK);
		cr_assert_eq(window_destroy(rig.memory, ask.window, &grace), 0);
		if (order == 0)
			token = token_recycle(rig.memory, 0, slot);
		window_destroy_finish(rig.memory, ask.window);
		if (order == 1)
			token = token_recycle(rig.memory, 0, slot);
		cr_expect_neq(token, 0);
		expect_reason(read_with(token), ACCESS_DEAD);
		cr_expect_eq(region_deregister(rig.memory, r.region, &grace), 0);
	}
}

Test(revoke, domain_is_busy_while_it_has_users)
{
	uint32_t window = rig_window(&rig);
	uint64_t grace;

	cr_expect_eq(pd_destroy(rig.memory, rig.who.pd), -EBUSY);
	cr_assert_eq(window_destroy(rig.memory, window, &grace), 0);
	window_destroy_finish(rig.memory, window);
	cr_expect_eq(pd_destroy(rig.memory, rig.who.pd), 0);
	cr_expect_eq(pd_destroy(rig.memory, rig.who.pd), -EINVAL);
}
