/* SPDX-License-Identifier: BSD-3-Clause */
/* Big-endian fields of wire structures: types that cannot be mixed up with host integers. */
#ifndef WIRE_BYTEORDER_H
#define WIRE_BYTEORDER_H

#include <stdint.h>
#include <string.h>

typedef struct {
	uint8_t b[2];
} be16_t;
typedef struct {
	uint8_t b[3];
} be24_t;
typedef struct {
	uint8_t b[4];
} be32_t;
typedef struct {
	uint8_t b[8];
} be64_t;

static inline uint16_t get_be16(const void *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t get_be24(const void *p)
{
	const uint8_t *b = p;

	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline uint32_t get_be32(const void *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t get_be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline void put_be16(void *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_be24(void *p, uint32_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)(v >> 16);
	b[1] = (uint8_t)(v >> 8);
	b[2] = (uint8_t)v;
}

static inline void put_be32(void *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
}

static inline void put_be64(void *p, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(p, &v, sizeof(v));
}

static inline uint16_t be16_get(be16_t v)
{
	return get_be16(v.b);
}

static inline uint32_t be24_get(be24_t v)
{
	return get_be24(v.b);
}

static inline uint32_t be32_get(be32_t v)
{
	return get_be32(v.b);
}

static inline uint64_t be64_get(be64_t v)
{
	return get_be64(v.b);
}

static inline be16_t be16_make(uint16_t v)
{
	be16_t r;

	put_be16(r.b, v);
	return r;
}

static inline be24_t be24_make(uint32_t v)
{
	be24_t r;

	put_be24(r.b, v);
	return r;
}

static inline be32_t be32_make(uint32_t v)
{
	be32_t r;

	put_be32(r.b, v);
	return r;
}

static inline be64_t be64_make(uint64_t v)
{
	be64_t r;

	put_be64(r.b, v);
	return r;
}

#endif
