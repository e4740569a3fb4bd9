/* SPDX-License-Identifier: BSD-3-Clause */
/* Time: the heap of deadlines, what an expired one means, and the time codes of the MADs. */
#include <errno.h>
#include <stdlib.h>

#include "cm/cm_private.h"

/* A connection may be made between two polls: the caller comes back at least this often. */
#define LONGEST_PAUSE (100 * CM_NANOSECONDS_PER_MS)

/*
 * Codes come from the peer. What it asks for holds within these bounds, so that it can neither
 * make us flood it nor keep a record for hours.
 */
#define LEAST_RESPONSE_CODE   14u /* 67 ms */
#define MOST_RESPONSE_CODE    21u /* 8.6 s */
#define LEAST_TIMEWAIT_CODE   16u /* 268 ms */
#define MOST_TIMEWAIT_CODE    21u
#define MOST_SERVICE_CODE     24u /* 68.7 s, what Linux asks for */
#define PACKET_LIFE_TIME_CODE 14u
#define MOST_ACK_TIMEOUT      31u /* the field has 5 bits */

/* --- a binary heap, first deadline at 1 ----------------------------------------------- */

int cm_timers_create(struct cm *cm, uint32_t records)
{
	cm->heap = calloc((size_t)records + 1, sizeof(*cm->heap));
	cm->heap_place = calloc(records, sizeof(*cm->heap_place));
	return cm->heap && cm->heap_place ? 0 : -ENOMEM;
}

void cm_timers_destroy(struct cm *cm)
{
	free(cm->heap);
	free(cm->heap_place);
}

static uint64_t deadline_at(const struct cm *cm, uint32_t place)
{
	return cm_connection_at(cm, cm->heap[place])->deadline;
}

static void put_at(struct cm *cm, uint32_t place, uint32_t index)
{
	cm->heap[place] = index;
	cm->heap_place[index] = place;
}

static uint32_t move_up(struct cm *cm, uint32_t place)
{
	uint32_t index = cm->heap[place];
	uint64_t deadline = deadline_at(cm, place);

	while (place > 1 && deadline_at(cm, place / 2) > deadline) {
		put_at(cm, place, cm->heap[place / 2]);
		place /= 2;
	}
	put_at(cm, place, index);
	return place;
}

static void move_down(struct cm *cm, uint32_t place)
{
	uint32_t index = cm->heap[place];
	uint64_t deadline = deadline_at(cm, place);

	for (;;) {
		uint32_t child = place * 2;

		if (child > cm->heap_count)
			break;
		if (child < cm->heap_count && deadline_at(cm, child + 1) < deadline_at(cm, child))
			child++;
		if (deadline_at(cm, child) >= deadline)
			break;
		put_at(cm, place, cm->heap[child]);
		place = child;
	}
	put_at(cm, place, index);
}

void cm_timers_set(struct cm *cm, struct connection *c, uint64_t deadline)
{
	uint32_t index = cm_connection_index(cm, c);

	if (!c->deadline)
		put_at(cm, ++cm->heap_count, index);
	c->deadline = deadline;
	move_down(cm, move_up(cm, cm->heap_place[index]));
}

void cm_timers_stop(struct cm *cm, struct connection *c)
{
	uint32_t place = cm->heap_place[cm_connection_index(cm, c)];
	uint32_t last;

	if (!c->deadline)
		return;
	c->deadline = 0;
	last = cm->heap[cm->heap_count--];
	if (place > cm->heap_count)
		return;
	put_at(cm, place, last);
	move_down(cm, move_up(cm, place));
}

/* --- time codes ----------------------------------------------------------------------- */

uint64_t cm_timers_from_code(uint32_t code)
{
	return 4096ull << (code & 31);
}

static uint32_t clamp(uint32_t code, uint32_t least, uint32_t most)
{
	return code < least ? least : code > most ? most : code;
}

uint64_t cm_timers_interval(uint32_t response_code)
{
	return cm_timers_from_code(clamp(response_code, LEAST_RESPONSE_CODE, MOST_RESPONSE_CODE)) +
	       2 * cm_timers_from_code(PACKET_LIFE_TIME_CODE);
}

uint64_t cm_timers_timewait(uint32_t ack_timeout_code)
{
	return cm_timers_from_code(
		clamp(ack_timeout_code, LEAST_TIMEWAIT_CODE, MOST_TIMEWAIT_CODE));
}

uint64_t cm_timers_service(uint32_t service_code)
{
	return cm_timers_from_code(clamp(service_code, LEAST_RESPONSE_CODE, MOST_SERVICE_CODE)) +
	       2 * cm_timers_from_code(PACKET_LIFE_TIME_CODE);
}

/*
 * Codes are powers of two: the sum of two is below twice the larger, and a smaller one that is
 * below half of it is not counted. 0 is no timer and stays so.
 */
uint8_t cm_ack_timeout(uint8_t timeout, uint8_t target_ack_delay)
{
	uint8_t larger = timeout > target_ack_delay ? timeout : target_ack_delay;
	uint8_t smaller = timeout > target_ack_delay ? target_ack_delay : timeout;

	if (timeout == 0 || larger >= MOST_ACK_TIMEOUT)
		return timeout ? MOST_ACK_TIMEOUT : 0;
	return smaller + 1 >= larger ? larger + 1 : larger;
}

/* --- expiry --------------------------------------------------------------------------- */

static void give_up(struct cm *cm, struct connection *c, uint64_t now)
{
	cm->statistics.timeouts++;
	if (c->state == CONNECTION_DREQ_SENT) {
		cm_disconnect_done(cm, c, 1, now);
		return;
	}
	if (c->state == CONNECTION_SIDR_SENT) {
		cm_connection_set_state(cm, c, CONNECTION_TIMEWAIT);
		cm_connection_event(cm, c, CM_UNREACHABLE, 0, NULL);
		cm_connection_finish(cm, c);
		return;
	}
	/* The peer may believe that the connection is up: this tells it, if it is still there. */
	cm_send_rej_timeout(cm, c);
	cm_connection_enter_timewait(cm, c, now);
	cm_connection_event(cm, c, CM_UNREACHABLE, 0, NULL);
}

static void expire(struct cm *cm, struct connection *c, uint64_t now)
{
	switch ((enum connection_state)c->state) {
	case CONNECTION_REQ_SENT:
	case CONNECTION_REP_SENT:
	case CONNECTION_DREQ_SENT:
	case CONNECTION_SIDR_SENT:
		if (!c->repeats) {
			give_up(cm, c, now);
			break;
		}
		c->repeats--;
		cm_timers_set(cm, c, now + c->interval);
		cm_send_again(cm, c);
		break;
	case CONNECTION_TIMEWAIT: cm_connection_finish(cm, c); break;
	case CONNECTION_FREE:
	case CONNECTION_REQ_RECEIVED:
	case CONNECTION_REP_RECEIVED:
	case CONNECTION_SIDR_RECEIVED:
	case CONNECTION_ESTABLISHED:
	case CONNECTION_WITHDRAWN:
	case CONNECTION_STATES: cm_timers_stop(cm, c); break;
	}
}

uint64_t cm_poll(struct cm *cm, uint64_t now)
{
	uint64_t next = now + LONGEST_PAUSE;

	while (cm->heap_count && deadline_at(cm, 1) <= now)
		expire(cm, cm_connection_at(cm, cm->heap[1]), now);
	if (cm->heap_count && deadline_at(cm, 1) < next)
		next = deadline_at(cm, 1);
	return next;
}
