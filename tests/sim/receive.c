/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives: buffers in a ring of memory, posted early or late, in several pieces. */
#include "sim.h"

struct receive *receive_next(const struct end *end)
{
	if (end->srq)
		return &end->srq->shape;
	if (end->receive_match == end->receive_tail)
		return NULL;
	return (struct receive *)&end->receive[end->receive_match % SIM_RING];
}

struct op *receive_waiting(const struct end *end)
{
	const struct end *sender = end->peer;

	if (end->srq)
		return NULL;
	return sender->next_match != sender->tail ? sender->op[sender->next_match % SIM_RING]
						  : NULL;
}

/* Room for so many bytes between those in use; UINT32_MAX: none. Freed in order of use. */
static uint32_t find_place(const struct end *end, uint32_t bytes)
{
	const uint32_t place = end->receive_place;
	uint32_t first;

	if (end->receive_head == end->receive_tail)
		return bytes <= AREA_RECEIVE ? 0 : UINT32_MAX;
	first = end->receive[end->receive_head % SIM_RING].start;
	if (place < first)
		return bytes < first - place ? place : UINT32_MAX;
	if (bytes <= AREA_RECEIVE - place)
		return place;
	return bytes < first ? 0 : UINT32_MAX;
}

/* Splits the capacity over some SGEs with gaps between them. */
static uint32_t lay_out(struct end *end, struct receive *receive, struct shm_sge *sge)
{
	struct rng *rng = &end->pair->world->traffic;
	uint32_t pieces = rng_between(rng, 1, end->config.receive_sge);
	uint32_t left = receive->capacity, at = end->receive_area + receive->start;

	if (receive->capacity == 0 && rng_percent(rng, 50))
		pieces = 0;
	for (uint32_t i = 0; i < pieces; i++) {
		const uint32_t length = i + 1 == pieces ? left : rng_below(rng, left + 1);

		receive->piece[i] = (struct piece){ at, length };
		sge[i] = host_sge(end->host, rng, at, length);
		left -= length;
		at += length + rng_below(rng, 8);
	}
	receive->pieces = pieces;
	receive->bytes = at - end->receive_area - receive->start;
	return pieces;
}

/* One SGE is made unusable: what comes before it can still be placed. */
static void spoil(struct end *end, struct receive *receive, struct shm_sge *sge)
{
	struct rng *rng = &end->pair->world->traffic;
	uint32_t bad = rng_below(rng, receive->pieces);

	while (sge[bad].length == 0)
		bad = (bad + 1) % receive->pieces;
	receive->good = 0;
	for (uint32_t i = 0; i < bad; i++)
		receive->good += sge[i].length;
	if (rng_percent(rng, 50))
		sge[bad].token = end->host->read_only;
	else
		sge[bad].token ^= 1u << rng_below(rng, 32);
}

bool receive_post(struct end *end, enum receive_kind kind)
{
	struct receive *receive = &end->receive[end->receive_tail % SIM_RING];
	const struct op *waiting = receive_waiting(end);
	struct rng *rng = &end->pair->world->traffic;
	const uint32_t largest = end->pair->world->config.largest;
	struct shm_sge sge[SIM_SGE];
	uint32_t nsge, place;

	if (end->receive_tail - end->receive_head >= end->config.receive_depth)
		return false;
	*receive = (struct receive){ .number = end->receive_tail };
	receive->capacity =
		draw_length(end, largest < AREA_RECEIVE / 2 ? largest : AREA_RECEIVE / 2);
	if (waiting && receive->capacity < waiting->length)
		receive->capacity = waiting->length + rng_below(rng, 100);
	place = find_place(end, receive->capacity + 8 * SIM_SGE);
	if (place == UINT32_MAX)
		return false;
	receive->start = place;
	nsge = lay_out(end, receive, sge);
	if (kind == RECEIVE_BAD_SHAPE)
		nsge = end->config.receive_sge + one_or_more(rng, 255 - end->config.receive_sge);
	receive->good = receive->capacity;
	if (kind == RECEIVE_BAD_TOKEN && receive->capacity)
		spoil(end, receive, sge);
	receive->malformed = kind == RECEIVE_BAD_SHAPE;
	end->receive_place = place + receive->bytes;
	end->receive_tail++;
	sim_log(end->pair->world, "pair %u end %u: posts receive %u of %u bytes%s",
		end->pair->number, end->side, receive->number, receive->capacity,
		receive->malformed || receive->good < receive->capacity ? ", a bad one" : "");
	queue_post_receive(end, receive, sge, nsge);
	model_match(end->peer);
	return true;
}

/* Not so long that the peer gives up, nor that it sends the same for ever. */
static uint32_t longest_hold(const struct end *end)
{
	const struct qp_connection *c = &end->connection;
	const uint32_t rounds = c->rnr_retry == 7 ? 30 : c->rnr_retry / 2;
	const uint64_t longest = rnr_time(c->min_rnr_timer) * rounds;

	return longest > 3000000 ? 3000000 : (uint32_t)longest;
}

/* Late receives: for a while none are posted, and what the peer sends has to wait. */
unsigned int receive_turn(struct end *end)
{
	struct world *world = end->pair->world;
	struct rng *rng = &world->traffic;
	unsigned int done = 0;

	if (end->srq)
		return srq_turn(end->srq);
	if (end->flush_asked || end->receive_failed || end->pair->no_receives ||
	    world->now < end->hold_receives)
		return 0;
	if (!end->pair->strict && rng_percent(rng, world->config.late_receives)) {
		end->hold_receives = world->now + rng_between(rng, 1000, longest_hold(end));
		return 0;
	}
	while (done < 16 && receive_post(end, RECEIVE_GOOD))
		done++;
	return done;
}
