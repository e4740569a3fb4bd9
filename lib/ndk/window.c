/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory windows. The data plane decides about binds and invalidates, in queue order; here
 * stands what the library knows of them, so that it can refuse at once what must fail.
 */
#include <string.h>

#include "ndk/queue.h"

#define ORDER_FLAGS (NDK_OP_FLAG_SILENT_SUCCESS | NDK_OP_FLAG_READ_FENCE | NDK_OP_FLAG_DEFER)
#define BIND_FLAGS                                                                      \
	(ORDER_FLAGS | NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE | \
	 ORIEL_OP_FLAG_TIE_TO_QP | ORIEL_OP_FLAG_EARLY | ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC)

_Static_assert(offsetof(struct mw, object) == sizeof(NDK_MW), "window");
_Static_assert(NDK_OP_FLAG_SILENT_SUCCESS == SHM_FLAG_SILENT_SUCCESS &&
		       NDK_OP_FLAG_READ_FENCE == SHM_FLAG_READ_FENCE &&
		       NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT == SHM_FLAG_SOLICIT &&
		       NDK_OP_FLAG_ALLOW_REMOTE_READ == SHM_FLAG_ALLOW_REMOTE_READ &&
		       NDK_OP_FLAG_ALLOW_REMOTE_WRITE == SHM_FLAG_ALLOW_REMOTE_WRITE &&
		       NDK_OP_FLAG_ALLOW_LOCAL_WRITE == SHM_FLAG_ALLOW_LOCAL_WRITE &&
		       NDK_OP_FLAG_INLINE == SHM_FLAG_INLINE &&
		       NDK_OP_FLAG_DEFER == SHM_FLAG_DEFER &&
		       ORIEL_OP_FLAG_TIE_TO_QP == SHM_FLAG_TIE_TO_QP &&
		       ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC == SHM_FLAG_ALLOW_REMOTE_ATOMIC,
	       "flags go into the ring as they are");

static struct mw *mw_of(NDK_MW *ndk)
{
	return (struct mw *)ndk;
}

static void mw_destroy(struct object *object)
{
	struct mw *mw = container_of(object, struct mw, object);

	spin_lock(&object->adapter->window_lock);
	window_unbind(mw);
	token_link_remove(object->adapter, &mw->leaving);
	spin_unlock(&object->adapter->window_lock);
}

NTSTATUS mw_create(NDK_PD *pd, NDK_FN_CREATE_COMPLETION completion, PVOID context, NDK_MW **ppmw)
{
	struct object *domain = object_of(&pd->Header);
	struct shm_request message = { .op = SHM_OP_CREATE_MW,
				       .create_mw = { .pd = domain->handle } };
	struct object *object = object_allocate(domain->adapter, sizeof(struct mw), NdkObjectTypeMw,
						&mw_dispatch, mw_destroy);

	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	object->needs[0] = domain;
	return object_create(object, &message, NULL, completion, context);
}

static UINT32 mw_remote_token(NDK_MW *ndk)
{
	return __atomic_load_n(&mw_of(ndk)->current.by_token.number, __ATOMIC_RELAXED);
}

/* --- what is known of it --------------------------------------------------------------- */

static void tie_to_region(struct mw *mw, struct mr *mr)
{
	mw->mr = mr;
	mw->previous = NULL;
	mw->next = mr->windows;
	if (mw->next)
		mw->next->previous = mw;
	mr->windows = mw;
}

static void untie(struct mw *mw)
{
	if (!mw->mr)
		return;
	if (mw->previous)
		mw->previous->next = mw->next;
	else
		mw->mr->windows = mw->next;
	if (mw->next)
		mw->next->previous = mw->previous;
	mw->mr = NULL;
}

void window_unbind(struct mw *mw)
{
	untie(mw);
	token_link_remove(mw->object.adapter, &mw->current);
	mw->state = WINDOW_UNBOUND;
}

static void window_bind(struct mw *mw, struct mr *mr, uint32_t token)
{
	token_link_add(mw->object.adapter, &mw->current, mw, token);
	tie_to_region(mw, mr);
	mw->state = WINDOW_BOUND;
	mw->leaving_cancelled = false;
}

