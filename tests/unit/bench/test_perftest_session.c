/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perftest's steps: which messages each kind of test exchanges, as client and as server, against
 * the sequences of stock ends (perftest 4.5). The connections of the data are faked.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oriel-perf/perftest_connect.h"
#include "oriel-perf/run.h"

#define MOST 256u

/* --- what the steps stand on, faked --------------------------------------------------------- */

static int ours_fd, stock_fd;
static unsigned int connects, receives;
static uint32_t connected_to[4];

static bool channel_open(struct perftest_channel *channel)
{
	channel->socket = ours_fd;
	return true;
}

bool perftest_tcp_connect(struct perftest_channel *channel, const char *host, uint16_t port)
{
	cr_assert_str_eq(host, "stock");
	cr_assert_eq(port, PERFTEST_PORT);
	return channel_open(channel);
}

bool perftest_tcp_accept(struct perftest_channel *channel, uint16_t port)
{
	cr_assert_eq(port, PERFTEST_PORT);
	return channel_open(channel);
}

bool perftest_path_mtu(struct perftest *perftest)
{
	perftest->mtu = 4096;
	return true;
}

bool perftest_connect_by_number(struct perftest *perftest)
{
	connects++;
	for (uint32_t i = 0; i < perftest->session->options.queue_pairs; i++)
		connected_to[i] = perftest->theirs[i].qpn;
	return true;
}

bool perftest_connect_control(struct perftest *perftest)
{
	return !perftest;
}

bool perftest_connect_by_cm(struct perftest *perftest)
{
	return !perftest;
}

void perftest_disconnect(struct perftest *perftest)
{
	cr_assert(perftest);
}

bool perftest_cm_send(struct perftest_channel *channel, const void *data, size_t size)
{
	return !channel && !data && !size;
}

bool perftest_cm_receive(struct perftest_channel *channel, void *data, size_t size)
{
	return !channel && !data && !size;
}

bool perftest_cm_pending(struct perftest_channel *channel)
{
	return !channel;
}

void perftest_cm_close(struct perftest_channel *channel)
{
	cr_assert_null(channel);
}

bool session_complain(const char *what, NTSTATUS status)
{
	return !what && NT_SUCCESS(status);
}

bool run_given_up(void)
{
	return false;
}

bool post_receives(struct session *session)
{
	receives++;
	return session != NULL;
}

ULONG OrielGetQpNumber(NDK_QP *qp)
{
	return qp ? 0 : 0x123456;
}

ULONG OrielProgress(NDK_ADAPTER *adapter)
{
	return adapter != NULL;
}

NTSTATUS OrielWait(NDK_ADAPTER *adapter, LONG milliseconds)
{
	return adapter && milliseconds ? STATUS_SUCCESS : STATUS_TIMEOUT;
}

/* --- a stock end: what it sends, and what it must have got ---------------------------------- */

/*
 * A letter for each message: v version, n number, m MTU, k keys, r a field of a report; what is
 * exchanged is the same both ways.
 */
static void write_message(char kind, unsigned int nth)
{
	struct perftest_key key = { .out_reads = 16, .qpn = 0x100 + nth, .gid = { [15] = 1 } };
	const struct perftest_report report = { .size = 64, .iterations = 1000, .average = 12.5 };
	uint8_t data[PERFTEST_MESSAGE_MAX];

	switch (kind) {
	case 'v':
		memset(data, 0, PERFTEST_VERSION_SIZE);
		memcpy(data, "6.06", 4);
		cr_assert_eq(write(stock_fd, data, PERFTEST_VERSION_SIZE), PERFTEST_VERSION_SIZE);
		break;
	case 'n':
		perftest_number_encode(nth ? 128 : 65536, data);
		cr_assert_eq(write(stock_fd, data, PERFTEST_NUMBER_SIZE), PERFTEST_NUMBER_SIZE);
		break;
	case 'm': cr_assert_eq(write(stock_fd, "3", PERFTEST_MTU_SIZE), PERFTEST_MTU_SIZE); break;
	case 'r':
		perftest_report_encode(&report, nth % PERFTEST_REPORT_FIELDS, data);
		cr_assert_eq(write(stock_fd, data, PERFTEST_REPORT_SIZE), PERFTEST_REPORT_SIZE);
		break;
	default:
		perftest_key_text_encode(&key, data);
		cr_assert_eq(write(stock_fd, data, PERFTEST_KEY_TEXT_SIZE), PERFTEST_KEY_TEXT_SIZE);
	}
}

