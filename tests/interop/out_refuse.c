/* SPDX-License-Identifier: BSD-3-Clause */
/* What a stock server refuses, and servers that go away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sync.h"
#include "out.h"

#define UNUSED_PORT 7999

/* ---- requests that the peer refuses ---- */

static const struct refusal {
	const char *name;
	enum exchange_kind kind;
	bool wrong_token, read_only;
	uint64_t remote;
	uint32_t length;
} refusals[] = {
	{ "wrongkey", KIND_WRITE, true, false, 0, 100 },
	{ "wrongkey-read", KIND_READ, true, false, 0, 100 },
	{ "above", KIND_WRITE, false, false, EXCHANGE_MEMORY - 99, 100 },
	{ "above-read", KIND_READ, false, false, EXCHANGE_MEMORY - 5000, 70000 },
	{ "readonly", KIND_WRITE, false, true, 0, 5000 },
	{ "readonly-atomic", KIND_FETCH_ADD, false, true, 0, 8 },
};

/*
 * The refused request tells why, what is behind it is cancelled, the connection ends, and no byte
 * of ours has reached the server's memory.
 */
static void refuse(const struct refusal *r)
{
	struct exchange_command c = { .op = EXCHANGE_FILL, .length = 1 << 20, .seed = 3 };
	struct operation o, behind;
	uint64_t op, next;
	struct out out;
	char name[64];

	snprintf(name, sizeof(name), "refuse %s", r->name);
	if (!out_open(&out, name))
		return;
	o = out_operation(&out, r->kind, OUT_SOURCE, r->length, r->remote);
	behind = out_operation(&out, KIND_WRITE, OUT_SOURCE, 4000, 1 << 19);
	if (r->wrong_token)
		o.token ^= 0x5a5a00;
	if (r->read_only)
		o.token = out.welcome.read_only_token;
	if (!out_command(&out, name, &c, NULL) ||
	    !out_must(name, "post", STATUS_SUCCESS, out_post(&out, &o, &op)) ||
	    !out_must(name, "post", STATUS_SUCCESS, out_post(&out, &behind, &next)) ||
	    !out_must(name, "request", STATUS_ACCESS_VIOLATION, out_wait(&out, op)) ||
	    !out_must(name, "request behind it", STATUS_CANCELLED, out_wait(&out, next)) ||
	    !out_must_end(&out, name, 60)) {
		out_close(&out);
		return;
	}
	out_close(&out);
	c.op = EXCHANGE_CHECK;
	if (!out_open(&out, name))
		return;
	if (out_command(&out, name, &c, NULL))
		report_ok("%s", name);
	out_must(name, "disconnect", STATUS_SUCCESS, out_close(&out));
}

void check_refuse(const char *argument)
{
	bool found = false;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		if (argument && strcmp(argument, refusals[i].name) != 0)
			continue;
		refuse(&refusals[i]);
		found = true;
	}
	if (!found)
		report_failure("refuse: no case '%s'", argument);
}

/* ---- connections that are refused ---- */

static void reject_by_server(void)
{
	const struct exchange_request request = { .magic = htobe32(EXCHANGE_MAGIC),
						  .refuse = htobe32(0x1234) };
	struct exchange_refusal refusal = { 0 };
	struct out out;
	NTSTATUS status = out_connect(&out, options.port, &request, sizeof(request));

	if (out.data_length >= sizeof(refusal))
		memcpy(&refusal, out.data, sizeof(refusal));
	if (!out_must("reject by server", "connect", STATUS_CONNECTION_REFUSED, status))
		goto close;
	if (be32toh(refusal.magic) != EXCHANGE_MAGIC || be32toh(refusal.value) != 0x1234)
		report_failure("reject by server: data %08x %08x", be32toh(refusal.magic),
			       be32toh(refusal.value));
	else
		report_ok("reject by server");
close:
	out_close(&out);
}

