/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's steps as either side. */
#include "oriel-perf/perftest_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/sync.h"
#include "oriel-perf/perftest_connect.h"
#include "oriel-perf/run.h"

#define CYCLE 4096u
#define LINE  64u

/* --- single steps ----------------------------------------------------------------------------- */

static bool swap_key(struct perftest *p, uint32_t index, struct perftest_key *theirs)
{
	size_t size = p->channel.control ? perftest_key_binary_size(p->channel.version)
					 : PERFTEST_KEY_TEXT_SIZE;
	uint8_t out[PERFTEST_MESSAGE_MAX], in[PERFTEST_MESSAGE_MAX];
	bool good;

	if (p->channel.control)
		perftest_key_binary_encode(&p->ours[index], size, out);
	else
		perftest_key_text_encode(&p->ours[index], out);
	if (!perftest_swap(&p->channel, "keys", out, in, size))
		return false;
	good = p->channel.control ? perftest_key_binary_parse(in, size, theirs)
				  : perftest_key_text_parse(in, theirs);
	if (good)
		return true;
	p->channel.over = true; /* who sends that has no farewell to wait for */
	fprintf(stderr, "oriel-perf: what the other side sent is no key of perftest's\n");
	return false;
}

/* Where one side waits for the other: the first key once more, whatever it says. */
static bool barrier(struct perftest *p)
{
	struct perftest_key unused;

	return swap_key(p, 0, &unused);
}

static bool swap_number(struct perftest *p, const char *what, uint32_t ours, uint32_t *larger)
{
	uint8_t out[PERFTEST_NUMBER_SIZE], in[PERFTEST_NUMBER_SIZE];
	uint32_t theirs;

	perftest_number_encode(ours, out);
	if (!perftest_swap(&p->channel, what, out, in, sizeof(out)))
		return false;
	theirs = perftest_number_parse(in);
	*larger = theirs > ours ? theirs : ours;
	return true;
}

static bool swap_versions(struct perftest *p)
{
	uint8_t out[PERFTEST_VERSION_SIZE], in[PERFTEST_VERSION_SIZE];

	perftest_version_encode(out);
	if (!perftest_swap(&p->channel, "versions", out, in, sizeof(out)))
		return false;
	if (perftest_version_parse(in, &p->channel.version))
		return true;
	fprintf(stderr, "oriel-perf: the other side is no perftest of version %u.%02u or later\n",
		PERFTEST_OLDEST / 100, PERFTEST_OLDEST % 100);
	return false;
}

static bool swap_mtu(struct perftest *p)
{
	uint8_t out[PERFTEST_MTU_SIZE], in[PERFTEST_MTU_SIZE];
	uint32_t theirs;

	perftest_mtu_encode(p->mtu, out);
	if (!perftest_swap(&p->channel, "MTU", out, in, sizeof(out)))
		return false;
	if (perftest_mtu_parse(in, &theirs) && theirs < p->mtu)
		p->mtu = theirs;
	return true;
}

static bool swap_parameters(struct perftest *p)
{
	if (!swap_versions(p) || !swap_number(p, "cycle buffers", CYCLE, &p->cycle) ||
	    !swap_number(p, "cache lines", LINE, &p->line) || !swap_mtu(p))
		return false;
	if (p->cycle <= PERFTEST_MEMORY_MIN && p->line && p->line <= p->cycle)
		return true;
	fprintf(stderr, "oriel-perf: a cycle buffer of %u bytes in lines of %u is beyond us\n",
		p->cycle, p->line);
	return false;
}

static bool swap_keys(struct perftest *p)
{
	for (uint32_t i = 0; i < p->session->options.queue_pairs; i++)
		if (!swap_key(p, i, &p->theirs[i]))
			return false;
	return true;
}

/* --- before the data -------------------------------------------------------------------------- */

static void fill_key(struct perftest *p, uint32_t index)
{
	struct perftest_key *key = &p->ours[index];
	bool memory = !perftest_is_send(p->options);
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), 0) != sizeof(psn))
		psn = index;
	*key = (struct perftest_key){
		.out_reads = PERFTEST_READS,
		.qpn = OrielGetQpNumber(p->session->peers[index].qp),
		.psn = psn & 0xffffff,
		.rkey = memory ? p->session->remote_token : 0,
		.address = memory ? (uintptr_t)p->session->sink : 0,
	};
	perftest_gid_of(&p->session->options.local, key->gid);
}

static uint64_t largest_message(const struct perftest *p)
{
	if (p->options->type == OrielQpTypeUd)
		return p->mtu;
	if (p->options->all_sizes)
		return PERFTEST_LARGEST;
	return p->options->size > p->cycle ? p->options->size : p->cycle;
}

static void fill_remotes(struct perftest *p)
{
	for (uint32_t i = 0; i < p->session->options.queue_pairs; i++)
		p->session->peers[i].remote = (struct remote){
			.address = p->theirs[i].address,
			.length = largest_message(p),
			.token = p->theirs[i].rkey,
			.access = EXPORT_READ | EXPORT_WRITE | EXPORT_ATOMIC,
		};
}

static bool open_channel(struct perftest *p)
{
	const struct perf_options *options = p->options;

	if (options->rdma_cm)
		return perftest_connect_control(p);
	return options->server ? perftest_tcp_accept(&p->channel, options->port)
			       : perftest_tcp_connect(&p->channel, options->host, options->port);
}

