/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that queue pairs share with their client: small ones lie side by side in segments of
 * the session, large ones have a segment of their own, as completion queues have. A process may
 * have some 65,000 mappings, which is fewer than the queue pairs that a session may have.
 */
#ifndef CONTROL_QUEUE_MEMORY_H
#define CONTROL_QUEUE_MEMORY_H

#include <stdint.h>

struct control;
struct object;
struct shm_reply;
struct queue_segment;

#define QUEUE_LARGEST_SHARED 65536u /* bytes; larger ones have a segment of their own */
#define QUEUE_SIZES          29u    /* sizes of places in shared segments, see size_number() */

/* Of a session: its shared segments, which stay until it ends. */
struct queue_pool {
	struct queue_segment *first;                  /* all of them */
	struct queue_segment *with_room[QUEUE_SIZES]; /* that have a free place of this size */
	uint32_t count;
};

struct queue_memory {
	void *address; /* zeroed; a multiple of 64 */
	uint64_t size;
	struct queue_segment *shared; /* NULL: a segment of its own, by `fd` */
	uint32_t place;
	int fd;
};

/* Memory for a new queue pair of this session. 0 or a negative errno. */
int queue_memory_take(struct control *control, uint32_t session, uint64_t size,
		      struct queue_memory *memory);
/*
 * The client gets it with the reply, which is filled in as far as the memory goes, and the object
 * has it. A negative errno: neither, and it is still the caller's.
 */
int queue_memory_give(struct control *control, struct object *object,
		      const struct queue_memory *memory, struct shm_reply *reply);
/* What was taken and not given. */
void queue_memory_return(struct control *control, uint32_t session,
			 const struct queue_memory *memory);
/* No worker uses the object's memory any more. */
void queue_memory_drop(struct control *control, struct object *object);
/* At the end of a session, when nobody uses any of them. */
void queue_pool_destroy(struct queue_pool *pool);

#endif
