/* SPDX-License-Identifier: BSD-3-Clause */
/* A host: what a daemon and its one client have in memory, and its workers' turns. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/segment.h"
#include "shm/spsc.h"
#include "loose.h"
#include "sim.h"
#include "wire/icrc.h"

#define NEED(condition)                                                                      \
	do {                                                                                 \
		if (!(condition))                                                            \
			sim_fail(world, "setting up host %u: %s", host->number, #condition); \
	} while (0)

/* --- buffers ---------------------------------------------------------------------- */

struct sim_buffer *buffer_take(struct world *world)
{
	struct sim_buffer *buffer = world->free_buffers;

	if (buffer) {
		world->free_buffers = buffer->next;
	} else {
		buffer = malloc(sizeof(*buffer));
		if (buffer == NULL)
			sim_fail(world, "no memory for frames");
		buffer->older = world->all_buffers;
		world->all_buffers = buffer;
	}
	buffer->given = false;
	buffer->unkept = buffer->fatal = buffer->rnr = false;
	buffer->future = buffer->again = buffer->gap = false;
	buffer->take = 0;
	buffer->holder = NULL;
	buffer->packet =
		(struct pktbuf){ .data = buffer->bytes, .capacity = sizeof(buffer->bytes) };
	world->buffers++;
	return buffer;
}

void buffer_return(struct world *world, struct sim_buffer *buffer)
{
	buffer->holder = NULL;
	buffer->next = world->free_buffers;
	world->free_buffers = buffer;
	world->buffers--;
}

/* --- what surrounds a transport --------------------------------------------------- */

static struct pktbuf *io_get(void *context, const uint8_t source_mac[6])
{
	struct sim_worker *worker = context;
	struct sim_buffer *buffer;

	(void)source_mac;
	if (worker->room == 0)
		return NULL;
	worker->room--;
	buffer = buffer_take(worker->host->world);
	buffer->holder = worker->host;
	buffer->given = true;
	host_may_die(worker->host);
	return &buffer->packet;
}

static void io_put(void *context, struct pktbuf *packet, enum pktbuf_fate fate)
{
	struct sim_worker *worker = context;
	struct world *world = worker->host->world;
	struct sim_buffer *buffer = (struct sim_buffer *)(void *)packet;

	buffer->holder = NULL;
	if (fate == PKTBUF_SEND)
		network_send(world, worker->host, buffer);
	else
		buffer_return(world, buffer);
	/* One that was not needed can be had again. */
	if (fate != PKTBUF_SEND && buffer->given && worker->room != UINT32_MAX)
		worker->room++;
	buffer->given = false;
	host_may_die(worker->host);
}

static void io_event(void *context, const struct transport_event *event)
{
	struct sim_worker *worker = context;
	struct world *world = worker->host->world;
	struct end *end;

	host_may_die(worker->host);
	sim_log(world, "host %u event %u of %u: %u async %u", worker->host->number, event->type,
		event->object, event->value, event->async);
	if (++worker->events > 100000)
		sim_fail(world, "host %u: a turn of worker %u does not end", worker->host->number,
			 worker->number);
	if (event->type == TRANSPORT_SRQ_LIMIT || event->type == TRANSPORT_CQ_ERROR) {
		if (event->type == TRANSPORT_SRQ_LIMIT)
			srq_limit_event(worker->host, event->object, event->value);
		else
			loose_overrun(worker->host, event->object);
		host_may_die(worker->host);
		return;
	}
	if (event->type >= TRANSPORT_SRQ_LIMIT && event->type != TRANSPORT_BAD_TOKEN)
		sim_fail(world, "host %u: event %u, value %u, that nothing gives cause for",
			 worker->host->number, event->type, event->value);
	if (event->type < TRANSPORT_SRQ_LIMIT || event->type == TRANSPORT_BAD_TOKEN)
		if (loose_event(worker->host, event))
			return;
	end = host_find_index(worker->host, event->object);
	if (end == NULL)
		sim_fail(world, "host %u: event %u of queue pair %u, which is not there",
			 worker->host->number, event->type, event->object);
	switch (event->type) {
	case TRANSPORT_QP_ERROR:
		if (end->nak_owed && event->async && !end->flush_asked)
			sim_fail(world, "pair %u end %u ends without the NAK that it owes",
				 end->pair->number, end->side);
		end->error_events++;
		end->error_async = event->async;
		break;
	case TRANSPORT_QP_ESTABLISHED: end->established_events++; break;
	case TRANSPORT_QP_FLUSHED: end->flushed = true; break;
	case TRANSPORT_QP_LAST_WQE:
		end->last_receive_events++;
		worker->host->told_last = true;
		break;
	case TRANSPORT_BAD_TOKEN: end->bad_token_events++; break;
	default:
		sim_fail(world, "host %u: event %u of queue pair %u", worker->host->number,
			 event->type, event->object);
	}
	host_may_die(worker->host);
}

