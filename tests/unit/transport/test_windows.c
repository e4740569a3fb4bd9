/* SPDX-License-Identifier: BSD-3-Clause */
/* Binds and revocations in queue order, and what peers may do through windows. */
#include <criterion/criterion.h>
#include <string.h>

#include "shm/spsc.h"
#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE

static struct raw raw;
static uint8_t payload[4096];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_open(&raw, 2, rig_connection(), P);
	for (uint32_t i = 0; i < 8192; i++)
		raw.end.bytes[i] = (uint8_t)(i % 251);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(windows, .init = setup, .fini = teardown);

static void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

/* The queue pair's worker alone: the other one does not report. */
static void poll_home(void)
{
	for (int i = 0; i < 10; i++) {
		transport_poll(raw.end.worker[0], raw.now);
		memory_quiescent(raw.end.memory, 0);
	}
}

static struct shm_sqe bind_entry(uint32_t window, uint32_t token, uint64_t offset, uint64_t length,
				 uint32_t flags)
{
	return (struct shm_sqe){ .opcode = SHM_WR_BIND,
				 .request_context = 1000 + window,
				 .mr = raw.end.region,
				 .mw = raw.end.window[window],
				 .token = token,
				 .address = V + offset,
				 .length = length,
				 .flags = flags };
}

#define READ_WRITE (SHM_FLAG_ALLOW_REMOTE_READ | SHM_FLAG_ALLOW_REMOTE_WRITE)

/* Binds window 0 and gives its token. */
static uint32_t bind_window(uint64_t offset, uint64_t length, uint32_t flags)
{
	const uint32_t token = end_token(&raw.end);

	post_send(&raw.end, raw.qp, bind_entry(0, token, offset, length, flags), NULL, 0);
	settle();
	cr_assert_eq(expect_cqe(raw.qp, 1000, 0).type, 8);
	return token;
}

static void invalidate(uint32_t token, uint64_t context)
{
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = SHM_WR_INVALIDATE,
				    .request_context = context,
				    .mw = raw.end.window[0],
				    .token = token },
		  NULL, 0);
}

static void read_packet(uint32_t psn, uint32_t token, uint64_t address, uint32_t length)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = psn, .address = address, .token = token,
		 .length = length);
}

static void expect_read(uint32_t psn, uint32_t offset, uint32_t length)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
	cr_assert_eq(view.psn, psn);
	cr_assert_arr_eq(view.payload, raw.end.bytes + offset, length);
}

static uint32_t stock_count(void)
{
	return raw.end.session->worker[0].stock_cursor.tail;
}

static void post_sinks(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, 65536 + i * 64, 64);

		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

static void send_invalidate(uint32_t psn, uint32_t token)
{
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY_INV, .psn = psn, .token = token,
		 .payload = payload, .payload_length = 5, .ack_request = true, .solicited = true);
}

/* --- bind ----------------------------------------------------------------------------- */

Test(windows, bind_opens_and_invalidate_closes)
{
	const uint32_t token = bind_window(1024, 64, READ_WRITE);

	read_packet(P, token, V + 1024, 64);
	expect_read(P, 1024, 64);
	invalidate(token, 7);
	settle();
	cr_assert_eq(expect_cqe(raw.qp, 7, 0).type, 16);
	cr_assert_eq(stock_count(), 1, "a fresh token for the dead one");
	cr_assert_neq(raw.end.session->worker[0].stock[0], token);
	read_packet(P + 1, token, V + 1024, 64);
	raw_expect_nak(&raw, P + 1, 0x62);
}

