/* SPDX-License-Identifier: BSD-3-Clause */
/* Service resolution for datagrams: questions, answers, refusals, repetition, and what is left. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "peer.h"
#include "wire/byteorder.h"

#define UDP_PORT   7174u
#define QKEY       0x01234567u
#define STATUS_AT  28u
#define ANSWER_MAX 136u

static struct pair pair;
static struct peer peer;

static void open_pair(bool accepts)
{
	static const uint8_t any[16];
	uint32_t listener;

	pair_open(&pair);
	pair.a.gets_ready = false;
	pair.b.accepts = accepts;
	cr_assert_eq(cm_listen(pair.b.cm, CM_PS_UDP, any, UDP_PORT, 77, &listener), 0);
}

static struct cm_parameters question(void)
{
	struct cm_parameters p = { .local_port = 40000, .remote_port = UDP_PORT };

	p.private_length = 180;
	memset(p.private_data, 0x5a, p.private_length);
	return p;
}

static int ask(const struct cm_parameters *p)
{
	struct cm_address address = { 0 };

	memcpy(address.local_gid, pair.a.gid, 16);
	memcpy(address.remote_gid, pair.b.gid, 16);
	return cm_connect(pair.a.cm, CM_PS_UDP, &address, p, END_COOKIE, &pair.connection,
			  pair.now);
}

static void accept(uint32_t private_length)
{
	struct cm_parameters p = { .qpn = 0x4321,
				   .qkey = QKEY,
				   .private_length = (uint8_t)private_length };

	memset(p.private_data, 0xa5, private_length);
	cr_assert_eq(cm_accept(pair.b.cm, pair_b_connection(&pair), 1, &p, pair.now), 0);
}

static void expect_nothing_left(void)
{
	cr_assert(end_drain(&pair.a, 60 * END_S));
	cr_assert(end_drain(&pair.b, 60 * END_S));
	cr_assert_eq(end_events(&pair.a, CM_TIMEWAIT_OVER), 1);
	cr_assert_eq(end_events(&pair.b, CM_TIMEWAIT_OVER), 1);
	pair_close(&pair);
}

/* SIDR: private data to the limits of both messages, queue pair and Q_Key of the answer. */
Test(cm_sidr, question_and_answer)
{
	const struct cm_parameters p = question();
	const struct end_event *event;

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	event = end_last(&pair.b, CM_CONNECT_REQUEST);
	cr_assert_eq(event->cookie, 77);
	cr_assert_eq(event->parameters.local_port, UDP_PORT);
	cr_assert_eq(event->parameters.remote_port, 40000);
	cr_assert_eq(event->parameters.private_length, 180);
	cr_assert_arr_eq(event->parameters.private_data, p.private_data, 180);
	accept(ANSWER_MAX);
	pair_run(&pair, END_MS);
	event = end_last(&pair.a, CM_CONNECT_REPLY);
	cr_assert_eq(event->cookie, END_COOKIE);
	cr_assert_eq(event->parameters.qpn, 0x4321);
	cr_assert_eq(event->parameters.qkey, QKEY);
	cr_assert_eq(event->parameters.private_length, ANSWER_MAX);
	cr_assert_eq(event->parameters.private_data[ANSWER_MAX - 1], 0xa5);
	expect_nothing_left();
}

/* Each MAD lost once, or all doubled: asked once of the application, answered once to the other. */
Test(cm_sidr, lost_and_doubled)
{
	for (uint32_t lost = 0; lost <= 2; lost++) {
		const struct cm_parameters p = question();

		open_pair(true);
		pair.lost = lost;
		pair.copies = lost == 0 ? 2 : 0;
		cr_assert_eq(ask(&p), 0);
		pair_run(&pair, 20 * END_S);
		cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
		cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
		expect_nothing_left();
	}
}

/* While the application thinks, a repetition is neither asked again nor answered. */
Test(cm_sidr, slow_application)
{
	const struct cm_parameters p = question();

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, 30 * END_S);
	cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
	accept(0);
	pair_run(&pair, END_S);
	cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
	expect_nothing_left();
}

Test(cm_sidr, refused)
{
	static const uint8_t words[] = "no";
	const struct cm_parameters p = question();
	const struct end_event *event;

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	cr_assert_eq(cm_reject(pair.b.cm, pair_b_connection(&pair), 28, NULL, 0, words,
			       sizeof(words), pair.now),
		     0);
	pair_run(&pair, END_MS);
	event = end_last(&pair.a, CM_REJECTED);
	cr_assert_eq(event->reason, 2);
	cr_assert_arr_eq(event->parameters.private_data, words, sizeof(words));
	expect_nothing_left();
}

