/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows: statuses of NdkBind and NdkInvalidate, tokens, and what completions change. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"
#include "shm/spsc.h"

#define READ_WRITE (NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE)

static void set_up(struct rig *rig)
{
	rig_connected(rig);
	rig_memory(rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
}

static NTSTATUS bind_at(struct rig *rig, uint64_t offset, SIZE_T length, ULONG flags)
{
	return NdkBind(rig->qp, NULL, rig->mr, rig->mw,
		       (PVOID)((uintptr_t)rig->mdl->StartVa + offset), length, flags);
}

static void complete(struct rig *rig, uint32_t type, NTSTATUS status, uint32_t token)
{
	const struct shm_cqe cqe = { .type = type, .status = status, .output = token };
	NDK_RESULT result;

	fake_complete(&rig->fake, 0, 0, &cqe);
	cr_assert_eq(NdkGetCqResults(rig->cq, &result, 1), 1);
}

/* --- bind ---------------------------------------------------------------------------------- */

/* The token can be read when NdkBind returns. */
Test(bind, token_is_there_when_it_returns)
{
	const struct shm_sqe *sqe;
	struct rig rig;
	UINT32 token;

	set_up(&rig);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_assert_eq(bind_at(&rig, 16, 32, READ_WRITE | ORIEL_OP_FLAG_TIE_TO_QP), STATUS_SUCCESS);
	token = NdkGetRemoteTokenFromMw(rig.mw);
	cr_expect_neq(token, 0);
	sqe = fake_sqe(rig.fake.qp[0], 0);
	cr_expect_eq(sqe->opcode, SHM_WR_BIND);
	cr_expect_eq(sqe->token, token);
	cr_expect_eq(sqe->address, (uintptr_t)rig.mdl->StartVa + 16);
	cr_expect_eq(sqe->length, 32);
	cr_expect_eq(sqe->flags,
		     SHM_FLAG_ALLOW_REMOTE_READ | SHM_FLAG_ALLOW_REMOTE_WRITE | SHM_FLAG_TIE_TO_QP);
	cr_expect_neq(sqe->mr, 0);
	cr_expect_neq(sqe->mw, 0);
	rig_close(&rig);
}

Test(bind, every_bind_has_a_new_token)
{
	UINT32 first;
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(bind_at(&rig, 0, 8, READ_WRITE), STATUS_SUCCESS);
	first = NdkGetRemoteTokenFromMw(rig.mw);
	cr_assert_eq(NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0), STATUS_SUCCESS);
	cr_assert_eq(bind_at(&rig, 0, 8, READ_WRITE), STATUS_SUCCESS);
	cr_expect_neq(NdkGetRemoteTokenFromMw(rig.mw), first);
	rig_close(&rig);
}

/* Silences decided: the range must lie in the region and not be empty. */
Test(bind, range)
{
	const struct {
		uint64_t offset, length;
		NTSTATUS status;
	} cases[] = {
		{ 0, 4096, STATUS_SUCCESS },
		{ 4095, 1, STATUS_SUCCESS },
		{ 0, 0, STATUS_INVALID_PARAMETER },
		{ 0, 4097, STATUS_INVALID_PARAMETER },
		{ 4096, 1, STATUS_INVALID_PARAMETER },
		{ 4095, 2, STATUS_INVALID_PARAMETER },
		{ (uint64_t)-1, 1, STATUS_INVALID_PARAMETER },
		{ 1, UINT64_MAX, STATUS_INVALID_PARAMETER },
		{ 1, (1ull << 30) + 1, STATUS_INVALID_PARAMETER },
	};
	struct rig rig;

	set_up(&rig);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		rig.mw = rig_create_mw(&rig, rig.pd);
		cr_expect_eq(bind_at(&rig, cases[i].offset, cases[i].length, READ_WRITE),
			     cases[i].status, "case %u", i);
	}
	rig_close(&rig);
}

/* NdkBind: remote write needs a region with local write; atomics likewise. */
Test(bind, rights_of_the_region)
{
	const struct {
		ULONG flags;
		NTSTATUS status;
	} cases[] = {
		{ NDK_OP_FLAG_ALLOW_REMOTE_WRITE, STATUS_ACCESS_VIOLATION },
		{ READ_WRITE, STATUS_ACCESS_VIOLATION },
		{ ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC, STATUS_ACCESS_VIOLATION },
		{ NDK_OP_FLAG_ALLOW_LOCAL_WRITE, STATUS_INVALID_PARAMETER },
		{ NDK_OP_FLAG_ALLOW_REMOTE_WRITE & ~NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
		  STATUS_INVALID_PARAMETER },
		{ NDK_OP_FLAG_INLINE, STATUS_INVALID_PARAMETER },
		{ NDK_OP_FLAG_ALLOW_REMOTE_READ, STATUS_SUCCESS },
	};
	struct rig rig;

	rig_connected(&rig);
	rig_memory(&rig, 0);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(bind_at(&rig, 0, 8, cases[i].flags), cases[i].status, "flags %#x",
			     cases[i].flags);
	rig_close(&rig);
}