Test(windows, b49_old_tokens_stay_dead_and_new_ones_work)
{
	uint32_t psn = P;
	uint32_t token = bind_window(0, 64, READ_WRITE);

	for (uint32_t i = 0; i < 2000; i++) {
		const uint32_t old = token;
		struct memory_usage usage;

		invalidate(token, i);
		settle();
		expect_cqe(raw.qp, i, 0);
		if (i >= stock_count()) {
			/* Now and then a slot leaves the session. */
			memory_usage(raw.end.memory, &usage);
			break;
		}
		token = raw.end.session->worker[0].stock[i & (SHM_STOCK_ENTRIES - 1)];
		shm_store_release(&raw.end.session->worker[0].stock_cursor.head, i + 1);
		cr_assert_neq(token, old);
		post_send(&raw.end, raw.qp, bind_entry(0, token, 0, 64, READ_WRITE), NULL, 0);
		settle();
		expect_cqe(raw.qp, 1000, 0);
		read_packet(psn, token, V, 8);
		expect_read(psn++, 0, 8);
	}
	cr_assert_gt(psn, P + 3);
}

Test(windows, send_behind_a_bind_may_carry_its_token)
{
	const uint32_t token = end_token(&raw.end);
	struct wire_view view;

	memcpy(raw.end.bytes + 200000, &token, 4);
	post_send(&raw.end, raw.qp, bind_entry(0, token, 0, 4096, READ_WRITE), NULL, 0);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND },
		  &(struct shm_sge){ V + 200000, 4, raw.end.local_token }, 1);
	/* Before the worker has seen it the token is good for nothing. */
	transport_poll(raw.end.worker[0], raw.now);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(memcmp(view.payload, &token, 4), 0);
	read_packet(P, token, V + 5, 8);
	expect_read(P, 5, 8);
}

Test(windows, reserved_token_grants_nothing)
{
	read_packet(P, end_token(&raw.end), V, 8);
	raw_expect_nak(&raw, P, 0x62);
}

static void expect_bind_failure(struct shm_sqe entry, uint32_t reason)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);
	struct shm_cqe cqe;

	/* B32: silent, and still told; what follows is flushed, receives too. */
	entry.flags |= SHM_FLAG_SILENT_SUCCESS;
	post_receive(&raw.end, raw.qp, 50, &sge, 1);
	post_send(&raw.end, raw.qp, entry, NULL, 0);
	for (uint64_t i = 0; i < 3; i++)
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND,
					    .flags = SHM_FLAG_SILENT_SUCCESS,
					    .request_context = i },
			  &sge, 1);
	settle();
	cqe = expect_cqe(raw.qp, 1000, NT_ACCESS_VIOLATION);
	cr_assert_eq(cqe.provider_error, VERDICT_ACCESS + reason, "%s instead of %s",
		     verdict_name(cqe.provider_error), verdict_name(VERDICT_ACCESS + reason));
	for (uint64_t i = 0; i < 3; i++)
		expect_cqe(raw.qp, i, NT_CANCELLED);
	expect_cqe(raw.qp, 50, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	raw_expect_none(&raw);
}

Test(windows, b43_bind_range_that_wraps)
{
	struct shm_sqe entry = bind_entry(0, end_token(&raw.end), 0, 0x2000, READ_WRITE);

	entry.address = 0xfffffffffffff000;
	expect_bind_failure(entry, ACCESS_RANGE);
}

Test(windows, b43_bind_one_byte_behind)
{
	expect_bind_failure(bind_entry(0, end_token(&raw.end), RIG_MEMORY, 1, READ_WRITE),
			    ACCESS_RANGE);
}

Test(windows, bind_needs_a_token_of_the_stock)
{
	expect_bind_failure(bind_entry(0, 0x12345678, 0, 64, READ_WRITE), BIND_TOKEN);
}

Test(windows, bind_of_nonsense_handles)
{
	struct shm_sqe entry = bind_entry(0, end_token(&raw.end), 0, 64, READ_WRITE);

	entry.mw = 0xffffffff;
	expect_bind_failure(entry, BIND_WINDOW);
}

Test(windows, bind_of_a_bound_window)
{
	bind_window(0, 64, READ_WRITE);
	expect_bind_failure(bind_entry(0, end_token(&raw.end), 0, 64, READ_WRITE), BIND_BOUND);
}

