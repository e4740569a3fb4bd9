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
#include "shm/layout.h"
#include "shm/spsc.h"

#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

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
	struct request *chain;           /* outstanding, by id */
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
	uint32_t id;    /* 0: not outstanding */
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
bool request_take_segment(struct adapter *adapter, struct request *request);
void request_wake_daemon(struct adapter *adapter);

/* --- objects ---------------------------------------------------------------------------- */

#define OBJECT_NEEDS 4

/* Behind the public part of every object. */
struct object {
	struct adapter *adapter;
	struct object *previous, *next; /* all of the adapter */
	struct object *chain;           /* by handle, for those that events name */
	struct object *needs[OBJECT_NEEDS];
	void (*destroy)(struct object *object); /* gives back what only this type has */
	struct request close;
	uint32_t handle;   /* the daemon's; 0: not created yet */
	uint32_t users;    /* successors alive */
	uint32_t requests; /* outstanding ones */
	uint32_t type;     /* NDK_OBJECT_TYPE; the header's copy belongs to the consumer */
	bool closing;      /* its close was asked for: no more callbacks but completions */
	bool close_early;  /* the daemon hears of a close at once and waits for successors itself */
};

struct object *object_of(const NDK_OBJECT_HEADER *header);
NDK_OBJECT_HEADER *object_header(struct object *object);

/*
 * A new object of `size` bytes with the header filled in, not in any list. NULL without
 * memory.
 */
struct object *object_allocate(struct adapter *adapter, size_t size, NDK_OBJECT_TYPE type,
			       const void *dispatch, void (*destroy)(struct object *object));
void object_need(struct object *object, unsigned int slot, struct object *needed);
void object_drop_need(struct object *object, unsigned int slot);
/* adapter.lock is held. */
void object_add(struct object *object);
void object_set_handle(struct object *object, uint32_t handle);
struct object *object_find(struct adapter *adapter, uint32_t handle, NDK_OBJECT_TYPE type);
/* Frees it and gives up what it needs; closes that waited for that go on. */
void object_destroy(struct object *object);
NTSTATUS object_close(NDK_OBJECT_HEADER *header, NDK_FN_CLOSE_COMPLETION completion,
		      void *context);
/* adapter.lock is held. A close nobody waits for. */
void object_close_silently(struct object *object);
/*
 * Sends the create request of an object, whose needs stand already. Takes the object: on
 * failure it is gone. `created` runs on success with adapter.lock held, may be NULL, and
 * returns the status of what it had to do.
 */
typedef NTSTATUS object_created(struct object *object, struct request *request,
				const struct shm_created *created);
NTSTATUS object_create(struct object *object, struct shm_request *message,
		       object_created *created, NDK_FN_CREATE_COMPLETION completion,
		       void *context);
/* What a create function must refuse before it does anything. */
NTSTATUS adapter_usable(const struct adapter *adapter);

/* --- the adapter -------------------------------------------------------------------------- */

#define REQUEST_BUCKETS 1024u
#define OBJECT_BUCKETS  1024u
#define TOKEN_STOCK     4096u /* kept at most */
#define TOKEN_LOW       192u  /* asks for more below */

/* Memory that the data plane may see: one sealed memfd, mapped whole. */
struct memory {
	struct memory *next;
	uint8_t *address;
	uint64_t size;
	uint64_t cookie;
	int fd;
	bool sent; /* the daemon has it */
};

struct token_link {
	struct token_link *chain;
	struct mw *mw;
	uint32_t token; /* 0: not in the table */
};

struct adapter {
	NDK_ADAPTER ndk;
	struct object object;
	NDK_VERSION version; /* in force */

	int socket;
	int event_fd;   /* written by the daemon, and by us for OrielGetEventFd's sake */
	int control_fd; /* wakes the control core */
	int epoll_fd;   /* event_fd and socket */
	int worker_fd[SHM_MAX_WORKERS];
	uint32_t workers;
	struct shm_session *session;
	uint64_t session_size;

	pthread_mutex_t progress;
	pthread_t progress_owner;
	bool in_progress;
	bool fd_given;          /* OrielGetEventFd was called: progress drains the eventfd */
	uint32_t progress_runs; /* the socket is looked at now and then */

	pthread_mutex_t lock;
	bool dead; /* the daemon is gone or has ended the session */
	bool closing;
	uint32_t request_tail; /* of the request ring */
	uint32_t reply_head;
	uint32_t next_id;
	struct request *first_request, *last_request;
	struct request *request_bucket[REQUEST_BUCKETS];
	struct request *first_waiting, **last_waiting;
	struct object *first_object;
	struct object *object_bucket[OBJECT_BUCKETS];
	struct call *first_call, **last_call;
	struct cq **cq_by_notify; /* SHM_MAX_SESSION_CQS */
	uint32_t notify_words;    /* of cq_notify that are in use */
	uint32_t accepting;       /* connectors whose accept is pending */
	struct memory *memory;
	uint64_t next_cookie;
	struct call removed; /* tells of the daemon's death */
	ORIEL_EVENT_HANDLER event_handler;
	void *event_context;

	struct spin window_lock;
	uint32_t tokens;           /* in stock */
	uint32_t tokens_asked;     /* of refills under way */
	uint32_t token_mask;       /* buckets - 1 */
	uint32_t token_count;      /* links in the table */
	struct token_link **token_bucket;
	uint32_t stock_head[SHM_MAX_WORKERS];
	uint32_t token[TOKEN_STOCK];
};

static inline struct adapter *adapter_of(NDK_ADAPTER *ndk)
{
	return (struct adapter *)ndk;
}

extern const NDK_ADAPTER_DISPATCH adapter_dispatch;
extern const NDK_PD_DISPATCH pd_dispatch;
extern const NDK_CQ_DISPATCH cq_dispatch;
extern const NDK_MR_DISPATCH mr_dispatch;
extern const NDK_MW_DISPATCH mw_dispatch;
extern const NDK_QP_DISPATCH qp_dispatch;
extern const NDK_CONNECTOR_DISPATCH connector_dispatch;
extern const NDK_LISTENER_DISPATCH listener_dispatch;

#endif
