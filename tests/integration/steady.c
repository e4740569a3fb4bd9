/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A well-behaved client of an export, for tests that misbehave beside it: traffic that is
 * compared byte by byte, memory that is filled by a seed and verified later, a wait for the
 * disconnect.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "oriel-perf/peer.h"

#define CHUNK 65536u

static const char usage[] = "Usage: steady EXPORT-ADDRESS PORT OWN-ADDRESS loop|watch\n"
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
static bool transfer(struct peer *peer, bool write, uint64_t local, uint64_t remote,
		     uint32_t length)
{
	NDK_SGE sge = { .VirtualAddress = peer->buffer + local,
			.Length = length,
			.MemoryRegionToken = peer->local_token };
	const uint64_t address = peer->window.address + remote;
	NDK_RESULT result;
	NTSTATUS status;
	ULONG count;

	status = write ? NdkWrite(peer->qp, NULL, &sge, 1, address, peer->window.token, 0)
		       : NdkRead(peer->qp, NULL, &sge, 1, address, peer->window.token, 0);
	if (NT_SUCCESS(status) && peer_results(peer, &result, 1, &count))
		status = result.Status;
	else if (NT_SUCCESS(status))
		status = STATUS_CONNECTION_DISCONNECTED;
	if (!NT_SUCCESS(status))
		fprintf(stderr, "steady: %s of %u bytes: %s\n", write ? "write" : "read", length,
			OrielStatusName(status));
	return NT_SUCCESS(status);
}

static bool same(const struct peer *peer, uint64_t offset, uint32_t length)
{
	if (!memcmp(peer->buffer, peer->buffer + CHUNK, length))
		return true;
	fprintf(stderr, "steady: bytes differ at %llu\n", (unsigned long long)offset);
	return false;
}

/* Writes and reads back at changing places and sizes until told to stop. */
static bool loop(struct peer *peer)
{
	uint64_t seed = 1;

	for (uint64_t round = 1; !stop; round++) {
		uint32_t length = 1 + (uint32_t)(seed >> 40) % CHUNK;
		uint64_t offset = (seed >> 8) % (peer->window.length - length);

		pattern(peer->buffer, offset, length, seed);
		memset(peer->buffer + CHUNK, 0, length);
		if (!transfer(peer, true, 0, offset, length) ||
		    !transfer(peer, false, CHUNK, offset, length) || !same(peer, offset, length))
			return false;
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		if (round % 64 == 0) {
			printf("round %llu\n", (unsigned long long)round);
			usleep(1000); /* leaves the processor to those who misbehave */
		}
	}
	return true;
}

static bool fill(struct peer *peer, bool write, uint64_t seed)
{
	for (uint64_t at = 0; at < peer->window.length; at += CHUNK) {
		uint64_t rest = peer->window.length - at;
		uint32_t length = rest < CHUNK ? (uint32_t)rest : CHUNK;

		pattern(peer->buffer, at, length, seed);
		if (!transfer(peer, write, write ? 0 : CHUNK, at, length))
			return false;
		if (!write && !same(peer, at, length))
			return false;
	}
	printf("%s %llu bytes\n", write ? "filled" : "verified",
	       (unsigned long long)peer->window.length);
	return true;
}

static bool watch(struct peer *peer)
{
	while (!stop && !peer->disconnected) {
		NTSTATUS status;

		if (OrielProgress(peer->adapter))
			continue;
		status = OrielWait(peer->adapter, 200);
		if (!NT_SUCCESS(status)) {
			printf("removed: %s\n", OrielStatusName(status));
			return true;
		}
	}
	printf("%s\n", peer->disconnected ? "disconnected" : "stopped");
	return true;
}

static bool parse(char **argv, struct peer_options *options)
{
	struct sockaddr_in *remote = (struct sockaddr_in *)&options->remote;
	struct sockaddr_in *local = (struct sockaddr_in *)&options->local;

	remote->sin_family = local->sin_family = AF_INET;
	remote->sin_port = htons((uint16_t)atoi(argv[2]));
	return inet_pton(AF_INET, argv[1], &remote->sin_addr) == 1 &&
	       inet_pton(AF_INET, argv[3], &local->sin_addr) == 1;
}

int main(int argc, char **argv)
{
	struct peer_options options = { .memory = 2 * CHUNK, .depth = 16 };
	struct peer peer;
	bool good;

	if (argc < 5 || !parse(argv, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	signal(SIGTERM, on_stop);
	setlinebuf(stdout);
	good = peer_open(&peer, &options);
	if (good)
		printf("connected\n");
	if (good && !strcmp(argv[4], "loop"))
		good = loop(&peer);
	else if (good && !strcmp(argv[4], "watch"))
		good = watch(&peer);
	else if (good)
		good = argc == 6 &&
		       fill(&peer, !strcmp(argv[4], "fill"), strtoull(argv[5], NULL, 10));
	peer_close(&peer);
	return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