Test(windows, invalidate_of_what_is_not_bound)
{
	invalidate(end_token(&raw.end), 9);
	settle();
	expect_cqe(raw.qp, 9, NT_INVALID_DEVICE_REQUEST);
}

/* --- W23 ------------------------------------------------------------------------------ */

static void expect_refused(uint32_t token, uint64_t address, uint32_t length, uint32_t reason)
{
	read_packet(P, token, address, length);
	raw_expect_nak(&raw, P, 0x62);
	cr_assert_eq(end_find_event(&raw.end, TRANSPORT_BAD_TOKEN)->value, VERDICT_ACCESS + reason);
}

Test(windows, w23_before_the_window)
{
	expect_refused(bind_window(1024, 64, READ_WRITE), V + 1023, 1, ACCESS_RANGE);
}

Test(windows, w23_behind_the_window)
{
	expect_refused(bind_window(1024, 64, READ_WRITE), V + 1088, 1, ACCESS_RANGE);
}

Test(windows, w23_longer_than_the_window)
{
	expect_refused(bind_window(1024, 64, READ_WRITE), V + 1024, 65, ACCESS_RANGE);
}

Test(windows, w23_write_through_a_read_window)
{
	const uint32_t token = bind_window(0, 64, SHM_FLAG_ALLOW_REMOTE_READ);

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .address = V, .token = token,
		 .length = 8, .payload = payload, .payload_length = 8);
	raw_expect_nak(&raw, P, 0x62);
	cr_assert_eq(raw.end.bytes[1], 1);
}

static void expect_no_write(uint32_t flags)
{
	const uint32_t token = bind_window(0, 64, flags);

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .address = V, .token = token,
		 .length = 8, .payload = payload, .payload_length = 8);
	raw_expect_nak(&raw, P, 0x62);
}

/* NDK_OP_FLAG_ALLOW_REMOTE_WRITE is two bits, of which one alone is another right, or none. */
Test(windows, local_write_is_not_remote_write)
{
	expect_no_write(SHM_FLAG_ALLOW_LOCAL_WRITE);
}

Test(windows, half_of_remote_write_is_none)
{
	expect_no_write(SHM_FLAG_ALLOW_REMOTE_WRITE & ~SHM_FLAG_ALLOW_LOCAL_WRITE);
}

Test(windows, w23_atomic_without_the_right)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);

	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = token,
		 .swap = 1);
	raw_expect_nak(&raw, P, 0x62);
	cr_assert_eq(raw.end.bytes[0], 0);
}

/* A second queue pair of the end, for the same raw peer. */
static struct rig_qp *second_qp(void)
{
	struct rig_qp *qp = end_open_qp(&raw.end, 0, 16);
	struct qp_connection connection = rig_connection();

	memcpy(connection.path.local_gid, raw.end.gid, 16);
	gid_from_v4(connection.path.remote_gid, (uint8_t[4]){ 10, 0, 0, 99 });
	connection.remote_qpn = RAW_QPN;
	connection.receive_psn = P;
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), 0);
	return qp;
}

Test(windows, w23_b51_tied_window_through_another_queue_pair)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE | SHM_FLAG_TIE_TO_QP);
	struct rig_qp *first = raw.qp, *second = second_qp();

	raw.qp = second;
	expect_refused(token, V, 8, ACCESS_QUEUE_PAIR);
	raw.qp = first;
	read_packet(P, token, V, 8);
	expect_read(P, 0, 8);
}

Test(windows, w23_open_window_through_another_queue_pair)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);
	struct rig_qp *second = second_qp();

	raw.qp = second;
	read_packet(P, token, V, 8);
	expect_read(P, 0, 8);
}

/* --- local invalidate ----------------------------------------------------------------- */

