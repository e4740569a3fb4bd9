/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that no right peer sends, under a right ICRC: what the transport must refuse in silence,
 * what must make no difference, and what must end the queue pair.
 */
#include "peek.h"
#include "sim.h"

#define PSNS 0x1000000u

static void put(uint8_t *p, uint64_t value, unsigned int bytes)
{
	while (bytes--) {
		p[bytes] = (uint8_t)value;
		value >>= 8;
	}
}

static uint64_t get(const uint8_t *p, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

/* --- any frame -------------------------------------------------------------------- */

/* Now and then one that differs in its upper bits only. */
static uint32_t unused_number(struct world *world, uint32_t used)
{
	const bool alike = rng_percent(&world->weather, 50);
	uint32_t number;

	do
		number = alike ? used ^ rng_between(&world->weather, 1, 255) << 16
			       : rng_between(&world->weather, 2, 0xfffffe);
	while (host_find_number(&world->host[0], number) ||
	       host_find_number(&world->host[1], number));
	return number;
}

/* Of an address that begins here or there; one that differs in the first bits only, too. */
static uint32_t any_byte(struct rng *rng, bool v4, uint32_t start4, uint32_t start6)
{
	return v4 ? start4 + rng_below(rng, 4) : start6 + rng_below(rng, 16);
}

const char *forge_refused(struct world *world, uint8_t *frame, const struct frame_facts *facts)
{
	struct rng *rng = &world->weather;
	uint8_t *bth = frame + facts->bth, *ip = frame + facts->l3;

	/* A datagram may come from anywhere, but not to a group. */
	switch (rng_below(rng, facts->opcode < 0x60 ? 6 : 3)) {
	case 0:
		put(bth + 2,
		    0xffff ^ (rng_percent(rng, 50) ? 1u << rng_below(rng, 15)
						   : rng_between(rng, 1, 0x7fff)),
		    2);
		return "P_Key";
	case 1: bth[1] |= (uint8_t)rng_between(rng, 1, 15); return "TVer";
	case 2:
		if (facts->opcode >= 0x60) {
			ip[facts->v4 ? 16 : 24] = facts->v4 ? 224 : 0xff;
			return "destination of a group";
		}
		ip[any_byte(rng, facts->v4, 12, 8)] ^= (uint8_t)rng_between(rng, 1, 255);
		return "source address";
	case 3:
		ip[any_byte(rng, facts->v4, 16, 24)] ^= (uint8_t)rng_between(rng, 1, 255);
		return "destination address";
	case 4:
		/* The same headers as a request of another service, or no opcode at all. */
		bth[0] = facts->opcode <= 0x0b ? bth[0] | 0x20 : 0x1f;
		return "opcode";
	default: put(bth + 5, unused_number(world, facts->qpn), 3); return "queue pair";
	}
}

const char *forge_harmless(struct world *world, struct sim_buffer *buffer,
			   const struct frame_facts *facts)
{
	struct rng *rng = &world->weather;
	uint8_t *bth = buffer->bytes + facts->bth;
	const uint32_t far = rng_between(rng, 1u << 20, 1u << 22);
	const bool answer = facts->opcode >= 0x0d && facts->opcode <= 0x12;
	const bool plain_ack = facts->opcode == 0x11 && facts->syndrome < 0x20;

	if (answer && rng_percent(rng, 30)) {
		buffer->future = true;
		return "PSN that was never sent";
	}
	switch (rng_below(rng, plain_ack ? 8 : 5)) {
	case 0: put(bth + 9, facts->psn + far, 3); return "PSN far ahead";
	case 1: put(bth + 9, facts->psn - far, 3); return "PSN far behind";
	case 2: bth[8] ^= 0x80; return "AckReq";
	case 3: bth[1] ^= 0x40; return "MigReq";
	case 4: bth[8] ^= (uint8_t)rng_between(rng, 1, 127); return "reserved bits";
	case 5: bth[12] = (uint8_t)rng_below(rng, 32); return "credits";
	/* Of a PSN that none is waited for. */
	case 6: bth[0] = 0x10; return "READ response";
	default: rng_fill(rng, bth + 13, 3); return "MSN";
	}
}

void forge_wild(struct world *world, uint8_t *frame, const struct frame_facts *facts)
{
	struct rng *rng = &world->weather;
	const uint32_t most = facts->icrc - facts->bth < 64 ? facts->icrc - facts->bth : 64;

	for (uint32_t flips = rng_between(rng, 1, 4); flips; flips--) {
		const uint32_t at = rng_below(rng, most);

		if (at < 5 || at > 7)
			frame[facts->bth + at] ^= (uint8_t)(1u << rng_below(rng, 8));
	}
}

/* When it arrives it is known what the requester has sent so far. */
void forge_future(struct world *world, const struct end *end, struct sim_buffer *buffer)
{
	const uint32_t ahead = rng_percent(&world->weather, 60) ? 0 : rng_below(&world->weather, 4);
	struct frame_facts facts;

	if (!frame_read(buffer->bytes, buffer->packet.length, &facts))
		return;
	put(buffer->bytes + facts.bth + 9, end->sent_psn + ahead, 3);
	frame_repair(buffer->bytes, &facts);
}

/* --- frames of a request that is to fail ------------------------------------------ */

/* Another length of payload, with all that says how long it is. */
static void reshape(struct sim_buffer *buffer, struct frame_facts *facts, uint32_t payload)
{
	uint8_t *frame = buffer->bytes;
	const uint32_t pad = (0u - payload) & 3, icrc = facts->payload_at + payload + pad;
	const uint32_t udp = facts->bth - 8;

	for (uint32_t i = facts->payload_at + facts->payload; i < icrc; i++)
		frame[i] = 0;
	for (uint32_t i = icrc - pad; i < icrc; i++)
		frame[i] = 0;
	frame[facts->bth + 1] = (uint8_t)((frame[facts->bth + 1] & ~0x30u) | pad << 4);
	put(frame + udp + 4, icrc + 4 - udp, 2);
	if (facts->v4)
		put(frame + facts->l3 + 2, icrc + 4 - facts->l3, 2);
	else
		put(frame + facts->l3 + 4, icrc + 4 - udp, 2);
	facts->payload = payload;
	facts->icrc = icrc;
	buffer->packet.length = icrc + 4;
}

/* --- what was carried out already, asked for once more ----------------------------- */

/* A READ becomes an atomic of the same bytes, or the reverse. */
static void turn_kind(struct rng *rng, struct sim_buffer *buffer, struct frame_facts *facts)
{
	uint8_t *bth = buffer->bytes + facts->bth;

	if (bth[0] == 0x0c) {
		bth[0] = rng_percent(rng, 50) ? 0x13 : 0x14;
		rng_fill(rng, bth + 12 + 12, 16);
		facts->payload_at += 12;
	} else {
		bth[0] = 0x0c;
		put(bth + 12 + 12, 8, 4);
		facts->payload_at -= 12;
	}
	reshape(buffer, facts, 0);
}

/* Whether what `end` has carried out at this PSN is no READ, which might be just what is asked for.
 */
static bool is_past_and_no_read(const struct end *end, uint32_t psn)
{
	const uint32_t number = witness_find(end->peer, psn);

	return number && peek_is_past(&end->host->arena, end->index, psn) &&
	       witness_message(end->peer, number)->kind != KIND_READ;
}

/*
 * More bytes than there are left of a READ: from its start, all of them from its second packet, or
 * some behind its last.
 */
static const char *ask_for_more(struct world *world, const struct end *end, uint8_t *bth,
				uint32_t psn, uint32_t length)
{
	const uint32_t mtu = end->pair->mtu, packets = (length + mtu - 1) / mtu;
	const bool middle = packets > 1 && (psn & 1);
	const uint32_t over = middle ? 1 : packets;

	if (!middle &&
	    (packets == 0 || !(psn & 2) || !is_past_and_no_read(end, (psn + packets) % PSNS))) {
		put(bth + 24, length + one_or_more(&world->weather, 4096), 4);
		return "more bytes";
	}
	put(bth + 9, psn + over, 3);
	put(bth + 12, get(bth + 12, 8) + (uint64_t)over * mtu, 8);
	return middle ? "as many bytes from its middle" : "bytes behind its end";
}

const char *forge_again(struct world *world, const struct end *end, struct sim_buffer *buffer)
{
	struct rng *rng = &world->weather;
	const char *what = "another kind";
	struct frame_facts facts;
	uint32_t length;
	uint8_t *bth;

	if (!frame_read(buffer->bytes, buffer->packet.length, &facts) ||
	    (facts.opcode != 0x0c && facts.opcode != 0x13 && facts.opcode != 0x14))
		return NULL;
	bth = buffer->bytes + facts.bth;
	length = (uint32_t)get(bth + 24, 4);
	/* Of a READ of nothing, token and address are not looked at. */
	switch (facts.opcode == 0x0c && length == 0 ? 2 + rng_below(rng, 2) : rng_below(rng, 4)) {
	case 0:
		bth[20 + rng_below(rng, 4)] ^= (uint8_t)rng_between(rng, 1, 255);
		what = "another token";
		break;
	case 1:
		bth[19] ^= (uint8_t)(8 * rng_between(rng, 1, 31));
		what = "another address";
		break;
	case 2:
		if (facts.opcode == 0x0c) {
			what = ask_for_more(world, end, bth, facts.psn, length);
		} else {
			bth[0] ^= 0x07;
		}
		break;
	default: turn_kind(rng, buffer, &facts);
	}
	frame_repair(buffer->bytes, &facts);
	return what;
}

bool forge_piece(struct world *world, const struct end *end, struct sim_buffer *buffer)
{
	struct rng *rng = &world->weather;
	const uint32_t mtu = end->pair->mtu;
	const struct message *message;
	struct frame_facts facts;
	uint32_t number, packets, from, count, rest;
	uint8_t *bth;

	if (!frame_read(buffer->bytes, buffer->packet.length, &facts) || facts.opcode != 0x0c ||
	    rng_percent(rng, 30))
		return false;
	number = witness_find(end->peer, facts.psn);
	message = number ? witness_message(end->peer, number) : NULL;
	if (message == NULL || message->kind != KIND_READ || message->packets < 2 ||
	    message->piece_end || facts.psn != message->psn ||
	    !peek_is_ghost(&end->peer->host->arena, end->peer->index,
			   (message->psn + message->packets - 1) % PSNS))
		return false;
	bth = buffer->bytes + facts.bth;
	packets = message->packets;
	from = rng_below(rng, packets - 1);
	count = rng_between(rng, 1, packets - 1 - from);
	rest = rng_between(rng, 1, mtu);
	put(bth + 9, facts.psn + from, 3);
	put(bth + 12, get(bth + 12, 8) + (uint64_t)from * mtu, 8);
	put(bth + 24, (count - 1) * mtu + rest, 4);
	frame_repair(buffer->bytes, &facts);
	witness_piece(end->peer, facts.psn, from + count, rest);
	sim_log(world, "pair %u end %u: READ PSN %06x asked for from packet %u, %u bytes",
		end->pair->number, end->side, facts.psn, from, (count - 1) * mtu + rest);
	return true;
}

/* --- frames of a request that is to fail, made ------------------------------------- */

/* A SEND in another place of its message, or a part of it that is a WRITE's. */
static void put_out_of_sequence(uint8_t *bth)
{
	static const uint8_t other[] = { 0x01, 0x07, 0x04, 0x05, 0x02, 0x03 };

	if (bth[0] < sizeof(other))
		bth[0] = other[bth[0]];
}

static bool is_request(const struct frame_facts *facts)
{
	return facts->opcode <= 0x0c || facts->opcode >= 0x13;
}

static bool forge_request(struct sim_buffer *buffer, struct frame_facts *facts, const struct op *op)
{
	uint8_t *bth = buffer->bytes + facts->bth;

	switch (op->fault) {
	case FAULT_WIRE_SHORT: reshape(buffer, facts, facts->payload - op->wire_choice); break;
	case FAULT_WIRE_EMPTY: reshape(buffer, facts, 0); break;
	case FAULT_WIRE_LONG: reshape(buffer, facts, facts->payload + op->wire_choice); break;
	case FAULT_WIRE_SEQUENCE: put_out_of_sequence(bth); break;
	case FAULT_WIRE_LENGTH: put(bth + 12 + 12, op->wire_choice, 4); break;
	case FAULT_WIRE_HUGE: put(bth + 12 + 12, 0x80000001u + op->wire_choice, 4); break;
	case FAULT_WIRE_OPCODE: bth[0] = 0x1d; break;
	default: return false;
	}
	return true;
}

/* Results of atomics and responses of eight bytes look alike. */
static bool turns_kind(const struct op *op)
{
	return op->wire_choice == 0 && op->length == 8 && op->packets == 1;
}

static bool forge_answer(struct sim_buffer *buffer, struct frame_facts *facts, const struct op *op)
{
	uint8_t *bth = buffer->bytes + facts->bth;

	/* FIRST in place of LAST or ONLY, or ONLY in place of FIRST. */
	if (op->fault == FAULT_WIRE_RESPONSE && op->wire_choice && facts->opcode >= 0x0d &&
	    facts->opcode <= 0x10 && facts->opcode != 0x0e) {
		facts->opcode = bth[0] = facts->opcode == 0x0d ? 0x10 : 0x0d;
		return true;
	}
	if (op->fault == FAULT_WIRE_SILENT && facts->opcode >= 0x0d && facts->opcode != 0x11) {
		/* An answer of the other kind is none. */
		if (turns_kind(op))
			facts->opcode = bth[0] = facts->opcode == 0x12 ? 0x10 : 0x12;
		return true;
	}
	if (op->fault == FAULT_WIRE_RESPONSE && facts->opcode >= 0x0d && facts->opcode <= 0x10) {
		reshape(buffer, facts, facts->payload > 4 ? facts->payload - 4 : 0);
		return true;
	}
	if (op->fault == FAULT_WIRE_NAK && facts->opcode == 0x11 && facts->syndrome < 0x20) {
		/* No plain ACK any more, whose credits may be anything. */
		facts->syndrome = bth[12] = (uint8_t)(0x64 + op->wire_choice % 28);
		return true;
	}
	return false;
}

/* Whether the network keeps for itself what forge_fault() has made of an answer. */
bool forge_swallows(const struct end *receiver, const struct frame_facts *facts)
{
	const struct op *op = receiver->fault;

	return op && op->fault == FAULT_WIRE_SILENT && !is_request(facts) && !turns_kind(op);
}

/* Each time that this packet passes, first or again, so nothing can make it good. */
const char *forge_fault(struct end *receiver, struct sim_buffer *buffer, struct frame_facts *facts)
{
	const struct end *requester = is_request(facts) ? receiver->peer : receiver;
	const struct op *op = requester->fault;
	bool done;

	if (op == NULL || !fault_is_forged(op->fault) || facts->opcode == 0x81 ||
	    (facts->psn - op->psn - op->wire_packet) % PSNS)
		return NULL;
	done = is_request(facts) ? forge_request(buffer, facts, op)
				 : forge_answer(buffer, facts, op);
	if (!done)
		return NULL;
	frame_repair(buffer->bytes, facts);
	return fault_name(op->fault);
}