static void io_notify(void *context, uint32_t session)
{
	struct sim_worker *worker = context;

	if (session != SIM_SESSION)
		sim_fail(worker->host->world, "notification of session %u", session);
	worker->host->notified = true;
}

/* --- completion queues ----------------------------------------------------- */

struct sim_cq *cq_open(struct host *host, uint32_t depth, uint32_t notify)
{
	struct world *world = host->world;
	struct cq_config config = { .session = SIM_SESSION, .depth = depth, .notify = notify };
	struct sim_cq *cq = calloc(1, sizeof(*cq));

	NEED(cq != NULL);
	config.memory_size = cq_memory_size(depth, host->workers);
	config.memory = aligned_alloc(64, (config.memory_size + 63) & ~63ull);
	NEED(config.memory != NULL);
	memset(config.memory, 0, config.memory_size);
	cq->host = host;
	cq->depth = depth;
	cq->notify = notify;
	cq->memory = config.memory;
	cq->index = cq_create(host->shared, &config);
	NEED(cq->index != 0);
	return cq;
}

void cq_close(struct sim_cq *cq)
{
	cq_destroy(cq->host->shared, cq->index);
	free(cq->memory);
	free(cq);
}

/* --- tokens ---------------------------------------------------------------- */

void token_list_add(struct token_list *list, uint32_t token)
{
	if (list->count == list->size) {
		list->size = list->size ? 2 * list->size : 64;
		list->token = realloc(list->token, list->size * sizeof(*list->token));
		if (list->token == NULL)
			abort();
	}
	list->token[list->count++] = token;
}

static void check_fresh(const struct host *host, uint32_t token)
{
	for (uint32_t k = 0; k < SIM_DEAD; k++)
		if (host->dead[k].token == token)
			sim_fail(host->world, "token %#x came back", token);
}

#define SHORTEST_LEASE 4096u /* invalidates of one place, at least */

/* Tokens that workers put back into the session's stock. */
static void collect_stock(struct host *host)
{
	for (unsigned int i = 0; i < host->workers; i++) {
		struct shm_worker_area *area = &host->session->worker[i];
		uint32_t *head = &host->stock_head[i];

		while (*head != shm_load_acquire(&area->stock_cursor.tail)) {
			uint32_t token = area->stock[*head & (SHM_STOCK_ENTRIES - 1)];

			check_fresh(host, token);
			token_list_add(&host->stock, token);
			host->returned++;
			++*head;
		}
		shm_store_release(&area->stock_cursor.head, *head);
	}
}

/*
 * Reserved are those in the client's hands. A kill between a token's recycling and its return costs
 * the session this one.
 */
void host_check_tokens(struct host *host)
{
	const uint64_t deaths = host->world->statistics.restarts;
	struct memory_usage usage;

	collect_stock(host);
	memory_usage(host->memory, &usage);
	if (usage.tokens_reserved < host->stock.count ||
	    usage.tokens_reserved > host->stock.count + deaths)
		sim_fail(host->world, "host %u: %u tokens are reserved, and its client has %u",
			 host->number, usage.tokens_reserved, host->stock.count);
}

/* Who dies in between loses one; and now and then one is at the end of its lease. */
void host_check_returned(struct host *host)
{
	const uint32_t ended = host->deads / SHORTEST_LEASE;

	collect_stock(host);
	if (host->returned + host->world->statistics.restarts + ended < host->deads)
		sim_fail(host->world, "host %u: of %u invalidated tokens %u have come back",
			 host->number, host->deads, host->returned);
}

uint32_t host_newest_token(struct host *host)
{
	const uint32_t before = host->stock.count;

	collect_stock(host);
	return host->stock.count == before + 1 ? host->stock.token[before] : 0;
}

