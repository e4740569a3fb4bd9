/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests that wait until a neighbour's Ethernet address is known. They are run again from
 * the start, so whatever they name may have gone meanwhile.
 */
#include <stdlib.h>

#include "control/control_private.h"

#define NEIGHBOUR_PATIENCE 3000000000ull /* ns */
#define MAX_WAITING        1024u         /* of all sessions */

struct waiting_request {
	struct waiting_request *next;
	uint64_t deadline;
	uint32_t session;
	bool again; /* still no answer */
	struct shm_request request;
};

int32_t request_wait(struct control *control, uint32_t session, const struct shm_request *request)
{
	struct waiting_request *waiting = control->retried;

	if (waiting) {
		waiting->again = control->now < waiting->deadline;
		return waiting->again ? NT_PENDING : NT_HOST_UNREACHABLE;
	}
	waiting = control->waiting < MAX_WAITING ? malloc(sizeof(*waiting)) : NULL;
	if (!waiting)
		return NT_INSUFFICIENT_RESOURCES;
	waiting->deadline = control->now + NEIGHBOUR_PATIENCE;
	waiting->session = session;
	waiting->request = *request;
	waiting->next = control->first_waiting;
	control->first_waiting = waiting;
	control->waiting++;
	return NT_PENDING;
}

void requests_retry(struct control *control)
{
	struct waiting_request **link = &control->first_waiting;
	struct waiting_request *waiting;

	while ((waiting = *link) != NULL) {
		waiting->again = false;
		if (session_is_open(control, waiting->session)) {
			control->retried = waiting;
			request_run(control, waiting->session, &waiting->request);
			control->retried = NULL;
		}
		if (waiting->again) {
			link = &waiting->next;
			continue;
		}
		*link = waiting->next;
		control->waiting--;
		free(waiting);
	}
}

/* What it asked for must not come to life in the session's successor. */
void requests_forget(struct control *control, uint32_t session)
{
	struct waiting_request **link = &control->first_waiting;
	struct waiting_request *waiting;

	while ((waiting = *link) != NULL) {
		if (session && waiting->session != session) {
			link = &waiting->next;
			continue;
		}
		*link = waiting->next;
		control->waiting--;
		free(waiting);
	}
}