/* Nobody has this address: the neighbour is not found. */
static void reject_nobody(void)
{
	struct sockaddr_storage real = options.remote;
	struct out out;

	if (real.ss_family == AF_INET)
		((uint8_t *)&((struct sockaddr_in *)&options.remote)->sin_addr)[3] = 99;
	else
		((struct sockaddr_in6 *)&options.remote)->sin6_addr.s6_addr[15] = 99;
	if (out_must("reject nobody", "connect", STATUS_HOST_UNREACHABLE,
		     out_connect(&out, options.port, NULL, 0)))
		report_ok("reject nobody");
	out_close(&out);
	options.remote = real;
}

void check_reject(const char *argument)
{
	struct out out;

	if (out_must("reject no listener", "connect", STATUS_CONNECTION_REFUSED,
		     out_connect(&out, UNUSED_PORT, NULL, 0)))
		report_ok("reject no listener");
	out_close(&out);
	reject_by_server();
	reject_nobody();
}

/* ---- servers that go away ---- */

/* What is posted after the disconnect goes nowhere; the library says so or cancels it. */
static void gone(enum exchange_op how, const char *name)
{
	const struct exchange_command c = { .op = how };
	struct operation o;
	struct out out;
	NTSTATUS status;

	if (!out_open(&out, name))
		return;
	o = out_operation(&out, KIND_WRITE, OUT_SOURCE, 100, 0);
	if (!out_command_send(&out, name, &c) || !out_must_end(&out, name, 60))
		goto close;
	status = out_run(&out, &o);
	if (status != STATUS_CONNECTION_INVALID && status != STATUS_CANCELLED &&
	    status != STATUS_IO_TIMEOUT && status != STATUS_CONNECTION_DISCONNECTED)
		report_failure("%s: WRITE after the end: %s", name, OrielStatusName(status));
	else
		report_ok("%s", name);
close:
	out_close(&out);
}

void check_gone(const char *argument)
{
	if (!argument || !strcmp(argument, "disconnect"))
		gone(EXCHANGE_DISCONNECT, "gone disconnect");
	if (!argument || !strcmp(argument, "die"))
		gone(EXCHANGE_DIE, "gone die");
}

/*
 * A peer that does not answer any more; who has started us silences it when we say so and then
 * tells us.
 */
void check_silent(const char *argument)
{
	const char *name = "silent";
	struct operation o;
	struct out out;
	uint64_t first, second;

	if (!out_open(&out, name))
		return;
	printf("# connected\n");
	getchar();
	o = out_operation(&out, KIND_WRITE, OUT_SOURCE, 5000, 0);
	if (out_must(name, "post", STATUS_SUCCESS, out_post(&out, &o, &first)) &&
	    out_must(name, "post", STATUS_SUCCESS, out_post(&out, &o, &second)) &&
	    out_must(name, "WRITE", STATUS_IO_TIMEOUT, out_wait(&out, first)) &&
	    out_must(name, "WRITE behind it", STATUS_CANCELLED, out_wait(&out, second)) &&
	    out_must_end(&out, name, 30))
		report_ok("silent");
	out_close(&out);
}

/* ---- many connections ---- */

void check_cycles(const char *count)
{
	unsigned long n = count ? strtoul(count, NULL, 0) : 10;
	const uint64_t seed = pattern_fresh();

	for (unsigned long i = 0; i < n; i++) {
		struct exchange_command check = { .op = EXCHANGE_CHECK,
						  .offset = i * 4096 % (1 << 20),
						  .length = 1500,
						  .seed = seed + i };
		struct operation o;
		struct out out;
		char name[64];
		bool good;

		snprintf(name, sizeof(name), "cycles %lu of %lu", i + 1, n);
		if (!out_open(&out, name))
			return;
		o = out_operation(&out, KIND_WRITE, OUT_SOURCE, 1500, check.offset);
		pattern_fill(out.buffer + OUT_SOURCE, 1500, check.seed);
		good = out_must(name, "WRITE", STATUS_SUCCESS, out_run(&out, &o)) &&
		       out_command(&out, name, &check, NULL);
		if (!out_must(name, "disconnect", STATUS_SUCCESS, out_close(&out)) || !good)
			return;
	}
	report_ok("cycles %lu", n);
}
