/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the daemon and a client: everything that lies in memory
 * which both map, and every message of the UNIX socket.
 *
 * Needs libc only. All integers are host order (both ends run on one machine).
 * Change anything here and raise SHM_LAYOUT_VERSION: the daemon refuses a client
 * of another version with a message that names both.
 *
 * Trust: the client may write anything anywhere in these segments at any time.
 * The daemon copies an entry first and checks the copy; its own cursors live in
 * its arena and what it stores here is for the client's information only.
 * The client in turn trusts the daemon.
 */
#ifndef SHM_LAYOUT_H
#define SHM_LAYOUT_H

#include <stdalign.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_LAYOUT_VERSION 4u
#define SHM_MAGIC_SESSION  0x4f52534eu /* "ORSN" */
#define SHM_MAGIC_QP       0x4f525150u /* "ORQP" */
#define SHM_MAGIC_CQ       0x4f524351u /* "ORCQ" */
#define SHM_MAGIC_SRQ      0x4f525352u /* "ORSR" */
#define SHM_MAGIC_HELLO    0x4f52484cu /* "ORHL" */

#define SHM_CACHE_LINE      64u
#define SHM_MAX_WORKERS     16u
#define SHM_MAX_SESSION_QPS 131072u /* doorbell numbers in one session */
#define SHM_MAX_SESSION_CQS 4096u
#define SHM_MAX_SGE         16u
#define SHM_MAX_INLINE      256u
#define SHM_PRIVATE_DATA    196u /* the largest of the CM's private-data fields, REP's */
#define SHM_MAX_ADDRESSES   16u

/* --- UNIX socket (SOCK_SEQPACKET) ------------------------------------------ */

enum shm_message_type {
	SHM_MSG_HELLO = 1,          /* client, first: struct shm_hello */
	SHM_MSG_WELCOME = 2,        /* daemon's answer: struct shm_welcome and descriptors */
	SHM_MSG_SEGMENT_ADD = 3,    /* client: struct shm_segment_message and one memfd */
	SHM_MSG_OBJECT_SEGMENT = 4, /* daemon: struct shm_segment_message and one memfd */
	SHM_MSG_QUEUE_SEGMENT = 5,  /* the same */
};

struct shm_hello {
	uint32_t type;
	uint32_t magic; /* SHM_MAGIC_HELLO */
	uint32_t layout_version;
	uint16_t ndk_major;
	uint16_t ndk_minor; /* the lowest that the client can use */
	char name[32];      /* program name, NUL padded, for status output */
};

/*
 * With status 0 the message carries 3 + workers descriptors, in this order: the
 * session memory, the read end of the pipe that wakes the client, the eventfd that wakes the
 * control core, one eventfd per worker.
 */
struct shm_welcome {
	uint32_t type;
	uint32_t magic;
	uint32_t layout_version; /* the daemon's */
	int32_t status;          /* 0 or an NTSTATUS/NDIS status of refusal */
	uint16_t ndk_major;
	uint16_t ndk_minor; /* the daemon's highest */
	uint32_t session;
	uint32_t workers;
	uint32_t reserved;
	uint64_t session_size;
	char message[128]; /* why it was refused, for a person */
};

/*
 * SEGMENT_ADD: cookie is the client's number for a memfd; it precedes the first
 * SHM_OP_REGISTER_MR that names the cookie. The memfd must be sealed with
 * F_SEAL_SHRINK and F_SEAL_SEAL.
 * OBJECT_SEGMENT: the memory of one queue; cookie is the request id of the create request; it
 * precedes the reply in the ring.
 * QUEUE_SEGMENT: memory for many queue pairs of the session, of which each create reply names its
 * own part; it precedes the first of these and is there until the session ends. cookie is its
 * number, from 1 on. A process has room for some 65,000 mappings, and queue pairs are more.
 */
struct shm_segment_message {
	uint32_t type;
	uint32_t handle; /* OBJECT_SEGMENT: the object */
	uint64_t cookie;
	uint64_t size; /* bytes */
};

/* --- control rings ---------------------------------------------------------- */

