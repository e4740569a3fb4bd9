/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker with less room to send than there is to be sent: who gets it, and that nothing is lost
 * or fails meanwhile.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define QPS  7u
#define PEER 0x1000u /* QPN of the peer of queue pair 0 */
#define P    0x500u
#define MS   1000000ull

static struct end end;
static struct rig_qp *qp[QPS];
static uint32_t psn[QPS];
static uint64_t bytes[QPS];   /* of frames to each peer */
static uint32_t answers[QPS]; /* last or only responses */
static uint64_t now;

static void connect(uint32_t i, uint8_t port)
{
	struct qp_connection connection = rig_connection();

	qp[i] = end_open_qp(&end, 0, 64);
	psn[i] = P;
	connection.remote_qpn = PEER + i;
	connection.receive_psn = P;
	connection.send_psn = 0x900;
	memcpy(connection.path.local_mac, end.mac, 6);
	connection.path.local_mac[5] = port;
	memcpy(connection.path.local_gid, end.gid, 16);
	gid_from_v4(connection.path.remote_gid, (uint8_t[4]){ 10, 0, 0, (uint8_t)(100 + i) });
	cr_assert_eq(transport_connect(end.worker[0], qp[i]->index, &connection, now), 0);
}

static void setup(void)
{
	now = MS;
	end_create(&end, 1, 1);
	for (uint32_t i = 0; i < QPS; i++)
		connect(i, 1);
	end_poll(&end, now);
	memset(bytes, 0, sizeof(bytes));
	memset(answers, 0, sizeof(answers));
}

static void teardown(void)
{
	end.room = UINT32_MAX;
	end_destroy(&end);
}

TestSuite(fair, .init = setup, .fini = teardown);

/* A request of peer `i`. */
static void receive(uint32_t i, uint8_t opcode, uint32_t packets, uint32_t length, uint32_t payload)
{
	struct frame_template template;
	struct frame_path path = { .hop_limit = 64, .source_port = 0xc123 };
	static const uint8_t zeros[64];
	struct pktbuf packet = { 0 };
	uint8_t data[RIG_FRAME];
	struct wire_view view;
	struct bth *bth;

	gid_from_v4(path.source_gid, (uint8_t[4]){ 10, 0, 0, (uint8_t)(100 + i) });
	memcpy(path.destination_gid, end.gid, 16);
	frame_template_init(&template, &path);
	bth = (struct bth *)frame_begin(data, &template, opcode);
	bth_set_qpn(bth, qp[i]->number);
	bth_set_psn(bth, psn[i]);
	bth->ack_req = BTH_ACK;
	if (opcode_table[opcode].flags & OPF_RETH) {
		put_be64((uint8_t *)bth + 12, RIG_BASE);
		put_be32((uint8_t *)bth + 20, end.remote_token);
		put_be32((uint8_t *)bth + 24, length);
	}
	if (opcode_table[opcode].flags & OPF_ATOMIC_ETH) {
		put_be64((uint8_t *)bth + 12, RIG_BASE);
		put_be32((uint8_t *)bth + 20, end.remote_token);
		put_be64((uint8_t *)bth + 24, 1);
	}
	packet.data = data;
	packet.length = frame_finish(data, &template, zeros, payload);
	cr_assert_eq(wire_parse(data, packet.length, &view), WIRE_OK);
	cr_assert_not(transport_receive(end.worker[0], &view, NULL, now));
	psn[i] = psn_add(psn[i], packets);
}

static void read_of(uint32_t i, uint32_t length)
{
	receive(i, OP_RC_READ_REQUEST, length ? (length + 1023) / 1024 : 1, length, 0);
}

/* Counts what has left, frame by frame. */
static bool take(struct wire_view *view)
{
	static uint8_t frame[RIG_FRAME]; /* the view looks into it until the next one comes */
	struct pktbuf *packet;
	uint32_t peer;

	if (end.out.head == end.out.tail)
		return false;
	packet = end.out.frame[end.out.head++ % 4096];
	memcpy(frame, packet->data, packet->length);
	cr_assert_eq(wire_parse(frame, packet->length, view), WIRE_OK);
	peer = view->qpn - PEER;
	cr_assert_lt(peer, QPS);
	bytes[peer] += packet->length;
	answers[peer] += view->opcode == OP_RC_READ_RESPONSE_ONLY ||
			 view->opcode == OP_RC_READ_RESPONSE_LAST;
	free(packet->data);
	free(packet);
	end.buffers--;
	return true;
}

