/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unreliable connections and datagrams. What arrives is not known beforehand; but a completed
 * receive holds one message that was sent, whole and as it was sent, and memory holds nothing that
 * nobody sent. Where the network brings nothing twice or out of order, each message comes once
 * and in order; where it does not lose any either, all of them come.
 */
#include <stdlib.h>
#include <string.h>

#include "shm/spsc.h"
#include "loose.h"

#define GRH        40u
#define LOOSE_QKEY 0x11223344u
#define SLOTS      LOOSE_RECEIVES
#define PSNS       0x1000000u

void loose_fail(const struct loose_end *end, const char *what, uint64_t value)
{
	sim_fail(end->loose->world, "loose pair %u end %u: %s (%#llx)", end->loose->number,
		 end->side, what, (unsigned long long)value);
}

/* Nothing comes twice or late. */
bool loose_in_order(const struct world *world)
{
	return world->config.duplicate == 0 && world->config.reorder == 0;
}

bool loose_all_come(const struct world *world)
{
	return config_is_perfect(&world->config);
}

/* --- set-up ----------------------------------------------------------------------- */

static void place_areas(struct loose_end *end)
{
	const struct world *world = end->loose->world;

	end->area = end->host->size - SIM_WORKERS * (AREA_SRQ + AREA_GUARD) - AREA_GUARD -
		    (world->looses - end->loose->number) * AREA_LOOSE;
	end->source = end->area + AREA_GUARD;
	end->target = end->source + LOOSE_BYTES + AREA_GUARD;
	end->receive_area = end->target + LOOSE_BYTES + AREA_GUARD;
}

static struct sim_cq *open_cq(struct loose_end *end, bool small, uint32_t which)
{
	const uint32_t most = end->config.send_depth + end->config.receive_depth;
	struct rng *rng = &end->loose->world->traffic;
	struct sim_cq *cq = cq_open(end->host, small ? rng_between(rng, 1, 6) : most,
				    1000 + 2 * end->loose->number + which);

	if (small)
		end->small = cq;
	/* For the client of one that is overrun. */
	cq_arm(cq, SHM_ARM_ERRORS);
	return cq;
}

/* One that no other queue pair has: so the order of its receives is known. */
static void open_srq(struct loose_end *end)
{
	struct qp_config *q = &end->config;
	struct srq_config config = { .session = SIM_SESSION,
				     .pd = end->host->pd,
				     .depth = q->receive_depth,
				     .sge = 2,
				     .home = end->worker };

	config.memory_size = srq_memory_size(config.depth, config.sge);
	config.memory = aligned_alloc(64, (config.memory_size + 63) & ~63ull);
	if (config.memory == NULL)
		loose_fail(end, "no memory for receives", 0);
	memset(config.memory, 0, config.memory_size);
	end->srq = config.memory;
	end->srq_index = q->srq = srq_create(end->host->shared, &config);
	if (q->srq == 0)
		loose_fail(end, "no shared receive queue", 0);
}

static void open_queues(struct loose_end *end)
{
	struct world *world = end->loose->world;
	struct rng *rng = &world->traffic;
	struct host *host = end->host;
	struct qp_config *q = &end->config;
	const bool small = end->loose->wild && rng_percent(rng, 60);

	end->worker = rng_below(rng, host->workers);
	*q = (struct qp_config){ .session = SIM_SESSION,
				 .pd = host->pd,
				 .type = end->loose->type,
				 .qp_context = 0x4c00000000ull + end->loose->number,
				 .send_depth = rng_between(rng, 1, 64),
				 .receive_depth = rng_between(rng, 1, SLOTS),
				 .send_sge = 2,
				 .receive_sge = 2,
				 .doorbell = 1000 + end->loose->number,
				 .home = end->worker };
	/* Large enough, or sure to be overrun. */
	end->cq = open_cq(end, small && rng_percent(rng, 60), 0);
	end->receive_cq = end->cq;
	if (rng_percent(rng, 50))
		end->receive_cq = open_cq(end, small && end->small == NULL, 1);
	q->send_cq = end->cq->index;
	q->receive_cq = end->receive_cq->index;
	if (rng_percent(rng, 30))
		open_srq(end);
	q->memory_size = qp_memory_size(q);
	q->memory = aligned_alloc(64, (q->memory_size + 63) & ~63ull);
	if (q->memory == NULL)
		loose_fail(end, "no memory for queues", 0);
	memset(q->memory, 0, q->memory_size);
	end->index = qp_create(host->shared, q);
	if (end->index == 0)
		loose_fail(end, "no queue pair", 0);
	end->number = qp_number(host->shared, end->index);
	transport_attach(host->worker[end->worker].transport, end->index, world->now);
}

