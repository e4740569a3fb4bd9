/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that are refused: why, with which words, and that nothing is left of them. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "peer.h"
#include "wire/byteorder.h"

static struct peer peer;

/* The REQ, spoilt in one place, is refused for this reason, and no record stays. */
static void check_refused(uint32_t reason)
{
	end_forget(&peer.own);
	peer_send_req(&peer);
	cr_assert_eq(peer.own.event_count, 0);
	cr_assert_eq(peer_rejected(&peer, PEER_ID), reason, "reason %u instead of %u",
		     peer_rejected(&peer, PEER_ID), reason);
	cr_assert_eq(get_be32(peer.own.sent[0].mad + AT_LOCAL_ID), 0);
	cr_assert_eq(end_count(&peer.own), 0);
	end_make_req(&peer.other, &peer.own, &peer.req);
}

static void check_ari(const void *ari, uint32_t length)
{
	cr_assert_eq(peer.own.sent[0].mad[33], length << 1);
	cr_assert_arr_eq(peer.own.sent[0].mad + AT_ARI, ari, length);
}

/* B66 */
Test(cm_refuse, nobody_listens)
{
	struct cm_statistics s;

	peer_open(&peer, true);
	peer.req.service_id++;
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	peer.req.service_id = cm_service_id(CM_PS_UDP, END_PORT);
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	peer.req.service_id = cm_service_id(CM_PS_IB, END_PORT);
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	peer.req.service_id |= 1ull << 32;
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	cm_pause(peer.own.cm, peer.own.listener, true);
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	cm_pause(peer.own.cm, peer.own.listener, false);
	cm_unlisten(peer.own.cm, peer.own.listener);
	check_refused(CM_REJ_INVALID_SERVICE_ID);
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.no_listener, 6);
	peer_close(&peer);
}

/* B18, 5.4: Linux answers these with 28 out of its kernel. */
Test(cm_refuse, bad_cma_header)
{
	peer_open(&peer, true);
	peer.req.private_data[0] = 0x10;
	check_refused(CM_REJ_CONSUMER);
	peer.req.private_data[1] = 0x50;
	check_refused(CM_REJ_CONSUMER);
	peer.req.private_data[1] = 0;
	check_refused(CM_REJ_CONSUMER);
	peer.req.private_data[35]++;
	check_refused(CM_REJ_CONSUMER);
	peer_close(&peer);
}

Test(cm_refuse, transport_other_than_rc)
{
	peer_open(&peer, true);
	for (uint8_t transport = 1; transport <= 3; transport++) {
		peer.req.transport = transport;
		check_refused(CM_REJ_INVALID_TRANSPORT_TYPE);
	}
	peer_close(&peer);
}

/* CM-PASS-19: we would send data to the peer's own connection manager, or to a group. */
Test(cm_refuse, queue_pairs_that_cannot_be_connected)
{
	static const uint32_t numbers[] = { 0, 1, 0xffffff };

	peer_open(&peer, true);
	for (size_t i = 0; i < 3; i++) {
		peer.req.qpn = numbers[i];
		check_refused(CM_REJ_UNSUPPORTED);
	}
	peer_close(&peer);
}

Test(cm_refuse, path_mtu_that_does_not_fit)
{
	static const uint8_t wrong[] = { 0, 4, 5, 6, 15 };
	static const uint8_t best = 3; /* 1024 bytes */

	peer_open(&peer, true);
	for (size_t i = 0; i < sizeof(wrong); i++) {
		peer.req.path_mtu = wrong[i];
		check_refused(CM_REJ_INVALID_MTU);
		check_ari(&best, 1);
	}
	for (uint8_t fits = 1; fits <= best; fits++) {
		end_forget(&peer.own);
		peer.req.path_mtu = fits;
		peer.req.local_id++;
		peer.req.qpn++;
		peer_send_req(&peer);
		cr_assert_eq(end_last(&peer.own, CM_CONNECT_REQUEST)->parameters.path_mtu,
			     128u << fits);
	}
	peer_close(&peer);
}

