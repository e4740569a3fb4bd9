/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams and their addresses: who is heard, where bytes land, what is refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "rig.h"

#define QKEY 0x11111111u
#define OWN  0x80000000u /* "the queue pair's own Q_Key" */
#define SINK 65536u
#define GRH  40u

static struct raw raw;
static uint32_t ah;
static uint8_t payload[4096];

static struct qp_connection datagrams(void)
{
	return (struct qp_connection){ .path_mtu = 1024, .qkey = QKEY };
}

static struct ah_config peer_address(const struct end *end, uint8_t last)
{
	struct ah_config config = { .session = RIG_SESSION,
				    .pd = end->pd,
				    .path_mtu = 4096,
				    .path = { .hop_limit = 7,
					      .traffic_class = 0x68,
					      .remote_mac = { 2, 0, 0, 0, 0, last } } };

	memcpy(config.path.local_mac, end->mac, 6);
	memcpy(config.path.local_gid, end->gid, 16);
	gid_from_v4(config.path.remote_gid, (uint8_t[4]){ 10, 0, 0, last });
	return config;
}

static void setup(void)
{
	struct ah_config config;

	fill(payload, sizeof(payload), 1);
	raw_create_type(&raw, SHM_QP_UD, datagrams());
	config = peer_address(&raw.end, 99);
	ah = ah_create(raw.end.shared, &config);
	cr_assert_neq(ah, 0);
	fill(raw.end.bytes, 8192, 5);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(ud, .init = setup, .fini = teardown);

static void settle(void)
{
	for (int i = 0; i < 100 && end_poll(&raw.end, raw.now); i++)
		;
}

/* --- receiving ------------------------------------------------------------------------ */

static void post_receives(uint32_t count, uint32_t length)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct shm_sge sge = sge_at(&raw.end, SINK + i * 4096, length);

		memset(raw.end.bytes + SINK + i * 4096, 0x60, 4096);
		post_receive(&raw.end, raw.qp, 100 + i, &sge, 1);
	}
}

static void datagram(uint32_t qkey, uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY, .psn = 5, .qkey = qkey, .source_qpn = 0xabcdef,
		 .payload = payload, .payload_length = bytes, .ack_request = true);
}

static void expect_dropped(uint32_t verdict)
{
	cr_assert_eq(transport_last_verdict(raw.end.worker[0]), verdict, "verdict %s, not %s",
		     verdict_name(transport_last_verdict(raw.end.worker[0])),
		     verdict_name(verdict));
	raw_expect_none(&raw);
	expect_no_cqe(raw.qp);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_RTS);
}

/* B14: the reply's address is built from these bytes. */
Test(ud, b14_forty_bytes_in_front_say_where_it_came_from_v4)
{
	const uint8_t *sink = raw.end.bytes + SINK;
	const struct ipv4_header *ip = (const void *)(sink + 20);
	struct shm_cqe cqe;

	post_receives(1, 4096);
	datagram(QKEY, 8);
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.bytes, 48, "the 40 bytes count");
	cr_assert_eq(cqe.source_qpn, 0xabcdef);
	cr_assert_eq(cqe.flags, SHM_CQE_GRH);
	cr_assert_eq(cqe.type, 1);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(sink[i], 0);
	cr_assert_eq(ip->version_ihl, 0x45);
	cr_assert_arr_eq(ip->source, ((uint8_t[4]){ 10, 0, 0, 99 }), 4);
	cr_assert_arr_eq(ip->destination, ((uint8_t[4]){ 10, 0, 0, 1 }), 4);
	cr_assert_arr_eq(sink + GRH, payload, 8);
	cr_assert_eq(sink[48], 0x60, "nothing behind it");
	raw_expect_none(&raw);
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->rx_datagram, 1);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ESTABLISHED), 0);
}

