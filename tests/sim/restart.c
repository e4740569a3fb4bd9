/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The death of a daemon, between two calls or within one, and the next one that adopts its
 * arena. Frames and events in its hands are lost; nothing else may be.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "loose.h"
#include "sim.h"

#define NEED(condition)                                                                          \
	do {                                                                                     \
		if (!(condition))                                                                \
			sim_fail(host->world, "adopting host %u: %s", host->number, #condition); \
	} while (0)

void host_may_die(struct host *host)
{
	if (!host->in_turn || host->kill_in == 0)
		return;
	if (host->kill_in > 1)
		host->kill_in--;
	else
		host_die(host);
}

void host_die(struct host *host)
{
	stores_end();
	longjmp(host->death, 1);
}

static void lose_frames(struct host *host)
{
	struct world *world = host->world;

	for (unsigned int i = 0; i < host->workers; i++) {
		host->worker[i].arrived_head = host->worker[i].arrived_tail;
		host->worker[i].returns = 0;
	}
	for (struct sim_buffer *buffer = world->all_buffers; buffer; buffer = buffer->older)
		if (buffer->holder == host)
			buffer_return(world, buffer);
}

/* All of the process is gone; what lies in memfds stays. */
static void bury(struct host *dead)
{
	for (unsigned int i = 0; i < dead->workers; i++)
		transport_destroy(dead->worker[i].transport);
	transport_shared_destroy(dead->shared);
	memory_destroy(dead->memory);
	arena_destroy(&dead->arena);
}

static void adopt_tables(struct host *host)
{
	const int arena = dup(host->arena.fd);
	struct arena_spec spec[ARENA_TABLES] = { 0 };

	NEED(arena >= 0);
	memory_arena_spec(&host->memory_sizes, spec);
	transport_arena_spec(&host->sizes, spec);
	NEED(arena_adopt(&host->arena, arena, spec) == 0);
	NEED(memory_create(&host->memory, &host->arena, host->workers, true) == 0);
	NEED(segment_adopt(host->memory, host->segment, dup(host->memfd)) == 0);
	NEED(transport_shared_create(&host->shared, &host->arena, host->memory, &host->sizes,
				     true) == 0);
	transport_set_session(host->shared, SIM_SESSION, host->session);
	host_set_congestion(host);
}

static void show_objects(struct host *host)
{
	const struct world *world = host->world;

	for (unsigned int i = 0; i < host->workers; i++)
		if (host->worker[i].srq)
			srq_set_memory(host->shared, host->worker[i].srq->index,
				       host->worker[i].srq->memory);
	if (host->shared_cq)
		cq_set_memory(host->shared, host->shared_cq->index, host->shared_cq->memory);
	for (uint32_t i = 0; i < world->config.pairs; i++) {
		const struct end *end = &world->pair[i].end[host->number];

		if (end->index == 0)
			continue;
		cq_set_memory(host->shared, end->send_cq->index, end->send_cq->memory);
		cq_set_memory(host->shared, end->receive_cq->index, end->receive_cq->memory);
		qp_set_memory(host->shared, end->index, end->config.memory);
	}
	loose_show(host);
}

/* What the control core had asked for, and not been told of, it asks for again. */
static void resume_end(struct end *end)
{
	struct host *host = end->host;
	const uint64_t now = end->pair->world->now;
	struct transport *transport;

	end->worker = qp_home(host->shared, end->index);
	end->moving = end->move_wanted = false;
	transport = host->worker[end->worker].transport;
	judge_adopted(end);

	transport_attach(transport, end->index, now);
	if (end->flush_asked && !end->flushed)
		transport_flush(transport, end->index, now);
	if (qp_get_state(end->host->shared, end->index) != QP_ERROR)
		end->nak_taken = false;
	end->accepted = end->finished;
	end->rnr_until = 0;
	end->rnr_waits = false;
	end->restarts++;
	for (int i = 0; i < 8; i++)
		pair_trouble(end->pair);
}

void host_restart(struct host *host)
{
	const struct world *world = host->world;
	struct host dead = *host;

	sim_log(host->world, "host %u dies%s", host->number,
		host->in_turn ? " within a call" : " between two calls");
	host->in_turn = false;
	host->kill_in = host->stores_left = host->die_over = host->record_stores = 0;
	host->placing = false;
	lose_frames(host);
	/* What is still mapped makes all addresses new ones. */
	adopt_tables(host);
	show_objects(host);
	for (unsigned int i = 0; i < host->workers; i++)
		host_start_worker(&host->worker[i], true);
	for (uint32_t i = 0; i < world->config.pairs; i++)
		if (world->pair[i].end[host->number].index)
			resume_end(&host->world->pair[i].end[host->number]);
	loose_resume(host);
	bury(&dead);
	host->generation++;
	host->world->statistics.restarts++;
}