enum shm_op {
	SHM_OP_NONE = 0,
	/* Requests; each is answered by exactly one reply with the same request id. */
	SHM_OP_CREATE_PD,
	SHM_OP_CREATE_CQ,
	SHM_OP_CREATE_MR,
	SHM_OP_CREATE_MW,
	SHM_OP_CREATE_QP,
	SHM_OP_CREATE_SRQ,
	SHM_OP_CREATE_CONNECTOR,
	SHM_OP_CREATE_LISTENER,
	SHM_OP_CREATE_SHARED_ENDPOINT,
	SHM_OP_CLOSE, /* any object; the reply comes when it is really gone */
	SHM_OP_REGISTER_MR,
	SHM_OP_DEREGISTER_MR,
	SHM_OP_INIT_FRMR,
	SHM_OP_RESIZE_CQ,
	SHM_OP_MODIFY_SRQ,
	SHM_OP_FLUSH_QP,
	SHM_OP_LISTEN,
	SHM_OP_CONTROL_CONNECT_EVENTS,
	SHM_OP_CONNECT,
	SHM_OP_COMPLETE_CONNECT,
	SHM_OP_ACCEPT,
	SHM_OP_REJECT,
	SHM_OP_DISCONNECT,
	SHM_OP_CONNECT_QP,
	SHM_OP_REFILL_TOKENS,
	SHM_OP_SEGMENT_DROP,
	SHM_OP_CREATE_AH,
	SHM_OP_RESOLVE_DATAGRAM, /* struct shm_connect: who takes datagrams of a service? */
	SHM_OP_ACCEPT_DATAGRAM,  /* struct shm_connect: the answer, with `qp` and `qkey` */
	SHM_OP_FIND_SEGMENT, /* segment_drop: the daemon's number of a memfd that it was passed */
	SHM_OP_MAX,
	/* Events, daemon to client, request id 0. */
	SHM_EV_CONNECT_REQUEST = 0x100,
	SHM_EV_DISCONNECTED,
	SHM_EV_ASYNC,
};

/* An IPv4 address is kept as ::ffff:a.b.c.d, as a GID. Port in host order. */
struct shm_address {
	uint8_t gid[16];
	uint16_t port;
	uint16_t family; /* 4 or 6; 0 means none */
	uint32_t scope_id;
};

/* A memory object is described to the daemon by segments of memfds. */
struct shm_register_mr {
	uint32_t mr;
	uint32_t access; /* NDK_MR_FLAG_* and ORIEL_MR_FLAG_* */
	uint64_t cookie; /* of the memfd */
	uint64_t offset; /* of the first byte in the memfd */
	uint64_t length;
	uint64_t virtual_address; /* of the first byte, as peers will name it */
};

struct shm_create_cq {
	uint32_t depth;
	uint32_t reserved;
};

struct shm_create_mr {
	uint32_t pd;
	uint32_t fast_register;
};

struct shm_create_mw {
	uint32_t pd;
	uint32_t reserved;
};

enum shm_qp_type { SHM_QP_RC = 0, SHM_QP_UC = 1, SHM_QP_UD = 3 };

struct shm_create_qp {
	uint32_t pd;
	uint32_t receive_cq;
	uint32_t initiator_cq;
	uint32_t srq; /* 0: none */
	uint64_t qp_context;
	uint32_t receive_depth;
	uint32_t initiator_depth;
	uint32_t receive_sge;
	uint32_t initiator_sge;
	uint32_t inline_size;
	uint32_t type; /* enum shm_qp_type */
};

struct shm_create_srq {
	uint32_t pd;
	uint32_t depth;
	uint32_t receive_sge;
	uint32_t threshold;
};

struct shm_init_frmr {
	uint32_t mr;
	uint32_t page_count;
	uint32_t remote_access;
	uint32_t reserved;
};

struct shm_resize { /* RESIZE_CQ; MODIFY_SRQ, where threshold is used too */
	uint32_t object;
	uint32_t depth;
	uint32_t threshold;
	uint32_t reserved;
};

/* CLOSE, DEREGISTER_MR, FLUSH_QP, DISCONNECT, COMPLETE_CONNECT, CONTROL_CONNECT_EVENTS. */
struct shm_object {
	uint32_t object;
	uint32_t value; /* CONTROL_CONNECT_EVENTS: 1 pauses */
};

#define SHM_SPACE_TCP 0u /* connections */
#define SHM_SPACE_UDP 1u /* datagrams: SIDR */

struct shm_listen { /* LISTEN, CREATE_SHARED_ENDPOINT (object 0) */
	uint32_t object;
	uint32_t space; /* SHM_SPACE_* */
	struct shm_address address;
};

