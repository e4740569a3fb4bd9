/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every frame must look like when it leaves a host: the request as it was posted, the answer
 * as it is due, the path as it was agreed. That holds whatever the other end makes of it, so
 * mistakes that our own peer would forgive are found here. What comes is arrival.c's.
 */
#include <string.h>

#include "peek.h"
#include "sim.h"

#define PSNS         0x1000000u
#define CNP_INTERVAL 50000u  /* ns */
#define CUT_INTERVAL 50000u  /* ns in which a second CNP changes nothing */
#define SOON         200000u /* ns in which an arrival has its consequences */

static _Noreturn void complain(const struct end *sender, const struct frame_facts *facts,
			       const char *what, uint64_t is, uint64_t due)
{
	sim_fail(sender->pair->world, "pair %u end %u sent %s PSN %06x: %s is %#llx and not %#llx",
		 sender->pair->number, sender->side, facts->name, facts->psn, what,
		 (unsigned long long)is, (unsigned long long)due);
}

static void need(const struct end *sender, const struct frame_facts *facts, const char *what,
		 uint64_t is, uint64_t due)
{
	if (is != due)
		complain(sender, facts, what, is, due);
}

static uint64_t read_be(const uint8_t *p, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

/* --- messages by PSN -------------------------------------------------------------- */

/* Whether the peer ever sees it, by its kind and what is wrong with it. */
static bool op_leaves(const struct op *op)
{
	if (op->kind == KIND_BIND || op->kind == KIND_INVALIDATE)
		return false;
	return op->fault == FAULT_NONE || fault_leaves(op->fault);
}

void witness_posted(struct end *end, struct op *op)
{
	struct message *message = &end->message[end->messages % SIM_MESSAGES];

	op->psn = end->next_psn;
	if (!op_leaves(op))
		return;
	*message = (struct message){ .psn = end->next_psn,
				     .packets = op->packets,
				     .op = op->number,
				     .kind = (uint8_t)op->kind };
	end->next_psn = (end->next_psn + op->packets) % PSNS;
	end->messages++;
}

/* Counted from 1, as an MSN is; 0: none that is remembered has this PSN. */
uint32_t witness_find(const struct end *end, uint32_t psn)
{
	const uint32_t back = (end->next_psn - psn) % PSNS;
	uint32_t low = end->messages > SIM_MESSAGES ? end->messages - SIM_MESSAGES : 0;
	uint32_t high = end->messages;
	const uint32_t first = low;

	if (back == 0 || back > PSNS / 2)
		return 0;
	/* The last one that starts at or before it. */
	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;
		const struct message *m = &end->message[middle % SIM_MESSAGES];

		if ((end->next_psn - m->psn) % PSNS >= back)
			low = middle + 1;
		else
			high = middle;
	}
	return low > first ? low : 0;
}

const struct message *witness_message(const struct end *end, uint32_t number)
{
	return &end->message[(number - 1) % SIM_MESSAGES];
}

void witness_copied(struct end *end, uint32_t psn)
{
	const uint32_t number = witness_find(end, psn);

	if (number)
		end->message[(number - 1) % SIM_MESSAGES].asks++;
}

bool witness_in_answer(const struct end *end, const struct op *op)
{
	const uint32_t number = op->kind == KIND_READ ? witness_find(end, op->psn) : 0;

	return number && witness_message(end, number)->answered &&
	       !witness_message(end, number)->done;
}

bool witness_returns(uint8_t kind)
{
	return kind >= KIND_READ && kind <= KIND_CMP_SWAP;
}

/* --- path ------------------------------------------------------------------------- */

static void check_addresses(const struct end *sender, const uint8_t *frame,
			    const struct frame_facts *facts)
{
	const struct qp_path *path = &sender->connection.path;
	const uint8_t *ip = frame + facts->l3;

	if (memcmp(frame, path->remote_mac, 6) != 0 || memcmp(frame + 6, path->local_mac, 6) != 0)
		complain(sender, facts, "a MAC address", read_be(frame, 6), 0);
	need(sender, facts, "the VLAN tag", facts->l3 == 18 ? read_be(frame + 14, 2) : 0,
	     path->vlan_tci);
	if (facts->v4 ? memcmp(ip + 12, path->local_gid + 12, 4) != 0 ||
				memcmp(ip + 16, path->remote_gid + 12, 4) != 0
		      : memcmp(ip + 8, path->local_gid, 16) != 0 ||
				memcmp(ip + 24, path->remote_gid, 16) != 0)
		complain(sender, facts, "an IP address", 0, 0);
}