Test(ud, b14_forty_bytes_in_front_say_where_it_came_from_v6)
{
	const uint8_t *sink = raw.end.bytes + SINK;
	const struct ipv6_header *ip = (const void *)sink;
	struct frame_path path = { .hop_limit = 9, .traffic_class = 3 };

	path.source_gid[0] = path.destination_gid[0] = 0x20;
	path.source_gid[15] = 1;
	path.destination_gid[15] = 2;
	frame_template_init(&raw.template, &path);
	post_receives(1, 4096);
	datagram(QKEY, 8);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 48);
	cr_assert_eq(sink[0] >> 4, 6);
	cr_assert_eq(ip->hop_limit, 9);
	cr_assert_arr_eq(ip->source, path.source_gid, 16);
	cr_assert_arr_eq(ip->destination, path.destination_gid, 16);
	cr_assert_arr_eq(sink + GRH, payload, 8);
}

Test(ud, immediate_and_solicited_event)
{
	struct shm_cqe cqe;

	post_receives(1, GRH);
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY_IMM, .qkey = QKEY, .source_qpn = 3,
		 .immediate = 0x01020304, .solicited = true);
	cqe = expect_cqe(raw.qp, 100, 0);
	cr_assert_eq(cqe.type, 0x2001);
	cr_assert_eq(cqe.output, 0x01020304);
	cr_assert_eq(cqe.solicited, 1);
	cr_assert_eq(cqe.bytes, GRH);
	cr_assert_eq(cqe.source_qpn, 3);
}

Test(ud, the_area_and_the_payload_may_lie_in_different_sges)
{
	const struct shm_sge sge[3] = { sge_at(&raw.end, SINK, 40),
					sge_at(&raw.end, SINK + 4096, 5),
					sge_at(&raw.end, SINK + 8192, 100) };

	post_receive(&raw.end, raw.qp, 1, sge, 3);
	datagram(QKEY, 9);
	expect_cqe(raw.qp, 1, 0);
	cr_assert_eq(raw.end.bytes[SINK + 20], 0x45);
	cr_assert_arr_eq(raw.end.bytes + SINK + 4096, payload, 5);
	cr_assert_arr_eq(raw.end.bytes + SINK + 8192, payload + 5, 4);
}

Test(ud, anybody_who_knows_the_qkey_is_heard)
{
	struct frame_path path = { .hop_limit = 64 };

	post_receives(2, 4096);
	gid_from_v4(path.source_gid, (uint8_t[4]){ 172, 16, 3, 4 });
	gid_from_v4(path.destination_gid, (uint8_t[4]){ 10, 0, 0, 2 });
	frame_template_init(&raw.template, &path);
	datagram(QKEY, 1);
	expect_cqe(raw.qp, 100, 0);
	/* PSNs mean nothing, duplicates are as good as others. */
	datagram(QKEY, 1);
	expect_cqe(raw.qp, 101, 0);
}

Test(ud, a_wrong_qkey_is_dropped)
{
	post_receives(1, 4096);
	datagram(QKEY + 1, 8);
	expect_dropped(VERDICT(QKEY));
	datagram(0x80010000u, 8);
	expect_dropped(VERDICT(QKEY));
	for (uint32_t bit = 0; bit < 32; bit++) {
		datagram(QKEY ^ 1u << bit, 8);
		expect_dropped(VERDICT(QKEY));
	}
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(QKEY)), 34);
	datagram(QKEY, 8);
	expect_cqe(raw.qp, 100, 0);
}

Test(ud, a_wrong_pkey_is_dropped)
{
	post_receives(1, 4096);
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY, .qkey = QKEY, .pkey = 0x1234);
	expect_dropped(VERDICT(PKEY));
	RAW_SEND(&raw, .opcode = OP_UD_SEND_ONLY, .qkey = QKEY, .pkey = 0x7fff);
	expect_cqe(raw.qp, 100, 0);
}

Test(ud, a_receive_that_is_too_small_is_kept)
{
	post_receives(1, GRH + 8);
	datagram(QKEY, 9);
	expect_dropped(VERDICT(UD_TOO_SMALL));
	cr_assert_eq(raw.end.bytes[SINK], 0x60, "nothing was written");
	datagram(QKEY, 8);
	expect_cqe(raw.qp, 100, 0);
}

Test(ud, without_a_receive_it_is_dropped)
{
	datagram(QKEY, 8);
	expect_dropped(VERDICT(DROPPED_NO_RECEIVE));
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(DROPPED_NO_RECEIVE)), 1);
	post_receives(1, 4096);
	datagram(QKEY, 8);
	expect_cqe(raw.qp, 100, 0);
}

