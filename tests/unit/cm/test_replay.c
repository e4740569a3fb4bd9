/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exchanges captured between two Linux machines, replayed with the CM in the place of one of them:
 * what it sends has to be what Linux sent, byte for byte but for the ids it draws itself.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "end.h"
#include "wire/byteorder.h"

#define LOCAL_ID         24u /* byte offsets in a MAD */
#define REMOTE_ID        28u
#define TID              8u
#define REP_FLOW_CONTROL 50u

/* One connection of the capture and the one that stands for it here. */
struct twin {
	uint32_t client_id, server_id; /* of the capture */
	uint32_t own_id;               /* in the place of one of them */
	uint32_t connection;
	bool disconnecting;
};

static struct captured mads[CAPTURE_MOST];
static uint32_t count;
static struct twin twin[8];
static struct end own;

static uint32_t id_at(const uint8_t *mad, uint32_t offset)
{
	return get_be32(mad + offset);
}

static bool is_from(const struct captured *c, const uint8_t gid[16])
{
	return !memcmp(c->source, gid, 16);
}

static struct twin *twin_of(uint32_t client_id)
{
	for (uint32_t i = 0; i < 8; i++) {
		if (twin[i].client_id == client_id)
			return &twin[i];
		if (!twin[i].client_id) {
			twin[i].client_id = client_id;
			return &twin[i];
		}
	}
	cr_assert_fail("more connections than expected");
	return NULL;
}

/* The MAD of that kind that the capture's other side sent for a client's id, or NULL. */
static const struct captured *find(enum cm_attribute attribute, const uint8_t source[16],
				   uint32_t client_id)
{
	for (uint32_t i = 0; i < count; i++)
		if (end_attribute(mads[i].mad) == attribute && is_from(&mads[i], source) &&
		    (id_at(mads[i].mad, REMOTE_ID) == client_id ||
		     id_at(mads[i].mad, LOCAL_ID) == client_id))
			return &mads[i];
	return NULL;
}

static void deliver(const struct captured *c, const uint8_t mad[256])
{
	struct cm_address from = { 0 };

	memcpy(from.local_gid, c->destination, 16);
	memcpy(from.remote_gid, c->source, 16);
	memcpy(from.remote_mac, c->source_mac, 6);
	cm_receive(own.cm, &from, mad, own.now);
}

static void open_in_place_of(const uint8_t gid[16], uint64_t guid)
{
	end_open(&own, 9);
	cm_destroy(own.cm);
	memcpy(own.gid, gid, 16);
	put_be64(own.config.ca_guid, guid);
	cr_assert_eq(cm_create(&own.cm, &own.arena, &own.config, &own.io, false), 0);
	memset(twin, 0, sizeof(twin));
}

/* What we sent is what stands in the capture, once our own id is put in the place of its. */
static void check_same(const struct captured *expected, uint32_t id_offset, bool own_tid)
{
	uint8_t sent[256];
	uint8_t mask;

	cr_assert_eq(own.sent_count, 1, "%u MADs instead of one", own.sent_count);
	memcpy(sent, own.sent[0].mad, 256);
	memcpy(sent + id_offset, expected->mad + id_offset, 4);
	if (own_tid)
		memcpy(sent + TID, expected->mad + TID, 8);
	for (uint32_t i = 0; i < 256; i++) {
		/* Some programs ask for end-to-end flow control, which RoCE does not have. */
		mask = end_attribute(sent) == CM_ATTR_REP && i == REP_FLOW_CONTROL ? 0xfe : 0xff;
		cr_assert_eq(sent[i], expected->mad[i] & mask, "byte %u: %02x instead of %02x", i,
			     sent[i], expected->mad[i]);
	}
	cr_assert_arr_eq(own.sent[0].to.remote_gid, expected->destination, 16);
	cr_assert_arr_eq(own.sent[0].to.local_gid, expected->source, 16);
}

/* --- as the server -------------------------------------------------------------------- */