static void check_path(struct end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const struct qp_path *path = &sender->connection.path;
	const uint8_t *ip = frame + facts->l3;
	const uint32_t port = (uint32_t)read_be(frame + facts->bth - 8, 2);

	check_addresses(sender, frame, facts);
	/* Of the traffic class the lower two bits are for congestion. */
	need(sender, facts, "the DSCP", (facts->v4 ? ip[1] : (read_be(ip, 4) >> 20 & 0xff)) >> 2,
	     path->traffic_class >> 2);
	need(sender, facts, "the hop limit", ip[facts->v4 ? 8 : 7], path->hop_limit);
	if (facts->v4)
		need(sender, facts, "\"don't fragment\"", ip[6] >> 5, 2);
	if (sender->source_port == 0)
		sender->source_port = port;
	need(sender, facts, "the source port", port, sender->source_port);
	if (port < 0xc000)
		complain(sender, facts, "the source port", port, 0xc000);
	need(sender, facts, "MigReq", frame[facts->bth + 1] >> 6 & 1, 1);
}

/* --- requests --------------------------------------------------------------------- */

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
	need(sender, facts, "the address", read_be(reth, 8), op->sqe.address + offset);
	need(sender, facts, "the token", read_be(reth + 8, 4), op->sqe.token);
	need(sender, facts, "the length", read_be(reth + 12, 4), op->length - offset);
}

static void check_atomic(const struct end *sender, const struct frame_facts *facts,
			 const uint8_t *atomic, const struct op *op)
{
	need(sender, facts, "the address", read_be(atomic, 8), op->sqe.address);
	need(sender, facts, "the token", read_be(atomic + 8, 4), op->sqe.token);
	need(sender, facts, "the operand", read_be(atomic + 12, 8), op->sqe.swap);
	need(sender, facts, "the comparand", read_be(atomic + 20, 8),
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
			complain(sender, facts, "the immediate", read_be(extension, 4), 0);
		break;
	case 0x0b:
		if (memcmp(extension + 16, &op->sqe.immediate, 4) != 0)
			complain(sender, facts, "the immediate", read_be(extension + 16, 4), 0);
		check_reth(sender, facts, extension, op, 0);
		break;
	case 0x06:
	case 0x0a: check_reth(sender, facts, extension, op, 0); break;
	case 0x0c: check_reth(sender, facts, extension, op, packet * sender->pair->mtu); break;
	case 0x13:
	case 0x14: check_atomic(sender, facts, extension, op); break;
	case 0x16:
	case 0x17: need(sender, facts, "the token", read_be(extension, 4), op->sqe.token); break;
	default: break;
	}
}

static void check_payload(const struct end *sender, const struct frame_facts *facts,
			  const uint8_t *payload, const struct op *op, uint32_t packet)
{
	const uint32_t mtu = sender->pair->mtu, offset = packet * mtu;
	const uint32_t length = op->length - offset < mtu ? op->length - offset : mtu;

	need(sender, facts, "the payload's length", facts->payload, length);
	if (op->remote.fresh && length && memcmp(payload, op->remote.fresh + offset, length) != 0)
		complain(sender, facts, "the payload", payload[0], op->remote.fresh[offset]);
}

