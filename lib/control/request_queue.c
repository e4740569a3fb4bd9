/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests about completion queues and queue pairs. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define DEFAULT_HOP_LIMIT 64u

/* A free number of a bitmap, marked used; -1 when there is none. */
static int take_number(uint64_t *bitmap, unsigned int words)
{
	for (unsigned int w = 0; w < words; w++) {
		unsigned int bit;

		if (bitmap[w] == UINT64_MAX)
			continue;
		bit = (unsigned int)__builtin_ctzll(~bitmap[w]);
		bitmap[w] |= 1ull << bit;
		return (int)(w * 64 + bit);
	}
	return -1;
}

static void give_number(uint64_t *bitmap, uint32_t number)
{
	bitmap[number / 64] &= ~(1ull << (number % 64));
}

void *queue_segment_create(uint64_t size, int *fd)
{
	void *address;

	*fd = shm_segment_create("oriel-queue", size, false);
	if (*fd < 0)
		return NULL;
	if (shm_segment_map(*fd, size, true, &address)) {
		close(*fd);
		return NULL;
	}
	return address;
}

int queue_segment_give(struct control *control, uint32_t session, uint32_t request,
		       const struct object *object, void *memory, int fd)
{
	struct shm_segment_message message = { .type = SHM_MSG_OBJECT_SEGMENT,
					       .handle = object_handle(control, object),
					       .cookie = request,
					       .size = object->memory_size };
	int error = shm_socket_send(control->session[session].socket, &message, sizeof(message),
				    &fd, 1);

	if (error)
		return error;
	close(fd);
	control->object_local[object_index(control, object)].segment = memory;
	return 0;
}

void queue_segment_drop(struct control *control, const struct object *object)
{
	struct object_local *local = &control->object_local[object_index(control, object)];

	shm_segment_unmap(local->segment, object->memory_size);
	local->segment = NULL;
}

/* --- completion queues --------------------------------------------------------------- */

int32_t request_create_cq(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	struct session *record = session_at(control, session);
	struct object *object = object_create(control, session, OBJECT_TYPE_CQ);
	struct cq_config config = { .session = session, .depth = request->create_cq.depth };
	int number;
	int fd;

	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	if (config.depth == 0 || config.depth > control->limits.max_cq_depth) {
		object_free(control, object);
		return NT_INVALID_PARAMETER;
	}
	number = take_number(record->notifies, SHM_MAX_SESSION_CQS / 64);
	if (number < 0)
		goto free_object;
	config.notify = (uint32_t)number;
	object->memory_size = cq_memory_size(config.depth, net_get_config(control->net)->workers);
	config.memory_size = object->memory_size;
	config.memory = queue_segment_create(object->memory_size, &fd);
	if (!config.memory)
		goto free_number;
	object->number = config.notify;
	object->index = cq_create(control->shared, &config);
	if (!object->index)
		goto free_memory;
	if (queue_segment_give(control, session, request->id, object, config.memory, fd))
		goto destroy;
	control->cq_object[object->index] = object_index(control, object);
	reply->created = (struct shm_created){ .handle = object_handle(control, object),
					       .doorbell = config.notify,
					       .segment_size = object->memory_size };
	return NT_SUCCESS_STATUS;
destroy:
	cq_destroy(control->shared, object->index);
free_memory:
	shm_segment_unmap(config.memory, config.memory_size);
	close(fd);
free_number:
	give_number(record->notifies, config.notify);
free_object:
	object_free(control, object);
	return NT_INSUFFICIENT_RESOURCES;
}

/*
 * The new segment goes to the client at once, the reply when the last worker uses it: then nothing
 * is written to the old one any more, and what is in there is the client's to drain.
 */
int32_t request_resize_cq(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	struct object *cq = object_find(control, session, request->resize.object, OBJECT_TYPE_CQ);
	const uint32_t workers = net_get_config(control->net)->workers;
	const uint32_t depth = request->resize.depth;
	struct shm_segment_message message = { .type = SHM_MSG_OBJECT_SEGMENT,
					       .handle = request->resize.object,
					       .cookie = request->id,
					       .size = cq_memory_size(depth, workers) };
	struct object_local *local;
	void *memory;
	int error;
	int fd;

	if (!cq)
		return NT_INVALID_HANDLE;
	if (depth == 0 || depth > control->limits.max_cq_depth)
		return NT_INVALID_PARAMETER;
	local = &control->object_local[object_index(control, cq)];
	if (local->to_switch)
		return NT_DEVICE_BUSY;
	memory = queue_segment_create(message.size, &fd);
	if (!memory)
		return NT_INSUFFICIENT_RESOURCES;
	cq_prepare(control->shared, cq->index, depth, memory, message.size);
	error = shm_socket_send(control->session[session].socket, &message, sizeof(message), &fd,
				1);
	close(fd);
	if (error) {
		shm_segment_unmap(memory, message.size);
		return NT_INSUFFICIENT_RESOURCES;
	}
	local->next_segment = memory;
	local->next_size = message.size;
	local->to_switch = workers;
	cq->pending_op = request->op;
	cq->pending_id = request->id;
	command_resize_cq(control, cq, depth, memory);
	return NT_PENDING;
}

