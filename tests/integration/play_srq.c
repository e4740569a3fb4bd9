/* SPDX-License-Identifier: BSD-3-Clause */
/* Scenes with shared receive queues: b shares one between queue pairs, a sends to them. */
#include <string.h>
#include <unistd.h>

#include "common/sync.h"
#include "play.h"

#define QPS    3u
#define LENGTH 512u

struct crowd {
	NDK_SRQ *srq;
	NDK_QP *from[QPS], *to[QPS];
	unsigned int notified;
	bool limit;
};

static void on_limit(PVOID context, NTSTATUS status)
{
	struct crowd *crowd = context;

	SUCCEEDS(status);
	crowd->notified++;
	crowd->limit = true;
}

static void gather(struct crowd *crowd, struct end *a, struct end *b, ULONG threshold)
{
	memset(crowd, 0, sizeof(*crowd));
	crowd->srq = create_srq(b, 16, threshold, on_limit, crowd);
	for (uintptr_t i = 0; i < QPS; i++) {
		crowd->from[i] = create_qp(a, (PVOID)i);
		crowd->to[i] = create_qp_with_srq(b, crowd->srq, (PVOID)i);
		connect_qps(a, crowd->from[i], b, crowd->to[i]);
	}
}

static void post(struct crowd *crowd, struct end *b, uintptr_t context)
{
	NDK_SGE sge = sge_at(b, context * LENGTH, LENGTH);

	SUCCEEDS(NdkSrqReceive(crowd->srq, (PVOID)context, &sge, 1));
}

/* A message that tells its number by its bytes; completed when it has been received. */
static void send_one(struct crowd *crowd, struct end *a, unsigned int from, uint8_t number)
{
	NDK_SGE sge = sge_at(a, number * LENGTH, LENGTH);

	memset(a->bytes + number * LENGTH, number, LENGTH);
	SUCCEEDS(NdkSend(crowd->from[from], NULL, &sge, 1, 0));
}

static void receive_one(struct end *b, unsigned int from, uintptr_t context, uint8_t number)
{
	NDK_RESULT_EX entry = result(b, STATUS_SUCCESS, "a receive of the shared queue");

	DEMAND((uintptr_t)entry.QPContext == from, "message %u came by %p", number,
	       entry.QPContext);
	DEMAND((uintptr_t)entry.RequestContext == context, "message %u took receive %p", number,
	       entry.RequestContext);
	DEMAND(entry.BytesTransferred == LENGTH, "message %u has %u bytes", number,
	       entry.BytesTransferred);
	for (ULONG i = 0; i < LENGTH; i++)
		DEMAND(b->bytes[context * LENGTH + i] == number, "byte %u of message %u is %u", i,
		       number, b->bytes[context * LENGTH + i]);
}

/* Messages over several queue pairs take the receives in the order in which they come. */
static void share(struct end *a, struct end *b)
{
	struct crowd crowd;

	gather(&crowd, a, b, 0);
	for (unsigned int round = 0; round < 40; round++) {
		for (uintptr_t context = 1; context <= 6; context++)
			post(&crowd, b, context);
		for (uint8_t number = 1; number <= 6; number++) {
			send_one(&crowd, a, (number + round) % QPS, number);
			result(a, STATUS_SUCCESS, "a send");
			receive_one(b, (number + round) % QPS, number, number);
		}
	}
	DEMAND(crowd.notified == 0, "a threshold of 0 has notified");
}

static NTSTATUS modify(struct crowd *crowd, struct end *b, ULONG depth, ULONG threshold)
{
	struct sync sync = sync_begin(b->adapter);

	return sync_end(&sync, NdkModifySrq(crowd->srq, depth, threshold, sync_requested, &sync));
}

