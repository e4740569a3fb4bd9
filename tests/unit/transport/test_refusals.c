/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder's rules one by one: what is refused, what is silent, what an answer looks like. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

static struct raw raw;
static uint8_t payload[4096];

static void setup(void)
{
	fill(payload, sizeof(payload), 1);
	raw_create(&raw, rig_connection());
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(refusals, .init = setup, .fini = teardown);

static void reopen(void)
{
	raw_destroy(&raw);
	setup();
}

static void post_receives(uint32_t count, uint32_t length)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, 65536 + i * 8192, length);

		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

/* A packet of `bytes`, with a RETH that names `length`, that asks for nothing. */
static void packet(uint8_t opcode, uint32_t psn, uint32_t length, uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .address = V, .token = K, .length = length,
		 .payload = payload, .payload_length = bytes);
}

static void expect_error(uint32_t verdict)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	cr_assert_not_null(event);
	cr_assert_eq(event->value, verdict, "verdict %u (%s)", event->value,
		     verdict_name(event->value));
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

/* --- sequence ------------------------------------------------------------------------- */

static bool is_rc_request(uint32_t opcode)
{
	const struct opcode_info *op = opcode_lookup((uint8_t)opcode);

	return op && op->service == SERVICE_RC && (op->flags & OPF_REQUEST) &&
	       (op->flags & OPF_OPERATION);
}

/* Begins a message of this kind, if any; the PSN that is expected then. */
static uint32_t begin(uint8_t first)
{
	if (first == 0)
		return P;
	packet(first == 's' ? OP_RC_SEND_FIRST : OP_RC_WRITE_FIRST, P, 2048, 1024);
	return P + 1;
}

/* RESP-SEQ-1 to 4: each opcode, with nothing, a SEND and a WRITE in progress. */
Test(refusals, every_opcode_out_of_sequence)
{
	static const uint8_t progress[] = { 0, 's', 'w' };

	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t opcode = 0; opcode < 32; opcode++) {
			const struct opcode_info *op = &opcode_table[opcode];
			const uint16_t continues = progress[i] == 's' ? OPF_SEND : OPF_WRITE;
			bool good;
			uint32_t psn;

			if (!is_rc_request(opcode))
				continue;
			reopen();
			post_receives(2, 4096);
			psn = begin(progress[i]);
			good = progress[i] ? !(op->flags & OPF_FIRST) && (op->flags & continues)
					   : (op->flags & OPF_FIRST);
			packet((uint8_t)opcode, psn, 1024, op->flags & OPF_PAYLOAD ? 1024 : 0);
			if (good) {
				cr_assert_eq(end_verdicts(&raw.end, VERDICT(OPCODE_SEQUENCE)), 0,
					     "%s refused", op->name);
				continue;
			}
			raw_expect_nak(&raw, psn, 0x61);
			raw_expect_none(&raw);
			expect_error(VERDICT(OPCODE_SEQUENCE));
		}
	}
}

/* FRAME-19, B11: rdma_rxe would ask again for ever if it were dropped. */
Test(refusals, flush_and_atomic_write_are_not_offered)
{
	static const struct {
		uint8_t opcode;
		uint32_t bytes;
	} cases[] = { { OP_RC_FLUSH, 0 },
		      { OP_RC_ATOMIC_WRITE, 8 },
		      { OP_RC_ATOMIC_WRITE, 0 },
		      { OP_RC_ATOMIC_WRITE, 12 } };

	for (uint32_t i = 0; i < 4; i++) {
		reopen();
		memset(raw.end.bytes, 0x55, 16);
		packet(OP_RC_WRITE_ONLY, P, 0, 0);
		/* As any other request: behind is a duplicate, ahead is a gap. */
		packet(cases[i].opcode, P, 8, cases[i].bytes);
		raw_expect_none(&raw);
		cr_assert_eq(end_verdicts(&raw.end, VERDICT(DUPLICATE_UNKNOWN)), 1);
		packet(cases[i].opcode, P + 2, 8, cases[i].bytes);
		raw_expect_nak(&raw, P + 1, 0x60);
		packet(cases[i].opcode, P + 1, 8, cases[i].bytes);
		raw_expect_nak(&raw, P + 1, 0x61);
		expect_error(VERDICT(OPERATION));
		cr_assert_eq(raw.end.bytes[0], 0x55);
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
	}
}