void cq_resized(struct control *control, struct object *cq)
{
	struct object_local *local = &control->object_local[object_index(control, cq)];

	if (--local->to_switch)
		return;
	shm_segment_unmap(local->segment, cq->memory_size);
	local->segment = local->next_segment;
	cq->memory_size = local->next_size;
	reply_pending(control, cq, NT_SUCCESS_STATUS);
	if (cq->close_id && session_is_open(control, cq->session))
		close_continue(control, cq);
}

void cq_let_go(struct control *control, struct object *object)
{
	cq_destroy(control->shared, object->index);
	control->cq_object[object->index] = 0;
	queue_segment_drop(control, object);
	give_number(session_at(control, object->session)->notifies, object->number);
}

/* --- queue pairs -------------------------------------------------------------------------- */

static void count_load(struct control *control)
{
	uint32_t total = 0;

	memset(control->load, 0, sizeof(control->load));
	for (uint32_t i = 1; i <= control->highest_qp; i++) {
		if (!control->qp_object[i])
			continue;
		control->load[qp_home(control->shared, i)]++;
		total++;
	}
	control->load_lasts = 1 + total / 16;
}

/*
 * Queue pairs move without being told here, so now and then all are counted; not for each new one,
 * or many would take the square of their number.
 */
uint32_t least_loaded_worker(struct control *control)
{
	uint32_t workers = net_get_config(control->net)->workers;
	uint32_t best = 0;

	if (workers == 1)
		return 0;
	if (control->load_lasts == 0)
		count_load(control);
	control->load_lasts--;
	for (uint32_t w = 1; w < workers; w++)
		if (control->load[w] < control->load[best])
			best = w;
	control->load[best]++;
	return best;
}

/* With an SRQ, what is said of receives is the SRQ's. */
static bool qp_within_limits(const struct shm_limits *limits, const struct shm_create_qp *want)
{
	return want->receive_depth <= limits->max_receive_depth &&
	       want->initiator_depth <= limits->max_initiator_depth &&
	       want->receive_sge <= limits->max_receive_sge &&
	       want->initiator_sge <= limits->max_initiator_sge &&
	       want->inline_size <= limits->max_inline &&
	       (want->type == SHM_QP_RC || want->type == SHM_QP_UC || want->type == SHM_QP_UD);
}

static void qp_fill_config(struct control *control, uint32_t session,
			   const struct shm_create_qp *want, struct object *const needs[4],
			   struct qp_config *config)
{
	*config = (struct qp_config){
		.session = session,
		.pd = needs[0]->index,
		.receive_cq = needs[1]->index,
		.send_cq = needs[2]->index,
		.srq = needs[3] ? needs[3]->index : 0,
		.type = want->type,
		.qp_context = want->qp_context,
		.send_depth = want->initiator_depth,
		.receive_depth = want->receive_depth,
		.send_sge = want->initiator_sge,
		.receive_sge = want->receive_sge,
		.inline_size = want->inline_size,
		.home = needs[3] ? srq_home(control->shared, needs[3]->index)
				 : least_loaded_worker(control),
	};
	config->memory_size = qp_memory_size(config);
}

int32_t request_create_qp(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_create_qp *want = &request->create_qp;
	struct session *record = session_at(control, session);
	struct object *needs[4] = {
		object_find(control, session, want->pd, OBJECT_TYPE_PD),
		object_find(control, session, want->receive_cq, OBJECT_TYPE_CQ),
		object_find(control, session, want->initiator_cq, OBJECT_TYPE_CQ),
		want->srq ? object_find(control, session, want->srq, OBJECT_TYPE_SRQ) : NULL,
	};
	struct queue_memory memory;
	struct qp_config config;
	struct object *object;
	int number;

	if (!needs[0] || !needs[1] || !needs[2] || (want->srq && !needs[3]))
		return NT_INVALID_HANDLE;
	if (!qp_within_limits(&control->limits, want))
		return NT_INVALID_PARAMETER;
	object = object_create(control, session, OBJECT_TYPE_QP);
	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	number = take_number(record->doorbells, SHM_MAX_SESSION_QPS / 64);
	if (number < 0)
		goto free_object;
	qp_fill_config(control, session, want, needs, &config);
	config.doorbell = (uint32_t)number;
	object->number = config.doorbell;
	if (queue_memory_take(control, session, config.memory_size, &memory))
		goto free_number;
	config.memory = memory.address;
	object->index = qp_create(control->shared, &config);
	if (!object->index)
		goto free_memory;
	reply->created = (struct shm_created){ .handle = object_handle(control, object),
					       .number = qp_number(control->shared, object->index),
					       .worker = config.home,
					       .doorbell = config.doorbell };
	if (queue_memory_give(control, object, &memory, reply))
		goto destroy;
	for (unsigned int i = 0; i < 4; i++)
		if (needs[i])
			object_need(control, object, i, needs[i]);
	control->qp_object[object->index] = object_index(control, object);
	if (object->index > control->highest_qp)
		control->highest_qp = object->index;
	command_send(control, config.home, WORKER_ATTACH, object->index, COMMAND_QP_ATTACHED,
		     object_handle(control, object), NULL);
	return NT_SUCCESS_STATUS;
destroy:
	qp_destroy(control->shared, object->index);
free_memory:
	queue_memory_return(control, session, &memory);
free_number:
	give_number(record->doorbells, config.doorbell);
free_object:
	object_free(control, object);
	return NT_INSUFFICIENT_RESOURCES;
}

