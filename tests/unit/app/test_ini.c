/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading of INI files: lines, values, lists, addresses, and how a value is refused. */
#include "common/ini.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "config_file.h"

#define MOST 16

struct seen {
	unsigned int count;
	unsigned int line[MOST];
	char text[MOST][128]; /* section/key=value */
};

static void remember(void *context, const struct ini_entry *entry)
{
	struct seen *seen = context;

	cr_assert(seen->count < MOST);
	seen->line[seen->count] = entry->reader->line;
	snprintf(seen->text[seen->count++], sizeof(seen->text[0]), "%.30s/%.30s=%.60s",
		 entry->section, entry->key, entry->value);
}

static int read_text(const char *text, struct seen *seen, char *messages, size_t room)
{
	FILE *out = fmemopen(messages, room, "w");
	struct ini_reader reader = { .messages = out };
	int error;

	memset(seen, 0, sizeof(*seen));
	error = ini_read(&reader, config_file(text), remember, seen);
	fclose(out);
	config_file_remove();
	return error;
}

Test(ini, every_entry_comes_with_its_line)
{
	char messages[512] = "";
	struct seen seen;

	cr_assert_eq(read_text("; comment\n\n[a]\nx = 1\r\n\n[b c]\ny=2 ; behind\n\tz = 3", &seen,
			       messages, sizeof(messages)),
		     0);
	cr_assert_eq(seen.count, 3);
	cr_assert_str_eq(seen.text[0], "a/x=1");
	cr_assert_str_eq(seen.text[1], "b c/y=2");
	cr_assert_eq(seen.line[0], 4);
	cr_assert_eq(seen.line[1], 7);
	cr_assert_eq(seen.line[2], 8);
}

Test(ini, what_is_no_entry_is_refused_by_line)
{
	char messages[512] = "";
	struct seen seen;

	cr_assert_eq(read_text("[a]\nx = 1\nnonsense\n", &seen, messages, sizeof(messages)),
		     -EINVAL);
	cr_assert(strstr(messages, ":3: not a section"));
}

Test(ini, a_line_that_is_too_long_is_refused_not_cut)
{
	char text[4096], messages[512] = "";
	struct seen seen;

	memset(text, 'v', sizeof(text));
	memcpy(text, "[a]\nx = ", 8);
	strcpy(text + sizeof(text) - 8, "\ny = 2\n");
	cr_assert_eq(read_text(text, &seen, messages, sizeof(messages)), -EINVAL);
	cr_assert(strstr(messages, ":2: line longer than"));
}

Test(ini, an_absent_file_is_named)
{
	char messages[256] = "";
	FILE *out = fmemopen(messages, sizeof(messages), "w");
	struct ini_reader reader = { .messages = out };
	struct seen seen = { 0 };

	cr_assert_eq(ini_read(&reader, "/absent/file", remember, &seen), -ENOENT);
	fclose(out);
	cr_assert(strstr(messages, "/absent/file: "));
}

/* --- values ------------------------------------------------------------------------------- */

static char message[512];
static struct ini_reader reader = { .path = "F", .line = 7 };

/* Calls of one kind on a value, with what is said in `message`. */
static struct ini_entry entry_of(const char *value)
{
	message[0] = '\0';
	reader.errors = 0;
	reader.messages = fmemopen(message, sizeof(message), "w");
	return (struct ini_entry){ &reader, "s", "k", value };
}

static bool number(const char *value, uint64_t minimum, uint64_t maximum, uint64_t *out)
{
	struct ini_entry entry = entry_of(value);
	bool good = ini_get_number(&entry, minimum, maximum, out);

	fclose(reader.messages);
	cr_assert_eq(reader.errors, !good);
	return good;
}

static bool size(const char *value, uint64_t *out)
{
	struct ini_entry entry = entry_of(value);
	bool good = ini_get_size(&entry, out);

	fclose(reader.messages);
	cr_assert_eq(reader.errors, !good);
	return good;
}