/* Data must travel between the addresses that the REQ travelled between. */
Test(cm_refuse, addresses_other_than_the_packets)
{
	peer_open(&peer, true);
	peer.req.primary.remote_gid[15]++;
	check_refused(CM_REJ_INVALID_GID);
	check_ari(peer.own.gid, 16);
	peer.req.primary.local_gid[15]++;
	check_refused(CM_REJ_UNSUPPORTED);
	peer_close(&peer);
}

/* B74: limited membership is as good as full, another partition is not. */
Test(cm_refuse, partition_key)
{
	peer_open(&peer, true);
	peer.req.pkey = 0x8001;
	check_refused(CM_REJ_UNSUPPORTED);
	peer.req.pkey = 0;
	check_refused(CM_REJ_UNSUPPORTED);
	peer.req.pkey = 0x7fff;
	peer_request(&peer);
	peer_close(&peer);
}

static void send_req_from(uint8_t last, uint32_t id)
{
	struct end from = { .gid = {
				    [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = last } };
	uint8_t mad[256];

	end_make_req(&from, &peer.own, &peer.req);
	peer.req.local_id = id;
	peer.req.qpn = id & 0xffffff;
	cm_req_encode(&peer.req, PEER_TID, mad);
	end_receive(&peer.own, &from, mad);
}

/* B66: the backlog is bounded, for all and for each peer; a refusal makes room again. */
Test(cm_refuse, backlog_and_requests_per_peer)
{
	struct cm_statistics s;

	peer_open(&peer, false);
	for (uint32_t i = 1; i <= 1000; i++) {
		peer.own.sent_count = 0;
		send_req_from(50, 0x1000 + i);
	}
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 8, "one peer");
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_NO_RESOURCES);
	peer.own.sent_count = 0;
	for (uint32_t i = 1; i <= 100; i++)
		send_req_from((uint8_t)(100 + i), 0x3000 + i);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 16, "the backlog");
	peer_check_state(&peer, 0, 16, 0);
	cr_assert_eq(cm_reject(peer.own.cm, peer.own.event[0].connection, CM_REJ_CONSUMER, NULL, 0,
			       NULL, 0, peer.own.now),
		     0);
	send_req_from(50, 0x4000);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 17);
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.refused_backlog, 992 + 92);
	peer_close(&peer);
}

static uint32_t ask_and_take_back(uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		peer.own.sent_count = 0;
		peer.req.local_id++;
		peer.req.qpn++;
		peer_send_req(&peer);
		peer_send_rej(&peer, 0, CM_REJ_TIMEOUT);
	}
	return end_events(&peer.own, CM_CONNECT_REQUEST);
}

/* B66: what a peer takes back counts until the application, which may be slow, lets go of it. */
Test(cm_refuse, requests_taken_back_count_until_they_are_let_go)
{
	peer_open(&peer, false);
	cr_assert_eq(ask_and_take_back(200), 8, "one peer");
	cr_assert_eq(end_events(&peer.own, CM_REJECTED), 8);
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_NO_RESOURCES);
	cm_release(peer.own.cm, peer.own.event[0].connection, peer.own.now);
	cr_assert_eq(ask_and_take_back(200), 9);
	send_req_from(51, 0x2000);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 10, "another peer");
	cm_unlisten(peer.own.cm, peer.own.listener);
	cr_assert_eq(end_count(&peer.own), 0);
	peer_close(&peer);
}

