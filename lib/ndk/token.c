/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stock of tokens that the daemon has reserved for this session, so that NdkBind can return
 * with the token known; and the table that finds a window by its token.
 */
#include <stdlib.h>

#include "ndk/ndk_private.h"

#define REFILL_PATIENCE 1024u /* progress calls */

bool token_init(struct adapter *adapter)
{
	adapter->tokens_low = TOKEN_LOW;
	return table_init(&adapter->tokens_bound);
}

void token_destroy(struct adapter *adapter)
{
	table_destroy(&adapter->tokens_bound);
}

/* --- stock -------------------------------------------------------------------------------- */

static void stock_put(struct adapter *adapter, uint32_t token)
{
	if (token && adapter->tokens < TOKEN_STOCK)
		adapter->token[adapter->tokens++] = token;
}

/* Workers hand tokens of ended windows back, one ring for each. */
static void stock_drain(struct adapter *adapter)
{
	for (uint32_t w = 0; w < adapter->workers; w++) {
		struct shm_worker_area *area = &adapter->session->worker[w];
		uint32_t used = shm_ring_used(&area->stock_cursor, adapter->stock_head[w]);

		if (!used)
			continue;
		while (used-- && adapter->tokens < TOKEN_STOCK)
			stock_put(adapter,
				  area->stock[adapter->stock_head[w]++ % SHM_STOCK_ENTRIES]);
		shm_store_release(&area->stock_cursor.head, adapter->stock_head[w]);
	}
}

uint32_t token_take(struct adapter *adapter)
{
	if (adapter->tokens == 0)
		stock_drain(adapter);
	/* Who binds faster than the daemon answers has more asked for at a time. */
	if (adapter->tokens == 0 && adapter->tokens_low < TOKEN_LOW_MOST)
		adapter->tokens_low *= 2;
	return adapter->tokens ? adapter->token[--adapter->tokens] : 0;
}

static void refill_answered(struct adapter *adapter, bool failed)
{
	adapter->tokens_asked -= SHM_REFILL_MAX;
	adapter->refill_failed = failed;
	if (failed)
		adapter->tokens_low = TOKEN_LOW;
}

static void refill_finish(struct request *request, const struct shm_reply *reply)
{
	struct adapter *adapter = (struct adapter *)(uintptr_t)request->extra;
	bool failed = !NT_SUCCESS(request->status);

	spin_lock(&adapter->window_lock);
	refill_answered(adapter, failed);
	for (uint32_t i = 0; !failed && i < reply->tokens.count && i < SHM_REFILL_MAX; i++)
		stock_put(adapter, reply->tokens.token[i]);
	spin_unlock(&adapter->window_lock);
}

static bool refill_ask(struct adapter *adapter)
{
	struct shm_request message = { .op = SHM_OP_REFILL_TOKENS,
				       .refill = { .count = SHM_REFILL_MAX } };
	struct request *request = request_create(REQUEST_SILENT, NULL, refill_finish);
	NTSTATUS status = STATUS_INSUFFICIENT_RESOURCES;

	if (!request)
		return false;
	request->extra = (uintptr_t)adapter;
	pthread_mutex_lock(&adapter->lock);
	if (!adapter->closing)
		status = request_send(adapter, request, &message);
	pthread_mutex_unlock(&adapter->lock);
	if (status != STATUS_PENDING)
		free(request);
	return status == STATUS_PENDING;
}

/* After a refusal by the daemon one asks again only now and then. */
static bool refill_wanted(struct adapter *adapter)
{
	bool wanted;

	spin_lock(&adapter->window_lock);
	if (adapter->tokens < adapter->tokens_low)
		stock_drain(adapter);
	wanted = adapter->tokens + adapter->tokens_asked < adapter->tokens_low &&
		 (!adapter->refill_failed || ++adapter->refill_patience % REFILL_PATIENCE == 0);
	if (wanted)
		adapter->tokens_asked += SHM_REFILL_MAX;
	spin_unlock(&adapter->window_lock);
	return wanted;
}

/* What workers gave back comes first; only a lasting want asks the daemon for more. */
void token_refill_if_low(struct adapter *adapter)
{
	while (refill_wanted(adapter)) {
		if (refill_ask(adapter))
			continue;
		spin_lock(&adapter->window_lock);
		refill_answered(adapter, false);
		spin_unlock(&adapter->window_lock);
		return; /* until the next run of progress */
	}
}

/* --- table --------------------------------------------------------------------------- */

void token_link_add(struct adapter *adapter, struct token_link *link, struct mw *mw, uint32_t token)
{
	link->mw = mw;
	link->mr = NULL;
	table_add(&adapter->tokens_bound, &link->by_token, token);
}

void token_link_remove(struct adapter *adapter, struct token_link *link)
{
	table_remove(&adapter->tokens_bound, &link->by_token);
}

struct token_link *token_link_find(struct adapter *adapter, uint32_t token)
{
	struct numbered *found = table_find(&adapter->tokens_bound, token);

	return found ? container_of(found, struct token_link, by_token) : NULL;
}
