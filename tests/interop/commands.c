/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands, values and reports of the programs that check. */
#include "commands.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned int failures;

int command_run(const struct command *commands, size_t count, char **words, const char *usage)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(commands[i].name, words[0]) != 0)
			continue;
		commands[i].run(words[1]);
		return failures ? 1 : 0;
	}
	fprintf(stderr, "%s: no command '%s'\n%s", program_invocation_short_name, words[0], usage);
	return 2;
}

static void __attribute__((noreturn))
usage_error(const char *what, const char *value, const char *usage)
{
	fprintf(stderr, "%s: %s '%s'\n%s", program_invocation_short_name, what, value, usage);
	exit(2);
}

void command_address(const char *text, struct sockaddr_storage *address, const char *usage)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	else
		usage_error("not an address:", text, usage);
}

unsigned long command_number(const char *text, unsigned long max, const char *usage)
{
	char *end;
	unsigned long value = strtoul(text, &end, 0);

	if (end == text || *end || value > max)
		usage_error("not a number in range:", text, usage);
	return value;
}

static void report(const char *word, const char *format, va_list args)
{
	printf("%s ", word);
	vprintf(format, args);
	printf("\n");
}

void report_ok(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	report("ok", format, args);
	va_end(args);
}

bool report_failure(const char *format, ...)
{
	va_list args;

	failures++;
	va_start(args, format);
	report("FAIL", format, args);
	va_end(args);
	return false;
}
