/* SPDX-License-Identifier: BSD-3-Clause */
/* All opcodes of RC, UC and UD with their header sequence, in one table. */
#include "wire/opcode.h"

#include "wire/bth.h"

#define BTH sizeof(struct bth)

/* One line per header sequence; offsets follow from the order of the headers. */
#define PLAIN(n, s, f)                                               \
	{                                                            \
		.name = n, .service = s, .flags = (f), .length = BTH \
	}
#define WITH_IMM(n, s, f)                                                                      \
	{                                                                                      \
		.name = n, .service = s, .flags = (f) | OPF_IMM, .length = BTH + 4, .imm = BTH \
	}
#define WITH_IETH(n, s, f)                                                                       \
	{                                                                                        \
		.name = n, .service = s, .flags = (f) | OPF_IETH, .length = BTH + 4, .ieth = BTH \
	}
#define WITH_RETH(n, s, f)                                                                        \
	{                                                                                         \
		.name = n, .service = s, .flags = (f) | OPF_RETH, .length = BTH + 16, .reth = BTH \
	}
#define WITH_RETH_IMM(n, s, f)                                                                  \
	{                                                                                       \
		.name = n, .service = s, .flags = (f) | OPF_RETH | OPF_IMM, .length = BTH + 20, \
		.reth = BTH, .imm = BTH + 16                                                    \
	}
#define WITH_AETH(n, f)                                                                   \
	{                                                                                 \
		.name = n, .service = SERVICE_RC, .flags = OPF_RESPONSE | OPF_AETH | (f), \
		.length = BTH + 4, .aeth = BTH                                            \
	}
#define WITH_ATOMIC(n)                                                                   \
	{                                                                                \
		.name = n, .service = SERVICE_RC, .length = BTH + 28, .atomic_eth = BTH, \
		.flags = OPF_REQUEST | OPF_ONLY | OPF_ATOMIC | OPF_ATOMIC_ETH            \
	}

/* Defined, and served by nobody here: what is behind the BTH is only measured. */
#define NOT_OFFERED(n, l, f)                                                             \
	{                                                                                \
		.name = n, .service = SERVICE_RC, .flags = OPF_REQUEST | OPF_ONLY | (f), \
		.length = BTH + (l)                                                      \
	}

#define SEND      (OPF_REQUEST | OPF_SEND | OPF_PAYLOAD)
#define WRITE     (OPF_REQUEST | OPF_WRITE | OPF_PAYLOAD)
#define READ_DATA (OPF_READ | OPF_PAYLOAD)

