/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames of a queue pair that wait behind a revocation or a READ in progress, in order. */
#include "transport/private.h"

bool park_add(struct transport *t, struct qp *qp, struct pktbuf *packet)
{
	struct qp_local *local = qp_local(t, qp);
	uint32_t index = t->free_parked;

	if (packet == NULL || index == 0 || local->parked >= PARKED_PER_QP)
		return false;
	t->free_parked = t->parked[index].next;
	t->parked[index] = (struct parked){ .packet = packet };
	if (local->parked)
		t->parked[local->parked_last].next = index;
	else
		local->parked_first = index;
	local->parked_last = index;
	local->parked++;
	return true;
}

static struct pktbuf *take_first(struct transport *t, struct qp_local *local)
{
	uint32_t index = local->parked_first;

	local->parked_first = t->parked[index].next;
	local->parked--;
	t->parked[index].next = t->free_parked;
	t->free_parked = index;
	return t->parked[index].packet;
}

static void park_remove_first(struct transport *t, struct qp_local *local)
{
	t->io.put(t->io.context, take_first(t, local), PKTBUF_FREE);
}

struct pktbuf *park_take(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	return local->parked ? take_first(t, local) : NULL;
}

unsigned int park_run(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	unsigned int done = 0;

	while (local->parked && done < POLL_PARKED && local->grace == 0) {
		struct pktbuf *packet = t->parked[local->parked_first].packet;
		struct wire_view view;

		/* It was parsed when it came; it is ours and has not changed. */
		if (wire_parse(packet->data, packet->length, &view) == WIRE_OK &&
		    responder_receive(t, qp, &view))
			break;
		/* A frame that was fatal has emptied the list. */
		if (local->parked == 0)
			break;
		park_remove_first(t, local);
		done++;
	}
	return done;
}

void park_drop(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	while (local->parked)
		park_remove_first(t, local);
}
