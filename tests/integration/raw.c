/* SPDX-License-Identifier: BSD-3-Clause */
/* A client that speaks the shared-memory contract itself, without libndk. */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shm/segment.h"
#include "shm/socket.h"
#include "shm/spsc.h"
#include "shm/status.h"

static uint64_t milliseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

void raw_wake(int fd)
{
	const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		perror("wake");
}

/* --- the session -------------------------------------------------------------------------- */

static int receive(int socket, void *message, size_t room, int *fds, unsigned int *count)
{
	struct pollfd ready = { .fd = socket, .events = POLLIN };

	if (poll(&ready, 1, RAW_PATIENCE) != 1)
		return -ETIMEDOUT;
	return shm_socket_receive(socket, message, room, fds, count);
}

static bool take_welcome(struct raw *raw)
{
	int fds[SHM_SOCKET_MAX_FDS];
	unsigned int count = SHM_SOCKET_MAX_FDS;
	struct shm_welcome welcome;
	void *address;

	if (receive(raw->socket, &welcome, sizeof(welcome), fds, &count) != sizeof(welcome) ||
	    welcome.status) {
		fprintf(stderr, "raw: not welcome\n");
		return false;
	}
	raw->workers = welcome.workers;
	raw->size = welcome.session_size;
	raw->event_fd = fds[1];
	raw->control_fd = fds[2];
	for (uint32_t w = 0; w < raw->workers; w++)
		raw->worker_fd[w] = fds[3 + w];
	if (shm_segment_map(fds[0], raw->size, false, &address))
		return false;
	close(fds[0]);
	raw->session = address;
	return true;
}

bool raw_open(struct raw *raw, const char *path)
{
	struct shm_hello hello = { .type = SHM_MSG_HELLO,
				   .magic = SHM_MAGIC_HELLO,
				   .layout_version = SHM_LAYOUT_VERSION,
				   .ndk_major = 1,
				   .ndk_minor = 2,
				   .name = "hostile" };
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(raw, 0, sizeof(*raw));
	raw->next_id = raw->next_cookie = 1;
	raw->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(raw->socket, (struct sockaddr *)&address, sizeof(address))) {
		perror(path);
		return false;
	}
	return !shm_socket_send(raw->socket, &hello, sizeof(hello), NULL, 0) && take_welcome(raw);
}

void raw_close(struct raw *raw)
{
	munmap(raw->session, raw->size);
	close(raw->socket);
	close(raw->event_fd);
	close(raw->control_fd);
	for (uint32_t w = 0; w < raw->workers; w++)
		close(raw->worker_fd[w]);
}

bool raw_is_over(const struct raw *raw)
{
	return __atomic_load_n(&raw->session->ended, __ATOMIC_ACQUIRE) == 1;
}

bool raw_wait_end(struct raw *raw)
{
	const uint64_t end = milliseconds() + RAW_PATIENCE;

	while (!raw_is_over(raw)) {
		if (milliseconds() > end)
			return false;
		raw_ring_control(raw);
		usleep(1000);
	}
	return true;
}

/* --- requests ----------------------------------------------------------------------------- */

void raw_ring_control(struct raw *raw)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	raw_wake(raw->control_fd);
}

void raw_post(struct raw *raw, const struct shm_request *request)
{
	raw->session->request[raw->request_tail % SHM_CONTROL_ENTRIES] = *request;
	shm_store_release(&raw->session->request_cursor.tail, ++raw->request_tail);
	raw_ring_control(raw);
}

static bool take_reply(struct raw *raw, struct shm_reply *reply)
{
	if (!shm_ring_used(&raw->session->reply_cursor, raw->reply_head))
		return false;
	*reply = raw->session->reply[raw->reply_head % SHM_CONTROL_ENTRIES];
	shm_store_release(&raw->session->reply_cursor.head, ++raw->reply_head);
	return true;
}

bool raw_call(struct raw *raw, struct shm_request *request, struct shm_reply *reply)
{
	const uint64_t end = milliseconds() + RAW_PATIENCE;
	struct pollfd ready = { .fd = raw->event_fd, .events = POLLIN };
	uint64_t count;

	request->id = raw->next_id++;
	raw_post(raw, request);
	for (;;) {
		while (take_reply(raw, reply))
			if (reply->id == request->id)
				return true;
		if (raw_is_over(raw) || milliseconds() > end)
			return false;
		if (poll(&ready, 1, 20) == 1 && read(raw->event_fd, &count, sizeof(count)) < 0)
			return false;
	}
}