static void write_script(const char *script)
{
	unsigned int seen[128] = { 0 };

	for (; *script; script++)
		if (*script != ' ')
			write_message(*script, seen[(int)*script]++);
}

static size_t script_size(const char *script)
{
	size_t size = 0;

	for (; *script; script++)
		size += *script == 'v'   ? PERFTEST_VERSION_SIZE
			: *script == 'n' ? PERFTEST_NUMBER_SIZE
			: *script == 'm' ? PERFTEST_MTU_SIZE
			: *script == 'r' ? PERFTEST_REPORT_SIZE
			: *script == 'k' ? PERFTEST_KEY_TEXT_SIZE
					 : 0;
	return size;
}

/* Runs a whole test of `sizes` sizes; the script is used up, and as much has been said. */
static void play(const struct perf_options *options, uint32_t queue_pairs, unsigned int sizes,
		 const char *script)
{
	const struct perftest_report ours = { .size = 8 };
	struct peer peers[4] = { 0 };
	struct session session = { .options = { .queue_pairs = queue_pairs }, .peers = peers };
	struct perftest_report theirs = { 0 };
	struct perftest perftest;
	uint8_t said[MOST * PERFTEST_MESSAGE_MAX];
	int fds[2];
	ssize_t n;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ours_fd = fds[0];
	stock_fd = fds[1];
	connects = receives = 0;
	session.options.local.ss_family = AF_INET;
	write_script(script);
	shutdown(stock_fd, SHUT_WR);
	cr_assert(perftest_open(&perftest, &session, options));
	cr_assert_eq(connects, 1);
	cr_assert_eq(perftest.mtu, 1024, "the smaller of both");
	cr_assert_eq(perftest.cycle, 65536, "the larger of both");
	cr_assert_eq(perftest.line, 128, "the larger of both");
	for (unsigned int i = 0; i < sizes; i++) {
		cr_assert(perftest_begin(&perftest));
		cr_assert(perftest_end(&perftest));
		cr_assert(perftest_report(&perftest, &ours, &theirs));
	}
	cr_assert_eq(receives, options->operation == PERF_SEND, "receives, once");
	cr_assert(perftest_finish(&perftest));
	shutdown(ours_fd, SHUT_WR);
	n = recv(stock_fd, said, sizeof(said), MSG_WAITALL);
	cr_assert_eq(n, (ssize_t)script_size(script), "%zd bytes were said, %zu expected", n,
		     script_size(script));
	cr_assert_eq(recv(ours_fd, said, 1, MSG_DONTWAIT), 0, "something was not read");
	/* A side that only served has nothing to tell. */
	if (strchr(script, 'r') && sizes == 1)
		cr_assert_eq(theirs.average,
			     options->server || options->bidirectional ? 12.5 : 0.0);
	perftest_close(&perftest);
	close(stock_fd);
}

static void play_both(struct perf_options options, uint32_t queue_pairs, unsigned int sizes,
		      const char *script)
{
	options.port = PERFTEST_PORT;
	options.all_sizes = sizes > 1;
	options.host = "stock";
	play(&options, queue_pairs, sizes, script);
	options.server = true;
	play(&options, queue_pairs, sizes, script);
}

/* --- the tests -------------------------------------------------------------------------------- */

Test(perftest_session, bandwidth_one_way_reports_at_the_end)
{
	static const enum perf_operation operations[] = { PERF_WRITE, PERF_READ, PERF_FETCH_ADD };

	for (unsigned int i = 0; i < 3; i++)
		play_both((struct perf_options){ .operation = operations[i], .iterations = 1000 },
			  1, 1, "vnnm k k k k rrrrr k");
}

