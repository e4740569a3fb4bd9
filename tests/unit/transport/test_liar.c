/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any answers in any order, drawn by a seed, near what is outstanding: whatever the requester
 * makes of them, it keeps its books right, completes in order, and goes on when the peer comes to
 * its senses.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "asking.h"
#include "transport/private.h"

#define SINKS 65536u
#define SLOT  8192u

static uint32_t state, posted, completed;
static bool failed;

static uint32_t draw(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % below;
}

static struct qp *qp(void)
{
	return &raw.end.shared->qps[raw.qp->index];
}

static struct flight *first(void)
{
	return qp()->first_flight ? &raw.end.shared->flights[qp()->first_flight] : NULL;
}

/* --- requests and their completions ---------------------------------------------------- */

static void post_one(void)
{
	static const uint8_t mix[] = { SHM_WR_SEND, SHM_WR_WRITE,     SHM_WR_WRITE_IMMEDIATE,
				       SHM_WR_READ, SHM_WR_FETCH_ADD, SHM_WR_READ };
	const uint8_t opcode = mix[draw(6)];
	const bool lands = opcode == SHM_WR_READ || opcode == SHM_WR_FETCH_ADD;
	const uint32_t length = opcode == SHM_WR_FETCH_ADD ? 8 : draw(4) ? draw(5000) : 0;
	const struct shm_sge sge =
		sge_at(&raw.end, lands ? SINKS + posted % 64 * SLOT : draw(4096), length);

	if (posted - raw.qp->memory->send.done == 64)
		return;
	post_send(&raw.end, raw.qp,
		  (struct shm_sqe){ .opcode = opcode,
				    .flags = (draw(4) ? 0 : SHM_FLAG_READ_FENCE) |
					     (draw(4) ? 0 : SHM_FLAG_SILENT_SUCCESS),
				    .request_context = posted },
		  &sge, 1);
	posted++;
}

/* In order; silent ones may be missing, unless they fail. */
static void take_completions(void)
{
	struct shm_cqe cqe;

	while (take_cqe(raw.qp, &cqe)) {
		cr_assert_geq(cqe.request_context, completed, "completed before");
		cr_assert_lt(cqe.request_context, posted);
		if (failed) {
			cr_assert_eq(cqe.status, NT_CANCELLED);
			cr_assert_eq(cqe.request_context, completed, "each one is told of");
		}
		failed |= cqe.status != 0;
		completed = (uint32_t)cqe.request_context + 1;
	}
}

/* --- books ----------------------------------------------------------------------------- */

static void check_books(void)
{
	const struct qp_local *local = &raw.end.shared->qp_local[raw.qp->index];
	const int32_t out = psn_diff(qp()->sent_psn, requester_una(qp()->requester));
	uint32_t count = 0, reads = 0, psns = 0;
	bool at_cursor = qp()->cursor == 0;

	for (uint32_t i = qp()->first_flight; i; i = raw.end.shared->flights[i].next) {
		const struct flight *flight = &raw.end.shared->flights[i];

		count++;
		at_cursor |= i == qp()->cursor;
		if (flight->state == FLIGHT_STARTED && flight_wants_response(flight)) {
			reads++;
			psns += flight->packets - flight_received(qp(), flight);
		}
	}
	cr_assert_eq(qp()->flights, count);
	cr_assert_eq(qp()->reads_out, reads);
	cr_assert_eq(qp()->read_psns, psns);
	cr_assert_leq(reads, qp()->max_reads_out);
	cr_assert(at_cursor, "the cursor is at a request in progress");
	cr_assert_geq(out, 0);
	cr_assert_eq(qp()->send.taken, requester_done(qp()->requester) + count);
	cr_assert_eq(raw.qp->memory->send.done, requester_done(qp()->requester));
	if (qp()->state == QP_RTS && (out || (qp()->flags & QP_RNR_WAIT)))
		cr_assert_neq(local->deadline, 0, "nothing would ever wake it");
}

/* --- answers --------------------------------------------------------------------------- */

