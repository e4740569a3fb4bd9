/* SPDX-License-Identifier: BSD-3-Clause */
/* A live queue pair goes to another worker: nothing is lost, repeated or out of order. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/private.h"
#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE

static struct raw raw;
static uint8_t payload[8192];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_open(&raw, 3, rig_connection(), P);
	fill(raw.end.bytes, 65536, 2);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(move, .init = setup, .fini = teardown);

static void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

static void move_to(unsigned int worker)
{
	end_move_qp(&raw.end, raw.qp, worker, raw.now);
}

static struct transport_stats *stats(unsigned int worker)
{
	return transport_get_stats(raw.end.worker[worker]);
}

static void post_sink(uint64_t context, uint64_t offset, uint32_t length)
{
	const struct shm_sge sge = sge_at(&raw.end, offset, length);

	post_receive(&raw.end, raw.qp, context, &sge, 1);
}

static void post_source(uint64_t context, uint32_t length)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, length);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = context }, &sge, 1);
}

static void acknowledge(uint32_t psn)
{
	RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = psn, .syndrome = 0x1f);
}

/* --- responder ------------------------------------------------------------------------ */

Test(move, a_message_goes_on_where_it_was)
{
	static const uint8_t opcode[4] = { OP_RC_SEND_FIRST, OP_RC_SEND_MIDDLE, OP_RC_SEND_MIDDLE,
					   OP_RC_SEND_LAST };
	struct shm_cqe cqe;

	post_sink(7, 1 << 20, 4096);
	for (uint32_t i = 0; i < 4; i++) {
		RAW_SEND(&raw, .opcode = opcode[i], .psn = P + i, .payload = payload + i * 1024,
			 .payload_length = 1024, .ack_request = i == 3);
		move_to((i + 1) % 3);
	}
	settle();
	cqe = expect_cqe(raw.qp, 7, 0);
	cr_assert_eq(cqe.bytes, 4096);
	cr_assert_eq(cqe.epoch, 3, "written before the fourth move");
	cr_assert_arr_eq(raw.end.bytes + (1 << 20), payload, 4096);
	raw_expect_ack(&raw, P + 3, 1);
	raw_expect_none(&raw);
}

Test(move, a_write_goes_on_and_its_token_is_looked_at_by_each_home)
{
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_FIRST, .psn = P, .address = V + (1 << 20),
		 .token = raw.end.remote_token, .length = 2048, .payload = payload,
		 .payload_length = 1024);
	move_to(2);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_LAST, .psn = P + 1, .payload = payload + 1024,
		 .payload_length = 1024, .ack_request = true);
	raw_expect_ack(&raw, P + 1, 1);
	cr_assert_arr_eq(raw.end.bytes + (1 << 20), payload, 2048);
	cr_assert_eq(stats(0)->rx_packets, 1);
	cr_assert_eq(stats(2)->rx_packets, 1);
}

Test(move, read_responses_that_are_due_leave_once_and_in_order)
{
	struct wire_view view;

	raw.end.room = 3;
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V,
		 .token = raw.end.remote_token, .length = 8192);
	move_to(1);
	raw.end.room = UINT32_MAX;
	settle();
	for (uint32_t i = 0; i < 8; i++) {
		cr_assert(raw_receive(&raw, &view), "response %u is missing", i);
		cr_assert_eq(view.psn, P + i);
		cr_assert_eq(view.opcode, i == 0   ? OP_RC_READ_RESPONSE_FIRST
					  : i == 7 ? OP_RC_READ_RESPONSE_LAST
						   : OP_RC_READ_RESPONSE_MIDDLE);
		cr_assert_arr_eq(view.payload, raw.end.bytes + i * 1024, 1024);
	}
	raw_expect_none(&raw);
	cr_assert_eq(stats(0)->tx_packets, 3);
	cr_assert_eq(stats(1)->tx_packets, 5);
}

Test(move, atomics_are_replayed_by_the_new_home)
{
	struct wire_view view;

	raw.end.bytes[0] = 5;
	memset(raw.end.bytes + 1, 0, 7);
	for (int i = 0; i < 2; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V,
			 .token = raw.end.remote_token, .swap = 3);
		move_to(1);
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(be64_get(view_atomic_ack(&view)->original), 5);
	}
	cr_assert_eq(raw.end.bytes[0], 8, "executed once");
}

