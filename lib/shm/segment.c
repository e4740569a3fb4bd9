/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed memfds: creating, mapping and vetting the memory that processes share. */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int shm_segment_create(const char *name, uint64_t size, bool hugepage)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int error;
	int fd;

	if (hugepage)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create(name, flags);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) || fcntl(fd, F_ADD_SEALS, SEGMENT_SEALS)) {
		error = -errno;
		close(fd);
		return error;
	}
	return fd;
}

int shm_segment_map(int fd, uint64_t size, bool populate, void **address)
{
	int flags = MAP_SHARED | (populate ? MAP_POPULATE : 0);

	*address = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (*address == MAP_FAILED) {
		*address = NULL;
		return -errno;
	}
	return 0;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int shm_segment_populate(void *address, uint64_t size)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	const uintptr_t start = (uintptr_t)address & ~page;
	const uintptr_t end = ((uintptr_t)address + size + page) & ~page;

	if (madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0 || errno == EINVAL)
		return 0;
	return errno == EFAULT ? -ENOMEM : -errno;
}

/* A hint: what stays is zeroed by who uses it next. */
void shm_segment_empty(void *address, uint64_t size)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	const uintptr_t start = ((uintptr_t)address + page) & ~page;
	const uintptr_t end = ((uintptr_t)address + size) & ~page;

	if (start < end)
		(void)madvise((void *)start, end - start, MADV_REMOVE);
}

void shm_segment_unmap(void *address, uint64_t size)
{
	if (address)
		munmap(address, size);
}

int shm_segment_check(int fd, uint64_t *size)
{
	struct stat st;
	int seals;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return errno == EINVAL ? -EPERM : -errno;
	if ((seals & (F_SEAL_SHRINK | F_SEAL_SEAL)) != (F_SEAL_SHRINK | F_SEAL_SEAL) ||
	    (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return -EPERM;
	if (fstat(fd, &st))
		return -errno;
	*size = (uint64_t)st.st_size;
	return 0;
}
