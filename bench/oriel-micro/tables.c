/* SPDX-License-Identifier: BSD-3-Clause */
/* Benchmarks of the tables: tokens and queue pairs, looked up, bound and invalidated. */
#include <stdlib.h>

#include "oriel-micro/bench.h"

static bool shuffle(struct bench *bench, uint32_t places)
{
	bench->places = places;
	bench->random = 88172645463325252ull;
	bench->order = malloc(BENCH_PLACES * sizeof(*bench->order));
	for (uint32_t i = 0; bench->order && i < BENCH_PLACES; i++) {
		bench->random ^= bench->random << 13;
		bench->random ^= bench->random >> 7;
		bench->random ^= bench->random << 17;
		bench->order[i] = (uint32_t)((bench->random >> 32) * places >> 32);
	}
	return bench->order;
}

bool set_up_windows(struct bench *bench, uint32_t windows)
{
	bench->engine = engine_create(1, windows, 1);
	return bench->engine && shuffle(bench, windows);
}

void run_token_hit(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct access access;

	for (uint64_t i = 0; i < times; i++) {
		uint32_t w = bench->order[i % BENCH_PLACES];

		bench->sum += memory_access(e->memory, &who, e->token[w],
					    ENGINE_BASE + w * 64u % (ENGINE_MEMORY - 4096u), 64,
					    RIGHT_REMOTE_WRITE, &access);
	}
}

void run_token_miss(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct access access;

	for (uint64_t i = 0; i < times; i++)
		bench->sum += memory_access(e->memory, &who, (uint32_t)(i * 2654435761u),
					    ENGINE_BASE, 64, RIGHT_REMOTE_WRITE, &access);
}

bool set_up_queue_pairs(struct bench *bench, uint32_t qps)
{
	bench->engine = engine_create(qps, 2, 2);
	return bench->engine && shuffle(bench, qps);
}

void run_qp_find(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;

	for (uint64_t i = 0; i < times; i++)
		bench->sum += transport_find(e->worker, e->qpn[bench->order[i % BENCH_PLACES]]);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* A bind and its invalidate with the grace period of one worker that reports at once. */
void run_bind(struct bench *bench, uint64_t times)
{
	struct engine *e = bench->engine;
	const struct accessor who = engine_accessor(e, 0);
	struct bind_request request = { .region = e->region,
					.window = e->window[0],
					.token = e->token[0],
					.rights = RIGHTS_REMOTE,
					.address = ENGINE_BASE,
					.length = 4096 };
	uint32_t slot;
	uint64_t grace;

	while (times--) {
		if (token_invalidate(e->memory, &who, request.token, false, &slot, &grace))
			abort();
		while (grace && !memory_grace_done(e->memory, grace))
			memory_quiescent(e->memory, 0);
		request.token = token_recycle(e->memory, 0, slot);
		while (request.token == 0)
			if (token_reserve(e->memory, ENGINE_SESSION, 1, &request.token) != 1)
				abort();
		if (window_bind(e->memory, &who, &request))
			abort();
	}
	e->token[0] = request.token;
}