/* NdkModifySrq: one notification for each arm; at once when there are fewer already. */
static void limit(struct end *a, struct end *b)
{
	struct crowd crowd;

	gather(&crowd, a, b, 3);
	no_result(b, "an empty queue");
	DEMAND(crowd.notified == 0, "a queue that was never filled has notified");
	for (uintptr_t context = 1; context <= 4; context++)
		post(&crowd, b, context);
	send_one(&crowd, a, 0, 1);
	receive_one(b, 0, 1, 1);
	no_result(b, "three are left");
	DEMAND(crowd.notified == 0, "three are left, which is not below three");
	send_one(&crowd, a, 1, 2);
	receive_one(b, 1, 2, 2);
	until(a, b, &crowd.limit, "two are left: no notification");
	send_one(&crowd, a, 2, 3);
	receive_one(b, 2, 3, 3);
	no_result(b, "one is left");
	DEMAND(crowd.notified == 1, "it is told once for each arm, not %u times", crowd.notified);
	crowd.limit = false;
	SUCCEEDS(modify(&crowd, b, 0, 2));
	until(a, b, &crowd.limit, "one is left when it is armed for two: no notification");
	SUCCEEDS(modify(&crowd, b, 0, 0));
	send_one(&crowd, a, 0, 4);
	receive_one(b, 0, 4, 4);
	no_result(b, "none is left");
	DEMAND(crowd.notified == 2, "a threshold of 0 has armed");
}

/* ND: a message that finds no receive waits at its sender; nobody fails. */
static void empty(struct end *a, struct end *b)
{
	struct crowd crowd;

	gather(&crowd, a, b, 0);
	for (uint8_t number = 1; number <= QPS; number++)
		send_one(&crowd, a, number - 1u, number);
	no_result(a, "sends to an empty queue");
	for (uintptr_t context = 1; context <= QPS; context++)
		post(&crowd, b, context);
	for (unsigned int i = 0; i < QPS; i++) {
		result(a, STATUS_SUCCESS, "a send that waited");
		result(b, STATUS_SUCCESS, "its receive");
	}
}

static void depths(struct end *a, struct end *b)
{
	struct crowd crowd;
	NDK_SGE sge;

	gather(&crowd, a, b, 0);
	sge = sge_at(b, 0, LENGTH);
	for (uintptr_t context = 0; context < 10; context++)
		post(&crowd, b, context);
	expect_status(modify(&crowd, b, 9, 0), STATUS_BUFFER_OVERFLOW, "fewer than are queued");
	expect_status(modify(&crowd, b, 17, 0), STATUS_INSUFFICIENT_RESOURCES,
		      "more than the ring");
	expect_status(modify(&crowd, b, 100000, 0), STATUS_INVALID_PARAMETER, "above the limit");
	SUCCEEDS(modify(&crowd, b, 10, 0));
	expect_status(NdkSrqReceive(crowd.srq, NULL, &sge, 1), STATUS_NO_MORE_ENTRIES, "full");
	SUCCEEDS(modify(&crowd, b, 16, 0));
	for (uintptr_t context = 10; context < 16; context++)
		post(&crowd, b, context);
	expect_status(NdkSrqReceive(crowd.srq, NULL, &sge, 1), STATUS_NO_MORE_ENTRIES, "full");
	for (uintptr_t context = 0; context < 16; context++) {
		send_one(&crowd, a, context % QPS, (uint8_t)(context + 1));
		receive_one(b, context % QPS, context, (uint8_t)(context + 1));
	}
	expect_status(NdkReceive(crowd.to[0], NULL, &sge, 1), STATUS_INVALID_DEVICE_REQUEST,
		      "a receive beside the shared queue");
}

static void drain(struct end *end)
{
	NDK_RESULT_EX entry;

	while (NdkGetCqResultsEx(end->cq, &entry, 1))
		;
}

