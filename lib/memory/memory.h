/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains, segments, regions, windows and tokens: who may touch which
 * bytes of client memory, and the exact end of that permission.
 *
 * A token is a permuted (generation, slot) pair: decrypting it gives the index of
 * its slot, one cache line that holds all that the check of a packet needs. Slots
 * are handed out in order of age and leave their session after a while, so that a
 * token comes back only after about 2^32 others.
 *
 * Threads: one control thread creates, registers and frees. Workers look up, bind and
 * invalidate. Every worker is a QSBR reader with its own number; a pointer that
 * memory_access() gave is good until that reader's next memory_quiescent().
 */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdalign.h>

#include "memory/arena.h"

/* Rights of a token. */
#define RIGHT_LOCAL_READ    0x01u
#define RIGHT_LOCAL_WRITE   0x02u
#define RIGHT_REMOTE_READ   0x04u
#define RIGHT_REMOTE_WRITE  0x08u
#define RIGHT_REMOTE_ATOMIC 0x10u
#define RIGHTS_REMOTE       0x1cu

enum token_state {
	TOKEN_FREE = 0, /* belongs to nobody */
	TOKEN_RESERVED, /* in the stock of a session, grants nothing */
	TOKEN_VALID,    /* grants its rights */
	TOKEN_INVALID,  /* a fast-register region between registrations */
	TOKEN_REVOKED,  /* dead, waits for the grace period */
};

enum token_kind {
	TOKEN_KIND_NONE = 0,
	TOKEN_KIND_LOCAL,
	TOKEN_KIND_REGION,
	TOKEN_KIND_WINDOW,
	TOKEN_KIND_FRMR
};

#define TOKEN_FLAG_TIED 0x01u /* only queue pair `qpn` may use it */

/*
 * One token. `meta` is the publication word: everything else is written before its
 * release store to TOKEN_VALID and stays as it is until a grace period after it left
 * TOKEN_VALID.
 */
struct token_slot {
	alignas(64)
		uint64_t meta; /* token | state << 32 | kind << 40 | rights << 48 | flags << 56 */
	uint64_t base;         /* first address, as the peer names it */
	uint64_t length;       /* bytes */
	uint64_t offset;       /* of base in the segment */
	uint32_t segment;
	uint32_t pd;
	uint32_t qpn;     /* TOKEN_FLAG_TIED */
	uint32_t session; /* owner; 0 when free */
	uint32_t region;  /* region behind it */
	uint32_t window;  /* TOKEN_KIND_WINDOW */
	uint32_t next;    /* control's: session list or free list */
	uint32_t prev;
};
_Static_assert(sizeof(struct token_slot) == 64, "one cache line per token");

enum object_state {
	OBJECT_FREE = 0,
	OBJECT_CREATED,
	OBJECT_VALID,
	OBJECT_CLOSING,
	OBJECT_OPENING /* a segment whose pages are being brought in */
};

struct pd {
	uint32_t state;
	uint32_t session;
	uint32_t users; /* regions, windows, queue pairs, SRQs */
	uint32_t reserved;
};

/* A memfd of a client, mapped once however many regions lie in it. */
struct segment {
	uint64_t size;
	uint64_t cookie; /* the client's name for it */
	uint32_t session;
	uint32_t regions; /* registered in it, atomic */
	uint32_t state;
	uint32_t poisoned; /* a page was gone; set from the SIGBUS handler */
};

struct region {
	uint32_t state; /* enum object_state, atomic: VALID allows binds */
	uint32_t pd;
	uint32_t session;
	uint32_t segment;
	uint64_t offset;
	uint64_t length;
	uint64_t base;    /* virtual address of the first byte */
	uint32_t access;  /* RIGHT_* */
	uint32_t windows; /* bound now, atomic */
	uint32_t local_slot;
	uint32_t remote_slot;
	uint32_t fast_register;
	uint32_t max_pages;
};

