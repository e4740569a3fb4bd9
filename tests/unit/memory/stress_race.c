/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stress: workers bind, invalidate and fast-register while the control thread destroys,
 * deregisters, unmaps and ends sessions under them, all on a handful of objects.
 *
 * The client is hostile: both workers take the same tokens, windows and regions at
 * once. Now and then everything stops and the books are checked: whatever happened, no
 * count may be left over that keeps an object busy, and no token may be lost.
 *
 * Exit code 0: the books balance; 1: they do not; 2: the test itself did not work.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory/memory.h"

#define WORKERS        2u
#define LEAST_SESSIONS 2 /* however little time the machine has for us */
#define SESSION        1u
#define SIZE           8192u
#define BASE           0x10000ull
#define OBJECTS        3u /* windows, regions, fast-register regions, each */
#define TOKENS         6u
#define PENDING        8u

struct race {
	struct arena arena;
	struct memory *memory;
	struct accessor who;
	uint32_t segment;
	uint32_t spare; /* a segment without regions: the privileged token's; atomic */
	/* What the client knows; every thread reads and writes these, all atomic. */
	uint32_t window[OBJECTS];
	uint32_t region[OBJECTS];
	uint32_t fast[OBJECTS];
	uint32_t fast_token[OBJECTS];
	uint32_t token[TOKENS];
	uint32_t stop;
	uint32_t hold;   /* workers finish what they have and wait */
	uint32_t paused; /* workers that wait */
};

struct worker {
	pthread_t thread;
	struct race *race;
	unsigned int reader;
	uint64_t random;
	struct {
		uint32_t slot;
		uint64_t grace;
	} pending[PENDING];
	unsigned int pending_count;
	uint64_t done[4]; /* binds, invalidates, fast registers, logical accesses that succeeded */
};

static void die(const char *what, int code)
{
	fprintf(stderr, "stress-race: %s\n", what);
	exit(code);
}

static uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void set(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static uint32_t draw(uint64_t *random, uint32_t below)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return (uint32_t)(*random >> 32) % below;
}

/* --- workers ---------------------------------------------------------------------- */

static void try_bind(struct worker *w)
{
	struct race *r = w->race;
	const struct bind_request ask = {
		.region = get(&r->region[draw(&w->random, OBJECTS)]),
		.window = get(&r->window[draw(&w->random, OBJECTS)]),
		.token = get(&r->token[draw(&w->random, TOKENS)]),
		.rights = RIGHT_REMOTE_READ,
		.address = BASE,
		.length = 1 + draw(&w->random, SIZE),
	};

	w->done[0] += window_bind(r->memory, &r->who, &ask) == ACCESS_OK;
}

static void try_invalidate(struct worker *w)
{
	struct race *r = w->race;
	const uint32_t *token = draw(&w->random, 4) ? &r->token[draw(&w->random, TOKENS)]
						    : &r->fast_token[draw(&w->random, OBJECTS)];
	uint64_t grace;
	uint32_t slot;

	if (w->pending_count == PENDING ||
	    token_invalidate(r->memory, &r->who, get(token), draw(&w->random, 2), &slot, &grace) !=
		    ACCESS_OK)
		return;
	w->pending[w->pending_count].slot = slot;
	w->pending[w->pending_count++].grace = grace;
	w->done[1]++;
}

static void try_fast_register(struct worker *w)
{
	struct race *r = w->race;
	const struct fast_register_request ask = {
		.region = get(&r->fast[draw(&w->random, OBJECTS)]),
		.segment = r->segment,
		.offset = draw(&w->random, SIZE / 2),
		.length = 1 + draw(&w->random, SIZE / 2),
		.base = BASE,
		.rights = RIGHT_REMOTE_READ,
	};

	w->done[2] += region_fast_register(r->memory, &r->who, &ask) == ACCESS_OK;
}

static void try_access(struct worker *w)
{
	struct race *r = w->race;
	const uint32_t token = draw(&w->random, 2) ? get(&r->token[draw(&w->random, TOKENS)])
						   : get(&r->fast_token[draw(&w->random, OBJECTS)]);
	const uint64_t address = BASE + draw(&w->random, SIZE);
	struct access access;

	if (memory_access(r->memory, &r->who, token, address, 1, RIGHT_REMOTE_READ, &access) ==
	    ACCESS_OK)
		(void)__atomic_load_n(access.pointer, __ATOMIC_RELAXED);
}

static void try_privileged(struct worker *w)
{
	struct race *r = w->race;
	const uint64_t segment = draw(&w->random, 3) ? get(&r->spare) : r->segment;
	struct access access;

	if (memory_access(r->memory, &r->who, memory_privileged_token(r->memory),
			  segment << LOGICAL_OFFSET_BITS | draw(&w->random, SIZE), 1,
			  RIGHT_LOCAL_WRITE, &access) != ACCESS_OK)
		return;
	__atomic_store_n(access.pointer, 1, __ATOMIC_RELAXED);
	w->done[3]++;
}

