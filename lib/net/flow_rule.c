/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules in a device, one per flow: addresses and UDP source port, since no item of DPDK 22.11 looks
 * into a BTH. Queue pairs that share all of these share the rule as long as they have one home; the
 * first to come decides which.
 */
#include <errno.h>
#include <stdlib.h>

#include <rte_flow.h>
#include <rte_log.h>
#include <rte_ring_elem.h>

#include "net/message.h"
#include "net/net_private.h"

#define FIRST_PAUSE   1000000000ull /* ns after a refusal; twice as long after each more */
#define LONGEST_PAUSE 64000000000ull

static void count_one(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* --- in words of rte_flow ----------------------------------------------------------------- */

struct pattern {
	struct rte_flow_item item[5];
	struct rte_flow_item_vlan vlan;
	struct rte_flow_item_ipv4 ipv4;
	struct rte_flow_item_ipv6 ipv6;
	struct rte_flow_item_udp udp;
};

static void fill_addresses(struct pattern *pattern, struct rte_flow_item *item,
			   const struct flow_key *flow)
{
	if (gid_is_v4(flow->remote_gid)) {
		memcpy(&pattern->ipv4.hdr.src_addr, flow->remote_gid + 12, 4);
		memcpy(&pattern->ipv4.hdr.dst_addr, flow->local_gid + 12, 4);
		*item = (struct rte_flow_item){ .type = RTE_FLOW_ITEM_TYPE_IPV4,
						.spec = &pattern->ipv4,
						.mask = &rte_flow_item_ipv4_mask };
		return;
	}
	memcpy(pattern->ipv6.hdr.src_addr, flow->remote_gid, 16);
	memcpy(pattern->ipv6.hdr.dst_addr, flow->local_gid, 16);
	*item = (struct rte_flow_item){ .type = RTE_FLOW_ITEM_TYPE_IPV6,
					.spec = &pattern->ipv6,
					.mask = &rte_flow_item_ipv6_mask };
}

static void fill_pattern(struct pattern *pattern, const struct flow_key *flow, uint16_t vlan)
{
	struct rte_flow_item *item = pattern->item;

	*pattern = (struct pattern){ 0 };
	item++->type = RTE_FLOW_ITEM_TYPE_ETH;
	if (vlan) {
		pattern->vlan.tci = rte_cpu_to_be_16(vlan);
		*item++ = (struct rte_flow_item){ .type = RTE_FLOW_ITEM_TYPE_VLAN,
						  .spec = &pattern->vlan,
						  .mask = &rte_flow_item_vlan_mask };
	}
	fill_addresses(pattern, item++, flow);
	pattern->udp.hdr.src_port = rte_cpu_to_be_16(flow->source_port);
	pattern->udp.hdr.dst_port = rte_cpu_to_be_16(ROCE_UDP_PORT);
	*item++ = (struct rte_flow_item){ .type = RTE_FLOW_ITEM_TYPE_UDP,
					  .spec = &pattern->udp,
					  .mask = &rte_flow_item_udp_mask };
	item->type = RTE_FLOW_ITEM_TYPE_END;
}

/* The device is only asked when `handle` is NULL. 0 or a negative errno. */
static int put_to_device(const struct net_port *port, const struct flow_key *flow, uint16_t queue,
			 struct rte_flow **handle, struct rte_flow_error *error)
{
	const struct rte_flow_attr attributes = { .ingress = 1 };
	const struct rte_flow_action_queue to = { .index = queue };
	const struct rte_flow_action actions[] = {
		{ .type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to },
		{ .type = RTE_FLOW_ACTION_TYPE_END },
	};
	struct pattern pattern;

	fill_pattern(&pattern, flow, port->link.vlan);
	if (!handle)
		return rte_flow_validate(port->id, &attributes, pattern.item, actions, error);
	*handle = rte_flow_create(port->id, &attributes, pattern.item, actions, error);
	return *handle ? 0 : -(rte_errno ? rte_errno : EIO);
}

static const char *reason_of(const struct rte_flow_error *error, int number)
{
	return error->message ? error->message : rte_strerror(-number);
}

/* --- what the device can ------------------------------------------------------------------ */

static bool takes(const struct net *net, uint32_t port, bool v4)
{
	/* Of the blocks for documentation (RFC 5737, RFC 3849): nobody's frames. */
	static const struct flow_key example[2] = {
		{ .source_port = 0xc000,
		  .remote_gid = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 },
		  .local_gid = { 0x20, 0x01, 0x0d, 0xb8, [15] = 2 } },
		{ .source_port = 0xc000,
		  .remote_gid = { [10] = 0xff, 0xff, 192, 0, 2, 1 },
		  .local_gid = { [10] = 0xff, 0xff, 192, 0, 2, 2 } },
	};
	const uint16_t last_queue = (uint16_t)(net->config.workers - 1);
	struct rte_flow_error error = { 0 };
	int refused = put_to_device(&net->port[port], &example[v4], last_queue, NULL, &error);

	rte_log(RTE_LOG_INFO, RTE_LOGTYPE_USER1, "oriel: port %s: flow rules for IPv%c: %s\n",
		net->config.port[port].name, v4 ? '4' : '6',
		refused ? reason_of(&error, refused) : "yes");
	return !refused;
}

