/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue pair moves while its frames keep coming, and none of them overtakes another.
 *
 * Frames of one flow land at one worker, on which we have no influence, and reach the home
 * through a ring. Words in the same rings (a pointer to a frame is even, a word is odd) are in
 * order with them. Old home O, new home N, any other worker W:
 *
 *   ASK    O to N    N holds the frames of the queue pair from now on, those that land at it and
 *                    those that it is handed
 *   READY  N to O    behind what N had handed to O
 *   TELL   O to W    W hands them to N from now on
 *   MARKER W to O    behind what W had handed to O
 *   YOURS  O to N    O has all READY and MARKERs, so it has run whatever it was handed. It has
 *                    sent N the frames that wait in the transport, released the queue pair, and
 *                    waited until what the queue pair sent has left O's transmit arrays; what
 *                    landed at O meanwhile is in the ring as well. N takes the queue pair and runs
 *                    what it holds: from O first, for that is older, then the rest
 *
 * The record's home is N from the release on; W forgets the move when it sees that. A next move
 * of the same queue pair needs W's word again, so nobody acts upon an old one. There is no way
 * back and none is needed: each step waits for turns of other workers and for room in rings that
 * their turns empty, never for a peer or a client.
 *
 * While O waits for the others it runs the queue pair as ever. Commands for it wait there until
 * it has left, and are then sent on by the control core; see command.c.
 *
 * Nothing of this lies in the arena: who is killed in the middle leaves a record with one home.
 */
#include <errno.h>

#include "net/net_private.h"

/* Frames more that land at one other worker before the queue pair follows them there. */
#define FOLLOW_SCORE 1024u
#define FOLLOW_PAUSE 1000000000ull /* ns at one home, at least */

/* Most frames that the transport gives back, and the word behind them. */
#define LEAVE_ROOM 257u

/* --- words --------------------------------------------------------------------------- */

enum word_kind { WORD_ASK = 0, WORD_READY, WORD_TELL, WORD_MARKER, WORD_YOURS, WORD_FLIGHTS };

/* 1, kind, slot of the move at its driver, new home; index of the queue pair or a record. */
static uint64_t word_make(enum word_kind kind, uint32_t slot, uint32_t to, uint32_t index)
{
	return 1 | (uint64_t)kind << 1 | (uint64_t)slot << 4 | (uint64_t)to << 8 |
	       (uint64_t)index << 32;
}

static enum word_kind word_kind(uint64_t word)
{
	return (enum word_kind)(word >> 1 & 7);
}

static uint32_t word_slot(uint64_t word)
{
	return word >> 4 & (MOVES_OUT - 1);
}

static uint32_t word_to(uint64_t word)
{
	return word >> 8 & (NET_MAX_WORKERS - 1);
}

