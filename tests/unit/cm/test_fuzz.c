/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A seeded storm of MADs, sound and spoilt, from several peers, over an owner that does as it
 * likes, with restarts between. Nothing crashes, the table stays bounded, events fit together, and
 * at the end no record is left.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "cm/cm_private.h"
#include "peer.h"
#include "wire/byteorder.h"

#define STEPS    200000u
#define PEERS    5u
#define MEMORY   64u
#define RESTARTS 5000u /* steps between */
#define UDP_PORT 7174u

enum shadow_state { GONE, HELD, LET_GO };

static struct end own, other[PEERS];
static enum shadow_state shadow[END_RECORDS];
static struct end_mad heard[MEMORY]; /* what the CM said lately */
static uint32_t heard_count;
static uint64_t seed, created, ended;

static void take_in(void);

static uint32_t draw(uint32_t below)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % below;
}

/* --- what comes in -------------------------------------------------------------------- */

static void make_request(uint32_t from, uint8_t mad[256])
{
	struct cm_req req;

	end_make_req(&other[from], &own, &req);
	req.local_id = 1 + draw(40);
	req.qpn = 1 + draw(40);
	req.max_cm_retries = (uint8_t)draw(16);
	req.local_response_timeout = (uint8_t)draw(32);
	req.primary.ack_timeout = (uint8_t)draw(32);
	req.service_id += draw(10) == 0;
	cm_req_encode(&req, draw(3), mad);
}

static void make_question(uint32_t from, uint8_t mad[256])
{
	struct cm_sidr_req question = { .request_id = draw(6),
					.pkey = 0xffff,
					.service_id = cm_service_id(CM_PS_UDP, UDP_PORT) };
	struct cm_req req;

	end_make_req(&other[from], &own, &req);
	memcpy(question.private_data, req.private_data, CMA_HEADER_SIZE);
	cm_sidr_req_encode(&question, draw(20), mad);
}

/* Any message whose ids fit something that the CM has said. */
static void make_answer(const struct end_mad *said, uint8_t mad[256])
{
	static const uint16_t kinds[] = { CM_ATTR_MRA,  CM_ATTR_REJ,  CM_ATTR_REP,     CM_ATTR_RTU,
					  CM_ATTR_DREQ, CM_ATTR_DREP, CM_ATTR_SIDR_REP };
	uint32_t peer_id = get_be32(said->mad + AT_REMOTE_ID);
	uint16_t kind = kinds[draw(7)];

	memcpy(mad, said->mad, 256);
	if (kind == CM_ATTR_REP)
		put_be24(mad + 36, draw(40));
	if (kind == CM_ATTR_MRA)
		mad[32] = (uint8_t)(draw(2) << 6);
	if (kind == CM_ATTR_DREQ)
		put_be24(mad + 32, END_QPN + draw(END_RECORDS));
	put_be16(mad + AT_ATTRIBUTE, kind);
	put_be32(mad + AT_LOCAL_ID, peer_id ? peer_id : 100 + draw(40));
	memcpy(mad + AT_REMOTE_ID, said->mad + AT_LOCAL_ID, 4);
	if (kind == CM_ATTR_SIDR_REP)
		memcpy(mad + AT_LOCAL_ID, said->mad + AT_LOCAL_ID, 4);
	if (kind == CM_ATTR_REJ && draw(3) == 0)
		put_be32(mad + AT_REMOTE_ID, 0);
}

static void spoil(uint8_t mad[256])
{
	for (uint32_t n = draw(4); n > 0; n--)
		mad[draw(2) ? draw(256) : 24 + draw(80)] = (uint8_t)draw(256);
}

static uint32_t peer_at(const struct end_mad *said)
{
	return (uint32_t)said->to.remote_gid[15] - 1;
}

static void one_mad(void)
{
	const struct end_mad *said = &heard[draw(MEMORY)];
	uint32_t from = draw(PEERS);
	uint8_t mad[256];

	switch (draw(9)) {
	case 0:
	case 1: make_request(from, mad); break;
	case 3: make_question(from, mad); break;
	case 2:
		for (uint32_t i = 0; i < 256; i++)
			mad[i] = (uint8_t)draw(256);
		memcpy(mad, (uint8_t[4]){ 1, 7, 2, 3 }, 4);
		put_be16(mad + AT_ATTRIBUTE, (uint16_t)(CM_ATTR_REQ + draw(12)));
		break;
	default:
		if (!heard_count)
			return;
		make_answer(said, mad);
		if (draw(20) && peer_at(said) < PEERS)
			from = peer_at(said);
		break;
	}
	if (draw(2))
		spoil(mad);
	end_receive(&own, &other[from], mad);
}

/* --- what the owner does -------------------------------------------------------------- */

static void let_go(uint32_t connection)
{
	/* Refusing can free the record inside the call; its event then finds it let go. */
	shadow[connection] = LET_GO;
	cm_release(own.cm, connection, own.now);
}

