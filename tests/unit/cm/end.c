/* SPDX-License-Identifier: BSD-3-Clause */
/* Ends and pairs of ends for the tests of the connection manager. */
#include "end.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "wire/byteorder.h"

/* --- the world of one CM -------------------------------------------------------------- */

static void on_send(void *context, const struct cm_address *to, const uint8_t mad[256])
{
	struct end *end = context;

	cr_assert_lt(end->sent_count, END_KEPT, "too many MADs");
	end->sent[end->sent_count].to = *to;
	memcpy(end->sent[end->sent_count++].mad, mad, 256);
}

static void on_event(void *context, const struct cm_event *event)
{
	struct end *end = context;
	struct end_event *kept = &end->event[end->event_count++];
	struct cm_parameters reply = end_parameters(END_QPN + event->connection);

	cr_assert_lt(end->event_count, END_KEPT, "too many events");
	*kept = (struct end_event){ .type = event->type,
				    .connection = event->connection,
				    .cookie = event->cookie,
				    .reason = event->reason,
				    .address = *event->address };
	if (event->parameters)
		kept->parameters = *event->parameters;
	if (event->type == CM_CONNECT_REQUEST && end->accepts)
		cr_assert_eq(cm_accept(end->cm, event->connection, END_COOKIE + event->connection,
				       &reply, end->now),
			     0);
	if (event->type == CM_CONNECT_REPLY && end->gets_ready)
		cr_assert_eq(cm_ready(end->cm, event->connection, NULL, 0, end->now), 0);
}

static uint32_t on_random(void *context)
{
	struct end *end = context;

	if (end->dictated && *end->dictated != 0xffffffff)
		return *end->dictated++;
	end->random = end->random * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(end->random >> 32);
}

static bool on_own_address(void *context, const uint8_t gid[16])
{
	struct end *end = context;

	return !memcmp(gid, end->gid, 16);
}

static uint32_t on_max_path_mtu(void *context, const struct cm_address *address)
{
	struct end *end = context;

	return end->max_path_mtu;
}

/* An arena with the one table that the CM uses. */
static void make_arena(struct end *end)
{
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	struct arena_header *header;
	uint64_t offset = (sizeof(*header) + 63) & ~63ull;
	uint64_t size;

	cm_arena_spec(&end->config, spec);
	size = offset + (uint64_t)spec[ARENA_CONNECTIONS].record_size * end->config.connections;
	header = calloc(1, size);
	cr_assert_not_null(header);
	header->size = size;
	header->table[ARENA_CONNECTIONS].offset = offset;
	header->table[ARENA_CONNECTIONS].record_size = spec[ARENA_CONNECTIONS].record_size;
	header->table[ARENA_CONNECTIONS].records = spec[ARENA_CONNECTIONS].records;
	end->arena = (struct arena){ .header = header, .fd = -1 };
}

void end_open_with(struct end *end, uint8_t last, const struct cm_config *config)
{
	memset(end, 0, sizeof(*end));
	end->config = *config;
	end->gid[10] = end->gid[11] = 0xff;
	memcpy(end->gid + 12, (uint8_t[4]){ 192, 0, 2, last }, 4);
	memcpy(end->mac, (uint8_t[6]){ 2, 0, 0, 0, 0, last }, 6);
	end->max_path_mtu = 1024;
	end->random = last;
	end->now = END_S;
	end->io = (struct cm_io){
		on_send, on_event, on_random, on_own_address, on_max_path_mtu, end
	};
	make_arena(end);
	cr_assert_eq(cm_create(&end->cm, &end->arena, config, &end->io, false), 0);
}

void end_open(struct end *end, uint8_t last)
{
	struct cm_config config = { .connections = END_RECORDS,
				    .backlog = 16,
				    .requests_per_peer = 8,
				    .ca_guid = { 2, 0, 0, 0xff, 0xfe, 0, 0, last } };

	end_open_with(end, last, &config);
}

void end_adopt(struct end *end)
{
	struct arena_header *old = end->arena.header;

	cm_destroy(end->cm);
	end->arena.header = malloc(old->size);
	cr_assert_not_null(end->arena.header);
	memcpy(end->arena.header, old, old->size);
	memset(old, 0xee, old->size);
	free(old);
	cr_assert_eq(cm_create(&end->cm, &end->arena, &end->config, &end->io, true), 0);
}

void end_close(struct end *end)
{
	cm_destroy(end->cm);
	free(end->arena.header);
}

void end_listen(struct end *end)
{
	static const uint8_t any[16];

	cr_assert_eq(cm_listen(end->cm, CM_PS_TCP, any, END_PORT, END_COOKIE, &end->listener), 0);
}

/* --- what happened -------------------------------------------------------------------- */

void end_receive(struct end *end, const struct end *from, const uint8_t mad[256])
{
	struct cm_address address = { 0 };

	memcpy(address.local_gid, end->gid, 16);
	memcpy(address.remote_gid, from->gid, 16);
	memcpy(address.remote_mac, from->mac, 6);
	cm_receive(end->cm, &address, mad, end->now);
}

void end_forget(struct end *end)
{
	end->sent_count = 0;
	end->event_count = 0;
}

uint32_t end_events(const struct end *end, enum cm_event_type type)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < end->event_count; i++)
		count += end->event[i].type == type;
	return count;
}

