/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the driver that a device names is there at all: drivers are libraries of their own. */
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "net/device.h"
#include "net/message.h"

static int note_library(struct dl_phdr_info *info, size_t size, void *data)
{
	const char **wanted = data;

	(void)size;
	if (!info->dlpi_name || !strstr(info->dlpi_name, *wanted))
		return 0;
	*wanted = NULL;
	return 1;
}

static bool library_loaded(const char *name)
{
	dl_iterate_phdr(note_library, &name);
	return name == NULL;
}

const char *driver_missing(const struct device *device)
{
	static char text[200];
	char library[64], package[48];

	snprintf(library, sizeof(library), "librte_%s.so", device->driver);
	/* With DPDK linked statically nothing can be said. */
	if (device->pci || !library_loaded("librte_eal.so") || library_loaded(library))
		return NULL;
	snprintf(package, sizeof(package), "%s", device->driver);
	for (char *c = package; *c; c++)
		*c = *c == '_' ? '-' : *c;
	snprintf(text, sizeof(text),
		 "DPDK has no driver %s here: correct the name, or install the driver (Debian "
		 "package librte-%s23)",
		 device->driver, package);
	return text;
}
