/* SPDX-License-Identifier: BSD-3-Clause */
/* A client's session: its requests, its end, and the freeing of all that it held. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define REQUESTS_PER_POLL 32u

struct session *session_at(const struct control *control, uint32_t session)
{
	return arena_record(control->arena, ARENA_SESSIONS, session);
}

bool session_is_open(const struct control *control, uint32_t session)
{
	return session && session < CONTROL_MAX_SESSIONS &&
	       session_at(control, session)->state == SESSION_OPEN;
}

/* --- requests ------------------------------------------------------------------------ */

static const request_handler handlers[SHM_OP_MAX] = {
	[SHM_OP_CREATE_PD] = request_create_pd,
	[SHM_OP_CREATE_CQ] = request_create_cq,
	[SHM_OP_CREATE_MR] = request_create_mr,
	[SHM_OP_CREATE_MW] = request_create_mw,
	[SHM_OP_CREATE_QP] = request_create_qp,
	[SHM_OP_CREATE_SRQ] = request_create_srq,
	[SHM_OP_CREATE_CONNECTOR] = request_create_connector,
	[SHM_OP_CREATE_LISTENER] = request_create_listener,
	[SHM_OP_CREATE_SHARED_ENDPOINT] = request_create_endpoint,
	[SHM_OP_CLOSE] = request_close,
	[SHM_OP_REGISTER_MR] = request_register_mr,
	[SHM_OP_DEREGISTER_MR] = request_deregister_mr,
	[SHM_OP_INIT_FRMR] = request_init_frmr,
	[SHM_OP_RESIZE_CQ] = request_resize_cq,
	[SHM_OP_MODIFY_SRQ] = request_modify_srq,
	[SHM_OP_FLUSH_QP] = request_flush_qp,
	[SHM_OP_LISTEN] = request_listen,
	[SHM_OP_CONTROL_CONNECT_EVENTS] = request_control_events,
	[SHM_OP_CONNECT] = request_connect,
	[SHM_OP_COMPLETE_CONNECT] = request_complete_connect,
	[SHM_OP_ACCEPT] = request_accept,
	[SHM_OP_REJECT] = request_reject,
	[SHM_OP_DISCONNECT] = request_disconnect,
	[SHM_OP_CONNECT_QP] = request_connect_qp,
	[SHM_OP_REFILL_TOKENS] = request_refill_tokens,
	[SHM_OP_SEGMENT_DROP] = request_segment_drop,
	[SHM_OP_CREATE_AH] = request_create_ah,
	[SHM_OP_RESOLVE_DATAGRAM] = request_resolve_datagram,
	[SHM_OP_ACCEPT_DATAGRAM] = request_accept_datagram,
	[SHM_OP_FIND_SEGMENT] = request_find_segment,
};

void request_run(struct control *control, uint32_t session, const struct shm_request *request)
{
	struct shm_reply reply = { .op = request->op, .id = request->id };

	if (request->op == SHM_OP_NONE || request->op >= SHM_OP_MAX || request->id == 0) {
		control->status.sessions_broken++;
		session_end(control, session, "unknown request in the control ring");
		return;
	}
	reply.status = handlers[request->op]
			       ? handlers[request->op](control, session, request, &reply)
			       : NT_NOT_SUPPORTED;
	if (reply.status != NT_PENDING)
		session_send(control, session, &reply);
}

/*
 * A memfd was sent before the first request that names it, so it is in the socket at the latest
 * now; until that is read and all of it is there the request stays in the ring, and what is behind
 * it.
 */
static bool memory_is_there(struct control *control, uint32_t session, uint32_t op)
{
	if (op != SHM_OP_REGISTER_MR && op != SHM_OP_FIND_SEGMENT && op != SHM_OP_SEGMENT_DROP)
		return true;
	return socket_session_ready(control, session) && session_is_open(control, session) &&
	       !incoming_of(control, session);
}

unsigned int session_poll(struct control *control, uint32_t session)
{
	struct session_local *local = &control->session[session];
	uint32_t used = shm_ring_used(&local->memory->request_cursor, local->request_head);
	unsigned int done = 0;

	if (used > SHM_CONTROL_ENTRIES) {
		control->status.sessions_broken++;
		session_end(control, session, verdict_text(VERDICT(RING_NONSENSE)));
		return 1;
	}
	while (done < used && done < REQUESTS_PER_POLL && session_is_open(control, session)) {
		/* One copy, then only the copy: the client may write the ring at any time. */
		struct shm_request request =
			local->memory->request[local->request_head % SHM_CONTROL_ENTRIES];

		if (!memory_is_there(control, session, request.op))
			break;
		shm_store_release(&local->memory->request_cursor.head, ++local->request_head);
		request_run(control, session, &request);
		done++;
	}
	return done;
}

/* --- opening ---------------------------------------------------------------------------- */