/* Nothing holds its frames back, and so delays what an arrival has set off. */
bool witness_unhindered(const struct end *sender)
{
	const struct sim_config *config = &sender->pair->world->config;

	return config->transmit_room == 0 && config->mark == 0 && config->move_every_us == 0 &&
	       sender->restarts == 0;
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
		complain(sender, facts, "the number of its tries", sender->asks,
			 sender->connection.retry_count + 1u);
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
		sender->tries++;
	if (!timer_alone(sender))
		return;
	if (back && oldest && message->sent_at && now - since > most)
		complain(sender, facts, "the time since it left", now - since, most);
	if (sender->nak_due && facts->psn == sender->nak_psn) {
		if (now - sender->nak_due > SOON)
			complain(sender, facts, "the time since the NAK", now - sender->nak_due,
				 SOON);
		sender->nak_due = 0;
	}
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
	const bool back = facts->psn != sender->goes_on;

	if (back && message->sent_at && sender->restarts == 0 &&
	    sender->arrival < message->sent_at && now - message->sent_at < least)
		complain(sender, facts, "the time since it left", now - message->sent_at, least);
	/* What nothing has set off was set off by the timer, which any progress winds up again. */
	if (back && message->sent_at && timer_alone(sender) && now - sender->arrival > SOON &&
	    now - sender->progressed < least)
		complain(sender, facts, "the time since an answer", now - sender->progressed,
			 least);
	check_late(sender, facts, message, back);
	if (back || facts->psn == message->psn)
		message->sent_at = now;
	sender->goes_on = end;
}

static void check_request(struct end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const uint32_t number = witness_find(sender, facts->psn);
	struct message *message;
	const struct op *op;
	uint32_t packet, end;
	bool asks;

	if (number == 0)
		complain(sender, facts, "the next PSN", facts->psn, sender->next_psn);
	/* A READ goes on where its answer broke off. */
	if ((facts->psn - peek_oldest(&sender->host->arena, sender->index)) % PSNS >= PSNS / 2)
		complain(sender, facts, "the oldest PSN that waits",
			 peek_oldest(&sender->host->arena, sender->index), facts->psn);
	message = &sender->message[(number - 1) % SIM_MESSAGES];
	if (message->op - sender->head >= sender->tail - sender->head)
		complain(sender, facts, "a completed request's number", message->op, sender->head);
	op = sender->op[message->op % SIM_RING];
	packet = (facts->psn - message->psn) % PSNS;
	need(sender, facts, "the opcode", facts->opcode, request_opcode(message, packet));
	asks = (op->kind <= KIND_SEND_INV || op->kind == KIND_WRITE_IMM) &&
	       (op->sqe.flags & SHM_FLAG_SOLICIT) && packet + 1 == message->packets;
	need(sender, facts, "SE", frame[facts->bth + 1] >> 7, asks);
	if (packet + 1 == message->packets || witness_returns(message->kind))
		need(sender, facts, "AckReq", facts->ack_request, 1);
	check_headers(sender, facts, frame + facts->bth + 12, op, packet);
	if (!witness_returns(message->kind))
		check_payload(sender, facts, frame + facts->payload_at, op, packet);
	if (facts->psn == sender->rnr_psn) {
		if (sender->rnr_until > sender->pair->world->now)
			complain(sender, facts, "the time", sender->pair->world->now,
				 sender->rnr_until);
		if (sender->rnr_waits && !sender->rnr_blind && witness_unhindered(sender) &&
		    sender->pair->world->now > sender->rnr_latest + SOON)
			complain(sender, facts, "the time", sender->pair->world->now,
				 sender->rnr_latest);
		sender->rnr_waits = false;
	}
	end = (facts->psn + 1) % PSNS;
	if (message->kind == KIND_READ)
		end = (message->psn + message->packets) % PSNS;
	message->asks++;
	check_time(sender, facts, message, end);
	count_asks(sender, facts);
	if ((end - sender->sent_psn) % PSNS < PSNS / 2)
		sender->sent_psn = end;
}

/* --- answers ---------------------------------------------------------------------- */

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
		complain(sender, facts, "the MSN", facts->msn, low);
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
		complain(sender, facts, "a request to be refused", op->number, 0);
	if (op->window && op->window->watched && op->window->token == op->sqe.token && op->length)
		complain(sender, facts, "a token that is dead", op->sqe.token, 0);
}

/* Each answer to a READ begins with a response that says so, wherever in the READ that is. */
static void check_first(const struct end *sender, const struct frame_facts *facts,
			struct message *message)
{
	const bool goes_on = message->answered && facts->psn == (message->response + 1) % PSNS;

