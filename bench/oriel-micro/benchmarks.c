/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of all benchmarks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-micro/bench.h"

const struct benchmark benchmarks[] = {
	{ "icrc-64", set_up_bytes, run_icrc, 64 },
	{ "icrc-256", set_up_bytes, run_icrc, 256 },
	{ "icrc-1024", set_up_bytes, run_icrc, 1024 },
	{ "icrc-4096", set_up_bytes, run_icrc, 4096 },
	{ "icrc-copy-64", set_up_bytes, run_icrc_copy, 64 },
	{ "icrc-copy-1024", set_up_bytes, run_icrc_copy, 1024 },
	{ "icrc-copy-4096", set_up_bytes, run_icrc_copy, 4096 },
	{ "memcpy-4096", set_up_bytes, run_memcpy, 4096 },
	{ "parse", set_up_write, run_parse, 1 },
	{ "parse-usual", set_up_write, run_parse_usual, 1 },
	{ "icrc-verify-write-64", set_up_write, run_verify, 1 },
	{ "icrc-verify-write-256", set_up_verify, run_verify, 256 },
	{ "icrc-verify-write-1024", set_up_verify, run_verify, 1024 },
	{ "icrc-verify-write-4096", set_up_verify, run_verify, 4096 },
	{ "qp-find-1", set_up_queue_pairs, run_qp_find, 1 },
	{ "qp-find-10000", set_up_queue_pairs, run_qp_find, 10000 },
	{ "token-hit-1", set_up_windows, run_token_hit, 1 },
	{ "token-hit-1000", set_up_windows, run_token_hit, 1000 },
	{ "token-hit-1000000", set_up_windows, run_token_hit, 1000000 },
	{ "token-miss-1000000", set_up_windows, run_token_miss, 1000000 },
	{ "bind-and-invalidate", set_up_windows, run_bind, 1 },
	{ "ring", set_up_ring, run_ring, 0 },
	{ "build-64", set_up_build, run_build, 64 },
	{ "build-1024", set_up_build, run_build, 1024 },
	{ "transport-write-64", set_up_write, run_receive, 1 },
	{ "transport-write-64-1000-qps", set_up_write, run_receive, 1000 },
	{ "packet-write-64", set_up_write, run_packet, 1 },
	{ "packet-write-64-1000-qps", set_up_write, run_packet, 1000 },
	{ "packet-write-64-10000-qps", set_up_write, run_packet, 10000 },
	{ "packet-write-64-1000000-windows", set_up_write_windows, run_packet, 1000000 },
	{ "read-64", set_up_read, run_read, 1 },
	{ "read-64-bursts", set_up_read, run_read_burst, 1 },
	{ "idle-poll", set_up_queue_pairs, run_idle_poll, 1 },
};
const size_t benchmarks_count = sizeof(benchmarks) / sizeof(benchmarks[0]);

const struct benchmark *bench_find(const char *name)
{
	for (size_t i = 0; i < benchmarks_count; i++)
		if (strcmp(benchmarks[i].name, name) == 0)
			return &benchmarks[i];
	fprintf(stderr, "oriel-micro: no benchmark '%s'; --list names them\n", name);
	return NULL;
}

void bench_tear_down(struct bench *bench)
{
	if (bench->engine)
		engine_destroy(bench->engine);
	free(bench->bytes);
	free(bench->copy);
	free(bench->order);
	free(bench->token);
	free(bench->ring);
	*bench = (struct bench){ .sum = bench->sum };
}
