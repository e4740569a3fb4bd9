/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: layout, adoption, and what is not adopted. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/arena.h"

static const struct arena_spec spec[ARENA_TABLES] = {
	[ARENA_TOKENS] = { 64, 5 },
	[ARENA_WINDOWS] = { 24, 3 },
	[ARENA_CONNECTIONS] = { 8, 1 },
};

Test(arena, tables_lie_apart_and_aligned)
{
	struct arena arena;

	cr_assert_eq(arena_create(&arena, spec), 0);
	cr_expect_eq(arena_records(&arena, ARENA_TOKENS), 5);
	cr_expect_eq(arena_records(&arena, ARENA_PDS), 0);
	cr_expect_eq((uintptr_t)arena_record(&arena, ARENA_TOKENS, 0) % 64, 0);
	cr_expect_eq((uintptr_t)arena_record(&arena, ARENA_WINDOWS, 0) % 64, 0);
	memset(arena_record(&arena, ARENA_TOKENS, 0), 0xff, 5 * 64);
	for (int i = 0; i < 3 * 24; i++)
		cr_expect_eq(((uint8_t *)arena_record(&arena, ARENA_WINDOWS, 0))[i], 0);
	cr_expect_eq(arena.header->magic, ARENA_MAGIC);
	arena_destroy(&arena);
}

Test(arena, keys_are_drawn_and_differ)
{
	struct arena one, two;

	cr_assert_eq(arena_create(&one, spec), 0);
	cr_assert_eq(arena_create(&two, spec), 0);
	cr_expect_neq(memcmp(one.header->token_key, two.header->token_key, 44), 0);
	cr_expect_neq(memcmp(one.header->token_key, one.header->qpn_key, 44), 0);
	arena_destroy(&one);
	arena_destroy(&two);
}

Test(arena, refuses_bad_specifications)
{
	struct arena_spec bad[ARENA_TABLES] = { 0 };
	struct arena arena;

	bad[ARENA_QPS] = (struct arena_spec){ 12, 10 };
	cr_expect_eq(arena_create(&arena, bad), -EINVAL);
	bad[ARENA_QPS] = (struct arena_spec){ 0, 10 };
	cr_expect_eq(arena_create(&arena, bad), -EINVAL);
	bad[ARENA_QPS] = (struct arena_spec){ 0xfffffff8, UINT32_MAX };
	cr_expect_eq(arena_create(&arena, bad), -EFBIG);
}

Test(arena, adoption_sees_the_same_bytes)
{
	struct arena arena, adopted;

	cr_assert_eq(arena_create(&arena, spec), 0);
	strcpy(arena_record(&arena, ARENA_WINDOWS, 2), "kept");
	cr_assert_eq(arena_adopt(&adopted, dup(arena.fd), spec), 0);
	cr_expect_neq(adopted.header, arena.header);
	cr_expect_str_eq(arena_record(&adopted, ARENA_WINDOWS, 2), "kept");
	arena_destroy(&adopted);
	arena_destroy(&arena);
}

Test(arena, refuses_other_record_sizes_and_versions)
{
	struct arena_spec other[ARENA_TABLES];
	struct arena arena, adopted;
	int fd;

	cr_assert_eq(arena_create(&arena, spec), 0);
	memcpy(other, spec, sizeof(other));
	other[ARENA_WINDOWS].record_size = 32;
	fd = dup(arena.fd);
	cr_expect_eq(arena_adopt(&adopted, fd, other), -EPROTO);
	arena.header->version++;
	cr_expect_eq(arena_adopt(&adopted, fd, spec), -EPROTO);
	cr_expect_eq(close(fd), 0, "refused: the fd stays the caller's");
	arena_destroy(&arena);
}

Test(arena, refuses_what_is_no_arena)
{
	int fd = memfd_create("oriel-test", MFD_CLOEXEC);
	struct arena arena, adopted;
	struct arena_header broken;

	cr_expect_eq(arena_adopt(&adopted, fd, NULL), -EINVAL, "empty");
	cr_assert_eq(ftruncate(fd, 8192), 0);
	cr_expect_eq(arena_adopt(&adopted, fd, NULL), -EINVAL, "zeros");

	cr_assert_eq(arena_create(&arena, spec), 0);
	broken = *arena.header;
	broken.size = 8192;
	broken.table[ARENA_WINDOWS].records = UINT32_MAX;
	cr_assert_eq(pwrite(fd, &broken, sizeof(broken), 0), sizeof(broken));
	cr_expect_eq(arena_adopt(&adopted, fd, NULL), -EINVAL, "table beyond the end");
	broken.table[ARENA_WINDOWS] = arena.header->table[ARENA_WINDOWS];
	broken.size = 1ull << 40;
	cr_assert_eq(pwrite(fd, &broken, sizeof(broken), 0), sizeof(broken));
	cr_expect_eq(arena_adopt(&adopted, fd, NULL), -EINVAL, "larger than the file");
	arena_destroy(&arena);
	close(fd);
}
