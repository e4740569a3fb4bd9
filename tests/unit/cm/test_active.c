/* SPDX-License-Identifier: BSD-3-Clause */
/* The active side, message by message, with a peer made of raw MADs. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "peer.h"
#include "wire/byteorder.h"

#define SERVER_ID  0x0badcafeu
#define SERVER_QPN 0x00beefu

static struct end own, server;
static uint32_t connection;
static struct cm_rep rep;

static struct cm_address to_server(void)
{
	struct cm_address address = { 0 };

	memcpy(address.local_gid, own.gid, 16);
	memcpy(address.remote_gid, server.gid, 16);
	return address;
}

static void open_and_connect(void)
{
	struct cm_parameters parameters = end_parameters(END_QPN);
	struct cm_address address;

	end_open(&own, 1);
	end_open(&server, 2);
	address = to_server();
	cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 42, &connection, own.now),
		     0);
	rep = (struct cm_rep){ .local_id = SERVER_ID,
			       .remote_id = get_be32(own.sent[0].mad + AT_LOCAL_ID),
			       .qpn = SERVER_QPN,
			       .starting_psn = 7,
			       .rnr_retry_count = 7,
			       .ca_guid = 99 };
}

static void close_both(void)
{
	end_close(&own);
	end_close(&server);
}

static void send_rep_from(const struct end *from)
{
	uint8_t mad[256];

	cm_rep_encode(&rep, get_be64(own.sent[0].mad + AT_TID), mad);
	end_receive(&own, from, mad);
}

static void send_rej(uint32_t local_id, uint32_t remote_id, uint32_t reason)
{
	struct cm_rej rej = { .local_id = local_id, .remote_id = remote_id, .reason = reason };
	uint8_t mad[256];

	cm_rej_encode(&rej, 1, mad);
	end_receive(&own, &server, mad);
}

static void establish(void)
{
	send_rep_from(&server);
	cr_assert_eq(cm_ready(own.cm, connection, NULL, 0, own.now), 0);
}

/* --- REQ ------------------------------------------------------------------------------ */

Test(cm_active, limits_of_connect)
{
	struct cm_parameters parameters = end_parameters(1);
	struct cm_address address;
	uint64_t ids[END_RECORDS];
	uint32_t c;

	open_and_connect();
	address = to_server();
	parameters.private_length = 57;
	cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 1, &c, own.now),
		     -EMSGSIZE);
	parameters.private_length = 92;
	cr_assert_eq(
		cm_connect(own.cm, (enum cm_port_space)0x13, &address, &parameters, 1, &c, own.now),
		-EOPNOTSUPP);
	cr_assert_eq(cm_connect(own.cm, CM_PS_IB, &address, &parameters, 1, &c, own.now), 0);
	parameters.private_length = 56;
	for (uint32_t i = 3; i < END_RECORDS; i++)
		cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 1, &c, own.now),
			     0);
	cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 1, &c, own.now), -ENOSPC);
	for (uint32_t i = 0; i < own.sent_count; i++) {
		ids[i] = get_be64(own.sent[i].mad + AT_TID);
		for (uint32_t k = 0; k < i; k++)
			cr_assert_neq(ids[i], ids[k]);
	}
	close_both();
}

static void refuse_mtu(uint8_t offered, uint8_t length)
{
	struct cm_rej rej = { .remote_id = rep.remote_id,
			      .reason = CM_REJ_INVALID_MTU,
			      .ari = { offered },
			      .ari_length = length };
	uint8_t mad[256];

	cm_rej_encode(&rej, get_be64(end_last_sent(&own, CM_ATTR_REQ) + AT_TID), mad);
	end_receive(&own, &server, mad);
}

/* B89 */
Test(cm_active, asks_again_with_the_path_mtu_that_a_refusal_offers)
{
	uint64_t tid;

	open_and_connect();
	tid = get_be64(own.sent[0].mad + AT_TID);
	refuse_mtu(2, 1);
	cr_assert_eq(end_sent(&own, CM_ATTR_REQ), 2);
	cr_assert_eq(end_last_sent(&own, CM_ATTR_REQ)[24 + 50] >> 4, 2);
	cr_assert_neq(get_be64(end_last_sent(&own, CM_ATTR_REQ) + AT_TID), tid);
	cr_assert_eq(own.event_count, 0);
	cm_rep_encode(&rep, get_be64(end_last_sent(&own, CM_ATTR_REQ) + AT_TID), own.sent[0].mad);
	end_receive(&own, &server, own.sent[0].mad);
	cr_assert_eq(end_last(&own, CM_CONNECT_REPLY)->parameters.path_mtu, 512);
	close_both();
}

