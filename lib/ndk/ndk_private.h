/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of libndk: its objects, requests to the daemon, due callbacks and locks.
 *
 * Locks, in the order in which they nest:
 *   adapter.progress   held by the thread that runs callbacks
 *   qp.send_lock, qp.receive_lock, cq.lock   one queue each
 *   adapter.lock       objects, requests, due callbacks; never held while a callback runs
 *   adapter.window_lock   stock of tokens, token table, ties of windows to regions
 */
#ifndef NDK_NDK_PRIVATE_H
#define NDK_NDK_PRIVATE_H

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ndk/ndk.h"
#include "ndk/plane.h"
#include "ndk/table.h"
#include "shm/layout.h"
#include "shm/spsc.h"

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

struct adapter;
struct object;
struct request;
struct mw;
struct mr;

/* --- a lock for a few instructions ------------------------------------------------- */

struct spin {
	uint32_t held;
};

static inline void spin_lock(struct spin *lock)
{
	unsigned int tries = 0;

	while (__atomic_exchange_n(&lock->held, 1, __ATOMIC_ACQUIRE)) {
		/* Its holder may have lost the processor: let it have ours. */
		if (++tries % 64 == 0)
			sched_yield();
	}
}

static inline void spin_unlock(struct spin *lock)
{
	__atomic_store_n(&lock->held, 0, __ATOMIC_RELEASE);
}

/* --- callbacks that are due ---------------------------------------------------------- */

/* One callback to be made by OrielProgress, in the order of queueing. Lives in its owner. */
struct call {
	struct call *next;
	void (*run)(struct call *call); /* without any lock but progress */
	bool queued;
};

/* adapter.lock is held. A call that is queued already stays where it is. */
void call_queue(struct adapter *adapter, struct call *call);

/* --- requests to the daemon ------------------------------------------------------------ */

enum request_kind {
	REQUEST_SILENT = 0, /* nobody is told */
	REQUEST_CREATE,
	REQUEST_ASYNC,
	REQUEST_CLOSE,
};

/* adapter.lock is held. May change request->status, which is the reply's on entry. */
typedef void request_finisher(struct request *request, const struct shm_reply *reply);

struct request {
	struct call call;
	struct request *previous, *next; /* outstanding, in the order of sending */
	struct numbered by_id;           /* outstanding, in adapter.requests */
	struct request *before, *behind; /* outstanding, of the same object */
	struct request *waiting;         /* for room in the ring */
	struct shm_request *message;     /* while it waits */
	struct object *object;           /* that it is about; NULL: the adapter */
	request_finisher *finish;        /* or NULL */
	union {
		NDK_FN_CREATE_COMPLETION create;
		NDK_FN_REQUEST_COMPLETION async;
		NDK_FN_CLOSE_COMPLETION close;
	} completion;
	void *context;
	uint64_t extra; /* the finisher's */
	uint32_t op;
	NTSTATUS status;
	enum request_kind kind;
	bool embedded; /* in its object: not to be freed */
	int fd;        /* segment that came for it, or -1 */
	uint64_t size; /* of the segment */
};

struct request *request_create(enum request_kind kind, struct object *object,
			       request_finisher *finish);
/*
 * adapter.lock is held. Sends or queues it; the completion comes from OrielProgress. Returns
 * STATUS_PENDING, or an error, and then the request is as before.
 */
NTSTATUS request_send(struct adapter *adapter, struct request *request,
		      struct shm_request *message);
/* The same for a request nobody waits for: takes the lock, sends, frees on failure. */
NTSTATUS request_send_async(struct adapter *adapter, struct request *request,
			    struct shm_request *message, NDK_FN_REQUEST_COMPLETION completion,
			    void *context);

/* adapter.lock is held. */
void request_flush_waiting(struct adapter *adapter);
void request_reply(struct adapter *adapter, const struct shm_reply *reply);
void request_cancel(struct adapter *adapter, struct object *object, NTSTATUS status);
void request_cancel_all(struct adapter *adapter);
void request_due(struct adapter *adapter, struct request *request);
/* From the socket: the next segment that came there, to whom it belongs; and the one of a request.
 */