static void answer_request(const struct captured *req, const uint8_t server[16])
{
	struct twin *t = twin_of(id_at(req->mad, LOCAL_ID));
	const struct captured *accepted = find(CM_ATTR_REP, server, t->client_id);
	const struct captured *refused = find(CM_ATTR_REJ, server, t->client_id);
	struct cm_parameters parameters;
	struct cm_rep rep;

	if (!own.event_count) { /* nobody listens */
		cr_assert_not_null(refused);
		check_same(refused, LOCAL_ID, false);
		cr_assert_eq(id_at(own.sent[0].mad, LOCAL_ID), 0);
		return;
	}
	cr_assert_eq(own.event[0].type, CM_CONNECT_REQUEST);
	t->connection = own.event[0].connection;
	if (refused) {
		const uint8_t *private_data = refused->mad + 24 + 84;

		cr_assert_eq(cm_reject(own.cm, t->connection, CM_REJ_CONSUMER, NULL, 0,
				       private_data, CM_REJ_PRIVATE, own.now),
			     0);
		check_same(refused, LOCAL_ID, false);
		return;
	}
	cr_assert_not_null(accepted);
	cm_rep_parse(accepted->mad, &rep);
	parameters = (struct cm_parameters){ .qpn = rep.qpn,
					     .starting_psn = rep.starting_psn,
					     .responder_resources = rep.responder_resources,
					     .initiator_depth = rep.initiator_depth,
					     .rnr_retry_count = rep.rnr_retry_count,
					     .ack_timeout = rep.target_ack_delay,
					     .srq = rep.srq,
					     .private_length = CM_REP_PRIVATE };
	memcpy(parameters.private_data, rep.private_data, CM_REP_PRIVATE);
	cr_assert_eq(cm_accept(own.cm, t->connection, 1, &parameters, own.now), 0);
	check_same(accepted, LOCAL_ID, false);
	t->server_id = id_at(accepted->mad, LOCAL_ID);
	t->own_id = id_at(own.sent[0].mad, LOCAL_ID);
}

/* The fields of the REQ as the application sees them, at their fixed places. */
static void check_request_event(const struct captured *req)
{
	const struct cm_parameters *p = &own.event[0].parameters;
	const uint8_t *m = req->mad + 24;

	if (!own.event_count)
		return;
	cr_assert_eq(p->qpn, get_be24(m + 32));
	cr_assert_eq(p->responder_resources, m[35]);
	cr_assert_eq(p->initiator_depth, m[39]);
	cr_assert_eq(p->starting_psn, get_be24(m + 44));
	cr_assert_eq(p->retry_count, m[47] & 7);
	cr_assert_eq(p->rnr_retry_count, m[50] & 7);
	cr_assert_eq(p->path_mtu, 128u << (m[50] >> 4));
	cr_assert_eq(p->flow_label, get_be32(m + 88) >> 12);
	cr_assert_eq(p->traffic_class, m[92]);
	cr_assert_eq(p->hop_limit, m[93]);
	cr_assert_eq(p->ack_timeout, m[95] >> 3);
	cr_assert_eq(p->local_port, get_be16(m + 14));
	cr_assert_eq(p->remote_port, get_be16(m + 142));
	cr_assert_eq(p->private_length, 56);
	cr_assert_arr_eq(p->private_data, m + 176, 56);
	cr_assert_arr_eq(own.event[0].address.local_gid, req->destination, 16);
	cr_assert_arr_eq(own.event[0].address.remote_gid, req->source, 16);
	cr_assert_arr_eq(own.event[0].address.remote_mac, req->source_mac, 6);
}

static void disconnect_as(struct twin *t, const struct captured *expected)
{
	end_forget(&own);
	cr_assert_eq(cm_disconnect(own.cm, t->connection, own.now), 0);
	check_same(expected, LOCAL_ID, true);
	t->disconnecting = true;
}

