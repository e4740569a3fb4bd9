/* SPDX-License-Identifier: BSD-3-Clause */
/* Coming in at the daemon's socket: hello, welcome, the session's memory and the descriptors that
 * wake. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ndk/ndk_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define DEFAULT_SOCKET "/run/oriel/ndk.sock"
#define PATIENCE_MS    10000 /* a daemon gets no processor for seconds on a busy machine */

static _Thread_local char error_text[1024];

NTSTATUS session_refuse(NTSTATUS status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error_text, sizeof(error_text), format, arguments);
	va_end(arguments);
	return status;
}

const char *OrielOpenErrorText(void)
{
	return error_text;
}

NTSTATUS session_status_of_errno(int error)
{
	switch (error) {
	case ENOENT:
	case ECONNREFUSED:
	case EAGAIN:
	case ETIMEDOUT:
	case ENODEV: return STATUS_DEVICE_NOT_READY;
	case EINVAL: return STATUS_INVALID_PARAMETER;
	case EBUSY: return STATUS_DEVICE_BUSY;
	case EPROTONOSUPPORT: return NDIS_STATUS_BAD_VERSION;
	case EACCES:
	case EPERM: return STATUS_ACCESS_VIOLATION;
	default: return STATUS_INSUFFICIENT_RESOURCES;
	}
}