void session_fill_limits(const struct control *control, struct shm_limits *limits)
{
	*limits = (struct shm_limits){
		.max_registration_size = 1ull << 40,
		.max_window_size = 1ull << 40,
		.frmr_page_count = 16384,
		.max_initiator_sge = SHM_MAX_SGE,
		.max_receive_sge = SHM_MAX_SGE,
		.max_read_sge = SHM_MAX_SGE,
		.max_transfer_length = 1u << 31,
		.max_inline = SHM_MAX_INLINE,
		.max_inbound_read_limit = 16,
		.max_outbound_read_limit = 16,
		.max_receive_depth = 8192,
		.max_initiator_depth = 8192,
		.max_srq_depth = 8192,
		.max_cq_depth = 262144,
		.large_request_threshold = 65536,
		.max_caller_data = 56,
		.max_callee_data = 148,
		.adapter_flags = 0x1 | 0x2 | 0x8 | 0x100, /* in-order, no read sink needed, several
							     engines, CQs can be resized */
		.privileged_token = memory_privileged_token(control->memory),
	};
}

static void fill_addresses(const struct control *control, struct shm_session *memory)
{
	const struct net_config *config = net_get_config(control->net);

	for (uint32_t p = 0; p < config->ports; p++) {
		const struct net_port_config *port = &config->port[p];

		for (uint32_t a = 0; a < port->addresses && memory->addresses < SHM_MAX_ADDRESSES;
		     a++) {
			struct shm_address *address = &memory->address[memory->addresses++];

			memcpy(address->gid, port->address[a].gid, 16);
			address->family = port->address[a].prefix_length >= 96 &&
							  gid_is_v4(port->address[a].gid)
						  ? 4
						  : 6;
		}
	}
}

/*
 * The memory of a session and the pipe that wakes its client, who gets the read end. Not an
 * eventfd: the client would share its open file, could make it blocking, fill it, and so stop a
 * worker.
 */
static int session_allocate(struct control *control, uint32_t session, int *memory_fd, int *wake_fd)
{
	struct session_local *local = &control->session[session];
	uint32_t workers = net_get_config(control->net)->workers;
	uint64_t page = 4095;
	void *address;
	int ends[2];
	int error;

	memset(local, 0, sizeof(*local));
	replies_init(local);
	local->size =
		(sizeof(struct shm_session) + workers * sizeof(struct shm_worker_area) + page) &
		~page;
	*memory_fd = shm_segment_create("oriel-session", local->size, false);
	if (*memory_fd < 0)
		return *memory_fd;
	error = shm_segment_map(*memory_fd, local->size, true, &address);
	if (error)
		goto close_memory;
	local->memory = address;
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
		error = -errno;
		goto unmap;
	}
	*wake_fd = ends[0];
	local->event_fd = ends[1];
	local->memory->magic = SHM_MAGIC_SESSION;
	local->memory->layout_version = SHM_LAYOUT_VERSION;
	local->memory->session = session;
	local->memory->workers = workers;
	local->memory->size = local->size;
	local->memory->limits = control->limits;
	fill_addresses(control, local->memory);
	return 0;
unmap:
	shm_segment_unmap(local->memory, local->size);
close_memory:
	close(*memory_fd);
	return error;
}

static int session_welcome(struct control *control, uint32_t session, int socket, int memory_fd,
			   int wake_fd)
{
	struct session_local *local = &control->session[session];
	uint32_t workers = net_get_config(control->net)->workers;
	struct shm_welcome welcome = { .type = SHM_MSG_WELCOME,
				       .magic = SHM_MAGIC_HELLO,
				       .layout_version = SHM_LAYOUT_VERSION,
				       .ndk_major = CONTROL_NDK_MAJOR,
				       .ndk_minor = CONTROL_NDK_MINOR,
				       .session = session,
				       .workers = workers,
				       .session_size = local->size };
	int fds[SHM_SOCKET_MAX_FDS] = { memory_fd, wake_fd, net_control_eventfd(control->net) };

	for (uint32_t w = 0; w < workers; w++)
		fds[3 + w] = net_worker_eventfd(control->net, w);
	return shm_socket_send(socket, &welcome, sizeof(welcome), fds, 3 + workers);
}

