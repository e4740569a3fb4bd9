/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages with descriptors over a SOCK_SEQPACKET UNIX socket. */
#ifndef SHM_SOCKET_H
#define SHM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "shm/layout.h"

#define SHM_SOCKET_MAX_FDS (3 + SHM_MAX_WORKERS)

/* One message with up to SHM_SOCKET_MAX_FDS descriptors. 0 or a negative errno (-EAGAIN too). */
int shm_socket_send(int socket, const void *message, size_t length, const int *fds,
		    unsigned int count);

/*
 * One message of at most `room` bytes. *count: room in fds on entry, descriptors received
 * on return; they are close-on-exec and the caller's to close. Descriptors beyond the room
 * are closed and the message refused (-EPROTO), as is a truncated one. Returns its length,
 * 0 at the end of the stream, or a negative errno.
 */
int shm_socket_receive(int socket, void *message, size_t room, int *fds, unsigned int *count);

#endif