void qp_let_go(struct control *control, struct object *object)
{
	qp_destroy(control->shared, object->index);
	control->qp_object[object->index] = 0;
	queue_memory_drop(control, object);
	give_number(session_at(control, object->session)->doorbells, object->number);
}

int32_t request_flush_qp(struct control *control, uint32_t session,
			 const struct shm_request *request, struct shm_reply *reply)
{
	struct object *qp = object_find(control, session, request->object.object, OBJECT_TYPE_QP);

	if (!qp)
		return NT_INVALID_HANDLE;
	command_send(control, qp_home(control->shared, qp->index), WORKER_FLUSH, qp->index,
		     COMMAND_IGNORE, 0, NULL);
	return NT_SUCCESS_STATUS;
}

static bool is_path_mtu(uint32_t bytes)
{
	return bytes >= 256 && !(bytes & (bytes - 1));
}

/* 0 takes what the port has; false when the port has less than is asked for. */
static bool choose_path_mtu(const struct control *control, unsigned int port, uint32_t *bytes)
{
	uint32_t most = net_port_path_mtu(control->net, port);

	if (*bytes == 0)
		*bytes = most;
	return is_path_mtu(*bytes) && *bytes <= most;
}

static uint8_t read_limit(uint32_t wanted, uint32_t most)
{
	return (uint8_t)(wanted < most ? wanted : most);
}

/* Datagrams have their own paths: a queue pair for them only has an address. */
static int connect_path(struct control *control, const struct shm_connect_qp *want, uint32_t type,
			struct qp_path *path)
{
	int error;

	if (type == SHM_QP_UD) {
		memcpy(path->local_gid, want->local.gid, sizeof(path->local_gid));
		return 0;
	}
	error = net_resolve(control->net, want->local.gid, want->remote.gid, path, control->now);
	path->traffic_class = net_traffic_class(control->net, want->local.gid, want->traffic_class);
	path->hop_limit = want->hop_limit ? want->hop_limit : DEFAULT_HOP_LIMIT;
	return error;
}

/* Connecting by number, as perftest and the pingpongs do: no CM, both sides told out of band. */
int32_t request_connect_qp(struct control *control, uint32_t session,
			   const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_connect_qp *want = &request->connect_qp;
	struct object *qp = object_find(control, session, want->qp, OBJECT_TYPE_QP);
	const struct shm_limits *limits = &control->limits;
	struct qp_connection connection = {
		.remote_qpn = want->remote_qpn & 0xffffff,
		.send_psn = want->send_psn & 0xffffff,
		.receive_psn = want->receive_psn & 0xffffff,
		.path_mtu = want->path_mtu,
		.qkey = want->qkey,
		.timeout = want->timeout,
		.retry_count = want->retry_count,
		.rnr_retry = want->rnr_retry_count,
		.min_rnr_timer = want->min_rnr_timer,
		.remote_rights = RIGHTS_REMOTE,
		.max_reads_in =
			read_limit(want->inbound_read_limit, limits->max_inbound_read_limit),
		.max_reads_out =
			read_limit(want->outbound_read_limit, limits->max_outbound_read_limit),
	};
	struct qp_status status;
	int port;
	int error;

	if (!qp || !qp_get_status(control->shared, qp->index, &status))
		return NT_INVALID_HANDLE;
	if (qp->pending_id || control->object_local[object_index(control, qp)].connector ||
	    status.state != QP_RESET)
		return NT_CONNECTION_ACTIVE;
	port = net_find_address(control->net, want->local.gid);
	if (port < 0)
		return NT_INVALID_ADDRESS;
	if (!choose_path_mtu(control, (unsigned int)port, &connection.path_mtu))
		return NT_INVALID_PARAMETER;
	error = connect_path(control, want, status.type, &connection.path);
	if (error == -EAGAIN)
		return request_wait(control, session, request);
	if (error)
		return resolve_status(error);
	qp->connector.path_mtu = connection.path_mtu;
	qp->pending_op = request->op;
	qp->pending_id = request->id;
	command_send(control, qp_home(control->shared, qp->index), WORKER_CONNECT, qp->index,
		     COMMAND_QP_READY, object_handle(control, qp), &connection);
	return NT_PENDING;
}
