/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows that must not open: every refusal is a remote access error and costs one connection. */
#include <stdio.h>
#include <string.h>

#include "checks.h"

enum op { OP_READ, OP_WRITE, OP_ADD };

/* The window lies inside the export, so that there is memory on both sides of it. */
enum { PART_OFFSET = 12293, PART_LENGTH = 5000 };

/* How the token that is used differs from the one that was granted. */
enum token_kind {
	TOKEN_GOOD,
	TOKEN_NEXT,
	TOKEN_HIGH_BIT,
	TOKEN_ZERO,
	TOKEN_FOREIGN,
	TOKEN_DEAD,
	TOKEN_CLOSED
};

enum place { FROM_START, FROM_END, ABSOLUTE };

static const struct refuse_case {
	const char *name;
	const char *detail;
	enum op op;
	uint8_t access;
	enum token_kind token;
	enum place place;
	int64_t at;
	uint32_t length;
} cases[] = {
	{ "below", "read", OP_READ, ACCESS_ALL, TOKEN_GOOD, FROM_START, -1, 1 },
	{ "below", "write", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, FROM_START, -1, 1 },
	{ "below", "read across", OP_READ, ACCESS_ALL, TOKEN_GOOD, FROM_START, -1, 2 },
	{ "below", "write across", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, FROM_START, -1, 3000 },
	{ "above", "read", OP_READ, ACCESS_ALL, TOKEN_GOOD, FROM_END, 0, 1 },
	{ "above", "write", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, FROM_END, 0, 1 },
	{ "cross", "read", OP_READ, ACCESS_ALL, TOKEN_GOOD, FROM_END, -1, 2 },
	{ "cross", "write", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, FROM_END, -1, 2 },
	{ "cross", "read of packets", OP_READ, ACCESS_ALL, TOKEN_GOOD, FROM_END, -4096, 4097 },
	{ "cross", "write of packets", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, FROM_END, -4096, 4097 },
	{ "wrap", "read", OP_READ, ACCESS_ALL, TOKEN_GOOD, ABSOLUTE, -4, 8 },
	{ "wrap", "write", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, ABSOLUTE, -4, 8 },
	{ "wrap", "write to the last byte", OP_WRITE, ACCESS_ALL, TOKEN_GOOD, ABSOLUTE, -8, 8 },
	{ "wrongkey", "next", OP_WRITE, ACCESS_ALL, TOKEN_NEXT, FROM_START, 0, 64 },
	{ "wrongkey", "high bit", OP_READ, ACCESS_ALL, TOKEN_HIGH_BIT, FROM_START, 0, 64 },
	{ "wrongkey", "zero", OP_WRITE, ACCESS_ALL, TOKEN_ZERO, FROM_START, 0, 64 },
	{ "foreigntoken", "write", OP_WRITE, ACCESS_ALL, TOKEN_FOREIGN, FROM_START, 0, 64 },
	{ "foreigntoken", "read", OP_READ, ACCESS_ALL, TOKEN_FOREIGN, FROM_START, 0, 64 },
	{ "foreigntoken", "closed", OP_READ, ACCESS_ALL, TOKEN_CLOSED, FROM_START, 0, 64 },
	{ "invalidated", "write", OP_WRITE, ACCESS_ALL, TOKEN_DEAD, FROM_START, 0, 64 },
	{ "invalidated", "read", OP_READ, ACCESS_ALL, TOKEN_DEAD, FROM_START, 0, 64 },
	{ "invalidated", "atomic", OP_ADD, ACCESS_ALL, TOKEN_DEAD, FROM_START, 0, 8 },
	{ "readonly", "write", OP_WRITE, ACCESS_READ, TOKEN_GOOD, FROM_START, 0, 64 },
	{ "readonly", "atomic", OP_ADD, ACCESS_READ, TOKEN_GOOD, FROM_START, 0, 8 },
	{ "writeonly", "read", OP_READ, ACCESS_WRITE, TOKEN_GOOD, FROM_START, 0, 64 },
	{ "noatomic", "atomic", OP_ADD, ACCESS_READ | ACCESS_WRITE, TOKEN_GOOD, FROM_START, 0, 8 },
	{ "atomicbounds", "above", OP_ADD, ACCESS_ALL, TOKEN_GOOD, FROM_END, 0, 8 },
	{ "atomicbounds", "cross", OP_ADD, ACCESS_ALL, TOKEN_GOOD, FROM_END, -7, 8 },
};

