/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may touch which bytes: bounds, rights, domains, kinds of token. */
#include <string.h>

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

TestSuite(access, .init = setup, .fini = teardown);

/* --- which token ---------------------------------------------------------------- */

/* Of all that ever stand for its place in the table, a token has all 32 bits to itself. */
Test(access, other_generations_of_a_token_are_unknown)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	const uint32_t slots = rig.memory->slot_mask + 1;
	uint32_t counter = token_decrypt(rig.memory, 0, r.remote_token);
	unsigned int hits = 0, same_half = 0;

	for (uint32_t i = 0; i < 1u << 20; i++) {
		uint32_t other = perm32_encrypt(rig.memory->key, counter += slots);

		same_half += (uint16_t)other == (uint16_t)r.remote_token ||
			     other >> 16 == r.remote_token >> 16;
		hits += rig_access(&rig, other, RIG_BASE, 8, RIGHT_REMOTE_READ) != ACCESS_UNKNOWN;
	}
	cr_expect_eq(hits, 0);
	cr_expect_gt(same_half, 0);
	expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_OK);
}

/* --- bounds --------------------------------------------------------------------- */

#define MAX UINT64_MAX

struct range_case {
	uint64_t base, size, address, length;
	bool within;
};

/* B42: at 0, 1, 2^32-1, 2^64-1 and around. */
static const struct range_case range_cases[] = {
	{ 0, 0, 0, 0, true },
	{ 0, 0, 0, 1, false },
	{ 0, 1, 0, 1, true },
	{ 0, 1, 1, 0, true },
	{ 0, 1, 1, 1, false },
	{ 0, 1, 0, MAX, false },
	{ 1, 1, 0, 1, false },
	{ 1, 1, 0, 2, false },
	{ 1, MAX, 1, MAX, true },
	{ 0, MAX, 0, MAX, true },
	{ 0, MAX, 1, MAX, false },
	{ 0, 0xffffffff, 0, 0xffffffff, true },
	{ 0, 0xffffffff, 0xffffffff, 1, false },
	{ 0, 0xffffffff, 0xfffffffe, 1, true },
	{ 0, 0xffffffff, 0, 0x100000000, false },
	{ 0xffffffff, 2, 0xffffffff, 2, true },
	{ 0xffffffff, 2, 0x100000000, 1, true },
	{ 0xffffffff, 2, 0x100000000, 2, false },
	{ MAX, 1, MAX, 1, true },
	{ MAX, 1, MAX, 2, false },
	{ MAX, 1, 0, 1, false },
	{ MAX - 0xfff, 0x1000, MAX - 0x3ff, 0x400, true },
	{ MAX - 0xfff, 0x1000, MAX - 0x3ff, 0x401, false },
	{ 0x1000, 0x1000, MAX - 0x3ff, 0x400, false },
	{ 0x1000, 0x1000, MAX - 0x3ff, 0x1400 + 0x400, false },
	{ 0x1000, 0x1000, 0xfff, 2, false },
	{ 0x1000, 0x1000, 0x2000, 1, false },
	{ 0x1000, 0x1000, 0x1fff, 1, true },
	{ 0x1000, 0x1000, 0x1000, 0x80000001, false },
};

Test(access, b42_range_within_never_wraps)
{
	for (size_t i = 0; i < sizeof(range_cases) / sizeof(range_cases[0]); i++) {
		const struct range_case *c = &range_cases[i];

		cr_expect_eq(range_within(c->base, c->size, c->address, c->length), c->within,
			     "case %zu", i);
	}
}

static void expect_bounds_at(uint64_t base)
{
	struct rig_region r = rig_register(&rig, base, RIG_ALL);
	const uint64_t last = base + RIG_SIZE - 1;

	expect_reason(rig_access(&rig, r.remote_token, base, 1, RIGHT_REMOTE_READ), ACCESS_OK);
	expect_reason(rig_access(&rig, r.remote_token, base, RIG_SIZE, RIGHT_REMOTE_WRITE),
		      ACCESS_OK);
	expect_reason(rig_access(&rig, r.remote_token, last, 1, RIGHT_REMOTE_READ), ACCESS_OK);
	expect_reason(rig_access(&rig, r.remote_token, base - 1, 2, RIGHT_REMOTE_WRITE),
		      ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.remote_token, last + 1, 1, RIGHT_REMOTE_WRITE),
		      ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.remote_token, last, 2, RIGHT_REMOTE_READ), ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.remote_token, base, RIG_SIZE + 1, RIGHT_REMOTE_READ),
		      ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.remote_token, base, MAX, RIGHT_REMOTE_READ), ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.remote_token, base, 0x80000001, RIGHT_REMOTE_READ),
		      ACCESS_RANGE);
	expect_reason(
		rig_access(&rig, r.remote_token, MAX - 0x3ff, 0x400 + RIG_SIZE, RIGHT_REMOTE_WRITE),
		ACCESS_RANGE);
	expect_reason(rig_access(&rig, r.local_token, last, 2, RIGHT_LOCAL_WRITE), ACCESS_RANGE);
}

