/* SPDX-License-Identifier: BSD-3-Clause */
/* A worker's turn: what has arrived, what moves, the transport's poll; and what each changes. */
#include "loose.h"
#include "peek.h"
#include "sim.h"
#include "transport/verdict.h"

/* A refusal that arrives ends the queue pair at once: with its own status and no other. */
static void watch_fatal_nak(struct sim_worker *worker, const struct wire_view *view, bool fatal,
			    bool after)
{
	struct end *end = fatal ? host_find_number(worker->host, view->qpn) : NULL;

	if (end == NULL)
		return;
	if (!after && qp_get_state(worker->host->shared, end->index) == QP_RTS)
		/* It may refuse a late copy of a READ that was answered before its window died. */
		end->nak_taken |= !peek_is_ghost(&end->host->arena, end->index, view->psn);
	else if (after && end->nak_taken &&
		 qp_get_state(worker->host->shared, end->index) != QP_ERROR)
		sim_fail(worker->host->world, "host %u: queue pair %#x lives on after a NAK %#x",
			 worker->host->number, end->number, view_aeth(view)->syndrome);
}

/* Where daemons die, they do so now and then while they refuse something. */
static bool refusal_begins(const struct end *end, const struct wire_view *view)
{
	const struct op *op = end->peer->fault;

	return op && fault_async(op->fault) && (view->op->flags & OPF_REQUEST) &&
	       (view->psn - op->psn) % 0x1000000 < op->packets;
}

static void may_die_over(struct end *end, const struct sim_buffer *buffer,
			 const struct wire_view *view)
{
	struct rng *rng = &end->pair->world->schedule;
	struct host *host = end->host;

	if (end->pair->world->config.restart_every_us == 0)
		return;
	if (refusal_begins(end, view) && rng_percent(rng, 25))
		host->stores_left = rng_between(rng, 1, 300);
	if (buffer->fatal && rng_percent(rng, 25))
		host->stores_left = rng_between(rng, 1, 60);
	if (host->die_over == view->opcode && host->die_over) {
		host->stores_left = rng_between(rng, 1, rng_percent(rng, 50) ? 40 : 100);
		host->die_over = 0;
	}
}

static void note_arrival(struct sim_worker *worker, const struct sim_buffer *buffer,
			 const struct wire_view *view)
{
	struct end *end = host_find_number(worker->host, view->qpn);
	struct loose_end *loose = end ? NULL : loose_find(worker->host, view->qpn);

	if (loose) {
		loose->frames_come++;
		loose_came(loose, view->psn);
	}
	if (end == NULL)
		return;
	may_die_over(end, buffer, view);
	end->arrival = end->pair->world->now;
	if (view->opcode == 0x81)
		witness_cnp(end);
	else if ((view->traffic_class & 3) == 3 || view->fecn)
		witness_mark(end);
	if (buffer->gap && !buffer->future)
		witness_gap(end, view->psn);
	if ((view->op->flags & OPF_REQUEST) && view->opcode < 0x20)
		witness_request(end, view->psn, !buffer->unkept);
	if (buffer->rnr && !buffer->future)
		witness_rnr(end, view->psn, view_aeth(view)->syndrome & 0x1f);
	if ((view->opcode == 0x16 || view->opcode == 0x17) &&
	    (end->inv_generation == 0 ||
	     (view->psn - end->last_inv_psn - 1) % 0x1000000 < 0x7fffff)) {
		end->last_inv_psn = view->psn;
		window_note_turns(end->host, end->inv_turns, &end->inv_generation);
	}
}

static uint64_t count_accepted(const struct sim_worker *worker)
{
	const struct transport_stats *stats = transport_get_stats(worker->transport);

	return stats->rx_read + stats->rx_atomic;
}