/* CONNECT, ACCEPT and REJECT; unused fields are 0. */
struct shm_connect {
	uint32_t connector;
	uint32_t qp;
	uint32_t shared_endpoint;
	uint32_t inbound_read_limit;
	uint32_t outbound_read_limit;
	uint32_t private_length;
	struct shm_address local;
	struct shm_address remote;
	uint8_t private_data[SHM_PRIVATE_DATA];
	uint32_t qkey; /* ACCEPT_DATAGRAM */
};

/* CONNECT_QP: a queue pair connected by number, or a UD queue pair made ready. */
struct shm_connect_qp {
	uint32_t qp;
	uint32_t remote_qpn;
	uint32_t send_psn;
	uint32_t receive_psn;
	uint32_t path_mtu; /* bytes; 0: the port's */
	uint32_t qkey;     /* UD */
	uint8_t timeout;   /* code: 4.096 us << timeout */
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t min_rnr_timer; /* code */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t reserved[2];
	uint32_t inbound_read_limit;
	uint32_t outbound_read_limit;
	struct shm_address local;
	struct shm_address remote;
};

/* CREATE_AH: a destination of datagrams. The reply comes when the path is resolved. */
struct shm_create_ah {
	uint32_t pd;
	uint32_t flow_label;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t reserved[6];
	struct shm_address local;
	struct shm_address remote;
};

struct shm_refill_tokens {
	uint32_t count; /* wanted, at most SHM_REFILL_MAX */
	uint32_t reserved;
};
#define SHM_REFILL_MAX 96u

struct shm_segment_drop {
	uint64_t cookie;
};

struct shm_request {
	uint32_t op; /* enum shm_op */
	uint32_t id; /* chosen by the client, not 0, unique while outstanding */
	union {
		struct shm_create_cq create_cq;
		struct shm_create_mr create_mr;
		struct shm_create_mw create_mw;
		struct shm_create_qp create_qp;
		struct shm_create_srq create_srq;
		struct shm_register_mr register_mr;
		struct shm_init_frmr init_frmr;
		struct shm_resize resize;
		struct shm_object object;
		struct shm_listen listen;
		struct shm_connect connect;
		struct shm_connect_qp connect_qp;
		struct shm_create_ah create_ah;
		struct shm_refill_tokens refill;
		struct shm_segment_drop segment_drop;
		uint8_t raw[504];
	};
};

/* What a create reply says of the new object. */
struct shm_created {
	uint32_t handle;
	uint32_t number;       /* QP: QPN; shared endpoint: port; address: its port's path MTU */
	uint32_t worker;       /* QP: its home */
	uint32_t doorbell;     /* QP: doorbell number; CQ: notify number */
	uint64_t segment_size; /* bytes of the queue's memory; 0: it is no queue */
	uint64_t offset;       /* of these in the QUEUE_SEGMENT */
	uint32_t segment;      /* number of that; 0: they are an OBJECT_SEGMENT of their own */
	uint32_t reserved;
};

struct shm_registered { /* REGISTER_MR, INIT_FRMR */
	uint32_t local_token;
	uint32_t remote_token; /* 0 when the region has no remote right */
};

/*
 * A logical address: a segment of the session above, the offset in it below. SGEs with the
 * privileged token have one.
 */
#define SHM_LOGICAL_OFFSET_BITS 40u

struct shm_segment {      /* FIND_SEGMENT */
	uint32_t segment; /* below 2^20 */
	uint32_t reserved;
};

struct shm_connected {     /* CONNECT_QP */
	uint32_t path_mtu; /* bytes: what was asked for, or the port's where that was 0 */
	uint32_t reserved;
};

struct shm_tokens {
	uint32_t count;
	uint32_t reserved;
	uint32_t token[SHM_REFILL_MAX];
};

/* Reply to CONNECT and event CONNECT_REQUEST, and reply to LISTEN (address only). */
struct shm_connection {
	uint32_t connector; /* CONNECT_REQUEST: handle of the new connector */
	uint32_t listener;  /* CONNECT_REQUEST */
	uint32_t inbound_read_limit;
	uint32_t outbound_read_limit;
	uint32_t private_length;
	uint32_t remote_qpn; /* RESOLVE_DATAGRAM: who takes them, and under which Q_Key */
	uint32_t qkey;
	uint32_t datagram; /* CONNECT_REQUEST: 1: a question for a UD queue pair */
	struct shm_address local;
	struct shm_address remote;
	uint8_t private_data[SHM_PRIVATE_DATA];
};