int flow_rule_probe(struct net *net, uint32_t port)
{
	struct flow_rules *rules = &net->port[port].rules;

	if (net->config.workers == 1)
		return 0;
	rules->takes4 = takes(net, port, true);
	rules->takes6 = takes(net, port, false);
	if (!rules->takes4 && !rules->takes6)
		return 0;
	rules->rule = calloc(FLOW_RULES, sizeof(*rules->rule));
	if (!net->flow_user)
		net->flow_user = calloc(qp_table_size(net->shared), sizeof(*net->flow_user));
	return rules->rule && net->flow_user ? 0 : -ENOMEM;
}

void flow_rule_close(struct net *net, uint32_t index)
{
	struct net_port *port = &net->port[index];

	if (port->rules.count)
		rte_flow_flush(port->id, NULL);
	free(port->rules.rule);
	port->rules = (struct flow_rules){ 0 };
}

/* --- wishes ------------------------------------------------------------------------------- */

void flow_rule_wish(struct worker *worker, uint32_t qp, uint32_t port, uint16_t source_port)
{
	const struct net *net = worker->net;
	const struct flow_wish wish = { .qp = qp,
					.number = qp_number(net->shared, qp),
					.source_port = source_port,
					.port = (uint8_t)port,
					.queue = (uint8_t)worker->index };

	if (!net->port[port].rules.rule)
		return;
	if (rte_ring_sp_enqueue_elem(worker->wishes, (void *)(uintptr_t)&wish, sizeof(wish)) == 0)
		worker->wake_control = true;
}

/* The queue pair may have gone, moved or failed; datagrams have no one peer. */
static bool still_wanted(const struct net *net, const struct flow_wish *wish, struct flow_key *flow)
{
	const struct flow_rules *rules = &net->port[wish->port].rules;
	struct qp_status status;

	if (net->flow_user[wish->qp].ended || !qp_get_status(net->shared, wish->qp, &status) ||
	    status.qpn != wish->number || status.state != QP_RTS || status.type == SHM_QP_UD ||
	    status.home != wish->queue)
		return false;
	flow->source_port = wish->source_port;
	memcpy(flow->remote_gid, status.remote_gid, 16);
	memcpy(flow->local_gid, status.local_gid, 16);
	return gid_is_v4(flow->remote_gid) ? rules->takes4 : rules->takes6;
}

/* --- making and dropping ------------------------------------------------------------------- */

static bool same_flow(const struct flow_key *one, const struct flow_key *other)
{
	return one->source_port == other->source_port &&
	       gid_equal(one->remote_gid, other->remote_gid) &&
	       gid_equal(one->local_gid, other->local_gid);
}

/* The rule of this flow, else one that is free, else NULL. */
static struct flow_rule *find_rule(const struct flow_rules *rules, const struct flow_key *flow)
{
	struct flow_rule *unused = NULL;

	for (struct flow_rule *rule = rules->rule; rule < rules->rule + FLOW_RULES; rule++) {
		if (rule->handle && same_flow(&rule->flow, flow))
			return rule;
		if (!rule->handle && !unused)
			unused = rule;
	}
	return unused;
}

/* A table that is full stays so for a time, and a driver that never can is noisy. */
static void device_refused(struct net *net, uint32_t port, const char *reason)
{
	struct flow_rules *rules = &net->port[port].rules;

	rte_log(RTE_LOG_INFO, RTE_LOGTYPE_USER1, "oriel: port %s: flow rule refused: %s\n",
		net->config.port[port].name, reason);
	rules->pause = rules->pause ? RTE_MIN(2 * rules->pause, LONGEST_PAUSE) : FIRST_PAUSE;
	rules->quiet_until = net->now + rules->pause;
}