/* One poll with so many frames of room. */
static void turn(uint32_t room)
{
	struct wire_view view;

	now += 10000;
	end.room = room;
	end_poll(&end, now);
	while (take(&view))
		;
}

/* --- fairness ------------------------------------------------------------------------- */

Test(fair, long_reads_share_the_room_byte_by_byte)
{
	/* Rooms that divide neither by the quantum's frames nor by the number of queue pairs. */
	static const uint32_t rooms[] = { 1, 5, 16, 23, 64 };

	for (uint32_t r = 0; r < sizeof(rooms) / sizeof(rooms[0]); r++) {
		uint64_t least = UINT64_MAX, most = 0;

		memset(bytes, 0, sizeof(bytes));
		for (uint32_t i = 0; i < QPS; i++)
			read_of(i, 1 << 20);
		for (uint32_t turns = 0; turns * rooms[r] < 3500; turns++)
			turn(rooms[r]);
		for (uint32_t i = 0; i < QPS; i++) {
			least = bytes[i] < least ? bytes[i] : least;
			most = bytes[i] > most ? bytes[i] : most;
		}
		cr_assert_leq(most - least, 17 * 1100, "room %u: %llu and %llu bytes", rooms[r],
			      (unsigned long long)least, (unsigned long long)most);
		for (uint32_t turns = 0; turns < 130; turns++)
			turn(64);
		for (uint32_t i = 0; i < QPS; i++)
			cr_assert_eq(answers[i], r + 1);
	}
}

/* Six peers read 1 MiB each, over and over: a READ of 8 bytes is in the next frame. */
Test(fair, a_short_read_does_not_wait_for_long_ones)
{
	struct wire_view view;

	for (uint32_t i = 1; i < QPS; i++)
		read_of(i, 1 << 20);
	for (uint32_t t = 0; t < 200; t++) {
		turn(8);
		read_of(0, 8);
		end.room = 8;
		end_poll(&end, now += 10000);
		cr_assert(take(&view));
		cr_assert_eq(view.qpn, PEER, "the first frame is somebody else's");
		while (take(&view))
			;
	}
	cr_assert_eq(answers[0], 200);
}

/* The other way round: however many short ones there are, the long one goes on. */
Test(fair, short_reads_do_not_starve_a_long_one)
{
	read_of(0, 1 << 20);
	for (uint32_t t = 0; t < 600; t++) {
		for (uint32_t i = 1; i < QPS; i++)
			if (answers[i] == psn[i] - P)
				read_of(i, 8);
		turn(4);
	}
	cr_assert_geq(bytes[0], 300 * 1024, "%llu bytes in 2400 frames",
		      (unsigned long long)bytes[0]);
	for (uint32_t i = 1; i < QPS; i++)
		cr_assert_geq(answers[i], 100, "peer %u: %u", i, answers[i]);
}

/* Who got ready by a frame or two answers; what else there is to do waits for its own turn. */
Test(fair, answers_leave_ahead_of_everything_else)
{
	struct wire_view view;

	post_send(&end, qp[0], (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 1 },
		  (struct shm_sge[]){ sge_at(&end, 0, 8) }, 1);
	receive(0, OP_RC_WRITE_ONLY, 1, 8, 8);
	receive(1, OP_RC_WRITE_ONLY, 1, 8, 8);
	cr_assert_eq(transport_answer(end.worker[0], now), 2);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(take(&view));
		cr_expect_eq(view.opcode, OP_RC_ACKNOWLEDGE);
		cr_expect_eq(view.qpn, PEER + i);
		cr_expect_eq(view.psn, P);
	}
	cr_assert_not(take(&view), "a request is no answer");
	cr_assert_eq(transport_answer(end.worker[0], now), 0, "said once");
	end_poll(&end, now);
	cr_assert(take(&view));
	cr_expect_eq(view.opcode, OP_RC_SEND_ONLY);
	cr_assert_not(take(&view));
}

/* Ahead of everything else, but not without a buffer, nor in place of what is due before it. */
Test(fair, an_answer_without_a_buffer_leaves_with_the_next_poll)
{
	struct wire_view view;

	end.room = 0;
	receive(0, OP_RC_WRITE_ONLY, 1, 8, 8);
	cr_assert_eq(transport_answer(end.worker[0], now), 0);
	end.room = UINT32_MAX;
	end_poll(&end, now);
	cr_assert(take(&view));
	cr_expect_eq(view.opcode, OP_RC_ACKNOWLEDGE);
	cr_assert_not(take(&view));
}

