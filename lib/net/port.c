/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports: finds the device, checks that it can do what is asked, configures and starts it. */
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>

#include "net/door.h"
#include "net/message.h"
#include "net/net_private.h"

static int refuse(const struct net_port_config *config, int error, const char **message,
		  const char *what)
{
	*message = net_port_message(config, 0, what);
	return error;
}

static int refuse_mtu(const struct net_port_config *config, int error, const char **message,
		      const char *what)
{
	*message = net_port_message(config, config->mtu_line, what);
	return error;
}

/* The driver's own first words since `mark`, or the error's. */
static int refuse_with_cause(const struct net_port_config *config, int error, const char **message,
			     const char *what, unsigned int mark)
{
	const char *cause = net_log_first(mark);
	char text[320];

	snprintf(text, sizeof(text), "it %s: %s", what, cause ? cause : rte_strerror(-error));
	return refuse(config, error, message, text);
}

/* --- finding the device ------------------------------------------------------------ */

static bool has_capability(unsigned int capability)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	return syscall(SYS_capget, &header, data) == 0 &&
	       (data[capability / 32].effective >> capability % 32 & 1);
}

/* Root in a container lacks them as well as somebody else. */
static const char *missing_capability(void)
{
	const bool raw = has_capability(CAP_NET_RAW), admin = has_capability(CAP_NET_ADMIN);

	if (raw)
		return admin ? "" : " (CAP_NET_ADMIN is missing: the driver may need it)";
	return admin ? " (CAP_NET_RAW is missing: the driver may need it)"
		     : " (CAP_NET_RAW and CAP_NET_ADMIN are missing: the driver may need them)";
}

static int device_failed(const struct net_port_config *config, const struct device *device,
			 const char **message)
{
	const char *cause = net_log_device(device->name);
	const char *missing = driver_missing(device);
	char text[320];

	if (missing)
		return refuse(config, -ENODEV, message, missing);
	if (!cause)
		cause = device->pci ? "no such device, or it is not bound to vfio-pci"
				    : "are its arguments right?";
	snprintf(text, sizeof(text), "it does not start: %s%s", cause, missing_capability());
	return refuse(config, -ENODEV, message, text);
}

static int find_port(const struct device *device, uint16_t *id)
{
	struct rte_dev_iterator iterator;

	if (rte_eth_dev_get_port_by_name(device->name, id) == 0)
		return 0;
	/* A PCI device may have been written short, or drive more than one port. */
	RTE_ETH_FOREACH_MATCHING_DEV(*id, device->name, &iterator)
	{
		rte_eth_iterator_cleanup(&iterator);
		return 0;
	}
	return -ENODEV;
}

/* EAL did not bring it along: see net_config.caller_runs. One that is there already is PCI. */
static int attach(const struct net_port_config *config, const struct device *device,
		  const char **message)
{
	unsigned int mark = net_log_mark();
	int error = rte_dev_probe(device->text);
	const char *missing;

	if (!error || error == -EEXIST)
		return 0;
	missing = driver_missing(device);
	if (missing)
		return refuse(config, -ENODEV, message, missing);
	return refuse_with_cause(config, error, message, "does not start", mark);
}

/* --- MTU --------------------------------------------------------------------------- */

static int set_interface_mtu(const struct net_port *port, const struct net_port_config *config,
			     const char **message)
{
	char interface[IF_NAMESIZE], text[160];
	int error;

	if (!device_argument(port->device.text, "iface", interface, sizeof(interface)))
		return refuse(config, -EINVAL, message, "iface= is missing");
	error = interface_raise_mtu(interface, config->mtu);
	if (!error)
		return 0;
	snprintf(text, sizeof(text), "mtu = %u: interface %s does not take it: %s", config->mtu,
		 interface, rte_strerror(-error));
	return refuse_mtu(config, error, message, text);
}

/* The largest MTU by which ethdev would let the device be set. */
static uint32_t device_mtu_limit(const struct rte_eth_dev_info *info)
{
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;

	if (info->max_mtu != UINT16_MAX && info->max_rx_pktlen > info->max_mtu)
		overhead = info->max_rx_pktlen - info->max_mtu;
	if (info->max_rx_pktlen <= overhead)
		return info->max_mtu;
	return RTE_MIN(info->max_rx_pktlen - overhead, (uint32_t)info->max_mtu);
}