/* Hands it to the transport, and notes what that changes. Whether it was kept. */
static bool offer(struct sim_worker *worker, struct sim_buffer *buffer,
		  const struct wire_view *view)
{
	struct world *world = worker->host->world;
	struct end *end = host_find_number(worker->host, view->qpn);
	struct pktbuf *keep = buffer->unkept ? NULL : &buffer->packet;
	const uint32_t oldest = end ? peek_oldest(&worker->host->arena, end->index) : 0;
	const uint64_t accepted = count_accepted(worker);
	const struct transport_stats *stats = transport_get_stats(worker->transport);
	const uint64_t cuts = stats->rate_cuts;
	bool kept;

	worker->host->placing = true;
	worker->host->placed = 0;
	kept = transport_receive(worker->transport, view, keep, world->now);
	worker->host->placing = false;
	if (kept && keep == NULL)
		sim_fail(world, "a frame was kept that must not be");
	if (end == NULL)
		return kept;
	if (view->opcode == 0x81 && qp_get_state(worker->host->shared, end->index) == QP_RTS)
		witness_cut(end, stats->rate_cuts != cuts);
	if (count_accepted(worker) != accepted)
		witness_accepted(end, count_accepted(worker) - accepted);
	if (oldest != peek_oldest(&worker->host->arena, end->index)) {
		end->progressed = world->now;
		end->rnr_since = end->gap_since = false;
		end->asks = end->tries = end->returns = 0;
	}
	end->rnr_since |= buffer->rnr;
	end->gap_since |= buffer->gap;
	return kept;
}

/*
 * A late copy that asks for something else than the original, which was carried out: nobody answers
 * it. Whether this was one.
 */
static bool receive_changed(struct sim_worker *worker, struct sim_buffer *buffer,
			    const struct wire_view *view)
{
	struct world *world = worker->host->world;
	const struct end *end = host_find_number(worker->host, view->qpn);
	struct wire_view changed;
	const char *what;
	uint32_t verdict;

	if (end == NULL || !peek_is_past(&worker->host->arena, end->index, view->psn))
		return false;
	what = forge_again(world, end, buffer);
	if (what == NULL)
		return false;
	if (wire_parse(buffer->bytes, buffer->packet.length, &changed) != WIRE_OK)
		sim_fail(world, "a duplicate with %s cannot be read", what);
	/* Kept behind others, it comes to nothing later. */
	if (transport_receive(worker->transport, &changed, &buffer->packet, world->now))
		return true;
	verdict = transport_last_verdict(worker->transport);
	if (verdict == 0 || verdict == VERDICT(DUPLICATE))
		sim_fail(world, "pair %u end %u: a duplicate, PSN %06x, with %s was taken",
			 end->pair->number, end->side, changed.psn, what);
	buffer_return(world, buffer);
	return true;
}

static void receive_one(struct sim_worker *worker, struct sim_buffer *buffer)
{
	struct world *world = worker->host->world;
	struct wire_view view = { 0 };
	struct end *end;

	if (!buffer->take && wire_parse(buffer->bytes, buffer->packet.length, &view) != WIRE_OK)
		sim_fail(world, "a frame is good, and a moment later it is not");
	if (move_receive(worker, buffer, view.qpn))
		return;
	end = buffer->again ? host_find_number(worker->host, view.qpn) : NULL;
	if (end && forge_piece(world, end, buffer)) {
		buffer->again = false;
		pair_trouble(end->pair);
	}
	if (buffer->again && receive_changed(worker, buffer, &view))
		return;
	if (wire_parse(buffer->bytes, buffer->packet.length, &view) == WIRE_OK && buffer->future) {
		end = host_find_number(worker->host, view.qpn);
		if (end)
			forge_future(world, end, buffer);
	}
	/* It was looked at when it arrived. */
	if (wire_parse(buffer->bytes, buffer->packet.length, &view) != WIRE_OK)
		sim_fail(world, "a frame is good, and a moment later it is not");
	watch_fatal_nak(worker, &view, buffer->fatal, false);
	note_arrival(worker, buffer, &view);
	if (offer(worker, buffer, &view))
		return;
	watch_fatal_nak(worker, &view, buffer->fatal, true);
	buffer_return(world, buffer);
}

