/* SPDX-License-Identifier: BSD-3-Clause */
/* Puts ports and workers together, and the control core's side of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_ring_elem.h>

#include "net/door.h"
#include "net/message.h"
#include "net/net_private.h"
#include "net/signals.h"

#define MESSAGES_PER_POLL 256u /* of one worker */
#define FRAMES_PER_POLL   64u
#define LOOK_AT_LINKS_NS  500000000ull
#define ANNOUNCEMENTS     2u
#define ANNOUNCE_AGAIN_NS 2000000000ull

/* --- life -------------------------------------------------------------------------- */

static int create_ports(struct net *net, const char **message)
{
	struct held_signals held;
	int error = 0;

	signals_hold(&held);
	for (uint32_t p = 0; !error && p < net->config.ports; p++)
		error = port_open(net, p, message);
	if (!error)
		error = pools_create(net, message);
	for (uint32_t p = 0; !error && p < net->config.ports; p++)
		error = port_start(net, p, message);
	if (!error) {
		error = door_open(net);
		if (error)
			*message = net_message("thread for net_memif: %s", strerror(-error));
	}
	signals_release(&held);
	return error;
}

static int create_workers(struct net *net, const char **message)
{
	int error = 0;

	for (uint32_t w = 0; !error && w < net->config.workers; w++)
		error = worker_create(net, w);
	if (error)
		*message = net_message("worker rings: %s", strerror(-error));
	return error;
}

/* For queue pairs that can be brought together with their frames: by a move or by a rule. */
static int create_landing(struct net *net, const char **message)
{
	if (net->config.workers == 1 || (!net->config.migrate && !net->flow_user))
		return 0;
	net->landing = calloc(qp_table_size(net->shared), sizeof(*net->landing));
	if (net->landing)
		return 0;
	*message = "out of memory";
	return -ENOMEM;
}

static int check_config(const struct net_config *config, const char **message)
{
	if (config->ports == 0 || config->ports > NET_MAX_PORTS || config->workers == 0 ||
	    config->workers > NET_MAX_WORKERS) {
		*message = net_message("there must be 1 to %u ports and 1 to %u workers",
				       NET_MAX_PORTS, NET_MAX_WORKERS);
		return -EINVAL;
	}
	for (uint32_t w = 0; w < config->workers; w++) {
		if (!config->caller_runs && !rte_lcore_is_enabled(w + 1)) {
			*message = "EAL was started with fewer lcores than workers";
			return -EINVAL;
		}
	}
	return 0;
}

static void set_faults(struct net *net, uint32_t port)
{
	for (enum net_direction d = NET_RECEIVE; d <= NET_TRANSMIT; d++) {
		const struct net_fault *fault = &net->config.port[port].fault[d];

		if (fault->loss || fault->duplicate || fault->reorder || fault->corrupt ||
		    fault->delay)
			net_set_fault(net, port, d, fault);
	}
}

int net_create(struct net **result, const struct net_config *config,
	       struct transport_shared *shared, struct memory *memory, const struct net_io *io,
	       const char **message)
{
	struct neighbour_io neighbour_io;
	struct net *net;
	int error;

	error = check_config(config, message);
	if (error)
		return error;
	net = aligned_alloc(RTE_CACHE_LINE_SIZE,
			    RTE_ALIGN_CEIL(sizeof(*net), (size_t)RTE_CACHE_LINE_SIZE));
	if (!net) {
		*message = "out of memory";
		return -ENOMEM;
	}
	memset(net, 0, sizeof(*net));
	net->config = *config;
	net->shared = shared;
	net->memory = memory;
	net->io = *io;
	for (uint32_t p = 0; p < config->ports; p++)
		set_faults(net, p);
	net->tick_scale = (uint64_t)(((unsigned __int128)1000000000 << 32) / rte_get_tsc_hz());
	slowpath_io(net, &neighbour_io);
	neighbour_create(&net->neighbours, &neighbour_io);
	net->control_client_fd = wake_create();
	net->control_wake_fd = wake_create();
	error = RTE_MIN(RTE_MIN(net->control_client_fd, net->control_wake_fd), 0);
	if (error)
		*message =
			net_message("eventfd: %s (Linux 5.8 or later is needed)", strerror(-error));
	if (!error)
		error = create_ports(net, message);
	if (!error)
		error = create_landing(net, message);
	if (!error)
		error = create_workers(net, message);
	net_log_release();
	if (error) {
		net_destroy(net);
		return error;
	}
	*result = net;
	return 0;
}