bool request_take_message(struct adapter *adapter);
bool request_take_segment(struct adapter *adapter, struct request *request, uint32_t id);
void request_wake_daemon(struct adapter *adapter);

/* --- objects ---------------------------------------------------------------------------- */

#define OBJECT_NEEDS 4

/* Behind the public part of every object. */
struct object {
	struct adapter *adapter;
	struct object *previous, *next; /* all of the adapter */
	struct numbered by_handle;      /* in adapter.objects, those that events name */
	struct object *needs[OBJECT_NEEDS];
	void (*destroy)(struct object *object); /* gives back what only this type has */
	struct request close;
	struct request *first_request, *last_request; /* outstanding, without its close */
	uint32_t handle;                              /* the daemon's; 0: not created yet */
	uint32_t users;                               /* successors alive */
	uint32_t type;    /* NDK_OBJECT_TYPE; the header's copy belongs to the consumer */
	bool closing;     /* its close was asked for: no more callbacks but completions */
	bool close_early; /* the daemon hears of a close at once and waits for successors itself */
	bool gone;        /* the daemon has closed it */
};

struct object *object_of(const NDK_OBJECT_HEADER *header);
NDK_OBJECT_HEADER *object_header(struct object *object);

/*
 * A new zeroed object of `size` bytes, header filled in, in no list yet. NULL without memory.
 * destroy may be NULL.
 */
struct object *object_allocate(struct adapter *adapter, size_t size, NDK_OBJECT_TYPE type,
			       const void *dispatch, void (*destroy)(struct object *object));
void object_init(struct object *object, struct adapter *adapter, NDK_OBJECT_TYPE type,
		 const void *dispatch);

/*
 * Runs when the daemon has made the object, with adapter.lock held. Returns the status of what it
 * had to do itself.
 */
typedef NTSTATUS object_created(struct object *object, struct request *request,
				const struct shm_created *created);
/*
 * Sends the create request of an object whose needs[] are filled in. Takes the object: on failure
 * it is gone. STATUS_PENDING or an error.
 */
NTSTATUS object_create(struct object *object, struct shm_request *message, object_created *created,
		       NDK_FN_CREATE_COMPLETION completion, void *context);
NTSTATUS object_close(NDK_OBJECT_HEADER *header, NDK_FN_CLOSE_COMPLETION completion, void *context);

/* From here on adapter.lock is held by the caller. */
void object_add(struct object *object);
void object_set_handle(struct object *object, uint32_t handle);
struct object *object_find(struct adapter *adapter, uint32_t handle, NDK_OBJECT_TYPE type);
void object_need(struct object *object, unsigned int slot, struct object *needed);
void object_drop_need(struct object *object, unsigned int slot);
void object_close_silently(struct object *object);
/* Has the daemon close what stands under this handle, without an object here. */
void object_forget(struct adapter *adapter, uint32_t handle);
/* Frees it and gives up what it needs; closes that waited for that go on. */
void object_destroy(struct object *object);

/* --- the adapter -------------------------------------------------------------------------- */

#define TOKEN_STOCK    4096u /* kept at most */
#define TOKEN_LOW      192u  /* asks for more below, at first */
#define TOKEN_LOW_MOST 1536u /* and at last */

/* One memfd or a part of one, mapped. Belongs to the process; each adapter passes it once. */
struct memory {
	MDL mdl;
	uint8_t *address;
	uint64_t size;
	uint64_t offset; /* of address in the memfd */
	uint64_t cookie; /* unique in the process */
	uint64_t device, inode;
	int fd;
};

/* A memfd that the daemon has. */
struct sent_memory {
	struct sent_memory *next;
	uint64_t cookie;
	uint32_t segment; /* the daemon's number, 0: not asked for yet */
	bool doubtful;    /* the daemon may not have got it: to be passed once more */
};

struct token_link {
	struct numbered by_token; /* in adapter.tokens_bound */
	struct mw *mw;            /* or, of a fast-register region: */
	struct mr *mr;
};

struct adapter {
	NDK_ADAPTER ndk;
	struct object object;
	NDK_VERSION version; /* in force */

