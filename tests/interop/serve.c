/* SPDX-License-Identifier: BSD-3-Clause */
/* A stock RDMA server that does what connect-out asks for: the commands. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"
#include "server.h"

#define PATIENCE_MS 60000
#define LOST_MS     10000

/* What completions of sends are known by; receives have the number of their slot. */
enum { ID_ANSWER = 1000, ID_BIND, ID_REQUEST };

static int run_command(struct server *server, const struct exchange_command *c,
		       struct exchange_answer *answer);
static int send_answer(struct server *server, const struct exchange_answer *answer);

/* Next completion; what we have sent before completes in between. */
static int next_receive(struct server *server, struct endpoint *at, struct ibv_wc *wc, int ms)
{
	for (;;) {
		int error = server_next(server, at, wc, ms);

		if (error)
			return error;
		if (wc->status)
			return -ECONNRESET;
		if (wc->opcode & IBV_WC_RECV)
			return 0;
	}
}

void server_serve(struct server *server)
{
	struct exchange_command command;
	struct exchange_answer answer;
	struct ibv_wc wc;

	while (!next_receive(server, &server->main, &wc, 10 * PATIENCE_MS)) {
		memcpy(&command, server->messages + wc.wr_id * EXCHANGE_MESSAGE, sizeof(command));
		exchange_command_swap(&command);
		if (wc.byte_len != sizeof(command) || command.magic != EXCHANGE_MAGIC) {
			printf("# %u bytes that are no command\n", wc.byte_len);
			break;
		}
		memset(&answer, 0, sizeof(answer));
		if ((command.op != EXCHANGE_EXPECT || !command.delay) &&
		    server_post_receive(server, &server->main))
			break;
		if (run_command(server, &command, &answer) || send_answer(server, &answer))
			break;
	}
}

static int send_answer(struct server *server, const struct exchange_answer *answer)
{
	struct ibv_sge sge = server_message(server, SERVER_ANSWER, sizeof(*answer));
	struct ibv_send_wr wr = { .wr_id = ID_ANSWER,
				  .opcode = IBV_WR_SEND,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED };
	struct exchange_answer *wire = (void *)(uintptr_t)sge.addr;
	struct ibv_send_wr *bad;

	*wire = *answer;
	wire->magic = htobe32(EXCHANGE_MAGIC);
	wire->failed = htobe32(answer->failed);
	wire->value = htobe64(answer->value);
	if (wire->failed)
		printf("# %s\n", wire->text);
	return -ibv_post_send(server->main.qp, &wr, &bad);
}

/* The first complaint stands. */
static void __attribute__((format(printf, 2, 3)))
complain(struct exchange_answer *answer, const char *format, ...)
{
	va_list args;

	if (answer->failed)
		return;
	answer->failed = 1;
	va_start(args, format);
	vsnprintf(answer->text, sizeof(answer->text), format, args);
	va_end(args);
}

/* ---- messages from the client ---- */

static enum ibv_wc_opcode receive_opcode(uint32_t kind)
{
	return kind == KIND_WRITE_IMMEDIATE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
}

/* The kernel's IB_WC_WITH_INVALIDATE, which rdma_rxe hands to programs as it is: theirs is 8. */
#define RXE_WITH_INVALIDATE 4u

static bool flags_match(uint32_t kind, unsigned int flags)
{
	bool immediate = kind == KIND_SEND_IMMEDIATE || kind == KIND_WRITE_IMMEDIATE;
	bool invalidate = kind == KIND_SEND_INVALIDATE;

	return !(flags & IBV_WC_WITH_IMM) == !immediate &&
	       !(flags & (IBV_WC_WITH_INV | RXE_WITH_INVALIDATE)) == !invalidate;
}

static void check_message(struct server *server, const struct exchange_command *c, uint32_t index,
			  const struct ibv_wc *wc, struct exchange_answer *answer)
{
	const uint32_t header = c->queue ? server->side.header : 0;
	const uint8_t *at = server->messages + wc->wr_id * EXCHANGE_MESSAGE + header;
	ssize_t wrong;

	if (wc->opcode != receive_opcode(c->kind) || !flags_match(c->kind, wc->wc_flags))
		complain(answer, "message %u of kind %u: opcode %d flags %#x", index, c->kind,
			 wc->opcode, wc->wc_flags);
	else if (wc->wc_flags & IBV_WC_WITH_IMM && be32toh(wc->imm_data) != c->immediate)
		complain(answer, "message %u: immediate %#x, expected %#x", index,
			 be32toh(wc->imm_data), c->immediate);
	else if (c->kind == KIND_SEND_INVALIDATE && wc->invalidated_rkey != c->token)
		complain(answer, "message %u: invalidated %#x, expected %#x", index,
			 wc->invalidated_rkey, c->token);
	if (wc->byte_len != c->length + header)
		complain(answer, "message %u: %u bytes, expected %lu", index, wc->byte_len,
			 c->length + header);
	if (header && !(wc->wc_flags & IBV_WC_GRH && side_header_right(server, at - header)))
		complain(answer, "message %u: wrong header before it", index);
	if (header && wc->src_qp != server->side.remote_qpn)
		complain(answer, "message %u: from queue pair %#x, expected %#x", index, wc->src_qp,
			 server->side.remote_qpn);
	if (c->kind == KIND_WRITE_IMMEDIATE)
		return; /* its bytes are elsewhere */
	wrong = pattern_mismatch(at, c->length, c->seed + index);
	if (wrong >= 0)
		complain(answer, "message %u: byte %zd of %lu differs", index, wrong, c->length);
}

