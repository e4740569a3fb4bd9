/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests about protection domains, regions, windows, tokens and segments. */
#include <errno.h>

#include "control/control_private.h"

/* NDK_MR_FLAG_* and ORIEL_MR_FLAG_* as they come in a request. */
#define MR_LOCAL_WRITE   0x00000001u
#define MR_REMOTE_READ   0x00000002u
#define MR_REMOTE_WRITE  0x00000004u
#define MR_READ_SINK     0x00000008u
#define MR_REMOTE_ATOMIC 0x00010000u
#define MR_FLAGS \
	(MR_LOCAL_WRITE | MR_REMOTE_READ | MR_REMOTE_WRITE | MR_READ_SINK | MR_REMOTE_ATOMIC)

_Static_assert(LOGICAL_OFFSET_BITS == SHM_LOGICAL_OFFSET_BITS, "logical addresses");

static int32_t status_of(int error)
{
	switch (error) {
	case 0: return NT_SUCCESS_STATUS;
	case -EBUSY: return NT_DEVICE_BUSY;
	case -EINVAL: return NT_INVALID_PARAMETER;
	case -EEXIST: return NT_INVALID_DEVICE_STATE;
	default: return NT_INSUFFICIENT_RESOURCES;
	}
}

static int32_t created(struct control *control, struct object *object, struct shm_reply *reply)
{
	reply->created.handle = object_handle(control, object);
	return NT_SUCCESS_STATUS;
}

int32_t request_create_pd(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	struct object *object = object_create(control, session, OBJECT_TYPE_PD);
	int error;

	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	error = pd_create(control->memory, session, &object->index);
	if (error) {
		object_free(control, object);
		return status_of(error);
	}
	return created(control, object, reply);
}

int32_t request_create_mr(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	struct object *pd = object_find(control, session, request->create_mr.pd, OBJECT_TYPE_PD);
	struct object *object;
	int error;

	if (!pd)
		return NT_INVALID_HANDLE;
	object = object_create(control, session, OBJECT_TYPE_MR);
	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	error = region_create(control->memory, session, pd->index,
			      request->create_mr.fast_register != 0, &object->index);
	if (error) {
		object_free(control, object);
		return status_of(error);
	}
	object_need(control, object, 0, pd);
	return created(control, object, reply);
}

int32_t request_create_mw(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	struct object *pd = object_find(control, session, request->create_mw.pd, OBJECT_TYPE_PD);
	struct object *object;
	int error;

	if (!pd)
		return NT_INVALID_HANDLE;
	object = object_create(control, session, OBJECT_TYPE_MW);
	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	error = window_create(control->memory, session, pd->index, &object->index);
	if (error) {
		object_free(control, object);
		return status_of(error);
	}
	object_need(control, object, 0, pd);
	return created(control, object, reply);
}

static uint32_t rights_of(uint32_t flags)
{
	uint32_t rights = RIGHT_LOCAL_READ;

	if (flags & MR_LOCAL_WRITE)
		rights |= RIGHT_LOCAL_WRITE;
	if (flags & MR_REMOTE_READ)
		rights |= RIGHT_REMOTE_READ;
	if (flags & MR_REMOTE_WRITE)
		rights |= RIGHT_REMOTE_WRITE;
	if (flags & MR_REMOTE_ATOMIC)
		rights |= RIGHT_REMOTE_ATOMIC;
	return rights;
}

int32_t request_register_mr(struct control *control, uint32_t session,
			    const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_register_mr *want = &request->register_mr;
	struct object *mr = object_find(control, session, want->mr, OBJECT_TYPE_MR);
	uint32_t segment;
	int error;

	if (!mr)
		return NT_INVALID_HANDLE;
	if (want->access & ~MR_FLAGS)
		return NT_INVALID_PARAMETER;
	/* Remote write and atomic need local write (IBTA C10-74); NDKPI's flags contain it. */
	if ((want->access & (MR_REMOTE_WRITE | MR_REMOTE_ATOMIC)) &&
	    !(want->access & MR_LOCAL_WRITE))
		return NT_INVALID_PARAMETER;
	segment = segment_find(control->memory, session, want->cookie);
	if (!segment)
		return incoming_status(control, session, want->cookie);
	error = region_register(control->memory, mr->index, segment, want->offset, want->length,
				want->virtual_address, rights_of(want->access),
				&reply->registered.local_token, &reply->registered.remote_token);
	return status_of(error);
}

int32_t request_init_frmr(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_init_frmr *want = &request->init_frmr;
	struct object *mr = object_find(control, session, want->mr, OBJECT_TYPE_MR);

	if (!mr)
		return NT_INVALID_HANDLE;
	if (want->page_count == 0 || want->page_count > control->limits.frmr_page_count)
		return NT_IMPLEMENTATION_LIMIT;
	return status_of(region_init_fast_register(
		control->memory, mr->index, want->page_count, want->remote_access != 0,
		&reply->registered.local_token, &reply->registered.remote_token));
}

/* A worker checks at each use that the number is a memfd of the session. */
int32_t request_find_segment(struct control *control, uint32_t session,
			     const struct shm_request *request, struct shm_reply *reply)
{
	reply->segment.segment =
		segment_find(control->memory, session, request->segment_drop.cookie);
	if (!reply->segment.segment)
		return incoming_status(control, session, request->segment_drop.cookie);
	return NT_SUCCESS_STATUS;
}

int32_t request_deregister_mr(struct control *control, uint32_t session,
			      const struct shm_request *request, struct shm_reply *reply)
{
	struct object *mr = object_find(control, session, request->object.object, OBJECT_TYPE_MR);
	uint64_t grace;
	int error;

	if (!mr)
		return NT_INVALID_HANDLE;
	if (mr->pending_id)
		return NT_DEVICE_BUSY;
	error = region_deregister(control->memory, mr->index, &grace);
	if (error)
		return status_of(error);
	mr->pending_op = request->op;
	mr->pending_id = request->id;
	grace_wait(control, mr, grace);
	return NT_PENDING;
}

int32_t request_refill_tokens(struct control *control, uint32_t session,
			      const struct shm_request *request, struct shm_reply *reply)
{
	uint32_t count = request->refill.count;

	if (count > SHM_REFILL_MAX)
		count = SHM_REFILL_MAX;
	reply->tokens.count = token_reserve(control->memory, session, count, reply->tokens.token);
	return reply->tokens.count ? NT_SUCCESS_STATUS : NT_INSUFFICIENT_RESOURCES;
}

int32_t request_segment_drop(struct control *control, uint32_t session,
			     const struct shm_request *request, struct shm_reply *reply)
{
	uint32_t segment = segment_find(control->memory, session, request->segment_drop.cookie);

	if (!segment)
		return NT_INVALID_PARAMETER;
	return status_of(segment_detach(control->memory, segment));
}
