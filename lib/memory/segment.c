/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments: a client's memfds, checked, mapped once, populated, and let go. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <numa.h>
#include <numaif.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "memory/memory_private.h"

/* Looking for pages that the machine cannot have would end somebody, sooner or later. */
static bool machine_has(uint64_t size)
{
	struct sysinfo info;

	return sysinfo(&info) || size / info.mem_unit < info.totalram + info.totalswap;
}

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
	if (!machine_has((uint64_t)file.st_size))
		return -ENOMEM;
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

/*
 * Gigabytes take the kernel seconds, to bring pages in as to give them back; this much takes it a
 * few milliseconds. A multiple of every page size below a gigabyte.
 */
#define PIECE (4u << 20)
/* From this many bytes on what is let go is given back by a thread of its own. */
#define ASIDE (64u << 20)

static size_t next_piece(size_t length, size_t done, size_t page_size)
{
	const size_t piece = page_size > PIECE ? page_size : PIECE;

	return length - done < piece ? length - done : piece;
}

/* Brings pages in now. Kernels before 5.14 know only the way without a result. */
static int populate(const struct mapping *mapping, size_t offset, size_t length)
{
	const int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
	void *base = mapping->base + offset;

	if (madvise(base, length, MADV_POPULATE_WRITE) == 0)
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? -ENOMEM : -errno;
	if (mmap(base, length, PROT_READ | PROT_WRITE, flags, mapping->fd, (off_t)offset) ==
	    MAP_FAILED)
		return -errno;
	return 0;
}

/* Maps a checked memfd; nothing of it is there yet. */
static int mapping_begin(struct memory *memory, uint32_t segment, int fd, size_t page_size,
			 int numa_node)
{
	const size_t size = memory->segments[segment].size;
	void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (base == MAP_FAILED)
		return -errno;
	prefer_node(base, size, numa_node);
	memory->mappings[segment] = (struct mapping){
		.base = base,
		.poisoned = &memory->segments[segment].poisoned,
		.length = size,
		.page_size = page_size,
		.fd = fd,
		.fault_range = -1,
	};
	return 0;
}

/* The next piece of it; with the last its faults can be mended. -EAGAIN: there is more. */
static int mapping_populate(struct mapping *mapping)
{
	const size_t piece = next_piece(mapping->length, mapping->populated, mapping->page_size);
	int rc = populate(mapping, mapping->populated, piece);

	if (rc)
		return rc;
	mapping->populated += piece;
	if (mapping->populated < mapping->length)
		return -EAGAIN;
	rc = fault_range_add(mapping->base, mapping->length, mapping->page_size, mapping->poisoned);
	if (rc < 0)
		return rc;
	mapping->fault_range = rc;
	return 0;
}

static int mapping_populate_all(struct mapping *mapping)
{
	int rc;

	do
		rc = mapping_populate(mapping);
	while (rc == -EAGAIN);
	return rc;
}

/* Piece by piece, since others who map something wait for each. */
static void give_back(const struct mapping *mapping, bool close_file)
{
	size_t piece;

	for (size_t done = 0; done < mapping->length; done += piece) {
		piece = next_piece(mapping->length, done, mapping->page_size);
		munmap(mapping->base + done, piece);
	}
	/* The last descriptor of a client that is gone: here the kernel frees its memory. */
	if (close_file)
		close(mapping->fd);
}

static void *give_back_aside(void *argument)
{
	give_back(argument, true);
	free(argument);
	return NULL;
}

/* A thread of its own for what takes long; nobody waits for it. False: there is none. */
static bool start_aside(const struct mapping *mapping)
{
	struct mapping *copy = malloc(sizeof(*copy));
	sigset_t all, before;
	pthread_t thread;
	int error;

	if (!copy)
		return false;
	*copy = *mapping;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, give_back_aside, copy);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		free(copy);
		return false;
	}
	pthread_detach(thread);
	return true;
}

/* Takes the mapping away, and leaves the descriptor where it was not taken over yet. */
static void mapping_end(struct mapping *mapping, bool close_file)
{
	if (mapping->fault_range >= 0)
		fault_range_remove(mapping->fault_range);
	if (!close_file || mapping->length < ASIDE || !start_aside(mapping))
		give_back(mapping, close_file);
	*mapping = (struct mapping){ .fd = -1 };
}

void segment_unmap(struct memory *memory, uint32_t segment)
{
	struct mapping *mapping = &memory->mappings[segment];

	mapping->grace = 0;
	if (mapping->base)
		mapping_end(mapping, true);
}

/* --- attaching ---------------------------------------------------------------------------- */

static uint32_t find_segment(const struct memory *memory, uint32_t session, uint64_t cookie,
			     bool opening)
{
	for (uint32_t i = 1; i < table_used(memory, ARENA_SEGMENTS); i++) {
		const struct segment *record = &memory->segments[i];

		if ((record->state == OBJECT_CREATED ||
		     (opening && record->state == OBJECT_OPENING)) &&
		    record->session == session && record->cookie == cookie)
			return i;
	}
	return 0;
}

uint32_t segment_find(const struct memory *memory, uint32_t session, uint64_t cookie)
{
	return find_segment(memory, session, cookie, false);
}

int segment_begin(struct memory *memory, uint32_t session, uint64_t cookie, int fd, int numa_node,
		  uint32_t *segment)
{
	struct segment *record;
	size_t page_size = 0;
	uint64_t size = 0;
	uint32_t index;
	int rc;

	if (find_segment(memory, session, cookie, true))
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
	rc = mapping_begin(memory, index, fd, page_size, numa_node);
	if (rc)
		return rc;
	__atomic_store_n(&record->state, OBJECT_OPENING, __ATOMIC_SEQ_CST);
	*segment = index;
	return 0;
}

int segment_populate(struct memory *memory, uint32_t segment)
{
	struct segment *record = &memory->segments[segment];
	int rc;

	if (record->state != OBJECT_OPENING)
		return -ECANCELED;
	rc = mapping_populate(&memory->mappings[segment]);
	if (rc == -EAGAIN)
		return rc;
	if (rc)
		segment_unmap(memory, segment);
	__atomic_store_n(&record->state, rc ? OBJECT_FREE : OBJECT_CREATED, __ATOMIC_SEQ_CST);
	return rc;
}

int segment_attach(struct memory *memory, uint32_t session, uint64_t cookie, int fd, int numa_node,
		   uint32_t *segment)
{
	struct mapping *mapping;
	int rc = segment_begin(memory, session, cookie, fd, numa_node, segment);

	if (rc)
		return rc;
	mapping = &memory->mappings[*segment];
	rc = mapping_populate_all(mapping);
	if (rc)
		mapping_end(mapping, false);
	__atomic_store_n(&memory->segments[*segment].state, rc ? OBJECT_FREE : OBJECT_CREATED,
			 __ATOMIC_SEQ_CST);
	return rc;
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
	rc = mapping_begin(memory, segment, fd, page_size, -1);
	if (rc)
		return rc;
	rc = mapping_populate_all(&memory->mappings[segment]);
	if (rc)
		mapping_end(&memory->mappings[segment], false);
	return rc;
}

/* --- letting go --------------------------------------------------------------------------- */

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