bool raw_do(struct raw *raw, struct shm_request *request, struct shm_reply *reply)
{
	if (!raw_call(raw, request, reply)) {
		fprintf(stderr, "raw: request %u: no reply: %.128s\n", request->op,
			raw->session->end_reason);
		return false;
	}
	if (reply->status)
		fprintf(stderr, "raw: request %u: status %#x\n", request->op,
			(unsigned int)reply->status);
	return reply->status == NT_SUCCESS_STATUS;
}

/* --- objects ------------------------------------------------------------------------------ */

/* A segment that comes with the reply: one queue's, or one that further queue pairs will share. */
static void *take_segment(struct raw *raw, uint32_t type, uint64_t *size)
{
	struct shm_segment_message message;
	void *address = NULL;
	unsigned int count = 1;
	int fd;

	if (receive(raw->socket, &message, sizeof(message), &fd, &count) != sizeof(message) ||
	    count != 1)
		return NULL;
	*size = message.size;
	if (message.type != type || shm_segment_map(fd, message.size, false, &address))
		address = NULL;
	close(fd);
	return address;
}

bool raw_take_segment(struct raw *raw, const struct shm_reply *reply, struct raw_queue *queue)
{
	const struct shm_created *created = &reply->created;
	uint64_t size;

	*queue = (struct raw_queue){ .handle = created->handle,
				     .number = created->number,
				     .worker = created->worker,
				     .doorbell = created->doorbell,
				     .size = created->segment_size };
	if (!created->segment) {
		queue->segment = take_segment(raw, SHM_MSG_OBJECT_SEGMENT, &size);
		return queue->segment;
	}
	if (created->segment >= RAW_SEGMENTS)
		return false;
	if (!raw->segment[created->segment])
		raw->segment[created->segment] = take_segment(raw, SHM_MSG_QUEUE_SEGMENT, &size);
	if (!raw->segment[created->segment])
		return false;
	queue->segment = (uint8_t *)raw->segment[created->segment] + created->offset;
	return true;
}

bool raw_offer(struct raw *raw, int fd, uint64_t cookie)
{
	struct shm_segment_message message = { .type = SHM_MSG_SEGMENT_ADD, .cookie = cookie };

	return !shm_socket_send(raw->socket, &message, sizeof(message), &fd, 1);
}

static bool make_memory(struct raw *raw, struct raw_memory *memory, uint32_t pd, uint64_t size,
			uint32_t access)
{
	struct shm_request create = { .op = SHM_OP_CREATE_MR, .create_mr = { .pd = pd } };
	struct shm_request enter = { .op = SHM_OP_REGISTER_MR };
	struct shm_reply reply;
	void *address;

	*memory = (struct raw_memory){ .size = size, .cookie = raw->next_cookie++ };
	memory->fd = shm_segment_create("hostile", size, false);
	if (memory->fd < 0 || shm_segment_map(memory->fd, size, true, &address) ||
	    !raw_offer(raw, memory->fd, memory->cookie) || !raw_do(raw, &create, &reply))
		return false;
	memory->start = address;
	memory->mr = reply.created.handle;
	enter.register_mr = (struct shm_register_mr){ .mr = memory->mr,
						      .access = access,
						      .cookie = memory->cookie,
						      .length = size,
						      .virtual_address = (uintptr_t)address };
	if (!raw_do(raw, &enter, &reply))
		return false;
	memory->local_token = reply.registered.local_token;
	memory->remote_token = reply.registered.remote_token;
	return true;
}

bool raw_make(struct raw_set *set, struct raw *raw, uint64_t memory, uint32_t access,
	      uint32_t depth)
{
	struct shm_request request = { .op = SHM_OP_CREATE_PD };
	struct shm_reply reply;

	memset(set, 0, sizeof(*set));
	set->raw = raw;
	if (!raw_do(raw, &request, &reply))
		return false;
	set->pd = reply.created.handle;
	request =
		(struct shm_request){ .op = SHM_OP_CREATE_CQ, .create_cq = { .depth = 2 * depth } };
	if (!raw_do(raw, &request, &reply) || !raw_take_segment(raw, &reply, &set->cq))
		return false;
	request = (struct shm_request){ .op = SHM_OP_CREATE_QP,
					.create_qp = { .pd = set->pd,
						       .receive_cq = set->cq.handle,
						       .initiator_cq = set->cq.handle,
						       .receive_depth = depth,
						       .initiator_depth = depth,
						       .receive_sge = 4,
						       .initiator_sge = 4,
						       .inline_size = 64 } };
	if (!raw_do(raw, &request, &reply) || !raw_take_segment(raw, &reply, &set->qp))
		return false;
	return make_memory(raw, &set->memory, set->pd, memory, access);
}

