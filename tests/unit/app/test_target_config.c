/* SPDX-License-Identifier: BSD-3-Clause */
/* The target's configuration: what a file becomes, and what a request of a client then gets. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>

#include "config_file.h"
#include "oriel-target/target.h"

static struct target_config config;

static int read_config(const char *text)
{
	int error = target_config_read(&config, config_file(text));

	config_file_remove();
	return error;
}

Test(target_config, a_file_becomes_exports)
{
	const struct target_export *export;

	cr_assert_eq(read_config("[target]\nsocket = /run/x.sock\n"
				 "[export a]\nlisten = 10.0.0.1:7471, [fd00::1]:7472\nsize = 64M\n"
				 "access = read,write\nallow = 10.0.0.0/24, fd00::/64, 10.9.9.9\n"
				 "[export b]\nlisten = 0.0.0.0:1\nsize = 4096\nbacking = hugepage\n"
				 "window = domain\n"
				 "[export c]\nlisten = [::]:65535\nbacking = file:/var/x\n"),
		     0);
	cr_assert_str_eq(config.socket, "/run/x.sock");
	cr_assert_eq(config.probe, 10, "seconds, without the key");
	cr_assert_eq(config.count, 3);
	export = &config.exports[0];
	cr_assert_str_eq(export->name, "a");
	cr_assert_eq(export->listens, 2);
	cr_assert_eq(export->listen[0].port, 7471);
	cr_assert_eq(export->listen[0].gid[11], 0xff);
	cr_assert_eq(export->listen[1].port, 7472);
	cr_assert_eq(export->listen[1].gid[0], 0xfd);
	cr_assert_eq(export->size, 64ull << 20);
	cr_assert_eq(export->access, EXPORT_READ | EXPORT_WRITE);
	cr_assert(export->tied);
	cr_assert_eq(export->backing, BACKING_MEMFD);
	cr_assert_eq(export->allows, 3);
	cr_assert_eq(export->allow[0].prefix_length, 120);
	cr_assert_eq(export->allow[1].prefix_length, 64);
	cr_assert_eq(export->allow[2].prefix_length, 128);
	cr_assert_eq(export->line, 4);
	cr_assert(config.exports[1].listen[0].any && !config.exports[1].tied);
	cr_assert_eq(config.exports[1].access, EXPORT_READ, "read alone is the default");
	cr_assert_eq(config.exports[1].backing, BACKING_HUGEPAGE);
	cr_assert(config.exports[2].listen[0].any && config.exports[2].size == 0);
	cr_assert_str_eq(config.exports[2].file, "/var/x");
}

Test(target_config, an_empty_list_of_allowed_peers_does_not_let_everybody_in)
{
	cr_redirect_stderr();
	cr_assert_eq(read_config("[export a]\nlisten = 10.0.0.1:1\nsize = 1K\nallow =\n"), -EINVAL);
	cr_assert_eq(read_config("[export a]\nlisten = 10.0.0.1:1\nsize = 1K\nallow = ,\n"),
		     -EINVAL);
}

Test(target_config, more_than_there_is_room_for_is_refused)
{
	char text[16384] = "";
	char *end = text;

	cr_redirect_stderr();
	for (unsigned int i = 0; i <= TARGET_MAX_EXPORTS; i++)
		end += sprintf(end, "[export e%u]\nlisten = 10.0.0.1:%u\nsize = 1K\n", i, i + 1);
	cr_assert_eq(read_config(text), -EINVAL);
	end = text + sprintf(text, "[export a]\nsize = 1K\nlisten = ");
	for (unsigned int i = 0; i <= TARGET_MAX_LISTEN; i++)
		end += sprintf(end, "10.0.0.1:%u,", i + 1);
	cr_assert_eq(read_config(text), -EINVAL);
	end = text + sprintf(text, "[export a]\nsize = 1K\nlisten = 10.0.0.1:1\nallow = ");
	for (unsigned int i = 0; i <= TARGET_MAX_ALLOW; i++)
		end += sprintf(end, "10.0.0.%u,", i + 1);
	cr_assert_eq(read_config(text), -EINVAL);
}

/* --- decisions ------------------------------------------------------------------------------- */

static struct target target;