/* A peer that offers what it refused, more, nothing or nonsense has refused. */
Test(cm_active, other_offers_of_a_path_mtu_are_refusals)
{
	static const uint8_t offers[][2] = { { 3, 1 }, { 4, 1 }, { 0, 1 }, { 255, 1 }, { 1, 0 } };

	for (size_t i = 0; i < sizeof(offers) / sizeof(offers[0]); i++) {
		open_and_connect();
		refuse_mtu(offers[i][0], offers[i][1]);
		cr_assert_eq(end_sent(&own, CM_ATTR_REQ), 1);
		cr_assert_eq(end_last(&own, CM_REJECTED)->reason, CM_REJ_INVALID_MTU);
		close_both();
	}
}

Test(cm_active, path_fields)
{
	static const uint32_t mtu[] = { 256, 512, 1024, 2048, 4096 };
	struct cm_parameters parameters = end_parameters(0xabcdef);
	struct cm_address address;
	const uint8_t *m;
	uint32_t c;

	open_and_connect();
	address = to_server();
	for (uint8_t code = 1; code <= 5; code++) {
		parameters.path_mtu = mtu[code - 1];
		parameters.hop_limit = code == 1 ? 1 : code == 2 ? 0 : 17;
		cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 1, &c, own.now),
			     0);
		m = end_last_sent(&own, CM_ATTR_REQ) + 24;
		cr_assert_eq(get_be24(m + 32), 0xabcdef);
		cr_assert_eq(m[50] >> 4, code);
		cr_assert_eq(m[51], 0xf0, "max CM retries 15, no SRQ");
		cr_assert_eq(m[43], 20 << 3);
		cr_assert_eq(m[47], 20 << 3 | 6);
		cr_assert_eq(get_be16(m + 48), 0xffff);
		cr_assert_eq(get_be32(m + 52), code == 1 ? 0 : 0xffffffff, "LIDs");
		cr_assert_eq(m[94] >> 3 & 1, code == 1, "subnet local");
		cr_assert_eq(m[93], code == 1 ? 1 : code == 2 ? 64 : 17);
		cr_assert_eq(get_be32(m + 88), 0x12345 << 12);
		cr_assert_eq(m[92], 104);
		for (int i = 96; i < 140; i++)
			cr_assert_eq(m[i], 0, "no alternate path");
	}
	close_both();
}

Test(cm_active, mra_gives_the_peer_time)
{
	struct cm_mra mra = { .local_id = SERVER_ID, .service_timeout = 24 };
	uint64_t start;
	uint8_t mad[256];

	open_and_connect();
	mra.remote_id = rep.remote_id;
	cm_mra_encode(&mra, 1, mad);
	end_receive(&own, &server, mad);
	start = own.now;
	while (end_sent(&own, CM_ATTR_REQ) == 1)
		own.now = cm_poll(own.cm, own.now);
	cr_assert_geq(own.now - start, 68 * END_S);
	send_rep_from(&server);
	cr_assert_eq(end_events(&own, CM_CONNECT_REPLY), 1);
	close_both();
}

/* 5.6: never 0, never one that a connection has. */
Test(cm_active, ids_are_unique)
{
	struct cm_parameters parameters = end_parameters(1);
	uint32_t draws[] = { 0, 0, 0, 77, 0xffffffff };
	struct cm_address address;
	uint32_t c;

	open_and_connect();
	address = to_server();
	draws[1] = rep.remote_id;
	own.dictated = draws;
	cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 1, &c, own.now), 0);
	cr_assert_eq(get_be32(end_last_sent(&own, CM_ATTR_REQ) + AT_LOCAL_ID), 77);
	close_both();
}

/* --- REP ------------------------------------------------------------------------------ */

Test(cm_active, rep_of_somebody_else_is_ignored)
{
	struct end third;

	open_and_connect();
	end_open(&third, 3);
	send_rep_from(&third);
	rep.remote_id++;
	send_rep_from(&server);
	rep.remote_id--;
	rep.local_id = 0;
	send_rep_from(&server);
	cr_assert_eq(own.event_count, 0);
	rep.local_id = SERVER_ID;
	send_rep_from(&server);
	cr_assert_eq(end_events(&own, CM_CONNECT_REPLY), 1);
	cr_assert_eq(end_last(&own, CM_CONNECT_REPLY)->cookie, 42);
	end_close(&third);
	close_both();
}