	int socket;
	int wake_fd;    /* the daemon writes its other end: a pipe */
	int kick_fd;    /* an eventfd, for callbacks that become due without the daemon */
	int control_fd; /* wakes the control core */
	int timer_fd;   /* of queues whose callbacks wait; -1 until moderation is used */
	int tick_fd;    /* in-process: wakes whoever sleeps on epoll_fd for the next turn, or -1 */
	int epoll_fd;   /* all of these and the socket */
	int worker_fd[SHM_MAX_WORKERS];
	uint32_t workers;
	struct shm_session *session;
	uint64_t session_size;
	bool rung;                 /* atomic; a doorbell waits for the next turn of `plane` */
	struct ndk_plane plane;    /* all zero: there is a daemon */
	struct adapter *next_open; /* all of the process */

	pthread_mutex_t progress;
	uint32_t progress_runs; /* the socket is looked at now and then */

	pthread_mutex_t lock;
	bool in_progress;
	bool fd_given; /* OrielGetEventFd was called: progress drains the wakes */
	bool slept;    /* OrielWait was called: somebody may sleep there */
	bool dead;     /* the daemon is gone or has ended the session */
	bool closing;
	uint32_t request_tail; /* of the request ring */
	uint32_t reply_head;
	uint32_t next_id;
	struct request *first_request, *last_request;
	struct table requests; /* outstanding, by id */
	struct request *first_waiting, **last_waiting;
	struct object *first_object;
	struct table objects; /* by handle, those that events name */
	struct call *first_call, **last_call;
	struct cq **cq_by_notify;   /* SHM_MAX_SESSION_CQS of them */
	uint32_t notify_words;      /* of cq_notify that are in use */
	struct cq *first_held;      /* whose callbacks wait by moderation */
	struct qp *first_accepting; /* queue pairs whose accept is pending */
	uint32_t accepting;         /* how many */
	struct sent_memory *sent_memory;
	struct queue_segment *queue_segments;
	struct call removed; /* tells of the daemon's death */
	pthread_t helper;    /* ORIEL_OPEN_PROGRESS_THREAD */
	struct call helper_wake;
	bool has_helper;
	bool helper_stop; /* atomic */
	ORIEL_FN_EVENT_CALLBACK event_handler;
	void *event_context;

	struct spin window_lock;
	uint32_t tokens;          /* in stock */
	uint32_t tokens_asked;    /* of refills under way */
	uint32_t tokens_low;      /* more are asked for below */
	uint32_t refill_patience; /* counts while the daemon has none to give */
	bool refill_failed;
	struct table tokens_bound; /* struct token_link */
	uint32_t stock_head[SHM_MAX_WORKERS];
	uint32_t token[TOKEN_STOCK];
};

static inline struct adapter *adapter_of(NDK_ADAPTER *ndk)
{
	return (struct adapter *)ndk;
}

