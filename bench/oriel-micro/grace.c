/* SPDX-License-Identifier: BSD-3-Clause */
/* Grace periods of two busy workers: from the invalidate to the last report that it waits for. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "oriel-micro/cpu.h"
#include "oriel-micro/grace.h"

#define FIRST  0u /* readers */
#define SECOND 1u

struct other {
	struct engine *engine;
	void (*burst)(void *context);
	void *context;
	int cpu;
	bool started, stop;
};

static void *other_run(void *argument)
{
	struct other *other = argument;

	cpu_pin(other->cpu);
	memory_reader_online(other->engine->memory, SECOND);
	__atomic_store_n(&other->started, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&other->stop, __ATOMIC_ACQUIRE)) {
		other->burst(other->context);
		memory_quiescent(other->engine->memory, SECOND);
	}
	memory_reader_offline(other->engine->memory, SECOND);
	return NULL;
}

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static bool bind_again(struct engine *engine, const struct accessor *who, uint32_t slot)
{
	struct bind_request request = { .region = engine->region,
					.window = engine->window[1],
					.rights = RIGHTS_REMOTE,
					.address = ENGINE_BASE,
					.length = 4096 };

	request.token = token_recycle(engine->memory, 0, slot);
	if (request.token == 0 &&
	    token_reserve(engine->memory, ENGINE_SESSION, 1, &request.token) != 1)
		return false;
	engine->token[1] = request.token;
	return window_bind(engine->memory, who, &request) == ACCESS_OK;
}

/* A window that no burst uses dies and comes back; the worker goes on with its bursts meanwhile. */
static bool one(struct engine *engine, void (*burst)(void *context), void *mine, double *us)
{
	const struct accessor who = engine_accessor(engine, 0);
	double start = now_us();
	uint64_t grace;
	uint32_t slot;

	if (token_invalidate(engine->memory, &who, engine->token[1], false, &slot, &grace))
		return false;
	do {
		burst(mine);
		memory_quiescent(engine->memory, FIRST);
	} while (grace && !memory_grace_done(engine->memory, grace));
	*us = now_us() - start;
	return bind_again(engine, &who, slot);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

bool grace_measure(struct engine *engine, void (*burst)(void *context), void *mine, void *others,
		   double *us, uint32_t count)
{
	struct other other = { engine, burst, others, cpu_from_end(1), false, false };
	const int first = cpu_from_end(0);
	pthread_t thread;
	bool good = other.cpu >= 0 && cpu_pin(first) &&
		    pthread_create(&thread, NULL, other_run, &other) == 0;

	if (!good)
		return false;
	while (!__atomic_load_n(&other.started, __ATOMIC_ACQUIRE))
		sched_yield();
	for (uint32_t i = 0; good && i < count; i++)
		good = one(engine, burst, mine, &us[i]);
	__atomic_store_n(&other.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	qsort(us, count, sizeof(*us), compare);
	return good;
}
