/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket addresses to and from the form in shared memory, where IPv4 is kept as a GID. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "ndk/ndk_private.h"

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

NTSTATUS address_from_sockaddr(const struct sockaddr *from, ULONG length, struct shm_address *to)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	memset(to, 0, sizeof(*to));
	if (!from || length < sizeof(from->sa_family))
		return STATUS_INVALID_ADDRESS;
	if (from->sa_family == AF_INET && length >= sizeof(v4)) {
		memcpy(&v4, from, sizeof(v4));
		memcpy(to->gid, mapped, sizeof(mapped));
		memcpy(to->gid + 12, &v4.sin_addr, 4);
		to->port = ntohs(v4.sin_port);
		to->family = 4;
		return STATUS_SUCCESS;
	}
	if (from->sa_family == AF_INET6 && length >= sizeof(v6)) {
		memcpy(&v6, from, sizeof(v6));
		memcpy(to->gid, &v6.sin6_addr, 16);
		to->port = ntohs(v6.sin6_port);
		to->family = memcmp(to->gid, mapped, sizeof(mapped)) ? 6 : 4;
		to->scope_id = v6.sin6_scope_id;
		return STATUS_SUCCESS;
	}
	return STATUS_INVALID_ADDRESS;
}

ULONG address_to_sockaddr(const struct shm_address *from, struct sockaddr_storage *to)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons(from->port),
				   .sin6_scope_id = from->scope_id };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(from->port) };

	memset(to, 0, sizeof(*to));
	if (memcmp(from->gid, mapped, sizeof(mapped)) == 0) {
		memcpy(&v4.sin_addr, from->gid + 12, 4);
		memcpy(to, &v4, sizeof(v4));
		return sizeof(v4);
	}
	memcpy(&v6.sin6_addr, from->gid, 16);
	memcpy(to, &v6, sizeof(v6));
	return sizeof(v6);
}

NTSTATUS address_give(const struct shm_address *address, struct sockaddr *to, ULONG *length)
{
	struct sockaddr_storage full;
	ULONG room = *length;

	*length = address_to_sockaddr(address, &full);
	if (!to || room < *length)
		return STATUS_BUFFER_TOO_SMALL;
	memcpy(to, &full, *length);
	return STATUS_SUCCESS;
}

NTSTATUS address_pair(const struct sockaddr *local, const struct sockaddr *remote,
		      struct shm_address *local_out, struct shm_address *remote_out)
{
	NTSTATUS status = address_from_sockaddr(local, UINT32_MAX, local_out);

	if (status == STATUS_SUCCESS)
		status = address_from_sockaddr(remote, UINT32_MAX, remote_out);
	if (status == STATUS_SUCCESS && local_out->family != remote_out->family)
		status = STATUS_INVALID_PARAMETER_MIX;
	return status;
}
