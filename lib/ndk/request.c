/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests to the daemon: into the ring or the queue before it, and their replies. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "ndk/ndk_private.h"
#include "shm/socket.h"

static void request_run(struct call *call);

void call_queue(struct adapter *adapter, struct call *call)
{
	if (call->queued)
		return;
	call->queued = true;
	call->next = NULL;
	*adapter->last_call = call;
	adapter->last_call = &call->next;
	/* Whoever may sleep has to run it, unless a run is under way: that one takes it along. */
	if (!adapter->in_progress && (adapter->fd_given || adapter->slept))
		adapter_kick(adapter);
}

/* --- making -------------------------------------------------------------------------- */

struct request *request_create(enum request_kind kind, struct object *object,
			       request_finisher *finish)
{
	struct request *request = calloc(1, sizeof(*request));

	if (request) {
		request->kind = kind;
		request->object = object;
		request->finish = finish;
		request->fd = -1;
	}
	return request;
}

static void request_free(struct request *request)
{
	if (request->fd >= 0)
		close(request->fd);
	request->fd = -1;
	free(request->message);
	request->message = NULL;
	if (!request->embedded)
		free(request);
}

static bool ring_put(struct adapter *adapter, const struct shm_request *message)
{
	struct shm_session *session = adapter->session;

	if (shm_ring_free(&session->request_cursor, adapter->request_tail, SHM_CONTROL_ENTRIES) ==
	    0)
		return false;
	session->request[adapter->request_tail % SHM_CONTROL_ENTRIES] = *message;
	shm_store_release(&session->request_cursor.tail, ++adapter->request_tail);
	return true;
}

/* The other half of the control core's way to sleep: see shm_doorbell_ring(). */
void request_wake_daemon(struct adapter *adapter)
{
	uint64_t one = 1;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&adapter->session->control_sleeping, __ATOMIC_RELAXED) &&
	    write(adapter->control_fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: the counter is full of wakes already */
}

/* A close must not fail, so what waits builds its message anew if there is no memory for it. */
static void close_message(const struct request *request, struct shm_request *message)
{
	*message = (struct shm_request){ .op = SHM_OP_CLOSE,
					 .id = request->by_id.number,
					 .object = { .object = request->object->handle } };
}

static bool request_wait(struct adapter *adapter, struct request *request,
			 const struct shm_request *message)
{
	if (request->kind != REQUEST_CLOSE) {
		request->message = malloc(sizeof(*message));
		if (!request->message)
			return false;
		*request->message = *message;
	}
	request->waiting = NULL;
	*adapter->last_waiting = request;
	adapter->last_waiting = &request->waiting;
	return true;
}

/* --- outstanding ---------------------------------------------------------------------- */

static struct request *request_find(const struct adapter *adapter, uint64_t id)
{
	struct numbered *found =
		id <= UINT32_MAX ? table_find(&adapter->requests, (uint32_t)id) : NULL;

	return found ? container_of(found, struct request, by_id) : NULL;
}

static bool counts_for_object(const struct request *request)
{
	return request->object && request->kind != REQUEST_CLOSE;
}

static void object_request_add(struct object *object, struct request *request)
{
	request->behind = NULL;
	request->before = object->last_request;
	if (object->last_request)
		object->last_request->behind = request;
	else
		object->first_request = request;
	object->last_request = request;
}

static void object_request_remove(struct object *object, struct request *request)
{
	if (request->before)
		request->before->behind = request->behind;
	else
		object->first_request = request->behind;
	if (request->behind)
		request->behind->before = request->before;
	else
		object->last_request = request->before;
}

static void outstanding_add(struct adapter *adapter, struct request *request, uint32_t id)
{
	table_add(&adapter->requests, &request->by_id, id);
	if (counts_for_object(request))
		object_request_add(request->object, request);
	request->next = NULL;
	request->previous = adapter->last_request;
	if (adapter->last_request)
		adapter->last_request->next = request;
	else
		adapter->first_request = request;
	adapter->last_request = request;
}

static void outstanding_remove(struct adapter *adapter, struct request *request)
{
	table_remove(&adapter->requests, &request->by_id);
	if (counts_for_object(request))
		object_request_remove(request->object, request);
	if (request->previous)
		request->previous->next = request->next;
	else
		adapter->first_request = request->next;
	if (request->next)
		request->next->previous = request->previous;
	else
		adapter->last_request = request->previous;
}

/* --- sending ------------------------------------------------------------------------------ */

NTSTATUS request_send(struct adapter *adapter, struct request *request, struct shm_request *message)
{
	if (adapter->dead)
		return STATUS_DEVICE_REMOVED;
	if (++adapter->next_id == 0)
		adapter->next_id = 1;
	message->id = adapter->next_id;
	request->op = message->op;
	request->fd = -1;
	if (adapter->first_waiting || !ring_put(adapter, message)) {
		if (!request_wait(adapter, request, message))
			return STATUS_INSUFFICIENT_RESOURCES;
	}
	outstanding_add(adapter, request, message->id);
	request_wake_daemon(adapter);
	return STATUS_PENDING;
}

NTSTATUS request_send_async(struct adapter *adapter, struct request *request,
			    struct shm_request *message, NDK_FN_REQUEST_COMPLETION completion,
			    void *context)
{
	NTSTATUS status;

	request->completion.async = completion;
	request->context = context;
	pthread_mutex_lock(&adapter->lock);
	status = request_send(adapter, request, message);
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		request_free(request);
	return status;
}

