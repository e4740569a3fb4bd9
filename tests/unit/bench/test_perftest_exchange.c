/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's messages, byte by byte as stock ones send them. */
#include "oriel-perf/perftest_exchange.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <string.h>

/* What ib_write_bw of perftest 4.5 on 10.0.0.2 sent. */
static const char stock_key[] = "0000:0001:000015:4840e1:000009a6:0000560acab15000:"
				"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:02:00000000:";

static const struct perftest_key key = {
	.out_reads = 1,
	.qpn = 0x15,
	.psn = 0x4840e1,
	.rkey = 0x9a6,
	.address = 0x560acab15000,
	.gid = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2 },
};

static void must_be_key(const struct perftest_key *got)
{
	cr_assert_eq(got->lid, key.lid);
	cr_assert_eq(got->out_reads, key.out_reads);
	cr_assert_eq(got->qpn, key.qpn);
	cr_assert_eq(got->psn, key.psn);
	cr_assert_eq(got->rkey, key.rkey);
	cr_assert_eq(got->address, key.address);
	cr_assert_arr_eq(got->gid, key.gid, sizeof(key.gid));
}

Test(perftest_exchange, a_key_on_tcp_is_the_line_that_stock_ends_send)
{
	uint8_t line[PERFTEST_KEY_TEXT_SIZE];
	struct perftest_key back;

	cr_assert_eq(sizeof(stock_key), PERFTEST_KEY_TEXT_SIZE);
	perftest_key_text_encode(&key, line);
	cr_assert_arr_eq(line, stock_key, sizeof(line));
	memset(&back, 0xee, sizeof(back));
	cr_assert(perftest_key_text_parse(line, &back));
	must_be_key(&back);
	cr_assert_eq(back.srqn, 0);
}

Test(perftest_exchange, the_largest_key_fits_and_larger_numbers_are_cut)
{
	struct perftest_key large = { .lid = 0x12345678,
				      .out_reads = UINT32_MAX,
				      .qpn = UINT32_MAX,
				      .psn = UINT32_MAX,
				      .rkey = UINT32_MAX,
				      .srqn = UINT32_MAX,
				      .address = UINT64_MAX };
	uint8_t line[PERFTEST_KEY_TEXT_SIZE];
	struct perftest_key back;

	memset(large.gid, 0xfe, sizeof(large.gid));
	perftest_key_text_encode(&large, line);
	cr_assert_eq(line[PERFTEST_KEY_TEXT_SIZE - 1], '\0');
	cr_assert(perftest_key_text_parse(line, &back));
	cr_assert_eq(back.lid, 0x5678);
	cr_assert_eq(back.qpn, 0xffffff);
	cr_assert_eq(back.rkey, UINT32_MAX);
	cr_assert_eq(back.address, UINT64_MAX);
	cr_assert_arr_eq(back.gid, large.gid, sizeof(large.gid));
}

/* Each byte in turn replaced by what no hexadecimal number has. */
Test(perftest_exchange, a_line_that_is_no_key_is_refused)
{
	struct perftest_key back;

	for (unsigned int i = 0; i < PERFTEST_KEY_TEXT_SIZE - 1; i++) {
		uint8_t line[PERFTEST_KEY_TEXT_SIZE];

		memcpy(line, stock_key, sizeof(line));
		line[i] = i % 2 ? 'g' : '\0';
		cr_assert_not(perftest_key_text_parse(line, &back), "byte %u", i);
	}
}

Test(perftest_exchange, a_key_as_a_send_has_the_places_of_both_versions)
{
	static const struct {
		uint32_t version, size, gid;
	} forms[] = { { 606, 56, 32 }, { 628, 56, 32 }, { 629, 64, 40 } };
	static const uint8_t head[] = { 0,    0, 0,    0,    0,    0,    0,    1,    0,    0, 0,
					0x15, 0, 0x48, 0x40, 0xe1, 0,    0,    9,    0xa6, 0, 0,
					0,    0, 0,    0,    0x56, 0x0a, 0xca, 0xb1, 0x50, 0 };

	for (unsigned int i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		uint8_t data[PERFTEST_KEY_LONG_SIZE];
		struct perftest_key back;

		cr_assert_eq(perftest_key_binary_size(forms[i].version), forms[i].size);
		perftest_key_binary_encode(&key, forms[i].size, data);
		cr_assert_arr_eq(data, head, sizeof(head));
		cr_assert_arr_eq(data + forms[i].gid, key.gid, sizeof(key.gid));
		cr_assert(perftest_key_binary_parse(data, forms[i].size, &back));
		must_be_key(&back);
		cr_assert_not(perftest_key_binary_parse(data, forms[i].size - 4, &back));
	}
}

