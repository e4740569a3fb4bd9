/* SPDX-License-Identifier: BSD-3-Clause */
/* Data through a window: sizes, alignments, neighbours, atomics, many operations at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

#define GUARD 64u /* bytes before and behind a range that must stay as they are */

static const uint32_t sizes[] = { 0,   1,    2,    3,    4,    7,    8,    63,   64,    65,     255,
				  256, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 65537, 1048576 };

/* Where a range begins at the target and in this process, off the alignment of both. */
static const struct skew {
	uint32_t remote;
	uint32_t local;
} skews[] = { { 4096, 0 }, { 4097, 3 }, { 8189, 2 }, { 12351, 1023 } };

static bool check_size(struct peer *peer, uint32_t size, const struct skew *skew);
static void check_whole_export(void);
static void check_part(void);

void check_data(const char *argument)
{
	struct peer peer;

	if (!must_connect(&peer, "data connect", &ASK(.access = options.access)))
		return;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		bool good = true;

		for (size_t k = 0; good && k < sizeof(skews) / sizeof(skews[0]); k++)
			good = check_size(&peer, sizes[i], &skews[k]);
		if (good)
			report_ok("data %u", sizes[i]);
	}
	if (must_close(&peer, "data disconnect"))
		report_ok("data disconnect");
	check_whole_export();
	check_part();
}

/* Writes a background, a range upon it, reads both back: every byte must be of its own. */
static bool check_size(struct peer *peer, uint32_t size, const struct skew *skew)
{
	static uint64_t seed;
	const struct window *window = &peer->window;
	uint64_t addr = window->addr + skew->remote;
	uint32_t local = GUARD + skew->local, sink = PEER_BUFFER / 2 + skew->local;
	uint64_t background = ++seed, data = ++seed;
	uint8_t *source = peer->buffer + local, *back = peer->buffer + sink;
	char name[64];

	snprintf(name, sizeof(name), "data %u at remote +%u local +%u", size, skew->remote,
		 skew->local);
	pattern_fill(source, size + 2 * GUARD, background);
	if (!must_complete(peer, name, "WRITE of the background", IBV_WC_SUCCESS,
			   peer_write(peer, addr - GUARD, window->token, local, size + 2 * GUARD)))
		return false;
	pattern_fill(source, size, data);
	if (!must_complete(peer, name, "WRITE", IBV_WC_SUCCESS,
			   peer_write(peer, addr, window->token, local, size)))
		return false;

	pattern_fill(source, size + 2 * GUARD, background);
	pattern_fill(source + GUARD, size, data);
	memset(back, 0, size + 2 * GUARD);
	if (!must_complete(peer, name, "READ with neighbours", IBV_WC_SUCCESS,
			   peer_read(peer, addr - GUARD, window->token, sink, size + 2 * GUARD)))
		return false;
	for (uint32_t i = 0; i < size + 2 * GUARD; i++) {
		if (back[i] == source[i])
			continue;
		report_failure("%s: byte %d is %02x, expected %02x after the WRITE", name,
			       (int)(i - GUARD), back[i], source[i]);
		return false;
	}

	memset(back, 0xa5, size + 2 * GUARD);
	if (!must_complete(peer, name, "READ", IBV_WC_SUCCESS,
			   peer_read(peer, addr, window->token, sink + GUARD, size)))
		return false;
	for (uint32_t i = 0; i < size + 2 * GUARD; i++) {
		bool inside = i >= GUARD && i < GUARD + size;

		if (back[i] == (inside ? source[i] : 0xa5))
			continue;
		report_failure("%s: byte %d is %02x after the READ", name, (int)(i - GUARD),
			       back[i]);
		return false;
	}
	return true;
}

/* Without private data a client gets the port's first export, whole. */
static void check_whole_export(void)
{
	const char *name = "data no-private-data";
	struct peer peer;

	if (!must_connect(&peer, name, &ASK(.absent = true)))
		return;
	if (peer.window.access != ACCESS_ALL)
		report_failure("%s: expected access 7, got %u", name, peer.window.access);
	else if (must_write_and_read(&peer, name, &peer.window) && must_close(&peer, name))
		report_ok("%s", name);
}

