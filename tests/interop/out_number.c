/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs connected by number, of each service, to a stock one, both ways. */
#include <stdio.h>
#include <string.h>

#include "out.h"

#define REMOTE 4096u

/* Half of them what a datagram can be. UC has no window: more would overrun a slow peer. */
static unsigned int fill_sizes(uint32_t sizes[8], bool datagrams)
{
	const uint32_t mtu = options.mtu;
	const uint32_t all[8] = { 0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5, 40000 };

	memcpy(sizes, all, sizeof(all));
	return datagrams ? 4 : 8;
}

/* A message, and before it, on the same queue pair, what it tells the arrival of. */
static bool send_behind(struct out *out, struct out *side, const char *name,
			const struct operation *before, struct operation *o,
			const struct exchange_command *expect)
{
	struct exchange_answer answer;

	if (!out_command_send(out, name, expect))
		return false;
	if (before && !out_must(name, "request", STATUS_SUCCESS, out_run(side, before)))
		return false;
	if (expect->kind != KIND_WRITE_IMMEDIATE)
		pattern_fill(out->buffer + OUT_SOURCE, expect->length, expect->seed);
	return out_must(name, "message", STATUS_SUCCESS, out_run(side, o)) &&
	       out_command_answer(out, name, &answer);
}

static bool send_message(struct out *out, struct out *side, enum exchange_kind kind, uint32_t size)
{
	const struct exchange_command expect = { .op = EXCHANGE_EXPECT,
						 .queue = 1,
						 .kind = kind,
						 .count = 1,
						 .length = size,
						 .immediate = 0x11223344,
						 .seed = pattern_fresh() };
	struct operation o = out_operation(side, kind, OUT_SOURCE, size, 0);
	ORIEL_DATAGRAM datagram = side->datagram;
	char name[64];

	o.immediate = expect.immediate;
	if (side->header) {
		datagram.Immediate = htobe32(expect.immediate);
		datagram.Flags = kind == KIND_SEND_IMMEDIATE ? ORIEL_DATAGRAM_IMMEDIATE : 0;
		o.datagram = &datagram;
	}
	snprintf(name, sizeof(name), "SEND of kind %d, %u bytes", kind, size);
	return send_behind(out, side, name, NULL, &o, &expect);
}

static bool write_memory(struct out *out, struct out *side, enum exchange_kind kind, uint32_t size)
{
	struct exchange_command expect = { .op = EXCHANGE_EXPECT,
					   .queue = 1,
					   .kind = kind == KIND_WRITE ? KIND_SEND : kind,
					   .count = 1,
					   .length = kind == KIND_WRITE ? 5 : size,
					   .immediate = 0x55667788,
					   .seed = pattern_fresh() };
	const struct exchange_command check = { .op = EXCHANGE_CHECK,
						.offset = REMOTE + size % 7,
						.length = size,
						.seed = pattern_fresh() };
	struct operation put = out_operation(side, kind, OUT_SINK + 1, size, check.offset);
	struct operation tell = out_operation(side, KIND_SEND, OUT_SOURCE, 5, 0);
	char name[64];

	put.immediate = expect.immediate;
	pattern_fill(out->buffer + OUT_SINK + 1, size, check.seed);
	snprintf(name, sizeof(name), "WRITE of kind %d, %u bytes", kind, size);
	if (kind == KIND_WRITE ? !send_behind(out, side, name, &put, &tell, &expect)
			       : !send_behind(out, side, name, NULL, &put, &expect))
		return false;
	return out_command(out, name, &check, NULL);
}

/* ---- datagrams with a wrong Q_Key ---- */

/* Dropped without a word, at both ends: what comes next is the one behind it. */
static bool wrong_qkey(struct out *out, struct out *side)
{
	const struct exchange_command bad = { .op = EXCHANGE_REQUEST,
					      .queue = 1,
					      .kind = KIND_SEND,
					      .count = 1,
					      .length = 50,
					      .seed = 9,
					      .token = side->datagram.QKey ^ 1 };
	struct operation o = out_operation(side, KIND_SEND, OUT_SOURCE, 77, 0);
	ORIEL_DATAGRAM datagram = side->datagram;

	datagram.QKey ^= 1;
	o.datagram = &datagram;
	if (!out_must("wrong Q_Key", "datagram", STATUS_SUCCESS, out_run(side, &o)) ||
	    !send_message(out, side, KIND_SEND, 78))
		return false;
	return out_command(out, "wrong Q_Key of the server", &bad, NULL) &&
	       out_serve_one(out, side, KIND_SEND, 79, side->datagram.QKey);
}

/* ---- all of it ---- */

static bool both_ways(struct out *out, struct out *side, bool datagrams, uint32_t size)
{
	static const enum exchange_kind kinds[] = { KIND_SEND, KIND_SEND_IMMEDIATE, KIND_WRITE,
						    KIND_WRITE_IMMEDIATE };
	uint32_t key = datagrams ? side->datagram.QKey : side->remote_token;

	for (unsigned int i = 0; i < (datagrams ? 2 : 4); i++) {
		if (i < 2 ? !send_message(out, side, kinds[i], size)
			  : !write_memory(out, side, kinds[i], size))
			return false;
		if (!out_serve_one(out, side, kinds[i], size, key))
			return false;
	}
	return true;
}

void check_number(const char *service)
{
	static const char *const names[] = { "rc", "uc", "ud" };
	unsigned int which = 0, n;
	struct out out, side;
	uint32_t sizes[8];
	bool good;

	while (which < 2 && service && strcmp(service, names[which]) != 0)
		which++;
	if (!out_open(&out, "number connect"))
		return;
	n = fill_sizes(sizes, which == SERVICE_UD);
	good = out_open_side(&out, &side, "number", (enum exchange_service)which);
	for (unsigned int i = 0; good && i < n; i++)
		good = both_ways(&out, &side, which == SERVICE_UD, sizes[i]);
	if (good && which == SERVICE_RC)
		good = out_serve_one(&out, &side, KIND_READ, 5000, side.remote_token);
	if (good && which == SERVICE_UD)
		good = wrong_qkey(&out, &side);
	if (good)
		report_ok("number %s", names[which]);
	out_must("number", "disconnect", STATUS_SUCCESS, out_close(&out));
}
