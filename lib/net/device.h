/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a `device =` value means: PCI address or virtual device, and the arguments that
 * a virtual device needs so that every worker has a queue and a full frame fits.
 */
#ifndef NET_DEVICE_H
#define NET_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/memlink.h"
#include "net/net.h"

#define DEVICE_TEXT 384u

struct device {
	bool pci;
	char name[64];          /* as DPDK knows the port: "net_af_packet0", "0000:3b:00.0" */
	char driver[48];        /* "net_af_packet"; empty for PCI */
	char text[DEVICE_TEXT]; /* for --vdev or -a */
	uint32_t room;          /* bytes of frame that one buffer must hold */
	struct memlink_ends memif;
};

/* 0, or -EINVAL with *message (static) for what cannot be. */
int device_parse(struct device *device, const struct net_port_config *config, uint32_t workers,
		 const char **message);

/*
 * Removes the socket file that a killed process left where this device will listen. 0, or a
 * negative errno with *message (static): a living process listens there.
 */
int device_clear_socket(const struct device *device, const char **message);

/* NULL when the driver is there; else a sentence (static) that names it and its package. */
const char *driver_missing(const struct device *device);

/* Value of `key=` among the arguments of a device: copied to value. False: not there. */
bool device_argument(const char *device, const char *key, char *value, size_t size);

#endif
