/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulation's own reading of a RoCEv2 frame and its own ICRC. */
#include <stddef.h>
#include <string.h>

#include "frame.h"

/* --- CRC-32, eight bytes at a time ------------------------------------------------ */

static uint32_t crc_table[8][256];

static void crc_prepare(void)
{
	if (crc_table[0][1])
		return;
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
		crc_table[0][i] = crc;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^
					  crc_table[0][crc_table[k - 1][i] & 0xff];
}

static uint32_t le32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t crc_run(uint32_t crc, const uint8_t *bytes, uint32_t length)
{
	for (; length >= 8; length -= 8, bytes += 8) {
		const uint32_t low = crc ^ le32(bytes), high = le32(bytes + 4);

		crc = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^
		      crc_table[5][low >> 16 & 0xff] ^ crc_table[4][low >> 24] ^
		      crc_table[3][high & 0xff] ^ crc_table[2][high >> 8 & 0xff] ^
		      crc_table[1][high >> 16 & 0xff] ^ crc_table[0][high >> 24];
	}
	while (length--)
		crc = (crc >> 8) ^ crc_table[0][(crc ^ *bytes++) & 0xff];
	return crc;
}

/* Eight bytes of ones, the headers with what routers change set to ones, the rest. */
static uint32_t icrc_of(const uint8_t *frame, const struct frame_facts *facts)
{
	const uint32_t headers = facts->bth + 12 - facts->l3;
	uint8_t masked[8 + 40 + 8 + 12];
	uint8_t *ip = masked + 8;

	crc_prepare();
	memset(masked, 0xff, 8);
	memcpy(ip, frame + facts->l3, headers);
	if (facts->v4) {
		ip[1] = ip[8] = ip[10] = ip[11] = 0xff;
	} else {
		ip[0] |= 0x0f;
		ip[1] = ip[2] = ip[3] = ip[7] = 0xff;
	}
	ip[headers - 12 - 2] = ip[headers - 12 - 1] = 0xff; /* UDP checksum */
	ip[headers - 12 + 4] = 0xff;                        /* FECN, BECN, reserved */
	return ~crc_run(crc_run(~0u, masked, 8 + headers), frame + facts->bth + 12,
			facts->icrc - facts->bth - 12);
}

/* --- headers ---------------------------------------------------------------------- */

/* By RC opcode: name, bytes of extension headers, whether the first of them is an AETH. */
static const struct {
	const char *name;
	uint8_t extension;
	bool aeth;
} opcodes[] = {
	[0x00] = { "SEND_FIRST", 0, false },
	[0x01] = { "SEND_MIDDLE", 0, false },
	[0x02] = { "SEND_LAST", 0, false },
	[0x03] = { "SEND_LAST_IMM", 4, false },
	[0x04] = { "SEND_ONLY", 0, false },
	[0x05] = { "SEND_ONLY_IMM", 4, false },
	[0x06] = { "WRITE_FIRST", 16, false },
	[0x07] = { "WRITE_MIDDLE", 0, false },
	[0x08] = { "WRITE_LAST", 0, false },
	[0x09] = { "WRITE_LAST_IMM", 4, false },
	[0x0a] = { "WRITE_ONLY", 16, false },
	[0x0b] = { "WRITE_ONLY_IMM", 20, false },
	[0x0c] = { "READ_REQUEST", 16, false },
	[0x0d] = { "READ_RESP_FIRST", 4, true },
	[0x0e] = { "READ_RESP_MIDDLE", 0, false },
	[0x0f] = { "READ_RESP_LAST", 4, true },
	[0x10] = { "READ_RESP_ONLY", 4, true },
	[0x11] = { "ACKNOWLEDGE", 4, true },
	[0x12] = { "ATOMIC_ACK", 12, true },
	[0x13] = { "CMP_SWAP", 28, false },
	[0x14] = { "FETCH_ADD", 28, false },
	[0x16] = { "SEND_LAST_INV", 4, false },
	[0x17] = { "SEND_ONLY_INV", 4, false },
	[0x1d] = { "ATOMIC_WRITE", 16, false }, /* made by the network only */
	/* Unreliable connections, then datagrams. */
	[0x20] = { "UC_SEND_FIRST", 0, false },
	[0x21] = { "UC_SEND_MIDDLE", 0, false },
	[0x22] = { "UC_SEND_LAST", 0, false },
	[0x23] = { "UC_SEND_LAST_IMM", 4, false },
	[0x24] = { "UC_SEND_ONLY", 0, false },
	[0x25] = { "UC_SEND_ONLY_IMM", 4, false },
	[0x26] = { "UC_WRITE_FIRST", 16, false },
	[0x27] = { "UC_WRITE_MIDDLE", 0, false },
	[0x28] = { "UC_WRITE_LAST", 0, false },
	[0x29] = { "UC_WRITE_LST_IMM", 4, false },
	[0x2a] = { "UC_WRITE_ONLY", 16, false },
	[0x2b] = { "UC_WRITE_ONL_IMM", 20, false },
	[0x64] = { "UD_SEND_ONLY", 8, false },
	[0x65] = { "UD_SEND_ONLY_IMM", 12, false },
	[0x81] = { "CNP", 0, false },
};
#define OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))

static uint32_t be16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t be24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | be16(p + 1);
}

