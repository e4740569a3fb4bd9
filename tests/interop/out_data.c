/* SPDX-License-Identifier: BSD-3-Clause */
/* Data to and from a stock server: kinds of request, sizes, alignments, pieces. */
#include <stdio.h>
#include <string.h>

#include "out.h"

#define SIZES 10

/* Around the path MTU, and what is long. Offsets of a range on both sides, off their alignment. */
static unsigned int fill_sizes(uint32_t sizes[SIZES])
{
	const uint32_t mtu = options.mtu;
	const uint32_t all[SIZES] = { 0,   1,       3,           64,       mtu - 1,
				      mtu, mtu + 1, 3 * mtu + 5, 16 * mtu, 1u << 20 };

	memcpy(sizes, all, sizeof(all));
	return SIZES;
}

static const struct skew {
	uint32_t local;
	uint32_t remote;
} skews[] = { { 0, 4096 }, { 3, 4097 }, { 1023, 8189 } };

static uint64_t fresh_seed(void)
{
	static uint64_t seed;

	if (!seed)
		seed = pattern_fresh();
	return ++seed;
}

/* ---- SEND ---- */

static bool send_one(struct out *out, const char *name, struct operation *o, uint32_t size)
{
	const struct exchange_command expect = { .op = EXCHANGE_EXPECT,
						 .kind = o->kind,
						 .count = 1,
						 .length = size,
						 .immediate = o->immediate,
						 .seed = fresh_seed() };
	struct exchange_answer answer;

	if (!out_command_send(out, name, &expect))
		return false;
	pattern_fill(out->buffer + OUT_SOURCE, size + 4096, expect.seed);
	if (o->nsge)
		pattern_fill(o->sgl[0].VirtualAddress, size, expect.seed);
	return out_must(name, "SEND", STATUS_SUCCESS, out_run(out, o)) &&
	       out_command_answer(out, name, &answer);
}

static bool send_size(struct out *out, uint32_t size)
{
	struct operation o = out_operation(out, KIND_SEND, OUT_SOURCE + 5, size, 0);
	char name[64];

	snprintf(name, sizeof(name), "send %u", size);
	if (!send_one(out, name, &o, size))
		return false;
	o.kind = KIND_SEND_IMMEDIATE;
	o.immediate = 0x01020304 + size;
	o.flags = NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT;
	snprintf(name, sizeof(name), "send %u with immediate", size);
	if (!send_one(out, name, &o, size))
		return false;
	if (size <= OUT_INLINE) {
		o.flags = NDK_OP_FLAG_INLINE;
		o.sgl[0].MemoryRegionToken = 0;
		snprintf(name, sizeof(name), "send %u inline with immediate", size);
		if (!send_one(out, name, &o, size))
			return false;
	}
	report_ok("send %u", size);
	return true;
}

