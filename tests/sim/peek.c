/* SPDX-License-Identifier: BSD-3-Clause */
/* The one look into a record of what is tested: what has been answered, what carried out? */
#include "transport/state.h"

#include "peek.h"

bool peek_is_ghost(const struct arena *arena, uint32_t qp, uint32_t psn)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	return psn_diff(psn, requester_una(record->requester)) < 0;
}

uint32_t peek_oldest(const struct arena *arena, uint32_t qp)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	return requester_una(record->requester);
}

bool peek_owes_nak(const struct arena *arena, uint32_t qp)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	return record->state == QP_RTS && (record->responder & RESPONDER_DYING) &&
	       record->answer.kind == ANSWER_FATAL;
}

const char *peek_unsettled(const struct arena *arena, uint32_t qp)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	if (record->sent_psn != record->next_psn)
		return "what has been sent";
	if (record->flights || record->first_flight || record->cursor)
		return "its requests";
	return record->reads_out || record->read_psns ? "its READs" : NULL;
}

bool peek_is_past(const struct arena *arena, uint32_t qp, uint32_t psn)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	return psn_diff(psn, responder_psn(record->responder)) < 0;
}

uint32_t peek_expected(const struct arena *arena, uint32_t qp)
{
	const struct qp *record = arena_record(arena, ARENA_QPS, qp);

	return responder_psn(record->responder);
}