const struct end_event *end_last(const struct end *end, enum cm_event_type type)
{
	for (uint32_t i = end->event_count; i-- > 0;)
		if (end->event[i].type == type)
			return &end->event[i];
	cr_assert_fail("no event of type %d", type);
	return NULL;
}

enum cm_attribute end_attribute(const uint8_t mad[256])
{
	return (enum cm_attribute)get_be16(mad + 16);
}

uint32_t end_sent(const struct end *end, enum cm_attribute attribute)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < end->sent_count; i++)
		count += end_attribute(end->sent[i].mad) == attribute;
	return count;
}

const uint8_t *end_last_sent(const struct end *end, enum cm_attribute attribute)
{
	for (uint32_t i = end->sent_count; i-- > 0;)
		if (end_attribute(end->sent[i].mad) == attribute)
			return end->sent[i].mad;
	cr_assert_fail("no MAD with attribute 0x%x", attribute);
	return NULL;
}

uint32_t end_count(const struct end *end)
{
	struct cm_statistics statistics;

	cm_get_statistics(end->cm, &statistics);
	return statistics.established + statistics.pending + statistics.timewait;
}

bool end_drain(struct end *end, uint64_t at_most)
{
	uint64_t stop = end->now + at_most;

	while (end_count(end) && end->now < stop)
		end->now = cm_poll(end->cm, end->now);
	return end_count(end) == 0;
}

struct cm_parameters end_parameters(uint32_t qpn)
{
	struct cm_parameters parameters = {
		.qpn = qpn,
		.starting_psn = 0x654321,
		.path_mtu = 1024,
		.responder_resources = 4,
		.initiator_depth = 3,
		.retry_count = 6,
		.rnr_retry_count = 7,
		.ack_timeout = 5,
		.traffic_class = 104,
		.hop_limit = 64,
		.flow_label = 0x12345,
		.local_port = 40000,
		.remote_port = END_PORT,
		.private_length = 5,
		.private_data = "ORX1",
	};

	return parameters;
}

void end_make_req(const struct end *from, const struct end *to, struct cm_req *req)
{
	struct cma_header header = { .ip_version = 4, .source_port = 40000 };

	*req = (struct cm_req){ .local_id = 0x11223344,
				.service_id = cm_service_id(CM_PS_TCP, END_PORT),
				.ca_guid = 0x505400fffe000001ull,
				.qpn = 0x11,
				.responder_resources = 16,
				.initiator_depth = 16,
				.remote_response_timeout = 20,
				.local_response_timeout = 20,
				.starting_psn = 0x96a956,
				.retry_count = 7,
				.rnr_retry_count = 7,
				.pkey = 0xffff,
				.path_mtu = 3,
				.max_cm_retries = 15,
				.primary = { .local_lid = 0xffff,
					     .remote_lid = 0xffff,
					     .hop_limit = 64,
					     .ack_timeout = 19 } };
	memcpy(req->primary.local_gid, from->gid, 16);
	memcpy(req->primary.remote_gid, to->gid, 16);
	memcpy(header.source_gid, from->gid, 16);
	memcpy(header.destination_gid, to->gid, 16);
	cma_header_encode(&header, req->private_data);
}

/* --- two ends ------------------------------------------------------------------------- */

void pair_open(struct pair *pair)
{
	memset(pair, 0, sizeof(*pair));
	end_open(&pair->a, 1);
	end_open(&pair->b, 2);
	pair->a.gets_ready = true;
	pair->b.accepts = true;
	pair->now = pair->a.now;
	end_listen(&pair->b);
}

void pair_close(struct pair *pair)
{
	end_close(&pair->a);
	end_close(&pair->b);
}

void pair_connect(struct pair *pair)
{
	struct cm_parameters parameters = end_parameters(0xabc);
	struct cm_address address = { 0 };

	memcpy(address.local_gid, pair->a.gid, 16);
	memcpy(address.remote_gid, pair->b.gid, 16);
	cr_assert_eq(cm_connect(pair->a.cm, CM_PS_TCP, &address, &parameters, END_COOKIE,
				&pair->connection, pair->now),
		     0);
}

uint32_t pair_b_connection(const struct pair *pair)
{
	return end_last(&pair->b, CM_CONNECT_REQUEST)->connection;
}

static void carry(struct pair *pair, struct end *from, struct end *to)
{
	struct end_mad mad;

	if (!from->sent_count)
		return;
	mad = from->sent[0];
	memmove(from->sent, from->sent + 1, --from->sent_count * sizeof(mad));
	if (++pair->carried == pair->lost)
		return;
	for (uint32_t i = 0; i <= pair->copies; i++)
		end_receive(to, from, mad.mad);
}

static void set_time(struct pair *pair, uint64_t now)
{
	pair->now = pair->a.now = pair->b.now = now;
}

void pair_run(struct pair *pair, uint64_t duration)
{
	uint64_t stop = pair->now + duration;

	for (;;) {
		uint64_t next_a, next_b, next;

		while (pair->a.sent_count || pair->b.sent_count) {
			carry(pair, &pair->a, &pair->b);
			carry(pair, &pair->b, &pair->a);
		}
		next_a = cm_poll(pair->a.cm, pair->now);
		next_b = cm_poll(pair->b.cm, pair->now);
		next = next_a < next_b ? next_a : next_b;
		if (pair->a.sent_count || pair->b.sent_count)
			continue;
		if (next > stop)
			break;
		set_time(pair, next);
	}
	set_time(pair, stop);
}