Test(windows, invalidate_waits_until_every_worker_has_let_go)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);

	invalidate(token, 7);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 8 },
		  &sge, 1);
	poll_home();
	/* Dead at once, complete when worker 1 has reported; what follows waits. */
	expect_no_cqe(raw.qp);
	raw_expect_none(&raw);
	cr_assert_not(transport_may_detach(raw.end.worker[0], raw.qp->index));
	cr_assert_eq(stock_count(), 0);
	memory_quiescent(raw.end.memory, 1);
	poll_home();
	expect_cqe(raw.qp, 7, 0);
	cr_assert_eq(stock_count(), 1);
	cr_assert(transport_may_detach(raw.end.worker[0], raw.qp->index));
	{
		struct wire_view view;

		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.opcode, OP_RC_SEND_ONLY);
	}
}

Test(windows, invalidate_of_a_tied_window_is_done_at_once)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE | SHM_FLAG_TIE_TO_QP);

	invalidate(token, 7);
	transport_poll(raw.end.worker[0], raw.now);
	expect_cqe(raw.qp, 7, 0);
}

Test(windows, flush_waits_for_the_grace_period)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);

	invalidate(token, 7);
	poll_home();
	transport_flush(raw.end.worker[0], raw.qp->index, raw.now);
	poll_home();
	expect_no_cqe(raw.qp);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_FLUSHED), 0);
	memory_quiescent(raw.end.memory, 1);
	poll_home();
	expect_cqe(raw.qp, 7, 0);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_FLUSHED), 1);
	cr_assert_eq(stock_count(), 1);
}

Test(windows, invalidate_waits_for_earlier_reads)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);

	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = 1 },
		  &sge, 1);
	invalidate(token, 2);
	settle();
	expect_no_cqe(raw.qp);
	read_packet(P, token, V + 8, 8);
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_ONLY, .psn = RAW_SEND_PSN, .syndrome = 0x1f,
		 .payload_length = 8);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
}

/* NDK_OP_FLAG_READ_FENCE: the bind is not done before the READ that is in front of it. */
Test(windows, bind_with_a_fence_waits_for_earlier_reads)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);
	const uint32_t token = end_token(&raw.end);
	const struct accessor who = { .pd = raw.end.pd,
				      .qpn = raw.qp->number,
				      .session = RIG_SESSION };
	struct wire_view view;
	struct access access;

	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_READ, .request_context = 1 },
		  &sge, 1);
	post_send(&raw.end, raw.qp, bind_entry(0, token, 0, 64, READ_WRITE | SHM_FLAG_READ_FENCE),
		  NULL, 0);
	settle();
	expect_no_cqe(raw.qp);
	cr_assert(raw_receive(&raw, &view), "the READ has left");
	cr_assert_neq(memory_access(raw.end.memory, &who, token, V, 8, RIGHT_REMOTE_READ, &access),
		      ACCESS_OK);
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_ONLY, .psn = RAW_SEND_PSN, .syndrome = 0x1f,
		 .payload_length = 8);
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 1000, 0);
	read_packet(P, token, V + 8, 8);
	expect_read(P, 8, 8);
}

/* --- SEND with invalidate ------------------------------------------------------------- */

Test(windows, b57_send_with_invalidate)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);
	struct shm_cqe cqe;

	post_sinks(2);
	send_invalidate(P, token);
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.type, 0x8001);
	cr_assert_eq(cqe.output, token, "B12: a number in host order");
	cr_assert_eq(cqe.bytes, 5);
	cr_assert_eq(cqe.solicited, 1);
	cr_assert_arr_eq(raw.end.bytes + 65536, payload, 5);
	raw_expect_ack(&raw, P, 1);
	cr_assert_eq(stock_count(), 1);
	read_packet(P + 1, token, V, 8);
	raw_expect_nak(&raw, P + 1, 0x62);
}