static void from_client(const struct captured *c, const uint8_t server[16])
{
	enum cm_attribute attribute = end_attribute(c->mad);
	struct twin *t = twin_of(id_at(c->mad, LOCAL_ID));
	const struct captured *crossing = find(CM_ATTR_DREQ, server, t->client_id);
	uint8_t mad[256];

	memcpy(mad, c->mad, 256);
	if (attribute != CM_ATTR_REQ)
		put_be32(mad + REMOTE_ID, t->own_id);
	if (attribute == CM_ATTR_DREQ && crossing && !t->disconnecting)
		disconnect_as(t, crossing);
	end_forget(&own);
	deliver(c, mad);
	switch (attribute) {
	case CM_ATTR_REQ:
		check_request_event(c);
		answer_request(c, server);
		break;
	case CM_ATTR_RTU: cr_assert_eq(end_events(&own, CM_ESTABLISHED), 1); break;
	case CM_ATTR_DREQ:
		check_same(find(CM_ATTR_DREP, server, t->client_id), LOCAL_ID, false);
		cr_assert_eq(
			end_events(&own, t->disconnecting ? CM_DISCONNECT_DONE : CM_DISCONNECTED),
			1);
		break;
	case CM_ATTR_DREP:
		cr_assert(end_events(&own, CM_DISCONNECT_DONE) == 1 ||
			  find(CM_ATTR_DREQ, c->source, t->client_id));
		break;
	default: cr_assert_fail("unexpected MAD 0x%x", attribute);
	}
}

static void replay_as_server(const char *name)
{
	static const uint8_t any[16];
	const struct captured *answer = NULL;
	uint32_t listener;

	count = capture_read(name, mads);
	cr_assert_geq(count, 3);
	for (uint32_t i = 0; i < count && !answer; i++)
		if (!is_from(&mads[i], mads[0].source))
			answer = &mads[i];
	cr_assert_not_null(answer);
	open_in_place_of(mads[0].destination, end_attribute(answer->mad) == CM_ATTR_REP
						      ? get_be64(answer->mad + 52)
						      : 1);
	cr_assert_eq(cm_listen(own.cm, CM_PS_TCP, any, get_be16(mads[0].mad + 38), 7, &listener),
		     0);
	for (uint32_t i = 0; i < count; i++) {
		struct twin *t;

		own.now += END_MS;
		if (is_from(&mads[i], mads[0].source)) {
			from_client(&mads[i], mads[0].destination);
			continue;
		}
		t = twin_of(id_at(mads[i].mad, REMOTE_ID));
		if (end_attribute(mads[i].mad) == CM_ATTR_DREQ && !t->disconnecting &&
		    !find(CM_ATTR_DREQ, mads[0].source, t->client_id))
			disconnect_as(t, &mads[i]);
	}
	for (uint32_t i = 0; i < 8; i++)
		if (twin[i].own_id)
			cm_release(own.cm, twin[i].connection, own.now);
	cr_assert(end_drain(&own, 60 * END_S), "%u records left", end_count(&own));
	end_close(&own);
}

Test(cm_replay, server_ucmatose)
{
	replay_as_server("ucmatose");
}

Test(cm_replay, server_rping)
{
	replay_as_server("rping");
}

Test(cm_replay, server_rejects)
{
	replay_as_server("cm-reject");
}

Test(cm_replay, server_disconnect)
{
	replay_as_server("disconnect");
}

Test(cm_replay, server_ipv6)
{
	replay_as_server("ipv6-connect");
}

Test(cm_replay, server_perftest_crossing_dreq)
{
	replay_as_server("perftest-write-cm");
}