uint32_t host_take_token(struct host *host)
{
	struct token_list *stock = &host->stock;
	uint32_t pick, token;

	collect_stock(host);
	/* Few: a slot soon comes back under its next token. */
	if (stock->count < 2) {
		uint32_t fresh[4];
		unsigned int got = token_reserve(host->memory, SIM_SESSION, 4, fresh);

		for (unsigned int i = 0; i < got; i++)
			token_list_add(stock, fresh[i]);
	}
	if (stock->count == 0)
		sim_fail(host->world, "host %u has no tokens left", host->number);
	pick = rng_below(&host->world->traffic, stock->count);
	token = stock->token[pick];
	stock->token[pick] = stock->token[--stock->count];
	check_fresh(host, token);
	return token;
}

/* --- set-up ---------------------------------------------------------------- */

uint64_t host_address(const struct host *host, uint32_t offset)
{
	return host->base + offset;
}

struct shm_sge host_sge(const struct host *host, struct rng *rng, uint32_t offset, uint32_t length)
{
	const uint32_t way = rng_below(rng, 16);

	/* One of no bytes may name anything. */
	if (length == 0 && way % 2)
		return (struct shm_sge){ (uint64_t)way << 60, 0, way };
	if (way == 0)
		return (struct shm_sge){ (uint64_t)host->segment << LOGICAL_OFFSET_BITS | offset,
					 length, memory_privileged_token(host->memory) };
	return (struct shm_sge){ host_address(host, offset), length, host->local[way % 2] };
}

/* Tokens and QPNs follow from the seed as well. */
static void set_keys(struct host *host)
{
	struct rng rng;

	rng_seed(&rng, host->world->config.seed,
		 config_stream(&host->world->config, 100 + host->number));
	rng_fill(&rng, host->arena.header->token_key, sizeof(host->arena.header->token_key));
	rng_fill(&rng, host->arena.header->qpn_key, sizeof(host->arena.header->qpn_key));
}

static void create_tables(struct host *host)
{
	struct world *world = host->world;
	struct arena_spec spec[ARENA_TABLES] = { 0 };

	host->memory_sizes = (struct memory_sizes){
		.tokens = 8192, .segments = 4, .regions = 128, .windows = 512, .pds = 8
	};
	host->sizes =
		(struct transport_sizes){ .qps = 256,
					  .cqs = 256,
					  .srqs = 2 + SIM_WORKERS + 2 * SIM_LOOSE,
					  .addresses = 64,
					  .resources = 256 * 16,
					  .flights = world->config.flights * host->workers + 1,
					  .workers = host->workers,
					  .sessions = SIM_SESSION + 1 };
	memory_arena_spec(&host->memory_sizes, spec);
	transport_arena_spec(&host->sizes, spec);
	NEED(arena_create(&host->arena, spec) == 0);
	set_keys(host);
	NEED(memory_create(&host->memory, &host->arena, host->workers, false) == 0);
	NEED(transport_shared_create(&host->shared, &host->arena, host->memory, &host->sizes,
				     false) == 0);
	host_set_congestion(host);
}

void host_set_congestion(struct host *host)
{
	struct congestion_parameters parameters;

	if (host->world->config.mark == 0)
		return;
	congestion_defaults(&parameters, host->world->config.line);
	transport_set_congestion(host->shared, &parameters);
}

/* The second host's memory lies at the end of the address space, where sums overflow. */
static void choose_base(struct host *host)
{
	const uint64_t odd = 8 * rng_below(&host->world->schedule, 1000);

	host->base = host->number ? 0ull - host->size - odd : 0x7f0000000000ull + odd;
}

static void create_region(struct host *host, uint32_t pd, uint32_t access, uint32_t *region,
			  uint32_t *local, uint32_t *remote)
{
	struct world *world = host->world;

	NEED(region_create(host->memory, SIM_SESSION, pd, false, region) == 0);
	/* Not the last guard: one byte too far then is a byte that the model watches. */
	NEED(region_register(host->memory, *region, host->segment, AREA_GUARD,
			     host->size - 2 * AREA_GUARD, host_address(host, AREA_GUARD), access,
			     local, remote) == 0);
}

/* Aligned for those who use it, and not for us. */
static void create_crooked(struct host *host, uint32_t access)
{
	struct world *world = host->world;
	uint32_t unused;

	NEED(region_create(host->memory, SIM_SESSION, host->pd, false, &host->crooked_region) == 0);
	NEED(region_register(host->memory, host->crooked_region, host->segment, AREA_GUARD - 4,
			     host->size - 2 * AREA_GUARD, host_address(host, AREA_GUARD), access,
			     &unused, &host->crooked) == 0);
}

