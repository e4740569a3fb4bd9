/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stress: no access slips through once a revocation is complete.
 *
 * Workers access memory through whatever token is published, each time with a pause
 * between the check and the store, so that a revocation that does not wait for them is
 * caught. Both sides also give way to each other there, for machines with one core to
 * spare. One more thread gives and revokes permissions, by turns a window's and a whole
 * region's. When a revocation is complete it fills the memory with a canary and watches:
 * a canary that changes, or that a worker gets to see, is a slip.
 *
 * Exit code 0: none; 1: at least one; 2: the test itself did not work.
 */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "memory/memory.h"

#define MAX_WORKERS 4u
#define REVOKER     MAX_WORKERS /* its reader number, as it is a worker too */
#define WORDS       64u
#define SIZE        (WORDS * 8u)
#define BASE        0x10000ull
#define CANARY      0xdeadull << 48
#define SESSION     1u

#define HOLD_PAUSES  200 /* a worker between check and store */
#define WATCH_PASSES 20  /* each longer than that */
#define LEAST_CYCLES 4   /* however little time the machine has for us */

struct stress {
	struct arena arena;
	struct memory *memory;
	struct accessor who;
	uint64_t *client; /* the client's own mapping */
	uint32_t segment;
	uint32_t region;
	uint32_t window;
	uint32_t token;     /* next one to bind, reserved */
	uint32_t published; /* what the peers hold; atomic */
	uint32_t stop;      /* atomic */
	uint32_t slips;     /* atomic */
	uint64_t accesses;  /* begun; atomic */
	uint64_t cycles;
};

struct worker {
	pthread_t thread;
	struct stress *stress;
	unsigned int reader;
	uint64_t refusals;
};

static void die(const char *what)
{
	fprintf(stderr, "stress-revoke: %s failed\n", what);
	exit(2);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void hold(unsigned int pauses)
{
	for (unsigned int i = 0; i < pauses; i++)
		__builtin_ia32_pause();
}

static void slip(struct stress *s, const char *what)
{
	if (__atomic_fetch_add(&s->slips, 1, __ATOMIC_RELAXED) == 0)
		fprintf(stderr, "stress-revoke: %s\n", what);
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELAXED);
}

/* --- workers ---------------------------------------------------------------------- */

static void serve_one(struct worker *w, unsigned int turn)
{
	struct stress *s = w->stress;
	const uint32_t token = __atomic_load_n(&s->published, __ATOMIC_RELAXED);
	const uint64_t address = BASE + 8 * ((turn * 7 + w->reader) % WORDS);
	struct access access;
	uint64_t *word;

	if (memory_access(s->memory, &s->who, token, address, 8, RIGHT_REMOTE_WRITE, &access) !=
	    ACCESS_OK) {
		w->refusals++;
		return;
	}
	__atomic_fetch_add(&s->accesses, 1, __ATOMIC_RELAXED);
	hold(HOLD_PAUSES);
	if (turn % 4 == 0)
		sched_yield();
	word = (uint64_t *)(void *)access.pointer;
	if ((__atomic_load_n(word, __ATOMIC_RELAXED) & CANARY) == CANARY)
		slip(s, "a worker read memory after its revocation");
	__atomic_store_n(word, turn % 1000, __ATOMIC_RELAXED);
}

static void *work(void *argument)
{
	struct worker *w = argument;
	struct stress *s = w->stress;

	memory_reader_online(s->memory, w->reader);
	for (unsigned int turn = 0; !__atomic_load_n(&s->stop, __ATOMIC_RELAXED); turn++) {
		serve_one(w, turn);
		if (turn % 4 == w->reader)
			memory_quiescent(s->memory, w->reader);
		if (turn % 256 == 0) {
			memory_reader_offline(s->memory, w->reader);
			sched_yield();
			memory_reader_online(s->memory, w->reader);
		}
	}
	memory_reader_offline(s->memory, w->reader);
	return NULL;
}

/* --- the revoker ------------------------------------------------------------------- */

static uint32_t give_window(struct stress *s)
{
	const struct bind_request ask = {
		.region = s->region,
		.window = s->window,
		.token = s->token,
		.rights = RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE,
		.address = BASE,
		.length = SIZE,
	};

	if (window_bind(s->memory, &s->who, &ask) != ACCESS_OK)
		die("window_bind");
	return s->token;
}

static uint32_t give_region(struct stress *s)
{
	uint32_t local, remote;

	if (region_register(s->memory, s->region, s->segment, 0, SIZE, BASE,
			    RIGHT_LOCAL_WRITE | RIGHT_REMOTE_WRITE, &local, &remote) < 0)
		die("region_register");
	return remote;
}

static void wait_for_grace(struct stress *s, uint64_t grace)
{
	while (!memory_grace_done(s->memory, grace)) {
		memory_quiescent(s->memory, REVOKER);
		sched_yield();
	}
}

static void revoke_window(struct stress *s, uint32_t token)
{
	uint64_t grace;
	uint32_t slot;

	if (token_invalidate(s->memory, &s->who, token, s->cycles & 2, &slot, &grace) != ACCESS_OK)
		die("token_invalidate");
	wait_for_grace(s, grace);
	s->token = token_recycle(s->memory, 0, slot);
	if (s->token == 0 && token_reserve(s->memory, SESSION, 1, &s->token) != 1)
		die("token_reserve");
}

static void revoke_region(struct stress *s)
{
	uint64_t grace;

	if (region_deregister(s->memory, s->region, &grace) < 0)
		die("region_deregister");
	wait_for_grace(s, grace);
	region_deregister_finish(s->memory, s->region);
}

