/* SPDX-License-Identifier: BSD-3-Clause */
/* The load: which queue pair sends next, what answers mean, and the highest rate without loss. */
#include <time.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>

#include "oriel-flood/flood.h"

#define SCAN_MS          20u   /* between two looks for queue pairs that stand still */
#define STILL_MS         100u  /* a queue pair without progress goes back after */
#define DRAIN_MS         1000u /* the same when all that is left are answers */
#define TRIES            8u    /* queue pairs looked at for one that may send */
#define DRAIN_SECONDS    10.0
#define PROOF_SECONDS    2.0 /* a peer that lives says something within */
#define SEARCH_STEPS     10u
#define CATCH_UP_SECONDS 0.05
#define TRIALS           3u
#define REACHED          0.98 /* share of a rate that counts as that rate */
#define CHECK_EVERY      16u
#define READS_MAX        16u

static uint64_t cycles(const struct flood *f, double seconds)
{
	return (uint64_t)(seconds / f->tick);
}

static uint32_t message_psn(const struct flood *f, const struct flood_qp *qp, uint64_t message)
{
	return psn_add(qp->start, (uint32_t)(message * f->psns_per_message) & PSN_MASK);
}

/* --- answers ---------------------------------------------------------------------------------- */

/* Everything before `psn` has arrived. */
static void progress(struct flood *f, struct flood_qp *qp, uint32_t psn)
{
	int32_t psns = psn_diff(psn, message_psn(f, qp, qp->done));
	const uint64_t now = f->received;
	uint64_t done;

	if (psns <= 0)
		return;
	done = qp->done + (uint32_t)psns / f->psns_per_message;
	if (done > qp->next || done == qp->done)
		return; /* a ghost, or the middle of a message */
	f->counters.acknowledged += done - qp->done;
	qp->done = done;
	qp->moved = now;
	qp->asked = 0;
	if (qp->sample_time && qp->sample < done) {
		histogram_add(f->latency,
			      (uint64_t)((double)(now - qp->sample_time) * f->tick * 1e9));
		qp->sample_time = 0;
	}
}

static void go_back(struct flood *f, struct flood_qp *qp)
{
	f->counters.resent += qp->next - qp->done;
	qp->next = qp->done;
	qp->sample_time = 0;
	qp->moved = rte_rdtsc();
	qp->asked = 0;
}

static void acknowledge(struct flood *f, struct flood_qp *qp, const struct wire_view *view)
{
	const uint8_t syndrome = view_aeth(view)->syndrome;

	switch (syndrome & AETH_KIND) {
	case AETH_ACK: progress(f, qp, psn_add(view->psn, 1)); return;
	case AETH_RNR:
		f->counters.rnr++;
		progress(f, qp, view->psn);
		go_back(f, qp);
		qp->wait =
			rte_rdtsc() + cycles(f, (double)rnr_timer_ns(syndrome & AETH_VALUE) / 1e9);
		return;
	default: break;
	}
	progress(f, qp, view->psn);
	if (syndrome == NAK_PSN_SEQUENCE) {
		f->counters.nak_sequence++;
		go_back(f, qp);
	} else {
		f->counters.fatal++;
		qp->dead = 1;
	}
}

void flood_answer(struct flood *f, const struct wire_view *view)
{
	const uint32_t index = view->qpn - FLOOD_FIRST_QPN;
	const uint16_t flags = view->op->flags;
	struct flood_qp *qp;

	if (index >= f->qps || !(flags & OPF_RESPONSE)) {
		f->counters.foreign++;
		return;
	}
	qp = &f->qp[index];
	f->counters.answers++;
	f->counters.answer_bytes += view->payload_length;
	if (f->options.check || f->counters.answers % CHECK_EVERY == 0) {
		f->counters.answers_checked++;
		if (!icrc_verify(view)) {
			f->counters.answers_wrong++;
			return;
		}
	}
	if (view->opcode == OP_RC_ACKNOWLEDGE)
		acknowledge(f, qp, view);
	else if ((flags & OPF_LAST) || view->opcode == OP_RC_ATOMIC_ACKNOWLEDGE)
		progress(f, qp, psn_add(view->psn, 1));
}