static int set_mtu(struct net_port *port, const struct net_port_config *config,
		   const struct rte_eth_dev_info *info, const char **message)
{
	uint32_t limit = device_mtu_limit(info);
	char text[160];
	int error;

	/* Their drivers' own limits are those of their buffers, which follow the MTU. */
	if (!strcmp(port->device.driver, "net_af_packet") ||
	    !strcmp(port->device.driver, "net_af_xdp"))
		return set_interface_mtu(port, config, message);
	error = rte_eth_dev_set_mtu(port->id, config->mtu);
	/* A device that knows no MTU takes what its buffers hold. */
	if (!error || error == -ENOTSUP)
		return 0;
	if (error == -EINVAL && (config->mtu > limit || config->mtu < info->min_mtu))
		snprintf(text, sizeof(text), "mtu = %u: driver %s carries %u to %u", config->mtu,
			 info->driver_name, info->min_mtu, limit);
	else
		snprintf(text, sizeof(text), "mtu = %u: driver %s does not take it: %s",
			 config->mtu, info->driver_name, rte_strerror(-error));
	return refuse_mtu(config, error, message, text);
}

/* --- opening: everything that needs no buffers ------------------------------------- */

/* net_af_xdp reads so many queues as it is told to, and the kernel spreads frames over all. */
static void warn_of_deaf_queues(const struct net *net, const struct net_port *port,
				const struct net_port_config *config)
{
	char interface[IF_NAMESIZE];
	uint32_t queues;

	if (strcmp(port->device.driver, "net_af_xdp") != 0 ||
	    !device_argument(port->device.text, "iface", interface, sizeof(interface)))
		return;
	queues = interface_queues(interface);
	if (queues > net->config.workers)
		net_warn("port %s: interface %s has %u receive queues and %u worker%s: frames of "
			 "the others are not heard; set their number (ethtool -L)",
			 config->name, interface, queues, net->config.workers,
			 net->config.workers == 1 ? "" : "s");
}

static int check_queues(const struct net *net, const struct net_port_config *config,
			const struct rte_eth_dev_info *info, const char **message)
{
	uint32_t workers = net->config.workers;
	char text[160];

	if (info->max_rx_queues >= workers && info->max_tx_queues >= workers)
		return 0;
	snprintf(text, sizeof(text),
		 "it has %u receive and %u transmit queues; each of %u workers needs one of both",
		 info->max_rx_queues, info->max_tx_queues, workers);
	return refuse(config, -EINVAL, message, text);
}

static int read_mac(const struct net *net, struct net_port *port,
		    const struct net_port_config *config, const char **message)
{
	struct rte_ether_addr mac;

	if (rte_eth_macaddr_get(port->id, &mac) || !mac_is_unicast(mac.addr_bytes))
		return refuse(config, -ENODEV, message, "it has no Ethernet address");
	for (const struct net_port *other = net->port; other < port; other++)
		if (memcmp(other->link.mac, mac.addr_bytes, 6) == 0)
			return refuse(config, -EEXIST, message,
				      "another port has the same Ethernet address");
	link_create(&port->link, config, mac.addr_bytes);
	return 0;
}

static int configure(const struct net *net, struct net_port *port,
		     const struct net_port_config *config, const struct rte_eth_dev_info *info,
		     const char **message)
{
	uint16_t workers = (uint16_t)net->config.workers;
	unsigned int mark = net_log_mark();
	struct rte_eth_conf conf = { 0 };
	int error;

	/* set_mtu() says the rest; what is over the standard size some devices refuse here. */
	conf.rxmode.mtu = RTE_MIN(config->mtu, (uint16_t)RTE_ETHER_MTU);
	if (info->max_rx_pktlen < conf.rxmode.mtu + RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN)
		conf.rxmode.mtu = 0;
	if (workers > 1 && (info->flow_type_rss_offloads & (RTE_ETH_RSS_UDP | RTE_ETH_RSS_IP))) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rx_adv_conf.rss_conf.rss_hf =
			info->flow_type_rss_offloads & (RTE_ETH_RSS_UDP | RTE_ETH_RSS_IP);
	}
	error = rte_eth_dev_configure(port->id, workers, workers, &conf);
	return error ? refuse_with_cause(config, error, message, "cannot be configured", mark) : 0;
}

