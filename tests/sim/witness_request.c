/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests as they leave: as they were posted, in their time, and no oftener than agreed. */
#include <string.h>

#include "peek.h"
#include "witness.h"

/* --- as they were posted ---------------------------------------------------------- */

struct shape {
	uint8_t first, middle, last, only;
};

static uint8_t request_opcode(const struct message *message, uint32_t packet)
{
	static const struct shape shape[] = {
		[KIND_SEND] = { 0x00, 0x01, 0x02, 0x04 },
		[KIND_SEND_IMM] = { 0x00, 0x01, 0x03, 0x05 },
		[KIND_SEND_INV] = { 0x00, 0x01, 0x16, 0x17 },
		[KIND_WRITE] = { 0x06, 0x07, 0x08, 0x0a },
		[KIND_WRITE_IMM] = { 0x06, 0x07, 0x09, 0x0b },
		[KIND_READ] = { 0x0c, 0x0c, 0x0c, 0x0c },
		[KIND_FETCH_ADD] = { 0x14, 0x14, 0x14, 0x14 },
		[KIND_CMP_SWAP] = { 0x13, 0x13, 0x13, 0x13 },
	};
	const struct shape *s = &shape[message->kind];

	if (message->packets == 1)
		return s->only;
	if (packet == 0)
		return s->first;
	return packet + 1 == message->packets ? s->last : s->middle;
}

static void check_reth(const struct end *sender, const struct frame_facts *facts,
		       const uint8_t *reth, const struct op *op, uint32_t offset)
{
	witness_need(sender, facts, "the address", read_be(reth, 8), op->sqe.address + offset);
	witness_need(sender, facts, "the token", read_be(reth + 8, 4), op->sqe.token);
	witness_need(sender, facts, "the length", read_be(reth + 12, 4), op->length - offset);
}

static void check_atomic(const struct end *sender, const struct frame_facts *facts,
			 const uint8_t *atomic, const struct op *op)
{
	witness_need(sender, facts, "the address", read_be(atomic, 8), op->sqe.address);
	witness_need(sender, facts, "the token", read_be(atomic + 8, 4), op->sqe.token);
	witness_need(sender, facts, "the operand", read_be(atomic + 12, 8), op->sqe.swap);
	witness_need(sender, facts, "the comparand", read_be(atomic + 20, 8),
		     op->kind == KIND_CMP_SWAP ? op->sqe.compare : 0);
}

static void check_headers(const struct end *sender, const struct frame_facts *facts,
			  const uint8_t *extension, const struct op *op, uint32_t packet)
{
	switch (facts->opcode) {
	case 0x03:
	case 0x05:
	case 0x09:
		if (memcmp(extension, &op->sqe.immediate, 4) != 0)
			witness_complain(sender, facts, "the immediate", read_be(extension, 4), 0);
		break;
	case 0x0b:
		if (memcmp(extension + 16, &op->sqe.immediate, 4) != 0)
			witness_complain(sender, facts, "the immediate", read_be(extension + 16, 4),
					 0);
		check_reth(sender, facts, extension, op, 0);
		break;
	case 0x06:
	case 0x0a: check_reth(sender, facts, extension, op, 0); break;
	case 0x0c: check_reth(sender, facts, extension, op, packet * sender->pair->mtu); break;
	case 0x13:
	case 0x14: check_atomic(sender, facts, extension, op); break;
	case 0x16:
	case 0x17:
		witness_need(sender, facts, "the token", read_be(extension, 4), op->sqe.token);
		break;
	default: break;
	}
}

static void check_payload(const struct end *sender, const struct frame_facts *facts,
			  const uint8_t *payload, const struct op *op, uint32_t packet)
{
	const uint32_t mtu = sender->pair->mtu, offset = packet * mtu;
	const uint32_t length = op->length - offset < mtu ? op->length - offset : mtu;

	witness_need(sender, facts, "the payload's length", facts->payload, length);
	if (op->remote.fresh && length && memcmp(payload, op->remote.fresh + offset, length) != 0)
		witness_complain(sender, facts, "the payload", payload[0],
				 op->remote.fresh[offset]);
}