Test(ud, longer_than_the_mtu_is_dropped)
{
	post_receives(1, 4096);
	datagram(QKEY, 1025);
	expect_dropped(VERDICT(UD_TOO_LONG));
	datagram(QKEY, 1024);
	cr_assert_eq(expect_cqe(raw.qp, 100, 0).bytes, 1064);
}

Test(ud, group_addresses_are_not_joined)
{
	struct frame_path path = { .hop_limit = 64 };

	post_receives(1, 4096);
	gid_from_v4(path.source_gid, (uint8_t[4]){ 10, 0, 0, 99 });
	gid_from_v4(path.destination_gid, (uint8_t[4]){ 239, 1, 1, 1 });
	frame_template_init(&raw.template, &path);
	datagram(QKEY, 8);
	expect_dropped(VERDICT(MULTICAST));
}

Test(ud, opcodes_of_other_services_are_dropped)
{
	static const uint8_t others[] = { OP_RC_SEND_ONLY,   OP_RC_WRITE_ONLY, OP_RC_READ_REQUEST,
					  OP_RC_ACKNOWLEDGE, OP_UC_SEND_ONLY,  OP_CNP };

	post_receives(1, 4096);
	for (uint32_t i = 0; i < sizeof(others); i++) {
		RAW_SEND(&raw, .opcode = others[i], .psn = 1);
		expect_dropped(VERDICT(QP_TYPE));
	}
}

static void expect_dead(uint32_t verdict)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	cr_assert_not_null(event);
	cr_assert_eq(event->value, verdict, "verdict %s", verdict_name(event->value));
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), QP_ERROR);
}

Test(ud, a_receive_with_a_bad_token_is_our_own_clients_error)
{
	struct shm_sge sge = sge_at(&raw.end, SINK, 64);

	sge.token ^= 0x5a5a;
	post_receive(&raw.end, raw.qp, 7, &sge, 1);
	post_receives(1, 64);
	datagram(QKEY, 8);
	expect_cqe(raw.qp, 7, NT_ACCESS_VIOLATION);
	expect_cqe(raw.qp, 100, NT_CANCELLED);
	expect_no_cqe(raw.qp);
	raw_expect_none(&raw);
	expect_dead(VERDICT(RECEIVE_BAD));
	datagram(QKEY, 8);
	cr_assert_eq(transport_last_verdict(raw.end.worker[0]), VERDICT(QP_DEAD));
}

/* --- sending -------------------------------------------------------------------------- */

static struct shm_sqe to(uint32_t address, uint64_t context)
{
	return (struct shm_sqe){ .opcode = SHM_WR_SEND,
				 .request_context = context,
				 .token = RAW_QPN,
				 .mr = 0x7654321,
				 .mw = address };
}

static void post(struct shm_sqe sqe, uint32_t length)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, length);

	post_send(&raw.end, raw.qp, sqe, &sge, 1);
}

static void expect_frame(struct wire_view *view, uint8_t opcode, uint32_t length)
{
	cr_assert(raw_receive(&raw, view));
	cr_assert_eq(view->opcode, opcode);
	cr_assert_eq(view->payload_length, length);
	cr_assert_not(view->ack_request);
	cr_assert_eq(be24_get(view_deth(view)->source_qpn), raw.qp->number);
}

Test(ud, a_datagram_says_who_sent_it_and_the_key)
{
	struct wire_view view;

	post(to(ah, 1), 100);
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 100);
	cr_assert_eq(be32_get(view_deth(&view)->qkey), 0x7654321);
	cr_assert_eq(view.psn, RAW_SEND_PSN);
	cr_assert_arr_eq(view.payload, raw.end.bytes, 100);
	cr_assert_arr_eq(view.frame, ((uint8_t[6]){ 2, 0, 0, 0, 0, 99 }), 6);
	cr_assert_arr_eq(view.destination_gid + 12, ((uint8_t[4]){ 10, 0, 0, 99 }), 4);
	cr_assert_arr_eq(view.source_gid, raw.end.gid, 16);
	cr_assert_eq(view.hop_limit, 7);
	cr_assert_eq(view.traffic_class, 0x68);
	cr_assert_eq(view.source_port, roce_source_port(0, raw.qp->number, RAW_QPN));
	cr_assert_eq(transport_get_stats(raw.end.worker[0])->tx_datagram, 1);
	cr_assert_eq(transport_next_deadline(raw.end.worker[0], raw.now), UINT64_MAX);
}