Test(windows, send_with_invalidate_parks_what_follows)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);
	struct transport *worker = raw.end.worker[0];

	post_sinks(10);
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
	poll_home();
	expect_no_cqe(raw.qp);
	raw_expect_none(&raw);
	cr_assert_not(transport_may_detach(worker, raw.qp->index));
	memory_quiescent(raw.end.memory, 1);
	poll_home();
	expect_cqe(raw.qp, 100, 0);
	for (uint32_t i = 1; i < 5; i++)
		cr_assert_eq(expect_cqe(raw.qp, 100 + i, 0).bytes, i);
	raw_expect_ack(&raw, P + 4, 5);
	raw_expect_none(&raw);
}

Test(windows, parked_packets_are_bounded)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);

	post_sinks(1);
	raw_send_only(&raw, &(struct raw_packet){
				    .opcode = OP_RC_SEND_ONLY_INV, .psn = P, .token = token });
	for (uint32_t i = 1; i <= 300; i++)
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
							  .psn = P + i,
							  .ack_request = true });
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(PARK_FULL)), 300 - 256);
	memory_quiescent(raw.end.memory, 1);
	settle();
	{
		struct wire_view view;
		uint32_t last = 0;

		while (raw_receive(&raw, &view))
			last = view.psn;
		cr_assert_eq(last, P + 256, "those kept were served in order");
	}
}

Test(windows, parked_packets_go_with_the_queue_pair)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);

	post_sinks(1);
	raw_send_only(&raw, &(struct raw_packet){
				    .opcode = OP_RC_SEND_ONLY_INV, .psn = P, .token = token });
	for (uint32_t i = 1; i < 10; i++)
		raw_send_only(&raw,
			      &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY, .psn = P + i });
	raw_expect_none(&raw);
	cr_assert_eq(raw.end.buffers, 9);
	transport_flush(raw.end.worker[0], raw.qp->index, raw.now);
	cr_assert_eq(raw.end.buffers, 0, "a dead one keeps nothing");
	memory_quiescent(raw.end.memory, 1);
	poll_home();
	expect_cqe(raw.qp, 100, NT_CANCELLED);
	cr_assert_eq(stock_count(), 1);
}

/* Class J: no NAK, no ACK, the receive in error, the queue pair dead. */
static void expect_class_j(uint32_t token)
{
	post_sinks(2);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P);
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
						  .psn = P + 1,
						  .ack_request = true });
	send_invalidate(P + 2, token);
	raw_expect_ack(&raw, P + 1, 2);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 100, NT_INVALID_DEVICE_REQUEST);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	cr_assert_eq(end_find_event(&raw.end, TRANSPORT_QP_ERROR)->value,
		     VERDICT(REMOTE_INVALIDATE));
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 1);
}

Test(windows, b57_class_j_unbound_token)
{
	expect_class_j(end_token(&raw.end));
}

Test(windows, b57_class_j_token_of_a_region)
{
	expect_class_j(raw.end.remote_token);
}

Test(windows, b57_class_j_random_token)
{
	expect_class_j(0xdeadbeef);
}

Test(windows, b57_class_j_window_tied_to_another_queue_pair)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE | SHM_FLAG_TIE_TO_QP);
	struct rig_qp *first = raw.qp, *second = second_qp();

	raw.qp = second;
	expect_class_j(token);
	raw.qp = first;
	read_packet(P, token, V, 8);
	expect_read(P, 0, 8);
}

Test(windows, send_with_invalidate_waits_for_a_read_before_it)
{
	const uint32_t token = bind_window(0, 8192, READ_WRITE);
	struct wire_view view;

	post_sinks(1);
	raw.end.room = 3;
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
						  .psn = P,
						  .address = V,
						  .token = token,
						  .length = 8192 });
	send_invalidate(P + 8, token);
	settle();
	expect_no_cqe(raw.qp);
	raw.end.room = 100;
	settle();
	for (uint32_t i = 0; i < 8; i++) {
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.psn, P + i);
		cr_assert(view.op->flags & OPF_READ);
		cr_assert_arr_eq(view.payload, raw.end.bytes + 1024 * i, 1024);
	}
	raw_expect_ack(&raw, P + 8, 2);
	expect_cqe(raw.qp, 100, 0);
}

