/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections through the connection manager to an export, as many at a time as its backlog takes.
 */
#include <stdlib.h>
#include <sys/random.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "cm/cm.h"
#include "common/export_protocol.h"
#include "oriel-flood/flood.h"

#define AT_A_TIME   16u
#define PATIENCE_NS 30000000000ull
#define ACK_TIMEOUT 18u

static uint64_t now_ns(const struct flood *f)
{
	return (uint64_t)((double)rte_get_tsc_cycles() * f->tick * 1e9);
}

/* --- MADs ------------------------------------------------------------------------------------ */

static void on_send(void *context, const struct cm_address *to, const uint8_t mad[MAD_SIZE])
{
	struct flood *f = context;
	struct frame_path path = { .hop_limit = 64,
				   .tagged = f->link.vlan != 0,
				   .vlan_tci = f->link.vlan,
				   .source_port = roce_source_port(0, GSI_QPN, GSI_QPN) };
	struct rte_mbuf *mbuf = link_buffer(f);
	struct frame_template template;
	struct deth *deth;
	uint8_t *data, *bth;

	if (!mbuf)
		return;
	memcpy(path.source_mac, f->link.mac, 6);
	memcpy(path.destination_mac, f->target_mac, 6);
	memcpy(path.source_gid, to->local_gid, 16);
	memcpy(path.destination_gid, to->remote_gid, 16);
	frame_template_init(&template, &path);
	data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	bth = frame_begin(data, &template, OP_UD_SEND_ONLY);
	bth_set_qpn((struct bth *)bth, GSI_QPN);
	deth = (struct deth *)(bth + opcode_table[OP_UD_SEND_ONLY].deth);
	deth->qkey = be32_make(GSI_QKEY);
	deth->source_qpn = be24_make(GSI_QPN);
	mbuf->data_len = (uint16_t)frame_finish(data, &template, mad, MAD_SIZE);
	mbuf->pkt_len = mbuf->data_len;
	link_send(f, 0, mbuf);
	link_flush(f);
}

void connect_mad(struct flood *f, const struct wire_view *view)
{
	struct cm_address from = { .traffic_class = view->traffic_class };

	if (!f->cm || view->payload_length != MAD_SIZE || view->opcode != OP_UD_SEND_ONLY)
		return;
	memcpy(from.local_gid, view->destination_gid, 16);
	memcpy(from.remote_gid, view->source_gid, 16);
	memcpy(from.remote_mac, view->frame + 6, 6);
	cm_receive(f->cm, &from, view->payload, now_ns(f));
}

/* --- events ---------------------------------------------------------------------------------- */

static void refused(struct flood *f, const struct cm_event *event)
{
	uint32_t code;

	f->failed++;
	if (export_refusal_parse(event->parameters->private_data, event->parameters->private_length,
				 &code))
		f->message = flood_text("the export refuses: %s", export_refusal_text(code));
	else
		f->message =
			flood_text("the peer refuses the connection, reason %u", event->reason);
}

static void replied(struct flood *f, struct flood_qp *qp, const struct cm_event *event)
{
	const struct cm_parameters *p = event->parameters;
	struct flood_window *window = &f->window[qp - f->qp];
	struct export_reply reply;

	if (!export_reply_parse(p->private_data, p->private_length, &reply) || !reply.access) {
		f->failed++;
		f->message = "what accepted is not an export";
		cm_reject(f->cm, event->connection, CM_REJ_CONSUMER, NULL, 0, NULL, 0, now_ns(f));
		return;
	}
	window->address = reply.address;
	window->token = reply.token;
	if (reply.length < f->options.size) {
		f->failed++;
		f->message = flood_text("the export has %llu bytes, fewer than --size",
					(unsigned long long)reply.length);
	}
	qp->qpn = p->qpn;
	/* Each side says the first PSN that it expects. */
	qp->start = p->starting_psn;
	qp->reads = p->responder_resources;
	cm_ready(f->cm, event->connection, NULL, 0, now_ns(f));
	qp->connected = 1;
}

static void on_event(void *context, const struct cm_event *event)
{
	struct flood *f = context;
	struct flood_qp *qp = &f->qp[event->cookie];

	switch (event->type) {
	case CM_CONNECT_REPLY: replied(f, qp, event); break;
	case CM_REJECTED: refused(f, event); break;
	case CM_UNREACHABLE:
		f->failed++;
		f->message = "the peer does not answer connection requests";
		break;
	case CM_DISCONNECTED: qp->dead = 1; break;
	case CM_DISCONNECT_DONE: qp->connected = 0; break;
	default: break;
	}
}

static uint32_t on_random(void *context)
{
	uint32_t value;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		value = (uint32_t)flood_random(context);
	return value;
}

static bool on_own_address(void *context, const uint8_t gid[16])
{
	return link_owns(&((struct flood *)context)->link, gid);
}