/* Another worker has not been through a quiescent state yet when the queue pair leaves. */
Test(move, a_grace_period_and_the_frames_that_wait_for_it_go_along)
{
	const uint32_t token = end_token(&raw.end);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_BIND,
				    .request_context = 1,
				    .mr = raw.end.region,
				    .mw = raw.end.window[0],
				    .token = token,
				    .address = V,
				    .length = 64,
				    .flags = SHM_FLAG_ALLOW_REMOTE_READ },
		  NULL, 0);
	settle();
	expect_cqe(raw.qp, 1, 0);
	for (uint32_t i = 0; i < 5; i++)
		post_sink(100 + i, (1 << 20) + i * 64, 64);
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_SEND_ONLY_INV,
						  .psn = P,
						  .token = token,
						  .ack_request = true });
	for (uint32_t i = 1; i < 5; i++)
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_SEND_ONLY,
							  .psn = P + i,
							  .payload = payload,
							  .payload_length = i,
							  .ack_request = true });
	cr_assert_eq(stats(0)->rx_packets, 5);
	move_to(1);
	for (int i = 0; i < 10; i++) {
		transport_poll(raw.end.worker[0], raw.now);
		memory_quiescent(raw.end.memory, 0);
		transport_poll(raw.end.worker[1], raw.now);
		memory_quiescent(raw.end.memory, 1);
	}
	expect_no_cqe(raw.qp);
	raw_expect_none(&raw);
	cr_assert_eq(stats(0)->rx_packets, 1, "what waits is the new home's");
	cr_assert_eq(stats(1)->rx_packets, 4);
	memory_quiescent(raw.end.memory, 2);
	settle();
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_eq(expect_cqe(raw.qp, 100 + i, 0).bytes, i);
	raw_expect_ack(&raw, P + 4, 5);
	cr_assert_eq(raw.end.session->worker[1].stock_cursor.tail, 1, "its token, in our stock");
	cr_assert_eq(raw.end.session->worker[0].stock_cursor.tail, 0);
}

Test(move, frames_that_wait_must_be_taken_out_first)
{
	raw.end.room = 0;
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V,
		 .token = raw.end.remote_token, .length = 8192);
	post_sink(1, 1 << 20, 64);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY_INV, .psn = P + 8, .token = 99);
	cr_assert_eq(transport_release(raw.end.worker[0], raw.qp->index, 1, raw.now), -EAGAIN);
	cr_assert_eq(qp_home(raw.end.shared, raw.qp->index), 0);
	move_to(1);
	cr_assert_eq(qp_home(raw.end.shared, raw.qp->index), 1);
}

/* --- requester ------------------------------------------------------------------------ */

static uint32_t expect_frame(uint32_t psn)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no frame %#x", psn);
	cr_assert_eq(view.psn, psn);
	return view.opcode;
}

/* Time passes by small steps until a frame leaves; how long that took, in ns. */
static uint64_t wait_for_frame(void)
{
	const uint64_t start = raw.now;

	settle();
	while (raw.end.out.head == raw.end.out.tail && raw.now < start + 10000000000ull) {
		raw.now += 10000;
		settle();
	}
	return raw.now - start;
}

Test(move, the_retransmit_timer_runs_on)
{
	uint64_t waited;

	post_source(1, 100);
	settle();
	expect_frame(RAW_SEND_PSN);
	raw.now += 50000000;
	settle();
	move_to(2);
	waited = 50000000 + wait_for_frame();
	cr_assert_geq(waited, 8192ull << 14, "sent again after %llu ns",
		      (unsigned long long)waited);
	cr_assert_leq(waited, (8192ull << 14) + 100000);
	expect_frame(RAW_SEND_PSN);
	cr_assert_eq(stats(2)->timeouts, 1);
	cr_assert_eq(stats(0)->timeouts, 0);
	acknowledge(RAW_SEND_PSN);
	expect_cqe(raw.qp, 1, 0);
	for (unsigned int w = 0; w < 3; w++)
		cr_assert_eq(transport_next_deadline(raw.end.worker[w], raw.now), UINT64_MAX);
}

Test(move, an_rnr_wait_is_kept)
{
	uint64_t waited;

	post_source(1, 100);
	settle();
	expect_frame(RAW_SEND_PSN);
	RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = RAW_SEND_PSN, .syndrome = AETH_RNR | 12);
	move_to(1);
	post_source(2, 100);
	waited = wait_for_frame();
	cr_assert_geq(waited, rnr_timer_ns(12));
	cr_assert_leq(waited, rnr_timer_ns(12) + 100000);
	expect_frame(RAW_SEND_PSN);
	cr_assert_eq(stats(1)->retransmits, 1);
}