Test(ud, immediate_inline_pieces_and_solicited)
{
	const uint32_t immediate = 0xcafef00d;
	const struct shm_sge pieces[2] = { sge_at(&raw.end, 10, 3), sge_at(&raw.end, 100, 4) };
	struct shm_sqe sqe = to(ah, 1);
	struct wire_view view;

	sqe.opcode = SHM_WR_SEND_IMMEDIATE;
	sqe.immediate = immediate;
	sqe.flags = SHM_FLAG_SOLICIT;
	post_send(&raw.end, raw.qp, sqe, pieces, 2);
	sqe = to(ah, 2);
	sqe.flags = SHM_FLAG_INLINE;
	sqe.inline_length = 5;
	post_send(&raw.end, raw.qp, sqe, (const void *)"hello", 0);
	post(to(ah, 3), 0);
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
	expect_cqe(raw.qp, 3, 0);
	expect_frame(&view, OP_UD_SEND_ONLY_IMM, 7);
	cr_assert(view.solicited);
	cr_assert_eq(memcmp(view_imm(&view), &immediate, 4), 0, "the client's bytes as they stand");
	cr_assert_arr_eq(view.payload, raw.end.bytes + 10, 3);
	cr_assert_arr_eq(view.payload + 3, raw.end.bytes + 100, 4);
	expect_frame(&view, OP_UD_SEND_ONLY, 5);
	cr_assert_arr_eq(view.payload, "hello", 5);
	cr_assert_eq(view.psn, RAW_SEND_PSN + 1);
	cr_assert_not(view.solicited);
	expect_frame(&view, OP_UD_SEND_ONLY, 0);
}

Test(ud, bit_31_of_the_key_asks_for_the_queue_pairs_own)
{
	struct shm_sqe sqe = to(ah, 1);
	struct wire_view view;

	sqe.mr = OWN | 5;
	post(sqe, 1);
	settle();
	expect_frame(&view, OP_UD_SEND_ONLY, 1);
	cr_assert_eq(be32_get(view_deth(&view)->qkey), QKEY);
}

Test(ud, each_datagram_goes_to_its_own_address)
{
	struct ah_config config = peer_address(&raw.end, 77);
	struct wire_view view;
	uint32_t other;

	config.path.flow_label = 0x57f97;
	config.path.vlan_tci = 0x2005;
	other = ah_create(raw.end.shared, &config);
	for (uint64_t i = 0; i < 6; i++)
		post(to(i % 2 ? other : ah, i), 4);
	settle();
	for (uint64_t i = 0; i < 6; i++) {
		expect_cqe(raw.qp, i, 0);
		expect_frame(&view, OP_UD_SEND_ONLY, 4);
		cr_assert_eq(view.destination_gid[15], i % 2 ? 77 : 99);
		cr_assert_eq(view.has_vlan, i % 2);
		cr_assert_eq(view.psn, RAW_SEND_PSN + i);
		if (i % 2)
			cr_assert_eq(view.source_port, 65410, "from the flow label");
	}
}

Test(ud, silent_requests_complete_silently_and_in_order)
{
	struct shm_sqe sqe = to(ah, 1);

	sqe.flags = SHM_FLAG_SILENT_SUCCESS;
	post(sqe, 8);
	post(to(ah, 2), 8);
	settle();
	expect_cqe(raw.qp, 2, 0);
	expect_no_cqe(raw.qp);
	cr_assert_eq(raw.qp->memory->send.done, 2);
}

Test(ud, without_buffers_datagrams_wait)
{
	struct wire_view view;

	raw.end.room = 1;
	post(to(ah, 1), 8);
	post(to(ah, 2), 9);
	end_poll(&raw.end, raw.now);
	expect_cqe(raw.qp, 1, 0);
	expect_no_cqe(raw.qp);
	raw.end.room = 5;
	settle();
	expect_cqe(raw.qp, 2, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 8);
	expect_frame(&view, OP_UD_SEND_ONLY, 9);
	raw_expect_none(&raw);
}

