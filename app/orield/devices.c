/* SPDX-License-Identifier: BSD-3-Clause */
/* The devices and the memory that the configuration wants, as far as they can be looked at without
 * DPDK. */
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
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
		if (strncmp(p, key, length) != 0 || p[length] != '=')
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
	struct ini_reader reader = { .path = config->path, .messages = config->messages };

	for (uint32_t p = 0; p < config->net.ports; p++) {
		const struct net_port_config *port = &config->net.port[p];
		unsigned int line = port->device_line;
		char interface[64];

		if (is_pci_address(port->device)) {
			if (!pci_exists(port->device))
				ini_complain(&reader, "port", port->name, line,
					     "device = %s: no such PCI device; 'dpdk-devbind.py "
					     "--status-dev net' lists them",
					     port->device);
		} else if (strncmp(port->device, "net_", 4) != 0 &&
			   strncmp(port->device, "eth_", 4) != 0) {
			ini_complain(&reader, "port", port->name, line,
				     "device = %s: expected a PCI address (0000:3b:00.0) or a vdev "
				     "(net_af_packet0,iface=eth1)",
				     port->device);
		} else if ((!strncmp(port->device, "net_af_packet", 13) ||
			    !strncmp(port->device, "net_af_xdp", 10))) {
			if (!vdev_argument(port->device, "iface", interface, sizeof(interface)))
				ini_complain(&reader, "port", port->name, line,
					     "device = %s: expected iface=INTERFACE", port->device);
			else if (!if_nametoindex(interface))
				ini_complain(&reader, "port", port->name, line,
					     "device = %s: there is no interface %s; 'ip link' "
					     "lists them",
					     port->device, interface);
		}
	}
	return reader.errors ? -ENODEV : 0;
}

static bool hugepages_free(void)
{
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
	unsigned long pages = 0;

	if (!file)
		return false;
	if (fscanf(file, "%lu", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages >= 128;
}

int config_choose_hugepages(struct config *config)
{
	bool have = hugepages_free();

	if (config->hugepages == HUGEPAGES_YES && !have) {
		fprintf(config->messages,
			"%s: [daemon] hugepages = yes: expected 128 free pages of 2 MiB; "
			"'echo 256 > /proc/sys/vm/nr_hugepages' makes some, or set hugepages = "
			"no\n",
			config->path);
		return -ENOMEM;
	}
	config->net.hugepages = config->hugepages == HUGEPAGES_NO ? false : have;
	return 0;
}
