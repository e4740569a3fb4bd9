/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection from its making to its end. */
#include "oriel-connect/lane.h"

#include <time.h>

static void finish(struct lane *lane, NTSTATUS status);

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* --- callbacks: a step of the lane is over ------------------------------------------------- */

static void go(struct lane *lane);

static void on_created(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct lane *lane = context;

	if (NT_SUCCESS(status) && lane->step == LANE_CONNECTOR)
		lane->connector = (NDK_CONNECTOR *)(void *)object;
	else if (NT_SUCCESS(status))
		lane->qp = (NDK_QP *)(void *)object;
	finish(lane, status);
	go(lane);
}

static void on_requested(PVOID context, NTSTATUS status)
{
	finish(context, status);
	go(context);
}

static void on_closed(PVOID context)
{
	on_requested(context, STATUS_SUCCESS);
}

static void on_gone(PVOID context)
{
	struct lane *lane = context;

	lane->gone = true;
	if (!lane->owner->remote && lane->step == LANE_COMPLETE)
		on_requested(lane, STATUS_SUCCESS);
}

/* --- steps --------------------------------------------------------------------------------- */

static NTSTATUS connect_or_accept(struct lane *lane)
{
	struct example *example = lane->owner->example;
	const struct sockaddr_storage *remote = lane->owner->remote;

	lane->begin = now();
	if (!remote)
		return NdkAccept(lane->connector, lane->qp, 1, 1, NULL, 0, on_gone, lane,
				 on_requested, lane);
	return NdkConnect(lane->connector, lane->qp, (PSOCKADDR)&example->local,
			  example_address_size(&example->local), (PSOCKADDR)remote,
			  example_address_size(remote), 1, 1, NULL, 0, on_requested, lane);
}

static NTSTATUS complete_or_wait(struct lane *lane)
{
	if (lane->owner->remote)
		return NdkCompleteConnect(lane->connector, on_gone, lane, on_requested, lane);
	return lane->gone ? STATUS_SUCCESS : STATUS_PENDING;
}

static NTSTATUS begin_step(struct lane *lane)
{
	struct example *example = lane->owner->example;

	switch (lane->step) {
	case LANE_CONNECTOR:
		return NdkCreateConnector(example->adapter, on_created, lane, &lane->connector);
	case LANE_QP:
		return NdkCreateQp(example->pd, example->cq, example->cq, lane, 1, 1, 1, 1, 0,
				   on_created, lane, &lane->qp);
	case LANE_CONNECT: return connect_or_accept(lane);
	case LANE_COMPLETE: return complete_or_wait(lane);
	case LANE_DISCONNECT:
		lane->end = now();
		return NdkDisconnect(lane->connector, on_requested, lane);
	case LANE_CLOSE_CONNECTOR:
		if (!lane->connector)
			return STATUS_SUCCESS;
		return NdkCloseConnector(lane->connector, on_closed, lane);
	case LANE_CLOSE_QP:
		if (!lane->qp)
			return STATUS_SUCCESS;
		return NdkCloseQp(lane->qp, on_closed, lane);
	case LANE_IDLE: break;
	}
	return STATUS_SUCCESS;
}

static void fail(struct lane *lane, NTSTATUS status)
{
	lane->failed = true;
	lane->wrong = status;
	lane->step = LANE_CLOSE_CONNECTOR;
}

/* Sets the next step; begins nothing. */
static void finish(struct lane *lane, NTSTATUS status)
{
	switch (lane->step) {
	case LANE_CONNECTOR:
	case LANE_QP:
	case LANE_CONNECT:
	case LANE_COMPLETE:
		if (!NT_SUCCESS(status)) {
			fail(lane, status);
			return;
		}
		if (lane->step == (lane->owner->remote ? LANE_COMPLETE : LANE_CONNECT))
			lane->up = now();
		break;
	case LANE_DISCONNECT:
		lane->over = now();
		/* The peer may have been first. */
		if (!NT_SUCCESS(status) && status != STATUS_CONNECTION_INVALID) {
			fail(lane, status);
			return;
		}
		break;
	default: break;
	}
	lane->step = lane->step == LANE_CLOSE_QP ? LANE_IDLE : lane->step + 1;
}

/* Until a step takes time, or the lane has ended. */
static void go(struct lane *lane)
{
	while (lane->step != LANE_IDLE) {
		NTSTATUS status = begin_step(lane);

		if (status == STATUS_PENDING)
			return;
		finish(lane, status);
	}
	lane->owner->ended(lane->owner, lane);
}

static void start(struct lane *lane, enum lane_step step, NDK_CONNECTOR *connector)
{
	*lane = (struct lane){ .owner = lane->owner, .step = step, .connector = connector };
	go(lane);
}

void lane_connect(struct lane *lane)
{
	start(lane, LANE_CONNECTOR, NULL);
}

void lane_accept(struct lane *lane, NDK_CONNECTOR *connector)
{
	start(lane, LANE_QP, connector);
}
