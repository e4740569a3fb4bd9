/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers that try bad tokens: counted per source address, shut out for a while past the budget. */
#include <string.h>

#include "control/control_private.h"

#define MINUTE 60000000000ull

/*
 * The record of an address, or the one to reuse: the longest idle that is not shut out; NULL when
 * all are.
 */
static struct offender *offender_find(struct control *control, const uint8_t gid[16], bool *known)
{
	struct offender *oldest = NULL;

	for (unsigned int i = 0; i < MAX_OFFENDERS; i++) {
		struct offender *offender = &control->offender[i];

		if (!memcmp(offender->gid, gid, 16)) {
			*known = true;
			return offender;
		}
		if (offender->shut_until < control->now &&
		    (!oldest || offender->window_start < oldest->window_start))
			oldest = offender;
	}
	*known = false;
	return oldest;
}

void offender_count(struct control *control, const uint8_t gid[16])
{
	struct offender *offender;
	bool known;

	control->status.bad_tokens++;
	if (control->config.bad_token_budget == 0)
		return;
	offender = offender_find(control, gid, &known);
	if (!offender)
		return;
	if (!known || control->now - offender->window_start > MINUTE) {
		memcpy(offender->gid, gid, 16);
		offender->count = 0;
		offender->window_start = control->now;
		if (!known)
			offender->shut_until = 0;
	}
	if (++offender->count <= control->config.bad_token_budget ||
	    offender->shut_until > control->now)
		return;
	offender->shut_until = control->now + MINUTE;
	control->status.peers_shut_out++;
	control_say(control, "a peer used %u bad tokens within a minute: shut out for 60 s",
		    offender->count);
}

bool offender_shut_out(struct control *control, const uint8_t gid[16])
{
	bool known;
	struct offender *offender = offender_find(control, gid, &known);

	return known && offender->shut_until > control->now;
}