/* RESP-DO-4: of a SEND of several packets it is the last one that waits. */
Test(windows, the_last_packet_of_a_send_with_invalidate_waits_for_a_read)
{
	const uint32_t token = bind_window(0, 8192, READ_WRITE);
	const struct shm_sge sge = sge_at(&raw.end, 65536, 2048);
	struct wire_view view;

	post_receive(&raw.end, raw.qp, 100, &sge, 1);
	raw.end.room = 1;
	read_packet(P, token, V, 3072);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_FIRST, .psn = P + 3, .payload = payload,
		 .payload_length = 1024);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_LAST_INV, .psn = P + 4, .token = token,
		 .payload = payload, .payload_length = 5, .ack_request = true);
	expect_no_cqe(raw.qp);
	raw.end.room = 100;
	settle();
	for (uint32_t i = 0; i < 3; i++) {
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.psn, P + i);
		cr_assert(view.op->flags & OPF_READ);
	}
	raw_expect_ack(&raw, P + 4, 2);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 1029);
}

/* ACK-2 */
Test(windows, send_with_invalidate_that_asks_for_no_ack)
{
	const uint32_t token = bind_window(0, 64, READ_WRITE);

	post_sinks(1);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY_INV, .psn = P, .token = token);
	raw_expect_none(&raw);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).solicited, 0);
}

/* --- READ and a dying token ----------------------------------------------------------- */

Test(windows, b29_token_dies_while_its_read_is_answered)
{
	const uint32_t token = bind_window(0, 8192, READ_WRITE);
	struct wire_view view;

	raw.end.room = 3;
	read_packet(P, token, V, 8192);
	for (uint32_t i = 0; i < 3; i++)
		cr_assert(raw_receive(&raw, &view));
	invalidate(token, 7);
	settle();
	expect_cqe(raw.qp, 7, 0);
	raw.end.room = 100;
	settle();
	raw_expect_nak(&raw, P + 3, 0x62);
	raw_expect_none(&raw);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	cr_assert_eq(end_find_event(&raw.end, TRANSPORT_QP_ERROR)->async,
		     SHM_ASYNC_QP_ACCESS_ERROR);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 1);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

Test(windows, w09d_duplicate_read_through_a_dead_token)
{
	const uint32_t token = bind_window(0, 1024, READ_WRITE);

	read_packet(P, token, V, 1024);
	expect_read(P, 0, 1024);
	invalidate(token, 7);
	settle();
	read_packet(P, token, V, 1024);
	/* It may be the network's and its peer long gone on: told, but the connection lives. */
	raw_expect_nak(&raw, P, 0x62);
	raw_expect_none(&raw);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 0);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0, "no offence");
	cr_assert_eq(end_verdicts(&raw.end, VERDICT_ACCESS + ACCESS_UNKNOWN) +
			     end_verdicts(&raw.end, VERDICT_ACCESS + ACCESS_DEAD),
		     1);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P + 1, .ack_request = true);
	raw_expect_ack(&raw, P + 1, 2);
}

/* RESP-READ-4: and if it dies while the READ is sent again, the NAK has the PSN that is due. */
Test(windows, token_dies_while_its_read_is_sent_again)
{
	const uint32_t token = bind_window(0, 4096, READ_WRITE);
	struct wire_view view;

	read_packet(P, token, V, 4096);
	end_drain(&raw.end);
	raw.end.room = 2;
	read_packet(P, token, V, 4096);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert(raw_receive(&raw, &view));
		cr_assert_eq(view.psn, P + i);
	}
	invalidate(token, 7);
	settle();
	raw.end.room = 100;
	settle();
	raw_expect_nak(&raw, P + 2, 0x62);
	raw_expect_none(&raw);
	expect_cqe(raw.qp, 7, 0);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_RTS);
}