int net_start_workers(struct net *net)
{
	__atomic_store_n(&net->stop, 0, __ATOMIC_RELAXED);
	net->running = true;
	for (uint32_t w = 0; w < net->config.workers; w++) {
		int error;

		if (net->config.caller_runs) {
			worker_enter(&net->worker[w]);
			continue;
		}
		error = rte_eal_remote_launch(worker_run, &net->worker[w], w + 1);
		if (error) {
			net_stop_workers(net);
			return error;
		}
	}
	return 0;
}

void net_stop_workers(struct net *net)
{
	if (!net->running)
		return;
	__atomic_store_n(&net->stop, 1, __ATOMIC_SEQ_CST);
	for (uint32_t w = 0; w < net->config.workers; w++)
		worker_wake(&net->worker[w]);
	for (uint32_t w = 0; w < net->config.workers; w++) {
		if (net->config.caller_runs) {
			worker_leave(&net->worker[w]);
			continue;
		}
		rte_eal_wait_lcore(w + 1);
		/* In words of our own: the thread sanitizer does not see into EAL. */
		(void)__atomic_load_n(&net->worker[w].left, __ATOMIC_ACQUIRE);
	}
	net->running = false;
}

unsigned int net_turn(struct net *net)
{
	const uint64_t now = net_clock(net);
	unsigned int done = 0;

	for (uint32_t w = 0; w < net->config.workers; w++)
		done += worker_turn(&net->worker[w], now);
	return done;
}

bool net_has_messages(const struct net *net)
{
	for (uint32_t w = 0; w < net->config.workers; w++)
		if (!rte_ring_empty(net->worker[w].messages) ||
		    !rte_ring_empty(net->worker[w].slow))
			return true;
	return false;
}

void net_destroy(struct net *net)
{
	struct held_signals held;

	if (!net)
		return;
	net_stop_workers(net);
	for (uint32_t w = 0; w < net->config.workers; w++)
		worker_destroy(&net->worker[w]);
	door_close(net);
	signals_hold(&held);
	for (uint32_t p = 0; p < net->config.ports; p++)
		port_close(net, p);
	signals_release(&held);
	pools_destroy(net);
	/* EAL itself stays: its interrupt thread may still be closing a virtual device. */
	wake_close(net->control_client_fd);
	wake_close(net->control_wake_fd);
	free(net->landing);
	free(net->flow_user);
	free(net);
}

/* --- what others may ask ----------------------------------------------------------- */

const struct net_config *net_get_config(const struct net *net)
{
	return &net->config;
}

int net_numa_node(const struct net *net)
{
	return net->port[0].socket;
}

int net_worker_eventfd(const struct net *net, unsigned int worker)
{
	return net->worker[worker].client_fd;
}

struct transport_stats *net_worker_stats(const struct net *net, unsigned int worker)
{
	return net->worker[worker].stats;
}

int net_control_eventfd(const struct net *net)
{
	return net->control_client_fd;
}

int net_control_worker_eventfd(const struct net *net)
{
	return net->control_wake_fd;
}

void net_control_drain(const struct net *net)
{
	wake_drain(net->control_client_fd);
	wake_drain(net->control_wake_fd);
}

uint32_t *net_control_sleeping(struct net *net)
{
	return &net->control_sleeping;
}

uint32_t net_port_path_mtu(const struct net *net, unsigned int port)
{
	return link_path_mtu(net->port[port].link.mtu);
}

int net_find_address(const struct net *net, const uint8_t gid[16])
{
	for (uint32_t p = 0; p < net->config.ports; p++)
		if (link_owns(&net->port[p].link, gid))
			return (int)p;
	return -1;
}

uint8_t net_traffic_class(const struct net *net, const uint8_t local_gid[16], uint8_t wanted)
{
	int port = net_find_address(net, local_gid);

	if (port >= 0 && net->config.port[port].own_dscp)
		return (uint8_t)(net->config.port[port].dscp << 2);
	return wanted;
}