static bool install(struct net *net, uint32_t port, struct flow_rule *rule)
{
	struct flow_rules *rules = &net->port[port].rules;
	struct rte_flow_error error = { 0 };
	int refused;

	if (net->now < rules->quiet_until)
		return false;
	refused = put_to_device(&net->port[port], &rule->flow, rule->queue, &rule->handle, &error);
	if (refused) {
		device_refused(net, port, reason_of(&error, refused));
		return false;
	}
	rules->pause = 0;
	count_one(&rules->made);
	__atomic_store_n(&rules->count, rules->count + 1, __ATOMIC_RELAXED);
	return true;
}

static void drop(struct net *net, uint32_t index, struct flow_rule *rule)
{
	struct flow_rules *rules = &net->port[index].rules;
	struct rte_flow_error error = { 0 };
	int refused = rte_flow_destroy(net->port[index].id, rule->handle, &error);

	if (refused && !rules->told) {
		rules->told = true;
		net_warn("port %s: the device does not drop a flow rule: %s",
			 net->config.port[index].name, reason_of(&error, refused));
	}
	rule->handle = NULL;
	__atomic_store_n(&rules->count, rules->count - 1, __ATOMIC_RELAXED);
}

static void let_go(struct net *net, struct flow_user *user)
{
	struct flow_rule *rule;

	if (user->rule == 0)
		return;
	rule = &net->port[user->port].rules.rule[user->rule - 1];
	user->rule = 0;
	if (--rule->users == 0)
		drop(net, user->port, rule);
}

/* Whether the queue pair has a rule for this by now. */
static bool join(struct net *net, const struct flow_wish *wish, const struct flow_key *flow)
{
	struct flow_user *user = &net->flow_user[wish->qp];
	struct flow_rules *rules = &net->port[wish->port].rules;
	struct flow_rule *rule = find_rule(rules, flow);

	if (!rule)
		return false;
	if (!rule->handle) {
		*rule = (struct flow_rule){ .flow = *flow, .queue = wish->queue };
		if (!install(net, wish->port, rule))
			return false;
	} else if (rule->queue != wish->queue) {
		return false;
	}
	rule->users++;
	user->port = wish->port;
	user->rule = (uint16_t)(rule - rules->rule + 1);
	return true;
}

static void fulfil(struct net *net, const struct flow_wish *wish)
{
	struct flow_user *user = &net->flow_user[wish->qp];
	struct flow_key flow = { 0 };

	if (!still_wanted(net, wish, &flow))
		return;
	if (user->rule) {
		const struct flow_rule *rule = &net->port[user->port].rules.rule[user->rule - 1];

		/* Frames that were on their way, or a device that does not do as it said. */
		if (rule->queue == wish->queue && same_flow(&rule->flow, &flow))
			return;
		let_go(net, user);
	}
	if (!join(net, wish, &flow))
		count_one(&net->port[wish->port].rules.refused);
}

unsigned int flow_rule_poll(struct net *net)
{
	struct flow_wish wish;
	unsigned int count = 0;

	if (likely(!net->flow_user))
		return 0;
	/* One of each: a driver may take a while for it. */
	for (uint32_t w = 0; w < net->config.workers; w++) {
		if (rte_ring_sc_dequeue_elem(net->worker[w].wishes, &wish, sizeof(wish)))
			continue;
		fulfil(net, &wish);
		count++;
	}
	return count;
}

void flow_rule_status(const struct net *net, uint32_t port, struct net_port_status *status)
{
	const struct flow_rules *rules = &net->port[port].rules;

	status->flow_rules_limit = rules->rule ? FLOW_RULES : 0;
	status->flow_rules = __atomic_load_n(&rules->count, __ATOMIC_RELAXED);
	status->flow_rules_made = __atomic_load_n(&rules->made, __ATOMIC_RELAXED);
	status->flow_rules_refused = __atomic_load_n(&rules->refused, __ATOMIC_RELAXED);
}

void flow_rule_command(struct net *net, const struct worker_command *command)
{
	const bool begins = command->type == WORKER_ATTACH, ends = command->type == WORKER_DETACH;

	if (likely(!net->flow_user) || !(begins || ends || command->type == WORKER_MOVE))
		return;
	let_go(net, &net->flow_user[command->object]);
	if (begins || ends)
		net->flow_user[command->object].ended = ends;
}