/* All that its frames can reach, whatever they say. */
static void create_region(struct loose_end *end)
{
	struct host *host = end->host;
	uint32_t *region = &end->loose->region[end->side];
	const uint32_t start = end->target, bytes = end->receive_area + LOOSE_RECEIVES * LOOSE_SLOT;
	const uint32_t all = RIGHT_LOCAL_READ | RIGHT_LOCAL_WRITE | RIGHTS_REMOTE;

	if (region_create(host->memory, SIM_SESSION, host->pd, false, region) ||
	    region_register(host->memory, *region, host->segment, start, bytes - start,
			    host_address(host, start), all, &end->local, &end->remote))
		loose_fail(end, "no region", 0);
}

/* Nobody is to be reached at the address of a group, of all, or of none. */
static void refuse_group(const struct loose_end *end)
{
	static const uint8_t first[] = { 0, 224, 239, 240, 255 };
	struct rng *rng = &end->loose->world->traffic;
	struct ah_config ah = {
		.session = SIM_SESSION, .pd = end->host->pd, .path_mtu = 4096, .path = end->path
	};

	if (ah.path.remote_gid[10] == 0xff)
		ah.path.remote_gid[12] = first[rng_below(rng, sizeof(first))];
	else if (rng_percent(rng, 50))
		ah.path.remote_gid[0] = 0xff;
	else
		memset(ah.path.remote_gid, 0, 16);
	if (ah_create(end->host->shared, &ah))
		loose_fail(end, "an address that nobody has is taken", ah.path.remote_gid[12]);
}

static void connect_end(struct loose_end *end, bool v4)
{
	struct loose *loose = end->loose;
	struct rng *rng = &loose->world->traffic;
	const struct host *peer = end->peer->host;
	struct qp_connection c = { .remote_qpn = end->peer->number,
				   .send_psn = end->next_psn,
				   .receive_psn = end->peer->next_psn,
				   .path_mtu = loose->mtu,
				   .qkey = LOOSE_QKEY,
				   .timeout = 9,
				   .retry_count = 5,
				   .rnr_retry = 6,
				   .min_rnr_timer = 5,
				   .max_reads_in = 4,
				   .max_reads_out = 4,
				   .remote_rights = RIGHTS_REMOTE };
	struct ah_config ah = { .session = SIM_SESSION, .pd = end->host->pd, .path_mtu = 4096 };
	int rc;

	create_region(end);
	memcpy(c.path.local_gid, v4 ? end->host->v4 : end->host->v6, 16);
	memcpy(c.path.remote_gid, v4 ? peer->v4 : peer->v6, 16);
	memcpy(c.path.local_mac, end->host->mac, 6);
	memcpy(c.path.remote_mac, peer->mac, 6);
	c.path.traffic_class = (uint8_t)rng_below(rng, 256);
	c.path.hop_limit = (uint8_t)rng_between(rng, 1, 255);
	end->path = ah.path = c.path;
	rc = transport_connect(end->host->worker[end->worker].transport, end->index, &c,
			       loose->world->now);
	if (rc)
		loose_fail(end, "connecting failed", (uint64_t)-rc);
	refuse_group(end);
	if (loose->type == SHM_QP_UD)
		end->ah = ah_create(end->host->shared, &ah);
	if (loose->type == SHM_QP_UD && end->ah == 0)
		loose_fail(end, "no address", 0);
	sim_log(loose->world, "loose pair %u end %u: %s queue pair %06x on worker %u, MTU %u",
		loose->number, end->side, loose->type == SHM_QP_UD ? "UD" : "UC", end->number,
		end->worker, loose->mtu);
}

