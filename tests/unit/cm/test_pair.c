/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two CMs back to back: whatever single MAD is lost, and however often each one arrives, both ends
 * agree in the end, each is told once, and no record is left.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "end.h"
#include "wire/byteorder.h"

#define MADS_OF_A_CONNECTION 12u /* more than any exchange here has, repetitions included */
#define LONG_ENOUGH          (200 * END_S)

enum who { ACTIVE = 1, PASSIVE = 2, BOTH = 3 };

static struct pair pair;

static void check_clean(const char *what)
{
	struct end *ends[] = { &pair.a, &pair.b };

	for (int i = 0; i < 2; i++) {
		struct cm_statistics s;

		cm_get_statistics(ends[i]->cm, &s);
		cr_assert_eq(s.established + s.pending + s.timewait, 0,
			     "%s, MAD %u lost, end %d: %u established, %u pending, %u timewait",
			     what, pair.lost, i, s.established, s.pending, s.timewait);
		cr_assert_leq(end_events(ends[i], CM_DISCONNECTED), 1);
		cr_assert_leq(end_events(ends[i], CM_DISCONNECT_DONE), 1);
		cr_assert_leq(end_events(ends[i], CM_ESTABLISHED), 1);
		cr_assert_leq(end_events(ends[i], CM_TIMEWAIT_OVER), 1);
	}
}

static bool is_up(const struct end *end)
{
	struct cm_statistics s;

	cm_get_statistics(end->cm, &s);
	return s.established == 1;
}

static void end_by(enum who who)
{
	if (who & ACTIVE)
		cr_assert_eq(cm_disconnect(pair.a.cm, pair.connection, pair.now), 0);
	if (who & PASSIVE)
		cr_assert_eq(cm_disconnect(pair.b.cm, pair_b_connection(&pair), pair.now), 0);
}

static void check_ended(enum who who, const char *what)
{
	bool crossed = who == BOTH;

	check_clean(what);
	cr_assert_eq(end_events(&pair.a, CM_DISCONNECT_DONE), who & ACTIVE ? 1 : 0);
	cr_assert_eq(end_events(&pair.b, CM_DISCONNECT_DONE), who & PASSIVE ? 1 : 0);
	cr_assert_eq(end_events(&pair.a, CM_DISCONNECTED), !crossed && who == PASSIVE);
	cr_assert_eq(end_events(&pair.b, CM_DISCONNECTED), !crossed && who == ACTIVE);
	cr_assert_eq(end_events(&pair.a, CM_TIMEWAIT_OVER), 1);
	cr_assert_eq(end_events(&pair.b, CM_TIMEWAIT_OVER), 1);
}

static void live_and_die(enum who who, uint32_t lost, uint32_t copies)
{
	pair_open(&pair);
	pair.lost = lost;
	pair.copies = copies;
	pair_connect(&pair);
	pair_run(&pair, 30 * END_S);
	cr_assert(is_up(&pair.a) && is_up(&pair.b), "MAD %u lost", lost);
	cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
	cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(end_events(&pair.b, CM_ESTABLISHED), 1);
	end_by(who);
	pair_run(&pair, LONG_ENOUGH);
	check_ended(who, "disconnect");
	pair_close(&pair);
}

/* B63, B68: each MAD lost once. */
Test(cm_pair, any_single_loss_is_healed)
{
	for (uint32_t lost = 0; lost <= MADS_OF_A_CONNECTION; lost++) {
		live_and_die(ACTIVE, lost, 0);
		live_and_die(PASSIVE, lost, 0);
		live_and_die(BOTH, lost, 0);
	}
}

/* B63: each MAD arrives four times; losses among them as well. */
Test(cm_pair, every_mad_three_times_more)
{
	for (uint32_t lost = 0; lost <= MADS_OF_A_CONNECTION; lost++) {
		live_and_die(ACTIVE, lost, 3);
		live_and_die(PASSIVE, lost, 3);
		live_and_die(BOTH, lost, 3);
	}
}