/* The request fails with this, the queue pair with it, and the one behind is cancelled. */
static void expect_refused(struct shm_sqe sqe, uint32_t length, int32_t status, uint32_t verdict)
{
	struct wire_view view;
	struct shm_cqe cqe;

	sqe.request_context = 2;
	post(to(ah, 1), 8);
	post(sqe, length);
	post(to(ah, 3), 8);
	settle();
	expect_cqe(raw.qp, 1, 0);
	cqe = expect_cqe(raw.qp, 2, status);
	cr_assert_eq(cqe.provider_error, verdict, "%s", verdict_name(cqe.provider_error));
	expect_cqe(raw.qp, 3, NT_CANCELLED);
	expect_frame(&view, OP_UD_SEND_ONLY, 8);
	raw_expect_none(&raw);
	expect_dead(verdict);
}

Test(ud, longer_than_the_mtu_is_refused)
{
	expect_refused(to(ah, 0), 1025, NT_INVALID_BUFFER_SIZE, VERDICT(UD_TOO_LONG));
}

Test(ud, as_long_as_the_mtu_is_sent)
{
	struct wire_view view;

	post(to(ah, 1), 1024);
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 1024);
}

/* The address may lie behind another port, which carries less than the queue pair's. */
Test(ud, longer_than_the_path_mtu_of_the_addresss_port_is_refused)
{
	struct ah_config config = peer_address(&raw.end, 99);
	struct wire_view view;
	uint32_t narrow;

	config.path_mtu = 512;
	narrow = ah_create(raw.end.shared, &config);
	post(to(narrow, 1), 512);
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 512);
	expect_refused(to(narrow, 0), 513, NT_INVALID_BUFFER_SIZE, VERDICT(UD_TOO_LONG));
}

Test(ud, an_address_that_is_none_is_refused)
{
	expect_refused(to(ah + 1, 0), 8, NT_INVALID_HANDLE, VERDICT(WR_ADDRESS));
}

Test(ud, an_address_beyond_the_table_is_refused)
{
	expect_refused(to(0x7fffffff, 0), 8, NT_INVALID_HANDLE, VERDICT(WR_ADDRESS));
}

Test(ud, an_address_of_another_domain_is_refused)
{
	struct ah_config config = peer_address(&raw.end, 99);

	config.pd = raw.end.pd + 1;
	expect_refused(to(ah_create(raw.end.shared, &config), 0), 8, NT_INVALID_HANDLE,
		       VERDICT(WR_ADDRESS));
}

Test(ud, an_address_of_another_session_is_refused)
{
	struct ah_config config = peer_address(&raw.end, 99);

	config.session = RIG_SESSION + 1;
	expect_refused(to(ah_create(raw.end.shared, &config), 0), 8, NT_INVALID_HANDLE,
		       VERDICT(WR_ADDRESS));
}

Test(ud, no_queue_pair_of_a_group)
{
	struct shm_sqe sqe = to(ah, 0);

	sqe.token = 0xffffff;
	expect_refused(sqe, 8, NT_INVALID_PARAMETER, VERDICT(WR_MALFORMED));
}

Test(ud, a_number_of_more_than_24_bits_is_none)
{
	struct shm_sqe sqe = to(ah, 0);

	sqe.token = 0x1000000 | RAW_QPN;
	expect_refused(sqe, 8, NT_INVALID_PARAMETER, VERDICT(WR_MALFORMED));
}

Test(ud, a_bad_sge_is_refused_before_anything_leaves)
{
	struct shm_sge sge = sge_at(&raw.end, 0, 8);

	sge.token ^= 1;
	post_send(&raw.end, raw.qp, to(ah, 1), &sge, 1);
	settle();
	expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION);
	raw_expect_none(&raw);
}

static void refuse_opcode(uint8_t opcode)
{
	struct shm_sqe sqe = to(ah, 0);

	sqe.opcode = opcode;
	expect_refused(sqe, 8, NT_INVALID_DEVICE_REQUEST, VERDICT(WR_OPERATION));
}