	if (!goes_on && facts->opcode != 0x0d && facts->opcode != 0x10)
		complain(sender, facts, "the opcode", facts->opcode, 0x0d);
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
		complain(sender, facts, "the PSN of a request", facts->psn, requester->next_psn);
	message = &requester->message[(number - 1) % SIM_MESSAGES];
	packet = (facts->psn - message->psn) % PSNS;
	if (!message->done && packet + 1 == message->packets) {
		message->done = true;
		sender->finished++;
	}
	if (!witness_returns(message->kind) || (message->kind != KIND_READ) != atomic)
		complain(sender, facts, "the kind of the request", message->kind, KIND_READ);
	if (facts->opcode != 0x0e)
		need(sender, facts, "the syndrome", facts->syndrome, 0x1f);
	if (facts->opcode != 0x0e)
		check_msn(sender, facts, number, requester->messages);
	check_alive(sender, facts, message);
	if (atomic)
		return;
	check_first(sender, facts, message);
	last = facts->opcode == 0x0f || facts->opcode == 0x10;
	need(sender, facts, "being the last", last, packet + 1 == message->packets);
	if (packet == 0 && facts->opcode != 0x0d && facts->opcode != 0x10)
		complain(sender, facts, "the opcode", facts->opcode, 0x0d);
	if (!last)
		need(sender, facts, "the payload's length", facts->payload, mtu);
}

