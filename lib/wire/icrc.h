/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The invariant CRC: CRC-32 of Ethernet over eight bytes of ones, the IP and UDP headers and the
 * BTH with their variant fields as ones, and the rest up to the ICRC, which is stored least
 * significant byte first.
 *
 * A running value is the plain (complemented) CRC of what has gone in, so that updates chain.
 */
#ifndef WIRE_ICRC_H
#define WIRE_ICRC_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/packet.h"

/* Masked headers: from the IP header to the end of the BTH. l3: first byte of the IP header. */
uint32_t icrc_headers(const uint8_t *l3, bool is_v4);

/* A whole IP packet of `length` bytes without its ICRC: the headers, and all behind them. */
uint32_t icrc_packet(const uint8_t *l3, bool is_v4, uint32_t length);

/*
 * The same of `head` bytes of headers at l3 and a payload that is not behind them yet, but will be
 * then, with `pad` zeros. As many bytes more as an ICRC has are written.
 */
uint32_t icrc_packet_copy(uint8_t *l3, bool is_v4, uint32_t head, const void *payload,
			  uint32_t length, uint32_t pad);

/*
 * By how much the last eight bytes before the ICRC change it, against zeros in their place; the
 * first is the most significant one. A CRC is a sum, so that is the same whatever stands before
 * them.
 */
uint32_t icrc_last(uint64_t bytes);

uint32_t icrc_update(uint32_t crc, const void *data, uint32_t length);

/* Copies and runs the CRC over what was copied: the copy is what the ICRC covers. */
uint32_t icrc_copy_update(uint32_t crc, void *destination, const void *source, uint32_t length);

/* Of a whole parsed frame, and the comparison with what it carries. */
uint32_t icrc_compute(const struct wire_view *view);
bool icrc_verify(const struct wire_view *view);

static inline void icrc_store(uint8_t icrc[4], uint32_t crc)
{
	put_be32(icrc, __builtin_bswap32(crc));
}

static inline uint32_t icrc_load(const uint8_t icrc[4])
{
	return __builtin_bswap32(get_be32(icrc));
}

#endif
