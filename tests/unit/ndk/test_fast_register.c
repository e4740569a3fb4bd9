/* SPDX-License-Identifier: BSD-3-Clause */
/* Logical address mappings and fast-register regions: rules, entries, what completions change. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

#define PAGES  4u
#define LOCAL  0x51u
#define REMOTE 0x52u

struct fast {
	struct rig rig;
	NDK_MR *mr;
	NDK_LOGICAL_ADDRESS_MAPPING *lam;
	ULONG size, fbo;
};

static NTSTATUS build(struct fast *fast, MDL *mdl, SIZE_T length)
{
	struct outcome outcome = { 0 };
	NTSTATUS status = NdkBuildLAM(fast->rig.adapter, mdl, length, on_done, &outcome, fast->lam,
				      &fast->size, &fast->fbo);

	if (status != STATUS_PENDING)
		return status;
	rig_run(&fast->rig);
	cr_assert_eq(outcome.calls, 1);
	return outcome.status;
}

static NTSTATUS init(struct fast *fast, NDK_MR *mr, ULONG pages, BOOLEAN remote)
{
	struct outcome outcome = { 0 };
	NTSTATUS status = NdkInitializeFastRegisterMr(mr, pages, remote, on_done, &outcome);

	if (status != STATUS_PENDING)
		return status;
	rig_run(&fast->rig);
	cr_assert_eq(outcome.calls, 1);
	return outcome.status;
}

static NDK_MR *create_mr(struct fast *fast)
{
	struct outcome outcome = { 0 };

	cr_assert_eq(NdkCreateMr(fast->rig.pd, TRUE, on_created, &outcome, NULL), STATUS_PENDING);
	rig_run(&fast->rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	return (NDK_MR *)outcome.object;
}

/* A connected queue pair, four pages and their mapping, a region ready for them. */
static void set_up(struct fast *fast)
{
	memset(fast, 0, sizeof(*fast));
	rig_connected(&fast->rig);
	cr_assert_eq(OrielAllocateMemory(PAGES * 4096, 0, &fast->rig.mdl), STATUS_SUCCESS);
	fast->size = 4096;
	fast->lam = calloc(1, fast->size);
	fast->rig.fake.last_segment = 7;
	cr_assert_eq(build(fast, fast->rig.mdl, PAGES * 4096), STATUS_SUCCESS);
	fast->mr = create_mr(fast);
	cr_assert_eq(init(fast, fast->mr, PAGES, TRUE), STATUS_SUCCESS);
}

static void tear_down(struct fast *fast)
{
	NdkReleaseLAM(fast->rig.adapter, fast->lam);
	free(fast->lam);
	rig_close(&fast->rig);
}

static NTSTATUS post(struct fast *fast, ULONG pages, ULONG fbo, SIZE_T length, uintptr_t base,
		     ULONG flags)
{
	return NdkFastRegister(fast->rig.qp, NULL, fast->mr, pages, fast->lam->AdapterPageArray,
			       fbo, length, (PVOID)base, flags);
}

static NTSTATUS post_all(struct fast *fast)
{
	return post(fast, PAGES, 0, PAGES * 4096, 0x10000, NDK_OP_FLAG_ALLOW_REMOTE_READ);
}

static NTSTATUS invalidate(struct fast *fast)
{
	return NdkInvalidate(fast->rig.qp, NULL, &fast->mr->Header, 0);
}

static void complete(struct fast *fast, NDK_OPERATION_TYPE type, NTSTATUS status)
{
	const struct shm_cqe cqe = { .type = type, .status = status, .output = REMOTE };
	NDK_RESULT result;

	fake_complete(&fast->rig.fake, 0, 0, &cqe);
	cr_assert_eq(NdkGetCqResults(fast->rig.cq, &result, 1), 1);
	fake_take_sends(fast->rig.fake.qp[0]);
}

static const struct shm_sqe *sqe(struct fast *fast, uint32_t index)
{
	return fake_sqe(fast->rig.fake.qp[0], index);
}