static void check_ack(const struct end *sender, const struct frame_facts *facts)
{
	const struct end *requester = sender->peer;
	const uint32_t number = witness_find(requester, facts->psn);
	uint32_t done = 0;

	need(sender, facts, "the syndrome", facts->syndrome, 0x1f);
	if (number == 0) {
		/* Of nothing yet, or of what is long past and has had READs behind it. */
		if (requester->messages <= SIM_MESSAGES)
			need(sender, facts, "the PSN", facts->psn,
			     (requester->connection.send_psn + PSNS - 1) % PSNS);
	} else {
		const struct message *message = witness_message(requester, number);

		if (witness_returns(message->kind))
			complain(sender, facts, "the kind of the request", message->kind,
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

	need(sender, facts, "the RNR timer", facts->syndrome & 0x1f,
	     sender->connection.min_rnr_timer);
	if (number == 0)
		complain(sender, facts, "the PSN of a request", facts->psn, requester->next_psn);
	message = witness_message(requester, number);
	packet = (facts->psn - message->psn) % PSNS;
	if (!(message->kind <= KIND_SEND_INV && packet == 0) &&
	    !(message->kind == KIND_WRITE_IMM && packet + 1 == message->packets))
		complain(sender, facts, "the kind of the request", message->kind, KIND_SEND);
}

/* A READ whose token dies while it is answered is refused where its answer breaks off. */
static void check_midway(const struct end *sender, const struct frame_facts *facts,
			 const struct message *message)
{
	if (message->kind == KIND_READ && message->answered && !message->done &&
	    message->asks == 1 && sender->restarts == 0)
		need(sender, facts, "the PSN where the answer ends", facts->psn,
		     (message->response + 1) % PSNS);
}

/* What the network has made wrong is found in the packet where it is. */
static void check_refused_at(const struct end *sender, const struct frame_facts *facts)
{
	const struct op *op = sender->peer->fault;

	if (op && fault_is_forged(op->fault) && fault_async(op->fault) &&
	    (facts->psn - op->psn) % PSNS < op->packets)
		need(sender, facts, "the PSN of what is wrong", facts->psn,
		     (op->psn + op->refused_at) % PSNS);
}

/* The messages before the one that it is about: just these are complete. */
static void check_nak(struct end *sender, const struct frame_facts *facts)
{
	const struct end *requester = sender->peer;
	const uint32_t number = witness_find(requester, facts->psn);
	uint32_t before = number ? number - 1 : requester->messages;

	if (number == 0 && facts->psn != requester->next_psn)
		complain(sender, facts, "the expected PSN", facts->psn, requester->next_psn);
	/* One that waited to leave while what it asks for came does not leave any more. */
	if (facts->syndrome <= 0x60) {
		need(sender, facts, "the expected PSN", facts->psn,
		     peek_expected(&sender->host->arena, sender->index));
		sender->told_psn = facts->psn;
	}
	if (facts->syndrome >> 5 == 1) {
		check_rnr(sender, facts, number);
		check_msn(sender, facts, before, before);
	} else if (facts->syndrome == 0x60) {
		check_msn(sender, facts, before, before);
		if (!sender->came || (sender->furthest - facts->psn - 1) % PSNS >= PSNS / 2)
			complain(sender, facts, "the furthest PSN that came", sender->furthest,
				 (facts->psn + 1) % PSNS);
		if (sender->gap_told && sender->gap_psn == facts->psn)
			complain(sender, facts, "the gap told before", facts->psn, 0);
		sender->gap_told = true;
		sender->gap_psn = facts->psn;
	} else {
		check_msn(sender, facts, before, requester->messages);
		check_refused_at(sender, facts);
		if (number && facts->syndrome == 0x62)
			check_midway(sender, facts, witness_message(requester, number));
		/* Of a READ that was answered before only the repetition is refused. */
		if (number == 0 || !witness_message(requester, number)->done)
			sender->refused = sender->restarts == 0;
	}
}

static bool carries_data(const struct frame_facts *facts)
{
	return facts->opcode <= 0x0b || (facts->opcode >= 0x0d && facts->opcode <= 0x10) ||
	       (facts->opcode >= 0x16 && facts->opcode <= 0x17);
}

/* With congestion control on, what carries data can be marked. */
static void check_ecn(const struct end *sender, const uint8_t *frame,
		      const struct frame_facts *facts)
{
	need(sender, facts, "ECN", frame_ecn(frame, facts),
	     carries_data(facts) && sender->pair->world->config.mark ? 2 : 0);
}

/*
 * The first CNP halves the rate, and nothing raises it for a while: so many bytes, and the frame
 * that was just allowed.
 */
static void check_rate(struct end *sender, const struct frame_facts *facts)
{
	const struct world *world = sender->pair->world;
	const uint64_t time = world->now - sender->slowed_at;
	uint64_t most;

	if (sender->slowed_at == 0 || time >= CUT_INTERVAL || sender->restarts ||
	    !carries_data(facts))
		return;
	/* The time of each frame is counted in whole ns. */
	most = world->config.line / 2 * (time + sender->slow_frames++) / 1000000000 + 64;
	if (sender->slow_bytes > most)
		complain(sender, facts, "the number of bytes since a CNP", sender->slow_bytes,
			 most);
	sender->slow_bytes += facts->icrc + 4;
}

/* For a mark that has come, and not more often than agreed. */
static void check_cnp(struct end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const uint64_t now = sender->pair->world->now;

	check_addresses(sender, frame, facts);
	need(sender, facts, "BECN", frame[facts->bth + 4], 0x40);
	need(sender, facts, "the payload's length", facts->payload, 16);
	if (sender->marks == 0)
		complain(sender, facts, "marks that came", 0, 1);
	/* A process that died does not know of its last. */
	if (sender->cnps && sender->cnp_restarts == sender->restarts &&
	    now - sender->cnp_at < CNP_INTERVAL)
		complain(sender, facts, "the time since a CNP", now - sender->cnp_at, CNP_INTERVAL);
	sender->cnps++;
	sender->cnp_at = now;
	sender->cnp_restarts = sender->restarts;
}

void witness_sent(struct world *world, struct end *sender, const uint8_t *frame,
		  const struct frame_facts *facts)
{
	if (facts->opcode == 0x81) {
		check_cnp(sender, frame, facts);
		return;
	}
	if (sender->refused && sender->restarts == 0)
		complain(sender, facts, "a queue pair that has refused a request", 1, 0);
	check_path(sender, frame, facts);
	check_ecn(sender, frame, facts);
	check_rate(sender, facts);
	if (facts->opcode <= 0x0c || facts->opcode >= 0x13)
		check_request(sender, frame, facts);
	else if (facts->opcode != 0x11)
		check_response(sender, facts);
	else if (facts->syndrome >> 5 == 0)
		check_ack(sender, facts);
	else
		check_nak(sender, facts);
}