const struct opcode_info opcode_table[256] = {
	[OP_RC_SEND_FIRST] = PLAIN("SEND_FIRST", SERVICE_RC, SEND | OPF_FIRST),
	[OP_RC_SEND_MIDDLE] = PLAIN("SEND_MIDDLE", SERVICE_RC, SEND),
	[OP_RC_SEND_LAST] = PLAIN("SEND_LAST", SERVICE_RC, SEND | OPF_LAST),
	[OP_RC_SEND_LAST_IMM] = WITH_IMM("SEND_LAST_IMM", SERVICE_RC, SEND | OPF_LAST),
	[OP_RC_SEND_ONLY] = PLAIN("SEND_ONLY", SERVICE_RC, SEND | OPF_ONLY),
	[OP_RC_SEND_ONLY_IMM] = WITH_IMM("SEND_ONLY_IMM", SERVICE_RC, SEND | OPF_ONLY),
	[OP_RC_WRITE_FIRST] = WITH_RETH("WRITE_FIRST", SERVICE_RC, WRITE | OPF_FIRST),
	[OP_RC_WRITE_MIDDLE] = PLAIN("WRITE_MIDDLE", SERVICE_RC, WRITE),
	[OP_RC_WRITE_LAST] = PLAIN("WRITE_LAST", SERVICE_RC, WRITE | OPF_LAST),
	[OP_RC_WRITE_LAST_IMM] = WITH_IMM("WRITE_LAST_IMM", SERVICE_RC, WRITE | OPF_LAST),
	[OP_RC_WRITE_ONLY] = WITH_RETH("WRITE_ONLY", SERVICE_RC, WRITE | OPF_ONLY),
	[OP_RC_WRITE_ONLY_IMM] = WITH_RETH_IMM("WRITE_ONLY_IMM", SERVICE_RC, WRITE | OPF_ONLY),
	[OP_RC_READ_REQUEST] =
		WITH_RETH("READ_REQUEST", SERVICE_RC, OPF_REQUEST | OPF_READ | OPF_ONLY),
	[OP_RC_READ_RESPONSE_FIRST] = WITH_AETH("READ_RESPONSE_FIRST", READ_DATA | OPF_FIRST),
	[OP_RC_READ_RESPONSE_MIDDLE] =
		PLAIN("READ_RESPONSE_MIDDLE", SERVICE_RC, OPF_RESPONSE | READ_DATA),
	[OP_RC_READ_RESPONSE_LAST] = WITH_AETH("READ_RESPONSE_LAST", READ_DATA | OPF_LAST),
	[OP_RC_READ_RESPONSE_ONLY] = WITH_AETH("READ_RESPONSE_ONLY", READ_DATA | OPF_ONLY),
	[OP_RC_ACKNOWLEDGE] = WITH_AETH("ACKNOWLEDGE", OPF_ONLY),
	[OP_RC_ATOMIC_ACKNOWLEDGE] = { .name = "ATOMIC_ACKNOWLEDGE",
				       .service = SERVICE_RC,
				       .flags = OPF_RESPONSE | OPF_ONLY | OPF_ATOMIC | OPF_AETH |
						OPF_ATOMIC_ACK,
				       .length = BTH + 12,
				       .aeth = BTH,
				       .atomic_ack = BTH + 4 },
	[OP_RC_COMPARE_SWAP] = WITH_ATOMIC("CMP_SWAP"),
	[OP_RC_FETCH_ADD] = WITH_ATOMIC("FETCH_ADD"),
	[OP_RC_SEND_LAST_INV] = WITH_IETH("SEND_LAST_INVALIDATE", SERVICE_RC, SEND | OPF_LAST),
	[OP_RC_SEND_ONLY_INV] = WITH_IETH("SEND_ONLY_INVALIDATE", SERVICE_RC, SEND | OPF_ONLY),
	[OP_RC_FLUSH] = NOT_OFFERED("FLUSH", 4 + 16, 0),
	[OP_RC_ATOMIC_WRITE] = NOT_OFFERED("ATOMIC_WRITE", 16, OPF_PAYLOAD),

	[OP_UC_SEND_FIRST] = PLAIN("UC_SEND_FIRST", SERVICE_UC, SEND | OPF_FIRST),
	[OP_UC_SEND_MIDDLE] = PLAIN("UC_SEND_MIDDLE", SERVICE_UC, SEND),
	[OP_UC_SEND_LAST] = PLAIN("UC_SEND_LAST", SERVICE_UC, SEND | OPF_LAST),
	[OP_UC_SEND_LAST_IMM] = WITH_IMM("UC_SEND_LAST_IMM", SERVICE_UC, SEND | OPF_LAST),
	[OP_UC_SEND_ONLY] = PLAIN("UC_SEND_ONLY", SERVICE_UC, SEND | OPF_ONLY),
	[OP_UC_SEND_ONLY_IMM] = WITH_IMM("UC_SEND_ONLY_IMM", SERVICE_UC, SEND | OPF_ONLY),
	[OP_UC_WRITE_FIRST] = WITH_RETH("UC_WRITE_FIRST", SERVICE_UC, WRITE | OPF_FIRST),
	[OP_UC_WRITE_MIDDLE] = PLAIN("UC_WRITE_MIDDLE", SERVICE_UC, WRITE),
	[OP_UC_WRITE_LAST] = PLAIN("UC_WRITE_LAST", SERVICE_UC, WRITE | OPF_LAST),
	[OP_UC_WRITE_LAST_IMM] = WITH_IMM("UC_WRITE_LAST_IMM", SERVICE_UC, WRITE | OPF_LAST),
	[OP_UC_WRITE_ONLY] = WITH_RETH("UC_WRITE_ONLY", SERVICE_UC, WRITE | OPF_ONLY),
	[OP_UC_WRITE_ONLY_IMM] = WITH_RETH_IMM("UC_WRITE_ONLY_IMM", SERVICE_UC, WRITE | OPF_ONLY),

	[OP_UD_SEND_ONLY] = { .name = "UD_SEND_ONLY",
			      .service = SERVICE_UD,
			      .flags = SEND | OPF_ONLY | OPF_DETH,
			      .length = BTH + 8,
			      .deth = BTH },
	[OP_UD_SEND_ONLY_IMM] = { .name = "UD_SEND_ONLY_IMM",
				  .service = SERVICE_UD,
				  .flags = SEND | OPF_ONLY | OPF_DETH | OPF_IMM,
				  .length = BTH + 12,
				  .deth = BTH,
				  .imm = BTH + 8 },
	/* 16 reserved bytes follow; they count as payload here and nobody looks at them. */
	[OP_CNP] = { .name = "CNP",
		     .service = SERVICE_CNP,
		     .flags = OPF_REQUEST | OPF_ONLY | OPF_PAYLOAD,
		     .length = BTH },
};