Test(ini, B116_only_plain_numbers_in_range_are_numbers)
{
	static const char *const bad[] = { "",
					   "-1",
					   "+1",
					   "1e3",
					   "0x10",
					   "1500abc",
					   "4294967296",
					   " 1",
					   "1 ",
					   "1.0",
					   "18446744073709551616",
					   "99999999999999999999999" };
	uint64_t value;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(number(bad[i], 0, 4294967295u, &value), "'%s' is taken", bad[i]);
	cr_assert(number("0", 0, 10, &value) && value == 0);
	cr_assert(number("0010", 0, 10, &value) && value == 10);
	cr_assert(number("18446744073709551615", 0, UINT64_MAX, &value) && value == UINT64_MAX);
	cr_assert_not(number("11", 0, 10, &value));
	cr_assert_not(number("0", 1, 10, &value));
}

Test(ini, a_refusal_names_file_line_section_key_value_and_what_is_expected)
{
	uint64_t value;

	cr_assert_not(number("x", 1, 9, &value));
	cr_assert_str_eq(message, "F:7: [s] k = x: expected a number from 1 to 9\n");
}

Test(ini, sizes_know_K_M_G_T_and_nothing_else)
{
	static const char *const bad[] = { "",
					   "0",
					   "0K",
					   "K",
					   "1KB",
					   "1 K",
					   "1.5M",
					   "-1",
					   "1P",
					   "18446744073709551615",
					   "9007199254740992T" };
	uint64_t value;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(size(bad[i], &value), "'%s' is taken", bad[i]);
	cr_assert(size("1", &value) && value == 1);
	cr_assert(size("64K", &value) && value == 65536);
	cr_assert(size("64m", &value) && value == 64ull << 20);
	cr_assert(size("2G", &value) && value == 2ull << 30);
	cr_assert(size("3t", &value) && value == 3ull << 40);
}

Test(ini, strings_must_fit_and_choices_must_be_known)
{
	static const char *const choices[] = { "red", "green", "blue", NULL };
	struct ini_entry entry = entry_of("12345");
	unsigned int index = 9;
	char buffer[6];

	cr_assert(ini_get_string(&entry, buffer, 6));
	cr_assert_str_eq(buffer, "12345");
	cr_assert_not(ini_get_string(&entry, buffer, 5));
	entry.value = "";
	cr_assert_not(ini_get_string(&entry, buffer, 5));
	entry.value = "blue";
	cr_assert(ini_get_choice(&entry, choices, &index) && index == 2);
	entry.value = "Blue";
	cr_assert_not(ini_get_choice(&entry, choices, &index));
	fclose(reader.messages);
	cr_assert(strstr(message, "expected red, green or blue"));
}

Test(ini, lists_are_taken_apart_at_commas_and_trimmed)
{
	const char *list = " a,b c ,\td\t,, e";
	static const char *const wanted[] = { "a", "b c", "d", "e" };
	char element[8];

	for (size_t i = 0; i < 4; i++) {
		cr_assert(ini_next(&list, element, sizeof(element)));
		cr_assert_str_eq(element, wanted[i]);
	}
	cr_assert_not(ini_next(&list, element, sizeof(element)));
	list = "much-too-long,b";
	cr_assert(ini_next(&list, element, sizeof(element)));
	cr_assert_eq(strlen(element), 7);
	cr_assert(ini_next(&list, element, sizeof(element)));
	cr_assert_str_eq(element, "b");
}

Test(ini, B82_addresses_of_both_families_and_no_mapped_ones)
{
	static const char *const bad[] = { "",        "10.0.0",    "10.0.0.256", "::ffff:10.0.0.1",
					   "fd00::g", "10.0.0.1 ", "localhost" };
	uint8_t gid[16];
	char text[64];
	bool v4;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(address_parse(bad[i], gid, &v4), "'%s' is taken", bad[i]);
	cr_assert(address_parse("10.1.2.3", gid, &v4) && v4);
	cr_assert_eq(gid[9], 0);
	cr_assert_eq(gid[11], 0xff);
	cr_assert_eq(gid[15], 3);
	cr_assert_str_eq(address_format(gid, text), "10.1.2.3");
	cr_assert(address_parse("fd00::1", gid, &v4) && !v4);
	cr_assert_str_eq(address_format(gid, text), "fd00::1");
}
