/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client has not read yet: kept in order, bounded where the client or strangers cause it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "control/control_private.h"

#define SESSION 1u

static struct control control;
static struct session_local *const client = &control.session[SESSION];
static const char *ended;

bool session_is_open(const struct control *c, uint32_t session)
{
	return c == &control && session == SESSION && !ended;
}

void session_end(struct control *c, uint32_t session, const char *reason)
{
	replies_forget(&c->session[session]);
	ended = reason;
}

static void setup(void)
{
	memset(&control, 0, sizeof(control));
	ended = NULL;
	replies_init(client);
	client->memory = calloc(1, sizeof(struct shm_session));
	client->event_fd = eventfd(0, EFD_NONBLOCK);
	cr_assert(client->memory && client->event_fd >= 0);
}

static void teardown(void)
{
	replies_forget(client);
	close(client->event_fd);
	free(client->memory);
}

TestSuite(reply, .init = setup, .fini = teardown);

/* Reads all there is, and checks that `async.value` or `id` counts on from *next. */
static void read_all(uint32_t *next)
{
	struct shm_ring_cursor *cursor = &client->memory->reply_cursor;

	session_flush(&control, SESSION);
	while (cursor->head != cursor->tail) {
		const struct shm_reply *reply =
			&client->memory->reply[cursor->head++ % SHM_CONTROL_ENTRIES];

		cr_assert_eq(reply->id ? reply->id : reply->async.value, (*next)++);
		if (cursor->head == cursor->tail)
			session_flush(&control, SESSION);
	}
}

/* A link with ten thousand connections fails while their client looks away. */
Test(reply, events_of_all_objects_wait_in_order)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < 20000; i++)
		send_async(&control, SESSION, SHM_EV_DISCONNECTED, i, 0, i);
	cr_assert_null(ended);
	read_all(&next);
	cr_assert_eq(next, 20000);
	cr_assert_null(client->pending_first);
	cr_assert_not(client_is_behind(&control, SESSION));
}

/* Replies in between neither overtake nor count. */
Test(reply, replies_wait_behind_events)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < 6000; i++)
		if (i % 2)
			reply_status(&control, SESSION, SHM_OP_CREATE_PD, i, 0);
		else
			send_async(&control, SESSION, SHM_EV_DISCONNECTED, i, 0, i);
	cr_assert_null(ended);
	read_all(&next);
	cr_assert_eq(next, 6000);
}

Test(reply, replies_that_nobody_reads_end_the_session)
{
	const uint32_t most = SHM_CONTROL_ENTRIES + MOST_PENDING_REPLIES;

	for (uint32_t i = 1; i <= most; i++)
		reply_status(&control, SESSION, SHM_OP_CREATE_PD, i, 0);
	cr_assert_null(ended);
	reply_status(&control, SESSION, SHM_OP_CREATE_PD, most + 1, 0);
	cr_assert_not_null(ended);
}

/* B66: strangers do not fill what a busy client has to read. */
Test(reply, a_client_behind_with_its_events_gets_no_more_requests)
{
	uint32_t sent = 0, next = 0;

	while (!client_is_behind(&control, SESSION)) {
		send_async(&control, SESSION, SHM_EV_CONNECT_REQUEST, 0, 0, sent++);
		cr_assert_leq(sent, 10000);
	}
	cr_assert_null(ended);
	read_all(&next);
	cr_assert_eq(next, sent);
	cr_assert_not(client_is_behind(&control, SESSION));
}
