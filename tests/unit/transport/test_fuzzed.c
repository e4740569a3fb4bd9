/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames of any kind, at any PSN, right and wrong, against the rules of the responder written down
 * once more: which answer, which completion, which bytes. One queue pair after the other, since
 * most frames that are wrong are the last that it takes.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"

#define V        RIG_BASE
#define MTU      256u
#define AREA     8192u  /* bytes that peers may write */
#define SINKS    65536u /* where receives are */
#define ROOM     4096u  /* from one to the next */
#define KEPT     16u
#define READS    4u        /* as many as were agreed */
#define LONG_AGO 0xc00000u /* to be added: a quarter of the circle */

static struct raw raw;
static uint64_t state;

static uint32_t draw(uint32_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return below ? (uint32_t)((state >> 33) % below) : 0;
}

static bool chance(uint32_t percent)
{
	return draw(100) < percent;
}

/* --- the rules ------------------------------------------------------------------------ */

struct kept {
	uint32_t psn, packets, length, token;
	uint64_t address, original;
	uint8_t opcode; /* 0: none */
};

struct sink {
	uint32_t capacity; /* of one piece */
	bool bad;
};

static struct model {
	uint32_t expected, msn, ack;
	uint8_t message; /* 0, 's', 'w' */
	uint32_t offset;
	uint64_t address;
	uint32_t token, length;
	bool told, dead;
	struct kept kept[KEPT];
	uint32_t taken; /* READs and atomics */
	struct sink sink[64];
	uint32_t posted, used;
	uint8_t bytes[AREA];
	uint8_t sinks[64][ROOM];
} m;

/* What is to come: one answer or the responses of a READ, and one completion. */
static struct due {
	uint8_t opcode; /* 0: nothing */
	uint8_t syndrome;
	uint32_t psn, msn;
	uint32_t offset, length; /* READ */
	uint64_t original;
	bool completes;
	int32_t status;
	uint32_t bytes;
	uint32_t flushed; /* receives behind it */
} due;

static void nak(uint8_t syndrome)
{
	due.opcode = OP_RC_ACKNOWLEDGE;
	due.syndrome = syndrome;
	due.psn = m.expected;
	due.msn = m.msn;
}

static void die(uint8_t syndrome, bool holds, int32_t status)
{
	nak(syndrome);
	m.dead = true;
	due.completes = holds;
	due.status = status;
	due.flushed = m.posted - m.used - holds;
}

static void ack(void)
{
	due.opcode = OP_RC_ACKNOWLEDGE;
	due.syndrome = 0x1f;
	due.psn = m.ack;
	due.msn = m.msn;
}

static bool inside(uint64_t address, uint64_t length)
{
	return address >= V && length <= RIG_MEMORY && address - V <= RIG_MEMORY - length;
}

static void respond(const struct kept *kept, uint32_t psn, uint32_t length)
{
	due.opcode = kept->opcode == OP_RC_READ_REQUEST ? OP_RC_READ_RESPONSE_ONLY
							: OP_RC_ATOMIC_ACKNOWLEDGE;
	due.syndrome = 0x1f;
	due.psn = psn;
	due.msn = m.msn;
	due.original = kept->original;
	due.offset = (uint32_t)(kept->address - V) + psn_diff(psn, kept->psn) * MTU;
	due.length = length;
}

static const struct kept *find(uint32_t psn)
{
	for (uint32_t back = 1; back <= KEPT && back <= m.taken; back++) {
		const struct kept *kept = &m.kept[(m.taken - back) % KEPT];

		if (((psn - kept->psn) & PSN_MASK) < kept->packets)
			return kept;
	}
	return NULL;
}

