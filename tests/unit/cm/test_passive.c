/* SPDX-License-Identifier: BSD-3-Clause */
/* The passive side, message by message, with a peer made of raw MADs. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "peer.h"
#include "wire/byteorder.h"

static struct peer peer;

/* --- REP ------------------------------------------------------------------------------ */

Test(cm_passive, rep_fields_at_their_places)
{
	struct cm_parameters reply = end_parameters(0xfedcba);
	const uint8_t *m;
	uint32_t connection;

	peer_open(&peer, false);
	connection = peer_request(&peer);
	cr_assert_eq(end_last(&peer.own, CM_CONNECT_REQUEST)->cookie, END_COOKIE);
	reply.srq = 1;
	cr_assert_eq(cm_accept(peer.own.cm, connection, 77, &reply, peer.own.now), 0);
	m = end_last_sent(&peer.own, CM_ATTR_REP);
	cr_assert_arr_eq(m, ((uint8_t[8]){ 1, 7, 2, 3, 0, 0, 0, 0 }), 8);
	cr_assert_eq(get_be64(m + AT_TID), PEER_TID);
	cr_assert_eq(get_be32(m + 20), 0);
	m += 24;
	cr_assert_neq(get_be32(m), 0);
	cr_assert_eq(get_be32(m + 4), PEER_ID);
	cr_assert_eq(get_be32(m + 8), 0);
	cr_assert_eq(get_be24(m + 12), 0xfedcba);
	cr_assert_eq(get_be24(m + 20), reply.starting_psn);
	cr_assert_eq(m[24], reply.responder_resources);
	cr_assert_eq(m[25], reply.initiator_depth);
	cr_assert_eq(m[26], 5 << 3, "target ACK delay, failover 0, flow control 0");
	cr_assert_eq(m[27], 7 << 5 | 0x10, "RNR retry count, SRQ");
	cr_assert_arr_eq(m + 28, peer.own.config.ca_guid, 8);
	cr_assert_str_eq((const char *)m + 36, "ORX1");
	peer_send_rtu(&peer);
	cr_assert_eq(end_last(&peer.own, CM_ESTABLISHED)->cookie, 77);
	peer_close(&peer);
}

/* B75: too much is refused here, not cut on the way. */
Test(cm_passive, private_data_limits)
{
	struct cm_parameters reply = end_parameters(1);
	uint8_t data[256] = { 0 };
	uint32_t connection;

	peer_open(&peer, false);
	connection = peer_request(&peer);
	reply.private_length = 197;
	cr_assert_eq(cm_accept(peer.own.cm, connection, 1, &reply, peer.own.now), -EMSGSIZE);
	cr_assert_eq(cm_reject(peer.own.cm, connection, 28, NULL, 0, data, 149, peer.own.now),
		     -EMSGSIZE);
	cr_assert_eq(cm_reject(peer.own.cm, connection, 28, data, 73, NULL, 0, peer.own.now),
		     -EMSGSIZE);
	cr_assert_eq(peer.own.sent_count, 0);
	reply.private_length = 196;
	reply.private_data[195] = 0x5a;
	cr_assert_eq(cm_accept(peer.own.cm, connection, 1, &reply, peer.own.now), 0);
	cr_assert_eq(end_last_sent(&peer.own, CM_ATTR_REP)[255], 0x5a);
	peer_close(&peer);
}

Test(cm_passive, reject_carries_ari_and_148_bytes)
{
	uint8_t data[148], ari[72];
	const uint8_t *mad;
	uint32_t connection;

	memset(data, 0xda, sizeof(data));
	memset(ari, 0xa1, sizeof(ari));
	peer_open(&peer, false);
	connection = peer_request(&peer);
	cr_assert_eq(cm_reject(peer.own.cm, connection, CM_REJ_CONSUMER, ari, 72, data, 148,
			       peer.own.now),
		     0);
	cr_assert_eq(peer_rejected(&peer, PEER_ID), CM_REJ_CONSUMER);
	mad = peer.own.sent[0].mad;
	cr_assert_eq(mad[33], 72 << 1);
	cr_assert_arr_eq(mad + AT_ARI, ari, 72);
	cr_assert_arr_eq(mad + 108, data, 148);
	cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 1);
	cr_assert_eq(end_count(&peer.own), 0);
	cr_assert_eq(cm_reject(peer.own.cm, connection, 28, NULL, 0, NULL, 0, peer.own.now),
		     -ENOTCONN);
	peer_close(&peer);
}

