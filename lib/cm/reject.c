/* SPDX-License-Identifier: BSD-3-Clause */
/* Refusals in both directions, and the peer's plea for patience (MRA). */
#include <errno.h>
#include <string.h>

#include "cm/cm_private.h"

/* --- ours ----------------------------------------------------------------------------- */

static enum cm_subject subject_of(const struct connection *c)
{
	switch ((enum connection_state)c->state) {
	case CONNECTION_REQ_RECEIVED: return CM_SUBJECT_REQ;
	case CONNECTION_REP_RECEIVED: return CM_SUBJECT_REP;
	default: return CM_SUBJECT_OTHER;
	}
}

/* Before the peer has heard a QPN of ours there is nothing that timewait would protect. */
void cm_reject_connection(struct cm *cm, struct connection *c, const struct cm_refusal *refusal,
			  uint64_t now)
{
	bool nothing_told = c->state == CONNECTION_REQ_RECEIVED;

	cm_send_rej(cm, c, subject_of(c), refusal);
	if (nothing_told)
		cm_connection_finish(cm, c);
	else
		cm_connection_enter_timewait(cm, c, now);
}

int cm_reject(struct cm *cm, uint32_t connection, uint32_t reason, const uint8_t *ari,
	      uint32_t ari_length, const uint8_t *private_data, uint32_t private_length,
	      uint64_t now)
{
	struct connection *c = cm_connection_get(cm, connection);
	struct cm_refusal refusal = { reason, ari, ari_length, private_data, private_length };

	if (!c || !cm_connection_is_pending(c))
		return -ENOTCONN;
	if (c->state == CONNECTION_SIDR_RECEIVED)
		return cm_sidr_reject(cm, c, &refusal, now);
	if (c->state == CONNECTION_SIDR_SENT)
		return -ENOTCONN;
	if (ari_length > CM_REJ_ARI || private_length > CM_REJ_PRIVATE)
		return -EMSGSIZE;
	cm_reject_connection(cm, c, &refusal, now);
	return 0;
}

/* --- the peer's ----------------------------------------------------------------------- */

/*
 * A peer that does not know our id (its REQ timed out, or it never saw our REP) is found by
 * its own id. One that has no id itself refuses by ours alone.
 */
static struct connection *find_refused(const struct cm *cm, const struct cm_address *from,
				       const struct cm_rej *rej)
{
	struct connection *c = NULL;

	if (rej->remote_id)
		return rej->local_id
			       ? cm_connection_of_both_ids(cm, from, rej->local_id, rej->remote_id)
			       : cm_connection_of_own_id(cm, from, rej->remote_id);
	while (rej->local_id &&
	       (c = cm_connection_by_remote_id(cm, from->remote_gid, rej->local_id, c)))
		if (c->state != CONNECTION_TIMEWAIT && c->state != CONNECTION_WITHDRAWN)
			return c;
	return NULL;
}

static void tell_rejected(struct cm *cm, struct connection *c, const struct cm_rej *rej)
{
	struct cm_parameters parameters = { .private_length = CM_REJ_PRIVATE };

	memcpy(parameters.private_data, rej->private_data, CM_REJ_PRIVATE);
	cm_connection_event(cm, c, CM_REJECTED, rej->reason, &parameters);
}

static void take_rejection(struct cm *cm, struct connection *c, const struct cm_rej *rej,
			   uint64_t now)
{
	/* A stale refusal says that the peer has our QPN in use; others that it never had it. */
	bool free_at_once =
		c->state == CONNECTION_REQ_SENT && rej->reason != CM_REJ_STALE_CONNECTION;

	if (c->state == CONNECTION_REQ_RECEIVED) {
		cm_connection_withdraw(cm, c);
		tell_rejected(cm, c, rej);
		return;
	}
	if (cm_active_lower_mtu(cm, c, rej, now))
		return;
	cm_timers_stop(cm, c);
	cm_connection_enter_timewait(cm, c, now);
	memset(c->mad, 0, sizeof(c->mad));
	tell_rejected(cm, c, rej);
	if (free_at_once)
		cm_connection_finish(cm, c);
}

void cm_reject_received(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
			uint64_t now)
{
	struct connection *c;
	struct cm_rej rej;

	cm_rej_parse(mad, &rej);
	c = find_refused(cm, from, &rej);
	if (!c) {
		cm->statistics.unknown++;
		return;
	}
	switch ((enum connection_state)c->state) {
	case CONNECTION_REQ_RECEIVED:
	case CONNECTION_REP_SENT:
	case CONNECTION_REQ_SENT:
	case CONNECTION_REP_RECEIVED: take_rejection(cm, c, &rej, now); break;
	case CONNECTION_ESTABLISHED: cm_disconnect_peer_gone(cm, c, rej.reason, now); break;
	case CONNECTION_DREQ_SENT: cm_disconnect_done(cm, c, 0, now); break;
	default: cm->statistics.duplicates++; break;
	}
}

/* --- MRA ------------------------------------------------------------------------------ */

void cm_mra_received(struct cm *cm, const struct cm_address *from, const uint8_t mad[256],
		     uint64_t now)
{
	struct connection *c;
	struct cm_mra mra;

	cm_mra_parse(mad, &mra);
	c = cm_connection_of_both_ids(cm, from, mra.local_id, mra.remote_id);
	if (!c)
		cm->statistics.unknown++;
	else if ((c->state == CONNECTION_REQ_SENT && mra.subject == CM_SUBJECT_REQ) ||
		 (c->state == CONNECTION_REP_SENT && mra.subject == CM_SUBJECT_REP))
		cm_timers_set(cm, c, now + cm_timers_service(mra.service_timeout));
	else
		cm->statistics.duplicates++;
}