/* No page asks for remote rights on the region, and a window without any right is legal. */
Test(bind, no_right_at_all)
{
	struct rig rig;

	set_up(&rig);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

Test(bind, a_bound_window_must_be_invalidated_first)
{
	struct rig rig;
	UINT32 token;

	set_up(&rig);
	cr_assert_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	token = NdkGetRemoteTokenFromMw(rig.mw);
	cr_expect_eq(bind_at(&rig, 8, 8, 0), STATUS_INVALID_DEVICE_STATE);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), token);
	cr_expect_eq(rig.fake.qp[0]->send.tail, 1);
	rig_close(&rig);
}

/* IBTA C10-72 as far as the library can see it. */
Test(bind, all_three_are_of_one_domain)
{
	NDK_MW *own, *other;
	struct rig rig;
	NDK_PD *pd;
	MDL *mdl;

	set_up(&rig);
	pd = rig.pd;
	own = rig.mw;
	mdl = rig.mdl;
	rig.pd = rig_create_pd(&rig);
	rig.mw = other = rig_create_mw(&rig, rig.pd);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_INVALID_PARAMETER, "the window");
	cr_expect_eq(NdkInvalidate(rig.qp, NULL, &other->Header, 0), STATUS_INVALID_PARAMETER);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	rig.mw = own;
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_INVALID_PARAMETER, "the region");
	rig.pd = pd;
	rig_close(&rig);
	OrielFreeMemory(mdl);
}

Test(bind, region_must_be_registered)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(NdkDeregisterMr(rig.mr, on_done, &outcome), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(outcome.status, STATUS_SUCCESS);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_INVALID_PARAMETER);
	rig_close(&rig);
}

Test(bind, early_needs_no_connection)
{
	struct rig rig;

	rig_queues(&rig);
	rig_memory(&rig, 0);
	cr_expect_eq(bind_at(&rig, 0, 8, ORIEL_OP_FLAG_TIE_TO_QP), STATUS_CONNECTION_INVALID);
	cr_expect_eq(bind_at(&rig, 0, 8, ORIEL_OP_FLAG_TIE_TO_QP | ORIEL_OP_FLAG_EARLY),
		     STATUS_SUCCESS);
	cr_expect_neq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(fake_sqe(rig.fake.qp[0], 0)->flags, SHM_FLAG_TIE_TO_QP);
	rig_close(&rig);
}

/* --- stock of tokens -------------------------------------------------------------------------- */

static unsigned int bind_until_refused(struct rig *rig, NTSTATUS *status)
{
	unsigned int count = 0;

	for (;;) {
		rig->mw = rig_create_mw(rig, rig->pd);
		*status = bind_at(rig, 0, 8, 0);
		if (*status != STATUS_SUCCESS)
			return count;
		fake_take_sends(rig->fake.qp[0]);
		count++;
	}
}

static void worker_gives_back(struct rig *rig, uint32_t worker, uint32_t token)
{
	struct shm_worker_area *area = &rig->fake.session->worker[worker];

	area->stock[area->stock_cursor.tail % SHM_STOCK_ENTRIES] = token;
	shm_store_release(&area->stock_cursor.tail, area->stock_cursor.tail + 1);
}

Test(stock, out_of_tokens_and_what_workers_give_back)
{
	NTSTATUS status;
	struct rig rig;

	set_up(&rig);
	rig.fake.status[SHM_OP_REFILL_TOKENS] = STATUS_INSUFFICIENT_RESOURCES;
	cr_expect_geq(bind_until_refused(&rig, &status), SHM_REFILL_MAX);
	cr_expect_eq(status, STATUS_INSUFFICIENT_RESOURCES);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	worker_gives_back(&rig, 1, 0x7777);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0x7777);
	rig_close(&rig);
}

Test(stock, is_refilled_before_it_is_empty)
{
	struct rig rig;

	set_up(&rig);
	for (unsigned int i = 0; i < 1000; i++) {
		rig.mw = rig_create_mw(&rig, rig.pd); /* drives progress, too */
		cr_assert_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS, "bind %u", i);
		fake_take_sends(rig.fake.qp[0]);
	}
	cr_expect_gt(rig.fake.requests[SHM_OP_REFILL_TOKENS], 1000 / SHM_REFILL_MAX);
	rig_close(&rig);
}

