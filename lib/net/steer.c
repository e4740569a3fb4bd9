/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that hashes addresses and ports over its queues mostly tells its key and its table. The
 * source port of the peer's frames follows from the flow label or the two QPNs, as Linux and we
 * choose it; so a queue pair can go to the right worker before its first frame. Where the guess
 * is wrong, it follows its frames later. What may not move has its frames brought by a rule.
 */
#include <errno.h>

#include <rte_thash.h>

#include "net/net_private.h"
#include "net/steer.h"
#include "wire/build.h"

#define ROCE_PORT 4791u

void steer_learn(struct steering *steering, uint16_t port)
{
	struct rte_eth_rss_reta_entry64 table[STEER_QUEUE / RTE_ETH_RETA_GROUP_SIZE];
	struct rte_eth_rss_conf hash = { .rss_key = steering->key };
	struct rte_eth_dev_info info;

	*steering = (struct steering){ 0 };
	if (rte_eth_dev_info_get(port, &info) || info.reta_size == 0 ||
	    info.reta_size > STEER_QUEUE || info.hash_key_size > STEER_KEY)
		return;
	hash.rss_key_len = info.hash_key_size;
	memset(table, 0, sizeof(table));
	for (uint32_t i = 0; i < RTE_DIM(table); i++)
		table[i].mask = UINT64_MAX;
	if (rte_eth_dev_rss_hash_conf_get(port, &hash) || hash.rss_hf == 0 ||
	    rte_eth_dev_rss_reta_query(port, table, info.reta_size))
		return;
	for (uint32_t i = 0; i < info.reta_size; i++)
		steering->queue[i] =
			table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE];
	steering->ports4 = hash.rss_hf & RTE_ETH_RSS_NONFRAG_IPV4_UDP;
	steering->ports6 = hash.rss_hf & RTE_ETH_RSS_NONFRAG_IPV6_UDP;
	steering->entries = info.reta_size;
}

/* Words of the hashed tuple, in host order. Returns how many. */
static uint32_t fill_tuple(const struct steering *steering, const uint8_t source_gid[16],
			   const uint8_t destination_gid[16], uint32_t ports, uint32_t tuple[9])
{
	const bool v4 = gid_is_v4(source_gid);
	uint32_t count = 0;

	for (uint32_t at = v4 ? 12 : 0; at < 16; at += 4)
		tuple[count++] = get_be32(source_gid + at);
	for (uint32_t at = v4 ? 12 : 0; at < 16; at += 4)
		tuple[count++] = get_be32(destination_gid + at);
	if (v4 ? steering->ports4 : steering->ports6)
		tuple[count++] = ports;
	return count;
}

int steer_predict(const struct steering *steering, const uint8_t source_gid[16],
		  const uint8_t destination_gid[16], uint16_t source_port,
		  uint16_t destination_port)
{
	uint32_t tuple[9], count;

	if (steering->entries == 0)
		return -1;
	count = fill_tuple(steering, source_gid, destination_gid,
			   (uint32_t)source_port << 16 | destination_port, tuple);
	return steering->queue[rte_softrss(tuple, count, steering->key) % steering->entries];
}

/* True: the queue pair goes, or may go later. False: its frames shall come. */
static bool bring_together(struct worker *worker, uint32_t qp, uint32_t at, uint32_t port,
			   uint16_t source_port)
{
	if (worker->net->config.migrate && move_start(worker, qp, at) != -ENOTSUP)
		return true;
	flow_rule_wish(worker, qp, port, source_port);
	return false;
}

void steer_connected(struct worker *worker, uint32_t qp, const struct qp_connection *connection)
{
	const struct net *net = worker->net;
	const struct qp_path *path = &connection->path;
	const int port = net_find_address(net, path->local_gid);
	uint16_t source_port;
	int queue;

	if (!net->landing || port < 0)
		return;
	source_port = roce_source_port(path->flow_label, connection->remote_qpn,
				       qp_number(net->shared, qp));
	queue = steer_predict(&net->port[port].steering, path->remote_gid, path->local_gid,
			      source_port, ROCE_PORT);
	if (queue >= 0 && (uint32_t)queue != worker->index)
		bring_together(worker, qp, (uint32_t)queue, (uint32_t)port, source_port);
}

void steer_landed(struct worker *worker, uint32_t qp, uint32_t at, uint32_t port,
		  uint16_t source_port, uint64_t now)
{
	/* Not again before the device has had time to heed it. */
	if (!bring_together(worker, qp, at, port, source_port))
		worker->net->landing[qp].taken_at = now;
}
