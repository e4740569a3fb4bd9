/* SPDX-License-Identifier: BSD-3-Clause */
/* Commands to workers, and what comes back from them. */
#include <stdlib.h>
#include <unistd.h>

#include "control/control_private.h"

/*
 * A full ring keeps the command here, in order; control never waits for a worker.
 */
static void command_keep(struct control *control, unsigned int worker,
			 const struct worker_command *command)
{
	struct pending_command *pending = malloc(sizeof(*pending));

	if (!pending) {
		control_fail(control, "out of memory for a worker's command");
		return;
	}
	pending->command = *command;
	pending->next = NULL;
	*control->command_last[worker] = pending;
	control->command_last[worker] = &pending->next;
}

static void command_pass(struct control *control, unsigned int worker,
			 const struct worker_command *command)
{
	if (control->command_first[worker] || net_command(control->net, worker, command))
		command_keep(control, worker, command);
}

void command_send(struct control *control, unsigned int worker, uint32_t type, uint32_t index,
		  enum command_purpose purpose, uint32_t object,
		  const struct qp_connection *connection)
{
	struct worker_command command = { .type = type,
					  .object = index,
					  .cookie = (uint64_t)purpose << 32 | object };

	if (connection)
		command.connection = *connection;
	if (type == WORKER_ADD_SESSION)
		command.session = control->session[index].memory;
	else if (type != WORKER_REMOVE_SESSION)
		command.number = qp_number(control->shared, index);
	command_pass(control, worker, &command);
}

void command_resize_cq(struct control *control, struct object *cq, uint32_t depth,
		       struct shm_cq *memory)
{
	const uint64_t cookie = (uint64_t)COMMAND_CQ_RESIZED << 32 | object_handle(control, cq);
	const struct worker_command command = { .type = WORKER_RESIZE_CQ,
						.object = cq->index,
						.cookie = cookie,
						.to = depth,
						.cq = memory };

	for (uint32_t w = 0; w < net_get_config(control->net)->workers; w++)
		command_pass(control, w, &command);
}

void command_retry(struct control *control)
{
	for (unsigned int worker = 0; worker < NET_MAX_WORKERS; worker++) {
		struct pending_command *pending;

		while ((pending = control->command_first[worker]) != NULL) {
			if (net_command(control->net, worker, &pending->command))
				break;
			control->command_first[worker] = pending->next;
			if (!pending->next)
				control->command_last[worker] = &control->command_first[worker];
			free(pending);
		}
	}
}

/* The object that a command was about; NULL when the client closed it meanwhile. */
static struct object *object_of(const struct control *control, uint32_t handle)
{
	struct object *object = object_at(control, handle & OBJECT_INDEX_MASK);

	return object->type != OBJECT_TYPE_NONE && object_handle(control, object) == handle ? object
											    : NULL;
}

static void session_command_done(struct control *control, uint32_t session)
{
	struct session_local *local = &control->session[session];

	local->detaching--;
	session_finish_if_quiet(control, session);
}

/* Connected by number, or not. */
static void qp_ready(struct control *control, struct object *qp, int status)
{
	struct shm_reply reply = { .op = SHM_OP_CONNECT_QP,
				   .id = qp->pending_id,
				   .status = status ? NT_INVALID_PARAMETER : NT_SUCCESS_STATUS,
				   .connected = { .path_mtu = qp->connector.path_mtu } };

	qp->pending_id = qp->pending_op = 0;
	if (reply.id)
		session_send(control, qp->session, &reply);
	if (qp->close_id && session_is_open(control, qp->session))
		close_continue(control, qp);
}

static void object_command_done(struct control *control, struct object *object,
				enum command_purpose purpose, int status)
{
	switch (purpose) {
	case COMMAND_QP_CONNECTED: connection_prepared(control, object, status); break;
	case COMMAND_QP_READY: qp_ready(control, object, status); break;
	case COMMAND_CQ_RESIZED: cq_resized(control, object); break;
	case COMMAND_QP_FLUSHED: reply_pending(control, object, NT_SUCCESS_STATUS); break;
	case COMMAND_QP_DETACHED:
		object->ending = QP_DETACHED;
		if (session_is_open(control, object->session))
			close_continue(control, object);
		else
			session_command_done(control, object->session);
		break;
	default: break;
	}
}

