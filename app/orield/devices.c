/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices that the configuration names, as far as they can be looked at without DPDK. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ini.h"
#include "orield/config.h"

static bool is_pci_address(const char *device)
{
	unsigned int domain, bus, slot, function;
	int length = 0;

	return (sscanf(device, "%4x:%2x:%2x.%1u%n", &domain, &bus, &slot, &function, &length) ==
			4 ||
		sscanf(device, "%2x:%2x.%1u%n", &bus, &slot, &function, &length) == 3) &&
	       device[length] == '\0';
}

static bool pci_exists(const char *device)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s%s",
		 strlen(device) < 12 ? "0000:" : "", device);
	return access(path, F_OK) == 0;
}

/* The value of a key in a vdev's arguments; false if it is not there. */
static bool vdev_argument(const char *device, const char *key, char *value, size_t room)
{
	const char *p = device;

	while ((p = strchr(p, ',')) != NULL) {
		size_t length = strlen(key);

		p++;
		if (strncmp(p, key, length) || p[length] != '=')
			continue;
		p += length + 1;
		length = strcspn(p, ",");
		if (length >= room)
			return false;
		memcpy(value, p, length);
		value[length] = '\0';
		return true;
	}
	return false;
}

int config_check_devices(const struct config *config)
{
	struct ini_reader reader = { .path = config->path, .messages = stderr };

	for (uint32_t p = 0; p < config->net.ports; p++) {
		const struct net_port_config *port = &config->net.port[p];
		unsigned int line = config->device_line[p];
		char interface[64];

		if (is_pci_address(port->device)) {
			if (!pci_exists(port->device))
				ini_complain(&reader, port->name, line,
					     "device = %s: no such PCI device; 'dpdk-devbind.py "
					     "--status-dev net' lists them",
					     port->device);
		} else if (strncmp(port->device, "net_", 4) && strncmp(port->device, "eth_", 4)) {
			ini_complain(&reader, port->name, line,
				     "device = %s: expected a PCI address (0000:3b:00.0) or a vdev "
				     "(net_af_packet0,iface=eth1)",
				     port->device);
		} else if ((!strncmp(port->device, "net_af_packet", 13) ||
			    !strncmp(port->device, "net_af_xdp", 10))) {
			if (!vdev_argument(port->device, "iface", interface, sizeof(interface)))
				ini_complain(&reader, port->name, line,
					     "device = %s: expected iface=INTERFACE", port->device);
			else if (!if_nametoindex(interface))
				ini_complain(&reader, port->name, line,
					     "device = %s: there is no interface %s; 'ip link' "
					     "lists them",
					     port->device, interface);
		}
	}
	return reader.errors ? -ENODEV : 0;
}

/* --- what a killed daemon leaves -------------------------------------------------------------- */

/* A socket that nobody answers at, and not a file of any other kind. */
static bool is_stale_socket(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct stat status;
	bool refused;
	int probe;

	if (strlen(path) >= sizeof(address.sun_path) || lstat(path, &status) ||
	    !S_ISSOCK(status.st_mode))
		return false;
	probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (probe < 0)
		return false;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	refused = connect(probe, (const struct sockaddr *)&address, sizeof(address)) < 0 &&
		  errno == ECONNREFUSED;
	close(probe);
	return refused;
}

void config_remove_stale_links(const struct config *config)
{
	for (uint32_t p = 0; p < config->net.ports; p++) {
		const char *device = config->net.port[p].device;
		char role[16], abstract[8], path[128];

		if (strncmp(device, "net_memif", 9) ||
		    !vdev_argument(device, "role", role, sizeof(role)) || strcmp(role, "server") ||
		    !vdev_argument(device, "socket-abstract", abstract, sizeof(abstract)) ||
		    strcmp(abstract, "no") || !vdev_argument(device, "socket", path, sizeof(path)))
			continue;
		if (is_stale_socket(path) && unlink(path))
			fprintf(stderr, "orield: %s: left by a daemon that was killed: %s\n", path,
				strerror(errno));
	}
}
