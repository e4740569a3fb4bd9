/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network: each frame's fate is drawn when it leaves a host, and carried out when its
 * time comes. What it does to a frame is such that the model can still say what follows.
 */
#include <stdlib.h>
#include <string.h>

#include "loose.h"
#include "sim.h"
#include "wire/icrc.h"

/* --- frames under way: a heap by time, then by order of sending ------------------- */

static bool earlier(const struct flying *a, const struct flying *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void heap_push(struct network *n, struct flying flying)
{
	uint32_t i;

	if (n->count == n->size) {
		n->size = n->size ? 2 * n->size : 1024;
		n->heap = realloc(n->heap, n->size * sizeof(*n->heap));
		if (n->heap == NULL)
			abort();
	}
	flying.order = n->order++;
	for (i = n->count++; i && earlier(&flying, &n->heap[(i - 1) / 2]); i = (i - 1) / 2)
		n->heap[i] = n->heap[(i - 1) / 2];
	n->heap[i] = flying;
}

static struct flying heap_pop(struct network *n)
{
	const struct flying top = n->heap[0], last = n->heap[--n->count];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < n->count) {
		if (child + 1 < n->count && earlier(&n->heap[child + 1], &n->heap[child]))
			child++;
		if (!earlier(&n->heap[child], &last))
			break;
		n->heap[i] = n->heap[child];
		i = child;
	}
	n->heap[i] = last;
	return top;
}

uint64_t network_next(const struct world *world)
{
	return world->network.count ? world->network.heap[0].due : UINT64_MAX;
}

void network_destroy(struct world *world)
{
	while (world->network.count)
		buffer_return(world, heap_pop(&world->network).buffer);
	free(world->network.heap);
}

/* --- changes to a frame ----------------------------------------------------------- */