/* --- in their time ---------------------------------------------------------------- */

/* One that does not begin before the answers to all READs and atomics in front of it have come. */
static bool waits_for_reads(const struct op *op)
{
	return op->kind == KIND_INVALIDATE || (op->sqe.flags & SHM_FLAG_READ_FENCE);
}

/* Nor does what stands behind it, since all begin in order. */
static void check_fence(const struct end *sender, const struct frame_facts *facts,
			const struct op *op)
{
	const uint32_t oldest = peek_oldest(&sender->host->arena, sender->index);
	uint32_t fence = op->number;

	while (fence != sender->head && !waits_for_reads(sender->op[fence % SIM_RING]))
		fence--;
	for (uint32_t i = sender->head; i != fence; i++) {
		const struct op *before = sender->op[i % SIM_RING];
		const uint32_t last = before->psn + before->packets - 1;

		if (witness_returns((uint8_t)before->kind) && witness_leaves(before) &&
		    (last - oldest) % PSNS < PSNS / 2)
			witness_complain(sender, facts, "the oldest PSN in front of a fence",
					 oldest, (last + 1) % PSNS);
	}
}

/* No RNR wait either. */
static bool timer_alone(const struct end *sender)
{
	return witness_unhindered(sender) && !sender->rnr_since;
}

/* Where no other loss makes it go back, it asks once and then as often as was agreed. */
static void count_asks(struct end *sender, const struct frame_facts *facts)
{
	const struct op *op = sender->fault;

	if (op == NULL || op->fault != FAULT_WIRE_SILENT ||
	    facts->psn != (op->psn + op->wire_packet) % PSNS)
		return;
	sender->asks++;
	if (config_is_perfect(&sender->pair->world->config) && sender->rnrs == 0 &&
	    sender->asks > sender->connection.retry_count + 1u)
		witness_complain(sender, facts, "the number of its tries", sender->asks,
				 sender->connection.retry_count + 1u);
}

/*
 * The oldest goes once more: as often as agreed, those times not counted that an RNR NAK has set
 * off, nor when it comes behind what was sent again before it. Where frames are lost, a NAK that
 * came before the last progress may have set off one more.
 */
static void check_tries(struct end *sender, const struct frame_facts *facts, bool back)
{
	const uint32_t most = sender->connection.retry_count +
			      (config_is_perfect(&sender->pair->world->config) ? 0u : 1u);

	sender->tries++;
	sender->returns += back;
	if (!sender->rnr_since && sender->restarts == 0 && sender->returns > most)
		witness_complain(sender, facts, "the number of its tries", sender->returns, most);
}

/* IBTA: found out after four times the agreed time at most; a NAK for a gap is heeded at once. */
static void check_late(struct end *sender, const struct frame_facts *facts,
		       const struct message *message, bool back)
{
	const uint64_t now = sender->pair->world->now;
	const uint64_t most = (16384ull << sender->connection.timeout) + SOON;
	const uint64_t since =
		sender->arrival > message->sent_at ? sender->arrival : message->sent_at;
	const bool oldest = facts->psn == peek_oldest(&sender->host->arena, sender->index);

	if (oldest && (sender->sent_psn - facts->psn - 1) % PSNS < PSNS / 2)
		check_tries(sender, facts, back);
	if (!timer_alone(sender))
		return;
	if (back && oldest && message->sent_at && now - since > most)
		witness_complain(sender, facts, "the time since it left", now - since, most);
	if (sender->nak_due && facts->psn == sender->nak_psn) {
		if (now - sender->nak_due > SOON)
			witness_complain(sender, facts, "the time since the NAK",
					 now - sender->nak_due, SOON);
		sender->nak_due = 0;
	}
}

/* What is sent next if nothing is sent again. An ACK on the way spares what it acknowledges. */
static uint32_t goes_on(const struct end *sender)
{
	const uint32_t oldest = peek_oldest(&sender->host->arena, sender->index);

	return (oldest - sender->goes_on) % PSNS < PSNS / 2 ? oldest : sender->goes_on;
}

