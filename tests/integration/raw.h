/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that speaks the shared-memory contract itself, without libndk: for tests that break it.
 * Functions return false when the session is over or the daemon does not answer; the session's
 * end_reason then says why.
 */
#ifndef TEST_RAW_H
#define TEST_RAW_H

#include <stdbool.h>

#include "shm/layout.h"

#define RAW_PATIENCE 60000 /* ms */

#define RAW_SEGMENTS 16u

struct raw {
	int socket;
	struct shm_session *session; /* mapped */
	uint64_t size;
	int event_fd, control_fd, worker_fd[SHM_MAX_WORKERS];
	uint32_t workers;
	uint32_t request_tail, reply_head, next_id;
	uint64_t next_cookie;
	void *segment[RAW_SEGMENTS]; /* of queue pairs, by number; mapped until the process ends */
};

/* Memory that is registered. */
struct raw_memory {
	int fd;
	uint8_t *start;
	uint64_t size;
	uint64_t cookie;
	uint32_t mr;
	uint32_t local_token, remote_token;
};

struct raw_queue {
	uint32_t handle;
	uint32_t number; /* QPN */
	uint32_t worker, doorbell;
	void *segment; /* struct shm_qp or shm_cq */
	uint64_t size;
};

struct raw_set {
	struct raw *raw;
	uint32_t pd;
	struct raw_queue cq, qp;
	struct raw_memory memory;
	uint32_t cq_head[SHM_MAX_WORKERS];
};

bool raw_open(struct raw *raw, const char *path);
void raw_close(struct raw *raw);

/* Rings and waits; events in between are dropped. reply->status is the daemon's. */
bool raw_call(struct raw *raw, struct shm_request *request, struct shm_reply *reply);
/* The same, and whether the daemon did it. */
bool raw_do(struct raw *raw, struct shm_request *request, struct shm_reply *reply);
/* Puts a request in the ring without waiting. */
void raw_post(struct raw *raw, const struct shm_request *request);
void raw_ring_control(struct raw *raw);
void raw_wake(int fd);
/* Waits until the daemon has ended the session; false if it does not. */
bool raw_wait_end(struct raw *raw);
bool raw_is_over(const struct raw *raw);

/* The segment of a queue that was just made. */
bool raw_take_segment(struct raw *raw, const struct shm_reply *reply, struct raw_queue *queue);
/* A segment of memory offered to the daemon; any descriptor. */
bool raw_offer(struct raw *raw, int fd, uint64_t cookie);
/* PD, CQ, QP and registered memory with the rights given (NDK_MR_FLAG_*). */
bool raw_make(struct raw_set *set, struct raw *raw, uint64_t memory, uint32_t access,
	      uint32_t depth);
/* From dotted IPv4. */
void raw_address(struct shm_address *address, const char *text, uint16_t port);
/* Connects two queue pairs of two daemons by number. Addresses are dotted IPv4. */
bool raw_connect(struct raw_set *a, const char *address_a, struct raw_set *b,
		 const char *address_b);

/* Posts one entry and rings. */
void raw_send(struct raw_set *set, const struct shm_sqe *sqe, const struct shm_sge *sge);
void raw_receive(struct raw_set *set, const struct shm_sge *sge, uint32_t count);
void raw_ring(struct raw_set *set);
/* The next completion; waits. */
bool raw_complete(struct raw_set *set, struct shm_cqe *cqe);

#endif
