/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames from files and from hand, and the ICRC by its definition. */
#include "frames.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint16_t word_at(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void put_word(uint8_t *p, uint32_t value)
{
	p[0] = (uint8_t)(value >> 8);
	p[1] = (uint8_t)value;
}

/* --- vectors ---------------------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void vector_decode(const char *line, struct frame *frame)
{
	const char *hex = strchr(line, ' ');

	cr_assert_not_null(hex, "vector without a frame: %s", line);
	snprintf(frame->name, sizeof(frame->name), "%.*s", (int)(hex - line), line);
	frame->length = 0;
	for (hex++; hex_digit(hex[0]) >= 0; hex += 2) {
		cr_assert(hex_digit(hex[1]) >= 0 && frame->length < FRAME_MAX, "%s: bad hex",
			  frame->name);
		frame->bytes[frame->length++] =
			(uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
	}
}

unsigned int vectors_each(frame_visitor *visit, void *context)
{
	static struct frame frame;
	FILE *file = fopen(TEST_DATA "/icrc-vectors.txt", "r");
	char *line = NULL;
	size_t size = 0;
	unsigned int count = 0;

	cr_assert_not_null(file, "cannot open %s/icrc-vectors.txt", TEST_DATA);
	while (getline(&line, &size, file) > 0) {
		vector_decode(line, &frame);
		visit(&frame, context);
		count++;
	}
	free(line);
	fclose(file);
	return count;
}

struct wanted {
	const char *name;
	struct frame *frame;
	bool found;
};

static void vector_match(const struct frame *frame, void *context)
{
	struct wanted *wanted = context;

	if (strcmp(frame->name, wanted->name) != 0)
		return;
	*wanted->frame = *frame;
	wanted->found = true;
}

void vector_get(const char *name, struct frame *frame)
{
	struct wanted wanted = { .name = name, .frame = frame };

	vectors_each(vector_match, &wanted);
	cr_assert(wanted.found, "no vector %s", name);
}

/* --- captures --------------------------------------------------------------------------- */

#define PCAP_MAGIC    0xa1b2c3d4u
#define PCAP_ETHERNET 1u

static unsigned int capture_read(const char *path, const char *name, frame_visitor *visit,
				 void *context)
{
	static struct frame frame;
	FILE *file = fopen(path, "rb");
	uint32_t header[6], record[4];
	unsigned int count = 0;

	cr_assert_not_null(file, "cannot open %s", path);
	cr_assert(fread(header, sizeof(header), 1, file) == 1 && header[0] == PCAP_MAGIC &&
			  header[5] == PCAP_ETHERNET,
		  "%s: not a little-endian pcap of Ethernet", path);
	while (fread(record, sizeof(record), 1, file) == 1) {
		cr_assert(record[2] == record[3] && record[2] <= FRAME_MAX, "%s: cut frame", path);
		frame.length = record[2];
		cr_assert_eq(fread(frame.bytes, 1, frame.length, file), frame.length, "%s", path);
		snprintf(frame.name, sizeof(frame.name), "%.60s:%u", name, ++count);
		visit(&frame, context);
	}
	fclose(file);
	return count;
}

unsigned int captures_each(frame_visitor *visit, void *context)
{
	DIR *directory = opendir(TEST_DATA "/pcaps");
	const struct dirent *entry;
	unsigned int count = 0;
	char path[1024];

	cr_assert_not_null(directory, "cannot open %s/pcaps", TEST_DATA);
	while ((entry = readdir(directory))) {
		if (!strstr(entry->d_name, ".pcap"))
			continue;
		snprintf(path, sizeof(path), "%s/pcaps/%s", TEST_DATA, entry->d_name);
		count += capture_read(path, entry->d_name, visit, context);
	}
	closedir(directory);
	return count;
}

/* --- layout ----------------------------------------------------------------------------- */

uint32_t frame_l3(const struct frame *frame)
{
	uint32_t offset = 12;

	while (word_at(frame->bytes + offset) == 0x8100 || word_at(frame->bytes + offset) == 0x88a8)
		offset += 4;
	return offset + 2;
}

static bool is_v4(const struct frame *frame)
{
	return frame->bytes[frame_l3(frame)] >> 4 == 4;
}

uint32_t frame_bth(const struct frame *frame)
{
	return frame_l3(frame) + (is_v4(frame) ? 20 : 40) + 8;
}

bool frame_is_roce(const struct frame *frame)
{
	const uint8_t *l3 = frame->bytes + frame_l3(frame);
	const uint16_t type = word_at(l3 - 2);

	if (frame->length < 60 - 2 || (type != 0x0800 && type != 0x86dd))
		return false;
	return (is_v4(frame) ? l3[9] : l3[6]) == 17 &&
	       word_at(frame->bytes + frame_bth(frame) - 6) == 4791;
}

