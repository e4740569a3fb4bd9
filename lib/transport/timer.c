/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One timer per queue pair, in a wheel of slots linked by index.
 *
 * A timer is never early and at most a tick late. Postponing (every acknowledgement does)
 * only changes the deadline; the slot it lies in finds that out when its time comes.
 */
#include "transport/private.h"

#define RUN_TIMERS 256u /* of one call */

static uint64_t tick_of(uint64_t deadline)
{
	return (deadline + (1ull << TIMER_SHIFT) - 1) >> TIMER_SHIFT;
}

void timers_create(struct timers *timers, uint64_t now)
{
	timers->tick = now >> TIMER_SHIFT;
}

static void unlink_timer(struct transport *t, uint32_t index)
{
	struct timers *timers = &t->timers;
	struct qp_local *local = &t->shared->qp_local[index];
	uint32_t slot = (uint32_t)local->timer_tick & (TIMER_SLOTS - 1);

	if (local->timer_prev)
		t->shared->qp_local[local->timer_prev].timer_next = local->timer_next;
	else
		timers->first[slot] = local->timer_next;
	if (local->timer_next)
		t->shared->qp_local[local->timer_next].timer_prev = local->timer_prev;
	if (timers->first[slot] == 0) {
		timers->bits[slot / 64] &= ~(1ull << (slot % 64));
		if (timers->bits[slot / 64] == 0)
			timers->summary &= ~(1ull << (slot / 64));
	}
	local->timer_tick = 0;
}

static void link_timer(struct transport *t, uint32_t index, uint64_t tick)
{
	struct timers *timers = &t->timers;
	struct qp_local *local = &t->shared->qp_local[index];
	uint32_t slot = (uint32_t)tick & (TIMER_SLOTS - 1);

	local->timer_tick = tick;
	local->timer_prev = 0;
	local->timer_next = timers->first[slot];
	if (local->timer_next)
		t->shared->qp_local[local->timer_next].timer_prev = index;
	timers->first[slot] = index;
	timers->bits[slot / 64] |= 1ull << (slot % 64);
	timers->summary |= 1ull << (slot / 64);
}

void timer_set(struct transport *t, struct qp *qp, uint64_t deadline)
{
	struct qp_local *local = qp_local(t, qp);
	uint64_t tick = tick_of(deadline);

	if (tick <= t->timers.tick)
		tick = t->timers.tick + 1;
	if (tick > t->timers.tick + TIMER_SLOTS - 1)
		tick = t->timers.tick + TIMER_SLOTS - 1;
	local->deadline = deadline;
	if (local->timer_tick && local->timer_tick <= tick)
		return;
	if (local->timer_tick)
		unlink_timer(t, qp_index(t, qp));
	link_timer(t, qp_index(t, qp), tick);
}

void timer_cancel(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	local->deadline = 0;
	if (local->timer_tick)
		unlink_timer(t, qp_index(t, qp));
}

/* First tick after timers->tick whose slot holds a timer, or UINT64_MAX. */
static uint64_t next_tick(const struct timers *timers)
{
	uint32_t from = (uint32_t)(timers->tick + 1) & (TIMER_SLOTS - 1);
	uint64_t bits = timers->bits[from / 64] & (~0ull << (from % 64));
	uint32_t word = from / 64, slot;
	uint64_t words;

	if (timers->summary == 0)
		return UINT64_MAX;
	if (bits == 0) {
		/* Words behind this one, else round the corner, this one's lower part last. */
		words = word == 63 ? 0 : timers->summary & (~0ull << (word + 1));
		if (words == 0)
			words = timers->summary;
		word = (uint32_t)__builtin_ctzll(words);
		bits = timers->bits[word];
	}
	slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
	return timers->tick + 1 + ((slot - from) & (TIMER_SLOTS - 1));
}

unsigned int timers_run(struct transport *t)
{
	struct timers *timers = &t->timers;
	const uint64_t target = t->now >> TIMER_SHIFT;
	unsigned int fired = 0;
	uint64_t tick;

	while ((tick = next_tick(timers)) <= target && fired < RUN_TIMERS) {
		uint32_t index = timers->first[tick & (TIMER_SLOTS - 1)];
		struct qp_local *local = &t->shared->qp_local[index];
		struct qp *qp = &t->shared->qps[index];

		unlink_timer(t, index);
		if (local->deadline > t->now) {
			/* What was postponed must land behind the tick that is being emptied. */
			timers->tick = tick;
			timer_set(t, qp, local->deadline);
			timers->tick = tick - 1;
			continue;
		}
		local->deadline = 0;
		requester_timeout(t, qp);
		fired++;
	}
	if (tick > target && target > timers->tick)
		timers->tick = target;
	return fired;
}

uint64_t timers_next(const struct timers *timers)
{
	uint64_t tick = next_tick(timers);

	return tick == UINT64_MAX ? UINT64_MAX : tick << TIMER_SHIFT;
}
