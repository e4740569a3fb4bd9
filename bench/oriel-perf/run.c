/* SPDX-License-Identifier: BSD-3-Clause */
/* The measurements. */
#include "oriel-perf/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH       64u
#define MAX_SAMPLES 1000000u

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

const char *run_name(enum run_operation operation)
{
	return operation == RUN_WRITE ? "write" : "read";
}

static NTSTATUS post(struct peer *peer, enum run_operation operation, uint64_t offset,
		     uint32_t size, ULONG flags)
{
	NDK_SGE sge = { .VirtualAddress = peer->buffer + offset % (peer->options.memory - size + 1),
			.Length = size,
			.MemoryRegionToken = peer->local_token };
	uint64_t address = peer->window.address + offset;

	if (operation == RUN_WRITE)
		return NdkWrite(peer->qp, NULL, &sge, 1, address, peer->window.token, flags);
	return NdkRead(peer->qp, NULL, &sge, 1, address, peer->window.token, flags);
}

static bool take(struct peer *peer, ULONG *count)
{
	NDK_RESULT results[BATCH];

	if (!peer_results(peer, results, BATCH, count)) {
		fprintf(stderr, "oriel-perf: the connection is over\n");
		return false;
	}
	for (ULONG i = 0; i < *count; i++) {
		if (NT_SUCCESS(results[i].Status))
			continue;
		fprintf(stderr, "oriel-perf: a request failed: %s\n",
			OrielStatusName(results[i].Status));
		return false;
	}
	return true;
}

/* Offsets go through the window message by message. */
struct walk {
	uint64_t offset;
	uint64_t end;
	uint64_t step;
};

static uint64_t walk_next(struct walk *walk)
{
	uint64_t offset = walk->offset;

	walk->offset += walk->step;
	if (walk->offset > walk->end)
		walk->offset = 0;
	return offset;
}

static struct walk walk_start(const struct peer *peer, uint32_t size)
{
	uint64_t step = (size + 63) & ~63ull;

	return (struct walk){ 0, peer->window.length - size, step };
}

/* --- throughput: a window of outstanding requests ------------------------------------------- */

static bool fill(struct peer *peer, const struct run_options *options, struct walk *walk,
		 uint64_t *posted, uint64_t done, uint64_t most)
{
	while (*posted - done < options->depth && *posted < most) {
		bool last = *posted + 1 - done == options->depth || *posted + 1 == most;
		NTSTATUS status = post(peer, options->operation, walk_next(walk), options->size,
				       last ? 0 : NDK_OP_FLAG_DEFER);

		if (!NT_SUCCESS(status)) {
			fprintf(stderr, "oriel-perf: posting: %s\n", OrielStatusName(status));
			return false;
		}
		(*posted)++;
	}
	return true;
}

static bool measure_rate(struct peer *peer, const struct run_options *options,
			 struct run_result *result)
{
	uint64_t most = options->iterations ? options->iterations : UINT64_MAX;
	struct walk walk = walk_start(peer, options->size);
	uint64_t posted = 0, done = 0;
	double start = now();
	double end = start + options->seconds;
	ULONG count;

	while (done < most && (done < posted || most > posted)) {
		if (!options->iterations && most == UINT64_MAX && now() >= end)
			most = posted; /* what is out comes in, nothing new goes out */
		if (!fill(peer, options, &walk, &posted, done, most))
			return false;
		if (done == posted)
			break;
		if (!take(peer, &count))
			return false;
		done += count;
	}
	result->seconds = now() - start;
	result->messages = done;
	return true;
}

/* --- latency: one at a time ---------------------------------------------------------------------
 */

static int compare_floats(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static bool measure_latency(struct peer *peer, const struct run_options *options,
			    struct run_result *result)
{
	struct walk walk = walk_start(peer, options->size);
	float *samples = malloc(MAX_SAMPLES * sizeof(*samples));
	double start = now();
	uint64_t n = 0;
	bool good = samples != NULL;

	while (good && n < MAX_SAMPLES &&
	       (options->iterations ? n < options->iterations : now() < start + options->seconds)) {
		double before = now();
		ULONG count;

		good = NT_SUCCESS(post(peer, options->operation, walk_next(&walk), options->size,
				       0)) &&
		       take(peer, &count);
		samples[n++] = (float)((now() - before) * 1e6);
	}
	result->seconds = now() - start;
	result->messages = n;
	if (good && n) {
		qsort(samples, n, sizeof(*samples), compare_floats);
		result->minimum = samples[0];
		result->p50 = samples[n / 2];
		result->p99 = samples[n * 99 / 100];
		result->p999 = samples[n * 999 / 1000];
	}
	free(samples);
	return good;
}

bool run_measure(struct peer *peer, const struct run_options *options, struct run_result *result)
{
	bool good;

	*result = (struct run_result){ 0 };
	if (options->size > peer->window.length || options->size > peer->options.memory) {
		fprintf(stderr, "oriel-perf: %u bytes do not fit into the window\n", options->size);
		return false;
	}
	good = options->latency ? measure_latency(peer, options, result)
				: measure_rate(peer, options, result);
	if (good && result->seconds > 0) {
		result->messages_per_second = (double)result->messages / result->seconds;
		result->bytes_per_second = result->messages_per_second * options->size;
	}
	return good;
}

/* --- verification
 * -------------------------------------------------------------------------------------- */

static bool transfer(struct peer *peer, enum run_operation operation, uint64_t local,
		     uint64_t remote, uint32_t size)
{
	NDK_SGE sge = { .VirtualAddress = peer->buffer + local,
			.Length = size,
			.MemoryRegionToken = peer->local_token };
	uint64_t address = peer->window.address + remote;
	NTSTATUS status;
	ULONG count;

	status = operation == RUN_WRITE
			 ? NdkWrite(peer->qp, NULL, &sge, 1, address, peer->window.token, 0)
			 : NdkRead(peer->qp, NULL, &sge, 1, address, peer->window.token, 0);
	return NT_SUCCESS(status) && take(peer, &count);
}

bool run_verify(struct peer *peer, uint64_t *bytes)
{
	static const uint32_t sizes[] = { 0,    1,    7,    64,   255,  1023, 1024,
					  1025, 2047, 2049, 4096, 4097, 65537 };
	uint64_t half = peer->options.memory / 2;
	uint32_t seed = 12345;

	*bytes = 0;
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t remote = i * 97;

		if (sizes[i] > half || remote + sizes[i] > peer->window.length)
			continue;
		for (uint32_t k = 0; k < sizes[i]; k++) {
			seed = seed * 1664525 + 1013904223;
			peer->buffer[k] = (uint8_t)(seed >> 24);
		}
		memset(peer->buffer + half, 0, sizes[i]);
		if (!transfer(peer, RUN_WRITE, 0, remote, sizes[i]) ||
		    !transfer(peer, RUN_READ, half, remote, sizes[i]))
			return false;
		if (memcmp(peer->buffer, peer->buffer + half, sizes[i])) {
			fprintf(stderr,
				"oriel-perf: %u bytes read back differ from those written\n",
				sizes[i]);
			return false;
		}
		*bytes += sizes[i];
	}
	return true;
}
