/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting: flags, limits, rings, doorbells, deferral. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define DOORBELL 70u

static bool rung(struct rig *rig)
{
	return fake_rung(&rig->fake, 0, DOORBELL);
}

static const struct shm_sqe *sqe(struct rig *rig, uint32_t index)
{
	return fake_sqe(rig->fake.qp[0], index);
}

static void set_up(struct rig *rig)
{
	rig_connected(rig);
	rig_memory(rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	rung(rig);
}

/* --- what is posted ------------------------------------------------------------------------ */

Test(post, send_is_in_the_ring_and_the_bell_has_rung)
{
	const struct shm_sge *sge;
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(NdkSend(rig.qp, (PVOID)0x77, &rig.sge, 1, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT),
		     STATUS_SUCCESS);
	cr_expect(rung(&rig));
	cr_expect_eq(rig.fake.qp[0]->send.tail, 1);
	cr_expect_eq(sqe(&rig, 0)->opcode, SHM_WR_SEND);
	cr_expect_eq(sqe(&rig, 0)->flags, SHM_FLAG_SOLICIT);
	cr_expect_eq(sqe(&rig, 0)->request_context, 0x77);
	cr_expect_eq(sqe(&rig, 0)->nsge, 1);
	sge = (const struct shm_sge *)(sqe(&rig, 0) + 1);
	cr_expect_eq(sge->address, (uintptr_t)rig.mdl->StartVa);
	cr_expect_eq(sge->length, 64);
	cr_expect_eq(sge->token, 0x51);
	rig_close(&rig);
}

/* Flags come before RemoteToken here, and only here. */
Test(post, send_and_invalidate_carries_the_peers_token)
{
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(
		NdkSendAndInvalidate(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_SILENT_SUCCESS, 0xdeadbeef),
		STATUS_SUCCESS);
	cr_expect_eq(sqe(&rig, 0)->opcode, SHM_WR_SEND_INVALIDATE);
	cr_expect_eq(sqe(&rig, 0)->token, 0xdeadbeef);
	cr_expect_eq(sqe(&rig, 0)->flags, SHM_FLAG_SILENT_SUCCESS);
	rig_close(&rig);
}

Test(post, read_and_write)
{
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(NdkRead(rig.qp, NULL, &rig.sge, 1, 0x123456789, 42, NDK_OP_FLAG_READ_FENCE),
		     STATUS_SUCCESS);
	cr_assert_eq(NdkWrite(rig.qp, NULL, NULL, 0, 0x1000, 43, 0), STATUS_SUCCESS);
	cr_expect_eq(sqe(&rig, 0)->opcode, SHM_WR_READ);
	cr_expect_eq(sqe(&rig, 0)->address, 0x123456789);
	cr_expect_eq(sqe(&rig, 0)->token, 42);
	cr_expect_eq(sqe(&rig, 1)->opcode, SHM_WR_WRITE);
	cr_expect_eq(sqe(&rig, 1)->nsge, 0);
	rig_close(&rig);
}

/* shm_qp.home: the bell is rung where the queue pair is, not where it was created. */
Test(post, the_bell_rings_where_the_queue_pair_has_moved_to)
{
	struct rig rig;

	set_up(&rig);
	__atomic_store_n(&rig.fake.qp[0]->home, 1, __ATOMIC_RELAXED);
	cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	cr_expect(fake_rung(&rig.fake, 1, DOORBELL));
	cr_expect_not(fake_rung(&rig.fake, 0, DOORBELL));
	cr_assert_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_SUCCESS);
	cr_expect(fake_rung(&rig.fake, 1, DOORBELL));
	/* One that cannot be is rung nowhere: the daemon's mistake must not become ours. */
	__atomic_store_n(&rig.fake.qp[0]->home, 99, __ATOMIC_RELAXED);
	cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* NdkRead: ignored if the adapter does not report support. */
Test(post, read_local_invalidate_is_ignored)
{
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(
		NdkRead(rig.qp, NULL, &rig.sge, 1, 0, 42, NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE),
		STATUS_SUCCESS);
	cr_expect_eq(sqe(&rig, 0)->flags, 0);
	rig_close(&rig);
}

Test(post, immediates_and_atomics)
{
	struct rig rig;
	NDK_SGE result;

	set_up(&rig);
	result = rig.sge;
	result.Length = 8;
	cr_assert_eq(OrielSendImmediate(rig.qp, NULL, NULL, 0, 0, 0x01020304), STATUS_SUCCESS);
	cr_assert_eq(OrielWriteImmediate(rig.qp, NULL, NULL, 0, 1, 2, 0, 0x05060708),
		     STATUS_SUCCESS);
	cr_assert_eq(OrielFetchAdd(rig.qp, NULL, &result, 8, 9, 10, 0), STATUS_SUCCESS);
	cr_assert_eq(OrielCompareSwap(rig.qp, NULL, &result, 8, 9, 11, 12, 0), STATUS_SUCCESS);
	cr_expect_eq(sqe(&rig, 0)->opcode, SHM_WR_SEND_IMMEDIATE);
	cr_expect_eq(sqe(&rig, 0)->immediate, 0x01020304);
	cr_expect_eq(sqe(&rig, 1)->opcode, SHM_WR_WRITE_IMMEDIATE);
	cr_expect_eq(sqe(&rig, 1)->immediate, 0x05060708);
	cr_expect_eq(sqe(&rig, 2)->opcode, SHM_WR_FETCH_ADD);
	cr_expect_eq(sqe(&rig, 2)->swap, 10);
	cr_expect_eq(sqe(&rig, 3)->opcode, SHM_WR_COMPARE_SWAP);
	cr_expect_eq(sqe(&rig, 3)->compare, 11);
	cr_expect_eq(sqe(&rig, 3)->swap, 12);
	fake_take_sends(rig.fake.qp[0]);
	result.Length = 4;
	cr_expect_eq(OrielFetchAdd(rig.qp, NULL, &result, 8, 9, 10, 0), STATUS_INVALID_BUFFER_SIZE);
	result.Length = 16;
	cr_expect_eq(OrielFetchAdd(rig.qp, NULL, &result, 8, 9, 10, 0), STATUS_INVALID_BUFFER_SIZE);
	cr_expect_eq(OrielFetchAdd(rig.qp, NULL, NULL, 8, 9, 10, 0), STATUS_INVALID_PARAMETER);
	rig_close(&rig);
}

/* --- refusals ------------------------------------------------------------------------ */

Test(post, flags_that_do_not_belong)
{
	const ULONG wrong_for_send[] = { NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_RDMA_READ_SINK,
					 NDK_OP_FLAG_RDMA_READ_LOCAL_INVALIDATE,
					 ORIEL_OP_FLAG_TIE_TO_QP, 0x80000000 };
	struct rig rig;

	set_up(&rig);
	for (unsigned int i = 0; i < 5; i++) {
		cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, wrong_for_send[i]),
			     STATUS_INVALID_PARAMETER, "flag %#x", wrong_for_send[i]);
		cr_expect_eq(NdkWrite(rig.qp, NULL, NULL, 0, 0, 0, wrong_for_send[i]),
			     STATUS_INVALID_PARAMETER, "flag %#x", wrong_for_send[i]);
	}
	cr_expect_eq(NdkWrite(rig.qp, NULL, NULL, 0, 0, 0, NDK_OP_FLAG_SEND_AND_SOLICIT_EVENT),
		     STATUS_INVALID_PARAMETER);
	cr_expect_eq(NdkRead(rig.qp, NULL, NULL, 0, 0, 0, NDK_OP_FLAG_INLINE),
		     STATUS_INVALID_PARAMETER, "NdkRead has no INLINE");
	cr_expect_eq(rig.fake.qp[0]->send.tail, 0);
	rig_close(&rig);
}

