/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests about shared receive queues. */
#include <errno.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"

static bool within_limits(const struct shm_limits *limits, const struct shm_create_srq *want)
{
	return want->depth && want->depth <= limits->max_srq_depth &&
	       want->receive_sge <= limits->max_receive_sge;
}

int32_t request_create_srq(struct control *control, uint32_t session,
			   const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_create_srq *want = &request->create_srq;
	struct object *pd = object_find(control, session, want->pd, OBJECT_TYPE_PD);
	struct srq_config config = { .session = session,
				     .depth = want->depth,
				     .sge = want->receive_sge,
				     .limit = want->threshold,
				     .home = least_loaded_worker(control) };
	struct object *object;
	int fd;

	if (!pd)
		return NT_INVALID_HANDLE;
	if (!within_limits(&control->limits, want))
		return NT_INVALID_PARAMETER;
	object = object_create(control, session, OBJECT_TYPE_SRQ);
	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	config.pd = pd->index;
	object->memory_size = config.memory_size = srq_memory_size(want->depth, want->receive_sge);
	config.memory = queue_segment_create(config.memory_size, &fd);
	if (!config.memory)
		goto free_object;
	object->index = srq_create(control->shared, &config);
	if (!object->index)
		goto free_memory;
	if (queue_segment_give(control, session, request->id, object, config.memory, fd))
		goto destroy;
	object_need(control, object, 0, pd);
	control->srq_object[object->index] = object_index(control, object);
	reply->created = (struct shm_created){ .handle = object_handle(control, object),
					       .worker = config.home,
					       .segment_size = config.memory_size };
	return NT_SUCCESS_STATUS;
destroy:
	srq_destroy(control->shared, object->index);
free_memory:
	shm_segment_unmap(config.memory, config.memory_size);
	close(fd);
free_object:
	object_free(control, object);
	return NT_INSUFFICIENT_RESOURCES;
}

static int32_t set_depth(struct control *control, const struct object *srq, uint32_t depth)
{
	if (depth > control->limits.max_srq_depth)
		return NT_INVALID_PARAMETER;
	switch (depth ? srq_set_depth(control->shared, srq->index, depth) : 0) {
	case 0: return NT_SUCCESS_STATUS;
	case -EBUSY: return NT_BUFFER_OVERFLOW;
	default: return NT_INSUFFICIENT_RESOURCES;
	}
}

/*
 * Zeros keep what is (NdkModifySrq). A threshold that is not reached already is told behind the
 * reply: the client arms, then hears.
 */
int32_t request_modify_srq(struct control *control, uint32_t session,
			   const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_resize *want = &request->resize;
	struct object *srq = object_find(control, session, want->object, OBJECT_TYPE_SRQ);
	uint32_t handle;
	int32_t status;

	if (!srq)
		return NT_INVALID_HANDLE;
	status = set_depth(control, srq, want->depth);
	if (status != NT_SUCCESS_STATUS || !want->threshold)
		return status;
	if (!srq_set_limit(control->shared, srq->index, want->threshold))
		return status;
	handle = object_handle(control, srq);
	reply_status(control, session, request->op, request->id, status);
	send_async(control, session, SHM_EV_ASYNC, handle, SHM_ASYNC_SRQ_LIMIT, 0);
	return NT_PENDING;
}

void srq_let_go(struct control *control, struct object *object)
{
	srq_destroy(control->shared, object->index);
	control->srq_object[object->index] = 0;
	queue_segment_drop(control, object);
}