/* --- duplicates and stale connections ------------------------------------------------- */

/* B62: the same REQ within a millisecond is absorbed. */
Test(cm_passive, duplicate_req_before_the_answer)
{
	peer_open(&peer, false);
	for (int i = 0; i < 3; i++) {
		peer_send_req(&peer);
		peer.own.now += END_MS / 3;
	}
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(peer.own.sent_count, 0);
	peer_check_state(&peer, 0, 1, 0);
	peer_close(&peer);
}

/* B67: later it means that the peer waits: MRA. */
Test(cm_passive, duplicate_req_of_a_slow_application_gets_mra)
{
	const uint8_t *mad;

	peer_open(&peer, false);
	peer_send_req(&peer);
	peer.own.now += 5 * END_S;
	for (int i = 0; i < 3; i++)
		peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_MRA), 3);
	mad = end_last_sent(&peer.own, CM_ATTR_MRA);
	cr_assert_eq(get_be32(mad + AT_REMOTE_ID), PEER_ID);
	cr_assert_eq(mad[32], CM_SUBJECT_REQ << 6);
	cr_assert_eq(mad[33] >> 3, 24);
	peer_close(&peer);
}

/* B62, B63: after the REP the same REP again; when established, silence. */
Test(cm_passive, duplicate_req_after_the_answer)
{
	uint8_t first[256];

	peer_open(&peer, true);
	peer_send_req(&peer);
	memcpy(first, end_last_sent(&peer.own, CM_ATTR_REP), 256);
	for (uint32_t i = 2; i <= 4; i++) {
		peer_send_req(&peer);
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), i);
		cr_assert_arr_eq(end_last_sent(&peer.own, CM_ATTR_REP), first, 256);
	}
	peer_send_rtu(&peer);
	peer_send_req(&peer);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 4);
	peer_check_state(&peer, 1, 0, 0);
	peer_close(&peer);
}

/* B62: id and GUID are those of a connection that lives: whatever else differs, it is that one. */
Test(cm_passive, changed_req_begins_and_changes_nothing)
{
	const uint32_t qpn = PEER_QPN;
	uint8_t mad[256];

	peer_open(&peer, true);
	for (int established = 0; established <= 1; established++) {
		peer_send_req(&peer);
		if (established)
			peer_send_rtu(&peer);
		peer.req.qpn = qpn + 1;
		peer.req.starting_psn++;
		peer.req.service_id++;
		peer.req.path_mtu = 1;
		cm_req_encode(&peer.req, PEER_TID + 7, mad);
		end_receive(&peer.own, &peer.other, mad);
		cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 0);
		peer_check_state(&peer, established != 0, established == 0, 0);
		peer.req.qpn = qpn;
	}
	cr_assert_eq(cm_disconnect(peer.own.cm, end_last(&peer.own, CM_CONNECT_REQUEST)->connection,
				   peer.own.now),
		     0);
	cr_assert_eq(get_be24(end_last_sent(&peer.own, CM_ATTR_DREQ) + 32), qpn);
	peer_close(&peer);
}

/* B62: neither the QPN alone nor the address alone makes a connection stale. */
Test(cm_passive, other_address_or_other_qpn_is_a_new_connection)
{
	struct end third;
	uint8_t mad[256];

	peer_open(&peer, true);
	end_open(&third, 3);
	peer_establish(&peer);
	memcpy(peer.req.primary.local_gid, third.gid, 16);
	cm_req_encode(&peer.req, PEER_TID, mad);
	end_receive(&peer.own, &third, mad);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 2);
	memcpy(peer.req.primary.local_gid, peer.other.gid, 16);
	peer.req.local_id++;
	peer.req.qpn++;
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 3);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 0);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 0);
	peer_check_state(&peer, 1, 2, 0);
	end_close(&third);
	peer_close(&peer);
}