/* CM-PASS-19, from the other side. */
Test(cm_active, rep_of_a_queue_pair_that_cannot_be_connected)
{
	static const uint32_t numbers[] = { 0, 1, 0xffffff };
	uint32_t good;

	open_and_connect();
	good = rep.qpn;
	for (size_t i = 0; i < 3; i++) {
		rep.qpn = numbers[i];
		send_rep_from(&server);
	}
	cr_assert_eq(own.event_count, 0);
	rep.qpn = good;
	send_rep_from(&server);
	cr_assert_eq(end_events(&own, CM_CONNECT_REPLY), 1);
	close_both();
}

/* B63: RTU again for each REP, the same one. */
Test(cm_active, duplicate_rep)
{
	uint8_t data[225] = "hello";
	uint8_t rtu[256];

	open_and_connect();
	send_rep_from(&server);
	send_rep_from(&server);
	cr_assert_eq(own.sent_count, 1);
	cr_assert_eq(cm_ready(own.cm, connection, data, 225, own.now), -EMSGSIZE);
	cr_assert_eq(cm_ready(own.cm, connection, data, 224, own.now), 0);
	memcpy(rtu, end_last_sent(&own, CM_ATTR_RTU), 256);
	cr_assert_eq(get_be64(rtu + AT_TID), get_be64(own.sent[0].mad + AT_TID));
	cr_assert_eq(get_be32(rtu + AT_REMOTE_ID), SERVER_ID);
	cr_assert_str_eq((char *)rtu + 32, "hello");
	for (uint32_t i = 2; i <= 4; i++) {
		send_rep_from(&server);
		cr_assert_eq(end_sent(&own, CM_ATTR_RTU), i);
		cr_assert_arr_eq(end_last_sent(&own, CM_ATTR_RTU), rtu, 256);
	}
	cr_assert_eq(own.event_count, 1);
	close_both();
}

Test(cm_active, slow_application_sends_mra)
{
	open_and_connect();
	send_rep_from(&server);
	own.now += 4 * END_S;
	send_rep_from(&server);
	cr_assert_eq(end_sent(&own, CM_ATTR_MRA), 1);
	cr_assert_eq(end_last_sent(&own, CM_ATTR_MRA)[32] >> 6, CM_SUBJECT_REP);
	close_both();
}

/* The server's queue pair is one that we believe connected: the server was restarted. */
Test(cm_active, stale_rep_is_refused_and_the_old_connection_ends)
{
	struct cm_parameters parameters = end_parameters(END_QPN + 1);
	struct cm_address address;
	uint32_t old;

	open_and_connect();
	establish();
	old = connection;
	end_forget(&own);
	address = to_server();
	cr_assert_eq(cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 43, &connection, own.now),
		     0);
	rep.local_id++;
	rep.remote_id = get_be32(own.sent[0].mad + AT_LOCAL_ID);
	send_rep_from(&server);
	cr_assert_eq(get_be16(end_last_sent(&own, CM_ATTR_REJ) + AT_REASON),
		     CM_REJ_STALE_CONNECTION);
	cr_assert_eq(get_be32(end_last_sent(&own, CM_ATTR_REJ) + AT_REMOTE_ID), SERVER_ID + 1);
	cr_assert_eq(get_be32(end_last_sent(&own, CM_ATTR_DREQ) + AT_REMOTE_ID), SERVER_ID);
	cr_assert_eq(end_last(&own, CM_DISCONNECTED)->connection, old);
	cr_assert_eq(end_events(&own, CM_CONNECT_REPLY), 0);
	send_rep_from(&server);
	cr_assert_eq(end_last(&own, CM_CONNECT_REPLY)->connection, connection);
	close_both();
}

/* --- REJ ------------------------------------------------------------------------------ */

/* B65: by both ids, by ours alone (nobody listens), by the server's alone. */
Test(cm_active, rejected)
{
	open_and_connect();
	send_rej(0, rep.remote_id, CM_REJ_INVALID_SERVICE_ID);
	cr_assert_eq(end_last(&own, CM_REJECTED)->reason, CM_REJ_INVALID_SERVICE_ID);
	cr_assert_eq(end_events(&own, CM_TIMEWAIT_OVER), 1);
	cr_assert_eq(end_count(&own), 0);
	close_both();

	open_and_connect();
	send_rep_from(&server);
	send_rej(SERVER_ID, 0, CM_REJ_TIMEOUT);
	cr_assert_eq(end_last(&own, CM_REJECTED)->reason, CM_REJ_TIMEOUT);
	cr_assert_eq(cm_ready(own.cm, connection, NULL, 0, own.now), -ENOTCONN);
	cr_assert(end_drain(&own, 10 * END_S));
	close_both();
}