Test(cm_replay, server_export_protocol)
{
	static const char *const names[] = { "write-wrong-key", "read-past-end", "zero-length",
					     "send-with-invalidate", "rnr-nak" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		replay_as_server(names[i]);
}

/* --- as the client -------------------------------------------------------------------- */

static struct twin *connect_as(const struct captured *req_mad)
{
	struct twin *t = twin_of(id_at(req_mad->mad, LOCAL_ID));
	struct cm_parameters parameters;
	struct cm_address address = { 0 };
	struct cma_header header;
	struct cm_req req;

	cm_req_parse(req_mad->mad, &req);
	cma_header_parse(req.private_data, &header);
	parameters = (struct cm_parameters){ .qpn = req.qpn,
					     .starting_psn = req.starting_psn,
					     .path_mtu = 128u << req.path_mtu,
					     .responder_resources = req.responder_resources,
					     .initiator_depth = req.initiator_depth,
					     .retry_count = req.retry_count,
					     .rnr_retry_count = req.rnr_retry_count,
					     .ack_timeout = req.primary.ack_timeout,
					     .traffic_class = req.primary.traffic_class,
					     .hop_limit = req.primary.hop_limit,
					     .srq = req.srq,
					     .flow_label = req.primary.flow_label,
					     .local_port = header.source_port,
					     .remote_port = (uint16_t)req.service_id,
					     .private_length = 56 };
	memcpy(parameters.private_data, req.private_data + 36, 56);
	memcpy(address.local_gid, req_mad->source, 16);
	memcpy(address.remote_gid, req_mad->destination, 16);
	end_forget(&own);
	cr_assert_eq(
		cm_connect(own.cm, CM_PS_TCP, &address, &parameters, 5, &t->connection, own.now),
		0);
	check_same(req_mad, LOCAL_ID, true);
	t->own_id = id_at(own.sent[0].mad, LOCAL_ID);
	return t;
}

static void check_reply_event(const struct captured *rep)
{
	const struct end_event *event = end_last(&own, CM_CONNECT_REPLY);
	const uint8_t *m = rep->mad + 24;

	cr_assert_eq(event->parameters.qpn, get_be24(m + 12));
	cr_assert_eq(event->parameters.starting_psn, get_be24(m + 20));
	cr_assert_eq(event->parameters.responder_resources, m[24]);
	cr_assert_eq(event->parameters.initiator_depth, m[25]);
	cr_assert_eq(event->parameters.ack_timeout, m[26] >> 3);
	cr_assert_eq(event->parameters.rnr_retry_count, m[27] >> 5);
	cr_assert_eq(event->parameters.private_length, 196);
	cr_assert_arr_eq(event->parameters.private_data, m + 36, 196);
	cr_assert_arr_eq(event->address.remote_mac, rep->source_mac, 6);
}

static void replay_connection(const struct captured *req)
{
	const uint8_t *client = req->source, *server = req->destination;
	struct twin *t = connect_as(req);
	const struct captured *rep = find(CM_ATTR_REP, server, t->client_id);
	const struct captured *rej = find(CM_ATTR_REJ, server, t->client_id);
	const struct captured *dreq = find(CM_ATTR_DREQ, client, t->client_id);
	const struct captured *answer = rep ? rep : rej;
	uint8_t mad[256];

	cr_assert_not_null(answer);
	memcpy(mad, answer->mad, 256);
	put_be32(mad + REMOTE_ID, t->own_id);
	deliver(answer, mad);
	if (rej) {
		const struct end_event *event = end_last(&own, CM_REJECTED);

		cr_assert_eq(event->reason, get_be16(rej->mad + 24 + 10));
		cr_assert_eq(event->parameters.private_length, 148);
		cr_assert_arr_eq(event->parameters.private_data, rej->mad + 24 + 84, 148);
		return;
	}
	check_reply_event(rep);
	end_forget(&own);
	cr_assert_eq(cm_ready(own.cm, t->connection, NULL, 0, own.now), 0);
	check_same(find(CM_ATTR_RTU, client, t->client_id), LOCAL_ID, true);
	if (dreq)
		disconnect_as(t, dreq);
	cm_release(own.cm, t->connection, own.now);
}

static void replay_as_client(const char *name)
{
	count = capture_read(name, mads);
	open_in_place_of(mads[0].source, get_be64(mads[0].mad + 40));
	for (uint32_t i = 0; i < count; i++)
		if (end_attribute(mads[i].mad) == CM_ATTR_REQ)
			replay_connection(&mads[i]);
	cr_assert(end_drain(&own, 60 * END_S), "%u records left", end_count(&own));
	end_close(&own);
}

Test(cm_replay, client_of_every_capture)
{
	static const char *const names[] = {
		"ucmatose",          "rping",           "cm-reject",   "disconnect", "ipv6-connect",
		"perftest-write-cm", "write-wrong-key", "zero-length",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		replay_as_client(names[i]);
}