/* The revocation is complete: from here to the end nobody else may touch the memory. */
static void watch(struct stress *s, uint32_t dead)
{
	const uint64_t canary = CANARY | s->cycles;
	struct access access;

	for (unsigned int i = 0; i < WORDS; i++)
		__atomic_store_n(&s->client[i], canary, __ATOMIC_RELAXED);
	for (unsigned int pass = 0; pass < WATCH_PASSES; pass++) {
		hold(HOLD_PAUSES / 2);
		if (pass % 4 == 0)
			sched_yield();
		for (unsigned int i = 0; i < WORDS; i++)
			if (__atomic_load_n(&s->client[i], __ATOMIC_RELAXED) != canary)
				slip(s, "a worker wrote memory after its revocation");
	}
	if (memory_access(s->memory, &s->who, dead, BASE, 8, RIGHT_REMOTE_WRITE, &access) ==
	    ACCESS_OK)
		slip(s, "a revoked token is still good");
	for (unsigned int i = 0; i < WORDS; i++)
		__atomic_store_n(&s->client[i], 0, __ATOMIC_RELAXED);
}

/* Lets the peers use it for a while, so that they are busy with it when it ends. */
static void let_use(struct stress *s)
{
	const uint64_t enough = __atomic_load_n(&s->accesses, __ATOMIC_RELAXED) + 1 + s->cycles % 5;

	for (unsigned int i = 0; i < 1000; i++) {
		if (__atomic_load_n(&s->accesses, __ATOMIC_RELAXED) >= enough)
			break;
		hold(HOLD_PAUSES / 10);
		memory_quiescent(s->memory, REVOKER);
		if (i % 100 == 99)
			sched_yield();
	}
}

/* Window and region by turns; the region stays registered under the window's turn. */
static void cycle(struct stress *s)
{
	const bool whole_region = s->cycles % 4 == 3;
	uint32_t token = give_region(s);

	if (!whole_region)
		token = give_window(s);
	__atomic_store_n(&s->published, token, __ATOMIC_RELAXED);
	let_use(s);
	if (!whole_region)
		revoke_window(s, token);
	else
		revoke_region(s);
	watch(s, token);
	if (!whole_region)
		revoke_region(s);
	s->cycles++;
}

/* --- set-up ---------------------------------------------------------------------------- */

static void set_up(struct stress *s)
{
	const struct memory_sizes sizes = {
		.tokens = 1u << 16, .segments = 2, .regions = 2, .windows = 2, .pds = 2
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	int fd = memfd_create("oriel-stress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	memory_arena_spec(&sizes, spec);
	s->who = (struct accessor){ .qpn = 5, .session = SESSION };
	if (fd < 0 || ftruncate(fd, SIZE) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		die("memfd");
	s->client = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->client == MAP_FAILED)
		die("mmap");
	if (arena_create(&s->arena, spec) < 0 ||
	    memory_create(&s->memory, &s->arena, MAX_WORKERS + 1, false) < 0 ||
	    pd_create(s->memory, SESSION, &s->who.pd) < 0 ||
	    segment_attach(s->memory, SESSION, 1, fd, -1, &s->segment) < 0 ||
	    region_create(s->memory, SESSION, s->who.pd, false, &s->region) < 0 ||
	    window_create(s->memory, SESSION, s->who.pd, &s->window) < 0 ||
	    token_reserve(s->memory, SESSION, 1, &s->token) != 1)
		die("set-up");
}

static void tear_down(struct stress *s)
{
	memory_destroy(s->memory);
	arena_destroy(&s->arena);
	munmap(s->client, SIZE);
}

static unsigned int parse_seconds(int argc, char **argv)
{
	static const struct option options[] = { { "seconds", required_argument, NULL, 's' },
						 { 0 } };
	unsigned long seconds = 5;
	int option;

	while ((option = getopt_long(argc, argv, "s:", options, NULL)) != -1) {
		char *end;

		if (option == 's')
			seconds = strtoul(optarg, &end, 10);
		if (option != 's' || *end || seconds == 0 || seconds > 86400) {
			fprintf(stderr, "usage: %s [--seconds 1..86400]\n", argv[0]);
			exit(2);
		}
	}
	return (unsigned int)seconds;
}

/* One core for each thread: who waits for a core is not where accesses slip through. */
static unsigned int worker_count(void)
{
	const long cores = sysconf(_SC_NPROCESSORS_ONLN) - 1;

	return cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : (unsigned int)cores;
}

int main(int argc, char **argv)
{
	static struct stress s;
	struct worker workers[MAX_WORKERS] = { 0 };
	const unsigned int count = worker_count();
	const uint64_t deadline = now_ns() + parse_seconds(argc, argv) * 1000000000ull;
	uint64_t refusals = 0;

	set_up(&s);
	for (unsigned int i = 0; i < count; i++) {
		workers[i] = (struct worker){ .stress = &s, .reader = i };
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("pthread_create");
	}
	memory_reader_online(s.memory, REVOKER);
	while (!__atomic_load_n(&s.stop, __ATOMIC_RELAXED) &&
	       (s.cycles < LEAST_CYCLES || now_ns() < deadline))
		cycle(&s);
	memory_reader_offline(s.memory, REVOKER);
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < count; i++) {
		pthread_join(workers[i].thread, NULL);
		refusals += workers[i].refusals;
	}
	printf("%llu revocations, %llu accesses, %llu refused, %u slips\n",
	       (unsigned long long)s.cycles, (unsigned long long)s.accesses,
	       (unsigned long long)refusals, s.slips);
	tear_down(&s);
	if (s.slips)
		return 1;
	return s.cycles && s.accesses && refusals ? 0 : 2;
}
