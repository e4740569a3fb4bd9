/* SPDX-License-Identifier: BSD-3-Clause */
/* Section [congestion] of the daemon's configuration file. */
#ifndef ORIELD_CONFIG_CONGESTION_H
#define ORIELD_CONFIG_CONGESTION_H

#include "common/ini.h"
#include "transport/congestion.h"

/* One entry of the section; `seen`: keys so far, 0 at first. */
void config_congestion_key(struct congestion_parameters *parameters, const struct ini_entry *entry,
			   uint64_t *seen);
/* Behind the last entry: what does not go together; line: of the later of its two rates. */
void config_congestion_check(const struct congestion_parameters *parameters,
			     struct ini_reader *reader, unsigned int line);

#endif
