/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of queue pairs: places in segments that those of a session share, or segments of one. */
#include "control/queue_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define SEGMENT_SIZE  (2u << 20)
#define SMALLEST_SIZE 512u
#define MOST_PLACES   (SEGMENT_SIZE / SMALLEST_SIZE)

struct queue_segment {
	struct queue_segment *next; /* of the session */
	struct queue_segment *next_with_room;
	uint8_t *base;
	int fd; /* until the client has it; then -1 */
	uint32_t number;
	uint32_t size_number;
	uint32_t place_size;
	uint32_t places;
	uint32_t taken;
	uint64_t used[MOST_PLACES / 64]; /* a bit for each place */
};

/*
 * Sizes of places: four in each doubling from 512 bytes on, so at most a fifth of a place is
 * unused. All are multiples of two cache lines.
 */
static uint32_t size_number(uint64_t size)
{
	uint32_t doubling, quarter;

	if (size <= SMALLEST_SIZE)
		return 0;
	doubling = 63 - (uint32_t)__builtin_clzll(size - 1); /* 2^doubling < size */
	quarter = (uint32_t)((size - 1) >> (doubling - 2)) & 3;
	return (doubling - 9) * 4 + quarter + 1;
}

static uint32_t place_size(uint32_t number)
{
	return (4 + number % 4) << (number / 4 + 7);
}

_Static_assert(SMALLEST_SIZE == 4 << 7 && QUEUE_LARGEST_SHARED == 4 << ((QUEUE_SIZES - 1) / 4 + 7),
	       "sizes of places");

/* --- shared segments ---------------------------------------------------------------------------
 */

static struct queue_segment *segment_create(struct queue_pool *pool, uint32_t number)
{
	struct queue_segment *segment = calloc(1, sizeof(*segment));
	void *address;

	if (!segment)
		return NULL;
	segment->fd = shm_segment_create("oriel-queues", SEGMENT_SIZE, false);
	if (segment->fd < 0)
		goto free_segment;
	if (shm_segment_map(segment->fd, SEGMENT_SIZE, false, &address))
		goto close_fd;
	segment->base = address;
	segment->number = ++pool->count;
	segment->size_number = number;
	segment->place_size = place_size(number);
	segment->places = SEGMENT_SIZE / segment->place_size;
	segment->next = pool->first;
	pool->first = segment;
	segment->next_with_room = pool->with_room[number];
	pool->with_room[number] = segment;
	return segment;
close_fd:
	close(segment->fd);
free_segment:
	free(segment);
	return NULL;
}

static uint32_t place_take(struct queue_pool *pool, struct queue_segment *segment)
{
	uint32_t word = 0, place;

	while (segment->used[word] == UINT64_MAX)
		word++;
	place = word * 64 + (uint32_t)__builtin_ctzll(~segment->used[word]);
	segment->used[word] |= 1ull << (place % 64);
	if (++segment->taken == segment->places)
		pool->with_room[segment->size_number] = segment->next_with_room;
	return place;
}

/* Pages that nobody uses go back to the system; both mappings stay. */
static void place_give(struct queue_pool *pool, struct queue_segment *segment, uint32_t place)
{
	if (segment->taken == segment->places) {
		segment->next_with_room = pool->with_room[segment->size_number];
		pool->with_room[segment->size_number] = segment;
	}
	segment->used[place / 64] &= ~(1ull << (place % 64));
	if (--segment->taken == 0)
		shm_segment_empty(segment->base, SEGMENT_SIZE);
	else
		shm_segment_empty(segment->base + (uint64_t)place * segment->place_size,
				  segment->place_size);
}

static int take_shared(struct queue_pool *pool, struct queue_memory *memory)
{
	const uint32_t number = size_number(memory->size);
	struct queue_segment *segment = pool->with_room[number];
	int error;

	if (!segment)
		segment = segment_create(pool, number);
	if (!segment)
		return -ENOMEM;
	memory->shared = segment;
	memory->place = place_take(pool, segment);
	memory->address = segment->base + (uint64_t)memory->place * segment->place_size;
	error = shm_segment_populate(memory->address, segment->place_size);
	if (error) {
		place_give(pool, segment, memory->place);
		return error;
	}
	memset(memory->address, 0, segment->place_size);
	return 0;
}

void queue_pool_destroy(struct queue_pool *pool)
{
	struct queue_segment *segment;

	while ((segment = pool->first) != NULL) {
		pool->first = segment->next;
		shm_segment_unmap(segment->base, SEGMENT_SIZE);
		if (segment->fd >= 0)
			close(segment->fd);
		free(segment);
	}
	*pool = (struct queue_pool){ 0 };
}

/* --- memory of one queue pair ------------------------------------------------------------------
 */

int queue_memory_take(struct control *control, uint32_t session, uint64_t size,
		      struct queue_memory *memory)
{
	*memory = (struct queue_memory){ .size = size, .fd = -1 };
	if (size <= QUEUE_LARGEST_SHARED)
		return take_shared(&control->session[session].queues, memory);
	memory->address = queue_segment_create(size, &memory->fd);
	return memory->address ? 0 : -ENOMEM;
}

void queue_memory_return(struct control *control, uint32_t session,
			 const struct queue_memory *memory)
{
	if (memory->shared) {
		place_give(&control->session[session].queues, memory->shared, memory->place);
		return;
	}
	shm_segment_unmap(memory->address, memory->size);
	close(memory->fd);
}

/* The first queue pair of a shared segment sends that along. */
static int send_shared(struct control *control, uint32_t session, struct queue_segment *segment)
{
	struct shm_segment_message message = { .type = SHM_MSG_QUEUE_SEGMENT,
					       .cookie = segment->number,
					       .size = SEGMENT_SIZE };
	int error;

	if (segment->fd < 0)
		return 0;
	error = shm_socket_send(control->session[session].socket, &message, sizeof(message),
				&segment->fd, 1);
	if (error)
		return error;
	close(segment->fd);
	segment->fd = -1;
	return 0;
}

int queue_memory_give(struct control *control, struct object *object,
		      const struct queue_memory *memory, struct shm_reply *reply)
{
	struct object_local *local = &control->object_local[object_index(control, object)];
	struct queue_segment *shared = memory->shared;
	int error;

	object->memory_size = memory->size;
	reply->created.segment_size = memory->size;
	if (!shared)
		return queue_segment_give(control, object->session, reply->id, object,
					  memory->address, memory->fd);
	error = send_shared(control, object->session, shared);
	if (error)
		return error;
	local->segment = memory->address;
	local->shared = shared;
	reply->created.segment = shared->number;
	reply->created.offset = (uint64_t)memory->place * shared->place_size;
	return 0;
}

void queue_memory_drop(struct control *control, struct object *object)
{
	struct object_local *local = &control->object_local[object_index(control, object)];
	struct queue_segment *shared = local->shared;

	if (!shared) {
		queue_segment_drop(control, object);
		return;
	}
	/* With its session all places go at once. */
	if (session_is_open(control, object->session)) {
		const uint64_t offset = (uint64_t)((uint8_t *)local->segment - shared->base);

		place_give(&control->session[object->session].queues, shared,
			   (uint32_t)(offset / shared->place_size));
	}
	local->segment = NULL;
	local->shared = NULL;
}