NTSTATUS session_join(struct adapter *adapter, const char *path);
void session_leave(struct adapter *adapter);
/* Leaves the text for OrielOpenErrorText() and returns the status. */
NTSTATUS session_refuse(NTSTATUS status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
NTSTATUS session_status_of_errno(int error);
bool session_is_alive(const struct adapter *adapter);
void adapter_kick(struct adapter *adapter);
NTSTATUS helper_start(struct adapter *adapter);
/* Returns when its last callback has; does nothing where there is none. */
void helper_stop(struct adapter *adapter);
void adapter_tell(struct adapter *adapter, ORIEL_EVENT event, NDK_OBJECT_HEADER *header,
		  ULONG reason);
bool adapter_has_work(struct adapter *adapter); /* for OrielProgress() */
/* adapter.lock is held. */
void adapter_async_event(struct adapter *adapter, const struct shm_async *async);
NTSTATUS query_extension(NDK_OBJECT_HEADER *header, GUID *id, NDK_VERSION version,
			 NDK_EXTENSION_INTERFACE *interface);

/* --- a data plane within the process: plane.c -------------------------------------------- */

/* Opens it and fills in adapter->plane and adapter->socket. */
NTSTATUS plane_open(struct adapter *adapter, const char *configuration);
/* Has it answer what was said on the socket; nothing with a daemon. */
void plane_hear(struct adapter *adapter);
/* OrielWait() and OrielGetEventFd(). */
NTSTATUS plane_wait(struct adapter *adapter, LONG milliseconds);
bool plane_tick(struct adapter *adapter); /* false: no descriptors left */
void plane_drain_ticks(const struct adapter *adapter);

/* With a daemon there is nobody to be driven. */
static inline unsigned int plane_turn(struct adapter *adapter)
{
	if (!adapter->plane.turn)
		return 0;
	__atomic_store_n(&adapter->rung, false, __ATOMIC_RELAXED);
	return adapter->plane.turn(adapter->plane.context, false);
}

/* --- segments of queue pairs: queue_memory.c ---------------------------------------------- */

/* All with adapter.lock held. Takes the descriptor; false: no memory, and it is the caller's. */
bool queue_segment_add(struct adapter *adapter, uint64_t number, uint64_t size, int fd);
/* Where the memory of a new queue pair lies; it is mapped until the end of the session. */
NTSTATUS queue_segment_open(struct adapter *adapter, const struct shm_created *created,
			    void **address);
void queue_segments_release(struct adapter *adapter);

/* --- memory --------------------------------------------------------------------------------- */

void memory_adapter_opened(struct adapter *adapter);
void memory_adapter_closed(struct adapter *adapter);
/* adapter.lock is held. Makes the daemon know the memfd. */
NTSTATUS memory_send(struct adapter *adapter, struct memory *memory);
/* adapter.lock is held. The daemon's number of a memfd that was passed; 0: not known yet. */
uint32_t memory_get_segment(const struct adapter *adapter, uint64_t cookie);
void memory_set_segment(struct adapter *adapter, uint64_t cookie, uint32_t segment);
/* adapter.lock is held. A request on this memory has ended so. */
void memory_heard(struct adapter *adapter, uint64_t cookie, NTSTATUS status);
/* The memory of an MDL chain whose first `length` bytes lie together, or a status. */
NTSTATUS memory_of_mdl(MDL *mdl, uint64_t length, struct memory **memory);

/* --- regions, windows, tokens -------------------------------------------------------- */

struct mr {
	NDK_MR ndk;
	struct object object;
	bool fast_register;
	bool busy;       /* register or deregister under way */
	bool registered; /* under window_lock, as the rest is */
	uint64_t address;
	uint64_t length;
	uint32_t access;
	uint32_t local_token;
	uint32_t remote_token;
	struct mw *windows; /* bound to it, as far as the library knows */
	/* Fast-register: `registered` once it has its tokens. */
	uint32_t max_pages;
	bool valid;               /* a fast register was posted, and nothing is known against it */
	bool kept;                /* an invalidate of what was valid before was cancelled */
	struct token_link ending; /* of the token that an invalidate names */
};

enum window_state {
	WINDOW_UNBOUND = 0,
	WINDOW_BOUND, /* a bind was posted, and nothing is known against it */
};

/* All but ndk and object under window_lock. */
struct mw {
	NDK_MW ndk;
	struct object object;
	enum window_state state;
	struct mr *mr;
	struct mw *previous, *next; /* bound to the same region */
	struct token_link current;
	struct token_link leaving; /* of an invalidate that may still be cancelled */
	bool leaving_cancelled;
};

bool token_init(struct adapter *adapter);
void token_destroy(struct adapter *adapter);
void token_refill_if_low(struct adapter *adapter);
/* window_lock is held. 0: out of stock. */
uint32_t token_take(struct adapter *adapter);
void token_link_add(struct adapter *adapter, struct token_link *link, struct mw *mw,
		    uint32_t token);
void token_link_remove(struct adapter *adapter, struct token_link *link);
struct token_link *token_link_find(struct adapter *adapter, uint32_t token);
/* What a completion tells of windows; takes window_lock. */
void window_completed(struct adapter *adapter, const struct shm_cqe *cqe);
/* window_lock is held. */
void window_unbind(struct mw *mw);

NTSTATUS pd_create(NDK_ADAPTER *ndk, NDK_FN_CREATE_COMPLETION completion, PVOID context,
		   NDK_PD **pd);
NTSTATUS mw_create(NDK_PD *pd, NDK_FN_CREATE_COMPLETION completion, PVOID context, NDK_MW **ppmw);
NTSTATUS window_post_bind(NDK_QP *ndk, PVOID context, NDK_MR *ndk_mr, NDK_MW *ndk_mw, PVOID address,
			  SIZE_T length, ULONG flags);
NTSTATUS window_post_invalidate(NDK_QP *ndk, PVOID context, NDK_OBJECT_HEADER *header, ULONG flags);

/* --- fast-register regions ---------------------------------------------------------------- */

NTSTATUS lam_create(NDK_ADAPTER *ndk, MDL *mdl, SIZE_T length, NDK_FN_REQUEST_COMPLETION completion,
		    PVOID context, NDK_LOGICAL_ADDRESS_MAPPING *lam, ULONG *size, ULONG *fbo);
void lam_release(NDK_ADAPTER *adapter, NDK_LOGICAL_ADDRESS_MAPPING *lam);
/* window_lock is held. */
void fast_register_completed(struct mr *mr, const struct shm_cqe *cqe);
NTSTATUS fast_register_invalidate(struct mr *mr, struct shm_sqe *sqe);
NTSTATUS post_fast_register(NDK_QP *ndk, PVOID context, NDK_MR *mr, ULONG pages,
			    const NDK_LOGICAL_ADDRESS *array, ULONG fbo, SIZE_T length, PVOID base,
			    ULONG flags);

/* --- connections --------------------------------------------------------------------- */

NTSTATUS connector_create(NDK_ADAPTER *ndk, NDK_FN_CREATE_COMPLETION completion, PVOID context,
			  NDK_CONNECTOR **ppconnector);
NTSTATUS listener_create(NDK_ADAPTER *ndk, NDK_FN_CONNECT_EVENT_CALLBACK event, PVOID event_context,
			 NDK_FN_CREATE_COMPLETION completion, PVOID context,
			 NDK_LISTENER **pplistener);
NTSTATUS shared_endpoint_create(NDK_ADAPTER *ndk, const PSOCKADDR address, ULONG length,
				NDK_FN_CREATE_COMPLETION completion, PVOID context,
				NDK_SHARED_ENDPOINT **ppendpoint);
/* adapter.lock is held. */
void connector_arrived(struct adapter *adapter, const struct shm_connection *connection);
void connector_disconnected(struct adapter *adapter, const struct shm_async *async);
void connector_disconnect_all(struct adapter *adapter);

/* Numbers of a socket address of either family; STATUS_INVALID_ADDRESS. */
NTSTATUS address_from_sockaddr(const struct sockaddr *from, ULONG length, struct shm_address *to);
/* Returns the bytes of the result. */
ULONG address_to_sockaddr(const struct shm_address *from, struct sockaddr_storage *to);
/* Both ends of a path: STATUS_INVALID_PARAMETER_MIX when they are of different families. */
NTSTATUS address_pair(const struct sockaddr *local, const struct sockaddr *remote,
		      struct shm_address *local_out, struct shm_address *remote_out);
/* The common end of the three NdkGet...Address functions. */
NTSTATUS address_give(const struct shm_address *address, struct sockaddr *to, ULONG *length);

/* --- dispatch tables ----------------------------------------------------------------- */

extern const NDK_ADAPTER_DISPATCH adapter_dispatch;
extern const NDK_PD_DISPATCH pd_dispatch;
extern const NDK_CQ_DISPATCH cq_dispatch;
extern const NDK_MR_DISPATCH mr_dispatch;
extern const NDK_MW_DISPATCH mw_dispatch;
extern const NDK_QP_DISPATCH qp_dispatch;
extern const NDK_SRQ_DISPATCH srq_dispatch;
extern const NDK_CONNECTOR_DISPATCH connector_dispatch;
extern const NDK_LISTENER_DISPATCH listener_dispatch;
extern const NDK_SHARED_ENDPOINT_DISPATCH shared_endpoint_dispatch;

#endif
