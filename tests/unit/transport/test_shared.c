/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables and numbers of queue pairs, verdict names, and adoption of an arena. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/private.h"
#include "rig.h"

static struct rig rig;

static void setup(void)
{
	rig_create(&rig);
}

static void teardown(void)
{
	rig_destroy(&rig);
}

TestSuite(shared, .init = setup, .fini = teardown);

static struct qp_config small_config(void)
{
	struct qp_config config = { .session = RIG_SESSION,
				    .type = SHM_QP_RC,
				    .send_depth = 1,
				    .receive_depth = 1,
				    .send_sge = 1,
				    .receive_sge = 1 };

	config.memory_size = qp_memory_size(&config);
	config.memory = calloc(1, config.memory_size);
	return config;
}

Test(shared, b71_numbers_are_unique_and_never_special)
{
	struct qp_config config = small_config();
	uint8_t *seen = calloc(1, 1 << 24);
	uint32_t last = 0, near = 0;

	for (int i = 0; i < 100000; i++) {
		uint32_t qp = qp_create(rig.a.shared, &config);
		uint32_t number = qp_number(rig.a.shared, qp);

		cr_assert_neq(qp, 0);
		cr_assert(number > 1 && number < 0xffffff);
		cr_assert_not(seen[number], "number %#x again after %d", number, i);
		seen[number] = 1;
		near += number - last < 256;
		last = number;
		cr_assert_eq(qp_find(rig.a.shared, number), qp);
		qp_destroy(rig.a.shared, qp);
		cr_assert_eq(qp_find(rig.a.shared, number), 0);
	}
	cr_assert_lt(near, 100, "numbers are not neighbours");
	free(seen);
	free(config.memory);
}

Test(shared, the_table_ends)
{
	struct qp_config config = small_config();
	uint32_t count = 0, first = 0, qp;

	while ((qp = qp_create(rig.a.shared, &config)) != 0) {
		first = first ? first : qp;
		count++;
	}
	cr_assert_eq(count, qp_table_size(rig.a.shared) - 1);
	qp_destroy(rig.a.shared, first);
	cr_assert_eq(qp_create(rig.a.shared, &config), first);
	free(config.memory);
}

Test(shared, what_is_not_there_is_not_pretended)
{
	struct qp_config config = small_config();

	config.type = 2;
	cr_assert_eq(qp_create(rig.a.shared, &config), 0);
	config.type = SHM_QP_RC;
	config.memory_size--;
	cr_assert_eq(qp_create(rig.a.shared, &config), 0);
	config.memory_size++;
	config.send_sge = 17;
	cr_assert_eq(qp_create(rig.a.shared, &config), 0);
	free(config.memory);
}

Test(shared, impossible_connections)
{
	struct rig_qp *qp = end_open_qp(&rig.a, 0, 8);
	struct qp_connection good = rig_connection(), c;

	memcpy(good.path.local_gid, rig.a.gid, 16);
	memcpy(good.path.remote_gid, rig.b.gid, 16);
	c = good;
	c.path_mtu = 1500;
	cr_assert_eq(transport_connect(rig.a.worker[0], qp->index, &c, 1), -EINVAL);
	c = good;
	c.max_reads_in = 17;
	cr_assert_eq(transport_connect(rig.a.worker[0], qp->index, &c, 1), -EINVAL);
	c = good;
	c.path.remote_gid[10] = 0;
	cr_assert_eq(transport_connect(rig.a.worker[0], qp->index, &c, 1), -EINVAL);
	cr_assert_eq(transport_connect(rig.a.worker[0], qp->index, &good, 1), 0);
	cr_assert_eq(transport_connect(rig.a.worker[0], qp->index, &good, 1), -EISCONN);
}