/* The same when each new request ends the one before it, being of the same queue pair. */
Test(cm_refuse, requests_that_give_way_count_until_they_are_let_go)
{
	peer_open(&peer, false);
	for (uint32_t i = 0; i < 200; i++) {
		peer.own.sent_count = 0;
		peer.req.local_id++;
		peer_send_req(&peer);
	}
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 8);
	cr_assert_geq(end_events(&peer.own, CM_DISCONNECTED), 7);
	end_adopt(&peer.own);
	end_listen(&peer.own);
	cm_unlisten(peer.own.cm, peer.own.listener);
	cr_assert_eq(end_count(&peer.own), 0);
	peer_close(&peer);
}

/* A listener that accepts at once: who sends no RTU is bounded, and leaves room for others. */
Test(cm_refuse, accepted_requests_without_rtu_per_peer)
{
	struct cm_statistics s;

	peer_open(&peer, true);
	for (uint32_t i = 1; i <= 1000; i++) {
		peer.own.sent_count = 0;
		send_req_from(50, 0x1000 + i);
	}
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_NO_RESOURCES);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 8, "one peer");
	peer.own.sent_count = 0;
	send_req_from(51, 0x2000);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 1, "another peer");
	cm_data_seen(peer.own.cm, peer.own.event[0].connection, peer.own.now);
	send_req_from(50, 0x4000);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 2, "one of the eight is up");
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.refused_backlog, 992);
	peer_close(&peer);
}

/* The table is full of connections: REJ 3, and nobody else suffers. */
Test(cm_refuse, table_full)
{
	peer_open(&peer, true);
	for (uint32_t i = 1; i <= 100; i++)
		send_req_from((uint8_t)(50 + i), 0x1000 + i);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), END_RECORDS - 1);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 100 - (END_RECORDS - 1));
	peer_check_state(&peer, 0, END_RECORDS - 1, 0);
	for (uint32_t i = 1; i < END_RECORDS; i++)
		cm_release(peer.own.cm, i, peer.own.now);
	cr_assert(end_drain(&peer.own, 60 * END_S));
	cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), END_RECORDS - 1);
	peer_close(&peer);
}

/* In answer to the last REP. */
static void send_dreq_from(uint8_t last, uint32_t id)
{
	struct end from = { .gid = {
				    [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = last } };
	const uint8_t *rep = end_last_sent(&peer.own, CM_ATTR_REP);
	struct cm_dreq dreq = { .local_id = id,
				.remote_id = get_be32(rep + AT_LOCAL_ID),
				.remote_qpn = get_be24(rep + 24 + 12) };
	uint8_t mad[256];

	cm_dreq_encode(&dreq, PEER_TID, mad);
	end_receive(&peer.own, &from, mad);
}

/* Connections that come and go faster than timewait ends do not keep anybody out. */
Test(cm_refuse, table_full_of_the_past)
{
	uint32_t index;

	peer_open(&peer, true);
	for (uint32_t i = 1; i <= 10 * END_RECORDS; i++) {
		end_forget(&peer.own);
		send_req_from(50, 0x1000 + i);
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 1, "request %u", i);
		index = end_last(&peer.own, CM_CONNECT_REQUEST)->connection;
		cm_data_seen(peer.own.cm, index, peer.own.now);
		cm_release(peer.own.cm, index, peer.own.now);
		send_dreq_from(50, 0x1000 + i);
	}
	peer_check_state(&peer, 0, 0, END_RECORDS - 1);
	cr_assert(end_drain(&peer.own, 10 * END_S));
	peer_close(&peer);
}

/* B66, B67: the listener's process died while requests waited. */
Test(cm_refuse, listener_goes_away)
{
	struct cm_statistics s;

	peer_open(&peer, false);
	for (uint32_t i = 1; i <= 3; i++)
		send_req_from(50, 0x1000 + i);
	cm_unlisten(peer.own.cm, peer.own.listener);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 3);
	cr_assert_eq(get_be16(end_last_sent(&peer.own, CM_ATTR_REJ) + AT_REASON), CM_REJ_CONSUMER);
	cr_assert_eq(end_events(&peer.own, CM_DISCONNECTED), 3);
	cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 3);
	cr_assert_eq(end_count(&peer.own), 0);
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.pending, 0);
	end_listen(&peer.own);
	peer_close(&peer);
}

