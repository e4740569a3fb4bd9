/* SPDX-License-Identifier: BSD-3-Clause */
/* Client memory: seals, holes, faults, registration. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/memory_private.h"
#include "rig.h"

static struct rig rig;

static void on_sigbus(int signal, siginfo_t *info, void *context)
{
	if (!memory_repair_fault(info->si_addr))
		_exit(99);
}

static void setup(void)
{
	struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	rig_create(&rig, 64);
	sigaction(SIGBUS, &action, NULL);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(segment, .init = setup, .fini = teardown);

Test(segment, b98_refused_unless_sealed_against_shrinking_and_sealing)
{
	static const int seals[] = { 0, F_SEAL_SHRINK, F_SEAL_SEAL, F_SEAL_GROW | F_SEAL_SEAL };
	uint32_t segment;
	int pipes[2];

	for (int i = 0; i < 4; i++) {
		int fd = rig_memfd(4096, seals[i]);

		cr_expect_eq(segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &segment), -EPERM);
		cr_expect_eq(close(fd), 0, "still the caller's");
	}
	cr_assert_eq(pipe(pipes), 0);
	cr_expect_eq(segment_attach(rig.memory, RIG_SESSION, 2, pipes[0], -1, &segment), -EPERM);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 2), 0);
}

Test(segment, refuses_empty_and_read_only_and_known)
{
	uint32_t segment;
	int fd = rig_memfd(0, F_SEAL_SHRINK | F_SEAL_SEAL);

	cr_expect_eq(segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &segment), -EINVAL);
	close(fd);
	fd = rig_memfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL | F_SEAL_WRITE);
	cr_expect_eq(segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &segment), -EPERM);
	close(fd);
	fd = rig_memfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL);
	cr_expect_eq(segment_attach(rig.memory, RIG_SESSION, 1, fd, -1, &segment), -EEXIST);
	cr_expect_eq(segment_attach(rig.memory, RIG_SESSION + 1, 1, fd, 0, &segment), 0);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION + 1, 1), segment);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 1), rig.segment);
}

Test(segment, busy_while_regions_are_registered)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, 0);
	struct memory_usage usage;
	uint64_t grace;

	cr_expect_eq(segment_detach(rig.memory, rig.segment), -EBUSY);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 8, RIGHT_LOCAL_READ), ACCESS_OK);
	cr_assert_eq(region_deregister(rig.memory, r.region, &grace), 0);
	region_deregister_finish(rig.memory, r.region);
	cr_expect_eq(segment_detach(rig.memory, rig.segment), 0);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 1), 0);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.segments, 0);
	cr_expect_eq(usage.bytes, 0);
}

/* --- in pieces ------------------------------------------------------------------------------ */

Test(segment, comes_piece_by_piece_and_is_nobodys_before_the_last)
{
	const uint64_t size = 9u << 20;
	uint32_t segment, other, region, local, remote;
	int fd = rig_memfd(size, F_SEAL_SHRINK | F_SEAL_SEAL);

	cr_assert_eq(segment_begin(rig.memory, RIG_SESSION, 2, fd, -1, &segment), 0);
	cr_expect_eq(segment_begin(rig.memory, RIG_SESSION, 2, fd, -1, &other), -EEXIST);
	cr_expect_eq(segment_detach(rig.memory, segment), -EINVAL);
	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	for (int piece = 0; piece < 2; piece++) {
		cr_assert_eq(segment_populate(rig.memory, segment), -EAGAIN);
		cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 2), 0);
		cr_expect_eq(region_register(rig.memory, region, segment, 0, 8, RIG_BASE, RIG_ALL,
					     &local, &remote),
			     -EINVAL);
	}
	cr_assert_eq(segment_populate(rig.memory, segment), 0);
	cr_expect_eq(segment_find(rig.memory, RIG_SESSION, 2), segment);
	cr_expect_eq(region_register(rig.memory, region, segment, 0, size, RIG_BASE, RIG_ALL,
				     &local, &remote),
		     0);
	expect_reason(rig_access(&rig, remote, RIG_BASE + size - 8, 8, RIGHT_REMOTE_WRITE),
		      ACCESS_OK);
}

Test(segment, session_that_ends_ends_what_is_on_its_way)
{
	struct memory_usage usage;
	uint32_t segment;
	uint64_t grace;

	cr_assert_eq(segment_begin(rig.memory, RIG_SESSION + 1, 2,
				   rig_memfd(9u << 20, F_SEAL_SHRINK | F_SEAL_SEAL), -1, &segment),
		     0);
	session_release(rig.memory, RIG_SESSION + 1, &grace);
	cr_expect_eq(segment_populate(rig.memory, segment), -ECANCELED);
	session_release_finish(rig.memory, RIG_SESSION + 1);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.segments, 1);
	cr_expect_eq(usage.bytes, RIG_SIZE);
}