Test(ud, no_read)
{
	refuse_opcode(SHM_WR_READ);
}

Test(ud, no_write)
{
	refuse_opcode(SHM_WR_WRITE);
}

Test(ud, no_write_with_immediate)
{
	refuse_opcode(SHM_WR_WRITE_IMMEDIATE);
}

Test(ud, no_atomic)
{
	refuse_opcode(SHM_WR_FETCH_ADD);
}

Test(ud, no_send_with_invalidate)
{
	refuse_opcode(SHM_WR_SEND_INVALIDATE);
}

/* A window would grant what no datagram can use. */
Test(ud, no_bind)
{
	refuse_opcode(SHM_WR_BIND);
}

Test(ud, no_invalidate)
{
	refuse_opcode(SHM_WR_INVALIDATE);
}

/* --- connecting ----------------------------------------------------------------------- */

Test(ud, what_it_cannot_be_is_refused)
{
	struct qp_config config = { .type = SHM_QP_UD, .send_depth = 1, .receive_depth = 1 };
	struct rig_qp *qp = end_open_qp_config(&raw.end, &config, 8);
	struct qp_connection connection = datagrams();

	memcpy(connection.path.local_gid, raw.end.gid, 16);
	connection.qkey = 0x80010000u;
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), -EINVAL,
		     "a privileged Q_Key");
	connection = datagrams();
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), -EINVAL,
		     "no address");
	memcpy(connection.path.local_gid, raw.end.gid, 16);
	connection.path_mtu = 1500;
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), -EINVAL);
	connection.path_mtu = 4096;
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), 0);
	cr_assert_eq(transport_connect(raw.end.worker[0], qp->index, &connection, 1), -EISCONN);
}

/* --- addresses ------------------------------------------------------------------------ */

Test(ud, addresses_of_groups_and_of_mixed_families_are_refused)
{
	struct ah_config config = peer_address(&raw.end, 99);

	gid_from_v4(config.path.remote_gid, (uint8_t[4]){ 239, 1, 1, 1 });
	cr_assert_eq(ah_create(raw.end.shared, &config), 0);
	memset(config.path.remote_gid, 0, 16);
	config.path.remote_gid[0] = 0xff;
	cr_assert_eq(ah_create(raw.end.shared, &config), 0);
	config.path.remote_gid[0] = 0x20;
	cr_assert_eq(ah_create(raw.end.shared, &config), 0, "IPv4 to IPv6");
	memset(config.path.remote_gid, 0, 16);
	cr_assert_eq(ah_create(raw.end.shared, &config), 0);
}

Test(ud, the_table_of_addresses_ends_and_what_is_freed_comes_back)
{
	const struct ah_config config = peer_address(&raw.end, 99);
	uint32_t last = 0, count = 1, index;
	uint64_t grace;

	while ((index = ah_create(raw.end.shared, &config)) != 0) {
		last = index;
		count++;
	}
	cr_assert_eq(count, 7, "eight records, of which the first is never used");
	ah_destroy(raw.end.shared, last, &grace);
	cr_assert_eq(ah_create(raw.end.shared, &config), 0, "not before it is freed");
	ah_free(raw.end.shared, last);
	cr_assert_eq(ah_create(raw.end.shared, &config), last);
}

Test(ud, a_destroyed_address_is_used_no_more_and_free_after_a_grace_period)
{
	uint64_t grace;

	raw.end.room = 0;
	post(to(ah, 1), 8);
	end_poll(&raw.end, raw.now);
	expect_no_cqe(raw.qp);
	ah_destroy(raw.end.shared, ah, &grace);
	cr_assert(grace == 0 || !memory_grace_done(raw.end.memory, grace));
	raw.end.room = 10;
	settle();
	expect_cqe(raw.qp, 1, NT_INVALID_HANDLE);
	raw_expect_none(&raw);
	cr_assert(memory_grace_done(raw.end.memory, grace), "the worker has been quiescent");
	ah_free(raw.end.shared, ah);
}

struct book {
	uint32_t calls;
	enum handle_kind kind;
};

static uint32_t resolve(void *context, uint32_t session, uint32_t handle, enum handle_kind kind)
{
	struct book *book = context;

	book->calls++;
	book->kind = kind;
	return session == RIG_SESSION && handle == 0xbeef ? ah : 0;
}