/* B78: wildcard, both families, and no port twice. */
Test(cm_refuse, listeners_share_no_port)
{
	static const uint8_t any[16], v6[16] = { 0xfd, [15] = 2 };
	uint32_t first, second;

	peer_open(&peer, true);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, any, END_PORT, 1, &first), -EADDRINUSE);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, v6, END_PORT, 1, &first), -EADDRINUSE);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_IB, any, END_PORT, 1, &first), 0);
	cr_assert_eq(cm_listen(peer.own.cm, (enum cm_port_space)0x13, any, 1, 1, &first),
		     -EOPNOTSUPP);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, v6, 2, 1, &first), 0);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, peer.own.gid, 2, 1, &second), 0);
	cr_assert_neq(first, second);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, any, 2, 1, &first), -EADDRINUSE);
	for (uint16_t port = 1000; port < 1100; port++)
		cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, any, port, 1, &first), 0);
	cm_unlisten(peer.own.cm, first);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_TCP, any, 1099, 1, &first), 0);
	/* Which of them a REQ reaches goes by the address of the packet. */
	peer.req.service_id = cm_service_id(CM_PS_TCP, 2);
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	peer_close(&peer);
}

/* PS_IB has no CMA header: all 92 bytes are the application's. */
Test(cm_refuse, native_service_gets_all_private_data)
{
	const struct end_event *event;
	static const uint8_t any[16];
	uint32_t listener;

	peer_open(&peer, true);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_IB, any, END_PORT, 9, &listener), 0);
	memset(peer.req.private_data, 0x77, sizeof(peer.req.private_data));
	peer.req.service_id = cm_service_id(CM_PS_IB, END_PORT);
	peer_send_req(&peer);
	event = end_last(&peer.own, CM_CONNECT_REQUEST);
	cr_assert_eq(event->cookie, 9);
	cr_assert_eq(event->parameters.private_length, 92);
	cr_assert_arr_eq(event->parameters.private_data, peer.req.private_data, 92);
	peer_close(&peer);
}

/* --- MADs that are no connection's ---------------------------------------------------- */

/* B77: UD service resolution is answered each time, and not with silence. */
Test(cm_refuse, sidr_is_not_supported)
{
	struct cm_sidr_req req = { .request_id = 0xabcd0123,
				   .service_id = cm_service_id(CM_PS_UDP, 7174) };
	uint8_t mad[256];

	peer_open(&peer, true);
	cm_sidr_req_encode(&req, 0x1234, mad);
	for (uint32_t i = 0; i < 3; i++)
		end_receive(&peer.own, &peer.other, mad);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_SIDR_REP), 3);
	for (uint32_t i = 0; i < 3; i++) {
		const uint8_t *m = peer.own.sent[i].mad;

		cr_assert_eq(get_be64(m + AT_TID), 0x1234);
		cr_assert_eq(get_be32(m + 24), 0xabcd0123);
		cr_assert_eq(m[28], 1);
		cr_assert_eq(get_be64(m + 24 + 12), req.service_id);
	}
	peer_close(&peer);
}

Test(cm_refuse, messages_of_unknown_connections_are_silent)
{
	struct cm_statistics s;
	uint8_t mad[256];

	peer_open(&peer, true);
	for (uint16_t attribute = CM_ATTR_MRA; attribute <= CM_ATTR_APR; attribute++) {
		cm_req_encode(&peer.req, 1, mad);
		put_be16(mad + AT_ATTRIBUTE, attribute);
		if (attribute != CM_ATTR_DREQ && attribute != CM_ATTR_SIDR_REQ)
			end_receive(&peer.own, &peer.other, mad);
	}
	cr_assert_eq(peer.own.sent_count, 0);
	cr_assert_eq(peer.own.event_count, 0);
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.unknown, 7);
	for (uint32_t i = 1; i <= 10; i++)
		cr_assert_eq(s.rx[i], i != 5 && i != 7);
	peer_close(&peer);
}

