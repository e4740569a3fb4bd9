/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion control at work: marks, CNPs, what is paced and what is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define LINE 1250000000ull /* 10 Gb/s */
#define US   1000ull
#define MS   1000000ull

static struct raw raw;
static struct congestion_parameters parameters;

static void apply(void)
{
	transport_set_congestion(raw.end.shared, &parameters);
	end_poll(&raw.end, raw.now);
}

static void setup(void)
{
	struct qp_connection connection = rig_connection();

	connection.path.traffic_class = 26 << 2 | 1;
	raw_create(&raw, connection);
	congestion_defaults(&parameters, LINE);
	apply();
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(pace, .init = setup, .fini = teardown);

static const struct transport_stats *stats(void)
{
	return transport_get_stats(raw.end.worker[0]);
}

/* ECN bits of all frames that the raw peer sends from now on. */
static void mark(uint8_t ecn)
{
	uint8_t *tos = &raw.template.prefix[raw.template.l3_offset + 1];

	*tos = (uint8_t)((*tos & ~IP_ECN) | ecn);
}

static void send_cnp(void)
{
	RAW_SEND(&raw, .opcode = OP_CNP, .payload_length = 16);
}

static void send_write(uint32_t psn)
{
	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = psn, .ack_request = true,
		 .address = RIG_BASE, .token = raw.end.remote_token, .length = 8,
		 .payload_length = 8);
}

static void send_read(uint32_t psn, uint32_t length)
{
	RAW_SEND(&raw, .opcode = OP_RC_READ_REQUEST, .psn = psn, .address = RIG_BASE,
		 .token = raw.end.remote_token, .length = length);
}

static uint64_t rate(void)
{
	struct qp_status status;

	cr_assert(qp_get_status(raw.end.shared, raw.qp->index, &status));
	return status.rate;
}

/* Bytes of frames that leave until `until`, looked at every microsecond. */
static uint64_t bytes_until(uint64_t until)
{
	struct wire_view view;
	uint64_t bytes = 0;

	for (; raw.now < until; raw.now += US) {
		for (int i = 0; i < 1000 && end_poll(&raw.end, raw.now); i++)
			;
		while (raw_receive(&raw, &view))
			bytes += raw.last->length;
	}
	return bytes;
}

/* No recovery, so that a rate can be measured. */
static void stand_still(void)
{
	parameters.increase_period = 1ull << 40;
	parameters.increase_bytes = 1ull << 40;
	apply();
}

/* --- marks ---------------------------------------------------------------------------- */

Test(pace, a_mark_is_answered_by_a_cnp_as_rnics_send_it)
{
	struct wire_view view;

	mark(IP_ECN_CE);
	send_write(RAW_PSN);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_CNP);
	cr_assert(view.becn);
	cr_assert_not(view.fecn);
	cr_assert_not(view.ack_request);
	cr_assert_not(view.solicited);
	cr_assert_eq(view.psn, 0);
	cr_assert_eq(view.traffic_class, 0xc2, "DSCP 48, ECT(0), not %#x", view.traffic_class);
	cr_assert_eq(view.payload_length, 16);
	for (int i = 0; i < 16; i++)
		cr_assert_eq(view.payload[i], 0);
	cr_assert_eq(raw.last->length, 14u + 60);
	raw_expect_ack(&raw, RAW_PSN, 1);
	raw_expect_none(&raw);
	cr_assert_eq(stats()->rx_marked, 1);
	cr_assert_eq(stats()->tx_cnp, 1);
}

/* CC-1: what a gateway has made of the mark of another network. */
Test(pace, fecn_is_a_mark)
{
	struct wire_view view;

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = RAW_PSN, .fecn = true);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_CNP);
	cr_assert(view.becn);
	cr_assert_not(view.fecn);
	raw_expect_none(&raw);
	cr_assert_eq(stats()->rx_marked, 1);
}

Test(pace, only_ce_is_a_mark)
{
	for (uint8_t ecn = 0; ecn < IP_ECN_CE; ecn++) {
		mark(ecn);
		send_write(RAW_PSN + ecn);
		raw_expect_ack(&raw, RAW_PSN + ecn, ecn + 1u);
	}
	raw_expect_none(&raw);
	cr_assert_eq(stats()->rx_marked, 0);
}

