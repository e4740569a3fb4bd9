/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets of the memif protocol. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "net/memlink.h"

#define BACKLOG   8
#define FINISH_MS 5000 /* some system calls of a thread that does nothing else */

/* --- connections ------------------------------------------------------------------- */

static socklen_t address_of(const struct memlink_name *name, struct sockaddr_un *address)
{
	size_t length = strlen(name->text);

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	memcpy(address->sun_path + name->abstract, name->text, length);
	if (name->abstract)
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
	return sizeof(*address);
}

static int open_socket(const struct memlink_name *name,
		       int (*call)(int, const struct sockaddr *, socklen_t))
{
	const struct timeval patience = { .tv_sec = 1 };
	struct sockaddr_un address;
	socklen_t length = address_of(name, &address);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int error = fd < 0 ? -errno : 0;

	/* Who connects waits while the queue of the listener is full. */
	if (!error && (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) ||
		       call(fd, (struct sockaddr *)&address, length)))
		error = -errno;
	if (error && fd >= 0)
		close(fd);
	return error ? error : fd;
}

int memlink_listen(const struct memlink_name *name)
{
	int fd = open_socket(name, bind);

	if (fd >= 0 && listen(fd, BACKLOG)) {
		int error = -errno;

		close(fd);
		return error;
	}
	return fd;
}

int memlink_connect(const struct memlink_name *name)
{
	return open_socket(name, connect);
}

int memlink_accept(int listener, bool own)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	socklen_t length = sizeof(struct ucred);
	struct ucred who;

	if (fd >= 0 && own &&
	    (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &length) || who.pid != getpid())) {
		close(fd);
		return -1;
	}
	return fd;
}

/* --- messages ---------------------------------------------------------------------- */

union control {
	char room[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

/* The room for one holds two, as it is aligned: the kernel fills it, and nobody asked for more. */
static int passed_descriptor(struct msghdr *header)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(header);
	size_t count = 0;
	int fd = -1;

	if (control && control->cmsg_level == SOL_SOCKET && control->cmsg_type == SCM_RIGHTS)
		count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = count; i-- > 0;) {
		memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
		if (i > 0)
			close(fd);
	}
	return fd;
}

int memlink_receive(int socket, struct memlink_message *message)
{
	struct iovec part = { message->bytes, MEMLINK_MESSAGE };
	union control control;
	struct msghdr header = { .msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control) };
	ssize_t size = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	uint16_t kind;

	message->fd = -1;
	if (size < 0 && (errno == EAGAIN || errno == EINTR))
		return MEMLINK_NOTHING;
	if (size >= 0)
		message->fd = passed_descriptor(&header);
	memcpy(&kind, message->bytes, sizeof(kind));
	if (size == MEMLINK_MESSAGE && kind >= 1 && kind <= MEMLINK_DISCONNECT)
		return kind;
	if (message->fd >= 0)
		close(message->fd);
	return MEMLINK_CLOSED;
}

bool memlink_send(int socket, struct memlink_message *message)
{
	struct iovec part = { message->bytes, MEMLINK_MESSAGE };
	union control control = { 0 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t sent;

	if (message->fd >= 0) {
		header.msg_control = &control;
		header.msg_controllen = sizeof(control);
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&control.align), &message->fd, sizeof(int));
	}
	sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (message->fd >= 0)
		close(message->fd);
	message->fd = -1;
	return sent == MEMLINK_MESSAGE;
}

/* Behind kind and version, two bytes each. */
uint32_t memlink_init_id(const struct memlink_message *message)
{
	uint32_t id;

	memcpy(&id, message->bytes + 4, sizeof(id));
	return id;
}

void memlink_finish(int driver)
{
	struct pollfd event = { .fd = driver, .events = POLLIN };
	struct memlink_message message;
	int kind = MEMLINK_NOTHING;

	/* Its last deed is to close; what it still has to say goes nowhere. */
	shutdown(driver, SHUT_WR);
	while (kind != MEMLINK_CLOSED && poll(&event, 1, FINISH_MS) > 0) {
		kind = memlink_receive(driver, &message);
		if (kind != MEMLINK_CLOSED && message.fd >= 0)
			close(message.fd);
	}
	close(driver);
}
