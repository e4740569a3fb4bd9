/* SPDX-License-Identifier: BSD-3-Clause */
/* The UNIX socket: who may come in, the hello, segments of memory, and the death of a client. */
#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

int eventfd_create(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

void socket_peer(int socket, struct session *record)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);

	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length))
		return;
	record->pid = (uint32_t)who.pid;
	record->uid = who.uid;
	record->gid = who.gid;
}

/* --- opening -------------------------------------------------------------------------- */

static char refusal[256];

/* A socket that answers belongs to a living daemon; one that refuses is left of a dead one. */
static int remove_stale(const struct sockaddr_un *address, const char **message)
{
	struct ucred who = { 0 };
	socklen_t length = sizeof(who);
	int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int error;

	if (probe < 0)
		return -errno;
	if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) == 0) {
		getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &who, &length);
		snprintf(refusal, sizeof(refusal),
			 "%s is held by the living process %d: stop it or choose another [daemon] "
			 "socket",
			 address->sun_path, who.pid);
		*message = refusal;
		error = -EADDRINUSE;
	} else {
		error = errno == ECONNREFUSED ? (unlink(address->sun_path) ? -errno : 0)
			: errno == ENOENT     ? 0
					      : -errno;
	}
	close(probe);
	return error;
}

static int socket_permissions(const struct control_config *config, const char **message)
{
	struct group *group;

	if (!config->socket_group[0])
		return chmod(config->socket_path, 0600) ? -errno : 0;
	group = getgrnam(config->socket_group);
	if (!group) {
		snprintf(refusal, sizeof(refusal),
			 "group '%s' of [daemon] socket-group does not exist: groupadd --system %s",
			 config->socket_group, config->socket_group);
		*message = refusal;
		return -ENOENT;
	}
	if (chown(config->socket_path, (uid_t)-1, group->gr_gid) ||
	    chmod(config->socket_path, 0660))
		return -errno;
	return 0;
}

/* The directory may be missing on a fresh machine; its parent may not. */
static void make_directory(const char *path)
{
	char directory[108];
	char *slash;

	snprintf(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash && slash != directory) {
		*slash = '\0';
		mkdir(directory, 0755); /* whether it worked shows at bind() */
	}
}

int socket_open(struct control *control, const char **message)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct epoll_event interest = { .events = EPOLLIN, .data.u64 = EPOLL_LISTENER };
	int error;

	if (!control->config.socket_path[0])
		return 0;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", control->config.socket_path);
	make_directory(address.sun_path);
	*message = refusal;
	error = remove_stale(&address, message);
	if (error)
		goto fail;
	control->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (control->listener < 0) {
		error = -errno;
		goto fail;
	}
	if (bind(control->listener, (struct sockaddr *)&address, sizeof(address))) {
		error = -errno;
		goto close;
	}
	error = socket_permissions(&control->config, message);
	if (error)
		goto close;
	if (listen(control->listener, 64) ||
	    epoll_ctl(control->epoll, EPOLL_CTL_ADD, control->listener, &interest)) {
		error = -errno;
		goto close;
	}
	return 0;
close:
	close(control->listener);
	control->listener = -1;
fail:
	if (!refusal[0])
		snprintf(refusal, sizeof(refusal), "[daemon] socket = %s: %s", address.sun_path,
			 strerror(-error));
	return error;
}

void socket_close(struct control *control)
{
	for (unsigned int i = 0; i < MAX_GREETERS; i++)
		if (control->greeter[i].socket > 0)
			close(control->greeter[i].socket);
	if (control->listener >= 0) {
		close(control->listener);
		unlink(control->config.socket_path);
	}
}

/* --- coming in ------------------------------------------------------------------------- */

int control_admit(struct control *control, int socket)
{
	struct epoll_event interest = { .events = EPOLLIN | EPOLLRDHUP };
	unsigned int i = 0;
	int error = 0;

	while (i < MAX_GREETERS && control->greeter[i].socket > 0)
		i++;
	interest.data.u64 = EPOLL_GREETER | i;
	if (i == MAX_GREETERS)
		error = -EBUSY;
	else if (epoll_ctl(control->epoll, EPOLL_CTL_ADD, socket, &interest))
		error = -errno;
	if (error) {
		control->status.sessions_refused++;
		close(socket);
		return error;
	}
	control->greeter[i].socket = socket;
	control->greeter[i].deadline = control->now + GREETER_PATIENCE;
	return 0;
}

