/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests about addresses: where datagrams go. */
#include <errno.h>

#include "control/control_private.h"

#define DEFAULT_HOP_LIMIT 64u

int32_t request_create_ah(struct control *control, uint32_t session,
			  const struct shm_request *request, struct shm_reply *reply)
{
	const struct shm_create_ah *want = &request->create_ah;
	struct object *pd = object_find(control, session, want->pd, OBJECT_TYPE_PD);
	struct ah_config config = { .session = session };
	struct object *object;
	int port, error;

	if (!pd)
		return NT_INVALID_HANDLE;
	/* Groups would have to be joined, which nobody here does. */
	if (!gid_is_unicast(want->remote.gid))
		return NT_NOT_SUPPORTED;
	if (want->flow_label > 0xfffff)
		return NT_INVALID_PARAMETER;
	error = net_resolve(control->net, want->local.gid, want->remote.gid, &config.path,
			    control->now);
	if (error == -EAGAIN)
		return request_wait(control, session, request);
	port = net_find_address(control->net, want->local.gid);
	if (error || port < 0)
		return resolve_status(error ? error : -EADDRNOTAVAIL);
	config.pd = pd->index;
	config.path_mtu = net_port_path_mtu(control->net, (unsigned int)port);
	config.path.traffic_class =
		net_traffic_class(control->net, want->local.gid, want->traffic_class);
	config.path.hop_limit = want->hop_limit ? want->hop_limit : DEFAULT_HOP_LIMIT;
	config.path.flow_label = want->flow_label;
	object = object_create(control, session, OBJECT_TYPE_AH);
	if (!object)
		return NT_INSUFFICIENT_RESOURCES;
	object->index = ah_create(control->shared, &config);
	if (!object->index) {
		object_free(control, object);
		return NT_INSUFFICIENT_RESOURCES;
	}
	object_need(control, object, 0, pd);
	reply->created = (struct shm_created){ .handle = object_handle(control, object),
					       .number = config.path_mtu };
	return NT_SUCCESS_STATUS;
}

void ah_let_go(struct control *control, struct object *object)
{
	ah_free(control->shared, object->index);
}
