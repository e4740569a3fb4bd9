/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a connection: DREQ and DREP of both sides, a peer that lost it, its owner's leave. */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"

/* A DREQ that nobody answers must not hold the record much longer than half a minute. */
#define MOST_DREQ_REPEATS 6u

static void start_disconnect(struct cm *cm, struct connection *c, uint64_t now)
{
	cm_connection_set_state(cm, c, CONNECTION_DREQ_SENT);
	c->repeats = c->max_repeats < MOST_DREQ_REPEATS ? c->max_repeats : MOST_DREQ_REPEATS;
	cm_timers_set(cm, c, now + c->interval);
	cm_send_dreq(cm, c);
}

/* --- the owner ends it ---------------------------------------------------------------- */

/* REP_SENT counts as connected: the peer may have sent an RTU that was lost. */
int cm_disconnect(struct cm *cm, uint32_t connection, uint64_t now)
{
	struct connection *c = cm_connection_get(cm, connection);

	if (!c || (c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_REP_SENT))
		return -ENOTCONN;
	start_disconnect(cm, c, now);
	return 0;
}

void cm_release(struct cm *cm, uint32_t connection, uint64_t now)
{
	struct cm_refusal refusal = { .reason = CM_REJ_CONSUMER };
	struct connection *c = cm_connection_get(cm, connection);

	if (!c)
		return;
	c->released = 1;
	switch ((enum connection_state)c->state) {
	case CONNECTION_REQ_RECEIVED:
	case CONNECTION_REP_RECEIVED:
	case CONNECTION_REP_SENT: cm_reject_connection(cm, c, &refusal, now); break;
	case CONNECTION_SIDR_RECEIVED: cm_sidr_reject(cm, c, &refusal, now); break;
	case CONNECTION_WITHDRAWN:
	case CONNECTION_SIDR_SENT: cm_connection_finish(cm, c); break;
	case CONNECTION_REQ_SENT:
		cm_send_rej_timeout(cm, c);
		cm_connection_enter_timewait(cm, c, now);
		break;
	case CONNECTION_ESTABLISHED: start_disconnect(cm, c, now); break;
	case CONNECTION_DREQ_SENT:
	case CONNECTION_TIMEWAIT:
	case CONNECTION_FREE:
	case CONNECTION_STATES: break;
	}
}

void cm_disconnect_done(struct cm *cm, struct connection *c, uint32_t given_up, uint64_t now)
{
	cm_connection_enter_timewait(cm, c, now);
	if (!c->told_disconnected)
		cm_connection_event(cm, c, CM_DISCONNECT_DONE, given_up, NULL);
}

/* --- the peer ends it ----------------------------------------------------------------- */

void cm_disconnect_peer_gone(struct cm *cm, struct connection *c, uint32_t reason, uint64_t now)
{
	c->told_disconnected = 1;
	cm_connection_enter_timewait(cm, c, now);
	cm_connection_event(cm, c, CM_DISCONNECTED, reason, NULL);
}

void cm_disconnect_stale(struct cm *cm, struct connection *c, uint64_t now)
{
	c->told_disconnected = 1;
	if (c->state == CONNECTION_REQ_RECEIVED)
		cm_connection_withdraw(cm, c);
	else
		start_disconnect(cm, c, now);
	cm_connection_event(cm, c, CM_DISCONNECTED, CM_REJ_STALE_CONNECTION, NULL);
}

/* An answer is due in every state, also for what we do not know (any more). */
void cm_disconnect_request(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			   uint64_t tid, uint64_t now)
{
	struct connection *c;
	struct cm_dreq dreq;

	cm_dreq_parse(mad, &dreq);
	c = cm_connection_of_both_ids(cm, from, dreq.local_id, dreq.remote_id);
	if (c && c->local_qpn != dreq.remote_qpn) {
		cm->statistics.malformed++;
		return;
	}
	cm_send_drep(cm, from, &dreq, tid);
	if (!c) {
		cm->statistics.unknown++;
		return;
	}
	switch ((enum connection_state)c->state) {
	case CONNECTION_REP_SENT:
	case CONNECTION_REP_RECEIVED:
	case CONNECTION_ESTABLISHED: cm_disconnect_peer_gone(cm, c, 0, now); break;
	/* Both sides at once: the peer is through with it, whether or not it answers ours. */
	case CONNECTION_DREQ_SENT: cm_disconnect_done(cm, c, 0, now); break;
	default: cm->statistics.duplicates++; break;
	}
}

void cm_disconnect_reply(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			 uint64_t now)
{
	struct connection *c;
	struct cm_rtu drep;

	cm_rtu_parse(mad, &drep);
	c = cm_connection_of_both_ids(cm, from, drep.local_id, drep.remote_id);
	if (!c)
		cm->statistics.unknown++;
	else if (c->state == CONNECTION_DREQ_SENT)
		cm_disconnect_done(cm, c, 0, now);
	else
		cm->statistics.duplicates++;
}