/* --- completions of binds ------------------------------------------------------------ */

Test(bind, that_fails_in_the_queue_leaves_the_window_unbound)
{
	struct rig rig;
	UINT32 token;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	token = NdkGetRemoteTokenFromMw(rig.mw);
	complete(&rig, NdkOperationTypeBind, STATUS_SUCCESS, token);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), token);
	complete(&rig, NdkOperationTypeBind, STATUS_ACCESS_VIOLATION, token ^ 1);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), token, "another window's");
	complete(&rig, NdkOperationTypeBind, STATUS_ACCESS_VIOLATION, token);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* --- invalidate ---------------------------------------------------------------------- */

Test(invalidate, uses_the_current_token_and_unbinds)
{
	const struct shm_sqe *sqe;
	struct rig rig;
	UINT32 token;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	token = NdkGetRemoteTokenFromMw(rig.mw);
	cr_assert_eq(NdkInvalidate(rig.qp, (PVOID)5, &rig.mw->Header, NDK_OP_FLAG_READ_FENCE),
		     STATUS_SUCCESS);
	sqe = fake_sqe(rig.fake.qp[0], 1);
	cr_expect_eq(sqe->opcode, SHM_WR_INVALIDATE);
	cr_expect_eq(sqe->token, token);
	cr_expect_eq(sqe->flags, SHM_FLAG_READ_FENCE);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0),
		     STATUS_INVALID_DEVICE_REQUEST);
	rig_close(&rig);
}

Test(invalidate, never_of_a_normal_region)
{
	struct rig rig;

	set_up(&rig);
	cr_expect_eq(NdkInvalidate(rig.qp, NULL, &rig.mr->Header, 0),
		     STATUS_INVALID_DEVICE_REQUEST);
	rig_close(&rig);
}

/* A plain NdkGetCqResults still does the peer's invalidation; a later local one fails. */
Test(invalidate, by_the_peer)
{
	struct rig rig;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	complete(&rig, NdkOperationTypeReceiveAndInvalidate, STATUS_SUCCESS,
		 NdkGetRemoteTokenFromMw(rig.mw));
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0),
		     STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* A cancelled invalidate has ended nothing. */
Test(invalidate, that_is_cancelled_leaves_the_window_bound)
{
	struct rig rig;
	UINT32 token;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	token = NdkGetRemoteTokenFromMw(rig.mw);
	NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0);
	complete(&rig, NdkOperationTypeInvalidate, STATUS_CANCELLED, token);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), token);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_INVALID_DEVICE_STATE);
	rig_close(&rig);
}

Test(invalidate, cancelled_with_the_bind_behind_it)
{
	struct rig rig;
	UINT32 first, second;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	first = NdkGetRemoteTokenFromMw(rig.mw);
	NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0);
	bind_at(&rig, 8, 8, 0);
	second = NdkGetRemoteTokenFromMw(rig.mw);
	complete(&rig, NdkOperationTypeInvalidate, STATUS_CANCELLED, first);
	complete(&rig, NdkOperationTypeBind, STATUS_CANCELLED, second);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), first, "as the data plane has it");
	rig_close(&rig);
}

Test(invalidate, done_with_the_bind_behind_it_cancelled)
{
	struct rig rig;
	UINT32 first, second;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	first = NdkGetRemoteTokenFromMw(rig.mw);
	NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0);
	bind_at(&rig, 8, 8, 0);
	second = NdkGetRemoteTokenFromMw(rig.mw);
	complete(&rig, NdkOperationTypeInvalidate, STATUS_SUCCESS, first);
	complete(&rig, NdkOperationTypeBind, STATUS_CANCELLED, second);
	cr_expect_eq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(bind_at(&rig, 0, 8, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* ND, silent in NDK: refused while bound, and the daemon is the one to say so. */
Test(deregister, busy_while_a_window_is_bound)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	set_up(&rig);
	bind_at(&rig, 0, 8, 0);
	rig.fake.status[SHM_OP_DEREGISTER_MR] = STATUS_DEVICE_BUSY;
	cr_assert_eq(NdkDeregisterMr(rig.mr, on_done, &outcome), STATUS_PENDING);
	rig_run(&rig);
	cr_expect_eq(outcome.status, STATUS_DEVICE_BUSY);
	cr_expect_neq(NdkGetRemoteTokenFromMw(rig.mw), 0);
	cr_expect_eq(NdkGetLocalTokenFromMr(rig.mr), 0x51);
	rig_close(&rig);
}
