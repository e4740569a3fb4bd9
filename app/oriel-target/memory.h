/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory behind the exports: there before the daemon is, and after it is gone. */
#ifndef TARGET_MEMORY_H
#define TARGET_MEMORY_H

#include <ndk/ndk.h>

#include "oriel-target/config.h"

struct target_memory {
	MDL *mdl;
	uint64_t size;
};

/* Allocates, and loads a file's content. 0 or a negative errno, after a message. */
int target_memory_create(const struct target_config *config, const struct target_export *export,
			 struct target_memory *memory);
/* Writes a file-backed export back, through a new file that takes the old one's place. */
int target_memory_flush(const struct target_export *export, const struct target_memory *memory);
void target_memory_destroy(struct target_memory *memory);

#endif
