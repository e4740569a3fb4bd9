/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that break every rule of the shared-memory contract. Each case exits with 0 when the
 * daemon did what it must: refuse, or end the session by a named reason. Whether it lives on and
 * serves others unharmed, whoever started this program looks at.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "raw.h"
#include "shm/segment.h"
#include "shm/socket.h"
#include "shm/spsc.h"
#include "shm/status.h"

#define ADDRESS_A "10.66.0.1" /* of the daemon that is attacked */
#define ADDRESS_B "10.66.0.2" /* of the one where our peer is a client */
#define MR_ALL    0x00010007u
#define MR_LOCAL  0x00000001u
#define DEPTH     64u
#define MEMORY    (1u << 20)

static const char *path_a, *path_b;
static uint64_t state;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t below(uint64_t limit)
{
	return rnd() % limit;
}

static void scribble(void *at, size_t length)
{
	uint8_t *p = at;

	for (size_t i = 0; i < length; i++)
		p[i] = (uint8_t)rnd();
}

static bool wrong(const char *what)
{
	fprintf(stderr, "hostile: %s\n", what);
	return false;
}

/* The session must be over, for a reason that contains the text. */
static bool must_end(struct raw *raw, const char *reason)
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

/* A queue pair of the attacked daemon, connected with one of the other. */
struct pair {
	struct raw raw_a, raw_b;
	struct raw_set a, b;
};

static bool open_pair(struct pair *pair)
{
	return raw_open(&pair->raw_a, path_a) && raw_open(&pair->raw_b, path_b) &&
	       raw_make(&pair->a, &pair->raw_a, MEMORY, MR_ALL, DEPTH) &&
	       raw_make(&pair->b, &pair->raw_b, MEMORY, MR_ALL, DEPTH) &&
	       raw_connect(&pair->a, ADDRESS_A, &pair->b, ADDRESS_B);
}

static void close_pair(struct pair *pair)
{
	raw_close(&pair->raw_a);
	raw_close(&pair->raw_b);
}

/* One request of B's at A's memory and how it ended. */
static bool remote(struct pair *pair, uint8_t opcode, uint64_t address, uint32_t token,
		   uint32_t length, int32_t *status)
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

/* --- the control ring ------------------------------------------------------------------------ */

static bool case_cursor(void)
{
	static const uint32_t jumps[] = { 129, 1000, 0x7fffffff, 0x80000000, 0xffffffff };

	for (unsigned int i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		struct raw raw;

		if (!raw_open(&raw, path_a))
			return false;
		shm_store_release(&raw.session->request_cursor.tail, jumps[i]);
		raw_ring_control(&raw);
		if (!must_end(&raw, "cursor"))
			return false;
	}
	return true;
}

static bool case_unknown(void)
{
	static const uint32_t ops[] = { 0, SHM_OP_MAX, SHM_EV_CONNECT_REQUEST, 0xffffffff };

	for (unsigned int i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		struct shm_request request = { .op = ops[i], .id = 1 };
		struct raw raw;

		if (!raw_open(&raw, path_a))
			return false;
		raw_post(&raw, &request);
		if (!must_end(&raw, "unknown request"))
			return false;
	}
	return true;
}

/* Requests that are known, with anything in them: numbers that may mean something and nonsense. */
static void fuzz_request(struct shm_request *request, const uint32_t *handles, unsigned int known)
{
	uint32_t *word = (uint32_t *)request->raw;

	request->op = 1 + (uint32_t)below(SHM_OP_MAX - 1);
	scribble(request->raw, sizeof(request->raw));
	for (unsigned int i = 0; i < 24; i++) {
		switch (below(6)) {
		case 0: word[i] = (uint32_t)below(8); break;
		case 1: word[i] = 1u << below(32); break;
		case 2: word[i] = 0; break;
		case 3:
		case 4: word[i] = known ? handles[below(known)] : 0; break;
		default: break;
		}
	}
}

