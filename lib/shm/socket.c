/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages with descriptors over a SOCK_SEQPACKET UNIX socket. */
#include "shm/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union control_buffer {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * SHM_SOCKET_MAX_FDS)];
};

int shm_socket_send(int socket, const void *message, size_t length, const int *fds,
		    unsigned int count)
{
	struct iovec part = { .iov_base = (void *)message, .iov_len = length };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	union control_buffer control;
	struct cmsghdr *cmsg;

	if (count > SHM_SOCKET_MAX_FDS)
		return -EINVAL;
	if (count) {
		memset(&control, 0, sizeof(control));
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
		cmsg = CMSG_FIRSTHDR(&header);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int) * count);
		memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * count);
	}
	if (sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
		return -errno;
	return 0;
}

/* Moves the descriptors of a message to fds; false if there were more than room. */
static bool take_fds(struct msghdr *header, int *fds, unsigned int *count)
{
	unsigned int room = *count;
	bool fits = true;

	*count = 0;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(header); cmsg; cmsg = CMSG_NXTHDR(header, cmsg)) {
		size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
			if (*count < room) {
				fds[(*count)++] = fd;
			} else {
				close(fd);
				fits = false;
			}
		}
	}
	return fits;
}

int shm_socket_receive(int socket, void *message, size_t room, int *fds, unsigned int *count)
{
	struct iovec part = { .iov_base = message, .iov_len = room };
	union control_buffer control;
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes) };
	ssize_t length;

	length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (length < 0) {
		*count = 0;
		return -errno;
	}
	if (!take_fds(&header, fds, count) || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		while (*count)
			close(fds[--*count]);
		return -EPROTO;
	}
	return (int)length;
}
