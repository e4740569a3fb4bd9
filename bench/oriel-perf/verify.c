/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the data are those that were written: each byte's value is known from its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-perf/run.h"

#define POISON 0xa5
#define CHUNK  65536u /* bytes of a request before and after the run */

struct verify {
	struct session *session;
	const struct perf_options *options;
	uint64_t step;
	uint32_t places;
	uint8_t *written;             /* by place */
	uint32_t *place;              /* by slot; those of WRITEs: UINT32_MAX */
	uint32_t *unused, unused_top; /* slots */
	uint64_t bytes;               /* compared */
	uint64_t sum;                 /* of the atomic counters before */
	/*
	 * READs of a perftest, whose memory holds what nobody knows, and keeps it: what is there at
	 * the start must come each time.
	 */
	bool unknown;
};

/* --- one request ------------------------------------------------------------------------- */

static bool transfer_by(struct peer *peer, enum perf_operation operation, uint64_t local,
			uint64_t remote, uint32_t size)
{
	const struct request request = {
		.operation = operation, .local = local, .remote = remote, .size = size
	};
	struct session *session = peer->session;
	NTSTATUS status = post_request(peer, &request);
	NDK_RESULT_EX result;
	ULONG count;

	if (!NT_SUCCESS(status))
		return session_complain("posting", status);
	if (!session_results(session, &result, 1, &count)) {
		fprintf(stderr, "oriel-perf: the connection is over\n");
		return false;
	}
	return post_completed(&result);
}

static bool transfer(struct session *session, enum perf_operation operation, uint64_t local,
		     uint64_t remote, uint32_t size)
{
	return transfer_by(session->peers, operation, local, remote, size);
}

/* --- what the other side is ---------------------------------------------------------------- */

/* All queue pairs reach the same memory at an export and at an oriel-perf, not at a perftest. */
static bool memory_is_one(const struct session *session)
{
	for (uint32_t i = 1; i < session->options.queue_pairs; i++)
		if (session->peers[i].remote.address != session->peers[0].remote.address)
			return false;
	return true;
}

/* What cannot be known before: a perftest's memory grants what its test needs and no more. */
bool verify_possible(struct session *session, const struct perf_options *options)
{
	if (options->export.ss_family || options_is_atomic(options))
		return true;
	if (!memory_is_one(session)) {
		fputs("oriel-perf: --verify: each queue pair has a memory of its own at the other "
		      "side: use one queue pair\n",
		      stderr);
		return false;
	}
	if (options->operation == PERF_READ || transfer(session, PERF_READ, 0, 0, 1))
		return true;
	fputs("oriel-perf: --verify reads back what was written, and the other side refuses to be "
	      "read: perftest lets the memory of a write test be written only. Run oriel-perf "
	      "there, or leave --verify away\n",
	      stderr);
	return false;
}

/* --- sizes around the MTU ---------------------------------------------------------------- */

bool verify_sizes(struct session *session, uint64_t *bytes)
{
	static const uint32_t sizes[] = { 0,    1,    7,    64,   255,  1023, 1024,
					  1025, 2047, 2049, 4096, 4097, 65537 };
	uint32_t seed = 12345;

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t remote = i * 97;

		if (sizes[i] > session->options.memory ||
		    remote + sizes[i] > session->peers[0].remote.length)
			continue;
		for (uint32_t k = 0; k < sizes[i]; k++) {
			seed = seed * 1664525 + 1013904223;
			session->source[k] = (uint8_t)(seed >> 24);
		}
		memset(session->sink, POISON, sizes[i]);
		if (!transfer(session, PERF_WRITE, 0, remote, sizes[i]) ||
		    !transfer(session, PERF_READ, 0, remote, sizes[i]))
			return false;
		if (memcmp(session->source, session->sink, sizes[i]) != 0) {
			fprintf(stderr,
				"oriel-perf: %u bytes read back differ from those written\n",
				sizes[i]);
			return false;
		}
		*bytes += sizes[i];
	}
	return true;
}

