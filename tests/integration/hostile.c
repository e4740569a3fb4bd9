/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that break every rule of the shared-memory contract. Each case exits with 0 when the
 * daemon did what it must: refuse, or end the session by a named reason. Whether it lives on and
 * serves others unharmed, whoever started this program looks at.
 */
#include "hostile.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm/segment.h"
#include "shm/status.h"

const char *path_a, *path_b;
static uint64_t state;

uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

uint64_t below(uint64_t limit)
{
	return rnd() % limit;
}

void scribble(void *at, size_t length)
{
	uint8_t *p = at;

	for (size_t i = 0; i < length; i++)
		p[i] = (uint8_t)rnd();
}

bool wrong(const char *what)
{
	fprintf(stderr, "hostile: %s\n", what);
	return false;
}

bool must_end(struct raw *raw, const char *reason)
{
	if (!raw_wait_end(raw))
		return wrong("the session goes on");
	if (!strstr(raw->session->end_reason, reason)) {
		fprintf(stderr, "hostile: reason '%.128s' lacks '%s'\n", raw->session->end_reason,
			reason);
		return false;
	}
	raw_close(raw);
	return true;
}

bool open_pair(struct pair *pair)
{
	return raw_open(&pair->raw_a, path_a) && raw_open(&pair->raw_b, path_b) &&
	       raw_make(&pair->a, &pair->raw_a, MEMORY, MR_ALL, DEPTH) &&
	       raw_make(&pair->b, &pair->raw_b, MEMORY, MR_ALL, DEPTH) &&
	       raw_connect(&pair->a, ADDRESS_A, &pair->b, ADDRESS_B);
}

void close_pair(struct pair *pair)
{
	raw_close(&pair->raw_a);
	raw_close(&pair->raw_b);
}

bool remote(struct pair *pair, uint8_t opcode, uint64_t address, uint32_t token, uint32_t length,
	    int32_t *status)
{
	struct shm_sge sge = { (uintptr_t)pair->b.memory.start, length,
			       pair->b.memory.local_token };
	struct shm_sqe sqe = { .opcode = opcode, .nsge = 1, .address = address, .token = token };
	struct shm_cqe cqe;

	raw_send(&pair->b, &sqe, &sge);
	if (!raw_complete(&pair->b, &cqe))
		return wrong("no completion");
	*status = cqe.status;
	return true;
}

/* --- taking all there is ---------------------------------------------------------------------- */

static bool case_exhaust(void)
{
	struct shm_request request = { .op = SHM_OP_CREATE_PD };
	struct shm_reply reply;
	struct raw raw;
	uint32_t pd;

	if (!raw_open(&raw, path_a) || !raw_do(&raw, &request, &reply))
		return wrong("setting up");
	pd = reply.created.handle;
	request = (struct shm_request){ .op = SHM_OP_CREATE_MW, .create_mw = { .pd = pd } };
	do {
		if (!raw_call(&raw, &request, &reply))
			return wrong("the session is over");
	} while (reply.status == NT_SUCCESS_STATUS);
	if (reply.status != NT_INSUFFICIENT_RESOURCES)
		return wrong("the end of resources has another name");
	request = (struct shm_request){ .op = SHM_OP_REFILL_TOKENS, .refill = { .count = 96 } };
	do {
		if (!raw_call(&raw, &request, &reply))
			return wrong("the session is over");
	} while (reply.status == NT_SUCCESS_STATUS);
	raw_close(&raw);
	return reply.status == NT_INSUFFICIENT_RESOURCES || wrong("tokens without end");
}

/* --- half a close ------------------------------------------------------------------------ */

/* What is closed while something needs it, or while it is being connected, and not waited for. */
static bool case_half_closed(void)
{
	static const uint32_t order[] = { 2, 0, 1, 3 };

	for (unsigned int round = 0; round < 8; round++) {
		struct shm_request request = { .op = SHM_OP_CREATE_CONNECTOR };
		struct shm_reply reply;
		struct raw_set set;
		struct raw raw;
		uint32_t handles[4];

		if (!raw_open(&raw, path_a) || !raw_make(&set, &raw, MEMORY, MR_ALL, DEPTH) ||
		    !raw_do(&raw, &request, &reply))
			return wrong("setting up");
		handles[0] = set.pd;
		handles[1] = set.cq.handle;
		handles[2] = set.qp.handle;
		handles[3] = set.memory.mr;
		request = (struct shm_request){ .op = SHM_OP_CONNECT, .id = 1000 };
		request.connect.connector = reply.created.handle;
		request.connect.qp = set.qp.handle;
		raw_address(&request.connect.local, ADDRESS_A, 0);
		raw_address(&request.connect.remote, round % 2 ? ADDRESS_B : "10.66.0.99", 9999);
		raw_post(&raw, &request);
		for (unsigned int i = 0; i < 4; i++) {
			struct shm_request close = { .op = SHM_OP_CLOSE, .id = 2000 + i };

			close.object.object = handles[order[i]];
			raw_post(&raw, &close);
		}
		usleep((useconds_t)below(3000));
		raw_close(&raw);
	}
	return true;
}

