/* SPDX-License-Identifier: BSD-3-Clause */
/* A small memory with one session, domain and segment, for the tests of lib/memory. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"

#define RIG_SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

int rig_memfd(uint64_t size, int seals)
{
	int fd = memfd_create("oriel-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	if (seals)
		cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

void rig_create(struct rig *rig, uint32_t tokens)
{
	rig_create_for(rig, tokens, 2);
}

void rig_create_for(struct rig *rig, uint32_t tokens, unsigned int workers)
{
	const struct memory_sizes sizes = {
		.tokens = tokens, .segments = 8, .regions = 16, .windows = 16, .pds = 8
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	int fd;

	memory_arena_spec(&sizes, spec);
	cr_assert_eq(arena_create(&rig->arena, spec), 0);
	cr_assert_eq(memory_create(&rig->memory, &rig->arena, workers, false), 0);
	rig->who = (struct accessor){ .qpn = 77, .session = RIG_SESSION };
	cr_assert_eq(pd_create(rig->memory, RIG_SESSION, &rig->who.pd), 0);
	fd = rig_memfd(RIG_SIZE, RIG_SEALS);
	rig->client = mmap(NULL, RIG_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(rig->client, MAP_FAILED);
	cr_assert_eq(segment_attach(rig->memory, RIG_SESSION, 1, fd, -1, &rig->segment), 0);
}

void rig_destroy(struct rig *rig)
{
	munmap(rig->client, RIG_SIZE);
	memory_destroy(rig->memory);
	arena_destroy(&rig->arena);
}

struct rig_region rig_register(struct rig *rig, uint64_t base, uint32_t access)
{
	struct rig_region made;

	cr_assert_eq(region_create(rig->memory, RIG_SESSION, rig->who.pd, false, &made.region), 0);
	cr_assert_eq(region_register(rig->memory, made.region, rig->segment, 0, RIG_SIZE, base,
				     access, &made.local_token, &made.remote_token),
		     0);
	return made;
}

uint32_t rig_window(struct rig *rig)
{
	uint32_t window;

	cr_assert_eq(window_create(rig->memory, RIG_SESSION, rig->who.pd, &window), 0);
	return window;
}

uint32_t rig_token(struct rig *rig)
{
	uint32_t token;

	cr_assert_eq(token_reserve(rig->memory, RIG_SESSION, 1, &token), 1);
	return token;
}

struct bind_request rig_bind_request(struct rig *rig, uint32_t region, uint32_t window)
{
	return (struct bind_request){
		.region = region,
		.window = window,
		.token = rig_token(rig),
		.rights = RIGHTS_REMOTE,
		.address = RIG_BASE,
		.length = RIG_SIZE,
	};
}

enum access_reason rig_access(struct rig *rig, uint32_t token, uint64_t address, uint64_t length,
			      uint32_t rights)
{
	struct access access;

	return memory_access(rig->memory, &rig->who, token, address, length, rights, &access);
}

void rig_expect_same_usage(const struct memory_usage *a, const struct memory_usage *b)
{
	cr_expect_eq(a->tokens_valid, b->tokens_valid);
	cr_expect_eq(a->tokens_reserved, b->tokens_reserved);
	cr_expect_eq(a->tokens_free, b->tokens_free);
	cr_expect_eq(a->pds, b->pds);
	cr_expect_eq(a->regions, b->regions);
	cr_expect_eq(a->windows, b->windows);
	cr_expect_eq(a->segments, b->segments);
	cr_expect_eq(a->bytes, b->bytes);
}
