/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of connect-out share: a connection of libndk to a stock server, and reports. */
#ifndef INTEROP_OUT_H
#define INTEROP_OUT_H

#include <ndk/ndk.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "commands.h"
#include "exchange.h"
#include "pattern.h"

/* The buffer: two areas that operations may name, receives of two queue pairs, a command. */
#define OUT_AREA     (3u << 20)
#define OUT_SOURCE   0u
#define OUT_SINK     OUT_AREA
#define OUT_RECEIVES (2 * OUT_AREA)
#define OUT_SIDE     (OUT_RECEIVES + OUT_SLOTS * OUT_MESSAGE)
#define OUT_COMMAND  (OUT_SIDE + OUT_SLOTS * OUT_MESSAGE)
#define OUT_BUFFER   (OUT_COMMAND + 4096u)
#define OUT_SLOTS    4u /* receives kept posted */
#define OUT_MESSAGE  ((1u << 20) + 4096u)
#define OUT_DEPTH    64u
#define OUT_SGES     4u
#define OUT_INLINE   64u

struct options {
	struct sockaddr_storage remote; /* the port in it is not used */
	struct sockaddr_storage local;  /* the daemon's first of the family */
	uint16_t port;
	uint32_t mtu; /* of the path, bytes: where the corners are */
	bool lossy;   /* frames may get lost, the last word of a dying queue pair too */
	bool verbose;
};

extern struct options options;

struct arrival {
	const uint8_t *data; /* of a datagram: behind the header */
	ORIEL_RESULT result;
};

struct out {
	NDK_ADAPTER *adapter;
	NDK_PD *pd;
	NDK_CQ *cq;
	NDK_QP *qp;
	NDK_MR *mr;
	NDK_CONNECTOR *connector;
	MDL *mdl;
	uint8_t *buffer;
	UINT32 local_token;
	UINT32 remote_token; /* of the whole buffer, all rights */
	bool armed;
	bool established;
	bool disconnected;
	ULONG reason; /* of the disconnect */
	uint64_t next_op;
	uint64_t next_slot;
	uint32_t receives; /* where they lie in the buffer */
	uint32_t header;   /* bytes before each message in its receive */
	uint32_t remote_qpn;
	uint32_t remote_psn;     /* its first, of a pingpong */
	ORIEL_DATAGRAM datagram; /* of UD: to the peer */
	uint64_t arrivals, taken;
	struct arrival arrival[OUT_SLOTS];
	struct exchange_welcome welcome; /* in host order; of stock-server only */
	uint8_t data[196];               /* private data of the REP or REJ */
	ULONG data_length;
};

struct operation {
	enum exchange_kind kind;
	ULONG flags;
	ULONG nsge;
	NDK_SGE sgl[OUT_SGES];
	uint64_t address;
	uint32_t token;
	uint32_t immediate;
	uint64_t compare; /* or what is added */
	uint64_t swap;
	const ORIEL_DATAGRAM *datagram; /* of UD only */
};

/*
 * Connects to options.remote at `port`. Whatever comes back, the connection must be closed. After
 * a refusal its data is in `data`.
 */
NTSTATUS out_connect(struct out *out, uint16_t port, const void *data, ULONG length);
/* The same, again and again for a while when it is refused. */
NTSTATUS out_connect_patiently(struct out *out, uint16_t port, const void *data, ULONG length);
/* The same to stock-server, or reports. */
bool out_open(struct out *out, const char *name);
/* Disconnects, if nobody has, and frees all. Returns the status of the disconnect. */
NTSTATUS out_close(struct out *out);
/* Waits for the peer to disconnect; reports when it does not. */
bool out_must_end(struct out *out, const char *name, unsigned int seconds);

/* All but the connection. */
NTSTATUS out_prepare(struct out *out);
/* Another queue pair and its CQ on what `out` has, its receives posted. */
NTSTATUS out_create_queue(struct out *out, struct out *side, enum exchange_service service);
/* To side->remote_qpn at options.remote; `psn` of ours is the first, and that of the peer. */
NTSTATUS out_connect_queue(struct out *side, uint32_t psn, uint32_t remote_psn, uint32_t qkey);
/* Where its datagrams go: side->remote_qpn at options.remote. */
NTSTATUS out_create_address(struct out *side, uint32_t qkey);

/*
 * Opens a second queue pair beside a connection to stock-server, connected by number; it shares all
 * but queue pair and CQ with it and is closed with it.
 */
bool out_open_side(struct out *out, struct out *side, const char *name,
		   enum exchange_service service);

void out_on_notify(PVOID out, NTSTATUS status);
NTSTATUS out_post_receive(struct out *out);
NDK_SGE out_sge(const struct out *out, uint32_t offset, uint32_t length);
/* One piece at `offset`, against stock-server's memory at `remote`. */
struct operation out_operation(const struct out *out, enum exchange_kind kind, uint32_t offset,
			       uint32_t length, uint64_t remote);

/* Posts; *op becomes the number to wait for. */
NTSTATUS out_post(struct out *out, const struct operation *operation, uint64_t *op);
/* Waits for one completion, in order of posting. STATUS_TIMEOUT when none came. */
NTSTATUS out_wait(struct out *out, uint64_t op);
NTSTATUS out_run(struct out *out, const struct operation *operation);
/* The next message of the peer; released by the next call. STATUS_TIMEOUT when none came. */
NTSTATUS out_receive(struct out *out, struct arrival *arrival);

/* Each returns true, or reports and returns false. */
bool out_must(const char *name, const char *what, NTSTATUS expected, NTSTATUS got);
/* An access violation; over a lossy link an answer that never comes is one as well. */
bool out_must_be_refused(const char *name, const char *what, NTSTATUS got);
bool out_command(struct out *out, const char *name, const struct exchange_command *command,
		 struct exchange_answer *answer);
/* The two halves of it, for commands behind which something else happens first. */
bool out_command_send(struct out *out, const char *name, const struct exchange_command *command);
bool out_command_answer(struct out *out, const char *name, struct exchange_answer *answer);

/* One request of the server, on `at`: out or the side beside it. `key`: token or Q_Key for it. */
bool out_serve_one(struct out *out, struct out *at, enum exchange_kind kind, uint32_t size,
		   uint32_t key);

void check_send(const char *argument);
void check_write(const char *argument);
void check_read(const char *argument);
void check_atomic(const char *argument);
void check_invalidate(const char *argument);
void check_fence(const char *argument);
void check_pipeline(const char *argument);
void check_stream(const char *mebibytes);
void check_late(const char *argument);
void check_serve(const char *argument);
void check_number(const char *service);

void check_refuse(const char *argument);
void check_reject(const char *argument);
void check_gone(const char *argument);
void check_silent(const char *argument);
void check_cycles(const char *count);

void check_perftest(const char *argument);
void check_pingpong(const char *argument);
void check_single(const char *argument);

#endif