static uint32_t on_max_path_mtu(void *context, const struct cm_address *address)
{
	return ((struct flood *)context)->options.path_mtu;
}

/* --- connecting ------------------------------------------------------------------------------ */

/* Memory of the one table that the connection manager wants, in no memfd: nobody adopts it. */
static bool manager_create(struct flood *f)
{
	struct cm_config config = { .connections = f->options.qps + AT_A_TIME,
				    .backlog = 1,
				    .requests_per_peer = 1 };
	const struct cm_io io = {
		on_send, on_event, on_random, on_own_address, on_max_path_mtu, f
	};
	struct arena_spec spec[ARENA_TABLES] = { 0 };
	struct arena_header *header;
	uint64_t offset = (sizeof(struct arena_header) + 63) & ~63ull;

	memcpy(config.ca_guid, f->link.mac, 6);
	cm_arena_spec(&config, spec);
	header = calloc(1, offset + (uint64_t)spec[ARENA_CONNECTIONS].record_size *
					    config.connections);
	f->message = "no memory for connections";
	if (!header)
		return false;
	header->table[ARENA_CONNECTIONS].offset = offset;
	header->table[ARENA_CONNECTIONS].record_size = spec[ARENA_CONNECTIONS].record_size;
	header->table[ARENA_CONNECTIONS].records = spec[ARENA_CONNECTIONS].records;
	f->arena = (struct arena){ .header = header, .fd = -1 };
	if (cm_create(&f->cm, &f->arena, &config, &io, false))
		return false;
	f->message = NULL;
	return true;
}

static bool connect_one(struct flood *f, uint32_t index)
{
	struct flood_qp *qp = &f->qp[index];
	struct cm_parameters p = { .qpn = FLOOD_FIRST_QPN + index,
				   .starting_psn = on_random(f) & PSN_MASK,
				   .path_mtu = f->options.path_mtu,
				   .responder_resources = 0,
				   .initiator_depth = 16,
				   .retry_count = 7,
				   .rnr_retry_count = 7,
				   .ack_timeout = ACK_TIMEOUT,
				   .hop_limit = 64,
				   .local_port = (uint16_t)(20000 + index % 40000),
				   .remote_port = f->options.service,
				   .private_length = EXPORT_REQUEST_SIZE };
	struct export_request request = { 0 };
	struct cm_address address = { 0 };

	if (f->options.export_name)
		snprintf(request.name, sizeof(request.name), "%s", f->options.export_name);
	export_request_encode(&request, p.private_data);
	memcpy(address.local_gid, f->options.port.address[0].gid, 16);
	memcpy(address.remote_gid, f->options.target, 16);
	memcpy(address.remote_mac, f->target_mac, 6);
	return cm_connect(f->cm, CM_PS_TCP, &address, &p, index, &qp->connection, now_ns(f)) == 0;
}

static uint32_t count_connected(const struct flood *f, uint32_t begun)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < begun; i++)
		count += f->qp[i].connected;
	return count;
}

bool connect_all(struct flood *f)
{
	uint64_t give_up = now_ns(f) + PATIENCE_NS;
	uint32_t begun = 0, connected = 0;

	if (!manager_create(f))
		return false;
	f->qps = f->windows = f->options.qps;
	while (connected < f->qps && !f->failed && now_ns(f) < give_up && !f->stop) {
		uint32_t before = connected;

		for (; begun < f->qps && begun - connected < AT_A_TIME; begun++)
			if (!connect_one(f, begun))
				return false;
		link_poll(f);
		cm_poll(f->cm, now_ns(f));
		connected = count_connected(f, begun);
		if (connected != before)
			give_up = now_ns(f) + PATIENCE_NS;
	}
	for (uint32_t i = 0; i < f->qps; i++) {
		struct flood_qp *qp = &f->qp[i];

		qp->window = i;
		qp->windows = 1;
		qp->source_port = roce_source_port(0, FLOOD_FIRST_QPN + i, qp->qpn);
	}
	if (connected < f->qps && !f->message)
		f->message = "not all connections came up in time";
	return connected == f->qps && !f->failed;
}

/* DREQs, and a second for their answers. */
void disconnect_all(struct flood *f)
{
	uint64_t end = now_ns(f) + 1000000000ull;
	uint32_t next = 0;

	if (!f->cm)
		return;
	while (now_ns(f) < end && (next < f->qps || count_connected(f, f->qps))) {
		for (unsigned int i = 0; i < 8 && next < f->qps; i++, next++)
			if (f->qp[next].connected)
				cm_disconnect(f->cm, f->qp[next].connection, now_ns(f));
		link_poll(f);
		cm_poll(f->cm, now_ns(f));
	}
	cm_destroy(f->cm);
	f->cm = NULL;
	free(f->arena.header);
}