static void again(const struct raw_packet *p, uint16_t flags)
{
	const struct kept *kept = find(p->psn);
	uint64_t offset;

	if (!(flags & OPF_OPERATION))
		return;
	if (flags & (OPF_SEND | OPF_WRITE)) {
		ack();
		return;
	}
	if (kept == NULL)
		return;
	if (flags & OPF_ATOMIC) {
		if (kept->opcode == p->opcode && kept->address == p->address &&
		    kept->token == p->token)
			respond(kept, p->psn, 0);
		return;
	}
	if (kept->opcode != OP_RC_READ_REQUEST || !kept->length != !p->length)
		return;
	offset = (uint64_t)((p->psn - kept->psn) & PSN_MASK) * MTU;
	if (p->length && (kept->token != p->token || kept->address + offset != p->address ||
			  offset + p->length > kept->length))
		return;
	respond(kept, p->psn, p->length);
}

static void keep(const struct raw_packet *p, uint32_t packets, uint64_t original)
{
	struct kept *kept = &m.kept[m.taken++ % KEPT];

	*kept = (struct kept){ .psn = m.expected,
			       .packets = packets,
			       .length = p->length,
			       .token = p->token,
			       .address = p->address,
			       .original = original,
			       .opcode = p->opcode };
	m.expected = (m.expected + packets) & PSN_MASK;
	m.msn = (m.msn + 1) & PSN_MASK;
	m.told = false;
	respond(kept, kept->psn, p->opcode == OP_RC_READ_REQUEST ? p->length : 0);
}

static void read_request(const struct raw_packet *p)
{
	if (p->length > 0x80000000u)
		die(0x61, false, 0);
	else if (p->length && (p->token != raw.end.remote_token || !inside(p->address, p->length)))
		die(0x62, false, 0);
	else
		keep(p, p->length ? (p->length + MTU - 1) / MTU : 1, 0);
}

static void atomic(const struct raw_packet *p)
{
	uint64_t old, new;

	if (p->address % 8) {
		die(0x61, false, 0);
		return;
	}
	if (p->token != raw.end.remote_token || !inside(p->address, 8)) {
		die(0x62, false, 0);
		return;
	}
	memcpy(&old, m.bytes + (p->address - V), 8);
	new = p->opcode == OP_RC_FETCH_ADD ? old + p->swap : old == p->compare ? p->swap : old;
	memcpy(m.bytes + (p->address - V), &new, 8);
	keep(p, 1, old);
}

static bool shape(const struct raw_packet *p, uint16_t flags)
{
	if (!(flags & OPF_LAST))
		return p->payload_length == MTU;
	return p->payload_length <= MTU && ((flags & OPF_FIRST) || p->payload_length);
}

/* A packet of a SEND or WRITE was carried out. */
static void carried_out(const struct raw_packet *p, uint16_t flags)
{
	m.ack = m.expected;
	m.expected = (m.expected + 1) & PSN_MASK;
	m.offset += p->payload_length;
	m.message = flags & OPF_SEND ? 's' : 'w';
	m.told = false;
	if (flags & OPF_LAST) {
		m.message = 0;
		m.msn = (m.msn + 1) & PSN_MASK;
		if ((flags & OPF_SEND) || (flags & OPF_IMM)) {
			due.completes = true;
			due.bytes = flags & OPF_SEND ? m.offset : m.length;
			m.used++;
		}
	}
	if (p->ack_request)
		ack();
}

static void send(const struct raw_packet *p, uint16_t flags)
{
	const struct sink *sink = &m.sink[m.used];

	if ((flags & OPF_FIRST) && m.used == m.posted) {
		nak(0x2c);
		m.told = true;
		return;
	}
	if (flags & OPF_FIRST)
		m.offset = 0;
	if (!shape(p, flags)) {
		die(0x61, true, NT_DATA_ERROR);
	} else if (m.offset + p->payload_length > sink->capacity) {
		die(0x61, true, NT_DATA_OVERRUN);
	} else if (sink->bad && p->payload_length) {
		die(0x63, true, NT_ACCESS_VIOLATION);
	} else {
		memcpy(m.sinks[m.used] + m.offset, p->payload, p->payload_length);
		carried_out(p, flags);
	}
}

