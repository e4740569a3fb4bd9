/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One number space for the fate of every frame and work request: counters, capture,
 * status output and provider error codes all use it.
 *
 * The lower layers' reasons keep their own enums; here they become ranges of one.
 */
#ifndef TRANSPORT_VERDICT_H
#define TRANSPORT_VERDICT_H

#include <stdint.h>

#define VERDICT_WIRE   0u   /* + enum wire_reason; 0 is "accepted" */
#define VERDICT_ACCESS 64u  /* + enum access_reason */
#define VERDICT_LOCAL  128u /* + the enum below */
#define VERDICTS       256u

/* Name, text for a person. Order is not an interface; names are. */
#define VERDICT_LIST(X)                                                           \
	/* Frames, before a queue pair is known. */                               \
	X(NOT_OURS_MAC, "other station's MAC address")                            \
	X(NOT_OURS_IP, "not an address of this port")                             \
	X(WRONG_VLAN, "VLAN of another port")                                     \
	X(MULTICAST, "multicast or broadcast destination")                        \
	X(NO_ROOM_HANDOFF, "ring to the owning worker is full")                   \
	X(NO_ROOM_CONTROL, "ring to the control core is full")                    \
	X(OVERSIZE, "frame longer than the port's MTU")                           \
	/* Frames for a queue pair: dropped in silence. */                        \
	X(QP_UNKNOWN, "no such queue pair")                                       \
	X(QP_STATE, "queue pair not ready for it")                                \
	X(QP_DEAD, "queue pair in error")                                         \
	X(QP_TYPE, "opcode of another transport service")                         \
	X(NOT_PEER, "source or destination address is not the queue pair's peer") \
	X(PKEY, "partition key mismatch")                                         \
	X(QKEY, "queue key mismatch")                                             \
	X(PARK_FULL, "too many packets behind a parked one")                      \
	/* Responder. */                                                          \
	X(DUPLICATE, "duplicate, answered again")                                 \
	X(DUPLICATE_UNKNOWN, "duplicate that nothing is kept of")                 \
	X(PSN_AHEAD, "sequence gap: NAK 0x60")                                    \
	X(PSN_AHEAD_SILENT, "behind a gap already reported")                      \
	X(OPCODE_SEQUENCE, "opcode out of sequence: NAK 0x61")                    \
	X(OPERATION, "operation not allowed on this queue pair: NAK 0x61")        \
	X(READ_LIMIT, "more READs or atomics than agreed: NAK 0x61")              \
	X(NO_RECEIVE, "no receive posted: RNR NAK")                               \
	X(LENGTH, "length rules: NAK 0x61")                                       \
	X(ATOMIC_ALIGNMENT, "atomic not on 8 bytes: NAK 0x61")                    \
	X(RECEIVE_TOO_SMALL, "message longer than the receive: NAK 0x61")         \
	X(RECEIVE_BAD, "receive request unusable: NAK 0x63")                      \
	X(REMOTE_INVALIDATE, "SEND with invalidate of a token it may not kill")   \
	X(UD_TOO_SMALL, "datagram longer than the receive")                       \
	X(UD_TOO_LONG, "datagram longer than the path MTU")                       \
	X(DROPPED_NO_RECEIVE, "no receive posted: UC or UD message dropped")      \
	X(UC_GAP, "UC: packet of a message that lost one")                        \
	X(UC_REST, "UC: packet of a message that was dropped")                    \
	X(UC_SEQUENCE, "UC: opcode out of sequence")                              \
	X(UC_OPERATION, "UC: operation not allowed on this queue pair")           \
	X(UC_LENGTH, "UC: length rules")                                          \
	X(UC_TOO_SMALL, "UC: message longer than the receive")                    \
	/* Requester. */                                                          \
	X(ACK_GHOST, "acknowledgement older than anything outstanding")           \
	X(ACK_FUTURE, "acknowledgement of what was never sent")                   \
	X(RESPONSE_UNEXPECTED, "response that no request asks for")               \
	X(RESPONSE_LENGTH, "READ response of the wrong length")                   \
	X(RESPONSE_GAP, "READ response out of order")                             \
	X(NAK_SEQUENCE, "peer reports a sequence gap")                            \
	X(NAK_RNR, "peer has no receive posted")                                  \
	X(NAK_INVALID_REQUEST, "peer: invalid request")                           \
	X(NAK_REMOTE_ACCESS, "peer: remote access error")                         \
	X(NAK_REMOTE_OPERATION, "peer: remote operational error")                 \
	X(RETRY_EXCEEDED, "peer does not answer")                                 \
	X(RNR_RETRY_EXCEEDED, "peer never posts a receive")                       \
	/* Work requests. */                                                      \
	X(WR_MALFORMED, "work request malformed")                                 \
	X(WR_OPERATION, "work request that this type of queue pair cannot do")    \
	X(WR_ADDRESS, "no such address in this session and protection domain")    \
	X(WR_FLUSHED, "work request flushed")                                     \
	X(RING_NONSENSE, "cursor in shared memory is impossible")                 \
	X(CQ_OVERRUN, "completion queue overrun")                                 \
	X(ADOPTED_DYING, "was going to error when its daemon died")

enum verdict_local {
#define VERDICT_ENUM(name, text) VERDICT_##name,
	VERDICT_LIST(VERDICT_ENUM)
#undef VERDICT_ENUM
		VERDICT_LOCAL_COUNT
};
_Static_assert(VERDICT_LOCAL_COUNT <= VERDICTS - VERDICT_LOCAL, "verdict number space");

/* Full number of a local verdict. */
#define VERDICT(name) (VERDICT_LOCAL + (uint32_t)VERDICT_##name)

/* Short name ("qp_unknown") and sentence of any number; NULL where there is none. */
const char *verdict_name(uint32_t verdict);
const char *verdict_text(uint32_t verdict);

#endif
