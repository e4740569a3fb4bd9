/* SPDX-License-Identifier: BSD-3-Clause */
/* A daemon inside the test. */
#include "fake.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm/segment.h"
#include "shm/socket.h"
#include "shm/spsc.h"

#define QP_SLOT 384u

/* --- the session ------------------------------------------------------------------------ */

static void *new_segment(uint64_t size, int *fd)
{
	void *address;

	*fd = shm_segment_create("test-ndk", size, false);
	cr_assert_geq(*fd, 0);
	cr_assert_eq(shm_segment_map(*fd, size, false, &address), 0);
	return address;
}

void fake_start(struct fake *fake)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memset(fake, 0, sizeof(*fake));
	fake->welcome_version = SHM_LAYOUT_VERSION;
	fake->socket = -1;
	strcpy(fake->directory, "/tmp/oriel-test-ndk-XXXXXX");
	cr_assert(mkdtemp(fake->directory));
	snprintf(fake->path, sizeof(fake->path), "%s/sock", fake->directory);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fake->path);
	fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof(address)), 0);
	cr_assert_eq(listen(fake->listener, 4), 0);
	cr_assert_eq(pipe2(fake->wake, O_CLOEXEC | O_NONBLOCK), 0);
	fake->control_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	for (unsigned int w = 0; w < FAKE_WORKERS; w++)
		fake->worker_fd[w] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

/* So that nothing is left behind even if an assertion ends the test. */
static void remove_directory(struct fake *fake)
{
	unlink(fake->path);
	rmdir(fake->directory);
}

void fake_stop(struct fake *fake)
{
	remove_directory(fake);
	close(fake->listener);
	if (fake->socket >= 0)
		close(fake->socket);
}

static void fill_session(struct fake *fake)
{
	struct shm_session *session = fake->session;

	session->magic = SHM_MAGIC_SESSION;
	session->layout_version = SHM_LAYOUT_VERSION;
	session->workers = FAKE_WORKERS;
	session->size = fake->session_size;
	session->addresses = 1;
	session->address[0] =
		(struct shm_address){ .gid = { [10] = 0xff, 0xff, 10, 0, 0, 1 }, .family = 4 };
	session->limits = (struct shm_limits){ .max_registration_size = 1ull << 30,
					       .max_window_size = 1ull << 30,
					       .frmr_page_count = 1024,
					       .max_initiator_sge = 16,
					       .max_receive_sge = 16,
					       .max_read_sge = 16,
					       .max_transfer_length = 1u << 31,
					       .max_inline = 256,
					       .max_inbound_read_limit = 16,
					       .max_outbound_read_limit = 8,
					       .max_receive_depth = 1024,
					       .max_initiator_depth = 1024,
					       .max_srq_depth = 256,
					       .max_cq_depth = 4096,
					       .max_caller_data = 56,
					       .max_callee_data = 148,
					       .adapter_flags = 0xb,
					       .privileged_token = 0x0badcafe };
}

static void *greet(void *argument)
{
	struct fake *fake = argument;
	int fds[3 + FAKE_WORKERS] = { 0, fake->wake[0], fake->control_fd };
	struct shm_welcome welcome = { .type = SHM_MSG_WELCOME,
				       .magic = SHM_MAGIC_HELLO,
				       .layout_version = fake->welcome_version,
				       .status = fake->welcome_status,
				       .ndk_major = 2,
				       .ndk_minor = 1,
				       .workers = FAKE_WORKERS,
				       .message = "the test says no" };
	ssize_t length;

	fake->socket = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC);
	length = recv(fake->socket, &fake->hello, sizeof(fake->hello), 0);
	if (length != sizeof(fake->hello) || fake->mute)
		return NULL;
	welcome.session_size =
		sizeof(struct shm_session) + FAKE_WORKERS * sizeof(struct shm_worker_area);
	fake->session_size = welcome.session_size;
	fake->session = new_segment(fake->session_size, &fds[0]);
	fill_session(fake);
	for (unsigned int w = 0; w < FAKE_WORKERS; w++)
		fds[3 + w] = fake->worker_fd[w];
	shm_socket_send(fake->socket, &welcome, sizeof(welcome), fds,
			welcome.status ? 0 : 3 + FAKE_WORKERS);
	close(fds[0]);
	return NULL;
}

