/* SPDX-License-Identifier: BSD-3-Clause */
/* A stock RDMA server that does what connect-out asks for: listening, connections, completions. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server.h"

#define REMOTE_ALL                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static int listen_on(struct server *server, unsigned short port);

int main(int argc, char **argv)
{
	static struct server server;
	unsigned long port = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (port < 1 || port > 65535) {
		fprintf(stderr, "usage: stock-server PORT\n");
		return 2;
	}
	server.memory = aligned_alloc(4096, EXCHANGE_MEMORY);
	server.messages = malloc(SERVER_SLOTS * EXCHANGE_MESSAGE);
	server.expected = malloc(EXCHANGE_MESSAGE + 2 * EXCHANGE_CHECKED);
	if (!server.memory || !server.messages || !server.expected)
		return 1;
	if (listen_on(&server, port)) {
		perror("stock-server: listening");
		return 1;
	}
	printf("# listening\n");
	for (;;) {
		int error = server_accept(&server);

		if (!error)
			server_serve(&server);
		else if (error != -ECONNREFUSED)
			printf("# accepting: %s\n", strerror(-error));
		server_close(&server);
	}
}

static int listen_on(struct server *server, unsigned short port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	server->events = rdma_create_event_channel();
	if (!server->events)
		return -errno;
	if (rdma_create_id(server->events, &server->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(server->listener, (struct sockaddr *)&any) ||
	    rdma_listen(server->listener, 8))
		return -errno;
	return 0;
}

/* ---- one connection ---- */

static int create_objects(struct server *server)
{
	struct ibv_context *verbs = server->id->verbs;
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = EXCHANGE_SLOTS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	server->pd = ibv_alloc_pd(verbs);
	server->completions = ibv_create_comp_channel(verbs);
	if (!server->pd || !server->completions)
		return -errno;
	server->main.cq = ibv_create_cq(verbs, 128, NULL, server->completions, 0);
	server->memory_mr = ibv_reg_mr(server->pd, server->memory, EXCHANGE_MEMORY, REMOTE_ALL);
	server->read_only_mr = ibv_reg_mr(server->pd, server->memory, EXCHANGE_MEMORY,
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	server->messages_mr = ibv_reg_mr(server->pd, server->messages,
					 SERVER_SLOTS * EXCHANGE_MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	if (!server->main.cq || !server->memory_mr || !server->read_only_mr || !server->messages_mr)
		return -errno;
	qp.send_cq = server->main.cq;
	qp.recv_cq = server->main.cq;
	if (rdma_create_qp(server->id, server->pd, &qp))
		return -errno;
	server->main.qp = server->id->qp;
	for (unsigned int i = 0; i < EXCHANGE_SLOTS; i++)
		if (server_post_receive(server, &server->main))
			return -EIO;
	return 0;
}

static int answer_request(struct server *server, const struct rdma_conn_param *asked)
{
	struct exchange_welcome welcome = {
		.magic = htobe32(EXCHANGE_MAGIC),
		.token = htobe32(server->memory_mr->rkey),
		.read_only_token = htobe32(server->read_only_mr->rkey),
		.address = htobe64((uintptr_t)server->memory),
		.length = htobe64(EXCHANGE_MEMORY),
	};
	struct rdma_conn_param param = {
		.private_data = &welcome,
		.private_data_len = sizeof(welcome),
		.responder_resources = asked->responder_resources,
		.initiator_depth = asked->initiator_depth,
		.rnr_retry_count = 7,
	};

	return rdma_accept(server->id, &param) ? -errno : 0;
}

static int take_request(struct server *server, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *conn = &event->param.conn;
	struct exchange_request request = { 0 };
	struct exchange_refusal refusal = { .magic = htobe32(EXCHANGE_MAGIC) };
	int error;

	if (conn->private_data && conn->private_data_len >= sizeof(request))
		memcpy(&request, conn->private_data, sizeof(request));
	server->id = event->id;
	if (be32toh(request.magic) != EXCHANGE_MAGIC || request.refuse) {
		refusal.value = request.refuse;
		rdma_reject(server->id, &refusal, sizeof(refusal));
		return -ECONNREFUSED;
	}
	error = create_objects(server);
	return error ? error : answer_request(server, conn);
}

/* Until the connection is up. Another request meanwhile is refused: one at a time. */
int server_accept(struct server *server)
{
	struct rdma_cm_event *event = server->next;
	int error = -EAGAIN;

	for (; error == -EAGAIN; event = NULL) {
		if (!event && rdma_get_cm_event(server->events, &event))
			return -errno;
		server->next = NULL;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && !server->id) {
			error = take_request(server, event);
			if (!error)
				error = -EAGAIN;
		} else if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			rdma_reject(event->id, NULL, 0);
		} else if (event->id == server->id) {
			error = event->event == RDMA_CM_EVENT_ESTABLISHED ? 0 : -ECONNRESET;
		}
		rdma_ack_cm_event(event);
	}
	return error;
}

