/* SPDX-License-Identifier: BSD-3-Clause */
/* Hostile clients: shared receive queues, segment numbers, resizes, addresses. */
#include <string.h>

#include "hostile.h"
#include "shm/spsc.h"
#include "shm/status.h"

/* --- shared receive queues -------------------------------------------------------------------- */

/* A pair whose queue pair at A takes its receives from a shared queue. */
static bool open_shared(struct pair *pair, struct raw_queue *srq)
{
	struct shm_request request = { .op = SHM_OP_CREATE_SRQ };
	struct shm_reply reply;

	if (!raw_open(&pair->raw_a, path_a) || !raw_open(&pair->raw_b, path_b) ||
	    !raw_make(&pair->a, &pair->raw_a, MEMORY, MR_ALL, DEPTH) ||
	    !raw_make(&pair->b, &pair->raw_b, MEMORY, MR_ALL, DEPTH))
		return false;
	request.create_srq = (struct shm_create_srq){
		.pd = pair->a.pd, .depth = DEPTH, .receive_sge = 4, .threshold = 2
	};
	if (!raw_do(&pair->raw_a, &request, &reply) || !raw_take_segment(&pair->raw_a, &reply, srq))
		return false;
	request = (struct shm_request){ .op = SHM_OP_CREATE_QP,
					.create_qp = { .pd = pair->a.pd,
						       .receive_cq = pair->a.cq.handle,
						       .initiator_cq = pair->a.cq.handle,
						       .srq = srq->handle,
						       .initiator_depth = DEPTH,
						       .initiator_sge = 4 } };
	return raw_do(&pair->raw_a, &request, &reply) &&
	       raw_take_segment(&pair->raw_a, &reply, &pair->a.qp) &&
	       raw_connect(&pair->a, ADDRESS_A, &pair->b, ADDRESS_B);
}

bool case_shared_cursor(void)
{
	static const uint32_t jumps[] = { DEPTH * 2 + 1, 0x80000000, 0xffffffff };

	for (unsigned int i = 0; i < 3; i++) {
		const struct shm_sqe sqe = { .opcode = SHM_WR_SEND };
		struct raw_queue srq;
		struct pair pair;

		if (!open_shared(&pair, &srq))
			return wrong("setting up");
		shm_store_release(&((struct shm_srq *)srq.segment)->receive.tail, jumps[i]);
		/* Nobody looks before a message comes. */
		raw_send(&pair.b, &sqe, NULL);
		if (!must_end(&pair.raw_a, "cursor"))
			return false;
		raw_close(&pair.raw_b);
	}
	return true;
}

/* Whatever its entries and its header say, a message that meets them ends somehow. */
bool case_shared_entries(void)
{
	for (unsigned int round = 0; round < 20; round++) {
		const struct shm_sqe sqe = { .opcode = SHM_WR_SEND };
		struct raw_queue srq;
		struct shm_queue *queue;
		struct shm_cqe cqe;
		struct pair pair;

		if (!open_shared(&pair, &srq))
			return wrong("setting up");
		queue = &((struct shm_srq *)srq.segment)->receive;
		scribble((uint8_t *)srq.segment + queue->offset,
			 (size_t)queue->slots * queue->stride);
		queue->slots = (uint32_t)rnd();
		queue->stride = (uint32_t)rnd();
		queue->offset = (uint32_t)rnd();
		queue->depth = (uint32_t)rnd();
		shm_store_release(&queue->tail, DEPTH);
		raw_send(&pair.b, &sqe, NULL);
		if (!raw_complete(&pair.b, &cqe))
			return wrong("the sender is not told how it ended");
		close_pair(&pair);
	}
	return true;
}

/* --- fast-register regions -------------------------------------------------------------------- */

