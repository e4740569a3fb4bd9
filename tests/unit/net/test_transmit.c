/* SPDX-License-Identifier: BSD-3-Clause */
/* A port that takes nothing for a while: what waits for it, and until when. One worker by hand. */
#include <unistd.h>

#include "net/net_private.h"
#include "wire_pair.h"

#define MS 1000000ull

static uint8_t answer[2048];
static struct worker *worker;
static struct tx_array *tx;

static void setup(void)
{
	pair_start(1, 0);
	/* memif takes frames from when its far end first looks for them: the announcements. */
	pair.now += 3000000000ull;
	cr_assert(far_receive(answer));
	net_stop_workers(pair.net);
	worker = &pair.net->worker[0];
	tx = &worker->tx[0];
	transmit_drop(worker);
	tx->dropped = tx->sent = tx->stuck_since = 0;
}

static void teardown(void)
{
	pair_stop();
}

TestSuite(transmit, .init = setup, .fini = teardown);

static void takes(bool something)
{
	__atomic_store_n(&pair.net->port[0].aside, !something, __ATOMIC_RELEASE);
}

/* The far end may be slow to take them. */
static void all_leave(uint64_t sent)
{
	for (unsigned int i = 0; tx->sent < sent && i < 100000; i++) {
		transmit_control(worker);
		if (transmit_flush(worker, 100 * MS) == 0)
			usleep(100);
	}
	cr_assert_eq(tx->sent, sent);
	cr_assert_eq(tx->count, 0);
}

/* As the transport does. False: it has to wait. */
static bool send_one(void)
{
	struct pktbuf *packet = transmit_get(worker, pair.net->port[0].link.mac);

	if (!packet)
		return false;
	packet->length = 60;
	memset(packet->data, 0, 60);
	memcpy(packet->data + 6, pair.net->port[0].link.mac, 6);
	transmit_put(worker, packet, PKTBUF_SEND);
	return true;
}

Test(transmit, a_pause_delays_and_loses_nothing)
{
	uint32_t count = 0;

	takes(false);
	while (send_one())
		count++;
	cr_assert_eq(count, TX_WAITING);
	for (uint64_t now = MS; now <= 100 * MS; now += MS)
		cr_assert_eq(transmit_flush(worker, now), 0);
	cr_assert_eq(tx->count, count);
	cr_assert_eq(tx->dropped, 0);
	takes(true);
	all_leave(count);
	/* The next pause begins when it does. */
	takes(false);
	send_one();
	for (uint64_t now = 110 * MS; now < 210 * MS; now += MS)
		transmit_flush(worker, now);
	cr_assert_eq(tx->count, 1);
	transmit_flush(worker, 210 * MS);
	cr_assert_eq(tx->count, 0, "what takes nothing for so long is unplugged");
	cr_assert_eq(tx->dropped, 1);
	cr_assert_eq(tx->sent, count + 1, "who waits for it to leave does not wait for ever");
}

Test(transmit, what_control_sends_waits_for_room)
{
	const uint32_t count = TX_ARRAY + 10;

	takes(false);
	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = slowpath_buffer(pair.net, 0);

		cr_assert_not_null(mbuf);
		rte_pktmbuf_append(mbuf, 60);
		memset(rte_pktmbuf_mtod(mbuf, void *), 0, 60);
		cr_assert_eq(rte_ring_sp_enqueue(worker->to_send, mbuf), 0);
	}
	for (int i = 0; i < 10; i++)
		transmit_control(worker);
	cr_assert_eq(tx->count, TX_ARRAY);
	cr_assert_not_null(worker->held_frame);
	takes(true);
	all_leave(count);
	cr_assert_eq(tx->dropped, 0);
	cr_assert_null(worker->held_frame);
}