/* What is lost on the second queue pair is lost: that is for the client to hear. */
static int expect(struct server *server, const struct exchange_command *c,
		  struct exchange_answer *answer)
{
	struct endpoint *at = c->queue ? &server->side : &server->main;
	struct ibv_wc wc;

	if (c->delay) {
		usleep(c->delay * 1000);
		while (at->posted < EXCHANGE_SLOTS)
			if (server_post_receive(server, at))
				return -EIO;
	}
	for (uint32_t i = 0; i < c->count; i++) {
		int error = next_receive(server, at, &wc, c->queue ? LOST_MS : 10 * PATIENCE_MS);

		if (error == -ETIMEDOUT && c->queue) {
			complain(answer, "message %u has not come", i);
			return 0;
		}
		if (error)
			return error;
		check_message(server, c, i, &wc, answer);
		if (server_post_receive(server, at))
			return -EIO;
	}
	return 0;
}

/* ---- memory ---- */

static bool in_memory(const struct exchange_command *c, uint64_t around,
		      struct exchange_answer *answer)
{
	if (c->offset >= around && c->offset <= EXCHANGE_MEMORY &&
	    c->length + around <= EXCHANGE_MEMORY - c->offset)
		return true;
	complain(answer, "%lu bytes at %lu are not in the memory", c->length, c->offset);
	return false;
}

static void check_memory(struct server *server, const struct exchange_command *c,
			 struct exchange_answer *answer)
{
	uint64_t around = c->address ? EXCHANGE_CHECKED : 0;
	uint64_t total = c->length + 2 * around;
	const uint8_t *at;

	if (!in_memory(c, around, answer))
		return;
	at = server->memory + c->offset - around;
	if (total > EXCHANGE_MESSAGE + 2 * EXCHANGE_CHECKED) {
		complain(answer, "%lu bytes are too many to compare", c->length);
		return;
	}
	pattern_fill(server->expected, total, c->address);
	pattern_fill(server->expected + around, c->length, c->seed);
	if (!memcmp(server->expected, at, total))
		return;
	for (uint64_t i = 0; i < total; i++)
		if (server->expected[i] != at[i])
			complain(answer, "byte %ld of %lu is %02x, expected %02x",
				 (long)(i - around), c->length, at[i], server->expected[i]);
}

static int bind_window(struct server *server, const struct exchange_command *c,
		       struct exchange_answer *answer)
{
	struct ibv_send_wr wr = { .wr_id = ID_BIND,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int error;

	if (!server->window)
		server->window = ibv_alloc_mw(server->pd, IBV_MW_TYPE_2);
	if (!server->window) {
		complain(answer, "ibv_alloc_mw: %s", strerror(errno));
		return 0;
	}
	wr.bind_mw.mw = server->window;
	wr.bind_mw.rkey = ibv_inc_rkey(server->window->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = server->memory_mr,
		.addr = (uintptr_t)server->memory + c->offset,
		.length = c->length,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	error = ibv_post_send(server->main.qp, &wr, &bad);
	if (error) {
		complain(answer, "posting a bind: %s", strerror(error));
		return 0;
	}
	do
		error = server_next(server, &server->main, &wc, PATIENCE_MS);
	while (!error && wc.wr_id != ID_BIND && !wc.status);
	if (error || wc.status)
		return error ? error : -EIO;
	server->window->rkey = wr.bind_mw.rkey;
	answer->value = server->window->rkey;
	return 0;
}

/* ---- requests to the client ---- */

static enum ibv_wr_opcode request_opcode(uint32_t kind)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[KIND_SEND] = IBV_WR_SEND,
		[KIND_SEND_IMMEDIATE] = IBV_WR_SEND_WITH_IMM,
		[KIND_SEND_INVALIDATE] = IBV_WR_SEND_WITH_INV,
		[KIND_WRITE] = IBV_WR_RDMA_WRITE,
		[KIND_WRITE_IMMEDIATE] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[KIND_READ] = IBV_WR_RDMA_READ,
		[KIND_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[KIND_COMPARE_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
	};

	return kind <= KIND_COMPARE_SWAP ? opcodes[kind] : IBV_WR_SEND;
}

static void aim(const struct endpoint *at, const struct exchange_command *c, uint32_t index,
		struct ibv_send_wr *wr)
{
	uint64_t remote = c->address + index * c->length;

