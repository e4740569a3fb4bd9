/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From QPNs to queue pairs: one at a time, or a burst with all that its packets will touch on its
 * way into the cache.
 */
#include <string.h>

#include "transport/private.h"

/* A number's index is the same for ever: what is kept of it never gets out of date. */
static inline uint64_t *cached_index(const struct transport *t, uint32_t qpn)
{
	return &t->qpn_cache[qpn % QPN_CACHE];
}

static inline void remember_index(struct transport *t, uint32_t qpn, uint32_t index)
{
	*cached_index(t, qpn) = (uint64_t)qpn << 32 | index;
}

static uint32_t decrypt_index(const struct transport_shared *shared, uint32_t qpn)
{
	return perm24_decrypt(shared->qpn_key, qpn) & shared->qp_mask;
}

uint32_t qp_find(const struct transport_shared *shared, uint32_t qpn)
{
	return qp_confirm(shared, decrypt_index(shared, qpn), qpn);
}

uint32_t transport_find(struct transport *transport, uint32_t qpn)
{
	const uint64_t cached = *cached_index(transport, qpn);
	uint32_t index = (uint32_t)cached;

	if (unlikely(cached >> 32 != qpn)) {
		index = decrypt_index(transport->shared, qpn);
		remember_index(transport, qpn, index);
	}
	return qp_confirm(transport->shared, index, qpn);
}

/* --- a burst -------------------------------------------------------------------------- */

/* What a packet of an established queue pair reads and writes of it. */
static inline void fetch_queue_pair(const struct transport_shared *shared, uint32_t index)
{
	const struct qp *qp = &shared->qps[index];

	__builtin_prefetch(qp);
	__builtin_prefetch(&qp->message);
	__builtin_prefetch(&shared->qp_local[index]);
}

static void find_unknown(struct transport *t, const struct wire_view view[], uint32_t qp[],
			 const uint8_t unknown[], unsigned int count)
{
	const struct transport_shared *shared = t->shared;
	uint32_t index[PERM_MANY] = { 0 };

	for (unsigned int i = 0; i < count; i++)
		index[i] = view[unknown[i]].qpn;
	perm24_decrypt_many(shared->qpn_key, index);
	for (unsigned int i = 0; i < count; i++) {
		qp[unknown[i]] = index[i] & shared->qp_mask;
		remember_index(t, view[unknown[i]].qpn, qp[unknown[i]]);
		fetch_queue_pair(shared, qp[unknown[i]]);
	}
}

static bool fetch_tokens(const struct transport *t, const struct wire_view view[],
			 unsigned int count)
{
	uint32_t token[TRANSPORT_BURST];
	unsigned int tokens = 0;

	for (unsigned int i = 0; i < count; i++)
		if (view[i].op->flags & OPF_RETH)
			token[tokens++] = be32_get(view_reth(&view[i])->rkey);
	return tokens && memory_prefetch(t->shared->memory, t->worker, token, tokens) != 0;
}

bool transport_look_up(struct transport *transport, const struct wire_view view[], uint32_t qp[],
		       unsigned int count)
{
	uint8_t unknown[TRANSPORT_BURST];
	unsigned int unknowns = 0;

	for (unsigned int i = 0; i < count; i++) {
		const uint64_t cached = *cached_index(transport, view[i].qpn);

		if (unlikely(cached >> 32 != view[i].qpn)) {
			unknown[unknowns++] = (uint8_t)i;
			continue;
		}
		qp[i] = (uint32_t)cached;
		fetch_queue_pair(transport->shared, qp[i]);
	}
	if (unknowns)
		find_unknown(transport, view, qp, unknown, unknowns);
	/* For a few there is no time in which they could come. */
	return count > TRANSPORT_FEW && fetch_tokens(transport, view, count);
}
_Static_assert(TRANSPORT_BURST <= PERM_MANY && TRANSPORT_BURST <= MEMORY_PREFETCH, "one batch");

void transport_fetch_targets(const struct transport *transport, const struct wire_view view[],
			     unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		const struct reth *reth = view_reth(&view[i]);

		if (view[i].op->flags & OPF_RETH)
			memory_prefetch_bytes(transport->shared->memory, transport->worker,
					      be32_get(reth->rkey), be64_get(reth->va));
	}
}

uint32_t qp_confirm(const struct transport_shared *shared, uint32_t index, uint32_t qpn)
{
	if (qpn == 0 || __atomic_load_n(&shared->qps[index].number, __ATOMIC_ACQUIRE) != qpn)
		return 0;
	return index;
}