void raw_address(struct shm_address *address, const char *text, uint16_t port)
{
	*address = (struct shm_address){ .family = 4,
					 .port = port,
					 .gid = { [10] = 0xff, [11] = 0xff } };
	inet_pton(AF_INET, text, address->gid + 12);
}

static bool connect_one(struct raw_set *set, const char *here, const struct raw_set *other,
			const char *there)
{
	const uint64_t end = milliseconds() + RAW_PATIENCE;
	struct shm_request request = { .op = SHM_OP_CONNECT_QP };
	struct shm_reply reply = { 0 };

	request.connect_qp = (struct shm_connect_qp){ .qp = set->qp.handle,
						      .remote_qpn = other->qp.number,
						      .path_mtu = 1024,
						      .timeout = 15, /* a peer may stand still */
						      .retry_count = 7,
						      .rnr_retry_count = 3,
						      .min_rnr_timer = 12,
						      .hop_limit = 64,
						      .inbound_read_limit = 16,
						      .outbound_read_limit = 16 };
	raw_address(&request.connect_qp.local, here, 0);
	raw_address(&request.connect_qp.remote, there, 0);
	/* The neighbour may have to be asked for first. */
	while (milliseconds() < end) {
		if (!raw_call(set->raw, &request, &reply))
			return false;
		if (reply.status != NT_HOST_UNREACHABLE)
			break;
		usleep(10000);
	}
	return reply.status == NT_SUCCESS_STATUS;
}

bool raw_connect(struct raw_set *a, const char *address_a, struct raw_set *b, const char *address_b)
{
	return connect_one(a, address_a, b, address_b) && connect_one(b, address_b, a, address_a);
}

/* --- work --------------------------------------------------------------------------------- */

void raw_ring(struct raw_set *set)
{
	if (shm_doorbell_ring(&set->raw->session->worker[set->qp.worker], set->qp.doorbell))
		raw_wake(set->raw->worker_fd[set->qp.worker]);
}

static uint8_t *next_slot(struct raw_set *set, struct shm_queue *queue)
{
	return shm_queue_slot(set->qp.segment, queue->offset, queue->stride, queue->slots,
			      queue->tail);
}

void raw_send(struct raw_set *set, const struct shm_sqe *sqe, const struct shm_sge *sge)
{
	struct shm_queue *queue = &((struct shm_qp *)set->qp.segment)->send;
	uint8_t *slot = next_slot(set, queue);

	memcpy(slot, sqe, sizeof(*sqe));
	if (sge)
		memcpy(slot + sizeof(*sqe), sge, sqe->nsge * sizeof(*sge));
	shm_store_release(&queue->tail, queue->tail + 1);
	raw_ring(set);
}

void raw_receive(struct raw_set *set, const struct shm_sge *sge, uint32_t count)
{
	struct shm_queue *queue = &((struct shm_qp *)set->qp.segment)->receive;
	struct shm_rqe rqe = { .nsge = (uint8_t)count };
	uint8_t *slot = next_slot(set, queue);

	memcpy(slot, &rqe, sizeof(rqe));
	memcpy(slot + sizeof(rqe), sge, count * sizeof(*sge));
	shm_store_release(&queue->tail, queue->tail + 1);
	raw_ring(set);
}

bool raw_complete(struct raw_set *set, struct shm_cqe *cqe)
{
	const uint64_t end = milliseconds() + RAW_PATIENCE;
	struct shm_cq *cq = set->cq.segment;

	while (milliseconds() < end && !raw_is_over(set->raw)) {
		for (uint32_t w = 0; w < set->raw->workers; w++) {
			struct shm_cq_ring *ring = &cq->ring[w];
			const uint32_t head = set->cq_head[w];

			if (!shm_ring_used(&ring->cursor, head))
				continue;
			*cqe = *(struct shm_cqe *)shm_queue_slot(cq, ring->offset, sizeof(*cqe),
								 cq->slots, head);
			shm_store_release(&ring->cursor.head, ++set->cq_head[w]);
			return true;
		}
		usleep(100);
	}
	return false;
}
