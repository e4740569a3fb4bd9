/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of queue pairs: many in one mapping, none in another's, zeroed each time, given back. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/control_private.h"
#include "shm/segment.h"
#include "shm/socket.h"

#define OBJECTS 8192u
#define SESSION 3u

static struct control control;
static struct arena arena;
static int client = -1;
static unsigned int own_segments;

/* --- what queue_memory.c and object.c call ---------------------------------------------------- */

struct session *session_at(const struct control *self, uint32_t session)
{
	return arena_record(self->arena, ARENA_SESSIONS, session);
}

bool session_is_open(const struct control *self, uint32_t session)
{
	return session_at(self, session)->state == SESSION_OPEN;
}

void close_continue(struct control *self, struct object *object)
{
	(void)self;
	(void)object;
}

void *queue_segment_create(uint64_t size, int *fd)
{
	void *address = NULL;

	*fd = shm_segment_create("test", size, false);
	if (*fd >= 0)
		shm_segment_map(*fd, size, false, &address);
	return address;
}

int queue_segment_give(struct control *self, uint32_t session, uint32_t request,
		       const struct object *object, void *memory, int fd)
{
	(void)session;
	(void)request;
	own_segments++;
	close(fd);
	self->object_local[object_index(self, object)].segment = memory;
	return 0;
}

void queue_segment_drop(struct control *self, const struct object *object)
{
	own_segments--;
	shm_segment_unmap(self->object_local[object_index(self, object)].segment,
			  object->memory_size);
}

static void setup(void)
{
	struct arena_spec spec[ARENA_TABLES] = {
		[ARENA_SESSIONS] = { sizeof(struct session), CONTROL_MAX_SESSIONS },
		[ARENA_OBJECTS] = { sizeof(struct object), OBJECTS },
	};
	int ends[2];

	cr_assert_eq(arena_create(&arena, spec), 0);
	control = (struct control){ .arena = &arena,
				    .config.objects = OBJECTS,
				    .object_watermark = 1,
				    .object_local = calloc(OBJECTS, sizeof(struct object_local)) };
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
	control.session[SESSION].socket = ends[0];
	client = ends[1];
	session_at(&control, SESSION)->state = SESSION_OPEN;
}

static void teardown(void)
{
	queue_pool_destroy(&control.session[SESSION].queues);
	close(control.session[SESSION].socket);
	close(client);
	free(control.object_local);
	arena_destroy(&arena);
}

TestSuite(queue_memory, .init = setup, .fini = teardown);

/* A queue pair with that much memory, every byte of it set; its reply too. */
static struct object *make(uint64_t size, int fill, struct shm_reply *reply)
{
	struct object *qp = object_create(&control, SESSION, OBJECT_TYPE_QP);
	struct queue_memory memory;

	*reply = (struct shm_reply){ .id = 1 };
	cr_assert_eq(queue_memory_take(&control, SESSION, size, &memory), 0);
	cr_assert_eq((uintptr_t)memory.address % SHM_CACHE_LINE, 0);
	for (uint64_t i = 0; i < size; i++)
		cr_assert_eq(((uint8_t *)memory.address)[i], 0, "byte %lu of %lu", i, size);
	memset(memory.address, fill, size);
	cr_assert_eq(queue_memory_give(&control, qp, &memory, reply), 0);
	return qp;
}

static void drop(struct object *qp)
{
	queue_memory_drop(&control, qp);
	object_free(&control, qp);
}

static const uint8_t *bytes(const struct object *qp)
{
	return control.object_local[object_index(&control, qp)].segment;
}

static unsigned int segments_received(void)
{
	struct shm_segment_message message;
	unsigned int count = 0, fds = 1;
	int fd;

	while (shm_socket_receive(client, &message, sizeof(message), &fd, &fds) ==
	       sizeof(message)) {
		cr_expect_eq(message.type, SHM_MSG_QUEUE_SEGMENT);
		cr_expect_eq(message.cookie, ++count);
		close(fd);
		fds = 1;
	}
	return count;
}

/* A process has room for some 65,000 mappings (vm.max_map_count). */
Test(queue_memory, thousands_lie_in_a_few_segments_that_are_passed_once)
{
	struct object *qp[4000];
	struct shm_reply reply;
	unsigned int segments;

	for (unsigned int i = 0; i < 4000; i++) {
		qp[i] = make(1024, (int)(i % 251) + 1, &reply);
		cr_assert_eq(reply.created.segment_size, 1024);
		cr_assert_neq(reply.created.segment, 0);
	}
	segments = segments_received();
	cr_expect_eq(segments, 2, "%u segments", segments);
	for (unsigned int i = 0; i < 4000; i++)
		for (unsigned int b = 0; b < 1024; b++)
			cr_assert_eq(bytes(qp[i])[b], i % 251 + 1, "another's bytes in %u", i);
}

/* Whoever gets a place finds nothing of its last owner there, and no place is given twice. */
Test(queue_memory, places_come_again_zeroed)
{
	struct shm_reply reply;
	struct object *keep = make(3000, 7, &reply);

	for (unsigned int round = 0; round < 3; round++) {
		struct object *qp[100];

		for (unsigned int i = 0; i < 100; i++)
			qp[i] = make(3000, 0xff, &reply);
		for (unsigned int i = 0; i < 100; i++)
			drop(qp[i]);
	}
	cr_expect_eq(bytes(keep)[2999], 7);
	drop(keep);
	cr_expect_eq(segments_received(), 1);
	drop(make(3000, 1, &reply));
	cr_expect_eq(segments_received(), 0, "a segment that got empty is used again");
}

Test(queue_memory, every_size_has_a_place_that_holds_it)
{
	uint64_t sizes[] = { 1,    511,  512,  513,  639,   640,   641,   896,
			     1023, 1024, 1025, 5000, 32768, 32769, 65535, 65536 };

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct object *qp[3];
		struct shm_reply reply;

		for (unsigned int n = 0; n < 3; n++) {
			qp[n] = make(sizes[i], (int)n + 1, &reply);
			cr_assert_neq(reply.created.segment, 0);
		}
		for (unsigned int n = 0; n < 3; n++) {
			cr_assert_eq(bytes(qp[n])[0], n + 1, "of %lu", sizes[i]);
			cr_assert_eq(bytes(qp[n])[sizes[i] - 1], n + 1, "of %lu", sizes[i]);
			drop(qp[n]);
		}
	}
}

Test(queue_memory, large_ones_have_a_segment_of_their_own)
{
	struct shm_reply reply;
	struct object *qp = make(QUEUE_LARGEST_SHARED + 1, 1, &reply);

	cr_expect_eq(reply.created.segment, 0);
	cr_expect_eq(reply.created.segment_size, QUEUE_LARGEST_SHARED + 1);
	cr_expect_eq(own_segments, 1);
	drop(qp);
	cr_expect_eq(own_segments, 0);
}

/* The client is gone, or does not read: the create fails and nothing is left of it. */
Test(queue_memory, what_cannot_be_passed_is_returned)
{
	struct object *qp = object_create(&control, SESSION, OBJECT_TYPE_QP);
	struct shm_reply reply = { .id = 1 };
	struct queue_memory memory;

	close(client);
	client = -1;
	cr_assert_eq(queue_memory_take(&control, SESSION, 512, &memory), 0);
	cr_assert_lt(queue_memory_give(&control, qp, &memory, &reply), 0);
	queue_memory_return(&control, SESSION, &memory);
	cr_assert_eq(queue_memory_take(&control, SESSION, 512, &memory), 0);
	cr_expect_eq(memory.place, 0, "the place is free again");
	queue_memory_return(&control, SESSION, &memory);
}