static void finish_pending(struct worker *w)
{
	struct race *r = w->race;

	for (unsigned int i = 0; i < w->pending_count;) {
		uint32_t token;

		if (!memory_grace_done(r->memory, w->pending[i].grace)) {
			i++;
			continue;
		}
		token = token_recycle(r->memory, 0, w->pending[i].slot);
		if (token)
			set(&r->token[draw(&w->random, TOKENS)], token);
		w->pending[i] = w->pending[--w->pending_count];
	}
}

static void pause_here(struct worker *w)
{
	struct race *r = w->race;

	while (w->pending_count) {
		memory_quiescent(r->memory, w->reader);
		finish_pending(w);
		sched_yield();
	}
	memory_reader_offline(r->memory, w->reader);
	__atomic_fetch_add(&r->paused, 1, __ATOMIC_SEQ_CST);
	while (get(&r->hold))
		sched_yield();
	__atomic_fetch_sub(&r->paused, 1, __ATOMIC_SEQ_CST);
	memory_reader_online(r->memory, w->reader);
}

static void *work(void *argument)
{
	static void (*const tries[])(struct worker *) = { try_bind, try_invalidate,
							  try_fast_register, try_access,
							  try_privileged };
	struct worker *w = argument;
	struct race *r = w->race;

	memory_reader_online(r->memory, w->reader);
	while (!get(&r->stop)) {
		for (unsigned int i = draw(&w->random, 8); i; i--)
			tries[draw(&w->random, 5)](w);
		finish_pending(w);
		memory_quiescent(r->memory, w->reader);
		if (draw(&w->random, 64) == 0)
			sched_yield();
		if (get(&r->hold))
			pause_here(w);
	}
	memory_reader_offline(r->memory, w->reader);
	return NULL;
}

/* --- control ---------------------------------------------------------------------------- */

static void await(struct race *r, uint64_t grace)
{
	while (!memory_grace_done(r->memory, grace))
		sched_yield();
}

static void new_window(struct race *r, unsigned int i)
{
	uint32_t window;

	if (window_create(r->memory, SESSION, r->who.pd, &window) < 0)
		die("window_create failed", 2);
	set(&r->window[i], window);
}

static void new_region(struct race *r, unsigned int i)
{
	uint32_t region, local, remote;

	if (region_create(r->memory, SESSION, r->who.pd, false, &region) < 0 ||
	    region_register(r->memory, region, r->segment, 0, SIZE, BASE, RIGHT_REMOTE_READ, &local,
			    &remote) < 0)
		die("region_register failed", 2);
	set(&r->region[i], region);
}

static void new_fast(struct race *r, unsigned int i)
{
	uint32_t region, local, remote = 0;

	if (region_create(r->memory, SESSION, r->who.pd, true, &region) < 0 ||
	    region_init_fast_register(r->memory, region, 4, true, &local, &remote) < 0)
		die("region_init_fast_register failed", 2);
	set(&r->fast[i], region);
	set(&r->fast_token[i], remote);
}

static void new_tokens(struct race *r)
{
	uint32_t token;

	for (unsigned int i = 0; i < TOKENS; i++)
		if (token_reserve(r->memory, SESSION, 1, &token) == 1)
			set(&r->token[i], token);
}

static void end_window(struct race *r, unsigned int i)
{
	uint64_t grace;

	if (window_destroy(r->memory, r->window[i], &grace) < 0)
		die("window_destroy failed", 1);
	await(r, grace);
	window_destroy_finish(r->memory, r->window[i]);
}

/* Returns false when busy. */
static bool end_region(struct race *r, uint32_t region)
{
	uint64_t grace;

	if (region_deregister(r->memory, region, &grace) < 0)
		return false;
	await(r, grace);
	region_deregister_finish(r->memory, region);
	if (region_destroy(r->memory, region) < 0)
		die("region_destroy failed", 1);
	return true;
}