Test(ud, handles_are_resolved_when_the_datagram_leaves)
{
	struct book book = { 0 };
	struct wire_view view;

	transport_set_resolver(raw.end.shared, resolve, &book);
	raw.end.room = 0;
	post(to(0xbeef, 1), 8);
	end_poll(&raw.end, raw.now);
	raw.end.room = 10;
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 8);
	cr_assert_eq(book.kind, HANDLE_ADDRESS);
	cr_assert_geq(book.calls, 2, "each try asks anew");
	post(to(ah, 2), 8);
	settle();
	expect_cqe(raw.qp, 2, NT_INVALID_HANDLE);
}

/* --- a daemon's death ----------------------------------------------------------------- */

Test(ud, addresses_survive_the_process)
{
	const struct ah_config config = peer_address(&raw.end, 99);
	struct wire_view view;
	uint32_t freed = ah_create(raw.end.shared, &config), next;
	uint64_t grace;

	next = ah_create(raw.end.shared, &config);
	ah_destroy(raw.end.shared, freed, &grace);
	ah_free(raw.end.shared, freed);
	end_restart(&raw.end, raw.now);
	post(to(ah, 1), 8);
	post(to(next, 2), 8);
	settle();
	expect_cqe(raw.qp, 1, 0);
	expect_cqe(raw.qp, 2, 0);
	expect_frame(&view, OP_UD_SEND_ONLY, 8);
	cr_assert_eq(ah_create(raw.end.shared, &config), freed);
	cr_assert_eq(ah_create(raw.end.shared, &config), next + 1);
}

Test(ud, requests_and_receives_survive_the_process_once)
{
	struct wire_view view;

	post_receives(2, 4096);
	datagram(QKEY, 8);
	raw.end.room = 1;
	for (uint64_t i = 1; i <= 3; i++)
		post(to(ah, i), (uint32_t)i);
	end_poll(&raw.end, raw.now);
	expect_frame(&view, OP_UD_SEND_ONLY, 1);
	end_restart(&raw.end, raw.now);
	raw.end.room = 10;
	settle();
	expect_frame(&view, OP_UD_SEND_ONLY, 2);
	expect_frame(&view, OP_UD_SEND_ONLY, 3);
	cr_assert_eq(view.psn, RAW_SEND_PSN + 2);
	datagram(QKEY, 9);
	expect_cqe(raw.qp, 100, 0);
	for (uint64_t i = 1; i <= 3; i++)
		expect_cqe(raw.qp, i, 0);
	cr_assert_eq(expect_cqe(raw.qp, 101, 0).bytes, 49);
	expect_no_cqe(raw.qp);
}

/* --- two ends, shared receives -------------------------------------------------------- */

static struct rig rig;

static struct rig_qp *open_ud(struct end *end, uint32_t srq)
{
	struct qp_config config = { .type = SHM_QP_UD,
				    .srq = srq,
				    .send_depth = 16,
				    .receive_depth = 16,
				    .send_sge = 4,
				    .receive_sge = 4 };
	struct qp_connection connection = datagrams();
	struct rig_qp *qp = end_open_qp_config(end, &config, 64);

	memcpy(connection.path.local_gid, end->gid, 16);
	cr_assert_eq(transport_connect(end->worker[0], qp->index, &connection, 1), 0);
	return qp;
}

static uint32_t address_of(const struct end *from, const struct end *peer)
{
	struct ah_config config = { .session = RIG_SESSION, .pd = from->pd, .path_mtu = 4096 };

	memcpy(config.path.local_gid, from->gid, 16);
	memcpy(config.path.remote_gid, peer->gid, 16);
	return ah_create(from->shared, &config);
}

static void say(struct end *from, struct rig_qp *qp, uint32_t address, uint32_t number,
		uint64_t context)
{
	const struct shm_sge sge = sge_at(from, 0, 100);

	post_send(from, qp,
		  (struct shm_sqe){ .opcode = SHM_WR_SEND,
				    .request_context = context,
				    .token = number,
				    .mr = OWN,
				    .mw = address },
		  &sge, 1);
}

