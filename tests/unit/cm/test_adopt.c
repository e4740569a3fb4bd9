/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon was restarted: the connections lie in the arena, now at another address, and go on in
 * whatever state they were; only listeners are set up anew.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "peer.h"
#include "wire/byteorder.h"

static struct peer peer;

static void restart(void)
{
	end_adopt(&peer.own);
	end_listen(&peer.own);
	end_forget(&peer.own);
}

Test(cm_adopt, request_waits_for_its_listener_and_is_accepted)
{
	struct cm_parameters reply = end_parameters(3);
	uint32_t connection;

	peer_open(&peer, false);
	connection = peer_request(&peer);
	restart();
	peer_check_state(&peer, 0, 1, 0);
	peer_send_req(&peer);
	cr_assert_eq(end_events(&peer.own, CM_CONNECT_REQUEST), 0, "still a duplicate");
	cr_assert_eq(cm_accept(peer.own.cm, connection, 4, &reply, peer.own.now), 0);
	cr_assert_eq(get_be32(end_last_sent(&peer.own, CM_ATTR_REP) + AT_REMOTE_ID), PEER_ID);
	peer_send_rtu(&peer);
	peer_check_state(&peer, 1, 0, 0);
	peer_close(&peer);
}

Test(cm_adopt, adopted_request_counts_and_goes_with_its_listener)
{
	peer_open(&peer, false);
	for (uint32_t i = 0; i < 8; i++) {
		peer.req.local_id++;
		peer.req.qpn++;
		peer_send_req(&peer);
	}
	restart();
	peer.req.local_id++;
	peer.req.qpn++;
	peer_send_req(&peer);
	cr_assert_eq(peer_rejected(&peer, peer.req.local_id), CM_REJ_NO_RESOURCES);
	cm_unlisten(peer.own.cm, peer.own.listener);
	cr_assert_eq(end_sent(&peer.own, CM_ATTR_REJ), 9);
	cr_assert_eq(end_count(&peer.own), 0);
	peer_close(&peer);
}

Test(cm_adopt, request_without_its_listener_can_be_released)
{
	uint32_t connection;

	peer_open(&peer, false);
	connection = peer_request(&peer);
	end_adopt(&peer.own);
	end_forget(&peer.own);
	cm_release(peer.own.cm, connection, peer.own.now);
	cr_assert_eq(peer_rejected(&peer, PEER_ID), CM_REJ_CONSUMER);
	end_listen(&peer.own);
	cr_assert_eq(end_count(&peer.own), 0);
	peer_close(&peer);
}

/* The REP goes on being repeated, no more often than without the restart, and the RTU fits. */
Test(cm_adopt, rep_sent)
{
	for (int answered = 0; answered <= 1; answered++) {
		uint8_t rep[256];

		peer_open(&peer, true);
		peer_request(&peer);
		memcpy(rep, end_last_sent(&peer.own, CM_ATTR_REP), 256);
		peer.own.now = cm_poll(peer.own.cm, peer.own.now);
		restart();
		while (!end_sent(&peer.own, CM_ATTR_REP))
			peer.own.now = cm_poll(peer.own.cm, peer.own.now);
		cr_assert_arr_eq(end_last_sent(&peer.own, CM_ATTR_REP), rep, 256);
		if (answered) {
			peer_send_rtu(&peer);
			cr_assert_eq(end_events(&peer.own, CM_ESTABLISHED), 1);
			peer_close(&peer);
			continue;
		}
		cr_assert(end_drain(&peer.own, 200 * END_S));
		cr_assert_eq(end_sent(&peer.own, CM_ATTR_REP), 15);
		cr_assert_eq(end_events(&peer.own, CM_UNREACHABLE), 1);
		peer_close(&peer);
	}
}

Test(cm_adopt, established_then_stale)
{
	struct cm_statistics before, after;
	uint32_t connection;

	peer_open(&peer, true);
	connection = peer_establish(&peer);
	cm_get_statistics(peer.own.cm, &before);
	restart();
	cm_get_statistics(peer.own.cm, &after);
	cr_assert_eq(before.established, after.established);
	/* Found by its ids (a duplicate REQ is absorbed) and by its queue pair. */
	peer_send_req(&peer);
	cr_assert_eq(peer.own.sent_count + peer.own.event_count, 0);
	peer.req.local_id++;
	peer_send_req(&peer);
	cr_assert_eq(end_last(&peer.own, CM_DISCONNECTED)->connection, connection);
	cr_assert_eq(end_last(&peer.own, CM_DISCONNECTED)->cookie, END_COOKIE + connection);
	cr_assert(end_drain(&peer.own, 60 * END_S));
	peer_close(&peer);
}

Test(cm_adopt, timewait_and_free_records)
{
	peer_open(&peer, true);
	peer_establish(&peer);
	peer_send_dreq(&peer, 1);
	restart();
	peer_check_state(&peer, 0, 0, 1);
	cr_assert(end_drain(&peer.own, 10 * END_S));
	cr_assert_eq(end_events(&peer.own, CM_TIMEWAIT_OVER), 1);
	for (uint32_t i = 1; i < END_RECORDS; i++) {
		peer.req.local_id++;
		peer.req.qpn++;
		peer_send_req(&peer);
		cm_data_seen(peer.own.cm, end_last(&peer.own, CM_CONNECT_REQUEST)->connection,
			     peer.own.now);
	}
	peer_check_state(&peer, END_RECORDS - 1, 0, 0);
	peer_close(&peer);
}

/* A restart of either end, or both, at every step of a connection's life. */
Test(cm_adopt, pair_restarts_at_every_step)
{
	static struct pair pair;

	for (int step = 0; step < 12; step++)
		for (int who = 1; who <= 3; who++) {
			pair_open(&pair);
			pair_connect(&pair);
			for (int i = 0; i < 12; i++) {
				if (i == step && (who & 1))
					end_adopt(&pair.a);
				if (i == step && (who & 2)) {
					end_adopt(&pair.b);
					end_listen(&pair.b);
				}
				if (i == 6)
					cm_release(pair.a.cm, pair.connection, pair.now);
				pair_run(&pair, i < 6 ? 0 : 400 * END_MS);
			}
			pair_run(&pair, 60 * END_S);
			cr_assert_eq(end_events(&pair.b, CM_CONNECT_REQUEST), 1);
			cr_assert_eq(end_events(&pair.b, CM_ESTABLISHED), 1);
			cr_assert_eq(end_events(&pair.b, CM_DISCONNECTED), 1);
			cr_assert_eq(end_events(&pair.a, CM_TIMEWAIT_OVER), 1);
			cr_assert_eq(end_events(&pair.b, CM_TIMEWAIT_OVER), 1);
			cr_assert_eq(end_count(&pair.a) + end_count(&pair.b), 0);
			pair_close(&pair);
		}
}

Test(cm_adopt, tables_that_do_not_fit_are_refused)
{
	struct cm *cm = NULL;

	peer_open(&peer, true);
	peer.own.config.connections++;
	cr_assert_eq(cm_create(&cm, &peer.own.arena, &peer.own.config, &peer.own.io, true),
		     -EINVAL);
	peer.own.config.connections--;
	memset((uint8_t *)peer.own.arena.header +
		       peer.own.arena.header->table[ARENA_CONNECTIONS].offset,
	       0xff, 1000);
	cr_assert_eq(cm_create(&cm, &peer.own.arena, &peer.own.config, &peer.own.io, true),
		     -EPROTO);
	peer_close(&peer);
}