static bool case_requests(void)
{
	uint32_t handles[64], known = 0, answered = 0;
	struct shm_request request;
	struct shm_reply reply;
	struct raw raw;

	if (!raw_open(&raw, path_a))
		return false;
	for (unsigned int n = 0; n < 1500; n++) {
		fuzz_request(&request, handles, known);
		/* Closing what others need waits for them: such a request stays open. */
		request.id = raw.next_id++;
		raw_post(&raw, &request);
		usleep(n % 16 ? 0 : 300);
		while (raw.reply_head != shm_load_acquire(&raw.session->reply_cursor.tail)) {
			reply = raw.session->reply[raw.reply_head % SHM_CONTROL_ENTRIES];
			shm_store_release(&raw.session->reply_cursor.head, ++raw.reply_head);
			answered++;
			if (reply.status == NT_SUCCESS_STATUS && reply.created.handle)
				handles[known++ % 64] = reply.created.handle;
			known = known > 64 ? 64 : known;
		}
		while (raw.request_tail - shm_load_acquire(&raw.session->request_cursor.head) >
			       SHM_CONTROL_ENTRIES / 2 &&
		       !raw_is_over(&raw))
			usleep(100);
		if (raw_is_over(&raw))
			break;
	}
	if (answered == 0)
		return wrong("nothing was answered");
	raw_close(&raw);
	return true;
}

static bool case_deaf(void)
{
	struct shm_request request = { .op = SHM_OP_CREATE_PD };
	struct raw raw;

	if (!raw_open(&raw, path_a))
		return false;
	raw.session->reply_cursor.head = 0x12345678; /* impossible: counts as no room */
	for (unsigned int n = 1; n < 20000 && !raw_is_over(&raw); n++) {
		request.id = n;
		raw_post(&raw, &request);
		while (raw.request_tail - shm_load_acquire(&raw.session->request_cursor.head) >=
			       SHM_CONTROL_ENTRIES &&
		       !raw_is_over(&raw))
			usleep(50);
	}
	return must_end(&raw, "does not read its replies");
}

/* Everything that both map is written over, again and again, while requests go on. */
static bool case_scribble(void)
{
	struct shm_request request = { .op = SHM_OP_CREATE_PD };
	struct raw raw;

	for (unsigned int round = 0; round < 20; round++) {
		if (!raw_open(&raw, path_a))
			return false;
		raw_post(&raw, &request);
		for (unsigned int n = 0; n < 50; n++) {
			scribble((uint8_t *)raw.session + below(raw.size - 4096), 4096);
			raw_ring_control(&raw);
			for (uint32_t w = 0; w < raw.workers; w++)
				raw_wake(raw.worker_fd[w]);
		}
		raw_close(&raw);
	}
	return true;
}

/* --- the socket ---------------------------------------------------------------------------------
 */

/* More descriptors than lib/shm would send. */
static bool send_fds(struct raw *raw, const void *message, size_t length, unsigned int count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(64 * sizeof(int))];
	} control = { 0 };
	struct iovec part = { .iov_base = (void *)(uintptr_t)message, .iov_len = length };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (count) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(count * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&header);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
		for (unsigned int i = 0; i < count; i++)
			memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &raw->event_fd, sizeof(int));
	}
	return sendmsg(raw->socket, &header, MSG_NOSIGNAL) >= 0;
}