void loose_open(struct world *world, uint32_t number)
{
	struct loose *loose = &world->loose[number];
	struct rng *rng = &world->traffic;
	bool v4;

	loose->world = world;
	loose->number = number;
	loose->dead = false;
	loose->wild |= !loose_all_come(world) && rng_percent(rng, 40);
	loose->type = rng_percent(rng, 50) ? SHM_QP_UC : SHM_QP_UD;
	if (loose->wild && rng_percent(rng, 60))
		loose->type = SHM_QP_RC;
	world->statistics.wild_lives += loose->wild;
	loose->mtu = 256u << rng_below(rng, 5);
	loose->capacity = rng_between(rng, GRH, LOOSE_SLOT - 16);
	for (unsigned int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		memset(end, 0, sizeof(*end));
		end->loose = loose;
		end->side = i;
		end->host = &world->host[i];
		end->peer = &loose->end[!i];
		end->next_psn = (PSNS - rng_below(rng, 200)) % PSNS;
		place_areas(end);
		open_queues(end);
	}
	v4 = rng_percent(rng, 50);
	connect_end(&loose->end[0], v4);
	connect_end(&loose->end[1], v4);
}

/* --- turns ------------------------------------------------------------------------ */

static bool may_send(const struct loose_end *end)
{
	const struct world *world = end->loose->world;

	if (world->draining || end->flush_asked || host_is_fresh(end->host) ||
	    end->tail - end->head >= end->config.send_depth)
		return false;
	/* So many that each surely finds its receive. */
	return !loose_all_come(world) ||
	       end->tail - end->peer->matched < end->peer->receive_tail - end->peer->receive_head;
}

/* A wild one that is dead is flushed, and the next one takes its place. */
static unsigned int replace(struct loose *loose)
{
	struct world *world = loose->world;
	const uint32_t number = loose->number;

	if (!loose->end[0].flush_asked) {
		loose_flush(loose);
		return 1;
	}
	if (world->closing || host_is_fresh(loose->end[0].host) ||
	    host_is_fresh(loose->end[1].host) || !loose_is_flushed(loose))
		return 0;
	loose_settle_end(&loose->end[0]);
	loose_settle_end(&loose->end[1]);
	loose_close(loose);
	loose_open(world, number);
	return 1;
}

/* Whose CQ is to be overrun looks at it seldom. */
static uint32_t polling(const struct loose_end *end)
{
	return end->loose->world->config.polling / (end->small ? 4 : 1);
}

unsigned int loose_turn(struct loose *loose)
{
	struct rng *rng = &loose->world->traffic;
	unsigned int done = 0;

	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		if (qp_get_state(end->host->shared, end->index) == QP_ERROR)
			loose->dead |= loose->wild;
		else if (end->overrun && loose->world->statistics.restarts == 0)
			loose_fail(end, "it lives, and its CQ does not", end->small->index);
	}
	if (loose->dead)
		done += replace(loose);

	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		if (loose->world->draining || rng_percent(rng, polling(end)))
			done += loose_poll_end(end);
		if (end->flush_asked)
			continue;
		while (end->receive_tail - end->receive_head < end->config.receive_depth &&
		       !rng_percent(rng, 10))
			loose_post_receive(end);
		for (uint32_t n = rng_below(rng, rng_percent(rng, 80) ? 3 : 9); n && may_send(end);
		     n--, done++)
			loose_post_send(end);
	}
	return done;
}

/* Where all must come, they have. */
bool loose_is_still(const struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		const struct loose_end *end = &loose->end[i];

		if (end->head != end->tail && !end->overrun)
			return false;
		if (loose_all_come(loose->world) && end->frames_sent != end->peer->frames_come)
			return false;
	}
	return true;
}