Test(cm_refuse, foreign_and_malformed_mads_are_counted)
{
	static const struct {
		uint8_t offset, value;
	} wrong[] = { { 0, 2 },    /* base version */
		      { 1, 3 },    /* class: subnet administration */
		      { 2, 1 },    /* class version */
		      { 3, 1 },    /* method Get */
		      { 3, 0x81 }, /* GetResp */
		      { 17, 0x1b }, { 16, 1 } };
	struct cm_statistics s;
	uint8_t mad[256];

	peer_open(&peer, true);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		cm_req_encode(&peer.req, 1, mad);
		mad[wrong[i].offset] = wrong[i].value;
		end_receive(&peer.own, &peer.other, mad);
	}
	peer.req.local_id = 0;
	peer_send_req(&peer);
	cr_assert_eq(peer.own.sent_count, 0);
	cr_assert_eq(peer.own.event_count, 0);
	cm_get_statistics(peer.own.cm, &s);
	cr_assert_eq(s.malformed, sizeof(wrong) / sizeof(wrong[0]) + 1);
	peer_close(&peer);
}

Test(cm_refuse, class_port_info)
{
	uint8_t mad[256] = { 1, 7, 2, 1, [15] = 9, [17] = 1 };

	peer_open(&peer, true);
	end_receive(&peer.own, &peer.other, mad);
	cr_assert_eq(peer.own.sent_count, 1);
	cr_assert_eq(peer.own.sent[0].mad[3], 0x81);
	cr_assert_eq(peer.own.sent[0].mad[15], 9);
	cr_assert_eq(peer.own.sent[0].mad[24], 1);
	cr_assert_eq(peer.own.sent[0].mad[25], 2);
	peer_close(&peer);
}

/* CM-PASS-16: alternate paths are loaded at no state, and nobody is told (as Linux on RoCE). */
/* A LAP is answered by APR "not supported" (IBTA 12.8.2), an APR by nothing. */
Test(cm_refuse, alternate_paths_are_not_loaded)
{
	uint8_t mad[256] = { 1, 7, 2, 3 };
	const uint8_t *apr;
	struct cm_statistics before, after;

	peer_open(&peer, true);
	peer_establish(&peer);
	put_be64(mad + AT_TID, 0x1122334455667788ull);
	put_be32(mad + AT_LOCAL_ID, PEER_ID);
	put_be32(mad + AT_REMOTE_ID, peer_id_of_cm(&peer, CM_ATTR_REP));
	end_forget(&peer.own);
	cm_get_statistics(peer.own.cm, &before);
	for (uint8_t attribute = 0x19; attribute <= 0x1a; attribute++) {
		mad[AT_ATTRIBUTE + 1] = attribute;
		end_receive(&peer.own, &peer.other, mad);
	}
	cm_get_statistics(peer.own.cm, &after);
	cr_assert_eq(peer.own.sent_count, 1);
	apr = end_last_sent(&peer.own, CM_ATTR_APR);
	cr_assert_eq(get_be64(apr + AT_TID), 0x1122334455667788ull);
	cr_assert_eq(get_be32(apr + AT_LOCAL_ID), get_be32(mad + AT_REMOTE_ID));
	cr_assert_eq(get_be32(apr + AT_REMOTE_ID), PEER_ID);
	cr_assert_eq(get_be16(apr + 32), 2, "no further information, status 2");
	cr_assert_eq(peer.own.event_count, 0);
	cr_assert_eq(after.malformed, before.malformed);
	cr_assert_eq(after.rx[0x19 - 0x10], before.rx[0x19 - 0x10] + 1);
	peer_check_state(&peer, 1, 0, 0);
	peer_close(&peer);
}