Test(post, needs_a_connection_but_for_receives)
{
	struct rig rig;

	rig_queues(&rig);
	rig_memory(&rig, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkRead(rig.qp, NULL, NULL, 0, 0, 0, 0), STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkWrite(rig.qp, NULL, NULL, 0, 0, 0, 0), STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkSendAndInvalidate(rig.qp, NULL, NULL, 0, 0, 0), STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkBind(rig.qp, NULL, rig.mr, rig.mw, rig.mdl->StartVa, 8, 0),
		     STATUS_CONNECTION_INVALID);
	cr_expect_eq(NdkInvalidate(rig.qp, NULL, &rig.mw->Header, 0), STATUS_CONNECTION_INVALID);
	rung(&rig);
	cr_expect_eq(NdkReceive(rig.qp, NULL, &rig.sge, 1), STATUS_SUCCESS);
	cr_expect(rung(&rig), "the ring is there from the creation on");
	cr_expect_eq(rig.fake.qp[0]->receive.tail, 1);
	rig_close(&rig);
}

Test(post, too_many_pieces)
{
	NDK_SGE sge[3] = { { .Length = 1 }, { .Length = 1 }, { .Length = 1 } };
	struct rig rig;

	set_up(&rig);
	cr_expect_eq(NdkSend(rig.qp, NULL, sge, 3, 0), STATUS_DATA_OVERRUN);
	cr_expect_eq(NdkRead(rig.qp, NULL, sge, 3, 0, 0, 0), STATUS_DATA_OVERRUN);
	cr_expect_eq(NdkReceive(rig.qp, NULL, sge, 3), STATUS_DATA_OVERRUN);
	cr_expect_eq(NdkSend(rig.qp, NULL, sge, 2, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* B106: the sum needs 64 bits. */
Test(post, lengths_that_overflow_32_bits)
{
	NDK_SGE sge[2] = { { .Length = 0x80000000 }, { .Length = 0x80000001 } };
	struct rig rig;

	set_up(&rig);
	cr_expect_eq(NdkSend(rig.qp, NULL, sge, 2, 0), STATUS_BUFFER_OVERFLOW);
	cr_expect_eq(NdkWrite(rig.qp, NULL, sge, 2, 0, 0, 0), STATUS_BUFFER_OVERFLOW);
	cr_expect_eq(NdkReceive(rig.qp, NULL, sge, 2), STATUS_BUFFER_OVERFLOW);
	cr_expect_eq(NdkSend(rig.qp, NULL, &sge[1], 1, 0), STATUS_BUFFER_OVERFLOW);
	cr_expect_eq(NdkSend(rig.qp, NULL, &sge[0], 1, 0), STATUS_SUCCESS, "2^31 is the most");
	rig_close(&rig);
}

Test(post, queue_full_until_the_worker_is_done)
{
	struct rig rig;

	set_up(&rig);
	for (unsigned int i = 0; i < 4; i++)
		cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_SILENT_SUCCESS),
			     STATUS_SUCCESS);
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_NO_MORE_ENTRIES);
	cr_expect_eq(rig.fake.qp[0]->send.tail, 4);
	/* Silent ones free their slots without an entry in the CQ. */
	rig.fake.qp[0]->send.done = 1;
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_NO_MORE_ENTRIES);
	for (unsigned int i = 0; i < 4; i++)
		cr_assert_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_SUCCESS);
	cr_expect_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_NO_MORE_ENTRIES);
	rig.fake.qp[0]->receive.done = 4;
	cr_expect_eq(NdkReceive(rig.qp, NULL, NULL, 0), STATUS_SUCCESS);
	rig_close(&rig);
}

