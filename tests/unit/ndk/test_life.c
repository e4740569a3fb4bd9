/* SPDX-License-Identifier: BSD-3-Clause */
/* Life-cycle rules that all objects share. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "rig.h"

/* --- create ----------------------------------------------------------------------------- */

/* After STATUS_PENDING the out parameter is not written: the variable may be gone. */
Test(create, pending_leaves_the_out_parameter_alone)
{
	NDK_PD *const untouched = (NDK_PD *)0x1234;
	struct outcome outcome = { 0 };
	NDK_PD *pd = untouched;
	struct rig rig;

	rig_open(&rig);
	cr_assert_eq(NdkCreatePd(rig.adapter, on_created, &outcome, &pd), STATUS_PENDING);
	cr_expect_eq(outcome.calls, 0);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 1);
	cr_expect_eq(outcome.status, STATUS_SUCCESS);
	cr_expect_eq(pd, untouched);
	cr_expect_eq(outcome.object->ObjectType, NdkObjectTypePd);
	for (unsigned int i = 0; i < 4; i++)
		cr_expect_null(outcome.object->NdkReserved.rf[i]);
	rig_close(&rig);
}

Test(create, failure_gives_no_object)
{
	struct outcome outcome = { .object = (NDK_OBJECT_HEADER *)1 };
	struct rig rig;

	rig_open(&rig);
	rig.fake.status[SHM_OP_CREATE_PD] = STATUS_INSUFFICIENT_RESOURCES;
	cr_assert_eq(NdkCreatePd(rig.adapter, on_created, &outcome, NULL), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 1);
	cr_expect_eq(outcome.status, STATUS_INSUFFICIENT_RESOURCES);
	cr_expect_null(outcome.object);
	rig_close(&rig);
}

/* NdkCreateCq, NdkCreateQp: numbers outside NDK_ADAPTER_INFO. */
Test(create, limits_are_checked_inline)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_expect_eq(NdkCreateCq(rig.adapter, 4097, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkCreateCq(rig.adapter, 0, NULL, NULL, NULL, on_created, &outcome, NULL),
		     STATUS_INVALID_PARAMETER);
	for (unsigned int i = 0; i < 5; i++) {
		const ULONG limit[5] = { 1024, 1024, 16, 16, 256 };
		ULONG n[5] = { 1, 1, 1, 1, 1 };

		n[i] = limit[i] + 1;
		cr_expect_eq(NdkCreateQp(rig.pd, rig.cq, rig.cq, NULL, n[0], n[1], n[2], n[3], n[4],
					 on_created, &outcome, NULL),
			     STATUS_INVALID_PARAMETER, "number %u", i);
	}
	cr_expect_eq(outcome.calls, 0);
	rig_close(&rig);
}

Test(create, all_limits_at_their_maximum)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_assert_eq(NdkCreateQp(rig.pd, rig.cq, rig.cq, NULL, 1024, 1024, 16, 16, 256, on_created,
				 &outcome, NULL),
		     STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(outcome.status, STATUS_SUCCESS);
	rig_close(&rig);
}

/* More requests than the ring holds wait in the library, and all complete, once each. */
Test(create, a_full_request_ring_queues)
{
	enum { MANY = 3 * SHM_CONTROL_ENTRIES };
	struct outcome outcome[MANY] = { 0 };
	struct rig rig;

	rig_open(&rig);
	for (unsigned int i = 0; i < MANY; i++)
		cr_assert_eq(NdkCreatePd(rig.adapter, on_created, &outcome[i], NULL),
			     STATUS_PENDING);
	for (unsigned int i = 0; i < 8; i++)
		rig_run(&rig);
	for (unsigned int i = 0; i < MANY; i++) {
		cr_assert_eq(outcome[i].calls, 1, "request %u", i);
		cr_assert_eq(outcome[i].status, STATUS_SUCCESS);
	}
	rig_close(&rig);
}

static void ignores_arrival(PVOID context, NDK_CONNECTOR *connector)
{
}

