/* SPDX-License-Identifier: BSD-3-Clause */
/* A lot of data in one go: WRITEs, then READs of what they have written, and how fast they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checks.h"

#define BLOCK (64u << 10)
#define DEPTH 16u /* requests under way, each with a block of the buffer of its own */
#define SINK  (PEER_BUFFER / 2)

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool post_block(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t block)
{
	uint32_t local = (opcode == IBV_WR_RDMA_READ ? SINK : 0) + block % DEPTH * BLOCK;
	struct ibv_sge sge = peer_sge(peer, local, BLOCK);
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = peer->window.addr + block * BLOCK,
			     .rkey = peer->window.token },
	};

	return must_complete(peer, "stream", "post", IBV_WC_SUCCESS, peer_post(peer, &wr));
}

/* What a READ has brought is what the WRITE of the same block took. */
static bool check_block(struct peer *peer, uint64_t block)
{
	uint8_t *sink = peer->buffer + SINK + block % DEPTH * BLOCK;

	if (memcmp(sink, peer->buffer + block % DEPTH * BLOCK, BLOCK) != 0) {
		report_failure("stream: block %lu read back differs", block);
		return false;
	}
	memset(sink, 0, BLOCK);
	return true;
}

/* Returns MiB/s, or 0 after a failure. */
static double pass(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t blocks)
{
	uint64_t first = peer->next_op;
	double begin = now();

	for (uint64_t done = 0, posted = 0; done < blocks; done++) {
		while (posted < blocks && posted - done < DEPTH)
			if (!post_block(peer, opcode, posted++))
				return 0;
		if (!must_complete(peer, "stream", opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE",
				   IBV_WC_SUCCESS, peer_wait(peer, first + done)))
			return 0;
		if (opcode == IBV_WR_RDMA_READ && !check_block(peer, done))
			return 0;
	}
	return (double)(blocks * BLOCK) / (1 << 20) / (now() - begin);
}

void check_stream(const char *mebibytes)
{
	uint64_t blocks = (mebibytes ? strtoull(mebibytes, NULL, 0) : 16) * ((1 << 20) / BLOCK);
	double written, read = 0;
	struct peer peer;

	if (!must_connect(&peer, "stream connect", &ASK(.length = blocks * BLOCK)))
		return;
	pattern_fill(peer.buffer, DEPTH * BLOCK, pattern_fresh());
	written = pass(&peer, IBV_WR_RDMA_WRITE, blocks);
	if (written > 0)
		read = pass(&peer, IBV_WR_RDMA_READ, blocks);
	if (must_close(&peer, "stream disconnect") && read > 0)
		report_ok("stream: WRITE %.2f MiB/s, READ %.2f MiB/s", written, read);
}
