/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example programs share: a session with its usual objects, and waiting for things. */
#ifndef APP_EXAMPLES_EXAMPLE_H
#define APP_EXAMPLES_EXAMPLE_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXAMPLE_PATIENCE 20000 /* ms until something that must come is given up */

struct example {
	const char *program; /* begins each message */
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_MR *mr; /* all of `bytes`; peers get in through windows only */
	MDL *mdl;
	uint8_t *bytes;
	UINT32 token; /* local */
	struct sockaddr_storage local;
};

/* The port is in host order. */
void example_set_port(struct sockaddr_storage *address, uint16_t port);
socklen_t example_address_size(const struct sockaddr_storage *address);

/*
 * Opens the session, a domain, a CQ and `memory` registered bytes; `local` becomes the data plane's
 * first address of that family unless it is set. False: a message is on stderr.
 */
bool example_open(struct example *example, int family, size_t memory, ULONG cq_depth);
void example_close(struct example *example);

bool example_complain(const struct example *example, const char *what, NTSTATUS status);
NDK_SGE example_sge(const struct example *example, size_t offset, ULONG length);
NDK_QP *example_qp(struct example *example, PVOID context, ULONG depth);

/* Runs progress until *condition, or false after EXAMPLE_PATIENCE. */
bool example_wait(struct example *example, const bool *condition);
/* The next completion; false when none comes. */
bool example_result(struct example *example, ORIEL_RESULT *result);

/* A listener that puts each connector that comes into *arrived (one at a time). */
struct example_listener {
	struct example *example;
	NDK_LISTENER *listener;
	NDK_CONNECTOR *arrived[1024];
	unsigned int head, tail;
};
bool example_listen(struct example *example, struct example_listener *listener,
		    const struct sockaddr_storage *address, bool datagrams);
/* Waits for the next connector; NULL: none came (or ever, with `patient`). */
NDK_CONNECTOR *example_arrival(struct example_listener *listener, bool patient);

/* An active connection, completed. `gone` is set when the peer leaves. NULL: a message was printed.
 */
NDK_CONNECTOR *example_connect(struct example *example, NDK_QP *qp,
			       const struct sockaddr_storage *remote, bool *gone);
bool example_accept(struct example *example, NDK_CONNECTOR *connector, NDK_QP *qp, bool *gone);
/* Ends a connection, whether or not the peer has already. */
void example_disconnect(struct example *example, NDK_CONNECTOR *connector);

/* Closes any object and waits until it is gone. */
void example_close_object(struct example *example, NDK_OBJECT_HEADER *object);

#endif
