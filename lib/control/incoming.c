/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of clients that is on its way in. Bringing in gigabytes takes seconds, so it is done
 * piece by piece, one in each turn: only requests of the same client that name memory wait for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_private.h"

struct incoming {
	struct incoming *next;
	uint32_t session;
	uint32_t segment;
	uint64_t cookie;
};

/*
 * The requests that name the cookie will fail; here is why. What the session has already may come
 * again from who did not know that.
 */
static void refuse(struct control *control, uint32_t session, uint64_t cookie, int error)
{
	struct session_local *local = &control->session[session];

	if (error == -EEXIST)
		return;
	local->refused_cookie = cookie;
	local->refused_error = error;
	control_say(control, "session %u: memory segment refused: %s", session,
		    error == -EPERM ? "memfd is not sealed against shrinking and further sealing"
				    : strerror(-error));
}

static void append(struct control *control, struct incoming *incoming)
{
	struct incoming **link = &control->first_incoming;

	while (*link)
		link = &(*link)->next;
	incoming->next = NULL;
	*link = incoming;
}

/* Sessions have their turns one behind the other, however much each has brought. */
static struct incoming **whose_turn(struct control *control)
{
	const uint32_t last = control->last_incoming;
	struct incoming **chosen = &control->first_incoming;
	uint32_t nearest = CONTROL_MAX_SESSIONS;

	for (struct incoming **link = chosen; *link; link = &(*link)->next) {
		uint32_t distance =
			((*link)->session + CONTROL_MAX_SESSIONS - last - 1) % CONTROL_MAX_SESSIONS;

		if (distance < nearest) {
			nearest = distance;
			chosen = link;
		}
	}
	return chosen;
}

void incoming_add(struct control *control, uint32_t session, uint64_t cookie, int fd)
{
	struct incoming *incoming = malloc(sizeof(*incoming));
	int error = -ENOMEM;

	if (incoming)
		error = segment_begin(control->memory, session, cookie, fd,
				      net_numa_node(control->net), &incoming->segment);
	if (error) {
		refuse(control, session, cookie, error);
		free(incoming);
		close(fd);
		return;
	}
	incoming->session = session;
	incoming->cookie = cookie;
	append(control, incoming);
}

bool incoming_poll(struct control *control)
{
	struct incoming **link = whose_turn(control);
	struct incoming *incoming = *link;
	int error;

	if (!incoming)
		return false;
	control->last_incoming = incoming->session;
	error = segment_populate(control->memory, incoming->segment);
	if (error == -EAGAIN)
		return true;
	*link = incoming->next;
	if (error)
		refuse(control, incoming->session, incoming->cookie, error);
	free(incoming);
	return true;
}

bool incoming_of(const struct control *control, uint32_t session)
{
	const struct incoming *incoming = control->first_incoming;

	while (incoming && incoming->session != session)
		incoming = incoming->next;
	return incoming != NULL;
}

int32_t incoming_status(const struct control *control, uint32_t session, uint64_t cookie)
{
	const struct session_local *local = &control->session[session];
	const bool ours = local->refused_cookie == cookie && local->refused_error != -EPERM &&
			  local->refused_error != -EINVAL;

	return local->refused_error && ours ? NT_INSUFFICIENT_RESOURCES : NT_INVALID_PARAMETER;
}

/* What is there of it goes with the session. */
void incoming_forget(struct control *control, uint32_t session)
{
	struct incoming **link = &control->first_incoming;
	struct incoming *incoming;

	while ((incoming = *link) != NULL) {
		if (session && incoming->session != session) {
			link = &incoming->next;
			continue;
		}
		*link = incoming->next;
		free(incoming);
	}
}
