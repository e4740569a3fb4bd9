/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects, asks for windows and runs single operations, each with a deadline. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peer.h"

#define RESOLVE_MS    30000
#define CONNECT_MS    60000 /* rdma_cm repeats a REQ for longer than this */
#define DISCONNECT_MS 30000
#define COMPLETION_MS 60000
#define RECV_OP       (1ull << 63)

/* The export protocol on the wire, big-endian. */
struct wire_ask {
	uint32_t magic;
	uint8_t version;
	uint8_t access;
	uint16_t zero;
	uint64_t offset;
	uint64_t length;
	char name[24];
} __attribute__((packed));

struct wire_answer {
	uint32_t magic;
	uint8_t version;
	uint8_t access;
	uint16_t zero;
	uint64_t addr;
	uint64_t length;
	uint32_t token;
	uint32_t code;
} __attribute__((packed));

struct wire_refusal {
	uint32_t magic;
	uint32_t code;
} __attribute__((packed));

_Static_assert(sizeof(struct wire_ask) == 48, "ORQ1");
_Static_assert(sizeof(struct wire_answer) == 32, "ORX1");
_Static_assert(sizeof(struct wire_refusal) == 8, "ORR1");

static int resolve(struct peer *peer, const struct sockaddr *to);
static int create_objects(struct peer *peer);
static int establish(struct peer *peer, const struct ask *ask);
static int next_event(struct peer *peer, enum rdma_cm_event_type wanted, int ms);
static int take_event(struct peer *peer, struct rdma_cm_event *event,
		      enum rdma_cm_event_type wanted);