/* Whether the refusal or the request was lost: the peer learns it, with the private data. */
Test(cm_pair, reject_survives_loss)
{
	static const uint8_t code[8] = { 'O', 'R', 'R', '1', 0, 0, 0, 2 };

	for (uint32_t lost = 0; lost <= 3; lost++) {
		uint32_t answered = 0;

		pair_open(&pair);
		pair.b.accepts = false;
		pair.lost = lost;
		pair_connect(&pair);
		for (int round = 0; round < 20; round++) {
			pair_run(&pair, END_S);
			if (end_events(&pair.b, CM_CONNECT_REQUEST) == answered)
				continue;
			answered++;
			cr_assert_eq(cm_reject(pair.b.cm, pair_b_connection(&pair), CM_REJ_CONSUMER,
					       NULL, 0, code, sizeof(code), pair.now),
				     0);
		}
		cr_assert_eq(end_events(&pair.a, CM_REJECTED), 1);
		cr_assert_eq(end_last(&pair.a, CM_REJECTED)->reason, CM_REJ_CONSUMER);
		cr_assert_arr_eq(end_last(&pair.a, CM_REJECTED)->parameters.private_data, code, 8);
		pair_run(&pair, LONG_ENOUGH);
		cr_assert_eq(end_count(&pair.a) + end_count(&pair.b), 0);
		pair_close(&pair);
	}
}

/* The active side does not like the reply. */
Test(cm_pair, active_rejects_the_reply)
{
	for (uint32_t lost = 0; lost <= 5; lost++) {
		pair_open(&pair);
		pair.a.gets_ready = false;
		pair.lost = lost;
		pair_connect(&pair);
		pair_run(&pair, 30 * END_S);
		cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
		cr_assert_eq(cm_reject(pair.a.cm, pair.connection, CM_REJ_CONSUMER, NULL, 0, NULL,
				       0, pair.now),
			     0);
		pair_run(&pair, LONG_ENOUGH);
		check_clean("reply rejected");
		cr_assert_eq(end_events(&pair.b, CM_REJECTED) + end_events(&pair.b, CM_UNREACHABLE),
			     1);
		pair_close(&pair);
	}
}

/* B76: the active owner leaves at any moment of the first ten seconds. */
Test(cm_pair, active_owner_leaves_at_any_time)
{
	for (uint32_t lost = 0; lost <= 6; lost++)
		for (uint64_t step = 0; step < 10; step++) {
			pair_open(&pair);
			pair.a.gets_ready = step & 1;
			pair.b.accepts = step % 3 != 0;
			pair.lost = lost;
			pair_connect(&pair);
			pair_run(&pair, step * END_S);
			cm_release(pair.a.cm, pair.connection, pair.now);
			pair_run(&pair, LONG_ENOUGH);
			if (!pair.b.accepts && end_events(&pair.b, CM_CONNECT_REQUEST) &&
			    !end_events(&pair.b, CM_TIMEWAIT_OVER))
				cm_release(pair.b.cm, pair_b_connection(&pair), pair.now);
			check_clean("owner left");
			pair_close(&pair);
		}
}

/* The passive owner leaves (its process died): the active side hears of it. */
Test(cm_pair, passive_owner_leaves)
{
	for (int accepted = 0; accepted <= 1; accepted++) {
		pair_open(&pair);
		pair.b.accepts = accepted;
		pair_connect(&pair);
		pair_run(&pair, END_S);
		cm_release(pair.b.cm, pair_b_connection(&pair), pair.now);
		pair_run(&pair, LONG_ENOUGH);
		cr_assert_eq(end_events(&pair.a, accepted ? CM_DISCONNECTED : CM_REJECTED), 1);
		check_clean("passive owner left");
		pair_close(&pair);
	}
}

/* B67: a listener that needs 60 s; the peer is asked for patience and does not give up. */
Test(cm_pair, slow_accept)
{
	struct cm_parameters reply = end_parameters(END_QPN);

	pair_open(&pair);
	pair.b.accepts = false;
	pair_connect(&pair);
	pair_run(&pair, 150 * END_S); /* more than 16 requests would last */
	cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(end_events(&pair.a, CM_UNREACHABLE), 0);
	cr_assert_eq(cm_accept(pair.b.cm, pair_b_connection(&pair), 1, &reply, pair.now), 0);
	pair_run(&pair, END_S);
	cr_assert(is_up(&pair.a) && is_up(&pair.b));
	pair_close(&pair);
}

/* The same for the active application: the passive side's REPs do not run out. */
Test(cm_pair, slow_ready)
{
	pair_open(&pair);
	pair.a.gets_ready = false;
	pair_connect(&pair);
	pair_run(&pair, 150 * END_S);
	cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
	cr_assert_eq(end_events(&pair.b, CM_UNREACHABLE), 0);
	cr_assert_eq(cm_ready(pair.a.cm, pair.connection, NULL, 0, pair.now), 0);
	pair_run(&pair, 10 * END_S);
	cr_assert(is_up(&pair.a) && is_up(&pair.b));
	pair_close(&pair);
}