static uint32_t new_segment(struct race *r, uint64_t cookie)
{
	int fd = memfd_create("oriel-stress", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint32_t segment = 0;

	if (fd < 0 || ftruncate(fd, SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0 ||
	    segment_attach(r->memory, SESSION, cookie, fd, -1, &segment) < 0)
		die("segment_attach failed", 2);
	return segment;
}

static void end_segment(struct race *r, uint32_t segment)
{
	if (segment_detach(r->memory, segment) < 0)
		die("the segment is busy without regions", 1);
	while (segment_collect(r->memory))
		sched_yield();
}

static void disturb(struct race *r, uint64_t *random)
{
	const unsigned int i = draw(random, OBJECTS);

	switch (draw(random, 5)) {
	case 0:
		end_window(r, i);
		new_window(r, i);
		break;
	case 1:
		if (end_region(r, r->region[i]))
			new_region(r, i);
		break;
	case 2:
		if (end_region(r, r->fast[i]))
			new_fast(r, i);
		break;
	case 3: new_tokens(r); break;
	case 4:
		end_segment(r, get(&r->spare));
		set(&r->spare, new_segment(r, 2));
		break;
	}
}

static void begin_session(struct race *r)
{
	if (pd_create(r->memory, SESSION, &r->who.pd) < 0)
		die("pd_create failed", 2);
	r->segment = new_segment(r, 1);
	set(&r->spare, new_segment(r, 2));
	for (unsigned int i = 0; i < OBJECTS; i++) {
		new_window(r, i);
		new_region(r, i);
		new_fast(r, i);
	}
	new_tokens(r);
}

static void check_books(struct race *r)
{
	struct memory_usage usage;

	memory_usage(r->memory, &usage);
	if (usage.tokens_free + 1 != arena_records(&r->arena, ARENA_TOKENS))
		die("tokens were lost", 1);
	if (usage.pds + usage.regions + usage.windows + usage.segments)
		die("objects were left over", 1);
}

/* Object by object, with workers at rest: nothing may be busy. */
static void end_in_order(struct race *r)
{
	struct memory_usage usage;
	uint64_t grace;

	for (unsigned int i = 0; i < OBJECTS; i++)
		end_window(r, i);
	for (unsigned int i = 0; i < OBJECTS; i++)
		if (!end_region(r, r->region[i]) || !end_region(r, r->fast[i]))
			die("a region is busy without windows", 1);
	end_segment(r, r->segment);
	end_segment(r, get(&r->spare));
	if (pd_destroy(r->memory, r->who.pd) < 0)
		die("the domain is busy without objects", 1);
	memory_usage(r->memory, &usage);
	if (usage.tokens_valid)
		die("a token outlived its window or region", 1);
	if (usage.tokens_free + usage.tokens_reserved + 1 != arena_records(&r->arena, ARENA_TOKENS))
		die("a dead token belongs to nobody", 1);
	session_release(r->memory, SESSION, &grace);
	session_release_finish(r->memory, SESSION);
}

static void hold_workers(struct race *r)
{
	set(&r->hold, 1);
	while (__atomic_load_n(&r->paused, __ATOMIC_SEQ_CST) != WORKERS)
		sched_yield();
}

static void let_go(struct race *r)
{
	set(&r->hold, 0);
	while (__atomic_load_n(&r->paused, __ATOMIC_SEQ_CST) != 0)
		sched_yield();
}

static void one_session(struct race *r, uint64_t *random)
{
	uint64_t grace = 0;
	const bool at_once = draw(random, 2);

	begin_session(r);
	let_go(r);
	for (unsigned int i = 0; i < 100; i++)
		disturb(r, random);
	if (at_once)
		session_release(r->memory, SESSION, &grace); /* workers at full speed */
	hold_workers(r);
	if (at_once) {
		await(r, grace);
		session_release_finish(r->memory, SESSION);
	} else {
		end_in_order(r);
	}
	check_books(r);
}

int main(int argc, char **argv)
{
	static struct race r = { .who = { .qpn = 5, .session = SESSION }, .hold = 1 };
	const struct memory_sizes sizes = {
		.tokens = 1u << 10, .segments = 4, .regions = 16, .windows = 8, .pds = 3
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	struct worker workers[WORKERS] = { 0 };
	const time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 5);
	uint64_t random = 88172645463325252ull, done[4] = { 0 }, sessions = 0;

	memory_arena_spec(&sizes, spec);
	if (arena_create(&r.arena, spec) < 0 ||
	    memory_create(&r.memory, &r.arena, WORKERS, false) < 0)
		die("memory_create failed", 2);
	for (unsigned int i = 0; i < WORKERS; i++) {
		workers[i].race = &r;
		workers[i].reader = i;
		workers[i].random = 0x9e3779b97f4a7c15ull * (i + 1);
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("pthread_create failed", 2);
	}
	hold_workers(&r);
	for (; sessions < LEAST_SESSIONS || time(NULL) < end; sessions++)
		one_session(&r, &random);
	set(&r.stop, 1);
	set(&r.hold, 0);
	for (unsigned int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		for (int j = 0; j < 4; j++)
			done[j] += workers[i].done[j];
	}
	printf("%llu sessions, %llu binds, %llu invalidates, %llu fast registers, %llu logical "
	       "accesses\n",
	       (unsigned long long)sessions, (unsigned long long)done[0],
	       (unsigned long long)done[1], (unsigned long long)done[2],
	       (unsigned long long)done[3]);
	memory_destroy(r.memory);
	arena_destroy(&r.arena);
	return sessions && done[0] && done[1] && done[2] && done[3] ? 0 : 2;
}