static void connect_to_raw(const struct rig_qp *one)
{
	struct qp_connection connection = rig_connection();

	connection.remote_qpn = RAW_QPN;
	connection.receive_psn = RAW_PSN;
	memcpy(connection.path.local_gid, raw.end.gid, 16);
	gid_from_v4(connection.path.remote_gid, (uint8_t[4]){ 10, 0, 0, 99 });
	cr_assert_eq(transport_connect(raw.end.worker[0], one->index, &connection, raw.now), 0);
}

Test(pace, one_cnp_per_queue_pair_and_interval)
{
	struct rig_qp *first = raw.qp;
	struct rig_qp *second = end_open_qp(&raw.end, 0, 64);
	uint32_t psn = RAW_PSN;

	connect_to_raw(second);
	mark(IP_ECN_CE);
	for (uint64_t t = 0; t < 10 * parameters.cnp_interval; t += 5 * US, psn++) {
		raw.qp = first;
		send_write(psn);
		raw.qp = second;
		send_write(psn);
		raw.now += 5 * US;
	}
	cr_assert_eq(stats()->rx_marked, 200);
	cr_assert_eq(stats()->tx_cnp, 20);
	end_drain(&raw.end);
}

Test(pace, without_a_buffer_the_cnp_waits)
{
	struct wire_view view;

	mark(IP_ECN_CE);
	raw.end.room = 0;
	send_write(RAW_PSN);
	raw_expect_none(&raw);
	raw.end.room = 10;
	end_poll(&raw.end, raw.now += US);
	end_poll(&raw.end, raw.now += US);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_CNP);
	raw_expect_ack(&raw, RAW_PSN, 1);
	raw_expect_none(&raw);
}

/* One in an interval is meant on the wire, whenever the mark came. */
Test(pace, the_interval_begins_when_the_cnp_leaves)
{
	uint32_t psn = RAW_PSN;

	mark(IP_ECN_CE);
	raw.end.room = 0;
	send_write(psn++);
	raw.now += parameters.cnp_interval - US;
	raw.end.room = 1000;
	for (uint64_t t = 0; t < parameters.cnp_interval; t += US, raw.now += US) {
		end_poll(&raw.end, raw.now);
		send_write(psn++);
		cr_assert_eq(stats()->tx_cnp, 1, "%u ns after the first", (unsigned int)t);
	}
	send_write(psn);
	cr_assert_eq(stats()->tx_cnp, 2);
	end_drain(&raw.end);
}

Test(pace, a_cnp_is_never_answered)
{
	mark(IP_ECN_CE);
	send_cnp();
	raw_expect_none(&raw);
	cr_assert_eq(stats()->rx_marked, 0);
	cr_assert_eq(stats()->rx_cnp, 1);
}

Test(pace, marks_are_counted_but_not_answered_when_switched_off)
{
	parameters.enabled = false;
	apply();
	mark(IP_ECN_CE);
	send_write(RAW_PSN);
	raw_expect_ack(&raw, RAW_PSN, 1);
	raw_expect_none(&raw);
	cr_assert_eq(stats()->rx_marked, 1);
}

/* --- what leaves capable -------------------------------------------------------------- */

static void expect_class(uint8_t opcode, uint8_t traffic_class)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	cr_assert_eq(view.traffic_class, traffic_class, "class %#x of opcode %#x, not %#x",
		     view.traffic_class, opcode, traffic_class);
}

static void one_of_each(uint8_t data_ecn)
{
	static uint32_t psn = RAW_PSN, send = RAW_SEND_PSN;
	const struct shm_sge sge = sge_at(&raw.end, 0, 8);

	send_read(psn++, 8);
	expect_class(OP_RC_READ_RESPONSE_ONLY, 26 << 2 | data_ecn);
	send_write(psn++);
	expect_class(OP_RC_ACKNOWLEDGE, 26 << 2);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = psn++, .address = RIG_BASE,
		 .token = raw.end.remote_token, .swap = 1);
	expect_class(OP_RC_ATOMIC_ACKNOWLEDGE, 26 << 2);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_WRITE }, &sge, 1);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &sge, 1);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_READ }, &sge, 1);
	end_poll(&raw.end, raw.now);
	expect_class(OP_RC_WRITE_ONLY, 26 << 2 | data_ecn);
	expect_class(OP_RC_SEND_ONLY, 26 << 2 | data_ecn);
	expect_class(OP_RC_READ_REQUEST, 26 << 2);
	RAW_SEND(&raw, .opcode = OP_RC_READ_RESPONSE_ONLY, .psn = send + 2, .payload_length = 8);
	send += 3;
	raw_expect_none(&raw);
}

