/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder's bounds: what a message says it is, it cannot exceed, nor come from elsewhere. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"
#include "transport/private.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

static struct raw raw;
static uint8_t payload[1024];

static void setup(void)
{
	memset(payload, 0xee, sizeof(payload));
	raw_create(&raw, rig_connection());
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(bounds, .init = setup, .fini = teardown);

static void write_at(uint8_t opcode, uint32_t psn, uint64_t address, uint32_t length,
		     uint32_t bytes)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .address = address, .token = K,
		 .length = length, .payload = payload, .payload_length = bytes,
		 .ack_request = true);
}

static void expect_error(uint32_t verdict)
{
	const struct transport_event *event = end_find_event(&raw.end, TRANSPORT_QP_ERROR);

	cr_assert_not_null(event);
	cr_assert_eq(event->value, verdict, "%s", verdict_name(event->value));
}

/* RESP-LEN-2: the second packet is whole, and more than the RETH has left. */
Test(bounds, write_that_goes_on_beyond_its_reth)
{
	write_at(OP_RC_WRITE_FIRST, P, V, 1500, 1024);
	raw_expect_ack(&raw, P, 0);
	write_at(OP_RC_WRITE_MIDDLE, P + 1, V, 0, 1024);
	raw_expect_nak(&raw, P + 1, 0x61);
	expect_error(VERDICT(LENGTH));
	cr_assert_eq(raw.end.bytes[1023], 0xee);
	cr_assert_eq(raw.end.bytes[1024], 0);
}

/* RESP-TOKEN-3: what the first packet holds would fit, what the RETH names does not. */
Test(bounds, first_packet_is_judged_by_the_whole_range)
{
	write_at(OP_RC_WRITE_FIRST, P, V + RIG_MEMORY - 1024, 2048, 1024);
	raw_expect_nak(&raw, P, 0x62);
	expect_error(VERDICT_ACCESS + ACCESS_RANGE);
	cr_assert_eq(raw.end.bytes[RIG_MEMORY - 1024], 0);
}

/* ADMIT-8: the right peer, and another address of the port than the connection's. */
Test(bounds, frames_to_another_address_of_ours_are_dropped)
{
	const struct frame_template good = raw.template;
	struct frame_path path = { .hop_limit = 64 };
	struct qp *qp = &raw.end.shared->qps[raw.qp->index];

	memcpy(path.source_gid, qp->remote_gid, 16);
	memcpy(path.destination_gid, raw.end.gid, 16);
	path.destination_gid[15] ^= 1;
	frame_template_init(&raw.template, &path);
	write_at(OP_RC_WRITE_ONLY, P, V, 8, 8);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(NOT_PEER)), 1);
	raw.template = good;
	write_at(OP_RC_WRITE_ONLY, P, V, 8, 8);
	raw_expect_ack(&raw, P, 1);
}

/* RESP-ATOM-2: what was kept answers its own repetition, and nothing else. */
Test(bounds, repeated_atomic_elsewhere_or_by_another_token)
{
	struct wire_view view;

	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K, .swap = 7);
	cr_assert(raw_receive(&raw, &view));
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V + 8, .token = K);
	raw_expect_none(&raw);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K ^ 4);
	raw_expect_none(&raw);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(DUPLICATE_UNKNOWN)), 2);
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = P, .address = V, .token = K, .swap = 7);
	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(be64_get(view_atomic_ack(&view)->original), 0);
	cr_assert_eq(*(uint64_t *)(void *)raw.end.bytes, 7);
}

/* ACK-3, ACK-5: a message of three packets is one, when it is there. */
Test(bounds, msn_counts_messages_and_not_packets)
{
	write_at(OP_RC_WRITE_FIRST, P, V, 2100, 1024);
	raw_expect_ack(&raw, P, 0);
	write_at(OP_RC_WRITE_MIDDLE, P + 1, V, 0, 1024);
	raw_expect_ack(&raw, P + 1, 0);
	write_at(OP_RC_WRITE_LAST, P + 2, V, 0, 52);
	raw_expect_ack(&raw, P + 2, 1);
	write_at(OP_RC_WRITE_ONLY, P + 3, V, 8, 8);
	raw_expect_ack(&raw, P + 3, 2);
}

/* --- messages without end ------------------------------------------------------------- */

/* Into a receive that could take four gigabytes: so many packets later. */
static void send_two_gigabytes(uint8_t first)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, UINT32_MAX);

	post_receive(&raw.end, raw.qp, 1, &sge, 1);
	RAW_SEND(&raw, .opcode = first, .psn = P, .payload = payload, .payload_length = 1024);
	raw.end.shared->qps[raw.qp->index].message.psn = psn_add(P + 1, 0u - (MESSAGE_MAX >> 10));
}

/* RESP-LEN-3, UC-4 */
Test(bounds, send_longer_than_any_message_over_uc)
{
	raw_destroy(&raw);
	raw_create_type(&raw, SHM_QP_UC, rig_connection());
	send_two_gigabytes(OP_UC_SEND_FIRST);
	RAW_SEND(&raw, .opcode = OP_UC_SEND_LAST, .psn = P + 1, .payload = payload,
		 .payload_length = 1);
	cr_assert_eq(end_verdicts(&raw.end, VERDICT(UC_TOO_SMALL)), 1);
	expect_no_cqe(raw.qp);
}