Test(perftest_session, each_queue_pair_has_its_keys_told_twice)
{
	play_both((struct perf_options){ .operation = PERF_WRITE, .iterations = 1000 }, 3, 1,
		  "vnnm kkk kkk k k rrrrr k");
	for (unsigned int i = 0; i < 3; i++)
		cr_assert_eq(connected_to[i], 0x100 + i);
}

Test(perftest_session, bandwidth_both_ways_meets_before_and_reports_after_each_size)
{
	const struct perf_options options = { .operation = PERF_WRITE,
					      .iterations = 1000,
					      .bidirectional = true };

	play_both(options, 1, 1, "vnnm k k k k rrrrr k");
	play_both(options, 1, 2, "vnnm k k k k k rrrrr k k rrrrr k");
}

Test(perftest_session, bandwidth_of_sends_meets_before_the_data)
{
	struct perf_options options = { .operation = PERF_SEND, .iterations = 1000 };

	play_both(options, 1, 1, "vnnm k k k k k");
	play_both(options, 1, 2, "vnnm k k k k k k k k");
	options.bidirectional = true;
	play_both(options, 1, 1, "vnnm k k k k rrrrr k");
	options.iterations = 0; /* by time: nobody reports */
	play_both(options, 1, 1, "vnnm k k k k k");
}

Test(perftest_session, latency_meets_before_its_keys)
{
	play_both((struct perf_options){ .operation = PERF_READ, .mode = PERF_LATENCY }, 1, 1,
		  "vnnm k k k k k");
	play_both((struct perf_options){ .operation = PERF_FETCH_ADD, .mode = PERF_LATENCY }, 1, 1,
		  "vnnm k k k k k");
}

Test(perftest_session, latency_of_writes_ends_without_a_word)
{
	play_both((struct perf_options){ .operation = PERF_WRITE, .mode = PERF_LATENCY }, 1, 1,
		  "vnnm k k k k");
}

Test(perftest_session, latency_of_sends_meets_before_each_size)
{
	const struct perf_options options = { .operation = PERF_SEND, .mode = PERF_LATENCY };

	play_both(options, 1, 1, "vnnm k k k k k");
	play_both(options, 1, 3, "vnnm k k k kkk k");
}

/* The client tells of its last size only, so its server must not look for more. */
Test(perftest_session, all_sizes_one_way_are_one_for_the_server)
{
	struct perf_options options = { .operation = PERF_READ,
					.iterations = 1000,
					.all_sizes = true,
					.port = PERFTEST_PORT,
					.host = "stock" };

	play(&options, 1, 23, "vnnm k k k k rrrrr k");
	options.server = true;
	play(&options, 1, 1, "vnnm k k k k rrrrr k");
}

static bool opens_with(const char *version, const char *rest)
{
	const struct perf_options options = { .port = PERFTEST_PORT, .server = true };
	struct peer peers[1] = { 0 };
	struct session session = { .options = { .queue_pairs = 1 }, .peers = peers };
	char data[PERFTEST_VERSION_SIZE] = "";
	struct perftest perftest;
	bool good;
	int fds[2];

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ours_fd = fds[0];
	stock_fd = fds[1];
	snprintf(data, sizeof(data), "%s", version);
	cr_assert_eq(write(stock_fd, data, sizeof(data)), (ssize_t)sizeof(data));
	write_script(rest);
	shutdown(stock_fd, SHUT_WR);
	good = perftest_open(&perftest, &session, &options);
	perftest_close(&perftest);
	close(stock_fd);
	return good;
}

Test(perftest_session, another_end_that_is_too_old_or_leaves_is_told_from_perftest)
{
	cr_assert(opens_with("6.06", "nnm k k k"));
	cr_assert(opens_with("6.29", "nnm k k k"), "current ones");
	cr_assert_not(opens_with("5.30", "nnm k k k"));
	cr_assert_not(opens_with("GET / HTTP", "nnm k k k"));
	cr_assert_not(opens_with("6.06", "nnm k k"), "leaves");
	cr_assert_not(opens_with("6.06", ""), "leaves at once");
}
