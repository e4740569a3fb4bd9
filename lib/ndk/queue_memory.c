/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments in which the queue pairs of a session lie side by side. */
#include <stdlib.h>
#include <unistd.h>

#include "ndk/ndk_private.h"
#include "shm/segment.h"

/* One that the daemon has passed. Mapped when the first of its queues is opened, until the end. */
struct queue_segment {
	struct queue_segment *next;
	uint64_t number;
	uint64_t size;
	uint8_t *base; /* NULL: not mapped yet */
	int fd;        /* -1: mapped */
};

bool queue_segment_add(struct adapter *adapter, uint64_t number, uint64_t size, int fd)
{
	struct queue_segment *segment = malloc(sizeof(*segment));

	if (!segment)
		return false;
	*segment = (struct queue_segment){
		.next = adapter->queue_segments, .number = number, .size = size, .fd = fd
	};
	adapter->queue_segments = segment;
	return true;
}

static struct queue_segment *segment_find(struct adapter *adapter, uint64_t number)
{
	struct queue_segment *segment = adapter->queue_segments;

	while (segment && segment->number != number)
		segment = segment->next;
	return segment;
}

static bool segment_map(struct queue_segment *segment)
{
	void *address;

	if (segment->base)
		return true;
	if (shm_segment_map(segment->fd, segment->size, false, &address))
		return false;
	close(segment->fd);
	segment->fd = -1;
	segment->base = address;
	return true;
}

void queue_segments_release(struct adapter *adapter)
{
	struct queue_segment *segment;

	while ((segment = adapter->queue_segments) != NULL) {
		adapter->queue_segments = segment->next;
		shm_segment_unmap(segment->base, segment->size);
		if (segment->fd >= 0)
			close(segment->fd);
		free(segment);
	}
}

/* Newest first, so the list is short for those that are made now. */
NTSTATUS queue_segment_open(struct adapter *adapter, const struct shm_created *created,
			    void **address)
{
	struct queue_segment *segment;

	while ((segment = segment_find(adapter, created->segment)) == NULL)
		if (!request_take_message(adapter))
			return STATUS_INTERNAL_ERROR;
	if (created->offset > segment->size || created->offset % SHM_CACHE_LINE ||
	    created->segment_size > segment->size - created->offset)
		return STATUS_INTERNAL_ERROR;
	if (!segment_map(segment))
		return STATUS_INSUFFICIENT_RESOURCES;
	*address = segment->base + created->offset;
	/* If that fails, page by page when it is used. */
	(void)shm_segment_populate(*address, created->segment_size);
	return STATUS_SUCCESS;
}