static void write(const struct raw_packet *p, uint16_t flags)
{
	const bool imm = flags & OPF_IMM;
	uint32_t rest;

	if (flags & OPF_FIRST) {
		m.address = p->address;
		m.token = p->token;
		m.length = p->length;
		m.offset = 0;
	}
	if (imm && m.used == m.posted) {
		nak(0x2c);
		m.told = true;
		return;
	}
	rest = m.length - m.offset;
	if (m.length > 0x80000000u || !shape(p, flags) || p->payload_length > rest ||
	    ((flags & OPF_LAST) && p->payload_length != rest)) {
		die(0x61, imm, NT_DATA_ERROR);
		return;
	}
	if (m.length && (m.token != raw.end.remote_token || !inside(m.address, m.length))) {
		die(0x62, imm, NT_ACCESS_VIOLATION);
		return;
	}
	if (m.length)
		memcpy(m.bytes + (m.address - V) + m.offset, p->payload, p->payload_length);
	carried_out(p, flags);
}

static void predict(const struct raw_packet *p)
{
	const uint16_t flags = opcode_table[p->opcode].flags;
	const uint32_t ahead = (p->psn - m.expected) & PSN_MASK;
	const uint8_t needs = flags & OPF_FIRST ? 0 : flags & OPF_SEND ? 's' : 'w';

	memset(&due, 0, sizeof(due));
	if (m.dead)
		return;
	if (ahead >= 0x800000) {
		again(p, flags);
	} else if (ahead) {
		if (!m.told)
			nak(0x60);
		m.told = true;
	} else if (m.message != needs) {
		die(0x61, m.message == 's', NT_DATA_ERROR);
	} else if (!(flags & OPF_OPERATION)) {
		die(0x61, false, 0);
	} else if (flags & OPF_SEND) {
		send(p, flags);
	} else if (flags & OPF_WRITE) {
		write(p, flags);
	} else if (flags & OPF_READ) {
		read_request(p);
	} else {
		atomic(p);
	}
}

/* --- what came of it ------------------------------------------------------------------ */

static struct wire_view next_answer(uint32_t psn)
{
	struct wire_view view = { 0 };

	cr_assert(raw_receive(&raw, &view), "no answer %#x", psn);
	cr_assert_eq(view.psn, psn & PSN_MASK, "answer %#x, not %#x", view.psn, psn);
	return view;
}

static void check_responses(void)
{
	const uint32_t packets = due.length ? (due.length + MTU - 1) / MTU : 1;

	for (uint32_t i = 0; i < packets; i++) {
		const struct wire_view view = next_answer(due.psn + i);
		const uint32_t length = i + 1 < packets ? MTU : due.length - i * MTU;

		cr_assert_eq(view.payload_length, length);
		cr_assert_arr_eq(view.payload, m.bytes + due.offset + i * MTU, length);
		cr_assert_eq(view.opcode, packets == 1       ? OP_RC_READ_RESPONSE_ONLY
					  : i == 0           ? OP_RC_READ_RESPONSE_FIRST
					  : i + 1 == packets ? OP_RC_READ_RESPONSE_LAST
							     : OP_RC_READ_RESPONSE_MIDDLE);
		if (view.op->flags & OPF_AETH)
			cr_assert_eq(be24_get(view_aeth(&view)->msn), due.msn);
	}
}

static void check_answer(void)
{
	struct wire_view view;

	if (due.opcode == 0)
		return;
	if (due.opcode == OP_RC_READ_RESPONSE_ONLY) {
		check_responses();
		return;
	}
	view = next_answer(due.psn);
	cr_assert_eq(view.opcode, due.opcode);
	cr_assert_eq(view_aeth(&view)->syndrome, due.syndrome, "syndrome %#x, not %#x",
		     view_aeth(&view)->syndrome, due.syndrome);
	cr_assert_eq(be24_get(view_aeth(&view)->msn), due.msn);
	if (due.opcode == OP_RC_ATOMIC_ACKNOWLEDGE)
		cr_assert_eq(be64_get(view_atomic_ack(&view)->original), due.original);
}