void socket_accept(struct control *control)
{
	int client = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (client >= 0)
		control_admit(control, client); /* refused is counted, and the client sees it */
}

static void refuse(struct control *control, int socket, int32_t status, const char *format, ...)
{
	struct shm_welcome welcome = { .type = SHM_MSG_WELCOME,
				       .magic = SHM_MAGIC_HELLO,
				       .layout_version = SHM_LAYOUT_VERSION,
				       .ndk_major = CONTROL_NDK_MAJOR,
				       .ndk_minor = CONTROL_NDK_MINOR,
				       .status = status };
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(welcome.message, sizeof(welcome.message), format, arguments);
	va_end(arguments);
	control->status.sessions_refused++;
	/* Who is gone already did not want to know; saying so would let it fill our log. */
	(void)shm_socket_send(socket, &welcome, sizeof(welcome), NULL, 0);
	close(socket);
}

void socket_greeter_ready(struct control *control, unsigned int greeter)
{
	int socket = control->greeter[greeter].socket;
	struct shm_hello hello;
	unsigned int count = 0;
	int length;
	int error;

	if (socket <= 0)
		return;
	length = shm_socket_receive(socket, &hello, sizeof(hello), NULL, &count);
	if (length == -EAGAIN)
		return;
	control->greeter[greeter].socket = 0;
	if (length == 0) {
		close(socket); /* connected and went, as a probe for a living daemon does */
	} else if (length != sizeof(hello) || hello.type != SHM_MSG_HELLO ||
		   hello.magic != SHM_MAGIC_HELLO) {
		refuse(control, socket, NT_INVALID_PARAMETER,
		       "this is not an Oriel client's hello");
	} else if (hello.layout_version != SHM_LAYOUT_VERSION) {
		refuse(control, socket, NT_BAD_VERSION,
		       "libndk has shared-memory layout %u, the daemon has %u: install both of one "
		       "version",
		       hello.layout_version, SHM_LAYOUT_VERSION);
	} else if ((hello.ndk_major != 1 && hello.ndk_major != CONTROL_NDK_MAJOR) ||
		   (hello.ndk_major == CONTROL_NDK_MAJOR && hello.ndk_minor > CONTROL_NDK_MINOR) ||
		   (hello.ndk_major == 1 && hello.ndk_minor > 2)) {
		refuse(control, socket, NT_BAD_VERSION,
		       "NDK version %u.%u is not offered, 1.1 to %u.%u are", hello.ndk_major,
		       hello.ndk_minor, CONTROL_NDK_MAJOR, CONTROL_NDK_MINOR);
	} else {
		error = session_open(control, socket, &hello);
		if (error)
			refuse(control, socket, NT_INSUFFICIENT_RESOURCES,
			       "no room for a session: %s", strerror(-error));
	}
}

void socket_expire_greeters(struct control *control)
{
	for (unsigned int i = 0; i < MAX_GREETERS; i++) {
		struct greeter *greeter = &control->greeter[i];

		if (greeter->socket > 0 && greeter->deadline < control->now) {
			close(greeter->socket);
			greeter->socket = 0;
			control->status.sessions_refused++;
		}
	}
}

/* --- messages of an open session ---------------------------------------------------------- */

/* Its client may send as fast as we read: so many, then the others have their turn. */
#define MESSAGES_PER_TURN 64u

bool socket_session_ready(struct control *control, uint32_t session)
{
	for (unsigned int n = 0; n < MESSAGES_PER_TURN && session_is_open(control, session); n++) {
		struct shm_segment_message message;
		unsigned int count = 1;
		int fd = -1;
		int length = shm_socket_receive(control->session[session].socket, &message,
						sizeof(message), &fd, &count);

		if (length == -EAGAIN)
			return true;
		if (length == sizeof(message) && message.type == SHM_MSG_SEGMENT_ADD &&
		    count == 1) {
			incoming_add(control, session, message.cookie, fd);
			continue;
		}
		if (count)
			close(fd);
		session_end(control, session,
			    length <= 0 ? "the client closed its socket"
					: "unknown message on the client's socket");
	}
	return false;
}