/* The peer was restarted: its queue pair number comes again under a new id. */
Test(cm_passive, stale_connection_is_refused_and_torn_down)
{
	uint32_t connection;

	peer_open(&peer, true);
	connection = peer_establish(&peer);
	end_forget(&peer.own);
	peer.req.local_id++;
	peer_send_req(&peer);
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_STALE_CONNECTION);
	cr_assert_eq(get_be32(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REMOTE_ID), PEER_ID + 1);
	cr_assert_eq(get_be32(end_last_sent(&peer.own, CM_ATTR_DREQ) + AT_REMOTE_ID), PEER_ID);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	cr_assert_eq(end_last(&peer.own, CM_DISCONNECTED)->connection, connection);
	cr_assert_eq(cm_disconnect(peer.own.cm, connection, peer.own.now), -ENOTCONN);
	/* Refused only once: the next attempt has the way free. */
	peer.req.local_id++;
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	peer_send_rtu(&peer);
	cm_release(peer.own.cm, end_last(&peer.own, CM_CONNECT_REQUEST)->connection, peer.own.now);
	cr_assert(end_drain(&peer.own, 60 * END_S));
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECT_DONE), 0);
	peer_close(&peer);
}

/* --- established ---------------------------------------------------------------------- */

/* B64: data stands in for the RTU; the late RTU is harmless. */
Test(cm_passive, data_instead_of_rtu)
{
	uint32_t connection;

	peer_open(&peer, true);
	connection = peer_request(&peer);
	cm_data_seen(peer.own.cm, connection, peer.own.now);
	cm_data_seen(peer.own.cm, connection, peer.own.now);
	for (int i = 0; i < 3; i++)
		peer_send_rtu(&peer);
	cr_assert_eq(end_events(&peer.own, CM_ESTABLISHED), 1);
	peer_check_state(&peer, 1, 0, 0);
	peer_close(&peer);
}

/* A message has to come from the connection's peer, with both its ids. */
Test(cm_passive, rtu_of_somebody_else)
{
	struct cm_rtu rtu = { .local_id = PEER_ID };
	struct end third;
	uint8_t mad[256];

	peer_open(&peer, true);
	end_open(&third, 3);
	peer_request(&peer);
	rtu.remote_id = peer_id_of_cm(&peer, CM_ATTR_REP);
	cm_rtu_encode(&rtu, PEER_TID, mad);
	end_receive(&peer.own, &third, mad);
	rtu.local_id++;
	cm_rtu_encode(&rtu, PEER_TID, mad);
	end_receive(&peer.own, &peer.other, mad);
	cr_assert_eq(end_events(&peer.own, CM_ESTABLISHED), 0);
	peer_check_state(&peer, 0, 1, 0);
	end_close(&third);
	peer_close(&peer);
}

/* REP again, as often as the REQ's max CM retries say; then the peer is unreachable. */
Test(cm_passive, rep_without_answer)
{
	static const uint8_t retries[] = { 0, 1, 15 };

	for (size_t i = 0; i < sizeof(retries); i++) {
		const uint8_t *mad;

		peer_open(&peer, true);
		peer.req.max_cm_retries = retries[i];
		peer_request(&peer);
		cr_assert(end_drain(&peer.own, 200 * END_S));
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), retries[i] + 1u);
		cr_assert_eq(end_events(&peer.own, CM_UNREACHABLE), 1);
		cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 1);
		mad = end_last_sent(&peer.own, CM_ATTR_REJ);
		cr_assert_eq(get_be16(mad + AT_REASON), CM_REJ_TIMEOUT);
		cr_assert_eq(mad[32] >> 6, CM_SUBJECT_REP);
		cr_assert_eq(mad[33], 8 << 1);
		cr_assert_arr_eq(mad + AT_ARI, peer.own.config.ca_guid, 8);
		peer_close(&peer);
	}
}

/* MRA: no REP for the service timeout, here 2^22 x 4.096 us = 17.2 s. */
Test(cm_passive, mra_of_the_peer_gives_it_time)
{
	struct cm_mra mra = { .local_id = PEER_ID,
			      .subject = CM_SUBJECT_REP,
			      .service_timeout = 22 };
	uint8_t mad[256];
	uint64_t start;

	peer_open(&peer, true);
	peer_request(&peer);
	mra.remote_id = peer_id_of_cm(&peer, CM_ATTR_REP);
	cm_mra_encode(&mra, PEER_TID, mad);
	end_receive(&peer.own, &peer.other, mad);
	start = peer.own.now;
	while (end_sent(&peer.own, CM_ATTR_REP) == 1)
		peer.own.now = cm_poll(peer.own.cm, peer.own.now);
	cr_assert_geq(peer.own.now - start, 17 * END_S);
	cr_assert_leq(peer.own.now - start, 20 * END_S);
	peer_close(&peer);
}

