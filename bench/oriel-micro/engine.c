/* SPDX-License-Identifier: BSD-3-Clause */
/* Arena, memory, one transport, connected queue pairs and bound windows. */
#include "oriel-micro/engine.h"

#include <stdlib.h>
#include <string.h>

#include "shm/segment.h"

#define RESOURCES_EACH 16u

/* --- what surrounds the transport ------------------------------------------------------------- */

static struct pktbuf *on_get(void *context, const uint8_t source_mac[6])
{
	struct engine *engine = context;

	engine->out = (struct pktbuf){ .data = engine->buffer, .capacity = ENGINE_FRAME };
	return &engine->out;
}

static void on_put(void *context, struct pktbuf *packet, enum pktbuf_fate fate)
{
	((struct engine *)context)->frames_out += fate == PKTBUF_SEND;
}

static void on_event(void *context, const struct transport_event *event)
{
	if (event->type == TRANSPORT_QP_ERROR)
		abort(); /* the benchmark itself is wrong */
}

static void on_notify(void *context, uint32_t session)
{
}

/* --- creation --------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t least)
{
	uint32_t n = 64;

	while (n < least)
		n *= 2;
	return n;
}

static bool create_tables(struct engine *engine, unsigned int readers)
{
	const uint32_t qps = power_of_two(engine->qps + 2);
	const struct transport_sizes sizes = { .qps = qps,
					       .cqs = 4,
					       .srqs = 2,
					       .addresses = 4,
					       .resources = qps * RESOURCES_EACH,
					       .flights = 1024,
					       .workers = 1,
					       .sessions = 2 };
	const struct memory_sizes memory = { .tokens = power_of_two(2 * engine->windows + 4096),
					     .segments = 4,
					     .regions = 8,
					     .windows = engine->windows + 1026,
					     .pds = 4 };
	struct arena_spec spec[ARENA_TABLES] = { 0 };

	memory_arena_spec(&memory, spec);
	transport_arena_spec(&sizes, spec);
	return arena_create(&engine->arena, spec) == 0 &&
	       memory_create(&engine->memory, &engine->arena, readers, false) == 0 &&
	       transport_shared_create(&engine->shared, &engine->arena, engine->memory, &sizes,
				       false) == 0;
}

static bool create_region(struct engine *engine)
{
	int fd = shm_segment_create("oriel-micro", ENGINE_MEMORY, false);

	return fd >= 0 &&
	       segment_attach(engine->memory, ENGINE_SESSION, 1, fd, -1, &engine->segment) == 0 &&
	       pd_create(engine->memory, ENGINE_SESSION, &engine->pd) == 0 &&
	       region_create(engine->memory, ENGINE_SESSION, engine->pd, false, &engine->region) ==
		       0 &&
	       region_register(engine->memory, engine->region, engine->segment, 0, ENGINE_MEMORY,
			       ENGINE_BASE, RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE,
			       &engine->local_token, &engine->remote_token) == 0;
}

static bool create_worker(struct engine *engine)
{
	const struct transport_io io = { on_get, on_put, on_event, on_notify, engine };
	const size_t size = sizeof(struct shm_session) + sizeof(struct shm_worker_area);

	engine->session = aligned_alloc(64, (size + 63) & ~(size_t)63);
	if (!engine->session)
		return false;
	memset(engine->session, 0, size);
	engine->session->workers = 1;
	transport_set_session(engine->shared, ENGINE_SESSION, engine->session);
	if (transport_create(&engine->worker, engine->shared, 0, &io))
		return false;
	memory_reader_online(engine->memory, 0);
	transport_add_session(engine->worker, ENGINE_SESSION);
	return true;
}

static struct qp_connection connection_of(uint32_t i)
{
	struct qp_connection c = { .remote_qpn = 0x10000 + i,
				   .path_mtu = 1024,
				   .timeout = 18,
				   .retry_count = 7,
				   .rnr_retry = 7,
				   .max_reads_out = 16,
				   .max_reads_in = 16,
				   .remote_rights = RIGHTS_REMOTE };

	gid_from_v4(c.path.local_gid, (uint8_t[4]){ 10, 0, 0, 1 });
	gid_from_v4(c.path.remote_gid, (uint8_t[4]){ 10, 0, 0, 2 });
	c.path.local_mac[0] = c.path.remote_mac[0] = 2;
	c.path.hop_limit = 64;
	return c;
}

static bool create_queue_pair(struct engine *engine, uint32_t cq, uint32_t i)
{
	struct qp_config config = { .session = ENGINE_SESSION,
				    .pd = engine->pd,
				    .send_cq = cq,
				    .receive_cq = cq,
				    .type = SHM_QP_RC,
				    .send_depth = 16,
				    .receive_depth = 16,
				    .send_sge = 1,
				    .receive_sge = 1,
				    .doorbell = i % SHM_MAX_SESSION_QPS };
	struct qp_connection connection = connection_of(i);

	config.memory_size = qp_memory_size(&config);
	config.memory = calloc(1, config.memory_size);
	if (!config.memory)
		return false;
	engine->qp[i] = qp_create(engine->shared, &config);
	if (!engine->qp[i])
		return false;
	engine->qpn[i] = qp_number(engine->shared, engine->qp[i]);
	transport_attach(engine->worker, engine->qp[i], engine->now);
	return transport_connect(engine->worker, engine->qp[i], &connection, engine->now) == 0;
}

static bool create_queue_pairs(struct engine *engine)
{
	struct cq_config config = { .session = ENGINE_SESSION, .depth = 1024 };
	uint32_t cq;

	config.memory_size = cq_memory_size(config.depth, 1);
	config.memory = calloc(1, config.memory_size);
	cq = config.memory ? cq_create(engine->shared, &config) : 0;
	engine->qp = calloc(engine->qps, sizeof(*engine->qp));
	engine->qpn = calloc(engine->qps, sizeof(*engine->qpn));
	engine->psn = calloc(engine->qps, sizeof(*engine->psn));
	if (!cq || !engine->qp || !engine->qpn || !engine->psn)
		return false;
	for (uint32_t i = 0; i < engine->qps; i++)
		if (!create_queue_pair(engine, cq, i))
			return false;
	return true;
}

struct accessor engine_accessor(const struct engine *engine, uint32_t i)
{
	return (struct accessor){ .pd = engine->pd,
				  .qpn = engine->qpn[i],
				  .session = ENGINE_SESSION };
}

static bool create_windows(struct engine *engine)
{
	const struct accessor who = engine_accessor(engine, 0);

	engine->window = calloc(engine->windows + 1, sizeof(*engine->window));
	engine->token = calloc(engine->windows + 1, sizeof(*engine->token));
	if (!engine->window || !engine->token)
		return false;
	for (uint32_t i = 0; i < engine->windows; i++) {
		struct bind_request request = { .region = engine->region,
						.rights = RIGHTS_REMOTE,
						.address = ENGINE_BASE +
							   i * 64u % (ENGINE_MEMORY - 4096u),
						.length = 4096 };

		if (window_create(engine->memory, ENGINE_SESSION, engine->pd, &engine->window[i]) ||
		    token_reserve(engine->memory, ENGINE_SESSION, 1, &engine->token[i]) != 1)
			return false;
		request.window = engine->window[i];
		request.token = engine->token[i];
		if (window_bind(engine->memory, &who, &request) != ACCESS_OK)
			return false;
	}
	return true;
}

struct engine *engine_create(uint32_t qps, uint32_t windows, unsigned int readers)
{
	static const uint8_t mac[6] = { 2 };
	struct engine *engine = calloc(1, sizeof(*engine));
	uint8_t address[16];

	if (!engine)
		return NULL;
	engine->qps = qps;
	engine->windows = windows;
	engine->now = 1000000000;
	gid_from_v4(address, (uint8_t[4]){ 10, 0, 0, 1 });
	wire_usual_init(&engine->usual, mac, address);
	if (create_tables(engine, readers) && create_region(engine) && create_worker(engine) &&
	    create_queue_pairs(engine) && create_windows(engine)) {
		transport_poll(engine->worker, engine->now);
		return engine;
	}
	engine_destroy(engine);
	return NULL;
}

/* The process ends soon after: what the arena and the tables own goes with it. */
void engine_destroy(struct engine *engine)
{
	if (engine->worker)
		transport_destroy(engine->worker);
	if (engine->shared)
		transport_shared_destroy(engine->shared);
	if (engine->memory)
		memory_destroy(engine->memory);
	if (engine->arena.header)
		arena_destroy(&engine->arena);
	free(engine->session);
	free(engine->qp);
	free(engine->qpn);
	free(engine->psn);
	free(engine->window);
	free(engine->token);
	free(engine);
}