/* It comes up in the log and in status: a client cannot write lines of its own there. */
static void keep_name(struct session *record, const struct shm_hello *hello)
{
	snprintf(record->name, sizeof(record->name), "%.31s", hello->name);
	for (char *c = record->name; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
}

int session_open(struct control *control, int socket, const struct shm_hello *hello)
{
	struct epoll_event interest = { .events = EPOLLIN | EPOLLRDHUP };
	struct session *record;
	uint32_t session = 1;
	int memory_fd, wake_fd = -1;
	int error;

	while (session < CONTROL_MAX_SESSIONS &&
	       session_at(control, session)->state != SESSION_FREE)
		session++;
	if (session == CONTROL_MAX_SESSIONS)
		return -ENOSPC;
	error = session_allocate(control, session, &memory_fd, &wake_fd);
	if (error)
		return error;
	interest.data.u64 = EPOLL_SESSION | session;
	if (epoll_ctl(control->epoll, EPOLL_CTL_MOD, socket, &interest)) {
		error = -errno;
		goto free_memory;
	}
	error = session_welcome(control, session, socket, memory_fd, wake_fd);
	if (error)
		goto free_memory;
	close(memory_fd);
	close(wake_fd);
	record = session_at(control, session);
	memset(record, 0, sizeof(*record));
	record->state = SESSION_OPEN;
	keep_name(record, hello);
	socket_peer(socket, record);
	control->session[session].socket = socket;
	if (session > control->highest_session)
		control->highest_session = session;
	control->status.sessions++;
	control->status.sessions_opened++;
	transport_set_session(control->shared, session, control->session[session].memory);
	for (uint32_t w = 0; w < net_get_config(control->net)->workers; w++)
		command_send(control, w, WORKER_ADD_SESSION, session, COMMAND_SESSION_ADDED,
			     session, NULL);
	return 0;
free_memory:
	close(memory_fd);
	close(wake_fd);
	close(control->session[session].event_fd);
	shm_segment_unmap(control->session[session].memory, control->session[session].size);
	return error;
}

/* --- ending ------------------------------------------------------------------------------- */

/* The CM lets go of what the session listened to and was connected with. */
static void end_connections(struct control *control, uint32_t session)
{
	struct object *object;

	for (uint32_t i = session_at(control, session)->first_object; i; i = object->next) {
		object = object_at(control, i);
		object->pending_id = 0;
		endpoint_release(control, object);
		if (object->type == OBJECT_TYPE_LISTENER && object->index)
			cm_unlisten(control->cm, object->index);
		else if (object->type == OBJECT_TYPE_CONNECTOR)
			connection_close(control, object);
	}
}

static void end_workers(struct control *control, uint32_t session)
{
	struct session_local *local = &control->session[session];
	struct object *object;

	for (uint32_t i = session_at(control, session)->first_object; i; i = object->next) {
		object = object_at(control, i);
		if (object->type != OBJECT_TYPE_QP || object->ending == QP_DETACHED)
			continue;
		local->detaching++;
		if (object->ending == QP_DETACHING)
			continue;
		object->ending = QP_DETACHING;
		command_send(control, qp_home(control->shared, object->index), WORKER_DETACH,
			     object->index, COMMAND_QP_DETACHED, object_handle(control, object),
			     NULL);
	}
	for (uint32_t w = 0; w < net_get_config(control->net)->workers; w++) {
		local->detaching++;
		command_send(control, w, WORKER_REMOVE_SESSION, session, COMMAND_SESSION_REMOVED,
			     session, NULL);
	}
}

/*
 * Ends a session at once for everybody else: no token of it is good any more when this returns to
 * the loop, its peers are told, its client is woken. Memory goes when the last worker has let go.
 */
void session_end(struct control *control, uint32_t session, const char *reason)
{
	struct session_local *local = &control->session[session];
	struct session *record = session_at(control, session);
	uint64_t one = 1;

	if (record->state != SESSION_OPEN)
		return;
	record->state = SESSION_ENDING;
	control->status.sessions--;
	session_release(control->memory, session, &local->grace);
	snprintf(local->memory->end_reason, sizeof(local->memory->end_reason), "%s", reason);
	shm_store_release(&local->memory->ended, 1);
	if (write(local->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN && errno != EPIPE)
		control_say(control, "waking session %u: %s", session, strerror(errno));
	close(local->socket);
	replies_forget(local);
	incoming_forget(control, session);
	end_connections(control, session);
	end_workers(control, session);
	control_say(control, "session %u (%s, pid %u) ended: %s", session, record->name,
		    record->pid, reason);
}

static void let_go_all(struct control *control, const struct session *record, enum object_type type,
		       void (*let_go)(struct control *control, struct object *object))
{
	struct object *object;

	for (uint32_t i = record->first_object; i; i = object->next) {
		object = object_at(control, i);
		if (object->type == type)
			let_go(control, object);
	}
}

void session_finish_if_quiet(struct control *control, uint32_t session)
{
	struct session_local *local = &control->session[session];
	struct session *record = session_at(control, session);

	if (record->state != SESSION_ENDING || local->detaching ||
	    !memory_grace_done(control->memory, local->grace))
		return;
	session_release_finish(control->memory, session);
	/* Queue pairs use the others. */
	let_go_all(control, record, OBJECT_TYPE_QP, qp_let_go);
	let_go_all(control, record, OBJECT_TYPE_SRQ, srq_let_go);
	let_go_all(control, record, OBJECT_TYPE_CQ, cq_let_go);
	let_go_all(control, record, OBJECT_TYPE_AH, ah_let_go);
	requests_forget(control, session);
	while (record->first_object) {
		struct object *object = object_at(control, record->first_object);

		memset(object->needs, 0, sizeof(object->needs));
		object_free(control, object);
	}
	queue_pool_destroy(&local->queues);
	transport_set_session(control->shared, session, NULL);
	shm_segment_unmap(local->memory, local->size);
	close(local->event_fd);
	local->memory = NULL;
	record->state = SESSION_FREE;
}