/* --- lengths -------------------------------------------------------------------------- */

/* RESP-LEN-1 */
Test(refusals, b19_shapes_of_a_send)
{
	static const struct {
		uint8_t before, opcode;
		uint32_t bytes;
	} cases[] = {
		{ 0, OP_RC_SEND_FIRST, 1020 },    { 0, OP_RC_SEND_FIRST, 1028 },
		{ 0, OP_RC_SEND_FIRST, 0 },       { 0, OP_RC_SEND_ONLY, 1028 },
		{ 0, OP_RC_SEND_ONLY_IMM, 1028 }, { 0, OP_RC_SEND_ONLY_INV, 1028 },
		{ 's', OP_RC_SEND_MIDDLE, 1023 }, { 's', OP_RC_SEND_MIDDLE, 1028 },
		{ 's', OP_RC_SEND_MIDDLE, 0 },    { 's', OP_RC_SEND_LAST, 0 },
		{ 's', OP_RC_SEND_LAST, 1025 },   { 's', OP_RC_SEND_LAST_IMM, 0 },
		{ 's', OP_RC_SEND_LAST_INV, 0 },  { 's', OP_RC_SEND_LAST_INV, 1025 },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t psn;

		reopen();
		post_receives(2, 8192);
		psn = begin(cases[i].before);
		packet(cases[i].opcode, psn, 0, cases[i].bytes);
		raw_expect_nak(&raw, psn, 0x61);
		expect_error(VERDICT(LENGTH));
		cr_assert_eq(expect_cqe(raw.qp, 100, NT_DATA_ERROR).provider_error,
			     VERDICT(LENGTH));
		expect_cqe(raw.qp, 101, NT_CANCELLED);
	}
}

/* RESP-LEN-3 */
Test(refusals, w05_write_longer_than_any_message)
{
	static const uint32_t lengths[] = { 0x80000001, 0xc0000000, 0xffffffff };

	for (uint32_t i = 0; i < 3; i++) {
		reopen();
		packet(OP_RC_WRITE_FIRST, P, lengths[i], 1024);
		raw_expect_nak(&raw, P, 0x61);
		expect_error(VERDICT(LENGTH));
		cr_assert_eq(raw.end.bytes[0], 0);
	}
}

/* RESP-LEN-4 */
Test(refusals, b106_send_of_many_packets_longer_than_the_receive)
{
	post_receives(2, 2000);
	packet(OP_RC_SEND_FIRST, P, 0, 1024);
	raw_expect_none(&raw);
	packet(OP_RC_SEND_MIDDLE, P + 1, 0, 1024);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_cqe(raw.qp, 100, NT_DATA_OVERRUN);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_error(VERDICT(RECEIVE_TOO_SMALL));
	cr_assert_arr_eq(raw.end.bytes + 65536, payload, 1024);
	cr_assert_eq(raw.end.bytes[65536 + 1024], 0);
}

/* RESP-LEN-5: whoever gets lengths wrong is no guesser of tokens. */
Test(refusals, length_comes_before_the_token)
{
	static const struct {
		uint8_t opcode;
		uint32_t length, bytes;
	} cases[] = { { OP_RC_WRITE_ONLY, 8, 9 },        { OP_RC_WRITE_ONLY, 9, 8 },
		      { OP_RC_WRITE_ONLY, 0, 4 },        { OP_RC_WRITE_FIRST, 2048, 1020 },
		      { OP_RC_WRITE_FIRST, 1023, 1024 }, { OP_RC_READ_REQUEST, 0x80000001, 0 } };

	for (uint32_t i = 0; i < 6; i++) {
		reopen();
		RAW_SEND(&raw, .opcode = cases[i].opcode, .psn = P, .address = 1, .token = K ^ 8,
			 .length = cases[i].length, .payload_length = cases[i].bytes);
		raw_expect_nak(&raw, P, 0x61);
		expect_error(VERDICT(LENGTH));
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
	}
}