/* Codes that would mean hours or microseconds are kept within bounds. */
Test(cm_passive, hostile_time_codes)
{
	static const uint8_t codes[] = { 0, 31 };

	for (size_t i = 0; i < sizeof(codes); i++) {
		struct cm_mra mra = { .local_id = PEER_ID,
				      .subject = CM_SUBJECT_REP,
				      .service_timeout = codes[i] };
		uint8_t mad[256];

		peer_open(&peer, true);
		peer.req.local_response_timeout = codes[i];
		peer.req.primary.ack_timeout = codes[i];
		peer_request(&peer);
		mra.remote_id = peer_id_of_cm(&peer, CM_ATTR_REP);
		cm_mra_encode(&mra, PEER_TID, mad);
		end_receive(&peer.own, &peer.other, mad);
		cr_assert(end_drain(&peer.own, 300 * END_S));
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 16);
		peer_close(&peer);
	}
}

/* --- REJ of the peer ------------------------------------------------------------------ */

/* B65: with our id, and with 0 from a peer that never saw our REP. */
Test(cm_passive, rej_in_rep_sent_frees_the_connection)
{
	for (int known = 0; known <= 1; known++) {
		const struct end_event *event;

		peer_open(&peer, true);
		peer_request(&peer);
		peer_send_rej(&peer, known ? peer_id_of_cm(&peer, CM_ATTR_REP) : 0, CM_REJ_TIMEOUT);
		event = end_last(&peer.own, CM_REJECTED);
		cr_assert_eq(event->reason, CM_REJ_TIMEOUT);
		cr_assert_eq(event->parameters.private_length, 148);
		cr_assert_str_eq((const char *)event->parameters.private_data, "why");
		peer_check_state(&peer, 0, 0, 1);
		for (int i = 0; i < 3; i++)
			peer_send_rej(&peer, 0, CM_REJ_TIMEOUT);
		cr_assert_eq(end_events(&peer.own, CM_REJECTED), 1);
		cr_assert(end_drain(&peer.own, 10 * END_S));
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 1);
		peer_close(&peer);
	}
}

/* B76: the peer gives up while the application still thinks. */
Test(cm_passive, rej_before_the_answer)
{
	struct cm_parameters reply = end_parameters(1);
	uint32_t connection;

	peer_open(&peer, false);
	connection = peer_request(&peer);
	peer_send_rej(&peer, 0, CM_REJ_TIMEOUT);
	cr_assert_eq(end_events(&peer.own, CM_REJECTED), 1);
	cr_assert_eq(cm_accept(peer.own.cm, connection, 1, &reply, peer.own.now), -ENOTCONN);
	cr_assert_eq(cm_reject(peer.own.cm, connection, 28, NULL, 0, NULL, 0, peer.own.now),
		     -ENOTCONN);
	cm_release(peer.own.cm, connection, peer.own.now);
	cr_assert_eq(end_count(&peer.own), 0);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 0);
	/* The same client comes again. */
	peer.req.local_id++;
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 2);
	peer_close(&peer);
}

/*
 * A peer may come round to an id that rests in timewait here: that is a new connection, and a
 * refusal by this id means it, whichever of the two is found first.
 */
Test(cm_passive, id_used_again_by_the_peer)
{
	for (int adopted = 0; adopted <= 1; adopted++) {
		uint8_t mad[256];

		peer_open(&peer, true);
		if (adopted) {
			/* Record 1 is used and free again, so that the newer one gets it. */
			peer_request(&peer);
			peer_send_rej(&peer, 0, CM_REJ_TIMEOUT);
			cr_assert(end_drain(&peer.own, 10 * END_S));
			end_forget(&peer.own);
		}
		peer_establish(&peer);
		peer_send_dreq(&peer, 1);
		if (adopted) {
			end_adopt(&peer.own);
			end_listen(&peer.own);
		}
		peer.req.qpn++;
		cm_req_encode(&peer.req, PEER_TID + 1, mad);
		end_receive(&peer.own, &peer.other, mad);
		cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 2);
		peer_check_state(&peer, 0, 1, 1);
		if (adopted)
			end_adopt(&peer.own);
		peer_send_rej(&peer, 0, CM_REJ_TIMEOUT);
		cr_assert_eq(end_last(&peer.own, CM_REJECTED)->connection,
			     end_last(&peer.own, CM_CONNECT_REQUEST)->connection);
		peer_check_state(&peer, 0, 0, 2);
		/* Now that it is over, its own REQ once more is a duplicate; nothing begins. */
		end_receive(&peer.own, &peer.other, mad);
		peer_check_state(&peer, 0, 0, 2);
		cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
			     CM_REJ_STALE_CONNECTION);
		peer_close(&peer);
	}
}