/* Random bits anywhere, or one burst. Whether the frame still carries a right ICRC. */
static bool turn_bits(struct world *world, struct sim_buffer *buffer)
{
	struct rng *rng = &world->weather;
	const uint32_t length = buffer->packet.length;
	struct frame_facts facts;
	uint32_t flips = rng_percent(rng, 50) ? 1 : rng_between(rng, 2, 40);

	if (rng_percent(rng, 10)) {
		const uint32_t from = rng_below(rng, length), most = length - from;

		rng_fill(rng, buffer->bytes + from, rng_between(rng, 1, most < 64 ? most : 64));
	}
	while (flips--) {
		const uint32_t bit = rng_below(rng, 8 * length);

		buffer->bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	return frame_read(buffer->bytes, length, &facts) && frame_icrc_good(buffer->bytes, &facts);
}

/* --- fate ------------------------------------------------------------------------- */

void pair_trouble(struct pair *pair)
{
	pair->trouble_time[pair->troubles++ % SIM_TROUBLES] = pair->world->now;
}

static void trouble(struct end *end)
{
	if (end)
		pair_trouble(end->pair);
}

static bool dark(struct world *world, unsigned int direction)
{
	struct network *n = &world->network;
	struct rng *rng = &world->weather;
	const uint32_t every = world->config.blackout_every_us;

	if (every && world->now >= n->next_dark) {
		const uint64_t until =
			world->now + 1000ull * rng_between(rng, 1, 2 * world->config.blackout_us);
		const uint32_t which = rng_below(rng, 3);

		if (which != 1)
			n->dark_until[0] = until;
		if (which != 0)
			n->dark_until[1] = until;
		n->next_dark = until + 1000ull * rng_between(rng, 1, 2 * every);
		sim_log(world, "blackout of %s until %.3f",
			which == 0   ? "A>B"
			: which == 1 ? "B>A"
				     : "both",
			(double)until / 1000);
	}
	return world->now < n->dark_until[direction];
}

/* For a while some link on the way takes only short frames, and nobody is told. */
static bool too_long(struct world *world, const struct sim_buffer *buffer)
{
	struct network *n = &world->network;
	struct rng *rng = &world->weather;
	const uint32_t every = world->config.narrow_every_us;

	if (every && world->now >= n->next_narrow) {
		n->narrow = 128u << rng_below(rng, 5);
		n->narrow_until =
			world->now + 1000ull * rng_between(rng, 1, 2 * world->config.narrow_us);
		n->next_narrow = n->narrow_until + 1000ull * rng_between(rng, 1, 2 * every);
		sim_log(world, "no frames above %u bytes until %.3f", n->narrow,
			(double)n->narrow_until / 1000);
	}
	return world->now < n->narrow_until && buffer->packet.length > n->narrow;
}

/* Between two storms nothing at all goes wrong. */
static bool calm(struct world *world)
{
	struct network *n = &world->network;
	const struct sim_config *c = &world->config;

	if (c->calm_us == 0)
		return false;
	if (world->now >= n->weather_until) {
		const uint32_t mean = n->is_calm ? c->storm_us : c->calm_us;

		n->is_calm = !n->is_calm;
		n->weather_until = world->now + 1000ull * rng_between(&world->weather, 1, 2 * mean);
		sim_log(world, "%s until %.3f", n->is_calm ? "calm" : "storm",
			(double)n->weather_until / 1000);
	}
	return n->is_calm;
}

static uint64_t draw_due(struct world *world, unsigned int direction, bool late)
{
	struct network *n = &world->network;
	const struct sim_config *c = &world->config;
	uint64_t due = world->now + c->delay_ns + rng_below(&world->weather, c->jitter_ns + 1);

	if (late)
		return due + rng_between(&world->weather, 1, c->reorder_ns);
	if (due <= n->last_due[direction])
		due = n->last_due[direction] + 1;
	n->last_due[direction] = due;
	return due;
}

static void log_frame(struct world *world, unsigned int direction, const struct frame_facts *facts,
		      const char *fate, const char *detail, uint64_t due)
{
	char arrival[32] = "";

	if (world->log == NULL)
		return;
	if (due)
		snprintf(arrival, sizeof(arrival), " at %.3f", (double)due / 1000);
	sim_log(world, "%s %06x %-16s psn %06x %s len %4u syn %02x: %s%s%s%s",
		direction ? "B>A" : "A>B", facts->qpn, facts->name, facts->psn,
		facts->ack_request ? "ack" : "   ", facts->payload, facts->syndrome, fate,
		*detail ? ", " : "", detail, arrival);
}

/* One more of it, soon or when nobody waits for it any more. */
static void send_copy(struct world *world, unsigned int direction, const struct sim_buffer *buffer,
		      const struct frame_facts *facts)
{
	struct end *receiver = host_find_number(&world->host[!direction], facts->qpn);
	struct rng *rng = &world->weather;
	struct flying copy = { .to = (uint8_t)!direction, .buffer = buffer_take(world) };
	/* What an unreliable queue pair takes twice has to be remembered for so long. */
	const bool much_later = facts->opcode < 0x20 && rng_percent(rng, 20);
	const uint32_t most = much_later ? 50000000 : world->config.reorder_ns;

	memcpy(copy.buffer->bytes, buffer->bytes, buffer->packet.length);
	copy.buffer->packet.length = buffer->packet.length;
	copy.buffer->rnr = buffer->rnr;
	copy.buffer->gap = buffer->gap;
	copy.buffer->again = rng_percent(rng, facts->opcode == 0x0c ? 50 : 25);
	copy.due = world->now + world->config.delay_ns + rng_below(rng, most + 1);
	/* Or when its answer has come, so that it can ask for any piece of it. */
	if (facts->opcode == 0x0c && copy.buffer->again && rng_percent(rng, 50))
		copy.due += rng_between(rng, 50000, 500000);
	/* Or when there is a receive again, and its sender still waits for that. */
	if (receiver && receiver->hold_receives > world->now && rng_percent(rng, 50))
		copy.due = receiver->hold_receives + rng_below(rng, 5000);
	world->statistics.doubled++;
	if (receiver && facts->opcode == 0x0c)
		witness_copied(receiver->peer, facts->psn);
	log_frame(world, direction, facts, "once more", "", copy.due);
	heap_push(&world->network, copy);
}

/*
 * Some responders, too, report a gap for what comes while they want a receive: that must not cut
 * the wait short, nor cost a retry.
 */
static void add_gap(struct world *world, unsigned int direction, const struct sim_buffer *rnr,
		    const struct frame_facts *facts)
{
	struct flying gap = { .to = (uint8_t)!direction, .buffer = buffer_take(world) };

	memcpy(gap.buffer->bytes, rnr->bytes, rnr->packet.length);
	gap.buffer->packet.length = rnr->packet.length;
	gap.buffer->bytes[facts->bth + 12] = 0x60;
	frame_repair(gap.buffer->bytes, facts);
	gap.due = draw_due(world, direction, false);
	log_frame(world, direction, facts, "a NAK for a gap behind it", "", gap.due);
	heap_push(&world->network, gap);
}

/* The newest of those READs is the one that is still known to have been answered. */
static void keep_echo(struct world *world, const struct end *requester,
		      const struct sim_buffer *buffer, const struct frame_facts *facts)
{
	struct sim_window *window;

	if (facts->opcode != 0x0c || world->config.duplicate == 0)
		return;
	for (uint32_t i = requester->head; i != requester->tail; i++) {
		const struct op *op = requester->op[i % SIM_RING];

		window = op->kind == KIND_READ && !op->fault ? op->window : NULL;
		if (window == NULL || (facts->psn - op->psn) % 0x1000000 >= op->packets)
			continue;
		if (window->echo == NULL)
			window->echo = buffer_take(world);
		memcpy(window->echo->bytes, buffer->bytes, buffer->packet.length);
		window->echo->packet.length = buffer->packet.length;
	}
}

void network_echo(struct world *world, struct sim_window *window)
{
	const unsigned int to = window->owner->host->number;
	struct sim_buffer *buffer = window->echo;
	struct flying echo = { .to = (uint8_t)to, .buffer = buffer };
	struct frame_facts facts;
	struct end *end;

	window->echo = NULL;
	frame_read(buffer->bytes, buffer->packet.length, &facts);
	end = host_find_number(&world->host[to], facts.qpn);
	trouble(end);
	if (end)
		witness_copied(end->peer, facts.psn);
	echo.due = world->now + world->config.delay_ns;
	world->statistics.doubled++;
	log_frame(world, !to, &facts, "once more", "window dead", echo.due);
	heap_push(&world->network, echo);
}

static const char *tamper(struct world *world, struct flying *flying,
			  const struct frame_facts *facts, struct end *end)
{
	const struct sim_config *c = &world->config;
	struct rng *rng = &world->weather;
	const char *what;

	if (rng_chance(rng, c->corrupt)) {
		trouble(end);
		world->statistics.corrupt++;
		flying->tamper = TAMPER_BITS;
		flying->must_fail = !turn_bits(world, flying->buffer);
		return "bits";
	}
	if (loose_is_wild(&world->host[flying->to], facts->qpn) && rng_percent(rng, 10)) {
		flying->tamper = TAMPER_WILD;
		world->statistics.wild++;
		forge_wild(world, flying->buffer->bytes, facts);
		frame_repair(flying->buffer->bytes, facts);
		return "any headers";
	}
	if (!rng_chance(rng, c->forge))
		return "";
	trouble(end);
	world->statistics.forged++;
	if (rng_percent(rng, 50)) {
		flying->tamper = TAMPER_REFUSE;
		what = forge_refused(world, flying->buffer->bytes, facts);
	} else {
		flying->tamper = TAMPER_HARMLESS;
		what = forge_harmless(world, flying->buffer, facts);
	}
	frame_repair(flying->buffer->bytes, facts);
	return what;
}

/* Where PSNs begin anew, or are half way round, what can happen mostly does. */
static bool chance_at(struct rng *rng, uint32_t ppm, const struct frame_facts *facts)
{
	const bool edge = ((facts->psn + 2) & 0x7fffff) < 4;

	return rng_chance(rng, edge && ppm && ppm < 150000 ? 150000 : ppm);
}

/*
 * What nothing follows is missed by nobody but a timer: where some are lost, those more often, if
 * they are short messages or their ACKs.
 */
static uint32_t loss_now(const struct world *world, const struct frame_facts *facts)
{
	const uint32_t loss = world->config.loss, last = 50000;
	const bool alone = facts->opcode == 0x04 || facts->opcode == 0x0a || facts->opcode == 0x11;

	return world->draining && alone && loss && loss < last ? last : loss;
}

/* In a storm: everything that can happen to a frame. False: it is lost. */
static bool suffer(struct world *world, struct flying *flying, const struct frame_facts *facts,
		   const char **what, bool *late)
{
	const unsigned int direction = !flying->to;
	struct sim_buffer *buffer = flying->buffer;
	struct end *end = host_find_number(&world->host[flying->to], facts->qpn);
	const struct sim_config *c = &world->config;
	struct rng *rng = &world->weather;

	if (dark(world, direction) || too_long(world, buffer) ||
	    chance_at(rng, loss_now(world, facts), facts)) {
		world->statistics.lost_alone += end && end->pair->state == PAIR_ALIVE &&
						world->now >= world->network.dark_until[direction];
		trouble(end);
		world->statistics.lost++;
		return false;
	}
	if (chance_at(rng, c->duplicate, facts)) {
		trouble(end);
		send_copy(world, direction, buffer, facts);
	}
	*what = tamper(world, flying, facts, end);
	*late = rng_chance(rng, c->reorder);
	buffer->unkept = !*late && rng_chance(rng, c->unkept);
	if (*late || buffer->unkept)
		trouble(end);
	world->statistics.reordered += *late;
	return true;
}

void network_send(struct world *world, struct host *from, struct sim_buffer *buffer)
{
	const unsigned int direction = from->number;
	const char *complaint = frame_complaint(buffer->bytes, buffer->packet.length), *what = "";
	struct flying flying = { .to = (uint8_t)!direction, .buffer = buffer };
	struct frame_facts facts;
	const char *wrong;
	struct loose_end *loose;
	struct end *receiver;
	bool late = false;

	world->spoken = world->now;
	if (complaint)
		sim_fail(world, "host %u sent a frame of which %s", direction, complaint);
	frame_read(buffer->bytes, buffer->packet.length, &facts);
	parse_check(&world->host[!direction], buffer->bytes, buffer->packet.length, &facts);
	receiver = host_find_number(&world->host[!direction], facts.qpn);
	if (receiver)
		witness_sent(world, receiver->peer, buffer->bytes, &facts);
	else if (loose_find(&world->host[!direction], facts.qpn))
		loose_sent(loose_find(&world->host[!direction], facts.qpn)->peer, buffer->bytes,
			   &facts);
	else
		sim_fail(world, "host %u sent a frame to queue pair %#x, which is not there",
			 direction, facts.qpn);
	buffer->fatal = frame_is_fatal_nak(&facts);
	buffer->rnr = facts.opcode == 0x11 && facts.syndrome >> 5 == 1;
	buffer->gap = facts.opcode == 0x11 && facts.syndrome == 0x60;
	world->statistics.frames++;
	if (frame_ecn(buffer->bytes, &facts) == 2 &&
	    rng_chance(&world->weather, world->config.mark)) {
		frame_mark(buffer->bytes, &facts);
		world->statistics.marked++;
	}
	if (receiver)
		keep_echo(world, receiver->peer, buffer, &facts);
	wrong = receiver ? forge_fault(receiver, buffer, &facts) : NULL;
	if (wrong)
		sim_log(world, "the next frame is made a %s", wrong);
	loose = receiver ? NULL : loose_find(&world->host[!direction], facts.qpn);
	if ((wrong && forge_swallows(receiver, &facts)) ||
	    (!calm(world) && !suffer(world, &flying, &facts, &what, &late))) {
		log_frame(world, direction, &facts, "lost", "", 0);
		if (loose)
			loose_spoiled(loose->peer, facts.psn);
		buffer_return(world, buffer);
		return;
	}
	if (loose && flying.tamper != TAMPER_NONE)
		loose_spoiled(loose->peer, facts.psn);
	flying.due = draw_due(world, direction, late);
	log_frame(world, direction, &facts,
		  late             ? "late"
		  : buffer->unkept ? "not to keep"
				   : "passes",
		  what, flying.due);
	heap_push(&world->network, flying);
	if (receiver && buffer->rnr && !late && !buffer->unkept && flying.tamper == TAMPER_NONE &&
	    rng_percent(&world->weather, 30))
		add_gap(world, direction, buffer, &facts);
}

/* --- arrival ---------------------------------------------------------------------- */

void worker_queue(struct sim_worker *worker, struct sim_buffer *buffer)
{
	buffer->holder = worker->host;
	if (worker->arrived_tail - worker->arrived_head == worker->arrived_size) {
		const uint32_t count = worker->arrived_size, size = count ? 2 * count : 256;
		struct sim_buffer **bigger = malloc(size * sizeof(struct sim_buffer *));

		if (bigger == NULL)
			abort();
		for (uint32_t i = 0; i < count; i++)
			bigger[i] = worker->arrived[(worker->arrived_head + i) & (count - 1)];
		free(worker->arrived);
		worker->arrived = bigger;
		worker->arrived_size = size;
		worker->arrived_head = 0;
		worker->arrived_tail = count;
	}
	worker->arrived[worker->arrived_tail++ & (worker->arrived_size - 1)] = buffer;
}

/* The transport itself must refuse it: nothing but one reason may move. */
static void offer_refused(struct world *world, struct sim_worker *worker,
			  const struct wire_view *view, struct sim_buffer *buffer)
{
	const struct transport_stats *stats = transport_get_stats(worker->transport);
	const uint64_t taken = stats->rx_packets;

	if (transport_receive(worker->transport, view, &buffer->packet, world->now) ||
	    (stats->rx_packets != taken && view->op->service != SERVICE_UD) ||
	    transport_last_verdict(worker->transport) == 0)
		sim_fail(world, "a frame that has to be refused was taken: opcode %#x PSN %#x",
			 view->opcode, view->psn);
	buffer_return(world, buffer);
}

/* What lib/net does with a frame before the transport sees it. */
static void arrive(struct world *world, const struct flying *flying)
{
	struct host *host = &world->host[flying->to];
	struct sim_buffer *buffer = flying->buffer;
	struct sim_worker *worker;
	struct wire_view view;
	bool good = wire_parse(buffer->bytes, buffer->packet.length, &view) == WIRE_OK &&
		    icrc_verify(&view);
	uint32_t index;

	if (flying->tamper == TAMPER_BITS && good && flying->must_fail)
		sim_fail(world, "the ICRC of a corrupted frame was found right");
	if ((flying->tamper == TAMPER_NONE || flying->tamper == TAMPER_HARMLESS) && !good)
		sim_fail(world, "a whole frame was not recognised");
	if (!good) {
		buffer_return(world, buffer);
		return;
	}
	if (flying->tamper != TAMPER_NONE)
		buffer->fatal = false;
	if (flying->tamper != TAMPER_HARMLESS)
		buffer->future = false;
	index = qp_find(host->shared, view.qpn);
	worker = &host->worker[index ? qp_home(host->shared, index) : 0];
	if (flying->tamper == TAMPER_REFUSE)
		offer_refused(world, worker, &view, buffer);
	else
		worker_queue(worker, buffer);
}

unsigned int network_deliver(struct world *world)
{
	struct network *n = &world->network;
	unsigned int done = 0;

	for (; n->count && n->heap[0].due <= world->now; done++) {
		const struct flying flying = heap_pop(n);

		arrive(world, &flying);
	}
	return done;
}
