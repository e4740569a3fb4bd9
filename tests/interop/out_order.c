/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that depend on each other or on what the server does: windows, fences, many, late. */
#include <stdio.h>
#include <string.h>

#include "out.h"

/* ---- SEND with invalidate ---- */

void check_invalidate(const char *argument)
{
	const char *name = "invalidate";
	const struct exchange_command bind = { .op = EXCHANGE_WINDOW,
					       .offset = 8192,
					       .length = 3000 };
	struct exchange_command c = { .op = EXCHANGE_CHECK, .offset = 8192, .seed = 77 };
	struct exchange_answer answer;
	struct operation o, kill;
	struct out out;

	if (!out_open(&out, name))
		return;
	if (!out_command(&out, name, &bind, &answer))
		goto close;
	c.length = bind.length;
	o = out_operation(&out, KIND_WRITE, OUT_SOURCE, (uint32_t)bind.length, bind.offset);
	o.token = (uint32_t)answer.value;
	pattern_fill(out.buffer + OUT_SOURCE, bind.length, c.seed);
	if (!out_must(name, "WRITE through the window", STATUS_SUCCESS, out_run(&out, &o)) ||
	    !out_command(&out, name, &c, NULL))
		goto close;
	c = (struct exchange_command){ .op = EXCHANGE_EXPECT,
				       .kind = KIND_SEND_INVALIDATE,
				       .count = 1,
				       .token = o.token,
				       .length = 2 * options.mtu + 1,
				       .seed = 78 };
	if (!out_command_send(&out, name, &c))
		goto close;
	kill = out_operation(&out, KIND_SEND_INVALIDATE, OUT_SOURCE + 7, (uint32_t)c.length, 0);
	kill.token = o.token;
	pattern_fill(out.buffer + OUT_SOURCE + 7, c.length, c.seed);
	if (!out_must(name, "SEND with invalidate", STATUS_SUCCESS, out_run(&out, &kill)) ||
	    !out_command_answer(&out, name, &answer))
		goto close;
	report_ok("invalidate");
	if (out_must_be_refused(name, "WRITE through the dead window", out_run(&out, &o)))
		report_ok("invalidate: the window is dead");
	out_must_end(&out, name, 60);
close:
	out_close(&out);
}

/* ---- READ_FENCE ---- */

/*
 * A READ brings data into a place from where the WRITE behind it takes them. Without the fence the
 * WRITE would take what is there before.
 */
