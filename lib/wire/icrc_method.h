/* SPDX-License-Identifier: BSD-3-Clause */
/* How a CRC can be made: what each method brings, and the one in use. */
#ifndef WIRE_ICRC_METHOD_H
#define WIRE_ICRC_METHOD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What icrc_headers() and icrc_update() give for the IP packet at l3 of `length` bytes without its
 * ICRC: at least the headers up to the BTH, a multiple of 4.
 */
typedef uint32_t icrc_whole(const uint8_t *l3, bool is_v4, uint32_t length);

/*
 * The same for a packet of `head` bytes of headers, at most 128, and behind them `length` bytes
 * that are copied to `to`, and `pad` zeros, which are there already.
 */
typedef uint32_t icrc_copied(const uint8_t *l3, bool is_v4, uint32_t head, uint8_t *to,
			     const uint8_t *from, uint32_t length, uint32_t pad);

/* As icrc_last(), of the eight bytes as they are loaded. */
typedef uint32_t icrc_last_word(uint64_t bytes);

struct icrc_method {
	const char *name;    /* as icrc_use() takes it */
	icrc_whole *whole;   /* NULL: headers and the rest in two parts */
	icrc_copied *copied; /* NULL: a copy, and then the ICRC of it */
	uint32_t longest;    /* packet that both take, in bytes; or for which they pay */
	uint32_t (*update)(uint32_t crc, const uint8_t *data, uint64_t length);
	icrc_last_word *last;
};

/* The one in use; never changes while packets pass. */
extern struct icrc_method icrc_method __attribute__((visibility("hidden")));

#define ICRC_METHODS 4u

/*
 * Those that this processor can run, by what its features promise: the best first. Returns how
 * many.
 */
unsigned int icrc_methods(const struct icrc_method *methods[ICRC_METHODS]);

/*
 * A program starts with what the processor's features promise, which is always the same. To have
 * another, before packets pass; NULL: that one again. False: no such method, or not for this
 * processor.
 */
bool icrc_use(const char *name);

/* Takes some time to see which is the fastest, and has that from then on. */
void icrc_choose(void);

/* Ones over the variant fields of an IP packet, by is_v4; what is behind has none. */
#define ICRC_VARIANT_END 64u
extern const uint8_t icrc_variant[2][80];

#endif