/* The same while a queue pair is being connected by number: the close must come to its end. */
static bool case_close_connecting(void)
{
	struct pair pair;
	struct shm_request request, close;
	struct shm_reply reply;

	for (unsigned int round = 0; round < 10; round++) {
		if (!raw_open(&pair.raw_a, path_a) ||
		    !raw_make(&pair.a, &pair.raw_a, MEMORY, MR_ALL, DEPTH) ||
		    !raw_open(&pair.raw_b, path_b) ||
		    !raw_make(&pair.b, &pair.raw_b, MEMORY, MR_ALL, DEPTH) ||
		    !raw_connect(&pair.b, ADDRESS_B, &pair.a, ADDRESS_A))
			return wrong("setting up");
		close_pair(&pair);
		if (!raw_open(&pair.raw_a, path_a) ||
		    !raw_make(&pair.a, &pair.raw_a, MEMORY, MR_ALL, DEPTH))
			return wrong("setting up");
		request = (struct shm_request){ .op = SHM_OP_CONNECT_QP, .id = 1000 };
		request.connect_qp.qp = pair.a.qp.handle;
		request.connect_qp.path_mtu = 1024;
		request.connect_qp.remote_qpn = 77;
		raw_address(&request.connect_qp.local, ADDRESS_A, 0);
		raw_address(&request.connect_qp.remote, ADDRESS_B, 0);
		close = (struct shm_request){ .op = SHM_OP_CLOSE };
		close.object.object = pair.a.qp.handle;
		raw_post(&pair.raw_a, &request);
		if (!raw_do(&pair.raw_a, &close, &reply))
			return wrong("the close does not end");
		raw_close(&pair.raw_a);
	}
	return true;
}

/* Descriptors that all clients and the daemon share are made to block, filled and emptied. */
static bool case_wakeups(void)
{
	struct raw raw;

	if (!raw_open(&raw, path_a))
		return wrong("setting up");
	for (unsigned int n = 0; n < 3000; n++) {
		for (uint32_t w = 0; w <= raw.workers; w++) {
			const int fd = w < raw.workers ? raw.worker_fd[w] : raw.control_fd;
			const uint64_t full = UINT64_MAX - 1;
			uint64_t count;

			fcntl(fd, F_SETFL, O_NONBLOCK);
			if (read(fd, &count, sizeof(count)) < 0)
				count = 0;
			if (write(fd, &full, sizeof(full)) < 0)
				count = 0;
			fcntl(fd, F_SETFL, 0);
		}
		usleep(200);
	}
	raw_close(&raw);
	return true;
}

/* --- talking without pause -------------------------------------------------------------------- */

#define TALKERS 4

/* Memory that the daemon has already, again and again. */
static void talk(struct raw *raw, int fd)
{
	while (raw_offer(raw, fd, 1))
		;
	_exit(EXIT_SUCCESS);
}

/* One session's socket is never empty; another one is opened and served meanwhile. */
static bool case_talkers(void)
{
	struct shm_request request = { .op = SHM_OP_CREATE_PD };
	pid_t talker[TALKERS];
	struct shm_reply reply;
	struct raw raw, other;
	bool served = true;
	int fd = shm_segment_create("talker", MEMORY, false);

	if (fd < 0 || !raw_open(&raw, path_a) || !raw_offer(&raw, fd, 1))
		return wrong("setting up");
	for (unsigned int i = 0; i < TALKERS; i++) {
		talker[i] = fork();
		if (talker[i] == 0)
			talk(&raw, fd);
	}
	for (unsigned int i = 0; i < 20 && served; i++) {
		served = raw_open(&other, path_a) && raw_do(&other, &request, &reply);
		if (served)
			raw_close(&other);
	}
	for (unsigned int i = 0; i < TALKERS; i++) {
		kill(talker[i], SIGKILL);
		waitpid(talker[i], NULL, 0);
	}
	raw_close(&raw);
	close(fd);
	return served || wrong("others wait while one talks");
}

/* --- death ------------------------------------------------------------------------------------ */

/* Set-up and traffic without an end of its own. */
static void live(void)
{
	for (;;) {
		struct pair pair;
		int32_t status;

		if (!open_pair(&pair))
			_exit(0);
		for (unsigned int n = 0; n < 20; n++)
			if (!remote(&pair, n % 2 ? SHM_WR_WRITE : SHM_WR_READ,
				    (uintptr_t)pair.a.memory.start, pair.a.memory.remote_token,
				    60000, &status))
				_exit(0);
		close_pair(&pair);
	}
}

static bool case_die(void)
{
	pid_t child = fork();
	int status;

	if (child < 0)
		return wrong("fork");
	if (child == 0)
		live();
	usleep((useconds_t)below(30000));
	kill(child, SIGKILL);
	return waitpid(child, &status, 0) == child;
}

static const struct {
	const char *name;
	bool (*run)(void);
} cases[] = {
	{ "cursor", case_cursor },
	{ "unknown", case_unknown },
	{ "requests", case_requests },
	{ "deaf", case_deaf },
	{ "scribble", case_scribble },
	{ "limits", case_limits },
	{ "messages", case_messages },
	{ "memory", case_memory },
	{ "ranges", case_ranges },
	{ "queue-cursor", case_queue_cursor },
	{ "work", case_work },
	{ "receives", case_receives },
	{ "headers", case_headers },
	{ "doorbells", case_doorbells },
	{ "overrun", case_overrun },
	{ "punch", case_punch },
	{ "tokens", case_tokens },
	{ "handles", case_handles },
	{ "shared-cursor", case_shared_cursor },
	{ "shared-entries", case_shared_entries },
	{ "segments", case_segments },
	{ "resizes", case_resizes },
	{ "waiting", case_waiting },
	{ "exhaust", case_exhaust },
	{ "half-closed", case_half_closed },
	{ "close-connecting", case_close_connecting },
	{ "wakeups", case_wakeups },
	{ "talkers", case_talkers },
	{ "die", case_die },
};

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "Usage: hostile SOCKET-A SOCKET-B CASE SEED\n");
		return 2;
	}
	path_a = argv[1];
	path_b = argv[2];
	state = strtoull(argv[4], NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[3], cases[i].name))
			return cases[i].run() ? EXIT_SUCCESS : EXIT_FAILURE;
	fprintf(stderr, "hostile: no case '%s'\n", argv[3]);
	return 2;
}