/* The peer has our QPN in use still: it is not given out again before timewait is over. */
Test(cm_active, rejected_as_stale)
{
	open_and_connect();
	send_rej(SERVER_ID, rep.remote_id, CM_REJ_STALE_CONNECTION);
	cr_assert_eq(end_events(&own, CM_REJECTED), 1);
	cr_assert_eq(end_events(&own, CM_TIMEWAIT_OVER), 0);
	cr_assert(end_drain(&own, 10 * END_S));
	close_both();
}

/* Our refusal was lost: the repeated REP gets it again, also when no REP had come before. */
Test(cm_active, refusal_is_repeated)
{
	for (int released = 0; released <= 1; released++) {
		open_and_connect();
		if (released) {
			cm_release(own.cm, connection, own.now);
		} else {
			send_rep_from(&server);
			cr_assert_eq(cm_reject(own.cm, connection, CM_REJ_CONSUMER, NULL, 0, NULL,
					       0, own.now),
				     0);
			cr_assert_eq(end_last_sent(&own, CM_ATTR_REJ)[32] >> 6, CM_SUBJECT_REP);
		}
		cr_assert_eq(end_sent(&own, CM_ATTR_REJ), 1);
		send_rep_from(&server);
		cr_assert_eq(end_sent(&own, CM_ATTR_REJ), 2);
		cr_assert(end_drain(&own, 10 * END_S));
		close_both();
	}
}

/* B76: the server ends it before the RTU, and even before we saw its REP. */
Test(cm_active, dreq_before_rtu)
{
	struct cm_dreq dreq = { .local_id = SERVER_ID, .remote_qpn = END_QPN };
	uint8_t mad[256];

	open_and_connect();
	dreq.remote_id = rep.remote_id;
	cm_dreq_encode(&dreq, 5, mad);
	end_receive(&own, &server, mad);
	cr_assert_eq(end_sent(&own, CM_ATTR_DREP), 1);
	cr_assert_eq(own.event_count, 0);
	send_rep_from(&server);
	end_receive(&own, &server, mad);
	cr_assert_eq(end_events(&own, CM_DISCONNECTED), 1);
	cr_assert_eq(cm_ready(own.cm, connection, NULL, 0, own.now), -ENOTCONN);
	cr_assert(end_drain(&own, 10 * END_S));
	close_both();
}

/* REP, RTU, MRA and REJ share the transaction of the REQ; a DREQ begins one. */
Test(cm_active, dreq_has_its_own_tid)
{
	open_and_connect();
	establish();
	cr_assert_eq(cm_disconnect(own.cm, connection, own.now), 0);
	cr_assert_neq(get_be64(end_last_sent(&own, CM_ATTR_DREQ) + AT_TID),
		      get_be64(own.sent[0].mad + AT_TID));
	send_rej(SERVER_ID, rep.remote_id, CM_REJ_INVALID_COMM_ID);
	cr_assert_eq(end_events(&own, CM_DISCONNECT_DONE), 1);
	cr_assert_eq(end_last(&own, CM_DISCONNECT_DONE)->reason, 0);
	close_both();
}

/* CM-ACT-8, B72: as Linux does it, what is less than half of the other is not counted. */
Test(cm_active, target_ack_delay_lengthens_the_timeout)
{
	static const uint8_t cases[][3] = { { 15, 5, 15 },  { 15, 13, 15 }, { 15, 14, 16 },
					    { 15, 15, 16 }, { 15, 16, 17 }, { 15, 20, 20 },
					    { 1, 0, 2 },    { 31, 0, 31 },  { 30, 30, 31 },
					    { 5, 31, 31 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_assert_eq(cm_ack_timeout(cases[i][0], cases[i][1]), cases[i][2],
			     "timeout %u, delay %u", cases[i][0], cases[i][1]);
	for (uint8_t delay = 0; delay < 32; delay++)
		cr_assert_eq(cm_ack_timeout(0, delay), 0, "no timer stays no timer");
}
