/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that can be registered, and registration. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"
#include "shm/segment.h"

static NDK_MR *create_mr(struct rig *rig)
{
	struct outcome outcome = { 0 };

	cr_assert_eq(NdkCreateMr(rig->pd, FALSE, on_created, &outcome, NULL), STATUS_PENDING);
	rig_run(rig);
	cr_assert_eq(outcome.status, STATUS_SUCCESS);
	return (NDK_MR *)outcome.object;
}

static NTSTATUS register_sync(struct rig *rig, NDK_MR *mr, MDL *mdl, SIZE_T length, ULONG flags)
{
	struct outcome outcome = { 0 };
	NTSTATUS status = NdkRegisterMr(mr, mdl, length, flags, on_done, &outcome);

	if (status != STATUS_PENDING)
		return status;
	rig_run(rig);
	cr_assert_eq(outcome.calls, 1);
	return outcome.status;
}

/* --- allocation ------------------------------------------------------------------------------ */

Test(allocate, zeroed_aligned_and_writable)
{
	unsigned char *bytes;
	MDL *mdl;

	cr_assert_eq(OrielAllocateMemory(10000, 0, &mdl), STATUS_SUCCESS);
	bytes = mdl->StartVa;
	cr_expect_eq((uintptr_t)bytes % 4096, 0);
	cr_expect_eq(mdl->ByteCount, 10000);
	cr_expect_null(mdl->Next);
	for (unsigned int i = 0; i < 10000; i++)
		cr_assert_eq(bytes[i], 0);
	memset(bytes, 1, 10000);
	OrielFreeMemory(mdl);
	OrielFreeMemory(NULL);
}

Test(allocate, parameters)
{
	MDL *mdl;

	cr_expect_eq(OrielAllocateMemory(0, 0, &mdl), STATUS_INVALID_PARAMETER);
	cr_expect_eq(OrielAllocateMemory(4096, 0x80, &mdl), STATUS_INVALID_PARAMETER);
	/* More than the machine has is refused before a page is touched. */
	cr_expect_eq(OrielAllocateMemory((SIZE_T)1 << 46, 0, &mdl), STATUS_NO_MEMORY);
}

/* Huge pages if there are enough, and small ones if not. */
Test(allocate, huge_pages_are_a_wish)
{
	MDL *mdl;

	cr_assert_eq(OrielAllocateMemory(3 << 20, ORIEL_MEMORY_HUGE_PAGES, &mdl), STATUS_SUCCESS);
	((char *)mdl->StartVa)[(3 << 20) - 1] = 1;
	cr_expect_eq(mdl->ByteCount, 3u << 20);
	OrielFreeMemory(mdl);
}

/* B98: unsealed memory is refused. */
Test(adopt, needs_the_seals)
{
	int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	MDL *mdl;

	cr_assert_eq(ftruncate(fd, 8192), 0);
	cr_expect_eq(OrielAdoptMemory(fd, 0, 8192, &mdl), STATUS_ACCESS_VIOLATION);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_expect_eq(OrielAdoptMemory(fd, 0, 8192, &mdl), STATUS_ACCESS_VIOLATION);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
	cr_expect_eq(OrielAdoptMemory(fd, 0, 8193, &mdl), STATUS_INVALID_PARAMETER);
	cr_expect_eq(OrielAdoptMemory(fd, 12, 100, &mdl), STATUS_INVALID_PARAMETER);
	cr_expect_eq(OrielAdoptMemory(fd, 4096, UINT64_MAX, &mdl), STATUS_INVALID_PARAMETER);
	cr_assert_eq(OrielAdoptMemory(fd, 4096, 100, &mdl), STATUS_SUCCESS);
	close(fd); /* the library has its own */
	((char *)mdl->StartVa)[0] = 'x';
	OrielFreeMemory(mdl);
	cr_expect_eq(OrielAdoptMemory(-1, 0, 1, &mdl), STATUS_INVALID_HANDLE);
}

/* --- registration -------------------------------------------------------------------- */