	if (c->kind == KIND_SEND_INVALIDATE)
		wr->invalidate_rkey = c->token;
	else
		wr->imm_data = htobe32(c->immediate);
	if (at->ah) {
		wr->wr.ud.ah = at->ah;
		wr->wr.ud.remote_qpn = at->remote_qpn;
		wr->wr.ud.remote_qkey = c->token;
	} else if (c->kind == KIND_FETCH_ADD || c->kind == KIND_COMPARE_SWAP) {
		wr->wr.atomic.remote_addr = remote;
		wr->wr.atomic.rkey = c->token;
		wr->wr.atomic.compare_add = c->kind == KIND_FETCH_ADD ? c->seed : c->offset;
		wr->wr.atomic.swap = c->seed;
	} else {
		wr->wr.rdma.remote_addr = remote;
		wr->wr.rdma.rkey = c->token;
	}
}

/* One at a time, from and to the beginning of the server's memory. */
static int request_once(struct server *server, const struct exchange_command *c, uint32_t index,
			struct exchange_answer *answer)
{
	struct endpoint *at = c->queue ? &server->side : &server->main;
	struct ibv_sge sge = { .addr = (uintptr_t)server->memory,
			       .length = (uint32_t)c->length,
			       .lkey = server->memory_mr->lkey };
	struct ibv_send_wr wr = { .wr_id = ID_REQUEST,
				  .opcode = request_opcode(c->kind),
				  .sg_list = &sge,
				  .num_sge = c->length ? 1 : 0,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int error;

	aim(at, c, index, &wr);
	if (c->kind == KIND_READ)
		memset(server->memory, 0, c->length);
	else if (c->kind < KIND_READ)
		pattern_fill(server->memory, c->length, c->seed + index);
	error = ibv_post_send(at->qp, &wr, &bad);
	if (error) {
		complain(answer, "request %u: posting: %s", index, strerror(error));
		return 0;
	}
	do
		error = server_next(server, at, &wc, PATIENCE_MS);
	while (!error && !wc.status && wc.wr_id != ID_REQUEST);
	if (error)
		return error;
	if (wc.status)
		complain(answer, "request %u: %s", index, ibv_wc_status_str(wc.status));
	else if (c->kind == KIND_READ &&
		 pattern_mismatch(server->memory, c->length, c->seed + index) >= 0)
		complain(answer, "READ %u: byte %zd of %lu differs", index,
			 pattern_mismatch(server->memory, c->length, c->seed + index), c->length);
	memcpy(&answer->value, server->memory, sizeof(answer->value));
	return 0;
}

static int request(struct server *server, const struct exchange_command *c,
		   struct exchange_answer *answer)
{
	int error = 0;

	for (uint32_t i = 0; !error && !answer->failed && i < c->count; i++)
		error = request_once(server, c, i, answer);
	return error;
}

static void open_side(struct server *server, const struct exchange_command *c,
		      struct exchange_answer *answer)
{
	const char *what;
	int error = side_open(server, c, &what);

	if (error)
		complain(answer, "second queue pair: %s: %s", what, strerror(-error));
	else
		answer->value = server->side.qp->qp_num;
}

/* Returns 0 when there is an answer to send. */
static int run_command(struct server *server, const struct exchange_command *c,
		       struct exchange_answer *answer)
{
	switch ((enum exchange_op)c->op) {
	case EXCHANGE_EXPECT: return expect(server, c, answer);
	case EXCHANGE_FILL:
		if (in_memory(c, 0, answer))
			pattern_fill(server->memory + c->offset, c->length, c->seed);
		return 0;
	case EXCHANGE_CHECK: check_memory(server, c, answer); return 0;
	case EXCHANGE_WINDOW: return bind_window(server, c, answer);
	case EXCHANGE_REQUEST: return request(server, c, answer);
	case EXCHANGE_QUEUE: open_side(server, c, answer); return 0;
	case EXCHANGE_DISCONNECT: rdma_disconnect(server->id); return -ECONNRESET;
	case EXCHANGE_DIE: fflush(stdout); _exit(0);
	}
	complain(answer, "no such command: %u", c->op);
	return 0;
}