/* --- all bytes of a run ------------------------------------------------------------------ */

static uint8_t value(uint64_t offset, uint32_t generation)
{
	uint64_t mixed = (offset / 8 + generation * 0x51ed27ull) * 0x9e3779b97f4a7c15ull;

	return (uint8_t)(mixed >> (offset % 8 * 8));
}

/* Bytes from the first place to the end of the last. */
static uint64_t range(const struct verify *verify)
{
	return (verify->places - 1) * verify->step + verify->options->size;
}

static uint32_t chunk_at(const struct verify *verify, uint64_t at)
{
	uint64_t left = range(verify) - at;

	return left < CHUNK ? (uint32_t)left : CHUNK;
}

static void fill_source(struct verify *verify, uint32_t generation)
{
	for (uint64_t i = 0; i < range(verify); i++)
		verify->session->source[i] = value(i, generation);
}

static bool differs(uint64_t offset, uint8_t wanted, uint8_t found)
{
	fprintf(stderr,
		"oriel-perf: byte %llu of the window is 0x%02x instead of 0x%02x: data differ\n",
		(unsigned long long)offset, found, wanted);
	return false;
}

struct verify *verify_open(struct session *session, const struct perf_options *options,
			   uint64_t step, uint32_t places)
{
	uint64_t wanted = (uint64_t)options->depth * session->options.queue_pairs;
	uint64_t room = session->options.memory / step;
	uint32_t slots = (uint32_t)(wanted < room ? wanted : room);
	struct verify *verify = calloc(1, sizeof(*verify));

	if (!verify)
		return NULL;
	*verify = (struct verify){ .session = session,
				   .options = options,
				   .step = step,
				   .places = places,
				   .written = calloc(places, 1),
				   .place = calloc(slots, sizeof(uint32_t)),
				   .unused = calloc(slots, sizeof(uint32_t)),
				   .unused_top = slots,
				   .unknown = !options->export.ss_family &&
					      options->operation == PERF_READ };
	if (!verify->written || !verify->place || !verify->unused) {
		verify_close(verify);
		return NULL;
	}
	for (uint32_t i = 0; i < slots; i++)
		verify->unused[i] = i;
	return verify;
}

void verify_close(struct verify *verify)
{
	if (!verify)
		return;
	free(verify->written);
	free(verify->place);
	free(verify->unused);
	free(verify);
}

static bool is_atomic(const struct verify *verify)
{
	return options_is_atomic(verify->options);
}

/* A perftest's counters may not be read, but say what they were when they are counted up. */
static bool count_counters(struct verify *verify, uint64_t *sum)
{
	const struct session *session = verify->session;
	uint64_t counter;

	*sum = 0;
	for (uint32_t i = 0; i < session->options.queue_pairs; i++) {
		struct peer *peer = &session->peers[i];

		if (!transfer_by(peer, PERF_FETCH_ADD, 0, i * 8ull % peer->remote.length, 8))
			return false;
		memcpy(&counter, session->sink, sizeof(counter));
		*sum += counter;
	}
	return true;
}

/* Each connection has a counter of its own, or shares one: only the sum counts. */
static bool sum_counters(struct verify *verify, uint64_t *sum)
{
	const struct session *session = verify->session;
	uint64_t length = session->options.queue_pairs * 8ull, counter;

	if (!verify->options->export.ss_family)
		return count_counters(verify, sum);
	if (length > session->peers[0].remote.length)
		length = session->peers[0].remote.length & ~7ull;
	if (!transfer(verify->session, PERF_READ, 0, 0, (uint32_t)length))
		return false;
	*sum = 0;
	for (uint64_t i = 0; i < length; i += 8) {
		memcpy(&counter, session->sink + i, sizeof(counter));
		*sum += counter;
	}
	return true;
}