static int post_receive(struct peer *peer, unsigned int slot);
static int poll_once(struct peer *peer, struct ibv_wc *wc, int64_t deadline);
static int parse_answer(struct peer *peer, const void *bytes, size_t length, struct window *window);
static int failed(struct peer *peer, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

int peer_connect(struct peer *peer, const struct sockaddr *to, uint8_t timeout,
		 const struct ask *ask)
{
	int error;

	memset(peer, 0, sizeof(*peer));
	peer->events = rdma_create_event_channel();
	if (!peer->events)
		return failed(peer, -errno, "rdma_create_event_channel");
	if (rdma_create_id(peer->events, &peer->id, peer, RDMA_PS_TCP))
		return failed(peer, -errno, "rdma_create_id");
	if (timeout && rdma_set_option(peer->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
				       &timeout, sizeof(timeout)))
		return failed(peer, -errno, "rdma_set_option");
	error = resolve(peer, to);
	if (!error)
		error = create_objects(peer);
	if (!error)
		error = establish(peer, ask);
	return error;
}

static int resolve(struct peer *peer, const struct sockaddr *to)
{
	int error;

	if (rdma_resolve_addr(peer->id, NULL, (struct sockaddr *)to, RESOLVE_MS))
		return failed(peer, -errno, "rdma_resolve_addr");
	error = next_event(peer, RDMA_CM_EVENT_ADDR_RESOLVED, 2 * RESOLVE_MS);
	if (error)
		return error;
	if (rdma_resolve_route(peer->id, RESOLVE_MS))
		return failed(peer, -errno, "rdma_resolve_route");
	return next_event(peer, RDMA_CM_EVENT_ROUTE_RESOLVED, 2 * RESOLVE_MS);
}

static int create_objects(struct peer *peer)
{
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = PEER_SENDS,
			 .max_recv_wr = PEER_RECVS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	size_t messages = (PEER_RECVS + 2) * PEER_MESSAGE;

	peer->buffer = aligned_alloc(4096, PEER_BUFFER);
	peer->messages = aligned_alloc(64, messages);
	if (!peer->buffer || !peer->messages)
		return failed(peer, -ENOMEM, "no memory");
	memset(peer->messages, 0, messages);
	peer->pd = ibv_alloc_pd(peer->id->verbs);
	peer->completions = ibv_create_comp_channel(peer->id->verbs);
	if (!peer->pd || !peer->completions)
		return failed(peer, -errno, "ibv_alloc_pd or ibv_create_comp_channel");
	peer->cq =
		ibv_create_cq(peer->id->verbs, PEER_SENDS + PEER_RECVS, NULL, peer->completions, 0);
	peer->buffer_mr = ibv_reg_mr(peer->pd, peer->buffer, PEER_BUFFER, IBV_ACCESS_LOCAL_WRITE);
	peer->message_mr = ibv_reg_mr(peer->pd, peer->messages, messages, IBV_ACCESS_LOCAL_WRITE);
	if (!peer->cq || !peer->buffer_mr || !peer->message_mr)
		return failed(peer, -errno, "ibv_create_cq or ibv_reg_mr");
	qp.send_cq = peer->cq;
	qp.recv_cq = peer->cq;
	if (rdma_create_qp(peer->id, peer->pd, &qp))
		return failed(peer, -errno, "rdma_create_qp");
	for (unsigned int slot = 0; slot < PEER_RECVS; slot++)
		if (post_receive(peer, slot))
			return -EIO;
	return 0;
}

static void fill_ask(struct wire_ask *wire, const struct ask *ask)
{
	memset(wire, 0, sizeof(*wire));
	wire->magic = htobe32(ask->magic);
	wire->version = ask->version;
	wire->access = ask->access;
	wire->offset = htobe64(ask->offset);
	wire->length = htobe64(ask->length);
	if (ask->name)
		strncpy(wire->name, ask->name, sizeof(wire->name) - 1);
}

static int establish(struct peer *peer, const struct ask *ask)
{
	struct wire_ask wire;
	struct rdma_conn_param param = {
		.private_data = &wire,
		.private_data_len = sizeof(wire),
		.responder_resources = 16,
		.initiator_depth = 16,
		.retry_count = 6, /* 7 never ends in rdma_rxe */
		.rnr_retry_count = 7,
	};
	int error;

	fill_ask(&wire, ask);
	if (ask->absent) {
		param.private_data = NULL;
		param.private_data_len = 0;
	}
	if (rdma_connect(peer->id, &param))
		return failed(peer, -errno, "rdma_connect");
	error = next_event(peer, RDMA_CM_EVENT_ESTABLISHED, CONNECT_MS);
	peer->established = !error;
	return error;
}

/* Waits for the wanted event; anything else that ends the attempt lands in peer->refusal. */
static int next_event(struct peer *peer, enum rdma_cm_event_type wanted, int ms)
{
	struct pollfd fd = { .fd = peer->events->fd, .events = POLLIN };
	int64_t deadline = now_ms() + ms;
	struct rdma_cm_event *event;
	int error;

	for (;;) {
		int64_t left = deadline - now_ms();

		if (left <= 0 || poll(&fd, 1, (int)left) <= 0)
			return failed(peer, -ETIMEDOUT, "no %s within %d ms",
				      rdma_event_str(wanted), ms);
		if (rdma_get_cm_event(peer->events, &event))
			return failed(peer, -errno, "rdma_get_cm_event");
		error = take_event(peer, event, wanted);
		rdma_ack_cm_event(event);
		if (error != -EAGAIN)
			return error;
	}
}

static int take_event(struct peer *peer, struct rdma_cm_event *event,
		      enum rdma_cm_event_type wanted)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	struct wire_refusal refusal = { 0 };

	if (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT)
		return -EAGAIN;
	if (event->event != wanted) {
		if (event->event == RDMA_CM_EVENT_REJECTED && conn->private_data &&
		    conn->private_data_len >= sizeof(refusal))
			memcpy(&refusal, conn->private_data, sizeof(refusal));
		peer->refusal = (struct refusal){ .event = event->event,
						  .status = event->status,
						  .magic = be32toh(refusal.magic),
						  .code = be32toh(refusal.code) };
		return failed(peer, -ECONNREFUSED, "%s status %d private data %08x %08x, not %s",
			      rdma_event_str(event->event), event->status, peer->refusal.magic,
			      peer->refusal.code, rdma_event_str(wanted));
	}
	if (wanted == RDMA_CM_EVENT_ESTABLISHED)
		return parse_answer(peer, conn->private_data, conn->private_data_len,
				    &peer->window);
	return 0;
}