/* A window over all of the other domain's region, and a region that could be registered. */
static void fill_other_domain(struct host *host)
{
	uint32_t local, remote;
	struct world *world = host->world;
	const struct accessor who = { .session = SIM_SESSION, .pd = host->other_pd };
	struct bind_request request = {
		.region = host->other_region,
		.rights = RIGHTS_REMOTE,
		.address = host_address(host, AREA_GUARD),
		.length = host->size - 2 * AREA_GUARD,
	};

	NEED(window_create(host->memory, SIM_SESSION, host->other_pd, &host->other_window) == 0);
	NEED(token_reserve(host->memory, SIM_SESSION, 1, &host->other_window_token) == 1);
	request.window = host->other_window;
	request.token = host->other_window_token;
	NEED(window_bind(host->memory, &who, &request) == ACCESS_OK);
	NEED(region_create(host->memory, SIM_SESSION, host->other_pd, true, &host->other_fast) ==
	     0);
	NEED(region_init_fast_register(host->memory, host->other_fast, FAST_PAGES, true, &local,
				       &remote) == 0);
}

/* A region whose end has begun, so that its tokens are dead, and whose slots are not free yet. */
static void create_gone(struct host *host, uint32_t access)
{
	struct world *world = host->world;
	uint64_t grace;

	create_region(host, host->pd, access, &host->gone_region, &host->gone[0], &host->gone[1]);
	NEED(region_deregister(host->memory, host->gone_region, &grace) == 0);
}

static void create_memory(struct host *host)
{
	struct world *world = host->world;
	const uint32_t all = RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE;
	uint32_t unused;
	void *address;
	struct rng rng;
	int fd;

	fd = shm_segment_create("oriel-sim", host->size, false);
	NEED(fd >= 0);
	NEED(shm_segment_map(fd, host->size, true, &address) == 0);
	host->bytes = address;
	host->model = malloc(host->size);
	NEED(host->model != NULL);
	rng_seed(&rng, world->config.seed, config_stream(&world->config, 200 + host->number));
	rng_fill(&rng, host->model, host->size);
	memcpy(host->bytes, host->model, host->size);
	host->memfd = dup(fd);
	NEED(host->memfd >= 0);
	NEED(segment_attach(host->memory, SIM_SESSION, 1, fd, -1, &host->segment) == 0);
	NEED(pd_create(host->memory, SIM_SESSION, &host->pd) == 0);
	NEED(pd_create(host->memory, SIM_SESSION, &host->other_pd) == 0);
	create_region(host, host->pd, all, &host->region, &host->local[0], &host->remote);
	create_region(host, host->pd, all, &host->second_region, &host->local[1], &unused);
	create_region(host, host->other_pd, all, &host->other_region, &host->other_local,
		      &host->other_remote);
	create_region(host, host->pd, RIGHT_LOCAL_READ | RIGHT_REMOTE_READ, &host->read_region,
		      &host->read_only, &unused);
	create_crooked(host, all);
	create_gone(host, all);
	fill_other_domain(host);
}

static void find_mapping(struct host *host)
{
	const struct accessor who = { .pd = host->pd, .session = SIM_SESSION };
	struct world *world = host->world;
	struct access access;

	NEED(memory_access(host->memory, &who, host->local[0], host_address(host, AREA_GUARD), 1,
			   RIGHT_LOCAL_READ, &access) == ACCESS_OK);
	host->mapped = (const uint8_t *)access.pointer - AREA_GUARD;
}

void host_start_worker(struct sim_worker *worker, bool adopted)
{
	const struct transport_io io = { io_get, io_put, io_event, io_notify, worker };
	struct host *host = worker->host;
	struct world *world = host->world;

	worker->room = UINT32_MAX;
	worker->fresh = adopted;
	find_mapping(host);
	NEED(transport_create(&worker->transport, host->shared, worker->number, &io) == 0);
	memory_reader_online(host->memory, worker->number);
	if (adopted)
		transport_adopt_session(worker->transport, SIM_SESSION);
	else
		transport_add_session(worker->transport, SIM_SESSION);
}

