/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners and connectors: their records. */
#ifndef NDK_CONNECTION_H
#define NDK_CONNECTION_H

#include "ndk/ndk_private.h"

struct listener {
	NDK_LISTENER ndk;
	struct object object;
	NDK_FN_CONNECT_EVENT_CALLBACK event;
	void *event_context;
	/* adapter.lock is held. */
	bool asked;     /* a listen is under way or has succeeded */
	bool listening; /* address is right */
	struct shm_address address;
};

enum connector_state {
	CONNECTOR_IDLE = 0,
	CONNECTOR_INCOMING,   /* of a connect event, not answered yet */
	CONNECTOR_CONNECTING, /* NdkConnect is under way */
	CONNECTOR_REPLIED,    /* the peer has accepted: complete or reject */
	CONNECTOR_COMPLETING,
	CONNECTOR_ACCEPTING,
	CONNECTOR_CONNECTED,
	CONNECTOR_DISCONNECTED, /* by the peer */
	CONNECTOR_DISCONNECTING,
	CONNECTOR_CLOSED, /* of no more use */
};

enum connector_needs { CONNECTOR_NEEDS_QP, CONNECTOR_NEEDS_LISTENER, CONNECTOR_NEEDS_ENDPOINT };

/* All under adapter.lock. */
struct connector {
	NDK_CONNECTOR ndk;
	struct object object;
	enum connector_state state;
	bool has_data;              /* peer is filled in */
	bool told;                  /* of the disconnect, or it is due */
	uint32_t inbound, outbound; /* asked for in an accept under way */
	uint32_t reason;            /* of the disconnect */
	NDK_FN_DISCONNECT_EVENT_CALLBACK disconnect;
	NDK_FN_DISCONNECT_EVENT_CALLBACK_EX disconnect_ex;
	void *disconnect_context;
	struct call arrived_call, disconnect_call;
	struct request reject;
	uint32_t remote_qpn, qkey; /* of a resolution */
	bool resolved;
	struct shm_connection peer;
};

/* adapter.lock is held. */
struct object *connector_allocate(struct adapter *adapter);

NTSTATUS connector_get_data(NDK_CONNECTOR *ndk, ULONG *inbound, ULONG *outbound, PVOID data,
			    ULONG *length);
NTSTATUS connector_local_address(NDK_CONNECTOR *ndk, PSOCKADDR address, ULONG *length);
NTSTATUS connector_peer_address(NDK_CONNECTOR *ndk, PSOCKADDR address, ULONG *length);
/* connector.c: what datagram_service.c shares with it. */
struct request *connector_request(struct connector *connector, request_finisher *finish,
				  NDK_FN_REQUEST_COMPLETION completion, void *context);
NTSTATUS connector_take_private(struct shm_connect *connect, const void *data, uint32_t length,
				uint32_t most);
/* What a connector needs from a request on; either may be NULL. */
struct connector_ties {
	struct qp *qp;
	struct object *endpoint;
};
NTSTATUS connector_advance(struct connector *connector, const struct connector_ties *ties,
			   enum connector_state from, enum connector_state to, NTSTATUS otherwise,
			   struct request *request, struct shm_request *message);
NTSTATUS connector_disconnect(NDK_CONNECTOR *ndk, NDK_FN_REQUEST_COMPLETION completion,
			      PVOID context);

#endif
