/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables and numbers of queue pairs, verdict names, and adoption of an arena. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transport/private.h"
#include "rig.h"

static struct rig rig;
static struct rig_qp *qa, *qb;

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

/* --- adoption ------------------------------------------------------------------------- */

Test(shared, adopted_in_the_middle_of_everything)
{
	for (uint32_t when = 0; when < 24; when++) {
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
		end_restart(when % 2 ? &rig.b : &rig.a, rig.now);
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
		/* Its limits still count right. */
		for (uint64_t i = 0; i < 40; i++) {
			const struct shm_sge sge = sge_at(&rig.a, 0, 8);

			post_send(&rig.a, qa,
				  (struct shm_sqe){ .opcode = SHM_WR_READ,
						    .request_context = i,
						    .address = RIG_BASE,
						    .token = rig.b.remote_token },
				  &sge, 1);
		}
		rig_settle(&rig);
		for (uint64_t i = 0; i < 40; i++)
			expect_cqe(qa, i, 0);
		if (when < 23)
			teardown();
	}
}

/* A record that was armed when the process died is carried out, and only once. */
Test(shared, an_armed_intent_is_finished)
{
	struct worker_state *state = arena_record(&rig.a.arena, ARENA_WORKERS, 1);
	struct intent *intent = &state->intent;
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
		end_restart(&rig.a, rig.now);
		rig_settle(&rig);
	}
	cr_assert_eq(intent->armed, 0);
	cr_assert_eq(responder_psn(qp->responder), 0x101);
	cr_assert_eq(responder_msn(qp->responder), 1);
	cr_assert_eq(qp->receive.taken, 1);
	expect_cqe(qa, 31, 0);
	expect_no_cqe(qa);
}

/* --- killed within a local operation ------------------------------------------------ */

#define OPEN (SHM_FLAG_ALLOW_REMOTE_READ | SHM_FLAG_ALLOW_REMOTE_WRITE)

static struct accessor accessor_of(struct end *end, struct rig_qp *qp)
{
	return (struct accessor){ .pd = end->pd, .qpn = qp->number, .session = RIG_SESSION };
}

static void post_bind(uint32_t token)
{
	post_send(&rig.a, qa,
		  (struct shm_sqe){ .opcode = SHM_WR_BIND,
				    .request_context = 1,
				    .mr = rig.a.region,
				    .mw = rig.a.window[0],
				    .token = token,
				    .address = RIG_BASE,
				    .length = 64,
				    .flags = OPEN },
		  NULL, 0);
}

static void post_invalidate(uint32_t token)
{
	post_send(&rig.a, qa,
		  (struct shm_sqe){
			  .opcode = SHM_WR_INVALIDATE, .request_context = 2, .token = token },
		  NULL, 0);
}

/* Lets the queue pair take its next entry and stops it within the call of lib/memory. */
static struct flight *stop_in_local_operation(void)
{
	struct qp *qp = arena_record(&rig.a.arena, ARENA_QPS, qa->index);
	struct flight *flight;

	cr_assert_eq(work_take_send(rig.a.worker[0], qp), WORK_TAKEN);
	flight = arena_record(&rig.a.arena, ARENA_FLIGHTS, qp->last_flight);
	flight->state = FLIGHT_EXECUTING;
	return flight;
}

static bool token_is_good(uint32_t token)
{
	const struct accessor who = accessor_of(&rig.a, qa);
	struct access access;

	return memory_access(rig.a.memory, &who, token, RIG_BASE, 8, RIGHT_REMOTE_READ, &access) ==
	       ACCESS_OK;
}

static void adopt_bind(bool done)
{
	const uint32_t token = end_token(&rig.a);
	const struct accessor who = accessor_of(&rig.a, qa);
	const struct bind_request request = { .region = rig.a.region,
					      .window = rig.a.window[0],
					      .token = token,
					      .rights = RIGHT_REMOTE_READ | RIGHT_REMOTE_WRITE,
					      .address = RIG_BASE,
					      .length = 64 };

	post_bind(token);
	stop_in_local_operation();
	if (done)
		cr_assert_eq(window_bind(rig.a.memory, &who, &request), ACCESS_OK);
	end_restart(&rig.a, rig.now);
	rig_settle(&rig);
	expect_cqe(qa, 1, 0);
	cr_assert(token_is_good(token));
}

