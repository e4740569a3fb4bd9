/* SPDX-License-Identifier: BSD-3-Clause */
/* A small memory with one session, domain and segment, for the tests of lib/memory. */
#ifndef TESTS_MEMORY_RIG_H
#define TESTS_MEMORY_RIG_H

#include <criterion/criterion.h>

#include "memory/memory.h"

#define RIG_SESSION 1u
#define RIG_SIZE    (64u * 1024) /* bytes of the segment */
#define RIG_BASE    0x7f0000000000ull
#define RIG_ALL     (RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE)

struct rig {
	struct arena arena;
	struct memory *memory;
	struct accessor who; /* RIG_SESSION, its domain, queue pair 77 */
	uint32_t segment;
	uint8_t *client; /* the client's own mapping of the segment */
};

/* tokens: records of the token table. One reader, offline. */
void rig_create(struct rig *rig, uint32_t tokens); /* two workers, of which one is ever awake */
void rig_create_for(struct rig *rig, uint32_t tokens, unsigned int workers);
void rig_destroy(struct rig *rig);

/* A memfd of this size, with these F_SEAL_* on. */
int rig_memfd(uint64_t size, int seals);

struct rig_region {
	uint32_t region;
	uint32_t local_token;
	uint32_t remote_token;
};
/* Registers the whole segment at `base`. */
struct rig_region rig_register(struct rig *rig, uint64_t base, uint32_t access);

uint32_t rig_window(struct rig *rig);
uint32_t rig_token(struct rig *rig); /* reserved for RIG_SESSION */
/* Bind request for a window over the whole of a region at RIG_BASE, all remote rights. */
struct bind_request rig_bind_request(struct rig *rig, uint32_t region, uint32_t window);

/* Access by rig->who; only the reason. */
enum access_reason rig_access(struct rig *rig, uint32_t token, uint64_t address, uint64_t length,
			      uint32_t rights);

void rig_expect_same_usage(const struct memory_usage *a, const struct memory_usage *b);

#define expect_reason(actual, expected)                                                    \
	do {                                                                               \
		enum access_reason actual_ = (actual);                                     \
		cr_expect_eq(actual_, expected, "%s, not %s", access_reason_name(actual_), \
			     access_reason_name(expected));                                \
	} while (0)

#endif
