/* SPDX-License-Identifier: BSD-3-Clause */
/* Everything that two connected ends may do with each other when nothing is lost. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

static const uint32_t sizes[] = { 0,    1,    3,    4,    1023, 1024,  1025,  2047,
				  2048, 2049, 4095, 4096, 4097, 65537, 262144 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static struct rig rig;
static struct rig_qp *qa, *qb;

static void setup(void)
{
	rig_create(&rig);
	rig_connect(&rig, &qa, &qb);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(traffic, .init = setup, .fini = teardown);

Test(traffic, b21_write_of_every_length)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		const struct shm_sge sge = sge_at(&rig.a, 64, sizes[i]);

		fill(rig.a.bytes + 64, sizes[i], i);
		memset(rig.b.bytes, 0xee, RIG_MEMORY);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
					    .request_context = i,
					    .address = RIG_BASE + 4096,
					    .token = rig.b.remote_token },
			  &sge, 1);
		rig_settle(&rig);
		cr_assert_eq(expect_cqe(qa, i, 0).type, 64);
		cr_assert_arr_eq(rig.b.bytes + 4096, rig.a.bytes + 64, sizes[i]);
		cr_assert_eq(rig.b.bytes[4095], 0xee);
		cr_assert_eq(rig.b.bytes[4096 + sizes[i]], 0xee);
	}
	expect_no_cqe(qb);
}

Test(traffic, b21_send_of_every_length)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		const struct shm_sge sge = sge_at(&rig.a, 0, sizes[i]);
		const struct shm_sge sink = sge_at(&rig.b, 128, 300000);
		struct shm_cqe cqe;

		fill(rig.a.bytes, sizes[i], i);
		post_receive(&rig.b, qb, 1000 + i, &sink, 1);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = i }, &sge, 1);
		rig_settle(&rig);
		cr_assert_eq(expect_cqe(qa, i, 0).type, 2);
		cqe = expect_cqe(qb, 1000 + i, 0);
		cr_assert_eq(cqe.type, 1);
		cr_assert_eq(cqe.bytes, sizes[i]);
		cr_assert_arr_eq(rig.b.bytes + 128, rig.a.bytes, sizes[i]);
		cr_assert_eq(qb->memory->receive.done, i + 1);
		cr_assert_eq(qa->memory->send.done, i + 1);
	}
}

Test(traffic, b21_read_of_every_length)
{
	for (uint32_t i = 0; i < SIZES; i++) {
		const struct shm_sge sge = sge_at(&rig.a, 0, sizes[i]);

		fill(rig.b.bytes + 77, sizes[i], i + 3);
		memset(rig.a.bytes, 0, sizes[i] + 1);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_READ,
					    .request_context = i,
					    .address = RIG_BASE + 77,
					    .token = rig.b.remote_token },
			  &sge, 1);
		rig_settle(&rig);
		cr_assert_eq(expect_cqe(qa, i, 0).type, 32);
		cr_assert_arr_eq(rig.a.bytes, rig.b.bytes + 77, sizes[i]);
		cr_assert_eq(rig.a.bytes[sizes[i]], 0);
	}
}

Test(traffic, scatter_and_gather_over_odd_pieces)
{
	const struct shm_sge from[3] = { sge_at(&rig.a, 0, 1000), sge_at(&rig.a, 5000, 0),
					 sge_at(&rig.a, 2000, 1501) };
	const struct shm_sge to[4] = { sge_at(&rig.b, 0, 1), sge_at(&rig.b, 10, 1023),
				       sge_at(&rig.b, 2000, 0), sge_at(&rig.b, 3000, 4000) };
	uint8_t sent[2501], got[2501];

	fill(rig.a.bytes, 8192, 5);
	memcpy(sent, rig.a.bytes, 1000);
	memcpy(sent + 1000, rig.a.bytes + 2000, 1501);
	post_receive(&rig.b, qb, 7, to, 4);
	post_send(&rig.a, qa, (struct shm_sqe){ .opcode = SHM_WR_SEND, .request_context = 8 }, from,
		  3);
	rig_settle(&rig);
	expect_cqe(qa, 8, 0);
	cr_assert_eq(expect_cqe(qb, 7, 0).bytes, 2501);
	memcpy(got, rig.b.bytes, 1);
	memcpy(got + 1, rig.b.bytes + 10, 1023);
	memcpy(got + 1024, rig.b.bytes + 3000, 1477);
	cr_assert_arr_eq(sent, got, 2501);
}

Test(traffic, inline_data_is_copied_at_post)
{
	uint8_t data[64];
	const struct shm_sge sink = sge_at(&rig.b, 0, 64);

	fill(data, 64, 9);
	post_receive(&rig.b, qb, 1, &sink, 1);
	post_send(&rig.a, qa,
		  (struct shm_sqe){
			  .opcode = SHM_WR_SEND, .flags = SHM_FLAG_INLINE, .inline_length = 61 },
		  (void *)data, 0);
	rig_settle(&rig);
	expect_cqe(qa, 0, 0);
	cr_assert_eq(expect_cqe(qb, 1, 0).bytes, 61);
	cr_assert_arr_eq(rig.b.bytes, data, 61);
}

Test(traffic, b23_write_with_immediate_tells_its_bytes)
{
	static const uint32_t lengths[] = { 0, 1, 1024, 3000 };

	for (uint32_t i = 0; i < 4; i++) {
		const struct shm_sge sge = sge_at(&rig.a, 0, lengths[i]);
		struct shm_cqe cqe;

		fill(rig.a.bytes, 3000, i);
		post_receive(&rig.b, qb, 50 + i, NULL, 0);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE_IMMEDIATE,
					    .request_context = i,
					    .address = RIG_BASE,
					    .token = rig.b.remote_token,
					    .immediate = 0x11223300 + i,
					    .flags = SHM_FLAG_SOLICIT },
			  &sge, 1);
		rig_settle(&rig);
		expect_cqe(qa, i, 0);
		cqe = expect_cqe(qb, 50 + i, 0);
		cr_assert_eq(cqe.type, 0x4001);
		cr_assert_eq(cqe.bytes, lengths[i]);
		cr_assert_eq(cqe.output, 0x11223300 + i);
		cr_assert_eq(cqe.solicited, 1);
		cr_assert_arr_eq(rig.b.bytes, rig.a.bytes, lengths[i]);
	}
}

Test(traffic, b12_immediate_is_opaque)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 5);
	struct shm_cqe cqe;

	post_receive(&rig.b, qb, 1, &sge, 1);
	post_send(&rig.a, qa,
		  (struct shm_sqe){ .opcode = SHM_WR_SEND_IMMEDIATE, .immediate = 0x01020304 },
		  &sge, 0);
	rig_settle(&rig);
	cqe = expect_cqe(qb, 1, 0);
	cr_assert_eq(cqe.type, 0x2001);
	cr_assert_eq(cqe.output, 0x01020304);
}

Test(traffic, b13_atomics_in_host_order)
{
	const struct shm_sge sge = sge_at(&rig.a, 8, 8);
	uint64_t *target = (uint64_t *)(void *)(rig.b.bytes + 64);
	uint64_t *result = (uint64_t *)(void *)(rig.a.bytes + 8);

	*target = 0x0102030405060708;
	post_send(&rig.a, qa,
		  (struct shm_sqe){ .opcode = SHM_WR_COMPARE_SWAP,
				    .request_context = 1,
				    .address = RIG_BASE + 64,
				    .token = rig.b.remote_token,
				    .compare = 0x0102030405060708,
				    .swap = 0x11121314ffffffff },
		  &sge, 1);
	rig_settle(&rig);
	cr_assert_eq(expect_cqe(qa, 1, 0).type, 0x200);
	cr_assert_eq(*result, 0x0102030405060708);
	cr_assert_eq(*target, 0x11121314ffffffff);
	post_send(&rig.a, qa,
		  (struct shm_sqe){ .opcode = SHM_WR_FETCH_ADD,
				    .request_context = 2,
				    .address = RIG_BASE + 64,
				    .token = rig.b.remote_token,
				    .swap = 1 },
		  &sge, 1);
	rig_settle(&rig);
	cr_assert_eq(expect_cqe(qa, 2, 0).type, 0x100);
	cr_assert_eq(*result, 0x11121314ffffffff);
	cr_assert_eq(*target, 0x1112131500000000);
}

Test(traffic, completions_come_in_posting_order)
{
	const struct shm_sge big = sge_at(&rig.a, 65536, 100000), small = sge_at(&rig.a, 0, 8);

	for (uint32_t round = 0; round < 20; round++) {
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_READ,
					    .request_context = 2 * round,
					    .address = RIG_BASE,
					    .token = rig.b.remote_token },
			  &big, 1);
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
					    .request_context = 2 * round + 1,
					    .address = RIG_BASE,
					    .token = rig.b.remote_token },
			  &small, 1);
	}
	rig_settle(&rig);
	for (uint32_t i = 0; i < 40; i++)
		expect_cqe(qa, i, 0);
	expect_no_cqe(qa);
}

Test(traffic, silent_success_is_silent_and_counted)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	for (uint32_t i = 0; i < 5; i++)
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
					    .flags = i < 4 ? SHM_FLAG_SILENT_SUCCESS : 0,
					    .request_context = i,
					    .address = RIG_BASE,
					    .token = rig.b.remote_token },
			  &sge, 1);
	rig_settle(&rig);
	expect_cqe(qa, 4, 0);
	expect_no_cqe(qa);
	cr_assert_eq(qa->memory->send.done, 5);
}

Test(traffic, both_directions_and_every_operation_many_times)
{
	const struct shm_sge sink_a = sge_at(&rig.a, 1 << 20, 4000);
	const struct shm_sge sink_b = sge_at(&rig.b, 1 << 20, 4000);

	for (uint32_t round = 0; round < 500; round++) {
		const uint32_t length = (round * 997) % 4000;
		const struct shm_sge a = sge_at(&rig.a, 0, length), b = sge_at(&rig.b, 0, length);

		fill(rig.a.bytes, 4000, round);
		fill(rig.b.bytes, 4000, round + 1);
		post_receive(&rig.a, qa, 1, &sink_a, 1);
		post_receive(&rig.b, qb, 2, &sink_b, 1);
		post_send(&rig.a, qa, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &a, 1);
		post_send(&rig.b, qb, (struct shm_sqe){ .opcode = SHM_WR_SEND }, &b, 1);
		rig_settle(&rig);
		cr_assert_arr_eq(rig.a.bytes, rig.b.bytes + (1 << 20), length);
		cr_assert_arr_eq(rig.b.bytes, rig.a.bytes + (1 << 20), length);
		for (int i = 0; i < 2; i++) {
			struct shm_cqe cqe;

			cr_assert(take_cqe(qa, &cqe) && cqe.status == 0);
			cr_assert(take_cqe(qb, &cqe) && cqe.status == 0);
		}
	}
	cr_assert_eq(transport_get_stats(rig.a.worker[0])->retransmits, 0);
	cr_assert_eq(transport_get_stats(rig.a.worker[0])->timeouts, 0);
}

Test(traffic, established_is_told_once)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	for (uint32_t i = 0; i < 3; i++)
		post_send(&rig.a, qa,
			  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
					    .address = RIG_BASE,
					    .token = rig.b.remote_token },
			  &sge, 1);
	rig_settle(&rig);
	cr_assert_eq(end_count_events(&rig.b, TRANSPORT_QP_ESTABLISHED), 1);
	cr_assert_eq(end_find_event(&rig.b, TRANSPORT_QP_ESTABLISHED)->object, qb->index);
}

/* More work requests than there are records for: who finds none waits its turn. */
Test(traffic, flight_records_run_out)
{
	struct rig_qp *na[3], *nb[3];
	const struct shm_sge sge = sge_at(&rig.a, 0, 8);

	for (int i = 0; i < 3; i++) {
		na[i] = end_open_qp(&rig.a, 0, 512);
		nb[i] = end_open_qp(&rig.b, 0, 8);
		rig_join(&rig, na[i], nb[i], rig_connection(), rig_connection());
	}
	for (uint64_t k = 0; k < 500; k++)
		for (int i = 0; i < 3; i++)
			post_send(&rig.a, na[i],
				  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
						    .request_context = k,
						    .address = RIG_BASE,
						    .token = rig.b.remote_token },
				  &sge, 1);
	/* As much as goes without an answer; then nothing is left to do but wait. */
	while (end_poll(&rig.a, rig.now))
		;
	cr_assert_eq(rig.a.out.tail, 599);
	cr_assert_gt(transport_next_deadline(rig.a.worker[0], rig.now), rig.now);
	rig_settle(&rig);
	for (uint64_t k = 0; k < 500; k++)
		for (int i = 0; i < 3; i++)
			expect_cqe(na[i], k, 0);
}

