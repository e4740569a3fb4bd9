/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of queue pairs, in a wheel of slots linked by index. Each has one place there for two
 * deadlines: the requester's, and the end of a pause that congestion control orders.
 *
 * A timer is never early and at most a tick late. Postponing (every acknowledgement does)
 * only changes the deadline; the slot it lies in finds that out when its time comes.
 */
#include "transport/private.h"

#define WHEEL_RUN 256u /* of one call */

static uint64_t tick_of(uint64_t deadline)
{
	return (deadline + (1ull << WHEEL_SHIFT) - 1) >> WHEEL_SHIFT;
}

void wheel_create(struct wheel *wheel, uint64_t now)
{
	wheel->tick = now >> WHEEL_SHIFT;
}

static void unlink_timer(struct transport *t, uint32_t index)
{
	struct wheel *wheel = &t->wheel;
	struct qp_local *local = &t->shared->qp_local[index];
	uint32_t slot = (uint32_t)local->timer_tick & (WHEEL_SLOTS - 1);

	if (local->timer_prev)
		t->shared->qp_local[local->timer_prev].timer_next = local->timer_next;
	else
		wheel->first[slot] = local->timer_next;
	if (local->timer_next)
		t->shared->qp_local[local->timer_next].timer_prev = local->timer_prev;
	if (wheel->first[slot] == 0) {
		wheel->bits[slot / 64] &= ~(1ull << (slot % 64));
		if (wheel->bits[slot / 64] == 0)
			wheel->summary &= ~(1ull << (slot / 64));
	}
	local->timer_tick = 0;
}

static void link_timer(struct transport *t, uint32_t index, uint64_t tick)
{
	struct wheel *wheel = &t->wheel;
	struct qp_local *local = &t->shared->qp_local[index];
	uint32_t slot = (uint32_t)tick & (WHEEL_SLOTS - 1);

	local->timer_tick = tick;
	local->timer_prev = 0;
	local->timer_next = wheel->first[slot];
	if (local->timer_next)
		t->shared->qp_local[local->timer_next].timer_prev = index;
	wheel->first[slot] = index;
	wheel->bits[slot / 64] |= 1ull << (slot % 64);
	wheel->summary |= 1ull << (slot / 64);
}

/* 0: none. */
static uint64_t first_deadline(const struct qp_local *local)
{
	if (local->pace_due && (local->deadline == 0 || local->pace_due < local->deadline))
		return local->pace_due;
	return local->deadline;
}

static void place(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	uint64_t tick = tick_of(first_deadline(local));

	if (tick <= t->wheel.tick)
		tick = t->wheel.tick + 1;
	if (tick > t->wheel.tick + WHEEL_SLOTS - 1)
		tick = t->wheel.tick + WHEEL_SLOTS - 1;
	if (local->timer_tick && local->timer_tick <= tick)
		return;
	if (local->timer_tick)
		unlink_timer(t, qp_index(t, qp));
	link_timer(t, qp_index(t, qp), tick);
}

void wheel_set(struct transport *t, struct qp *qp, uint64_t deadline)
{
	qp_local(t, qp)->deadline = deadline;
	place(t, qp);
}

void wheel_pace(struct transport *t, struct qp *qp, uint64_t due)
{
	qp_local(t, qp)->pace_due = due;
	place(t, qp);
}

void wheel_unset(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	local->deadline = 0;
	if (local->timer_tick && local->pace_due == 0)
		unlink_timer(t, qp_index(t, qp));
}

void wheel_cancel(struct transport *t, struct qp *qp)
{
	qp_local(t, qp)->pace_due = 0;
	wheel_unset(t, qp);
}

void wheel_suspend(struct transport *t, struct qp *qp)
{
	if (qp_local(t, qp)->timer_tick)
		unlink_timer(t, qp_index(t, qp));
}

void wheel_resume(struct transport *t, struct qp *qp)
{
	if (first_deadline(qp_local(t, qp)))
		place(t, qp);
}

/* First tick after wheel->tick whose slot holds a timer, or UINT64_MAX. */
static uint64_t next_tick(const struct wheel *wheel)
{
	uint32_t from = (uint32_t)(wheel->tick + 1) & (WHEEL_SLOTS - 1);
	uint64_t bits = wheel->bits[from / 64] & (~0ull << (from % 64));
	uint32_t word = from / 64, slot;
	uint64_t words;

	if (wheel->summary == 0)
		return UINT64_MAX;
	if (bits == 0) {
		/* Words behind this one, else round the corner, this one's lower part last. */
		words = word == 63 ? 0 : wheel->summary & (~0ull << (word + 1));
		if (words == 0)
			words = wheel->summary;
		word = (uint32_t)__builtin_ctzll(words);
		bits = wheel->bits[word];
	}
	slot = word * 64 + (uint32_t)__builtin_ctzll(bits);
	return wheel->tick + 1 + ((slot - from) & (WHEEL_SLOTS - 1));
}

/* What is due of a queue pair whose slot has come. Returns how much. */
static unsigned int fire(struct transport *t, uint32_t index)
{
	struct qp_local *local = &t->shared->qp_local[index];
	struct qp *qp = &t->shared->qps[index];
	unsigned int fired = 0;

	if (local->pace_due && local->pace_due <= t->now) {
		local->pace_due = 0;
		ready_add(t, qp);
		fired++;
	}
	if (local->deadline && local->deadline <= t->now) {
		local->deadline = 0;
		requester_timeout(t, qp);
		fired++;
	}
	if (first_deadline(local))
		place(t, qp);
	return fired;
}

unsigned int wheel_run(struct transport *t)
{
	struct wheel *wheel = &t->wheel;
	const uint64_t target = t->now >> WHEEL_SHIFT;
	unsigned int fired = 0;
	uint64_t tick;

	if (likely(target <= wheel->tick))
		return 0;
	while ((tick = next_tick(wheel)) <= target && fired < WHEEL_RUN) {
		uint32_t index = wheel->first[tick & (WHEEL_SLOTS - 1)];

		unlink_timer(t, index);
		/* What is set now must land behind the tick that is being emptied. */
		wheel->tick = tick;
		fired += fire(t, index);
		wheel->tick = tick - 1;
	}
	if (tick > target && target > wheel->tick)
		wheel->tick = target;
	return fired;
}

uint64_t wheel_next(const struct wheel *wheel)
{
	uint64_t tick = next_tick(wheel);

	return tick == UINT64_MAX ? UINT64_MAX : tick << WHEEL_SHIFT;
}