Test(shared, adopted_behind_a_bind)
{
	rig_connect(&rig, &qa, &qb);
	adopt_bind(true);
}

Test(shared, adopted_before_a_bind)
{
	rig_connect(&rig, &qa, &qb);
	adopt_bind(false);
}

static void adopt_invalidate(bool done, bool recycled)
{
	const uint32_t token = end_token(&rig.a);
	const struct accessor who = accessor_of(&rig.a, qa);
	struct flight *flight;
	uint32_t slot = 0;
	uint64_t grace;

	post_bind(token);
	rig_settle(&rig);
	expect_cqe(qa, 1, 0);
	post_invalidate(token);
	flight = stop_in_local_operation();
	if (done)
		cr_assert_eq(token_invalidate(rig.a.memory, &who, token, false, &slot, &grace),
			     ACCESS_OK);
	if (recycled) {
		flight->state = FLIGHT_STARTED;
		flight->slot = slot;
		token_recycle(rig.a.memory, 0, slot);
	}
	end_restart(&rig.a, rig.now);
	rig_settle(&rig);
	expect_cqe(qa, 2, 0);
	expect_no_cqe(qa);
	cr_assert_not(token_is_good(token));
	cr_assert_leq(rig.a.session->worker[0].stock_cursor.tail, recycled ? 0 : 1);
}

Test(shared, adopted_before_an_invalidate)
{
	rig_connect(&rig, &qa, &qb);
	adopt_invalidate(false, false);
}

Test(shared, adopted_behind_an_invalidate)
{
	rig_connect(&rig, &qa, &qb);
	adopt_invalidate(true, false);
}

Test(shared, adopted_behind_the_recycling)
{
	rig_connect(&rig, &qa, &qb);
	adopt_invalidate(true, true);
}

/* A SEND with invalidate, killed when its token was revoked and nothing else known. */
static void adopt_remote_invalidate(bool done)
{
	const uint32_t token = end_token(&rig.a);
	const struct shm_sge sge = sge_at(&rig.a, 4096, 64), from = sge_at(&rig.b, 0, 5);
	const struct accessor who = accessor_of(&rig.a, qa);
	struct receive_hold *hold;
	struct shm_cqe cqe;
	struct qp *qp;
	uint64_t grace;
	uint32_t slot;

	qp = arena_record(&rig.a.arena, ARENA_QPS, qa->index);
	hold = arena_record(&rig.a.arena, ARENA_HOLDS, qa->index);
	post_bind(token);
	rig_settle(&rig);
	expect_cqe(qa, 1, 0);
	post_receive(&rig.a, qa, 9, &sge, 1);
	post_send(&rig.b, qb, (struct shm_sqe){ .opcode = SHM_WR_SEND_INVALIDATE, .token = token },
		  &from, 1);
	end_poll(&rig.b, rig.now);
	/* As it is when the frame has come that far. */
	hold->work = (struct receive_work){ .request_context = 9, .capacity = 64, .nsge = 1 };
	hold->invalidate = (struct remote_invalidate){ .token = token,
						       .bytes = 5,
						       .psn = responder_psn(qp->responder) };
	qp->flags |= QP_INVALIDATING;
	if (done)
		cr_assert_eq(token_invalidate(rig.a.memory, &who, token, true, &slot, &grace),
			     ACCESS_OK);
	end_restart(&rig.a, rig.now);
	rig_run(&rig, rig.now + 3000000000ull);
	cqe = expect_cqe(qa, 9, 0);
	cr_assert_eq(cqe.output, token);
	cr_assert_eq(cqe.bytes, 5);
	expect_no_cqe(qa);
	expect_cqe(qb, 0, 0);
	cr_assert_not(token_is_good(token));
	cr_assert_eq(qp->flags & (QP_INVALIDATING | QP_INVALIDATED), 0);
}

Test(shared, adopted_behind_a_remote_invalidate)
{
	rig_connect(&rig, &qa, &qb);
	adopt_remote_invalidate(true);
}

Test(shared, adopted_before_a_remote_invalidate)
{
	rig_connect(&rig, &qa, &qb);
	adopt_remote_invalidate(false);
}
