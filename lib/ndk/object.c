/* SPDX-License-Identifier: BSD-3-Clause */
/* What all objects share: creation, successors, the close that waits for them. */
#include <stdlib.h>

#include "ndk/ndk_private.h"

_Static_assert(sizeof(NDK_ADAPTER) == 48 && sizeof(NDK_SRQ) == 48, "public part of objects");

#define PUBLIC_SIZE sizeof(NDK_ADAPTER)

/* The public part, as far as all types agree. */
struct public_part {
	NDK_OBJECT_HEADER header;
	const void *dispatch;
};

static void close_finish(struct request *request, const struct shm_reply *reply);

struct object *object_of(const NDK_OBJECT_HEADER *header)
{
	return (struct object *)((uintptr_t)header + PUBLIC_SIZE);
}

NDK_OBJECT_HEADER *object_header(struct object *object)
{
	return (NDK_OBJECT_HEADER *)((uintptr_t)object - PUBLIC_SIZE);
}

/* --- creation ------------------------------------------------------------------------- */

void object_init(struct object *object, struct adapter *adapter, NDK_OBJECT_TYPE type,
		 const void *dispatch)
{
	struct public_part *part = (struct public_part *)object_header(object);

	part->header.Version = adapter->version;
	part->header.ObjectType = type;
	part->dispatch = dispatch;
	object->adapter = adapter;
	object->type = type;
	object->close.kind = REQUEST_CLOSE;
	object->close.embedded = true;
	object->close.object = object;
	object->close.finish = close_finish;
	object->close.fd = -1;
}

struct object *object_allocate(struct adapter *adapter, size_t size, NDK_OBJECT_TYPE type,
			       const void *dispatch, void (*destroy)(struct object *object))
{
	void *memory = NULL;
	struct object *object;

	/* Whole cache lines: queues do not share theirs with a neighbour's. */
	size = (size + SHM_CACHE_LINE - 1) & ~(size_t)(SHM_CACHE_LINE - 1);
	memory = aligned_alloc(SHM_CACHE_LINE, size);
	if (!memory)
		return NULL;
	for (size_t i = 0; i < size / sizeof(uint64_t); i++)
		((uint64_t *)memory)[i] = 0;
	object = object_of(memory);
	object->destroy = destroy;
	object_init(object, adapter, type, dispatch);
	return object;
}

void object_add(struct object *object)
{
	struct adapter *adapter = object->adapter;

	object->previous = NULL;
	object->next = adapter->first_object;
	if (object->next)
		object->next->previous = object;
	adapter->first_object = object;
}

/* Only those that events name are looked up: windows and regions may be very many. */
static bool events_name(const struct object *object)
{
	switch (object->type) {
	case NdkObjectTypeQp:
	case NdkObjectTypeCq:
	case NdkObjectTypeSrq:
	case NdkObjectTypeConnector:
	case NdkObjectTypeListener: return true;
	default: return false;
	}
}

void object_set_handle(struct object *object, uint32_t handle)
{
	object->handle = handle;
	if (events_name(object))
		table_add(&object->adapter->objects, &object->by_handle, handle);
}

struct object *object_find(struct adapter *adapter, uint32_t handle, NDK_OBJECT_TYPE type)
{
	struct numbered *found = table_find(&adapter->objects, handle);
	struct object *object = found ? container_of(found, struct object, by_handle) : NULL;

	return object && object->type == type ? object : NULL;
}

static void create_finish(struct request *request, const struct shm_reply *reply)
{
	struct object *object = request->object;
	object_created *created = (object_created *)(uintptr_t)request->extra;

	if (!NT_SUCCESS(request->status))
		return;
	object_set_handle(object, reply->created.handle);
	if (reply->created.segment_size && !reply->created.segment &&
	    !request_take_segment(object->adapter, request, reply->id))
		request->status = STATUS_INTERNAL_ERROR;
	else if (created)
		request->status = created(object, request, &reply->created);
	if (!NT_SUCCESS(request->status))
		object_forget(object->adapter, object->handle);
	else if (object->adapter->closing)
		object_close_silently(object);
}

