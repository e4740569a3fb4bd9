/* SPDX-License-Identifier: BSD-3-Clause */
/* The export protocol's messages, byte by byte: others build on them. */
#include "common/export_protocol.h"

#include <criterion/criterion.h>
#include <string.h>

/* ORQ1, version 1, write; offset 0x0102030405060708, length 0x1112131415161718, "scratch". */
static const uint8_t request_bytes[EXPORT_REQUEST_SIZE] = {
	'O',  'R',  'Q',  '1',  1,    2,    0,    0,    1,   2,   3,   4,   5,   6,   7,   8,
	0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 's', 'c', 'r', 'a', 't', 'c', 'h',
};

static const uint8_t reply_bytes[EXPORT_REPLY_SIZE] = {
	'O', 'R', 'X', '1', 1, 7, 0, 0, 1,    2,    3,    4,    5, 6, 7, 8,
	0,   0,   0,   0,   4, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0,
};

Test(export_protocol, a_request_has_its_documented_bytes)
{
	const struct export_request request = { .access = EXPORT_WRITE,
						.offset = 0x0102030405060708,
						.length = 0x1112131415161718,
						.name = "scratch" };
	uint8_t data[EXPORT_REQUEST_SIZE];
	struct export_request back;

	memset(data, 0xee, sizeof(data));
	export_request_encode(&request, data);
	cr_assert_arr_eq(data, request_bytes, sizeof(data));
	cr_assert(export_request_parse(data, sizeof(data), &back));
	cr_assert_eq(back.access, EXPORT_WRITE);
	cr_assert_eq(back.offset, request.offset);
	cr_assert_eq(back.length, request.length);
	cr_assert_str_eq(back.name, "scratch");
}

Test(export_protocol, B75_longer_data_is_fine_shorter_is_not)
{
	uint8_t data[EXPORT_REQUEST_SIZE + 16] = { 0 };
	struct export_request request;

	memcpy(data, request_bytes, sizeof(request_bytes));
	memset(data + sizeof(request_bytes), 0xff, 16);
	cr_assert(export_request_parse(data, sizeof(data), &request));
	for (uint32_t length = 0; length < EXPORT_REQUEST_SIZE; length++)
		cr_assert_not(export_request_parse(data, length, &request), "%u bytes", length);
}

Test(export_protocol, a_request_of_another_kind_or_version_or_with_unknown_bits_is_none)
{
	struct export_request request;

	for (unsigned int byte = 0; byte < 8; byte++) {
		for (unsigned int bit = 0; bit < 8; bit++) {
			uint8_t data[EXPORT_REQUEST_SIZE];
			bool rights = byte == 5 && bit < 3;

			memcpy(data, request_bytes, sizeof(data));
			data[byte] ^= (uint8_t)(1u << bit);
			cr_assert_eq(export_request_parse(data, sizeof(data), &request), rights,
				     "byte %u bit %u", byte, bit);
		}
	}
}

Test(export_protocol, a_name_may_fill_its_field)
{
	struct export_request request = { .name = "abcdefghijklmnopqrstuvwx" };
	uint8_t data[EXPORT_REQUEST_SIZE];
	struct export_request back;

	cr_assert_eq(strlen(request.name), EXPORT_NAME_SIZE);
	export_request_encode(&request, data);
	cr_assert_eq(data[EXPORT_REQUEST_SIZE - 1], 'x');
	cr_assert(export_request_parse(data, sizeof(data), &back));
	cr_assert_str_eq(back.name, request.name);
}

Test(export_protocol, a_reply_has_its_documented_bytes)
{
	const struct export_reply reply = {
		.access = 7, .address = 0x0102030405060708, .length = 1 << 26, .token = 0xaabbccdd
	};
	uint8_t data[EXPORT_REPLY_SIZE];
	struct export_reply back;

	memset(data, 0xee, sizeof(data));
	export_reply_encode(&reply, data);
	cr_assert_arr_eq(data, reply_bytes, sizeof(data));
	cr_assert(export_reply_parse(data, sizeof(data), &back));
	cr_assert_eq(back.token, 0xaabbccdd);
	cr_assert_eq(back.length, 1 << 26);
	cr_assert_not(export_reply_parse(data, sizeof(data) - 1, &back));
	data[4] = 2;
	cr_assert_not(export_reply_parse(data, sizeof(data), &back));
}

Test(export_protocol, a_refusal_by_message_carries_its_code_in_the_last_word)
{
	const struct export_reply reply = { .code = EXPORT_RANGE };
	uint8_t data[EXPORT_REPLY_SIZE];
	struct export_reply back;

	export_reply_encode(&reply, data);
	cr_assert_eq(data[5], 0);
	cr_assert_eq(data[31], 4);
	cr_assert(export_reply_parse(data, sizeof(data), &back));
	cr_assert_eq(back.code, EXPORT_RANGE);
}

Test(export_protocol, a_refusal_has_its_documented_bytes)
{
	static const uint8_t wanted[EXPORT_REFUSAL_SIZE] = { 'O', 'R', 'R', '1', 0, 0, 0, 6 };
	uint8_t data[EXPORT_REFUSAL_SIZE];
	uint32_t code;

	export_refusal_encode(EXPORT_PEER, data);
	cr_assert_arr_eq(data, wanted, sizeof(data));
	cr_assert(export_refusal_parse(data, sizeof(data), &code) && code == EXPORT_PEER);
	cr_assert_not(export_refusal_parse(data, sizeof(data) - 1, &code));
	data[3] = '2';
	cr_assert_not(export_refusal_parse(data, sizeof(data), &code));
}

Test(export_protocol, every_code_has_a_text_and_unknown_ones_too)
{
	for (uint32_t code = EXPORT_GRANTED; code <= EXPORT_PEER; code++)
		cr_assert(strlen(export_refusal_text(code)) > 3);
	cr_assert_str_eq(export_refusal_text(EXPORT_PEER + 1), "unknown reason");
	cr_assert_str_eq(export_refusal_text(UINT32_MAX), "unknown reason");
}