void check_fence(const char *argument)
{
	const uint32_t size = 200000;
	const struct exchange_command fill = { .op = EXCHANGE_FILL, .length = size, .seed = 5 };
	const struct exchange_command check = {
		.op = EXCHANGE_CHECK, .offset = 1 << 20, .length = size, .seed = 5
	};
	const char *name = "fence";
	struct operation get, put;
	uint64_t first, second;
	struct out out;

	if (!out_open(&out, name))
		return;
	get = out_operation(&out, KIND_READ, OUT_SINK, size, 0);
	put = out_operation(&out, KIND_WRITE, OUT_SINK, size, check.offset);
	put.flags = NDK_OP_FLAG_READ_FENCE;
	memset(out.buffer + OUT_SINK, 0, size);
	if (out_command(&out, name, &fill, NULL) &&
	    out_must(name, "post READ", STATUS_SUCCESS, out_post(&out, &get, &first)) &&
	    out_must(name, "post WRITE", STATUS_SUCCESS, out_post(&out, &put, &second)) &&
	    out_must(name, "READ", STATUS_SUCCESS, out_wait(&out, first)) &&
	    out_must(name, "WRITE", STATUS_SUCCESS, out_wait(&out, second)) &&
	    out_command(&out, name, &check, NULL))
		report_ok("fence");
	out_must(name, "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- many outstanding ---- */

enum { PIPE_OPS = 48, PIPE_BYTES = 4999 };

static bool pipe_run(struct out *out, const char *name, struct operation *o, uint32_t step)
{
	uint64_t first = out->next_op, op;

	for (unsigned int i = 0; i < PIPE_OPS; i++) {
		o->flags = i + 1 < PIPE_OPS && i % 4 ? NDK_OP_FLAG_DEFER : 0;
		if (!out_must(name, "post", STATUS_SUCCESS, out_post(out, o, &op)))
			return false;
		o->sgl[0].VirtualAddress = (uint8_t *)o->sgl[0].VirtualAddress + o->sgl[0].Length;
		o->address += step;
	}
	for (op = first; op < first + PIPE_OPS; op++)
		if (!out_must(name, "completion", STATUS_SUCCESS, out_wait(out, op)))
			return false;
	return true;
}

static bool pipe_atomics(struct out *out)
{
	struct operation o = out_operation(out, KIND_WRITE, OUT_SOURCE, 8, 0);
	uint64_t word = 1000;

	memcpy(out->buffer + OUT_SOURCE, &word, 8);
	if (!out_must("pipeline atomics", "WRITE", STATUS_SUCCESS, out_run(out, &o)))
		return false;
	o = out_operation(out, KIND_FETCH_ADD, OUT_SINK, 8, 0);
	o.compare = 1;
	if (!pipe_run(out, "pipeline atomics", &o, 0))
		return false;
	for (unsigned int i = 0; i < PIPE_OPS; i++) {
		memcpy(&word, out->buffer + OUT_SINK + i * 8, 8);
		if (word != 1000 + i)
			return report_failure("pipeline atomics: %u returned %lu, expected %u", i,
					      word, 1000 + i);
	}
	report_ok("pipeline atomics");
	return true;
}

static bool read_word(struct out *out, uint64_t address, uint64_t *word)
{
	struct operation o = out_operation(out, KIND_READ, OUT_SINK + OUT_AREA - 16, 8, 0);

	o.address = address;
	if (!out_must("pipeline mixed", "READ of the word", STATUS_SUCCESS, out_run(out, &o)))
		return false;
	memcpy(word, out->buffer + OUT_SINK + OUT_AREA - 16, 8);
	return true;
}

/* WRITEs, READs and atomics in turn: READs and WRITEs pass each other's acknowledgements. */
static bool pipe_mixed(struct out *out)
{
	uint64_t first, op;
	const uint32_t size = 3 * options.mtu + 5;
	struct operation o[3] = {
		out_operation(out, KIND_WRITE, OUT_SOURCE, size, 1 << 20),
		out_operation(out, KIND_READ, OUT_SINK, size, 0),
		out_operation(out, KIND_FETCH_ADD, OUT_SINK + OUT_AREA - 8, 8, EXCHANGE_MEMORY - 8),
	};
	const struct exchange_command check = {
		.op = EXCHANGE_CHECK, .offset = 1 << 20, .length = size, .seed = pattern_fresh()
	};
	const struct exchange_command fill = { .op = EXCHANGE_FILL,
					       .length = size,
					       .seed = pattern_fresh() };
	uint64_t before, after;

	if (!out_command(out, "pipeline mixed", &fill, NULL) ||
	    !read_word(out, o[2].address, &before))
		return false;
	pattern_fill(out->buffer + OUT_SOURCE, size, check.seed);
	memset(out->buffer + OUT_SINK, 0, size);
	first = out->next_op;
	o[2].compare = 1;
	for (unsigned int i = 0; i < PIPE_OPS; i++)
		if (!out_must("pipeline mixed", "post", STATUS_SUCCESS,
			      out_post(out, &o[i % 3], &op)))
			return false;
	for (op = first; op < first + PIPE_OPS; op++)
		if (!out_must("pipeline mixed", "completion", STATUS_SUCCESS, out_wait(out, op)))
			return false;
	if (!out_command(out, "pipeline mixed", &check, NULL) ||
	    !read_word(out, o[2].address, &after))
		return false;
	if (pattern_mismatch(out->buffer + OUT_SINK, size, fill.seed) >= 0)
		return report_failure("pipeline mixed: what was read differs");
	if (after - before != PIPE_OPS / 3)
		return report_failure("pipeline mixed: %lu atomics were done, not %u",
				      after - before, PIPE_OPS / 3);
	report_ok("pipeline mixed");
	return true;
}

void check_pipeline(const char *argument)
{
	const struct exchange_command check = { .op = EXCHANGE_CHECK,
						.length = PIPE_OPS * PIPE_BYTES,
						.seed = pattern_fresh() };
	struct operation o;
	struct out out;
	ssize_t wrong;

	if (!out_open(&out, "pipeline connect"))
		return;
	pattern_fill(out.buffer + OUT_SOURCE, check.length, check.seed);
	o = out_operation(&out, KIND_WRITE, OUT_SOURCE, PIPE_BYTES, 0);
	if (!pipe_run(&out, "pipeline writes", &o, PIPE_BYTES) ||
	    !out_command(&out, "pipeline writes", &check, NULL))
		goto close;
	report_ok("pipeline writes");
	o = out_operation(&out, KIND_READ, OUT_SINK, PIPE_BYTES, 0);
	if (!pipe_run(&out, "pipeline reads", &o, PIPE_BYTES))
		goto close;
	wrong = pattern_mismatch(out.buffer + OUT_SINK, check.length, check.seed);
	if (wrong >= 0)
		report_failure("pipeline reads: byte %zd is not the one written", wrong);
	else
		report_ok("pipeline reads");
	if (pipe_atomics(&out))
		pipe_mixed(&out);
close:
	out_must("pipeline", "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- receiver not ready ---- */

/* More messages than the server has receives, which it does not renew for a while. */
void check_late(const char *argument)
{
	const struct exchange_command expect = { .op = EXCHANGE_EXPECT,
						 .kind = KIND_SEND,
						 .count = 12,
						 .length = 2 * options.mtu + 17,
						 .delay = 1500,
						 .seed = 40 };
	const uint32_t size = (uint32_t)expect.length;
	struct exchange_answer answer;
	const char *name = "late";
	struct out out;
	uint64_t first, op;

	if (!out_open(&out, name))
		return;
	if (!out_command_send(&out, name, &expect))
		goto close;
	first = out.next_op;
	for (uint32_t i = 0; i < expect.count; i++) {
		struct operation o = out_operation(&out, KIND_SEND, OUT_SOURCE + i * size, size, 0);

		pattern_fill(out.buffer + OUT_SOURCE + i * size, size, expect.seed + i);
		if (!out_must(name, "post", STATUS_SUCCESS, out_post(&out, &o, &op)))
			goto close;
	}
	for (op = first; op < first + expect.count; op++)
		if (!out_must(name, "SEND", STATUS_SUCCESS, out_wait(&out, op)))
			goto close;
	if (out_command_answer(&out, name, &answer))
		report_ok("late");
close:
	out_must(name, "disconnect", STATUS_SUCCESS, out_close(&out));
}

/* ---- one message to whoever takes it ---- */

void check_single(const char *argument)
{
	struct arrival arrival;
	struct operation o;
	struct out out;

	if (out_must("single", "connect", STATUS_SUCCESS,
		     out_connect_patiently(&out, options.port, NULL, 0))) {
		o = out_operation(&out, KIND_SEND, OUT_SOURCE, 16, 0);
		if (out_must("single", "SEND", STATUS_SUCCESS, out_run(&out, &o)) &&
		    (!argument ||
		     out_must("single", "reply", STATUS_SUCCESS, out_receive(&out, &arrival))))
			report_ok("single");
	}
	out_close(&out);
}