/* --- all of them ------------------------------------------------------------------ */

void loose_settle(struct world *world)
{
	for (uint32_t i = 0; i < world->looses; i++) {
		loose_settle_end(&world->loose[i].end[0]);
		loose_settle_end(&world->loose[i].end[1]);
	}
}

/* --- frames and events ------------------------------------------------------------ */

struct loose_end *loose_find(const struct host *host, uint32_t number)
{
	const struct world *world = host->world;

	for (uint32_t i = 0; i < world->looses; i++) {
		struct loose_end *end = &world->loose[i].end[host->number];

		if (end->index && end->number == number)
			return end;
	}
	return NULL;
}

static void check_path(struct loose_end *sender, const uint8_t *frame,
		       const struct frame_facts *facts)
{
	const struct qp_path *path = &sender->path;
	const uint8_t *ip = frame + facts->l3, *udp = frame + facts->bth - 8;
	const uint32_t class = facts->v4 ? ip[1] : (ip[0] & 15u) << 4 | ip[1] >> 4;
	const uint32_t port = (uint32_t)udp[0] << 8 | udp[1];

	if (memcmp(frame, path->remote_mac, 6) != 0 || memcmp(frame + 6, path->local_mac, 6) != 0)
		loose_fail(sender, "MAC address of a frame", facts->psn);
	if (memcmp(ip + (facts->v4 ? 12 : 8), path->local_gid + (facts->v4 ? 12 : 0),
		   facts->v4 ? 4 : 16) != 0 ||
	    memcmp(ip + (facts->v4 ? 16 : 24), path->remote_gid + (facts->v4 ? 12 : 0),
		   facts->v4 ? 4 : 16) != 0)
		loose_fail(sender, "IP address of a frame", facts->psn);
	/* Of the traffic class the lower two bits are for congestion. */
	if (class >> 2 != path->traffic_class >> 2)
		loose_fail(sender, "DSCP of a frame", class >> 2);
	if (ip[facts->v4 ? 8 : 7] != path->hop_limit)
		loose_fail(sender, "hop limit of a frame", ip[facts->v4 ? 8 : 7]);
	if (sender->source_port == 0)
		sender->source_port = port;
	if (port < 0xc000 || port != sender->source_port)
		loose_fail(sender, "source port of a frame", port);
}

void loose_sent(struct loose_end *sender, const uint8_t *frame, const struct frame_facts *facts)
{
	const uint32_t base = sender->loose->type == SHM_QP_UC ? 0x20 : 0x60;
	const uint32_t ahead = (facts->psn - sender->next_psn) % PSNS;

	sender->frames_sent++;
	loose_left(sender, facts);
	if (sender->loose->type == SHM_QP_RC || facts->opcode == 0x81)
		return;
	if ((facts->opcode & 0xe0u) != base)
		loose_fail(sender, "opcode of a frame", facts->opcode);
	/* None is ever sent twice; who dies may have skipped some. */
	if (ahead && (sender->host->generation == 0 || ahead > PSNS / 2))
		loose_fail(sender, "PSN of a frame", facts->psn);
	if (facts->ack_request || facts->qpn != sender->peer->number)
		loose_fail(sender, "head of a frame", facts->psn);
	check_path(sender, frame, facts);
	sender->next_psn = (facts->psn + 1) % PSNS;
}

void loose_overrun(struct host *host, uint32_t cq)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		if (end->index == 0 || end->small == NULL || end->small->index != cq)
			continue;
		if (end->overrun)
			break;
		end->overrun = end->loose->dead = true;
		if (end->small->memory->error != (uint32_t)NT_BUFFER_OVERFLOW)
			loose_fail(end, "error of a CQ", end->small->memory->error);
		return;
	}
	sim_fail(host->world, "host %u: CQ %u was overrun", host->number, cq);
}

