/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection of a stock RDMA client to an export: librdmacm and libibverbs only. */
#ifndef INTEROP_PEER_H
#define INTEROP_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define ASK_MAGIC    0x4f525131u /* "ORQ1" */
#define ANSWER_MAGIC 0x4f525831u /* "ORX1" */
#define REFUSE_MAGIC 0x4f525231u /* "ORR1" */

enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_ATOMIC = 4, ACCESS_ALL = 7 };

enum refusal_code {
	REFUSED_BAD_REQUEST = 1,
	REFUSED_NO_EXPORT = 2,
	REFUSED_ACCESS = 3,
	REFUSED_RANGE = 4,
};

#define PEER_BUFFER  (4u << 20) /* bytes of local memory that operations may name */
#define PEER_RECVS   8u
#define PEER_SENDS   128u
#define PEER_MESSAGE 64u

/* What the client asks the target for. Only tests of bad requests touch magic and version. */
struct ask {
	uint32_t magic;
	uint8_t version;
	uint8_t access;   /* ACCESS_*, 0: all granted */
	uint64_t offset;  /* bytes into the export */
	uint64_t length;  /* bytes, 0: to the end */
	const char *name; /* NULL: the empty name */
	bool absent;      /* connect without any private data */
};

#define ASK(...) ((struct ask){ .magic = ASK_MAGIC, .version = 1, __VA_ARGS__ })

struct window {
	uint64_t addr;
	uint64_t length;
	uint32_t token;
	uint32_t code; /* REFUSED_* in an answer by SEND that grants nothing */
	uint8_t access;
};

/* How an attempt to connect ended when it was not established. */
struct refusal {
	enum rdma_cm_event_type event;
	int status;
	uint32_t magic;
	uint32_t code;
};

struct peer {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *buffer_mr;
	struct ibv_mr *message_mr;
	uint8_t *buffer;   /* PEER_BUFFER bytes, page-aligned */
	uint8_t *messages; /* PEER_RECVS receives, one to send from, one for atomic results */
	uint64_t next_op;
	struct {
		uint8_t slot;
		uint32_t length;
	} received[PEER_RECVS];
	unsigned int received_head, received_tail;
	bool established;

	struct window window; /* the one granted at connect */
	struct refusal refusal;
	char why[200]; /* what went wrong in the last call that failed */
};

/*
 * `timeout`: code of the ACK timeout, 0 for rdma_cm's own. Returns 0, -ECONNREFUSED with
 * peer->refusal filled, or another negative errno. In each case the peer must be closed.
 */
int peer_connect(struct peer *peer, const struct sockaddr *to, uint8_t timeout,
		 const struct ask *ask);

/* Disconnects and frees. Returns 0, or a negative errno when the target did not confirm. */
int peer_close(struct peer *peer);

/* Waits for the target to disconnect. */
int peer_await_disconnect(struct peer *peer, unsigned int seconds);

/* Operations wait for their completion and return its enum ibv_wc_status, or a negative errno
 * when none came. `local` is an offset into peer->buffer. */
int peer_write(struct peer *peer, uint64_t addr, uint32_t token, uint32_t local, uint32_t length);
int peer_read(struct peer *peer, uint64_t addr, uint32_t token, uint32_t local, uint32_t length);
int peer_fetch_add(struct peer *peer, uint64_t addr, uint32_t token, uint64_t add, uint64_t *old);
int peer_cmp_swap(struct peer *peer, uint64_t addr, uint32_t token, uint64_t compare, uint64_t swap,
		  uint64_t *old);
int peer_send_invalidate(struct peer *peer, uint32_t token);

/* Asks for a new window by SEND and waits for the answer. Returns as operations do; with
 * IBV_WC_SUCCESS the answer, grant or refusal, is in *window. */
int peer_ask(struct peer *peer, const struct ask *ask, struct window *window);

/* Pipelined use: post without waiting, then wait once for each in the order posted. */
int peer_post(struct peer *peer, struct ibv_send_wr *wr);
int peer_wait(struct peer *peer, uint64_t op);
struct ibv_sge peer_sge(const struct peer *peer, uint32_t local, uint32_t length);

#endif