static NTSTATUS connect_socket(struct adapter *adapter, const char *path)
{
	const struct timeval patience = { .tv_sec = PATIENCE_MS / 1000 };
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (!path)
		path = secure_getenv("ORIEL_SOCKET");
	if (!path || !*path)
		path = DEFAULT_SOCKET;
	if (!strncmp(path, ORIEL_IN_PROCESS, strlen(ORIEL_IN_PROCESS)))
		return plane_open(adapter, path + strlen(ORIEL_IN_PROCESS));
	if (strlen(path) >= sizeof(address.sun_path))
		return session_refuse(STATUS_INVALID_PARAMETER,
				      "%s: longer than a socket's path can be", path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	adapter->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (adapter->socket < 0)
		return session_refuse(STATUS_INSUFFICIENT_RESOURCES, "socket: %s", strerror(errno));
	setsockopt(adapter->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (TEMP_FAILURE_RETRY(
		    connect(adapter->socket, (const struct sockaddr *)&address, sizeof(address))))
		return session_refuse(session_status_of_errno(errno),
				      "%s: %s: is orield running, and may this user "
				      "use its socket?",
				      path, strerror(errno));
	return STATUS_SUCCESS;
}

static NTSTATUS say_hello(struct adapter *adapter)
{
	struct shm_hello hello = { .type = SHM_MSG_HELLO,
				   .magic = SHM_MAGIC_HELLO,
				   .layout_version = SHM_LAYOUT_VERSION,
				   .ndk_major = adapter->version.Major,
				   .ndk_minor = adapter->version.Minor };
	int error;

	snprintf(hello.name, sizeof(hello.name), "%s", program_invocation_short_name);
	error = shm_socket_send(adapter->socket, &hello, sizeof(hello), NULL, 0);
	if (error)
		return session_refuse(session_status_of_errno(-error),
				      "saying hello to the daemon: %s", strerror(-error));
	return STATUS_SUCCESS;
}

static NTSTATUS hear_welcome(struct adapter *adapter, struct shm_welcome *welcome, int *fds,
			     unsigned int *count)
{
	struct pollfd ready = { .fd = adapter->socket, .events = POLLIN };
	unsigned int room = *count;
	int length;

	plane_hear(adapter);
	*count = 0;
	/* A signal that the program takes meanwhile is its own affair. */
	if (TEMP_FAILURE_RETRY(poll(&ready, 1, PATIENCE_MS)) != 1)
		return session_refuse(
			STATUS_DEVICE_NOT_READY,
			"no answer from the daemon within %d s: is it still starting?",
			PATIENCE_MS / 1000);
	*count = room;
	length = shm_socket_receive(adapter->socket, welcome, sizeof(*welcome), fds, count);
	if (length != sizeof(*welcome) || welcome->type != SHM_MSG_WELCOME ||
	    welcome->magic != SHM_MAGIC_HELLO)
		return session_refuse(STATUS_DEVICE_NOT_READY,
				      "what listens on the socket does not answer as orield does");
	if (welcome->status) {
		welcome->message[sizeof(welcome->message) - 1] = '\0';
		return session_refuse(welcome->status, "orield refuses: %s", welcome->message);
	}
	if (welcome->layout_version != SHM_LAYOUT_VERSION)
		return session_refuse(
			NDIS_STATUS_BAD_VERSION,
			"the daemon has shared-memory layout %u, libndk has %u: install both "
			"of one version",
			welcome->layout_version, SHM_LAYOUT_VERSION);
	if (welcome->workers == 0 || welcome->workers > SHM_MAX_WORKERS ||
	    *count != 3 + welcome->workers)
		return session_refuse(STATUS_INTERNAL_ERROR, "orield's welcome is incomplete");
	return STATUS_SUCCESS;
}

static NTSTATUS map_session(struct adapter *adapter, const struct shm_welcome *welcome, int fd)
{
	uint64_t needed =
		sizeof(struct shm_session) + welcome->workers * sizeof(struct shm_worker_area);
	struct shm_session *session;
	void *address;
	int error;

	if (welcome->session_size < needed)
		return session_refuse(STATUS_INTERNAL_ERROR, "the session's memory is too small");
	error = shm_segment_map(fd, welcome->session_size, true, &address);
	if (error)
		return session_refuse(STATUS_INSUFFICIENT_RESOURCES,
				      "mapping the session's memory: %s", strerror(-error));
	adapter->session = session = address;
	adapter->session_size = welcome->session_size;
	if (session->magic != SHM_MAGIC_SESSION || session->workers != welcome->workers ||
	    session->layout_version != SHM_LAYOUT_VERSION)
		return session_refuse(STATUS_INTERNAL_ERROR,
				      "the session's memory is not what it should be");
	adapter->workers = welcome->workers;
	adapter->request_tail = session->request_cursor.tail;
	adapter->reply_head = session->reply_cursor.head;
	return STATUS_SUCCESS;
}

/* One descriptor for "the daemon wrote", "the library has something" and "the daemon died". */
static NTSTATUS watch(struct adapter *adapter)
{
	struct epoll_event readable = { .events = EPOLLIN };
	struct epoll_event dead = { .events = EPOLLRDHUP };

	adapter->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	adapter->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (adapter->kick_fd < 0 || adapter->epoll_fd < 0 ||
	    epoll_ctl(adapter->epoll_fd, EPOLL_CTL_ADD, adapter->wake_fd, &readable) ||
	    epoll_ctl(adapter->epoll_fd, EPOLL_CTL_ADD, adapter->kick_fd, &readable) ||
	    epoll_ctl(adapter->epoll_fd, EPOLL_CTL_ADD, adapter->socket, &dead))
		return session_refuse(STATUS_INSUFFICIENT_RESOURCES, "epoll: %s", strerror(errno));
	return STATUS_SUCCESS;
}

NTSTATUS session_join(struct adapter *adapter, const char *path)
{
	int fds[SHM_SOCKET_MAX_FDS] = { -1 };
	unsigned int count = SHM_SOCKET_MAX_FDS;
	struct shm_welcome welcome;
	NTSTATUS status;

	error_text[0] = '\0';
	status = connect_socket(adapter, path);
	if (status == STATUS_SUCCESS)
		status = say_hello(adapter);
	if (status != STATUS_SUCCESS)
		return status;
	status = hear_welcome(adapter, &welcome, fds, &count);
	if (status == STATUS_SUCCESS)
		status = map_session(adapter, &welcome, fds[0]);
	if (status != STATUS_SUCCESS) {
		while (count)
			close(fds[--count]);
		return status;
	}
	close(fds[0]);
	adapter->wake_fd = fds[1];
	adapter->control_fd = fds[2];
	for (uint32_t w = 0; w < adapter->workers; w++)
		adapter->worker_fd[w] = fds[3 + w];
	/* A higher minor version contains the lower ones: the daemon's is the one in force. */
	adapter->version.Minor = adapter->version.Major == 1 ? 2 : welcome.ndk_minor;
	return watch(adapter);
}

void session_leave(struct adapter *adapter)
{
	const int fds[] = { adapter->epoll_fd, adapter->wake_fd,    adapter->kick_fd,
			    adapter->timer_fd, adapter->control_fd, adapter->socket,
			    adapter->tick_fd };

	/* First: it writes to the other ends of these. */
	if (adapter->plane.close)
		adapter->plane.close(adapter->plane.context);
	for (unsigned int i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	for (uint32_t w = 0; w < adapter->workers; w++)
		close(adapter->worker_fd[w]);
	queue_segments_release(adapter);
	shm_segment_unmap(adapter->session, adapter->session_size);
}

bool session_is_alive(const struct adapter *adapter)
{
	struct pollfd socket = { .fd = adapter->socket, .events = POLLRDHUP };

	return poll(&socket, 1, 0) <= 0;
}
