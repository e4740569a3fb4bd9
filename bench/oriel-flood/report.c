/* SPDX-License-Identifier: BSD-3-Clause */
/* What came of it: a histogram of latencies, one line for people, one object for programs. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "oriel-flood/flood.h"

/* --- histogram: 64 steps in each power of two, so 1.6 % fine ---------------------------------- */

#define STEP_BITS 6u
#define STEPS     (1u << STEP_BITS)
#define BUCKETS   ((64u - STEP_BITS) * STEPS)

struct histogram {
	uint64_t count;
	uint64_t bucket[BUCKETS];
};

struct histogram *histogram_create(void)
{
	return calloc(1, sizeof(struct histogram));
}

void histogram_clear(struct histogram *h)
{
	memset(h, 0, sizeof(*h));
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	unsigned int log = ns < STEPS ? 0 : 63u - STEP_BITS - (unsigned int)__builtin_clzll(ns) + 1;
	uint32_t index =
		ns < STEPS ? (uint32_t)ns : log * STEPS + (uint32_t)(ns >> (log - 1) & (STEPS - 1));

	h->bucket[index < BUCKETS ? index : BUCKETS - 1]++;
	h->count++;
}

static double bucket_value(uint32_t index)
{
	uint32_t log = index / STEPS, step = index % STEPS;

	return log == 0 ? step : (double)(1ull << (log - 1)) * (STEPS + step);
}

double histogram_percentile(const struct histogram *h, double share)
{
	uint64_t wanted = (uint64_t)((double)h->count * share);
	uint64_t seen = 0;

	for (uint32_t i = 0; i < BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen > wanted)
			return bucket_value(i) / 1e3;
	}
	return 0;
}

uint64_t histogram_count(const struct histogram *h)
{
	return h->count;
}

/* --- text ------------------------------------------------------------------------------------- */

static const char *const operation_name[] = { "write", "read", "send", "atomic" };

const char *const flood_peer_name[PEERS] = { "responder", "rxonly", "macswap", "icmpecho" };

const char *const flood_bad_name[FLOOD_BADS] = {
#define FLOOD_NAME(constant, name, text) name,
	FLOOD_BAD_KINDS(FLOOD_NAME)
#undef FLOOD_NAME
};

static double gigabits(const struct flood *f)
{
	const struct flood_counters *c = &f->counters;

	return (double)c->acknowledged * f->options.size * 8 / f->elapsed / 1e9;
}

void report_header(const struct flood *f)
{
	printf("oriel-flood: %s of %u bytes, path MTU %u, %u queue pairs, %u windows, ack every "
	       "%u, "
	       "on %s\n",
	       operation_name[f->options.operation], f->options.size, f->options.path_mtu, f->qps,
	       f->windows, f->options.ack_every, f->options.port.device);
	printf("%10s %12s %12s %9s %10s %8s %8s %8s %8s %8s %8s\n", "seconds", "sent/s", "served/s",
	       "Gb/s", "resent", "bad", "p50 us", "p99 us", "p99.9", "p99.99", "max");
}

static uint64_t all_bad(const struct flood *f)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < FLOOD_BADS; i++)
		sum += f->counters.bad[i];
	return sum;
}

void report_line(const struct flood *f)
{
	static const double shares[] = { 0.5, 0.99, 0.999, 0.9999, 0.9999999 };
	const struct flood_counters *c = &f->counters;

	printf("%10.3f %12.0f %12.0f %9.3f %10llu %8llu", f->elapsed,
	       (double)c->messages / f->elapsed, (double)c->acknowledged / f->elapsed, gigabits(f),
	       (unsigned long long)c->resent, (unsigned long long)all_bad(f));
	for (unsigned int i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		if (histogram_count(f->latency))
			printf(" %8.2f", histogram_percentile(f->latency, shares[i]));
		else
			printf(" %8s", "-");
	}
	putchar('\n');
	fflush(stdout);
	if (c->answers_wrong)
		printf("%llu of %llu checked answers have a wrong ICRC\n",
		       (unsigned long long)c->answers_wrong,
		       (unsigned long long)c->answers_checked);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static json_t *counters_json(const struct flood *f)
{
	const struct flood_counters *c = &f->counters;
	json_t *bad = json_object();
	json_t *all = json_pack(
		"{sIsIsIsIsIsIsIsIsIsIsIsIsI}", "messages", (json_int_t)c->messages, "frames",
		(json_int_t)c->frames, "acknowledged", (json_int_t)c->acknowledged, "resent",
		(json_int_t)c->resent, "answers", (json_int_t)c->answers, "answers_checked",
		(json_int_t)c->answers_checked, "answers_wrong", (json_int_t)c->answers_wrong,
		"nak_sequence", (json_int_t)c->nak_sequence, "rnr", (json_int_t)c->rnr, "timeouts",
		(json_int_t)c->timeouts, "foreign", (json_int_t)c->foreign, "tx_full",
		(json_int_t)c->tx_full, "fatal", (json_int_t)c->fatal);

	for (unsigned int i = 0; i < FLOOD_BADS; i++)
		if (c->bad[i])
			json_object_set_new(bad, flood_bad_name[i],
					    json_integer((json_int_t)c->bad[i]));
	json_object_set_new(all, "bad", bad);
	return all;
}

/* [[us, count], ...] of the buckets that have any */
static json_t *histogram_json(const struct histogram *h)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < BUCKETS; i++)
		if (h->bucket[i])
			json_array_append_new(all, json_pack("[fI]", bucket_value(i) / 1e3,
							     (json_int_t)h->bucket[i]));
	return all;
}

void report_json(const struct flood *f, double best)
{
	const struct flood_counters *c = &f->counters;
	const struct flood_options *o = &f->options;
	json_t *root = json_pack(
		"{sssssisisisisisfsfsfsfsf}", "peer", flood_peer_name[o->peer], "operation",
		operation_name[o->operation], "size", (int)o->size, "path_mtu", (int)o->path_mtu,
		"qps", (int)f->qps, "windows", (int)f->windows, "ack_every", (int)o->ack_every,
		"began", f->began, "seconds", f->elapsed, "sent_per_second",
		(double)c->messages / f->elapsed, "served_per_second",
		(double)c->acknowledged / f->elapsed, "gigabits_per_second", gigabits(f));
	json_t *latency =
		json_pack("{sIsfsfsfsfsf}", "samples", (json_int_t)histogram_count(f->latency),
			  "p50_us", histogram_percentile(f->latency, 0.5), "p99_us",
			  histogram_percentile(f->latency, 0.99), "p99_9_us",
			  histogram_percentile(f->latency, 0.999), "p99_99_us",
			  histogram_percentile(f->latency, 0.9999), "max_us",
			  histogram_percentile(f->latency, 0.9999999));

	json_object_set_new(root, "latency", latency);
	if (o->histogram)
		json_object_set_new(root, "histogram", histogram_json(f->latency));
	json_object_set_new(root, "counters", counters_json(f));
	if (o->search)
		json_object_update_new(
			root, json_pack("{sfss?}", "highest_rate", best, "limit", f->limit));
	json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(root);
}