/* From here on it can be bound again, behind the invalidate. */
static void window_leave(struct mw *mw)
{
	struct adapter *adapter = mw->object.adapter;
	uint32_t token = mw->current.by_token.number;

	window_unbind(mw);
	token_link_remove(adapter, &mw->leaving);
	token_link_add(adapter, &mw->leaving, mw, token);
}

/* An invalidate was cancelled, and so was the bind behind it if there was one. */
static void window_came_back(struct mw *mw)
{
	uint32_t token = mw->leaving.by_token.number;

	token_link_remove(mw->object.adapter, &mw->leaving);
	token_link_add(mw->object.adapter, &mw->current, mw, token);
	mw->state = WINDOW_BOUND; /* to which region is not known any more, and not needed */
	mw->leaving_cancelled = false;
}

static void bind_failed(struct mw *mw)
{
	window_unbind(mw);
	if (mw->leaving_cancelled && mw->leaving.by_token.number)
		window_came_back(mw);
}

static void invalidate_completed(struct adapter *adapter, struct token_link *link, NTSTATUS status)
{
	struct mw *mw = link->mw;

	if (link != &mw->leaving)
		return;
	if (status != STATUS_CANCELLED)
		token_link_remove(adapter, link);
	else if (mw->state == WINDOW_UNBOUND)
		window_came_back(mw);
	else
		mw->leaving_cancelled = true; /* until the bind behind it is known to have failed */
}

void window_completed(struct adapter *adapter, const struct shm_cqe *cqe)
{
	struct token_link *link;

	spin_lock(&adapter->window_lock);
	link = cqe->output ? token_link_find(adapter, cqe->output) : NULL;
	if (link && link->mr) {
		fast_register_completed(link->mr, cqe);
	} else if (link) {
		switch (cqe->type) {
		case NdkOperationTypeBind:
			if (cqe->status && link == &link->mw->current)
				bind_failed(link->mw);
			break;
		case NdkOperationTypeInvalidate:
			invalidate_completed(adapter, link, cqe->status);
			break;
		case NdkOperationTypeReceiveAndInvalidate:
			if (link == &link->mw->current)
				window_unbind(link->mw);
			else
				token_link_remove(adapter, link);
			break;
		default: break;
		}
	}
	spin_unlock(&adapter->window_lock);
}

/* --- bind ---------------------------------------------------------------------------- */

static bool within(uint64_t base, uint64_t size, uint64_t address, uint64_t length)
{
	return address >= base && length <= size && address - base <= size - length;
}

static NTSTATUS check_bind(const struct qp *qp, const struct mr *mr, const struct mw *mw,
			   uint64_t address, uint64_t length, uint32_t flags)
{
	const struct object *domain = qp->object.needs[QP_NEEDS_PD];
	const bool writes = (flags & NDK_OP_FLAG_ALLOW_REMOTE_WRITE) ||
			    (flags & ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC);

	if (mr->object.needs[0] != domain || mw->object.needs[0] != domain)
		return STATUS_INVALID_PARAMETER;
	/* Remote write is two bits, and neither means anything here without the other. */
	if ((flags & NDK_OP_FLAG_ALLOW_REMOTE_WRITE) &&
	    (flags & NDK_OP_FLAG_ALLOW_REMOTE_WRITE) != NDK_OP_FLAG_ALLOW_REMOTE_WRITE)
		return STATUS_INVALID_PARAMETER;
	if (!mr->registered || mr->fast_register || length == 0)
		return STATUS_INVALID_PARAMETER;
	if (length > mr->object.adapter->session->limits.max_window_size ||
	    !within(mr->address, mr->length, address, length))
		return STATUS_INVALID_PARAMETER;
	/* NdkBind remarks: remote write needs a region registered with local write. */
	if (writes && !(mr->access & NDK_MR_FLAG_ALLOW_LOCAL_WRITE))
		return STATUS_ACCESS_VIOLATION;
	if (mw->state == WINDOW_BOUND)
		return STATUS_INVALID_DEVICE_STATE;
	return STATUS_SUCCESS;
}