/* B102: cursors wrap at 2^32 and slots long before. */
Test(post, rings_wrap)
{
	struct rig rig;

	set_up(&rig);
	for (uintptr_t i = 0; i < 1000; i++) {
		cr_assert_eq(NdkSend(rig.qp, (PVOID)i, &rig.sge, 1, 0), STATUS_SUCCESS);
		cr_assert_eq(sqe(&rig, (uint32_t)i)->request_context, i);
		cr_assert_eq(sqe(&rig, (uint32_t)i)->nsge, 1);
		fake_take_sends(rig.fake.qp[0]);
	}
	rig_close(&rig);
}

/* --- inline -------------------------------------------------------------------------- */

Test(post, inline_copies_all_pieces_whatever_their_number_and_tokens)
{
	char text[] = "abcdefgh";
	NDK_SGE sge[4] = { { .VirtualAddress = text, .Length = 3 },
			   { .Length = 0 },
			   { .VirtualAddress = text + 3, .Length = 4, .MemoryRegionToken = 99 },
			   { .VirtualAddress = text + 7, .Length = 1 } };
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(NdkSend(rig.qp, NULL, sge, 4, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
	memset(text, 'x', sizeof(text));
	cr_expect_eq(sqe(&rig, 0)->inline_length, 8);
	cr_expect_eq(sqe(&rig, 0)->nsge, 0);
	cr_expect_arr_eq(sqe(&rig, 0) + 1, "abcdefgh", 8);
	rig_close(&rig);
}

Test(post, inline_to_its_limit_and_no_further)
{
	char data[65] = { 0 };
	NDK_SGE sge = { .VirtualAddress = data, .Length = 64 };
	struct rig rig;

	set_up(&rig);
	cr_expect_eq(NdkWrite(rig.qp, NULL, &sge, 1, 0, 0, NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
	sge.Length = 65;
	cr_expect_eq(NdkWrite(rig.qp, NULL, &sge, 1, 0, 0, NDK_OP_FLAG_INLINE),
		     STATUS_INVALID_BUFFER_SIZE);
	rig_close(&rig);
}

/* --- deferral ------------------------------------------------------------------------ */

Test(post, deferred_requests_go_with_the_next_that_is_not)
{
	struct rig rig;

	set_up(&rig);
	cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
	cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
	cr_expect_not(rung(&rig));
	cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	cr_expect(rung(&rig));
	cr_expect_eq(rig.fake.qp[0]->send.tail, 3);
	rig_close(&rig);
}

/* The design guide's worked case, with every kind of failure; B107. */
Test(post, a_failing_post_hands_over_what_was_deferred)
{
	for (unsigned int kind = 0; kind < 7; kind++) {
		NDK_SGE sge[3] = { 0 };
		struct rig rig;
		NTSTATUS status = STATUS_SUCCESS;

		set_up(&rig);
		cr_assert_eq(NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
		cr_assert_not(rung(&rig));
		switch (kind) {
		case 0: status = NdkSend(rig.qp, NULL, NULL, 0, 0x80000000); break;
		case 1: status = NdkSend(rig.qp, NULL, sge, 3, NDK_OP_FLAG_DEFER); break;
		case 2:
			status = NdkBind(rig.qp, NULL, rig.mr, rig.mw, NULL, 8, NDK_OP_FLAG_DEFER);
			break;
		case 3:
			status = NdkInvalidate(rig.qp, NULL, &rig.mw->Header, NDK_OP_FLAG_DEFER);
			break;
		case 4: status = NdkRead(rig.qp, NULL, NULL, 0, 0, 0, NDK_OP_FLAG_INLINE); break;
		case 5: status = OrielFetchAdd(rig.qp, NULL, NULL, 0, 1, 1, 0); break;
		case 6: status = OrielCompareSwap(rig.qp, NULL, sge, 0, 1, 1, 1, 0); break;
		}
		cr_expect_lt(status, 0, "kind %u", kind);
		cr_expect(rung(&rig), "kind %u", kind);
		cr_expect_eq(rig.fake.qp[0]->send.tail, 1);
		rig_close(&rig);
	}
}

Test(post, a_full_queue_hands_over_what_was_deferred)
{
	struct rig rig;

	set_up(&rig);
	for (unsigned int i = 0; i < 4; i++)
		NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER);
	cr_assert_not(rung(&rig));
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER), STATUS_NO_MORE_ENTRIES);
	cr_expect(rung(&rig));
	cr_expect_eq(rig.fake.qp[0]->send.tail, 4);
	rig_close(&rig);
}

Test(post, flush_hands_over_what_was_deferred_and_asks_the_daemon)
{
	struct rig rig;

	set_up(&rig);
	NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER);
	NdkFlush(rig.qp);
	cr_expect(rung(&rig));
	NdkFlush(rig.qp);
	rig_run(&rig);
	cr_expect_eq(rig.fake.requests[SHM_OP_FLUSH_QP], 1, "one under way is enough");
	NdkFlush(rig.qp);
	rig_run(&rig);
	cr_expect_eq(rig.fake.requests[SHM_OP_FLUSH_QP], 2);
	rig_close(&rig);
}

Test(post, close_hands_over_what_was_deferred)
{
	struct outcome outcome = { 0 };
	struct rig rig;

	set_up(&rig);
	NdkSend(rig.qp, NULL, NULL, 0, NDK_OP_FLAG_DEFER);
	NdkCloseQp(rig.qp, on_closed, &outcome);
	cr_expect(rung(&rig));
	rig_run(&rig);
	rig_close(&rig);
}

/* NdkFlush is legal before connecting. */
Test(post, flush_of_an_unconnected_queue_pair)
{
	struct rig rig;

	rig_queues(&rig);
	NdkFlush(rig.qp);
	rig_run(&rig);
	cr_expect_eq(rig.fake.requests[SHM_OP_FLUSH_QP], 1);
	rig_close(&rig);
}

Test(post, connecting_by_number)
{
	struct rig rig;

	rig_connected(&rig);
	cr_expect_eq(OrielGetQpNumber(rig.qp), 0x100);
	cr_expect_eq(rig.fake.last[SHM_OP_CONNECT_QP].connect_qp.path_mtu, 1024);
	cr_expect_eq(NdkSend(rig.qp, NULL, NULL, 0, 0), STATUS_SUCCESS);
	rig_close(&rig);
}