int net_resolve(struct net *net, const uint8_t local_gid[16], const uint8_t remote_gid[16],
		struct qp_path *path, uint64_t now)
{
	int port = net_find_address(net, local_gid);
	const struct link *link;
	const uint8_t *hop;

	if (port < 0)
		return -EADDRNOTAVAIL;
	link = &net->port[port].link;
	hop = link_next_hop(link, remote_gid);
	if (!hop || gid_is_v4(local_gid) != gid_is_v4(remote_gid))
		return -ENETUNREACH;
	memcpy(path->local_mac, link->mac, 6);
	memcpy(path->local_gid, local_gid, 16);
	memcpy(path->remote_gid, remote_gid, 16);
	path->vlan_tci = link->vlan;
	return neighbour_lookup(&net->neighbours, (uint32_t)port, hop, now, path->remote_mac);
}

bool net_port_status(const struct net *net, unsigned int index, struct net_port_status *status)
{
	const struct net_port *port = &net->port[index];
	struct rte_eth_link link;
	struct rte_eth_stats stats;

	if (index >= net->config.ports || rte_eth_stats_get(port->id, &stats) ||
	    rte_eth_link_get_nowait(port->id, &link))
		return false;
	*status = (struct net_port_status){ .link_up = link.link_status == RTE_ETH_LINK_UP,
					    .mtu = port->link.mtu,
					    .rx_packets = stats.ipackets,
					    .tx_packets = stats.opackets,
					    .rx_bytes = stats.ibytes,
					    .tx_bytes = stats.obytes,
					    .rx_missed = stats.imissed,
					    .rx_errors = stats.ierrors,
					    .rx_no_mbuf = stats.rx_nombuf,
					    .arp_answered = port->arp_answered,
					    .nd_answered = port->nd_answered,
					    .icmp_answered = port->icmp_answered,
					    .slow_refused = port->slow_refused,
					    .tx_dropped = port->tx_dropped };
	flow_rule_status(net, index, status);
	memcpy(status->name, net->config.port[index].name, sizeof(status->name));
	memcpy(status->driver, port->driver, sizeof(status->driver));
	memcpy(status->mac, port->link.mac, 6);
	for (uint32_t w = 0; w < net->config.workers; w++) {
		status->handed_over += count_of(&net->worker[w].handed_over[index]);
		status->tx_dropped += count_of(&net->worker[w].tx[index].dropped);
		for (enum net_direction d = NET_RECEIVE; d <= NET_TRANSMIT; d++)
			fault_add_counts(&net->worker[w], index, d, &status->fault[d]);
	}
	return true;
}

/* --- the control core's turn ------------------------------------------------------- */

int net_command(struct net *net, unsigned int worker, const struct worker_command *command)
{
	struct rte_ring *ring = net->worker[worker].commands;

	if (rte_ring_sp_enqueue_elem(ring, (void *)(uintptr_t)command, sizeof(*command)))
		return -EAGAIN;
	flow_rule_command(net, command);
	worker_wake(&net->worker[worker]);
	return 0;
}

/* One wish at a time: QPN and worker, and a bit that makes it a wish. */
#define MOVE_WISH (1ull << 63)

