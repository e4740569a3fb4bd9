/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Live queue pairs go from one worker to another, in the middle of whatever is under way: asked
 * for by the world, done in the turns of both workers, with the message between them in the queue
 * where frames arrive. Frames that come to the old home meanwhile are handed on.
 */
#include "sim.h"

void move_some(struct world *world)
{
	struct rng *rng = &world->schedule;
	struct pair *pair;
	struct end *end;

	if (world->config.move_every_us == 0 || world->now < world->next_move)
		return;
	world->next_move =
		world->now + 1000ull * rng_between(rng, 1, 2 * world->config.move_every_us);
	pair = &world->pair[rng_below(rng, world->config.pairs)];
	end = &pair->end[rng_below(rng, 2)];
	if (pair->state == PAIR_GONE || end->moving)
		return;
	end->move_wanted = true;
	end->move_to = rng_below(rng, end->host->workers);
}

/* What has arrived and was not looked at yet goes along, as in lib/net nothing is overtaken. */
static void take_along(struct sim_worker *worker, uint32_t index, struct sim_worker *to)
{
	const uint32_t mask = worker->arrived_size - 1, tail = worker->arrived_tail;
	struct wire_view view;

	worker->arrived_tail = worker->arrived_head;
	for (uint32_t i = worker->arrived_head; i != tail; i++) {
		struct sim_buffer *buffer = worker->arrived[i & mask];

		if (!buffer->take &&
		    wire_parse(buffer->bytes, buffer->packet.length, &view) == WIRE_OK &&
		    qp_find(worker->host->shared, view.qpn) == index)
			worker_queue(to, buffer);
		else
			worker->arrived[worker->arrived_tail++ & mask] = buffer;
	}
}

static void leave(struct sim_worker *worker, struct end *end)
{
	struct world *world = worker->host->world;
	struct sim_worker *to = &worker->host->worker[end->move_to];
	struct sim_buffer *message;
	struct pktbuf *packet;

	end->move_wanted = false;
	if (to == worker || transport_may_move(worker->host->shared, end->index))
		return;
	message = buffer_take(world);
	message->take = end->index;
	worker_queue(to, message);
	while ((packet = transport_unpark(worker->transport, end->index)))
		worker_queue(to, (struct sim_buffer *)(void *)packet);
	take_along(worker, end->index, to);
	if (transport_release(worker->transport, end->index, to->number, world->now))
		sim_fail(world, "pair %u end %u does not leave its worker", end->pair->number,
			 end->side);
	end->moving = true;
	worker->host->moves++;
	world->statistics.moves++;
	sim_log(world, "pair %u end %u leaves worker %u for worker %u", end->pair->number,
		end->side, worker->number, to->number);
}

void move_turn(struct sim_worker *worker)
{
	struct host *host = worker->host;
	const struct world *world = host->world;

	for (uint32_t i = 0; i < world->config.pairs; i++) {
		struct end *end = &world->pair[i].end[host->number];

		if (end->move_wanted && end->index && end->worker == worker->number)
			leave(worker, end);
	}
}

static void arrive(struct sim_worker *worker, uint32_t index)
{
	struct end *end = host_find_index(worker->host, index);

	transport_take(worker->transport, index, worker->host->world->now);
	if (end == NULL)
		return;
	end->worker = worker->number;
	end->moving = false;
	if (end->flush_asked && !end->flushed)
		transport_flush(worker->transport, index, worker->host->world->now);
}

bool move_receive(struct sim_worker *worker, struct sim_buffer *buffer, uint32_t qpn)
{
	struct host *host = worker->host;
	uint32_t index, home;

	if (buffer->take) {
		arrive(worker, buffer->take);
		buffer_return(host->world, buffer);
		return true;
	}
	index = qp_find(host->shared, qpn);
	home = index ? qp_home(host->shared, index) : worker->number;
	if (home == worker->number)
		return false;
	worker_queue(&host->worker[home], buffer);
	return true;
}

/* --- records of requests ---------------------------------------------------------- */

void move_return_flights(struct sim_worker *worker)
{
	struct host *host = worker->host;
	uint32_t abroad = transport_flights_abroad(worker->transport);

	while (worker->returns)
		transport_flights_return(worker->transport, worker->returned[--worker->returns]);
	for (; abroad; abroad &= abroad - 1) {
		const unsigned int owner = (unsigned int)__builtin_ctz(abroad);
		struct sim_worker *to = &host->worker[owner];

		if (to->returns < SIM_RETURNS)
			to->returned[to->returns++] =
				transport_flights_leave(worker->transport, owner);
	}
}