bool loose_event(struct host *host, const struct transport_event *event)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		if (end->index == 0 || end->index != event->object)
			continue;
		if (event->type == TRANSPORT_QP_FLUSHED)
			end->flushed = true;
		else if (event->type == TRANSPORT_QP_LAST_WQE && end->srq)
			return true;
		else if (event->type == TRANSPORT_QP_ERROR && end->loose->wild)
			end->loose->dead = true;
		else if (event->type == TRANSPORT_QP_ERROR && end->wrong)
			return true;
		else if (end->loose->wild && event->type == TRANSPORT_BAD_TOKEN)
			return true;
		else if (event->type != TRANSPORT_QP_ESTABLISHED &&
			 (event->type != TRANSPORT_BAD_TOKEN || end->loose->type != SHM_QP_UC))
			loose_fail(end, "event", event->type);
		return true;
	}
	return false;
}

/* --- restart and end -------------------------------------------------------------- */

void loose_show(struct host *host)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];

		cq_set_memory(host->shared, end->cq->index, end->cq->memory);
		cq_set_memory(host->shared, end->receive_cq->index, end->receive_cq->memory);
		qp_set_memory(host->shared, end->index, end->config.memory);
		if (end->srq)
			srq_set_memory(host->shared, end->srq_index, end->srq);
	}
}

void loose_resume(struct host *host)
{
	for (uint32_t i = 0; i < host->world->looses; i++) {
		struct loose_end *end = &host->world->loose[i].end[host->number];
		struct transport *transport = host->worker[end->worker].transport;

		transport_attach(transport, end->index, host->world->now);
		if (end->flush_asked && !end->flushed)
			transport_flush(transport, end->index, host->world->now);
	}
}

bool loose_is_wild(const struct host *host, uint32_t number)
{
	const struct loose_end *end = loose_find(host, number);

	return end && end->loose->wild;
}

void loose_flush(struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];

		if (end->flush_asked)
			continue;
		end->flush_asked = true;
		transport_flush(end->host->worker[end->worker].transport, end->index,
				loose->world->now);
	}
}

bool loose_is_flushed(const struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		const struct loose_end *end = &loose->end[i];

		if (end->flushed && end->small && end->small->memory->error)
			continue;
		/* What no message has taken stays in a shared queue. */
		if (!end->flushed || end->head != end->tail ||
		    (end->receive_head != end->receive_tail && end->srq == NULL))
			return false;
	}
	return true;
}

/* Taken by an overrun, and by nothing else. */
static void check_arms(const struct loose_end *end)
{
	const struct sim_cq *cqs[] = { end->cq, end->receive_cq };

	for (int i = 0; i < 2 && end->loose->world->statistics.restarts == 0; i++) {
		const bool over = end->overrun && cqs[i] == end->small;

		if (cqs[i]->memory->arm != (over ? SHM_ARM_NONE : SHM_ARM_ERRORS))
			loose_fail(end, "arm of a CQ", cqs[i]->memory->arm);
	}
}

void loose_close(struct loose *loose)
{
	for (int i = 0; i < 2; i++) {
		struct loose_end *end = &loose->end[i];
		struct host *host = end->host;
		uint64_t grace;

		transport_detach(host->worker[end->worker].transport, end->index);
		qp_destroy(host->shared, end->index);
		if (end->ah) {
			ah_destroy(host->shared, end->ah, &grace);
			ah_free(host->shared, end->ah);
		}
		loose_forget_wrong(end);
		check_arms(end);
		if (end->receive_cq != end->cq)
			cq_close(end->receive_cq);
		cq_close(end->cq);
		if (region_deregister(host->memory, loose->region[i], &grace))
			loose_fail(end, "its region cannot be deregistered", 0);
		region_deregister_finish(host->memory, loose->region[i]);
		region_destroy(host->memory, loose->region[i]);
		free(end->config.memory);
		if (end->srq)
			srq_destroy(host->shared, end->srq_index);
		free(end->srq);
		for (uint32_t k = 0; k < LOOSE_HISTORY; k++)
			free(end->message[k].bytes);
		end->index = 0;
	}
}
