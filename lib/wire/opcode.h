/* SPDX-License-Identifier: BSD-3-Clause */
/* All opcodes of RC, UC and UD with their header sequence, in one table. */
#ifndef WIRE_OPCODE_H
#define WIRE_OPCODE_H

#include <stdalign.h>
#include <stdint.h>

enum roce_opcode {
	OP_RC_SEND_FIRST = 0x00,
	OP_RC_SEND_MIDDLE,
	OP_RC_SEND_LAST,
	OP_RC_SEND_LAST_IMM,
	OP_RC_SEND_ONLY,
	OP_RC_SEND_ONLY_IMM,
	OP_RC_WRITE_FIRST,
	OP_RC_WRITE_MIDDLE,
	OP_RC_WRITE_LAST,
	OP_RC_WRITE_LAST_IMM,
	OP_RC_WRITE_ONLY,
	OP_RC_WRITE_ONLY_IMM,
	OP_RC_READ_REQUEST,
	OP_RC_READ_RESPONSE_FIRST,
	OP_RC_READ_RESPONSE_MIDDLE,
	OP_RC_READ_RESPONSE_LAST,
	OP_RC_READ_RESPONSE_ONLY,
	OP_RC_ACKNOWLEDGE,
	OP_RC_ATOMIC_ACKNOWLEDGE,
	OP_RC_COMPARE_SWAP,
	OP_RC_FETCH_ADD,
	OP_RC_SEND_LAST_INV = 0x16,
	OP_RC_SEND_ONLY_INV,
	OP_RC_FLUSH = 0x1c,
	OP_RC_ATOMIC_WRITE,
	OP_UC_SEND_FIRST = 0x20,
	OP_UC_SEND_MIDDLE,
	OP_UC_SEND_LAST,
	OP_UC_SEND_LAST_IMM,
	OP_UC_SEND_ONLY,
	OP_UC_SEND_ONLY_IMM,
	OP_UC_WRITE_FIRST,
	OP_UC_WRITE_MIDDLE,
	OP_UC_WRITE_LAST,
	OP_UC_WRITE_LAST_IMM,
	OP_UC_WRITE_ONLY,
	OP_UC_WRITE_ONLY_IMM,
	OP_UD_SEND_ONLY = 0x64,
	OP_UD_SEND_ONLY_IMM,
	OP_CNP = 0x81,
};

enum opcode_service { SERVICE_RC = 0, SERVICE_UC = 1, SERVICE_UD = 3, SERVICE_CNP = 4 };

/* What a packet of this opcode is and carries. */
#define OPF_REQUEST    0x0001u
#define OPF_RESPONSE   0x0002u
#define OPF_FIRST      0x0004u /* ONLY has FIRST and LAST */
#define OPF_LAST       0x0008u
#define OPF_SEND       0x0010u
#define OPF_WRITE      0x0020u
#define OPF_READ       0x0040u
#define OPF_ATOMIC     0x0080u
#define OPF_PAYLOAD    0x0100u /* may carry payload */
#define OPF_RETH       0x0200u
#define OPF_AETH       0x0400u
#define OPF_ATOMIC_ETH 0x0800u
#define OPF_ATOMIC_ACK 0x1000u
#define OPF_IMM        0x2000u
#define OPF_IETH       0x4000u
#define OPF_DETH       0x8000u
#define OPF_ONLY       (OPF_FIRST | OPF_LAST)
/* A request without any of these is one that no queue pair of ours offers. */
#define OPF_OPERATION (OPF_SEND | OPF_WRITE | OPF_READ | OPF_ATOMIC)

/* Of the most common ones, as the table has them. */
#define OPF_WRITE_ONLY   (OPF_REQUEST | OPF_WRITE | OPF_PAYLOAD | OPF_ONLY | OPF_RETH)
#define OPF_SEND_ONLY    (OPF_REQUEST | OPF_SEND | OPF_PAYLOAD | OPF_ONLY)
#define OPF_READ_REQUEST (OPF_REQUEST | OPF_READ | OPF_ONLY | OPF_RETH)

struct opcode_info {
	alignas(32) const char *name; /* NULL: no such opcode */
	uint16_t flags;               /* OPF_* */
	uint8_t service;              /* enum opcode_service */
	uint8_t length;               /* of all headers from the BTH on, bytes */
	/* Offsets from the start of the BTH, 0 when the header is not there. */
	uint8_t reth, aeth, atomic_eth, atomic_ack, imm, ieth, deth;
};

extern const struct opcode_info opcode_table[256];

/* NULL for an opcode that nobody defines. */
static inline const struct opcode_info *opcode_lookup(uint8_t opcode)
{
	const struct opcode_info *info = &opcode_table[opcode];

	return info->name ? info : 0;
}

#endif