/* What is due of one frame, of the receives from `used` on. Returns the next. */
static uint32_t check_completions(uint32_t used)
{
	if (due.completes) {
		const struct shm_cqe cqe = expect_cqe(raw.qp, used++, due.status);

		if (due.status == 0)
			cr_assert_eq(cqe.bytes, due.bytes);
	}
	while (due.flushed--)
		expect_cqe(raw.qp, used++, NT_CANCELLED);
	return used;
}

static void check_state(void)
{
	expect_no_cqe(raw.qp);
	cr_assert_eq(qp_get_state(raw.end.shared, raw.qp->index), m.dead ? QP_ERROR : QP_RTS);
	cr_assert_eq(end_count_events(&raw.end, TRANSPORT_QP_ERROR), m.dead);
	cr_assert_arr_eq(raw.end.bytes, m.bytes, AREA);
	for (uint32_t i = 0; i < m.posted; i++)
		cr_assert_arr_eq(raw.end.bytes + SINKS + i * ROOM, m.sinks[i], ROOM);
}

static void check(uint32_t used)
{
	check_answer();
	raw_expect_none(&raw);
	check_completions(used);
	check_state();
}

static bool is_answer_of(const struct wire_view *view, const struct due *want)
{
	return view->psn == want->psn && view->opcode == want->opcode &&
	       view_aeth(view)->syndrome == want->syndrome;
}

/*
 * One answer may stand for several. The last one says how it ended: the refusal, or a NAK, or how
 * far all has come.
 */
static void check_last_answer(const struct due *last, uint32_t owed)
{
	uint32_t furthest = psn_add(m.expected, LONG_AGO), refusals = 0;
	struct wire_view view = { 0 };

	while (raw_receive(&raw, &view)) {
		const bool nak =
			view.opcode == OP_RC_ACKNOWLEDGE && view_aeth(&view)->syndrome >= 0x20;
		const uint32_t covers = psn_add(view.psn, nak ? PSN_MASK : 0);

		cr_assert_lt(psn_diff(covers, m.expected), 0, "answer %#x", view.psn);
		cr_assert_eq(refusals, 0, "nothing follows a refusal");
		refusals += nak && view_aeth(&view)->syndrome > 0x60;
		if (psn_diff(covers, furthest) > 0)
			furthest = covers;
		if (m.dead && refusals)
			cr_assert(is_answer_of(&view, last));
	}
	cr_assert_eq(refusals, m.dead);
	cr_assert_geq(psn_diff(furthest, owed), 0, "%#x is owed, %#x acknowledged", owed, furthest);
}

/* --- frames --------------------------------------------------------------------------- */

static void post_sink(void)
{
	struct sink *sink = &m.sink[m.posted];
	struct shm_sge sge = sge_at(&raw.end, SINKS + m.posted * ROOM, draw(3) * MTU + draw(MTU));

	if (m.posted == 60)
		return;
	sink->capacity = sge.length;
	sink->bad = chance(2);
	if (sink->bad)
		sge.token ^= 0x40;
	post_receive(&raw.end, raw.qp, m.posted++, &sge, 1);
}

