/* SPDX-License-Identifier: BSD-3-Clause */
/* Protection domains and memory regions. */
#include <stdlib.h>

#include "ndk/queue.h"

#define MR_FLAGS                                                         \
	(NDK_MR_FLAG_ALLOW_LOCAL_WRITE | NDK_MR_FLAG_ALLOW_REMOTE_READ | \
	 NDK_MR_FLAG_ALLOW_REMOTE_WRITE | NDK_MR_FLAG_RDMA_READ_SINK |   \
	 ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC)

#define REMOTE_WRITE_BIT  (NDK_MR_FLAG_ALLOW_REMOTE_WRITE & ~NDK_MR_FLAG_ALLOW_LOCAL_WRITE)
#define REMOTE_ATOMIC_BIT (ORIEL_MR_FLAG_ALLOW_REMOTE_ATOMIC & ~NDK_MR_FLAG_ALLOW_LOCAL_WRITE)

_Static_assert(offsetof(struct mr, object) == sizeof(NDK_MR), "region");

/* --- protection domains ---------------------------------------------------------------- */

NTSTATUS pd_create(NDK_ADAPTER *ndk, NDK_FN_CREATE_COMPLETION completion, PVOID context,
		   NDK_PD **pd)
{
	struct shm_request message = { .op = SHM_OP_CREATE_PD };
	struct object *object =
		object_allocate(adapter_of(ndk), sizeof(NDK_PD) + sizeof(struct object),
				NdkObjectTypePd, &pd_dispatch, NULL);

	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	return object_create(object, &message, NULL, completion, context);
}

static void pd_privileged_token(NDK_PD *pd, UINT32 *token)
{
	*token = object_of(&pd->Header)->adapter->session->limits.privileged_token;
}

/* --- regions -------------------------------------------------------------------------------- */

static struct mr *mr_of(NDK_MR *ndk)
{
	return (struct mr *)ndk;
}

/* The daemon closes a region only when no window is bound to it any more. */
static void mr_destroy(struct object *object)
{
	struct mr *mr = container_of(object, struct mr, object);

	spin_lock(&object->adapter->window_lock);
	while (mr->windows)
		window_unbind(mr->windows);
	token_link_remove(object->adapter, &mr->ending);
	spin_unlock(&object->adapter->window_lock);
}

static NTSTATUS mr_create(NDK_PD *pd, BOOLEAN fast_register, NDK_FN_CREATE_COMPLETION completion,
			  PVOID context, NDK_MR **ppmr)
{
	struct object *domain = object_of(&pd->Header);
	struct shm_request message = { .op = SHM_OP_CREATE_MR,
				       .create_mr = { .pd = domain->handle,
						      .fast_register = fast_register } };
	struct object *object;

	object = object_allocate(domain->adapter, sizeof(struct mr), NdkObjectTypeMr, &mr_dispatch,
				 mr_destroy);
	if (!object)
		return STATUS_INSUFFICIENT_RESOURCES;
	object->needs[0] = domain;
	container_of(object, struct mr, object)->fast_register = fast_register;
	/* Only the daemon knows for certain when the last window has left it. */
	object->close_early = true;
	return object_create(object, &message, NULL, completion, context);
}

static void register_finish(struct request *request, const struct shm_reply *reply)
{
	struct mr *mr = container_of(request->object, struct mr, object);
	struct adapter *adapter = mr->object.adapter;

	memory_heard(adapter, request->extra, request->status);
	spin_lock(&adapter->window_lock);
	mr->busy = false;
	if (NT_SUCCESS(request->status)) {
		mr->registered = true;
		mr->local_token = reply->registered.local_token;
		mr->remote_token = reply->registered.remote_token;
	}
	spin_unlock(&adapter->window_lock);
}

static void deregister_finish(struct request *request, const struct shm_reply *reply)
{
	struct mr *mr = container_of(request->object, struct mr, object);
	struct adapter *adapter = mr->object.adapter;

	spin_lock(&adapter->window_lock);
	mr->busy = false;
	if (NT_SUCCESS(request->status)) {
		mr->registered = false;
		mr->local_token = mr->remote_token = 0;
		/* The daemon refuses while one is bound: what is left here was ended by peers. */
		while (mr->windows)
			window_unbind(mr->windows);
	}
	spin_unlock(&adapter->window_lock);
}

/*
 * One request at a time on a region; whether it is registered decides which. Of which kind it
 * is was decided at its creation.
 */
static NTSTATUS mr_begin(struct mr *mr, bool fast_register, bool registered)
{
	struct adapter *adapter = mr->object.adapter;
	NTSTATUS status = STATUS_SUCCESS;

	if (mr->fast_register != fast_register)
		return STATUS_INVALID_DEVICE_REQUEST;
	spin_lock(&adapter->window_lock);
	if (mr->busy || mr->registered != registered)
		status = STATUS_INVALID_DEVICE_STATE;
	else
		mr->busy = true;
	spin_unlock(&adapter->window_lock);
	return status;
}