Test(move, a_read_of_ours_takes_its_responses_at_the_new_home)
{
	const struct shm_sge sge = sge_at(&raw.end, 1 << 20, 2048);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = 1, .address = V },
		  &sge, 1);
	settle();
	expect_frame(RAW_SEND_PSN);
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_FIRST, .psn = RAW_SEND_PSN, .syndrome = 0x1f,
		 .payload = payload, .payload_length = 1024);
	move_to(1);
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_LAST, .psn = RAW_SEND_PSN + 1,
		 .syndrome = 0x1f, .payload = payload + 1024, .payload_length = 1024);
	cr_assert_eq(expect_cqe(raw.qp, 1, 0).epoch, 1);
	cr_assert_arr_eq(raw.end.bytes + (1 << 20), payload, 2048);
}

/* --- doorbells and completions -------------------------------------------------------- */

Test(move, a_doorbell_rung_at_the_old_home_is_not_lost)
{
	struct transport *const old = raw.end.worker[0], *const new = raw.end.worker[1];

	settle();
	/* Rung before it leaves, and read after. */
	post_source(1, 100);
	cr_assert_eq(raw.qp->memory->home, 0);
	cr_assert_eq(transport_release(old, raw.qp->index, 1, raw.now), 0);
	/* Rung while it is on its way. */
	post_source(2, 100);
	cr_assert_eq(transport_poll(old, raw.now), 0);
	cr_assert_eq(transport_poll(new, raw.now), 0, "not before it is taken");
	transport_take(new, raw.qp->index, raw.now);
	cr_assert_eq(raw.qp->memory->home, 1);
	settle();
	expect_frame(RAW_SEND_PSN);
	expect_frame(RAW_SEND_PSN + 1);
	raw_expect_none(&raw);
	post_source(3, 100);
	transport_poll(old, raw.now);
	raw_expect_none(&raw);
	transport_poll(new, raw.now);
	expect_frame(RAW_SEND_PSN + 2);
}

Test(move, completions_are_published_before_it_leaves_and_the_epoch_tells_their_order)
{
	struct shm_cqe cqe;

	for (uint32_t i = 0; i < 6; i++) {
		struct wire_view view;

		post_source(i, 100);
		settle();
		expect_frame(RAW_SEND_PSN + i);
		cr_assert_eq(wire_parse(raw.last->data, raw.last->length, &view), WIRE_OK);
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_ACKNOWLEDGE,
							  .psn = RAW_SEND_PSN + i,
							  .syndrome = 0x1f });
		move_to((i + 1) % 2);
		cr_assert_eq(raw.qp->cq_memory->ring[i % 2].cursor.tail, i / 2 + 1,
			     "published by the release");
	}
	for (uint32_t i = 0; i < 6; i++) {
		cr_assert(take_cqe(raw.qp, &cqe));
		cr_assert_eq(cqe.request_context, i);
		cr_assert_eq(cqe.epoch, i);
	}
}

/* --- records of work requests --------------------------------------------------------- */

static uint32_t free_flights(unsigned int worker)
{
	const struct transport *t = raw.end.worker[worker];
	uint32_t count = 0;

	for (uint32_t i = t->free_flight; i; i = flight_at(t, i)->next) {
		cr_assert_lt(i - t->flight_first, t->flight_count, "record %u in share %u", i,
			     worker);
		count++;
	}
	return count;
}

Test(move, records_of_work_requests_go_back_to_their_share)
{
	const uint32_t before[3] = { free_flights(0), free_flights(1), free_flights(2) };

	for (uint32_t round = 0; round < 30; round++) {
		for (uint32_t i = 0; i < 20; i++)
			post_source(round * 20 + i, 100);
		settle();
		end_drain(&raw.end);
		cr_assert_eq(free_flights(round % 3), before[round % 3] - 20);
		move_to((round + 1) % 3);
		acknowledge(RAW_SEND_PSN + round * 20 + 19);
		for (uint32_t i = 0; i < 20; i++)
			expect_cqe(raw.qp, round * 20 + i, 0);
		for (unsigned int w = 0; w < 3; w++)
			cr_assert_eq(free_flights(w), before[w]);
	}
}

/* --- limits, error, adoption ---------------------------------------------------------- */

