/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target over the files of a corpus, for compilers without
 * libFuzzer: each file as it is, cut at every length, and with every byte of
 * its first 128 changed. A fault is an abort.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

#define CHANGED_BYTES 128u

/* In a block of its very size, so that a sanitizer sees a byte read too far. */
static void run_copy(const uint8_t *data, size_t size, size_t changed, uint8_t change)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	if (change)
		copy[changed] ^= change;
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
}

static void run_around(const uint8_t *data, size_t size)
{
	static const uint8_t changes[] = { 0x01, 0x80, 0x55, 0xff };

	for (size_t length = 0; length <= size; length++)
		run_copy(data, length, 0, 0);
	for (size_t at = 0; at < size && at < CHANGED_BYTES; at++)
		for (size_t i = 0; i < sizeof(changes); i++)
			run_copy(data, size, at, changes[i]);
}

static int run_file(const char *path)
{
	static uint8_t data[FUZZ_INPUT_MAX];
	FILE *file = fopen(path, "rb");
	size_t size;

	if (!file) {
		perror(path);
		return -1;
	}
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	run_around(data, size);
	return 0;
}

static int run_directory(const char *directory, unsigned int *files)
{
	DIR *corpus = opendir(directory);
	const struct dirent *entry;
	char path[4096];
	int result = 0;

	if (!corpus) {
		perror(directory);
		return -1;
	}
	while (result == 0 && (entry = readdir(corpus))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		result = run_file(path);
		++*files;
	}
	closedir(corpus);
	return result;
}

int main(int argc, char **argv)
{
	unsigned int files = 0;

	if (argc != 2) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
		return 2;
	}
	if (run_directory(argv[1], &files))
		return 1;
	if (files == 0) {
		fprintf(stderr, "%s: no files in the corpus\n", argv[1]);
		return 1;
	}
	printf("%u files\n", files);
	return 0;
}
