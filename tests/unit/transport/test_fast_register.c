/* SPDX-License-Identifier: BSD-3-Clause */
/* Fast-register regions in queue order: registered, used by both sides, invalidated. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define P     RAW_PSN
#define BASE  0x5000000000ull /* where both sides find the first byte */
#define PAGES 4u
#define PAGE  4096u

static struct raw raw;
static uint32_t region, local_token, remote_token;

static void setup(void)
{
	raw_open(&raw, 2, rig_connection(), P);
	fill(raw.end.bytes, 16 * PAGE, 7);
	cr_assert_eq(region_create(raw.end.memory, RIG_SESSION, raw.end.pd, true, &region), 0);
	cr_assert_eq(region_init_fast_register(raw.end.memory, region, PAGES, true, &local_token,
					       &remote_token),
		     0);
}

static void teardown(void)
{
	raw_destroy(&raw);
}

TestSuite(fast_register, .init = setup, .fini = teardown);

static void settle(void)
{
	while (end_poll(&raw.end, raw.now))
		;
}

static struct shm_sqe registration(uint64_t offset, uint64_t length)
{
	return (struct shm_sqe){ .opcode = SHM_WR_FAST_REGISTER,
				 .request_context = 1,
				 .flags = SHM_FLAG_ALLOW_REMOTE_WRITE,
				 .address = BASE,
				 .length = length,
				 .token = remote_token,
				 .mr = region,
				 .compare = raw.end.segment,
				 .swap = offset };
}

static void post(struct shm_sqe sqe)
{
	post_send(&raw.end, raw.qp, sqe, NULL, 0);
	settle();
}

static void invalidate(uint64_t context)
{
	post((struct shm_sqe){ .opcode = SHM_WR_INVALIDATE,
			       .request_context = context,
			       .mr = region,
			       .token = remote_token });
}

static void write_packet(uint32_t psn, uint64_t address, const char *text)
{
	const uint32_t length = (uint32_t)strlen(text);

	RAW_SEND(&raw, .opcode = OP_RC_WRITE_ONLY, .psn = psn, .address = address,
		 .token = remote_token, .length = length, .payload = text, .payload_length = length,
		 .ack_request = true);
}

/* Dead before, good from the completion on, at the address that the client chose. */
Test(fast_register, opens_and_closes)
{
	post(registration(2 * PAGE + 8, 100));
	cr_expect_eq(expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS).type, 4);
	write_packet(P, BASE + 3, "registered");
	raw_expect_ack(&raw, P, 1);
	cr_expect_arr_eq(raw.end.bytes + 2 * PAGE + 8 + 3, "registered", 10);
	invalidate(2);
	expect_cqe(raw.qp, 2, NT_SUCCESS_STATUS);
	write_packet(P + 1, BASE, "too late");
	raw_expect_nak(&raw, P + 1, NAK_REMOTE_ACCESS);
}

/* Under the same token as often as one likes. */
Test(fast_register, again_and_again)
{
	for (uint32_t i = 0; i < 20; i++) {
		post(registration(i % 8 * PAGE, PAGE));
		expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
		write_packet(P + i, BASE, "again");
		raw_expect_ack(&raw, P + i, 1 + i);
		cr_expect_arr_eq(raw.end.bytes + i % 8 * PAGE, "again", 5);
		invalidate(2);
		expect_cqe(raw.qp, 2, NT_SUCCESS_STATUS);
	}
}

static void peer_invalidates(uint32_t psn, uint32_t token)
{
	const struct shm_sge sge = sge_at(&raw.end, 65536, 64);

	post_receive(&raw.end, raw.qp, 9, &sge, 1);
	RAW_SEND(&raw, .opcode = OP_RC_SEND_ONLY_INV, .psn = psn, .token = token,
		 .payload_length = 5, .ack_request = true);
}

/* RESP-DO-3: also the peer may close it, and its client open it again. */
Test(fast_register, a_peer_closes_it_as_often_as_it_is_opened)
{
	for (uint32_t i = 0; i < 10; i++) {
		struct shm_cqe cqe;

		post(registration(i % 8 * PAGE, PAGE));
		expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
		write_packet(P + 2 * i, BASE, "peer");
		raw_expect_ack(&raw, P + 2 * i, 2 * i + 1);
		cr_expect_arr_eq(raw.end.bytes + i % 8 * PAGE, "peer", 4);
		peer_invalidates(P + 2 * i + 1, remote_token);
		cqe = expect_cqe(raw.qp, 9, NT_SUCCESS_STATUS);
		cr_expect_eq(cqe.type, 0x8001);
		cr_expect_eq(cqe.output, remote_token);
		cr_expect_eq(cqe.bytes, 5);
		raw_expect_ack(&raw, P + 2 * i + 1, 2 * i + 2);
	}
	write_packet(P + 20, BASE, "too late");
	raw_expect_nak(&raw, P + 20, NAK_REMOTE_ACCESS);
}