/* More than the machine can have is refused before the machine looks for it. */
Test(segment, more_than_there_is_is_refused)
{
	uint32_t segment;
	int fd = rig_memfd(1ull << 60, F_SEAL_SHRINK | F_SEAL_SEAL);

	cr_expect_eq(segment_begin(rig.memory, RIG_SESSION, 2, fd, -1, &segment), -ENOMEM);
	close(fd);
}

Test(segment, much_is_given_back_aside)
{
	int fd = rig_memfd(64u << 20, F_SEAL_SHRINK | F_SEAL_SEAL);
	struct memory_usage usage;
	uint32_t segment;

	cr_assert_eq(segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &segment), 0);
	cr_assert_eq(segment_detach(rig.memory, segment), 0);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.bytes, RIG_SIZE);
	for (int tries = 0; fcntl(fd, F_GETFD) >= 0; tries++) {
		cr_assert_lt(tries, 60000, "the descriptor is still open");
		usleep(1000);
	}
}

/* --- registration ------------------------------------------------------------------ */

struct registration {
	uint64_t offset, length, base;
	uint32_t access;
	int rc;
};

Test(segment, registration_checks_range_and_rights)
{
	static const struct registration cases[] = {
		{ 0, 0, RIG_BASE, 0, -EINVAL },
		{ 0, RIG_SIZE + 1, RIG_BASE, 0, -EINVAL },
		{ RIG_SIZE, 1, RIG_BASE, 0, -EINVAL },
		{ RIG_SIZE - 1, 2, RIG_BASE, 0, -EINVAL },
		{ UINT64_MAX, 2, RIG_BASE, 0, -EINVAL },
		{ 1, UINT64_MAX, RIG_BASE, 0, -EINVAL },
		{ 0, UINT64_MAX, RIG_BASE, 0, -EINVAL },
		{ 0, 2, UINT64_MAX, 0, -EINVAL },
		{ 0, 8, RIG_BASE, RIGHT_REMOTE_WRITE, -EINVAL },
		{ 0, 8, RIG_BASE, RIGHT_REMOTE_ATOMIC, -EINVAL },
		{ 0, 8, RIG_BASE, 0x20, -EINVAL },
		{ RIG_SIZE - 1, 1, UINT64_MAX, RIG_ALL, 0 },
		{ 0, 8, RIG_BASE, 0, -EEXIST },
	};
	uint32_t region, local, remote;

	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct registration *c = &cases[i];

		cr_expect_eq(region_register(rig.memory, region, rig.segment, c->offset, c->length,
					     c->base, c->access, &local, &remote),
			     c->rc, "case %zu", i);
	}
	expect_reason(rig_access(&rig, remote, UINT64_MAX, 1, RIGHT_REMOTE_WRITE), ACCESS_OK);
}

Test(segment, another_sessions_segment_cannot_be_registered)
{
	uint32_t pd, region, local, remote;

	cr_assert_eq(pd_create(rig.memory, RIG_SESSION + 1, &pd), 0);
	cr_assert_eq(region_create(rig.memory, RIG_SESSION + 1, pd, false, &region), 0);
	cr_expect_eq(region_register(rig.memory, region, rig.segment, 0, 8, RIG_BASE, 0, &local,
				     &remote),
		     -EINVAL);
	for (uint32_t bad = 7; bad < 10; bad++)
		cr_expect_eq(region_register(rig.memory, region, bad, 0, 8, RIG_BASE, 0, &local,
					     &remote),
			     -EINVAL);
}

Test(segment, registration_without_free_tokens_fails_cleanly)
{
	uint32_t token[64], region, local, remote;
	struct memory_usage usage;

	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	cr_assert_eq(token_reserve(rig.memory, RIG_SESSION, 62, token), 62);
	cr_expect_eq(region_register(rig.memory, region, rig.segment, 0, 8, RIG_BASE, RIG_ALL,
				     &local, &remote),
		     -ENOSPC);
	memory_usage(rig.memory, &usage);
	cr_expect_eq(usage.tokens_free, 1);
	cr_expect_eq(region_register(rig.memory, region, rig.segment, 0, 8, RIG_BASE, 0, &local,
				     &remote),
		     0);
	cr_expect_eq(remote, 0);
}

/* --- memory that goes away ------------------------------------------------------------ */

/* A memfd gives fresh zero pages for a hole: nobody crashes, nobody else is touched. */
Test(segment, b98_hole_in_a_sealed_memfd)
{
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);
	struct access access;

	cr_assert_eq(memory_access(rig.memory, &rig.who, r.remote_token, RIG_BASE, RIG_SIZE,
				   RIGHT_REMOTE_WRITE, &access),
		     ACCESS_OK);
	access.pointer[4096] = 0x11;
	cr_assert_eq(madvise(rig.client, RIG_SIZE, MADV_REMOVE), 0);
	cr_expect_eq(access.pointer[4096], 0);
	access.pointer[4096] = 0x22;
	cr_expect_eq(rig.client[4096], 0x22);
	cr_expect_eq(ftruncate(rig.memory->mappings[rig.segment].fd, 0), -1);
}

/* Puts a mapping of an empty file where the segment's page was: the next touch is SIGBUS. */
static void take_page(uint8_t *page)
{
	int fd = memfd_create("oriel-test", MFD_CLOEXEC);

	cr_assert_eq(mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), page);
	close(fd);
}

