/* SPDX-License-Identifier: BSD-3-Clause */
/* The base transport header, the extension headers, and the arithmetic of PSNs. */
#ifndef WIRE_BTH_H
#define WIRE_BTH_H

#include <stdbool.h>
#include <stddef.h>

#include "wire/byteorder.h"

struct bth {
	uint8_t opcode;
	uint8_t flags; /* SE 1, MigReq 1, PadCnt 2, TVer 4 */
	be16_t pkey;
	uint8_t resv8a; /* FECN 1, BECN 1, reserved 6; not covered by the ICRC */
	be24_t qpn;
	uint8_t ack_req; /* A 1, reserved 7 */
	be24_t psn;
};

#define BTH_SE   0x80u
#define BTH_MIG  0x40u
#define BTH_PAD  0x30u
#define BTH_TVER 0x0fu
#define BTH_FECN 0x80u
#define BTH_BECN 0x40u
#define BTH_ACK  0x80u

struct reth {
	be64_t va;
	be32_t rkey;
	be32_t length;
};

struct aeth {
	uint8_t syndrome;
	be24_t msn;
};

struct atomic_eth {
	be64_t va;
	be32_t rkey;
	be64_t swap_add;
	be64_t compare;
};

struct atomic_ack_eth {
	be64_t original;
};

struct imm_dt {
	uint8_t data[4]; /* opaque: handed on as it stands */
};

struct ieth {
	be32_t rkey;
};

struct deth {
	be32_t qkey;
	uint8_t reserved;
	be24_t source_qpn;
};

_Static_assert(sizeof(struct bth) == 12 && offsetof(struct bth, psn) == 9, "BTH");
_Static_assert(sizeof(struct reth) == 16, "RETH");
_Static_assert(sizeof(struct aeth) == 4, "AETH");
_Static_assert(sizeof(struct atomic_eth) == 28 && offsetof(struct atomic_eth, compare) == 20,
	       "AtomicETH");
_Static_assert(sizeof(struct atomic_ack_eth) == 8, "AtomicAckETH");
_Static_assert(sizeof(struct imm_dt) == 4, "ImmDt");
_Static_assert(sizeof(struct ieth) == 4, "IETH");
_Static_assert(sizeof(struct deth) == 8, "DETH");

#define ICRC_SIZE     4u
#define PKEY_DEFAULT  0xffffu
#define GSI_QPN       1u
#define MULTICAST_QPN 0xffffffu
#define GSI_QKEY      0x80010000u
/* Only privileged consumers set such a Q_Key; in a work request: the queue pair's own. */
#define QKEY_CONTROLLED 0x80000000u
#define QPN_MASK        0xffffffu
#define PSN_MASK        0xffffffu

/* Each setter touches its own bits only. */
static inline void bth_set_qpn(struct bth *bth, uint32_t qpn)
{
	bth->qpn = be24_make(qpn);
}

static inline void bth_set_psn(struct bth *bth, uint32_t psn)
{
	bth->psn = be24_make(psn);
}

static inline void bth_set_flag(uint8_t *byte, uint8_t mask, bool on)
{
	*byte = (uint8_t)(on ? *byte | mask : *byte & ~mask);
}

static inline void bth_set_pad(struct bth *bth, unsigned int pad)
{
	bth->flags = (uint8_t)((bth->flags & ~BTH_PAD) | (pad & 3) << 4);
}

/* --- AETH ----------------------------------------------------------------------------- */

#define AETH_KIND      0xe0u
#define AETH_ACK       0x00u
#define AETH_RNR       0x20u
#define AETH_NAK       0x60u
#define AETH_VALUE     0x1fu
#define AETH_UNLIMITED 0x1fu /* ACK without end-to-end credits */

enum nak_syndrome {
	NAK_PSN_SEQUENCE = 0x60,
	NAK_INVALID_REQUEST = 0x61,
	NAK_REMOTE_ACCESS = 0x62,
	NAK_REMOTE_OPERATION = 0x63,
	NAK_INVALID_RD_REQUEST = 0x64,
};

/* Time that an RNR NAK's timer code asks for. */
static inline uint64_t rnr_timer_ns(unsigned int code)
{
	static const uint32_t units[32] = { /* of 10 us */
					    65536, 1,    2,    3,     4,     6,     8,     12,
					    16,    24,   32,   48,    64,    96,    128,   192,
					    256,   384,  512,  768,   1024,  1536,  2048,  3072,
					    4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152
	};

	return units[code & 31] * 10000ull;
}

/* Local ACK timeout and CM time codes: 4.096 us << code. */
static inline uint64_t time_code_ns(unsigned int code)
{
	return 4096ull << (code & 31);
}

/* --- PSN: 24-bit serial numbers --------------------------------------------------------- */

static inline uint32_t psn_add(uint32_t psn, uint32_t count)
{
	return (psn + count) & PSN_MASK;
}

/* a - b, between -2^23 and 2^23 - 1: negative when a is older. */
static inline int32_t psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* P_Keys match: same low 15 bits, not zero, and one of both a full member (IBTA 10.9.3). */
static inline bool pkey_match(uint16_t a, uint16_t b)
{
	return ((a ^ b) & 0x7fff) == 0 && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

/* Path MTU: bytes to code 1 .. 5, 0 when there is none; and back. */
static inline unsigned int path_mtu_code(uint32_t bytes)
{
	switch (bytes) {
	case 256: return 1;
	case 512: return 2;
	case 1024: return 3;
	case 2048: return 4;
	case 4096: return 5;
	default: return 0;
	}
}

static inline uint32_t path_mtu_bytes(unsigned int code)
{
	return code >= 1 && code <= 5 ? 128u << code : 0;
}

#endif
