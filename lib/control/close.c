/* SPDX-License-Identifier: BSD-3-Clause */
/* Closing objects: waits for those that need them, for their worker, and for grace periods. */
#include "control/control_private.h"

/* Puts an object on the list of those whose revocation is under way. */
void grace_wait(struct control *control, struct object *object, uint64_t grace)
{
	object->grace = grace;
	control->graces[control->grace_count++] = object_index(control, object);
}

/* Its last act: frees the object and answers the request. */
static void close_done(struct control *control, struct object *object)
{
	uint32_t session = object->session;
	uint32_t id = object->close_id;

	endpoint_release(control, object);
	object_release_needs(control, object);
	object_free(control, object);
	reply_status(control, session, SHM_OP_CLOSE, id, NT_SUCCESS_STATUS);
}

static void wait_for_windows(struct control *control, struct object *mr)
{
	const uint32_t index = object_index(control, mr);
	struct object_local *local = &control->object_local[index];

	/* It may stand there still for one that was closed before it and had its index. */
	if (local->to_close)
		return;
	local->to_close = true;
	local->next_to_close = control->region_to_close;
	control->region_to_close = index;
}

static void close_mr(struct control *control, struct object *mr)
{
	uint64_t grace;

	if (mr->grace || mr->pending_id)
		return; /* goes on in grace_over() */
	if (region_destroy(control->memory, mr->index) == 0) {
		close_done(control, mr);
		return;
	}
	/* Registered: the close deregisters; with windows bound it waits for their end. */
	if (region_deregister(control->memory, mr->index, &grace) == 0)
		grace_wait(control, mr, grace);
	else
		wait_for_windows(control, mr);
}

static void close_mw(struct control *control, struct object *mw)
{
	uint64_t grace;

	if (mw->grace)
		return;
	if (window_destroy(control->memory, mw->index, &grace))
		return;
	if (grace) {
		grace_wait(control, mw, grace);
		return;
	}
	window_destroy_finish(control->memory, mw->index);
	close_done(control, mw);
}

/* A worker may be about to send by it. */
static void close_ah(struct control *control, struct object *ah)
{
	uint64_t grace;

	if (ah->grace)
		return;
	ah_destroy(control->shared, ah->index, &grace);
	if (grace) {
		grace_wait(control, ah, grace);
		return;
	}
	ah_let_go(control, ah);
	close_done(control, ah);
}

static void command_qp(struct control *control, const struct object *qp, uint32_t type,
		       enum command_purpose purpose)
{
	command_send(control, qp_home(control->shared, qp->index), type, qp->index, purpose,
		     object_handle(control, qp), NULL);
}

/* A receive that it took from an SRQ and has not completed would be lost by a detach. */
static void close_qp(struct control *control, struct object *qp)
{
	if (qp->ending == QP_DETACHED) {
		qp_let_go(control, qp);
		close_done(control, qp);
	} else if (qp->ending != QP_HELD || qp->pending_op) {
		return; /* goes on when the worker has answered */
	} else if (qp->needs[3]) {
		qp->ending = QP_FLUSHING;
		command_qp(control, qp, WORKER_FLUSH, COMMAND_IGNORE);
	} else {
		qp->ending = QP_DETACHING;
		command_qp(control, qp, WORKER_DETACH, COMMAND_QP_DETACHED);
	}
}

void close_qp_flushed(struct control *control, struct object *qp)
{
	if (qp->ending != QP_FLUSHING)
		return;
	qp->ending = QP_DETACHING;
	command_qp(control, qp, WORKER_DETACH, COMMAND_QP_DETACHED);
}

void close_continue(struct control *control, struct object *object)
{
	if (object->users)
		return;
	switch ((enum object_type)object->type) {
	case OBJECT_TYPE_PD:
		if (pd_destroy(control->memory, object->index) == 0)
			close_done(control, object);
		break;
	case OBJECT_TYPE_CQ:
		if (control->object_local[object_index(control, object)].to_switch)
			break; /* goes on when the workers have answered */
		cq_let_go(control, object);
		close_done(control, object);
		break;
	case OBJECT_TYPE_MR: close_mr(control, object); break;
	case OBJECT_TYPE_MW: close_mw(control, object); break;
	case OBJECT_TYPE_QP: close_qp(control, object); break;
	case OBJECT_TYPE_CONNECTOR:
		connection_close(control, object);
		close_done(control, object);
		break;
	case OBJECT_TYPE_SRQ:
		srq_let_go(control, object);
		close_done(control, object);
		break;
	case OBJECT_TYPE_AH: close_ah(control, object); break;
	case OBJECT_TYPE_LISTENER:
	case OBJECT_TYPE_ENDPOINT: close_done(control, object); break;
	case OBJECT_TYPE_NONE:
	case OBJECT_TYPES: break;
	}
}

/* A listener refuses new requests from the first moment of its close on. */
static void close_start(struct control *control, struct object *object)
{
	if (object->type == OBJECT_TYPE_LISTENER && object->index) {
		cm_unlisten(control->cm, object->index);
		object->index = 0;
	}
	close_continue(control, object);
}

int32_t request_close(struct control *control, uint32_t session, const struct shm_request *request,
		      struct shm_reply *reply)
{
	struct object *object = NULL;

	for (unsigned int type = OBJECT_TYPE_PD; type < OBJECT_TYPES && !object; type++)
		object = object_find(control, session, request->object.object, type);
	if (!object)
		return NT_INVALID_HANDLE;
	object->close_id = request->id;
	close_start(control, object);
	return NT_PENDING;
}

static void grace_over(struct control *control, struct object *object)
{
	object->grace = 0;
	switch (object->type) {
	case OBJECT_TYPE_MR:
		region_deregister_finish(control->memory, object->index);
		if (object->pending_id)
			reply_pending(control, object, NT_SUCCESS_STATUS);
		if (object->close_id)
			close_continue(control, object);
		return;
	case OBJECT_TYPE_MW: window_destroy_finish(control->memory, object->index); break;
	default: ah_let_go(control, object); break;
	}
	close_done(control, object);
}

/* Regions whose close met bound windows: the windows may be gone by now. */
static void retry_closing_regions(struct control *control)
{
	uint32_t index = control->region_to_close;

	control->region_to_close = 0;
	while (index) {
		struct object_local *local = &control->object_local[index];
		struct object *object = object_at(control, index);

		index = local->next_to_close;
		local->to_close = false;
		if (object->type == OBJECT_TYPE_MR && object->close_id && !object->grace &&
		    session_is_open(control, object->session))
			close_continue(control, object);
	}
}

void close_graces(struct control *control)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < control->grace_count; i++) {
		struct object *object = object_at(control, control->graces[i]);

		/* The end of its session frees it by another way. */
		if (object->type == OBJECT_TYPE_NONE || !session_is_open(control, object->session))
			continue;
		if (memory_grace_done(control->memory, object->grace))
			grace_over(control, object);
		else
			control->graces[kept++] = control->graces[i];
	}
	control->grace_count = kept;
	control->segments_to_unmap = segment_collect(control->memory);
	if (control->region_to_close)
		retry_closing_regions(control);
}