static void one_connect(void)
{
	struct cm_parameters parameters = end_parameters(END_QPN + draw(END_RECORDS));
	struct cm_address address = { 0 };
	uint32_t connection;

	memcpy(address.local_gid, own.gid, 16);
	memcpy(address.remote_gid, other[draw(PEERS)].gid, 16);
	if (cm_connect(own.cm, draw(4) ? CM_PS_TCP : CM_PS_UDP, &address, &parameters, 1,
		       &connection, own.now))
		return;
	created++;
	take_in(); /* one in timewait may have given way to it */
	cr_assert_eq(shadow[connection], GONE);
	shadow[connection] = HELD;
}

static void one_wish(void)
{
	struct cm_parameters reply = end_parameters(0);
	uint32_t connection = 1 + draw(END_RECORDS - 1);

	reply.qpn = END_QPN + connection;
	if (draw(10) == 0)
		one_connect();
	if (shadow[connection] != HELD)
		return;
	switch (draw(7)) {
	case 0:
	case 1: cm_accept(own.cm, connection, 1, &reply, own.now); break;
	case 2: cm_ready(own.cm, connection, NULL, 0, own.now); break;
	case 3: cm_data_seen(own.cm, connection, own.now); break;
	case 4: cm_disconnect(own.cm, connection, own.now); break;
	case 5: cm_reject(own.cm, connection, 28, NULL, 0, NULL, 0, own.now); break;
	default: let_go(connection); break;
	}
}

/* --- what it hears -------------------------------------------------------------------- */

static void check_event(const struct end_event *event)
{
	enum shadow_state *s = &shadow[event->connection];

	cr_assert_lt(event->connection, END_RECORDS);
	cr_assert_gt(event->connection, 0);
	switch (event->type) {
	case CM_CONNECT_REQUEST:
		cr_assert_eq(*s, GONE, "index %u is still in use", event->connection);
		*s = HELD;
		created++;
		break;
	case CM_TIMEWAIT_OVER:
		cr_assert_neq(*s, GONE, "freed twice");
		*s = GONE;
		ended++;
		break;
	default: cr_assert_eq(*s, HELD, "event %d for nobody", event->type); break;
	}
}

static void take_in(void)
{
	struct cm_statistics s;

	for (uint32_t i = 0; i < own.event_count; i++)
		check_event(&own.event[i]);
	for (uint32_t i = 0; i < own.sent_count; i++)
		heard[heard_count++ % MEMORY] = own.sent[i];
	end_forget(&own);
	cm_get_statistics(own.cm, &s);
	cr_assert_eq(s.established + s.pending + s.timewait, created - ended);
	cr_assert_lt(created - ended, END_RECORDS);
}

/* In whatever order timers were set and stopped: none is late. */
static void check_timers(void)
{
	cr_assert_gt(cm_poll(own.cm, own.now), own.now);
	for (uint32_t i = 1; i < END_RECORDS; i++) {
		const struct connection *c = cm_connection_at(own.cm, i);

		if (c->state != CONNECTION_FREE && c->deadline)
			cr_assert_gt(c->deadline, own.now);
	}
}

static void listen_at_all(void)
{
	static const uint8_t any[16];
	uint32_t listener;

	end_listen(&own);
	cr_assert_eq(cm_listen(own.cm, CM_PS_UDP, any, UDP_PORT, 1, &listener), 0);
}

static void restart(void)
{
	end_adopt(&own);
	listen_at_all();
}

static void storm(uint64_t from)
{
	seed = from;
	created = ended = 0;
	heard_count = 0;
	memset(shadow, 0, sizeof(shadow));
	memset(heard, 0, sizeof(heard));
	end_open(&own, 9);
	listen_at_all();
	for (uint32_t step = 0; step < STEPS; step++) {
		one_mad();
		take_in();
		one_wish();
		take_in();
		if (draw(50) == 0)
			own.now += draw(3000) * END_MS;
		check_timers();
		take_in();
		if (step % RESTARTS == RESTARTS - 1)
			restart();
	}
	for (uint32_t i = 1; i < END_RECORDS; i++)
		if (shadow[i] == HELD)
			let_go(i);
	cr_assert(end_drain(&own, 200 * END_S));
	take_in();
	cr_assert_eq(created, ended);
	cr_assert_gt(created, STEPS / 100, "the storm made too few connections to mean anything");
	end_close(&own);
}

Test(cm_fuzz, storm_leaves_nothing)
{
	for (uint32_t i = 0; i < PEERS; i++)
		end_open(&other[i], (uint8_t)(i + 1));
	for (uint64_t from = 1; from <= 3; from++)
		storm(from);
	for (uint32_t i = 0; i < PEERS; i++)
		end_close(&other[i]);
}
