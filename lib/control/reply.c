/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Replies and events to a client: its ring, what waits beyond it, the wake-up.
 *
 * How many replies wait is the client's doing, and bounded. Events are of its objects, each of
 * which has few to tell; but all of them may have something to tell at once, when a link or a peer
 * is lost, and that is no reason to end a client that was busy for a moment. Only requests to
 * connect are a stranger's doing: see client_is_behind().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_private.h"

static bool is_event(const struct shm_reply *reply)
{
	return reply->id == 0;
}

void replies_init(struct session_local *local)
{
	local->pending_first = NULL;
	local->pending_last = &local->pending_first;
	local->pending_replies = local->pending_events = 0;
}

void replies_forget(struct session_local *local)
{
	struct pending_reply *pending;

	while ((pending = local->pending_first) != NULL) {
		local->pending_first = pending->next;
		free(pending);
	}
	replies_init(local);
}

bool client_is_behind(const struct control *control, uint32_t session)
{
	return control->session[session].pending_events >= MOST_PENDING_REQUESTS;
}

static bool ring_put(struct session_local *local, const struct shm_reply *reply)
{
	struct shm_session *memory = local->memory;
	uint32_t room =
		shm_ring_free(&memory->reply_cursor, local->reply_tail, SHM_CONTROL_ENTRIES);

	/* An impossible head counts as no room: the client only harms itself. */
	if (room == 0 || room > SHM_CONTROL_ENTRIES)
		return false;
	memory->reply[local->reply_tail % SHM_CONTROL_ENTRIES] = *reply;
	shm_store_release(&memory->reply_cursor.tail, ++local->reply_tail);
	local->wake = true;
	return true;
}

void session_send(struct control *control, uint32_t session, const struct shm_reply *reply)
{
	struct session_local *local = &control->session[session];
	struct pending_reply *pending = NULL;

	if (!session_is_open(control, session))
		return;
	if (!local->pending_first && ring_put(local, reply))
		return;
	if (is_event(reply) || local->pending_replies < MOST_PENDING_REPLIES)
		pending = malloc(sizeof(*pending));
	if (!pending) {
		session_end(control, session, "the client does not read its replies");
		return;
	}
	pending->reply = *reply;
	pending->next = NULL;
	*local->pending_last = pending;
	local->pending_last = &pending->next;
	if (is_event(reply))
		local->pending_events++;
	else
		local->pending_replies++;
}

void reply_status(struct control *control, uint32_t session, uint32_t op, uint32_t id,
		  int32_t status)
{
	struct shm_reply reply = { .op = op, .id = id, .status = status };

	session_send(control, session, &reply);
}

void reply_pending(struct control *control, struct object *object, int32_t status)
{
	uint32_t id = object->pending_id;

	object->pending_id = 0;
	if (id)
		reply_status(control, object->session, object->pending_op, id, status);
	object->pending_op = 0;
}

void send_async(struct control *control, uint32_t session, uint32_t op, uint32_t handle,
		uint32_t event, uint32_t value)
{
	struct shm_reply reply = { .op = op,
				   .async = { .object = handle, .event = event, .value = value } };

	session_send(control, session, &reply);
}

static void take_first(struct session_local *local)
{
	struct pending_reply *pending = local->pending_first;

	local->pending_first = pending->next;
	if (!pending->next)
		local->pending_last = &local->pending_first;
	if (is_event(&pending->reply))
		local->pending_events--;
	else
		local->pending_replies--;
	free(pending);
}

/* What waits goes out as far as there is room; then the client is woken once. */
void session_flush(struct control *control, uint32_t session)
{
	struct session_local *local = &control->session[session];
	uint64_t one = 1;

	while (local->pending_first && ring_put(local, &local->pending_first->reply))
		take_first(local);
	if (!local->wake)
		return;
	local->wake = false;
	if (write(local->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN && errno != EPIPE)
		control_say(control, "waking session %u: %s", session, strerror(errno));
}
