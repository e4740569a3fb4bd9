/* SPDX-License-Identifier: BSD-3-Clause */
/* Hand-made MADs of a peer. */
#include "peer.h"

#include <criterion/criterion.h>

#include "wire/byteorder.h"

void peer_open(struct peer *peer, bool accepts)
{
	end_open(&peer->own, 2);
	end_open(&peer->other, 1);
	peer->own.accepts = accepts;
	end_listen(&peer->own);
	end_make_req(&peer->other, &peer->own, &peer->req);
}

void peer_close(struct peer *peer)
{
	end_close(&peer->own);
	end_close(&peer->other);
}

void peer_send_req(struct peer *peer)
{
	uint8_t mad[256];

	cm_req_encode(&peer->req, PEER_TID, mad);
	end_receive(&peer->own, &peer->other, mad);
}

uint32_t peer_id_of_cm(const struct peer *peer, enum cm_attribute attribute)
{
	return get_be32(end_last_sent(&peer->own, attribute) + AT_LOCAL_ID);
}

void peer_send_rtu(struct peer *peer)
{
	struct cm_rtu rtu = { .local_id = peer->req.local_id,
			      .remote_id = peer_id_of_cm(peer, CM_ATTR_REP) };
	uint8_t mad[256];

	cm_rtu_encode(&rtu, PEER_TID, mad);
	end_receive(&peer->own, &peer->other, mad);
}

void peer_send_dreq(struct peer *peer, uint64_t tid)
{
	const uint8_t *rep = end_last_sent(&peer->own, CM_ATTR_REP);
	struct cm_dreq dreq = { .local_id = peer->req.local_id,
				.remote_id = get_be32(rep + AT_LOCAL_ID),
				.remote_qpn = get_be24(rep + 24 + 12) };
	uint8_t mad[256];

	cm_dreq_encode(&dreq, tid, mad);
	end_receive(&peer->own, &peer->other, mad);
}

void peer_send_rej(struct peer *peer, uint32_t remote_id, uint32_t reason)
{
	struct cm_rej rej = { .local_id = peer->req.local_id,
			      .remote_id = remote_id,
			      .subject = CM_SUBJECT_OTHER,
			      .reason = (uint16_t)reason,
			      .private_data = "why" };
	uint8_t mad[256];

	cm_rej_encode(&rej, PEER_TID, mad);
	end_receive(&peer->own, &peer->other, mad);
}

uint32_t peer_request(struct peer *peer)
{
	peer_send_req(peer);
	return end_last(&peer->own, CM_CONNECT_REQUEST)->connection;
}

uint32_t peer_establish(struct peer *peer)
{
	uint32_t connection = peer_request(peer);

	peer_send_rtu(peer);
	cr_assert_eq(end_events(&peer->own, CM_ESTABLISHED), 1);
	return connection;
}

void peer_check_state(const struct peer *peer, uint32_t established, uint32_t pending,
		      uint32_t timewait)
{
	struct cm_statistics s;

	cm_get_statistics(peer->own.cm, &s);
	cr_assert_eq(s.established, established, "%u established", s.established);
	cr_assert_eq(s.pending, pending, "%u pending", s.pending);
	cr_assert_eq(s.timewait, timewait, "%u in timewait", s.timewait);
}

uint32_t peer_rejected(const struct peer *peer, uint32_t id)
{
	const uint8_t *mad = end_last_sent(&peer->own, CM_ATTR_REJ);

	cr_assert_eq(peer->own.sent_count, 1);
	cr_assert_eq(get_be32(mad + AT_REMOTE_ID), id);
	cr_assert_eq(get_be64(mad + AT_TID), PEER_TID);
	cr_assert_eq(mad[32] >> 6, CM_SUBJECT_REQ);
	return get_be16(mad + AT_REASON);
}