NTSTATUS fake_open(struct fake *fake, const ORIEL_OPEN_PARAMETERS *parameters,
		   NDK_ADAPTER **adapter)
{
	ORIEL_OPEN_PARAMETERS own = { .Size = sizeof(own), .Version = { 1, 2 } };
	NTSTATUS status;

	if (!parameters)
		parameters = &own;
	own = *parameters;
	own.Socket = fake->path;
	pthread_create(&fake->greeter, NULL, greet, fake);
	if (fake->around)
		fake->around(true);
	status = OrielOpenAdapter(&own, adapter);
	if (fake->around)
		fake->around(false);
	/* It may have failed before it knocked. */
	if (status != STATUS_SUCCESS)
		shutdown(fake->listener, SHUT_RDWR);
	pthread_join(fake->greeter, NULL);
	remove_directory(fake);
	return status;
}

void fake_die(struct fake *fake)
{
	close(fake->wake[1]);
	fake->wake[1] = -1;
	close(fake->socket);
	fake->socket = -1;
}

/* --- replies --------------------------------------------------------------------------------- */

void fake_wake(struct fake *fake)
{
	uint64_t one = 1;

	if (fake->wake[1] < 0)
		return; /* dead */
	/* A full pipe is readable, which is all that is wanted. */
	if (write(fake->wake[1], &one, sizeof(one)) < 0)
		cr_assert_eq(errno, EAGAIN);
}

void fake_send(struct fake *fake, const struct shm_reply *reply)
{
	struct shm_session *session = fake->session;

	cr_assert_gt(shm_ring_free(&session->reply_cursor, fake->reply_tail, SHM_CONTROL_ENTRIES),
		     0);
	session->reply[fake->reply_tail % SHM_CONTROL_ENTRIES] = *reply;
	shm_store_release(&session->reply_cursor.tail, ++fake->reply_tail);
	fake_wake(fake);
}

static void send_segment(struct fake *fake, const struct shm_request *request, int fd,
			 uint64_t size)
{
	struct shm_segment_message message = { .type = SHM_MSG_OBJECT_SEGMENT,
					       .handle = fake->last_handle,
					       .cookie = request->id,
					       .size = size };

	cr_assert_eq(shm_socket_send(fake->socket, &message, sizeof(message), &fd, 1), 0);
	close(fd);
}

static uint32_t power_of_two(uint32_t value)
{
	uint32_t power = 1;

	while (power < value)
		power *= 2;
	return power;
}

static struct shm_cq *new_cq(struct fake *fake, const struct shm_request *request, uint32_t depth,
			     uint32_t notify)
{
	uint32_t slots = power_of_two(depth);
	uint64_t size =
		sizeof(struct shm_cq) + (uint64_t)FAKE_WORKERS * slots * sizeof(struct shm_cqe);
	struct shm_cq *cq;
	int fd;

	cq = new_segment(size, &fd);
	cq->magic = SHM_MAGIC_CQ;
	cq->layout_version = SHM_LAYOUT_VERSION;
	cq->size = size;
	cq->depth = depth;
	cq->slots = slots;
	cq->rings = FAKE_WORKERS;
	cq->notify = notify;
	for (uint32_t r = 0; r < FAKE_WORKERS; r++)
		cq->ring[r].offset = (uint32_t)(sizeof(*cq) + r * slots * sizeof(struct shm_cqe));
	send_segment(fake, request, fd, size);
	return cq;
}

static void create_cq(struct fake *fake, const struct shm_request *request,
		      struct shm_created *created)
{
	struct shm_cq *cq;

	cr_assert_lt(fake->cqs, FAKE_OBJECTS);
	/* So that more than the first word is in use. */
	cq = new_cq(fake, request, request->create_cq.depth, fake->cqs + 64);
	created->doorbell = cq->notify;
	created->segment_size = cq->size;
	fake->cq[fake->cqs++] = cq;
}

