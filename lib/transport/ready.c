/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which queue pairs have something to do, and in which order they do it.
 *
 * Each visit has a quantum of bytes and frames. Who has used it up goes to the end of `busy`, who
 * has nothing more to do leaves; who comes back after that goes to `fresh`, which is visited
 * first, so a short READ does not wait for a round of long ones. To keep many short ones from
 * starving the long ones, a queue pair comes in by `fresh` once in a round of `busy`.
 *
 * Who finds no transmit buffer is the first to be visited in the next poll, with what is left of
 * its quantum: scarce buffers go round as well.
 */
#include "transport/private.h"

/* What its turn will look at, and that no packet of the burst has: it comes when the burst is over.
 */
static inline void fetch_for_turn(const struct transport *t, uint32_t index)
{
	const struct qp_local *local = &t->shared->qp_local[index];
	const struct qp *qp = &t->shared->qps[index];

	__builtin_prefetch(&local->local_grace);
	__builtin_prefetch((const char *)&local->frame);
	__builtin_prefetch((const char *)(local + 1) - 1);
	__builtin_prefetch(&qp->requester);
	__builtin_prefetch(&qp->remote_qpn);
	__builtin_prefetch(&qp->send);
	if (local->memory)
		__builtin_prefetch(&local->memory->send);
}

static void append(struct transport *t, struct ready_list *list, uint32_t index)
{
	struct qp_local *table = t->shared->qp_local;

	table[index].ready = list;
	table[index].ready_next = 0;
	table[index].ready_prev = list->last;
	if (list->last)
		table[list->last].ready_next = index;
	else
		list->first = index;
	list->last = index;
	list->count++;
}

static void take_out(struct transport *t, uint32_t index)
{
	struct qp_local *table = t->shared->qp_local;
	struct qp_local *local = &table[index];
	struct ready_list *list = local->ready;

	if (local->ready_prev)
		table[local->ready_prev].ready_next = local->ready_next;
	else
		list->first = local->ready_next;
	if (local->ready_next)
		table[local->ready_next].ready_prev = local->ready_prev;
	else
		list->last = local->ready_prev;
	list->count--;
	local->ready = NULL;
}

void ready_add(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	local->again = true;
	if (local->ready || local->visited || !local->attached)
		return;
	fetch_for_turn(t, qp_index(t, qp));
	append(t, local->round == t->round ? &t->busy : &t->fresh, qp_index(t, qp));
}

void ready_remove(struct transport *t, struct qp *qp)
{
	if (qp_local(t, qp)->ready)
		take_out(t, qp_index(t, qp));
}

uint32_t ready_count(const struct transport *t)
{
	return t->fresh.count + t->busy.count;
}

/* A round ends when all that were busy at its beginning have been visited. */
static void count_round(struct transport *t, const struct ready_list *list)
{
	if (t->busy.count == 0) {
		t->round++;
		t->round_left = 0;
	} else if (list == &t->busy) {
		if (t->round_left == 0) {
			t->round++;
			t->round_left = t->busy.count;
		}
		t->round_left--;
	}
}

struct qp *ready_take(struct transport *t)
{
	struct ready_list *list = t->fresh.count ? &t->fresh : &t->busy;
	const uint32_t index = list->first;
	struct qp_local *local = &t->shared->qp_local[index];

	if (index == 0)
		return NULL;
	count_round(t, list);
	take_out(t, index);
	local->visited = true;
	local->again = false;
	return &t->shared->qps[index];
}

void ready_done(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	const bool waits = t->blocked && local->answer_left > 0 && local->request_left > 0;

	local->visited = false;
	local->round = t->round;
	if (!waits || !local->again)
		local->answer_left = local->request_left = READY_QUANTUM;
	if (local->again && local->attached)
		append(t, waits ? &t->waiting : &t->busy, qp_index(t, qp));
}

void ready_wait_over(struct transport *t)
{
	while (t->waiting.last) {
		const uint32_t index = t->waiting.last;
		struct ready_list *list = &t->busy;
		struct qp_local *local = &t->shared->qp_local[index];

		take_out(t, index);
		local->ready = list;
		local->ready_prev = 0;
		local->ready_next = list->first;
		if (list->first)
			t->shared->qp_local[list->first].ready_prev = index;
		else
			list->last = index;
		list->first = index;
		list->count++;
	}
}
