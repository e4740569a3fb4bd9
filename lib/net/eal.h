/* SPDX-License-Identifier: BSD-3-Clause */
/* The argument vector that EAL is started with. */
#ifndef NET_EAL_H
#define NET_EAL_H

#include "net/device.h"
#include "net/net.h"

#define EAL_MAX_ARGUMENTS 128
#define EAL_TEXT          8192u

struct eal_arguments {
	int count;
	char *argument[EAL_MAX_ARGUMENTS + 1]; /* NULL-terminated; into text or the caller's */
	char text[EAL_TEXT];
	size_t used;
	bool verbose; /* the administrator asked for DPDK's log */
};

/*
 * What `config` and the extra arguments of the command line say to EAL. instance: any text
 * that tells this process from others on the host (its socket). 0 or -EINVAL with *message.
 */
int eal_arguments_build(struct eal_arguments *arguments, const struct net_config *config,
			const char *instance, char *const extra[], const char **message);

/* MiB that --no-huge must be given: EAL cannot grow it. Untouched pages cost nothing. */
uint32_t eal_memory_mib(const struct net_config *config);

/* Bytes of one mbuf and its data room, and mbufs per worker, that a port needs (pool.c). */
uint32_t pool_data_room(uint32_t frame_room);
uint64_t pool_bytes_per_worker(uint32_t frame_room);

#endif