static const struct target_address *prepare(void)
{
	cr_assert_eq(read_config("[export first]\nlisten = 10.0.0.1:1\nsize = 4096\n"
				 "[export second]\nlisten = 10.0.0.1:1, 10.0.0.1:2\nsize = 8192\n"
				 "access = read,write\n"),
		     0);
	target.config = config;
	target.memory[0].size = 4096;
	target.memory[1].size = 8192;
	return &target.config.exports[0].listen[0];
}

static uint32_t decide(const struct export_request *request, uint8_t *access, uint64_t *length)
{
	struct target_export *export;

	return window_decide(&target, prepare(), request, &export, access, length);
}

Test(target_decisions, an_empty_request_gets_all_of_the_first_export_at_the_address)
{
	uint64_t length = 0;
	uint8_t access = 0;

	cr_assert_eq(decide(&(struct export_request){ 0 }, &access, &length), EXPORT_GRANTED);
	cr_assert_eq(length, 4096);
	cr_assert_eq(access, EXPORT_READ);
}

Test(target_decisions, names_are_exact_and_belong_to_their_address)
{
	const struct export_request second = { .name = "second" };
	uint64_t length = 0;
	uint8_t access = 0;

	cr_assert_eq(decide(&second, &access, &length), EXPORT_GRANTED);
	cr_assert_eq(length, 8192);
	cr_assert_eq(decide(&(struct export_request){ .name = "secon" }, &access, &length),
		     EXPORT_UNKNOWN);
	cr_assert_eq(decide(&(struct export_request){ .name = "third" }, &access, &length),
		     EXPORT_UNKNOWN);
}

Test(target_decisions, every_right_that_is_wanted_must_be_granted)
{
	uint64_t length;
	uint8_t access;

	for (uint8_t want = 0; want < 8; want++) {
		struct export_request request = { .access = want, .name = "second" };

		cr_assert_eq(decide(&request, &access, &length),
			     want & EXPORT_ATOMIC ? EXPORT_ACCESS : EXPORT_GRANTED, "rights %u",
			     want);
	}
}

Test(target_decisions, B42_ranges_do_not_wrap)
{
	static const struct {
		uint64_t offset, length;
		uint32_t code;
	} cases[] = {
		{ 0, 4096, EXPORT_GRANTED },     { 4095, 1, EXPORT_GRANTED },
		{ 4095, 0, EXPORT_GRANTED },     { 4095, 2, EXPORT_RANGE },
		{ 4096, 0, EXPORT_RANGE },       { 0, 4097, EXPORT_RANGE },
		{ 1, UINT64_MAX, EXPORT_RANGE }, { UINT64_MAX, 1, EXPORT_RANGE },
		{ UINT64_MAX, 0, EXPORT_RANGE }, { 8, UINT64_MAX - 7, EXPORT_RANGE },
	};
	uint64_t length;
	uint8_t access;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct export_request request = { .offset = cases[i].offset,
						  .length = cases[i].length };

		cr_assert_eq(decide(&request, &access, &length), cases[i].code, "case %zu", i);
	}
}

static bool allowed(const char *networks, uint8_t last, uint8_t before)
{
	uint8_t gid[16] = { [10] = 0xff, [11] = 0xff, 10, 0, before, last };
	char text[256];

	snprintf(text, sizeof(text), "[export a]\nlisten = 10.0.0.1:1\nsize = 1K\nallow = %s\n",
		 networks);
	cr_assert_eq(read_config(text), 0);
	return peer_allowed(&config.exports[0], gid);
}

Test(target_decisions, peers_are_compared_with_every_bit_of_the_prefix)
{
	for (unsigned int last = 0; last < 256; last++) {
		cr_assert_eq(allowed("10.0.0.64/26", (uint8_t)last, 0), last / 64 == 1, "%u", last);
		cr_assert_eq(allowed("10.0.0.5", (uint8_t)last, 0), last == 5, "%u", last);
		cr_assert_eq(allowed("10.0.0.0/25, 10.0.0.200", (uint8_t)last, 0),
			     last < 128 || last == 200, "%u", last);
	}
	cr_assert(allowed("10.0.0.0/23", 9, 1) && !allowed("10.0.0.0/23", 9, 2));
	cr_assert(allowed("0.0.0.0/0", 9, 200));
	cr_assert_not(allowed("::/1", 9, 200) && allowed("fd00::/8", 9, 200));
	cr_assert_not(allowed("fd00::/8", 9, 200));
}