NTSTATUS object_create(struct object *object, struct shm_request *message, object_created *created,
		       NDK_FN_CREATE_COMPLETION completion, void *context)
{
	struct adapter *adapter = object->adapter;
	struct request *request = request_create(REQUEST_CREATE, object, create_finish);
	NTSTATUS status = STATUS_INSUFFICIENT_RESOURCES;

	pthread_mutex_lock(&adapter->lock);
	object_add(object);
	for (unsigned int i = 0; i < OBJECT_NEEDS; i++)
		if (object->needs[i])
			object->needs[i]->users++;
	if (request) {
		request->extra = (uintptr_t)created;
		request->completion.create = completion;
		request->context = context;
		status = adapter->closing ? STATUS_DEVICE_REMOVED
					  : request_send(adapter, request, message);
	}
	if (status != STATUS_PENDING)
		object_destroy(object);
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		free(request);
	return status;
}

/* --- successors ------------------------------------------------------------------------- */

void object_need(struct object *object, unsigned int slot, struct object *needed)
{
	object->needs[slot] = needed;
	needed->users++;
}

/* Sends the close of an object, or does without the daemon when that has let go already. */
static void close_start(struct object *object)
{
	struct adapter *adapter = object->adapter;
	struct shm_request message = { .op = SHM_OP_CLOSE, .object = { .object = object->handle } };

	if (object->close.by_id.number)
		return;
	if (!object->gone && request_send(adapter, &object->close, &message) == STATUS_PENDING)
		return;
	object->gone = true;
	if (!object->users)
		request_due(adapter, &object->close);
}

void object_drop_need(struct object *object, unsigned int slot)
{
	struct object *needed = object->needs[slot];

	object->needs[slot] = NULL;
	if (needed && --needed->users == 0 && needed->closing)
		close_start(needed);
}

/* --- close ----------------------------------------------------------------------------------- */

/* The daemon has let go: whatever was still asked of the object has ended with it. */
static void close_finish(struct request *request, const struct shm_reply *reply)
{
	struct object *object = request->object;

	object->gone = true;
	request_cancel(object->adapter, object, STATUS_CANCELLED);
}

static void close_begin(struct object *object)
{
	object->closing = true;
	if (!object->users || object->close_early)
		close_start(object);
}

NTSTATUS object_close(NDK_OBJECT_HEADER *header, NDK_FN_CLOSE_COMPLETION completion, void *context)
{
	struct object *object = object_of(header);
	struct adapter *adapter = object->adapter;

	pthread_mutex_lock(&adapter->lock);
	object->close.completion.close = completion;
	object->close.context = context;
	close_begin(object);
	pthread_mutex_unlock(&adapter->lock);
	return STATUS_PENDING;
}

void object_close_silently(struct object *object)
{
	if (!object->closing)
		close_begin(object);
}

void object_forget(struct adapter *adapter, uint32_t handle)
{
	struct shm_request message = { .op = SHM_OP_CLOSE, .object = { .object = handle } };
	struct request *request = request_create(REQUEST_SILENT, NULL, NULL);

	/* Without memory for the request it lasts as long as the session. */
	if (request && request_send(adapter, request, &message) != STATUS_PENDING)
		free(request);
}

void object_destroy(struct object *object)
{
	struct adapter *adapter = object->adapter;

	table_remove(&adapter->objects, &object->by_handle);
	if (object->previous)
		object->previous->next = object->next;
	else
		adapter->first_object = object->next;
	if (object->next)
		object->next->previous = object->previous;
	if (object->destroy)
		object->destroy(object);
	for (unsigned int i = 0; i < OBJECT_NEEDS; i++)
		object_drop_need(object, i);
	free(object_header(object));
}