struct shm_async { /* DISCONNECTED: object is the connector, value the provider's reason */
	uint32_t object;
	uint32_t event; /* enum shm_async_event */
	uint32_t value;
	uint32_t reserved;
};

enum shm_async_event {
	SHM_ASYNC_QP_FATAL = 1,
	SHM_ASYNC_QP_ACCESS_ERROR,
	SHM_ASYNC_QP_INVALID_REQUEST,
	SHM_ASYNC_QP_LAST_WQE_REACHED,
	SHM_ASYNC_SRQ_LIMIT,
	SHM_ASYNC_CQ_ERROR,
};

struct shm_reply {
	uint32_t op;    /* of the request, or an event */
	uint32_t id;    /* of the request; 0 for an event */
	int32_t status; /* NTSTATUS */
	uint32_t reserved;
	union {
		struct shm_created created;
		struct shm_registered registered;
		struct shm_segment segment;
		struct shm_connected connected;
		struct shm_tokens tokens;
		struct shm_connection connection;
		struct shm_async async;
		uint8_t raw[496];
	};
};

#define SHM_CONTROL_ENTRIES 128u /* in each direction; a power of two */

/*
 * A single-producer single-consumer ring. head and tail run freely and wrap at
 * 2^32; entry i lies at i modulo the (power of two) size. See shm/spsc.h.
 */
struct shm_ring_cursor {
	alignas(64) uint32_t tail; /* the producer's: next entry to be written */
	alignas(64) uint32_t head; /* the consumer's: next entry to be read */
};

/* --- session memory --------------------------------------------------------- */

/* Worker to client: tokens of this session that are free again. A power of two. */
#define SHM_STOCK_ENTRIES 1024u

/*
 * Doorbells of one worker. To ring number n, a client stores its ring's tail
 * (release), sets bit n % 64 of bits[n / 64], then bit n / 64 % 64 of summary[n / 4096], then
 * bit n / 4096 of top, each by an atomic; what is above a word that was not empty is set already,
 * or about to be by who set the first bit. Then, behind a full fence, it wakes the worker's
 * eventfd if `sleeping` is set. The worker takes top, then each summary and then the bits by
 * atomic exchange, so a bit set in between rings again.
 */
struct shm_worker_area {
	alignas(64) uint64_t top;
	uint64_t summary[SHM_MAX_SESSION_QPS / 4096]; /* the first of them in the line of top */
	alignas(64) uint32_t sleeping;                /* the worker's */
	alignas(64) uint64_t bits[SHM_MAX_SESSION_QPS / 64];
	struct shm_ring_cursor stock_cursor;
	alignas(64) uint32_t stock[SHM_STOCK_ENTRIES];
};

/* True limits, copied into NDK_ADAPTER_INFO by the client. */
struct shm_limits {
	uint64_t max_registration_size;
	uint64_t max_window_size;
	uint32_t frmr_page_count;
	uint32_t max_frmr_page_count;
	uint32_t max_initiator_sge;
	uint32_t max_receive_sge;
	uint32_t max_read_sge;
	uint32_t max_transfer_length;
	uint32_t max_inline;
	uint32_t max_inbound_read_limit;
	uint32_t max_outbound_read_limit;
	uint32_t max_receive_depth;
	uint32_t max_initiator_depth;
	uint32_t max_srq_depth;
	uint32_t max_cq_depth;
	uint32_t large_request_threshold;
	uint32_t max_caller_data;
	uint32_t max_callee_data;
	uint32_t adapter_flags;
	uint32_t privileged_token; /* in an SGE: its address is a logical one */
};

struct shm_session {
	uint32_t magic; /* SHM_MAGIC_SESSION */
	uint32_t layout_version;
	uint32_t session;
	uint32_t workers;
	uint64_t size;
	uint32_t addresses;
	uint32_t reserved;
	struct shm_limits limits;
	struct shm_address address[SHM_MAX_ADDRESSES]; /* the data plane's own */
	char end_reason[128];                          /* why the daemon ended the session */
	alignas(64) uint32_t control_sleeping;         /* the control core's */
	alignas(64) uint32_t ended; /* the daemon's: 1 when the session is over */
	/* Bit n: a worker consumed an arm of the CQ with notify number n. */
	alignas(64) uint64_t cq_notify[SHM_MAX_SESSION_CQS / 64];
	struct shm_ring_cursor request_cursor;
	struct shm_ring_cursor reply_cursor;
	alignas(64) struct shm_request request[SHM_CONTROL_ENTRIES];
	alignas(64) struct shm_reply reply[SHM_CONTROL_ENTRIES];
	struct shm_worker_area worker[]; /* `workers` of them */
};