/* The right one to what is expected at this PSN, as far as it is a READ or atomic. */
static bool respond_rightly(uint32_t psn)
{
	for (uint32_t i = qp()->first_flight; i; i = raw.end.shared->flights[i].next) {
		const struct flight *flight = &raw.end.shared->flights[i];
		const uint32_t at = (uint32_t)psn_diff(psn, flight->psn);
		const bool last = at + 1 == flight->packets;

		if (at >= flight->packets || !flight_wants_response(flight))
			continue;
		if (flight->opcode == SHM_WR_READ)
			respond(last ? OP_RC_READ_RESPONSE_LAST : OP_RC_READ_RESPONSE_MIDDLE, psn,
				NULL, last ? (uint32_t)flight->length - at * 1024 : 1024);
		else
			RAW_SEND(&raw, .opcode = OP_RC_ATOMIC_ACKNOWLEDGE, .psn = psn,
				 .syndrome = 0x1f);
		return true;
	}
	return false;
}

static void lie(void)
{
	static const uint8_t responses[] = { OP_RC_READ_RESPONSE_FIRST, OP_RC_READ_RESPONSE_MIDDLE,
					     OP_RC_READ_RESPONSE_LAST, OP_RC_READ_RESPONSE_ONLY };
	const uint32_t una = requester_una(qp()->requester);
	const uint32_t out = (uint32_t)psn_diff(qp()->sent_psn, una);
	const uint32_t psn = draw(50) ? una - 2 + draw(out + 4) : draw(1u << 24);

	switch (draw(12)) {
	case 0:
	case 1:
	case 2: ack(psn); break;
	case 3: answer(psn, 0x60); break;
	case 4: answer(psn, (uint8_t)(0x21 + draw(12))); break;
	case 5:
		raw.end.room = 8;
		if (next_deadline() != UINT64_MAX)
			sleep_until_deadline();
		break;
	case 6:
		if (draw(400) == 0)
			answer(psn, (uint8_t)draw(256));
		break;
	case 7:
		/* Of a length that is no packet's of a READ which goes on. */
		if (draw(20) == 0)
			respond(responses[draw(4)], psn, NULL, 8);
		break;
	case 8: raw.end.room = draw(8); break;
	default: respond_rightly(draw(3) ? una : psn);
	}
}

static void answer_rightly(void)
{
	const uint32_t una = requester_una(qp()->requester);

	if (una == qp()->sent_psn)
		return;
	if (!respond_rightly(una))
		ack(una);
}

static void converse(uint32_t seed)
{
	struct qp_connection connection = rig_connection();

	state = seed * 2654435761u + 1;
	posted = completed = 0;
	failed = false;
	connection.retry_count = 7;
	connection.max_reads_out = (uint8_t)(1 + draw(4));
	reopen(connection);
	qp()->next_psn = qp()->sent_psn = draw(2) ? 0xffffff - draw(40) : draw(1u << 24);
	qp()->requester = requester_word(qp()->next_psn, 0);
	for (uint32_t i = 0; i < 600 && qp()->state == QP_RTS; i++) {
		if (draw(3) == 0)
			post_one();
		lie();
		settle();
		frames_out();
		check_books();
		take_completions();
	}
	raw.end.room = 1000;
	for (uint32_t i = 0; i < 10000 && raw.qp->memory->send.done != posted; i++) {
		if (qp()->state == QP_RTS && requester_una(qp()->requester) == qp()->sent_psn &&
		    next_deadline() != UINT64_MAX)
			sleep_until_deadline();
		answer_rightly();
		settle();
		frames_out();
		check_books();
		take_completions();
	}
	cr_assert_eq(raw.qp->memory->send.done, posted, "seed %u: %u of %u done", seed,
		     raw.qp->memory->send.done, posted);
	cr_assert_eq(first(), NULL);
	cr_assert_eq(next_deadline(), UINT64_MAX);
	cr_assert_eq(failed, qp()->state == QP_ERROR);
}

Test(liar, any_answers_in_any_order, .init = asking_setup, .fini = asking_teardown)
{
	uint32_t lives = 0;

	for (uint32_t seed = 1; seed <= 300; seed++) {
		converse(seed);
		lives += !failed;
	}
	cr_assert(lives > 30 && lives < 270, "%u outlived it", lives);
}
