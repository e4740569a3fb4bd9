/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Readers of frames: lib/wire has two, one for any frame and one for the usual ones. Frames on
 * their way, and such with bits of their outer headers turned over or lengths that do not agree,
 * are shown to both; what these take, refuse and see in it is what our own reading says.
 */
#include <string.h>

#include "sim.h"
#include "wire/packet.h"

#define SHOWN 128u /* bytes of a frame: all its headers */

/* --- what is changed -------------------------------------------------------------- */

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static void add16(uint8_t *p, uint32_t value)
{
	const uint32_t sum = get16(p) + value;

	p[0] = (uint8_t)(sum >> 8);
	p[1] = (uint8_t)sum;
}

/* Lengths: of the frame, of IP, of UDP; one of them, or two that agree. */
static void change_lengths(struct rng *rng, uint8_t *frame, uint32_t *length,
			   const struct frame_facts *facts)
{
	const uint32_t by = rng_percent(rng, 50) ? 1 : rng_between(rng, 1, 60);
	const uint32_t change = rng_percent(rng, 50) ? by : 0u - by;
	const uint32_t which = rng_between(rng, 1, 7);
	uint8_t *ip = frame + facts->l3 + (facts->v4 ? 2 : 4);

	if ((which & 1) && *length + change > 14 && *length + change < 5000)
		*length += change;
	if (which & 2)
		add16(ip, change);
	if (which & 4)
		add16(frame + facts->bth - 4, change);
}

static void change_special(struct rng *rng, uint8_t *frame, const struct frame_facts *facts)
{
	uint8_t *ip = frame + facts->l3;

	switch (rng_below(rng, 6)) {
	case 0: frame[6] ^= 1; break;
	case 1: memset(frame + 6, 0, 6); break;
	case 2: frame[facts->l3 - 1] ^= (uint8_t)(1u << rng_below(rng, 8)); break;
	case 3: ip[6] ^= (uint8_t)(1u << rng_below(rng, 8)); break;
	case 4: ip[facts->v4 ? 9 : 6] = (uint8_t)rng_below(rng, 64); break;
	default: frame[facts->bth + 1] ^= (uint8_t)(1u << rng_below(rng, 8));
	}
}

static void change(struct rng *rng, uint8_t *frame, uint32_t *length,
		   const struct frame_facts *facts)
{
	uint32_t bit;

	switch (rng_below(rng, 4)) {
	case 0: return;
	case 1: change_lengths(rng, frame, length, facts); break;
	case 2: change_special(rng, frame, facts); break;
	default:
		bit = rng_below(rng, 8 * (facts->bth + 12));
		frame[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	if (facts->v4 && rng_percent(rng, 80))
		frame_repair_checksum(frame, facts);
}

/* --- what must be seen ------------------------------------------------------------ */

static void address_of(const uint8_t *frame, const struct frame_facts *facts, bool source,
		       uint8_t gid[16])
{
	const uint8_t *ip = frame + facts->l3;

	memset(gid, 0, 16);
	if (!facts->v4) {
		memcpy(gid, ip + (source ? 8 : 24), 16);
		return;
	}
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, ip + (source ? 12 : 16), 4);
}

static const char *difference(const uint8_t *frame, const struct frame_facts *facts,
			      const struct wire_view *view)
{
	const uint8_t *ip = frame + facts->l3, *bth = frame + facts->bth;
	const bool tagged = facts->l3 == 18;
	uint8_t source[16], destination[16];

	address_of(frame, facts, true, source);
	address_of(frame, facts, false, destination);
	if (view->frame != frame || view->bth != bth || view->l3_offset != facts->l3 ||
	    view->udp_offset != facts->bth - 8 || view->icrc != frame + facts->icrc)
		return "where its headers are";
	if (view->payload != frame + facts->payload_at || view->payload_length != facts->payload)
		return "its payload";
	if (view->is_v4 != facts->v4 || memcmp(view->source_gid, source, 16) != 0 ||
	    memcmp(view->destination_gid, destination, 16) != 0)
		return "its addresses";
	if (view->has_vlan != tagged || view->vlan_tci != (tagged ? get16(frame + 14) : 0))
		return "its tag";
	if (view->traffic_class != (facts->v4 ? ip[1] : (get16(ip) >> 4 & 0xff)) ||
	    view->hop_limit != ip[facts->v4 ? 8 : 7])
		return "its traffic class or hop limit";
	if (view->source_port != get16(frame + facts->bth - 8))
		return "its source port";
	if (view->opcode != facts->opcode || view->psn != facts->psn || view->qpn != facts->qpn ||
	    view->pkey != get16(bth + 2) || view->ack_request != facts->ack_request ||
	    view->solicited != bth[1] >> 7 || view->fecn != bth[4] >> 7 ||
	    view->becn != (bth[4] >> 6 & 1))
		return "its BTH";
	return NULL;
}

/* From a station to this host's own addresses, without a tag, in IPv4. */
static bool is_usual(const struct host *host, const uint8_t *frame, const struct frame_facts *facts)
{
	static const uint8_t nobody[6];

	return facts->v4 && facts->l3 == 14 && memcmp(frame, host->mac, 6) == 0 &&
	       !(frame[6] & 1) && memcmp(frame + 6, nobody, 6) != 0 &&
	       memcmp(frame + facts->l3 + 16, host->v4 + 12, 4) == 0;
}

static void show(struct host *host, const uint8_t *frame, uint32_t length)
{
	struct world *world = host->world;
	struct frame_facts facts;
	struct wire_view view = { 0 }, usual = { 0 };
	const enum frame_verdict verdict = frame_judge(frame, length, &facts);
	const bool good = verdict == FRAME_GOOD;
	const bool taken = wire_parse(frame, length, &view) == WIRE_OK;
	const bool quick = wire_parse_usual(&host->usual, frame, length, &usual);
	const char *what = NULL;

	if (verdict == FRAME_UNKNOWN)
		return;
	if (taken != good)
		sim_fail(world, "host %u: a frame of opcode %#x that is %s is %s", host->number,
			 facts.opcode, good ? "good" : "bad", taken ? "taken" : "refused");
	if (quick != (good && is_usual(host, frame, &facts)))
		sim_fail(world, "host %u: a frame of opcode %#x is %s for a usual one",
			 host->number, facts.opcode, quick ? "taken" : "not taken");
	if (taken)
		what = difference(frame, &facts, &view);
	if (quick && what == NULL)
		what = difference(frame, &facts, &usual);
	if (what)
		sim_fail(world, "host %u: of a frame of opcode %#x %s is seen wrong", host->number,
			 facts.opcode, what);
}

void parse_check(struct host *host, const uint8_t *frame, uint32_t length,
		 const struct frame_facts *facts)
{
	struct rng *rng = &host->world->parsing;
	uint8_t copy[SHOWN + 64];

	if (!rng_percent(rng, 30))
		return;
	memset(copy, 0, sizeof(copy));
	memcpy(copy, frame, length < SHOWN ? length : SHOWN);
	change(rng, copy, &length, facts);
	show(host, copy, length);
}
