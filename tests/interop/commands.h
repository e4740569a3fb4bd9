/* SPDX-License-Identifier: BSD-3-Clause */
/* What export-client and connect-out share: a command and its values, and a line per check. */
#ifndef INTEROP_COMMANDS_H
#define INTEROP_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct command {
	const char *name;
	void (*run)(const char *argument); /* NULL: none was given */
};

/* Runs the one that is named; returns what the program exits with. */
int command_run(const struct command *commands, size_t count, char **words, const char *usage);

/* Values of options. What is none ends the program with 2, by a message and the usage. */
void command_address(const char *text, struct sockaddr_storage *address, const char *usage);
unsigned long command_number(const char *text, unsigned long max, const char *usage);

/* One line per check. report_failure() counts; the program then exits with 1. */
void report_ok(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns false. */
bool report_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
