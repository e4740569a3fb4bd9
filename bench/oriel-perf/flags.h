/* SPDX-License-Identifier: BSD-3-Clause */
/* The flags of the command line: names, values, help. */
#ifndef PERF_FLAGS_H
#define PERF_FLAGS_H

#include "oriel-perf/options.h"

#define FLAGS_MOST 64u

/* Which of them were there. */
struct flags_seen {
	bool flag[FLAGS_MOST];
};

/*
 * Reads all flags into `options`; what is left of argv begins at optind. 0; 1: help or version was
 * printed; -EINVAL: a message was printed.
 */
int flags_read(int argc, char **argv, struct perf_options *options, struct flags_seen *seen);
bool flags_has(const struct flags_seen *seen, const char *name);
/* False: one of them means nothing for the operation, and a message says so. */
bool flags_suit(const struct flags_seen *seen, const struct perf_options *options);

#endif
