/* SPDX-License-Identifier: BSD-3-Clause */
/* libndk-inprocess: the daemon's layers within a client, served by the client's own calls. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ndk/plane.h"
#include "orield/daemon.h"

#define CONTROL_EVERY 50000ull    /* ns: timers of the control core */
#define LOOK_EVERY    8u          /* turns between looks at the clock for them */
#define SOCKETS_EVERY 10000000ull /* ns */

__attribute__((visibility("default"))) ndk_plane_opener oriel_plane_open;

/* One per process: names of rings and pools are, and EAL's memory is for one. */
static struct plane {
	uint32_t open;    /* atomic */
	uint32_t serving; /* atomic: some thread is in turn() */
	uint64_t control_due, sockets_due;
	uint32_t turns;
	struct daemon daemon;
} the_plane;

/* --- serving ---------------------------------------------------------------------------- */

static unsigned int serve_control(struct plane *plane, bool sockets)
{
	struct control *control = plane->daemon.control;
	const bool idle = !sockets && !control_has_work(control);
	uint64_t now;

	if (idle && ++plane->turns % LOOK_EVERY)
		return 0;
	now = net_clock(plane->daemon.net);
	if (idle && now < plane->control_due)
		return 0;
	if (now >= plane->sockets_due) {
		plane->sockets_due = now + SOCKETS_EVERY;
		sockets = true;
	}
	plane->control_due = now + CONTROL_EVERY;
	return control_poll(control, sockets);
}

/* Control last: what it sends leaves with the next turn, what it tells the client is seen now. */
static unsigned int plane_turn(void *context, bool sockets)
{
	struct plane *plane = context;
	unsigned int done;

	if (__atomic_exchange_n(&plane->serving, 1, __ATOMIC_ACQUIRE))
		return 0;
	done = net_turn(plane->daemon.net);
	done += serve_control(plane, sockets);
	__atomic_store_n(&plane->serving, 0, __ATOMIC_RELEASE);
	return done;
}

/* --- start and end ------------------------------------------------------------------------ */

static void plane_close(void *context)
{
	struct plane *plane = context;

	while (__atomic_exchange_n(&plane->serving, 1, __ATOMIC_ACQUIRE))
		sched_yield();
	control_shutdown(plane->daemon.control);
	daemon_finish(&plane->daemon);
	memset(&plane->daemon, 0, sizeof(plane->daemon));
	__atomic_store_n(&plane->serving, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&plane->open, 0, __ATOMIC_RELEASE);
}

/* The configuration's complaints are the message. */
static int configure(struct config *config, const char *path, char *message, size_t room)
{
	FILE *messages = fmemopen(message, room, "w");
	size_t length;
	int error;

	if (!messages)
		return -errno;
	error = config_read(config, path, true, messages);
	if (!error)
		error = config_check_devices(config);
	if (!error)
		error = config_choose_hugepages(config);
	fclose(messages);
	message[room - 1] = '\0';
	length = strlen(message);
	if (length && message[length - 1] == '\n')
		message[length - 1] = '\0';
	return error;
}

/* The session's socket: the client's end, the other is control's. */
static int connect_client(struct plane *plane, int *socket)
{
	int ends[2];
	int error;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	if (fcntl(ends[1], F_SETFL, O_NONBLOCK)) {
		error = -errno;
		close(ends[1]);
	} else {
		error = control_admit(plane->daemon.control, ends[1]);
	}
	if (error)
		close(ends[0]);
	else
		*socket = ends[0];
	return error;
}

static int start(struct plane *plane, const char *configuration, int *socket, char *message,
		 size_t room)
{
	const char *text = "";
	int error = configure(&plane->daemon.config, configuration, message, room);

	if (error)
		return error == -ENOENT ? -EINVAL : error; /* no daemon to wait for */
	error = daemon_start(&plane->daemon, NULL, &text);
	if (error) {
		snprintf(message, room, "%s: %s", configuration, text);
	} else {
		error = connect_client(plane, socket);
		if (error)
			snprintf(message, room, "a socket within the process: %s",
				 strerror(-error));
	}
	if (error)
		daemon_finish(&plane->daemon);
	return error;
}

int oriel_plane_open(uint32_t version, const char *configuration, struct ndk_plane *out,
		     char *message, size_t room)
{
	struct plane *plane = &the_plane;
	int socket = -1;
	int error;

	if (version != NDK_PLANE_VERSION) {
		snprintf(message, room,
			 "libndk speaks version %u with " NDK_PLANE_LIBRARY
			 ", which has %u: install both of one version",
			 version, NDK_PLANE_VERSION);
		return -EPROTONOSUPPORT;
	}
	if (__atomic_exchange_n(&plane->open, 1, __ATOMIC_ACQUIRE)) {
		snprintf(message, room,
			 "this process has an adapter with a data plane of its own already: one at "
			 "a time");
		return -EBUSY;
	}
	plane->control_due = plane->sockets_due = 0;
	error = start(plane, configuration, &socket, message, room);
	if (error) {
		memset(&plane->daemon, 0, sizeof(plane->daemon));
		__atomic_store_n(&plane->open, 0, __ATOMIC_RELEASE);
		return error;
	}
	*out = (struct ndk_plane){ .socket = socket,
				   .adaptive = plane->daemon.config.net.idle == NET_IDLE_ADAPTIVE,
				   .context = plane,
				   .turn = plane_turn,
				   .close = plane_close };
	return 0;
}
