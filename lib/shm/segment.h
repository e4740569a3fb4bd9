/* SPDX-License-Identifier: BSD-3-Clause */
/* Sealed memfds: creating, mapping and vetting the memory that processes share. */
#ifndef SHM_SEGMENT_H
#define SHM_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A fresh zeroed memfd of `size` bytes, sealed against shrinking, growing and further
 * sealing. hugepage: 2 MiB pages, or -ENOMEM when there are not enough. Returns the
 * descriptor or a negative errno.
 */
int shm_segment_create(const char *name, uint64_t size, bool hugepage);

/* Maps all of it, shared, readable and writable. Returns 0 or a negative errno. */
int shm_segment_map(int fd, uint64_t size, bool populate, void **address);

/*
 * Brings the pages of a part in now, so that a lack of memory is an error here and no signal later.
 * 0 or a negative errno; kernels before 5.14 do not know how, and bring them in when they are used.
 */
int shm_segment_populate(void *address, uint64_t size);

/* Gives the pages that lie wholly in a part back to the system: they read as zeros from now on. */
void shm_segment_empty(void *address, uint64_t size);

void shm_segment_unmap(void *address, uint64_t size);

/*
 * Whether a memfd from another process may be mapped: it is a memfd sealed F_SEAL_SHRINK
 * and F_SEAL_SEAL, not write-sealed, and its size is *size (filled in). 0, -EPERM for
 * missing seals, or another negative errno.
 */
int shm_segment_check(int fd, uint64_t *size);

#endif
