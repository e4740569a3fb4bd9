/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory behind the exports: there before the daemon is, and after it is gone. */
#include "oriel-target/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const struct target_config *config, const struct target_export *export,
		    const char *what, int error)
{
	fprintf(stderr, "%s:%u: [export %s]: %s: %s\n", config->path, export->line, export->name,
		what, strerror(-error));
	return error;
}

static int read_all(int fd, uint8_t *to, uint64_t length)
{
	while (length) {
		ssize_t n = read(fd, to, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : 0; /* a shorter file leaves zeros */
		to += n;
		length -= (uint64_t)n;
	}
	return 0;
}

static int write_all(int fd, const uint8_t *from, uint64_t length)
{
	while (length) {
		ssize_t n = write(fd, from, length);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		length -= (uint64_t)n;
	}
	return 0;
}

int target_memory_create(const struct target_config *config, const struct target_export *export,
			 struct target_memory *memory)
{
	ULONG flags = export->backing == BACKING_HUGEPAGE ? ORIEL_MEMORY_HUGE_REQUIRED : 0;
	struct stat status = { 0 };
	NTSTATUS result;
	int fd = -1;
	int error = 0;

	memory->size = export->size;
	if (export->backing == BACKING_FILE) {
		fd = open(export->file, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0 || fstat(fd, &status)) {
			error = complain(config, export, export->file, -errno);
			goto out;
		}
		if (!memory->size)
			memory->size = (uint64_t)status.st_size;
		if (!memory->size || (uint64_t)status.st_size > memory->size) {
			error = complain(config, export,
					 "the file is empty and size is not given, or it is longer "
					 "than size",
					 -EFBIG);
			goto out;
		}
	}
	result = OrielAllocateMemory(memory->size, flags, &memory->mdl);
	if (!NT_SUCCESS(result)) {
		error = complain(config, export,
				 flags ? "2 MiB pages (/proc/sys/vm/nr_hugepages makes some)"
				       : "memory",
				 -ENOMEM);
		goto out;
	}
	if (fd >= 0)
		error = read_all(fd, memory->mdl->StartVa, memory->size);
	if (error)
		complain(config, export, export->file, error);
out:
	if (fd >= 0)
		close(fd);
	return error;
}

/* The new file takes over whose the old one was and who may read it. */
static int keep_owner(const char *path, int fd)
{
	struct stat old;

	if (stat(path, &old))
		return errno == ENOENT ? 0 : -errno;
	if (fchown(fd, old.st_uid, old.st_gid) || fchmod(fd, old.st_mode & 07777))
		return -errno;
	return 0;
}

int target_memory_flush(const struct target_export *export, const struct target_memory *memory)
{
	char temporary[sizeof(export->file) + 8];
	int error;
	int fd;

	if (export->backing != BACKING_FILE || !memory->mdl)
		return 0;
	snprintf(temporary, sizeof(temporary), "%s.new", export->file);
	fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0) {
		error = -errno;
		goto fail;
	}
	error = keep_owner(export->file, fd);
	if (!error)
		error = write_all(fd, memory->mdl->StartVa, memory->size);
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error && rename(temporary, export->file))
		error = -errno;
	if (!error)
		return 0;
	unlink(temporary);
fail:
	fprintf(stderr, "oriel-target: [export %s] %s: not written back: %s\n", export->name,
		export->file, strerror(-error));
	return error;
}

void target_memory_destroy(struct target_memory *memory)
{
	if (memory->mdl)
		OrielFreeMemory(memory->mdl);
	memory->mdl = NULL;
}
