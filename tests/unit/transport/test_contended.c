/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that its owner changes, revokes or takes away at the very moment when it is used. */
#include <criterion/criterion.h>

#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

struct transport;
struct frame;
bool __real_intent_commit_atomic(struct transport *t, uint64_t parts, uint64_t *target);
bool __wrap_intent_commit_atomic(struct transport *t, uint64_t parts, uint64_t *target);

static struct raw raw;
static bool contended;
/* What somebody else does just before the memory is changed; once. */
static void (*meanwhile)(void);

static void act_meanwhile(void)
{
	void (*act)(void) = meanwhile;

	meanwhile = NULL;
	if (act)
		act();
}

bool __wrap_intent_commit_atomic(struct transport *t, uint64_t parts, uint64_t *target)
{
	act_meanwhile();
	return !contended && __real_intent_commit_atomic(t, parts, target);
}

/* Few bytes to the client's memory, and any from it. */
void __real_memory_place_odd(uint8_t *to, const uint8_t *from, uint32_t length);
void __wrap_memory_place_odd(uint8_t *to, const uint8_t *from, uint32_t length);
void __real_frame_payload(struct frame *frame, const void *bytes, uint32_t length);
void __wrap_frame_payload(struct frame *frame, const void *bytes, uint32_t length);
uint32_t __real_frame_finish(uint8_t *frame, const struct frame_template *template,
			     const void *payload, uint32_t length);
uint32_t __wrap_frame_finish(uint8_t *frame, const struct frame_template *template,
			     const void *payload, uint32_t length);

void __wrap_memory_place_odd(uint8_t *to, const uint8_t *from, uint32_t length)
{
	act_meanwhile();
	__real_memory_place_odd(to, from, length);
}

void __wrap_frame_payload(struct frame *frame, const void *bytes, uint32_t length)
{
	act_meanwhile();
	__real_frame_payload(frame, bytes, length);
}

/* The frames of the raw peer are made by it as well. */
static bool finish_is_ours;

uint32_t __wrap_frame_finish(uint8_t *frame, const struct frame_template *template,
			     const void *payload, uint32_t length)
{
	if (finish_is_ours)
		act_meanwhile();
	return __real_frame_finish(frame, template, payload, length);
}

static void fetch_add(uint32_t psn)
{
	RAW_SEND(&raw, .opcode = OP_RC_FETCH_ADD, .psn = psn, .address = V, .token = K, .swap = 7);
}

static void expect_original(uint32_t psn, uint64_t original)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view));
	cr_assert_eq(view.opcode, OP_RC_ATOMIC_ACKNOWLEDGE);
	cr_assert_eq(view.psn, psn);
	cr_assert_eq(be64_get(view_atomic_ack(&view)->original), original);
}

/* With as many allowed as are kept, the new one takes the place of the oldest. */
Test(contended, an_atomic_that_was_given_up_is_executed_when_it_comes_again)
{
	struct qp_connection connection = rig_connection();
	uint64_t *target;

	connection.max_reads_in = 16;
	raw_create(&raw, connection);
	cr_assert_eq(transport_max_reads_in(&raw.end.sizes), connection.max_reads_in);
	target = (uint64_t *)(void *)raw.end.bytes;
	*target = 5;
	for (uint32_t i = 0; i < 20; i++) {
		contended = true;
		for (int tries = 0; tries < 3; tries++)
			fetch_add(P + i);
		raw_expect_none(&raw);
		cr_assert_eq(*target, 5 + 7 * i);
		contended = false;
		fetch_add(P + i);
		expect_original(P + i, 5 + 7 * i);
	}
	/* What is still kept is answered from there. */
	fetch_add(P + 10);
	expect_original(P + 10, 5 + 70);
	cr_assert_eq(*target, 5 + 140);
	raw_destroy(&raw);
}

/* ACK-1: what came before it in the same burst is acknowledged, though the atomic is not answered.
 */
Test(contended, an_atomic_that_was_given_up_holds_no_ack_back)
{
	raw_create(&raw, rig_connection());
	raw_send_only(&raw, &(struct raw_packet){
				    .opcode = OP_RC_WRITE_ONLY, .psn = P, .ack_request = true });
	contended = true;
	fetch_add(P + 1);
	raw_expect_ack(&raw, P, 1);
	raw_expect_none(&raw);
	raw_destroy(&raw);
}

static uint32_t window_token;