/* From Ethernet to UDP: where the BTH is and where UDP ends. */
static bool read_outer(const uint8_t *frame, uint32_t length, struct frame_facts *facts,
		       uint32_t *end)
{
	uint32_t l3 = 14, udp, type;

	if (length < 14 + 20 + 8 + 16)
		return false;
	type = be16(frame + 12);
	if (type == 0x8100) {
		type = be16(frame + 16);
		l3 = 18;
	}
	facts->v4 = type == 0x0800;
	if (!facts->v4 && type != 0x86dd)
		return false;
	udp = l3 + (facts->v4 ? 20 : 40);
	if (udp + 8 + 16 > length || frame[facts->v4 ? l3 + 9 : l3 + 6] != 17 ||
	    (facts->v4 && frame[l3] != 0x45) || (!facts->v4 && frame[l3] >> 4 != 6))
		return false;
	*end = udp + be16(frame + udp + 4);
	if (be16(frame + udp + 2) != 4791 || *end > length || *end < udp + 8 + 16)
		return false;
	if (facts->v4 ? l3 + be16(frame + l3 + 2) != *end : udp + be16(frame + l3 + 4) != *end)
		return false;
	facts->l3 = l3;
	facts->bth = udp + 8;
	facts->icrc = *end - 4;
	return true;
}

bool frame_read(const uint8_t *frame, uint32_t length, struct frame_facts *facts)
{
	uint32_t end, headers, pad;
	const uint8_t *bth;

	if (!read_outer(frame, length, facts, &end))
		return false;
	bth = frame + facts->bth;
	facts->opcode = bth[0];
	if (bth[0] >= OPCODES || opcodes[bth[0]].name == NULL || (bth[1] & 0x0f))
		return false;
	facts->name = opcodes[bth[0]].name;
	headers = 12u + opcodes[bth[0]].extension;
	pad = bth[1] >> 4 & 3;
	if (facts->bth + headers + pad > facts->icrc)
		return false;
	facts->payload = facts->icrc - facts->bth - headers - pad;
	facts->payload_at = facts->bth + headers;
	facts->qpn = be24(bth + 5);
	facts->psn = be24(bth + 9);
	facts->ack_request = bth[8] >> 7;
	facts->syndrome = opcodes[bth[0]].aeth ? bth[12] : 0;
	facts->msn = opcodes[bth[0]].aeth ? be24(bth + 13) : 0;
	return true;
}

bool frame_icrc_good(const uint8_t *frame, const struct frame_facts *facts)
{
	const uint32_t crc = icrc_of(frame, facts);
	const uint8_t *p = frame + facts->icrc;

	return p[0] == (crc & 0xff) && p[1] == (crc >> 8 & 0xff) && p[2] == (crc >> 16 & 0xff) &&
	       p[3] == crc >> 24;
}

static void repair_checksum(uint8_t *ip)
{
	uint32_t sum = 0;

	ip[10] = ip[11] = 0;
	for (int i = 0; i < 20; i += 2)
		sum += be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
}

void frame_repair_checksum(uint8_t *frame, const struct frame_facts *facts)
{
	repair_checksum(frame + facts->l3);
}

static bool checksum_right(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += be16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16) == 0xffff;
}

/* Requests, responses and atomics whose headers are all there is to them have none. */
static bool may_have_payload(uint8_t opcode)
{
	return opcode != 0x0c && opcode != 0x11 && opcode != 0x12 && opcode != 0x13 &&
	       opcode != 0x14;
}

static bool is_known(uint8_t opcode)
{
	return opcode < OPCODES && opcodes[opcode].name;
}

enum frame_verdict frame_judge(const uint8_t *frame, uint32_t length, struct frame_facts *facts)
{
	const uint8_t *ip;
	uint32_t end;

	*facts = (struct frame_facts){ 0 };
	if (!read_outer(frame, length, facts, &end))
		return FRAME_BAD;
	ip = frame + facts->l3;
	if (facts->v4 && (!checksum_right(ip) || (ip[6] & 0x3f) || ip[7]))
		return FRAME_BAD;
	facts->opcode = frame[facts->bth];
	if (!is_known(facts->opcode))
		return FRAME_UNKNOWN;
	if (!frame_read(frame, length, facts))
		return FRAME_BAD;
	if (!may_have_payload(facts->opcode) && facts->icrc != facts->payload_at)
		return FRAME_BAD;
	return FRAME_GOOD;
}

void frame_repair(uint8_t *frame, const struct frame_facts *facts)
{
	uint8_t *p = frame + facts->icrc;
	uint32_t crc;

	if (facts->v4)
		repair_checksum(frame + facts->l3);
	crc = icrc_of(frame, facts);
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(crc >> (8 * i));
}

uint8_t frame_ecn(const uint8_t *frame, const struct frame_facts *facts)
{
	const uint8_t *ip = frame + facts->l3;

	return facts->v4 ? ip[1] & 3 : ip[1] >> 4 & 3;
}

void frame_mark(uint8_t *frame, const struct frame_facts *facts)
{
	uint8_t *ip = frame + facts->l3;

	ip[1] |= facts->v4 ? 3 : 3 << 4;
	if (facts->v4)
		repair_checksum(ip);
}

const char *frame_complaint(const uint8_t *frame, uint32_t length)
{
	struct frame_facts facts;

	if (!frame_read(frame, length, &facts))
		return "it cannot be read";
	if (be16(frame + facts.bth + 2) != 0xffff)
		return "its P_Key is not 0xffff";
	if (!frame_icrc_good(frame, &facts))
		return "its ICRC is wrong";
	for (uint32_t i = 1; i <= (frame[facts.bth + 1] >> 4 & 3u); i++)
		if (frame[facts.icrc - i])
			return "its pad is not zero";
	return NULL;
}

bool frame_is_fatal_nak(const struct frame_facts *facts)
{
	return facts->opcode == 0x11 && facts->syndrome >= 0x61 && facts->syndrome <= 0x63;
}