/* RESP-TOKEN-1 */
Test(refusals, b37_zero_length_of_every_kind)
{
	static const uint64_t addresses[] = { 0, 1, UINT64_MAX, 0xfffffffffffffc00 };
	uint32_t psn = P;
	struct wire_view view;

	post_receives(8, 64);
	for (uint32_t i = 0; i < 4; i++) {
		for (int again = 0; again < 2; again++) {
			RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY_IMM, .psn = psn,
				 .address = addresses[i], .token = i, .ack_request = true);
			raw_expect_ack(&raw, psn, 3 * i + 1);
		}
		cr_assert_eq(expect_cqe(raw.qp, 100 + 2 * i, 0).bytes, 0);
		for (int again = 0; again < 2; again++) {
			RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = psn + 1,
				 .address = addresses[i], .token = ~i);
			cr_assert(raw_receive(&raw, &view));
			cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
			cr_assert_eq(view.psn, psn + 1);
			cr_assert_eq(view.payload_length, 0);
		}
		for (int again = 0; again < 2; again++) {
			RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY, .psn = psn + 2,
				 .ack_request = true);
			raw_expect_ack(&raw, psn + 2, 3 * i + 3);
		}
		cr_assert_eq(expect_cqe(raw.qp, 101 + 2 * i, 0).bytes, 0);
		psn += 3;
	}
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
	expect_no_cqe(raw.qp);
}

/* RESP-TOKEN-2, B42: for every kind of access. */
Test(refusals, b42_beyond_the_end_by_every_operation)
{
	static const struct {
		uint8_t opcode;
		uint64_t address;
		uint32_t length, bytes;
	} cases[] = {
		{ OP_RC_WRITE_ONLY, V + RIG_MEMORY, 1, 1 },
		{ OP_RC_WRITE_ONLY_IMM, V + RIG_MEMORY - 7, 8, 8 },
		{ OP_RC_WRITE_FIRST, V + RIG_MEMORY - 2047, 2048, 1024 },
		{ OP_RC_WRITE_FIRST, V - 1024, 4096, 1024 },
		{ OP_RC_WRITE_FIRST, UINT64_MAX - 1023, 2048, 1024 },
		{ OP_RC_READ_REQUEST, V, RIG_MEMORY + 1, 0 },
		{ OP_RC_READ_REQUEST, V + 1, 0x80000000, 0 },
		{ OP_RC_READ_REQUEST, UINT64_MAX, 1, 0 },
		{ OP_RC_READ_REQUEST, UINT64_MAX, 2, 0 },
		{ OP_RC_FETCH_ADD, V + RIG_MEMORY, 0, 0 },
		{ OP_RC_COMPARE_SWAP, V - 8, 0, 0 },
		{ OP_RC_FETCH_ADD, 0xfffffffffffffff8, 0, 0 },
		{ OP_RC_COMPARE_SWAP, 0, 0, 0 },
	};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		reopen();
		post_receives(1, 64);
		RAW_SEND(&raw, .opcode = cases[i].opcode, .psn = P, .address = cases[i].address,
			 .token = K, .length = cases[i].length, .payload = payload,
			 .payload_length = cases[i].bytes, .swap = 1);
		raw_expect_nak(&raw, P, 0x62);
		raw_expect_none(&raw);
		expect_error(VERDICT_ACCESS + ACCESS_RANGE);
		cr_assert_eq(raw.end.bytes[0], 0);
		cr_assert_eq(raw.end.bytes[RIG_MEMORY - 1], 0);
	}
}

