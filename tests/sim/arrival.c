/* SPDX-License-Identifier: BSD-3-Clause */
/* What an arrival demands of the end that it comes to, and by when: see witness.c. */
#include "peek.h"
#include "witness.h"

/* So many READs and atomics were taken at once, and no more than agreed wait for their answer. */
void witness_accepted(struct end *end, uint64_t count)
{
	/* Those that had to wait behind something were not counted as they came. */
	if ((int32_t)(end->accepted - end->finished) < 0)
		end->accepted = end->finished;
	end->accepted += (uint32_t)count;
	if (end->accepted - end->finished > end->connection.max_reads_in)
		sim_fail(end->pair->world, "pair %u end %u: %u READs and atomics wait, %u may",
			 end->pair->number, end->side, end->accepted - end->finished,
			 end->connection.max_reads_in);
}

/* --- congestion ----------------------------------------------------------- */

void witness_cnp(struct end *end)
{
	if (end->slowed_at == 0)
		end->slowed_at = end->pair->world->now;
}

/* Each slows it down, except one that comes too soon after the last that did. */
void witness_cut(struct end *end, bool cut)
{
	struct world *world = end->pair->world;
	const bool due = end->cut_at == 0 || world->now - end->cut_at >= CUT_INTERVAL;

	if (cut != due && end->restarts == 0)
		sim_fail(world,
			 "pair %u end %u: its rate was %scut for a CNP %llu ns after another",
			 end->pair->number, end->side, cut ? "" : "not ",
			 (unsigned long long)(world->now - end->cut_at));
	if (cut)
		end->cut_at = world->now;
}

void witness_mark(struct end *end)
{
	const struct world *world = end->pair->world;
	const uint64_t now = world->now;

	if (qp_get_state(end->host->shared, end->index) != QP_RTS)
		return;
	if (world->config.transmit_room == 0)
		witness_told(end);
	end->marks++;
	/* One that has not left yet answers this mark, too. */
	if (end->cnps_due > end->cnps || (end->cnps && now - end->cnp_at < CNP_INTERVAL))
		return;
	end->cnps_due++;
	end->marked_at = now;
}

/* One that is due while another waits for a buffer leaves with that. */
void witness_told(const struct end *end)
{
	struct world *world = end->pair->world;
	const uint32_t due = world->config.transmit_room ? end->cnps_due != 0 : end->cnps_due;

	if (world->config.mark && !end->restarts && world->now - end->marked_at > SOON &&
	    end->cnps < due)
		sim_fail(world, "pair %u end %u: %u CNPs were due, and %u sent", end->pair->number,
			 end->side, end->cnps_due, end->cnps);
}

/* --- RNR NAKs -------------------------------------------------------------- */

/* IBTA table 45, in units of 10 us. */
uint64_t rnr_time(uint8_t code)
{
	static const uint32_t exact[] = { 65536, 1, 2, 3 };

	if (code < 4)
		return exact[code] * 10000ull;
	return ((code & 1 ? 6ull : 4ull) << ((code - 4) / 2)) * 10000ull;
}

/* Whether something before it waits for an answer: that then is asked for at once. */
static bool waits_for_answer(const struct end *end, uint32_t before)
{
	for (uint32_t i = end->head; i != before; i++)
		if (witness_returns((uint8_t)end->op[i % SIM_RING]->kind))
			return true;
	return false;
}

void witness_rnr(struct end *end, uint32_t psn, uint8_t code)
{
	const uint32_t number = witness_find(end, psn);
	const uint64_t now = end->pair->world->now;
	uint32_t op;

	if (number == 0)
		return;
	op = witness_message(end, number)->op;
	if (op - end->head >= end->tail - end->head)
		return;
	if (psn != end->rnr_psn) {
		end->rnrs = 0;
		end->rnr_until = 0;
		end->rnr_blind = end->rnr_waits = false;
	}
	end->rnr_psn = psn;
	end->rnrs++;
	if (config_is_perfect(&end->pair->world->config) && end->connection.rnr_retry != 7 &&
	    !end->rnr_blind && end->rnrs > end->connection.rnr_retry + 1u)
		sim_fail(end->pair->world, "pair %u end %u asks again after %u RNR NAKs",
			 end->pair->number, end->side, end->rnrs - 1);
	end->rnr_latest = now + rnr_time(code);
	end->rnr_blind |= waits_for_answer(end, op);
	/* One that comes while it waits, or that is late to wake, changes nothing. */
	if (!end->rnr_blind && !end->rnr_waits) {
		end->rnr_until = now + rnr_time(code);
		end->rnr_waits = true;
	}
}

/* --- NAKs for a gap -------------------------------------------------------- */

/* The second without progress between them changes nothing; at a READ its answer is what counts. */
void witness_gap(struct end *end, uint32_t psn)
{
	const uint32_t number = witness_find(end, psn);
	uint32_t op;

	end->nak_due = 0;
	if (number == 0 || end->gap_since || end->rnr_since)
		return;
	op = witness_message(end, number)->op;
	if (op - end->head >= end->tail - end->head || waits_for_answer(end, op + 1))
		return;
	end->nak_psn = psn;
	end->nak_due = end->pair->world->now;
}

/* What is ahead of the PSN that is waited for is reported, long before anybody's timer does it. */
void witness_request(struct end *end, uint32_t psn, bool kept)
{
	const uint32_t expected = peek_expected(&end->host->arena, end->index);
	const uint64_t now = end->pair->world->now;

	if (!end->came || (psn - end->furthest) % PSNS < PSNS / 2)
		end->furthest = psn;
	end->came = true;
	if (end->ahead_of != expected)
		end->ahead_at = 0;
	end->ahead_of = expected;
	if (qp_get_state(end->host->shared, end->index) != QP_RTS || end->told_psn == expected ||
	    !witness_unhindered(end)) {
		end->ahead_at = 0;
		return;
	}
	if (end->ahead_at && now - end->ahead_at > 5 * SOON)
		sim_fail(end->pair->world, "pair %u end %u: a gap at PSN %06x was never reported",
			 end->pair->number, end->side, expected);
	if (end->ahead_at == 0 && kept && (psn - expected - 1) % PSNS < PSNS / 2 - 1)
		end->ahead_at = now;
}