/* A window on a part shows the bytes that the whole has there. */
static void check_part(void)
{
	enum { OFFSET = 70001, LENGTH = 777 };
	const char *name = "data part";
	const uint64_t seed = pattern_fresh();
	struct peer whole, part;
	int status;

	if (!must_connect(&whole, name, &ASK(.access = ACCESS_WRITE)))
		return;
	pattern_fill(whole.buffer, LENGTH, seed);
	status = peer_write(&whole, whole.window.addr + OFFSET, whole.window.token, 0, LENGTH);
	if (!must_complete(&whole, name, "WRITE", IBV_WC_SUCCESS, status) ||
	    !must_connect(&part, name,
			  &ASK(.access = ACCESS_READ, .offset = OFFSET, .length = LENGTH)))
		goto close_whole;
	if (part.window.length != LENGTH || part.window.access != ACCESS_READ) {
		report_failure("%s: expected length %d access 1, got length %lu access %u", name,
			       LENGTH, part.window.length, part.window.access);
		goto close_part;
	}
	status = peer_read(&part, part.window.addr, part.window.token, 0, LENGTH);
	if (!must_complete(&part, name, "READ", IBV_WC_SUCCESS, status))
		goto close_part;
	if (pattern_mismatch(part.buffer, LENGTH, seed) >= 0)
		report_failure("%s: byte %zd is not the one written", name,
			       pattern_mismatch(part.buffer, LENGTH, seed));
	else
		report_ok("%s", name);
close_part:
	peer_close(&part);
close_whole:
	peer_close(&whole);
}

/* ---- atomics ---- */

static bool expect_word(struct peer *peer, const char *name, uint64_t addr, uint64_t expected)
{
	uint64_t value;
	int status = peer_read(peer, addr, peer->window.token, 0, sizeof(value));

	if (!must_complete(peer, name, "READ", IBV_WC_SUCCESS, status))
		return false;
	memcpy(&value, peer->buffer, sizeof(value));
	if (value != expected)
		report_failure("%s: expected %#lx in memory, got %#lx", name, expected, value);
	return value == expected;
}

static bool set_word(struct peer *peer, const char *name, uint64_t addr, uint64_t value)
{
	memcpy(peer->buffer, &value, sizeof(value));
	return must_complete(peer, name, "WRITE", IBV_WC_SUCCESS,
			     peer_write(peer, addr, peer->window.token, 0, sizeof(value)));
}

static const struct atomic_case {
	const char *name;
	bool swap;
	uint64_t before, operand, with, after;
} atomic_cases[] = {
	{ "atomic fetch-add", false, 41, 1, 0, 42 },
	{ "atomic fetch-add all bytes", false, 0x0123456789abcdef, 0x1010101010101010, 0,
	  0x1133557799bbddff },
	{ "atomic fetch-add wraps", false, UINT64_MAX, 3, 0, 2 },
	{ "atomic fetch-add zero", false, 7, 0, 0, 7 },
	{ "atomic cmp-swap equal", true, 0xfeedfacecafebeef, 0xfeedfacecafebeef, 1, 1 },
	{ "atomic cmp-swap differs", true, 5, 6, 0xffffffff00000000, 5 },
	{ "atomic cmp-swap differs high", true, 5, 5 | 1ull << 63, 9, 5 },
};

void check_atomic(const char *argument)
{
	struct peer peer;
	uint64_t addr;

	if (!must_connect(&peer, "atomic connect", &ASK(.access = options.access)))
		return;
	addr = (peer.window.addr + 4096 + 7) & ~7ull;
	for (size_t i = 0; i < sizeof(atomic_cases) / sizeof(atomic_cases[0]); i++) {
		const struct atomic_case *c = &atomic_cases[i];
		uint64_t old = 0;
		int status;

		if (!set_word(&peer, c->name, addr - 8, 0x1111) ||
		    !set_word(&peer, c->name, addr, c->before) ||
		    !set_word(&peer, c->name, addr + 8, 0x2222))
			break;
		status = c->swap ? peer_cmp_swap(&peer, addr, peer.window.token, c->operand,
						 c->with, &old)
				 : peer_fetch_add(&peer, addr, peer.window.token, c->operand, &old);
		if (!must_complete(&peer, c->name, "atomic", IBV_WC_SUCCESS, status))
			break;
		if (old != c->before)
			report_failure("%s: expected the old value %#lx, got %#lx", c->name,
				       c->before, old);
		else if (expect_word(&peer, c->name, addr, c->after) &&
			 expect_word(&peer, c->name, addr - 8, 0x1111) &&
			 expect_word(&peer, c->name, addr + 8, 0x2222))
			report_ok("%s", c->name);
	}
	must_close(&peer, "atomic disconnect");
}