static uint32_t word_index(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static struct rte_ring *ring_to(const struct worker *worker, unsigned int to)
{
	return worker->net->worker[to].handed[worker->index];
}

bool move_leaves_room(const struct worker *worker, unsigned int to)
{
	return !(worker->moves.leaving & 1u << to) ||
	       rte_ring_free_count(ring_to(worker, to)) > LEAVE_ROOM;
}

static bool word_enqueue(struct worker *worker, unsigned int to, uint64_t word)
{
	if (rte_ring_sp_enqueue(ring_to(worker, to), (void *)(uintptr_t)word))
		return false;
	worker->to_wake |= 1u << to;
	return true;
}

bool move_flush(struct worker *worker, unsigned int to)
{
	uint32_t *count = &worker->moves.unsent[to].count;
	uint64_t *word = worker->moves.unsent[to].word;
	uint32_t sent = 0;

	while (sent < *count && word_enqueue(worker, to, word[sent]))
		sent++;
	*count -= sent;
	memmove(word, word + sent, *count * sizeof(*word));
	if (*count)
		return false;
	worker->moves.full &= ~(1u << to);
	return true;
}

/* A word is never lost: in a full ring it waits in front of what comes next. */
static void word_send(struct worker *worker, unsigned int to, uint64_t word)
{
	struct moves *moves = &worker->moves;

	if (!(moves->full & 1u << to) && word_enqueue(worker, to, word))
		return;
	moves->unsent[to].word[moves->unsent[to].count++] = word;
	moves->full |= 1u << to;
}

/* --- frames that wait ------------------------------------------------------------------ */

static void held_add(struct held_list *list, struct rte_mbuf *mbuf)
{
	buffer_of(mbuf)->next = NULL;
	if (list->first)
		buffer_of(list->last)->next = mbuf;
	else
		list->first = mbuf;
	list->last = mbuf;
}

static struct rte_mbuf *held_take(struct worker *worker, struct held_list *list)
{
	struct rte_mbuf *mbuf = list->first;

	if (mbuf) {
		list->first = buffer_of(mbuf)->next;
		worker->moves.held--;
	}
	return mbuf;
}

static void hold(struct worker *worker, struct held_list *list, struct rte_mbuf *mbuf)
{
	if (worker->moves.held == MOVES_HELD) {
		classify_drop(worker, mbuf, VERDICT(NO_ROOM_HANDOFF));
		return;
	}
	held_add(list, mbuf);
	worker->moves.held++;
}

static struct move_in *find_in(struct worker *worker, uint32_t qp, unsigned int *driver)
{
	if (qp == 0)
		return NULL;
	for (unsigned int w = 0; w < worker->net->config.workers; w++) {
		for (uint32_t slot = 0; slot < MOVES_OUT; slot++) {
			if (worker->moves.in[w][slot].qp != qp)
				continue;
			*driver = w;
			return &worker->moves.in[w][slot];
		}
	}
	return NULL;
}

/* It has ended since, and its index is another's. */
static bool is_past(const struct worker *worker, const struct move_in *in)
{
	return qp_number(worker->net->shared, in->qp) != in->number;
}

bool move_frame(struct worker *worker, unsigned int from, uint32_t qp, struct rte_mbuf *mbuf)
{
	unsigned int driver;
	struct move_in *in = find_in(worker, qp, &driver);

	if (!in || is_past(worker, in))
		return false;
	if (in->to == worker->index)
		hold(worker, from == driver ? &in->old : &in->rest, mbuf);
	else if (from == worker->index)
		handoff_send(worker, in->to, mbuf);
	else
		return false;
	return true;
}

/* --- the old home ---------------------------------------------------------------------- */

static struct move_out *find_out(struct worker *worker, uint32_t qp)
{
	for (uint32_t slot = 0; worker->moves.driven && slot < MOVES_OUT; slot++)
		if (worker->moves.out[slot].stage && worker->moves.out[slot].qp == qp)
			return &worker->moves.out[slot];
	return NULL;
}

static bool detach_waits(const struct worker *worker, uint32_t qp)
{
	for (uint32_t i = 0; i < worker->detaches; i++)
		if (worker->detach[i].qp == qp)
			return true;
	return false;
}

int move_start(struct worker *worker, uint32_t qp, uint32_t to)
{
	struct moves *moves = &worker->moves;
	uint32_t slot = 0;
	int error;

	if (to >= worker->net->config.workers || to == worker->index)
		return -EINVAL;
	error = transport_may_move(worker->net->shared, qp);
	if (error)
		return error;
	while (slot < MOVES_OUT && moves->out[slot].stage)
		slot++;
	if (slot == MOVES_OUT || find_out(worker, qp) || detach_waits(worker, qp))
		return -EBUSY;
	moves->out[slot] =
		(struct move_out){ .qp = qp, .to = to, .stage = MOVE_ASKED, .waiting = 1u << to };
	moves->driven++;
	word_send(worker, to, word_make(WORD_ASK, slot, to, qp));
	return 0;
}

/* READY or MARKER of one worker. */
static void move_answered(struct worker *worker, unsigned int from, uint32_t slot)
{
	struct move_out *out = &worker->moves.out[slot];
	const uint32_t workers = worker->net->config.workers;

	out->waiting &= ~(1u << from);
	if (out->stage == MOVE_ASKED) {
		out->stage = MOVE_TOLD;
		for (unsigned int w = 0; w < workers; w++) {
			if (w == worker->index || w == out->to)
				continue;
			out->waiting |= 1u << w;
			word_send(worker, w, word_make(WORD_TELL, slot, out->to, out->qp));
		}
	}
	if (out->waiting)
		return;
	out->stage = MOVE_LEAVING;
	worker->moves.leaving |= 1u << out->to;
}

/* False: its ring has no room yet. What there is handoff_send() leaves to us. */
static bool leave(struct worker *worker, struct move_out *out)
{
	struct rte_ring *ring = ring_to(worker, out->to);
	struct pktbuf *packet;

	if ((worker->moves.full & 1u << out->to) || rte_ring_free_count(ring) < LEAVE_ROOM)
		return false;
	while ((packet = transport_unpark(worker->transport, out->qp)) != NULL)
		rte_ring_sp_enqueue(ring, buffer_mbuf((struct net_buffer *)packet));
	if (transport_release(worker->transport, out->qp, out->to, net_clock(worker->net)))
		return false;
	for (uint32_t p = 0; p < worker->net->config.ports; p++)
		out->sent[p] = worker->tx[p].sent + worker->tx[p].count;
	out->stage = MOVE_LEFT;
	worker->moves.leaving = 0;
	for (uint32_t slot = 0; slot < MOVES_OUT; slot++)
		if (worker->moves.out[slot].stage == MOVE_LEAVING)
			worker->moves.leaving |= 1u << worker->moves.out[slot].to;
	return true;
}

/* Whether what it had sent has left for the device, or is lost. */
static bool sent_all(const struct worker *worker, const struct move_out *out)
{
	for (uint32_t p = 0; p < worker->net->config.ports; p++)
		if (worker->tx[p].count && worker->tx[p].sent < out->sent[p])
			return false;
	return true;
}

static void drive(struct worker *worker, uint32_t slot)
{
	struct move_out *out = &worker->moves.out[slot];

	if (out->stage == MOVE_LEAVING && !leave(worker, out))
		return;
	if (out->stage != MOVE_LEFT || !sent_all(worker, out))
		return;
	word_send(worker, out->to, word_make(WORD_YOURS, slot, out->to, out->qp));
	out->stage = MOVE_FREE;
	worker->moves.driven--;
}

/* --- the others and the new home -------------------------------------------------------- */

static void forget(struct worker *worker, struct move_in *in)
{
	in->qp = 0;
	worker->moves.known--;
}

/* Of this queue pair, or in this slot: a move that is over, since there is a next one. */
static void learn(struct worker *worker, unsigned int from, uint64_t word)
{
	struct move_in *in = &worker->moves.in[from][word_slot(word)];
	struct move_in *before;
	unsigned int driver;

	if (in->qp)
		forget(worker, in);
	before = find_in(worker, word_index(word), &driver);
	if (before)
		forget(worker, before);
	*in = (struct move_in){ .qp = word_index(word),
				.number = qp_number(worker->net->shared, word_index(word)),
				.to = word_to(word) };
	worker->moves.known++;
}

/* What was held, in order. */
static void run_held(struct worker *worker, struct held_list *list, unsigned int from, uint64_t now)
{
	struct rte_mbuf *mbuf;

	while ((mbuf = held_take(worker, list)) != NULL)
		handoff_deliver(worker, from, mbuf, now);
}

static void take(struct worker *worker, unsigned int from, uint64_t word, uint64_t now)
{
	struct move_in in = worker->moves.in[from][word_slot(word)];

	forget(worker, &worker->moves.in[from][word_slot(word)]);
	if (worker->net->landing)
		worker->net->landing[in.qp] = (struct landing){ .taken_at = now };
	transport_take(worker->transport, in.qp, now);
	run_held(worker, &in.old, from, now);
	run_held(worker, &in.rest, worker->index, now);
}

void move_word(struct worker *worker, unsigned int from, uint64_t word, uint64_t now)
{
	const uint32_t slot = word_slot(word), to = word_to(word), index = word_index(word);

	switch (word_kind(word)) {
	case WORD_ASK:
		learn(worker, from, word);
		word_send(worker, from, word_make(WORD_READY, slot, to, index));
		break;
	case WORD_TELL:
		learn(worker, from, word);
		word_send(worker, from, word_make(WORD_MARKER, slot, to, index));
		break;
	case WORD_READY:
	case WORD_MARKER: move_answered(worker, from, slot); break;
	case WORD_YOURS: take(worker, from, word, now); break;
	case WORD_FLIGHTS: transport_flights_return(worker->transport, index); break;
	}
}

bool move_pending(const struct worker *worker, uint32_t qp)
{
	unsigned int driver;

	if (worker->moves.known == 0 && worker->moves.driven == 0)
		return false;
	return find_in((struct worker *)worker, qp, &driver) != NULL ||
	       find_out((struct worker *)worker, qp) != NULL;
}

/* --- each turn --------------------------------------------------------------------------- */

/* Others' moves of which the record says that they are done. */
static bool is_done(const struct worker *worker, const struct move_in *in)
{
	return in->qp && in->to != worker->index &&
	       (qp_home(worker->net->shared, in->qp) == in->to || is_past(worker, in));
}

static void forget_done(struct worker *worker)
{
	for (unsigned int w = 0; w < worker->net->config.workers; w++)
		for (uint32_t slot = 0; slot < MOVES_OUT; slot++)
			if (is_done(worker, &worker->moves.in[w][slot]))
				forget(worker, &worker->moves.in[w][slot]);
}

/* Free records of other workers' shares. A ring without room gets them in a later turn. */
static unsigned int return_flights(struct worker *worker, uint32_t owners)
{
	for (; owners; owners &= owners - 1) {
		const unsigned int owner = (unsigned int)__builtin_ctz(owners);

		if ((worker->moves.full & 1u << owner) ||
		    rte_ring_free_count(ring_to(worker, owner)) == 0)
			continue;
		word_enqueue(worker, owner,
			     word_make(WORD_FLIGHTS, 0, 0,
				       transport_flights_leave(worker->transport, owner)));
	}
	return transport_flights_abroad(worker->transport) != 0;
}

unsigned int move_run(struct worker *worker)
{
	const uint32_t abroad = transport_flights_abroad(worker->transport);
	struct moves *moves = &worker->moves;
	unsigned int waiting = 0;

	if (likely(!(moves->driven | moves->known | moves->full | abroad)))
		return 0;
	for (uint32_t full = moves->full; full; full &= full - 1)
		move_flush(worker, (unsigned int)__builtin_ctz(full));
	for (uint32_t slot = 0; moves->driven && slot < MOVES_OUT; slot++) {
		drive(worker, slot);
		waiting += moves->out[slot].stage >= MOVE_LEAVING;
	}
	if (moves->known)
		forget_done(worker);
	if (abroad)
		waiting += return_flights(worker, abroad);
	return waiting + moves->full;
}

/* --- when -------------------------------------------------------------------------------- */

bool move_landed(struct worker *worker, uint32_t qp, unsigned int from, uint64_t now)
{
	struct landing *landing = &worker->net->landing[qp];

	if (from == worker->index || (landing->score && landing->worker != from)) {
		landing->score -= landing->score != 0;
		return false;
	}
	landing->worker = from;
	if (++landing->score < FOLLOW_SCORE)
		return false;
	landing->score = 0;
	/* Who cannot be helped now says so again after as many frames. */
	return now - landing->taken_at >= FOLLOW_PAUSE;
}

void move_forget_landings(struct worker *worker, uint32_t qp)
{
	if (worker->net->landing)
		worker->net->landing[qp] = (struct landing){ 0 };
}

void move_destroy(struct worker *worker)
{
	struct rte_mbuf *mbuf;

	for (unsigned int w = 0; w < NET_MAX_WORKERS; w++) {
		for (uint32_t slot = 0; slot < MOVES_OUT; slot++) {
			struct move_in *in = &worker->moves.in[w][slot];

			while ((mbuf = held_take(worker, &in->old)) != NULL)
				rte_pktmbuf_free(mbuf);
			while ((mbuf = held_take(worker, &in->rest)) != NULL)
				rte_pktmbuf_free(mbuf);
		}
	}
}