Test(fair, a_port_that_takes_nothing_holds_up_nobody_else)
{
	struct rig_qp *last = end_open_qp(&end, 0, 64);
	struct qp_connection connection = rig_connection();
	const struct shm_sge sge = sge_at(&end, 0, 4096);

	connection.path.local_mac[5] = 2;
	connection.remote_qpn = PEER;
	memcpy(connection.path.local_gid, end.gid, 16);
	gid_from_v4(connection.path.remote_gid, (uint8_t[4]){ 10, 0, 0, 9 });
	cr_assert_eq(transport_connect(end.worker[0], last->index, &connection, now), 0);
	end.stuck = 2;
	for (uint32_t t = 0; t < 32; t++)
		post_send(&end, last, (struct shm_sqe){ .opcode = SHM_WR_WRITE }, &sge, 1);
	turn(64);
	for (uint32_t i = 0; i < QPS; i++)
		read_of(i, 65536);
	for (uint32_t t = 0; t < 7; t++)
		turn(64);
	for (uint32_t i = 0; i < QPS; i++)
		cr_assert_eq(answers[i], 1, "peer %u", i);
	cr_assert_eq(qp_get_state(end.shared, last->index), QP_RTS);
	bytes[0] = 0;
	end.stuck = 0;
	turn(64);
	cr_assert_gt(bytes[0], 4096);
}

/* --- nothing is lost ------------------------------------------------------------------ */

/* For a minute there is no buffer; then everything leaves that was due, once, in order. */
static void starve(void)
{
	const uint64_t until = now + 60000 * MS;

	end.room = 0;
	while (now < until) {
		uint64_t next;

		for (int i = 0; i < 3; i++)
			end_poll(&end, now);
		next = transport_next_deadline(end.worker[0], now);
		cr_assert_gt(next, now, "it spins");
		now = next < now + 100 * MS ? next : now + 100 * MS;
	}
	cr_assert_eq(end.out.head, end.out.tail);
	cr_assert_eq(end.buffers, 0);
	end.room = UINT32_MAX;
}

static void expect_frame(uint8_t opcode, uint32_t at)
{
	struct wire_view view;

	cr_assert(take(&view), "no frame of opcode %#x", opcode);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	cr_assert_eq(view.psn, at, "PSN %#x, not %#x", view.psn, at);
}

static void expect_nothing(void)
{
	struct wire_view view;

	end_poll(&end, now);
	cr_assert_not(take(&view), "opcode %#x", view.opcode);
}

Test(fair, answers_of_every_kind_outlive_a_minute_without_buffers)
{
	end.room = 0;
	read_of(0, 3000);
	receive(0, OP_RC_FETCH_ADD, 1, 0, 0);
	receive(0, OP_RC_WRITE_ONLY, 1, 8, 8);
	read_of(0, 0);
	starve();
	end_poll(&end, now);
	expect_frame(OP_RC_READ_RESPONSE_FIRST, P);
	expect_frame(OP_RC_READ_RESPONSE_MIDDLE, P + 1);
	expect_frame(OP_RC_READ_RESPONSE_LAST, P + 2);
	expect_frame(OP_RC_ATOMIC_ACKNOWLEDGE, P + 3);
	expect_frame(OP_RC_READ_RESPONSE_ONLY, P + 5);
	expect_nothing();
	cr_assert_eq(*(uint64_t *)(void *)end.bytes, 0, "the WRITE came behind the atomic");
}

Test(fair, refusals_outlive_a_minute_without_buffers)
{
	struct wire_view view;

	end.room = 0;
	receive(0, OP_RC_SEND_ONLY, 0, 0, 8); /* nobody has posted a receive */
	psn[1] = psn_add(psn[1], 5);
	receive(1, OP_RC_WRITE_ONLY, 1, 8, 8); /* ahead */
	receive(2, OP_RC_WRITE_LAST, 1, 8, 8); /* of no message */
	starve();
	for (uint32_t i = 0; i < 3; i++)
		cr_assert_eq(qp_get_state(end.shared, qp[i]->index), QP_RTS,
			     "not before the peer was told");
	end_poll(&end, now);
	for (uint32_t i = 0; i < 3; i++) {
		static const uint8_t syndromes[] = { AETH_RNR | 12, NAK_PSN_SEQUENCE,
						     NAK_INVALID_REQUEST };

		cr_assert(take(&view));
		cr_assert_lt(view.qpn - PEER, 3);
		cr_assert_eq(view_aeth(&view)->syndrome, syndromes[view.qpn - PEER]);
	}
	expect_nothing();
	cr_assert_eq(qp_get_state(end.shared, qp[2]->index), QP_ERROR);
	cr_assert_eq(end_count_events(&end, TRANSPORT_QP_ERROR), 1);
}