static bool case_messages(void)
{
	struct shm_segment_message message = { .type = SHM_MSG_SEGMENT_ADD, .cookie = 1 };
	static const struct {
		uint32_t type;
		size_t length;
		unsigned int fds;
	} bad[] = { { SHM_MSG_SEGMENT_ADD, 0, 17 },   { SHM_MSG_SEGMENT_ADD, 0, 2 },
		    { SHM_MSG_SEGMENT_ADD, 0, 0 },    { SHM_MSG_SEGMENT_ADD, 4, 1 },
		    { SHM_MSG_SEGMENT_ADD, 1, 0 },    { SHM_MSG_SEGMENT_ADD, 4096, 1 },
		    { SHM_MSG_HELLO, 0, 0 },          { SHM_MSG_WELCOME, 0, 1 },
		    { SHM_MSG_OBJECT_SEGMENT, 0, 1 }, { 0xffffffff, 0, 0 },
		    { SHM_MSG_OBJECT_SEGMENT, 0, 60 } };

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		uint8_t bytes[4096] = { 0 };
		struct raw raw;

		if (!raw_open(&raw, path_a))
			return false;
		message.type = bad[i].type;
		memcpy(bytes, &message, sizeof(message));
		if (!send_fds(&raw, bytes, bad[i].length ? bad[i].length : sizeof(message),
			      bad[i].fds))
			return wrong("sending");
		if (!must_end(&raw, "socket"))
			return false;
	}
	return true;
}

/* Memory that may shrink, that cannot be written, or that is no memory at all. */
static int bad_memory(unsigned int kind)
{
	int fd, pipes[2];

	switch (kind) {
	case 0: fd = memfd_create("unsealed", MFD_ALLOW_SEALING); break;
	case 1: fd = memfd_create("growing", MFD_ALLOW_SEALING); break;
	case 2: fd = memfd_create("read-only", MFD_ALLOW_SEALING); break;
	case 3: fd = memfd_create("without-seals", 0); break;
	case 4: return open("/proc/self/exe", O_RDONLY);
	case 5: return open("/dev/zero", O_RDWR);
	case 6: return socket(AF_UNIX, SOCK_DGRAM, 0);
	default: return pipe(pipes) ? -1 : pipes[0];
	}
	if (ftruncate(fd, MEMORY))
		return -1;
	if (kind == 1 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW))
		return -1;
	if (kind == 2 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL))
		return -1;
	return fd;
}

static bool register_at(struct raw *raw, uint32_t mr, uint64_t cookie, uint64_t offset,
			uint64_t length, uint64_t address)
{
	struct shm_request request = { .op = SHM_OP_REGISTER_MR,
				       .register_mr = { .mr = mr,
							.access = MR_ALL,
							.cookie = cookie,
							.offset = offset,
							.length = length,
							.virtual_address = address } };
	struct shm_reply reply;

	return raw_call(raw, &request, &reply) && reply.status == NT_SUCCESS_STATUS;
}

static bool case_memory(void)
{
	struct raw raw;
	struct raw_set set;

	if (!raw_open(&raw, path_a) || !raw_make(&set, &raw, MEMORY, MR_ALL, DEPTH))
		return false;
	for (unsigned int kind = 0; kind < 8; kind++) {
		struct shm_request create = { .op = SHM_OP_CREATE_MR,
					      .create_mr = { .pd = set.pd } };
		struct shm_reply reply;
		int fd = bad_memory(kind);

		if (fd < 0 || !raw_offer(&raw, fd, 100 + kind) || !raw_do(&raw, &create, &reply))
			return wrong("setting up");
		if (register_at(&raw, reply.created.handle, 100 + kind, 0, 4096, 0x10000))
			return wrong("memory was taken that must not be");
		close(fd);
	}
	return !raw_is_over(&raw) || wrong("the session is over");
}

