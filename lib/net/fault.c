/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames lost, doubled, damaged and held up on purpose, repeatably: one generator per worker,
 * port and direction, one draw decides what happens to a frame.
 */
#include <errno.h>
#include <stdlib.h>

#include "net/net_private.h"

#define MILLION   1000000u
#define HELD      256u /* frames; what comes when so many are held goes on unharmed */
#define OVERTAKEN 4u   /* a reordered frame is passed by at most so many */

struct held {
	struct rte_mbuf *mbuf;
	uint64_t due;   /* ns */
	uint64_t after; /* or as soon as so many frames have passed */
};

struct fault {
	struct net_fault setting;
	uint32_t version; /* of the setting */
	uint64_t random;
	uint64_t passed; /* frames that went on at once */
	struct net_fault_counts counts;
	uint32_t count;
	struct held held[HELD];
};

static struct fault *fault_of(const struct worker *worker, uint32_t port,
			      enum net_direction direction)
{
	return &worker->fault[2 * port + direction];
}

/* --- settings ---------------------------------------------------------------------- */

_Static_assert(sizeof(struct net_fault) % sizeof(uint64_t) == 0, "copied by words");

void net_set_fault(struct net *net, unsigned int port, enum net_direction direction,
		   const struct net_fault *fault)
{
	struct fault_setting *setting = &net->port[port].fault[direction];
	uint64_t word[sizeof(setting->word) / sizeof(uint64_t)];
	uint32_t version = setting->version;

	memcpy(word, fault, sizeof(word));
	__atomic_store_n(&setting->version, version + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (unsigned int i = 0; i < RTE_DIM(word); i++)
		__atomic_store_n(&setting->word[i], word[i], __ATOMIC_RELAXED);
	/* After 2^31 settings 0 is passed over: it means never. */
	__atomic_store_n(&setting->version, version + 2 ? version + 2 : 2, __ATOMIC_RELEASE);
}

void net_get_fault(const struct net *net, unsigned int port, enum net_direction direction,
		   struct net_fault *fault)
{
	memcpy(fault, net->port[port].fault[direction].word, sizeof(*fault));
}

/* Weyl sequence and mixer of SplitMix64. */
static uint64_t draw(struct fault *fault)
{
	uint64_t x = fault->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint32_t draw_below(struct fault *fault, uint32_t limit)
{
	return (uint32_t)(((draw(fault) >> 32) * limit) >> 32);
}

/* A setting that is just being written is taken in the next turn. */
static void take_setting(struct fault *fault, const struct fault_setting *setting, uint64_t stream)
{
	uint32_t version = __atomic_load_n(&setting->version, __ATOMIC_ACQUIRE);
	uint64_t word[RTE_DIM(setting->word)];

	if (version == fault->version || version & 1)
		return;
	for (unsigned int i = 0; i < RTE_DIM(word); i++)
		word[i] = __atomic_load_n(&setting->word[i], __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&setting->version, __ATOMIC_RELAXED) != version)
		return;
	memcpy(&fault->setting, word, sizeof(word));
	fault->version = version;
	/* Streams of one seed lie far apart. */
	fault->random = fault->setting.seed;
	fault->random = draw(fault) + (stream << 40);
}

/* --- one frame --------------------------------------------------------------------- */

/* It is told to others as a count. */
static void set_count(struct fault *fault, uint32_t count)
{
	__atomic_store_n(&fault->count, count, __ATOMIC_RELAXED);
}

static bool hold(struct fault *fault, struct rte_mbuf *mbuf, uint64_t due, uint64_t after)
{
	if (fault->count == HELD)
		return false;
	fault->held[fault->count] = (struct held){ mbuf, due, after };
	set_count(fault, fault->count + 1);
	return true;
}

static void corrupt(struct fault *fault, struct rte_mbuf *mbuf)
{
	uint32_t bit = draw_below(fault, mbuf->data_len * 8u);

	*rte_pktmbuf_mtod_offset(mbuf, uint8_t *, bit / 8) ^= (uint8_t)(1u << bit % 8);
	count_up(&fault->counts.corrupted, 1);
}

static void duplicate(struct fault *fault, const struct rte_mbuf *mbuf, uint64_t now)
{
	struct rte_mbuf *copy = rte_pktmbuf_copy(mbuf, mbuf->pool, 0, UINT32_MAX);

	if (!copy)
		return;
	*buffer_of(copy) = (struct net_buffer){ 0 };
	if (hold(fault, copy, now, 0))
		count_up(&fault->counts.duplicated, 1);
	else
		rte_pktmbuf_free(copy);
}

/* True when the frame goes on now. */
static bool run_one(struct fault *fault, struct rte_mbuf *mbuf, uint64_t now)
{
	const struct net_fault *setting = &fault->setting;
	uint64_t due = now + setting->delay_us * 1000ull;
	uint32_t drawn = draw_below(fault, MILLION);

	if (drawn < setting->loss) {
		count_up(&fault->counts.lost, 1);
		rte_pktmbuf_free(mbuf);
		return false;
	}
	drawn -= setting->loss;
	if (drawn < setting->reorder) {
		if (!hold(fault, mbuf, due, fault->passed + 1 + draw_below(fault, OVERTAKEN)))
			return true;
		count_up(&fault->counts.reordered, 1);
		return false;
	}
	drawn -= setting->reorder;
	if (drawn < setting->delay) {
		if (!hold(fault, mbuf, due, UINT64_MAX))
			return true;
		count_up(&fault->counts.delayed, 1);
		return false;
	}
	drawn -= setting->delay;
	if (drawn < setting->duplicate)
		duplicate(fault, mbuf, now);
	else if (drawn - setting->duplicate < setting->corrupt)
		corrupt(fault, mbuf);
	return true;
}

/* --- a burst ----------------------------------------------------------------------- */

static uint32_t release(struct fault *fault, struct rte_mbuf **frame, uint32_t room, uint64_t now)
{
	uint32_t released = 0, left = 0;

	for (uint32_t i = 0; i < fault->count; i++) {
		const struct held *held = &fault->held[i];

		if (released < room && (now >= held->due || fault->passed >= held->after))
			frame[released++] = held->mbuf;
		else
			fault->held[left++] = *held;
	}
	set_count(fault, left);
	return released;
}

uint32_t fault_run(struct worker *worker, uint32_t port, enum net_direction direction,
		   struct rte_mbuf **frame, uint32_t count, uint32_t room, uint64_t now)
{
	struct fault *fault = fault_of(worker, port, direction);
	uint32_t kept = 0;

	take_setting(fault, &worker->net->port[port].fault[direction],
		     (worker->index * NET_MAX_PORTS + port) * 2 + direction);
	for (uint32_t i = 0; i < count; i++) {
		if (!run_one(fault, frame[i], now))
			continue;
		frame[kept++] = frame[i];
		fault->passed++;
	}
	return fault->count ? kept + release(fault, frame + kept, room - kept, now) : kept;
}

/* --- held frames ------------------------------------------------------------------- */

uint64_t fault_next_deadline(const struct worker *worker)
{
	uint64_t deadline = UINT64_MAX;

	for (uint32_t f = 0; f < 2 * worker->net->config.ports; f++) {
		const struct fault *fault = &worker->fault[f];

		for (uint32_t i = 0; i < fault->count; i++)
			deadline = RTE_MIN(deadline, fault->held[i].due);
	}
	return deadline;
}

static void lose_held(struct fault *fault)
{
	for (uint32_t i = 0; i < fault->count; i++)
		rte_pktmbuf_free(fault->held[i].mbuf);
	count_up(&fault->counts.lost, fault->count);
	set_count(fault, 0);
}

void fault_drain(struct worker *worker)
{
	for (uint32_t p = 0; p < worker->net->config.ports; p++) {
		struct fault *sent = fault_of(worker, p, NET_TRANSMIT);

		lose_held(fault_of(worker, p, NET_RECEIVE));
		for (uint32_t i = 0; i < sent->count; i++)
			sent->held[i].due = 0;
	}
}

void fault_add_counts(const struct worker *worker, uint32_t port, enum net_direction direction,
		      struct net_fault_counts *counts)
{
	const struct fault *fault = fault_of(worker, port, direction);

	counts->lost += count_of(&fault->counts.lost);
	counts->duplicated += count_of(&fault->counts.duplicated);
	counts->reordered += count_of(&fault->counts.reordered);
	counts->corrupted += count_of(&fault->counts.corrupted);
	counts->delayed += count_of(&fault->counts.delayed);
	counts->held += __atomic_load_n(&fault->count, __ATOMIC_RELAXED);
}

/* --- life -------------------------------------------------------------------------- */

int fault_create(struct worker *worker)
{
	worker->fault = calloc(2 * worker->net->config.ports, sizeof(*worker->fault));
	return worker->fault ? 0 : -ENOMEM;
}

void fault_destroy(struct worker *worker)
{
	if (!worker->fault)
		return;
	for (uint32_t f = 0; f < 2 * worker->net->config.ports; f++)
		lose_held(&worker->fault[f]);
	free(worker->fault);
	worker->fault = NULL;
}