void request_flush_waiting(struct adapter *adapter)
{
	struct request *request;
	struct shm_request close;
	bool moved = false;

	while ((request = adapter->first_waiting) != NULL) {
		if (request->kind == REQUEST_CLOSE)
			close_message(request, &close);
		if (!ring_put(adapter, request->kind == REQUEST_CLOSE ? &close : request->message))
			break;
		free(request->message);
		request->message = NULL;
		adapter->first_waiting = request->waiting;
		if (!adapter->first_waiting)
			adapter->last_waiting = &adapter->first_waiting;
		moved = true;
	}
	if (moved)
		request_wake_daemon(adapter);
}

/* --- replies ------------------------------------------------------------------------------ */

void request_due(struct adapter *adapter, struct request *request)
{
	request->call.run = request_run;
	call_queue(adapter, &request->call);
}

static void request_finish(struct adapter *adapter, struct request *request,
			   const struct shm_reply *reply)
{
	outstanding_remove(adapter, request);
	free(request->message);
	request->message = NULL;
	request->status = reply->status;
	if (request->finish)
		request->finish(request, reply);
	/* The callbacks of an object's successors come first; the last one goes on here. */
	if (request->kind != REQUEST_CLOSE || !request->object->users)
		request_due(adapter, request);
}

void request_reply(struct adapter *adapter, const struct shm_reply *reply)
{
	struct request *request = request_find(adapter, reply->id);

	if (!request)
		return; /* cancelled meanwhile by the close of its object */
	request_finish(adapter, request, reply);
}

/* Ends all outstanding requests of an object but its close. */
void request_cancel(struct adapter *adapter, struct object *object, NTSTATUS status)
{
	const struct shm_reply reply = { .status = status };

	while (object->first_request)
		request_finish(adapter, object->first_request, &reply);
}

/* The daemon is gone. In the order of sending, so that a close stays an object's last. */
void request_cancel_all(struct adapter *adapter)
{
	const struct shm_reply reply = { .status = STATUS_DEVICE_REMOVED };

	adapter->first_waiting = NULL;
	adapter->last_waiting = &adapter->first_waiting;
	while (adapter->first_request)
		request_finish(adapter, adapter->first_request, &reply);
}

/* Two messages for one id cannot be: the second is dropped. */
static bool segment_arrived(struct adapter *adapter, const struct shm_segment_message *message,
			    int fd)
{
	struct request *request = request_find(adapter, message->cookie);

	if (!request || request->fd >= 0)
		return false;
	request->fd = fd;
	request->size = message->size;
	return true;
}

/* The next message of the socket; `expected` is no more among those that are outstanding. */
static bool take_message(struct adapter *adapter, struct request *expected, uint32_t id)
{
	struct shm_segment_message message;
	unsigned int count = 1;
	int fd = -1;
	int length = shm_socket_receive(adapter->socket, &message, sizeof(message), &fd, &count);
	bool good = length == sizeof(message) && count == 1;
	bool taken = false;

	if (good && message.type == SHM_MSG_QUEUE_SEGMENT) {
		taken = good = queue_segment_add(adapter, message.cookie, message.size, fd);
	} else if (good && message.type == SHM_MSG_OBJECT_SEGMENT) {
		if (expected && message.cookie == id) {
			expected->fd = fd;
			expected->size = message.size;
			taken = true;
		} else {
			taken = segment_arrived(adapter, &message, fd);
		}
	} else {
		good = false;
	}
	if (count && !taken)
		close(fd);
	return good;
}

bool request_take_message(struct adapter *adapter)
{
	return take_message(adapter, NULL, 0);
}

/* A segment precedes the reply that speaks of it, so it is in the socket by now. */
bool request_take_segment(struct adapter *adapter, struct request *request, uint32_t id)
{
	while (request->fd < 0)
		if (!take_message(adapter, request, id))
			return false;
	return true;
}

/* --- telling the consumer ------------------------------------------------------------------- */

static void run_create(struct request *request)
{
	struct object *object = request->object;
	struct adapter *adapter = object->adapter;

	if (NT_SUCCESS(request->status)) {
		request->completion.create(request->context, request->status,
					   object_header(object));
		return;
	}
	pthread_mutex_lock(&adapter->lock);
	object_destroy(object);
	pthread_mutex_unlock(&adapter->lock);
	request->completion.create(request->context, request->status, NULL);
}

/* What the object needed may go only after the callback has returned (life cycle, close). */
static void run_close(struct request *request)
{
	struct object *object = request->object;
	struct adapter *adapter = object->adapter;

	if (request->completion.close)
		request->completion.close(request->context);
	pthread_mutex_lock(&adapter->lock);
	object_destroy(object); /* and with it the request */
	pthread_mutex_unlock(&adapter->lock);
}

static void request_run(struct call *call)
{
	struct request *request = container_of(call, struct request, call);

	switch (request->kind) {
	case REQUEST_CREATE: run_create(request); break;
	case REQUEST_ASYNC:
		if (request->completion.async)
			request->completion.async(request->context, request->status);
		break;
	case REQUEST_CLOSE: run_close(request); return;
	case REQUEST_SILENT: break;
	}
	/* An embedded one may be gone with its object by now. */
	if (!request->embedded)
		request_free(request);
}
