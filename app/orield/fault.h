/* SPDX-License-Identifier: BSD-3-Clause */
/* Faults of ports as people write them: in the configuration, and to the running daemon. */
#ifndef ORIELD_FAULT_H
#define ORIELD_FAULT_H

#include "net/net.h"

#define FAULT_EXPECTED_SHARE "a share of the frames from 0% to 100% in steps of 0.0001%"
#define FAULT_LONGEST_US     10000000u

/* No fault, a delay of 1000 us, seed 1: what is not said. */
void fault_default(struct net_fault *fault);
/* Whether the shares are no more than all frames. */
bool fault_fits(const struct net_fault *fault);

/*
 * Sets what `key` names: loss, duplicate, reorder, corrupt, delay ("1%", "0.05%"), delay-us,
 * seed. NULL, or what is expected instead (static).
 */
const char *fault_set(struct net_fault *fault, const char *key, const char *value);

struct rte_tel_data;
/* Sets the faults of ports as the parameters of /oriel/fault say, if any, and shows them. */
void fault_command(struct net *net, const char *parameters, struct rte_tel_data *data);

#endif
