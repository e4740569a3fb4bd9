/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What connect-out and stock-server say to each other, over the connection that is being tried: the
 * client sends commands, the server carries each out and answers. All fields are big-endian.
 */
#ifndef INTEROP_EXCHANGE_H
#define INTEROP_EXCHANGE_H

#include <endian.h>
#include <stdint.h>

#define EXCHANGE_MAGIC   0x4f524c42u       /* "ORLB" */
#define EXCHANGE_MEMORY  (4u << 20)        /* bytes of the server that the client may reach */
#define EXCHANGE_MESSAGE ((1u << 20) + 64) /* the longest message either side sends */
#define EXCHANGE_SLOTS   4u                /* receives that the server keeps posted */
#define EXCHANGE_HEADER  40u               /* before a datagram in its receive */
#define EXCHANGE_CHECKED 64u               /* bytes around a range that are looked at too */

/* Private data of the REQ. */
struct exchange_request {
	uint32_t magic;
	uint32_t refuse; /* not 0: reject, with an exchange_refusal of this value */
} __attribute__((packed));

struct exchange_refusal {
	uint32_t magic;
	uint32_t value;
} __attribute__((packed));

/* Private data of the REP: where the server's memory is. */
struct exchange_welcome {
	uint32_t magic;
	uint32_t token;           /* all rights */
	uint32_t read_only_token; /* of the same memory */
	uint32_t zero;
	uint64_t address;
	uint64_t length;
} __attribute__((packed));

enum exchange_op {
	/*
	 * The next `count` messages are of `kind`, `length` and `immediate`, with the patterns
	 * `seed`, `seed` + 1 and so on; no receive is posted for `delay` ms.
	 */
	EXCHANGE_EXPECT = 1,
	EXCHANGE_FILL, /* [offset, offset + length) with pattern `seed` */
	/*
	 * That it is there. With `address` not 0: and that EXCHANGE_CHECKED bytes before and behind
	 * it are as the FILL with the seed `address`, which began with them, has left them.
	 */
	EXCHANGE_CHECK,
	EXCHANGE_WINDOW, /* bind a window on the range; its token in the answer's value */
	/*
	 * `count` requests of `kind` with `length` bytes each, at client memory `address` and
	 * `token`; READs must find the patterns `seed`, `seed` + 1 ... one behind the other. An
	 * atomic adds `seed`, or swaps it in for `offset`; the last old value is the answer's.
	 */
	EXCHANGE_REQUEST,
	/*
	 * A second queue pair, connected by number: `kind` is an exchange_service, `token` the
	 * client's number, `length` the path MTU, `immediate` the Q_Key of both. Its number in the
	 * answer's value. EXPECT and REQUEST with `queue` 1 are about it.
	 */
	EXCHANGE_QUEUE,
	EXCHANGE_DISCONNECT,
	EXCHANGE_DIE, /* without a word, as a killed process */
};

enum exchange_kind {
	KIND_SEND,
	KIND_SEND_IMMEDIATE,
	KIND_SEND_INVALIDATE,
	KIND_WRITE,
	KIND_WRITE_IMMEDIATE,
	KIND_READ,
	KIND_FETCH_ADD,
	KIND_COMPARE_SWAP,
};

enum exchange_service { SERVICE_RC, SERVICE_UC, SERVICE_UD };

/* First PSNs of second queue pairs: they soon pass zero. */
#define EXCHANGE_CLIENT_PSN 0xfffff0u
#define EXCHANGE_SERVER_PSN 0xffffe5u

struct exchange_command {
	uint32_t magic;
	uint32_t op;
	uint32_t kind;
	uint32_t count;
	uint32_t immediate;
	uint32_t delay;
	uint32_t token;
	uint32_t queue;
	uint64_t offset;
	uint64_t length;
	uint64_t seed;
	uint64_t address;
} __attribute__((packed));

struct exchange_answer {
	uint32_t magic;
	uint32_t failed; /* 1: text says why */
	uint64_t value;
	char text[112];
} __attribute__((packed));

_Static_assert(sizeof(struct exchange_command) == 64, "exchange_command");
_Static_assert(sizeof(struct exchange_answer) == 128, "exchange_answer");

/* From wire to host order or back. */
static inline void exchange_command_swap(struct exchange_command *c)
{
	c->magic = be32toh(c->magic);
	c->op = be32toh(c->op);
	c->kind = be32toh(c->kind);
	c->count = be32toh(c->count);
	c->immediate = be32toh(c->immediate);
	c->delay = be32toh(c->delay);
	c->token = be32toh(c->token);
	c->queue = be32toh(c->queue);
	c->offset = be64toh(c->offset);
	c->length = be64toh(c->length);
	c->seed = be64toh(c->seed);
	c->address = be64toh(c->address);
}

#endif