Test(segment, b98_fault_is_repaired_and_poisons_this_segment_only)
{
	int fd = rig_memfd(4096, F_SEAL_SHRINK | F_SEAL_SEAL);
	uint32_t other, region, local, remote;
	struct rig_region r;
	struct access access;

	cr_assert_eq(segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &other), 0);
	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	cr_assert_eq(region_register(rig.memory, region, other, 0, 4096, RIG_BASE, RIG_ALL, &local,
				     &remote),
		     0);
	r = rig_register(&rig, RIG_BASE, RIG_ALL);
	cr_assert_eq(memory_access(rig.memory, &rig.who, r.remote_token, RIG_BASE, RIG_SIZE,
				   RIGHT_REMOTE_READ, &access),
		     ACCESS_OK);
	access.pointer[4095] = 0x41;
	take_page(access.pointer + 4096);

	cr_expect_eq(__atomic_load_n(access.pointer + 4096 + 17, __ATOMIC_RELAXED), 0);
	cr_expect_eq(__atomic_load_n(access.poisoned, __ATOMIC_RELAXED), 1);
	cr_expect_eq(access.pointer[4095], 0x41, "the page before stays");
	expect_reason(rig_access(&rig, r.remote_token, RIG_BASE, 1, RIGHT_REMOTE_READ),
		      ACCESS_POISONED);
	expect_reason(rig_access(&rig, r.local_token, RIG_BASE, 1, RIGHT_LOCAL_READ),
		      ACCESS_POISONED);
	expect_reason(rig_access(&rig, remote, RIG_BASE, 1, RIGHT_REMOTE_READ), ACCESS_OK);
	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	cr_expect_eq(region_register(rig.memory, region, rig.segment, 0, 8, RIG_BASE, 0, &local,
				     &remote),
		     -EFAULT);
}

Test(segment, fault_elsewhere_is_not_ours)
{
	uint8_t *end;
	struct access access;
	struct rig_region r = rig_register(&rig, RIG_BASE, RIG_ALL);

	cr_assert_eq(memory_access(rig.memory, &rig.who, r.remote_token, RIG_BASE, RIG_SIZE,
				   RIGHT_REMOTE_READ, &access),
		     ACCESS_OK);
	end = access.pointer + RIG_SIZE;
	cr_expect_not(memory_repair_fault(NULL));
	cr_expect_not(memory_repair_fault(end));
	cr_expect_not(memory_repair_fault(access.pointer - 1));
	cr_expect_not(memory_repair_fault(rig.client));
	cr_expect_eq(*access.poisoned, 0);
}

Test(segment, fault_ranges_are_forgotten_with_their_segment)
{
	uint8_t *page =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t poisoned = 0;
	int range = fault_range_add(page, 5000, 4096, &poisoned);

	cr_assert(range >= 0);
	cr_expect(memory_repair_fault(page + 8191), "the last page faults as a whole");
	cr_expect_eq(poisoned, 1);
	fault_range_remove(range);
	cr_expect_not(memory_repair_fault(page));
	munmap(page, 8192);
}

/* A hole in hugetlb memory without a free huge page to fill it is a SIGBUS. */
Test(segment, b98_hole_in_huge_pages)
{
	const size_t huge = 2u << 20;
	uint32_t segment, region, local, remote;
	struct access access;
	int fd = memfd_create("oriel-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0 || ftruncate(fd, 2 * (off_t)huge) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		cr_skip_test("no hugetlb memfds here");
	if (segment_attach(rig.memory, RIG_SESSION, 2, fd, -1, &segment) < 0)
		cr_skip_test("no free huge pages here");
	cr_assert_eq(region_create(rig.memory, RIG_SESSION, rig.who.pd, false, &region), 0);
	cr_assert_eq(region_register(rig.memory, region, segment, 0, 2 * huge, RIG_BASE, RIG_ALL,
				     &local, &remote),
		     0);
	cr_assert_eq(memory_access(rig.memory, &rig.who, remote, RIG_BASE, 2 * huge,
				   RIGHT_REMOTE_WRITE, &access),
		     ACCESS_OK);
	access.pointer[huge - 1] = 0x33;
	cr_assert_eq(
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)huge, (off_t)huge),
		0);
	__atomic_store_n(access.pointer + huge + 12345, 0x44, __ATOMIC_RELAXED);
	cr_expect_eq(access.pointer[huge + 12345], 0x44);
	cr_expect_eq(access.pointer[huge - 1], 0x33, "the huge page before stays");
	/* The same again by hand, as the kernel may have had a huge page to spare. */
	cr_expect(memory_repair_fault(access.pointer + huge + 5000));
	cr_expect_eq(access.pointer[2 * huge - 1], 0);
	cr_expect_eq(access.pointer[huge - 1], 0x33);
	expect_reason(rig_access(&rig, remote, RIG_BASE, 1, RIGHT_REMOTE_READ), ACCESS_POISONED);
}
