/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client asks for, and the window it gets. */
#include <string.h>

#include "oriel-target/target.h"

static bool listens_at(const struct target_export *export, const struct target_address *address)
{
	for (uint32_t i = 0; i < export->listens; i++)
		if (!memcmp(export->listen[i].gid, address->gid, 16) &&
		    export->listen[i].port == address->port)
			return true;
	return false;
}

bool peer_allowed(const struct target_export *export, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < export->allows; i++) {
		const struct target_network *network = &export->allow[i];
		uint32_t bytes = network->prefix_length / 8;
		uint32_t bits = network->prefix_length % 8;
		uint8_t mask = (uint8_t)(0xff00u >> bits);

		if (!memcmp(network->gid, gid, bytes) &&
		    (bits == 0 || ((network->gid[bytes] ^ gid[bytes]) & mask) == 0))
			return true;
	}
	return export->allows == 0;
}

uint32_t window_decide(const struct target *target, const struct target_address *address,
		       const struct export_request *request, struct target_export **export,
		       uint8_t *access, uint64_t *length)
{
	const struct target_config *config = &target->config;
	uint64_t size;
	uint32_t i = 0;

	while (i < config->count &&
	       (!listens_at(&config->exports[i], address) ||
		(request->name[0] && strcmp(config->exports[i].name, request->name) != 0)))
		i++;
	if (i == config->count)
		return EXPORT_UNKNOWN;
	*export = (struct target_export *)&config->exports[i];
	*access = request->access ? request->access : (*export)->access;
	if (*access & ~(*export)->access)
		return EXPORT_ACCESS;
	size = target->memory[i].size;
	if (request->offset >= size || request->length > size - request->offset)
		return EXPORT_RANGE;
	*length = request->length ? request->length : size - request->offset;
	return EXPORT_GRANTED;
}

NTSTATUS window_bind(struct connection *connection, const struct target_export *export,
		     uint8_t access, uint64_t offset, uint64_t length, ULONG flags,
		     struct export_reply *reply)
{
	struct target *target = connection->target;
	uint32_t index = (uint32_t)(export - target->config.exports);
	uint8_t *start = (uint8_t *)target->memory[index].mdl->StartVa + offset;
	NTSTATUS status;

	flags |= NDK_OP_FLAG_SILENT_SUCCESS;
	if (export->tied)
		flags |= ORIEL_OP_FLAG_TIE_TO_QP;
	if (access & EXPORT_READ)
		flags |= NDK_OP_FLAG_ALLOW_REMOTE_READ;
	if (access & EXPORT_WRITE)
		flags |= NDK_OP_FLAG_ALLOW_REMOTE_WRITE;
	if (access & EXPORT_ATOMIC)
		flags |= ORIEL_OP_FLAG_ALLOW_REMOTE_ATOMIC;
	status = NdkBind(connection->qp, NULL, target->mr[index], connection->mw, start, length,
			 flags);
	if (!NT_SUCCESS(status))
		return status;
	connection->bound = true;
	*reply = (struct export_reply){ .access = access,
					.address = (uintptr_t)start,
					.length = length,
					.token = NdkGetRemoteTokenFromMw(connection->mw) };
	return status;
}
