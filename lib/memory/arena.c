/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: lays its tables out in a memfd, and maps and checks an existing one. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/arena.h"
#include "memory/perm.h"

#define ARENA_ALIGN 64u

_Static_assert(offsetof(struct arena_header, table) == 24, "arena header layout");
_Static_assert(PERM_ROUNDS == 22, "arena header holds whole keys");

static uint64_t align_up(uint64_t value)
{
	return (value + ARENA_ALIGN - 1) & ~(uint64_t)(ARENA_ALIGN - 1);
}

static int lay_out(struct arena_header *header, const struct arena_spec spec[ARENA_TABLES])
{
	uint64_t offset = align_up(sizeof(*header));

	for (int i = 0; i < ARENA_TABLES; i++) {
		uint64_t bytes = (uint64_t)spec[i].record_size * spec[i].records;

		if (spec[i].records && (spec[i].record_size == 0 || spec[i].record_size % 8))
			return -EINVAL;
		if (bytes > INT64_MAX / (2 * ARENA_TABLES))
			return -EFBIG;
		header->table[i].offset = offset;
		header->table[i].record_size = spec[i].record_size;
		header->table[i].records = spec[i].records;
		offset = align_up(offset + bytes);
	}
	header->magic = ARENA_MAGIC;
	header->version = ARENA_VERSION;
	header->tables = ARENA_TABLES;
	header->size = offset;
	return 0;
}

static int map_arena(struct arena *arena, int fd, uint64_t size)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (map == MAP_FAILED)
		return -errno;
	arena->header = map;
	arena->fd = fd;
	return 0;
}

int arena_create(struct arena *arena, const struct arena_spec spec[ARENA_TABLES])
{
	struct arena_header header = { 0 };
	int fd, rc;

	rc = lay_out(&header, spec);
	if (rc)
		return rc;
	rc = perm_draw_key(header.token_key);
	if (rc)
		return rc;
	rc = perm_draw_key(header.qpn_key);
	if (rc)
		return rc;

	fd = memfd_create("oriel-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)header.size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		rc = -errno;
		goto close;
	}
	rc = map_arena(arena, fd, header.size);
	if (rc)
		goto close;
	memcpy(arena->header, &header, sizeof(header));
	return 0;
close:
	close(fd);
	return rc;
}

/* Whether every table lies inside the file, so that arena_record() cannot leave it. */
static int check_header(const struct arena_header *header, uint64_t file_size,
			const struct arena_spec *spec)
{
	if (header->magic != ARENA_MAGIC)
		return -EINVAL;
	if (header->version != ARENA_VERSION || header->tables != ARENA_TABLES)
		return -EPROTO;
	if (header->size != file_size)
		return -EINVAL;
	for (int i = 0; i < ARENA_TABLES; i++) {
		uint64_t offset = header->table[i].offset;
		uint64_t bytes = (uint64_t)header->table[i].record_size * header->table[i].records;

		if (spec && header->table[i].record_size != spec[i].record_size)
			return -EPROTO;
		if (offset % ARENA_ALIGN || offset < sizeof(*header) || offset > header->size ||
		    bytes > header->size - offset)
			return -EINVAL;
	}
	return 0;
}

int arena_adopt(struct arena *arena, int fd, const struct arena_spec *spec)
{
	struct arena found = { 0 };
	struct stat file;
	int rc;

	if (fstat(fd, &file) < 0)
		return -errno;
	if (file.st_size < (off_t)sizeof(struct arena_header))
		return -EINVAL;
	rc = map_arena(&found, fd, (uint64_t)file.st_size);
	if (rc)
		return rc;
	rc = check_header(found.header, (uint64_t)file.st_size, spec);
	if (rc) {
		munmap(found.header, (size_t)file.st_size);
		return rc;
	}
	*arena = found;
	return 0;
}

void arena_destroy(struct arena *arena)
{
	if (arena->header == NULL)
		return;
	munmap(arena->header, arena->header->size);
	close(arena->fd);
	arena->header = NULL;
	arena->fd = -1;
}