static NTSTATUS mr_request(struct mr *mr, struct memory *memory, struct shm_request *message,
			   request_finisher *finish, NDK_FN_REQUEST_COMPLETION completion,
			   void *context)
{
	struct adapter *adapter = mr->object.adapter;
	struct request *request = request_create(REQUEST_ASYNC, &mr->object, finish);
	NTSTATUS status = STATUS_INSUFFICIENT_RESOURCES;

	pthread_mutex_lock(&adapter->lock);
	if (request) {
		request->completion.async = completion;
		request->context = context;
		request->extra = memory ? memory->cookie : 0;
		status = adapter->dead ? STATUS_DEVICE_REMOVED : STATUS_SUCCESS;
		if (status == STATUS_SUCCESS && memory)
			status = memory_send(adapter, memory);
		if (status == STATUS_SUCCESS)
			status = request_send(adapter, request, message);
	}
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING) {
		free(request);
		spin_lock(&adapter->window_lock);
		mr->busy = false;
		spin_unlock(&adapter->window_lock);
	}
	return status;
}

static NTSTATUS check_registration(const struct mr *mr, uint64_t length, uint32_t flags)
{
	const struct shm_limits *limits = &mr->object.adapter->session->limits;

	if (length == 0)
		return STATUS_INVALID_BUFFER_SIZE;
	if (length > limits->max_registration_size || (flags & ~MR_FLAGS))
		return STATUS_INVALID_PARAMETER;
	if ((flags & (REMOTE_WRITE_BIT | REMOTE_ATOMIC_BIT)) &&
	    !(flags & NDK_MR_FLAG_ALLOW_LOCAL_WRITE))
		return STATUS_INVALID_PARAMETER;
	return STATUS_SUCCESS;
}

static NTSTATUS mr_register(NDK_MR *ndk, MDL *mdl, SIZE_T length, ULONG flags,
			    NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct mr *mr = mr_of(ndk);
	struct shm_request message = { .op = SHM_OP_REGISTER_MR };
	struct memory *memory;
	NTSTATUS status;

	status = check_registration(mr, length, flags);
	if (status == STATUS_SUCCESS)
		status = memory_of_mdl(mdl, length, &memory);
	if (status == STATUS_SUCCESS)
		status = mr_begin(mr, false, false);
	if (status != STATUS_SUCCESS)
		return status;
	mr->address = (uintptr_t)memory->address;
	mr->length = length;
	mr->access = flags;
	message.register_mr = (struct shm_register_mr){ .mr = mr->object.handle,
							.access = flags,
							.cookie = memory->cookie,
							.offset = memory->offset,
							.length = length,
							.virtual_address = mr->address };
	return mr_request(mr, memory, &message, register_finish, completion, context);
}

static NTSTATUS mr_deregister(NDK_MR *ndk, NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct mr *mr = mr_of(ndk);
	struct shm_request message = { .op = SHM_OP_DEREGISTER_MR,
				       .object = { .object = mr->object.handle } };
	NTSTATUS status = mr_begin(mr, false, true);

	if (status != STATUS_SUCCESS)
		return status;
	return mr_request(mr, NULL, &message, deregister_finish, completion, context);
}

/* Its tokens are for life: the one that ends a registration is known from here on. */
static void init_finish(struct request *request, const struct shm_reply *reply)
{
	struct mr *mr = container_of(request->object, struct mr, object);
	const struct shm_registered *tokens = &reply->registered;
	struct adapter *adapter = mr->object.adapter;

	spin_lock(&adapter->window_lock);
	mr->busy = false;
	if (NT_SUCCESS(request->status)) {
		mr->registered = true;
		mr->local_token = tokens->local_token;
		mr->remote_token = tokens->remote_token;
		token_link_add(adapter, &mr->ending, NULL,
			       mr->remote_token ? mr->remote_token : mr->local_token);
		mr->ending.mr = mr;
	}
	spin_unlock(&adapter->window_lock);
}

static NTSTATUS mr_init_fast_register(NDK_MR *ndk, ULONG pages, BOOLEAN remote,
				      NDK_FN_REQUEST_COMPLETION completion, PVOID context)
{
	struct mr *mr = mr_of(ndk);
	struct shm_request message = { .op = SHM_OP_INIT_FRMR,
				       .init_frmr = { .mr = mr->object.handle,
						      .page_count = pages,
						      .remote_access = remote } };
	NTSTATUS status;

	if (pages == 0 || pages > mr->object.adapter->session->limits.frmr_page_count)
		return STATUS_IMPLEMENTATION_LIMIT;
	status = mr_begin(mr, true, false);
	if (status != STATUS_SUCCESS)
		return status;
	mr->max_pages = pages;
	return mr_request(mr, NULL, &message, init_finish, completion, context);
}

static UINT32 mr_remote_token(NDK_MR *ndk)
{
	return mr_of(ndk)->remote_token;
}

static UINT32 mr_local_token(NDK_MR *ndk)
{
	return mr_of(ndk)->local_token;
}

const NDK_MR_DISPATCH mr_dispatch = {
	.NdkCloseMr = object_close,
	.NdkQueryExtension = query_extension,
	.NdkRegisterMr = mr_register,
	.NdkDeregisterMr = mr_deregister,
	.NdkInitializeFastRegisterMr = mr_init_fast_register,
	.NdkGetRemoteTokenFromMr = mr_remote_token,
	.NdkGetLocalTokenFromMr = mr_local_token,
};

const NDK_PD_DISPATCH pd_dispatch = {
	.NdkClosePd = object_close,
	.NdkQueryExtension = query_extension,
	.NdkCreateMr = mr_create,
	.NdkCreateMw = mw_create,
	.NdkCreateSrq = srq_create,
	.NdkCreateQp = qp_create,
	.NdkCreateQpWithSrq = qp_create_with_srq,
	.NdkGetPrivilegedMemoryRegionToken = pd_privileged_token,
};
