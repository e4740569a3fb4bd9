/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Eventfds that wake sleeping threads. O_NONBLOCK belongs to the open file, which a client
 * shares once it was passed the descriptor: it may clear the flag, empty the counter between
 * our poll and our read, or leave it full. So a descriptor that clients hold is never written,
 * and read only by a call that says itself that it does not wait.
 */
#include <errno.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "net/net_private.h"

/* Whether the kernel reads eventfds without waiting when asked to (Linux 5.8 and later). */
static int check_kernel(int fd)
{
	uint64_t count;
	struct iovec where = { .iov_base = &count, .iov_len = sizeof(count) };

	return preadv2(fd, &where, 1, -1, RWF_NOWAIT) < 0 && errno != EAGAIN ? -errno : 0;
}

int wake_create(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int error = fd < 0 ? -errno : check_kernel(fd);

	if (error && fd >= 0)
		close(fd);
	return error ? error : fd;
}

void wake_close(int fd)
{
	if (fd >= 0)
		close(fd);
}

void wake_write(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it wakes already */
}

bool wake_drain(int fd)
{
	uint64_t count;
	struct iovec where = { .iov_base = &count, .iov_len = sizeof(count) };

	return preadv2(fd, &where, 1, -1, RWF_NOWAIT) == sizeof(count);
}