static int parse_answer(struct peer *peer, const void *bytes, size_t length, struct window *window)
{
	struct wire_answer wire;

	if (!bytes || length < sizeof(wire))
		return failed(peer, -EPROTO, "ORX1 of %zu bytes instead of 32", bytes ? length : 0);
	memcpy(&wire, bytes, sizeof(wire));
	if (be32toh(wire.magic) != ANSWER_MAGIC || wire.version != 1 || wire.zero)
		return failed(peer, -EPROTO,
			      "ORX1 with magic %08x version %u and %04x where 0 must be",
			      be32toh(wire.magic), wire.version, be16toh(wire.zero));
	window->access = wire.access;
	window->addr = be64toh(wire.addr);
	window->length = be64toh(wire.length);
	window->token = be32toh(wire.token);
	window->code = be32toh(wire.code);
	if (window->access && (!window->token || !window->length || window->code))
		return failed(peer, -EPROTO, "grant with token %#x, length %#lx, code %u",
			      window->token, window->length, window->code);
	return 0;
}

int peer_await_disconnect(struct peer *peer, unsigned int seconds)
{
	int error = next_event(peer, RDMA_CM_EVENT_DISCONNECTED, (int)seconds * 1000);

	if (!error)
		peer->established = false;
	return error;
}

int peer_close(struct peer *peer)
{
	int error = 0;

	if (peer->established) {
		rdma_disconnect(peer->id); /* fails when the target was first: the event tells */
		error = next_event(peer, RDMA_CM_EVENT_DISCONNECTED, DISCONNECT_MS);
	}
	if (peer->id && peer->id->qp)
		rdma_destroy_qp(peer->id);
	if (peer->message_mr)
		ibv_dereg_mr(peer->message_mr);
	if (peer->buffer_mr)
		ibv_dereg_mr(peer->buffer_mr);
	if (peer->cq)
		ibv_destroy_cq(peer->cq);
	if (peer->completions)
		ibv_destroy_comp_channel(peer->completions);
	if (peer->pd)
		ibv_dealloc_pd(peer->pd);
	if (peer->id)
		rdma_destroy_id(peer->id);
	if (peer->events)
		rdma_destroy_event_channel(peer->events);
	free(peer->buffer);
	free(peer->messages);
	peer->id = NULL;
	return error;
}

/* ---- operations ---- */

struct ibv_sge peer_sge(const struct peer *peer, uint32_t local, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)peer->buffer + local,
				 .length = length,
				 .lkey = peer->buffer_mr->lkey };
}

static struct ibv_sge message_sge(const struct peer *peer, unsigned int slot, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)peer->messages + slot * PEER_MESSAGE,
				 .length = length,
				 .lkey = peer->message_mr->lkey };
}

int peer_post(struct peer *peer, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int error;

	wr->wr_id = peer->next_op++;
	wr->send_flags |= IBV_SEND_SIGNALED;
	error = ibv_post_send(peer->id->qp, wr, &bad);
	return error ? failed(peer, -error, "ibv_post_send: %s", strerror(error)) : 0;
}

static int post_and_wait(struct peer *peer, struct ibv_send_wr *wr)
{
	int error = peer_post(peer, wr);

	return error ? error : peer_wait(peer, wr->wr_id);
}

static int rdma_op(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t addr, uint32_t token,
		   uint32_t local, uint32_t length)
{
	struct ibv_sge sge = peer_sge(peer, local, length);
	struct ibv_send_wr wr = {
		.opcode = opcode,
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.wr.rdma = { .remote_addr = addr, .rkey = token },
	};

	return post_and_wait(peer, &wr);
}

int peer_write(struct peer *peer, uint64_t addr, uint32_t token, uint32_t local, uint32_t length)
{
	return rdma_op(peer, IBV_WR_RDMA_WRITE, addr, token, local, length);
}

int peer_read(struct peer *peer, uint64_t addr, uint32_t token, uint32_t local, uint32_t length)
{
	return rdma_op(peer, IBV_WR_RDMA_READ, addr, token, local, length);
}

static int atomic_op(struct peer *peer, struct ibv_send_wr *wr, uint64_t *old)
{
	struct ibv_sge sge = message_sge(peer, PEER_RECVS + 1, sizeof(*old));
	int status;

	wr->sg_list = &sge;
	wr->num_sge = 1;
	status = post_and_wait(peer, wr);
	memcpy(old, (void *)(uintptr_t)sge.addr, sizeof(*old));
	return status;
}

