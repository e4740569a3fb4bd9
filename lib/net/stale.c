/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that a killed daemon's devices left behind: memif and vhost servers cannot bind over
 * them. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/device.h"
#include "net/message.h"

/* The path that this device will listen on, and the socket's type; 0 when it does not. */
static int listens_on(const struct device *device, char *path, size_t room)
{
	char value[16];

	if (!strcmp(device->driver, "net_memif")) {
		if (!device_argument(device->text, "role", value, sizeof(value)) ||
		    (strcmp(value, "server") != 0 && strcmp(value, "master") != 0))
			return 0;
		/* An abstract name goes with its process. */
		if (!device_argument(device->text, "socket-abstract", value, sizeof(value)) ||
		    strcmp(value, "no") != 0)
			return 0;
		return device_argument(device->text, "socket", path, room) ? SOCK_SEQPACKET : 0;
	}
	if (!strcmp(device->driver, "net_vhost")) {
		if (device_argument(device->text, "client", value, sizeof(value)) &&
		    strcmp(value, "0") != 0)
			return 0;
		return device_argument(device->text, "iface", path, room) ? SOCK_STREAM : 0;
	}
	return 0;
}

int device_clear_socket(const struct device *device, const char **message)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int type = listens_on(device, address.sun_path, sizeof(address.sun_path));
	int probe;
	int error = 0;

	if (!type)
		return 0;
	probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return 0; /* the driver will say what is wrong */
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