Test(fair, requests_of_every_kind_outlive_a_minute_without_buffers)
{
	static const uint8_t opcodes[] = { SHM_WR_WRITE, SHM_WR_READ, SHM_WR_SEND,
					   SHM_WR_FETCH_ADD };
	const struct shm_sge sge = sge_at(&end, 0, 8);

	end.room = 0;
	for (uint32_t i = 0; i < 4; i++)
		post_send(&end, qp[0], (struct shm_sqe){ .opcode = opcodes[i] }, &sge, 1);
	end_poll(&end, now);
	starve();
	end_poll(&end, now);
	expect_frame(OP_RC_WRITE_ONLY, 0x900);
	expect_frame(OP_RC_READ_REQUEST, 0x901);
	expect_frame(OP_RC_SEND_ONLY, 0x902);
	expect_frame(OP_RC_FETCH_ADD, 0x903);
	expect_nothing();
	cr_assert_eq(qp_get_state(end.shared, qp[0]->index), QP_RTS);
	cr_assert_eq(end_count_events(&end, TRANSPORT_QP_ERROR), 0);
	expect_no_cqe(qp[0]);
}

/* Sent, not acknowledged, and nothing can be sent again: that is no silence of the peer's. */
Test(fair, retries_are_not_counted_while_nothing_can_leave)
{
	const struct shm_sge sge = sge_at(&end, 0, 8);

	post_send(&end, qp[0], (struct shm_sqe){ .opcode = SHM_WR_WRITE }, &sge, 1);
	turn(1);
	cr_assert_gt(bytes[0], 0);
	starve();
	cr_assert_eq(qp_get_state(end.shared, qp[0]->index), QP_RTS);
	end_poll(&end, now);
	expect_frame(OP_RC_WRITE_ONLY, 0x900);
}

/* A client that does not take its tokens back leaves them to others, and asks for new ones. */
Test(fair, a_full_stock_keeps_no_token)
{
	struct shm_ring_cursor *cursor = &end.session->worker[0].stock_cursor;
	struct memory_usage before, after;
	const uint32_t token = end_token(&end);

	memory_usage(end.memory, &before);
	post_send(&end, qp[0],
		  (struct shm_sqe){ .opcode = SHM_WR_BIND,
				    .mr = end.region,
				    .mw = end.window[0],
				    .token = token,
				    .address = RIG_BASE,
				    .length = 64,
				    .flags = SHM_FLAG_ALLOW_REMOTE_READ },
		  NULL, 0);
	post_send(&end, qp[0], (struct shm_sqe){ .opcode = SHM_WR_INVALIDATE, .token = token },
		  NULL, 0);
	cursor->head = cursor->tail - SHM_STOCK_ENTRIES;
	for (int i = 0; i < 10; i++)
		turn(8);
	cr_assert_eq(transport_get_stats(end.worker[0])->stock_full, 1);
	cr_assert_eq(token_reserve(end.memory, RIG_SESSION, 0, NULL), 0);
	memory_usage(end.memory, &after);
	cr_assert_eq(after.tokens_reserved + 1, before.tokens_reserved);
	cr_assert_eq(after.tokens_valid, before.tokens_valid);
}

/* Each queue pair of a CQ that overran is told of, whatever their number. */
Test(fair, an_overrun_tells_of_every_queue_pair)
{
	struct cq *cq = arena_record(&end.arena, ARENA_CQS, qp[0]->cq);

	for (uint32_t i = 1; i < QPS; i++) {
		struct qp *other = arena_record(&end.arena, ARENA_QPS, qp[i]->index);

		other->send_cq = qp[0]->cq;
	}
	cq->side[0].tail += cq->side[0].depth;
	post_send(&end, qp[0], (struct shm_sqe){ .opcode = 99 }, NULL, 0);
	for (int i = 0; i < 5; i++)
		turn(8);
	cr_assert_eq(end_count_events(&end, TRANSPORT_CQ_ERROR), 1);
	cr_assert_eq(end_count_events(&end, TRANSPORT_QP_ERROR), QPS);
	for (uint32_t i = 0; i < QPS; i++)
		cr_assert_eq(qp_get_state(end.shared, qp[i]->index), QP_ERROR);
}