static uint8_t draw_opcode(void)
{
	static const uint8_t opcodes[] = {
		OP_RC_SEND_FIRST,   OP_RC_SEND_MIDDLE,   OP_RC_SEND_LAST,      OP_RC_SEND_LAST_IMM,
		OP_RC_SEND_ONLY,    OP_RC_SEND_ONLY_IMM, OP_RC_WRITE_FIRST,    OP_RC_WRITE_MIDDLE,
		OP_RC_WRITE_LAST,   OP_RC_WRITE_ONLY,    OP_RC_WRITE_ONLY_IMM, OP_RC_READ_REQUEST,
		OP_RC_COMPARE_SWAP, OP_RC_FETCH_ADD,     OP_RC_WRITE_LAST_IMM, OP_RC_FLUSH,
		OP_RC_ATOMIC_WRITE,
	};

	/* Mostly one that goes on with what there is. */
	for (;;) {
		const uint8_t opcode = opcodes[draw(sizeof(opcodes))];
		const uint16_t flags = opcode_table[opcode].flags;
		const uint8_t needs = flags & OPF_FIRST ? 0 : flags & OPF_SEND ? 's' : 'w';

		if ((m.message == needs && (flags & OPF_OPERATION)) || draw(1000) == 0)
			return opcode;
	}
}

static uint32_t draw_psn(void)
{
	switch (draw(40)) {
	case 0: return m.expected + 1 + draw(3);
	case 1: return m.expected + 0x7fffff - draw(2);
	case 2: return m.expected + 0x800000 + draw(2);
	case 3:
	case 4: return m.expected - 1 - draw(30);
	default: return m.expected;
	}
}

/* Once more, whole or a part of it, or not quite. */
static void draw_again(struct raw_packet *p)
{
	const struct kept *kept = &m.kept[(m.taken - 1 - draw(m.taken < 20 ? m.taken : 20)) % KEPT];
	const uint32_t from = draw(kept->packets + chance(5));

	p->opcode = kept->opcode;
	p->psn = kept->psn + from;
	p->address = kept->address + from * MTU;
	p->token = kept->token;
	p->length = kept->length > from * MTU ? kept->length - from * MTU : draw(MTU);
	p->payload_length = 0;
	if (chance(30))
		p->length = draw(p->length + 1);
	if (chance(10))
		p->address += 8;
	if (chance(5))
		p->token ^= 1;
	if (chance(10))
		p->length++;
	if (chance(5))
		p->opcode ^= OP_RC_COMPARE_SWAP ^ OP_RC_FETCH_ADD;
	if (opcode_table[p->opcode].name == NULL)
		p->opcode = kept->opcode;
}

static uint32_t draw_length(void)
{
	static const uint32_t edges[] = { 0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU + 7 };

	return chance(50) ? edges[draw(7)] : draw(5 * MTU);
}

/* Bytes that the message in progress, or a new one, may still have. */
static uint32_t room(uint16_t flags, const struct raw_packet *p)
{
	const uint32_t offset = flags & OPF_FIRST ? 0 : m.offset;

	if (flags & OPF_WRITE)
		return (flags & OPF_FIRST ? p->length : m.length) - offset;
	return m.used < m.posted ? m.sink[m.used].capacity - offset : draw(MTU);
}

/* A message ends where its bytes do; one that is not that long does not begin as a long one. */
static bool goes_well(const struct raw_packet *p)
{
	const uint16_t flags = opcode_table[p->opcode].flags;
	const uint32_t rest = room(flags, p);

	if (!(flags & (OPF_SEND | OPF_WRITE)))
		return true;
	if (!(flags & OPF_LAST))
		return rest > MTU;
	return (flags & OPF_SEND) ? (flags & OPF_FIRST) || rest : rest <= MTU;
}

static void draw_payload(struct raw_packet *p)
{
	const uint16_t flags = opcode_table[p->opcode].flags;
	uint32_t rest = room(flags, p);

	if (flags & OPF_SEND)
		rest = rest < MTU ? rest - draw(rest) / 2 : MTU - draw(MTU);
	p->payload_length = flags & OPF_LAST ? rest : MTU;
	if (p->payload_length > MTU || chance(1))
		p->payload_length = draw(MTU + 2);
	if (!(flags & OPF_PAYLOAD))
		p->payload_length = 0;
}

