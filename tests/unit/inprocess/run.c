/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the registered tests, each in a fork, and counts. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "criterion/criterion.h"

#define SKIPPED    77
#define MAX_SUITES 16

static struct inprocess_test *tests;

static struct {
	const char *name;
	struct inprocess_options options;
} suites[MAX_SUITES];
static unsigned int suite_count;
static unsigned int failures; /* of the test that runs in this process */

void inprocess_add_test(struct inprocess_test *test)
{
	test->next = tests;
	tests = test;
}

void inprocess_add_suite(const char *suite, const struct inprocess_options *options)
{
	if (suite_count == MAX_SUITES)
		abort();
	suites[suite_count].name = suite;
	suites[suite_count++].options = *options;
}

void inprocess_note(const char *file, int line, const char *what, const char *format, ...)
{
	va_list arguments;

	failures++;
	fprintf(stderr, "%s:%d: expected: %s ", file, line, what);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

void inprocess_give_up(void)
{
	exit(EXIT_FAILURE);
}

void inprocess_skip(void)
{
	exit(SKIPPED);
}

static const struct inprocess_options *suite_of(const struct inprocess_test *test)
{
	static const struct inprocess_options none;

	for (unsigned int i = 0; i < suite_count; i++)
		if (!strcmp(suites[i].name, test->suite))
			return &suites[i].options;
	return &none;
}

static _Noreturn void run_here(const struct inprocess_test *test)
{
	const struct inprocess_options *suite = suite_of(test);

	if (suite->init)
		suite->init();
	if (test->options.init)
		test->options.init();
	test->run();
	if (test->options.fini)
		test->options.fini();
	if (suite->fini)
		suite->fini();
	exit(failures ? EXIT_FAILURE : EXIT_SUCCESS);
}

static bool passed(const struct inprocess_test *test, int status)
{
	if (test->options.signal)
		return WIFSIGNALED(status) && WTERMSIG(status) == test->options.signal;
	return WIFEXITED(status) &&
	       (WEXITSTATUS(status) == test->options.exit_code || WEXITSTATUS(status) == SKIPPED);
}

int main(void)
{
	unsigned int good = 0, bad = 0;

	for (const struct inprocess_test *test = tests; test; test = test->next) {
		int status = 0;
		pid_t child;

		if (test->options.disabled)
			continue;
		fflush(NULL);
		child = fork();
		if (child == 0)
			run_here(test);
		while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
			;
		if (child > 0 && passed(test, status)) {
			good++;
			continue;
		}
		bad++;
		fprintf(stderr, "FAIL %s::%s (status 0x%x)\n", test->suite, test->name, status);
	}
	printf("%u passed, %u failed\n", good, bad);
	return bad || !good ? EXIT_FAILURE : EXIT_SUCCESS;
}
