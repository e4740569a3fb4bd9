/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics on a word that the owner of the memory changes all the time. */
#include <criterion/criterion.h>

#include "rig.h"

#define P RAW_PSN
#define V RIG_BASE
#define K raw.end.remote_token

struct transport;
bool __real_intent_commit_atomic(struct transport *t, uint64_t parts);
bool __wrap_intent_commit_atomic(struct transport *t, uint64_t parts);

static struct raw raw;
static bool contended;

bool __wrap_intent_commit_atomic(struct transport *t, uint64_t parts)
{
	return !contended && __real_intent_commit_atomic(t, parts);
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