/* What is told of the first message, whose queue pair is closed, and then of the second. */
static bool tell_apart(struct end *b)
{
	bool cancelled = false;

	for (unsigned int told = 1;; told++) {
		NDK_RESULT_EX entry = any_result(b, "the receive of the second message");

		if (entry.QPContext == (PVOID)1) {
			expect_status(entry.Status, STATUS_SUCCESS, "the second message");
			DEMAND((uintptr_t)entry.RequestContext == told,
			       "it took receive %p, not %u", entry.RequestContext, told);
			return cancelled;
		}
		DEMAND(told == 1 && entry.RequestContext == (PVOID)1, "entry %u: receive %p", told,
		       entry.RequestContext);
		cancelled = entry.Status == STATUS_CANCELLED;
		DEMAND(cancelled || entry.Status == STATUS_SUCCESS, "the first message: %s",
		       OrielStatusName(entry.Status));
	}
}

/*
 * A queue pair is closed in the middle of a message: the receive that it holds is told exactly
 * once, and what it did not take serves the others.
 */
static void holders(struct end *a, struct end *b)
{
	unsigned int cancelled = 0;

	for (unsigned int round = 0; round < 30; round++) {
		NDK_SGE large = sge_at(a, 0, MEMORY / 2);
		NDK_SGE room = sge_at(b, MEMORY / 2, MEMORY / 2);
		struct crowd crowd;

		gather(&crowd, a, b, 0);
		SUCCEEDS(NdkSrqReceive(crowd.srq, (PVOID)1, &room, 1));
		post(&crowd, b, 2);
		SUCCEEDS(NdkSend(crowd.from[0], NULL, &large, 1, 0));
		usleep(round * 20);
		close_object(b, &crowd.to[0]->Header);
		send_one(&crowd, a, 1, 9);
		cancelled += tell_apart(b);
		for (unsigned int i = 0; i < QPS; i++) {
			close_object(a, &crowd.from[i]->Header);
			if (i)
				close_object(b, &crowd.to[i]->Header);
		}
		close_object(b, &crowd.srq->Header);
		drain(a);
		drain(b);
	}
	printf("%u of 30 receives in hand were cancelled\n", cancelled);
}

static void closed(PVOID context)
{
	++*(unsigned int *)context;
}

/* Life cycle: closes in any order; what others need goes after them. */
static void orders(struct end *a, struct end *b)
{
	static const uint8_t order[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					     { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

	for (unsigned int o = 0; o < 6; o++) {
		NDK_SRQ *srq = create_srq(b, 8, 0, NULL, NULL);
		NDK_QP *first = create_qp_with_srq(b, srq, NULL);
		NDK_QP *second = create_qp_with_srq(b, srq, NULL);
		unsigned int gone = 0;
		bool all = false;

		for (unsigned int i = 0; i < 3; i++) {
			NTSTATUS status = STATUS_PENDING;

			switch (order[o][i]) {
			case 0: status = NdkCloseSrq(srq, closed, &gone); break;
			case 1: status = NdkCloseQp(first, closed, &gone); break;
			default: status = NdkCloseQp(second, closed, &gone); break;
			}
			expect_status(status, STATUS_PENDING, "close");
		}
		for (unsigned int tries = 0; tries < PATIENCE && !all; tries++) {
			OrielProgress(b->adapter);
			OrielProgress(a->adapter);
			all = gone == 3;
			usleep(1000);
		}
		DEMAND(all, "order %u: %u of 3 are gone", o, gone);
	}
}

/* Waits with everything open and messages under way until it is killed. */
static void hang(struct end *a, struct end *b)
{
	struct crowd crowd;

	gather(&crowd, a, b, 2);
	for (uintptr_t context = 1; context <= 8; context++)
		post(&crowd, b, context);
	for (uint8_t number = 1; number <= 12; number++)
		send_one(&crowd, a, number % QPS, number);
	printf("hanging\n");
	for (;;)
		pause();
}

const struct scene srq_scenes[] = {
	{ "srq-share", share },     { "srq-limit", limit },
	{ "srq-empty", empty },     { "srq-depths", depths },
	{ "srq-holders", holders }, { "srq-orders", orders },
	{ "srq-hang", hang },       { NULL, NULL },
};
