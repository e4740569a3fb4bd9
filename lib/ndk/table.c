/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables that find things by a number of theirs. */
#include "ndk/table.h"

#include <stddef.h>
#include <stdlib.h>

#define FIRST_BUCKETS 256u

/* Numbers are counted up or a random permutation: any of their bits will do. */
static struct numbered **bucket_of(const struct table *table, uint32_t number)
{
	return &table->bucket[number & table->mask];
}

static void chain(struct table *table, struct numbered *numbered)
{
	struct numbered **bucket = bucket_of(table, numbered->number);

	numbered->chain = *bucket;
	*bucket = numbered;
}

/* Without memory the chains get longer: slow, but right. */
static void grow(struct table *table)
{
	const uint32_t old_buckets = table->mask + 1;
	struct numbered **old = table->bucket;
	struct numbered **bucket = calloc(2 * (size_t)old_buckets, sizeof(struct numbered *));
	struct numbered *numbered;

	if (!bucket)
		return;
	table->bucket = bucket;
	table->mask = 2 * old_buckets - 1;
	for (uint32_t i = 0; i < old_buckets; i++) {
		while ((numbered = old[i]) != NULL) {
			old[i] = numbered->chain;
			chain(table, numbered);
		}
	}
	free(old);
}

bool table_init(struct table *table)
{
	table->bucket = calloc(FIRST_BUCKETS, sizeof(struct numbered *));
	table->mask = FIRST_BUCKETS - 1;
	table->count = 0;
	return table->bucket;
}

void table_destroy(struct table *table)
{
	free(table->bucket);
	table->bucket = NULL;
}

void table_add(struct table *table, struct numbered *numbered, uint32_t number)
{
	if (table->count++ > table->mask)
		grow(table);
	numbered->number = number;
	chain(table, numbered);
}

void table_remove(struct table *table, struct numbered *numbered)
{
	struct numbered **link;

	if (!numbered->number)
		return;
	link = bucket_of(table, numbered->number);
	while (*link != numbered)
		link = &(*link)->chain;
	*link = numbered->chain;
	numbered->number = 0;
	table->count--;
}

struct numbered *table_find(const struct table *table, uint32_t number)
{
	struct numbered *numbered = *bucket_of(table, number);

	while (numbered && numbered->number != number)
		numbered = numbered->chain;
	return numbered;
}
