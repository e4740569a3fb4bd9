/* SPDX-License-Identifier: BSD-3-Clause */
/* A configuration file with the text given, for as long as a test runs. */
#ifndef TEST_CONFIG_FILE_H
#define TEST_CONFIG_FILE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char config_path[64];

static inline const char *config_file(const char *text)
{
	FILE *file;
	int fd;

	strcpy(config_path, "/tmp/oriel-test-config-XXXXXX");
	fd = mkstemp(config_path);
	cr_assert(fd >= 0);
	file = fdopen(fd, "w");
	cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
	return config_path;
}

static inline void config_file_remove(void)
{
	unlink(config_path);
}

#endif