/* A peer that has one id for all its connections is not remembered without end. */
Test(cm_passive, connections_of_one_id_are_forgotten_but_for_the_last)
{
	struct cm_statistics s;
	uint8_t mad[256];

	peer_open(&peer, true);
	for (uint32_t i = 0; i < 40; i++) {
		end_forget(&peer.own);
		peer.req.qpn++;
		cm_req_encode(&peer.req, PEER_TID + i, mad);
		end_receive(&peer.own, &peer.other, mad);
		peer_send_rtu(&peer);
		peer_send_dreq(&peer, i);
		cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	}
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_leq(s.timewait, 9);
	/* What is remembered is the newest. */
	end_forget(&peer.own);
	end_receive(&peer.own, &peer.other, mad);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 0);
	peer_close(&peer);
}

Test(cm_passive, rej_when_established_disconnects)
{
	peer_open(&peer, true);
	peer_establish(&peer);
	peer_send_rej(&peer, peer_id_of_cm(&peer, CM_ATTR_REP), CM_REJ_CONSUMER);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	cr_assert_eq(end_last(&peer.own, CM_DISCONNECTED)->reason, CM_REJ_CONSUMER);
	cr_assert(end_drain(&peer.own, 10 * END_S));
	peer_close(&peer);
}

/* --- DREQ ----------------------------------------------------------------------------- */

/* B63, B68: DREP each time, in timewait and after it; the application hears of it once. */
Test(cm_passive, dreq_is_always_answered)
{
	const uint8_t *mad;
	uint32_t own_id;

	peer_open(&peer, true);
	peer_establish(&peer);
	own_id = peer_id_of_cm(&peer, CM_ATTR_REP);
	for (uint32_t i = 1; i <= 3; i++) {
		peer_send_dreq(&peer, 0x900 + i);
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREP), i);
		mad = end_last_sent(&peer.own, CM_ATTR_DREP);
		cr_assert_eq(get_be64(mad + AT_TID), 0x900 + i, "TID of the DREQ");
		cr_assert_eq(get_be32(mad + AT_LOCAL_ID), own_id);
		cr_assert_eq(get_be32(mad + AT_REMOTE_ID), PEER_ID);
	}
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	peer_check_state(&peer, 0, 0, 1);
	cr_assert(end_drain(&peer.own, 10 * END_S));
	peer_send_dreq(&peer, 0x9ff);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREP), 4);
	mad = end_last_sent(&peer.own, CM_ATTR_DREP);
	cr_assert_eq(get_be32(mad + AT_LOCAL_ID), own_id);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	peer_close(&peer);
}

Test(cm_passive, dreq_with_a_wrong_qpn_is_ignored)
{
	struct cm_dreq dreq = { .local_id = PEER_ID, .remote_qpn = 0xbad };
	uint8_t mad[256];

	peer_open(&peer, true);
	peer_establish(&peer);
	dreq.remote_id = peer_id_of_cm(&peer, CM_ATTR_REP);
	cm_dreq_encode(&dreq, 1, mad);
	end_receive(&peer.own, &peer.other, mad);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREP), 0);
	peer_check_state(&peer, 1, 0, 0);
	peer_close(&peer);
}

/* B76: DREQ before the RTU ends it as well. */
Test(cm_passive, dreq_before_rtu)
{
	peer_open(&peer, true);
	peer_request(&peer);
	peer_send_dreq(&peer, 1);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREP), 1);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 1);
	peer_send_rtu(&peer);
	cr_assert_eq(end_events(&peer.own, CM_ESTABLISHED), 0);
	peer_close(&peer);
}

/* B68: nobody answers our DREQ. */
Test(cm_passive, dreq_without_answer_is_given_up)
{
	uint32_t connection;
	const uint8_t *mad;

	peer_open(&peer, true);
	connection = peer_establish(&peer);
	cr_assert_eq(cm_disconnect(peer.own.cm, connection, peer.own.now), 0);
	cr_assert_eq(cm_disconnect(peer.own.cm, connection, peer.own.now), -ENOTCONN);
	mad = end_last_sent(&peer.own, CM_ATTR_DREQ);
	cr_assert_eq(get_be32(mad + AT_LOCAL_ID), peer_id_of_cm(&peer, CM_ATTR_REP));
	cr_assert_eq(get_be32(mad + AT_REMOTE_ID), PEER_ID);
	cr_assert_eq(get_be24(mad + 32), PEER_QPN);
	cr_assert(end_drain(&peer.own, 60 * END_S));
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREQ), 7);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECT_DONE), 1);
	cr_assert_eq(end_last(&peer.own, CM_DISCONNECT_DONE)->reason, 1);
	cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 1);
	peer_close(&peer);
}

