/* SPDX-License-Identifier: BSD-3-Clause */
/* Fast registration: stable tokens, new memory each time, dead in between. */
#include <errno.h>

#include "rig.h"

static struct rig rig;
static uint32_t region, local, remote;

static void setup(void)
{
	rig_create(&rig, 64);
	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, true, &region), 0);
	cr_assert_eq(region_init_fast_register(rig.memory, region, 4, true, &local, &remote), 0);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(fast_register, .init = setup, .fini = teardown);

static struct fast_register_request good_request(void)
{
	return (struct fast_register_request){
		.region = region,
		.segment = rig.segment,
		.length = 8192,
		.base = RIG_BASE,
		.rights = RIGHT_LOCAL_WRITE | RIGHTS_REMOTE,
	};
}

static enum access_reason fast_register(const struct fast_register_request *ask)
{
	return region_fast_register(rig.memory, &rig.who, ask);
}

static void invalidate(uint32_t token, bool by_peer)
{
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(token_invalidate(rig.memory, &rig.who, token, by_peer, &slot, &grace),
		     ACCESS_OK);
	cr_expect_neq(grace, 0);
	/* Both tokens, before the grace period begins. */
	expect_reason(rig_access(&rig, local, RIG_BASE, 1, RIGHT_LOCAL_READ), ACCESS_DEAD);
	cr_expect_eq(token_recycle(rig.memory, 0, slot), 0, "nothing for the stock");
}

static void expect_dead(void)
{
	expect_reason(rig_access(&rig, remote, RIG_BASE, 1, RIGHT_REMOTE_READ), ACCESS_DEAD);
	expect_reason(rig_access(&rig, local, RIG_BASE, 1, RIGHT_LOCAL_READ), ACCESS_DEAD);
}

Test(fast_register, b55_only_the_new_memory_under_the_same_tokens)
{
	struct fast_register_request ask = good_request();
	struct access access;

	expect_dead();
	for (uint32_t i = 0; i < 7; i++) {
		ask.offset = 8192 * i;
		ask.base = RIG_BASE + i;
		cr_assert_eq(fast_register(&ask), ACCESS_OK);
		cr_assert_eq(memory_access(rig.memory, &rig.who, remote, RIG_BASE + i, 8192,
					   RIGHT_REMOTE_WRITE, &access),
			     ACCESS_OK);
		*access.pointer = (uint8_t)(i + 1);
		expect_reason(rig_access(&rig, local, RIG_BASE + i, 8192, RIGHT_LOCAL_WRITE),
			      ACCESS_OK);
		expect_reason(rig_access(&rig, remote, RIG_BASE + i + 1, 8192, RIGHT_REMOTE_READ),
			      ACCESS_RANGE);
		invalidate(remote, i & 1);
		expect_dead();
	}
	for (uint32_t i = 0; i < 7; i++)
		cr_expect_eq(rig.client[8192 * i], i + 1);
}

Test(fast_register, not_twice_and_not_before_the_invalidate_is_complete)
{
	struct fast_register_request ask = good_request();
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(fast_register(&ask), ACCESS_OK);
	expect_reason(fast_register(&ask), BIND_BOUND);
	cr_assert_eq(token_invalidate(rig.memory, &rig.who, remote, false, &slot, &grace),
		     ACCESS_OK);
	expect_reason(fast_register(&ask), BIND_BOUND);
	cr_expect_eq(region_deregister(rig.memory, region, &grace), -EBUSY);
	token_recycle(rig.memory, 0, slot);
	expect_reason(fast_register(&ask), ACCESS_OK);
	expect_reason(token_invalidate(rig.memory, &rig.who, local, false, &slot, &grace),
		      INVALIDATE_KIND);
}

Test(fast_register, every_check_refuses_and_changes_nothing)
{
	const struct fast_register_request good = good_request();
	struct accessor other = rig.who;

	for (int how = 0; how < 10; how++) {
		static const enum access_reason reasons[] = {
			BIND_REGION,  BIND_REGION,  BIND_LENGTH,   ACCESS_RANGE,  ACCESS_RANGE,
			ACCESS_RANGE, ACCESS_RANGE, ACCESS_RIGHTS, ACCESS_RIGHTS, BIND_REGION,
		};
		struct fast_register_request ask = good;

		switch (how) {
		case 0: ask.region = 0; break;
		case 1: ask.segment = 7; break;
		case 2: ask.length = 0; break;
		case 3: ask.offset = RIG_SIZE - 1; break;
		case 4: ask.length = UINT64_MAX; break;
		case 5: ask.base = UINT64_MAX; break;
		case 6: ask.length = 4 * 4096 + 1; break; /* more pages than it was made for */
		case 7: ask.rights = RIGHT_REMOTE_WRITE; break;
		case 8: ask.rights = 0x80; break;
		case 9: ask.segment = UINT32_MAX; break;
		}
		expect_reason(fast_register(&ask), reasons[how]);
		expect_dead();
	}
	other.session++;
	expect_reason(region_fast_register(rig.memory, &other, &good), BIND_REGION);
	other = rig.who;
	other.pd++;
	expect_reason(region_fast_register(rig.memory, &other, &good), ACCESS_DOMAIN);
	expect_reason(fast_register(&good), ACCESS_OK);
	invalidate(remote, false);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), 0, "no count is left over");
}

