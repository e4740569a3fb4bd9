/* SPDX-License-Identifier: BSD-3-Clause */
/* A lot of data in one go: WRITEs, then READs of what they have written, and how fast they were. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "out.h"

#define BLOCK  (64u << 10)
#define DEPTH  16u                       /* requests under way */
#define BLOCKS (EXCHANGE_MEMORY / BLOCK) /* of the server's memory; then over again */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool check_block(struct out *out, uint64_t block)
{
	uint8_t *sink = out->buffer + OUT_SINK + block % DEPTH * BLOCK;

	if (memcmp(sink, out->buffer + OUT_SOURCE + block % DEPTH * BLOCK, BLOCK) != 0)
		return report_failure("stream: block %lu read back differs", block);
	memset(sink, 0, BLOCK);
	return true;
}

/* Returns MiB/s, or 0 after a failure. */
static double pass(struct out *out, enum exchange_kind kind, uint64_t blocks)
{
	uint32_t area = kind == KIND_READ ? OUT_SINK : OUT_SOURCE;
	uint64_t first = out->next_op, op;
	double begin = now();

	for (uint64_t done = 0, posted = 0; done < blocks; done++) {
		for (; posted < blocks && posted - done < DEPTH; posted++) {
			struct operation o = out_operation(out, kind, area + posted % DEPTH * BLOCK,
							   BLOCK, posted % BLOCKS * BLOCK);

			if (!out_must("stream", "post", STATUS_SUCCESS, out_post(out, &o, &op)))
				return 0;
		}
		if (!out_must("stream", kind == KIND_READ ? "READ" : "WRITE", STATUS_SUCCESS,
			      out_wait(out, first + done)))
			return 0;
		if (kind == KIND_READ && !check_block(out, done))
			return 0;
	}
	return (double)(blocks * BLOCK) / (1 << 20) / (now() - begin);
}

void check_stream(const char *mebibytes)
{
	uint64_t blocks = (mebibytes ? strtoull(mebibytes, NULL, 0) : 16) * ((1 << 20) / BLOCK);
	double written, read = 0;
	struct out out;

	if (!out_open(&out, "stream connect"))
		return;
	pattern_fill(out.buffer + OUT_SOURCE, DEPTH * BLOCK, pattern_fresh());
	written = pass(&out, KIND_WRITE, blocks);
	if (written > 0)
		read = pass(&out, KIND_READ, blocks);
	if (out_must("stream", "disconnect", STATUS_SUCCESS, out_close(&out)) && read > 0)
		report_ok("stream: WRITE %.2f MiB/s, READ %.2f MiB/s", written, read);
}