Test(cm_sidr, nobody_listens)
{
	struct cm_parameters p = question();

	open_pair(false);
	p.remote_port = END_PORT; /* of a TCP service: another space */
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	cr_assert_eq(end_last(&pair.a, CM_REJECTED)->reason, 1);
	cr_assert_eq(pair.b.event_count, 0);
	cr_assert(end_drain(&pair.a, END_S));
	pair_close(&pair);
}

Test(cm_sidr, nobody_answers)
{
	const struct cm_parameters p = question();

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	cr_assert(end_drain(&pair.a, 600 * END_S));
	cr_assert_eq(end_sent(&pair.a, CM_ATTR_SIDR_REQ), 16);
	cr_assert_eq(end_events(&pair.a, CM_UNREACHABLE), 1);
	cr_assert_eq(end_sent(&pair.a, CM_ATTR_REJ), 0);
	pair_close(&pair);
}

Test(cm_sidr, limits_of_private_data)
{
	struct cm_parameters p = question();

	open_pair(false);
	p.private_length = 181;
	cr_assert_eq(ask(&p), -EMSGSIZE);
	p.private_length = 0;
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	p.private_length = ANSWER_MAX + 1;
	cr_assert_eq(cm_accept(pair.b.cm, pair_b_connection(&pair), 1, &p, pair.now), -EMSGSIZE);
	accept(ANSWER_MAX);
	cr_assert_eq(cm_accept(pair.b.cm, pair_b_connection(&pair), 1, &p, pair.now), -ENOTCONN);
	pair_run(&pair, END_MS);
	expect_nothing_left();
}

/* The owner leaves, or the listener goes, with a question open. */
Test(cm_sidr, left_alone)
{
	const struct cm_parameters p = question();

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	cm_release(pair.a.cm, pair.connection, pair.now);
	cr_assert_eq(end_count(&pair.a), 0);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	cm_release(pair.b.cm, pair_b_connection(&pair), pair.now);
	pair_run(&pair, END_MS);
	cr_assert_eq(end_last(&pair.a, CM_REJECTED)->reason, 2);
	for (uint32_t i = 1; i < 8; i++)
		cm_unlisten(pair.b.cm, i);
	cr_assert(end_drain(&pair.b, 60 * END_S));
	pair_close(&pair);
}

Test(cm_sidr, adopted_while_asked)
{
	static const uint8_t any[16];
	const struct cm_parameters p = question();
	uint32_t listener;

	open_pair(false);
	cr_assert_eq(ask(&p), 0);
	pair_run(&pair, END_MS);
	end_adopt(&pair.b);
	end_adopt(&pair.a);
	cr_assert_eq(cm_listen(pair.b.cm, CM_PS_UDP, any, UDP_PORT, 77, &listener), 0);
	accept(8);
	pair_run(&pair, END_S);
	cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
	expect_nothing_left();
}

/* --- hand-made questions -------------------------------------------------------------- */

static void make_question(struct cm_sidr_req *req)
{
	struct cm_req rc;

	end_make_req(&peer.other, &peer.own, &rc);
	*req = (struct cm_sidr_req){ .request_id = 0xabcd0123,
				     .pkey = 0xffff,
				     .service_id = cm_service_id(CM_PS_UDP, UDP_PORT) };
	memcpy(req->private_data, rc.private_data, CMA_HEADER_SIZE);
}

/* Status of the last answer, 0xff when there was none. */
static uint8_t status_of(const struct cm_sidr_req *req, uint64_t tid)
{
	uint8_t mad[256];

	end_forget(&peer.own);
	cm_sidr_req_encode(req, tid, mad);
	end_receive(&peer.own, &peer.other, mad);
	if (peer.own.sent_count == 0)
		return 0xff;
	return end_last_sent(&peer.own, CM_ATTR_SIDR_REP)[STATUS_AT];
}

/* A flood of questions is bounded for each peer, and answered "no QP". */
Test(cm_sidr, bounded_for_each_peer)
{
	static const uint8_t any[16];
	struct cm_sidr_req req;
	uint32_t listener, bound;

	peer_open(&peer, false);
	bound = peer.own.config.requests_per_peer;
	if (bound > peer.own.config.backlog)
		bound = peer.own.config.backlog;
	make_question(&req);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_UDP, any, UDP_PORT, 9, &listener), 0);
	for (uint32_t i = 0; i < bound; i++) {
		req.request_id++;
		cr_assert_eq(status_of(&req, i + 1), 0xff);
		cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 1);
	}
	req.request_id++;
	cr_assert_eq(status_of(&req, 100), 3);
	peer_close(&peer);
}

