/* SPDX-License-Identifier: BSD-3-Clause */
/* The privileged token: local access to the session's own segments, without a region. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

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

TestSuite(privileged, .init = setup, .fini = teardown);

static uint64_t logical(uint64_t segment, uint64_t offset)
{
	return segment << LOGICAL_OFFSET_BITS | offset;
}

static enum access_reason local(uint64_t segment, uint64_t offset, uint64_t length)
{
	return rig_access(&rig, memory_privileged_token(rig.memory), logical(segment, offset),
			  length, RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE);
}

/* NdkGetPrivilegedMemoryRegionToken: local read and local write, no registration. */
Test(privileged, names_every_byte_of_the_segment_and_no_more)
{
	struct access access;

	expect_reason(memory_access(rig.memory, &rig.who, memory_privileged_token(rig.memory),
				    logical(rig.segment, 100), 8, RIGHT_LOCAL_WRITE, &access),
		      ACCESS_OK);
	memcpy(access.pointer, "written", 8);
	cr_expect_str_eq((const char *)rig.client + 100, "written");
	expect_reason(local(rig.segment, 0, RIG_SIZE), ACCESS_OK);
	expect_reason(local(rig.segment, RIG_SIZE - 1, 1), ACCESS_OK);
	expect_reason(local(rig.segment, RIG_SIZE - 1, 2), ACCESS_RANGE);
	expect_reason(local(rig.segment, RIG_SIZE, 1), ACCESS_RANGE);
	expect_reason(local(rig.segment, 0, RIG_SIZE + 1), ACCESS_RANGE);
	expect_reason(local(rig.segment, 16, UINT64_MAX - 8), ACCESS_RANGE);
}

Test(privileged, other_segments_do_not_exist)
{
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK;
	uint32_t foreign;

	cr_assert_eq(segment_attach(rig.memory, RIG_SESSION + 1, 5, rig_memfd(4096, seals), -1,
				    &foreign),
		     0);
	expect_reason(local(foreign, 0, 8), ACCESS_RANGE);
	expect_reason(local(0, 0, 8), ACCESS_RANGE);
	for (uint64_t segment = foreign + 1; segment < 20; segment++)
		expect_reason(local(segment, 0, 8), ACCESS_RANGE);
	expect_reason(local((1u << 24) - 1, 0, 8), ACCESS_RANGE);
}

/* It must never be usable by a remote peer. */
Test(privileged, is_unknown_to_peers)
{
	const uint32_t token = memory_privileged_token(rig.memory);

	for (uint32_t right = RIGHT_REMOTE_READ; right <= RIGHT_REMOTE_ATOMIC; right *= 2)
		expect_reason(rig_access(&rig, token, logical(rig.segment, 0), 8, right),
			      ACCESS_UNKNOWN);
}

/* Whatever else a token is, it needs a region. */
Test(privileged, no_other_token_is_like_it)
{
	const uint32_t token = memory_privileged_token(rig.memory);
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	uint64_t grace;

	cr_assert_eq(region_deregister(rig.memory, r.region, &grace), 0);
	region_deregister_finish(rig.memory, r.region);
	expect_reason(rig_access(&rig, r.local_token, logical(rig.segment, 0), 8, RIGHT_LOCAL_READ),
		      ACCESS_DEAD);
	expect_reason(rig_access(&rig, 0, logical(rig.segment, 0), 8, RIGHT_LOCAL_READ),
		      ACCESS_UNKNOWN);
	for (uint32_t bit = 0; bit < 32; bit++)
		if ((token ^ 1u << bit) != r.local_token && (token ^ 1u << bit) != r.remote_token)
			expect_reason(rig_access(&rig, token ^ 1u << bit, logical(rig.segment, 0),
						 8, RIGHT_LOCAL_READ),
				      ACCESS_UNKNOWN);
}

Test(privileged, is_no_other_token)
{
	const uint32_t token = memory_privileged_token(rig.memory);
	uint32_t stock[63], slot;
	uint64_t grace;

	cr_expect_neq(token, 0);
	cr_expect_eq(token_reserve(rig.memory, RIG_SESSION, 63, stock), 63, "it takes no slot");
	for (int i = 0; i < 63; i++)
		cr_expect_neq(stock[i], token);
	cr_expect_neq(token_invalidate(rig.memory, &rig.who, token, false, &slot, &grace),
		      ACCESS_OK);
	cr_expect_neq(token_invalidate(rig.memory, &rig.who, token, true, &slot, &grace),
		      ACCESS_OK);
	expect_reason(local(rig.segment, 0, 8), ACCESS_OK);
}

/* A worker may still copy when its client drops the memory: unmapped a grace period later. */
Test(privileged, a_detached_segment_stays_until_nobody_is_in_it)
{
	struct memory_usage usage;
	struct access access;

	memory_reader_online(rig.memory, 0);
	expect_reason(memory_access(rig.memory, &rig.who, memory_privileged_token(rig.memory),
				    logical(rig.segment, 0), 8, RIGHT_LOCAL_WRITE, &access),
		      ACCESS_OK);
	cr_assert_eq(segment_detach(rig.memory, rig.segment), 0);
	expect_reason(local(rig.segment, 0, 8), ACCESS_RANGE);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 1), 0);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), -EINVAL, "once");
	cr_expect(segment_collect(rig.memory), "it waits");
	memset(access.pointer, 7, 8);
	cr_expect_eq(rig.client[0], 7);
	memory_quiescent(rig.memory, 0);
	cr_expect_not(segment_collect(rig.memory));
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.segments, 0);
	cr_expect_eq(usage.bytes, 0);
}

Test(privileged, ends_with_its_session)
{
	uint64_t grace;

	session_release(rig.memory, RIG_SESSION, &grace);
	expect_reason(local(rig.segment, 0, 8), ACCESS_RANGE);
	session_release_finish(rig.memory, RIG_SESSION);
	expect_reason(local(rig.segment, 0, 8), ACCESS_RANGE);
}
