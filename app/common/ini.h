/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading of INI files for the programs: libinih with line numbers, and one way to refuse a
 * value, naming file, line, section, key, value and what is expected.
 */
#ifndef APP_COMMON_INI_H
#define APP_COMMON_INI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct ini_reader {
	const char *path;
	unsigned int line; /* of the entry that the handler looks at */
	unsigned int errors;
	FILE *messages; /* where complaints go, stderr by default */
};

struct ini_entry {
	struct ini_reader *reader;
	const char *section;
	const char *key;
	const char *value;
};

/*
 * Calls handler for each key = value, in order. The handler complains through ini_refuse().
 * Returns 0, -EINVAL if anything was refused, or the negative errno of opening the file
 * (after a message).
 */
int ini_read(struct ini_reader *reader, const char *path,
	     void (*handler)(void *context, const struct ini_entry *entry), void *context);

/* "FILE:LINE: [section] key = value: expected ..." */
void ini_refuse(const struct ini_entry *entry, const char *expected, ...)
	__attribute__((format(printf, 2, 3), nonnull(1, 2)));
/* The same for what has no entry to point at: "FILE:LINE: [kind name] ...". line 0: none. */
void ini_complain(struct ini_reader *reader, const char *kind, const char *name, unsigned int line,
		  const char *format, ...) __attribute__((format(printf, 5, 6), nonnull(1, 5)));

/* Each refuses and returns false when the value is not of its kind. */
bool ini_get_number(const struct ini_entry *entry, uint64_t minimum, uint64_t maximum,
		    uint64_t *number);
bool ini_get_size(const struct ini_entry *entry, uint64_t *bytes); /* 4096, 64K, 64M, 2G */
bool ini_get_string(const struct ini_entry *entry, char *buffer, size_t room);
/* choices: NULL-terminated. Sets *index. */
bool ini_get_choice(const struct ini_entry *entry, const char *const choices[],
		    unsigned int *index);

/* Next element of a comma-separated list, blanks trimmed; false at the end. */
bool ini_next(const char **list, char *element, size_t room);

/* "10.0.0.1", "fd00::1" to a GID (IPv4 as ::ffff:a.b.c.d). Refuses a mapped address as text. */
bool address_parse(const char *text, uint8_t gid[16], bool *is_v4);
/* The reverse; buffer of 64 bytes. */
const char *address_format(const uint8_t gid[16], char *buffer);

#endif