Test(register, tokens_and_what_the_daemon_is_told)
{
	const struct shm_register_mr *sent;
	struct rig rig;

	rig_queues(&rig);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
	sent = &rig.fake.last[SHM_OP_REGISTER_MR].register_mr;
	cr_expect_eq(NdkGetLocalTokenFromMr(rig.mr), 0x51);
	cr_expect_eq(NdkGetRemoteTokenFromMr(rig.mr), 0x52);
	cr_expect_eq(sent->virtual_address, (uintptr_t)rig.mdl->StartVa);
	cr_expect_eq(sent->offset, 0);
	cr_expect_eq(sent->length, 4096);
	cr_expect_eq(sent->access, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
	cr_expect_eq(rig.fake.segments, 1);
	rig_close(&rig);
}

Test(register, a_memfd_is_passed_once_and_dropped_when_freed)
{
	struct outcome outcome = { 0 };
	struct rig rig;
	MDL *mdl;
	NDK_MR *mr;

	rig_queues(&rig);
	OrielAllocateMemory(8192, 0, &mdl);
	mr = create_mr(&rig);
	cr_assert_eq(register_sync(&rig, mr, mdl, 8192, 0), STATUS_SUCCESS);
	cr_assert_eq(register_sync(&rig, create_mr(&rig), mdl, 100, 0), STATUS_SUCCESS);
	cr_expect_eq(rig.fake.segments, 1);
	NdkDeregisterMr(mr, on_done, &outcome);
	rig_run(&rig);
	cr_assert_eq(register_sync(&rig, mr, mdl, 100, 0), STATUS_SUCCESS);
	cr_expect_eq(rig.fake.segments, 1);
	OrielFreeMemory(mdl);
	rig_run(&rig);
	cr_expect_eq(rig.fake.last[SHM_OP_SEGMENT_DROP].segment_drop.cookie,
		     rig.fake.last[SHM_OP_REGISTER_MR].register_mr.cookie);
	rig_close(&rig);
}

Test(register, states_and_sizes)
{
	struct outcome outcome = { 0 };
	struct rig rig;
	MDL *mdl;
	NDK_MR *mr;

	rig_queues(&rig);
	OrielAllocateMemory(8192, 0, &mdl);
	mr = create_mr(&rig);
	cr_expect_eq(NdkDeregisterMr(mr, on_done, &outcome), STATUS_INVALID_DEVICE_STATE);
	cr_expect_eq(register_sync(&rig, mr, mdl, 0, 0), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(register_sync(&rig, mr, mdl, 8193, 0), STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, mr, NULL, 1, 0), STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, mr, mdl, (1ull << 30) + 1, 0), STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, mr, mdl, 1, 0x100), STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, mr, mdl, 1,
				   NDK_MR_FLAG_ALLOW_REMOTE_WRITE & ~NDK_MR_FLAG_ALLOW_LOCAL_WRITE),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, mr, mdl, 8192, NDK_MR_FLAG_RDMA_READ_SINK),
		     STATUS_SUCCESS);
	cr_expect_eq(register_sync(&rig, mr, mdl, 8192, 0), STATUS_INVALID_DEVICE_STATE);
	rig_close(&rig);
	OrielFreeMemory(mdl);
}

/* A failed registration leaves the region as it was. */
Test(register, failure_can_be_tried_again)
{
	struct rig rig;
	MDL *mdl;
	NDK_MR *mr;

	rig_queues(&rig);
	OrielAllocateMemory(4096, 0, &mdl);
	mr = create_mr(&rig);
	rig.fake.status[SHM_OP_REGISTER_MR] = STATUS_INSUFFICIENT_RESOURCES;
	cr_expect_eq(register_sync(&rig, mr, mdl, 4096, 0), STATUS_INSUFFICIENT_RESOURCES);
	cr_expect_eq(NdkGetLocalTokenFromMr(mr), 0);
	cr_expect_eq(rig.fake.segments, 1);
	rig.fake.status[SHM_OP_REGISTER_MR] = STATUS_INVALID_PARAMETER;
	cr_expect_eq(register_sync(&rig, mr, mdl, 4096, 0), STATUS_INVALID_PARAMETER);
	cr_expect_eq(rig.fake.segments, 2, "the daemon may have had no room for the memory either");
	rig.fake.status[SHM_OP_REGISTER_MR] = 0;
	cr_expect_eq(register_sync(&rig, mr, mdl, 4096, 0), STATUS_SUCCESS);
	cr_expect_eq(rig.fake.segments, 2);
	OrielFreeMemory(mdl);
	rig_run(&rig);
	cr_expect_eq(rig.fake.last[SHM_OP_SEGMENT_DROP].segment_drop.cookie,
		     rig.fake.last[SHM_OP_REGISTER_MR].register_mr.cookie);
	rig_close(&rig);
}

/* NdkRegisterMr: not virtually contiguous over Length. */
Test(register, chains_must_be_contiguous)
{
	struct rig rig;
	MDL *first, *second;

	rig_queues(&rig);
	OrielAllocateMemory(4096, 0, &first);
	OrielAllocateMemory(4096, 0, &second);
	first->Next = second;
	cr_expect_eq(register_sync(&rig, create_mr(&rig), first, 8192, 0),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(register_sync(&rig, create_mr(&rig), first, 4096, 0), STATUS_SUCCESS,
		     "what lies behind Length does not matter");
	rig_close(&rig);
	OrielFreeMemory(first);
	OrielFreeMemory(second);
}

/* NdkGetPrivilegedMemoryRegionToken: the daemon's, the same for every domain. */
Test(region, the_privileged_token_is_the_daemons)
{
	UINT32 token = 0;
	struct rig rig;

	rig_queues(&rig);
	NdkGetPrivilegedMemoryRegionToken(rig.pd, &token);
	cr_expect_eq(token, rig.fake.session->limits.privileged_token);
	cr_expect_neq(token, 0);
	rig_close(&rig);
}
