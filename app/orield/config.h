/* SPDX-License-Identifier: BSD-3-Clause */
/* The daemon's configuration file. */
#ifndef ORIELD_CONFIG_H
#define ORIELD_CONFIG_H

#include <stdio.h>

#include "control/control.h"
#include "net/net.h"

enum config_hugepages { HUGEPAGES_YES, HUGEPAGES_NO, HUGEPAGES_AUTO };

struct config {
	const char *path;
	FILE *messages; /* complaints go there */
	struct net_config net;
	struct control_config control;
	struct congestion_parameters congestion;
	unsigned int hugepages; /* enum config_hugepages */
	bool telemetry;
	uint32_t max_qps;     /* powers of two */
	uint32_t max_windows; /* tokens: windows, and two for each region */
};

/*
 * Reads and checks everything that can be known without DPDK. Complaints go to messages, each
 * with file, line, section, key, value and what is expected. caller_runs: for a data plane in the
 * caller's thread (net_config.caller_runs), which has no use for processors, socket and telemetry.
 * Returns 0 or a negative errno.
 */
int config_read(struct config *config, const char *path, bool caller_runs, FILE *messages);

/* Whether the devices exist as far as that shows without DPDK; complaints as above. */
int config_check_devices(const struct config *config);

/* Whether to start with hugepages, by what is free now; complaints as above. */
int config_choose_hugepages(struct config *config);

#endif