static void connect_over_ipv6(struct rig_qp **na, struct rig_qp **nb)
{
	struct qp_connection connection = rig_connection();

	rig.a.gid[0] = rig.b.gid[0] = 0xfd;
	rig.a.gid[10] = rig.b.gid[10] = 0;
	connection.path.vlan_tci = 0x6064;
	connection.path.traffic_class = 0x68;
	*na = end_open_qp(&rig.a, 0, 8);
	*nb = end_open_qp(&rig.b, 0, 8);
	rig_join(&rig, *na, *nb, connection, connection);
}

Test(traffic, ipv6_with_vlan_tag_and_traffic_class)
{
	const struct shm_sge sge = sge_at(&rig.a, 0, 3000);
	struct rig_qp *na, *nb;
	struct wire_view view;

	connect_over_ipv6(&na, &nb);
	fill(rig.a.bytes, 3000, 1);
	post_send(&rig.a, na,
		  (struct shm_sqe){ .opcode = SHM_WR_WRITE,
				    .request_context = 4,
				    .address = RIG_BASE,
				    .token = rig.b.remote_token },
		  &sge, 1);
	end_poll(&rig.a, rig.now);
	cr_assert_eq(wire_parse(rig.a.out.frame[0]->data, rig.a.out.frame[0]->length, &view),
		     WIRE_OK);
	cr_assert_not(view.is_v4);
	cr_assert(view.has_vlan);
	cr_assert_eq(view.vlan_tci, 0x6064);
	cr_assert_eq(view.traffic_class, 0x68);
	cr_assert_eq(view.hop_limit, 64);
	cr_assert_eq(view.source_port, roce_source_port(0, na->number, nb->number));
	rig_settle(&rig);
	expect_cqe(na, 4, 0);
	cr_assert_arr_eq(rig.a.bytes, rig.b.bytes, 3000);
}
