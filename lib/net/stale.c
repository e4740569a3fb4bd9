/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that a killed daemon's devices left behind: memif and vhost servers cannot bind over
 * them. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/device.h"
#include "net/message.h"

#define PATH_ROOM sizeof(((struct sockaddr_un *)0)->sun_path)

/* The paths that this device will listen on, and their sockets' type; 0 when it does not. */
static int listens_on(const struct device *device, char path[2][PATH_ROOM])
{
	char value[16];

	path[1][0] = '\0';
	if (device->memif.role == MEMLINK_SERVER && !device->memif.outer.abstract) {
		snprintf(path[0], PATH_ROOM, "%s", device->memif.outer.text);
		snprintf(path[1], PATH_ROOM, "%s", device->memif.inner.text);
		return SOCK_SEQPACKET;
	}
	if (!strcmp(device->driver, "net_vhost")) {
		if (device_argument(device->text, "client", value, sizeof(value)) &&
		    strcmp(value, "0") != 0)
			return 0;
		return device_argument(device->text, "iface", path[0], PATH_ROOM) ? SOCK_STREAM : 0;
	}
	return 0;
}

static int clear_socket(const struct device *device, const char *path, int type,
			const char **message)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = 0;

	if (probe < 0)
		return 0; /* the driver will say what is wrong */
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
		error = -EADDRINUSE;
	else if (errno == ECONNREFUSED && unlink(address.sun_path))
		error = -errno;
	close(probe);
	if (error)
		*message = net_message(
			"device %s: socket %s: %s", device->name, address.sun_path,
			error == -EADDRINUSE
				? "another process listens there: stop it or choose another path"
				: strerror(-error));
	return error;
}

int device_clear_socket(const struct device *device, const char **message)
{
	char path[2][PATH_ROOM];
	int type = listens_on(device, path);
	int error = type ? clear_socket(device, path[0], type, message) : 0;

	if (type && !error && path[1][0])
		error = clear_socket(device, path[1], type, message);
	return error;
}