/* ECN bits of the path's traffic class, which a REQ may carry, are not ours to send. */
Test(pace, data_leaves_ecn_capable_and_nothing_else_does)
{
	one_of_each(IP_ECN_ECT0);
	parameters.enabled = false;
	apply();
	one_of_each(0);
}

/* --- the rate ------------------------------------------------------------------------- */

Test(pace, read_responses_obey_a_cnp)
{
	uint64_t bytes;

	stand_still();
	send_cnp();
	cr_assert_eq(rate(), LINE / 2);
	cr_assert_eq(stats()->rate_cuts, 1);
	send_read(RAW_PSN, 2 << 20);
	bytes = bytes_until(raw.now + MS);
	cr_assert_gt(bytes, LINE / 2 / 1000 - 30000, "%llu bytes in a millisecond",
		     (unsigned long long)bytes);
	cr_assert_lt(bytes, LINE / 2 / 1000 + 30000, "%llu bytes in a millisecond",
		     (unsigned long long)bytes);
	cr_assert_gt(stats()->paced, 0);
	raw.now += parameters.reduce_period;
	send_cnp();
	send_cnp();
	cr_assert_eq(stats()->rate_cuts, 2, "one cut in a reduce period");
	bytes = bytes_until(raw.now + MS);
	cr_assert_lt(bytes, LINE / 4 / 1000 + 30000, "%llu bytes in a millisecond",
		     (unsigned long long)bytes);
}

static void setup_unreliable(void)
{
	struct qp_connection connection = rig_connection();

	raw_create_type(&raw, SHM_QP_UC, connection);
	congestion_defaults(&parameters, LINE);
	apply();
}

TestSuite(pace_uc, .init = setup_unreliable, .fini = teardown);

Test(pace_uc, what_is_never_acknowledged_obeys_a_cnp_too)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 1 << 20);
	uint64_t bytes;

	stand_still();
	send_cnp();
	cr_assert_eq(rate(), LINE / 2);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_WRITE, .token = 1 }, &sge,
		  1);
	bytes = bytes_until(raw.now + MS);
	cr_assert_gt(bytes, LINE / 2 / 1000 - 30000, "%llu bytes in a millisecond",
		     (unsigned long long)bytes);
	cr_assert_lt(bytes, LINE / 2 / 1000 + 30000, "%llu bytes in a millisecond",
		     (unsigned long long)bytes);
}

/* Nobody can be told: the sender of a datagram is no connection whose rate there is. */
Test(pace_ud, a_marked_datagram_draws_no_cnp)
{
	struct qp_connection connection = { .path_mtu = 1024, .qkey = 5 };

	raw_create_type(&raw, SHM_QP_UD, connection);
	congestion_defaults(&parameters, LINE);
	apply();
	mark(IP_ECN_CE);
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY, .qkey = 5, .source_qpn = 0xabcdef,
		 .payload = "mark", .payload_length = 4);
	end_poll(&raw.end, raw.now);
	raw_expect_none(&raw);
	send_cnp();
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_TYPE)), 1);
	raw_destroy(&raw);
}

Test(pace, without_a_cnp_nothing_is_held_back)
{
	send_read(RAW_PSN, 2 << 20);
	cr_assert_eq(stats()->paced, 0);
	cr_assert_eq(stats()->tx_packets, 2048, "all of it left at once");
	end_drain(&raw.end);
}

Test(pace, the_rate_recovers_to_the_line)
{
	struct congestion_parameters fast = parameters;

	send_cnp();
	send_read(RAW_PSN, 4 << 20);
	bytes_until(raw.now + 100 * US);
	cr_assert_neq(rate(), 0);
	fast.additive_rate = LINE / 10;
	transport_set_congestion(raw.end.shared, &fast);
	bytes_until(raw.now + 5 * MS);
	cr_assert_eq(stats()->tx_packets, 4096);
	send_read(RAW_PSN + 4096, 4 << 20);
	bytes_until(raw.now + 2 * MS);
	cr_assert_eq(rate(), 0, "%llu bytes per second", (unsigned long long)rate());
}

/* `line-rate = auto`: a port may come up, or change its speed, while frames flow. */
Test(pace, the_line_is_what_the_port_says_now)
{
	parameters.line_rate = 0;
	apply();
	transport_set_line_rate(raw.end.shared, LINE / 5);
	send_cnp();
	cr_assert_eq(rate(), LINE / 10);
	transport_set_line_rate(raw.end.shared, LINE / 20);
	send_read(RAW_PSN, 8);
	bytes_until(raw.now + 200 * US);
	send_read(RAW_PSN + 1, 8);
	bytes_until(raw.now + US);
	cr_assert_eq(rate(), 0, "the slower line is reached, not %llu", (unsigned long long)rate());
}

