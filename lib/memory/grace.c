/* SPDX-License-Identifier: BSD-3-Clause */
/* Grace periods: a thin layer over DPDK's QSBR, usable without EAL. */
#include <errno.h>
#include <stdlib.h>

#include <rte_rcu_qsbr.h>

#include "memory/memory_private.h"

int grace_create(struct memory *memory)
{
	const unsigned int readers = memory->readers;
	size_t size = rte_rcu_qsbr_get_memsize(readers);

	memory->qsbr = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN(size, RTE_CACHE_LINE_SIZE));
	if (memory->qsbr == NULL)
		return -ENOMEM;
	rte_rcu_qsbr_init(memory->qsbr, readers);
	/* All at once, so that nobody changes the set while another looks at it. */
	for (unsigned int i = 0; i < readers; i++)
		rte_rcu_qsbr_thread_register(memory->qsbr, i);
	return 0;
}

void grace_destroy(struct memory *memory)
{
	free(memory->qsbr);
}

void memory_reader_online(struct memory *memory, unsigned int reader)
{
	rte_rcu_qsbr_thread_online(memory->qsbr, reader);
}

void memory_reader_offline(struct memory *memory, unsigned int reader)
{
	rte_rcu_qsbr_thread_offline(memory->qsbr, reader);
}

void memory_quiescent(struct memory *memory, unsigned int reader)
{
	rte_rcu_qsbr_quiescent(memory->qsbr, reader);
}

uint64_t memory_grace_start(struct memory *memory)
{
	/*
	 * The revocation before the look at the readers' counters: pairs with the fence of
	 * a reader that comes online. Either it sees the token dead or we see it online.
	 */
	rte_atomic_thread_fence(__ATOMIC_SEQ_CST);
	return rte_rcu_qsbr_start(memory->qsbr);
}

bool memory_grace_done(struct memory *memory, uint64_t grace)
{
#ifdef ORIEL_NO_GRACE_CHECK
	return true;
#else
	struct rte_rcu_qsbr *qsbr = memory->qsbr;

	/* Not one of ours: its readers died with the process that gave it out. */
	if (grace > __atomic_load_n(&qsbr->token, __ATOMIC_RELAXED))
		return true;
	/*
	 * Not rte_rcu_qsbr_check(): its shortcut, the number that the last caller saw
	 * acknowledged, orders nothing between that caller's readers and a second caller.
	 */
	for (unsigned int i = 0; i < memory->readers; i++) {
		uint64_t seen = __atomic_load_n(&qsbr->qsbr_cnt[i].cnt, __ATOMIC_ACQUIRE);

		if (seen != 0 && seen < grace) /* 0: offline */
			return false;
	}
	return true;
#endif
}