Test(create, replies_in_another_order_find_their_requests)
{
	struct outcome pd = { 0 }, listener = { 0 };
	struct rig rig;

	rig_open(&rig);
	rig.fake.hold[SHM_OP_CREATE_PD] = true;
	NdkCreatePd(rig.adapter, on_created, &pd, NULL);
	NdkCreateListener(rig.adapter, ignores_arrival, NULL, on_created, &listener, NULL);
	rig_run(&rig);
	cr_expect_eq(listener.calls, 1);
	cr_expect_eq(listener.object->ObjectType, NdkObjectTypeListener);
	cr_expect_eq(pd.calls, 0);
	fake_answer(&rig.fake, SHM_OP_CREATE_PD, STATUS_SUCCESS, NULL);
	rig_run(&rig);
	cr_expect_eq(pd.object->ObjectType, NdkObjectTypePd);
	rig_close(&rig);
}

/* --- extensions -------------------------------------------------------------------------- */

/* A header and a table whose second member, the adapter's first, asks for extensions. */
static NTSTATUS ask(NDK_OBJECT_HEADER *header, unsigned int slot)
{
	const NDK_FN_QUERY_EXTENSION_INTERFACE *table =
		*(const NDK_FN_QUERY_EXTENSION_INTERFACE *const *)(const void *)(header + 1);
	NDK_EXTENSION_INTERFACE interface;
	GUID id = { .Data1 = 1 };

	return table[slot](header, &id, (NDK_VERSION){ 1, 0 }, &interface);
}

static void on_listen(PVOID context, NDK_CONNECTOR *connector)
{
	cr_assert_fail("nobody connects");
}

/* NdkQueryExtension: of every object, and there is none. */
Test(extension, no_object_has_one)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(0x0a000001) };
	struct outcome made[4] = { 0 };
	struct rig rig;

	rig_queues(&rig);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	NdkCreateConnector(rig.adapter, on_created, &made[0], NULL);
	NdkCreateListener(rig.adapter, on_listen, NULL, on_created, &made[1], NULL);
	NdkCreateSharedEndpoint(rig.adapter, (PSOCKADDR)&address, sizeof(address), on_created,
				&made[2], NULL);
	NdkCreateSrq(rig.pd, 8, 1, 0, NULL, NULL, NULL, on_created, &made[3], NULL);
	rig_run(&rig);
	cr_expect_eq(ask(&rig.adapter->Header, 0), STATUS_NOT_SUPPORTED);
	cr_expect_eq(ask(&rig.pd->Header, 1), STATUS_NOT_SUPPORTED);
	cr_expect_eq(ask(&rig.cq->Header, 1), STATUS_NOT_SUPPORTED);
	cr_expect_eq(ask(&rig.qp->Header, 1), STATUS_NOT_SUPPORTED);
	cr_expect_eq(ask(&rig.mr->Header, 1), STATUS_NOT_SUPPORTED);
	cr_expect_eq(ask(&rig.mw->Header, 1), STATUS_NOT_SUPPORTED);
	for (unsigned int i = 0; i < 4; i++) {
		cr_assert_eq(made[i].calls, 1, "object %u", i);
		cr_expect_eq(ask(made[i].object, 1), STATUS_NOT_SUPPORTED, "object %u", i);
	}
	rig_close(&rig);
}

/* --- close ---------------------------------------------------------------------------------- */

/* Antecedents: PD and CQ wait for the queue pair, and hear of it in this order. */
Test(close, waits_for_successors)
{
	struct outcome pd = { 0 }, cq = { 0 }, qp = { 0 };
	struct rig rig;

	rig_queues(&rig);
	cr_expect_eq(NdkClosePd(rig.pd, on_closed, &pd), STATUS_PENDING);
	cr_expect_eq(NdkCloseCq(rig.cq, on_closed, &cq), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(pd.calls, 0);
	cr_expect_eq(cq.calls, 0);
	cr_expect_eq(rig.fake.requests[SHM_OP_CLOSE], 0);
	/* As long as it waits, the successor works. */
	cr_expect_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkCloseQp(rig.qp, on_closed, &qp), STATUS_PENDING);
	fake_step(&rig.fake);
	OrielProgress(rig.adapter);
	cr_expect_eq(qp.calls, 1);
	cr_expect_eq(pd.calls + cq.calls, 0);
	rig_run(&rig);
	cr_expect_eq(pd.calls, 1);
	cr_expect_eq(cq.calls, 1);
	rig_close(&rig);
}

struct order {
	char log[16];
	unsigned int length;
};

struct order_step {
	struct order *order;
	char letter;
};

