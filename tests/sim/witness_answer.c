/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers as they leave: READ responses, results of atomics, ACKs and NAKs, each one due. */
#include "peek.h"
#include "witness.h"

/* --- responses -------------------------------------------------------------------- */

/* How many READs and atomics come right behind this message. */
static uint32_t returning_behind(const struct end *requester, uint32_t number)
{
	uint32_t count = 0;

	while (number + count < requester->messages &&
	       witness_returns(witness_message(requester, number + count + 1)->kind))
		count++;
	return count;
}

static void check_msn(const struct end *sender, const struct frame_facts *facts, uint32_t low,
		      uint32_t high)
{
	if (facts->msn < low || facts->msn > high)
		witness_complain(sender, facts, "the MSN", facts->msn, low);
}

/* What is to be refused is not answered at all; and after its invalidate has completed, nothing is
 * read through a window. */
static void check_alive(const struct end *sender, const struct frame_facts *facts,
			const struct message *message)
{
	const struct end *requester = sender->peer;
	const struct op *op;

	if (message->op - requester->oldest >= requester->tail - requester->oldest)
		return;
	op = requester->op[message->op % SIM_RING];
	if (op->fault && fault_async(op->fault))
		witness_complain(sender, facts, "a request to be refused", op->number, 0);
	if (op->window && op->window->watched && op->window->token == op->sqe.token && op->length)
		witness_complain(sender, facts, "a token that is dead", op->sqe.token, 0);
}

/* Each answer to a READ begins with a response that says so, wherever in the READ that is. */
static void check_first(const struct end *sender, const struct frame_facts *facts,
			struct message *message)
{
	const bool goes_on = message->answered && facts->psn == (message->response + 1) % PSNS;

	if (!goes_on && facts->opcode != 0x0d && facts->opcode != 0x10)
		witness_complain(sender, facts, "the opcode", facts->opcode, 0x0d);
	message->answered = true;
	message->response = facts->psn;
}

static void check_response(struct end *sender, const struct frame_facts *facts)
{
	struct end *requester = sender->peer;
	const uint32_t number = witness_find(requester, facts->psn), mtu = sender->pair->mtu;
	const bool atomic = facts->opcode == 0x12;
	struct message *message;
	uint32_t packet;
	bool last;

	if (number == 0)
		witness_complain(sender, facts, "the PSN of a request", facts->psn,
				 requester->next_psn);
	message = &requester->message[(number - 1) % SIM_MESSAGES];
	packet = (facts->psn - message->psn) % PSNS;
	if (!message->done && packet + 1 == message->packets) {
		message->done = true;
		sender->finished++;
	}
	if (!witness_returns(message->kind) || (message->kind != KIND_READ) != atomic)
		witness_complain(sender, facts, "the kind of the request", message->kind,
				 KIND_READ);
	if (facts->opcode != 0x0e)
		witness_need(sender, facts, "the syndrome", facts->syndrome, 0x1f);
	if (facts->opcode != 0x0e)
		check_msn(sender, facts, number, requester->messages);
	check_alive(sender, facts, message);
	if (atomic)
		return;
	check_first(sender, facts, message);
	last = facts->opcode == 0x0f || facts->opcode == 0x10;
	if (last && packet + 1 == message->piece_end)
		witness_need(sender, facts, "the payload's length", facts->payload,
			     message->piece_rest);
	else if (packet + 1 != message->piece_end)
		witness_need(sender, facts, "being the last", last, packet + 1 == message->packets);
	if (packet == 0 && facts->opcode != 0x0d && facts->opcode != 0x10)
		witness_complain(sender, facts, "the opcode", facts->opcode, 0x0d);
	if (!last)
		witness_need(sender, facts, "the payload's length", facts->payload, mtu);
}

/* --- ACKs and NAKs ---------------------------------------------------------------- */

static void check_ack(const struct end *sender, const struct frame_facts *facts)
{
	const struct end *requester = sender->peer;
	const uint32_t number = witness_find(requester, facts->psn);
	uint32_t done = 0;

	witness_need(sender, facts, "the syndrome", facts->syndrome, 0x1f);
	if (number == 0) {
		/* Of nothing yet, or of what is long past and has had READs behind it. */
		if (requester->messages <= SIM_MESSAGES)
			witness_need(sender, facts, "the PSN", facts->psn,
				     (requester->connection.send_psn + PSNS - 1) % PSNS);
	} else {
		const struct message *message = witness_message(requester, number);

		if (witness_returns(message->kind))
			witness_complain(sender, facts, "the kind of the request", message->kind,
					 KIND_SEND);
		done = number - ((message->psn + message->packets - 1 - facts->psn) % PSNS != 0);
	}
	if (requester->messages <= SIM_MESSAGES || number)
		check_msn(sender, facts, done, done + returning_behind(requester, done));
}