Test(fast_register, pages_are_counted_from_where_they_begin)
{
	struct fast_register_request ask = good_request();

	ask.offset = 1;
	ask.length = 4 * 4096;
	expect_reason(fast_register(&ask), ACCESS_RANGE);
	ask.length--;
	expect_reason(fast_register(&ask), ACCESS_OK);
}

Test(fast_register, without_remote_token_the_local_one_names_it)
{
	struct fast_register_request ask = good_request();
	uint64_t grace;
	uint32_t slot, none;

	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, true, &ask.region), 0);
	cr_assert_eq(region_init_fast_register(rig.memory, ask.region, 4, false, &local, &none), 0);
	cr_expect_eq(none, 0);
	expect_reason(fast_register(&ask), ACCESS_RIGHTS);
	ask.rights = RIGHT_LOCAL_WRITE;
	cr_assert_eq(fast_register(&ask), ACCESS_OK);
	expect_reason(rig_access(&rig, local, RIG_BASE, 8, RIGHT_LOCAL_WRITE), ACCESS_OK);
	expect_reason(token_invalidate(rig.memory, &rig.who, local, true, &slot, &grace),
		      INVALIDATE_KIND);
	invalidate(local, false);
	expect_reason(rig_access(&rig, local, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_DEAD);
	cr_expect_eq(fast_register(&ask), ACCESS_OK);
}

/* NDK_OP_FLAG_ALLOW_LOCAL_WRITE: each registration has the rights that it asked for. */
Test(fast_register, local_write_and_remote_rights_only_when_asked_for)
{
	struct fast_register_request ask = good_request();

	ask.rights = RIGHT_REMOTE_READ;
	cr_assert_eq(fast_register(&ask), ACCESS_OK);
	expect_reason(rig_access(&rig, local, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_OK);
	expect_reason(rig_access(&rig, local, RIG_BASE, 8, RIGHT_LOCAL_WRITE), ACCESS_RIGHTS);
	expect_reason(rig_access(&rig, remote, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_OK);
	expect_reason(rig_access(&rig, remote, RIG_BASE, 8, RIGHT_REMOTE_WRITE), ACCESS_RIGHTS);
	invalidate(remote, false);
	ask.rights = RIGHT_LOCAL_WRITE | RIGHT_REMOTE_WRITE;
	cr_assert_eq(fast_register(&ask), ACCESS_OK);
	expect_reason(rig_access(&rig, local, RIG_BASE, 8, RIGHT_LOCAL_WRITE), ACCESS_OK);
	expect_reason(rig_access(&rig, remote, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_RIGHTS);
}

Test(fast_register, deregistration_frees_tokens_and_segment)
{
	struct fast_register_request ask = good_request();
	struct memory_usage usage;
	uint64_t grace;

	cr_assert_eq(fast_register(&ask), ACCESS_OK);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), -EBUSY);
	cr_assert_eq(region_deregister(rig.memory, region, &grace), 0);
	expect_dead();
	region_deregister_finish(rig.memory, region);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.tokens_free, 63);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), 0);
	cr_expect_eq(region_destroy(rig.memory, region), 0);
}

Test(fast_register, kinds_of_region_do_not_mix)
{
	struct rig_region plain = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct fast_register_request ask = good_request();
	struct bind_request bind = rig_bind_request(&rig, region, rig_window(&rig));
	uint32_t a, b;

	ask.region = plain.region;
	expect_reason(fast_register(&ask), BIND_REGION);
	cr_expect_eq(region_register(rig.memory, region, rig.segment, 0, 8, RIG_BASE, 0, &a, &b),
		     -EINVAL);
	cr_expect_eq(region_init_fast_register(rig.memory, plain.region, 4, true, &a, &b), -EINVAL);
	cr_expect_eq(region_init_fast_register(rig.memory, region, 4, true, &a, &b), -EEXIST);
	expect_reason(window_bind(rig.memory, &rig.who, &bind), BIND_REGION);
}