static void fill_queue(struct shm_queue *queue, uint32_t depth, uint32_t offset)
{
	queue->depth = depth;
	queue->slots = depth ? power_of_two(depth) : 0;
	queue->stride = QP_SLOT;
	queue->offset = offset;
}

#define SHARED_SIZE (1u << 20)

/* A queue pair's part of the shared segment, which goes over with the first of them. */
static struct shm_qp *shared_place(struct fake *fake, struct shm_created *created)
{
	struct shm_segment_message message = { .type = SHM_MSG_QUEUE_SEGMENT,
					       .cookie = 1,
					       .size = SHARED_SIZE };
	int fd;

	if (!fake->shared) {
		fake->shared = new_segment(SHARED_SIZE, &fd);
		cr_assert_eq(shm_socket_send(fake->socket, &message, sizeof(message), &fd, 1), 0);
		close(fd);
	}
	created->segment = 1;
	created->offset = fake->qps * fake->share;
	cr_assert_leq(created->offset + fake->share, SHARED_SIZE);
	return (struct shm_qp *)(fake->shared + created->offset);
}

static void create_qp(struct fake *fake, const struct shm_request *request,
		      struct shm_created *created)
{
	const struct shm_create_qp *want = &request->create_qp;
	uint32_t sends = power_of_two(want->initiator_depth);
	uint64_t size = sizeof(struct shm_qp) +
			(uint64_t)(sends + power_of_two(want->receive_depth)) * QP_SLOT;
	struct shm_qp *qp;
	int fd = -1;

	cr_assert_lt(fake->qps, FAKE_OBJECTS);
	qp = fake->share ? shared_place(fake, created) : new_segment(size, &fd);
	qp->magic = SHM_MAGIC_QP;
	qp->layout_version = SHM_LAYOUT_VERSION;
	fill_queue(&qp->send, want->initiator_depth, sizeof(*qp));
	fill_queue(&qp->receive, want->receive_depth, (uint32_t)sizeof(*qp) + sends * QP_SLOT);
	if (fd >= 0)
		send_segment(fake, request, fd, size);
	created->number = 0x100 + fake->qps;
	created->worker = qp->home = fake->qps % FAKE_WORKERS;
	created->doorbell = 70 + fake->qps;
	created->segment_size = size;
	fake->qp[fake->qps++] = qp;
}

static void create_srq(struct fake *fake, const struct shm_request *request,
		       struct shm_created *created)
{
	uint32_t slots = power_of_two(request->create_srq.depth);
	uint64_t size = sizeof(struct shm_srq) + (uint64_t)slots * QP_SLOT;
	struct shm_srq *srq;
	int fd;

	cr_assert_lt(fake->srqs, FAKE_OBJECTS);
	srq = new_segment(size, &fd);
	srq->magic = SHM_MAGIC_SRQ;
	srq->layout_version = SHM_LAYOUT_VERSION;
	fill_queue(&srq->receive, request->create_srq.depth, sizeof(*srq));
	if (fake->srq_slots)
		srq->receive.slots = fake->srq_slots;
	send_segment(fake, request, fd, size);
	created->segment_size = size;
	fake->srq[fake->srqs++] = srq;
}