/* Of a frame that testpmd sent back. */
void flood_echo(struct flood *f, const struct bth *bth)
{
	const uint32_t index = be24_get(bth->qpn) - FLOOD_FIRST_QPN;

	if (index >= f->qps) {
		f->counters.foreign++;
		return;
	}
	f->counters.answers++;
	progress(f, &f->qp[index], psn_add(be24_get(bth->psn), 1));
}

/* --- requests --------------------------------------------------------------------------------- */

static bool answers_each(const struct flood *f)
{
	return f->options.operation == FLOOD_READ || f->options.operation == FLOOD_ATOMIC;
}

/* Messages of a queue pair that may be outstanding. */
static uint32_t limit_of(const struct flood *f, const struct flood_qp *qp)
{
	return answers_each(f) ? RTE_MIN(f->options.outstanding, RTE_MIN(qp->reads, READS_MAX))
			       : f->options.outstanding;
}

static bool may_send(const struct flood *f, const struct flood_qp *qp)
{
	return !qp->dead && qp->next - qp->done < limit_of(f, qp) &&
	       (likely(qp->wait == 0) || rte_rdtsc() >= qp->wait);
}

static uint32_t queue_of(const struct flood *f, const struct flood_qp *qp)
{
	return f->options.queues == 1 ? 0 : (uint32_t)(qp - f->qp) % f->options.queues;
}

static struct flood_qp *choose(struct flood *f)
{
	for (unsigned int i = 0; i < TRIES; i++) {
		struct flood_qp *qp;

		if (f->options.random)
			f->cursor = (uint32_t)((flood_random(f) >> 32) * f->qps >> 32);
		else if (++f->cursor >= f->qps)
			f->cursor = 0;
		qp = &f->qp[f->cursor];
		if (may_send(f, qp))
			return qp;
	}
	return NULL;
}

static const struct flood_window *choose_window(struct flood *f, const struct flood_qp *qp)
{
	if (qp->windows == 1)
		return &f->window[qp->window];
	return &f->window[qp->window + (uint32_t)((flood_random(f) >> 32) * qp->windows >> 32)];
}

/* AckReq when its turn has come, and when nothing more may be sent without an answer. */
static bool ack_wanted(const struct flood *f, const struct flood_qp *qp, uint64_t message)
{
	return (message + 1) % f->options.ack_every == 0 ||
	       message + 1 - qp->done >= limit_of(f, qp) || answers_each(f);
}

static void maybe_send_bad(struct flood *f, const struct flood_qp *qp)
{
	struct rte_mbuf *mbuf;

	f->bad_credit += f->options.bad_ppm;
	if (likely(f->bad_credit < 1000000))
		return;
	f->bad_credit -= 1000000;
	do {
		f->bad_kind = f->bad_kind + 1 < FLOOD_BADS ? f->bad_kind + 1 : 0;
	} while (!(f->options.bad_kinds & 1u << f->bad_kind));
	if (f->bad_kind == FLOOD_BAD_DUPLICATE && qp->next == 0)
		return;
	mbuf = frames_make_bad(f, qp, (enum flood_bad)f->bad_kind);
	if (mbuf) {
		f->counters.bad[f->bad_kind]++;
		link_send(f, queue_of(f, qp), mbuf);
	}
}

/* All frames of one message. False: no buffer for it. */
static bool send_message(struct flood *f, struct flood_qp *qp, bool ack)
{
	const struct flood_window *window = choose_window(f, qp);
	const uint32_t psn = message_psn(f, qp, qp->next);

	for (uint32_t frame = 0; frame < f->frames_per_message; frame++) {
		const bool last = frame + 1 == f->frames_per_message;
		struct rte_mbuf *mbuf = frames_make(f, qp, frame, psn, window, last && ack);

		if (unlikely(!mbuf))
			return false; /* the responder sees a gap, and asks for all of it again */
		f->counters.frames++;
		f->counters.bytes += mbuf->pkt_len;
		link_send(f, queue_of(f, qp), mbuf);
	}
	return true;
}