struct window {
	uint32_t state; /* CREATED or CLOSING, atomic */
	uint32_t pd;
	uint32_t session;
	uint32_t slot; /* token slot while bound, else 0; atomic */
	uint32_t region;
	uint32_t revoked; /* slot that window_destroy() revoked */
};

_Static_assert(sizeof(struct pd) == 16, "fixed record");
_Static_assert(sizeof(struct segment) == 32, "fixed record");
_Static_assert(sizeof(struct region) == 64, "fixed record");
_Static_assert(sizeof(struct window) == 24, "fixed record");

/* Why an access, bind or invalidate was refused. One counter each. */
enum access_reason {
	ACCESS_OK = 0,
	ACCESS_UNKNOWN,    /* no such token */
	ACCESS_DEAD,       /* known once: revoked, invalidated or not bound yet */
	ACCESS_KIND,       /* a local token used by a peer or the reverse */
	ACCESS_DOMAIN,     /* other protection domain */
	ACCESS_QUEUE_PAIR, /* tied to another queue pair */
	ACCESS_RIGHTS,
	ACCESS_RANGE,
	ACCESS_ALIGNMENT, /* atomic not on 8 bytes */
	ACCESS_POISONED,  /* the client destroyed the memory */
	BIND_TOKEN,       /* the new token is not a reserved one of this session */
	BIND_WINDOW,      /* no such window, or not of this session */
	BIND_BOUND,       /* window already bound */
	BIND_REGION,      /* no such region, not registered, or not of this session */
	BIND_LENGTH,      /* zero */
	INVALIDATE_KIND,  /* token of something that cannot be invalidated */
	ACCESS_REASONS
};

const char *access_reason_name(enum access_reason reason);

/* Who asks: the queue pair that a packet or a work request belongs to, and its worker. */
struct accessor {
	uint32_t pd;
	uint32_t qpn;
	uint32_t session;
	uint32_t worker; /* number as a reader */
};

struct memory; /* a process's view: arena, mappings, QSBR */

/* Records of this module's tables, index 0 included; at least 2 of each. */
struct memory_sizes {
	uint32_t tokens; /* power of two, at most 2^26 */
	uint32_t segments;
	uint32_t regions;
	uint32_t windows;
	uint32_t pds;
};
void memory_arena_spec(const struct memory_sizes *sizes, struct arena_spec spec[ARENA_TABLES]);

/*
 * Builds the process-local part over an arena whose tables TOKENS to PDS exist. adopted:
 * rebuilds lists and counts from the records and undoes binds that a dead process had
 * not finished; its segments work again after segment_adopt(). readers: number of
 * workers. The mapping of the arena must outlive it. Returns 0 or a negative errno.
 */
int memory_create(struct memory **memory, struct arena *arena, unsigned int readers, bool adopted);
void memory_destroy(struct memory *memory);

/* --- the one bounds test that everything uses ------------------------------- */

/* Whether [address, address + length) lies in [base, base + size), for any values. */
static inline bool range_within(uint64_t base, uint64_t size, uint64_t address, uint64_t length)
{
	return address >= base && length <= size && address - base <= size - length;
}

/* --- per packet --------------------------------------------------------------- */

/*
 * Checks one access and gives the address of its bytes. `rights`: all of RIGHT_* that it
 * needs, either local ones (SGE of the client) or remote ones (packet of the peer).
 * length 0 is the caller's affair (IBTA C9-88: no token is looked at then). Wait-free.
 * *poisoned is set to the flag to test after the copy and before acknowledging.
 */
struct access {
	uint8_t *pointer;
	const uint32_t *poisoned;
	uint32_t slot; /* 0: the privileged token's */
};
enum access_reason memory_access(const struct memory *memory, const struct accessor *who,
				 uint32_t token, uint64_t address, uint64_t length, uint32_t rights,
				 struct access *access);

/*
 * The token with which an SGE names bytes by logical address: a segment's index above
 * LOGICAL_OFFSET_BITS, the offset in the segment below. Good for local read and write in all
 * segments of the session that asks, in all its domains; unknown to peers. The same for the life of
 * the arena; never 0 and never another token.
 */
