/* SPDX-License-Identifier: BSD-3-Clause */
/* Hostile clients: queues, completions, doorbells, memory under traffic, tokens, handles. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hostile.h"
#include "shm/spsc.h"
#include "shm/status.h"

/* --- queues ---------------------------------------------------------------------------------- */

bool case_queue_cursor(void)
{
	static const uint32_t jumps[] = { DEPTH * 2 + 1, 0x80000000, 0xffffffff };

	for (unsigned int i = 0; i < 6; i++) {
		struct pair pair;
		struct shm_qp *qp;

		if (!open_pair(&pair))
			return wrong("setting up");
		qp = pair.a.qp.segment;
		shm_store_release(i < 3 ? &qp->send.tail : &qp->receive.tail, jumps[i % 3]);
		raw_ring(&pair.a);
		if (i >= 3) { /* the receive queue is looked at when something comes */
			struct shm_sqe sqe = { .opcode = SHM_WR_SEND };

			raw_send(&pair.b, &sqe, NULL);
		}
		if (!must_end(&pair.raw_a, "cursor"))
			return false;
		raw_close(&pair.raw_b);
	}
	return true;
}

/* Work requests of any bytes, also with objects and tokens that exist. */
static void fuzz_send(struct pair *pair, struct shm_sqe *sqe, struct shm_sge *sge)
{
	scribble(sqe, sizeof(*sqe));
	scribble(sge, 16 * sizeof(*sge));
	sqe->opcode = below(8) ? (uint8_t)below(SHM_WR_MAX + 2) : (uint8_t)rnd();
	sqe->nsge = below(2) ? (uint8_t)below(6) : (uint8_t)rnd();
	if (below(2))
		sqe->flags &= 0x7f;
	if (below(2))
		sqe->token = pair->b.memory.remote_token;
	if (below(2))
		sqe->mr = pair->a.memory.mr;
	if (below(3))
		sqe->address = (uintptr_t)pair->b.memory.start + below(MEMORY);
	for (unsigned int i = 0; i < 16; i++) {
		if (below(4))
			sge[i].token = pair->a.memory.local_token;
		if (below(4))
			sge[i].address = (uintptr_t)pair->a.memory.start + below(MEMORY);
		if (below(4))
			sge[i].length = (uint32_t)below(4096);
	}
}

bool case_work(void)
{
	for (unsigned int round = 0; round < 30; round++) {
		struct pair pair;
		struct shm_cqe cqe;

		if (!open_pair(&pair))
			return wrong("setting up");
		for (unsigned int n = 0; n < DEPTH; n++) {
			struct shm_queue *queue = &((struct shm_qp *)pair.a.qp.segment)->send;
			struct shm_sge sge[16];
			struct shm_sqe sqe;
			uint8_t *slot;

			fuzz_send(&pair, &sqe, sge);
			slot = shm_queue_slot(pair.a.qp.segment, queue->offset, queue->stride,
					      queue->slots, queue->tail);
			memcpy(slot, &sqe, sizeof(sqe));
			memcpy(slot + sizeof(sqe), sge, queue->stride - sizeof(sqe));
			shm_store_release(&queue->tail, queue->tail + 1);
			raw_ring(&pair.a);
			raw_receive(&pair.b, sge, 1);
		}
		/* The first that is impossible fails, and all behind it with it. */
		if (!raw_complete(&pair.a, &cqe))
			return wrong("no completion of any kind");
		close_pair(&pair);
	}
	return true;
}

bool case_receives(void)
{
	for (unsigned int round = 0; round < 20; round++) {
		struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
		struct pair pair;
		struct shm_queue *queue;
		struct shm_sge sge;
		struct shm_cqe cqe;

		if (!open_pair(&pair))
			return wrong("setting up");
		queue = &((struct shm_qp *)pair.a.qp.segment)->receive;
		scribble((uint8_t *)pair.a.qp.segment + queue->offset,
			 (size_t)queue->slots * queue->stride);
		shm_store_release(&queue->tail, DEPTH);
		sge = (struct shm_sge){ (uintptr_t)pair.b.memory.start, 100,
					pair.b.memory.local_token };
		raw_send(&pair.b, &sqe, &sge);
		if (!raw_complete(&pair.b, &cqe))
			return wrong("the peer's SEND does not complete");
		if (cqe.status == NT_SUCCESS_STATUS)
			return wrong("a SEND into nowhere succeeds");
		close_pair(&pair);
	}
	return true;
}

/* What the daemon wrote into the segments is not what it goes by. */
bool case_headers(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	for (unsigned int n = 0; n < 200; n++) {
		struct shm_qp *qp = pair.a.qp.segment;
		struct shm_cq *cq = pair.a.cq.segment;
		uint32_t send = qp->send.tail, receive = qp->receive.tail;

		scribble(qp, sizeof(*qp));
		scribble(cq, pair.a.cq.size);
		qp->send.tail = send;
		qp->receive.tail = receive;
		for (uint32_t w = 0; w < 16; w++)
			cq->ring[w].cursor.head = 0;
		raw_ring(&pair.a);
		if (!remote(&pair, SHM_WR_WRITE, (uintptr_t)pair.a.memory.start,
			    pair.a.memory.remote_token, 3000, &status) ||
		    status)
			return wrong("a peer's write fails for what lies in a header");
	}
	close_pair(&pair);
	return true;
}