int net_move(struct net *net, uint32_t qpn, unsigned int worker)
{
	const uint32_t qp = qp_find(net->shared, qpn);
	uint64_t none = 0;
	int error;

	if (worker >= net->config.workers)
		return -EINVAL;
	if (qp == 0)
		return -ENOENT;
	error = transport_may_move(net->shared, qp);
	if (error)
		return error;
	if (!__atomic_compare_exchange_n(&net->move_wanted, &none,
					 MOVE_WISH | (uint64_t)worker << 32 | qpn, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return -EBUSY;
	wake_write(net->control_wake_fd);
	return 0;
}

/* As commands go from the control thread only, so does this one. */
static unsigned int send_wish(struct net *net)
{
	uint64_t wish = __atomic_load_n(&net->move_wanted, __ATOMIC_ACQUIRE);
	struct worker_command command = { .type = WORKER_MOVE };

	if (likely(wish == 0))
		return 0;
	command.number = (uint32_t)wish;
	command.to = (uint32_t)(wish >> 32) & (NET_MAX_WORKERS - 1);
	command.object = qp_find(net->shared, command.number);
	if (command.object &&
	    net_command(net, qp_home(net->shared, command.object), &command) == -EAGAIN)
		return 0;
	__atomic_store_n(&net->move_wanted, 0, __ATOMIC_RELEASE);
	return 1;
}

static void command_back(const struct net_io *io, const struct worker_message *message)
{
	const struct worker_command command = { .type = message->moved.type,
						.object = message->moved.object,
						.number = message->moved.number,
						.cookie = message->moved.cookie };

	io->moved(io->context, &command);
}

static unsigned int read_messages(struct net *net, const struct worker *worker)
{
	const struct net_io *io = &net->io;
	struct worker_message message;
	unsigned int count = 0;

	while (count < MESSAGES_PER_POLL &&
	       rte_ring_sc_dequeue_elem(worker->messages, &message, sizeof(message)) == 0) {
		count++;
		switch ((enum worker_message_kind)message.kind) {
		case MESSAGE_EVENT: io->event(io->context, worker->index, &message.event); break;
		case MESSAGE_DONE:
			io->done(io->context, worker->index, message.cookie, message.status);
			break;
		case MESSAGE_MOVED: command_back(io, &message); break;
		}
	}
	return count;
}

static unsigned int read_frames(struct net *net, const struct worker *worker)
{
	struct rte_mbuf *frame[FRAMES_PER_POLL];
	unsigned int count =
		rte_ring_sc_dequeue_burst(worker->slow, (void **)frame, FRAMES_PER_POLL, NULL);

	for (unsigned int i = 0; i < count; i++)
		slowpath_receive(net, frame[i]);
	return count;
}

/* The fastest link's, bytes per second. */
static void tell_line_rate(struct net *net)
{
	const uint64_t megabit = 1000000 / 8;
	uint32_t fastest = 0;

	for (uint32_t p = 0; p < net->config.ports; p++) {
		struct rte_eth_link link;

		if (rte_eth_link_get_nowait(net->port[p].id, &link) == 0 &&
		    link.link_status == RTE_ETH_LINK_UP &&
		    link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
			fastest = RTE_MAX(fastest, link.link_speed);
	}
	transport_set_line_rate(net->shared, fastest * megabit);
}

static bool new_link(const struct net *net)
{
	for (uint32_t p = 0; p < net->config.ports; p++)
		if (__atomic_load_n(&net->port[p].links, __ATOMIC_ACQUIRE) !=
		    net->port[p].links_seen)
			return true;
	return false;
}

/*
 * Peers hear of our addresses when a link comes up, at the start as well, and once more a
 * little later (RFC 5227 2.3): the other end of a link is not always as quick.
 */
static void look_at_links(struct net *net)
{
	if (net->links_looked && net->now - net->links_looked < LOOK_AT_LINKS_NS && !new_link(net))
		return;
	net->links_looked = net->now;
	tell_line_rate(net);
	for (uint32_t p = 0; p < net->config.ports; p++) {
		struct net_port *port = &net->port[p];
		struct rte_eth_link link;
		uint32_t links = __atomic_load_n(&port->links, __ATOMIC_ACQUIRE);
		bool up, other;

		if (rte_eth_link_get_nowait(port->id, &link))
			continue;
		up = link.link_status == RTE_ETH_LINK_UP;
		/* Down and up again between two looks: to somebody else perhaps. */
		other = up != port->link_up || links != port->links_seen;
		port->links_seen = links;
		if (other)
			neighbour_forget(&net->neighbours, p, net->now);
		if (up && other) {
			port->announcements = ANNOUNCEMENTS;
			port->announce_at = net->now;
		}
		port->link_up = up;
		if (up && port->announcements && net->now >= port->announce_at) {
			slowpath_announce(net, p);
			port->announcements--;
			port->announce_at = net->now + ANNOUNCE_AGAIN_NS;
		}
	}
}

unsigned int net_poll(struct net *net, uint64_t now)
{
	unsigned int done = 0;

	net->now = now;
	/* Before what a link's new peer has sent is answered by what was known of the old one. */
	look_at_links(net);
	done += send_wish(net);
	done += flow_rule_poll(net);
	for (uint32_t w = 0; w < net->config.workers; w++) {
		done += read_messages(net, &net->worker[w]);
		done += read_frames(net, &net->worker[w]);
	}
	neighbour_poll(&net->neighbours, now);
	return done;
}