uint8_t *frame_guarded(const uint8_t *bytes, uint32_t length)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t room = (FRAME_MAX + page - 1) / page * page;
	static uint8_t *area;

	if (!area) {
		area = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
		cr_assert_neq(area, MAP_FAILED);
		cr_assert_eq(mprotect(area + room, page, PROT_NONE), 0);
	}
	cr_assert_leq(length, FRAME_MAX);
	return memcpy(area + room - length, bytes, length);
}

/* --- frames by hand --------------------------------------------------------------------- */

static uint32_t checksum_sum(const uint8_t *p, uint32_t length)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < length; i += 2)
		sum += word_at(p + i);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

void frame_fix_checksum(struct frame *frame)
{
	uint8_t *ip = frame->bytes + frame_l3(frame);

	if (!is_v4(frame))
		return;
	put_word(ip + 10, 0);
	put_word(ip + 10, ~checksum_sum(ip, (ip[0] & 15) * 4u) & 0xffff);
}

void frame_start(struct frame *frame, bool v4, uint32_t udp_payload)
{
	static const uint8_t ethernet[12] = { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1 };
	static const uint8_t ipv4[20] = { 0x45, 0, 0,   0, 0, 0, 0x40, 0, 64, 17,
					  0,    0, 192, 0, 2, 1, 192,  0, 2,  2 };
	static const uint8_t ipv6[40] = {
		0x60, 0,    0,    0,        0,    0,    17,   64,   0x20,
		0x01, 0x0d, 0xb8, [23] = 1, 0x20, 0x01, 0x0d, 0xb8, [39] = 2
	};
	uint8_t *l3 = frame->bytes + 14, *udp;

	memset(frame, 0, sizeof(*frame));
	memcpy(frame->bytes, ethernet, sizeof(ethernet));
	put_word(frame->bytes + 12, v4 ? 0x0800 : 0x86dd);
	memcpy(l3, v4 ? ipv4 : ipv6, v4 ? sizeof(ipv4) : sizeof(ipv6));
	put_word(l3 + (v4 ? 2 : 4), (v4 ? 28 : 8) + udp_payload);
	udp = l3 + (v4 ? 20 : 40);
	put_word(udp, 0xc001);
	put_word(udp + 2, 4791);
	put_word(udp + 4, 8 + udp_payload);
	frame->length = (uint32_t)(udp + 8 - frame->bytes) + udp_payload;
	frame_fix_checksum(frame);
}

void frame_tag(struct frame *frame, uint16_t tpid, uint16_t tci)
{
	memmove(frame->bytes + 16, frame->bytes + 12, frame->length - 12);
	put_word(frame->bytes + 12, tpid);
	put_word(frame->bytes + 14, tci);
	frame->length += 4;
}

void frame_pad_to(struct frame *frame, uint32_t length)
{
	if (frame->length >= length)
		return;
	memset(frame->bytes + frame->length, 0, length - frame->length);
	frame->length = length;
}

/* --- ICRC by the definition ------------------------------------------------------------- */

/* One bit after the other through the shift register of polynomial 0x04C11DB7, reflected. */
static uint32_t feed(uint32_t crc, uint8_t byte)
{
	for (unsigned int bit = 0; bit < 8; bit++) {
		uint32_t in = (crc ^ (byte >> bit)) & 1;

		crc = crc >> 1 ^ (in ? 0xedb88320u : 0);
	}
	return crc;
}

/* The byte as the ICRC sees it. at: offset from the IP header. */
static uint8_t masked(bool v4, uint32_t at, uint8_t byte)
{
	const uint32_t udp = v4 ? 20 : 40;

	if (at == udp + 6 || at == udp + 7 || at == udp + 8 + 4)
		return 0xff;
	if (v4)
		return at == 1 || at == 8 || at == 10 || at == 11 ? 0xff : byte;
	if (at == 0)
		return byte | 0x0f;
	return at <= 3 || at == 7 ? 0xff : byte;
}

uint32_t reference_icrc(const uint8_t *bytes, uint32_t l3)
{
	const bool v4 = bytes[l3] >> 4 == 4;
	const uint32_t udp = v4 ? 20 : 40;
	const uint32_t end = udp + word_at(bytes + l3 + udp + 4) - 4;
	uint32_t crc = 0xffffffff;

	for (unsigned int i = 0; i < 8; i++)
		crc = feed(crc, 0xff);
	for (uint32_t at = 0; at < end; at++)
		crc = feed(crc, masked(v4, at, bytes[l3 + at]));
	return ~crc;
}

void frame_seal(struct frame *frame)
{
	const uint32_t l3 = frame_l3(frame);
	const uint32_t udp = l3 + (is_v4(frame) ? 20 : 40);
	uint8_t *icrc = frame->bytes + udp + word_at(frame->bytes + udp + 4) - 4;
	uint32_t crc = reference_icrc(frame->bytes, l3);

	for (unsigned int i = 0; i < 4; i++)
		icrc[i] = (uint8_t)(crc >> (8 * i));
}
