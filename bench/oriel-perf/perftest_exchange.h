/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages by which perftest's two ends agree before and after their data: what they are on
 * TCP, and as SENDs of a connection of their own (-R). No I/O here.
 *
 * Each step is one message of the client and then one of the server, of the same length: version,
 * cycle buffer, cache line, MTU, keys of each queue pair, and keys again wherever one end waits for
 * the other. What is tested, how large and how often, is not said: both command lines must agree.
 * We announce a version below that of the first with a negotiation (6.28), so that no peer
 * negotiates.
 */
#ifndef PERF_PERFTEST_EXCHANGE_H
#define PERF_PERFTEST_EXCHANGE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERFTEST_PORT 18515u
#define PERFTEST_QKEY 0x11111111u /* of UD, everywhere */

#define PERFTEST_VERSION_SIZE    16u
#define PERFTEST_NUMBER_SIZE     4u
#define PERFTEST_MTU_SIZE        2u
#define PERFTEST_KEY_TEXT_SIZE   108u
#define PERFTEST_KEY_BINARY_SIZE 56u
#define PERFTEST_KEY_LONG_SIZE   64u /* binary, from 6.29 on */
#define PERFTEST_REPORT_FIELDS   5u
#define PERFTEST_REPORT_SIZE     8u /* of each field, a step of its own */
#define PERFTEST_MESSAGE_MAX     108u

/* Versions as perftest writes them, in hundredths. */
#define PERFTEST_OURS      610u
#define PERFTEST_OLDEST    570u /* what all of today's accept */
#define PERFTEST_LONG_KEYS 629u

/* What one end has for one queue pair. Numbers in host order. */
struct perftest_key {
	uint32_t lid;       /* 0 on Ethernet */
	uint32_t out_reads; /* READs and atomics that this end answers at a time */
	uint32_t qpn;
	uint32_t psn; /* the first that this end sends */
	uint32_t rkey;
	uint32_t srqn;
	uint64_t address; /* of the memory that rkey is good for */
	uint8_t gid[16];
};

struct perftest_report {
	uint64_t size;        /* bytes of a message */
	uint64_t iterations;  /* messages */
	double peak, average; /* MB/s, of 2^20 or 10^6 bytes as the options of that end say */
	double rate;          /* million messages a second */
};

void perftest_version_encode(uint8_t out[static PERFTEST_VERSION_SIZE]);
/* False: not a version, or one below PERFTEST_OLDEST; *version is in hundredths. */
bool perftest_version_parse(const uint8_t in[static PERFTEST_VERSION_SIZE], uint32_t *version);

void perftest_number_encode(uint32_t number, uint8_t out[static PERFTEST_NUMBER_SIZE]);
uint32_t perftest_number_parse(const uint8_t in[static PERFTEST_NUMBER_SIZE]);

/* MTU in bytes, a power of two from 256 to 4096. */
void perftest_mtu_encode(uint32_t mtu, uint8_t out[static PERFTEST_MTU_SIZE]);
bool perftest_mtu_parse(const uint8_t in[static PERFTEST_MTU_SIZE], uint32_t *mtu);

void perftest_key_text_encode(const struct perftest_key *key,
			      uint8_t out[static PERFTEST_KEY_TEXT_SIZE]);
bool perftest_key_text_parse(const uint8_t in[static PERFTEST_KEY_TEXT_SIZE],
			     struct perftest_key *key);

/* Of a peer's version: PERFTEST_KEY_BINARY_SIZE or PERFTEST_KEY_LONG_SIZE. */
size_t perftest_key_binary_size(uint32_t version);
void perftest_key_binary_encode(const struct perftest_key *key, size_t size, uint8_t *out);
bool perftest_key_binary_parse(const uint8_t *in, size_t size, struct perftest_key *key);

/* One field, 0 to PERFTEST_REPORT_FIELDS - 1, in the order in which they are exchanged. */
void perftest_report_encode(const struct perftest_report *report, unsigned int field,
			    uint8_t out[static PERFTEST_REPORT_SIZE]);
void perftest_report_parse(const uint8_t in[static PERFTEST_REPORT_SIZE], unsigned int field,
			   struct perftest_report *report);

/* IPv4 as ::ffff:a.b.c.d. The port of what comes out is 0. */
void perftest_gid_of(const struct sockaddr_storage *address, uint8_t gid[static 16]);
void perftest_gid_address(const uint8_t gid[static 16], struct sockaddr_storage *address);

#endif
