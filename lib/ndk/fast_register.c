/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fast-register regions: logical addresses, and registration in queue order.
 *
 * A logical address names a byte of a memfd: the daemon's number of it above, the offset below.
 * The daemon registers one range of one memfd, so the pages must follow each other. An SGE with the
 * privileged token takes such an address as it is.
 */
#include <stdlib.h>
#include <string.h>

#include "ndk/queue.h"

#define PAGE        4096u /* NDKPI's PAGE_SIZE: what AdapterPageCount counts */
#define OFFSET_BITS SHM_LOGICAL_OFFSET_BITS
#define ORDER_FLAGS (NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER)
#define RIGHTS_FLAGS                                                      \
	(NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE | \
	 ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC)
/* A sink needs no right of its own here: NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED. */
#define FAST_REGISTER_FLAGS (ORDER_FLAGS | RIGHTS_FLAGS | NDK_OP_FLAG_RDMA_READ_SINK)

/* --- logical addresses ------------------------------------------------------------------- */

/* A build that waits for the daemon's number of the memfd. */
struct lam_build {
	NDK_LOGICAL_ADDRESS_MAPPING *lam;
	ULONG *size;
	ULONG *first; /* FBO */
	uint64_t cookie;
	uint64_t offset; /* of the first byte in the memfd */
	uint64_t length;
};

static uint32_t pages_of(uint64_t offset, uint64_t length)
{
	return (uint32_t)((offset % PAGE + length + PAGE - 1) / PAGE);
}

static ULONG lam_size(uint32_t pages)
{
	return (ULONG)(offsetof(NDK_LOGICAL_ADDRESS_MAPPING, AdapterPageArray) +
		       pages * sizeof(NDK_LOGICAL_ADDRESS));
}

static void lam_fill(const struct lam_build *build, uint32_t segment)
{
	const uint32_t pages = pages_of(build->offset, build->length);
	const uint64_t first = (uint64_t)segment << OFFSET_BITS | (build->offset & ~(PAGE - 1ull));

	build->lam->AdapterContext = NULL;
	build->lam->AdapterPageCount = pages;
	for (uint32_t i = 0; i < pages; i++)
		build->lam->AdapterPageArray[i].QuadPart = (int64_t)(first + (uint64_t)i * PAGE);
	*build->size = lam_size(pages);
	*build->first = (ULONG)(build->offset % PAGE);
}

static void lam_finish(struct request *request, const struct shm_reply *reply)
{
	struct lam_build *build = (struct lam_build *)(uintptr_t)request->extra;
	struct adapter *adapter = container_of(request->object, struct adapter, object);

	memory_heard(adapter, build->cookie, request->status);
	if (NT_SUCCESS(request->status)) {
		memory_set_segment(adapter, build->cookie, reply->segment.segment);
		lam_fill(build, reply->segment.segment);
	}
	free(build);
}

/* adapter.lock is held. The first build on a memfd asks the daemon. */
static NTSTATUS lam_build(struct adapter *adapter, const struct lam_build *build,
			  NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct shm_request message = { .op = SHM_OP_FIND_SEGMENT,
				       .segment_drop = { .cookie = build->cookie } };
	uint32_t segment = memory_get_segment(adapter, build->cookie);
	struct request *request;
	struct lam_build *copy;
	NTSTATUS status;

	if (segment) {
		lam_fill(build, segment);
		return STATUS_SUCCESS;
	}
	request = request_create(REQUEST_ASYNC, &adapter->object, lam_finish);
	copy = malloc(sizeof(*copy));
	if (!request || !copy) {
		free(request);
		free(copy);
		return STATUS_INSUFFICIENT_RESOURCES;
	}
	*copy = *build;
	request->extra = (uintptr_t)copy;
	request->completion.async = completion;
	request->context = context;
	status = request_send(adapter, request, &message);
	if (status != STATUS_PENDING) {
		free(request);
		free(copy);
	}
	return status;
}

NTSTATUS lam_create(NDK_ADAPTER *ndk, MDL *mdl, SIZE_T length, NDK_FN_REQUEST_COMPLETION completion,
		    PVOID context, NDK_LOGICAL_ADDRESS_MAPPING *lam, ULONG *size, ULONG *fbo)
{
	struct adapter *adapter = adapter_of(ndk);
	struct memory *memory;
	struct lam_build build;
	NTSTATUS status;
	ULONG room = *size;

	if (length == 0)
		return STATUS_INVALID_BUFFER_SIZE;
	if (length > adapter->session->limits.max_registration_size)
		return STATUS_INVALID_PARAMETER;
	status = memory_of_mdl(mdl, length, &memory);
	if (status != STATUS_SUCCESS)
		return status;
	if (memory->offset + length > 1ull << OFFSET_BITS)
		return STATUS_INVALID_PARAMETER;
	build = (struct lam_build){ lam, size, fbo, memory->cookie, memory->offset, length };
	*size = lam_size(pages_of(build.offset, length));
	if (!lam || room < *size)
		return STATUS_BUFFER_TOO_SMALL;
	pthread_mutex_lock(&adapter->lock);
	status = adapter->dead ? STATUS_DEVICE_REMOVED : memory_send(adapter, memory);
	if (status == STATUS_SUCCESS)
		status = lam_build(adapter, &build, completion, context);
	pthread_mutex_unlock(&adapter->lock);
	return status;
}

