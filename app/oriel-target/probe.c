/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the peers are still there. One that lost its power or its cable says nothing, and who
 * only serves would wait for it for ever. So each connection is asked from time to time by a write
 * of no bytes: it needs no token (IBTA C9-88), reaches no program, and every responder acknowledges
 * it. It is repeated as any request; when nobody answers it fails, and the connection with it.
 */
#include <stdio.h>
#include <time.h>

#include "oriel-target/target.h"

/* A period in this many steps, of a part of the connections each: never all at once. */
#define STEPS 64u

static uint64_t milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t step_length(const struct target *target)
{
	return target->config.probe * 1000 / STEPS;
}

/* What is under way already asks as well; so a queue without room for it needs none. */
static void probe(struct connection *connection)
{
	if (connection->state != CONNECTION_LIVE || connection->probing || connection->sends)
		return;
	if (!NT_SUCCESS(NdkWrite(connection->qp, (PVOID)(uintptr_t)PROBE_TAG, NULL, 0, 0, 0, 0)))
		return;
	connection->probing = true;
	connection->target->probes++;
}

int probe_turn(struct target *target)
{
	uint64_t now;

	if (!target->config.probe || !target->used)
		return -1;
	now = milliseconds();
	if (now >= target->probe_due) {
		for (unsigned int i = target->probe_step; i < target->used; i += STEPS)
			probe(&target->connections[i]);
		target->probe_step = (target->probe_step + 1) % STEPS;
		target->probe_due = now + step_length(target);
	}
	return (int)(target->probe_due - now);
}

void probe_done(struct connection *connection, NTSTATUS status)
{
	struct target *target = connection->target;

	connection->probing = false;
	if (NT_SUCCESS(status)) {
		target->probes_answered++;
	} else if (status == STATUS_IO_TIMEOUT) {
		target->probes_lost++;
		fprintf(stderr,
			"oriel-target: [export %s] a peer does not answer any more: its "
			"connection is ended\n",
			connection->export->name);
	}
}

void probe_tell(const struct target *target)
{
	if (target->probes)
		fprintf(stderr,
			"oriel-target: %llu probes of idle connections, %llu answered, "
			"%llu connections ended for want of an answer\n",
			(unsigned long long)target->probes,
			(unsigned long long)target->probes_answered,
			(unsigned long long)target->probes_lost);
}