int peer_fetch_add(struct peer *peer, uint64_t addr, uint32_t token, uint64_t add, uint64_t *old)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = { .remote_addr = addr, .rkey = token, .compare_add = add },
	};

	return atomic_op(peer, &wr, old);
}

int peer_cmp_swap(struct peer *peer, uint64_t addr, uint32_t token, uint64_t compare, uint64_t swap,
		  uint64_t *old)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = { .remote_addr = addr,
			       .rkey = token,
			       .compare_add = compare,
			       .swap = swap },
	};

	return atomic_op(peer, &wr, old);
}

int peer_send_invalidate(struct peer *peer, uint32_t token)
{
	struct ibv_sge sge = message_sge(peer, PEER_RECVS, 8);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND_WITH_INV,
		.sg_list = &sge,
		.num_sge = 1,
		.invalidate_rkey = token,
	};

	return post_and_wait(peer, &wr);
}

int peer_ask(struct peer *peer, const struct ask *ask, struct window *window)
{
	struct ibv_sge sge = message_sge(peer, PEER_RECVS, sizeof(struct wire_ask));
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	int64_t deadline = now_ms() + COMPLETION_MS;
	unsigned int slot, length;
	struct ibv_wc wc;
	int status;

	fill_ask((struct wire_ask *)(uintptr_t)sge.addr, ask);
	status = post_and_wait(peer, &wr);
	if (status)
		return status;
	while (peer->received_head == peer->received_tail) {
		int error = poll_once(peer, &wc, deadline);

		if (error)
			return error;
		if (wc.status)
			return wc.status;
	}
	slot = peer->received[peer->received_head % PEER_RECVS].slot;
	length = peer->received[peer->received_head % PEER_RECVS].length;
	peer->received_head++;
	status = parse_answer(peer, peer->messages + slot * PEER_MESSAGE, length, window);
	if (!status)
		status = post_receive(peer, slot);
	return status;
}

static int post_receive(struct peer *peer, unsigned int slot)
{
	struct ibv_sge sge = message_sge(peer, slot, PEER_MESSAGE);
	struct ibv_recv_wr wr = { .wr_id = RECV_OP | slot, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(peer->id->qp, &wr, &bad);

	return error ? failed(peer, -error, "ibv_post_recv: %s", strerror(error)) : 0;
}

int peer_wait(struct peer *peer, uint64_t op)
{
	int64_t deadline = now_ms() + COMPLETION_MS;
	struct ibv_wc wc;

	for (;;) {
		int error = poll_once(peer, &wc, deadline);

		if (error)
			return error;
		if (wc.wr_id & RECV_OP)
			continue;
		if (wc.wr_id != op)
			return failed(peer, -EPROTO, "operation %lu completed before %lu", wc.wr_id,
				      op);
		return wc.status;
	}
}

/* Returns one completion; a message received is queued besides. */
static int poll_once(struct peer *peer, struct ibv_wc *wc, int64_t deadline)
{
	struct pollfd fd = { .fd = peer->completions->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int n;

	while (!(n = ibv_poll_cq(peer->cq, 1, wc))) {
		int64_t left = deadline - now_ms();

		if (ibv_req_notify_cq(peer->cq, 0))
			return failed(peer, -errno, "ibv_req_notify_cq");
		n = ibv_poll_cq(peer->cq, 1, wc); /* what came before the arming */
		if (n)
			break;
		if (left <= 0 || poll(&fd, 1, (int)left) <= 0)
			return failed(peer, -ETIMEDOUT, "no completion within %d ms",
				      COMPLETION_MS);
		if (ibv_get_cq_event(peer->completions, &cq, &context))
			return failed(peer, -errno, "ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
	if (n < 0)
		return failed(peer, -EIO, "ibv_poll_cq");
	if (wc->wr_id & RECV_OP && wc->status == IBV_WC_SUCCESS) {
		unsigned int at = peer->received_tail++ % PEER_RECVS;

		peer->received[at].slot = wc->wr_id & 0xff;
		peer->received[at].length = wc->byte_len;
	}
	return 0;
}

static int failed(struct peer *peer, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(peer->why, sizeof(peer->why), format, args);
	va_end(args);
	return error ? error : -EIO;
}