/* RESP-CLASS-2: WRITE with immediate has taken its receive when its length turns out wrong. */
Test(refusals, class_c_fails_the_receive_of_a_write_with_immediate)
{
	post_receives(2, 64);
	packet(OP_RC_WRITE_FIRST, P, 2000, 1024);
	packet(OP_RC_WRITE_LAST_IMM, P + 1, 0, 900);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_cqe(raw.qp, 100, NT_DATA_ERROR);
	expect_cqe(raw.qp, 101, NT_CANCELLED);
	expect_error(VERDICT(LENGTH));
}

/* --- silence -------------------------------------------------------------------------- */

/* ADMIT-6 */
Test(refusals, not_connected_is_silent)
{
	struct rig_qp *connected = raw.qp;

	raw.qp = end_open_qp(&raw.end, 0, 4);
	post_receives(1, 64);
	packet(OP_RC_SEND_ONLY, 0, 0, 8);
	packet(OP_RC_WRITE_ONLY, 0, 0, 0);
	packet(OP_RC_ACKNOWLEDGE, 0, 0, 0);
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_STATE)), 3);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ESTABLISHED), 0);
	raw.qp = connected;
}

/* --- answers -------------------------------------------------------------------------- */

/* RESP-PSN-4 */
Test(refusals, duplicates_are_answered_while_receives_are_missing)
{
	struct wire_view view;

	packet(OP_RC_WRITE_ONLY, P, 8, 8);
	packet(OP_RC_READ_REQUEST, P + 1, 8, 0);
	cr_assert(raw_receive(&raw, &view));
	packet(OP_RC_SEND_ONLY, P + 2, 0, 8);
	raw_expect_nak(&raw, P + 2, 0x2c);
	packet(OP_RC_WRITE_ONLY, P, 8, 8);
	raw_expect_ack(&raw, P, 2);
	packet(OP_RC_READ_REQUEST, P + 1, 8, 0);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
	cr_assert_eq(view.psn, P + 1);
	raw_expect_none(&raw);
}

/* RESP-DUP-1 */
Test(refusals, duplicate_without_ackreq_is_acknowledged)
{
	post_receives(1, 64);
	packet(OP_RC_SEND_ONLY, P, 0, 8);
	packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_none(&raw);
	packet(OP_RC_SEND_ONLY, P, 0, 8);
	raw_expect_ack(&raw, P + 1, 2);
	packet(OP_RC_WRITE_ONLY, P + 1, 8, 8);
	raw_expect_ack(&raw, P + 1, 2);
	expect_cqe(raw.qp, 100, 0);
	expect_no_cqe(raw.qp);
}

/* ACK-8 */
Test(refusals, form_of_an_ack)
{
	struct wire_view view;
	const struct bth *bth;

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true);
	cr_assert(raw_receive(&raw, &view));
	bth = (const struct bth *)view.bth;
	cr_assert_eq(view.opcode, OP_RC_ACKNOWLEDGE);
	cr_assert_eq(view_aeth(&view)->syndrome, 0x1f, "credits without limit");
	cr_assert_eq(view.pkey, 0xffff);
	cr_assert_not(view.ack_request);
	cr_assert_not(view.solicited);
	cr_assert_eq(bth->resv8a, 0);
	cr_assert_eq(bth->ack_req & 0x7f, 0);
	cr_assert_eq(view.icrc - view.bth, 16, "BTH and AETH, nothing else");
	cr_assert_eq(view.pad, 0);
}

/* RESP-PSN-5: sixteen million messages later. */
Test(refusals, msn_wraps)
{
	struct qp *record = arena_record(&raw.end.arena, ARENA_QPS, raw.qp->index);

	record->responder = responder_word(P, 0xfffffe, 0, MESSAGE_NONE);
	for (uint32_t i = 0; i < 4; i++) {
		RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P + i, .ack_request = true);
		raw_expect_ack(&raw, P + i, (0xffffff + i) & PSN_MASK);
	}
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P + 4);
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true);
}