static void draw_packet(struct raw_packet *p)
{
	static uint8_t payload[2 * MTU];

	for (uint32_t i = 0; i < 64; i++)
		payload[draw(sizeof(payload))] = (uint8_t)draw(256);
	do {
		*p = (struct raw_packet){ .opcode = draw_opcode(),
					  .psn = draw_psn() & PSN_MASK,
					  .ack_request = chance(50),
					  .address = V + draw(AREA - 6 * MTU),
					  .token = raw.end.remote_token ^ (draw(200) == 0),
					  .length = draw_length(),
					  .swap = draw(1000),
					  .compare = draw(3),
					  .payload = payload };
	} while (!goes_well(p) && !chance(1));
	if ((opcode_table[p->opcode].flags & OPF_ATOMIC) && !chance(2))
		p->address &= ~7ull;
	draw_payload(p);
	if (draw(200) == 0)
		p->address = chance(50) ? V - 8 : V + RIG_MEMORY;
	if (draw(200) == 0)
		p->length += 0x80000000u;
	if (m.taken && chance(10))
		draw_again(p);
	p->psn &= PSN_MASK;
}

static void start(uint32_t seed)
{
	struct qp_connection connection = rig_connection();

	state = seed;
	connection.path_mtu = MTU;
	connection.max_reads_in = READS;
	memset(&m, 0, sizeof(m));
	m.expected = chance(50) ? (0u - draw(20)) & PSN_MASK : draw(PSN_MASK);
	m.ack = (m.expected - 1) & PSN_MASK;
	raw_create_at(&raw, connection, m.expected);
	for (uint32_t i = 0; i < AREA; i++)
		m.bytes[i] = raw.end.bytes[i] = (uint8_t)(i * 7);
}

static uint32_t run(uint32_t seed)
{
	uint32_t steps = 0;

	for (start(seed); !m.dead && steps < 400; steps++) {
		const uint32_t used = m.used;
		struct raw_packet packet;

		if (chance(25))
			post_sink();
		draw_packet(&packet);
		predict(&packet);
		raw_send(&raw, &packet);
		check(used);
	}
	raw_destroy(&raw);
	return steps;
}

/* RESP-RES-1: fewer than could be too many READs. */
#define BURST READS

/* Several frames before anybody is answered, and few buffers for that. Returns how many. */
static uint32_t run_bursts(uint32_t seed)
{
	uint32_t frames = 0;

	for (start(seed); !m.dead && frames < 1000;) {
		uint32_t used = m.used, count = 1 + draw(BURST),
			 owed = psn_add(m.expected, LONG_AGO);
		struct due list[BURST], last = { 0 };

		for (uint32_t i = 0; i < count; i++, frames++) {
			struct raw_packet packet;

			if (!m.dead && chance(25))
				post_sink();
			draw_packet(&packet);
			predict(&packet);
			list[i] = due;
			if (due.opcode == OP_RC_ACKNOWLEDGE && due.syndrome == 0x1f)
				owed = due.psn;
			if (due.opcode)
				last = due;
			raw_send_only(&raw, &packet);
		}
		for (raw.end.room = draw(4); end_poll(&raw.end, raw.now);)
			;
		for (raw.end.room = UINT32_MAX; end_poll(&raw.end, raw.now);)
			;
		check_last_answer(&last, owed);
		for (uint32_t i = 0; i < count; i++) {
			due = list[i];
			used = check_completions(used);
		}
		check_state();
	}
	raw_destroy(&raw);
	return frames;
}

Test(fuzzed, every_frame_has_the_answer_that_the_rules_give_it)
{
	uint32_t steps = 0;

	for (uint32_t seed = 1; seed <= 100; seed++)
		steps += run(seed);
	cr_assert_gt(steps, 3000, "%u frames", steps);
}

Test(fuzzed, bursts_leave_behind_what_their_frames_would_one_by_one)
{
	uint32_t frames = 0;

	for (uint32_t seed = 1001; seed <= 1100; seed++)
		frames += run_bursts(seed);
	cr_assert_gt(frames, 3000, "%u frames", frames);
}