#define LOGICAL_OFFSET_BITS 40u
uint32_t memory_privileged_token(const struct memory *memory);

/*
 * Fetches what memory_access() will read for these tokens, and finds their slots together; at most
 * MEMORY_PREFETCH of them. Only a hint: any token may stand there. Returns how many were not among
 * those used lately.
 */
#define MEMORY_PREFETCH 32u
unsigned int memory_prefetch(const struct memory *memory, unsigned int worker,
			     const uint32_t token[], unsigned int count);

/*
 * Later, when that has come: the first of the bytes that such an access will reach. False: the
 * token reaches none at that address, and nothing is fetched.
 */
bool memory_prefetch_bytes(const struct memory *memory, unsigned int worker, uint32_t token,
			   uint64_t address);

/* --- in a worker's send queue ------------------------------------------------- */

struct bind_request {
	uint32_t region; /* index */
	uint32_t window; /* index */
	uint32_t token;  /* from the session's stock */
	uint32_t rights; /* RIGHT_REMOTE_* */
	uint64_t address;
	uint64_t length;
	bool tied;
};

/* Publishes a window. After ACCESS_OK the next packet may use the token. */
enum access_reason window_bind(struct memory *memory, const struct accessor *who,
			       const struct bind_request *request);

/*
 * Unpublishes the token of a window or fast-register region, as asked by its owner
 * (remote false: who->session and domain must match) or by a peer's SEND with invalidate
 * (remote true: domain and, when tied, queue pair must match). On ACCESS_OK *slot
 * is the dead slot and *grace is 0 when nobody else can hold it (tied window, one worker),
 * else the ticket for memory_grace_done(). The window is unbound from the caller's
 * point of view only when the grace is over: call token_recycle() then.
 */
enum access_reason token_invalidate(struct memory *memory, const struct accessor *who,
				    uint32_t token, bool remote, uint32_t *slot, uint64_t *grace);

/*
 * Ends what token_invalidate() began, after its grace period. The window may be bound
 * again; its slot becomes a reserved one of the same session under the new token that is
 * returned. Returns 0 when there is no token to give back to the session's stock: the slot
 * of a window now and then leaves its session (the stock is refilled by token_reserve()),
 * and a fast-register region keeps its token and may now be registered again.
 */
uint32_t token_recycle(struct memory *memory, unsigned int worker, uint32_t slot);
/* The token that it returned finds no room in the stock: the slot is free for anybody. */
void token_give_up(struct memory *memory, uint32_t slot);

/* Registers a fast-register region anew, under the tokens that it has for life. */
struct fast_register_request {
	uint32_t region;  /* index */
	uint32_t segment; /* index */
	uint64_t offset;  /* of the first byte in the segment */
	uint64_t length;
	uint64_t base;   /* address of the first byte, as peers name it */
	uint32_t rights; /* RIGHT_*; local read is always granted */
};
enum access_reason region_fast_register(struct memory *memory, const struct accessor *who,
					const struct fast_register_request *request);

/* --- grace periods ------------------------------------------------------------ */

void memory_reader_online(struct memory *memory, unsigned int reader);
void memory_reader_offline(struct memory *memory, unsigned int reader); /* before sleeping */
void memory_quiescent(struct memory *memory, unsigned int reader);      /* once per loop */
uint64_t memory_grace_start(struct memory *memory);                     /* never 0 */
/* Polled, never blocks. A ticket of an earlier process that shows as such is done. */
bool memory_grace_done(struct memory *memory, uint64_t grace);

/* --- control thread ------------------------------------------------------------- */

/*
 * Maps a client's memfd (refused with -EPERM unless sealed F_SEAL_SHRINK and F_SEAL_SEAL),
 * populates it, and gives the segment's index. numa_node: where pages not yet there
 * should come from, -1: anywhere. -EEXIST: the session has that cookie already. Takes
 * over fd on success.
 */
int segment_attach(struct memory *memory, uint32_t session, uint64_t cookie, int fd, int numa_node,
		   uint32_t *segment);
