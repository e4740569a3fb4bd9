/* SPDX-License-Identifier: BSD-3-Clause */
/* One worker's engine without a network: what the micro-benchmarks of the transport run on. */
#ifndef ORIEL_MICRO_ENGINE_H
#define ORIEL_MICRO_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory.h"
#include "transport/transport.h"
#include "wire/build.h"

#define ENGINE_SESSION 1u
#define ENGINE_BASE    0x7f0000000000ull /* of its region, as peers name it */
#define ENGINE_MEMORY  (4u << 20)
#define ENGINE_FRAME   8192u

struct engine {
	struct arena arena;
	struct memory *memory;
	struct transport_shared *shared;
	struct transport *worker;
	struct shm_session *session;
	uint32_t segment, pd, region;
	uint32_t local_token, remote_token;
	uint32_t qps, windows;
	uint32_t *qp; /* indices */
	uint32_t *qpn;
	uint32_t *psn;           /* next to be sent to each */
	uint32_t *window;        /* indices */
	uint32_t *token;         /* of the windows that are bound */
	struct wire_usual usual; /* of a port with the address of the queue pairs */
	uint64_t now;
	uint64_t frames_out;
	struct pktbuf out;
	uint8_t buffer[ENGINE_FRAME];
};

/* `readers` of the memory: the worker is number 0. NULL: no memory. */
struct engine *engine_create(uint32_t qps, uint32_t windows, unsigned int readers);
void engine_destroy(struct engine *engine);

/* Who a peer on queue pair `i` is. */
struct accessor engine_accessor(const struct engine *engine, uint32_t i);
/* A request from the peer of queue pair `i`, with the next PSN: one packet of `size` bytes. */
uint32_t engine_request(struct engine *engine, uint32_t i, uint8_t opcode, uint32_t token,
			uint32_t size, uint8_t *frame);

#endif