/* Ranges of good memory that do not lie in it. */
static bool case_ranges(void)
{
	static const struct {
		uint64_t offset, length, address;
	} bad[] = { { MEMORY, 1, 0x10000 },
		    { MEMORY - 1, 2, 0x10000 },
		    { 0, MEMORY + 1, 0x10000 },
		    { UINT64_MAX - 4095, 8192, 0x10000 },
		    { 4096, UINT64_MAX - 4095, 0x10000 },
		    { 0, 0, 0x10000 },
		    { 0, 8192, UINT64_MAX - 4095 },
		    { UINT64_MAX, UINT64_MAX, UINT64_MAX } };
	struct raw raw;
	struct raw_set set;

	if (!raw_open(&raw, path_a) || !raw_make(&set, &raw, MEMORY, MR_ALL, DEPTH))
		return false;
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct shm_request create = { .op = SHM_OP_CREATE_MR,
					      .create_mr = { .pd = set.pd } };
		struct shm_reply reply;

		if (!raw_do(&raw, &create, &reply))
			return wrong("setting up");
		if (register_at(&raw, reply.created.handle, set.memory.cookie, bad[i].offset,
				bad[i].length, bad[i].address)) {
			fprintf(stderr, "hostile: range %u is taken\n", i);
			return false;
		}
	}
	return !raw_is_over(&raw) || wrong("the session is over");
}

/* --- queues ---------------------------------------------------------------------------------- */

static bool case_queue_cursor(void)
{
	static const uint32_t jumps[] = { DEPTH * 2 + 1, 0x80000000, 0xffffffff };

	for (unsigned int i = 0; i < 6; i++) {
		struct pair pair;
		struct shm_qp *qp;

		if (!open_pair(&pair))
			return wrong("setting up");
		qp = pair.a.qp.segment;
		shm_store_release(i < 3 ? &qp->send.tail : &qp->receive.tail, jumps[i % 3]);
		raw_ring(&pair.a);
		if (i >= 3) { /* the receive queue is looked at when something comes */
			struct shm_sqe sqe = { .opcode = SHM_WR_SEND };

			raw_send(&pair.b, &sqe, NULL);
		}
		if (!must_end(&pair.raw_a, "cursor"))
			return false;
		raw_close(&pair.raw_b);
	}
	return true;
}

/* Work requests of any bytes, also with objects and tokens that exist. */
static void fuzz_send(struct pair *pair, struct shm_sqe *sqe, struct shm_sge *sge)
{
	scribble(sqe, sizeof(*sqe));
	scribble(sge, 16 * sizeof(*sge));
	sqe->opcode = below(8) ? (uint8_t)below(SHM_WR_MAX + 2) : (uint8_t)rnd();
	sqe->nsge = below(2) ? (uint8_t)below(6) : (uint8_t)rnd();
	if (below(2))
		sqe->flags &= 0x7f;
	if (below(2))
		sqe->token = pair->b.memory.remote_token;
	if (below(2))
		sqe->mr = pair->a.memory.mr;
	if (below(3))
		sqe->address = (uintptr_t)pair->b.memory.start + below(MEMORY);
	for (unsigned int i = 0; i < 16; i++) {
		if (below(4))
			sge[i].token = pair->a.memory.local_token;
		if (below(4))
			sge[i].address = (uintptr_t)pair->a.memory.start + below(MEMORY);
		if (below(4))
			sge[i].length = (uint32_t)below(4096);
	}
}

static bool case_work(void)
{
	for (unsigned int round = 0; round < 30; round++) {
		struct pair pair;
		struct shm_cqe cqe;

		if (!open_pair(&pair))
			return wrong("setting up");
		for (unsigned int n = 0; n < DEPTH; n++) {
			struct shm_queue *queue = &((struct shm_qp *)pair.a.qp.segment)->send;
			struct shm_sge sge[16];
			struct shm_sqe sqe;
			uint8_t *slot;

			fuzz_send(&pair, &sqe, sge);
			slot = shm_queue_slot(pair.a.qp.segment, queue->offset, queue->stride,
					      queue->slots, queue->tail);
			memcpy(slot, &sqe, sizeof(sqe));
			memcpy(slot + sizeof(sqe), sge, queue->stride - sizeof(sqe));
			shm_store_release(&queue->tail, queue->tail + 1);
			raw_ring(&pair.a);
			raw_receive(&pair.b, sge, 1);
		}
		/* The first that is impossible fails, and all behind it with it. */
		if (!raw_complete(&pair.a, &cqe))
			return wrong("no completion of any kind");
		close_pair(&pair);
	}
	return true;
}

