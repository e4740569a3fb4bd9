/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages by which perftest's two ends agree. */
#include "oriel-perf/perftest_exchange.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

/* --- version, numbers, MTU -------------------------------------------------------------------- */

void perftest_version_encode(uint8_t out[static PERFTEST_VERSION_SIZE])
{
	char text[PERFTEST_VERSION_SIZE] = "";

	snprintf(text, sizeof(text), "%u.%02u", PERFTEST_OURS / 100, PERFTEST_OURS % 100);
	memcpy(out, text, sizeof(text));
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool perftest_version_parse(const uint8_t in[static PERFTEST_VERSION_SIZE], uint32_t *version)
{
	char text[PERFTEST_VERSION_SIZE + 1] = "";
	const char *at = text;
	uint32_t whole = 0;

	memcpy(text, in, PERFTEST_VERSION_SIZE);
	while (is_digit(*at) && whole < 1000)
		whole = whole * 10 + (uint32_t)(*at++ - '0');
	if (at == text || *at++ != '.' || !is_digit(*at))
		return false;
	*version = whole * 100 + (uint32_t)(at[0] - '0') * 10;
	if (is_digit(at[1]))
		*version += (uint32_t)(at[1] - '0');
	return *version >= PERFTEST_OLDEST;
}

void perftest_number_encode(uint32_t number, uint8_t out[static PERFTEST_NUMBER_SIZE])
{
	number = htobe32(number);
	memcpy(out, &number, sizeof(number));
}

uint32_t perftest_number_parse(const uint8_t in[static PERFTEST_NUMBER_SIZE])
{
	uint32_t number;

	memcpy(&number, in, sizeof(number));
	return be32toh(number);
}

/* On the wire it is the code of verbs, 1 for 256 to 5 for 4096, as a digit. */
void perftest_mtu_encode(uint32_t mtu, uint8_t out[static PERFTEST_MTU_SIZE])
{
	out[0] = '1';
	while (mtu > 256 && out[0] < '5') {
		mtu /= 2;
		out[0]++;
	}
	out[1] = '\0';
}

bool perftest_mtu_parse(const uint8_t in[static PERFTEST_MTU_SIZE], uint32_t *mtu)
{
	if (in[0] < '1' || in[0] > '5' || in[1])
		return false;
	*mtu = 128u << (in[0] - '0');
	return true;
}

/* --- keys ------------------------------------------------------------------------------------- */

void perftest_key_text_encode(const struct perftest_key *key,
			      uint8_t out[static PERFTEST_KEY_TEXT_SIZE])
{
	char text[PERFTEST_KEY_TEXT_SIZE + 1];
	int length;

	length =
		snprintf(text, sizeof(text), "%04x:%04x:%06x:%06x:%08x:%016llx:", key->lid & 0xffff,
			 key->out_reads & 0xffff, key->qpn & 0xffffff, key->psn & 0xffffff,
			 key->rkey, (unsigned long long)key->address);
	for (unsigned int i = 0; i < sizeof(key->gid); i++)
		length += snprintf(text + length, sizeof(text) - (size_t)length,
				   "%02x:", key->gid[i]);
	snprintf(text + length, sizeof(text) - (size_t)length, "%08x:", key->srqn);
	memcpy(out, text, PERFTEST_KEY_TEXT_SIZE);
}

static int hex_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One field and its colon, from *at on. */
static bool take_hex(const uint8_t *in, size_t *at, unsigned int most, uint64_t *value)
{
	unsigned int digits = 0;

	*value = 0;
	while (*at < PERFTEST_KEY_TEXT_SIZE && digits < most && hex_digit(in[*at]) >= 0) {
		*value = *value << 4 | (uint64_t)hex_digit(in[(*at)++]);
		digits++;
	}
	return digits && *at < PERFTEST_KEY_TEXT_SIZE && in[(*at)++] == ':';
}

bool perftest_key_text_parse(const uint8_t in[static PERFTEST_KEY_TEXT_SIZE],
			     struct perftest_key *key)
{
	static const uint8_t widths[] = { 4, 4, 6, 6, 8, 16 };
	uint64_t fields[6], byte, srqn;
	size_t at = 0;

	for (unsigned int i = 0; i < 6; i++)
		if (!take_hex(in, &at, widths[i], &fields[i]))
			return false;
	for (unsigned int i = 0; i < sizeof(key->gid); i++) {
		if (!take_hex(in, &at, 2, &byte))
			return false;
		key->gid[i] = (uint8_t)byte;
	}
	if (!take_hex(in, &at, 8, &srqn))
		return false;
	key->lid = (uint32_t)fields[0];
	key->out_reads = (uint32_t)fields[1];
	key->qpn = (uint32_t)fields[2];
	key->psn = (uint32_t)fields[3];
	key->rkey = (uint32_t)fields[4];
	key->address = fields[5];
	key->srqn = (uint32_t)srqn;
	return true;
}

/* Both forms of struct pingpong_dest as x86-64 and arm64 lay it out, big-endian. */
struct key_form {
	uint32_t size, address, gid, srqn;
};

static const struct key_form key_forms[] = {
	{ .size = PERFTEST_KEY_BINARY_SIZE, .address = 24, .gid = 32, .srqn = 48 },
	{ .size = PERFTEST_KEY_LONG_SIZE, .address = 24, .gid = 40, .srqn = 56 },
};

static const struct key_form *key_form_of(size_t size)
{
	return &key_forms[size == PERFTEST_KEY_LONG_SIZE];
}

size_t perftest_key_binary_size(uint32_t version)
{
	return version < PERFTEST_LONG_KEYS ? PERFTEST_KEY_BINARY_SIZE : PERFTEST_KEY_LONG_SIZE;
}

void perftest_key_binary_encode(const struct perftest_key *key, size_t size, uint8_t *out)
{
	const struct key_form *form = key_form_of(size);
	const uint32_t head[] = { key->lid, key->out_reads, key->qpn, key->psn, key->rkey };
	uint64_t address = htobe64(key->address);

	memset(out, 0, size);
	for (unsigned int i = 0; i < 5; i++)
		perftest_number_encode(head[i], out + i * PERFTEST_NUMBER_SIZE);
	memcpy(out + form->address, &address, sizeof(address));
	memcpy(out + form->gid, key->gid, sizeof(key->gid));
	perftest_number_encode(key->srqn, out + form->srqn);
}

bool perftest_key_binary_parse(const uint8_t *in, size_t size, struct perftest_key *key)
{
	const struct key_form *form = key_form_of(size);
	uint64_t address;

	if (size != form->size)
		return false;
	key->lid = perftest_number_parse(in);
	key->out_reads = perftest_number_parse(in + 4);
	key->qpn = perftest_number_parse(in + 8) & 0xffffff;
	key->psn = perftest_number_parse(in + 12) & 0xffffff;
	key->rkey = perftest_number_parse(in + 16);
	memcpy(&address, in + form->address, sizeof(address));
	key->address = be64toh(address);
	memcpy(key->gid, in + form->gid, sizeof(key->gid));
	key->srqn = perftest_number_parse(in + form->srqn);
	return true;
}

/* --- reports ---------------------------------------------------------------------------------- */

static double *report_figure(struct perftest_report *report, unsigned int field)
{
	return field == 2 ? &report->peak : field == 3 ? &report->average : &report->rate;
}

void perftest_report_encode(const struct perftest_report *report, unsigned int field,
			    uint8_t out[static PERFTEST_REPORT_SIZE])
{
	struct perftest_report copy = *report;
	uint64_t bits = field ? copy.iterations : copy.size;

	if (field > 1)
		memcpy(&bits, report_figure(&copy, field), sizeof(bits));
	bits = htobe64(bits);
	memcpy(out, &bits, sizeof(bits));
}

void perftest_report_parse(const uint8_t in[static PERFTEST_REPORT_SIZE], unsigned int field,
			   struct perftest_report *report)
{
	uint64_t bits;

	memcpy(&bits, in, sizeof(bits));
	bits = be64toh(bits);
	if (field == 0)
		report->size = bits;
	else if (field == 1)
		report->iterations = bits;
	else
		memcpy(report_figure(report, field), &bits, sizeof(bits));
}

/* --- addresses -------------------------------------------------------------------------------- */

static const uint8_t ipv4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

void perftest_gid_of(const struct sockaddr_storage *address, uint8_t gid[static 16])
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;

	if (address->ss_family == AF_INET6) {
		memcpy(gid, &in6->sin6_addr, 16);
		return;
	}
	memcpy(gid, ipv4_prefix, sizeof(ipv4_prefix));
	memcpy(gid + sizeof(ipv4_prefix), &in->sin_addr, 4);
}

void perftest_gid_address(const uint8_t gid[static 16], struct sockaddr_storage *address)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *in = (struct sockaddr_in *)address;

	memset(address, 0, sizeof(*address));
	if (!memcmp(gid, ipv4_prefix, sizeof(ipv4_prefix))) {
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, gid + sizeof(ipv4_prefix), 4);
		return;
	}
	in6->sin6_family = AF_INET6;
	memcpy(&in6->sin6_addr, gid, 16);
}
