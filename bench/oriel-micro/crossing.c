/* SPDX-License-Identifier: BSD-3-Clause */
/* Two threads that poll, each on a processor of its own, and one entry that goes to and fro. */
#include "oriel-micro/crossing.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "oriel-micro/cpu.h"
#include "shm/spsc.h"

#define SIZE   256u /* of the rings */
#define SERIES 64u  /* ways there and back for one look at the clock */

struct pair {
	struct shm_ring_cursor there, back;
	int cpu; /* of the other end */
	bool started, stop;
};

static void put(struct shm_ring_cursor *ring)
{
	const uint32_t tail = ring->tail;

	while (shm_ring_free(ring, tail, SIZE) == 0)
		continue;
	shm_store_release(&ring->tail, tail + 1);
}

static bool take(struct shm_ring_cursor *ring)
{
	const uint32_t head = ring->head;

	if (shm_ring_used(ring, head) == 0)
		return false;
	shm_store_release(&ring->head, head + 1);
	return true;
}

/* What comes goes back. */
static void *other_run(void *argument)
{
	struct pair *pair = argument;

	cpu_pin(pair->cpu);
	__atomic_store_n(&pair->started, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&pair->stop, __ATOMIC_ACQUIRE))
		if (take(&pair->there))
			put(&pair->back);
	return NULL;
}

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double series(struct pair *pair)
{
	const double start = now_ns();

	for (uint32_t i = 0; i < SERIES; i++) {
		put(&pair->there);
		while (!take(&pair->back))
			continue;
	}
	return (now_ns() - start) / (2 * SERIES);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

bool crossing_measure(double *ns, uint32_t count)
{
	struct pair *pair = aligned_alloc(64, (sizeof(*pair) + 63) / 64 * 64);
	pthread_t thread;
	bool good = pair;

	if (good) {
		*pair = (struct pair){ .cpu = cpu_from_end(1) };
		good = pair->cpu >= 0 && cpu_pin(cpu_from_end(0)) &&
		       pthread_create(&thread, NULL, other_run, pair) == 0;
	}
	if (good) {
		while (!__atomic_load_n(&pair->started, __ATOMIC_ACQUIRE))
			sched_yield();
		for (uint32_t i = 0; i < count; i++)
			ns[i] = series(pair);
		__atomic_store_n(&pair->stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		qsort(ns, count, sizeof(*ns), compare);
	}
	free(pair);
	return good;
}