/* --- frames ----------------------------------------------------------------------------------- */

uint32_t engine_request(struct engine *engine, uint32_t i, uint8_t opcode, uint32_t token,
			uint32_t size, uint8_t *frame)
{
	struct frame_path path = { .hop_limit = 64, .source_port = 0xc000 };
	struct frame_template template;
	struct bth *bth;

	path.source_mac[0] = path.destination_mac[0] = 2;
	gid_from_v4(path.source_gid, (uint8_t[4]){ 10, 0, 0, 2 });
	gid_from_v4(path.destination_gid, (uint8_t[4]){ 10, 0, 0, 1 });
	frame_template_init(&template, &path);
	bth = (struct bth *)frame_begin(frame, &template, opcode);
	bth_set_qpn(bth, engine->qpn[i]);
	bth_set_psn(bth, engine->psn[i]);
	engine->psn[i] = psn_add(engine->psn[i], 1);
	if (opcode_table[opcode].flags & OPF_RETH) {
		struct reth *reth = (struct reth *)((uint8_t *)bth + opcode_table[opcode].reth);

		reth->va = be64_make(ENGINE_BASE);
		reth->rkey = be32_make(token);
		reth->length = be32_make(size);
	}
	if (!(opcode_table[opcode].flags & OPF_PAYLOAD))
		size = 0;
	memset((uint8_t *)bth + opcode_table[opcode].length, 0x5a, size);
	return frame_finish(frame, &template, NULL, size);
}