Test(access, b42_region_at_zero)
{
	expect_bounds_at(0);
}

Test(access, b42_region_at_one)
{
	expect_bounds_at(1);
}

Test(access, b42_region_across_four_gigabytes)
{
	expect_bounds_at(0xffffffff);
}

Test(access, b42_region_up_to_the_last_address)
{
	expect_bounds_at(MAX - RIG_SIZE + 1);
}

Test(access, b42_reported_wrap_values)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);

	expect_reason(
		rig_access(&rig, r.remote_token, 0xfffffffffffffc00, 0x400, RIGHT_REMOTE_WRITE),
		ACCESS_RANGE);
}

Test(access, pointer_is_the_byte_asked_for)
{
	struct rig_region r = rig_register(&rig, RIG_BASE + 3, RIG_ALL);
	struct access access;

	for (uint32_t at = 0; at < RIG_SIZE; at += 4095) {
		rig.client[at] = (uint8_t)(at * 7 + 1);
		cr_assert_eq(memory_access(rig.memory, &rig.who, r.remote_token, RIG_BASE + 3 + at,
					   1, RIGHT_REMOTE_READ, &access),
			     ACCESS_OK);
		cr_expect_eq(*access.pointer, (uint8_t)(at * 7 + 1));
		*access.pointer = 0x5a;
		cr_expect_eq(rig.client[at], 0x5a);
		cr_expect_eq(*access.poisoned, 0);
	}
}

/* Registers a part of the segment and tries its first and last byte and those beside it. */
static void check_part(uint64_t offset, uint64_t length, uint64_t base)
{
	uint32_t region, local, remote;
	struct access access;
	uint64_t grace;

	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	cr_assert_eq(region_register(rig.memory, region, rig.segment, offset, length, base, RIG_ALL,
				     &local, &remote),
		     0);
	cr_assert_eq(memory_access(rig.memory, &rig.who, remote, base, length, RIGHT_REMOTE_READ,
				   &access),
		     ACCESS_OK);
	cr_expect_eq(access.pointer[0], rig.client[offset]);
	cr_expect_eq(access.pointer[length - 1], rig.client[offset + length - 1]);
	cr_assert_eq(memory_access(rig.memory, &rig.who, remote, base + length - 1, 1,
				   RIGHT_REMOTE_WRITE, &access),
		     ACCESS_OK);
	*access.pointer ^= 0xff;
	cr_expect_eq(*access.pointer, rig.client[offset + length - 1]);
	expect_reason(rig_access(&rig, remote, base - 1, 1, RIGHT_REMOTE_READ), ACCESS_RANGE);
	expect_reason(rig_access(&rig, remote, base - 1, length, RIGHT_REMOTE_READ), ACCESS_RANGE);
	expect_reason(rig_access(&rig, remote, base + length, 1, RIGHT_REMOTE_READ), ACCESS_RANGE);
	expect_reason(rig_access(&rig, remote, base + 1, length, RIGHT_REMOTE_READ), ACCESS_RANGE);
	cr_assert_eq(region_deregister(rig.memory, region, &grace), 0);
	region_deregister_finish(rig.memory, region);
	cr_assert_eq(region_destroy(rig.memory, region), 0);
}

/* MEM-8, B56: the page size of the memory is nobody's business but the kernel's. */
Test(access, b56_starts_and_ends_off_the_page)
{
	static const uint64_t offsets[] = { 0, 1, 63, 4095, 4096, 4097, 12289 };
	static const uint64_t lengths[] = { 1, 7, 4095, 4096, 4097, 8191, 8193, 20000 };
	static const uint64_t bases[] = { RIG_BASE, RIG_BASE + 1, RIG_BASE + 4095, 5 };

	for (uint32_t i = 0; i < RIG_SIZE; i++)
		rig.client[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++)
			for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++)
				check_part(offsets[i], lengths[k], bases[b]);
}

/* --- rights ----------------------------------------------------------------------- */

static const uint32_t every_right[] = { RIGHT_LOCAL_READ, RIGHT_LOCAL_WRITE, RIGHT_REMOTE_READ,
					RIGHT_REMOTE_WRITE, RIGHT_REMOTE_ATOMIC };

Test(access, b44_every_bit_asked_for_must_be_granted)
{
	for (uint32_t remote = 0; remote < 8; remote++) {
		const uint32_t granted = remote << 2;
		struct rig_region r = rig_register(&rig, RIG_BASE, granted | RIGHT_LOCAL_WRITE);

		cr_expect_eq(r.remote_token != 0, remote != 0);
		for (uint32_t ask = 1; r.remote_token && ask < 8; ask++)
			expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 8, ask << 2),
				      (ask << 2 & ~granted) ? ACCESS_RIGHTS : ACCESS_OK);
	}
}

Test(access, b44_local_write_only_when_registered)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, 0);

	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_OK);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_WRITE),
		      ACCESS_RIGHTS);
	expect_reason(
		rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE),
		ACCESS_RIGHTS);
}