static bool learn(struct verify *verify)
{
	for (uint64_t at = 0; at < range(verify); at += CHUNK) {
		uint32_t chunk = chunk_at(verify, at);

		if (!transfer(verify->session, PERF_READ, 0, at, chunk))
			return false;
		memcpy(verify->session->source + at, verify->session->sink, chunk);
	}
	return true;
}

/* Something else than what will be written, so that a WRITE that does nothing is seen. */
bool verify_before(struct verify *verify)
{
	uint32_t chunk;

	if (is_atomic(verify)) {
		if (!sum_counters(verify, &verify->sum))
			return false;
		if (!verify->options->export.ss_family)
			verify->sum += verify->session->options.queue_pairs;
		return true;
	}
	if (verify->unknown)
		return learn(verify);
	fill_source(verify, 0);
	for (uint64_t at = 0; at < range(verify); at += CHUNK) {
		chunk = chunk_at(verify, at);
		if (!transfer(verify->session, PERF_WRITE, at, at, chunk))
			return false;
	}
	if (verify->options->operation == PERF_WRITE)
		fill_source(verify, 1);
	return true;
}

/* Between places nothing has been written. */
static uint32_t generation_of(const struct verify *verify, uint64_t offset)
{
	return verify->options->operation == PERF_WRITE &&
	       offset % verify->step < verify->options->size &&
	       verify->written[offset / verify->step];
}

static bool check_chunk(struct verify *verify, uint64_t at)
{
	uint32_t size = chunk_at(verify, at);

	memset(verify->session->sink, POISON, size);
	if (!transfer(verify->session, PERF_READ, 0, at, size))
		return false;
	for (uint32_t k = 0; k < size; k++) {
		uint8_t wanted = verify->unknown ? verify->session->source[at + k]
						 : value(at + k, generation_of(verify, at + k));

		if (verify->session->sink[k] != wanted)
			return differs(at + k, wanted, verify->session->sink[k]);
	}
	verify->bytes += size;
	return true;
}

static bool check_counters(struct verify *verify, uint64_t changes)
{
	uint64_t sum;

	if (!sum_counters(verify, &sum))
		return false;
	verify->bytes += 8 * changes;
	if (sum - verify->sum == changes)
		return true;
	fprintf(stderr, "oriel-perf: the counters grew by %llu instead of %llu: data differ\n",
		(unsigned long long)(sum - verify->sum), (unsigned long long)changes);
	return false;
}

bool verify_after(struct verify *verify, const struct run_result *result, uint64_t *bytes)
{
	if (is_atomic(verify) && !check_counters(verify, result->messages - result->refused))
		return false;
	for (uint64_t at = 0; !is_atomic(verify) && at < range(verify); at += CHUNK)
		if (!check_chunk(verify, at))
			return false;
	*bytes += verify->bytes;
	return true;
}

uint32_t verify_room(const struct verify *verify)
{
	return verify->unused_top;
}

uint32_t verify_posted(struct verify *verify, uint32_t place, bool read)
{
	uint32_t slot = verify->unused[--verify->unused_top];

	verify->place[slot] = read ? place : UINT32_MAX;
	if (read)
		memset(verify->session->sink + slot * verify->step, POISON, verify->options->size);
	else
		verify->written[place] = 1;
	return slot;
}

bool verify_completed(struct verify *verify, uint32_t slot)
{
	const uint8_t *sink = verify->session->sink + slot * verify->step;
	uint32_t place = verify->place[slot];
	uint64_t offset = place * verify->step;

	verify->unused[verify->unused_top++] = slot;
	if (place == UINT32_MAX)
		return true;
	verify->bytes += verify->options->size;
	for (uint32_t k = 0; k < verify->options->size; k++)
		if (sink[k] != verify->session->source[offset + k])
			return differs(offset + k, verify->session->source[offset + k], sink[k]);
	return true;
}