/* Who is asked answers with what the completion and the area in front tell it. */
Test(ud_pairs, a_reply_finds_its_way_back)
{
	const struct ipv4_header *ip;
	struct ah_config config;
	struct rig_qp *qa, *qb;
	struct shm_sge sge;
	struct shm_cqe cqe;

	rig_create(&rig);
	qa = open_ud(&rig.a, 0);
	qb = open_ud(&rig.b, 0);
	fill(rig.a.bytes, 100, 3);
	fill(rig.b.bytes, 100, 4);
	sge = sge_at(&rig.b, SINK, 4096);
	post_receive(&rig.b, qb, 1, &sge, 1);
	sge = sge_at(&rig.a, SINK, 4096);
	post_receive(&rig.a, qa, 2, &sge, 1);
	say(&rig.a, qa, address_of(&rig.a, &rig.b), qb->number, 3);
	rig_settle(&rig);
	expect_cqe(qa, 3, 0);
	cqe = expect_cqe(qb, 1, 0);
	cr_assert_eq(cqe.source_qpn, qa->number);
	cr_assert_arr_eq(rig.b.bytes + SINK + GRH, rig.a.bytes, 100);
	ip = (const void *)(rig.b.bytes + SINK + 20);
	config = (struct ah_config){ .session = RIG_SESSION, .pd = rig.b.pd, .path_mtu = 4096 };
	memcpy(config.path.local_gid, rig.b.gid, 16);
	gid_from_v4(config.path.remote_gid, ip->source);
	say(&rig.b, qb, ah_create(rig.b.shared, &config), cqe.source_qpn, 4);
	rig_settle(&rig);
	expect_cqe(qb, 4, 0);
	cr_assert_eq(expect_cqe(qa, 2, 0).source_qpn, qb->number);
	cr_assert_arr_eq(rig.a.bytes + SINK + GRH, rig.b.bytes, 100);
	rig_destroy(&rig);
}

Test(ud_pairs, datagrams_take_receives_of_a_shared_queue)
{
	struct srq_config shared = { .session = RIG_SESSION, .depth = 8, .sge = 4 };
	struct rig_qp *qa, *qb[2];
	uint32_t srq, address;

	rig_create(&rig);
	shared.pd = rig.b.pd;
	shared.memory_size = srq_memory_size(8, 4);
	shared.memory = calloc(1, shared.memory_size);
	srq = srq_create(rig.b.shared, &shared);
	qa = open_ud(&rig.a, 0);
	qb[0] = open_ud(&rig.b, srq);
	qb[1] = open_ud(&rig.b, srq);
	address = address_of(&rig.a, &rig.b);
	for (uint32_t i = 0; i < 3; i++) {
		struct shm_queue *queue = &shared.memory->receive;
		uint8_t *slot = shm_queue_slot(shared.memory, queue->offset, queue->stride,
					       queue->slots, queue->tail);
		const struct shm_rqe rqe = { .request_context = 50 + i, .nsge = 1 };
		const struct shm_sge sge = sge_at(&rig.b, SINK + i * 4096, i == 0 ? 139 : 4096);

		memcpy(slot, &rqe, sizeof(rqe));
		memcpy(slot + sizeof(rqe), &sge, sizeof(sge));
		shm_store_release(&queue->tail, queue->tail + 1);
	}
	say(&rig.a, qa, address, qb[0]->number, 1);
	rig_settle(&rig);
	cr_assert_eq(end_verdicts(&rig.b, VERDICT(UD_TOO_SMALL)), 1);
	expect_no_cqe(qb[0]);
	say(&rig.a, qa, address, qb[1]->number, 2);
	rig_settle(&rig);
	expect_cqe(qb[1], 51, 0);
	say(&rig.a, qa, address, qb[1]->number, 3);
	rig_settle(&rig);
	expect_cqe(qb[1], 52, 0);
	/* The one that was too small is still held, and comes back when its holder ends. */
	transport_flush(rig.b.worker[0], qb[0]->index, rig.now);
	rig_settle(&rig);
	expect_cqe(qb[0], 50, NT_CANCELLED);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_QP_LAST_WQE), 1);
	rig_destroy(&rig);
	free(shared.memory);
}