void server_close(struct server *server)
{
	side_close(server);
	if (server->id && server->id->qp)
		rdma_destroy_qp(server->id);
	if (server->window)
		ibv_dealloc_mw(server->window);
	if (server->messages_mr)
		ibv_dereg_mr(server->messages_mr);
	if (server->read_only_mr)
		ibv_dereg_mr(server->read_only_mr);
	if (server->memory_mr)
		ibv_dereg_mr(server->memory_mr);
	if (server->main.cq)
		ibv_destroy_cq(server->main.cq);
	if (server->completions)
		ibv_destroy_comp_channel(server->completions);
	if (server->pd)
		ibv_dealloc_pd(server->pd);
	if (server->id)
		rdma_destroy_id(server->id);
	*server = (struct server){ .events = server->events,
				   .next = server->next,
				   .listener = server->listener,
				   .memory = server->memory,
				   .messages = server->messages,
				   .expected = server->expected };
}

/* ---- completions ---- */

struct ibv_sge server_message(const struct server *server, unsigned int slot, uint32_t length)
{
	return (struct ibv_sge){ .addr = (uintptr_t)server->messages + slot * EXCHANGE_MESSAGE,
				 .length = length,
				 .lkey = server->messages_mr->lkey };
}

int server_post_receive(struct server *server, struct endpoint *at)
{
	unsigned int slot = at->first_slot + at->next_slot;
	struct ibv_sge sge = server_message(server, slot, EXCHANGE_MESSAGE);
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(at->qp, &wr, &bad);

	if (error)
		return -error;
	at->next_slot = (at->next_slot + 1) % EXCHANGE_SLOTS;
	at->posted++;
	return 0;
}

/* Events of this connection end it; so does another client: this one is silent and long dead. */
static void take_event(struct server *server)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(server->events, &event))
		return;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		server->next = event;
		server->ended = true;
		return;
	}
	if (event->id == server->id)
		server->ended = true;
	rdma_ack_cm_event(event);
}

static int wait_for_something(struct server *server, int ms)
{
	struct pollfd fds[] = { { .fd = server->completions->fd, .events = POLLIN },
				{ .fd = server->events->fd, .events = POLLIN } };
	struct ibv_cq *cq;
	void *context;
	int n = poll(fds, 2, ms);

	if (n <= 0)
		return n ? -errno : -ETIMEDOUT;
	if (fds[1].revents)
		take_event(server);
	if (fds[0].revents) {
		if (ibv_get_cq_event(server->completions, &cq, &context))
			return -errno;
		ibv_ack_cq_events(cq, 1);
	}
	return 0;
}

int server_next(struct server *server, struct endpoint *at, struct ibv_wc *wc, int ms)
{
	int n, error;

	while (!(n = ibv_poll_cq(at->cq, 1, wc))) {
		if (server->ended)
			return -ECONNRESET;
		if (ibv_req_notify_cq(at->cq, 0))
			return -EIO;
		n = ibv_poll_cq(at->cq, 1, wc); /* what came before the arming */
		if (n)
			break;
		error = wait_for_something(server, ms);
		if (error)
			return error;
	}
	if (n < 0)
		return -EIO;
	if (wc->opcode & IBV_WC_RECV && wc->status == IBV_WC_SUCCESS)
		at->posted--;
	return 0;
}
