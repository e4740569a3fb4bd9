/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of the stock server: librdmacm and libibverbs only. */
#ifndef INTEROP_SERVER_H
#define INTEROP_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "exchange.h"

struct server {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	/* Of the connection that is up, else NULL. */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *memory_mr;
	struct ibv_mr *read_only_mr;
	struct ibv_mr *messages_mr;
	struct ibv_mw *window;
	unsigned int posted; /* receives */
	unsigned int next_slot;
	bool ended; /* by the client, or broken */

	uint8_t *memory;   /* EXCHANGE_MEMORY bytes, the client's */
	uint8_t *messages; /* EXCHANGE_SLOTS to receive into, one to send from */
	uint8_t *expected; /* EXCHANGE_MESSAGE + 2 * EXCHANGE_CHECKED, to compare with */
};

/* Takes the next connection. Returns 0 when one is up, or a negative errno. */
int server_accept(struct server *server);
void server_close(struct server *server);

/* Receives are completed in the order of their slots, which is the order of posting. */
int server_post_receive(struct server *server);
struct ibv_sge server_message(const struct server *server, unsigned int slot, uint32_t length);

/*
 * The next completion. Returns 0, -ECONNRESET when the client has gone, -ETIMEDOUT after `ms`, or
 * another negative errno.
 */
int server_next(struct server *server, struct ibv_wc *wc, int ms);

/* Carries out commands until the client goes. */
void server_serve(struct server *server);

#endif