/* --- several queue pairs -------------------------------------------------------------- */

/* Another queue pair of the end, for the same raw peer. */
static struct rig_qp *another_qp(void)
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

/* B52: the window stays bound, and its token is good for no queue pair that comes after. */
Test(refusals, b52_tied_window_of_a_destroyed_queue_pair)
{
	struct rig_qp *owner = another_qp(), *first = raw.qp;
	const uint32_t token = end_token(&raw.end), index = owner->index;
	struct wire_view view;

	post_send(&raw.end, owner,
		  (struct shm_sqe){ .opcode = SHM_WR_BIND,
				    .flags = SHM_FLAG_ALLOW_REMOTE_READ | SHM_FLAG_TIE_TO_QP,
				    .mr = raw.end.region,
				    .mw = raw.end.window[0],
				    .token = token,
				    .address = V,
				    .length = 64 },
		  NULL, 0);
	while (end_poll(&raw.end, raw.now))
		;
	raw.qp = owner;
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V, .token = token,
		 .length = 8);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_READ_RESPONSE_ONLY);
	end_close_qp(&raw.end, owner, raw.now);
	raw.qp = another_qp();
	cr_assert_eq(raw.qp->index, index, "the same record");
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = P, .address = V, .token = token,
		 .length = 8);
	raw_expect_nak(&raw, P, 0x62);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT_ACCESS + ACCESS_QUEUE_PAIR), 1);
	raw.qp = first;
}

/* B125: a turn is some frames of each, however long the READ of one may be. */
Test(refusals, b125_a_long_read_holds_nobody_up)
{
	struct rig_qp *first = raw.qp, *second = another_qp();
	uint32_t frames = 0, at = 0;
	struct wire_view view;

	for (uint32_t i = 0; i < 4; i++)
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
							  .psn = P + i * 4096,
							  .address = V,
							  .token = K,
							  .length = RIG_MEMORY });
	raw.qp = second;
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
						  .psn = P,
						  .address = V,
						  .token = K,
						  .length = 8 });
	end_poll(&raw.end, raw.now);
	while (raw_receive(&raw, &view)) {
		frames++;
		if (view.opcode == OP_RC_READ_RESPONSE_ONLY)
			at = frames;
	}
	cr_assert_neq(at, 0, "the short READ is answered in the same turn");
	cr_assert_leq(frames, 64, "%u frames in one turn", frames);
	raw.qp = first;
	end_close_qp(&raw.end, second, raw.now);
}

/* B127: the responses of one READ follow those of the one before, in the same turn. */
Test(refusals, b127_responses_of_the_next_read_follow_at_once)
{
	uint32_t frames = 0;
	struct wire_view view;

	for (uint32_t i = 0; i < 4; i++)
		raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_READ_REQUEST,
							  .psn = P + 2 * i,
							  .address = V,
							  .token = K,
							  .length = 2048 });
	end_poll(&raw.end, raw.now);
	while (raw_receive(&raw, &view))
		cr_assert_eq(view.psn, P + frames++);
	cr_assert_eq(frames, 8);
}

/* B124: a turn serves every queue pair that has something; none waits for a turn of its own. */
Test(refusals, b124_many_queue_pairs_are_served_in_one_turn)
{
	struct rig_qp *first = raw.qp;
	struct wire_view view;
	uint32_t frames = 0;

	for (uint32_t i = 1; i < RIG_QPS; i++) {
		raw.qp = another_qp();
		for (uint32_t k = 0; k < 4; k++)
			raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_WRITE_ONLY,
								  .psn = P + k,
								  .ack_request = true });
	}
	end_poll(&raw.end, raw.now);
	while (raw_receive(&raw, &view)) {
		cr_assert_eq(view.psn, P + 3, "one ACK for the four of each");
		frames++;
	}
	cr_assert_eq(frames, RIG_QPS - 1);
	raw.qp = first;
}