/* --- NdkBuildLAM ---------------------------------------------------------------------------- */

/* One entry for each page, page-aligned; *pLAMSize what was written, *pFBO where it begins. */
Test(lam, pages)
{
	struct fast fast;

	set_up(&fast);
	cr_expect_eq(fast.lam->AdapterPageCount, PAGES);
	cr_expect_eq(fast.size,
		     offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + PAGES * 8);
	cr_expect_eq(fast.fbo, 0);
	for (unsigned int i = 1; i < PAGES; i++)
		cr_expect_eq(fast.lam->AdapterPageArray[i].QuadPart -
				     fast.lam->AdapterPageArray[0].QuadPart,
			     i * 4096);
	tear_down(&fast);
}

/* The daemon is asked once for each memfd; after that it is built inline. */
Test(lam, is_built_inline_once_the_memory_is_known)
{
	struct outcome outcome = { 0 };
	struct fast fast;

	set_up(&fast);
	fast.size = 4096;
	cr_expect_eq(NdkBuildLAM(fast.rig.adapter, fast.rig.mdl, 4097, on_done, &outcome, fast.lam,
				 &fast.size, &fast.fbo),
		     STATUS_SUCCESS);
	cr_expect_eq(fast.lam->AdapterPageCount, 2);
	cr_expect_eq(fast.rig.fake.requests[SHM_OP_FIND_SEGMENT], 1);
	cr_expect_eq(outcome.calls, 0);
	tear_down(&fast);
}

Test(lam, too_small_a_buffer_learns_the_size)
{
	struct fast fast;

	set_up(&fast);
	fast.size = 20;
	cr_expect_eq(build(&fast, fast.rig.mdl, 3 * 4096), STATUS_BUFFER_TOO_SMALL);
	cr_expect_eq(fast.size, offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) + 3 * 8);
	tear_down(&fast);
}