/* Nothing is held by it: pages of registered memory are there for as long as the memfd is. */
void lam_release(NDK_ADAPTER *adapter, NDK_LOGICAL_ADDRESS_MAPPING *lam)
{
	lam->AdapterPageCount = 0;
}

/* --- what is known of a region ----------------------------------------------------------- */

/*
 * window_lock is held. As with windows: an invalidate that was cancelled has not happened, nor
 * has what was posted behind it.
 */
void fast_register_completed(struct mr *mr, const struct shm_cqe *cqe)
{
	switch (cqe->type) {
	case NdkOperationTypeFastRegister:
		if (cqe->status) {
			mr->valid = mr->kept;
			mr->kept = false;
		}
		break;
	case NdkOperationTypeInvalidate:
		if (cqe->status != STATUS_CANCELLED)
			break;
		mr->kept = mr->valid;
		mr->valid = true;
		break;
	case NdkOperationTypeReceiveAndInvalidate: mr->valid = mr->kept = false; break;
	default: break;
	}
}

/* window_lock is held. */
NTSTATUS fast_register_invalidate(struct mr *mr, struct shm_sqe *sqe)
{
	if (!mr->fast_register || !mr->valid)
		return STATUS_INVALID_DEVICE_REQUEST;
	mr->valid = mr->kept = false;
	sqe->token = mr->ending.by_token.number;
	sqe->mr = mr->object.handle;
	return STATUS_SUCCESS;
}

/* --- NdkFastRegister ---------------------------------------------------------------------- */

/* NdkFastRegister remarks: the base is the consumer's choice, but for its place within the page. */
static bool range_possible(uint32_t pages, uint32_t fbo, uint64_t length, uint64_t base)
{
	if (fbo >= PAGE || length == 0 || length > (uint64_t)pages * PAGE - fbo)
		return false;
	return base >= fbo && (base - fbo) % PAGE == 0 && length - 1 <= UINT64_MAX - base;
}

static bool pages_follow(const NDK_LOGICAL_ADDRESS *array, uint32_t pages)
{
	if (array[0].QuadPart % PAGE)
		return false;
	for (uint32_t i = 1; i < pages; i++)
		if (array[i].QuadPart != array[0].QuadPart + (int64_t)i * PAGE)
			return false;
	return true;
}

static NTSTATUS check_rights(const struct mr *mr, uint32_t flags)
{
	const bool writes =
		flags & (NDK_OP_FLAG_ALLOW_REMOTE_WRITE & ~NDK_OP_FLAG_ALLOW_LOCAL_WRITE);
	const bool atomics = flags & ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC;

	if ((writes || atomics) && !(flags & NDK_OP_FLAG_ALLOW_LOCAL_WRITE))
		return STATUS_INVALID_PARAMETER;
	if ((writes || atomics || (flags & NDK_OP_FLAG_ALLOW_REMOTE_READ)) && !mr->remote_token)
		return STATUS_ACCESS_VIOLATION;
	return STATUS_SUCCESS;
}

/* window_lock is held. */
static NTSTATUS register_prepare(const struct qp *qp, struct mr *mr, uint32_t pages, uint32_t flags)
{
	NTSTATUS status;

	if (!mr->fast_register || !mr->registered || pages > mr->max_pages ||
	    mr->object.needs[0] != qp->object.needs[QP_NEEDS_PD])
		return STATUS_INVALID_PARAMETER;
	status = check_rights(mr, flags);
	if (status != STATUS_SUCCESS)
		return status;
	if (mr->valid)
		return STATUS_INVALID_DEVICE_STATE;
	mr->valid = true;
	mr->kept = false;
	return STATUS_SUCCESS;
}

NTSTATUS post_fast_register(NDK_QP *ndk, PVOID context, NDK_MR *ndk_mr, ULONG pages,
			    const NDK_LOGICAL_ADDRESS *array, ULONG fbo, SIZE_T length, PVOID base,
			    ULONG flags)
{
	struct qp *qp = qp_of(ndk);
	struct mr *mr = (struct mr *)ndk_mr;
	struct adapter *adapter = qp->object.adapter;
	struct shm_sqe sqe = { .opcode = SHM_WR_FAST_REGISTER,
			       .flags = flags & ~NDK_OP_FLAG_RDMA_READ_SINK,
			       .request_context = (uintptr_t)context,
			       .address = (uintptr_t)base,
			       .length = length,
			       .token = mr->ending.by_token.number,
			       .mr = mr->object.handle };
	NTSTATUS status;

	spin_lock(&qp->send_lock);
	status = send_check(qp, FOR_RC_UC, flags, FAST_REGISTER_FLAGS, false);
	if (status == STATUS_SUCCESS &&
	    (!array || pages == 0 || !range_possible(pages, fbo, length, (uintptr_t)base) ||
	     !pages_follow(array, pages)))
		status = STATUS_INVALID_PARAMETER;
	if (status == STATUS_SUCCESS) {
		sqe.compare = (uint64_t)array[0].QuadPart >> OFFSET_BITS;
		sqe.swap = ((uint64_t)array[0].QuadPart & ((1ull << OFFSET_BITS) - 1)) + fbo;
		spin_lock(&adapter->window_lock);
		status = register_prepare(qp, mr, pages, flags);
		spin_unlock(&adapter->window_lock);
	}
	if (status == STATUS_SUCCESS)
		memcpy(send_slot(qp), &sqe, sizeof(sqe));
	send_end(qp, status, flags);
	spin_unlock(&qp->send_lock);
	return status;
}