/* --- queue pairs ------------------------------------------------------------ */

enum shm_wr_opcode {
	SHM_WR_SEND = 1,
	SHM_WR_SEND_INVALIDATE,
	SHM_WR_SEND_IMMEDIATE,
	SHM_WR_WRITE,
	SHM_WR_WRITE_IMMEDIATE,
	SHM_WR_READ,
	SHM_WR_FETCH_ADD,
	SHM_WR_COMPARE_SWAP,
	SHM_WR_BIND,
	SHM_WR_INVALIDATE,
	SHM_WR_FAST_REGISTER,
	SHM_WR_MAX,
};

/*
 * Flags of a send-queue entry: the NDK_OP_FLAG_* and ORIEL_OP_FLAG_* bits, same
 * values as <ndk/ndk.h>, which asserts that they agree.
 */
#define SHM_FLAG_SILENT_SUCCESS      0x00000001u
#define SHM_FLAG_READ_FENCE          0x00000002u
#define SHM_FLAG_SOLICIT             0x00000004u
#define SHM_FLAG_ALLOW_REMOTE_READ   0x00000008u
#define SHM_FLAG_ALLOW_LOCAL_WRITE   0x00000010u
#define SHM_FLAG_ALLOW_REMOTE_WRITE  0x00000030u
#define SHM_FLAG_INLINE              0x00000040u
#define SHM_FLAG_DEFER               0x00000200u
#define SHM_FLAG_TIE_TO_QP           0x00010000u
#define SHM_FLAG_ALLOW_REMOTE_ATOMIC 0x00020000u

/* Same shape as NDK_SGE. */
struct shm_sge {
	uint64_t address;
	uint32_t length;
	uint32_t token; /* local token */
};

/*
 * One send-queue entry, followed in its slot by SGEs or, with INLINE, by the data.
 * A datagram (SEND, SEND_IMMEDIATE of a UD queue pair) names its destination by `mw`, the handle of
 * an address, `token`, the peer's QPN, and `mr`, the Q_Key (bit 31 set: the queue pair's own).
 * FAST_REGISTER registers `length` bytes from offset `swap` of segment number `compare`; `token` is
 * the region's, the remote one if it has one.
 */
struct shm_sqe {
	uint8_t opcode; /* enum shm_wr_opcode */
	uint8_t nsge;
	uint16_t inline_length; /* bytes */
	uint32_t flags;
	uint64_t request_context;
	uint64_t address;   /* remote address; BIND: first address of the window */
	uint64_t length;    /* BIND, FAST_REGISTER: bytes */
	uint32_t token;     /* remote token; BIND: the new one; INVALIDATE: the one to kill */
	uint32_t immediate; /* as it lies on the wire */
	uint32_t mr;        /* handle: BIND, FAST_REGISTER, INVALIDATE of a region */
	uint32_t mw;        /* handle: BIND, INVALIDATE of a window */
	uint64_t compare;   /* COMPARE_SWAP */
	uint64_t swap;      /* COMPARE_SWAP: new value; FETCH_ADD: addend */
};

/* One receive-queue entry, followed in its slot by SGEs. */
struct shm_rqe {
	uint64_t request_context;
	uint8_t nsge;
	uint8_t reserved[7];
};

/* Slots are a multiple of 64 bytes and the number of slots is a power of two >= depth. */
struct shm_queue {
	uint32_t depth; /* what the client asked for and may have outstanding */
	uint32_t slots;
	uint32_t stride;           /* bytes */
	uint32_t offset;           /* of slot 0 from the start of the segment */
	alignas(64) uint32_t tail; /* the client's: entries posted */
	alignas(64) uint32_t done; /* the worker's: send queue: entries completed, silent ones
				      too; receive queue: entries taken */
};