Test(shared, every_verdict_has_a_name_of_its_own)
{
	const char *names[VERDICTS];
	uint32_t count = 0;

	for (uint32_t i = 0; i < VERDICTS; i++) {
		const char *name = verdict_name(i);

		cr_assert_eq(name == NULL, verdict_text(i) == NULL);
		if (name == NULL)
			continue;
		for (const char *c = name; *c; c++)
			cr_assert((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_',
				  "%s", name);
		for (uint32_t k = 0; k < count; k++)
			cr_assert_neq(strcmp(names[k], name), 0, "%s twice", name);
		names[count++] = name;
	}
	cr_assert_gt(count, 60);
	cr_assert_eq(strcmp(verdict_name(VERDICT(QP_UNKNOWN)), "qp_unknown"), 0);
	cr_assert_null(verdict_name(255));
	cr_assert_null(verdict_name(100000));
}

Test(shared, record_sizes_stay_small)
{
	cr_assert_leq(sizeof(struct qp) + 16 * sizeof(struct responder_resource), 2048);
}

/* --- adoption -------------------------------------------------------------------------- */

/* The process-local half dies; another process takes over arena and segments. */
static void kill_and_adopt(struct end *end)
{
	const struct transport_sizes sizes = end->shared->sizes;
	const struct transport_io io = end->worker[0]->io;
	struct transport_shared *shared;

	end_drain(end);
	transport_destroy(end->worker[0]);
	transport_shared_destroy(end->shared);
	cr_assert_eq(transport_shared_create(&shared, &end->arena, end->memory, &sizes, true), 0);
	end->shared = shared;
	transport_set_session(shared, RIG_SESSION, end->session);
	for (uint32_t i = 0; i < end->qps; i++) {
		cq_set_memory(shared, end->qp[i].cq, end->qp[i].cq_memory);
		qp_set_memory(shared, end->qp[i].index, end->qp[i].memory);
	}
	cr_assert_eq(transport_create(&end->worker[0], shared, 0, &io), 0);
	transport_adopt_session(end->worker[0], RIG_SESSION);
	for (uint32_t i = 0; i < end->qps; i++)
		transport_attach(end->worker[0], end->qp[i].index, rig.now);
}

Test(shared, adopted_in_the_middle_of_everything)
{
	for (uint32_t when = 0; when < 24; when++) {
		struct rig_qp *qa, *qb;
		uint64_t *counter;

		if (when)
			setup();
		rig_connect(&rig, &qa, &qb);
		counter = (uint64_t *)(void *)(rig.b.bytes + (3u << 20));
		fill(rig.a.bytes, 300000, when);
		for (uint64_t i = 0; i < 20; i++) {
			static const uint8_t order[4] = { SHM_WR_WRITE, SHM_WR_READ, SHM_WR_SEND,
							  SHM_WR_FETCH_ADD };
			const uint8_t opcode = order[i % 4];
			const struct shm_sge sge =
				sge_at(&rig.a, opcode == SHM_WR_FETCH_ADD ? 3u << 20 : i * 10000,
				       opcode == SHM_WR_FETCH_ADD ? 8 : 9000);
			const struct shm_sge sink = sge_at(&rig.b, (1u << 20) + i * 10000, 9000);

			if (opcode == SHM_WR_SEND)
				post_receive(&rig.b, qb, i, &sink, 1);
			post_send(
				&rig.a, qa,
				(struct shm_sqe){ .opcode = opcode,
						  .request_context = i,
						  .address = RIG_BASE + (opcode == SHM_WR_FETCH_ADD
										 ? 3u << 20
										 : i * 10000),
						  .token = rig.b.remote_token,
						  .swap = 1 },
				&sge, 1);
		}
		for (uint32_t turns = 0; turns < when / 2; turns++)
			rig_turn(&rig);
		kill_and_adopt(when % 2 ? &rig.b : &rig.a);
		rig_run(&rig, rig.now + 5000000000ull);
		for (uint64_t i = 0; i < 20; i++)
			expect_cqe(qa, i, 0);
		expect_no_cqe(qa);
		for (uint64_t i = 0; i < 5; i++)
			expect_cqe(qb, 4 * i + 2, 0);
		expect_no_cqe(qb);
		cr_assert_eq(*counter, 5, "each atomic once, killed at turn %u", when);
		for (uint64_t i = 0; i < 20; i += 4) {
			cr_assert_arr_eq(rig.b.bytes + i * 10000, rig.a.bytes + i * 10000, 9000);
			cr_assert_arr_eq(rig.b.bytes + (1u << 20) + (i + 2) * 10000,
					 rig.a.bytes + (i + 2) * 10000, 9000);
		}
		if (when < 23)
			teardown();
	}
}

/* A record that was armed when the process died is carried out, and only once. */
Test(shared, an_armed_intent_is_finished)
{
	struct worker_state *state = arena_record(&rig.a.arena, ARENA_WORKERS, 1);
	struct intent *intent = &state->intent;
	struct rig_qp *qa, *qb;
	struct qp *qp;

	rig_connect(&rig, &qa, &qb);
	qp = arena_record(&rig.a.arena, ARENA_QPS, qa->index);
	post_receive(&rig.a, qa, 31, NULL, 0);
	*intent = (struct intent){
		.qp = qa->index,
		.cq = qa->cq,
		.cq_tail = 0,
		.receive_taken = 1,
		.responder = responder_word(0x101, 1, 0, MESSAGE_NONE),
		.cqe = { .request_context = 31,
			 .qp_context = qa->config.qp_context,
			 .qpn = qa->number },
		.armed = INTENT_CQE | INTENT_RECEIVE | INTENT_RESPONDER,
	};
	for (int i = 0; i < 2; i++) {
		kill_and_adopt(&rig.a);
		rig_settle(&rig);
	}
	cr_assert_eq(intent->armed, 0);
	cr_assert_eq(responder_psn(qp->responder), 0x101);
	cr_assert_eq(responder_msn(qp->responder), 1);
	cr_assert_eq(qp->receive.taken, 1);
	expect_cqe(qa, 31, 0);
	expect_no_cqe(qa);
}