static void create_workers(struct host *host)
{
	struct world *world = host->world;
	const size_t size = sizeof(*host->session) + host->workers * sizeof(struct shm_worker_area);

	host->session = aligned_alloc(64, (size + 63) & ~(size_t)63);
	NEED(host->session != NULL);
	memset(host->session, 0, size);
	host->session->workers = host->workers;
	transport_set_session(host->shared, SIM_SESSION, host->session);
	for (unsigned int i = 0; i < host->workers; i++) {
		host->worker[i].host = host;
		host->worker[i].number = i;
		host_start_worker(&host->worker[i], false);
	}
}

void host_create(struct world *world, unsigned int number)
{
	struct host *host = &world->host[number];
	const uint8_t letter = (uint8_t)(number + 1);

	host->world = world;
	host->number = number;
	host->workers = world->config.workers[number];
	host->size = 2 * AREA_GUARD + AREA_SHARED + AREA_GUARD +
		     world->config.pairs * (AREA_SOURCE + AREA_SINK + AREA_TARGET + AREA_STRIP +
					    AREA_RECEIVE + 5 * AREA_GUARD) +
		     world->looses * AREA_LOOSE + SIM_WORKERS * (AREA_SRQ + AREA_GUARD);
	choose_base(host);
	memcpy(host->mac, (uint8_t[6]){ 2, 0, 0, 0, 0, letter }, 6);
	memcpy(host->v4, (uint8_t[16]){ [10] = 255, 255, 10, 0, 0, letter }, 16);
	memcpy(host->v6, (uint8_t[16]){ 0xfd, [15] = letter }, 16);
	wire_usual_init(&host->usual, host->mac, host->v4);
	create_tables(host);
	create_memory(host);
	create_workers(host);
	for (unsigned int i = 0; i < host->workers && world->config.shared_receives; i++)
		srq_open(&host->worker[i]);
	if (world->config.shared_cq)
		host->shared_cq = cq_open(host, world->config.pairs * 2 * SIM_RING, 0);
}

/* The last window is the other domain's; behind it nothing holds them. */
static void end_regions(struct host *host)
{
	const uint32_t region[] = { host->region, host->second_region, host->other_region,
				    host->read_region, host->crooked_region };
	uint64_t grace;

	if (window_destroy(host->memory, host->other_window, &grace))
		sim_fail(host->world, "host %u: a window cannot be destroyed", host->number);
	window_destroy_finish(host->memory, host->other_window);
	if (region_deregister(host->memory, host->other_fast, &grace))
		sim_fail(host->world, "host %u: a region cannot be given up", host->number);
	region_deregister_finish(host->memory, host->other_fast);
	for (unsigned int i = 0; i < sizeof(region) / sizeof(region[0]); i++) {
		if (region_deregister(host->memory, region[i], &grace))
			sim_fail(host->world, "host %u: region %u cannot be deregistered",
				 host->number, region[i]);
		region_deregister_finish(host->memory, region[i]);
	}
	region_deregister_finish(host->memory, host->gone_region);
	if (segment_detach(host->memory, host->segment))
		sim_fail(host->world, "host %u: its memory is said to be registered still",
			 host->number);
}

void host_destroy(struct host *host)
{
	struct world *world = host->world;

	if (host->shared_cq)
		cq_close(host->shared_cq);
	for (unsigned int i = 0; i < host->workers; i++) {
		struct sim_worker *worker = &host->worker[i];

		while (worker->arrived_head != worker->arrived_tail)
			buffer_return(world, worker->arrived[worker->arrived_head++ &
							     (worker->arrived_size - 1)]);
		srq_close(worker);
		transport_remove_session(worker->transport, SIM_SESSION);
		transport_destroy(worker->transport);
		free(worker->arrived);
	}
	end_regions(host);
	transport_shared_destroy(host->shared);
	memory_destroy(host->memory);
	arena_destroy(&host->arena);
	munmap(host->bytes, host->size);
	close(host->memfd);
	free(host->model);
	free(host->session);
	free(host->stock.token);
}

/* --- finding ends ---------------------------------------------------------- */

struct end *host_find_index(struct host *host, uint32_t index)
{
	for (uint32_t i = 0; i < host->world->config.pairs; i++) {
		struct end *end = &host->world->pair[i].end[host->number];

		if (index && end->index == index)
			return end;
	}
	return NULL;
}

struct end *host_find_number(struct host *host, uint32_t number)
{
	for (uint32_t i = 0; i < host->world->config.pairs; i++) {
		struct end *end = &host->world->pair[i].end[host->number];

		if (end->index && end->number == number)
			return end;
	}
	return NULL;
}