struct shm_qp {
	uint32_t magic; /* SHM_MAGIC_QP */
	uint32_t layout_version;
	uint64_t size;
	/*
	 * The worker whose doorbell area is rung; the daemon's, changes when the queue pair moves.
	 * The client reads it behind a full fence after it has stored a tail; the new home looks
	 * at the tails once behind a full fence after it has stored this.
	 */
	uint32_t home;
	uint32_t reserved;
	struct shm_queue send;
	struct shm_queue receive; /* slots 0 when the QP uses an SRQ */
};

struct shm_srq {
	uint32_t magic; /* SHM_MAGIC_SRQ */
	uint32_t layout_version;
	uint64_t size;
	struct shm_queue receive;
};

/* --- completion queues ------------------------------------------------------ */

struct shm_cqe {
	uint64_t qp_context;
	uint64_t request_context;
	int32_t status;          /* NTSTATUS */
	uint32_t bytes;          /* receives only */
	uint32_t type;           /* NDK_OPERATION_TYPE and ours */
	uint32_t output;         /* sends: the request's token; receives: token invalidated, or
				    immediate as it lies on the wire */
	uint32_t provider_error; /* enum of refusal reasons; 0 with success */
	uint32_t qpn;
	uint32_t solicited; /* 1: satisfies an arm of type SOLICITED */
	/*
	 * Grows by 1 whenever the queue pair moves to another worker. Entries of one queue pair
	 * with a smaller epoch, in whatever ring, were written earlier and are taken first.
	 */
	uint32_t epoch;
	uint32_t source_qpn; /* receives of a UD queue pair */
	uint32_t flags;      /* SHM_CQE_* */
	uint32_t reserved[2];
};

#define SHM_CQE_GRH 0x1u /* the first 40 bytes are a GRH or, with IPv4, 20 bytes and the header */

/* One ring per worker; the client merges them. */
struct shm_cq_ring {
	struct shm_ring_cursor cursor; /* tail is the worker's, head the client's */
	uint32_t offset;               /* of entry 0 from the start of the segment */
	uint32_t reserved[15];
};

#define SHM_ARM_NONE 0u
/* Not NDK_CQ_NOTIFY_*'s values: here the stronger arm is the larger number. */
#define SHM_ARM_ERRORS    1u
#define SHM_ARM_SOLICITED 2u
#define SHM_ARM_ANY       3u

struct shm_cq {
	uint32_t magic; /* SHM_MAGIC_CQ */
	uint32_t layout_version;
	uint64_t size;
	uint32_t depth;
	uint32_t slots;  /* of each ring: a power of two >= depth */
	uint32_t rings;  /* workers */
	uint32_t notify; /* bit number in shm_session.cq_notify */
	/*
	 * The client stores SHM_ARM_*; whoever satisfies the arm takes it by an atomic
	 * exchange with SHM_ARM_NONE, so it is satisfied once. A worker that takes it
	 * sets the notify bit and writes the session's pipe.
	 */
	alignas(64) uint32_t arm;
	alignas(64) uint32_t error; /* the daemon's: NTSTATUS once the CQ has failed */
	struct shm_cq_ring ring[SHM_MAX_WORKERS];
};

_Static_assert(sizeof(struct shm_request) == 512, "control request");
_Static_assert(sizeof(struct shm_reply) == 512, "control reply");
_Static_assert(sizeof(struct shm_sqe) == 64, "send-queue entry");
_Static_assert(sizeof(struct shm_rqe) == 16, "receive-queue entry");
_Static_assert(sizeof(struct shm_sge) == 16, "SGE");
_Static_assert(sizeof(struct shm_cqe) == 64, "completion entry");
_Static_assert(sizeof(struct shm_ring_cursor) == 128, "ring cursor");
_Static_assert(SHM_MAX_SESSION_QPS / 4096 <= 64, "one word of doorbells above the summaries");
_Static_assert(sizeof(struct shm_queue) == 192, "queue");
_Static_assert(sizeof(struct shm_qp) == 448 && offsetof(struct shm_qp, receive) == 256,
	       "QP segment");
_Static_assert(sizeof(struct shm_cq_ring) == 192, "completion ring");
_Static_assert(sizeof(struct shm_address) == 24, "address");
_Static_assert(sizeof(struct shm_hello) == 48, "hello");
_Static_assert(sizeof(struct shm_welcome) == 168, "welcome");
_Static_assert(offsetof(struct shm_reply, created) == 16, "reply payload");
_Static_assert(offsetof(struct shm_session, worker) % 64 == 0, "session");

#endif