static void expect_class_j(enum access_reason reason)
{
	raw_expect_none(&raw);
	cr_expect_eq(expect_cqe(raw.qp, 9, NT_INVALID_DEVICE_REQUEST).provider_error,
		     VERDICT_ACCESS + reason);
	cr_expect_eq(end_find_event(&raw.end, TRANSPORT_QP_ERROR)->value,
		     VERDICT(REMOTE_INVALIDATE));
}

/* RESP-CLASS-5 */
Test(fast_register, a_peer_cannot_close_what_is_not_open)
{
	peer_invalidates(P, remote_token);
	expect_class_j(ACCESS_DEAD);
}

/* RESP-CLASS-5: the local token is none of the peer's. */
Test(fast_register, a_peer_cannot_close_it_by_its_local_token)
{
	const struct accessor who = { .pd = raw.end.pd,
				      .qpn = raw.qp->number,
				      .session = RIG_SESSION };
	struct access access;

	post(registration(0, PAGE));
	expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
	peer_invalidates(P, local_token);
	expect_class_j(INVALIDATE_KIND);
	cr_expect_eq(memory_access(raw.end.memory, &who, remote_token, BASE, PAGE,
				   RIGHT_REMOTE_WRITE, &access),
		     ACCESS_OK);
}

/* What the client says is checked: segment, range, pages, rights, state. */
static void expect_refused(struct shm_sqe sqe, enum access_reason reason)
{
	post(sqe);
	cr_expect_eq(expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION).provider_error,
		     VERDICT_ACCESS + reason);
	/* The queue pair is dead now. */
	teardown();
	setup();
}

Test(fast_register, refused)
{
	const struct shm_sqe good = registration(0, PAGE);
	struct shm_sqe bad = good;

	bad.compare = 1000;
	expect_refused(bad, BIND_REGION);
	bad.compare = 1ull << 32 | good.compare;
	expect_refused(bad, BIND_REGION);
	bad = good;
	bad.swap = RIG_MEMORY - 1;
	expect_refused(bad, ACCESS_RANGE);
	bad = good;
	bad.length = PAGES * PAGE + 1;
	expect_refused(bad, ACCESS_RANGE);
	bad.length = 0;
	expect_refused(bad, BIND_LENGTH);
	bad = good;
	bad.flags = SHM_FLAG_ALLOW_REMOTE_ATOMIC;
	expect_refused(bad, ACCESS_RIGHTS);
	bad = good;
	bad.mr = raw.end.region;
	expect_refused(bad, BIND_REGION);
}

Test(fast_register, valid_already)
{
	post(registration(0, PAGE));
	expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
	post(registration(PAGE, PAGE));
	cr_expect_eq(expect_cqe(raw.qp, 1, NT_ACCESS_VIOLATION).provider_error,
		     VERDICT_ACCESS + BIND_BOUND);
}

/*
 * An unacknowledged SEND may have to be sent again from the region: an invalidate behind it waits
 * until that is over.
 */
Test(fast_register, an_invalidate_leaves_its_own_requests_alone)
{
	const struct shm_sge sge = { BASE, 100, local_token };
	struct wire_view view;

	post(registration(0, PAGE));
	expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
	post_send(&raw.end, raw.qp, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 5 },
		  &sge, 1);
	invalidate(2);
	cr_assert(raw_receive(&raw, &view));
	expect_no_cqe(raw.qp);
	/* Lost: sent again, from the region. */
	raw.now += 10000000000ull;
	settle();
	cr_assert(raw_receive(&raw, &view));
	cr_expect_eq(view.opcode, OP_RC_SEND_ONLY);
	cr_expect_arr_eq(view.payload, raw.end.bytes, 100);
	expect_no_cqe(raw.qp);
	RAW_SEND(&raw, .opcode = OP_RC_ACKNOWLEDGE, .psn = RAW_SEND_PSN, .syndrome = 0x1f,
		 .msn = 1);
	settle();
	expect_cqe(raw.qp, 5, NT_SUCCESS_STATUS);
	expect_cqe(raw.qp, 2, NT_SUCCESS_STATUS);
}

/* A registration outlives the process that made it. */
Test(fast_register, adoption)
{
	post(registration(PAGE, PAGE));
	expect_cqe(raw.qp, 1, NT_SUCCESS_STATUS);
	end_restart(&raw.end, raw.now);
	write_packet(P, BASE, "adopted");
	raw_expect_ack(&raw, P, 1);
	cr_expect_arr_eq(raw.end.bytes + PAGE, "adopted", 7);
	invalidate(2);
	expect_cqe(raw.qp, 2, NT_SUCCESS_STATUS);
}