static void fill_reply(struct fake *fake, const struct shm_request *request,
		       struct shm_reply *reply)
{
	switch (request->op) {
	case SHM_OP_CREATE_PD:
	case SHM_OP_CREATE_MR:
	case SHM_OP_CREATE_MW:
	case SHM_OP_CREATE_CONNECTOR:
	case SHM_OP_CREATE_LISTENER: reply->created.handle = ++fake->last_handle; break;
	case SHM_OP_CREATE_AH:
		reply->created.handle = ++fake->last_handle;
		reply->created.number = fake->address_mtu ? fake->address_mtu : 4096;
		break;
	case SHM_OP_CREATE_SHARED_ENDPOINT:
		reply->created.handle = ++fake->last_handle;
		reply->created.number =
			request->listen.address.port ? request->listen.address.port : 49200;
		break;
	case SHM_OP_CREATE_CQ:
		reply->created.handle = ++fake->last_handle;
		create_cq(fake, request, &reply->created);
		break;
	case SHM_OP_CREATE_QP:
		reply->created.handle = ++fake->last_handle;
		create_qp(fake, request, &reply->created);
		break;
	case SHM_OP_CREATE_SRQ:
		reply->created.handle = ++fake->last_handle;
		create_srq(fake, request, &reply->created);
		break;
	case SHM_OP_REGISTER_MR:
	case SHM_OP_INIT_FRMR:
		reply->registered.local_token = 0x51;
		reply->registered.remote_token = fake->no_remote_token ? 0 : 0x52;
		break;
	case SHM_OP_FIND_SEGMENT: reply->segment.segment = fake->last_segment; break;
	case SHM_OP_CONNECT_QP:
		reply->connected.path_mtu = request->connect_qp.path_mtu;
		if (reply->connected.path_mtu == 0)
			reply->connected.path_mtu = 1024;
		break;
	case SHM_OP_LISTEN:
		reply->connection.local = request->listen.address;
		if (reply->connection.local.port == 0)
			reply->connection.local.port = 49152;
		break;
	case SHM_OP_REFILL_TOKENS:
		reply->tokens.count = request->refill.count;
		for (uint32_t i = 0; i < request->refill.count; i++)
			reply->tokens.token[i] = 0xabc00000u + ++fake->last_token;
		break;
	default: break;
	}
}

static void answer(struct fake *fake, const struct shm_request *request)
{
	struct shm_reply reply = { .op = request->op, .id = request->id };

	reply.status = fake->status[request->op];
	if (reply.status == 0)
		fill_reply(fake, request, &reply);
	fake_send(fake, &reply);
}

/* --- requests ------------------------------------------------------------------------ */

static void take_segments(struct fake *fake)
{
	struct shm_segment_message message;
	unsigned int count = 1;
	int fd;

	while (shm_socket_receive(fake->socket, &message, sizeof(message), &fd, &count) ==
	       sizeof(message)) {
		cr_assert_eq(message.type, SHM_MSG_SEGMENT_ADD);
		cr_assert_eq(count, 1);
		fake->segments++;
		close(fd);
	}
}

bool fake_has_requests(const struct fake *fake)
{
	return shm_ring_used(&fake->session->request_cursor, fake->request_head) != 0;
}

void fake_step(struct fake *fake)
{
	struct shm_session *session = fake->session;

	while (fake_has_requests(fake) &&
	       shm_ring_free(&session->reply_cursor, fake->reply_tail, SHM_CONTROL_ENTRIES)) {
		struct shm_request request =
			session->request[fake->request_head % SHM_CONTROL_ENTRIES];

		shm_store_release(&session->request_cursor.head, ++fake->request_head);
		cr_assert_lt(request.op, SHM_OP_MAX);
		cr_assert_neq(request.id, 0);
		take_segments(fake);
		fake->requests[request.op]++;
		fake->last[request.op] = request;
		if (fake->hold[request.op]) {
			cr_assert_lt(fake->held_count, FAKE_HELD);
			fake->held[fake->held_count++] = request;
		} else {
			answer(fake, &request);
		}
	}
}

static unsigned int find_held(const struct fake *fake, uint32_t op)
{
	unsigned int i = 0;

	while (i < fake->held_count && fake->held[i].op != op)
		i++;
	return i;
}

bool fake_holds(const struct fake *fake, uint32_t op)
{
	return find_held(fake, op) < fake->held_count;
}

void fake_answer(struct fake *fake, uint32_t op, int32_t status, struct shm_reply *reply)
{
	unsigned int i = find_held(fake, op);
	struct shm_reply own = { 0 };
	struct shm_request request;

	cr_assert_lt(i, fake->held_count, "no request of kind %u is held", op);
	request = fake->held[i];
	memmove(&fake->held[i], &fake->held[i + 1],
		(--fake->held_count - i) * sizeof(fake->held[0]));
	if (!reply) {
		reply = &own;
		if (status == 0)
			fill_reply(fake, &request, reply);
	}
	reply->op = op;
	reply->id = request.id;
	reply->status = status;
	fake_send(fake, reply);
}