static void step_done(PVOID context, NTSTATUS status)
{
	struct order_step *step = context;

	step->order->log[step->order->length++] = step->letter;
}

static void step_closed(PVOID context)
{
	step_done(context, STATUS_SUCCESS);
}

/* The close completion is the last callback: what is pending completes before. */
Test(close, pending_requests_complete_first)
{
	struct order order = { 0 };
	struct order_step request = { &order, 'r' }, close = { &order, 'c' };
	struct outcome outcome = { 0 };
	struct rig rig;
	NDK_MR *mr;
	MDL *mdl;

	rig_queues(&rig);
	NdkCreateMr(rig.pd, FALSE, on_created, &outcome, NULL);
	rig_run(&rig);
	mr = (NDK_MR *)outcome.object;
	OrielAllocateMemory(4096, 0, &mdl);
	rig.fake.hold[SHM_OP_REGISTER_MR] = true;
	cr_assert_eq(NdkRegisterMr(mr, mdl, 4096, 0, step_done, &request), STATUS_PENDING);
	cr_assert_eq(NdkCloseMr(mr, step_closed, &close), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_str_eq(order.log, "rc");
	/* A late answer finds nobody. */
	fake_answer(&rig.fake, SHM_OP_REGISTER_MR, STATUS_SUCCESS, NULL);
	rig_run(&rig);
	cr_expect_str_eq(order.log, "rc");
	rig_close(&rig);
	OrielFreeMemory(mdl);
}

static void closes_itself(PVOID context, NTSTATUS status, NDK_OBJECT_HEADER *object)
{
	struct outcome *outcome = context;

	outcome->status = NdkClosePd((NDK_PD *)object, on_closed, outcome);
}

/* A callback may close the object that it is told of. */
Test(close, from_inside_the_create_completion)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_open(&rig);
	NdkCreatePd(rig.adapter, closes_itself, &outcome, NULL);
	rig_run(&rig);
	rig_run(&rig);
	cr_expect_eq(outcome.status, STATUS_PENDING);
	cr_expect_eq(outcome.calls, 1);
	rig_close(&rig);
}

/* A region's close goes out at once: the daemon knows best when its windows are gone. */
Test(close, region_leaves_the_windows_to_the_daemon)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	rig_connected(&rig);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	cr_assert_eq(NdkBind(rig.qp, NULL, rig.mr, rig.mw, rig.mdl->StartVa, 64,
			     NDK_OP_FLAG_ALLOW_REMOTE_READ),
		     STATUS_SUCCESS);
	rig.fake.hold[SHM_OP_CLOSE] = true;
	cr_expect_eq(NdkCloseMr(rig.mr, on_closed, &outcome), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(rig.fake.requests[SHM_OP_CLOSE], 1);
	cr_expect_eq(outcome.calls, 0);
	fake_answer(&rig.fake, SHM_OP_CLOSE, STATUS_SUCCESS, NULL);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 1);
	/* No region, no window. */
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	rig_close(&rig);
}

/* B94 */
Test(close, entries_of_a_closed_queue_pair_carry_the_callers_contexts)
{
	struct outcome outcome = { 0 };
	const struct shm_cqe cqe = { .type = NdkOperationTypeReceive,
				     .status = STATUS_CANCELLED,
				     .qp_context = 0x1111,
				     .request_context = 0x2222 };
	NDK_RESULT result;
	struct rig rig;

	rig_queues(&rig);
	fake_complete(&rig.fake, 0, 0, &cqe);
	NdkCloseQp(rig.qp, on_closed, &outcome);
	rig_run(&rig);
	cr_expect_eq(outcome.calls, 1);
	cr_assert_eq(NdkGetCqResults(rig.cq, &result, 1), 1);
	cr_expect_eq((uintptr_t)result.QPContext, 0x1111);
	cr_expect_eq((uintptr_t)result.RequestContext, 0x2222);
	rig_close(&rig);
}

/* OrielCloseAdapter: everything is closed, in whatever order it stood, and all callbacks run. */
Test(close, adapter_closes_everything)
{
	struct outcome pd = { 0 };
	struct rig rig;

	rig_connected(&rig);
	rig_memory(&rig, 0);
	NdkClosePd(rig.pd, on_closed, &pd); /* waits for the rest */
	rig_close(&rig);
	cr_expect_eq(pd.calls, 1);
	cr_expect_eq(rig.fake.requests[SHM_OP_CLOSE], 5);
}