static bool send_next(struct flood *f)
{
	struct flood_qp *qp = choose(f);

	if (!qp)
		return false;
	if (f->options.bad_ppm)
		maybe_send_bad(f, qp);
	if (!send_message(f, qp, ack_wanted(f, qp, qp->next)))
		return false;
	if (qp->next == qp->done)
		qp->moved = rte_rdtsc();
	if (!qp->sample_time && ack_wanted(f, qp, qp->next)) {
		qp->sample = qp->next;
		qp->sample_time = rte_rdtsc();
	}
	qp->next++;
	f->counters.messages++;
	if (f->options.peer == PEER_RXONLY) {
		f->counters.acknowledged++;
		qp->done = qp->next;
	}
	return true;
}

/* --- queue pairs that stand still ------------------------------------------------------------- */

/* Sends the last message again, with AckReq, and takes what came meanwhile. */
static void ask(struct flood *f, struct flood_qp *qp)
{
	qp->next--;
	send_message(f, qp, true);
	qp->next++;
	qp->asked = 1;
	link_poll(f);
}

/*
 * A queue pair that sends seldom has not come to a message with AckReq: it asks before it counts as
 * one that has lost something.
 */
static void scan(struct flood *f, uint64_t now, uint32_t still_ms)
{
	for (uint32_t i = 0; i < f->qps; i++) {
		struct flood_qp *qp = &f->qp[i];

		if (qp->dead || qp->next == qp->done || now < qp->wait ||
		    now - qp->moved < cycles(f, still_ms / 1e3))
			continue;
		if (!qp->asked && !answers_each(f) && f->options.peer == PEER_RESPONDER) {
			qp->moved = now;
			ask(f, qp);
			continue;
		}
		f->counters.timeouts++;
		f->answers_then = f->counters.answers;
		go_back(f, qp);
	}
}

static uint64_t outstanding(const struct flood *f)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < f->qps; i++)
		if (!f->qp[i].dead)
			sum += f->qp[i].next - f->qp[i].done;
	return sum;
}

/*
 * What was sent without AckReq is asked for by sending its last message again. Behind a gap whose
 * NAK was lost there is no answer to that: it counts as to be sent again.
 */
static void ask_again(struct flood *f)
{
	for (uint32_t i = 0; i < f->qps; i++) {
		struct flood_qp *qp = &f->qp[i];

		if (qp->dead || qp->next == qp->done)
			continue;
		ask(f, qp);
	}
	link_flush(f);
}

static void drain(struct flood *f)
{
	uint64_t now = rte_rdtsc(), end = now + cycles(f, DRAIN_SECONDS), next_ask = now;

	while (outstanding(f) && (now = rte_rdtsc()) < end) {
		if (now >= next_ask) {
			next_ask = now + cycles(f, 0.05);
			if (!answers_each(f))
				ask_again(f);
			scan(f, now, DRAIN_MS);
		}
		link_poll(f);
	}
}

/*
 * False: messages were left without an answer, and nobody has answered any since. Only lost ones
 * would say nothing about the peer, so one is sent until it is answered, whatever that says.
 */
