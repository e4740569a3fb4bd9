/* SPDX-License-Identifier: BSD-3-Clause */
/* Wrong requests and wrong frames. */
#ifndef TEST_SIM_FAULT_H
#define TEST_SIM_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"
#include "rng.h"

struct end;
struct op;
struct sim_buffer;
struct sim_window;
struct world;

#define FAULTS(X)                                                                  \
	X(NONE, "none")                                                            \
	X(UNKNOWN_TOKEN, "token that never was")                                   \
	X(DEAD_TOKEN, "token of an invalidated window")                            \
	X(LOCAL_TOKEN, "local token of the peer")                                  \
	X(DOMAIN, "token of another protection domain")                            \
	X(TIED, "window tied to another queue pair")                               \
	X(RANGE, "range not inside the window or region")                          \
	X(RIGHT, "right that the window lacks")                                    \
	X(CROOKED, "atomic on 8 bytes of the peer's addresses and not of ours")    \
	X(ALIGNMENT, "atomic not on 8 bytes")                                      \
	X(QP_RIGHT, "operation that the queue pair does not allow")                \
	X(TOO_LONG, "SEND longer than the receive")                                \
	X(RECEIVE_TOKEN, "receive with a bad local token")                         \
	X(RECEIVE_SHAPE, "receive with too many SGEs")                             \
	X(INVALIDATE_TOKEN, "SEND with invalidate of a token that is no window's") \
	X(NO_RECEIVE, "SEND that never finds a receive")                           \
	X(SGE_TOKEN, "bad local token")                                            \
	X(SGE_RANGE, "SGE beyond its region")                                      \
	X(SGE_COUNT, "too many SGEs")                                              \
	X(INLINE_LENGTH, "inline data longer than agreed")                         \
	X(INLINE_KIND, "inline READ")                                              \
	X(OPCODE, "no such operation")                                             \
	X(ATOMIC_LENGTH, "atomic whose result has not 8 bytes")                    \
	X(BIND_TOKEN, "bind of a token that is not in the stock")                  \
	X(BIND_RANGE, "bind beyond the region")                                    \
	X(BIND_LENGTH, "bind of nothing")                                          \
	X(BIND_BOUND, "bind of a bound window")                                    \
	X(DEAD_INVALIDATE, "invalidate of a dead token")                           \
	X(BIND_RIGHT, "bind of a right that the region lacks")                     \
	X(BIND_DOMAIN, "bind of another domain's region")                          \
	X(FAST_REGISTER, "fast registration that cannot be")                       \
	X(SGE_RIGHT, "result into memory that may only be read")                   \
	X(SUM_LENGTH, "SGEs longer than any message")                              \
	X(READS_NONE, "READ or atomic where none may be outstanding")              \
	X(WIRE_SHORT, "packet in the middle that is not full")                     \
	X(WIRE_EMPTY, "last packet with nothing in it")                            \
	X(WIRE_LONG, "packet longer than the path MTU")                            \
	X(WIRE_SEQUENCE, "opcode out of sequence")                                 \
	X(WIRE_LENGTH, "WRITE of another length than it carries")                  \
	X(WIRE_HUGE, "READ longer than any message")                               \
	X(WIRE_OPCODE, "operation that nobody offers")                             \
	X(WIRE_RESPONSE, "READ response that is too short")                        \
	X(WIRE_NAK, "NAK of a reserved code")                                      \
	X(WIRE_SILENT, "answer that never comes")

enum fault {
#define FAULT_ENUM(name, text) FAULT_##name,
	FAULTS(FAULT_ENUM)
#undef FAULT_ENUM
		FAULT_COUNT
};

/* What is still to come of each kind, before any comes again. */
struct fault_deck {
	uint8_t left[FAULT_COUNT];
};

/* --- fault.c ---------------------------------------------------------------------- */

/* Posts a wrong request. False: none of those tried can be made now. */
bool fault_post(struct end *end);
const char *fault_name(enum fault fault);
/* The event that ends the responder's queue pair for it; 0: it does not reach the responder. */
uint32_t fault_async(enum fault fault);
/* Whether the network makes it, by changing frames. */
bool fault_is_forged(enum fault fault);
/* Whether the request leaves its host at all. */
bool fault_leaves(enum fault fault);
/* Whether the responder reports a bad token. */
bool fault_is_token(enum fault fault);
/* One too many, mostly: that is what a wrong comparison lets through. */
uint32_t one_or_more(struct rng *rng, uint32_t most);
/* An address so that `length` bytes are not inside. */
uint64_t fault_outside(struct rng *rng, uint64_t start, uint64_t size, uint32_t length);

/* A window of another pair's end at the same host that is tied to that; NULL: there is none. */
const struct sim_window *fault_foreign_tied(const struct end *end);
/* A token of the peer that is dead, and whose place another has; 0: there is none. */
uint32_t fault_succeeded(const struct end *end);
/* A local token of its own for as many bytes that allows no write; 0: there is none. */
uint32_t fault_read_only(const struct end *end, uint32_t length, uint64_t *address);
/* It is bound, and does not grant all. */
bool fault_lacks_right(const struct sim_window *window);

/* --- fault_deck.c ----------------------------------------------------------------- */

/* What `end` is to do wrong; FAULT_NONE: nothing now. */
enum fault fault_draw(struct end *end);

/* --- fault_home.c ----------------------------------------------------------------- */

/* A request that its own host refuses; NULL: none can be made now. */
struct op *fault_at_home(struct end *end, enum fault fault);

/* --- forge.c ---------------------------------------------------------------------- */

/* What was changed; the ICRC is still to be made right. Must be refused without a word. */
const char *forge_refused(struct world *world, uint8_t *frame, const struct frame_facts *facts);
/* Must make no difference. Far PSNs are far outside of every window. */
const char *forge_harmless(struct world *world, struct sim_buffer *buffer,
			   const struct frame_facts *facts);
/* Any bits of the headers behind the outer ones, but whose queue pair it is. */
void forge_wild(struct world *world, uint8_t *frame, const struct frame_facts *facts);
void forge_future(struct world *world, const struct end *end, struct sim_buffer *buffer);
/*
 * A READ or atomic that `end` has carried out: as if it had been another one. What, or NULL: it is
 * none.
 */
const char *forge_again(struct world *world, const struct end *end, struct sim_buffer *buffer);
/*
 * A READ whose answer the requester has: asked for once more, from any packet and not as far as its
 * end, which our own requester never does. False: it is none, or that was done before.
 */
bool forge_piece(struct world *world, const struct end *end, struct sim_buffer *buffer);
/* Whether what forge_fault() has made of an answer goes no further. */
bool forge_swallows(const struct end *receiver, const struct frame_facts *facts);
/* A frame of a request whose fault the network makes: which one, or NULL. */
const char *forge_fault(struct end *receiver, struct sim_buffer *buffer, struct frame_facts *facts);

#endif