static void revoke(void)
{
	const struct accessor who = {
		.pd = raw.end.pd, .session = RIG_SESSION, .qpn = raw.qp->number, .worker = 1
	};
	uint64_t grace;
	uint32_t slot;

	cr_assert_eq(token_invalidate(raw.end.memory, &who, window_token, false, &slot, &grace),
		     ACCESS_OK);
	cr_assert_not(memory_grace_done(raw.end.memory, grace));
}

/* RESP-ATOM-1: another worker revokes the token. What is answered as done is done. */
Test(contended, the_token_dies_while_its_atomic_is_carried_out)
{
	uint64_t *target;

	raw_open(&raw, 2, rig_connection(), P);
	target = (uint64_t *)(void *)raw.end.bytes;
	*target = 5;
	window_token = end_token(&raw.end);
	cr_assert_eq(window_bind(raw.end.memory,
				 &(struct accessor){ .pd = raw.end.pd, .session = RIG_SESSION },
				 &(struct bind_request){ .window = raw.end.window[0],
							 .region = raw.end.region,
							 .token = window_token,
							 .address = V,
							 .length = 64,
							 .rights = RIGHT_REMOTE_ATOMIC }),
		     ACCESS_OK);
	meanwhile = revoke;
	raw_send_only(&raw, &(struct raw_packet){ .opcode = OP_RC_FETCH_ADD,
						  .psn = P,
						  .address = V,
						  .token = window_token,
						  .swap = 7 });
	transport_poll(raw.end.worker[0], raw.now);
	expect_original(P, 5);
	cr_assert_eq(*target, 12);
	raw_destroy(&raw);
}

static void poison(void)
{
	struct segment *segment = arena_record(&raw.end.arena, ARENA_SEGMENTS, raw.end.segment);

	segment->poisoned = 1;
}

/* MW-10, B98: the client takes its pages away: what was read there is no answer. */
Test(contended, pages_go_while_an_atomic_is_tried)
{
	raw_create(&raw, rig_connection());
	contended = true;
	meanwhile = poison;
	fetch_add(P);
	raw_expect_nak(&raw, P, 0x62);
	raw_expect_none(&raw);
	cr_assert_eq(end_find_event(&raw.end, TRANSPORT_QP_ERROR)->async,
		     SHM_ASYNC_QP_ACCESS_ERROR);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0, "not the peer's fault");
	raw_destroy(&raw);
}

/* MW-10: nor is what was placed there acknowledged, nor what was read there sent. */
Test(contended, pages_go_while_bytes_are_moved)
{
	static const uint8_t opcodes[] = { OP_RC_WRITE_ONLY, OP_RC_SEND_ONLY, OP_RC_READ_REQUEST };
	static const uint8_t payload[5] = "pages";

	for (uint32_t i = 0; i < 3; i++) {
		raw_create(&raw, rig_connection());
		post_receive(&raw.end, raw.qp, 1,
			     &(struct shm_sge){ V + 4096, 64, raw.end.local_token }, 1);
		meanwhile = poison;
		RAW_SEND(&raw, .opcode = opcodes[i], .psn = P, .address = V, .token = K,
			 .length = 5, .payload = payload, .payload_length = i < 2 ? 5 : 0,
			 .ack_request = true);
		cr_assert_null(meanwhile);
		raw_expect_nak(&raw, P, i == 1 ? 0x63 : 0x62);
		raw_expect_none(&raw);
		expect_cqe(raw.qp, 1, i == 1 ? NT_ACCESS_VIOLATION : NT_CANCELLED);
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), 1);
		cr_assert_eq(end_count_events(&raw.end, TRANSPORT_BAD_TOKEN), 0);
		raw_destroy(&raw);
	}
}

/* MW-10 */
Test(contended, pages_go_while_a_request_is_built)
{
	for (uint32_t pieces = 1; pieces <= 2; pieces++) {
		struct shm_sge sge[2];

		raw_create(&raw, rig_connection());
		sge[0] = sge[1] = sge_at(&raw.end, 0, 5);
		meanwhile = poison;
		finish_is_ours = pieces == 1;
		post_send(&raw.end, raw.qp,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 1 }, sge,
			  pieces);
		while (end_poll(&raw.end, raw.now))
			;
		cr_assert_null(meanwhile);
		finish_is_ours = false;
		raw_expect_none(&raw);
		expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION);
		raw_destroy(&raw);
	}
}