static void check_rnr(const struct end *sender, const struct frame_facts *facts, uint32_t number)
{
	const struct end *requester = sender->peer;
	const struct message *message;
	uint32_t packet;

	witness_need(sender, facts, "the RNR timer", facts->syndrome & 0x1f,
		     sender->connection.min_rnr_timer);
	if (number == 0)
		witness_complain(sender, facts, "the PSN of a request", facts->psn,
				 requester->next_psn);
	message = witness_message(requester, number);
	packet = (facts->psn - message->psn) % PSNS;
	if (!(message->kind <= KIND_SEND_INV && packet == 0) &&
	    !(message->kind == KIND_WRITE_IMM && packet + 1 == message->packets))
		witness_complain(sender, facts, "the kind of the request", message->kind,
				 KIND_SEND);
}

/* A READ whose token dies while it is answered is refused where its answer breaks off. */
static void check_midway(const struct end *sender, const struct frame_facts *facts,
			 const struct message *message)
{
	if (message->kind == KIND_READ && message->answered && !message->done &&
	    message->asks == 1 && sender->restarts == 0)
		witness_need(sender, facts, "the PSN where the answer ends", facts->psn,
			     (message->response + 1) % PSNS);
}

/* What the network has made wrong is found in the packet where it is. */
static void check_refused_at(const struct end *sender, const struct frame_facts *facts)
{
	const struct op *op = sender->peer->fault;

	if (op && fault_is_forged(op->fault) && fault_async(op->fault) &&
	    (facts->psn - op->psn) % PSNS < op->packets)
		witness_need(sender, facts, "the PSN of what is wrong", facts->psn,
			     (op->psn + op->refused_at) % PSNS);
}

/* It ends over this, where it is not about a READ that was answered once: now and then at once. */
static void note_refusal(struct end *sender, const struct frame_facts *facts)
{
	struct world *world = sender->pair->world;

	sender->nak_owed = false;
	if (facts->psn != peek_expected(&sender->host->arena, sender->index))
		return;
	sender->refused = true;
	if (world->config.restart_every_us && rng_percent(&world->schedule, 20))
		sender->host->stores_left = rng_between(&world->schedule, 1, 12);
}

/* The messages before the one that it is about: just these are complete. */
static void check_nak(struct end *sender, const struct frame_facts *facts)
{
	const struct end *requester = sender->peer;
	const uint32_t number = witness_find(requester, facts->psn);
	uint32_t before = number ? number - 1 : requester->messages;

	if (number == 0 && facts->psn != requester->next_psn)
		witness_complain(sender, facts, "the expected PSN", facts->psn,
				 requester->next_psn);
	/* One that waited to leave while what it asks for came does not leave any more. */
	if (facts->syndrome <= 0x60) {
		witness_need(sender, facts, "the expected PSN", facts->psn,
			     peek_expected(&sender->host->arena, sender->index));
		sender->told_psn = facts->psn;
	}
	if (facts->syndrome >> 5 == 1) {
		check_rnr(sender, facts, number);
		check_msn(sender, facts, before, before);
	} else if (facts->syndrome == 0x60) {
		check_msn(sender, facts, before, before);
		if (!sender->came || (sender->furthest - facts->psn - 1) % PSNS >= PSNS / 2)
			witness_complain(sender, facts, "the furthest PSN that came",
					 sender->furthest, (facts->psn + 1) % PSNS);
		if (sender->gap_told && sender->gap_psn == facts->psn)
			witness_complain(sender, facts, "the gap told before", facts->psn, 0);
		sender->gap_told = true;
		sender->gap_psn = facts->psn;
	} else {
		check_msn(sender, facts, before, requester->messages);
		note_refusal(sender, facts);
		check_refused_at(sender, facts);
		if (number && facts->syndrome == 0x62)
			check_midway(sender, facts, witness_message(requester, number));
		/* Of a READ that was answered before only the repetition is refused. */
		if (number == 0 || !witness_message(requester, number)->done)
			sender->over = sender->restarts == 0;
	}
}

void witness_check_answer(struct end *sender, const struct frame_facts *facts)
{
	if (facts->opcode != 0x11)
		check_response(sender, facts);
	else if (facts->syndrome >> 5 == 0)
		check_ack(sender, facts);
	else
		check_nak(sender, facts);
}