/* Nobody at the other end: a bounded number of REQs, then UNREACHABLE, then nothing is left. */
Test(cm_pair, connect_to_nobody)
{
	pair_open(&pair);
	pair_connect(&pair);
	for (uint32_t i = 0; i < 2000 && end_count(&pair.a); i++) {
		pair.now = pair.a.now = cm_poll(pair.a.cm, pair.a.now);
		if (i % 500 == 0)
			cr_assert_leq(end_sent(&pair.a, CM_ATTR_REQ), 16);
	}
	cr_assert_eq(end_sent(&pair.a, CM_ATTR_REQ), 16);
	cr_assert_eq(end_sent(&pair.a, CM_ATTR_REJ), 1);
	cr_assert_eq(get_be16(end_last_sent(&pair.a, CM_ATTR_REJ) + 34), CM_REJ_TIMEOUT);
	cr_assert_eq(end_last_sent(&pair.a, CM_ATTR_REJ)[32] >> 6, CM_SUBJECT_REQ);
	cr_assert_eq(end_events(&pair.a, CM_UNREACHABLE), 1);
	cr_assert_eq(end_events(&pair.a, CM_TIMEWAIT_OVER), 1);
	cr_assert_eq(end_count(&pair.a), 0);
	pair_close(&pair);
}

/* Every MAD that was ever sent, thrown in again three times at each later moment. */
Test(cm_pair, old_mads_at_every_state)
{
	static struct end_mad old[2][64];
	uint32_t old_count[2] = { 0 };
	struct end *ends[2] = { &pair.a, &pair.b };

	pair_open(&pair);
	pair_connect(&pair);
	for (int moment = 0; moment < 24; moment++) {
		struct end *from = ends[moment & 1], *to = ends[!(moment & 1)];
		struct end_mad mad;

		if (moment == 8)
			end_by(BOTH);
		if (from->sent_count) {
			mad = from->sent[0];
			memmove(from->sent, from->sent + 1, --from->sent_count * sizeof(mad));
			end_receive(to, from, mad.mad);
			if (old_count[moment & 1] < 64)
				old[moment & 1][old_count[moment & 1]++] = mad;
		}
		for (uint32_t k = 0; k < 3; k++)
			for (int e = 0; e < 2; e++)
				for (uint32_t i = 0; i < old_count[e]; i++)
					end_receive(ends[!e], ends[e], old[e][i].mad);
	}
	cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
	cr_assert_eq(end_events(&pair.b, CM_ESTABLISHED), 1);
	cr_assert_eq(end_events(&pair.a, CM_CONNECT_REPLY), 1);
	pair_run(&pair, LONG_ENOUGH);
	check_ended(BOTH, "old MADs");
	pair_close(&pair);
}

/* Many at once, every fifth MAD of them lost: all come up, all go, none is left. */
Test(cm_pair, thirty_connections_with_loss)
{
	struct cm_parameters parameters;
	struct cm_address address = { 0 };
	uint32_t connection[30];

	pair_open(&pair);
	cm_destroy(pair.b.cm);
	pair.b.config.backlog = pair.b.config.requests_per_peer = 30;
	cr_assert_eq(cm_create(&pair.b.cm, &pair.b.arena, &pair.b.config, &pair.b.io, false), 0);
	end_listen(&pair.b);
	memcpy(address.local_gid, pair.a.gid, 16);
	memcpy(address.remote_gid, pair.b.gid, 16);
	for (uint32_t i = 0; i < 30; i++) {
		parameters = end_parameters(0x500 + i);
		cr_assert_eq(cm_connect(pair.a.cm, CM_PS_TCP, &address, &parameters, i,
					&connection[i], pair.now),
			     0);
	}
	for (uint32_t i = 0; i < 600; i++) {
		pair.lost = pair.carried + 5;
		pair_run(&pair, 100 * END_MS);
	}
	cr_assert_eq(end_events(&pair.b, CM_ESTABLISHED), 30);
	for (uint32_t i = 0; i < 30; i++)
		cm_release(pair.a.cm, connection[i], pair.now);
	for (uint32_t i = 0; i < 900; i++) {
		pair.lost = pair.carried + 5;
		pair_run(&pair, 100 * END_MS);
	}
	cr_assert_eq(end_events(&pair.b, CM_DISCONNECTED), 30);
	cr_assert_eq(end_count(&pair.a) + end_count(&pair.b), 0);
	pair_close(&pair);
}