Test(pace, a_new_queue_pair_at_an_old_ones_place_is_not_slowed_down)
{
	const uint32_t index = raw.qp->index;

	for (int i = 0; i < 5; i++, raw.now += parameters.reduce_period)
		send_cnp();
	cr_assert_lt(rate(), LINE / 8);
	end_close_qp(&raw.end, raw.qp, raw.now);
	raw.qp = end_open_qp(&raw.end, 0, 8);
	cr_assert_eq(raw.qp->index, index);
	cr_assert_eq(rate(), 0);
	connect_to_raw(raw.qp);
	send_cnp();
	cr_assert_eq(rate(), LINE / 2);
}

Test(pace, switched_off_what_is_held_back_goes_at_once)
{
	stand_still();
	parameters.minimum_rate = 1000;
	apply();
	for (int i = 0; i < 40; i++, raw.now += parameters.reduce_period)
		send_cnp();
	send_read(RAW_PSN, 1 << 20);
	cr_assert_lt(bytes_until(raw.now + 10 * US), 10000);
	parameters.enabled = false;
	apply();
	send_write(RAW_PSN + 1024); /* the queue pair has something to do */
	cr_assert_gt(bytes_until(raw.now + 100 * US), 1 << 20);
	cr_assert_eq(rate(), 0);
	send_cnp();
	cr_assert_eq(rate(), 0, "nobody obeys");
	cr_assert_eq(stats()->rx_cnp, 41);
}

/* A queue pair that is held back is no work, and says when it will be. */
Test(pace, held_back_it_does_not_spin)
{
	uint64_t deadline;

	stand_still();
	send_cnp();
	send_read(RAW_PSN, 1 << 20);
	end_drain(&raw.end);
	cr_assert_eq(end_poll(&raw.end, raw.now), 0);
	deadline = transport_next_deadline(raw.end.worker[0], raw.now);
	cr_assert_gt(deadline, raw.now);
	cr_assert_lt(deadline, raw.now + 20 * US);
	cr_assert_gt(end_poll(&raw.end, deadline), 0);
	cr_assert_neq(raw.end.out.head, raw.end.out.tail);
	end_drain(&raw.end);
}

Test(pace, acknowledgements_are_not_held_back)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, 4096);
	struct wire_view view;

	stand_still();
	parameters.minimum_rate = 1000;
	apply();
	for (int i = 0; i < 40; i++, raw.now += parameters.reduce_period)
		send_cnp();
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_WRITE }, &sge, 1);
	end_poll(&raw.end, raw.now);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_WRITE_FIRST);
	raw_expect_none(&raw);
	send_write(RAW_PSN);
	raw_expect_ack(&raw, RAW_PSN, 1);
	send_write(RAW_PSN + 3);
	raw_expect_nak(&raw, RAW_PSN + 1, NAK_PSN_SEQUENCE);
	raw_expect_none(&raw);
}

/* --- whose CNP ------------------------------------------------------------------------ */

Test(pace, a_cnp_of_somebody_else_is_none)
{
	uint8_t *source = &raw.template.prefix[raw.template.l3_offset + 12];

	source[3] ^= 1;
	send_cnp();
	cr_assert_eq(rate(), 0);
	cr_assert_eq(stats()->rx_cnp, 0);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(NOT_PEER)), 1);
}

/* Annex A17: congestion control is of connections. */
Test(pace, a_cnp_for_datagrams_is_none)
{
	struct qp *qp = arena_record(&raw.end.arena, ARENA_QPS, raw.qp->index);

	qp->type = SHM_QP_UD;
	send_cnp();
	cr_assert_eq(rate(), 0);
	cr_assert_eq(stats()->rx_cnp, 0);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QP_TYPE)), 1);
	qp->type = SHM_QP_RC;
}

Test(pace, a_cnp_takes_no_psn_and_tells_nobody)
{
	send_cnp();
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ESTABLISHED), 0);
	send_write(RAW_PSN);
	raw_expect_ack(&raw, RAW_PSN, 1);
}

/* --- both ends, and time -------------------------------------------------------------- */

static struct rig rig;
static struct rig_qp *qa, *qb;

static void setup_pair(void)
{
	rig_create(&rig);
	rig_connect(&rig, &qa, &qb);
	congestion_defaults(&parameters, LINE);
}

static void teardown_pair(void)
{
	rig_destroy(&rig);
}

