/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the requester share. */
#include "asking.h"

#include <criterion/criterion.h>

struct raw raw;

void asking_setup(void)
{
	raw_create(&raw, rig_connection());
}

void asking_teardown(void)
{
	raw_destroy(&raw);
}

void reopen(struct qp_connection connection)
{
	raw_destroy(&raw);
	raw_create(&raw, connection);
}

void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

void post_flags(uint8_t opcode, uint64_t context, uint32_t length, uint32_t flags)
{
	const struct shm_sge sge = sge_at(&raw.end, 0, length);

	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = opcode,
				    .request_context = context,
				    .flags = flags,
				    .address = 0x1000,
				    .token = 77,
				    .immediate = 0x04030201 },
		  &sge, 1);
	settle();
}

void post(uint8_t opcode, uint64_t context, uint32_t length)
{
	post_flags(opcode, context, length, 0);
}

void answer(uint32_t psn, uint8_t syndrome)
{
	RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = psn, .syndrome = syndrome);
}

void ack(uint32_t psn)
{
	answer(psn, 0x1f);
}

void respond(uint8_t opcode, uint32_t psn, const uint8_t *bytes, uint32_t length)
{
	RAW_SEND(&raw, .opcode = opcode, .psn = psn, .syndrome = 0x1f, .payload = bytes,
		 .payload_length = length);
}

struct wire_view expect_frame(uint8_t opcode, uint32_t psn)
{
	struct wire_view view;

	cr_assert(raw_receive(&raw, &view), "no frame %#x", psn);
	cr_assert_eq(view.psn, psn & PSN_MASK, "PSN %#x, not %#x", view.psn, psn);
	cr_assert_eq(view.opcode, opcode, "opcode %#x, not %#x", view.opcode, opcode);
	return view;
}

uint32_t frames_out(void)
{
	struct wire_view view;
	uint32_t count = 0;

	while (raw_receive(&raw, &view))
		count++;
	return count;
}

uint64_t next_deadline(void)
{
	return transport_next_deadline(raw.end.worker[0], raw.now);
}

void sleep_until_deadline(void)
{
	cr_assert_neq(next_deadline(), UINT64_MAX);
	while (next_deadline() != UINT64_MAX) {
		raw.now = next_deadline() > raw.now ? next_deadline() : raw.now + 1;
		settle();
		if (raw.end.out.head != raw.end.out.tail)
			return;
	}
}