Test(lam, what_cannot_be)
{
	struct fast fast;

	set_up(&fast);
	fast.size = 4096;
	cr_expect_eq(build(&fast, fast.rig.mdl, 0), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(build(&fast, fast.rig.mdl, PAGES * 4096 + 1), STATUS_INVALID_PARAMETER);
	cr_expect_eq(build(&fast, NULL, 1), STATUS_INVALID_PARAMETER);
	tear_down(&fast);
}

/* NdkReleaseLAM: the pages are named no more, so a late use of them fails. */
Test(lam, has_no_pages_when_it_was_released)
{
	struct fast fast;

	set_up(&fast);
	NdkReleaseLAM(fast.rig.adapter, fast.lam);
	cr_expect_eq(fast.lam->AdapterPageCount, 0);
	tear_down(&fast);
}

/* --- NdkInitializeFastRegisterMr ------------------------------------------------------------ */

Test(init, tokens_are_there_when_it_completes_and_stay)
{
	struct fast fast;

	set_up(&fast);
	cr_expect_eq(NdkGetLocalTokenFromMr(fast.mr), LOCAL);
	cr_expect_eq(NdkGetRemoteTokenFromMr(fast.mr), REMOTE);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	cr_assert_eq(invalidate(&fast), STATUS_SUCCESS);
	cr_expect_eq(NdkGetRemoteTokenFromMr(fast.mr), REMOTE);
	cr_expect_eq(fast.rig.fake.last[SHM_OP_INIT_FRMR].init_frmr.page_count, PAGES);
	cr_expect_eq(fast.rig.fake.last[SHM_OP_INIT_FRMR].init_frmr.remote_access, 1);
	tear_down(&fast);
}

/* A region is of one kind for life. */
Test(init, kinds)
{
	struct outcome outcome = { 0 };
	struct fast fast;
	NDK_MR *mr;

	set_up(&fast);
	mr = create_mr(&fast);
	cr_expect_eq(init(&fast, mr, 0, TRUE), STATUS_IMPLEMENTATION_LIMIT);
	cr_expect_eq(init(&fast, mr, 1025, TRUE), STATUS_IMPLEMENTATION_LIMIT);
	cr_expect_eq(NdkRegisterMr(mr, fast.rig.mdl, 4096, 0, on_done, &outcome),
		     STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(NdkDeregisterMr(fast.mr, on_done, &outcome), STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(init(&fast, fast.mr, 1, TRUE), STATUS_INVALID_DEVICE_STATE);
	cr_assert_eq(NdkCreateMr(fast.rig.pd, FALSE, on_created, &outcome, NULL), STATUS_PENDING);
	rig_run(&fast.rig);
	cr_expect_eq(init(&fast, (NDK_MR *)outcome.object, 1, TRUE), STATUS_INVALID_DEVICE_REQUEST);
	tear_down(&fast);
}

/* --- NdkFastRegister ------------------------------------------------------------------------ */

Test(fast_register, entry)
{
	const ULONG flags = NDK_OP_FLAG_ALLOW_REMOTE_WRITE | NDK_OP_FLAG_RDMA_READ_SINK |
			    NDK_OP_FLAG_SILENT_SUCCESS;
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(post(&fast, 3, 100, 8000, 0x7000 + 100, flags), STATUS_SUCCESS);
	cr_expect_eq(sqe(&fast, 0)->opcode, SHM_WR_FAST_REGISTER);
	cr_expect_eq(sqe(&fast, 0)->flags, SHM_FLAG_ALLOW_REMOTE_WRITE | SHM_FLAG_SILENT_SUCCESS);
	cr_expect_eq(sqe(&fast, 0)->address, 0x7064);
	cr_expect_eq(sqe(&fast, 0)->length, 8000);
	cr_expect_eq(sqe(&fast, 0)->compare, 7);
	cr_expect_eq(sqe(&fast, 0)->swap, 100);
	cr_expect_eq(sqe(&fast, 0)->token, REMOTE);
	tear_down(&fast);
}

/* Part of a mapping is one too. */
Test(fast_register, pages_from_the_middle)
{
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(NdkFastRegister(fast.rig.qp, NULL, fast.mr, 2, fast.lam->AdapterPageArray + 1,
				     8, 8184, (PVOID)8, NDK_OP_FLAG_ALLOW_LOCAL_WRITE),
		     STATUS_SUCCESS);
	cr_expect_eq(sqe(&fast, 0)->swap, 4096 + 8);
	tear_down(&fast);
}

/* NdkFastRegister remarks: base and FBO agree, the length is within the pages. */
Test(fast_register, what_cannot_be)
{
	const ULONG read = NDK_OP_FLAG_ALLOW_REMOTE_READ;
	struct fast fast;

	set_up(&fast);
	cr_expect_eq(post(&fast, PAGES, 0, PAGES * 4096 + 1, 0, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 1, 1, 4096, 1, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 1, 0, 0, 0, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 0, 0, 1, 0, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 1, 8, 8, 0, read), STATUS_INVALID_PARAMETER, "base 0, FBO not");
	cr_expect_eq(post(&fast, 1, 8, 8, 0x1000, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 2, 4096, 8, 0x2000, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 2, 0, 8192, UINTPTR_MAX - 4095, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, PAGES + 1, 0, 8, 0x1000, read), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 1, 0, 8, 0x1000, NDK_OP_FLAG_INLINE), STATUS_INVALID_PARAMETER);
	cr_expect_eq(post(&fast, 1, 0, 8, 0x1000, 0x20), STATUS_INVALID_PARAMETER,
		     "half of remote write");
	cr_expect_eq(post(&fast, 1, 0, 8, 0x1000, ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC),
		     STATUS_INVALID_PARAMETER, "an atomic writes");
	fast.lam->AdapterPageArray[1].QuadPart += 4096;
	cr_expect_eq(post(&fast, 2, 0, 8, 0x1000, read), STATUS_INVALID_PARAMETER,
		     "pages that do not follow each other");
	cr_expect_eq(fast.rig.fake.qp[0]->send.tail, 0);
	tear_down(&fast);
}

/* STATUS_ACCESS_VIOLATION: remote access of a region that was not made for it. */
Test(fast_register, remote_access_must_have_been_announced)
{
	struct fast fast;

	set_up(&fast);
	fast.mr = create_mr(&fast);
	fast.rig.fake.no_remote_token = true;
	cr_assert_eq(init(&fast, fast.mr, PAGES, FALSE), STATUS_SUCCESS);
	cr_expect_eq(post_all(&fast), STATUS_ACCESS_VIOLATION);
	cr_expect_eq(post(&fast, 1, 0, 8, 0x1000, NDK_OP_FLAG_ALLOW_LOCAL_WRITE), STATUS_SUCCESS);
	cr_expect_eq(sqe(&fast, 0)->token, LOCAL);
	tear_down(&fast);
}

Test(fast_register, one_that_is_valid_is_refused)
{
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	cr_expect_eq(post_all(&fast), STATUS_INVALID_DEVICE_STATE);
	cr_assert_eq(invalidate(&fast), STATUS_SUCCESS);
	cr_expect_eq(sqe(&fast, 1)->opcode, SHM_WR_INVALIDATE);
	cr_expect_eq(sqe(&fast, 1)->token, REMOTE);
	cr_expect_neq(sqe(&fast, 1)->mr, 0);
	cr_expect_eq(invalidate(&fast), STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(post_all(&fast), STATUS_SUCCESS, "both may be posted one behind the other");
	tear_down(&fast);
}

Test(fast_register, one_that_failed_is_not_valid)
{
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	complete(&fast, NdkOperationTypeFastRegister, STATUS_ACCESS_VIOLATION);
	cr_expect_eq(invalidate(&fast), STATUS_INVALID_DEVICE_REQUEST);
	tear_down(&fast);
}

/* The peer's NdkSendAndInvalidate ends it as well. */
Test(fast_register, the_peer_may_end_it)
{
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	complete(&fast, NdkOperationTypeReceiveAndInvalidate, STATUS_SUCCESS);
	cr_expect_eq(invalidate(&fast), STATUS_INVALID_DEVICE_REQUEST);
	cr_expect_eq(post_all(&fast), STATUS_SUCCESS);
	tear_down(&fast);
}

/* What was cancelled has not happened, nor has what was posted behind it. */
Test(fast_register, cancelled_invalidates)
{
	struct fast fast;

	set_up(&fast);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	cr_assert_eq(invalidate(&fast), STATUS_SUCCESS);
	complete(&fast, NdkOperationTypeFastRegister, STATUS_SUCCESS);
	complete(&fast, NdkOperationTypeInvalidate, STATUS_CANCELLED);
	cr_expect_eq(post_all(&fast), STATUS_INVALID_DEVICE_STATE);
	cr_assert_eq(invalidate(&fast), STATUS_SUCCESS);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	complete(&fast, NdkOperationTypeInvalidate, STATUS_CANCELLED);
	complete(&fast, NdkOperationTypeFastRegister, STATUS_CANCELLED);
	cr_expect_eq(post_all(&fast), STATUS_INVALID_DEVICE_STATE, "the first one stands");
	tear_down(&fast);
}

/* NdkBind is for regions of NdkRegisterMr. */
Test(fast_register, no_windows)
{
	struct fast fast;

	set_up(&fast);
	fast.rig.mw = rig_create_mw(&fast.rig, fast.rig.pd);
	cr_assert_eq(post_all(&fast), STATUS_SUCCESS);
	cr_expect_eq(NdkBind(fast.rig.qp, NULL, fast.mr, fast.rig.mw, (PVOID)0x10000, 8, 0),
		     STATUS_INVALID_PARAMETER);
	tear_down(&fast);
}
