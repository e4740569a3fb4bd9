/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables that find things by a number of theirs, which no other in the table has: outstanding
 * requests by id, objects by handle, windows by token. They grow with what is in them. No locks.
 */
#ifndef NDK_TABLE_H
#define NDK_TABLE_H

#include <stdbool.h>
#include <stdint.h>

/* Lives in what is to be found. */
struct numbered {
	struct numbered *chain;
	uint32_t number; /* 0: in no table */
};

struct table {
	struct numbered **bucket;
	uint32_t mask;  /* buckets - 1 */
	uint32_t count; /* of what is in it */
};

bool table_init(struct table *table); /* false: no memory */
void table_destroy(struct table *table);
/* number: not 0. Cannot fail. */
void table_add(struct table *table, struct numbered *numbered, uint32_t number);
/* Does nothing with what is in no table. */
void table_remove(struct table *table, struct numbered *numbered);
struct numbered *table_find(const struct table *table, uint32_t number); /* NULL: not there */

#endif