static NTSTATUS bind_prepare(const struct qp *qp, struct mr *mr, struct mw *mw, struct shm_sqe *sqe)
{
	struct adapter *adapter = qp->object.adapter;
	NTSTATUS status;

	spin_lock(&adapter->window_lock);
	status = check_bind(qp, mr, mw, sqe->address, sqe->length, sqe->flags);
	if (status == STATUS_SUCCESS) {
		sqe->token = token_take(adapter);
		if (sqe->token)
			window_bind(mw, mr, sqe->token);
		else
			status = STATUS_INSUFFICIENT_RESOURCES;
	}
	spin_unlock(&adapter->window_lock);
	return status;
}

NTSTATUS window_post_bind(NDK_QP *ndk, PVOID context, NDK_MR *ndk_mr, NDK_MW *ndk_mw, PVOID address,
			  SIZE_T length, ULONG flags)
{
	struct qp *qp = qp_of(ndk);
	struct mr *mr = (struct mr *)ndk_mr;
	struct mw *mw = mw_of(ndk_mw);
	struct shm_sqe sqe = { .opcode = SHM_WR_BIND,
			       .flags = flags & ~ORIEL_OP_FLAG_EARLY, /* the library's matter */
			       .request_context = (uintptr_t)context,
			       .address = (uintptr_t)address,
			       .length = length,
			       .mr = mr->object.handle,
			       .mw = mw->object.handle };
	NTSTATUS status;

	spin_lock(&qp->send_lock);
	status = send_check(qp, FOR_RC_UC, flags, BIND_FLAGS, flags & ORIEL_OP_FLAG_EARLY);
	if (status == STATUS_SUCCESS)
		status = bind_prepare(qp, mr, mw, &sqe);
	if (status == STATUS_SUCCESS)
		memcpy(send_slot(qp), &sqe, sizeof(sqe));
	send_end(qp, status, flags);
	spin_unlock(&qp->send_lock);
	return status;
}

/* --- invalidate ---------------------------------------------------------------------- */

static NTSTATUS invalidate_prepare(const struct qp *qp, NDK_OBJECT_HEADER *header,
				   struct shm_sqe *sqe)
{
	struct object *object = object_of(header);
	struct adapter *adapter = qp->object.adapter;
	NTSTATUS status = STATUS_SUCCESS;
	struct mw *mw;

	/* NdkInvalidate remarks: a region that NdkRegisterMr made is none of its business. */
	if (object->type != NdkObjectTypeMw && object->type != NdkObjectTypeMr)
		return STATUS_INVALID_DEVICE_REQUEST;
	if (object->needs[0] != qp->object.needs[QP_NEEDS_PD])
		return STATUS_INVALID_PARAMETER;
	mw = container_of(object, struct mw, object);
	spin_lock(&adapter->window_lock);
	if (object->type == NdkObjectTypeMr) {
		status = fast_register_invalidate(container_of(object, struct mr, object), sqe);
	} else if (mw->state == WINDOW_BOUND) {
		sqe->token = mw->current.by_token.number;
		sqe->mw = object->handle;
		window_leave(mw);
	} else {
		status = STATUS_INVALID_DEVICE_REQUEST;
	}
	spin_unlock(&adapter->window_lock);
	return status;
}

NTSTATUS window_post_invalidate(NDK_QP *ndk, PVOID context, NDK_OBJECT_HEADER *header, ULONG flags)
{
	struct qp *qp = qp_of(ndk);
	struct shm_sqe sqe = { .opcode = SHM_WR_INVALIDATE,
			       .flags = flags,
			       .request_context = (uintptr_t)context };
	NTSTATUS status;

	spin_lock(&qp->send_lock);
	status = send_check(qp, FOR_RC_UC, flags, ORDER_FLAGS, false);
	if (status == STATUS_SUCCESS)
		status = invalidate_prepare(qp, header, &sqe);
	if (status == STATUS_SUCCESS)
		memcpy(send_slot(qp), &sqe, sizeof(sqe));
	send_end(qp, status, flags);
	spin_unlock(&qp->send_lock);
	return status;
}

const NDK_MW_DISPATCH mw_dispatch = {
	.NdkCloseMw = object_close,
	.NdkQueryExtension = query_extension,
	.NdkGetRemoteTokenFromMw = mw_remote_token,
};