static bool connect_queue_pairs(struct perftest *p)
{
	const bool early = p->options->mode == PERF_LATENCY && !perftest_is_send(p->options);

	if (p->options->rdma_cm && (!barrier(p) || !perftest_connect_by_cm(p) || !barrier(p)))
		return false;
	if (early && !barrier(p))
		return false;
	if (!swap_keys(p))
		return false;
	return p->options->rdma_cm || perftest_connect_by_number(p);
}

static bool meet(struct perftest *p)
{
	if (perftest_is_send(p->options))
		return barrier(p) && swap_keys(p);
	return swap_keys(p) && barrier(p);
}

bool perftest_open(struct perftest *p, struct session *session, const struct perf_options *options)
{
	const uint32_t count = session->options.queue_pairs;

	*p = (struct perftest){ .options = options,
				.session = session,
				.channel = { .adapter = session->adapter,
					     .server = options->server,
					     .socket = -1,
					     .given_up = run_given_up } };
	p->ours = calloc(count, sizeof(*p->ours));
	p->theirs = calloc(count, sizeof(*p->theirs));
	if (!p->ours || !p->theirs)
		return session_complain("perftest's exchange", STATUS_NO_MEMORY);
	for (uint32_t i = 0; i < count; i++)
		fill_key(p, i);
	if (!perftest_path_mtu(p) || !open_channel(p))
		return false;
	p->channel.hurry = true;
	if (!swap_parameters(p) || !connect_queue_pairs(p) || !meet(p))
		return false;
	p->channel.hurry = false;
	fill_remotes(p);
	p->settled = true;
	return true;
}

/* --- around the data -------------------------------------------------------------------------- */

static bool is_bandwidth(const struct perftest *p)
{
	return p->options->mode == PERF_BANDWIDTH;
}

static bool is_both_ways(const struct perftest *p)
{
	return is_bandwidth(p) && p->options->bidirectional;
}

/* The client works alone and tells once, at the end, what it has reached. */
static bool is_one_sided(const struct perftest *p)
{
	return is_bandwidth(p) && !is_both_ways(p) && !perftest_is_send(p->options);
}

/* Sides that do not run the same test take something else for each other's results. */
static bool plausible(const struct perftest_report *report)
{
	return report->size <= UINT32_MAX && report->iterations < 1ull << 50 && report->peak >= 0 &&
	       report->average >= 0 && report->rate >= 0 && report->peak < 1e12 &&
	       report->average < 1e12 && report->rate < 1e12;
}

static bool swap_reports(struct perftest *p, const struct perftest_report *ours,
			 struct perftest_report *theirs)
{
	uint8_t out[PERFTEST_REPORT_SIZE], in[PERFTEST_REPORT_SIZE];

	for (unsigned int i = 0; i < PERFTEST_REPORT_FIELDS; i++) {
		perftest_report_encode(ours, i, out);
		if (!perftest_swap(&p->channel, "results", out, in, sizeof(out)))
			return false;
		perftest_report_parse(in, i, theirs);
	}
	/* Who only served has measured nothing: stock programs then send what lay in their memory.
	 */
	if (is_one_sided(p) && !p->options->server) {
		*theirs = (struct perftest_report){ 0 };
		return true;
	}
	if (!plausible(theirs)) {
		fputs("oriel-perf: what the other side sent are no results: test, size and number "
		      "of queue pairs must be the same here and there\n",
		      stderr);
		p->channel.over = true;
		return false;
	}
	return true;
}

bool perftest_begin(struct perftest *p)
{
	p->settled = false;
	if (perftest_is_send(p->options) && !p->receives && !post_receives(p->session))
		return false;
	p->receives = true;
	return (!perftest_is_send(p->options) && !is_both_ways(p)) || barrier(p);
}

bool perftest_end(struct perftest *p)
{
	const struct perf_options *options = p->options;

	p->settled = true;
	if (is_one_sided(p) && (options->server || !options->all_sizes)) {
		p->ended = true;
		return barrier(p);
	}
	return !options->all_sizes || !is_both_ways(p) || perftest_is_send(options) || barrier(p);
}

bool perftest_report(struct perftest *p, const struct perftest_report *ours,
		     struct perftest_report *theirs)
{
	const struct perf_options *options = p->options;
	bool send = perftest_is_send(options);

	*theirs = (struct perftest_report){ 0 };
	p->last = *ours;
	if ((is_one_sided(p) && p->ended) || (is_both_ways(p) && (!send || options->iterations)))
		if (!swap_reports(p, ours, theirs))
			return false;
	return !options->all_sizes || !is_bandwidth(p) || !send || barrier(p);
}

bool perftest_finish(struct perftest *p)
{
	const struct perf_options *options = p->options;
	struct perftest_report unused;

	if (options->mode == PERF_LATENCY && options->operation == PERF_WRITE)
		return true; /* the only test that ends without a word */
	if (is_one_sided(p) && !p->ended && (!barrier(p) || !swap_reports(p, &p->last, &unused)))
		return false;
	return barrier(p);
}

void perftest_close(struct perftest *p)
{
	perftest_disconnect(p);
	perftest_channel_close(&p->channel);
	free(p->ours);
	free(p->theirs);
	p->ours = p->theirs = NULL;
}