void check_send(const char *argument)
{
	uint32_t sizes[SIZES];
	struct out out;

	if (!out_open(&out, "send connect"))
		return;
	for (unsigned int i = 0, n = fill_sizes(sizes); i < n; i++)
		if (!send_size(&out, sizes[i]))
			break;
	out_must("send", "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- WRITE ---- */

/* Cuts [offset, offset + size) of the buffer into pieces of odd lengths. */
static void cut(const struct out *out, struct operation *o, uint32_t offset, uint32_t size)
{
	uint32_t first = size / 3 | 1, second = size / 5 | 1;

	o->nsge = 3;
	o->sgl[0] = out_sge(out, offset, first);
	o->sgl[1] = out_sge(out, offset + first, second);
	o->sgl[2] = out_sge(out, offset + first + second, size - first - second);
}

static bool write_one(struct out *out, const char *name, struct operation *o, uint32_t size,
		      uint64_t remote)
{
	struct exchange_command c = { .op = EXCHANGE_FILL,
				      .offset = remote - EXCHANGE_CHECKED,
				      .length = size + 2 * EXCHANGE_CHECKED,
				      .seed = fresh_seed() };
	struct exchange_command check = { .op = EXCHANGE_CHECK,
					  .offset = remote,
					  .length = size,
					  .seed = fresh_seed(),
					  .address = c.seed };
	struct exchange_command expect = { .op = EXCHANGE_EXPECT,
					   .kind = KIND_WRITE_IMMEDIATE,
					   .count = 1,
					   .length = size,
					   .immediate = o->immediate };

	if (!out_command(out, name, &c, NULL))
		return false;
	if (o->kind == KIND_WRITE_IMMEDIATE && !out_command_send(out, name, &expect))
		return false;
	if (size)
		pattern_fill(o->sgl[0].VirtualAddress, size, check.seed);
	if (!out_must(name, "WRITE", STATUS_SUCCESS, out_run(out, o)))
		return false;
	if (o->kind == KIND_WRITE_IMMEDIATE &&
	    !out_command_answer(out, name, &(struct exchange_answer){ 0 }))
		return false;
	return out_command(out, name, &check, NULL);
}

static bool write_size(struct out *out, uint32_t size, const struct skew *skew)
{
	uint32_t local = OUT_SOURCE + skew->local;
	struct operation o = out_operation(out, KIND_WRITE, local, size, skew->remote);
	char name[80];

	snprintf(name, sizeof(name), "write %u from +%u to +%u", size, skew->local, skew->remote);
	if (!write_one(out, name, &o, size, skew->remote))
		return false;
	if (size >= 64) {
		cut(out, &o, local, size);
		snprintf(name, sizeof(name), "write %u in pieces to +%u", size, skew->remote);
		if (!write_one(out, name, &o, size, skew->remote))
			return false;
	}
	o.kind = KIND_WRITE_IMMEDIATE;
	o.immediate = 0xa0b0c0d0 + size;
	snprintf(name, sizeof(name), "write %u with immediate", size);
	if (!write_one(out, name, &o, size, skew->remote))
		return false;
	if (size > OUT_INLINE || size >= 64)
		return true;
	o.kind = KIND_WRITE;
	o.flags = NDK_OP_FLAG_INLINE;
	o.sgl[0].MemoryRegionToken = 0;
	snprintf(name, sizeof(name), "write %u inline", size);
	return write_one(out, name, &o, size, skew->remote);
}

void check_write(const char *argument)
{
	uint32_t sizes[SIZES];
	struct out out;

	if (!out_open(&out, "write connect"))
		return;
	for (unsigned int i = 0, n = fill_sizes(sizes); i < n; i++) {
		bool good = write_size(&out, sizes[i], &skews[i % 3]);

		if (good && sizes[i] < 1u << 20)
			good = write_size(&out, sizes[i], &skews[(i + 1) % 3]);
		if (!good)
			break;
		report_ok("write %u", sizes[i]);
	}
	out_must("write", "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- READ ---- */

/* Also the bytes around the sink must stay as they are. */
static bool read_one(struct out *out, const char *name, const struct operation *o, uint32_t offset,
		     uint32_t size)
{
	uint8_t *at = out->buffer + offset;
	uint64_t remote = o->address - out->welcome.address;
	const struct exchange_command fill = {
		.op = EXCHANGE_FILL, .offset = remote, .length = size, .seed = fresh_seed()
	};
	ssize_t wrong;

	if (!out_command(out, name, &fill, NULL))
		return false;
	memset(at - 64, 0xa5, size + 128);
	if (!out_must(name, "READ", STATUS_SUCCESS, out_run(out, o)))
		return false;
	wrong = pattern_mismatch(at, size, fill.seed);
	if (wrong >= 0)
		return report_failure("%s: byte %zd is %02x, not the server's", name, wrong,
				      at[wrong]);
	for (int i = 0; i < 64; i++)
		if (at[-1 - i] != 0xa5 || at[size + (uint32_t)i] != 0xa5)
			return report_failure("%s: the READ has written beside its sink", name);
	return true;
}

static bool read_size(struct out *out, uint32_t size, const struct skew *skew)
{
	uint32_t local = OUT_SINK + 64 + skew->local;
	struct operation o = out_operation(out, KIND_READ, local, size, skew->remote);
	char name[80];

	snprintf(name, sizeof(name), "read %u from +%u to +%u", size, skew->remote, skew->local);
	if (!read_one(out, name, &o, local, size))
		return false;
	if (size < 64)
		return true;
	cut(out, &o, local, size);
	snprintf(name, sizeof(name), "read %u in pieces from +%u", size, skew->remote);
	return read_one(out, name, &o, local, size);
}

void check_read(const char *argument)
{
	uint32_t sizes[SIZES];
	struct out out;

	if (!out_open(&out, "read connect"))
		return;
	for (unsigned int i = 0, n = fill_sizes(sizes); i < n; i++) {
		bool good = read_size(&out, sizes[i], &skews[i % 3]);

		if (good && sizes[i] < 1u << 20)
			good = read_size(&out, sizes[i], &skews[(i + 1) % 3]);
		if (!good)
			break;
		report_ok("read %u", sizes[i]);
	}
	out_must("read", "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- atomics ---- */

#define WORD 4096u

static const struct atomic_case {
	const char *name;
	enum exchange_kind kind;
	uint64_t before, operand, swap, after;
} atomic_cases[] = {
	{ "atomic fetch-add", KIND_FETCH_ADD, 41, 1, 0, 42 },
	{ "atomic fetch-add carries", KIND_FETCH_ADD, 0x01020304ffffffff, 1, 0,
	  0x0102030500000000 },
	{ "atomic fetch-add wraps", KIND_FETCH_ADD, UINT64_MAX, 3, 0, 2 },
	{ "atomic cmp-swap equal", KIND_COMPARE_SWAP, 0x0102030405060708, 0x0102030405060708,
	  0x1112131415161718, 0x1112131415161718 },
	{ "atomic cmp-swap differs", KIND_COMPARE_SWAP, 5, 6, 0xffffffff00000000, 5 },
};

/* Moves one word by an ordinary request. */
static bool move_word(struct out *out, const char *name, enum exchange_kind kind, uint64_t *value)
{
	uint32_t local = kind == KIND_WRITE ? OUT_SOURCE : OUT_SINK;
	struct operation o = out_operation(out, kind, local, 8, WORD);

	if (kind == KIND_WRITE)
		memcpy(out->buffer + local, value, 8);
	if (!out_must(name, "WRITE or READ of the word", STATUS_SUCCESS, out_run(out, &o)))
		return false;
	memcpy(value, out->buffer + local, 8);
	return true;
}

static bool atomic_one(struct out *out, const struct atomic_case *c)
{
	struct operation o = out_operation(out, c->kind, OUT_SINK + 64, 8, WORD);
	uint64_t value = c->before, old;

	o.compare = c->operand;
	o.swap = c->swap;
	if (!move_word(out, c->name, KIND_WRITE, &value) ||
	    !out_must(c->name, "atomic", STATUS_SUCCESS, out_run(out, &o)))
		return false;
	memcpy(&old, out->buffer + OUT_SINK + 64, 8);
	if (!move_word(out, c->name, KIND_READ, &value))
		return false;
	if (old != c->before || value != c->after)
		return report_failure("%s: old value %#lx, expected %#lx; then %#lx, expected %#lx",
				      c->name, old, c->before, value, c->after);
	report_ok("%s", c->name);
	return true;
}

void check_atomic(const char *argument)
{
	struct out out;

	if (!out_open(&out, "atomic connect"))
		return;
	for (size_t i = 0; i < sizeof(atomic_cases) / sizeof(atomic_cases[0]); i++)
		if (!atomic_one(&out, &atomic_cases[i]))
			break;
	out_must("atomic", "disconnect", STATUS_SUCCESS, out_close(&out));
}