void fake_release(struct fake *fake)
{
	memset(fake->hold, 0, sizeof(fake->hold));
	for (unsigned int i = 0; i < fake->held_count; i++)
		answer(fake, &fake->held[i]);
	fake->held_count = 0;
}

/* --- a worker ------------------------------------------------------------------------ */

static bool satisfies(const struct shm_cqe *cqe, uint32_t arm)
{
	return arm == SHM_ARM_ANY || (arm == SHM_ARM_SOLICITED && (cqe->solicited || cqe->status));
}

struct shm_cq *fake_resize(struct fake *fake, unsigned int index)
{
	const struct shm_request *request;
	unsigned int i = find_held(fake, SHM_OP_RESIZE_CQ);

	cr_assert_lt(i, fake->held_count, "no resize is held");
	request = &fake->held[i];
	return new_cq(fake, request, request->resize.depth, fake->cq[index]->notify);
}

void fake_complete(struct fake *fake, unsigned int index, uint32_t ring, const struct shm_cqe *cqe)
{
	fake_complete_in(fake, fake->cq[index], ring, cqe);
}

void fake_complete_in(struct fake *fake, struct shm_cq *cq, uint32_t ring,
		      const struct shm_cqe *cqe)
{
	struct shm_ring_cursor *cursor = &cq->ring[ring].cursor;
	struct shm_cqe *entry = (struct shm_cqe *)((uint8_t *)cq + cq->ring[ring].offset);

	cr_assert_gt(shm_ring_free(cursor, cursor->tail, cq->slots), 0);
	entry[cursor->tail % cq->slots] = *cqe;
	shm_store_release(&cursor->tail, cursor->tail + 1);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (satisfies(cqe, __atomic_load_n(&cq->arm, __ATOMIC_RELAXED)) &&
	    __atomic_exchange_n(&cq->arm, SHM_ARM_NONE, __ATOMIC_SEQ_CST) != SHM_ARM_NONE) {
		__atomic_fetch_or(&fake->session->cq_notify[cq->notify / 64],
				  1ull << (cq->notify % 64), __ATOMIC_RELEASE);
		fake_wake(fake);
	}
}

bool fake_rung(struct fake *fake, uint32_t worker, uint32_t number)
{
	struct shm_worker_area *area = &fake->session->worker[worker];
	uint64_t bit = 1ull << (number % 64);
	uint64_t top = __atomic_exchange_n(&area->top, 0, __ATOMIC_SEQ_CST);
	uint64_t summary = __atomic_exchange_n(&area->summary[number / 4096], 0, __ATOMIC_SEQ_CST);
	uint64_t bits = __atomic_exchange_n(&area->bits[number / 64], 0, __ATOMIC_SEQ_CST);

	if (bits & bit) {
		cr_assert(summary & (1ull << (number / 64 % 64)), "bit without its summary");
		cr_assert(top & (1ull << (number / 4096)), "summary without its top");
	}
	return bits & bit;
}

void fake_take_sends(struct shm_qp *qp)
{
	shm_store_release(&qp->send.done, shm_load_acquire(&qp->send.tail));
}

uint64_t fake_take_receive(struct shm_srq *srq)
{
	const struct shm_queue *queue = &srq->receive;
	const struct shm_rqe *rqe =
		shm_queue_slot(srq, queue->offset, queue->stride, queue->slots, queue->done);

	cr_assert_neq(shm_load_acquire(&queue->tail), queue->done, "nothing is posted");
	shm_store_release(&srq->receive.done, queue->done + 1);
	return rqe->request_context;
}

const struct shm_sqe *fake_sqe(struct shm_qp *qp, uint32_t index)
{
	return shm_queue_slot(qp, qp->send.offset, qp->send.stride, qp->send.slots, index);
}