Test(access, b59_local_token_means_nothing_to_a_peer_nor_the_reverse)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);

	cr_expect_neq(r.local_token, r.remote_token);
	for (int i = 0; i < 5; i++) {
		const bool local = every_right[i] & (RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE);

		expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, every_right[i]),
			      local ? ACCESS_OK : ACCESS_KIND);
		expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 8, every_right[i]),
			      local ? ACCESS_KIND : ACCESS_OK);
	}
	expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 8, RIG_ALL), ACCESS_KIND);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIG_ALL), ACCESS_KIND);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, 0), ACCESS_KIND);
}

Test(access, b59_byte_swapped_token_is_unknown)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	const uint32_t swapped = __builtin_bswap32(r.remote_token);

	if (swapped != r.remote_token)
		expect_reason(rig_access(&rig, swapped, RIG_BASE, 8, RIGHT_REMOTE_READ),
			      ACCESS_UNKNOWN);
}

Test(access, atomics_need_eight_byte_alignment)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);

	for (uint64_t at = 0; at < 16; at++)
		expect_reason(
			rig_access(&rig, r.remote_token, RIG_BASE + at, 8, RIGHT_REMOTE_ATOMIC),
			at % 8 ? ACCESS_ALIGNMENT : ACCESS_OK);
}

/* --- domains and guesses ------------------------------------------------------------- */

Test(access, b46_other_domain_or_session_is_refused)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct accessor other = rig.who;
	struct access access;

	cr_assert_eq(pd_create(rig.memory, RIG_SESSION, &other.pd), 0);
	expect_reason(memory_access(rig.memory, &other, r.remote_token, RIG_BASE, 8,
				    RIGHT_REMOTE_READ, &access),
		      ACCESS_DOMAIN);
	expect_reason(memory_access(rig.memory, &other, r.local_token, RIG_BASE, 8,
				    RIGHT_LOCAL_READ, &access),
		      ACCESS_DOMAIN);
	other = rig.who;
	other.session = RIG_SESSION + 1;
	expect_reason(memory_access(rig.memory, &other, r.remote_token, RIG_BASE, 8,
				    RIGHT_REMOTE_READ, &access),
		      ACCESS_DOMAIN);
}

Test(access, token_zero_is_never_valid)
{
	rig_register(&rig, RIG_BASE, RIG_ALL);
	expect_reason(rig_access(&rig, 0, RIG_BASE, 8, RIGHT_REMOTE_READ), ACCESS_UNKNOWN);
	expect_reason(rig_access(&rig, 0, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_UNKNOWN);
}

Test(access, guessed_tokens_are_unknown)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	unsigned int hits = 0;

	for (uint32_t bit = 0; bit < 32; bit++)
		hits += rig_access(&rig, r.remote_token ^ 1u << bit, RIG_BASE, 8,
				   RIGHT_REMOTE_READ) != ACCESS_UNKNOWN;
	for (uint64_t token = 0; token <= UINT32_MAX; token += 65521)
		if (token != r.remote_token && token != r.local_token)
			hits += rig_access(&rig, (uint32_t)token, RIG_BASE, 8, RIGHT_REMOTE_READ) !=
				ACCESS_UNKNOWN;
	cr_expect_eq(hits, 0);
}

Test(access, reserved_token_grants_nothing)
{
	expect_reason(rig_access(&rig, rig_token(&rig), RIG_BASE, 8, RIGHT_REMOTE_READ),
		      ACCESS_DEAD);
}

Test(access, every_reason_has_a_name)
{
	for (int i = 0; i < ACCESS_REASONS; i++)
		for (int j = 0; j < i; j++)
			cr_expect_str_neq(access_reason_name((enum access_reason)i),
					  access_reason_name((enum access_reason)j));
	cr_expect_str_eq(access_reason_name(ACCESS_REASONS), "?");
}

/* --- fetched ahead -------------------------------------------------------------------- */

/* What is fetched for a packet, before it is checked, is never outside what its token reaches. */
Test(access, nothing_is_fetched_ahead_outside_the_token)
{
	const struct rig_region region = rig_register(&rig, RIG_BASE, RIG_ALL);
	const uint64_t wild[] = { 0, RIG_BASE - 1, RIG_BASE + RIG_SIZE, RIG_BASE * 2, MAX };

	cr_expect(memory_prefetch_bytes(rig.memory, 0, region.remote_token, RIG_BASE));
	cr_expect(
		memory_prefetch_bytes(rig.memory, 0, region.remote_token, RIG_BASE + RIG_SIZE - 1));
	for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++)
		cr_expect_not(memory_prefetch_bytes(rig.memory, 0, region.remote_token, wild[i]),
			      "case %zu", i);
	cr_expect_not(memory_prefetch_bytes(rig.memory, 0, region.remote_token ^ 1, RIG_BASE));
	cr_expect_not(memory_prefetch_bytes(rig.memory, 0, rig_token(&rig), RIG_BASE), "reserved");
	cr_expect_not(memory_prefetch_bytes(rig.memory, 0, 0, RIG_BASE));
}