Test(perftest_exchange, our_version_is_below_that_of_the_negotiation)
{
	uint8_t ours[PERFTEST_VERSION_SIZE];
	uint32_t version;

	perftest_version_encode(ours);
	cr_assert_str_eq((const char *)ours, "6.10");
	cr_assert(perftest_version_parse(ours, &version));
	cr_assert_eq(version, 610);
	cr_assert_lt(version, 628);
}

Test(perftest_exchange, versions_are_decimal_fractions)
{
	static const struct {
		const char *text;
		uint32_t version;
	} good[] = { { "6.06", 606 },   { "5.7", 570 },  { "5.96", 596 },
		     { "26.04", 2604 }, { "6.29", 629 }, { "6.290", 629 } };
	static const char *const bad[] = { "", "6", "6.", ".6", "x.10", "5.69", "-6.10" };
	uint8_t text[PERFTEST_VERSION_SIZE];
	uint32_t version;

	for (unsigned int i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		memset(text, 0, sizeof(text));
		memcpy(text, good[i].text, strlen(good[i].text));
		cr_assert(perftest_version_parse(text, &version), "%s", good[i].text);
		cr_assert_eq(version, good[i].version, "%s: %u", good[i].text, version);
	}
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(text, 0, sizeof(text));
		memcpy(text, bad[i], strlen(bad[i]));
		cr_assert_not(perftest_version_parse(text, &version), "%s", bad[i]);
	}
	memset(text, '9', sizeof(text)); /* sixteen of them and no end */
	cr_assert_not(perftest_version_parse(text, &version));
}

Test(perftest_exchange, an_mtu_is_a_digit)
{
	uint8_t data[PERFTEST_MTU_SIZE];
	uint32_t mtu;

	for (unsigned int i = 0; i < 5; i++) {
		perftest_mtu_encode(256u << i, data);
		cr_assert_eq(data[0], '1' + i);
		cr_assert_eq(data[1], 0);
		cr_assert(perftest_mtu_parse(data, &mtu));
		cr_assert_eq(mtu, 256u << i);
	}
	cr_assert_not(perftest_mtu_parse((const uint8_t *)"0", &mtu));
	cr_assert_not(perftest_mtu_parse((const uint8_t *)"6", &mtu));
	cr_assert_not(perftest_mtu_parse((const uint8_t *)"33", &mtu));
}

Test(perftest_exchange, numbers_are_big_endian)
{
	uint8_t data[PERFTEST_NUMBER_SIZE];

	perftest_number_encode(4096, data);
	cr_assert_arr_eq(data, ((const uint8_t[]){ 0, 0, 0x10, 0 }), 4);
	cr_assert_eq(perftest_number_parse(data), 4096);
}

Test(perftest_exchange, a_report_is_five_big_endian_fields)
{
	static const uint8_t bytes[PERFTEST_REPORT_FIELDS][PERFTEST_REPORT_SIZE] = {
		{ 0, 0, 0, 0, 0, 1, 0, 0 },       { 0, 0, 0, 0, 0, 0, 0x13, 0x88 },
		{ 0x40, 0x59, 0, 0, 0, 0, 0, 0 }, { 0x40, 0x09, 0, 0, 0, 0, 0, 0 },
		{ 0xbf, 0xe0, 0, 0, 0, 0, 0, 0 },
	};
	const struct perftest_report report = {
		.size = 65536, .iterations = 5000, .peak = 100, .average = 3.125, .rate = -0.5
	};
	struct perftest_report back = { 0 };
	uint8_t data[PERFTEST_REPORT_SIZE];

	for (unsigned int i = 0; i < PERFTEST_REPORT_FIELDS; i++) {
		perftest_report_encode(&report, i, data);
		cr_assert_arr_eq(data, bytes[i], sizeof(data), "field %u", i);
		perftest_report_parse(data, i, &back);
	}
	cr_assert_eq(back.size, 65536);
	cr_assert_eq(back.iterations, 5000);
	cr_assert_eq(back.peak, 100);
	cr_assert_eq(back.average, 3.125);
	cr_assert_eq(back.rate, -0.5);
}

Test(perftest_exchange, gids_are_addresses_of_both_families)
{
	struct sockaddr_storage address, back;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address;
	uint8_t gid[16];

	perftest_gid_address(key.gid, &address);
	cr_assert_eq(address.ss_family, AF_INET);
	cr_assert_eq(((struct sockaddr_in *)&address)->sin_addr.s_addr, htonl(0x0a000002));
	perftest_gid_of(&address, gid);
	cr_assert_arr_eq(gid, key.gid, sizeof(gid));

	memset(&address, 0, sizeof(address));
	in6->sin6_family = AF_INET6;
	inet_pton(AF_INET6, "fd77::2", &in6->sin6_addr);
	perftest_gid_of(&address, gid);
	perftest_gid_address(gid, &back);
	cr_assert_arr_eq(&back, &address, sizeof(back));
}
