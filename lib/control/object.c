/* SPDX-License-Identifier: BSD-3-Clause */
/* The object table: handles, lists per session, and who needs whom. */
#include <string.h>

#include "control/control_private.h"

struct object *object_at(const struct control *control, uint32_t index)
{
	return arena_record(control->arena, ARENA_OBJECTS, index);
}

uint32_t object_index(const struct control *control, const struct object *object)
{
	return (uint32_t)(object - object_at(control, 0));
}

uint32_t object_handle(const struct control *control, const struct object *object)
{
	return object->generation << OBJECT_INDEX_BITS | object_index(control, object);
}

/* Generations make a handle that outlived its object harmless. */
struct object *object_create(struct control *control, uint32_t session, enum object_type type)
{
	struct session *owner = session_at(control, session);
	struct object *object;
	uint32_t generation;
	uint32_t index;

	if (control->free_object) {
		index = control->free_object;
		control->free_object = object_at(control, index)->next;
	} else if (control->object_watermark < arena_records(control->arena, ARENA_OBJECTS)) {
		index = control->object_watermark++;
	} else {
		return NULL;
	}
	object = object_at(control, index);
	generation = object->generation + 1;
	memset(object, 0, sizeof(*object));
	object->generation = generation & (UINT32_MAX >> OBJECT_INDEX_BITS);
	object->type = type;
	object->session = session;
	object->next = owner->first_object;
	if (object->next)
		object_at(control, object->next)->prev = index;
	owner->first_object = index;
	owner->objects++;
	control->status.objects[type]++;
	control->object_local[index].segment = NULL;
	control->object_local[index].shared = NULL;
	control->object_local[index].shut_out = false;
	control->object_local[index].to_switch = 0;
	return object;
}

void object_free(struct control *control, struct object *object)
{
	struct session *owner = session_at(control, object->session);
	uint32_t index = object_index(control, object);

	if (object->prev)
		object_at(control, object->prev)->next = object->next;
	else
		owner->first_object = object->next;
	if (object->next)
		object_at(control, object->next)->prev = object->prev;
	owner->objects--;
	control->status.objects[object->type]--;
	object->type = OBJECT_TYPE_NONE;
	object->prev = 0;
	object->next = control->free_object;
	control->free_object = index;
}

struct object *object_find(const struct control *control, uint32_t session, uint32_t handle,
			   enum object_type type)
{
	uint32_t index = handle & OBJECT_INDEX_MASK;
	struct object *object;

	if (index == 0 || index >= control->object_watermark)
		return NULL;
	object = object_at(control, index);
	if (object->type != type || object->session != session ||
	    object->generation != handle >> OBJECT_INDEX_BITS || object->close_id)
		return NULL;
	return object;
}

void object_need(struct control *control, struct object *object, unsigned int slot,
		 struct object *needed)
{
	object->needs[slot] = object_index(control, needed);
	needed->users++;
}

void object_release_needs(struct control *control, struct object *object)
{
	for (unsigned int i = 0; i < 4; i++) {
		struct object *needed;

		if (!object->needs[i])
			continue;
		needed = object_at(control, object->needs[i]);
		object->needs[i] = 0;
		if (--needed->users == 0 && needed->close_id)
			close_continue(control, needed);
	}
}