Test(windows, token_dies_in_the_middle_of_a_write)
{
	const uint32_t token = bind_window(0, 4096, READ_WRITE);

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_FIRST, .psn = P, .address = V, .token = token,
		 .length = 3072, .payload = payload, .payload_length = 1024);
	invalidate(token, 7);
	settle();
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_MIDDLE, .psn = P + 1, .payload = payload,
		 .payload_length = 1024);
	raw_expect_nak(&raw, P + 1, 0x62);
	cr_assert_eq(raw.end.bytes[1024], 1024 % 251);
}

Test(windows, poisoned_memory_is_not_acknowledged)
{
	struct segment *segment = arena_record(&raw.end.arena, ARENA_SEGMENTS, raw.end.segment);

	segment->poisoned = 1;
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .address = V,
		 .token = raw.end.remote_token, .length = 8, .payload = payload,
		 .payload_length = 8, .ack_request = true);
	raw_expect_nak(&raw, P, 0x62);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0, "not the peer's fault");
}

/* --- B31 ------------------------------------------------------------------------------ */

static bool lose_first_ack_and_send(struct rig *rig, bool from_a, uint32_t n,
				    const struct wire_view *view)
{
	static bool ack_lost, send_lost;

	if (!from_a && !ack_lost) {
		ack_lost = true;
		return true;
	}
	if (from_a && !send_lost && view->opcode == OP_RC_SEND_ONLY) {
		send_lost = true;
		return true;
	}
	return false;
}

Test(b31, local_operations_are_not_done_again)
{
	static struct rig rig;
	struct rig_qp *qa, *qb;
	uint32_t token, other;

	rig_create(&rig);
	rig_connect(&rig, &qa, &qb);
	rig.lose = lose_first_ack_and_send;
	token = end_token(&rig.a);
	other = end_token(&rig.a);
	{
		const struct shm_sge sge = sge_at(&rig.a, 0, 8), sink = sge_at(&rig.b, 0, 64);
		struct shm_sqe write = { .opcode = SHM_WR_WRITE,
					 .address = RIG_BASE,
					 .token = rig.b.remote_token };
		struct shm_sqe bind = { .opcode = SHM_WR_BIND,
					.mr = rig.a.region,
					.mw = rig.a.window[0],
					.token = token,
					.address = RIG_BASE,
					.length = 64,
					.flags = READ_WRITE };

		post_receive(&rig.b, qb, 9, &sink, 1);
		for (uint64_t i = 0; i < 6; i++) {
			static const uint8_t order[6] = { SHM_WR_WRITE, SHM_WR_BIND,
							  SHM_WR_SEND,  SHM_WR_WRITE,
							  SHM_WR_BIND,  SHM_WR_INVALIDATE };
			struct shm_sqe sqe = order[i] == SHM_WR_BIND ? bind : write;

			sqe.opcode = order[i];
			sqe.request_context = i;
			if (i == 4) {
				sqe.mw = rig.a.window[1];
				sqe.token = other;
			}
			if (i == 5)
				sqe.token = token;
			post_send(&rig.a, qa, sqe, &sge,
				  order[i] == SHM_WR_BIND || order[i] == SHM_WR_INVALIDATE ? 0 : 1);
		}
	}
	rig_run(&rig, rig.now + 3000000000ull);
	cr_assert_geq(rig.lost, 2);
	for (uint64_t i = 0; i < 6; i++)
		expect_cqe(qa, i, 0);
	expect_no_cqe(qa);
	expect_cqe(qb, 9, 0);
	cr_assert_eq(transport_get_stats(rig.a.worker[0])->binds, 2);
	cr_assert_eq(transport_get_stats(rig.a.worker[0])->invalidates, 1);
	cr_assert_gt(transport_get_stats(rig.a.worker[0])->retransmits, 0);
	rig_destroy(&rig);
}