/*
 * The same in pieces of some milliseconds, for who has others to serve: segment_populate() until it
 * does not return -EAGAIN. With 0 the segment can be found; with another error nothing is left of
 * it nor of fd. -ECANCELED: its session has ended meanwhile.
 */
int segment_begin(struct memory *memory, uint32_t session, uint64_t cookie, int fd, int numa_node,
		  uint32_t *segment);
int segment_populate(struct memory *memory, uint32_t segment);
/* Before workers run: maps an adopted segment's memfd again. -ESTALE: it is too small. */
int segment_adopt(struct memory *memory, uint32_t segment, int fd);
/*
 * Lets it go: nobody finds it any more, and segment_collect() unmaps it. -EBUSY while regions are
 * registered in it.
 */
int segment_detach(struct memory *memory, uint32_t segment);
/* Unmaps what was detached a grace period ago. Returns whether some still wait for that. */
bool segment_collect(struct memory *memory);
uint32_t segment_find(const struct memory *memory, uint32_t session, uint64_t cookie); /* 0: none */

int pd_create(struct memory *memory, uint32_t session, uint32_t *pd);
int pd_destroy(struct memory *memory, uint32_t pd); /* -EBUSY while it has users */

int region_create(struct memory *memory, uint32_t session, uint32_t pd, bool fast_register,
		  uint32_t *region);
/*
 * access: RIGHT_*; local read is always granted. -EINVAL for an empty or wrong range,
 * another session's segment, remote write or atomic without local write, or a
 * fast-register region; -EEXIST when registered, -EFAULT when the segment is poisoned,
 * -ENOSPC without free tokens. *remote_token is 0 when access holds no remote right.
 */
int region_register(struct memory *memory, uint32_t region, uint32_t segment, uint64_t offset,
		    uint64_t length, uint64_t base, uint32_t access, uint32_t *local_token,
		    uint32_t *remote_token);
/*
 * Gives a fast-register region its tokens, dead until region_fast_register(). max_pages:
 * of 4096 bytes. remote: whether it gets a remote token. Errors as region_register().
 */
int region_init_fast_register(struct memory *memory, uint32_t region, uint32_t max_pages,
			      bool remote, uint32_t *local_token, uint32_t *remote_token);
/*
 * -EBUSY while windows are bound or an invalidate waits for its grace period, -EINVAL when
 * not registered. On 0 call region_deregister_finish() after *grace.
 */
int region_deregister(struct memory *memory, uint32_t region, uint64_t *grace);
void region_deregister_finish(struct memory *memory, uint32_t region);
int region_destroy(struct memory *memory, uint32_t region); /* -EBUSY while registered */

int window_create(struct memory *memory, uint32_t session, uint32_t pd, uint32_t *window);
/* Revokes if bound; on 0 call window_destroy_finish() after *grace. */
int window_destroy(struct memory *memory, uint32_t window, uint64_t *grace);
void window_destroy_finish(struct memory *memory, uint32_t window);

/* Moves up to count free slots into a session's stock. Returns how many. */
unsigned int token_reserve(struct memory *memory, uint32_t session, unsigned int count,
			   uint32_t token[]);

/*
 * The end of a session: revokes everything it holds at once; after *grace, and when no
 * worker has a token_recycle() of this session before it any more,
 * session_release_finish() frees all of it, segments included.
 */
void session_release(struct memory *memory, uint32_t session, uint64_t *grace);
void session_release_finish(struct memory *memory, uint32_t session);

/*
 * For the SIGBUS handler: if address lies in a client segment, maps a zero page there,
 * poisons the segment and returns true. Async-signal-safe.
 */
bool memory_repair_fault(void *address);

struct memory_usage {
	uint32_t tokens_valid, tokens_reserved, tokens_free;
	uint32_t pds, regions, windows, segments;
	uint64_t bytes; /* mapped client memory */
};
void memory_usage(const struct memory *memory, struct memory_usage *usage);

#endif
