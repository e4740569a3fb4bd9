/* SPDX-License-Identifier: BSD-3-Clause */
/* stock-export: what oriel-target does, on stock verbs: memory for oriel-flood, behind rdma_rxe. */
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/export_protocol.h"

static const char usage[] = "Usage: stock-export PORT\n"
			    "  PORT  at which connections are accepted, on every address\n";

#define MEMORY    (64u << 20)
#define RECEIVES  16u
#define RESOURCES 16u

struct server {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_pd *pd; /* of the first connection's device; there is one only */
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	void *memory;
};

/* Of the device that the first connection came by. */
static int open_device(struct server *server, struct ibv_context *verbs)
{
	if (server->mr)
		return 0;
	server->pd = ibv_alloc_pd(verbs);
	server->cq = ibv_create_cq(verbs, 1024, NULL, NULL, 0);
	if (!server->pd || !server->cq)
		return -errno;
	server->mr = ibv_reg_mr(server->pd, server->memory, MEMORY,
				IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	return server->mr ? 0 : -errno;
}

static int accept_one(struct server *server, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr qp = { .qp_type = IBV_QPT_RC,
				       .cap = { .max_send_wr = 1,
						.max_recv_wr = RECEIVES,
						.max_send_sge = 1,
						.max_recv_sge = 1 } };
	struct export_reply reply = { .access = EXPORT_READ | EXPORT_WRITE | EXPORT_ATOMIC,
				      .address = (uintptr_t)server->memory,
				      .length = MEMORY };
	uint8_t data[EXPORT_REPLY_SIZE];
	struct rdma_conn_param param = { .private_data = data,
					 .private_data_len = sizeof(data),
					 .responder_resources = RESOURCES,
					 .rnr_retry_count = 7 };
	int error = open_device(server, id->verbs);

	if (error)
		return error;
	qp.send_cq = qp.recv_cq = server->cq;
	if (rdma_create_qp(id, server->pd, &qp))
		return -errno;
	reply.token = server->mr->rkey;
	export_reply_encode(&reply, data);
	return rdma_accept(id, &param) ? -errno : 0;
}

static void serve_event(struct server *server, const struct rdma_cm_event *event)
{
	int error;

	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return;
	error = accept_one(server, event->id);
	if (!error)
		return;
	fprintf(stderr, "stock-export: accepting: error %d\n", -error);
	rdma_reject(event->id, NULL, 0);
}

static bool listen_on(struct server *server, uint16_t port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	server->events = rdma_create_event_channel();
	return server->events &&
	       !rdma_create_id(server->events, &server->listener, NULL, RDMA_PS_TCP) &&
	       !rdma_bind_addr(server->listener, (struct sockaddr *)&any) &&
	       !rdma_listen(server->listener, 64);
}

int main(int argc, char *argv[])
{
	const unsigned long port = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
	struct rdma_cm_event *event;
	struct server server = { 0 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(usage, stdout);
		return EXIT_SUCCESS;
	}
	if (port < 1 || port > 65535) {
		fprintf(stderr, "stock-export: no port: %s\n%s", argc == 2 ? argv[1] : "", usage);
		return 2;
	}
	server.memory = aligned_alloc(4096, MEMORY);
	if (!server.memory || !listen_on(&server, (uint16_t)port)) {
		perror("stock-export");
		return EXIT_FAILURE;
	}
	puts("stock-export: serving");
	while (!rdma_get_cm_event(server.events, &event)) {
		const bool gone = event->event == RDMA_CM_EVENT_DISCONNECTED;
		struct rdma_cm_id *id = event->id;

		serve_event(&server, event);
		rdma_ack_cm_event(event);
		if (gone) {
			rdma_disconnect(id);
			rdma_destroy_qp(id);
			rdma_destroy_id(id);
		}
	}
	perror("stock-export");
	return EXIT_FAILURE;
}