static bool lay_background(void);
static void run_case(const struct refuse_case *c, const char *name);
static int attempt(struct peer *peer, const struct refuse_case *c, const struct window *window);
static bool background_intact(const char *name);

void check_refuse(const char *name)
{
	bool found = false;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char title[64];

		if (name && strcmp(name, cases[i].name) != 0)
			continue;
		found = true;
		snprintf(title, sizeof(title), "refuse %s %s", cases[i].name, cases[i].detail);
		if (lay_background())
			run_case(&cases[i], title);
	}
	if (!found)
		report_failure("refuse: there is no case '%s'", name);
}

static bool lay_background(void)
{
	const char *name = "refuse background";
	struct peer peer;
	int status;

	if (!must_connect(&peer, name, &ASK(.access = ACCESS_WRITE)))
		return false;
	pattern_fill(peer.buffer, 32768, 0xbac);
	status = peer_write(&peer, peer.window.addr, peer.window.token, 0, 32768);
	if (must_complete(&peer, name, "WRITE", IBV_WC_SUCCESS, status))
		return must_close(&peer, name);
	peer_close(&peer);
	return false;
}

static void run_case(const struct refuse_case *c, const char *name)
{
	struct ask ask = ASK(.access = c->access, .offset = PART_OFFSET, .length = PART_LENGTH);
	struct peer peer, other;
	struct window used;
	bool second = c->token == TOKEN_FOREIGN || c->token == TOKEN_CLOSED;
	bool good = false;
	int status;

	if (!must_connect(&peer, name, &ask))
		return;
	used = peer.window;
	if (second) {
		if (!must_connect(&other, name, &ask))
			goto close;
		used = other.window;
		if (c->token == TOKEN_CLOSED && !must_close(&other, name))
			goto close;
	}
	status = attempt(&peer, c, &used);
	good = must_complete(&peer, name, "access", IBV_WC_REM_ACCESS_ERR, status);
	/* The owner of a stolen token must not notice. */
	if (c->token == TOKEN_FOREIGN) {
		status = peer_read(&other, other.window.addr, other.window.token, 0, 64);
		good &= must_complete(&other, name, "READ by the token's owner", IBV_WC_SUCCESS,
				      status);
		good &= must_close(&other, name);
	}
close:
	good &= must_close(&peer, name);
	if (good && background_intact(name))
		report_ok("%s", name);
}

static int attempt(struct peer *peer, const struct refuse_case *c, const struct window *window)
{
	uint64_t addr = (uint64_t)c->at, old;
	uint32_t token = window->token;
	int status;

	if (c->place == FROM_START)
		addr += window->addr;
	else if (c->place == FROM_END)
		addr += window->addr + window->length;
	switch (c->token) {
	case TOKEN_NEXT: token++; break;
	case TOKEN_HIGH_BIT: token ^= 1u << 31; break;
	case TOKEN_ZERO: token = 0; break;
	case TOKEN_DEAD:
		status = peer_send_invalidate(peer, token);
		if (status)
			return status;
		break;
	default: break;
	}
	memset(peer->buffer, 0xee, c->length);
	switch (c->op) {
	case OP_READ: return peer_read(peer, addr, token, 0, c->length);
	case OP_WRITE: return peer_write(peer, addr, token, 0, c->length);
	default: return peer_fetch_add(peer, (addr + 7) & ~7ull, token, 1, &old);
	}
}

/* A fresh connection works, and nothing was written where nothing was allowed. */
static bool background_intact(const char *name)
{
	struct peer peer;
	bool good = false;
	ssize_t at;

	if (!must_connect(&peer, name, &ASK(.access = ACCESS_READ | ACCESS_WRITE)))
		return false;
	if (must_complete(&peer, name, "READ of a fresh connection", IBV_WC_SUCCESS,
			  peer_read(&peer, peer.window.addr, peer.window.token, 0, 32768))) {
		at = pattern_mismatch(peer.buffer, 32768, 0xbac);
		if (at >= 0)
			report_failure("%s: byte %zd of the export changed", name, at);
		else
			good = must_write_and_read(&peer, name, &peer.window);
	}
	return must_close(&peer, name) && good;
}