static bool case_receives(void)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
		struct pair pair;
		struct shm_queue *queue;
		struct shm_sge sge;
		struct shm_cqe cqe;

		if (!open_pair(&pair))
			return wrong("setting up");
		queue = &((struct shm_qp *)pair.a.qp.segment)->receive;
		scribble((uint8_t *)pair.a.qp.segment + queue->offset,
			 (size_t)queue->slots * queue->stride);
		shm_store_release(&queue->tail, DEPTH);
		sge = (struct shm_sge){ (uintptr_t)pair.b.memory.start, 100,
					pair.b.memory.local_token };
		raw_send(&pair.b, &sqe, &sge);
		if (!raw_complete(&pair.b, &cqe))
			return wrong("the peer's SEND does not complete");
		if (cqe.status == NT_SUCCESS_STATUS)
			return wrong("a SEND into nowhere succeeds");
		close_pair(&pair);
	}
	return true;
}

/* What the daemon wrote into the segments is not what it goes by. */
static bool case_headers(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	for (unsigned int n = 0; n < 200; n++) {
		struct shm_qp *qp = pair.a.qp.segment;
		struct shm_cq *cq = pair.a.cq.segment;
		uint32_t send = qp->send.tail, receive = qp->receive.tail;

		scribble(qp, sizeof(*qp));
		scribble(cq, pair.a.cq.size);
		qp->send.tail = send;
		qp->receive.tail = receive;
		for (uint32_t w = 0; w < 16; w++)
			cq->ring[w].cursor.head = 0;
		raw_ring(&pair.a);
		if (!remote(&pair, SHM_WR_WRITE, (uintptr_t)pair.a.memory.start,
			    pair.a.memory.remote_token, 3000, &status) ||
		    status)
			return wrong("a peer's write fails for what lies in a header");
	}
	close_pair(&pair);
	return true;
}

static bool case_doorbells(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	for (unsigned int n = 0; n < 300; n++) {
		for (uint32_t w = 0; w < pair.raw_a.workers; w++) {
			struct shm_worker_area *area = &pair.raw_a.session->worker[w];

			for (unsigned int i = 0; i < SHM_MAX_SESSION_QPS / 64; i++)
				__atomic_store_n(&area->bits[i], UINT64_MAX, __ATOMIC_RELAXED);
			for (unsigned int i = 0; i < 4; i++)
				__atomic_store_n(&area->summary[i], UINT64_MAX, __ATOMIC_RELEASE);
			scribble(&area->stock_cursor, sizeof(area->stock_cursor));
		}
		raw_ring(&pair.a);
		if (n % 10 == 0 && (!remote(&pair, SHM_WR_READ, (uintptr_t)pair.a.memory.start,
					    pair.a.memory.remote_token, 5000, &status) ||
				    status))
			return wrong("a peer's read fails for wild doorbells");
	}
	close_pair(&pair);
	return true;
}

/* Completions that nobody takes: the CQ overruns, and only its own queue pairs pay. */
static bool case_overrun(void)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
	struct pair pair;
	struct shm_sge sge;
	struct shm_cqe cqe;
	unsigned int failed = 0;

	if (!open_pair(&pair))
		return wrong("setting up");
	sge = (struct shm_sge){ (uintptr_t)pair.a.memory.start, 4096, pair.a.memory.local_token };
	for (unsigned int n = 0; n < 6 * DEPTH && !failed; n++) {
		struct shm_sge from = { (uintptr_t)pair.b.memory.start, 8,
					pair.b.memory.local_token };

		raw_receive(&pair.a, &sge, 1);
		raw_send(&pair.b, &sqe, &from);
		if (!raw_complete(&pair.b, &cqe))
			return wrong("the peer's SEND does not complete");
		failed += cqe.status != NT_SUCCESS_STATUS;
	}
	if (!failed)
		return wrong("completions without end fit a CQ");
	close_pair(&pair);
	return true;
}