bool case_doorbells(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	for (unsigned int n = 0; n < 300; n++) {
		for (uint32_t w = 0; w < pair.raw_a.workers; w++) {
			struct shm_worker_area *area = &pair.raw_a.session->worker[w];

			for (unsigned int i = 0; i < SHM_MAX_SESSION_QPS / 64; i++)
				__atomic_store_n(&area->bits[i], UINT64_MAX, __ATOMIC_RELAXED);
			for (unsigned int i = 0; i < SHM_MAX_SESSION_QPS / 4096; i++)
				__atomic_store_n(&area->summary[i], UINT64_MAX, __ATOMIC_RELEASE);
			__atomic_store_n(&area->top, UINT64_MAX, __ATOMIC_RELEASE);
			scribble(&area->stock_cursor, sizeof(area->stock_cursor));
		}
		raw_ring(&pair.a);
		if (n % 10 == 0 && (!remote(&pair, SHM_WR_READ, (uintptr_t)pair.a.memory.start,
					    pair.a.memory.remote_token, 5000, &status) ||
				    status))
			return wrong("a peer's read fails for wild doorbells");
	}
	close_pair(&pair);
	return true;
}

/* Completions that nobody takes: the CQ overruns, and only its own queue pairs pay. */
bool case_overrun(void)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
	struct pair pair;
	struct shm_sge sge;
	struct shm_cqe cqe;
	unsigned int failed = 0;

	if (!open_pair(&pair))
		return wrong("setting up");
	sge = (struct shm_sge){ (uintptr_t)pair.a.memory.start, 4096, pair.a.memory.local_token };
	for (unsigned int n = 0; n < 6 * DEPTH && !failed; n++) {
		struct shm_sge from = { (uintptr_t)pair.b.memory.start, 8,
					pair.b.memory.local_token };

		raw_receive(&pair.a, &sge, 1);
		raw_send(&pair.b, &sqe, &from);
		if (!raw_complete(&pair.b, &cqe))
			return wrong("the peer's SEND does not complete");
		failed += cqe.status != NT_SUCCESS_STATUS;
	}
	if (!failed)
		return wrong("completions without end fit a CQ");
	close_pair(&pair);
	return true;
}

/* --- memory that goes away under a peer ------------------------------------------------------- */

bool case_punch(void)
{
	struct pair pair;
	int32_t status;

	if (!open_pair(&pair))
		return wrong("setting up");
	if (ftruncate(pair.a.memory.fd, 0) == 0)
		return wrong("sealed memory shrinks");
	for (unsigned int n = 0; n < 300; n++) {
		if (fallocate(pair.a.memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			      MEMORY))
			return wrong("punching");
		madvise(pair.a.memory.start, MEMORY, MADV_REMOVE);
		if (!remote(&pair, n % 2 ? SHM_WR_WRITE : SHM_WR_READ,
			    (uintptr_t)pair.a.memory.start, pair.a.memory.remote_token, MEMORY / 4,
			    &status))
			return false;
		if (status && status != NT_ACCESS_VIOLATION)
			return wrong("neither served nor refused");
	}
	munmap(pair.a.memory.start, MEMORY);
	close(pair.a.memory.fd);
	if (!remote(&pair, SHM_WR_WRITE, (uintptr_t)pair.a.memory.start, pair.a.memory.remote_token,
		    4096, &status))
		return false;
	close_pair(&pair);
	return true;
}

/* B59, B46: a local token is no good remotely, nor one of another session locally. */
bool case_tokens(void)
{
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1 };
	struct pair pair, other;
	struct shm_sge sge;
	struct shm_cqe cqe;
	int32_t status;

	if (!open_pair(&pair) || !open_pair(&other))
		return wrong("setting up");
	if (pair.a.memory.local_token == pair.a.memory.remote_token)
		return wrong("local and remote token are the same");
	sge = (struct shm_sge){ (uintptr_t)other.a.memory.start, 64, other.a.memory.local_token };
	raw_send(&pair.a, &sqe, &sge);
	if (!raw_complete(&pair.a, &cqe) || cqe.status != NT_ACCESS_VIOLATION)
		return wrong("another session's token works in an SGE");
	if (!remote(&other, SHM_WR_WRITE, (uintptr_t)other.a.memory.start,
		    other.a.memory.local_token, 64, &status) ||
	    status != NT_ACCESS_VIOLATION)
		return wrong("a local token works remotely");
	close_pair(&pair);
	close_pair(&other);
	return true;
}

/* Handles of another session mean nothing. */
bool case_handles(void)
{
	struct raw victim, thief;
	struct raw_set set;
	struct shm_reply reply;

	if (!raw_open(&victim, path_a) || !raw_open(&thief, path_a) ||
	    !raw_make(&set, &victim, MEMORY, MR_ALL, DEPTH))
		return wrong("setting up");
	for (uint32_t op = SHM_OP_CREATE_CQ; op < SHM_OP_MAX; op++) {
		const uint32_t handles[] = { set.pd, set.cq.handle, set.qp.handle, set.memory.mr };

		if (op == SHM_OP_CREATE_CQ || op == SHM_OP_CREATE_CONNECTOR ||
		    op == SHM_OP_CREATE_LISTENER || op == SHM_OP_REFILL_TOKENS)
			continue;
		for (unsigned int i = 0; i < 4; i++) {
			struct shm_request request = { .op = op,
						       .create_qp = { .pd = handles[i],
								      .receive_cq = handles[1],
								      .initiator_cq =
									      handles[1] } };

			if (!raw_call(&thief, &request, &reply))
				return wrong("the thief's session is over");
			if (reply.status >= 0) {
				fprintf(stderr, "hostile: request %u takes a foreign handle\n", op);
				return false;
			}
		}
	}
	if (raw_is_over(&victim))
		return wrong("the victim's session is over");
	raw_close(&victim);
	raw_close(&thief);
	return true;
}
