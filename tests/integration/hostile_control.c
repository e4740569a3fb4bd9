/* SPDX-License-Identifier: BSD-3-Clause */
/* Hostile clients: the control ring, the socket, and memory that is none. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile.h"
#include "shm/spsc.h"
#include "shm/status.h"

/* --- the control ring ------------------------------------------------------------------------ */

bool case_cursor(void)
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

bool case_unknown(void)
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

bool case_requests(void)
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

bool case_deaf(void)
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
bool case_scribble(void)
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

/* --- what the daemon told the client ---------------------------------------------------------- */

/* A request that is beyond what the daemon said before it was written over. */
static bool beyond(struct raw *raw, struct shm_request request, const char *what)
{
	struct shm_reply reply;

	if (!raw_call(raw, &request, &reply))
		return wrong("the session is over");
	return reply.status != NT_SUCCESS_STATUS || wrong(what);
}

static bool beyond_all(struct raw *raw, const struct raw_set *set, const struct shm_limits *told)
{
	const struct shm_create_qp queues = { .pd = set->pd,
					      .receive_cq = set->cq.handle,
					      .initiator_cq = set->cq.handle,
					      .initiator_depth = 1,
					      .initiator_sge = 1,
					      .receive_depth = 1,
					      .receive_sge = 1 };
	struct shm_request deep = { .op = SHM_OP_CREATE_QP, .create_qp = queues };
	struct shm_request wide = { .op = SHM_OP_CREATE_QP, .create_qp = queues };
	struct shm_request fat = { .op = SHM_OP_CREATE_QP, .create_qp = queues };

	deep.create_qp.receive_depth = told->max_receive_depth + 1;
	wide.create_qp.initiator_sge = told->max_initiator_sge + 1;
	fat.create_qp.inline_size = told->max_inline + 1;
	return beyond(raw, deep, "a queue pair deeper than can be") &&
	       beyond(raw, wide, "a queue pair of more pieces than can be") &&
	       beyond(raw, fat, "a queue pair of more inline bytes than can be") &&
	       beyond(raw,
		      (struct shm_request){ .op = SHM_OP_CREATE_CQ,
					    .create_cq = { .depth = told->max_cq_depth + 1 } },
		      "a completion queue longer than can be") &&
	       beyond(raw,
		      (struct shm_request){ .op = SHM_OP_RESIZE_CQ,
					    .resize = { .object = set->cq.handle,
							.depth = told->max_cq_depth + 1 } },
		      "a completion queue that grows beyond what can be") &&
	       beyond(raw,
		      (struct shm_request){ .op = SHM_OP_CREATE_SRQ,
					    .create_srq = { .pd = set->pd,
							    .depth = told->max_srq_depth + 1,
							    .receive_sge = 1 } },
		      "a shared receive queue longer than can be");
}

/* Its own limits and the number of its workers are in memory that a client can write. */
bool case_limits(void)
{
	struct shm_limits told;
	struct raw_set set;
	struct raw raw;

	if (!raw_open(&raw, path_a) || !raw_make(&set, &raw, MEMORY, MR_ALL, DEPTH))
		return wrong("setting up");
	told = raw.session->limits;
	memset(&raw.session->limits, 0xff, sizeof(raw.session->limits));
	raw.session->workers = UINT32_MAX / 2;
	raw.session->size = UINT64_MAX;
	raw.session->addresses = UINT32_MAX;
	raw.session->session = UINT32_MAX;
	if (!beyond_all(&raw, &set, &told))
		return false;
	raw_close(&raw); /* each worker is told of it, and no other */
	return true;
}

/* --- the socket ------------------------------------------------------------------------------- */

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

bool case_messages(void)
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

bool case_memory(void)
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
bool case_ranges(void)
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