/* Queue pairs of one segment write side by side; the end of one leaves the others theirs. */
Test(create, queue_pairs_share_a_segment)
{
	struct outcome closed = { 0 };
	NDK_QP *second, *third;
	struct rig rig;

	rig_open(&rig);
	rig.fake.share = 8192;
	rig_queues(&rig);
	second = rig_create_qp(&rig, NULL);
	third = rig_create_qp(&rig, NULL);
	NdkReceive(rig.qp, (PVOID)1, NULL, 0);
	NdkReceive(second, (PVOID)2, NULL, 0);
	NdkCloseQp(second, on_closed, &closed);
	rig_run(&rig);
	cr_expect_eq(closed.calls, 1);
	NdkReceive(third, (PVOID)3, NULL, 0);
	for (unsigned int i = 0; i < 3; i++)
		cr_expect_eq(rig.fake.qp[i]->receive.tail, 1, "receives of %u", i);
	rig_close(&rig);
}

static NTSTATUS create_at(struct rig *rig, uint32_t segment, uint64_t offset, uint64_t size)
{
	struct shm_reply reply = { .created = { .handle = 77,
						.segment_size = size,
						.segment = segment,
						.offset = offset } };
	struct outcome outcome = { 0 };

	rig->fake.hold[SHM_OP_CREATE_QP] = true;
	NdkCreateQp(rig->pd, rig->cq, rig->cq, NULL, 4, 4, 2, 2, 64, on_created, &outcome, NULL);
	fake_step(&rig->fake);
	fake_answer(&rig->fake, SHM_OP_CREATE_QP, STATUS_SUCCESS, &reply);
	rig_run(rig);
	rig->fake.hold[SHM_OP_CREATE_QP] = false;
	cr_expect_eq(outcome.calls, 1);
	cr_expect_null(outcome.object);
	return outcome.status;
}

/* A place that is not in its segment, a segment that never came: refused, and the daemon's closed.
 */
Test(create, a_place_outside_of_its_segment_is_refused)
{
	struct rig rig;

	rig_open(&rig);
	rig.fake.share = 8192;
	rig_queues(&rig);
	cr_expect_eq(create_at(&rig, 1, 1ull << 20, 64), STATUS_INTERNAL_ERROR);
	cr_expect_eq(create_at(&rig, 1, 1ull << 40, 8192), STATUS_INTERNAL_ERROR);
	cr_expect_eq(create_at(&rig, 1, 64, UINT64_MAX - 63), STATUS_INTERNAL_ERROR);
	cr_expect_eq(create_at(&rig, 1, 8191, 8192), STATUS_INTERNAL_ERROR, "not aligned");
	cr_expect_eq(create_at(&rig, 1, 8192, 64), STATUS_INTERNAL_ERROR,
		     "too small for its rings");
	cr_expect_eq(create_at(&rig, 2, 0, 8192), STATUS_INTERNAL_ERROR, "no such segment");
	cr_expect_eq(rig.fake.last[SHM_OP_CLOSE].object.object, 77);
	cr_expect_eq(rig.fake.requests[SHM_OP_CLOSE], 6);
	NdkReceive(rig.qp, (PVOID)1, NULL, 0);
	cr_expect_eq(rig.fake.qp[0]->receive.tail, 1);
	rig_close(&rig);
}

/* A segment that cannot be what it should be: the object does not come, and the daemon's goes. */
Test(create, a_broken_segment_is_refused)
{
	struct outcome outcome = { 0 };
	struct shm_reply reply = { .created = { .handle = 77, .segment_size = 4096 } };
	struct rig rig;

	rig_open(&rig);
	rig.fake.hold[SHM_OP_CREATE_CQ] = true;
	NdkCreateCq(rig.adapter, 4, NULL, NULL, NULL, on_created, &outcome, NULL);
	fake_step(&rig.fake);
	fake_answer(&rig.fake, SHM_OP_CREATE_CQ, STATUS_SUCCESS, &reply); /* and no segment */
	rig_run(&rig);
	cr_expect_eq(outcome.status, STATUS_INTERNAL_ERROR);
	cr_expect_null(outcome.object);
	cr_expect_eq(rig.fake.last[SHM_OP_CLOSE].object.object, 77);
	rig_close(&rig);
}
