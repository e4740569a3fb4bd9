/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control of connected queue pairs: marks are answered by CNPs, CNPs slow down whatever
 * carries data, READ responses too. ACKs, NAKs, requests for data and results of atomics are not
 * held back.
 *
 * A queue pair at line rate pays one flag. One that must wait lies in the wheel, not on the ready
 * list, until its time comes.
 */
#include <string.h>

#include "transport/private.h"

/* --- parameters ----------------------------------------------------------------------- */

typedef uint64_t __attribute__((may_alias)) parameter_word;
_Static_assert(sizeof(struct congestion_parameters) % sizeof(parameter_word) == 0, "whole words");

/* They are read while they are written; the version tells who has to look again. */
static void copy_parameters(struct congestion_parameters *to,
			    const struct congestion_parameters *from)
{
	parameter_word *destination = (parameter_word *)to;
	const parameter_word *source = (const parameter_word *)from;

	for (size_t i = 0; i < sizeof(*to) / sizeof(*destination); i++)
		__atomic_store_n(destination + i, __atomic_load_n(source + i, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
}

void transport_set_congestion(struct transport_shared *shared,
			      const struct congestion_parameters *parameters)
{
	const uint32_t version = shared->congestion_version;

	__atomic_store_n(&shared->congestion_version, version + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	copy_parameters(&shared->congestion, parameters);
	__atomic_store_n(&shared->congestion_version, version + 2, __ATOMIC_RELEASE);
}

void transport_get_congestion(const struct transport_shared *shared,
			      struct congestion_parameters *parameters)
{
	copy_parameters(parameters, &shared->congestion);
}

void transport_set_line_rate(struct transport_shared *shared, uint64_t rate)
{
	__atomic_store_n(&shared->line_rate, rate, __ATOMIC_RELAXED);
}

/* Of a line that does not say how fast it is: 10 Gb/s. */
#define UNKNOWN_LINE 1250000000ull

static uint64_t line_of_ports(const struct transport_shared *shared)
{
	const uint64_t line = __atomic_load_n(&shared->line_rate, __ATOMIC_RELAXED);

	return line ? line : UNKNOWN_LINE;
}

uint64_t transport_line_rate(const struct transport_shared *shared)
{
	const uint64_t configured =
		__atomic_load_n(&shared->congestion.line_rate, __ATOMIC_RELAXED);

	return configured ? configured : line_of_ports(shared);
}

/* What is half written is taken the next time. */
void pace_refresh(struct transport *t)
{
	const struct transport_shared *s = t->shared;
	const uint32_t version = __atomic_load_n(&s->congestion_version, __ATOMIC_ACQUIRE);
	struct congestion_parameters parameters;

	copy_parameters(&parameters, &s->congestion);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if ((version & 1) || version != __atomic_load_n(&s->congestion_version, __ATOMIC_RELAXED))
		return;
	t->congestion = parameters;
	t->congestion_version = version;
	t->line_of_ports = parameters.line_rate == 0;
	t->data_ecn = parameters.enabled ? IP_ECN_ECT0 : 0;
}

/* The port may come up, or change its speed, at any time. */
static const struct congestion_parameters *current_parameters(struct transport *t)
{
	if (t->line_of_ports)
		t->congestion.line_rate = line_of_ports(t->shared);
	return &t->congestion;
}

/* --- marks ---------------------------------------------------------------------------- */

void pace_marked(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	COUNT(t, rx_marked, 1);
	pace_look(t);
	local->congested = true;
	if (!congestion_answer_mark(qp_congestion(t, qp), &t->congestion, t->now))
		return;
	local->cnp_due = true;
	ready_add(t, qp);
}

/*
 * ECN capable as those of RNICs, though nobody answers a mark on one: where a queue is full, what
 * is not capable would be dropped in place of being marked.
 */
unsigned int pace_send_cnp(struct transport *t, struct qp *qp)
{
	static const uint8_t reserved[16];
	struct qp_local *local = qp_local(t, qp);
	const struct frame_template *template = &local->frame;
	struct pktbuf *packet = frame_get(t, template);
	struct bth *bth;

	if (packet == NULL)
		return 0;
	bth = (struct bth *)frame_begin(packet->data, template, OP_CNP);
	bth->resv8a = BTH_BECN;
	bth_set_qpn(bth, qp->remote_qpn);
	frame_set_traffic_class(packet->data, template,
				(uint8_t)(t->congestion.cnp_dscp << 2 | IP_ECN_ECT0));
	packet->length = frame_finish(packet->data, template, reserved, sizeof(reserved));
	frame_send(t, packet);
	COUNT(t, tx_cnp, 1);
	congestion_cnp_sent(qp_congestion(t, qp), t->now);
	local->cnp_due = false;
	return 1;
}

/* --- rate ----------------------------------------------------------------------------- */

/* Status output reads the rate at any time. */
static void note_rate(struct transport *t, struct qp *qp)
{
	qp_local(t, qp)->paced = qp_congestion(t, qp)->rate != 0;
}

void pace_notified(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);

	COUNT(t, rx_cnp, 1);
	pace_look(t);
	local->congested = true;
	if (congestion_on_cnp(qp_congestion(t, qp), current_parameters(t), t->now))
		COUNT(t, rate_cuts, 1);
	note_rate(t, qp);
}

bool pace_ask(struct transport *t, struct qp *qp)
{
	struct qp_local *local = qp_local(t, qp);
	struct congestion *congestion = qp_congestion(t, qp);

	if (!t->congestion.enabled)
		congestion->rate = 0;
	if (congestion_may_send(congestion, current_parameters(t), t->now)) {
		note_rate(t, qp);
		return true;
	}
	if (!local->held)
		COUNT(t, paced, 1);
	local->held = true;
	wheel_pace(t, qp, congestion->next_send);
	return false;
}

void pace_count(struct transport *t, struct qp *qp, uint32_t bytes)
{
	congestion_sent(qp_congestion(t, qp), current_parameters(t), bytes, t->now);
	note_rate(t, qp);
}