void command_done(void *context, unsigned int worker, uint64_t cookie, int status)
{
	const enum command_purpose purpose = (enum command_purpose)(cookie >> 32);
	struct control *control = context;
	struct object *object;

	if (purpose == COMMAND_SESSION_REMOVED) {
		session_command_done(control, (uint32_t)cookie);
		return;
	}
	if (purpose == COMMAND_SESSION_ADDED || purpose == COMMAND_IGNORE)
		return;
	object = object_of(control, (uint32_t)cookie);
	if (object)
		object_command_done(control, object, purpose, status);
}

/* The worker did not have the queue pair any more. It may have been closed since. */
void command_moved(void *context, const struct worker_command *command)
{
	struct control *control = context;

	if (qp_number(control->shared, command->object) == command->number)
		command_pass(control, qp_home(control->shared, command->object), command);
	else
		command_done(control, 0, command->cookie, 0);
}

/*
 * One bad token is the end of a reliable connection, and the next one is refused. An unreliable one
 * says nothing to its peer and would let it try on: past the budget it fails as well.
 */
static void bad_token(struct control *control, struct object *qp,
		      const struct transport_event *event)
{
	struct object_local *local = &control->object_local[object_index(control, qp)];
	struct qp_status status;

	if (!qp_get_status(control->shared, event->object, &status))
		return;
	offender_count(control, status.remote_gid);
	if (status.type == SHM_QP_RC || local->shut_out ||
	    !offender_shut_out(control, status.remote_gid))
		return;
	local->shut_out = true;
	send_async(control, qp->session, SHM_EV_ASYNC, object_handle(control, qp),
		   SHM_ASYNC_QP_ACCESS_ERROR, event->value);
	command_send(control, qp_home(control->shared, qp->index), WORKER_FLUSH, qp->index,
		     COMMAND_IGNORE, 0, NULL);
}

static void qp_event(struct control *control, const struct transport_event *event)
{
	struct object *qp = object_at(control, control->qp_object[event->object]);

	if (qp->type != OBJECT_TYPE_QP)
		return;
	switch (event->type) {
	case TRANSPORT_QP_ERROR:
		if (event->async)
			send_async(control, qp->session, SHM_EV_ASYNC, object_handle(control, qp),
				   event->async, event->value);
		connection_qp_error(control, qp, event->value);
		break;
	case TRANSPORT_QP_ESTABLISHED: connection_established(control, qp); break;
	case TRANSPORT_QP_LAST_WQE:
		send_async(control, qp->session, SHM_EV_ASYNC, object_handle(control, qp),
			   SHM_ASYNC_QP_LAST_WQE_REACHED, 0);
		break;
	case TRANSPORT_QP_FLUSHED:
		if (session_is_open(control, qp->session))
			close_qp_flushed(control, qp);
		break;
	case TRANSPORT_BAD_TOKEN: bad_token(control, qp, event); break;
	default: break;
	}
}

void command_event(void *context, unsigned int worker, const struct transport_event *event)
{
	struct control *control = context;
	struct object *object;

	switch (event->type) {
	case TRANSPORT_SESSION_BROKEN:
		if (session_is_open(control, event->object)) {
			control->status.sessions_broken++;
			session_end(control, event->object, verdict_text(event->value));
		}
		break;
	case TRANSPORT_CQ_ERROR:
		object = object_at(control, control->cq_object[event->object]);
		if (object->type == OBJECT_TYPE_CQ)
			send_async(control, object->session, SHM_EV_ASYNC,
				   object_handle(control, object), SHM_ASYNC_CQ_ERROR,
				   event->value);
		break;
	case TRANSPORT_SRQ_LIMIT:
		object = object_at(control, control->srq_object[event->object]);
		if (object->type == OBJECT_TYPE_SRQ)
			send_async(control, object->session, SHM_EV_ASYNC,
				   object_handle(control, object), SHM_ASYNC_SRQ_LIMIT,
				   event->value);
		break;
	default: qp_event(control, event); break;
	}
}

/* In a worker's thread. The descriptor stays open until all workers have let the session go. */
void command_notify(void *context, uint32_t session)
{
	struct control *control = context;
	uint64_t one = 1;

	/* A full counter means that the client has a wake-up waiting already. */
	if (write(control->session[session].event_fd, &one, sizeof(one)) < 0)
		return;
}