Test(move, who_may_and_who_may_not)
{
	struct srq_config config = {
		.session = RIG_SESSION, .pd = raw.end.pd, .depth = 4, .sge = 1
	};
	struct qp_config with_srq = { .type = SHM_QP_RC, .send_depth = 4, .send_sge = 1 };
	struct rig_qp *shared, *fresh;

	config.memory_size = srq_memory_size(4, 1);
	config.memory = calloc(1, config.memory_size);
	with_srq.srq = srq_create(raw.end.shared, &config);
	shared = end_open_qp_config(&raw.end, &with_srq, 16);
	fresh = end_open_qp(&raw.end, 0, 16);
	cr_assert_eq(transport_may_move(raw.end.shared, raw.qp->index), 0);
	cr_assert_eq(transport_may_move(raw.end.shared, shared->index), -ENOTSUP);
	cr_assert_eq(transport_may_move(raw.end.shared, fresh->index), -ENOTCONN);
	transport_flush(raw.end.worker[0], raw.qp->index, raw.now);
	cr_assert_eq(transport_may_move(raw.end.shared, raw.qp->index), -ENOTCONN);
	end_close_qp(&raw.end, shared, raw.now);
	free(config.memory);
}

Test(move, a_flush_that_begins_at_one_home_ends_at_the_other)
{
	for (uint32_t i = 0; i < 60; i++)
		post_sink(i, 1 << 20, 64);
	settle();
	transport_flush(raw.end.worker[0], raw.qp->index, raw.now);
	transport_poll(raw.end.worker[0], raw.now);
	cr_assert_eq(raw.qp->memory->receive.done, POLL_FLUSH);
	move_to(1);
	settle();
	for (uint32_t i = 0; i < 60; i++)
		expect_cqe(raw.qp, i, NT_CANCELLED);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_FLUSHED), 1);
}

Test(move, a_process_that_dies_on_the_way_leaves_it_at_its_new_home)
{
	post_source(1, 100);
	settle();
	end_drain(&raw.end);
	cr_assert_eq(transport_release(raw.end.worker[0], raw.qp->index, 2, raw.now), 0);
	end_restart(&raw.end, raw.now);
	cr_assert_eq(raw.qp->memory->home, 2);
	settle();
	expect_frame(RAW_SEND_PSN);
	cr_assert_eq(stats(2)->retransmits, 1);
	acknowledge(RAW_SEND_PSN);
	cr_assert_eq(expect_cqe(raw.qp, 1, 0).epoch, 1);
	cr_assert_eq(free_flights(0), raw.end.worker[0]->flight_count - 1, "record 0 is none");
}

/* --- unreliable connections ----------------------------------------------------------- */

static struct rig rig;

static struct rig_qp *open_unreliable(struct end *end)
{
	struct qp_config config = { .type = SHM_QP_UC,
				    .send_depth = 64,
				    .receive_depth = 64,
				    .send_sge = 4,
				    .receive_sge = 4 };

	return end_open_qp_config(end, &config, 256);
}

Test(unreliable, both_ends_move_in_the_middle_of_messages)
{
	struct rig_qp *a, *b;

	rig_create_workers(&rig, 3);
	a = open_unreliable(&rig.a);
	b = open_unreliable(&rig.b);
	rig_join(&rig, a, b, rig_connection(), rig_connection());
	fill(rig.a.bytes, 1 << 20, 5);
	for (uint32_t i = 0; i < 60; i++) {
		const struct shm_sge sink = sge_at(&rig.b, i * 16384, 16384);
		const struct shm_sge source = sge_at(&rig.a, i * 16384, 16384);

		post_receive(&rig.b, b, i, &sink, 1);
		post_send(&rig.a, a,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = i }, &source,
			  1);
	}
	for (uint32_t turn = 0; rig_turn(&rig); turn++) {
		end_move_qp(&rig.a, a, turn % 3, rig.now);
		end_move_qp(&rig.b, b, (turn + 1) % 3, rig.now);
	}
	for (uint32_t i = 0; i < 60; i++) {
		expect_cqe(a, i, 0);
		cr_assert_eq(expect_cqe(b, i, 0).bytes, 16384);
	}
	cr_assert_arr_eq(rig.b.bytes, rig.a.bytes, 60 * 16384);
	cr_assert_gt(end_counter(&rig.a, offsetof(struct transport_stats, moved_in)), 10);
	rig_destroy(&rig);
}
