/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: a client's memfds, checked, mapped once, populated, and let go. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <numa.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "memory/memory_private.h"

/* Whether the client has given up shrinking it, and gives its sizes in bytes. */
static int check_file(int fd, uint64_t *size, size_t *page_size)
{
	const int needed = F_SEAL_SHRINK | F_SEAL_SEAL;
	const int seals = fcntl(fd, F_GET_SEALS);
	struct statfs system;
	struct stat file;

	/* What knows no seals (-1) is no memfd and can be truncated under us. */
	if (seals < 0 || (seals & needed) != needed)
		return -EPERM;
	if (fstat(fd, &file) < 0 || fstatfs(fd, &system) < 0)
		return -errno;
	if (file.st_size <= 0)
		return -EINVAL;
	*size = (uint64_t)file.st_size;
	*page_size = (size_t)sysconf(_SC_PAGESIZE);
	if (system.f_type == HUGETLBFS_MAGIC)
		*page_size = (size_t)system.f_bsize;
	return 0;
}

/*
 * Only a preference: memory on the wrong node is slow, not wrong, so a kernel or
 * container that refuses the policy is no reason to refuse the client.
 */
static void prefer_node(void *base, size_t length, int node)
{
	unsigned long mask[4] = { 0 };
	const unsigned int bits = 8 * sizeof(mask[0]);

	if (node < 0 || (unsigned int)node >= 4 * bits || numa_available() < 0)
		return;
	mask[(unsigned int)node / bits] = 1ul << ((unsigned int)node % bits);
	(void)mbind(base, length, MPOL_PREFERRED, mask, 4 * bits, 0);
}

/* Brings all pages in now. Kernels before 5.14 know only the way without a result. */
static int populate(void *base, size_t length, int fd)
{
	const int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;

	if (madvise(base, length, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	if (mmap(base, length, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED)
		return -errno;
	return 0;
}

/* Maps a checked memfd as segment `segment`; its record's poison word must be set up. */
static int map_segment(struct memory *memory, uint32_t segment, int fd, uint64_t size,
		       size_t page_size, int numa_node)
{
	struct mapping *mapping = &memory->mappings[segment];
	uint32_t *poisoned = &memory->segments[segment].poisoned;
	void *base;
	int rc;

	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	prefer_node(base, size, numa_node);
	rc = populate(base, size, fd);
	if (rc)
		goto unmap;
	rc = fault_range_add(base, size, page_size, poisoned);
	if (rc < 0)
		goto unmap;
	*mapping = (struct mapping){
		.base = base,
		.poisoned = poisoned,
		.length = size,
		.fd = fd,
		.fault_range = rc,
	};
	return 0;
unmap:
	munmap(base, size);
	return rc;
}

void segment_unmap(struct memory *memory, uint32_t segment)
{
	struct mapping *mapping = &memory->mappings[segment];

	mapping->grace = 0;
	if (mapping->base == NULL)
		return;
	fault_range_remove(mapping->fault_range);
	munmap(mapping->base, mapping->length);
	close(mapping->fd);
	*mapping = (struct mapping){ .fd = -1 };
}

int segment_attach(struct memory *memory, uint32_t session, uint64_t cookie, int fd, int numa_node,
		   uint32_t *segment)
{
	struct segment *record;
	size_t page_size = 0;
	uint64_t size = 0;
	uint32_t index;
	int rc;

	if (segment_find(memory, session, cookie))
		return -EEXIST;
	rc = check_file(fd, &size, &page_size);
	if (rc)
		return rc;
	index = table_find_free(memory, ARENA_SEGMENTS, &memory->next_segment);
	if (index == 0)
		return -ENOSPC;
	record = &memory->segments[index];
	/* Not `regions`: a worker may count itself in for a moment before it looks closer. */
	record->size = size;
	record->cookie = cookie;
	record->session = session;
	record->poisoned = 0;
	rc = map_segment(memory, index, fd, size, page_size, numa_node);
	if (rc)
		return rc;
	__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_SEQ_CST);
	*segment = index;
	return 0;
}

int segment_adopt(struct memory *memory, uint32_t segment, int fd)
{
	const struct segment *record = &memory->segments[segment];
	size_t page_size = 0;
	uint64_t size = 0;
	int rc;

	if (!object_index_good(segment, memory->segment_count) || record->state == OBJECT_FREE)
		return -EINVAL;
	if (memory->mappings[segment].base)
		return -EEXIST;
	rc = check_file(fd, &size, &page_size);
	if (rc)
		return rc;
	/* It may have grown; registrations go by the size at first sight. */
	if (size < record->size)
		return -ESTALE;
	return map_segment(memory, segment, fd, record->size, page_size, -1);
}

/* Closing first and counting then: see region_fast_register(), which does the reverse. */
int segment_detach(struct memory *memory, uint32_t segment)
{
	struct segment *record = &memory->segments[segment];

	if (!object_index_good(segment, memory->segment_count) || record->state != OBJECT_CREATED)
		return -EINVAL;
	__atomic_store_n(&record->state, OBJECT_CLOSING, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&record->regions, __ATOMIC_SEQ_CST) != 0) {
		__atomic_store_n(&record->state, OBJECT_CREATED, __ATOMIC_SEQ_CST);
		return -EBUSY;
	}
	/* Without regions only the privileged token leads into it. */
	memory->mappings[segment].grace = memory_grace_start(memory);
	memory->detaching = true;
	segment_collect(memory);
	return 0;
}

bool segment_collect(struct memory *memory)
{
	bool detaching = false;

	for (uint32_t i = 1; memory->detaching && i < table_used(memory, ARENA_SEGMENTS); i++) {
		struct mapping *mapping = &memory->mappings[i];

		if (mapping->grace == 0)
			continue;
		if (!memory_grace_done(memory, mapping->grace)) {
			detaching = true;
			continue;
		}
		segment_unmap(memory, i);
		__atomic_store_n(&memory->segments[i].state, OBJECT_FREE, __ATOMIC_RELEASE);
	}
	memory->detaching = detaching;
	return detaching;
}

uint32_t segment_find(const struct memory *memory, uint32_t session, uint64_t cookie)
{
	for (uint32_t i = 1; i < table_used(memory, ARENA_SEGMENTS); i++) {
		const struct segment *record = &memory->segments[i];

		if (record->state == OBJECT_CREATED && record->session == session &&
		    record->cookie == cookie)
			return i;
	}
	return 0;
}