static bool still_answers(struct flood *f)
{
	const uint64_t before = f->counters.answers;
	uint64_t now = rte_rdtsc(), end = now + cycles(f, PROOF_SECONDS), next_ask = now;
	uint32_t i = 0;

	if (f->options.peer != PEER_RESPONDER || !f->counters.timeouts || before != f->answers_then)
		return true;
	while (f->counters.answers == before && (now = rte_rdtsc()) < end) {
		if (now >= next_ask) {
			next_ask = now + cycles(f, 0.05);
			while (i < f->qps && f->qp[i].dead)
				i++;
			if (i == f->qps)
				return true; /* their NAKs are what is wrong */
			send_message(f, &f->qp[i], true);
			link_flush(f);
		}
		link_poll(f);
	}
	return f->counters.answers != before;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void begin_measuring(struct flood *f)
{
	f->counters = (struct flood_counters){ 0 };
	histogram_clear(f->latency);
}

/*
 * Sends for `seconds`. With a rate, what should have been sent by now is, so a generator that was
 * taken off its processor, or whose link was full, makes up for it; what is older than a while is
 * forgotten, so that a peer that was away does not get all of it at once.
 */
static void generate(struct flood *f, double seconds, double rate, uint64_t *measured)
{
	uint64_t start = rte_rdtsc(), now = start, end = start + cycles(f, seconds);
	uint64_t next_scan = start + cycles(f, SCAN_MS / 1e3);
	const double most = RTE_MAX(4.0 * FLOOD_BURST, rate * CATCH_UP_SECONDS);
	const double per_cycle = rate * f->tick;
	double due = rate > 0 ? 0 : FLOOD_BURST; /* messages */
	uint64_t last = start;

	while (now < end && !f->stop) {
		if (rate > 0) {
			due = RTE_MIN(due + (double)(now - last) * per_cycle, most);
			last = now;
		}
		for (unsigned int i = 0; i < FLOOD_BURST && due >= 1 && send_next(f); i++)
			due -= rate > 0;
		link_flush(f);
		link_poll(f);
		now = rte_rdtsc();
		if (now >= next_scan) {
			next_scan = now + cycles(f, SCAN_MS / 1e3);
			scan(f, now, STILL_MS);
		}
	}
	*measured = now - start;
}

/* For who counts something else meanwhile. */
static double monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool flood_run(struct flood *f, double seconds, double warm_up, double rate)
{
	uint64_t measured = 0;

	if (warm_up > 0)
		generate(f, warm_up, rate, &measured);
	drain(f);
	begin_measuring(f);
	f->began = monotonic_seconds();
	generate(f, seconds, rate, &measured);
	f->elapsed = (double)measured * f->tick;
	drain(f);
	if (f->counters.fatal)
		f->message = "the peer refused a request: its queue pair is in error";
	else if (!still_answers(f))
		f->message = "the peer does not answer any more";
	else
		return true;
	return false;
}

/* Share of the messages that had to be sent again. */
static double loss_of(const struct flood *f)
{
	const struct flood_counters *c = &f->counters;

	return c->messages ? (double)c->resent / (double)c->messages : 1;
}

/*
 * Whether a rate is served; if not, f->limit says why. Messages that were lost are lost; a rate
 * that was not reached may be due to what the machine did meanwhile, and is tried again. False: the
 * run itself failed.
 */
static bool try_rate(struct flood *f, double rate, bool *served)
{
	*served = false;
	for (unsigned int i = 0; i < TRIALS && !f->stop; i++) {
		if (!flood_run(f, f->options.seconds, 0.1, rate))
			return false;
		if (!f->options.json)
			report_line(f);
		*served = loss_of(f) <= f->options.loss;
		f->limit = "messages were lost";
		if (!*served)
			return true;
		*served = (double)f->counters.acknowledged / f->elapsed >= REACHED * rate;
		f->limit = "the rate was not reached";
		if (*served)
			return true;
	}
	return true;
}

/*
 * Between a rate that is served and one that is not. A trial that did not reach its rate counts as
 * one that is not served: the generator or the link is the limit then. The last trial is at the
 * rate that was found, so that what is reported is of it.
 */
bool flood_search(struct flood *f, double *best)
{
	const uint32_t outstanding_before = f->options.outstanding;
	const char *limit = NULL;
	double low = 0, high;
	bool good, served;

	if (!flood_run(f, f->options.seconds, f->options.warm_up, 0))
		return false;
	high = 1.5 * (double)f->counters.acknowledged / f->elapsed;
	f->options.outstanding = answers_each(f) ? outstanding_before : 4096;
	for (unsigned int step = 0; step < SEARCH_STEPS && !f->stop; step++) {
		double rate = (low + high) / 2;

		if (!try_rate(f, rate, &served))
			return false;
		if (served) {
			low = rate;
		} else {
			high = rate;
			limit = f->limit;
		}
	}
	f->limit = limit;
	good = low <= 0 || f->stop || flood_run(f, f->options.seconds, 0.1, low);
	f->options.outstanding = outstanding_before;
	*best = low;
	return good;
}
