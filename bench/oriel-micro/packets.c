/* SPDX-License-Identifier: BSD-3-Clause */
/* Benchmarks of a packet: each stage by itself, and all that a worker does between its ports. */
#include <stdlib.h>
#include <string.h>

#include "oriel-micro/bench.h"

static uint32_t queue_pair_of(const struct bench *bench, uint64_t frame)
{
	return bench->windows ? 0 : bench->order[frame % BENCH_PLACES];
}

static bool make_frames(struct bench *bench, uint8_t opcode)
{
	bench->bytes = calloc(BENCH_FRAMES, 2048);
	for (uint32_t i = 0; bench->bytes && i < BENCH_FRAMES; i++)
		bench->length =
			engine_request(bench->engine, queue_pair_of(bench, i), opcode,
				       bench->engine->token[0], 64, bench->bytes + i * 2048ull);
	return bench->bytes;
}

static bool set_up_frames(struct bench *bench, uint8_t opcode, uint32_t qps)
{
	if (!set_up_queue_pairs(bench, qps) || !make_frames(bench, opcode))
		return false;
	memset(bench->engine->psn, 0, qps * sizeof(uint32_t));
	return true;
}

bool set_up_write(struct bench *bench, uint32_t qps)
{
	return set_up_frames(bench, OP_RC_WRITE_ONLY, qps);
}

/* One queue pair, many windows. */
bool set_up_write_windows(struct bench *bench, uint32_t windows)
{
	bench->windows = windows;
	if (!set_up_windows(bench, windows) || !make_frames(bench, OP_RC_WRITE_ONLY))
		return false;
	bench->engine->psn[0] = 0;
	bench->token = malloc(BENCH_PLACES * sizeof(*bench->token));
	for (uint32_t i = 0; bench->token && i < BENCH_PLACES; i++)
		bench->token[i] = bench->engine->token[bench->order[i]];
	return bench->token;
}

bool set_up_read(struct bench *bench, uint32_t qps)
{
	return set_up_frames(bench, OP_RC_READ_REQUEST, qps);
}

void run_parse(struct bench *bench, uint64_t times)
{
	struct wire_view view;

	for (uint64_t i = 0; i < times; i++) {
		bench->sum +=
			wire_parse(bench->bytes + i % BENCH_FRAMES * 2048, bench->length, &view);
		bench->sum += view.psn;
	}
}

void run_parse_usual(struct bench *bench, uint64_t times)
{
	const struct wire_usual *usual = &bench->engine->usual;
	struct wire_view view;

	for (uint64_t i = 0; i < times; i++) {
		if (!wire_parse_usual(usual, bench->bytes + i % BENCH_FRAMES * 2048, bench->length,
				      &view))
			abort();
		bench->sum += view.psn;
	}
}

/* One frame of that size. */
bool set_up_verify(struct bench *bench, uint32_t size)
{
	bench->bytes = calloc(1, ENGINE_FRAME);
	if (!bench->bytes || !set_up_queue_pairs(bench, 1))
		return false;
	bench->length = engine_request(bench->engine, 0, OP_RC_WRITE_ONLY, bench->engine->token[0],
				       size, bench->bytes);
	return true;
}

void run_verify(struct bench *bench, uint64_t times)
{
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++)
		bench->sum += icrc_verify(&view);
}

/* The transport alone: views made beforehand, PSNs set as they must be. */
void run_receive(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		uint32_t qp = bench->order[i % BENCH_FRAMES];

		view.qpn = e->qpn[qp];
		view.psn = e->psn[qp];
		view.ack_request = i % 16 == 15;
		e->psn[qp] = psn_add(e->psn[qp], 1);
		transport_receive(e->worker, &view, NULL, e->now);
		if (transport_last_verdict(e->worker))
			abort();
		if (i % 32 == 31)
			bench->sum += transport_poll(e->worker, e->now);
	}
}

/*
 * Another window for each frame; its ICRC is wrong then, and computed all the same. Tokens come in
 * the order in which they are used, so that finding them here costs nothing.
 */
static void choose_windows(struct bench *bench, struct wire_view view[32], uint64_t from)
{
	for (unsigned int k = 0; k < 32; k++) {
		const uint64_t at = (from + k) % BENCH_PLACES;
		struct reth *reth =
			(struct reth *)(bench->bytes + (view_reth(&view[k])->va.b - bench->bytes));

		reth->rkey = be32_make(bench->token[at]);
		reth->va =
			be64_make(ENGINE_BASE + bench->order[at] * 64u % (ENGINE_MEMORY - 4096u));
	}
}

/* All stages of the worker's loop but the port: bursts of 32. */
void run_packet(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;

	for (uint64_t i = 0; i < times; i += 32) {
		struct wire_view view[32];
		uint32_t place[32];
		bool many_tokens;

		for (unsigned int k = 0; k < 32; k++)
			wire_parse_usual(&e->usual, bench->bytes + (i + k) % BENCH_FRAMES * 2048,
					 bench->length, &view[k]);
		if (bench->windows)
			choose_windows(bench, view, i);
		for (unsigned int k = 0; k < 32; k++)
			view[k].qpn = e->qpn[queue_pair_of(bench, i + k)];
		many_tokens = transport_look_up(e->worker, view, place, 32);
		for (unsigned int k = 0; k < 32; k++)
			bench->sum += icrc_verify(&view[k]);
		if (many_tokens)
			transport_fetch_targets(e->worker, view, 32);
		for (unsigned int k = 0; k < 32; k++) {
			uint32_t qp = queue_pair_of(bench, i + k);

			place[k] = qp_confirm(e->shared, place[k], view[k].qpn);
			view[k].psn = e->psn[qp];
			view[k].ack_request = k % 16 == 15;
			e->psn[qp] = psn_add(e->psn[qp], 1);
			transport_receive_at(e->worker, place[k], &view[k], NULL, e->now);
			if (transport_last_verdict(e->worker))
				abort();
		}
		bench->sum += transport_poll(e->worker, e->now);
		memory_quiescent(e->memory, 0);
	}
}

/* A READ at a time: request in, response out. */
void run_read(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		uint32_t qp = bench->order[i % BENCH_FRAMES];

		view.qpn = e->qpn[qp];
		view.psn = e->psn[qp];
		e->psn[qp] = psn_add(e->psn[qp], 1);
		transport_receive(e->worker, &view, NULL, e->now);
		bench->sum += transport_poll(e->worker, e->now);
	}
}

/* As many at once as a peer may have outstanding. */
void run_read_burst(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	struct wire_view view;

	wire_parse(bench->bytes, bench->length, &view);
	for (uint64_t i = 0; i < times; i++) {
		view.psn = e->psn[0];
		e->psn[0] = psn_add(e->psn[0], 1);
		transport_receive_at(e->worker, e->qp[0], &view, NULL, e->now);
		if (i % 16 == 15)
			bench->sum += transport_poll(e->worker, e->now);
	}
}

void run_idle_poll(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += transport_poll(bench->engine->worker, bench->engine->now);
}

void run_build(struct bench *bench, uint64_t times)
{
	while (times--)
		bench->sum += engine_request(bench->engine, 0, OP_RC_WRITE_ONLY, 1, bench->size,
					     bench->engine->buffer);
}

bool set_up_build(struct bench *bench, uint32_t size)
{
	bench->size = size;
	return set_up_queue_pairs(bench, 1);
}