TestSuite(pace_pair, .init = setup_pair, .fini = teardown_pair);

/* A switch with a full queue: every frame with data that a sends is marked. */
static bool mark_data(struct rig *link, bool from_a, uint32_t n, const struct wire_view *view)
{
	struct ipv4_header *ip = (struct ipv4_header *)(view->frame + view->l3_offset);

	(void)n;
	(void)link;
	if (!from_a || (view->traffic_class & IP_ECN) == 0)
		return false;
	ip->tos |= IP_ECN_CE;
	ip->checksum = be16_make(0);
	ip->checksum = be16_make(ipv4_checksum(ip));
	return false;
}

static void post_write(uint32_t length)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, length);

	post_send(&rig.a, qa,
		  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
				    .request_context = length,
				    .address = RIG_BASE,
				    .token = rig.b.remote_token },
		  &sge, 1);
}

Test(pace_pair, a_marking_switch_slows_the_sender_and_loses_nothing)
{
	const struct transport_stats *a = transport_get_stats(rig.a.worker[0]);
	uint64_t start = rig.now;

	transport_set_congestion(rig.a.shared, &parameters);
	transport_set_congestion(rig.b.shared, &parameters);
	rig.lose = mark_data;
	fill(rig.a.bytes, 4 << 20, 1);
	post_write(4 << 20);
	rig_run(&rig, UINT64_MAX);
	expect_cqe(qa, 4 << 20, 0);
	cr_assert_arr_eq(rig.b.bytes, rig.a.bytes, 4 << 20);
	cr_assert_gt(rig.now - start, 2 * (4ull << 20) * 1000 / (LINE / 1000000),
		     "half the line at the most");
	cr_assert_gt(a->rate_cuts, 10);
	cr_assert_eq(a->rx_cnp, transport_get_stats(rig.b.worker[0])->tx_cnp);
	cr_assert_leq(a->rx_cnp, (rig.now - start) / parameters.cnp_interval + 1);
	cr_assert_eq(a->retransmits, 0);
	cr_assert_eq(a->timeouts, 0);
}

/* So slow that a packet takes longer than the acknowledgement timeout. */
Test(pace_pair, the_timer_waits_for_what_is_held_back)
{
	struct rig_qp *pa = end_open_qp(&rig.a, 0, 64), *pb = end_open_qp(&rig.b, 0, 64);
	const struct transport_stats *a = transport_get_stats(rig.a.worker[0]);
	struct qp_connection connection = rig_connection();

	connection.timeout = 8;
	connection.retry_count = 1;
	rig_join(&rig, pa, pb, connection, connection);
	parameters.minimum_rate = parameters.line_rate = 125000;
	parameters.increase_period = 1ull << 40;
	transport_set_congestion(rig.a.shared, &parameters);
	transport_set_congestion(rig.b.shared, &parameters);
	rig.lose = mark_data;
	qa = pa;
	post_write(100000);
	rig_run(&rig, UINT64_MAX);
	expect_cqe(pa, 100000, 0);
	cr_assert_eq(a->timeouts, 0);
	cr_assert_eq(a->retransmits, 0);
}

/* --- buffers that do not come --------------------------------------------------------- */

Test(pace_pair, a_timeout_without_a_buffer_is_no_failed_try)
{
	const struct transport_stats *a = transport_get_stats(rig.a.worker[0]);

	rig.a.room = 1;
	post_write(3000);
	rig_turn(&rig);
	/* The one frame is lost with its acknowledgement request, and then the queue is full. */
	end_drain(&rig.b);
	rig_run(&rig, rig.now + 20 * 134 * MS);
	cr_assert_eq(rig.a.out.head, rig.a.out.tail);
	cr_assert_eq(qp_get_state(rig.a.shared, qa->index), QP_RTS);
	cr_assert_leq(a->timeouts, 2);
	expect_no_cqe(qa);
	rig.a.room = 100;
	rig_run(&rig, UINT64_MAX);
	expect_cqe(qa, 3000, 0);
}

Test(pace_pair, a_worker_without_buffers_does_not_spin)
{
	rig.a.room = 0;
	post_write(3000);
	rig_settle(&rig);
	cr_assert_gt(transport_next_deadline(rig.a.worker[0], rig.now), rig.now + 20 * US);
	cr_assert_lt(transport_next_deadline(rig.a.worker[0], rig.now), rig.now + MS);
	rig.a.room = 100;
	rig_settle(&rig);
	expect_cqe(qa, 3000, 0);
}
