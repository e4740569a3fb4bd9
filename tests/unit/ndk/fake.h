/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A daemon inside the test: it does what a test tells it to, when the test says so. Only the
 * hello is answered by a thread, because OrielOpenAdapter() waits for it.
 */
#ifndef TEST_NDK_FAKE_H
#define TEST_NDK_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "ndk/ndk.h"
#include "shm/layout.h"

#define FAKE_WORKERS 2u
#define FAKE_OBJECTS 64u
#define FAKE_HELD    256u

struct fake {
	char directory[64];
	char path[96];
	pthread_t greeter;
	int listener;
	int socket;

	/* What the welcome says; set before fake_open(). */
	int32_t welcome_status;
	uint32_t welcome_version;
	bool mute;                   /* no welcome at all */
	void (*around)(bool inside); /* called before and after OrielOpenAdapter(); may be NULL */
	struct shm_hello hello;

	struct shm_session *session;
	uint64_t session_size;
	int wake[2]; /* pipe; the client has the read end */
	int control_fd, worker_fd[FAKE_WORKERS];

	uint32_t request_head, reply_tail;
	uint32_t last_handle;
	uint32_t last_token;
	uint32_t last_segment;      /* the number that FIND_SEGMENT gets */
	bool no_remote_token;       /* regions get none */
	bool hold[SHM_OP_MAX];      /* requests of this kind wait for fake_answer() */
	int32_t status[SHM_OP_MAX]; /* not 0: what requests of this kind get */
	struct shm_request held[FAKE_HELD];
	unsigned int held_count;
	unsigned int requests[SHM_OP_MAX]; /* seen of each kind */
	struct shm_request last[SHM_OP_MAX];

	struct shm_cq *cq[FAKE_OBJECTS];
	unsigned int cqs;
	struct shm_qp *qp[FAKE_OBJECTS];
	unsigned int qps;
	/* Not 0: queue pairs lie in one segment, this many bytes apart, with others' in between. */
	uint64_t share;
	uint8_t *shared;
	struct shm_srq *srq[FAKE_OBJECTS];
	unsigned int srqs;
	uint32_t srq_slots;    /* not 0: what the next SRQ's segment claims to hold */
	uint32_t address_mtu;  /* of addresses to come; 0: 4096 */
	unsigned int segments; /* memfds that the client passed */
};

void fake_start(struct fake *fake);
void fake_stop(struct fake *fake);
NTSTATUS fake_open(struct fake *fake, const ORIEL_OPEN_PARAMETERS *parameters,
		   NDK_ADAPTER **adapter);
/* Reads requests and answers or holds them. */
void fake_step(struct fake *fake);
bool fake_has_requests(const struct fake *fake);
/* Answers the oldest held request of a kind; the reply is filled in but for op, id, status. */
void fake_answer(struct fake *fake, uint32_t op, int32_t status, struct shm_reply *reply);
/* Nothing is held any more, and what was is answered. */
void fake_release(struct fake *fake);
bool fake_holds(const struct fake *fake, uint32_t op);
void fake_send(struct fake *fake, const struct shm_reply *reply);
void fake_wake(struct fake *fake);
/* Dies as a killed daemon does. */
void fake_die(struct fake *fake);

/* A worker: puts an entry into its ring of a CQ and takes the arm if that satisfies it. */
void fake_complete(struct fake *fake, unsigned int cq, uint32_t ring, const struct shm_cqe *cqe);
/* The same in memory that a resize brings. */
void fake_complete_in(struct fake *fake, struct shm_cq *cq, uint32_t ring,
		      const struct shm_cqe *cqe);
/* The first half of the answer to the RESIZE_CQ that is held: new memory for the CQ. */
struct shm_cq *fake_resize(struct fake *fake, unsigned int cq);
/* Whether doorbell `number` was rung since the last look. */
bool fake_rung(struct fake *fake, uint32_t worker, uint32_t number);
/* The worker is done with all entries that it was told of. */
void fake_take_sends(struct shm_qp *qp);
/* Another entry of this SRQ is taken: its request context. */
uint64_t fake_take_receive(struct shm_srq *srq);
const struct shm_sqe *fake_sqe(struct shm_qp *qp, uint32_t index);

#endif