int port_open(struct net *net, uint32_t index, const char **message)
{
	const struct net_port_config *config = &net->config.port[index];
	struct net_port *port = &net->port[index];
	struct rte_eth_dev_info info;
	int error;

	error = device_parse(&port->device, config, net->config.workers, message);
	if (error)
		return error;
	if (link_path_mtu(config->mtu) == 0)
		return refuse_mtu(config, -EINVAL, message,
				  "mtu is too small for any path MTU (340)");
	if (net->config.caller_runs)
		error = attach(config, &port->device, message);
	if (error)
		return error;
	if (find_port(&port->device, &port->id))
		return device_failed(config, &port->device, message);
	error = rte_eth_dev_info_get(port->id, &info);
	if (error)
		return refuse(config, error, message, "says nothing of itself");
	port->open = true;
	port->attached = net->config.caller_runs ? info.device : NULL;
	snprintf(port->driver, sizeof(port->driver), "%s", info.driver_name);
	port->socket = rte_eth_dev_socket_id(port->id);
	if (port->socket < 0 || port->socket >= RTE_MAX_NUMA_NODES)
		port->socket = SOCKET_ID_ANY;
	warn_of_deaf_queues(net, port, config);
	error = check_queues(net, config, &info, message);
	if (!error)
		error = read_mac(net, port, config, message);
	if (!error)
		error = configure(net, port, config, &info, message);
	if (!error)
		error = set_mtu(port, config, &info, message);
	return error;
}

/* --- starting ---------------------------------------------------------------------- */

static int setup_queues(const struct net *net, const struct net_port *port)
{
	uint16_t rx = RX_DESCRIPTORS, tx = TX_DESCRIPTORS;
	int error;

	error = rte_eth_dev_adjust_nb_rx_tx_desc(port->id, &rx, &tx);
	for (uint16_t w = 0; !error && w < net->config.workers; w++) {
		error = rte_eth_rx_queue_setup(port->id, w, rx, (unsigned int)port->socket, NULL,
					       port->rx_pool);
		if (!error)
			error = rte_eth_tx_queue_setup(port->id, w, tx, (unsigned int)port->socket,
						       NULL);
	}
	return error;
}

/* Neighbour solicitations come to group addresses. */
static void accept_groups(struct net_port *port, const struct net_port_config *config)
{
	if (rte_eth_allmulticast_enable(port->id) == 0)
		return;
	/* A kernel interface would stay promiscuous after us: port_close() undoes it. */
	port->promiscuous =
		rte_eth_promiscuous_get(port->id) == 0 && rte_eth_promiscuous_enable(port->id) == 0;
	if (port->promiscuous)
		return;
	/* Drivers of plain links have no filter that could be opened. */
	if (port->device.pci)
		net_warn("port %s: the device filters multicast: IPv6 peers may not find it",
			 config->name);
}

static int refuse_link(const struct net_port *port, const struct net_port_config *config, int error,
		       const char **message)
{
	const struct memlink_ends *ends = &port->device.memif;
	char text[240];

	snprintf(text, sizeof(text), "it cannot %s socket %s: %s",
		 ends->role == MEMLINK_SERVER ? "listen at" : "connect to", ends->outer.text,
		 rte_strerror(-error));
	return refuse(config, error, message, text);
}

int port_start(struct net *net, uint32_t index, const char **message)
{
	const struct net_port_config *config = &net->config.port[index];
	struct net_port *port = &net->port[index];
	unsigned int mark = net_log_mark();
	int error;

	error = door_add(net, index);
	if (error)
		return refuse_link(port, config, error, message);
	error = setup_queues(net, port);
	if (!error)
		error = rte_eth_dev_start(port->id);
	if (error)
		return refuse_with_cause(config, error, message, "does not start", mark);
	port->started = true;
	if (net->config.workers > 1)
		steer_learn(&port->steering, port->id);
	error = flow_rule_probe(net, index);
	if (error)
		return refuse(config, error, message, "no memory for its flow rules");
	accept_groups(port, config);
	return 0;
}

void port_close(struct net *net, uint32_t index)
{
	struct net_port *port = &net->port[index];

	flow_rule_close(net, index);
	if (port->promiscuous)
		rte_eth_promiscuous_disable(port->id);
	if (port->started)
		rte_eth_dev_stop(port->id);
	if (port->open)
		rte_eth_dev_close(port->id);
	if (port->attached)
		rte_dev_remove(port->attached);
	port->attached = NULL;
	port->started = port->open = false;
}