/* The burst as lib/net looks it up: the same queue pairs as one by one. */
static void look_up(struct sim_worker *worker)
{
	const struct transport_shared *shared = worker->host->shared;
	struct wire_view view[TRANSPORT_BURST];
	uint32_t qp[TRANSPORT_BURST];
	unsigned int count = 0;

	for (uint32_t i = worker->arrived_head; i != worker->arrived_tail; i++) {
		const struct sim_buffer *buffer = worker->arrived[i & (worker->arrived_size - 1)];

		if (count == TRANSPORT_BURST)
			break;
		if (!buffer->take &&
		    wire_parse(buffer->bytes, buffer->packet.length, &view[count]) == WIRE_OK)
			count++;
	}
	if (count == 0)
		return;
	if (transport_look_up(worker->transport, view, qp, count))
		transport_fetch_targets(worker->transport, view, count);
	for (unsigned int i = 0; i < count; i++)
		if (qp_confirm(shared, qp[i], view[i].qpn) != qp_find(shared, view[i].qpn))
			sim_fail(worker->host->world, "host %u: queue pair %#x is not found",
				 worker->host->number, view[i].qpn);
}

/*
 * For longer than all retries take, there are no buffers on either side. What was never sent has
 * not failed, so this costs one retry at most: the one of what was on its way.
 */
static bool is_stalled(struct world *world)
{
	struct rng *rng = &world->schedule;
	const uint32_t every = world->config.stall_every_us;

	if (every && world->now >= world->next_stall) {
		if (world->next_stall) {
			world->stalled_until = world->now + 1000ull * world->config.stall_us;
			for (uint32_t i = 0; i < world->config.pairs; i++)
				pair_trouble(&world->pair[i]);
			sim_log(world, "no buffers until %.3f",
				(double)world->stalled_until / 1000);
		}
		world->next_stall =
			(world->now > world->stalled_until ? world->now : world->stalled_until) +
			1000ull * rng_between(rng, 1, 2 * every);
	}
	return world->now < world->stalled_until;
}

static unsigned int run_turn(struct sim_worker *worker)
{
	struct world *world = worker->host->world;
	unsigned int done = 0;

	worker->events = 0;
	look_up(worker);
	worker->room = UINT32_MAX;
	if (world->config.transmit_room)
		worker->room = rng_below(&world->schedule, world->config.transmit_room + 1);
	if (is_stalled(world))
		worker->room = 0;
	while (worker->arrived_head != worker->arrived_tail && done < 32) {
		struct sim_buffer *buffer =
			worker->arrived[worker->arrived_head++ & (worker->arrived_size - 1)];

		receive_one(worker, buffer);
		done++;
	}
	/* As lib/net does. */
	if (done && done <= TRANSPORT_FEW)
		done += transport_answer(worker->transport, world->now);
	move_turn(worker);
	move_return_flights(worker);
	done += transport_poll(worker->transport, world->now);
	/* All tails have been published again: only from now on arms are taken with cause. */
	worker->host->generation += worker->fresh;
	worker->fresh = false;
	memory_quiescent(worker->host->memory, worker->number);
	worker->turns++;
	return done;
}

/* Whoever was told of its last receive in this turn has that by now. */
static void take_last(struct host *host)
{
	const struct world *world = host->world;

	host->told_last = false;
	for (uint32_t i = 0; i < world->config.pairs; i++) {
		struct end *end = &world->pair[i].end[host->number];

		if (end->index == 0 || end->last_receive_events == 0 || end->receives_over)
			continue;
		cq_poll(end->receive_cq);
		end->receives_over = true;
	}
}

unsigned int worker_turn(struct sim_worker *worker)
{
	struct host *host = worker->host;
	unsigned int done;

	if (setjmp(host->death)) {
		host_restart(host);
		return 1;
	}
	host->in_turn = true;
	stores_begin(host);
	done = run_turn(worker);
	stores_end();
	host->in_turn = false;
	if (host->told_last)
		take_last(host);
	return done;
}

bool host_is_fresh(const struct host *host)
{
	for (unsigned int i = 0; i < host->workers; i++)
		if (host->worker[i].fresh)
			return true;
	return false;
}
