/* SPDX-License-Identifier: BSD-3-Clause */
/* The device with rules: what a driver makes of a pattern, and what it then does with frames. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_flow.h>

#include "flow_device.h"

struct flow_device flow_device;

/* --- rules ------------------------------------------------------------------------------ */

static bool read_addresses(struct flow_device_rule *rule, const struct rte_flow_item *item)
{
	if (item->type == RTE_FLOW_ITEM_TYPE_IPV4) {
		const struct rte_flow_item_ipv4 *ip = item->spec, *mask = item->mask;

		rule->v4 = true;
		gid_from_v4(rule->source_gid, (const uint8_t *)&ip->hdr.src_addr);
		gid_from_v4(rule->destination_gid, (const uint8_t *)&ip->hdr.dst_addr);
		return mask->hdr.src_addr == UINT32_MAX && mask->hdr.dst_addr == UINT32_MAX;
	}
	if (item->type == RTE_FLOW_ITEM_TYPE_IPV6) {
		const struct rte_flow_item_ipv6 *ip = item->spec, *mask = item->mask;
		uint8_t all[16];

		memset(all, 0xff, sizeof(all));
		memcpy(rule->source_gid, ip->hdr.src_addr, 16);
		memcpy(rule->destination_gid, ip->hdr.dst_addr, 16);
		return !memcmp(mask->hdr.src_addr, all, 16) && !memcmp(mask->hdr.dst_addr, all, 16);
	}
	return false;
}

/* Ethernet, a tag or none, IP, UDP; to one queue. */
static bool read_rule(struct flow_device_rule *rule, const struct rte_flow_attr *attr,
		      const struct rte_flow_item *item, const struct rte_flow_action *action)
{
	const struct rte_flow_item_udp *udp, *mask;

	*rule = (struct flow_device_rule){ .used = true };
	if (!attr->ingress || attr->egress || attr->transfer ||
	    item++->type != RTE_FLOW_ITEM_TYPE_ETH)
		return false;
	if (item->type == RTE_FLOW_ITEM_TYPE_VLAN) {
		rule->tagged = true;
		rule->vlan = rte_be_to_cpu_16(((const struct rte_flow_item_vlan *)item->spec)->tci);
		item++;
	}
	if (!read_addresses(rule, item++) || item->type != RTE_FLOW_ITEM_TYPE_UDP)
		return false;
	udp = item->spec;
	mask = item++->mask;
	rule->source_port = rte_be_to_cpu_16(udp->hdr.src_port);
	rule->destination_port = rte_be_to_cpu_16(udp->hdr.dst_port);
	rule->queue = ((const struct rte_flow_action_queue *)action->conf)->index;
	return mask->hdr.src_port == UINT16_MAX && mask->hdr.dst_port == UINT16_MAX &&
	       item->type == RTE_FLOW_ITEM_TYPE_END &&
	       action[0].type == RTE_FLOW_ACTION_TYPE_QUEUE &&
	       action[1].type == RTE_FLOW_ACTION_TYPE_END;
}

static int refuse(struct rte_flow_error *error, int number, const char *message)
{
	if (error)
		*error = (struct rte_flow_error){ .type = RTE_FLOW_ERROR_TYPE_UNSPECIFIED,
						  .message = message };
	rte_errno = number;
	return -number;
}

/* --- what the program calls --------------------------------------------------------------- */

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attr,
		      const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
		      struct rte_flow_error *error)
{
	struct flow_device_rule rule;

	flow_device.asked++;
	flow_device.broken += !read_rule(&rule, attr, pattern, actions);
	if (rule.v4 ? flow_device.never4 : flow_device.never6)
		return refuse(error, ENOTSUP, "not this family");
	return 0;
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attr,
				 const struct rte_flow_item pattern[],
				 const struct rte_flow_action actions[],
				 struct rte_flow_error *error)
{
	struct flow_device_rule rule;

	flow_device.tried++;
	flow_device.broken += !read_rule(&rule, attr, pattern, actions);
	if (flow_device.deceives || (flow_device.room && flow_device_count() == flow_device.room)) {
		refuse(error, ENOSPC, "no room");
		return NULL;
	}
	for (uint32_t i = 0; i < FLOW_DEVICE_RULES; i++) {
		if (flow_device.rule[i].used)
			continue;
		flow_device.rule[i] = rule;
		flow_device.made++;
		return (struct rte_flow *)&flow_device.rule[i];
	}
	return NULL;
}

int rte_flow_destroy(uint16_t port, struct rte_flow *flow, struct rte_flow_error *error)
{
	struct flow_device_rule *rule = (struct flow_device_rule *)flow;

	flow_device.broken += !rule->used;
	if (flow_device.sticks)
		return refuse(error, EIO, "it sticks");
	rule->used = false;
	flow_device.dropped++;
	return 0;
}

int rte_flow_flush(uint16_t port, struct rte_flow_error *error)
{
	flow_device.flushed++;
	memset(flow_device.rule, 0, sizeof(flow_device.rule));
	return 0;
}

/* --- frames -------------------------------------------------------------------------------- */

int flow_device_queue(const struct wire_view *view)
{
	for (uint32_t i = 0; i < FLOW_DEVICE_RULES; i++) {
		const struct flow_device_rule *rule = &flow_device.rule[i];

		if (rule->used && rule->tagged == view->has_vlan &&
		    (!rule->tagged || rule->vlan == (view->vlan_tci & VLAN_VID_MASK)) &&
		    rule->source_port == view->source_port &&
		    rule->destination_port == ROCE_UDP_PORT &&
		    gid_equal(rule->source_gid, view->source_gid) &&
		    gid_equal(rule->destination_gid, view->destination_gid))
			return rule->queue;
	}
	return -1;
}

uint32_t flow_device_count(void)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < FLOW_DEVICE_RULES; i++)
		count += flow_device.rule[i].used;
	return count;
}

const struct flow_device_rule *flow_device_only(void)
{
	cr_assert_eq(flow_device_count(), 1, "%u rules", flow_device_count());
	for (uint32_t i = 0; i < FLOW_DEVICE_RULES; i++)
		if (flow_device.rule[i].used)
			return &flow_device.rule[i];
	return NULL;
}
