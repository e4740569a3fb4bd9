/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the network keeps the order, a message of an unreliable queue pair that comes whole is
 * received, whatever has become of those before it: which of them come is known from their frames.
 */
#include "loose.h"

#define PSNS 0x1000000u

static bool begins(uint8_t opcode)
{
	const uint8_t kind = opcode & 0x1f;

	return kind == 0x00 || kind == 0x04 || kind == 0x05 || kind == 0x06 || kind == 0x0a ||
	       kind == 0x0b;
}

void loose_left(struct loose_end *sender, const struct frame_facts *facts)
{
	struct loose_message *m = &sender->message[sender->leaving % LOOSE_HISTORY];

	if (!begins(facts->opcode) || sender->leaving == sender->tail)
		return;
	m->psn = facts->psn;
	m->packets = m->length ? (m->length - 1) / sender->loose->mtu + 1 : 1;
	sender->leaving++;
}

/* The one that has this PSN, of those not yet received; NULL: none. */
static struct loose_message *find(struct loose_end *sender, uint32_t psn, uint32_t *number)
{
	const uint32_t oldest = sender->peer->matched;

	for (uint32_t i = sender->leaving; i-- > oldest && sender->leaving - i < LOOSE_HISTORY;) {
		struct loose_message *m = &sender->message[i % LOOSE_HISTORY];

		*number = i;
		if ((psn - m->psn) % PSNS < m->packets)
			return m;
	}
	return NULL;
}

void loose_spoiled(struct loose_end *sender, uint32_t psn)
{
	uint32_t number;
	struct loose_message *m = find(sender, psn, &number);

	if (m)
		m->spoiled = true;
}

/* Each message before it that is not known to be received may have a receive of its own. */
void loose_came(struct loose_end *end, uint32_t psn)
{
	uint32_t number;
	struct loose_message *m = find(end->peer, psn, &number);

	if (m == NULL)
		return;
	m->come++;
	if (end->receive_tail - end->receive_head <= number - end->matched + 1)
		m->spoiled = true;
}

/* Short ones look alike: another may have been taken for it. */
bool loose_came_whole(const struct loose_end *end, const struct loose_message *m)
{
	const bool unique = m->kind != KIND_SEND || m->length >= 16;

	return end->loose->world->statistics.restarts == 0 && !m->spoiled && m->packets &&
	       m->come == m->packets && unique;
}