/*
 * Where it goes back to is the oldest that is not acknowledged. When nothing has come since that
 * left, a timer has run out, and that takes its time.
 */
static void check_time(struct end *sender, const struct frame_facts *facts, struct message *message,
		       uint32_t end)
{
	const uint64_t now = sender->pair->world->now;
	const uint64_t least = 4096ull << sender->connection.timeout;
	const bool back = facts->psn != goes_on(sender);

	if (back && message->sent_at && sender->restarts == 0 &&
	    sender->arrival < message->sent_at && now - message->sent_at < least)
		witness_complain(sender, facts, "the time since it left", now - message->sent_at,
				 least);
	/* What nothing has set off was set off by the timer, which any progress winds up again. */
	if (back && message->sent_at && timer_alone(sender) && now - sender->arrival > SOON &&
	    now - sender->progressed < least)
		witness_complain(sender, facts, "the time since an answer",
				 now - sender->progressed, least);
	check_late(sender, facts, message, back);
	/* The timer begins anew: the next NAK for a gap counts again. */
	if (back && message->sent_at && now - sender->arrival > SOON)
		sender->gap_since = false;
	if (back || facts->psn == message->psn)
		message->sent_at = now;
	sender->goes_on = end;
}

/* --- all of it -------------------------------------------------------------------- */

void witness_check_request(struct end *sender, const uint8_t *frame,
			   const struct frame_facts *facts)
{
	const uint32_t number = witness_find(sender, facts->psn);
	struct message *message;
	const struct op *op;
	uint32_t packet, end;
	bool asks;

	if (number == 0)
		witness_complain(sender, facts, "the next PSN", facts->psn, sender->next_psn);
	/* A READ goes on where its answer broke off. */
	if ((facts->psn - peek_oldest(&sender->host->arena, sender->index)) % PSNS >= PSNS / 2)
		witness_complain(sender, facts, "the oldest PSN that waits",
				 peek_oldest(&sender->host->arena, sender->index), facts->psn);
	message = &sender->message[(number - 1) % SIM_MESSAGES];
	if (message->op - sender->head >= sender->tail - sender->head)
		witness_complain(sender, facts, "a completed request's number", message->op,
				 sender->head);
	op = sender->op[message->op % SIM_RING];
	packet = (facts->psn - message->psn) % PSNS;
	witness_need(sender, facts, "the opcode", facts->opcode, request_opcode(message, packet));
	asks = (op->kind <= KIND_SEND_INV || op->kind == KIND_WRITE_IMM) &&
	       (op->sqe.flags & SHM_FLAG_SOLICIT) && packet + 1 == message->packets;
	witness_need(sender, facts, "SE", frame[facts->bth + 1] >> 7, asks);
	if (packet + 1 == message->packets || witness_returns(message->kind))
		witness_need(sender, facts, "AckReq", facts->ack_request, 1);
	check_headers(sender, facts, frame + facts->bth + 12, op, packet);
	if (!witness_returns(message->kind))
		check_payload(sender, facts, frame + facts->payload_at, op, packet);
	if (facts->psn == sender->rnr_psn) {
		if (sender->rnr_until > sender->pair->world->now)
			witness_complain(sender, facts, "the time", sender->pair->world->now,
					 sender->rnr_until);
		if (sender->rnr_waits && !sender->rnr_blind && witness_unhindered(sender) &&
		    sender->pair->world->now > sender->rnr_latest + SOON)
			witness_complain(sender, facts, "the time", sender->pair->world->now,
					 sender->rnr_latest);
		sender->rnr_waits = false;
	}
	check_fence(sender, facts, op);
	end = (facts->psn + 1) % PSNS;
	if (message->kind == KIND_READ)
		end = (message->psn + message->packets) % PSNS;
	message->asks++;
	check_time(sender, facts, message, end);
	count_asks(sender, facts);
	if ((end - sender->sent_psn) % PSNS < PSNS / 2)
		sender->sent_psn = end;
}
