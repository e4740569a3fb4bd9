/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of the stock server: librdmacm and libibverbs only. */
#ifndef INTEROP_SERVER_H
#define INTEROP_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "exchange.h"

#define SERVER_ANSWER EXCHANGE_SLOTS       /* slot to send from */
#define SERVER_SIDE   (EXCHANGE_SLOTS + 1) /* first slot of the second queue pair */
#define SERVER_SLOTS  (2 * EXCHANGE_SLOTS + 1)

/* One queue pair and the receives posted to it, completed in the order of their slots. */
struct endpoint {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	unsigned int first_slot;
	unsigned int posted, next_slot;
	uint32_t header; /* bytes before each message in its slot */
	/* Of datagrams. */
	struct ibv_ah *ah;
	uint32_t remote_qpn;
};

struct server {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	/* Of the connection that is up, else NULL. */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_mr *memory_mr;
	struct ibv_mr *read_only_mr;
	struct ibv_mr *messages_mr;
	struct ibv_mw *window;
	struct endpoint main, side;
	bool ended;                 /* by the client, or broken, or another client has come */
	struct rdma_cm_event *next; /* that one's request */

	uint8_t *memory;   /* EXCHANGE_MEMORY bytes, the client's */
	uint8_t *messages; /* SERVER_SLOTS of EXCHANGE_MESSAGE bytes */
	uint8_t *expected; /* EXCHANGE_MESSAGE + 2 * EXCHANGE_CHECKED, to compare with */
};

/* Takes the next connection. Returns 0 when one is up, or a negative errno. */
int server_accept(struct server *server);
void server_close(struct server *server);

int server_post_receive(struct server *server, struct endpoint *at);
struct ibv_sge server_message(const struct server *server, unsigned int slot, uint32_t length);

/*
 * The next completion. Returns 0, -ECONNRESET when the client has gone, -ETIMEDOUT after `ms`, or
 * another negative errno.
 */
int server_next(struct server *server, struct endpoint *at, struct ibv_wc *wc, int ms);

/* The second queue pair, its receives posted. Returns 0, or a negative errno with *what failed. */
int side_open(struct server *server, const struct exchange_command *command, const char **what);
void side_close(struct server *server);
/* Whether the bytes before a datagram are the IP header of one from the client to us. */
bool side_header_right(const struct server *server, const uint8_t *header);

/* Carries out commands until the client goes. */
void server_serve(struct server *server);

#endif
