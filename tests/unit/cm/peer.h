/* SPDX-License-Identifier: BSD-3-Clause */
/* A CM under test and a peer that is only hand-made MADs. */
#ifndef TEST_CM_PEER_H
#define TEST_CM_PEER_H

#include "end.h"

#define PEER_ID  0x11223344u
#define PEER_QPN 0x000011u
#define PEER_TID 0x0000000544332211ull

/* Offsets in a MAD. */
#define AT_TID       8u
#define AT_ATTRIBUTE 16u
#define AT_LOCAL_ID  24u
#define AT_REMOTE_ID 28u
#define AT_REASON    34u
#define AT_ARI       36u

struct peer {
	struct end own;   /* under test */
	struct end other; /* only its address counts */
	struct cm_req req;
};

void peer_open(struct peer *peer, bool accepts);
void peer_close(struct peer *peer);
void peer_send_req(struct peer *peer); /* as peer->req says */
void peer_send_rtu(struct peer *peer);
void peer_send_dreq(struct peer *peer, uint64_t tid);
void peer_send_rej(struct peer *peer, uint32_t remote_id, uint32_t reason);
/* The id that the CM gave the connection in what it sent last with this attribute. */
uint32_t peer_id_of_cm(const struct peer *peer, enum cm_attribute attribute);
/* REQ and, when it accepts, RTU. Returns the connection. */
uint32_t peer_request(struct peer *peer);
uint32_t peer_establish(struct peer *peer);
void peer_check_state(const struct peer *peer, uint32_t established, uint32_t pending,
		      uint32_t timewait);
/* The only MAD sent is a REJ to this id, and this is its reason. */
uint32_t peer_rejected(const struct peer *peer, uint32_t id);

#endif
