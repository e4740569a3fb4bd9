/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that unreliable queue pairs must not carry out: their own host refuses them. */
#include <stdlib.h>

#include "loose.h"

#define MULTICAST 0xffffffu

static uint32_t make_address(struct loose_end *end, uint32_t pd, uint32_t mtu)
{
	const struct ah_config config = {
		.session = SIM_SESSION, .pd = pd, .path_mtu = mtu, .path = end->path
	};
	const uint32_t ah = ah_create(end->host->shared, &config);

	if (ah == 0)
		loose_fail(end, "no address", 0);
	return ah;
}

/* Of another domain, given up, or none at all. */
static uint32_t wrong_address(struct loose_end *end)
{
	uint64_t grace;

	switch (rng_below(&end->loose->world->traffic, 4)) {
	case 0: end->other_ah = make_address(end, end->host->other_pd, 4096); return end->other_ah;
	case 1:
		end->retired_ah = make_address(end, end->host->pd, 4096);
		ah_destroy(end->host->shared, end->retired_ah, &grace);
		return end->retired_ah;
	case 2: return 0;
	default: return 1000000;
	}
}

void loose_forget_wrong(struct loose_end *end)
{
	uint64_t grace;

	if (end->other_ah) {
		ah_destroy(end->host->shared, end->other_ah, &grace);
		ah_free(end->host->shared, end->other_ah);
	}
	if (end->retired_ah)
		ah_free(end->host->shared, end->retired_ah);
	end->other_ah = end->retired_ah = 0;
}

/* Operations that a queue pair of this type has not. */
static void wrong_operation(struct loose_end *end, struct shm_sqe *sqe, struct loose_message *m)
{
	static const struct {
		uint8_t opcode;
		uint32_t type;
	} of_rc[] = { { SHM_WR_READ, 0x20 },
		      { SHM_WR_FETCH_ADD, 0x100 },
		      { SHM_WR_COMPARE_SWAP, 0x200 },
		      { SHM_WR_SEND_INVALIDATE, 0x2 },
		      { SHM_WR_WRITE, 0x40 },
		      { SHM_WR_WRITE_IMMEDIATE, 0x40 },
		      { SHM_WR_BIND, 0x8 } };
	/* The last three are for those whose memory a peer may use. */
	const uint32_t pick =
		rng_below(&end->loose->world->traffic, end->loose->type == SHM_QP_UD ? 7 : 4);

	sqe->opcode = of_rc[pick].opcode;
	m->type = of_rc[pick].type;
	m->status = NT_INVALID_DEVICE_REQUEST;
}

static void wrong_datagram(struct loose_end *end, struct shm_sqe *sqe, struct shm_sge *sge,
			   struct loose_message *m)
{
	struct rng *rng = &end->loose->world->traffic;
	uint32_t mtu = end->loose->mtu;

	sqe->mw = end->ah;
	sqe->mr = LOOSE_QKEY;
	sqe->token = end->peer->number;
	switch (rng_below(rng, 3)) {
	case 0:
		sqe->mw = wrong_address(end);
		m->status = NT_INVALID_HANDLE;
		break;
	case 1:
		/* The way there may take less than the queue pair does. */
		if (mtu > 256 && rng_percent(rng, 50)) {
			mtu /= 2;
			sqe->mw = end->other_ah = make_address(end, end->host->pd, mtu);
		}
		sge->length = mtu + one_or_more(rng, 2000);
		m->status = NT_INVALID_BUFFER_SIZE;
		break;
	default:
		sqe->token = rng_percent(rng, 50) ? MULTICAST : 0;
		m->status = NT_INVALID_PARAMETER;
	}
}

static void wrong_sge(struct loose_end *end, struct shm_sge *sge, struct loose_message *m)
{
	sge->token = end->host->remote;
	sge->length = 1 + rng_below(&end->loose->world->traffic, end->loose->mtu);
	m->status = NT_ACCESS_VIOLATION;
}

bool loose_post_wrong(struct loose_end *end)
{
	struct loose_message *m = &end->message[end->tail % LOOSE_HISTORY];
	struct rng *rng = &end->loose->world->traffic;
	struct shm_sge sge = { host_address(end->host, end->source), 8, end->host->local[0] };
	struct shm_sqe sqe = { .opcode = SHM_WR_SEND, .nsge = 1, .request_context = end->tail };

	if (end->loose->wild || end->flush_asked || end->head != end->tail ||
	    host_is_fresh(end->host) || qp_get_state(end->host->shared, end->index) != QP_RTS)
		return false;
	end->wrong = true;
	free(m->bytes);
	*m = (struct loose_message){ .number = end->tail, .kind = KIND_SEND, .never = true };
	if (rng_percent(rng, 30))
		wrong_operation(end, &sqe, m);
	else if (end->loose->type == SHM_QP_UD)
		wrong_datagram(end, &sqe, &sge, m);
	else
		wrong_sge(end, &sge, m);
	m->token = sqe.token;
	sim_log(end->loose->world, "loose pair %u end %u: posts a wrong one, status %#x",
		end->loose->number, end->side, (unsigned int)m->status);
	end->tail++;
	loose_queue(end, &sqe, &sge);
	return true;
}