static bool make_fast_region(struct pair *pair, uint32_t *mr, uint32_t *token)
{
	struct shm_request request = { .op = SHM_OP_CREATE_MR,
				       .create_mr = { .pd = pair->a.pd, .fast_register = 1 } };
	struct shm_reply reply;

	if (!raw_do(&pair->raw_a, &request, &reply))
		return false;
	*mr = reply.created.handle;
	request = (struct shm_request){ .op = SHM_OP_INIT_FRMR,
					.init_frmr = {
						.mr = *mr, .page_count = 16, .remote_access = 1 } };
	if (!raw_do(&pair->raw_a, &request, &reply))
		return false;
	*token = reply.registered.remote_token;
	return true;
}

/* Only memory that a session has passed itself can be registered, whatever number is tried. */
bool case_segments(void)
{
	for (uint64_t number = 0; number < 12; number++) {
		struct shm_request find = { .op = SHM_OP_FIND_SEGMENT };
		struct shm_sqe sqe = { .opcode = SHM_WR_FAST_REGISTER,
				       .flags = SHM_FLAG_ALLOW_REMOTE_WRITE,
				       .length = 4096,
				       .compare = number < 11 ? number : UINT64_MAX - 3 };
		struct shm_reply reply;
		struct shm_cqe cqe;
		struct pair pair;
		bool own;

		if (!open_pair(&pair) || !make_fast_region(&pair, &sqe.mr, &sqe.token))
			return wrong("setting up");
		find.segment_drop.cookie = pair.a.memory.cookie;
		if (!raw_do(&pair.raw_a, &find, &reply))
			return false;
		own = reply.segment.segment == sqe.compare;
		raw_send(&pair.a, &sqe, NULL);
		if (!raw_complete(&pair.a, &cqe))
			return wrong("no completion of a fast register");
		if ((cqe.status == NT_SUCCESS_STATUS) != own)
			return wrong(own ? "the own segment is refused"
					 : "another's segment is registered");
		close_pair(&pair);
	}
	return true;
}

/* --- resizes ---------------------------------------------------------------------------------- */

/* Asked for faster than they can be done, their memory never taken and written over. */
bool case_resizes(void)
{
	struct pair pair;

	if (!open_pair(&pair))
		return wrong("setting up");
	for (unsigned int i = 0; i < 400; i++) {
		struct shm_request request = { .op = SHM_OP_RESIZE_CQ,
					       .id = 1000 + i,
					       .resize = { .object = pair.a.cq.handle,
							   .depth = 1 + (uint32_t)below(500) } };
		struct shm_sqe sqe = { .opcode = SHM_WR_SEND };
		struct shm_reply reply;

		scribble(pair.a.cq.segment, sizeof(struct shm_cq));
		raw_send(&pair.a, &sqe, NULL);
		raw_receive(&pair.b, NULL, 0);
		if (i % 8) {
			raw_post(&pair.raw_a, &request);
		} else if (!raw_call(&pair.raw_a, &request, &reply)) {
			break; /* it may have gone too far */
		}
	}
	close_pair(&pair);
	return true;
}

/* --- addresses -------------------------------------------------------------------------------- */

/* Many requests for neighbours that are not there, and the end in the middle of them. */
bool case_waiting(void)
{
	for (unsigned int round = 0; round < 5; round++) {
		struct shm_request request = { .op = SHM_OP_CREATE_PD };
		struct shm_reply reply;
		struct raw raw;

		if (!raw_open(&raw, path_a) || !raw_do(&raw, &request, &reply))
			return wrong("setting up");
		request = (struct shm_request){ .op = SHM_OP_CREATE_AH,
						.create_ah = { .pd = reply.created.handle } };
		raw_address(&request.create_ah.local, ADDRESS_A, 0);
		raw_address(&request.create_ah.remote, "10.66.0.99", 0);
		for (uint32_t i = 0; i < SHM_CONTROL_ENTRIES / 2; i++) {
			request.id = 1000 + i;
			request.create_ah.remote.gid[15] = (uint8_t)(100 + i % 100);
			raw_post(&raw, &request);
		}
		raw_ring_control(&raw);
		request = (struct shm_request){ .op = SHM_OP_CREATE_PD };
		if (!raw_do(&raw, &request, &reply))
			return wrong("others wait for requests that wait");
		raw_close(&raw);
	}
	return true;
}
