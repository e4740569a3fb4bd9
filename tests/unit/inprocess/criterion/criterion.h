/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of Criterion's interface that our unit tests use, with each test in a plain fork:
 * Criterion's own runner does not start under the thread sanitizer. Used in that build only.
 */
#ifndef INPROCESS_CRITERION_H
#define INPROCESS_CRITERION_H

#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct inprocess_options {
	void (*init)(void);
	void (*fini)(void);
	int signal;
	int exit_code;
	double timeout; /* not used: Meson's own limit holds */
	bool disabled;
	const char *description;
};

struct inprocess_test {
	struct inprocess_test *next;
	const char *suite;
	const char *name;
	void (*run)(void);
	struct inprocess_options options;
};

void inprocess_add_test(struct inprocess_test *test);
void inprocess_add_suite(const char *suite, const struct inprocess_options *options);
void inprocess_note(const char *file, int line, const char *what, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
_Noreturn void inprocess_give_up(void);
_Noreturn void inprocess_skip(void);

#define Test(suite_, name_, ...)                                                      \
	static void suite_##_##name_##_body(void);                                    \
	__attribute__((constructor)) static void suite_##_##name_##_add(void)         \
	{                                                                             \
		static struct inprocess_test test = { .suite = #suite_,               \
						      .name = #name_,                 \
						      .run = suite_##_##name_##_body, \
						      .options = { __VA_ARGS__ } };   \
		inprocess_add_test(&test);                                            \
	}                                                                             \
	static void suite_##_##name_##_body(void)

#define TestSuite(suite_, ...)                                                   \
	__attribute__((constructor)) static void suite_##_suite_add(void)        \
	{                                                                        \
		static const struct inprocess_options options = { __VA_ARGS__ }; \
		inprocess_add_suite(#suite_, &options);                          \
	}                                                                        \
	struct inprocess_test

/* The message, made optional by "" in front, is only looked at on failure. */
#define INPROCESS(fatal, condition, what, ...)                                    \
	((condition) ? (void)0                                                    \
		     : (inprocess_note(__FILE__, __LINE__, what, "" __VA_ARGS__), \
			(fatal) ? inprocess_give_up() : (void)0))

#define cr_assert(condition, ...)     INPROCESS(true, (condition), #condition, __VA_ARGS__)
#define cr_expect(condition, ...)     INPROCESS(false, (condition), #condition, __VA_ARGS__)
#define cr_assert_not(condition, ...) INPROCESS(true, !(condition), "not " #condition, __VA_ARGS__)
#define cr_expect_not(condition, ...) INPROCESS(false, !(condition), "not " #condition, __VA_ARGS__)
#define cr_assert_fail(...)           INPROCESS(true, false, "must not come here", __VA_ARGS__)
#define cr_expect_fail(...)           INPROCESS(false, false, "must not come here", __VA_ARGS__)

#define cr_assert_eq(a, b, ...)  INPROCESS(true, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_expect_eq(a, b, ...)  INPROCESS(false, (a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) INPROCESS(true, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) INPROCESS(false, (a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...)  INPROCESS(true, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...)  INPROCESS(false, (a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) INPROCESS(true, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) INPROCESS(false, (a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...)  INPROCESS(true, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...)  INPROCESS(false, (a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) INPROCESS(true, (a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) INPROCESS(false, (a) >= (b), #a " >= " #b, __VA_ARGS__)

#define cr_assert_null(a, ...)     INPROCESS(true, (a) == NULL, #a " is null", __VA_ARGS__)
#define cr_expect_null(a, ...)     INPROCESS(false, (a) == NULL, #a " is null", __VA_ARGS__)
#define cr_assert_not_null(a, ...) INPROCESS(true, (a) != NULL, #a " is not null", __VA_ARGS__)
#define cr_expect_not_null(a, ...) INPROCESS(false, (a) != NULL, #a " is not null", __VA_ARGS__)

#define cr_assert_str_eq(a, b, ...) INPROCESS(true, strcmp(a, b) == 0, #a " reads " #b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) \
	INPROCESS(false, strcmp(a, b) == 0, #a " reads " #b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) \
	INPROCESS(true, strcmp(a, b) != 0, #a " does not read " #b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) \
	INPROCESS(false, strcmp(a, b) != 0, #a " does not read " #b, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) \
	INPROCESS(true, memcmp(a, b, size) == 0, #a " holds " #b, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, size, ...) \
	INPROCESS(false, memcmp(a, b, size) == 0, #a " holds " #b, __VA_ARGS__)

#define cr_skip_test(...) inprocess_skip()
#define cr_skip(...)      inprocess_skip()

#endif