/* What is answered is remembered for so many questions of a peer; the rest takes no room. */
Test(cm_sidr, memory_of_answers_is_bounded)
{
	static const uint8_t any[16];
	struct cm_parameters reply = end_parameters(0x77);
	struct cm_sidr_req req;
	uint32_t listener;

	peer_open(&peer, false);
	reply.private_length = 0;
	make_question(&req);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_UDP, any, UDP_PORT, 9, &listener), 0);
	for (uint32_t i = 1; i <= 200; i++) {
		const struct end_event *event;

		req.request_id = i;
		cr_assert_eq(status_of(&req, i), 0xff);
		event = end_last(&peer.own, CM_CONNECT_REQUEST);
		cr_assert_eq(cm_accept(peer.own.cm, event->connection, 1, &reply, peer.own.now), 0);
		cr_assert_eq(end_last_sent(&peer.own, CM_ATTR_SIDR_REP)[STATUS_AT], 0);
	}
	cr_assert_eq(end_count(&peer.own), peer.own.config.requests_per_peer);
	req.request_id = 1;
	cr_assert_eq(status_of(&req, 1), 0, "answered from memory");
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 0);
	peer_close(&peer);
}

/*
 * Ids are the peer's to choose, 0 too. The records go round several times: what is left of an
 * earlier question in an index would make the look for a later one endless.
 */
Test(cm_sidr, questions_whose_id_is_zero)
{
	static const uint8_t any[16];
	struct cm_sidr_req req;
	uint32_t listener;

	peer_open(&peer, false);
	make_question(&req);
	req.request_id = 0;
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_UDP, any, UDP_PORT, 9, &listener), 0);
	for (uint32_t i = 1; i <= 4 * END_RECORDS; i++) {
		const struct end_event *event;

		cr_assert_eq(status_of(&req, i), 0xff);
		event = end_last(&peer.own, CM_CONNECT_REQUEST);
		cr_assert_eq(cm_reject(peer.own.cm, event->connection, 28, NULL, 0, NULL, 0,
				       peer.own.now),
			     0);
		cr_assert_eq(end_last_sent(&peer.own, CM_ATTR_SIDR_REP)[STATUS_AT], 2);
	}
	cr_assert_eq(end_count(&peer.own), peer.own.config.requests_per_peer);
	cr_assert_eq(status_of(&req, 1), 2, "answered from memory");
	cr_assert(end_drain(&peer.own, 60 * END_S));
	peer_close(&peer);
}

Test(cm_sidr, malformed_questions)
{
	static const uint8_t any[16];
	struct cm_sidr_req req;
	uint32_t listener;

	peer_open(&peer, true);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_UDP, any, UDP_PORT, 9, &listener), 0);
	make_question(&req);
	req.private_data[0] = 0x10;
	cr_assert_eq(status_of(&req, 1), 2);
	make_question(&req);
	req.private_data[1] = 0x50;
	cr_assert_eq(status_of(&req, 2), 2);
	make_question(&req);
	req.pkey = 0x1234;
	cr_assert_eq(status_of(&req, 3), 2);
	make_question(&req);
	req.service_id |= 1ull << 40;
	cr_assert_eq(status_of(&req, 4), 1);
	make_question(&req);
	memset(req.private_data + 20, 0x11, 16); /* destination: nobody of ours */
	cr_assert_eq(status_of(&req, 5), 2);
	cr_assert_eq(end_count(&peer.own), 0);
	peer_close(&peer);
}

/* A connection cannot be made to a service of datagrams. */
Test(cm_sidr, req_for_datagram_service)
{
	static const uint8_t any[16];
	uint32_t listener;

	peer_open(&peer, true);
	cr_assert_eq(cm_listen(peer.own.cm, CM_PS_UDP, any, UDP_PORT, 9, &listener), 0);
	peer.req.service_id = cm_service_id(CM_PS_UDP, UDP_PORT);
	peer_send_req(&peer);
	cr_assert_eq(peer_rejected(&peer, PEER_ID), CM_REJ_INVALID_SERVICE_ID);
	cr_assert_eq(peer.own.event_count, 0);
	peer_close(&peer);
}
