/* SPDX-License-Identifier: BSD-3-Clause */
/* The target's configuration file. */
#ifndef TARGET_CONFIG_H
#define TARGET_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/export_protocol.h"

#define TARGET_MAX_EXPORTS 64u
#define TARGET_MAX_LISTEN  8u
#define TARGET_MAX_ALLOW   16u

struct target_address {
	uint8_t gid[16];
	uint16_t port;
	bool any; /* 0.0.0.0 or :: */
};

struct target_network {
	uint8_t gid[16];
	uint32_t prefix_length; /* of the GID */
};

enum target_backing { BACKING_MEMFD, BACKING_HUGEPAGE, BACKING_FILE };

struct target_export {
	char name[EXPORT_NAME_SIZE + 1];
	struct target_address listen[TARGET_MAX_LISTEN];
	uint32_t listens;
	struct target_network allow[TARGET_MAX_ALLOW];
	uint32_t allows; /* 0: everybody */
	uint64_t size;   /* bytes; 0 with a file: the file's */
	enum target_backing backing;
	char file[256];
	uint8_t access;    /* EXPORT_* */
	bool tied;         /* window = connection */
	unsigned int line; /* where it begins */
};

struct target_config {
	const char *path;
	char socket[108]; /* empty: libndk's default */
	uint32_t probe;   /* seconds from one probe of a connection to the next; 0: none */
	struct target_export exports[TARGET_MAX_EXPORTS];
	uint32_t count;
};

/* Complaints go to stderr with file, line, key, value and what is expected. 0 or a negative errno.
 */
int target_config_read(struct target_config *config, const char *path);

#endif
