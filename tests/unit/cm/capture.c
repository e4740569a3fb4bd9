/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the CM's MADs out of a pcap file (classic format, microseconds, little-endian). */
#include "capture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "wire/byteorder.h"
#include "wire/ip.h"

#define FILE_HEADER   24u
#define RECORD_HEADER 16u
#define UD_SEND_ONLY  0x64u
#define MAD_OFFSET    28u /* UDP 8, BTH 12, DETH 8 */

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The UDP header of an untagged frame, or NULL. */
static const uint8_t *find_udp(const uint8_t *frame, struct captured *c)
{
	memcpy(c->source_mac, frame + 6, 6);
	if (get_be16(frame + 12) == 0x0800 && frame[23] == 17) {
		gid_from_v4(c->source, frame + 26);
		gid_from_v4(c->destination, frame + 30);
		return frame + 14 + 20;
	}
	if (get_be16(frame + 12) == 0x86dd && frame[20] == 17) {
		memcpy(c->source, frame + 22, 16);
		memcpy(c->destination, frame + 38, 16);
		return frame + 14 + 40;
	}
	return NULL;
}

uint32_t capture_read(const char *name, struct captured mads[CAPTURE_MOST])
{
	static uint8_t data[1 << 20];
	char path[512];
	uint32_t count = 0;
	size_t size;
	FILE *file;

	snprintf(path, sizeof(path), TEST_DATA "/pcaps/%s.pcap", name);
	file = fopen(path, "rb");
	cr_assert_not_null(file, "%s", path);
	size = fread(data, 1, sizeof(data), file);
	fclose(file);
	cr_assert_gt(size, FILE_HEADER);
	for (size_t at = FILE_HEADER; at + RECORD_HEADER <= size;) {
		uint32_t length = le32(data + at + 8);
		const uint8_t *frame = data + at + RECORD_HEADER;
		const uint8_t *udp = find_udp(frame, &mads[count]);

		at += RECORD_HEADER + length;
		if (!udp || udp + MAD_OFFSET + 256 > frame + length || udp[8] != UD_SEND_ONLY ||
		    get_be24(udp + 13) != 1)
			continue;
		memcpy(mads[count].mad, udp + MAD_OFFSET, 256);
		cr_assert_lt(++count, CAPTURE_MOST);
	}
	return count;
}
