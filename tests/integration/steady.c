/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A well-behaved client of an export, for tests that misbehave beside it: traffic that is
 * compared byte by byte, memory that is filled by a seed and verified later, a wait for the
 * disconnect.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oriel-perf/peer.h"

#define CHUNK    65536u
#define PATIENCE 60000 /* ms */

static const char usage[] = "Usage: steady EXPORT-ADDRESS PORT OWN-ADDRESS loop|watch|again|sleep\n"
			    "       steady EXPORT-ADDRESS PORT OWN-ADDRESS fill|verify SEED\n";

static volatile sig_atomic_t stop;

static void on_stop(int number)
{
	(void)number;
	stop = 1;
}

/* Bytes that tell their place, so that data in a wrong one never compares equal. */
static void pattern(uint8_t *at, uint64_t offset, uint32_t length, uint64_t seed)
{
	for (uint32_t i = 0; i < length; i++) {
		uint64_t x = (offset + i + seed) * 0x9e3779b97f4a7c15ull;

		at[i] = (uint8_t)(x >> 56 ^ x >> 24);
	}
}

/* One request and its completion. */
static bool transfer(struct session *session, bool write, uint64_t remote, uint32_t length)
{
	const struct remote *window = &session->peers[0].remote;
	NDK_QP *qp = session->peers[0].qp;
	NDK_SGE sge = { .VirtualAddress = (write ? session->source : session->sink),
			.Length = length,
			.MemoryRegionToken = session->local_token };
	const uint64_t address = window->address + remote;
	NDK_RESULT_EX result;
	NTSTATUS status;
	ULONG count;

	status = write ? NdkWrite(qp, NULL, &sge, 1, address, window->token, 0)
		       : NdkRead(qp, NULL, &sge, 1, address, window->token, 0);
	if (NT_SUCCESS(status) && session_results(session, &result, 1, &count))
		status = result.Status;
	else if (NT_SUCCESS(status))
		status = STATUS_CONNECTION_DISCONNECTED;
	if (!NT_SUCCESS(status))
		fprintf(stderr, "steady: %s of %u bytes: %s\n", write ? "write" : "read", length,
			OrielStatusName(status));
	return NT_SUCCESS(status);
}

static bool same(const struct session *session, uint64_t offset, uint32_t length)
{
	if (!memcmp(session->source, session->sink, length))
		return true;
	fprintf(stderr, "steady: bytes differ at %llu\n", (unsigned long long)offset);
	return false;
}

/* Writes and reads back at changing places and sizes until told to stop. */
static bool loop(struct session *session)
{
	uint64_t seed = 1;

	for (uint64_t round = 1; !stop; round++) {
		uint32_t length = 1 + (uint32_t)(seed >> 40) % CHUNK;
		uint64_t offset = (seed >> 8) % (session->peers[0].remote.length - length);

		pattern(session->source, offset, length, seed);
		memset(session->sink, 0, length);
		if (!transfer(session, true, offset, length) ||
		    !transfer(session, false, offset, length) || !same(session, offset, length))
			return false;
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		if (round % 64 == 0) {
			printf("round %llu\n", (unsigned long long)round);
			usleep(1000); /* leaves the processor to those who misbehave */
		}
	}
	return true;
}

static bool fill(struct session *session, bool write, uint64_t seed)
{
	for (uint64_t at = 0; at < session->peers[0].remote.length; at += CHUNK) {
		uint64_t rest = session->peers[0].remote.length - at;
		uint32_t length = rest < CHUNK ? (uint32_t)rest : CHUNK;

		pattern(session->source, at, length, seed);
		if (!transfer(session, write, at, length))
			return false;
		if (!write && !same(session, at, length))
			return false;
	}
	printf("%s %llu bytes\n", write ? "filled" : "verified",
	       (unsigned long long)session->peers[0].remote.length);
	return true;
}

static bool watch(struct session *session)
{
	while (!stop && !session->disconnected) {
		NTSTATUS status;

		if (OrielProgress(session->adapter))
			continue;
		status = OrielWait(session->adapter, 200);
		if (!NT_SUCCESS(status)) {
			printf("removed: %s\n", OrielStatusName(status));
			return true;
		}
	}
	printf("%s\n", session->disconnected ? "disconnected" : "stopped");
	return true;
}

/* The same by poll(2) on the adapter's descriptor: nothing is called but what it asks for. */
static bool sleep_on_descriptor(struct session *session)
{
	struct pollfd event = { .fd = OrielGetEventFd(session->adapter), .events = POLLIN };

	while (!stop && !session->disconnected) {
		while (OrielProgress(session->adapter))
			;
		if (!session->disconnected && poll(&event, 1, PATIENCE) == 0)
			break;
	}
	printf("%s\n", session->disconnected ? "disconnected" : "slept");
	return session->disconnected;
}

/* Sessions one behind the other, each with data that the one before it did not write. */
static bool again(struct session *session, const struct session_options *options,
		  const struct sockaddr_storage *export)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		if (seed > 1 &&
		    !(session_open(session, options) && export_open(session, export, NULL)))
			return false;
		if (!fill(session, true, seed) || !fill(session, false, seed))
			return false;
		if (seed < 3) {
			export_close(session);
			session_close(session);
		}
	}
	return true;
}

static bool parse(char **argv, struct sockaddr_storage *export, struct session_options *options)
{
	struct sockaddr_in *remote = (struct sockaddr_in *)export;
	struct sockaddr_in *local = (struct sockaddr_in *)&options->local;

	remote->sin_family = local->sin_family = AF_INET;
	remote->sin_port = htons((uint16_t)atoi(argv[2]));
	return inet_pton(AF_INET, argv[1], &remote->sin_addr) == 1 &&
	       inet_pton(AF_INET, argv[3], &local->sin_addr) == 1;
}

int main(int argc, char **argv)
{
	struct session_options options = {
		.memory = CHUNK, .queue_pairs = 1, .depth = 16, .receive_depth = 1
	};
	struct sockaddr_storage export = { 0 };
	struct session session;
	bool good;

	if (argc < 5 || !parse(argv, &export, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGTERM, on_stop);
	setlinebuf(stdout);
	good = session_open(&session, &options) && export_open(&session, &export, NULL);
	if (good)
		printf("connected\n");
	if (good && !strcmp(argv[4], "loop"))
		good = loop(&session);
	else if (good && !strcmp(argv[4], "watch"))
		good = watch(&session);
	else if (good && !strcmp(argv[4], "again"))
		good = again(&session, &options, &export);
	else if (good && !strcmp(argv[4], "sleep"))
		good = sleep_on_descriptor(&session);
	else if (good)
		good = argc == 6 &&
		       fill(&session, !strcmp(argv[4], "fill"), strtoull(argv[5], NULL, 10));
	export_close(&session);
	session_close(&session);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
