/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What every frame must look like when it leaves a host: the request as it was posted, the answer
 * as it is due, the path as it was agreed. That holds whatever the other end makes of it, so
 * mistakes that our own peer would forgive are found here: what is common to all frames, and CNPs.
 * What comes is arrival.c's.
 */
#include <string.h>

#include "witness.h"

#define CNP_DSCP 48u /* the default */

_Noreturn void witness_complain(const struct end *sender, const struct frame_facts *facts,
				const char *what, uint64_t is, uint64_t due)
{
	sim_fail(sender->pair->world, "pair %u end %u sent %s PSN %06x: %s is %#llx and not %#llx",
		 sender->pair->number, sender->side, facts->name, facts->psn, what,
		 (unsigned long long)is, (unsigned long long)due);
}

void witness_need(const struct end *sender, const struct frame_facts *facts, const char *what,
		  uint64_t is, uint64_t due)
{
	if (is != due)
		witness_complain(sender, facts, what, is, due);
}

uint64_t read_be(const uint8_t *p, unsigned int bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | *p++;
	return value;
}

/* --- messages by PSN -------------------------------------------------------------- */

bool witness_leaves(const struct op *op)
{
	if (op->kind == KIND_BIND || op->kind == KIND_INVALIDATE)
		return false;
	return op->fault == FAULT_NONE || fault_leaves(op->fault);
}

void witness_posted(struct end *end, struct op *op)
{
	struct message *message = &end->message[end->messages % SIM_MESSAGES];

	op->psn = end->next_psn;
	if (!witness_leaves(op))
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

void witness_piece(struct end *end, uint32_t psn, uint32_t packets, uint32_t rest)
{
	const uint32_t number = witness_find(end, psn);

	end->message[(number - 1) % SIM_MESSAGES].piece_end = packets;
	end->message[(number - 1) % SIM_MESSAGES].piece_rest = rest;
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

/* Nothing holds its frames back, and so delays what an arrival has set off. */
bool witness_unhindered(const struct end *sender)
{
	const struct sim_config *config = &sender->pair->world->config;

	return config->transmit_room == 0 && config->mark == 0 && config->move_every_us == 0 &&
	       sender->restarts == 0;
}

/* --- path ------------------------------------------------------------------------- */

static void check_addresses(const struct end *sender, const uint8_t *frame,
			    const struct frame_facts *facts)
{
	const struct qp_path *path = &sender->connection.path;
	const uint8_t *ip = frame + facts->l3;

	if (memcmp(frame, path->remote_mac, 6) != 0 || memcmp(frame + 6, path->local_mac, 6) != 0)
		witness_complain(sender, facts, "a MAC address", read_be(frame, 6), 0);
	witness_need(sender, facts, "the VLAN tag", facts->l3 == 18 ? read_be(frame + 14, 2) : 0,
		     path->vlan_tci);
	if (facts->v4 ? memcmp(ip + 12, path->local_gid + 12, 4) != 0 ||
				memcmp(ip + 16, path->remote_gid + 12, 4) != 0
		      : memcmp(ip + 8, path->local_gid, 16) != 0 ||
				memcmp(ip + 24, path->remote_gid, 16) != 0)
		witness_complain(sender, facts, "an IP address", 0, 0);
}

static uint32_t traffic_class(const uint8_t *frame, const struct frame_facts *facts)
{
	const uint8_t *ip = frame + facts->l3;

	return facts->v4 ? ip[1] : read_be(ip, 4) >> 20 & 0xff;
}

static void check_path(struct end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const struct qp_path *path = &sender->connection.path;
	const uint8_t *ip = frame + facts->l3;
	const uint32_t port = (uint32_t)read_be(frame + facts->bth - 8, 2);

	check_addresses(sender, frame, facts);
	/* Of the traffic class the lower two bits are for congestion. */
	witness_need(sender, facts, "the DSCP", traffic_class(frame, facts) >> 2,
		     path->traffic_class >> 2);
	witness_need(sender, facts, "the hop limit", ip[facts->v4 ? 8 : 7], path->hop_limit);
	if (facts->v4)
		witness_need(sender, facts, "\"don't fragment\"", ip[6] >> 5, 2);
	if (sender->source_port == 0)
		sender->source_port = port;
	witness_need(sender, facts, "the source port", port, sender->source_port);
	if (port < 0xc000)
		witness_complain(sender, facts, "the source port", port, 0xc000);
	witness_need(sender, facts, "MigReq", frame[facts->bth + 1] >> 6 & 1, 1);
}

/* --- congestion ------------------------------------------------------------------- */

static bool carries_data(const struct frame_facts *facts)
{
	return facts->opcode <= 0x0b || (facts->opcode >= 0x0d && facts->opcode <= 0x10) ||
	       (facts->opcode >= 0x16 && facts->opcode <= 0x17);
}

/* With congestion control on, what carries data can be marked. */
static void check_ecn(const struct end *sender, const uint8_t *frame,
		      const struct frame_facts *facts)
{
	witness_need(sender, facts, "ECN", frame_ecn(frame, facts),
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
		witness_complain(sender, facts, "the number of bytes since a CNP",
				 sender->slow_bytes, most);
	sender->slow_bytes += facts->icrc + 4;
}

/* For a mark that has come, and not more often than agreed. */
static void check_cnp(struct end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const uint64_t now = sender->pair->world->now;

	check_addresses(sender, frame, facts);
	witness_need(sender, facts, "the traffic class", traffic_class(frame, facts),
		     CNP_DSCP << 2 | 2);
	witness_need(sender, facts, "BECN", frame[facts->bth + 4], 0x40);
	witness_need(sender, facts, "the payload's length", facts->payload, 16);
	if (sender->marks == 0)
		witness_complain(sender, facts, "marks that came", 0, 1);
	/* A process that died does not know of its last. */
	if (sender->cnps && sender->cnp_restarts == sender->restarts &&
	    now - sender->cnp_at < CNP_INTERVAL)
		witness_complain(sender, facts, "the time since a CNP", now - sender->cnp_at,
				 CNP_INTERVAL);
	sender->cnps++;
	sender->cnp_at = now;
	sender->cnp_restarts = sender->restarts;
}

/* --- all frames ------------------------------------------------------------------- */

void witness_sent(struct world *world, struct end *sender, const uint8_t *frame,
		  const struct frame_facts *facts)
{
	if (facts->opcode == 0x81) {
		check_cnp(sender, frame, facts);
		return;
	}
	if (sender->over && sender->restarts == 0)
		witness_complain(sender, facts, "a queue pair that has refused a request", 1, 0);
	check_path(sender, frame, facts);
	check_ecn(sender, frame, facts);
	check_rate(sender, facts);
	if (facts->opcode <= 0x0c || facts->opcode >= 0x13)
		witness_check_request(sender, frame, facts);
	else
		witness_check_answer(sender, facts);
}