/* --- memory that goes away under a peer ------------------------------------------------------- */

static bool case_punch(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	if (ftruncate(pair.a.memory.fd, 0) == 0)
		return wrong("sealed memory shrinks");
	for (unsigned int n = 0; n < 300; n++) {
		if (fallocate(pair.a.memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			      MEMORY))
			return wrong("punching");
		madvise(pair.a.memory.start, MEMORY, MADV_REMOVE);
		if (!remote(&pair, n % 2 ? SHM_WR_WRITE : SHM_WR_READ,
			    (uintptr_t)pair.a.memory.start, pair.a.memory.remote_token, MEMORY / 4,
			    &status))
			return false;
		if (status && status != NT_ACCESS_VIOLATION)
			return wrong("neither served nor refused");
	}
	munmap(pair.a.memory.start, MEMORY);
	close(pair.a.memory.fd);
	if (!remote(&pair, SHM_WR_WRITE, (uintptr_t)pair.a.memory.start, pair.a.memory.remote_token,
		    4096, &status))
		return false;
	close_pair(&pair);
	return true;
}

/* B59, B46: a local token is no good remotely, nor one of another session locally. */
static bool case_tokens(void)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
	struct pair pair, other;
	struct shm_sge sge;
	struct shm_cqe cqe;
	int32_t status;

	if (!open_pair(&pair) || !open_pair(&other))
		return wrong("setting up");
	if (pair.a.memory.local_token == pair.a.memory.remote_token)
		return wrong("local and remote token are the same");
	sge = (struct shm_sge){ (uintptr_t)other.a.memory.start, 64, other.a.memory.local_token };
	raw_send(&pair.a, &sqe, &sge);
	if (!raw_complete(&pair.a, &cqe) || cqe.status != NT_ACCESS_VIOLATION)
		return wrong("another session's token works in an SGE");
	if (!remote(&other, SHM_WR_WRITE, (uintptr_t)other.a.memory.start,
		    other.a.memory.local_token, 64, &status) ||
	    status != NT_ACCESS_VIOLATION)
		return wrong("a local token works remotely");
	close_pair(&pair);
	close_pair(&other);
	return true;
}

/* Handles of another session mean nothing. */
static bool case_handles(void)
{
	struct raw victim, thief;
	struct raw_set set;
	struct shm_reply reply;

	if (!raw_open(&victim, path_a) || !raw_open(&thief, path_a) ||
	    !raw_make(&set, &victim, MEMORY, MR_ALL, DEPTH))
		return wrong("setting up");
	for (uint32_t op = SHM_OP_CREATE_CQ; op < SHM_OP_MAX; op++) {
		const uint32_t handles[] = { set.pd, set.cq.handle, set.qp.handle, set.memory.mr };

		if (op == SHM_OP_CREATE_CQ || op == SHM_OP_CREATE_CONNECTOR ||
		    op == SHM_OP_CREATE_LISTENER || op == SHM_OP_REFILL_TOKENS)
			continue;
		for (unsigned int i = 0; i < 4; i++) {
			struct shm_request request = { .op = op,
						       .create_qp = { .pd = handles[i],
								      .receive_cq = handles[1],
								      .initiator_cq =
									      handles[1] } };

			if (!raw_call(&thief, &request, &reply))
				return wrong("the thief's session is over");
			if (reply.status >= 0) {
				fprintf(stderr, "hostile: request %u takes a foreign handle\n", op);
				return false;
			}
		}
	}
	if (raw_is_over(&victim))
		return wrong("the victim's session is over");
	raw_close(&victim);
	raw_close(&thief);
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

/* --- death
 * ---------------------------------------------------------------------------------------- */

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
	{ "exhaust", case_exhaust },
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