/* Timewait lasts as long as the ACK timeout says, and the ids stay known for so long. */
Test(cm_passive, timewait_period)
{
	uint64_t start;

	peer_open(&peer, true);
	peer_establish(&peer);
	peer_send_dreq(&peer, 1);
	start = peer.own.now;
	/* A REQ out of the past is no new connection. */
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_STALE_CONNECTION);
	/* The peer's QPN under a new id is one: it may have waited less than we do. */
	peer.req.local_id++;
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 2);
	while (!end_events(&peer.own, CM_TIMEWAIT_OVER))
		peer.own.now = cm_poll(peer.own.cm, peer.own.now);
	cr_assert_geq(peer.own.now - start, 2147 * END_MS);
	cr_assert_leq(peer.own.now - start, 2400 * END_MS);
	peer_close(&peer);
}

/* --- release -------------------------------------------------------------------------- */

Test(cm_passive, release_in_every_state)
{
	for (int state = 0; state < 5; state++) {
		uint32_t connection, told;

		peer_open(&peer, state > 0);
		connection = peer_request(&peer);
		if (state > 1)
			peer_send_rtu(&peer);
		if (state == 3)
			cm_disconnect(peer.own.cm, connection, peer.own.now);
		if (state == 4)
			peer_send_dreq(&peer, 1);
		told = peer.own.event_count;
		cm_release(peer.own.cm, connection, peer.own.now);
		if (state < 2)
			cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 1);
		if (state == 1)
			cr_assert_eq(end_last_sent(&peer.own, CM_ATTR_REJ)[32] >> 6,
				     CM_SUBJECT_OTHER);
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_DREQ), state == 2 || state == 3);
		cr_assert(end_drain(&peer.own, 60 * END_S), "state %d", state);
		cr_assert_eq(peer.own.event_count, told + 1, "only TIMEWAIT_OVER is told");
		cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 1);
		cm_release(peer.own.cm, connection, peer.own.now); /* once too often */
		peer_close(&peer);
	}
}

Test(cm_passive, nonsense_from_the_owner)
{
	static const uint32_t wrong[] = { 0, 5, END_RECORDS, 0xffffffff };
	struct cm_parameters p = end_parameters(1);

	peer_open(&peer, true);
	for (size_t i = 0; i < 4; i++) {
		uint64_t now = peer.own.now;
		struct cm *cm = peer.own.cm;

		cr_assert_eq(cm_accept(cm, wrong[i], 1, &p, now), -ENOTCONN);
		cr_assert_eq(cm_reject(cm, wrong[i], 28, NULL, 0, NULL, 0, now), -ENOTCONN);
		cr_assert_eq(cm_ready(cm, wrong[i], NULL, 0, now), -ENOTCONN);
		cr_assert_eq(cm_disconnect(cm, wrong[i], now), -ENOTCONN);
		cm_data_seen(cm, wrong[i], now);
		cm_release(cm, wrong[i], now);
		cm_pause(cm, wrong[i], true);
		cm_unlisten(cm, wrong[i]);
	}
	peer_establish(&peer);
	cr_assert_eq(cm_ready(peer.own.cm, 1, NULL, 0, peer.own.now), -ENOTCONN);
	cr_assert_eq(cm_reject(peer.own.cm, 1, 28, NULL, 0, NULL, 0, peer.own.now), -ENOTCONN);
	peer_close(&peer);
}

/* CM-PASS-16: there are none on RoCE, and the peer is told, but only if it asked. */
Test(cm_passive, alternate_path_is_not_supported)
{
	for (int i = 0; i < 3; i++) {
		peer_open(&peer, true);
		if (i == 1)
			peer.req.alternate.local_lid = 5;
		if (i == 2)
			memset(peer.req.alternate.local_gid, 0xfe, 16);
		peer_request(&peer);
		cr_assert_eq(end_last_sent(&peer.own, CM_ATTR_REP)[24 + 26] >> 1 & 3, i ? 1 : 0);
		peer_close(&peer);
	}
}
