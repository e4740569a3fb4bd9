/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of clients on its way in: a piece of one in each turn, each its own, all of it in the end.
 */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control/control_private.h"

#define LARGE (64u << 20)
#define SMALL (8u << 20)

static struct control control;
static struct arena arena;

int net_numa_node(const struct net *net)
{
	(void)net;
	return -1;
}

static void setup(void)
{
	const struct memory_sizes sizes = {
		.tokens = 64, .segments = 8, .regions = 8, .windows = 8, .pds = 8
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };

	memset(&control, 0, sizeof(control));
	memory_arena_spec(&sizes, spec);
	cr_assert_eq(arena_create(&arena, spec), 0);
	cr_assert_eq(memory_create(&control.memory, &arena, 1, false), 0);
}

static void teardown(void)
{
	incoming_forget(&control, 0);
	memory_destroy(control.memory);
	arena_destroy(&arena);
}

TestSuite(incoming, .init = setup, .fini = teardown);

static int sealed(uint64_t size)
{
	int fd = memfd_create("oriel-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	return fd;
}

static uint64_t bytes_there(int fd, size_t size)
{
	const size_t pages = size / 4096;
	unsigned char *resident = calloc(1, pages);
	void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t there = 0;

	cr_assert(map != MAP_FAILED && resident);
	cr_assert_eq(mincore(map, size, resident), 0);
	for (size_t i = 0; i < pages; i++)
		there += (resident[i] & 1) * 4096;
	munmap(map, size);
	free(resident);
	return there;
}

Test(incoming, one_turn_brings_in_a_small_part_of_much)
{
	int mine, fd = sealed(LARGE);

	mine = dup(fd);
	incoming_add(&control, 1, 7, fd);
	cr_assert(incoming_of(&control, 1));
	cr_assert_eq(bytes_there(mine, LARGE), 0, "what it takes is not taken at once");
	cr_assert(incoming_poll(&control));
	cr_assert_leq(bytes_there(mine, LARGE), LARGE / 8);
	cr_assert_eq(segment_find(control.memory, 1, 7), 0, "nor can it be used yet");
	while (incoming_of(&control, 1))
		cr_assert(incoming_poll(&control));
	cr_assert_eq(bytes_there(mine, LARGE), LARGE);
	cr_assert_neq(segment_find(control.memory, 1, 7), 0);
	cr_assert_not(incoming_poll(&control));
	close(mine);
}

Test(incoming, who_brings_little_does_not_wait_for_who_brings_much)
{
	incoming_add(&control, 1, 7, sealed(LARGE));
	incoming_add(&control, 2, 7, sealed(SMALL));
	while (incoming_of(&control, 2))
		cr_assert(incoming_poll(&control));
	cr_assert_neq(segment_find(control.memory, 2, 7), 0);
	cr_assert(incoming_of(&control, 1), "the other is not through yet");
}

Test(incoming, who_brings_many_has_no_more_turns_than_who_brings_one)
{
	unsigned int turns = 0;

	for (uint64_t cookie = 1; cookie <= 4; cookie++)
		incoming_add(&control, 1, cookie, sealed(LARGE));
	incoming_add(&control, 2, 1, sealed(2 * SMALL));
	for (; incoming_of(&control, 2); turns++)
		cr_assert(incoming_poll(&control));
	cr_assert_leq(turns, 2 * (2 * SMALL >> 20), "every other turn, of a megabyte at least");
	cr_assert_eq(segment_find(control.memory, 1, 1), 0);
}

Test(incoming, one_cookie_names_one_memory_from_the_first_moment_on)
{
	cr_redirect_stderr();
	incoming_add(&control, 1, 7, sealed(LARGE));
	incoming_add(&control, 1, 7, sealed(SMALL));
	while (incoming_of(&control, 1))
		cr_assert(incoming_poll(&control));
	cr_assert_neq(segment_find(control.memory, 1, 7), 0);
}

Test(incoming, what_could_not_be_had_says_why_and_may_come_again)
{
	int unsealed = memfd_create("oriel-test", MFD_CLOEXEC);

	cr_redirect_stderr();
	cr_assert_eq(ftruncate(unsealed, SMALL), 0);
	incoming_add(&control, 1, 7, unsealed);
	cr_assert_eq(incoming_status(&control, 1, 7), NT_INVALID_PARAMETER, "the client's fault");
	incoming_add(&control, 1, 8, sealed(1ull << 60));
	cr_assert_eq(incoming_status(&control, 1, 8), NT_INSUFFICIENT_RESOURCES);
	cr_assert_eq(incoming_status(&control, 1, 9), NT_INVALID_PARAMETER, "nobody knows it");
	cr_assert_eq(incoming_status(&control, 2, 8), NT_INVALID_PARAMETER);
	incoming_add(&control, 1, 8, sealed(SMALL));
	incoming_add(&control, 1, 8, sealed(SMALL)); /* from who did not know */
	while (incoming_of(&control, 1))
		cr_assert(incoming_poll(&control));
	cr_assert_neq(segment_find(control.memory, 1, 8), 0);
}

Test(incoming, the_end_of_its_session_is_the_end_of_it)
{
	struct memory_usage usage;
	uint64_t grace;

	incoming_add(&control, 1, 7, sealed(LARGE));
	incoming_add(&control, 2, 7, sealed(SMALL));
	cr_assert(incoming_poll(&control));
	session_release(control.memory, 1, &grace);
	incoming_forget(&control, 1);
	session_release_finish(control.memory, 1);
	while (incoming_of(&control, 2))
		cr_assert(incoming_poll(&control));
	cr_assert_not(incoming_poll(&control));
	memory_usage(control.memory, &usage);
	cr_assert_eq(usage.segments, 1);
	cr_assert_eq(usage.bytes, SMALL);
}

Test(incoming, what_is_refused_takes_no_room)
{
	int fd = memfd_create("oriel-test", MFD_CLOEXEC);
	struct memory_usage usage;

	cr_redirect_stderr();
	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, SMALL), 0);
	incoming_add(&control, 1, 7, fd);
	cr_assert_not(incoming_of(&control, 1));
	cr_assert_eq(fcntl(fd, F_GETFD), -1, "its descriptor is closed");
	memory_usage(control.memory, &usage);
	cr_assert_eq(usage.segments, 0);
}