/* ---- many operations outstanding ---- */

enum { PIPE_OPS = 32, PIPE_BYTES = 4999 };

static bool run_pipe(struct peer *peer, const char *name, enum ibv_wr_opcode opcode, uint32_t local,
		     uint32_t length)
{
	uint64_t first = peer->next_op;

	for (uint32_t i = 0; i < PIPE_OPS; i++) {
		struct ibv_sge sge = peer_sge(peer, local + i * length, length);
		uint64_t addr = peer->window.addr + i * length;
		struct ibv_send_wr wr = { .opcode = opcode, .sg_list = &sge, .num_sge = 1 };
		int error;

		if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = (peer->window.addr + 7) & ~7ull;
			wr.wr.atomic.rkey = peer->window.token;
			wr.wr.atomic.compare_add = 1;
		} else {
			wr.wr.rdma.remote_addr = addr;
			wr.wr.rdma.rkey = peer->window.token;
		}
		error = peer_post(peer, &wr);
		if (!must_complete(peer, name, "post", IBV_WC_SUCCESS, error))
			return false;
	}
	for (uint64_t op = first; op < first + PIPE_OPS; op++)
		if (!must_complete(peer, name, "completion", IBV_WC_SUCCESS, peer_wait(peer, op)))
			return false;
	return true;
}

void check_pipeline(const char *argument)
{
	const uint64_t seed = pattern_fresh();
	uint32_t sink = PEER_BUFFER / 2;
	struct peer peer;
	uint64_t word;
	ssize_t at;

	if (!must_connect(&peer, "pipeline connect", &ASK(.access = options.access)))
		return;
	pattern_fill(peer.buffer, PIPE_OPS * PIPE_BYTES, seed);
	if (!run_pipe(&peer, "pipeline writes", IBV_WR_RDMA_WRITE, 0, PIPE_BYTES))
		goto close;
	report_ok("pipeline writes");
	if (!run_pipe(&peer, "pipeline reads", IBV_WR_RDMA_READ, sink, PIPE_BYTES))
		goto close;
	at = pattern_mismatch(peer.buffer + sink, PIPE_OPS * PIPE_BYTES, seed);
	if (at >= 0)
		report_failure("pipeline reads: byte %zd is not the one written", at);
	else
		report_ok("pipeline reads");
	if (!set_word(&peer, "pipeline atomics", (peer.window.addr + 7) & ~7ull, 1000) ||
	    !run_pipe(&peer, "pipeline atomics", IBV_WR_ATOMIC_FETCH_AND_ADD, sink, 8))
		goto close;
	for (uint32_t i = 0; i < PIPE_OPS; i++) {
		memcpy(&word, peer.buffer + sink + i * 8, sizeof(word));
		if (word == 1000 + i)
			continue;
		report_failure("pipeline atomics: %u returned %lu, expected %u", i, word, 1000 + i);
		goto close;
	}
	report_ok("pipeline atomics");
close:
	must_close(&peer, "pipeline disconnect");
}

/* ---- a pattern that outlives this process ---- */

enum { LASTING_OFFSET = 8 << 20, LASTING_LENGTH = 1 << 20 };

static uint64_t parse_seed(const char *text)
{
	return text ? strtoull(text, NULL, 0) : 1;
}

void check_fill(const char *seed)
{
	struct peer peer;

	if (!must_connect(&peer, "fill connect", &ASK(.offset = LASTING_OFFSET)))
		return;
	pattern_fill(peer.buffer, LASTING_LENGTH, parse_seed(seed));
	if (must_complete(
		    &peer, "fill", "WRITE", IBV_WC_SUCCESS,
		    peer_write(&peer, peer.window.addr, peer.window.token, 0, LASTING_LENGTH)) &&
	    must_close(&peer, "fill"))
		report_ok("fill");
}

void check_verify(const char *seed)
{
	struct peer peer;
	ssize_t at;

	if (!must_connect(&peer, "verify connect", &ASK(.offset = LASTING_OFFSET)))
		return;
	if (!must_complete(
		    &peer, "verify", "READ", IBV_WC_SUCCESS,
		    peer_read(&peer, peer.window.addr, peer.window.token, 0, LASTING_LENGTH)))
		return;
	at = pattern_mismatch(peer.buffer, LASTING_LENGTH, parse_seed(seed));
	if (at >= 0)
		report_failure("verify: byte %zd is not the one left there", at);
	else if (must_close(&peer, "verify"))
		report_ok("verify");
}
